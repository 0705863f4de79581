"""The report loader, its checks, the database's states, and the reports' worked examples."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ingest import schema
from queries import report
from tests.database import Event, File, ask, database, run, seconds
from tests.support import ROOT

DATA = Path(__file__).parent / "data"
EXAMPLES = DATA / "report_examples"
MESSAGES: dict[str, str] = json.loads((DATA / "bad_report" / "messages.json").read_text())


# -- definitions -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", report.names())
def test_every_report_binds_on_empty_tables_and_answers_empty(name: str) -> None:
    definition = report.load(name)
    report.check(definition, schema.ddl())
    with report.connect(None, schema.ddl()) as con:
        result = report.run(con, definition)
    assert result.table.num_rows == 0
    assert result.table.column_names == list(definition.columns)
    assert set(report.COMMON) <= set(result.arguments)


def test_reports_are_listed_by_name_and_read_coverage_first() -> None:
    assert report.names() == sorted(report.names())
    assert [one.name for one in report.all_reports()][:2] == ["coverage", "ettr"]
    assert {one.name for one in report.all_reports()} == set(report.names())


def test_listing_and_loading_import_no_heavy_module() -> None:
    code = (
        "import sys\nfrom queries import report\n"
        "report.arguments(report.load(report.names()[0]), {})\n"
        "print([m for m in ('duckdb', 'pyarrow', 'numpy', 'scipy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_each_bad_report_has_its_message() -> None:
    found = {}
    for path in sorted((DATA / "bad_report").glob("*.sql")):
        with pytest.raises(report.DefinitionError) as caught:
            report.check(report.load(path), schema.ddl())
        found[path.stem] = str(caught.value).replace(str(path), path.name)
    assert found == MESSAGES


def test_a_report_of_the_users_own_runs_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.sql"
    path.write_text(
        '-- title = "Mine"\n-- description = "Mine"\n-- [columns]\n-- n = "N"\n'
        "SELECT count(*) AS n FROM events WHERE asked(cluster, $cluster) AND asked(job, $job)\n"
        "AND asked(failure, $failure) AND within(ts, $since, $until)\n"
    )
    with database(run("r/log", Event("x", t=1), Event("y", t=2))) as con:
        result = report.run(con, report.load(path), {"failure": "x"})
    assert result.table.to_pylist() == [{"n": 1}]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("incident", "no report 'incident' (did you mean 'incidents'?): there are "),
        ("gone.sql", "gone.sql: cannot be read ("),
    ],
)
def test_a_report_that_does_not_exist_is_named(name: str, message: str) -> None:
    with pytest.raises(report.ArgumentError) as caught:
        report.load(name)
    assert str(caught.value).startswith(message)


# -- arguments ---------------------------------------------------------------------------------


def test_arguments_are_typed_and_defaults_filled_in() -> None:
    taken = report.arguments(
        report.load("incidents"),
        {"since": "2026-03-01", "until": "2026-03-02T00:00:00+01:00", "window_s": "60",
         "scope": "cluster", "warnings": "no", "cluster": "", "job": None},
    )  # fmt: skip
    assert taken == {
        "since": datetime(2026, 3, 1),
        "until": datetime(2026, 3, 1, 23),
        "cluster": None,
        "job": None,
        "failure": None,
        "window_s": 60.0,
        "dup_s": 5.0,
        "spatial_s": 60.0,
        "max_h": 6.0,
        "scope": "cluster",
        "warnings": False,
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"windows_s": "3"},
            "report incidents has no parameter 'windows_s' (did you mean 'window_s'?): "
            "it takes since, until, cluster, job, failure, window_s, dup_s, spatial_s, max_h, "
            "scope, warnings",
        ),
        ({"window_s": "wide"}, "report incidents: parameter window_s is 'wide': give a number"),
        ({"window_s": "nan"}, "report incidents: parameter window_s is 'nan': give a number"),
        ({"window_s": "1e300"}, "report incidents: parameter window_s is '1e300': give a number"),
        ({"window_s": "-1"}, "report incidents: parameter window_s is -1: give 0 or more"),
        (
            {"since": "yesterday"},
            "report incidents: parameter since is 'yesterday': "
            "give a time as 2026-01-31 or 2026-01-31T12:00:00 (UTC)",
        ),
        (
            {"scope": "fleet"},
            "report incidents: parameter scope is 'fleet': give one of run, host, cluster",
        ),
        ({"warnings": "2"}, "report incidents: parameter warnings is '2': give true or false"),
    ],
)
def test_a_bad_argument_is_named_with_the_remedy(given: dict[str, str], message: str) -> None:
    with pytest.raises(report.ArgumentError) as caught:
        report.arguments(report.load("incidents"), given)
    assert str(caught.value) == message


def test_values_are_bound_and_never_spliced() -> None:
    with database(run("r/log", Event("x", t=1))) as con:
        for name in report.names():
            for text in ("' OR 1=1 --", "x'; DROP TABLE events; --", "\\", "%", "\x00"):
                rows = report.run(con, report.load(name), {"cluster": text, "job": text}).table
                assert rows.num_rows == 0
        assert con.sql("SELECT count(*) FROM events").fetchall() == [(1,)]


def test_filters_keep_what_was_asked_for() -> None:
    con = database(
        run("a/log", Event("x", t=0, rank=1), cluster="one"),
        run("b/log", Event("y", t=86400 * 5, rank=2), cluster="two"),
        File("path/only.log", [Event("x", t=86400 * 9, rank=3)], cluster=None, run="path/only.log"),
    )

    def runs(**given: str) -> list[Any]:
        return [row["run_id"] for row in ask(con, "first-failure", **given)]

    assert runs() == ["a", "b", "path/only.log"]
    assert runs(cluster="two") == ["b"]
    assert runs(job="a") == ["a"]
    assert runs(job="path/only.log") == ["path/only.log"]
    assert runs(failure="x") == ["a", "path/only.log"]
    assert runs(since="2026-03-02") == ["b", "path/only.log"]
    assert runs(since="2026-03-02", until="2026-03-07") == ["b"]


# -- the database ------------------------------------------------------------------------------


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute(schema.ddl())
        con.execute("INSERT INTO failures BY NAME SELECT 'x' AS failure")
        con.execute("CREATE TABLE firstfault AS SELECT 1 AS schema_version")
    return path


def test_a_missing_or_empty_file_answers_empty_and_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("missing", "empty"):
        with report.connect(tmp_path / name, schema.ddl()) as con:
            assert report.run(con, report.load("coverage")).table.num_rows == 0
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert (tmp_path / "empty").stat().st_size == 0


def test_tables_that_a_database_lacks_are_empty_ones(tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE something_else (a INTEGER)")
    with report.connect(path, schema.ddl()) as con:
        assert [report.run(con, one).table.num_rows for one in report.all_reports()] == [0] * len(
            report.names()
        )


def test_reports_use_the_views_of_this_version_whatever_the_file_holds(db: Path) -> None:
    with duckdb.connect(str(db)) as con:
        con.execute("CREATE VIEW attempts AS SELECT 'of another version' AS run")
    with report.connect(db, schema.ddl()) as con:
        assert con.sql("FROM attempts").fetchall() == []
        assert con.sql("SELECT failure FROM failures").fetchall() == [("x",)]


def test_a_connection_can_be_prepared_again(db: Path) -> None:
    with report.connect(db, schema.ddl()) as con:
        report.prepare(con)
        assert report.run(con, report.load("co-occurrence")).table.num_rows == 0


def test_a_query_of_some_seconds_draws_nothing_on_stdout() -> None:
    # DuckDB draws a progress bar from the second second on, between the rows of --format json
    with report.connect(None, schema.ddl()) as con:
        [(drawn,)] = con.execute("SELECT current_setting('enable_progress_bar')").fetchall()
    assert drawn is False


def test_a_query_sees_tables_and_no_variables_of_the_program() -> None:
    with report.connect(None, schema.ddl()) as con:
        for name in ("con", "sql", "answer", "started"):
            with pytest.raises(report.DatabaseError, match=rf"^sql: .*{name}"):
                report.query(con, f"FROM {name}")


@pytest.fixture
def writer(db: Path) -> Iterator[subprocess.Popen[str]]:
    code = f"import duckdb; c = duckdb.connect({str(db)!r}); print('open', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    yield process
    process.communicate("\n")


def unopened(path: Path, **keys: Any) -> str:
    with pytest.raises(report.DatabaseError) as caught:
        report.connect(path, schema.ddl(), **keys)
    return str(caught.value)


def test_a_database_that_is_being_written_says_so(db: Path, writer: subprocess.Popen[str]) -> None:
    assert unopened(db) == (
        f"{db}: process {writer.pid} has it open for writing: wait until its ingest ends, "
        "or report on a copy of the file"
    )


def test_what_is_no_database_says_so(db: Path, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no database " * 1000)
    assert (
        unopened(text) == f"{text}: is no DuckDB database: give the file that ingest wrote as --db"
    )
    assert unopened(tmp_path) == f"{tmp_path}: is a directory: give the database file in it"
    assert unopened(db, version=2) == (
        f"{db}: schema version 1, this firstfault reads 2: "
        "use the firstfault that wrote it, or ingest into a new --db"
    )
    report.connect(db, schema.ddl(), version=1).close()


def test_a_query_of_the_users_gives_rows_or_what_is_wrong_with_it() -> None:
    with report.connect(None, schema.ddl()) as con:
        result = report.query(con, "SELECT 1 AS a, 'x' AS b")
        assert (result.report.name, result.table.to_pylist()) == ("sql", [{"a": 1, "b": "x"}])
        with pytest.raises(report.DatabaseError, match=r"^sql: .*evnts"):
            report.query(con, "FROM evnts")


# -- co-occurrence, worked example -------------------------------------------------------------

RACE = "nvme-offload-checkpoint-race"
NAMES = {
    "straggler": "straggler",
    "ckpt_corrupt": "checkpoint-corrupt",
    "wandb": "wandb-init-hang",
    "sdc": "silent-data-corruption",
}


def margins() -> duckdb.DuckDBPyConnection:
    """200 attempts with the 2x2 tables of the example; in ten of them the race."""
    failures: list[list[Event]] = [[] for _ in range(200)]
    for events in failures[:10]:
        events.append(Event(RACE, t=1000))
    with (EXAMPLES / "lead_lag.csv").open() as lines:
        deltas = [float(row["delta_s"]) for row in csv.DictReader(lines)]
    with (EXAMPLES / "pairs.csv").open() as lines:
        for row in csv.DictReader(lines):
            name = row["pair"].split("|")[1]
            n11, n01 = int(row["n11"]), int(row["n01"])
            for number, events in enumerate([*failures[:n11], *failures[10 : 10 + n01]]):
                delta = deltas[number] if name == "ckpt_corrupt" and number < n11 else 500.0
                events.append(Event(NAMES[name], t=1000 + delta, rank=number))
    edge = {"cause": RACE, "effect": "checkpoint-corrupt", "scope": "next-attempt",
            "lag_lo_s": 0.0, "lag_hi_s": 86400.0, "basis": "log"}  # fmt: skip
    files = (run(f"r{n:03}/log", *events) for n, events in enumerate(failures))
    return database(*files, tables={"precedence": [edge]})


@pytest.fixture(scope="module")
def pairs() -> dict[str, dict[str, Any]]:
    found = ask(margins(), "co-occurrence", failure=RACE)
    return {row["a"] if row["b"] == RACE else row["b"]: row for row in found}


@pytest.mark.parametrize(
    ("name", "cells", "lift", "jaccard", "phi", "odds", "fisher", "q", "verdict"),
    [
        ("checkpoint-corrupt", (8, 2, 4, 186), 13.33333, 0.5714286, 0.7148507,
         (140.9111, 25.94958, 765.1738), 3.894051e-10, 1.168215e-09, "associated"),
        ("straggler", (6, 4, 14, 176), 6.0, 0.25, 0.3823596,
         (17.58238, 4.716616, 65.54274), 7.64145e-05, 0.0001146217, "associated"),
        ("wandb-init-hang", (5, 5, 45, 145), 2.0, 0.09090909, 0.1324532,
         (3.197802, 0.9366644, 10.9174), 0.07290812, 0.07290812, "not_distinguishable"),
        ("silent-data-corruption", (0, 10, 3, 187), 0.0, 0.0, -0.02831071,
         (2.55102, 0.123541, 52.67647), 1.0, None, "too_rare"),
    ],
)  # fmt: skip
def test_pairs_reproduce_the_worked_example(
    pairs: dict[str, dict[str, Any]],
    name: str,
    cells: tuple[int, ...],
    lift: float,
    jaccard: float,
    phi: float,
    odds: tuple[float, ...],
    fisher: float,
    q: float | None,
    verdict: str,
) -> None:
    row = pairs[name]
    n11, n10, n01, n00 = cells
    mirrored = row["b"] == RACE
    assert (row["a"] < row["b"], row["n_units"]) == (True, 200)
    assert (row["n11"], row["n10"], row["n01"], row["n00"]) == (
        (n11, n01, n10, n00) if mirrored else cells
    )
    assert row["expected"] == pytest.approx((n11 + n10) * (n11 + n01) / 200)
    assert row["support"] == n11 / 200
    given_race, given_other = n11 / 10, n11 / (n11 + n01)
    shares = (given_other, given_race) if mirrored else (given_race, given_other)
    assert (row["p_b_given_a"], row["p_a_given_b"]) == pytest.approx(shares)
    measures = [row[key] for key in ("lift", "jaccard", "phi")]
    assert measures == pytest.approx([lift, jaccard, phi], rel=1e-6)
    limits = [row[key] for key in ("odds_ratio", "or_lo", "or_hi")]
    assert limits == pytest.approx(odds, rel=1e-6)
    assert row["fisher_p"] == pytest.approx(fisher, rel=1e-6)
    assert row["q"] == (None if q is None else pytest.approx(q, rel=1e-6))
    assert row["verdict"] == verdict
    assert (row["role_a"], row["role_b"]) == ("cause", "cause")


def test_lead_and_lag_reproduce_the_worked_example(pairs: dict[str, dict[str, Any]]) -> None:
    row = pairs["checkpoint-corrupt"]  # a is the corruption: its times less the race's, mirrored
    lags = [row[key] for key in ("delta_median_s", "delta_q25_s", "delta_q75_s")]
    assert lags == pytest.approx([-51.25, -86.25, -23.35])
    assert (row["a_first"], row["b_first"], row["ties"]) == (0, 6, 2)
    assert row["sign_p"] == 0.03125
    assert row["direction"] == f"{RACE} → checkpoint-corrupt"
    assert (row["edge"], row["edge_scope"], row["edge_basis"]) == (
        f"{RACE} → checkpoint-corrupt",
        "next-attempt",
        "log",
    )
    assert row["example_units"] == ["c/r000", "c/r001", "c/r002"]


def test_without_healthy_attempts_the_same_pair_seems_to_be_chance() -> None:
    con = margins()
    con.execute("DELETE FROM events WHERE run >= 'r020'")
    con.execute("DELETE FROM files WHERE run >= 'r020'")
    found = ask(con, "co-occurrence")
    [row] = [r for r in found if (r["a"], r["b"]) == ("checkpoint-corrupt", RACE)]
    assert (row["n_units"], row["verdict"]) == (20, "not_distinguishable")
    assert (row["lift"], row["fisher_p"]) == pytest.approx((1.333333, 0.08490117), rel=1e-6)


def together(*events: Event, copies: int = 6, healthy: int = 60, **given: str) -> dict[str, Any]:
    files = [run(f"r{n}/log", *events) for n in range(copies)]
    con = database(*files, *(run(f"h{n}/log") for n in range(healthy)))
    [row] = ask(con, "co-occurrence", **given)
    return row


def test_two_views_of_one_line_are_an_alias() -> None:
    same_line = together(Event("a", line=5), Event("b", line=5))
    assert (same_line["verdict"], same_line["same_line_share"]) == ("alias", 1.0)
    same_second = together(Event("a", t=1, rank=3), Event("b", t=1.9, rank=3))
    assert same_second["verdict"] == "alias"
    another_rank = together(Event("a", t=1, rank=3), Event("b", t=1.9, rank=4))
    assert (another_rank["verdict"], another_rank["ties"]) == ("associated", 6)


def test_lines_between_the_same_two_times_are_no_alias() -> None:
    # bounds are those of the neighbours: lines that share them need not be of one second
    row = together(Event("a", lo=1, hi=60, line=5, rank=3), Event("b", lo=1, hi=60, line=9, rank=3))
    assert (row["verdict"], row["same_line_share"]) == ("associated", 0.0)


def test_line_order_tells_what_came_first_where_no_line_has_a_time() -> None:
    row = together(Event("b"), Event("a"))
    assert (row["a_first"], row["b_first"], row["ties"]) == (0, 6, 0)
    assert (row["direction"], row["delta_median_s"]) == ("b → a", None)


def test_failures_that_avoid_each_other_are_negative() -> None:
    files = [run(f"a{n}/log", Event("a", t=1)) for n in range(40)]
    files += [run(f"b{n}/log", Event("b", t=1)) for n in range(40)]
    [row] = ask(database(*files), "co-occurrence")
    assert (row["n11"], row["verdict"]) == (0, "negative")


def test_roles_decide_who_is_paired() -> None:
    events = [Event("a", t=1), Event("b", "context", t=50), Event("c", "collateral", t=99),
              Event("d", "progress", t=99), Event("e", "teardown", t=99)]  # fmt: skip
    con = database(*(run(f"r{n}/log", *events) for n in range(3)))
    found = ask(con, "co-occurrence")
    assert [(r["a"], r["b"], r["role_a"], r["role_b"]) for r in found] == [
        ("a", "b", "cause", "context")
    ]
    everything = ask(con, "co-occurrence", roles="all")
    assert {(r["a"], r["b"]) for r in everything} == {("a", "b"), ("a", "c"), ("b", "c")}


def test_units_merge_attempts_of_a_run_and_split_days_of_a_host() -> None:
    con = database(
        run("r/1/log", Event("a", t=0, host="n1"), attempt=1),
        run("r/2/log", Event("b", t=90000, host="n1"), attempt=2),
        run("s/log", Event("training-step", "progress", t=0, host="n2")),
    )

    def cells(unit: str) -> list[tuple[int, ...]]:
        found = ask(con, "co-occurrence", unit=unit)
        return [(r["n_units"], r["n11"], r["n10"], r["n01"]) for r in found]

    assert cells("attempt") == [(3, 0, 1, 1)]
    assert cells("run") == [(2, 1, 0, 0)]
    assert cells("host-day") == [(3, 0, 1, 1)]
    assert cells("incident") == [(2, 0, 1, 1)]


# -- storms ------------------------------------------------------------------------------------


def test_a_storm_reproduces_the_worked_example() -> None:
    counts = [2, 1, 3, 2, 40, 65, 52, 3, 2, 1]
    events = [
        Event("x", "collateral", t=60 * minute + 1, repeats=count, rank=0)
        for minute, count in enumerate(counts)
    ]
    con = database(run("r/log", *events))
    result = report.run(con, report.load("storms"), {})
    [row] = result.table.to_pylist()
    assert (row["baseline"], row["threshold"], row["minutes"], row["events"]) == (2.5, 10, 3, 157)
    assert (seconds(row["t_first"]), row["incidents"], row["compression"]) == (241.0, 1, 157.0)
    assert result.notes == ("171 events in 1 incidents: compression 171.00",)


def teardown(world: int, launchers: int, **keys: Any) -> File:
    return run(
        "r/log",
        Event("world-size", "progress", t=0, **keys),
        Event("killing", "collateral", t=601, severity="info", repeats=world, host="n0"),
        Event("sigterm", "collateral", t=602, severity="info", repeats=launchers, host="n0"),
    )


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        (teardown(256, 64, world_size=256), "teardown_storm"),
        (teardown(64, 16), "teardown_storm"),
        (teardown(100, 37, world_size=8), "repeat"),
        (run("r/log", *(Event("x", t=900, rank=n) for n in range(64))), "rank_fan_out"),
        (run("r/log", Event("x", t=900, rank=3, repeats=500)), "repeat"),
        (run("r/log", *(Event("x", t=900, rank=n, repeats=9) for n in range(3))), "mixed"),
    ],
)
def test_a_storm_is_told_from_a_teardown_by_its_ratio(log: File, kind: str) -> None:
    healthy = Event("training-step", "progress", t=0)
    con = database(log, run("r/other", healthy, columns={"first_ts": None}))
    assert [row["class"] for row in ask(con, "storms")] == [kind]


def test_a_file_without_times_is_one_bin() -> None:
    con = database(run("r/log", Event("x", repeats=11)), run("s/log", Event("x", repeats=10)))
    [row] = ask(con, "storms")
    assert (row["run_id"], row["events"], row["minutes"], row["t_first"]) == ("r", 11, None, None)


# -- coverage and mix --------------------------------------------------------------------------


def test_coverage_counts_what_was_read_and_what_was_not() -> None:
    con = database(
        run("a/rank_0.log", Event("disk-full", t=10, world_size=2, rank=0),
            Event("nccl-timeout", "collateral", t=500), rank=0,
            columns={"lines": 200, "ts_lines": 50, "rank_lines": 100, "raw_bytes": 9000,
                     "size_bytes": 3000, "masked": 2}),
        run("a/rank_1.log", rank=1, columns={"lines": 0}),
        run("b/log", Event("nccl-timeout", "collateral", t=5, severity="medium")),
        run("gone/log", columns={"status": "failed", "error": "gone/log: no such file"}),
        run("cut/log", columns={"status": "truncated", "error": "cut/log: ends early"}),
    )  # fmt: skip
    result = report.run(con, report.load("coverage"), {})
    [row] = result.table.to_pylist()
    expected = {
        "cluster": "c", "files_found": 5, "files_scanned": 4, "files_skipped": 1,
        "files_truncated": 1, "files_copied": 0,
        "skip_reasons": ["cut/log: ends early", "gone/log: no such file"],
        "lines": 500, "ts_share": 0.1, "rank_share": 0.2, "match_share": 3 / 500, "masked": 2,
        "attempts": 3, "attempts_all_ranks": 1, "failed_attempts": 2, "failed_unknown": 1,
        "unknown_share": 0.5, "max_gap_s": 490.0,
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert result.notes == ("outcomes come from: log 3 of 3",)


def test_the_mix_counts_incidents_by_what_began_them() -> None:
    def failed(name: str, failure: str, t: float) -> File:
        return run(f"{name}/log", Event("training-step", "progress", t=0, world_size=8),
                   Event(failure, t=t), Event("nccl-timeout", "collateral", t=t + 5))  # fmt: skip

    con = database(
        failed("a", "disk-full", 600),
        failed("b", "disk-full", 1200),
        failed("d", "gpu-oom", 60),
        run("hung/log", Event("nccl-timeout", "collateral", t=9, category="collective")),
        run("noise/log", Event("run-completed", "progress"), Event("nccl-timeout", "collateral")),
        tables={"failures": [{"failure": "disk-full", "title": "full", "category": "storage",
                              "severity": "critical"}]},
    )  # fmt: skip
    found = ask(con, "failure-mix")
    keys = ("failure", "title", "domain", "incidents", "share", "runs", "ended_attempts",
            "ttf_med_min", "gpus_med")  # fmt: skip
    assert [tuple(row[key] for key in keys) for row in found] == [
        ("disk-full", "full", "storage", 2, 0.5, 2, 2, 15.0, 8.0),
        ("gpu-oom", None, "storage", 1, 0.25, 1, 1, 1.0, 8.0),
        (None, None, "unknown", 1, 0.25, 1, 1, 0.0, None),
    ]


def test_one_row_a_run_is_its_first_failed_attempt_with_a_cause() -> None:
    con = database(
        run("r/0/log", HURT, attempt=0),
        run("r/1/log", Event("x", t=50, rank=1), attempt=1),
        run("r/2/log", Event("y", t=90, rank=1), attempt=2),
    )

    def found(**given: str) -> list[Any]:
        return [(row["attempt"], row["failure"]) for row in ask(con, "first-failure", **given)]

    assert found() == [(1, "x")]
    assert found(by="attempt") == [(0, None), (1, "x"), (2, "y")]
    assert found(by="incident") == [(1, "x"), (2, "y")]


HURT = Event("nccl-timeout", "collateral", t=5, severity="medium")


def test_incidents_tell_how_much_hangs_on_the_window() -> None:
    con = database(run("r/log", *(Event("x", t=t) for t in (0, 100, 500, 2000))))
    result = report.run(con, report.load("incidents"), {"dup_s": "0", "spatial_s": "0"})
    assert result.table.num_rows == 3
    assert result.notes == (
        "incidents by window: 4 at 5 s, 4 at 60 s, 3 at 300 s, 2 at 720 s, 1 at 1800 s",
    )


@pytest.mark.parametrize(
    "sql",
    [
        "COPY files TO '{0}/x.csv'",
        "ATTACH '{0}/x.db' AS x",
        "SELECT 1; SELECT 2",
        "DROP TABLE files",
    ],
)
def test_a_question_only_reads(tmp_path: Path, sql: str) -> None:
    """A read-only connection still wrote `COPY ... TO` any file."""
    with report.connect(None, schema.ddl()) as con, pytest.raises(report.ArgumentError):
        report.query(con, sql.format(tmp_path))
    assert list(tmp_path.iterdir()) == []
