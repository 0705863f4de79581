"""Make seeded corpora of a planned hit density: same arguments, same bytes, a known count.

Hides how lines are drawn, dated and packed. Text is made piece by piece: a base piece of lines is
drawn once, and each piece is a copy of it with all clocks set to the place in the file, all loose
digits drawn anew, and planted lines spliced in. So a corpus of any size takes little memory, time
goes forward in it, and no two stamped lines are the same.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import NamedTuple, Protocol

import lz4.frame
import numpy as np
from numpy.typing import NDArray

from ingest import headers
from ingest.streams import zstd
from matcher.catalogue import Catalogue, Signature
from matcher.engine import Engine, cache_directory

SHAPES = ("text", "binary", "line")
KINDS = 24  # a log shows few kinds of trouble; the first line of each costs more than the rest
FEW_FILES = 16  # are there for their number, more of them for their size
VARIANTS = 512  # of each kind, that differ in their numbers
MEMBER_BYTES = 4 << 20  # of text in a gzip member or zstd frame, where a file has several

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Corpus:
    """So many lines in so many files, of which hits_per_million of a million are planted.

    In the shape `line` a file is one line without LF that `lines` lines were joined to, and each
    of KINDS signatures stands in it once.
    """

    seed: int
    lines: int
    hits_per_million: int = 0
    files: int = 1
    shape: str = "text"  # of SHAPES

    def scaled(self, scale: float) -> Corpus:
        """So many times as many lines and, if they are many, files; where hits are planted, one."""
        lines = max(2 * KINDS if self.shape == "line" else 1, round(self.lines * scale))
        few = self.files <= FEW_FILES
        return replace(
            self,
            lines=lines,
            files=self.files if few else max(1, round(self.files * scale)),
            hits_per_million=self.hits_per_million
            and max(self.hits_per_million, -(-1_000_000 // lines)),
        )

    @property
    def hits(self) -> int:
        """How many (line, signature) there are to be found."""
        if self.shape == "line":
            return KINDS * self.files
        return self.lines * self.hits_per_million // 1_000_000

    @property
    def whole_lines(self) -> int:
        """How many lines a reader counts."""
        return self.files if self.shape == "line" else self.lines

    def bounds(self, number: int) -> tuple[int, int]:
        """First and last + 1 of the lines of a file, numbered through the corpus from 0."""
        return number * self.lines // self.files, (number + 1) * self.lines // self.files

    def planted(self) -> Iterator[int]:
        """The numbers of the planted lines in order, spread evenly."""
        if self.shape == "line":
            for begin, end in map(self.bounds, range(self.files)):
                yield from (begin + (k + 1) * (end - begin) // (KINDS + 1) for k in range(KINDS))
        else:
            # The first line of which `hits` says that it makes this hit complete.
            for hit in range(1, self.hits + 1):
                yield -(-hit * 1_000_000 // self.hits_per_million) - 1


# -- templates -----------------------------------------------------------------------------------
# Bytes that no text has stand for the digits of a clock and for loose ones until a piece is made.

_STEP_US = 1_737  # from line to line
_DAY, _BEGIN_US = 10, 1_773_100_800_000_000  # 2026-03-10
_FIELDS = {"%d": 2, "%H": 2, "%M": 2, "%S": 2, "%f": 6, "%s": 7}
_CODES: dict[str, str] = {}
_LIMITS: list[tuple[str, int]] = []  # (field, place of the digit from the right) of each code
for _field, _width in _FIELDS.items():
    for _place in reversed(range(_width)):
        # From 1 on, without tab, LF, VT, FF, CR and ESC.
        _code = [*range(1, 9), *range(14, 27)][len(_LIMITS)]
        _CODES[_field] = _CODES.get(_field, "") + chr(_code)
        _LIMITS.append((_field, _place))
_LOOSE = 28
_CODES |= {
    "%s": "177" + _CODES["%s"],
    "%b": _CODES["%s"],  # since boot
    "%3f": _CODES["%f"][:3],
    "%9f": _CODES["%f"] + chr(_LOOSE) * 3,
    "#": chr(_LOOSE),
}
_TOKEN = re.compile("|".join(sorted(map(re.escape, _CODES), key=len, reverse=True)))
_COLUMN = np.zeros(256, np.uint8)  # code -> column of _digits, from 1 on
_COLUMN[[*range(1, 9), *range(14, 27)]] = np.arange(1, 22)
_COLUMN[_LOOSE] = 22


def _template(text: str) -> bytes:
    return _TOKEN.sub(lambda token: _CODES[token[0]], text).encode()


def _digits(lines: NDArray[np.int64]) -> Bytes:
    """For each line (row) the digit of each code of a clock (column), as ASCII."""
    us = lines * _STEP_US
    second = us // 1_000_000
    values = {
        "%d": _DAY + second // 86_400,
        "%H": second // 3_600 % 24,
        "%M": second // 60 % 60,
        "%S": second % 60,
        "%f": us % 1_000_000,
        "%s": _BEGIN_US // 1_000_000 + second,
    }
    columns = [values[field] // 10**place % 10 for field, place in _LIMITS]
    return (np.stack([np.zeros_like(lines), *columns], axis=1) + 48).astype(np.uint8)


class _Block:
    """Lines with codes, each ended by LF, to be made into text as often as wanted."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._template = np.frombuffer(b"\n".join(lines) + b"\n", np.uint8)
        ends = np.flatnonzero(self._template == 10) + 1
        self.bounds = np.concatenate(([0], ends))
        columns = _COLUMN[self._template]
        self._at = np.flatnonzero(columns)
        self._column = columns[self._at]
        lengths = np.diff(np.concatenate(([0], np.searchsorted(self._at, ends))))
        self._line = np.repeat(np.arange(len(ends)), lengths)
        self._loose = self._column == _COLUMN[_LOOSE]

    def text(self, numbers: NDArray[np.int64], rng: np.random.Generator) -> Bytes:
        """The lines as those of these numbers."""
        made = self._template.copy()
        table = np.pad(_digits(numbers), ((0, 0), (0, 1)))
        digits = table[self._line, self._column]
        digits[self._loose] = rng.integers(48, 58, int(self._loose.sum()), np.uint8)
        made[self._at] = digits
        return made


