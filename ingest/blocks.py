"""Read logs, whatever their codec or archive, as blocks of whole lines in bounded memory.

Hides long lines, broken streams and the buffer. What comes out depends on the bytes of a stream
alone, not on the block size nor on how reads are cut: a line longer than LINE_LIMIT comes in
pieces of that size whose ends overlap, a stream that breaks gives all that stands before the
fault. Nothing is unpacked to disk.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from operator import itemgetter
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest import archives, cri
from ingest.ahead import Ahead
from ingest.files import STDIN, LogFile, Source, log_file, unreadable
from ingest.streams import PEEK_BYTES, FileStream, Stream, as_utf8

BLOCK_BYTES = 1 << 20
LINE_LIMIT = 1 << 20  # longer lines are cut
OVERLAP = 4 << 10  # of two pieces of a cut line, so that a match across the cut is seen
HISTORY = 1 << 20  # kept before each block
RING_BYTES = 6 << 20  # beyond 8 MiB the blocks fall out of the cache


class Block(NamedTuple):
    """Whole lines `data[start:end]`, valid until the next block is asked for.

    A block ends behind an LF, but for the end of the file and for a piece of a line that was cut.
    Offsets and numbers count what is handed out; `Places` tells those in the stream, which differ
    where lines were joined.
    """

    data: bytearray
    start: int
    end: int
    offset: int  # of data[start]
    line_no: int  # 1-based, of data[start]
    lines: int  # LF in the block, and 1 for an unterminated last line of the file
    line_offset: int  # where the line of data[start] begins; less than offset in a later piece
    history: int  # data[history:start] is what comes before: min(HISTORY, offset) bytes
    moves: Sequence[cri.Move] = ()
    breaks: NDArray[np.bool_] | None = None  # where data[start:end] has an LF, if that is known


class Places:
    """Where the lines of a block and of its history stand in the decompressed stream.

    Asked line by line, forward or back, it counts no LF twice.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._position, self._number = block.start, block.line_no
        self._bytes = np.frombuffer(block.data, dtype=np.uint8)

    def of(self, position: int) -> tuple[int, int]:
        """(offset, 1-based number) of the line that begins at data[position].

        At data[start] it is the line's, also where it began before.
        """
        block, before = self._block, self._position
        if position >= before:
            self._number += self._count(before, position)
        else:
            self._number -= self._count(position, before)
        self._position = position
        at = block.offset + position - block.start
        offset = block.line_offset if position == block.start else at
        if not block.moves:
            return offset, self._number
        move = block.moves[bisect_right(block.moves, at, key=itemgetter(0)) - 1]
        return offset + move.bytes, self._number + move.lines

    def of_all(self, positions: NDArray[np.int64]) -> list[tuple[int, int]]:
        """The same for lines of the block, in order; of many it is faster than one by one."""
        block = self._block
        if block.moves or block.breaks is None or len(positions) < _MANY:
            return [self.of(position) for position in positions.tolist()]
        numbers = np.searchsorted(np.flatnonzero(block.breaks), positions - block.start)
        offsets = positions + (block.offset - block.start)
        offsets[positions == block.start] = block.line_offset
        return list(zip(offsets.tolist(), (numbers + block.line_no).tolist(), strict=True))

    def _count(self, begin: int, end: int) -> int:
        """LF in data[begin:end]; numpy is the faster one from some KiB on."""
        block = self._block
        if block.breaks is not None and begin >= block.start:
            return int(np.count_nonzero(block.breaks[begin - block.start : end - block.start]))
        if end - begin < 4096:
            return self._block.data.count(b"\n", begin, end)
        return int(np.count_nonzero(self._bytes[begin:end] == 10))


_MANY = 300  # from so many lines of a block on all its breaks are told apart


@dataclass(slots=True)
class Stats:
    """What was read so far, and what was lost."""

    codec: str | None = None
    raw_bytes: int = 0  # decompressed
    lines: int = 0
    cut_lines: int = 0
    truncated: str | None = None  # why the stream ended early, where, and the remedy
    sha256_head: str | None = None  # of the first 64 KiB decompressed, hex


class Ring:
    """The buffer of blocks: their history, the block, and what is read of the next one."""

    def __init__(self, size: int = RING_BYTES) -> None:
        self.data = bytearray(size)  # never resized: views of it are held
        self.view = memoryview(self.data)
        self._bytes = np.frombuffer(self.data, dtype=np.uint8)
        self._is_lf = np.empty(size, dtype=np.bool_)

    def breaks(self, start: int, end: int) -> NDArray[np.bool_]:
        """Where data[start:end] has an LF; valid until the next call."""
        return np.equal(self._bytes[start:end], 10, out=self._is_lf[: end - start])


