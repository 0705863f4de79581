"""Show entries of the catalogue: lists, pages for the person on call, comparisons by phase.

An entry is anything with the attributes of `matcher.catalogue.Failure`; this module knows neither
files nor patterns. Users write catalogues, so their text is as hostile as that of logs.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from queries.render import SGR, in_markdown, painted, shown, side_by_side, wrapped
from queries.report import ReportError

if TYPE_CHECKING:
    import duckdb

Entry: TypeAlias = Any

FILTERS = ("component", "category", "severity", "tag", "phase")
FORMATS = ("text", "markdown", "json")

ROLES = {  # how a role is coloured
    "cause": "high",
    "confirmation": "high",
    "collateral": "medium",
    "context": "low",
    "progress": "calm",
    "teardown": "calm",
}
_NATURES = (  # of the strongest role among its signatures
    ("cause", "It can start the trouble."),
    ("confirmation", "It proves what another line only lets one guess."),
    ("collateral", "It follows from another failure: look for that one first."),
    ("context", "It is a warning or a fact, not the reason why a run ends."),
    ("teardown", "It is said while everything is being shut down."),
    ("progress", "It marks progress and is no failure."),
)
_PHASES = {
    "any": "at any time",
    "forward-backward": "forward and backward",
    "": "phase not said",
}
_SCOPES = {
    "same-rank": "on the same rank",
    "same-host": "on the same host",
    "same-run": "in the same run",
    "fleet": "anywhere in the fleet",
    "next-attempt": "in the next attempt",
}
_BASES = {"source": "known from the source", "log": "seen in logs", "inference": "inferred"}
_READABLE = 100  # cells of a line of prose
_COLUMN = 38  # least cells of an entry that stands beside others
_WIDEST = 60  # most of them
_EXAMPLE = 240  # characters of a log line where entries stand side by side


class Seen(NamedTuple):
    """How often a failure is in a database: runs and hosts that had it, lines, the last time."""

    runs: int
    hosts: int
    lines: int
    last: datetime | None


@dataclass(frozen=True, slots=True)
class Book:
    """All entries by id, in their order, and what connects them.

    `edges` have the attributes of `matcher.catalogue.Edge`, `phases` are all there are, in the
    order of a run. `seen` is None without a database; a failure that is not in it was never seen.
    """

    entries: Mapping[str, Entry]
    edges: Sequence[Any] = ()
    phases: Sequence[str] = ()
    seen: Mapping[str, Seen] | None = None


class Item(NamedTuple):
    """A point of a page: an id or signature with its mark, what is said of it, a line of a log."""

    text: str = ""
    entry: str = ""  # id of the failure that it leads to
    signature: Any = None
    note: str = ""
    code: str = ""


class Part(NamedTuple):
    """A part of a page; `style` is prose, list or steps."""

    title: str
    items: Sequence[Item]
    style: str = "list"


def seen(connection: duckdb.DuckDBPyConnection) -> dict[str, Seen]:
    """What the database of `queries.report.connect` has of each failure."""
    rows = connection.execute(
        "SELECT failure, count(DISTINCT hash(cluster, run)) FILTER (run IS NOT NULL),"
        " count(DISTINCT host), sum(repeats), max(t1) FROM live_events GROUP BY failure"
    ).fetchall()
    return {row[0]: Seen(row[1], row[2], int(row[3] or 0), row[4]) for row in rows}


# -- finding entries ---------------------------------------------------------------------------


def values(book: Book, name: str) -> list[str]:
    """All values of one of FILTERS among the entries."""
    found = {value for entry in book.entries.values() for value in words_of(entry, name)}
    return [phase for phase in book.phases if phase in found] if name == "phase" else sorted(found)


def words_of(entry: Entry, name: str) -> Sequence[str]:
    """What an entry has of one of FILTERS."""
    match name:
        case "tag":
            return tuple(entry.tags)
        case "phase":
            return tuple(entry.phases)
    return (getattr(entry, name),)


def choose(book: Book, **wanted: Collection[str]) -> list[Entry]:
    """The entries that have, of each filter given, one of the words wanted.

    Raises ReportError for a word that no entry has.
    """
    for name, words in wanted.items():
        known = values(book, name)
        for word in words:
            if word not in known:
                few = f"one of {', '.join(known)}" if len(known) <= 16 else "see --help"
                hint = _did_you_mean(word, known) or few
                raise ReportError(f"no failure has the {name} '{shown(word)}': {hint}")
    return [
        entry
        for entry in book.entries.values()
        if all(
            not words or not set(words).isdisjoint(words_of(entry, name))
            for name, words in wanted.items()
        )
    ]


def find(book: Book, word: str) -> Entry:
    """The entry of this id, of the signature of this id, or the only one with this tag.

    Raises ReportError with near ids for any other word.
    """
    asked = re.sub(r"[\s_]+", "-", word.strip().lower())
    if asked in book.entries:
        return book.entries[asked]
    signatures = {s.id: entry for entry in book.entries.values() for s in entry.signatures}
    if asked in signatures:
        return signatures[asked]
    tagged = [entry for entry in book.entries.values() if asked in entry.tags]
    if len(tagged) == 1:
        return tagged[0]
    for name in ("tag", "component", "category"):
        if asked in values(book, name):
            raise ReportError(
                f"'{asked}' is a {name}: see `firstfault failures list --{name} {asked}`"
            )
    hint = _did_you_mean(asked, book.entries) or _did_you_mean(asked, signatures)
    raise ReportError(f"no failure '{shown(word)}': {hint or 'see `firstfault failures list`'}")


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    """Up to three near words as a question; "" without any."""
    known = list(known)
    inside = [one for one in known if len(word) > 2 and word in one]
    near = [*inside, *difflib.get_close_matches(word, known, 3)]
    names = [f"'{one}'" for one in dict.fromkeys(near)][:3]
    return f"did you mean {' or '.join(names)}?" if names else ""


# -- what a page says --------------------------------------------------------------------------


def phase_name(phase: str) -> str:
    """A phase as a person says it."""
    return _PHASES.get(phase, phase.replace("-", " "))


def parts(book: Book, entry: Entry) -> list[Part]:
    """What the page of an entry says below its title: what the person on call needs, then why."""
    ahead = [edge for edge in book.edges if edge.effect == entry.id and edge.cause in book.entries]
    after = [edge for edge in book.edges if edge.cause == entry.id and edge.effect in book.entries]
    found = [
        Part("What it is", [Item(nature(entry)), Item(code=typical(entry))], "prose"),
        Part("Confirm", _texts(entry.confirm)),
        Part("Fix", _texts(entry.fix), "steps"),
        Part("Verify", [Item(code=entry.verify)] if entry.verify else [], "prose"),
        Part("Why it happens", _texts([entry.mechanism]), "prose"),
        Part(
            "What logs show",
            [
                Item(s.why, signature=s, note=_limits(s), code=next(iter(s.match), ""))
                for s in entry.signatures
            ],
        ),
        Part("Affected", _texts(entry.affected)),
        Part("Prevention", _texts([entry.prevention]), "prose"),
        Part("Leads to", [_edge(book, edge, edge.effect) for edge in after]),
        Part("Follows from", [_edge(book, edge, edge.cause) for edge in ahead]),
        Part(
            "Related",
            [Item(book.entries[id_].title, id_) for id_ in entry.related if id_ in book.entries],
        ),
        Part("References", _texts(entry.references)),
    ]
    return [part for part in found if part.items]


def nature(entry: Entry) -> str:
    """What its lines say of a run, by the strongest of their roles."""
    roles = {signature.role for signature in entry.signatures}
    return next((text for role, text in _NATURES if role in roles), "")


def typical(entry: Entry) -> str:
    """An example of the line that says most."""
    for role, _ in _NATURES:
        for signature in entry.signatures:
            if signature.role == role and signature.match:
                return str(signature.match[0])
    return ""


def facts(entry: Entry) -> list[tuple[str, str]]:
    """What it is filed under: (name, words)."""
    said = (
        ("severity", entry.severity),
        ("category", entry.category),
        ("component", entry.component),
        ("when", ", ".join(map(phase_name, entry.phases))),
        ("tags", ", ".join(entry.tags)),
    )
    return [(name, text) for name, text in said if text]


def _texts(texts: Iterable[str]) -> list[Item]:
    return [Item(text) for text in texts if text]


def _edge(book: Book, edge: Any, other: str) -> Item:
    where = _SCOPES.get(edge.scope, edge.scope)
    lag = _span(edge.lag_lo_s, edge.lag_hi_s)
    note = f"{where}, {lag} ({_BASES.get(edge.basis, edge.basis)})"
    return Item(book.entries[other].title, other, note=note)


def _span(low: float, high: float) -> str:
    if low == 0:
        return f"within {_duration(high)}"
    if low < 0:
        return f"from {_duration(-low)} before to {_duration(high)} after"
    return f"{_duration(low)} to {_duration(high)} later"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:g} s"


def _limits(signature: Any) -> str:
    """Where and for which versions the line counts."""
    streams = " or ".join(signature.stream)
    said = (
        (signature.since, f"since {signature.since}"),
        (signature.until, f"until {signature.until}"),
        (streams, f"counts from {streams} only"),
        (signature.fallback, "counts where nothing else hits the line"),
    )
    return ", ".join(text for holds, text in said if holds)


def by_phase(book: Book, entries: Sequence[Entry]) -> list[tuple[str, list[Entry], list[Entry]]]:
    """(phase, entries that show first then, those that showed in an earlier one too), in order."""
    found = []
    told: set[str] = set()
    for phase in (*book.phases, ""):
        here = [entry for entry in entries if phase in (entry.phases or ("",))]
        if here:
            new = [entry for entry in here if entry.id not in told]
            found.append((phase, new, [entry for entry in here if entry.id in told]))
            told |= {entry.id for entry in here}
    return found


# -- JSON --------------------------------------------------------------------------------------


def entries_json(book: Book, entries: Iterable[Entry]) -> str:
    """A JSON list of entries, each with its signatures and the failures beside it in time."""
    return _dumps([_object(book, entry) for entry in entries])


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _object(book: Book, entry: Entry) -> dict[str, Any]:
    made: dict[str, Any] = _plain(entry)
    made.pop("source", None)
    made["signatures"] = [
        {key: value for key, value in one.items() if key != "source" and value}
        for one in made["signatures"]
    ]
    made["leads_to"] = [edge.effect for edge in book.edges if edge.cause == entry.id]
    made["follows_from"] = [edge.cause for edge in book.edges if edge.effect == entry.id]
    return made


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


# -- text --------------------------------------------------------------------------------------


def _terminal(width: int | None, color: bool | None) -> tuple[int | None, bool]:
    """(width or None where stdout is no terminal, colours or not), as far as not given."""
    terminal = sys.stdout.isatty()
    if width is None and terminal:
        width = shutil.get_terminal_size((80, 24)).columns
    if color is None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        color = terminal and not plain
    return width, color


def _hung(text: str, width: int | None, first: str, sgr: str = "") -> Iterator[str]:
    """The text behind `first`, its further lines below its beginning; unbroken without a width."""
    text = shown(text)
    room = None if width is None else max(width - len(first), 20)
    for number, line in enumerate([text] if room is None else wrapped(text, room)):
        yield (first if not number else " " * len(first)) + painted(line, sgr)


def _finished(lines: Iterable[str], color: bool) -> str:
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return text if color else re.sub(r"\x1b\[[0-9;]*m", "", text)


def list_text(entries: Sequence[Entry], width: int | None = None, color: bool | None = None) -> str:
    """Entries a line each: id, severity, title; a title that has no room goes below itself."""
    width, color = _terminal(width, color)
    wide = max((len(entry.id) for entry in entries), default=0)
    lines: list[str] = []
    for entry in entries:
        begin = f"{painted(entry.id, '1')}{' ' * (wide - len(entry.id))}  "
        begin += painted(f"{entry.severity:<8}", SGR.get(entry.severity)) + "  "
        room = None if width is None else width - wide - 12
        title = shown(entry.title)
        if room is not None and room < 24:
            lines += [begin, *_hung(title, width, "    ")]
            continue
        first, *more = [title] if room is None else wrapped(title, room)
        lines += [begin + first, *(" " * (wide + 12) + line for line in more)]
    return _finished(lines, color) if lines else ""


def page(
    book: Book, entry: Entry, format_: str, width: int | None = None, color: bool | None = None
) -> str:
    """The page of an entry in one of FORMATS; text is as wide as the terminal, unbroken in a pipe.

    Raises ReportError for any other format.
    """
    match format_:
        case "json":
            return entries_json(book, [entry])
        case "markdown":
            return _markdown(book, entry)
        case "text":
            width, color = _terminal(width, color)
            width = None if width is None else min(width, _READABLE)
            return _finished(_text(book, entry, width), color)
    raise ReportError(f"format {format_!r} is unknown: use one of {', '.join(FORMATS)}")


def _text(book: Book, entry: Entry, width: int | None) -> Iterator[str]:
    yield from _hung(entry.title, width, "", "1")
    yield from _hung(entry.id, width, "", "2")
    yield ""
    for name, text in facts(entry):
        sgr = SGR.get(text, "") if name == "severity" else ""
        yield from _hung(text, width, f"{name:<11}", sgr)
    for part in parts(book, entry):
        yield from ("", painted(part.title, "1"))
        for number, item in enumerate(part.items, 1):
            mark = {"steps": f"{number}. ", "prose": ""}.get(part.style, "- ")
            yield from _item_text(item, width, "  " + mark)


def _item_text(item: Item, width: int | None, first: str) -> Iterator[str]:
    behind = " " * len(first)
    if item.signature:
        role = item.signature.role
        head = f"{painted(item.signature.id, '1')} ({painted(role, SGR[ROLES.get(role, 'calm')])})"
        yield first + head
        first = behind
    elif item.entry:
        yield first + painted(item.entry, "1")
        first = behind
    for text, sgr in ((item.text, ""), (item.note, "2"), (item.code, "36")):
        if text:
            yield from _hung(text, width, first, sgr)
            first = behind


# -- Markdown ----------------------------------------------------------------------------------


def _markdown(book: Book, entry: Entry) -> str:
    lines = [f"# {in_markdown(entry.title)}", "", f"`{entry.id}`", ""]
    lines += [f"- {name}: {in_markdown(text)}" for name, text in facts(entry)]
    lines.append("")
    for part in parts(book, entry):
        lines += [f"## {part.title}", ""]
        for number, item in enumerate(part.items, 1):
            mark = {"steps": f"{number}. ", "prose": ""}.get(part.style, "- ")
            lines += _item_markdown(item, mark)
        if part.style != "prose":
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _item_markdown(item: Item, mark: str) -> Iterator[str]:
    heads = []
    if item.signature:
        heads.append(f"`{item.signature.id}` ({item.signature.role}):")
    if item.entry:
        heads.append(f"`{item.entry}`:")
    said = [*heads, in_markdown(item.text), f"({in_markdown(item.note)})" if item.note else ""]
    text = " ".join(filter(None, said))
    if text:
        yield mark + text
    indent = " " * len(mark)
    if item.code:
        if text:
            yield ""
        yield from (indent + line for line in _fenced(item.code))
    if not mark or item.code:
        yield ""


def _fenced(code: str) -> list[str]:
    """The line as a block of code, whatever backticks are in it."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", shown(code), fence]


