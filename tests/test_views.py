"""The rules that decide what belongs together, what failed first, and how an attempt ended."""

from __future__ import annotations

import csv
import lzma
import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ingest import schema
from queries import report
from tests.database import EPOCH, ROLES, Event, File, database, insert, rows, run, seconds
from tests.support import shared

EXAMPLES = Path(__file__).parent / "data" / "report_examples"


# -- the worked example of incidents -----------------------------------------------------------


def worked_example(effective: bool) -> duckdb.DuckDBPyConnection:
    """Three attempts, 14 events; with `effective`, t_eff is when a watchdog began to wait."""
    files: dict[str, list[Event]] = {}
    with (EXAMPLES / "incidents.csv").open() as lines:
        for row in csv.DictReader(lines):
            failure = {"py.traceback": "python-exception"}.get(row["signature"], row["signature"])
            event = Event(
                failure,
                ROLES[row["role"]],
                t=float(row["ts_s"]),
                lag=float(row["ran_ms"] or 0) / 1000 if effective else 0.0,
                rank=int(row["rank"]),
                host=row["host"],
                line=int(row["event_id"]),
                world_size=4 if row["run_id"] == "B" else 16,
            )
            files.setdefault(f"{row['run_id']}/{row['attempt']}", []).append(event)
    return database(
        *(run(f"{name}/log", *events, attempt=int(name[2:])) for name, events in files.items())
    )


INCIDENTS = """
SELECT run, attempt, seconds_between('{0}'::TIMESTAMP, t_first),
  seconds_between('{0}'::TIMESTAMP, t_last), n_raw_events,
  n_ranks, first_signature, first_rank, warning_only
FROM incident_rows(window_s := {1}) ORDER BY ALL
"""
A1 = ("A", 1, 100.0, 705.0, 8, 5, "nvme.enospc", 5, False)
A2 = ("A", 2, 9000.0, 9000.0, 1, 1, "wandb.network_retry", 3, True)
B1 = ("B", 1, 200.0, 203.0, 4, 4, "ds.zero3_nvme_ckpt_race", 1, False)


@pytest.mark.parametrize("window", [5, 300, 720])
def test_the_time_a_line_hung_keeps_one_failure_one_incident(window: int) -> None:
    assert rows(worked_example(effective=True), INCIDENTS.format(EPOCH, window)) == [A1, A2, B1]


@pytest.mark.parametrize("window", [5, 300])
def test_printed_time_splits_a_failure_at_its_timeout(window: int) -> None:
    first = ("A", 1, 100.0, 101.2, 3, 1, "nvme.enospc", 5, False)
    second = ("A", 1, 700.9, 705.0, 5, 4, "nccl.watchdog_timeout", 9, False)
    found = rows(worked_example(effective=False), INCIDENTS.format(EPOCH, window))
    assert found == [first, second, A2, B1]


def test_first_failures_of_the_worked_example() -> None:
    con = worked_example(effective=True)
    found = rows(
        con,
        "SELECT run, attempt, failure, initiating_rank, initiating_host, scope, tied_ranks, "
        "collateral_ranks, round(lead_s, 3), confidence FROM first_failures() ORDER BY ALL",
    )
    assert found == [
        ("A", 1, "nvme.enospc", 5, "n1", "single_rank", [5], 4, 0.887, "high"),
        ("B", 1, "ds.zero3_nvme_ckpt_race", 1, "n3", "all_but_one", [1, 2, 3], 1, 3.0, "medium"),
    ]
    assert rows(con, "SELECT count(*) FROM first_failures(grain := 'incident')") == [(2,)]


# -- incidents ---------------------------------------------------------------------------------


def incidents(con: duckdb.DuckDBPyConnection, columns: str, **parameters: object) -> list[Any]:
    given = ", ".join(f"{name} := {value!r}" for name, value in parameters.items())
    query = f"SELECT {columns} FROM incident_rows({given}) ORDER BY t_first NULLS LAST, first_file"
    return rows(con, query)


def test_repeats_and_echoes_are_counted_once_but_lines_all() -> None:
    con = database(
        run("r/log", Event("x", t=0, rank=0, repeats=7), Event("x", t=4, rank=0),
            Event("x", t=8, rank=0), Event("x", t=9, rank=1), Event("x", t=100, rank=2))
    )  # fmt: skip
    columns = "n_events, n_raw_events, n_ranks, duration_s"
    assert incidents(con, columns) == [(2, 11, 3, 100.0)]
    assert incidents(con, columns, dup_s=0, spatial_s=0) == [(5, 11, 3, 100.0)]
    assert incidents(con, columns, spatial_s=0) == [(3, 11, 3, 100.0)]


