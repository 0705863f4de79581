"""docs/import.md: its example is run, its lists are complete."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.cli import Kind, app
from ingest.imports import mapping
from tests.support import ROOT

PAGE = (ROOT / "docs" / "import.md").read_text()


def block(language: str, start: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return next(text for text in found if text.startswith(start))


def test_example_does_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(block("text", "table ="))
    Path("jobs.csv").write_text(block("csv", "id,"))
    run = CliRunner().invoke
    first, second = block("sh", "firstfault import jobs.csv").splitlines()
    done = run(app, first.split()[1:])
    assert (done.exit_code, "2 rows of jobs from csv" in done.stderr) == (0, True)
    asked = run(app, ["sql", second.split('"')[1], "--format", "json"])
    assert [list(row.values()) for row in json.loads(asked.stdout)] == [
        ["1", 8, 5400.0, "2026-07-01T00:00:00Z", ["n1", "n2", "n3"], "COMPLETED"],
        ["2", 16, 300.0, "2026-07-01T02:00:00Z", ["n4"], "FAILED"],
    ]


def test_lists_of_kinds_keys_and_mappings_are_complete() -> None:
    kinds, keys = (
        re.findall(r"^\| `([\w-]+)` ", PAGE.split(start)[1].split("\n\n")[0], re.MULTILINE)
        for start in ("| what | made by", "| key | meaning |")
    )
    assert set(kinds) == {kind.value for kind in Kind}
    assert set(keys) == {one.name for one in fields(mapping.Rule)} - {"origin"} | {"from"}
    shipped = PAGE.split("Shipped, to be given by name: ")[1].split(".\n")[0]
    assert re.findall(r"`([\w-]+)`", shipped) == mapping.names()
