"""The encyclopedia as a static site: an index with search, hubs, a page a failure.

Every page stands by itself: it loads nothing, and only the index runs a script, which its policy
names by hash. The same book gives the same bytes. `write` keeps to one directory and to its own
files there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from queries.encyclopedia import (
    ROLES,
    Book,
    Entry,
    Item,
    Part,
    Seen,
    aspects,
    by_phase,
    choose,
    parts,
    phase_name,
    values,
    words_of,
)
from queries.render import PALETTE, in_html
from queries.report import ReportError

INDEX = "index.html"
MANIFEST = ".firstfault-site.json"
HUBS = ("component", "category", "phase")

_SEARCH = Path(__file__).parent / "search.js"
_SEVERITIES = {"critical": "critical", "high": "high", "medium": "medium", "low": "low"}
_MOST_SEEN = 12
_OURS = re.compile(rf"{INDEX}|(?:failure|{'|'.join(HUBS)})/[a-z0-9-]+\.html")
_NAME = 80  # characters of a file's name; longer ones end in a hash

_CSS = """
*{box-sizing:border-box}
html{scroll-padding-top:12px}
body{margin:0 auto;max-width:1160px;padding:20px;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
font-variant-numeric:tabular-nums;overflow-wrap:break-word}
h1{font-size:26px;line-height:1.25;margin:14px 0 0;letter-spacing:-.01em;text-wrap:balance}
h2{font-size:17px;margin:0 0 8px}
h3{font-size:15px;margin:0}
p{margin:8px 0 0;max-width:80ch}
a{color:var(--accent);text-underline-offset:2px}
a:not(:hover){text-decoration-color:color-mix(in srgb,currentColor 35%,transparent)}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:3px}
ul,ol{margin:0;padding-left:22px}
li{margin-top:6px;max-width:90ch}
li:first-child{margin-top:0}
code,pre{font:.87em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{overflow-wrap:anywhere}
pre{margin:8px 0 0;padding:8px 12px;background:var(--head);border-radius:7px;white-space:pre-wrap;
overflow-wrap:anywhere}
.soft,footer{color:var(--soft)}
.skip{position:absolute;left:-999px}
.skip:focus{position:static}
body>nav{display:flex;flex-wrap:wrap;gap:4px 8px;color:var(--soft)}
section,.card{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:16px 20px;margin:16px 0 0}
section.first{border-left:4px solid var(--accent)}
section>:first-child,.card>:first-child{margin-top:0}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(340px,100%),1fr));gap:0 16px}
dl{display:flex;flex-wrap:wrap;gap:4px 22px;margin:12px 0 0}
dl div{display:flex;gap:7px}
dt{color:var(--soft)}
dd{margin:0}
.badge{display:inline-block;border:1px solid currentColor;border-radius:5px;padding:0 6px;
font-size:.85em;font-weight:600;white-space:nowrap}
.critical{color:var(--critical)}.high{color:var(--high)}.medium{color:var(--medium)}
.low{color:var(--low)}.calm{color:var(--calm)}
details{margin-top:8px}
summary{cursor:pointer;color:var(--accent);width:max-content;max-width:100%}
.points{list-style:none;padding:0}
.points>li{margin-top:14px;max-width:none}
.points>li>div{max-width:90ch}
.points>li:first-child{margin-top:0}
.chips{display:flex;flex-wrap:wrap;gap:6px;list-style:none;padding:0}
.chips li{margin:0}
.chips a{display:block;background:var(--head);border-radius:6px;padding:2px 9px;
text-decoration:none}
h2.group{margin:24px 0 0}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(320px,100%),1fr));gap:12px;
margin-top:10px}
.cards .card{margin:0}
form{display:flex;flex-wrap:wrap;gap:8px}
form[hidden]{display:none}
label{display:flex;flex-direction:column;gap:2px;color:var(--soft);font-size:.87em;flex:1 1 130px}
label.wide{flex:1 1 100%}
input,select{font:inherit;font-size:16px;color:var(--ink);background:var(--card);width:100%;
border:1px solid var(--line);border-radius:7px;padding:7px 10px}
#list{list-style:none;padding:0;margin:8px 0 0}
#list li{display:grid;grid-template-columns:76px 1fr auto;gap:2px 12px;align-items:baseline;
margin:0;padding:8px 0;border-top:1px solid var(--line);max-width:none}
#list li[hidden]{display:none}
#list .soft{text-align:right;font-size:.9em}
#list code{color:var(--soft)}
table{border-collapse:collapse;width:100%}
th{text-align:left;font-weight:600;color:var(--soft);font-size:.9em}
th,td{padding:5px 12px 5px 0;vertical-align:top}
td{border-top:1px solid var(--line)}
.n{text-align:right;white-space:nowrap}
.scroll{overflow-x:auto}
footer{margin:22px 0 0;font-size:.9em}
@media(max-width:620px){body{padding:14px}section,.card{padding:13px 14px}
#seen :is(th,td):is(:nth-child(3),:nth-child(4)){display:none}
#list li{grid-template-columns:76px 1fr}#list .soft{grid-column:2;text-align:left}}
@media print{@page{margin:14mm}body{max-width:none;padding:0;background:none;font-size:11px}
body>nav,.skip,form,#status,details{display:none}
section,.card{border:0;padding:0;break-inside:avoid-page}
section.first{border:0}
pre{border:1px solid var(--line);background:none}
a{color:inherit;text-decoration:none}}
"""


class Written(NamedTuple):
    """How many pages the site has, and how many of an earlier run went."""

    pages: int
    removed: int


# -- pages -------------------------------------------------------------------------------------


def pages(book: Book) -> dict[str, str]:
    """The site of a book: HTML by path, relative to its directory."""
    made = {INDEX: _index(book)}
    for kind in HUBS:
        for value in values(book, kind):
            made[_place(kind, value)] = _hub(book, kind, value)
    for entry in book.entries.values():
        made[_place("failure", entry.id)] = _failure(book, entry)
    return made


def _place(kind: str, name: str) -> str:
    """Where a page is; a name that is no file name everywhere is told apart by a hash."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_NAME]
    if plain != name or not plain:
        plain = f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}".strip("-")
    return f"{kind}/{plain}.html"


