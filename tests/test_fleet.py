from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import re
import tempfile
from collections import Counter, defaultdict
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from ingest import fleet, fleet_files, fleet_words
from ingest.fleet import RunTruth, Truth, generate
from ingest.streams import zstd

DECISIVE = {
    "nvme-offload-checkpoint-race": [
        "FileExistsError: [Errno 17] File exists",
        "offloaded_tensors",
    ],
    "disk-full": ["error = 28", "No space left on device", "file write failed"],
    "checkpoint-corrupt": ["PytorchStreamReader failed reading zip archive"],
    "straggler": ["STRAGGLER DETECTION WARNING"],
    "gpu-fallen-off-bus": ["GPU has fallen off the bus"],
    "gpu-ecc-uncorrectable": ["CUDA error: uncorrectable ECC error encountered"],
    "host-oom": ["invoked oom-killer"],
    "ib-link-flap": ["port error"],
    "gpu-oom": ["CUDA out of memory. Tried to allocate"],
    "index-out-of-bounds": ["Assertion `"],
    "python-exception": ["KeyError: '", "ValueError: "],
    "wandb-init-hang": ["Run initialization has timed out"],
    "hub-rate-limited": ["429 Client Error: Too Many Requests"],
    "silent-data-corruption": ["not reproducible within the tolerance"],
}


class Fleet:
    """A generated tree with its truth and its text, read once."""

    def __init__(self, root: Path, truth: Truth) -> None:
        self.root = root
        self.truth = truth
        self.text = {
            path.relative_to(root).as_posix(): unpack(path.read_bytes())
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.parent != root
        }

    def of(self, run: RunTruth) -> dict[str, bytes]:
        folder = f"{run.cluster}/{run.job}/"
        return {path: data for path, data in self.text.items() if path.startswith(folder)}

    def line(self, run: RunTruth) -> str:
        assert run.file is not None
        assert run.line is not None
        return self.text[run.file].split(b"\n")[run.line - 1].decode(errors="replace")


def unpack(data: bytes) -> bytes:
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if data.startswith(b"BZh"):
        return bz2.decompress(data)
    if data.startswith(b"\xfd7zXZ\x00"):
        return lzma.decompress(data)
    if data.startswith(b"\x04\x22\x4d\x18"):
        with lz4.frame.open(io.BytesIO(data)) as frames:
            return bytes(frames.read())
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return zstd.decompress(data)
    return data


def digests(root: Path) -> dict[str, tuple[str, int]]:
    return {
        path.relative_to(root).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            0 if path.parent == root else path.stat().st_mtime_ns,
        )
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    root = tmp_path_factory.mktemp("fleet")
    return Fleet(root, generate(root, bytes_=14_000_000, seed=11, runs=88))


def test_same_arguments_give_the_same_bytes_and_times(tmp_path: Path) -> None:
    a, b, other = tmp_path / "a", tmp_path / "b", tmp_path / "other"
    truth = generate(a, bytes_=600_000, seed=3)
    assert generate(b, bytes_=600_000, seed=3) == truth
    generate(other, bytes_=600_000, seed=4)
    assert digests(a) == digests(b)
    assert digests(a) != digests(other)


def test_truth_counts_what_is_on_disk(demo: Fleet) -> None:
    texts = demo.text.values()
    assert demo.truth.files == len(texts)
    assert demo.truth.bytes == sum(map(len, texts))
    assert demo.truth.lines == sum(t.count(b"\n") + (not t.endswith(b"\n")) for t in texts)
    written = json.loads((demo.root / "truth.json").read_text())
    assert written == json.loads(json.dumps(asdict(demo.truth)))


@pytest.mark.parametrize("size", [3_000_000, 14_000_000])
def test_size_is_near_what_was_asked(demo: Fleet, tmp_path: Path, size: int) -> None:
    truth = demo.truth if size == 14_000_000 else generate(tmp_path / "x", bytes_=size, seed=1)
    assert truth.bytes == pytest.approx(size, rel=0.05)


def test_most_runs_are_healthy_and_every_kind_is_planted(demo: Fleet) -> None:
    outcomes = Counter(run.outcome for run in demo.truth.runs)
    assert outcomes == {"completed": 58, "failed": 27, "cancelled": 1, "timeout": 1, "preempted": 1}
    kinds = Counter(run.failure for run in demo.truth.runs if run.failure)
    expected = Counter(dict.fromkeys(DECISIVE, 1))
    expected["nvme-offload-checkpoint-race"] = 9
    expected["disk-full"] = 6
    assert kinds == expected


