"""Examples in other dress: whatever launchers, collectors and terminals put around a line."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matcher.catalogue import Signature, load
from matcher.engine import Engine, cache_directory

# Signatures that want the line to begin or to end where its words do, each with the reason.
ANCHORED = tomllib.loads((Path(__file__).parent / "data" / "anchored.toml").read_text())

HEADERS = [
    b"[rank3]: ",
    b"[default3]:",
    b" 0: ",
    b"worker-3: ",
    b"[1,26]<stderr>:",
    b"\x1b[36m(Actor pid=18400, ip=10.0.0.3)\x1b[0m ",
    b"(Worker_TP3 pid=188) ERROR 05-09 00:48:11 [core.py:515] ",
    b"2023-05-05 10:12:13,123: rank1[813][MainThread]: ERROR: a.b: ",
    b"[2024-04-20 15:55:06] CRITICAL [olmo.util:158, rank=6] ",
    b"2026-01-05T10:00:00.123456789Z stderr F ",
    b'{"log":"',
    b"[pod/trainer-0/main] 2026-01-05T10:00:00.123456789Z ",
    b"Jun 21 14:03:14 node7 kernel: [912345.678901] ",
    b"[ 2017.551145] ",
    b"kern  :warn  : 2025-01-21T04:41:44,285060+00:00 ",
    b"3,1206,206764307,-;",
    b"[2025-06-01 04:05:06,777] [WARNING] [engine.py:2899:f] ",
    b"E0909 12:00:05.641000 4711 torch/distributed/elastic/a.py:715] ",
    b"[E302 11:15:44.120338104 ProcessGroupNCCL.cpp:616] ",
    b"2024-03-02 10:00:00,000 - ERROR - ",
    b"2026-03-02 10:00:00.123 | ERROR    | trainer:run:12 - ",
    b"node1:12:99 [3] NCCL INFO ",
    b"[1746776891.974497] [node:1234 :0] ",
    b"24/1752 [01:08<1:22:56,  2.88s/it]",
    b" 10%|#         | 1/10 [00:01<00:09, 2.88s/it]\r",
    b"\x1b[31m",
    b"\x1b[1m\x1b[38;5;196m",
    b"\xff\xfe",
]
TAILS = [
    b"\r",
    b"\x1b[0m",
    b"\x1b[0m\x1b[K",
    b'\\n","stream":"stderr","time":"2026-01-05T10:00:00.123456789Z"}',
    b'"}',
    b"\r 20%|##        | 2/10 [00:02<00:08, 2.88s/it]",
    b" 20%|##        | 2/10 [00:02<00:08, 2.88s/it]",
    b" [repeated 7x across cluster]",
    b".",
    b"\xff",
]
WORDS = st.lists(st.sampled_from([b"and", b"then", b"x,", b"(y)", b"more:", b"4711"]), max_size=40)


@functools.cache
def examples() -> tuple[Engine, list[tuple[int, Signature, bytes]]]:
    engine = Engine(load(), cache_directory())
    return engine, [
        (number, signature, line.encode())
        for number, signature in enumerate(engine.catalogue.signatures)
        for line in signature.match
    ]


def lost(dress: Callable[[Signature, bytes], bytes], end: bytes = b"\n") -> set[str]:
    """Signatures that miss one of their own examples in this dress."""
    engine, lines = examples()
    dressed = [dress(signature, line) for _, signature, line in lines]
    hits = engine.scan(end.join(dressed) + end)
    found = set(zip(hits.signature.tolist(), hits.start.tolist(), strict=True))
    missed = set()
    start = 0
    for (number, signature, _), line in zip(lines, dressed, strict=True):
        if (number, start) not in found:
            missed.add(signature.id)
        start += len(line) + len(end)
    return missed


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(HEADERS), max_size=3).map(b"".join),
    WORDS.map(lambda words: b" ".join([*words, b""])),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_what_stands_before_a_line_hides_nothing(header: bytes, words: bytes, end: bytes) -> None:
    missed = lost(lambda _, line: words + header + line, end)
    assert missed - ANCHORED["front"].keys() == set()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(TAILS),
    WORDS.map(lambda words: b"".join(b" " + word for word in words)),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_what_stands_behind_a_line_hides_nothing(tail: bytes, words: bytes, end: bytes) -> None:
    missed = lost(lambda _, line: line + tail + words, end)
    assert missed - ANCHORED["end"].keys() == set()


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 1))
def test_cut_behind_the_match_hides_nothing(share: float) -> None:
    def cut(signature: Signature, line: bytes) -> bytes:
        match = re.search(signature.pattern.encode(), line)
        assert match
        return line[: match.end() + int(share * (len(line) - match.end()))]

    assert lost(cut) == set()


@pytest.mark.parametrize("end", [b"\r\n", b"\r\r\n", b"\rnext\n"])
def test_carriage_returns_around_a_line_hide_nothing(end: bytes) -> None:
    assert lost(lambda _, line: b"a line that was drawn over\r" + line, end) == set()


@pytest.mark.parametrize("side", ["front", "end"])
def test_reason_for_an_anchor_is_still_needed(side: str) -> None:
    dresses: dict[str, list[Callable[[Signature, bytes], bytes]]] = {
        "front": [lambda _, line, h=h: h + line for h in (b"a b c ", *HEADERS)],  # type: ignore[misc]
        "end": [lambda _, line, t=t: line + t for t in (b" a b c", *TAILS)],  # type: ignore[misc]
    }
    assert set().union(*map(lost, dresses[side])) == ANCHORED[side].keys()
