"""What a run failed of: lines read by the phase of their attempt, ranks that others name."""

from __future__ import annotations

from typing import Any

import pytest

from matcher.catalogue import load
from tests.database import Event, File, database, insert, rows, run
from tests.test_views import DONE, STEP

CATALOGUE = load()
TABLES: dict[str, Any] = {
    "readings": [
        {"reading": number, **one._asdict()} for number, one in enumerate(CATALOGUE.readings, 1)
    ],
    "traits": [one._asdict() for one in CATALOGUE.traits],
    "precedence": [
        {**one._asdict(), "lag_lo_s": one.lag_lo_s, "lag_hi_s": one.lag_hi_s}
        for one in CATALOGUE.precedence
    ],
    "signatures": [
        {"signature": one.id, "failure": one.failure, "role": one.role, "points_to": one.points_to}
        for one in CATALOGUE.signatures
    ],
    "failures": [{"failure": one.id, "severity": one.severity} for one in CATALOGUE.failures],
}


def timeout(t: float, rank: int | None, **keys: Any) -> Event:
    """A watchdog's line at `t`, of a collective that began 600 s before."""
    keys.setdefault("lag", 600)
    return Event("nccl-timeout", "collateral", t=t, rank=rank, severity="medium", **keys)


def verdict(*files: File) -> tuple[Any, ...]:
    """(failure, rank, host, file, line, evidence, confidence) of the one run that has one."""
    (row,) = rows(
        database(*files, tables=TABLES),
        "SELECT failure, initiating_rank, initiating_host, file, line, evidence, confidence "
        "FROM verdicts()",
    )
    return row


def step(t: float, **keys: Any) -> Event:
    return Event("training-step", "progress", t=t, **keys)


SAVE = Event("checkpoint-begin", "progress", t=100, captures={"path": "/ckpt/1"})
SAVED = Event("checkpoint-complete", "progress", t=130)
LOAD = Event("checkpoint-load-begin", "progress", t=100)
LOADED = Event("checkpoint-loaded", "progress", t=130)
DEATH = Event("process-sigabrt", "collateral", t=720, severity="medium")
PREPARES = Event("rank0-preprocess-timeout", "context", t=50)


@pytest.mark.parametrize(
    ("events", "failure", "line"),
    [
        ([STEP, step(90), SAVE, timeout(710, 1)], "slow-checkpoint-save", 3),
        ([STEP, step(90), SAVE, SAVED, step(131), timeout(740, 1)], "stalled-rank", 6),
        ([STEP, SAVE, step(101), step(102), step(103), timeout(710, 1)], "stalled-rank", 6),
        ([LOAD, timeout(710, 1)], "slow-checkpoint-read", 2),
        ([LOAD, LOADED, timeout(740, 1)], "nccl-init-timeout", 3),
        ([PREPARES, timeout(710, 1)], "rank0-preprocess-timeout", 1),
        ([PREPARES, step(60), timeout(710, 1)], "stalled-rank", 3),
        ([timeout(710, 1)], "nccl-init-timeout", 1),
        ([step(100), DONE, timeout(710, 1), DEATH], "teardown-collective-hang", 3),
    ],
)
def test_a_timeout_is_read_by_where_the_attempt_stood(
    events: list[Event], failure: str, line: int
) -> None:
    found = verdict(run("r/log", *events))
    assert (found[0], found[4], found[5]) == (failure, line, "reading")


def test_a_save_that_ended_while_the_others_waited_is_not_to_blame() -> None:
    late = Event("checkpoint-complete", "progress", t=300)
    events = [STEP, step(90), SAVE, late, timeout(710, 1)]
    assert verdict(run("r/log", *events))[0] == "stalled-rank"


def test_a_cause_outranks_every_reading() -> None:
    cause = Event("disk-full", t=101, rank=2)
    found = verdict(run("r/log", step(90), SAVE, cause, timeout(710, 1)))
    assert found[:2] == ("disk-full", 2)


