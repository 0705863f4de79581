"""Public logs of real machines: counts that others published, or that `wc` gives."""

from __future__ import annotations

import lzma
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest import pipeline, schema
from ingest.cli import app
from ingest.store import Store
from matcher.catalogue import load
from matcher.check import check
from queries import report
from tests.support import shared

RAS = Path(__file__).parent / "data" / "ras_catalogue"
BGL = Path(__file__).parent / "data" / "bgl_catalogue"
NVLINK_DOWN = Path(__file__).parent / "data" / "cases" / "027-nvlink-down-one-gpu-many-victims"
TEARDOWN = {
    "1809577": (64, 16),
    "1809620": (128, 32),
    "1809579": (16, 4),
    "1809655": (256, 64),
    "1809562": (32, 8),
    "1999616": (64, 16),
    "1999618": (64, 16),
}
ALERTS = {
    "KERNDTLB": 60,
    "KERNSTOR": 30,
    "APPSEV": 17,
    "KERNMNTF": 11,
    "KERNTERM": 7,
    "KERNREC": 5,
    "APPRES": 4,
    "APPREAD": 3,
    "APPTO": 2,
    "KERNRTSP": 2,
    "APPCHILD": 1,
    "APPOUT": 1,
}
INCIDENTS = {1: 1678, 5: 888, 60: 674, 300: 573, 600: 535, 720: 526, 1800: 417, 3600: 369}


def ingest(db: Path, *paths: Path, **keys: Any) -> pipeline.Summary:
    with Store(db, report.views()) as store:
        return pipeline.ingest(store, pipeline.plan([str(p) for p in paths], workers=1, **keys))


