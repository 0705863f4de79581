"""docs/add-a-failure.md, followed to the letter: what it writes, what the checker answers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.cli import app
from tests.support import ROOT

PAGE = ROOT / "docs" / "add-a-failure.md"
BLOCK = re.compile(r"^```(ini|diff|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def mended(text: str, diff: str) -> str:
    """The text with the removed lines of a diff replaced by those that follow them."""
    place = None
    lines = text.splitlines()
    for change in diff.splitlines():
        mark, line = change[0], change[1:]
        if mark == "-":
            assert lines.count(line) == 1, line
            place = lines.index(line)
            lines.pop(place)
        else:
            assert mark == "+"
            assert place is not None
            lines.insert(place, line)
            place += 1
    return "\n".join(lines) + "\n"


def test_the_checker_teaches_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    entry = Path("my-failures/shardd.toml")
    entry.parent.mkdir()
    codes = []
    for kind, text in BLOCK.findall(PAGE.read_text()):
        if kind == "ini":
            entry.write_text(text)
        elif kind == "diff":
            entry.write_text(mended(entry.read_text(), text))
        else:
            command, _, said = text.partition("\n")
            done = CliRunner().invoke(app, shlex.split(command.removeprefix("$ "))[1:])
            assert done.output == said
            codes.append(done.exit_code)
    assert codes == [1, 1, 1, 1, 0]
    both = ["failures", "check", "--catalogue", "my-failures"]
    assert CliRunner().invoke(app, both).exit_code == 0


def test_a_built_in_id_that_is_not_there_points_to_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = re.sub("^(?=component)", 'related = ["disk-full"]\n', entry_of_the_page(), flags=re.M)
    (tmp_path / "own.toml").write_text(text)
    alone = CliRunner().invoke(app, ["failures", "check", str(tmp_path)])
    assert (alone.exit_code, alone.output) == (
        1,
        "own.toml: shard-server-gone: related names 'disk-full', which does not exist\n"
        "  help: it is built in: check both together, "
        "`firstfault failures check --catalogue DIR`\n",
    )


def entry_of_the_page() -> str:
    blocks = BLOCK.findall(PAGE.read_text())
    text = next(text for kind, text in blocks if kind == "ini")
    for kind, diff in blocks:
        text = mended(text, diff) if kind == "diff" else text
    return str(text)


def test_a_directory_is_checked_alone_or_with_the_built_in_one(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["failures", "check", str(tmp_path), "--catalogue", str(tmp_path)]
    )
    assert (done.exit_code, done.output) == (
        2,
        "error: DIR is checked alone, --catalogue with the built-in one: give one of them\n",
    )
