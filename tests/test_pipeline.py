"""From files to rows: nothing lost, nothing doubled, whatever the block size, workers or kills."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ingest import blocks, headers, pipeline
from ingest.cli import app
from ingest.files import Source, discover
from ingest.parts import Tally
from ingest.store import Store, StoreError
from matcher.engine import PatternSet
from tests.planted import corpus
from tests.support import ROOT

RACE = "FileExistsError: [Errno 17] File exists: '/ckpt/run7/global_step500/offloaded_tensors'"
NOISE = "[2026-03-01 10:00:{:02d},{:03d}] [INFO] [engine.py:88:step] shard {} of 12 is in place"


def log(rank: int, lines: int = 300, failing: bool = True) -> str:
    noise = [NOISE.format(n // 10 % 60, n % 1000, n) for n in range(lines)]
    if failing:
        noise.insert(lines - 20, f"[rank{rank}]: {RACE}")
    return "\n".join(noise) + "\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "logs"
    for rank in range(4):
        path = root / "alpha" / "job7" / f"n{rank // 2}" / f"rank_{rank}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(log(rank, failing=rank > 0))
    (root / "alpha" / "job8").mkdir()
    (root / "alpha" / "job8" / "n0").mkdir()
    (root / "alpha" / "job8" / "n0" / "rank_0.log.gz").write_bytes(gzip.compress(log(0).encode()))
    return root


def ingest(db: Path | None, *paths: Path, **keys: Any) -> pipeline.Summary:
    keys.setdefault("workers", 1)
    with Store(db) as store:
        return pipeline.ingest(store, pipeline.plan([str(p) for p in paths], **keys))


VOLATILE = {"scan_id", "seconds"}


def content(db: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows of files, events and evidence but what tells of the scan itself."""
    with Store(db) as store:
        return {
            table: sorted(
                (
                    {k: v for k, v in row.items() if k not in VOLATILE}
                    for row in store.connection.sql(f"FROM {table}").to_arrow_table().to_pylist()
                ),
                key=repr,
            )
            for table in ("files", "events", "evidence")
        }


def ask(db: Path, query: str) -> list[tuple[Any, ...]]:
    with Store(db) as store:
        return store.connection.execute(query).fetchall()


def test_rows_say_who_when_and_where(tree: Path, tmp_path: Path) -> None:
    summary = ingest(tmp_path / "db", tree)
    assert (summary.files, summary.ok, summary.failed, summary.events) == (5, 5, 0, 4)
    assert ask(
        tmp_path / "db",
        "SELECT cluster, job, host, rank, failure, role, line_no, ts_source, ts_lo::VARCHAR, "
        "captures['path'], captures['path_class'] FROM events ORDER BY job, rank LIMIT 1",
    ) == [
        (
            "alpha",
            "job7",
            "n0",
            1,
            "nvme-offload-checkpoint-race",
            "cause",
            281,
            "inherited",
            "2026-03-01 10:00:27.279",
            "/ckpt/run7/global_step500/offloaded_tensors",
            "checkpoint",
        )
    ]
    assert ask(
        tmp_path / "db",
        "SELECT path, lines, raw_bytes, ts_lines, codec, status FROM files WHERE job = 'job8'",
    ) == [("alpha/job8/n0/rank_0.log.gz", 301, len(log(0)), 300, "gzip", "ok")]


def test_evidence_is_the_hundred_lines_before_and_some_after(tree: Path, tmp_path: Path) -> None:
    ingest(tmp_path / "db", tree)
    assert ask(
        tmp_path / "db",
        "SELECT min(v.line_no), max(v.line_no), count(*), count(*) FILTER (v.line_no < 281) "
        "FROM evidence v JOIN events USING (event_id) WHERE rank = 1",
    ) == [(161, 301, 141, 120)]


def test_ingest_twice_adds_nothing(tree: Path, tmp_path: Path) -> None:
    ingest(tmp_path / "db", tree)
    once = content(tmp_path / "db")
    again = ingest(tmp_path / "db", tree)
    assert (again.files, again.unchanged) == (0, 5)
    assert content(tmp_path / "db") == once
    rescan = ingest(tmp_path / "db", tree, rescan=True)
    assert (rescan.files, rescan.unchanged) == (5, 0)
    assert content(tmp_path / "db") == once


def test_rows_do_not_depend_on_workers(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "JOB_FILES", 1)
    ingest(tmp_path / "one", tree, workers=1)
    ingest(tmp_path / "alone", tree, workers=2)
    monkeypatch.setattr(pipeline, "ALONE_FILES", 1)
    ingest(tmp_path / "two", tree, workers=2)
    assert content(tmp_path / "one") == content(tmp_path / "alone") == content(tmp_path / "two")


