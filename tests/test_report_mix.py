"""What fails most and what costs most: two orders, held against published tables."""

from __future__ import annotations

import csv
from collections import defaultdict
from typing import Any

import duckdb
import pytest

from tests.database import Event, ask, at, database, run
from tests.support import shared

# Their domains as categories of ours; these fall into the domains hardware, framework and user.
CATEGORIES = {"Infrastructure": "hardware", "Framework": "launcher", "Script": "config"}
DOMAINS = {"Infrastructure": "hardware", "Framework": "framework", "Script": "user"}


def failed(
    name: str, failure: str, category: str, gpu_h: float, t: float = 0.0
) -> tuple[Any, dict[str, Any]]:
    """An attempt on eight GPUs that ends with this failure."""
    hours = gpu_h / 8
    job = {"cluster": "c", "job": name, "gpus": 8, "state": "FAILED", "source": "csv",
           "start_ts": at(t), "end_ts": at(t + 3600 * hours)}  # fmt: skip
    return run(f"{name}/log", Event(failure, t=t + 3600 * hours, category=category)), job


def fleet(*attempts: tuple[Any, dict[str, Any]]) -> duckdb.DuckDBPyConnection:
    files, jobs = zip(*attempts, strict=True)
    return database(*files, tables={"jobs": jobs})


def test_the_order_by_count_and_by_cost_of_acme_are_reversed() -> None:
    with shared("data", "published", "acme_table3_failures.csv").open(newline="") as lines:
        table = list(csv.DictReader(lines))
    attempts = []
    for row in table:
        count = int(row["num"])
        for number in range(count):
            one = f"{row['reason']}-{number}"
            category = CATEGORIES[row["category"]]
            gpu_h = float(row["pct_failure_gpu_time"]) * 1000 / count
            attempts.append(failed(one, row["reason"], category, gpu_h))
    found = ask(fleet(*attempts), "failure-mix", gpu_hour_price=2)
    assert {row["failure"]: row["incidents"] for row in found} == {
        row["reason"]: int(row["num"]) for row in table
    }
    counts: dict[str, int] = defaultdict(int)
    shares: dict[str, float] = defaultdict(float)
    for row in found:
        counts[row["domain"]] += row["incidents"]
        shares[row["domain"]] += row["gpu_h_share"]
    total = sum(counts.values())
    assert total == 2575
    published = {"Infrastructure": (281, 10.91, 82.06), "Framework": (404, 15.69, 14.71),
                 "Script": (1890, 73.40, 3.22)}  # fmt: skip
    for name, (count, share, cost) in published.items():
        assert counts[DOMAINS[name]] == count
        assert round(100 * count / total, 2) == share
        assert 100 * shares[DOMAINS[name]] == pytest.approx(cost, abs=0.01)
    assert found[0]["failure"] == "TypeError"
    costly = max(found, key=lambda row: row["gpu_h"])
    assert (costly["failure"], costly["money"]) == ("NVLinkError", pytest.approx(2 * 30_250))


def test_shares_are_computed_from_counts() -> None:
    """Llama 3 prints 30.1 % for 148 of 419; it is 35.3 %."""
    kinds = {"faulty-gpu": 148, "gpu-memory": 72, "other-gpu": 48, "rest": 151}
    con = fleet(*(failed(f"{kind}-{number}", kind, "hardware", 8)
                  for kind, count in kinds.items() for number in range(count)))  # fmt: skip
    found = {row["failure"]: row for row in ask(con, "failure-mix")}
    assert round(100 * found["faulty-gpu"]["share"], 1) == 35.3
    gpu = sum(found[kind]["share"] for kind in kinds if kind != "rest")
    assert round(100 * gpu, 1) == 64.0
    assert {row["money"] for row in found.values()} == {None}


def test_an_attempt_is_paid_for_once_and_only_where_it_failed() -> None:
    file, job = failed("a", "x", "storage", 80)
    twice = run("a/log", *file.events, Event("x", t=1000), Event("y", t=2000))
    survived = {"cluster": "c", "job": "b", "gpus": 8, "state": "COMPLETED", "source": "sacct",
                "start_ts": at(0), "end_ts": at(7200)}  # fmt: skip
    con = database(
        twice,
        run("b/log", Event("y", t=10), Event("run-completed", "progress", t=7000)),
        run("c/log", Event("x", rank=0, world_size=4)),
        tables={"jobs": [job, survived]},
    )
    found = {row["failure"]: row for row in ask(con, "failure-mix", gpu_hour_price=3)}
    assert sum(row["gpu_h"] or 0 for row in found.values()) == pytest.approx(80)
    first = found["x"]
    assert (first["gpu_h"], first["gpu_h_share"], first["money"]) == pytest.approx((80, 1, 240))
    assert (first["exposure_source"], first["state_log_share"]) == ("jobs", 0.5)
    assert (found["y"]["gpu_h"], found["y"]["gpu_h_share"]) == (None, None)
    assert (found["y"]["exposure_source"], found["y"]["ended_attempts"]) == ("none", 0)
