"""Read benchmark definitions and run them; hides what is compared and what goes in one round.

A definition states what must be counted. Each work is run once before anything is timed, and one
that counts otherwise keeps no time.
"""

from __future__ import annotations

import difflib
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks import works
from benchmarks.corpora import CODECS, SHAPES, Corpus
from benchmarks.works import Figures, Proved, Setting
from matcher import bench
from matcher.bench import BenchResult
from matcher.catalogue import Catalogue

DATA = Path(__file__).parent  # corpora.toml, definitions/, bars.toml, curves.toml


class DefinitionError(Exception):
    """Definitions cannot be used; the message lists everything that is wrong with them."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One benchmark. `count` is at scale 1; None where the catalogue decides it.

    In the model plain it is the number of patterns, each found in a text of its own.
    """

    name: str
    model: str
    analysis: str = ""
    corpus: Corpus | None = None
    codec: str = "none"
    count: int | None = None
    workers: int = 1
    patterns: int = 0  # 0 is the catalogue's
    cached: bool = False
    every_match: bool = False
    report: str = ""
    column: str = ""
    names: tuple[str, ...] = ()  # of peers; all for none


# Model -> the keys that a bench of it must have beside name and model, and those it may have.
_ON = ("corpus", "count")
_INGESTED = ("codec", "workers", "every_match")
MODELS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "compile": ((), ("cached",)),
    "help": ((), ()),
    "limit": (_ON, ()),
    "blocks": (_ON, ("patterns",)),
    "plain": (_ON, ()),
    "scan": (_ON, ()),
    "cost": (_ON, ()),
    "c": (_ON, ()),
    "peers": (_ON, ("codec", "workers", "names")),
    "unpack": (_ON, ("codec",)),
    "read": (_ON, ("codec",)),
    "ingest": (_ON, _INGESTED),
    "process": (_ON, _INGESTED),
    "memory": (_ON, _INGESTED),
    "report": ((*_ON, "report", "column"), ()),
}
_TYPES = {
    **dict.fromkeys(("name", "model", "corpus", "codec", "shape", "report", "column"), str),
    **dict.fromkeys(("count", "seed", "lines", "hits_per_million", "files"), int),
    **dict.fromkeys(("workers", "patterns"), int),
    **dict.fromkeys(("cached", "every_match"), bool),
    "names": list,
}
_CALLED = {str: "a string", int: "a whole number", bool: "true or false", float: "a number",
           list: "a list"}  # fmt: skip


def load(data: Path = DATA) -> list[Bench]:
    """The benchmarks of definitions/*.toml. Raises DefinitionError with all that is wrong."""
    problems: list[str] = []
    known = _corpora(data / "corpora.toml", problems)
    benches: dict[str, Bench] = {}
    for path in sorted(data.glob("definitions/*.toml")):
        if (document := parsed(path, problems)) is None:
            continue
        entries = document.get("bench")
        if not isinstance(entries, list) or document.keys() != {"analysis", "bench"}:
            problems.append(f"{path.name}: give `analysis` and [[bench]] tables, nothing else")
            continue
        for number, entry in enumerate(entries, 1):
            where = f"{path.name}: {entry.get('name', f'bench {number}')}"
            wrong = list(_problems(entry, known))
            if entry.get("name") in benches:
                wrong.append("name stands twice: rename one")
            problems += [f"{where}: {problem}" for problem in wrong]
            if not wrong:
                corpus = known.get(entry.pop("corpus", ""))
                entry["names"] = tuple(entry.get("names", ()))
                made = Bench(**entry, corpus=corpus, analysis=document["analysis"])
                benches[made.name] = made
    if not benches and not problems:
        problems.append(f"{data}: no definitions/*.toml with [[bench]] tables: add one")
    if problems:
        raise DefinitionError("\n".join(problems))
    return list(benches.values())


