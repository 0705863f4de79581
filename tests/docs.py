"""Write the generated parts of README.md and docs/ from the code that they describe.

`python -m tests.docs` names the parts that are stale and exits 1; with `--write` it brings them up
to date. A part stands between `<!-- begin generated: NAME -->` and `<!-- end generated: NAME -->`.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import shlex
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_type_hints
from unittest import mock

import typer
from typer.testing import CliRunner

from benchmarks import curves, record
from ingest import files, schema
from ingest.cli import app
from matcher import catalogue
from queries import report
from tests.support import ROOT

DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
)
PART = re.compile(
    r"(?<=<!-- begin generated: )(?P<name>[\w-]+) -->\n"
    r"(?P<body>.*?)(?=<!-- end generated: (?P=name) -->)",
    re.DOTALL,
)
# How long it took is the machine's: it makes no part stale.
_TIMES = re.compile(r"in [\d.]+ s \([^)]*\)")


# -- commands ----------------------------------------------------------------------------------


class Command(NamedTuple):
    """A command as it is typed (`failures show`) and what Typer made of its function."""

    name: str
    command: Any


def commands() -> list[Command]:
    """All commands, those of groups behind their group."""
    found: list[Command] = []
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {})
        found += [Command(f"{name} {sub}", one) for sub, one in below.items()]
        if not below:
            found.append(Command(name, command))
    return found


def _help(command: Command) -> str:
    """The command's help at 100 columns, plain: what Typer draws changes with its version."""
    hints = get_type_hints(inspect.unwrap(command.command.callback))
    rows: list[tuple[str, str]] = []
    usage = f"firstfault {command.name} [OPTIONS]"
    for parameter in command.command.params:
        if parameter.name == "help":
            continue
        value, many = _value(hints[parameter.name])
        if parameter.param_type_name == "argument":
            word = (parameter.metavar or parameter.name.removesuffix("_").upper()) + "..." * many
            usage += f" {word}" if parameter.required else f" [{word}]"
            rows.append((word, parameter.help))
        else:
            names = ", ".join(sorted(parameter.opts, key=len))
            rows.append((f"{names} {value}".rstrip(), f"{parameter.help} {_default(parameter)}"))
    return f"{usage}\n\n{_columns(rows)}".rstrip()


def _columns(rows: Sequence[tuple[str, str]]) -> str:
    """Names and what they mean side by side, 100 columns wide."""
    width = min(36, max((len(name) for name, _ in rows), default=0)) + 2
    lines: list[str] = []
    for name, text in rows:
        if len(name) >= width:
            lines.append(name)
            name = ""
        folded = textwrap.wrap(text, 100 - width)
        lines += [
            f"{left:<{width}}{line}" for left, line in zip_longest([name], folded, fillvalue="")
        ]
    return "\n".join(lines)


def _value(hint: Any) -> tuple[str, bool]:
    """(what an option of this type takes, whether several)."""
    if isinstance(hint, UnionType):
        hint = next(one for one in get_args(hint) if one is not type(None))
    many = getattr(hint, "__origin__", None) is list
    kind = get_args(hint)[0] if many else hint
    if issubclass(kind, Enum):
        return "|".join(str(one.value) for one in kind), many
    return {Path: "PATH", int: "N", float: "X", str: "TEXT", bool: ""}[kind], many


def _default(parameter: Any) -> str:
    default = parameter.default
    if isinstance(parameter.show_default, str):
        default = parameter.show_default
    notes = [f"env {parameter.envvar}"] if parameter.envvar else []
    if default not in (None, False):
        notes.append(f"default {default.value if isinstance(default, Enum) else default}")
    return f"[{'; '.join(notes)}]" if notes else ""


def _command_list() -> str:
    rows = [(f"firstfault {c.name}", _first_sentence(c.command.help)) for c in commands()]
    return _block(_columns(rows))


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


def _command_pages() -> str:
    return "\n\n".join(
        f"## firstfault {one.name}\n\n{_paragraph(one.command.help)}\n\n{_block(_help(one))}"
        for one in commands()
    )


# -- reports and tables ------------------------------------------------------------------------


