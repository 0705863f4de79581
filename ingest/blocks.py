"""Read logs, whatever their codec or archive, as blocks of whole lines in bounded memory.

Hides codecs (told by their magic bytes), archives, long lines, broken streams and the buffer. What
comes out depends on the bytes of a stream alone, not on the block size nor on how reads are cut:
a line longer than LINE_LIMIT comes in pieces of that size whose ends overlap, a stream that breaks
gives all that stands before the fault. Nothing is unpacked to disk.
"""

from __future__ import annotations

import bz2
import codecs
import hashlib
import io
import lzma
import os
import re
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol, cast

import lz4.frame
import numpy as np

from ingest.files import STDIN, LogFile, Source, log_file, storable, unreadable

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

try:
    from isal import igzip_lib, isal_zlib
except ImportError:  # no wheel for this machine: the same through zlib, at 0.4 of the speed
    igzip_lib = isal_zlib = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK_BYTES = 1 << 20
LINE_LIMIT = 1 << 20  # longer lines are cut
OVERLAP = 4 << 10  # of two pieces of a cut line, so that a match across the cut is seen
HISTORY = 1 << 20  # kept before each block
RING_BYTES = 6 << 20  # beyond 8 MiB the blocks fall out of the cache

_CHUNK = 1 << 18
_PACKED = 1 << 16  # compressed bytes given to a decompressor at a time
_SLICE = 1 << 18  # decompressed bytes asked of it at a time; 64 KiB and 1 MiB are slower
_HEAD = 1 << 16  # what sha256_head is of
_SNIFF = 1 << 12  # enough to tell what a stream is
_IN_MEMORY = 64 << 20  # a compressed member up to this size is read again where it is broken
_NESTED = 2  # an archive in an archive is read, one in that is not


class Block(NamedTuple):
    """Whole lines `data[start:end]`, valid until the next block is asked for.

    A block ends behind an LF, but for the end of the file and for a piece of a line that was cut.
    """

    data: bytearray
    start: int
    end: int
    offset: int  # of data[start] in the decompressed stream
    line_no: int  # 1-based, of data[start]
    lines: int  # LF in the block, and 1 for an unterminated last line of the file
    line_offset: int  # where the line of data[start] begins; less than offset in a later piece
    history: int  # data[history:start] is what comes before: min(HISTORY, offset) bytes
    # Where lines were joined, from data[position] on the offset in the stream is greater by the
    # second number and the line number by the third, on top of those before.
    shifts: tuple[tuple[int, int, int], ...] = ()


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

    def lines(self, start: int, end: int) -> int:
        """LF in data[start:end]; with an output array this takes a quarter of bytes.count."""
        found = np.equal(self._bytes[start:end], 10, out=self._is_lf[: end - start])
        return int(np.count_nonzero(found))


