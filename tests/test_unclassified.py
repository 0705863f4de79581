"""What the catalogue does not know: shapes of lines, their templates, and the report of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ingest import pipeline, schema
from ingest.store import Store
from matcher import catalogue
from queries import render, report, templates
from tests.database import Event, File, ask, database, run, seconds

OTHER = "<other>"


def general(message: str, **keys: Any) -> Event:
    """A line that only the last resort for exceptions matched."""
    more = {"category": "process", "severity": "medium", "signature": "exception-line"}
    return Event("python-exception", message=message, **(more | keys))


def known(*files: File) -> duckdb.DuckDBPyConnection:
    """A database whose catalogue has one fallback signature, and one that is none."""
    rows = [
        {"signature": "exception-line", "failure": "python-exception", "fallback": True},
        {"signature": "disk-full", "failure": "disk-full", "fallback": False},
    ]
    return database(*files, tables={"signatures": rows})


def notes(con: duckdb.DuckDBPyConnection, **given: object) -> tuple[str, ...]:
    return report.run(con, report.load("unclassified"), given).notes


# -- shapes ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shapes() -> Iterator[duckdb.DuckDBPyConnection]:
    with report.connect(None, schema.ddl()) as con:
        yield con


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("got size torch.Size([1, 256, 7])", "got size torch.Size([<num>])"),
        ("loss 1.5e-05 at step 12,000 (50%)", "loss <num> at step <num> (<num>%)"),
        ("shapes 8x4096 and 5120x5120", "shapes <num> and <num>"),
        ("no such file: '/mnt/a b'", "no such file: '<path> b'"),
        ("open ../x/y_1.json failed", "open <path> failed"),
        ("in train/loop.py:12", "in <path>:<num>"),
        ("it/s N/A and/or", "it/s N/A and/or"),
        ("GET https://hub.internal/api?x=1 refused", "GET <url> refused"),
        ("10.0.3.4:29500 and 0000:3b:00.0 and fe80::1:2:3", "<addr> and <addr> and <addr>"),
        ("at 2026-03-01 10:11:12.345 and 10:11:13", "at <time> and <time>"),
        ("lease 3f2b8c1d-1111-2222-3333-44445555AAAA lost", "lease <id> lost"),
        ("ip 0x7F3a10 sp:7ffd20 sha deadbeef0123", "ip <hex> sp:<hex> sha <hex>"),
        ("bf16 on cuda:0 of a100", "bf<num> on cuda:<num> of a<num>"),
        ("worker gpu-a007.cluster.local:29500 gone", "worker <host>:<num> gone"),
        ("worker gpu-a007 and gpu-b019", "worker <host> and gpu-b<num>"),
        ("\x1b[31mred\x1b[0m  \t words ", "red words"),
        ("token <masked:hf-token> expired", "token <masked:hf-token> expired"),
        ("", ""),
        (None, ""),
    ],
)  # fmt: skip
def test_shape_leaves_out_what_differs_from_time_to_time(
    shapes: duckdb.DuckDBPyConnection, line: str | None, shape: str
) -> None:
    query = "SELECT line_shape($1, 'gpu-a007'), line_shape($1, NULL)"
    [(found, hostless)] = shapes.execute(query, [line]).fetchall()
    assert found == shape
    assert hostless == shape or "gpu-a" in hostless


def test_shape_of_a_long_line_is_that_of_its_head(shapes: duckdb.DuckDBPyConnection) -> None:
    [(found,)] = shapes.execute("SELECT line_shape(?, NULL)", ["ab " * 6000]).fetchall()
    assert found == ("ab " * 171).strip()[:512]


# -- templates ---------------------------------------------------------------------------------


def test_lines_that_share_most_words_are_one_template() -> None:
    lines = [
        "ValueError: shard alpha of set train is torn",
        "ValueError: shard beta of set train is torn",
        "ValueError: shard beta of set valid is torn",
        "KeyError: shard beta of set valid is torn",
        "ValueError: shard beta of set valid",
    ]
    torn = "ValueError: shard <*> of set <*> is torn"
    assert templates.mine(lines, 0.7) == [torn, torn, torn, *lines[3:]]
    assert templates.mine(lines, 1) == lines
    assert templates.mine([], 0.7) == []
    assert templates.mine([""], 0.7) == [""]


def test_first_word_is_kept_however_many_there_are() -> None:
    lines = [f"{chr(97 + n % 26)}{chr(97 + n // 26)}Error: gone" for n in range(400)]
    assert templates.mine(lines, 0) == lines


def test_lines_beyond_the_bounds_are_left_untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MOST_TEMPLATES", 2)
    lines = ["aError: x y z", "bError: x y z", "cError: x y z", "aError: x y w"]
    assert templates.mine(lines, 0.7) == [
        "aError: x y <*>",
        "bError: x y z",
        None,
        "aError: x y <*>",
    ]
    monkeypatch.setattr(templates, "MOST_TEMPLATES", 5000)
    monkeypatch.setattr(templates, "MOST_COMPARED", 3)
    assert templates.mine(["a b c", "a d e", "a f g"], 1) == ["a b c", "a d e", None]


def test_function_takes_nulls(shapes: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT log_templates(NULL, 0.7), log_templates(['a b'], NULL), log_templates([], 0.7)"
    assert shapes.execute(query).fetchall() == [(None, None, [])]


# -- the report --------------------------------------------------------------------------------


def example() -> list[File]:
    """Seven runs: what the catalogue explains of them, and what it does not."""
    torn = "ValueError: shard {} of /data/{}.bin is torn"
    return [
        run("a/rank0.log", general(torn.format("alpha", 1), t=10, rank=0, host="n1", repeats=3)),
        run("a/rank1.log", general(torn.format("beta", 2), t=12, rank=1, host="n2", last=15)),
        run("b/log", general(torn.format("gamma", 3), t=50), cluster="d"),
        run("c/log", general("KeyError: 'labels'", t=60, rank=4)),
        # A full disk explains what else the attempt prints, in the first attempt only.
        run("e/0", Event("disk-full", t=5), general("OSError: gone", t=6), attempt=0),
        run("e/1", general("OSError: gone", t=1006), attempt=1),
        run("f/log", Event("disk-full", t=5), general("KeyError: 'labels'", t=6)),
        # It went on to its end.
        run("g/log", general("KeyError: 'labels'", t=5), Event("run-completed", "progress", t=9)),
        # Failed, and nothing says why but the last word of its launcher.
        run("h/log", Event("launcher-exit", "collateral", t=70, message="exit code 3", rank=2)),
        # No run at all.
        File("n9/dmesg", [general("OSError: gone", t=80)], host="n9", columns={"kind": "dmesg"}),
    ]


def rows(con: duckdb.DuckDBPyConnection, **given: object) -> list[tuple[Any, ...]]:
    """Rows of the report, cut to what runs say of them."""
    names = ("template", "runs", "failed_runs", "runs_explained", "runs_settled", "events")
    return [tuple(row[name] for name in names) for row in ask(con, "unclassified", **given)]


TORN = "ValueError: shard <*> of <path> is torn"


def test_worked_example() -> None:
    con = known(*example())
    found = ask(con, "unclassified")
    for row in found:
        row["first_seen"], row["last_seen"] = seconds(row["first_seen"]), seconds(row["last_seen"])
    names = list(report.load("unclassified").columns)
    assert [tuple(row[name] for name in names) for row in found] == [
        (TORN, "exception-line", "python-exception", "fallback",
         "ValueError: shard alpha of /data/1.bin is torn",
         2, 2, 2 / 5, 0, 0, ["c", "d"], 2, 2, 5, 3, 10, 50, "a", "a/rank0.log", 1),
        ("OSError: gone", "exception-line", "python-exception", "fallback", "OSError: gone",
         1, 1, 1 / 5, 1, 0, ["c"], 1, 0, 2, 1, 80, 1006, None, "n9/dmesg", 1),
        ("KeyError: 'labels'", "exception-line", "python-exception", "fallback",
         "KeyError: 'labels'", 1, 1, 1 / 5, 1, 1, ["c"], 0, 1, 1, 1, 60, 60, "c", "c/log", 1),
        ("exit code <num>", "launcher-exit", "launcher-exit", "undetermined", "exit code 3",
         1, 1, 1 / 5, 0, 0, ["c"], 0, 1, 1, 1, 70, 70, "h", "h/log", 1),
    ]  # fmt: skip
    assert notes(con) == (
        "5 failed runs have no catalogued cause, 0 of them no line to add one from",
    )


def test_explained_lines_are_listed_when_asked_for() -> None:
    con = known(*example())
    assert rows(con, explained="true") == [
        (TORN, 2, 2, 0, 0, 5),
        ("KeyError: 'labels'", 1, 1, 1, 1, 3),
        ("OSError: gone", 1, 1, 1, 0, 3),
        ("exit code <num>", 1, 1, 0, 0, 1),
    ]


def test_filters_keep_what_was_asked_for_and_change_no_template() -> None:
    con = known(*example())
    assert rows(con, cluster="d") == [(TORN, 1, 1, 0, 0, 1)]
    assert rows(con, job="a") == [(TORN, 1, 1, 0, 0, 4)]
    assert rows(con, failure="launcher-exit") == [("exit code <num>", 1, 1, 0, 0, 1)]
    assert rows(con, failure="disk-full") == []
    assert rows(con, min_runs=2) == [(TORN, 2, 2, 0, 0, 5)]
    assert rows(con, until="2026-03-01T00:00:20") == [(TORN, 1, 1, 0, 0, 4)]
    assert rows(con, since="2026-03-01T00:16:00") == [("OSError: gone", 1, 1, 0, 0, 1)]
    assert [row[0] for row in rows(con, similarity=1)] == [
        "ValueError: shard alpha of <path> is torn",
        "OSError: gone",
        "KeyError: 'labels'",
        "ValueError: shard beta of <path> is torn",
        "ValueError: shard gamma of <path> is torn",
        "exit code <num>",
    ]


def test_template_that_touches_most_runs_is_first_however_many_its_lines() -> None:
    con = known(
        run("a/log", general("KeyError: 'x'", t=1, repeats=1000)),
        *(run(f"r{n}/log", general("OSError: gone", t=1)) for n in range(3)),
    )
    assert rows(con) == [("OSError: gone", 3, 3, 0, 0, 3), ("KeyError: 'x'", 1, 1, 0, 0, 1000)]


def test_failed_run_that_left_no_line_is_counted() -> None:
    job = {"cluster": "c", "job": "x", "attempt": 0, "state": "FAILED", "source": "sacct"}
    con = database(run("x/log"), run("y/log", Event("z", t=1)), tables={"jobs": [job]})
    assert ask(con, "unclassified") == []
    assert notes(con) == (
        "1 failed runs have no catalogued cause, 1 of them no line to add one from",
    )
    assert notes(con, cluster="elsewhere") == ()


def test_healthy_runs_have_nothing_unclassified() -> None:
    files = [run(f"r{n}/log", Event("run-completed", "progress", t=9)) for n in range(3)]
    con = known(*files, run("g/log", general("E: x", t=5), Event("run-completed", "progress", t=9)))
    assert (ask(con, "unclassified"), notes(con)) == ([], ())


def test_lines_too_rare_to_be_told_apart_are_one_row_and_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(templates, "MOST_TEMPLATES", 2)
    names = "often rare seldom".split()
    con = known(
        *(run(f"r{n}/log", *(general(f"{w}Error: gone", t=1) for w in names[: 1 + n // 2]))
          for n in range(5)),
        run("s/log", general("lastError: gone", t=1)),
    )  # fmt: skip
    assert rows(con) == [
        ("oftenError: gone", 5, 5, 0, 0, 5),
        ("rareError: gone", 3, 3, 0, 0, 3),
        (OTHER, 2, 2, 0, 0, 2),
    ]
    assert notes(con)[1:] == (
        "2 of 4 kinds of line are too rare to be told apart: their template is <other>",
    )


def test_a_flood_of_unlike_lines_is_bounded() -> None:
    """100,000 lines of one signature that have nothing in common."""
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghijklmnopq", k=7)) for _ in range(3000)]
    lines = [f"ValueError: {' '.join(chance.choices(words, k=24))}" for _ in range(100_000)]
    found = templates.mine(lines, 0.7)
    told = [line for line in found if line is not None]
    assert told == lines[: len(told)]  # each is its own, the first ones
    assert 500 < len(told) < templates.MOST_TEMPLATES


def test_page_shows_placeholders_as_text() -> None:
    con = known(run("a/log", general("OSError: /data/<script> is gone", t=1)))
    page = render.render([report.run(con, report.load("unclassified"))], "html")
    assert "OSError: &lt;path&gt;&lt;script&gt; is gone" in str(page)
    assert "<script> is gone" not in str(page)


# -- from logs ---------------------------------------------------------------------------------

LOGS = {
    "48231/rank_0.log": "step 1\nValueError: shard 17 of /data/a.bin is torn\n",
    "48231/rank_1.log": "step 1\nValueError: shard 18 of /data/b.bin is torn\n",
    "48232/rank_0.log": "2026-03-01 10:00:00 thread 'main' panicked at src/io.rs:12:9:\n",
    "48233/rank_0.log": "panic: runtime error: index out of range [8] with length 8\n",
    "48234/rank_0.log": "[rank0]: FATAL: password=hunter2hunter2 is refused by store 7\n",
    "48235/rank_0.log": "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
    "2.00 GiB. GPU 0 has a total capacity of 79.15 GiB\nOSError: gone\n",
}


def scanned(tmp_path: Path, name: str, order: list[str]) -> list[dict[str, Any]]:
    """The report on the logs, ingested file by file in this order."""
    db = tmp_path / f"{name}.duckdb"
    with Store(db, report.views()) as store:
        for path in order:
            folder = tmp_path / name / path
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.write_text(LOGS[path])
            pipeline.ingest(store, pipeline.plan([str(tmp_path / name)], workers=1))
    with report.connect(db, schema.ddl()) as con:
        return ask(con, "unclassified")


def test_order_of_ingest_changes_nothing(tmp_path: Path) -> None:
    first = scanned(tmp_path, "one", sorted(LOGS))
    assert first == scanned(tmp_path, "two", sorted(LOGS, reverse=True))
    assert [(row["template"], row["signature"], row["runs"], row["example"]) for row in first] == [
        ("ValueError: shard <num> of <path> is torn", "python-exception-line", 1,
         "ValueError: shard 17 of /data/a.bin is torn"),
        ("password=<masked:password> is refused by store <num>", "fatal-line", 1,
         "password=<masked:password> is refused by store 7"),
        ("panic: runtime error: index out of range [<num>] with length <num>", "go-panic", 1,
         "panic: runtime error: index out of range [8] with length 8"),
        ("thread 'main' panicked at <path>:<num>:<num>:", "rust-panic", 1,
         "thread 'main' panicked at src/io.rs:12:9:"),
    ]  # fmt: skip


# -- databases of earlier versions -------------------------------------------------------------


def test_database_without_a_column_is_read_and_then_gets_it(tmp_path: Path) -> None:
    db = tmp_path / "old.duckdb"
    with duckdb.connect(str(db)) as con:
        con.execute(schema.ddl())
        con.execute("ALTER TABLE signatures DROP COLUMN fallback")
        con.execute("INSERT INTO signatures (signature, role) VALUES ('x', 'cause')")
    query = "SELECT signature, role, fallback FROM signatures"
    with report.connect(db, schema.ddl()) as con:
        assert con.execute(query).fetchall() == [("x", "cause", None)]
        assert ask(con, "unclassified") == []
    with Store(db, report.views()) as store:
        assert store.connection.execute(query).fetchall() == [("x", "cause", None)]
    with report.connect(db, schema.ddl()) as con:
        assert con.execute(query).fetchall() == [("x", "cause", None)]


def test_catalogue_tells_which_signatures_are_a_last_resort(tmp_path: Path) -> None:
    scanned(tmp_path, "one", ["48231/rank_0.log"])
    with report.connect(tmp_path / "one.duckdb", schema.ddl()) as con:
        found = con.execute("SELECT signature, fallback FROM signatures").fetchall()
    known_ones = catalogue.load().signatures
    assert dict(found) == {signature.id: signature.fallback for signature in known_ones}
    assert {"python-exception-line", "rust-panic"} <= {name for name, last in found if last}
