"""Failure rates by job size against the worked example, published fleets, and planted rates."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import duckdb
import numpy as np
import pytest

from queries import report, stats
from tests.database import EPOCH, Event, File, ask, database, empty, insert, run


def job(job_id: str, gpus: int | None, start_h: float, hours: float, **keys: Any) -> dict[str, Any]:
    """A row of `jobs`, completed on a cluster c where `keys` do not say."""
    row: dict[str, Any] = {
        "cluster": "c", "job": job_id, "attempt": 0, "state": "COMPLETED", "gpus": gpus,
        "nodes": None if gpus is None else -(-gpus // 8), "source": "sacct",
        "start_ts": EPOCH + timedelta(hours=start_h),
        "end_ts": EPOCH + timedelta(hours=start_h + hours),
    }  # fmt: skip
    return row | keys


def spread(
    gpus: int, failures: int, hours: float, state: str = "NODE_FAIL", **keys: Any
) -> list[dict[str, Any]]:
    """Attempts that ran so many hours in all, failures evenly among them."""
    n = 10 * max(failures, 1)
    step = hours / n
    return [
        job(f"{gpus}-{state}-{i}", gpus, i * step, step,
            state=state if i % 10 == 5 and failures else "COMPLETED", **keys)
        for i in range(n)
    ]  # fmt: skip


def one(rows: list[dict[str, Any]], **keys: Any) -> dict[str, Any]:
    [row] = [row for row in rows if all(row[key] == value for key, value in keys.items())]
    return row


# r05_buckets.csv: GPUs, failures, hours that the attempts ran.
EXAMPLE = ((8, 3, 4000.0), (64, 4, 900.0), (512, 6, 160.0), (1024, 9, 110.0), (4096, 0, 5.0))
BUCKETS = "8,64,512,1024,4096"


def test_sizes_reproduce_the_worked_example() -> None:
    jobs = [row for size in EXAMPLE for row in spread(*size)]
    with database(tables={"jobs": jobs}) as con:
        rows = ask(con, "failure-rate", buckets=BUCKETS)
    names = ("failures", "gpu_hours", "rate_per_Mgpuh", "rate_lo", "rate_hi", "mttf_h", "mttf_lo_h",
             "mttf_hi_h", "r_f", "expected", "obs_over_exp")  # fmt: skip
    expected = {
        "1-8": (3, 32000, 93.75, 19.3335, 273.9773, 1333.333, 456.2422, 6465.46, 18.0, 2.310924,
                1.298182),
        "9-64": (4, 57600, 69.44444, 18.92127, 177.8054, 225.0, 87.87699, 825.7901, 13.33333,
                 4.159664, 0.9616162),
        "65-512": (6, 81920, 73.24219, 26.87859, 159.4174, 26.66667, 12.25164, 72.66471, 14.0625,
                   5.915966, 1.014205),
        "513-1024": (9, 112640, 79.90057, 36.53563, 151.6762, 12.22222, 6.43847, 26.72905, 15.34091,
                     8.134454, 1.106405),
        "1025-4096": (0, 20480, 0, 0, 180.1211, None, 1.669041, None, 0, 1.478992, 0),
    }  # fmt: skip
    found = {r["bucket"]: tuple(r[name] for name in names) for r in rows if r["row"] == "bucket"}
    assert found.keys() == expected.keys()
    for bucket, values in expected.items():
        for name, got, wanted in zip(names, found[bucket], values, strict=True):
            same = got is None if wanted is None else got == pytest.approx(wanted, rel=1e-6)
            assert same, (bucket, name, got, wanted)
    total = one(rows, row="total")
    assert [
        total[k] for k in ("failures", "gpu_hours", "node_days", "r_f", "r_f_lo", "r_f_hi")
    ] == (pytest.approx([22, 304640, 1586.667, 13.86555, 8.689464, 20.9926], rel=1e-6))
    fit = one(rows, row="fit")
    assert [fit[k] for k in ("b", "b_lo", "b_hi", "deviance", "df", "p_1overN")] == pytest.approx(
        [-0.07381947, -0.3055516, 0.1579127, 3.242012, 4, 0.5181722], rel=1e-6
    )
    assert fit["verdict"] == "one_over_n"
    assert {r["verdict"] for r in rows if r["bucket"] in ("1-8", "9-64", "1025-4096")} == {
        "too_rare"
    }
    assert {
        (r["exposure_source"], r["exposure_jobs_share"], r["state_log_share"]) for r in rows
    } == {("jobs", 1.0, 0.0)}


def fleet(failures: int, node_days: float, nodes: int) -> list[dict[str, Any]]:
    """Whole-machine attempts with failures evenly among them."""
    return spread(8 * nodes, failures, 24 * node_days / nodes)


@pytest.mark.parametrize(
    ("failures", "node_days", "nodes", "r_f", "project"),
    [
        # Kokolis et al.: r_f = 6.50 means 1.8 h at 16,384 GPUs and 0.23 h at 131,072.
        (13, 2000, 128, (6.5,), {16384: (1.802885,), 131072: (0.2253606,), 1024: (28.84615,)}),
        # Llama 3: 419 unplanned interruptions in 54 days of 2,048 nodes.
        (419, 54 * 2048, 2048, (3.788701, 3.43, 4.17), {16384: (3.093079, 2.810634, 3.412)}),
        # GLM-130B's log: 10 nodes failed in 5,168 node-days of 96 nodes.
        (10, 5168, 96, (1.93, 0.93, 3.56), {}),
    ],
)
def test_published_fleets_are_reproduced(
    failures: int,
    node_days: float,
    nodes: int,
    r_f: tuple[float, ...],
    project: dict[int, tuple[float, ...]],
) -> None:
    with database(tables={"jobs": fleet(failures, node_days, nodes)}) as con:
        rows = ask(con, "failure-rate", project=",".join(map(str, project)) or "8")
    large = one(rows, row="large")
    assert large["node_days"] == pytest.approx(node_days)
    found = [large["r_f"], large["r_f_lo"], large["r_f_hi"]][: len(r_f)]
    assert found == pytest.approx(list(r_f), abs=5e-3)
    for gpus, values in project.items():
        row = one(rows, row="projection", gpus=gpus)
        found = [row["mttf_h"], row["mttf_lo_h"], row["mttf_hi_h"]][: len(values)]
        assert found == pytest.approx(list(values), rel=1e-6)
        assert row["bucket"] == ">128"


def test_without_failures_there_is_a_limit_and_no_value() -> None:
    with database(tables={"jobs": spread(512, 0, 100.0)}) as con:
        rows = ask(con, "failure-rate", project="4096")
    total, ahead, fit = (one(rows, row=name) for name in ("total", "projection", "fit"))
    assert (total["mttf_h"], total["mttf_hi_h"]) == (None, None)
    assert total["mttf_lo_h"] == pytest.approx(100 / 2.995732)
    assert total["rate_hi"] == pytest.approx(1e6 * 3.688879 / 51200)
    assert (ahead["mttf_h"], ahead["mttf_hi_h"]) == (None, None)
    assert ahead["mttf_lo_h"] == pytest.approx(100 / 2.995732 / 8)
    assert (fit["b"], fit["p_1overN"], fit["verdict"]) == (None, None, "too_rare")


def test_healthy_censored_and_running_attempts_are_exposure_without_logs_too() -> None:
    jobs = [
        job("done", 8, 0, 10),
        job("killed", 8, 0, 10, state="CANCELLED by 1000"),
        job("late", 8, 0, 10, state="TIMEOUT"),
        job("moved", 8, 0, 10, state="PREEMPTED"),
        job("going", 8, 2, 0, state="RUNNING", end_ts=None),
        job("queued", 8, 0, 0, state="PENDING", start_ts=None, end_ts=None),
        job("broken", 8, 0, 10, state="NODE_FAIL"),
        job("backwards", 8, 5, -3, state="FAILED"),
    ]
    with database(tables={"jobs": jobs}) as con:
        total = one(ask(con, "failure-rate"), row="total")
    # The running one until the last time known, 10 h.
    assert (total["attempts"], total["run_hours"], total["gpu_hours"]) == (8, 58.0, 464.0)
    assert (total["failures"], total["censored"]) == (1, 4)
    assert (total["exposure_source"], total["exposure_jobs_share"]) == ("mixed", 0.75)


def test_without_a_size_there_is_no_rate() -> None:
    with database(tables={"jobs": [job("x", None, 0, 10, state="NODE_FAIL")]}) as con:
        rows = ask(con, "failure-rate")
    assert [r["row"] for r in rows] == ["bucket", "total"]
    for row in rows:
        assert (row["failures"], row["gpu_hours"], row["rate_per_Mgpuh"], row["mttf_h"]) == (
            1, None, None, None,
        )  # fmt: skip
        assert (row["verdict"], row["exposure_source"]) == ("no_exposure", "none")
    assert rows[0]["bucket"] == "unknown"


def logged(name: str, *events: Event, gpus: int = 64) -> File:
    return run(f"{name}/log", Event("run-started", "progress", t=0, category="progress",
               world_size=gpus), *events)  # fmt: skip


def test_infrastructure_and_systemic_failures_count_the_users_own_do_not() -> None:
    files = [
        logged("xid", Event("gpu-xid", t=3600, rank=1, category="hardware")),
        logged("disk", Event("disk-full", t=3600, rank=1, category="storage")),
        logged("typo", Event("bad-config", t=3600, rank=1, category="config")),
        logged("nan", *(Event("nan-loss", t=3600, rank=r, category="numerics") for r in range(64))),
        logged("race", *(Event("checkpoint-race", t=3600, rank=r, category="checkpoint")
                         for r in range(1, 64))),
        logged("save", Event("save-failed", t=3600, rank=1, category="checkpoint")),
        logged("fine", Event("run-completed", "progress", t=3600, category="progress")),
    ]  # fmt: skip
    jobs = [job("node", 64, 0, 1, state="NODE_FAIL"), job("dark", 64, 0, 1, state="FAILED")]
    with database(*files, tables={"jobs": jobs}) as con:
        infra = one(ask(con, "failure-rate"), row="total")
        every = one(ask(con, "failure-rate", definition="any_failed"), row="total")
        race = one(ask(con, "failure-rate", failure="checkpoint-race"), row="total")
    assert (infra["definition"], infra["failures"], infra["failed_unknown"]) == ("infra", 4, 2)
    assert (every["definition"], every["failures"]) == ("any_failed", 8)
    assert (race["failures"], race["attempts"], race["gpu_hours"]) == (1, 9, 9 * 64)
    assert every["exposure_source"] == "mixed"
    assert every["state_log_share"] == pytest.approx(7 / 9)


def test_a_crash_loop_is_one_run_and_widens_the_limits() -> None:
    quiet = [job(f"q{n}", 1024, 10 * n, 10, state="NODE_FAIL" if n % 10 == 0 else "COMPLETED")
             for n in range(150)]  # fmt: skip
    loop = [job("loop", 1024, 1500 + n / 2, 0.5, attempt=n, state="NODE_FAIL") for n in range(35)]
    with database(tables={"jobs": quiet + loop}) as con:
        total = one(ask(con, "failure-rate"), row="total")
    assert (total["failures"], total["failures_distinct_runs"]) == (50, 16)
    assert total["dispersion"] > 1.5
    assert total["verdict"] == "overdispersed"
    # Garwood's limits of 50 are 37.11 and 65.92; on the log scale they grow by sqrt(dispersion).
    widen = total["dispersion"] ** 0.5
    assert total["r_f_lo"] / total["r_f"] == pytest.approx((37.11105 / 50) ** widen, rel=1e-4)
    assert total["r_f_hi"] / total["r_f"] == pytest.approx((65.91845 / 50) ** widen, rel=1e-4)


def test_a_range_of_time_cuts_exposure_and_failures_alike() -> None:
    jobs = [job("a", 8, 0, 48, state="NODE_FAIL"), job("b", 8, 60, 4, state="NODE_FAIL")]
    with database(tables={"jobs": jobs}) as con:
        total = one(ask(con, "failure-rate", since="2026-03-01T12:00", until="2026-03-02"),
                    row="total")  # fmt: skip
    assert (total["attempts"], total["run_hours"], total["failures"]) == (1, 12.0, 0)


def test_clusters_have_their_rows_and_the_fleet_its_own() -> None:
    jobs = [job("a", 8, 0, 10, state="NODE_FAIL"), job("a", 8, 0, 30, cluster="d")]
    with database(tables={"jobs": jobs}) as con:
        totals = [r for r in ask(con, "failure-rate") if r["row"] == "total"]
    assert [(r["cluster"], r["attempts"], r["run_hours"], r["failures"]) for r in totals] == [
        ("(all)", 2, 40.0, 1), ("c", 1, 10.0, 1), ("d", 1, 30.0, 0),
    ]  # fmt: skip


def test_four_times_the_largest_size_is_the_projection_by_default() -> None:
    with database(tables={"jobs": spread(512, 5, 100.0)}) as con:
        row = one(ask(con, "failure-rate"), row="projection")
    assert (row["gpus"], row["mttf_h"]) == (2048, pytest.approx(100 / 5 / 4))


def test_lists_of_numbers_are_checked_and_sorted() -> None:
    definition = report.load("failure-rate")
    assert report.arguments(definition, {"buckets": "64, 8,64"})["buckets"] == [8.0, 64.0]
    for text, remedy in (("8;64", "numbers separated by commas"), ("8,0", "1 or more")):
        with pytest.raises(report.ArgumentError, match=f"give {remedy}"):
            report.arguments(definition, {"buckets": text})


@pytest.mark.parametrize(
    ("counts", "sizes", "exposures", "expected"),
    [
        # One size with failures does not bound a slope; the deviance stands.
        ([0, 5], [8, 64], [1, 1], [None, None, 2 * 5 * math.log(2), 1.0]),
        ([3], [8], [10], [None, None, None, 0.0]),
        ([0, 0], [8, 64], [1, 2], [None, None, None, 1.0]),
        ([3, 4], [8, 64], [0, 2], [None, None, None, 0.0]),
        # Twice the rate at twice the size: the slope is 1, its error sqrt(1/4 + 1/8) / ln 2.
        ([4, 8], [8, 16], [10, 10],
         [1.0, math.sqrt(3 / 8) / math.log(2), 2 * (4 * math.log(2 / 3) + 8 * math.log(4 / 3)), 1]),
    ],
)  # fmt: skip
def test_the_slope_of_a_rate_is_fitted_where_counts_bound_it(
    counts: list[float], sizes: list[float], exposures: list[float], expected: list[float | None]
) -> None:
    con = duckdb.connect()
    stats.register(con)
    query = "SELECT poisson_fit($1::DOUBLE[], $2::DOUBLE[], $3::DOUBLE[])"
    [(found,)] = con.execute(query, [counts, sizes, exposures]).fetchall()
    assert [x if x is None else pytest.approx(x) for x in expected] == found


# -- planted rates -----------------------------------------------------------------------------

SIZES = {8: 120, 64: 60, 512: 40, 2048: 20}  # attempts of 24 h at most
RATE = 80e-6  # failures in a GPU-hour


def planted(con: Any, power: float = 0.0) -> None:
    """20 clusters, one a seed, whose attempts fail at RATE * (GPUs / 512)^power a GPU-hour."""
    jobs = []
    for seed in range(20):
        draw = np.random.default_rng(seed)
        for gpus, attempts in SIZES.items():
            scale = 1 / (gpus * RATE * (gpus / 512) ** power)
            for n, hours in enumerate(draw.exponential(scale, attempts)):
                start = 24.0 * n
                state = "NODE_FAIL" if hours < 24 else "COMPLETED"
                jobs.append(job(f"{gpus}-{n}", gpus, start, min(hours, 24.0), state=state,
                                cluster=f"s{seed:02}"))  # fmt: skip
    insert(con, "jobs", jobs)


def test_intervals_cover_the_planted_rate_and_one_over_n_holds() -> None:
    with empty() as con:
        planted(con)
        rows = [r for r in ask(con, "failure-rate") if r["cluster"] != "(all)"]
    sizes = [r for r in rows if r["row"] == "bucket"]
    covered = [r["rate_lo"] <= 1e6 * RATE <= r["rate_hi"] for r in sizes]
    assert len(covered) == 80
    assert 0.90 <= np.mean(covered) <= 0.99
    for row in sizes:
        if row["failures"]:
            truth = 1 / (row["gpus_median"] * RATE)
            inside = row["mttf_lo_h"] <= truth <= row["mttf_hi_h"]
            assert inside == (row["rate_lo"] <= 1e6 * RATE <= row["rate_hi"])
    fits = [r for r in rows if r["row"] == "fit"]
    assert 18 <= sum(r["b_lo"] <= 0 <= r["b_hi"] for r in fits) <= 20
    assert sum(r["verdict"] == "not_one_over_n" for r in fits) <= 2


def test_a_rate_that_grows_with_the_size_is_told_from_one_over_n() -> None:
    with empty() as con:
        planted(con, power=0.5)
        fits = [
            r for r in ask(con, "failure-rate") if r["row"] == "fit" and r["cluster"] != "(all)"
        ]
    assert 18 <= sum(r["b_lo"] <= 0.5 <= r["b_hi"] for r in fits) <= 20
    assert sum(r["verdict"] == "not_one_over_n" for r in fits) >= 18


# -- little to go by ---------------------------------------------------------------------------


def test_a_single_run_without_scheduler_data_is_told_with_its_source() -> None:
    log = logged("r", Event("gpu-xid", t=7200, rank=3, host="n1", category="hardware"))
    with database(log) as con:
        rates = ask(con, "failure-rate")
        [summary, *curve] = ask(con, "time-to-failure")
        [day] = ask(con, "trend")
        pairs = [ask(con, name) for name in ("co-occurrence", "co-occurrence-by-scale")]
        windows = ask(con, "co-occurrence-by-window")
    total = one(rates, row="total")
    assert (total["attempts"], total["failures"], total["run_hours"]) == (1, 1, 2.0)
    assert (total["exposure_source"], total["state_log_share"]) == ("log", 1.0)
    assert {r["verdict"] for r in rates} == {"too_rare"}
    assert (summary["failures"], summary["verdict"], summary["state_log_share"]) == (
        1,
        "too_rare",
        1.0,
    )
    assert [(r["t_h"], r["surv"]) for r in curve] == [(2.0, 0.0)]
    assert (day["failures"], day["exposure"], day["flag"], day["partial"]) == (
        1,
        128.0,
        "too_rare",
        True,
    )
    assert pairs == [[], []]
    assert {(r["verdict"], r["q"]) for r in windows} == {("too_rare", None)}


def test_a_single_run_without_any_time_has_no_rate() -> None:
    log = run("r/log", Event("gpu-xid", rank=3, category="hardware"))
    with database(log) as con:
        total = one(ask(con, "failure-rate"), row="total")
        [summary] = ask(con, "time-to-failure")
        days = ask(con, "trend")
    assert (total["failures"], total["verdict"], total["rate_per_Mgpuh"]) == (
        1,
        "no_exposure",
        None,
    )
    assert (summary["failures"], summary["no_time"], summary["verdict"]) == (0, 1, "too_rare")
    assert days == []
