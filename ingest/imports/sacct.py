"""Read `sacct -P` exports of any format list and delimiter into rows of `jobs`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from zoneinfo import ZoneInfo

from ingest.imports.values import (
    NOTHING,
    Names,
    Problems,
    duration_s,
    gpus,
    hosts,
    size_bytes,
    time_us,
    tres,
)

_JOB = re.compile(r"\d+(?:[_+](?:\d+|\[[^\]]*\]))?")
_STEP = re.compile(r"(\d+(?:[_+](?:\d+|\[[^\]]*\]))?)\.\w+")
_HEADING = re.compile(r"[A-Za-z]\w*")
_COLUMNS = frozenset(
    "account alloccpus allocnodes alloctres cluster elapsed elapsedraw eligible end exitcode "
    "failednode jobid jobidraw jobname ncpus nnodes nodelist partition qos reason reqnodes reqtres "
    "restarts start state submit suspended timelimit timelimitraw user".split()
)
_STEPS = "sacct steps"  # stands for the source until NUMBER has seen all launches
_MOST_LINES = 64  # of one record: its name, comment and directory may hold line ends
STATES = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "TO": "TIMEOUT",
}


def heading(line: str) -> tuple[str, list[str]] | None:
    """The delimiter and the columns (lower case) of an export's first line, if it is one."""
    line = line.strip("\r\n")
    found = re.match(r"[A-Za-z]\w*([^\w\s]+)[A-Za-z]", line)
    if found is None:
        return ("|", [line.lower()]) if line.lower() == "jobid" else None
    columns = [name.strip().lower() for name in line.rstrip(found[1]).split(found[1])]
    if not {"jobid", "jobidraw"} & set(columns):
        return None
    return found[1], columns if all(map(_HEADING.fullmatch, columns)) else []


def jobs(
    lines: Iterable[str], cluster: str | None, zone: ZoneInfo, names: Names, problems: Problems
) -> Iterator[dict[str, Any]]:
    """A row a launch, its steps folded away; `attempt` is left to NUMBER, which sees all of a job.

    Of a job that the export has only steps of, they make up one launch.
    """
    lone: dict[str, dict[str, Any]] = {}
    job = ""
    source = enumerate(lines, 1)
    first = next(source, (0, ""))[1]
    delimiter, columns = heading(first) or ("", [])
    if not columns:
        problems.add(1, "no heading with JobID", "export with sacct -P --format=JobID,State,...")
        return
    wanted = [(name, place) for place, name in enumerate(columns) if name in _COLUMNS]
    for number, record in _records(source, delimiter, len(columns), problems):
        fields = {
            name: value
            for name, place in wanted
            if (value := record[place]) and value.strip().lower() not in NOTHING
        }
        id_ = fields.get("jobid", "") or fields.get("jobidraw", "")
        step = _STEP.fullmatch(id_)
        if step and step[1] == job:
            continue
        if not step and not _JOB.fullmatch(id_):
            problems.add(number, f"{id_[:40]!r} is no job id")
            continue
        try:
            row = _row(fields, step[1] if step else id_, cluster, zone, names)
        except (ValueError, OverflowError) as error:
            problems.add(number, f"job {id_}: {str(error)[:160]}")
            continue
        if step:
            _fold(lone, row)
            continue
        job = id_
        lone.pop(job, None)
        yield row
    yield from lone.values()


def _fold(lone: dict[str, dict[str, Any]], step: dict[str, Any]) -> None:
    """Make one launch of the steps of a job."""
    step |= {"source": _STEPS, "name": None, "run_s": None, "suspended_s": None}
    before = lone.setdefault(step["job"], step)
    if before["state"] == "COMPLETED":
        for name in ("state", "exit_code", "signal"):
            before[name] = step[name]
    before["hosts"] = list(dict.fromkeys([*(before["hosts"] or ()), *(step["hosts"] or ())]))
    for name, most in (
        ("submit_ts", min),
        ("start_ts", min),
        ("end_ts", max),
        ("gpus", max),
        ("nodes", max),
        ("cpus", max),
    ):
        both = [one[name] for one in (before, step) if one[name] is not None]
        before[name] = most(both, default=None)


