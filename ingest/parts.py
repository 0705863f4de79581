"""Cut one large file into parts that several workers read, and put their rows together again.

Hides where a file may be cut, what a part must have seen of its neighbours, and what is only known
when all parts are there. The rows are those of the file read whole by one worker; what a part
must guess is checked when all are there, and a guess that was wrong is a reason to read the file
again as a whole.

A part has the lines that begin in its range of the content, which starts at a multiple of CELL, so
that no fold and no sample reaches over it. Before its own lines it goes through those of two
cells, recording and forgetting them: the first cell brings the times of lines to what they are
when the file is read from its start, the second is as far as a line looks back. After them it
reads on until its last rows have found a later time and the lines of their evidence.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from itertools import pairwise
from typing import BinaryIO, NamedTuple, Self
from zoneinfo import ZoneInfo

import numpy as np

from ingest import archives, blocks, cri, headers, records
from ingest.blocks import Block
from ingest.files import STDIN, Source
from ingest.rows import Batches
from ingest.streams import PEEK_BYTES, FileStream, Stream, as_utf8, decoded
from matcher.engine import Hits

SPLIT_BYTES = 128 << 20  # of content; a smaller file is not worth it
PART_BYTES = 64 << 20  # a part reads 4 MiB of its neighbours, whatever its size
PARTS_A_WORKER = 4  # so that none is left with a long part at the end
_PACKED = 8  # how much smaller than its content a file may be and still be looked into
_FRAME_BYTES = 256 << 20  # a zstd file of larger frames is not looked through for their places


class Identity(NamedTuple):
    """What tells that a file is still the one that was cut."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class Place(NamedTuple):
    """Where reading can start: an offset in the file and the one of the content there."""

    packed: int
    content: int


@dataclass(frozen=True, slots=True)
class Part:
    """The lines of a source that begin in content[begin:end]; the last one's `end` is None."""

    source: Source
    identity: Identity
    codec: str
    places: tuple[Place, ...]  # where it starts to read, where others do after it, and the end
    number: int
    count: int
    begin: int
    end: int | None
    near_us: int  # a time of the file, for times without a year until it shows one itself

    @property
    def warm_from(self) -> int:
        """Offset from which on it goes through the lines before its own."""
        return _warm_from(self.begin)

    @property
    def size_bytes(self) -> int:
        """Its share of the file on disk, for progress."""
        size = self.identity.size
        return size * (self.number + 1) // self.count - size * self.number // self.count


