"""Show results: terminal tables, JSON, CSV, Parquet, Markdown, HTML, charts.

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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

from queries.report import ReportError, Result

FORMATS = ("table", "json", "csv", "parquet", "markdown", "html", "svg", "png")
NULL = "–"
HTML_ROWS = 1000  # rows of a report on its own page; the database has the rest
PAGE_ROWS = 20  # and on a page of several

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]"
)
_PLAIN_INTEGERS = re.compile(r"(^|_)(id|rank|line|line_no|attempt|step|job|pid|port|year)$")
_PLACES = (("file", "line"), ("first_file", "first_line"))
_KINDS = {  # what a word of these columns means for a person, beside the word itself
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
    "role_a": {"cause": "high", "confirmation": "high"},
    "role_b": {"cause": "high", "confirmation": "high"},
}
_SIMPLE = str.maketrans({"\n": " ", "\r": " ", "\t": " "})


def render(
    results: Sequence[Result], format_: str, width: int | None = None, color: bool | None = None
) -> str | bytes:
    """The results in one of FORMATS; bytes for parquet and png, text for the rest.

    `width` is the table's, by default the terminal's (80 without one); `color` is on by default on
    a terminal. json is a list of row objects, for several results an object of such lists by
    report name; csv, parquet, svg and png hold one result, the last two its
    chart. Raises ReportError for any other format.
    """
    results = [_distinct(result) for result in results]
    try:
        return _rendered(results, format_, width, color)
    except (OverflowError, ValueError) as error:
        # Python knows the years 1 to 9999, DuckDB 580,000 of them and infinity.
        raise ReportError(f"a value that cannot be shown ({error}): cast it to VARCHAR") from error


def _rendered(
    results: Sequence[Result], format_: str, width: int | None, color: bool | None
) -> str | bytes:
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
        case "svg":
            from queries import charts

            return charts.svg(_only(results, format_))
        case "png":
            from queries import charts

            return charts.png(_only(results, format_))
    raise ReportError(f"format {format_!r} is unknown: use one of {', '.join(FORMATS)}")


def write(path: Path, rendered: str | bytes) -> None:
    """Write the file atomically: a reader sees the old one or the whole new one.

    A device, pipe or link such as /dev/stdout is written to, not replaced.
    """
    data = rendered.encode() if isinstance(rendered, str) else rendered
    try:
        if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
            path.write_bytes(data)
            return
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


def _distinct(result: Result) -> Result:
    """A statement may select two columns of one name: the second a gets to be a_2."""
    names: list[str] = []
    for name in result.table.column_names:
        if name in names:
            name = next(new for n in count(2) if (new := f"{name}_{n}") not in names)
        names.append(name)
    return result._replace(table=result.table.rename_columns(names))


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
            plain = abs(number) < 1000 or _PLAIN_INTEGERS.search(column)
            return str(number) if plain else f"{number:,}"
        case float():
            return _number(value)
        case datetime():
            return _time(value)
        case list():
            return ", ".join(map(_item, value))
        case (key, item):
            return f"{_cell(key)}={_cell(item)}"
        case _:
            return shown(str(value))


def _item(value: object) -> str:
    """A value of a list, whose numbers no comma separates."""
    return _cell(value, "id")


def _number(value: float) -> str:
    """Four significant digits, three up to 1: a share is rarely known better."""
    if not math.isfinite(value):
        return NULL
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2e}"
    if abs(value) < 999.95:
        return f"{value:.{3 if abs(value) <= 1 else 4}g}"
    return f"{value:,.1f}".removesuffix(".0")


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


def as_json(value: object) -> str:
    """The value as JSON, times as ISO 8601 in UTC."""
    return _dumps(_plain(value))


def _dumps(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    # A lone surrogate cannot be written as UTF-8.
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") + "\n"


def _arguments(result: Result) -> list[tuple[str, str]]:
    """What the report took, open parameters left out."""
    return [(name, _cell(value)) for name, value in result.arguments.items() if value is not None]


def _columns(result: Result) -> dict[str, list[Any]]:
    return {name: result.table.column(name).to_pylist() for name in result.table.column_names}


def _sheet(result: Result) -> dict[str, list[Any]]:
    """The columns as a person reads them: brief ones first, a file and its line as one."""
    columns = _columns(result)
    brief = result.report.brief
    for file, line in _PLACES if brief else ():
        if file in columns and line in columns:
            columns[file] = [
                path if path is None or number is None else f"{path}:{number}"
                for path, number in zip(columns[file], columns.pop(line), strict=True)
            ]
    return {name: columns[name] for name in dict.fromkeys((*brief, *columns)) if name in columns}


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
    lines = [f"## {in_markdown(report.title)}", ""]
    if report.description:
        lines += [report.description, ""]
    if taken := _arguments(result):
        lines += [", ".join(f"`{name}={in_markdown(value)}`" for name, value in taken), ""]
    columns = _columns(result)
    if result.table.num_rows:
        lines.append("| " + " | ".join(in_markdown(name) for name in columns) + " |")
        lines.append(
            "|" + "|".join(" ---: " if _is_number(v) else " --- " for v in columns.values()) + "|"
        )
        for row in zip(*columns.values(), strict=True):
            cells = (
                in_markdown(_cell(value, name)) for name, value in zip(columns, row, strict=True)
            )
            lines.append("| " + " | ".join(cells) + " |")
    else:
        lines.append("No rows.")
    lines += [f"\n{in_markdown(note)}" for note in result.notes]
    return "\n".join(lines) + "\n"


def in_markdown(text: str) -> str:
    """Text of a log for a cell or paragraph of Markdown."""
    return re.sub(r"([\\`*\[\]|~])", r"\\\1", html.escape(shown(text), quote=False))


# -- terminal ----------------------------------------------------------------------------------

SGR = {"critical": "1;31", "high": "31", "medium": "33", "low": "36", "good": "32", "calm": "2"}
_PAINT = re.compile("\x1b\\[[0-9;]*m")
_PIECES = re.compile(r"[^\s/_,-]*[\s/_,-]+|[^\s/_,-]+")  # a line may end behind each
_LISTED = 4  # items of a list that a table shows
_FEW = 3  # rows that are better read one below the other than in too narrow columns
_RECORD = ("title", "message")  # what such a row shows besides the brief columns
_WHOLE = 16  # cells of a text that is never broken
_PLACE = "file"  # stays whole: where it has no room as a column, it goes below its row
_PROSE = 40  # least cells of a text too long for two lines


def _table(results: Sequence[Result], width: int | None, color: bool | None) -> str:
    if width is None:
        width = shutil.get_terminal_size((80, 24)).columns
    if color is None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        color = sys.stdout.isatty() and not plain
    room = None if len(results) == 1 else PAGE_ROWS
    parts = ["\n".join(map(str.rstrip, _lines(one, max(width, 20), room))) for one in results]
    text = "\n\n".join(parts) + "\n"
    return text if color else _PAINT.sub("", text)


def _lines(result: Result, width: int, room: int | None) -> Iterator[str]:
    """A report; of more than `room` rows the first ones, and how to see the others."""
    report, rows = result.report, result.table.num_rows
    if room is not None and rows > room:
        result = result._replace(table=result.table.slice(0, room))
    if report.description:  # a statement of the user's has none, and needs no title
        yield painted(shown(report.title), "1")
        taken = ", ".join(f"{name} {value}" for name, value in _arguments(result))
        yield from (painted(line, "2") for line in wrapped(taken, width) if line)
    sheet = _sheet(result)
    texts = {name: [_short(value, name) for value in values] for name, values in sheet.items()}
    brief = [name for name in texts if name in report.brief] or list(texts)
    record = {name: texts[name] for name in (*brief, *_RECORD) if name in texts}
    chosen: Collection[str] = texts
    if not rows:
        yield painted("no rows", "2")
    elif rows <= _FEW and sum(_natural(record).values()) + 2 * len(record) - 2 > width:
        chosen = record
        yield from _records(record, width)
    else:
        numeric = {name for name, values in sheet.items() if _is_number(values)}
        whole = numeric | {name for name, values in sheet.items() if _is_time(values)}
        place = _PLACE if _PLACE in report.brief and _PLACE in texts else ""
        widths = _fit(texts, whole | {place}, brief, width)
        chosen = widths.keys() | {place} - {""}
        yield from _grid(texts, widths, numeric, "" if place in widths else place, width)
    if more := rows - result.table.num_rows:
        told = f"{more:,} more row{'s' * (more > 1)}: firstfault report {report.name}"
        yield from (painted(line, "2") for line in wrapped(told, width))
    for note in result.notes:
        yield from wrapped(shown(note), width)
    if rest := len(texts) - len(chosen):
        told = f"{rest} more column{'s' * (rest > 1)}: --format json"
        yield from (painted(line, "2") for line in wrapped(told, width))


def _grid(
    texts: Mapping[str, Sequence[str]],
    widths: Mapping[str, int],
    numeric: Collection[str],
    below: str,
    width: int,
) -> Iterator[str]:
    """A line a row; the column `below` has a line of its own under each."""
    right = [name in numeric for name in widths]
    head = [wrapped(name, cells) for name, cells in widths.items()]
    tall = max(map(len, head))
    yield from side_by_side([[""] * (tall - len(name)) + name for name in head], widths, right)
    yield "─" * (sum(widths.values()) + 2 * len(widths) - 2)
    for row in range(len(next(iter(texts.values())))):
        values = {name: texts[name][row] for name in widths}
        cells = [wrapped(text, widths[name]) for name, text in values.items()]
        yield from side_by_side(cells, widths, right, [_style(*item) for item in values.items()])
        if below:
            for line in wrapped(texts[below][row], width - 2):
                yield "  " + painted(line, "2")


def _records(texts: Mapping[str, Sequence[str]], width: int) -> Iterator[str]:
    """A line a column: rows side by side where each value has room on it, else one by one."""
    name_width = min(max(map(len, texts)), width // 2)
    room = width - name_width - 2
    rows = list(zip(*texts.values(), strict=True))
    wide = [max(map(_cells, row)) for row in rows]
    beside = len(rows) > 1 and sum(wide) + 2 * len(rows) - 2 <= room
    for index, group in enumerate([rows] if beside else [[row] for row in rows]):
        if index:
            yield ""
        widths = dict(enumerate([name_width, *(wide if beside else [room])]))
        right = [False] + [beside] * len(group)
        for name, values in zip(texts, zip(*group, strict=True), strict=True):
            cells = [wrapped(name, name_width), *(wrapped(text, room) for text in values)]
            styles = ["2", *(_style(name, text) for text in values)]
            yield from side_by_side(cells, widths, right, styles)


def side_by_side(
    cells: Sequence[Sequence[str]],
    widths: Mapping[Any, int],
    right: Sequence[bool],
    styles: Sequence[str] = (),
) -> Iterator[str]:
    """The lines of cells that stand side by side."""
    for line in zip_longest(*cells, fillvalue=""):
        parts = []
        for text, width, ends, style in zip_longest(line, widths.values(), right, styles):
            gap = " " * (width - _cells(text))
            parts.append(gap + painted(text, style) if ends else painted(text, style) + gap)
        yield "  ".join(parts)


def painted(text: str, sgr: str | None) -> str:
    """The text in a style of SGR, for a terminal."""
    return f"\x1b[{sgr}m{text}\x1b[0m" if sgr and text else text


def _style(column: str, text: str) -> str:
    return SGR.get(_KINDS.get(column, {}).get(text, ""), "")


def _short(value: object, column: str) -> str:
    if isinstance(value, list) and len(value) > _LISTED:
        return f"{_cell(value[:_LISTED])}, +{len(value) - _LISTED}"
    return _cell(value, column)


def _natural(texts: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The width at which nothing of a column is broken."""
    return {name: max(map(_cells, (name, *column))) for name, column in texts.items()}