def parsed(path: Path, problems: list[str]) -> dict[str, Any] | None:
    """A TOML file; None, and a problem more, where it is none."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        problems.append(f"{path.name}: is missing: add it")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{path.name}: not valid TOML: {error}: mend it at that place")
    return None


def _corpora(path: Path, problems: list[str]) -> dict[str, Corpus]:
    needed, *optional = (field.name for field in fields(Corpus))
    made: dict[str, Corpus] = {}
    for name, entry in (parsed(path, problems) or {}).items():
        if isinstance(entry, dict):
            wrong = list(keys(entry, (needed, "lines"), optional[1:], _TYPES))
        else:
            wrong = ["give a table of seed, lines and the rest"]
        if not wrong:
            made[name] = corpus = Corpus(**entry)
            wrong = list(corpus_problems(corpus))
        problems += [f"{path.name}: {name}: {problem}" for problem in wrong]
    return made


def corpus_problems(corpus: Corpus) -> Iterator[str]:
    """What is wrong with a corpus."""
    if corpus.shape not in SHAPES:
        yield f"shape is {corpus.shape!r}: one of {', '.join(SHAPES)}"
    if corpus.lines < 1 or corpus.files < 1 or not 0 <= corpus.hits_per_million <= 1_000_000:
        yield "give lines and files of 1 or more and hits_per_million of 0 to 1000000"


def _problems(entry: Mapping[str, Any], known: Mapping[str, Corpus]) -> Iterator[str]:
    """What is wrong with one [[bench]] table."""
    model = entry.get("model")
    if model not in MODELS:
        yield f"model is {model!r}: one of {', '.join(MODELS)}"
        return
    needed, optional = MODELS[model]
    wrong = list(keys(entry, ("name", "model", *needed), optional, _TYPES))
    yield from wrong
    if wrong:
        return
    if not entry["name"].startswith(f"{model}/"):
        yield f"name does not begin with its model: call it '{model}/...'"
    if entry.get("codec", "none") not in CODECS:
        yield f"codec is {entry['codec']!r}: one of {', '.join(CODECS)}"
    if entry.get("workers", 1) < 1:
        yield f"workers is {entry['workers']}: give 1 or more"
    if "corpus" not in needed:
        return
    if (corpus := known.get(entry["corpus"])) is None:
        yield f"corpus is {entry['corpus']!r}: one of {', '.join(known)}"
    elif model == "plain":
        if entry["count"] < 1:
            yield f"count is {entry['count']}: say how many patterns, 1 or more"
    elif (makes := counted(model, corpus)) != entry["count"] or makes < 1:
        yield f"count is {entry['count']:,}, its corpus makes {makes:,}: they must agree, above 0"


def counted(model: str, corpus: Corpus) -> int:
    """What a model counts in a corpus."""
    match model:
        case "read" | "unpack":
            return corpus.whole_lines
        case "report":
            return corpus.lines
        case _:
            return corpus.hits


def keys(
    entry: Mapping[str, Any],
    needed: Sequence[str],
    optional: Sequence[str],
    types: Mapping[str, type],
) -> Iterator[str]:
    """What is wrong with the keys of a table."""
    known = (*needed, *optional)
    for key in entry.keys() - set(known):
        near = difflib.get_close_matches(key, known, 1)
        remedy = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
        yield f"unknown key '{key}': {remedy}"
    for key in known:
        if key not in entry:
            if key in needed:
                yield f"'{key}' is missing: add it"
        elif type(entry[key]) is not types[key]:
            yield f"'{key}' is {entry[key]!r}: give {_CALLED[types[key]]}"


# -- running -------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What running a benchmark gave. `result` is None where the count was wrong.

    In the model ingest `start` is in no time of `result`; that one is None where the corpus was
    too small to tell it from start-up, or where nothing was timed. Ratios are speeds over those of
    `limit` and of `unpack`, None where the same run did not measure them. `figures` are those that
    no round gave.
    """

    bench: Bench
    corpus: Corpus | None
    bytes: int
    expected: int
    counted: int
    result: BenchResult | None = None
    start: BenchResult | None = None
    over_limit: float | None = None
    over_unpack: float | None = None
    figures: Figures = MappingProxyType({})

    @property
    def right(self) -> bool:
        """Whether it counted what its definition says."""
        return self.counted == self.expected


def run(
    benches: Sequence[Bench], catalogue: Catalogue, *, scale: float = 1, rounds: int = 5
) -> Iterator[Outcome]:
    """Outcomes, those of one corpus after another; without rounds only counts are checked.

    All that works on one corpus, whatever the codec, is measured in the same interleaved rounds;
    then the corpus is deleted.
    """
    groups: dict[Corpus | None, list[Bench]] = {}
    for one in benches:
        groups.setdefault(one.corpus, []).append(one)
    for corpus, members in groups.items():
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="firstfault-")))
            proved: dict[str, Proved] = {}
            if corpus is None:
                for one in members:
                    proved[one.name] = (
                        works.helping(one)
                        if one.model == "help"
                        else works.compiling(one, catalogue, scale, directory)
                    )
                size = 0
            else:
                made = corpus.scaled(scale)
                codecs = {one.codec for one in members}
                setting = Setting(made, catalogue, codecs, directory)
                size = setting.bytes
                for one in members:
                    proved[one.name] = works.of_corpus(one, setting, stack)
            yield from _outcomes(members, proved, size, scale, rounds, directory)


def _outcomes(
    members: Sequence[Bench],
    proved: Mapping[str, Proved],
    size: int,
    scale: float,
    rounds: int,
    directory: Path,
) -> Iterator[Outcome]:
    counts = {name: one.prove() for name, one in proved.items()}
    right = {name: one for name, one in proved.items() if counts[name] == one.expected}
    timed = {name: one.work for name, one in right.items() if one.work}
    starts = {one.name: f"start/{one.workers}" for one in members if one.model == "ingest"}
    if rounds:
        for name in sorted(set(starts.values())):
            timed[name] = works.starting(directory, int(name.removeprefix("start/")))
            timed[name].run()
    results = bench.measure(timed, rounds) if rounds else {}
    alone = {(one.model, one.codec): results.get(one.name) for one in members}
    for one in members:
        made = right.get(one.name)
        outcome = Outcome(
            one,
            one.corpus.scaled(scale) if one.corpus else None,
            size,
            proved[one.name].expected,
            counts[one.name],
            figures=made.aside(rounds) if rounds and made and made.aside else {},
        )
        result = results.get(one.name)
        if result and one.name in starts:
            start = results[starts[one.name]]
            result = result.less(start)
            outcome = outcome._replace(start=start)
        if result and result.bytes:
            limit, unpack = alone.get(("limit", "none")), alone.get(("unpack", one.codec))
            outcome = outcome._replace(
                over_limit=result.speed_over(limit) if limit else None,
                over_unpack=result.speed_over(unpack) if unpack else None,
            )
        yield outcome._replace(result=result)