def ask(db: Path, query: str) -> list[tuple[Any, ...]]:
    with Store(db) as store:
        return store.connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def bigscience(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 logs of multi-node Megatron-DeepSpeed runs, seven of them ended by the scheduler."""
    path = tmp_path_factory.mktemp("bigscience") / "db"
    ingest(path, *sorted(shared("data", "bigscience").glob("*.out")))
    return path


def test_lines_and_bytes_are_those_of_wc(bigscience: Path) -> None:
    assert ask(bigscience, "SELECT count(*), sum(raw_bytes), sum(lines) FROM files") == [
        (16, 4_625_008, 50_948)
    ]
    for path, lines, raw_bytes in ask(bigscience, "SELECT path, lines, raw_bytes FROM files"):
        data = shared("data", "bigscience", path).read_bytes()
        assert (lines, raw_bytes) == (
            data.count(b"\n") + (not data.endswith(b"\n")),
            len(data),
        )


def test_share_of_lines_with_a_time_and_a_rank(bigscience: Path) -> None:
    """The published shares, 4.5 % and 48.9 %, rest on slightly other definitions."""
    ((times, ranks),) = ask(
        bigscience, "SELECT sum(ts_lines) / sum(lines), sum(rank_lines) / sum(lines) FROM files"
    )
    assert times == pytest.approx(0.045, abs=0.005)
    assert ranks == pytest.approx(0.489, abs=0.01)


def test_cancelled_runs_show_one_line_a_process_and_a_node(bigscience: Path) -> None:
    rows = ask(
        bigscience,
        "SELECT job, sum(repeats) FILTER (failure = 'process-killed-by-launcher'), "
        "sum(repeats) FILTER (failure = 'process-sigterm') FROM events "
        "GROUP BY job HAVING count(*) FILTER (failure = 'process-sigterm') > 0",
    )
    assert {job: (killed, told) for job, killed, told in rows} == TEARDOWN


def test_world_sizes_are_those_of_megatron(bigscience: Path) -> None:
    printed = {}
    for path in shared("data", "bigscience").glob("*.out"):
        if sizes := re.findall(rb"using world size: (\d+)", path.read_bytes()):
            printed[path.name] = max(map(int, sizes))
    assert (
        dict(
            ask(
                bigscience,
                "SELECT path, max(e.world_size) FROM events e JOIN files USING (file_id) "
                "WHERE e.world_size IS NOT NULL GROUP BY path",
            )
        ).items()
        >= printed.items()
    )


def test_no_cause_in_any_of_them(bigscience: Path) -> None:
    assert (
        ask(
            bigscience,
            "SELECT path, line_no, signature FROM events JOIN files USING (file_id) "
            "WHERE role IN ('cause', 'confirmation')",
        )
        == []
    )


def test_outcomes(bigscience: Path) -> None:
    outcomes = dict(ask(bigscience, "SELECT job, outcome FROM attempts WHERE job IS NOT NULL"))
    assert {outcomes[job] for job in TEARDOWN} <= {"cancelled", "timeout"}
    assert "failed" not in outcomes.values()


@pytest.fixture(scope="module", params=[False, True], ids=["folded", "every-match"])
def bluegene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """63,951 failure lines of Blue Gene/L, with the incident counts for each window."""
    path = tmp_path_factory.mktemp("ras") / "db"
    source = shared("data", "bgl_fail", "Best.all-fail.xz")
    ingest(path, source, catalogues=[RAS], every_match=request.param)
    if request.param:
        assert ask(path, "SELECT count(*) FROM events") == [(63_951,)]
    return path


def test_every_line_is_counted_once(bluegene: Path) -> None:
    assert ask(bluegene, "SELECT sum(repeats) FROM events") == [(63_951,)]
    assert ask(bluegene, "SELECT lines, raw_bytes, codec FROM files") == [(63_951, 5_567_603, "xz")]


def test_incidents_by_window(bluegene: Path) -> None:
    incidents = report.load("incidents")
    keys = {"dup_s": "0", "spatial_s": "0", "scope": "cluster"}
    with report.connect(bluegene, ddl=schema.ddl()) as con:
        found = {
            window: report.run(con, incidents, keys | {"window_s": str(window)}).table.num_rows
            for window in INCIDENTS
        }
    assert found == INCIDENTS


def test_signatures_agree_with_plain_re(bluegene: Path) -> None:
    text = lzma.decompress(shared("data", "bgl_fail", "Best.all-fail.xz").read_bytes())
    wanted = {
        s.id: sum(1 for line in text.split(b"\n") if re.search(s.pattern.encode(), line))
        for s in load(RAS).signatures
    }
    rows = ask(bluegene, "SELECT signature, sum(repeats) FROM events GROUP BY signature")
    assert dict(rows) == {id_: count for id_, count in wanted.items() if count}


@pytest.fixture(scope="module")
def alerts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 lines of Blue Gene/L, searched for its published alerts alone."""
    path = tmp_path_factory.mktemp("alerts") / "db"
    log = str(shared("data", "loghub", "BGL_2k.log"))
    command = ["ingest", log, "--only-catalogue", str(BGL), "--every-match", "--db", str(path)]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.exception) == (0, None), done.output
    return path


def test_catalogue_of_alerts_is_sound() -> None:
    assert check(load(BGL)) == []


def test_alerts_are_the_published_ones(alerts: Path) -> None:
    """143 of 347 FATAL lines are alerts: who takes FATAL for one is wrong in 58.8 %."""
    assert sum(ALERTS.values()) == 143
    labels = {
        number: line.split(b" ", 1)[0].decode()
        for number, line in enumerate(
            shared("data", "loghub", "BGL_2k.log").read_bytes().split(b"\n"), 1
        )
    }
    rows = ask(alerts, "SELECT line_no, upper(failure[5:]), repeats FROM events ORDER BY line_no")
    wanted = [(number, label, 1) for number, label in labels.items() if label in ALERTS]
    assert rows == wanted
    assert Counter(label for _, label, _ in rows) == ALERTS


@pytest.mark.parametrize(
    ("seconds", "repeats", "tuples"), [(5, 143, 136), (300, 115, 77), (3600, 84, 40)]
)
def test_alerts_merge_as_published(alerts: Path, seconds: int, repeats: int, tuples: int) -> None:
    """Repeats of a (label, node) within a time, and runs of alerts without a longer silence."""
    incidents = report.load("incidents")
    off = {"dup_s": "0", "spatial_s": "0", "window_s": "0", "scope": "cluster"}
    with report.connect(alerts, ddl=schema.ddl()) as con:
        found = [
            report.run(con, incidents, off | {key: str(seconds)}).table.num_rows
            for key in ("dup_s", "window_s")
        ]
    assert found == [repeats, tuples]


