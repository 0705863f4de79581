"""Reading the catalogue on the command line: lists, pages, comparisons."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli import app
from matcher import catalogue as catalogues
from matcher.catalogue import Edge, Failure
from queries import encyclopedia
from queries.encyclopedia import Book
from queries.report import ReportError
from tests.support import signature

HOSTILE = "\x1b[2J<b>x</b> | `a` [l](javascript:1)\u202e\n# y"

DISK = Failure(
    id="disk-full",
    title="A file system is full",
    component="os",
    category="storage",
    severity="critical",
    tags=("enospc", "nvme"),
    phases=("offload", "checkpoint-save"),
    mechanism="Every block is taken.",
    affected=("ext4",),
    confirm=("df", "df -i"),
    fix=("delete", "resize"),
    verify="df -h PATH",
    prevention="Watch it.",
    related=("save-cut",),
    references=("https://example.org/28",),
    signatures=(
        replace(signature("full-frame", "frame", role="context"), match=("in write()",)),
        replace(
            signature("enospc", "Errno 28", why="errno 28"),
            match=("OSError: [Errno 28]", "second"),
            stream=("kernel", "stdout"),
            since="3.1",
        ),
    ),
)
CUT = Failure(
    id="save-cut",
    title="A save was cut short",
    component="torch",
    category="checkpoint",
    severity="high",
    tags=("nvme",),
    phases=("checkpoint-save",),
    mechanism="m",
    confirm=("ls",),
    fix=("resume",),
    related=("disk-full",),
    signatures=(signature("cut", "cut", role="collateral"),),
)
SILENT = replace(CUT, id="no-phase", title="t", phases=(), tags=(), component="os", related=())
BOOK = Book(
    {entry.id: entry for entry in (DISK, CUT, SILENT)},
    (
        Edge("disk-full", "save-cut", "same-run", 0, 600, "log"),
        Edge("no-phase", "disk-full", "next-attempt", 60, 86400, "inference"),
        Edge("save-cut", "disk-full", "same-host", -3600, 90, "source"),
    ),
    catalogues.LIFECYCLE,
)

PAGE = """\
A file system is full
disk-full

severity   critical
category   storage
component  os
when       offload, checkpoint save
tags       enospc, nvme

What it is
  It can start the trouble.
  OSError: [Errno 28]

Confirm
  - df
  - df -i

Fix
  1. delete
  2. resize

Verify
  df -h PATH

Why it happens
  Every block is taken.

What logs show
  - full-frame (context)
    in write()
  - enospc (cause)
    errno 28
    since 3.1, counts from kernel or stdout only
    OSError: [Errno 28]

Affected
  - ext4

Prevention
  Watch it.

Leads to
  - save-cut
    A save was cut short
    in the same run, within 10 min (seen in logs)

Follows from
  - no-phase
    t
    in the next attempt, 1 min to 1 d later (inferred)
  - save-cut
    A save was cut short
    on the same host, from 1 h before to 1.5 min after (known from the source)

Related
  - save-cut
    A save was cut short

References
  - https://example.org/28
