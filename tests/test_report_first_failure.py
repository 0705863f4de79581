"""Who failed first, as the report says it: worked example, host logs around the end, no claims."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from tests.database import Event, File, ask, at, database, run, seconds
from tests.test_views import worked_example

XID = "gpu-fallen-off-bus"


def rows_of(con: duckdb.DuckDBPyConnection, *keys: str, **given: str) -> list[tuple[Any, ...]]:
    return [tuple(row[key] for key in keys) for row in ask(con, "first-failure", **given)]


# -- worked example ----------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["attempt", "run", "incident"])
def test_the_worked_example_is_reproduced(by: str) -> None:
    """A/2 is a warning and has no root, whatever a row is of."""
    found = ask(worked_example(effective=True), "first-failure", by=by)
    first, second = found
    expected = {
        "run_id": "A", "attempt": 1, "root_signature": "nvme.enospc", "evidence": "root_signature",
        "confidence": "high", "initiating_rank": 5, "initiating_host": "n1", "line": 2,
        "scope": "single_rank", "tied_ranks": [5], "collateral_ranks": 4, "silent_ranks": 11,
        "infra_causes": [], "n_causes": 1,
        "collateral_signatures": ["nccl.watchdog_timeout", "python-exception",
                                  "torchelastic.child_failed", "torchelastic.sigterm"],
    }  # fmt: skip
    assert {key: first[key] for key in expected} == expected
    assert (seconds(first["ts"]), round(first["lead_s"], 3)) == (100.0, 0.887)
    expected = {
        "run_id": "B", "attempt": 1, "root_signature": "ds.zero3_nvme_ckpt_race", "line": 11,
        "confidence": "medium", "initiating_rank": 1, "initiating_host": "n3",
        "scope": "all_but_one", "tied_ranks": [1, 2, 3], "collateral_ranks": 1, "silent_ranks": 0,
        "collateral_signatures": ["torchelastic.sigterm"],
    }  # fmt: skip
    assert {key: second[key] for key in expected} == expected


def test_by_printed_time_the_wait_seems_to_be_the_lead() -> None:
    lead = ask(worked_example(effective=False), "first-failure")[0]["lead_s"]
    assert round(lead, 1) == 600.9


@pytest.mark.parametrize("by", ["attempt", "run", "incident"])
def test_each_row_names_its_incident(by: str) -> None:
    con = worked_example(effective=True)
    incidents = {row["run_id"]: row["incident_id"] for row in ask(con, "incidents", warnings="no")}
    assert dict(rows_of(con, "run_id", "incident_id", by=by)) == incidents
    assert set(incidents) == {"A", "B"}


# -- host logs around the end ------------------------------------------------------------------


def failed(name: str = "r", host: str = "n1", begin: float = -5000, **keys: Any) -> File:
    """An attempt on one host whose log says at 1000 s, its end, that a collective timed out."""
    hurt = Event("nccl-timeout", "collateral", t=1000, host=host, severity="medium")
    return run(f"{name}/log", Event("training-step", "progress", t=begin, host=host), hurt, **keys)


def dmesg(*events: tuple[str, float, str], host: str = "n1") -> File:
    """A host's kernel log of failures with time and severity."""
    hits = [Event(failure, t=t, severity=grave, host=host) for failure, t, grave in events]
    return File(f"hosts/{host}/dmesg", hits, host=host, columns={"kind": "dmesg"})


def xid(t: float, host: str = "n1") -> File:
    return dmesg((XID, t, "critical"), host=host)


@pytest.mark.parametrize(
    ("t", "causes"), [(350, []), (400, [XID]), (500, [XID]), (1290, [XID]), (1301, [])]
)
def test_a_host_event_counts_ten_minutes_before_and_five_after_the_end(
    t: float, causes: list[str]
) -> None:
    assert rows_of(database(failed(), xid(t)), "infra_causes") == [(causes,)]


@pytest.mark.parametrize(
    ("t", "before", "after", "causes"),
    [
        (350, "700", "300", [XID]),
        (1301, "600", "301", [XID]),
        (1900, "600", "900", [XID]),
        (1901, "600", "900", []),
        (500, "499", "300", []),
    ],
)
def test_the_window_around_the_end_is_a_parameter(
    t: float, before: str, after: str, causes: list[str]
) -> None:
    con = database(failed(), xid(t))
    found = rows_of(con, "infra_causes", attr_before_s=before, attr_after_s=after)
    assert found == [(causes,)]


