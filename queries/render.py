"""Show results and catalogue entries: terminal tables, JSON, CSV, Parquet, Markdown, HTML.

Log text is data, and hostile: control and direction characters are shown as escapes wherever a
person reads, HTML and Markdown are escaped, nothing is loaded from elsewhere. JSON, CSV and
Parquet are for machines and stay faithful: CSV is RFC 4180, a cell may begin with `=`, so do not
open it in a spreadsheet that runs formulas without care.
"""

from __future__ import annotations

import csv
import html
import io
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queries.report import ReportError, Result

if TYPE_CHECKING:
    from rich.console import RenderableType

FORMATS = ("table", "json", "csv", "parquet", "markdown", "html")
NULL = "–"
HTML_ROWS = 1000  # rows of a report on the page; the database has the rest

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]"
)
_PLAIN_INTEGERS = re.compile(r"(^|_)(id|rank|line|attempt|step|job)$")
_MONOSPACE = ("message", "first_lines", "last_lines", "file", "first_file", "pattern", "text")
_SIMPLE = str.maketrans({"\n": " ", "\r": " ", "\t": " "})


def render(
    results: Sequence[Result], format_: str, width: int | None = None, color: bool | None = None
) -> str | bytes:
    """The results in one of FORMATS; bytes for parquet, text for the rest.

    `width` is the table's, by default the terminal's (80 without one); `color` is on by default on
    a terminal. json is a list of row objects, for several results an object of such lists by
    report name; csv and parquet hold one result. Raises ReportError for any other format.
    """
    match format_:
        case "table":
            return _table(results, width, color)
        case "json":
            return _json(results)
        case "csv":
            return _csv(_only(results, format_))
        case "parquet":
            return _parquet(_only(results, format_))
        case "markdown":
            return "\n".join(_markdown(result) for result in results)
        case "html":
            return _page(results)
    raise ReportError(f"format {format_!r} is unknown: use one of {', '.join(FORMATS)}")


def write(path: Path, rendered: str | bytes) -> None:
    """Write the file atomically: a reader sees the old one or the whole new one."""
    data = rendered.encode() if isinstance(rendered, str) else rendered
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise ReportError(
            f"{path}: cannot be written ({error.strerror}): give another -o"
        ) from error


def _only(results: Sequence[Result], format_: str) -> Result:
    if len(results) != 1:
        raise ReportError(f"{format_} holds one report, not {len(results)}: name one, or use json")
    return results[0]


# -- values ------------------------------------------------------------------------------------


def shown(text: str) -> str:
    """Text of a log made safe to print: one line, control and direction characters as escapes."""
    return _UNSAFE.sub(
        lambda match: (
            f"\\x{ord(match[0]):02x}" if ord(match[0]) < 256 else f"\\u{ord(match[0]):04x}"
        ),
        text.translate(_SIMPLE),
    )


def _cell(value: object, column: str = "") -> str:
    """A value as a person reads it, on one line."""
    match value:
        case None:
            return NULL
        case bool():
            return "yes" if value else "no"
        case int() | Decimal():
            number = int(value)
            plain = abs(number) < 10_000 or _PLAIN_INTEGERS.search(column)
            return str(number) if plain else f"{number:,}"
        case float():
            return _number(value)
        case datetime():
            return _time(value)
        case list():
            return ", ".join(_cell(item) for item in value)
        case _:
            return shown(str(value))


def _number(value: float) -> str:
    if not math.isfinite(value):
        return NULL
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3e}"
    digits = 4 if abs(value) < 1000 else 1
    text = f"{value:.{digits}g}" if digits == 4 else f"{value:,.1f}"
    return text.removesuffix(".0")


def _time(value: datetime) -> str:
    """ISO, to the millisecond where it has one."""
    if value.microsecond >= 1000:
        return value.isoformat(" ", "milliseconds")
    return value.isoformat(" ", "seconds")


