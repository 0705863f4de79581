"""Measure how speed changes with one thing that grows, and draw it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import linear_regression
from typing import Any, NamedTuple

from benchmarks import suite
from benchmarks.corpora import Corpus
from benchmarks.record import Row, rounded
from benchmarks.suite import DATA, Bench, DefinitionError, Outcome, keys, parsed
from matcher.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class Curve:
    """One picture: `vary` is a field of the corpus or of the bench, and takes each of `values`."""

    name: str
    title: str
    x: str
    vary: str
    values: tuple[int, ...]
    lines: Mapping[str, tuple[Bench, ...]]  # label -> a bench for each value
    exponent_at_most: float | None = None


_TYPES = {
    **dict.fromkeys(("name", "title", "x", "vary", "label", "model", "codec"), str),
    **dict.fromkeys(("values", "lines"), list),
    "corpus": dict,
    "exponent_at_most": float,
    "every_match": bool,
}
_VARY = {
    "bench": ("workers", "patterns"),
    "corpus": tuple(field.name for field in fields(Corpus)),
}


def load(data: Path = DATA) -> list[Curve]:
    """All curves of curves.toml. Raises DefinitionError with all that is wrong."""
    path = data / "curves.toml"
    problems: list[str] = []
    curves: list[Curve] = []
    for number, entry in enumerate((parsed(path, problems) or {}).get("curve", ()), 1):
        wrong = list(_problems(entry))
        where = entry.get("name", f"curve {number}")
        problems += [f"{path.name}: {where}: {problem}" for problem in wrong]
        if not wrong:
            curves.append(_curve(entry))
    if not curves and not problems:
        problems.append(f"{path.name}: no curves: it holds [[curve]] tables")
    if problems:
        raise DefinitionError("\n".join(problems))
    return curves


def _problems(entry: Mapping[str, Any]) -> Iterator[str]:
    needed = ("name", "title", "x", "vary", "values", "corpus", "lines")
    wrong = list(keys(entry, needed, ("exponent_at_most",), _TYPES))
    for line in entry.get("lines", ()):
        wrong += keys(line, ("label", "model"), ("codec", "every_match"), _TYPES)
    yield from wrong
    known = [name for names in _VARY.values() for name in names]
    if not wrong and entry["vary"] not in known:
        yield f"vary is {entry['vary']!r}: one of {', '.join(known)}"


def _curve(entry: Mapping[str, Any]) -> Curve:
    vary = entry["vary"]
    values = tuple(entry["values"]) or tuple(range(1, len(os.sched_getaffinity(0)) + 1))
    lines: dict[str, tuple[Bench, ...]] = {}
    for line in entry["lines"]:
        keyed = {key: value for key, value in line.items() if key != "label"}
        benches = []
        for value in values:
            corpus = Corpus(**entry["corpus"])
            one = Bench(f"{entry['name']}/{line['label']}/{value}", corpus=corpus, **keyed)
            if vary in _VARY["corpus"]:
                one = replace(one, corpus=replace(corpus, **{vary: value}))
            else:
                one = replace(one, **{vary: value})
            benches.append(one)
        lines[line["label"]] = tuple(benches)
    names = ("name", "title", "x", "vary", "exponent_at_most")
    given = {name: entry[name] for name in names if name in entry}
    return Curve(**given, values=values, lines=lines)


class Point(NamedTuple):
    """What one line of a curve gave at one value of what varies, after scaling; bytes for lines."""

    curve: Curve
    label: str
    value: int
    outcome: Outcome

    @property
    def row(self) -> Row:
        """The row of scaling.csv."""
        result = self.outcome.result
        return {
            "curve": self.curve.name,
            "line": self.label,
            "value": self.value,
            "bytes": self.outcome.bytes,
            "count": self.outcome.counted,
            "median_s": rounded(result.median_s if result else None),
            "gb_s": rounded(result.gb_s if result else None),
            "min_gb_s": rounded(result.min_gb_s if result else None),
            "max_gb_s": rounded(result.max_gb_s if result else None),
        }


def run(
    curves: Sequence[Curve], catalogue: Catalogue, *, scale: float = 1, rounds: int = 3
) -> Iterator[Point]:
    """The points of curve after curve, those that share a corpus in the same rounds."""
    for curve in curves:
        at = {
            one.name: (label, value)
            for label, benches in curve.lines.items()
            for value, one in zip(curve.values, benches, strict=True)
        }
        benches = [one for line in curve.lines.values() for one in line]
        for outcome in suite.run(benches, catalogue, scale=scale, rounds=rounds):
            label, value = at[outcome.bench.name]
            if curve.vary == "lines":
                value = outcome.bytes
            elif curve.vary in _VARY["corpus"]:
                value = getattr(outcome.corpus, curve.vary)
            yield Point(curve, label, value, outcome)


def exponent(points: Sequence[Point]) -> float | None:
    """The power of `value` with which time grows: 1 where twice as much takes twice as long."""
    timed = [(p.value, p.outcome.result.median_s) for p in points if p.outcome.result]
    if len(timed) < 2:
        return None
    x, y = ([math.log(number) for number in column] for column in zip(*timed, strict=True))
    return linear_regression(x, y).slope


# -- pictures ------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 720, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 190, 48, 52  # margins; names of lines stand at the right
_STYLE = """
text{font:13px system-ui,sans-serif;fill:#1f2328}
.title{font-size:15px;font-weight:600}
.quiet{fill:#59636e}
.grid{stroke:#d1d9e0;stroke-width:1}
.line{fill:none;stroke-width:2.5;stroke-linejoin:round}
.a{stroke:#0969da}.b{stroke:#bc4c00}.c{stroke:#1a7f37}.d{stroke:#8250df}
text.a,circle.a{fill:#0969da;stroke:none}text.b,circle.b{fill:#bc4c00;stroke:none}
text.c,circle.c{fill:#1a7f37;stroke:none}text.d,circle.d{fill:#8250df;stroke:none}
@media(prefers-color-scheme:dark){
text{fill:#f0f6fc}.quiet{fill:#9198a1}.grid{stroke:#3d444d}
.a{stroke:#58a6ff}.b{stroke:#f0883e}.c{stroke:#3fb950}.d{stroke:#bc8cff}
text.a,circle.a{fill:#58a6ff}text.b,circle.b{fill:#f0883e}
text.c,circle.c{fill:#3fb950}text.d,circle.d{fill:#bc8cff}}
""".replace("\n", "")


def svg(curve: Curve, points: Sequence[Point]) -> str:
    """Each line with its range over the rounds; empty where nothing was timed.

    Axes are logarithmic, but for workers, and for speeds of one magnitude, which begin at 0.
    """
    lines = {
        label: [(p.value, r.gb_s, r.min_gb_s, r.max_gb_s)
                for p in points if p.label == label and (r := p.outcome.result)]
        for label in curve.lines
    }  # fmt: skip
    speeds = [speed for line in lines.values() for _, *three in line for speed in three]
    values = [value for line in lines.values() for value, *_ in line]
    if not speeds:
        return ""
    linear = curve.vary == "workers"
    x = _Axis(min(values), max(values), _LEFT + 12, _WIDTH - _RIGHT, linear)
    near = max(speeds) < 5 * min(speeds)
    y = _Axis(0 if near else min(speeds), max(speeds), _HEIGHT - _BOTTOM, _TOP, near)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'role="img" aria-label="{curve.title}"><style>{_STYLE}</style>',
        f'<text class="title" x="16" y="24">{curve.title}</text>',
        f'<text class="quiet" x="16" y="{_TOP - 6}">GB/s</text>',
        f'<text class="quiet" x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 10}" '
        f'text-anchor="middle">{curve.x}</text>',
    ]
    for tick in y.ticks():
        out.append(
            f'<path class="grid" d="M{_LEFT} {y(tick):.1f}H{_WIDTH - _RIGHT}"/>'
            f'<text class="quiet" x="{_LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">'
            f"{tick:g}</text>"
        )
    for tick in sorted(set(values)) if linear or len(set(values)) < 7 else x.ticks():
        out.append(
            f'<path class="grid" d="M{x(tick):.1f} {_HEIGHT - _BOTTOM}v5"/>'
            f'<text class="quiet" x="{x(tick):.1f}" y="{_HEIGHT - _BOTTOM + 20}" '
            f'text-anchor="middle">{_short(tick)}</text>'
        )
    room = [0.0]
    for letter, (label, line) in zip("abcd", lines.items(), strict=False):
        if not line:
            continue
        way = "L".join(f"{x(value):.1f} {y(speed):.1f}" for value, speed, _, _ in line)
        out.append(f'<path class="line {letter}" d="M{way}"/>')
        for value, speed, low, high in line:
            out.append(
                f'<path class="line {letter}" stroke-opacity=".45" '
                f'd="M{x(value):.1f} {y(low):.1f}V{y(high):.1f}"/>'
                f'<circle class="{letter}" r="3.5" cx="{x(value):.1f}" cy="{y(speed):.1f}"/>'
            )
        at = y(line[-1][1]) + 4
        while any(abs(at - other) < 15 for other in room):
            at += 3
        room.append(at)
        out.append(f'<text class="{letter}" x="{_WIDTH - _RIGHT + 10}" y="{at:.1f}">{label}</text>')
    return "".join([*out, "</svg>\n"])


class _Axis:
    """From values to places."""

    def __init__(self, low: float, high: float, begin: float, end: float, linear: bool) -> None:
        self._linear = linear
        if not linear:
            low, high = (low, high) if low < high else (low / 2, high * 2)
        elif low == high:
            high = low + 1
        self._low, self._high = low, high
        self._begin, self._end = begin, end

    def __call__(self, value: float) -> float:
        low, high = self._scaled(self._low), self._scaled(self._high)
        share = (self._scaled(value) - low) / (high - low)
        return self._begin + share * (self._end - self._begin)

    def _scaled(self, value: float) -> float:
        return value if self._linear else math.log10(value)

    def ticks(self) -> list[float]:
        """Round values between the ends: 1, 2 and 5 of each decade, fewer over many decades."""
        if self._linear:
            step = 10 ** math.floor(math.log10(self._high))
            while self._high / step < 3:
                step /= 2
            return [step * n for n in range(1 + int(self._high / step))]
        first, last = math.log10(self._low), math.log10(self._high)
        steps = (1, 2, 5) if last - first < 2.5 else (1,)
        decades = range(math.floor(first), math.ceil(last) + 1)
        every = [step * 10.0**decade for decade in decades for step in steps]
        return [tick for tick in every if self._low <= tick <= self._high]


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:g}"
