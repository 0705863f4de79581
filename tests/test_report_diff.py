"""What failed attempts say that healthy ones do not: worked example, controls, phases, roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pytest

from queries import report
from tests.database import Event, File, ask, at, database, run

RACE = "ds.zero3_nvme_ckpt_race"
# `r13_templates.csv` of the worked examples: attempts with it of 20 failed and 80 healthy, role.
TEMPLATES = {
    RACE: (9, 0, "cause"),
    "wandb.network_retry": (10, 38, "context"),
    "nccl.watchdog_timeout": (15, 1, "collateral"),
    "deprecation_warning": (20, 80, "context"),
    "nvme.low_space_warn": (6, 2, "context"),
}


def job(
    name: str, failed: bool, /, start: float = 0, end: float | None = None, **keys: Any
) -> dict[str, Any]:
    """The scheduler's row of a run; times are seconds of the test."""
    row = {"cluster": "c", "job": name, "name": "train", "source": "sacct", "gpus": 8}
    times = {"start_ts": at(start), "end_ts": at(start + 500 if end is None else end)}
    return row | times | {"state": "FAILED" if failed else "COMPLETED"} | keys


def fleet(*pairs: tuple[File, dict[str, Any]]) -> duckdb.DuckDBPyConnection:
    return database(*(log for log, _ in pairs), tables={"jobs": [row for _, row in pairs]})


def one(
    name: str, failed: bool, /, *events: Event, cluster: str = "c", **keys: Any
) -> tuple[File, dict[str, Any]]:
    """A run with its scheduler's row."""
    log = run(f"{name}/log", *events, cluster=cluster)
    return log, job(name, failed, **{"cluster": cluster, **keys})


def many(
    prefix: str, count: int, failed: bool, *events: Event, **keys: Any
) -> list[tuple[File, dict[str, Any]]]:
    return [one(f"{prefix}{n}", failed, *events, **keys) for n in range(count)]


def only(rows: Sequence[dict[str, Any]], template: str) -> dict[str, Any]:
    [row] = [r for r in rows if r["template_id"] == template]
    return row


# -- worked example ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def example() -> list[dict[str, Any]]:
    pairs = []
    for n in range(100):
        place = n if n < 20 else n - 20
        events = [
            Event(name, role, t=1000 * n + line, line=line, rank=0)
            for line, (name, (bad, good, role)) in enumerate(TEMPLATES.items(), 1)
            if place < (bad if n < 20 else good)
        ]
        pairs.append(one(f"r{n:02}", n < 20, *events, start=1000 * n, end=1000 * n + 500))
    return ask(fleet(*pairs), "healthy-diff")


@pytest.mark.parametrize(
    ("template", "odds", "fisher", "q", "verdict"),
    [
        (RACE, 4.890349, 8.829628e-08, 2.207407e-07, "associated"),
        ("wandb.network_retry", 0.09884583, 0.5190796, 0.6488494, "not_distinguishable"),
        ("nccl.watchdog_timeout", 5.006384, 9.251812e-13, 4.625906e-12, "associated"),
        ("deprecation_warning", -1.367832, 1.0, 1.0, "not_distinguishable"),
        ("nvme.low_space_warn", 2.644461, 0.0006921953, 0.001153659, "associated"),
    ],
)
def test_the_worked_example_is_reproduced(
    example: list[dict[str, Any]],
    template: str,
    odds: float,
    fisher: float,
    q: float,
    verdict: str,
) -> None:
    row = only(example, template)
    bad, good, _ = TEMPLATES[template]
    assert (row["failed_with"], row["healthy_with"]) == (bad, good)
    assert (row["n_failed"], row["n_healthy"], row["same_kind"]) == (20, 80, 80)
    assert (row["p_failed"], row["p_healthy"]) == (bad / 20, good / 80)
    numbers = [row[key] for key in ("log_odds", "fisher_p", "q")]
    assert numbers == pytest.approx([odds, fisher, q], rel=1e-6)
    assert (row["only_in_failed"], row["verdict"]) == (template == RACE, verdict)
    assert row["state_source"] == "sacct 20"


def test_what_follows_is_listed_below_roots_however_well_it_separates(
    example: list[dict[str, Any]],
) -> None:
    assert [(row["template_id"], row["causal_role"]) for row in example] == [
        (RACE, "initiating"),
        ("nvme.low_space_warn", "unknown"),
        ("nccl.watchdog_timeout", "cascade"),
        ("wandb.network_retry", "unknown"),
        ("deprecation_warning", "unknown"),
    ]


def test_teardown_separates_perfectly_and_stands_last() -> None:
    hurt = [Event("disk-full", t=1), Event("nccl-timeout", "collateral", t=2),
            Event("killed", "teardown", t=3)]  # fmt: skip
    con = fleet(*many("f", 8, True, *hurt), *many("h", 8, False))
    found = ask(con, "healthy-diff")
    assert [(r["template_id"], r["causal_role"]) for r in found] == [
        ("disk-full", "initiating"), ("nccl-timeout", "cascade"), ("killed", "teardown"),
    ]  # fmt: skip
    assert all(r["verdict"] == "associated" for r in found)


