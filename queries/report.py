"""Run reports: .sql files with a TOML header; hides headers, parameters, and DuckDB's errors.

A report is one SELECT. The comment lines at its top, without their `-- `, are TOML: `title`,
`description`, `[parameters.<name>]` (type, default, description, choices, minimum), `[columns]` in
the order of the query, and optionally `brief` (columns that matter most, for narrow output),
`chart`, `note` (a second SELECT of one text column, printed under the table) and `order` (its place
among all reports). Besides its own parameters every report uses the five of `COMMON`.

    con = connect(Path("firstfault.duckdb"), schema.ddl())
    result = run(con, load("incidents"), {"window_s": "60"})
    result.table                                  # a pyarrow.Table

ReportError
  +- DefinitionError   a report file is wrong
  +- ArgumentError     an unknown report, an unknown parameter, a bad value
  +- DatabaseError     the database cannot be opened or read

`names`, `load` and `arguments` work without importing DuckDB.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import re
import time
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_FOLDER = Path(__file__).parent / "reports"
_VIEWS = tuple(
    Path(__file__).parent / name
    for name in (
        "views.sql",
        "metrics.sql",
        "diagnosis.sql",
        "unclassified.sql",
        "scale.sql",
        "versions.sql",
    )
)


class ReportError(Exception):
    """Something a report needs is wrong; the message names it and the remedy."""


class DefinitionError(ReportError):
    """A report file is wrong."""


class ArgumentError(ReportError):
    """A report or parameter that does not exist, or a value that it cannot take."""


class DatabaseError(ReportError):
    """The database cannot be opened or read."""


Value: TypeAlias = str | int | float | bool | datetime | list[float] | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that a report takes; `default` None leaves it open."""

    name: str
    type: str
    description: str
    default: Value = None
    choices: tuple[str, ...] = ()
    minimum: float | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """What of the rows is drawn, by names of columns; "" is none.

    Kinds: bar (in the cells of the table), ranking, line, survival, points (logarithmic), heatmap.
    `limit` is a column or a quotient of two, `a / b`; `where` keeps rows with these texts, "" for
    NULL; a cell of a heatmap shows its `value` where `mask` is below 0.05.
    """

    kind: str
    x: str
    y: str
    lo: str = ""
    hi: str = ""
    limit: str = ""
    group: str = ""
    value: str = ""
    mask: str = ""
    title: str = ""
    where: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        """The columns that it needs."""
        found = (self.x, self.y, self.lo, self.hi, *self.limit.split(" / "), self.group)
        return [name for name in (*found, self.value, self.mask, *self.where) if name]


@dataclass(frozen=True, slots=True)
class Report:
    """A report as its file declares it; `parameters` begin with the common ones."""

    name: str
    title: str
    description: str
    sql: str
    columns: Mapping[str, str]
    parameters: Mapping[str, Parameter]
    brief: tuple[str, ...] = ()
    chart: Chart | None = None
    note: str | None = None
    order: int = 100
    path: Path | None = None


class Result(NamedTuple):
    """Rows of a report with the arguments as taken, defaults included."""

    report: Report
    arguments: Mapping[str, Value]
    table: pa.Table
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


COMMON: dict[str, Parameter] = {
    p.name: p
    for p in (
        Parameter("since", "TIMESTAMP", "Only what happened at this time (UTC) or later."),
        Parameter("until", "TIMESTAMP", "Only what happened before this time (UTC)."),
        Parameter("cluster", "VARCHAR", "Only this cluster."),
        Parameter("job", "VARCHAR", "Only this job, or this run where it has no job."),
        Parameter("failure", "VARCHAR", "Only this failure."),
    )
}

_TYPES = ("TIMESTAMP", "VARCHAR", "DOUBLE", "BIGINT", "BOOLEAN", "NUMBERS")
_KEYS = ("title", "description", "parameters", "columns", "brief", "chart", "note", "order")
_PARAMETER_KEYS = ("type", "default", "description", "choices", "minimum")
_CHARTS = ("bar", "ranking", "line", "survival", "points", "heatmap")
_CHART_KEYS = tuple(Chart.__dataclass_fields__)
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


# -- definitions -------------------------------------------------------------------------------


