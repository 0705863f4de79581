"""Count the lines of some files by template: the masked message without its numbers.

For a comparison of two runs: lines that no signature knows count too, which events do not hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from ingest import blocks, headers
from ingest.files import log_file
from ingest.pipeline import Plan
from matcher import engine
from matcher.mask import Masker
from matcher.pseudonyms import Renamer

MOST_BYTES = 256 << 20  # of text, decompressed; what lies behind is not counted
MOST = 200_000  # templates
_LINE_BYTES = 1 << 10
_VARYING = re.compile(rb"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+")
_SPACES = re.compile(rb"\s+")


@dataclass(slots=True)
class Seen:
    """How often a template was seen, and where first."""

    count: int
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Templates:
    """Templates in the order of their first lines; `whole` is False where a limit cut them."""

    seen: dict[str, Seen]
    whole: bool


def count(plan: Plan) -> Templates:
    """The templates of the plan's files."""
    raw: dict[bytes, tuple[Seen, bytes]] = {}
    whole = True
    for file, number, line in _lines(plan):
        key = _VARYING.sub(b"#", line)
        if known := raw.get(key):
            known[0].count += 1
        elif len(raw) < MOST:
            raw[key] = Seen(1, file, number), line
        else:
            whole = False
    masker = Masker(plan.mask, engine.cache_directory())
    clock = headers.Clock(ZoneInfo("UTC"))
    names = _names(plan, [line for _, line in raw.values()], clock)
    found: dict[str, Seen] = {}
    for seen, line in raw.values():
        header = headers.parse(line, clock)
        message = header.text if header.text is not None else line[header.body : header.end]
        # Masked before its numbers go: a key is known by its form.
        clean, _ = masker.mask(message)
        if names is not None:
            clean = names.text(clean.decode(errors="replace")).encode()
        text = _SPACES.sub(b" ", _VARYING.sub(b"#", clean)).strip().decode(errors="replace")
        if not text:
            continue
        if text in found:
            found[text].count += seen.count
        else:
            seen.file = names.text(seen.file) if names else seen.file
            found[text] = seen
    return Templates(found, whole and _size(plan) <= MOST_BYTES)


def _names(plan: Plan, lines: Sequence[bytes], clock: headers.Clock) -> Renamer | None:
    """What replaces the names that paths and lines tell, where they are to be replaced."""
    if plan.names is None:
        return None
    names = plan.names.renamer()
    for source in plan.sources():
        names.learn(source.location)
        if host := log_file(source).labels.host:
            names.learn_host(host)
    for line in lines:
        if host := headers.parse(line, clock).host:
            names.learn_host(host)
        names.learn(line.decode(errors="replace"))
    return names


def _size(plan: Plan) -> int:
    return sum(source.size or 0 for source in plan.sources())


def _lines(plan: Plan) -> Iterator[tuple[str, int, bytes]]:
    """(file, line number, beginning of the line) of all files, up to MOST_BYTES."""
    left = MOST_BYTES
    for source in plan.sources():
        for file, reader in blocks.open_source(source, block_bytes=plan.block_bytes):
            for block in reader or ():
                if left <= 0:
                    continue
                left -= block.end - block.start
                text = bytes(block.data[block.start : block.end])
                for number, line in enumerate(text.split(b"\n"), block.line_no):
                    # Of a line redrawn with CR the end was shown last.
                    shown = line.rstrip(b"\r").rsplit(b"\r", 1)[-1][:_LINE_BYTES]
                    if shown:
                        yield file.path, number, shown