def test_a_repeat_does_not_start_an_incident_where_the_window_is_shorter() -> None:
    con = database(run("r/log", *(Event("x", t=t, rank=0) for t in (0, 3, 6))))
    assert incidents(con, "n_raw_events", window_s=1) == [(3,)]
    assert incidents(con, "n_raw_events", window_s=1, dup_s=0, spatial_s=0) == [(1,), (1,), (1,)]


def test_a_fold_reaches_from_its_first_to_its_last_hit() -> None:
    con = database(
        run("r/log", Event("x", t=0, last=290, repeats=50), Event("y", "collateral", t=580))
    )
    assert incidents(con, "n_raw_events, duration_s") == [(51, 580.0)]


def test_an_attempt_ends_an_incident_but_not_in_a_scope_of_the_cluster() -> None:
    con = database(
        run("r/1/log", Event("x", t=0), attempt=1), run("r/2/log", Event("x", t=10), attempt=2)
    )
    assert incidents(con, "run, attempt, n_raw_events") == [("r", 1, 1), ("r", 2, 1)]
    assert incidents(con, "run, attempt, n_raw_events", scope="cluster") == [(None, None, 2)]


def test_warnings_join_an_incident_but_stretch_and_join_none() -> None:
    con = database(
        run(
            "r/log",
            Event("w", "context", t=0, severity="medium"),
            Event("x", t=100),
            Event("w", "context", t=350, severity="medium"),
            Event("x", t=600),
            Event("w", "context", t=5000, severity="medium"),
            Event("fact", "context", t=9000, severity="info"),
        )
    )
    assert incidents(con, "duration_s, n_raw_events, warning_only") == [
        (0.0, 2, False),
        (0.0, 2, False),
        (0.0, 1, True),
    ]


def test_teardown_alone_is_no_incident_and_extends_one() -> None:
    con = database(
        run("r/log", Event("x", t=0), Event("kill", "teardown", t=9)),
        run("cancelled/log", Event("kill", "teardown", t=0),
            Event("noise", "collateral", t=1, severity="info")),
    )  # fmt: skip
    assert incidents(con, "run, duration_s") == [("r", 9.0)]


def test_a_long_incident_is_cut_and_flagged() -> None:
    con = database(run("r/log", *(Event("x", t=200.0 * n) for n in range(100))))
    assert incidents(con, "n_raw_events, capped", max_h=2) == [(36, True), (36, True), (28, True)]
    assert incidents(con, "n_raw_events, capped", max_h=0) == [(100, False)]


def test_lines_without_any_time_are_one_incident_a_file() -> None:
    con = database(
        run("a/log", Event("x"), Event("y"), Event("x")),
        run("a/other", Event("x")),
        run("b/rank_0.log", Event("x"), rank=0),
        run("b/rank_1.log", Event("x"), rank=1),
    )
    assert incidents(con, "run, n_events, n_raw_events, n_ranks, ts_quality, t_first") == [
        ("a", 2, 3, 0, "order_only", None),
        ("a", 1, 1, 0, "order_only", None),
        ("b", 1, 2, 2, "order_only", None),
    ]


def test_a_line_without_time_is_placed_by_its_neighbours() -> None:
    con = database(run("r/log", Event("x", lo=100, hi=130), Event("y", hi=140), Event("z", t=150)))
    assert incidents(con, "n_raw_events, ts_quality, duration_s") == [(3, "bounds", 50.0)]


def test_copies_of_a_file_count_once_and_equal_logs_of_two_ranks_twice() -> None:
    original = run("r/log", Event("x", t=0))
    id_of = rows(database(original), "SELECT file_id FROM files")[0][0]
    copy = run("copy/log", Event("x", t=0), columns={"copy_of": id_of})
    assert rows(database(original, copy), "SELECT run FROM incidents") == [("r",)]
    other = run("r/rank_1.log", Event("x", t=0), rank=1, columns={"copy_of": id_of})
    assert incidents(database(original, other), "n_raw_events") == [(2,)]


