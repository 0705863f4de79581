"""Names of machines and users under `--mask strict`: none is left, and their joins still hold."""

from __future__ import annotations

import dataclasses
import stat
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from ingest import pipeline, schema
from ingest.cli import app
from ingest.rows import StoreError
from ingest.store import Store
from matcher.pseudonyms import KEY_BYTES, Pseudonyms
from queries import diagnosis, report
from tests.support import ROOT

CASES = ROOT / "tests" / "data" / "cases"
KEY = bytes(range(KEY_BYTES))

HOSTS = ("frontier00123", "gpu-a017", "borealis", "dgx-04", "mars-7", "nid001234", "quokka9")
USERS = ("alicia", "bertrand", "cosima", "dagobert", "eulalia", "friedolin", "gundula")
ADDRESSES = ("10.11.12.13", "172.16.250.4", "fe80::1ff:fe23:4567:890a", "2001:db8::77")


@pytest.fixture
def names() -> Pseudonyms:
    return Pseudonyms(KEY)


def text(names: Pseudonyms, line: str) -> str:
    """The line as one that is read alone."""
    renamer = names.renamer()
    renamer.learn(line)
    return renamer.text(line)


def test_a_name_has_one_pseudonym_whatever_its_form(names: Pseudonyms) -> None:
    node = names.host("node07")
    assert text(names, "Node07.hpc.example.org: [node07] at node07:29500, node07.out") == (
        f"{node}: [{node}] at {node}:29500, {node}.out"
    )
    assert names.host("node07.hpc.example.org,NODE07:22") == f"{node},{node}:22"
    assert names.host("2001:0db8::0077") == names.host("2001:db8::77")
    assert text(names, "10.1.2.3:29500") == f"{names.host('10.1.2.3')}:29500"
    alice = names.user("alice")
    assert text(names, "/home/alice/run, user=alice (ALICE), alice's") == (
        f"/home/{alice}/run, user={alice} ({alice}), {alice}'s"
    )


def test_another_key_gives_other_pseudonyms(names: Pseudonyms) -> None:
    other = Pseudonyms(bytes(KEY_BYTES))
    assert names.host("node07") != other.host("node07")
    assert names.digest("") != other.digest("")
    assert names.host("node07")[5:] != names.user("node07")[5:]


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="a key has 32 bytes, not 3: make one by new_key"):
        Pseudonyms(b"abc")


@pytest.mark.parametrize(
    "line",
    [
        "2024-05-01 12:30:45.123456 [rank3]: step 1200 loss 2.31",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus",
        "mlx5_0: port 1 mac aa:bb:cc:dd:ee:ff guid 0002:c903:00a1:b2c3 build 1.2.3.4.5",
        "terminate called: std::runtime_error c10::Error at::native::add",
        "saved /mnt/data/checkpoints/global_step1000/zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "host: Connection refused; user: None; listening on 127.0.0.1:8080 and ::1",
        "GPU 0: out of memory; CUDA 12.4, torch 2.3.1, local_rank=7, uid=0(root)",
    ],
)
def test_what_is_no_name_stays(names: Pseudonyms, line: str) -> None:
    assert text(names, line) == line


def test_users_are_known_by_what_stands_before_them(names: Pseudonyms) -> None:
    for line in (
        "/home/{}/x",
        "/Users/{}/x",
        "/data/users/{}/x",
        "user={}",
        'USER="{}"',
        '{{"username": "{}"}}',
        "uid=1001({}) gid=0(root)",
        "UserId={}(1001)",
        "session opened for user {} by (uid=0)",
        "Accepted publickey for {} port 22",
    ):
        assert text(names, line.format("cosima")) == line.format(names.user("cosima"))
    assert text(names, "uid=1001, pid=1001") == f"uid={names.user('1001')}, pid=1001"


# -- a whole database ----------------------------------------------------------------------------


