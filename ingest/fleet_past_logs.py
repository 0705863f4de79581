"""Write the logs of a fleet's past, and what its scheduler says; hides how they are worded."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ingest.fleet_files import Tree
from ingest.fleet_past import (
    BEFORE_FIX,
    BY_SIZE,
    DROP_GB,
    LANES,
    RACE,
    RATES,
    RETRY,
    SAVE_EVERY,
    SAVE_S,
    SIZES,
    START_UP_S,
    STEP_S,
    STORM,
    STORM_LINES,
    WORKERS,
    Job,
    Launch,
    Past,
    iso,
    launches,
    lemon,
    past,
    slowness,
)
from ingest.fleet_words import TEXT, Fields


class _Line(NamedTuple):
    """What is printed at a time; a rank's lines are a file of its own, others the launcher's."""

    t: float
    rank: int | None
    text: str


def write(tree: Tree, runs: int, seed: int, codec: str = "none") -> Past:
    """Write logs of `runs` jobs, `meta/sacct.psv` and `meta/nodes.txt`; what they hold.

    The scheduler's exports are not logs and not counted as such.
    """
    drawn = list(launches(runs, seed))
    for job, ran in drawn:
        rng = random.Random(f"{seed}/past/logs/{job.number}")  # noqa: S311 - log text, not keys
        for one in ran:
            told: list[_Line] = []
            _tell(told, one, job, rng)
            _store(tree, one, told, codec)
    _write_meta(tree, [one for _, ran in drawn for one in ran])
    return past(drawn)


def _tell(told: list[_Line], one: Launch, job: Job, rng: random.Random) -> None:
    """Put what a launch prints into `told`."""
    saved = one.resumed
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
    if job.framework == "deepspeed":
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
    style = job.framework
    for step in one.saves:
        when = begin + (step - saved) * STEP_S + 1
        gone = DROP_GB * (step // SAVE_EVERY - 1)
        say(when, 0, f"save.{style}", step=step)
        if style == "deepspeed":
            sub = "" if one.version == BEFORE_FIX else "/rank00000000"
            say(when + 1, 0, "ds.copy", step=step, sub=sub, free=f"{4000 - gone:,.2f}")
            say(when + 30, 0, "ds.copied", free=f"{4000 - gone - DROP_GB:,.2f}")
        say(when + SAVE_S - 2, 0, f"saved.{style}", step=step)
    if one.warned is not None:
        say(one.warned, 0, "noise.flushes")
    if one.state == "failed":
        _fail(say, one)
    elif one.state == "completed":
        say(one.end, 0, f"end.{style}", step=one.last_step)
        if one.gpus > 8:
            say(one.end - 0.5, quiet, "end.rank")
    else:
        reason = {"timeout": " DUE TO TIME LIMIT", "preempted": " DUE TO PREEMPTION"}
        say(one.end, None, "srun.abort", wait=62)
        say(one.end, None, "slurm.step", reason=reason.get(one.state, ""))


def _fail(say: Callable[..., None], one: Launch) -> None:
    rank, end = one.rank or 0, one.end
    if one.cause != RACE:
        say(end - 0.2, rank, "start.env")  # a time: what fails prints none
    match one.cause:
        case "gpu-ecc-uncorrectable":
            say(end, rank, "tb.cuda", what="uncorrectable ECC error encountered")
        case "gpu-oom":
            say(end, rank, "tb.oom", gib="2.25")
        case "hub-rate-limited":
            say(end, rank, "tb.hub")
        case "index-out-of-bounds":
            for n in range(STORM_LINES):
                say(end + 0.04 * n, rank, "index.assert", block=n // 32)
        case "nvme-offload-checkpoint-race":
            when = end - 19
            say(when - 1, 0, "save.deepspeed", step=one.broken)
            for other in range(1, min(one.gpus, 8)):
                say(when + 0.05 * other - 0.01, other, "ds.enter", step=one.broken)
                say(when + 0.05 * other, other, "tb.race", step=one.broken)
            if one.corrupt:
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


def _pace(job: Job, rank: int, step: int, rng: random.Random) -> float:
    """A rank's time of a step, over the usual."""
    pace = 0.99 + 0.02 * rng.random()
    if job.slow is None:
        return pace
    slow = slowness(job)
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


def _write_meta(tree: Tree, launches: Sequence[Launch]) -> None:
    """What `sacct -D -P` and `scontrol show nodes` print, in UTC."""
    rows = [_COLUMNS]
    for number, one in enumerate(launches):
        state = "CANCELLED by 1001" if one.state == "cancelled" else one.state.upper()
        name = "pre-train\nretry" if number == 3 else f"pre-train-{number % 17}"
        rows.append(
            f"{one.job}|{one.job}|{name}|{one.cluster}|user{number % 23}|gpu|{state}|"
            f"{int(one.state == 'failed')}:0|{iso(one.submit)}|{iso(one.start)}|{iso(one.end)}|"
            f"{round(one.end - one.start)}|{len(one.hosts)}|"
            f"billing={one.gpus},cpu={one.gpus * 12},gres/gpu={one.gpus},node={len(one.hosts)}|"
            f"{_node_list(one.hosts)}|{one.attempt}"
        )
        if number % 50 == 0:
            rows.append(
                f"{one.job}.batch|{one.job}.batch|batch|{one.cluster}|||{state.split()[0]}|0:0|"
                f"{iso(one.start)}|{iso(one.start)}|{iso(one.end)}|{round(one.end - one.start)}|"
                f"1|cpu=96,node=1|{one.hosts[0]}|{one.attempt}"
            )
    nodes = []
    for cluster in RATES:
        for n in range(sum(LANES[size] * (size // 8) for size, _ in SIZES)):
            host = f"gpu-{cluster[0]}{n:03d}"
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


def _node_list(hosts: tuple[str, ...]) -> str:
    if len(hosts) == 1:
        return hosts[0]
    return f"{hosts[0][:-3]}[{hosts[0][-3:]}-{hosts[-1][-3:]}]"
