"""How many incidents there are: the worked example by window, and what belongs to none of them."""

from __future__ import annotations

from typing import Any

import pytest

from queries import report
from tests.database import Event, File, ask, database, run, seconds
from tests.test_views import worked_example

SENSITIVITY = "incidents by window: {} at 5 s, {} at 60 s, {} at 300 s, {} at 720 s, {} at 1800 s"


@pytest.mark.parametrize(
    ("effective", "counts"), [(True, (3, 3, 3, 3, 3)), (False, (4, 4, 4, 3, 3))]
)
def test_the_window_decides_only_where_printed_time_is_taken(
    effective: bool, counts: tuple[int, ...]
) -> None:
    result = report.run(worked_example(effective), report.load("incidents"), {})
    assert result.notes == (SENSITIVITY.format(*counts),)
    assert result.table.num_rows == counts[2]


def test_the_worked_example_is_reproduced() -> None:
    first, race, warning = ask(worked_example(effective=True), "incidents")
    expected = {
        "run_id": "A", "attempt": 1, "duration_s": 605.0, "n_raw_events": 8, "n_ranks": 5,
        "n_hosts": 2, "gpus_affected": 16, "first_signature": "nvme.enospc", "first_rank": 5,
        "first_host": "n1", "first_line": 2, "ts_quality": "own", "capped": False,
        "warning_only": False, "ended_attempt": True,
        "signatures": ["nccl.watchdog_timeout", "nvme.enospc", "python-exception",
                       "torchelastic.child_failed", "torchelastic.sigterm"],
    }  # fmt: skip
    assert {key: first[key] for key in expected} == expected
    assert (seconds(first["t_first"]), seconds(first["t_last"])) == (100.0, 705.0)
    assert (race["run_id"], race["n_ranks"], seconds(race["t_last"])) == ("B", 4, 203.0)
    assert (warning["attempt"], warning["warning_only"], warning["ended_attempt"]) == (
        2, True, False,
    )  # fmt: skip


def host_event(t: float) -> File:
    hit = Event("gpu-fallen-off-bus", t=t, host="n1")
    return File("hosts/n1/dmesg", [hit], host="n1", columns={"kind": "dmesg"})


@pytest.mark.parametrize(
    ("t", "attempt"), [(1100, 1), (1290, 1), (1500, None), (1999, 2), (2500, 2)]
)
def test_before_an_attempt_a_host_event_is_of_the_one_before_for_five_minutes(
    t: float, attempt: int | None
) -> None:
    """Attempts ran from 0 to 1000 s and from 2000 to 3000 s; clocks differ by up to 2 s."""

    def steps(begin: float) -> list[Event]:
        return [Event("training-step", "progress", t=begin + s, host="n1") for s in (0, 1000)]

    con = database(
        run("r/1/log", *steps(0), attempt=1), run("r/2/log", *steps(2000), attempt=2), host_event(t)
    )
    [row] = ask(con, "incidents")
    assert (row["run_id"], row["attempt"]) == ("r" if attempt else None, attempt)


def test_a_line_teed_into_the_job_s_file_is_one_event() -> None:
    """The rank's file knows the rank; the job's has the same line without it."""
    con = database(
        run("r/rank_3.log", Event("disk-full", t=10, rank=3, message="full"), rank=3),
        run("r/job.out", Event("disk-full", t=10, message="full"), Event("late", t=11)),
    )
    [row] = ask(con, "incidents")
    assert (row["n_events"], row["n_ranks"], row["failures"]) == (2, 1, ["disk-full", "late"])


def test_lines_without_times_make_one_incident_an_attempt_and_file() -> None:
    def log(attempt: int, name: str) -> File:
        events = [Event("x", line=n) for n in (1, 500, 90_000)]
        return run(f"r/{attempt}/{name}", *events, attempt=attempt)

    rows = ask(database(log(1, "a"), log(1, "b"), log(2, "a")), "incidents")
    keys = ("attempt", "first_file", "n_raw_events", "ts_quality", "t_first")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        (1, "r/1/a", 3, "order_only", None),
        (1, "r/1/b", 3, "order_only", None),
        (2, "r/2/a", 3, "order_only", None),
    ]


def test_a_warning_every_minute_glues_nothing_and_is_left_out_when_asked() -> None:
    retries = [Event("retry", "context", t=60 * n, severity="medium") for n in range(200)]
    con = database(run("r/log", Event("x", t=100), *retries, Event("y", t=9000)))

    def begun(**given: Any) -> list[tuple[str, bool]]:
        rows = ask(con, "incidents", **given)
        return sorted((row["first_failure"], row["warning_only"]) for row in rows)

    assert begun(warnings="no") == [("x", False), ("y", False)]
    assert [one for one in begun() if not one[1]] == [("x", False), ("y", False)]
    assert {one for one in begun() if one[1]} == {("retry", True)}


def test_a_storm_does_not_glue_a_day_together() -> None:
    chain = [Event("x", t=240 * n, rank=0) for n in range(360)]  # one every four minutes, a day
    rows = ask(database(run("r/log", *chain)), "incidents")
    assert [(row["n_raw_events"], row["capped"]) for row in rows] == [(90, True)] * 4
    assert len(ask(database(run("r/log", *chain)), "incidents", max_h="0")) == 1
