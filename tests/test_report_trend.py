"""Failures by day: the worked example, rolling baselines, and what is no trend."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from tests.database import EPOCH, Event, ask, database, run
from tests.test_report_rate import job


def day(number: int, failures: int, gpu_hours: float, **keys: Any) -> list[dict[str, Any]]:
    """Attempts of the day that end within it: so many fail, as many do not."""
    n = 2 * max(failures, 1)
    gpus = keys.pop("gpus", 1000)
    return [
        job(f"{number}-{i}", gpus, 24 * number, gpu_hours / gpus / n,
            state="FAILED" if i < failures else "COMPLETED", **keys)
        for i in range(n)
    ]  # fmt: skip


def trend(*days: list[dict[str, Any]], **given: Any) -> list[dict[str, Any]]:
    with database(tables={"jobs": [row for rows in days for row in rows]}) as con:
        return ask(con, "trend", **given)


# r18_days.csv
WEEK = ((3, 4000), (2, 4100), (4, 3900), (3, 4200), (11, 4050), (2, 1500), (1, 700))


def test_days_reproduce_the_worked_example() -> None:
    rows = trend(*(day(n, *values) for n, values in enumerate(WEEK)), baseline_until="2026-03-05")
    names = ("rate", "lo", "hi", "expected", "ucl", "p")
    expected = [
        (0.75, 0.154668, 2.191818, 2.962963, 8.126941, 0.5684611),
        (0.4878049, 0.05907543, 1.762119, 3.037037, 8.265166, 0.8063157),
        (1.025641, 0.2794527, 2.626048, 2.888889, 7.987908, 0.327892),
        (0.7142857, 0.1473029, 2.087446, 3.111111, 8.402614, 0.6012372),
        (2.716049, 1.355842, 4.859763, 3.0, 8.196152, 0.000292337),
        (1.333333, 0.1614729, 4.816458, 1.111111, 4.273389, 0.305037),
        (1.428571, 0.0361683, 7.959491, 0.5185185, 2.678765, 0.404598),
    ]
    assert len(rows) == 7
    for row, wanted in zip(rows, expected, strict=True):
        assert tuple(row[name] for name in names) == pytest.approx(wanted, rel=2e-6)
        assert (row["baseline_failures"], row["baseline_exposure"]) == (12, pytest.approx(16200))
    assert [row["flag"] for row in rows] == [None] * 4 + ["out_of_control", None, None]
    assert rows[4]["rule"] == "p"
    assert [row["partial"] for row in rows] == [False] * 6 + [True]
    assert rows[6]["ma7"] == pytest.approx(1000 * 26 / 22450)


def test_the_baseline_is_the_days_before_and_needs_five_failures() -> None:
    rows = trend(*(day(n, 1, 1000) for n in range(40)))
    assert [row["flag"] for row in rows] == ["too_rare"] * 5 + [None] * 35
    assert [row["baseline_failures"] for row in rows[::8]] == [0, 8, 16, 24, 28]
    assert [row["expected"] for row in rows[5:]] == pytest.approx([1.0] * 35)
    assert {row["expected"] for row in rows[:5]} == {None}
    week = trend(*(day(n, 1, 1000) for n in range(12)), baseline_days=7)
    assert [row["baseline_failures"] for row in week] == [0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7]


def test_eight_days_on_one_side_are_a_trend() -> None:
    rows = trend(*(day(n, 4, 1000) for n in range(28)), *(day(28 + n, 7, 1000) for n in range(9)))
    flags = [(row["flag"], row["rule"]) for row in rows]
    assert flags[5:35] == [(None, None)] * 30
    # The ninth day is the last one, which is not complete.
    assert flags[35:] == [("out_of_control", "eight_above"), (None, None)]
    fewer = trend(*(day(n, 6, 1000) for n in range(28)), *(day(28 + n, 3, 1000) for n in range(9)))
    assert (fewer[35]["flag"], fewer[35]["rule"]) == ("out_of_control", "eight_below")


def test_eight_days_without_a_rare_failure_are_no_trend() -> None:
    # One in five days: eight quiet days on end have a chance of 20 %.
    rows = trend(*(day(n, int(n % 5 == 0), 1000) for n in range(30)),
                 *(day(30 + n, 0, 1000) for n in range(9)))  # fmt: skip
    assert {row["flag"] for row in rows} <= {None, "too_rare"}


def test_bursts_in_the_baseline_are_no_alarm_of_their_own() -> None:
    bursts = (0, 0, 12, 0, 0, 0, 14, 0, 0, 13)
    rows = trend(*(day(n, k, 1000) for n, k in enumerate(bursts * 3)), day(30, 14, 1000),
                 day(31, 0, 1000))  # fmt: skip
    assert rows[30]["p"] < 0.001
    assert rows[30]["dispersion"] > 1.5
    assert (rows[30]["flag"], rows[30]["rule"]) == ("overdispersed", None)


def test_hours_count_on_the_day_on_which_they_ran() -> None:
    long = job("long", 10, 12, 48, state="FAILED")
    rows = trend([long])
    assert [(row["day"], row["failures"], row["exposure"]) for row in rows] == [
        (date(2026, 3, 1), 0, 120.0), (date(2026, 3, 2), 0, 240.0), (date(2026, 3, 3), 1, 120.0),
    ]  # fmt: skip
    nodes = trend([long], unit="node_day")
    assert [row["exposure"] for row in nodes] == pytest.approx([1.0, 2.0, 1.0])
    launches = trend([long], unit="attempt")
    assert [(row["failures"], row["exposure"]) for row in launches[-1:]] == [(1, 1.0)]


def test_failures_have_their_own_rows_and_the_day_of_their_line() -> None:
    files = [
        run("a/log", Event("gpu-xid", t=3600, rank=0, category="hardware")),
        run("b/log", Event("disk-full", t=3600, rank=0, category="storage")),
    ]
    jobs = [job(name, 8, 0, 30, state="FAILED") for name in "abc"]
    with database(*files, tables={"jobs": jobs}) as con:
        rows = ask(con, "trend", by="failure")
        early = ask(con, "trend", by="failure", day="failure", failure="gpu-xid")
        infra = ask(con, "trend", definition="infra")
    assert [(r["day"].day, r["failure"], r["failures"]) for r in rows] == [
        (1, None, 0), (2, None, 3),
        (1, "(unknown)", 0), (2, "(unknown)", 1),
        (1, "disk-full", 0), (2, "disk-full", 1),
        (1, "gpu-xid", 0), (2, "gpu-xid", 1),
    ]  # fmt: skip
    assert [(r["day"].day, r["failure"], r["failures"]) for r in early] == [
        (1, "gpu-xid", 1), (2, "gpu-xid", 0),
    ]  # fmt: skip
    assert [r["failures"] for r in infra] == [0, 2]


def test_a_range_of_days_keeps_its_baseline() -> None:
    days = [day(n, 1, 1000) for n in range(20)]
    rows = trend(*days, since="2026-03-15", until="2026-03-17")
    assert [(row["day"].day, row["baseline_failures"]) for row in rows] == [(15, 14), (16, 15)]


def test_clusters_have_their_days_and_the_fleet_its_own() -> None:
    rows = trend(day(0, 2, 1000), day(0, 1, 500, cluster="d"), day(1, 0, 100))
    assert [(r["cluster"], r["day"].day, r["failures"], r["exposure"]) for r in rows] == [
        ("(all)", 1, 3, pytest.approx(1500)), ("(all)", 2, 0, pytest.approx(100)),
        ("c", 1, 2, pytest.approx(1000)), ("c", 2, 0, pytest.approx(100)),
        ("d", 1, 1, pytest.approx(500)),
    ]  # fmt: skip


def test_a_day_without_exposure_has_no_rate() -> None:
    end = EPOCH + timedelta(hours=3)
    [row] = trend([job("x", None, 0, 0, start_ts=None, end_ts=end, state="FAILED")])
    assert (row["failures"], row["rate"], row["flag"]) == (1, None, "no_exposure")
