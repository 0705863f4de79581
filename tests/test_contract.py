"""The schema is the contract: a database filled by hand, without what firstfault adds, answers too.

Only the columns that the tables are promised to have are filled: no `run`, `pid`, `ts_last`, no
`files` rows, no severities.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ingest import schema
from queries import report
from tests.database import ROLES

EXAMPLES = Path(__file__).parent / "data" / "report_examples"
START = datetime(2026, 3, 1)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(tmp_path / "db")) as made:
        made.execute(schema.ddl())
        fill(made)
    with report.connect(tmp_path / "db", schema.ddl()) as con:
        yield con


def fill(con: duckdb.DuckDBPyConnection) -> None:
    """The 14 events of the worked example of incidents, and 200 attempts with planted pairs."""
    with (EXAMPLES / "incidents.csv").open() as lines:
        for row in csv.DictReader(lines):
            ts = START + timedelta(seconds=float(row["ts_s"]))
            lag = timedelta(milliseconds=float(row["ran_ms"] or 0))
            insert(con, int(row["event_id"]), ts, row | {"role": ROLES[row["role"]]}, ts - lag)
    number = 1000
    with (EXAMPLES / "pairs.csv").open() as lines:
        for row in csv.DictReader(lines):
            other = row["pair"].split("|")[1]
            both, race, alone = (int(row[key]) for key in ("n11", "n10", "n01"))
            units = [*range(both), *range(both + race, both + race + alone)]
            for unit in units:
                number += 1
                place = {"run_id": f"p{unit}", "attempt": 1, "host": f"h{unit}", "rank": 0}
                insert(con, number, START, place | {"signature": other, "role": "cause"}, START)
    for unit in range(200):
        place = {"run_id": f"p{unit}", "attempt": 1, "host": f"h{unit}", "rank": 0}
        signature = "race" if unit < 10 else "steps"
        role = "cause" if unit < 10 else "progress"
        insert(con, 10_000 + unit, START, place | {"signature": signature, "role": role}, START)


def insert(
    con: duckdb.DuckDBPyConnection, number: int, ts: datetime, row: dict[str, Any], t_eff: datetime
) -> None:
    values = {
        "event_id": number,
        "file_id": 1,
        "signature": row["signature"],
        "failure": row["signature"],
        "role": row["role"],
        "line_no": number,
        "byte_offset": number * 100,
        "ts": ts,
        "ts_lo": ts,
        "ts_hi": ts,
        "ts_source": "own",
        "t_eff": t_eff,
        "cluster": "c",
        "job": row["run_id"],
        "attempt": int(row["attempt"]),
        "host": row["host"],
        "rank": int(row["rank"]),
        "repeats": 1,
        "message": row["signature"],
    }
    columns = ", ".join(values)
    marks = ", ".join("?" * len(values))
    con.execute(f"INSERT INTO events ({columns}) VALUES ({marks})", list(values.values()))


def test_incidents_of_the_worked_example(connection: duckdb.DuckDBPyConnection) -> None:
    for window in ("5", "300", "720"):
        rows = [
            row
            for job in ("A", "B")
            for row in report.run(
                connection, report.load("incidents"), {"job": job, "window_s": window}
            ).table.to_pylist()
        ]
        assert [(r["run_id"], r["attempt"], r["n_raw_events"], r["n_ranks"]) for r in rows] == [
            ("A", 1, 8, 5),
            ("A", 2, 1, 1),
            ("B", 1, 4, 4),
        ]
        assert [(r["t_first"].replace(tzinfo=None) - START).total_seconds() for r in rows] == [
            100.0,
            9000.0,
            200.0,
        ]


def test_pairs_of_the_worked_example(connection: duckdb.DuckDBPyConnection) -> None:
    table = report.run(connection, report.load("co-occurrence"), {}).table
    rows = {(r["a"], r["b"]): r for r in table.to_pylist()}
    straggler = rows["race", "straggler"]
    assert [straggler[key] for key in ("n11", "n10", "n01")] == [6, 4, 14]
    assert straggler["lift"] == pytest.approx(6.0, rel=0.03)  # 203 attempts here, 200 there
    assert straggler["fisher_p"] == pytest.approx(7.641e-05, rel=0.1)