@pytest.mark.parametrize(
    ("sizes", "alone"),
    [
        ([10], True),
        ([pipeline.ALONE_BYTES + 1], True),
        ([10] * pipeline.ALONE_FILES, True),
        ([10] * (pipeline.ALONE_FILES + 1), False),
        ([pipeline.ALONE_BYTES // 2] * 2, True),
        ([pipeline.ALONE_BYTES // 2 + 1] * 2, False),
    ],
)
def test_workers_are_started_for_more_than_a_little(sizes: list[int], alone: bool) -> None:
    sources = [Source(str(n), f"/{n}", size, 1) for n, size in enumerate(sizes)]
    jobs = list(pipeline._jobs(sources, 2))
    first, on_its_own = pipeline._first(iter(jobs), 2)
    assert (first, on_its_own) == (jobs, alone)
    assert pipeline._first(iter(jobs), 1) == (jobs[:1], True)


def test_appended_file_replaces_its_rows(tree: Path, tmp_path: Path) -> None:
    ingest(tmp_path / "db", tree)
    path = tree / "alpha" / "job7" / "n0" / "rank_1.log"
    with path.open("a") as file:
        file.write(f"[rank1]: {RACE.replace('500', '600')}\n" * 2)
    assert ingest(tmp_path / "db", tree).files == 1
    assert ask(
        tmp_path / "db",
        "SELECT sum(repeats), count(DISTINCT file_id), (SELECT count(*) FROM files) FROM events "
        "WHERE rank = 1",
    ) == [(3, 1, 5)]


def test_new_catalogue_replaces_all_rows(tree: Path, tmp_path: Path) -> None:
    ingest(tmp_path / "db", tree)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "a.toml").write_text(
        '[[failure]]\nid = "shard-in-place"\ntitle = "t"\ncomponent = "c"\ncategory = "data"\n'
        'severity = "low"\nmechanism = "m"\nconfirm = ["c"]\nfix = ["f"]\n'
        '[[failure.signature]]\nid = "shard"\nrole = "cause"\n'
        "pattern = 'shard \\d{1,9} of 12 is in place'\nmatch = ['m']\nno_match = ['n']\n"
    )
    ingest(tmp_path / "db", tree, catalogues=[mine])
    assert ask(tmp_path / "db", "SELECT signature, sum(repeats) FROM events GROUP BY ALL") == [
        ("shard", 1500)
    ]
    ingest(tmp_path / "db", tree, catalogues=[mine], every_match=True)
    assert ask(tmp_path / "db", "SELECT count(*), max(repeats) FROM events") == [(1500, 1)]


def test_copy_under_another_path_is_flagged(tree: Path, tmp_path: Path) -> None:
    shutil.copy(tree / "alpha/job7/n0/rank_1.log", tree / "alpha/job7/n0/rank_1.log.bak")
    ingest(tmp_path / "db", tree)
    assert ask(
        tmp_path / "db",
        "SELECT c.path, o.path FROM files c JOIN files o ON o.file_id = c.copy_of",
    ) == [("alpha/job7/n0/rank_1.log.bak", "alpha/job7/n0/rank_1.log")]


def test_truncated_archive_gives_its_readable_part(tree: Path, tmp_path: Path) -> None:
    path = tree / "alpha/job8/n0/rank_0.log.gz"
    path.write_bytes(path.read_bytes()[:-40])
    summary = ingest(tmp_path / "db", path)
    assert (summary.truncated, summary.failed) == (1, 0)
    ((status, lines, error),) = ask(tmp_path / "db", "SELECT status, lines, error FROM files")
    assert status == "truncated"
    assert 0 < lines < 301
    assert "rank_0.log.gz" in error


def test_archive_members_are_files_of_their_own(tree: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
        archive.add(tree / "alpha", "alpha")
    ingest(tmp_path / "db", tmp_path / "all.tar.gz")
    ingest(tmp_path / "plain", tree)
    columns = "cluster, job, host, rank, lines, events"
    query = f"SELECT {columns} FROM files WHERE kind <> 'archive' ORDER BY ALL"
    assert ask(tmp_path / "db", query) == ask(tmp_path / "plain", query)
    assert ask(tmp_path / "db", "SELECT path FROM files WHERE rank = 3") == [
        ("all.tar.gz!alpha/job7/n1/rank_3.log",)
    ]
    assert ingest(tmp_path / "db", tmp_path / "all.tar.gz").files == 0


def test_members_that_left_an_archive_leave_the_database(tree: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        archive.add(tree / "alpha", "alpha")
    ingest(tmp_path / "db", tmp_path / "all.tar")
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        archive.add(tree / "alpha" / "job8", "alpha/job8")
    ingest(tmp_path / "db", tmp_path / "all.tar")
    assert ask(tmp_path / "db", "SELECT DISTINCT job FROM events") == [("job8",)]


def test_other_file_under_the_same_path_is_refused(tree: Path, tmp_path: Path) -> None:
    """`ingest job7/n0` then `ingest job7/n1` would have replaced the first host's rows."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.log").write_text(log(0) + name)
    ingest(tmp_path / "db", tmp_path / "one")
    with pytest.raises(pipeline.UsageError, match="ingest a directory above both"):
        ingest(tmp_path / "db", tmp_path / "two")
    (tmp_path / "one").rename(tmp_path / "moved")
    assert ingest(tmp_path / "db", tmp_path / "moved").unchanged == 1
    assert ingest(tmp_path / "db", tmp_path / "two").files == 1


def test_stdin_is_a_file(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\nfrom ingest import pipeline\nfrom ingest.store import Store\n"
        "if __name__ == '__main__':\n"
        "  with Store(pathlib.Path(sys.argv[1])) as s: pipeline.ingest(s, pipeline.plan(['-']))\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, tmp_path / "db"],
        input=gzip.compress(log(3).encode()),
        cwd=ROOT,
        check=True,
    )
    assert ask(tmp_path / "db", "SELECT path, codec, lines, events FROM files") == [
        ("-", "gzip", 301, 1)
    ]


def test_files_older_than_since_are_left_out(tree: Path, tmp_path: Path) -> None:
    old = tree / "alpha/job7/n0/rank_1.log"
    os.utime(old, (0, 0))
    assert ingest(tmp_path / "db", tree, since="2020-01-01").files == 4


def test_a_killed_ingest_is_completed_by_the_next(tree: Path, tmp_path: Path) -> None:
    """Killed in the middle of a transaction, between two of them, and before the scan is closed."""
    for copy in range(5):
        shutil.copytree(tree / "alpha", tree / f"c{copy:02d}")
    ingest(tmp_path / "whole", tree)
    whole = content(tmp_path / "whole")
    code = (
        "import ingest.pipeline as p, os, pathlib, signal, sys\n"
        "from ingest.store import Store\n"
        "p.TRANSACTION_FILES = p.JOB_FILES = 4\n"
        "db, logs, name, left = sys.argv[1:]\n"
        "call, left = getattr(Store, name), int(left)\n"
        "def counted(*arguments):\n"
        "  global left\n"
        "  left -= 1\n"
        "  if left < 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "  return call(*arguments)\n"
        "setattr(Store, name, counted)\n"
        "with Store(pathlib.Path(db)) as s: p.ingest(s, p.plan([logs], workers=1))\n"
    )
    stored = []
    for name, calls in (("_insert", 8), ("_insert", 5), ("write", 2), ("finish", 0)):
        done = subprocess.run(
            [sys.executable, "-c", code, tmp_path / "db", tree, name, str(calls)],
            cwd=ROOT,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL
        stored.append(ask(tmp_path / "db", "SELECT count(*) FROM files")[0][0])
    # Three inserts a transaction, and before the first of all six of the catalogue.
    assert stored == [0, 4, 12, 30]
    ingest(tmp_path / "db", tree)
    assert content(tmp_path / "db") == whole
    assert [p.name for p in tmp_path.iterdir() if "spool" in p.name] == []


def test_locked_database_is_named_with_the_remedy(tmp_path: Path) -> None:
    code = (
        "import duckdb, sys\ncon = duckdb.connect(sys.argv[1])\n"
        "print('open', flush=True)\nsys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    other.stdout.readline()
    with pytest.raises(StoreError, match="another process has it open for writing: wait for it"):
        Store(tmp_path / "db")
    other.communicate()


@pytest.mark.parametrize(
    ("content_", "message"),
    [(b"not a database at all" * 100, "not a DuckDB database: name another --db")],
)
def test_wrong_database_is_named_with_the_remedy(
    tmp_path: Path, content_: bytes, message: str
) -> None:
    (tmp_path / "db").write_bytes(content_)
    with pytest.raises(StoreError, match=message):
        Store(tmp_path / "db")


def test_other_schema_version_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path / "db") as store:
        store.connection.execute("UPDATE firstfault SET schema_version = 99")
    with pytest.raises(StoreError, match="schema version 99"):
        Store(tmp_path / "db")


def test_name_that_is_no_utf8_loses_no_file(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9")
    root.mkdir()
    (root / os.fsdecode(b"\xff.log")).write_text(log(0))
    ingest(tmp_path / "db", root, cluster=os.fsdecode(b"\xfe"))
    assert ask(tmp_path / "db", "SELECT path, cluster, location, status FROM files") == [
        (r"\xff.log", r"\xfe", rf"{tmp_path}/caf\xe9/\xff.log", "ok")
    ]
    assert ingest(tmp_path / "db", root, cluster=os.fsdecode(b"\xfe")).unchanged == 1


def test_member_and_file_of_one_name_are_two_files(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    root.mkdir()
    (root / "a.tar!b").write_text(log(1))
    with tarfile.open(root / "a.tar", "w") as tar:
        tar.add(root / "a.tar!b", "b")
    ingest(tmp_path / "db", root)
    assert ask(tmp_path / "db", "SELECT path FROM files JOIN events USING (file_id)") == [
        ("a.tar!b",),
        (r"a.tar\x21b",),
    ]


@pytest.mark.parametrize(
    "command",
    [
        ["ingest", "a" * 300],
        ["ingest", ".", "--db", os.fsdecode(b"\xff.db")],
        ["ingest", ".", "--only-catalogue", "a" * 300],
        ["report", "coverage", "--db", "a" * 300],
        ["generate", "/proc/fleet"],
        ["ingest", ".", "--workers", "99999999999"],
    ],
)
def test_argument_that_no_system_call_takes_is_an_error_not_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (2, True)
    assert "rror" in done.stderr


def test_rows_that_fit_on_no_disk_name_it_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "SPOOL_BYTES", 1)
    (tmp_path / "x.log").write_text(log(0))
    monkeypatch.setattr("pyarrow.ipc.new_stream", _full)
    with pytest.raises(StoreError, match=r"No space left on device.*: free some space there"):
        ingest(tmp_path / "db", tmp_path / "x.log")


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_no_planted_secret_is_stored(tmp_path: Path) -> None:
    lines = []
    planted = corpus()
    for number, one in enumerate(planted):
        lines += [one.line, f"[rank{number}]: {RACE} {one.line}"]
    (tmp_path / "env.log").write_text("\n".join(lines))
    summary = ingest(tmp_path / "db", tmp_path / "env.log", every_match=True)
    assert summary.masked >= len(planted)
    stored = repr(content(tmp_path / "db"))
    raw = (tmp_path / "db").read_bytes()
    leaked = [p.name for p in planted if p.secret in stored or p.secret.encode() in raw]
    assert leaked == []


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(
        st.lists(
            st.sampled_from(["", "a", "[rank1]: b", "10:00:01 c" * 3, "x" * 40, "x" * 90 + "1:1:"]),
            max_size=90,
        ),
        min_size=1,
        max_size=4,
    ),
    block_bytes=st.sampled_from([1, 7, 64, 1 << 20]),
    together=st.sampled_from([1, 200, 1 << 20]),
    closed=st.booleans(),
)
def test_lines_that_begin_in_sampled_cells_are_surveyed_file_by_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    texts: list[list[str]],
    block_bytes: int,
    together: int,
    closed: bool,
) -> None:
    for name, size in {"SURVEY_BYTES": 16, "SURVEY_WHOLE": 4, "SURVEY_EVERY": 8}.items():
        monkeypatch.setattr(pipeline, name, size)
    monkeypatch.setattr(pipeline, "SURVEY_TOGETHER", together)
    survey = pipeline._Survey(PatternSet([headers.RANK_TAG]))
    path = tmp_path / "run.log"
    tallies, expected = [], []
    for lines in texts:
        path.write_text("\n".join(lines) + ("\n" if closed and lines else ""))
        tally = Tally()
        (source,) = discover([str(path)])
        for _, reader in blocks.open_source(source, block_bytes=block_bytes):
            for block in reader or ():
                survey.add(block, tally)
        tallies.append(tally)
        begin, seen = 0, []
        for line in path.read_text().splitlines(keepends=True):
            cell = begin // 16
            if cell < 4 or cell % 8 == 0:
                seen.append(line)
            begin += len(line)
        expected.append(
            (
                len(seen),
                sum("[rank1]" in line for line in seen),
                sum("10:00:01" in line for line in seen),
            )
        )
    survey.count()
    assert [(tally.surveyed, tally.ranked, tally.stamped) for tally in tallies] == expected
