"""Hosts that kill attempts: how often, given how much they ran."""

from __future__ import annotations

import csv
from collections import Counter
from typing import Any

import pytest

from tests.database import Event, ask, at, database, run
from tests.support import shared

# Hours of exposure and failures that began on the host: the worked example.
EXAMPLE = {
    "n01": (700, 0), "n02": (650, 1), "n03": (720, 0), "n04": (710, 0), "n05": (690, 1),
    "n06": (120, 2), "n07": (700, 6), "n08": (705, 0), "n09": (680, 1), "n10": (715, 0),
}  # fmt: skip


def fleet(
    hosts: dict[str, tuple[float, int]], *, roles: dict[str, str] | None = None, runs: int = 99
) -> list[dict[str, Any]]:
    """Rows for attempts of ten hours, of which each host's first ones fail on it."""
    files, jobs = [], []
    for host, (hours, failed) in hosts.items():
        count = max(1, round(hours / 10))
        for number in range(count):
            name = f"{host}-{min(number, runs - 1)}"
            t = 3600.0 * number
            jobs.append(
                {"cluster": "c", "job": name, "attempt": number, "hosts": [host], "gpus": 8,
                 "start_ts": at(t), "end_ts": at(t + 3600 * hours / count), "source": "sacct",
                 "state": "FAILED" if number < failed else "COMPLETED"}
            )  # fmt: skip
            if number < failed:
                event = Event("gpu-ecc", t=t + 60, rank=0, host=host, category="hardware")
                files.append(run(f"{name}/{number}/log", event, run=name, job=name, attempt=number))
    nodes = [{"cluster": "c", "host": host, "role": role} for host, role in (roles or {}).items()]
    return ask(database(*files, tables={"jobs": jobs, "nodes": nodes}), "lemon-nodes")


def test_the_worked_example_tells_the_lemon_from_the_short_stay() -> None:
    rows = {row["host"]: row for row in fleet(EXAMPLE)}
    keys = ("exposure_h", "k", "expected", "ratio", "p", "q", "eb_ratio", "eb_lo05")
    expected = {
        "n01": (700, 0, 1.353251, 0, 1, 1, 0.2284575, 0.000104459),
        "n02": (650, 1, 1.132404, 0.8830769, 0.6927291, 1, 0.9194062, 0.09058715),
        "n06": (120, 2, 0.1722488, 11.61111, 0.01732989, 0.08664947, 4.183326, 0.9004629),
        "n07": (700, 6, 0.6151142, 9.754286, 0.0004887685, 0.004887685, 4.070138, 1.824732),
    }
    for host, values in expected.items():
        assert [rows[host][key] for key in keys] == pytest.approx(values, rel=1e-6)
    verdicts = {host: row["verdict"] for host, row in rows.items()}
    assert verdicts == dict.fromkeys(EXAMPLE, "not_distinguishable") | {
        "n07": "lemon",
        "n06": "watch",
    }
    assert list(rows)[:2] == ["n07", "n06"]
    assert (rows["n07"]["distinct_runs"], rows["n07"]["attempts"]) == (6, 70)
    assert rows["n07"]["failures"] == ["gpu-ecc"]
    assert {row["exposure_source"] for row in rows.values()} == {"jobs"}


def test_one_run_that_fails_again_and_again_makes_no_lemon() -> None:
    rows = {row["host"]: row for row in fleet(EXAMPLE, runs=1)}
    assert (rows["n07"]["distinct_runs"], rows["n07"]["verdict"]) == (1, "watch")


def test_hosts_are_held_against_their_role_only() -> None:
    hosts = {f"c{n}": (300.0, 0) for n in range(20)} | {f"io{n}": (300.0, 6) for n in range(4)}
    one = {row["host"]: row["verdict"] for row in fleet(hosts)}
    assert one["io0"] == "lemon"
    roles = {host: "io" if host.startswith("io") else "compute" for host in hosts}
    two = {row["host"]: (row["node_role"], row["verdict"]) for row in fleet(hosts, roles=roles)}
    assert two["io0"] == ("io", "not_distinguishable")


