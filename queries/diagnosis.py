"""Diagnose one run of a database: what failed first, the proof, its rivals, and what to do.

Which line decides is the row of the report `diagnosis`, so that a run's files and the fleet's
database answer alike; what stands around that row comes from the tables here. The shape of
`Diagnosis` is that of `firstfault diagnose --format json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from queries import report

if TYPE_CHECKING:
    import duckdb

SKEW_S = 2.0  # clocks of hosts differ by this much
BEFORE, AFTER = 120, 20  # lines of evidence around the decisive one
HYPOTHESES = 5
_SURE = {"high": 0.9, "medium": 0.6, "low": 0.3}  # what the root cause takes of the whole


@dataclass(frozen=True, slots=True)
class Cause:
    """The failure that came first and its decisive line; `failure` None where no line names one."""

    failure: str | None
    signature: str | None
    title: str | None
    category: str | None
    severity: str | None
    confidence: str
    file: str | None
    line: int | None
    offset: int | None
    ts: datetime | None
    rank: int | None
    host: str | None
    text: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; `file` is relative to the argument."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Collateral:
    """A failure that follows from the root cause, with its lines, ranks and first place."""

    failure: str
    count: int
    ranks: list[int]
    first: Place


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A rival of the root cause; scores of all rivals add up to 1 less the root cause's at most."""

    failure: str
    score: float
    file: str | None
    line: int | None
    separate_by: str


@dataclass(frozen=True, slots=True)
class Check:
    """A check of the catalogue, whether the logs show it, and the line that does."""

    check: str
    state: str
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Resume:
    """The last complete checkpoint; `complete` None where no line says whether one is."""

    step: int | None
    path: str | None
    complete: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was read, and the ranks of the attempt that no line came from."""

    files: int
    lines: int
    ranks_seen: int
    world_size: int | None
    silent_ranks: list[int]


@dataclass(frozen=True, slots=True)
class Moment:
    """The first event of some ranks of one host and role; seconds count from the root cause."""

    seconds: float | None
    host: str | None
    ranks: list[int]
    role: str
    failure: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Beside:
    """What is shown to a person and is no part of the JSON object."""

    run: str | None = None
    attempt: int | None = None
    line_numbers: tuple[int, ...] = ()  # of the lines of evidence
    timeline: tuple[Moment, ...] = ()
    titles: Mapping[str, str] | None = None  # of all failures named
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What broke one run. The fields before `beside` are the keys of the JSON object."""

    verdict: str
    outcome: str
    root_cause: Cause | None
    initiating_rank: int | None
    initiating_host: str | None
    tied_ranks: list[int]
    scope: str
    collateral: list[Collateral]
    hypotheses: list[Hypothesis]
    evidence: list[str]
    mechanism: str
    confirm: list[Check]
    fix: list[str]
    verify: str
    prevention: str
    related: list[str]
    resume: Resume
    coverage: Coverage
    beside: Beside = Beside()

    def as_dict(self) -> dict[str, Any]:
        """The JSON object, times still as datetime."""
        plain = asdict(self)
        del plain["beside"]
        return plain


class RunError(report.ReportError):
    """The run that was asked for is not in the database."""


def diagnose(con: duckdb.DuckDBPyConnection, run: str | None = None) -> Diagnosis:
    """What broke the run of this name or job, by default the first run that failed.

    `con` is prepared for reports. Of several failed runs the others are counted in a note. Raises
    RunError for a run that the database has not.
    """
    outcomes = _outcomes(con, run)
    if run is not None and not outcomes:
        raise RunError(
            f"no run '{run}' here: `firstfault report coverage` and the view attempts tell which"
        )
    verdicts = _verdicts(con, run)
    if not verdicts:
        return _healthy(con, run, outcomes)
    chosen, others = verdicts[0], verdicts[1:]
    try:
        _gather(con, chosen)
        return _of(con, chosen, run, _notes(con, run, others))
    finally:
        for table in ("diagnosed_events", "diagnosed"):
            con.execute(f"DROP TABLE IF EXISTS temp.{table}")