def _link(kind: str, name: str, text: str, up: str) -> str:
    return f'<a href="{up}{_place(kind, name)}">{in_html(text)}</a>'


def _page(title: str, body: str, up: str, script: str = "", data: str = "") -> str:
    """A page with its head; `up` leads to the directory of the site."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    scripts = ""
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
        scripts = f'<script type="application/json" id="data">{data}</script>\n'
        scripts += f"<script>{script}</script>\n"
    home = "" if not up else f'<a href="{up}{INDEX}">Encyclopedia of failures</a>'
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{in_html(title)} · firstfault</title>\n<style>{PALETTE}{_CSS}</style>\n"
        '</head>\n<body>\n<a class="skip" href="#main">To the content</a>\n'
        + (f'<nav aria-label="Site">{home}</nav>\n' if home else "")
        + f'<main id="main">\n{body}\n</main>\n'
        f"<footer>Written by firstfault from its catalogue of failures.</footer>\n{scripts}"
        "</body>\n</html>\n"
    )


def _badge(severity: str) -> str:
    return f'<span class="badge {_SEVERITIES.get(severity, "calm")}">{in_html(severity)}</span>'


def _prose(text: str) -> str:
    """Text of an entry; what stands in backticks is code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", in_html(text))


def _code(text: str) -> str:
    return f"<pre>{in_html(text)}</pre>"


# -- one failure -------------------------------------------------------------------------------


def _failure(book: Book, entry: Entry) -> str:
    up = "../"
    filed = [
        ("severity", _badge(entry.severity)),
        ("category", _link("category", entry.category, entry.category, up)),
        ("component", _link("component", entry.component, entry.component, up)),
        ("when", ", ".join(_link("phase", one, phase_name(one), up) for one in entry.phases)),
        ("tags", in_html(", ".join(entry.tags))),
        ("seen in your fleet", _seen_fact(book, entry)),
    ]
    facts = "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in filed if text)
    sections = {part.title: _section(part, up) for part in parts(book, entry)}
    first = [sections.pop(name, "") for name in ("What it is", "Confirm", "Fix", "Verify")]
    what, confirm, fix, verify = first
    body = (
        f"<h1>{in_html(entry.title)}</h1>\n<p><code>{in_html(entry.id)}</code></p>\n"
        f"<dl>{facts}</dl>\n"
        f'{what}<div class="pair">{confirm}{fix}</div>\n{verify}' + "\n".join(sections.values())
    )
    return _page(entry.title, body, up)


def _section(part: Part, up: str) -> str:
    first = ' class="first"' if part.title == "What it is" else ""
    return f"<section{first}><h2>{part.title}</h2>{_items(part, up)}</section>\n"


