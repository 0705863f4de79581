"""Measure scanning, reading and ingesting a user's own logs; hides sampling and set-up.

A sample of the logs is taken first, so that everything measured is the same bytes, read from warm
caches: figures tell what the processor can do, not the disk. Whole files are taken in an order
that their paths' hashes give, the heads of those that are too large.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ingest import blocks, files, fleet, pipeline
from ingest.files import Source
from ingest.store import Store
from matcher import bench, engine
from matcher.bench import BenchResult, Work
from matcher.catalogue import Catalogue, load

SAMPLE_BYTES = 256 << 20  # decompressed, held in memory
FILE_BYTES = 64 << 20  # of one file, where there are others to take
SAMPLE_FILES = 100_000
ROUNDS = 5
_PROBE = 1 << 20  # of a compressed file, to tell how well it is compressed

GROUP_BYTES = 32 << 20  # of the sample, scanned without one group after another
GROUPS = 10  # left out in turn, of components and again of failures: each costs a whole compile
COSTLY = 1.05  # leaving the group out makes scanning so many times as fast

# Without logs: few runs, so that their files are as large as in a real archive.
_FLEET_BYTES, _FLEET_RUNS, _FLEET_SEED = 48_000_000, 4, 1


def reading(paths: Sequence[str]) -> int:
    """Read the files of these paths from codec to blocks; how many lines."""
    sources = files.discover(paths)
    readers = (reader for source in sources for _, reader in blocks.open_source(source) if reader)
    return sum(block.lines for reader in readers for block in reader)


def scanning(scanner: engine.Scanner, texts: Iterable[bytes]) -> int:
    """Scan blocks in memory; how many hits."""
    return sum(len(scanner.scan(text).signature) for text in texts)


def ingesting(
    paths: Sequence[str], catalogues: Sequence[Path] = (), *, every_match: bool = False
) -> int:
    """Ingest paths into a database in memory with one worker; how many matches it holds."""
    plan = pipeline.plan(paths, workers=1, catalogues=catalogues, every_match=every_match)
    with Store(None) as store:
        return pipeline.ingest(store, plan).events


class Sample(NamedTuple):
    """Some of the logs: where they lie (heads in a scratch directory) and their text in blocks."""

    paths: list[str]
    texts: list[bytes]
    found: int
    cut: int
    left_out: int
    bytes: int  # decompressed

    @property
    def whole(self) -> bool:
        """Whether it is all that could be read."""
        return len(self.paths) + self.left_out == self.found and not self.cut


def sample(paths: Sequence[str], scratch: Path, limit: int = SAMPLE_BYTES) -> Sample:
    """About `limit` decompressed bytes of the logs under these paths; `scratch` takes the heads.

    Raises DiscoverError for a path that is not there and UsageError where nothing can be read.
    """
    if files.STDIN in paths:
        raise pipeline.UsageError("- can be read only once: give bench a file or a directory")
    number = itertools.count()
    found = (source for source, _ in zip(files.discover(paths), number, strict=False))
    chosen = heapq.nsmallest(SAMPLE_FILES, found, key=_order)
    total = next(number)
    locations: list[str] = []
    texts: list[bytes] = []
    size = cut = left_out = 0
    for place, source in enumerate(chosen):
        if size > limit * 15 // 16:
            break
        room = min(limit - size, max(FILE_BYTES, limit // total))
        location, held, is_head = source.location, None, False
        if source.status == "ok":
            held = _hold(source, room)
            if is_head := held is None:
                location, held = _head(source, room, scratch / str(place))
        if not held:
            left_out += 1
            continue
        locations.append(location)
        texts += held
        size += sum(map(len, held))
        cut += is_head
    if not locations:
        raise pipeline.UsageError(f"{' '.join(paths)}: holds no log to measure: name one that does")
    return Sample(locations, texts, total, cut, left_out, size)


def _order(source: Source) -> bytes:
    path = source.path.encode(errors="surrogateescape")
    return hashlib.blake2b(path, digest_size=8).digest()


def _hold(source: Source, most: int) -> list[bytes] | None:
    """The blocks of a source; None where they are more than `most` bytes."""
    texts: list[bytes] = []
    size = 0
    for _, reader in blocks.open_source(source):
        for block in reader or ():
            texts.append(bytes(memoryview(block.data)[block.start : block.end]))
            size += len(texts[-1])
            if size > most:
                return None
    return texts


def _head(source: Source, most: int, directory: Path) -> tuple[str, list[bytes] | None]:
    """A copy of a file's beginning that makes about `most` bytes when decompressed; its blocks."""
    directory.mkdir()
    copy = directory / Path(source.location).name
    head = replace(source, location=str(copy))
    held = None
    with open(source.location, "rb") as file:  # noqa: PTH123
        probe = file.read(_PROBE)
        copy.write_bytes(probe)
        readers = (reader for _, reader in blocks.open_source(head) if reader)
        made = sum(block.end - block.start for reader in readers for block in reader)
        size = len(probe) * most // made if made else 0
        while held is None and size:
            file.seek(0)
            copy.write_bytes(file.read(size))
            held = _hold(head, most + most // 4)
            size //= 2
    return str(copy), held


# -- figures -------------------------------------------------------------------------------------


def measure(
    path: str | None,
    catalogues: Sequence[Path] = (),
    by_failure: bool = False,
    *,
    limit: int = SAMPLE_BYTES,
    rounds: int = ROUNDS,
) -> dict[str, Any]:
    """Figures of the logs under `path`, of a made-up fleet without one; keys name their units.

    Speeds are 10^9 decompressed bytes a second with one worker, medians over `rounds`. What is
    paid once (catalogue, compiled patterns, an empty database) is `start_s` and in no speed. A
    figure is None where the sample is too small to tell. Raises UsageError, DiscoverError,
    CatalogueError, and CountError where the logs change meanwhile.
    """
    catalogue = load(*catalogues)
    scanner = engine.Engine(catalogue, engine.cache_directory())
    with tempfile.TemporaryDirectory(prefix="firstfault-") as directory:
        scratch = Path(directory)
        if path is None:
            logs = scratch / "fleet"
            fleet.generate(logs, bytes_=_FLEET_BYTES, seed=_FLEET_SEED, runs=_FLEET_RUNS)
        taken = sample([path or str(logs)], scratch, limit)
        works = {
            "read": Work(taken.bytes, partial(reading, taken.paths)),
            "scan": Work(taken.bytes, partial(scanning, scanner, taken.texts)),
            "start": Work(0, partial(ingesting, [], catalogues)),
            "end_to_end": Work(taken.bytes, partial(ingesting, taken.paths, catalogues)),
        }
        for work in works.values():
            work.run()
        results = bench.measure(works, rounds)
    whole = results["end_to_end"].less(results["start"])
    figures: dict[str, Any] = {
        "source": path or f"a made-up fleet, seed {_FLEET_SEED}",
        "files_found": taken.found,
        "files_sampled": len(taken.paths),
        "files_cut": taken.cut,
        "files_left_out": taken.left_out,
        "sample_bytes": taken.bytes,
        "sample_limit_bytes": limit,
        "sample_is_whole": taken.whole,
        "lines": results["read"].counted,
        "hits": results["scan"].counted,
        "hits_per_mib": results["scan"].counted / taken.bytes * 2**20,
        "events": results["end_to_end"].counted,
        "signatures": len(catalogue.signatures),
        "catalogue_digest": catalogue.digest,
        "engine": engine.version(),
        "rounds": rounds,
        "start_s": results["start"].median_s,
        **_speeds("read", results["read"]),
        **_speeds("scan", results["scan"]),
        **_speeds("end_to_end", whole),
        "scan_over_read": results["scan"].speed_over(results["read"]),
        "end_to_end_over_read": whole.speed_over(results["read"]) if whole else None,
        "terabyte_hours": 1e3 / whole.gb_s / 3600 if whole else None,
    }
    if by_failure:
        figures |= _by_failure(catalogue, scanner, taken.texts, rounds)
    return figures


def _speeds(name: str, result: BenchResult | None) -> dict[str, float | None]:
    return {
        f"{name}_gb_s": result.gb_s if result else None,
        f"{name}_min_gb_s": result.min_gb_s if result else None,
        f"{name}_max_gb_s": result.max_gb_s if result else None,
    }


# -- what signatures cost ------------------------------------------------------------------------


def part(catalogue: Catalogue, wanted: Callable[[str], bool]) -> Catalogue:
    """The catalogue with those failures alone whose id is wanted."""
    failures = [failure for failure in catalogue.failures if wanted(failure.id)]
    known = {signature.id for failure in failures for signature in failure.signatures}
    return replace(
        catalogue,
        failures=tuple(
            replace(
                failure,
                signatures=tuple(
                    replace(s, supersedes=tuple(i for i in s.supersedes if i in known))
                    for s in failure.signatures
                ),
            )
            for failure in failures
        ),
    )


def _by_failure(
    catalogue: Catalogue, scanner: engine.Engine, texts: Sequence[bytes], rounds: int
) -> dict[str, Any]:
    """What leaving out components, then failures of the costliest ones, saves of scanning."""
    size = sum(map(len, texts))
    some = [*texts[:: -(-size // GROUP_BYTES)]] * -(-GROUP_BYTES // 8 // size)
    components: dict[str, set[str]] = {}
    for failure in catalogue.failures:
        components.setdefault(failure.component, set()).add(failure.id)
    numbers = np.concatenate([scanner.scan(text).signature for text in texts])
    counts = np.bincount(numbers, minlength=len(catalogue.signatures)).tolist()
    hits: dict[str, int] = {}
    for signature, count in zip(catalogue.signatures, counts, strict=True):
        hits[signature.failure] = hits.get(signature.failure, 0) + count

    def rows(key: str, groups: Mapping[str, set[str]]) -> Iterator[dict[str, Any]]:
        costs = _costs(catalogue, scanner, groups, some, rounds)
        for name, faster in sorted(costs.items(), key=lambda cost: -cost[1]):
            members = [failure for failure in catalogue.failures if failure.id in groups[name]]
            yield {
                key: name,
                "signatures": sum(len(failure.signatures) for failure in members),
                "hits": sum(hits[failure.id] for failure in members),
                "scan_speed_without": faster,
            }

    by_component = list(rows("component", components))
    costliest = [row["component"] for row in by_component[:3]] or list(components)
    failures = {id_: {id_} for name in costliest for id_ in components[name]}
    by_failure = list(rows("failure", failures))
    return {
        "by_component": by_component,
        "by_failure": by_failure,
        "costly": [r["failure"] for r in by_failure if r["scan_speed_without"] >= COSTLY],
    }


def _costs(
    catalogue: Catalogue,
    scanner: engine.Engine,
    groups: Mapping[str, set[str]],
    texts: Sequence[bytes],
    rounds: int,
) -> dict[str, float]:
    """How many times as fast scanning is without each of the GROUPS that are slowest alone.

    A group alone compiles fast, the rest of the catalogue without it does not.
    """
    size = sum(map(len, texts))

    def work(wanted: Callable[[str], bool]) -> Work:
        return Work(size, partial(scanning, engine.Engine(part(catalogue, wanted)), texts))

    groups = {name: ids for name, ids in groups.items() if len(ids) < len(catalogue.failures)}
    chosen = list(groups)
    if len(chosen) > GROUPS:
        alone = bench.measure({n: work(ids.__contains__) for n, ids in groups.items()}, rounds)
        chosen = heapq.nlargest(GROUPS, alone, key=lambda name: alone[name].median_s)
    works = {"": Work(size, partial(scanning, scanner, texts))}
    for name in chosen:
        works[name] = work(lambda id_, out=groups[name]: id_ not in out)  # type: ignore[misc]
    results = bench.measure(works, rounds)
    return {name: results[name].speed_over(results[""]) for name in chosen}


# -- as text -------------------------------------------------------------------------------------


def text(figures: Mapping[str, Any]) -> str:
    """The figures of `measure` as small tables."""
    f = figures
    of = f"{f['files_sampled']:,} of {f['files_found']:,} files"
    lost = [f"{f[k]:,} {w}" for k, w in _LOST.items() if f[k]]
    taken = f"{f['sample_bytes'] / 2**20:,.1f} MiB of text, {f['lines']:,} lines"
    lines = [
        f"logs        {f['source']}",
        f"sample      {', '.join([of, taken, *lost])}"
        f" (at most {f['sample_limit_bytes'] >> 20} MiB are taken)",
        f"catalogue   {f['signatures']} signatures, {f['catalogue_digest']}, {f['engine']}",
        f"hits        {f['hits']:,}, {f['hits_per_mib']:,.1f} a MiB; {f['events']:,} stored",
        "",
        f"{'':<18}{'GB/s':>8}{'min':>8}{'max':>8}{'/ reading':>11}",
    ]
    for key, label in _LABELS.items():
        speeds = (f[f"{key}_gb_s"], f[f"{key}_min_gb_s"], f[f"{key}_max_gb_s"])
        over = f.get(f"{key}_over_read")
        cells = "".join(f"{_figure(speed):>8}" for speed in speeds)
        lines.append(f"{label:<18}{cells}{'' if key == 'read' else _figure(over):>11}".rstrip())
    hours = f["terabyte_hours"]
    last = "too few logs to tell" if hours is None else f"{hours:,.2f} hours with one worker"
    lines += [
        "",
        f"Medians of {f['rounds']} rounds, one worker, warm caches; start-up of "
        f"{f['start_s']:.2f} s left out.",
        f"A terabyte of such text, at this speed: {last}.",
    ]
    for key in ("component", "failure"):
        if rows := f.get(f"by_{key}"):
            width = max(len(key), *(len(row[key]) for row in rows))
            lines += ["", f"{key:<{width}}{'signatures':>12}{'hits':>12}{'speed without':>15}"]
            lines += [
                f"{row[key]:<{width}}{row['signatures']:>12,}{row['hits']:>12,}"
                f"{'x' + _figure(row['scan_speed_without']):>15}"
                for row in rows
            ]
    if "costly" in f:
        costly = ", ".join(f["costly"]) or f"none makes scanning {COSTLY} times as fast"
        lines += ["", f"Costly failures: {costly}."]
    return "\n".join(lines)


_LOST = {"files_cut": "cut", "files_left_out": "left out"}
_LABELS = {"read": "reading alone", "scan": "scanning alone", "end_to_end": "end to end"}


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"