# -- which row decides -------------------------------------------------------------------------


def _verdicts(con: duckdb.DuckDBPyConnection, run: str | None) -> list[dict[str, Any]]:
    """Failed runs, the first that failed first: rows of the report `diagnosis`."""
    rows = report.run(con, report.load("diagnosis")).table.to_pylist()
    return [row for row in rows if run is None or run in (row["run_id"], row["job"])]


def _outcomes(con: duckdb.DuckDBPyConnection, run: str | None) -> list[str]:
    """How each run ended."""
    rows = con.execute(
        "SELECT arg_max(outcome, (coalesce(attempt, 1000000000), coalesce(last_ts, '-infinity'))) "
        "FROM attempts WHERE $run IS NULL OR $run IN (run, job) GROUP BY cluster, run",
        {"run": run},
    ).fetchall()
    return [outcome for (outcome,) in rows]


# -- no failure --------------------------------------------------------------------------------

_TELLING = ("timeout", "preempted", "cancelled", "unknown", "completed", "failed")


def _healthy(con: duckdb.DuckDBPyConnection, run: str | None, outcomes: Sequence[str]) -> Diagnosis:
    """No run failed: of several the outcome that most needs to be told stands for all."""
    counted = Counter(outcomes)
    notes = _notes(con, run, [])
    if len(outcomes) > 1:
        parts = [f"{counted[one]} {one}" for one in _TELLING if counted[one]]
        notes = (f"{len(outcomes)} runs: {', '.join(parts)}", *notes)
    return Diagnosis(
        verdict="none",
        outcome=next((one for one in _TELLING if counted[one]), "unknown"),
        root_cause=None,
        initiating_rank=None,
        initiating_host=None,
        tied_ranks=[],
        scope="unknown",
        collateral=[],
        hypotheses=[],
        evidence=[],
        mechanism="",
        confirm=[],
        fix=[],
        verify="",
        prevention="",
        related=[],
        resume=Resume(None, None, None, "nothing failed"),
        coverage=_coverage(con, run, None),
        beside=Beside(run=run, notes=notes),
    )


# -- a failed run ------------------------------------------------------------------------------


def _gather(con: duckdb.DuckDBPyConnection, row: Mapping[str, Any]) -> None:
    """Make `diagnosed` (the attempt and the decisive event) and `diagnosed_events` of the run."""
    con.execute(
        """
        CREATE OR REPLACE TEMP TABLE diagnosed_events AS
        SELECT e.*, e.attempt IS NOT DISTINCT FROM $attempt AS same_attempt,
          coalesce(m.recovered OR m.stopped, false) AS harmless,
          coalesce(m.trouble AND NOT m.recovered AND NOT m.stopped, false) AS live
        FROM placed_events AS e LEFT JOIN marks AS m ON m.event_id = e.event_id
        WHERE e.run = $run AND e.cluster IS NOT DISTINCT FROM $cluster
        """,
        {"run": row["run_id"], "cluster": row["cluster"], "attempt": row["attempt"]},
    )
    con.execute(
        """
        CREATE OR REPLACE TEMP TABLE diagnosed AS
        SELECT $event_id::UBIGINT AS event_id, $failure::VARCHAR AS failure,
          $rank::INTEGER AS rank, $host::VARCHAR AS host, $ts::TIMESTAMP AS t0,
          $attempt::INTEGER AS attempt, $run::VARCHAR AS run, $cluster::VARCHAR AS cluster,
          e.file_id, e.path AS file, e.line_no AS line, e.byte_offset,
          e.captures['path_class'] AS path_class
        FROM (SELECT 1) LEFT JOIN diagnosed_events AS e ON e.event_id = $event_id
        """,
        {
            "event_id": row["event_id"],
            "failure": row["failure"],
            "rank": row["initiating_rank"],
            "host": row["initiating_host"],
            "ts": row["ts"],
            "attempt": row["attempt"],
            "run": row["run_id"],
            "cluster": row["cluster"],
        },
    )


