"""A database made of constructed events, for tests of views and reports."""

from __future__ import annotations

import functools
import itertools
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ingest import schema
from queries import report

EPOCH = datetime(2026, 3, 1)


def at(seconds: float | None) -> datetime | None:
    """Seconds of a test as a time."""
    return None if seconds is None else EPOCH + timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Event:
    """A hit; times are seconds. `t` is the line's own, `lo` and `hi` its neighbours'."""

    failure: str
    role: str = "cause"
    t: float | None = None
    lag: float = 0.0
    lo: float | None = None
    hi: float | None = None
    last: float | None = None
    line: int | None = None
    last_line: int | None = None
    rank: int | None = None
    host: str | None = None
    signature: str | None = None
    category: str = "storage"
    severity: str = "high"
    repeats: int = 1
    step: int | None = None
    world_size: int | None = None
    captures: Mapping[str, str] = field(default_factory=dict)
    message: str | None = None


@dataclass(frozen=True, slots=True)
class File:
    """A log and its events, which are on lines 1, 2, ... where they do not say."""

    path: str
    events: Sequence[Event] = ()
    cluster: str | None = "c"
    run: str | None = None
    job: str | None = None
    attempt: int | None = None
    host: str | None = None
    rank: int | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)


def run(path: str, *events: Event, **keys: Any) -> File:
    """The log of a run named like its first folder."""
    name = path.split("/")[0]
    return File(path, events, **{"run": name, "job": name, **keys})


def database(
    *files: File, tables: Mapping[str, Iterable[Mapping[str, Any]]] | None = None
) -> duckdb.DuckDBPyConnection:
    """A connection for reports on these files and rows of other tables."""
    con = empty()
    file_rows, event_rows = [], []
    for file in files:
        file_id = zlib.crc32(f"{file.cluster}|{file.path}".encode())
        labels = {
            name: getattr(file, name)
            for name in ("cluster", "run", "job", "attempt", "host", "rank")
        }
        times = [e.t for e in file.events if e.t is not None]
        defaults: dict[str, Any] = {"status": "ok", "lines": 100, "size_bytes": 1, "raw_bytes": 1}
        defaults |= {
            "first_ts": at(min(times, default=None)),
            "last_ts": at(max(times, default=None)),
        }
        defaults["events"] = sum(e.repeats for e in file.events)
        file_rows.append(
            {"file_id": file_id, "path": file.path, **labels, **defaults, **file.columns}
        )
        for number, event in enumerate(file.events, 1):
            event_rows.append(_row(file_id, number, len(event_rows) + 1, labels, event))
    insert(con, "files", file_rows)
    insert(con, "events", event_rows)
    for name, rows in (tables or {}).items():
        insert(con, name, rows)
    return con


def empty() -> duckdb.DuckDBPyConnection:
    """A connection for reports on tables without rows."""
    template, copies = _template()
    path = shutil.copy(template, copies / f"{next(_NUMBERS)}.duckdb")
    return report.connect(path, schema.ddl(), read_only=False)


_NUMBERS = itertools.count()
_SCRATCH = tempfile.TemporaryDirectory()


@functools.cache
def _template() -> tuple[Path, Path]:
    """A database file with tables and views, which are dear to make, and a folder for copies."""
    copies = Path(_SCRATCH.name)
    template = copies / "template.duckdb"
    with duckdb.connect(str(template)) as con:
        con.execute(schema.ddl())
        con.execute(report.views())
    return template, copies


def insert(con: duckdb.DuckDBPyConnection, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows; columns that they lack are NULL."""
    table = next(table for table in schema.TABLES if table.name == name)
    data = pa.Table.from_pylist([dict(row) for row in rows], schema=table.schema)
    con.register("new_rows", data)
    con.execute(f"INSERT INTO {name} BY NAME FROM new_rows")
    con.unregister("new_rows")


def rows(con: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return con.sql(sql).fetchall()


def ask(con: duckdb.DuckDBPyConnection, name: str, **arguments: Any) -> list[dict[str, Any]]:
    """Rows of a built-in report."""
    result = report.run(con, report.load(name), arguments)
    return result.table.to_pylist()


def seconds(moment: datetime | None) -> float | None:
    """A time as seconds of the test."""
    return None if moment is None else (moment - EPOCH).total_seconds()


def _row(
    file_id: int, number: int, event_id: int, labels: Mapping[str, Any], event: Event
) -> dict[str, Any]:
    line = event.line or number
    known = event.t if event.t is not None else event.lo
    own = {
        "event_id": event_id,
        "file_id": file_id,
        "signature": event.signature or event.failure,
        "failure": event.failure,
        "role": event.role,
        "component": "x",
        "category": event.category,
        "severity": event.severity,
        "line_no": line,
        "last_line_no": event.last_line or line,
        "byte_offset": line * 100,
        "ts": at(event.t),
        "ts_lo": at(known),
        "ts_hi": at(event.t if event.t is not None else event.hi),
        "ts_last": at(event.last if event.last is not None else event.t),
        "ts_source": "own" if event.t is not None else "none",
        "t_eff": at(None if known is None else known - event.lag),
        "step": event.step,
        "world_size": event.world_size,
        "captures": list(event.captures.items()),
        "repeats": event.repeats,
        "message": event.message or f"{event.failure} at line {line}",
    }
    labelled = dict(labels)
    if event.host is not None:
        labelled["host"] = event.host
    if event.rank is not None:
        labelled["rank"] = event.rank
    return labelled | own


# The role words of the worked examples in ours.
ROLES = {
    "info": "progress",
    "root_candidate": "cause",
    "either": "cause",
    "cascade_candidate": "collateral",
    "warning": "context",
    "teardown": "teardown",
}