# -- lines ---------------------------------------------------------------------------------------

PIECE = 1 << 16  # lines drawn once, 8 MB: twice what zstd -3 looks back
_NEAR_MISS = 0.005  # of filler lines, where there is anything to hit

# What launchers, collectors and loggers put before a message; {r} a rank, {l} a local one, {h} a
# host. The same layouts stand in the tests of the parser of headers.
_STAMPED = (
    "[2026-03-%d %H:%M:%S,%3f] [INFO] [engine.py:###:step] ",
    "2026-03-%d %H:%M:%S,%3f - trainer - INFO - ",
    "2026-03-%dT%H:%M:%S.%fZ node-{h} trainer[####]: ",
    "2026-03-%dT%H:%M:%S.%9fZ stderr F ",
    "I03%d %H:%M:%S.%f #### pjrt_client.cc:###] ",
    "Mar %d %H:%M:%S node-{h} systemd[1]: ",
    "kern  :info  : 2026-03-%dT%H:%M:%S,%f+00:00 ",
    "[%b.%f] ",
    "%s.%f node-{h} trainer: ",
    "INFO 03-%d %H:%M:%S [gpu_runner.py:###] ",
    "2026-03-%d %H:%M:%S.%f: I tensorflow/core/common_runtime/bfc.cc:###] ",
    "[pod/trainer-{r}/main] 2026-03-%dT%H:%M:%S.%9fZ ",
    "[rank{r}]:[I3%d %H:%M:%S.%9f ProcessGroupNCCL.cpp:####] ",
    "(RayTrainWorker pid=#####, ip=10.0.{l}.##) 2026-03-%d %H:%M:%S,%3f ",
)
_BARE = (
    "[rank{r}]: ",
    "[default{l}]:",
    "{r}: ",
    "[1,{r}]<stderr>:",
    "gpu-a{h}:#####:##### [{l}] NCCL INFO ",
    "",
)
_SAID = (
    "moved shard ##### of ### to stage {l}",
    "prefetch queue holds ## batches of ##### tokens",
    "heartbeat ##### answered in ### us",
    "compiled module jit_forward_##### in #.### s",
    "session-#####.scope: consumed ##.###s cpu",
    "Channel ##/32 : {r}[{l}] -> ###[{l}] via P2P/CUMEM",
    "validation shard ##### read in #.### s, ### samples kept",
    "tokenizer cache: ##### warm, ### cold, 0 misses, no second pass needed",
    "bucket #####: ### tensors, ## MiB, flushed after ## ms, overlap 0.###",
    "lr 1.###e-04 | loss 2.#### | grad norm 0.### | tokens/s ##### | mem ##.# GiB",
    "opened /data/shards/{r}/part-#####.bin, ##### records, crc ########",
    "rebalanced experts: #### tokens kept, #### routed to layer ##",
)
_WHOLE = (  # whole entries, of one line or more
    '{{"log":"queue {r} holds ### items\\n","stream":"stderr","time":"2026-03-%dT%H:%M:%S.%9fZ"}}',
    '{{"ts": %s.%3f, "rank": {r}, "queue": ##, "state": "steady", "fill": 0.###}}',
    "    with torch.autocast(device_type='cuda', dtype=torch.bfloat16):  # layer ##",
    "eval  {l}#%|█████▎    | #####/200000 [00:##<01:##, #.##it/s]",
    "\r".join(f"shards: {n:3d}%|{'█' * (n // 10):<10}| {n}#/1000 [00:{n}<01:##, #.##s/it]"
              for n in range(10, 60, 10)),
    "[rank{r}]: Stack (most recent call last):\n"
    '[rank{r}]:   File "/opt/train/model.py", line ###, in forward\n'
    "[rank{r}]:     hidden = self.layers[##](hidden, mask, position=#####)\n"
    '[rank{r}]:   File "/opt/train/attention.py", line ###, in __call__\n'
    "[rank{r}]:     return self.inner(query, key, value, window=####)",
)  # fmt: skip


