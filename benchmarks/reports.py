"""Time every report on the archive of a large fleet; hides the process that each one runs in.

A report runs in a process of its own, on a database opened as `firstfault report` opens it, with
what DuckDB may take limited; the time is that of the report, not of starting Python. Its peak is
what the kernel calls VmHWM. `all` is one process that runs them all. A report that fails, runs out
of memory or out of patience is a row that says so.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.record import Row, rounded

ALL = "all"
THREADS = 2
MEMORY_GB = 4
LIMITS_S = {ALL: 60.0}
LIMIT_S = 10.0  # of any other


class Timed(NamedTuple):
    """A report that was run a few times; `error` is the first reason why one was not."""

    name: str
    rows: int | None
    seconds: tuple[float, ...]
    peak_mb: float | None
    error: str | None

    @property
    def held(self) -> bool:
        """Whether it ran, within its time and memory."""
        return (
            self.error is None
            and median(self.seconds) <= LIMITS_S.get(self.name, LIMIT_S)
            and (self.peak_mb or 0) <= MEMORY_GB * 2**30 / 1e6
        )

    @property
    def row(self) -> Row:
        """The row of reports.csv."""
        times = self.seconds if self.error is None else ()
        return {
            "report": self.name,
            "rows": self.rows,
            "median_s": rounded(median(times) if times else None),
            "min_s": rounded(min(times, default=None)),
            "max_s": rounded(max(times, default=None)),
            "peak_mb": rounded(self.peak_mb),
            "limit_s": LIMITS_S.get(self.name, LIMIT_S),
            "held": self.held,
            "error": self.error,
        }


def chosen(pattern: str) -> list[str]:
    """Names of reports that match, in reading order, and of all of them together."""
    from queries import report

    names = (*(one.name for one in report.all_reports()), ALL)
    return [name for name in names if fnmatchcase(name, pattern)]


def run(database: Path, names: Sequence[str], *, rounds: int, patience_s: float) -> Iterator[Timed]:
    """Run each report `rounds` times, after once to bring the file into the page cache."""
    for name in names:
        tries = [_try(database, name, patience_s)]
        while tries[-1].error is None and len(tries) <= rounds:
            tries.append(_try(database, name, patience_s))
        timed = tries[1:] or tries
        last = tries[-1]
        if last.error is None and len({one.rows for one in tries}) > 1:
            last = last._replace(error="its number of rows changes from run to run")
        yield Timed(
            name,
            last.rows,
            tuple(second for one in timed for second in one.seconds),
            max((one.peak_mb for one in timed if one.peak_mb is not None), default=None),
            last.error,
        )


def _try(database: Path, name: str, patience_s: float) -> Timed:
    command = [sys.executable, "-m", "benchmarks.reports", str(database), name]
    started = time.perf_counter()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=patience_s, check=False
        )
    except subprocess.TimeoutExpired:
        return Timed(name, None, (patience_s,), None, f"not done after {patience_s:g} s")
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        return Timed(name, None, (time.perf_counter() - started,), None, said[-1][:200])
    told = json.loads(done.stdout)
    return Timed(name, told["rows"], (told["seconds"],), told["peak_mb"], None)


def main(database: str, name: str) -> None:
    """Run one report, or all; tell rows, seconds and the peak as JSON."""
    from ingest import schema
    from queries import report

    wanted = report.all_reports() if name == ALL else [report.load(name)]
    with report.connect(Path(database), schema.ddl(), schema.VERSION) as con:
        con.execute(f"SET memory_limit = '{MEMORY_GB}GB'; SET threads = {THREADS}")
        started = time.perf_counter()
        rows = sum(report.run(con, one).table.num_rows for one in wanted)
        seconds = time.perf_counter() - started
    print(json.dumps({"rows": rows, "seconds": seconds, "peak_mb": _high_water_mb()}))


def _high_water_mb() -> float | None:
    try:
        told = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"VmHWM:\s*(\d+) kB", told)
    return int(found[1]) * 1024 / 1e6 if found else None


if __name__ == "__main__":
    main(*sys.argv[1:])
