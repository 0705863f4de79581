"""Make a quarter of a fleet's past with known rates: launches, their logs, the scheduler's words.

Three clusters run jobs side by side for `DAYS` days. Hardware fails at a known rate a GPU-hour, a
save of a checkpoint hits the race of DeepSpeed's offload with a known chance until it is fixed, and
warnings come alone, before an error, or with size alone. What was drawn is counted into `Past`, so
that each report can be held to it. Logs are short: a step is minutes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ingest.fleet_files import Tree
from ingest.fleet_words import TEXT, Fields

DAYS = 84
EPOCH = int(datetime(2025, 10, 6, tzinfo=UTC).timestamp())
_DAY = 86_400.0
_SIZES = ((8, 0.3), (16, 0.2), (32, 0.2), (64, 0.15), (128, 0.1), (256, 0.05))
_LANES = {8: 6, 16: 4, 32: 4, 64: 3, 128: 2, 256: 1}  # jobs of a size side by side in a cluster

_HOURS = 10.0  # of a job, on average, unless that is more than its lane has
STEP_S = 300.0
START_UP_S = 120.0  # from a launch's start to its first step
SAVE_EVERY = 6  # steps
SAVE_S = 40.0
DROP_GB = 12.0  # free space that a save of the offloaded state takes

RATES = {"caldera": 400e-6, "dorado": 1200e-6, "esker": 400e-6}  # failures a GPU-hour
STEP_CLUSTER, STEP_DAY, STEP_FACTOR = "esker", 70, 4.0  # where and when the rate grows
LEMON_CLUSTER, LEMON_RATE = "esker", 1 / 8  # failures an hour of its host
FIX_DAY = 42
RACE_CHANCE = 0.04  # a save, before the fix
BEFORE_FIX, AFTER_FIX = "0.17.4", "0.18.0"
NEW_DAY = DAYS - 7  # since when launches may be refused by the hub
NEW_CHANCE = 0.25
USER_CHANCE = 0.25  # of a DeepSpeed run to need more memory than there is
WARNED = 0.8  # of those, with a warning
FALSE_ALARM = 0.1  # of other DeepSpeed runs
LEAD_S = (300.0, 1500.0)
ENDS = (("timeout", 0.03), ("cancelled", 0.03), ("preempted", 0.03))
RETRY, WORKERS = 0.25, 0.3  # of launches, independent of all
BY_SIZE = (0.03, 0.6)  # both warnings, up to 64 GPUs and above; independent at a given size
CORRUPT_AFTER_RACE = 0.6
SLOW = ("worker", "transient", "stage_imbalance", "sequence_length", "global")

ECC, RACE, OOM = "gpu-ecc-uncorrectable", "nvme-offload-checkpoint-race", "gpu-oom"
HUB, CORRUPT, STORM = "hub-rate-limited", "checkpoint-corrupt", "index-out-of-bounds"


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch; times are seconds since 1970, `cause` what failed, `rank` where first.

    `steps` are the first and the last that were printed (NULL where none was), `saves` those of its
    complete checkpoints, `broken` the step of the save that failed.
    """

    cluster: str
    job: str
    attempt: int
    gpus: int
    hosts: tuple[str, ...]
    submit: float
    start: float
    end: float
    state: str
    cause: str | None
    rank: int | None
    host: str | None
    first_step: int | None
    last_step: int | None
    saves: tuple[int, ...]
    broken: int | None
    framework: str
    version: str | None


@dataclass(frozen=True, slots=True)
class Rate:
    """Hardware failures of a cluster and size: drawn at `rate` a GPU-hour over `gpu_hours`."""

    cluster: str
    gpus: int
    attempts: int
    gpu_hours: float
    failures: int
    rate: float


@dataclass(frozen=True, slots=True)
class Balance:
    """Where a run's hours went; they add up to `wall_h`."""

    cluster: str
    job: str
    attempts: int
    wall_h: float
    productive_h: float
    replay_h: float
    restart_h: float
    queue_h: float
    unexplained_h: float