def test_equal_logs_without_times_of_two_launches_are_no_copies() -> None:
    # two jobs that died of the same line alone: one of them lost its verdict
    first = run("48231/slurm.out", Event("x"))
    id_of = rows(database(first), "SELECT file_id FROM files")[0][0]
    other = run("48232/slurm.out", Event("x"), columns={"copy_of": id_of})
    assert rows(database(first, other), "SELECT run FROM verdicts() ORDER BY run") == [
        ("48231",),
        ("48232",),
    ]
    again = run("48231/copy.out", Event("x"), columns={"copy_of": id_of})
    assert incidents(database(first, again), "n_raw_events") == [(1,)]


def test_counts_agree_with_a_plain_loop_over_random_events() -> None:
    for seed in range(8):
        rng = random.Random(seed)
        times = sorted(rng.choice([rng.uniform(0, 3000), rng.uniform(0, 50)]) for _ in range(60))
        hits = [Event(rng.choice("xyz"), t=t, rank=rng.randrange(3), lag=rng.choice([0, 40]))
                for t in times]  # fmt: skip
        con = database(run("r/log", *hits))
        window = rng.choice([1, 10, 100])
        count, end = 0, None
        for hit in sorted(hits, key=lambda e: e.t - e.lag):
            count += end is None or hit.t - hit.lag - end > window
            end = hit.t if end is None else max(end, hit.t)
        found = incidents(con, "count(*) OVER ()", window_s=window, dup_s=0, spatial_s=0)
        assert found[0] == (count,)


# -- real failures of a BlueGene/L -------------------------------------------------------------

BGL = {1: 1678, 5: 888, 60: 674, 300: 573, 600: 535, 720: 526, 1800: 417, 3600: 369}


def bgl(fold: bool) -> duckdb.DuckDBPyConnection:
    con = report.connect(None, schema.ddl())
    names = ["signature", "host", "ts", "ts_last", "line_no", "repeats"]
    found: list[list[Any]] = []
    with lzma.open(shared("data", "bgl_fail", "Best.all-fail.xz"), "rt", errors="replace") as log:
        for number, line in enumerate(log, 1):
            stamp, host, _, _, _, text = line.rstrip().split(" ", 5)
            ts = datetime.strptime(stamp, "%Y-%m-%d-%H.%M.%S.%f")
            last = found[-1] if found else None
            if (
                fold
                and last
                and last[:2] == [text, host]
                and 0 <= (ts - last[3]).total_seconds() <= 1
            ):
                last[3], last[5] = ts, last[5] + 1
            else:
                found.append([text, host, ts, ts, number, 1])
    events = pa.table(dict(zip(names, zip(*found, strict=True), strict=True)))
    con.register("found", events)
    con.execute(
        "INSERT INTO events BY NAME SELECT line_no::UBIGINT AS event_id, 1::UBIGINT AS file_id, "
        "signature, signature AS failure, 'cause' AS role, 'high' AS severity, 'own' AS ts_source, "
        "line_no, ts, ts AS ts_lo, ts AS ts_hi, ts AS t_eff, ts_last, 'bgl' AS cluster, host, "
        "repeats FROM found"
    )
    insert(con, "files", [{"file_id": 1, "path": "bgl.log", "cluster": "bgl", "status": "ok"}])
    return con


@pytest.fixture(scope="module", params=[False, True], ids=["rows", "folded"])
def bgl_events(request: pytest.FixtureRequest) -> Iterator[duckdb.DuckDBPyConnection]:
    con = bgl(request.param)
    yield con
    con.close()


@pytest.mark.parametrize("window", BGL)
def test_gap_tuples_of_real_failures_are_exact(
    bgl_events: duckdb.DuckDBPyConnection, window: int
) -> None:
    query = f"""SELECT count(DISTINCT incident_id), sum(repeats) FROM incident_events(
      window_s := {window}, dup_s := 0, spatial_s := 0, scope := 'cluster')"""
    assert rows(bgl_events, query) == [(BGL[window], 63951)]


def test_the_report_counts_the_same(bgl_events: duckdb.DuckDBPyConnection) -> None:
    given = {"window_s": "300", "dup_s": "0", "spatial_s": "0", "scope": "cluster"}
    result = report.run(bgl_events, report.load("incidents"), given)
    assert result.table.num_rows == 573
    assert result.notes == (
        "incidents by window: 888 at 5 s, 674 at 60 s, 573 at 300 s, 526 at 720 s, 417 at 1800 s",
    )


