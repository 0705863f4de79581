"""Give other tools the same work and compare: whole processes, each checked for its counts first.

`python -m benchmarks.peers PATH...` prints the table. Hidden here: how each tool is called, in
which dialect it reads the patterns, what it must count, and how large a piece it can be given.
Python packages run in the interpreter that FIRSTFAULT_PEERS_PYTHON names, else in this one.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import lz4.frame
import numpy as np
from numpy.typing import NDArray

from benchmarks.patterns import DIALECTS, said
from ingest.blocks import open_source
from ingest.files import discover
from ingest.streams import zstd
from matcher.bench import BenchResult
from matcher.catalogue import Catalogue, load
from matcher.engine import Engine, PatternSet, cache_directory, decisive, within_line

ROOT = Path(__file__).resolve().parents[1]

# Suffix -> how a file of that codec is opened, to read and to write.
_OPEN: dict[str, Callable[..., Any]] = {
    "": open,
    ".gz": partial(gzip.open, compresslevel=6),
    ".zst": zstd.open,
    ".lz4": lz4.frame.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
PIECES = (1 << 20, 16 << 20, 256 << 20)  # what a slow peer is tried on before the whole
SLOW = 20  # a peer that would take more than so many times as long as firstfault gets a piece
SMALL = 4  # and a piece should not take more than so many times as long
_LEAST_S = 10.0  # any may take as long as this
_PATIENCE_S = 60.0  # beside that, for compiling the patterns
_DATA_BYTES = 8 << 30  # memory of a peer: one regex tool took 16 GiB for a single pattern
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Peer:
    """Another tool. `which` says whether it tells the patterns that a line has.

    `count` reads from its output what it found: (line, pattern) pairs where `which`, else lines
    with a hit. `command` is None where the tool is absent or cannot read such files. A tool without
    `threads` gets its share of the files on each core, a process each.
    """

    name: str
    shows: str
    codecs: tuple[str, ...]
    which: bool
    version: Callable[[], str | None]
    command: Callable[[Sequence[Path], Path, int], list[str] | None]
    count: Callable[[bytes], int]
    install: str
    dialect: str = "perl"
    threads: bool = False


class PeerOutcome(NamedTuple):
    """What a peer made of the work; `problem` says why there are no times.

    `bytes` is the decompressed size of what it was given, `whole` whether that was all. `start` is
    what it takes for empty files: imports and compiling. Ratios are speeds over firstfault's,
    medians of the rounds: `ratio` of whole processes, None for a piece, in which start-up weighs
    more; `ratio_net` without start-up. CPU seconds are medians too: where others use the machine
    they say more than the clock.
    """

    peer: Peer
    version: str | None
    bytes: int = 0
    whole: bool = True
    left_out: int = 0
    expected: int | None = None
    counted: int | None = None
    problem: str | None = None
    result: BenchResult | None = None
    start: BenchResult | None = None
    cpu_s: float | None = None
    start_cpu_s: float | None = None
    ratio: float | None = None
    ratio_net: float | None = None


class PeerError(Exception):
    """A peer gave no count; the message says why."""


# -- the peers -----------------------------------------------------------------------------------


def known() -> list[Peer]:
    """All peers, firstfault first; whether they are here, `version` says."""
    lines, pairs = "lines with a hit", "(line, pattern) pairs"
    every = tuple(_OPEN)
    return [
        Peer(
            "firstfault",
            "rows with time, rank, host",
            every,
            True,
            _ours,
            _firstfault,
            lambda output: int(json.loads(output)["events"]),
            "pip install .",
            threads=True,
        ),
        _tool(
            "ripgrep",
            "rg",
            lambda cores: [
                "--no-config",
                "-acIz",
                "--no-unicode",
                "--dfa-size-limit",
                "1G",
                "-j",
                str(cores),
                "-f",
            ],
            every,
            "apt install ripgrep",
            threads=True,
        ),
        _tool(
            "ugrep",
            "ugrep",
            lambda cores: ["-UachzP", "-J", str(cores), "-f"],
            every,
            "apt install ugrep",
            dialect="ugrep",
            threads=True,
        ),
        _tool("grep", "grep", lambda _: ["-Each", "-f"], ("",), "apt install grep", "posix"),
        _package("vectorgrep", pairs, install="vectorgrep", codecs=("", ".gz", ".zst")),
        _package("pyperscan", pairs, install="pyperscan"),
        _package("pyhyperscan", pairs, install="hyperscan"),
        _package("chdb", pairs, install="chdb", codecs=every, dialect="ascii", threads=True),
        _package("re2_set", pairs, install="google-re2"),
        _package("re_each", pairs),
        _package("re_any", lines, which=False),
        _package("pyarrow", lines, which=False, install="pyarrow", needs=("pyarrow", "numpy")),
        _package("polars", lines, which=False, install="polars", dialect="unicode", threads=True),
        _package(
            "duckdb",
            lines,
            which=False,
            install="duckdb",
            needs=("duckdb", "pyarrow"),
            threads=True,
        ),
    ]


def _firstfault(paths: Sequence[Path], _patterns: Path, cores: int) -> list[str]:
    """Into the database that the directory has by default: each run begins in an empty one."""
    command = [sys.executable, "-m", "ingest", "ingest", "--json", "--workers", str(cores)]
    return [*command, *map(str, paths)]


@cache
def _ours() -> str | None:
    line = (ROOT / "pyproject.toml").read_text().split("\nversion = ")[1].splitlines()[0]
    return line.strip('"')


def _tool(
    name: str,
    program: str,
    options: Callable[[int], list[str]],
    codecs: tuple[str, ...],
    install: str,
    dialect: str = "perl",
    *,
    threads: bool = False,
) -> Peer:
    """A command of the grep family: it prints a number a file."""

    def command(paths: Sequence[Path], patterns: Path, cores: int) -> list[str] | None:
        if not shutil.which(program) or not _reads(codecs, paths):
            return None
        return [program, *options(cores), str(patterns), "--", *map(str, paths)]

    return Peer(
        name,
        "lines with a hit",
        codecs,
        False,
        lambda: _tool_version(program),
        command,
        _sum,
        install,
        dialect,
        threads,
    )


@cache
def _tool_version(program: str) -> str | None:
    if not shutil.which(program):
        return None
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    words = said.stdout.splitlines()[0].split() if said.stdout else []
    return next((word for word in words if word[:1].isdigit()), "?")


def _package(
    name: str,
    shows: str,
    *,
    which: bool = True,
    install: str = "",
    codecs: tuple[str, ...] = ("",),
    needs: tuple[str, ...] = (),
    dialect: str = "perl",
    threads: bool = False,
) -> Peer:
    """A Python package, run by peers_run.py; one of the standard library has no `install`."""

    def version() -> str | None:
        versions = _package_versions()
        if not all(versions.get(need) for need in needs or (install,)):
            return None
        return versions[install]

    def command(paths: Sequence[Path], patterns: Path, cores: int) -> list[str] | None:
        if not version() or not _reads(codecs, paths):
            return None
        script = str(Path(__file__).with_name("peers_run.py"))
        return [_python(), script, name, str(cores), str(patterns), *map(str, paths)]

    return Peer(
        name,
        shows,
        codecs,
        which,
        version,
        command,
        _sum,
        f"pip install {install}" if install else "Python",
        dialect,
        threads,
    )


def _python() -> str:
    return os.environ.get("FIRSTFAULT_PEERS_PYTHON", sys.executable)


_VERSIONS = """
import importlib.metadata as metadata, json, platform, sys
found = {"": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""


@cache
def _package_versions() -> dict[str, str | None]:
    """Distribution -> version in the interpreter of the peers, that one's own as ``."""
    names = ("vectorgrep", "pyperscan", "hyperscan", "chdb", "google-re2", "pyarrow", "numpy")
    command = [_python(), "-c", _VERSIONS, *names, "polars", "duckdb"]
    try:
        done = subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PeerError(f"{_python()}: no Python: mend FIRSTFAULT_PEERS_PYTHON: {error}") from error
    versions: dict[str, str | None] = json.loads(done.stdout)
    return versions


def _reads(codecs: Collection[str], paths: Sequence[Path]) -> bool:
    return all(_codec(path) in codecs for path in paths)


def _codec(path: Path) -> str:
    return path.suffix if path.suffix in _OPEN else ""


def _sum(output: bytes) -> int:
    return sum(map(int, output.split()))


# -- what must be counted ------------------------------------------------------------------------


class Truth(NamedTuple):
    """What is in some files: `line` and `pattern` of each pair, shape (n,), and bytes.

    Lines end at LF alone. `events` is how many rows firstfault must give, where no signature of
    the lines depends on what stands around them.
    """

    bytes: int
    line: NDArray[np.int64]
    pattern: NDArray[np.int64]
    events: int

    def expected(self, kept: Collection[int], *, which: bool) -> int:
        """Pairs, or else lines, of these patterns."""
        mine = np.isin(self.pattern, np.fromiter(kept, np.int64))
        return int(mine.sum()) if which else len(np.unique(self.line[mine]))


def truth(paths: Sequence[Path], patterns: Sequence[str], engine: Engine) -> Truth:
    """Scan the files with Hyperscan, in blocks of whole lines however long."""
    compiled = PatternSet(patterns, cache=cache_directory())
    size = lines = 0
    found: list[NDArray[np.int64]] = [np.empty((0, 2), np.int64)]
    for path in paths:
        for block in _blocks(path):
            ids, ends = compiled.ends(block)
            breaks = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            if ids:
                # A match may end before its LF (`$`), never behind it.
                line = np.searchsorted(breaks, np.array(ends, np.int64)) + lines
                found.append(np.unique(np.stack((line, np.array(ids, np.int64)), axis=1), axis=0))
            size += len(block)
            lines += len(breaks) + (not block.endswith(b"\n"))
    pairs = np.concatenate(found)
    events = sum(
        len(engine.scan(block.data, block.start, block.end).signature)
        for source in discover([str(path) for path in paths])
        for _, reader in open_source(source)
        for block in reader or ()
    )
    return Truth(size, pairs[:, 0], pairs[:, 1], events)


def _blocks(path: Path) -> Iterator[bytes]:
    """Whole lines of a file, about 1 MiB or a line at once."""
    with _OPEN[_codec(path)](path, "rb") as file:
        parts: list[bytes] = []
        while read := file.read(_BLOCK):
            cut = read.rfind(b"\n") + 1
            if cut:
                yield b"".join((*parts, read[:cut]))
                parts = []
            parts.append(read[cut:])
        if rest := b"".join(parts):
            yield rest


# -- comparing -----------------------------------------------------------------------------------


class _Run(NamedTuple):
    """One run of whole processes: wall clock, CPU of them and their children, and the count."""

    seconds: float
    cpu_s: float
    counted: int


class _Piece(NamedTuple):
    """Files to scan, as many empty ones, and what is in them."""

    paths: Sequence[Path]
    empty: Sequence[Path]
    truth: Truth
    whole: bool


@dataclass(slots=True)
class _Work:
    """What became of a peer so far: `piece` is the largest on which it counted, in `probe_s`.

    `runs` are its rounds on that, `starts` those on empty files.
    """

    peer: Peer
    piece: _Piece | None = None
    expected: int | None = None
    counted: int | None = None
    problem: str | None = None
    patience_s: float | None = None
    probe_s: float = 0.0
    runs: list[_Run] = field(default_factory=list)
    starts: list[_Run] = field(default_factory=list)


def compare(
    paths: Sequence[str | Path],
    catalogue: Catalogue,
    *,
    rounds: int,
    names: Collection[str] | None = None,
    cores: int = 1,
) -> list[PeerOutcome]:
    """Run each peer over the files on so many cores, in interleaved rounds of whole processes.

    `paths` are files, or directories of them, all in one codec. Each peer is first run for its
    count; one that counts otherwise keeps no time. firstfault, to which ratios refer, always runs.
    Raises PeerError where there is nothing to scan or a name is unknown.
    """
    files = _files(paths)
    if unknown := set(names or ()) - {peer.name for peer in known()}:
        there = ", ".join(peer.name for peer in known())
        raise PeerError(f"{', '.join(sorted(unknown))}: no such peer: there are {there}")
    ours, *others = known()
    with tempfile.TemporaryDirectory() as directory:
        field_ = _Field(files, catalogue, cores, Path(directory))
        base = field_.prove(ours, None)
        if not base.piece:
            raise PeerError(f"{ours.name}: {base.problem}: without it there is nothing to compare")
        works = [field_.prove(p, base) for p in others if names is None or p.name in names]
        for _ in range(rounds):
            for work in (base, *works):
                field_.run_round(work)
        return [field_.outcome(work, base) for work in (base, *works)]


def _files(paths: Sequence[str | Path]) -> list[Path]:
    files: list[Path] = []
    for path in map(Path, paths):
        within = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        files += (p.resolve() for p in within)
    if not files:
        raise PeerError("no file to scan: give files or directories of them")
    if len({_codec(path) for path in files}) > 1:
        raise PeerError("the files have several codecs: compare one codec at a time")
    return files


class _Field:
    """What the peers of one comparison share: the pieces, and the patterns in each dialect."""

    def __init__(self, files: list[Path], catalogue: Catalogue, cores: int, scratch: Path) -> None:
        self._files, self._codec, self._cores, self._scratch = (
            files,
            _codec(files[0]),
            cores,
            scratch,
        )
        self._patterns = [within_line(signature.pattern) for signature in catalogue.signatures]
        self._engine = Engine(catalogue, cache_directory())
        self._kept = {
            dialect: write_patterns(self._patterns, dialect, scratch / dialect)
            for dialect in DIALECTS
        }
        self._pieces: dict[int, _Piece] = {}

    def prove(self, peer: Peer, base: _Work | None) -> _Work:
        """Find the largest piece that a peer takes in good time, and whether it counts right."""
        work = _Work(peer)
        if peer.version() is None:
            work.problem = f"absent: {peer.install}"
        elif not _reads(peer.codecs, self._files):
            work.problem = f"does not read {self._codec or 'plain files'}"
        else:
            try:
                self._climb(work, base.probe_s if base else None)
            except (PeerError, subprocess.TimeoutExpired) as error:
                work.problem = _said(error)
        return work

    def _climb(self, work: _Work, base_s: float | None) -> None:
        """Count on ever larger pieces; stop at a wrong count, or where the next would be slow."""
        sizes = [0]
        if base_s:
            sizes = [size for size in PIECES if size < self._piece(0).truth.bytes] + sizes
            work.patience_s = 2 * SLOW * base_s + _PATIENCE_S
        started = 0.0
        for size in sizes:
            piece = self._piece(size)
            try:
                if work.piece and base_s:
                    budget = max(base_s * (SMALL if size else SLOW), _LEAST_S)
                    started = started or self._run(work, work.piece.empty).seconds
                    net = max(0.0, work.probe_s - started)
                    grown = net * piece.truth.bytes / work.piece.truth.bytes
                    # Where start-up is most of it, a larger piece must tell.
                    if started + grown > budget and (net > started or not size):
                        return
                seconds, _, counted = self._run(work, piece.paths)
            except subprocess.TimeoutExpired:
                if not work.piece:
                    raise
                return
            work.piece, work.counted, work.probe_s = piece, counted, seconds
            work.expected = self._expected(work.peer, piece.truth)
            if counted != work.expected:
                work.problem = f"counted {counted} instead of {work.expected}"
                return

    def _expected(self, peer: Peer, truth_: Truth) -> int:
        if peer.name == "firstfault":
            return truth_.events
        return truth_.expected(self._kept[peer.dialect], which=peer.which)

    def _piece(self, size: int) -> _Piece:
        """About so many first bytes of the first file in its codec; all files for 0."""
        if size not in self._pieces:
            paths: Sequence[Path] = self._files
            if size:
                with _OPEN[self._codec](self._files[0], "rb") as file:
                    head = file.read(size)
                paths = self._written(f"piece-{size}", head[: head.rfind(b"\n") + 1] or head, 1)
            empty = self._written(f"empty-{size}", b"", len(paths))
            found = truth(paths, self._patterns, self._engine)
            self._pieces[size] = _Piece(paths, empty, found, size == 0)
        return self._pieces[size]

    def _written(self, name: str, text: bytes, number: int) -> list[Path]:
        paths = [self._scratch / f"{name}-{place}.log{self._codec}" for place in range(number)]
        for path in paths:
            with _OPEN[self._codec](path, "wb") as file:
                file.write(text)
        return paths

    def _run(self, work: _Work, paths: Sequence[Path]) -> _Run:
        """Run a peer; raises PeerError where it fails and TimeoutExpired beyond its patience."""
        peer = work.peer
        shares = 1 if peer.threads else min(self._cores, len(paths))
        patterns = self._scratch / peer.dialect
        commands = [peer.command(paths[n::shares], patterns, self._cores) for n in range(shares)]
        with tempfile.TemporaryDirectory(dir=self._scratch) as directory:
            output, seconds, cpu_s = _processes(
                [command for command in commands if command],
                Path(directory),
                self._cores,
                work.patience_s,
            )
        try:
            return _Run(seconds, cpu_s, peer.count(output))
        except (ValueError, KeyError) as error:
            raise PeerError(f"printed no count but {output[:60]!r}") from error

    def run_round(self, work: _Work) -> None:
        """Once more on the piece and on empty files, unless something went wrong before."""
        if work.problem or not work.piece:
            return
        try:
            start = self._run(work, work.piece.empty)
            run = self._run(work, work.piece.paths)
        except (PeerError, subprocess.TimeoutExpired) as error:
            work.problem = _said(error)
            return
        work.starts.append(start)
        work.runs.append(run)
        if run.counted != work.expected:
            work.problem = f"counted {run.counted} instead of {work.expected}"

    def outcome(self, work: _Work, base: _Work) -> PeerOutcome:
        """What a peer did, beside firstfault in the same rounds."""
        outcome = PeerOutcome(
            work.peer,
            work.peer.version(),
            left_out=len(self._patterns) - len(self._kept[work.peer.dialect]),
            expected=work.expected,
            counted=work.counted,
            problem=work.problem,
        )
        if work.piece:
            outcome = outcome._replace(bytes=work.piece.truth.bytes, whole=work.piece.whole)
        mine, ours = _results(work), _results(base)
        if not mine:
            return outcome
        outcome = outcome._replace(
            result=mine[0],
            start=mine[1],
            cpu_s=statistics.median(run.cpu_s for run in work.runs),
            start_cpu_s=statistics.median(run.cpu_s for run in work.starts),
        )
        if not ours:
            return outcome
        return outcome._replace(
            ratio=_ratio(mine[0], ours[0]) if outcome.whole else None,
            ratio_net=_ratio(mine[0].less(mine[1]), ours[0].less(ours[1])),
        )


def _results(work: _Work) -> tuple[BenchResult, BenchResult] | None:
    """The rounds of a work and those of its start-up, None where there are none to trust."""
    if work.problem or not work.piece or work.counted is None or not work.runs:
        return None
    whole = BenchResult(
        work.piece.truth.bytes, work.counted, tuple(run.seconds for run in work.runs)
    )
    return whole, BenchResult(0, 0, tuple(run.seconds for run in work.starts))


def _ratio(mine: BenchResult | None, base: BenchResult | None) -> float | None:
    """Speed over the base's, of other bytes maybe: median of the rounds' ratios."""
    if not mine or not base:
        return None
    return mine.speed_over(base) * mine.bytes / base.bytes


def _said(error: PeerError | subprocess.TimeoutExpired) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"took more than {error.timeout:.0f} s"
    return str(error)


def write_patterns(patterns: Sequence[str], dialect: str, path: Path) -> set[int]:
    """Write patterns in a dialect, one a line; returns the numbers of those that it can say."""
    words = {n: word for n, p in enumerate(patterns) if (word := said(p, dialect)) is not None}
    path.write_text("".join(f"{word}\n" for word in words.values()))
    return set(words)


def _processes(
    commands: Sequence[list[str]], directory: Path, cores: int, patience: float | None
) -> tuple[bytes, float, float]:
    """Output, seconds and CPU seconds of commands run side by side on the first so many cores.

    Raises PeerError where one fails, TimeoutExpired where they take longer than `patience`.
    """
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))
    limits = ["prlimit", f"--data={_DATA_BYTES}", "taskset", "-c", cpus]
    environment = os.environ | {
        "LC_ALL": "C",
        "PYTHONPATH": str(ROOT),
        "POLARS_MAX_THREADS": str(cores),
        "OMP_NUM_THREADS": str(cores),
    }
    used, began = _cpu_s(), time.perf_counter()
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(
                    [*limits, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=directory,
                    env=environment,
                    start_new_session=True,
                )
            )
            for command in commands
        ]
        stack.callback(_end, running)
        output = b"".join([_output(process, began, patience) for process in running])
        return output, time.perf_counter() - began, _cpu_s() - used