@dataclass(frozen=True, slots=True)
class Slow:
    """A straggler: its kind, its ranks (none where all are slow), how much slower, and when."""

    cluster: str
    job: str
    kind: str
    ranks: tuple[int, ...]
    factor: float
    steps: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Past:
    """What a history holds. Pairs are of failures; counts are of launches unless they say so."""

    days: int
    launches: tuple[Launch, ...]
    rates: tuple[Rate, ...]
    balances: tuple[Balance, ...]
    associated: tuple[tuple[str, str], ...]
    unrelated: tuple[tuple[str, str], ...]
    confounded: tuple[tuple[str, str], ...]
    lemons: Mapping[str, Mapping[str, Any]]
    slow: tuple[Slow, ...]
    free_gb_per_h: Mapping[str, float]
    fingerprint: Mapping[str, Any]
    fix: Mapping[str, Any]
    first_seen: Mapping[str, Any]
    storm: Mapping[str, Any]
    step: Mapping[str, Any]


class _Job(NamedTuple):
    number: int
    name: str
    cluster: str
    gpus: int
    lane: int
    framework: str
    hours: float
    end: str
    user: bool
    slow: str | None
    storm: bool


class _Line(NamedTuple):
    """What is printed at a time; a rank's lines are a file of its own, others the launcher's."""

    t: float
    rank: int | None
    text: str


def write(tree: Tree, runs: int, seed: int, codec: str = "none") -> Past:
    """Write logs of `runs` jobs, `meta/sacct.psv` and `meta/nodes.txt`; what they hold.

    The scheduler's exports are not logs and not counted as such.
    """
    launches: list[Launch] = []
    tally: Counter[str] = Counter()
    leads: list[float] = []
    slow: list[Slow] = []
    free: dict[str, float] = {}
    storm: dict[str, Any] = {}
    ready: dict[tuple[str, int, int], float] = {}
    for job in _jobs(runs, seed):
        rng = random.Random(f"{seed}/history/{job.number}")  # noqa: S311 - log text, not keys
        lane = (job.cluster, job.gpus, job.lane)
        arrival = EPOCH + _DAY * DAYS * 0.97 * (job.number + rng.random()) / runs
        submit = max(arrival, ready.get(lane, arrival))
        ran = _run(tree, job, submit, rng, codec, tally, leads)
        ready[lane] = ran[-1].end + rng.uniform(300, 3600)
        launches += ran
        if job.slow:
            slow.append(_slowness(job))
        if job.storm:
            storm = {"cluster": job.cluster, "job": job.name, "failure": STORM, "lines": 2000}
        if job.framework == "deepspeed" and job.cluster == "caldera" and len(ran[-1].saves) > 3:
            free[f"{job.cluster}/{job.name}"] = -DROP_GB / (SAVE_EVERY * STEP_S / 3600)
    _write_meta(tree, launches)
    return _past(launches, tally, leads, slow, free, storm)