def test_fleet_is_varied(demo: Fleet) -> None:
    truth = demo.truth
    assert [(site.name, site.tz) for site in truth.clusters] == [
        ("aurelia", "UTC"),
        ("borealis", "Asia/Tokyo"),
    ]
    assert {run.cluster for run in truth.runs} == {"aurelia", "borealis"}
    assert {run.world_size for run in truth.runs} == {8, 16, 32, 64, 128, 256, 512}
    layouts = {run.layout for run in truth.runs}
    assert layouts == {"ranks", "srun", "torch", "pods", "elastic", "mpirun"}
    assert any(run.attempts > 1 for run in truth.runs)
    suffixes = {Path(path).suffix for path in demo.text}
    assert suffixes == {".log", ".out", ".gz", ".zst", ".bz2", ".xz", ".lz4"}
    everything = b"\n".join(demo.text.values())
    for sample in (b"\r", b"[default3]:", b"[1,3]<stderr>:", b" stderr F ", b"\n3: ", "✓".encode()):
        assert sample in everything
    assert any(not is_utf8(text) for text in demo.text.values())


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_jobs_have_folders_of_their_own(demo: Fleet) -> None:
    jobs = Counter((run.cluster, run.job) for run in demo.truth.runs)
    assert set(jobs.values()) == {1}
    assert all(demo.of(run) for run in demo.truth.runs)


def test_decisive_line_shows_the_failure(demo: Fleet) -> None:
    for run in demo.truth.runs:
        if run.failure is None:
            assert (run.initiating_rank, run.file, run.line, run.t_first) == (None,) * 4
        else:
            assert any(text in demo.line(run) for text in DECISIVE[run.failure]), run


def test_decisive_line_stands_where_the_initiating_rank_or_its_kernel_prints(demo: Fleet) -> None:
    for run in demo.truth.runs:
        if run.failure is None:
            continue
        assert run.file is not None
        assert run.initiating_host is not None
        name = run.file.rsplit("/", 1)[1]
        if name == "dmesg.log":
            assert f"/{run.initiating_host}/" in run.file
        elif run.layout == "ranks":
            assert f"/{run.initiating_host}/rank_{run.initiating_rank}.log" in run.file
        elif run.layout == "srun":
            assert demo.line(run).lstrip().startswith(f"{run.initiating_rank}: ")
        elif run.layout == "mpirun":
            assert demo.line(run).startswith(f"[1,{run.initiating_rank}]<stderr>:")
        else:
            assert f"[rank{run.initiating_rank}]: " in demo.line(run)
        attempt = "/attempt_" in run.file
        assert attempt == (run.attempts > 1 and "/hosts/" not in run.file)
        if attempt:
            assert f"/attempt_{run.attempt}/" in run.file


def test_rank_files_are_missing_but_never_the_one_that_tells(demo: Fleet) -> None:
    missing = 0
    for run in demo.truth.runs:
        if run.layout != "ranks":
            assert run.missing_rank_files == ()
            continue
        missing += len(run.missing_rank_files) * run.attempts
        assert run.initiating_rank not in run.missing_rank_files
        names = Counter(path.rsplit("/", 1)[1].split(".")[0] for path in demo.of(run))
        present = {f"rank_{rank}" for rank in range(run.world_size)}
        present -= {f"rank_{rank}" for rank in run.missing_rank_files}
        assert {name for name in names if name.startswith("rank_")} == present
    assert missing / demo.truth.rank_files == pytest.approx(0.1, abs=0.02)


def test_more_rank_files_can_be_missing_and_more_messages_worded_otherwise(tmp_path: Path) -> None:
    def made(name: str, **options: float) -> Fleet:
        root = tmp_path / name
        return Fleet(root, generate(root, bytes_=2_000_000, seed=8, runs=40, **options))

    def usual(fleet: Fleet) -> float:
        starts = [text for text in fleet.text.values() if b"NCCL INFO Using network IB" in text]
        return sum(b"NCCL INFO Bootstrap" in text for text in starts) / len(starts)

    whole, holed = made("whole", missing=0, varied=0), made("holed", missing=0.5, varied=1)
    assert all(run.missing_rank_files == () for run in whole.truth.runs)
    gone = sum(len(run.missing_rank_files) * run.attempts for run in holed.truth.runs)
    assert 0.35 < gone / holed.truth.rank_files <= 0.5
    assert (usual(whole), usual(holed)) == (1.0, 0.0)
    for run in holed.truth.runs:
        assert run.initiating_rank not in run.missing_rank_files
        if run.failure is not None:
            assert any(text in holed.line(run) for text in DECISIVE[run.failure]), run


