"""Make, from a seed, a fleet of training logs with planted failures and the truth about them.

Hides how programs word their messages, how a failure unfolds over the ranks, and how lines are
framed, packed and laid out in a tree. Every value in a line is synthetic.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from math import sqrt
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ingest import fleet_past, fleet_past_logs
from ingest.fleet_files import CODECS, Tree
from ingest.fleet_words import TEXT, Fields

GPUS_PER_HOST = 8
TIMEOUT_MS = 600_000


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster: its name, the IANA zone its hosts print local times in, and how many they are."""

    name: str
    tz: str
    hosts: int


@dataclass(frozen=True, slots=True)
class RunTruth:
    """What happened in one run.

    `failure` is None for a run in which nothing went wrong (completed, cancelled, out of time or
    preempted). `file` (relative to the tree) and `line` (1-based, decompressed) are where the
    initiating rank or its kernel says so; `t_first` is that moment in UTC by a perfect clock,
    while the clocks of hosts are up to a second apart. `co_occurring` are the other causes planted
    in `attempt`. Only per-rank files can be missing.
    """

    cluster: str
    job: str
    layout: str
    attempts: int
    world_size: int
    outcome: str
    failure: str | None
    initiating_rank: int | None
    initiating_host: str | None
    attempt: int | None
    t_first: str | None
    file: str | None
    line: int | None
    co_occurring: tuple[str, ...]
    missing_rank_files: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Truth:
    """What was planted; `bytes` and `lines` count decompressed text over `files` log files.

    `pairs` are the causes that were planted together in at least five attempts, `secrets` the
    literal texts that no output may show, `rank_files` how many per-rank files a complete archive
    would hold; `past` is None without a history.
    """

    seed: int
    clusters: tuple[Cluster, ...]
    runs: tuple[RunTruth, ...]
    pairs: tuple[tuple[str, str], ...]
    secrets: tuple[str, ...]
    files: int
    rank_files: int
    bytes: int
    lines: int
    past: fleet_past.Past | None = None


def generate(
    directory: Path,
    *,
    bytes_: int,
    seed: int,
    codec: str = "mixed",
    runs: int | None = None,
    history: int = 0,
    missing: float = 0.1,
    varied: float = 0.2,
) -> Truth:
    """Write a tree of logs, `truth.json` and `firstfault.toml` (the zones) into `directory`.

    `bytes_` is the size of the decompressed text, met within a few per cent unless the planted
    cascades alone need more. `codec` is one of CODECS or "mixed". Without `runs`, their number
    grows with the square root of the size: 88 at 30 MB. `history` runs more, of other clusters and
    beyond that size, are the past that `fleet_past` draws, with the scheduler's word in `meta`.
    `missing` is the share of per-rank files that are not there (never those that tell), `varied`
    the chance of a message to be worded as other versions do, the same way throughout a launch.
    The same arguments give the same bytes and modification times. Raises ValueError for a bad
    argument and FileExistsError when `directory` holds something.
    """
    if codec != "mixed" and codec not in CODECS:
        raise ValueError(f"unknown codec {codec!r}: use mixed or one of {', '.join(CODECS)}")
    if bytes_ < 1:
        raise ValueError(f"a fleet of {bytes_} bytes has no logs: ask for at least one")
    count = max(8, round(88 * sqrt(bytes_ / 30e6))) if runs is None else runs
    if count < 1:
        raise ValueError(f"a fleet of {count} runs has no logs: ask for at least one run")
    for name, share in (("missing", missing), ("varied", varied)):
        if not 0 <= share <= 1:
            raise ValueError(f"{name} of {share:g}: give a share from 0 to 1")
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty: name a new or an empty directory")

    tree = Tree(directory)
    plan = [
        run._replace(missing=missing, varied=varied) for run in _plan(count, bytes_, seed, codec)
    ]
    kernel_bytes = bytes_ // 100
    left = bytes_ - kernel_bytes
    weight = sum(run.weight for run in plan)
    decisive: dict[int, tuple[str, int]] = {}
    marks: list[_Mark] = []
    kernel: list[_KernelLine] = []
    absent: list[tuple[int, ...]] = []
    secrets: list[str] = []
    rank_files = 0
    for run in plan:
        before = tree.bytes
        written = _write_run(tree, run, max(0, int(left * run.weight / weight)))
        left -= tree.bytes - before
        weight -= run.weight
        decisive.update(written.decisive)
        marks.append(written.mark)
        kernel.extend(written.kernel)
        absent.append(written.missing)
        secrets.extend(written.secrets)
        rank_files += run.world * run.attempts if run.layout == "ranks" else 0
    decisive.update(_write_hosts(tree, kernel, kernel_bytes, seed))
    past = fleet_past_logs.write(tree, history, seed) if history else None

    truth = Truth(
        seed=seed,
        clusters=tuple(Cluster(site.name, site.tz, site.hosts) for site in _CLUSTERS),
        runs=tuple(
            _truth(run, mark, decisive.get(run.number), gone)
            for run, mark, gone in zip(plan, marks, absent, strict=True)
        ),
        pairs=_pairs(plan),
        secrets=tuple(sorted(secrets)),
        files=tree.files,
        rank_files=rank_files,
        bytes=tree.bytes,
        lines=tree.lines,
        past=past,
    )
    (directory / "truth.json").write_text(json.dumps(asdict(truth), indent=1) + "\n")
    zones = "".join(f'[clusters.{site.name}]\ntz = "{site.tz}"\n' for site in _CLUSTERS)
    (directory / "firstfault.toml").write_text(zones)
    return truth


# ---------------------------------------------------------------------------------------------
# The plan: which runs there are, and what is planted where
# ---------------------------------------------------------------------------------------------


class _Site(NamedTuple):
    name: str
    tz: str
    utc_offset_s: int
    hosts: int
    host: str
    cidr: str
    rank_style: str
    kernel_style: str


# A zone without daylight saving keeps local = UTC + constant.
_CLUSTERS = (
    _Site("aurelia", "UTC", 0, 128, "gpu-a%03d", "10.11", "plain", "syslog"),
    _Site("borealis", "Asia/Tokyo", 9 * 3600, 128, "gpu-b%03d", "10.12", "bracket", "ctime"),
)
_EPOCH = int(datetime(2026, 1, 5, 6, tzinfo=UTC).timestamp())
_SLOT_S = 6 * 3600  # a job has its half of the cluster for two slots, and no run takes longer
_WORLDS = (8,) * 22 + (16,) * 20 + (32,) * 18 + (64,) * 14 + (128,) * 8 + (256,) * 4 + (512,) * 2
_PLANTED_MAX_WORLD = 128

RACE = "nvme-offload-checkpoint-race"
CORRUPT = "checkpoint-corrupt"
STRAGGLER = "straggler"
DISK = "disk-full"
TENSORBOARD = "tensorboard-writer-failed"

