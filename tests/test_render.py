"""What people and machines get to see of a result, with hostile text in it."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from queries import render, report
from queries.report import Chart, Report, ReportError, Result

HOSTILE = '\x1b[31m<script>alert("x")</script> | a\rb\nc \u202e*`[l](javascript:1)\x9b=1+1'


def result(
    rows: list[dict[str, Any]],
    name: str = "made-up",
    chart: Chart | None = None,
    brief: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    types: pa.Schema | None = None,
    **arguments: Any,
) -> Result:
    table = pa.Table.from_pylist(rows, schema=types)
    columns = {column: f"What {column} means" for column in table.column_names}
    made = Report(name, name.title(), "About it.", "", columns, {}, brief, chart)
    return Result(made, arguments, table, notes)


ROW = {
    "failure": "disk-full",
    "severity": "critical",
    "ranks": [1, 2],
    "events": 12345,
    "incident_id": 2**62 + 5,
    "share": 0.0729081,
    "ts": datetime(2026, 3, 1, 12, 0, 0, 887000),
    "start": datetime(2026, 3, 1, 12, 0, 0, 5),
    "capped": True,
    "message": None,
}


def text(results: list[Result], format_: str, **keys: Any) -> str:
    rendered = render.render(results, format_, **keys)
    assert isinstance(rendered, str)
    return rendered


# -- terminal ----------------------------------------------------------------------------------


def test_a_table_says_what_was_taken_and_shows_values_short() -> None:
    shown = text(
        [result([ROW], window_s=300.0, cluster=None, notes=("a note",))], "table", width=160
    )
    assert shown.splitlines() == [
        "Made-Up",
        "window_s 300",
        "failure    severity  ranks  events          incident_id   share  "
        "ts                       start                capped  message",
        "─" * 126,
        "disk-full  critical  1, 2   12,345  4611686018427387909  0.0729  "
        "2026-03-01 12:00:00.887  2026-03-01 12:00:00  yes     –",
        "a note",
    ]


FAILURE = {
    "run": "pretrain-000eae",
    "failure": "nvme-offload-checkpoint-race",
    "initiating_rank": 10,
    "ts": datetime(2026, 1, 5, 9, 57),
    "file": "aurelia/pretrain-000eae/gpu-a003/worker-1.log",
    "line": 1180,
    "message": "FileExistsError: [Errno 17] File exists",
    "cluster": "aurelia",
}
BRIEF = ("failure", "run", "initiating_rank", "ts", "file", "line")


def test_brief_columns_come_first_and_a_place_without_room_goes_below_its_row() -> None:
    made = result([FAILURE] * 4, brief=BRIEF)
    assert text([made], "table", width=64).splitlines() == [
        "Made-Up",
        "failure                       run              initiating_rank",
        "─" * 62,
        *[
            "nvme-offload-checkpoint-race  pretrain-000eae               10",
            "  aurelia/pretrain-000eae/gpu-a003/worker-1.log:1180",
        ]
        * 4,
        "3 more columns: --format json",
    ]
    wide = text([made], "table", width=200).splitlines()
    assert wide[1].split() == [
        "failure",
        "run",
        "initiating_rank",
        "ts",
        "file",
        "message",
        "cluster",
    ]
    assert wide[-1].split()[5] == "aurelia/pretrain-000eae/gpu-a003/worker-1.log:1180"
    assert len(wide) == 7


def test_an_id_ends_its_line_where_its_parts_meet_and_the_last_columns_give_way() -> None:
    row = {"a": "nvme-offload-checkpoint-race", "b": "torchelastic-child-failed", "c": "x" * 30}
    made = result([row] * 4, brief=("a", "b", "c"))
    shown = text([made], "table", width=34).splitlines()
    assert [shown[3:5], shown[-1]] == [
        ["nvme-offload-        torchelastic-", "checkpoint-race      child-failed"],
        "1 more column: --format json",
    ]


def test_few_rows_that_have_no_room_side_by_side_are_records() -> None:
    made = result([FAILURE] * 2, brief=BRIEF)
    record = [
        "failure          nvme-offload-",
        "                 checkpoint-race",
        "run              pretrain-000eae",
        "initiating_rank  10",
        "ts               2026-01-05",
        "                 09:57:00",
        "file             aurelia/pretrain-",
        "                 000eae/gpu-a003/",
        "                 worker-1.log:1180",
        "message          FileExistsError:",
        "                 [Errno 17] File",
        "                 exists",
    ]
    assert text([made], "table", width=35).splitlines() == [
        "Made-Up",
        *record,
        "",
        *record,
        "1 more column: --format json",
    ]


def test_records_of_short_values_stand_side_by_side() -> None:
    rows: list[dict[str, Any]] = [
        {"cluster": "aurelia", "files": 513, "lines": 1030},
        {"cluster": None, "files": 2},
    ]
    made = result(rows, brief=("cluster", "files", "lines"))
    assert text([made], "table", width=20).splitlines()[1:] == [
        "cluster  aurelia  –",
        "files        513  2",
        "lines      1,030  –",
    ]


@pytest.mark.parametrize("rows", [2, 9])
@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
def test_a_table_fits_its_width_and_counts_what_it_leaves_out(width: int, rows: int) -> None:
    row = {f"column_{n}": f"some words that go on {n}" for n in range(20)}
    row["path"] = "x" * 300
    row["wide"] = "語" * 100
    shown = text([result([row] * rows, brief=("path", "wide"))], "table", width=width)
    assert max(cell_len(line) for line in shown.splitlines()) <= width
    assert shown.count("x") == rows * 300
    names = {name for name in row if re.search(rf"(?m)(^| ){name}\b", shown)}
    if width >= 40:  # below, names are broken, too
        assert shown.splitlines()[-1] == f"{22 - len(names)} more columns: --format json"


@given(st.text(), st.integers(20, 60))
def test_wrapped_text_loses_nothing_but_blanks(value: str, width: int) -> None:
    rows = text([result([{"a": value}] * 4)], "table", width=width).splitlines()[3:]
    assert "".join("".join(rows).split()) == "".join(render.shown(value).split()) * 4


@pytest.mark.parametrize("name", report.names())
def test_every_report_fits_80_columns_and_uses_200(name: str) -> None:
    definition = report.load(name)
    row = dict.fromkeys(definition.columns, "some-value-of-it")
    made = Result(definition, {}, pa.Table.from_pylist([row] * 4))
    narrow, wide = (text([made], "table", width=width) for width in (80, 200))
    assert max(map(len, narrow.splitlines())) <= 80
    assert 160 < max(map(len, wide.splitlines())) <= 200
    assert definition.brief[0] in narrow


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.3333333, "0.333"),
        (1.0, "1"),
        (3.02034e-08, "3.02e-08"),
        (12.34567, "12.35"),
        (999.97, "1,000"),
        (7013.44, "7,013.4"),
        (9999, "9,999"),
        (float("nan"), "–"),
        ([1200, 1201], "1200, 1201"),
        ([("comm", "0x5"), ("rank", "7")], "comm=0x5, rank=7"),
    ],
)
def test_values_are_short(value: object, shown: str) -> None:
    types = pa.schema({"n": pa.map_(pa.string(), pa.string())}) if "=" in shown else None
    made = result([{"n": value}], types=types)
    assert text([made], "table", width=80).splitlines()[-1].strip() == shown


def test_columns_of_one_name_are_told_apart() -> None:
    table = pa.Table.from_arrays([pa.array([n]) for n in (1, 2, 3)], names=["a", "a", "a"])
    made = result([])._replace(table=table)
    assert json.loads(text([made], "json")) == [{"a": 1, "a_2": 2, "a_3": 3}]
    assert text([made], "table", width=80).splitlines()[1].split() == ["a", "a_2", "a_3"]


def test_log_text_cannot_steer_the_terminal() -> None:
    shown = text([result([{"message": HOSTILE}])], "table", width=200)
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown
    assert '\\x1b[31m<script>alert("x")</script> | a b c \\u202e*`[l](javascript:1)\\x9b' in shown


@given(st.text())
def test_shown_text_is_one_printable_line(value: str) -> None:
    shown = render.shown(value)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert render.shown(shown) == shown


def test_color_is_only_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    painted = text([result([ROW])], "table", width=200, color=True)
    plain = text([result([ROW])], "table", width=200)
    assert "\x1b[1;31mcritical\x1b[0m" in painted
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert text([result([ROW])], "table", width=200) == painted
    monkeypatch.setenv("NO_COLOR", "1")
    assert text([result([ROW])], "table", width=200) == plain


def test_no_rows_are_said() -> None:
    empty = result([], types=pa.schema({"a": pa.int64()}))
    assert text([empty], "table", width=80) == "Made-Up\nno rows\n"
    assert "No rows." in text([empty], "markdown")
    assert "No rows." in text([empty], "html")
    assert text([empty], "json") == "[]\n"
    assert text([empty], "csv") == "a\r\n"


# -- machines ----------------------------------------------------------------------------------


def test_json_is_a_list_of_row_objects() -> None:
    row = {**ROW, "message": HOSTILE, "bad": float("nan"), "map": [("a", "b")]}
    types = pa.Table.from_pylist([row | {"map": None}]).schema
    types = types.set(
        types.get_field_index("map"), pa.field("map", pa.map_(pa.string(), pa.string()))
    )
    assert json.loads(text([result([row], types=types)], "json")) == [
        {
            **ROW,
            "ts": "2026-03-01T12:00:00.887000Z",
            "start": "2026-03-01T12:00:00.000005Z",
            "message": HOSTILE,
            "bad": None,
            "map": {"a": "b"},
        }
    ]


def test_json_of_several_reports_is_by_name() -> None:
    both = [result([{"n": 1}], "one"), result([], "two", types=pa.schema({"n": pa.int64()}))]
    assert json.loads(text(both, "json")) == {"one": [{"n": 1}], "two": []}


def test_csv_is_faithful_and_parquet_keeps_types() -> None:
    rows: list[dict[str, Any]] = [{**ROW, "message": HOSTILE}, {**ROW, "message": '=1+1,"q"'}]
    made = result(rows)
    found = list(csv.DictReader(io.StringIO(text([made], "csv"), newline="")))
    assert [row["message"] for row in found] == [HOSTILE, '=1+1,"q"']
    assert found[0]["ranks"] == "[1, 2]"
    assert found[0]["capped"] == "true"
    assert text([result([ROW])], "csv").endswith(",true,\r\n")
    parquet = render.render([made], "parquet")
    assert isinstance(parquet, bytes)
    assert pq.read_table(io.BytesIO(parquet)).to_pylist() == rows


def test_formats_of_one_report_and_unknown_ones_say_what_to_do() -> None:
    two = [result([ROW]), result([ROW])]
    for format_ in ("csv", "parquet"):
        with pytest.raises(ReportError, match=f"^{format_} holds one report, not 2: name one"):
            render.render(two, format_)
    with pytest.raises(ReportError, match="use one of table, json, csv"):
        render.render(two, "xml")


# -- Markdown and HTML -------------------------------------------------------------------------


def test_markdown_escapes_what_would_be_markup() -> None:
    made = result([{"n": 1, "message": HOSTILE}], window_s=300.0, notes=("a | note",))
    assert text([made], "markdown") == (
        "## Made-Up\n\nAbout it.\n\n`window_s=300`\n\n"
        "| n | message |\n| ---: | --- |\n"
        '| 1 | \\\\x1b\\[31m&lt;script&gt;alert("x")&lt;/script&gt; \\| a b c '
        "\\\\u202e\\*\\`\\[l\\](javascript:1)\\\\x9b=1+1 |\n\na \\| note\n"
    )


class Page(HTMLParser):
    """Tags, attributes and cells of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.cells: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def test_a_page_stands_alone_and_log_text_stays_text() -> None:
    row = {HOSTILE: 1, "message": HOSTILE, "file": HOSTILE, "severity": HOSTILE, "run": HOSTILE}
    made = result([row], name=HOSTILE, notes=(HOSTILE,), job=HOSTILE)
    page = Page(text([made, result([ROW])], "html"))
    assert set(page.tags) <= {
        "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "p", "nav", "a",
        "span", "main", "section", "ul", "li", "b", "div", "table", "thead", "tbody", "tr", "th",
        "td", "details", "summary", "wbr", "footer",
    }  # fmt: skip
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert name != "src"
        assert name != "href" or (value or "").startswith("#")
    page_text = text([made], "html")
    assert "url(" not in page_text
    assert "http" not in page_text.replace("http-equiv", "")
    assert "\x1b" not in page_text


