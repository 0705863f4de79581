"""The documents say what the code does: generated parts, names, links and command lines."""

from __future__ import annotations

import dataclasses
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ingest import pipeline, schema
from ingest.cli import app
from matcher import catalogue
from matcher.check import check
from queries import report
from tests import docs
from tests.support import ROOT

TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in docs.DOCUMENTS}
BEGIN = re.compile(r"<!-- begin generated: ([\w-]+) -->")
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def written(name: str) -> str:
    """A document without its generated parts."""
    return docs.PART.sub("", TEXTS[name])


def blocks(language: str) -> list[str]:
    """Each fenced block of that language that somebody wrote."""
    found = [block for name in TEXTS for block in FENCED.findall(written(name))]
    return [text for of, text in found if of == language]


def command_lines() -> list[str]:
    """Every `firstfault ...` that a reader could type, without pipes and comments."""
    spans = [re.findall(r"`([^`]+)`", FENCED.sub("", written(name))) for name in TEXTS]
    lines = [" ".join(span.split()) for found in spans for span in found]
    for block in blocks("sh"):
        lines += re.findall(r'^(?:[^"\n]|"[^"]*")+', block, re.MULTILINE)  # a query has several
    pieces = [piece.strip() for line in lines for piece in re.split(r"[|;&#]", line)]
    commands = [piece.removeprefix(".venv/bin/") for piece in pieces]
    return sorted({line for line in commands if line.startswith("firstfault ")})


# -- generated parts -----------------------------------------------------------------------------


@pytest.mark.parametrize("part", docs.PARTS)
def test_generated_part_is_up_to_date(part: str) -> None:
    (body,) = [
        match["body"]
        for text in TEXTS.values()
        for match in docs.PART.finditer(text)
        if match["name"] == part
    ]
    assert docs.renewed(part, body) == body, "run `make docs`"


def test_every_marker_is_closed_and_names_a_part() -> None:
    begun = sorted(name for text in TEXTS.values() for name in BEGIN.findall(text))
    closed = sorted(m["name"] for text in TEXTS.values() for m in docs.PART.finditer(text))
    assert begun == closed == sorted(docs.PARTS)


def test_stale_part_is_named_then_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "PARTS", {"a": lambda: "new", "b": lambda: "in 2.0 s (9 GB/s)"})
    timed = "<!-- begin generated: b -->\n\nin 1.0 s (5 GB/s)\n\n<!-- end generated: b -->\n"
    page = tmp_path / "page.md"
    page.write_text(f"x\n<!-- begin generated: a -->\nold\n<!-- end generated: a -->\n{timed}")
    assert docs.main([], [page]) == 1
    assert docs.main(["--write"], [page]) == 0
    assert docs.main([], [page]) == 0
    assert page.read_text() == (
        f"x\n<!-- begin generated: a -->\n\nnew\n\n<!-- end generated: a -->\n{timed}"
    )
    assert capsys.readouterr().out == "page.md: a: stale: run `make docs`\npage.md: a: written\n"


# -- names ---------------------------------------------------------------------------------------


def test_every_command_and_option_is_documented() -> None:
    page = TEXTS["docs/cli.md"]
    sections = dict(re.findall(r"^## firstfault ([\w ]+)$(.*?)(?=^## |\Z)", page, re.S | re.M))
    assert sorted(sections) == sorted(command.name for command in docs.commands())
    for command in docs.commands():
        for parameter in command.command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                for name in parameter.opts:
                    assert re.search(rf"(?<![\w-]){name}(?![\w-])", sections[command.name]), name


def test_every_report_parameter_and_column_is_documented() -> None:
    page = TEXTS["docs/reports.md"]
    sections = dict(re.findall(r"^## ([\w-]+)$(.*?)(?=^## |\Z)", page, re.S | re.M))
    assert sorted(sections) == report.names()
    common = page.partition("\n## ")[0]
    for name, section in sections.items():
        one = report.load(name)
        assert f"(docs/reports.md#{name})" in TEXTS["README.md"]
        assert [p for p in one.parameters if f"| `{p}` |" not in section + common] == []
        assert [c for c in one.columns if f"| `{c}` |" not in section] == []


def test_every_table_view_and_column_is_documented() -> None:
    page = TEXTS["docs/data.md"]
    sections = dict(re.findall(r"^### (\w+)$(.*?)(?=^##|\Z)", page, re.S | re.M))
    assert sorted(sections) == sorted([*(table.name for table in schema.TABLES), *docs.VIEWS])
    missing = [
        row["column"]
        for row in schema.dictionary()
        if f"| `{row['column']}` | {row['type']} | {row['description']}"
        not in sections[row["table"]].replace("\\|", "|")
    ]
    assert missing == []


