"""Each report finds what was planted in a fleet's past, as soon as there is such a report."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from scipy.stats import binom, chi2

from ingest import fleet, fleet_past, pipeline, schema
from ingest.fleet_past import Launch, Past
from ingest.store import Store
from queries import report
from tests import database

RUNS = 300
CLUSTERS = tuple(fleet_past.RATES)
Rows = list[dict[str, Any]]


class Planted(NamedTuple):
    """A past, ingested, with what the scheduler says of it."""

    past: Past
    root: Path
    connection: duckdb.DuckDBPyConnection

    def ask(self, name: str, **arguments: str) -> Rows:
        """Rows of a report."""
        return report.run(self.connection, report.load(name), arguments).table.to_pylist()


# What a profiler would export of the same steps: the time of each rank before the collective, and
# its stage, of which pipelines here have two. The time that a trainer prints is that of all ranks.
PROFILED = """
INSERT INTO timings BY NAME
SELECT cluster, run, job, attempt, step, rank, host, rank // 8 AS stage,
  number_of(captures['iter_ms']) / 1000 AS t_compute_s, ts, 'profiler' AS source
FROM placed_events WHERE failure = 'training-step' AND rank IS NOT NULL
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    root = tmp_path_factory.mktemp("planted")
    made = fleet.generate(
        root / "logs", bytes_=100_000, seed=5, codec="none", runs=1, history=RUNS
    ).past
    assert made is not None
    logs = [str(root / "logs" / cluster) for cluster in CLUSTERS]
    with Store(root / "db", report.views()) as store:
        for cluster, path in zip(CLUSTERS, logs, strict=True):
            pipeline.ingest(store, pipeline.plan([path], cluster=cluster, metrics="full"))
        database.insert(store.connection, "jobs", map(scheduled, made.launches))
        store.connection.execute(PROFILED)
    with report.connect(root / "db", schema.ddl()) as connection:
        yield Planted(made, root / "logs", connection)


def scheduled(one: Launch) -> dict[str, Any]:
    """The row of `jobs` that importing meta/sacct.psv makes of a launch."""
    submit, start, end = (
        datetime.fromtimestamp(round(t), UTC).replace(tzinfo=None)
        for t in (one.submit, one.start, one.end)
    )
    return {
        "cluster": one.cluster,
        "job": one.job,
        "attempt": one.attempt,
        "state": one.state.upper(),
        "exit_code": int(one.state == "failed"),
        "nodes": len(one.hosts),
        "gpus": one.gpus,
        "hosts": list(one.hosts),
        "submit_ts": submit,
        "start_ts": start,
        "end_ts": end,
        "source": "sacct",
    }


def failed(past: Past) -> dict[tuple[str, str, int], Launch]:
    return {
        (one.cluster, one.job, one.attempt): one for one in past.launches if one.state == "failed"
    }


# -- what each report must find ------------------------------------------------------------------


def coverage(planted: Planted) -> None:
    assert sum(row["attempts"] for row in planted.ask("coverage")) == len(planted.past.launches)


def first_failure(planted: Planted) -> None:
    found = {
        (row["cluster"], row["job"], row["attempt"]): (
            row["failure"],
            row["initiating_rank"],
            row["initiating_host"],
        )
        for row in planted.ask("first-failure", by="attempt")
    }
    assert found == {
        key: (one.cause, one.rank, one.host) for key, one in failed(planted.past).items()
    }


def incidents(planted: Planted) -> None:
    ended = {
        (row["cluster"], row["job"], row["attempt"])
        for row in planted.ask("incidents")
        if row["ended_attempt"]
    }
    assert ended == failed(planted.past).keys()


def failure_mix(planted: Planted) -> None:
    ended: Counter[str] = Counter()
    for row in planted.ask("failure-mix"):
        if row["ended_attempts"]:
            ended[row["failure"]] += row["ended_attempts"]
    assert ended == Counter(one.cause for one in failed(planted.past).values())


def co_occurrence(planted: Planted) -> None:
    verdicts = {(row["a"], row["b"]): row["verdict"] for row in planted.ask("co-occurrence")}
    assert {verdicts[pair] for pair in planted.past.associated} == {"associated"}
    assert verdicts[planted.past.confounded[0]] == "confounded"
    for pair in planted.past.unrelated:
        assert verdicts[pair] == "not_distinguishable", pair


def storms(planted: Planted) -> None:
    ((run, lines),) = planted.past.storms.items()
    cluster, job = run.split("/")
    found = planted.ask("storms", cluster=cluster, job=job)
    assert max(row["events"] for row in found) >= 0.9 * lines


def co_occurrence_by_scale(planted: Planted) -> None:
    pooled = {
        (row["a"], row["b"]): row
        for row in planted.ask("co-occurrence-by-scale", limit="1000")
        if row["bucket"] is None and row["cluster"] is None
    }
    assert pooled[planted.past.confounded[0]]["simpson_flag"]
    for pair in planted.past.associated:
        assert not pooled[pair]["simpson_flag"], pair
        assert pooled[pair]["cmh_p"] < 1e-4, pair


