"""Read nodes from `sinfo` (any -o with a heading, or --json) and `scontrol show nodes`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from ingest.imports.values import Names, Problems, hosts, known, size_bytes, time_us

_PAIR = re.compile(r"(?:^|\s)([A-Z][A-Za-z:]+)=(.*?)(?=\s+[A-Z][A-Za-z:]+=|\s*$)")
_GRES = re.compile(r"gpu(?::([a-zA-Z][\w.-]*))?:(\d+)")
_REASON = re.compile(r"(.*?)(?: \[([^@\]]*)@([^\]]+)\])?")
_HEADINGS = frozenset({"NODELIST", "HOSTNAMES"})


def gres(text: str) -> tuple[int, str | None]:
    """GPUs of `gpu:h100:8(S:0-1),nic:4` and their model."""
    found = _GRES.findall(text)
    return sum(int(count) for _, count in found), "+".join(
        sorted({m for m, _ in found if m})
    ) or None


def is_heading(line: str) -> bool:
    """Whether a line is the heading of sinfo's table."""
    return bool(_HEADINGS & set(re.split(r"[|\s]+", line.strip()))) and "STATE" in line


def from_scontrol(
    text: str, cluster: str | None, zone: ZoneInfo, names: Names, problems: Problems
) -> Iterator[dict[str, Any]]:
    """A row a node of `scontrol show nodes`, with or without -o."""
    begin = 1
    for block in re.split(r"(?m)^(?=NodeName=)", text):
        line, begin = begin, begin + block.count("\n")
        if not block.startswith("NodeName="):
            continue
        pairs = {name: value.strip() for one in block.split("\n") for name, value in _pairs(one)}
        try:
            reason, since = _reason(pairs.get("Reason", ""))
            count, model = gres(pairs.get("Gres", ""))
            yield {
                "cluster": cluster,
                "host": names.host(pairs["NodeName"]),
                "gpus": count,
                "gpu_model": model,
                "cpus": int(pairs["CPUTot"]) if "CPUTot" in pairs else None,
                "memory_bytes": size_bytes(pairs.get("RealMemory", ""), "M"),
                "nvme_bytes": size_bytes(pairs.get("TmpDisk", ""), "M") or None,
                "partitions": pairs["Partitions"].split(",") if pairs.get("Partitions") else None,
                "state": known(pairs.get("State", "").lower()),
                "reason": names.text(reason),
                "reason_ts": time_us(since, zone),
                "boot_ts": time_us(pairs.get("BootTime", ""), zone),
                "source": "scontrol",
            }
        except ValueError as error:
            problems.add(line, f"node {pairs['NodeName'][:80]}: {str(error)[:160]}")


def _pairs(line: str) -> list[tuple[str, str]]:
    if line.lstrip().startswith(("Reason=", "OS=", "Comment=")):  # to the end of the line
        name, _, value = line.strip().partition("=")
        return [(name, value)]
    return _PAIR.findall(line)


def _reason(text: str) -> tuple[str, str]:
    found = _REASON.fullmatch(text)
    return (found[1], found[3] or "") if found else (text, "")


def from_sinfo(
    lines: Iterable[str], cluster: str | None, zone: ZoneInfo, names: Names, problems: Problems
) -> Iterator[dict[str, Any]]:
    """A row a node of sinfo's table; a node in several partitions has them together."""
    heading: list[str] = []
    delimiter: str | None = None
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if not heading:
            if is_heading(line):
                delimiter = "|" if "|" in line else None
                heading = [name.strip() for name in line.split(delimiter)]
            continue
        if not line.strip():
            continue
        values = [
            value.strip() for value in line.split(delimiter, -1 if delimiter else len(heading) - 1)
        ]
        if len(values) not in (len(heading), len(heading) + 1):
            problems.add(number, f"{len(values)} fields where the heading has {len(heading)}")
            continue
        fields: dict[str, str] = {}
        for name, value in zip(heading, values, strict=False):
            fields.setdefault(name, value)
        try:
            for row in _row(fields, cluster, zone, names):
                _join(found, row)
        except ValueError as error:
            problems.add(number, str(error)[:160])
    yield from found.values()


