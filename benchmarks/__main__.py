"""Run benchmarks from the command line: a table to read, and dated records to keep."""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks import suite
from benchmarks.suite import DefinitionError, Outcome
from matcher.bench import CountError
from matcher.catalogue import Catalogue, load

RECORD = Path(__file__).parent / "record"
_VERSIONS = ("firstfault", "hyperscan", "duckdb", "pyarrow", "numpy", "isal", "backports.zstd")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 a count was wrong, 2 usage or definition error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run the definitions, print a table")
    run.add_argument("--scale", type=float, default=1.0, help="corpora so many times as large")
    run.add_argument("--name", default="*", help="only those that match, such as 'scan/*'")
    run.add_argument("--rounds", type=int, default=5, help="0 checks the counts and times nothing")
    run.add_argument("--record", action="store_true", help="keep the figures in benchmarks/record")
    run.add_argument("--definitions", type=Path, default=suite.DEFINITIONS, help="their directory")
    given = parser.parse_args(arguments)
    if given.scale <= 0 or given.rounds < 0 or (given.record and not given.rounds):
        run.error("give a --scale above 0, and --rounds of 0 or more (with --record 1 or more)")
    try:
        benches = suite.load(given.definitions)
    except DefinitionError as error:
        run.error(str(error))
    chosen = [one for one in benches if fnmatchcase(one.name, given.name)]
    if not chosen:
        names = ", ".join(one.name for one in benches)
        run.error(f"--name {given.name}: no such benchmark: there are {names}")
    catalogue = load()
    loaded = os.getloadavg()[0]
    outcomes: list[Outcome] = []
    print(_row(_HEADER))
    try:
        for outcome in suite.run(chosen, catalogue, scale=given.scale, rounds=given.rounds):
            outcomes.append(outcome)
            print(_row(_cells(outcome)), flush=True)
    except CountError as error:
        print(error, file=sys.stderr)
        return 1
    wrong = [outcome for outcome in outcomes if not outcome.right]
    for outcome in wrong:
        print(
            f"{outcome.bench.name}: counted {outcome.counted:,} instead of {outcome.expected:,}: "
            "no time is kept; mend what is measured, or the definition",
            file=sys.stderr,
        )
    if given.record and not wrong:
        machine = _machine(catalogue) | {
            "scale": given.scale,
            "rounds": given.rounds,
            "load_before": round(loaded, 2),
        }
        print(f"recorded in {record(outcomes, machine, RECORD).name}", file=sys.stderr)
    return 1 if wrong else 0


# -- the table -----------------------------------------------------------------------------------

_HEADER = ("name", "MB", "count", "hits/KiB", "ms", "GB/s", "min", "max", "/ scan", "/ read")
_WIDTHS = (25, 9, 11, 10, 10, 8, 8, 8, 8, 8)


def _row(cells: Sequence[str]) -> str:
    first, *rest = (
        f"{cell:{'<' if not place else '>'}{width}}"
        for place, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    )
    return "".join((first, *rest)).rstrip()


def _cells(outcome: Outcome) -> tuple[str, ...]:
    result = outcome.result
    speeds = (result.gb_s, result.min_gb_s, result.max_gb_s) if result and result.bytes else ()
    return (
        outcome.bench.name,
        f"{outcome.bytes / 1e6:,.1f}" if outcome.bytes else "-",
        f"{outcome.counted:,}" if outcome.right else "WRONG",
        _figure(hits_per_kib(outcome)),
        f"{result.median_s * 1e3:,.1f}" if result else "-",
        *(map(_figure, speeds) if speeds else "---"),
        _figure(outcome.over_scan),
        _figure(outcome.over_read),
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value >= 0.1 or not value else f"{value:.3g}"


def hits_per_kib(outcome: Outcome) -> float | None:
    """Density of hits in the corpus; None for work without one."""
    if outcome.corpus is None or not outcome.bytes:
        return None
    return outcome.corpus.planted(outcome.corpus.lines) / outcome.bytes * 1024


# -- records -------------------------------------------------------------------------------------


def record(outcomes: Sequence[Outcome], machine: dict[str, object], directory: Path) -> Path:
    """Write figures.csv and machine.toml into a new directory <date>-<processor>; that directory.

    An earlier record of the same day stays: the later one gets a number.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", str(machine["cpu"]).lower()).strip("-")
    name = f"{machine['date']}-{slug}"
    place, number = directory / name, 1
    while place.exists():
        number += 1
        place = directory / f"{name}-{number}"
    place.mkdir(parents=True)
    with (place / "figures.csv").open("w", newline="") as file:
        rows = [_figures(outcome) for outcome in outcomes]
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    lines = [
        f"{key if key.isidentifier() else json.dumps(key)} = {json.dumps(value)}\n"
        for key, value in machine.items()
    ]
    (place / "machine.toml").write_text("".join(lines))
    return place


def _figures(outcome: Outcome) -> dict[str, object]:
    corpus, result, start = outcome.corpus, outcome.result, outcome.start
    timed = result if result and result.bytes else None
    return {
        "name": outcome.bench.name,
        "model": outcome.bench.model,
        "codec": corpus.codec if corpus else None,
        "lines": corpus.lines if corpus else None,
        "files": corpus.files if corpus else None,
        "bytes": outcome.bytes or None,
        "count": outcome.counted,
        "hits_per_kib": _rounded(hits_per_kib(outcome)),
        "median_s": _rounded(result.median_s if result else None),
        "min_s": _rounded(min(result.seconds) if result else None),
        "max_s": _rounded(max(result.seconds) if result else None),
        "start_s": _rounded(start.median_s if start else None),
        "gb_s": _rounded(timed.gb_s if timed else None),
        "over_scan": _rounded(outcome.over_scan),
        "over_read": _rounded(outcome.over_read),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _machine(catalogue: Catalogue) -> dict[str, object]:
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
    }


def _installed(name: str) -> bool:
    return any(importlib.metadata.distributions(name=name))


def _cpu() -> str:
    try:
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