def failure_rate(planted: Planted) -> None:
    bounds = ",".join(str(gpus) for gpus, _ in fleet_past.SIZES)
    found = {
        (row["cluster"], int(row["gpus_median"])): row
        for row in planted.ask(
            "failure-rate", failure=fleet_past.ECC, buckets=bounds, definition="any_failed"
        )
        if row["row"] == "bucket" and row["attempts"]
    }
    for rate in planted.past.rates:
        row = found[rate.cluster, rate.gpus]
        assert row["attempts"] == rate.attempts
        assert row["gpu_hours"] == pytest.approx(rate.gpu_hours, rel=1e-3)
        assert row["failures"] == rate.failures
        low, high = (1e6 * limit / rate.gpu_hours for limit in interval(rate.failures))
        assert row["rate_lo"] == pytest.approx(low, rel=1e-3)
        assert row["rate_hi"] == pytest.approx(high, rel=1e-3)


def regression(planted: Planted) -> None:
    fix = planted.past.fix
    # What was launched before the change runs on without it: the version tells, not the time.
    (row,) = planted.ask(
        "regression",
        failure=fix.failure,
        change=f"deepspeed >= {fix.version}",
        trigger="deepspeed-checkpoint-begin",
    )
    assert (row["k0"], row["k1"]) == (fix.k0, fix.k1)
    assert (row["e0"], row["e1"]) == (fix.saves0, fix.saves1)
    assert row["verdict"] == "gone"


def lemon_nodes(planted: Planted) -> None:
    past = planted.past
    days = str(fleet_past.DAYS + 7)
    found = {
        row["host"]: row["k"]
        for row in planted.ask("lemon-nodes", window_d=days)
        if row["verdict"] == "lemon"
    }
    for one in past.lemons:
        assert found[one.host] >= one.failures
    assert len(found) <= len(past.lemons) + 2


def stragglers(planted: Planted) -> None:
    for slow in planted.past.slow:
        rows = planted.ask("stragglers", cluster=slow.cluster, job=slow.job)
        kinds = {row["kind"] for row in rows if row["kind"]}
        if slow.kind == "transient":
            assert {row["rank"] for row in rows if row["class"] == "transient"} == set(slow.ranks)
        elif slow.kind in ("worker", "stage_imbalance", "global"):
            assert slow.kind in kinds, (slow, kinds)
        if slow.kind == "worker":
            assert {row["rank"] for row in rows if row["class"] == "persistent"} == set(slow.ranks)


def ettr(planted: Planted) -> None:
    found = {(row["cluster"], row["job"]): row for row in planted.ask("ettr") if row["job"]}
    for one in planted.past.balances:
        row = found[one.cluster, one.job]
        assert row["attempts"] == one.attempts
        assert row["wall_h"] == pytest.approx(one.wall_h, abs=0.01)
        for name in ("productive_h", "replay_h", "restart_h", "queue_h"):
            # What is not printed is not known: a step or two at each end of a launch.
            slack = 2 * fleet_past.STEP_S / 3600 * one.attempts
            assert row[name] == pytest.approx(getattr(one, name), abs=slack), (name, one)


def fingerprints(planted: Planted) -> None:
    one = planted.past.fingerprint
    pattern = ",".join(one.pattern[1:])  # the start may be hours before
    found = planted.ask("fingerprints", pattern=pattern, window_s="1800")
    (row,) = (row for row in found if row["window_s"] == 1800)
    assert (row["fired"], row["hits"]) == (one.fired, one.hits)
    assert row["lead_p50_s"] == pytest.approx(one.lead_p50_s, rel=0.1)


def first_seen(planted: Planted) -> None:
    end = max(one.end for one in planted.past.launches)
    found = {
        row["failure"]: row
        for row in planted.ask("first-seen", now=fleet_past.iso(end), new_days="14")
        if row["status"] == "new"
    }
    for failure, moment in planted.past.first_seen.items():
        ago = abs(datetime.fromisoformat(moment) - found[failure]["first_seen"])
        assert ago.total_seconds() < 120


def trend(planted: Planted) -> None:
    step = planted.past.step
    rows = planted.ask("trend", cluster=step.cluster, failure=fleet_past.ECC)
    before, after = [0, 0.0], [0, 0.0]
    for row in rows:
        side = before if str(row["day"])[:10] < step.day else after
        side[0] += row["failures"]
        side[1] += row["exposure"] or 0
    assert after[0] / after[1] > 1.5 * before[0] / before[1]


