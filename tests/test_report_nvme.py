"""The report on NVMe capacity: whether swap files and checkpoints fit, and until when."""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.database import EPOCH, Event, ask, database, empty, rows, run
from tests.support import shared
from tests.test_metrics import ingest

WORLD = Event("world-size", "progress", t=0, world_size=8)


def save(number: int, t: float, free_gb: float, rank: int = 0, host: str = "h") -> Event:
    return Event("checkpoint-begin", "progress", t=t, host=host,
                 signature="deepspeed-nvme-copy-begin", captures={
                     "path": f"/fsx/r/global_step{number}/offloaded_tensors",
                     "source": f"/nvme/zero_stage_3/optimizer/rank{rank}", "rank": str(rank),
                     "free_gb": f"{free_gb:,.2f}"})  # fmt: skip


def rows_of(con: Any, use: str, **arguments: Any) -> list[dict[str, Any]]:
    return [row for row in ask(con, "nvme-capacity", **arguments) if row["use"] == use]


@pytest.mark.parametrize(
    ("dp", "offload", "rank", "host", "gradients"),
    [
        (64, "optimizer,parameters", 19_687_500_000, 157_500_000_000, 35_000_000_000),
        (8, "optimizer", 140_000_000_000, 1_120_000_000_000, 280_000_000_000),
    ],
)
def test_worked_footprints(dp: int, offload: str, rank: int, host: int, gradients: int) -> None:
    (row,) = ask(empty(), "nvme-capacity", params=70e9, dp=dp, local_ranks=8, offload=offload)
    assert (row["expected_bytes_per_rank"], row["expected_bytes_fs"]) == (rank, host)
    assert row["of_which_gradients"] == gradients
    assert (row["ckpt_bytes_per_tag"], row["verdict"]) == (840_000_000_000, "unknown")


@pytest.mark.parametrize(
    ("free", "verdict"),
    [(175e9, "ok"), (174.9e9, "tight"), (157.5e9, "tight"), (157.4e9, "will_fail")],
)
def test_verdict_keeps_a_tenth_free(free: float, verdict: str) -> None:
    (row,) = ask(empty(), "nvme-capacity", params=70e9, dp=64, local_ranks=8,
                 offload="optimizer,parameters", free_bytes=free)  # fmt: skip
    assert (row["verdict"], row["headroom_bytes"]) == (verdict, int(free - 157.5e9))


def test_checkpoints_on_the_swap_file_system_need_room_too() -> None:
    (row,) = ask(empty(), "nvme-capacity", params=70e9, dp=8, local_ranks=8, offload="optimizer",
                 free_bytes=1.2e12, same_filesystem=True)  # fmt: skip
    assert (row["verdict"], row["headroom_bytes"]) == ("will_fail", int(1.2e12 - 1.12e12 - 840e9))


def test_worked_forecast() -> None:
    with (shared("spec/report-examples") / "r11_free.csv").open() as file:
        levels = [(float(row["t_s"]), float(row["free_gb"])) for row in csv.DictReader(file)]
    con = database(run("r/log", WORLD, *[save(n, t, f) for n, (t, f) in enumerate(levels)]))
    (row,) = rows_of(con, "checkpoint")
    assert (row["path"], row["host"], row["observations"]) == ("/fsx/r", "h", 5)
    assert row["slope_gb_per_h"] == pytest.approx(-210.0)
    assert row["hours_to_full"] == pytest.approx(10.28571, abs=5e-6)
    assert row["t_full"] - EPOCH == pytest.approx(
        timedelta(hours=4 + 2160 / 210), abs=timedelta(seconds=1)
    )
    assert (row["saves_left"], row["free_bytes"]) == (10, 2_160_000_000_000)
    (row,) = rows_of(con, "checkpoint", params=70e9)
    assert (row["ckpt_bytes_per_tag"], row["verdict"]) == (840_000_000_000, "ok")


def test_space_that_does_not_fall_is_never_full() -> None:
    con = database(run("r/log", WORLD, save(1, 0, 500), save(2, 3600, 500), save(3, 7200, 510)))
    (row,) = rows_of(con, "checkpoint")
    assert row["slope_gb_per_h"] > 0
    assert (row["t_full"], row["saves_left"]) == (None, None)


