"""The planted truth of a made-up fleet comes out of the reports, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from typer.testing import CliRunner

from ingest import fleet, fleet_words, pipeline, schema
from ingest.cli import app
from ingest.store import Store
from matcher.catalogue import load
from queries import render, report

SEEDS = (1, 2)


class Fleet(NamedTuple):
    """A generated fleet, ingested."""

    truth: fleet.Truth
    db: Path
    connection: duckdb.DuckDBPyConnection


@pytest.fixture(scope="module", params=SEEDS)
def planted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    root = tmp_path_factory.mktemp("fleet")
    truth = fleet.generate(
        root / "logs", bytes_=6_000_000, seed=request.param, codec="mixed", runs=88
    )
    with Store(root / "db", report.views()) as store:
        pipeline.ingest(store, pipeline.plan([str(root / "logs")], workers=2))
    with report.connect(root / "db", schema.ddl()) as connection:
        yield Fleet(truth, root / "db", connection)


def rows(planted: Fleet, name: str, **arguments: str) -> list[dict[str, Any]]:
    return report.run(planted.connection, report.load(name), arguments).table.to_pylist()


def test_planted_failures_and_ranks_are_found(planted: Fleet) -> None:
    found = {
        (row["cluster"], row["job"]): (row["failure"], row["initiating_rank"])
        for row in rows(planted, "first-failure")
    }
    assert found == {
        (run.cluster, run.job): (run.failure, run.initiating_rank)
        for run in planted.truth.runs
        if run.outcome == "failed"
    }


def test_planted_lines_are_events(planted: Fleet) -> None:
    """Some programs say a thing several times; the line that truth names is one of them."""
    for run in planted.truth.runs:
        if run.outcome == "failed":
            found = planted.connection.execute(
                "SELECT count(*) FROM events JOIN files USING (file_id) WHERE path = $1 "
                "AND failure = $2 AND $3 BETWEEN line_no AND last_line_no",
                [run.file, run.failure, run.line],
            ).fetchone()
            assert found != (0,), run


def test_healthy_runs_are_not_failed(planted: Fleet) -> None:
    outcomes = dict(
        planted.connection.execute(
            "SELECT job, max_by(outcome, coalesce(attempt, 0)) FROM attempts GROUP BY job"
        ).fetchall()
    )
    for run in planted.truth.runs:
        if run.outcome != "failed":
            # The missing file may be that of the rank which says that the run is finished.
            said = {run.outcome} | ({"unknown"} if run.missing_rank_files else set())
            assert outcomes[run.job] in said


def test_planted_pairs_and_no_others_come_out_of_co_occurrence(planted: Fleet) -> None:
    pairs = rows(planted, "co-occurrence")
    associated = {
        (row["a"], row["b"])
        for row in pairs
        if row["verdict"] == "associated" and {row["role_a"], row["role_b"]} == {"cause"}
    }
    wanted = {tuple(sorted(pair)) for pair in planted.truth.pairs}
    assert associated >= wanted
    unplanted = {
        (row["a"], row["b"]): row["q"]
        for row in pairs
        if row["q"] is not None
        and row["q"] < 0.001
        and {row["role_a"], row["role_b"]} == {"cause"}
        and (row["a"], row["b"]) not in wanted
    }
    assert unplanted == {}


def test_every_file_is_read(planted: Fleet) -> None:
    (coverage,) = planted.connection.execute(
        "SELECT count(*), sum(raw_bytes), sum(lines), count(*) FILTER (status <> 'ok') FROM files "
        "WHERE path NOT IN ('truth.json', 'firstfault.toml')"
    ).fetchall()
    truth = planted.truth
    assert coverage == (truth.files, truth.bytes, truth.lines, 0)


def test_no_planted_secret_comes_out(planted: Fleet) -> None:
    assert planted.truth.secrets
    results = [report.run(planted.connection, one, {}) for one in report.all_reports()]
    outputs = [
        planted.db.read_bytes(),
        render.render(results, "html"),
        render.render(results, "json"),
        repr(planted.connection.execute("FROM evidence").fetchall()),
        repr(planted.connection.execute("FROM events").fetchall()),
    ]
    joined = b"".join(o if isinstance(o, bytes) else o.encode() for o in outputs)
    assert [secret for secret in planted.truth.secrets if secret.encode() in joined] == []
    ((masked,),) = planted.connection.execute("SELECT sum(masked) FROM files").fetchall()
    assert masked > 0


def test_templates_of_the_fleet_are_not_the_examples_of_the_catalogue() -> None:
    """A fleet made of the catalogue's own examples would prove nothing."""
    examples = {line for s in load().signatures for line in (*s.match, *s.no_match)}
    templates = {
        wording for wordings in fleet_words.TEXT.values() for wording in wordings if "%(" in wording
    }
    assert templates
    assert templates & examples == set()


def test_demo_shows_reports_and_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    generate = fleet.generate
    monkeypatch.setattr(
        fleet, "generate", lambda root, **keys: generate(root, **keys | {"bytes_": 2_000_000})
    )
    done = CliRunner().invoke(app, ["demo"])
    assert done.exit_code == 0, done.output
    for title in ("Coverage", "First failure", "Co-occurrence"):
        assert title in done.stdout
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "<table" in page
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {
        "fleet.duckdb",
        "logs",
        "report.html",
    }
