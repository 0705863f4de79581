"""Run benchmarks from the command line: a table to read, and dated records to keep."""

# A spawned worker imports this module: what it needs comes in the functions that need it.
from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from benchmarks.bars import Bar, Verdict
    from benchmarks.suite import Bench, Outcome
    from matcher.catalogue import Catalogue

Named = TypeVar("Named")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 a count was wrong or a bar not held, 2 usage or definition error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, run, help_, rounds in (
        ("run", _run, "run the definitions, print a table", 5),
        ("acceptance", _acceptance, "measure what must hold, print each bar", 5),
        ("scale", _scale, "measure how speed changes with what grows, draw it", 3),
    ):
        command = commands.add_parser(name, help=help_)
        command.add_argument("--scale", type=float, default=1.0, help="corpora so much larger")
        command.add_argument("--only", default="*", help="those that match, such as 'scan/*'")
        command.add_argument("--rounds", type=int, default=rounds, help="0 checks counts alone")
        command.add_argument("--record", action="store_true", help="keep it in benchmarks/record")
        command.add_argument(
            "--data",
            type=Path,
            default=Path(__file__).parent,
            help="where definitions/, bars.toml, ... are",
        )
        command.set_defaults(run=run, refuse=command.error)
    command = commands.add_parser("reports", help="time every report on the archive of a fleet")
    command.add_argument("--runs", type=int, default=100_000, help="runs in the archive")
    command.add_argument("--events", type=int, default=20_000_000, help="rows of events in it")
    command.add_argument("--seed", type=int, default=1, help="of the archive")
    command.add_argument("--database", type=Path, help="keep it there; use it where it exists")
    command.add_argument("--only", default="*", help="those that match, such as 'co-*'")
    command.add_argument("--rounds", type=int, default=3, help="after one that is not counted")
    command.add_argument("--patience", type=float, default=120.0, help="seconds until one is ended")
    command.add_argument("--record", action="store_true", help="keep it in benchmarks/record")
    command.set_defaults(run=_reports, refuse=command.error, scale=1.0)
    given = parser.parse_args(arguments)
    if given.scale <= 0 or given.rounds < 0 or (given.record and not given.rounds):
        given.refuse("give a --scale above 0, and --rounds of 0 or more (with --record 1 or more)")
    from benchmarks.suite import DefinitionError
    from matcher.bench import CountError

    try:
        right = given.run(given)
    except DefinitionError as error:
        given.refuse(str(error))
    except CountError as error:
        print(error, file=sys.stderr)
        return 1
    return 0 if right else 1


def _run(given: argparse.Namespace) -> bool:
    from benchmarks import suite

    chosen = _chosen(given, suite.load(given.data), "benchmark", lambda one: one.name)
    return _measured(given, chosen, [])


def _acceptance(given: argparse.Namespace) -> bool:
    from benchmarks import bars, suite

    benches = suite.load(given.data)
    chosen = _chosen(given, bars.load(benches, given.data), "bar", lambda bar: bar.name)
    return _measured(given, bars.needed(chosen, benches), chosen)


def _measured(given: argparse.Namespace, benches: list[Bench], chosen: list[Bar]) -> bool:
    """Run benches, print them, hold them against bars, keep a record; whether all was right."""
    from benchmarks import bars, record, suite
    from matcher.catalogue import load

    catalogue = load()
    machine = _machine(given, catalogue)
    outcomes: dict[str, Outcome] = {}
    print(_row(_HEADER))
    for outcome in suite.run(benches, catalogue, scale=given.scale, rounds=given.rounds):
        outcomes[outcome.bench.name] = outcome
        print(_row(_cells(outcome)), flush=True)
    wrong = list(_wrong(outcomes.values()))
    verdicts = [bars.verdict(bar, outcomes) for bar in chosen if given.rounds]
    for verdict in verdicts:
        print(_said(verdict))
    if given.record and not wrong:
        place = record.place(machine, record.RECORD)
        rows = [record.figures(outcome) for outcome in outcomes.values()]
        record.table(place / "figures.csv", rows)
        record.table(place / "aside.csv", record.aside(list(outcomes.values())))
        record.table(place / "bars.csv", [verdict.row for verdict in verdicts])
        print(f"recorded in {place.name}", file=sys.stderr)
    return not wrong and all(verdict.held is not False for verdict in verdicts)


def _scale(given: argparse.Namespace) -> bool:
    from benchmarks import curves, record
    from matcher.catalogue import load

    chosen = _chosen(given, curves.load(given.data), "curve", lambda curve: curve.name)
    catalogue = load()
    machine = _machine(given, catalogue)
    points = []
    print(_row(_HEADER))
    for point in curves.run(chosen, catalogue, scale=given.scale, rounds=given.rounds):
        points.append(point)
        print(_row(_cells(point.outcome)), flush=True)
    right = not list(_wrong(point.outcome for point in points))
    drawn = {one.name: [p for p in points if p.curve is one] for one in chosen}
    for one in chosen:
        grown = curves.exponent(drawn[one.name])
        if one.exponent_at_most is not None and grown is not None:
            held = grown <= one.exponent_at_most
            right = right and held
            print(
                f"{one.name}: time grows with the power {grown:.3f}, at most "
                f"{one.exponent_at_most:g}: {'held' if held else 'NOT HELD'}"
            )
    if given.record and points:
        place = record.place(machine, record.RECORD)
        record.table(place / "scaling.csv", [point.row for point in points])
        for one in chosen:
            if picture := curves.svg(one, drawn[one.name]):
                (place / f"{one.name}.svg").write_text(picture)
        print(f"recorded in {place.name}", file=sys.stderr)
    return right


