"""Read any codec or encoding as plain bytes, as far as they go, and say where they break.

Hides codecs (told by their magic bytes), members and padding, decompressors and their faults.
"""

from __future__ import annotations

import bz2
import codecs
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol, cast

import lz4.frame
import numpy as np
import zstandard

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

PEEK_BYTES = 1 << 16  # how far a stream can be looked into
SNIFF_BYTES = 1 << 12  # enough to tell what it is
CHUNK_BYTES = 1 << 18  # read at a time
_PACKED = 1 << 16  # compressed bytes given to a decompressor at a time
_FED = 1 << 17  # the same of a reader: each time takes the GIL, so few
_SLICE = 1 << 18  # decompressed bytes asked of it at a time; 64 KiB and 1 MiB are slower


class Stream(io.RawIOBase):
    """Bytes read forward; where they break they end, and `fault` says how."""

    codec = "plain"
    fault: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self._held = memoryview(b"")  # read ahead by peek
        self._ends = False  # behind what is held, as peek has seen
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
            count = 0 if self._ends else self._pull(out)
        self._at += count
        return count

    def read(self, size: int = -1, /) -> bytes:
        """Exactly `size` bytes, fewer only at the end; all without a size."""
        pieces = []
        while size and (piece := super().read(size if size > 0 else CHUNK_BYTES)):
            pieces.append(piece)
            size -= len(piece) if size > 0 else 0
        return b"".join(pieces)

    def peek(self, size: int) -> bytes:
        """The next `size` bytes (64 KiB at most), fewer only at the end; they stay to be read."""
        have = len(self._held)
        if have < size and not self._ends:
            out = memoryview(bytearray(PEEK_BYTES))
            out[:have] = self._held
            while have < PEEK_BYTES and (count := self._pull(out[have:])):
                have += count
                self._held = out[:have]
            self._ends = have < PEEK_BYTES
        return bytes(self._held[:size])

    def tell(self) -> int:
        """Bytes read so far."""
        return self._at

    @property
    def _pulled(self) -> int:
        """Bytes read so far and those that peek holds."""
        return self._at + len(self._held)

    def _move(self, offset: int, whence: int) -> int:
        """Go to a place, of a stream that is seekable; the place."""
        raise NotImplementedError

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place; only forward where the stream is not seekable."""
        if self.seekable():
            self._held, self._ends, self.fault = memoryview(b""), False, None
            self._at = self._move(offset, whence)
            return self._at
        if whence != io.SEEK_SET or offset < self._at:
            raise io.UnsupportedOperation("this stream is read forward only")
        while self._at < offset and self.read(min(CHUNK_BYTES, offset - self._at)):
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

    def _move(self, offset: int, whence: int) -> int:
        return self._file.seek(offset, whence)


class Pieces(Stream):
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
    start: Callable[[], _Decompressor]
    magic: re.Pattern[bytes] | None = None  # None: one member only, of a known length


_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # a frame without content, of zstd or lz4
_LZMA_MEMORY = 256 << 20
_CODECS = {
    "gzip": _Codec(_gunzip, re.compile(rb"\x1f\x8b\x08")),
    "zstd": _Codec(zstd.ZstdDecompressor, re.compile(rb"\x28\xb5\x2f\xfd|" + _SKIPPABLE.pattern)),
    "bz2": _Codec(bz2.BZ2Decompressor, re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")),
    "xz": _Codec(
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_MEMORY),
        re.compile(rb"\xfd7zXZ\x00"),
    ),
    "lz4": _Codec(
        lz4.frame.LZ4FrameDecompressor, re.compile(rb"\x04\x22\x4d\x18|" + _SKIPPABLE.pattern)
    ),
    "zip": _Codec(_inflate),
}
_MAGIC = re.compile(
    b"|".join(
        b"(?P<%b>%b)" % (name.encode(), codec.magic.pattern)
        for name, codec in _CODECS.items()
        if codec.magic
    )
)
_MAGIC_BYTES = 10
# What decompressors raise on hostile or broken input.
BROKEN: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    MemoryError,
    OverflowError,  # isal's for a header larger than its buffer
    zlib.error,
    lzma.LZMAError,
    zstd.ZstdError,
    zstandard.ZstdError,
    *(() if igzip_lib is None else (cast("type[Exception]", igzip_lib.IsalError),)),
)
_ONES, _SUM = np.ones(64), np.empty(64)


def _restore_avx() -> None:
    """Clear the upper register halves that isal leaves dirty: SSE code after it ran at 0.75.

    The work is a numpy addition that ends in vzeroupper; it takes 0.3 microseconds.
    """
    np.add(_ONES, _ONES, out=_SUM)


def crc32(data: memoryview, crc: int) -> int:
    """The checksum of a zip, carried on from `crc`."""
    if isal_zlib is None:
        return zlib.crc32(data, crc)
    crc = isal_zlib.crc32(data, crc)
    _restore_avx()
    return crc


def decoded(raw: Stream, codec: str | None = None) -> Stream:
    """The content of a stream compressed by a codec, or by the one that its first bytes tell."""
    codec = codec or codec_of(raw.peek(SNIFF_BYTES))
    if codec is None:
        return raw
    # Only what can be read again: a reader does not say how far it came when it meets a fault.
    return _Direct(raw, codec) if codec in _READERS and raw.seekable() else _Decoder(raw, codec)


def codec_of(head: bytes) -> str | None:
    """The codec of a stream by its first bytes; None for one that is not compressed."""
    at = 0
    while _SKIPPABLE.match(head, at) and at + 8 <= len(head):
        at += 8 + int.from_bytes(head[at + 4 : at + 8], "little")
    at = at if at < len(head) else 0
    match = _MAGIC.match(head, at)
    return match.lastgroup if match else None


# Readers, which fill the caller's buffer, where they beat decompressors, whose pieces are copied:
# isal's by 1.1 (members of 64 KiB: 1.2), zstandard's by 1.15 over the zstd of the standard library.
# pyarrow's copy too; lz4, bz2 and lzma have none that is faster.


class _Reader(Protocol):
    """A library's reader of one codec."""

    def readinto(self, buffer: memoryview, /) -> int: ...