def names() -> list[str]:
    """Names of the reports that come with firstfault, in order."""
    return sorted(path.stem for path in _FOLDER.glob("*.sql"))


def all_reports() -> list[Report]:
    """All reports that come with firstfault, in reading order."""
    return sorted(map(load, names()), key=lambda report: (report.order, report.name))


def load(name: str | Path) -> Report:
    """The report of this name, or of a .sql file of yours.

    Raises ArgumentError for a name or file that does not exist, DefinitionError for a bad header.
    """
    text = str(name)
    if text.endswith(".sql"):
        path = Path(text)
    else:
        known = names()
        if text not in known:
            raise ArgumentError(
                f"no report {text!r}{_suggest(text, known)}: there are {', '.join(known)}"
            )
        path = _FOLDER / f"{text}.sql"
    try:
        sql = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path}: cannot be read ({error}): give a .sql file") from error
    return _parse(path, sql)


def _parse(path: Path, sql: str) -> Report:
    lines = []
    for line in sql.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line[3:] if line.startswith("-- ") else line[2:])
    if not lines:
        raise DefinitionError(f"{path}: has no header: begin it with lines of TOML behind `-- `")
    try:
        header = tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError as error:
        raise DefinitionError(f"{path}: header is not TOML: {error}") from error
    _known(path, "header", header, _KEYS)
    for key, kind in (("title", str), ("description", str), ("columns", dict)):
        if not isinstance(header.get(key), kind):
            raise DefinitionError(f"{path}: header has no {key}: add it")
    declared = header.get("parameters", {})
    parameters = dict(COMMON)
    for name, entry in declared.items():
        if name in COMMON:
            raise DefinitionError(
                f"{path}: parameter {name} is common to all reports: leave it out of the header"
            )
        parameters[name] = _parameter(path, name, entry)
    columns = {str(name): str(text) for name, text in header["columns"].items()}
    chart = header.get("chart")
    if chart is not None:
        _known(path, "chart", chart, _CHART_KEYS)
        chart = _chart(path, chart)
    brief = tuple(header.get("brief", ()))
    for name in (*brief, *(chart.names() if chart else ())):
        if name not in columns:
            raise DefinitionError(
                f"{path}: header names column {name!r}{_suggest(name, columns)}, "
                "which is not in [columns]: add it there"
            )
    return Report(
        name=path.stem,
        title=header["title"],
        description=header["description"].strip(),
        sql=sql,
        columns=columns,
        parameters=parameters,
        brief=brief,
        chart=chart,
        note=header.get("note"),
        order=int(header.get("order", 100)),
        path=path,
    )


def _chart(path: Path, header: Mapping[str, Any]) -> Chart:
    texts = {key: str(value) for key, value in header.items() if key != "where"}
    where = header.get("where", {})
    made = Chart(
        **{"kind": "None", "x": "None", "y": "None", **texts},
        where={name: str(text) for name, text in where.items()},
    )
    if made.kind not in _CHARTS:
        raise DefinitionError(
            f"{path}: chart kind {made.kind!r} is unknown: use one of {', '.join(_CHARTS)}"
        )
    if made.kind == "heatmap" and not made.value:
        raise DefinitionError(f"{path}: chart of kind heatmap has no value: name its column")
    return made


def _parameter(path: Path, name: str, entry: Any) -> Parameter:
    if not isinstance(entry, dict):
        raise DefinitionError(f"{path}: parameter {name} is not a table: use [parameters.{name}]")
    _known(path, f"parameter {name}", entry, _PARAMETER_KEYS)
    kind = entry.get("type")
    if kind not in _TYPES:
        raise DefinitionError(
            f"{path}: parameter {name} has type {kind!r}: use one of {', '.join(_TYPES)}"
        )
    if not entry.get("description"):
        raise DefinitionError(f"{path}: parameter {name} has no description: add it")
    parameter = Parameter(
        name=name,
        type=kind,
        description=entry["description"],
        choices=tuple(entry.get("choices", ())),
        minimum=entry.get("minimum"),
    )
    if "default" not in entry:
        return parameter
    try:
        return replace(parameter, default=_value(parameter, str(entry["default"])))
    except ValueError as error:
        raise DefinitionError(f"{path}: default of parameter {name} {error}") from error