def plant(root: Path) -> Path:
    """Logs with every planted name in paths, headers, captures, evidence and odd places."""
    logs = root / "home" / USERS[0] / "logs"
    job = logs / "c1" / "48213"
    for number, host in enumerate(HOSTS):
        folder = job / "hosts" / host
        folder.mkdir(parents=True)
        lines = [
            f"2026-01-05 06:00:0{number} INFO start on {host}.hpc.example.org for {USERS[1]}",
            f"2026-01-05 06:00:1{number} INFO HOSTNAME={host} user={USERS[2]} uid=1007({USERS[3]})",
            f"2026-01-05 06:00:2{number} INFO peers {', '.join(HOSTS)} {' '.join(ADDRESSES)}",
            f"2026-01-05 06:00:3{number} INFO load /data/users/{USERS[4]}/x /Users/{USERS[5]}/y",
            f"2026-01-05 06:00:4{number} ERROR ConnectionError: Connection to {HOSTS[-1]} lost",
            f"srun: error: {host}: task {number}: Out Of Memory",
            f"RuntimeError: CUDA error: an illegal memory access, see /home/{USERS[6]}/{host}.core",
            f"torch.OutOfMemoryError: CUDA out of memory on {host}; ask {USERS[6]}, /x/{USERS[1]}",
        ]
        (folder / f"rank_{number}.log").write_text("\n".join(lines) + "\n")
    kernel = logs / "c1" / "kernel"
    kernel.mkdir()
    # No rule tells that this folder's part names a machine; another file's header does.
    (logs / "c1" / "spare-borealis-x").mkdir()
    (logs / "c1" / "spare-borealis-x" / "messages").write_text(
        "".join(
            f"Jan  5 06:00:5{n} {host} kernel: [1.5] Out of memory: Killed process 4711 (python) "
            f"total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:1007 pgtables:1kB\n"
            f"Jan  5 06:00:5{n} {host} sshd[77]: Accepted publickey for {USERS[1]} from "
            f"{ADDRESSES[0]} port 22\n"
            for n, host in enumerate(HOSTS)
        )
    )
    (kernel / f"{HOSTS[0]}.log").write_text(f"nothing here\nuser={USERS[1]} on {HOSTS[2]}\n")
    return logs


def ingest(db: Path, path: Path, **options: Any) -> None:
    with Store(db, report.views()) as store:
        pipeline.ingest(store, pipeline.plan([str(path)], **{"mask": "strict"} | options))


def dump(db: Path) -> dict[str, list[str]]:
    """All values of all columns of all tables, by table and column."""
    with duckdb.connect(str(db), read_only=True) as con:
        columns = con.execute(
            "SELECT table_name, column_name FROM duckdb_columns() JOIN duckdb_tables() "
            "USING (table_name) WHERE NOT duckdb_tables.internal"
        ).fetchall()
        return {
            f"{table}.{column}": [
                str(value)
                for (value,) in con.execute(f'SELECT "{column}" FROM "{table}"').fetchall()
            ]
            for table, column in columns
        }


@pytest.mark.parametrize("workers", [1, 2])
def test_no_planted_name_is_in_any_column(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "ALONE_FILES", 0)
    monkeypatch.setattr(pipeline, "JOB_FILES", 2)
    db = tmp_path / "fleet.duckdb"
    ingest(db, plant(tmp_path), workers=workers)
    values = dump(db)
    assert len(values["events.message"]) > len(HOSTS)
    assert len(values["evidence.text"]) > len(HOSTS)
    assert [
        (column, name, value)
        for column, told in values.items()
        for value in told
        for name in (*HOSTS, *USERS, *ADDRESSES, "hpc.example")
        if name in value.lower()
    ] == []


def test_the_same_machine_is_the_same_in_every_column_and_later_ingest(tmp_path: Path) -> None:
    db, logs = tmp_path / "fleet.duckdb", plant(tmp_path)
    ingest(db, logs / "c1" / "48213", cluster="c1")
    ingest(db, logs, cluster="c1")
    names = Pseudonyms(bytes.fromhex((tmp_path / "fleet.duckdb.key").read_text()))
    wanted = {names.host(host) for host in HOSTS}
    with report.connect(db, schema.ddl()) as con:

        def told(query: str) -> set[str]:
            return {row[0] for row in con.execute(query).fetchall()}

        assert told("SELECT host FROM files WHERE rank IS NOT NULL") == wanted
        assert told("SELECT host FROM events WHERE host IS NOT NULL") == wanted
        assert told("SELECT captures['peer_host'] FROM events WHERE captures['tasks'] <> ''") == (
            wanted
        )
        assert told("SELECT split_part(path, '/', -2) FROM files WHERE rank = 3") == {
            names.host(HOSTS[3])
        }
        assert told("SELECT path FROM files WHERE contains(path, 'spare')") == {
            f"c1/spare-{names.host('borealis')}-x/messages"
        }


def test_an_unchanged_file_is_known_again(tmp_path: Path) -> None:
    db, logs = tmp_path / "fleet.duckdb", plant(tmp_path)
    ingest(db, logs)
    with Store(db, report.views()) as store:
        again = pipeline.ingest(store, pipeline.plan([str(logs)], mask="strict"))
    assert (again.files, again.unchanged) == (0, len(HOSTS) + 2)


def test_two_databases_differ_and_neither_id_nor_digest_tells_a_name(tmp_path: Path) -> None:
    logs = plant(tmp_path)
    columns = ("files.file_id", "files.sha256_head", "files.host", "events.event_id")
    told = []
    for name in ("a.duckdb", "b.duckdb"):
        ingest(tmp_path / name, logs)
        told.append(dump(tmp_path / name))
    ingest(tmp_path / "plain.duckdb", logs, mask="default")
    told.append(dump(tmp_path / "plain.duckdb"))
    for column in columns:
        sets = [set(values[column]) - {"None"} for values in told]
        assert all(sets)
        assert sets[0].isdisjoint(sets[1] | sets[2]), column


