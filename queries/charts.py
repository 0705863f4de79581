"""Draw the chart that a report declares from its rows, as SVG or PNG; hides Altair and Vega.

A chart is data in the report's header (`report.Chart`). Log text is data here too: only the
columns that the chart names are handed on, under names of ours, and what the renderer returns is
parsed and built anew, without its ids, links and scripts. Colours are those of render.PALETTE: on
a page its variables, so that they follow light and dark; in a file the light ones.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, TypeAlias

from queries.render import NULL, shown
from queries.report import Chart, ReportError, Result

if TYPE_CHECKING:
    import altair as alt

WIDE, NARROW = 720, 330  # pixels: of a desk, of a telephone
_POINTS = 400  # of a line; more cannot be told apart
_SERIES = 6  # lines of one chart
_BARS = 12
_CELL = 56  # pixels of width that a row and a column of a heat map ask for
_LABEL = 52  # characters
_TALL = 30  # of an axis that stands upright
_TEXT = 30  # pixels that a cell needs to hold its value
_SIGNIFICANT = 0.05  # a cell of a heat map whose mask is at or above it is left empty
_ALL = "(all)"  # the series that stands for all others

_INK, _SOFT, _LINE, _CARD, _ACCENT, _BAR, _HIGH = (
    "#1c2330", "#5b6577", "#e1e5ec", "#ffffff", "#2a63c6", "#8fb1ee", "#c2410c",
)  # fmt: skip
_COLORS = {
    _INK: "ink",
    _SOFT: "soft",
    _LINE: "line",
    _CARD: "card",
    _ACCENT: "accent",
    _BAR: "bar",
    _HIGH: "high",
    "#1a7f4b": "good",
    "#8a6100": "medium",
    "#b3142b": "critical",
}
_RANGE = (_ACCENT, _HIGH, "#1a7f4b", "#8a6100", "#b3142b", _SOFT)
_PADDING = {"left": 18, "top": 6, "right": 8, "bottom": 4}  # fonts of others may be wider
_FONT = "Arial, Helvetica, Liberation Sans, sans-serif"  # as wide as the renderer measures
_CONFIG = {
    "aria": False,  # the renderer does not escape its labels; ours are title and desc
    "font": _FONT,
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {
        "labelColor": _SOFT,
        "titleColor": _SOFT,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "gridColor": _LINE,
        "domainColor": _LINE,
        "tickColor": _LINE,
    },
    "legend": {"labelColor": _INK, "labelFontSize": 12, "labelLimit": 260},
    "text": {"fontSize": 12, "color": _INK},
}
_NO_XML = re.compile("[\ufffe\uffff\ud800-\udfff]")
_SVG = "http://www.w3.org/2000/svg"
_KEPT = frozenset("svg g path line rect text tspan title desc".split())
_STRAY = re.compile(r"^(on.*|id|class|role|aria-.*|style|cursor|pointer-events|clip-path|.*href)$")

Row: TypeAlias = dict[str, Any]
Drawing: TypeAlias = "alt.Chart | alt.LayerChart | alt.FacetChart"
Names: TypeAlias = Mapping[str, str]


def svg(result: Result, width: int = WIDE) -> str:
    """A whole SVG file of the report's chart. Raises ReportError for a report without one."""
    root = _drawn(result, width)
    root.set("xmlns", _SVG)
    root.insert(2, ET.Element("rect", {"width": "100%", "height": "100%", "fill": _CARD}))
    return ET.tostring(root, encoding="unicode") + "\n"


def png(result: Result, width: int = WIDE) -> bytes:
    """The same as PNG, two dots a pixel. Raises ReportError for a report without a chart."""
    import vl_convert

    return bytes(vl_convert.svg_to_png(svg(result, width), scale=2))


def inline(result: Result, width: int) -> str:
    """An <svg> for a page that has the variables of render.PALETTE; "" without rows to draw."""
    if not _rows(result):
        return ""
    root = _drawn(result, width)
    for element in root.iter():
        for name in ("fill", "stroke"):
            if (color := element.get(name)) in _COLORS:
                element.set(name, f"var(--{_COLORS[color]})")
    return ET.tostring(root, encoding="unicode")


def caption(result: Result) -> str:
    """What the chart shows, in words."""
    chart = _chart(result)
    return chart.title or f"{chart.value or chart.y} by {chart.x}".replace("_", " ")


def _chart(result: Result) -> Chart:
    if result.report.chart is None:
        raise ReportError(
            f"report {result.report.name} declares no chart: "
            "use --format table, html or json, or add `chart` to its header"
        )
    return result.report.chart


