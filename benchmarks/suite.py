"""Read benchmark definitions and run them; hides corpora on disk, set-up, and what is compared.

A definition states what must be counted. Each work is run once before anything is timed, and one
that counts otherwise keeps no time.
"""

from __future__ import annotations

import difflib
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import corpora
from benchmarks.corpora import CODECS, Corpus
from ingest import measure, pipeline
from ingest.store import Store
from matcher import bench
from matcher.bench import BenchResult, Work
from matcher.catalogue import Catalogue
from matcher.engine import Engine, cache_directory
from queries import report as reports

DEFINITIONS = Path(__file__).parent / "definitions"


class DefinitionError(Exception):
    """Definitions cannot be used; the message lists everything that is wrong with them."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One benchmark. `count` is at scale 1 and grows with the lines; None for compile."""

    name: str
    model: str
    analysis: str
    corpus: Corpus | None = None
    count: int | None = None
    cached: bool = False
    every_match: bool = False
    report: str = ""
    column: str = ""


# Model -> the keys that a bench of it must have beside name and model, and those it may have.
MODELS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "compile": ((), ("cached",)),
    "scan": (("corpus", "count"), ()),
    "read": (("corpus", "count"), ()),
    "ingest": (("corpus", "count"), ("every_match",)),
    "report": (("corpus", "count", "report", "column"), ()),
}
_TYPES = {
    **dict.fromkeys(("name", "model", "analysis", "report", "column", "codec"), str),
    **dict.fromkeys(("count", "seed", "lines", "hits_per_million", "files"), int),
    **dict.fromkeys(("cached", "every_match"), bool),
    "corpus": dict,
}
_CALLED = {str: "a string", int: "a whole number", bool: "true or false", dict: "a table"}


def load(directory: Path = DEFINITIONS) -> list[Bench]:
    """The benchmarks of all definition files. Raises DefinitionError with all that is wrong."""
    problems: list[str] = []
    benches: dict[str, Bench] = {}
    for path in sorted(directory.glob("*.toml")):
        try:
            document = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            problems.append(f"{path.name}: not valid TOML: {error}: mend it at that place")
            continue
        entries = document.get("bench")
        if not isinstance(entries, list) or document.keys() != {"analysis", "bench"}:
            problems.append(f"{path.name}: give `analysis` and [[bench]] tables, nothing else")
            continue
        for number, entry in enumerate(entries, 1):
            where = f"{path.name}: {entry.get('name', f'bench {number}')}"
            wrong = list(_problems(entry))
            if entry.get("name") in benches:
                wrong.append("name stands twice: rename one")
            problems += [f"{where}: {problem}" for problem in wrong]
            if not wrong:
                corpus = Corpus(**entry.pop("corpus")) if "corpus" in entry else None
                made = Bench(**entry, corpus=corpus, analysis=document["analysis"])
                benches[made.name] = made
    if not benches and not problems:
        problems.append(f"{directory}: no definitions: it holds *.toml with [[bench]] tables")
    if problems:
        raise DefinitionError("\n".join(problems))
    return list(benches.values())


