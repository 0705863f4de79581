"""Charts: what is drawn is what the rows say, and log text in them stays text."""

from __future__ import annotations

import itertools
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from queries import charts, render, report
from queries.report import Chart, Report, ReportError, Result
from tests.browser import Browser, browser
from tests.database import Event, database, empty, run
from tests.support import ROOT

HOSTILE = '</text></svg><script>document.title="pwned"</script>\x1b[31m\u202e\uffff" onload="1'


def result(rows: list[dict[str, Any]], chart: Chart | None, **columns: str) -> Result:
    table = pa.Table.from_pylist(rows)
    names = {name: columns.get(name, "") for name in table.column_names}
    return Result(Report("made-up", "Made up", "About it.", "", names, {}, (), chart), {}, table)


def texts(drawn: str) -> list[str]:
    """The words of a drawing, title and description left out."""
    return [t.text or "" for t in ET.fromstring(drawn).iter() if t.tag.rpartition("}")[2] == "text"]


def drawn(made: Result) -> str:
    return charts.inline(made, charts.WIDE)


def paths(svg: str, color: str) -> list[str]:
    """The shapes of a colour, filled or stroked."""
    found = []
    for element in ET.fromstring(svg).iter():
        if color in (element.get("fill"), element.get("stroke")) and element.get("d"):
            found.append(element.get("d") or "")
    return found


def points(path: str) -> list[tuple[float, float]]:
    """The corners of a path of straight lines, moves included."""
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+),([-\d.]+)", path)]


RANKS = [
    {"failure": "a", "h": 10.25},
    {"failure": "b", "h": 41.0},
    {"failure": None, "h": 1.5},
    {"failure": "c", "h": None},
]
RANKING = Chart("ranking", "failure", "h", title="Hours")


def test_bars_are_ranked_and_as_long_as_their_values() -> None:
    svg = drawn(result(RANKS, RANKING))
    words = [t for t in texts(svg) if t in ("a", "b", "c", "–", "10.25", "41", "1.5")]
    assert sorted(words) == sorted(["b", "a", "–", "41", "10.25", "1.5"])
    assert [t for t in words if "1" in t] == ["41", "10.25", "1.5"]
    widths = [float(w) for d in paths(svg, "var(--bar)") for w in re.findall(r"h([\d.]+)v", d)]
    assert len(widths) == 3
    assert widths[0] == pytest.approx(4 * widths[1], rel=1e-3)


def test_of_many_bars_the_longest_are_drawn() -> None:
    rows = [{"x": f"host-{n:03}", "y": float(n)} for n in range(500)]
    hosts = [t for t in texts(drawn(result(rows, Chart("ranking", "x", "y")))) if "host" in t]
    assert hosts == [f"host-{n:03}" for n in range(499, 487, -1)]


def test_only_rows_that_the_chart_asks_for_are_drawn() -> None:
    rows = [
        {"row": "total", "cause": "all", "h": 51.5, "scope": None},
        {"row": "cause", "cause": "a", "h": 31.5, "scope": None},
        {"row": "cause", "cause": "b", "h": 21.5, "scope": "b"},
    ]
    chart = Chart("ranking", "cause", "h", where={"row": "cause", "scope": ""})
    words = texts(drawn(result(rows, chart)))
    assert {"a", "31.5"} <= set(words)
    assert {"all", "51.5", "b", "21.5"}.isdisjoint(words)


def test_a_trend_has_a_corner_a_day_and_its_limit_dashed() -> None:
    rows = [
        {"day": date(2026, 3, n), "c": c, "n": n * k, "ucl": None if n == 1 else 9.0}
        for c, k in (("(all)", 2), ("east", 1))
        for n in (1, 2, 4)
    ]
    svg = drawn(result(rows, Chart("line", "day", "n", limit="ucl", group="c")))
    line, *others = (p for p in map(points, paths(svg, "var(--accent)")) if len(p) > 1)
    assert others == []  # (all) stands for the others
    (x1, y1), (x2, y2), (x4, y4) = line
    assert x4 - x2 == pytest.approx(2 * (x2 - x1), rel=1e-3)
    assert y1 - y4 == pytest.approx(3 * (y1 - y2), rel=1e-3)
    assert len(points(paths(svg, "var(--high)")[0])) == 2
    assert "2026-03-01" in texts(svg)