def test_race_leaves_one_winner_and_its_first_loser_is_the_initiator(demo: Fleet) -> None:
    for run in demo.truth.runs:
        if run.failure != "nvme-offload-checkpoint-race":
            continue
        files = demo.of(run)
        lost = sum(text.count(b"FileExistsError:") for text in files.values())
        assert run.world_size - 1 - len(run.missing_rank_files) <= lost < run.world_size
        if run.layout in ("srun", "torch"):
            assert run.file is not None
            lines = files[run.file].split(b"\n")
            first = next(n for n, line in enumerate(lines, 1) if b"FileExistsError:" in line)
            assert first == run.line
        if run.layout == "ranks":
            # A host's clock is up to a second off; the first printer is earlier by more than that.
            entered: dict[str, list[str]] = defaultdict(list)
            for path, text in files.items():
                for line in text.decode(errors="replace").splitlines():
                    if "enters the save of" in line:
                        host, rank = path.split("/")[-2], line.split(" rank ")[1].split()[0]
                        entered[line[:23]].append(f"{host}/{rank}")
            assert entered[min(entered)][0] == f"{run.initiating_host}/{run.initiating_rank}"


def test_peers_of_a_lost_gpu_time_out_ten_minutes_later(demo: Fleet) -> None:
    (run,) = (run for run in demo.truth.runs if run.failure == "gpu-fallen-off-bus")
    text = b"".join(demo.of(run).values())
    silent = {run.initiating_rank, *run.missing_rank_files}
    assert text.count(b"Watchdog caught collective operation timeout") == run.world_size - len(
        silent
    )
    assert b" ran for 600" in text
    assert b"CUDA error: unknown error" in text


def test_planted_pairs_stand_out_and_no_other_pair_of_causes_does(demo: Fleet) -> None:
    truth = demo.truth
    assert truth.pairs == (
        ("checkpoint-corrupt", "nvme-offload-checkpoint-race"),
        ("disk-full", "tensorboard-writer-failed"),
        ("nvme-offload-checkpoint-race", "straggler"),
    )
    causes = [
        {run.failure, *run.co_occurring} if run.failure and number == run.attempt else set()
        for run in truth.runs
        for number in range(run.attempts)
    ]
    names = sorted(set().union(*causes))
    for a, b in combinations(names, 2):
        both = sum(a in found and b in found for found in causes)
        only_a = sum(a in found for found in causes) - both
        only_b = sum(b in found for found in causes) - both
        neither = len(causes) - both - only_a - only_b
        p = fisher_exact([[both, only_a], [only_b, neither]], alternative="greater").pvalue
        if (a, b) in truth.pairs:
            assert both >= 5
            assert p < 1e-4
        else:
            assert p > 1e-3


def test_companions_of_a_race_come_after_it(demo: Fleet) -> None:
    seen = Counter[str]()
    for run in demo.truth.runs:
        for other in run.co_occurring:
            needles = DECISIVE.get(other, ["events.out.tfevents"])
            hits = [
                (path, text.find(needle.encode()))
                for path, text in demo.of(run).items()
                for needle in needles
                if needle.encode() in text
            ]
            assert hits, (run, other)
            seen[other] += 1
            for path, offset in hits:
                if path == run.file:
                    assert run.line is not None
                    assert demo.text[path].count(b"\n", 0, offset) >= run.line
    assert seen == {"checkpoint-corrupt": 5, "straggler": 5, "tensorboard-writer-failed": 6}


def test_secrets_are_planted_in_logs_and_not_in_the_source(demo: Fleet) -> None:
    everything = b"\n".join(demo.text.values())
    assert len(demo.truth.secrets) > 10
    assert all(secret.encode() in everything for secret in demo.truth.secrets)
    for name in ("fleet.py", "fleet_words.py", "wordings.toml"):
        source = Path(fleet.__file__).with_name(name).read_text()
        assert not re.search(r"(hf|ghp)_\w{30}|[0-9a-f]{40}|\w@[\w.]+\.org|//\w+:\w+@", source)


