"""Lines that a container runtime stored in pieces, put together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.blocks import Places
from ingest.cri import ENTRY
from tests.reading import (
    LENGTHS,
    Piece,
    content,
    lines_of,
    pieces_of,
    read,
    reader,
)


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
    left_out = 2 * (HEADER + 1)
    assert list(block.moves) == [(0, 0, 0), (at[4] - left_out, left_out, 2)]
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
    lines = lines_of(data)
    offsets = [sum(map(len, lines[:n])) for n in range(len(lines))]
    used: set[int] = set()
    for number, line in enumerate(lines):
        if number in used:
            continue
        text, last = line, ENTRY.match(line)
        stream = last["stream"] if last else None
        ahead = number + 1
        while last and last["tag"] == b"P" and text.endswith(b"\n"):
            while ahead < len(lines):
                other = ENTRY.match(lines[ahead])
                if other is None or (ahead not in used and other["stream"] == stream):
                    break
                ahead += 1
            following = ENTRY.match(lines[ahead]) if ahead < len(lines) else None
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
    assert (found.stats.lines, found.stats.raw_bytes) == (len(lines_of(data)), len(data))


def test_joined_line_longer_than_the_limit_is_cut_and_keeps_its_line() -> None:
    part = b"x" * 16_000
    parts = [cri("stdout", "P", part)] * 150 + [cri("stdout", "F", b"end")] * 2
    found = reader(b"".join(parts))
    got = read(found)
    assert {(p.line_no, p.line_offset) for p in got[:-1]} == {(1, 0)}
    assert got[-1].line_no == 152
    assert got[-1].offset == sum(map(len, parts[:-1]))
    assert (found.stats.lines, found.stats.cut_lines) == (152, 1)


def test_line_of_many_small_entries_takes_one_move() -> None:
    data = cri("stdout", "P", b"x") * 5000 + cri("stdout", "F", b"end") * 3
    (block,) = list(reader(data))
    assert len(block.moves) == 2
    assert [(piece.line_no, len(piece.data)) for piece in pieces_of(block)] == [
        (1, HEADER + 5000 + len(b"end\n")),
        (5002, HEADER + 4),
        (5003, HEADER + 4),
    ]


@settings(deadline=None)
@given(ENTRIES, st.integers(1, 300))
def test_places_of_earlier_lines_are_found_again_in_the_history(
    entries: list[bytes], block_bytes: int
) -> None:
    seen: dict[int, tuple[int, int]] = {}
    for block in reader(cri("stdout", "F", b"first") + b"".join(entries), block_bytes):
        forward, back = Places(block), Places(block)
        begins = [block.start]
        while stop := block.data.find(b"\n", begins[-1], block.end - 1) + 1:
            begins.append(stop)
        shift = block.offset - block.start
        seen |= {begin + shift: forward.of(begin) for begin in begins}
        for offset, place in reversed(seen.items()):
            assert back.of(offset - shift) == place