class Reader:
    """The blocks of one stream, to be iterated once; `stats` grows meanwhile."""

    def __init__(
        self,
        stream: Stream,
        path: str = STDIN,
        *,
        ring: Ring | None = None,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        if not 1 <= block_bytes <= LINE_LIMIT:
            raise ValueError(f"block_bytes is {block_bytes}: give 1 to {LINE_LIMIT}")
        self._ring = ring or Ring()
        assert len(self._ring.data) >= HISTORY + LINE_LIMIT + block_bytes
        head = stream.peek(_HEAD)
        self.stats = Stats(stream.codec, sha256_head=hashlib.sha256(head).hexdigest())
        self._stream = _as_lines(stream, head)
        self._path = path
        self._step = block_bytes

    def __iter__(self) -> Iterator[Block]:
        stats, stream, step = self.stats, self._stream, self._step
        if stream.closed:
            raise ValueError(f"{self._path}: its source has gone on: read it first")
        data, view = self._ring.data, self._ring.view
        joins = stream if isinstance(stream, _Joined) else None
        begin = end = 0  # data[begin:end] was read and not handed out; no LF but in fresh bytes
        base = 0  # offset of data[0]
        line_no, line_start = 1, 0

        def block(stop: int, lines: int) -> Block:
            plain = Block(
                data=data,
                start=begin,
                end=stop,
                offset=base + begin,
                line_no=line_no,
                lines=lines,
                line_offset=line_start,
                history=max(0, begin - HISTORY),
            )
            return joins.place(plain) if joins else plain

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
                lines = self._ring.lines(begin, stop)
                stats.lines += lines
                yield block(stop, lines)
                begin, line_no, line_start = stop, line_no + lines, base + stop
            if end < fresh + step:
                break
        if begin < end:
            stats.lines += 1
            yield block(end, 1)
        if joins:
            stats.raw_bytes, stats.lines = joins.raw_bytes, joins.raw_lines
        if stream.fault:
            stats.truncated = (
                f"{self._path}: {stream.fault} after byte {stats.raw_bytes} of its content: "
                "what comes before was read, get a whole copy for the rest"
            )


def open_source(
    source: Source, *, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[LogFile, Reader | None]]:
    """The log of a source, or each member of an archive and then the archive itself.

    Read each to its end before asking for the next: archives are read forward, and all readers
    share a buffer. There is no reader for what cannot be read (`problem` says why) nor for the
    archive itself (kind `archive`; its `problem` says why members may be missing).
    """
    if source.status != "ok":
        yield log_file(source), None
        return
    try:
        raw = _open(source.location)
    except OSError as error:
        problem = unreadable(source.path, error)
        yield replace(log_file(source), status="failed", problem=problem), None
        return
    with nullcontext() if source.location == STDIN else raw, _spare_ring() as ring:
        entry = _Entry("", source.size, source.mtime_us)
        yield from _Opening(source, ring, block_bytes).expand(FileStream(raw), entry)


# Buffers that no source holds now: a fresh one costs more than a small file.
_rings: list[Ring] = []


@contextmanager
def _spare_ring() -> Iterator[Ring]:
    ring = _rings.pop() if _rings else Ring()
    try:
        yield ring
    finally:
        _rings.append(ring)


def _open(location: str) -> BinaryIO:
    """A regular file, unbuffered, or stdin. Raises OSError."""
    if location == STDIN:
        return sys.stdin.buffer
    # What was a file when it was found may be a FIFO by now, on which open would wait.
    descriptor = os.open(location, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is no longer a file")
    return open(descriptor, "rb", buffering=0)  # noqa: PTH123


# -- streams -------------------------------------------------------------------------------------


class Stream(io.RawIOBase):
    """Bytes read forward; where they break they end, and `fault` says how."""

    codec = "plain"
    fault: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self._held = memoryview(b"")  # read ahead by peek
        self._at = 0

    def _pull(self, out: memoryview) -> int:
        """Fill some of `out`; 0 at the end."""
        raise NotImplementedError

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill some of the buffer; 0 at the end."""
        out = memoryview(buffer)
        if self._held:
            count = min(len(out), len(self._held))
            out[:count] = self._held[:count]
            self._held = self._held[count:]
        else:
            count = self._pull(out)
        self._at += count
        return count

    def read(self, size: int = -1, /) -> bytes:
        """Exactly `size` bytes, fewer only at the end; all without a size."""
        pieces = []
        while size and (piece := super().read(size if size > 0 else _CHUNK)):
            pieces.append(piece)
            size -= len(piece) if size > 0 else 0
        return b"".join(pieces)

    def peek(self, size: int) -> bytes:
        """The next `size` bytes (64 KiB at most), fewer only at the end; they stay to be read."""
        have = len(self._held)
        if have < size:
            out = memoryview(bytearray(_HEAD))
            out[:have] = self._held
            while have < _HEAD and (count := self._pull(out[have:])):
                have += count
                self._held = out[:have]
        return bytes(self._held[:size])

    def tell(self) -> int:
        """Bytes read so far."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Skip forward."""
        if whence != io.SEEK_SET or offset < self._at:
            raise io.UnsupportedOperation("this stream is read forward only")
        while self._at < offset and self.read(min(_CHUNK, offset - self._at)):
            pass
        return self._at


class FileStream(Stream):
    """An open file."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file

    def _pull(self, out: memoryview) -> int:
        try:
            return self._file.readinto(out) or 0  # type: ignore[attr-defined]
        except OSError as error:
            self.fault = f"reading fails ({(error.strerror or str(error)).lower()})"
            return 0

    def seekable(self) -> bool:
        """Whether the file is no pipe."""
        return self._file.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place."""
        if not self.seekable():
            return super().seek(offset, whence)
        self._held = memoryview(b"")
        self._at = self._file.seek(offset, whence)
        return self._at


class _Section(Stream):
    """A member's bytes where they lie in the archive."""

    def __init__(self, raw: Stream, size: int) -> None:
        super().__init__()
        self.codec = raw.codec
        self._raw, self._begin, self._size = raw, raw.tell(), size

    def _pull(self, out: memoryview) -> int:
        position = self._at + len(self._held)
        wanted = min(len(out), self._size - position)
        if wanted <= 0:
            return 0
        if self._raw.tell() != self._begin + position:
            self._raw.seek(self._begin + position)
        count = self._raw.readinto(out[:wanted])
        if not count:
            self.fault = self._raw.fault or "the archive ends"
        return count

    def seekable(self) -> bool:
        return self._raw.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if not self.seekable():
            return super().seek(offset, whence)
        self._held = memoryview(b"")
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at


class _Pieces(Stream):
    """A stream that is made piece by piece from another one."""

    def __init__(self, raw: Stream) -> None:
        super().__init__()
        self.codec = raw.codec
        self._raw = raw
        self._piece = memoryview(b"")

    def _next(self) -> bytes:
        """The next piece; empty at the end."""
        raise NotImplementedError

    def _pull(self, out: memoryview) -> int:
        if not self._piece:
            self._piece = memoryview(self._next())
        count = min(len(out), len(self._piece))
        out[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count


# -- codecs --------------------------------------------------------------------------------------


class _Decompressor(Protocol):
    """What bz2, lzma, zstd, lz4 and isal have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Zlib:
    """zlib behind the interface of the others."""

    def __init__(self, wbits: int) -> None:
        self._inner = zlib.decompressobj(wbits)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        piece = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self.needs_input = len(piece) < max_length
        return piece


def _gunzip() -> _Decompressor:
    if igzip_lib is None:
        return _Zlib(31)
    return igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP)


def _inflate() -> _Decompressor:
    if igzip_lib is None:
        return _Zlib(-15)
    return igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_DEFLATE)


class _Codec(NamedTuple):
    name: str
    start: Callable[[], _Decompressor]
    magic: re.Pattern[bytes] | None = None  # None: one member only, of a known length


_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # a frame without content, of zstd or lz4
_LZMA_MEMORY = 256 << 20
_CODECS = (
    _Codec("gzip", _gunzip, re.compile(rb"\x1f\x8b\x08")),
    _Codec("zstd", zstd.ZstdDecompressor, re.compile(rb"\x28\xb5\x2f\xfd|" + _SKIPPABLE.pattern)),
    _Codec("bz2", bz2.BZ2Decompressor, re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")),
    _Codec(
        "xz",
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_MEMORY),
        re.compile(rb"\xfd7zXZ\x00"),
    ),
    _Codec(
        "lz4",
        lz4.frame.LZ4FrameDecompressor,
        re.compile(rb"\x04\x22\x4d\x18|" + _SKIPPABLE.pattern),
    ),
)
_MAGIC_BYTES = 10
_BROKEN: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    MemoryError,
    zlib.error,
    lzma.LZMAError,
    zstd.ZstdError,
    *(() if igzip_lib is None else (cast("type[Exception]", igzip_lib.IsalError),)),
)
_ONES, _SUM = np.ones(64), np.empty(64)


def _restore_avx() -> None:
    """Clear the upper register halves that isal leaves dirty: SSE code after it ran at 0.75.

    The work is a numpy addition that ends in vzeroupper; it takes 0.3 microseconds.
    """
    np.add(_ONES, _ONES, out=_SUM)


def decoded(raw: Stream) -> Stream:
    """The content of a stream that may be compressed, told by its first bytes."""
    codec = _codec(raw.peek(_SNIFF))
    return _Decoder(raw, codec) if codec else raw


def _codec(head: bytes) -> _Codec | None:
    at = 0
    while _SKIPPABLE.match(head, at) and at + 8 <= len(head):
        at += 8 + int.from_bytes(head[at + 4 : at + 8], "little")
    at = at if at < len(head) else 0
    return next((c for c in _CODECS if c.magic and c.magic.match(head, at)), None)


class _Place(NamedTuple):
    """Where a decompressor stands."""

    taken: int  # compressed bytes it had before the last it was given
    made: int  # bytes it made of them


class _Decoder(_Pieces):
    """The content of compressed members that follow each other."""

    def __init__(self, raw: Stream, codec: _Codec, *, careful_from: _Place | None = None) -> None:
        super().__init__(raw)
        self.codec = codec.name
        self._codec = codec
        self._inner = codec.start()
        self._input = b""
        self._place = _Place(0, 0)
        self._careful_from = careful_from  # byte by byte from here on
        self._done = False

    def _next(self) -> bytes:
        while not self._done:
            inner = self._inner
            try:
                if inner.eof:
                    self._done = not self._next_member()
                    continue
                chunk = b""
                if inner.needs_input:
                    chunk, self._input = self._input or self._more(), b""
                    if not chunk:
                        self._end(self._raw.fault or f"the {self.codec} stream ends early")
                        break
                piece = inner.decompress(chunk, self._wanted())
            except _BROKEN as error:
                self._end(f"the {self.codec} stream is corrupt ({error or type(error).__name__})")
                return self._rescued()
            finally:
                _restore_avx()
            if piece:
                self._place = self._place._replace(made=self._place.made + len(piece))
                return piece
        return b""

    def _end(self, fault: str) -> None:
        self._done, self.fault = True, fault

    def _more(self) -> bytes:
        taken = self._raw.tell()
        self._place = self._place._replace(taken=taken)
        careful = self._careful_from is not None and taken >= self._careful_from.taken
        return self._raw.read(1 if careful else _PACKED)

    def _wanted(self) -> int:
        if self._careful_from is None:
            return _SLICE
        return min(_SLICE, max(1, self._careful_from.made - self._place.made))

    def _next_member(self) -> bool:
        """Start on the member behind the one that ended; False where there is none."""
        if self._codec.magic is None:
            return False
        rest = (self._inner.unused_data or b"").lstrip(b"\0")
        while not rest and (rest := self._more()):
            rest = rest.lstrip(b"\0")
        if not rest:
            self.fault = self._raw.fault
            return False
        if len(rest) < _MAGIC_BYTES:
            rest += self._raw.read(_MAGIC_BYTES - len(rest))
        if not self._codec.magic.match(rest):
            self.fault = f"other bytes follow the {self.codec} stream"
            return False
        self._inner, self._input = self._codec.start(), rest
        return True

    def _rescued(self) -> bytes:
        """What the decompressor had made of a corrupt stream when it gave up.

        Libraries drop the output of the call that meets the fault, so the stream is read again,
        byte by byte at the end. One that cannot be loses what that call made, _SLICE at most.
        """
        if self._careful_from is not None or not self._raw.seekable():
            return b""
        self._raw.seek(0)
        again = _Decoder(self._raw, self._codec, careful_from=self._place)
        tail = bytearray()
        while (piece := again._next()) and len(tail) < _SLICE:
            if again._place.made > self._place.made:
                tail += piece
        return bytes(tail)


_UTF16 = re.compile(rb"\xff\xfe(?:[^\0]\0)|\xfe\xff(?:\0[^\0])")


class _Utf8(_Pieces):
    """UTF-16 text as UTF-8; offsets are those of the UTF-8."""

    def __init__(self, raw: Stream) -> None:
        super().__init__(raw)
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")

    def _next(self) -> bytes:
        while chunk := self._raw.read(_CHUNK):
            if text := self._decoder.decode(chunk):
                return text.encode()
        self.fault = self._raw.fault
        return self._decoder.decode(b"", final=True).encode()


def _as_lines(raw: Stream, head: bytes) -> Stream:
    """The stream as the lines that its writer wrote."""
    text: Stream = raw
    if _UTF16.match(head):
        text = _Utf8(raw)
        head = text.peek(_CRI_BYTES)
    return _Joined(text) if _CRI.match(head) else text


# -- CRI -----------------------------------------------------------------------------------------

# A line of a container as the kubelet stores it; P says that the writer's line goes on in the
# next entry of the same stream.
_CRI = re.compile(
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) "
    rb"(?P<stream>stdout|stderr) (?P<tag>[PF])(?::\S*)? "
)
_CRI_BYTES = 64


class _Line(NamedTuple):
    data: bytes
    offset: int  # in the stream before joining
    number: int  # 0-based, likewise


class _Joined(_Pieces):
    """CRI entries of one line put together: the LF and the header between them are left out."""

    def __init__(self, raw: Stream) -> None:
        super().__init__(raw)
        self.raw_bytes = self.raw_lines = 0  # before joining
        self._bytes = self._lines = 0  # after it
        # From a place after joining on: what to add to offset and line for those before it.
        self._moved = [(0, 0, 0)]
        self._line = 0, 1  # offset and number, before joining, of the last block's first line
        self._open: bytes | None = None  # stream whose line is not complete
        self._owed = _Line(b"", 0, 0)  # its last LF, left out so far
        self._aside: list[_Line] = []  # lines of the other stream that stand in between
        self._aside_bytes = 0
        self._middle = False  # whether the next bytes continue a line
        self._source = self._pieces()

    def _next(self) -> bytes:
        return next(filter(None, self._source), b"")

    def place(self, block: Block) -> Block:
        """The block with its places in the stream before joining."""
        now = bisect_right(self._moved, (block.offset, sys.maxsize)) - 1
        del self._moved[:now]
        _, bytes_, lines = last = self._moved[0]
        if block.line_offset == block.offset:
            self._line = block.offset + bytes_, block.line_no + lines
        line_offset, line_no = self._line
        shifts = []
        if inside := block.line_no + lines - line_no:
            # A later piece of a line counts as where the line begins, what follows it does not.
            shifts.append((block.start + 1, 0, inside))
        for moved in self._moved[1:]:
            position = moved[0] - block.offset + block.start
            if position >= block.end:
                break
            shifts.append((position, moved[1] - last[1], moved[2] - last[2]))
            last = moved
        return block._replace(
            offset=block.offset + bytes_,
            line_no=line_no,
            line_offset=line_offset,
            shifts=tuple(shifts),
        )

    def _pieces(self) -> Iterator[bytes]:
        carry = b""
        while chunk := self._raw.read(_CHUNK):
            text = carry + chunk
            cut = text.rfind(b"\n") + 1
            if not cut and len(text) > LINE_LIMIT:
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
            entry = _CRI.match(line.data) if len(line.data) <= LINE_LIMIT else None
            if self._open is not None:
                if entry is None or self._aside_bytes > LINE_LIMIT:
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
        moved = line.offset - self._bytes, line.number - self._lines
        if line.data and moved != self._moved[-1][1:]:
            self._moved.append((self._bytes, *moved))
        self._bytes += len(line.data)
        self._lines += line.data.count(b"\n")
        return line.data


_PARTIAL = re.compile(rb"std(?:out|err) P")


def _first_partial(text: bytes, at: int) -> int:
    """Where the first line begins that goes on in a later entry; else the end."""
    for found in _PARTIAL.finditer(text, at):
        before = max(at, found.start() - _CRI_BYTES)
        start = text.rfind(b"\n", before, found.start()) + 1
        if not start and before > at:
            continue
        entry = _CRI.match(text, start or at)
        if entry and entry["tag"] == b"P" and entry.start("stream") == found.start():
            return start or at
    return len(text)


# -- what is no log ------------------------------------------------------------------------------

_NOT_LOGS = (
    (rb".{8}DUCK", "a DuckDB database"),
    (rb"SQLite format 3\0", "an SQLite database"),
    (rb"PAR[1E][^ -~\s]", "a Parquet file"),
    (rb"ARROW1\0|FEA1[^ -~\s]", "an Arrow file"),
    (rb"Obj\x01", "an Avro file"),
    (rb"\x89HDF\r\n", "an HDF5 file"),
    (rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|RIFF.{4}WEBP|II\*\0|MM\0\*", "an image"),
    (rb"%PDF-\d", "a PDF"),
    (rb"\x7fELF", "a program or core dump"),
    (rb"\x80[\x02-\x05][\x95\x8a}\](Kc\x8c]", "a pickle"),
    (rb".{5}\0\0\0\{\"|\x93NUMPY|GGUF[^ -~\s]", "tensors"),
    (rb".{9,40}brain\.Event:|:W&B", "a file of metrics"),
    (rb"LPKSHHRH", "a binary journal (read it with `journalctl --file`)"),
    (rb"7z\xbc\xaf\x27\x1c|Rar!\x1a|\x1f\x9d|\x02!L\x18", "packed in a way not known here"),
)
_MAGIC = re.compile(b"|".join(b"(%b)" % magic for magic, _ in _NOT_LOGS), re.DOTALL)
# Members that tell what a zip is, if not an archive of logs.
_NOT_ARCHIVES = re.compile(
    r"(?:.*/)?data\.pkl|[^/]+\.dist-info/.*|.*\.npy|META-INF/.*|\[Content_Types\]\.xml"
)
_JSON_NAME = re.compile(r".*\.json(?:\.\w+)?", re.IGNORECASE)
_JSON = re.compile(rb"\s*[\[{](?:\s*\n|[^\n]*$)")  # not one whole object a line


def _not_a_log(head: bytes, name: str) -> str | None:
    """What the content is instead of a log, by its first bytes."""
    if (match := _MAGIC.match(head)) and match.lastindex:
        return _NOT_LOGS[match.lastindex - 1][1]
    if _JSON_NAME.fullmatch(name) and _JSON.match(head):
        return "a JSON document (see `firstfault import`)"
    if name.endswith(".duckdb.wal"):
        return "a part of a DuckDB database"
    return None


# -- archives ------------------------------------------------------------------------------------


class _Entry(NamedTuple):
    """A member of an archive; `problem` where it cannot be read."""

    name: str
    size: int | None
    mtime_us: int | None
    stream: Stream | None = None
    problem: str | None = None


class _ArchiveError(Exception):
    """Members are missing: the archive's status, why, and the remedy."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(status, reason)
        self.status, self.reason = status, reason


class _Opening(NamedTuple):
    """One source while it is read."""

    source: Source
    ring: Ring
    block_bytes: int

    def expand(
        self, stream: Stream, entry: _Entry, depth: int = 0
    ) -> Iterator[tuple[LogFile, Reader | None]]:
        """The log that a stream is, or the members of the archive that it is and the archive."""
        file = self._file(entry)
        packed = stream.peek(_SNIFF)
        zipped = packed.startswith((b"PK\x03\x04", b"PK\x05\x06"))
        small = entry.size is not None and entry.size <= _IN_MEMORY
        if small and (zipped or _codec(packed)) and not stream.seekable():
            stream = FileStream(io.BytesIO(stream.read()))
        content = stream if zipped else decoded(stream)
        head = content.peek(_SNIFF)
        archive = zipped or _is_tar(head)
        if archive and depth < _NESTED:
            yield from self._members(content, entry, depth, zipped)
            return
        if archive:
            what = "an archive three deep: unpack the outer one"
        elif content is not stream and _codec(head):
            what = "compressed twice: decompress it once"
        elif reason := _not_a_log(content.peek(_HEAD), file.path):
            what = f"{reason}, not a log"
        else:
            reader = Reader(content, file.path, ring=self.ring, block_bytes=self.block_bytes)
            yield file, reader
            content.close()
            return
        yield replace(file, status="skipped", problem=f"{file.path}: {what}"), None

    def _members(
        self, content: Stream, archive: _Entry, depth: int, zipped: bool
    ) -> Iterator[tuple[LogFile, Reader | None]]:
        seen: set[str] = set()
        status, problem = "ok", None
        try:
            for entry in _zip_entries(content) if zipped else _tar_entries(content):
                name = unique = _safe(entry.name)
                count = 1
                while unique in seen:
                    count += 1
                    unique = f"{name}#{count}"
                seen.add(unique)
                member = entry._replace(name=f"{archive.name}!{unique}" if depth else unique)
                if entry.stream is not None:
                    yield from self.expand(entry.stream, member, depth + 1)
                else:
                    lost = self._file(member)
                    problem = f"{lost.path}: {entry.problem}"
                    yield replace(lost, status="skipped", problem=problem), None
            problem = None
        except _ArchiveError as error:
            status, problem = error.status, error.reason
        file = self._file(archive)
        problem = problem and f"{file.path}: {problem}"
        yield replace(file, kind="archive", status=status, problem=problem), None

    def _file(self, entry: _Entry) -> LogFile:
        return log_file(self.source, entry.name or None, size=entry.size, mtime_us=entry.mtime_us)


def _safe(name: str) -> str:
    """A member's name as a relative path below the archive."""
    parts = [part for part in name.replace("\0", "").split("/") if part not in ("", ".", "..")]
    return storable("/".join(parts)) or "unnamed"


def _mtime(seconds: float) -> int | None:
    """Microseconds; None for what archivers write that know no time."""
    return int(seconds * 1_000_000) if 0 < seconds < 1 << 34 else None


# tar

_TAR_METADATA = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_METADATA_BYTES = 1 << 17
_TAR_SUM = re.compile(rb"[0-7 \0]{8}")


class _TarInfo(tarfile.TarInfo):
    """A header that is refused where tarfile would end in silence or read it into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _TarInfo:
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf.strip(b"\0"):
                raise tarfile.ReadError(str(error)) from None
            raise
        if info.type in _TAR_METADATA and info.size > _METADATA_BYTES:
            raise tarfile.ReadError("metadata without end")
        return info


def _is_tar(head: bytes) -> bool:
    if not _TAR_SUM.match(head, 148):
        return False
    try:
        _TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


def _tar_entries(content: Stream) -> Iterator[_Entry]:
    """Members in their order. Raises _ArchiveError."""

    def broken(why: object) -> _ArchiveError:
        return _ArchiveError("truncated", f"{content.fault or why}: get a whole copy for the rest")

    last = -1
    try:
        tar = tarfile.TarFile(fileobj=content, tarinfo=_TarInfo, errors="surrogateescape")
    except _HOSTILE as error:
        raise broken(error) from error
    with tar:
        while True:
            try:
                info = tar.next()
            except _HOSTILE as error:
                raise broken(error) from error
            if info is None:
                break
            if info.offset <= last or info.size < 0:
                raise broken("its headers lead in a circle")
            last = info.offset
            tar.members.clear()  # type: ignore[attr-defined] # kept for random access: a large archive would fill the memory
            entry = _Entry(info.name, info.size, _mtime(info.mtime))
            if info.issym() or info.islnk():
                yield entry._replace(problem=f"a link to {storable(info.linkname)}: not followed")
            elif info.issparse():
                yield entry._replace(problem="a sparse file: unpack it first")
            elif info.isreg():
                content.seek(info.offset_data)
                yield entry._replace(stream=_Section(content, info.size))
            elif not info.isdir():
                yield entry._replace(problem="a device or FIFO, not a log")
    if content.fault:
        raise broken(content.fault)


# What a hostile header makes tarfile and zipfile raise.
_HOSTILE: tuple[type[Exception], ...] = (
    *_BROKEN,
    tarfile.TarError,
    zipfile.BadZipFile,
    LookupError,
    ArithmeticError,
    struct.error,
)


# zip


class _Checked(Stream):
    """A member of a zip, held against its size and CRC."""

    def __init__(self, raw: Stream, size: int, crc: int) -> None:
        super().__init__()
        self.codec = raw.codec
        self._raw, self._left, self._crc = raw, (size, crc), 0

    def _pull(self, out: memoryview) -> int:
        count = self._raw.readinto(out)
        self._crc = _crc32(out[:count], self._crc)
        _restore_avx()
        at_end = self._at + len(self._held)
        if not count:
            right = (at_end, self._crc) == self._left
            self.fault = self._raw.fault or (None if right else "its checksum is wrong")
        return count


_crc32 = zlib.crc32 if isal_zlib is None else isal_zlib.crc32
_BY_NAME = {codec.name: codec for codec in _CODECS}
_ZIP_METHODS = {
    0: None,
    8: _Codec("zip", _inflate),
    12: _BY_NAME["bz2"],
    93: _BY_NAME["zstd"],
    95: _BY_NAME["xz"],
}


def _zip_entries(content: Stream) -> Iterator[_Entry]:
    """Members in the order of their data. Raises _ArchiveError."""
    if not content.seekable():
        raise _ArchiveError("skipped", "a zip is read from its end: save it to disk first")
    size = content.seek(0, io.SEEK_END)
    try:
        with zipfile.ZipFile(content) as directory:
            infos = directory.infolist()
    except _HOSTILE as error:
        raise _ArchiveError("failed", f"{error}: get a whole copy".lower()) from error
    if any(_NOT_ARCHIVES.fullmatch(info.filename) for info in infos):
        raise _ArchiveError("skipped", "model weights or a package, not an archive of logs")
    if sum(info.compress_size for info in infos) > size:
        raise _ArchiveError("skipped", "its members overlap: it is made to unpack without end")
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.filename.endswith("/"):
            continue
        try:
            written = datetime(*info.date_time, tzinfo=UTC).timestamp()
        except ValueError:
            written = 0
        entry = _Entry(info.filename, info.file_size, _mtime(written if written > _DOS_0 else 0))
        kind = stat.S_IFMT(info.external_attr >> 16)
        begin = content.seek(min(max(info.header_offset, 0), size))
        header = content.read(_ZIP_HEADER.size)
        if kind not in (0, stat.S_IFREG):
            yield entry._replace(problem="a link or device: not followed")
        elif info.flag_bits & 1:
            yield entry._replace(problem="encrypted: decrypt it first")
        elif info.compress_type not in _ZIP_METHODS:
            yield entry._replace(problem="packed in a way not known here: unpack it first")
        elif not header.startswith(b"PK\x03\x04") or len(header) < _ZIP_HEADER.size:
            yield entry._replace(problem="its header is broken: get a whole copy")
        else:
            content.seek(begin + len(header) + sum(_ZIP_HEADER.unpack(header)))
            packed: Stream = _Section(content, info.compress_size)
            codec = _ZIP_METHODS[info.compress_type]
            data = _Decoder(packed, codec) if codec else packed
            yield entry._replace(stream=_Checked(data, info.file_size, info.CRC))


_ZIP_HEADER = struct.Struct("<26xHH")  # local header: lengths of name and extra field
_DOS_0 = datetime(1980, 1, 2, tzinfo=UTC).timestamp()  # what archivers write for no time