def _report_list() -> str:
    return _table(
        ("report", "answers"),
        (
            (f"[{one.name}](docs/reports.md#{one.name})", _first_sentence(_prose(one.description)))
            for one in report.all_reports()
        ),
    )


def _common_parameters() -> str:
    return _parameter_table(report.COMMON.values())


def _report_pages() -> str:
    pages = []
    for one in report.all_reports():
        own = [p for name, p in one.parameters.items() if name not in report.COMMON]
        columns = _table(("column", ""), ((f"`{c}`", text) for c, text in one.columns.items()))
        parts = [f"## {one.name}", _paragraph(one.description)]
        if own:
            parts.append(_parameter_table(own))
        pages.append("\n\n".join([*parts, columns]))
    return "\n\n".join(pages)


def _parameter_table(parameters: Iterable[report.Parameter]) -> str:
    return _table(
        ("parameter", "takes", "default", ""),
        (
            (
                f"`{p.name}`",
                ", ".join(p.choices) or p.type.lower(),
                "" if p.default is None else str(p.default).lower(),
                p.description,
            )
            for p in parameters
        ),
    )


def _dictionary() -> str:
    rows = schema.dictionary()
    return "\n\n".join(
        f"### {table.name}\n\n{table.description} Key: {', '.join(table.key)}.\n\n"
        + _table(
            ("column", "type", ""),
            (
                (f"`{row['column']}`", row["type"], row["description"])
                for row in rows
                if row["table"] == table.name
            ),
        )
        for table in schema.TABLES
    )


VIEWS: Mapping[str, str] = {
    "attempts": "One row an attempt, healthy ones too: its span, its size and how it ended. "
    "`state_source` says who says so.",
    "incidents": "One row an incident, with the window of the report's default.",
    "checkpoints": "One row a save: begun, complete, incomplete_ranks, failed, corrupt, or "
    "unverified.",
    "iterations": "Steps as the logs print them; with `--metrics off` only a part of them.",
    "rank_timings": "The speed of single ranks: imported, or as the logs tell it.",
    "storage_obs": "Free space of file systems as the logs print it.",
    "offload_settings": "What an attempt says of the states that ZeRO keeps on NVMe.",
}


def _views() -> str:
    sections = []
    with report.connect(None, schema.ddl()) as connection:
        for name, text in VIEWS.items():
            described = connection.execute(f"DESCRIBE {name}").fetchall()
            table = _table(("column", "type"), ((f"`{row[0]}`", row[1]) for row in described))
            sections.append(f"### {name}\n\n{_paragraph(text)}\n\n{table}")
    return "\n\n".join(sections)


# -- the catalogue -----------------------------------------------------------------------------


def _failure_index() -> str:
    components: dict[str, list[catalogue.Failure]] = {}
    known = catalogue.load()
    for failure in known.failures:
        components.setdefault(failure.component, []).append(failure)
    counts = f"{len(known.failures)} failures, {len(known.signatures)} signatures."
    sections = [
        f"## {component}\n\n"
        + _table(
            ("id", "title", "severity"),
            ((f"`{f.id}`", f.title, f.severity) for f in components[component]),
        )
        for component in sorted(components)
    ]
    return "\n\n".join([counts, *sections])


def _closed_lists() -> str:
    return _table(
        ("key", "one of"),
        (
            ("`role`", ", ".join(catalogue.ROLES)),
            ("`severity`", ", ".join(catalogue.SEVERITIES)),
            ("`category`", ", ".join(catalogue.CATEGORIES)),
            ("`phases`", ", ".join(catalogue.LIFECYCLE)),
            ("`stream`", ", ".join(catalogue.STREAMS)),
            ("`scope` of an edge", ", ".join(catalogue.SCOPES)),
            ("`basis` of an edge", ", ".join(catalogue.BASES)),
            ("`control`", ", ".join(catalogue.CONTROLS)),
        ),
    )


# -- layouts -----------------------------------------------------------------------------------