def _drawn(result: Result, width: int) -> ET.Element:
    import vl_convert

    chart, rows = _chart(result), _rows(result)
    made = _KINDS[chart.kind](chart, rows, width, result.report.columns) if rows else _nothing()
    spec = made.to_dict(validate=False) | {"config": _CONFIG}
    spec |= {"autosize": {"type": "fit-x", "contains": "padding"}, "padding": _PADDING}
    text = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    root = _clean(ET.fromstring(text))  # noqa: S314  our renderer's, without entities
    height = root.get("height", "0")
    root.attrib = {
        "class": "wide" if width == WIDE else "narrow",
        "role": "img",
        "width": root.get("width", "0"),
        "height": height,
        "viewBox": root.get("viewBox", ""),
        "font-family": _FONT,
    }
    title, about = ET.Element("title"), ET.Element("desc")
    title.text = _text(f"{result.report.title}: {caption(result)}")
    about.text = f"{len(rows)} values drawn; the table of the report has all."
    root.insert(0, about)
    root.insert(0, title)
    return root


def _clean(element: ET.Element) -> ET.Element:
    """The drawing without names of other languages, and without what only a browser would run."""
    made = ET.Element(element.tag.rpartition("}")[2])
    made.attrib = {name: v for name, v in element.attrib.items() if not _STRAY.match(name)}
    made.text = element.text
    for child in element:
        name = child.tag.rpartition("}")[2]
        hidden = child.get("display") == "none" or (name == "path" and not child.get("d"))
        if name in _KEPT and not hidden and not _blank(child):
            made.append(_clean(child))
    return made


def _blank(element: ET.Element) -> bool:
    """A background that draws nothing."""
    return element.get("class") == "background"


# -- rows --------------------------------------------------------------------------------------


def _rows(result: Result) -> list[Row]:
    """What is drawn: x, y, lo, hi, limit, group, value, mask of each row, those that are named."""
    chart = _chart(result)
    columns = {name: result.table.column(name).to_pylist() for name in result.table.column_names}
    keep = [True] * result.table.num_rows
    for name, wanted in chart.where.items():
        texts = ["" if value is None else str(value) for value in columns[name]]
        keep = [kept and text == wanted for kept, text in zip(keep, texts, strict=True)]
    named = {
        field: columns[name]
        for field in ("x", "y", "lo", "hi", "group", "value", "mask")
        if (name := getattr(chart, field))
    }
    if chart.limit:
        upper, _, lower = chart.limit.partition(" / ")
        named["limit"] = (
            [_quotient(a, b) for a, b in zip(columns[upper], columns[lower], strict=True)]
            if lower
            else columns[upper]
        )
    rows = [
        {field: _value(values[n]) for field, values in named.items()}
        for n, kept in enumerate(keep)
        if kept
    ]
    if any(row.get("group") == _ALL for row in rows):
        rows = [row for row in rows if row["group"] == _ALL]
    series = list(dict.fromkeys(row.get("group") for row in rows))[:_SERIES]
    rows = [{**row, "group": row.get("group") or ""} for row in rows if row.get("group") in series]
    if chart.kind in ("bar", "ranking"):
        rows = [{**row, "x": NULL if row["x"] is None else row["x"]} for row in rows]
    needed = ("x", "value") if chart.kind == "heatmap" else ("x",)
    rows = [row for row in rows if all(row[field] is not None for field in needed)]
    if chart.kind == "points":
        return [row for row in rows if row["y"] is not None or row.get("lo") is not None]
    return [row for row in rows if row["y"] is not None]


def _quotient(upper: float | None, lower: float | None) -> float | None:
    return upper / lower if upper is not None and lower else None


def _value(value: object) -> Any:
    """The value as the renderer takes it: number, ISO time in UTC, or short text."""
    match value:
        case None | bool():
            return value
        case int() | float():
            return float(value) if math.isfinite(value) else None
        case date():
            return value.isoformat() + ("Z" if hasattr(value, "hour") else "T00:00:00Z")
    text = _text(str(value))
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"


def _text(text: str) -> str:
    """Text that a person can be shown and XML can hold."""
    return _NO_XML.sub("�", shown(text))


def _is_time(rows: Sequence[Row]) -> bool:
    return isinstance(rows[0]["x"], str)


# -- kinds -------------------------------------------------------------------------------------


def _base(rows: Sequence[Row]) -> alt.Chart:
    import altair as alt

    chart: alt.Chart = alt.Chart(alt.InlineData(values=list(rows)))
    return chart


def _nothing() -> Drawing:
    made: alt.Chart = _base([{"x": "nothing to draw"}]).mark_text(fontSize=14)
    return made.encode(text="x:N").properties(width=200, height=40)