class Reader:
    """The blocks of one stream, to be iterated once; `stats` grows meanwhile.

    A stream that does not start at the content's first byte does so at offset `base`: offsets are
    those of the content, numbers and `stats` count from there on, and lines are not joined.
    """

    def __init__(
        self,
        stream: Stream,
        path: str = STDIN,
        *,
        ring: Ring | None = None,
        block_bytes: int = BLOCK_BYTES,
        base: int = 0,
    ) -> None:
        if not 1 <= block_bytes <= LINE_LIMIT:
            raise ValueError(f"block_bytes is {block_bytes}: give 1 to {LINE_LIMIT}")
        self._ring = ring or Ring()
        assert len(self._ring.data) >= HISTORY + LINE_LIMIT + block_bytes
        head = stream.peek(PEEK_BYTES)
        self.stats = Stats(stream.codec, sha256_head=hashlib.sha256(head).hexdigest())
        self._source = stream
        self._lines = stream if base else cri.joined(as_utf8(stream), LINE_LIMIT)
        self._path = path
        self._base = base
        self._step = block_bytes

    def __iter__(self) -> Iterator[Block]:
        stats, stream, step = self.stats, self._lines, self._step
        if self._source.closed:
            raise ValueError(f"{self._path}: its source has gone on: read it first")
        data, view = self._ring.data, self._ring.view
        joins = stream if isinstance(stream, cri.Joined) else None
        begin = end = 0  # data[begin:end] was read and not handed out; no LF but in fresh bytes
        base = self._base  # offset of data[0]
        line_no, line_start = 1, base

        def block(stop: int, lines: int, breaks: NDArray[np.bool_] | None = None) -> Block:
            history = max(0, begin - HISTORY)
            return Block(
                data=data,
                start=begin,
                end=stop,
                offset=base + begin,
                line_no=line_no,
                lines=lines,
                line_offset=line_start,
                history=history,
                moves=joins.moves(base + history) if joins else (),
                breaks=breaks,
            )

        while True:
            if end + step > len(data):
                keep = max(0, begin - HISTORY)
                view[: end - keep] = view[keep:end]
                base, begin, end = base + keep, begin - keep, end - keep
            fresh = end
            while end < fresh + step and (count := stream.readinto(view[end : fresh + step])):
                end += count
            stats.raw_bytes += end - fresh
            first = data.find(b"\n", fresh, end)
            stop = first if first >= 0 else end
            while stop - begin > LINE_LIMIT:
                stats.cut_lines += base + begin == line_start
                yield block(begin + LINE_LIMIT, 0)
                begin += LINE_LIMIT - OVERLAP
            if first >= 0:
                stop = data.rfind(b"\n", first, end) + 1
                breaks = self._ring.breaks(begin, stop)
                lines = int(np.count_nonzero(breaks))
                stats.lines += lines
                yield block(stop, lines, breaks)
                begin, line_no, line_start = stop, line_no + lines, base + stop
            if end < fresh + step:
                break
        if begin < end:
            stats.lines += 1
            yield block(end, 1)
        if joins:
            stats.raw_bytes, stats.lines = joins.raw_bytes, joins.raw_lines
        if stream.fault:
            place = self._base + stats.raw_bytes
            stats.truncated = (
                f"{self._path}: {stream.fault} after byte {place} of its content: "
                "what comes before was read, get a whole copy for the rest"
            )


def open_source(
    source: Source, *, block_bytes: int = BLOCK_BYTES, ahead: bool = False
) -> Iterator[tuple[LogFile, Reader | None]]:
    """The log of a source, or each member of an archive and then the archive itself.

    Read each to its end before asking for the next: archives are read forward, and all readers
    share a buffer. There is no reader for what cannot be read (`problem` says why) nor for the
    archive itself (kind `archive`; its `problem` says why members may be missing). `ahead` reads
    in a thread while the blocks are worked on, except stdin, which may let it wait for ever.
    """
    if source.status != "ok":
        yield log_file(source), None
        return
    try:
        raw = open_file(source.location)
    except OSError as error:
        lost = unreadable(source.path, error)
        yield log_file(source)._replace(status="failed", problem=lost), None
        return
    with nullcontext() if source.location == STDIN else raw, _spare_ring() as ring:
        whole = archives.Entry(None, source.size, source.mtime_us)
        for entry in archives.logs(FileStream(raw), whole, source.path):
            file = log_file(source, entry.member, size=entry.size, mtime_us=entry.mtime_us)
            if entry.stream is not None:
                threaded = ahead and source.location != STDIN
                with Ahead(entry.stream) if threaded else nullcontext(entry.stream) as stream:
                    yield file, Reader(stream, file.path, ring=ring, block_bytes=block_bytes)
                continue
            kind = "archive" if entry.archive else file.kind
            problem = entry.problem and f"{file.path}: {entry.problem}"
            yield file._replace(kind=kind, status=entry.status, problem=problem), None


@contextmanager
def open_from(
    source: Source, stream: Callable[[BinaryIO], Stream], base: int, *, block_bytes: int
) -> Iterator[tuple[BinaryIO, Reader]]:
    """The file of a source and the blocks of its content from offset `base` on.

    `stream` makes that content of the open file. Raises OSError.
    """
    with open_file(source.location) as raw, _spare_ring() as ring:
        yield raw, Reader(stream(raw), source.path, ring=ring, block_bytes=block_bytes, base=base)


# Buffers that no source holds now: a fresh one costs more than a small file.
_rings: list[Ring] = []


@contextmanager
def _spare_ring() -> Iterator[Ring]:
    ring = _rings.pop() if _rings else Ring()
    try:
        yield ring
    finally:
        _rings.append(ring)


def open_file(location: str) -> BinaryIO:
    """A regular file, unbuffered, or stdin. Raises OSError."""
    if location == STDIN:
        return sys.stdin.buffer
    # What was a file when it was found may be a FIFO by now, on which open would wait.
    descriptor = os.open(location, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is no longer a file")
    return open(descriptor, "rb", buffering=0)  # noqa: PTH123
