"""What each model of benchmark does to a corpus; hides files, set-up and child processes."""

from __future__ import annotations

import bz2
import json
import lzma
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import lz4.frame
from isal import igzip

from benchmarks import corpora, sets
from benchmarks.corpora import Corpus
from ingest import measure, pipeline
from ingest.blocks import BLOCK_BYTES
from ingest.store import Store
from ingest.streams import zstd
from matcher import bench
from matcher.bench import CountError, Work
from matcher.catalogue import Catalogue
from matcher.engine import Engine, PatternSet, cache_directory
from queries import report as reports

if TYPE_CHECKING:
    from benchmarks.suite import Bench

ROOT = Path(__file__).parents[1]
Figures = Mapping[str, tuple[float, ...]]


class Proved(NamedTuple):
    """A work with its proof: `prove` runs once before and must give `expected`.

    `aside` measures what rounds in turn cannot: it takes the rounds, and gives figures by name.
    """

    expected: int
    prove: Callable[[], int]
    work: Work | None = None
    aside: Callable[[int], Figures] | None = None


class Setting:
    """A corpus on disk in the codecs that some benches ask for, and what they share."""

    def __init__(
        self, corpus: Corpus, catalogue: Catalogue, codecs: set[str], directory: Path
    ) -> None:
        self.corpus = corpus
        self.catalogue = catalogue
        self.directory = directory
        self._places = {codec: directory / codec for codec in codecs}
        self.bytes = corpora.write(self._places, corpora.texts(corpus, catalogue))

    def path(self, codec: str) -> Path:
        """Where the corpus lies in this codec."""
        return self._places[codec]

    @cached_property
    def text(self) -> bytes:
        """All of it in memory."""
        paths = sorted(p for p in self._places["none"].rglob("*") if p.is_file())
        return b"".join(path.read_bytes() for path in paths)

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """(begin, end) of the blocks of whole lines of the text."""
        return list(spans(self.text))

    @cached_property
    def scanner(self) -> Engine:
        """The whole catalogue."""
        return Engine(self.catalogue, cache_directory())

    @cached_property
    def found(self) -> int:
        """The hits in the text, counted once."""
        return self.hits()

    def hits(self) -> int:
        """The hits in the text."""
        return sum(len(self.scanner.scan(self.text, *span).signature) for span in self.spans)


def spans(text: bytes, size: int = BLOCK_BYTES) -> Iterator[tuple[int, int]]:
    """(begin, end) of blocks of whole lines, of about `size` bytes."""
    begin = 0
    while begin < len(text):
        end = text.rfind(b"\n", begin, begin + size) + 1 or text.find(b"\n", begin) + 1
        yield begin, end or len(text)
        begin = end or len(text)


def of_corpus(one: Bench, at: Setting, stack: ExitStack) -> Proved:
    """What a bench does to its corpus."""
    corpus = at.corpus
    ingest = partial(
        ingesting,
        [str(at.path(one.codec))],
        at.directory,
        workers=one.workers,
        every_match=one.every_match,
    )
    command = partial(commanding, one, at.path(one.codec), at.directory)
    aside: Callable[[int], Figures]
    match one.model:
        case "scan":
            return Proved(corpus.hits, at.hits, Work(at.bytes, at.hits))
        case "blocks" | "limit":
            number = one.patterns or len(at.catalogue.signatures)
            chosen = sets.sized(at.catalogue, number)
            cache = at.directory if one.patterns else cache_directory()
            scan = bench.bare(chosen, cache)
            work = Work(at.bytes, partial(passing, scan, at, one.model == "limit"))
            if not one.patterns:
                return Proved(corpus.hits, lambda: at.found, work)
            own = min(number, len(at.catalogue.signatures))
            return Proved(own, partial(sets.found, at.catalogue, chosen, cache), work)
        case "plain":
            easy = sets.plain(at.catalogue, one.count or 0)
            scan = bench.bare([made.pattern for made in easy], at.directory)
            return Proved(
                len(easy),
                partial(sets.found_plain, easy, at.directory),
                Work(at.bytes, partial(passing, scan, at, whole=True)),
            )
        case "c":
            return Proved(corpus.hits, lambda: at.found, aside=partial(racing, at))
        case "peers":
            aside = partial(comparing, one, at.path(one.codec), at.catalogue)
            return Proved(corpus.hits, command, aside=aside)
        case "cost":
            some = at.text[: sets.TEXT_BYTES]
            aside = partial(sets.leave_out, at.catalogue, some, list(spans(some)))
            return Proved(corpus.hits, lambda: at.found, aside=aside)
        case "read":
            count = partial(measure.reading, [str(at.path(one.codec))])
            return Proved(corpus.whole_lines, count, Work(at.bytes, count))
        case "unpack":
            unpack = partial(unpacking, at.path(one.codec), one.codec)
            return Proved(
                corpus.whole_lines, partial(unpack, _lines), Work(at.bytes, partial(unpack, len))
            )
        case "ingest":
            return Proved(corpus.hits, ingest, Work(at.bytes, ingest))
        case "process":
            return Proved(corpus.hits, command, Work(at.bytes, command))
        case "memory":
            peak = Peak()
            return Proved(corpus.hits, partial(command, peak.watch), aside=lambda _: peak.figures())
        case _:
            store = stack.enter_context(Store(None))
            pipeline.ingest(store, pipeline.plan([str(at.path(one.codec))], workers=1))
            reports.prepare(store.connection)
            count = partial(reporting, one, store)
            return Proved(corpus.lines, count, Work(0, count))