def _is_time(values: Iterable[object]) -> bool:
    return any(isinstance(value, datetime) for value in values)


def _cells(text: str) -> int:
    """Columns of a terminal that the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells that end behind blanks or what joins the parts of an id."""
    if _cells(text) <= width:
        return [text]
    from rich.cells import chop_cells

    lines = [""]
    for piece in _PIECES.findall(text):
        if _cells((lines[-1] + piece).rstrip()) <= width:
            lines[-1] += piece
        else:
            lines += chop_cells(piece, width) if _cells(piece.rstrip()) > width else [piece]
    return [line.rstrip() for line in lines if line.strip()]


def _halved(text: str) -> int:
    """The least width at which the text takes two lines; _PROSE where it is longer than that."""
    if _cells(text) > 2 * _PROSE:
        return _PROSE
    pieces = _PIECES.findall(text)
    return min(
        max(_cells("".join(pieces[:cut]).rstrip()), _cells("".join(pieces[cut:])))
        for cut in range(len(pieces) + 1)
    )


def _fit(
    texts: Mapping[str, Sequence[str]], whole: Collection[str], brief: Sequence[str], width: int
) -> dict[str, int]:
    """The columns that fit and how wide each is.

    Of the brief ones as many, from the first, as fit with no value on more than two lines; values
    in `whole` are never broken. What is left widens them, again from the first, and then takes
    more columns, each as wide as it likes to be.
    """
    natural = _natural(texts)
    widths: dict[str, int] = {}
    spare = width + 2
    for name in brief:
        values = set(texts[name])
        least = max(map(_cells, values))
        if least > _WHOLE and name not in whole:
            least = max(map(_halved, values))
        least = max(least, _halved(name))
        if least + 2 <= spare or not widths:
            widths[name] = min(least, width)
            spare -= widths[name] + 2
        elif name != _PLACE:
            break
    for name in widths:
        more = min(natural[name] - widths[name], spare)
        widths[name] += more
        spare -= more
    if all(name in widths or name == _PLACE for name in brief):
        for name in texts:
            if name not in brief and natural[name] + 2 <= spare:
                widths[name] = natural[name]
                spare -= natural[name] + 2
    return widths