def test_survival_steps_down_from_one_and_ends_where_it_is_not_known() -> None:
    rows = [
        {"t": 1.0, "s": 0.5, "lo": 0.2, "hi": 0.8},
        {"t": 2.0, "s": 0.25, "lo": 0.1, "hi": 0.6},
        {"t": 3.0, "s": None, "lo": None, "hi": None},
    ]
    svg = drawn(result(rows, Chart("survival", "t", "s", lo="lo", hi="hi")))
    line = next(d for d in paths(svg, "var(--accent)") if "Z" not in d)
    corners = points(line)
    assert corners[0][0] == pytest.approx(0)
    assert corners[0][1] == pytest.approx(0)
    assert corners[-1][1] == pytest.approx(220 * 0.75, abs=0.5)
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in itertools.pairwise(corners))


def test_a_curve_of_many_attempts_is_thinned_to_what_an_eye_can_tell_apart() -> None:
    rows = [{"t": n / 1000, "s": 1 - n / 20_000} for n in range(1, 10_001)]
    svg = drawn(result(rows, Chart("survival", "t", "s")))
    assert len(svg) < 40_000
    assert points(paths(svg, "var(--accent)")[0])[-1][1] == pytest.approx(110, abs=0.5)


def test_a_size_without_failures_is_a_triangle_and_the_model_is_dashed() -> None:
    rows = [
        {"n": 8.0, "mttf": 64.0, "lo": 32.0, "hi": 128.0, "h": 640.0, "e": 10.0},
        {"n": 64.0, "mttf": 8.0, "lo": 4.0, "hi": 16.0, "h": 80.0, "e": 10.0},
        {"n": 512.0, "mttf": None, "lo": 2.0, "hi": None, "h": 10.0, "e": 10.0},
        {"n": 513.0, "mttf": None, "lo": None, "hi": None, "h": None, "e": 0.0},
    ]
    chart = Chart("points", "n", "mttf", lo="lo", hi="hi", limit="h / e")
    svg = drawn(result(rows, chart))
    model = points(paths(svg, "var(--high)")[0])
    assert len(model) == 3
    slopes = {round((b[1] - a[1]) / (b[0] - a[0]), 3) for a, b in itertools.pairwise(model)}
    assert len(slopes) == 1  # 1/N is straight where both axes are logarithmic
    assert [t for t in texts(svg) if t in ("8", "64", "512", "513")][:3] == ["8", "64", "512"]
    assert len([d for d in paths(svg, "var(--accent)") if "A" in d]) == 2
    assert len([d for d in paths(svg, "var(--accent)") if d.count("L") == 2]) == 1


def test_a_pair_that_is_not_found_is_an_empty_cell() -> None:
    rows = [
        {"a": "x", "b": "y", "lift": 8.0, "q": 0.01},
        {"a": "x", "b": "z", "lift": 9.0, "q": 0.05},
        {"a": "y", "b": "z", "lift": 7.0, "q": None},
    ]
    svg = drawn(result(rows, Chart("heatmap", "a", "b", value="lift", mask="q")))
    assert {"8", "x", "y", "z"} <= set(texts(svg))
    assert {"9", "7"}.isdisjoint(texts(svg))
    assert len(paths(svg, "var(--bar)")) == 1


def test_ranks_of_a_heat_map_are_in_their_order() -> None:
    rows = [{"rank": r, "run": "7", "ratio": 1.5} for r in (100, 20, 3)]
    words = texts(drawn(result(rows, Chart("heatmap", "rank", "run", value="ratio"))))
    assert [t for t in words if t in ("3", "20", "100")] == ["3", "20", "100"]


