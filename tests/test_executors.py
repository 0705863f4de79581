"""Jobs on worker processes, some of which die."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import ClassVar

from ingest.executors import WorkerDied, local, run
from tests.support import ROOT


def _ready() -> None:
    """Initializer of the workers: nothing to prepare."""


def _double(job: tuple[str, int]) -> int:
    """Twice the number; `kill` jobs end their worker, `once` jobs only the first time."""
    kind, number = job
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind.startswith("once:"):
        mark = Path(kind.removeprefix("once:"))
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def test_results_of_all_jobs_come() -> None:
    jobs = [("plain", n) for n in range(40)]
    results = dict(run(local(2, _ready, ()), _double, jobs, window=8))
    assert results == {job: 2 * job[1] for job in jobs}


def test_no_jobs_no_results() -> None:
    assert list(run(local(1, _ready, ()), _double, [], window=4)) == []


def test_killed_worker_loses_no_job(tmp_path: Path) -> None:
    jobs = [("plain", n) for n in range(20)]
    jobs.insert(7, (f"once:{tmp_path / 'mark'}", 100))
    results = dict(run(local(2, _ready, ()), _double, jobs, window=6))
    assert results == {job: 2 * job[1] for job in jobs}


def test_job_that_always_kills_its_worker_is_singled_out() -> None:
    jobs = [("plain", n) for n in range(12)]
    jobs.insert(3, ("kill", 0))
    results = list(run(local(2, _ready, ()), _double, jobs, window=4))
    assert sorted(job for job, _ in results) == sorted(jobs)
    assert [job for job, result in results if isinstance(result, WorkerDied)] == [("kill", 0)]


class _Breaks(ThreadPoolExecutor):
    """Breaks at its first job, and forgets a worker that it has started."""

    started: ClassVar[list[BaseProcess]] = []

    def submit(self, function, /, *arguments):  # type: ignore[no-untyped-def]
        if self.started:
            return super().submit(function, *arguments)
        self.started.append(multiprocessing.get_context("spawn").Process(target=signal.pause))
        self.started[0].start()
        raise BrokenProcessPool


def test_worker_that_a_broken_pool_forgot_is_ended() -> None:
    jobs = [("plain", n) for n in range(4)]
    results = dict(run(lambda: _Breaks(1), _double, jobs, window=2))
    assert results == {job: 2 * job[1] for job in jobs}
    (forgotten,) = _Breaks.started
    forgotten.join(60)
    assert forgotten.exitcode == -signal.SIGKILL


def _wait(job: str) -> None:
    """Say who waits, then wait for ever."""
    Path(job).write_text(str(os.getpid()))
    signal.pause()


def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    code = (
        "import sys\nfrom ingest.executors import local, run\n"
        "from tests.test_executors import _ready, _wait\n"
        "if __name__ == '__main__':\n  list(run(local(1, _ready, ()), _wait, sys.argv[1:], 1))\n"
    )
    (tmp_path / "main.py").write_text(code)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py"), str(tmp_path / "pid")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    assert int((tmp_path / "pid").read_text()) != parent.pid
    parent.kill()
    assert parent.communicate(timeout=60)[0] == b""  # a worker that lives holds the pipe open


def test_source_of_jobs_is_read_no_further_than_the_window() -> None:
    taken = 0

    def jobs():  # type: ignore[no-untyped-def]
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield ("plain", number)

    results = run(local(1, _ready, ()), _double, jobs(), window=3)
    next(results)
    assert taken <= 6
    results.close()  # type: ignore[attr-defined]