def _problems(entry: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with one [[bench]] table."""
    model = entry.get("model")
    if model not in MODELS:
        yield f"model is {model!r}: one of {', '.join(MODELS)}"
        return
    needed, optional = MODELS[model]
    yield from _keys(entry, ("name", "model", *needed), optional)
    name, corpus, count = entry.get("name"), entry.get("corpus"), entry.get("count")
    if isinstance(name, str) and not name.startswith(f"{model}/"):
        yield f"name does not begin with its model: call it '{model}/...'"
    if isinstance(count, int) and count < 1:
        yield f"count is {count}: what counts nothing proves nothing, give 1 or more"
    if not isinstance(corpus, dict) or "corpus" not in needed:
        return
    known = tuple(field.name for field in fields(Corpus))
    wrong = [f"corpus: {problem}" for problem in _keys(corpus, known[:2], known[2:])]
    yield from wrong
    if wrong:
        return
    made = Corpus(**corpus)
    if made.codec not in CODECS:
        yield f"corpus: codec is {made.codec!r}: one of {', '.join(CODECS)}"
    if made.lines < 1 or made.files < 1 or not 0 <= made.hits_per_million <= 1_000_000:
        yield "corpus: give lines and files of 1 or more and hits_per_million of 0 to 1000000"
    elif made.lines * made.hits_per_million % 1_000_000:
        yield "corpus: lines * hits_per_million is no multiple of a million: its count cannot scale"


def _keys(
    entry: Mapping[str, Any], needed: Sequence[str], optional: Sequence[str]
) -> Iterator[str]:
    known = (*needed, *optional)
    for key in entry.keys() - set(known):
        near = difflib.get_close_matches(key, known, 1)
        remedy = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
        yield f"unknown key '{key}': {remedy}"
    for key in known:
        if key not in entry:
            if key in needed:
                yield f"'{key}' is missing: add it"
        elif type(entry[key]) is not _TYPES[key]:
            yield f"'{key}' is {entry[key]!r}: give {_CALLED[_TYPES[key]]}"


# -- running -------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What running a benchmark gave. `result` is None where the count was wrong.

    In the model ingest `start` is in no time of `result`; that one is None where the corpus was
    too small to tell it from start-up, or where nothing was timed. Ratios are speeds over those of
    scanning and of reading alone, None where the same run did not measure them.
    """

    bench: Bench
    corpus: Corpus | None
    bytes: int
    expected: int
    counted: int
    result: BenchResult | None = None
    start: BenchResult | None = None
    over_scan: float | None = None
    over_read: float | None = None

    @property
    def right(self) -> bool:
        """Whether it counted what its definition says."""
        return self.counted == self.expected


def run(
    benches: Sequence[Bench], catalogue: Catalogue, *, scale: float = 1, rounds: int = 5
) -> Iterator[Outcome]:
    """Outcomes, those of one corpus after another; without rounds only counts are checked.

    What shares its text, whatever the codec, is measured in the same interleaved rounds.
    """
    groups: dict[Corpus | None, list[Bench]] = {}
    for one in benches:
        plain = one.corpus and Corpus(
            one.corpus.seed,
            one.corpus.lines,
            one.corpus.hits_per_million,
            files=one.corpus.files,
        )
        groups.setdefault(plain, []).append(one)
    for corpus, members in groups.items():
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if corpus is None:
                works = {b.name: _compile(b, catalogue, scale, directory) for b in members}
            else:
                works = _works(members, corpus.scaled(scale), catalogue, directory, stack)
            yield from _outcomes(members, works, scale, rounds)


class _Proved(NamedTuple):
    work: Work
    expected: int


def _compile(one: Bench, catalogue: Catalogue, scale: float, directory: Path) -> _Proved:
    """Compile the first failures of the catalogue, all at scale 1, and scan their examples."""
    chosen = catalogue.failures[: max(1, round(len(catalogue.failures) * scale))]
    some = measure.part(catalogue, {failure.id for failure in chosen}.__contains__)
    examples = [s.match[0].encode() for s in corpora.plain(some)]
    text = b"\n".join(examples)
    cache = directory if one.cached else None

    def work() -> int:
        return len(Engine(some, cache).scan(text).signature)

    return _Proved(Work(0, work), len(examples))


def _works(
    members: Sequence[Bench],
    corpus: Corpus,
    catalogue: Catalogue,
    directory: Path,
    stack: ExitStack,
) -> dict[str, _Proved]:
    """What each bench runs on this corpus, which is written in every codec that is asked for."""
    parts = list(corpora.texts(corpus, catalogue))
    size = sum(map(len, parts))
    places: dict[str, str] = {}
    for codec in {b.corpus.codec for b in members if b.corpus}:
        places[codec] = str(directory / codec)
        corpora.write(directory / codec, codec, parts)
    works: dict[str, _Proved] = {}
    for one in members:
        assert one.corpus is not None
        assert one.count is not None
        paths = [places[one.corpus.codec]]
        counting: Callable[[], int]
        match one.model:
            case "scan":
                held = measure.sample(paths, directory, limit=2 * size + 1).texts
                engine = Engine(catalogue, cache_directory())
                counting = partial(measure.scanning, engine, held)
            case "read":
                counting = partial(measure.reading, paths)
            case "ingest":
                counting = partial(measure.ingesting, paths, every_match=one.every_match)
            case _:
                counting = partial(_report, one, _database(paths, stack))
        expected = one.count * corpus.lines // one.corpus.lines
        works[one.name] = _Proved(Work(0 if one.model == "report" else size, counting), expected)
    return works


def _database(paths: Sequence[str], stack: ExitStack) -> Store:
    store = stack.enter_context(Store(None))
    pipeline.ingest(store, pipeline.plan(paths, workers=1))
    reports.prepare(store.connection)
    return store


def _report(one: Bench, store: Store) -> int:
    table = reports.run(store.connection, reports.load(one.report)).table
    return sum(value or 0 for value in table.column(one.column).to_pylist())


_START = "start"


def _outcomes(
    members: Sequence[Bench], works: Mapping[str, _Proved], scale: float, rounds: int
) -> Iterator[Outcome]:
    counted = {name: proved.work.run() for name, proved in works.items()}
    timed = {n: proved.work for n, proved in works.items() if counted[n] == proved.expected}
    if any(one.model == "ingest" for one in members):
        timed[_START] = Work(0, partial(measure.ingesting, []))
    results = bench.measure(timed, rounds) if rounds else {}
    start = results.pop(_START, None)
    alone = {(b.model, b.corpus.codec): results.get(b.name) for b in members if b.corpus}
    for one in members:
        corpus = one.corpus.scaled(scale) if one.corpus else None
        work, expected = works[one.name]
        outcome = Outcome(one, corpus, work.bytes, expected, counted[one.name])
        result = results.get(one.name)
        if result and start and one.model == "ingest":
            result = result.less(start)
            outcome = outcome._replace(start=start)
        if result:
            scanned = alone.get(("scan", "none"))
            read = alone.get(("read", corpus.codec)) if corpus else None
            compared = work.bytes and one.model == "ingest"
            outcome = outcome._replace(
                result=result,
                over_scan=result.speed_over(scanned) if compared and scanned else None,
                over_read=result.speed_over(read) if compared and read else None,
            )
        yield outcome