# -- without a corpus ----------------------------------------------------------------------------


def compiling(one: Bench, catalogue: Catalogue, scale: float, directory: Path) -> Proved:
    """Compile the first failures of the catalogue, all at scale 1; each plain example is a hit."""
    chosen = catalogue.failures[: max(1, round(len(catalogue.failures) * scale))]
    some = measure.part(catalogue, {failure.id for failure in chosen}.__contains__)
    examples = [s.match[0].encode() for s in corpora.plain(some)]
    cache = directory if one.cached else None

    def scan(lines: Sequence[bytes]) -> int:
        return len(Engine(some, cache).scan(b"\n".join(lines)).signature)

    return Proved(
        len(examples), partial(scan, examples), Work(0, partial(scan, examples[:1]))
    )  # fmt: skip


def helping(_: Bench) -> Proved:
    """`firstfault --help` as a process; it names the command that everything begins with."""

    def show() -> int:
        command = [sys.executable, "-m", "ingest", "--help"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return int("ingest" in done.stdout)

    return Proved(1, show, Work(0, show))


def starting(directory: Path, workers: int) -> Work:
    """An ingest of nothing with so many workers: what each ingest pays before its first byte.

    Each worker gets a file that is large enough for a job of its own and, being no log, has
    nothing to be read.
    """
    place = directory / f"start-{workers}"
    place.mkdir()
    for number in range(workers if workers > 1 else 0):
        with (place / f"{number}.png").open("wb") as file:
            file.write(b"\x89PNG")
            file.truncate(pipeline.JOB_BYTES // 2 + 1)
    return Work(0, partial(ingesting, [str(place)], directory, workers=workers))


# -- works ---------------------------------------------------------------------------------------


def passing(scan: Callable[[bytes | memoryview], object], at: Setting, whole: bool) -> int:
    """Scan the text without a callback, in one call or in blocks; its bytes."""
    if whole and len(at.text) >> 32:
        raise ValueError(f"{len(at.text)} bytes in one call: Hyperscan takes less than 4 GiB")
    if whole:
        scan(at.text)
    else:
        view = memoryview(at.text)
        for begin, end in at.spans:
            scan(view[begin:end])
    return len(at.text)


def ingesting(
    paths: Sequence[str], scratch: Path, *, workers: int = 1, every_match: bool = False
) -> int:
    """Ingest paths into a new database; how many matches it holds."""
    plan = pipeline.plan(paths, workers=workers, every_match=every_match)
    with tempfile.TemporaryDirectory(dir=scratch) as place, Store(Path(place) / "db") as store:
        return pipeline.ingest(store, plan).events


def commanding(
    one: Bench,
    path: Path,
    scratch: Path,
    watch: Callable[[subprocess.Popen[str]], None] | None = None,
) -> int:
    """The same as a command of its own."""
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        command = [sys.executable, "-m", "ingest", "ingest", str(path), "--json"]
        command += ["--db", f"{place}/db", "--workers", str(one.workers)]
        command += ["--every-match"] * one.every_match
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            if watch:
                watch(process)
            out, _ = process.communicate()
        return int(json.loads(out)["events"])


def reporting(one: Bench, store: Store) -> int:
    """Run a report; the sum of its column."""
    table = reports.run(store.connection, reports.load(one.report)).table
    return sum(value or 0 for value in table.column(one.column).to_pylist())


# -- against others ------------------------------------------------------------------------------


def racing(at: Setting, rounds: int) -> Figures:
    """The speed of the matcher on blocks over that of the same loop in C, in turns.

    Nothing where that cannot be compiled. Raises CountError where it matches otherwise.
    """
    from benchmarks import peers

    chosen = [signature.pattern for signature in at.catalogue.signatures]
    scan = bench.bare(chosen, cache_directory())
    own = PatternSet(chosen, cache=cache_directory())
    view = memoryview(at.text)
    matches = sum(len(own.ends(view[begin:end])[0]) for begin, end in at.spans)
    (path,) = (path for path in at.path("none").rglob("*") if path.is_file())
    ratios: list[float] = []
    try:
        limit = peers.Limit(chosen, at.directory)
        for turn in range(rounds + 1):  # the first one compiles
            in_c = limit.scan(path)
            if in_c.matches != matches:
                raise CountError(f"hs_scan: {in_c.matches:,} matches instead of {matches:,}")
            started = time.perf_counter()
            passing(scan, at, whole=False)
            seconds = time.perf_counter() - started
            if turn:
                ratios.append(in_c.seconds[0] / seconds)
    except peers.PeerError as error:
        print(error, file=sys.stderr)
    return {"blocks_over_c": tuple(ratios)} if ratios else {}


def comparing(one: Bench, path: Path, catalogue: Catalogue, rounds: int) -> Figures:
    """The speed of firstfault's process over that of each peer that is here and counts right.

    One that was given only a piece is compared without start-up, by the median.
    """
    from benchmarks import peers

    outcomes = peers.compare(
        [path], catalogue, rounds=rounds, names=one.names or None, cores=one.workers
    )
    ours, *others = outcomes
    print(peers.table(outcomes), file=sys.stderr)
    figures: dict[str, tuple[float, ...]] = {}
    for other in others:
        if ours.result and other.result and other.whole:
            figures[other.peer.name] = ours.result.speeds_over(other.result)
        elif other.ratio_net:
            figures[other.peer.name] = (1 / other.ratio_net,)
    return figures


# The fastest well-kept library of each codec, opened in the way its documentation calls fastest.
def _zstd(path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        return zstd.ZstdFile(path)
    return zstandard.ZstdDecompressor().stream_reader(
        path.open("rb", buffering=0), read_across_frames=True
    )


_OPEN: Mapping[str, Callable[[Path], Any]] = {
    "none": lambda path: path.open("rb", buffering=0),
    "gzip": igzip.open,
    "gzip-members": igzip.open,
    "zstd": _zstd,
    "zstd-frames": _zstd,
    "lz4": lz4.frame.LZ4FrameFile,
    "bz2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
}


def unpacking(directory: Path, codec: str, take: Callable[[memoryview], int]) -> int:
    """Unpack the files, nothing else; the sum of what `take` makes of each piece."""
    buffer = memoryview(bytearray(1 << 20))
    total = 0
    for path in (path for path in directory.rglob("*") if path.is_file()):
        with closing(_OPEN[codec](path)) as file:
            while size := file.readinto(buffer):
                total += take(buffer[:size])
    return total


def _lines(piece: memoryview) -> int:
    return bytes(piece).count(b"\n")


class Peak:
    """The most memory that a command's processes held resident."""

    def __init__(self) -> None:
        self._kib: dict[int, int] = {}

    def watch(self, process: subprocess.Popen[str]) -> None:
        """Look at the process and its children until it ends.

        What the kernel calls VmHWM only grows, so that only the last instants can be missed; the
        usual ru_maxrss of a child begins with what its parent held.
        """
        root = process.pid
        while process.poll() is None:
            for pid in (root, *_below(root)):
                if held := _high_water(pid):
                    self._kib[0 if pid == root else pid] = held
            time.sleep(0.02)

    def figures(self) -> Figures:
        """MB of the parent and of its largest child; where it has none, it is both."""
        parent = self._kib.pop(0, 0)
        worker = max(self._kib.values(), default=parent)
        return {"parent_mb": (parent * 1024 / 1e6,), "worker_mb": (worker * 1024 / 1e6,)}


def _below(pid: int) -> Iterator[int]:
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = listed.read_text().split()
        except OSError:  # it has just ended
            continue
        for child in map(int, children):
            yield child
            yield from _below(child)


def _high_water(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
