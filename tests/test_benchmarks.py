"""Benchmarks count what their definitions say, or keep no time; `bench` says what it measured."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks import corpora, suite
from benchmarks.corpora import Corpus
from ingest import measure
from ingest.cli import app
from matcher.bench import BenchResult, CountError, Work
from matcher.bench import measure as timed
from matcher.catalogue import load
from matcher.engine import Engine, cache_directory

SOUND = """
analysis = "a"
[[bench]]
name = "scan/a"
model = "scan"
corpus = { seed = 1, lines = 2_000, hits_per_million = 1_000 }
count = 2
"""


@pytest.fixture
def definitions(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        place = tmp_path / "definitions"
        place.mkdir(exist_ok=True)
        (place / "a.toml").write_text(text)
        return place

    return write


# -- definitions ---------------------------------------------------------------------------------


def test_definitions_cover_every_model() -> None:
    assert {one.model for one in suite.load()} == set(suite.MODELS)


def test_definition_is_read_whole(definitions: Callable[[str], Path]) -> None:
    assert suite.load(definitions(SOUND)) == [
        suite.Bench("scan/a", "scan", "a", corpus=Corpus(1, 2_000, 1_000), count=2)
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("analysis", "analyses", "give `analysis` and [[bench]] tables, nothing else"),
        ("[[bench]]", "[[bench", "not valid TOML"),
        ('"scan"', '"skan"', "scan/a: model is 'skan': one of compile, scan, read"),
        ('"scan/a"', '"fast"', "fast: name does not begin with its model: call it 'scan/...'"),
        ("count = 2", "", "scan/a: 'count' is missing: add it"),
        ("count = 2", "count = true", "scan/a: 'count' is True: give a whole number"),
        ("count = 2", "count = 0", "count is 0: what counts nothing proves nothing"),
        ("count = 2", "cuont = 2", "scan/a: unknown key 'cuont': did you mean 'count'?"),
        ("seed = 1, ", "", "scan/a: corpus: 'seed' is missing: add it"),
        (
            "lines = 2_000",
            'lines = "many"',
            "scan/a: corpus: 'lines' is 'many': give a whole number",
        ),
        ("2_000", "0", "scan/a: corpus: give lines and files of 1 or more"),
        ("2_000", "1_999", "scan/a: corpus: lines * hits_per_million is no multiple of a million"),
        ("seed", 'codec = "rar", seed', "scan/a: corpus: codec is 'rar': one of none, gzip"),
        ("count = 2", f"count = 2\n{SOUND.split(chr(10), 2)[2]}", "scan/a: name stands twice"),
    ],
)
def test_wrong_definition_is_refused_with_its_remedy(
    definitions: Callable[[str], Path], old: str, new: str, message: str
) -> None:
    with pytest.raises(suite.DefinitionError) as error:
        suite.load(definitions(SOUND.replace(old, new, 1)))
    assert message in str(error.value)


def test_all_that_is_wrong_is_told_at_once(definitions: Callable[[str], Path]) -> None:
    wrong = SOUND.replace("seed", "sead").replace("count", "cuont")
    with pytest.raises(suite.DefinitionError) as error:
        suite.load(definitions(wrong))
    assert sorted(str(error.value).splitlines()) == [
        "a.toml: scan/a: 'count' is missing: add it",
        "a.toml: scan/a: corpus: 'seed' is missing: add it",
        "a.toml: scan/a: corpus: unknown key 'sead': did you mean 'seed'?",
        "a.toml: scan/a: unknown key 'cuont': did you mean 'count'?",
    ]


def test_directory_without_definitions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(suite.DefinitionError, match="no definitions"):
        suite.load(tmp_path)


# -- corpora -------------------------------------------------------------------------------------


def test_filler_hits_nothing_and_each_planted_line_once() -> None:
    catalogue = load()
    engine = Engine(catalogue, cache_directory())
    hits = {
        density: sum(
            len(engine.scan(text).signature)
            for text in corpora.texts(Corpus(3, 40_000, density, files=3), catalogue)
        )
        for density in (0, 25, 10_000, 1_000_000)
    }
    assert hits == {0: 0, 25: 1, 10_000: 400, 1_000_000: 40_000}


def test_same_corpus_is_the_same_bytes_in_whatever_files() -> None:
    catalogue = load()
    corpus = Corpus(5, 1_001, 500_000, files=7)
    parts = list(corpora.texts(corpus, catalogue))
    assert [part.count(b"\n") for part in parts] == [143] * 7
    assert parts == list(corpora.texts(corpus, catalogue))
    assert parts != list(corpora.texts(replace(corpus, seed=6), catalogue))


@pytest.mark.parametrize("codec", corpora.CODECS)
def test_every_codec_is_read_back(codec: str, tmp_path: Path) -> None:
    corpora.write(tmp_path / "logs", codec, [b"one\ntwo\n", b"three\n"])
    assert measure.reading([str(tmp_path / "logs")]) == 3
    (tmp_path / "scratch").mkdir()
    taken = measure.sample([str(tmp_path / "logs")], tmp_path / "scratch")
    assert (sorted(taken.texts), taken.whole) == ([b"one\ntwo\n", b"three\n"], True)


# -- running -------------------------------------------------------------------------------------


def test_every_definition_counts_right_at_a_tiny_scale() -> None:
    outcomes = list(suite.run(suite.load(), load(), scale=0.002, rounds=0))
    assert [(o.bench.name, o.counted) for o in outcomes if not o.right] == []
    assert {o.bench.name for o in outcomes} == {one.name for one in suite.load()}


def test_wrong_count_keeps_no_time(
    definitions: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    both = SOUND + SOUND.split("\n", 2)[2].replace("scan/a", "scan/b").replace("= 2\n", "= 3\n")
    arguments = ["run", "--rounds", "1", "--definitions", str(definitions(both))]
    assert command.main(arguments) == 1
    out, err = capsys.readouterr()
    right, wrong = (line.split() for line in out.splitlines()[1:])
    assert (right[0], right[2], "-" in right[4:8]) == ("scan/a", "2", False)
    assert wrong == ["scan/b", right[1], "WRONG", right[3], *"------"]
    assert err.startswith("scan/b: counted 2 instead of 3: no time is kept")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "nothing"], "--name nothing: no such benchmark: there are scan/a"),
        (["--scale", "0"], "give a --scale above 0"),
        (["--record", "--rounds", "0"], "with --record 1 or more"),
    ],
)
def test_wrong_usage_is_exit_2(
    definitions: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.main(["run", "--definitions", str(definitions(SOUND)), *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_record_holds_figures_and_machine_and_replaces_none(
    definitions: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "RECORD", tmp_path / "record")
    monkeypatch.setattr(command, "_cpu", lambda: "ACME (R) 9000 @ 3 GHz")
    arguments = ["run", "--rounds", "1", "--record", "--definitions", str(definitions(SOUND))]
    assert [command.main(arguments), command.main(arguments)] == [0, 0]
    first, second = sorted((tmp_path / "record").iterdir())
    assert first.name.endswith("-acme-r-9000-3-ghz")
    assert second.name == f"{first.name}-2"
    with (first / "figures.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert {key: row[key] for key in ("name", "model", "codec", "lines", "count")} == {
        "name": "scan/a",
        "model": "scan",
        "codec": "none",
        "lines": "2000",
        "count": "2",
    }
    machine = tomllib.loads((first / "machine.toml").read_text())
    assert {
        *("date", "cpu", "cores", "memory_gib", "kernel", "python", "hyperscan", "duckdb"),
        *("pyarrow", "catalogue_digest", "scale", "rounds", "load_before"),
    } <= machine.keys()


# -- results -------------------------------------------------------------------------------------


def test_ratio_is_the_median_of_the_rounds_ratios() -> None:
    ours = BenchResult(10, 1, (1.0, 2.0, 8.0))
    theirs = BenchResult(10, 1, (2.0, 6.0, 8.0))
    assert (ours.speed_over(theirs), theirs.gb_s) == (2.0, 10 / 6 / 1e9)


def test_start_up_is_taken_out_where_enough_is_left() -> None:
    whole = BenchResult(10, 1, (3.0, 2.0, 4.0))
    assert whole.less(BenchResult(0, 0, (1.0, 1.5, 1.0))) == BenchResult(10, 1, (2.0, 1.0, 3.0))
    assert whole.less(BenchResult(0, 0, (2.8, 2.8, 2.8))) is None


def test_works_are_timed_in_turn_and_must_count_alike() -> None:
    order: list[str] = []
    works = {name: Work(1, lambda name=name: order.append(name) or 7) for name in "ab"}
    results = timed(works, rounds=2)
    assert order == ["a", "b", "a", "b"]
    assert {name: (r.counted, len(r.seconds)) for name, r in results.items()} == {
        "a": (7, 2),
        "b": (7, 2),
    }
    counts = iter((1, 2))
    with pytest.raises(CountError, match=r"rounds counted \[1, 2\]"):
        timed({"a": Work(1, lambda: next(counts))}, rounds=2)


# -- bench on a user's logs ----------------------------------------------------------------------

SPEEDS = [
    f"{work}_{figure}"
    for work in ("read", "scan", "end_to_end")
    for figure in ("gb_s", "min_gb_s", "max_gb_s")
]
KEYS = [
    *("source", "files_found", "files_sampled", "files_cut", "files_left_out", "sample_bytes"),
    *("sample_limit_bytes", "sample_is_whole", "lines", "hits", "hits_per_mib", "events"),
    *("signatures", "catalogue_digest", "engine", "rounds", "start_s", *SPEEDS),
    *("scan_over_read", "end_to_end_over_read", "terabyte_hours"),
]
SMALL = """
[[failure]]
id = "{id}"
title = "t"
component = "{component}"
category = "data"
severity = "low"
mechanism = "m"
confirm = ["c"]
fix = ["f"]
[[failure.signature]]
id = "{id}-line"
role = "cause"
pattern = '{id} broke'
match = ["{id} broke"]
no_match = ["{id} works"]
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    """Three failures of two components."""
    place = tmp_path / "catalogue"
    place.mkdir()
    pairs = (("pump", "water"), ("pipe", "water"), ("lamp", "light"))
    text = "".join(SMALL.format(id=id_, component=component) for id_, component in pairs)
    (place / "small.toml").write_text(text)
    return place


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """300 lines in three files, 30 of them hits."""
    place = tmp_path / "logs"
    place.mkdir()
    lines = [b"pump broke" if n % 10 == 3 else b"all is well here %d" % n for n in range(300)]
    for number in range(3):
        (place / f"{number}.log").write_bytes(b"\n".join(lines[number::3]) + b"\n")
    return place