# -- HTML --------------------------------------------------------------------------------------

PALETTE = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1c2330;--soft:#5b6577;--line:#e1e5ec;
--head:#f0f2f6;--accent:#2a63c6;--bar:#8fb1ee;--critical:#b3142b;--high:#c2410c;--medium:#8a6100;
--low:#2b6cb0;--good:#1a7f4b;--calm:#5b6577}
@media screen and (prefers-color-scheme:dark){:root{
--bg:#12151b;--card:#1a1f28;--ink:#e4e8ef;--soft:#9aa5b8;
--line:#2c3442;--head:#222835;--accent:#7aa7ff;--bar:#3f66a8;--critical:#ff7a8a;--high:#ff9a63;
--medium:#e9bd54;--low:#80b6f5;--good:#64cf98;--calm:#9aa5b8}}
"""
_CSS = """
*{box-sizing:border-box}
body{margin:0 auto;max-width:1560px;padding:28px 20px;background:var(--bg);color:var(--ink);
font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
font-variant-numeric:tabular-nums}
h1{font-size:24px;margin:0;letter-spacing:-.01em}
h2{font-size:18px;margin:0}
p{margin:6px 0 0;max-width:100ch}
a,summary{color:var(--accent)}
summary{cursor:pointer}
td summary{color:inherit}
footer,.soft,.null,.file{color:var(--soft)}
.sums{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:10px;
margin:20px 0 0}
.sums a{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px;
color:var(--soft);text-decoration:none}
.sums b{display:block;font-size:22px;line-height:1.25;color:var(--ink)}
nav{display:flex;flex-wrap:wrap;gap:6px 18px;margin:16px 0 0}
a:hover,a:focus-visible{border-color:var(--accent)}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:18px 20px;
margin:20px 0 0;scroll-margin-top:12px}
.taken{display:flex;flex-wrap:wrap;gap:6px;margin:10px 0 0;padding:0;list-style:none}
.taken li{background:var(--head);border-radius:5px;padding:1px 8px;font-size:.9em}
.note{border-left:3px solid var(--accent);padding-left:10px;margin-top:10px}
.scroll{overflow-x:auto;margin:14px 0 0}
.scroll+details{margin-top:10px}
table{border-collapse:separate;border-spacing:0;min-width:100%}
th{background:var(--head);text-align:left;vertical-align:bottom;font-weight:600;font-size:.9em}
th[title]{cursor:help}
th,td{padding:5px 10px}
td{border-top:1px solid var(--line);vertical-align:top;white-space:nowrap}
tbody:hover td{background:color-mix(in srgb,var(--head) 60%,var(--card))}
th:first-child,td:first-child{position:sticky;left:0}
td:first-child{background:var(--card)}
.n{text-align:right}
.m{font:.9em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.u td{position:static;border:0;padding:0 10px 8px}
.u div{position:sticky;left:10px;width:max-content;max-width:min(1476px,100vw - 106px);
white-space:pre-wrap;overflow-wrap:anywhere}
details>div{white-space:pre-wrap;overflow-wrap:anywhere;max-width:110ch}
td>details>div{width:72ch}
.badge{display:inline-block;border:1px solid currentColor;border-radius:5px;padding:0 6px;
font-size:.9em;font-weight:600}
.critical{color:var(--critical)}.high{color:var(--high)}.medium{color:var(--medium)}
.low{color:var(--low)}.good{color:var(--good)}.calm{color:var(--calm)}
svg{margin-right:8px;vertical-align:-1px}
td rect{fill:var(--bar)}
figure{margin:14px 0 0}
figure .wide{display:block}
figure svg{overflow:visible;max-width:100%;height:auto;margin:0}
figcaption{margin-top:6px;color:var(--soft);font-size:.9em;max-width:100ch}
.narrow{display:none}
@media screen and (max-width:760px){figure .wide{display:none}
figure .narrow{display:block}
body{padding:16px 10px}section{padding:14px 12px}}
footer{margin:20px 0 0}
@media print{@page{size:A4 landscape;margin:12mm}
figure{break-inside:avoid}
body{max-width:none;padding:0;background:none;font-size:9.5px}
section{border:0;padding:0}
nav,footer,.x,td summary{display:none}
.scroll{overflow:visible}
tbody{break-inside:avoid}
th,td{padding:2px 5px}
td{white-space:normal;overflow-wrap:anywhere}
.u td{padding:0 5px 4px}
.u div{position:static;width:auto;max-width:none}
details::details-content{content-visibility:visible;block-size:auto}}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_SUMMARY = (  # what it says, of which report, and what it counts or adds up
    ("clusters", "coverage", ("cluster",), False),
    ("files", "coverage", ("files_found",), True),
    ("lines", "coverage", ("lines",), True),
    ("attempts", "coverage", ("attempts",), True),
    ("failed attempts", "coverage", ("failed_attempts",), True),
    ("runs with a failure", "first-failure", ("cluster", "run_id"), False),
    ("incidents", "incidents", ("incident_id",), False),
    ("events in incidents", "incidents", ("n_events",), True),
)
_MONOSPACE = ("message", "first_lines", "last_lines", "file", "first_file", "pattern", "text")
_BELOW = (_PLACE, "message")  # of a report that has the place in brief: as wide as the page
_OPEN = 50  # rows of a table that is not folded
_AHEAD = 10  # rows that stand before the folded ones
_IN_CELL, _IN_ROW = 60, 400  # characters; longer text is folded


def _page(results: Sequence[Result]) -> str:
    """One self-contained page; it asks nothing of the network and runs no script."""
    title = results[0].report.title if len(results) == 1 else "Fleet report"
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    links = "".join(
        f'<a href="#{in_html(r.report.name)}">{in_html(r.report.title)}</a> ' for r in results
    )
    nav = f'<nav aria-label="Reports">{links}</nav>' if len(results) > 1 else ""
    room = HTML_ROWS if len(results) == 1 else PAGE_ROWS
    sections = "\n".join(_section(result, room) for result in results)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{in_html(title)} · firstfault</title>\n<style>{PALETTE}{_CSS}</style>\n"
        "</head>\n<body>\n"
        f'<header><h1>{in_html(title)}</h1><p class="soft">firstfault, {made}. All times are UTC. '
        f"{NULL} is what the logs do not say.</p>{_summary(results)}{nav}</header>\n"
        f"<main>\n{sections}\n</main>\n"
        "<footer>Hover over a column's name for what it means.</footer>\n</body>\n</html>\n"
    )


def _summary(results: Sequence[Result]) -> str:
    """A figure a tile, of the reports that are there; each leads to its report."""
    tables = {result.report.name: result.table for result in results}
    tiles = []
    for text, name, columns, adds in _SUMMARY:
        if name in tables and {*columns} <= {*tables[name].column_names}:
            rows = zip(*(tables[name].column(one).to_pylist() for one in columns), strict=True)
            found = [row for row in rows if row[-1] is not None]
            figure = sum(row[-1] for row in found) if adds else len(set(found))
            tiles.append(f'<a href="#{name}"><b>{_cell(figure)}</b>{text}</a>')
    return f'<div class="sums">{"".join(tiles)}</div>' if tiles else ""


def _section(result: Result, room: int) -> str:
    report = result.report
    parts = [f"<h2>{in_html(report.title)}</h2>"]
    if report.description:
        parts.append(f'<p class="soft">{in_html(report.description)}</p>')
    if taken := _arguments(result):
        chips = "".join(
            f"<li><b>{in_html(name)}</b> {in_html(value)}</li>" for name, value in taken
        )
        parts.append(f'<ul class="taken">{chips}</ul>')
    parts += [f'<p class="note">{in_html(note)}</p>' for note in result.notes]
    parts.append(_figure(result))
    parts.append(
        _html_table(result, room) if result.table.num_rows else '<p class="soft">No rows.</p>'
    )
    body = "\n".join(filter(None, parts))
    return f'<section id="{in_html(report.name)}">\n{body}\n</section>'


def _figure(result: Result) -> str:
    """The report's chart, for a wide screen and for a narrow one; "" where nothing is drawn."""
    chart = result.report.chart
    if chart is None or chart.kind == "bar" or not result.table.num_rows:
        return ""
    from queries import charts

    drawn = "".join(charts.inline(result, width) for width in (charts.WIDE, charts.NARROW))
    if not drawn:
        return ""
    return f"<figure>{drawn}<figcaption>{in_html(charts.caption(result))}</figcaption></figure>"


def _html_table(result: Result, room: int) -> str:
    """The rows as a table that scrolls sideways; of many, the first ones and the rest folded."""
    report, total = result.report, result.table.num_rows
    head, bodies = _html_rows(result._replace(table=result.table.slice(0, room)))
    first = _AHEAD if len(bodies) > _OPEN else len(bodies)
    ahead, rest = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{in_html(report.title)}">'
        f"<table><thead>{head}</thead>\n" + "\n".join(some) + "\n</table></div>"
        for some in (bodies[:first], bodies[first:])
    )
    if total > room:
        more = (
            f'<p class="soft">The first {room:,} of {total:,} rows; '
            f"<code>firstfault report {in_html(report.name)} --format csv</code> has all.</p>"
        )
        if room < _OPEN:
            return ahead + more
        rest += more
    if total > first:
        ahead += f"\n<details><summary>{total - first:,} more rows</summary>{rest}</details>"
    return ahead