@pytest.mark.parametrize("kind", ["ranking", "line", "heatmap"])
def test_log_text_in_a_chart_stays_text(kind: str) -> None:
    rows = [{"x": HOSTILE, "y": 1.0, "g": HOSTILE}, {"x": "b", "y": 2.0, "g": HOSTILE + "2"}]
    if kind == "line":
        rows = [{**row, "x": float(n), "y": 1.0} for n, row in enumerate(rows)]
    chart = Chart(kind, "x", "y", group="g" if kind == "line" else "", value="y", title=HOSTILE)
    made = result(rows, chart, x=HOSTILE, y=HOSTILE)
    for svg in (drawn(made), charts.svg(made)):
        root = ET.fromstring(svg)
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert tags <= {"svg", "g", "path", "line", "rect", "text", "tspan", "title", "desc"}
        named = {name for element in root.iter() for name in element.attrib}
        assert not {name for name in named if name.startswith(("on", "id", "href", "style"))}
        assert render.shown(HOSTILE)[:20] in "".join(root.itertext())
        assert not re.search("[\x00-\x08\x1b\u202e\uffff]|<script", svg)


def test_a_chart_is_named_for_those_who_do_not_see_it() -> None:
    root = ET.fromstring(drawn(result(RANKS, RANKING)))
    assert root.get("role") == "img"
    assert [(child.tag, child.text) for child in list(root)[:2]] == [
        ("title", "Made up: Hours"),
        ("desc", "3 values drawn; the table of the report has all."),
    ]


def test_colours_follow_the_page_and_are_fixed_in_a_file() -> None:
    made = result(RANKS, RANKING)
    assert not re.search(r'(fill|stroke)="#', drawn(made))
    whole = charts.svg(made)
    assert "var(" not in whole
    assert '<rect width="100%" height="100%" fill="#ffffff" />' in whole
    assert set(re.findall(r"var\(--(\w+)\)", drawn(made))) <= set(
        re.findall(r"--(\w+):", render.PALETTE)
    )


def test_a_single_chart_is_written_as_svg_and_png() -> None:
    made = result(RANKS, RANKING)
    svg, png = render.render([made], "svg"), render.render([made], "png")
    assert isinstance(svg, str)
    assert svg.startswith('<svg class="wide" role="img"')
    assert 'xmlns="http://www.w3.org/2000/svg"' in svg
    assert isinstance(png, bytes)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24])[0] == 2 * int(ET.fromstring(svg).attrib["width"])


@pytest.mark.parametrize("format_", ["svg", "png"])
def test_a_report_without_a_chart_says_so(format_: str) -> None:
    with pytest.raises(ReportError) as caught:
        render.render([result(RANKS, None)], format_)
    assert str(caught.value) == (
        "report made-up declares no chart: use --format table, html or json, or add `chart` to "
        "its header"
    )


CHARTED = [one.name for one in report.all_reports() if one.chart]


@pytest.mark.parametrize("name", CHARTED)
def test_a_database_without_rows_has_nothing_to_draw(name: str) -> None:
    made = report.run(empty(), report.load(name))
    assert drawn(made) == ""
    assert texts(charts.svg(made)) == ["nothing to draw"]


def test_a_page_loads_what_draws_only_where_there_is_a_chart() -> None:
    code = (
        "import sys, pyarrow as pa\nfrom queries import render, report\n"
        "one = report.Report('r', 'R', '', '', {'n': ''}, {})\n"
        "render.render([report.Result(one, {}, pa.table({'n': [1]}))], 'html')\n"
        "print([m for m in ('altair', 'vl_convert') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


# -- in a browser ------------------------------------------------------------------------------


ON_PAGE = (
    *("coverage", "failure-mix", "first-failure", "incidents", "co-occurrence", "failure-rate"),
    *("time-to-failure", "trend", "lemon-nodes"),
)


@pytest.fixture(scope="module")
def results() -> list[Result]:
    files = [
        run(
            f"r{n}/log",
            Event("disk-full", t=3600.0 * n, rank=0, host=f"h{n % 3}", message=HOSTILE),
            Event("gpu-oom", t=3600.0 * n + 9, rank=1, host="h9", message=HOSTILE),
        )
        for n in range(30)
    ]
    jobs = [
        {
            "cluster": "c",
            "job": f"r{n}",
            "state": "failed",
            "gpus": 8.0 * (1 + n % 2),
            "nodes": 1,
            "start_ts": datetime(2026, 3, 1),
            "end_ts": datetime(2026, 3, 2 + n % 9),
            "source": "sacct",
        }
        for n in range(30)
    ]
    with database(*files, tables={"jobs": jobs}) as con:
        return [report.run(con, report.load(name)) for name in ON_PAGE]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory, results: list[Result]) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("charts")
    page = render.render(results, "html")
    assert isinstance(page, str)
    (folder / "page.html").write_text(page)
    with browser(folder) as one:
        one.size(1280, 900)
        one.open(folder / "page.html")
        yield one