def _entry(rng: random.Random) -> bytes:
    """A harmless entry of a log, with codes."""
    drawn = rng.random()
    if drawn < 0.12:
        text = rng.choice(_WHOLE)
    else:
        text = rng.choice(_STAMPED if drawn < 0.85 else _BARE) + rng.choice(_SAID)
    return _template(_filled(text, rng))


def _filled(text: str, rng: random.Random) -> str:
    rank = rng.randrange(512)
    return text.format(r=rank, l=rank % 8, h=f"{rank // 8:03}")


def _base(corpus: Corpus, near_misses: Sequence[bytes]) -> list[bytes]:
    """The lines that all pieces are made of, PIECE or all."""
    rng = random.Random(corpus.seed)
    size = min(PIECE, corpus.lines)
    lines: list[bytes] = []
    while len(lines) < size:
        if near_misses and rng.random() < _NEAR_MISS:
            lines.append(rng.choice(near_misses))
        else:
            lines += _entry(rng).split(b"\n")
    if corpus.shape == "binary":
        # The head stays text: nobody reads a file that begins with noise as a log.
        noise = np.random.default_rng(corpus.seed).integers(0, 256, (size, 128), np.uint8)
        noise[(noise == 10) | (noise == 13)] = 0
        lines = lines[:64] + [row.tobytes() for row in noise[64:]]
    if corpus.shape == "line":
        lines = [line.replace(b"\r", b" ") for line in lines]
    return lines[:size]


# -- planted lines -------------------------------------------------------------------------------

# What stands before a planted line: a collector's stamp, mostly, and a launcher's rank, often.
_OUTER = (
    "[2026-03-%d %H:%M:%S,%3f] [ERROR] [engine.py:###:step] ",
    "2026-03-%d %H:%M:%S,%3f - trainer - ERROR - ",
    "2026-03-%dT%H:%M:%S.%fZ node-{h} trainer[####]: ",
    "[pod/trainer-{r}/main] 2026-03-%dT%H:%M:%S.%9fZ ",
    "%s.%f node-{h} trainer: ",
    "",
)
_RANKED = ("[rank{r}]: ", "[default{l}]: ", "")
_NUMBER = re.compile(rb"(?<![\w.])\d+(?![\w.])")


def plain(catalogue: Catalogue) -> list[Signature]:
    """Signatures whose example line is one hit wherever it stands, and stored each time.

    Left out: those that need a stream or other lines, or share their line; `frequent` ones, which
    real logs have on every step and which cost less a hit.
    """
    return [
        s
        for s in catalogue.signatures
        if not (s.also or s.stream or s.follows or s.pair or s.threshold or s.frequent)
    ]


class Lines(NamedTuple):
    """Lines of a catalogue to be spliced in, with codes, proved by its engine."""

    planted: list[list[bytes]]  # of each kind its variants: each hits one signature once
    near_misses: list[bytes]  # they hit nothing


