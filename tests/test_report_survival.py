"""Survival curves against the textbook example, delayed entry, and planted hazards."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import duckdb
import numpy as np
import pytest

from queries import stats
from tests.database import EPOCH, Event, File, ask, at, database, empty, insert, run
from tests.test_report_rate import job

# The 6-mercaptopurine trial (Freireich et al., 1963): weeks in remission; + is censored.
TREATED = "6 6 6 6+ 7 9+ 10 10+ 11+ 13 16 17+ 19+ 20+ 22 23 25+ 32+ 32+ 34+ 35+"
CONTROL = "1 1 2 2 3 4 4 5 5 8 8 8 8 11 11 12 12 15 17 22 23"


def trial(cluster: str, times: str) -> list[dict[str, Any]]:
    return [
        job(f"{cluster}{n}", 8, 0, float(time.rstrip("+")), cluster=cluster,
            state="CANCELLED by 0" if time.endswith("+") else "FAILED")
        for n, time in enumerate(times.split())
    ]  # fmt: skip


def rows_of(rows: list[dict[str, Any]], row: str, group: str | None = None) -> list[dict[str, Any]]:
    return [r for r in rows if r["row"] == row and (group is None or r["group"] == group)]


def test_a_curve_reproduces_the_worked_example() -> None:
    with database(tables={"jobs": trial("c", TREATED)}) as con:
        rows = ask(con, "time-to-failure")
    expected = [
        (6, 21, 3, 0.8571429, 0.07636035, 0.619718, 0.9515517),
        (7, 17, 1, 0.8067227, 0.08693529, 0.5631466, 0.922809),
        (10, 15, 1, 0.7529412, 0.09634965, 0.5031995, 0.8893618),
        (13, 12, 1, 0.6901961, 0.1068147, 0.4316102, 0.849066),
        (16, 11, 1, 0.627451, 0.1140539, 0.3675109, 0.8049122),
        (22, 7, 1, 0.5378151, 0.1282338, 0.2677789, 0.7467907),
        (23, 6, 1, 0.4481793, 0.1345915, 0.188052, 0.6801426),
    ]
    names = ("t_h", "at_risk", "failures", "surv", "se", "lo", "hi")
    curve = rows_of(rows, "curve")
    assert len(curve) == len(expected)
    for got, wanted in zip(curve, expected, strict=True):
        assert tuple(got[name] for name in names) == pytest.approx(wanted, rel=1e-6)
    [summary] = rows_of(rows, "summary")
    assert (summary["attempts"], summary["failures"], summary["median_h"]) == (21, 9, 23.0)
    assert [summary[k] for k in ("mttf_exp_h", "mttf_lo_h", "mttf_hi_h")] == pytest.approx(
        [39.88889, 21.01283, 87.23389], rel=1e-6
    )
    assert summary["cancelled_share"] == pytest.approx(12 / 21)
    assert rows_of(rows, "logrank") == []


def test_two_groups_reproduce_the_log_rank_test() -> None:
    with database(tables={"jobs": trial("c", TREATED) + trial("d", CONTROL)}) as con:
        rows = ask(con, "time-to-failure", group="cluster")
    [test] = rows_of(rows, "logrank")
    assert (test["df"], test["verdict"]) == (1, "differ")
    assert [test["chi2"], test["p"]] == pytest.approx([16.79294, 4.168809e-05], rel=1e-6)
    treated, control = rows_of(rows, "summary")
    assert (treated["failures"], treated["expected"]) == (9, pytest.approx(19.2505, rel=1e-5))
    assert control["expected"] == pytest.approx(30 - 19.2505, rel=1e-5)
    assert (control["median_h"], control["cancelled_share"]) == (8.0, 0.0)
    # All of the control group failed: no limits where nobody is left.
    last = rows_of(rows, "curve", "d")[-1]
    assert (last["t_h"], last["surv"], last["se"], last["lo"], last["hi"]) == (
        23,
        0,
        None,
        None,
        None,
    )


def test_a_curve_can_be_read_at_chosen_times() -> None:
    with database(tables={"jobs": trial("c", TREATED)}) as con:
        rows = rows_of(ask(con, "time-to-failure", times="1,6,12,40"), "curve")
    assert [(r["t_h"], r["at_risk"], r["failures"]) for r in rows] == [
        (1, 21, 0), (6, 21, 3), (12, 12, 0), (40, 0, 0),
    ]  # fmt: skip
    assert [r["surv"] for r in rows[:3]] == pytest.approx([1, 0.8571429, 0.7529412], rel=1e-6)
    # The longest attempt ran 35 h: nothing is known of 40 h.
    assert (rows[3]["surv"], rows[3]["se"], rows[3]["lo"], rows[3]["hi"]) == (None,) * 4


def test_attempts_seen_from_some_time_on_enter_then() -> None:
    jobs = [job(f"j{n}", 8, 0, 10 + n, state="FAILED") for n in range(4)]
    jobs += [job("early", 8, 0, 5, state="FAILED"), job("new", 8, 9, 2, state="FAILED")]
    with database(tables={"jobs": jobs}) as con:
        rows = ask(con, "time-to-failure", since="2026-03-01T08:00", until="2026-03-01T12:30")
    [summary] = rows_of(rows, "summary")
    # Of the four long ones hours 8 to 10, 11, 12 and 12.5 are seen, and two hours of the new one.
    assert (summary["attempts"], summary["failures"], summary["late_entries"]) == (5, 4, 4)
    assert summary["hours"] == pytest.approx(2 + 3 + 4 + 4.5 + 2)
    assert [(r["t_h"], r["at_risk"], r["failures"]) for r in rows_of(rows, "curve")] == [
        (2.0, 1, 1), (10.0, 4, 1), (11.0, 3, 1), (12.0, 2, 1),
    ]  # fmt: skip


def test_logs_that_begin_in_the_middle_enter_late_where_only_they_tell() -> None:
    event = Event("gpu-xid", t=20 * 3600, category="hardware")
    span = {"first_ts": at(15 * 3600), "last_ts": at(20 * 3600)}
    log = File("a/log", [event], run="a", job="a", attempt=0, columns=span)
    started = job("a", 8, 0, 20, state="RUNNING", end_ts=EPOCH + timedelta(hours=20))
    with database(log, tables={"jobs": [started]}) as con:
        [summary] = rows_of(ask(con, "time-to-failure"), "summary")
    assert (summary["failures"], summary["late_entries"], summary["hours"]) == (1, 1, 5.0)
    with database(log, tables={"jobs": [started | {"state": "FAILED"}]}) as con:
        [summary] = rows_of(ask(con, "time-to-failure"), "summary")
    assert (summary["failures"], summary["late_entries"], summary["hours"]) == (1, 0, 20.0)


def test_an_attempt_of_which_no_hour_was_seen_is_left_out() -> None:
    span = {"first_ts": at(30 * 3600), "last_ts": at(31 * 3600)}
    log = File("a/log", [Event("gpu-xid", t=30 * 3600, category="hardware")], run="a", job="a",
               attempt=0, columns=span)  # fmt: skip
    with database(log, tables={"jobs": [job("a", 8, 0, 20, state="UNKNOWN")]}) as con:
        [summary] = ask(con, "time-to-failure")
    assert (summary["attempts"], summary["failures"], summary["no_time"]) == (1, 0, 1)
    assert summary["hours"] is None


def test_groups_are_sizes_names_versions_and_before_and_after() -> None:
    def versioned(name: str, version: str) -> File:
        started = Event("run-started", "progress", t=0, category="progress",
                        captures={"version": version}, world_size=8)  # fmt: skip
        return run(f"{name}/log", started, Event("gpu-xid", t=3600, category="hardware"))

    jobs = [
        job("a", 8, 0, 1, state="FAILED", name="small"),
        job("b", 512, 0, 1, state="FAILED", name="large"),
        job("c", None, 48, 1, name="large"),
    ]
    files = [versioned("a", "0.17.6"), versioned("v", "0.18.0")]
    with database(*files, tables={"jobs": jobs}) as con:

        def groups(**given: str) -> dict[str, int]:
            rows = rows_of(ask(con, "time-to-failure", **given), "summary")
            return {r["group"]: r["attempts"] for r in rows}

        assert groups(group="scale") == {"2-8": 2, "65-512": 1, "unknown": 1}
        assert groups(group="name") == {"small": 1, "large": 2, "(unknown)": 1}
        assert groups(group="version") == {"0.17.6": 1, "0.18.0": 1, "(unknown)": 2}
        assert groups(group="change", change="2026-03-02") == {"before": 3, "after": 1}


def test_what_counts_as_a_failure_can_be_chosen() -> None:
    files = [run("x/log", Event("gpu-xid", t=3600, category="hardware")),
             run("y/log", Event("bad-config", t=3600, category="config"))]  # fmt: skip
    jobs = [job(name, 8, 0, 1, state="FAILED") for name in "xy"]
    with database(*files, tables={"jobs": jobs}) as con:

        def failures(**given: str) -> int:
            [summary] = rows_of(ask(con, "time-to-failure", **given), "summary")
            assert summary["attempts"] == 2
            return int(summary["failures"])

        assert (failures(), failures(definition="infra"), failures(failure="bad-config")) == (
            2,
            1,
            1,
        )


def test_without_failures_the_mean_has_a_lower_limit_only() -> None:
    jobs = [job(f"j{n}", 8, 0, 10) for n in range(3)] + [job("lost", 8, 0, 0, start_ts=None,
            end_ts=None, state="FAILED")]  # fmt: skip
    with database(tables={"jobs": jobs}) as con:
        rows = ask(con, "time-to-failure")
    [summary] = rows
    assert (summary["mttf_exp_h"], summary["mttf_hi_h"], summary["median_h"]) == (None,) * 3
    assert summary["mttf_lo_h"] == pytest.approx(30 / 2.995732)
    assert (summary["verdict"], summary["no_time"]) == ("too_rare", 1)


def test_attempts_that_fail_at_once_are_at_risk() -> None:
    jobs = [job("a", 8, 0, 0, state="FAILED"), job("b", 8, 0, 2, state="FAILED")]
    with database(tables={"jobs": jobs}) as con:
        curve = rows_of(ask(con, "time-to-failure"), "curve")
    assert [(r["t_h"], r["at_risk"], r["surv"]) for r in curve] == [(0, 2, 0.5), (2, 1, 0)]


def test_limits_cover_the_planted_curve_and_equal_groups_do_not_differ() -> None:
    mean = 30.0
    jobs = []
    for seed in range(20):
        draw = np.random.default_rng(seed)
        for n, (life, limit) in enumerate(zip(draw.exponential(mean, 150),
                                              draw.uniform(5, 60, 150), strict=True)):  # fmt: skip
            state = "FAILED" if life < limit else "TIMEOUT"
            jobs.append(job(f"{n}", 8, 0, min(life, limit), cluster=f"s{seed:02}", state=state,
                            name=f"g{n % 3}"))  # fmt: skip
    with empty() as con:
        insert(con, "jobs", jobs)
        curve = rows_of(ask(con, "time-to-failure", group="cluster", times="6,12,24,36"), "curve")
        tests = []
        for seed in range(20):
            rows = ask(con, "time-to-failure", group="name", cluster=f"s{seed:02}")
            tests += rows_of(rows, "logrank")
    covered = [r["lo"] <= math.exp(-r["t_h"] / mean) <= r["hi"] for r in curve]
    assert len(covered) == 80
    assert 0.90 <= np.mean(covered) <= 0.99
    assert [t["df"] for t in tests] == [2] * 20
    assert sum(t["verdict"] == "differ" for t in tests) <= 2


def test_groups_that_are_never_at_risk_together_cannot_be_compared() -> None:
    con = duckdb.connect()
    stats.register(con)
    query = "SELECT logrank([[2, 0], [1, 0], [0, 2]], [[1, 0], [1, 0], [0, 1]])"
    assert con.sql(query).fetchall() == [([None, 0.0, 2.0, 1.0],)]
