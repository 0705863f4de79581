"""Ranks that lag behind in a group, on dumps of torch's flight recorder with injected faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest import cli, schema
from queries import report
from tests.database import Event, database, run
from tests.support import shared

# Job: the ranks that were made to fail, and those that the lag names (14 waits behind 12).
# Injected and reference: NVRx's own analysis of the same dumps names the same seven.
JOBS = {
    "gpu_error_1st": ([12, 14], [12]),
    "gpu_error_2nd": ([9, 14], [9, 14]),
    "lock_gil_1st": ([9, 14], [9, 14]),
    "lock_gil_2nd": ([10, 15], [10, 15]),
}


@pytest.mark.parametrize("job", JOBS)
def test_lag_inside_a_group_names_the_injected_ranks(job: str, tmp_path: Path) -> None:
    dump = shared("data", "nvrx_fr") / f"{job}.jsonl"
    db = tmp_path / "dumps.duckdb"
    assert CliRunner().invoke(cli.app, ["import", str(dump), "--db", str(db)]).exit_code == 0
    injected, named = JOBS[job]
    with report.connect(db, schema.ddl()) as con:
        [row] = con.execute(
            "SELECT failure, tied_ranks, initiating_rank, evidence, confidence FROM run_verdicts"
        ).fetchall()
    assert row[:2] == ("stalled-rank", named)
    assert row[2] in (*named, None)  # without open work a dump has no time
    assert row[3:] == ("collective_lag", "medium")
    assert set(named) <= set(injected)


def group(rank: int, name: str, enqueued: int, t: float) -> Event:
    """Rank `rank` waits in group `name` after `enqueued` collectives."""
    return Event(
        "nccl-timeout",
        "collateral",
        t=t,
        rank=rank,
        signature="nccl-watchdog-timeout",
        captures={"pg_guid": name, "pg_desc": name, "last_enqueued": str(enqueued)},
    )


READINGS = [
    {"reading": 1, "event": "nccl-timeout", "becomes": "stalled-rank", "quiet": False,
     "apart": False, "lags": True, "attempts": 1, "shows": "event", "why": "it lags"}
]  # fmt: skip


def verdicts(*events: Event) -> list[tuple[object, ...]]:
    con = database(
        *(run(f"r/rank{event.rank}.log", event, rank=event.rank) for event in events),
        tables={"readings": READINGS},
    )
    return con.execute("SELECT failure, initiating_rank, tied_ranks FROM verdicts()").fetchall()


def test_who_is_behind_but_waits_for_another_is_not_to_blame() -> None:
    events = (
        group(0, "data", 40, 10),
        group(1, "data", 39, 11),
        group(1, "tensor", 7, 11),
        group(2, "tensor", 6, 12),
    )
    assert verdicts(*events) == [("stalled-rank", 2, [2])]


def test_stages_of_a_pipeline_are_not_compared() -> None:
    events = (group(0, "PIPELINE_MODEL_PARALLEL_GROUP", 40, 10),)
    behind = (group(1, "PIPELINE_MODEL_PARALLEL_GROUP", 12, 11),)
    assert verdicts(*events, *behind) == [(None, None, [])]
