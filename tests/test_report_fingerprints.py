"""Whether a warning announces a failure: worked example, planted alarms, severity words."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ingest import pipeline, schema
from ingest.store import Store
from queries import report
from tests.database import EPOCH, Event, File, ask, database, run
from tests.support import shared

BGL = Path(__file__).parent / "data" / "bgl_catalogue"

INFO = {"role": "progress", "severity": "info"}
WARN = {"role": "context", "severity": "medium"}
ERROR = {"role": "cause", "severity": "high"}
KINDS = {"info": INFO, "warn": WARN, "err": ERROR}

# `r12_runs.csv` of the worked examples.
RUNS = {
    "r1": "info@0 warn@50 err@80",
    "r2": "info@0 warn@40 err@400",
    "r3": "info@0 warn@10",
    "r4": "info@0 err@30",
    "r5": "info@0",
    "r6": "info@0 warn@20 err@35",
    "r7": "info@0",
    "r8": "info@0",
}


def log(name: str, sequence: str, **keys: Any) -> File:
    """The log of a run from words `name@seconds`; a name is a kind or `kind-anything`."""
    pairs = [word.split("@") for word in sequence.split()]
    events = [Event(what, t=float(t), **KINDS[what.split("-")[0]]) for what, t in pairs]
    return run(f"{name}/log", *events, **keys)


def fleet(sequences: dict[str, str], **tables: Any) -> duckdb.DuckDBPyConnection:
    return database(*(log(name, text) for name, text in sequences.items()), tables=tables)


def row_of(rows: list[dict[str, Any]], pattern: str, window: float) -> dict[str, Any]:
    [row] = [r for r in rows if (r["pattern"], r["window_s"]) == (pattern, window)]
    return row


# -- worked example ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "hits", "limits", "lead", "lift", "fisher"),
    [
        (300, 2, (0.150039, 0.849961), 22.5, 1.0, 0.7571429),
        (600, 3, (0.3006418, 0.9544127), 30.0, 1.5, 0.2428571),
    ],
)
def test_the_worked_example_is_reproduced(
    window: int, hits: int, limits: tuple[float, float], lead: float, lift: float, fisher: float
) -> None:
    found = ask(fleet(RUNS), "fingerprints", pattern="info,warn,err", window_s=str(window))
    row = found[0]
    assert (row["pattern"], row["origin"], row["window_s"]) == ("info,warn,err", "given", window)
    assert (row["n_units"], row["fired"], row["hits"], row["ended"]) == (8, 4, hits, 4)
    assert (row["precision"], row["recall"], row["base_rate"]) == (hits / 4, hits / 4, 0.5)
    assert (row["lo"], row["hi"]) == pytest.approx(limits, rel=1e-6)
    assert (row["false_alarms"], row["false_alarms_per_unit"]) == (4 - hits, (4 - hits) / 8)
    assert (row["lead_p50_s"], row["lift"]) == (lead, lift)
    assert row["fisher_p"] == pytest.approx(fisher, rel=1e-6)
    assert (row["verdict"], row["q"]) == ("too_rare", None)


def test_each_window_is_swept_and_the_one_asked_for_comes_first() -> None:
    found = ask(fleet(RUNS), "fingerprints", pattern="info, WARN ,err", window_s="300")
    assert [(r["window_s"], r["hits"]) for r in found] == [
        (300.0, 2), (75.0, 2), (150.0, 2), (600.0, 3), (1200.0, 3),
    ]  # fmt: skip
    [row] = ask(fleet(RUNS), "fingerprints", pattern="info,warn,err", window_s="0")
    assert (row["window_s"], row["fired"], row["hits"], row["precision"]) == (0.0, 0, 0, None)


# -- matching ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sequence", "fired", "hits", "lead"),
    [
        ("warn@0 warn@500 err@520", 1, 1, 20.0),  # a later warning is the one in time
        ("warn@0 warn@10 err@40", 1, 1, 40.0),  # of several in time the first rings
        ("err@0 warn@10", 1, 0, None),
        ("warn@0 err@100 err@101", 1, 1, 100.0),
        ("warn@0 err@101", 1, 0, None),
        ("warn@7 err@7", 1, 1, 0.0),  # the same time, the next line
        ("err@7 warn@7", 1, 0, None),
    ],
)
def test_the_next_one_in_time_and_line_order_answers(
    sequence: str, fired: int, hits: int, lead: float | None
) -> None:
    row = ask(fleet({"r": sequence}), "fingerprints", pattern="warn,err", window_s="100")[0]
    assert (row["fired"], row["hits"], row["lead_p50_s"]) == (fired, hits, lead)


@pytest.mark.parametrize(
    ("sequence", "fired", "hits"),
    [
        ("info@0 warn@100 err@200", 1, 1),
        ("info@0 warn@101 err@110", 0, 0),  # a gap inside the alarm is too wide
        ("info@0 warn@50 info@60 err@70", 1, 1),  # others in between are skipped
        ("warn@0 info@10 err@20", 0, 0),
        ("info@0 warn@10 warn@90 err@150", 1, 0),  # the next warning is the first, not any
        ("info@0 info@20 warn@110 err@115", 1, 1),
        ("info@0 warn@10 info@500 warn@510 err@600", 1, 1),
    ],
)
def test_each_gap_of_three_must_be_in_the_window(sequence: str, fired: int, hits: int) -> None:
    row = ask(fleet({"r": sequence}), "fingerprints", pattern="info,warn,err", window_s="100")[0]
    assert (row["fired"], row["hits"]) == (fired, hits)


def test_two_signatures_on_one_line_announce_nothing() -> None:
    log = run("r/log", Event("warn", t=5, line=9, **WARN), Event("err", t=5, line=9, **ERROR))
    row = ask(database(log), "fingerprints", pattern="warn,err")[0]
    assert (row["fired"], row["hits"]) == (1, 0)


def test_two_signatures_on_one_line_are_no_alarm_of_two() -> None:
    log = run("r/log", Event("info", t=5, line=9, **INFO), Event("warn", t=5, line=9, **WARN))
    row = ask(database(log), "fingerprints", pattern="info,warn,err")[0]
    assert row["fired"] == 0


def test_the_first_gap_of_a_long_alarm_counts_too() -> None:
    con = fleet({"r": "info@0 warn-a@150 warn-b@160 err@170"})
    found = ask(con, "fingerprints", pattern="info,warn-a,warn-b,err", window_s="100")
    assert [(r["window_s"], r["fired"], r["hits"]) for r in found[:1]] == [(100.0, 0, 0)]
    assert row_of(found, "info,warn-a,warn-b,err", 200)["hits"] == 1


def test_the_time_that_a_line_hung_counts_from_its_begin() -> None:
    late = Event("err", t=700, lag=600, **ERROR)
    row = ask(database(run("r/log", Event("warn", t=40, **WARN), late)), "fingerprints",
              pattern="warn,err", window_s="100")[0]  # fmt: skip
    assert (row["hits"], row["lead_p50_s"]) == (1, 60.0)


def test_longer_patterns_and_words_for_kinds_match_too() -> None:
    sequence = "info-a@0 warn-b@10 warn-c@20 err-d@30 err-e@40"
    con = fleet({"r": sequence, "s": "info-a@0"})
    for pattern in ("info-a,warn-b,warn-c,err-d,err-e", "progress,context,context,cause,cause"):
        row = ask(con, "fingerprints", pattern=pattern)[0]
        assert (row["pattern"], row["fired"], row["hits"], row["lead_p50_s"]) == (pattern, 1, 1, 10)


def test_a_pattern_of_one_or_of_unknown_words_rings_nowhere() -> None:
    assert ask(fleet(RUNS), "fingerprints", pattern="warn") == []
    row = ask(fleet(RUNS), "fingerprints", pattern="gone,err")[0]
    assert (row["n_units"], row["fired"], row["precision"], row["verdict"]) == (
        8, 0, None, "too_rare",
    )  # fmt: skip


def test_units_without_a_time_are_left_out_and_told() -> None:
    con = database(log("r", "warn@0 err@9"), run("s/log", Event("warn", **WARN)))
    result = report.run(con, report.load("fingerprints"), {"pattern": "warn,err"})
    assert result.table.to_pylist()[0]["n_units"] == 1
    assert result.notes == ("left out: 1 of 2 attempts, which have no time",)


def test_a_host_is_a_unit_of_its_own() -> None:
    events = [
        Event("warn", t=0, host="n1", **WARN),
        Event("err", t=9, host="n2", **ERROR),
        Event("warn", t=5, host="n3", **WARN),
        Event("err", t=8, host="n3", **ERROR),
    ]
    con = database(run("r/log", *events))
    row = ask(con, "fingerprints", pattern="warn,err", unit="host")[0]
    assert (row["n_units"], row["fired"], row["hits"], row["ended"]) == (3, 2, 1, 2)
    assert ask(con, "fingerprints", pattern="warn,err")[0]["n_units"] == 1


# -- exposure and verdicts ---------------------------------------------------------------------


def planted(share: float = 1.0, lead: int = 600, runs: int = 60) -> dict[str, str]:
    """A third of the runs warn and, in this share of them, fail; as many others are healthy."""
    found = {}
    for n in range(runs):
        begun = "info-start@0"
        if n % 3:
            found[f"r{n:02}"] = f"{begun} info-step@4000"
        elif n < share * runs:
            found[f"r{n:02}"] = f"{begun} warn-space@{100 + n} err-full@{100 + n + lead}"
        else:
            found[f"r{n:02}"] = f"{begun} warn-space@{100 + n}"
    return found


def test_a_good_alarm_is_found_without_being_named() -> None:
    found = ask(fleet(planted()), "fingerprints")
    row = found[0]
    assert (row["pattern"], row["origin"], row["verdict"]) == (
        "warn-space,err-full", "mined", "alert",
    )  # fmt: skip
    assert (row["fired"], row["hits"], row["precision"], row["recall"]) == (20, 20, 1.0, 1.0)
    assert row["lead_p50_s"] == 600.0
    assert row["q"] < 1e-10
    assert {r["pattern"] for r in found} == {"warn-space,err-full"}
    too_short = row_of(found, "warn-space,err-full", 450.0)
    assert (too_short["hits"], too_short["verdict"]) == (0, "not_distinguishable")


def test_an_alarm_that_comes_with_the_failure_is_too_late() -> None:
    assert ask(fleet(planted(lead=30)), "fingerprints")[0]["verdict"] == "too_late"
    assert ask(fleet(planted(lead=30)), "fingerprints", min_lead_s="30")[0]["verdict"] == "alert"


def test_an_alarm_that_rings_in_every_run_announces_nothing() -> None:
    runs = {f"r{n}": "warn@0" + (" err@100" if n % 3 == 0 else "") for n in range(60)}
    row = ask(fleet(runs), "fingerprints")[0]
    assert (row["fired"], row["lift"], row["verdict"]) == (60, 1.0, "not_distinguishable")


def test_a_weak_alarm_is_none_however_many_runs_there_are() -> None:
    runs = {f"a{n:03}": "warn@0" + (" err@100" if n < 60 else "") for n in range(100)}
    runs |= {f"b{n:03}": "info@0" + (" err@100" if n < 30 else "") for n in range(100)}
    row = ask(fleet(runs), "fingerprints")[0]
    assert row["q"] < 1e-4
    assert (row["precision"], row["verdict"]) == (0.6, "not_distinguishable")


def test_a_known_cause_and_its_effect_are_tried_too() -> None:
    runs = {f"r{n}": "err-a@0 err-b@900" if n < 12 else "info@0" for n in range(40)}
    edge = {"cause": "err-a", "effect": "err-b", "scope": "same-run", "basis": "log"}
    assert ask(fleet(runs), "fingerprints") == []
    found = ask(fleet(runs, precedence=[edge]), "fingerprints")
    assert {(r["pattern"], r["origin"]) for r in found} == {("err-a,err-b", "edge")}
    assert found[0]["verdict"] == "alert"


def test_two_in_a_row_are_tried_where_they_say_more_than_the_second() -> None:
    """Twelve runs warn twice and fail; twelve others warn by the second warning alone."""
    runs = {f"a{n:02}": "warn-x@0 warn-y@300 err@900" for n in range(12)}
    runs |= {f"b{n:02}": "warn-y@300" for n in range(12)}
    runs |= {f"c{n:02}": "info@0" for n in range(40)}
    found = ask(fleet(runs), "fingerprints", window_s="700")
    triple = row_of(found, "warn-x,warn-y,err", 700)
    assert (triple["fired"], triple["hits"], triple["precision"]) == (12, 12, 1.0)
    alone = row_of(found, "warn-y,err", 700)
    assert (alone["fired"], alone["hits"], alone["precision"]) == (24, 12, 0.5)
    assert "warn-y,warn-x,err" not in {r["pattern"] for r in found}


def test_patterns_are_chosen_on_one_period_and_judged_on_the_next() -> None:
    """Before the day the warning announces the failure, after it no longer."""
    day = 86400
    early = {f"a{n:02}": "warn@0 err@600" if n < 12 else "info@0" for n in range(40)}
    late = {f"b{n:02}": f"warn@{day}" if n < 12 else f"info@{day}" for n in range(40)}
    late |= {f"d{n:02}": f"err@{day + n}" for n in range(6)}
    con = fleet(early | late)
    given = {"judge_from": datetime(2026, 3, 1, 12).isoformat()}
    result = report.run(con, report.load("fingerprints"), given)
    row = result.table.to_pylist()[0]
    assert (row["pattern"], row["n_units"], row["fired"], row["hits"]) == ("warn,err", 46, 12, 0)
    assert row["verdict"] == "not_distinguishable"
    assert result.notes == ()
    same = report.run(con, report.load("fingerprints"), {})
    assert "chosen on the runs that judge them" in same.notes[0]


def test_false_alarms_have_the_gpu_hours_of_all_units() -> None:
    con = database(
        *(log(name, text) for name, text in planted(share=0.5).items()),
        tables={"jobs": [
            {"cluster": "c", "job": f"r{n:02}", "gpus": 8, "source": "sacct", "state": "COMPLETED",
             "start_ts": EPOCH, "end_ts": datetime(2026, 3, 1, 10)}
            for n in range(60)]},
    )  # fmt: skip
    result = report.run(con, report.load("fingerprints"), {})
    row = result.table.to_pylist()[0]
    assert (row["false_alarms"], row["gpu_hours"], row["exposure_source"]) == (10, 4800.0, "sacct")
    assert row["false_alarms_per_kgpuh"] == pytest.approx(10 / 4.8)
    assert result.notes[0] == "gpu-hours come from: sacct 60 of 60"


def test_filters_keep_units_and_the_failure_that_is_announced() -> None:
    con = database(log("a", "warn@0 err@9", cluster="one"), log("b", "warn@0", cluster="two"))
    given = {"pattern": "warn,err"}
    assert ask(con, "fingerprints", cluster="two", **given)[0]["n_units"] == 1
    assert ask(con, "fingerprints", job="a", **given)[0]["hits"] == 1
    assert ask(con, "fingerprints", since="2026-03-02", **given) == []
    assert ask(con, "fingerprints", failure="err", **given) != []
    assert ask(con, "fingerprints", failure="warn", **given) == []


# -- real severity words -----------------------------------------------------------------------

SEVERITY = """
[[failure]]
id = "severity-fatal"
title = "FATAL"
component = "bgl"
category = "hardware"
severity = "medium"
mechanism = "The machine's own word for the line."
confirm = ["look at the line"]
fix = ["none"]

  [[failure.signature]]
  id = "severity-fatal"
  role = "context"
  pattern = 'RAS [A-Z]+ FATAL '
  match = ["RAS KERNEL FATAL data"]
  no_match = ["RAS KERNEL INFO data"]
"""


def test_fatal_alone_is_right_in_two_of_five_lines(tmp_path: Path) -> None:
    """BGL_2k: 347 FATAL lines, 143 alerts, all of them FATAL: 41.2 %, recall 100 %."""
    source = shared("data", "loghub", "BGL_2k.log")
    words = tmp_path / "words"
    words.mkdir()
    (words / "severity.toml").write_text(SEVERITY)
    with Store(tmp_path / "db", report.views()) as store:
        plan = pipeline.plan([str(source)], workers=1, catalogues=[BGL, words], every_match=True)
        pipeline.ingest(store, plan)
    with report.connect(tmp_path / "db", schema.ddl()) as con:
        [row] = ask(con, "fingerprints", pattern="severity-fatal,cause", unit="line", window_s="0")
    assert (row["n_units"], row["fired"], row["hits"], row["ended"]) == (2000, 347, 143, 143)
    assert (round(row["precision"], 3), row["recall"], row["base_rate"]) == (0.412, 1.0, 0.0715)
    assert round(row["false_alarms"] / row["fired"], 3) == 0.588
    assert row["verdict"] == "too_late"