def lines_of(corpus: Corpus, catalogue: Catalogue) -> Lines:
    """KINDS kinds and their variants, drawn from the catalogue by the seed.

    Raises ValueError where the catalogue has too few.
    """
    rng = random.Random(corpus.seed)
    engine = Engine(catalogue, cache_directory())
    place = {signature.id: number for number, signature in enumerate(catalogue.signatures)}
    beaten = {other for s in catalogue.signatures for other in s.supersedes}
    examples = [
        (place[s.id], s.match[0].encode())
        for s in plain(catalogue)
        if _timeless(s.match[0])
        # Where all stand on one line, none may give way to another.
        and not (corpus.shape == "line" and (s.fallback or s.supersedes or s.id in beaten))
    ]
    rng.shuffle(examples)
    planted: list[list[bytes]] = []
    for number, example in examples:
        if variants := _variants(example, number, corpus.shape, engine, rng):
            planted.append(variants)
        if len(planted) == KINDS:
            break
    else:
        raise ValueError(f"only {len(planted)} lines can be planted: {KINDS} kinds are needed")
    if not corpus.hits or corpus.shape == "line":
        return Lines(planted, [])
    misses = [
        _template(_filled(rng.choice(_OUTER), rng)) + line.encode()
        for s in catalogue.signatures
        for line in s.no_match
        if "\n" not in line and _timeless(line)
    ]
    rows = _hits(engine, misses, rng)
    return Lines(planted, [line for line, hits in zip(misses, rows, strict=True) if not hits])


def _timeless(line: str) -> bool:
    """Whether the line tells no time of its own: it would not fit its place in the file.

    What stands before a line decides which styles of time are looked for in it.
    """
    collectors = ("", "[pod/trainer-0/main] ")
    stamped = [f"{one}2026-03-{_DAY}T00:00:00Z {line}".encode() for one in collectors]
    times = {headers.stamped(one, headers.Clock(UTC)) for one in (line.encode(), *stamped)}
    return times <= {None, _BEGIN_US}


def _variants(
    example: bytes, number: int, shape: str, engine: Engine, rng: random.Random
) -> list[bytes]:
    """The example behind headers, with other numbers, wherever that still hits it alone."""

    def other(match: re.Match[bytes]) -> bytes:
        width = len(match[0])
        return b"%d" % rng.randrange(10 ** (width - 1) if width > 1 else 0, 10**width)

    drawn: dict[bytes, None] = {}
    for _ in range(2 * VARIANTS):
        body = _NUMBER.sub(other, example)
        if shape == "line":
            drawn[b"and then " + body + b" and so on"] = None
        else:
            header = rng.choice(_OUTER) + rng.choice(_RANKED)
            drawn[_template(_filled(header, rng)) + body] = None
    lines = list(drawn)
    rows = _hits(engine, lines, rng)
    return [line for line, hits in zip(lines, rows, strict=True) if hits == [number]][:VARIANTS]


def _hits(engine: Engine, lines: Sequence[bytes], rng: random.Random) -> list[list[int]]:
    """The signatures that each of these lines hits."""
    numbers = np.arange(len(lines))
    text = _Block(lines).text(numbers, np.random.default_rng(rng.randrange(1 << 32)))
    found = engine.scan(text.tobytes())
    starts = np.concatenate(([0], np.flatnonzero(text == 10) + 1))
    rows: list[list[int]] = [[] for _ in lines]
    for line, number in zip(
        np.searchsorted(starts, found.start).tolist(), found.signature.tolist(), strict=True
    ):
        rows[line].append(number)
    return rows


# -- pieces --------------------------------------------------------------------------------------


def texts(corpus: Corpus, catalogue: Catalogue) -> Iterator[tuple[int, bytes]]:
    """(number of the file, next piece of its text) from the first file to the last."""
    lines = lines_of(corpus, catalogue)
    base = _Block(_base(corpus, lines.near_misses))
    planted = _Planted(corpus, lines.planted)
    number, (begin, end) = 0, corpus.bounds(0)
    for first in range(0, corpus.lines, PIECE):
        count = min(PIECE, corpus.lines - first)
        rng = np.random.default_rng([corpus.seed, first])
        made, cuts = _piece(base, planted.upto(first + count), first, count, rng)
        if corpus.shape == "line":
            made = made.replace(b"\n", b" ")
        done = first
        while done < first + count:
            stop = min(end, first + count)
            yield number, made[cuts[done - first] : cuts[stop - first]]
            done = stop
            while done == end and number + 1 < corpus.files:
                number += 1
                begin, end = corpus.bounds(number)
                if begin == end:
                    yield number, b""


