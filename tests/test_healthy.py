"""Logs that look alarming and are not: no cause in them, and no failed run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from ingest import pipeline, schema
from ingest.store import Store
from queries import report

HEALTHY = Path(__file__).parent / "data" / "healthy"
LOGS = sorted(path.name for path in HEALTHY.glob("*.log"))

# A batch size finder prints a real OOM; that the run goes on is what makes it harmless.
SURVIVED = {"batch-size-finder-probes-oom.log": {"gpu-oom"}}


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path = tmp_path_factory.mktemp("healthy") / "healthy.duckdb"
    with Store(path, report.views()) as store:
        pipeline.ingest(store, pipeline.plan([str(HEALTHY)], workers=1))
    with report.connect(path, ddl=schema.ddl()) as con:
        yield con


@pytest.mark.parametrize("log", LOGS)
def test_healthy_log_names_no_cause(connection: duckdb.DuckDBPyConnection, log: str) -> None:
    rows = connection.execute(
        "SELECT line_no, failure, signature, message FROM events JOIN files USING (file_id) "
        "WHERE path = ? AND role IN ('cause', 'confirmation') ORDER BY line_no",
        [log],
    ).fetchall()
    assert [row for row in rows if row[1] not in SURVIVED.get(log, set())] == []


def test_no_healthy_run_has_failed(connection: duckdb.DuckDBPyConnection) -> None:
    runs = connection.execute("SELECT run, outcome FROM attempts").fetchall()
    assert len(runs) >= len(LOGS) - 1  # the kernel's log is no run
    assert [run for run, outcome in runs if outcome == "failed"] == []


def test_no_first_failure_in_healthy_logs(connection: duckdb.DuckDBPyConnection) -> None:
    assert connection.execute("SELECT run, failure FROM first_failures()").fetchall() == []
