"""Reading ahead in a thread changes nothing but the time, and the thread always ends."""

from __future__ import annotations

import gc
import gzip
import io
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest import ahead, blocks
from ingest.ahead import Ahead
from ingest.files import discover
from ingest.streams import Stream
from tests.reading import CODECS, TEXT, Chopped, content, source

SIZES = st.lists(st.integers(1, 90), min_size=1, max_size=4)


def threads() -> int:
    return sum(thread.name == "read ahead" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ahead, "BUFFER_BYTES", 64)
    monkeypatch.setattr(ahead, "_spare", [])
    yield
    assert threads() == 0


class Breaking(Stream):
    """Bytes in short reads, then a fault, an error or the end."""

    codec = "made"

    def __init__(self, data: bytes, sizes: list[int], end: str | Exception | None) -> None:
        super().__init__()
        self._file = Chopped(data, sizes)
        self._end = end

    def _pull(self, out: memoryview) -> int:
        count = self._file.readinto(out)
        if not count and isinstance(self._end, Exception):
            raise self._end
        if not count:
            self.fault = self._end
        return count


def drained(stream: Stream, sizes: list[int]) -> tuple[bytes, str | None, str | None, int]:
    """(content, fault, error, position) of a stream read in buffers of these sizes."""
    data, error, reads = bytearray(), None, 0
    try:
        while True:
            buffer = bytearray(sizes[reads % len(sizes)])
            count = stream.readinto(buffer)
            if not count:
                break
            data += buffer[:count]
            reads += 1
    except OSError as problem:
        error = str(problem)
    return bytes(data), stream.fault, error, stream.tell()


@settings(deadline=None)
@given(
    st.integers(0, 600),
    SIZES,
    SIZES,
    st.sampled_from([None, "it breaks", OSError("it fails")]),
    st.integers(0, 200),
)
@example(64, [64], [64], None, 0)
@example(128, [64], [64], OSError("it fails"), 0)
@example(0, [1], [1], "it breaks", 9)
def test_bytes_fault_and_error_are_those_of_the_stream(
    size: int, sizes: list[int], reads: list[int], end: str | Exception | None, peek: int
) -> None:
    data = bytes(n % 251 for n in range(size))
    with closing(Ahead(Breaking(data, sizes, end))) as stream:
        assert stream.codec == "made"
        if not isinstance(end, Exception):
            assert stream.peek(peek) == data[:peek]
        assert drained(stream, reads) == drained(Breaking(data, sizes, end), reads)
        again = drained(stream, reads)
        assert (again[0], again[1:3]) == (b"", drained(Breaking(data, sizes, end), reads)[1:3])


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1200), SIZES)
def test_closing_early_ends_the_thread_and_leaves_the_stream_usable(
    size: int, taken: int, sizes: list[int]
) -> None:
    data = bytes(n % 251 for n in range(size))
    inner = Breaking(data, sizes, None)
    stream = Ahead(inner)
    assert stream.read(taken) == data[:taken]
    stream.close()
    stream.close()
    assert threads() == 0
    assert not inner.closed
    position = inner.tell()
    assert inner.read() == data[position:]
    with pytest.raises(ValueError, match="the stream is closed: read it before"):
        stream.readinto(bytearray(1))


def test_no_more_is_read_than_the_buffers_hold() -> None:
    inner = Breaking(bytes(10_000), [10_000], None)
    stream = Ahead(inner)
    stream.read(64)
    stream.read(64)
    stream.close()
    assert inner.tell() <= 64 + 4 * 64


def test_thread_ends_where_a_stream_is_dropped() -> None:
    stream = Ahead(Breaking(bytes(10_000), [10_000], None))
    stream.read(64)
    stream.read(64)
    assert threads() == 1
    del stream
    gc.collect()
    assert threads() == 0


def test_small_stream_needs_no_thread() -> None:
    stream = Ahead(Breaking(b"x" * 63, [10], None))
    assert stream.read() == b"x" * 63
    assert threads() == 0


def test_buffers_are_used_again() -> None:
    for _ in range(3):
        with closing(Ahead(Breaking(bytes(1000), [100], None))) as stream:
            assert stream.read() == bytes(1000)
    assert len(ahead._spare) == 4


# -- sources ---------------------------------------------------------------------------------------


def _archive(path: Path) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in (("a.log", TEXT), ("b.log", b"b\n"), ("c.log", CODECS["zstd"](TEXT))):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def _opened(path: Path, *, ahead: bool) -> list[tuple[object, bytes | None, object]]:
    return [
        (file, reader and content(reader), reader and reader.stats)
        for file, reader in blocks.open_source(source(path), block_bytes=5000, ahead=ahead)
    ]


@pytest.mark.parametrize("codec", [None, *CODECS])
@pytest.mark.parametrize("damage", ["none", "cut", "flip"])
def test_source_gives_the_same_read_ahead(tmp_path: Path, codec: str | None, damage: str) -> None:
    packed = bytearray(CODECS[codec](TEXT) if codec else TEXT)
    if damage == "cut":
        del packed[-999:]
    elif damage == "flip":
        packed[len(packed) // 2] ^= 4
    path = tmp_path / "x.log"
    path.write_bytes(packed)
    assert _opened(path, ahead=True) == _opened(path, ahead=False)


def test_archive_gives_the_same_read_ahead_even_where_members_are_left(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    _archive(path)
    whole = _opened(path, ahead=False)
    assert [text for _, text, _ in whole] == [TEXT, b"b\n", TEXT, None]
    assert _opened(path, ahead=True) == whole
    left = []
    for file, reader in blocks.open_source(source(path), block_bytes=5000, ahead=True):
        left.append(file)
        if reader is not None:
            next(iter(reader))
    assert left == [file for file, _, _ in whole]


def test_source_that_is_left_ends_the_thread(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(gzip.compress(TEXT))
    found = blocks.open_source(source(path), block_bytes=5000, ahead=True)
    _, reader = next(found)
    assert reader is not None
    several = iter(reader)
    for _ in range(20):
        next(several)
    assert threads() == 1
    found.close()  # type: ignore[attr-defined]
    assert threads() == 0
    with pytest.raises(ValueError, match=r"x\.log: its source has gone on: read it first"):
        list(reader)


def test_stdin_is_read_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end may never come, and closing would wait for it."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT)))
    (found,) = discover(["-"])
    for _, reader in blocks.open_source(found, ahead=True):
        assert reader is not None
        assert content(reader) == TEXT
        assert threads() == 0
