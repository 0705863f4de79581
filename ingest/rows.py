"""The rows of some files, as a worker hands them to the one process that stores them.

Light to import: a worker needs no database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa


class StoreError(Exception):
    """Rows cannot be kept; the message names where and the remedy."""


class FileRow(NamedTuple):
    """A row of schema.FILES but for what the store adds; times are UTC microseconds."""

    file_id: int
    path: str
    location: str
    cluster: str | None
    run: str | None
    job: str | None
    attempt: int | None
    host: str | None
    rank: int | None
    kind: str
    codec: str | None
    size_bytes: int | None
    raw_bytes: int | None
    lines: int | None
    events: int
    first_ts: int | None
    last_ts: int | None
    mtime: int | None
    ts_lines: int | None
    rank_lines: int | None
    cut_lines: int | None
    replaced_bytes: int | None
    masked: int | None
    sha256_head: str | None
    archive_id: int | None
    status: str
    error: str | None
    seconds: float | None
    catalogue_digest: str


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
        if not self.without and not self.line_shift:
            return batch
        import pyarrow.compute as pc  # slow to load, and needed for files read in parts only

        if self.without:
            out = pc.is_in(batch["event_id"], pa.array(self.without, batch["event_id"].type))
            batch = batch.filter(pc.invert(out))
        for name in ("line_no", "last_line_no") if self.line_shift else ():
            if name in batch.schema.names:
                place = batch.schema.get_field_index(name)
                shifted = pc.add(batch[name], self.line_shift)
                batch = batch.set_column(place, batch.schema.field(name), shifted)
        return batch

    @property
    def held_bytes(self) -> int:
        """Memory that those take which are in no file."""
        return sum(batch.nbytes for batch in self.batches)

    def drop(self) -> None:
        """Remove the file: the rows are stored."""
        if self.spool:
            Path(self.spool).unlink(missing_ok=True)


class Rows(NamedTuple):
    """All rows of some files."""

    files: Sequence[FileRow]
    events: Batches = Batches()
    evidence: Batches = Batches()
