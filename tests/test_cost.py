"""No signature makes the whole set slow, counted in instructions."""

from __future__ import annotations

import pytest

from matcher.catalogue import load
from tests import cost

pytestmark = pytest.mark.skipif(not cost.valgrind_version(), reason="needs valgrind")

# Signatures that may add more than cost.LIMIT, each with what it would lose if it were cheaper.
EXCEPTIONS = {
    "generic-step-loss": "it finds what it is for, a step in many lines of the text, "
    "and all that such lines share is the word `loss`",
}

LOG = b"step 12 done, loss 1.25 on rank 3 of node-017, 12 batches in flight\n" * 2000
PLAIN = {f"plain-{n}": f"word{n:03} failed {n * 7919}" for n in range(60)}


def test_no_signature_adds_more_than_its_share() -> None:
    # Those that only measure are looked for only where they are asked for: a progress bar has no
    # long literal, and finding each costs what it costs (tqdm-step: 1.48 times on this text).
    groups = cost.of_catalogue(load().without_metrics())
    costly = {one.ids[0]: round(one.ratio, 3) for one in groups if one.ratio >= cost.LIMIT}
    assert set(EXCEPTIONS) <= set(costly), "an exception is no longer needed: remove it"
    assert {id_: ratio for id_, ratio in costly.items() if id_ not in EXCEPTIONS} == {}, (
        "times as many instructions as without them: start them with a literal that benign lines "
        "have not, and bound what stands between literals"
    )


def test_signature_that_works_on_every_line_is_named() -> None:
    patterns = PLAIN | {"greedy": r"loss .{1,40}rank.{1,40}gone"}
    (worst, *rest) = cost.added(patterns, LOG)
    assert worst.ids == ("greedy",)
    assert worst.ratio > 1.3
    assert all(one.ratio < cost.LIMIT for one in rest)
    assert sorted(id_ for one in (worst, *rest) for id_ in one.ids) == sorted(patterns)


def test_count_of_instructions_repeats() -> None:
    one = list(PLAIN.values())
    first, second = cost.instructions([one, one], LOG)
    assert first == pytest.approx(second, rel=0.01)
    assert first > len(LOG) / 16