_FRAME = b"\x28\xb5\x2f\xfd"
_CHECKSUM_BIT = 4
_WIDTHS = bytes(  # of a frame's header behind magic and descriptor, by its descriptor
    (not descriptor & 32)
    + (0, 1, 2, 4)[descriptor & 3]
    + (descriptor >> 5 & 1, 2, 4, 8)[descriptor >> 6]
    for descriptor in range(256)
)


class _ZstdFeed:
    """Compressed bytes for zstandard, which ends in silence in mid-frame: followed to tell."""

    def __init__(self, raw: Stream) -> None:
        self._raw = raw
        self._buffer = memoryview(bytearray(_FED))
        self._rest = b""  # of a header that is not complete
        self._ahead = 0  # bytes to the next header
        self._checksum: int | None = None  # size of that of the frame; None between frames
        self._lost = False

    def whole(self) -> bool:
        """Whether the last frame is complete."""
        return not (self._rest or self._ahead or self._lost) and self._checksum is None

    def read(self, size: int) -> memoryview:
        """The next bytes, valid until more are asked for."""
        chunk = self._buffer[: self._raw.readinto(self._buffer[:size])]
        if not self._lost:
            self._follow(self._rest + chunk if self._rest else chunk)
        return chunk

    def _follow(self, data: bytes | memoryview) -> None:
        at, end = self._ahead, len(data)
        while at + 8 <= end or (at + 3 <= end and self._checksum is not None):
            if self._checksum is not None:
                block = data[at] | data[at + 1] << 8 | data[at + 2] << 16
                at += 3 + (1 if block & 6 == 2 else block >> 3)
                if block & 1:
                    at += self._checksum
                    self._checksum = None
            elif data[at : at + 4] == _FRAME:
                self._checksum = data[at + 4] & _CHECKSUM_BIT
                at += 5 + _WIDTHS[data[at + 4]]
            elif _SKIPPABLE.match(data[at : at + 4]):
                at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
            else:
                self._lost = True
                break
        self._rest, self._ahead = bytes(data[at:]), max(0, at - end)


class _Opened(NamedTuple):
    reader: _Reader
    whole: Callable[[], bool]  # whether the last member is complete where the reader ends