def test_every_failure_is_listed() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", TEXTS["docs/failures.md"], re.MULTILINE)
    assert sorted(rows) == sorted(catalogue.load().by_id)


def test_every_key_and_role_of_the_catalogue_is_explained() -> None:
    page = written("docs/catalogue.md")
    keys = {
        field.name
        for kind in (catalogue.Failure, catalogue.Signature)
        for field in dataclasses.fields(kind)
    } - {"source", "failure", "signatures", "signs", "variants"}
    rows = {key for row in re.findall(r"^\| (.*?) \|", page, re.M) for key in row.split(", ")}
    assert {f"`{key}`" for key in keys} - rows == set()
    assert [role for role in catalogue.ROLES if f"\n- `{role}`: " not in page] == []


def test_every_target_of_make_that_is_named_exists() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name for text in TEXTS.values() for name in re.findall(r"(?:`|^)make (\w+)", text, re.M)
    }
    assert named <= targets
    assert {"demo", "test"} <= named


def test_files_and_names_of_the_code_exist() -> None:
    text = "\n".join(map(written, TEXTS))
    paths = set(re.findall(r"`((?:benchmarks|docs|ingest|matcher|queries|tests)/[a-z_./]+)`", text))
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    for name, path in re.findall(r"`(\w+)` in\s`([\w/]+\.py)`", text):
        assert re.search(rf"^{name}\b", (ROOT / path).read_text(), re.MULTILINE), (
            f"{name} in {path}"
        )


# -- links and examples --------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", TEXTS[name])):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text()), target


@pytest.mark.parametrize("name", TEXTS)
def test_lines_are_short_and_plain(name: str) -> None:
    lines = [line for line in written(name).splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > 100] == []
    assert re.findall("[\U0001f300-\U0001faff\u2600-\u27bf—]", written(name)) == []


@pytest.mark.parametrize("line", command_lines())
def test_command_line_parses(line: str) -> None:
    words = shlex.split(line)[1:]
    command = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    if hasattr(command, "commands"):
        assert words[0] in [name for parameter in command.params for name in parameter.opts]
    elif words:  # without any it is a name in a sentence
        command.make_context("firstfault", words)


def questions() -> list[str]:
    """The command lines that an empty database or the catalogue answers at once."""
    asked = re.compile(r"firstfault (?:report|failures list|failures show|schema|sql) (?![A-Z]+$)")
    return [line for line in command_lines() if asked.match(line)]


@pytest.mark.parametrize("line", questions())
def test_question_gets_an_answer(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FIRSTFAULT_DB", raising=False)
    (own,) = [text for text in blocks("sql") if text.startswith("-- title")]
    for name in ("hosts.sql", "mine.sql"):
        Path(name).write_text(own)
    done = CliRunner().invoke(app, shlex.split(line)[1:])
    assert (done.exit_code, done.exception) == (0, None), done.output


@pytest.mark.parametrize("query", blocks("sql"))
def test_sql_of_the_documents_runs(query: str, tmp_path: Path) -> None:
    if query.startswith("-- title"):
        (tmp_path / "own.sql").write_text(query)
        report.check(report.load(tmp_path / "own.sql"), schema.ddl())
    else:
        with report.connect(None, schema.ddl()) as connection:
            assert report.query(connection, query).table.num_rows == 0


@pytest.mark.parametrize("text", blocks("toml"))
def test_toml_of_the_documents_is_sound(text: str, tmp_path: Path) -> None:
    document = tomllib.loads(text)
    if "clusters" in document:
        (tmp_path / pipeline.CONFIG_NAME).write_text(text)
        assert pipeline.plan([str(tmp_path)], workers=1).zones.keys() == document["clusters"].keys()
        return
    if "edge" in document:
        (tmp_path / "tables").mkdir()
        (tmp_path / "tables" / "precedence.toml").write_text(text)
        text = next(text for text in blocks("toml") if "[[failure]]" in text)
    (tmp_path / "own.toml").write_text(text)
    both = catalogue.load(catalogue.BUILT_IN, tmp_path)
    assert check(catalogue.Catalogue(both.failures[-1:])) == []
    assert "edge" not in document or both.precedence[-1].cause == document["edge"][0]["cause"]