def _reports(given: argparse.Namespace) -> bool:
    """Time reports on an archive that is made for it, or that an earlier run has kept."""
    from benchmarks import archive, record, reports
    from matcher.catalogue import load

    if min(given.runs, given.events) < 1 or not (names := reports.chosen(given.only)):
        known = ", ".join(reports.chosen("*"))
        given.refuse(f"--only {given.only}: there are {known}; give --runs, --events above 0")
    catalogue = load()
    machine = record.machine(catalogue) | {
        "seed": given.seed,
        "rounds": given.rounds,
        "threads": reports.THREADS,
        "duckdb_memory_gb": reports.MEMORY_GB,
    }
    with tempfile.TemporaryDirectory() as scratch:
        database = given.database or Path(scratch) / "archive.duckdb"
        if not database.exists():
            archive.build(
                database,
                catalogue,
                runs=given.runs,
                events=given.events,
                seed=given.seed,
                told=_building if sys.stderr.isatty() else None,
            )
        machine |= archive.size(database)
        print(f"{'report':<24}{'rows':>10}{'s':>10}{'min':>8}{'max':>8}{'MB':>8}  limit")
        timed = []
        for one in reports.run(database, names, rounds=given.rounds, patience_s=given.patience):
            timed.append(one)
            row = one.row
            figures = (row["rows"], row["median_s"], row["min_s"], row["max_s"], row["peak_mb"])
            cells = ("-" if figure is None else f"{figure:,}" for figure in figures)
            widths = (10, 10, 8, 8, 8)
            said = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            held = "held" if one.held else f"NOT HELD {one.error or ''}"
            print(f"{one.name:<24}{said}  {row['limit_s']:g} s {held}".rstrip(), flush=True)
    if given.record:
        place = record.place(machine, record.RECORD)
        record.table(place / "reports.csv", [one.row for one in timed])
        print(f"recorded in {place.name}", file=sys.stderr)
    return all(one.held for one in timed)


def _building(done: int, all_: int) -> None:
    print(f"\rlaunches {done:,} of {all_:,}", end="\n" if done == all_ else "", file=sys.stderr)


def _chosen(
    given: argparse.Namespace, there: Sequence[Named], what: str, name: Callable[[Named], str]
) -> list[Named]:
    chosen = [one for one in there if fnmatchcase(name(one), given.only)]
    if not chosen:
        names = "; ".join(map(name, there))
        given.refuse(f"--only {given.only}: no such {what}: there are {names}")
    return chosen


def _machine(given: argparse.Namespace, catalogue: Catalogue) -> dict[str, object]:
    from benchmarks import record

    return record.machine(catalogue) | {"scale": given.scale, "rounds": given.rounds}


# -- as text -------------------------------------------------------------------------------------

_HEADER = ("name", "MB", "count", "hits/KiB", "ms", "GB/s", "min", "max", "/ limit", "/ unpack")
_WIDTHS = (32, 10, 12, 10, 11, 8, 8, 8, 9, 9)


def _row(cells: Sequence[str]) -> str:
    first, *rest = (
        f"{cell:{'<' if not place else '>'}{width}}"
        for place, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    )
    return "".join((first, *rest)).rstrip()


def _cells(outcome: Outcome) -> tuple[str, ...]:
    from benchmarks.record import hits_per_kib

    result = outcome.result
    speeds = (result.gb_s, result.min_gb_s, result.max_gb_s) if result and result.bytes else ()
    return (
        outcome.bench.name,
        f"{outcome.bytes / 1e6:,.1f}" if outcome.bytes else "-",
        f"{outcome.counted:,}" if outcome.right else "WRONG",
        _figure(hits_per_kib(outcome)),
        f"{result.median_s * 1e3:,.1f}" if result else "-",
        *(map(_figure, speeds) if speeds else "---"),
        _figure(outcome.over_limit),
        _figure(outcome.over_unpack),
    )


def _wrong(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Those that counted wrong; says so."""
    for outcome in outcomes:
        if not outcome.right:
            print(
                f"{outcome.bench.name}: counted {outcome.counted:,} instead of "
                f"{outcome.expected:,}: no time is kept; mend what is measured, or the definition",
                file=sys.stderr,
            )
            yield outcome


def _said(verdict: Verdict) -> str:
    row = verdict.row
    threshold = (
        f">= {row['at_least']:g}" if row["at_least"] is not None else f"<= {row['at_most']:g}"
    )
    held = {None: "not measured", True: "held", False: "NOT HELD"}[verdict.held]
    if not verdict.values:
        return f"{row['bar']:<42} {'-':>26} {threshold:>9}  {held}"
    spread = f"{row['median']:.3g} ({row['min']:.3g}-{row['max']:.3g})"
    return f"{row['bar']:<42} {spread:>26} {threshold:>9}  {held}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value >= 0.1 or not value else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