def test_the_largest_tuple_is_two_signatures_on_2048_places(
    bgl_events: duckdb.DuckDBPyConnection,
) -> None:
    query = """SELECT n_raw_events, len(signatures), n_hosts FROM incident_rows(
      dup_s := 0, spatial_s := 0, scope := 'cluster') ORDER BY n_raw_events DESC LIMIT 5"""
    found = rows(bgl_events, query)
    assert found[0] == (4096, 2, 2048)
    assert [row[0] for row in found[1:]] == [2048, 1024, 1024, 1024]


# -- events of hosts ---------------------------------------------------------------------------


def xid(t: float, path: str = "hosts/n1/dmesg", host: str = "n1") -> File:
    return File(path, [Event("gpu-fallen-off-bus", t=t, category="hardware")], host=host)


def placed(con: duckdb.DuckDBPyConnection) -> list[Any]:
    return rows(con, "SELECT run, attempt FROM placed_events WHERE from_host ORDER BY t0")


@pytest.mark.parametrize(
    ("t", "run_of"),
    [(-3, None), (-1, "r"), (500, "r"), (1290, "r"), (1301, None)],
)
def test_a_host_event_belongs_to_the_attempt_that_runs_there(t: float, run_of: str | None) -> None:
    steps = [Event("training-step", "progress", t=s, host="n1") for s in (0, 1000)]
    assert placed(database(run("r/log", *steps), xid(t))) == [(run_of, None)]


def test_a_host_event_on_a_shared_host_belongs_to_none() -> None:
    def job(name: str) -> File:
        steps = [Event("training-step", "progress", t=s, host="n1") for s in (0, 1000)]
        return run(f"{name}/log", *steps)

    assert placed(database(job("a"), job("b"), xid(500))) == [(None, None)]


def test_between_two_attempts_a_host_event_belongs_to_the_one_that_ended() -> None:
    def attempt(number: int, start: float) -> File:
        steps = [Event("training-step", "progress", t=start + s, host="n1") for s in (0, 100)]
        return run(f"r/{number}/log", *steps, attempt=number)

    con = database(attempt(1, 0), attempt(2, 200), xid(150), xid(220, "hosts/n1/later"))
    assert placed(con) == [("r", 1), ("r", 2)]


# -- how an attempt ended ----------------------------------------------------------------------


def outcome(*events: Event, tables: dict[str, Any] | None = None) -> tuple[Any, ...]:
    con = database(run("r/log", *events), tables=tables)
    return rows(con, "SELECT outcome, state_source FROM attempts")[0]


STEP = Event("training-step", "progress")
DONE = Event("run-completed", "progress")
LIMIT = Event("slurm-time-limit", "collateral", severity="low")
CANCEL = Event("slurm-step-cancelled", "collateral", severity="info")
ABORT = Event("slurm-step-cancelled", "teardown", severity="info")
NOISE = Event("process-sigterm", "collateral", severity="info")
HURT = Event("nccl-timeout", "collateral", severity="medium")
CAUSE = Event("disk-full")
OTHER = Event("python-exception")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([STEP], "unknown"),
        ([STEP, NOISE], "unknown"),
        ([STEP, DONE], "completed"),
        ([STEP, DONE, HURT, NOISE], "completed"),
        ([STEP, DONE, HURT, CANCEL], "completed"),
        ([STEP, DONE, OTHER], "completed"),
        ([STEP, DONE, CAUSE], "failed"),
        ([STEP, CAUSE, NOISE], "failed"),
        ([STEP, HURT, NOISE], "failed"),
        ([STEP, CAUSE, STEP, DONE], "completed"),
        ([STEP, CAUSE, STEP], "unknown"),
        ([STEP, LIMIT, NOISE], "timeout"),
        ([STEP, HURT, LIMIT], "timeout"),
        ([STEP, CAUSE, LIMIT], "failed"),
        ([STEP, LIMIT, OTHER], "timeout"),
        ([STEP, LIMIT, CAUSE], "timeout"),
        ([STEP, CANCEL, NOISE], "cancelled"),
        ([STEP, ABORT, CANCEL], "cancelled"),
        ([STEP, HURT, ABORT, CANCEL], "failed"),
        ([STEP, ABORT], "unknown"),
        ([STEP, Event("job-preempted", "collateral", severity="low")], "preempted"),
    ],
)
def test_outcome_is_told_by_what_stands_last(events: list[Event], expected: str) -> None:
    assert outcome(*events) == (expected, "log")


