"""Read dumps of torch's NCCL flight recorder (JSON) into lines, one a process group of a rank."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple


class Dump(NamedTuple):
    """What a rank remembered."""

    rank: int
    lines: list[str]


def dump(item: dict[str, Any], rank: int | None) -> Dump | None:
    """The dump of a rank, its number from `rank` where it does not say; None of another object.

    Raises KeyError, TypeError, ValueError for one that is damaged.
    """
    if "pg_config" not in item and "pg_status" not in item:
        return None
    number = item.get("rank", rank)
    if number is None:
        raise ValueError("the dump names no rank: import a file named like nccl_trace_rank_3.json")
    entries = [_entry(one) for one in item.get("entries") or ()]
    times = [one["t_ns"] for one in entries if one["t_ns"]]
    stamp = f"{_iso(max(times))} " if times else ""
    lines = [f"{stamp}[rank{int(number)}]: {text}" for text in _groups(item, int(number), entries)]
    return Dump(int(number), lines)


def _iso(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _entry(one: dict[str, Any]) -> dict[str, Any]:
    """An entry under the names that this module uses; torch's and converted ones differ."""
    group = one.get("process_group") or (one.get("pg_name"), one.get("desc"))
    return {
        "pg_id": one["pg_id"],
        "guid": str(group[0]),
        "desc": str(group[1] or ""),
        "p2p": bool(one.get("is_p2p")),
        "seq": int(one.get("collective_seq_id", one.get("seq", 0))),
        "p2p_seq": int(one.get("p2p_seq_id", one.get("p2p_seq", 0))),
        "op": str(one.get("profiling_name", one.get("op", ""))),
        "state": str(one.get("state", "")),
        "t_ns": int(one.get("time_created_ns", one.get("t_ns", 0)) or 0),
        "timeout_ms": one.get("timeout_ms"),
        "sizes": one.get("input_sizes", one.get("in_sizes")),
        "dtype": one.get("input_dtypes", one.get("dtype")),
    }


def _groups(item: dict[str, Any], rank: int, entries: list[dict[str, Any]]) -> Iterator[str]:
    config = {str(name): value for name, value in (item.get("pg_config") or {}).items()}
    status = {str(name): value for name, value in (item.get("pg_status") or {}).items()}
    told = {str(one["pg_id"]): one["guid"] for one in entries}
    # Ids are given as groups are made, so both orders agree where both have all groups.
    ids, names = sorted(status, key=_order), sorted(config, key=_order)
    if len(ids) == len(names):
        paired = dict(zip(ids, names, strict=True))
        if all(paired.get(id_) == name for id_, name in told.items()):
            told = paired | told
    for id_ in ids:
        guid = told.get(id_)
        if guid is None:
            continue
        counts = status[id_]
        about = config.get(guid) or {}
        members = about.get("ranks") or []
        if isinstance(members, str):
            members = [int(one) for one in members.strip("[]").split(",") if one.strip()]
        place = members.index(rank) if rank in members else -1
        opened = [one for one in entries if one["guid"] == guid and one["state"] != "completed"]
        desc = about.get("desc") or next((one["desc"] for one in opened), "")
        yield (
            f"flight recorder: PG GUID {_word(guid)}({_word(str(desc)) or 'undefined'}) "
            f"rank {place} of {len(members)}: last enqueued {_count(counts, 'enqueued')}, "
            f"last started {_count(counts, 'started')}, "
            f"last completed {_count(counts, 'completed')}; {_open(opened)}"
        )


def _order(name: str) -> tuple[int, str]:
    return (int(name) if name.isdigit() else 1 << 62, name)


def _word(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "_.:-" else "_" for letter in text)[:80]


def _count(counts: dict[str, Any], which: str) -> int:
    return int(counts.get(f"last_{which}_collective", -1))


def _open(opened: list[dict[str, Any]]) -> str:
    """The oldest work of a group that is not completed."""
    if not opened:
        return "nothing open"
    one = min(opened, key=lambda entry: (entry["t_ns"], entry["seq"], entry["p2p_seq"]))
    sizes, dtype = (str(one[name] or "").replace(" ", "")[:160] for name in ("sizes", "dtype"))
    return (
        f"{len(opened)} open, the oldest {'p2p' if one['p2p'] else 'seq'} "
        f"{one['p2p_seq'] if one['p2p'] else one['seq']} {_operation(one['op'])} "
        f"{_word(one['state'])} sizes {sizes or '[]'} dtype {dtype or '[]'} "
        f"timeout {int(one['timeout_ms'] or 0)} ms"
    )


def _operation(op: str) -> str:
    return "_".join(op.split())[:60] or "unknown"
