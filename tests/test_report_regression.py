"""The check of a fix: occurrences against what can trigger them, before and after a change."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from ingest import schema
from queries import report
from tests.database import Event, File, ask, at, database, run

RACE = "nvme-offload-checkpoint-race"
CHANGE = 1_000_000.0


def fleet(
    group: str,
    start: float,
    saves: int,
    races: int,
    *,
    version: str | None = None,
    cluster: str = "c",
) -> Iterator[File]:
    """Attempts with so many saves, printed in folds; `races` of them end in the race."""
    count = max(races, 1)
    for number in range(count):
        now = saves - 5 * (count - 1) if number == 0 else 5
        t = start + 10_000 * number
        events = [
            Event("checkpoint-begin", "progress", t=t + 10, repeats=now - 1),
            Event("checkpoint-begin", "progress", t=t + 5000, repeats=1),
        ]
        if version:
            stated = {"version": version}
            events.append(
                Event(
                    "run-started", "progress", t=t, signature="deepspeed-version", captures=stated
                )
            )
        if number < races:
            raced = [
                Event(RACE, t=t + 5001, rank=rank, category="checkpoint") for rank in (1, 2, 3)
            ]
            events += raced
        yield run(f"{group}-{number}/log", *events, cluster=cluster)


def changed(k1: int, e1: int, **given: Any) -> dict[str, Any]:
    files = [*fleet("old", 0, 300, 12), *fleet("new", CHANGE, e1, k1)]
    [row] = ask(database(*files), "regression", failure=RACE, change=at(CHANGE), **given)
    return row


@pytest.mark.parametrize(
    ("k1", "e1", "p", "upper", "p_detect", "verdict"),
    [
        (0, 40, 0.2226938, 1.872333, 0.7981035, "not_enough_exposure"),
        (0, 100, 0.03167635, 0.7489331, 0.9816844, "gone"),
        (2, 300, 0.006469727, 0.5246495, 0.9999939, "reduced"),
        (9, 250, 0.4947905, 1.570522, 0.9999546, "still_present"),
    ],
)
def test_the_worked_example_comes_out_of_folded_lines(
    k1: int, e1: int, p: float, upper: float, p_detect: float, verdict: str
) -> None:
    row = changed(k1, e1)
    assert (row["k0"], row["e0"], row["k1"], row["e1"]) == (12, 300, k1, e1)
    assert (row["unit"], row["verdict"]) == ("checkpoint-begin", verdict)
    assert (row["rate0"], row["rate1"]) == pytest.approx((0.04, k1 / e1))
    keys = ("p", "upper95_ratio", "p_detect", "exposure_needed", "exposure_needed_conservative")
    assert [row[key] for key in keys] == pytest.approx(
        [p, upper, p_detect, 74.89331, 129.7938], rel=1e-6
    )
    assert (row["exposure_source"], row["state_log_share"]) == ("log", 1.0)


def test_a_control_cluster_tells_a_fix_from_a_quiet_time() -> None:
    files = [*fleet("old", 0, 300, 12), *fleet("new", CHANGE, 100, 0),
             *fleet("other-old", 0, 280, 11, cluster="d"),
             *fleet("other-new", CHANGE, 120, 5, cluster="d")]  # fmt: skip
    [row] = ask(database(*files), "regression", failure=RACE, change=at(CHANGE), control="d")
    assert (row["k0"], row["e0"], row["k1"], row["e1"]) == (12, 300, 0, 100)
    cells = ("control_k0", "control_e0", "control_k", "control_e")
    assert [row[key] for key in cells] == [11, 280, 5, 120]
    assert row["ratio_of_ratios"] == pytest.approx(0.1075325, rel=1e-6)
    assert row["verdict"] == "gone"


def test_gone_in_the_control_group_too_proves_nothing() -> None:
    files = [*fleet("old", 0, 300, 12), *fleet("new", CHANGE, 100, 0),
             *fleet("other-old", 0, 280, 11, cluster="d"),
             *fleet("other-new", CHANGE, 120, 0, cluster="d")]  # fmt: skip
    [row] = ask(database(*files), "regression", failure=RACE, change=at(CHANGE), control="d")
    assert row["verdict"] == "not_distinguishable"
    few = [*files[:-1], *fleet("other-few", CHANGE, 20, 0, cluster="d")]
    few = [one for one in few if not one.path.startswith("other-new")]
    [row] = ask(database(*few), "regression", failure=RACE, change=at(CHANGE), control="d")
    assert (row["control_e"], row["verdict"]) == (20, "gone")


def versioned(*extra: File) -> list[File]:
    return [*fleet("a", 0, 300, 12, version="0.17.6"),
            *fleet("b", 400_000, 100, 0, version="0.18.0+abc"), *extra]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    ["deepspeed >= 0.18.0", "framework_version>=0.18", "deepspeed_version > 0.17.6",
     "DeepSpeed != 0.17.6", "deepspeed=v0.18"],
)  # fmt: skip
def test_a_version_splits_attempts_whenever_they_ran(change: str) -> None:
    con = database(*versioned(*fleet("c", 500_000, 60, 1)))
    [row] = ask(con, "regression", failure=RACE, change=change)
    assert (row["k0"], row["e0"], row["k1"], row["e1"]) == (12, 300, 0, 100)
    assert (row["change_ts"], row["verdict"]) == (at(400_000), "gone")
    assert (row["unknown_k"], row["unknown_e"]) == (1, 60)
    assert row["control_e0"] is None or row["control_e"] is None


def test_the_unfixed_version_of_the_same_time_is_the_control() -> None:
    late = fleet("c", 600_000, 200, 8, version="0.17.5")
    [row] = ask(database(*versioned(*late)), "regression", failure=RACE, change="deepspeed >= 0.18")
    assert (row["k0"], row["e0"], row["control_k"], row["control_e"]) == (20, 500, 8, 200)
    assert (row["control_k0"], row["control_e0"]) == (12, 300)
    assert row["verdict"] == "gone"


def test_versions_compare_as_numbers_and_before_their_candidates() -> None:
    with report.connect(None, schema.ddl()) as con:
        ordered = ["0.9.2", "0.13.0.dev3", "0.13.0", "0.17.6+cu118", "0.17.10", "v1.0", "2.1.0"]
        for one, other in itertools.pairwise(ordered):
            [(less, more)] = con.execute(
                "SELECT version_is($a, '<', $b), version_is($b, '<=', $a)", {"a": one, "b": other}
            ).fetchall()
            assert (less, more) == (True, False)
        [found] = con.sql(
            "SELECT version_is('0.13', '=', '0.13.0+cu'), version_is('0.13.0rc1', '<', '0.13'), "
            "version_is('main', '>=', '0')"
        ).fetchall()
    assert found == (True, True, None)


def test_what_is_no_change_gives_no_row_and_says_so() -> None:
    con = database(*fleet("old", 0, 30, 1))
    definition = report.load("regression")
    for change in ("deepspeed >= 1); DROP TABLE events; --", "soon", "1 = 1"):
        result = report.run(con, definition, {"change": change})
        assert result.table.num_rows == 0
        assert result.notes == (
            "change is neither a time (2026-03-01T12:00) nor a comparison (deepspeed >= 0.18.0): "
            "no row",
        )
    assert report.run(con, definition, {}).notes[0].startswith("give -p change=")
    assert con.sql("SELECT count(*) FROM events").fetchall() == [(5,)]


def test_units_of_exposure_are_what_was_asked_for() -> None:
    ranks = [
        Event("checkpoint-begin", "progress", t=t, rank=rank, repeats=3)
        for t in (0, 100)
        for rank in range(4)
    ]
    jobs = [
        {"cluster": "c", "job": name, "start_ts": at(start), "end_ts": at(start + 7200),
         "gpus": 8, "state": "FAILED", "source": "sacct"}
        for name, start in (("a", 0), ("b", 10_000))
    ]  # fmt: skip
    con = database(
        run("a/log", *ranks, Event("x", t=6000), Event("x", t=6100, rank=1)),
        run("b/log", Event("checkpoint-begin", "progress", t=10_100, signature="copy-begin")),
        tables={"jobs": jobs},
    )

    def found(trigger: str, change: float) -> tuple[Any, ...]:
        [row] = ask(con, "regression", failure="x", change=at(change), trigger=trigger)
        return tuple(row[key] for key in ("k0", "e0", "k1", "e1", "unit", "exposure_source"))

    assert found("auto", 9_000) == (1, 1, 0, 1, "attempt", "jobs")
    assert found("checkpoint-begin", 9_000) == (1, 24, 0, 1, "checkpoint-begin", "log")
    assert found("save", 9_000) == (1, 6, 0, 1, "save", "log")
    assert found("gpu-hour", 9_000) == (1, 16, 0, 16, "gpu-hour", "jobs")
    assert found("gpu-hour", 3_600) == (0, 8, 1, 24, "gpu-hour", "jobs")
    assert found("copy-begin", 9_000) == (1, 0, 0, 1, "copy-begin", "log")
    # An attempt belongs to the time that it began in, and so does what failed in it.
    assert found("attempt", 3_600) == (1, 1, 0, 1, "attempt", "jobs")


def test_without_exposure_or_a_baseline_nothing_is_claimed() -> None:
    con = database(*fleet("old", 0, 30, 0), run("new/log", Event("x", t=CHANGE + 1)))
    [row] = ask(con, "regression", failure="x", change=at(CHANGE))
    assert (row["k0"], row["k1"], row["verdict"]) == (0, 1, "still_present")
    assert (row["ratio"], row["exposure_needed"]) == (None, None)
    [row] = ask(con, "regression", failure="x", change=at(2 * CHANGE))
    assert (row["k0"], row["k1"], row["e1"], row["verdict"]) == (1, 0, 0, "not_enough_exposure")
    assert (row["p"], row["p_detect"]) == (None, 0)
    assert ask(con, "regression", failure="never", change=at(CHANGE)) == []


def test_a_signature_may_be_checked_alone() -> None:
    con = database(
        run("a/log", Event("x", t=1, signature="x-one"), Event("x", t=999)),
        run("b/log", Event("x", "context", t=CHANGE + 1, signature="x-one")),
    )
    [row] = ask(con, "regression", signature="x-one", change=at(CHANGE), trigger="attempt")
    assert (row["failure"], row["signature"], row["k0"], row["k1"]) == ("x", "x-one", 1, 1)
    [row] = ask(con, "regression", failure="x", change=at(CHANGE), trigger="gpu-hour")
    assert (row["k0"], row["k1"]) == (2, 0)  # two occurrences; a warning is none
