"""The engine against plain `re`, and the rules of one line."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matcher.catalogue import CatalogueError
from matcher.engine import Engine, Hits, Oracle, PatternSet, decisive, within_line
from tests.support import catalogue, signature

CATALOGUE = catalogue(
    signature("foo", r"foo +bar"),
    signature("wide", r"[^x]{1,5}bar\s+baz"),
    signature("general", r"Error: ", fallback=True),
    signature("specific", r"bar", supersedes=("covered",)),
    signature("covered", r"ba[a-z]"),
    signature("anchored", r"^start \w+ stop$"),
    signature("step", r"step \d done", "progress"),
)


def rows(hits: Hits) -> list[tuple[str, int, int, int]]:
    ids = CATALOGUE.signatures
    columns = (column.tolist() for column in hits)
    return [
        (ids[number].id, start, end, at) for number, start, end, at in zip(*columns, strict=True)
    ]


@pytest.mark.parametrize(
    "scanner", [Engine(CATALOGUE), Oracle(CATALOGUE)], ids=["engine", "oracle"]
)
class TestScan:
    def test_one_row_a_line_and_signature(self, scanner: Engine | Oracle) -> None:
        assert rows(scanner.scan(b"foo  bar foo bar\nfoo bar")) == [
            ("foo", 0, 16, 8),
            ("specific", 0, 16, 8),
            ("foo", 17, 24, 24),
            ("specific", 17, 24, 24),
        ]

    def test_matches_never_cross_a_line(self, scanner: Engine | Oracle) -> None:
        assert rows(scanner.scan(b"a bar\nbaz\n")) == [("specific", 0, 5, 5), ("covered", 6, 9, 9)]

    def test_carriage_return_is_a_soft_break(self, scanner: Engine | Oracle) -> None:
        assert rows(scanner.scan(b"a bar\rbaz start a stop\rstart b stop\n")) == [
            ("specific", 0, 35, 5),
            ("anchored", 0, 35, 35),
        ]

    def test_crlf_ends_a_line(self, scanner: Engine | Oracle) -> None:
        assert rows(scanner.scan(b"start a stop\r\nx\r\n")) == [("anchored", 0, 13, 12)]

    def test_fallback_counts_only_alone(self, scanner: Engine | Oracle) -> None:
        assert [row[0] for row in rows(scanner.scan(b"Error: foo bar\nError: other\n"))] == [
            "foo",
            "specific",
            "general",
        ]

    def test_progress_on_the_line_does_not_silence_a_fallback(
        self, scanner: Engine | Oracle
    ) -> None:
        """`Map: 34%|...ValueError: x` lost its cause to the progress bar before it."""
        names = [row[0] for row in rows(scanner.scan(b"step 7 done Error: other\n"))]
        assert names == ["general", "step"]

    def test_superseded_signature_gives_way(self, scanner: Engine | Oracle) -> None:
        assert [row[0] for row in rows(scanner.scan(b"bar\nbaz"))] == ["specific", "covered"]

    def test_part_of_a_buffer_gives_offsets_in_the_buffer(self, scanner: Engine | Oracle) -> None:
        assert rows(scanner.scan(b"bar\nbar\nbar\n", 4, 8)) == [("specific", 4, 7, 7)]

    @pytest.mark.parametrize("data", [b"", b"\n", b"\r\n\r", b"\0\xff\xfe" * 9])
    def test_nothing_is_found_in_nothing(self, scanner: Engine | Oracle, data: bytes) -> None:
        assert rows(scanner.scan(data)) == []

    def test_bytes_that_are_no_text_do_no_harm(self, scanner: Engine | Oracle) -> None:
        assert rows(scanner.scan(b"\0\xffbar\0\n\xc3(bar")) == [
            ("specific", 0, 6, 5),
            ("specific", 7, 12, 12),
        ]


TEXT = st.lists(
    st.sampled_from(["foo", " ", "bar", "baz", "\n", "\r", "Error: ", "start", "stop", "x", "\0"]),
    max_size=60,
).map(lambda parts: "".join(parts).encode())


@settings(max_examples=300)
@given(TEXT)
def test_engine_agrees_with_re(data: bytes) -> None:
    fast, slow = rows(Engine(CATALOGUE).scan(data)), rows(Oracle(CATALOGUE).scan(data))
    assert [row[:3] for row in fast] == [row[:3] for row in slow]


@settings(max_examples=100)
@given(st.lists(TEXT, min_size=1, max_size=4))
def test_dense_and_sparse_line_bounds_agree(parts: list[bytes]) -> None:
    dense = b"\n".join(parts) + b"\n"
    padding = b"q" * 200_000 + b"\n"
    shifted = [
        (name, start - len(padding), end - len(padding), at - len(padding))
        for name, start, end, at in rows(Engine(CATALOGUE).scan(padding + dense))
    ]
    assert rows(Engine(CATALOGUE).scan(dense)) == shifted


@pytest.mark.parametrize(
    ("pattern", "narrowed"),
    [
        (r"a\s+b", r"a[ \t\x0b\x0c]+b"),
        (r"[^']{3}", r"[^\n']{3}"),
        (r"[^]a]", r"[^\n]a]"),
        (r"[\s,]", r"[ \t\x0b\x0c,]"),
        (r"\[[a\]]\\s", r"\[[a\]]\\s"),
        (r"\W\D", r"[^\w\n][^\d\n]"),
    ],
)
def test_classes_are_narrowed_to_one_line(pattern: str, narrowed: str) -> None:
    assert within_line(pattern) == narrowed
    re.compile(narrowed)


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        (r"gone(?: on (?P<host>\w{1,9}))?", "gone"),
        (r"a(?:b(?:c)?)?(?:[)(]{2})?", "a"),
        (r"a|b(?:c)?", "a|b"),
        (r"(a)b\)?", r"(a)b\)?"),
        (r"(a)[b)]?", r"(a)[b)]?"),
        (r"(?:a)?", r"(?:a)?"),
        (r"a|(?:b)?", r"a|(?:b)?"),
        (r"a(?:b)?$", r"a(?:b)?$"),
        (r"a(?:b(?=c))?", r"a(?:b(?=c))?"),
        (r"(a)(?:b\1)?", r"(a)(?:b\1)?"),
        (r"a(?:b){0,2}", r"a(?:b){0,2}"),
        (r"a)?", r"a)?"),
    ],
)
def test_optional_end_is_left_to_re(pattern: str, kept: str) -> None:
    assert decisive(pattern) == kept


def test_every_refused_pattern_is_named() -> None:
    with pytest.raises(CatalogueError) as caught:
        PatternSet(
            ["a(?=b)", "fine", "(", "a*"],
            names=[("x", name) for name in ("one", "two", "three", "four")],
        )
    assert [issue.id for issue in caught.value.issues] == ["one", "three", "four"]
    assert "Zero-width assertions" in caught.value.issues[0].message


def test_nul_in_a_pattern_is_refused() -> None:
    """Hyperscan cuts a pattern at NUL in silence: `abcd\\0z` would have matched `abcd`."""
    with pytest.raises(CatalogueError, match="NUL"):
        PatternSet(["abcd\0z"])


class TestCache:
    def test_compiled_set_is_stored_once_and_read_back(self, tmp_path: Path) -> None:
        first = PatternSet(["abcd", "efgh"], cache=tmp_path)
        (stored,) = tmp_path.iterdir()
        before = stored.stat().st_mtime_ns
        second = PatternSet(["abcd", "efgh"], cache=tmp_path)
        assert stored.stat().st_mtime_ns == before
        assert first.ends(b"xefgh") == second.ends(b"xefgh") == ([1], [5])

    @pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 4096])
    def test_damaged_entry_is_compiled_anew(self, tmp_path: Path, damage: bytes) -> None:
        PatternSet(["abcd"], cache=tmp_path)
        (stored,) = tmp_path.iterdir()
        stored.write_bytes(damage)
        assert PatternSet(["abcd"], cache=tmp_path).found(b"abcd") == {0}
        assert len(stored.read_bytes()) > 32
        assert stored.read_bytes() != damage

    def test_unwritable_cache_costs_only_a_compile(self, tmp_path: Path) -> None:
        place = tmp_path / "file"
        place.write_bytes(b"")
        place.chmod(stat.S_IRUSR)
        assert PatternSet(["abcd"], cache=place / "below").found(b"abcd") == {0}

    def test_other_patterns_have_another_entry(self, tmp_path: Path) -> None:
        PatternSet(["ab", "cd"], cache=tmp_path)
        PatternSet(["a", "bcd"], cache=tmp_path)
        assert len(list(tmp_path.iterdir())) == 2