def _records(
    lines: Iterator[tuple[int, str]], delimiter: str, width: int, problems: Problems
) -> Iterator[tuple[int, list[str]]]:
    """(first line, fields) of each record; a record goes on until it has all its fields."""
    begin, text, count = 0, "", 0
    for number, line in lines:
        line = line.rstrip("\r\n")
        if not text and not line:
            continue
        text, begin, count = (f"{text}\n{line}", begin, count + 1) if text else (line, number, 1)
        fields = text.split(delimiter)
        if len(fields) == width + 1 and not fields[-1]:  # -p ends each line with one
            fields.pop()
        if len(fields) < width and count < _MOST_LINES:
            continue
        if len(fields) == width:
            yield begin, fields
        else:
            problems.add(
                begin,
                f"{len(fields)} fields where the heading has {width}",
                "export with a --delimiter that no name or comment holds",
            )
        text, count = "", 0
    if text:
        problems.add(
            begin,
            f"{len(text.split(delimiter))} fields where the heading has {width}",
            "the export was cut here: make it again",
        )


def _row(
    fields: dict[str, str], id_: str, cluster: str | None, zone: ZoneInfo, names: Names
) -> dict[str, Any]:
    text = fields.get

    def time(name: str) -> int | None:
        value = text(name)
        return None if value is None else time_us(value, zone)

    def number(name: str, other: str = "") -> int | None:
        value = text(name) or text(other)
        return None if value is None else int(value)

    state, by = _state(text("state", ""))
    code, _, signal = text("exitcode", "").partition(":")
    given, asked = tres(text("alloctres", "")), tres(text("reqtres", ""))
    count, model = gpus(given)
    wanted, _ = gpus(asked)
    minutes = text("timelimitraw")
    limit = (
        int(minutes) * 60 if minutes and minutes.isdigit() else duration_s(text("timelimit", ""))
    )
    elapsed = text("elapsedraw")
    raw = text("jobidraw", "").partition(".")[0] or None
    members = [host for name in hosts(text("nodelist", "")) if (host := names.host(name))]
    return {
        "cluster": cluster or text("cluster"),
        "job": id_,
        "attempt": None,
        "name": names.text(text("jobname", "")),
        "user_hash": names.user(text("user", "")),
        "state": state,
        "exit_code": int(code) if code else None,
        "signal": int(signal) or None if signal else None,
        "nodes": number("allocnodes", "nnodes"),
        "gpus": count if given else None,
        "hosts": members or None,
        "submit_ts": time("submit"),
        "start_ts": time("start"),
        "end_ts": time("end"),
        "source": "sacct",
        "job_raw": raw if raw != id_ else None,
        "account": names.text(text("account", "")),
        "partition": names.text(text("partition", "")),
        "qos": names.text(text("qos", "")),
        "reason": names.text(text("reason", "")),
        "cancelled_by": names.user(by) if by else None,
        "failed_host": names.host(text("failednode", "")),
        "requested_gpus": wanted if asked else None,
        "requested_nodes": number("reqnodes"),
        "gpu_model": model,
        "cpus": number("alloccpus", "ncpus"),
        "memory_bytes": size_bytes(given.get("mem", "")),
        "time_limit_s": None if limit is None else round(limit),
        "run_s": float(elapsed) if elapsed else duration_s(text("elapsed", "")),
        "suspended_s": duration_s(text("suspended", "")),
        "eligible_ts": time("eligible"),
        "restarts": number("restarts"),
    }


def _state(text: str) -> tuple[str | None, str | None]:
    """The state in full and who cancelled it."""
    state, _, by = text.partition(" by ")
    word = state.strip().upper().rstrip("+")
    return STATES.get(word, word) or None, by.strip() or None


NUMBER = f"""
CREATE OR REPLACE TEMP TABLE staged AS
WITH launches AS (
  SELECT * REPLACE ('sacct' AS source), rowid AS place FROM staged
  WHERE source <> '{_STEPS}' OR (cluster, job) NOT IN (
    SELECT (cluster, job) FROM staged WHERE source <> '{_STEPS}')
  QUALIFY row_number() OVER (
    PARTITION BY cluster, job, start_ts, coalesce(restarts, 0) ORDER BY rowid DESC) = 1
), counted AS (
  SELECT *, count(*) OVER job AS launches, max(restarts) OVER job AS most,
    row_number() OVER (PARTITION BY cluster, job
      ORDER BY start_ts NULLS LAST, submit_ts NULLS LAST, place) AS nth,
    count(restarts) OVER job AS told, min(coalesce(restarts, 0)) OVER job AS fewest
  FROM launches WINDOW job AS (PARTITION BY cluster, job)
)
SELECT * EXCLUDE (place, launches, most, nth, told, fewest) REPLACE ((CASE
  WHEN launches = 1 AND coalesce(most, 0) = 0 THEN NULL
  WHEN told = launches AND most - fewest >= launches - 1 THEN restarts
  ELSE nth - 1 END)::INTEGER AS attempt)
FROM counted
"""  # noqa: S608
"""Number the launches of each staged job by their restarts, else by their start.

Launches made of steps are dropped where the job has others.
"""