def test_hosts_that_print_the_same_free_bytes_share_a_path() -> None:
    alone = [save(1, 0, 900, 0, "h1"), save(1, 1, 700, 1, "h2")]
    con = database(run("r/log", WORLD, *alone))
    assert sorted(row["host"] for row in rows_of(con, "checkpoint")) == ["h1", "h2"]
    shared_path = [save(1, 0, 900, 0, "h1"), save(1, 0, 900, 1, "h2")]
    con = database(run("r/log", WORLD, *shared_path))
    assert [row["host"] for row in rows_of(con, "checkpoint")] == [None]


def test_swap_folders_of_ranks_beyond_the_world_are_stale() -> None:
    stale = Event("nvme-swap-file-truncated", t=5, captures={
        "path": "/nvme/zero_stage_3/optimizer/rank24/0_param.tensor.swp"})  # fmt: skip
    (row,) = rows_of(database(run("r/log", WORLD, save(1, 1, 900), stale)), "swap")
    assert (row["path"], row["stale_rank_dirs"], row["offload"]) == ("/nvme", 1, "optimizer")


LOG = """\
[2026-03-01 10:00:00,100] [INFO] [launch.py:180:main] nnodes=8, num_local_procs=8, node_rank=0
/dev/nvme0n1    3.5T  3.3T  150G  96% /local_nvme
[2026-03-01 10:00:01,200] [INFO] [config.py:1000:print]   world_size ................... 64
[2026-03-01 10:00:01,201] [INFO] [config.py:1007:print]   zero_config .................. stage=3 \
offload_param=DeepSpeedZeroOffloadParamConfig(device='nvme', nvme_path=PosixPath('/local_nvme/z'), \
buffer_count=5) offload_optimizer=DeepSpeedZeroOffloadOptimizerConfig(device='nvme', \
nvme_path=PosixPath('/local_nvme/z'), buffer_count=4)
[2026-03-01 10:00:09,310] [INFO] [partition_parameters.py:348:__exit__] finished initializing \
model - num_params = 723, num_elems = 70.00B
"""


def test_settings_and_free_space_are_read_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "run7.log"
    log.write_text(LOG)
    con = ingest(tmp_path / "db", log, metrics="sampled")
    (row,) = rows_of(con, "swap")
    assert (row["params"], row["dp"], row["local_ranks"]) == (70_000_000_000, 64, 8)
    assert (row["offload"], row["path"]) == ("optimizer,parameters", "/local_nvme/z")
    assert (row["expected_bytes_fs"], row["free_bytes"]) == (157_500_000_000, 150 << 30)
    assert (row["verdict"], row["capacity_bytes"]) == ("tight", int(3.5 * (1 << 40)))


def test_keys_of_a_printed_configuration_tell_what_is_offloaded(tmp_path: Path) -> None:
    log = tmp_path / "run7.log"
    log.write_text(
        '    "zero_optimization": {\n        "offload_optimizer": {\n'
        '            "device": "nvme",\n            "nvme_path": "/local_nvme"\n        }\n'
    )
    con = ingest(tmp_path / "db", log)
    assert rows(con, "SELECT optimizer, parameters, nvme_path FROM offload_settings") == [
        (True, False, "/local_nvme")
    ]


def test_logs_without_offload_say_nothing() -> None:
    assert ask(empty(), "nvme-capacity") == []
    assert ask(database(run("r/log", WORLD)), "nvme-capacity") == []


def test_macro_runs_without_functions_of_reports(tmp_path: Path) -> None:
    import duckdb

    from ingest import schema
    from queries import report

    with duckdb.connect(str(tmp_path / "db")) as con:
        con.execute(schema.ddl())
        con.execute(report.views())
        query = """SELECT verdict FROM nvme_capacity(params := 7e9, dp := 8, local_ranks := 8,
          offload := 'optimizer', free_bytes := 1e12)"""
        assert con.sql(query).fetchall() == [("ok",)]
