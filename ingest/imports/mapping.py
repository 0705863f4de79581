"""Read a table of any columns into one of ours, by a mapping: data that names columns and units."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa

from ingest import schema
from ingest.imports.values import Names, Problems, hosts, known, time_as, time_us

BUILT_IN = Path(__file__).parent / "mappings"
_TABLES = {
    table.name: table for table in (schema.JOBS, schema.NODES, schema.TIMINGS, schema.EVENTS)
}
_NEEDED = {
    "jobs": ("job",),
    "nodes": ("host",),
    "events": ("failure", "ts"),
    "timings": ("step", "rank"),
}
_FORMS = ("csv", "tsv", "json", "parquet")
_EPOCHS = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}
_HOSTS = frozenset({"host", "hosts", "failed_host"})
_USERS = frozenset({"user_hash", "cancelled_by"})
_TEXTS = frozenset({"name", "reason", "message", "account", "partition", "qos", "captures"})
_YEAR_2000 = 70  # two digits below are of this century
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()


class MappingError(Exception):
    """A mapping that cannot be used; the message names the place and the remedy."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Where a column comes from and what is done to it; one of the first five is given."""

    column: str | None = None
    constant: Any = None
    filled: tuple[str, ...] = ()  # the name of the first of these columns that holds something
    origin: str | None = None  # `file`: its name without suffix; `position`: of a nested row
    captures: Mapping[str, str] | None = None
    time: str | None = None  # iso, s, ms, us, ns, year-month, or a form of strptime
    zone: ZoneInfo | None = None
    scale: float = 1.0
    prefix: str = ""
    split: str | None = None
    count: bool = False  # how many values there are
    none: tuple[str, ...] = ()  # words that say there is none
    map: Mapping[str, Any] | None = None
    where: Mapping[str, Any] | None = None  # only rows that have one of these values


class Mapping_(NamedTuple):  # noqa: N801
    """A mapping: the target table and a rule a column."""

    name: str
    table: schema.Table
    source: str
    form: str | None
    delimiter: str | None
    rows: str | None  # a nested list whose items become rows
    merge: bool  # rows with the same key are one: numbers add up
    rules: Mapping[str, Rule]


def names() -> list[str]:
    """The mappings that are shipped."""
    return sorted(path.stem for path in BUILT_IN.glob("*.toml"))


def load(place: str) -> Mapping_:
    """A shipped mapping by its name, or one in a file. Raises MappingError."""
    path = BUILT_IN / f"{place}.toml"
    if place not in names():
        path = Path(place)
    try:
        text = path.read_text(encoding="utf-8")
        given = tomllib.loads(text)
    except FileNotFoundError:
        raise MappingError(
            f"--mapping {place}: no such file: give one, or one of {', '.join(names())}"
        ) from None
    except (OSError, ValueError) as error:
        raise MappingError(f"{place}: {error}: correct the mapping") from None
    return _checked(path.stem, place, given)


def _checked(name: str, place: str, given: dict[str, Any]) -> Mapping_:
    def wrong(what: str, remedy: str) -> MappingError:
        return MappingError(f"{place}: {what}: {remedy}")

    columns = given.pop("columns", None)
    table = _TABLES.get(str(given.pop("table", "")))
    if table is None or not isinstance(columns, dict) or not columns:
        raise wrong("no table and columns", f"give table = one of {', '.join(_TABLES)}, [columns]")
    form = given.pop("format", None)
    if form not in (None, *_FORMS):
        raise wrong(f"format {form!r} is not known", f"use {', '.join(_FORMS)}")
    zone = given.pop("zone", None)
    rules = {}
    for column, value in columns.items():
        if column not in table.schema.names:
            raise wrong(f"{table.name} has no column {column!r}", "see `firstfault schema`")
        rules[column] = _rule(place, column, value, zone)
    found = Mapping_(
        name=name,
        table=table,
        source=str(given.pop("source", name)),
        form=form,
        delimiter=given.pop("delimiter", None),
        rows=given.pop("rows", None),
        merge=bool(given.pop("merge", False)),
        rules=rules,
    )
    if given:
        raise wrong(f"{', '.join(given)}: not known", "see docs/import.md")
    missing = [one for one in _NEEDED[table.name] if one not in rules]
    if missing:
        raise wrong(f"{table.name} needs {', '.join(missing)}", "map it")
    return found