@pytest.mark.parametrize(
    ("state", "events", "expected"),
    [
        ("COMPLETED", [CAUSE], ("completed", "sacct")),
        ("FAILED", [STEP], ("failed", "sacct")),
        ("NODE_FAIL", [STEP], ("failed", "sacct")),
        ("OUT_OF_MEMORY", [STEP], ("failed", "sacct")),
        ("TIMEOUT", [STEP], ("timeout", "sacct")),
        ("PREEMPTED", [STEP], ("preempted", "sacct")),
        ("CANCELLED by 1001", [STEP], ("cancelled", "sacct")),
        ("CANCELLED by 1001", [STEP, CAUSE], ("failed", "inferred")),
        ("RUNNING", [STEP, DONE], ("completed", "log")),
    ],
)
def test_the_scheduler_outranks_the_log(
    state: str, events: list[Event], expected: tuple[str, str]
) -> None:
    job = {"cluster": "c", "job": "r", "attempt": 0, "state": state, "source": "sacct"}
    assert outcome(*events, tables={"jobs": [job]}) == expected


def test_jobs_without_logs_are_attempts_too() -> None:
    job = {"cluster": "c", "job": "9", "attempt": 1, "state": "FAILED", "source": "sacct",
           "hosts": ["n1", "n2"], "gpus": 16}  # fmt: skip
    con = database(run("r/log", STEP), tables={"jobs": [job]})
    query = "SELECT run, attempt, files, outcome, gpus, nodes, hosts FROM attempts ORDER BY run"
    assert rows(con, query) == [
        ("9", 1, 0, "failed", 16, 2, ["n1", "n2"]),
        ("r", None, 1, "unknown", None, None, []),
    ]


def test_an_attempt_knows_its_ranks_hosts_size_and_last_step() -> None:
    con = database(
        run("r/a.log", Event("training-step", "progress", t=5, step=7, rank=0, host="n1"),
            Event("training-step", "progress", t=9, step=8, captures={"step_last": "40"})),
        run("r/rank_3.log", Event("world-size", "progress", t=1, world_size=8), rank=3, host="n2"),
    )  # fmt: skip
    [found] = con.sql("FROM attempts").to_arrow_table().to_pylist()
    assert {key: found[key] for key in ("files", "rank_files", "ranks_seen", "hosts_seen", "hosts",
            "world_size", "gpus", "last_step")} == {
        "files": 2, "rank_files": 1, "ranks_seen": 2, "hosts_seen": 2, "hosts": ["n1", "n2"],
        "world_size": 8, "gpus": 8, "last_step": 40,
    }  # fmt: skip
    assert (seconds(found["first_ts"]), seconds(found["last_ts"])) == (1.0, 9.0)


# -- recovered or not --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("later", "recovered"),
    [
        ([Event("training-step", "progress", rank=3)], True),
        ([Event("checkpoint-complete", "progress", rank=3)], True),
        ([Event("checkpoint-complete", "progress")], False),
        ([Event("training-step", "progress")], False),
        ([Event("training-step", "progress", rank=0)] * 2, False),
        ([Event("training-step", "progress", rank=0)] * 3, True),
        ([Event("training-step", "progress", rank=0, repeats=40)], True),
        ([Event("run-completed", "progress", rank=0)], True),
        ([Event("checkpoint-begin", "progress", rank=3)], False),
    ],
)
def test_progress_after_a_cause_recovers_it(later: list[Event], recovered: bool) -> None:
    con = database(run("r/log", STEP, Event("disk-full", rank=3), *later))
    assert rows(con, "SELECT recovered FROM marks WHERE failure = 'disk-full'") == [(recovered,)]


def test_steps_of_others_a_minute_later_recover_a_cause_in_another_file() -> None:
    def recovered(t: float) -> list[Any]:
        con = database(
            run("r/rank_3.log", Event("disk-full", t=100), rank=3),
            run("r/rank_0.log", Event("training-step", "progress", t=t), rank=0),
        )
        return rows(con, "SELECT recovered FROM marks WHERE trouble")

    assert (recovered(155), recovered(161)) == ([(False,)], [(True,)])


def test_a_line_after_the_last_time_of_a_file_is_not_recovered_by_others_steps() -> None:
    con = database(
        run("r/rank_3.log", Event("disk-full", lo=100), rank=3),
        run("r/rank_0.log", Event("training-step", "progress", t=5000), rank=0),
    )
    assert rows(con, "SELECT recovered FROM marks WHERE trouble") == [(False,)]


# -- what failed first -------------------------------------------------------------------------