def test_bench_prints_stable_keys_as_json(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "measure", partial(measure.measure, rounds=1))
    done = CliRunner().invoke(app, ["bench", str(logs), "--json"])
    assert done.exit_code == 0
    assert list(json.loads(done.stdout)) == KEYS


def test_bench_counts_what_it_measured(logs: Path, catalogue: Path) -> None:
    figures = measure.measure(str(logs), [catalogue], rounds=1)
    size = sum(path.stat().st_size for path in logs.iterdir())
    counts = ("files_found", "files_sampled", "sample_bytes", "lines", "hits", "events")
    assert [figures[key] for key in counts] == [3, 3, size, 300, 30, 30]
    assert figures["hits_per_mib"] == pytest.approx(30 / size * 2**20)
    assert (figures["sample_is_whole"], figures["signatures"]) == (True, 3)


def test_leaving_groups_out_names_each_with_its_hits(logs: Path, catalogue: Path) -> None:
    figures = measure.measure(str(logs), [catalogue], by_failure=True, rounds=1)
    assert list(figures) == [*KEYS, "by_component", "by_failure", "costly"]
    rows = {
        key: sorted((row[key], row["signatures"], row["hits"]) for row in figures[f"by_{key}"])
        for key in ("component", "failure")
    }
    assert rows == {
        "component": [("light", 1, 0), ("water", 2, 30)],
        "failure": [("lamp", 1, 0), ("pipe", 1, 0), ("pump", 1, 30)],
    }
    shown = measure.text(figures)
    assert [line.split()[:3] for line in shown.splitlines() if line.startswith("pump ")] == [
        ["pump", "1", "30"]
    ]


