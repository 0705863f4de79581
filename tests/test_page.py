"""The HTML page in a real browser: hostile log text is shown, not run, and nothing is loaded."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from datetime import datetime
from html.parser import HTMLParser
from typing import NamedTuple

import pyarrow as pa
import pytest

from queries import render
from queries.report import Chart, Report, Result

PWN = "document.title='pwned';document.body.id='pwned'"
HOSTILE = {
    "script": f"<script>{PWN}</script>",
    "cell": f"</td></tr></table></style></title><script>{PWN}</script>",
    "image": f'<img src=x onerror="{PWN}"><svg onload="{PWN}"><iframe srcdoc="<script>1</script>">',
    "attribute": f'" autofocus onfocus="{PWN}" x="',
    "comment": f"<!-- --><script>{PWN}</script><![CDATA[ ]]>",
    "link": f'[a](javascript:{PWN}) <a href="javascript:{PWN}">x</a> https://example.org/x.js',
    "style": "<style>*{display:none}</style><link rel=stylesheet href=//example.org/x.css>",
    "meta": '<meta http-equiv="refresh" content="0;url=//example.org"><base href="//example.org">',
    "sql": "'; DROP TABLE events; --",
    "formula": '=HYPERLINK("//example.org")',
    "entity": "&lt;b&gt; &#60;script&#62; &amp;",
    "rtl": "שגיאה: הדיסק מלא خطأ في القرص",
    "emoji": "🔥 GPU 💀 日本語",
    "long": "RuntimeError: " + "out of memory " * 360,
    "unbroken": "A" * 5000,
}
CONTROLS = "\x1b[2J\x1b]0;pwned\x07 \u202egnp.exe \x00 \r\n \x9b31m"


class Seen(NamedTuple):
    """What a browser made of the page."""

    title: str
    dom: str


class Document(HTMLParser):
    """Tags, addresses, handlers, and the text of cells, of which `…` begins a folded one."""

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.texts: set[str] = set()
        self.feed(dom)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [v or "" for k, v in attrs if k in ("href", "src", "srcset", "action")]
        self.handlers += [k for k, _ in attrs if k.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.texts.add(data)


def page() -> str:
    rows = [
        {
            "run": text,
            "failure": "disk-full",
            "severity": text,
            "ts": datetime(2026, 3, 1, 12),
            "file": text,
            "line": 7,
            "message": text,
            "first_lines": [text, text],
            "events": 3,
        }
        for text in (*HOSTILE.values(), CONTROLS)
    ]
    table = pa.Table.from_pylist(rows)
    hostile = HOSTILE["cell"]
    brief = ("run", "failure", "file", "line")
    columns = dict.fromkeys(table.column_names, HOSTILE["attribute"])
    definition = Report(
        "first-failure", hostile, hostile, "", columns, {}, brief, Chart("bar", "run", "events")
    )
    many = Report("made-up", "Many", "", "", {hostile: ""}, {})
    return str(
        render.render(
            [
                Result(definition, {"job": hostile}, table, (hostile,)),
                Result(many, {}, pa.table({hostile: [hostile] * 60})),
            ],
            "html",
        )
    )


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip("needs chromium or google-chrome on PATH")
    folder = tmp_path_factory.mktemp("page")
    (folder / "page.html").write_text(page())
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={folder / 'profile'}",
            "--virtual-time-budget=2000",
            "--dump-dom",
            (folder / "page.html").as_uri(),
        ],
        capture_output=True,
        timeout=120,
        env={**os.environ, "HOME": str(folder)},
    )
    dom = done.stdout.decode()
    assert "</html>" in dom, done.stderr.decode(errors="replace")[-2000:]
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    return Seen(title[1] if title else "", dom)


def test_a_browser_runs_nothing_of_a_page(seen: Seen) -> None:
    document = Document(seen.dom)
    assert seen.title == "Fleet report · firstfault"
    assert 'id="pwned"' not in seen.dom
    assert document.handlers == []
    assert document.tags.isdisjoint(
        {"script", "img", "iframe", "object", "embed", "link", "base", "form", "input"}
    )


def test_a_page_refers_to_nothing_but_itself(seen: Seen) -> None:
    assert set(Document(seen.dom).addresses) == {"#first-failure", "#made-up"}
    assert "url(" not in re.sub(r"<body>.*", "", seen.dom, flags=re.DOTALL)
    assert "@import" not in seen.dom


def test_a_browser_shows_hostile_text_whole(seen: Seen) -> None:
    texts = Document(seen.dom).texts
    for text in HOSTILE.values():
        assert {text, f"{text}:7", f"{text}\n{text}"} <= texts
    assert render.shown(CONTROLS) in texts
    assert not re.search("[\x00\x07\x1b\x9b\u202e]", seen.dom)


def test_a_policy_forbids_what_escaping_already_prevents() -> None:
    made = page()
    assert "default-src 'none'; style-src 'unsafe-inline'" in made
    assert made.index("Content-Security-Policy") < made.index("<style>")