def _known(path: Path, what: str, table: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in table:
        if key not in keys:
            raise DefinitionError(
                f"{path}: {what} has unknown key {key!r}{_suggest(key, keys)}: "
                f"known are {', '.join(keys)}"
            )


def _suggest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


# -- arguments ---------------------------------------------------------------------------------


def arguments(report: Report, given: Mapping[str, object]) -> dict[str, Value]:
    """What the report takes: every parameter with its value, given or default.

    Raises ArgumentError for a parameter that the report has not and for a bad value.
    """
    taken: dict[str, Value] = {name: p.default for name, p in report.parameters.items()}
    for name, value in given.items():
        parameter = report.parameters.get(name)
        if parameter is None:
            raise ArgumentError(
                f"report {report.name} has no parameter {name!r}"
                f"{_suggest(name, report.parameters)}: it takes {', '.join(report.parameters)}"
            )
        if value is None:
            continue
        try:
            taken[name] = _value(parameter, str(value))
        except ValueError as error:
            raise ArgumentError(f"report {report.name}: parameter {name} {error}") from error
    return taken


def _value(parameter: Parameter, text: str) -> Value:
    """The text as the parameter's type; ValueError says what is wrong and what to give."""
    value: Value
    match parameter.type:
        case "VARCHAR":
            value = text or None
        case "BOOLEAN":
            if text.lower() not in _BOOLEANS:
                raise ValueError(f"is {text!r}: give true or false")
            value = _BOOLEANS[text.lower()]
        case "TIMESTAMP":
            try:
                value = datetime.fromisoformat(text)
            except ValueError:
                raise ValueError(
                    f"is {text!r}: give a time as 2026-01-31 or 2026-01-31T12:00:00 (UTC)"
                ) from None
            if value.tzinfo is not None:
                value = value.astimezone(UTC).replace(tzinfo=None)
        case "NUMBERS":
            value = sorted({float(_number(parameter, part)) for part in text.split(",")})
        case _:
            value = _number(parameter, text)
    if parameter.choices and value is not None and value not in parameter.choices:
        raise ValueError(f"is {text!r}: give one of {', '.join(parameter.choices)}")
    return value


def _number(parameter: Parameter, text: str) -> int | float:
    whole = parameter.type == "BIGINT"
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or abs(number) >= 1e15:
        kind = "whole number" if whole else "number"
        several = "numbers separated by commas" if parameter.type == "NUMBERS" else f"a {kind}"
        raise ValueError(f"is {text!r}: give {several}")
    if parameter.minimum is not None and number < parameter.minimum:
        raise ValueError(f"is {text}: give {parameter.minimum:g} or more")
    return number


# -- the database ------------------------------------------------------------------------------


def views() -> str:
    """The SQL that creates the views and macros which reports build on.

    Run it in the database after every change of its tables; it is safe to run again.
    """
    text = "\n".join(path.read_text(encoding="utf-8") for path in _VIEWS)
    return f"{text}\nCREATE OR REPLACE MACRO views_digest() AS '{_digest(text)}';\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def connect(
    path: str | Path | None, ddl: str = "", version: int | None = None, read_only: bool = True
) -> duckdb.DuckDBPyConnection:
    """A connection that reports can run on.

    `ddl` creates the tables (IF NOT EXISTS): those that the database lacks are empty ones of this
    connection, so that a missing file, an empty one and None answer empty. `version` is the schema
    version that the caller understands. Raises DatabaseError.
    """
    import duckdb

    from queries import staging

    file = None if path is None else Path(path)
    if file is not None and (not file.exists() or (file.is_file() and not file.stat().st_size)):
        file = None
    try:
        if file is None:
            con = duckdb.connect(":memory:")
            con.execute(ddl)
        else:
            con = duckdb.connect(str(file), read_only=read_only)
            _check_version(con, file, version)
            _complete(con, ddl)
        prepare(con)
        if file is not None and read_only:
            staging.begin(con)
    except duckdb.Error as error:
        raise DatabaseError(_unopened(path, str(error))) from error
    return con


