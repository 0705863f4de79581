"""Run files through workers into a store, in bounded memory, and say what came of it.

One path from bytes to rows: sources -> blocks -> hits -> rows, in a worker; files -> transaction,
in the one process that writes. A file that fails is a row with its reason, never an exception.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import itertools
import operator
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest import blocks, files, headers, parts, records, schema
from ingest.files import LogFile, Source
from ingest.parts import Found, Part, Tally
from ingest.records import Options, Rules
from ingest.rows import Batches, FileRow, Rows, StoreError
from matcher import engine
from matcher.catalogue import BUILT_IN, Catalogue, load
from matcher.mask import Level, Masker
from matcher.pseudonyms import Pseudonyms, Renamer, new_key

if TYPE_CHECKING:
    from ingest.executors import WorkerDied
    from ingest.store import Store

# A transaction takes about this much. One costs 10 ms, which 256 files would feel.
TRANSACTION_FILES, TRANSACTION_BYTES, TRANSACTION_SECONDS = 4_096, 32 << 20, 2.0
JOB_BYTES, JOB_FILES = 64 << 20, 256  # either takes a worker about 80 ms
# Up to here one process is done before workers have started, which takes them half a second.
ALONE_FILES, ALONE_BYTES = 2_048, 32 << 20
JOBS_IN_SIGHT = 8  # for each worker: what a file's size is held against
BATCH_ROWS, BATCH_BYTES = 16_384, 16 << 20
# What a job makes beyond this goes through a file: many jobs may wait for the one that writes.
SPOOL_BYTES = 1 << 20


class UsageError(Exception):
    """What was asked for makes no sense; the message says what would."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read, and how; see `plan`."""

    paths: tuple[str, ...]
    cluster: str | None
    layout: str | None
    tz: str
    zones: Mapping[str, str | None]
    since_us: int | None
    workers: int
    catalogues: tuple[Path, ...]
    metrics: str
    every_match: bool
    mask: Level
    rescan: bool
    block_bytes: int
    key: bytes = field(
        default=b"", repr=False
    )  # of the pseudonyms that stand for names; none where names stay

    def looked_for(self, catalogue: Catalogue) -> Catalogue:
        """What is to be looked for: signatures of metrics only where they are asked for."""
        wanted = self.metrics != "off" or self.every_match
        return catalogue if wanted else catalogue.without_metrics()

    @property
    def options(self) -> Options:
        """What recording needs of the plan."""
        return Options(every_match=self.every_match, metrics=self.metrics)

    @property
    def names(self) -> Pseudonyms | None:
        """The pseudonyms that stand for names; None where names stay."""
        return Pseudonyms(self.key) if self.key else None

    def keyed(self, key: bytes = b"") -> Plan:
        """This with a key, its own or else `key` or a new one, where names are to be replaced."""
        if self.mask != "strict" or self.key:
            return self
        return replace(self, key=key or new_key())

    def zone(self, cluster: str | None) -> ZoneInfo:
        """The zone of times that name none, for files of this cluster."""
        return ZoneInfo(self.zones.get(cluster or "") or self.tz)

    def sources(self) -> Iterator[Source]:
        """What there is to read."""
        return files.discover(
            self.paths, cluster=self.cluster, layout=self.layout, clusters=frozenset(self.zones)
        )

    def digest(self, catalogue: Catalogue) -> str:
        """Digest of all that decides what a file's rows are, beside its bytes."""
        rest = (
            self.layout,
            self.tz,
            sorted(map(str, self.zones.items())),
            self.metrics,
            self.every_match,
            self.mask,
            _version(),
        )
        return f"{catalogue.digest}-{hashlib.sha256(repr(rest).encode()).hexdigest()[:8]}"