# Nine races: five with a corrupt tag, five with a straggler, one of them with both, so that
# corruption and straggling are independent of each other over the fleet.
_RACE_COMPANIONS = (
    (CORRUPT,),
    (STRAGGLER,),
    (CORRUPT,),
    (STRAGGLER,),
    (CORRUPT, STRAGGLER),
    (CORRUPT,),
    (STRAGGLER,),
    (CORRUPT,),
    (STRAGGLER,),
)
_MIXED = (*("none", "gzip", "none", "zstd") * 5, "none", "lz4", "bz2", "xz")
_HEALTHY_LAYOUTS = ("ranks",) * 10 + ("srun", "torch", "pods") * 4 + ("elastic", "mpirun") * 2
_HEALTHY_FRAMEWORKS = ("megatron", "deepspeed", "plain") * 3 + ("hf", "hf", "untimed")


class _Kind(NamedTuple):
    """A kind of ending: how many of 88 runs have it, where it can be told, how it unfolds."""

    failure: str | None
    outcome: str
    share: int
    layouts: tuple[str, ...]
    frameworks: tuple[str, ...]
    plant: Callable[[_Attempt, int], None]
    at_start: bool = False
    resumes: bool = False


class _Run(NamedTuple):
    number: int
    site: _Site
    job: str
    world: int
    hosts: tuple[str, ...]
    skew: tuple[float, ...]
    layout: str
    framework: str
    codec: str
    kind: _Kind | None
    companions: tuple[str, ...]
    attempts: int
    start: float
    weight: float
    monitor: str
    seed: int
    missing: float = 0.0
    varied: float = 0.0


def _rng(seed: int, *names: object) -> random.Random:
    return random.Random("/".join(map(str, (seed, *names))))  # noqa: S311 - log text, not keys