def _rule(place: str, column: str, value: Any, zone: str | None) -> Rule:
    if isinstance(value, str):
        value = {"column": value}
    if not isinstance(value, dict):
        raise MappingError(f"{place}: {column}: give a column's name or a table of keys")
    keys = dict(value)
    zone = keys.pop("zone", zone)
    try:
        for name in ("filled", "none"):
            keys[name] = tuple(map(str, keys.pop(name, ())))
        keys["origin"] = keys.pop("from", None)
        rule = Rule(**keys, zone=ZoneInfo(zone) if zone else None)
    except (TypeError, ValueError, OSError, KeyError) as error:
        raise MappingError(f"{place}: {column}: {error}: see docs/import.md") from None
    given = (rule.column, rule.constant, rule.filled or None, rule.origin, rule.captures)
    if sum(one is not None for one in given) != 1 or rule.origin not in (None, "file", "position"):
        raise MappingError(
            f"{place}: {column}: give one of column, constant, filled, captures, "
            'from = "file" or "position"'
        )
    return rule


def rows(
    mapping: Mapping_,
    file: BinaryIO,
    path: str,
    form: str,
    zone: ZoneInfo,
    names: Names,
    problems: Problems,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, row) of each record; raises MappingError where the file has not its columns."""
    stem = Path(path).name.partition(".")[0]
    readers = [
        (column, _reader(column, rule, mapping.table, zone, names, stem))
        for column, rule in mapping.rules.items()
    ]
    wanted = _wanted(mapping)
    needed = _NEEDED[mapping.table.name]
    first = True
    for line, record in _records(mapping, file, form, problems):
        if first and form != "json" and (lacking := wanted - record.keys()):
            raise MappingError(
                f"{path}: no column {', '.join(sorted(lacking))}: "
                "name the columns of this file in the mapping"
            )
        first = False
        row: dict[str, Any] = {"source": mapping.source} if mapping.table.name != "events" else {}
        try:
            for column, read in readers:
                row[column] = read(record)
        except (ValueError, TypeError, OverflowError) as error:
            problems.add(line, f"{column}: {str(error)[:160]}")
            continue
        if missing := [name for name in needed if row[name] is None]:
            problems.add(line, f"no {missing[0]}")
            continue
        yield line, row


def _wanted(mapping: Mapping_) -> set[str]:
    found: set[str] = set()
    for rule in mapping.rules.values():
        found.update(rule.filled, rule.where or (), (rule.captures or {}).values())
        if rule.column is not None:
            found.add(rule.column)
    return found


_Record = Mapping[str, Any]


def _reader(
    column: str, rule: Rule, table: schema.Table, zone: ZoneInfo, names: Names, stem: str
) -> Callable[[_Record], Any]:
    """What reads one column of a record."""
    kind = table.schema.field(column).type
    zone = rule.zone or zone
    where = {
        name: {str(one) for one in (value if isinstance(value, list) else [value])}
        for name, value in (rule.where or {}).items()
    }

    def read(record: _Record) -> Any:
        for name, values in where.items():
            if str(record.get(name)) not in values:
                return None
        value: Any
        if rule.captures is not None:
            found = {
                one: names.text(str(_get(record, at) or "")) for one, at in rule.captures.items()
            }
            return [(one, text) for one, text in found.items() if text is not None]
        if rule.constant is not None:
            value = rule.constant
        elif rule.filled:
            value = next((one for one in rule.filled if str(record.get(one) or "").strip()), None)
        elif rule.origin is not None:
            value = stem if rule.origin == "file" else record.get("#position")
        else:
            value = _get(record, rule.column or "")
        if rule.count:
            value = len(value) if isinstance(value, list) else int(value is not None)
        if isinstance(value, str) and (value in rule.none or known(value) is None):
            value = None
        if rule.map is not None:
            value = rule.map.get("" if value is None else str(value), value)
        if value is None or value == "":
            return None
        return _typed(column, kind, rule, value, zone, names)

    return read


def _typed(
    column: str, kind: pa.DataType, rule: Rule, value: Any, zone: ZoneInfo, names: Names
) -> Any:
    """The value as its column has it. Raises ValueError."""
    if pa.types.is_timestamp(kind):
        return _time(value, rule.time or "iso", zone)
    if pa.types.is_list(kind):
        parts = value if isinstance(value, list) else str(value).split(rule.split or "\0")
        if column not in _HOSTS:
            return [str(part) for part in parts]
        members = (one for part in parts for one in hosts(str(part).strip()))
        return [host for one in members if (host := names.host(one))] or None
    if pa.types.is_integer(kind):
        number = float(value) * rule.scale
        if number != int(number) and rule.scale == 1.0:
            raise ValueError(f"{value!r} is no whole number")
        return round(number)
    if pa.types.is_floating(kind):
        return float(value) * rule.scale
    text = rule.prefix + (value if isinstance(value, str) else _plain(value))
    if column in _HOSTS:
        return names.host(text)
    if column in _USERS:
        return names.user(text)
    return names.text(text) if column in _TEXTS else text.strip()


def _plain(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _time(value: Any, form: str, zone: ZoneInfo) -> int | None:
    if form in _EPOCHS:
        return round(float(value) * _EPOCHS[form])
    text = str(value)
    if form == "iso":
        return time_us(text, zone)
    if form == "year-month":  # 5-Apr and Apr-05 as spreadsheets write them
        first, _, last = text.partition("-")
        year, month = (first, last) if first.isdigit() else (last, first)
        number = int(year)
        full = number if number > 99 else number + (2000 if number < _YEAR_2000 else 1900)
        return time_us(f"{full:04d}-{_MONTHS.index(month[:3].lower()) + 1:02d}-01", zone)
    return time_as(text, form, zone)


def _get(record: _Record, path: str) -> Any:
    """A value by its name, else by its path through nested records and lists."""
    if path in record:
        return record[path]
    value: Any = record
    for name in path.split("."):
        if isinstance(value, list):
            nested = [one.get(name) for one in value if isinstance(one, dict)]
            value = [one for part in nested for one in (part if isinstance(part, list) else [part])]
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def _records(
    mapping: Mapping_, file: BinaryIO, form: str, problems: Problems
) -> Iterator[tuple[int, _Record]]:
    """(line, record) of the file; the line is the number of the record where there are none."""
    if form == "parquet":
        import pyarrow.parquet as pq

        columns = sorted(_wanted(mapping))
        table = pq.ParquetFile(io.BytesIO(file.read()))
        missing = set(columns) - set(table.schema_arrow.names)
        if missing:
            raise MappingError(
                f"{problems.path}: no column {', '.join(sorted(missing))}: "
                "name the columns of this file in the mapping"
            )
        number = 0
        for batch in table.iter_batches(columns=columns):
            for record in batch.to_pylist():
                number += 1
                yield number, record
        return
    if form == "json":
        for line, record in json_records(file, problems):
            yield from _nested(line, record, mapping.rows)
        return
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
    delimiter = mapping.delimiter or ("\t" if form == "tsv" else ",")
    reader = csv.reader((line.replace("\0", "") for line in text), delimiter=delimiter)
    heading: list[str] = []
    while True:
        begin = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problems.add(begin, str(error))
            continue
        if not heading:
            heading = [name.strip() for name in values]
        elif values and len(values) != len(heading):
            problems.add(begin, f"{len(values)} fields where the heading has {len(heading)}")
        elif values:
            yield begin, dict(zip(heading, values, strict=True))


def _nested(line: int, record: dict[str, Any], rows: str | None) -> Iterator[tuple[int, _Record]]:
    items = record.get(rows) if rows else None
    if rows is None:
        yield line, record
    for position, item in enumerate(items if isinstance(items, list) else ()):
        yield line, {**record, rows or "": item, "#position": position}


def json_records(file: BinaryIO, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of JSON lines, of an array, or of the `items` of one object.

    Of an array or of items the line is the number of the item.
    """
    data = file.read()
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        whole = None
    if whole is not None:
        items = whole.get("items", whole) if isinstance(whole, dict) else whole
        for number, item in enumerate(items if isinstance(items, list) else [items], 1):
            if isinstance(item, dict):
                yield number, item
            else:
                problems.add(number, "no object")
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.add(number, f"no JSON ({str(error)[:80]})")
            continue
        if isinstance(item, dict):
            yield number, item
        else:
            problems.add(number, "no object")