_BY_RULES = """
    prod/48231/gpu-a007/rank_3.log
    prod/48231/attempt_1/gpu-a007/rank_3.log.gz
    cluster=prod/job=7/attempt=1/host=n1/rank=3.log
    48231/rank_3.log
    48231/attempt_0/3/stderr.log
    prod/48231/slurm-48231.out
    logs/slurm-48231.out
    logs/slurm-48231_4.out
    logs/pretrain-48231-n07.out
    ml_trainer-worker-0_0123abcd-0123-4567-89ab-0123456789ab/train/1.log
    hosts/gpu-a007/dmesg.zst
    messages-gpu-a007
    archive.tar.gz!prod/48231/gpu-a007/rank_3.log
    someday.log
""".split()
_BY_LAYOUT = (
    ("{cluster}/{job}/{host}/rank_{rank}.log", "prod/48231/gpu-a007/rank_3.log.gz"),
    ("{cluster}/{job}/{host}/rank_{rank}.log", "prod/48231.tar!gpu-a007/rank_3.log"),
    ("{_}/{job}/try{attempt}/*.{rank}", "2026/llm-70b/try2/out.17"),
    ("**/{job}.log", "a/b/c/llm-70b.log"),
)
_LABELS = ("cluster", "job", "attempt", "host", "rank", "run")


def _label_rows(rules: files.Rules, path: str) -> Iterator[str]:
    outer, bang, member = path.partition("!")
    source = files.Source(outer, outer, None, None, rules)
    labels = files.log_file(source, member if bang else None).labels
    for name in _LABELS:
        value = getattr(labels, name)
        yield "" if value is None else f"`{value}`"


def _layout_rules() -> str:
    return _table(
        ("path", *_LABELS), ((f"`{path}`", *_label_rows(files.Rules(), path)) for path in _BY_RULES)
    )


def _layout_patterns() -> str:
    return _table(
        ("--layout", "path", *_LABELS),
        (
            (f"`{layout}`", f"`{path}`", *_label_rows(files.Rules(layout=layout), path))
            for layout, path in _BY_LAYOUT
        ),
    )


# -- a session ---------------------------------------------------------------------------------

# Each command, and how many lines of what it prints are shown.
SESSION: tuple[tuple[str, int], ...] = (
    ("firstfault generate fleet --bytes 4000000 --runs 88", 1),
    ("firstfault ingest fleet", 2),
    ("firstfault report coverage", 13),
    ("firstfault report first-failure", 12),
    (
        'firstfault sql "SELECT v.line_no, v.text\n'
        "    FROM evidence AS v JOIN events AS e USING (event_id)\n"
        "    WHERE e.job = '{job}' AND e.failure = 'disk-full'\n"
        '        AND v.line_no > e.line_no - 3 ORDER BY ALL"',
        10,
    ),
    ("firstfault report co-occurrence -p limit=4", 13),
)


def _session() -> str:
    """What the commands print, one after the other, in an empty directory at 80 columns."""
    shown = []
    job = ""
    with tempfile.TemporaryDirectory() as directory, _terminal(80), contextlib.chdir(directory):
        for template, limit in SESSION:
            command = template.replace("{job}", job)
            done = CliRunner().invoke(app, shlex.split(command)[1:])
            if done.exit_code:
                raise RuntimeError(
                    f"{command}: exit {done.exit_code}: {done.output}"
                ) from done.exception
            job = job or _job_that_failed(Path("fleet/truth.json"), "disk-full")
            lines = [line.rstrip() for line in done.output.rstrip().splitlines()]
            cut = ["[...]"] if len(lines) > limit else []
            shown.append("\n".join([f"$ {command}", *lines[:limit], *cut]))
    return _block("\n\n".join(shown), "console")


def _job_that_failed(truth: Path, failure: str) -> str:
    """The first job with a log a rank in which this failure was planted."""
    runs = json.loads(truth.read_text())["runs"]
    return str(min(r["job"] for r in runs if (r["failure"], r["layout"]) == (failure, "ranks")))


@contextlib.contextmanager
def _terminal(columns: int) -> Iterator[None]:
    """A terminal without colours, and without the user's database."""
    with mock.patch.dict(os.environ, {"COLUMNS": str(columns), "TERM": "dumb", "NO_COLOR": "1"}):
        os.environ.pop("FIRSTFAULT_DB", None)
        yield