def prepare(con: duckdb.DuckDBPyConnection) -> None:
    """Give an open connection this version's views, for itself only, and the functions of reports.

    Safe to call again.
    """
    import duckdb

    from queries import stats, templates

    con.execute("SET TimeZone = 'UTC'")
    con.execute("SET enable_progress_bar = false")  # it would be drawn on stdout, among the rows
    con.execute("SET python_enable_replacements = false")  # a table name is never our variable
    try:
        found = con.execute("SELECT views_digest()").fetchall()
    except duckdb.Error:
        found = []
    text = views()
    if not found or f"'{found[0][0]}'" not in text:
        con.execute(text.replace("CREATE OR REPLACE ", "CREATE OR REPLACE TEMP "))
    stats.register(con)
    templates.register(con)


# A column of a CREATE TABLE, one a line.
_COLUMN = re.compile(r'^ *"(\w+)" (.+?)(?: USING COMPRESSION \w+)?,?$', re.MULTILINE)


def _complete(con: duckdb.DuckDBPyConnection, ddl: str) -> None:
    """Give this connection the tables that are missing, empty, and missing columns as NULL."""
    import duckdb

    have = {row[0] for row in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    for statement in duckdb.extract_statements(ddl):
        text = statement.query.strip()
        found = re.match(r'CREATE TABLE IF NOT EXISTS "?(\w+)', text)
        if not found:
            continue
        name = found.group(1)
        if name not in have:
            con.execute(text.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))
            continue
        rows = con.execute("SELECT name FROM pragma_table_info(?)", [name]).fetchall()
        columns = {row[0] for row in rows}
        lacking = [
            (column, kind) for column, kind in _COLUMN.findall(text) if column not in columns
        ]
        if lacking:
            added = ", ".join(f'NULL::{kind} AS "{column}"' for column, kind in lacking)
            [(home,)] = con.execute("SELECT current_database()").fetchall()
            con.execute(
                f'CREATE TEMP VIEW "{name}" AS SELECT *, {added} FROM "{home}".main."{name}"'  # noqa: S608
            )


def _check_version(con: duckdb.DuckDBPyConnection, path: Path, version: int | None) -> None:
    import duckdb

    if version is None:
        return
    try:
        [(found,)] = con.execute("SELECT max(schema_version) FROM firstfault").fetchall()
    except duckdb.CatalogException:
        return
    if found is not None and found != version:
        con.close()
        raise DatabaseError(
            f"{path}: schema version {found}, this firstfault reads {version}: "
            "use the firstfault that wrote it, or ingest into a new --db"
        )


def _unopened(path: str | Path | None, error: str) -> str:
    lowered = error.lower()
    if "conflicting lock" in lowered or "set lock" in lowered:
        process = re.search(r"\(PID (\d+)\)", error)
        who = f"process {process.group(1)}" if process else "another process"
        return (
            f"{path}: {who} has it open for writing: wait until its ingest ends, "
            "or report on a copy of the file"
        )
    if "not a valid duckdb database" in lowered:
        return f"{path}: is no DuckDB database: give the file that ingest wrote as --db"
    if "is a directory" in lowered:
        return f"{path}: is a directory: give the database file in it"
    if "version number" in lowered or "newer version" in lowered:
        return f"{path}: written by a newer DuckDB: upgrade with pip install -U duckdb"
    return f"{path}: cannot be read ({_first_line(error)}): ingest again into a new --db"


def _first_line(error: str) -> str:
    return error.strip().split("\n", 1)[0]


# -- running -----------------------------------------------------------------------------------


def run(
    con: duckdb.DuckDBPyConnection, report: Report, given: Mapping[str, object] | None = None
) -> Result:
    """The rows of a report. Values are bound, never spliced into the SQL.

    Raises ArgumentError, DefinitionError, or DatabaseError where the query fails.
    """
    taken = arguments(report, given or {})
    started = time.perf_counter()
    used, noted = _statements(report)
    _stage(con, f"{report.sql}\n{report.note or ''}")
    table = _select(con, report, report.sql, {name: taken[name] for name in used})
    if table.column_names != list(report.columns):
        raise DefinitionError(_columns_differ(report, table.column_names))
    notes: tuple[str, ...] = ()
    if report.note is not None:
        rows = _select(con, report, report.note, {name: taken[name] for name in noted})
        notes = tuple(str(text) for text in rows.column(0).to_pylist() if text is not None)
    return Result(report, taken, table, notes, time.perf_counter() - started)


