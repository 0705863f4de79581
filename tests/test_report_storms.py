"""Floods of lines that are one thing: the worked example, real teardowns, a real Blue Gene/L."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from ingest import pipeline, schema
from ingest.store import Store
from queries import report
from tests.database import Event, File, ask, database, run, seconds
from tests.support import shared
from tests.test_real_data import TEARDOWN
from tests.test_views import bgl

COUNTS = [2, 1, 3, 2, 40, 65, 52, 3, 2, 1]  # lines a minute of the worked example


def fallen(t: float, **keys: Any) -> Event:
    return Event("peer-lost", "collateral", t=t, **{"severity": "medium", **keys})


# -- worked example ----------------------------------------------------------------------------


def test_the_worked_example_is_reproduced() -> None:
    """171 lines of four runs: each line of a minute is of the next run in turn."""
    lines: list[list[Event]] = [[], [], [], []]
    number = 0
    for minute, count in enumerate(COUNTS):
        for place in range(count):
            lines[number % 4].append(fallen(60 * minute + place / 2, rank=number % 4))
            number += 1
    con = database(*(run(f"r{n}/log", *events) for n, events in enumerate(lines)))
    result = report.run(con, report.load("storms"), {"by": "cluster"})
    [row] = result.table.to_pylist()
    expected = {
        "scope": "c", "baseline": 2.5, "threshold": 10, "minutes": 3, "events": 157,
        "incidents": 4, "compression": 157 / 4, "top_signature": "peer-lost", "top_share": 1.0,
        "counts": [157], "ranks": 4, "lines_per_rank": 157 / 4,
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert (seconds(row["t_first"]), seconds(row["t_last"])) == (240.0, 385.5)
    assert result.notes == ("171 events in 4 incidents: compression 42.75",)


# -- minutes -----------------------------------------------------------------------------------


def flood(minute: int, count: int, **keys: Any) -> list[Event]:
    return [fallen(60 * minute, repeats=count, **keys)]


def test_adjacent_minutes_are_one_storm_and_a_quiet_one_parts_two() -> None:
    con = database(run("r/log", *flood(0, 50), *flood(1, 60), *flood(3, 20), *flood(9, 1)))
    found = [(r["minutes"], r["events"], seconds(r["t_first"])) for r in ask(con, "storms")]
    assert found == [(2, 110, 0.0), (1, 20, 180.0)]


def test_what_is_usual_in_a_place_is_no_storm() -> None:
    """A hundred lines every minute; the quantile of Poisson(100) at 99.9 % is 132."""
    steady = [event for minute in range(9) for event in flood(minute, 100)]
    assert ask(database(run("r/log", *steady, *flood(9, 132))), "storms") == []
    [row] = ask(database(run("r/log", *steady, *flood(9, 133))), "storms")
    assert (row["baseline"], row["threshold"], row["events"]) == (100.0, 132, 133)


def test_silent_minutes_count_in_the_median() -> None:
    [row] = ask(database(run("r/log", *flood(0, 20), *flood(60, 1))), "storms")
    assert (row["baseline"], row["threshold"], row["events"]) == (0.0, 10, 20)


def test_progress_and_facts_are_no_storm() -> None:
    con = database(
        run("r/log", Event("training-step", "progress", t=0, repeats=5000),
            Event("version", "context", t=0, severity="info", repeats=5000))
    )  # fmt: skip
    assert ask(con, "storms") == []


def test_a_place_is_the_attempt_its_host_or_the_cluster() -> None:
    def log(name: str, host: str) -> File:
        return run(f"{name}/log", *flood(0, 8, host=host), host=host)

    con = database(log("a", "n1"), log("b", "n1"), log("d", "n2"))
    assert ask(con, "storms") == []
    [row] = ask(con, "storms", by="host")
    assert (row["scope"], row["host"], row["run_id"], row["events"]) == ("c/n1", "n1", None, 16)
    [row] = ask(con, "storms", by="cluster")
    assert (row["scope"], row["events"], row["incidents"]) == ("c", 24, 3)


def test_the_first_and_last_five_lines_are_kept() -> None:
    events = [fallen(n / 10, rank=n % 4, message=f"peer {n} <b>lost</b>") for n in range(30)]
    [row] = ask(database(run("r/log", *events)), "storms")
    assert row["first_lines"] == [f"peer {n} <b>lost</b>" for n in range(5)]
    assert row["last_lines"] == [f"peer {n} <b>lost</b>" for n in range(25, 30)]
    assert (row["ranks"], row["lines_per_rank"]) == (4, 7.5)


def test_signatures_come_with_their_counts() -> None:
    con = database(run("r/log", *flood(0, 30), Event("disk-full", t=1, repeats=12)))
    [row] = ask(con, "storms")
    assert (row["signatures"], row["counts"]) == (["peer-lost", "disk-full"], [30, 12])
    assert (row["top_signature"], row["top_share"]) == ("peer-lost", 30 / 42)


# -- teardowns ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "nodes", "kind"),
    [(16, 16, "teardown_storm"), (128, 16, "teardown_storm"), (90, 16, "repeat")],
)
def test_a_line_a_node_or_a_process_is_a_teardown(lines: int, nodes: int, kind: str) -> None:
    log = run("r/log", Event("world-size", "progress", t=0, world_size=128),
              Event("killing", "teardown", t=700, repeats=lines))  # fmt: skip
    con = database(log, tables={"jobs": [{"cluster": "c", "job": "r", "nodes": nodes}]})
    [row] = ask(con, "storms")
    assert (row["world_size"], row["nodes"], row["class"]) == (128, nodes, kind)


def test_a_flood_of_causes_is_no_teardown_whatever_its_ratio() -> None:
    log = run("r/log", Event("world-size", "progress", t=0, world_size=64),
              Event("disk-full", t=700, repeats=64))  # fmt: skip
    assert [r["class"] for r in ask(database(log), "storms")] == ["repeat"]


@pytest.fixture(scope="module")
def cancelled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """The 16 logs of BigScience; seven runs were ended by the scheduler."""
    path = tmp_path_factory.mktemp("bigscience") / "db"
    logs = sorted(map(str, shared("data", "bigscience").glob("*.out")))
    with Store(path, report.views()) as store:
        pipeline.ingest(store, pipeline.plan(logs, workers=1))
    with report.connect(path, schema.ddl()) as con:
        yield con


def test_real_cancelled_runs_print_a_line_a_process_and_a_node(
    cancelled: duckdb.DuckDBPyConnection,
) -> None:
    found = {
        row["scope"]: (row["class"], row["world_size"], *row["counts"][:2])
        for row in ask(cancelled, "storms")
        if row["world_size"]
    }
    assert found == {
        job: ("teardown_storm", world, world, nodes) for job, (world, nodes) in TEARDOWN.items()
    }


# -- a real Blue Gene/L ------------------------------------------------------------------------


def test_five_tuples_of_573_hold_a_seventh_of_all_lines() -> None:
    """The largest is two signatures printed once on each of 2,048 places."""
    con = bgl(fold=False)
    given = {"window_s": "300", "dup_s": "0", "spatial_s": "0", "scope": "cluster"}
    rows = sorted(ask(con, "incidents", **given), key=lambda r: -r["n_raw_events"])
    sizes = [row["n_raw_events"] for row in rows]
    assert (len(sizes), sizes[:5]) == (573, [4096, 2048, 1024, 1024, 1024])
    assert round(sum(sizes[:5]) / sum(sizes), 3) == 0.144
    assert (len(rows[0]["signatures"]), rows[0]["n_hosts"]) == (2, 2048)
    storm = max(ask(con, "storms", by="cluster"), key=lambda r: r["events"])
    assert (storm["events"], storm["counts"]) == (4096, [2048, 2048])
    con.close()