def first(*files: File, columns: str, **tables: Any) -> list[Any]:
    con = database(*files, tables=tables)
    return rows(con, f"SELECT {columns} FROM first_failures() ORDER BY run")


def test_collateral_never_outranks_a_cause() -> None:
    log = run("r/log", Event("nccl-timeout", "collateral", t=0, rank=1), Event("x", t=50, rank=2))
    assert first(log, columns="failure, initiating_rank") == [("x", 2)]


def test_the_first_of_a_chain_counts_and_a_generic_exception_only_alone() -> None:
    chain = run("r/log", Event("python-exception", t=1, rank=2), Event("x", t=2, rank=2),
                Event("y", t=3, rank=2, lag=100))  # fmt: skip
    assert first(chain, columns="failure, line") == [("x", 2)]
    alone = run("r/log", Event("python-exception", t=1, rank=2))
    assert first(alone, columns="failure, confidence") == [("python-exception", "medium")]


def test_a_generic_exception_that_came_first_on_another_rank_is_first() -> None:
    log = run("r/log", Event("python-exception", t=1, rank=2), Event("x", t=60, rank=3))
    assert first(log, columns="failure, initiating_rank") == [("python-exception", 2)]


def test_across_files_time_decides_and_ranks_within_the_skew_are_tied() -> None:
    files = [
        run("r/rank_0.log", Event("x", t=103.5), rank=0, host="n1"),
        run("r/rank_1.log", Event("x", t=101.5), rank=1, host="n1"),
        run("r/rank_2.log", Event("x", t=100), rank=2, host="n2"),
        run("r/rank_3.log", Event("world-size", "progress", world_size=4), rank=3),
    ]
    columns = "initiating_rank, initiating_host, scope, tied_ranks, confidence"
    assert first(*files, columns=columns) == [(2, "n2", "multi_rank", [1, 2], "medium")]


@pytest.mark.parametrize(
    ("ranks", "scope", "initiating"),
    [
        ([3], "single_rank", 3),
        ([3, 1], "multi_rank", 3),
        ([3, 1, 2], "all_but_one", 3),
        ([3, 1, 2, 0], "all_ranks", None),
    ],
)
def test_in_a_file_without_times_line_order_decides(
    ranks: list[int], scope: str, initiating: int | None
) -> None:
    log = run("r/log", Event("world-size", "progress", world_size=4),
              *(Event("x", rank=rank) for rank in ranks))  # fmt: skip
    found = first(log, columns="scope, initiating_rank, tied_ranks, line")
    assert found == [(scope, initiating, sorted(ranks), 2)]


def test_files_without_times_leave_the_order_of_ranks_unknown() -> None:
    files = [run(f"r/rank_{rank}.log", Event("x"), rank=rank) for rank in (0, 1)]
    columns = "failure, initiating_rank, tied_ranks, confidence"
    assert first(*files, columns=columns) == [("x", None, [0, 1], "medium")]


def test_a_confirmation_counts_from_the_death_it_explains() -> None:
    log = run("r/log", Event("process-sigkill", "collateral", t=10, rank=4),
              Event("x", t=12, rank=0), Event("host-oom", "confirmation", t=30))  # fmt: skip
    columns = "failure, evidence, line, epoch(ts) % 86400"
    assert first(log, columns=columns) == [("host-oom", "confirmation", 3, 10.0)]
    late = run("r/log", Event("x", t=5, rank=0), Event("host-oom", "confirmation", t=30))
    assert first(late, columns="failure") == [("x",)]


def test_a_confirmation_outranks_a_generic_exception() -> None:
    log = run("r/log", Event("python-exception", t=10, rank=4),
              Event("host-oom", "confirmation", t=500))  # fmt: skip
    assert first(log, columns="failure") == [("host-oom",)]


def test_missing_rank_files_lower_the_confidence() -> None:
    files = [
        run("r/rank_0.log", Event("x", t=1), Event("world-size", "progress", world_size=4), rank=0),
        run("r/rank_1.log", STEP, rank=1),
    ]
    assert first(*files, columns="confidence, ranks_seen, silent_ranks") == [("medium", 2, 2)]
    combined = run("r/log", Event("world-size", "progress", world_size=4), Event("x", rank=0))
    assert first(combined, columns="confidence, silent_ranks") == [("high", 3)]


def test_a_line_that_names_another_rank_blames_it() -> None:
    log = run("r/log", Event("x", rank=0, captures={"peer_rank": "3"}))
    points = [{"signature": "x", "failure": "x", "points_to": "peer_rank"}]
    columns = "initiating_rank, tied_ranks, scope"
    assert first(log, columns=columns, signatures=points) == [(3, [3], "single_rank")]