def test_a_failure_of_a_large_job_is_not_blamed_on_all_its_hosts() -> None:
    hosts = [f"n{n}" for n in range(8)]
    files, jobs = [], []
    for number in range(5):
        t = 10_000.0 * number
        jobs.append({"cluster": "c", "job": f"j{number}", "hosts": hosts, "gpus": 64,
                     "start_ts": at(t), "end_ts": at(t + 7200), "state": "FAILED",
                     "source": "sacct"})  # fmt: skip
        first = Event("gpu-ecc", t=t + 7000, rank=17, host="n2")
        next_ = Event("nccl-timeout", "collateral", t=t + 7100, rank=1, host="n0")
        files.append(run(f"j{number}/log", first, next_))
        # All ranks alike: systemic, no host's fault.
        files.append(run(f"s{number}/log",
                         *(Event("disk-full", t=t + 500, rank=rank, host=host, world_size=8)
                           for rank, host in enumerate(hosts))))  # fmt: skip
    rows = {row["host"]: row for row in ask(database(*files, tables={"jobs": jobs}), "lemon-nodes")}
    assert {host: row["k"] for host, row in rows.items()} == dict.fromkeys(hosts, 0) | {"n2": 5}
    assert {row["exposure_h"] for row in rows.values()} == {10.0}
    assert rows["n2"]["verdict"] == "lemon"


def test_a_host_without_hours_is_listed_and_not_judged() -> None:
    con = database(run("a/log", Event("gpu-ecc", rank=0, host="n1")),
                   run("b/log", Event("gpu-ecc", t=5, rank=0, host="n2"),
                       Event("gpu-ecc", t=7205, rank=0, host="n2")))  # fmt: skip
    rows = {row["host"]: row for row in ask(con, "lemon-nodes")}
    assert (rows["n1"]["k"], rows["n1"]["p"], rows["n1"]["verdict"]) == (1, None, "no_exposure")
    assert (rows["n2"]["exposure_h"], rows["n2"]["p"], rows["n2"]["expected"]) == (2.0, 1.0, None)
    assert rows["n2"]["verdict"] == "not_distinguishable"


def test_the_window_ends_with_the_last_attempt() -> None:
    day = 86400.0
    jobs = [{"cluster": "c", "job": f"j{n}", "hosts": ["n1"], "start_ts": at(day * start),
             "end_ts": at(day * start + 7200), "state": "COMPLETED", "source": "sacct"}
            for n, start in enumerate((0, 40, 60))]  # fmt: skip
    con = database(tables={"jobs": jobs})
    hours = [ask(con, "lemon-nodes", **given)[0]["exposure_h"]
             for given in ({}, {"window_d": 0}, {"since": at(day * 59)},
                           {"until": at(day * 60 + 3600)})]  # fmt: skip
    assert hours == [4.0, 6.0, 2.0, 3.0]


def test_lanl_nodes_of_one_role_are_flagged_as_published() -> None:
    path = shared("data", "lanl", "LA-UR-05-7318-failure-data-1996-2005.csv")
    with path.open(encoding="latin-1", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["System"] == "20"]
    up = {"cluster": "20", "state": "COMPLETED", "source": "csv"}
    up |= {"start_ts": at(0), "end_ts": at(86400.0 * 3000)}
    jobs = [up | {"job": f"up{n}", "hosts": [f"n{n}"]} for n in range(512)]
    files = [run(f"f{number}/log", Event("node", t=3600.0 * number, host=f"n{row['nodenum']}"),
                 cluster="20") for number, row in enumerate(rows)]  # fmt: skip
    con = database(*files, tables={"jobs": jobs})
    found = ask(con, "lemon-nodes", window_d=0)
    counts = Counter(int(row["nodenum"]) for row in rows)
    assert {row["host"]: row["k"] for row in found} == {f"n{n}": counts[n] for n in range(512)}
    assert (found[0]["host"], found[0]["k"]) == ("n0", 118)
    flagged = {row["host"] for row in found if row["q"] < 0.05}
    assert len(flagged) == 51
    assert {f"n{n}" for n in (0, 32, 64, 128, 160, 224)} <= flagged
    # Those are roles of their own: held against each other none but the worst stands out.
    special = [f"n{n}" for n in range(0, 512, 32)]
    con.execute(
        "INSERT INTO nodes BY NAME SELECT '20' AS cluster, 'n' || n AS host, "
        "CASE WHEN n % 32 = 0 THEN 'login' ELSE 'compute' END AS role FROM range(512) t(n)"
    )
    within = ask(con, "lemon-nodes", window_d=0)
    assert {row["host"] for row in within if row["node_role"] == "login"} == set(special)
    again = {row["host"] for row in within if row["q"] < 0.05} & set(special)
    assert "n0" in again
    assert len(again) < len(flagged & set(special))
