"""Put together the lines that a container runtime stored in pieces (CRI), and tell where they were.

Hides the entries, their headers, and lines of the other stream that stand between two pieces.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ingest.streams import CHUNK_BYTES, Pieces, Stream

# A line of a container as the kubelet stores it; P says that the writer's line goes on in the
# next entry of the same stream.
ENTRY = re.compile(
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) "
    rb"(?P<stream>stdout|stderr) (?P<tag>[PF])(?::\S*)? "
)
_ENTRY_BYTES = 64
_PARTIAL = re.compile(rb"std(?:out|err) P")


class Move(NamedTuple):
    """From the line that begins at `offset` after joining on: what was left out before it."""

    offset: int
    bytes: int
    lines: int


class _Line(NamedTuple):
    data: bytes
    offset: int  # in the stream before joining
    number: int  # 0-based, likewise


class Joined(Pieces):
    """CRI entries of one line put together: the LF and the header between them are left out.

    A line is held back while another is joined, up to `limit` bytes of such lines.
    """

    def __init__(self, raw: Stream, limit: int) -> None:
        super().__init__(raw)
        self.raw_bytes = self.raw_lines = 0  # before joining
        self._limit = limit
        self._bytes = self._lines = 0  # after it
        self._moves = [Move(0, 0, 0)]
        self._begins = True  # whether the next bytes after joining begin a line
        self._open: bytes | None = None  # stream whose line is not complete
        self._owed = _Line(b"", 0, 0)  # its last LF, left out so far
        self._aside: list[_Line] = []  # lines of the other stream that stand in between
        self._aside_bytes = 0
        self._middle = False  # whether the next bytes before joining continue a line
        self._source = self._pieces()

    def moves(self, offset: int) -> Sequence[Move]:
        """What to add from this offset after joining on, in order; those before are forgotten."""
        del self._moves[: bisect_right(self._moves, (offset, sys.maxsize)) - 1]
        return self._moves

    def _next(self) -> bytes:
        return next(filter(None, self._source), b"")

    def _pieces(self) -> Iterator[bytes]:
        carry = b""
        while chunk := self._raw.read(CHUNK_BYTES):
            text = carry + chunk
            cut = text.rfind(b"\n") + 1
            if not cut and len(text) > self._limit:
                cut = len(text)
            carry = text[cut:]
            yield from self._joined(text[:cut])
        yield from self._joined(carry)
        self.raw_lines += self._middle
        while self._open is not None:
            queue: deque[_Line] = deque()
            yield self._put(self._owed)
            self._close(queue)
            yield from self._join(queue)
        self.fault = self._raw.fault

    def _joined(self, text: bytes) -> Iterator[bytes]:
        """Whole lines, or a part of a long one, joined."""
        at = 0
        while at < len(text):
            stop = at
            if self._middle:
                stop = text.find(b"\n", at) + 1 or len(text)
            elif self._open is None:
                stop = _first_partial(text, at)
            if stop > at:
                yield self._put(self._take(text[at:stop]))
            else:
                stop = text.find(b"\n", at) + 1 or len(text)
                yield from self._join(deque([self._take(text[at:stop])]))
            self._middle = text[stop - 1 : stop] != b"\n"
            at = stop

    def _join(self, queue: deque[_Line]) -> Iterator[bytes]:
        """Lines one by one, while one is open or begins to be."""
        while queue:
            line = queue.popleft()
            entry = ENTRY.match(line.data) if len(line.data) <= self._limit else None
            if self._open is not None:
                if entry is None or self._aside_bytes > self._limit:
                    yield self._put(self._owed)
                    queue.appendleft(line)
                    self._close(queue)
                    continue
                if entry["stream"] != self._open:
                    self._aside.append(line)
                    self._aside_bytes += len(line.data)
                    continue
            begin = entry.end() if entry and self._open is not None else 0
            text = line.data[begin:]
            if entry and entry["tag"] == b"P" and text.endswith(b"\n"):
                text = text[:-1]
                self._open = entry["stream"]
                self._owed = _Line(b"\n", line.offset + begin + len(text), line.number)
            elif self._open is not None:
                if self._aside and not text.endswith(b"\n"):
                    text += b"\n"  # the file ends here, but what was set aside follows
                self._close(queue)
            yield self._put(_Line(text, line.offset + begin, line.number))

    def _close(self, queue: deque[_Line]) -> None:
        """No line is open any more; those set aside come next."""
        queue.extendleft(reversed(self._aside))
        self._open, self._aside, self._aside_bytes = None, [], 0

    def _take(self, data: bytes) -> _Line:
        line = _Line(data, self.raw_bytes, self.raw_lines)
        self.raw_bytes += len(data)
        self.raw_lines += data.count(b"\n")
        return line

    def _put(self, line: _Line) -> bytes:
        move = Move(self._bytes, line.offset - self._bytes, line.number - self._lines)
        if line.data:
            if self._begins and move[1:] != self._moves[-1][1:]:
                self._moves.append(move)
            self._begins = line.data.endswith(b"\n")
        self._bytes += len(line.data)
        self._lines += line.data.count(b"\n")
        return line.data


def _first_partial(text: bytes, at: int) -> int:
    """Where the first line begins that goes on in a later entry; else the end."""
    for found in _PARTIAL.finditer(text, at):
        before = max(at, found.start() - _ENTRY_BYTES)
        start = text.rfind(b"\n", before, found.start()) + 1
        if not start and before > at:
            continue
        entry = ENTRY.match(text, start or at)
        if entry and entry["tag"] == b"P" and entry.start("stream") == found.start():
            return start or at
    return len(text)


def joined(text: Stream, limit: int) -> Stream:
    """The stream with its entries joined where it is one of CRI entries, else as it is."""
    return Joined(text, limit) if ENTRY.match(text.peek(_ENTRY_BYTES)) else text
