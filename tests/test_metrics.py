"""What runs tell of themselves: kept at the asked density, counted exactly, read in its units."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from ingest import pipeline
from ingest.store import Store
from matcher import engine
from matcher.catalogue import load
from tests.database import Event, at, database, rows, run
from tests.support import shared

FORMS = {
    "megatron": (
        " [2026-08-22 15:22:22] iteration     1200/  500000 | consumed samples:       307200 |"
        " elapsed time per iteration (ms): 1203.4 | throughput per GPU (TFLOP/s/GPU): 412.3 |"
        " learning rate: 1.500000E-04 | global batch size:   256 | lm loss: 2.312345E+00 |"
        " loss scale: 1.0 | grad norm: 0.812 | number of skipped iterations:   3 |"
        " number of nan iterations:   1 |",
        {"step": 1200, "t_iter_s": 1.2034, "loss": 2.312345, "lr": 1.5e-4, "grad_norm": 0.812,
         "loss_scale": 1.0, "tflops_gpu": 412.3, "skipped": 3, "nan_iters": 1},
    ),
    "bloom": (
        "[default7]: iteration   42784/ 115311 | consumed samples:    71463856 | consumed tokens:"
        " 146357977088 | elapsed time per iteration (s): 111.14 | learning rate: 4.475E-05 |"
        " global batch size: 2048 | lm loss: 2.127643E+00 | grad norm: 0.127 | num zeros: 0.0 |"
        " number of skipped iterations:  0 | number of nan iterations:  0 | samples per second:"
        " 18.428 | TFLOPs: 141.09 |",
        {"step": 42784, "t_iter_s": 111.14, "loss": 2.127643, "lr": 4.475e-5, "grad_norm": 0.127,
         "samples_s": 18.428, "tflops_gpu": 141.09, "skipped": 0, "nan_iters": 0},
    ),
    "deepspeed": (
        "[2023-12-02 09:00:26,008] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=3,"
        " lr=[1e-05], mom=[[0.9, 0.95]]",
        {"step": 10, "lr": 1e-5, "skipped": 3},
    ),
    "deepspeed-pipeline": (
        "steps: 2 loss: 12.8004 iter time (s): 145.206 samples/sec: 7.052",
        {"step": 2, "t_iter_s": 145.206, "loss": 12.8004, "samples_s": 7.052},
    ),
    "deepspeed-timer": (
        "[2025-09-09 12:00:26,008] [INFO] [timer.py:260:stop] epoch=0/micro_step=10/global_step=10,"
        " RunningAvgSamplesPerSec=9.1, CurrSamplesPerSec=9.2, MemAllocated=12.1GB",
        {"step": 10, "samples_s": 9.2},
    ),
    "hf": (
        "{'loss': 2.0912, 'grad_norm': 1.912, 'learning_rate': 1.5e-05, 'epoch': 0.42}",
        {"loss": 2.0912, "grad_norm": 1.912, "lr": 1.5e-5},
    ),
    "tqdm": (
        "  0%|          | 0/4 [00:00<?, ?it/s]\r 25%|##5       | 1/4 [03:45<11:15, 225.28s/it]",
        {"step": 1, "t_iter_s": 225.28},
    ),
    "lightning": (
        "Epoch 0:  24%|##4       | 24/99 [05:57<18:35, 4.00it/s, reduced_train_loss=11.00]",
        {"step": 24, "t_iter_s": 0.25, "loss": 11.0},
    ),
    "torchtitan": (
        "[rank0]:[titan] 2025-04-01 00:25:47,084 - root - INFO - step: 10  loss:  7.1234"
        "  grad_norm:  1.2  memory: 24.31GiB(30.69%)  tps: 1,234  tflops: 71.52  mfu: 22.9%",
        {"step": 10, "loss": 7.1234, "grad_norm": 1.2, "tokens_s": 1234.0, "tflops_gpu": 71.52},
    ),
    "nemo": (
        "Training epoch 0, iteration 24/99 | lr: 1.499e-07 | global_batch_size: 512 |"
        " global_step: 24 | reduced_train_loss: 11.03 | train_step_timing in s: 14.87",
        {"step": 24, "t_iter_s": 14.87, "loss": 11.03, "lr": 1.499e-7},
    ),
    "maxtext": (
        "completed step: 9, seconds: 1.011, TFLOP/s/device: 109.9, Tokens/s/device: 4050.1,"
        " total_weights: 65536, loss: 9.1",
        {"step": 9, "t_iter_s": 1.011, "loss": 9.1, "tflops_gpu": 109.9, "tokens_s": 4050.1},
    ),
}  # fmt: skip
NUMBERS = ("step", "t_iter_s", "loss", "grad_norm", "lr", "loss_scale", "tokens_s", "samples_s",
           "tflops_gpu", "skipped", "nan_iters")  # fmt: skip


def ingest(path: Path, *sources: Path, **options: Any) -> Any:
    """A connection on the database of these logs."""
    import duckdb

    from queries import report

    plan = pipeline.plan([str(source) for source in sources], workers=1, **options)
    with Store(path) as store:
        pipeline.ingest(store, plan)
    con = duckdb.connect(str(path), read_only=True)
    report.prepare(con)
    return con


def test_lines_of_frameworks_give_their_numbers_in_one_unit(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for name, (line, _) in FORMS.items():
        (logs / f"{name}.log").write_bytes(line.encode() + b"\n")
    con = ingest(tmp_path / "db", logs, metrics="full")
    columns = ", ".join(NUMBERS)
    found = {
        row[0].removesuffix(".log"): {
            name: value for name, value in zip(NUMBERS, row[1:], strict=True) if value is not None
        }
        for row in rows(con, f"SELECT file, {columns} FROM iterations")
    }
    assert found == {name: pytest.approx(told) for name, (_, told) in FORMS.items()}


STEP = (
    "[2026-03-01 10:{:02}:{:02}] iteration {:8}/   99999 | elapsed time per iteration (ms): 1.0 |"
    " number of nan iterations:   0 |\n"
)


@pytest.mark.parametrize("block_bytes", [200, 4096, 1 << 20])
@pytest.mark.parametrize(("metrics", "kept"), [("off", 1), ("sampled", 5), ("full", 300)])
def test_steps_are_kept_as_asked_and_counted_exactly(
    tmp_path: Path, metrics: str, kept: int, block_bytes: int
) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(STEP.format(n // 60, n % 60, n) for n in range(300)))
    con = ingest(tmp_path / "db", log, metrics=metrics, block_bytes=block_bytes)
    query = (
        "SELECT count(*), sum(repeats), min(step), max(coalesce(step_last, step)) FROM iterations"
    )
    assert rows(con, query) == [(kept, 300, 0, 299)]


def test_sampled_steps_without_a_time_are_kept_by_their_place(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    line = "steps: {} loss: 1.5000 iter time (s): 2.000 samples/sec: 7.0 " + "." * 60 + "\n"
    log.write_text("".join(line.format(n) for n in range(2000)))
    con = ingest(tmp_path / "db", log, metrics="sampled", block_bytes=1000)
    assert rows(con, "SELECT count(*), sum(repeats) FROM iterations") == [
        (1 + log.stat().st_size // (1 << 16), 2000)
    ]


def test_metrics_are_not_looked_for_unless_asked() -> None:
    catalogue = load()
    less = catalogue.without_metrics()
    gone = {s.id for s in catalogue.signatures} - {s.id for s in less.signatures}
    assert gone == {s.id for s in catalogue.signatures if s.metric}
    assert "tqdm-step" in gone
    assert less.digest != catalogue.digest
    assert pipeline.plan(["x"]).looked_for(catalogue).signatures == less.signatures
    assert pipeline.plan(["x"], metrics="sampled").looked_for(catalogue) is catalogue


def test_no_bar_with_a_name_counts_as_a_step() -> None:
    scanner = engine.Engine(load())
    text = b"Loading checkpoint shards:  50%|#####     | 2/4 [00:03<00:03,  1.51s/it]\n"
    hits = scanner.scan(text)
    assert [scanner.catalogue.signatures[n].id for n in hits.signature] == []


@pytest.mark.parametrize("block_bytes", [300, 1 << 20])
def test_saves_begun_are_counted_exactly_with_metrics_off(tmp_path: Path, block_bytes: int) -> None:
    log = tmp_path / "train.log"
    lines = []
    for n in range(500):  # steps of the same second, and of times far apart
        lines.append(STEP.format(n // 60 % 60, n % 7, n))
        lines.append(
            f"[2026-03-01 10:{n // 60:02}:{n % 7:02}] saving checkpoint at iteration {n:7} to /c\n"
        )
    log.write_text("".join(lines))
    con = ingest(tmp_path / "db", log, block_bytes=block_bytes)
    query = "SELECT sum(repeats) FROM events WHERE failure = 'checkpoint-begin'"
    assert rows(con, query) == [(500,)]


def test_imported_times_stand_beside_those_of_logs() -> None:
    con = database(
        run("r/log", Event("straggler", "context", line=4, captures={
            "min_ms": "850.0", "fast_rank": "12", "max_ms": "1320.0", "peer_rank": "45"})),
        tables={"timings": [
            {"cluster": "c", "run": "r", "step": 7, "rank": 3, "host": "h3", "stage": 1,
             "t_fwd_s": 1.0, "t_bwd_s": 2.5, "microbatch": 0, "ts": at(5), "source": "profiler"}]},
    )  # fmt: skip
    query = """SELECT run, step, rank, host, stage, t_compute_s, t_fwd_s, metric, value, source,
      partial FROM rank_timings ORDER BY rank"""
    assert rows(con, query) == [
        ("r", 7, 3, "h3", 1, 3.5, 1.0, "time_ms", 3500.0, "profiler", False),
        ("r", None, 12, None, None, 0.85, None, "time_ms", 850.0, "straggler", True),
        ("r", None, 45, None, None, 1.32, None, "time_ms", 1320.0, "straggler", True),
    ]
    assert rows(con, "SELECT count(DISTINCT attempt_id) FROM rank_timings") == [(1,)]


# -- real logs -------------------------------------------------------------------------------------

ITERATION = re.compile(rb"iteration +(\d+)/ .*elapsed time per iteration \(ms\): ([\d.]+)")


def test_iteration_times_of_real_logs_are_those_printed(tmp_path: Path) -> None:
    logs = sorted(shared("data/bigscience").glob("*meg*_gpt2_*.out"))
    con = ingest(tmp_path / "db", *logs, metrics="full")
    found = dict(
        rows(
            con,
            "SELECT file, median(1000 * t_iter_s) FROM iterations "
            "WHERE signature = 'megatron-iteration' GROUP BY file",
        )
    )
    told: dict[str, list[float]] = {}
    for log in logs:
        for match in ITERATION.finditer(log.read_bytes()):
            told.setdefault(log.name, []).append(float(match[2]))
    assert len(told) >= 8
    assert found == pytest.approx({name: statistics.median(times) for name, times in told.items()})
    sizes = dict(
        rows(
            con,
            """SELECT file, max(world_size) FROM (
      SELECT path AS file, world_size FROM placed_events WHERE signature LIKE 'megatron%size')
      GROUP BY file""",
        )
    )
    pattern = re.compile(rb"using world size: (\d+)")
    assert sizes == {
        log.name: int(pattern.search(log.read_bytes())[1]) for log in logs if log.name in sizes
    }  # type: ignore[index]
    assert sorted(set(sizes.values())) == [16, 32, 64, 128, 256]
