"""What tests of reading share: files in odd pieces, packed texts, and blocks as their lines."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import lz4.frame
from hypothesis import strategies as st

from ingest import blocks, streams
from ingest.blocks import Block, Places, Reader, Ring, Stats
from ingest.files import LogFile, Source, discover
from ingest.streams import FileStream, zstd

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=5)
RING = Ring()


class Piece(NamedTuple):
    """A line or a piece of one, as a matcher sees it."""

    offset: int
    line_no: int
    line_offset: int
    data: bytes


class Chopped(io.RawIOBase):
    """A file that gives what it holds in short reads of the lengths given, over and over."""

    def __init__(self, data: bytes, lengths: Sequence[int] = (1 << 20,), *, seekable: bool = True):
        super().__init__()
        self._file = io.BytesIO(data)
        self._lengths = lengths
        self._seekable = seekable
        self._reads = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._seekable

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        length = self._lengths[self._reads % len(self._lengths)]
        self._reads += 1
        return self._file.readinto(memoryview(buffer)[:length])


def reader(
    data: bytes,
    block_bytes: int = 1 << 20,
    lengths: Sequence[int] = (1 << 20,),
    *,
    seekable: bool = True,
    ring: Ring = RING,
) -> Reader:
    file = FileStream(Chopped(data, lengths, seekable=seekable))  # type: ignore[arg-type]
    return Reader(streams.decoded(file), "x.log", ring=ring, block_bytes=block_bytes)


def pieces_of(block: Block) -> Iterator[Piece]:
    places = Places(block)
    position = block.start
    while position < block.end:
        stop = block.data.find(b"\n", position, block.end) + 1 or block.end
        line_offset, line_no = places.of(position)
        later = block.offset - block.line_offset if position == block.start else 0
        text = bytes(block.data[position:stop])
        yield Piece(line_offset + later, line_no, line_offset, text)
        position = stop


def read(found: Iterable[Block]) -> list[Piece]:
    return [piece for block in found for piece in pieces_of(block)]


def content(found: Iterable[Block]) -> bytes:
    return b"".join(bytes(block.data[block.start : block.end]) for block in found)


def lines_of(data: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _zstd_checked(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


def _lz4_checked(data: bytes) -> bytes:
    return lz4.frame.compress(data, content_checksum=True, block_checksum=True)


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": _zstd_checked,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lz4": _lz4_checked,
}
TEXT = b"".join(b"[rank%d] step %d loss %f\n" % (n % 8, n, 1 / (n + 1)) for n in range(6000))


def source(path: Path) -> Source:
    (found,) = discover([str(path)])
    return found


def opened(found: Source) -> list[tuple[LogFile, bytes | None, Stats | None]]:
    return [
        (file, reader and content(reader), reader and reader.stats)
        for file, reader in blocks.open_source(found)
    ]


def summary(path: Path) -> list[tuple[str, str, str, bytes | None, str | None]]:
    """(path, kind, status, content, problem) of all that a source gives."""
    rows = []
    for file, found in blocks.open_source(source(path)):
        text = None if found is None else content(found)
        lost = file.problem if found is None else found.stats.truncated
        rows.append((file.path, file.kind, file.status, text, lost))
    return rows
