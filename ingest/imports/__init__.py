"""Bring what schedulers, inventories and traces tell into the database; hides their formats.

Each format turns a file into rows of a table, or into lines that go the way of every log. Values
are read, never evaluated. A bad row is counted and told, and the rest goes on.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast
from zoneinfo import ZoneInfo

import pyarrow as pa

from ingest import blocks, pipeline, schema, streams
from ingest.imports import flight_recorder, kubernetes, mapping, nodes, sacct
from ingest.imports.values import Names, Problems
from ingest.rows import Batches, FileRow, Rows
from ingest.store import Store
from matcher import engine
from matcher.catalogue import load
from matcher.mask import Level, Masker
from matcher.pseudonyms import Pseudonyms

_BATCH = 1 << 14  # rows of a batch
_SNIFF = 1 << 16  # bytes that tell what a file is
_STDIN = "-"
_RANK = re.compile(r"rank[-_.]?(\d{1,9})|_(\d{1,9})(?=\.json|$)", re.IGNORECASE)
_PICKLE = b"\x80"


class Summary(NamedTuple):
    """What came of an import."""

    file: str
    kind: str
    table: str
    rows: int
    bad: int
    messages: list[str]
    seconds: float

    def text(self) -> str:
        """The summary in one line."""
        bad = f", {self.bad:,} bad rows left out" if self.bad else ""
        return (
            f"{self.file}: {self.rows:,} rows of {self.table} from {self.kind}{bad}, "
            f"{self.seconds:.1f} s"
        )


class _Context(NamedTuple):
    store: Store
    path: str
    file: BinaryIO
    cluster: str | None
    tz: str
    zone: ZoneInfo
    names: Names
    problems: Problems
    level: Level
    key: bytes


def run(
    store: Store,
    path: str,
    *,
    kind: str | None = None,
    mapping: str | None = None,
    cluster: str | None = None,
    tz: str = "UTC",
) -> Summary:
    """Import one file; its kind is told by its content where it is not given.

    Raises UsageError, MappingError, StoreError, OSError, with nothing of the file stored.
    """
    started = time.monotonic()
    pipeline.plan([], tz=tz)  # checks the zone
    level: Level = "strict" if store.strict else "default"
    key = store.key(strict=True) if store.strict else b""
    masker = Masker(level, engine.cache_directory())
    names = Names(masker, Pseudonyms(key) if key else None)
    with _opened(path) as (file, head):
        if head.startswith(_PICKLE):
            raise pipeline.UsageError(
                f"{path}: a pickle, which could run code and is not read: dump JSON "
                "(torch._C._distributed_c10d._dump_nccl_trace_json), or convert it where it is "
                "trusted: python -c 'import json, pickle, sys; "
                "json.dump(pickle.load(sys.stdin.buffer), sys.stdout)'"
            )
        kind = kind or ("csv" if mapping else _sniff(path, head))
        if mapping and kind != "csv":
            raise pipeline.UsageError(f"--mapping is for --as csv, not {kind}: leave one out")
        problems = Problems(path)
        context = _Context(
            store, path, file, cluster, tz, ZoneInfo(tz), names, problems, level, key
        )
        table, rows = _mapped(context, mapping, head) if kind == "csv" else _KINDS[kind](context)
    return Summary(
        path, kind, table, rows, problems.count, problems.messages, time.monotonic() - started
    )


@contextmanager
def _opened(path: str) -> Iterator[tuple[BinaryIO, bytes]]:
    """The content of a file, decompressed, and its first bytes."""
    with blocks.open_file(path) as raw:
        stream = streams.decoded(streams.FileStream(raw))
        file = io.BufferedReader(cast("io.RawIOBase", stream), _SNIFF)
        yield cast(BinaryIO, file), file.peek(_SNIFF)


def _sniff(path: str, head: bytes) -> str:
    """The kind of a file by its first bytes. Raises UsageError."""
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    first = text.partition("\n")[0]
    if text[:1] in ("{", "["):
        if re.search(r'"(?:pg_config|pg_status|entries)"\s*:', text):
            return "flight-recorder"
        if re.search(r'"(?:involvedObject|regarding)"\s*:', text):
            return "k8s-events"
        if re.search(r'"kind"\s*:\s*"Pod"', text) or '"containerStatuses"' in text:
            return "k8s-pods"
        if re.search(r'"(?:sinfo|nodes)"\s*:', text):
            return "nodes"
    elif sacct.heading(first):
        return "sacct"
    elif "NodeName=" in text or any(map(nodes.is_heading, text.split("\n")[:3])):
        return "nodes"
    elif head.startswith(b"PAR1") or re.search(r"[,\t]", first):
        raise pipeline.UsageError(
            f"{path}: a table of unknown columns: give --mapping FILE, or one of "
            f"{', '.join(mapping.names())}"
        )
    raise pipeline.UsageError(
        f"{path}: its content does not tell what it is: give --as sacct, k8s-events, k8s-pods, "
        "flight-recorder, nodes or csv"
    )


# -- rows of tables ------------------------------------------------------------------------------


def _batches(table: schema.Table, rows: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    some: list[dict[str, Any]] = []
    for row in rows:
        some.append(row)
        if len(some) == _BATCH:
            yield _batch(table, some)
            some = []
    if some:
        yield _batch(table, some)


def _batch(table: schema.Table, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([row.get(field.name) for row in rows], field.type) for field in table.schema],
        schema=table.schema,
    )


def _fits(
    table: schema.Table, rows: Iterator[tuple[int, dict[str, Any]]], problems: Problems
) -> Iterator[dict[str, Any]]:
    """The rows whose numbers fit their columns."""
    for line, row in rows:
        for name in _NARROW & row.keys():
            value = row[name]
            if value is not None and not -(2**31) <= value < 2**31:
                problems.add(line, f"{name}: {value} is too large")
                break
        else:
            yield row


_NARROW = frozenset(
    field.name
    for table in (schema.JOBS, schema.NODES, schema.TIMINGS)
    for field in table.schema
    if field.type == pa.int32()
)


def _lines(context: _Context) -> Iterator[str]:
    # Only LF ends a line: names may hold others.
    return iter(
        io.TextIOWrapper(context.file, encoding="utf-8-sig", errors="replace", newline="\n")
    )


def _sacct(context: _Context) -> tuple[str, int]:
    found = sacct.jobs(
        _lines(context), context.cluster, context.zone, context.names, context.problems
    )
    rows = _fits(schema.JOBS, enumerate(found, 1), context.problems)
    batches = _batches(schema.JOBS, rows)
    return "jobs", context.store.merge(schema.JOBS, batches, prepare=sacct.NUMBER)


def _pods(context: _Context) -> tuple[str, int]:
    items = mapping.json_records(context.file, context.problems)
    found = kubernetes.jobs(items, context.cluster, context.names, context.problems)
    return "jobs", context.store.merge(schema.JOBS, _batches(schema.JOBS, found))


def _nodes(context: _Context) -> tuple[str, int]:
    given = context.cluster, context.zone, context.names, context.problems
    data = context.file.read()
    text = data.decode("utf-8-sig", "replace")
    if text.lstrip()[:1] == "{":
        try:
            found = nodes.from_json(data, *given)
            rows = list(found)
        except ValueError as error:
            raise pipeline.UsageError(
                f"{context.path}: no JSON ({error}): make the export again"
            ) from None
    elif "NodeName=" in text:
        rows = list(nodes.from_scontrol(text, *given))
    else:
        rows = list(nodes.from_sinfo(text.split("\n"), *given))
    if not rows and not context.problems.count:
        context.problems.add(1, "no node", "export with `sinfo -N --json` or `scontrol show nodes`")
    return "nodes", context.store.merge(schema.NODES, _batches(schema.NODES, iter(rows)))


def _mapped(context: _Context, given: str | None, head: bytes) -> tuple[str, int]:
    if given is None:
        raise pipeline.UsageError(
            f"{context.path}: --as csv needs --mapping FILE, or one of {', '.join(mapping.names())}"
        )
    chosen = mapping.load(given)
    form = chosen.form or _form(head)
    found = mapping.rows(
        chosen, context.file, context.path, form, context.zone, context.names, context.problems
    )
    table = chosen.table
    if table.name == "events":
        return "events", _mapped_events(context, chosen, found)

    def labelled() -> Iterator[tuple[int, dict[str, Any]]]:
        for line, row in found:
            if context.cluster is not None:
                row["cluster"] = context.cluster
            if table.name == "jobs":
                row["state"] = row.get("state") and str(row["state"]).upper()
                row["source"] = "csv" if chosen.name == row["source"] else row["source"]
            yield line, row

    rows = _fits(table, labelled(), context.problems)
    return table.name, context.store.merge(table, _batches(table, rows), add_up=chosen.merge)


def _form(head: bytes) -> str:
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.lstrip()[:1] in (b"{", b"["):
        return "json"
    first = head.partition(b"\n")[0]
    return "tsv" if first.count(b"\t") > first.count(b",") else "csv"


def _mapped_events(
    context: _Context, chosen: mapping.Mapping_, found: Iterator[tuple[int, dict[str, Any]]]
) -> int:
    """Write events of a table: its row in `files` and one event a row."""
    path = Path(context.path).name
    file_id = pipeline.identity(context.cluster, path, context.key)
    rows = []
    for line, row in found:
        ts = row.get("ts")
        own = {
            "file_id": file_id,
            "signature": row["failure"],
            "role": "cause",
            "line_no": line,
            "last_line_no": line,
            "byte_offset": line,
            "ts_lo": ts,
            "ts_hi": ts,
            "t_eff": ts,
            "ts_last": ts,
            "ts_source": "none" if ts is None else "own",
            "tz_assumed": False,
            "repeats": 1,
            "cluster": context.cluster,
            "message": row["failure"],
        }
        rows.append(own | {name: value for name, value in row.items() if value is not None})
    for row in rows:
        identity = f"{file_id} {row['byte_offset']} {row['signature']}".encode()
        row["event_id"] = int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "big")
    times = [row["ts"] for row in rows if row.get("ts") is not None]
    file = _file_row(context, path, file_id, rows, times)
    batches = list(_batches(schema.EVENTS, iter(rows)))
    _write(context, [Rows([file], Batches(batches))])
    return len(rows)


def _file_row(
    context: _Context, path: str, file_id: int, rows: list[dict[str, Any]], times: list[int]
) -> FileRow:
    unknown: dict[str, Any] = dict.fromkeys(FileRow._fields)
    known = {
        "file_id": file_id,
        "path": context.names.text(path),
        "location": context.names.text(_location(context.path)),
        "cluster": context.cluster,
        "kind": "csv",
        "lines": len(rows),
        "events": len(rows),
        "first_ts": min(times, default=None),
        "last_ts": max(times, default=None),
        "status": "ok",
        "catalogue_digest": "",
    }
    return FileRow(**unknown | known)


def _location(path: str) -> str:
    return path if path == _STDIN else str(Path(path).absolute())


# -- lines that go the way of logs -----------------------------------------------------------------


def _events(context: _Context) -> tuple[str, int]:
    """Scan events as a log with one line an item; what else they say goes into their rows."""
    told: list[kubernetes.Told | None] = []
    for number, item in mapping.json_records(context.file, context.problems):
        told += [None] * (number - 1 - len(told))
        try:
            told.append(kubernetes.event(item))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            told.append(None)
            context.problems.add(number, f"item {number}: no event ({str(error)[:80]})")
    name = f"{Path(context.path).name.partition('.')[0] or 'stdin'}.k8s-events.log"

    def completed(row: dict[str, Any]) -> dict[str, Any]:
        one = told[row["line_no"] - 1]
        assert one is not None  # a line that is empty has no hit
        captures = dict(row["captures"] or ()) | {
            key: text for key, value in one.captures.items() if (text := context.names.text(value))
        }
        row["host"] = row["host"] or (one.host and context.names.host(one.host))
        row["job"] = row["job"] or one.job
        row["repeats"] *= one.repeats
        row["ts_last"] = row["ts_last"] if one.last is None else one.last
        row["captures"] = list(captures.items())
        return row

    lines = [one.line if one else "" for one in told]
    return "events", _scan(context, {name: lines}, "k8s_events", completed)


def _dumps(context: _Context) -> tuple[str, int]:
    """Scan the dump of each rank as a log with one line a process group."""
    folder = Path(_location(context.path)).parent.name or "dumps"
    stem = Path(context.path).name.partition(".")[0]
    rank = _RANK.search(Path(context.path).name)
    number_ = int(rank[1] or rank[2]) if rank else None
    logs: dict[str, list[str]] = {}
    items = list(mapping.json_records(context.file, context.problems))
    for number, item in items:
        try:
            dump = flight_recorder.dump(item, number_)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            context.problems.add(number, f"no dump ({str(error)[:120]})")
            continue
        if dump is not None:
            run = folder if len(items) == 1 else stem
            logs[f"{run}/rank_{dump.rank}.flight_recorder.log"] = dump.lines
    if not logs and not context.problems.count:
        context.problems.add(1, "no dump of a rank", "give the JSON of TORCH_FR_BUFFER_SIZE dumps")
    return "events", _scan(context, logs, "flight_recorder", lambda row: row)


def _scan(
    context: _Context,
    logs: dict[str, list[str]],
    kind: str,
    complete: Callable[[dict[str, Any]], dict[str, Any]],
) -> int:
    """Scan these lines by the catalogue and store the rows of each log; how many events came."""
    found: list[Rows] = []
    count = 0
    with tempfile.TemporaryDirectory(prefix="firstfault-") as private:
        for name, lines in logs.items():
            place = Path(private) / "import" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            text = "".join(f"{' '.join(line.split())}\n" for line in lines)
            place.write_text(text, encoding="utf-8", errors="replace")
        plan = pipeline.plan(
            [str(Path(private) / "import")] if logs else [],
            cluster=context.cluster,
            tz=context.tz,
            workers=1,
            every_match=True,
            mask=context.level,
        )
        plan = replace(plan, key=context.key)
        for one in pipeline.results(plan):
            files = [
                row._replace(
                    kind=kind,
                    location=context.names.text(_location(context.path)) or "",
                    mtime=None,
                )
                for row in one.files
            ]
            rows = [complete(row) for batch in one.events for row in _micros(batch)]
            count += len(rows)
            evidence = Batches(list(one.evidence))
            found.append(Rows(files, Batches(list(_batches(schema.EVENTS, iter(rows)))), evidence))
        if found:
            _write(context, found)
    return count


def _micros(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, times as numbers: half a million of them must not become objects."""
    names = batch.schema.names
    columns = [
        column.cast(pa.int64()).to_pylist()
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for column in batch.columns
    ]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _write(context: _Context, rows: list[Rows]) -> None:
    catalogue = load(cache=engine.cache_directory())
    arguments = {"import": context.names.text(context.path), "cluster": context.cluster}
    version = importlib.metadata.version("firstfault")
    scan_id = context.store.begin(version, engine.version(), catalogue, arguments)
    context.store.write(rows, scan_id)
    context.store.finish(scan_id)


_KINDS: dict[str, Callable[[_Context], tuple[str, int]]] = {
    "sacct": _sacct,
    "k8s-events": _events,
    "k8s-pods": _pods,
    "flight-recorder": _dumps,
    "nodes": _nodes,
}
