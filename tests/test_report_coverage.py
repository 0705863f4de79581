"""What was read and what was not: real logs through a real ingest, and whatever can be lost."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ingest import pipeline, schema
from ingest.store import Store
from queries import report
from tests.database import Event, File, ask, at, database, run
from tests.support import shared


def cover(folder: Path, *paths: Path, **keys: Any) -> list[dict[str, Any]]:
    """The report of a new database with these files."""
    with Store(folder / "db", report.views()) as store:
        pipeline.ingest(store, pipeline.plan([str(p) for p in paths], workers=1, **keys))
    with report.connect(folder / "db", schema.ddl()) as con:
        return ask(con, "coverage")


# -- real logs ---------------------------------------------------------------------------------


def test_sixteen_real_logs(tmp_path: Path) -> None:
    """The published shares are 4.5 % with a time and 48.9 % with a rank or NCCL tag."""
    logs = sorted(shared("data", "bigscience").glob("*.out"))
    [row] = cover(tmp_path, *logs)
    expected = {
        "files_found": 16, "files_scanned": 16, "files_skipped": 0, "skip_reasons": [],
        "size_bytes": 4_625_008, "size_skipped": 0, "bytes": 4_625_008, "lines": 50_948,
        "cut_lines": 0, "attempts": 16, "failed_attempts": 0, "unknown_share": None,
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert (round(row["ts_share"], 3), round(row["rank_share"], 3)) == (0.045, 0.489)
    assert 0 < row["match_share"] < 0.1


def test_lines_with_crlf_and_without_a_last_newline_are_all_counted(tmp_path: Path) -> None:
    """Ten systems of 2,000 records each; `wc -l` says 1,999 of those that lack the last newline."""
    logs = sorted(shared("data", "loghub").glob("*_2k.log"))
    contents = [path.read_bytes() for path in logs]
    assert all(text.count(b"\r") in (1999, 2000) for text in contents)
    assert {text.count(b"\n") for text in contents} == {1999, 2000}
    [row] = cover(tmp_path, *logs)
    assert row["lines"] == 20_000
    assert row["bytes"] == row["size_bytes"] == sum(map(len, contents))


# -- what is lost ------------------------------------------------------------------------------


def test_bytes_found_are_bytes_scanned_and_bytes_skipped(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    texts: Mapping[str, bytes] = {
        "whole.log": b"one\ntwo\n",
        "open.log": b"one\ntwo\nthree",
        "core.42": b"\x7fELF\x02\x01\x01\x00" * 1280,
        "long.log": b"x" * (3 << 20) + b"\n",
        "broken.log": b"disk \xff\xfe full: OSError: [Errno 28] No space left on device\n",
        "empty.log": b"",
    }
    for name, text in texts.items():
        (logs / name).write_bytes(text)
    packed = gzip.compress(b"line\n" * 5000)
    (logs / "cut.log.gz").write_bytes(packed[: len(packed) // 2])
    (logs / "packed.log.gz").write_bytes(packed)
    sizes = {path.name: path.stat().st_size for path in logs.iterdir()}
    (logs / "gone.log").symlink_to(logs / "nothing")
    [row] = cover(tmp_path, logs)
    assert row["files_found"] == len(sizes) + 1 == 9
    assert row["files_scanned"] + row["files_skipped"] == row["files_found"]
    assert row["size_bytes"] == sum(sizes.values())
    assert row["size_skipped"] == sizes["core.42"]
    assert (row["files_skipped"], row["files_truncated"]) == (2, 1)
    assert [text.split(":")[0] for text in row["skip_reasons"]] == [
        "core.42", "cut.log.gz", "gone.log",
    ]  # fmt: skip
    assert row["cut_lines"] == 1
    assert row["replaced_bytes"] == 4  # of the event, and of the line beside it as evidence


def test_each_cluster_is_a_row(tmp_path: Path) -> None:
    first, second = tmp_path / "east", tmp_path / "west"
    for folder, count in ((first, 3), (second, 7)):
        folder.mkdir()
        (folder / "train.log").write_bytes(b"line\n" * count)
    cover(tmp_path, first, cluster="east")
    rows = cover(tmp_path, second, cluster="west")
    assert [(r["cluster"], r["files_found"], r["lines"]) for r in rows] == [
        ("east", 1, 3),
        ("west", 1, 7),
    ]


# -- attempts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "world", "complete"), [(2, 2, 1), (1, 2, 0), (2, None, 0), (3, 2, 1)]
)
def test_an_attempt_is_whole_where_every_rank_was_seen(
    ranks: int, world: int | None, complete: int
) -> None:
    told = Event("world-size", "progress", t=0, world_size=world, rank=0)
    con = database(*(run(f"r/rank_{n}.log", told, rank=n) for n in range(ranks)))
    [row] = ask(con, "coverage")
    assert (row["attempts"], row["attempts_all_ranks"]) == (1, complete)


def test_the_largest_silence_is_that_inside_one_attempt() -> None:
    def log(name: str, *times: float | None) -> File:
        return run(f"{name}/log", *(Event("training-step", "progress", t=t) for t in times))

    con = database(log("a", 0, 10, 50), log("b", 100_000, 100_300, None))
    assert ask(con, "coverage")[0]["max_gap_s"] == 300.0
    assert ask(con, "coverage", job="a")[0]["max_gap_s"] == 40.0
    assert ask(database(log("a", 5)), "coverage")[0]["max_gap_s"] is None


def test_what_a_folded_row_stands_for_is_no_silence() -> None:
    fold = Event("retry", "context", t=0, last=50, repeats=20)
    con = database(run("r/log", fold, Event("x", t=30), Event("y", t=60)))
    assert ask(con, "coverage")[0]["max_gap_s"] == 10.0


def test_failed_attempts_without_a_cause_are_unknown() -> None:
    hurt = Event("nccl-timeout", "collateral", t=9, severity="medium")
    con = database(
        run("known/log", Event("disk-full", t=1)),
        run("hung/log", hurt),
        run("said/log", Event("training-step", "progress", t=1)),
        run("fine/log", Event("run-completed", "progress", t=1)),
        run("stopped/log", Event("slurm-time-limit", "collateral", t=1, severity="low")),
        tables={"jobs": [{"cluster": "c", "job": "said", "state": "FAILED", "end_ts": at(5)}]},
    )
    [row] = ask(con, "coverage")
    assert (row["attempts"], row["failed_attempts"], row["failed_unknown"]) == (5, 3, 2)
    assert row["unknown_share"] == pytest.approx(2 / 3)


def test_without_failed_attempts_the_unknown_share_is_unknown() -> None:
    con = database(run("fine/log", Event("run-completed", "progress", t=1)))
    assert ask(con, "coverage")[0]["unknown_share"] is None