def _of(
    con: duckdb.DuckDBPyConnection,
    row: Mapping[str, Any],
    run: str | None,
    notes: tuple[str, ...],
) -> Diagnosis:
    """The diagnosis of the gathered run."""
    [(offset,)] = con.execute("SELECT byte_offset FROM diagnosed").fetchall()
    lines = _evidence(con)
    decisive = next((text for number, text in lines if number == row["line"]), row["message"])
    entry = _entry(con)
    collateral, hypotheses = _collateral(con), _hypotheses(con, row["confidence"])
    named = [row["failure"], *(one.failure for one in collateral)]
    named += [one.failure for one in hypotheses]
    return Diagnosis(
        verdict="failure",
        outcome=row["outcome"] or "unknown",
        root_cause=Cause(
            failure=row["failure"],
            signature=row["root_signature"],
            title=row["title"],
            category=row["category"],
            severity=row["severity"],
            confidence=row["confidence"],
            file=row["file"],
            line=row["line"],
            offset=offset,
            ts=row["ts"],
            rank=row["initiating_rank"],
            host=row["initiating_host"],
            text=decisive,
            why=row["why"],
        ),
        initiating_rank=row["initiating_rank"],
        initiating_host=row["initiating_host"],
        tied_ranks=row["tied_ranks"],
        scope=row["scope"],
        collateral=collateral,
        hypotheses=hypotheses,
        evidence=[text for _, text in lines],
        mechanism=entry.mechanism or "",
        confirm=_confirm(con),
        fix=list(entry.fix or ()),
        verify=entry.verify or "",
        prevention=entry.prevention or "",
        related=list(entry.related or ()),
        resume=_resume(con),
        coverage=_coverage(con, run, row),
        beside=Beside(
            run=row["run_id"],
            attempt=row["attempt"],
            line_numbers=tuple(number for number, _ in lines),
            timeline=_timeline(con),
            titles=_titles(con, named),
            notes=notes,
        ),
    )