def table(tab: Browser, name: str) -> list[list[str]]:
    """The rows of a report on the page, cells as text."""
    script = (
        f"[...document.querySelectorAll('#{name} tbody>tr:not(.u)')]"
        ".map(r=>[...r.cells].map(c=>c.textContent))"
    )
    found: list[list[str]] = tab.run(script)
    return found


def test_a_page_shows_what_the_database_says(tab: Browser, results: list[Result]) -> None:
    made = {one.report.name: one for one in results}
    for name in ("coverage", "failure-mix", "trend", "failure-rate"):
        rows = made[name].table.to_pylist()
        assert rows
        heads = tab.run(f"[...document.querySelectorAll('#{name} thead th')].map(h=>h.textContent)")
        for shown, row in zip(table(tab, name), rows[: render.PAGE_ROWS], strict=True):
            assert dict(zip(heads, shown, strict=True)) == {
                head: render._cell(row[head], head) for head in heads
            }
    counts = tab.run("[...document.querySelectorAll('section')].map(s=>[s.id,s.innerText])")
    for name, text in counts:
        total = made[name].table.num_rows
        more = f"The first {render.PAGE_ROWS} of {total:,} rows"
        assert (more in text) == (total > render.PAGE_ROWS)


def test_a_chart_on_a_page_shows_what_the_database_says(
    tab: Browser, results: list[Result]
) -> None:
    mix = next(one for one in results if one.report.name == "failure-mix").table.to_pylist()
    words = tab.run(
        "[...document.querySelectorAll('#failure-mix .wide text')].map(t=>t.textContent)"
    )
    assert mix
    for row in mix:
        assert {row["failure"], f"{row['gpu_h']:,.4g}"} <= set(words)


@pytest.mark.parametrize(("width", "seen"), [(1280, "wide"), (390, "narrow")])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_its_screen_and_is_legible(
    tab: Browser, width: int, seen: str, scheme: str
) -> None:
    tab.size(width, 900)
    tab.scheme(scheme)
    assert tab.run("document.documentElement.scrollWidth") <= width
    drawings = "[...document.querySelectorAll('figure svg')]"
    kinds = tab.run(f"{drawings}.filter(s=>s.checkVisibility()).map(s=>s.classList[0])")
    assert set(kinds) == {seen}
    assert tab.run(f"{drawings}.every(s=>s.getBoundingClientRect().right<=innerWidth)")
    small = f"{drawings}.filter(s=>s.checkVisibility())"
    heights = f"{small}.flatMap(s=>[...s.querySelectorAll('text')])"
    assert tab.run(f"Math.min(...{heights}.map(t=>parseFloat(getComputedStyle(t).fontSize)))") >= 10
    scale = f"{small}.map(s=>s.getBoundingClientRect().width/s.viewBox.baseVal.width)"
    assert tab.run(f"Math.min(...{scale})") > 0.9
    colors = {
        tab.run("getComputedStyle(document.querySelector('figure text')).fill"),
        tab.run("getComputedStyle(document.querySelector('section')).backgroundColor"),
    }
    dark = {"rgb(154, 165, 184)", "rgb(26, 31, 40)"}
    light = {"rgb(91, 101, 119)", "rgb(255, 255, 255)"}
    assert colors == (dark if scheme == "dark" else light)


def test_tables_that_scroll_are_reached_by_keyboard(tab: Browser) -> None:
    regions = "[...document.querySelectorAll('.scroll')]"
    assert tab.run(f"{regions}.every(r=>r.tabIndex===0&&r.getAttribute('aria-label'))")
    tab.run("document.activeElement.blur();scrollTo(0,0)")
    tab.press("Tab")
    assert tab.run("document.activeElement.tagName") == "A"


def test_a_page_with_charts_runs_nothing_and_asks_for_nothing(tab: Browser) -> None:
    assert tab.run("document.title") == "Fleet report · firstfault"
    assert tab.complaints == []
    assert [Path(address).name for address in tab.addresses] == ["page.html"]
