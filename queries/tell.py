"""Tell a diagnosis: as text for a terminal, as JSON, as Markdown for an issue.

Log text is hostile here too: control characters are shown as escapes, a fence is longer than any
in the text, and markup of a terminal or of Markdown is never made from it.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from queries import render
from queries.diagnosis import Beside, Cause, Diagnosis, Moment
from queries.render import shown

if TYPE_CHECKING:
    from rich.console import Console

    from queries.contrast import Contrast

EVIDENCE = 5  # lines before the decisive one that a person is shown; some behind it too
_BEHIND = 2
_MOMENTS = 16  # rows of a timeline
_DIFFERENT = 20  # templates that only the failed run has
_RANKS = 8  # ranks by number; of more, how many
_LABEL = 11  # columns of the labels at the left
_INK = {"high": "red", "medium": "yellow", "low": "cyan"}  # by confidence
_STATES = {"seen": ("+", "green"), "not_seen": ("-", "red"), "unknown": ("?", "dim")}


def json(diagnosis: Diagnosis, contrast: Contrast | None = None) -> str:
    """The JSON object of the contract; a contrast adds the key `against`."""
    plain = diagnosis.as_dict()
    if contrast is not None:
        plain["against"] = contrast.as_dict()
    return render.as_json(plain)


# -- words -------------------------------------------------------------------------------------


def _where(d: Diagnosis) -> str:
    """Which rank and host began it, and how far it went at once."""
    parts = []
    if d.initiating_rank is not None:
        parts.append(f"rank {d.initiating_rank}")
    if d.initiating_host is not None:
        parts.append(f"host {d.initiating_host}")
    if len(d.tied_ranks) > 1:
        others = [rank for rank in d.tied_ranks if rank != d.initiating_rank]
        word = "at once on" if d.initiating_rank is None else "at once also on"
        parts.append(f"{word} {_ranks(others)}")
    if not parts:
        parts.append("rank and host unknown")
    if d.scope != "unknown":
        parts.append(d.scope.replace("_", " "))
    return " · ".join(parts)


def _ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`, or how many where those are too many parts."""
    if not ranks:
        return ""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], rank]
        else:
            runs.append([rank])
    if len(runs) > _RANKS:
        return f"{len(ranks)} ranks from {min(ranks)} to {max(ranks)}"
    return f"rank{'s' * (len(ranks) > 1)} " + ", ".join("-".join(map(str, run)) for run in runs)


def _place(file: str | None, line: int | None) -> str:
    if file is None:
        return "no line"
    return file if line is None else f"{file}:{line}"


def _read(d: Diagnosis) -> str:
    """What was read."""
    c = d.coverage
    world = "" if c.world_size is None else f" of {c.world_size}"
    files = f"{c.files:,} file{'s' * (c.files != 1)}, {c.lines:,} lines"
    one = c.ranks_seen == 1 and not world
    told = f"{files}, {c.ranks_seen}{world} rank{'' if one else 's'} seen"
    return f"{told}; silent: {_ranks(c.silent_ranks)}" if c.silent_ranks else told


def _resume(d: Diagnosis) -> str:
    r = d.resume
    parts = [f"step {r.step}"] if r.step is not None else []
    parts += [r.path] if r.path is not None else []
    return f"{', '.join(parts)}: {r.why}" if parts else r.why


def _headline(d: Diagnosis) -> str:
    if d.root_cause is None:
        return f"no failure · run {d.outcome}"
    return d.root_cause.failure or "failed, cause unknown"


def _followed(d: Diagnosis) -> list[str]:
    return [
        f"{one.failure} ×{one.count:,}" + (f" ({_ranks(one.ranks)})" if one.ranks else "")
        for one in d.collateral
    ]


def _shown_evidence(d: Diagnosis, before: int) -> list[tuple[int, bool, str]]:
    """(line number, whether it decides, text) of the lines that a person is shown."""
    numbers = d.beside.line_numbers
    line = d.root_cause.line if d.root_cause else None
    if line not in numbers:
        return []
    at = numbers.index(line)
    low, high = max(0, at - before), at + 1 + (_BEHIND if before else 0)
    return [
        (numbers[place], place == at, d.evidence[place])
        for place in range(low, min(high, len(numbers)))
    ]


# -- terminal ----------------------------------------------------------------------------------


def text(
    d: Diagnosis,
    contrast: Contrast | None = None,
    *,
    evidence: int = EVIDENCE,
    width: int | None = None,
    color: bool | None = None,
) -> str:
    """What broke, where, why and what to do; then the proof, its rivals, the checks, the timeline.

    `evidence` is how many lines before the decisive one are shown. `width` and `color` are by
    default those of stdout: 80 columns and plain where it is no terminal.
    """
    from rich.console import Console

    if width is None:
        width = shutil.get_terminal_size((80, 24)).columns
    if color is None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        color = sys.stdout.isatty() and not plain
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(width, 40),
        force_terminal=color,
        color_system="standard" if color else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    page = _Page(console)
    page.head(d)
    if d.root_cause is not None:
        page.answer(d, d.root_cause)
        page.proof(d, evidence)
    page.end(d, contrast)
    lines = (line.rstrip() for line in out.getvalue().splitlines())
    return "\n".join(lines) + "\n"


