"""Keep files, events and evidence in one DuckDB file, each file's rows all or not at all.

One writer: the process that holds the connection. A transaction replaces whatever the database had
of the same files, so that a killed scan leaves only whole files and a second one completes it.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest import schema
from ingest.rows import Rows, StoreError
from matcher.catalogue import Catalogue
from matcher.pseudonyms import KEY_BYTES, PSEUDONYM, Pseudonyms, Renamer, new_key

# The database's buffers: beyond this it writes what a transaction holds to its file at once.
MEMORY_BYTES = 192 << 20
THREADS = 4  # each has buffers of its own, and the cores are the workers'
_NONE = int(np.iinfo(np.int64).min)


class Version(NamedTuple):
    """A file as the database has it; `current` says by this catalogue and these options."""

    size_bytes: int | None
    mtime_us: int | None
    current: bool


class Known:
    """The files that a database has, in 25 bytes each: there may be ten millions of them."""

    def __init__(self, columns: Mapping[str, NDArray[Any]]) -> None:
        self._ids, self._sizes, self._times = columns["id"], columns["size"], columns["time"]
        self._current = columns["current"]

    def get(self, file_id: int) -> Version | None:
        """What the database has of this file."""
        place = int(np.searchsorted(self._ids, np.uint64(file_id))) if len(self._ids) else 0
        if place == len(self._ids) or self._ids[place] != file_id:
            return None
        size, time = int(self._sizes[place]), int(self._times[place])
        return Version(
            None if size == _NONE else size,
            None if time == _NONE else time,
            bool(self._current[place]),
        )


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
        con.execute("SET enable_progress_bar = false")  # it would be drawn on stdout
        if self.path is not None:
            con.execute(f"SET memory_limit = '{MEMORY_BYTES}B'")
            con.execute(f"SET threads = {min(THREADS, os.cpu_count() or 1)}")
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
        # Views are checked against all that they read, which takes longer than a small file.
        stale = not self._has_views(views)
        con.execute("BEGIN")
        con.execute(schema.ddl())
        columns = "SELECT name FROM pragma_table_info(?)"
        added = schema.additions(
            {
                table.name: {name for (name,) in con.execute(columns, [table.name]).fetchall()}
                for table in schema.TABLES
            }
        )
        con.execute(added)
        if stale or added:
            con.execute(views)
        con.execute("COMMIT")

    def _has_views(self, views: str) -> bool:
        """Whether the database has these very views: their digest is one of them."""
        try:
            found = self._connection.execute("SELECT views_digest()").fetchone()
        except duckdb.Error:
            return not views
        return not views or (found is not None and f"'{found[0]}'" in views)

    def key(self, *, strict: bool, given: bytes = b"") -> bytes:
        """The key of this database's pseudonyms; none for one that has names as they are.

        It lies beside the database, not in it: who has both can try names against pseudonyms. One
        in memory has `given` or a new one. Raises StoreError where a database would come to have
        both names and pseudonyms, or where the key is gone.
        """
        con = self._connection
        found = con.execute(
            "SELECT table_name FROM duckdb_tables() WHERE table_name = 'pseudonyms'"
        ).fetchone()
        row = found and con.execute("SELECT key_digest FROM pseudonyms").fetchone()
        if not strict:
            if row:
                raise StoreError(
                    f"{self.path}: made with --mask strict: give that again, or name another --db"
                )
            return b""
        if not row and con.execute("SELECT 1 FROM scans LIMIT 1").fetchone():
            raise StoreError(
                f"{self.path}: has names as they are, read without --mask strict: name another --db"
            )
        key = _key(self.path, new=not row, given=given)
        digest = Pseudonyms(key).digest("key")
        if row and row[0] != digest:
            raise StoreError(
                f"{_key_path(self.path)}: not the key of {self.path}: "
                "restore the one that was beside it, or name another --db"
            )
        if not row:
            con.execute("BEGIN")
            con.execute("CREATE TABLE pseudonyms (key_digest VARCHAR)")
            con.execute("INSERT INTO pseudonyms VALUES (?)", [digest])
            con.execute("COMMIT")
        return key

    def rename(self, names: Pseudonyms) -> None:
        """Replace names in all texts that another file has told to be names."""
        con = self._connection
        text = "\nUNION ALL ".join(
            f"SELECT {column}::VARCHAR AS text FROM {table}"  # noqa: S608
            for table, column in _TEXTS
        )
        con.execute("BEGIN")
        wanted = con.execute(
            f"SELECT DISTINCT unnest(regexp_extract_all(text, '{PSEUDONYM}')) FROM ({text})"  # noqa: S608
        ).fetchall()
        words = con.execute(
            f"SELECT DISTINCT unnest(regexp_extract_all(lower(text), '{_WORD}')) FROM ({text})"  # noqa: S608
        )
        found = names.in_texts(_first(words), {one for (one,) in wanted})
        if found:
            renamer = Renamer(names, found)
            for table, column in _TEXTS:
                self._replace(table, column, renamer)
        con.execute("COMMIT")

    def _replace(self, table: str, column: str, renamer: Renamer) -> None:
        """Replace known names in one column, some rows at a time."""
        con = self._connection
        last = con.execute(f"SELECT coalesce(max(rowid), -1) FROM {table}").fetchone()  # noqa: S608
        assert last is not None
        kind = schema.column(table, column)
        for first in range(0, last[0] + 1, _ROWS):
            # A row that is changed may move behind the last one.
            rows = con.execute(
                f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL "  # noqa: S608
                "AND rowid BETWEEN ? AND ?",
                [first, min(first + _ROWS - 1, last[0])],
            ).fetchall()
            clean = [(id_, value, _renamed(value, renamer)) for id_, value in rows]
            changed = [(id_, new) for id_, value, new in clean if new != value]
            if not changed:
                continue
            ids, values = zip(*changed, strict=True)
            values = tuple(list(one.items()) if isinstance(one, dict) else one for one in values)
            columns = {"id": pa.array(ids, pa.int64()), "value": pa.array(values, kind)}
            con.register("renamed", pa.table(columns))
            con.execute(
                f"UPDATE {table} SET {column} = r.value FROM renamed AS r "  # noqa: S608
                f"WHERE {table}.rowid = r.id"
            )
            con.unregister("renamed")

    def known(self, digest: str) -> Known:
        """The files that the database has; failed ones are to be read again."""
        return Known(
            self._connection.execute(
                "SELECT file_id AS id, coalesce(size_bytes, $1) AS size, "
                "coalesce(epoch_us(mtime), $1) AS time, "
                "coalesce(status <> 'failed' AND catalogue_digest = $2, false) AS current "
                "FROM files ORDER BY file_id",
                [_NONE, digest],
            ).fetchnumpy()
        )

    def location(self, file_id: int) -> str | None:
        """Where a file was read from; None of one that the database has not."""
        query = "SELECT location FROM files WHERE file_id = ?"
        row = self._connection.execute(query, [file_id]).fetchone()
        return None if row is None else row[0]

    def begin(
        self, version: str, engine: str, catalogue: Catalogue, arguments: Mapping[str, Any]
    ) -> int:
        """Start a scan: write the catalogue and an unfinished `scans` row; its scan_id."""
        con = self._connection
        con.execute("BEGIN")
        query = "SELECT max(scan_id), arg_max(catalogue_digest, scan_id) FROM scans"
        last, digest = con.execute(query).fetchone() or (None, None)
        if digest != catalogue.digest:
            self._write_catalogue(catalogue)
        scan_id = (last or 0) + 1
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
        files = _table(
            schema.FILES,
            [row for result in results for row in result.files],
            # Whether it is a copy is told when all are there.
            {"scan_id": lambda _: scan_id, "copy_of": lambda _: None},
        )
        try:
            con.execute("BEGIN")
            con.register("new_files", files)
            # Looked up first: a DELETE reads all of a table, and a new file has nothing in it.
            for table in ("events", "evidence", "files") if self._has_any("new_files") else ():
                con.execute(
                    f"DELETE FROM {table} WHERE file_id IN (SELECT file_id FROM new_files)"  # noqa: S608
                )
            self._insert(schema.FILES, files.to_reader())
            for shape, parts in (
                (schema.EVIDENCE, [result.evidence for result in results]),
                (schema.EVENTS, [result.events for result in results]),
            ):
                batches = itertools.chain.from_iterable(parts)
                self._insert(shape, pa.RecordBatchReader.from_batches(shape.schema, batches))
            con.execute("COMMIT")
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            with contextlib.suppress(duckdb.Error):
                con.execute("ROLLBACK")
            raise StoreError(_reason(self.path, error)) from error
        finally:
            con.unregister("new_files")

    @property
    def strict(self) -> bool:
        """Whether pseudonyms stand for names in this database."""
        query = "SELECT 1 FROM duckdb_tables() WHERE table_name = 'pseudonyms'"
        return self._connection.execute(query).fetchone() is not None

    def merge(
        self,
        table: schema.Table,
        batches: Iterator[pa.RecordBatch],
        *,
        prepare: str = "",
        add_up: bool = False,
    ) -> int:
        """Put rows into a table in one transaction; how many came of them.

        A row replaces those with its key, the last of several wins. A part of the key that is not
        known is a value like others, but a launch whose number is not known gives way to any other
        of its job. `prepare` works on the rows, which lie in `staged`, before; `add_up` makes one
        row of those with the same key, its seconds added up. Raises StoreError, with nothing
        changed, where the disk or database fails; what `batches` raises goes on.
        """
        con = self._connection
        raised: list[Exception] = []
        key = ", ".join(table.key)
        same = " AND ".join(
            f"coalesce(old.{name} = new.{name}, true)"
            if (table.name, name) == ("jobs", "attempt")
            else f"old.{name} IS NOT DISTINCT FROM new.{name}"
            for name in table.key
        )
        columns = ", ".join(
            f"{'sum' if pa.types.is_floating(field.type) else 'any_value'}({field.name}) "
            f"AS {field.name}"
            for field in table.schema
            if field.name not in table.key
        )
        kept = (
            f"SELECT {key}, {columns} FROM staged GROUP BY ALL"  # noqa: S608
            if add_up
            else f"SELECT * FROM staged QUALIFY row_number() OVER (PARTITION BY {key} "  # noqa: S608
            "ORDER BY rowid DESC) = 1"
        )

        def read() -> Iterator[pa.RecordBatch]:
            try:
                yield from batches
            except Exception as error:
                raised.append(error)
                raise

        try:
            con.execute("BEGIN")
            reader = pa.RecordBatchReader.from_batches(table.schema, read())
            con.register("new_rows", reader)
            con.execute("CREATE OR REPLACE TEMP TABLE staged AS FROM new_rows")
            con.unregister("new_rows")
            if prepare:
                con.execute(prepare)
            con.execute(f"CREATE OR REPLACE TEMP TABLE staged AS {kept}")
            con.execute(f"DELETE FROM {table.name} AS old USING staged AS new WHERE {same}")  # noqa: S608
            con.execute(f"INSERT INTO {table.name} BY NAME SELECT * FROM staged")  # noqa: S608
            found = con.execute("SELECT count(*) FROM staged").fetchone()
            con.execute("DROP TABLE staged")
            con.execute("COMMIT")
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            with contextlib.suppress(duckdb.Error):
                con.execute("ROLLBACK")
            if raised:
                raise raised[0] from None
            raise StoreError(_reason(self.path, error)) from error
        return found[0] if found else 0

    def _has_any(self, view: str) -> bool:
        """Whether the database has rows of any file of this view."""
        query = f"SELECT 1 FROM files SEMI JOIN {view} USING (file_id) LIMIT 1"  # noqa: S608
        return self._connection.execute(query).fetchone() is not None

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

    def _insert(self, table: schema.Table, rows: pa.RecordBatchReader) -> None:
        # A reader, for a table would stay in memory until the end of the transaction.
        self._connection.register("new_rows", rows)
        self._connection.execute(f"INSERT INTO {table.name} BY NAME SELECT * FROM new_rows")  # noqa: S608
        self._connection.unregister("new_rows")

    def gather(self, run: str) -> None:
        """Take all logs for those of one run, unless they name several jobs.

        For logs that were handed over together: what groups files of a whole fleet is too careful
        there. Logs of hosts stay without a run; views place them by host, time and folder. Where
        the times of such a log have no year (a copied file tells none), it is the year of the run.
        """
        self._connection.execute("BEGIN")
        self._connection.execute(_GATHER_FILES, {"run": run})
        self._connection.execute(_GATHER_EVENTS)
        for statement in (*_NAMED_HOSTS, *_SAME_YEAR):
            self._connection.execute(statement)
        self._connection.execute("COMMIT")

    def _write_catalogue(self, catalogue: Catalogue) -> None:
        tables: tuple[tuple[schema.Table, Sequence[Any], _Given], ...] = (
            (
                schema.FAILURES,
                catalogue.failures,
                {"failure": attrgetter("id"), "refs": attrgetter("references")},
            ),
            (
                schema.SIGNATURES,
                catalogue.signatures,
                {
                    "signature": attrgetter("id"),
                    "pair_begin": lambda one: one.pair and one.pair.begin,
                    "threshold_count": lambda one: one.threshold and one.threshold.count,
                    "threshold_window_s": lambda one: one.threshold and one.threshold.window_s,
                },
            ),
            (schema.CHECKS, list(_checks(catalogue)), {}),
            (schema.VARIANTS, list(_variants(catalogue)), {}),
            (schema.CONTROLS, catalogue.controls, {}),
            (schema.PRECEDENCE, catalogue.precedence, {}),
            (
                schema.READINGS,
                catalogue.readings,
                {"reading": lambda one: catalogue.readings.index(one) + 1},
            ),
            (schema.TRAITS, catalogue.traits, {}),
        )
        for shape, things, given in tables:
            self._connection.execute(f"DELETE FROM {shape.name}")  # noqa: S608
            self._insert(shape, _table(shape, things, given).to_reader())


# Columns in which names may stand.
_TEXTS = (
    ("scans", "arguments"),
    *(("files", name) for name in ("path", "location", "cluster", "run", "job", "host", "error")),
    *(("events", name) for name in ("cluster", "run", "job", "host", "captures", "message")),
    ("evidence", "text"),
)
_WORD = "[a-z0-9_]+(?:[-.][a-z0-9_]+)*"


_ROWS = 1 << 14  # read at a time


def _renamed(value: Any, renamer: Renamer) -> Any:
    """A text or a map of texts with known names replaced."""
    if isinstance(value, dict):
        return {name: renamer.known(text) for name, text in value.items()}
    return renamer.known(value)


def _first(rows: duckdb.DuckDBPyConnection) -> Iterator[Any]:
    """The first values of rows, read as they are asked for."""
    while some := rows.fetchmany(_ROWS):
        yield from (row[0] for row in some)


def _key_path(path: Path | None) -> Path:
    return Path(f"{path}.key")


def _key(path: Path | None, *, new: bool, given: bytes) -> bytes:
    """The key that lies beside a database; a `new` database gets one where none is there."""
    if path is None:
        return given or new_key()
    place = _key_path(path)
    try:
        if new and not place.exists():
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write((given or new_key()).hex() + "\n")
        key = bytes.fromhex(place.read_text())
    except FileNotFoundError:
        raise StoreError(
            f"{place}: the key of the pseudonyms is not there: restore it, or name another --db"
        ) from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{place}: cannot be read as a key ({error}): restore it") from error
    if len(key) != KEY_BYTES:
        raise StoreError(f"{place}: not a key of pseudonyms: restore it, or name another --db")
    return key


class _Check(NamedTuple):
    failure: str
    number: int
    text: str
    seen: tuple[str, ...] | None
    log: str | None


class _Variant(NamedTuple):
    failure: str
    path_class: str
    mechanism: str | None
    fix: tuple[str, ...]
    verify: str | None
    prevention: str | None


def _checks(catalogue: Catalogue) -> Iterator[_Check]:
    for failure in catalogue.failures:
        signs = {sign.number: (sign.seen, sign.log) for sign in failure.signs}
        for number, text in enumerate(failure.confirm):
            yield _Check(failure.id, number, text, *signs.get(number, (None, None)))


def _variants(catalogue: Catalogue) -> Iterator[_Variant]:
    for failure in catalogue.failures:
        for one in failure.variants:
            texts = one.mechanism or None, one.fix, one.verify or None, one.prevention or None
            yield _Variant(failure.id, one.path_class, *texts)


_Given = Mapping[str, Callable[[Any], Any]]


def _table(shape: schema.Table, things: Sequence[Any], given: _Given) -> pa.Table:
    """A row a thing: what is `given` of it, else its attribute of the column's name."""
    return pa.Table.from_pydict(
        {
            name: list(map(given.get(name) or attrgetter(name), things))
            for name in shape.schema.names
        },
        schema=shape.schema,
    )