def test_a_line_that_names_another_host_blames_that_and_not_its_printer() -> None:
    log = run("r/log", Event("x", rank=0, host="n1", captures={"peer_host": "N7"}))
    points = [{"signature": "x", "failure": "x", "points_to": "peer_host"}]
    columns = "initiating_rank, initiating_host, scope"
    assert first(log, columns=columns, signatures=points) == [(None, "n7", "single_host")]


def test_an_exception_of_unknown_time_elsewhere_does_not_hide_who_was_first() -> None:
    files = [run("r/rank_5.log", Event("x", t=1), rank=5),
             run("r/rank_9.log", Event("python-exception"), rank=9)]  # fmt: skip
    assert first(*files, columns="failure, initiating_rank, confidence") == [("x", 5, "high")]


def test_a_cause_without_rank_has_that_of_its_known_effect() -> None:
    log = run(
        "r/log", Event("x"), Event("y", "collateral", rank=6), Event("z", "collateral", rank=1)
    )
    edge = [{"cause": "x", "effect": "y", "scope": "same-rank"}]
    assert first(log, columns="initiating_rank", precedence=edge) == [(6,)]
    # What it does to the others names a victim: wandb's hang was put on a rank that waited for it.
    elsewhere = [{"cause": "x", "effect": "y", "scope": "same-run"}]
    assert first(log, columns="initiating_rank", precedence=elsewhere) == [(None,)]
    assert first(log, columns="initiating_rank") == [(None,)]


def test_a_known_effect_on_the_same_rank_yields_to_its_cause() -> None:
    log = run("r/log", Event("nan", t=1, rank=2), Event("sdc", t=2, rank=2))
    edge = {"cause": "sdc", "effect": "nan", "scope": "same-rank"}
    back = {"cause": "nan", "effect": "sdc", "scope": "same-rank"}
    assert first(log, columns="failure", precedence=[edge]) == [("sdc",)]
    assert first(log, columns="failure", precedence=[edge, back]) == [("nan",)]


def test_the_kernel_outweighs_a_line_of_unknown_time_on_its_host() -> None:
    steps = [Event("training-step", "progress", t=t) for t in (0, 100)]
    rank = run("r/rank_4.log", *steps, Event("cuda-error", lo=100), rank=4, host="n1")
    columns = "failure, initiating_rank, initiating_host, file, infra_causes"
    assert first(rank, xid(160), columns=columns) == [
        ("gpu-fallen-off-bus", 4, "n1", "hosts/n1/dmesg", [])
    ]
    timed = run("r/rank_4.log", *steps, Event("cuda-error", t=101), rank=4, host="n1")
    assert first(timed, xid(160), columns=columns) == [
        ("cuda-error", 4, "n1", "r/rank_4.log", ["gpu-fallen-off-bus"])
    ]


MARKER = Event("torchelastic-child-failed", "collateral", signature="torchelastic-first-failure")


def table_row(line: int, **captures: str) -> Event:
    return Event("torchelastic-child-failed", "context", line=line, captures=captures)


def test_without_a_cause_torchrun_names_the_rank_that_failed_first() -> None:
    log = run("r/log", HURT, Event("torchelastic-child-failed", "collateral", line=10,
              signature="torchelastic-first-failure"),
              table_row(13, peer_host="n7"), table_row(14, peer_rank="5"),
              table_row(15, exit_code="1"))  # fmt: skip
    columns = "failure, evidence, initiating_rank, initiating_host, confidence"
    assert first(log, columns=columns) == [(None, "elastic_first", 5, "n7", "medium")]
    ended = run("r/log", HURT, Event("torchelastic-child-failed", "collateral", line=10,
                signature="torchelastic-first-failure"),
                table_row(14, peer_rank="5"), table_row(15, exit_code="-15"))  # fmt: skip
    assert first(ended, columns=columns) == [(None, "undetermined", None, None, "low")]


def test_of_an_oom_on_a_host_the_killed_rank_is_in_torchruns_table() -> None:
    log = run("r/log", Event("training-step", "progress", t=0, host="n1"),
              Event("nccl-timeout", "collateral", t=9, rank=1, host="n1"),
              table_row(14, peer_rank="6"), table_row(15, exit_code="-9"),
              table_row(24, peer_rank="1"), table_row(25, exit_code="-6"))  # fmt: skip
    oom = File("hosts/n1/dmesg", [Event("host-oom", t=5)], host="n1")
    columns = "failure, initiating_rank, initiating_host"
    assert first(log, oom, columns=columns) == [("host-oom", 6, "n1")]


