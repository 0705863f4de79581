"""Traces through mappings, Kubernetes and flight-recorder JSON: counts against published ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ingest import imports
from ingest.imports import mapping
from ingest.imports.mapping import MappingError
from ingest.store import Store
from queries import report
from tests.support import shared

Importer = Callable[..., imports.Summary]


@pytest.fixture
def store() -> Any:
    with Store(None, report.views()) as opened:
        yield opened


@pytest.fixture
def bring(store: Store, tmp_path: Path) -> Importer:
    def bring(text: str, name: str = "export", **options: Any) -> imports.Summary:
        path = tmp_path / name
        path.write_text(text)
        return imports.run(store, str(path), **options)

    return bring


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    return store.connection.sql(sql).fetchall()


# -- mappings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mapping.names())
def test_shipped_mappings_are_sound(name: str) -> None:
    assert mapping.load(name).name == name


def test_acme_rows_take_their_own_times(store: Store, bring: Importer) -> None:
    bring(
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
        "duration,queue,gpu_time\n"
        "dlctk,u1,2,16,32,Pretrain,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,"
        "2023-05-17 11:01:16+00:00,18,10,288\n"
        "5778432,u2,1,8,96,Eval,NODE_FAIL,2023-03-01 00:18:22+08:00,,,0,0,0\n",
        mapping="acme",
        cluster="kalos",
    )
    assert rows(
        store,
        "SELECT cluster, job, nodes, gpus, job_type, state, submit_ts, end_ts - start_ts, source "
        "FROM jobs ORDER BY job DESC",
    ) == [
        (
            "kalos",
            "dlctk",
            2,
            16,
            "Pretrain",
            "FAILED",
            datetime(2023, 5, 17, 11, 0, 58),
            datetime(2023, 5, 17, 11, 1, 16) - datetime(2023, 5, 17, 11, 1, 8),
            "csv",
        ),
        (
            "kalos",
            "5778432",
            1,
            8,
            "Eval",
            "NODE_FAIL",
            datetime(2023, 2, 28, 16, 18, 22),
            None,
            "csv",
        ),
    ]


def test_philly_gives_a_row_an_attempt(store: Store, bring: Importer) -> None:
    def attempt(start: str, end: str, *hosts: tuple[str, int]) -> dict[str, Any]:
        detail = [{"ip": ip, "gpus": [f"gpu{n}" for n in range(gpus)]} for ip, gpus in hosts]
        return {"start_time": start, "end_time": end, "detail": detail}

    job = {
        "status": "Killed",
        "vc": "ee9e8c",
        "jobid": "application_1506638472019_10258",
        "submitted_time": "2017-10-07 01:11:09",
        "user": "ce2c01",
        "attempts": [
            attempt("2017-10-07 01:12:00", "2017-10-07 02:12:00", ("m41", 8), ("m42", 4)),
            attempt("2017-10-07 03:00:00", "None", ("m43", 1)),
        ],
    }
    assert bring(json.dumps([job, job | {"attempts": []}]), mapping="philly").rows == 2
    assert rows(
        store,
        "SELECT attempt, state, account, hosts, nodes, gpus, start_ts, end_ts FROM jobs "
        "ORDER BY attempt",
    ) == [
        (
            0,
            "CANCELLED",
            "ee9e8c",
            ["m41", "m42"],
            2,
            12,
            datetime(2017, 10, 7, 8, 12),
            datetime(2017, 10, 7, 9, 12),
        ),
        (1, "CANCELLED", "ee9e8c", ["m43"], 1, 1, datetime(2017, 10, 7, 10), None),
    ]


def test_alibaba_pods_and_nodes_are_as_many_as_published(store: Store) -> None:
    folder = shared("data", "alibaba")
    imports.run(store, str(folder / "openb_pod_list_default.csv"), mapping="alibaba-openb")
    imports.run(store, str(folder / "openb_node_list_all_node.csv"), mapping="alibaba-openb-nodes")
    assert rows(store, "SELECT state, count(*) FROM jobs GROUP BY ALL ORDER BY 2 DESC") == [
        ("RUNNING", 5193),
        ("FAILED", 1870),
        ("PENDING", 897),
        ("COMPLETED", 192),
    ]
    assert rows(store, "SELECT count(*), sum(gpus) FROM nodes") == [(1523, 6212)]


def test_alibaba_workers_are_read_and_the_slow_ones_stand_out(store: Store) -> None:
    folder = shared("data", "alibaba")
    counts = [
        imports.run(store, str(folder / f"job_{n}_norm.csv"), mapping="alibaba-workers").rows
        for n in (1, 2, 3, 4)
    ]
    # job_2 has 2,402 rows, one worker in one iteration twice.
    assert counts == [3000, 2401, 2489, 21829]
    again = imports.run(store, str(folder / "job_1_norm.csv"), mapping="alibaba-workers")
    assert again.rows == 3000
    assert rows(store, "SELECT count(*) FROM timings") == [(29719,)]
    slow = rows(
        store,
        "WITH peers AS (SELECT rank, t_compute_s / median(t_compute_s) OVER (PARTITION BY step) "
        "AS ratio FROM timings WHERE run = 'job_4_norm') SELECT rank, round(median(ratio), 2) "
        "FROM peers GROUP BY rank HAVING median(ratio) > 1.1 ORDER BY rank",
    )
    assert [rank for rank, _ in slow] == [0, 5, 6, 7, 8]
    assert (min(r for _, r in slow), max(r for _, r in slow)) == (1.5, 2.03)


@pytest.mark.parametrize(
    ("name", "ranks", "steps", "records"),
    [("AR", 16, 44, 117216), ("SE", 64, 43, 107328), ("ST", 8, 32, 6784)],
)
def test_straggler_traces_give_a_row_a_microbatch(
    store: Store, name: str, ranks: int, steps: int, records: int
) -> None:
    import pyarrow.parquet as pq

    path = shared("data", "straggler", f"trace-{name}.parquet")
    imports.run(store, str(path), mapping="straggler-analysis")
    trace = pq.read_table(path)
    assert trace.num_rows == records
    own = {
        row["optype"]: row["duration_sum"]
        for row in trace.group_by("optype").aggregate([("duration", "sum")]).to_pylist()
    }
    (found,) = rows(
        store,
        "SELECT count(DISTINCT rank), count(DISTINCT step), sum(t_fwd_s), sum(t_bwd_s), "
        "sum(t_compute_s) FROM timings",
    )
    assert found[:2] == (ranks, steps)
    assert found[2] == pytest.approx(own["forward-compute"], rel=1e-5)
    assert found[3] == pytest.approx(own["backward-compute"], rel=1e-5)
    assert found[4] == pytest.approx(found[2] + found[3], rel=1e-9)


def test_slow_rank_of_the_ar_trace_is_rank_0(store: Store) -> None:
    path = shared("data", "straggler", "trace-AR.parquet")
    imports.run(store, str(path), mapping="straggler-analysis")
    assert rows(
        store,
        "WITH t AS (SELECT stage, step, rank, sum(t_compute_s) AS t FROM timings GROUP BY ALL), "
        "p AS (SELECT rank, t / median(t) OVER (PARTITION BY stage, step) AS ratio FROM t) "
        "SELECT rank, round(median(ratio), 2) FROM p GROUP BY rank HAVING median(ratio) > 1.5",
    ) == [(0, 2.35)]


def test_lanl_failures_are_as_many_as_published(store: Store) -> None:
    place = shared("data", "lanl", "LA-UR-05-7318-failure-data-1996-2005.csv")
    assert imports.run(store, str(place), mapping="lanl").bad == 0
    total = 23739
    shares = rows(
        store,
        f"SELECT failure, round(100 * sum(repeats) / {total}, 2) FROM events GROUP BY ALL "
        "ORDER BY 2 DESC",
    )
    assert shares == [
        ("outage-hardware", 60.41),
        ("outage-software", 22.58),
        ("outage-undetermined", 11.17),
        ("outage-unknown", 1.91),
        ("outage-network", 1.77),
        ("outage-facilities", 1.52),
        ("outage-human", 0.63),
    ]
    assert rows(store, "SELECT sum(repeats), count(DISTINCT cluster) FROM events") == [(total, 23)]
    assert rows(
        store, "SELECT count(*) FROM live_events WHERE host = 'node0' AND cluster = 'lanl-2'"
    ) != [(0,)]
    imports.run(store, str(place), mapping="lanl")
    assert rows(store, "SELECT count(*) FROM events") == [(total,)]


def test_mappings_that_cannot_be_used_are_refused(tmp_path: Path, bring: Importer) -> None:
    def refused(text: str, reason: str) -> None:
        path = tmp_path / "own.toml"
        path.write_text(text)
        with pytest.raises(MappingError, match=reason):
            bring("id,gpus\n1,8\n", mapping=str(path))

    refused("table = 'jobs'", "no table and columns")
    refused("table = 'jobs'\n[columns]\nid = 'id'", "jobs has no column 'id': see `firstfault sc")
    refused("table = 'jobs'\n[columns]\ngpus = 'gpus'", "jobs needs job: map it")
    refused("table = 'jobs'\n[columns]\njob = 'x'", "no column x: name the columns of this file")
    refused("table = 'jobs'\n[columns]\njob = { eval = '1' }", "job: .*eval")
    refused("table = 'jobs'\n[columns]\njob = {}", "give one of column, constant")
    refused("table = 'jobs'\nzone = 'X/Y'\n[columns]\njob = 'id'", "X/Y")
    with pytest.raises(MappingError, match="--mapping none: no such file: give one, or one of "):
        bring("id\n1\n", mapping="none")


def test_own_mapping_converts_and_tells_bad_rows(
    store: Store, tmp_path: Path, bring: Importer
) -> None:
    (tmp_path / "own.toml").write_text("""