def _items(part: Part, up: str) -> str:
    if part.style == "prose":
        return "".join(
            (f"<p>{_prose(item.text)}</p>" if item.text else "")
            + (_code(item.code) if item.code else "")
            for item in part.items
        )
    if part.title == "References":
        inner = "".join(f"<li>{_reference(item.text)}</li>" for item in part.items)
        return f"<ul>{inner}</ul>"
    pointed = any(item.signature or item.entry for item in part.items)
    tag, mark = ("ol", "") if part.style == "steps" else ("ul", ' class="points"' * pointed)
    return f"<{tag}{mark}>{''.join(f'<li>{_item(item, up)}</li>' for item in part.items)}</{tag}>"


def _item(item: Item, up: str) -> str:
    said = ""
    if signature := item.signature:
        kind = ROLES.get(signature.role, "calm")
        said += f"<h3><code>{in_html(signature.id)}</code> "
        said += f'<span class="badge {kind}">{in_html(signature.role)}</span></h3>'
        said += f"<div>{_prose(item.text)}</div>" if item.text else ""
    elif item.entry:
        said += f"{_link('failure', item.entry, item.text, up)} <code>{in_html(item.entry)}</code>"
    else:
        said += _prose(item.text)
    said += f'<div class="soft">{_prose(item.note)}</div>' if item.note else ""
    said += _code(item.code) if item.code else ""
    return said + (_pattern(item.signature) if item.signature else "")


def _pattern(signature: Any) -> str:
    """The pattern of a signature and its other lines, folded."""
    more = "".join(map(_code, signature.match[1:]))
    near = "".join(map(_code, signature.no_match))
    return (
        f"<details><summary>Pattern and lines</summary>{_code(signature.pattern)}"
        + (f"<p>It hits also</p>{more}" if more else "")
        + (f"<p>It does not hit</p>{near}" if near else "")
        + "</details>"
    )


def _reference(text: str) -> str:
    """A link where it is an address of the web, else text."""
    if re.fullmatch(r"https?://[^\s<>\"'`]+", text):
        return f'<a href="{in_html(text)}" rel="noreferrer noopener">{in_html(text)}</a>'
    return _prose(text)


def _seen(book: Book, entry: Entry) -> Seen | None:
    return (book.seen or {}).get(entry.id)


def _when(seen: Seen) -> str:
    return seen.last.isoformat(" ", "minutes") + " UTC" if seen.last else "unknown"


def _seen_fact(book: Book, entry: Entry) -> str:
    if book.seen is None:
        return ""
    if not (seen := _seen(book, entry)):
        return "never"
    counts = f"{_counted(seen.runs, 'run')}, {_counted(seen.hosts, 'host')}"
    return f"{counts}, {_counted(seen.lines, 'line')}, last {_when(seen)}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


# -- hubs --------------------------------------------------------------------------------------


def _hub(book: Book, kind: str, value: str) -> str:
    """The entries of a component, category or phase, side by side."""
    up = "../"
    here = choose(book, **{kind: [value]})
    groups: list[tuple[str, Sequence[Entry], Sequence[Entry]]]
    if kind == "phase":
        components = sorted({entry.component for entry in here})
        groups = [
            (name, [entry for entry in here if entry.component == name], []) for name in components
        ]
    else:
        groups = [
            (_capital(phase_name(phase)), new, also) for phase, new, also in by_phase(book, here)
        ]
    sections = []
    for name, new, also in groups:
        cards = "".join(_card(book, entry, up) for entry in new)
        again = ", ".join(_link("failure", entry.id, entry.title, up) for entry in also)
        sections.append(
            f'<h2 class="group">{in_html(name)}</h2>'
            + (f'<div class="cards">{cards}</div>' if cards else "")
            + (f'<p class="soft">Also then: {again}.</p>' if again else "")
        )
    title = f"{_capital(kind)}: {phase_name(value) if kind == 'phase' else value}"
    order = "by component" if kind == "phase" else "in the order of a run"
    said = f"{_counted(len(here), 'failure')}, {order}."
    body = (
        f'<h1>{in_html(title)}</h1>\n<p class="soft">{said}</p>\n'
        + "\n".join(sections)
        + f"\n<section><h2>By {kind}</h2>{_chips(book, kind, up, value)}</section>"
    )
    return _page(title, body, up)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _card(book: Book, entry: Entry, up: str) -> str:
    said = aspects(entry)
    seen = _seen(book, entry)
    count = f' <span class="soft">{_counted(seen.runs, "run")}</span>' if seen else ""
    return (
        f'<article class="card"><h3>{_link("failure", entry.id, entry.title, up)}</h3>'
        f"<p>{_badge(entry.severity)} <code>{in_html(entry.id)}</code>{count}</p>"
        + (_code(said["line"]) if said["line"] else "")
        + "".join(
            f'<p><span class="soft">{_capital(name)}:</span> {_prose(said[name])}</p>'
            for name in ("confirm", "fix")
            if said[name]
        )
        + "</article>"
    )


