"""The report on stragglers: which rank, and whether machine, stage or data."""

from __future__ import annotations

import csv
import re
from typing import Any

import pytest

from queries import report
from tests.database import Event, ask, database, empty, insert, run
from tests.support import shared


def timings(times: dict[int, list[float]], stage: dict[int, int] | None = None) -> Any:
    """A database of one attempt: per rank, its times step by step."""
    con = empty()
    insert(con, "timings", [
        {"cluster": "c", "run": "r", "job": "r", "attempt": 1, "step": step, "rank": rank,
         "host": f"h{rank}", "stage": (stage or {}).get(rank), "t_compute_s": t}
        for rank, series in times.items() for step, t in enumerate(series)])  # fmt: skip
    return con


def told(con: Any, **arguments: Any) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """The row of the attempt, and those of its ranks."""
    found = ask(con, "stragglers", **arguments)
    (whole,) = [row for row in found if row["rank"] is None]
    return whole, {row["rank"]: row for row in found if row["rank"] is not None}


def test_worked_example_finds_the_persistent_and_the_transient_rank() -> None:
    with (shared("spec/report-examples") / "r09_iter.csv").open() as file:
        lines = list(csv.DictReader(file))
    times: dict[int, list[float]] = {}
    for line in lines:
        times.setdefault(int(line["rank"]), []).append(float(line["compute_s"]))
    whole, ranks = told(timings(times), skip_steps=0)
    assert (whole["kind"], whole["steps"]) == ("worker", 60)
    assert whole["S_proxy"] == pytest.approx(1.295975, abs=5e-7)
    assert whole["waste"] == pytest.approx(0.2283803, abs=5e-8)
    expected = {
        0: (0.9995733, 0.0, 0.9973471), 1: (0.9993749, 0.0, 0.9974469),
        2: (0.9997249, 0.0, 0.9961006), 3: (1.249613, 1.0, 0.7980854),
        4: (0.9976486, 0.0, 0.9967484), 5: (0.9963061, 0.0, 1.0),
        6: (0.9994493, 0.06666667, 0.9963995), 7: (0.998548, 0.0, 0.9971973),
    }  # fmt: skip
    found = {
        rank: (row["median_ratio"], row["share_slow"], row["nvrx_score"])
        for rank, row in ranks.items()
    }
    assert found == {rank: pytest.approx(values, abs=5e-7) for rank, values in expected.items()}
    classes = {rank: row["class"] for rank, row in ranks.items() if row["class"] != "none"}
    assert classes == {3: "persistent", 6: "transient"}
    assert (ranks[6]["run_from_step"], ranks[6]["run_to_step"]) == (20, 23)
    assert [row["rank"] for row in ask(timings(times), "stragglers", ranks="slow")] == [None, 3, 6]


@pytest.mark.parametrize(
    ("trace", "kind"), [("AR", "worker"), ("SE", "sequence_length"), ("ST", "stage_imbalance")]
)
def test_real_traces_are_of_the_kind_that_their_authors_found(trace: str, kind: str) -> None:
    path = shared("data/straggler") / f"trace-{trace}.parquet"
    con = empty()
    con.execute(
        """INSERT INTO timings BY NAME
        SELECT 'c' AS cluster, 'r' AS run, step, rank, stage, 1000 * mc + mb_id AS microbatch,
          sum(duration) FILTER (optype = 'forward-compute') AS t_fwd_s,
          sum(duration) FILTER (optype = 'backward-compute') AS t_bwd_s
        FROM read_parquet($path) WHERE optype IN ('forward-compute', 'backward-compute')
        GROUP BY ALL""",
        {"path": str(path)},
    )
    whole, ranks = told(con, min_steps=30, skip_steps=0)
    assert whole["kind"] == kind
    persistent = [rank for rank, row in ranks.items() if row["class"] == "persistent"]
    correlation, variation = whole["fb_corr_median"], whole["fwd_cv_median"]
    match trace:
        case "AR":  # within ranks .90 and .017; pooled, the slow rank fakes .999 and .47
            assert persistent == [0]
            assert ranks[0]["median_ratio"] == pytest.approx(2.35, abs=0.005)
            assert (ranks[0]["share_slow"], whole["slowest_rank_top_share"]) == (1.0, 1.0)
            assert (correlation, variation) == pytest.approx((0.90, 0.017), abs=0.005)
        case "SE":
            assert persistent == []
            assert (correlation, variation) == pytest.approx((0.993, 0.219), abs=0.0005)
            assert whole["slowest_rank_top_share"] == pytest.approx(0.09, abs=0.005)
            assert whole["distinct_slowest"] == 24
        case _:
            assert persistent == []
            assert (whole["stage"], whole["stage_ratio"]) == (3, pytest.approx(1.63, abs=0.005))


def alibaba(number: int) -> Any:
    con = empty()
    path = shared("data/alibaba") / f"job_{number}_norm.csv"
    con.execute(
        """INSERT INTO timings BY NAME
        SELECT 'c' AS cluster, 'r' AS run, time AS step, worker AS rank,
          batch_time_norm AS t_compute_s FROM read_csv($path)""",
        {"path": str(path)},
    )
    return con


def test_real_workers_are_persistent_in_one_job_and_transient_in_another() -> None:
    whole, ranks = told(alibaba(4))
    slow = {rank: row["median_ratio"] for rank, row in ranks.items() if row["class"] != "none"}
    assert whole["kind"] == "worker"
    assert sorted(slow) == [0, 5, 6, 7, 8]
    assert (min(slow.values()), max(slow.values())) == pytest.approx((1.50, 2.03), abs=0.005)
    assert {ranks[rank]["class"] for rank in slow} == {"persistent"}
    _, ranks = told(alibaba(1))
    assert "persistent" not in {row["class"] for row in ranks.values()}
    assert ranks[6]["class"] == "transient"