def _plain(value: object) -> Any:
    """A value as JSON has it; times are UTC and say so."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case datetime():
            return value.isoformat() + ("Z" if value.tzinfo is None else "")
        case date():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case bytes():
            return value.hex()
        case tuple() | list():
            if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
                return {str(key): _plain(item) for key, item in value}
            return [_plain(item) for item in value]
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _dumps(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    # A lone surrogate cannot be written as UTF-8.
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") + "\n"


def _arguments(result: Result) -> list[tuple[str, str]]:
    """What the report took, open parameters left out."""
    return [(name, _cell(value)) for name, value in result.arguments.items() if value is not None]


def _columns(result: Result) -> dict[str, list[Any]]:
    return {name: result.table.column(name).to_pylist() for name in dict.fromkeys(_names(result))}


def _names(result: Result) -> list[str]:
    return list(result.table.column_names)


def _is_number(values: Iterable[object]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
        for value in present
    )


# -- machines ----------------------------------------------------------------------------------


def _rows(result: Result) -> list[dict[str, Any]]:
    return [
        {name: _plain(value) for name, value in row.items()} for row in result.table.to_pylist()
    ]


def _json(results: Sequence[Result]) -> str:
    if len(results) == 1:
        return _dumps(_rows(results[0]))
    return _dumps({result.report.name: _rows(result) for result in results})


def _csv(result: Result) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(result.table.column_names)
    for batch in result.table.to_batches():
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            writer.writerow(map(_csv_cell, row))
    return out.getvalue()


def _csv_cell(value: object) -> object:
    plain = _plain(value)
    if isinstance(plain, bool):
        return str(plain).lower()
    if isinstance(plain, (list, dict)):
        return json.dumps(plain, ensure_ascii=False)
    return plain


def _parquet(result: Result) -> bytes:
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(result.table, out, compression="zstd")
    return out.getvalue()


# -- Markdown ----------------------------------------------------------------------------------


def _markdown(result: Result) -> str:
    report = result.report
    lines = [f"## {_md(report.title)}", ""]
    if report.description:
        lines += [report.description, ""]
    if taken := _arguments(result):
        lines += [", ".join(f"`{name}={_md(value)}`" for name, value in taken), ""]
    columns = _columns(result)
    if result.table.num_rows:
        lines.append("| " + " | ".join(_md(name) for name in columns) + " |")
        lines.append(
            "|" + "|".join(" ---: " if _is_number(v) else " --- " for v in columns.values()) + "|"
        )
        for row in zip(*columns.values(), strict=True):
            cells = (_md(_cell(value, name)) for name, value in zip(columns, row, strict=True))
            lines.append("| " + " | ".join(cells) + " |")
    else:
        lines.append("No rows.")
    lines += [f"\n{_md(note)}" for note in result.notes]
    return "\n".join(lines) + "\n"


def _md(text: str) -> str:
    return re.sub(r"([\\`*\[\]|~])", r"\\\1", html.escape(shown(text), quote=False))


# -- terminal ----------------------------------------------------------------------------------

_STYLES = {
    "critical": "bold red",
    "high": "red",
    "failed": "red",
    "medium": "yellow",
    "associated": "yellow",
    "completed": "green",
    "low": "dim",
    "too_rare": "dim",
    "not_distinguishable": "dim",
}
_STYLED = ("severity", "confidence", "outcome", "verdict")
_LISTED = 4  # items of a list that a table shows


def _table(results: Sequence[Result], width: int | None, color: bool | None) -> str:
    from rich.console import Console

    if width is None:
        width = shutil.get_terminal_size((80, 24)).columns
    if color is None:
        color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    console = Console(
        file=io.StringIO(),
        width=max(width, 20),
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
        legacy_windows=False,
    )
    for index, result in enumerate(results):
        if index:
            console.print()
        for part in _blocks(result, console.width):
            console.print(part)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _blocks(result: Result, width: int) -> Iterable[RenderableType]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    report = result.report
    if report.description:  # a statement of the user's has none, and needs no title
        yield Text(report.title, style="bold")
        taken = ", ".join(f"{name} {value}" for name, value in _arguments(result))
        if taken:
            yield Text(taken, style="dim")
    columns = _columns(result)
    texts = {name: [_short(value, name) for value in values] for name, values in columns.items()}
    numeric = {name for name, values in columns.items() if _is_number(values)}
    chosen, widths = _fit(texts, numeric, report.brief, width)
    rest = [name for name in columns if name not in chosen]
    if result.table.num_rows:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        for name in chosen:
            table.add_column(
                Text(name),
                justify="right" if name in numeric else "left",
                overflow="fold",
                width=widths[name],
            )
        for row in range(result.table.num_rows):
            table.add_row(
                *(Text(texts[name][row], style=_style(name, texts[name][row])) for name in chosen)
            )
        yield table
    else:
        yield Text("no rows", style="dim")
    for note in result.notes:
        yield Text(shown(note), style="italic")
    if rest and result.table.num_rows:
        names = ", ".join(rest)
        yield Text(f"not shown (--format json has all): {names}", style="dim")


def _short(value: object, column: str) -> str:
    if isinstance(value, list) and len(value) > _LISTED:
        return f"{_cell(value[:_LISTED])}, +{len(value) - _LISTED}"
    return _cell(value, column)


def _style(column: str, text: str) -> str:
    return _STYLES.get(text, "") if column in _STYLED else ""


def _fit(
    texts: Mapping[str, Sequence[str]], numeric: set[str], brief: Sequence[str], width: int
) -> tuple[list[str], dict[str, int]]:
    """The columns that fit, in their order, and how wide each is.

    The brief ones come first; a column of text may be as narrow as its name and a third of its
    natural width, a number is never broken. Space that is left goes to the columns that wrap.
    """
    natural = {
        name: max([len(name), *(len(text) for text in column)]) for name, column in texts.items()
    }
    least = {
        name: natural[name]
        if name in numeric or natural[name] <= 12
        else min(natural[name], max(len(name), 12, min(24, natural[name] // 3)))
        for name in texts
    }
    widths: dict[str, int] = {}
    spare = width
    for name in dict.fromkeys((*(name for name in brief if name in texts), *texts)):
        need = least[name] + 2  # its own and what stands between it and the next
        if need <= spare or not widths:
            widths[name] = min(least[name], width - 2)
            spare -= need
    while spare > 0 and (hungry := [name for name in widths if widths[name] < natural[name]]):
        share = max(1, spare // len(hungry))
        for name in hungry:
            more = min(share, natural[name] - widths[name], spare)
            widths[name] += more
            spare -= more
    return [name for name in texts if name in widths], widths


# -- HTML --------------------------------------------------------------------------------------

_STYLE = """
:root{color-scheme:light dark;--bg:#f7f8fa;--card:#fff;--ink:#1c2330;--soft:#5b6577;--line:#e1e5ec;
--head:#f0f2f6;--accent:#2f6fdb;--bar:#5b8def;--critical:#b3142b;--high:#c2410c;--medium:#8a6100;
--low:#2b6cb0;--good:#1a7f4b;--calm:#5b6577}
@media (prefers-color-scheme:dark){:root{--bg:#12151b;--card:#1a1f28;--ink:#e4e8ef;--soft:#9aa5b8;
--line:#2c3442;--head:#222835;--accent:#7aa7ff;--bar:#5b8def;--critical:#ff7a8a;--high:#ff9a63;
--medium:#e9bd54;--low:#80b6f5;--good:#64cf98;--calm:#9aa5b8}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header,main{max-width:1500px;margin:0 auto;padding:0 24px}
header{padding-top:32px}
h1{font-size:24px;margin:0;letter-spacing:-.01em}
h2{font-size:18px;margin:0}
p{margin:6px 0 0;max-width:84ch}
.soft{color:var(--soft)}
nav{display:flex;flex-wrap:wrap;gap:8px;margin:16px 0 24px}
nav a{color:var(--accent);background:var(--card);border:1px solid var(--line);border-radius:999px;
padding:3px 12px;text-decoration:none}
nav a:hover,nav a:focus-visible{border-color:var(--accent)}
nav span{color:var(--soft);font-variant-numeric:tabular-nums}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:20px 22px;
margin:0 0 24px;scroll-margin-top:12px}
.taken{display:flex;flex-wrap:wrap;gap:6px;margin:12px 0 0;padding:0;list-style:none}
.taken li{background:var(--head);border-radius:5px;padding:1px 8px;font-size:12.5px}
.taken b{font-weight:600}
.note{border-left:3px solid var(--accent);padding-left:10px;margin-top:12px}
.scroll{overflow:auto;max-height:75vh;margin-top:16px;border:1px solid var(--line);
border-radius:8px}
table{border-collapse:separate;border-spacing:0;width:100%;font-variant-numeric:tabular-nums}
th{position:sticky;top:0;z-index:1;background:var(--head);text-align:left;font-weight:600;
font-size:12.5px;white-space:nowrap}
th[title]{cursor:help}
th,td{padding:6px 12px;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}
tbody tr:hover td{background:color-mix(in srgb,var(--head) 55%,transparent)}
.n{text-align:right;white-space:nowrap}
.t{white-space:nowrap}
.w{min-width:34ch;max-width:60ch;overflow-wrap:anywhere}
.m{font:12.5px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre-wrap;
overflow-wrap:anywhere;min-width:44ch;max-width:90ch}
.null{color:var(--soft)}
.badge{display:inline-block;border:1px solid currentColor;border-radius:5px;padding:0 7px;
font-size:12.5px;font-weight:600;white-space:nowrap}
.critical{color:var(--critical)}.high{color:var(--high)}.medium{color:var(--medium)}
.low{color:var(--low)}.good{color:var(--good)}.calm{color:var(--calm)}
details summary{cursor:pointer;color:var(--accent)}
svg{display:block;margin-top:16px;max-width:100%;height:auto}
svg text{font:12.5px system-ui,sans-serif;fill:var(--ink);font-variant-numeric:tabular-nums}
svg .v{fill:var(--soft)}svg rect{fill:var(--bar)}
footer{max-width:1500px;margin:0 auto;padding:0 24px 32px;color:var(--soft)}
@media print{body{background:none}.scroll{max-height:none;overflow:visible}nav{display:none}}
"""
_BADGES = {
    "severity": {
        "critical": "critical",
        "high": "high",
        "medium": "medium",
        "low": "low",
        "info": "calm",
    },
    "confidence": {"high": "good", "medium": "medium", "low": "calm"},
    "outcome": {"failed": "high", "completed": "good", "timeout": "medium"},
    "verdict": {"associated": "high", "negative": "low", "alias": "medium"},
    "class": {"teardown_storm": "calm", "repeat": "medium", "rank_fan_out": "low"},
    "role_a": {"cause": "high", "confirmation": "high", "context": "calm", "collateral": "calm"},
    "role_b": {"cause": "high", "confirmation": "high", "context": "calm", "collateral": "calm"},
}
_BARS = 20
_WRAP = 40  # characters of a cell that stay on one line
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def _page(results: Sequence[Result]) -> str:
    """One self-contained page; it asks nothing of the network and runs no script."""
    title = results[0].report.title if len(results) == 1 else "Fleet report"
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    links = "".join(
        f'<a href="#{_h(r.report.name)}">{_h(r.report.title)} <span>{r.table.num_rows:,}</span></a>'
        for r in results
    )
    nav = f'<nav aria-label="Reports">{links}</nav>' if len(results) > 1 else "<nav></nav>"
    sections = "\n".join(_section(result) for result in results)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_h(title)} · firstfault</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<header><h1>{_h(title)}</h1><p class="soft">firstfault, {made}. All times are UTC. '
        f"{NULL} is what the logs do not say.</p>{nav}</header>\n"
        f"<main>\n{sections}\n</main>\n"
        "<footer>Hover over a column's name for what it means.</footer>\n</body>\n</html>\n"
    )


def _section(result: Result) -> str:
    report = result.report
    parts = [f"<h2>{_h(report.title)}</h2>"]
    if report.description:
        parts.append(f'<p class="soft">{_h(report.description)}</p>')
    if taken := _arguments(result):
        chips = "".join(f"<li><b>{_h(name)}</b> {_h(value)}</li>" for name, value in taken)
        parts.append(f'<ul class="taken">{chips}</ul>')
    parts += [f'<p class="note">{_h(note)}</p>' for note in result.notes]
    if result.table.num_rows:
        parts += [_chart(result), _html_table(result)]
    else:
        parts.append('<p class="soft">No rows.</p>')
    return f'<section id="{_h(report.name)}">\n' + "\n".join(filter(None, parts)) + "\n</section>"


def _html_table(result: Result) -> str:
    total = result.table.num_rows
    columns = _columns(result._replace(table=result.table.slice(0, HTML_ROWS)))
    numeric = {name for name, values in columns.items() if _is_number(values)}
    order = sorted(columns, key=lambda name: _priority(name, result.report.brief))
    head = "".join(
        f'<th scope="col"{_title(result.report.columns.get(name))}'
        f"{' class=n' if name in numeric else ''}>{_h(name)}</th>"
        for name in order
    )
    body = "\n".join(
        "<tr>" + "".join(_html_cell(columns[name][row], name, numeric) for name in order) + "</tr>"
        for row in range(min(total, HTML_ROWS))
    )
    more = (
        f'<p class="soft">The first {HTML_ROWS:,} of {total:,} rows; '
        "--format csv or parquet has all.</p>"
        if total > HTML_ROWS
        else ""
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_h(result.report.title)}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>{more}"
    )


def _priority(name: str, brief: Sequence[str]) -> int:
    return brief.index(name) if name in brief else len(brief)


def _title(text: str | None) -> str:
    return f' title="{_h(text)}"' if text else ""


def _html_cell(value: object, column: str, numeric: set[str]) -> str:
    if value is None:
        return f'<td class="null{" n" if column in numeric else ""}">{NULL}</td>'
    if column in numeric:
        return f'<td class="n">{_h(_cell(value, column))}</td>'
    if isinstance(value, datetime):
        return f'<td class="t">{_h(_cell(value))}</td>'
    if column in _MONOSPACE:
        lines = value if isinstance(value, list) else [value]
        return '<td class="m">' + "\n".join(_h(_cell(line)) for line in lines) + "</td>"
    if column in _BADGES:
        kind = _BADGES[column].get(str(value), "calm")
        return f'<td><span class="badge {kind}">{_h(_cell(value))}</span></td>'
    if isinstance(value, list):
        first, rest = value[:6], value[6:]
        text = _h(_cell(first))
        if rest:
            text += f"<details><summary>{len(rest)} more</summary>{_h(_cell(rest))}</details>"
        return f'<td class="{"w" if len(text) > _WRAP else "t"}">{text}</td>'
    text = _cell(value, column)
    return f'<td class="{"w" if len(text) > _WRAP else "t"}">{_h(text)}</td>'


def _chart(result: Result) -> str:
    """Horizontal bars of the report's chart, the first rows only."""
    chart = result.report.chart
    if chart is None:
        return ""
    columns = _columns(result)
    pairs = [
        (_cell(x), float(y))
        for x, y in zip(columns[chart.x], columns[chart.y], strict=True)
        if y is not None and math.isfinite(y) and y >= 0
    ][:_BARS]
    top = max((y for _, y in pairs), default=0.0)
    if not top:
        return ""
    label, bar, row = 270, 520, 24
    lines = []
    for index, (x, y) in enumerate(pairs):
        base = index * row
        name = x if len(x) <= 38 else x[:37] + "…"
        lines.append(
            f'<text x="{label - 8}" y="{base + 16}" text-anchor="end">{_h(name)}</text>'
            f'<rect x="{label}" y="{base + 4}" width="{max(bar * y / top, 1):.1f}" height="16" '
            f'rx="3"/><text class="v" x="{label + bar * y / top + 8:.1f}" y="{base + 16}">'
            f"{_h(_cell(int(y) if y == int(y) else y))}</text>"
        )
    height = len(pairs) * row + 4
    return (
        f'<svg role="img" viewBox="0 0 {label + bar + 90} {height}" '
        f'width="{label + bar + 90}" height="{height}">'
        f"<title>{_h(chart.y)} by {_h(chart.x)}</title>{''.join(lines)}</svg>"
    )


def _h(text: str) -> str:
    return html.escape(shown(text))


# -- events and catalogue entries --------------------------------------------------------------


def event_json(event: Mapping[str, Any]) -> str:
    """An event as one line of JSON."""
    plain = {name: _plain(value) for name, value in event.items()}
    if isinstance(captures := event.get("captures"), list):
        plain["captures"] = dict(captures)
    return json.dumps(plain, ensure_ascii=False)


def event_line(event: Mapping[str, Any]) -> str:
    """An event as one line for a person: where, when, who, what, the text."""
    moment = event.get("ts")
    who = [f"{name} {event[name]}" for name in ("host", "rank") if event.get(name) is not None]
    repeats = event.get("repeats") or 1
    parts = [
        f"{shown(str(event['path']))}:{event['line_no']}",
        _time(moment) if moment is not None else "",
        " ".join(who),
        f"{event['failure']} ({event['role']})",
        f"×{repeats:,}" if repeats > 1 else "",
        shown(event.get("message") or ""),
    ]
    return "  ".join(part for part in parts if part)


def failures_json(failures: Sequence[Any]) -> str:
    """Catalogue entries as a JSON list, signatures included."""
    from dataclasses import asdict

    return _dumps([_plain(_drop(asdict(failure))) for failure in failures]).rstrip()


def _drop(entry: dict[str, Any]) -> dict[str, Any]:
    """Without where it was read from and what is not set."""
    entry.pop("source", None)
    entry["signatures"] = [
        {key: value for key, value in signature.items() if key != "source" and value}
        for signature in entry["signatures"]
    ]
    return entry


def failures_list(failures: Sequence[Any]) -> str:
    """Catalogue entries a line each: id, severity, title."""
    wide = max((len(failure.id) for failure in failures), default=0)
    return "\n".join(
        f"{failure.id:<{wide}}  {failure.severity:<8}  {failure.title}" for failure in failures
    )


def failure_page(failure: Any) -> str:
    """A catalogue entry to read: why it happens, how to confirm, fix, verify and prevent it."""
    lines = [
        failure.title,
        f"{failure.id} · {failure.component} · {failure.category} · {failure.severity}",
        "",
        failure.mechanism,
    ]
    for name, items in (
        ("confirm", failure.confirm),
        ("fix", failure.fix),
        ("verify", [failure.verify]),
        ("prevention", [failure.prevention]),
        ("affected", failure.affected),
        ("signatures", [f"{s.id} ({s.role}): {s.why}" for s in failure.signatures]),
        ("related", [", ".join(failure.related)]),
        ("references", failure.references),
    ):
        present = [item for item in items if item]
        if present:
            lines += ["", name, *(f"  - {item}" for item in present)]
    return "\n".join(lines)
