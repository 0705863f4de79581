"""Logs that have two failures in given numbers of attempts, by cluster and size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.database import Event, File, run

# Cluster, GPUs, and how many attempts have both failures, the first, the second, none.
Stratum = tuple[str, int | None, Sequence[int]]


def logs(strata: Iterable[Stratum], a: str = "disk-full", b: str = "straggler") -> list[File]:
    """A log an attempt; the two failures are 60 s apart."""
    events = [(Event(a, t=0), Event(b, t=60)), (Event(a, t=0),), (Event(b, t=60),), ()]
    return [
        run(
            f"{cluster}-{gpus}-{kind}-{n}/log",
            Event("run-started", "progress", t=0, category="progress", world_size=gpus),
            *events[kind],
            cluster=cluster,
        )
        for cluster, gpus, cells in strata
        for kind, count in enumerate(cells)
        for n in range(count)
    ]