def test_the_one_rank_that_does_not_say_it_waited_is_the_one() -> None:
    events = [step(100, world_size=4), *(timeout(710 + r / 10, r) for r in (3, 0, 1))]
    assert verdict(run("r/log", *events))[:2] == ("stalled-rank", 2)


def test_where_two_are_silent_none_is_named() -> None:
    events = [step(100, world_size=4), timeout(710, 3), timeout(711, 1)]
    assert verdict(run("r/log", *events))[:2] == ("stalled-rank", None)


def test_where_all_wait_nobody_is_to_blame() -> None:
    events = [step(100, world_size=2), timeout(710, 0), timeout(711, 1)]
    found = verdict(run("r/log", *events))
    assert (found[0], found[1], found[5]) == (None, None, "undetermined")


def test_who_completed_and_crashed_afterwards_has_a_verdict_of_low_weight() -> None:
    con = database(run("r/log", step(100), DONE, timeout(710, 1), DEATH), tables=TABLES)
    assert rows(con, "SELECT outcome, crashed FROM attempts") == [("completed", True)]
    assert rows(con, "SELECT failure, initiating_rank, severity FROM verdicts()") == [
        ("teardown-collective-hang", 0, "low")
    ]


def test_noise_after_the_end_without_a_death_is_nothing() -> None:
    con = database(run("r/log", step(100), DONE, timeout(710, 1)), tables=TABLES)
    assert rows(con, "FROM verdicts()") == []


def test_an_error_that_was_got_over_is_the_cause_of_its_known_effect() -> None:
    """The save failed in silence; the run died half an hour later, at a barrier."""
    cause = Event("object-store-throttled", t=200, rank=3)
    steps = [step(t, rank=3) for t in (100, 300, 400, 500)]
    events = [steps[0], cause, *steps[1:], timeout(1700, 0), timeout(1701, 1)]
    found = verdict(run("r/log", *events))
    assert (found[0], found[1], found[5]) == ("object-store-throttled", 3, "swallowed")


def test_an_error_that_was_got_over_days_before_is_not() -> None:
    cause = Event("object-store-throttled", t=-200_000, rank=3)
    steps = [step(t, rank=3) for t in (-199_000, 300, 400, 500)]
    events = [cause, *steps, timeout(1700, 0), timeout(1701, 1)]
    assert verdict(run("r/log", *events))[0] != "object-store-throttled"


def test_the_first_sign_of_what_a_verdict_re_labels_is_decisive() -> None:
    sign = Event(
        "silent-data-corruption", "context", t=100, rank=12, signature="sdc-unexpected-result"
    )
    other = Event(
        "silent-data-corruption", "context", t=50, rank=3, signature="sdc-unexpected-result"
    )
    proof = Event(
        "silent-data-corruption", t=130, rank=12, signature="sdc-not-reproducible-in-place"
    )
    found = verdict(run("r/log", step(40), other, sign, proof))
    assert found[:2] + found[4:5] == ("silent-data-corruption", 12, 3)


def test_the_path_of_a_rank_names_it() -> None:
    cause = Event("nvme-swap-file-truncated", t=1, message="/nvme/rank3/7.swp: buffer nbytes")
    assert verdict(run("r/log", cause))[:2] == ("nvme-swap-file-truncated", 3)


def test_a_process_has_the_rank_of_its_communicator() -> None:
    up = Event(
        "world-size",
        "context",
        host="n7",
        captures={"pg_rank": "56", "nranks": "128"},
        world_size=128,
    )
    down = Event("ib-link-flap", host="n7")
    con = database(run("r/log", up, down), tables=TABLES)
    con.execute("UPDATE events SET pid = 2291")
    assert rows(con, "SELECT initiating_rank, initiating_host FROM verdicts()") == [(56, "n7")]
    con.execute("UPDATE events SET pid = pid + line_no")
    assert rows(con, "SELECT initiating_rank FROM verdicts()") == [(None,)]