def test_drift_of_a_real_run_is_seen_though_no_rank_is_named() -> None:
    text = (shared("data/bigscience") / "train_tr11-176B-ml_chronicles.md").read_text()
    steps = re.findall(r"iteration +(4278\d)/ .*iteration \(s\): (\d+\.\d+)", text)
    assert [step for step, _ in steps] == ["42780", "42781", "42782", "42783", "42784"]
    events = [
        Event("training-step", "progress", step=int(step), captures={"iter_s": t})
        for step, t in steps
    ]
    whole, ranks = told(database(run("tr11/log", *events)), drift_window=1, drift_steps=2)
    assert ranks == {}
    assert (whole["kind"], whole["drift_from_step"]) == ("not_distinguishable", 42783)
    assert whole["drift_ratio"] == pytest.approx(1.0569, abs=5e-5)
    # at 1.1, as for ranks, it would go unseen
    (row,) = ask(
        database(run("tr11/log", *events)),
        "stragglers", drift_window=1, drift_steps=2, drift_ratio=1.1,
    )  # fmt: skip
    assert (row["kind"], row["drift_ratio"]) == ("none", None)


def test_all_ranks_slow_together_is_global() -> None:
    steps = [1.0] * 60 + [1.2] * 60
    whole, ranks = told(timings(dict.fromkeys(range(4), steps)), drift_window=20)
    assert whole["kind"] == "global"
    assert whole["drift_ratio"] == pytest.approx(1.2)
    assert {row["class"] for row in ranks.values()} == {"none"}


def test_ranks_of_a_slow_stage_are_no_stragglers() -> None:
    times = {rank: [1.0 + (rank >= 4)] * 60 for rank in range(8)}
    whole, ranks = told(timings(times, {rank: rank // 4 for rank in range(8)}))
    assert (whole["kind"], whole["stage"], whole["stage_ratio"]) == ("stage_imbalance", 1, 2.0)
    assert {row["class"] for row in ranks.values()} == {"none"}
    # without stages the same ranks differ from their peers
    assert told(timings(times))[0]["kind"] == "worker"


def test_too_few_steps_and_ranks_without_peers_are_said_to_be() -> None:
    whole, ranks = told(timings({0: [1.0] * 20, 1: [2.0] * 20}))
    assert whole["kind"] == "too_few_steps"
    assert {row["class"] for row in ranks.values()} == {"too_few_steps"}
    _, ranks = told(timings({0: [1.0] * 80, 1: [2.0] * 80}, {0: 0, 1: 1}))
    assert {row["class"] for row in ranks.values()} == {"no_peers"}


def test_first_steps_and_steps_with_a_save_do_not_count() -> None:
    slow = [9.0] * 5 + [1.0] * 60
    slow[30] = slow[31] = 9.0
    con = timings({0: slow, 1: [1.0] * 65, 2: [1.0] * 65})
    assert told(con)[1][0]["share_slow"] == 2 / 60
    saves = run("r/log", Event("checkpoint-begin", "progress", step=30), attempt=1)
    con = database(saves)
    insert(con, "timings", [
        {"cluster": "c", "run": "r", "attempt": 1, "step": step, "rank": rank, "t_compute_s": t}
        for rank, series in {0: slow, 1: [1.0] * 65, 2: [1.0] * 65}.items()
        for step, t in enumerate(series)])  # fmt: skip
    assert told(con)[1][0]["share_slow"] == 0.0


def megatron(*reports: tuple[float, int, float, int]) -> Any:
    events = [
        Event("straggler", "context", t=300.0 * n, signature="megatron-straggler-times", captures={
            "min_ms": str(fast), "fast_rank": str(at), "max_ms": str(most), "peer_rank": str(who)})
        for n, (fast, at, most, who) in enumerate(reports)]  # fmt: skip
    return database(run("r/log", *events))


def test_reports_of_extremes_name_the_rank_that_is_slowest_time_and_again() -> None:
    whole, ranks = told(megatron(*[(850.1, n, 1320.9, 45) for n in range(4)]))
    assert (whole["kind"], whole["steps"]) == ("worker", 4)
    assert (ranks[45]["class"], ranks[45]["share_slow"]) == ("persistent", 1.0)
    assert ranks[45]["median_ratio"] == pytest.approx(1320.9 / 850.1)
    assert "persistent" not in {ranks[n]["class"] for n in range(4)}


def test_extremes_of_a_healthy_job_or_of_changing_ranks_name_none() -> None:
    whole, _ = told(megatron(*[(3453.08, 8, 3468.2, 0)] * 4))
    assert whole["kind"] == "none"
    whole, ranks = told(megatron(*[(850.0, 9, 1320.0, n) for n in range(4)]))
    assert whole["kind"] == "not_distinguishable"
    assert "persistent" not in {row["class"] for row in ranks.values()}


def test_equal_step_times_of_ranks_accuse_none_of_them() -> None:
    events = [
        Event("training-step", "progress", step=n, rank=rank, captures={"iter_s": "2.0"})
        for n in range(60) for rank in (0, 1)
    ]  # fmt: skip
    whole, ranks = told(database(run("r/log", *events)))
    assert (whole["kind"], ranks) == ("none", {})


def test_nothing_is_said_of_runs_without_times() -> None:
    assert ask(empty(), "stragglers") == []
    con = database(run("r/log", Event("disk-full", t=1)))
    assert ask(con, "stragglers") == []
    assert report.run(con, report.load("stragglers")).notes == ()