def test_a_page_has_a_section_a_report_with_readable_cells() -> None:
    page = text([result([ROW], "one", window_s=300.0), result([ROW], "two")], "html")
    assert re.findall(r'<section id="(\w+)">', page) == ["one", "two"]
    assert "<li><b>window_s</b> 300</li>" in page
    assert '<th scope="col" class="n" title="What events means">events</th>' in page
    assert '<td><span class="badge critical">critical</span></td>' in page
    assert '<td class="n">12,345</td>' in page
    assert "<td>2026-03-01 12:00:00.887</td>" in page
    assert '<td class="m"><span class="null">–</span></td>' in page
    assert "prefers-color-scheme:dark" in page


def test_a_page_has_place_and_message_below_their_row_and_folds_what_is_long() -> None:
    rows = [FAILURE, {**FAILURE, "message": "word " * 1000}]
    page = text([result(rows, brief=BRIEF)], "html")
    assert "line" not in re.findall(r"<th [^>]*>(\w+)</th>", page)
    assert (
        '<tr class="u"><td class="m" colspan="5">'
        '<div class="file">aurelia/pretrain-000eae/gpu-a003/worker-1.log:1180</div>'
        '<div class="message">FileExistsError: [Errno 17] File exists</div></td></tr>'
    ) in page
    assert f"…</summary><div>{'word ' * 1000}</div></details>" in page


