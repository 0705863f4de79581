"""What paths say, and which files are found under them."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest import files
from ingest.files import DiscoverError, Labels, LayoutError, Rules, Source
from tests.support import shared


def labels(
    path: str,
    member: str | None = None,
    *,
    layout: str | None = None,
    cluster: str | None = None,
    prefix: str = "",
    name: str = "top",
    clusters: frozenset[str] = frozenset(),
) -> Labels:
    source = Source(prefix + path, "/x", 1, 1, Rules(cluster, layout, prefix, name, clusters))
    return files.log_file(source, member).labels


def kind(path: str) -> str:
    return files.log_file(Source(path, "/x", 1, 1)).kind


def stored(paths: Sequence[Path | str], **options: str) -> list[str]:
    return [source.path for source in files.discover([str(path) for path in paths], **options)]


def labelled(*paths: Path | str) -> list[tuple[str, Labels]]:
    return [(s.path, files.log_file(s).labels) for s in files.discover([str(p) for p in paths])]


def write(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("line\n")
    return root


# -- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("alps/llama/nid01/rank_3.log", Labels("alps", "llama", None, "nid01", 3, "llama")),
        ("alps/llama/alpha/rank_3.log", Labels("alps", "llama", None, "alpha", 3, "llama")),
        ("2026/alps/job_7/n1/rank_3.log", Labels("2026", "job_7", None, "n1", 3, "job_7")),
        ("alps/12345/rank_0.log", Labels("alps", "12345", rank=0, run="12345")),
        ("alps/llama/attempt_2/rank_0.log", Labels("alps", "llama", 2, rank=0, run="llama")),
        ("alps/job_9/train.log", Labels("alps", "job_9", run="job_9")),
        ("llama/rank_3.log", Labels(job="llama", rank=3, run="llama")),
        ("llama/node1/rank_9.log", Labels(job="llama", host="node1", rank=9, run="llama")),
        ("llama/logs/rank_3.log.gz", Labels(job="llama", rank=3, run="llama")),
        ("rank_3.log", Labels(rank=3, run="top")),
        ("rank-00012.err", Labels(rank=12, run="top")),
        ("train_rank3.stderr", Labels(rank=3, run="top")),
        ("node4-rank3.log", Labels(host="node4", rank=3, run="top")),
        ("local_rank_3.log", Labels(run="local_rank_3")),
        ("tp-rank-1.log", Labels(run="tp-rank-1")),
        ("rank_3/stdout.log", Labels(rank=3, run="top")),
        ("rank_99999999999.log", Labels(run="rank_99999999999")),
        ("tasks/task_13.log", Labels(rank=13, run="top")),
        ("ranks/5.log", Labels(rank=5, run="top")),
        ("attempt_0/3/stderr.log", Labels(attempt=0, run="top")),
        ("id_x8/attempt_0/3/stderr.log", Labels(job="id_x8", attempt=0, run="id_x8")),
        ("attempt_1/slurm.out", Labels(attempt=1, run="top")),
        ("attempt_0.log", Labels(attempt=0, run="top")),
        ("sub/previous.log", Labels(attempt=0, run="top")),
        ("job/sub/current.log", Labels(job="job", attempt=1, run="job")),
        ("slurm-1832552.out", Labels(job="1832552", run="1832552")),
        ("slurm-123_4.out", Labels(job="123_4", run="123_4")),
        ("attempt_1/slurm-5511.out", Labels(job="5511", attempt=1, run="5511")),
        ("x/gpt2_base_n16-1832552.out", Labels(job="1832552", run="1832552")),
        ("gpt2-1832552-r6i4n5.out", Labels(job="1832552", host="r6i4n5", run="1832552")),
        ("node07.1832552.err", Labels(job="1832552", host="node07", run="1832552")),
        ("123456_3.out", Labels(job="123456", rank=3, run="123456")),
        ("1832552.log", Labels(job="1832552", run="1832552")),
        ("gpt2.o1832552", Labels(job="1832552", run="1832552")),
        ("gpt2-1832552-r6i4n5.out.gz", Labels(job="1832552", host="r6i4n5", run="1832552")),
        ("alps/7/slurm-7.out", Labels("alps", "7", run="7")),
        ("alps/7/slurm-7.out.zst", Labels("alps", "7", run="7")),
        ("alps/7/attempt_1/slurm-7.out", Labels("alps", "7", 1, run="7")),
        ("alps/alice/7/slurm-7.out", Labels("alps", "7", run="7")),
        ("alps/7_3/slurm-7_3.out", Labels("alps", "7_3", run="7_3")),
        ("7/slurm-7.out", Labels(job="7", run="7")),
        ("train-20240105.out", Labels(run="train-20240105")),
        ("train-1718000000.out", Labels(run="train-1718000000")),
        ("checkpoint-7000.log", Labels(run="checkpoint-7000")),
        ("perf_n16_bs4-mbs8.out", Labels(run="perf_n16_bs4-mbs8")),
        ("bigscience/perf_n16.out", Labels(run="bigscience/perf_n16")),
        ("cluster=a/job=7/host=N1.example.org/rank=3.log", Labels("a", "7", None, "n1", 3, "7")),
        ("clusters/a/jobs/7/hosts/n1/ranks/3.log", Labels("a", "7", None, "n1", 3, "7")),
        ("node07.out", Labels(host="node07", run="top")),
        ("probe/node2.txt", Labels(host="node2", run="top")),
        ("worker-1.log", Labels(host="worker-1", run="top")),
        ("hosts/gpu-a-12.log", Labels(host="gpu-a-12", run="top")),
        ("hosts/tray12.syslog", Labels(host="tray12")),
        ("host/dmesg.txt", Labels()),
        ("llama/host/dmesg.txt", Labels(job="llama", run="llama")),
        ("dmesg-n12.log", Labels(host="n12")),
        ("n12.dmesg", Labels(host="n12")),
        ("kern.log", Labels()),
        ("messages-20240105.gz", Labels()),
        ("tr141_try3_dmesg.txt", Labels()),
        ("train.log", Labels(run="top")),
        ("driver.log.1", Labels(run="top")),
        ("Spark_2k.log", Labels(run="Spark_2k")),
        ("llama/wandb.log", Labels(job="llama", run="llama")),
        ("llama/README.md", Labels()),
        ("nodes.csv.xz", Labels()),
        ("a b/we!rd.log", Labels(job="a b", run="a b")),
    ],
)
def test_path_says_what_its_parts_say(path: str, expected: Labels) -> None:
    assert labels(path) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("48570/gpu-a097/rank_55.log", Labels("aurelia", "48570", None, "gpu-a097", 55, "48570")),
        (
            "48570/attempt_1/gpu-a097/rank_5.log",
            Labels("aurelia", "48570", 1, "gpu-a097", 5, "48570"),
        ),
        ("48570/slurm-48570.out", Labels("aurelia", "48570", run="48570")),
        ("48570/attempt_0/slurm-48570.out", Labels("aurelia", "48570", 0, run="48570")),
        ("48570/gpu-b030/dmesg.log", Labels("aurelia", "48570", host="gpu-b030", run="48570")),
        ("dpo-038c1a/mpirun.out", Labels("aurelia", "dpo-038c1a", run="dpo-038c1a")),
        ("dpo-038c1a/attempt_2/mpirun.out", Labels("aurelia", "dpo-038c1a", 2, run="dpo-038c1a")),
        ("hosts/gpu-a001/dmesg.log", Labels("aurelia", host="gpu-a001")),
        (
            "pre-x/gpu-a034/worker-0.log.zst",
            Labels("aurelia", "pre-x", host="gpu-a034", run="pre-x"),
        ),
        (
            "pre-x/attempt_1/gpu-a034/worker-0.log",
            Labels("aurelia", "pre-x", 1, "gpu-a034", run="pre-x"),
        ),
        ("pre-x/worker-0.log", Labels("aurelia", "pre-x", host="worker-0", run="pre-x")),
        ("pre-x/rank_0.log", Labels("aurelia", "pre-x", rank=0, run="pre-x")),
        (
            "team/pre-x/gpu-a034/rank_0.log",
            Labels("aurelia", "pre-x", None, "gpu-a034", 0, "pre-x"),
        ),
        ("team/job_7/node1/train.log", Labels("aurelia", "job_7", host="node1", run="job_7")),
        ("jobs/7/rank_0.log", Labels("aurelia", "7", rank=0, run="7")),
        ("slurm-7.out", Labels("aurelia", "7", run="7")),
        ("rank_0.log", Labels("aurelia", rank=0, run="top")),
        ("README.md", Labels("aurelia")),
    ],
)
def test_first_level_that_is_a_known_cluster_is_no_job(path: str, expected: Labels) -> None:
    clusters = frozenset({"aurelia", "borealis"})
    assert labels(f"aurelia/{path}", clusters=clusters) == expected
    assert labels(f"cluster=aurelia/{path}") == expected
    other = f"borealis/{path}"
    assert labels(other, clusters=clusters) == expected._replace(cluster="borealis")


def test_first_level_stays_the_job_where_no_cluster_is_known() -> None:
    assert labels("x/hosts/gpu-a001/dmesg.log") == Labels(job="x", host="gpu-a001", run="x")
    assert labels("x/y.log", clusters=frozenset({"aurelia"})) == Labels(job="x", run="x")


def test_pod_directories_give_pod_job_and_restart_count() -> None:
    uid = "0f3c6d1e-1111-2222-3333-444455556666"
    path = f"ml_llama-worker-3_{uid}/pytorch/2.log"
    assert labels(path) == Labels(job="llama", attempt=2, host="llama-worker-3", run="llama")
    assert kind(path) == "k8s_pod"
    path = f"llama-master-0_ml_pytorch-{'0a' * 32}.log"
    assert labels(path) == Labels(job="llama", host="llama-master-0", run="llama")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("rank_3.log", "rank_stdout"),
        ("attempt_0/3/stderr.log", "rank_stdout"),
        ("slurm-12.out", "slurm_out"),
        ("name-1832552.out", "slurm_out"),
        ("node07.out", "train_stdout"),
        ("train.log.zst", "train_stdout"),
        ("worker-0.log.zst", "train_stdout"),
        ("slurm-12.out.gz", "slurm_out"),
        ("n12.dmesg", "dmesg"),
        ("kern.log.2.gz", "dmesg"),
        ("pkg_kmsg_testdata_kmsg.1.log", "dmesg"),
        ("tray07.syslog", "syslog"),
        ("messages", "syslog"),
        ("k8s-events.log", "k8s_events"),
        ("log.txt", "other"),
        ("README.md", "other"),
        ("probe/node2.txt", "other"),
    ],
)
def test_kind_follows_the_name(path: str, expected: str) -> None:
    assert kind(path) == expected


def test_archive_is_a_directory_where_nothing_in_it_names_a_job() -> None:
    assert labels("job7.tar.gz", "rank_3.log") == Labels(job="job7", rank=3, run="job7")
    assert labels("q1.tar", "alps/llama/n1/rank_3.log") == Labels(
        "alps", "llama", None, "n1", 3, "llama"
    )
    assert labels("job7.zip", "job7/rank_3.log").job == "job7"
    assert labels("a/q1.tar", "b.tar.gz!rank_1.log") == Labels(job="a", rank=1, run="a")


def test_flag_wins_over_the_cluster_of_the_path() -> None:
    assert labels("a/b/n1/rank_0.log", cluster="c").cluster == "c"


def test_run_without_a_job_is_told_apart_by_argument() -> None:
    assert labels("rank_0.log", prefix="x/").run == "x"
    assert labels("Spark_2k.log", prefix="x/").run == "x/Spark_2k"


@given(st.lists(st.text(min_size=1).map(lambda s: s.replace("/", "_")), min_size=1, max_size=6))
def test_no_path_says_an_empty_thing(parts: list[str]) -> None:
    found = labels("/".join(parts))
    assert "" not in (found.cluster, found.job, found.host, found.run)
    assert all(n is None or 0 <= n < 1 << 31 for n in (found.attempt, found.rank))


# -- layouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "path", "expected"),
    [
        (
            "{cluster}/{job}/{host}/rank_{rank}.log",
            "a/b/C.d/rank_03.log",
            Labels("a", "b", None, "c", 3, "b"),
        ),
        ("{job}/rank_{rank}.log", "b/rank_3.log.zst", Labels(job="b", rank=3, run="b")),
        ("{_}/{job}-try{attempt}/*.log", "u/b-try2/x.log", Labels(job="b", attempt=2, run="b")),
        ("**/{job}/{rank}.txt", "x/y/b/7.txt", Labels(job="b", rank=7, run="b")),
        ("**/{job}/{rank}.txt", "b/7.txt", Labels(job="b", rank=7, run="b")),
        ("{job}/rank_{rank}.log", "b/c/rank_3.log", Labels(run="b/c/rank_3")),
        ("{job}/rank_{rank}.log", "b/rank_x.log", Labels(run="b/rank_x")),
    ],
)
def test_layout_alone_says_what_a_path_says(layout: str, path: str, expected: Labels) -> None:
    assert labels(path, layout=layout) == expected


def test_layout_reads_members_of_archives() -> None:
    layout = "{job}/rank_{rank}.log"
    assert labels("x.tar", "b/rank_3.log", layout=layout).job == "b"
    assert labels("b.tar", "rank_3.log", layout=layout).job == "b"


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("{jobs}/x", r"layout '\{jobs\}/x': \{jobs\} is no part of a path: use \{cluster\}, .*"),
        ("{job/x", r".*: \{ is no part of a path: use .*"),
        ("{job}/{job}", r".*: \{job\} stands twice: name it once"),
        ("x/*.log", r".* names no part: use .*"),
    ],
)
def test_layout_that_cannot_be_read_says_what_can(
    tmp_path: Path, layout: str, message: str
) -> None:
    with pytest.raises(LayoutError, match=message):
        files.discover([str(tmp_path)], layout=layout)


# -- finding -------------------------------------------------------------------------------------


def test_directory_is_stored_by_the_paths_below_it_in_order(tmp_path: Path) -> None:
    write(tmp_path, "b/2.log", "b/10.log", "a.log", "c/d/e.log", ".hidden/f.log", ".git/config")
    (source,) = (s for s in files.discover([str(tmp_path)]) if s.path == "a.log")
    assert stored([tmp_path]) == [".hidden/f.log", "a.log", "b/10.log", "b/2.log", "c/d/e.log"]
    info = (tmp_path / "a.log").stat()
    assert source == Source(
        "a.log",
        str(tmp_path / "a.log"),
        5,
        info.st_mtime_ns // 1000,
        Rules(None, None, "", tmp_path.name),
    )
    assert pickle.loads(pickle.dumps(source)) == source


def test_file_is_stored_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, "x/rank_7/a.log")
    (source,) = files.discover([str(tmp_path / "x/rank_7/a.log")])
    assert (source.path, files.log_file(source).labels) == ("a.log", Labels(run="a"))


def test_labels_do_not_depend_on_where_the_argument_lies(tmp_path: Path) -> None:
    for place in ("cluster=a/rank_7", "plain/rank_7"):
        write(tmp_path / place, "n1/train.log")
        ((path, found),) = labelled(tmp_path / place)
        assert (path, found) == ("n1/train.log", Labels(host="n1", run="rank_7"))


def test_run_of_the_argument_itself_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a/rank_0.log", "b/rank_0.log", "c/train.log")
    for argument in (
        tmp_path / "a",
        f"{tmp_path}/a/",
        f"{tmp_path}/a/*",
        tmp_path / "a/rank_0.log",
    ):
        assert labelled(argument) == [("rank_0.log", Labels(rank=0, run="a"))]
    monkeypatch.chdir(tmp_path / "b")
    assert labelled(".") == [("rank_0.log", Labels(rank=0, run="b"))]
    assert labelled(tmp_path / "a", tmp_path / "c/train.log") == [
        ("a/rank_0.log", Labels(rank=0, run="a")),
        ("train.log", Labels(run="c")),
    ]


def test_several_directories_are_told_apart_by_their_names(tmp_path: Path) -> None:
    write(tmp_path, "p/a/x.log", "p/b/x.log", "q/a/x.log", "q/one.log", "r/two.log")
    p, q, r = tmp_path / "p", tmp_path / "q", tmp_path / "r"
    assert stored([p / "a", p / "b"]) == ["a/x.log", "b/x.log"]
    assert stored([p / "a", q / "a"]) == ["p/a/x.log", "q/a/x.log"]
    assert stored([q / "one.log", p / "a"]) == ["one.log", "a/x.log"]
    assert stored([q / "one.log", r / "two.log"]) == ["q/one.log", "r/two.log"]
    assert stored([q / "a/x.log", q / "a/x.log"]) == ["x.log"]


def test_what_two_arguments_hold_is_found_once(tmp_path: Path) -> None:
    write(tmp_path, "a/b/x.log", "a/y.log")
    a = tmp_path / "a"
    assert stored([a / "b", a, a / "y.log", f"{a}/*.log"]) == ["b/x.log", "y.log"]
    (tmp_path / "link").symlink_to(a)
    assert stored([a, tmp_path / "link"]) == ["b/x.log", "y.log"]
    assert stored([tmp_path / "link"]) == ["b/x.log", "y.log"]


def test_globs_are_stored_below_their_fixed_part(tmp_path: Path) -> None:
    write(tmp_path, "l/a/1.gz", "l/a/b/2.gz", "l/3.gz", "l/a/4.log", "l/[x]/5.gz", "l/c1/6.log")
    root = tmp_path / "l"
    assert stored([f"{root}/**/*.gz"]) == ["3.gz", "[x]/5.gz", "a/1.gz", "a/b/2.gz"]
    assert stored([f"{root}/*/?.gz"]) == ["[x]/5.gz", "a/1.gz"]
    assert stored([f"{root}/c[0-9]"]) == ["c1/6.log"]
    assert stored([f"{root}/[x]/5.gz"]) == ["5.gz"]
    assert stored([f"{root}/**"]) == [
        "3.gz",
        "[x]/5.gz",
        "a/1.gz",
        "a/4.log",
        "a/b/2.gz",
        "c1/6.log",
    ]


def test_argument_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(DiscoverError, match=r"x\.log: no such file or directory: check the path"):
        files.discover([str(tmp_path / "x.log")])
    with pytest.raises(DiscoverError, match=r"\*\.gz: matches no file: check the pattern"):
        files.discover([f"{tmp_path}/*.gz"])


def test_stdin_is_stored_as_a_dash() -> None:
    (source,) = files.discover(["-"], cluster="c")
    assert (source.path, source.location, source.size, source.cluster) == ("-", "-", None, "c")
    assert files.log_file(source).labels.run == "-"


def test_links_are_followed_out_of_what_is_read_and_never_in_circles(tmp_path: Path) -> None:
    root = write(tmp_path / "root", "a/x.log")
    away = write(tmp_path / "away", "d/z.log", "y.log")
    (away / "d" / "up").symlink_to(away)
    (root / "circle").symlink_to(root / "circle")
    (root / "dangling").symlink_to(root / "nowhere")
    (root / "latest").symlink_to(root / "a")
    (root / "latest.log").symlink_to(root / "a" / "x.log")
    (root / "out").symlink_to(away)
    (root / "up").symlink_to(tmp_path)
    (root / "out.log").symlink_to(away / "y.log")
    found = [(s.path, s.status, s.problem) for s in files.discover([str(root)])]
    assert found == [
        ("a/x.log", "ok", None),
        (
            "circle",
            "failed",
            "circle: too many levels of symbolic links: links lead in a circle, remove them",
        ),
        (
            "dangling",
            "skipped",
            "dangling: a link to what is not there: restore it or leave the link out",
        ),
        ("latest", "skipped", f"latest: a link to {root}/a, which is read where it lies"),
        (
            "latest.log",
            "skipped",
            f"latest.log: a link to {root}/a/x.log, which is read where it lies",
        ),
        ("out/d/up", "skipped", "out/d/up: a directory that is read under another name"),
        ("out/d/z.log", "ok", None),
        ("out/y.log", "ok", None),
        ("out.log", "ok", None),
        ("up", "skipped", f"up: a link up to {tmp_path}: name what to read there"),
    ]


def test_what_is_no_regular_file_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        (tmp_path / "null").symlink_to("/dev/null")
        (tmp_path / "status").symlink_to("/proc/self/status")
        found = [(s.path, s.status, s.problem) for s in files.discover(["."])]
    pipe = "not a file: pipe what it gives to `-`"
    disk = "not a file on disk: copy what it holds to one"
    assert found == [
        ("fifo", "skipped", f"fifo: a FIFO, {pipe}"),
        ("null", "skipped", f"null: {disk}"),
        ("socket", "skipped", f"socket: a socket, {pipe}"),
        ("status", "skipped", f"status: {disk}"),
    ]


def test_directory_that_cannot_be_listed_is_a_failed_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a/x.log", "b/y.log")
    listdir = os.listdir

    def refuse(path: str) -> list[str]:
        if path.endswith("/a"):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert [(s.path, s.status, s.problem) for s in files.discover([str(tmp_path)])] == [
        ("a", "failed", "a: permission denied: run as a user who may read it"),
        ("b/y.log", "ok", None),
    ]


def test_file_that_goes_away_meanwhile_is_a_failed_source(tmp_path: Path) -> None:
    write(tmp_path, "a.log", "b.log")
    sources = files.discover([str(tmp_path)])
    assert next(sources).path == "a.log"
    (tmp_path / "b.log").unlink()
    assert next(sources).problem == (
        "b.log: no such file or directory: it went away meanwhile, run again"
    )


def test_name_that_is_no_utf8_is_stored_with_escapes_and_can_be_opened(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.log")).write_text("x\n")
    (source,) = files.discover([str(tmp_path)])
    assert source.path == r"caf\xe9.log"
    assert Path(source.location).read_text() == "x\n"


def test_no_two_names_are_stored_as_one(tmp_path: Path) -> None:
    names = [b"a\xff", rb"a\xff", rb"a\x5cxff", rb"systemd\x2d", b"a.tar!b", rb"a.tar\x21b"]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
    assert {source.path for source in files.discover([str(tmp_path)])} == {
        r"a\xff",
        r"a\x5cxff",
        r"a\x5cx5cxff",
        r"systemd\x2d",
        r"a.tar\x21b",
        r"a.tar\x5cx21b",
    }


def test_deep_tree_needs_no_deep_stack(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(900):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "x.log").write_text("x\n")
    assert stored([tmp_path]) == ["d/" * 900 + "x.log"]


# -- real trees ----------------------------------------------------------------------------------


def test_each_case_is_one_job_when_all_are_read() -> None:
    found = {
        source.path: files.log_file(source).labels
        for source in files.discover([str(shared("cases"))])
        if not source.path.endswith("expected.json")
    }
    by_name = {path: label for path, label in found.items() if label.job != path.split("/")[0]}
    assert by_name == {
        f"024-loss-spike-common-node/job_{x}/rank_00.log": Labels(
            "024-loss-spike-common-node", f"job_{x}", rank=0, run=f"job_{x}"
        )
        for x in "abcd"
    } | {
        f"061-checkpoint-incomplete-auto-resume/attempt_{n}/slurm-5511.out": Labels(
            job="5511", attempt=n, run="5511"
        )
        for n in (0, 1)
    }


@pytest.mark.parametrize(
    ("path", "member", "job", "host"),
    [
        ("48231.tar.gz", "gpu-a007/rank_3.log", "48231", "gpu-a007"),
        ("prod/48231.tar", "rank_3.log", "48231", None),
        ("all.tar", "alpha/job_7/n0/rank_3.log", "job_7", "n0"),
        ("48231/previous.log", None, "48231", None),
        ("gpu-a007/rank_3.log", None, None, "gpu-a007"),
    ],
)
def test_an_archive_stands_for_its_directory_where_it_names_no_job(
    path: str, member: str | None, job: str | None, host: str | None
) -> None:
    """Members of one archive became jobs by host, and all archives of a folder one job."""
    labels = files.log_file(Source(path, "/x", 1, 1), member).labels
    assert (labels.job, labels.host) == (job, host)


def test_one_case_is_one_run_when_it_is_read_alone() -> None:
    runs = {
        case.name: {
            files.log_file(source).labels.run
            for source in files.discover([str(case)])
            if source.path != "expected.json"
        }
        for case in shared("cases").iterdir()
    }
    several = {name: found for name, found in runs.items() if found != {name}}
    assert several == {
        "006-nvme-pinned-buffer-host-oom": {"006-nvme-pinned-buffer-host-oom", None},
        "024-loss-spike-common-node": {"job_a", "job_b", "job_c", "job_d"},
        "027-nvlink-down-one-gpu-many-victims": {"027-nvlink-down-one-gpu-many-victims", None},
        "061-checkpoint-incomplete-auto-resume": {"5511"},
    }


def test_each_log_of_a_flat_directory_is_its_own_run() -> None:
    logs = [s for s in files.discover([str(shared("data", "bigscience"))]) if ".out" in s.path]
    found = [files.log_file(source).labels for source in logs]
    assert len({label.run for label in found}) == len(logs) == 16
    assert sorted(label.job for label in found if label.job) == sorted(
        "1832552 1832555 1832573 1999616 1809577 1809620 1809579 1809655 1809562 1999618".split()
    )