def _html_rows(result: Result) -> tuple[str, list[str]]:
    """The row of names, and a body a row: cells, below them what is as wide as the page."""
    report, sheet = result.report, _sheet(result)
    below = [name for name in _BELOW if name in sheet and _PLACE in report.brief]
    head, cells = "", []
    for name, values in sheet.items():
        if name in below:
            continue
        numeric = _is_number(values)
        marks = (
            "n" * numeric,
            "m" * (name in _MONOSPACE),
            "x" * (name not in (report.brief or sheet)),
        )
        mark = f' class="{" ".join(filter(None, marks))}"' if any(marks) else ""
        meaning = f' title="{in_html(report.columns[name])}"' if name in report.columns else ""
        head += f'<th scope="col"{mark}{meaning}>{in_html(name).replace("_", "_<wbr>")}</th>'
        charted = numeric and report.chart and (report.chart.kind, report.chart.y) == ("bar", name)
        bars = _bars(values) if charted else [""] * len(values)
        cells.append(
            [
                f"<td{mark}>{bar}{_html_cell(value, name, _IN_CELL)}</td>"
                for bar, value in zip(bars, values, strict=True)
            ]
        )
    bodies = ["<tr>" + "".join(row) + "</tr>" for row in zip(*cells, strict=True)]
    if below:
        for row in range(len(bodies)):
            lines = "".join(
                f'<div class="{name}">{_html_cell(sheet[name][row], name, _IN_ROW)}</div>'
                for name in below
            )
            bodies[row] += f'<tr class="u"><td class="m" colspan="{len(cells)}">{lines}</td></tr>'
    return f"<tr>{head}</tr>", [f"<tbody>{body}</tbody>" for body in bodies]


