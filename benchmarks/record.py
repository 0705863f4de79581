"""Keep figures of a run with what they depend on, and show the newest ones."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from benchmarks.suite import Outcome
from matcher.catalogue import Catalogue

RECORD = Path(__file__).parent / "record"
_VERSIONS = (
    *("firstfault", "hyperscan", "duckdb", "pyarrow", "numpy", "isal", "zstandard"),
    *("backports.zstd", "lz4"),
)
Row = Mapping[str, object]


def place(machine: Row, directory: Path) -> Path:
    """A new directory <date>-<processor> with machine.toml.

    An earlier record of the same day stays: the later one gets a number.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", str(machine["cpu"]).lower()).strip("-")
    name = f"{machine['date']}-{slug}"
    made, number = directory / name, 1
    while made.exists():
        number += 1
        made = directory / f"{name}-{number}"
    made.mkdir(parents=True)
    lines = [
        f"{key if key.isidentifier() else json.dumps(key)} = {json.dumps(value)}\n"
        for key, value in machine.items()
    ]
    (made / "machine.toml").write_text("".join(lines))
    return made


def table(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV; nothing where there are none."""
    if rows:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def latest(name: str, key: str, directory: Path = RECORD) -> list[dict[str, str]]:
    """The rows of the tables of this name; of those with the same `key` that of the newest record.

    A run may measure a part of what there is: `record` of each row says which it comes from.
    """
    found = sorted(directory.glob(f"*/{name}"), key=lambda path: _order(path.parent.name))
    rows: dict[str, list[dict[str, str]]] = {}
    for path in found:
        with path.open() as file:
            read = [row | {"record": path.parent.name} for row in csv.DictReader(file)]
        for value in dict.fromkeys(row[key] for row in read):
            rows[value] = [row for row in read if row[key] == value]
    return [row for group in rows.values() for row in group]


def _order(name: str) -> tuple[str, int]:
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)-(.*?)(?:-(\d))?", name)
    return (match[1], int(match[3] or 1)) if match else (name, 0)


# -- rows ----------------------------------------------------------------------------------------


def hits_per_kib(outcome: Outcome) -> float | None:
    """Density of hits in the corpus; None for work without one."""
    if outcome.corpus is None or not outcome.bytes:
        return None
    return outcome.corpus.hits / outcome.bytes * 1024


def figures(outcome: Outcome) -> Row:
    """The row of figures.csv."""
    corpus, result, start = outcome.corpus, outcome.result, outcome.start
    timed = result if result and result.bytes else None
    return {
        "name": outcome.bench.name,
        "model": outcome.bench.model,
        "codec": outcome.bench.codec if corpus else None,
        "workers": outcome.bench.workers,
        "lines": corpus.lines if corpus else None,
        "files": corpus.files if corpus else None,
        "bytes": outcome.bytes or None,
        "count": outcome.counted,
        "hits_per_kib": rounded(hits_per_kib(outcome)),
        "median_s": rounded(result.median_s if result else None),
        "min_s": rounded(min(result.seconds) if result else None),
        "max_s": rounded(max(result.seconds) if result else None),
        "start_s": rounded(start.median_s if start else None),
        "gb_s": rounded(timed.gb_s if timed else None),
        "over_limit": rounded(outcome.over_limit),
        "over_unpack": rounded(outcome.over_unpack),
    }


def aside(outcomes: Sequence[Outcome]) -> list[Row]:
    """The rows of aside.csv: what was measured outside the rounds, such as memory."""
    return [
        {
            "name": outcome.bench.name,
            "figure": figure,
            "median": rounded(median(values)),
            "min": rounded(min(values)),
            "max": rounded(max(values)),
        }
        for outcome in outcomes
        for figure, values in outcome.figures.items()
    ]


def rounded(value: float | None) -> float | None:
    """Four digits, which is more than is known."""
    return None if value is None else float(f"{value:.4g}")


# -- the machine ---------------------------------------------------------------------------------


def machine(catalogue: Catalogue) -> dict[str, object]:
    """What the figures depend on; neither the machine's name nor any path."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _VERSIONS if _installed(name)},
        "catalogue_digest": catalogue.digest,
        "failures": len(catalogue.failures),
        "signatures": len(catalogue.signatures),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _installed(name: str) -> bool:
    return any(importlib.metadata.distributions(name=name))


def _cpu() -> str:
    try:
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()