# -- side by side ------------------------------------------------------------------------------


def compare(
    book: Book,
    entries: Sequence[Entry],
    format_: str,
    width: int | None = None,
    color: bool | None = None,
) -> str:
    """The entries side by side, phase after phase, in one of FORMATS.

    JSON is a list of objects with `phase` (null where none is said), `failures` and `also`, the
    ids of those told in an earlier phase. Raises ReportError for any other format.
    """
    phases = by_phase(book, entries)
    match format_:
        case "json":
            return _dumps(
                [
                    {
                        "phase": phase or None,
                        "failures": [_object(book, entry) for entry in new],
                        "also": [entry.id for entry in also],
                    }
                    for phase, new, also in phases
                ]
            )
        case "markdown":
            return "\n".join(_compared_markdown(*group) for group in phases)
        case "text":
            width, color = _terminal(width, color)
            wide = width or shutil.get_terminal_size((80, 24)).columns
            lines = [line for group in phases for line in _compared_text(*group, max(wide, 20))]
            return _finished(lines[1:], color)
    raise ReportError(f"format {format_!r} is unknown: use one of {', '.join(FORMATS)}")


def aspects(entry: Entry) -> dict[str, str]:
    """What sets an entry apart from those beside it: a line of it, how to tell it, what to do."""
    line = typical(entry)
    return {
        "line": line if len(line) <= _EXAMPLE else line[: _EXAMPLE - 1] + "…",
        "confirm": next(iter(entry.confirm), ""),
        "fix": next(iter(entry.fix), ""),
        "verify": entry.verify,
    }


