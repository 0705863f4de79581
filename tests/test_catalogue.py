"""The shape of catalogue files, and the built-in catalogue against its own examples."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from matcher.catalogue import CATEGORIES, CatalogueError, Lag, Sign, load
from matcher.check import check
from matcher.engine import Engine, Oracle, cache_directory

ENTRY = """
[[failure]]
id = "disk-gone"
title = "t"
component = "c"
category = "storage"
severity = "high"
mechanism = "m"
confirm = ["c"]
fix = ["f"]
  [[failure.signature]]
  id = "disk-gone-line"
  role = "cause"
  pattern = 'disk (?P<disk>\\w{1,9}) gone'
  match = ["disk sda gone"]
  no_match = ["disk sda here"]
"""


def problems(directory: Path, *texts: str) -> list[str]:
    for number, text in enumerate(texts):
        (directory / f"{number}.toml").write_text(text)
    try:
        found = check(load(directory))
    except CatalogueError as error:
        found = list(error.issues)
    return [f"{issue.source}: {issue.id}: {issue.message}" for issue in found]


def test_sound_catalogue_has_no_problems(tmp_path: Path) -> None:
    assert problems(tmp_path, ENTRY) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('title = "t"\n', "", "0.toml: disk-gone: 'title' is missing"),
        ('title = "t"', 'titel = "t"\ntitle = "t"', "0.toml: disk-gone: unknown key 'titel'"),
        ('"high"', '"fatal"', "0.toml: disk-gone: severity 'fatal' is unknown"),
        ('"cause"', '"root"', "0.toml: disk-gone-line: role 'root' is unknown"),
        (
            '"disk-gone"',
            '"Disk"',
            "0.toml: disk-gone: id 'Disk' is not kebab-case".replace("disk-gone", "Disk"),
        ),
        (
            '"cause"',
            '"cause"\n  lag = { capture = 1979-05-27, unit = "s" }',
            "0.toml: disk-gone-line: 'lag' is {",
        ),
        ('["f"]', "[]", "0.toml: disk-gone: 'fix' is empty"),
        ('["f"]', '"f"', "0.toml: disk-gone: 'fix' is 'f'"),
        (
            "no_match",
            'also = ["nobody"]\n  no_match',
            "0.toml: disk-gone-line: also names 'nobody', which does not exist",
        ),
        (
            "no_match",
            'lag = { capture = "x" }\n  no_match',
            "0.toml: disk-gone-line: 'lag' is {'capture': 'x'}",
        ),
        (
            "no_match",
            'stream = ["net"]\n  no_match',
            "0.toml: disk-gone-line: stream 'net' is unknown",
        ),
        (
            "fix =",
            'related = ["nobody"]\nfix =',
            "0.toml: disk-gone: related names 'nobody', which does not exist",
        ),
        (
            'confirm = ["c"]',
            'confirm = ["c", { check = "d", seen = ["nobody"] }]',
            "0.toml: disk-gone: confirm names 'nobody', which does not exist",
        ),
        (
            'confirm = ["c"]',
            'confirm = [{ check = "d", seen = ["disk-gone"], log = "mail" }]',
            "0.toml: disk-gone: confirm: log 'mail' is unknown",
        ),
        (
            'confirm = ["c"]',
            'confirm = [{ check = "d" }]',
            "0.toml: disk-gone: confirm: 'seen' is missing",
        ),
        ('confirm = ["c"]', "confirm = [3]", "0.toml: disk-gone: 'confirm' is [3]"),
        (
            "  [[failure.signature]]",
            '  [[failure.variant]]\n  path_class = "tape"\n  [[failure.signature]]',
            "0.toml: disk-gone: variant names 'tape', which does not exist",
        ),
        ("[[failure]]", "[[failures]]", "0.toml: : unknown table 'failures'"),
        ("gone'", "gone.*'", "0.toml: disk-gone-line: the pattern ends in an open repeat"),
        (
            "'disk (?P<disk>\\w{1,9}) gone'",
            "'(?P<disk>a)?b?'",
            "0.toml: disk-gone-line: the pattern matches an empty line",
        ),
        (
            "'disk (?P<disk>\\w{1,9}) gone'",
            "'s[a-z] (?P<disk>da)'",
            "0.toml: disk-gone-line: no literal of 4 bytes or more",
        ),
        ("gone'", "(?=gone)gone'", "0.toml: disk-gone-line: hyperscan refuses the pattern"),
        (" gone'", " (gone'", "0.toml: disk-gone-line: python's re refuses the pattern"),
        (
            '["disk sda gone"]',
            '["disk sda went"]',
            "0.toml: disk-gone-line: a match line hits nothing instead of ['disk-gone-line']",
        ),
        (
            '["disk sda here"]',
            '["disk sdb gone too"]',
            "0.toml: disk-gone-line: a no_match line is hit",
        ),
        (
            "gone'",
            "gone( to (?P<where>\\w{1,9}))?'",
            "0.toml: disk-gone-line: no match line fills the group 'where'",
        ),
    ],
)
def test_problem_is_named(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in ENTRY
    found = problems(tmp_path, ENTRY.replace(old, new, 1))
    assert any(one.startswith(problem) or problem in one for one in found), found


def test_check_tells_what_shows_it(tmp_path: Path) -> None:
    more = 'confirm = ["c", { check = "d", seen = ["disk-gone-line"], log = "kernel" }]'
    (tmp_path / "0.toml").write_text(ENTRY.replace('confirm = ["c"]', more))
    [failure] = load(tmp_path).failures
    assert failure.confirm == ("c", "d")
    assert failure.signs == (Sign(1, ("disk-gone-line",), "kernel"),)


def test_problem_of_a_control_is_named(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    text = '[[control]]\ncategory = "tape"\ncontrol = "luck"\ntest = "t"\n[[control]]\n'
    (tmp_path / "tables" / "controls.toml").write_text(text)
    assert problems(tmp_path, ENTRY) == [
        "controls.toml: tape: 'tape' is unknown",
        "controls.toml: tape: 'luck' is unknown",
        "controls.toml: : 'category' is missing",
    ]


def test_every_category_of_trouble_has_a_control() -> None:
    assert {one.category for one in load().controls} == set(CATEGORIES) - {"progress"}


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    twice = problems(tmp_path, ENTRY, ENTRY, "not toml [", ENTRY.replace('fix = ["f"]', ""))
    assert [one.split(":")[0] for one in twice] == ["2.toml", "3.toml", "1.toml", "1.toml"]


def test_empty_directory_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="no catalogue files"):
        load(tmp_path)


def test_user_catalogue_adds_to_the_built_in_one(tmp_path: Path) -> None:
    from matcher.catalogue import BUILT_IN

    (tmp_path / "mine.toml").write_text(ENTRY)
    both = load(BUILT_IN, tmp_path)
    assert {"disk-gone", "disk-full"} <= both.by_id.keys()
    assert both.digest != load().digest


def test_digest_is_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "x.toml").write_text(ENTRY)
    (tmp_path / "b" / "y.toml").write_text("# a comment\n" + ENTRY)
    assert load(tmp_path / "a").digest == load(tmp_path / "b").digest


def test_kept_catalogue_is_the_one_that_was_read(tmp_path: Path) -> None:
    read, first, second = load(), load(cache=tmp_path), load(cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    for one in (first, second):
        assert (one, one.digest) == (read, read.digest)
        assert repr(one) == repr(read)


def test_kept_catalogue_is_of_the_bytes_of_its_files(tmp_path: Path) -> None:
    source, cache = tmp_path / "a" / "x.toml", tmp_path / "cache"
    (tmp_path / "a" / "tables").mkdir(parents=True)
    (tmp_path / "a" / "tables" / "path_class.toml").write_text(
        "[[path_class]]\nname = 'shm'\npattern = '/dev/shm'\n"
    )
    source.write_text(ENTRY)
    before = load(tmp_path / "a", cache=cache)
    times = source.stat().st_atime_ns, source.stat().st_mtime_ns
    source.write_text(ENTRY.replace("gone", "lost"))
    os.utime(source, ns=times)
    after = load(tmp_path / "a", cache=cache)
    assert (after, after.digest) == (load(tmp_path / "a"), load(tmp_path / "a").digest)
    assert after != before
    source.rename(source.with_name("y.toml"))
    assert load(tmp_path / "a", cache=cache).failures[0].source == "y.toml"


def test_broken_catalogue_is_told_each_time_and_never_kept(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(ENTRY + "oops = 1\n")
    for _ in range(2):
        with pytest.raises(CatalogueError, match="unknown key 'oops'"):
            load(tmp_path, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("harm", ["cut", "other"])
def test_harmed_cache_gives_the_right_catalogue(tmp_path: Path, harm: str) -> None:
    (tmp_path / "x.toml").write_text(ENTRY)
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "x.toml").write_text(ENTRY.replace("gone", "lost"))
    cache = tmp_path / "cache"
    wanted = load(tmp_path, cache=cache)
    (kept,) = cache.iterdir()
    if harm == "cut":
        kept.write_bytes(kept.read_bytes()[:-1])
    else:
        load(tmp_path / "y", cache=cache)
        (other,) = set(cache.iterdir()) - {kept}
        other.replace(kept)
    assert load(tmp_path, cache=cache) == wanted


def test_workers_get_what_finding_takes_under_the_same_digest() -> None:
    whole = load()
    sent = whole.for_workers()
    assert sent.digest == whole.digest
    assert len(pickle.dumps(sent)) < len(pickle.dumps(whole)) / 3
    for one, other in zip(sent.signatures, whole.signatures, strict=True):
        assert one == replace(other, match=(), no_match=(), why="")
    for entry, failure in zip(sent.failures, whole.failures, strict=True):
        assert [getattr(entry, name) for name in ("id", "component", "category", "severity")] == [
            getattr(failure, name) for name in ("id", "component", "category", "severity")
        ]


KINDS = """
nvme-offload-checkpoint-race checkpoint-dir-race checkpoint-rename-race checkpoint-rotation-race
checkpoint-incomplete checkpoint-truncated checkpoint-corrupt checkpoint-download-failed
slow-checkpoint-save slow-checkpoint-read nvme-swap-file-truncated deepspeed-aio-integer-overflow
swap-file-name-too-long disk-full disk-quota-exceeded nfs-deadlock nfs-stale-file-handle
object-store-throttled gpu-hardware-error gpu-ecc-uncorrectable gpu-fallen-off-bus gsp-rpc-timeout
nvlink-link-down fabric-manager-restarted driver-library-mismatch cuda-illegal-instruction gpu-oom
index-out-of-bounds ib-link-flap roce-gid-misconfigured silent-data-corruption nan-gradient
loss-scale-underflow suspected-bad-node host-oom shm-too-small memlock-limit process-limit fd-limit
pod-evicted-ephemeral-storage rendezvous-dns-failure port-in-use stale-rendezvous-store
nccl-init-timeout ucx-missing-cuda-support hub-rate-limited rank0-preprocess-timeout
collective-desync collective-shape-mismatch stalled-rank straggler python-exception
teardown-collective-hang teardown-race wandb-init-hang wandb-service-died tensorboard-writer-failed
log-tailer-decode-error launcher-sighup sibling-process-crash
assertion-error barrier-timeout broken-pipe checkpoint-file-not-found checkpoint-save-failed
connection-refused cuda-contained cuda-device-side-assert cuda-free-failed
cuda-illegal-memory-access cuda-init-error cuda-invalid-device-ordinal cuda-nvlink-uncorrectable
dataloader-worker-exited dataloader-worker-killed device-side-assert engine-core-init-failed
exit-133 exit-137 file-not-found-in-cleanup flight-recorder-dump gloo-connection-closed hung-task
ib-completion-error jax-coordination-error jax-peer-terminated job-preempted launcher-child-failed
leaked-semaphores loss-spike missing-log-lines nan-loss nccl-internal-error nccl-proxy-error
nccl-remote-error nccl-system-error nccl-timeout nccl-unhandled-cuda-error
nccl-unique-id-socket-timeout nixl-backend-error node-lost nvlink-nonfatal-xid-145
object-store-invalid-region pdsh-exit pin-memory-thread-exited process-killed-by-launcher
process-sigabrt process-sigbus process-sighup process-sigkill process-sigterm rank-hang
ray-actor-died rendezvous-connection-error rendezvous-timeout rerun-exit-16 rerun-exit-17
rerun-state-restore-bug slurm-step-cancelled slurm-time-limit srun-exit stalled-ops
store-barrier-timeout tcpstore-connection-lost throughput-drop torch-save-unexpected-pos
torchelastic-child-failed worker-group-failed xid-137 xid-45
""".split()


def test_built_in_catalogue_is_sound() -> None:
    assert [str(issue) for issue in check(load())] == []


def test_built_in_catalogue_has_every_kind() -> None:
    assert sorted(set(KINDS) - load().by_id.keys()) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "2026-09-30T10:00:00.123456789Z stderr F [rank3]:[E321 02:17:08.408271257 x.cpp:607] ",
            "",
        ),
        (" 10%|####      | 1/10 [00:01<00:09, 2.88s/it]" * 12, " and 20%|####  | 2/10"),
        ("\x1b[36m(Actor pid=18400, ip=10.0.0.3)\x1b[0m ", "\r"),
    ],
    ids=["collector", "glued", "ray"],
)
def test_matcher_agrees_with_re_on_examples_in_other_dress(before: str, after: str) -> None:
    """Hyperscan missed a pattern with an optional blank after alternatives behind long text."""
    catalogue = load()
    text = "".join(
        f"{before}{line}{after}\n" for s in catalogue.signatures for line in (*s.match, *s.no_match)
    ).encode()
    fast, slow = Engine(catalogue, cache_directory()).scan(text), Oracle(catalogue).scan(text)
    names = [signature.id for signature in catalogue.signatures]
    found = {(names[n], start) for n, start in zip(fast.signature, fast.start, strict=True)}
    wanted = {(names[n], start) for n, start in zip(slow.signature, slow.start, strict=True)}
    assert {text[start:].split(b"\n")[0] for _, start in found ^ wanted} == set()


@pytest.mark.parametrize(
    ("value", "expected"), [("1.5", 1_500_000), ("-3", 0), ("9" * 15, 0), ("1e999", 0), ("x", 0)]
)
def test_lag_is_what_somebody_may_have_waited(value: str, expected: int) -> None:
    assert Lag("waited_s", "s").microseconds(value) == expected