def plan(
    paths: Sequence[str],
    *,
    cluster: str | None = None,
    layout: str | None = None,
    tz: str = "UTC",
    since: str | None = None,
    workers: int = 0,
    catalogues: Sequence[Path] = (),
    metrics: str = "off",
    every_match: bool = False,
    mask: Level = "default",
    rescan: bool = False,
    block_bytes: int = blocks.BLOCK_BYTES,
) -> Plan:
    """A checked plan. Raises UsageError for a zone or time that does not exist.

    Names and zones of clusters come from `firstfault.toml` in the working directory and in the
    directories among the paths: `[clusters.NAME]` with `tz = "..."`; the paths have the last word.
    """
    _check_zone(tz, f"--tz {tz}")
    zones: dict[str, str | None] = {}
    for directory in (".", *(path for path in paths if Path(path).is_dir())):
        zones |= _zones(Path(directory) / CONFIG_NAME)
    since_us = None
    if since is not None:
        try:
            moment = datetime.fromisoformat(since)
        except ValueError:
            raise UsageError(f"--since {since}: give an ISO time such as 2026-09-01") from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(tz))
        since_us = int(moment.timestamp() * 1_000_000)
    return Plan(
        paths=tuple(paths),
        cluster=cluster and files.storable(cluster),
        layout=layout,
        tz=tz,
        zones=zones,
        since_us=since_us,
        # A spawned worker has no stdin of ours to read.
        workers=1 if files.STDIN in paths else workers or len(os.sched_getaffinity(0)),
        catalogues=tuple(catalogues) or (BUILT_IN,),
        metrics=metrics,
        every_match=every_match,
        mask=mask,
        rescan=rescan,
        block_bytes=block_bytes,
    )


CONFIG_NAME = "firstfault.toml"


def _zones(path: Path) -> dict[str, str | None]:
    """Clusters that a firstfault.toml names, with their zones; none without such a file."""
    if not path.exists():
        return {}
    import tomllib

    try:
        clusters = tomllib.loads(path.read_text()).get("clusters", {})
        zones: dict[str, str | None] = {name: entry.get("tz") for name, entry in clusters.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f'{path}: {error}: it holds tables [clusters.NAME] with tz = "Europe/Paris"'
        ) from None
    for name, zone in zones.items():
        if zone is not None:
            _check_zone(zone, f"{path}: clusters.{name}: {zone}")
    return zones


def _check_zone(zone: str, said: str) -> None:
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, KeyError, TypeError):
        raise UsageError(f"{said}: no such zone: give one like Europe/Paris") from None


class Progress:
    """Where progress is told; this one is silent."""

    def update(self, *, done: int, total: int, events: int, files: int) -> None:
        """Bytes on disk done and known of, events and files so far."""


class Summary(NamedTuple):
    """What came of an ingest."""

    files: int
    ok: int
    truncated: int
    failed: int
    skipped: int
    unchanged: int
    bytes: int
    lines: int
    events: int
    masked: int
    seconds: float

    def text(self) -> str:
        """The summary in two lines."""
        rate = self.bytes / self.seconds / 1e6 if self.seconds else 0.0
        lost = ", ".join(
            f"{count} {word}"
            for word, count in (
                ("truncated", self.truncated),
                ("failed", self.failed),
                ("skipped", self.skipped),
                ("unchanged", self.unchanged),
            )
            if count
        )
        return (
            f"{self.files} files{f' ({lost})' if lost else ''}, {self.lines:,} lines, "
            f"{self.bytes / 1e6:,.1f} MB in {self.seconds:.1f} s ({rate:,.0f} MB/s)\n"
            f"{self.events:,} events, {self.masked} secrets masked"
        )


def ingest(store: Store, plan: Plan, progress: Progress | None = None) -> Summary:
    """Read all files of the plan into the store.

    Raises StoreError, UsageError, CatalogueError; what is wrong with a file goes into its row.
    """
    import tempfile  # slow to load, and not needed by workers

    progress = progress or Progress()
    started = time.monotonic()
    cache = engine.cache_directory()
    catalogue = load(*plan.catalogues, cache=cache)
    scanner = engine.Engine(plan.looked_for(catalogue), cache)  # compiled once; workers load it
    digest = plan.digest(catalogue)
    plan = replace(plan, key=store.key(strict=plan.mask == "strict", given=plan.key))
    names = plan.names
    known, archives = store.known(digest), store.archives()
    arguments = _arguments(plan)
    scan_id = store.begin(_version(), engine.version(), catalogue, arguments)
    tally = dict.fromkeys(Summary._fields, 0)
    sizes = {"done": 0, "total": 0}

    def fresh() -> Iterator[Source]:
        for source in plan.sources():
            file_id = identity(source.cluster, source.path, plan.key)
            before = known.get(file_id)
            same = before == (source.size, source.mtime_us, True)
            if same and not plan.rescan and source.location != files.STDIN:
                tally["unchanged"] += 1
            elif not _too_old(source, plan):
                sizes["total"] += source.size or 0
                if before is not None and before[:2] != (source.size, source.mtime_us):
                    _refuse_other(source, store.location(file_id))
                if file_id in archives:
                    store.forget(file_id)
                yield source

    spool = (
        tempfile.mkdtemp(prefix=f"{store.path.name}.spool-", dir=store.path.parent)
        if store.path
        else tempfile.mkdtemp(prefix="firstfault-")
    )
    try:
        with _Writer(store, scan_id) as writer:
            for done, rows in _results(plan, scanner, digest, spool, fresh()):
                writer.add(rows)
                for row in rows[0].files if rows else ():
                    _count(tally, row)
                sizes["done"] += done
                progress.update(**sizes, events=tally["events"], files=tally["files"])
        if names is not None:
            store.rename(names)
        store.finish(scan_id)
    finally:
        shutil.rmtree(spool, ignore_errors=True)
    tally.pop("seconds")
    return Summary(**tally, seconds=time.monotonic() - started)