def _html_cell(value: object, column: str, room: int) -> str:
    """What a cell holds; of a text longer than `room` the beginning, the whole unfolds."""
    if value is None:
        return f'<span class="null">{NULL}</span>'
    if column in _KINDS and len(str(value)) <= room:
        kind = _KINDS[column].get(str(value), "calm")
        return f'<span class="badge {kind}">{in_html(_cell(value))}</span>'
    if isinstance(value, list) and column in _MONOSPACE:
        text = "\n".join(map(_item, value))
    else:
        text = _cell(value, column)
    if len(text) <= room:
        return html.escape(text)
    begin, _, _ = text[: room - 1].partition("\n")
    return (
        f"<details><summary>{html.escape(begin)}…</summary><div>{html.escape(text)}</div></details>"
    )


def _bars(values: Sequence[Any]) -> list[str]:
    """A bar a value, as long as its share of the largest."""
    finite = [float(v) if v is not None and math.isfinite(v) else 0.0 for v in values]
    top = max(finite)
    return [
        '<svg width="80" height="10" aria-hidden="true">'
        f'<rect width="{max(80 * value / top, 0) if top > 0 else 0:.1f}" height="10" rx="2"/></svg>'
        for value in finite
    ]


def in_html(text: str) -> str:
    """Text of a log for an element or attribute of HTML."""
    return html.escape(shown(text))


# -- events ------------------------------------------------------------------------------------


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