def test_all_causes_of_the_host_are_told_the_gravest_first() -> None:
    log = dmesg(("nic-link-down", 700, "high"), ("disk-slow", 710, "low"), (XID, 720, "critical"),
                ("disk-slow", 730, "low"))  # fmt: skip
    con = database(failed(), log)
    assert rows_of(con, "infra_causes", "n_causes") == [([XID, "nic-link-down", "disk-slow"], 3)]


def test_a_cause_in_the_run_s_own_log_counts_beside_those_of_its_host() -> None:
    log = run("r/log", Event("training-step", "progress", t=0, host="n1"),
              Event("disk-full", t=1000, host="n1", rank=2))  # fmt: skip
    row = ask(database(log, dmesg(("nic-link-down", 1100, "high"))), "first-failure")[0]
    assert (row["infra_causes"], row["n_causes"]) == (["nic-link-down"], 2)


@pytest.mark.parametrize("t", [900, 1100])
def test_on_a_shared_host_a_host_event_is_nobody_s(t: float) -> None:
    """The other job runs from 500 s to 2000 s."""
    other = run("s/log", *(Event("training-step", "progress", t=s, host="n1") for s in (500, 2000)))
    assert rows_of(database(failed(), other, xid(t)), "run_id", "infra_causes") == [("r", [])]
    alone = run("s/log", *(Event("training-step", "progress", t=s, host="n2") for s in (500, 2000)))
    con = database(failed(), alone, xid(t))
    assert rows_of(con, "run_id", "infra_causes") == [("r", [XID])]


def test_hosts_of_the_scheduler_count_and_other_clusters_do_not() -> None:
    job = {"cluster": "c", "job": "r", "state": "NODE_FAIL", "hosts": ["n1", "n7"],
           "start_ts": at(-5000), "end_ts": at(1000)}  # fmt: skip
    con = database(failed(), xid(1500, host="n7"), tables={"jobs": [job]})
    assert rows_of(con, "infra_causes", attr_after_s="600") == [([XID],)]
    con.execute("UPDATE events SET cluster = 'd' WHERE host = 'n7'")
    assert rows_of(con, "infra_causes", attr_after_s="600") == [([],)]


def test_only_failed_attempts_have_causes_in_host_logs() -> None:
    steps = [Event("training-step", "progress", t=t, host="n1") for t in (0, 1000)]
    job = {"cluster": "c", "job": "r", "state": "COMPLETED", "start_ts": at(0), "end_ts": at(1000)}
    con = database(run("r/log", *steps), xid(900), tables={"jobs": [job]})
    assert rows_of(con, "run_id", "infra_causes") == []


# -- no false certainty ------------------------------------------------------------------------


def test_without_a_world_size_no_scope_speaks_of_all_ranks() -> None:
    causes = [Event("race", t=1 + n / 10, rank=n, host="n1") for n in range(4)]
    con = database(run("r/log", *causes))
    assert rows_of(con, "scope", "world_size", "silent_ranks") == [("single_host", None, None)]
    known = [Event("world-size", "progress", t=0, world_size=4), *causes]
    assert rows_of(database(run("r/log", *known)), "scope", "initiating_rank") == [
        ("all_ranks", None)
    ]


@pytest.mark.parametrize(
    ("world", "silent", "confidence"), [(2, 0, "high"), (3, 1, "medium"), (None, None, "high")]
)
def test_missing_rank_files_lower_the_confidence_one_step(
    world: int | None, silent: int | None, confidence: str
) -> None:
    con = database(
        run("r/rank_0.log", Event("disk-full", t=5, rank=0, world_size=world), rank=0),
        run("r/rank_1.log", Event("nccl-timeout", "collateral", t=9, rank=1), rank=1),
    )
    assert rows_of(con, "silent_ranks", "confidence") == [(silent, confidence)]


def test_a_killed_process_alone_is_a_guess() -> None:
    killed = Event("process-sigkill", "collateral", t=9, rank=3, host="n1", severity="medium")
    con = database(run("r/log", killed))
    keys = ("failure", "evidence", "confidence", "initiating_rank", "n_causes", "lead_s")
    assert rows_of(con, *keys) == [(None, "exit_signal", "low", 3, 0, None)]
