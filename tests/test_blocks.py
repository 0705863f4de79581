"""Blocks of whole lines, whatever the stream they come from."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest import blocks
from ingest.blocks import Reader, Ring, Stats
from ingest.files import discover
from ingest.streams import FileStream
from tests.reading import (
    LENGTHS,
    RING,
    Chopped,
    Piece,
    content,
    lines_of,
    opened,
    read,
    reader,
    source,
)
from tests.support import shared


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
    for number, line in enumerate(lines_of(data), 1):
        begin = 0
        while len(line.rstrip(b"\n")) - begin > limit:
            found.append(Piece(offset + begin, number, offset, line[begin : begin + limit]))
            begin += limit - overlap
        found.append(Piece(offset + begin, number, offset, line[begin:]))
        offset += len(line)
    return found


# -- lines -----------------------------------------------------------------------------------------


LINES = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\0", b"\xff", b"longer"])).map(
    b"".join
)


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
            lines=len(lines_of(data)),
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


# -- sources ---------------------------------------------------------------------------------------


def test_file_is_opened_with_its_labels_and_codec(tmp_path: Path) -> None:
    (tmp_path / "rank_3.txt").write_bytes(gzip.compress(b"a\nb\n"))
    ((file, text, stats),) = opened(source(tmp_path / "rank_3.txt"))
    assert stats is not None
    assert (file.path, file.labels.rank, stats.codec) == ("rank_3.txt", 3, "gzip")
    assert text == b"a\nb\n"


@pytest.mark.parametrize("text", ["x\n", "2026-01-02T03:04:05Z stdout P x\n"])
def test_log_is_read_before_the_next_is_asked_for(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.log").write_text(text)
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


# -- real logs -------------------------------------------------------------------------------------


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