def _arguments(plan: Plan) -> dict[str, object]:
    """What was asked for, as `scans` has it."""
    names = plan.names
    text = names.renamer().text if names else str
    return {
        "paths": [text(files.storable(path)) for path in plan.paths],
        "cluster": plan.cluster and text(plan.cluster),
        "layout": plan.layout and text(plan.layout),
    }


def _refuse_other(source: Source, before: str | None) -> None:
    """Raise UsageError where another file, still there, is stored under this file's path.

    Its rows would be replaced by those of a file that has nothing to do with it. A tree that has
    moved is no such case: where it was, nothing is left.
    """
    here = (None, files.storable(source.location), files.STDIN)
    if before not in here and Path(before or "").exists():
        raise UsageError(
            f"{source.location}: the database has {before} under the same path "
            f"'{source.path}': ingest a directory above both, or tell them apart by --cluster"
        )


def results(plan: Plan) -> Iterator[Rows]:
    """The rows of each source of the plan, read in this process; nothing is stored."""
    catalogue = load(*plan.catalogues, cache=engine.cache_directory())
    scanner = engine.Engine(plan.looked_for(catalogue), engine.cache_directory())
    plan = plan.keyed()
    _prepare(plan, scanner, plan.digest(catalogue), None)
    for source in plan.sources():
        yield _read_whole([source])


def _count(tally: dict[str, Any], row: FileRow) -> None:
    tally["files"] += row.kind != "archive"
    tally[row.status] += row.kind != "archive" or row.status != "ok"
    tally["bytes"] += row.raw_bytes or 0
    tally["lines"] += row.lines or 0
    tally["events"] += row.events
    tally["masked"] += row.masked or 0


def _too_old(source: Source, plan: Plan) -> bool:
    return (
        plan.since_us is not None
        and source.mtime_us is not None
        and source.mtime_us < plan.since_us
    )