_READING = frozenset(("SELECT", "EXPLAIN", "PRAGMA"))


def query(con: duckdb.DuckDBPyConnection, sql: str) -> Result:
    """The rows of one statement of the user's that only reads; its columns are the report's.

    Raises DatabaseError with what DuckDB says of it, ArgumentError for a statement that writes: a
    read-only connection would still COPY to any file.
    """
    import duckdb

    started = time.perf_counter()
    try:
        statements = con.extract_statements(sql)
        kinds = [statement.type.name for statement in statements]
        if len(kinds) != 1 or kinds[0] not in _READING:
            raise ArgumentError(
                f"sql: {', '.join(kinds).lower() or 'nothing'}: give one SELECT, DESCRIBE, SHOW or "
                "EXPLAIN; write results with --format and -o"
            )
        _stage(con, sql)
        table = con.sql(statements[0]).to_arrow_table()
    except duckdb.Error as error:
        raise DatabaseError(f"sql: {str(error).strip()}") from error
    columns = dict.fromkeys(table.column_names, "")
    report = Report("sql", "SQL", "", sql, columns, {})
    return Result(report, {}, table, seconds=time.perf_counter() - started)


def _stage(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Work out the views that the query shares with others, where the tables are at rest."""
    import duckdb

    from queries import staging

    try:
        staging.stage(con, sql, views())
    except duckdb.Error as error:
        raise DatabaseError(
            f"database: {_first_line(str(error))}: where it is older than this firstfault, "
            "ingest into a new --db"
        ) from error


def check(report: Report, ddl: str) -> None:
    """Bind a report on empty tables; DefinitionError where header and query disagree."""
    con = connect(None, ddl)
    try:
        run(con, report)
    except DatabaseError as error:
        reason = _first_line(str(error.__cause__))
        raise DefinitionError(f"{report.path}: query does not run: {reason}") from error
    finally:
        con.close()


def _select(
    con: duckdb.DuckDBPyConnection, report: Report, sql: str, values: Mapping[str, Value]
) -> pa.Table:
    import duckdb

    try:
        table: pa.Table = con.sql(sql, params=dict(values)).to_arrow_table()
    except duckdb.Error as error:
        raise DatabaseError(
            f"report {report.name}: {_first_line(str(error))}: "
            "where the database is older than this firstfault, ingest into a new --db"
        ) from error
    return table


def _statements(report: Report) -> tuple[set[str], set[str]]:
    """Parameters that the query uses, and those that the note uses."""
    import duckdb

    found: list[set[str]] = []
    for what, sql in (("query", report.sql), ("note", report.note or "SELECT NULL")):
        try:
            statements = duckdb.extract_statements(sql)
        except duckdb.Error as error:
            message = _first_line(str(error))
            raise DefinitionError(f"{report.path}: {what} is not SQL: {message}") from error
        kinds = [statement.type.name for statement in statements]
        if kinds != ["SELECT"]:
            got = ", ".join(kinds) or "nothing"
            raise DefinitionError(f"{report.path}: {what} is {got}: write exactly one SELECT")
        found.append(set(statements[0].named_parameters))
    used = found[0] | found[1]
    for name in sorted(used - report.parameters.keys()):
        raise DefinitionError(
            f"{report.path}: query uses ${name}{_suggest(name, report.parameters)}, "
            f"which is not declared: add [parameters.{name}]"
        )
    for name, parameter in report.parameters.items():
        if name not in used:
            why = "every report takes it" if name in COMMON else "it is declared"
            remedy = "use it" if name in COMMON else f"use it or drop [parameters.{parameter.name}]"
            raise DefinitionError(f"{report.path}: query does not use ${name}, {why}: {remedy}")
    return found[0], found[1]


def _columns_differ(report: Report, got: list[str]) -> str:
    want = list(report.columns)
    for name in want:
        if name not in got:
            return (
                f"{report.path}: [columns] has {name!r}{_suggest(name, got)}, "
                "which the query does not return: drop it or select it"
            )
    for name in got:
        if name not in want:
            return (
                f"{report.path}: query returns {name!r}{_suggest(name, want)}, "
                "which [columns] lacks: describe it there"
            )
    return f"{report.path}: [columns] are not in the query's order: it returns {', '.join(got)}"
