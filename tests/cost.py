"""What each signature adds to a scan, in instructions, which no neighbour on the machine disturbs.

`python -m tests.cost` prints it for the built-in catalogue. Hidden here: a signature alone says
little, since Hyperscan compiles the set as one, so each is measured by leaving it out, which takes
a compile of some seconds. Leaving more out is taken to save at least as much as leaving out a part
of it; a group that saves little therefore clears all its members, and only the others are halved.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import hyperscan

from benchmarks import corpora
from benchmarks.corpora import Corpus
from matcher.cache import cache_directory, keep, place_of, recall
from matcher.catalogue import Catalogue, load
from matcher.engine import PatternSet

LIMIT = 1.03
TEXT_BYTES = 4 << 20
GROUP = 24  # signatures left out together at first
HEALTHY = Path(__file__).parent / "data" / "healthy"

# Callgrind writes down what has been spent whenever this function of libc returns.
_MARK = "getppid"
_SCAN = f"""
import hyperscan, os, sys
text = open(sys.argv[1], "rb").read()
for path in sys.argv[2:]:
    database = hyperscan.loadb(open(path, "rb").read(), hyperscan.HS_MODE_BLOCK)
    database.scratch = hyperscan.Scratch(database)
    os.{_MARK}()
    database.scan(text)
    os.{_MARK}()
"""
_TOTAL = re.compile(rb"^totals: (\d+)", re.MULTILINE)


class Group(NamedTuple):
    """Signatures left out together: how many times as long the whole set takes as without them."""

    ids: tuple[str, ...]
    ratio: float


def benign(catalogue: Catalogue) -> bytes:
    """The same 4 MiB of text for any catalogue: a training log, and in an eighth of it all healthy.

    The catalogue is asked only because corpora are made with one; nothing of it is planted.
    """
    healthy = b"".join(path.read_bytes() for path in sorted(HEALTHY.glob("*.log")))
    healthy *= TEXT_BYTES // 8 // len(healthy)
    log = b"".join(text for _, text in corpora.texts(Corpus(seed=20, lines=50_000), catalogue))
    room = TEXT_BYTES - len(healthy)
    return log[: log.rindex(b"\n", 0, room) + 1] + healthy


def instructions(sets: Sequence[Sequence[str]], text: bytes) -> list[int]:
    """How many instructions a scan of the text takes with each set of patterns."""
    processes = min(len(sets), len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        paths = [directory / f"{number}.hsdb" for number in range(len(sets))]
        # Under Valgrind a compile would take minutes.
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            list(pool.map(_compile, sets, paths))
        (directory / "text").write_bytes(text)
        command = ["valgrind", "--tool=callgrind", f"--dump-after={_MARK}"]
        command += [f"--callgrind-out-file={directory / 'out'}", sys.executable, "-I", "-c", _SCAN]
        done = subprocess.run(
            [*command, str(directory / "text"), *map(str, paths)], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"valgrind: {done.stderr}: see whether it runs python at all")
        # The odd ones are loading.
        return [_total(directory / f"out.{2 * number + 2}") for number in range(len(sets))]


def _compile(patterns: Sequence[str], path: Path) -> None:
    path.write_bytes(hyperscan.dumpb(PatternSet(patterns)._database))


def _total(path: Path) -> int:
    found = _TOTAL.search(path.read_bytes())
    assert found, f"{path} tells no totals"
    return int(found[1])


def added(patterns: Mapping[str, str], text: bytes, limit: float = LIMIT) -> list[Group]:
    """Groups that take less than `limit` times as long with as without them, and costlier singles.

    `patterns` are the set, by id. The groups are disjoint and hold all ids, the costly first.
    """
    ids = list(patterns)
    found: list[Group] = []
    whole = 0
    groups = [tuple(ids[at : at + GROUP]) for at in range(0, len(ids), GROUP)]
    while groups:
        sets = [[p for id_, p in patterns.items() if id_ not in group] for group in groups]
        if whole:
            counts = instructions(sets, text)
        else:
            whole, *counts = instructions([list(patterns.values()), *sets], text)
        measured = [Group(group, whole / c) for group, c in zip(groups, counts, strict=True)]
        costly = [one for one in measured if one.ratio >= limit and len(one.ids) > 1]
        found += [one for one in measured if one not in costly]
        groups = [half for one in costly for half in _halves(one.ids)]
    return sorted(found, key=lambda one: -one.ratio)


def _halves(ids: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    middle = len(ids) // 2
    yield ids[:middle]
    yield ids[middle:]


def of_catalogue(catalogue: Catalogue) -> list[Group]:
    """The same for a catalogue on benign text, remembered for the very same patterns and text."""
    text = benign(catalogue)
    patterns = {signature.id: signature.pattern for signature in catalogue.signatures}
    # Another Valgrind decodes other instructions, another Hyperscan compiles otherwise.
    tools = (hyperscan.__version__, valgrind_version())  # type: ignore[attr-defined]
    parts = (*tools, *patterns, *patterns.values())
    place = place_of(
        cache_directory(), ".cost", __file__, (*(part.encode() for part in parts), text)
    )
    if stored := recall(place):
        return [Group(tuple(ids), ratio) for ids, ratio in json.loads(stored)]
    found = added(patterns, text)
    keep(place, json.dumps(found).encode())
    return found


def valgrind_version() -> str | None:
    """As it says itself; None where it is not installed."""
    if not shutil.which("valgrind"):
        return None
    done = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    for one in of_catalogue(load()):
        print(f"{100 * (one.ratio - 1):6.2f} %  {' '.join(one.ids)}")
