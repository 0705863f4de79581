"""Run jobs on worker processes and hand back results as they come, whatever dies on the way.

The seam is `concurrent.futures`: anything that makes an Executor can stand behind `run`.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

ATTEMPTS = 2  # in company; after that a job runs alone, so that its death is its own


class WorkerDied(Exception):  # noqa: N818
    """The worker was killed while it ran this job alone."""


def local(
    workers: int, initializer: Callable[..., None], arguments: tuple[object, ...]
) -> Callable[[], Executor]:
    """What makes a pool of processes; spawned, since forked ones would share Arrow's threads."""
    context = multiprocessing.get_context("spawn")
    return lambda: ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start, initargs=(initializer, arguments)
    )


def _start(initializer: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """Begin a worker that ends with its parent: one that was killed closes no queue."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    initializer(*arguments)


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def run(
    make: Callable[[], Executor],
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    window: int,
) -> Iterator[tuple[Job, Result | WorkerDied]]:
    """Results of function(job), in order of completion, with at most `window` jobs under way.

    A dead worker breaks the whole pool: its jobs go to a new one, and a job that was there twice
    runs alone; should that die too, WorkerDied stands in the place of its result.
    """
    source = iter(jobs)
    again: deque[tuple[Job, int]] = deque()
    others = frozenset(multiprocessing.active_children())
    pool = make()
    live: dict[Future[Result], tuple[Job, int]] = {}

    def renew() -> None:
        nonlocal pool
        again.extend((job, attempt + 1) for job, attempt in live.values())
        live.clear()
        pool.shutdown(wait=False, cancel_futures=True)
        # A broken pool ends its workers, but not one that was only just starting when it broke:
        # that would wait for jobs, and at exit the interpreter for it.
        for worker in set(multiprocessing.active_children()) - others:
            worker.kill()
        pool = make()

    def fill() -> None:
        """Submit until the window is full; a job that must be alone goes when nothing else is."""
        while len(live) < window and not any(attempt > ATTEMPTS for _, attempt in live.values()):
            if again:
                if again[0][1] > ATTEMPTS and live:
                    return
                job, attempt = again.popleft()
            else:
                try:
                    job, attempt = next(source), 1
                except StopIteration:
                    return
            try:
                live[pool.submit(function, job)] = (job, attempt)
            except BrokenProcessPool:
                again.appendleft((job, attempt))
                renew()

    try:
        fill()
        while live:
            done, _ = wait(live, return_when=FIRST_COMPLETED)
            broken = False
            for future in done:
                job, attempt = live.pop(future)
                try:
                    result: Result | WorkerDied = future.result()
                except BrokenProcessPool:
                    broken = True
                    if attempt <= ATTEMPTS:
                        again.append((job, attempt + 1))
                        continue
                    result = WorkerDied()
                yield job, result
            if broken:
                renew()
            fill()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