def test_the_key_is_readable_by_its_owner_alone_and_not_in_the_database(tmp_path: Path) -> None:
    db = tmp_path / "fleet.duckdb"
    ingest(db, plant(tmp_path))
    key = tmp_path / "fleet.duckdb.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    raw = key.read_text().strip()
    assert len(raw) == 2 * KEY_BYTES
    assert raw.encode() not in db.read_bytes()
    assert bytes.fromhex(raw) not in db.read_bytes()


def test_names_and_pseudonyms_do_not_come_into_one_database(tmp_path: Path) -> None:
    logs = plant(tmp_path)
    strict, plain = tmp_path / "strict.duckdb", tmp_path / "plain.duckdb"
    ingest(strict, logs)
    ingest(plain, logs, mask="default")
    with pytest.raises(StoreError, match="made with --mask strict: give that again"):
        ingest(strict, logs, mask="default")
    with pytest.raises(StoreError, match="has names as they are, read without --mask strict"):
        ingest(plain, logs)


def test_a_key_that_is_gone_or_another_is_told(tmp_path: Path) -> None:
    db, logs = tmp_path / "fleet.duckdb", plant(tmp_path)
    ingest(db, logs)
    key = tmp_path / "fleet.duckdb.key"
    key.write_text(KEY.hex())
    with pytest.raises(StoreError, match="not the key of"):
        ingest(db, logs)
    key.unlink()
    with pytest.raises(StoreError, match="the key of the pseudonyms is not there: restore it"):
        ingest(db, logs)


@pytest.mark.parametrize("form", ["text", "json", "markdown", "sarif"])
def test_a_diagnosis_shows_no_name(tmp_path: Path, form: str) -> None:
    logs = plant(tmp_path)
    whole = ["diagnose", str(logs), "--mask", "strict", "--format", form]
    if form in ("text", "json"):
        whole += ["--against", str(logs / "c1" / "kernel")]
    done = CliRunner().invoke(app, whole)
    assert done.exit_code == 0, done.output
    assert "host-" in done.output
    assert [name for name in (*HOSTS, *USERS, *ADDRESSES) if name in done.output.lower()] == []


def test_scan_shows_no_name_that_its_file_tells(tmp_path: Path) -> None:
    log = tmp_path / "home" / USERS[0] / f"rank_0.{HOSTS[1]}.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        f"{HOSTS[1]}:77:78 [0] NCCL WARN Call to recv from {ADDRESSES[0]}<29500> failed\n"
        f"srun: error: {HOSTS[2]}: task 3: Out Of Memory, see /home/{USERS[1]}/x, {HOSTS[2]}\n"
    )
    done = CliRunner().invoke(app, ["scan", str(log.parent), "--mask", "strict", "--json"])
    assert done.exit_code == 0, done.output
    assert "peer_host" in done.output
    assert [name for name in (*HOSTS, *USERS, *ADDRESSES) if name in done.output.lower()] == []


# -- verdicts ------------------------------------------------------------------------------------


def diagnosed(case: str, level: str) -> tuple[diagnosis.Diagnosis, Pseudonyms]:
    plan = pipeline.plan([str(CASES / case)], workers=1, mask=level)  # type: ignore[arg-type]
    with Store(None, report.views()) as store:
        pipeline.ingest(store, dataclasses.replace(plan, key=KEY if level == "strict" else b""))
        store.gather(case)
        report.prepare(store.connection)
        return diagnosis.diagnose(store.connection), Pseudonyms(KEY)


@pytest.mark.parametrize(
    "case",
    [
        "027-nvlink-down-one-gpu-many-victims",
        "029-gpu-ecc-uncorrectable",
        "033-ib-link-flap",
        "045-exit-minus-9-no-kernel-log",
        "048-rendezvous-host-not-found",
        "061-checkpoint-incomplete-auto-resume",
    ],
)
def test_the_verdict_is_the_same(case: str) -> None:
    plain, names = diagnosed(case, "default")
    strict, _ = diagnosed(case, "strict")
    assert plain.root_cause is not None
    assert strict.root_cause is not None
    for name in ("verdict", "scope", "initiating_rank", "tied_ranks", "fix", "coverage"):
        assert getattr(strict, name) == getattr(plain, name), name
    for name in ("failure", "line", "rank", "why"):
        assert getattr(strict.root_cause, name) == getattr(plain.root_cause, name), name
    host = plain.initiating_host
    assert strict.initiating_host == (host and names.host(host))