def _chips(book: Book, kind: str, up: str, without: str = "") -> str:
    """Links to all hubs of a kind, with how many entries each has."""
    counts: dict[str, int] = {}
    for entry in book.entries.values():
        for value in words_of(entry, kind):
            counts[value] = counts.get(value, 0) + 1
    links = []
    for value in values(book, kind):
        name = phase_name(value) if kind == "phase" else value
        text = f'{in_html(name)} <span class="soft">{counts[value]}</span>'
        current = ' aria-current="page"' if value == without else ""
        links.append(f'<li><a href="{up}{_place(kind, value)}"{current}>{text}</a></li>')
    return f'<ul class="chips">{"".join(links)}</ul>'


# -- index -------------------------------------------------------------------------------------


def _index(book: Book) -> str:
    entries = sorted(book.entries.values(), key=lambda entry: (entry.component, entry.title))
    signatures = sum(len(entry.signatures) for entry in entries)
    rows = "\n".join(_row(book, entry) for entry in entries)
    hubs = "".join(
        f"<section><h2>By {kind}</h2>{_chips(book, kind, '')}</section>\n" for kind in HUBS
    )
    body = (
        "<h1>Encyclopedia of failures</h1>\n"
        f'<p class="soft">{len(entries):,} failures of training clusters, told by '
        f"{signatures:,} signatures: how to confirm, fix and prevent each, and why it happens."
        f"</p>\n{_form(book)}{_most_seen(book)}<section><h2>Failures</h2>\n"
        f'<p class="soft" id="status" role="status">{len(entries)} failures</p>\n'
        f'<ol id="list">\n{rows}\n</ol></section>\n{hubs}'
    )
    data = json.dumps([_words(entry) for entry in entries]).replace("<", "\\u003c")
    script = _SEARCH.read_text(encoding="utf-8")
    return _page("Encyclopedia of failures", body, "", script, data)


def _form(book: Book) -> str:
    """The search; hidden until the script is there."""
    selects = "".join(
        f'<label>{_capital(kind)}<select name="{kind}"><option value="">any</option>'
        + "".join(
            f'<option value="{in_html(value)}">'
            f"{in_html(phase_name(value) if kind == 'phase' else value)}</option>"
            for value in values(book, kind)
        )
        + "</select></label>"
        for kind in ("component", "category", "severity", "phase")
    )
    return (
        "<noscript><p>Without scripts there is no search; the list is complete.</p></noscript>\n"
        '<form class="card" id="search" role="search" hidden>'
        '<label class="wide">Search, or paste a line of a log (key: /)'
        '<input id="q" name="q" type="search" autocomplete="off" spellcheck="false"></label>'
        f"{selects}</form>\n"
    )


def _row(book: Book, entry: Entry) -> str:
    seen = _seen(book, entry)
    count = f"{_counted(seen.runs, 'run')} · " if seen else ""
    filed = {
        "id": entry.id,
        "component": entry.component,
        "category": entry.category,
        "severity": entry.severity,
        "phase": " ".join(entry.phases),
    }
    marks = "".join(f' data-{name}="{in_html(value)}"' for name, value in filed.items())
    return (
        f"<li{marks}><div>{_badge(entry.severity)}</div>"
        f"<div>{_link('failure', entry.id, entry.title, '')}<br><code>{in_html(entry.id)}</code>"
        f'</div><div class="soft">{count}{in_html(entry.component)} · {in_html(entry.category)}'
        "</div></li>"
    )


