"""Reports on staged views tell what they tell on the views themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from ingest import fleet, pipeline, schema
from ingest.store import Store
from queries import report, staging


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small fleet with failed runs, logs of hosts and restarts."""
    folder = tmp_path_factory.mktemp("staging")
    fleet.generate(folder / "logs", bytes_=3_000_000, seed=5, runs=30)
    with Store(folder / "fleet.duckdb", report.views()) as store:
        pipeline.ingest(store, pipeline.plan([str(folder / "logs")]))
    return folder / "fleet.duckdb"


def rows(con: duckdb.DuckDBPyConnection, name: str) -> list[dict[str, object]]:
    return report.run(con, report.load(name)).table.to_pylist()


def _rounded(value: Any) -> Any:
    """Sums of floats depend on the order of rows in their last digit."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", report.names())
def test_a_report_is_the_same_on_staged_views(db: Path, name: str) -> None:
    with report.connect(db, schema.ddl()) as plain, report.connect(db, schema.ddl()) as staged:
        plain.execute("DROP TABLE temp.staged")
        assert _rounded(rows(staged, name)) == _rounded(rows(plain, name))


def test_only_what_a_query_reaches_is_staged(db: Path) -> None:
    with report.connect(db, schema.ddl()) as con:
        report.query(con, "SELECT count(*) FROM events")
        assert con.execute("FROM temp.staged").fetchall() == []
        report.query(con, "SELECT count(*) FROM attempts")
        staged = [name for (name,) in con.execute("FROM temp.staged").fetchall()]
        assert staged == ["attempt_spans", "kept_beside", "marks", "attempts"]
        failed = "SELECT count(*) FROM verdicts()"
        assert report.query(con, failed).table == report.query(con, failed).table
        assert con.execute("SELECT count(*) FROM temp.staged").fetchall() == [(6,)]


def test_a_connection_that_may_write_sees_its_own_changes(db: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(db.read_bytes())
    with report.connect(copy, schema.ddl(), read_only=False) as con:
        [(before,)] = con.execute("SELECT count(*) FROM attempts").fetchall()
        con.execute("INSERT INTO jobs (cluster, job, state) VALUES ('c', 'new', 'COMPLETED')")
        assert report.query(con, "SELECT count(*) AS n FROM attempts").table.to_pylist() == [
            {"n": before + 1}
        ]


def test_a_view_of_an_older_firstfault_is_staged_anew(db: Path, tmp_path: Path) -> None:
    copy = tmp_path / "old.duckdb"
    copy.write_bytes(db.read_bytes())
    with duckdb.connect(str(copy)) as con:
        con.execute("CREATE OR REPLACE MACRO views_digest() AS 'older'")
        con.execute("CREATE OR REPLACE VIEW kept_beside AS SELECT 1 AS nothing")
    with report.connect(copy, schema.ddl()) as old, report.connect(db, schema.ddl()) as new:
        assert rows(old, "first-failure") == rows(new, "first-failure")


def test_lines_that_read_otherwise_on_tables_are_sql_both_ways() -> None:
    with report.connect(None, schema.ddl()) as con:
        staging.begin(con)
        staging.stage(con, "FROM run_verdicts", report.views())
        assert con.execute("SELECT count(*) FROM first_failures()").fetchall() == [(0,)]
