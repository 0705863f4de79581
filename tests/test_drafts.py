"""What the researched drafts know is kept: their examples, their near misses, their edges."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from matcher.catalogue import Catalogue, load
from matcher.engine import Engine, cache_directory
from tests.support import shared

MAP = tomllib.loads((Path(__file__).parent / "data" / "failure_map.toml").read_text())
FAILURE: dict[str, str] = MAP["failure"]

# The draft's words for where an effect shows, in ours, and ours from narrow to wide.
SCOPE = {
    "same-gpu": "same-host",
    "peer-gpu": "same-host",
    "same-host-or-peer": "same-run",
    "peer-ranks": "same-run",
    "same-job": "same-run",
    "same-step": "same-run",
}
WIDTH = ["same-rank", "same-host", "same-run", "fleet"]


def drafts(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shared("spec", name).read_text().splitlines()]


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load()


@pytest.fixture(scope="module")
def hits(catalogue: Catalogue) -> dict[str, list[tuple[str, str]]]:
    """(failure, signature) of all that each line of the drafts hits."""
    engine = Engine(catalogue, cache_directory())
    known = catalogue.signatures
    lines = {
        line
        for draft in drafts("signatures.jsonl")
        for line in (*draft["examples"], *draft["near_misses"])
    }
    return {
        line: [
            (known[n].failure, known[n].id) for n in engine.scan(line.encode()).signature.tolist()
        ]
        for line in lines
    }


def test_map_leads_to_failures_that_exist(catalogue: Catalogue) -> None:
    assert set(FAILURE.values()) - catalogue.by_id.keys() == set()
    assert FAILURE.keys() & MAP["dropped"].keys() == set()


def test_map_is_complete() -> None:
    ids = {draft["id"] for draft in drafts("signatures.jsonl")}
    assert FAILURE.keys() | MAP["dropped"].keys() == ids


def test_draft_examples_hit_their_failure(hits: dict[str, list[tuple[str, str]]]) -> None:
    found = {
        (draft["id"], line): sorted({failure for failure, _ in hits[line]})
        for draft in drafts("signatures.jsonl")
        for line in draft["examples"]
        if draft["id"] in FAILURE
        and FAILURE[draft["id"]] not in {failure for failure, _ in hits[line]}
    }
    assert found == {(one["of"], one["line"]): one["hits"] for one in MAP["example"]}


def test_draft_near_misses_do_not_hit_their_failure(
    hits: dict[str, list[tuple[str, str]]],
) -> None:
    listed = {(one["of"], one["hits"]) for one in MAP["near_miss"]}
    found = {
        (draft["id"], signature)
        for draft in drafts("signatures.jsonl")
        for line in draft["near_misses"]
        for failure, signature in hits[line]
        if failure == FAILURE.get(draft["id"])
    }
    assert found == listed | set(MAP["near_miss_of_a_sibling"].items())


def test_siblings_of_a_near_miss_take_none_of_its_examples(
    hits: dict[str, list[tuple[str, str]]],
) -> None:
    """Else one signature would take both, which needs a reason of its own."""
    found = {
        draft["id"]
        for draft in drafts("signatures.jsonl")
        for line in draft["examples"]
        if MAP["near_miss_of_a_sibling"].get(draft["id"]) in {name for _, name in hits[line]}
    }
    assert found == set()


def edges() -> Iterator[tuple[str, str, str, tuple[float, float]]]:
    """Draft edges as (cause, effect, our scope, window in seconds from the effect's beginning)."""
    for edge in drafts("precedence.jsonl"):
        low, high = edge["lag_s"]
        # A timeout counts from when it began to wait.
        window = (0, 60) if (low, high) == ("timeout", "timeout+60") else (low, high)
        yield edge["cause"], edge["effect"], SCOPE.get(edge["scope"], edge["scope"]), window


def test_draft_edges_are_carried_over(catalogue: Catalogue) -> None:
    ours = {(edge.cause, edge.effect): edge for edge in catalogue.precedence}
    lost = set()
    for cause, effect, scope, (low, high) in edges():
        ends = FAILURE[cause], FAILURE[effect]
        if ends[0] == ends[1]:
            continue
        edge = ours.get(ends)
        if (
            edge is None
            or ("next-attempt" in (edge.scope, scope) and edge.scope != scope)
            or (scope in WIDTH and WIDTH.index(edge.scope) < WIDTH.index(scope))
            or not edge.lag_lo_s <= low <= high <= edge.lag_hi_s
        ):
            lost.add((cause, effect))
    assert lost == {(one["cause"], one["effect"]) for one in MAP["edge"]}


def test_failures_that_take_both_ends_of_a_draft_edge() -> None:
    """Their signatures follow each other; by what, roles and the order of lines say."""
    collapsed = {
        FAILURE[cause] for cause, effect, *_ in edges() if FAILURE[cause] == FAILURE[effect]
    }
    assert collapsed == set(MAP["collapsed"])