"""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["failures", *arguments])


# -- the page ------------------------------------------------------------------------------------


def test_page_begins_with_what_the_person_on_call_needs() -> None:
    assert encyclopedia.page(BOOK, DISK, "text", color=False) == PAGE


def test_page_in_a_terminal_is_wrapped_and_coloured() -> None:
    entry = replace(DISK, mechanism="word " * 40)
    shown = encyclopedia.page(BOOK, entry, "text", width=60, color=True)
    lines = encyclopedia.page(BOOK, entry, "text", width=60, color=False).splitlines()
    assert "severity   \x1b[1;31mcritical\x1b[0m\n" in shown
    assert "\x1b[1menospc\x1b[0m (\x1b[31mcause\x1b[0m)" in shown
    assert max(map(len, lines)) <= 60
    begin = lines.index("Why it happens")
    assert [len(line.split()) for line in lines[begin + 1 : begin + 5]] == [11, 11, 11, 7]
    assert all(line.startswith("  word") for line in lines[begin + 1 : begin + 5])


def test_page_as_markdown_holds_the_same_parts() -> None:
    made = encyclopedia.page(BOOK, DISK, "markdown")
    heads = [line for line in PAGE.splitlines()[8:] if line and not line.startswith(" ")]
    assert [line[3:] for line in made.splitlines() if line.startswith("## ")] == heads
    assert "1. delete\n2. resize\n" in made
    assert (
        "- `enospc` (cause): errno 28 (since 3.1, counts from kernel or stdout only)\n\n"
        "  ```text\n  OSError: \\[Errno 28\\]\n  ```\n"
    ).replace("\\", "") in made
    assert "- `save-cut`: A save was cut short (in the same run, within 10 min" in made


def test_page_as_json_holds_the_entry_and_its_neighbours_in_time() -> None:
    [made] = json.loads(encyclopedia.page(BOOK, DISK, "json"))
    assert (made["leads_to"], made["follows_from"]) == (["save-cut"], ["no-phase", "save-cut"])
    assert made["phases"] == ["offload", "checkpoint-save"]
    assert made["signatures"][1] == {
        "id": "enospc",
        "failure": "f-enospc",
        "role": "cause",
        "pattern": "Errno 28",
        "match": ["OSError: [Errno 28]", "second"],
        "no_match": ["n"],
        "why": "errno 28",
        "stream": ["kernel", "stdout"],
        "since": "3.1",
    }


@pytest.mark.parametrize("format_", ["text", "markdown"])
def test_hostile_text_of_a_catalogue_is_shown_as_text(format_: str) -> None:
    entry = replace(
        DISK,
        title=HOSTILE,
        mechanism=HOSTILE,
        fix=(HOSTILE,),
        signatures=(replace(signature("s", "p", why=HOSTILE), match=(HOSTILE + "````",)),),
    )
    for made in (
        encyclopedia.page(BOOK, entry, format_, color=False),
        encyclopedia.compare(BOOK, [entry], format_, color=False),
    ):
        assert "\x1b" not in made
        assert "\u202e" not in made
        assert not any(line.strip() == "# y" for line in made.splitlines())
        if format_ == "markdown":
            prose = re.sub(r"^ *(`{3,})text\n.*?^ *\1$", "", made, flags=re.DOTALL | re.MULTILINE)
            assert "<b>" not in prose
            assert "[l](" not in prose


@pytest.mark.parametrize(
    ("roles", "text"),
    [
        (("context", "cause"), "It can start the trouble."),
        (("collateral", "context"), "It follows from another failure: look for that one first."),
        (("progress",), "It marks progress and is no failure."),
    ],
)
def test_strongest_role_says_what_a_failure_is(roles: tuple[str, ...], text: str) -> None:
    signatures = tuple(signature(f"s{n}", "p", role=role) for n, role in enumerate(roles))
    assert encyclopedia.nature(replace(DISK, signatures=signatures)) == text


# -- finding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["disk-full", "Disk Full", "enospc", "full-frame", " ENOSPC "])
def test_entry_is_found_by_id_signature_and_own_tag(word: str) -> None:
    assert encyclopedia.find(BOOK, word) is DISK


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("disk-ful", "no failure 'disk-ful': did you mean 'disk-full'?"),
        ("full", "no failure 'full': did you mean 'disk-full'?"),
        ("qqqq", "no failure 'qqqq': see `firstfault failures list`"),
        ("nvme", "'nvme' is a tag: see `firstfault failures list --tag nvme`"),
        ("torch", "'torch' is a component: see `firstfault failures list --component torch`"),
        ("storage", "'storage' is a category: see `firstfault failures list --category storage`"),
        ("\x1b[2J", "no failure '\\x1b[2J': see `firstfault failures list`"),
    ],
)
def test_unknown_word_suggests_what_is_near(word: str, message: str) -> None:
    with pytest.raises(ReportError) as error:
        encyclopedia.find(BOOK, word)
    assert str(error.value) == message


def test_filters_take_any_of_their_words_and_all_hold_together() -> None:
    chosen = {
        "all": encyclopedia.choose(BOOK, component=(), tag=()),
        "nvme": encyclopedia.choose(BOOK, tag=["nvme"]),
        "either": encyclopedia.choose(BOOK, severity=["critical", "high"], component=["os"]),
        "save": encyclopedia.choose(BOOK, phase=["checkpoint-save"], category=["checkpoint"]),
        "none": encyclopedia.choose(BOOK, component=["torch"], category=["storage"]),
    }
    assert {name: [entry.id for entry in found] for name, found in chosen.items()} == {
        "all": ["disk-full", "save-cut", "no-phase"],
        "nvme": ["disk-full", "save-cut"],
        "either": ["disk-full", "no-phase"],
        "save": ["save-cut"],
        "none": [],
    }


@pytest.mark.parametrize(
    ("option", "word", "said"),
    [
        ("--component", "deepsped", "no failure has the component 'deepsped': did you mean"),
        ("--category", "stroage", "did you mean 'storage'"),
        ("--severity", "worst", "one of critical, high, info, low, medium"),
        ("--tag", "nvm", "did you mean 'nvme'"),
        ("--phase", "saving", "no failure has the phase 'saving': "),
    ],
)
def test_unknown_word_of_a_filter_is_a_usage_error(option: str, word: str, said: str) -> None:
    done = run("list", option, word)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_list_has_a_line_an_entry_and_wraps_titles_in_a_terminal() -> None:
    assert encyclopedia.list_text([DISK, CUT], color=False) == (
        "disk-full  critical  A file system is full\nsave-cut   high      A save was cut short\n"
    )
    long = replace(DISK, title="one two three four five six seven eight")
    assert encyclopedia.list_text([long], width=48, color=False) == (
        "disk-full  critical  one two three four five six\n                     seven eight\n"
    )


def test_commands_answer_and_json_is_a_list() -> None:
    listed = run("list", "--component", "deepspeed", "--severity", "critical")
    assert listed.stdout.split()[:2] == ["nvme-offload-checkpoint-race", "critical"]
    [exported] = json.loads(run("list", "--tag", "xid-79", "--json").stdout)
    assert exported["id"] == "gpu-fallen-off-bus"
    assert json.loads(run("show", "xid-79", "--json").stdout) == [exported]
    assert run("show", "os-enospc").stdout.startswith("A file system is full (ENOSPC)\ndisk-full\n")
    assert run("show", "os-enospc", "--format", "markdown").stdout.startswith("# A file system")
    assert run("show", "disk-ful").exit_code == 2
    empty = run("list", "--component", "deepspeed", "--category", "tracking")
    assert (empty.exit_code, empty.stdout) == (0, "")


def test_shell_completes_the_words_of_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_FIRSTFAULT_COMPLETE", "complete_bash")
    for typed, wanted in {
        "failures list --severity c": ["critical"],
        "failures list --component deep": ["deepspeed"],
        "failures compare --component slu": ["slurm"],
        "failures list --phase checkpoint-": ["checkpoint-load", "checkpoint-save"],
        "failures list --tag xid-7": ["xid-74", "xid-79"],
        "failures list --category st": ["storage", "straggler"],
    }.items():
        monkeypatch.setenv("COMP_WORDS", f"firstfault {typed}")
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
        done = CliRunner().invoke(app, [], prog_name="firstfault")
        assert done.output.split() == wanted


# -- side by side --------------------------------------------------------------------------------

SIDE_BY_SIDE = """\
── offload ─────────────────────────────────────────────────────────────────────
disk-full
critical · storage
A file system is full
OSError: [Errno 28]
confirm: df
fix: delete
verify: df -h PATH

