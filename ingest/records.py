"""Turn the hits of one file into rows of `events` and `evidence`: context, folding, masking.

Everything here is a function of the file's bytes, never of where blocks happen to be cut: rows
fold, sample and look around themselves in file coordinates (minute of file time, MiB of offset).
Nothing leaves this module unmasked: lines are masked first and captures are read from the result.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest import headers
from ingest.blocks import HISTORY, Block, Places
from ingest.files import Labels, LogFile
from ingest.schema import EVENTS, EVIDENCE
from matcher.catalogue import Catalogue, Failure, Signature
from matcher.engine import Hits
from matcher.mask import Masker
from matcher.pseudonyms import HOST_CAPTURES, Renamer
from matcher.shapes import shape, takes_any_digit

MESSAGE_BYTES = 16 << 10  # a stored message; longer ones keep what surrounds the match
EVIDENCE_BYTES = 4 << 10  # a stored line of evidence
MARGIN = 4 << 10  # masked beyond a cut and left out: half a secret looks like none
EVIDENCE_BEFORE, EVIDENCE_AFTER = 120, 20  # lines around the first cause of each failure
_PROVEN = ("cause", "confirmation")  # roles whose lines may decide
CELL = 1 << 20  # file coordinate in which rows fold and frequent signatures are sampled, bytes
SAMPLED = 1 << 16  # the same where metrics are sampled, of lines that no minute tells apart
LOOK = 1 << 20  # how far a line without a time looks for a neighbour that has one, bytes
FOLLOWS_BYTES = 16 << 10  # how far back a line may stand that another must follow
REMEMBERED, REMEMBERED_BYTES = 1 << 12, 1 << 10  # messages, and of which size at most
FOLD_GAP_US = 1_000_000  # repeats further apart than this start a new row
_MINUTE_US = 60_000_000
_INT32, _INT64 = 2**31 - 1, 2**63 - 1
_ECHO = re.compile(rb"\++ ")  # what `set -x` prints before each command
_HINT = 5  # bytes of a time hint beyond its first
_DIGITS, _HEX = b"0123456789", re.compile(rb"0x[0-9a-fA-F]+")


class Options(NamedTuple):
    """What the user asked of recording."""

    every_match: bool = False
    metrics: str = "off"


@dataclass(slots=True)
class Losses:
    """What could not be kept as it was."""

    replaced_bytes: int = 0
    masked: int = 0


class _Rule(NamedTuple):
    """What recording needs of one signature."""

    number: int
    hash: int  # of its id, 64 bit
    signature: Signature
    failure: Failure
    search: re.Pattern[bytes]
    frequent: bool
    each: bool  # every hit is a row: what it says differs by its numbers
    picky: bool  # takes only lines of some streams, or in some places
    numbers: tuple[tuple[str, int], ...]  # captures that are numbers, and how large they may be
    path_classes: tuple[str, ...]  # classes of path that captures are named by
    has_path: bool
    by_shape: bool  # whether the shape of a message tells where its captures stand


_NUMBERS = {"rank": _INT32, "local_rank": _INT32, "world_size": _INT32, "step": _INT64}


def _rule(
    number: int,
    signature: Signature,
    failure: Failure,
    full: bool,
    each: bool,
    classes: frozenset[str],
) -> _Rule:
    digest = hashlib.blake2b(signature.id.encode(), digest_size=8).digest()
    search = re.compile(signature.pattern.encode())
    groups = search.groupindex.keys()
    return _Rule(
        number,
        int.from_bytes(digest, "big"),
        signature,
        failure,
        search,
        signature.frequent and not full,
        signature.frequent and each,
        bool(signature.stream or signature.follows),
        tuple((name, most) for name, most in _NUMBERS.items() if name in groups),
        tuple(sorted(classes & groups)),
        "path" in groups,
        not groups or takes_any_digit(signature.pattern),
    )


class Message(NamedTuple):
    """A masked message and what one signature reads in it; lines that repeat it share one."""

    rule: _Rule
    text: str
    captures: Mapping[str, str]
    fold: tuple[int, str | None, bytes]  # what rows that fold together have in common
    masked: int
    replaced: int  # bytes that were no text
    echo: bool  # a command that the shell printed before it ran it
    hung_us: int
    host: str | None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    step: int | None = None


class Rules:
    """A catalogue made ready for recording; shared by all files of a worker.

    It remembers messages, for what one rank prints others print too.
    """

    def __init__(self, catalogue: Catalogue, options: Options) -> None:
        by_id = catalogue.by_id
        full = options.metrics == "full" or options.every_match
        self.options = options
        self.by_minute = options.metrics == "sampled" and not full
        self.sample = SAMPLED if self.by_minute else CELL
        self.signatures = catalogue.signatures
        self.failures = [by_id[s.failure] for s in catalogue.signatures]
        self.frequent = np.array([s.frequent and not full for s in self.signatures], dtype=bool)
        self.any_frequent = bool(self.frequent.any())
        self._full = full
        self._rules: list[_Rule | None] = [None] * len(self.signatures)
        self._path_classes = [
            (c.name, re.compile(c.pattern.encode())) for c in catalogue.path_classes
        ]
        self._class_names = frozenset(name for name, _ in self._path_classes)
        self._messages: dict[tuple[int, bytes], Message] = {}
        self.layouts = headers.Layouts()

    def rule(self, number: int) -> _Rule:
        """The rule of a signature, made when it first hits: most never do."""
        rule = self._rules[number]
        if rule is None:
            rule = _rule(
                number,
                self.signatures[number],
                self.failures[number],
                self._full,
                self.options.metrics == "full",
                self._class_names,
            )
            self._rules[number] = rule
        return rule

    def message(
        self,
        number: int,
        text: bytes,
        line: bytes,
        masker: Masker,
        layout: headers.Layout | None = None,
    ) -> Message:
        """What a signature reads in the message of a line, which is masked here."""
        if layout is not None:
            reading: _Reading | bool | None = layout.notes.get(number)
            if reading is None:
                reading = layout.notes[number] = self._reading(number, text, masker)
            if isinstance(reading, _Reading):
                return reading.of(text)
        known = self._messages.get((number, text))
        if known is None:
            masked, count = masker.mask(text)
            known, alone = self.read(number, masked, count, line, masker)
            if alone and len(text) <= REMEMBERED_BYTES:
                if len(self._messages) >= REMEMBERED:
                    self._messages.clear()
                self._messages[number, text] = known
        return known

    def read(
        self, number: int, text: bytes, masked: int, line: bytes, masker: Masker
    ) -> tuple[Message, bool]:
        """The same of a message that is masked; also whether the message alone decided."""
        rule = self.rule(number)
        captures: dict[str, str] = {}
        alone = True
        if rule.search.groupindex:
            match = rule.search.search(text)
            if match is None:
                alone = False
                match = rule.search.search(masker.mask(line)[0])
            if match is not None:
                captures = {
                    name: value.decode(errors="replace")
                    for name, value in match.groupdict().items()
                    if value is not None
                }
                path = match["path"] if rule.has_path else None
                if path_class := self._path_class(rule, captures, path):
                    captures["path_class"] = path_class
        decoded, replaced = _decoded(text)
        echo = _ECHO.match(text) is not None
        return _message(rule, decoded, captures, _template(text), masked, replaced, echo), alone

    def _reading(self, number: int, text: bytes, masker: Masker) -> _Reading | bool:
        """How a signature reads messages of the shape of this one; False where each is its own."""
        rule = self.rule(number)
        match = rule.search.search(text) if rule.by_shape else None
        if match is None or not masker.spares(shape(text)) or _decoded(text)[1]:
            return False
        message, _ = self.read(number, text, 0, text, masker)
        places = {
            name: slice(*match.span(name)) for name in match.groupdict() if match[name] is not None
        }
        path = match["path"] if rule.has_path else None
        if path and path.translate(None, _DIGITS) != path:  # its class may hang on them
            return False
        return _Reading(
            message,
            tuple(places.items()),
            message.captures.get("path_class"),
            text.translate(None, _DIGITS) == text,
        )

    def _path_class(
        self, rule: _Rule, captures: Mapping[str, str], path: bytes | None
    ) -> str | None:
        """The class of the path that was captured, if it has one."""
        for name in rule.path_classes:
            if name in captures:
                return name
        if path:
            for name, pattern in self._path_classes:
                if pattern.search(path):
                    return name
        return None


class _Reading(NamedTuple):
    """How one signature reads the messages of one shape, none of which has to be masked."""

    like: Message
    places: tuple[tuple[str, slice], ...]  # of captures
    path_class: str | None
    alone: bool  # no other message has this shape

    def of(self, text: bytes) -> Message:
        """What it reads in a message of this shape."""
        like = self.like
        if self.alone:
            return like
        captures = {name: text[place].decode(errors="replace") for name, place in self.places}
        if self.path_class is not None:
            captures["path_class"] = self.path_class
        return _message(like.rule, text.decode(), captures, like.fold[2], 0, 0, like.echo)


def _message(
    rule: _Rule,
    text: str,
    captures: dict[str, str],
    template: bytes,
    masked: int,
    replaced: int,
    echo: bool,
) -> Message:
    """A message of which these are known."""
    rank = local_rank = world_size = step = None
    host = None
    if captures:
        told = {name: _int(captures.get(name), most) for name, most in rule.numbers}
        rank, local_rank = told.get("rank"), told.get("local_rank")
        world_size, step = told.get("world_size"), told.get("step")
        host = captures.get("host", "").lower() or None
    signature, lag = rule.signature, rule.signature.lag
    return Message(
        rule,
        text,
        captures,
        (rule.number, captures.get(signature.points_to or ""), template),
        masked,
        replaced,
        echo,
        lag.microseconds(captures.get(lag.capture, "")) if lag else 0,
        host,
        rank,
        local_rank,
        world_size,
        step,
    )


class Entry(NamedTuple):
    """What a recorder is told that begins in the middle of a file."""

    guess: headers.Guess  # stands for the last time before, until there is one
    warm_from: int  # offset of its first whole line; times from there on take its place


class Line(NamedTuple):
    """A line of evidence, masked."""

    event_id: int
    file_id: int
    line_no: int
    text: str


@dataclass(slots=True)
class Row:
    """An event; it changes while its fold is open and its upper time bound may still be found."""

    message: Message
    header: headers.Header
    file_id: int
    labels: Labels
    offset: int  # in the text handed out, in which rows fold; differs for joined CRI lines
    byte_offset: int  # in the decompressed stream, as stored
    line_no: int
    last_line_no: int
    ts_lo: int | None
    ts_hi: int | None
    ts_last: int | None
    rank: int | None
    host: str | None
    repeats: int
    step_last: str | None = None  # of a frequent signature
    last_segment: bytes | None = None  # the same: its last line, parsed on closing
    last_near: int | None = None

    @property
    def event_id(self) -> int:
        """64-bit hash of (file_id, byte_offset, signature)."""
        one = (np.array([part], np.uint64) for part in self._identity())
        return int(_event_ids(*one)[0])

    def _identity(self) -> tuple[int, int, int]:
        return self.file_id, self.byte_offset, self.message.rule.hash


@dataclass(slots=True)
class _Pending:
    """Evidence of an event: (line number, line as it is) so far, and how many it still wants."""

    event_id: int
    lines: list[tuple[int, bytes]]
    remaining: int
    losses: Losses


class Recorder:
    """Collects the rows of one file; `take` hands them over, `finish` closes the file.

    Of a part of a file it also tells for which failures it has evidence, as (event_id, what was
    lost in its lines): the file's evidence is that of the first part that has some.
    """

    def __init__(
        self,
        file: LogFile,
        file_id: int,
        rules: Rules,
        masker: Masker,
        tz: Any,
        entry: Entry | None = None,
        renamer: Renamer | None = None,
    ) -> None:
        self.losses = Losses()
        self.evidence_for: dict[str, tuple[int, Losses]] = {}  # by failure
        self.first_ts: int | None = None
        self.last_ts: int | None = None
        self.matches = 0
        self._file = file
        self._file_id = file_id
        self._rules = rules
        self._masker = masker
        self._renamer = renamer
        guess = entry.guess if entry else None
        self._clock = headers.Clock(tz=tz, mtime_us=file.mtime_us, guess=guess)
        self._stamps = _Stamps(self._clock, rules.layouts, entry.warm_from if entry else 0)
        self._open: deque[Row] = deque()
        self._folds: dict[tuple[Any, ...], Row] = {}
        self._cells: dict[tuple[int, int, int | None], Row] = {}  # by signature, end, minute
        self._cell = 0
        self._waiting: deque[Row] = deque()
        self._seen_on_line: tuple[int, set[int]] = (-1, set())
        self._closed: list[Row] = []
        self._evidence: list[Line] = []
        self._pending: list[_Pending] = []
        self._unstamped = entry is None
        self._last_block: Block | None = None

    def add(self, block: Block, hits: Hits) -> None:
        """Take the hits of the next block, in file order, and what the block tells of earlier rows.

        The block's buffer is read here and not kept.
        """
        self._last_block = block
        if self._unstamped and block.offset < LOOK:
            self._look_for_first(block)
        if self._pending:
            begin = block.start
            if block.line_offset < block.offset:  # the rest of a line that was seen
                begin = block.data.find(b"\n", begin, block.end) + 1 or block.end
            self._follow(self._pending, block, Places(block), begin)
        if self._waiting:
            self._settle_upper(block)
        if len(hits.signature):
            self._record(block, hits)
        end = block.offset + block.end - block.start
        self._close(end)

    @property
    def near_us(self) -> int | None:
        """The last time that was seen; None where none was, or a guess still stands for it."""
        return self._clock.near_us

    @property
    def unsettled(self) -> bool:
        """Whether a row or evidence still wants later lines."""
        return bool(self._waiting or self._pending)

    def begin(self) -> None:
        """Forget the rows so far but not what they told of times: a part's own lines come next."""
        self.losses = Losses()
        self.evidence_for = {}
        self.first_ts = self.last_ts = None
        self.matches = 0
        self._open.clear()
        self._folds.clear()
        self._cells.clear()
        self._waiting.clear()
        self._closed.clear()
        self._evidence.clear()
        self._pending.clear()

    def finish(self, *, last: bool = True) -> None:
        """Close every row: the file or the part has ended; `last` where the file has.

        The last block's buffer must still be as it was.
        """
        self._waiting.clear()
        self._close(_INT64)
        self._complete(everything=True)
        if last and (block := self._last_block) is not None:
            bottom = max(block.history, block.end - LOOK)
            if found := _last_stamp(
                block.data, bottom, block.end, True, self._clock, self._rules.layouts
            ):
                self._widen(found[1])
                self._clock.saw(found[1])

    def take(self) -> tuple[list[Row], list[Line]]:
        """The rows closed and the lines of evidence collected since the last call."""
        rows, lines = self._closed, self._evidence
        self._closed, self._evidence = [], []
        if self._renamer is not None:
            lines = _renamed(self._renamer, rows, lines)
        return rows, lines

    def _look_for_first(self, block: Block) -> None:
        stop = min(block.end, block.start + LOOK - block.offset)
        if first := _first_stamp(
            block,
            block.start,
            block.start,
            stop,
            headers.Clock(self._clock.tz, self._clock.mtime_us),
            self._rules.layouts,
        ):
            self._unstamped = False
            self._widen(first[1])

    # -- one block -----------------------------------------------------------------------------

    def _record(self, block: Block, hits: Hits) -> None:
        data, rules, labels = block.data, self._rules, self._file.labels
        places, shift = Places(block), block.offset - block.start
        inside = block.line_offset < block.offset
        folding = not rules.options.every_match
        redrawn = data.find(b"\r", block.start, block.end) >= 0
        skips = rules.any_frequent and not rules.by_minute
        counts = self._middle(block, hits) if skips else {}
        numbers, starts = hits.signature.tolist(), hits.start.tolist()
        frequent = rules.frequent[hits.signature].tolist()
        header: headers.Header | None = None
        line = text = b""
        layout: headers.Layout | None = None
        masked = -1  # places masked in a text that is, or -1
        at_start = low = high = -1
        lines = places.of_all(hits.start)
        for index, (number, start, end, at) in enumerate(
            zip(numbers, starts, hits.end.tolist(), hits.at.tolist(), strict=True)
        ):
            count = counts.get(index, 1) if counts else 1
            if count == 0:
                continue
            offset = shift + start
            if inside and start == block.start:
                offset = block.line_offset  # a further piece of a line longer than the limit
                if not self._fresh(offset, number):
                    continue
            elif end == block.end:
                self._fresh(offset, number)  # no LF: the line may go on in the next piece
            if start != at_start or not low < at <= high:
                low, high, at_start, header = start, end, start, None
                if redrawn and data.find(b"\r", start, end) >= 0:
                    low, high = _segment(data, start, end, at)
            byte_offset, line_no = lines[index]
            if frequent[index]:
                cell: tuple[int, int, int | None]  # the signature, where it ends, its minute
                cell = (number, (offset // rules.sample + 1) * rules.sample, None)
                if skips and (row := self._cells.get(cell)):
                    self._lengthen(row, count, line_no, bytes(data[low:high]))
                    continue
            new = header is None
            if header is None:
                line, layout, header, text, masked = self._read(block, low, high, at)
                if self._clock.near_us is None and self._clock.completed:
                    # The year may stand in a line before, which no hit has led to yet.
                    self._clock.completed = False
                    if self._stamps.before(block, start, offset) is not None:
                        line, layout, header, text, masked = self._read(block, low, high, at)
                if header.ts is not None:
                    self._stamps.saw(offset, header.ts)
            if rules.by_minute and frequent[index]:
                if header.ts is not None:
                    cell = (number, (offset // CELL + 1) * CELL, header.ts // _MINUTE_US)
                if row := self._cells.get(cell):
                    self._lengthen(row, count, line_no, bytes(data[low:high]))
                    header = None  # another hit reads the line for itself
                    continue
            if masked < 0:
                message = rules.message(number, text, line, self._masker, layout)
            else:
                message, _ = rules.read(number, text, masked, line, self._masker)
            if new:
                self.losses.masked += message.masked
            rule = message.rule
            if not rule.frequent and (
                message.echo or (rule.picky and not self._admits(rule, header, block, start))
            ):
                continue
            if rule.signature.fallback and any(
                self._admits(other, header, block, start)
                for other in self._beside(numbers, starts, index)
                if other.signature.follows
            ):
                continue
            count += header.repeats - 1
            self.matches += count
            ts = lo = header.ts
            if lo is None:
                lo = self._stamps.before(block, start, offset)
            else:
                self._widen(lo)
            rank = header.rank
            if rank is None:
                rank = labels.rank if message.rank is None else message.rank
            host = header.host or message.host or labels.host
            folds = folding and not rule.frequent and not rule.each
            if folds:
                minute = None if lo is None else lo // _MINUTE_US
                key = message.fold, rank, host, minute, offset // CELL
                earlier = self._folds.get(key)
                if earlier is not None and not _apart(earlier.ts_last, ts):
                    earlier.repeats += count
                    earlier.last_line_no = line_no
                    earlier.ts_last = earlier.ts_last if ts is None else ts
                    continue
            row = Row(
                message, header, self._file_id, labels, offset, byte_offset, line_no, line_no,
                lo, ts, ts, rank, host, count,
            )  # fmt: skip
            self.losses.replaced_bytes += message.replaced
            if rule.frequent:
                self._cells[cell] = row
            elif folds:
                self._folds[key] = row
            self._open.append(row)
            if ts is None:
                row.ts_hi = self._stamps.after(block, end + 1, offset + LOOK, lo)
                if row.ts_hi is None:
                    self._waiting.append(row)
            if rule.signature.role in _PROVEN and rule.failure.id not in self.evidence_for:
                losses = Losses()
                self.evidence_for[rule.failure.id] = row.event_id, losses
                self._gather(block, places, row.event_id, losses, start, end)

    def _lengthen(self, row: Row, count: int, line_no: int, segment: bytes) -> None:
        """Let the row of a frequent signature stand for further hits, the last as given."""
        row.repeats += count
        row.last_line_no = line_no
        row.last_segment, row.last_near = segment, self._clock.near_us
        self.matches += count

    def _read(
        self, block: Block, low: int, high: int, at: int
    ) -> tuple[bytes, headers.Layout | None, headers.Header, bytes, int]:
        """The piece of a line in which a match ends: its bytes, layout, header and message.

        A message that had to be cut is masked, as it says after it: how often, or -1.
        """
        data = block.data
        later = low == block.start and block.line_offset < block.offset
        goes_on = high == block.end and not block.lines
        if high - low <= MESSAGE_BYTES and not later and not goes_on:
            line = bytes(data[low:high])
            layout = self._rules.layouts.of(line)
            header = layout and layout.parse(line, self._clock, at - low)
            if header is None:
                layout, header = None, headers.parse(line, self._clock, at - low)
            text = header.text if header.text is not None else line[header.body : header.end]
            return line, layout, header, text, -1
        # Keep what surrounds the match; the headers stand where the piece begins.
        header = headers.parse(bytes(data[low : min(high, low + EVIDENCE_BYTES)]), self._clock)
        first = max(low, at - MESSAGE_BYTES * 3 // 4)
        last = min(high, first + MESSAGE_BYTES)
        if goes_on:
            last = max(at, min(last, high - MARGIN))
        begin = max(block.history if later else low, first - MARGIN)
        stop = min(high, last + MARGIN) if last > at else last
        line = bytes(data[begin:stop])
        text, masked = self._masker.mask(line)
        return line, None, header, text[first - begin : len(text) - (stop - last)], masked

    def _middle(self, block: Block, hits: Hits) -> dict[int, int]:
        """For hits of frequent signatures: how many hits each kept one stands for, 0 to skip it.

        In each cell the first and the last hit of the block are kept; which lines lie between
        them is counted, not read.
        """
        places = np.flatnonzero(self._rules.frequent[hits.signature])
        if len(places) < 3:
            return {}
        counts: dict[int, int] = {}
        cell = (hits.start[places] - block.start + block.offset) // self._rules.sample
        order = np.lexsort((places, cell, hits.signature[places]))
        places, cell = places[order], cell[order]
        number = hits.signature[places]
        cut = np.flatnonzero((np.diff(number) != 0) | (np.diff(cell) != 0)) + 1
        for group in np.split(places, cut):
            if len(group) > 2:
                counts.update(dict.fromkeys(group[1:-1].tolist(), 0))
                counts[int(group[-1])] = len(group) - 1
        return counts

    def _fresh(self, offset: int, number: int) -> bool:
        """Whether this signature is new on the long line that starts at `offset`."""
        if self._seen_on_line[0] != offset:
            self._seen_on_line = (offset, set())
        seen = self._seen_on_line[1]
        if number in seen:
            return False
        seen.add(number)
        return True

    def _admits(self, rule: _Rule, header: headers.Header, block: Block, start: int) -> bool:
        """Whether the line may be taken for this signature: right stream, right place."""
        streams = rule.signature.stream
        if streams and (header.stream or self._stream()) not in (*streams, None):
            return False
        back = max(block.history, start - FOLLOWS_BYTES)
        follows = rule.signature.follows
        return not follows or any(block.data.rfind(f.encode(), back, start) >= 0 for f in follows)

    def _beside(self, numbers: list[int], starts: list[int], index: int) -> Iterator[_Rule]:
        """The rules that hit the same line as the hit at `index`."""
        first = last = index
        while first and starts[first - 1] == starts[index]:
            first -= 1
        while last < len(starts) and starts[last] == starts[index]:
            last += 1
        return map(self._rules.rule, numbers[first:last])

    def _stream(self) -> str | None:
        return {"dmesg": "kernel", "k8s_events": "k8s-event", "rank_stdout": "stdout"}.get(
            self._file.kind
        )

    def _widen(self, ts: int | None) -> None:
        if ts is None:
            return
        if self.first_ts is None or ts < self.first_ts:
            self.first_ts = ts
        if self.last_ts is None or ts > self.last_ts:
            self.last_ts = ts

    # -- times from later lines, closing -------------------------------------------------------

    def _settle_upper(self, block: Block) -> None:
        """Give rows of earlier blocks the first time that this block shows them."""
        end = block.offset + block.end - block.start
        while self._waiting:
            row = self._waiting[0]
            row.ts_hi = self._stamps.after(block, block.start, row.offset + LOOK, row.ts_lo)
            if row.ts_hi is None and end < row.offset + LOOK:
                return
            self._waiting.popleft()

    def _close(self, end: int) -> None:
        """Close what nothing from offset `end` on can change any more."""
        cell = end // CELL
        if cell != self._cell:
            self._cell = cell
            self._folds = {key: row for key, row in self._folds.items() if key[-1] >= cell}
            for key in [key for key in self._cells if key[1] <= end]:
                self._seal(self._cells.pop(key))
        while self._open and (end == _INT64 or self._open[0].offset + CELL + LOOK < end):
            self._closed.append(self._open.popleft())

    def _seal(self, row: Row) -> None:
        """Give the row of a frequent signature what its last line says."""
        if row.last_segment is None:
            return
        clock = replace(self._clock, near_us=row.last_near)
        header = headers.parse(row.last_segment, clock)
        last = self._rules.message(
            row.message.rule.number, row.last_segment, row.last_segment, self._masker
        )
        row.step_last = last.captures.get("step")
        if header.ts is not None:
            row.ts_last = header.ts
            self._widen(header.ts)
            clock.saw(header.ts)
        row.last_segment = None

    # -- evidence ------------------------------------------------------------------------------

    def _gather(
        self, block: Block, places: Places, event_id: int, losses: Losses, start: int, end: int
    ) -> None:
        """Take the lines before the event and its own, and begin to take those that follow.

        As far back as any block remembers, or where the file begins.
        """
        data = block.data
        low = max(block.history, start - HISTORY)
        bounds = [(start, end)]
        stop = data.rfind(b"\n", low, start)
        while stop >= 0 and len(bounds) <= EVIDENCE_BEFORE:
            above = data.rfind(b"\n", low, stop)
            if above < 0 and places.of(low)[0]:
                break
            bounds.append((above + 1 if above >= 0 else low, stop))
            stop = above
        pending = _Pending(
            event_id,
            [
                (places.of(begin)[1], _shortened(data, begin, stop))
                for begin, stop in reversed(bounds)
            ],
            EVIDENCE_AFTER,
            losses,
        )
        self._pending.append(pending)
        self._follow([pending], block, places, end + 1)

    def _follow(self, wanting: list[_Pending], block: Block, places: Places, position: int) -> None:
        """Give pending evidence the block's lines from `position` on."""
        wanted = max(pending.remaining for pending in wanting)
        while wanted and position < block.end:
            stop = block.data.find(b"\n", position, block.end)
            stop = block.end if stop < 0 else stop
            line = places.of(position)[1], _shortened(block.data, position, stop)
            for pending in wanting:
                if pending.remaining:
                    pending.remaining -= 1
                    pending.lines.append(line)
            position, wanted = stop + 1, wanted - 1
        if not wanted:
            self._complete()

    def _complete(self, everything: bool = False) -> None:
        """Mask the evidence that is complete, as one text: a key may run over its lines."""
        waiting = []
        for pending in self._pending:
            if pending.remaining and not everything:
                waiting.append(pending)
                continue
            numbers, lines = zip(*pending.lines, strict=True)
            text, pending.losses.masked = self._masker.mask(b"\n".join(lines))
            for line_no, line, clean in zip(numbers, lines, text.split(b"\n"), strict=True):
                if len(line) > EVIDENCE_BYTES:
                    clean = _cut(clean, b"\r" in line, len(line) == EVIDENCE_BYTES + MARGIN)
                decoded, replaced = _decoded(clean)
                pending.losses.replaced_bytes += replaced
                self._evidence.append(Line(pending.event_id, self._file_id, line_no, decoded))
            self.losses.masked += pending.losses.masked
            self.losses.replaced_bytes += pending.losses.replaced_bytes
        self._pending = waiting


def _shortened(data: bytearray, start: int, stop: int) -> bytes:
    """A line for evidence, with a margin; of one redrawn with CR the end, which was shown last."""
    line = bytes(data[start:stop]).rstrip(b"\r")
    most = EVIDENCE_BYTES + MARGIN
    return line[-most:] if b"\r" in line else line[:most]


def _cut(line: bytes, redrawn: bool, shortened: bool) -> bytes:
    """A masked line without its margin, if it has one, and no longer than evidence may be."""
    margin = MARGIN if shortened else 0
    if redrawn:
        return line[margin:][-EVIDENCE_BYTES:]
    return line[: len(line) - margin][:EVIDENCE_BYTES]


def _renamed(names: Renamer, rows: Sequence[Row], lines: Sequence[Line]) -> list[Line]:
    """The lines with the names in them replaced, as they are in the rows themselves.

    Only now, for what a signature reads in a message hangs on its wording.
    """
    for row in rows:
        told = (row.message.captures.get(name) for name in HOST_CAPTURES)
        for host in (row.host, *told):
            if host:
                names.learn_host(host)
        names.learn(row.message.text)
    for line in lines:
        names.learn(line.text)
    # What ranks print alike is one message in many rows.
    messages: dict[int, tuple[Message, Message]] = {}
    labels: Labels | None = None
    for row in rows:
        message = row.message
        if id(message) not in messages:
            renamed = message._replace(
                text=names.text(message.text), captures=names.captures(message.captures)
            )
            messages[id(message)] = message, renamed  # both, that the id stays its own
        if labels is None:  # of one file, all the same
            cluster, run, job = (
                value and names.text(value)
                for value in (row.labels.cluster, row.labels.run, row.labels.job)
            )
            labels = row.labels._replace(cluster=cluster, run=run, job=job)
        _, row.message = messages[id(message)]
        row.labels = labels
        row.host = row.host and names.host(row.host)
    return [line._replace(text=names.text(line.text)) for line in lines]


# Columns of events, or what they are made of, by where a row has them.
_PLAIN = {
    "file_id": "file_id",
    "byte_offset": "byte_offset",
    "line_no": "line_no",
    "last_line_no": "last_line_no",
    "ts_lo": "ts_lo",
    "ts_hi": "ts_hi",
    "ts_last": "ts_last",
    "rank": "rank",
    "host": "host",
    "repeats": "repeats",
    "ts": "header.ts",
    "ts_source": "header.ts_source",
    "tz_assumed": "header.tz_assumed",
    "level": "header.level",
    "local_rank": "header.local_rank",
    "pid": "header.pid",
    "message": "message.text",
    "hung_us": "message.hung_us",
    "said_local_rank": "message.local_rank",
    "world_size": "message.world_size",
    "step": "message.step",
    "cluster": "labels.cluster",
    "run": "labels.run",
    "job": "labels.job",
    "attempt": "labels.attempt",
}
_plain = attrgetter(*_PLAIN.values())


def events(rows: Sequence[Row]) -> pa.RecordBatch:
    """Closed rows, of one file or of many, as a batch of schema.EVENTS."""
    messages = [row.message for row in rows]
    rules = {message.rule.number: message.rule for message in messages}
    order = {number: place for place, number in enumerate(rules)}
    place = pa.array([order[message.rule.number] for message in messages], pa.int32())

    def of_rule(values: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
        return pa.array(values, kind).take(place)

    told = zip(*map(_plain, rows), strict=True) if rows else ([] for _ in _PLAIN)
    columns: dict[str, Any] = dict(zip(_PLAIN, told, strict=True))
    hashes = np.array([rule.hash for rule in rules.values()], np.uint64)
    offsets = columns["byte_offset"]
    file_ids = np.array(columns["file_id"], np.uint64)
    columns |= {
        "event_id": _event_ids(file_ids, np.array(offsets, np.uint64), hashes[place.to_numpy()]),
        "file_id": file_ids,
        "signature": of_rule([rule.signature.id for rule in rules.values()], pa.string()),
        "role": of_rule([rule.signature.role for rule in rules.values()], pa.string()),
        "failure": of_rule([rule.failure.id for rule in rules.values()], pa.string()),
        **{
            name: of_rule([getattr(rule.failure, name) for rule in rules.values()], pa.string())
            for name in ("component", "category", "severity")
        },
        "ts_source": [
            "inherited" if ts is None and lo is not None else source
            for ts, lo, source in zip(
                columns["ts"], columns["ts_lo"], columns["ts_source"], strict=True
            )
        ],
        "t_eff": [
            None if lo is None else lo - hung
            for lo, hung in zip(columns["ts_lo"], columns["hung_us"], strict=True)
        ],
        "local_rank": [
            said if own is None else own
            for own, said in zip(columns["local_rank"], columns["said_local_rank"], strict=True)
        ],
        "captures": _captures(rows),
    }
    return pa.RecordBatch.from_arrays(
        [
            value if isinstance(value, pa.Array) else pa.array(value, field.type)
            for field in EVENTS.schema
            for value in (columns[field.name],)
        ],
        schema=EVENTS.schema,
    )


def _captures(rows: Sequence[Row]) -> pa.Array[Any]:
    """The captures of each row as a column of maps."""
    names: list[str] = []
    values: list[str] = []
    offsets = [0]
    for row in rows:
        names += row.message.captures
        values += row.message.captures.values()
        if row.step_last is not None:
            names.append("step_last")
            values.append(row.step_last)
        offsets.append(len(names))
    columns = (
        pa.array(offsets, pa.int32()),
        pa.array(names, pa.string()),
        pa.array(values, pa.string()),
    )
    return cast("pa.Array[Any]", pa.MapArray.from_arrays(*columns))  # type: ignore[call-overload]


def _event_ids(
    file_ids: NDArray[np.uint64], offsets: NDArray[np.uint64], hashes: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """64-bit hashes of (file, byte offset, signature), each of shape (n,)."""
    return _mixed(_mixed(_mixed(file_ids) ^ offsets) ^ hashes)


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every bit of the input changes half of the output's."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def evidence(lines: Sequence[Line]) -> pa.RecordBatch:
    """Lines of evidence as a batch of schema.EVIDENCE."""
    columns: dict[str, list[Any]] = {
        name: [getattr(line, name) for line in lines] for name in EVIDENCE.schema.names
    }
    return pa.RecordBatch.from_pydict(columns, schema=EVIDENCE.schema)


class _Stamps:
    """The times of neighbouring lines, found by their shape and read by `headers`.

    Both directions remember what they searched, so that a file is looked through once at most.
    """

    def __init__(self, clock: headers.Clock, layouts: headers.Layouts, known_from: int) -> None:
        self._clock = clock
        self._layouts = layouts
        self._known_from = known_from
        self._last: tuple[int, int] | None = None  # (offset, us) of the latest stamped line known
        self._searched = 0  # stamped lines before this offset are accounted for in _last
        self._next: tuple[int, int] | None = None  # (offset, us) of a stamped line further on
        self._next_near: tuple[int | None] | None = None  # what its time hangs on, if on anything
        self._clear = 0  # no stamped line between the last search's place and this offset

    def saw(self, offset: int, ts: int) -> None:
        """A line at `offset` carries its own time."""
        self._last, self._searched = (offset, ts), offset
        self._clock.saw(ts)
        if offset >= self._known_from:
            self._clock.near_us = ts

    def before(self, block: Block, start: int, offset: int) -> int | None:
        """The time of the nearest stamped line in the LOOK bytes before the line at `offset`."""
        low = max(offset - LOOK, self._searched)
        bottom = max(start - (offset - low), block.history)
        whole = low in (0, self._searched)  # whether a line begins at `bottom`
        if found := _last_stamp(block.data, bottom, start, whole, self._clock, self._layouts):
            self.saw(offset - (start - found[0]), found[1])
        self._searched = offset
        if self._last is not None and offset - self._last[0] <= LOOK:
            return self._last[1]
        return None

    def after(self, block: Block, position: int, limit: int, near: int | None) -> int | None:
        """The time of the first stamped line from `position` on that begins before `limit`.

        A time without a year is put near `near`, the time before the line that asks: what was read
        since then depends on where blocks end.
        """
        shift = block.offset - block.start
        clock = headers.Clock(self._clock.tz, self._clock.mtime_us, near)
        if self._next is not None and position + shift <= self._next[0]:
            offset, ts = self._next
            if offset >= limit:
                return None
            if self._next_near is None or self._next_near == (near,):
                return ts
            return _read_stamp(block.data, offset - shift, block.end, clock, self._layouts)
        self._next = None
        stop = min(block.end, limit - shift)
        begin = max(position, self._clear - shift)
        if found := _first_stamp(block, position, begin, stop, clock, self._layouts):
            self._next = (found[0] + shift, found[1])
            self._next_near = (near,) if clock.completed else None
            return found[1]
        self._clear = max(self._clear, stop + shift)
        return None


def _first_stamp(
    block: Block,
    line_start: int,
    begin: int,
    stop: int,
    clock: headers.Clock,
    layouts: headers.Layouts,
) -> tuple[int, int] | None:
    """(place, us) of the first stamped line whose time stands in data[begin:stop].

    A line begins at `line_start`, at or before `begin`.
    """
    data, before = block.data, -1
    for hint in headers.TIME_HINT.finditer(data, begin, min(stop + _HINT, block.end)):
        place = hint.start()
        line = data.rfind(b"\n", line_start, place) + 1 or line_start
        if place < stop and line != before:
            before = line
            ts = _read_stamp(data, line, block.end, clock, layouts)
            if ts is not None:
                return line, ts
    return None


def _last_stamp(
    data: bytearray,
    bottom: int,
    start: int,
    whole: bool,
    clock: headers.Clock,
    layouts: headers.Layouts,
) -> tuple[int, int] | None:
    """(place, us) of the last stamped line in data[bottom:start].

    `whole` says that a line begins at `bottom`; else what stands there is the end of one.
    """
    stop, width = start, 128  # the line before has a time, or a long stretch has none
    while stop > bottom:
        begin = max(bottom, stop - width)
        before = -1
        hints = [
            m.start() for m in headers.TIME_HINT.finditer(data, begin, min(stop + _HINT, start))
        ]
        while hints:
            place = hints.pop()
            if place >= stop:
                continue
            line = data.rfind(b"\n", bottom, place) + 1 or bottom
            if line != before and (line > bottom or whole):
                before = line
                ts = _read_stamp(data, line, start, clock, layouts)
                if ts is not None:
                    return line, ts
        stop, width = begin, width * 4
    return None


_STAMP_BYTES = 512  # of a line, in which its time stands


def _read_stamp(
    data: bytearray, line: int, stop: int, clock: headers.Clock, layouts: headers.Layouts
) -> int | None:
    stop = min(stop, line + _STAMP_BYTES)
    end = data.find(b"\n", line, stop)
    return layouts.stamped(data, clock, line, end if end >= 0 else stop)


def _segment(data: bytearray, start: int, end: int, at: int) -> tuple[int, int]:
    """Bounds of the CR-separated piece of the line data[start:end] in which a match ends."""
    low = data.rfind(b"\r", start, at) + 1 or start
    high = data.find(b"\r", at, end)
    return low, end if high < 0 else high


def _template(text: bytes) -> bytes:
    """A message without its numbers: what repeats have in common."""
    return (_HEX.sub(b"", text) if b"0x" in text else text).translate(None, _DIGITS)


def _apart(earlier: int | None, later: int | None) -> bool:
    """Whether two folded hits are too far apart in time to be one row."""
    return earlier is not None and later is not None and abs(later - earlier) > FOLD_GAP_US


def _decoded(value: bytes) -> tuple[str, int]:
    """Bytes as text, and how many of them were none."""
    try:
        return value.decode(), 0
    except UnicodeDecodeError:
        text = value.decode(errors="replace")
        return text, text.count("\ufffd") - value.count(b"\xef\xbf\xbd")


def _int(value: str | None, most: int) -> int | None:
    """The number a capture holds, None where it is none or too large for its column."""
    if value is None:
        return None
    digits = value.replace(",", "").strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        return None  # `int` refuses thousands of digits
    number = int(digits)
    return number if number <= most else None
