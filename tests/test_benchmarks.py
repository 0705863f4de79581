"""Benchmarks count what their definitions say, or keep no time; `bench` says what it measured."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks import bars, corpora, curves, record, sets, suite, works
from benchmarks.bars import Bar
from benchmarks.corpora import Corpus
from benchmarks.suite import Outcome
from ingest import headers, measure
from ingest.cli import app
from matcher.bench import BenchResult, CountError, Work
from matcher.bench import measure as timed
from matcher.catalogue import load
from matcher.engine import Engine, cache_directory

CORPORA = """
[a]
seed = 1
lines = 2_000
hits_per_million = 1_000
"""
SOUND = """
analysis = "a"
[[bench]]
name = "scan/a"
model = "scan"
corpus = "a"
count = 2
"""
BARS = """
[[bar]]
name = "same as itself"
work = "scan/a"
over = ["scan/a"]
at_least = 0.5
"""
CURVES = """
[[curve]]
name = "density"
title = "Speed by density"
x = "hits in a million lines"
vary = "hits_per_million"
values = [1_000, 10_000]
corpus = { seed = 1, lines = 2_000 }
lines = [{ label = "scan", model = "scan" }]
"""
Write = Callable[..., Path]


@pytest.fixture
def data(tmp_path: Path) -> Write:
    def write(
        text: str = SOUND, known: str = CORPORA, bar: str = BARS, curve: str = CURVES
    ) -> Path:
        place = tmp_path / "data"
        (place / "definitions").mkdir(parents=True, exist_ok=True)
        files = {"definitions/a": text, "corpora": known, "bars": bar, "curves": curve}
        for name, content in files.items():
            (place / f"{name}.toml").write_text(content)
        return place

    return write


# -- definitions ---------------------------------------------------------------------------------


def test_definitions_cover_every_model() -> None:
    assert {one.model for one in suite.load()} == set(suite.MODELS)


def test_every_corpus_is_of_2_gib_where_speed_is_held_to_a_bar() -> None:
    benches = suite.load()
    held = {name for bar in bars.load(benches) if bar.over for name in bar.works}
    sizes = {one.corpus.lines * 94 for one in benches if one.name in held and one.corpus}
    assert min(sizes) * 4 // 3 >= 2**31  # planted lines are a third longer


def test_definition_is_read_whole(data: Write) -> None:
    assert suite.load(data()) == [
        suite.Bench("scan/a", "scan", "a", corpus=Corpus(1, 2_000, 1_000), count=2)
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("analysis", "analyses", "give `analysis` and [[bench]] tables, nothing else"),
        ("[[bench]]", "[[bench", "not valid TOML"),
        ('"scan"', '"skan"', "scan/a: model is 'skan': one of compile, help, limit"),
        ('"scan/a"', '"fast"', "fast: name does not begin with its model: call it 'scan/...'"),
        ("count = 2", "", "scan/a: 'count' is missing: add it"),
        ("count = 2", "count = true", "scan/a: 'count' is True: give a whole number"),
        ("count = 2", "count = 3", "count is 3, its corpus makes 2: they must agree"),
        ("count = 2", "cuont = 2", "scan/a: unknown key 'cuont': did you mean 'count'?"),
        ('corpus = "a"', 'corpus = "b"', "scan/a: corpus is 'b': one of a"),
        ('"scan/a"\nmodel = "scan"', '"read/a"\nmodel = "read"\ncodec = "rar"', "codec is 'rar'"),
        (
            '"scan/a"\nmodel = "scan"',
            '"ingest/a"\nmodel = "ingest"\nworkers = 0',
            "workers is 0: give 1 or more",
        ),
        (
            '"scan/a"\nmodel = "scan"\ncorpus = "a"\ncount = 2',
            '"plain/a"\nmodel = "plain"\ncorpus = "a"\ncount = 0',
            "count is 0: say how many patterns, 1 or more",
        ),
        ("count = 2", f"count = 2\n{SOUND.split(chr(10), 2)[2]}", "scan/a: name stands twice"),
    ],
)
def test_wrong_definition_is_refused_with_its_remedy(
    data: Write, old: str, new: str, message: str
) -> None:
    with pytest.raises(suite.DefinitionError) as error:
        suite.load(data(SOUND.replace(old, new, 1)))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seed = 1", "", "corpora.toml: a: 'seed' is missing: add it"),
        ("2_000", '"many"', "corpora.toml: a: 'lines' is 'many': give a whole number"),
        ("2_000", "0", "corpora.toml: a: give lines and files of 1 or more"),
        ("seed", 'shape = "round"\nseed', "a: shape is 'round': one of text, binary, line"),
        ("[a]", "a = 1\n[b]", "corpora.toml: a: give a table of seed, lines and the rest"),
        ("[a]", "[a", "corpora.toml: not valid TOML"),
    ],
)
def test_wrong_corpus_is_refused_with_its_remedy(
    data: Write, old: str, new: str, message: str
) -> None:
    with pytest.raises(suite.DefinitionError) as error:
        suite.load(data(SOUND, CORPORA.replace(old, new, 1)))
    assert message in str(error.value)


def test_all_that_is_wrong_is_told_at_once(data: Write) -> None:
    with pytest.raises(suite.DefinitionError) as error:
        suite.load(data(SOUND.replace("count", "cuont"), f"{CORPORA}[b]\nseed = 1\n"))
    assert sorted(str(error.value).splitlines()) == [
        "a.toml: scan/a: 'count' is missing: add it",
        "a.toml: scan/a: unknown key 'cuont': did you mean 'count'?",
        "corpora.toml: b: 'lines' is missing: add it",
    ]


def test_directory_without_definitions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "corpora.toml").write_text(CORPORA)
    with pytest.raises(suite.DefinitionError, match="no definitions"):
        suite.load(tmp_path)


# -- corpora -------------------------------------------------------------------------------------


def whole(corpus: Corpus) -> bytes:
    return b"".join(text for _, text in corpora.texts(corpus, load()))


@pytest.mark.parametrize(
    "corpus",
    [
        Corpus(3, 70_000, 0),
        Corpus(3, 70_000, 25),
        Corpus(3, 70_000, 10_000, files=3),
        Corpus(3, 70_000, 500_000),
        Corpus(3, 3_000, 1_000_000),
        Corpus(3, 70_000, 100, shape="binary"),
        Corpus(3, 70_000, shape="line"),
    ],
    ids=lambda corpus: f"{corpus.shape}-{corpus.hits_per_million}",
)
def test_each_planted_line_is_one_hit_and_nothing_else_is(corpus: Corpus) -> None:
    text = whole(corpus)
    found = Engine(load(), cache_directory()).scan(text)
    assert len(found.signature) == corpus.hits
    assert text.count(b"\n") == (0 if corpus.shape == "line" else corpus.lines)


def test_few_hits_are_the_same_line() -> None:
    text = whole(Corpus(3, 20_000, 500_000))
    found = Engine(load(), cache_directory()).scan(text)
    lines = [text[a:b] for a, b in zip(found.start.tolist(), found.end.tolist(), strict=True)]
    assert len(set(lines)) > 0.85 * len(lines)


def test_time_goes_forward_whatever_the_format() -> None:
    """Hits of a storm carry times of all formats of collectors."""
    text = whole(Corpus(3, 70_000, 100_000))
    begin = int(datetime(2026, 3, 10, tzinfo=UTC).timestamp() * 1_000_000)
    clock = headers.Clock(UTC, near_us=begin)
    times = [ts for line in text.split(b"\n") if (ts := headers.stamped(line, clock)) is not None]
    assert len(times) > 40_000
    assert begin <= times[0] < begin + 1_000_000
    # Some formats have whole seconds, or milliseconds.
    assert max(a - b for a, b in pairwise(times)) < 1_000_000
    assert 0 <= begin + 70_000 * 1_737 - times[-1] < 2_000_000


def test_a_line_carries_the_rank_of_its_header() -> None:
    found = [
        headers.parse(line, headers.Clock(UTC, near_us=1_773_100_800_000_000))
        for line in whole(Corpus(3, 3_000, 500_000)).split(b"\n")
    ]
    assert sum(h.rank is not None for h in found) > 800
    assert sum(h.host is not None for h in found) > 500
    assert sum(h.ts is not None for h in found) > 2_000


def test_files_are_cut_from_one_text_whatever_their_number() -> None:
    catalogue = load()
    corpus = Corpus(5, 70_001, 10_000)
    parts: dict[int, bytes] = {}
    for number, text in corpora.texts(replace(corpus, files=7), catalogue):
        parts[number] = parts.get(number, b"") + text
    assert [part.count(b"\n") for part in parts.values()] == [10_000] * 6 + [10_001]
    assert b"".join(parts.values()) == whole(corpus)
    assert whole(corpus) != whole(replace(corpus, seed=6))


def test_more_files_than_lines_are_empty_files(tmp_path: Path) -> None:
    corpora.write({"none": tmp_path}, corpora.texts(Corpus(5, 2, files=4), load()))
    sizes = [path.read_bytes().count(b"\n") for path in sorted(tmp_path.rglob("*.log"))]
    assert sizes == [0, 1, 0, 1]


def test_scaled_down_a_corpus_still_has_a_hit() -> None:
    assert [Corpus(1, 24_000_000, 10).scaled(s).hits for s in (1, 0.1, 0.001)] == [240, 24, 1]
    assert Corpus(1, 24_000_000).scaled(0.001).hits == 0
    assert Corpus(1, 10, files=100_000).scaled(0.01).files == 1_000
    assert Corpus(1, 10, files=4).scaled(0.01).files == 4


@pytest.mark.parametrize("codec", corpora.CODECS)
def test_every_codec_is_read_back(codec: str, tmp_path: Path) -> None:
    other = "zstd" if codec == "none" else "none"
    places = {codec: tmp_path / "logs", other: tmp_path / "other"}
    pieces = [(0, b"one\n"), (0, b"two\n" * 2_000_000), (1, b"three\n")]
    assert corpora.write(places, iter(pieces)) == 8_000_010
    assert measure.reading([str(tmp_path / "logs")]) == 2_000_002
    assert works.unpacking(tmp_path / "logs", codec, len) == 8_000_010
    assert measure.reading([str(tmp_path / "other")]) == 2_000_002


def test_blocks_are_whole_lines_and_leave_nothing_out() -> None:
    text = b"ab\n" * 7 + b"x" * 20 + b"\n" + b"rest"
    cut = list(works.spans(text, 10))
    assert b"".join(text[begin:end] for begin, end in cut) == text
    assert cut == [(0, 9), (9, 18), (18, 21), (21, 42), (42, 46)]


# -- patterns ------------------------------------------------------------------------------------


def test_more_patterns_than_the_catalogue_has_are_all_different() -> None:
    catalogue = load()
    known = len(catalogue.signatures)
    made = sets.sized(catalogue, known + 40)
    assert len({*made[known:]} - {*made[:known]}) == 40
    assert made[:known] == [signature.pattern for signature in catalogue.signatures]
    assert sets.found(catalogue, made[:1] + made[known:]) == 1


def test_copies_of_patterns_change_words_alone() -> None:
    shifted = sets._shifted(r"Fatal [Ee]rror\s+in (?P<path>\S{2,9}) (?:disk|it)\.gone", 1)
    assert shifted == r"Hcvcn [Ee]ttqt\s+in (?P<path>\S{2,9}) (?:fkum|it)\.iqpg"


def test_plain_patterns_are_words_and_numbers_of_the_catalogue(catalogue: Path) -> None:
    some = load(catalogue)
    made = sets.plain(some, 3)
    assert made == [
        *(sets.Plain(rf"{part}\ broke", f"{part} broke") for part in ("pump", "pipe")),
        sets.Plain("OOM", "OOM"),
    ]
    assert sets._spelled("step 12: 3.5 s") == r"step\ \d{1,19}:\ \d{1,19}\.\d{1,19}\ s"
    assert sets.found_plain(made) == 3
    assert sets.found_plain([made[0], made[1]._replace(example="gone")]) == 1


def test_leaving_out_names_what_it_costs(catalogue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = load(catalogue)
    text = b"all is well here\n" * 1_000
    monkeypatch.setattr(sets, "SINGLE", 0.0)
    figures = sets.leave_out(some, text, works.spans(text), rounds=2)
    assert sorted(figures) == ["lamp-line", "light", "pipe-line", "pump-line", "slowest", "water"]
    assert {len(values) for values in figures.values()} == {2}
    monkeypatch.setattr(sets, "SINGLE", 1e9)
    assert sorted(sets.leave_out(some, text, works.spans(text), rounds=1)) == [
        *("light", "slowest", "water"),
    ]


# -- running -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({one.name.split("/")[0] for one in suite.load()}))
def test_every_definition_counts_right_at_a_tiny_scale(name: str) -> None:
    benches = [one for one in suite.load() if one.name.startswith(f"{name}/")]
    outcomes = list(suite.run(benches, load(), scale=0.0005, rounds=0))
    assert [(o.bench.name, o.counted) for o in outcomes if not o.right] == []
    assert {o.bench.name for o in outcomes} == {one.name for one in benches}
    assert min(o.counted for o in outcomes) > 0


def test_wrong_count_keeps_no_time(
    data: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = SOUND + SOUND.split("\n", 2)[2].replace("scan", "read").replace("= 2", "= 2_000")
    monkeypatch.setattr(works.Setting, "hits", lambda _: 1)
    arguments = ["run", "--rounds", "1", "--data", str(data(both))]
    assert command.main(arguments) == 1
    out, err = capsys.readouterr()
    wrong, right = (line.split() for line in out.splitlines()[1:])
    assert (right[0], right[2], "-" in right[4:8]) == ("read/a", "2,000", False)
    assert wrong == ["scan/a", right[1], "WRONG", right[3], *"------"]
    assert err.startswith("scan/a: counted 1 instead of 2: no time is kept")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--only", "nothing"], "--only nothing: no such benchmark: there are scan/a"),
        (["acceptance", "--only", "nothing"], "no such bar: there are same as itself"),
        (["scale", "--only", "nothing"], "no such curve: there are density"),
        (["run", "--scale", "0"], "give a --scale above 0"),
        (["run", "--record", "--rounds", "0"], "with --record 1 or more"),
    ],
)
def test_wrong_usage_is_exit_2(
    data: Write, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as exit_:
        command.main([*arguments, "--data", str(data())])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_record_holds_figures_bars_and_machine_and_replaces_none(
    data: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(record, "RECORD", tmp_path / "record")
    monkeypatch.setattr(record, "_cpu", lambda: "ACME (R) 9000 @ 3 GHz")
    arguments = ["--rounds", "1", "--record", "--data", str(data())]
    assert command.main(["acceptance", *arguments]) == 0
    assert command.main(["run", *arguments]) == 0
    first, second = sorted((tmp_path / "record").iterdir())
    assert first.name.endswith("-acme-r-9000-3-ghz")
    assert second.name == f"{first.name}-2"
    (row,) = rows(first / "figures.csv")
    known = {"name": "scan/a", "model": "scan", "codec": "none", "lines": "2000", "count": "2"}
    assert {key: row[key] for key in known} == known
    assert rows(first / "bars.csv") == [
        {
            "bar": "same as itself",
            "work": "scan/a",
            "over": "scan/a",
            "bytes": row["bytes"],
            **dict.fromkeys(("median", "min", "max"), "1.0"),
            "at_least": "0.5",
            "at_most": "",
            "held": "yes",
        }
    ]
    assert [path.name for path in second.iterdir()].count("bars.csv") == 0
    machine = tomllib.loads((first / "machine.toml").read_text())
    assert {
        *("date", "cpu", "cores", "memory_gib", "kernel", "python", "hyperscan", "duckdb"),
        *("pyarrow", "catalogue_digest", "scale", "rounds", "load_before"),
    } <= machine.keys()
    assert command.main(["acceptance", *arguments, "--only", "same*"]) == 0
    newest = {
        table: {one["record"] for one in record.latest(table, key, tmp_path / "record")}
        for table, key in (("bars.csv", "bar"), ("figures.csv", "name"))
    }
    assert newest == {table: {f"{first.name}-3"} for table in newest}


# -- bars ----------------------------------------------------------------------------------------


def outcome(name: str, seconds: tuple[float, ...] = (), **figures: tuple[float, ...]) -> Outcome:
    result = BenchResult(8, 1, seconds) if seconds else None
    one = suite.Bench(name, name.split("/")[0])
    return Outcome(one, Corpus(1, 8, files=6), 8, 1, 1, result, figures=figures)


def test_every_bar_rests_on_benches_that_there_are() -> None:
    benches = suite.load()
    assert bars.needed(bars.load(benches), benches) != []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "at_least",
            "at_laest",
            "same as itself: unknown key 'at_laest': did you mean 'at_least'?",
        ),
        ("at_least = 0.5", "", "same as itself: give one of at_least and at_most"),
        ("over", 'figure = "ms"\nover', "same as itself: give one of over and figure"),
        ('over = ["scan/a"]', 'over = ["scan/b"]', "no such benchmark 'scan/b': define it"),
        ('over = ["scan/a"]', 'over = ["help/help"]', "its works differ in their corpus"),
        ("[[bar]]", "[bars]", "bars.toml: no bars: it holds [[bar]] tables"),
    ],
)
def test_wrong_bar_is_refused_with_its_remedy(
    data: Write, old: str, new: str, message: str
) -> None:
    place = data(bar=BARS.replace(old, new, 1))
    benches = [*suite.load(place), suite.Bench("help/help", "help")]
    with pytest.raises(suite.DefinitionError) as error:
        bars.load(benches, place)
    assert message in str(error.value)


def test_speed_is_held_against_works_done_one_after_another() -> None:
    """H = 1/(1/D + 1/S0): unpacking 2 s, scanning 1 s, both at once 4 s make 0.75."""
    bar = Bar("b", "ingest/a", ("unpack/a", "limit/a"), at_least=0.75)
    outcomes = [
        outcome("ingest/a", (4.0, 4.0, 2.0)),
        outcome("unpack/a", (2.0, 1.0, 2.0)),
        outcome("limit/a", (1.0, 1.0, 2.0)),
    ]
    verdict = bars.verdict(bar, {one.bench.name: one for one in outcomes})
    assert (verdict.values, verdict.held) == ((0.75, 0.5, 2.0), True)


@pytest.mark.parametrize(
    ("figure", "bound", "values", "held"),
    [
        ("ms", {"at_most": 2000.0}, (2000.0, 1000.0, 3000.0), True),
        ("ms", {"at_most": 1999.0}, (2000.0, 1000.0, 3000.0), False),
        ("files_s", {"at_least": 3.0}, (3.0, 6.0, 2.0), True),
        ("worker_mb", {"at_most": 9.0}, (9.0,), True),
        ("parent_mb", {"at_most": 9.0}, (), None),
    ],
)
def test_figure_is_held_against_its_threshold(
    figure: str, bound: dict[str, float], values: tuple[float, ...], held: bool | None
) -> None:
    one = outcome("memory/a", (2.0, 1.0, 3.0), worker_mb=(9.0,))
    verdict = bars.verdict(Bar("b", "memory/a", figure=figure, **bound), {"memory/a": one})
    assert (verdict.values, verdict.held) == (values, held)


def test_a_bar_that_is_not_held_is_exit_1_and_said(
    data: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    place = data(bar=BARS.replace("0.5", "1.5"))
    assert command.main(["acceptance", "--rounds", "1", "--data", str(place)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split() == ["same", "as", "itself", "1", "(1-1)", ">=", "1.5", "NOT", "HELD"]


def test_peak_of_memory_is_that_of_the_processes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 MB in a child of a process that holds little, started from one that holds more."""
    held = bytearray(b"x" * 200_000_000)
    child = "x = b'x' * 80_000_000; input()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    peak = works.Peak()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, text=True
    ) as process:

        def end_when_seen(_: float) -> None:
            if process.stdin and max(peak._kib.values(), default=0) > 78_125:
                process.stdin.close()

        monkeypatch.setattr(works, "time", SimpleNamespace(sleep=end_when_seen))
        peak.watch(process)
    figures = peak.figures()
    assert 80 < figures["worker_mb"][0] < 110
    assert 5 < figures["parent_mb"][0] < 60
    assert len(held) == 200_000_000