def test_a_page_draws_bars_where_a_report_asks_for_them() -> None:
    rows: list[dict[str, Any]] = [{"x": "a<b", "n": 4}, {"x": "c", "n": 1}, {"x": None, "n": None}]
    page = text([result(rows, chart=Chart("bar", "x", "n"))], "html")
    assert re.findall(r'<rect width="([\d.]+)" height="10" rx="2"/></svg>(\d?)', page) == [
        ("80.0", "4"),
        ("20.0", "1"),
        ("0.0", ""),
    ]
    assert "<rect" not in text([result(rows)], "html")


def test_a_page_sums_up_the_reports_that_are_there() -> None:
    coverage: list[dict[str, Any]] = [
        {"cluster": "a", "files_found": 1000, "lines": 7},
        {"cluster": None, "files_found": 2, "lines": None},
    ]
    failures: list[dict[str, Any]] = [
        {"cluster": c, "run_id": r} for c, r in (("a", "1"), ("a", "1"), ("b", "1"))
    ]
    page = text([result(coverage, "coverage"), result(failures, "first-failure")], "html")
    assert re.findall(r'<a href="#([\w-]+)"><b>([\d,]+)</b>([\w ]+)</a>', page) == [
        ("coverage", "1", "clusters"),
        ("coverage", "1,002", "files"),
        ("coverage", "7", "lines"),
        ("first-failure", "2", "runs with a failure"),
    ]


