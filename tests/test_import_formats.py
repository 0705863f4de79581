"""Exports of schedulers in, rows of jobs and nodes out: whole values, and what is bad is told."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest import imports
from ingest.cli import app
from ingest.imports.values import duration_s, gpus, hosts, size_bytes, tres
from ingest.pipeline import UsageError
from ingest.store import Store
from matcher.pseudonyms import Pseudonyms
from queries import report
from tests.support import shared

Importer = Callable[..., imports.Summary]


@pytest.fixture
def store() -> Any:
    with Store(None, report.views()) as opened:
        yield opened


@pytest.fixture
def bring(store: Store, tmp_path: Path) -> Importer:
    def bring(text: str | bytes, name: str = "export", **options: Any) -> imports.Summary:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return imports.run(store, str(path), **options)

    return bring


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    return store.connection.sql(sql).fetchall()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n[001-003,7],m2", ("n001", "n002", "n003", "n7", "m2")),
        ("gpu-[8-11]", ("gpu-8", "gpu-9", "gpu-10", "gpu-11")),
        ("r[1-2]n[01-02]", ("r1n01", "r1n02", "r2n01", "r2n02")),
        ("node1", ("node1",)),
        ("None assigned", ()),
        ("", ()),
    ],
)
def test_host_lists_expand_in_order(text: str, found: tuple[str, ...]) -> None:
    assert hosts(text) == found


@pytest.mark.parametrize("text", ["n[1-", "n[1-999999999]", "n[5-2]", "n[a-b]", "a[0-999]b[0-999]"])
def test_host_lists_that_are_damaged_or_absurd_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        hosts(text)


def test_small_values_are_read() -> None:
    assert [duration_s(t) for t in ("1-02:03:04", "00:00:48", "31:05.5", "UNLIMITED", "")] == [
        93784.0,
        48.0,
        1865.5,
        None,
        None,
    ]
    assert [size_bytes(t) for t in ("64Gn", "60T", "1.5K", "7", "")] == [
        64 << 30,
        60 << 40,
        1536,
        7,
        None,
    ]
    assert gpus(tres("cpu=80,gres/gpu=8,gres/gpu:h100=8,node=1")) == (8, "h100")
    assert gpus(tres("gres/gpu:a100=2,gres/gpu:h100=4")) == (6, "a100+h100")
    assert gpus(tres("cpu=80")) == (0, None)


SACCT = """\
JobIDRaw|JobID|JobName|Cluster|User|State|ExitCode|Reason|Submit|Start|End|ElapsedRaw|\
TimelimitRaw|NNodes|AllocTRES|ReqTRES|NodeList|Restarts
100|100|train|red|alice|COMPLETED|0:0|None|2026-03-01T00:00:00|2026-03-01T00:01:00|\
2026-03-01T01:01:00|\
3600|120|2|cpu=192,gres/gpu:h100=16,gres/gpu=16,mem=2T,node=2|gres/gpu=16|n[01-02]|0
100.batch|100.batch|batch|red||COMPLETED|0:0||2026-03-01T00:01:00|2026-03-01T00:01:00|\
2026-03-01T01:01:00|3600||1|cpu=96||n01|
102|101_2|sweep|red|bob|CANCELLED by 1001|0:15|None|2026-03-01T00:00:00|2026-03-01T00:01:00|\
2026-03-01T00:02:00|60|UNLIMITED|1|gres/gpu=8||n03|0
104|103+1|het|red|bob|OOM|0:9|None|2026-03-01T00:00:00|2026-03-01T00:01:00|Unknown|60|\
Partition_Limit|1|cpu=4||n04|0
105|105|again|red|bob|REQUEUED|0:0|None|2026-03-01T00:00:00|2026-03-01T00:01:00|\
2026-03-01T00:02:00|60|60|1|gres/gpu=8||n05|0
105|105|again|red|bob|NF|1:0|NodeDown|2026-03-01T00:02:00|2026-03-01T00:03:00|\
2026-03-01T00:04:00|60|60|1|gres/gpu=8||n06|1
106|106|waits|red|bob|PENDING|0:0|Priority|2026-03-01T00:00:00|Unknown|Unknown|0|60|1||\
gres/gpu=32|None assigned|0
"""


def test_sacct_gives_a_row_a_launch(store: Store, bring: Importer) -> None:
    summary = bring(SACCT)
    assert (summary.kind, summary.table, summary.rows, summary.bad) == ("sacct", "jobs", 6, 0)
    assert rows(
        store,
        "SELECT job, attempt, state, exit_code, signal, nodes, gpus, gpu_model, requested_gpus, "
        "hosts, reason, job_raw, time_limit_s, restarts FROM jobs ORDER BY job, attempt",
    ) == [
        ("100", None, "COMPLETED", 0, None, 2, 16, "h100", 16, ["n01", "n02"], None, None, 7200, 0),
        ("101_2", None, "CANCELLED", 0, 15, 1, 8, None, None, ["n03"], None, "102", None, 0),
        ("103+1", None, "OUT_OF_MEMORY", 0, 9, 1, 0, None, None, ["n04"], None, "104", None, 0),
        ("105", 0, "REQUEUED", 0, None, 1, 8, None, None, ["n05"], None, None, 3600, 0),
        ("105", 1, "NODE_FAIL", 1, None, 1, 8, None, None, ["n06"], "NodeDown", None, 3600, 1),
        ("106", None, "PENDING", 0, None, 1, None, None, 32, None, "Priority", None, 3600, 0),
    ]
    assert rows(store, "SELECT submit_ts, start_ts, end_ts, run_s, memory_bytes, name, cluster, "
                "source FROM jobs WHERE job = '100'") == [
        (
            datetime(2026, 3, 1),
            datetime(2026, 3, 1, 0, 1),
            datetime(2026, 3, 1, 1, 1),
            3600.0,
            2 << 40,
            "train",
            "red",
            "sacct",
        )
    ]  # fmt: skip


def test_names_of_users_are_stored_as_hashes_only(store: Store, bring: Importer) -> None:
    bring(SACCT)
    found = rows(store, "SELECT DISTINCT user_hash, cancelled_by FROM jobs ORDER BY ALL")
    assert all(name is None or name.startswith("user-") for row in found for name in row)
    assert len({row[0] for row in found}) == 2
    dump = str(rows(store, "FROM jobs"))
    assert "alice" not in dump
    assert "1001" not in dump


def test_database_with_pseudonyms_gets_no_name(tmp_path: Path) -> None:
    path = tmp_path / "export"
    path.write_text(SACCT)
    with Store(tmp_path / "x.duckdb", report.views()) as strict:
        key = strict.key(strict=True)
        imports.run(strict, str(path))
        names = Pseudonyms(key)
        assert rows(strict, "SELECT user_hash, hosts FROM jobs WHERE job = '100'") == [
            (names.user("alice"), [names.host("n01"), names.host("n02")])
        ]


def test_importing_twice_equals_once_and_a_later_state_replaces(
    store: Store, bring: Importer
) -> None:
    bring(SACCT)
    once = rows(store, "FROM jobs ORDER BY ALL")
    bring(SACCT)
    assert rows(store, "FROM jobs ORDER BY ALL") == once
    later = (
        SACCT.splitlines()[0]
        + "\n"
        + (
            "106|106|waits|red|bob|COMPLETED|0:0|None|2026-03-01T00:00:00|2026-03-01T02:00:00|"
            "2026-03-01T03:00:00|3600|60|4|gres/gpu=32|gres/gpu=32|n[07-10]|1\n"
        )
    )
    bring(later)
    assert rows(store, "SELECT attempt, state, gpus FROM jobs WHERE job = '106'") == [
        (1, "COMPLETED", 32)
    ]
    assert rows(store, "SELECT count(*) FROM jobs") == [(6,)]


def test_any_columns_delimiter_zone_and_epochs_are_taken(store: Store, bring: Importer) -> None:
    bring("State;JobID;Start\nF;7;2026-07-01T02:00:00\n", tz="Europe/Paris", cluster="blue")
    bring("JobID|#State|#End\n8|#TO|#1767225600\n", cluster="blue")
    assert rows(store, "SELECT cluster, job, state, start_ts, end_ts FROM jobs ORDER BY job") == [
        ("blue", "7", "FAILED", datetime(2026, 7, 1), None),
        ("blue", "8", "TIMEOUT", None, datetime(2026, 1, 1)),
    ]


def test_names_with_line_ends_and_bytes_that_are_no_text_are_kept(
    store: Store, bring: Importer
) -> None:
    bring(b"JobID|JobName|State\n1|a\nb\xff\nc|COMPLETED\n2|x|FAILED\n")
    assert rows(store, "SELECT job, name, state FROM jobs ORDER BY job") == [
        ("1", "a\nb�\nc", "COMPLETED"),
        ("2", "x", "FAILED"),
    ]


def test_bad_rows_are_told_with_their_line_and_the_rest_goes_on(
    store: Store, bring: Importer, tmp_path: Path
) -> None:
    summary = bring(
        "JobID|JobName|State|Start|NodeList\n"
        "1|a|b|COMPLETED|2026-03-01T00:00:00|n1\n"
        "2|a|FAILED|yesterday|n1\n"
        "x|a|FAILED|Unknown|n1\n"
        "3|a|FAILED|Unknown|n[1-\n"
        "4|a|COMPLETED|2026-03-01T00:00:00|n1\n"
        "5|cut\n"
    )
    path = tmp_path / "export"
    assert rows(store, "SELECT job FROM jobs") == [("4",)]
    assert (summary.rows, summary.bad) == (1, 5)
    assert [message.split(": ")[0] for message in summary.messages] == [
        f"{path}:{line}" for line in (2, 3, 4, 5, 7)
    ]
    assert summary.messages[0].endswith(
        "6 fields where the heading has 5: export with a --delimiter that no name or comment holds"
    )
    assert summary.messages[-1].endswith("the export was cut here: make it again")


def test_secrets_in_free_text_are_masked_and_hostile_text_stays_text(
    store: Store, bring: Importer
) -> None:
    name = "'); DROP TABLE jobs; -- token=hf_abcdefghijklmnopqrstuvwxyz0123456789"
    bring(f"JobID|JobName|State\n1|{name}|FAILED\n")
    (stored,) = rows(store, "SELECT name FROM jobs")[0]
    assert stored.startswith("'); DROP TABLE jobs; -- token=<masked")


def test_jobs_without_any_logs_are_attempts(store: Store, bring: Importer) -> None:
    bring(SACCT)
    assert rows(
        store,
        "SELECT job, attempt, outcome, state_source, gpus, nodes, files, seconds_between(first_ts, "
        "last_ts) FROM attempts WHERE last_ts IS NOT NULL ORDER BY job, attempt",
    ) == [
        ("100", None, "completed", "sacct", 16, 2, 0, 3600.0),
        ("101_2", None, "cancelled", "sacct", 8, 1, 0, 60.0),
        ("105", 0, "unknown", "log", 8, 1, 0, 60.0),
        ("105", 1, "failed", "sacct", 8, 1, 0, 60.0),
    ]


def test_samples_of_gcm_are_read(store: Store) -> None:
    folder = shared("data", "gcm")
    multi = imports.run(store, str(folder / "sample-sacct-one-multiline.txt"))
    assert (multi.rows, multi.bad) == (3, 0)
    assert rows(store, "SELECT job, state, nodes, gpus, len(hosts) FROM jobs ORDER BY job") == [
        ("200131", "CANCELLED", 256, 2048, 256),  # a step alone
        ("201729", "FAILED", 128, 1024, 128),
        ("201844", "REQUEUED", 32, 256, 32),
    ]
    steps = imports.run(store, str(folder / "sample-sacct-output.txt"))
    assert (steps.rows, steps.bad) == (1, 0)  # 68 steps of one task of an array
    assert rows(store, "SELECT job, job_raw, state FROM jobs WHERE cluster = 'node'") == [
        ("8012944_24093", "8084960", "COMPLETED")
    ]
    cut = imports.run(store, str(folder / "sample-sacct-output-with-invalid-lines.txt"))
    assert (cut.rows, cut.bad) == (0, 1)
    nodes = imports.run(store, str(folder / "sample-sinfo-output.txt"), cluster="c")
    assert nodes.kind == "nodes"
    assert rows(
        store, "SELECT host, gpus, gpu_model, cpus, state, reason FROM nodes ORDER BY host"
    ) == [
        ("node0201", 8, "gen", 80, "drain", "replace"),
        ("node1537", 8, "gen", 80, "alloc", None),
        ("node4180", 2, "gen", 80, "alloc", None),
    ]


SCONTROL = """\
NodeName=dgx01 Arch=x86_64 CoresPerSocket=56
   CPUAlloc=0 CPUEfctv=224 CPUTot=224 CPULoad=0.3
   Gres=gpu:h100:8(S:0-1)
   NodeAddr=dgx01 NodeHostName=dgx01 Version=24.05
   OS=Linux 5.15.0 #1 SMP State=fake
   RealMemory=2000000 AllocMem=0 TmpDisk=28000000 Weight=1
   State=IDLE+DRAIN ThreadsPerCore=2
   Partitions=gpu,debug
   BootTime=2026-02-01T00:00:00
   Reason=Xid 79 on GPU 3 [root@2026-03-01T10:00:00]