CHECKS: dict[str, Callable[[Planted], None]] = {
    "coverage": coverage,
    "first-failure": first_failure,
    "incidents": incidents,
    "failure-mix": failure_mix,
    "co-occurrence": co_occurrence,
    "storms": storms,
    "co-occurrence-by-scale": co_occurrence_by_scale,
    "failure-rate": failure_rate,
    "regression": regression,
    "lemon-nodes": lemon_nodes,
    "stragglers": stragglers,
    "ettr": ettr,
    "fingerprints": fingerprints,
    "first-seen": first_seen,
    "trend": trend,
}
# Held to planted truth elsewhere, or by cases that no past has.
ELSEWHERE = {
    "diagnosis": "tests/test_fleet.py and the corpora of cases",
    "unclassified": "tests/test_unclassified.py",
    "time-to-failure": "its own test: one distribution with failure-rate",
    "checkpoints": "its own test: regression counts the same saves here",
    "nvme-capacity": "its own test: needs the size of the model",
    "healthy-diff": "its own test: fingerprints counts the same launches here",
}


@pytest.mark.parametrize("name", [name for name in report.names() if name in CHECKS])
def test_report_finds_what_was_planted(planted: Planted, name: str) -> None:
    CHECKS[name](planted)


def test_every_report_is_held_to_planted_truth_or_says_where_else() -> None:
    ran = [name for name in report.names() if name in CHECKS]
    waiting = sorted(CHECKS.keys() - set(ran))
    print(f"ran: {', '.join(ran)}; wait for their report: {', '.join(waiting) or 'none'}")
    assert not CHECKS.keys() & ELSEWHERE.keys()
    extra = set(report.names()) - CHECKS.keys() - ELSEWHERE.keys()
    assert all(name.startswith("co-occurrence-by-") for name in extra), extra


# -- the past itself -----------------------------------------------------------------------------


def interval(count: int) -> tuple[float, float]:
    """Garwood's exact limits of a Poisson mean at 95 %."""
    low = chi2.ppf(0.025, 2 * count) / 2 if count else 0.0
    return low, chi2.ppf(0.975, 2 * count + 2) / 2


def test_intervals_of_twenty_pasts_cover_the_planted_rates() -> None:
    covered = total = 0
    for seed in range(20):
        past = fleet_past.past(list(fleet_past.launches(RUNS, seed)))
        for rate in past.rates:
            low, high = interval(rate.failures)
            covered += low <= rate.rate * rate.gpu_hours <= high
            total += 1
    assert total == 240
    assert 0.90 <= covered / total <= 0.99


def test_races_of_twenty_pasts_come_at_the_planted_chance_and_end_with_the_fix() -> None:
    races = saves = 0
    for seed in range(20):
        fix = fleet_past.past(list(fleet_past.launches(RUNS, seed))).fix
        races, saves = races + fix.k0, saves + fix.saves0
        assert fix.saves1 > 0
        assert fix.k1 == 0
    assert 0.001 < binom.cdf(races, saves, fleet_past.RACE_CHANCE) < 0.999


def test_hours_of_a_run_add_up_and_what_is_unexplained_is_less_than_a_step_a_launch() -> None:
    past = fleet_past.past(list(fleet_past.launches(RUNS, 1)))
    assert len(past.balances) > 20
    for one in past.balances:
        parts = one.productive_h + one.replay_h + one.restart_h + one.queue_h + one.unexplained_h
        assert parts == pytest.approx(one.wall_h)
        assert -1e-6 <= one.unexplained_h <= one.attempts * (fleet_past.STEP_S + 60) / 3600


def test_launches_do_not_share_a_host_at_a_time() -> None:
    busy: dict[str, list[tuple[float, float]]] = {}
    for _, ran in fleet_past.launches(RUNS, 2):
        for one in ran:
            for host in one.hosts:
                busy.setdefault(host, []).append((one.start, one.end))
    for spans in busy.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_scheduler_export_has_a_record_a_launch(planted: Planted) -> None:
    text = (planted.root / "meta" / "sacct.psv").read_text()
    header, body = text.split("\n", 1)
    columns = header.split("|")
    # A job's name may hold a line break: a record ends where the delimiters are complete.
    field = r"([^|]*)" + r"\|"
    records = re.findall(rf"(?:{field * (len(columns) - 1)})([^|\n]*)\n", body)
    rows = [dict(zip(columns, record, strict=True)) for record in records]
    whole = [row for row in rows if "." not in row["JobIDRaw"]]
    assert len(whole) == len(planted.past.launches)
    assert len(rows) > len(whole)
    for row, one in zip(whole, planted.past.launches, strict=True):
        assert (row["JobIDRaw"], row["Cluster"], row["Restarts"]) == (
            one.job,
            one.cluster,
            str(one.attempt),
        )
        assert row["Start"] == fleet_past.iso(one.start)
        assert f"gres/gpu={one.gpus}," in row["AllocTRES"]
    assert sum("\n" in row["JobName"] for row in whole) == 1
