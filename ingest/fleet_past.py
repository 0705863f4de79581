"""Draw a quarter of a fleet's past: jobs, their launches, what failed; hides chance and schedules.

Three clusters run jobs side by side for `DAYS` days. Hardware fails at a known rate a GPU-hour, a
save of a checkpoint hits the race of DeepSpeed's offload with a known chance until it is fixed, and
warnings come alone, before an error, or with size alone. What was drawn is counted into `Past`, so
that each report can be held to it. A step takes minutes, so that logs of months are short.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

DAYS = 84
EPOCH = int(datetime(2025, 10, 6, tzinfo=UTC).timestamp())
_DAY = 86_400.0
SIZES = ((8, 0.3), (16, 0.2), (32, 0.2), (64, 0.15), (128, 0.1), (256, 0.05))
LANES = {8: 6, 16: 4, 32: 4, 64: 3, 128: 2, 256: 1}  # jobs of a size side by side in a cluster

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
STORM_LINES = 2000


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch; times are seconds since 1970, `cause` what failed, `rank` where first.

    `first_step` and `last_step` are those that were printed (None where none was), `resumed` that
    of the checkpoint it began with, `saves` those of its complete ones, `broken` that of the save
    that failed, `corrupt` whether that was found out, `warned` when memory ran short, and
    `version` that of DeepSpeed (None: Megatron).
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
    resumed: int
    saves: tuple[int, ...]
    broken: int | None
    corrupt: bool
    warned: float | None
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
class Lemon:
    """A host that fails more than others: how often it began a failure, of how many jobs."""

    host: str
    cluster: str
    failures: int
    runs: int


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Failures in this order; `fired` launches showed all but the last, `hits` of them that too.

    `last` is how many showed the last at all.
    """

    pattern: tuple[str, ...]
    fired: int
    hits: int
    last: int
    lead_p50_s: float | None


@dataclass(frozen=True, slots=True)
class Fix:
    """What a change mended: failures and saves before (0) and after (1) of what can fail so."""

    failure: str
    change: str
    version: str
    k0: int
    saves0: int
    k1: int
    saves1: int
    chance: float


@dataclass(frozen=True, slots=True)
class Step:
    """Since when (a day) hardware of a cluster fails so many times as often."""

    cluster: str
    day: str
    factor: float


@dataclass(frozen=True, slots=True)
class Past:
    """What a past holds; pairs are of failures, over launches.

    `free_gb_per_h` is how fast free space shrinks by launch (cluster/job/attempt), `first_seen` the
    first time of failures that are new in the last week, `storms` the lines of one by its run.
    """

    days: int
    launches: tuple[Launch, ...]
    rates: tuple[Rate, ...]
    balances: tuple[Balance, ...]
    associated: tuple[tuple[str, str], ...]
    unrelated: tuple[tuple[str, str], ...]
    confounded: tuple[tuple[str, str], ...]
    lemons: tuple[Lemon, ...]
    slow: tuple[Slow, ...]
    free_gb_per_h: Mapping[str, float]
    fingerprint: Fingerprint
    fix: Fix
    first_seen: Mapping[str, str]
    storms: Mapping[str, int]
    step: Step


class Job(NamedTuple):
    """What was submitted: `hours` of training, and how it is to end or to be slow."""

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


def launches(runs: int, seed: int) -> Iterator[tuple[Job, list[Launch]]]:
    """Each job with its launches, in the order of submission."""
    ready: dict[tuple[str, int, int], float] = {}
    for job in _jobs(runs, seed):
        rng = random.Random(f"{seed}/past/{job.number}")  # noqa: S311 - log text, not keys
        lane = (job.cluster, job.gpus, job.lane)
        arrival = EPOCH + _DAY * DAYS * 0.97 * (job.number + rng.random()) / runs
        submit = max(arrival, ready.get(lane, arrival))
        ran = _run(job, submit, rng)
        ready[lane] = ran[-1].end + rng.uniform(300, 3600)
        yield job, ran


