"""The command that tells whether a fix is proved."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli import app
from queries import report, verify
from tests.database import Event, at, database, run
from tests.test_report_regression import CHANGE, RACE, fleet

KNOWN = {RACE: RACE, "race-exists": RACE, "checkpoint-begin": "checkpoint-begin"}


def check(k1: int, e1: int, k0: int = 12, e0: int = 300, **given: Any) -> verify.Check:
    files = [*fleet("old", 0, e0, k0), *(fleet("new", CHANGE, e1, k1) if e1 else ())]
    given = {"change": at(CHANGE).isoformat(), "known": KNOWN} | given  # type: ignore[union-attr]
    con = database(*files, tables={"failures": [{"failure": RACE, "category": "checkpoint"}]})
    return verify.check(con, RACE, **given)


@pytest.mark.parametrize(
    ("k1", "e1", "verdict", "sentence"),
    [
        (0, 40, "not_enough_exposure",
         "not proved: 34.9 more lines that begin a checkpoint without it would do (89.8 to be "
         "safe); it would have shown in 40 with a chance of 80 %"),
        (0, 100, "gone",
         "gone: unchanged, it would be as rare with probability 0.032; before looking "
         "again and again wait for 29.8 more lines that begin a checkpoint"),
        (0, 200, "gone",
         "gone: unchanged, it would be as rare with probability 0.0022"),
        (2, 300, "reduced", "reduced to 0.17 of what it was, at most 0.52, but not gone"),
        (9, 250, "still_present", "still present: 9 since the change, which is no clear decrease"),
    ],
)  # fmt: skip
def test_a_sentence_says_what_is_still_needed(
    k1: int, e1: int, verdict: str, sentence: str
) -> None:
    found = check(k1, e1)
    assert (found.verdict, found.sentence) == (verdict, sentence)


@pytest.mark.parametrize(
    ("k0", "e0", "e1", "given", "sentence"),
    [
        (0, 300, 40, {},
         "it never occurred before the change, so that its absence proves nothing"),
        (0, 300, 40, {"change": "torch > 2"},
         "no attempt states that version: ingest logs that do, or give a time"),
        (3, 300, 0, {"trigger": "race-exists"},
         "no lines of race-exists in these logs: there is nothing to judge by"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_says_why(
    k0: int, e0: int, e1: int, given: dict[str, str], sentence: str
) -> None:
    assert check(0, e1, k0, e0, **given).sentence == sentence


def test_the_text_has_verdict_sentence_and_numbers() -> None:
    found = check(2, 300)
    assert found.text() == (
        f"{RACE}: reduced\n"
        "  reduced to 0.17 of what it was, at most 0.52, but not gone\n"
        "  before  12 in 300 lines that begin a checkpoint\n"
        "  after   2 in 300 lines that begin a checkpoint\n"
        "  p 0.00647, ratio 0.167, at most 0.525, chance to have seen it 1\n"
    )


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (" deepspeed >= 0.18.0 ", "deepspeed >= 0.18.0"),
        ("framework_version<2.1rc1", "framework_version<2.1rc1"),
        ("2026-03-01", "2026-03-01 00:00:00"),
        ("2026-03-01T12:00+01:00", "2026-03-01 11:00:00"),
        ("2026-03-01T12:00:00Z", "2026-03-01 12:00:00"),
    ],
)
def test_a_change_is_a_time_or_a_comparison(text: str, parsed: str) -> None:
    assert verify.parse_change(text) == parsed


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "1=1", "deepspeed >= 0.18.0; DROP TABLE events", "deepspeed like '0.18'",
     "deepspeed >= '0.18' OR true", "deepspeed >=", ">= 0.18", "a b >= 1", "deepspeed => 1"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(report.ArgumentError) as caught:
        verify.parse_change(text)
    assert str(caught.value) == (
        f"--change is {text!r}: give a time as 2026-01-31T12:00, or NAME OPERATOR VERSION as in "
        "'deepspeed >= 0.18.0'"
    )


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    con = database(*fleet("old", 0, 300, 12), *fleet("new", CHANGE, 40, 0))
    [(path,)] = con.execute(
        "SELECT path FROM duckdb_databases() WHERE database_name = current_database()"
    ).fetchall()
    con.execute("CHECKPOINT")
    con.close()
    return Path(shutil.copy(path, tmp_path_factory.mktemp("db") / "fleet.duckdb"))


def ask(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["verify", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_prints_the_verdict_and_exits_with_0(db: Path) -> None:
    change = at(CHANGE).isoformat()  # type: ignore[union-attr]
    code, out, _ = ask(RACE, "--change", change, "--db", str(db))
    assert (code, out.splitlines()[0]) == (0, f"{RACE}: not_enough_exposure")
    code, out, _ = ask(RACE, "--change", change, "--db", str(db), "--json")
    found = json.loads(out)
    assert (code, found["verdict"], found["k0"], found["e1"]) == (0, "not_enough_exposure", 12, 40)
    assert found["p"] == pytest.approx(0.2226938, rel=1e-6)
    assert found["sentence"].startswith("not proved: 34.9 more")


def test_what_makes_no_sense_is_usage(db: Path, tmp_path: Path) -> None:
    change = at(CHANGE).isoformat()  # type: ignore[union-attr]
    code, out, err = ask("nvme-offload-checkpoint-rice", "--change", change, "--db", str(db))
    assert (code, out) == (2, "")
    assert err == (
        "error: no failure or signature 'nvme-offload-checkpoint-rice' (did you mean "
        f"{RACE!r}?): `firstfault failures list` names them\n"
    )
    assert ask(RACE, "--change", "soon", "--db", str(db))[0] == 2
    assert ask(RACE, "--change", change, "--trigger", "saves", "--db", str(db))[0] == 2
    assert ask(RACE, "--db", str(db))[0] == 2


def test_an_empty_database_has_nothing_to_judge_by(tmp_path: Path) -> None:
    code, out, _ = ask(RACE, "--change", "deepspeed >= 0.18.0", "--db", str(tmp_path / "no.db"))
    assert code == 0
    assert out.splitlines()[:2] == [
        f"{RACE}: not_enough_exposure",
        "  no attempts in these logs: there is nothing to judge by",
    ]
    assert not (tmp_path / "no.db").exists()


def test_a_signature_is_counted_alone() -> None:
    con = database(
        run("a/log", Event("x", t=1, signature="x-one"), Event("x", t=999, signature="x-two")),
        run("b/log", Event("x", t=CHANGE + 1, signature="x-two")),
    )
    for name, counts in (("x", (1, 1)), ("x-one", (1, 0)), ("x-two", (1, 1))):
        found = verify.check(con, name, at(CHANGE).isoformat(), known={})  # type: ignore[union-attr]
        assert (found.numbers["k0"], found.numbers["k1"]) == counts