def test_a_page_folds_the_rows_behind_the_first_and_says_what_is_not_on_it() -> None:
    page = text([result([{"n": n} for n in range(2500)])], "html")
    assert page.count("<tbody>") == render.HTML_ROWS
    ahead, folded = page.split("<details><summary>2,490 more rows</summary>")
    assert ahead.count("<tbody>") == 10
    assert "The first 1,000 of 2,500 rows" in folded
    assert "<details>" not in text([result([{"n": n} for n in range(50)])], "html")


# -- files -------------------------------------------------------------------------------------


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    render.write(path, "é")
    render.write(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o444
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]
    with pytest.raises(ReportError, match="cannot be written"):
        render.write(path / "below-a-file", "x")


def test_a_link_or_device_is_written_to_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "stdout").symlink_to(tmp_path / "real")
    render.write(tmp_path / "stdout", "x")
    assert ((tmp_path / "stdout").is_symlink(), (tmp_path / "real").read_text()) == (True, "x")


# -- events and catalogue entries --------------------------------------------------------------

EVENT = {
    "path": "a/log",
    "line_no": 7,
    "ts": datetime(2026, 3, 1, 12),
    "host": None,
    "rank": 3,
    "failure": "disk-full",
    "role": "cause",
    "repeats": 1200,
    "captures": [("errno", "28")],
    "message": "No space\x1b left",
}


def test_an_event_is_one_line_of_text_or_json() -> None:
    assert render.event_line(EVENT) == (
        "a/log:7  2026-03-01 12:00:00  rank 3  disk-full (cause)  ×1,200  No space\\x1b left"
    )
    line = render.event_json(EVENT)
    assert "\n" not in line
    assert json.loads(line) == EVENT | {
        "ts": "2026-03-01T12:00:00Z",
        "captures": {"errno": "28"},
    }


def test_of_several_reports_each_shows_its_first_rows_and_the_command_for_the_others() -> None:
    long = result([{"n": number} for number in range(50)])
    alone = text([long], "table", width=80)
    assert "\n49" in alone
    assert "more row" not in alone
    both = text([long, long], "table", width=80)
    assert both.count("30 more rows: firstfault report") == 2
    assert "\n19" in both
    assert "\n20" not in both
