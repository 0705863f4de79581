"""The archive that reports are timed on is what ingest could have made, and the same each time."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from benchmarks import archive, reports
from benchmarks.reports import Timed
from matcher.catalogue import load

RUNS, EVENTS = 60, 40_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "a.duckdb"
    archive.build(path, load(), runs=RUNS, events=EVENTS, seed=3)
    return path


def one(path: Path, query: str) -> tuple[object, ...]:
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute(query).fetchall()[0]


def test_archive_has_about_as_many_events_as_asked_for_each_with_an_id_of_its_own(
    made: Path,
) -> None:
    events, ids, strays = one(
        made,
        "SELECT count(*), count(DISTINCT event_id), "
        "count(*) FILTER (file_id NOT IN (SELECT file_id FROM files)) FROM events",
    )
    assert isinstance(events, int)
    assert abs(events - EVENTS) <= 0.02 * EVENTS
    assert (ids, strays) == (events, 0)


def test_lines_of_a_log_are_in_the_order_of_time_and_bounds_hold_them(made: Path) -> None:
    assert one(
        made,
        "SELECT count(*) FILTER (ts < before), count(*) FILTER (last_line_no < line_no), "
        "count(*) FILTER (ts_hi < ts_lo) FROM (SELECT *, lag(ts) OVER ("
        "PARTITION BY file_id ORDER BY line_no) AS before FROM events)",
    ) == (0, 0, 0)


def test_hosts_run_one_launch_at_a_time(made: Path) -> None:
    assert one(
        made,
        "SELECT count(*) FILTER (start_ts < ended) FROM (SELECT *, lag(end_ts) OVER ("
        "PARTITION BY cluster, host ORDER BY start_ts) AS ended "
        "FROM (SELECT *, unnest(hosts) AS host FROM jobs))",
    ) == (0,)


def test_same_seed_gives_the_same_rows_and_another_other_ones(made: Path, tmp_path: Path) -> None:
    query = "SELECT count(*), sum(hash(e)::HUGEINT) FROM events AS e"
    for seed, same in ((3, True), (4, False)):
        again = tmp_path / f"{seed}.duckdb"
        archive.build(again, load(), runs=RUNS, events=EVENTS, seed=seed)
        assert (one(again, query) == one(made, query)) is same


def test_archive_refuses_to_be_empty_or_to_overwrite(made: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 runs and 5 events: ask for at least one"):
        archive.build(tmp_path / "x", load(), runs=0, events=5)
    with pytest.raises(FileExistsError, match="exists: name a new file"):
        archive.build(made, load(), runs=1, events=1)


def test_report_is_held_to_its_time_and_memory() -> None:
    fast = Timed("trend", 3, (9.0, 10.0, 30.0), 4000.0, None)
    assert fast.held
    assert not fast._replace(seconds=(9.0, 10.1, 30.0)).held
    assert fast._replace(name="all", seconds=(59.0,)).held
    assert not fast._replace(peak_mb=4300.0).held
    failed = fast._replace(error="out of memory")
    assert not failed.held
    assert (failed.row["median_s"], failed.row["error"]) == (None, "out of memory")


def test_report_that_fails_or_takes_too_long_is_a_row_that_says_so(tmp_path: Path) -> None:
    (row,) = reports.run(tmp_path / "none", ["no-such"], rounds=2, patience_s=60)
    assert row.rows is None
    assert "no report 'no-such'" in str(row.error)
    (row,) = reports.run(tmp_path / "none", ["coverage"], rounds=2, patience_s=0.001)
    assert row.error == "not done after 0.001 s"


def test_report_is_run_once_more_than_counted_on_a_missing_database_too(tmp_path: Path) -> None:
    (row,) = reports.run(tmp_path / "none", ["failure-mix"], rounds=1, patience_s=60)
    assert (row.error, row.rows, len(row.seconds)) == (None, 0, 1)
    assert row.peak_mb is not None