table = "jobs"
zone = "Europe/Berlin"
[columns]
job = { column = "id", prefix = "j" }
gpus = "gpus"
run_s = { column = "minutes", scale = 60 }
start_ts = { column = "begin", time = "%d.%m.%Y %H:%M" }
hosts = { column = "where", split = "/" }
state = { column = "ok", map = { yes = "COMPLETED", no = "FAILED" } }
cluster = { constant = "c" }
""")
    summary = bring(
        "id\tgpus\tminutes\tbegin\twhere\tok\n"
        "1\t8\t1.5\t01.07.2026 02:00\tN1.example.org/n[2-3]\tyes\n"
        "2\teight\t1\t01.07.2026 02:00\tn1\tno\n"
        "3\t99999999999\t1\t01.07.2026 02:00\tn1\tno\n"
        "4\t8\t1\t2026\tn1\tno\n"
        "5\t8\n"
        "\t8\t1\t01.07.2026 02:00\tn1\tno\n",
        mapping=str(tmp_path / "own.toml"),
    )
    assert rows(store, "SELECT cluster, job, gpus, run_s, start_ts, hosts, state FROM jobs") == [
        ("c", "j1", 8, 90.0, datetime(2026, 7, 1), ["n1", "n2", "n3"], "COMPLETED")
    ]
    assert (summary.rows, summary.bad) == (1, 5)
    assert sorted(int(message.split(":")[1]) for message in summary.messages) == [3, 4, 5, 6, 7]


# -- Kubernetes ------------------------------------------------------------------------------------


def pod(name: str, node: str | None, status: dict[str, Any], **labels: str) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": "8"}}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "creationTimestamp": "2026-03-01T00:00:00Z",
            "labels": {"training.kubeflow.org/job-name": "llm", **labels},
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": resources}]},
        "status": {"startTime": "2026-03-01T00:01:00Z", **status},
    }


def ended(reason: str, code: int, end: str) -> dict[str, Any]:
    times = {"startedAt": "2026-03-01T00:02:00Z", "finishedAt": f"2026-03-01T{end}Z"}
    return {"terminated": {"reason": reason, "exitCode": code, **times}}


def test_pods_of_a_job_are_one_row_with_its_first_failure(store: Store, bring: Importer) -> None:
    pods = [
        pod(
            "llm-worker-0",
            "GPU1.dc",
            {"phase": "Failed", "containerStatuses": [{"state": ended("Error", 1, "02:00:09")}]},
        ),
        pod(
            "llm-worker-1",
            "gpu2",
            {
                "phase": "Failed",
                "containerStatuses": [{"state": ended("OOMKilled", 137, "02:00:00")}],
            },
        ),
    ]
    assert bring(json.dumps({"kind": "List", "items": pods}), cluster="k").kind == "k8s-pods"
    assert rows(
        store,
        "SELECT cluster, job, attempt, state, reason, exit_code, signal, nodes, gpus, hosts, "
        "submit_ts, start_ts, end_ts, account, source FROM jobs",
    ) == [
        (
            "k",
            "llm",
            None,
            "OUT_OF_MEMORY",
            "OOMKilled",
            137,
            9,
            2,
            16,
            ["gpu1", "gpu2"],
            datetime(2026, 3, 1),
            datetime(2026, 3, 1, 0, 1),
            datetime(2026, 3, 1, 2, 0, 9),
            "ml",
            "k8s",
        )
    ]
    assert rows(store, "SELECT outcome, state_source FROM attempts") == [("failed", "k8s")]


def test_restarts_of_containers_are_attempts(store: Store, bring: Importer) -> None:
    status = {
        "phase": "Running",
        "containerStatuses": [
            {
                "restartCount": 3,
                "lastState": ended("Error", 139, "00:30:00"),
                "state": {"running": {"startedAt": "2026-03-01T00:31:00Z"}},
            }
        ],
    }
    text = json.dumps(pod("llm-worker-0", "n1", status)) + "\n{broken\n"
    assert bring(text, kind="k8s-pods").bad == 1
    assert rows(
        store, "SELECT attempt, state, signal, start_ts, end_ts FROM jobs ORDER BY attempt"
    ) == [
        (2, "FAILED", 11, datetime(2026, 3, 1, 0, 2), datetime(2026, 3, 1, 0, 30)),
        (3, "RUNNING", None, datetime(2026, 3, 1, 0, 31), None),
    ]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"phase": "Failed", "reason": "Evicted"}, "FAILED"),
        ({"phase": "Failed", "reason": "NodeLost"}, "NODE_FAIL"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, "TIMEOUT"),
        (
            {
                "phase": "Failed",
                "conditions": [{"type": "DisruptionTarget", "reason": "PreemptionByScheduler"}],
            },
            "PREEMPTED",
        ),
        ({"phase": "Pending"}, "PENDING"),
        (
            {
                "phase": "Succeeded",
                "containerStatuses": [{"state": ended("Completed", 0, "01:00:00")}],
            },
            "COMPLETED",
        ),
    ],
)
def test_state_of_a_pod_tells_why(
    store: Store, bring: Importer, status: dict[str, Any], state: str
) -> None:
    bring(json.dumps(pod("p", "n", status)))
    assert rows(store, "SELECT state FROM jobs") == [(state,)]


def event(reason: str, message: str, kind: str, name: str, count: int = 1) -> dict[str, Any]:
    return {
        "kind": "Event",
        "type": "Warning",
        "reason": reason,
        "message": message,
        "involvedObject": {"kind": kind, "name": name, "namespace": "ml"},
        "firstTimestamp": "2026-03-01T00:00:00Z",
        "lastTimestamp": "2026-03-01T00:10:00Z",
        "count": count,
        "source": {"component": "kubelet", "host": "GPU7.dc"},
    }


def test_events_of_kubernetes_go_through_the_catalogue(store: Store, bring: Importer) -> None:
    items = [
        event("Pulled", "Container image already present", "Pod", "llm-worker-3"),
        event(
            "Evicted",
            "The node was low on resource: ephemeral-storage. "
            "Threshold quantity: 1Gi, available: 0.",
            "Pod",
            "llm-worker-3",
            count=4,
        ),
        {"kind": "Event", "involvedObject": {}},
    ]
    summary = bring(json.dumps({"items": items}), name="events.json", cluster="k")
    assert (summary.kind, summary.bad) == ("k8s-events", 1)
    found = rows(
        store,
        "SELECT line_no, cluster, host, job, repeats, ts, ts_last, captures['object'], "
        "captures['namespace'] FROM events WHERE line_no = 2",
    )
    assert set(found) == {
        (
            2,
            "k",
            "gpu7",
            "llm",
            4,
            datetime(2026, 3, 1),
            datetime(2026, 3, 1, 0, 10),
            "pod/llm-worker-3",
            "ml",
        )
    }
    assert rows(store, "SELECT kind, path, lines, run FROM files") == [
        ("k8s_events", "events.k8s-events.log", 3, None)
    ]
    once = rows(store, "FROM events ORDER BY event_id")
    bring(json.dumps({"items": items}), name="events.json", cluster="k")
    assert rows(store, "FROM events ORDER BY event_id") == once


# -- flight recorder -------------------------------------------------------------------------------

# The rule of reports.md: behind in a group, and waiting for nobody in any other; groups of
# pipelines and embeddings are left out.
BEHIND = """
WITH counts AS (
  SELECT run, rank, captures['pg_guid'] AS pg, captures['pg_desc'] AS name,
    captures['last_enqueued']::BIGINT AS enqueued
  FROM events WHERE signature IN ('flight-recorder-group', 'flight-recorder-open')
    AND captures['pg_size']::INTEGER > 1
), held AS (
  SELECT *, max(enqueued) OVER members AS most, min(enqueued) OVER members AS least
  FROM counts WHERE NOT regexp_matches(name, '^PIPELINE_|EMBEDDING')
  WINDOW members AS (PARTITION BY run, pg)
)
SELECT rank FROM held GROUP BY rank
HAVING bool_or(enqueued < most) AND NOT bool_or(enqueued > least) ORDER BY rank
"""


@pytest.mark.parametrize(
    ("name", "behind"),
    [
        ("gpu_error_1st", [12]),
        ("gpu_error_2nd", [9, 14]),
        ("lock_gil_1st", [9, 14]),
        ("lock_gil_2nd", [10, 15]),
    ],
)
def test_dumps_tell_the_ranks_behind_in_their_groups(
    store: Store, name: str, behind: list[int]
) -> None:
    path = shared("data", "nvrx_fr", f"{name}.jsonl")
    summary = imports.run(store, str(path))
    assert (summary.kind, summary.bad) == ("flight-recorder", 0)
    assert [rank for (rank,) in rows(store, BEHIND)] == behind
    assert rows(store, "SELECT count(*), count(DISTINCT rank), min(kind) FROM files") == [
        (16, 16, "flight_recorder")
    ]


def test_dump_of_one_rank_as_torch_writes_it(store: Store, bring: Importer, tmp_path: Path) -> None:
    entry = {
        "pg_id": 1,
        "process_group": ["5", "TP"],
        "collective_seq_id": 7,
        "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce",
        "state": "scheduled",
        "time_created_ns": 1_767_225_600_000_000_000,
        "timeout_ms": 600000,
        "input_sizes": [[4096, 8]],
        "input_dtypes": ["BFloat16"],
        "is_p2p": False,
    }
    item = {
        "version": "2.9",
        "pg_config": {"5": {"name": "5", "desc": "TP", "ranks": "[2, 3]"}},
        "pg_status": {
            "1": {
                "last_enqueued_collective": 8,
                "last_started_collective": -1,
                "last_completed_collective": 6,
            }
        },
        "entries": [entry, {**entry, "state": "completed", "collective_seq_id": 6}],
    }
    bring(json.dumps(item), name="nccl_trace_rank_3.json")
    assert rows(
        store, "SELECT run, rank, ts, role, failure, captures FROM events"
    ) == [
        (
            tmp_path.name,
            3,
            datetime(2026, 1, 1),
            "collateral",
            "nccl-timeout",
            {
                "pg_guid": "5",
                "pg_desc": "TP",
                "pg_rank": "1",
                "pg_size": "2",
                "last_enqueued": "8",
                "last_started": "-1",
                "last_completed": "6",
                "open": "1",
                "sequence": "seq",
                "seq": "7",
                "op": "nccl:all_reduce",
                "state": "scheduled",
                "sizes": "[[4096,8]]",
                "dtype": "['BFloat16']",
                "timeout_ms": "600000",
            },
        )
    ]  # fmt: skip
    bad = bring(json.dumps({**item, "entries": [{"pg_id": 1, "seq": "x"}]}), name="r_rank_4.json")
    assert (bad.rows, bad.bad) == (0, 1)