# Attempts of a job may be resubmitted under other ids. Several jobs without attempts, or two logs
# of the same rank in different places, are several runs.
_GATHER_FILES = """
UPDATE files SET run = $run, attempt = coalesce(attempt, (
  SELECT CASE WHEN count(DISTINCT attempt) = 1 THEN min(attempt) END FROM files))
WHERE run IS NOT NULL
  AND (SELECT count(DISTINCT job) FILTER (attempt IS NULL AND regexp_matches(job,
      '^[0-9]{3,}([_.+][0-9]+)?$|^(?:job|run)[-_.=]?[A-Za-z0-9]')) <= 1 FROM files)
  AND NOT EXISTS (
    SELECT rank FROM files WHERE rank IS NOT NULL
    GROUP BY rank, attempt HAVING count(DISTINCT run) > 1)
"""
_GATHER_EVENTS = """
UPDATE events SET run = f.run, attempt = f.attempt FROM files AS f
WHERE f.file_id = events.file_id AND f.run IS NOT NULL
"""

# A folder or file that is named like a host which another log is of.
_NAMED_HOSTS = (
    """
UPDATE files SET host = k.host
FROM (
  SELECT f.file_id, min(h.host) AS host
  FROM (SELECT file_id, unnest(string_split_regex(lower(path), '[/!]')) AS part FROM files) AS f
  JOIN (SELECT DISTINCT host FROM files WHERE host IS NOT NULL) AS h
    ON f.part = h.host OR starts_with(f.part, h.host || '.')
  GROUP BY f.file_id HAVING min(h.host) = max(h.host)
) AS k WHERE k.file_id = files.file_id AND files.host IS NULL
""",
    """
UPDATE events SET host = f.host FROM files AS f
WHERE f.file_id = events.file_id AND events.host IS NULL AND f.host IS NOT NULL
""",
)
_SAME_YEAR = (
    """
CREATE OR REPLACE TEMP TABLE other_years AS
WITH ran AS (
  SELECT min(first_ts) - INTERVAL 10 MINUTE AS low, max(last_ts) + INTERVAL 5 MINUTE AS high
  FROM files WHERE run IS NOT NULL
)
SELECT file_id, any_value(years) AS years
FROM files, ran, (SELECT unnest(range(-20, 21))::INTEGER AS years)
WHERE run IS NULL AND NOT (last_ts >= low AND first_ts <= high)
  AND last_ts + to_years(years) >= low AND first_ts + to_years(years) <= high
  AND file_id NOT IN (SELECT file_id FROM events WHERE ts IS NOT NULL AND NOT tz_assumed)
GROUP BY file_id HAVING count(*) = 1
""",
    """
UPDATE files SET first_ts = first_ts + to_years(years), last_ts = last_ts + to_years(years)
FROM other_years AS o WHERE o.file_id = files.file_id
""",
    """
UPDATE events SET ts = ts + to_years(years), ts_lo = ts_lo + to_years(years),
  ts_hi = ts_hi + to_years(years), t_eff = t_eff + to_years(years),
  ts_last = ts_last + to_years(years)
FROM other_years AS o WHERE o.file_id = events.file_id
""",
    "DROP TABLE other_years",
)

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
