"""One file read in parts gives the rows of the file read whole, or is read whole after all."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import struct
import tarfile
import tempfile
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from ingest import blocks, parts, pipeline, records
from ingest.files import discover
from ingest.parts import Part
from ingest.rows import Rows
from ingest.store import Store
from ingest.streams import zstd
from matcher.catalogue import load
from matcher.engine import Engine, cache_directory
from tests import deadly
from tests.planted import Maker, tokens
from tests.test_pipeline import ask, content, ingest
from tests.test_records import PIECES, RACE, STEP, entries

CELL = 1 << 10
# What the sizes are to each other stays: see ingest.parts.
SMALL = {
    records: {
        "CELL": CELL,
        "LOOK": CELL,
        "HISTORY": CELL,
        "SAMPLED": CELL // 4,
        "FOLLOWS_BYTES": CELL // 4,
        "MESSAGE_BYTES": CELL // 4,
        "EVIDENCE_BYTES": CELL // 16,
        "MARGIN": CELL // 16,
    },
    blocks: {"HISTORY": CELL, "LINE_LIMIT": CELL, "OVERLAP": CELL // 16},
    parts: {"SPLIT_BYTES": 1, "PART_BYTES": CELL},
}
SCANNER = Engine(load(), cache_directory())
YEARLESS = ("W0909 12:00:05.6", "Mar  1 10")


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cells of a KiB, and a place for what does not stay in memory."""
    for module, sizes in SMALL.items():
        for name, size in sizes.items():
            monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(pipeline, "_worker", None)
    path = tmp_path / "spool"
    path.mkdir()
    return path


def prepare(spool: Path, **keys: Any) -> None:
    vars(pipeline)["_worker"] = ready(str(spool), *sorted(keys.items()))


@cache
def ready(spool: str, *keys: tuple[str, Any]) -> Any:
    pipeline._prepare(pipeline.plan(["x"], **dict(keys)), SCANNER, "digest", spool)
    return pipeline._worker


def told(rows: Sequence[Rows]) -> dict[str, list[Any]]:
    """All that would be written but how long it took."""
    return {
        "files": [row._replace(seconds=0) for one in rows for row in one.files],
        "events": sorted(repr(e) for one in rows for b in one.events for e in b.to_pylist()),
        "evidence": sorted(repr(e) for one in rows for b in one.evidence for e in b.to_pylist()),
    }


def whole(path: Path) -> dict[str, list[Any]]:
    return told([pipeline._read_whole(list(discover([str(path)])))])


def cut(path: Path, workers: int = 2) -> list[Part]:
    (source,) = discover([str(path)])
    return parts.cut(source, workers)


def split(path: Path, workers: int, seed: int = 0) -> tuple[list[Part], list[Rows]]:
    """The parts of a file and the rows they give, read in any order; none where it is not cut."""
    found = cut(path, workers)
    gathering = parts.Gathering()
    rows: list[Rows] = []
    for part in random.Random(seed).sample(found, len(found)):
        assert not rows
        done = gathering.add(part, pipeline._read_part(part))
        rows = pipeline._stitched(part.source, done, "digest", b"")
    assert gathering.again == ([] if rows or not found else [found[0].source])
    return found, rows


LONG = st.builds(
    lambda text, before, after: "x" * before + f" {text} " + "y" * after,
    st.sampled_from([f"[rank1]: {RACE}", "Killing subprocess 7", "[2026-03-01 10:07:01,118] z"]),
    st.sampled_from([0, 10, CELL - 40, CELL, 3 * CELL]),
    st.sampled_from([0, CELL, 4 * CELL]),
)
BAR = st.integers(1, 60).map(
    lambda n: "\r".join(f" {k}%|# | {k}/{n} [00:01<00:09]" for k in range(n))
)
FILLER = st.integers(1, 40).map(lambda n: "\n".join(f"step {k} of the night" for k in range(n)))
SECRET = f"GITHUB_TOKEN={tokens(Maker(3))['github-classic']}"
ODD = st.sampled_from([SECRET, f"{SECRET} {RACE}", "\udcff\udcc3( of no text", f"\udcff {RACE}"])
LINES = st.one_of(
    ODD,
    PIECES,
    PIECES,
    PIECES,
    FILLER,
    BAR,
    LONG,
    st.sampled_from([RACE, "Killing subprocess 7", "step"]),
    # A time that only who looks at the hit sees: it stands behind a CR.
    st.integers(0, 59).map("bar\r[2026-03-01 10:{:02d}:02,000] Killing subprocess 7".format),
    st.integers(0, 999).map(STEP.format),
    st.integers(0, 999).map(lambda n: f"[2026-03-01 10:{n % 60:02d}:01,{n:03d}] [INFO] at {n}"),
)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lines=st.lists(LINES, min_size=20, max_size=120),
    with_year=st.booleans(),
    end=st.sampled_from(["\n", "\r\n"]),
    closed=st.booleans(),
    workers=st.integers(1, 12),
    seed=st.integers(0, 99),
    block_bytes=st.sampled_from([1, 64, 1000]),
    every=st.booleans(),
    metrics=st.sampled_from(["off", "sampled"]),
)
def test_rows_of_parts_are_those_of_the_whole(
    spool: Path,
    tmp_path: Path,
    lines: list[str],
    with_year: bool,
    end: str,
    closed: bool,
    workers: int,
    seed: int,
    block_bytes: int,
    every: bool,
    metrics: str,
) -> None:
    if with_year:
        lines = [line for line in lines if not line.startswith(YEARLESS)]
    path = tmp_path / "rank_3.log"
    path.write_bytes((end.join(lines) + (end if closed else "")).encode(errors="surrogateescape"))
    prepare(spool, block_bytes=block_bytes, every_match=every, metrics=metrics)
    found, rows = split(path, workers, seed)
    event(f"{len(found)} parts, {'fit' if rows else 'do not'}")
    assert bool(rows) >= bool(found and with_year)
    if rows:
        assert told(rows) == whole(path)


