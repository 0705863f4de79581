"""What is new, what returns, and what may just be rare."""

from __future__ import annotations

from typing import Any

import pytest

from tests.database import Event, File, ask, at, database, run

DAY = 86400.0
WEEK = 40 * DAY  # when the last week begins
END = 47 * DAY


def attempt(
    name: str,
    end: float,
    gpu_h: float,
    *events: Event,
    gpus: int = 1000,
    cluster: str = "c",
    digest: str | None = "now",
) -> tuple[File, dict[str, Any]]:
    job = {"cluster": cluster, "job": name, "gpus": gpus, "start_ts": at(end - 3600 * gpu_h / gpus),
           "end_ts": at(end), "state": "COMPLETED", "source": "sacct"}  # fmt: skip
    columns = {"catalogue_digest": digest, "last_ts": at(end)}
    return run(f"{name}/log", *events, cluster=cluster, columns=columns), job


def fleet(
    recent: int,
    baseline: float,
    *extra: tuple[File, dict[str, Any]],
    days: float = 39,
    digest: str | None = "now",
    **given: Any,
) -> list[dict[str, Any]]:
    """10,000 GPU-hours of the last week with `recent` attempts that had x, and a baseline."""
    attempts = [
        attempt(f"new{n}", END - n * 3600, 1000,
                *([Event("x", t=END - n * 3600, host="n1", rank=0)] if n < recent else []))
        for n in range(10)
    ]  # fmt: skip
    attempts += [
        attempt(f"old{n}", WEEK - DAY * (0.5 + (days - 1) * n / 9), baseline / 10, digest=digest)
        for n in range(10)
    ]
    files, jobs = zip(*attempts, *extra, strict=True)
    return ask(database(*files, tables={"jobs": jobs}), "first-seen", **given)


@pytest.mark.parametrize(
    ("recent", "baseline", "expected", "p", "status"),
    [
        (4, 30_000, 12, 6.144212e-06, "new"),
        (1, 30_000, 3, 0.04978707, "borderline"),
        (1, 10_000, 1, 0.3678794, "not_established"),
    ],
)
def test_the_worked_examples(
    recent: int, baseline: float, expected: float, p: float, status: str
) -> None:
    [row] = fleet(recent, baseline)
    assert (row["failure"], row["status"], row["unit"]) == ("x", status, "gpu-hour")
    assert (row["exposure_since"], row["baseline_exposure"]) == pytest.approx((10_000, baseline))
    assert (row["expected"], row["p_zero_baseline"]) == pytest.approx((expected, p), rel=1e-6)
    assert (row["occurrences"], row["runs_since"], row["hosts_since"]) == (recent, recent, 1)
    assert (row["first_run"], row["first_host"]) == (f"new{recent - 1}", "n1")
    assert row["first_seen"] == at(END - 3600 * (recent - 1))
    assert row["exposure_source"] == "jobs"


def test_a_short_baseline_establishes_nothing() -> None:
    [row] = fleet(4, 30_000, days=20)
    assert (row["status"], row["baseline_days"] < 30) == ("not_established", True)


def test_a_rule_younger_than_the_logs_is_no_new_failure() -> None:
    [row] = fleet(4, 30_000, digest="old catalogue")
    assert (row["status"], row["baseline_exposure"], row["p_zero_baseline"]) == ("new_rule", 0, 1)
    # The old catalogue knew it: it found one in another cluster.
    other = attempt("other", WEEK - DAY, 1, Event("x", t=WEEK - DAY), cluster="d",
                    digest="old catalogue")  # fmt: skip
    rows = fleet(4, 30_000, other, digest="old catalogue", scope="cluster")
    assert [(row["scope"], row["status"]) for row in rows] == [("c", "new")]


@pytest.mark.parametrize(("gap_days", "status"), [(35, "returning"), (10, None)])
def test_what_was_away_for_a_month_returns(gap_days: float, status: str | None) -> None:
    t = WEEK - DAY * gap_days + DAY
    rows = fleet(4, 30_000, attempt("before", t, 10, Event("x", t=t)))
    assert [row["status"] for row in rows] == ([status] if status else [])
    [row] = fleet(4, 30_000, attempt("before", t, 10, Event("x", t=t)), known=True)
    assert (row["status"], row["seen_before"]) == (status or "known", at(t))


def test_what_is_new_in_a_cluster_may_be_known_in_the_fleet() -> None:
    there = [attempt(f"d{n}", DAY * n + 2 * DAY, 10, Event("x", t=DAY * n + 2 * DAY), cluster="d")
             for n in range(44)]  # fmt: skip
    assert fleet(4, 30_000, *there) == []
    rows = fleet(4, 30_000, *there, scope="cluster")
    assert [(row["scope"], row["status"]) for row in rows] == [("c", "new")]


def test_the_last_version_that_came_before_it_is_named() -> None:
    def stated(name: str, t: float, version: str) -> tuple[File, dict[str, Any]]:
        return attempt(name, t + 60, 1, Event("run-started", "progress", t=t, category="progress",
                       signature="deepspeed-version", captures={"version": version}))  # fmt: skip

    [row] = fleet(4, 30_000, stated("v1", WEEK - 9 * DAY, "0.17.6"),
                  stated("v2", WEEK + DAY, "0.18.0"), stated("v3", END + 1, "0.19.0"),
                  now=at(END + DAY))  # fmt: skip
    assert (row["status"], row["change_id"]) == ("new", "deepspeed 0.18.0")


def test_signatures_are_told_apart_where_asked() -> None:
    events = [
        Event("x", t=END - 60, signature="x-two"),
        Event("x", t=END - 50, signature="x-three"),
    ]
    old = attempt("seen", WEEK - 2 * DAY, 10, Event("x", t=WEEK - 2 * DAY, signature="x-two"))
    rows = fleet(0, 300_000, attempt("both", END - 10, 10, *events), old, by="signature")
    assert [row["signature"] for row in rows] == ["x-three"]


def test_without_gpus_attempts_are_the_exposure() -> None:
    files = [run(f"r{n}/log", Event("training-step", "progress", t=DAY * n),
                 *([Event("x", t=DAY * n + 60)] if n > 44 else [])) for n in range(48)]  # fmt: skip
    [row] = ask(database(*files), "first-seen")
    assert (row["unit"], row["exposure_source"]) == ("attempt", "log")
    assert (row["exposure_since"], row["baseline_exposure"], row["occurrences"]) == (7, 41, 3)
    assert (row["status"], row["expected"]) == ("new", pytest.approx(41 * 3 / 7))


def test_one_run_alone_is_never_news() -> None:
    [row] = ask(database(run("a/log", Event("x", t=5))), "first-seen")
    assert (row["status"], row["baseline_exposure"]) == ("not_established", 0)
