"""Public logs of real machines: counts that others published, or that `wc` gives."""

from __future__ import annotations

import lzma
import re
from pathlib import Path
from typing import Any

import pytest

from ingest import pipeline, schema
from ingest.store import Store
from queries import report
from tests.support import shared

RAS = Path(__file__).parent / "data" / "ras_catalogue"
TEARDOWN = {
    "1809577": (64, 16),
    "1809620": (128, 32),
    "1809579": (16, 4),
    "1809655": (256, 64),
    "1809562": (32, 8),
    "1999616": (64, 16),
    "1999618": (64, 16),
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
            "WHERE role = 'cause'",
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
    from matcher.catalogue import load

    text = lzma.decompress(shared("data", "bgl_fail", "Best.all-fail.xz").read_bytes())
    wanted = {
        s.id: sum(1 for line in text.split(b"\n") if re.search(s.pattern.encode(), line))
        for s in load(RAS).signatures
    }
    rows = ask(bluegene, "SELECT signature, sum(repeats) FROM events GROUP BY signature")
    assert dict(rows) == {id_: count for id_, count in wanted.items() if count}


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
            "WHERE role = 'cause'",
        )
        == []
    )


def test_xid_lines_have_code_and_address(tmp_path: Path) -> None:
    ingest(tmp_path / "db", shared("data", "gpud"))
    rows = ask(
        tmp_path / "db",
        "SELECT captures['xid'], lower(captures['pci']), sum(repeats) FROM events "
        "WHERE captures['xid'] IS NOT NULL GROUP BY ALL ORDER BY ALL",
    )
    wanted: dict[tuple[str, str], int] = {}
    for path in shared("data", "gpud").glob("*"):
        for pci, xid in re.findall(
            rb"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)", path.read_bytes()
        ):
            key = (xid.decode(), pci.decode().lower())
            wanted[key] = wanted.get(key, 0) + 1
    assert wanted
    assert {(xid, pci): count for xid, pci, count in rows} == wanted


def test_healthy_kernel_log_has_no_xid(tmp_path: Path) -> None:
    (dmesg,) = [p for p in shared("data", "m4").rglob("*") if "dmesg" in p.name]
    summary = ingest(tmp_path / "db", dmesg)
    assert (summary.files, summary.lines) == (1, 7_227)
    assert (
        ask(
            tmp_path / "db",
            "SELECT signature FROM events WHERE captures['xid'] IS NOT NULL OR role = 'cause'",
        )
        == []
    )


@pytest.mark.parametrize("folder", ["bigscience", "gpud", "loghub", "m4", "opt", "glm130b"])
def test_whole_folder_is_read(tmp_path: Path, folder: str) -> None:
    summary = ingest(tmp_path / "db", shared("data", folder))
    assert summary.failed == 0
    assert summary.ok > 0