def _isal_reader(raw: Stream) -> _Opened:
    return _Opened(isal_zlib._GzipReader(cast("BinaryIO", raw), _FED), lambda: True)


def _zstandard_reader(raw: Stream) -> _Opened:
    feed = _ZstdFeed(raw)
    inner = zstandard.ZstdDecompressor().stream_reader(
        cast("BinaryIO", feed), read_size=_FED, read_across_frames=True
    )
    return _Opened(inner, feed.whole)


_READERS: dict[str, Callable[[Stream], _Opened]] = {"zstd": _zstandard_reader}
# IGzipFile, which is public, is a buffer and a copy around this class.
if hasattr(isal_zlib, "_GzipReader"):
    _READERS["gzip"] = _isal_reader


class _Direct(Stream):
    """The content of whole members by a library's reader; from where they break, by _Decoder."""

    def __init__(self, raw: Stream, codec: str) -> None:
        super().__init__()
        self.codec = codec
        self._raw = raw
        self._reader, self._whole = _READERS[codec](raw)
        self._rest: Stream | None = None

    def _pull(self, out: memoryview) -> int:
        if self._rest is None:
            try:
                count = self._reader.readinto(out)
                if count or self._whole():
                    self.fault = None if count else self._raw.fault
                    return count
            except BROKEN:
                pass
            finally:
                _restore_avx()
            made = self._pulled
            self._raw.seek(0)
            self._rest = _Decoder(self._raw, self.codec)
            self._rest.seek(made)
        count = self._rest.readinto(out)
        self.fault = self._rest.fault
        return count


class _Place(NamedTuple):
    """Where a decompressor stands."""

    taken: int  # compressed bytes it had before the last it was given
    made: int  # bytes it made of them


class _Decoder(Pieces):
    """The content of compressed members that follow each other."""

    def __init__(self, raw: Stream, codec: str, *, careful_from: _Place | None = None) -> None:
        super().__init__(raw)
        self.codec = codec
        self._start, self._magic = _CODECS[codec]
        self._inner = self._start()
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
            except BROKEN as error:
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
        if self._magic is None:
            return False
        rest = (self._inner.unused_data or b"").lstrip(b"\0")
        while not rest and (rest := self._more()):
            rest = rest.lstrip(b"\0")
        if not rest:
            self.fault = self._raw.fault
            return False
        if len(rest) < _MAGIC_BYTES:
            rest += self._raw.read(_MAGIC_BYTES - len(rest))
        if not self._magic.match(rest):
            self.fault = f"other bytes follow the {self.codec} stream"
            return False
        self._inner, self._input = self._start(), rest
        return True

    def _rescued(self) -> bytes:
        """What the decompressor had made of a corrupt stream when it gave up.

        Libraries drop the output of the call that meets the fault, so the stream is read again,
        byte by byte at the end. One that cannot be loses what that call made, _SLICE at most.
        """
        if self._careful_from is not None or not self._raw.seekable():
            return b""
        self._raw.seek(0)
        again = _Decoder(self._raw, self.codec, careful_from=self._place)
        tail = bytearray()
        while (piece := again._next()) and len(tail) < _SLICE:
            if again._place.made > self._place.made:
                tail += piece
        return bytes(tail)


# -- encodings -----------------------------------------------------------------------------------

_UTF16 = re.compile(rb"\xff\xfe(?:[^\0]\0)|\xfe\xff(?:\0[^\0])")


class _Utf8(Pieces):
    """UTF-16 text as UTF-8; offsets are those of the UTF-8."""

    def __init__(self, raw: Stream) -> None:
        super().__init__(raw)
        self._decoder = codecs.getincrementaldecoder("utf-16")("replace")

    def _next(self) -> bytes:
        while chunk := self._raw.read(CHUNK_BYTES):
            if text := self._decoder.decode(chunk):
                return text.encode()
        self.fault = self._raw.fault
        return self._decoder.decode(b"", final=True).encode()


def as_utf8(raw: Stream) -> Stream:
    """The stream as UTF-8 where it is UTF-16 with a byte order mark, else as it is."""
    return _Utf8(raw) if _UTF16.match(raw.peek(SNIFF_BYTES)) else raw