# -- controls ----------------------------------------------------------------------------------


def marked(name: str, failed: bool, /, **keys: Any) -> tuple[File, dict[str, Any]]:
    """A run of one line, by which the choice of controls shows."""
    return one(name, failed, Event(f"mark-{name}", "context", t=1), **keys)


def chosen(con: duckdb.DuckDBPyConnection, **given: str) -> set[str]:
    rows = ask(con, "healthy-diff", **given)
    return {r["template_id"].removeprefix("mark-") for r in rows if r["healthy_with"]}


def test_controls_are_those_of_the_same_job_name_and_size_nearest_in_time() -> None:
    con = fleet(
        marked("bad", True, start=10_000),
        marked("before", False, start=9_000),
        marked("after", False, start=10_900),
        marked("long-ago", False, start=100),
        marked("later", False, start=50_000),
        marked("other-name", False, start=10_000, name="eval"),
        marked("other-size", False, start=10_000, gpus=512),
        marked("other-cluster", False, start=10_000, cluster="d"),
        marked("cancelled", False, start=10_000, state="CANCELLED"),
        marked("failed-too", True, start=500_000, name="eval"),
    )
    assert chosen(con, controls="2", job="bad") == {"before", "after"}
    assert chosen(con, job="bad") == {"before", "after", "long-ago", "later"}
    assert ask(con, "healthy-diff", controls="2", job="bad")[0]["same_kind"] == 2


def test_without_any_of_the_same_kind_the_cluster_is_compared_with() -> None:
    con = fleet(
        marked("bad", True, name="only-once"),
        marked("a", False),
        marked("b", False, gpus=64),
        marked("c", False, cluster="d"),
    )
    assert chosen(con) == {"a", "b"}
    assert ask(con, "healthy-diff")[0]["same_kind"] == 0


def test_a_run_without_a_job_name_has_its_own_without_numbers() -> None:
    con = database(
        run("pre-17/log", Event("x", t=1)),
        run("pre-16/log", Event("a", "context", t=1), Event("run-completed", "progress", t=2)),
        run("sft-3/log", Event("b", "context", t=1), Event("run-completed", "progress", t=2)),
    )
    rows = ask(con, "healthy-diff")
    assert {r["template_id"] for r in rows} == {"x", "a"}
    assert (rows[0]["n_failed"], rows[0]["n_healthy"], rows[0]["state_source"]) == (1, 1, "log 1")


def test_filters_choose_the_failed_and_not_their_controls() -> None:
    con = fleet(*many("f", 6, True, Event("x", t=1)), *many("h", 9, False, start=900_000))
    [row] = ask(con, "healthy-diff", until="2026-03-02")
    assert (row["n_failed"], row["n_healthy"]) == (6, 9)
    assert ask(con, "healthy-diff", since="2026-03-02") == []
    assert ask(con, "healthy-diff", failure="y") == []
    [row] = ask(con, "healthy-diff", job="f1", limit="1")
    assert (row["n_failed"], row["n_healthy"], row["verdict"]) == (1, 9, "too_rare")


def test_without_controls_nothing_is_claimed() -> None:
    [row] = ask(fleet(*many("f", 6, True, Event("x", t=1))), "healthy-diff")
    assert (row["n_healthy"], row["p_healthy"], row["q"], row["verdict"]) == (
        0, None, None, "too_rare",
    )  # fmt: skip


# -- what healthy runs have --------------------------------------------------------------------


def milestones(end: float, *more: Event) -> list[Event]:
    return [Event("checkpoint-complete", "progress", t=200), Event("late", "progress", t=900)][
        : 1 if end < 900 else 2
    ] + list(more)


@pytest.mark.parametrize(("end", "late_missing", "reached"), [(300, False, 0), (950, True, 8)])
def test_what_failed_runs_were_too_short_for_is_not_missing(
    end: float, late_missing: bool, reached: int
) -> None:
    healthy = many("h", 8, False, *milestones(1000), end=1000)
    failed = many("f", 8, True, Event("x", t=end), end=end)
    rows = ask(fleet(*failed, *healthy), "healthy-diff")
    saved = only(rows, "checkpoint-complete")
    assert (saved["only_in_healthy"], saved["failed_reached"]) == (True, 8)
    assert saved["missing_p"] == pytest.approx(1 / 12870)
    assert saved["verdict"] == "missing"
    late = only(rows, "late")
    assert (late["only_in_healthy"], late["failed_reached"]) == (late_missing, reached)
    assert (late["missing_p"] is None) is not late_missing
    assert not any(r["only_in_healthy"] and r["failed_with"] for r in rows)