def test_loghub_is_read_and_names_no_cause(tmp_path: Path) -> None:
    """Ten systems that train nothing; alerts of BG/L and HPC are of other kinds than ours."""
    logs = sorted(shared("data", "loghub").glob("*_2k.log"))
    summary = ingest(tmp_path / "db", *logs)
    assert (summary.files, summary.ok) == (10, 10)
    assert ask(tmp_path / "db", "SELECT DISTINCT lines FROM files") == [(2000,)]
    assert (
        ask(
            tmp_path / "db",
            "SELECT path, line_no, signature, message FROM events JOIN files USING (file_id) "
            "WHERE role IN ('cause', 'confirmation')",
        )
        == []
    )


XID = re.compile(rb"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, pid='?(\d+))?")


@pytest.mark.parametrize("folder", ["gpud", "m4"])
def test_xid_lines_have_code_address_and_process(tmp_path: Path, folder: str) -> None:
    ingest(tmp_path / "db", shared("data", folder))
    rows = ask(
        tmp_path / "db",
        "SELECT captures['xid'], captures['pci'], captures['pid'], sum(repeats) FROM events "
        "WHERE captures['xid'] IS NOT NULL GROUP BY ALL",
    )
    wanted = Counter(
        (xid.decode(), pci.decode(), pid.decode() or None)
        for path in shared("data", folder).glob("*")
        for pci, xid, pid in XID.findall(path.read_bytes())
    )
    assert wanted
    assert {(xid, pci, pid): count for xid, pci, pid, count in rows} == wanted


def test_one_fatal_link_outweighs_63_earlier_echoes(tmp_path: Path) -> None:
    """Clocks of hosts differ: the word and the code outrank the time."""
    run = tmp_path / "logs" / "run"
    shutil.copytree(NVLINK_DOWN / "tasks", run / "tasks")
    (run / "hosts").mkdir()
    for host in range(16):
        lines = [
            f"Jun 21 14:03:{14 if fatal else 11} tray{host:02} kernel: [9031{gpu}.4] NVRM: Xid "
            f"(PCI:00{gpu}9:01:00): "
            + ("149, NETIR_LINK_DOWN Fatal" if fatal else "145, RLW_SRC_TRACK Nonfatal")
            + " XC0 i0 Link 14 (0x0001a8c5 0x00000000 0x00000000 0x00000000)\n"
            for gpu in range(4)
            for fatal in [(host, gpu) == (12, 1)]
        ]
        (run / "hosts" / f"tray{host:02}.syslog").write_text("".join(lines))
    db = tmp_path / "db"
    ingest(db, tmp_path / "logs")
    assert ask(
        db,
        "SELECT role, failure, sum(repeats), min(host), max(host) FROM events "
        "WHERE captures['xid'] IS NOT NULL GROUP BY ALL ORDER BY ALL",
    ) == [
        ("cause", "nvlink-link-down", 1, "tray12", "tray12"),
        ("collateral", "nvlink-nonfatal-xid-145", 63, "tray00", "tray15"),
    ]
    with report.connect(db, ddl=schema.ddl()) as con:
        rows = con.execute("SELECT failure, initiating_host FROM first_failures()").fetchall()
    assert rows == [("nvlink-link-down", "tray12")]


def test_healthy_kernel_log_has_no_xid(tmp_path: Path) -> None:
    (dmesg,) = [p for p in shared("data", "m4").rglob("*") if "dmesg" in p.name]
    summary = ingest(tmp_path / "db", dmesg)
    assert (summary.files, summary.lines) == (1, 7_227)
    assert (
        ask(
            tmp_path / "db",
            "SELECT signature FROM events "
            "WHERE captures['xid'] IS NOT NULL OR role IN ('cause', 'confirmation')",
        )
        == []
    )


@pytest.mark.parametrize("folder", ["bigscience", "gpud", "loghub", "m4", "opt", "glm130b"])
def test_whole_folder_is_read(tmp_path: Path, folder: str) -> None:
    summary = ingest(tmp_path / "db", shared("data", folder))
    assert summary.failed == 0
    assert summary.ok > 0
