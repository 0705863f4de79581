"""Read what must hold, and hold measurements against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.record import Row, rounded
from benchmarks.suite import DATA, Bench, DefinitionError, Outcome, keys, parsed


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure of a work and its threshold.

    With `over` it is the speed of `work` over that of doing the works of `over` one after another.
    `figure` is ms, files_s, or one that the work measures aside.
    """

    name: str
    work: str
    over: tuple[str, ...] = ()
    figure: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def works(self) -> tuple[str, ...]:
        """The names of what must be measured for it."""
        return (self.work, *self.over)


_TYPES = {
    **dict.fromkeys(("name", "work", "figure"), str),
    "over": list,
    **dict.fromkeys(("at_least", "at_most"), float),
}


def load(benches: Sequence[Bench], data: Path = DATA) -> list[Bar]:
    """All bars, which rest on these benches. Raises DefinitionError with all that is wrong."""
    path = data / "bars.toml"
    known = {one.name: one for one in benches}
    problems: list[str] = []
    bars: dict[str, Bar] = {}
    for number, entry in enumerate((parsed(path, problems) or {}).get("bar", ()), 1):
        wrong = list(_problems(entry, known))
        if entry.get("name") in bars:
            wrong.append("name stands twice: rename one")
        where = entry.get("name", f"bar {number}")
        problems += [f"{path.name}: {where}: {problem}" for problem in wrong]
        if not wrong:
            made = Bar(**entry | {"over": tuple(entry.get("over", ()))})
            bars[made.name] = made
    if not bars and not problems:
        problems.append(f"{path.name}: no bars: it holds [[bar]] tables")
    if problems:
        raise DefinitionError("\n".join(problems))
    return list(bars.values())


def _problems(entry: Mapping[str, Any], known: Mapping[str, Bench]) -> Iterator[str]:
    optional = ("over", "figure", "at_least", "at_most")
    wrong = list(keys(entry, ("name", "work"), optional, _TYPES))
    yield from wrong
    if wrong:
        return
    if ("at_least" in entry) == ("at_most" in entry):
        yield "give one of at_least and at_most"
    if ("over" in entry) == ("figure" in entry):
        yield "give one of over and figure"
    works = (entry["work"], *entry.get("over", ()))
    missing = [work for work in works if work not in known]
    yield from (f"no such benchmark '{work}': define it" for work in missing)
    if not missing and len({known[work].corpus for work in works}) > 1:
        yield "its works differ in their corpus: compare the same bytes"


class Verdict(NamedTuple):
    """What was measured in each round; nothing where it could not be."""

    bar: Bar
    values: tuple[float, ...]
    bytes: int = 0  # of the corpus

    @property
    def held(self) -> bool | None:
        """Whether the median keeps the threshold; None where nothing was measured."""
        if not self.values:
            return None
        middle, bar = median(self.values), self.bar
        return middle >= bar.at_least if bar.at_least is not None else middle <= (bar.at_most or 0)

    @property
    def row(self) -> Row:
        """The row of bars.csv."""
        bar, values = self.bar, self.values
        return {
            "bar": bar.name,
            "work": bar.work,
            "over": " + ".join(bar.over) or bar.figure,
            "bytes": self.bytes or None,
            "median": rounded(median(values)) if values else None,
            "min": rounded(min(values)) if values else None,
            "max": rounded(max(values)) if values else None,
            "at_least": bar.at_least,
            "at_most": bar.at_most,
            "held": {None: "not measured", True: "yes", False: "no"}[self.held],
        }


def needed(bars: Sequence[Bar], benches: Sequence[Bench]) -> list[Bench]:
    """The benches that the bars rest on, and no others."""
    names = {name for bar in bars for name in bar.works}
    return [one for one in benches if one.name in names]


def verdict(bar: Bar, outcomes: Mapping[str, Outcome]) -> Verdict:
    """Hold the outcomes of its works against a bar."""
    own, *others = (outcomes[name] for name in bar.works)
    if bar.figure:
        return Verdict(bar, _figure(own, bar.figure), own.bytes)
    results = [one.result for one in others]
    if own.result is None or None in results:
        return Verdict(bar, (), own.bytes)
    whole = [sum(r.seconds[i] for r in results if r) for i in range(len(own.result.seconds))]
    ratios = (w / seconds for w, seconds in zip(whole, own.result.seconds, strict=True))
    return Verdict(bar, tuple(ratios), own.bytes)


def _figure(outcome: Outcome, figure: str) -> tuple[float, ...]:
    seconds = outcome.result.seconds if outcome.result else ()
    match figure:
        case "ms":
            return tuple(s * 1e3 for s in seconds)
        case "files_s":
            files = outcome.corpus.files if outcome.corpus else 0
            return tuple(files / s for s in seconds)
        case _:
            return outcome.figures.get(figure, ())
