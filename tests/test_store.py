"""One file in, all its rows or none; what a database has, and how much memory that takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingest import schema
from ingest.rows import Batches, FileRow, Rows
from ingest.store import Store, StoreError, Version
from matcher.catalogue import load
from tests.support import catalogue, signature

CATALOGUE = catalogue(signature("one", "one"))


def file_row(file_id: int, **given: Any) -> FileRow:
    row: dict[str, Any] = dict.fromkeys(FileRow._fields)
    row |= {"file_id": file_id, "path": f"{file_id}.log", "kind": "other", "events": 0}
    return FileRow(**(row | {"status": "ok", "catalogue_digest": "now"} | given))


def events(*file_ids: int) -> pa.RecordBatch:
    rows = [{"event_id": number, "file_id": file_id} for number, file_id in enumerate(file_ids)]
    return pa.RecordBatch.from_pylist(rows, schema=schema.EVENTS.schema)


def spooled(path: Path, *batches: pa.RecordBatch) -> str:
    with pa.ipc.new_stream(str(path), schema.EVENTS.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return str(path)


def counts(store: Store) -> list[tuple[int, int]]:
    query = "SELECT file_id, count(*) FROM events GROUP BY ALL ORDER BY ALL"
    return store.connection.execute(query).fetchall()


def test_a_file_row_has_every_column_of_files() -> None:
    added = {"scan_id", "copy_of"}
    assert [n for n in schema.FILES.schema.names if n not in added] == list(FileRow._fields)


def test_rows_in_memory_and_on_disk_are_stored_alike(tmp_path: Path) -> None:
    spool = spooled(tmp_path / "spool", events(1, 1), events(1, 1, 1))
    with Store(tmp_path / "db") as store:
        results = [
            Rows([file_row(1)], Batches([events(1)], spool)),
            Rows([file_row(2), file_row(3)], Batches([events(2, 2)])),
        ]
        store.write(results, 7)
        assert counts(store) == [(1, 6), (2, 2)]
        store.write([Rows([file_row(1)], Batches([events(1)]))], 8)
        assert counts(store) == [(1, 1), (2, 2)]
        query = "SELECT file_id, scan_id, copy_of FROM files ORDER BY file_id"
        assert store.connection.execute(query).fetchall() == [
            (1, 8, None),
            (2, 7, None),
            (3, 7, None),
        ]


def test_a_spool_that_breaks_changes_nothing(tmp_path: Path) -> None:
    spool = Path(spooled(tmp_path / "spool", *[events(*[1] * 1000)] * 20))
    with Store(tmp_path / "db") as store:
        store.write([Rows([file_row(1)], Batches([events(1)]))], 1)
        spool.write_bytes(spool.read_bytes()[: spool.stat().st_size // 2])
        with pytest.raises(StoreError, match="check the path, its rights and the disk"):
            store.write([Rows([file_row(1)], Batches((), str(spool)))], 2)
        assert counts(store) == [(1, 1)]


def test_rows_that_are_stored_are_not_kept_in_memory(tmp_path: Path) -> None:
    """Arrow tables that DuckDB had read stayed until the transaction ended: 430 MB of a storm."""
    batch = events(*[1] * 5_000)
    spool = spooled(tmp_path / "spool", *[batch] * 40)
    seen = []

    class Watched(Batches):
        def __iter__(self) -> Any:
            for one in super().__iter__():
                seen.append(pa.total_allocated_bytes())
                yield one

    with Store(tmp_path / "db") as store:
        store.write([Rows([file_row(1)], Watched((), spool))], 1)
        assert counts(store) == [(1, 200_000)]
    assert len(seen) == 40
    assert max(seen) - min(seen) < 8 * batch.nbytes


def test_a_spool_goes_when_it_is_dropped(tmp_path: Path) -> None:
    batches = Batches([events(1, 2)], spooled(tmp_path / "spool", events(1)))
    assert batches.held_bytes == events(1, 2).nbytes
    batches.drop()
    assert [one.name for one in tmp_path.iterdir()] == []


def test_known_files_have_size_time_and_whether_they_are_current(tmp_path: Path) -> None:
    rows = [
        file_row(5, size_bytes=3, mtime=-1),
        file_row(2**64 - 1, size_bytes=0, mtime=1_700_000_000_000_000),
        file_row(7, catalogue_digest="before"),
        file_row(9, status="failed"),
    ]
    with Store(tmp_path / "db") as store:
        assert store.known("now").get(5) is None
        store.write([Rows(rows)], 1)
        known = store.known("now")
    assert [known.get(number) for number in (5, 2**64 - 1, 7, 9, 0, 6, 2**64 - 2)] == [
        Version(3, -1, True),
        Version(0, 1_700_000_000_000_000, True),
        Version(None, None, False),
        Version(None, None, False),
        None,
        None,
        None,
    ]


def test_location_of_a_file_is_told(tmp_path: Path) -> None:
    with Store(tmp_path / "db") as store:
        store.write([Rows([file_row(1, location="/logs/1.log")])], 1)
        assert (store.location(1), store.location(2)) == ("/logs/1.log", None)


def test_catalogue_is_written_when_it_changes(tmp_path: Path) -> None:
    other = catalogue(signature("two", "two"))
    stored = []
    with Store(tmp_path / "db") as store:
        for one in (CATALOGUE, CATALOGUE, other, CATALOGUE):
            assert store.begin("v", "e", one, {}) == len(stored) + 1
            query = "SELECT signature FROM signatures"
            stored.append([row[0] for row in store.connection.execute(query).fetchall()])
    assert stored == [["one"], ["one"], ["two"], ["one"]]


def test_built_in_catalogue_is_stored_whole(tmp_path: Path) -> None:
    known = load()
    with Store(tmp_path / "db") as store:
        store.begin("v", "e", known, {})
        query = "SELECT failure, title, fix, refs FROM failures ORDER BY failure"
        assert store.connection.execute(query).fetchall() == sorted(
            (one.id, one.title, list(one.fix), list(one.references)) for one in known.failures
        )
        query = (
            "SELECT signature, failure, pair_begin, threshold_count FROM signatures ORDER BY ALL"
        )
        assert store.connection.execute(query).fetchall() == sorted(
            (s.id, s.failure, s.pair and s.pair.begin, s.threshold and s.threshold.count)
            for s in known.signatures
        )
        query = "SELECT * FROM precedence ORDER BY ALL"
        assert store.connection.execute(query).fetchall() == sorted(known.precedence)


def test_views_are_made_anew_only_where_they_differ(tmp_path: Path) -> None:
    def view(number: int) -> str:
        return (
            f"CREATE OR REPLACE VIEW v AS SELECT {number} AS n;\n"
            f"CREATE OR REPLACE MACRO views_digest() AS 'd{number}';\n"
        )

    for number, wanted in ((1, 1), (2, 2), (2, 2)):
        with Store(tmp_path / "db", view(number)) as store:
            assert store.connection.execute("SELECT n FROM v").fetchone() == (wanted,)
    with Store(tmp_path / "db", view(3).replace("d3", "d2")) as store:
        assert store.connection.execute("SELECT n FROM v").fetchone() == (2,)


def test_database_on_disk_has_bounded_buffers(tmp_path: Path) -> None:
    query = "SELECT current_setting('memory_limit')"
    with Store(tmp_path / "db") as store:
        assert store.connection.execute(query).fetchone() == ("192.0 MiB",)
    with Store(None) as store:
        assert store.connection.execute(query).fetchone() != ("192.0 MiB",)