@dataclass(slots=True)
class Tally:
    """What was read of a file or a part, and found, but for the rows; for the `files` row."""

    codec: str | None = None
    sha256_head: str | None = None
    raw_bytes: int = 0
    lines: int = 0
    cut_lines: int = 0
    matches: int = 0
    first_ts: int | None = None
    last_ts: int | None = None
    surveyed: int = 0
    stamped: int = 0
    ranked: int = 0
    replaced_bytes: int = 0
    masked: int = 0
    seconds: float = 0.0

    def took(self, recorder: records.Recorder) -> None:
        """Note what the recorder found."""
        self.matches = recorder.matches
        self.first_ts, self.last_ts = recorder.first_ts, recorder.last_ts
        self.replaced_bytes = recorder.losses.replaced_bytes
        self.masked = recorder.losses.masked

    def scaled(self, count: int) -> int:
        """A count of the lines that were surveyed, for all lines."""
        return round(count * self.lines / self.surveyed) if self.surveyed else 0

    def plus(self, later: Tally) -> Self:
        """This and a later part's together."""
        first = [ts for ts in (self.first_ts, later.first_ts) if ts is not None]
        last = [ts for ts in (self.last_ts, later.last_ts) if ts is not None]
        return replace(
            self,
            raw_bytes=self.raw_bytes + later.raw_bytes,
            lines=self.lines + later.lines,
            cut_lines=self.cut_lines + later.cut_lines,
            matches=self.matches + later.matches,
            first_ts=min(first, default=None),
            last_ts=max(last, default=None),
            surveyed=self.surveyed + later.surveyed,
            stamped=self.stamped + later.stamped,
            ranked=self.ranked + later.ranked,
            replaced_bytes=self.replaced_bytes + later.replaced_bytes,
            masked=self.masked + later.masked,
            seconds=self.seconds + later.seconds,
        )

    def without(self, lost: records.Losses) -> Self:
        """This without what was lost in lines that are left out."""
        return replace(
            self,
            replaced_bytes=self.replaced_bytes - lost.replaced_bytes,
            masked=self.masked - lost.masked,
        )


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a part, its line numbers counted from wherever it started to read."""

    tally: Tally
    first_line: int = 1  # number of its first own line
    ended: bool = False  # whether its last own line is the file's last
    sound: bool = False  # whether it is what the file read whole would give
    asked: bool = False  # whether a time without a year was put near the guess; see headers.Guess
    times: tuple[int, int] | None = None  # seen while the guess stood
    near_us: int | None = None  # the last time it saw before the lines that the next part sees too
    evidence_for: Mapping[str, tuple[int, records.Losses]] = field(default_factory=dict)
    events: Batches = field(default_factory=Batches)
    evidence: Batches = field(default_factory=Batches)


# -- cutting -------------------------------------------------------------------------------------


def is_large(source: Source) -> bool:
    """Whether a source may be large enough for parts, by what is known before it is opened."""
    size = source.size if source.status == "ok" and source.location != STDIN else 0
    return (size or 0) * _PACKED >= SPLIT_BYTES


def cut(source: Source, workers: int) -> list[Part]:
    """The parts of a source; none where it is too small, or of a kind that must be read whole."""
    if not is_large(source):
        return []
    try:
        with blocks.open_file(source.location) as raw:
            return _cut(source, raw, workers)
    except OSError:
        return []  # whoever reads it will say why


def _cut(source: Source, raw: BinaryIO, workers: int) -> list[Part]:
    seen = identity(raw)
    looked = _look(source, raw, seen.size)
    if looked is None:
        return []
    codec, near_us = looked
    plain = codec == "plain"
    places = [Place(0, 0), Place(seen.size, seen.size)] if plain else _frames(raw, seen.size)
    if not places or places[-1].content < SPLIT_BYTES:
        return []
    size = places[-1].content
    count = min(workers * PARTS_A_WORKER, size // PART_BYTES)
    begins = [0]
    starts = [places[0]]
    for number in range(1, count):
        wanted = number * size // count
        if plain:
            begin = wanted // records.CELL * records.CELL
            offset = max(0, begin - _lead())
            place = Place(offset, offset)
        else:
            place = max(place for place in places if place.content <= wanted)
            begin = -(-(place.content + _lead()) // records.CELL) * records.CELL
        apart = begins[-1] + 2 * records.CELL <= begin < size
        if apart and (plain or starts[-1] < place):
            begins.append(begin)
            starts.append(place)
    if len(begins) == 1:
        return []
    ends = places[-1:]
    return [
        Part(
            source=source,
            identity=seen,
            codec=codec,
            places=(place, *ends) if plain else (*starts[number:], *ends),
            number=number,
            count=len(begins),
            begin=begin,
            end=begins[number + 1] if number + 1 < len(begins) else None,
            near_us=near_us,
        )
        for number, (place, begin) in enumerate(zip(starts, begins, strict=True))
    ]


def _lead() -> int:
    """How far before its range a part starts to read."""
    return 2 * records.CELL + blocks.HISTORY


def _warm_from(begin: int) -> int:
    """Offset from which on a part goes through lines, for one whose own begin at `begin`."""
    return max(0, begin - 2 * records.CELL)


def identity(file: BinaryIO) -> Identity:
    """Of an open file. Raises OSError."""
    info = os.fstat(file.fileno())
    return Identity(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)


def _look(source: Source, raw: BinaryIO, size: int) -> tuple[str, int] | None:
    """(codec, a time) of a log that can be cut: one text, in UTF-8, no line of which is joined.

    The time is the first that its head has, else when it was written.
    """
    entry = archives.Entry(None, size, source.mtime_us)
    first = next(archives.logs(FileStream(raw), entry, source.path))
    stream = first.stream
    if first.member is not None or stream is None or stream.codec not in ("plain", "zstd"):
        return None
    if cri.joined(as_utf8(stream), blocks.LINE_LIMIT) is not stream:
        return None
    near_us = source.mtime_us or 0
    whole = without = 0
    for line in stream.peek(PEEK_BYTES).split(b"\n"):
        if headers.TIME_HINT.search(line, 0, 512):
            guess = headers.Guess(near_us)
            ts = headers.stamped(line[:512], headers.Clock(ZoneInfo("UTC"), guess=guess))
            without += guess.asked
            if ts is not None and not guess.asked:
                near_us = near_us if whole else ts
                whole += 1
    # Times without a year hang on all that stands before them.
    return None if without > whole else (stream.codec, near_us)


# -- zstd ----------------------------------------------------------------------------------------

_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"  # behind a byte of 0x50 to 0x5f
_SEEK_TABLE, _SEEK_END = 0x184D2A5E, 0x8F92EAB1
_HEADER_BYTES = 18  # at most, of a frame


def _frames(file: BinaryIO, size: int) -> list[Place]:
    """Where the frames of a zstd file start, and the end; none where that is not known.

    What is said here is believed until it is read: see _Sections.
    """
    return _from_table(file, size) or _from_headers(file, size)


def _from_table(file: BinaryIO, size: int) -> list[Place]:
    """By the seek table of the seekable format (zstd's contrib/seekable_format)."""
    footer = os.pread(file.fileno(), 9, max(0, size - 9))
    if len(footer) < 9 or int.from_bytes(footer[5:], "little") != _SEEK_END:
        return []
    count, width = int.from_bytes(footer[:4], "little"), 12 if footer[4] & 0x80 else 8
    length = 8 + count * width + 9
    if length > size:
        return []
    table = os.pread(file.fileno(), length, size - length)
    if table[:8] != _SEEK_TABLE.to_bytes(4, "little") + (length - 8).to_bytes(4, "little"):
        return []
    sizes = np.frombuffer(table[8:-9], dtype="<u4").reshape(count, width // 4)[:, :2]
    ends = np.cumsum(sizes, axis=0, dtype=np.int64)
    places = [Place(0, 0), *(Place(*end) for end in ends.tolist())]
    return places if places[-1].packed == size - length else []


def _from_headers(file: BinaryIO, size: int) -> list[Place]:
    """By what the header of each frame says of its content, and its blocks of their length.

    The format is that of RFC 8878.
    """
    places: list[Place] = []
    at = content = 0
    while at < size:
        head = os.pread(file.fileno(), _HEADER_BYTES, at)
        if head[1:4] == _SKIPPABLE and head[0] >> 4 == 5:
            at += 8 + int.from_bytes(head[4:8], "little")
            continue
        frame = _frame(head)
        if frame is None or frame.content > _FRAME_BYTES:
            return []
        places.append(Place(at, content))
        at += frame.header
        content += frame.content
        last = False
        while not last:
            block = os.pread(file.fileno(), 3, at)
            word = int.from_bytes(block, "little")
            last, kind = bool(word & 1), word >> 1 & 3
            if len(block) < 3 or kind == 3:
                return []
            at += 3 + (1 if kind == 1 else word >> 3)
        at += frame.check
    return [*places, Place(at, content)] if at == size else []


class _Frame(NamedTuple):
    header: int  # bytes
    content: int
    check: int  # bytes behind the blocks


def _frame(head: bytes) -> _Frame | None:
    """What the header of a frame says; None where it does not tell the size of its content."""
    if not head.startswith(_MAGIC) or len(head) < _HEADER_BYTES:
        return None
    flags = head[4]
    single = bool(flags & 0x20)
    width = (1 if single else 0, 2, 4, 8)[flags >> 6]
    if not width:
        return None
    at = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    content = int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)
    return _Frame(at + width, content, 4 if flags & 4 else 0)


class _Forward(FileStream):
    """An open file from where it stands up to an offset."""

    def __init__(self, file: BinaryIO, end: int) -> None:
        super().__init__(file)
        self._left = end - file.tell()

    def _pull(self, out: memoryview) -> int:
        count = super()._pull(out[: max(0, self._left)])
        self._left -= count
        return count

    def seekable(self) -> bool:
        return False  # a broken stream is read again by whoever reads the file whole


class _Sections(Stream):
    """The content of frames between the places of a part, each as long as the places say."""

    def __init__(self, file: BinaryIO, codec: str, places: Sequence[Place]) -> None:
        super().__init__()
        self.codec = codec
        self._file = file
        self._ahead = iter(pairwise(places))
        self._section: Stream | None = None
        self._left = 0

    def _pull(self, out: memoryview) -> int:
        while True:
            if self._section is None:
                begin, end = next(self._ahead, (None, None))
                if begin is None or end is None:
                    return 0
                self._file.seek(begin.packed)
                self._section = decoded(_Forward(self._file, end.packed), self.codec)
                self._left = end.content - begin.content
            count = self._section.readinto(out)
            self._left -= count
            if count and self._left >= 0:
                return count
            self.fault = self._section.fault or ("frames of another size" if self._left else None)
            if self.fault:
                return 0
            self._section = None


# -- reading -------------------------------------------------------------------------------------


class Phase(IntEnum):
    """What a block is to its part."""

    BEFORE = 0  # history alone
    WARM = 1  # to be recorded and forgotten
    OWN = 2
    LAST = 3  # own, and what the next part goes through before its own
    AFTER = 4  # to be looked at for what rows still want


NOTHING = Hits(*(np.empty(0, np.int64) for _ in Hits._fields))


def content(part: Part, file: BinaryIO) -> Stream:
    """The content of a part's file from its first place on."""
    if part.codec != "plain":
        return _Sections(file, part.codec, part.places)
    file.seek(part.places[0].packed)
    return FileStream(file)


def phases(part: Part, found: Iterable[Block]) -> Iterator[tuple[Phase, Block]]:
    """The blocks of a part, cut where its own lines begin and end.

    They stop where no own line can come any more; who has enough of those AFTER stops earlier.
    """
    edges = [part.warm_from, part.begin]
    if part.end is not None:
        edges += [_warm_from(part.end), part.end]
    passed = 0
    for block in found:
        rest: Block | None = block
        while rest is not None:
            block, rest = rest, None
            while passed < len(edges) and block.line_offset == block.offset >= edges[passed]:
                passed += 1
            if passed < len(edges):
                block, rest = _at_line(block, edges[passed])
            yield Phase(passed), block
        if passed < Phase.OWN and part.end is not None and block.offset >= part.end:
            return


def _at_line(block: Block, offset: int) -> tuple[Block, Block | None]:
    """The block up to the first line that begins at `offset` or after it, and from there on."""
    begin = max(block.start, block.start + offset - 1 - block.offset)
    place = block.data.find(b"\n", begin, block.end) + 1
    if not place or place == block.end:
        return block, None
    lines = block.data.count(b"\n", block.start, place)
    at = block.offset + place - block.start
    return block._replace(end=place, lines=lines), block._replace(
        start=place,
        offset=at,
        line_no=block.line_no + lines,
        lines=block.lines - lines,
        line_offset=at,
        history=max(block.history, place - blocks.HISTORY),
        breaks=None if block.breaks is None else block.breaks[place - block.start :],
    )


def count_own(tally: Tally, begin: int, block: Block) -> None:
    """Add an own block to the tally of a part whose first own line is at offset `begin`."""
    tally.raw_bytes = block.offset + block.end - block.start - begin
    tally.lines += block.lines
    tally.cut_lines += not block.lines and block.line_offset == block.offset


# -- stitching -----------------------------------------------------------------------------------


def stitched(parts: Sequence[Part], found: Sequence[Found]) -> list[Found]:
    """What came of the parts, as of one file, its tally with the first; none where they do not fit.

    Line numbers are those of the file, and evidence that an earlier part has is left out.
    """
    whole = found[0].tally
    for later in found[1:]:
        whole = whole.plus(later.tally)
    size = parts[0].places[-1].content
    if whole.raw_bytes != size or sum(part.ended for part in found) != 1:
        return []
    nears: set[int | None] = {None}  # what the last time before a part may be
    for its, part in zip(parts, found, strict=True):
        times = part.times or (its.near_us, its.near_us)
        if part.asked and not all(_same_years(its, times, near) for near in nears):
            return []
        nears = nears | set(part.times or ()) if part.near_us is None else {part.near_us}
    had: set[str] = set()
    placed: list[Found] = []
    lines = 0
    for part in found:
        late = [part.evidence_for[failure] for failure in part.evidence_for.keys() & had]
        had |= part.evidence_for.keys()
        for _, lost in late:
            whole = whole.without(lost)
        shift = lines + 1 - part.first_line if part.tally.lines else 0
        without = frozenset(event_id for event_id, _ in late)
        placed.append(
            replace(
                part,
                events=replace(part.events, line_shift=shift),
                evidence=replace(part.evidence, line_shift=shift, without=without),
            )
        )
        lines += part.tally.lines
    return [replace(placed[0], tally=whole), *placed[1:]]


_DAY = timedelta(days=1)
_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_NEAR = 20 * _DAY  # the two readings of `121`, 21 January and 1 December, are 51 days apart


def _same_years(part: Part, times: tuple[int, int], near: int | None) -> bool:
    """Whether times without a year, seen among these, are the same near another time than guessed.

    See headers.Clock: where no time was seen before, they are put before that of the file. One
    year for all is asked for, since a day may be in one and not in the next.
    """
    mtime_us = part.source.mtime_us
    known = near if near is not None else mtime_us
    if known is None:
        return False
    first, last, guess, other = (
        _ORIGIN + timedelta(microseconds=us) for us in (*times, part.near_us, known)
    )
    if near is not None:
        first, last = min(first, other), max(last, other)
        return last - first <= _NEAR and first.year == last.year == guess.year
    other += _DAY
    days = [first + number * _DAY for number in range(-1, (last - first).days + 3)]
    return (
        last - first <= _NEAR
        and last <= other
        and first.year == other.year == guess.year
        # In these days two readings are possible, of which the other one may come first.
        and not any(day.month >= 10 and day.day < 10 for day in days)
    )


class Gathering:
    """The parts of files that came so far, until all of a file are there."""

    def __init__(self) -> None:
        self.over: set[Source] = set()  # no part of these is wanted any more
        self.again: list[Source] = []  # of these, what must be read whole
        self._found: dict[Source, dict[Part, Found]] = {}

    def add(self, part: Part, found: Found) -> list[Found]:
        """All parts of the file where this one is the last to come; see `stitched`."""
        if part.source in self.over:
            return []
        so_far = self._found.setdefault(part.source, {})
        so_far[part] = found
        if found.sound and len(so_far) < part.count:
            return []
        ordered = sorted(so_far, key=lambda part: part.number)
        whole = stitched(ordered, [so_far[part] for part in ordered]) if found.sound else []
        if not whole:
            self.again.append(part.source)
        self.drop(part.source)
        return whole

    def drop(self, source: Source) -> None:
        """Want no more parts of this file."""
        self.over.add(source)
        self._found.pop(source, None)