def test_few_slow_groups_are_left_out_of_many(
    logs: Path, catalogue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "GROUPS", 1)
    figures = measure.measure(str(logs), [catalogue], by_failure=True, rounds=1)
    assert [len(figures[key]) for key in ("by_component", "by_failure")] == [1, 1]


def test_part_of_a_catalogue_compiles_without_what_it_superseded() -> None:
    whole = load()
    some = next(f for f in whole.failures if any(s.supersedes for s in f.signatures))
    alone = measure.part(whole, {some.id}.__contains__)
    assert [failure.id for failure in alone.failures] == [some.id]
    assert len(Engine(alone).scan(some.signatures[0].match[0].encode()).signature) == 1


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_head_of_a_large_file_is_measured_in_its_own_codec(codec: str, tmp_path: Path) -> None:
    text = b"".join(b"line %d says nothing\n" % number for number in range(200_000))
    corpora.write(tmp_path / "logs", codec, [text])
    taken = measure.sample([str(tmp_path / "logs")], tmp_path, limit=500_000)
    assert (taken.found, taken.cut, taken.left_out, taken.whole) == (1, 1, 0, False)
    assert 100_000 < taken.bytes <= 625_000
    assert text.startswith(b"".join(taken.texts))
    assert taken.paths[0].endswith(f"rank_0.log{corpora.CODECS[codec][0]}")
    assert measure.reading(taken.paths) == b"".join(taken.texts).count(b"\n") + (
        not taken.texts[-1].endswith(b"\n")
    )


