"""Sets of patterns beside the catalogue: larger ones, plain ones, and some without a signature."""

from __future__ import annotations

import heapq
import itertools
import re
import string
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from matcher import bench
from matcher.bench import Work
from matcher.catalogue import Catalogue, Signature
from matcher.engine import PatternSet

# -- larger ones ---------------------------------------------------------------------------------

_WORD = re.compile(
    r"(?P<syntax>\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?P<\w+>|\(\?\w*:?|\{\d+(?:,\d*)?\})"
    r"|[A-Za-z]{4,}"
)
_LETTERS = string.ascii_lowercase, string.ascii_uppercase


def sized(catalogue: Catalogue, number: int) -> list[str]:
    """So many patterns: the catalogue's, then copies of them with other words.

    Each round of copies shifts the letters of every word once more, so that no literal is shared.
    """
    known = [signature.pattern for signature in catalogue.signatures]
    worded = [pattern for pattern in known if _shifted(pattern, 1) != pattern]
    made = (_shifted(pattern, turn) for turn in itertools.count(1) for pattern in worded)
    return list(itertools.islice(itertools.chain(known, made), number))


def _shifted(pattern: str, turn: int) -> str:
    shift = turn % 25 + 1
    table = str.maketrans({a: s[(i + shift) % 26] for s in _LETTERS for i, a in enumerate(s)})
    return _WORD.sub(lambda m: m[0] if m["syntax"] else m[0].translate(table), pattern)


def found(catalogue: Catalogue, patterns: Sequence[str], cache: Path | None = None) -> int:
    """How many of the patterns that are the catalogue's match their own example."""
    examples = [s.match[0].encode() for s in catalogue.signatures[: len(patterns)]]
    matched = PatternSet(patterns, cache=cache).found(b"\n".join(examples))
    return sum(number < len(examples) for number in matched)


# -- plain ones ----------------------------------------------------------------------------------

# Hyperscan takes a set of long literals by four bytes a step, which is half as fast as by two; one
# short word decides it.
_SHORT = "OOM"


class Plain(NamedTuple):
    """A plain pattern and a text that it matches."""

    pattern: str
    example: str


def plain(catalogue: Catalogue, number: int) -> list[Plain]:
    r"""So many patterns that are easy on Hyperscan: words as they are, `\d` for numbers.

    They are what signatures match in their first examples, taken evenly from the whole catalogue,
    and one short word.
    """
    signatures = catalogue.signatures
    places = {place * len(signatures) // (number - 1) for place in range(number - 1)}
    examples = [_matched(signatures[place]) for place in sorted(places)]
    return [*(Plain(_spelled(text), text) for text in examples), Plain(_SHORT, _SHORT)]


def _matched(signature: Signature) -> str:
    match = re.search(signature.pattern, signature.match[0])
    assert match, f"{signature.id}: checked when the catalogue was loaded"
    return match[0]


def _spelled(text: str) -> str:
    parts = re.split(r"([0-9]+)", text)
    return "".join(r"\d{1,19}" if at % 2 else re.escape(part) for at, part in enumerate(parts))


def found_plain(patterns: Sequence[Plain], cache: Path | None = None) -> int:
    """How many of the patterns match their own example."""
    found = PatternSet([one.pattern for one in patterns], cache=cache).found
    return sum(number in found(one.example.encode()) for number, one in enumerate(patterns))


# -- without one ---------------------------------------------------------------------------------

TEXT_BYTES = 64 << 20
SINGLE = 1.03  # a component that costs less than this is not taken apart
SINGLES = 24  # signatures left out one by one: each costs a compile of some seconds


def leave_out(
    catalogue: Catalogue, text: bytes, spans: Iterable[tuple[int, int]], rounds: int
) -> dict[str, tuple[float, ...]]:
    """How many times as fast the matcher is without each component, then without single signatures.

    Leaving more out saves more, so only the signatures of components that cost SINGLE are tried,
    and of those the SINGLES that are slowest alone. `slowest` is the most that one costs: a
    signature, else the bound that its component is.
    """
    signatures = catalogue.signatures
    component = {failure.id: failure.component for failure in catalogue.failures}
    members: dict[str, set[int]] = {}
    for number, signature in enumerate(signatures):
        members.setdefault(component[signature.failure], set()).add(number)
    blocks = [memoryview(text)[begin:end] for begin, end in spans]

    def work(numbers: Iterable[int]) -> Work:
        scan = bench.bare([signatures[n].pattern for n in numbers])
        return Work(len(text), lambda: _pass(scan, blocks))

    def without(groups: Mapping[str, Collection[int]]) -> dict[str, tuple[float, ...]]:
        works = {"": work(range(len(signatures)))}
        for name, group in groups.items():
            works[name] = work(n for n in range(len(signatures)) if n not in group)
        results = bench.measure(works, rounds)
        return {name: results[name].speeds_over(results[""]) for name in groups}

    by_component = without(members)
    tried = [
        number
        for name, ratios in by_component.items()
        if median(ratios) >= SINGLE
        for number in members[name]
    ]
    alone = bench.measure({signatures[n].id: work([n]) for n in tried}, 1)
    singles = heapq.nlargest(SINGLES, tried, key=lambda n: alone[signatures[n].id].median_s)
    by_signature = without({signatures[n].id: {n} for n in singles})
    slowest = max((by_signature or by_component).values(), key=median)
    return {"slowest": slowest, **by_component, **by_signature}


def _pass(scan: Callable[[memoryview], object], blocks: Sequence[memoryview]) -> int:
    for block in blocks:
        scan(block)
    return len(blocks)