def _jobs(runs: int, seed: int) -> Iterator[_Job]:
    """Jobs in the order of submission; lanes of a size take turns."""
    rng = random.Random(f"{seed}/history")  # noqa: S311 - log text, not keys
    clusters = tuple(RATES)
    turn: Counter[tuple[str, int]] = Counter()
    gpus = [size for size, _ in _SIZES]
    shares = [share for _, share in _SIZES]
    for number in range(runs):
        cluster, size = clusters[number % len(clusters)], rng.choices(gpus, shares)[0]
        kind = SLOW[number // 3] if number % 3 == 0 and number // 3 < len(SLOW) else None
        storm = number == 1
        if kind or storm:
            size = 16
        lane = turn[cluster, size] % _LANES[size]
        turn[cluster, size] += 1
        framework = "megatron" if kind or storm or rng.random() < 0.6 else "deepspeed"
        # A lane is busy three quarters of the time at most: not all that is submitted there waits.
        busy = 0.75 * 24 * DAYS * len(clusters) * _LANES[size] / (runs * dict(_SIZES)[size])
        mean = min(_HOURS, busy)
        hours = 8.0 if kind else max(1.0, min(4 * mean, rng.expovariate(1 / mean)))
        fate, end = rng.random(), "completed"
        for name, share in ENDS:
            if 0 <= fate < share:
                end = name
            fate -= share
        user = framework == "deepspeed" and rng.random() < USER_CHANCE
        yield _Job(
            number=number,
            name=f"{700_001 + 13 * number}",
            cluster=cluster,
            gpus=size,
            lane=lane,
            framework=framework,
            hours=hours,
            end="completed" if kind or storm else end,
            user=user,
            slow=kind,
            storm=storm,
        )


def _hosts(job: _Job) -> tuple[str, ...]:
    first = sum(_LANES[size] * (size // 8) for size, _ in _SIZES if size < job.gpus)
    nodes = job.gpus // 8
    return tuple(f"{job.cluster[0]}n{first + job.lane * nodes + n:03d}" for n in range(nodes))


def lemon() -> str:
    """The host that fails more than the others: the second of the first lane of two hosts."""
    return f"{LEMON_CLUSTER[0]}n{_LANES[8] + 1:03d}"


def _run(
    tree: Tree,
    job: _Job,
    submit: float,
    rng: random.Random,
    codec: str,
    tally: Counter[str],
    leads: list[float],
) -> list[Launch]:
    """The launches of a job until it ends well, is ended, or has failed five times."""
    hosts, total = _hosts(job), max(2, round(job.hours * 3600 / STEP_S))
    saved = 0
    ran: list[Launch] = []
    while True:
        start = submit + rng.uniform(60, 1200)
        day = (start - EPOCH) / _DAY
        version = None
        if job.framework == "deepspeed":
            version = BEFORE_FIX if day < FIX_DAY else AFTER_FIX
        told: list[_Line] = []
        begin = start + START_UP_S
        natural = begin + (total - saved) * STEP_S + 60
        state, cause, rank, end, broken = "completed", None, None, natural, None
        if job.slow is None and not job.storm:
            hazard = RATES[job.cluster] * job.gpus / 3600
            if job.cluster == STEP_CLUSTER and day >= STEP_DAY:
                hazard *= STEP_FACTOR
            fails = start + rng.expovariate(hazard)
            if fails < end:
                state, cause, rank, end = "failed", ECC, rng.randrange(job.gpus), fails
            if lemon() in hosts:
                fails = start + rng.expovariate(LEMON_RATE / 3600)
                if fails < end:
                    state, cause, end = "failed", ECC, fails
                    rank = 8 * hosts.index(lemon()) + rng.randrange(8)
        if job.end != "completed":
            ended = begin + 0.6 * total * STEP_S
            if saved * STEP_S < 0.6 * total * STEP_S and ended < end:
                state, cause, rank, end = job.end, None, None, ended
        if day >= NEW_DAY and job.slow is None and rng.random() < NEW_CHANCE:
            state, cause, rank, end = "failed", HUB, 0, start + 60
        warned = rng.random()
        if job.user and not ran:
            when = begin + (0.3 + 0.5 * rng.random()) * total * STEP_S
            if when < end:
                state, cause, rank, end = "failed", OOM, rng.randrange(job.gpus), when
        if job.storm:
            state, cause, rank = "failed", STORM, 3
            end = begin + 0.5 * total * STEP_S
        saves: list[int] = []
        due = (saved // SAVE_EVERY + 1) * SAVE_EVERY
        while begin + (due - saved) * STEP_S + SAVE_S < end and due <= total:
            when = begin + (due - saved) * STEP_S + 1
            if job.framework == "deepspeed":
                tally["saves before" if version == BEFORE_FIX else "saves after"] += 1
                if version == BEFORE_FIX and rng.random() < RACE_CHANCE:
                    state, cause, rank, end, broken = "failed", RACE, 1, when + 20, due
                    break
            saves.append(due)
            due += SAVE_EVERY
        last = min(total, saved + max(0, int((end - 1 - begin) / STEP_S)))
        one = Launch(
            job.cluster, job.name, len(ran), job.gpus, hosts, submit, start, end, state, cause,
            rank, None if rank is None else hosts[rank // 8],
            saved + 1 if last > saved else None, last if last > saved else None,
            tuple(saves), broken, job.framework, version,
        )  # fmt: skip
        _tell(told, one, job, saved, rng, tally, leads, warned)
        _store(tree, one, told, codec)
        ran.append(one)
        saved = saves[-1] if saves else saved
        if state != "failed" or len(ran) == 5 or job.storm:
            return ran
        submit = end


def _tell(
    told: list[_Line],
    one: Launch,
    job: _Job,
    saved: int,
    rng: random.Random,
    tally: Counter[str],
    leads: list[float],
    warned: float,
) -> None:
    """Put what a launch prints into `told`."""
    pid = 20_000 + int(one.start) % 90_000
    dialect = {key: rng.randrange(len(TEXT[key])) for key in ("tb.oom", "tb.race", "tb.corrupt")}

    def say(
        when: float, rank: int | None, key: str, swap: tuple[str, str] | None = None, **fields: Any
    ) -> None:
        at = rank or 0
        values: dict[str, Any] = {
            "job": one.job,
            "world": one.gpus,
            "nodes": len(one.hosts),
            "dp": max(1, one.gpus // 8),
            "batch": one.gpus * 4,
            "total": 50_000,
            "rank": at,
            "lrank": at % 8,
            "host": one.hosts[at // 8],
            "head": one.hosts[0],
            "pid": pid + at,
            "tid": pid + at + 71,
            "ip": f"10.9.0.{at % 250}",
            "bus": f"{0x0F + 0x11 * (at % 8):02x}",
            "comm": 0x55D0C0000000 + 4096 * at,
            "group": 7,
            "ln": rng.randrange(10, 100),
            "dir": f"/fsx/{one.cluster}/{one.job}/checkpoints",
            "code": "/srv/code",
            "lib": "/opt/env/lib/python3.11",
            "site": "/opt/env/lib/python3.11/site-packages",
        }
        fields.setdefault("tag", f"global_step{fields.get('step', 0)}")
        text = TEXT[key][dialect.get(key, 0)]
        if swap:
            text = text.replace(*swap)
        filled = text % Fields(datetime.fromtimestamp(when, UTC), values | fields)
        told.append(_Line(when, rank, filled))

    begin = one.start + START_UP_S
    quiet = one.gpus - 1
    if one.framework == "deepspeed":
        say(one.start + 5, 0, "start.deepspeed", swap=(BEFORE_FIX, str(one.version)))
        say(one.start + 6, 0, "start.nvme")
    else:
        stages = ("model-parallel size: 1 ", "model-parallel size: 2 ")
        swap = stages if job.slow == "stage_imbalance" else None
        say(one.start + 5, 0, "start.megatron", swap=swap)
    seen = {0, one.rank or 0, *(range(one.gpus) if job.slow else ())}
    for rank in sorted(seen):
        say(one.start + 8, rank, "start.nccl")
    if one.attempt and saved:
        say(one.start + 20, 0, "start.load", tag=f"global_step{saved}")
    big = BY_SIZE[one.gpus > 64]
    warnings = (
        ("noise.wandb.retry", RETRY),
        ("noise.user", WORKERS),
        ("noise.tokens", big),
        ("noise.stream", big),
    )
    for number, (key, chance) in enumerate(warnings):
        if rng.random() < chance:
            # Apart, each behind a time: two in one second would pass for two views of one thing.
            say(one.start + 29.9 + 20 * number, 0, "start.env")
            say(one.start + 30 + 20 * number, 0, key, why="ReadTimeout")
    for step in range(one.first_step or 1, (one.last_step or 0) + 1):
        when = begin + (step - saved) * STEP_S
        for rank in sorted(seen) if job.slow else (0,):
            pace = STEP_S * _pace(job, rank, step, rng)
            told.append(_Line(when, rank, _iteration(when, step, pace, rng)))
    style = one.framework
    for step in one.saves:
        when = begin + (step - saved) * STEP_S + 1
        gone = DROP_GB * (step // SAVE_EVERY - 1)
        say(when, 0, f"save.{style}", step=step)
        if style == "deepspeed":
            sub = "" if one.version == BEFORE_FIX else "/rank00000000"
            say(when + 1, 0, "ds.copy", step=step, sub=sub, free=f"{4000 - gone:,.2f}")
            say(when + 30, 0, "ds.copied", free=f"{4000 - gone - DROP_GB:,.2f}")
        say(when + SAVE_S - 2, 0, f"saved.{style}", step=step)
    if one.framework == "deepspeed" and job.slow is None:
        fired = None
        if one.cause == OOM and warned < WARNED:
            fired = one.end - rng.uniform(*LEAD_S)
        elif one.cause != OOM and warned < FALSE_ALARM and one.end - begin > 3600:
            fired = begin + 600
        if fired is not None and fired > begin:
            say(fired, 0, "noise.flushes")
            tally["fired"] += 1
            if one.cause == OOM:
                tally["hits"] += 1
                leads.append(one.end - fired)
        tally["ooms"] += one.cause == OOM
    if one.state == "failed":
        _fail(say, one, rng, tally)
    elif one.state == "completed":
        say(one.end, 0, f"end.{style}", step=one.last_step)
        if one.gpus > 8:
            say(one.end - 0.5, quiet, "end.rank")
    else:
        reason = {"timeout": " DUE TO TIME LIMIT", "preempted": " DUE TO PREEMPTION"}
        say(one.end, None, "srun.abort", wait=62)
        say(one.end, None, "slurm.step", reason=reason.get(one.state, ""))


def _fail(say: Callable[..., None], one: Launch, rng: random.Random, tally: Counter[str]) -> None:
    rank, end = one.rank or 0, one.end
    match one.cause:
        case "gpu-ecc-uncorrectable":
            say(end, rank, "tb.cuda", what="uncorrectable ECC error encountered")
        case "gpu-oom":
            say(end, rank, "tb.oom", gib="2.25")
        case "hub-rate-limited":
            say(end, rank, "tb.hub")
        case "index-out-of-bounds":
            for n in range(2000):
                say(end + n * 0.04, rank, "index.assert", block=n // 32)
        case "nvme-offload-checkpoint-race":
            when = end - 19
            say(when - 1, 0, "save.deepspeed", step=one.broken)
            for other in range(1, min(one.gpus, 8)):
                say(when + 0.05 * other - 0.01, other, "ds.enter", step=one.broken)
                say(when + 0.05 * other, other, "tb.race", step=one.broken)
            tally["races"] += 1
            if rng.random() < CORRUPT_AFTER_RACE:
                say(end - 5.1, 2, "ds.enter", step=one.broken)
                say(end - 5, 2, "tb.corrupt", step=one.broken)
    if one.cause != STORM:
        say(end + 3, None, "srun.exit", host=one.hosts[rank // 8], task=rank, exitcode=1)
    say(end + 4, None, "srun.abort", wait=32)


def _iteration(when: float, step: int, pace_s: float, rng: random.Random) -> str:
    moment = datetime.fromtimestamp(when, UTC)
    return (
        f" [{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond:06d}] iteration {step:8d}/   50000 |"
        f" consumed samples: {step * 1024:12d} | elapsed time per iteration (ms): "
        f"{pace_s * 1000:.1f} | throughput per GPU (TFLOP/s/GPU): 395.1 | learning rate: 3.0E-04 |"
        f" global batch size:  1024 | lm loss: {1.7 + 9 / step**0.5:.6E} | loss scale: 1.0 |"
        f" grad norm: {0.2 + 0.3 * rng.random():.3f} | number of skipped iterations:   0 | number"
        " of nan iterations:   0 |"
    )


# -- stragglers ----------------------------------------------------------------------------------

_SLOW_RANK, _BLIP, _DRIFT_FROM = 11, (40, 44), 50


def _slowness(job: _Job) -> Slow:
    steps = (1, round(job.hours * 3600 / STEP_S))
    where: Mapping[str, tuple[tuple[int, ...], float, tuple[int, int]]] = {
        "worker": ((_SLOW_RANK,), 1.4, steps),
        "transient": ((_SLOW_RANK,), 2.0, _BLIP),
        "stage_imbalance": (tuple(range(8, 16)), 1.5, steps),
        "sequence_length": ((), 1.6, steps),
        "global": ((), 1.2, (_DRIFT_FROM, steps[1])),
    }
    return Slow(job.cluster, job.name, job.slow or "", *where[job.slow or ""])


def _pace(job: _Job, rank: int, step: int, rng: random.Random) -> float:
    """A rank's time of a step, over the usual."""
    pace = 0.99 + 0.02 * rng.random()
    if job.slow is None:
        return pace
    slow = _slowness(job)
    inside = slow.steps[0] <= step <= slow.steps[1]
    if job.slow == "sequence_length":
        # Each rank has its own share of long documents in each step.
        return pace * (1 + (slow.factor - 1) * rng.random())
    if inside and (rank in slow.ranks or job.slow == "global"):
        return pace * slow.factor
    return pace


# -- files ---------------------------------------------------------------------------------------


def _store(tree: Tree, one: Launch, told: list[_Line], codec: str) -> None:
    folder = f"{one.cluster}/{one.job}/attempt_{one.attempt}"
    files: dict[str, list[tuple[float, str]]] = {}
    for when, rank, text in told:
        path = f"{folder}/slurm-{one.job}.out"
        if rank is not None:
            path = f"{folder}/{one.hosts[rank // 8]}/rank_{rank}.log"
        files.setdefault(path, []).append((when, text))
    for path, lines in sorted(files.items()):
        lines.sort(key=lambda line: line[0])
        data = "".join(f"{text}\n" for _, text in lines).encode()
        tree.write(path, data, codec, one.end)


_COLUMNS = (
    "JobIDRaw|JobID|JobName|Cluster|User|Partition|State|ExitCode|Submit|Start|End|ElapsedRaw|"
    "NNodes|AllocTRES|NodeList|Restarts"
)


def _write_meta(tree: Tree, launches: list[Launch]) -> None:
    """What `sacct -D -P` and `scontrol show nodes` print, in UTC."""
    rows = [_COLUMNS]
    for number, one in enumerate(launches):
        state = "CANCELLED by 1001" if one.state == "cancelled" else one.state.upper()
        name = "pre-train\nretry" if number == 3 else f"pre-train-{number % 17}"
        rows.append(
            f"{one.job}|{one.job}|{name}|{one.cluster}|user{number % 23}|gpu|{state}|"
            f"{int(one.state == 'failed')}:0|{_iso(one.submit)}|{_iso(one.start)}|{_iso(one.end)}|"
            f"{round(one.end - one.start)}|{len(one.hosts)}|"
            f"billing={one.gpus},cpu={one.gpus * 12},gres/gpu={one.gpus},node={len(one.hosts)}|"
            f"{_node_list(one.hosts)}|{one.attempt}"
        )
        if number % 50 == 0:
            rows.append(
                f"{one.job}.batch|{one.job}.batch|batch|{one.cluster}|||{state.split()[0]}|0:0|"
                f"{_iso(one.start)}|{_iso(one.start)}|{_iso(one.end)}|{round(one.end - one.start)}|"
                f"1|cpu=96,node=1|{one.hosts[0]}|{one.attempt}"
            )
    nodes = []
    for cluster in RATES:
        for n in range(sum(_LANES[size] * (size // 8) for size, _ in _SIZES)):
            host = f"{cluster[0]}n{n:03d}"
            state = "IDLE+DRAIN" if host == lemon() else "IDLE"
            reason = "   Reason=gpu errors [root@2025-12-28T09:00:00]\n" if host == lemon() else ""
            nodes.append(
                f"NodeName={host} Arch=x86_64 CoresPerSocket=48\n"
                f"   CPUAlloc=0 CPUTot=96 Gres=gpu:h100:8\n"
                f"   NodeAddr={host} NodeHostName={host}\n   State={state} Partitions=gpu\n"
                f"   CfgTRES=cpu=96,mem=2000G,billing=96,gres/gpu=8\n{reason}"
            )
    meta = tree.root / "meta"
    meta.mkdir()
    (meta / "sacct.psv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (meta / "nodes.txt").write_text("\n".join(nodes), encoding="utf-8")


def _iso(t: float) -> str:
    return f"{datetime.fromtimestamp(round(t), UTC):%Y-%m-%dT%H:%M:%S}"


def _node_list(hosts: tuple[str, ...]) -> str:
    if len(hosts) == 1:
        return hosts[0]
    return f"{hosts[0][:2]}[{hosts[0][2:]}-{hosts[-1][2:]}]"


# -- what was drawn ------------------------------------------------------------------------------


def _past(
    launches: list[Launch],
    tally: Counter[str],
    leads: list[float],
    slow: list[Slow],
    free: Mapping[str, float],
    storm: Mapping[str, Any],
) -> Past:
    lemons = [one for one in launches if one.cause == ECC and one.host == lemon()]
    fresh = [one for one in launches if one.cause == HUB]
    leads.sort()
    return Past(
        days=DAYS,
        launches=tuple(launches),
        rates=tuple(_rates(launches)),
        balances=tuple(_balances(launches)),
        associated=((CORRUPT, RACE), ("deepspeed-cache-flush", OOM)),
        unrelated=(("dataloader-bottleneck", "wandb-network-retry"),),
        confounded=(
            ("dataset-stream-interrupted", "tokenizer-length-warning"),
            ("dataset-stream-interrupted", ECC),
            (ECC, "tokenizer-length-warning"),
        ),
        lemons={
            lemon(): {
                "cluster": LEMON_CLUSTER,
                "role": "compute",
                "failures": len(lemons),
                "runs": len({one.job for one in lemons}),
            }
        },
        slow=tuple(slow),
        free_gb_per_h=free,
        fingerprint={
            "pattern": ["run-started", "deepspeed-cache-flush", OOM],
            "fired": tally["fired"],
            "hits": tally["hits"],
            "last": tally["ooms"],
            "lead_p50_s": leads[len(leads) // 2] if leads else None,
        },
        fix={
            "failure": RACE,
            "change": _iso(EPOCH + FIX_DAY * _DAY),
            "version": AFTER_FIX,
            "k0": tally["races"],
            "saves0": tally["saves before"],
            "k1": 0,
            "saves1": tally["saves after"],
            "chance": RACE_CHANCE,
        },
        first_seen={
            "failure": HUB,
            "runs": len({(one.cluster, one.job) for one in fresh}),
            "first": _iso(min(one.end for one in fresh)) if fresh else None,
        },
        storm=storm,
        step={
            "cluster": STEP_CLUSTER,
            "day": _iso(EPOCH + STEP_DAY * _DAY)[:10],
            "factor": STEP_FACTOR,
        },
    )


def _rates(launches: list[Launch]) -> Iterator[Rate]:
    """By cluster and size, where the rate is the same all the time and no host is a lemon."""
    for cluster, rate in RATES.items():
        for gpus, _ in _SIZES if cluster not in (STEP_CLUSTER, LEMON_CLUSTER) else ():
            own = [one for one in launches if one.cluster == cluster and one.gpus == gpus]
            hours = sum(one.gpus * (one.end - one.start) / 3600 for one in own)
            failures = sum(one.cause == ECC for one in own)
            yield Rate(cluster, gpus, len(own), round(hours, 3), failures, rate)


def _balances(launches: list[Launch]) -> Iterator[Balance]:
    """Of runs that were launched again and ended well."""
    runs: dict[tuple[str, str], list[Launch]] = {}
    for one in launches:
        runs.setdefault((one.cluster, one.job), []).append(one)
    for (cluster, job), own in runs.items():
        if len(own) < 2 or any(one.last_step is None for one in own):
            continue
        wall = own[-1].end - own[0].submit
        steps = [(one.first_step or 0, one.last_step or 0) for one in own]
        highest, productive, replay = 0, 0.0, 0.0
        for first, last in steps:
            productive += max(0, last - max(highest, first - 1)) * STEP_S
            replay += max(0, min(highest, last) - first + 1) * STEP_S
            highest = max(highest, last)
        restart = START_UP_S * len(own)
        queue = sum(one.start - one.submit for one in own)
        rest = wall - productive - replay - restart - queue
        hours = (t / 3600 for t in (wall, productive, replay, restart, queue, rest))
        yield Balance(cluster, job, len(own), *hours)
