"""Keep files, events and evidence in one DuckDB file, each file's rows all or not at all.

One writer: the process that holds the connection. A transaction replaces whatever the database had
of the same files, so that a killed scan leaves only whole files and a second one completes it.
"""

from __future__ import annotations

import contextlib
import glob
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ingest import schema
from matcher.catalogue import Catalogue


class StoreError(Exception):
    """The database cannot be used; the message names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Rows of one table: many in an Arrow stream file, the last of them or few in memory."""

    batches: Sequence[pa.RecordBatch] = ()
    spool: str | None = None
    line_shift: int = 0  # to be added to line numbers
    without: frozenset[int] = frozenset()  # event_ids of rows to be left out

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The batches one by one, those of the file first."""
        if self.spool:
            with pa.OSFile(self.spool, "rb") as file, pa.ipc.open_stream(file) as reader:
                yield from map(self._placed, reader)
        yield from map(self._placed, self.batches)

    def _placed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.without:
            out = pc.is_in(batch["event_id"], pa.array(self.without, batch["event_id"].type))
            batch = batch.filter(pc.invert(out))
        for name in ("line_no", "last_line_no") if self.line_shift else ():
            if name in batch.schema.names:
                place = batch.schema.get_field_index(name)
                shifted = pc.add(batch[name], self.line_shift)
                batch = batch.set_column(place, batch.schema.field(name), shifted)
        return batch


class Rows(NamedTuple):
    """All rows of some files."""

    files: list[dict[str, Any]]
    events: Batches = Batches()
    evidence: Batches = Batches()


class Identity(NamedTuple):
    """What tells whether a file must be read again."""

    size_bytes: int | None
    mtime_us: int | None
    digest: str


class Known(NamedTuple):
    """A file that the database has: its identity when it was read, and from where."""

    identity: Identity
    location: str | None


class Store:
    """An open database. Use as a context manager."""

    def __init__(self, path: Path | None, views: str = "") -> None:
        self.path = path
        try:
            if path is not None:
                str(path).encode()  # DuckDB takes no other names
                path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = duckdb.connect(str(path) if path else ":memory:")
        except (duckdb.Error, OSError, UnicodeEncodeError) as error:
            raise StoreError(_reason(path, error)) from error
        try:
            self._prepare(views)
        except BaseException:
            self._connection.close()
            raise
        if path is not None:
            for stale in path.parent.glob(f"{glob.escape(path.name)}.spool-*"):
                shutil.rmtree(stale, ignore_errors=True)

    def __enter__(self) -> Store:
        """The store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the database."""
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection, for reports on a database that is in memory."""
        return self._connection

    def _prepare(self, views: str) -> None:
        con = self._connection
        con.execute("SET TimeZone = 'UTC'")
        con.execute("CREATE TABLE IF NOT EXISTS firstfault (schema_version INTEGER)")
        found = con.execute("SELECT max(schema_version) FROM firstfault").fetchone()
        version = found[0] if found else None
        if version is None:
            con.execute("INSERT INTO firstfault VALUES (?)", [schema.VERSION])
        elif version != schema.VERSION:
            raise StoreError(
                f"{self.path}: schema version {version}, this firstfault writes {schema.VERSION}: "
                "use the firstfault that wrote it, or ingest into a new --db"
            )
        con.execute("BEGIN")
        con.execute(schema.ddl())
        if views:
            con.execute(views)
        con.execute("COMMIT")

    def known(self) -> dict[tuple[str | None, str], Known]:
        """The files that the database has, by (cluster, path); failed ones are to be read again."""
        rows = self._connection.execute(
            "SELECT cluster, path, location, size_bytes, epoch_us(mtime), "
            "CASE WHEN status <> 'failed' THEN catalogue_digest END FROM files"
        ).fetchall()
        return {
            (cluster, path): Known(Identity(*rest), location)
            for cluster, path, location, *rest in rows
        }

    def begin(
        self, version: str, engine: str, catalogue: Catalogue, arguments: Mapping[str, Any]
    ) -> int:
        """Start a scan: write the catalogue and an unfinished `scans` row; its scan_id."""
        con = self._connection
        con.execute("BEGIN")
        self._write_catalogue(catalogue)
        row = con.execute("SELECT coalesce(max(scan_id), 0) + 1 FROM scans").fetchone()
        scan_id = int(row[0]) if row else 1
        con.execute(
            "INSERT INTO scans BY NAME SELECT ?::UBIGINT AS scan_id, ?::TIMESTAMP AS started_at, "
            "? AS tool_version, ? AS catalogue_digest, ? AS arguments, ? AS engine",
            [
                scan_id,
                datetime.now(UTC).replace(tzinfo=None),
                version,
                catalogue.digest,
                json.dumps(arguments, default=str),
                engine,
            ],
        )
        con.execute("COMMIT")
        return scan_id

    def write(self, results: Sequence[Rows], scan_id: int) -> None:
        """Replace all rows of these files in one transaction.

        Raises StoreError, with nothing of these files changed, where the disk or database fails.
        """
        con = self._connection
        rows = [row | {"scan_id": scan_id} for result in results for row in result.files]
        files = pa.Table.from_pylist(rows, schema=schema.FILES.schema)
        try:
            con.execute("BEGIN")
            con.register("new_files", files)
            for table in ("events", "evidence", "files"):
                con.execute(
                    f"DELETE FROM {table} WHERE file_id IN (SELECT file_id FROM new_files)"  # noqa: S608
                )
            self._insert("files", files)
            for shape, parts in (
                (schema.EVIDENCE, [result.evidence for result in results]),
                (schema.EVENTS, [result.events for result in results]),
            ):
                # Small ones together, for an INSERT has its price; spooled ones a batch at a time.
                small = [batch for part in parts if not part.spool for batch in part]
                self._insert(shape.name, pa.Table.from_batches(small, schema=shape.schema))
                for part in parts:
                    for batch in part if part.spool else ():
                        self._insert(shape.name, pa.Table.from_batches([batch]))
            con.execute("COMMIT")
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            with contextlib.suppress(duckdb.Error):
                con.execute("ROLLBACK")
            raise StoreError(_reason(self.path, error)) from error
        finally:
            con.unregister("new_files")

    def archives(self) -> set[int]:
        """file_ids of the archives whose members the database has."""
        rows = self._connection.execute("SELECT file_id FROM files WHERE kind = 'archive'")
        return {row[0] for row in rows.fetchall()}

    def forget(self, archive: int) -> None:
        """Drop an archive and all its members, which are to be read anew: some may be gone."""
        con = self._connection
        con.execute("BEGIN")
        for table in ("events", "evidence", "files"):
            con.execute(
                f"DELETE FROM {table} WHERE file_id IN "  # noqa: S608
                "(SELECT file_id FROM files WHERE archive_id = $1 OR file_id = $1)",
                [archive],
            )
        con.execute("COMMIT")

    def finish(self, scan_id: int) -> None:
        """Close the scan: flag copies, add up what was read, infer jobs from the logs."""
        con = self._connection
        con.execute("BEGIN")
        con.execute(_FLAG_COPIES)
        con.execute(
            """
            UPDATE scans SET finished_at = ?, files = s.files, bytes = s.bytes, lines = s.lines,
                events = s.events
            FROM (SELECT count(*) AS files, coalesce(sum(raw_bytes), 0) AS bytes,
                coalesce(sum(lines), 0) AS lines, coalesce(sum(events), 0) AS events
                FROM files WHERE scan_id = ? AND kind <> 'archive') AS s
            WHERE scans.scan_id = ?
            """,
            [datetime.now(UTC).replace(tzinfo=None), scan_id, scan_id],
        )
        con.execute("COMMIT")

    def _insert(self, table: str, rows: pa.Table) -> None:
        if rows.num_rows:
            self._connection.register("new_rows", rows)
            self._connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM new_rows")  # noqa: S608
            self._connection.unregister("new_rows")

    def _write_catalogue(self, catalogue: Catalogue) -> None:
        failures = [
            {
                "failure": failure.id,
                "refs": list(failure.references),
                **{
                    name: list(value)
                    if isinstance(value := getattr(failure, name), tuple)
                    else value
                    for name in schema.FAILURES.schema.names
                    if name not in ("failure", "refs")
                },
            }
            for failure in catalogue.failures
        ]
        signatures = [
            {
                "signature": s.id,
                "failure": s.failure,
                "role": s.role,
                "why": s.why,
                "pattern": s.pattern,
                "pair_begin": s.pair.begin if s.pair else None,
                "points_to": s.points_to,
                "dedupe_s": s.dedupe_s,
                "threshold_count": s.threshold.count if s.threshold else None,
                "threshold_window_s": s.threshold.window_s if s.threshold else None,
            }
            for s in catalogue.signatures
        ]
        edges = [edge._asdict() for edge in catalogue.precedence]
        for table, rows in (
            (schema.FAILURES, failures),
            (schema.SIGNATURES, signatures),
            (schema.PRECEDENCE, edges),
        ):
            self._connection.execute(f"DELETE FROM {table.name}")  # noqa: S608
            self._insert(table.name, pa.Table.from_pylist(rows, schema=table.schema))