def _plan(count: int, bytes_: int, seed: int, codec: str) -> list[_Run]:
    rng = _rng(seed, "plan")
    kinds: list[_Kind | None] = [*_quota(count, rng)]
    kinds += [None] * (count - len(kinds))
    rng.shuffle(kinds)
    worlds = [_WORLDS[(2 * i + 1) * len(_WORLDS) // (2 * count)] for i in range(count)]
    rng.shuffle(worlds)
    codecs = [_MIXED[i % len(_MIXED)] if codec == "mixed" else codec for i in range(count)]
    rng.shuffle(codecs)
    healthy = [i for i, kind in enumerate(kinds) if kind is None]
    for i, kind in enumerate(kinds):
        if kind is not None and worlds[i] > _PLANTED_MAX_WORLD:
            free = [j for j in healthy if worlds[j] <= _PLANTED_MAX_WORLD]
            j = rng.choice(free) if free else i
            worlds[i], worlds[j] = worlds[j], worlds[i]
    # 512 files need some bytes each; below that the largest jobs write one combined log.
    rank_files_max = 512 if bytes_ / count >= 300_000 else 64
    races = 0
    runs = []
    for i, kind in enumerate(kinds):
        site, turn = _CLUSTERS[i % len(_CLUSTERS)], i // len(_CLUSTERS)
        world = worlds[i]
        layout = rng.choice(kind.layouts if kind else _HEALTHY_LAYOUTS)
        if layout == "ranks" and world > rank_files_max:
            layout = "srun"
        framework = rng.choice(kind.frameworks if kind else _HEALTHY_FRAMEWORKS)
        if framework == "untimed" and layout == "ranks":
            framework = "megatron"
        companions: tuple[str, ...] = ()
        if kind is not None and kind.failure == RACE:
            companions = _RACE_COMPANIONS[races % len(_RACE_COMPANIONS)]
            races += 1
        elif kind is not None and kind.failure == DISK:
            companions = (TENSORBOARD,)
        nodes = -(-world // GPUS_PER_HOST)
        half = site.hosts // 2
        first = (turn % 2) * half + rng.randrange(half - nodes + 1)
        job = f"{48200 + 37 * i}"
        if layout in ("pods", "mpirun"):
            job = f"{rng.choice(('sft', 'pretrain', 'dpo'))}-{i:03x}{rng.randrange(16**3):03x}"
        resumes = (kind is None or not kind.at_start) and rng.random() < 0.12
        runs.append(
            _Run(
                number=i,
                site=site,
                job=job,
                world=world,
                hosts=tuple(site.host % (first + n) for n in range(nodes)),
                skew=tuple(round(rng.uniform(-0.5, 0.5), 3) for _ in range(nodes)),
                layout=layout,
                framework=framework,
                codec=codecs[i],
                kind=kind,
                companions=companions,
                attempts=2 if resumes or (kind is not None and kind.resumes) else 1,
                start=_EPOCH + turn * _SLOT_S + rng.uniform(0, 7200),
                weight=rng.uniform(0.4, 1.6) * (1 + world / 256),
                monitor="",
                seed=seed,
            )
        )
    # Few healthy jobs have a straggler monitor on: its reports are no failure, but do look alike.
    watched = [run.number for run in runs if run.kind is None and run.framework == "megatron"]
    rng.shuffle(watched)
    for monitor in ("noise.nostraggler", "straggler.report") * round(count / 88):
        if watched:
            number = watched.pop()
            runs[number] = runs[number]._replace(monitor=monitor)
    # The runs that need most room come first, so that the others even the size out.
    return sorted(runs, key=lambda run: (-run.world, run.number))


def _quota(count: int, rng: random.Random) -> list[_Kind]:
    """Kinds in proportion to their shares, by largest remainder, ties in a seeded order."""
    kinds = list(_KINDS)
    rng.shuffle(kinds)
    exact = {id(kind): kind.share * count / 88 for kind in kinds}
    chosen = [kind for kind in kinds for _ in range(int(exact[id(kind)]))]
    rest = sorted(kinds, key=lambda kind: int(exact[id(kind)]) - exact[id(kind)])
    return chosen + rest[: round(sum(exact.values())) - len(chosen)]


def _pairs(plan: Iterable[_Run]) -> tuple[tuple[str, str], ...]:
    counts: dict[tuple[str, str], int] = {}
    for run in plan:
        for other in run.companions:
            if run.kind is not None and run.kind.failure is not None:
                a, b = sorted((run.kind.failure, other))
                counts[a, b] = counts.get((a, b), 0) + 1
    return tuple(sorted(pair for pair, n in counts.items() if n >= 5))


# ---------------------------------------------------------------------------------------------
# An attempt as messages of processes on a time line
# ---------------------------------------------------------------------------------------------


class _Say(NamedTuple):
    at: float
    rank: int  # -1 - n is the launcher on the n-th host
    text: str
    mark: int  # line of the text that decides, else -1


class _KernelLine(NamedTuple):
    run: _Run
    attempt: int
    host: str
    t: float
    text: str
    decides: bool


class _Mark(NamedTuple):
    """Who began it: none for a run in which nothing went wrong."""

    rank: int | None
    host: str | None
    attempt: int | None
    t: float | None


class _Attempt:
    """One launch being written down: who says what when, in seconds since its start."""

    def __init__(self, run: _Run, number: int, budget: int, rng: random.Random) -> None:
        self.run = run
        self.number = number
        self.rng = rng
        self.start = run.start + number * 4.1 * 3600
        self.begin = 40.0 + run.world / 16
        self.says: list[_Say] = []
        self.kernel: list[_KernelLine] = []
        self.keep: set[int] = set()
        self.secrets: list[str] = []
        self.mark = _Mark(None, None, None, None)
        self.cut: str | None = None  # a file whose last line is not terminated
        at_start = run.kind is not None and run.kind.at_start and number == run.attempts - 1
        span = rng.uniform(2400, 12000)
        self.stop = self.begin if at_start else self.begin + span
        self.end = self.stop
        # A line every step is the densest log there is: give long logs short steps.
        self.step_s = min(rng.uniform(0.8, 4.0), span * 180 / max(budget, 1))
        self.first_step = number * 5000
        self.dialect: dict[str, int] = {}
        self.tagged = run.layout in ("torch", "pods") or rng.random() < 0.6
        self.common: dict[str, Any] = {
            "world": run.world,
            "nodes": len(run.hosts),
            "dp": max(1, run.world // 8),
            "batch": run.world * 4,
            "total": 50_000,
            "job": run.job,
            "head": run.hosts[0],
            "code": "/srv/code",
            "bin": "/opt/conda/envs/train/bin",
            "py": "/opt/conda/envs/train/bin/python3.11",
            "lib": "/opt/conda/envs/train/lib/python3.11",
            "site": "/opt/conda/envs/train/lib/python3.11/site-packages",
            "dir": f"/fsx/{run.site.name}/{run.job}/checkpoints",
            "group": rng.randrange(2**63),
            "bad": "\udcef",  # a byte that is not UTF-8
        }

    @property
    def primary(self) -> int:
        """The rank that prints the training lines: Megatron's is the last."""
        return self.run.world - 1 if self.run.framework in ("megatron", "untimed") else 0

    def step(self, at: float) -> int:
        return self.first_step + max(1, int((at - self.begin) / self.step_s))

    def tag(self, at: float) -> str:
        name = "global_step" if self.run.framework == "deepspeed" else "checkpoint-"
        return f"{name}{self.step(at)}"

    def host_of(self, rank: int) -> int:
        return rank // GPUS_PER_HOST if rank >= 0 else -1 - rank

    def others(self, rank: int) -> list[int]:
        return [other for other in range(self.run.world) if other != rank]

    def clock(self, at: float, host: int) -> float:
        """What the host's clock shows, as if local time were UTC."""
        return self.start + at + self.run.skew[host] + self.run.site.utc_offset_s

    def pid(self, rank: int) -> int:
        return 20_000 + 611 * self.host_of(rank) + 13 * (rank % GPUS_PER_HOST) + self.number

    def render(self, at: float, rank: int, key: str, fields: dict[str, Any]) -> str:
        variants = TEXT[key]
        if key not in self.dialect:
            usual = len(variants) == 1 or self.rng.random() >= self.run.varied
            self.dialect[key] = 0 if usual else self.rng.randrange(1, len(variants))
        host = self.host_of(rank)
        lrank = max(rank, 0) % GPUS_PER_HOST
        values = self.common | {
            "rank": rank,
            "lrank": lrank,
            "host": self.run.hosts[host],
            "pid": self.pid(rank),
            "tid": self.pid(rank) + 71,
            "lpid": 19_000 + 611 * host,
            "ip": f"{self.run.site.cidr}.{host}.{lrank + 10}",
            "port": 40_000 + (rank * 37) % 20_000,
            "bus": f"{0x0F + 0x11 * lrank:02x}",
            "ln": self.rng.randrange(10, 100),
            "step": self.step(at),
            "tag": self.tag(at),
        }
        when = datetime.fromtimestamp(self.clock(at, host), UTC)
        return variants[self.dialect[key]] % Fields(when, values | fields)

    def say(
        self, at: float, rank: int, key: str, /, *, mark: int | None = None, **fields: Any
    ) -> None:
        """Let `rank` print a message; `mark` is the line of it that decides (-1 is its last)."""
        text = self.render(at, rank, key, fields)
        lines = text.split("\n")
        if key.startswith("tb.") and self.tagged and rank >= 0:
            text = "\n".join(f"[rank{rank}]: {line}" for line in lines)
        line = -1
        if mark is not None:
            line = mark % len(lines)
            self.began(at, rank)
        self.says.append(_Say(at, rank, text, line))
        self.end = max(self.end, at)

    def began(self, at: float, rank: int) -> None:
        host = self.run.hosts[self.host_of(rank)]
        self.mark = _Mark(rank, host, self.number, self.start + at)
        self.keep.add(rank)

    def kernel_says(
        self, at: float, rank: int, key: str, /, *, decides: bool = False, **fields: Any
    ) -> None:
        """Let the kernel of the rank's host print a message, a line every 20 microseconds."""
        for n, line in enumerate(self.render(at, rank, key, fields).split("\n")):
            host = self.host_of(rank)
            t = self.start + at + self.run.skew[host] + n * 2e-5
            self.kernel.append(
                _KernelLine(
                    self.run, self.number, self.run.hosts[host], t, line, decides and n == 0
                )
            )
        if decides:
            self.began(at, rank)

    def show_secrets(self, at: float, rank: int) -> None:
        """Let a careless script print its environment. The prefixes are put together here only."""
        self.keep.add(rank)
        made = self.secret("hf", "wandb", "github", "email", "password")
        self.say(at, rank, "start.secrets", **made)

    def secret(self, *names: str) -> dict[str, Any]:
        letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

        def text(size: int, alphabet: str = letters) -> str:
            return "".join(self.rng.choices(alphabet, k=size))

        made = {
            "hf": "hf" + "_" + text(34),
            "wandb": text(40, "0123456789abcdef"),
            "github": "gh" + "p_" + text(36),
            "email": text(8, letters[:26]) + "@" + "lab.example.org",
            "password": text(14),
        }
        chosen = {name: made[name] for name in names}
        self.secrets.extend(chosen.values())
        return chosen


# ---------------------------------------------------------------------------------------------
# How things unfold
# ---------------------------------------------------------------------------------------------


def _start_up(a: _Attempt) -> None:
    run, rng = a.run, a.rng
    if run.layout in ("srun", "torch", "ranks") and rng.random() < 0.4:
        a.say(0.1, -1, "start.prolog")
    a.say(2.0, a.primary, "start." + {"untimed": "megatron"}.get(run.framework, run.framework))
    # One line a rank where ranks have files, one a host where they share one.
    talkers = range(run.world)
    if run.layout != "ranks" and run.world > 64:
        talkers = range(0, run.world, GPUS_PER_HOST)
    for rank in talkers:
        if run.layout in ("ranks", "elastic") or run.framework == "plain":
            a.say(3.0 + rank / 1000, rank, "start.env")
        a.say(8.0 + rank / 1000, rank, "start.nccl", comm=0x55D0C0000000 + 4096 * rank)
    nvme = run.framework == "deepspeed" and (
        (run.kind is not None and run.kind.failure in (RACE, DISK)) or rng.random() < 0.3
    )
    if nvme:
        a.say(5.0, 0, "start.nvme")
    for key, share in (
        ("noise.future", 0.6),
        ("noise.user", 0.5),
        ("noise.socket", 0.4),
        ("noise.wandb", 0.5),
        ("noise.args", 0.3),
    ):
        if rng.random() < share:
            a.say(6.0 + rng.random(), 0, key, pad="x" * rng.randrange(40, 6000))
    if rng.random() < 0.12:
        a.show_secrets(1.0, 0)
    if a.number:
        a.say(20.0, 0, "start.load", tag=f"checkpoint-{a.first_step}")


def _train(a: _Attempt) -> None:
    """What is said in passing between the first and the last step."""
    run, rng = a.run, a.rng
    span = a.stop - a.begin
    if not span:
        return
    style = {"untimed": "megatron"}.get(run.framework, run.framework)
    fixed_copy = style == "deepspeed" and run.kind is None and rng.random() < 0.35
    for n in range(1, 5):
        at = a.begin + span * n / 5
        a.say(at, 0, f"save.{style}", tag=a.tag(at), step=a.step(at))
        if fixed_copy:
            for rank in range(min(run.world, 16)):
                a.say(at + 1, rank, "ds.copy", sub=f"/rank{rank:08d}", free="1,812.07")
            a.say(at + 20, 0, "ds.copied", free="1,799.55")
        a.say(at + rng.uniform(25, 50), 0, f"saved.{style}", tag=a.tag(at), step=a.step(at))
    if rng.random() < 0.12:
        at = a.begin + span * rng.random() * 0.9
        a.say(at, 0, "noise.wandb.retry", why=rng.choice(("ConnectionError", "ReadTimeout")))
        a.say(at + 60, 0, "noise.wandb.back")
    for key in ("noise.utf8", "noise.latin1"):
        if rng.random() < 0.15:
            a.say(a.begin + span * rng.random(), rng.randrange(run.world), key)
    if style == "deepspeed" and rng.random() < 0.2:
        for n in range(3):
            scale = 65536 >> n
            a.say(a.begin + 2.1 * n, 0, "noise.overflow", scale=scale, half=scale // 2)
    if run.monitor:
        a.say(a.begin + span / 2, 0, run.monitor, **_EVEN)


# The values of a straggler report in which no rank stands out.
_EVEN: Mapping[str, int] = {"who": 1, "slow": 3468, "watts": 611, "clock": 1965, "flops": 295}


def _finish(a: _Attempt) -> None:
    """A launch that ends well: at the end of training, or of its share of a chain of jobs."""
    run, rng, at = a.run, a.rng, a.stop
    last = a.number == run.attempts - 1
    style = {"untimed": "megatron"}.get(run.framework, run.framework)
    a.say(at, a.primary, f"end.{style}" if last else "end.chain")
    if run.layout == "ranks":
        for rank in a.others(a.primary):
            a.say(at + 0.5, rank, "end.rank")
    if last and rng.random() < 0.15:
        for rank in rng.sample(range(run.world), 3):
            a.say(at + 4.0, rank, "noise.exit")
            a.say(at + 4.6, rank, "store.lost")


def _time_out(a: _Attempt, at: float, ranks: Iterable[int]) -> float:
    """The ranks wait in one collective until their watchdogs give up; returns when."""
    collective: dict[str, Any] = {
        "seq": a.step(at) * 12,
        "done": a.step(at) * 12 - 1,
        "op": a.rng.choice(("ALLREDUCE", "_REDUCE_SCATTER_BASE", "_ALLGATHER_BASE")),
        "numel": a.rng.choice((1, 4096, 524288)),
    }
    for rank in ranks:
        late = a.rng.randrange(12, 900)
        when = at + 0.3 + (TIMEOUT_MS + late) / 1000
        a.say(when, rank, "watchdog", ran=TIMEOUT_MS + late, **collective)
    return at + TIMEOUT_MS / 1000 + 2


def _lose_peers(a: _Attempt, at: float, rank: int) -> None:
    """A process left: the others notice within seconds, by NCCL or by the store."""
    for other in a.others(rank):
        key = "remote" if other % 4 == 1 else "store.lost"
        a.say(at + a.rng.uniform(2.2, 6), other, key, seq=a.step(at) * 12, op="ALLREDUCE", numel=1)


def _reason(exitcode: int, pid: int) -> str:
    names = {-6: "Signal 6 (SIGABRT)", -9: "Signal 9 (SIGKILL)", -15: "Signal 15 (SIGTERM)"}
    if exitcode in names:
        return f"{names[exitcode]} received by PID {pid}"
    return "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


def _shut_down(a: _Attempt, at: float, rank: int, exitcode: int) -> None:
    """The launcher of `rank` sees it exit and ends the job.

    torchelastic's table names the process that it reaped first, which on the host of the culprit
    is often a bystander.
    """
    run, rng = a.run, a.rng
    host = a.host_of(rank)
    launcher = -1 - host
    local = range(host * GPUS_PER_HOST, min(run.world, (host + 1) * GPUS_PER_HOST))
    if run.layout == "mpirun":
        a.say(at, -1, "mpi.exit", rank=rank, exitcode=exitcode & 0xFF)
        return
    if run.layout == "srun":
        pass
    elif run.framework == "deepspeed" and run.layout != "pods":
        for other in local:
            a.say(at + 0.1, launcher, "ds.kill", pid=a.pid(other))
        a.say(at + 0.3, launcher, "ds.exit", exitcode=exitcode)
    else:
        bystanders = [other for other in local if other != rank]
        first, code = (rank, exitcode) if rng.random() < 0.4 else (rng.choice(bystanders), -6)
        row: dict[str, Any] = {"host": run.hosts[host]}
        for other in bystanders:
            a.say(at, launcher, "elastic.closing", pid=a.pid(other))

        def process(who: int, status: int) -> dict[str, Any]:
            pid = a.pid(who)
            return row | {
                "rank": who,
                "lrank": who % GPUS_PER_HOST,
                "pid": pid,
                "exitcode": status,
                "reason": _reason(status, pid),
            }

        a.say(at + 0.6, launcher, "elastic.failed", **process(first, code))
        others = "  <NO_OTHER_FAILURES>"
        if first != rank:
            others = a.render(at, launcher, "elastic.row", process(rank, exitcode) | {"n": 1})
        a.say(at + 0.7, launcher, "elastic.table", others=others, **process(first, code))
    if run.layout != "pods":
        task = rank if run.layout == "srun" else host
        status = exitcode & 0xFF if exitcode > 0 else 1
        a.say(at + 1.2, -1, "srun.exit", host=run.hosts[host], task=task, exitcode=status)
        a.say(at + 1.3, -1, "srun.abort", wait=32)
        a.say(at + 1.4, -1, "slurm.step", reason="")


def _race(a: _Attempt, rank: int) -> None:
    """All ranks copy into one directory; one creates it, the others fail, `rank` first.

    Ranks of its host follow within its clock, those of other hosts later than clocks can differ.
    """
    run, rng, at = a.run, a.rng, a.stop
    winner = rng.choice(a.others(rank))
    tag = a.tag(at)
    chatty = rng.random() < 0.4  # DeepSpeed logs warnings only since 0.17.6
    if chatty:
        a.say(at - 2.0, 0, "save.deepspeed")
    for other in range(run.world):
        near = a.host_of(other) == a.host_of(rank)
        late = 0.0 if other == rank else rng.uniform(0.02, 0.4) if near else rng.uniform(1.3, 1.9)
        a.say(at + late - 0.01, other, "ds.enter", tag=tag)
        if chatty:
            a.say(at + late - 0.005, other, "ds.copy", tag=tag, sub="", free="1,874.20")
        if other == winner:
            if chatty:
                a.say(at + 6.0, other, "ds.copied", free="1,871.05")
        else:
            a.say(at + late, other, "tb.race", tag=tag, mark=-1 if other == rank else None)
            if run.companions:
                a.say(at + late + 0.1, other, "trainer.caught", tag=tag)
    if STRAGGLER in run.companions:
        slow = rng.choice(a.others(rank))
        a.keep.add(slow)
        a.say(at + rng.uniform(25, 40), slow, "straggler.nvrx")
    if CORRUPT in run.companions:
        reader = rng.choice(a.others(rank))
        a.keep.add(reader)
        for other in range(run.world):
            a.say(at + 60, other, "trainer.rollback", tag=tag)
        a.say(at + rng.uniform(64, 70), reader, "tb.corrupt", tag=tag)
        _shut_down(a, at + 75, reader, 1)
    elif run.companions:
        a.say(at + 72, 0, "trainer.giveup")
        _shut_down(a, at + 75, rank, 1)
    else:
        _shut_down(a, at + 4, rank, 1)


def _disk_full(a: _Attempt, rank: int) -> None:
    """A file system fills up: the NVMe swap or the checkpoint volume, then the event files."""
    at = a.stop
    rank = rank or 1  # rank 0 owns the event files
    a.say(at - 0.2, rank, "ds.enter")
    if a.rng.random() < 0.5:
        a.say(at, rank, "disk.swap", mark=0)
        a.say(at + 0.4, rank, "tb.disk.assert")
    else:
        a.say(at, rank, "tb.disk.save", mark=-1)
    a.keep.add(0)
    a.say(at + a.rng.uniform(3, 5), 0, "ds.enter")
    a.say(at + a.rng.uniform(5, 25), 0, "tb.tensorboard")
    _lose_peers(a, at + 24, rank)
    _shut_down(a, at + 32, rank, 1)


def _corrupt_resume(a: _Attempt, rank: int) -> None:
    """The launch after a good one finds one shard of the checkpoint unreadable."""
    at = 31.0
    a.say(at - 0.5, rank, "start.env")
    a.say(at, rank, "tb.corrupt", mark=-1)
    _lose_peers(a, at, rank)
    _shut_down(a, at + 8, rank, 1)


def _off_the_bus(a: _Attempt, rank: int) -> None:
    at = a.stop
    a.kernel_says(at, rank, "kernel.xid79", decides=True)
    a.say(at + 0.35, rank, "tb.cuda", what="unknown error")
    a.say(at + 0.35, rank, "tb.cuda.advice")
    a.say(at + 0.6, rank, "cuda.watchdog", what="unknown error")
    _shut_down(a, _time_out(a, at, a.others(rank)), rank, -6)


def _ecc(a: _Attempt, rank: int) -> None:
    at = a.stop
    what = "uncorrectable ECC error encountered"
    a.kernel_says(at - 0.02, rank, "kernel.ecc", addr=a.rng.randrange(2**36))
    a.say(at, rank, "tb.cuda", what=what, mark=-1)
    a.say(at, rank, "tb.cuda.advice")
    a.say(at + 0.2, rank, "cuda.watchdog", what=what)
    _lose_peers(a, at, rank)
    _shut_down(a, at + 8, rank, -6)


def _host_oom(a: _Attempt, rank: int) -> None:
    """The kernel kills one process, whose own log ends in the middle."""
    at = a.stop
    size = a.rng.randrange(300_000_000, 900_000_000)
    a.kernel_says(at, rank, "kernel.oom", decides=True, kb=size, rss=size * 3 // 4)
    if a.run.layout == "ranks":
        a.cut = _path(a, rank)
    if a.run.layout != "pods":
        a.say(at + 7, -1, "slurm.oom")
        task = rank if a.run.layout == "srun" else a.host_of(rank)
        a.say(at + 7.1, -1, "srun.oom", host=a.run.hosts[a.host_of(rank)], task=task)
    _lose_peers(a, at, rank)
    _shut_down(a, at + 8, rank, -9)


def _link_flap(a: _Attempt, rank: int) -> None:
    at = a.stop
    a.kernel_says(at + 0.01, rank, "kernel.link")
    a.kernel_says(at + 41, rank, "kernel.linkup")
    a.say(at + 0.2, rank, "ib.async", mark=0)
    peer = f"{a.run.site.cidr}.{a.host_of(rank)}.{rank % GPUS_PER_HOST + 10}"
    for other in a.rng.sample(a.others(rank), 3):
        a.say(at + a.rng.uniform(9, 20), other, "ib.completion", peer=peer)
    _shut_down(a, _time_out(a, at, range(a.run.world)), a.rng.choice(a.others(rank)), -6)


def _gpu_oom(a: _Attempt, rank: int) -> None:
    at = a.stop
    a.say(at, rank, "tb.oom", gib=f"{a.rng.uniform(1, 6):.2f}", mark=-1)
    _lose_peers(a, at, rank)
    _shut_down(a, at + 8, rank, 1)


def _bad_index(a: _Attempt, rank: int) -> None:
    at = a.stop
    for n in range(24):
        a.say(at, rank, "index.assert", block=160 + n // 8, mark=0 if n == 0 else None)
    a.say(at + 0.3, rank, "tb.cuda", what="device-side assert triggered")
    a.say(at + 0.3, rank, "tb.cuda.advice")
    _lose_peers(a, at, rank)
    _shut_down(a, at + 8, rank, 1)


def _exception(a: _Attempt, rank: int) -> None:
    at = a.stop
    a.show_secrets(at - 0.5, rank)
    a.say(at, rank, "tb.python", mark=-1, **a.secret("email", "password"))
    _lose_peers(a, at, rank)
    _shut_down(a, at + 8, rank, 1)


def _wandb_hang(a: _Attempt, _rank: int) -> None:
    """Rank 0 cannot reach its tracking server while the others wait for it."""
    for at in (22.0, 41.0):
        a.say(at, 0, "noise.wandb.retry", why="ConnectTimeout")
    a.say(110.0, 0, "start.env")
    a.say(112.0, 0, "tb.wandb", wait=90, mark=-1)
    _lose_peers(a, 112.0, 0)
    _shut_down(a, 120.0, 0, 1)


def _rate_limited(a: _Attempt, rank: int) -> None:
    """Every rank asks the hub at once; which one is refused first is chance."""
    at = 25.0
    a.show_secrets(at - 0.6, rank)
    for n, other in enumerate((rank, *a.rng.sample(a.others(rank), 2))):
        a.say(at + 3.5 * n - 0.1, other, "start.env")
        a.say(at + 3.5 * n, other, "tb.hub", mark=None if n else -1)
    _shut_down(a, at + 12, rank, 1)


def _wrong_numbers(a: _Attempt, rank: int) -> None:
    """A NaN that a second run of the same step does not give."""
    at, step = a.stop, a.step(a.stop)
    a.say(at - 0.1, rank, "sdc.unexpected", step=step)
    a.say(at - 0.05, 0, "sdc.rerun", step=step)
    a.say(at + 1.2, rank, "sdc.verdict", step=step, mark=0)
    a.say(at + 1.5, 0, "save.megatron", step=step - 1)
    a.say(at + 30, 0, "saved.megatron", step=step - 1)
    a.say(at + 31, 0, "sdc.exit", step=step - 1)
    _shut_down(a, at + 33, rank, 17)


def _slow_rank(a: _Attempt, rank: int) -> None:
    """One GPU throttles; the detector ends the job."""
    at = a.stop
    a.say(a.begin + (at - a.begin) / 2, 0, "straggler.report", **_EVEN)
    a.say(at, rank, "straggler.nvrx", mark=0)
    uneven = {"who": rank, "slow": 5502, "watts": 411, "clock": 1095, "flops": 186}
    a.say(at + 4, 0, "straggler.report", **uneven)
    a.say(at + 9, 0, "straggler.sniff", who=rank, where=a.run.hosts[a.host_of(rank)])
    _shut_down(a, at + 15, rank, 1)


def _killed(reason: str) -> Callable[[_Attempt, int], None]:
    """The scheduler ends the job: nothing went wrong in it."""

    def plant(a: _Attempt, _rank: int) -> None:
        at = a.stop
        a.say(at, -1, "srun.abort", wait=62)
        a.say(at + 0.1, -1, "slurm.step", reason=reason)
        a.say(at + 0.1, -1, "slurm.job", reason=reason)
        for host in range(len(a.run.hosts)):
            local = range(host * GPUS_PER_HOST, min(a.run.world, (host + 1) * GPUS_PER_HOST))
            if a.run.framework == "deepspeed":
                for rank in local:
                    a.say(at + 0.4, -1 - host, "ds.kill", pid=a.pid(rank))
                a.say(at + 0.5, -1 - host, "ds.sigterm")
            elif a.run.layout == "torch":
                a.say(at + 0.4, -1 - host, "elastic.death")
                for rank in local:
                    a.say(at + 0.5, -1 - host, "elastic.closing", pid=a.pid(rank))

    return plant


_ANY = ("ranks", "ranks", "srun", "torch", "pods", "mpirun")
_RANK_KNOWN = ("ranks", "ranks", "srun")
_HOST_KNOWN = ("ranks", "pods")
_SLURM = ("ranks", "srun", "torch")
_ALL_FRAMEWORKS = ("megatron", "deepspeed", "plain", "hf")
_DS = ("deepspeed",)

_KINDS = (
    _Kind(RACE, "failed", 9, ("ranks", "ranks", "srun", "torch", "pods"), _DS, _race),
    _Kind(DISK, "failed", 6, ("ranks", "ranks", "srun"), _DS, _disk_full),
    _Kind(CORRUPT, "failed", 1, _SLURM, _DS, _corrupt_resume, at_start=True, resumes=True),
    _Kind(STRAGGLER, "failed", 1, _RANK_KNOWN, ("megatron",), _slow_rank),
    _Kind("gpu-fallen-off-bus", "failed", 1, _HOST_KNOWN, _ALL_FRAMEWORKS, _off_the_bus),
    _Kind("gpu-ecc-uncorrectable", "failed", 1, _HOST_KNOWN, _ALL_FRAMEWORKS, _ecc),
    _Kind("host-oom", "failed", 1, _HOST_KNOWN, _ALL_FRAMEWORKS, _host_oom),
    _Kind("ib-link-flap", "failed", 1, _RANK_KNOWN, ("megatron", "plain"), _link_flap),
    _Kind("gpu-oom", "failed", 1, _ANY, _ALL_FRAMEWORKS, _gpu_oom),
    _Kind("index-out-of-bounds", "failed", 1, _RANK_KNOWN, ("plain", "hf"), _bad_index),
    _Kind("python-exception", "failed", 1, _ANY, _ALL_FRAMEWORKS, _exception),
    _Kind("wandb-init-hang", "failed", 1, _ANY, ("plain", "hf"), _wandb_hang, at_start=True),
    _Kind("hub-rate-limited", "failed", 1, _ANY, ("plain", "hf"), _rate_limited, at_start=True),
    _Kind("silent-data-corruption", "failed", 1, _RANK_KNOWN, ("megatron",), _wrong_numbers),
    _Kind(None, "cancelled", 1, _SLURM, _ALL_FRAMEWORKS, _killed("")),
    _Kind(None, "timeout", 1, _SLURM, _ALL_FRAMEWORKS, _killed(" DUE TO TIME LIMIT")),
    _Kind(None, "preempted", 1, _SLURM, _ALL_FRAMEWORKS, _killed(" DUE TO PREEMPTION")),
)


# ---------------------------------------------------------------------------------------------
# Training lines in bulk
# ---------------------------------------------------------------------------------------------

# A style is the lines of one record with the columns that fill their %-fields.
_STYLES: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "megatron": (
        (
            " [%s] iteration %8d/   50000 | consumed samples: %12d | elapsed time per iteration"
            " (ms): %.1f | throughput per GPU (TFLOP/s/GPU): %.1f | learning rate: %.6E | global"
            " batch size:  1024 | lm loss: %.6E | loss scale: 1.0 | grad norm: %.3f | number of"
            " skipped iterations:   0 | number of nan iterations:   0 |",
            ("micros", "step", "samples", "ms", "flops", "lr", "loss", "norm"),
        ),
    ),
    "untimed": (
        (
            " iteration %8d/   50000 | consumed samples: %12d | elapsed time per iteration (ms):"
            " %.1f | learning rate: %.3E | global batch size:  1024 | lm loss: %.6E | loss scale:"
            " 1.0 | grad norm: %.3f | number of skipped iterations:   0 | number of nan"
            " iterations:   0 |",
            ("step", "samples", "ms", "lr", "loss", "norm"),
        ),
    ),
    "deepspeed": (
        (
            "[%s] [INFO] [logging.py:107:log_dist] [Rank 0] step=%d, skipped=0, lr=[%.6e],"
            " mom=[(0.9, 0.95)]",
            ("comma", "step", "lr"),
        ),
        (
            "[%s] [INFO] [timer.py:264:stop] epoch=0/micro_step=%d/global_step=%d,"
            " RunningAvgSamplesPerSec=%.4f, CurrSamplesPerSec=%.4f, MemAllocated=21.38GB,"
            " MaxMemAllocated=64.02GB",
            ("comma", "samples", "step", "flops", "norm"),
        ),
    ),
    "hf": (
        (
            "{'loss': %.4f, 'grad_norm': %.4f, 'learning_rate': %.6e, 'epoch': 0.31}",
            ("loss", "norm", "lr"),
        ),
        (
            "  3%%|▎         | %d/50000 [%.1f ms/it]\r  3%%|▎         | %d/50000"
            " [1:12:07<9:58:44,  2.88s/it, loss=%.3f]",
            ("step", "ms", "step", "loss"),
        ),
    ),
    "plain": (
        (
            "%s - INFO - train - step %d | loss %.4f | lr %.3e | grad norm %.3f | %.1f TFLOP/s |"
            " mem 61.2 GiB",
            ("comma", "step", "loss", "lr", "norm", "flops"),
        ),
    ),
    "bracket": (
        (
            "[%s] INFO     [train:212, rank={rank}] step=%d loss=%.4f lr=%.3e grad_norm=%.3f"
            " device/tps=%.1f",
            ("seconds", "step", "loss", "lr", "norm", "flops"),
        ),
    ),
}


_Floats = np.ndarray[Any, np.dtype[np.float64]]


class _Frame(NamedTuple):
    """What a collector puts around a line; `@` is where its own time goes."""

    head: str
    tail: str
    escape: bool


def _frame(run: _Run, rank: int) -> _Frame:
    if run.layout == "pods":
        if run.site.rank_style == "plain":
            return _Frame("@ stderr F ", "", False)
        return _Frame('{"log":"', '\\n","stream":"stderr","time":"@"}', True)
    if rank >= 0 and run.layout == "srun":
        return _Frame(f"{rank:>{len(str(run.world - 1))}}: ", "", False)
    if rank >= 0 and run.layout == "mpirun":
        return _Frame(f"[1,{rank}]<stderr>:", "", False)
    if rank >= 0 and run.layout == "elastic":
        return _Frame(f"[default{rank % GPUS_PER_HOST}]:", "", False)
    return _Frame("", "", False)


def _framed(frame: _Frame, text: str, t: float) -> bytes:
    """A message as its lines stand in the file; `t` is the collector's clock, in UTC."""
    lines = text.split("\n")
    if frame.escape:
        clean = (line.encode(errors="surrogateescape").decode(errors="replace") for line in lines)
        lines = [json.dumps(line, ensure_ascii=False)[1:-1] for line in clean]
    head, tail = frame.head, frame.tail
    if "@" in head + tail:
        stamp = f"{datetime.fromtimestamp(t, UTC):%Y-%m-%dT%H:%M:%S.%f}731Z"
        head, tail = head.replace("@", stamp), tail.replace("@", stamp)
    body = "".join(f"{head}{line}{tail}\n" for line in lines)
    return body.encode(errors="surrogateescape")


def _stamps(style: str, t: _Floats) -> list[str]:
    units: Mapping[str, Literal["s", "ms", "us"]] = {"comma": "ms", "seconds": "s"}
    unit = units.get(style, "us")
    moments = np.round(t * 1e6).astype(np.int64).astype(np.dtype("datetime64[us]"))
    text = "\n".join(np.datetime_as_string(moments, unit).tolist())
    if style == "frame":
        text = text.replace("\n", "731Z\n") + "731Z"
    else:
        text = text.replace("T", " ")
    return (text.replace(".", ",") if style == "comma" else text).split("\n")


_Column = Callable[[np.ndarray[Any, np.dtype[np.int64]], _Floats, float], np.ndarray[Any, Any]]
_COLUMNS: Mapping[str, _Column] = {
    "step": lambda steps, noise, step_s: steps,
    "samples": lambda steps, noise, step_s: steps * 1024,
    "ms": lambda steps, noise, step_s: step_s * 1000 * (0.98 + 0.04 * noise),
    "flops": lambda steps, noise, step_s: 390 + 20 * noise,
    "lr": lambda steps, noise, step_s: 3e-4 * 0.99995**steps,
    "loss": lambda steps, noise, step_s: 1.7 + 9 / np.sqrt(steps) + 0.1 * noise,
    "norm": lambda steps, noise, step_s: 0.2 + 0.3 * noise,
}
_NOISE = np.random.default_rng(88).random(4099)
_CHUNK = 4096  # records formatted by one % operation


class _Stream(NamedTuple):
    """The training lines of one file: `records` of one rank, evenly over the training."""

    attempt: _Attempt
    rank: int
    style: str
    records: int

    def times(self) -> _Floats:
        a = self.attempt
        return a.begin + (a.stop - a.begin) * np.arange(1, self.records + 1) / (self.records + 1)

    def redraws(self) -> bool:
        """Whether a message of the same terminal starts behind a progress bar."""
        return self.style == "hf" and not any(_frame(self.attempt.run, self.rank))

    def template(self) -> tuple[str, tuple[str, ...]]:
        """The %-template of one record in its frame, and its columns."""
        frame = _frame(self.attempt.run, self.rank)
        head, tail = (part.replace("@", "%s") for part in (frame.head, frame.tail))
        text, columns = "", list[str]()
        for line, names in _STYLES[self.style]:
            body = line.replace("{rank}", str(self.rank))
            if frame.escape:
                body = json.dumps(body, ensure_ascii=False)[1:-1]
            text += f"{head}{body}{tail}\n"
            columns += ["frame"] * ("@" in frame.head) + [*names]
            columns += ["frame"] * ("@" in frame.tail)
        return text, tuple(columns)

    def lines(self, times: _Floats) -> bytes:
        """The records at these moments (seconds since the attempt's start)."""
        return b"".join(self._chunk(times[i : i + _CHUNK]) for i in range(0, times.size, _CHUNK))

    def _chunk(self, times: _Floats) -> bytes:
        a = self.attempt
        record, names = self.template()
        steps = a.first_step + np.maximum(1, ((times - a.begin) / a.step_s).astype(np.int64))
        noise = _NOISE[(steps * 7 + self.rank * 131) % _NOISE.size]
        clock = a.clock(0.0, a.host_of(self.rank)) + times
        columns: dict[str, list[Any]] = {}
        for name in set(names):
            if name in _COLUMNS:
                columns[name] = _COLUMNS[name](steps, noise, a.step_s).tolist()
            else:
                zone = a.run.site.utc_offset_s if name == "frame" else 0
                columns[name] = _stamps(name, clock - zone)
        values = tuple(chain.from_iterable(zip(*(columns[name] for name in names), strict=True)))
        return (record * times.size % values).encode()


# ---------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------


class _Written(NamedTuple):
    mark: _Mark
    decisive: dict[int, tuple[str, int]]
    kernel: list[_KernelLine]
    missing: tuple[int, ...]
    secrets: list[str]


def _write_run(tree: Tree, run: _Run, budget: int) -> _Written:
    rng = _rng(run.seed, "run", run.number)
    share = budget // run.attempts
    attempts = []
    for number in range(run.attempts):
        a = _Attempt(run, number, share, rng)
        _start_up(a)
        _train(a)
        if run.kind is None or number < run.attempts - 1:
            _finish(a)
        else:
            run.kind.plant(a, rng.randrange(run.world))
        attempts.append(a)
    keep = set().union(*(a.keep for a in attempts))
    missing: tuple[int, ...] = ()
    if run.layout == "ranks":
        spare = [rank for rank in range(run.world) if rank not in keep]
        count = int(run.world * run.missing)
        count += rng.random() < run.world * run.missing - count
        missing = tuple(sorted(rng.sample(spare, min(count, len(spare)))))
    decisive: dict[int, tuple[str, int]] = {}
    for a in attempts:
        decisive.update(_write_attempt(tree, a, share, frozenset(missing)))
    last = attempts[-1]
    return _Written(
        mark=last.mark,
        decisive=decisive,
        kernel=[line for a in attempts for line in a.kernel],
        missing=missing,
        secrets=[secret for a in attempts for secret in a.secrets],
    )


def _folder(run: _Run, attempt: int) -> str:
    return f"{run.site.name}/{run.job}" + (f"/attempt_{attempt}" if run.attempts > 1 else "")


def _path(a: _Attempt, rank: int) -> str:
    """Where a rank's lines go, or a launcher's."""
    run, folder = a.run, _folder(a.run, a.number)
    host = run.hosts[a.host_of(rank)]
    match run.layout:
        case "ranks" if rank >= 0:
            return f"{folder}/{host}/rank_{rank}.log"
        case "elastic" if rank >= 0:
            return f"{folder}/{host}/console.log"
        case "pods":
            return f"{folder}/{host}/worker-{a.host_of(rank)}.log"
        case "mpirun":
            return f"{folder}/mpirun.out"
    return f"{folder}/slurm-{run.job}.out"


def _talkers(a: _Attempt) -> list[tuple[str, int, str, float]]:
    """The files that hold training lines: path, the rank that prints, its style, its share."""
    run = a.run
    match run.layout:
        case "ranks":
            ranks: Sequence[int] = range(run.world)
        case "elastic" | "pods":
            ranks = range(0, run.world, GPUS_PER_HOST)
        case _:
            ranks = (a.primary,)
    loud = max(4.0, run.world / 8)
    talkers = []
    for rank in ranks:
        leads = a.host_of(rank) == a.host_of(a.primary) and (
            run.layout != "ranks" or rank == a.primary
        )
        who = a.primary if leads else rank
        style = run.framework if leads else run.site.rank_style
        talkers.append((_path(a, who), who, style, loud if leads else 1.0))
    return talkers


def _write_attempt(
    tree: Tree, a: _Attempt, budget: int, missing: frozenset[int]
) -> dict[int, tuple[str, int]]:
    run = a.run
    gone = {_path(a, rank) for rank in missing}
    said: dict[str, list[tuple[float, bytes, int]]] = {}
    for say in sorted(a.says, key=lambda say: say.at):
        clock = a.clock(say.at, a.host_of(say.rank)) - run.site.utc_offset_s
        data = _framed(_frame(run, say.rank), say.text, clock)
        said.setdefault(_path(a, say.rank), []).append((say.at, data, say.mark))
    streams: dict[str, _Stream] = {}
    if a.stop > a.begin:
        talkers = [talker for talker in _talkers(a) if talker[0] not in gone]
        kept = chain.from_iterable(parts for path, parts in said.items() if path not in gone)
        fill = budget - sum(len(data) for _, data, _ in kept)
        total = sum(share for *_, share in talkers)
        for path, rank, style, share in talkers:
            probe = _Stream(a, rank, style, 1)
            size = len(probe.lines(probe.times()))
            streams[path] = probe._replace(records=max(1, int(fill * share / total / size)))
    decisive = {}
    for path in sorted(said.keys() | streams.keys()):
        if path in gone:
            continue
        data, line = _merge(said.get(path, []), streams.get(path))
        if path == a.cut:
            data = data[:-1]
        stored = tree.write(path, data, run.codec, a.start + a.end)
        if line:
            decisive[run.number] = (stored, line)
    return decisive


def _merge(said: list[tuple[float, bytes, int]], stream: _Stream | None) -> tuple[bytes, int]:
    """One file's text in the order of time, and the line of it that decides (0: none)."""
    times = stream.times() if stream else np.empty(0)
    parts: list[bytes] = []
    done, line = 0, 0
    for at, data, mark in said:
        upto = int(np.searchsorted(times, at))
        if stream and upto > done:
            parts.append(stream.lines(times[done:upto]))
            done = upto
            if stream.redraws() and data.startswith(b"[rank"):
                parts[-1] = parts[-1][:-1]  # a progress bar leaves the cursor at its end
        if mark >= 0:
            line = sum(part.count(b"\n") for part in parts) + mark + 1
        parts.append(data)
    if stream and done < times.size:
        parts.append(stream.lines(times[done:]))
    return b"".join(parts), line


_KERNEL_STYLES: Mapping[str, Callable[[float, str, float], str]] = {
    "syslog": lambda local, host, up: (
        f"{datetime.fromtimestamp(local, UTC):%b %e %H:%M:%S} {host} kernel: [{up:13.6f}] "
    ),
    "ctime": lambda local, host, up: (
        f"[{datetime.fromtimestamp(local, UTC):%a %b %e %H:%M:%S %Y}] "
    ),
}


def _write_hosts(
    tree: Tree, lines: Sequence[_KernelLine], budget: int, seed: int
) -> dict[int, tuple[str, int]]:
    """Kernel logs of the hosts that matter and of a few that do not.

    One cluster collects them by host, the other saves them beside the job.
    """
    groups: dict[str, tuple[_Site, str, list[_KernelLine]]] = {}
    for line in lines:
        site = line.run.site
        path = f"{site.name}/hosts/{line.host}/dmesg.log"
        if site.kernel_style == "ctime":
            path = f"{_folder(line.run, line.attempt)}/{line.host}/dmesg.log"
        groups.setdefault(path, (site, line.host, []))[2].append(line)
    rng = _rng(seed, "hosts")
    quiet = next(site for site in _CLUSTERS if site.kernel_style == "syslog")
    for n in range(3):
        host = quiet.host % rng.randrange(n * 40, n * 40 + 40)
        groups.setdefault(f"{quiet.name}/hosts/{host}/dmesg.log", (quiet, host, []))
    decisive = {}
    for path, (site, host, own) in sorted(groups.items()):
        middle = own[0].t if own else _EPOCH + rng.uniform(0, 86400)
        noise = max(4, min(4000, budget // len(groups) // 110))
        entries: list[tuple[float, str, _KernelLine | None]] = []
        entries += [(line.t, line.text, line) for line in own]
        for _ in range(noise):
            text = rng.choice(TEXT["kernel.noise"])
            filled = text % {"n": rng.randrange(1, 9), "x": rng.randrange(10**5)}
            entries.append((middle + rng.uniform(-7200, 3000), filled, None))
        entries.sort(key=lambda entry: entry[0])
        style = _KERNEL_STYLES[site.kernel_style]
        boot = middle - rng.uniform(2e5, 9e6)
        out = []
        for number, (t, text, planted) in enumerate(entries, 1):
            out.append(style(t + site.utc_offset_s, host, t - boot) + text + "\n")
            if planted is not None and planted.decides:
                decisive[planted.run.number] = (path, number)
        tree.write(path, "".join(out).encode(), "none", entries[-1][0])
    return decisive


def _truth(
    run: _Run, mark: _Mark, decisive: tuple[str, int] | None, missing: tuple[int, ...]
) -> RunTruth:
    file, line = decisive or (None, None)
    moment = None
    if mark.t is not None:
        moment = f"{datetime.fromtimestamp(mark.t, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    return RunTruth(
        cluster=run.site.name,
        job=run.job,
        layout=run.layout,
        attempts=run.attempts,
        world_size=run.world,
        outcome=run.kind.outcome if run.kind else "completed",
        failure=run.kind.failure if run.kind else None,
        initiating_rank=mark.rank,
        initiating_host=mark.host,
        attempt=mark.attempt,
        t_first=moment,
        file=file,
        line=line,
        co_occurring=run.companions,
        missing_rank_files=missing,
    )
