"""The second corpus of cases is sound in itself: its answers point at lines that say so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import shared

DATA = Path(__file__).parent / "data"
MORE = DATA / "cases-more"
EXPECTED = {path.parent.name: json.loads(path.read_text()) for path in MORE.glob("*/expected.json")}
NAMES = sorted(EXPECTED)
POSITIVE = [name for name in NAMES if EXPECTED[name]["root_cause"]]
OUTCOMES = {"completed", "failed", "cancelled", "timeout", "preempted", "unknown"}


def lines_of(case: str, name: str) -> list[str]:
    """Lines of one log as `line_no` counts them, at LF alone."""
    text = (MORE / case / name).read_bytes().decode("utf-8", "replace")
    return text.removesuffix("\n").split("\n")


def logs_of(case: str) -> list[str]:
    folder = MORE / case
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "expected.json"]
    return sorted(str(path.relative_to(folder)) for path in files)


def kinds() -> tuple[set[str], set[str]]:
    """Ids of the kinds of failure, and of the kinds seen only beside them."""
    page = shared("spec", "failure-kinds.md").read_text()
    table, beside = page.split("Collateral kinds")
    rows = re.findall(r"^\| ([a-z0-9 /-]+) \|", table, re.MULTILINE)[2:]  # below the head
    return {kind for row in rows for kind in row.split(" / ")}, set(re.findall(r"[\w-]+", beside))


@pytest.mark.parametrize("case", POSITIVE)
def test_decisive_line_holds_the_signature(case: str) -> None:
    expected: dict[str, Any] = EXPECTED[case]
    decisive = expected["decisive_line"]
    assert expected["signature"] in lines_of(case, decisive["file"])[decisive["line"] - 1]


@pytest.mark.parametrize("case", NAMES)
def test_alternate_lines_exist_and_are_others(case: str) -> None:
    expected = EXPECTED[case]
    places = [(at["file"], at["line"]) for at in expected["alternate_lines"]]
    if expected["decisive_line"]:
        places.append((expected["decisive_line"]["file"], expected["decisive_line"]["line"]))
    assert len(set(places)) == len(places)
    for name, line in places:
        assert lines_of(case, name)[line - 1].strip()


@pytest.mark.parametrize("case", NAMES)
def test_case_has_ten_to_sixty_lines_and_counts_them(case: str) -> None:
    count = sum(len(lines_of(case, name)) for name in logs_of(case))
    assert count == EXPECTED[case]["lines_total"]
    assert 10 <= count <= 60


@pytest.mark.parametrize("case", NAMES)
def test_kinds_are_those_of_the_list(case: str) -> None:
    causes, beside = kinds()
    expected = EXPECTED[case]
    assert {expected["root_cause"]} <= causes | {None}
    assert set(expected["collateral"]) <= causes | beside
    assert expected["root_cause"] not in expected["collateral"]
    assert expected["outcome"] in OUTCOMES


@pytest.mark.parametrize("case", sorted(set(NAMES) - set(POSITIVE)))
def test_healthy_case_blames_nobody(case: str) -> None:
    expected = EXPECTED[case]
    blame = ("decisive_line", "signature", "initiating_rank", "initiating_host")
    assert [expected[key] for key in blame] == [None] * 4
    assert (expected["severity"], expected["collateral"]) == ("none", [])
    assert expected["outcome"] != "failed"


@pytest.mark.parametrize("case", [n for n in POSITIVE if EXPECTED[n]["initiating_host"]])
def test_initiating_host_is_named_in_the_logs(case: str) -> None:
    host = EXPECTED[case]["initiating_host"]
    texts = [text for name in logs_of(case) for text in (name, *lines_of(case, name))]
    assert any(host in text for text in texts)


def test_case_has_the_keys_of_the_first_corpus() -> None:
    paths = (DATA / "cases").glob("*/expected.json")
    first = {key for path in paths for key in json.loads(path.read_text())}
    for case, expected in EXPECTED.items():
        assert set(expected) == first | {"outcome"}, case


def test_each_kind_of_failure_has_a_case() -> None:
    causes, _ = kinds()
    paths = (DATA / "cases").glob("*/expected.json")
    first = {json.loads(path.read_text())["root_cause"] for path in paths}
    assert causes - first - {case["root_cause"] for case in EXPECTED.values()} == set()
