"""The encyclopedia as pages: what a browser finds and runs, where links lead, what is written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli import app
from matcher import catalogue as catalogues
from queries import encyclopedia, site
from queries.encyclopedia import Book, Seen
from queries.report import ReportError
from tests.browser import Browser, browser
from tests.database import Event, at, database, run
from tests.test_encyclopedia import BOOK, CUT, DISK
from tests.test_page import CONTROLS, HOSTILE

LOADED = catalogues.load()
BUILT_IN = Book(LOADED.by_id, LOADED.precedence, catalogues.LIFECYCLE)


class Page(HTMLParser):
    """Links, ids, tags, handlers and text of a page, and the text of its title and pre."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("href", "src", "action", "srcset")]
        self.ids += [v or "" for k, v in attrs if k == "id"]
        self.handlers += [k for k, _ in attrs if k.startswith("on") or k == "style"]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    site.write(folder, site.pages(BUILT_IN))
    return folder


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


def shown(tab: Browser) -> list[str]:
    """Ids of the entries that the index shows, in their order."""
    found = "[...document.querySelectorAll('#list > li:not([hidden])')].map((r) => r.dataset.id)"
    ids: list[str] = tab.run(found)
    return ids


# -- pages ---------------------------------------------------------------------------------------


def test_every_entry_and_every_hub_has_a_page() -> None:
    made = site.pages(BOOK)
    assert sorted(made) == [
        "category/checkpoint.html",
        "category/storage.html",
        "component/os.html",
        "component/torch.html",
        "failure/disk-full.html",
        "failure/no-phase.html",
        "failure/save-cut.html",
        "index.html",
        "phase/checkpoint-save.html",
        "phase/offload.html",
    ]
    assert len(site.pages(BUILT_IN)) > len(BUILT_IN.entries) + 40


def test_no_link_of_the_site_dangles(written: Path) -> None:
    pages = {
        path.relative_to(written).as_posix(): Page(path.read_text())
        for path in written.rglob("*.html")
    }
    reached = set()
    for name, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), name
        for link in page.links:
            if re.match("https?://", link):
                continue
            path, _, anchor = link.partition("#")
            place = os.path.normpath(PurePosixPath(name).parent / path) if path else name
            assert place in pages, f"{name}: {link}"
            assert not anchor or anchor in pages[place].ids, f"{name}: {link}"
            reached.add(place)
    assert reached == pages.keys()


def test_pages_stand_by_themselves(written: Path) -> None:
    for path in written.rglob("*.html"):
        text = path.read_text()
        tags = Page(text).tags
        assert {"link", "img", "iframe", "object"}.isdisjoint(tags)
        assert tags.count("script") == (2 if path.name == "index.html" else 0)
        assert "url(" not in text.partition("</style>")[0]
        assert text.index("Content-Security-Policy") < text.index("<style>")
        assert "default-src 'none'" in text


def test_same_book_gives_the_same_bytes(written: Path, tmp_path: Path) -> None:
    site.write(tmp_path / "again", site.pages(BUILT_IN))
    for path in sorted(p for p in written.rglob("*") if p.is_file()):
        again = tmp_path / "again" / path.relative_to(written)
        assert again.read_bytes() == path.read_bytes()


def test_names_that_are_no_file_names_get_one_of_their_own() -> None:
    names = ("../../etc", "a/b", "A B", "a b", "", "ü", "x" * 300, "os", "os.")
    entries = {
        f"e{n}": replace(DISK, id=f"e{n}", component=name) for n, name in enumerate(names)
    } | {"y" * 300: replace(DISK, id="y" * 300)}
    made = site.pages(Book(entries, (), catalogues.LIFECYCLE))
    hubs = [name for name in made if name.startswith("component/")]
    assert len(hubs) == len(names)
    assert all(re.fullmatch(r"component/[a-z0-9-]{1,90}\.html", name) for name in hubs)
    assert "component/os.html" in hubs
    assert all(len(name) < 110 for name in made)