class _Writer:
    """Gathers results into transactions of a good size."""

    def __init__(self, store: Store, scan_id: int) -> None:
        self._store = store
        self._scan_id = scan_id
        self._clear()

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Write the rest, also when interrupted: whole files are worth keeping."""
        if kind is None or kind is KeyboardInterrupt:
            self.flush()

    def add(self, rows: Sequence[Rows]) -> None:
        """Take what must be written together."""
        self._waiting += rows
        self._files += sum(len(one.files) for one in rows)
        self._bytes += sum(one.events.held_bytes + one.evidence.held_bytes for one in rows)
        if (
            self._files >= TRANSACTION_FILES
            or self._bytes >= TRANSACTION_BYTES
            or time.monotonic() - self._since > TRANSACTION_SECONDS
        ):
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._store.write(self._waiting, self._scan_id)
            for rows in self._waiting:
                rows.events.drop()
                rows.evidence.drop()
        self._clear()

    def _clear(self) -> None:
        self._waiting: list[Rows] = []
        self._files = self._bytes = 0
        self._since = time.monotonic()


# -- jobs ----------------------------------------------------------------------------------------


Job = Sequence[Source] | Part


def _results(
    plan: Plan, scanner: engine.Engine, digest: str, spool: str, sources: Iterable[Source]
) -> Iterator[tuple[int, list[Rows]]]:
    """Bytes on disk that are done, with the rows of whole files, the `files` rows with the first.

    In this process where one worker or one job is all there is, or little to do. Where jobs are
    fewer than workers, a thread of each reads ahead: a core would be idle. A file in parts comes
    when all of them are there; one whose parts do not fit together is read again, whole, after all
    others.
    """
    jobs = _jobs(sources, plan.workers)
    first, alone = _first(jobs, plan.workers)
    if not first:
        return
    ahead = plan.workers > 1 and (alone or len(first) < plan.workers)
    if alone:
        _prepare(plan, scanner, digest, spool, ahead)
        for job in itertools.chain(first, jobs):
            assert not isinstance(job, Part)
            with _collecting_rarely():
                rows = _read_whole(job)
            yield _size(job), [rows]
        return
    from ingest import executors

    arguments = (plan, scanner.catalogue.for_workers(), digest, spool, ahead)
    pool = executors.local(plan.workers, _start_worker, arguments)
    window = plan.workers * 4
    gathering = parts.Gathering()
    told: dict[Source, int] = {}
    wanted = (
        job
        for job in itertools.chain(first, jobs)
        if not isinstance(job, Part) or job.source not in gathering.over
    )
    for job, done in executors.run(pool, _read, wanted, window):
        if not isinstance(job, Part):
            yield _size(job), [_whole(job, done, digest, plan.key)]
            continue
        told[job.source] = told.get(job.source, 0) + job.size_bytes
        if isinstance(done, parts.Found):
            yield job.size_bytes, _stitched(job.source, gathering.add(job, done), digest, plan.key)
        elif job.source not in gathering.over:
            gathering.drop(job.source)
            left = (job.source.size or 0) - told[job.source]
            yield job.size_bytes + left, [Rows([_lost(job.source, digest, plan.key)])]
    again: list[Job] = [[source] for source in gathering.again]
    for job, done in executors.run(pool, _read, again, window) if again else ():
        assert not isinstance(job, Part)
        yield _size(job) - told[job[0]], [_whole(job, done, digest, plan.key)]


def _first(jobs: Iterator[Job], workers: int) -> tuple[list[Job], bool]:
    """Jobs to begin with, and whether this process is to do these and the rest alone.

    They are all there are, or at least as many as workers.
    """
    if workers == 1:
        return list(itertools.islice(jobs, 1)), True
    first: list[Job] = []
    count = size = 0
    alone = True
    for job in jobs:
        first.append(job)
        if isinstance(job, Part):
            alone = False
        else:
            count, size = count + len(job), size + _size(job)
            alone = alone and (len(first) == 1 or (count <= ALONE_FILES and size <= ALONE_BYTES))
        if len(first) >= workers and not alone:
            break
    return first, alone


def _whole(job: Sequence[Source], done: Rows | Found | WorkerDied, digest: str, key: bytes) -> Rows:
    """The rows of a job that is no part, also where its worker was killed."""
    if isinstance(done, Rows):
        return done
    return Rows([_lost(source, digest, key) for source in job])


def _stitched(source: Source, found: Sequence[Found], digest: str, key: bytes) -> list[Rows]:
    """The rows of a file that was read in these parts."""
    if not found:
        return []
    file = files.log_file(source)
    state = "ok", None
    row = _row(file, source, found[0].tally, state, _renamer_by(key, file), digest, key)
    return [Rows([row] if part is found[0] else [], part.events, part.evidence) for part in found]


def _jobs(sources: Iterable[Source], workers: int) -> Iterator[Job]:
    """Small files together, large ones alone; for several workers the largest in sight first.

    Of those a file that would keep one worker busy when the others have no more to do goes in
    parts.
    """
    batches = _batches(sources)
    if workers == 1:
        yield from batches
        return
    ahead: list[Sequence[Source]] = []
    sizes: list[int] = []
    while True:
        more = list(itertools.islice(batches, workers * JOBS_IN_SIGHT - len(ahead)))
        ahead += more
        sizes += map(_size, more)
        if not ahead:
            return
        total, place = sum(sizes), sizes.index(max(sizes))
        job, size = ahead.pop(place), sizes.pop(place)
        large = len(job) == 1 and size * workers * 2 > total
        pieces: Sequence[Job] = parts.cut(job[0], workers) if large else ()
        yield from pieces or [job]


def _batches(sources: Iterable[Source]) -> Iterator[list[Source]]:
    job: list[Source] = []
    size = 0
    for source in sources:
        if parts.is_large(source):
            yield [source]
            continue
        if job and (size + (source.size or 0) > JOB_BYTES or len(job) >= JOB_FILES):
            yield job
            job, size = [], 0
        job.append(source)
        size += source.size or 0
    if job:
        yield job


def _size(job: Sequence[Source]) -> int:
    """Bytes on disk."""
    return sum(source.size or 0 for source in job)


# -- in a worker ---------------------------------------------------------------------------------


class _Worker(NamedTuple):
    """What a worker keeps between jobs."""

    scanner: engine.Scanner
    rules: Rules
    masker: Masker
    names: Pseudonyms | None
    survey: engine.PatternSet
    plan: Plan
    digest: str
    spool: str | None
    ahead: bool  # whether a thread reads while the blocks are worked on


_worker: _Worker | None = None


def _start_worker(plan: Plan, catalogue: Catalogue, digest: str, spool: str, ahead: bool) -> None:
    """Initializer of a worker process."""
    _prepare(plan, engine.Engine(catalogue, engine.cache_directory()), digest, spool, ahead)
    gc.freeze()
    gc.set_threshold(*_RARELY)


# Rows are many, short-lived and in no cycles: collecting costs a quarter of a storm's time.
_RARELY = (100_000, 50, 100)


@contextmanager
def _collecting_rarely() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _prepare(
    plan: Plan, scanner: engine.Engine, digest: str, spool: str | None, ahead: bool = False
) -> None:
    """Make this process ready to read."""
    global _worker
    cache = engine.cache_directory()
    _worker = _Worker(
        scanner=scanner,
        rules=Rules(scanner.catalogue, plan.options),
        masker=Masker(plan.mask, cache),
        names=plan.names,
        survey=engine.PatternSet([headers.RANK_TAG], cache=cache),
        plan=plan,
        digest=digest,
        spool=spool,
        ahead=ahead,
    )


def _read(job: Job) -> Rows | Found:
    """What comes of a job, in the process that was made ready for it."""
    if isinstance(job, Part):
        return _read_part(job)
    return _read_whole(job)


def _read_whole(job: Sequence[Source]) -> Rows:
    """The rows of every file of these sources."""
    worker = _worker
    assert worker is not None
    # Named by its first file, which no other job has.
    key = worker.plan.key
    name = f"{identity(job[0].cluster, job[0].path, key):016x}" if job else ""
    gathered = _Gathered(f"{worker.spool}/{name}" if worker.spool else None)
    survey = _Survey(worker.survey)
    read = [
        _read_file(worker, gathered, survey, source, file, reader)
        for source in job
        for file, reader in blocks.open_source(
            source, block_bytes=worker.plan.block_bytes, ahead=worker.ahead
        )
    ]
    survey.count()
    return gathered.finish([_row(*one, worker.digest, worker.plan.key) for one in read])


class _Read(NamedTuple):
    """A file that was read, but for the survey of its lines."""

    file: LogFile
    source: Source
    tally: Tally
    state: tuple[str, str | None]  # status and error
    renamer: Renamer | None


def _read_file(
    worker: _Worker,
    gathered: _Gathered,
    survey: _Survey,
    source: Source,
    file: LogFile,
    reader: blocks.Reader | None,
) -> _Read:
    """Read one file into `gathered` and `survey`."""
    started = time.monotonic()
    tz = worker.plan.zone(file.labels.cluster)
    file_id = identity(file.labels.cluster, file.path, worker.plan.key)
    renamer = _renamer(worker.names, file)
    recorder = records.Recorder(file, file_id, worker.rules, worker.masker, tz, None, renamer)
    tally = Tally()
    error = file.problem
    status = file.status if file.problem else "ok"
    if reader is not None:
        try:
            for block in reader:
                recorder.add(block, worker.scanner.scan(block.data, block.start, block.end))
                survey.add(block, tally)
                gathered.take(recorder)
        except StoreError:
            raise
        except OSError as problem:
            status, error = "failed", f"{file.path}: {problem.strerror or problem}: read it again"
        except Exception as problem:
            # Only the kind is told: the message may quote the log, unmasked.
            status, error = (
                "failed",
                (
                    f"{file.path}: {type(problem).__name__} at byte {reader.stats.raw_bytes}: "
                    "a fault of firstfault: please report it; what came before was read"
                ),
            )
        recorder.finish()
        gathered.take(recorder)
        if reader.stats.truncated and status == "ok":
            status, error = "truncated", reader.stats.truncated
        stats = reader.stats
        tally.codec, tally.sha256_head = stats.codec, stats.sha256_head
        tally.raw_bytes, tally.lines = stats.raw_bytes, stats.lines
        tally.cut_lines = stats.cut_lines
    tally.took(recorder)
    tally.seconds = time.monotonic() - started
    return _Read(file, source, tally, (status, error), renamer)


def _read_part(part: Part) -> Found:
    """What comes of one part of a file; not sound where anything is not as it should be.

    What that is, whoever reads the file whole will tell.
    """
    worker = _worker
    assert worker is not None
    started = time.monotonic()
    source = part.source
    file = files.log_file(source)
    file_id = identity(file.labels.cluster, file.path, worker.plan.key)
    name = f"{file_id:016x}-{part.number}"
    gathered = _Gathered(f"{worker.spool}/{name}" if worker.spool else None, most=0)
    guess = headers.Guess(part.near_us)
    recorder = records.Recorder(
        file,
        file_id,
        worker.rules,
        worker.masker,
        worker.plan.zone(file.labels.cluster),
        records.Entry(guess, part.warm_from) if part.number else None,
        _renamer(worker.names, file),
    )
    survey = _Survey(worker.survey)
    tally = Tally()
    first_line = begin = -1
    near_us = None
    phase = before = parts.Phase.BEFORE
    try:
        with blocks.open_from(
            source,
            functools.partial(parts.content, part),
            part.places[0].content,
            block_bytes=worker.plan.block_bytes,
        ) as (raw, reader):
            same = parts.identity(raw) == part.identity
            for phase, block in parts.phases(part, reader) if same else ():
                if phase >= parts.Phase.LAST > before:
                    near_us = recorder.near_us
                before = phase
                if begin < 0 and phase >= parts.Phase.OWN:
                    recorder.begin()
                    begin, first_line = block.offset, block.line_no
                if phase == parts.Phase.AFTER:
                    if not recorder.unsettled:
                        break
                    recorder.add(block, parts.NOTHING)
                elif phase != parts.Phase.BEFORE:
                    hits = worker.scanner.scan(block.data, block.start, block.end)
                    recorder.add(block, hits)
                if parts.Phase.OWN <= phase < parts.Phase.AFTER:
                    parts.count_own(tally, begin, block)
                    survey.add(block, tally)
                    gathered.take(recorder)
            if begin < 0:
                recorder.begin()
            ended = parts.Phase.OWN <= phase < parts.Phase.AFTER
            recorder.finish(last=ended)
            same = same and parts.identity(raw) == part.identity
    except StoreError:
        raise
    except Exception:
        return Found(tally)
    gathered.take(recorder)
    tally.codec, tally.sha256_head = reader.stats.codec, reader.stats.sha256_head
    survey.count()
    tally.took(recorder)
    tally.seconds = time.monotonic() - started
    rows = gathered.finish([])
    return Found(
        tally,
        first_line=first_line,
        ended=ended,
        sound=same and not reader.stats.truncated,
        asked=guess.asked and bool(tally.lines),
        times=guess.times,
        near_us=near_us,
        evidence_for=recorder.evidence_for,
        events=rows.events,
        evidence=rows.evidence,
    )


def _renamer(names: Pseudonyms | None, file: LogFile) -> Renamer | None:
    """For the texts of a file, where names are to be replaced: it knows those in its path."""
    if names is None:
        return None
    renamer = names.renamer()
    if file.labels.host is not None:
        renamer.learn_host(file.labels.host)
    renamer.learn(file.source)
    return renamer


def _renamer_by(key: bytes, file: LogFile) -> Renamer | None:
    return _renamer(Pseudonyms(key) if key else None, file)


def _row(
    file: LogFile,
    source: Source,
    tally: Tally,
    state: tuple[str, str | None],
    renamer: Renamer | None,
    digest: str,
    key: bytes,
) -> FileRow:
    """The `files` row of a file that was read; `state` is its status and error."""
    labels = file.labels
    status, error = state
    row = FileRow(
        file_id=identity(labels.cluster, file.path, key),
        path=file.path,
        location=files.storable(file.source),
        cluster=labels.cluster,
        run=labels.run,
        job=labels.job,
        attempt=labels.attempt,
        host=labels.host,
        rank=labels.rank,
        kind=file.kind,
        codec=tally.codec,
        size_bytes=file.size,
        raw_bytes=tally.raw_bytes,
        lines=tally.lines,
        events=tally.matches,
        first_ts=tally.first_ts,
        last_ts=tally.last_ts,
        mtime=file.mtime_us,
        ts_lines=tally.scaled(tally.stamped),
        rank_lines=tally.scaled(tally.ranked),
        cut_lines=tally.cut_lines,
        replaced_bytes=tally.replaced_bytes,
        masked=tally.masked,
        sha256_head=tally.sha256_head,
        archive_id=None if file.member is None else identity(source.cluster, source.path, key),
        status=status,
        error=error,
        seconds=tally.seconds,
        catalogue_digest=digest,
    )
    return _renamed(row, renamer, key)


def _renamed(row: FileRow, renamer: Renamer | None, key: bytes) -> FileRow:
    """The row of a file with the names in it replaced, where there is a key for that."""
    if renamer is None:
        return row
    names = Pseudonyms(key)

    def text(value: str | None) -> str | None:
        return value and renamer.text(value)

    return row._replace(
        path=renamer.text(row.path),
        location=renamer.text(row.location),
        cluster=text(row.cluster),
        run=text(row.run),
        job=text(row.job),
        host=row.host and names.host(row.host),
        # Content that is known but for a name could be tried against a plain digest.
        sha256_head=row.sha256_head and names.digest(row.sha256_head),
        error=text(row.error),
    )


def identity(cluster: str | None, path: str, key: bytes = b"") -> int:
    """64-bit hash of (cluster, path): the same on every machine, or for the same key."""
    text = f"{cluster or ''}\0{path}".encode(errors="surrogateescape")
    return int.from_bytes(hashlib.blake2b(text, key=key, digest_size=8).digest(), "big")


def _lost(source: Source, digest: str, key: bytes) -> FileRow:
    """The row of a file whose worker was killed while it read this file alone."""
    file = files.log_file(source)
    unknown: dict[str, Any] = dict.fromkeys(FileRow._fields)
    known = {
        "file_id": identity(file.labels.cluster, file.path, key),
        "path": file.path,
        "location": files.storable(file.source),
        "cluster": file.labels.cluster,
        "kind": file.kind,
        "size_bytes": file.size,
        "mtime": file.mtime_us,
        "events": 0,
        "status": "failed",
        "error": f"{file.path}: the worker that read it was killed: give more memory or look at "
        "the file with `firstfault scan`",
        "catalogue_digest": digest,
    }
    return _renamed(FileRow(**unknown | known), _renamer_by(key, file), key)


_text_of = operator.attrgetter("message.text")


class _Gathered:
    """Rows of the files of one job, packed into batches.

    A batch costs 0.7 ms whatever it holds, so small files share one.
    """

    def __init__(self, spool: str | None, most: int | None = None) -> None:
        most = SPOOL_BYTES if most is None else most
        self._rows: list[records.Row] = []
        self._lines: list[records.Line] = []
        self._bytes = 0  # of messages
        self._events = _Spool(spool and f"{spool}.events", schema.EVENTS.schema, most)
        self._evidence = _Spool(spool and f"{spool}.evidence", schema.EVIDENCE.schema, most)

    def take(self, recorder: records.Recorder) -> None:
        """Take what the recorder has closed."""
        rows, lines = recorder.take()
        self._rows += rows
        self._lines += lines
        self._bytes += sum(map(len, map(_text_of, rows)))
        if max(len(self._rows), len(self._lines)) >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            self._pack()

    def finish(self, rows: Sequence[FileRow]) -> Rows:
        """All of it, with the `files` rows."""
        self._pack()
        return Rows(rows, self._events.finish(), self._evidence.finish())

    def _pack(self) -> None:
        if self._rows:
            self._events.add(records.events(self._rows))
        if self._lines:
            self._evidence.add(records.evidence(self._lines))
        self._rows, self._lines, self._bytes = [], [], 0


class _Spool:
    """Batches of one table: few in memory, more in an Arrow stream beside the database."""

    def __init__(self, path: str | None, shape: pa.Schema, most: int) -> None:
        self._path = path
        self._schema = shape
        self._most = most
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0  # of those batches
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep the batch; raises StoreError where the spool cannot be written."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._path is None or self._bytes < self._most:
            return
        try:
            if self._writer is None:
                self._writer = pa.ipc.new_stream(self._path, self._schema)
            for waiting in self._batches:
                self._writer.write_batch(waiting)
        except OSError as error:
            raise StoreError(
                f"{self._path}: cannot be written ({error.strerror or error}): "
                "free some space there and run the same command again"
            ) from error
        self._batches, self._bytes = [], 0

    def finish(self) -> Batches:
        """All batches; the file is closed."""
        if self._writer is not None:
            self._writer.close()
        return Batches(self._batches, self._path if self._writer else None)


# Counted are the first cells of a file, then one in so many: counting costs thrice as much as
# scanning.
SURVEY_BYTES, SURVEY_WHOLE, SURVEY_EVERY = 1 << 14, 64, 256
SURVEY_TOGETHER = 1 << 18
_LF = 10
_STAMP_WITHIN = 96  # a line's own clock stands in its first bytes


class _Survey:
    """How many lines carry a time and a rank: counted at first, then sampled by file offset.

    What is to be counted is gathered, of many files where they are small, and counted together:
    to begin costs more than to count a few KiB.
    """

    def __init__(self, ranks: engine.PatternSet) -> None:
        self._ranks = ranks
        self._tallies: list[Tally] = []  # of each piece
        self._pieces: list[bytearray] = []  # whole lines, each with its LF
        self._bytes = 0

    def add(self, block: blocks.Block, tally: Tally) -> None:
        """Take the lines of the block that begin in a sampled cell; they may count later."""
        data, shift = block.data, block.offset - block.start
        first = block.offset // SURVEY_BYTES
        cell = 0 if first < SURVEY_WHOLE else -(-first // SURVEY_EVERY) * SURVEY_EVERY
        while (low := cell * SURVEY_BYTES - shift) < block.end:
            cells = 1 if cell else SURVEY_WHOLE
            start = block.start
            if low > start:
                start = data.find(b"\n", low - 1, block.end) + 1 or block.end
            # The line that begins in this cell may end behind it: it counts here.
            stop = data.find(b"\n", low + cells * SURVEY_BYTES - 1, block.end) + 1 or block.end
            if start < stop:
                piece = data[start:stop]
                if piece[-1] != _LF:
                    piece.append(_LF)
                self._tallies.append(tally)
                self._pieces.append(piece)
                self._bytes += len(piece)
            cell += SURVEY_EVERY
        if self._bytes >= SURVEY_TOGETHER:
            self.count()

    def count(self) -> None:
        """Add to each tally what was taken for it."""
        if not self._pieces:
            return
        text = b"".join(self._pieces)
        view = np.frombuffer(text, dtype=np.uint8)
        ends = np.flatnonzero(view == _LF)
        # Lines before the end of each piece, and from them how many of some lines are its own.
        upto = np.searchsorted(ends, np.cumsum([len(piece) for piece in self._pieces]))
        found = self._ranks.ends(text)[1]
        ranked = _distinct(np.searchsorted(ends, np.array(found, dtype=np.int64)))
        stamped = _distinct(_stamped(view, ends))
        counts = [
            np.diff(upto, prepend=0),
            np.diff(np.searchsorted(stamped, upto), prepend=0),
            np.diff(np.searchsorted(ranked, upto), prepend=0),
        ]
        for tally, counted in zip(self._tallies, np.transpose(counts).tolist(), strict=True):
            tally.surveyed += counted[0]
            tally.stamped += counted[1]
            tally.ranked += counted[2]
        self._tallies, self._pieces, self._bytes = [], [], 0


def _stamped(view: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Line numbers of the clock times that stand where a line's own does, in their order."""
    is_colon = view == ord(":")
    colon = np.flatnonzero(is_colon[2:-5] & is_colon[5:-2]) + 2
    for step in (-2, -1, 1, 2, 4, 5):
        colon = colon[view[colon + step] - np.uint8(ord("0")) < 10]
    line = np.searchsorted(ends, colon)
    begin = np.where(line > 0, ends[line - 1] + 1, 0)
    return line[colon - begin < _STAMP_WITHIN]


def _distinct(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    kept: NDArray[np.int64] = ordered[np.diff(ordered, prepend=-1) != 0]
    return kept


def _version() -> str:
    import importlib.metadata  # slow to load, and not needed by workers

    return importlib.metadata.version("firstfault")
