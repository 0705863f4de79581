"""Declare the tables once, as Arrow schemas with a description on each column.

DDL, the data dictionary of `firstfault schema` and the batches that workers send all derive from
these declarations. A change that an old reader would misread raises `VERSION`; a new column is
none: databases that lack it get it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, NamedTuple

import pyarrow as pa

VERSION = 1

_TS = pa.timestamp("us")
_CAPTURES = pa.map_(pa.string(), pa.string())


class Table(NamedTuple):
    """A table of the database: its Arrow schema, its key and what it is for."""

    name: str
    description: str
    key: tuple[str, ...]
    schema: pa.Schema


def _table(
    name: str,
    description: str,
    key: tuple[str, ...],
    columns: Mapping[str, tuple[pa.DataType, str]],
) -> Table:
    fields: list[pa.Field[Any]] = [
        pa.field(column, kind, metadata={"description": text})
        for column, (kind, text) in columns.items()
    ]
    return Table(name, description, key, pa.schema(fields))


_LABELS: dict[str, tuple[pa.DataType, str]] = {
    "cluster": (pa.string(), "cluster, from --cluster or the path; NULL where neither says"),
    "run": (
        pa.string(),
        "what groups files into one run: the job where known, else the folder of per-rank files, "
        "else the file itself; NULL for logs of a host or a scheduler",
    ),
    "job": (pa.string(), "job id or name as the path gives it"),
    "attempt": (pa.int32(), "launch number of the job as the path gives it"),
    "host": (pa.string(), "host name, short and lower case"),
    "rank": (pa.int32(), "global rank"),
}

SCANS = _table(
    "scans",
    "One row a scan: what was asked for and what came of it.",
    ("scan_id",),
    {
        "scan_id": (pa.uint64(), "number of the scan"),
        "started_at": (_TS, "start, UTC"),
        "finished_at": (_TS, "end, UTC; NULL while it runs or when it was killed"),
        "tool_version": (pa.string(), "version of firstfault"),
        "catalogue_digest": (pa.string(), "digest of the catalogue used"),
        "arguments": (pa.string(), "arguments, as JSON"),
        "engine": (pa.string(), "matcher and its version"),
        "files": (pa.int64(), "files read in this scan"),
        "bytes": (pa.int64(), "decompressed bytes read"),
        "lines": (pa.int64(), "lines read"),
        "events": (pa.int64(), "matches found: sum(repeats) of the events written"),
    },
)

FILES = _table(
    "files",
    "One live row a log file or archive member, whatever became of it.",
    ("file_id",),
    {
        "file_id": (pa.uint64(), "64-bit hash of (cluster, path); keyed where names are replaced"),
        "scan_id": (pa.uint64(), "scan that read it last"),
        "path": (pa.string(), "path as stored; `outer!inner` for a member of an archive"),
        "location": (pa.string(), "where it was read from, absolute; - for stdin"),
        **_LABELS,
        "kind": (
            pa.string(),
            "train_stdout, rank_stdout, slurm_out, dmesg, syslog, k8s_pod, k8s_events, other",
        ),
        "codec": (pa.string(), "plain, gzip, zstd, bz2, xz, lz4"),
        "size_bytes": (pa.int64(), "bytes on disk; of the member where it is in an archive"),
        "raw_bytes": (pa.int64(), "decompressed bytes read"),
        "lines": (pa.int64(), "LF count, plus one for an unterminated last line"),
        "events": (pa.int64(), "matches found: sum(repeats) of its events"),
        "first_ts": (_TS, "earliest time seen on a line that was looked at"),
        "last_ts": (_TS, "latest time seen on a line that was looked at"),
        "mtime": (_TS, "modification time of the file or member"),
        "ts_lines": (pa.int64(), "lines that carry a clock time of their own"),
        "rank_lines": (pa.int64(), "lines that carry a rank or NCCL tag"),
        "cut_lines": (pa.int64(), "lines longer than the limit, scanned in pieces"),
        "replaced_bytes": (pa.int64(), "bytes of stored text that were not UTF-8"),
        "masked": (pa.int64(), "secrets masked in stored text"),
        "sha256_head": (
            pa.string(),
            "SHA-256 of the first 64 KiB decompressed, hex; hashed with the key likewise",
        ),
        "archive_id": (pa.uint64(), "file_id of the archive it is a member of"),
        "copy_of": (pa.uint64(), "file_id of an earlier file with the same content"),
        "status": (pa.string(), "ok, truncated, failed, skipped"),
        "error": (pa.string(), "what was lost, where, and the remedy"),
        "seconds": (pa.float64(), "time spent on it"),
        "catalogue_digest": (pa.string(), "catalogue and options it was scanned with"),
    },
)

EVENTS = _table(
    "events",
    "One row a hit, or a fold of identical hits (`repeats`); count with sum(repeats).",
    ("event_id",),
    {
        "event_id": (pa.uint64(), "64-bit hash of (file_id, byte_offset, signature)"),
        "file_id": (pa.uint64(), "file it was found in"),
        "signature": (pa.string(), "signature that matched"),
        "failure": (pa.string(), "failure the signature belongs to"),
        "role": (pa.string(), "cause, collateral, confirmation, context, progress, teardown"),
        "component": (pa.string(), "component of the failure"),
        "category": (pa.string(), "category of the failure"),
        "severity": (pa.string(), "severity of the failure"),
        "line_no": (pa.int64(), "1-based line"),
        "byte_offset": (pa.int64(), "offset of the line in the decompressed stream"),
        "ts": (_TS, "time the line carries, UTC"),
        "ts_lo": (_TS, "lower bound: ts, else the nearest earlier time in the file"),
        "ts_hi": (_TS, "upper bound: ts, else the nearest later time in the file"),
        "ts_source": (pa.string(), "own, inherited, dmesg, mtime, none"),
        "tz_assumed": (pa.bool_(), "the line names no zone"),
        "t_eff": (_TS, "coalesce(ts, ts_lo) minus how long the line says it hung"),
        "ts_last": (_TS, "time of the last of the folded hits"),
        "level": (pa.string(), "debug, info, warn, error, fatal as printed"),
        **_LABELS,
        "local_rank": (pa.int32(), "rank within the host"),
        "pid": (pa.int64(), "process that printed the line, where its header says"),
        "world_size": (pa.int32(), "world size, where the line names one"),
        "step": (pa.int64(), "training step, where the line names one"),
        "captures": (_CAPTURES, "fields captured by the pattern, masked"),
        "repeats": (pa.int64(), "how many identical hits this row stands for"),
        "last_line_no": (pa.int64(), "line of the last of them"),
        "message": (pa.string(), "the line without its headers, masked"),
    },
)

EVIDENCE = _table(
    "evidence",
    "Lines around the first cause or confirmation of each failure in a file, masked.",
    ("event_id", "line_no"),
    {
        "event_id": (pa.uint64(), "event they surround"),
        "file_id": (pa.uint64(), "file they stand in"),
        "line_no": (pa.int64(), "1-based line"),
        "text": (pa.string(), "the line, masked, cut at 4 KiB"),
    },
)

FAILURES = _table(
    "failures",
    "The encyclopedia as it was at the last scan.",
    ("failure",),
    {
        "failure": (pa.string(), "id"),
        "title": (pa.string(), "one line"),
        "component": (pa.string(), "software or hardware part it belongs to"),
        "category": (pa.string(), "kind of trouble"),
        "severity": (pa.string(), "critical, high, medium, low, info"),
        "tags": (pa.list_(pa.string()), "search words"),
        "mechanism": (pa.string(), "why it happens"),
        "affected": (pa.list_(pa.string()), "affected systems and versions"),
        "confirm": (pa.list_(pa.string()), "how to confirm it"),
        "fix": (pa.list_(pa.string()), "how to fix it"),
        "verify": (pa.string(), "how to verify the fix"),
        "prevention": (pa.string(), "how to prevent it"),
        "related": (pa.list_(pa.string()), "related failures"),
        "refs": (pa.list_(pa.string()), "references"),
    },
)

SIGNATURES = _table(
    "signatures",
    "The patterns as they were at the last scan.",
    ("signature",),
    {
        "signature": (pa.string(), "id"),
        "failure": (pa.string(), "failure it is a symptom of"),
        "role": (pa.string(), "cause, collateral, confirmation, context, progress, teardown"),
        "why": (pa.string(), "why the line says so"),
        "pattern": (pa.string(), "the pattern"),
        "fallback": (pa.bool_(), "a last resort: counts only where nothing else hit the line"),
        "pair_begin": (pa.string(), "signature that begins what this one completes"),
        "points_to": (pa.string(), "capture that names another rank or host"),
        "dedupe_s": (pa.float64(), "repeats closer than this are one, seconds"),
        "threshold_count": (pa.int32(), "how many mean anything, within threshold_window_s"),
        "threshold_window_s": (pa.float64(), "window of threshold_count, seconds"),
    },
)

CHECKS = _table(
    "checks",
    "How to confirm each failure, and what in the logs shows it.",
    ("failure", "number"),
    {
        "failure": (pa.string(), "failure to confirm"),
        "number": (pa.int32(), "place of the check among the failure's, from 0"),
        "text": (pa.string(), "the check"),
        "seen": (pa.list_(pa.string()), "failures or signatures that show it; NULL: none does"),
        "log": (pa.string(), "stream that would show it; NULL where none would"),
    },
)

VARIANTS = _table(
    "variants",
    "What is different of a failure by the class of its path.",
    ("failure", "path_class"),
    {
        "failure": (pa.string(), "failure"),
        "path_class": (pa.string(), "class of the captured path"),
        "mechanism": (pa.string(), "why it happens there; NULL: as everywhere"),
        "fix": (pa.list_(pa.string()), "how to fix it there; empty: as everywhere"),
        "verify": (pa.string(), "how to verify that fix; NULL: as everywhere"),
        "prevention": (pa.string(), "how to prevent it there; NULL: as everywhere"),
    },
)

CONTROLS = _table(
    "controls",
    "What tells failures of one category from others: the control to change.",
    ("category",),
    {
        "category": (pa.string(), "category of failures"),
        "control": (pa.string(), "configuration, capacity, transport, hardware, input"),
        "test": (pa.string(), "what to change, and what it tells"),
    },
)

PRECEDENCE = _table(
    "precedence",
    "Known cause -> effect edges between failures.",
    ("cause", "effect"),
    {
        "cause": (pa.string(), "failure that comes first"),
        "effect": (pa.string(), "failure that follows from it"),
        "scope": (pa.string(), "same-rank, same-host, same-run, fleet, next-attempt"),
        "lag_lo_s": (pa.float64(), "shortest lag, seconds"),
        "lag_hi_s": (pa.float64(), "longest lag, seconds"),
        "basis": (pa.string(), "source, log, inference"),
    },
)

READINGS = _table(
    "readings",
    "What a line that is no cause by itself stands for in a phase of its attempt; first fit wins.",
    ("reading",),
    {
        "reading": (pa.int32(), "place in the order of the catalogue"),
        "event": (pa.string(), "failure or signature that is read"),
        "becomes": (pa.string(), "failure that it stands for"),
        "phase": (pa.string(), "start, step, save, load, done; NULL in any"),
        "needs": (pa.string(), "failure or signature that must stand before it"),
        "quiet": (pa.bool_(), "only where a rank of the attempt does not print it"),
        "apart": (pa.bool_(), "only where one rank waits in another collective than the others"),
        "lags": (pa.bool_(), "only where ranks are behind in a group and wait for nobody"),
        "attempts": (pa.int32(), "how many attempts must end alike; then the verdict is read"),
        "shows": (pa.string(), "decisive line: event, begin (of the phase), needs"),
        "why": (pa.string(), "why it stands for that"),
    },
)

TRAITS = _table(
    "traits",
    "What diagnosis must know of a failure or signature.",
    ("subject", "trait"),
    {
        "subject": (pa.string(), "failure or signature"),
        "trait": (pa.string(), "precursor, frame, witness, shared, stays, main-rank"),
        "why": (pa.string(), "why it is so"),
    },
)

JOBS = _table(
    "jobs",
    "Scheduler metadata, a row a launch: imported, or inferred from logs (source says which).",
    ("cluster", "job", "attempt"),
    {
        "cluster": (pa.string(), "cluster"),
        "job": (pa.string(), "job id as logs name it: 123, 123_4 of an array, 123+1 of a het job"),
        "attempt": (pa.int32(), "launch number from 0; NULL where the job is known to have one"),
        "name": (pa.string(), "job name"),
        "user_hash": (pa.string(), "hash of the user name"),
        "state": (pa.string(), "final state, in Slurm's words"),
        "exit_code": (pa.int32(), "exit code"),
        "signal": (pa.int32(), "signal"),
        "nodes": (pa.int32(), "nodes"),
        "gpus": (pa.int32(), "GPUs"),
        "hosts": (pa.list_(pa.string()), "hosts, short and lower case"),
        "submit_ts": (_TS, "submitted, UTC"),
        "start_ts": (_TS, "started, UTC"),
        "end_ts": (_TS, "ended, UTC"),
        "source": (pa.string(), "sacct, k8s, csv, log"),
        "job_raw": (pa.string(), "%j in logs, where `job` is another id"),
        "job_type": (pa.string(), "kind of work as the source names it, such as Pretrain or Eval"),
        "account": (pa.string(), "account or tenant that pays for it"),
        "partition": (pa.string(), "partition, queue or namespace"),
        "qos": (pa.string(), "quality of service or priority class"),
        "reason": (pa.string(), "why it waits or ended, as the scheduler says, masked"),
        "cancelled_by": (pa.string(), "hash of the user who cancelled it"),
        "failed_host": (pa.string(), "host whose failure ended it, as the scheduler says"),
        "requested_gpus": (pa.int32(), "GPUs asked for"),
        "requested_nodes": (pa.int32(), "nodes asked for"),
        "gpu_model": (pa.string(), "model of the GPUs"),
        "cpus": (pa.int32(), "CPUs"),
        "memory_bytes": (pa.int64(), "memory, bytes"),
        "time_limit_s": (pa.int64(), "time limit, seconds"),
        "run_s": (pa.float64(), "time it ran as the scheduler counts it, seconds"),
        "suspended_s": (pa.float64(), "time it was suspended, seconds"),
        "eligible_ts": (_TS, "could have started from then on, UTC"),
        "restarts": (pa.int32(), "how often it was started anew"),
    },
)

NODES = _table(
    "nodes",
    "Hosts of a cluster as its scheduler or an inventory lists them.",
    ("cluster", "host"),
    {
        "cluster": (pa.string(), "cluster"),
        "host": (pa.string(), "host name, short and lower case"),
        "role": (pa.string(), "compute, login, io, graphics, or what the source calls it"),
        "gpus": (pa.int32(), "GPUs"),
        "gpu_model": (pa.string(), "model of the GPUs"),
        "cpus": (pa.int32(), "CPUs"),
        "memory_bytes": (pa.int64(), "memory, bytes"),
        "nvme_bytes": (pa.int64(), "local scratch, bytes"),
        "rack": (pa.string(), "rack or other unit that it shares with neighbours"),
        "partitions": (pa.list_(pa.string()), "partitions that it is in"),
        "state": (pa.string(), "state, as the source says: idle, drained, down, ..."),
        "reason": (pa.string(), "why it is out of service, masked"),
        "reason_ts": (_TS, "since when, UTC"),
        "boot_ts": (_TS, "started, UTC"),
        "in_service_from": (_TS, "in production from, UTC"),
        "in_service_to": (_TS, "in production until, UTC; NULL: still"),
        "source": (pa.string(), "sinfo, scontrol, csv, k8s"),
    },
)

TIMINGS = _table(
    "timings",
    "Time that a rank computed in a step, or in one microbatch of it; from traces, not from logs.",
    ("cluster", "run", "job", "attempt", "step", "rank", "stage", "microbatch", "source"),
    {
        "cluster": (pa.string(), "cluster"),
        "run": (pa.string(), "run, as in files"),
        "job": (pa.string(), "job id"),
        "attempt": (pa.int32(), "launch number"),
        "step": (pa.int64(), "training step"),
        "rank": (pa.int32(), "rank, or number of the worker"),
        "host": (pa.string(), "host name, short and lower case"),
        "stage": (pa.int32(), "pipeline stage"),
        "t_compute_s": (pa.float64(), "computing, before it waits for others, seconds"),
        "t_fwd_s": (pa.float64(), "forward, seconds"),
        "t_bwd_s": (pa.float64(), "backward, seconds"),
        "microbatch": (pa.int32(), "microbatch of the step; NULL: the row is of the whole step"),
        "ts": (_TS, "when, UTC"),
        "source": (pa.string(), "mapping that it was read by"),
    },
)

TABLES: tuple[Table, ...] = (
    SCANS,
    FILES,
    EVENTS,
    EVIDENCE,
    FAILURES,
    SIGNATURES,
    CHECKS,
    VARIANTS,
    CONTROLS,
    PRECEDENCE,
    READINGS,
    TRAITS,
    JOBS,
    NODES,
    TIMINGS,
)

_SQL_TYPES: dict[pa.DataType, str] = {
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint64(): "UBIGINT",
    pa.float64(): "DOUBLE",
    _TS: "TIMESTAMP",
    _CAPTURES: "MAP(VARCHAR, VARCHAR)",
    pa.list_(pa.string()): "VARCHAR[]",
}

# Text compresses to 0.45 of its size and inserts 1.9 times as fast under zstd.
_ZSTD_COLUMNS = {("events", "message"), ("evidence", "text"), ("files", "path")}


def ddl() -> str:
    """The CREATE statements of all tables; safe to run on a database that has them."""
    statements = []
    for table in TABLES:
        columns = [
            f'  "{field.name}" {_SQL_TYPES[field.type]}'
            + (" USING COMPRESSION zstd" if (table.name, field.name) in _ZSTD_COLUMNS else "")
            for field in table.schema
        ]
        statements.append(
            f'CREATE TABLE IF NOT EXISTS "{table.name}" (\n' + ",\n".join(columns) + "\n);"
        )
    return "\n".join(statements)


def additions(have: Mapping[str, Set[str]]) -> str:
    """The statements that add the columns which a database lacks; `have` is those of each table."""
    return "\n".join(
        f'ALTER TABLE "{table.name}" ADD COLUMN "{field.name}" {_SQL_TYPES[field.type]};'
        for table in TABLES
        for field in table.schema
        if field.name not in have[table.name]
    )


def column(table: str, name: str) -> pa.DataType:
    """The type of a column."""
    kind: pa.DataType = next(one for one in TABLES if one.name == table).schema.field(name).type
    return kind


def dictionary() -> list[dict[str, str]]:
    """The data dictionary: a row a column, with its SQL type and what it means."""
    return [
        {
            "table": table.name,
            "column": field.name,
            "type": _SQL_TYPES[field.type],
            "description": (field.metadata or {}).get(b"description", b"").decode(),
        }
        for table in TABLES
        for field in table.schema
    ]