def test_counts_of_the_database_are_on_the_pages() -> None:
    connection = database(
        run("r1/a.log", Event("disk-full", t=5, host="h1", repeats=3), Event("save-cut", t=9)),
        run("r2/b.log", Event("disk-full", t=3600, host="h2"), Event("disk-full", host="h1")),
        run("r2/c.log", Event("not-in-the-book", t=1)),
    )
    seen = encyclopedia.seen(connection)
    assert seen == {
        "disk-full": Seen(2, 2, 5, at(3600)),
        "save-cut": Seen(1, 0, 1, at(9)),
        "not-in-the-book": Seen(1, 0, 1, at(1)),
    }
    made = site.pages(replace(BOOK, seen=seen))
    texts = {name: " ".join(Page(text).texts) for name, text in made.items()}
    assert "2 runs, 2 hosts, 5 lines, last 2026-03-01 01:00 UTC" in texts["failure/disk-full.html"]
    assert "1 run, 0 hosts, 1 line, last 2026-03-01 00:00 UTC" in texts["failure/save-cut.html"]
    assert "seen in your fleet never" in texts["failure/no-phase.html"]
    assert "2 runs" in texts["component/os.html"]
    assert "seen in your fleet" not in site.pages(BOOK)["failure/disk-full.html"]


def test_command_counts_a_database_and_adds_a_catalogue(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "x.toml").write_text(
        '[[failure]]\nid = "shard-gone"\ntitle = "<i>gone</i>"\ncomponent = "shardd"\n'
        'category = "data"\nseverity = "high"\nmechanism = "m"\nconfirm = ["c"]\nfix = ["f"]\n'
        '  [[failure.signature]]\n  id = "s"\n  role = "cause"\n  pattern = "shard gone"\n'
        '  match = ["shard gone"]\n  no_match = ["shard"]\n'
    )
    pages, db = tmp_path / "pages", tmp_path / "none.duckdb"
    arguments = ["failures", "site", "-o", str(pages), "--catalogue", str(own), "--db", str(db)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert done.stderr == f"{db}: no such database, so nothing was seen: check --db\n"
    count = len(list(pages.rglob("*.html")))
    assert done.stdout == f"{pages}/index.html: {count} pages, 0 old ones removed\n"
    page = Page((pages / "failure" / "shard-gone.html").read_text())
    assert "<i>gone</i>" in page.texts
    assert "never" in page.texts


# -- in a browser --------------------------------------------------------------------------------


def test_search_finds_what_is_typed(tab: Browser, written: Path) -> None:
    tab.open(written / "index.html")
    everything = shown(tab)
    assert sorted(everything) == sorted(BUILT_IN.entries)
    tab.press("/")
    tab.type("nvme swap")
    some = shown(tab)
    assert some[0] == "nvme-swap-file-truncated"
    assert 1 < len(some) < 40
    said = tab.run("document.querySelector('[role=status]').textContent")
    assert said == f"{len(some)} of {len(everything)} failures"
    tab.press("Escape")
    assert shown(tab) == everything
    tab.type("disk-full")
    assert shown(tab)[0] == "disk-full"
    tab.press("ArrowDown")
    assert tab.run("document.activeElement.textContent") == DISK_TITLE
    tab.press("ArrowUp")
    tab.press("Enter")
    while not tab.run("document.title").startswith(DISK_TITLE):
        tab.receive()
    assert tab.run("location.pathname").endswith("/failure/disk-full.html")
    assert tab.complaints == []
    assert {address.partition(":")[0] for address in tab.addresses} == {"file"}


DISK_TITLE = "A file system is full (ENOSPC)"


def test_filters_narrow_the_search_and_stand_in_the_address(tab: Browser, written: Path) -> None:
    tab.open(written / "index.html", "?q=checkpoint&component=deepspeed&phase=checkpoint-save")
    assert shown(tab) == ["nvme-offload-checkpoint-race"]
    tab.run(
        "const s = document.querySelector('select[name=component]'); s.value = '';"
        "s.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    assert len(shown(tab)) > 5
    assert tab.run("location.search") == "?q=checkpoint&phase=checkpoint-save"


def test_pasted_line_finds_the_failure_of_its_signature(tab: Browser, written: Path) -> None:
    """The browser runs the patterns of the catalogue: nearly all of its lines find their entry."""
    tab.open(written / "index.html")
    lines = [
        (entry.id, line)
        for entry in LOADED.failures
        for one in entry.signatures
        for line in one.match[:1]
        if not one.fallback
    ]
    found = tab.run(
        "const box = document.querySelector('#q');"
        f"{json.dumps([line for _, line in lines])}.map((line) => {{ box.value = line;"
        "box.dispatchEvent(new Event('input', {bubbles: true}));"
        "return [...document.querySelectorAll('#list > li:not([hidden])')]"
        ".slice(0, 3).map((r) => r.dataset.id); })"
    )
    lost = [line for (id_, line), ids in zip(lines, found, strict=True) if id_ not in ids]
    assert len(lines) > 600
    assert len(lost) < len(lines) / 100, lost
    tab.open(written / "index.html", "?q=zzzz+disk+qqqq")
    said = tab.run("document.querySelector('[role=status]').textContent")
    assert said.endswith("that come nearest; none has all words")
    assert shown(tab)


def test_without_scripts_the_list_is_complete(tab: Browser, written: Path) -> None:
    tab.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(written / "index.html", "?q=nvme")
        # The list as it was loaded; the protocol may still look at it.
        document = tab.send("DOM.getDocument", depth=0)["root"]["nodeId"]
        rows = tab.send("DOM.querySelectorAll", nodeId=document, selector="#list > li")
        hidden = tab.send("DOM.querySelectorAll", nodeId=document, selector="#list > [hidden]")
        form = tab.send("DOM.querySelectorAll", nodeId=document, selector="form[hidden]")
    finally:
        tab.send("Emulation.setScriptExecutionDisabled", value=False)
    counts = [len(found["nodeIds"]) for found in (rows, hidden, form)]
    assert counts == [len(BUILT_IN.entries), 0, 1]


@pytest.mark.parametrize("width", [400, 1280])
def test_pages_fit_their_window(tab: Browser, written: Path, width: int) -> None:
    tab.size(width, 900)
    for name in ("index.html", "failure/disk-full.html", "component/deepspeed.html"):
        tab.open(written / name)
        assert tab.run("document.documentElement.scrollWidth") <= width, name


def luminance(colour: str) -> float:
    channels = [int(one) / 255 for one in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(tab: Browser, written: Path, scheme: str) -> None:
    """WCAG AA: a contrast of 4.5 or more, for every element that holds text."""
    tab.scheme(scheme)
    pairs: set[str] = set()
    for name in ("index.html", "failure/disk-full.html", "component/deepspeed.html"):
        tab.open(written / name)
        pairs |= set(tab.run(COLOURS))
    assert len(pairs) > 6
    for pair in pairs:
        light, dark = sorted(map(luminance, pair.split(" on ")), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, pair


COLOURS = """
[...new Set([...document.querySelectorAll('body *')].filter((one) => one.checkVisibility() &&
  [...one.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).map((one) => {
    let ground = one;
    while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)')
      ground = ground.parentElement;
    return `${getComputedStyle(one).color} on ${getComputedStyle(ground).backgroundColor}`;
  }))]
"""


def hostile_book() -> Book:
    texts = (*HOSTILE.values(), CONTROLS)
    entries: dict[str, Any] = {}
    for number, text in enumerate(texts):
        name = f"e{number}"
        line = replace(
            DISK.signatures[1], id=f"s{number}", why=text, match=(text, text), no_match=(text,)
        )
        entries[name] = replace(
            DISK,
            id=name,
            **dict.fromkeys(("title", "component", "mechanism", "verify", "prevention"), text),
            **dict.fromkeys(("tags", "affected", "confirm", "fix", "references"), (text,)),
            signatures=(replace(line, pattern=text),),
            related=(),
        )
    return Book(entries, (), catalogues.LIFECYCLE, {"e0": Seen(1, 1, 1, datetime(2026, 3, 1))})


def test_hostile_catalogue_is_shown_not_run(tab: Browser, tmp_path: Path) -> None:
    book = hostile_book()
    site.write(tmp_path / "h", site.pages(book))
    for path in sorted((tmp_path / "h").rglob("*.html")):
        page = Page(path.read_text())
        assert page.handlers == [], path
        assert {"img", "iframe", "svg", "base", "link"}.isdisjoint(page.tags)
        assert page.tags.count("meta") == 4
        assert not [link for link in page.links if not re.match(r"(\.\./)?[a-z]+/|#|\.\./", link)]
        assert not re.search("[\x00\x07\x1b\x9b\u202e]", path.read_text())
        if path.parent.name in ("h", "failure"):
            tab.open(path)
            assert tab.run("document.body.id") == ""
            assert not tab.run("document.title").startswith("pwned")
            assert {address.partition(":")[0] for address in tab.addresses} == {"file"}
    text = HOSTILE["script"]
    tab.open(tmp_path / "h" / "index.html")
    tab.run("document.querySelector('#q').focus()")
    tab.type(text)
    assert "e0" in shown(tab)
    assert tab.run("document.querySelector('[data-id=e0] a').textContent") == text
    assert tab.run("document.querySelectorAll('#list script').length") == 0


# -- what is written where -----------------------------------------------------------------------


def test_second_run_replaces_what_changed_and_removes_what_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    first = site.write(folder, site.pages(BOOK))
    (folder / "README.txt").write_text("mine")
    fewer = replace(BOOK, entries={"disk-full": DISK})
    second = site.write(folder, site.pages(fewer))
    assert (first, second) == ((10, 0), (6, 4))
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")} == {
        *site.pages(fewer),
        site.MANIFEST,
        "README.txt",
    }
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.html")}
    assert site.write(folder, site.pages(fewer)) == (6, 0)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.html")} == times
    assert json.loads((folder / site.MANIFEST).read_text())["files"] == sorted(site.pages(fewer))


@pytest.mark.parametrize("name", ["notes.txt", "index.html"])
def test_directory_of_others_is_refused_without_force(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ReportError, match="holds files of others: give an empty directory"):
        site.write(tmp_path, site.pages(BOOK))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    site.write(tmp_path, site.pages(BOOK), force=True)
    assert name == "index.html" or (tmp_path / name).read_text() == "mine"


def test_file_that_is_not_ours_is_not_replaced_without_force(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    site.write(folder, site.pages(replace(BOOK, entries={"disk-full": DISK})))
    mine = folder / "failure" / "save-cut.html"
    mine.write_text("mine")
    with pytest.raises(ReportError, match=r"save-cut.html: was not written by this command"):
        site.write(folder, site.pages(BOOK))
    assert mine.read_text() == "mine"


def test_nothing_outside_the_directory_is_touched(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "disk-full.html").write_text("mine")
    (tmp_path / "x.html").write_text("mine")
    folder = tmp_path / "pages"
    site.write(folder, site.pages(BOOK))
    names = ["../x.html", "failure/../../x.html", str(tmp_path / "x.html"), "notes.txt", 7]
    (folder / "notes.txt").write_text("mine")
    (folder / site.MANIFEST).write_text(json.dumps({"files": [*names, *site.pages(BOOK)]}))
    site.write(folder, site.pages(replace(BOOK, entries={"save-cut": CUT})))
    assert (tmp_path / "x.html").read_text() == (folder / "notes.txt").read_text() == "mine"

    linked = folder / "failure" / "save-cut.html"
    linked.unlink()
    linked.symlink_to(outside / "disk-full.html")
    site.write(folder, site.pages(BOOK))
    assert not linked.is_symlink()
    for path in (folder / "failure").iterdir():
        path.unlink()
    (folder / "failure").rmdir()
    (folder / "failure").symlink_to(outside)
    for force in (False, True):
        with pytest.raises(ReportError, match="is a link, which may lead elsewhere"):
            site.write(folder, site.pages(BOOK), force=force)
    assert (outside / "disk-full.html").read_text() == "mine"


def test_interrupted_run_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = site.pages(BOOK)
    put = site._put

    def stop(place: Path, text: str) -> None:
        if place.name == "save-cut.html":
            raise KeyboardInterrupt
        put(place, text)

    monkeypatch.setattr(site, "_put", stop)
    with pytest.raises(KeyboardInterrupt):
        site.write(tmp_path / "pages", made)
    assert not (tmp_path / "pages" / "index.html").exists()
    monkeypatch.undo()
    assert site.write(tmp_path / "pages", made) == (10, 0)
    found = {path.relative_to(tmp_path / "pages").as_posix() for path in tmp_path.rglob("*.html")}
    assert found == made.keys()


def test_file_in_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pages").write_text("mine")
    done = CliRunner().invoke(app, ["failures", "site", "-o", str(tmp_path / "pages")])
    assert done.exit_code == 2
    assert done.stderr == f"error: {tmp_path / 'pages'}: is no directory: give another -o\n"
