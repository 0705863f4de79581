"""Blocks of whole lines, whatever the stream they come from."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import struct
import subprocess
import sys
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import lz4.frame
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest import blocks
from ingest.blocks import Block, FileStream, Reader, Ring, Stats, zstd
from ingest.files import LogFile, Source, discover
from tests.support import shared

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
    return Reader(blocks.decoded(file), "x.log", ring=ring, block_bytes=block_bytes)


def pieces_of(block: Block) -> Iterator[Piece]:
    position, lines = block.start, 0
    while position < block.end:
        stop = block.data.find(b"\n", position, block.end) + 1 or block.end
        moved = [shift for shift in block.shifts if shift[0] <= position]
        offset = block.offset + position - block.start + sum(shift[1] for shift in moved)
        yield Piece(
            offset,
            block.line_no + lines + sum(shift[2] for shift in moved),
            block.line_offset if position == block.start else offset,
            bytes(block.data[position:stop]),
        )
        position, lines = stop, lines + 1


def read(found: Iterable[Block]) -> list[Piece]:
    return [piece for block in found for piece in pieces_of(block)]


def content(found: Iterable[Block]) -> bytes:
    return b"".join(bytes(block.data[block.start : block.end]) for block in found)


@contextmanager
def limits(line: int, overlap: int, history: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "LINE_LIMIT", line)
        patch.setattr(blocks, "OVERLAP", overlap)
        patch.setattr(blocks, "HISTORY", history)
        yield


def expected_pieces(data: bytes, limit: int, overlap: int) -> list[Piece]:
    found = []
    offset = 0
    for number, line in enumerate(_lines(data), 1):
        begin = 0
        while len(line.rstrip(b"\n")) - begin > limit:
            found.append(Piece(offset + begin, number, offset, line[begin : begin + limit]))
            begin += limit - overlap
        found.append(Piece(offset + begin, number, offset, line[begin:]))
        offset += len(line)
    return found


def _lines(data: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


# -- lines ---------------------------------------------------------------------------------------

LINES = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\0", b"\xff", b"longer"])).map(
    b"".join
)
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=5)


@settings(deadline=None)
@given(LINES, st.integers(1, 16), LENGTHS)
@example(b"0123456789abcdef\n" * 3, 1, [1])
@example(b"0123456789abcdefg\nx", 16, [17])
@example(b"0123456789abcdefg", 5, [3])
@example(b"", 1, [1])
def test_lines_and_pieces_depend_on_the_stream_alone(
    data: bytes, block_bytes: int, lengths: list[int]
) -> None:
    with limits(line=16, overlap=4, history=8):
        found = reader(data, block_bytes, lengths, ring=Ring(48))
        expected = expected_pieces(data, 16, 4)
        assert read(found) == expected
        assert found.stats == Stats(
            codec="plain",
            raw_bytes=len(data),
            lines=len(_lines(data)),
            cut_lines=len({p.line_no for p in expected if p.offset > p.line_offset}),
            sha256_head=found.stats.sha256_head,
        )


@settings(deadline=None)
@given(LINES, st.integers(1, 16), LENGTHS)
def test_history_is_what_stands_before_the_block(
    data: bytes, block_bytes: int, lengths: list[int]
) -> None:
    with limits(line=16, overlap=4, history=8):
        for block in reader(data, block_bytes, lengths, ring=Ring(48)):
            before = bytes(block.data[block.history : block.start])
            assert before == data[max(0, block.offset - 8) : block.offset]


@settings(deadline=None)
@given(LINES, st.integers(1, 16))
def test_blocks_end_behind_a_line_and_count_theirs(data: bytes, block_bytes: int) -> None:
    with limits(line=16, overlap=4, history=8):
        line_no = 1
        for block in reader(data, block_bytes, ring=Ring(48)):
            text = bytes(block.data[block.start : block.end])
            at_end = block.offset + len(text) == len(data)
            assert text.endswith(b"\n") or at_end or len(text) == 16
            unterminated = at_end and not text.endswith(b"\n")
            assert (block.line_no, block.lines) == (line_no, text.count(b"\n") + unterminated)
            line_no += block.lines


def test_line_of_the_limit_is_whole_and_a_longer_one_is_cut_with_an_overlap() -> None:
    limit, overlap = blocks.LINE_LIMIT, blocks.OVERLAP
    whole, long = b"x" * limit, bytes(range(32, 127)) * (3 * limit // 95 + 1)
    found = reader(whole + b"\n" + long + b"\nend")
    got = read(found)
    begin = limit + 1
    assert [(p.offset, p.line_no, p.line_offset, len(p.data)) for p in got] == [
        (0, 1, 0, limit + 1),
        (begin, 2, begin, limit),
        (begin + limit - overlap, 2, begin, limit),
        (begin + 2 * (limit - overlap), 2, begin, limit),
        (begin + 3 * (limit - overlap), 2, begin, len(long) + 1 - 3 * (limit - overlap)),
        (begin + len(long) + 1, 3, begin + len(long) + 1, 3),
    ]
    assert (found.stats.lines, found.stats.cut_lines) == (3, 1)


def test_history_reaches_back_a_mebibyte_over_many_blocks() -> None:
    data = b"".join(b"line %d\n" % n for n in range(1_200_000))
    for block in reader(data, 300_000):
        reach = min(block.offset, blocks.HISTORY)
        assert block.start - block.history == reach
        assert block.data[block.history : block.start] == data[block.offset - reach : block.offset]


def test_odd_bytes_pass_untouched() -> None:
    data = b"\xef\xbb\xbfa\r\nb\rc\n\0\0\n\xff\xfe\x80\n\n\nend"
    found = reader(data, 2)
    assert b"".join(p.data for p in read(found)) == data
    assert (found.stats.lines, found.stats.raw_bytes) == (7, len(data))


def test_empty_stream_has_no_block() -> None:
    found = reader(b"")
    assert list(found) == []
    assert (found.stats.lines, found.stats.codec) == (0, "plain")


def test_head_is_hashed_before_compression() -> None:
    data = b"0123456789abcdef\n" * 10_000
    digests = {reader(packed).stats.sha256_head for packed in (data, gzip.compress(data))}
    assert len(digests) == 1
    assert reader(data[:-1]).stats.sha256_head in digests
    assert reader(b"y" + data).stats.sha256_head not in digests


@pytest.mark.parametrize("size", [0, blocks.LINE_LIMIT + 1])
def test_block_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"block_bytes is {size}: give 1 to 1048576"):
        reader(b"", size)


def test_read_error_gives_what_was_read_before() -> None:
    class Failing(Chopped):
        def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
            if self._reads == 2:
                raise OSError(5, "Input/output error")
            return super().readinto(buffer)

    file = FileStream(Failing(b"a\nb\nc\n", [2]))  # type: ignore[arg-type]
    found = Reader(file, "x.log", ring=RING)
    assert content(found) == b"a\nb\n"
    assert found.stats.truncated == (
        "x.log: reading fails (input/output error) after byte 4 of its content: "
        "what comes before was read, get a whole copy for the rest"
    )


# -- codecs --------------------------------------------------------------------------------------


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
each_codec = pytest.mark.parametrize("codec", CODECS)


@each_codec
def test_codec_is_told_by_content_and_members_follow_each_other(codec: str) -> None:
    compress = CODECS[codec]
    packed = compress(TEXT) + compress(b"") + compress(b"second\n")
    found = reader(packed, lengths=[70_001])
    assert content(found) == TEXT + b"second\n"
    assert (found.stats.codec, found.stats.truncated) == (codec, None)


@each_codec
def test_zeros_behind_a_stream_are_padding_and_other_bytes_a_loss(codec: str) -> None:
    packed = CODECS[codec](b"text\n")
    padded = reader(packed + bytes(100_000))
    assert (content(padded), padded.stats.truncated) == (b"text\n", None)
    followed = reader(packed + b"\0\0garbage")
    assert content(followed) == b"text\n"
    assert followed.stats.truncated == (
        f"x.log: other bytes follow the {codec} stream after byte 5 of its content: "
        "what comes before was read, get a whole copy for the rest"
    )


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_skippable_frames_are_skipped(codec: str) -> None:
    frame = b"\x5a\x2a\x4d\x18" + struct.pack("<I", 5) + b"skip\n"
    packed = CODECS[codec](b"text\n")
    found = reader(frame + frame + packed + frame + packed + frame)
    assert (content(found), found.stats.codec) == (b"text\n" * 2, codec)
    assert found.stats.truncated is None


@each_codec
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_cut_stream_gives_the_same_readable_part_however_it_is_read(
    codec: str, data: st.DataObject
) -> None:
    packed = CODECS[codec](TEXT)
    size = data.draw(st.integers(12, len(packed) - 1))
    first = reader(packed[:size])
    second = reader(
        packed[:size],
        data.draw(st.integers(1000, 100_000)),
        data.draw(st.lists(st.integers(1, 5000), min_size=1, max_size=3)),
        seekable=data.draw(st.booleans()),
    )
    text = content(first)
    assert text == content(second)
    assert TEXT.startswith(text)
    assert first.stats == second.stats
    assert first.stats.truncated == (
        f"x.log: the {codec} stream ends early after byte {len(text)} of its content: "
        "what comes before was read, get a whole copy for the rest"
    )


@each_codec
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_corrupt_stream_gives_the_same_readable_part_however_it_is_read(
    codec: str, data: st.DataObject
) -> None:
    packed = bytearray(CODECS[codec](TEXT[:30_000]))
    packed[data.draw(st.integers(12, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    first = reader(bytes(packed))
    second = reader(
        bytes(packed),
        data.draw(st.integers(1000, 100_000)),
        data.draw(st.lists(st.integers(1, 5000), min_size=1, max_size=3)),
    )
    assert content(first) == content(second)
    assert first.stats == second.stats


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_wrong_checksum_at_the_end_loses_no_byte(codec: str) -> None:
    packed = bytearray(CODECS[codec](TEXT))
    packed[-5 if codec == "gzip" else -1] ^= 1
    found = reader(bytes(packed))
    assert content(found) == TEXT
    assert found.stats.truncated is not None
    assert found.stats.truncated.startswith(f"x.log: the {codec} stream is corrupt (")
    assert f") after byte {len(TEXT)} of its content: " in found.stats.truncated


def test_gzip_is_read_the_same_without_isal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "igzip_lib", None)
    packed = gzip.compress(TEXT) + gzip.compress(b"second\n")
    whole = reader(packed, lengths=[4097])
    assert (content(whole), whole.stats.truncated) == (TEXT + b"second\n", None)
    cut = reader(packed[:5000])
    text = content(cut)
    assert text == zlib.decompressobj(31).decompress(packed[:5000])
    assert cut.stats.truncated is not None


def test_bomb_is_read_in_bounded_pieces() -> None:
    packed = zstd.compress(bytes(300 << 20))
    assert len(packed) < 1 << 16
    found = reader(packed)
    assert sum(1 for _ in found) > 290
    assert (found.stats.raw_bytes, found.stats.lines, found.stats.cut_lines) == (300 << 20, 1, 1)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_with_a_byte_order_mark_becomes_utf8(encoding: str) -> None:
    text = "\ufeffErrör one\r\nzwei 🦊\n" * 5000
    found = reader(text.encode(encoding), 1000)
    assert content(found).decode() == text.removeprefix("\ufeff")
    assert found.stats.lines == 10_000


# -- CRI -----------------------------------------------------------------------------------------


def cri(stream: str, tag: str, text: bytes, second: int = 0) -> bytes:
    return b"2026-01-02T03:04:%02d.123456789Z %b %b %b\n" % (
        second,
        stream.encode(),
        tag.encode(),
        text,
    )


HEADER = len(cri("stdout", "F", b"")) - 1


def test_partial_cri_entries_are_joined_and_keep_their_places() -> None:
    parts = [
        cri("stdout", "F", b"one"),
        cri("stdout", "P", b"No space left "),
        cri("stdout", "P", b"on "),
        cri("stdout", "F", b"device"),
        cri("stderr", "F", b"last"),
    ]
    at = [sum(map(len, parts[:n])) for n in range(len(parts) + 1)]
    found = reader(b"".join(parts))
    (block,) = list(found)
    assert list(pieces_of(block)) == [
        Piece(0, 1, 0, parts[0]),
        Piece(at[1], 2, at[1], parts[1][:-1] + b"on device\n"),
        Piece(at[4], 5, at[4], parts[4]),
    ]
    joined = at[1] + len(parts[1]) - 1
    removed = HEADER + 1
    assert block.shifts == ((joined, removed, 1), (joined + 3, removed, 1))
    assert (found.stats.lines, found.stats.raw_bytes) == (5, at[5])


def test_cri_entry_is_joined_across_lines_of_the_other_stream() -> None:
    parts = [
        cri("stdout", "P", b"left "),
        cri("stderr", "P", b"up "),
        cri("stdout", "F", b"right"),
        cri("stderr", "F", b"down"),
        cri("stdout", "F", b"end"),
    ]
    at = [sum(map(len, parts[:n])) for n in range(len(parts))]
    assert read(reader(b"".join(parts))) == [
        Piece(0, 1, 0, parts[0][:-1] + b"right\n"),
        Piece(at[1], 2, at[1], parts[1][:-1] + b"down\n"),
        Piece(at[4], 5, at[4], parts[4]),
    ]


@pytest.mark.parametrize(
    "last", [b"", b"no entry\n", b"no entry", cri("stderr", "F", b"other")[:-1]]
)
def test_cri_entry_without_its_rest_stays_a_line(last: bytes) -> None:
    first = cri("stdout", "P", b"begun ")
    found = reader(first + last)
    assert b"".join(p.data for p in read(found)) == first + last
    assert [p.line_no for p in read(reader(first + last))] == [1, 2][: 1 + bool(last)]
    assert (found.stats.lines, found.stats.raw_bytes) == (1 + bool(last), len(first + last))


def test_cri_looking_text_inside_a_line_is_no_entry() -> None:
    inside = cri("stdout", "F", b"quotes " + cri("stderr", "P", b"x")[:-1])
    data = inside + cri("stdout", "F", b"end")
    assert content(reader(data)) == data
    plain = b"a plain log\n" + cri("stdout", "P", b"x") + cri("stdout", "F", b"y")
    assert content(reader(plain)) == plain


def expected_joins(data: bytes) -> list[tuple[int, int, bytes]]:
    """(offset, line number, text) of the joined lines, in the order of their first entries."""
    rows: list[tuple[int, int, bytes]] = []
    lines = _lines(data)
    offsets = [sum(map(len, lines[:n])) for n in range(len(lines))]
    used: set[int] = set()
    for number, line in enumerate(lines):
        if number in used:
            continue
        text, last = line, blocks._CRI.match(line)
        stream = last["stream"] if last else None
        ahead = number + 1
        while last and last["tag"] == b"P" and text.endswith(b"\n"):
            while ahead < len(lines):
                other = blocks._CRI.match(lines[ahead])
                if other is None or (ahead not in used and other["stream"] == stream):
                    break
                ahead += 1
            following = blocks._CRI.match(lines[ahead]) if ahead < len(lines) else None
            if following is None:
                break
            used.add(ahead)
            text = text[:-1] + lines[ahead][following.end() :]
            last = following
        rows.append((offsets[number], number + 1, text))
    # A joined line that the end of the file cut gets an LF where another comes behind it.
    return [
        (offset, number, text if text.endswith(b"\n") or text == rows[-1][2] else text + b"\n")
        for offset, number, text in rows
    ]


ENTRIES = st.lists(
    st.one_of(
        st.builds(
            cri,
            st.sampled_from(["stdout", "stderr"]),
            st.sampled_from(["P", "P", "F"]),
            st.sampled_from([b"", b"a", b"stdout P "]),
        ),
        st.sampled_from([b"no entry\n", b"\n"]),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=300)
@given(ENTRIES, st.integers(1, 300), LENGTHS, st.booleans())
def test_joined_entries_are_those_of_a_plain_account(
    entries: list[bytes], block_bytes: int, lengths: list[int], ended: bool
) -> None:
    data = cri("stdout", "F", b"first") + b"".join(entries)
    data = data if ended else data[:-1]
    found = reader(data, block_bytes, lengths)
    assert sorted((p.offset, p.line_no, p.data) for p in read(found)) == expected_joins(data)
    assert (found.stats.lines, found.stats.raw_bytes) == (len(_lines(data)), len(data))


def test_joined_line_longer_than_the_limit_is_cut_and_keeps_its_line() -> None:
    part = b"x" * 16_000
    parts = [cri("stdout", "P", part)] * 150 + [cri("stdout", "F", b"end")] * 2
    found = reader(b"".join(parts))
    got = read(found)
    assert {(p.line_no, p.line_offset) for p in got[:-1]} == {(1, 0)}
    assert got[-1].line_no == 152
    assert got[-1].offset == sum(map(len, parts[:-1]))
    assert (found.stats.lines, found.stats.cut_lines) == (152, 1)


# -- sources -------------------------------------------------------------------------------------


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


def test_file_is_opened_with_its_labels_and_codec(tmp_path: Path) -> None:
    (tmp_path / "rank_3.txt").write_bytes(gzip.compress(b"a\nb\n"))
    ((file, text, stats),) = opened(source(tmp_path / "rank_3.txt"))
    assert stats is not None
    assert (file.path, file.labels.rank, stats.codec) == ("rank_3.txt", 3, "gzip")
    assert text == b"a\nb\n"


def test_log_is_read_before_the_next_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x\n")
    ((_, late),) = blocks.open_source(source(tmp_path / "a.log"))
    assert late is not None
    with pytest.raises(ValueError, match=r"a\.log: its source has gone on: read it first"):
        list(late)


def test_source_with_a_problem_is_passed_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    ((file, found),) = blocks.open_source(source(tmp_path / "fifo"))
    assert (file.status, found) == ("skipped", None)


def test_file_that_went_away_or_changed_its_kind_is_a_failed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("x\n")
    found = source(path)
    path.unlink()
    ((file, _),) = blocks.open_source(found)
    assert file.problem == "a.log: no such file or directory: it went away meanwhile, run again"
    os.mkfifo(path)
    ((file, _),) = blocks.open_source(found)
    assert (file.status, file.problem) == (
        "failed",
        "a.log: it is no longer a file: check the disk and run again",
    )


def test_file_that_may_not_be_read_is_a_failed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.log").write_text("x\n")
    found = source(tmp_path / "a.log")

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)
    ((file, _),) = blocks.open_source(found)
    assert (file.status, file.problem) == (
        "failed",
        "a.log: permission denied: run as a user who may read it",
    )


def test_stdin_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = Chopped(gzip.compress(b"a\nb\n"), [3], seekable=False)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(packed)))
    (found,) = discover(["-"])
    ((file, text, _),) = opened(found)
    assert (file.path, text) == ("-", b"a\nb\n")


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("x.log", b"\0" * 8 + b"DUCK\x40", "a DuckDB database"),
        ("x.duckdb.wal", b"\x01", "a part of a DuckDB database"),
        ("x", b"PAR1\x15\x04", "a Parquet file"),
        ("x", b"ARROW1\0\0", "an Arrow file"),
        ("x", b"\x89PNG\r\n\x1a\n", "an image"),
        ("x", b"\xff\xd8\xff\xe0", "an image"),
        ("x.pt", b"\x80\x02}q\0", "a pickle"),
        ("x", b'\x10\x01\0\0\0\0\0\0{"a', "tensors"),
        ("x", b"\x7fELF\x02", "a program or core dump"),
        ("x.json", b'{\n "a": 1\n}\n', "a JSON document (see `firstfault import`)"),
        ("x.json", b'{"a": 1}\n', "a JSON document (see `firstfault import`)"),
    ],
)
def test_what_is_no_log_is_skipped(tmp_path: Path, name: str, data: bytes, what: str) -> None:
    for packed in (data, gzip.compress(data)):
        (tmp_path / name).write_bytes(packed)
        assert summary(tmp_path / name) == [
            (name, "other", "skipped", None, f"{name}: {what}, not a log")
        ]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.json", b'{"log":"a\\n"}\n{"log":"b\\n"}\n'),
        ("x.log", b"{\n"),
        ("x", b"PAR1 of 2 begins\n"),
        ("x", b"GGUF is a format\n"),
        ("x", b"\xff\xfe\x80 no text\n"),
        ("x", b"12345678" * 80),
    ],
)
def test_what_may_be_a_log_is_read(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert [row[2:4] for row in summary(tmp_path / name)] == [("ok", data)]


def test_stream_compressed_twice_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(gzip.compress(b"a\n")))
    assert summary(tmp_path / "x.gz")[0][4] == "x.gz: compressed twice: decompress it once"


# -- archives ------------------------------------------------------------------------------------


def tar(*members: tuple[str, bytes | tarfile.TarInfo]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in members:
            if isinstance(data, tarfile.TarInfo):
                archive.addfile(data)
                continue
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1_700_000_000
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def special(name: str, type_: bytes, target: str = "") -> tuple[str, tarfile.TarInfo]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = type_, target
    return name, info


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that stand twice
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6)), data, method)
    return buffer.getvalue()


MEMBERS = (("job7/rank_0.log", b"zero\n" * 5000), ("job7/rank_1.log", b"one"), ("e.log", b""))


@pytest.mark.parametrize("codec", ["plain", *CODECS])
def test_tar_gives_its_members_and_then_itself(tmp_path: Path, codec: str) -> None:
    compress = CODECS.get(codec, bytes)
    (tmp_path / "t.bin").write_bytes(compress(tar(special("job7", tarfile.DIRTYPE), *MEMBERS)))
    assert summary(tmp_path / "t.bin") == [
        ("t.bin!job7/rank_0.log", "rank_stdout", "ok", MEMBERS[0][1], None),
        ("t.bin!job7/rank_1.log", "rank_stdout", "ok", b"one", None),
        ("t.bin!e.log", "other", "ok", b"", None),
        ("t.bin", "archive", "ok", None, None),
    ]
    (first, found), *_ = blocks.open_source(source(tmp_path / "t.bin"))
    assert found is not None
    assert (first.member, first.size, first.mtime_us) == (
        "job7/rank_0.log",
        25_000,
        1_700_000_000_000_000,
    )
    assert (first.labels.job, first.labels.rank, found.stats.codec) == ("job7", 0, codec)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_zip_gives_its_members_and_then_itself(tmp_path: Path, method: int) -> None:
    (tmp_path / "z.log").write_bytes(zipped(*MEMBERS, method=method))
    assert summary(tmp_path / "z.log") == [
        ("z.log!job7/rank_0.log", "rank_stdout", "ok", MEMBERS[0][1], None),
        ("z.log!job7/rank_1.log", "rank_stdout", "ok", b"one", None),
        ("z.log!e.log", "other", "ok", b"", None),
        ("z.log", "archive", "ok", None, None),
    ]
    (first, _), *_ = blocks.open_source(source(tmp_path / "z.log"))
    assert (first.size, first.mtime_us) == (25_000, 1_767_323_046_000_000)


def test_member_that_is_not_read_is_passed_over(tmp_path: Path) -> None:
    for name, data in (("a.tar", tar(*MEMBERS)), ("a.tgz", gzip.compress(tar(*MEMBERS)))):
        (tmp_path / name).write_bytes(data)
        files = [file.path for file, _ in blocks.open_source(source(tmp_path / name))]
        assert files == [f"{name}!{member}" for member, _ in MEMBERS] + [name]


def test_members_compressed_or_archives_themselves_are_read(tmp_path: Path) -> None:
    inner = tar(("n/rank_2.log", b"two\n"))
    members = [
        ("a.gz", gzip.compress(b"a\n")),
        ("b.tar.xz", lzma.compress(inner)),
        ("c.zip", zipped(("rank_3.log", b"three\n"))),
    ]
    expected = [
        ("a.gz", "other", b"a\n", None),
        ("b.tar.xz!n/rank_2.log", "rank_stdout", b"two\n", None),
        ("b.tar.xz", "archive", None, None),
        ("c.zip!rank_3.log", "rank_stdout", b"three\n", None),
        ("c.zip", "archive", None, None),
    ]
    for name, data in (
        ("t.tar", tar(*members)),
        ("t.tgz", gzip.compress(tar(*members))),
        ("t.zip", zipped(*members)),
    ):
        (tmp_path / name).write_bytes(data)
        assert summary(tmp_path / name) == [
            (f"{name}!{path}", kind, "ok", text, lost) for path, kind, text, lost in expected
        ] + [(name, "archive", "ok", None, None)]


def test_archive_three_deep_is_skipped(tmp_path: Path) -> None:
    deep = tar(("c.tar", tar(("d.log", b"d\n"))))
    (tmp_path / "a.tar").write_bytes(tar(("b.tar", deep)))
    assert summary(tmp_path / "a.tar")[0] == (
        "a.tar!b.tar!c.tar",
        "other",
        "skipped",
        None,
        "a.tar!b.tar!c.tar: an archive three deep: unpack the outer one",
    )


def test_hostile_names_stay_inside_and_apart(tmp_path: Path) -> None:
    names = ["/etc/passwd", "../../x.log", "./a//b.log", "a/b.log", "a/b.log", "..", "caf\udce9"]
    for file, data in (
        ("t.tar", tar(*((name, b"%d\n" % n) for n, name in enumerate(names)))),
        ("t.zip", zipped(*((name, b"%d\n" % n) for n, name in enumerate(names[:-1])))),
    ):
        (tmp_path / file).write_bytes(data)
        found = [path for path, *_ in summary(tmp_path / file)]
        expected = ["etc/passwd", "x.log", "a/b.log", "a/b.log#2", "a/b.log#3", "unnamed"]
        expected += [r"caf\xe9"] if file == "t.tar" else []
        assert found == [f"{file}!{name}" for name in expected] + [file]


def test_what_is_no_file_in_a_tar_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "t.tar").write_bytes(
        tar(
            special("soft.log", tarfile.SYMTYPE, "/etc/passwd"),
            special("hard.log", tarfile.LNKTYPE, "a.log"),
            special("null", tarfile.CHRTYPE),
            ("a.log", b"a\n"),
        )
    )
    assert [
        (path, status, problem) for path, _, status, _, problem in summary(tmp_path / "t.tar")
    ] == [
        ("t.tar!soft.log", "skipped", "t.tar!soft.log: a link to /etc/passwd: not followed"),
        ("t.tar!hard.log", "skipped", "t.tar!hard.log: a link to a.log: not followed"),
        ("t.tar!null", "skipped", "t.tar!null: a device or FIFO, not a log"),
        ("t.tar!a.log", "ok", None),
        ("t.tar", "ok", None),
    ]


def test_cut_tar_gives_its_readable_members(tmp_path: Path) -> None:
    data = tar(("a.log", b"a\n"), ("b.log", TEXT), ("c.log", b"c\n"))
    (tmp_path / "t.tar").write_bytes(data[:5000])
    copy = "what comes before was read, get a whole copy for the rest"
    readable = data[2560 - 512 - 512 : 5000]
    rows = summary(tmp_path / "t.tar")
    assert rows[0][3:] == (b"a\n", None)
    assert rows[1][3] == readable == TEXT[: len(readable)]
    assert rows[1][4] == (
        f"t.tar!b.log: the archive ends after byte {len(readable)} of its content: {copy}"
    )
    assert rows[2:] == [
        (
            "t.tar",
            "archive",
            "truncated",
            None,
            "t.tar: unexpected end of data: get a whole copy for the rest",
        )
    ]
    (tmp_path / "t.tgz").write_bytes(gzip.compress(data)[:20_000])
    rows = summary(tmp_path / "t.tgz")
    text = rows[1][3]
    assert text is not None
    assert TEXT.startswith(text)
    assert len(text) > 10_000
    assert rows[1][4] == (
        f"t.tgz!b.log: the gzip stream ends early after byte {len(text)} of its content: {copy}"
    )
    assert rows[2][2:] == (
        "truncated",
        None,
        "t.tgz: the gzip stream ends early: get a whole copy for the rest",
    )


def test_tar_with_a_broken_header_says_that_members_are_missing(tmp_path: Path) -> None:
    data = bytearray(tar(("a.log", b"a\n"), ("b.log", b"b\n")))
    data[1024 + 3] ^= 1
    (tmp_path / "t.tar").write_bytes(data)
    assert summary(tmp_path / "t.tar") == [
        ("t.tar!a.log", "other", "ok", b"a\n", None),
        (
            "t.tar",
            "archive",
            "truncated",
            None,
            "t.tar: bad checksum: get a whole copy for the rest",
        ),
    ]


@pytest.mark.parametrize("size", ["-1024", "-99999999", "9999999999999"])
def test_tar_with_a_hostile_size_ends(tmp_path: Path, size: str) -> None:
    info = tarfile.TarInfo("a.log")
    info.pax_headers = {"size": size}
    (tmp_path / "t.tar").write_bytes(tar(("first.log", b"1\n"), ("a.log", info), ("b.log", b"2\n")))
    rows = summary(tmp_path / "t.tar")
    assert rows[0][3] == b"1\n"
    assert rows[-1][:3] == ("t.tar", "archive", "truncated")


def test_tar_metadata_of_any_size_is_not_read_into_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 32
    (tmp_path / "t.tar").write_bytes(tar(("a.log", b"a\n"))[:1024] + info.tobuf() + bytes(4096))
    assert summary(tmp_path / "t.tar")[-1][4] == (
        "t.tar: metadata without end: get a whole copy for the rest"
    )


def test_zip_members_that_cannot_be_read_are_skipped(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("lzma.log", b"x\n", zipfile.ZIP_LZMA)
        archive.writestr("secret.log", b"y\n")
        archive.writestr("d/", b"")
    data = buffer.getvalue()
    directory = data.rindex(b"PK\x01\x02", 0, data.rindex(b"secret.log"))
    data = data[: directory + 8] + b"\x01" + data[directory + 9 :]
    (tmp_path / "z.zip").write_bytes(data)
    assert [
        (path, status, problem) for path, _, status, _, problem in summary(tmp_path / "z.zip")
    ] == [
        ("z.zip!link", "skipped", "z.zip!link: a link or device: not followed"),
        (
            "z.zip!lzma.log",
            "skipped",
            "z.zip!lzma.log: packed in a way not known here: unpack it first",
        ),
        ("z.zip!secret.log", "skipped", "z.zip!secret.log: encrypted: decrypt it first"),
        ("z.zip", "ok", None),
    ]


def test_zip_member_that_is_not_what_it_was_is_read_and_said_to_be_broken(tmp_path: Path) -> None:
    data = zipped(("a.log", b"hello\n"), ("b.log", b"whole\n"), method=zipfile.ZIP_STORED)
    (tmp_path / "z.zip").write_bytes(data.replace(b"hello\n", b"jello\n", 1))
    rows = summary(tmp_path / "z.zip")
    assert rows[0][3:] == (
        b"jello\n",
        "z.zip!a.log: its checksum is wrong after byte 6 of its content: "
        "what comes before was read, get a whole copy for the rest",
    )
    assert rows[1][3:] == (b"whole\n", None)


def test_zip_without_its_directory_is_a_failed_archive(tmp_path: Path) -> None:
    (tmp_path / "z.zip").write_bytes(zipped(*MEMBERS)[:-30])
    assert summary(tmp_path / "z.zip") == [
        ("z.zip", "archive", "failed", None, "z.zip: file is not a zip file: get a whole copy")
    ]


@pytest.mark.parametrize("name", ["archive/data.pkl", "x-1.0.dist-info/METADATA", "arr_0.npy"])
def test_zip_that_is_a_package_is_skipped(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.pt").write_bytes(zipped((name, b"x"), ("other.txt", b"y")))
    assert summary(tmp_path / "model.pt") == [
        (
            "model.pt",
            "archive",
            "skipped",
            None,
            "model.pt: model weights or a package, not an archive of logs",
        )
    ]


def test_zip_from_a_pipe_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = Chopped(zipped(*MEMBERS), seekable=False)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(packed)))
    (found,) = discover(["-"])
    ((file, _),) = blocks.open_source(found)
    assert (file.status, file.problem) == (
        "skipped",
        "-: a zip is read from its end: save it to disk first",
    )


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_damaged_archive_never_raises(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = data.draw(
        st.sampled_from(
            [
                tar(*MEMBERS, ("long/" * 40 + "x.log", b"x\n")),
                gzip.compress(tar(*MEMBERS)),
                zipped(*MEMBERS),
                zstd.compress(tar(("b.zip", zipped(*MEMBERS)))),
            ]
        )
    )
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("d") / "x"
    path.write_bytes(damaged[: data.draw(st.integers(1, len(whole)))])
    rows = summary(path)
    assert rows
    assert all(status in ("ok", "skipped", "truncated", "failed") for _, _, status, _, _ in rows)


# -- real logs -----------------------------------------------------------------------------------


def test_lines_and_bytes_of_real_logs_are_those_of_wc() -> None:
    for path in sorted(shared("data", "bigscience").glob("*.out")):
        ((_, text, stats),) = opened(source(path))
        assert text is not None
        assert stats is not None
        counted = subprocess.run(["wc", "-lc", path], capture_output=True, text=True, check=True)
        lines, size = map(int, counted.stdout.split()[:2])
        assert (stats.lines, stats.raw_bytes) == (lines + (not text.endswith(b"\n")), size)


def test_failure_lines_of_the_public_bluegene_log_are_counted() -> None:
    ((_, text, stats),) = opened(source(shared("data", "bgl_fail", "Best.all-fail.xz")))
    assert text is not None
    assert stats is not None
    assert len(text) == stats.raw_bytes == 5_567_603
    assert (stats.lines, stats.codec, stats.truncated) == (63_951, "xz", None)