def _join(found: dict[str, dict[str, Any]], row: dict[str, Any]) -> None:
    known_ = found.setdefault(row["host"], row)
    more = [one for one in row["partitions"] or () if one not in (known_["partitions"] or ())]
    if more:
        known_["partitions"] = [*(known_["partitions"] or ()), *more]


def _row(
    fields: dict[str, str], cluster: str | None, zone: ZoneInfo, names: Names
) -> Iterator[dict[str, Any]]:
    count, model = gres(fields.get("GRES", ""))
    partition = known(fields.get("PARTITION", "").rstrip("*"))
    cpus = known(fields.get("CPUS", ""))
    listed = known(fields.get("NODELIST", "")) or fields.get("HOSTNAMES", "")
    if cluster is None:
        cluster = known(fields.get("CLUSTER", ""))
    for host in hosts(listed):
        yield {
            "cluster": cluster,
            "host": names.host(host),
            "gpus": count if "GRES" in fields else None,
            "gpu_model": model,
            "cpus": int(cpus) if cpus and cpus.isdigit() else None,
            "memory_bytes": size_bytes(fields.get("MEMORY", "").rstrip("+"), "M"),
            "nvme_bytes": size_bytes(fields.get("TMP_DISK", "").rstrip("+"), "M") or None,
            "partitions": [partition] if partition else None,
            "state": known(fields.get("STATE", "").rstrip("*~#!%$@^-").lower()),
            "reason": names.text(fields.get("REASON", "")),
            "reason_ts": time_us(fields.get("TIMESTAMP", ""), zone),
            "source": "sinfo",
        }


def from_json(
    text: bytes, cluster: str | None, zone: ZoneInfo, names: Names, problems: Problems
) -> Iterator[dict[str, Any]]:
    """A row a node of `sinfo --json` or `scontrol show nodes --json`."""
    whole = json.loads(text)
    found: dict[str, dict[str, Any]] = {}
    for number, item in enumerate([*whole.get("nodes", ()), *whole.get("sinfo", ())], 1):
        try:
            for row in _item(item, cluster, zone, names):
                _join(found, row)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            problems.add(number, f"item {number}: {str(error)[:160]}")
    yield from found.values()


def _item(
    item: dict[str, Any], cluster: str | None, zone: ZoneInfo, names: Names
) -> Iterator[dict[str, Any]]:
    listed = "nodes" in item  # of sinfo: a row a group of nodes
    members: Sequence[str] = item["nodes"]["nodes"] if listed else [item["name"]]
    state = item["node"]["state"] if listed else item.get("state", [])
    total = item["gres"]["total"] if listed else item.get("gres", "")
    count, model = gres(total)
    reason = (item.get("reason") or {}) if listed else item.get("reason", "")
    if isinstance(reason, dict):
        reason = reason.get("description", "")
    partitions = [item["partition"]["name"]] if listed else item.get("partitions")
    cpus = item["cpus"].get("maximum") if listed else item.get("cpus")
    memory = item["memory"].get("maximum") if listed else item.get("real_memory")
    disk = item["disk"].get("maximum") if listed else item.get("temporary_disk")
    for member in members:
        for host in hosts(member):
            yield {
                "cluster": cluster or (item.get("cluster") if listed else item.get("cluster_name")),
                "host": names.host(host),
                "gpus": count,
                "gpu_model": model,
                "cpus": cpus,
                "memory_bytes": (memory or 0) << 20 or None,
                "nvme_bytes": (disk or 0) << 20 or None,
                "partitions": partitions or None,
                "state": "+".join(state if isinstance(state, list) else [state]).lower() or None,
                "reason": names.text(str(reason)),
                "reason_ts": time_us(_number(item.get("reason_changed_at")), zone),
                "boot_ts": time_us(_number(item.get("boot_time")), zone),
                "source": "sinfo" if listed else "scontrol",
            }


def _number(value: Any) -> str:
    """A number as Slurm's JSON has it, which may stand in an object."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    return "" if value is None else str(value)