def test_sample_stops_at_its_limit(logs: Path, tmp_path: Path) -> None:
    size = (logs / "0.log").stat().st_size
    taken = measure.sample([str(logs)], tmp_path, limit=size * 2 + 10)
    assert (taken.found, len(taken.paths), taken.whole) == (3, 2, False)


def test_what_is_no_log_is_left_out_and_said(logs: Path, tmp_path: Path) -> None:
    (logs / "picture.png").write_bytes(b"\x89PNG....")
    taken = measure.sample([str(logs)], tmp_path)
    assert (taken.found, len(taken.paths), taken.left_out, taken.whole) == (4, 3, 1, True)


@pytest.mark.parametrize(
    ("path", "message"),
    [("-", "- can be read only once: give bench a file"), ("empty", "holds no log to measure")],
)
def test_nothing_to_measure_is_an_error_with_its_remedy(
    path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(app, ["bench", path])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_logs_that_grow_meanwhile_give_no_figures(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def growing(paths: list[str]) -> int:
        with (logs / "0.log").open("ab") as file:
            file.write(b"one more\n")
        return reading(paths)

    reading = measure.reading
    monkeypatch.setattr(measure, "reading", growing)
    monkeypatch.setattr(measure, "ingesting", lambda *_: 0)
    monkeypatch.setattr(measure, "measure", partial(measure.measure, rounds=2))
    done = CliRunner().invoke(app, ["bench", str(logs)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: read: rounds counted [302, 303]: its input changed")


def test_table_says_where_the_sample_is_too_small_to_tell() -> None:
    figures = dict.fromkeys(KEYS, 1.0) | {"sample_limit_bytes": 1 << 20, "files_cut": 2}
    figures |= {key: None for key in KEYS if key.startswith(("end_to_end", "terabyte"))}
    shown = measure.text(figures | {"source": "logs"}).splitlines()
    assert [line.split() for line in shown if line.startswith("end to end")] == [
        ["end", "to", "end", *"----"]
    ]
    assert shown[-1] == "A terabyte of such text, at this speed: too few logs to tell."