def _output(process: subprocess.Popen[bytes], began: float, patience: float | None) -> bytes:
    left = None if patience is None else max(0.0, began + patience - time.perf_counter())
    try:
        out, err = process.communicate(timeout=left)
    except subprocess.TimeoutExpired as error:
        raise subprocess.TimeoutExpired(error.cmd, patience or 0.0) from None
    # To the grep family 1 means no hit, and then it is silent.
    if process.returncode not in (0, 1) or (process.returncode and err):
        last = err.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise PeerError(f"exit code {process.returncode}: {last[0].strip()[:100]}")
    return out


def _cpu_s() -> float:
    """CPU seconds of all children that were waited for, and of theirs."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def _end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what still runs, with what it started."""
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


# -- the limit -----------------------------------------------------------------------------------


class RawScan(NamedTuple):
    """hs_scan from C on a file in memory: how many matches, one an end offset, and seconds."""

    matches: int
    seconds: tuple[float, ...]


class Limit:
    """hs_scan.c, compiled; `database` holds the patterns as its library serialises them."""

    def __init__(self, patterns: Sequence[str], directory: Path) -> None:
        """Raises PeerError where there is no C compiler or no Hyperscan for it."""
        self._program, self._database = directory / "hs_scan", directory / "patterns.hsdb"
        self._patterns = directory / "patterns.txt"
        self._patterns.write_text(
            "".join(f"{within_line(decisive(pattern))}\n" for pattern in patterns)
        )
        compiler = shutil.which("cc")
        if not compiler:
            raise PeerError("hs_scan: no C compiler: apt install gcc libhyperscan-dev")
        source = Path(__file__).with_name("hs_scan.c")
        flags = ["-O2", "-D_GNU_SOURCE", "-o", str(self._program)]
        done = subprocess.run(
            [compiler, *flags, str(source), "-lhs"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise PeerError("hs_scan: does not compile here: apt install gcc libhyperscan-dev")

    def scan(self, path: Path, *, block: int = _BLOCK, rounds: int = 1) -> RawScan:
        """Scan a plain file in blocks of whole lines, or as one buffer where `block` is 0.

        The first call compiles the patterns. Raises PeerError where it fails.
        """
        numbers = [str(block), str(rounds)]
        command = [*map(str, (self._program, self._patterns, self._database, path)), *numbers]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerError(done.stderr.strip() or f"hs_scan: exit code {done.returncode}")
        rows = [line.split() for line in done.stdout.splitlines()]
        return RawScan(int(rows[0][1]), tuple(float(seconds) for seconds, _ in rows))


# -- the table -----------------------------------------------------------------------------------

_HEAD = (
    *(
        "peer",
        "version",
        "finds",
        "MB",
        "count",
        "left out",
        "s",
        "CPU s",
        "start s",
        "start CPU s",
    ),
    *("GB/s", "net GB/s", "ratio", "net ratio"),
)


def table(outcomes: Sequence[PeerOutcome]) -> str:
    """The outcomes as Markdown; MB and GB are 10^6 and 10^9 decompressed bytes."""
    rows = [_HEAD, ("---", "---", "---", *["---:"] * (len(_HEAD) - 3))]
    for outcome in outcomes:
        names = (outcome.peer.name, outcome.version or "", outcome.peer.shows)
        if outcome.problem or not outcome.result or not outcome.start:
            rows.append((*names, outcome.problem or "not timed", *[""] * (len(_HEAD) - 4)))
            continue
        net = outcome.result.less(outcome.start)
        rows.append(
            (
                *names,
                f"{outcome.bytes / 1e6:,.3g}" + ("" if outcome.whole else " (piece)"),
                f"{outcome.counted:,}",
                str(outcome.left_out or ""),
                *(
                    "" if figure is None else f"{figure:.3g}"
                    for figure in (
                        *(outcome.result.median_s, outcome.cpu_s),
                        *(outcome.start.median_s, outcome.start_cpu_s),
                        *(outcome.result.gb_s, net and net.gb_s, outcome.ratio, outcome.ratio_net),
                    )
                ),
            )
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare on the command line; 1 where a peer that is here did not count right, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--names", nargs="+", metavar="NAME", help="peers; all if not given")
    chosen = parser.parse_args(arguments)
    catalogue = load()
    try:
        outcomes = compare(
            chosen.paths, catalogue, rounds=chosen.rounds, names=chosen.names, cores=chosen.cores
        )
    except (PeerError, OSError) as error:
        parser.error(str(error))
    print(table(outcomes), end="")
    return int(any(outcome.version and outcome.counted != outcome.expected for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