def _compared_text(
    phase: str, new: Sequence[Entry], also: Sequence[Entry], width: int
) -> Iterator[str]:
    yield from ("", painted(f"── {phase_name(phase)} ".ljust(width, "─"), "1"))
    most = max(1, min((width + 2) // (_COLUMN + 2), len(new)))
    cells = min((width + 2) // most - 2, _WIDEST)
    for start in range(0, len(new), most):
        group = new[start : start + most]
        widths = dict(enumerate([cells] * len(group)))
        if start:
            yield ""
        for texts, styles in _rows(group):
            broken = [wrapped(shown(text), cells) if text else [] for text in texts]
            yield from side_by_side(broken, widths, [False] * len(group), styles)
    if also:
        yield from _hung(", ".join(entry.id for entry in also), width, "also: ", "2")


def _rows(group: Sequence[Entry]) -> Iterator[tuple[list[str], list[str]]]:
    """What stands in one row of entries side by side: (text, style) of each."""
    yield [entry.id for entry in group], ["1"] * len(group)
    yield (
        [f"{entry.severity} · {entry.category}" for entry in group],
        [SGR.get(entry.severity, "") for entry in group],
    )
    yield [entry.title for entry in group], [""] * len(group)
    said = [aspects(entry) for entry in group]
    for name in ("line", "confirm", "fix", "verify"):
        label = "" if name == "line" else f"{name}: "
        texts = [label + one[name] if one[name] else "" for one in said]
        yield texts, ["36" if name == "line" else ""] * len(group)


def _compared_markdown(phase: str, new: Sequence[Entry], also: Sequence[Entry]) -> str:
    lines = [f"## {phase_name(phase)}", ""]
    if new:
        lines += ["| failure | severity | title | a line | confirm | fix | verify |"]
        lines += ["| --- " * 7 + "|"]
    for entry in new:
        said = (entry.severity, entry.title, *aspects(entry).values())
        lines.append(f"| `{entry.id}` | " + " | ".join(map(in_markdown, said)) + " |")
    if also:
        lines += [""] if new else []
        lines.append("Also: " + ", ".join(f"`{entry.id}`" for entry in also))
    return "\n".join(lines) + "\n"
