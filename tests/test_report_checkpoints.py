"""The report on checkpoints: from where to resume, what is at risk, how many saves fail."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.database import Event, File, ask, at, database, empty, rows, run, seconds


def begin(step: int, t: float, **keys: Any) -> Event:
    captures = {"path": "/ckpt"}
    return Event("checkpoint-begin", "progress", t=t, step=step, captures=captures,
                 signature="megatron-checkpoint-begin", **keys)  # fmt: skip


def done(step: int, t: float, **keys: Any) -> Event:
    return Event("checkpoint-complete", "progress", t=t, step=step, captures={"path": "/ckpt"},
                 signature="megatron-checkpoint-complete", **keys)  # fmt: skip


def load(step: int, t: float) -> Event:
    return Event("checkpoint-load-begin", "progress", t=t, step=step)


def copy(step: int, t: float, rank: int, free: float = 900.0) -> Event:
    """A rank begins to copy its swap files."""
    return Event("checkpoint-begin", "progress", t=t, signature="deepspeed-nvme-copy-begin",
                 captures={"path": f"/ckpt/global_step{step}/offloaded_tensors", "rank": str(rank),
                           "source": f"/nvme/zero_stage_3/optimizer/rank{rank}",
                           "free_gb": f"{free:.2f}"})  # fmt: skip


def copied(t: float, free: float = 890.0) -> Event:
    return Event("checkpoint-complete", "progress", t=t, captures={"free_gb": f"{free:.2f}"},
                 signature="deepspeed-nvme-copy-complete")  # fmt: skip


START = Event("run-started", "progress", t=0, world_size=64)


def step(number: int, t: float) -> Event:
    return Event("training-step", "progress", t=t, step=number)


def example() -> list[File]:
    a = run("A/log", START, begin(500, 1000), done(500, 1040), begin(600, 2000), done(600, 2041),
            begin(700, 3000), Event("disk-full", t=3010), step(700, 3050), attempt=1)  # fmt: skip
    b = [
        run(f"B/rank{rank}", START, copy(300, 1500, rank), copied(1560), step(301, 1600),
            copy(400, 2500, rank), *([copied(2590)] if rank else []), step(401, 2600),
            attempt=1, rank=rank)
        for rank in range(4)
    ]  # fmt: skip
    return [a, *b]


def statuses(con: Any) -> dict[str, str]:
    return dict(rows(con, "SELECT tag, status FROM checkpoints"))


def test_worked_example() -> None:
    con = database(*example())
    found = {row["run_id"]: row for row in ask(con, "checkpoints")}
    a, b = found["A"], found["B"]
    assert (a["last_complete_step"], a["work_at_risk_s"], a["saves"], a["failed"]) == (
        600, 1050.0, 3, 1)  # fmt: skip
    assert a["work_at_risk_gpuh"] == pytest.approx(18.66667, abs=5e-6)
    assert (a["fail_rate"], a["lo"], a["hi"]) == pytest.approx(
        (0.3333333, 0.06149194, 0.7923404), abs=5e-8
    )
    assert (a["save_p50_s"], a["overhead"]) == pytest.approx((40.5, 0.02655738), abs=5e-9)
    assert (a["newest_tag"], a["newest_status"], a["interval_median_s"]) == ("700", "failed", 1000)
    assert (b["last_complete_step"], b["work_at_risk_s"], b["saves"], b["failed"]) == (
        300, 1100.0, 2, 1)  # fmt: skip
    assert b["work_at_risk_gpuh"] == pytest.approx(19.55556, abs=5e-6)
    assert (b["newest_status"], b["confidence"]) == ("incomplete_ranks", "high")
    assert seconds(a["t_complete"]) == 2041
    assert {row["exposure_source"] for row in found.values()} == {"logs"}


def test_state_of_each_save() -> None:
    con = database(
        run("r/log", START, begin(1, 10), done(1, 12), step(2, 20), begin(2, 30), step(3, 40),
            begin(3, 50), Event("checkpoint-save-failed", "collateral", t=51,
            category="checkpoint"), step(4, 60), begin(4, 70), done(4, 72), begin(5, 80),
            attempt=1),
        run("r/log2", load(4, 200), Event("checkpoint-corrupt", t=201, category="checkpoint"),
            attempt=2),
    )  # fmt: skip
    assert statuses(con) == {
        "1": "complete", "2": "unverified", "3": "failed", "4": "corrupt", "5": "begun",
    }  # fmt: skip
    (row,) = ask(con, "checkpoints")
    assert (row["last_complete_step"], row["saves"], row["complete"], row["failed"]) == (1, 5, 1, 2)
    assert (row["unverified"], row["confidence"]) == (1, "medium")


def test_copies_of_swap_files_are_complete_only_when_all_have_ended_and_steps_follow() -> None:
    def ranks(*after: Event) -> Any:
        return database(*[
            run(f"r/{rank}", START, copy(5, 10, rank), copied(20), *after, rank=rank, attempt=1)
            for rank in range(3)])  # fmt: skip

    query = "SELECT step, status, ranks_ok, ranks_expected, bytes FROM checkpoints"
    assert rows(ranks(step(6, 30)), query) == [(5, "complete", 3, 3, 10_000_000_000)]
    assert rows(ranks(), query) == [(5, "begun", 3, 3, 10_000_000_000)]


def test_tag_of_the_begin_and_number_in_the_path_are_one_save() -> None:
    con = database(run("r/log", START,
        Event("checkpoint-begin", "progress", t=1, captures={"tag": "global_step500"}),
        Event("checkpoint-begin", "progress", t=2, captures={
            "path": "/ckpt/global_step500/mp_rank_00_model_states.pt"}),
        Event("checkpoint-complete", "progress", t=9, captures={"tag": "global_step500"}),
    ))  # fmt: skip
    assert rows(con, "SELECT tag, step, status, seconds FROM checkpoints") == [
        ("global_step500", 500, "complete", 8.0)
    ]


def test_a_load_of_swap_files_is_no_save() -> None:
    loading = Event("checkpoint-begin", "progress", t=5, signature="deepspeed-nvme-copy-begin",
                    captures={"path": "/nvme/zero_stage_3/optimizer/rank0", "free_gb": "9.00",
                              "source": "/ckpt/t/offloaded_tensors/rank00000000"})  # fmt: skip
    assert rows(database(run("r/log", START, loading)), "FROM checkpoints") == []


def test_saving_a_tag_again_is_told_from_a_race() -> None:
    exists = {"failure": "nvme-offload-checkpoint-race", "category": "checkpoint"}
    first = run("r/1", START, begin(5, 10), done(5, 20), attempt=1)
    again = run("r/2", begin(5, 100), Event(t=101, rank=0, **exists), attempt=2)  # type: ignore[arg-type]
    (row,) = ask(database(first, again), "checkpoints")
    assert (row["failed"], row["resaved"]) == (1, 1)
    race = run("r/2", begin(6, 100), *[Event(t=101, rank=n, **exists) for n in (1, 2)], attempt=2)  # type: ignore[arg-type]
    (row,) = ask(database(first, race), "checkpoints")
    assert (row["failed"], row["resaved"]) == (1, 0)


def test_chains_are_found_in_their_order_only() -> None:
    full, short = Event("disk-full", t=10), Event("nvme-swap-file-truncated", t=20)
    broken = Event("checkpoint-corrupt", t=30, category="checkpoint")
    con = database(
        run("a/log", START, begin(1, 1), done(1, 2), full, short, broken),
        run("b/log", START, begin(1, 1), done(1, 2), Event("nvme-swap-file-truncated", t=10),
            Event("disk-full", t=20)),
        run("c/1", START, begin(1, 1), done(1, 2), step(2, 3), begin(3, 10),
            Event("nvme-offload-checkpoint-race", t=11, category="checkpoint"), attempt=1),
        run("c/2", load(1, 100), attempt=2),
    )  # fmt: skip
    found = {row["run_id"]: row["sequence_found"] for row in ask(con, "checkpoints")}
    assert found == {
        "a": "no space > short file > load error",
        "b": None,
        "c": "race > incomplete tag > resume from an earlier tag",
    }


def test_best_interval_is_youngs_and_daly_s() -> None:
    con = database(run("A/log", START, begin(1, 100), done(1, 150), step(2, 3600)))
    (row,) = ask(con, "checkpoints", mttf_h=4)
    assert row["interval_optimal_s"] == pytest.approx(math.sqrt(2 * 50 * 4 * 3600))
    (row,) = ask(con, "checkpoints")
    assert (row["mttf_h"], row["interval_optimal_s"]) == (None, None)  # nothing has failed
    failed = run("B/log", START, Event("disk-full", t=7200), job="B")
    con = database(run("A/log", START, begin(1, 100), done(1, 150), step(2, 3600)), failed)
    (row,) = ask(con, "checkpoints")
    assert row["mttf_h"] == pytest.approx(3.0)  # 3 h of 64 GPUs, one failure


def test_time_at_risk_ends_when_asked_and_a_completed_run_has_none() -> None:
    con = database(*example())
    found = {row["run_id"]: row["work_at_risk_s"] for row in ask(con, "checkpoints", at=at(2100))}
    assert found == {"A": 100.0, "B": 600.0}
    end = Event("run-completed", "progress", t=300)
    (row,) = ask(database(run("r/log", START, begin(1, 10), done(1, 20), end)), "checkpoints")
    assert (row["outcome"], row["work_at_risk_s"]) == ("completed", None)


def test_a_run_without_a_complete_save_risks_all_of_its_time() -> None:
    (row,) = ask(database(run("r/log", START, begin(1, 10), step(2, 100))), "checkpoints")
    assert (row["last_complete_tag"], row["work_at_risk_s"]) == (None, 100.0)
    assert (row["newest_status"], row["confidence"]) == ("unverified", "low")
    assert ask(empty(), "checkpoints") == []
    assert ask(database(run("r/log", START)), "checkpoints") == []