# -- what is cut, and where ------------------------------------------------------------------------

NIGHT = [f"[2026-03-01 10:{n // 60 % 60:02d}:{n % 60:02d},000] [INFO] at {n}" for n in range(9000)]
for _n in range(50, len(NIGHT), 700):
    NIGHT[_n] = f"[rank{_n % 7}]: {RACE}"
    NIGHT[_n + 1] = f"Killing subprocess {_n}"
TEXT = "".join(f"{line}\n" for line in NIGHT).encode()


def test_every_line_is_in_one_part(spool: Path, tmp_path: Path) -> None:
    """Some have three lines, some none: a line belongs where it begins."""
    lines = [b"x" * 700 + b"\n"] * 9 + [b"y" * 5 * CELL + b"\n"] + [b"z" * 700 + b"\n"] * 9
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(lines))
    prepare(spool, block_bytes=CELL)
    pieces = cut(path, workers=99)
    found = [pipeline._read_part(part) for part in pieces]
    begins = [sum(map(len, lines[:number])) for number in range(len(lines))]
    own = [
        sum(part.begin <= begin < (part.end or begin + 1) for begin in begins) for part in pieces
    ]
    assert [part.tally.lines for part in found] == own
    assert 0 in own
    assert [part.ended for part in found] == [part.end is None for part in pieces]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("utf16.log", TEXT.decode().encode("utf-16")),
        ("pod.log", entries(*NIGHT, size=60)),
        ("one.log.gz", gzip.compress(TEXT)),
        ("one-frame.zst", zstd.compress(TEXT)),
        ("syslog", TEXT.replace(b"[2026-03-01 10", b"Mar  1 10").replace(b",000]", b" n1 a[1]:")),
        ("empty.log", b""),
    ],
)
def test_what_hangs_on_all_that_stands_before_is_not_cut(
    spool: Path, tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    assert cut(tmp_path / name) == []
    (tmp_path / name).unlink()


def test_a_tar_is_not_cut(spool: Path, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(TEXT)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "a.log", "a.log")
    assert cut(tmp_path / "a.tar") == []
    assert len(cut(tmp_path / "a.log")) == 8


# -- zstd -----------------------------------------------------------------------------------------


CHECKED = {zstd.CompressionParameter.checksum_flag: 1}


def chunks(size: int) -> list[bytes]:
    return [TEXT[begin : begin + size] for begin in range(0, len(TEXT), size)]


def streamed(data: bytes) -> bytes:
    """A frame whose header does not tell the size of its content."""
    packer = zstd.ZstdCompressor(options=CHECKED)
    return packer.compress(data) + packer.flush()


def seekable(pieces: Sequence[bytes], sizes: Sequence[int] | None = None) -> bytes:
    """Frames and their table, as zstd's contrib/seekable_format writes them, with checksums."""
    frames = [streamed(piece) for piece in pieces]
    sizes = sizes or [len(piece) for piece in pieces]
    table = b"".join(struct.pack("<III", len(f), n, 0) for f, n in zip(frames, sizes, strict=True))
    footer = struct.pack("<IBI", len(pieces), 0x80, 0x8F92EAB1)
    head = struct.pack("<II", 0x184D2A5E, len(table) + len(footer))
    return b"".join(frames) + head + table + footer


SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
ZSTD = {
    "frames": b"".join(zstd.compress(piece) for piece in chunks(20_000)),
    "large frames": b"".join(zstd.compress(piece) for piece in chunks(100_000)),
    "tiny frames": b"".join(zstd.compress(piece, options=CHECKED) for piece in chunks(150)),
    "skippable": b"".join(SKIPPABLE + zstd.compress(piece) for piece in chunks(30_000)),
    "table": seekable(chunks(20_000)),
}


@pytest.mark.parametrize("kind", ZSTD)
def test_frames_of_zstd_are_read_in_parts(spool: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "rank_1.log.zst"
    path.write_bytes(ZSTD[kind])
    prepare(spool, block_bytes=CELL)
    found, rows = split(path, workers=2)
    assert 1 < len(found) <= 8
    assert told(rows) == whole(path)
    assert told(rows)["files"][0].raw_bytes == len(TEXT)


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_table_that_lies_is_not_believed(spool: Path, tmp_path: Path, shift: int) -> None:
    pieces = chunks(20_000)
    sizes = [len(piece) for piece in pieces]
    sizes[5] += shift
    sizes[15] -= shift
    path = tmp_path / "rank_1.log.zst"
    path.write_bytes(seekable(pieces, sizes))
    prepare(spool, block_bytes=CELL)
    found, rows = split(path, workers=2)
    assert (len(found), rows) == (8, [])


@pytest.mark.parametrize("at", [10, 5_000, -3])
def test_a_broken_frame_leaves_it_to_one_worker(spool: Path, tmp_path: Path, at: int) -> None:
    data = bytearray(ZSTD["table"])
    frames = len(data) - 12 * len(chunks(20_000)) - 17
    data[at if at >= 0 else frames + at] ^= 0xFF
    path = tmp_path / "rank_1.log.zst"
    path.write_bytes(data)
    prepare(spool, block_bytes=CELL)
    found, rows = split(path, workers=2)
    assert (len(found), rows) == (8, [])
    assert whole(path)["files"][0].status == "truncated"


@given(data=st.binary(max_size=60), at=st.integers(0, 400))
def test_any_bytes_for_frames_and_tables_are_read_without_a_fault(data: bytes, at: int) -> None:
    packed = bytearray(seekable(chunks(100_000)[:2]))
    at = max(0, len(packed) - at)
    packed[at : at + len(data)] = data
    with tempfile.TemporaryFile() as file:
        for text in (bytes(packed), data, zstd.compress(b"x" * 500)[: len(data)] + data):
            file.seek(0)
            file.truncate()
            file.write(text)
            file.flush()
            places = parts._frames(file, len(text))  # type: ignore[arg-type]
            assert places == sorted(places)


# -- what cannot be known --------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["longer", "shorter", "touched", "replaced", "gone"])
def test_a_file_that_changes_between_parts_is_read_whole(
    spool: Path, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "rank_1.log"
    path.write_bytes(TEXT)
    prepare(spool, block_bytes=CELL)
    first, *others = cut(path)
    gathering = parts.Gathering()
    assert gathering.add(first, pipeline._read_part(first)) == []
    if change == "longer":
        path.write_bytes(TEXT + b"more\n")
    elif change == "shorter":
        os.truncate(path, len(TEXT) // 2)
    elif change == "touched":
        os.utime(path, (1, 1))
    else:
        path.rename(tmp_path / "old")
        if change == "replaced":
            shutil.copy2(tmp_path / "old", path)
    assert [gathering.add(part, pipeline._read_part(part)) for part in others] == [[]] * 7
    assert gathering.again == [first.source]


def test_a_file_that_grows_while_a_part_is_read_is_read_whole(
    spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rank_1.log"
    path.write_bytes(TEXT)
    prepare(spool, block_bytes=CELL)
    last = cut(path)[-1]
    assert pipeline._read_part(last).sound

    def growing(part: Part, found: Any) -> Any:
        with path.open("ab") as file:
            file.write(b"more\n")
        return phases(part, found)

    phases = parts.phases
    monkeypatch.setattr(parts, "phases", growing)
    assert not pipeline._read_part(last).sound


WITHOUT_YEAR = (
    "W0909 12:00:05.641000 4100 torch/distributed/elastic/x.py:900] Sending process 4113 "
)


@pytest.mark.parametrize(
    ("first", "middle", "before", "fits"),
    [
        (None, None, None, False),  # written in another year
        (None, None, "2025-09-09", False),
        (None, None, f"2025-09-09 {RACE}", True),
        ("2025-09-09", None, None, False),  # not seen by any hit
        (f"2025-09-09 {RACE}", None, None, True),
        (f"2025-09-09 {RACE}", f"2024-09-08 {RACE}", None, False),
        (f"2025-09-09 {RACE}", f"2024-09-08 {RACE}", f"2025-09-09 {RACE}", True),
        (f"2025-12-30 {RACE}", f"2026-01-02 {RACE}", None, False),
        (f"2025-08-30 {RACE}", f"2025-09-02 {RACE}", None, True),
    ],
)
def test_a_guess_that_was_wrong_leaves_it_to_one_worker(
    spool: Path,
    tmp_path: Path,
    first: str | None,
    middle: str | None,
    before: str | None,
    fits: bool,
) -> None:
    lines = [f"step {n} of the night" for n in range(900)]
    for number, text in ((0, first), (450, middle), (880, before)):
        if text:
            day, _, message = text.partition(" ")
            lines[number] = f"[{day} 12:00:00,000] {message}"
    lines[881:] = [f"{WITHOUT_YEAR}closing signal SIGTERM"]
    path = tmp_path / "rank_1.log"
    path.write_text("\n".join(lines))
    os.utime(path, (1_800_000_000, 1_800_000_000))  # 2027
    prepare(spool, block_bytes=CELL)
    _, rows = split(path, workers=2)
    assert bool(rows) is fits
    if rows:
        assert told(rows) == whole(path)


# -- with workers ----------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with a file of 5 MiB, which is large here, and a small one."""
    monkeypatch.setattr(parts, "SPLIT_BYTES", 4 << 20)
    monkeypatch.setattr(parts, "PART_BYTES", 1 << 20)
    root = tmp_path / "logs" / "alpha" / "job7" / "n0"
    root.mkdir(parents=True)
    text = TEXT * (-(-(5 << 20) // len(TEXT)))
    (root / "rank_0.log").write_bytes(text.replace(b"at 8000\n", b"at 8000\r" + b"x" * 3_000_000))
    (root / "rank_1.log").write_bytes(TEXT[:10_000])
    return tmp_path / "logs"


class Watched(parts.Gathering):
    """Tells which parts came."""

    latest: Watched

    def __init__(self) -> None:
        super().__init__()
        self.came: list[tuple[int, bool]] = []
        Watched.latest = self

    def add(self, part: Part, found: parts.Found) -> list[parts.Found]:
        self.came.append((part.number, found.sound))
        return super().add(part, found)


class Told(pipeline.Progress):
    """What progress was told last."""

    def update(self, **keys: int) -> None:
        self.last = keys


def test_rows_do_not_depend_on_workers_that_share_a_file(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(path.stat().st_size for path in large.rglob("*.log"))
    assert ingest(tmp_path / "one", large, workers=1).ok == 2
    monkeypatch.setattr(parts, "Gathering", Watched)
    progress = Told()
    with Store(tmp_path / "two") as store:
        summary = pipeline.ingest(store, pipeline.plan([str(large)], workers=2), progress)
    assert sorted(Watched.latest.came) == [(number, True) for number in range(8)]
    assert Watched.latest.again == []
    assert (summary.ok, summary.events) == (2, progress.last["events"])
    assert (progress.last["done"], progress.last["total"], progress.last["files"]) == (
        size,
        size,
        2,
    )
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_a_file_whose_parts_do_not_fit_is_read_whole(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = large.rglob("rank_0.log")
    late = f"{WITHOUT_YEAR}closing signal SIGTERM\n".encode()
    path.write_bytes(b"[2019-09-09 12:00:00,000] step\n" + b"step\n" * (5 << 18) + late)
    monkeypatch.setattr(parts, "Gathering", Watched)
    progress = Told()
    with Store(tmp_path / "two") as store:
        summary = pipeline.ingest(store, pipeline.plan([str(large)], workers=2), progress)
    assert [source.path for source in Watched.latest.again] == ["alpha/job7/n0/rank_0.log"]
    assert (summary.ok, progress.last["done"]) == (2, progress.last["total"])
    ingest(tmp_path / "one", large, workers=1)
    assert content(tmp_path / "one") == content(tmp_path / "two")


@pytest.mark.parametrize("once", [True, False])
def test_a_worker_killed_in_a_part_leaves_a_whole_file_or_none(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    mark = str(tmp_path / "mark") if once else None
    monkeypatch.setattr(pipeline, "_start_worker", partial(deadly.start, mark))
    summary = ingest(tmp_path / "two", large, workers=2)
    assert (summary.ok, summary.failed) == ((2, 0) if once else (1, 1))
    if once:
        ingest(tmp_path / "one", large, workers=1)
        assert content(tmp_path / "one") == content(tmp_path / "two")
    else:
        assert ask(
            tmp_path / "two",
            "SELECT rank, count(event_id) > 0, any_value(error) LIKE '%worker that read it was "
            "killed%' FROM files LEFT JOIN events USING (file_id, rank) GROUP BY ALL ORDER BY ALL",
        ) == [(1, True, None), (None, False, True)]