def _jobs(runs: int, seed: int) -> Iterator[Job]:
    """Jobs in the order of submission; lanes of a size take turns."""
    rng = random.Random(f"{seed}/history")  # noqa: S311 - log text, not keys
    clusters = tuple(RATES)
    turn: Counter[tuple[str, int]] = Counter()
    gpus = [size for size, _ in SIZES]
    shares = [share for _, share in SIZES]
    for number in range(runs):
        cluster, size = clusters[number % len(clusters)], rng.choices(gpus, shares)[0]
        kind = SLOW[number // 3] if number % 3 == 0 and number // 3 < len(SLOW) else None
        storm = number == 1
        if kind or storm:
            size = 16
        lane = turn[cluster, size] % LANES[size]
        turn[cluster, size] += 1
        framework = "megatron" if kind or storm or rng.random() < 0.6 else "deepspeed"
        # A lane is busy three quarters of the time at most: not all that is submitted there waits.
        busy = 0.75 * 24 * DAYS * len(clusters) * LANES[size] / (runs * dict(SIZES)[size])
        mean = min(_HOURS, busy)
        hours = 8.0 if kind else max(1.0, min(4 * mean, rng.expovariate(1 / mean)))
        fate, end = rng.random(), "completed"
        for name, share in ENDS:
            if 0 <= fate < share:
                end = name
            fate -= share
        user = framework == "deepspeed" and rng.random() < USER_CHANCE
        yield Job(
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


def _hosts(job: Job) -> tuple[str, ...]:
    first = sum(LANES[size] * (size // 8) for size, _ in SIZES if size < job.gpus)
    nodes = job.gpus // 8
    return tuple(f"gpu-{job.cluster[0]}{first + job.lane * nodes + n:03d}" for n in range(nodes))


def lemon() -> str:
    """The host that fails more than the others: the second of the first lane of two hosts."""
    return f"gpu-{LEMON_CLUSTER[0]}{LANES[8] + 1:03d}"


def _run(job: Job, submit: float, rng: random.Random) -> list[Launch]:
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
            if version == BEFORE_FIX and rng.random() < RACE_CHANCE:
                state, cause, rank, end, broken = "failed", RACE, 1, when + 20, due
                break
            saves.append(due)
            due += SAVE_EVERY
        last = min(total, saved + max(0, int((end - 1 - begin) / STEP_S)))
        warned = None
        if version is not None:
            warned = _warned(cause, begin, end, rng)
        one = Launch(
            cluster=job.cluster,
            job=job.name,
            attempt=len(ran),
            gpus=job.gpus,
            hosts=hosts,
            submit=submit,
            start=start,
            end=end,
            state=state,
            cause=cause,
            rank=rank,
            host=None if rank is None else hosts[rank // 8],
            first_step=saved + 1 if last > saved else None,
            last_step=last if last > saved else None,
            resumed=saved,
            saves=tuple(saves),
            broken=broken,
            corrupt=cause == RACE and rng.random() < CORRUPT_AFTER_RACE,
            warned=warned,
            version=version,
        )
        ran.append(one)
        saved = saves[-1] if saves else saved
        if state != "failed" or len(ran) == 5 or job.storm:
            return ran
        submit = end


def _warned(cause: str | None, begin: float, end: float, rng: random.Random) -> float | None:
    """When a launch says that memory is short: before there is none, and at times for nothing."""
    drawn = rng.random()
    at = None
    if cause == OOM and drawn < WARNED:
        at = end - rng.uniform(*LEAD_S)
    elif cause != OOM and drawn < FALSE_ALARM and end - begin > 3600:
        at = begin + 600
    return at if at is not None and at > begin else None


# -- stragglers ----------------------------------------------------------------------------------

_SLOW_RANK, _BLIP, _DRIFT_FROM = 11, (40, 44), 50


def slowness(job: Job) -> Slow:
    """What is slow in a job that has a kind of it."""
    steps = (1, round(job.hours * 3600 / STEP_S))
    where: Mapping[str, tuple[tuple[int, ...], float, tuple[int, int]]] = {
        "worker": ((_SLOW_RANK,), 1.4, steps),
        "transient": ((_SLOW_RANK,), 2.0, _BLIP),
        "stage_imbalance": (tuple(range(8, 16)), 1.5, steps),
        "sequence_length": ((), 1.6, steps),
        "global": ((), 1.2, (_DRIFT_FROM, steps[1])),
    }
    return Slow(job.cluster, job.name, job.slow or "", *where[job.slow or ""])


# -- what was drawn ------------------------------------------------------------------------------


def past(drawn: list[tuple[Job, list[Launch]]]) -> Past:
    """The truth about these launches."""
    all_ = [one for _, ran in drawn for one in ran]
    saving = [one for one in all_ if one.version]
    lemons = [one for one in all_ if one.cause == ECC and one.host == lemon()]
    fresh = [one for one in all_ if one.cause == HUB]
    ooms = [one for one in all_ if one.cause == OOM]
    leads = sorted(one.end - one.warned for one in ooms if one.warned is not None)
    storm = next((job for job, _ in drawn if job.storm), None)

    def saves(version: str) -> int:
        own = (one for one in saving if one.version == version)
        return sum(len(one.saves) + (one.broken is not None) for one in own)

    return Past(
        days=DAYS,
        launches=tuple(all_),
        rates=tuple(_rates(all_)),
        balances=tuple(_balances(all_)),
        associated=((CORRUPT, RACE), ("deepspeed-cache-flush", OOM)),
        unrelated=(("dataloader-bottleneck", "wandb-network-retry"),),
        confounded=(
            ("dataset-stream-interrupted", "tokenizer-length-warning"),
            ("dataset-stream-interrupted", ECC),
            (ECC, "tokenizer-length-warning"),
        ),
        lemons=(Lemon(lemon(), LEMON_CLUSTER, len(lemons), len({one.job for one in lemons})),),
        slow=tuple(slowness(job) for job, _ in drawn if job.slow),
        free_gb_per_h={
            f"{one.cluster}/{one.job}/{one.attempt}": -DROP_GB / (SAVE_EVERY * STEP_S / 3600)
            for one in saving
            if len(one.saves) > 3
        },
        fingerprint=Fingerprint(
            pattern=("run-started", "deepspeed-cache-flush", OOM),
            fired=sum(one.warned is not None for one in all_),
            hits=len(leads),
            last=len(ooms),
            lead_p50_s=leads[len(leads) // 2] if leads else None,
        ),
        fix=Fix(
            failure=RACE,
            change=iso(EPOCH + FIX_DAY * _DAY),
            version=AFTER_FIX,
            k0=sum(one.cause == RACE for one in all_),
            saves0=saves(BEFORE_FIX),
            k1=0,
            saves1=saves(AFTER_FIX),
            chance=RACE_CHANCE,
        ),
        first_seen={HUB: iso(min(one.end for one in fresh))} if fresh else {},
        storms={f"{storm.cluster}/{storm.name}": STORM_LINES} if storm else {},
        step=Step(STEP_CLUSTER, iso(EPOCH + STEP_DAY * _DAY)[:10], STEP_FACTOR),
    )


def iso(t: float) -> str:
    """A time in UTC, as the scheduler prints it."""
    return f"{datetime.fromtimestamp(round(t), UTC):%Y-%m-%dT%H:%M:%S}"


def _rates(launches: list[Launch]) -> Iterator[Rate]:
    """By cluster and size, where the rate is the same all the time and no host is a lemon."""
    for cluster, rate in RATES.items():
        for gpus, _ in SIZES if cluster not in (STEP_CLUSTER, LEMON_CLUSTER) else ():
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