# -- curves --------------------------------------------------------------------------------------


def test_every_curve_varies_what_it_says() -> None:
    found = {one.name: one for one in curves.load()}
    assert [b.patterns for b in found["patterns"].lines["matcher alone"]][::7] == [50, 5_000]
    assert next(b.corpus.files for b in found["files"].lines["ingest"] if b.corpus) == 1
    assert found["workers"].values[0] == 1


def test_wrong_curve_is_refused_with_its_remedy(data: Write) -> None:
    wrong = CURVES.replace("label", "lable").replace('x = "', 'xx = "')
    with pytest.raises(suite.DefinitionError) as error:
        curves.load(data(curve=wrong))
    assert "density: 'x' is missing: add it" in str(error.value)
    assert "density: unknown key 'lable': did you mean 'label'?" in str(error.value)


def test_a_curve_is_recorded_as_rows_and_as_a_picture(
    data: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(record, "RECORD", tmp_path / "record")
    arguments = ["scale", "--rounds", "2", "--record", "--data", str(data())]
    assert command.main(arguments) == 0
    (made,) = (tmp_path / "record").iterdir()
    assert sorted(path.name for path in made.iterdir()) == [
        *("density.svg", "machine.toml", "scaling.csv"),
    ]
    points = [(r["curve"], r["line"], r["value"], r["count"]) for r in rows(made / "scaling.csv")]
    assert points == [("density", "scan", "1000", "2"), ("density", "scan", "10000", "20")]
    picture = ElementTree.fromstring((made / "density.svg").read_text())
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Speed by density", "GB/s", "hits in a million lines", "1k", "10k", "scan"} <= {*texts}


def test_exponent_tells_how_time_grows() -> None:
    (one,) = curves.load()[:1]
    points = [
        curves.Point(one, "a", value, outcome("read/a", (value**2 / 10,))) for value in (1, 10, 100)
    ]
    assert curves.exponent(points) == pytest.approx(2)
    assert curves.exponent(points[:1]) is None


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
    corpora.write({codec: tmp_path / "logs"}, iter([(0, text)]))
    taken = measure.sample([str(tmp_path / "logs")], tmp_path, limit=500_000)
    assert (taken.found, taken.cut, taken.left_out, taken.whole) == (1, 1, 0, False)
    assert 100_000 < taken.bytes <= 625_000
    assert text.startswith(b"".join(taken.texts))
    assert taken.paths[0].endswith(f"rank_0.log{corpora.CODECS[codec].suffix}")
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