NodeName=dgx02 CPUTot=many State=IDLE
"""


def test_scontrol_tells_nodes_and_why_they_are_out(store: Store, bring: Importer) -> None:
    summary = bring(SCONTROL, cluster="c")
    assert (summary.kind, summary.rows, summary.bad) == ("nodes", 1, 1)
    assert ":12: node dgx02: " in summary.messages[0]
    assert rows(
        store,
        "SELECT cluster, host, gpus, gpu_model, cpus, memory_bytes, nvme_bytes, partitions, state, "
        "reason, reason_ts, boot_ts, source FROM nodes",
    ) == [
        (
            "c",
            "dgx01",
            8,
            "h100",
            224,
            2_000_000 << 20,
            28_000_000 << 20,
            ["gpu", "debug"],
            "idle+drain",
            "Xid 79 on GPU 3",
            datetime(2026, 3, 1, 10),
            datetime(2026, 2, 1),
            "scontrol",
        )
    ]


def test_sinfo_is_read_as_table_and_as_json(store: Store, bring: Importer) -> None:
    bring(
        "Tue Mar  3 00:00:00 2026\nNODELIST  NODES PARTITION  STATE CPUS REASON\n"
        "n1  1  gpu*  idle  96  none\nn1  1  debug  idle  96  none\n"
        "n2  1  gpu*  drained*  96  bad NVMe disk\n",
        cluster="a",
    )
    item = {
        "node": {"state": ["IDLE", "DRAIN"]},
        "nodes": {"nodes": ["n3", "n4"]},
        "partition": {"name": "gpu"},
        "gres": {"total": "gpu:a100:4"},
        "cpus": {"maximum": 64},
        "memory": {"maximum": 1000},
        "disk": {"maximum": 0},
        "reason": {"description": "fan"},
        "cluster": "b",
    }
    bring(json.dumps({"sinfo": [item, {"nodes": 3}]}))
    assert rows(
        store,
        "SELECT cluster, host, partitions, state, reason, gpus FROM nodes ORDER BY cluster, host",
    ) == [
        ("a", "n1", ["gpu", "debug"], "idle", None, None),
        ("a", "n2", ["gpu"], "drained", "bad NVMe disk", None),
        ("b", "n3", ["gpu"], "idle+drain", "fan", 4),
        ("b", "n4", ["gpu"], "idle+drain", "fan", 4),
    ]


def test_pickles_are_refused_unread(bring: Importer) -> None:
    with pytest.raises(UsageError, match="a pickle, which could run code and is not read"):
        bring(pickle.dumps({"entries": []}))


def test_what_cannot_be_told_is_asked_for(bring: Importer) -> None:
    with pytest.raises(UsageError, match="give --as sacct, k8s-events, k8s-pods"):
        bring("hello\n")
    with pytest.raises(UsageError, match="give --mapping FILE, or one of acme, alibaba-openb"):
        bring("a,b\n1,2\n")
    with pytest.raises(UsageError, match="--tz Mars/Olympus"):
        bring(SACCT, tz="Mars/Olympus")


def test_command_reads_compressed_files_and_exits_by_what_it_lost(tmp_path: Path) -> None:
    db = tmp_path / "x.duckdb"
    path = tmp_path / "jobs.txt.gz"
    path.write_bytes(gzip.compress(SACCT.encode()))
    run = CliRunner().invoke
    good = run(app, ["import", str(path), "--db", str(db)])
    assert (good.exit_code, good.stdout) == (0, "")
    assert "6 rows of jobs from sacct" in good.stderr
    path.write_bytes(gzip.compress((SACCT + "x|y\n").encode()))
    bad = run(app, ["import", str(path), "--db", str(db), "--json"])
    told = json.loads(bad.stdout)
    assert (bad.exit_code, told["rows"], told["bad"]) == (1, 6, 1)
    assert run(app, ["import", str(tmp_path / "none"), "--db", str(db)]).exit_code == 2
