"""What follows what on a host: the worked example, LANL's failure data, and edge cases."""

from __future__ import annotations

import csv
from collections import defaultdict
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from tests.database import Event, File, ask, at, database, empty, insert
from tests.support import shared

DAY = 86400.0


def host(name: str, *events: Event, until: float, **keys: Any) -> File:
    """The kernel log of a host from second 0 on."""
    columns = {"kind": "dmesg", "first_ts": at(0), "last_ts": at(until)}
    return File(f"{name}/dmesg", events, host=name, columns=columns, **keys)


def ecc(t: float) -> Event:
    return Event("memory-ecc", t=t, category="hardware")


def died(t: float) -> Event:
    return Event("node-down", t=t, category="hardware")


def one(rows: list[dict[str, Any]], a: str, b: str, window_s: float = DAY) -> dict[str, Any]:
    [row] = [r for r in rows if (r["a"], r["b"], r["window_s"]) == (a, b, window_s)]
    return row


def example() -> list[File]:
    """50 hosts, 30 days, 40 times A, 12 times B, 7 of them within a day after an A."""
    logs = []
    for n in range(50):
        events = [ecc(10 * DAY)] if n < 40 else []
        if n < 7:
            events.append(died(10.5 * DAY))
        elif n < 12:
            events.append(died(20 * DAY))
        logs.append(host(f"h{n:02}", *events, until=30 * DAY))
    return logs


def test_a_window_reproduces_the_worked_example() -> None:
    with database(*example()) as con:
        row = one(ask(con, "co-occurrence-by-window", base="poisson"), "memory-ecc", "node-down")
    assert [row[k] for k in ("n_a", "hits", "n_b", "hosts", "host_days")] == [40, 7, 12, 50, 1500]
    assert [row[k] for k in ("base", "p_b_after_a", "lo", "hi", "factor", "p")] == pytest.approx(
        [0.007968085, 0.175, 0.08745414, 0.3194999, 21.96262, 3.019371e-08], rel=1e-6
    )
    assert row["verdict"] == "associated"


def test_windows_side_by_side_are_the_base_and_all_windows_are_swept() -> None:
    with database(*example()) as con:
        rows = ask(con, "co-occurrence-by-window")
        chosen = ask(con, "co-occurrence-by-window", window_s="86400", failure="node-down")
    hits = {
        r["window_s"]: r["hits"] for r in rows if (r["a"], r["b"]) == ("memory-ecc", "node-down")
    }
    assert hits == {5.0: 0, 3600.0: 0, DAY: 7, 7 * DAY: 7}
    assert one(rows, "memory-ecc", "node-down")["base"] == pytest.approx(12 / 1500)
    assert {(r["a"], r["b"]) for r in rows} == {
        ("memory-ecc", "memory-ecc"), ("memory-ecc", "node-down"),
        ("node-down", "memory-ecc"), ("node-down", "node-down"),
    }  # fmt: skip
    assert {(r["a"], r["b"]) for r in chosen} == {
        ("memory-ecc", "node-down"), ("node-down", "memory-ecc"), ("node-down", "node-down"),
    }  # fmt: skip
    # The other way round nothing follows.
    assert one(rows, "node-down", "memory-ecc")["verdict"] == "not_distinguishable"


# Systems of the two groups of El-Sayed and Schroeder (DSN'13), with P(failure again within a day
# and a week of one) and the base, as printed in reports.md.
LANL = {
    (3, 4, 5, 6, 18, 19, 20): [(0.0707, 0.0031, 22.9), (0.1546, 0.0201, 7.7)],
    (2, 16, 23): [(0.2144, 0.0458, 4.7), (0.6046, 0.2195, 2.8)],
}