class _Planted:
    """Hands out planted lines in the order of their numbers."""

    def __init__(self, corpus: Corpus, kinds: Sequence[Sequence[bytes]]) -> None:
        self._places = corpus.planted()
        self._next = next(self._places, None)
        self._rng = random.Random(corpus.seed)
        self._kinds = kinds
        self._in_turn = corpus.shape == "line"
        self._count = 0

    def upto(self, end: int) -> list[tuple[int, bytes]]:
        """(number, line) of those not yet handed out whose number is below `end`."""
        found: list[tuple[int, bytes]] = []
        while self._next is not None and self._next < end:
            turn = self._count % len(self._kinds)
            kind = self._kinds[turn] if self._in_turn else self._rng.choice(self._kinds)
            found.append((self._next, self._rng.choice(kind)))
            self._next = next(self._places, None)
            self._count += 1
        return found


def _piece(
    base: _Block,
    planted: Sequence[tuple[int, bytes]],
    first: int,
    count: int,
    rng: np.random.Generator,
) -> tuple[bytes, NDArray[np.int64]]:
    """The text of `count` lines from number `first` on, and where each begins, and the end."""
    text = base.text(np.arange(first, first + len(base.bounds) - 1), rng)[: base.bounds[count]]
    bounds = base.bounds[: count + 1]
    if not planted:
        return text.tobytes(), bounds
    numbers = np.array([number for number, _ in planted])
    block = _Block([line for _, line in planted])
    own = block.text(numbers, rng).data
    rest = text.data
    pieces: list[memoryview] = []
    done = 0
    for place, (begin, end) in zip(
        (numbers - first).tolist(), np.stack((block.bounds[:-1], block.bounds[1:]), 1).tolist(),
        strict=True,
    ):  # fmt: skip
        pieces += (rest[done : bounds[place]], own[begin:end])
        done = bounds[place + 1]
    pieces.append(rest[done:])
    lengths = np.diff(bounds)
    lengths[numbers - first] = np.diff(block.bounds)
    return b"".join(pieces), np.concatenate(([0], np.cumsum(lengths)))


# -- files ---------------------------------------------------------------------------------------


class _Out(Protocol):
    """A file that is written."""

    def write(self, text: bytes, /) -> object: ...
    def close(self) -> None: ...


class _Members:
    """Text packed in members of MEMBER_BYTES."""

    def __init__(self, path: Path, pack: Callable[[bytes], bytes]) -> None:
        self._file = path.open("wb")
        self._pack = pack
        self._held = bytearray()

    def write(self, text: bytes, /) -> None:
        self._held += text
        while len(self._held) >= MEMBER_BYTES:
            self._put(MEMBER_BYTES)

    def close(self) -> None:
        self._put(len(self._held))
        self._file.close()

    def _put(self, size: int) -> None:
        if size:
            self._file.write(self._pack(bytes(self._held[:size])))
            del self._held[:size]


class Codec(NamedTuple):
    """How the files of a corpus are packed."""

    suffix: str
    open: Callable[[Path], _Out]


CODECS: Mapping[str, Codec] = {
    "none": Codec("", lambda path: path.open("wb")),
    "gzip": Codec(".gz", lambda path: gzip.GzipFile(path, "wb", 6, mtime=0)),
    "gzip-members": Codec(
        ".gz", lambda path: _Members(path, lambda text: gzip.compress(text, 6, mtime=0))
    ),
    "zstd": Codec(".zst", lambda path: zstd.ZstdFile(path, "wb", level=3)),
    "zstd-frames": Codec(".zst", lambda path: _Members(path, lambda t: zstd.compress(t, 3))),
    "lz4": Codec(".lz4", lambda path: lz4.frame.LZ4FrameFile(path, "wb")),
    "bz2": Codec(".bz2", lambda path: bz2.BZ2File(path, "wb")),
    "xz": Codec(".xz", lambda path: lzma.LZMAFile(path, "wb", preset=1)),  # noqa: SIM115
}


def write(places: Mapping[str, Path], pieces: Iterator[tuple[int, bytes]]) -> int:
    """Write a corpus once for each codec into its directory; how many bytes of text it has.

    Each file is the log of a run of its own.
    """
    size, current = 0, -1
    with ThreadPoolExecutor(len(places)) as pool, contextlib.ExitStack() as files:
        outs: list[_Out] = []
        for number, text in pieces:
            if number != current:
                current = number
                files.close()
                outs = [
                    CODECS[codec].open(_path(directory, number, codec))
                    for codec, directory in places.items()
                ]
                for out in outs:
                    files.callback(out.close)
            size += len(text)
            if len(outs) == 1:
                outs[0].write(text)
            else:
                list(pool.map(lambda out, text=text: out.write(text), outs))
    return size


def _path(directory: Path, number: int, codec: str) -> Path:
    path = directory / f"bench/job-{number:06}/rank_0.log{CODECS[codec].suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