def test_without_a_cause_a_kill_is_a_weak_sign_and_else_nothing_is_claimed() -> None:
    killed = run("r/log", HURT, Event("process-sigkill", "collateral", rank=2))
    columns = "failure, evidence, initiating_rank, line, confidence"
    assert first(killed, columns=columns) == [(None, "exit_signal", 2, 2, "low")]
    hung = run("r/log", NOISE, HURT)
    assert first(hung, columns=columns) == [(None, "undetermined", None, 2, "low")]


def test_runs_that_did_not_fail_have_no_first_failure() -> None:
    files = [
        run("healthy/log", STEP, NOISE),
        run("finished/log", DONE, HURT, OTHER),
        run("cancelled/log", CANCEL, NOISE),
        run("limited/log", HURT, LIMIT, OTHER),
        run("recovered/log", CAUSE, STEP, DONE),
    ]
    assert first(*files, columns="run") == []


def test_what_it_dragged_along_comes_after_it() -> None:
    log = run(
        "r/log",
        Event("nccl-timeout", "collateral", t=1, rank=0, repeats=9),
        *(Event("training-step", "progress", t=t, rank=0) for t in (2, 3, 4)),
        Event("x", t=10, rank=1),
        Event("nccl-timeout", "collateral", t=610.5, lag=600, rank=0, repeats=3),
        Event("process-sigterm", "teardown", t=620, rank=2),
    )
    columns = "collateral_events, collateral_ranks, collateral_failures, lead_s"
    assert first(log, columns=columns) == [(4, 2, ["nccl-timeout", "process-sigterm"], 0.5)]


# -- checkpoints, steps, ranks -----------------------------------------------------------------


def test_checkpoints_are_complete_only_where_a_line_says_so() -> None:
    def save(step: int, t: float, *after: Event) -> list[Event]:
        return [Event("checkpoint-begin", "progress", t=t, step=step, captures={"path": "/ckpt"}),
                *after]  # fmt: skip

    con = database(
        run(
            "r/log",
            *save(100, 0, Event("checkpoint-complete", "progress", t=9, step=100, rank=0)),
            *save(200, 100, Event("training-step", "progress", t=110, step=201)),
            *save(300, 200, Event("checkpoint-complete", "progress", t=209, rank=1), CAUSE),
            *save(400, 300),
        )
    )
    query = "SELECT step, status, seconds, ranks_ok, path FROM checkpoints ORDER BY step"
    assert rows(con, query) == [
        (100, "complete", 9.0, 1, "/ckpt"),
        (200, "unverified", None, 0, "/ckpt"),
        (300, "failed", 9.0, 1, "/ckpt"),
        (400, "begun", None, 0, "/ckpt"),
    ]


def test_steps_and_rank_timings_read_their_units() -> None:
    con = database(
        run(
            "r/log",
            Event("training-step", "progress", t=1, step=10, captures={
                "iter_ms": "5,837.5", "loss": "1.5E+00", "skipped": "2", "nan": "0"}),
            Event("training-step", "progress", step=11, rank=3, captures={"iter_s": "105.16"}),
            Event("straggler", "context", captures={"min_ms": "850.1", "fast_rank": "12",
                  "max_ms": "1320.9", "peer_rank": "45"}),
        )
    )  # fmt: skip
    query = "SELECT step, t_iter_s, loss, skipped, nan_iters FROM iterations ORDER BY step"
    assert rows(con, query) == [(10, 5.8375, 1.5, 2, 0), (11, 105.16, None, None, None)]
    query = "SELECT rank, metric, value FROM rank_timings ORDER BY rank"
    assert rows(con, query) == [
        (3, "time_ms", 105160.0),
        (12, "time_ms", 850.1),
        (45, "time_ms", 1320.9),
    ]


def test_views_are_plain_sql_that_any_client_reads(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with duckdb.connect(str(path)) as con:
        con.execute(schema.ddl())
        con.execute(report.views())
        con.execute(report.views())
    with duckdb.connect(str(path), read_only=True) as con:
        for name in ("attempts", "incidents", "checkpoints", "iterations", "rank_timings",
                     "first_failures()"):  # fmt: skip
            assert con.sql(f"FROM {name}").fetchall() == []