class _Page:
    """Writes the parts of the text, one below the other, to a console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def head(self, d: Diagnosis) -> None:
        cause = d.root_cause
        style = "bold green" if cause is None else "bold red"
        parts = [(_headline(d), style)]
        if cause is not None:
            parts += [(f"  {cause.confidence} confidence", _INK[cause.confidence])]
            if cause.severity:
                parts += [(f" · {cause.severity}", "")]
        self._put(parts)
        if cause is not None and cause.title:
            self._put([(cause.title, "bold")])

    def answer(self, d: Diagnosis, cause: Cause) -> None:
        at = f" · {cause.ts.isoformat(' ', 'milliseconds')} UTC" if cause.ts else ""
        self._row("where", [_where(d), f"{_place(cause.file, cause.line)}{at}"])
        self._row("line", [cause.text or ""], "bold")
        self._row("why", [cause.why, d.mechanism])
        self._row("do", [f"{n}. {one}" for n, one in enumerate(d.fix, 1)])
        self._row("verify", [d.verify])
        self._row("resume", [_resume(d)])
        run = "" if d.beside.run is None else f"run {d.beside.run}"
        run += "" if d.beside.attempt is None else f", attempt {d.beside.attempt}"
        self._row("outcome", [f"{run}: {d.outcome}" if run else d.outcome])
        self._row("followed", ["; ".join(_followed(d))])

    def proof(self, d: Diagnosis, evidence: int) -> None:
        from rich.text import Text

        lines = _shown_evidence(d, evidence)
        if len(lines) > 1:
            self._title(f"Evidence, {d.root_cause.file if d.root_cause else ''}")
            digits = len(str(lines[-1][0]))
            for number, decides, line in lines:
                row = Text(
                    f"{'>' if decides else ' '} {number:>{digits}}  ", "red" if decides else "dim"
                )
                row.append(shown(line), "bold" if decides else "")
                row.truncate(self._console.width, overflow="ellipsis")  # whole it stands above
                self._console.print(row)
        if d.hypotheses:
            self._title("Or else")
            for h in d.hypotheses:
                self._row(
                    f"{h.score:.2f}", [f"{h.failure}  {_place(h.file, h.line)}", h.separate_by]
                )
        if d.confirm:
            self._title("Confirm (+ seen, - not seen, ? not known from these logs)")
            for check in d.confirm:
                mark, style = _STATES[check.state]
                place = f"  {_place(check.file, check.line)}" if check.file else ""
                self._row(mark, [f"{check.check}{place}"], indent=2, label_style=style)
        if len(d.beside.timeline) > 1:
            self._title("Timeline: the first of each rank, host and role; seconds from the cause")
            for moment in d.beside.timeline[:_MOMENTS]:
                self._moment(moment)
            if (rest := len(d.beside.timeline) - _MOMENTS) > 0:
                self._put([(f"{rest} more", "dim")])

    def end(self, d: Diagnosis, contrast: Contrast | None) -> None:
        if contrast is not None:
            self._contrast(contrast)
        self._console.print()
        self._row("read", [_read(d)])
        self._row("note", list(d.beside.notes))

    def _contrast(self, contrast: Contrast) -> None:
        self._title("Only here, not in the healthy run")
        for one in contrast.only_here[:_DIFFERENT]:
            self._row(f"{one.count:,}×", [f"{one.template}  {_place(one.file, one.line)}"])
        if (rest := len(contrast.only_here) - _DIFFERENT) > 0:
            self._put([(f"{rest} more: --format json", "dim")])
        if not contrast.only_here:
            self._put([("nothing", "dim")])
        self._title("Only in the healthy run: milestones that are missing here")
        for one in contrast.missing:
            self._row(f"{one.count:,}×", [one.template])
        if not contrast.missing:
            self._put([("nothing", "dim")])

    def _moment(self, moment: Moment) -> None:
        when = "" if moment.seconds is None else f"{moment.seconds:+.1f} s"
        who = " ".join(filter(None, (moment.host or "", _ranks(moment.ranks)))) or "no rank"
        self._row(when, [f"{who}  {moment.failure} ({moment.role})  {moment.file}:{moment.line}"])

    def _title(self, title: str) -> None:
        self._console.print()
        self._put([(title, "bold")])

    def _row(
        self,
        label: str,
        items: Sequence[str],
        style: str = "",
        *,
        indent: int = _LABEL,
        label_style: str = "dim",
    ) -> None:
        """A label, and beside it each item from a line of its own on."""
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        present = [item for item in items if item]
        if not present:
            return
        grid = Table.grid(padding=(0, 0, 0, 0))
        grid.add_column(width=indent, no_wrap=True)
        grid.add_column(overflow="fold")
        for number, item in enumerate(present):
            grid.add_row(
                Text("" if number else label, label_style),
                Text(shown(item), style, overflow="fold"),
            )
        self._console.print(Padding(grid, 0))

    def _put(self, parts: Iterable[tuple[str, str]]) -> None:
        from rich.text import Text

        self._console.print(Text.assemble(*((shown(part), style) for part, style in parts)))


# -- Markdown ----------------------------------------------------------------------------------


def markdown(d: Diagnosis, contrast: Contrast | None = None, *, evidence: int = 20) -> str:
    """A diagnosis to paste into an issue."""
    cause = d.root_cause
    lines = [f"## {_md(_headline(d))}", ""]
    if cause is not None:
        lines += [*_facts(d, cause), ""]
        quoted = _shown_evidence(d, evidence)
        if quoted:
            body = "\n".join(
                f"{'>' if decides else ' '} {number}  {shown(line)}"
                for number, decides, line in quoted
            )
            lines += [f"### Evidence, {_code(cause.file or '')}", "", _fence(body), ""]
        elif cause.text:
            lines += ["### Evidence", "", _fence(shown(cause.text)), ""]
        for title, items in (
            ("Why it happens", [d.mechanism]),
            ("Fix", d.fix),
            ("Prevention", [d.prevention]),
        ):
            lines += _section(title, items)
        if d.verify:
            lines += ["### Verify", "", _fence(shown(d.verify)), ""]
        if d.confirm:
            marks = {"seen": "x", "not_seen": " ", "unknown": " "}
            lines += ["### Confirm", ""]
            lines += [
                f"- [{marks[one.state]}] {_md(one.check)}: {one.state.replace('_', ' ')}"
                + (f", {_code(_place(one.file, one.line))}" if one.file else "")
                for one in d.confirm
            ]
            lines.append("")
        if d.hypotheses:
            lines += [
                "### Or else",
                "",
                "| score | failure | line | tell apart by |",
                "| ---: | --- | --- | --- |",
            ]
            lines += [
                f"| {one.score:.2f} | {_md(one.failure)} | {_code(_place(one.file, one.line))} "
                f"| {_md(one.separate_by)} |"
                for one in d.hypotheses
            ]
            lines.append("")
        lines += _section("What followed", _followed(d))
        lines += ["### Resume from", "", _md(_resume(d)), ""]
    if contrast is not None:
        for title, some in (
            ("Only here, not in the healthy run", contrast.only_here),
            ("Only in the healthy run", contrast.missing),
        ):
            body = "\n".join(f"{one.count:>8,}  {shown(one.template)}" for one in some)
            lines += [f"### {title}", "", _fence(body or "nothing"), ""]
    lines += [f"Read: {_md(_read(d))}.", *(f"\n{_md(note)}." for note in d.beside.notes)]
    return "\n".join(lines) + "\n"


def _facts(d: Diagnosis, cause: Cause) -> list[str]:
    rows = [
        ("what", _md(cause.title or "no line names a cause")),
        ("where", _md(_where(d))),
        ("line", _code(_place(cause.file, cause.line))),
        ("when", _md(f"{cause.ts.isoformat(' ', 'milliseconds')} UTC") if cause.ts else ""),
        ("why", _md(cause.why)),
        ("confidence", cause.confidence),
        ("severity", cause.severity or ""),
        ("run", _code(_of_run(d.beside)) if d.beside.run else ""),
        ("outcome", d.outcome),
    ]
    return ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows if value)]


def _of_run(beside: Beside) -> str:
    return f"{beside.run}" + ("" if beside.attempt is None else f", attempt {beside.attempt}")


def _section(title: str, items: Iterable[str]) -> list[str]:
    present = [item for item in items if item]
    if not present:
        return []
    listed = [f"- {_md(item)}" for item in present] if len(present) > 1 else [_md(present[0])]
    return [f"### {title}", "", *listed, ""]


def _md(words: str) -> str:
    """Words that are no markup, no mention and no reference of an issue tracker."""
    return re.sub(r"([_#!@])", r"\\\1", render.in_markdown(words)).replace("\\@", "@\u200b")


def _code(words: str) -> str:
    """The words as code that ends where it should, in a table too."""
    words = shown(words).replace("|", "\u2758")
    ticks = "`" * (max(map(len, re.findall("`+", words)), default=0) + 1)
    pad = " " if "`" in words else ""
    return f"{ticks}{pad}{words}{pad}{ticks}"


def _fence(body: str) -> str:
    """A block of code with a fence that the body does not have."""
    ticks = "`" * max(3, max(map(len, re.findall("`+", body)), default=0) + 1)
    return f"{ticks}text\n{body}\n{ticks}"