# Head, size and lines tell content apart well enough to flag a copy; the first path is the
# original.
_FLAG_COPIES = """
UPDATE files SET copy_of = nullif(c.original, files.file_id)
FROM (
    SELECT file_id, first(file_id) OVER (
        PARTITION BY sha256_head, raw_bytes, lines ORDER BY cluster NULLS FIRST, path
    ) AS original
    FROM files WHERE raw_bytes > 0 AND kind <> 'archive'
) AS c
WHERE c.file_id = files.file_id AND copy_of IS DISTINCT FROM nullif(c.original, files.file_id)
"""


def _reason(path: Path | None, error: Exception) -> str:
    """The database's complaint in our words, with the remedy."""
    text = str(error)
    name = path or "in-memory database"
    if "lock" in text.lower():
        return f"{name}: another process has it open for writing: wait for it, or name another --db"
    if "not a valid DuckDB database" in text or "magic bytes" in text:
        return f"{name}: not a DuckDB database: name another --db"
    if "serialization version" in text or "newer version" in text.lower():
        return f"{name}: written by another version of DuckDB: upgrade duckdb, or name another --db"
    if "No space left" in text or "out of disk" in text.lower():
        return f"{name}: no space left on its volume: free some and run the same command again"
    return f"{name}: {text.splitlines()[0]}: check the path, its rights and the disk"
