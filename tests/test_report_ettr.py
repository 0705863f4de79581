"""Training time of runs, and what wasted the rest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.database import Event, File, ask, at, database, run

HOUR = 3600.0
# queue_h, start_h, end_h, first_step_h, step_first, step_last, cause: the worked example.
EXAMPLE = (
    (0.5, 0.5, 10.5, 0.75, 0, 900, "disk-full"),
    (0.2, 10.7, 15.7, 11.0, 800, 1180, "nccl-timeout-cause"),
    (0.1, 15.8, 30.0, 16.05, 1100, 2490, None),
)


def attempt(
    number: int,
    start: float,
    end: float,
    steps: tuple[float, int, int] | None,
    failure: str | None,
    *,
    name: str = "r",
    queue: float = 0.0,
    gpus: int | None = 1024,
    t_iter: float = 0.01,
    state: str | None = None,
    category: str = "storage",
) -> tuple[File, dict[str, Any]]:
    """The log and the job of one attempt; times in hours."""
    events = []
    if steps:
        first, step_first, step_last = steps
        paced = {"iter_ms": str(t_iter * 3600e3)}
        events.append(
            Event("training-step", "progress", t=first * HOUR, step=step_first, captures=paced)
        )
        until = min(end, first + (step_last - step_first) * t_iter) * HOUR - 1
        folded = paced | {"step_last": str(step_last)}
        events.append(Event("training-step", "progress", t=until, step=step_last, captures=folded))
    if failure:
        events.append(Event(failure, t=end * HOUR, rank=0, category=category))
    job = {
        "cluster": "c", "job": name, "attempt": number, "gpus": gpus, "source": "sacct",
        "submit_ts": at((start - queue) * HOUR), "start_ts": at(start * HOUR),
        "end_ts": at(end * HOUR), "state": state or ("FAILED" if failure else "COMPLETED"),
    }  # fmt: skip
    return run(f"{name}/{number}/log", *events, run=name, job=name, attempt=number), job


def report(
    *attempts: tuple[File, dict[str, Any]], **given: Any
) -> tuple[dict[str, Any], dict[str, dict[str, Any]], list[dict[str, Any]]]:
    files, jobs = zip(*attempts, strict=True)
    rows = ask(database(*files, tables={"jobs": jobs}), "ettr", **given)
    causes = {row["cause"]: row for row in rows if row["row"] == "cause"}
    [total] = [row for row in rows if row["row"] == "total"]
    return total, causes, [row for row in rows if row["row"] == "run"]


def example() -> list[tuple[File, dict[str, Any]]]:
    return [
        attempt(number, start, end, (first, lo, hi), failure, queue=queue)
        for number, (queue, start, end, first, lo, hi, failure) in enumerate(EXAMPLE)
    ]


PARTS = ("wall_h", "productive_h", "replay_h", "restart_h", "queue_h", "unexplained_h")


def test_the_worked_example_balances() -> None:
    total, causes, [row] = report(*example(), gpu_hour_price=2.5)
    assert [row[key] for key in PARTS] == pytest.approx([30.0, 24.9, 1.8, 0.8, 0.8, 1.7])
    assert row["wall_h"] == pytest.approx(sum(row[key] for key in PARTS[1:]))
    assert (row["ettr"], total["ettr"]) == pytest.approx((0.83, 0.83))
    assert (row["method"], row["flag"], row["attempts"]) == ("steps", None, 3)
    keys = ("failures", "wasted_gpu_h", "money", "mean_lost_h", "p95_lost_h", "fallback_gpu_h")
    assert [causes["disk-full"][key] for key in keys] == pytest.approx(
        [1, 1331.2, 3328.0, 1.3, 1.3, 512.0]
    )
    assert [causes["nccl-timeout-cause"][key] for key in keys] == pytest.approx(
        [1, 1075.2, 2688.0, 1.05, 1.05, 512.0]
    )
    assert set(causes) == {"disk-full", "nccl-timeout-cause"}
    shares = [causes[cause]["share"] for cause in ("disk-full", "nccl-timeout-cause")]
    assert shares == pytest.approx([1331.2 / 2406.4, 1075.2 / 2406.4])
    # Waiting is told apart and is in no GPU-hour.
    assert causes["disk-full"]["delay_h"] == pytest.approx(0.2)
    assert (row["exposure_source"], row["state_log_share"]) == ("jobs", 0.0)


@pytest.mark.parametrize(
    ("gpus", "given", "expected"),
    [
        (16_000, {"r_f": 6.5}, 0.6840278),
        (16_000, {"r_f": 6.5, "ckpt_s": 300}, 0.9322917),
        (100_000, {"r_f": 2.34, "ckpt_s": 120, "u0_s": 120}, 0.9390625),
    ],
)
def test_the_expected_ratio_is_the_published_one(
    gpus: int, given: dict[str, Any], expected: float
) -> None:
    _, _, [row] = report(attempt(0, 0, 10, (0.1, 0, 900), None, gpus=gpus), **given)
    assert row["ettr_expected"] == pytest.approx(expected, rel=1e-6)


def test_the_best_time_between_checkpoints_is_that_of_young_and_daly() -> None:
    one = attempt(0, 0, 10, (0.1, 0, 900), None, gpus=16_000)
    _, _, [row] = report(one, r_f=6.5, save_s=60)
    assert row["ckpt_optimal_s"] / 60 == pytest.approx(14.88417, rel=1e-6)
    _, _, [row] = report(one, r_f=6.5)
    assert row["ckpt_optimal_s"] is None


def test_the_rate_of_the_fleet_is_used_where_none_is_given() -> None:
    first, second = attempt(0, 0, 12, (0, 0, 900), "x"), attempt(1, 12, 24, (12, 900, 1800), None)
    _, _, [row] = report(first, second)
    # One failure in 128 nodes x 1 day.
    assert row["ettr_expected"] == pytest.approx(1 - (300 + 1800) / 86400)


def test_without_steps_half_an_hour_is_assumed_and_said_so() -> None:
    total, causes, [row] = report(
        attempt(0, 0, 4, None, "x", gpus=8), attempt(1, 4.5, 4.7, None, "y", gpus=8),
        attempt(2, 5, 9, None, None, gpus=8),
    )  # fmt: skip
    assert (row["method"], total["method"], causes["x"]["method"]) == ("fallback",) * 3
    assert (causes["x"]["wasted_gpu_h"], causes["y"]["wasted_gpu_h"]) == pytest.approx(
        (8 * (0.5 + 1 / 12), 8 * (0.2 + 1 / 12))
    )
    assert (causes["y"]["fallback_gpu_h"], causes["y"]["fallback_share"]) == pytest.approx((1.6, 1))
    assert row["wall_h"] == pytest.approx(sum(row[key] for key in PARTS[1:]))
    assert row["unexplained_h"] == pytest.approx(0, abs=1e-9)
    assert row["queue_h"] == pytest.approx(0.8)


def test_the_fallback_may_be_asked_for() -> None:
    _, causes, [row] = report(*example(), method="fallback")
    assert row["method"] == "fallback"
    assert causes["disk-full"]["fallback_gpu_h"] == pytest.approx(512.0)
    assert causes["disk-full"]["wasted_gpu_h"] == pytest.approx(1024 * (0.5 + 1 / 12))


def test_an_attempt_that_reached_no_step_was_all_restart() -> None:
    _, causes, [row] = report(
        attempt(0, 0, 10, (1, 0, 900), "x"), attempt(1, 10, 12, None, "y"),
        attempt(2, 12, 20, (13, 850, 1500), None),
    )  # fmt: skip
    assert row["restart_h"] == pytest.approx(1 + 2 + 1)
    assert causes["x"]["wasted_gpu_h"] == pytest.approx(1024 * (0.5 + 2))
    assert causes["y"]["wasted_gpu_h"] == pytest.approx(1024 * 1)
    assert row["replay_h"] == pytest.approx(0.5)


def test_a_run_that_dies_again_before_it_caught_up_is_balanced() -> None:
    _, causes, [row] = report(
        attempt(0, 0, 10, (0, 0, 1000), "x"), attempt(1, 10, 11, (10, 800, 900), "y"),
        attempt(2, 11, 20, (11, 850, 1700), None),
    )  # fmt: skip
    assert [row[key] for key in PARTS] == pytest.approx([20, 17, 2.5, 0, 0, 0.5])
    assert causes["x"]["wasted_gpu_h"] == pytest.approx(1024 * 2)
    assert causes["y"]["wasted_gpu_h"] == pytest.approx(1024 * 0.5)


@pytest.mark.parametrize(
    ("state", "failure", "category", "cause"),
    [
        ("CANCELLED by 1001", None, "storage", "rollback"),
        (None, "loss-nan", "numerics", "rollback"),
        ("PREEMPTED", None, "storage", "preempted"),
        ("TIMEOUT", None, "storage", "timeout"),
        ("FAILED", None, "storage", "unknown"),
    ],
)
def test_steps_taken_back_on_purpose_are_no_failure_of_the_system(
    state: str | None, failure: str | None, category: str, cause: str
) -> None:
    _, causes, _ = report(
        attempt(0, 0, 10, (0, 0, 1000), failure, state=state, category=category),
        attempt(1, 10, 20, (10, 500, 1500), None),
    )
    assert set(causes) == {cause}
    assert causes[cause]["wasted_gpu_h"] == pytest.approx(1024 * 5)


def test_more_training_than_time_is_flagged() -> None:
    _, _, [row] = report(attempt(0, 0, 5, (0, 0, 900), None))
    assert (row["productive_h"], row["flag"]) == (pytest.approx(9.0), "t_iter_wrong")


def test_without_gpus_or_times_nothing_is_made_up() -> None:
    _, causes, _ = report(attempt(0, 0, 10, (0, 0, 900), "x", gpus=None), gpu_hour_price=2)
    assert (causes["x"]["wasted_gpu_h"], causes["x"]["money"]) == (None, None)
    assert causes["x"]["mean_lost_h"] == 0.5
    assert causes["x"]["exposure_source"] == "none"
    rows = ask(database(run("a/log", Event("x", rank=0))), "ettr")
    assert [(row["row"], row["wall_h"], row["method"], row["flag"]) for row in rows] == [
        ("total", None, "none", None),
        ("run", None, "none", "no_time"),
    ]


def test_the_crash_of_bloom_costs_what_was_published() -> None:
    """One crash lost 7.3 h on 384 GPUs: 2,803 GPU-hours."""
    lost = round(7.3 / 0.03)
    _, causes, _ = report(
        attempt(0, 0, 40, (0, 0, 1000), "x", gpus=384, t_iter=7.3 / lost),
        attempt(1, 41, 80, (41, 1000 - lost, 1500), None, gpus=384, t_iter=7.3 / lost),
    )
    assert causes["x"]["wasted_gpu_h"] == pytest.approx(2803, abs=0.5)
