"""Every Xid and SXid of the vendor's tables, as the driver words it, against its role."""

from __future__ import annotations

import functools
import json

import pytest

from matcher.catalogue import load
from matcher.engine import Engine, cache_directory
from tests.support import shared

# What the vendor tells one to do at once, where that says that something was lost.
LOST = {"RESTART_APP", "RESET_GPU", "RESTART_BM", "WORKFLOW_XID_48", "WORKFLOW_NVLINK_ERR"}
NVLINK5 = {*range(144, 151), 155}  # a word in the line tells whether these are fatal
REPAIR_PENDING = 156  # asks for a reset, after an error with a line of its own
REPAIR_FAILED = {157, 161}  # may be ignored today, and fails again tomorrow
FOLLOWS = {43, 45, 137, 154}  # said after another Xid, or because of another GPU


@functools.cache
def engine() -> Engine:
    return Engine(load(), cache_directory())


def roles(*lines: str) -> list[set[str]]:
    """The roles of all signatures that hit each line."""
    signatures = engine().catalogue.signatures
    return [
        {signatures[n].role for n in engine().scan(line.encode()).signature.tolist()}
        for line in lines
    ]


def xids() -> dict[int, str]:
    """Code and immediate action of every Xid of the vendor's catalogue that is in use."""
    rows = map(json.loads, shared("spec", "xid_table.jsonl").read_text().splitlines())
    return {row["xid"]: row["immediate_action"] for row in rows if not row["listed_unused"]}


def test_role_of_each_xid_follows_what_the_vendor_says() -> None:
    actions = xids()
    lines = [f"NVRM: Xid (PCI:0000:38:00): {code}, pid=811, name=python3, x" for code in actions]
    found = dict(zip(actions, roles(*lines), strict=True))
    lost = {code for code, action in actions.items() if action in LOST}
    lost -= {*NVLINK5, REPAIR_PENDING}
    assert [code for code in lost if found[code] != {"cause"}] == []
    ignored = {code for code, action in actions.items() if action == "IGNORE"} - REPAIR_FAILED
    assert [code for code in {*ignored, *NVLINK5, REPAIR_PENDING} if "cause" in found[code]] == []
    assert {code for code, role in found.items() if role == {"collateral"}} == FOLLOWS
    assert [code for code in REPAIR_FAILED if found[code] != {"cause"}] == []
    assert [code for code, role in found.items() if len(role) != 1] == []


@pytest.mark.parametrize(
    ("word", "cause"), [("Fatal", True), (" Fatal  ", True), ("Nonfatal", False)]
)
def test_severity_word_decides_for_later_nvlinks(word: str, cause: bool) -> None:
    lines = [
        f"NVRM: Xid (PCI:0009:01:00): {code}, RLW_REMAP {word} XC0 i0 Link 05 (0x4 0x40)"
        for code in sorted(NVLINK5)
    ]
    assert roles(*lines) == [{"cause" if cause else "collateral"}] * len(NVLINK5)


def test_severity_word_decides_for_each_sxid() -> None:
    rows = list(map(json.loads, shared("spec", "sxid_table.jsonl").read_text().splitlines()))
    head = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0)"
    for word, role in (("Fatal", "cause"), ("Non-fatal", "context")):
        lines = [f"{head}: {row['sxid']}, {word}, Link 32 {row['driver_text']}" for row in rows]
        assert roles(*lines) == [{role}] * len(rows)