def _ranking(chart: Chart, rows: Sequence[Row], width: int, names: Names) -> Drawing:
    """Bars from the longest down; a rule is an interval, a tick what was to be expected."""
    import altair as alt

    top = sorted(rows, key=lambda row: -row["y"])[:_BARS]
    base, named = _base(top), alt.Axis(labelLimit=width * 0.42)
    y = alt.Y("x:N", sort=None, title=None, axis=named)
    whole = all(row["y"].is_integer() for row in top)
    ticks = alt.Axis(
        grid=False, tickCount=width // 110, labelOverlap=True, tickMinStep=1 if whole else 0
    )
    length = alt.X("y:Q", title=_title(names, chart.y, width // 8), axis=ticks)
    room = alt.Scale(domainMin=0)
    layers = [base.mark_bar(color=_BAR, height=14).encode(x=length.scale(room), y=y)]
    if chart.lo and chart.hi:
        layers.append(base.mark_rule(color=_INK).encode(x=alt.X("lo:Q"), x2="hi:Q", y=y))
    if chart.limit:
        layers.append(base.mark_tick(color=_HIGH, thickness=2).encode(x=alt.X("limit:Q"), y=y))
    words = [{**row, "text": f"{row['y']:,.4g}"} for row in top]
    layers.append(
        _base(words)
        .mark_text(align="left", dx=4, color=_INK)
        .encode(x=alt.X("y:Q"), y=y, text="text:N")
    )
    return alt.layer(*layers).properties(width=width, height=24 * len(top))


def _line(chart: Chart, rows: Sequence[Row], width: int, names: Names) -> Drawing:
    """A line a series with its band; the limit dashed."""
    return _lines(chart, rows[-_POINTS:], width, names, "linear")


def _survival(chart: Chart, rows: Sequence[Row], width: int, names: Names) -> Drawing:
    """Steps from 1 down, with their band."""
    thinned: list[Row] = []
    for group in dict.fromkeys(row["group"] for row in rows):
        series = [row for row in rows if row["group"] == group]
        step = -(-len(series) // _POINTS)
        start = {"x": 0.0, "y": 1.0, "lo": 1.0, "hi": 1.0, "group": group}
        thinned += [start, *series[:-1:step], series[-1]]
    return _lines(chart, thinned, width, names, "step-after")


def _lines(chart: Chart, rows: Sequence[Row], width: int, names: Names, curve: Any) -> Drawing:
    import altair as alt

    base = _base(rows)
    x: alt.X = alt.X("x:T", scale=alt.Scale(type="utc")) if _is_time(rows) else alt.X("x:Q")
    form: dict[str, Any] = {"format": "%Y-%m-%d"} if _is_time(rows) else {}
    x = x.title(_title(names, chart.x, width // 8)).axis(
        grid=False, tickCount=max(width // 130, 2), labelOverlap=True, **form
    )
    y = alt.Y("y:Q", title=_title(names, chart.y, _TALL), scale=alt.Scale(domainMin=0))
    color = _series(rows)
    layers = []
    if chart.lo and chart.hi:
        band = base.mark_area(opacity=0.18, interpolate=curve)
        layers.append(band.encode(x=x, y=alt.Y("lo:Q"), y2="hi:Q", color=color))
    many = curve != "linear" or len(rows) > width / 8
    points = False if many else alt.OverlayMarkDef(size=24)
    line = base.mark_line(interpolate=curve, strokeWidth=1.8, point=points)
    layers.append(line.encode(x=x, y=y, color=color))
    if chart.limit:
        dashed = _base([row for row in rows if row["limit"] is not None]).mark_line(
            color=_HIGH, strokeDash=[5, 4], interpolate=curve, strokeWidth=1.5
        )
        layers.append(dashed.encode(x=x, y=alt.Y("limit:Q"), detail="group:N"))
    return alt.layer(*layers).properties(width=width, height=220)


def _points(chart: Chart, rows: Sequence[Row], width: int, names: Names) -> Drawing:
    """Points with intervals on logarithmic axes; a triangle is a lower limit, dashed a model."""
    import altair as alt

    known = [row for row in rows if row["y"] is not None]
    least = [row for row in rows if row["y"] is None]
    sizes = sorted({row["x"] for row in rows})
    axis = alt.Axis(values=sizes, grid=False, labelOverlap=True)
    logs = alt.Scale(type="log", nice=False, padding=18)
    x = alt.X("x:Q", title=_title(names, chart.x, width // 8), scale=logs, axis=axis)
    title, tall = _title(names, chart.y, _TALL), alt.Scale(type="log", padding=12)
    y = alt.Y("y:Q", title=title, scale=tall, axis=alt.Axis(tickCount=4, grid=False))
    color = _series(rows)
    layers = []
    if chart.limit:
        model = _base([row for row in rows if row["limit"] is not None]).mark_line(
            color=_HIGH, strokeDash=[5, 4]
        )
        layers.append(
            model.encode(x=x, y=alt.Y("limit:Q", title=title, scale=tall), detail="group:N")
        )
    bounded = [r for r in known if r.get("lo") is not None and r.get("hi") is not None]
    rule = _base(bounded).mark_rule(strokeWidth=1.5)
    layers.append(rule.encode(x=x, y=alt.Y("lo:Q", title=title), y2="hi:Q", color=color))
    layers.append(_base(known).mark_point(filled=True, size=60).encode(x=x, y=y, color=color))
    up = _base(least).mark_point(shape="triangle-up", size=90, strokeWidth=1.5)
    layers.append(up.encode(x=x, y=alt.Y("lo:Q", title=title), color=color))
    return alt.layer(*layers).properties(width=width, height=240)


def _heatmap(chart: Chart, rows: Sequence[Row], width: int, names: Names) -> Drawing:
    """Cells as dark as their value; where the mask is not significant, an empty one."""
    import altair as alt

    told = [row for row in rows if _significant(row)]
    ordered = told + [row for row in rows if not _significant(row)]
    across = _first([row["x"] for row in ordered], width // _CELL)
    down = _first([row["y"] for row in ordered], width // _CELL)
    cells = [
        {**row, "x": _words_of(row["x"]), "y": _words_of(row["y"]), "text": f"{row['value']:.3g}"}
        for row in rows
        if row["x"] in across and row["y"] in down
    ]
    filled = [cell for cell in cells if _significant(cell)]
    label = width * 0.34
    side = min((width - label - 30) / max(len(across), 1), 60)
    xs, ys = [_words_of(v) for v in across], [_words_of(v) for v in down]
    angled = any(isinstance(value, str) for value in across)
    x = alt.X(
        "x:N",
        sort=xs,
        title=None if angled else _title(names, chart.x, width // 8),
        scale=alt.Scale(domain=xs),
        axis=alt.Axis(labelAngle=-50 if angled else 0, labelLimit=label, labelOverlap=not angled),
    )
    y = alt.Y(
        "y:N",
        sort=ys,
        title=None,
        scale=alt.Scale(domain=ys),
        axis=alt.Axis(labelLimit=label),
    )
    top = max((cell["value"] for cell in filled), default=1.0)
    low = min((cell["value"] for cell in filled), default=0.0)
    shade = alt.Scale(domain=[low if low < top else 0, top], range=[0.25, 1])
    layers: list[alt.Chart] = [
        _base(cells).mark_rect(fill=_CARD, stroke=_LINE, fillOpacity=0).encode(x=x, y=y),
        _base(filled)
        .mark_rect(fill=_BAR, stroke=_LINE)
        .encode(x=x, y=y, fillOpacity=alt.FillOpacity("value:Q", scale=shade, legend=None)),
    ]
    if side >= _TEXT:
        layers.append(_base(filled).mark_text(color=_INK).encode(x=x, y=y, text="text:N"))
    return alt.layer(*layers).properties(
        width=alt.Step(side),
        height=alt.Step(26),
    )


_KINDS = {
    "bar": _ranking,
    "ranking": _ranking,
    "line": _line,
    "survival": _survival,
    "points": _points,
    "heatmap": _heatmap,
}


def _significant(row: Row) -> bool:
    return "mask" not in row or (row["mask"] is not None and row["mask"] < _SIGNIFICANT)


def _first(values: Sequence[Any], room: int) -> list[Any]:
    """The first few distinct values; numbers in their order."""
    kept = list(dict.fromkeys(values))[:room]
    return sorted(kept) if all(isinstance(value, float) for value in kept) else kept


def _words_of(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _series(rows: Sequence[Row]) -> Any:
    """A colour a series, with a legend where there are several."""
    import altair as alt

    series = list(dict.fromkeys(row["group"] for row in rows))
    scale = alt.Scale(domain=series, range=list(_RANGE[: len(series)]))
    legend = alt.Legend(title=None, orient="bottom", columns=2) if len(series) > 1 else None
    return alt.Color("group:N", scale=scale, legend=legend)


def _title(names: Names, column: str, room: int) -> str:
    """An axis in words: the first clause of what the column means, its name where that is long."""
    clause, _, _ = names.get(column, "").partition(";")
    return _text(clause) if 0 < len(clause) <= room else column.replace("_", " ")