def _notes(
    con: duckdb.DuckDBPyConnection, run: str | None, others: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """What a reader must know beside the verdict: other failed runs, files that are not whole."""
    notes = []
    if others:
        kinds = Counter(row["failure"] or "cause unknown" for row in others)
        listed = ", ".join(f"{kind} ×{count}" for kind, count in kinds.most_common(3))
        more = f", {len(kinds) - 3} more kinds" if len(kinds) > 3 else ""
        runs = "run" if len(others) == 1 else "runs"
        notes.append(f"{len(others)} more {runs} failed, later: {listed}{more}")
    rows = con.execute(
        "SELECT status, count(*) FROM files WHERE status IN ('failed', 'truncated') "
        "AND ($run IS NULL OR $run IN (run, job)) GROUP BY ALL ORDER BY ALL",
        {"run": run},
    ).fetchall()
    for status, count in rows:
        what = "could not be read" if status == "failed" else "break off"
        notes.append(f"{count} {'file' if count == 1 else 'files'} {what}")
    return tuple(notes)


def _evidence(con: duckdb.DuckDBPyConnection) -> list[tuple[int, str]]:
    """(line number, masked line) around the decisive one, in order.

    Kept are lines around the first cause of each failure in a file: those of a neighbour will do,
    and where none are near, the lines that matched.
    """
    rows = con.execute(
        f"""
        SELECT line_no, arg_min(text, told) FROM (
          SELECT v.line_no, v.text, false AS told
          FROM evidence AS v JOIN diagnosed AS d ON d.file_id = v.file_id
          WHERE v.line_no BETWEEN d.line - {BEFORE} AND d.line + {AFTER}
          UNION ALL
          SELECT e.line_no, e.message, true
          FROM diagnosed_events AS e JOIN diagnosed AS d ON d.file_id = e.file_id
          WHERE e.line_no BETWEEN d.line - {BEFORE} AND d.line + {AFTER}
        )
        GROUP BY line_no ORDER BY line_no
        """  # noqa: S608
    ).fetchall()
    return [(number, text) for number, text in rows]


class _Entry(NamedTuple):
    """What the catalogue says of a failure."""

    mechanism: str | None = None
    fix: Sequence[str] | None = None
    verify: str | None = None
    prevention: str | None = None
    related: Sequence[str] | None = None


def _entry(con: duckdb.DuckDBPyConnection) -> _Entry:
    """What the catalogue says of the failure, and of the class of the decisive path."""
    found = con.execute(
        """
        SELECT coalesce(v.mechanism, f.mechanism),
          CASE WHEN len(v.fix) > 0 THEN v.fix ELSE f.fix END, coalesce(v.verify, f.verify),
          coalesce(v.prevention, f.prevention), f.related
        FROM diagnosed AS d JOIN failures AS f ON f.failure = d.failure
        LEFT JOIN variants AS v ON v.failure = f.failure AND v.path_class = d.path_class
        """
    ).fetchone()
    return _Entry(*found) if found else _Entry()


# -- what follows from it, and what else it may be -----------------------------------------------

# Failures that follow from the root cause, in up to three steps of the precedence table.
_REACHED = """
    WITH RECURSIVE reached(failure, steps) AS (
      SELECT failure, 0 FROM diagnosed
      UNION
      SELECT p.effect, r.steps + 1 FROM reached AS r JOIN precedence AS p ON p.cause = r.failure
      WHERE r.steps < 3
    )
"""
# Events behind the decisive one: by line in its file, by time beyond skew elsewhere.
_BEHIND = f"""
    CASE WHEN e.file_id = d.file_id THEN e.line_no > d.line
      ELSE coalesce(seconds_between(d.t0, e.t0) >= -{SKEW_S}, true) END
"""
# Later attempts without a cause of their own go on dying of the first one's.
_SPOILT = """
    e.same_attempt OR (e.attempt > d.attempt AND e.attempt NOT IN (
      SELECT attempt FROM diagnosed_events
      WHERE live AND role IN ('cause', 'confirmation') AND attempt IS NOT NULL))
"""


def _collateral(con: duckdb.DuckDBPyConnection) -> list[Collateral]:
    """What follows from the root cause, in order of its first line."""
    rows = con.execute(
        f"""
        {_REACHED}
        SELECT e.failure, sum(e.repeats)::BIGINT,
          list_sort(list(DISTINCT e.rank) FILTER (e.rank IS NOT NULL)),
          arg_min(e.path, (coalesce(e.t0, 'infinity'), e.path, e.line_no)),
          arg_min(e.line_no, (coalesce(e.t0, 'infinity'), e.path, e.line_no))
        FROM diagnosed_events AS e, diagnosed AS d
        WHERE e.event_id IS DISTINCT FROM d.event_id AND e.failure IS DISTINCT FROM d.failure
          AND ({_SPOILT})
          AND (e.role IN ('collateral', 'teardown')
            OR (e.role IN ('cause', 'confirmation')
              AND (is_generic(e.failure) OR e.failure IN (SELECT failure FROM reached))))
          AND (NOT e.same_attempt OR {_BEHIND})
        GROUP BY e.failure
        ORDER BY min(e.t0) NULLS LAST, min((e.path, e.line_no)), e.failure
        """  # noqa: S608
    ).fetchall()
    return [
        Collateral(failure, count, ranks or [], Place(file, line))
        for failure, count, ranks, file, line in rows
    ]


def _hypotheses(con: duckdb.DuckDBPyConnection, confidence: str) -> list[Hypothesis]:
    """Rivals of the root cause, the likeliest first.

    A cause of another failure that does not follow from the root cause weighs 1, less where it is
    generic, harmless, mild, or clearly later. Known causes of the root cause that no line shows
    weigh little; where no line names a cause, those of what was seen weigh more, by how much of it
    they would explain. The root cause takes its share by confidence; its rivals share the rest by
    weight, or take less where they weigh little.
    """
    rows = con.execute(
        f"""
        {_REACHED}, seen AS (
          SELECT e.failure, e.path AS file, e.line_no AS line, e.category, e.t0,
            CASE WHEN is_generic(e.failure) THEN 0.25 ELSE 1 END
              * CASE WHEN e.harmless THEN 0.25 ELSE 1 END
              * CASE WHEN e.severity IN ('low', 'info') THEN 0.5 ELSE 1 END
              * CASE WHEN {_BEHIND} THEN 0.5 ELSE 1 END AS weight
          FROM diagnosed_events AS e, diagnosed AS d
          WHERE e.same_attempt AND e.role IN ('cause', 'confirmation')
            AND e.failure IS DISTINCT FROM d.failure AND NOT is_scheduling(e.failure)
            AND NOT (({_BEHIND}) AND d.failure IS NOT NULL
              AND (is_generic(e.failure) OR e.failure IN (SELECT failure FROM reached)))
        ), effects AS (  -- of the root cause, or of all that was seen where no line names one
          SELECT failure, file, line, 0.3 AS worth FROM diagnosed WHERE failure IS NOT NULL
          UNION ALL
          SELECT failure, arg_min(path, (coalesce(t0, 'infinity'), path, line_no)),
            arg_min(line_no, (coalesce(t0, 'infinity'), path, line_no)), 0.8
          FROM diagnosed_events
          WHERE same_attempt AND role = 'collateral' AND NOT is_noise(role, severity)
            AND (SELECT failure IS NULL FROM diagnosed)
          GROUP BY failure
        ), supposed AS (
          SELECT p.cause AS failure, arg_min(x.file, x.line) AS file, min(x.line) AS line,
            f.category, NULL::TIMESTAMP AS t0,
            sum(x.worth * CASE p.basis WHEN 'source' THEN 1 WHEN 'log' THEN 0.8 ELSE 0.4 END)
              / (SELECT count(*) FROM effects) AS weight
          FROM effects AS x JOIN precedence AS p ON p.effect = x.failure
          JOIN failures AS f ON f.failure = p.cause
          WHERE p.cause IN (SELECT failure FROM signatures WHERE role IN ('cause', 'confirmation'))
            AND p.cause NOT IN (SELECT failure FROM seen)
            AND p.cause NOT IN (SELECT failure FROM reached WHERE failure IS NOT NULL)
          GROUP BY p.cause, f.category
        ), rivals AS (
          SELECT failure, arg_max(file, rated) AS file, arg_max(line, rated) AS line,
            max(weight) AS weight, any_value(category) AS category
          FROM (
            SELECT *, (weight, -epoch_us(coalesce(t0, '2262-01-01'::TIMESTAMP)), -line) AS rated
            FROM (FROM seen UNION ALL FROM supposed))
          GROUP BY failure
        )
        SELECT r.failure, r.weight, sum(r.weight) OVER (), r.file, r.line, c.control, c.test,
          c.control IS NOT DISTINCT FROM own.control,
          (SELECT k.text FROM checks AS k WHERE k.failure = r.failure AND k.number = 0)
        FROM rivals AS r
        LEFT JOIN controls AS c ON c.category = r.category
        LEFT JOIN (
          SELECT control FROM diagnosed JOIN failures USING (failure) JOIN controls USING (category)
        ) AS own ON true
        ORDER BY r.weight DESC, r.file, r.line, r.failure
        """  # noqa: S608
    ).fetchall()
    rest = 1 - _SURE[confidence]
    return [
        Hypothesis(
            failure,
            round(rest * weight / max(1.0, total), 3),
            file,
            line,
            _separate(control, test, alike, check),
        )
        for failure, weight, total, file, line, control, test, alike, check in rows[:HYPOTHESES]
    ]


def _separate(control: str | None, test: str | None, alike: bool, check: str | None) -> str:
    """What tells a rival from the root cause: its control, or where both share it its own check."""
    if control is None or (alike and check):
        return f"{control or 'logs'}: {check}" if check else ""
    return f"{control}: {test}"


# -- what to do next -----------------------------------------------------------------------------

# Kinds of file that would hold what a stream prints.
_LOGS = {
    "kernel": ("dmesg", "syslog"),
    "scheduler": ("slurm_out",),
    "k8s-event": ("k8s_events",),
}


def _confirm(con: duckdb.DuckDBPyConnection) -> list[Check]:
    """The checks of the failure: seen, not seen in a log that was read, or unknown.

    An earlier attempt shows them too, where it can have led to this failure.
    """
    asked = con.execute(
        "SELECT text, seen, log FROM checks WHERE failure = (SELECT failure FROM diagnosed) "
        "ORDER BY number"
    ).fetchall()
    return [_checked(con, *one) for one in asked]


def _checked(
    con: duckdb.DuckDBPyConnection, text: str, seen: Sequence[str] | None, log: str | None
) -> Check:
    if not seen:
        return Check(text, "unknown", None, None)
    found = con.execute(
        """
        SELECT e.path, e.line_no FROM diagnosed_events AS e, diagnosed AS d
        WHERE (list_contains($seen, e.failure) OR list_contains($seen, e.signature))
          AND (e.same_attempt OR (e.attempt < d.attempt AND EXISTS (
            FROM precedence AS p WHERE p.cause = e.failure AND p.effect = d.failure)))
        ORDER BY NOT e.same_attempt, e.file_id <> d.file_id, abs(e.line_no - d.line), e.path,
          e.line_no LIMIT 1
        """,
        {"seen": list(seen)},
    ).fetchone()
    if found:
        return Check(text, "seen", *found)
    return Check(text, "not_seen" if _was_read(con, log) else "unknown", None, None)


def _was_read(con: duckdb.DuckDBPyConnection, log: str | None) -> bool:
    """Whether a log of this stream was read to its end, of the initiating host and of that time."""
    kinds = _LOGS.get(log or "")
    found = con.execute(
        """
        SELECT count(*) FROM live_files AS f, diagnosed AS d
        WHERE f.status = 'ok'
          AND CASE WHEN $kinds IS NULL THEN f.file_id = d.file_id
            ELSE list_contains($kinds, f.kind)
              AND coalesce(f.host = d.host, true)
              AND coalesce(f.run = d.run, true)
              AND coalesce(d.t0 BETWEEN f.first_ts - INTERVAL 1 DAY
                AND f.last_ts + INTERVAL 10 MINUTE, true) END
        """,
        {"kinds": None if kinds is None else list(kinds)},
    ).fetchone()
    return found is not None and found[0] > 0


def _resume(con: duckdb.DuckDBPyConnection) -> Resume:
    """The last checkpoint that a line says is complete, of this attempt or an earlier one.

    Not the one at whose load the attempt failed, whatever its save said.
    """
    rows = con.execute(
        """
        WITH bad AS (  -- what was being loaded when a checkpoint proved to be the cause
          SELECT coalesce(e.step::VARCHAR, e.captures['path']) AS loaded
          FROM diagnosed_events AS e, diagnosed AS d
          WHERE e.same_attempt AND e.failure = 'checkpoint-load-begin'
            AND (SELECT category = 'checkpoint' FROM failures WHERE failure = d.failure)
            AND NOT EXISTS (
              FROM diagnosed_events WHERE same_attempt
                AND failure IN ('checkpoint-loaded', 'training-step', 'checkpoint-begin'))
        )
        SELECT c.step, c.path, c.status, c.ranks_ok, c.file, c.line, c.tag, b.loaded IS NOT NULL
        FROM checkpoints AS c JOIN diagnosed AS d
          ON d.run = c.run AND c.cluster IS NOT DISTINCT FROM d.cluster
          AND coalesce(c.attempt <= d.attempt, true)
          AND coalesce(coalesce(c.t_end, c.t_begin) <= d.t0 + INTERVAL 2 SECOND, true)
        LEFT JOIN (SELECT DISTINCT loaded FROM bad) AS b
          ON b.loaded = c.step::VARCHAR OR (b.loaded = c.path AND contains(c.path, c.tag))
        ORDER BY b.loaded IS NOT NULL, c.status = 'complete' DESC, c.status = 'unverified' DESC,
          c.step DESC NULLS LAST, c.t_end DESC NULLS LAST, c.line DESC LIMIT 1
        """
    ).fetchall()
    if not rows:
        return Resume(None, None, None, "no line tells of a checkpoint")
    step, path, status, ranks_ok, file, line, tag, bad = rows[0]
    if bad:
        why = f"no other complete one is told of; the one of {tag} is what fails to load"
        return Resume(None, None, False, why)
    begun = f", begun at {file}:{line}," if file is not None else ""
    match status:
        case "complete":
            told = f"{ranks_ok} ranks say" if ranks_ok and ranks_ok > 1 else "a line says"
            return Resume(step, path, True, f"{told} that it was saved whole")
        case "unverified":
            why = f"its save{begun} may have ended: training went on, but no line says so"
            return Resume(step, path, None, why)
    what = "met trouble" if status == "failed" else "did not end"
    save = "a save" if tag is None else f"the save of {tag}"
    why = f"no complete one is told of; {save}{begun} {what}"
    return Resume(None, None, False, why)


def _coverage(
    con: duckdb.DuckDBPyConnection, run: str | None, row: Mapping[str, Any] | None
) -> Coverage:
    """What was read of all inputs, or of one run of a database, and who was silent."""
    found = con.execute(
        """
        SELECT count(*), coalesce(sum(lines), 0)::BIGINT FROM files
        WHERE status IN ('ok', 'truncated') AND kind IS DISTINCT FROM 'archive'
          AND ($run IS NULL OR $run IN (run, job))
        """,
        {"run": run},
    ).fetchone()
    files, lines = found or (0, 0)
    if row is None:
        spans = con.execute(
            "SELECT coalesce(max(ranks_seen), 0), max(world_size) FROM attempts "
            "WHERE $run IS NULL OR $run IN (run, job)",
            {"run": run},
        ).fetchone()
        seen, world = spans or (0, None)
        return Coverage(files, lines, seen, world, [])
    ranks = {
        rank
        for (rank,) in con.execute(
            """
            SELECT rank FROM diagnosed_events WHERE same_attempt AND rank IS NOT NULL
            UNION SELECT f.rank FROM live_files AS f JOIN diagnosed AS d
              ON f.run = d.run AND f.cluster IS NOT DISTINCT FROM d.cluster
              AND f.attempt IS NOT DISTINCT FROM d.attempt
            WHERE f.rank IS NOT NULL
            """
        ).fetchall()
    }
    world = row["world_size"]
    silent = [rank for rank in range(world or 0) if rank not in ranks] if ranks else []
    return Coverage(files, lines, len(ranks), world, silent)


def _timeline(con: duckdb.DuckDBPyConnection) -> tuple[Moment, ...]:
    """The first event of each rank, host and role, ranks that say the same at once together."""
    rows = con.execute(
        """
        SELECT min(seconds_between(d.t0, e.t0)), e.host,
          list_sort(list(DISTINCT e.rank) FILTER (e.rank IS NOT NULL)), e.role, e.failure,
          arg_min(e.path, (e.path, e.line_no)), arg_min(e.line_no, (e.path, e.line_no))
        FROM (
          SELECT * FROM diagnosed_events
          WHERE same_attempt AND role IN ('cause', 'confirmation', 'collateral', 'teardown')
          QUALIFY row_number() OVER (
            PARTITION BY rank, host, role ORDER BY t0 NULLS LAST, path, line_no) = 1
            OR event_id = (SELECT event_id FROM diagnosed)
        ) AS e, diagnosed AS d
        GROUP BY round(seconds_between(d.t0, e.t0)), e.host, e.role, e.failure,
          CASE WHEN e.t0 IS NULL OR d.t0 IS NULL THEN e.path END
        ORDER BY 1 NULLS LAST, min((e.path, e.line_no)), e.failure
        """
    ).fetchall()
    return tuple(
        Moment(seconds, host, ranks or [], role, failure, file, line)
        for seconds, host, ranks, role, failure, file, line in rows
    )


def _titles(con: duckdb.DuckDBPyConnection, ids: Iterable[str | None]) -> dict[str, str]:
    rows = con.execute(
        "SELECT failure, title FROM failures WHERE list_contains($ids, failure)",
        {"ids": [one for one in ids if one]},
    ).fetchall()
    return dict(rows)
