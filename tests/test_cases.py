"""Real failures, re-created around the lines that the programs print, through the whole path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ingest import pipeline, schema
from ingest.store import Store
from queries import report

CASES = Path(__file__).parent / "data" / "cases"
EXPECTED = {
    path.parent.name: json.loads(path.read_text()) for path in CASES.glob("*/expected.json")
}
POSITIVE = sorted(name for name, case in EXPECTED.items() if case["root_cause"])
NEGATIVE = sorted(EXPECTED.keys() - set(POSITIVE))

# The decisive line is a number among numbers: which job's loss jumped, and on which node they met.
NOT_A_PATTERN = {"024-loss-spike-common-node"}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cases") / "cases.duckdb"
    with Store(path, report.views()) as store:
        pipeline.ingest(store, pipeline.plan([str(CASES)], workers=1))
    return path


@pytest.fixture(scope="module")
def connection(database: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with report.connect(database, ddl=schema.ddl()) as con:
        yield con


def events_at(
    connection: duckdb.DuckDBPyConnection, case: str, lines: list[dict[str, Any]]
) -> set[str]:
    """Failures of the events that stand for one of these lines, folded repeats included."""
    found: set[str] = set()
    for line in lines:
        rows = connection.execute(
            "SELECT DISTINCT failure FROM events JOIN files USING (file_id) WHERE path = $path AND "
            "(line_no = $line OR (repeats > 1 AND $line BETWEEN line_no AND last_line_no))",
            {"path": f"{case}/{line['file']}", "line": line["line"]},
        ).fetchall()
        found |= {failure for (failure,) in rows}
    return found


@pytest.mark.parametrize("case", sorted(set(POSITIVE) - NOT_A_PATTERN))
def test_decisive_line_is_an_event_of_its_failure(
    connection: duckdb.DuckDBPyConnection, case: str
) -> None:
    expected = EXPECTED[case]
    lines = [expected["decisive_line"], *expected["alternate_lines"]]
    assert expected["root_cause"] in events_at(connection, case, lines)


@pytest.mark.parametrize("case", NEGATIVE)
def test_healthy_run_is_not_counted_as_failed(
    connection: duckdb.DuckDBPyConnection, case: str
) -> None:
    outcomes = connection.execute("SELECT outcome FROM attempts WHERE run = ?", [case]).fetchall()
    assert outcomes
    assert ("failed",) not in outcomes
    for name in ("first-failure", "failure-mix"):
        rows = report.run(connection, report.load(name), {"job": case}).table
        assert rows.num_rows == 0


def test_every_line_of_the_cases_is_read(connection: duckdb.DuckDBPyConnection) -> None:
    rows = connection.execute("SELECT path, lines, raw_bytes FROM files WHERE status = 'ok'")
    for path, lines, raw_bytes in rows.fetchall():
        data = (CASES / path).read_bytes()
        wanted = data.count(b"\n") + (not data.endswith(b"\n"))
        assert (path, lines, raw_bytes) == (path, wanted, len(data))