def _words(entry: Entry) -> dict[str, Any]:
    """What the search looks in: words of the names, words of the text, patterns."""
    strong = [entry.id, entry.title, entry.component, entry.category, *entry.tags, *entry.phases]
    strong += [signature.id for signature in entry.signatures]
    weak = [entry.mechanism, entry.verify, entry.prevention]
    weak += [*entry.affected, *entry.confirm, *entry.fix]
    for signature in entry.signatures:
        weak += [signature.why, *signature.match]
    names = _unique(strong)
    return {
        "strong": f" {' '.join(names)} ",
        "weak": f" {' '.join(word for word in _unique(weak) if word not in names)} ",
        "patterns": [one.pattern for one in entry.signatures if not one.fallback],
        "fallbacks": [one.pattern for one in entry.signatures if one.fallback],
    }


def _unique(texts: Iterable[str]) -> dict[str, None]:
    return dict.fromkeys(re.findall(r"[^\W_]+", " ".join(texts).lower()))


def _most_seen(book: Book) -> str:
    """The failures that most runs of the database had."""
    if book.seen is None:
        return ""
    found = [(_seen(book, entry), entry) for entry in book.entries.values()]
    ranked = sorted(
        ((seen, entry) for seen, entry in found if seen and entry.severity != "info"),
        key=lambda pair: (-pair[0].runs, -pair[0].lines, pair[1].id),
    )
    rows = "".join(
        f"<tr><td>{_link('failure', entry.id, entry.title, '')}</td>"
        f'<td class="n">{seen.runs:,}</td><td class="n">{seen.hosts:,}</td>'
        f'<td class="n">{seen.lines:,}</td><td class="n">{_when(seen)}</td></tr>'
        for seen, entry in ranked[:_MOST_SEEN]
    )
    head = "".join(f'<th class="n">{name}</th>' for name in ("runs", "hosts", "lines", "last seen"))
    inner = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Most seen"><table>'
        f"<thead><tr><th>failure</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        if rows
        else '<p class="soft">Nothing yet.</p>'
    )
    return f'<section id="seen"><h2>Seen in most runs of your fleet</h2>{inner}</section>\n'


# -- files -------------------------------------------------------------------------------------


def write(folder: Path, made: Mapping[str, str], *, force: bool = False) -> Written:
    """Write the pages, each atomically, and remove those of an earlier run that are gone.

    Nothing outside `folder` is touched, nor, without `force`, anything in it that an earlier run
    did not write; a list of what is ours lies in it as MANIFEST. Raises ReportError.
    """
    try:
        return _write(folder, made, force)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ReportError(f"{folder}: cannot be written ({reason}): give another -o") from error


def _write(folder: Path, made: Mapping[str, str], force: bool) -> Written:
    ours = _manifest(folder)
    if folder.exists() and not folder.is_dir():
        raise ReportError(f"{folder}: is no directory: give another -o")
    if ours is None and folder.exists() and any(folder.iterdir()) and not force:
        raise ReportError(
            f"{folder}: holds files of others: give an empty directory, or --force to write into it"
        )
    ours = ours or set()
    for name in sorted({*made, *ours}):
        below = (folder / name).parent
        if below != folder and below.is_symlink():
            raise ReportError(f"{below}: is a link, which may lead elsewhere: remove it")
    foreign = [name for name in made if name not in ours and os.path.lexists(folder / name)]
    if foreign and not force:
        raise ReportError(
            f"{folder / foreign[0]}: was not written by this command: move it, or give --force"
        )
    folder.mkdir(parents=True, exist_ok=True)
    # Before the pages: what an interrupted run leaves must be known as ours to the next one.
    _put(folder / MANIFEST, _listed({*made, *ours}))
    for name in sorted(made, key=lambda name: (name == INDEX, name)):
        (folder / name).parent.mkdir(exist_ok=True)
        _put(folder / name, made[name])
    stale = sorted(ours - made.keys())
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    _put(folder / MANIFEST, _listed(made))
    return Written(len(made), len(stale))


def _manifest(folder: Path) -> set[str] | None:
    """The files of an earlier run; None where there was none. Other names in it do not count."""
    place = folder / MANIFEST
    try:
        names = json.loads(place.read_text(encoding="utf-8"))["files"]
        return {name for name in names if isinstance(name, str) and _OURS.fullmatch(name)}
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def _listed(names: Iterable[str]) -> str:
    return json.dumps({"files": sorted(names)}, indent=1) + "\n"


def _put(place: Path, text: str) -> None:
    """Replace a file, or a link of that name, by the text; leave it alone if it holds that."""
    data = text.encode()
    if place.is_file() and not place.is_symlink() and place.read_bytes() == data:
        return
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(place)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