def test_what_the_main_process_does_alone_is_of_rank_0() -> None:
    cause = Event("wandb-init-hang", t=10)
    assert verdict(run("r/log", cause, timeout(710, 3), timeout(710, 1)))[:2] == (
        "wandb-init-hang",
        0,
    )


def test_a_witness_is_not_blamed_where_lines_nearby_name_another() -> None:
    barrier = Event("slow-checkpoint-read", t=600, rank=0)
    late = Event(
        "barrier-timeout",
        "context",
        t=600,
        rank=0,
        signature="jax-late-task",
        captures={"peer_rank": "88"},
    )
    assert verdict(run("r/log", barrier, late))[:2] == ("slow-checkpoint-read", 88)


def test_what_all_ranks_read_alike_blames_none_of_them() -> None:
    events = [Event("checkpoint-incomplete", rank=rank) for rank in (0, 5)]
    assert verdict(run("r/log", *events))[:2] == ("checkpoint-incomplete", None)


def attempts(*failures: str | None) -> list[File]:
    return [
        run(
            f"r/{number}/log",
            step(1000 * number),
            *([Event(failure, t=1000 * number + 100, rank=1)] if failure else [DONE]),
            attempt=number,
        )
        for number, failure in enumerate(failures)
    ]


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        (["disk-full", "gpu-oom"], "disk-full"),
        (["nan-gradient", "checkpoint-incomplete"], "checkpoint-incomplete"),
        (["disk-full", "checkpoint-truncated"], "disk-full"),  # known to follow from it
        (["gpu-oom", "checkpoint-corrupt", None], "gpu-oom"),  # the run completed after all
        ([None, "gpu-oom"], "gpu-oom"),
    ],
)
def test_of_several_attempts_the_first_counts_unless_a_later_cause_stays(
    failures: list[str | None], expected: str
) -> None:
    assert verdict(*attempts(*failures))[0] == expected


def host_log(path: str, t: float | None, host: str | None = None) -> File:
    return File(path, [Event("host-oom", t=t, host=host)], host=host)


@pytest.mark.parametrize(
    ("log", "known", "belongs"),
    [
        (host_log("r/host/dmesg", 500), [], True),
        (host_log("r/host/dmesg", None), [], True),
        (host_log("host/dmesg", 500), [], True),  # the only run there is
        (host_log("r/host/dmesg", 2000), [], False),  # long after it
        (host_log("r/host/dmesg", 500, "n9"), [], True),
        (host_log("r/host/dmesg", 500, "n9"), [host_log("r/host/other", 10, "n1")], False),
    ],
)
def test_a_log_kept_beside_a_run_belongs_to_it(log: File, known: list[File], belongs: bool) -> None:
    train = run("r/log", step(0, host="n1"), step(1000, host="n1"))
    con = database(train, log, *known, tables=TABLES)
    found = rows(con, f"SELECT run FROM placed_events WHERE path = '{log.path}'")
    assert found == [("r" if belongs else None,)]


def test_a_log_between_two_runs_belongs_to_neither() -> None:
    trains = [run(f"{name}/log", step(0), step(1000)) for name in "ab"]
    con = database(*trains, host_log("host/dmesg", 500), tables=TABLES)
    assert rows(con, "SELECT run FROM placed_events WHERE from_host") == [(None,)]
    insert(con, "jobs", [])
    assert rows(con, "FROM verdicts()") == []


def test_the_home_of_a_rank_joins_its_lines_with_its_kernel() -> None:
    """The kernel said it a second before, on the host where the rank had been seen to run."""
    seen = step(0, rank=96, host="n98")
    own = Event("cuda-device-unavailable", lo=100, hi=116, rank=96)
    con = database(
        run("r/log", seen, own, timeout(716, 3)),
        File("hosts/n98/dmesg", [Event("gpu-fallen-off-bus", t=115, host="n98")], host="n98"),
        tables=TABLES,
    )
    assert rows(con, "SELECT failure, initiating_host FROM verdicts()") == [
        ("gpu-fallen-off-bus", "n98")
    ]