def test_container_lines_are_whole_records(demo: Fleet) -> None:
    docker = 0
    for run in demo.truth.runs:
        if run.layout == "pods":
            for path, text in demo.of(run).items():
                if "/worker-" not in path:
                    continue
                for line in text.decode().splitlines() if run.cluster == "borealis" else ():
                    record = json.loads(line)
                    assert record.keys() == {"log", "stream", "time"}
                    assert record["log"].endswith("\n")
                    docker += 1
                if run.cluster == "aurelia":
                    lines = text.split(b"\n")[:-1]
                    assert all(line.split(b" ", 3)[1:3] == [b"stderr", b"F"] for line in lines)
    assert docker > 1000


def test_moment_of_the_failure_is_utc_and_files_end_after_it(demo: Fleet) -> None:
    for run in demo.truth.runs:
        if run.t_first is None or run.file is None:
            continue
        moment = datetime.fromisoformat(run.t_first)
        assert moment.utcoffset() == timedelta(0)
        ended = (demo.root / run.file).stat().st_mtime
        assert -2 < ended - moment.timestamp() < 2 * 3600


def test_other_versions_word_some_messages_their_way(demo: Fleet) -> None:
    usual, other = b"engine.save_checkpoint(args.save, tag=tag)", b"model.save_checkpoint(out, tag)"
    races = [run for run in demo.truth.runs if run.failure == "nvme-offload-checkpoint-race"]
    worded = Counter(
        next(text for text in (usual, other) if text in b"".join(demo.of(run).values()))
        for run in races
    )
    assert worded[usual] > worded[other] >= 1


def test_every_wording_has_a_field_and_fits_percent_formatting() -> None:
    for key, variants in fleet_words.TEXT.items():
        for wording in variants:
            assert "%(" in wording or key == "tb.cuda.advice", key
            assert "<<" not in wording, key


@pytest.mark.parametrize("codec", fleet_files.CODECS)
def test_every_codec_is_readable(tmp_path: Path, codec: str) -> None:
    truth = generate(tmp_path / "packed", bytes_=900_000, seed=5, codec=codec, runs=3)
    plain = generate(tmp_path / "plain", bytes_=900_000, seed=5, codec="none", runs=3)
    packed = Fleet(tmp_path / "packed", truth)
    assert (truth.files, truth.lines, truth.bytes) == (plain.files, plain.lines, plain.bytes)
    assert sorted(packed.text.values()) == sorted(Fleet(tmp_path / "plain", plain).text.values())
    magic = {
        "none": b"",
        "gzip": b"\x1f\x8b",
        "zstd": b"\x28\xb5\x2f\xfd",
        "bz2": b"BZh",
        "xz": b"\xfd7z",
        "lz4": b"\x04\x22\x4d\x18",
    }
    logs = list((tmp_path / "packed").rglob("rank_*"))
    assert logs
    assert all(path.read_bytes().startswith(magic[codec]) for path in logs)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**63), runs=st.integers(1, 14))
def test_truth_holds_for_any_seed(seed: int, runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = Fleet(root, generate(root, bytes_=250_000, seed=seed, runs=runs))
        assert len(made.truth.runs) == runs
        assert made.truth.files == len(made.text)
        for run in made.truth.runs:
            assert made.of(run)
            if run.failure is not None:
                assert any(text in made.line(run) for text in DECISIVE[run.failure])


def test_bad_arguments_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown codec 'rar': use mixed or one of none, gzip"):
        generate(tmp_path, bytes_=1000, seed=0, codec="rar")
    with pytest.raises(ValueError, match="0 bytes has no logs: ask for at least one"):
        generate(tmp_path, bytes_=0, seed=0)
    with pytest.raises(ValueError, match="0 runs has no logs: ask for at least one run"):
        generate(tmp_path, bytes_=1000, seed=0, runs=0)
    with pytest.raises(ValueError, match=r"missing of 1\.5: give a share from 0 to 1"):
        generate(tmp_path, bytes_=1000, seed=0, missing=1.5)
    (tmp_path / "old.log").write_text("x\n")
    with pytest.raises(FileExistsError, match="is not empty: name a new or an empty directory"):
        generate(tmp_path, bytes_=1000, seed=0)
