"""Measure works against each other: rounds in turn, with the count that proves each work.

Machines drift and are shared. Every round runs each work once, so that what disturbs one disturbs
its neighbours, and ratios are taken round by round. What everything else is held against, the
matcher without a callback, is made here too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from matcher.engine import Buffer, PatternSet


class CountError(Exception):
    """Rounds of one work counted differently: its times mean nothing."""


class Work(NamedTuple):
    """What is timed: `run` goes over so many bytes and returns what it counted in them."""

    bytes: int
    run: Callable[[], int]


class BenchResult(NamedTuple):
    """What the rounds of a work took; `counted` is what each of them counted."""

    bytes: int
    counted: int
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Median of the rounds."""
        return median(self.seconds)

    @property
    def gb_s(self) -> float:
        """10^9 bytes a second, by the median."""
        return self.bytes / self.median_s / 1e9

    @property
    def min_gb_s(self) -> float:
        """10^9 bytes a second in the slowest round."""
        return self.bytes / max(self.seconds) / 1e9

    @property
    def max_gb_s(self) -> float:
        """10^9 bytes a second in the fastest round."""
        return self.bytes / min(self.seconds) / 1e9

    def speed_over(self, other: BenchResult) -> float:
        """How many times as fast as the other for the same bytes: median of the rounds' ratios."""
        return median(self.speeds_over(other))

    def speeds_over(self, other: BenchResult) -> tuple[float, ...]:
        """The same for each round."""
        return tuple(
            theirs / ours for ours, theirs in zip(self.seconds, other.seconds, strict=True)
        )

    def less(self, other: BenchResult) -> BenchResult | None:
        """These rounds without the median of `other`, which is a part of this work.

        None where no more is left than half of that: it would be noise.
        """
        left = tuple(seconds - other.median_s for seconds in self.seconds)
        if min(left) <= 0 or median(left) * 2 <= other.median_s:
            return None
        return self._replace(seconds=left)


def bare(
    patterns: Sequence[str], cache: Path | None = None
) -> Callable[[Buffer | memoryview], object]:
    """What scans a buffer (below 4 GiB) for these patterns in one call and reports nothing.

    Nothing in Python can be faster: it is the limit for all that scans the same.
    """
    return PatternSet(patterns, cache=cache)._database.scan  # type: ignore[return-value]


def measure(works: Mapping[str, Work], rounds: int = 5) -> dict[str, BenchResult]:
    """Time each work in each round, in turn. Run each once before, for warm caches and its count.

    Raises CountError where two rounds of one work count differently.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    counts: dict[str, set[int]] = {name: set() for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            started = time.perf_counter()
            counts[name].add(work.run())
            seconds[name].append(time.perf_counter() - started)
    for name, counted in counts.items():
        if len(counted) != 1:
            raise CountError(
                f"{name}: rounds counted {sorted(counted)}: its input changed, measure again"
            )
    return {
        name: BenchResult(work.bytes, counts[name].pop(), tuple(seconds[name]))
        for name, work in works.items()
    }