── checkpoint save ─────────────────────────────────────────────────────────────
save-cut
high · checkpoint
A save was cut short
m
confirm: ls
fix: resume
also: disk-full

── phase not said ──────────────────────────────────────────────────────────────
no-phase
high · checkpoint
t
m
confirm: ls
fix: resume
"""


def test_comparison_follows_the_phases_of_a_run() -> None:
    entries = [CUT, SILENT, DISK]
    assert encyclopedia.compare(BOOK, entries, "text", width=80, color=False) == SIDE_BY_SIDE
    made = json.loads(encyclopedia.compare(BOOK, entries, "json"))
    assert [(g["phase"], [f["id"] for f in g["failures"]], g["also"]) for g in made] == [
        ("offload", ["disk-full"], []),
        ("checkpoint-save", ["save-cut"], ["disk-full"]),
        (None, ["no-phase"], []),
    ]
    assert encyclopedia.compare(BOOK, [CUT], "markdown") == (
        "## checkpoint save\n\n"
        "| failure | severity | title | a line | confirm | fix | verify |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| `save-cut` | high | A save was cut short | m | ls | resume |  |\n"
    )


def test_entries_of_one_phase_stand_side_by_side() -> None:
    other = replace(CUT, id="other", title="Another save was cut short")
    made = encyclopedia.compare(BOOK, [CUT, other], "text", width=80, color=False).splitlines()
    assert made[1:4] == [
        f"{'save-cut':<41}other",
        f"{'high · checkpoint':<41}high · checkpoint",
        f"{'A save was cut short':<41}Another save was cut short",
    ]
    narrow = encyclopedia.compare(BOOK, [CUT, other], "text", width=50, color=False).splitlines()
    assert (narrow[1], narrow[8]) == ("save-cut", "other")


def test_compare_takes_ids_signatures_or_a_component() -> None:
    by_component = run("compare", "--component", "deepspeed").stdout
    assert "── checkpoint save " in by_component
    assert "nvme-offload-checkpoint-race" in by_component
    twice = json.loads(run("compare", "os-enospc", "disk-full", "host-oom", "--json").stdout)
    ids = [entry["id"] for group in twice for entry in group["failures"]]
    assert sorted(ids) == ["disk-full", "host-oom"]
    none = run("compare")
    assert (none.exit_code, none.stderr) == (
        2,
        "error: nothing to compare: give ids, or --component NAME\n",
    )


def test_every_built_in_entry_says_when_it_shows_itself() -> None:
    phases = {entry.id: entry.phases for entry in catalogues.load().failures}
    assert [id_ for id_, said in phases.items() if not said] == []
    assert [id_ for id_, said in phases.items() if "any" in said and len(said) > 1] == []
    order = catalogues.LIFECYCLE.index
    assert [id_ for id_, said in phases.items() if list(said) != sorted(said, key=order)] == []
    assert set(catalogues.LIFECYCLE) == {phase for said in phases.values() for phase in said}