@pytest.mark.parametrize("systems", LANL)
def test_conditional_probabilities_of_lanl_are_reproduced(systems: tuple[int, ...]) -> None:
    path = shared("data", "lanl", "LA-UR-05-7318-failure-data-1996-2005.csv")
    found = defaultdict(list)
    nodes = {}
    with path.open(encoding="latin1", newline="") as file:
        for row in csv.DictReader(file):
            if int(row["System"]) in systems:
                moment = datetime.strptime(row["Prob Started"], "%m/%d/%Y %H:%M")
                found[row["System"]].append((moment, int(row["nodenumz"])))
                nodes[row["System"]] = int(row["nodes"])
    files, events = [], []
    for system, failures in found.items():
        span = {"first_ts": min(failures)[0], "last_ts": max(failures)[0]}
        for node in range(nodes[system]):
            key = {"file_id": 10000 * int(system) + node, "cluster": system, "host": str(node)}
            files.append(
                {**key, "path": f"{system}/{node}", "kind": "syslog", "status": "ok", **span}
            )
        for moment, node in failures:
            key = {"file_id": 10000 * int(system) + node, "cluster": system, "host": str(node)}
            times = dict.fromkeys(("ts", "t_eff", "ts_lo", "ts_hi"), moment)
            what = {"failure": "node-down", "signature": "node-down", "role": "cause",
                    "category": "hardware", "severity": "high", "repeats": 1}  # fmt: skip
            number = {"event_id": len(events), "line_no": len(events)}
            events.append({**key, **times, **what, **number})
    with empty() as con:
        insert(con, "files", files)
        insert(con, "events", events)
        rows = ask(con, "co-occurrence-by-window", window_s="86400,604800", dup_s=0)
    rows.sort(key=lambda row: float(row["window_s"]))
    assert [row["verdict"] for row in rows] == ["associated", "associated"]
    for row, (share, base, factor) in zip(rows, LANL[systems], strict=True):
        assert round(row["p_b_after_a"], 4) == share
        assert round(row["base"], 4) == base
        assert round(row["factor"], 1) == factor


def test_a_storm_is_one_and_two_views_of_one_fault_are_an_alias() -> None:
    logs = [
        host(f"h{n}", *(ecc(DAY + i) for i in range(50)), died(DAY), until=9 * DAY)
        for n in range(6)
    ]
    with database(*logs) as con:
        rows = ask(con, "co-occurrence-by-window", window_s="60")
    row = one(rows, "node-down", "memory-ecc", 60.0)
    assert (row["n_a"], row["n_b"], row["hits"], row["verdict"]) == (6, 6, 6, "alias")
    assert one(rows, "memory-ecc", "memory-ecc", 60.0)["hits"] == 0


def test_a_window_that_is_not_seen_to_its_end_is_left_out() -> None:
    logs = [host(f"h{n}", ecc(DAY), until=1.5 * DAY if n < 4 else 3 * DAY) for n in range(10)]
    with database(*logs) as con:
        rows = ask(con, "co-occurrence-by-window", window_s="3600,86400")
    rows.sort(key=lambda row: float(row["window_s"]))
    assert [(r["window_s"], r["n_a"], r["n_b"]) for r in rows] == [(3600.0, 10, 10), (DAY, 6, 10)]


def test_hosts_count_once_however_many_logs_cover_them() -> None:
    first = host("h1", *(ecc(DAY * n) for n in range(1, 7)), until=10 * DAY)
    second = File(
        "h1/syslog", host="h1", columns={"first_ts": at(5 * DAY), "last_ts": at(12 * DAY)}
    )
    job = {"cluster": "c", "job": "j", "attempt": 0, "hosts": ["h1", "h2"], "source": "sacct",
           "start_ts": at(20 * DAY), "end_ts": at(21 * DAY), "state": "COMPLETED"}  # fmt: skip
    with database(first, second, tables={"jobs": [job]}) as con:
        [row] = ask(con, "co-occurrence-by-window", window_s="3600")
    assert (row["hosts"], row["host_days"]) == (2, pytest.approx(12 + 1 + 1))


def test_events_of_rare_failures_are_not_judged() -> None:
    logs = [host(f"h{n}", *([ecc(DAY), died(DAY + 60)] if n < 4 else []), until=9 * DAY)
            for n in range(9)]  # fmt: skip
    with database(*logs) as con:
        rows = ask(con, "co-occurrence-by-window", window_s="3600")
    assert {(r["verdict"], r["q"]) for r in rows} == {("too_rare", None)}


def test_where_nothing_is_planted_no_window_finds_anything() -> None:
    logs = []
    for seed in range(20):
        draw = np.random.default_rng(seed)
        for n in range(20):
            events = [ecc(t) for t in draw.uniform(0, 100 * DAY, draw.poisson(2))]
            events += [died(t) for t in draw.uniform(0, 100 * DAY, draw.poisson(2))]
            logs.append(host(f"h{n}", *events, until=100 * DAY, cluster=f"s{seed}"))
    with database(*logs) as con:
        found = [
            [r["verdict"] for r in ask(con, "co-occurrence-by-window", cluster=f"s{seed}")]
            for seed in range(20)
        ]
    assert {len(verdicts) for verdicts in found} == {16}
    assert sum("associated" in verdicts for verdicts in found) <= 1