def test_without_times_the_last_step_tells_how_far_a_run_came() -> None:
    healthy = many("h", 6, False, Event("training-step", "progress", step=900),
                   Event("evaluated", "progress", step=500), start=0, end=0)  # fmt: skip
    failed = many("f", 6, True, Event("training-step", "progress", step=450), Event("x"))
    assert not only(ask(fleet(*failed, *healthy), "healthy-diff"), "evaluated")["only_in_healthy"]
    later = many("g", 6, True, Event("training-step", "progress", step=600), Event("x"))
    row = only(ask(fleet(*failed, *later, *healthy), "healthy-diff"), "evaluated")
    assert (row["only_in_healthy"], row["failed_reached"]) == (True, 6)


def test_the_end_of_a_healthy_run_is_no_finding() -> None:
    healthy = many("h", 6, False, Event("run-completed", "progress", t=5))
    rows = ask(fleet(*many("f", 6, True, Event("x", t=1)), *healthy), "healthy-diff")
    assert [r["template_id"] for r in rows] == ["x"]


# -- where in the failed runs ------------------------------------------------------------------


def test_where_it_appears_first_and_on_which_share_of_ranks() -> None:
    steps = [Event("training-step", "progress", step=n, line=n, rank=0) for n in (10, 20, 30)]
    local = [Event("local", line=25, rank=3), Event("local", line=26, rank=3)]
    common = [Event("common", line=31, rank=n) for n in range(8)]
    named = Event("named", line=40, rank=0, step=31)
    con = fleet(one("f", True, *steps, *local, *common, named), one("h", False))
    rows = ask(con, "healthy-diff")
    places = {r["template_id"]: (r["first_step"], r["ranks_share"]) for r in rows}
    assert places == {
        "training-step": (None, None),
        "local": (20, 1 / 8),
        "common": (30, 1.0),
        "named": (31, 1 / 8),
    }  # fmt: skip


def test_a_template_of_both_kinds_is_weighed_by_the_hour() -> None:
    warn = Event("retry", "context", t=1, repeats=10)
    con = fleet(*many("f", 6, True, warn, end=1800), *many("h", 6, False, warn, end=7200))
    row = only(ask(con, "healthy-diff"), "retry")
    assert (row["rate_ratio"], row["verdict"]) == (4.0, "not_distinguishable")
    assert (row["only_in_failed"], row["only_in_healthy"]) == (False, False)


def test_rare_templates_are_not_tested() -> None:
    con = fleet(*many("f", 4, True, Event("x", t=1)), *many("g", 4, True), *many("h", 90, False))
    [row] = ask(con, "healthy-diff")
    assert (row["failed_with"], row["q"], row["verdict"]) == (4, None, "too_rare")
    [row] = ask(con, "healthy-diff", min_margin="4")
    assert (row["verdict"], row["q"]) == ("associated", row["fisher_p"])
    [row] = ask(con, "healthy-diff", min_margin="4", min_n11="5")
    assert row["verdict"] == "not_distinguishable"


# -- lines that no signature knows -------------------------------------------------------------


def test_unknown_lines_are_told_apart_by_their_text() -> None:
    def lost(number: int) -> Event:
        return Event("python-exception", t=number, message=f"LinkError: lost peer {number} of 64",
                     severity="medium")  # fmt: skip

    retry = Event("python-exception", "context", t=3, message="RetryError: slow, again in 5 s")
    pairs = [one(f"f{n}", True, lost(n), retry) for n in range(6)]
    pairs += [one(f"h{n}", False, retry) for n in range(6)]
    con = fleet(*pairs)
    known = {row["template_id"] for row in ask(con, "healthy-diff")}
    assert known == {"python-exception"}
    con.execute(
        "INSERT INTO signatures BY NAME "
        "SELECT 'python-exception' AS signature, 'python-exception' AS failure, true AS fallback"
    )
    rows = ask(con, "healthy-diff")
    assert [(r["text"], r["failed_with"], r["healthy_with"], r["causal_role"]) for r in rows] == [
        ("LinkError: lost peer <num> of <num>", 6, 0, "unknown"),
        ("RetryError: slow, again in <num> s", 6, 6, "unknown"),
    ]
    assert rows[0]["verdict"] == "associated"
    assert rows[0]["template_id"].startswith("python-exception#")
    assert len({r["template_id"] for r in rows}) == 2
    assert ask(con, "healthy-diff") == rows


def test_hostile_text_stays_text() -> None:
    text = "<script>alert('x')</script>'; DROP TABLE events; --"
    con = fleet(one("f", True, Event("x", t=1, message=text)), one("h", False))
    assert ask(con, "healthy-diff")[0]["text"] == text


def test_a_database_without_jobs_and_one_of_a_single_run_answer() -> None:
    [row] = ask(database(run("r/log", Event("x", t=1))), "healthy-diff")
    assert (row["n_failed"], row["n_healthy"], row["verdict"]) == (1, 0, "too_rare")
    healthy = run("r/log", Event("run-completed", "progress", t=1))
    result = report.run(database(healthy), report.load("healthy-diff"), {})
    assert (result.table.num_rows, result.notes) == (0, ())
