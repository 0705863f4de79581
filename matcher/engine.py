"""Compile a catalogue and scan bytes for it; owns every detail of Hyperscan.

Callers give a block of whole lines and get arrays: one row a (line, signature). Hidden here:
compile flags, the serialised database, scratch space, the callback, repeated end
offsets, carriage returns, and which signature gives way to which on one line. `Oracle` does the
same with `re`, line by line: slow and obvious, it is what tests hold the engine against.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import hyperscan
import numpy as np
from numpy.typing import NDArray

from matcher.cache import cache_directory as cache_directory
from matcher.cache import keep, place_of, recall
from matcher.catalogue import Catalogue, CatalogueError, Issue, Signature

Buffer = bytes | bytearray

# Hyperscan takes lengths as unsigned 32 bit and wraps in silence above them.
_MAX_BLOCK = 1 << 31
_LF = 10


class Hits(NamedTuple):
    """Hits of one block, sorted by line, then signature; all four arrays have shape (n,).

    `signature` numbers `Catalogue.signatures`; `start` and `end` bound the line (LF left out) and
    `at` is where its first match ends, all as offsets in the buffer that was scanned.
    """

    signature: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    at: NDArray[np.int64]


class Scanner(Protocol):
    """What finds signatures in a block of whole lines."""

    def scan(self, data: Buffer, start: int = 0, stop: int | None = None) -> Hits:
        """One row a (line, signature) of data[start:stop], a block of whole lines.

        Fallbacks and superseded signatures have given way.
        """


def version() -> str:
    """Name and version of the matcher, as stored with each scan."""
    import importlib.metadata  # 24 ms that a worker can do without

    return f"hyperscan {importlib.metadata.version('hyperscan')}"


class PatternSet:
    """Patterns compiled together: the ids and end offsets of their matches in a buffer.

    Patterns never match across LF. One instance serves one thread: it holds the scratch. `names`
    are (source, id) of each pattern, for messages.
    Raises CatalogueError naming each pattern that Hyperscan refuses.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        names: Sequence[tuple[str, str]] | None = None,
        caseless: bool = False,
        cache: Path | None = None,
    ) -> None:
        names = names or [("pattern", str(number)) for number in range(len(patterns))]
        flags = hyperscan.HS_FLAG_MULTILINE | (hyperscan.HS_FLAG_CASELESS if caseless else 0)
        self._database = _database(patterns, names, flags, cache)
        self._database.scratch = hyperscan.Scratch(self._database)

    def ends(self, data: Buffer | memoryview) -> tuple[list[int], list[int]]:
        """(ids, end offsets) of all matches in order of end offset, repeats included."""
        if len(data) > _MAX_BLOCK:
            raise ValueError(f"block of {len(data)} bytes: give at most {_MAX_BLOCK}")
        if not len(data):
            return [], []
        ids: list[int] = []
        ends: list[int] = []
        add_id, add_end = ids.append, ends.append

        # Two appends are the cheapest callback measured: 0.15 us a match.
        def found(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            add_id(number)
            add_end(end)

        self._database.scan(data, match_event_handler=found)  # type: ignore[type-var]
        return ids, ends

    def found(self, data: Buffer | memoryview) -> set[int]:
        """Ids of the patterns that match anywhere in the buffer."""
        return set(self.ends(data)[0])


class Engine:
    """A compiled catalogue. One instance serves one thread."""

    def __init__(self, catalogue: Catalogue, cache: Path | None = None) -> None:
        self.catalogue = catalogue
        signatures = catalogue.signatures
        self._set = PatternSet(
            [signature.pattern for signature in signatures],
            names=[(signature.source, signature.id) for signature in signatures],
            cache=cache,
        )
        self._yields = _Yields(signatures)

    def scan(self, data: Buffer, start: int = 0, stop: int | None = None) -> Hits:
        """One row a (line, signature) of data[start:stop]; see Hits."""
        stop = len(data) if stop is None else stop
        ids, ends = self._set.ends(_soft_breaks(data, start, stop))
        if not ids:
            return _NO_HITS
        return self._yields.settle(*_lines(data, start, stop, ids, ends))


class Oracle:
    """The same answers as Engine by plain `re` on each segment of each line."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._patterns = [re.compile(s.pattern.encode()) for s in catalogue.signatures]
        self._yields = _Yields(catalogue.signatures)

    def scan(self, data: Buffer, start: int = 0, stop: int | None = None) -> Hits:
        """One row a (line, signature) of data[start:stop]; `at` is the end of `re`'s match."""
        rows: list[tuple[int, int, int, int]] = []
        for line in bytes(data[start:stop]).split(b"\n"):
            end = start + len(line)
            for number, pattern in enumerate(self._patterns):
                at = start
                for segment in line.split(b"\r"):
                    if match := pattern.search(segment):
                        rows.append((number, start, end, at + match.end()))
                        break
                    at += len(segment) + 1
            start = end + 1
        if not rows:
            return _NO_HITS
        columns = np.array(rows, dtype=np.int64)
        return self._yields.settle(*(columns[:, place] for place in range(4)))


_EMPTY: NDArray[np.int64] = np.empty(0, np.int64)
_NO_HITS = Hits(_EMPTY, _EMPTY, _EMPTY, _EMPTY)


def _soft_breaks(data: Buffer, start: int, stop: int) -> Buffer | memoryview:
    """data[start:stop] with CR read as LF, so that no match runs over a soft break.

    Where a block has no CR this costs one search for it and copies nothing. Else `replace` of one
    byte is two copies, 60 us a MiB, a tenth of what numpy.where takes.
    """
    if data.find(b"\r", start, stop) < 0:
        return memoryview(data)[start:stop]
    return data[start:stop].replace(b"\r", b"\n")


# Above this many matches in a MiB a newline index is cheaper than two searches a match.
_DENSE = 400


def _lines(
    data: Buffer, start: int, stop: int, ids: list[int], ends: list[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(signature, line start, line end, match end) of each match, in order of match end."""
    number = np.array(ids, dtype=np.int64)
    at = np.array(ends, dtype=np.int64) + start
    if len(ids) << 20 > _DENSE * (stop - start):
        view = np.frombuffer(data, dtype=np.uint8)[start:stop]
        breaks = np.concatenate(([start - 1], np.flatnonzero(view == _LF) + start, [stop]))
        # A match may end before its LF (`$`), never behind it.
        after = np.searchsorted(breaks[1:-1], at, side="left") + 1
        return number, breaks[after - 1] + 1, breaks[after], at
    starts: list[int] = []
    stops: list[int] = []
    line_start = line_stop = -1
    for end in at.tolist():
        if end > line_stop:
            line_start = data.rfind(b"\n", start, end) + 1 or start
            line_stop = data.find(b"\n", end, stop)
            line_stop = stop if line_stop < 0 else line_stop
        starts.append(line_start)
        stops.append(line_stop)
    return number, np.array(starts, dtype=np.int64), np.array(stops, dtype=np.int64), at


_MOST_SETTLED = 1 << 12  # sets of signatures on one line that are remembered


class _Yields:
    """Which signatures give way to which on one line, and the collapse to one row a signature."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        place = {signature.id: number for number, signature in enumerate(signatures)}
        self._fallback = np.array([signature.fallback for signature in signatures], dtype=bool)
        # Progress glued before an exception explains nothing of it, and whether a signature with
        # `follows` holds, only who sees the lines before it can tell.
        self._explains = [
            not s.fallback and s.role != "progress" and not s.follows for s in signatures
        ]
        self._beaten: dict[int, frozenset[int]] = {
            number: frozenset(place[other] for other in signature.supersedes)
            for number, signature in enumerate(signatures)
            if signature.supersedes
        }
        self._any = bool(self._beaten) or bool(self._fallback.any())
        self._settled: dict[tuple[int, ...], list[bool]] = {}

    def settle(
        self,
        number: NDArray[np.int64],
        start: NDArray[np.int64],
        end: NDArray[np.int64],
        at: NDArray[np.int64],
    ) -> Hits:
        """Hits of these matches: first match a (line, signature), beaten ones left out."""
        order = np.lexsort((at, number, start))
        number, start, end, at = number[order], start[order], end[order], at[order]
        first = np.ones(len(number), dtype=bool)
        first[1:] = (number[1:] != number[:-1]) | (start[1:] != start[:-1])
        number, start, end, at = number[first], start[first], end[first], at[first]
        if self._any and len(number) > 1:
            keep = self._keep(number, start)
            if not keep.all():
                number, start, end, at = number[keep], start[keep], end[keep], at[keep]
        return Hits(number, start, end, at)

    def _keep(self, number: NDArray[np.int64], start: NDArray[np.int64]) -> NDArray[np.bool_]:
        keep = np.ones(len(number), dtype=bool)
        shared = np.flatnonzero(start[1:] == start[:-1])
        if not len(shared):
            return keep
        # Only lines with several hits can lose one: walk their groups.
        numbers = number.tolist()
        for begin, stop in _groups(start, shared):
            on_line = tuple(numbers[begin:stop])
            stays = self._settled.get(on_line)
            if stays is None:
                if len(self._settled) >= _MOST_SETTLED:
                    self._settled.clear()
                stays = self._settled[on_line] = self._stay(on_line)
            if False in stays:
                keep[begin:stop] = stays
        return keep

    def _stay(self, on_line: Sequence[int]) -> list[bool]:
        """Which of the signatures that hit a line stay."""
        beaten = frozenset[int]().union(*(self._beaten.get(n, frozenset()) for n in on_line))
        stays = [n not in beaten for n in on_line]
        specific = any(s and self._explains[n] for s, n in zip(stays, on_line, strict=True))
        return [
            s and not (specific and self._fallback[n]) for s, n in zip(stays, on_line, strict=True)
        ]


def _groups(start: NDArray[np.int64], shared: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(begin, stop) of each run of equal starts, from the places equal to their successor."""
    cut = np.flatnonzero(np.diff(shared) != 1)
    begins = shared[np.concatenate(([0], cut + 1))]
    stops = shared[np.concatenate((cut, [len(shared) - 1]))] + 2
    yield from zip(begins.tolist(), stops.tolist(), strict=True)


def within_line(pattern: str) -> str:
    r"""The pattern with every class that could match LF narrowed so that it cannot.

    `\s`, `\W`, `\D` and negated sets match LF in Hyperscan, so a match could begin on one line and
    end on the next; `.` does not. CR needs no care: it reaches Hyperscan as LF.
    """
    out: list[str] = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            pair = pattern[index : index + 2]
            out.append(_OUTSIDE.get(pair, pair))
            index += 2
        elif char == "[":
            text, index = _narrow_set(pattern, index)
            out.append(text)
        else:
            out.append(char)
            index += 1
    return "".join(out)


_OUTSIDE = {"\\s": r"[ \t\x0b\x0c]", "\\W": r"[^\w\n]", "\\D": r"[^\d\n]"}
_INSIDE = {"\\s": r" \t\x0b\x0c"}


def _narrow_set(pattern: str, index: int) -> tuple[str, int]:
    """The set that opens at `index`, narrowed, and the place after it."""
    negated = pattern.startswith("[^", index)
    out = ["[^\\n" if negated else "["]
    index += 2 if negated else 1
    first = True
    while index < len(pattern) and (first or pattern[index] != "]"):
        first = False
        if pattern[index] == "\\":
            pair = pattern[index : index + 2]
            out.append(pair if negated else _INSIDE.get(pair, pair))
            index += 2
        else:
            out.append(pattern[index])
            index += 1
    return "".join(out) + "]", index + 1


def decisive(pattern: str) -> str:
    """The pattern without the optional groups at its end.

    Whether a line matches, and where its first match ends, does not hang on them: they are there
    for what they capture, which is the work of `re`. They took a tenth of the time to compile.
    """
    # Where a group is all of its branch, nothing would be left of that; and what Hyperscan does not
    # know it must see to refuse.
    while (begin := _last_optional(pattern)) and pattern[begin - 1] not in "(|":
        if _FOREIGN.search(pattern, begin):
            break
        pattern = pattern[:begin]
    return pattern


def _last_optional(pattern: str) -> int:
    """Where the optional group begins that is the end of the pattern; 0 where there is none."""
    opened: list[int] = []
    for match in _PIECE.finditer(pattern):
        if match[0] == "(":
            opened.append(match.start())
        elif match[0] == ")" and opened:
            begin = opened.pop()
            if pattern[match.end() :] == "?":
                return begin
    return 0


_FOREIGN = re.compile(r"\(\?(?!:|P<)|\\[1-9AKRXZ]")
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)


def _database(
    patterns: Sequence[str], names: Sequence[tuple[str, str]], flags: int, cache: Path | None
) -> hyperscan.Database:
    """The compiled database, from the cache where that has this very set for this processor."""
    place = None
    if cache:
        built = hyperscan.__version__  # type: ignore[attr-defined]
        parts = (built, platform.machine(), _cpu(), str(flags), *patterns)
        place = place_of(cache, ".hsdb", __file__, (part.encode() for part in parts))
        if stored := recall(place):
            with contextlib.suppress(hyperscan.error):
                return hyperscan.loadb(stored, hyperscan.HS_MODE_BLOCK)
    wanted = [within_line(decisive(pattern)).encode() for pattern in patterns]
    database = _compile(wanted, names, flags)
    if place:
        keep(place, hyperscan.dumpb(database))
    return database


@functools.cache
def _cpu() -> str:
    """What tells processors apart: a database is compiled for the features of one."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(errors="replace") as lines:
        for line in lines:
            if line.startswith(("flags", "Features")):
                return hashlib.sha256(line.encode()).hexdigest()[:16]
    return platform.processor()


def _compile(
    patterns: Sequence[bytes], names: Sequence[tuple[str, str]], flags: int
) -> hyperscan.Database:
    issues = [
        Issue(*name, "pattern has a NUL byte", "write \\x00: a NUL ends the pattern in silence")
        for name, pattern in zip(names, patterns, strict=True)
        if b"\0" in pattern
    ]
    if not issues:
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        try:
            database.compile(
                expressions=list(patterns),
                ids=list(range(len(patterns))),
                elements=len(patterns),
                flags=flags,
            )
            return database
        except hyperscan.error as error:
            # A failed set does not say which pattern failed: compile them one by one.
            issues = list(_culprits(patterns, names, flags)) or [
                Issue("catalogue", "", f"the set does not compile: {error}", "split the catalogue")
            ]
    raise CatalogueError(issues)


def _culprits(
    patterns: Sequence[bytes], names: Sequence[tuple[str, str]], flags: int
) -> Iterator[Issue]:
    for name, pattern in zip(names, patterns, strict=True):
        try:
            alone = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
            alone.compile(expressions=[pattern], ids=[0], elements=1, flags=flags)
        except hyperscan.error as error:
            yield Issue(
                *name,
                f"hyperscan refuses the pattern: {error}",
                "no look-around, back-references or empty matches; keep bounded repeats small",
            )