# -- benchmarks --------------------------------------------------------------------------------

_NONE = "Nothing is recorded yet."


def _bars() -> str:
    rows = record.latest("bars.csv", "bar")
    head = ("what must hold", "MB", "measured", "lowest", "highest", "threshold", "held", "record")
    bounds = [">= " + r["at_least"] if r["at_least"] else "<= " + r["at_most"] for r in rows]
    cells = (
        (r["bar"], _mb(r), r["median"], r["min"], r["max"], bound, r["held"], _link(r))
        for r, bound in zip(rows, bounds, strict=True)
    )
    return _table(head, cells) if rows else _NONE


def _figures() -> str:
    rows = record.latest("figures.csv", "name")
    head = ("benchmark", "MB", "hits/KiB", "median, ms", "GB/s", "/ limit", "/ unpack", "record")
    cells = (
        (
            r["name"],
            _mb(r),
            r["hits_per_kib"],
            f"{float(r['median_s']) * 1e3:,.1f}" if r["median_s"] else "",
            r["gb_s"],
            r.get("over_limit", ""),
            r.get("over_unpack", ""),
            _link(r),
        )
        for r in rows
    )
    return _table(head, cells) if rows else _NONE


def _mb(row: Mapping[str, str]) -> str:
    return f"{int(row['bytes']) / 1e6:,.1f}" if row.get("bytes") else ""


def _link(row: Mapping[str, str]) -> str:
    name = row["record"]
    return f"[{name[:10]}{name[-2:] if name[-2] == '-' else ''}](record/{name}/machine.toml)"


def _curves() -> str:
    places = {row["curve"]: row["record"] for row in record.latest("scaling.csv", "curve")}
    pictures = [
        f"![{one.title}](record/{places[one.name]}/{one.name}.svg)"
        for one in curves.load()
        if one.name in places and (record.RECORD / places[one.name] / f"{one.name}.svg").exists()
    ]
    return "\n\n".join(pictures) or _NONE


# -- Markdown ----------------------------------------------------------------------------------


def _block(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


def _prose(text: str) -> str:
    return " ".join(text.split())


def _paragraph(text: str) -> str:
    return textwrap.fill(_prose(text), 99, break_on_hyphens=False)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


# -- parts -------------------------------------------------------------------------------------

PARTS: Mapping[str, Callable[[], str]] = {
    "session": _session,
    "commands": _command_list,
    "reports": _report_list,
    "command-pages": _command_pages,
    "common-parameters": _common_parameters,
    "report-pages": _report_pages,
    "dictionary": _dictionary,
    "views": _views,
    "failures": _failure_index,
    "closed-lists": _closed_lists,
    "layout-rules": _layout_rules,
    "layout-patterns": _layout_patterns,
    "benchmark-bars": _bars,
    "benchmark-figures": _figures,
    "benchmark-curves": _curves,
}


def renewed(name: str, body: str) -> str:
    """What stands between the markers of a part as it should be; `body` itself if that will do."""
    if name not in PARTS:
        raise KeyError(f"no generated part '{name}': there are {', '.join(PARTS)}")
    wanted = f"\n{PARTS[name]()}\n\n"
    return body if _TIMES.sub("", body) == _TIMES.sub("", wanted) else wanted


def filled(text: str) -> tuple[str, list[str]]:
    """A document with its generated parts as they should be, and the names of the stale ones."""
    stale: list[str] = []

    def part(match: re.Match[str]) -> str:
        body = renewed(match["name"], match["body"])
        if body != match["body"]:
            stale.append(match["name"])
        return f"{match['name']} -->\n{body}"

    return PART.sub(part, text), stale


def main(arguments: Sequence[str], documents: Sequence[Path] = DOCUMENTS) -> int:
    """Name the stale parts of the documents, or write them; the exit code."""
    write = "--write" in arguments
    found = False
    for document in documents:
        text, stale = filled(document.read_text())
        if stale and write:
            document.write_text(text)
        for name in stale:
            print(f"{document.name}: {name}: {'written' if write else 'stale: run `make docs`'}")
        found = found or bool(stale)
    return int(found and not write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
