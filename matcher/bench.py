"""Measure work on blocks held in memory: medians of rounds, with the count that proves the work."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple


class BenchResult(NamedTuple):
    """What the rounds took; `count` is what each of them counted."""

    bytes: int
    count: int
    rounds: int
    median_s: float
    min_s: float
    max_s: float

    @property
    def gb_s(self) -> float:
        """10^9 bytes a second, by the median."""
        return self.bytes / self.median_s / 1e9


def measure(work: Callable[[bytes], int], blocks: Sequence[bytes], rounds: int = 5) -> BenchResult:
    """Time `work` over all blocks, `rounds` times; it returns what it counted in a block.

    Raises ValueError where two rounds count differently: such a time means nothing.
    """
    seconds: list[float] = []
    counts: set[int] = set()
    for _ in range(rounds):
        started = time.perf_counter()
        counts.add(sum(work(block) for block in blocks))
        seconds.append(time.perf_counter() - started)
    if len(counts) != 1:
        raise ValueError(f"rounds counted {sorted(counts)}: the work is not the same each time")
    return BenchResult(
        bytes=sum(map(len, blocks)),
        count=counts.pop(),
        rounds=rounds,
        median_s=statistics.median(seconds),
        min_s=min(seconds),
        max_s=max(seconds),
    )
