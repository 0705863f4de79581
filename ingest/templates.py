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


def count(*plans: Plan) -> list[Templates]:
    """The templates of the files of each plan; a name that one tells is replaced in all."""
    read = [_distinct(plan) for plan in plans]
    names = _names(plans, [line for raw, _ in read for _, line in raw])
    return [_templates(plan, *one, names) for plan, one in zip(plans, read, strict=True)]


def _distinct(plan: Plan) -> tuple[list[tuple[Seen, bytes]], bool]:
    """Lines that differ in more than numbers, and whether these are all."""
    raw: dict[bytes, tuple[Seen, bytes]] = {}
    whole = _size(plan) <= MOST_BYTES
    for file, number, line in _lines(plan):
        key = _VARYING.sub(b"#", line)
        if known := raw.get(key):
            known[0].count += 1
        elif len(raw) < MOST:
            raw[key] = Seen(1, file, number), line
        else:
            whole = False
    return list(raw.values()), whole


def _templates(
    plan: Plan, lines: Sequence[tuple[Seen, bytes]], whole: bool, names: Renamer | None
) -> Templates:
    masker = Masker(plan.mask, engine.cache_directory())
    clock = headers.Clock(ZoneInfo("UTC"))
    found: dict[str, Seen] = {}
    for seen, line in lines:
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
    return Templates(found, whole)


def _names(plans: Sequence[Plan], lines: Sequence[bytes]) -> Renamer | None:
    """What replaces the names that paths and lines tell, where they are to be replaced."""
    if not plans or plans[0].names is None:
        return None
    names = plans[0].names.renamer()
    clock = headers.Clock(ZoneInfo("UTC"))
    for plan in plans:
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
