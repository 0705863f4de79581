"""Load the encyclopedia of failures from TOML into frozen, checked objects, all problems at once.

A catalogue is `failures/*.toml` (entries with their signatures and the lines that prove them) and,
beside them, `tables/*.toml` (path classes, cause -> effect edges, readings, traits, code tables).
This module knows the shape of those files and nothing of Hyperscan: listing and completion stay
fast.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from matcher.cache import keep, place_of, recall

ROLES = ("cause", "collateral", "confirmation", "context", "progress", "teardown")
SEVERITIES = ("critical", "high", "medium", "low", "info")
CATEGORIES = (
    *("hardware", "collective", "storage", "checkpoint", "config", "network", "memory"),
    *("scheduler", "process", "launcher", "straggler", "data", "numerics", "tracking"),
    "progress",
)
LIFECYCLE = (  # of a run, in their order
    *("launch", "initialise", "checkpoint-load", "data-loading", "forward-backward", "step"),
    *("offload", "checkpoint-save", "serve", "teardown", "any"),
)
STREAMS = ("kernel", "stdout", "launcher", "scheduler", "k8s-event")
BASES = ("source", "log", "inference")
CONTROLS = ("configuration", "capacity", "transport", "hardware", "input")
SCOPES = ("same-rank", "same-host", "same-run", "fleet", "next-attempt")
PHASES = ("start", "step", "save", "load", "done")
SHOWN = ("event", "begin", "needs")
TRAITS = ("precursor", "frame", "witness", "shared", "stays", "main-rank")

BUILT_IN = Path(__file__).parent / "failures"

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Issue(NamedTuple):
    """One problem of a catalogue: where it stands, what it is, what to do about it."""

    source: str
    id: str
    message: str
    help: str

    def __str__(self) -> str:
        where = f"{self.source}: {self.id}" if self.id else self.source
        return f"{where}: {self.message}\n  help: {self.help}"


class CatalogueError(Exception):
    """A catalogue cannot be used; `issues` holds everything that is wrong with it."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        self.issues = tuple(issues)
        super().__init__("\n".join(map(str, self.issues)))


_MOST_LAG_US = 366 * 86_400 * 1_000_000


class Lag(NamedTuple):
    """The capture that says how long the line's process had hung, and its unit (ms or s)."""

    capture: str
    unit: str

    def microseconds(self, value: str) -> int:
        """The lag in µs; 0 where the value is no number or more than anybody waits."""
        try:
            lag = int(float(value) * (1_000 if self.unit == "ms" else 1_000_000))
        except (ValueError, OverflowError):
            return 0
        return lag if 0 < lag < _MOST_LAG_US else 0


class Pair(NamedTuple):
    """What this signature completes: the beginning signature and the capture that joins them."""

    begin: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Threshold:
    """How many within how long, per what, before the lines mean anything."""

    count: int
    window_s: float
    scope: str = "rank"


@dataclass(frozen=True, slots=True)
class Signature:
    """One pattern of a failure. `pattern` runs in Hyperscan on blocks and in `re` on one line."""

    id: str
    failure: str
    role: str
    pattern: str
    match: tuple[str, ...]
    no_match: tuple[str, ...]
    why: str = ""
    also: tuple[str, ...] = ()
    fallback: bool = False
    supersedes: tuple[str, ...] = ()
    stream: tuple[str, ...] = ()
    frequent: bool = False
    metric: bool = False
    lag: Lag | None = None
    pair: Pair | None = None
    dedupe_s: float | None = None
    threshold: Threshold | None = None
    points_to: str | None = None
    follows: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    source: str = field(default="", compare=False)


class Sign(NamedTuple):
    """What in the logs shows a check of `confirm`: ids of failures or signatures.

    `number` is the place of the check in `confirm`, from 0; `log` the stream that would have it.
    """

    number: int
    seen: tuple[str, ...]
    log: str = "stdout"


class Variant(NamedTuple):
    """What is different of a failure where its path is of this class; "" and () say: nothing."""

    path_class: str
    mechanism: str = ""
    fix: tuple[str, ...] = ()
    verify: str = ""
    prevention: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """One entry of the encyclopedia: a kind of thing that goes wrong, and its symptoms."""

    id: str
    title: str
    component: str
    category: str
    severity: str
    mechanism: str
    confirm: tuple[str, ...]
    fix: tuple[str, ...]
    signatures: tuple[Signature, ...]
    tags: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    affected: tuple[str, ...] = ()
    verify: str = ""
    prevention: str = ""
    related: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    signs: tuple[Sign, ...] = ()
    variants: tuple[Variant, ...] = ()
    source: str = field(default="", compare=False)


class Control(NamedTuple):
    """The control that tells failures of a category from others: what to change, and its kind."""

    category: str
    control: str
    test: str


class Edge(NamedTuple):
    """A known cause -> effect edge between failures, with its lag window in seconds."""

    cause: str
    effect: str
    scope: str
    lag_lo_s: float
    lag_hi_s: float
    basis: str


class Reading(NamedTuple):
    """What a line that is no cause by itself stands for, in a phase of its attempt.

    `event` is a failure or a signature; it is read as the failure `becomes` where the attempt was
    in `phase` (any where None) and, with `needs`, where an event of that failure or signature
    stands before it; with `quiet` only where a rank of the attempt does not print it, with `apart`
    only where one rank waits in another collective than the others do, with `lags` only where ranks
    are behind in a group and wait for nobody themselves. Where `attempts` is more
    than 1, it is the verdict on so many attempts that is read: same failure, rank and step.
    `shows` says which line is decisive: its own, that which began the phase, or the needed one.
    """

    event: str
    becomes: str
    phase: str | None
    needs: str | None
    quiet: bool
    apart: bool
    lags: bool
    attempts: int
    shows: str
    why: str


class Trait(NamedTuple):
    """What diagnosis must know of a failure or signature; see docs/catalogue.md for the words."""

    subject: str
    trait: str
    why: str


class PathClass(NamedTuple):
    """A class of paths (nvme_swap, checkpoint, ...) and the pattern that tells it."""

    name: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All failures, in file order. A signature's place in `signatures` is its engine number."""

    failures: tuple[Failure, ...]
    precedence: tuple[Edge, ...] = ()
    path_classes: tuple[PathClass, ...] = ()
    readings: tuple[Reading, ...] = ()
    traits: tuple[Trait, ...] = ()
    controls: tuple[Control, ...] = ()
    # SHA-256 of the content (16 hex digits); where the files lie does not matter.
    digest: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.digest:
            content = _packed(self, sources=False).encode()
            object.__setattr__(self, "digest", hashlib.sha256(content).hexdigest()[:16])

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """Signatures of all failures, numbered by their place."""
        return tuple(s for failure in self.failures for s in failure.signatures)

    @property
    def by_id(self) -> dict[str, Failure]:
        """Failures by id."""
        return {failure.id: failure for failure in self.failures}

    def without_metrics(self) -> Catalogue:
        """What to look for where metrics are not asked for; the digest is that of its content."""
        return replace(
            self,
            failures=tuple(
                replace(f, signatures=tuple(s for s in f.signatures if not s.metric))
                if any(s.metric for s in f.signatures)
                else f
                for f in self.failures
            ),
            digest="",
        )

    def for_workers(self) -> Catalogue:
        """What finding and recording take, under the same digest: a third of the bytes to send."""
        return replace(
            self,
            failures=tuple(
                Failure(
                    id=failure.id,
                    title="",
                    component=failure.component,
                    category=failure.category,
                    severity=failure.severity,
                    mechanism="",
                    confirm=(),
                    fix=(),
                    signatures=tuple(
                        replace(signature, match=(), no_match=(), why="")
                        for signature in failure.signatures
                    ),
                    source=failure.source,
                )
                for failure in self.failures
            ),
            precedence=(),
            readings=(),
            traits=(),
            controls=(),
        )


# -- as plain lists, for the digest and the cache -------------------------------------------------

_FIELDS = {shape: tuple(one.name for one in fields(shape)) for shape in (Failure, Signature)}
_SIGNATURES = _FIELDS[Failure].index("signatures")
_PARTS_OF_FAILURE = tuple(
    (_FIELDS[Failure].index(name), shape)
    for name, shape in (("signs", Sign), ("variants", Variant))
)
_TABLES = tuple(
    (_FIELDS[Signature].index(name), shape)
    for name, shape in (("lag", Lag), ("pair", Pair), ("threshold", Threshold))
)


_ROWS = {
    "precedence": Edge,
    "path_classes": PathClass,
    "readings": Reading,
    "traits": Trait,
    "controls": Control,
}


def _packed(catalogue: Catalogue, *, sources: bool) -> str:
    """The catalogue as JSON: values in the order of the fields, `source` last, tuples as lists."""
    stop = None if sources else -1
    of_failure = attrgetter(*_FIELDS[Failure][:stop])
    of_signature = attrgetter(*_FIELDS[Signature][:stop])
    entries = []
    for failure in catalogue.failures:
        entries.append(list(of_failure(failure)))
        entries[-1][_SIGNATURES] = [of_signature(one) for one in failure.signatures]
    tables = [getattr(catalogue, name) for name in _ROWS]
    content = [list(_FIELDS.values()), entries, *tables]
    return json.dumps(content, default=astuple)


def _unpacked(packed: str | bytes, digest: str) -> Catalogue:
    _, entries, *tables = json.loads(packed)
    failures = []
    for values in entries:
        values[_SIGNATURES] = [_signature(one) for one in values[_SIGNATURES]]
        for place, shape in _PARTS_OF_FAILURE:
            values[place] = [shape(*map(_freeze, one)) for one in values[place]]
        failures.append(Failure(*map(_freeze, values)))
    rows: list[Any] = [
        tuple(shape(*row) for row in table)
        for shape, table in zip(_ROWS.values(), tables, strict=True)
    ]
    edges, classes, readings, traits, controls = rows
    return Catalogue(tuple(failures), edges, classes, readings, traits, controls, digest)


def _signature(values: list[Any]) -> Signature:
    for place, shape in _TABLES:
        if values[place] is not None:
            values[place] = shape(*values[place])
    return Signature(*map(_freeze, values))


# Shape of the files: key -> (type, required). The type "strings" is a list of strings.
_FAILURE_KEYS: dict[str, tuple[str, bool]] = {
    "id": ("id", True),
    "title": ("string", True),
    "component": ("string", True),
    "category": ("string", True),
    "severity": ("string", True),
    "tags": ("strings", False),
    "phases": ("strings", False),
    "mechanism": ("string", True),
    "affected": ("strings", False),
    "confirm": ("checks", True),
    "fix": ("strings", True),
    "verify": ("string", False),
    "prevention": ("string", False),
    "related": ("strings", False),
    "references": ("strings", False),
    "variant": ("tables", False),
    "signature": ("tables", True),
}
_CHECK_KEYS: dict[str, tuple[str, bool]] = {
    "check": ("string", True),
    "seen": ("strings", True),
    "log": ("string", False),
}
_VARIANT_KEYS: dict[str, tuple[str, bool]] = {
    "path_class": ("string", True),
    "mechanism": ("string", False),
    "fix": ("strings", False),
    "verify": ("string", False),
    "prevention": ("string", False),
}
_SIGNATURE_KEYS: dict[str, tuple[str, bool]] = {
    "id": ("id", True),
    "role": ("string", True),
    "why": ("string", False),
    "pattern": ("string", True),
    "match": ("strings", True),
    "no_match": ("strings", True),
    "also": ("strings", False),
    "fallback": ("boolean", False),
    "supersedes": ("strings", False),
    "stream": ("strings", False),
    "frequent": ("boolean", False),
    "metric": ("boolean", False),
    "lag": ("table", False),
    "pair": ("table", False),
    "dedupe_s": ("number", False),
    "threshold": ("table", False),
    "points_to": ("string", False),
    "follows": ("strings", False),
    "since": ("string", False),
    "until": ("string", False),
}
_CLOSED: dict[str, Sequence[str]] = {
    "role": ROLES,
    "severity": SEVERITIES,
    "category": CATEGORIES,
    "log": STREAMS,
}
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "id": (lambda v: isinstance(v, str), "a kebab-case string"),
    "string": (lambda v: isinstance(v, str) and v != "", "a non-empty string"),
    "strings": (
        lambda v: isinstance(v, list) and all(isinstance(x, str) and x for x in v),
        "a list of non-empty strings",
    ),
    "checks": (
        lambda v: (
            isinstance(v, list)
            and all((isinstance(x, str) and x) or isinstance(x, dict) for x in v)
        ),
        'a list of strings, or of { check = "...", seen = ["id"] }',
    ),
    "boolean": (lambda v: isinstance(v, bool), "true or false"),
    "number": (lambda v: isinstance(v, int | float) and not isinstance(v, bool), "a number"),
    "table": (lambda v: isinstance(v, dict), "a table"),
    "tables": (
        lambda v: isinstance(v, list) and bool(v) and all(isinstance(x, dict) for x in v),
        "one or more tables",
    ),
}


def load(*directories: Path, cache: Path | None = None) -> Catalogue:
    """The catalogue of these directories together; without any, the built-in one.

    Raises CatalogueError with every problem found in the shape of the files. Patterns are compiled
    by the engine, examples are run by `matcher.check`. In the directory `cache` sound catalogues
    are kept, by all bytes of their files.
    """
    issues: list[Issue] = []
    found = [_files(directory, issues) for directory in directories or (BUILT_IN,)]
    place = None
    if cache and not issues:
        place = place_of(cache, ".json", __file__, _parts(found))
        if kept := recall(place):
            return _unpacked(kept[16:], kept[:16].decode())
    failures: list[Failure] = []
    rows: dict[str, list[Any]] = {name: [] for name in _ROWS}
    for entries, tables in found:
        for file in entries:
            failures += _read_failures(file, issues)
        for file in tables:
            name, read = _TABLE_FILES[file.name]
            rows[name] += read(file, issues)
    _check_references(failures, rows, issues)
    if issues:
        raise CatalogueError(issues)
    edges, classes, readings, traits, controls = (tuple(table) for table in rows.values())
    catalogue = Catalogue(tuple(failures), edges, classes, readings, traits, controls)
    if place:
        keep(place, (catalogue.digest + _packed(catalogue, sources=True)).encode())
    return catalogue


class _File(NamedTuple):
    name: str
    text: bytes


def _files(directory: Path, issues: list[Issue]) -> tuple[list[_File], list[_File]]:
    """The files of entries and those of tables, as they are now."""
    entries = sorted(directory.glob("*.toml"))
    if not entries:
        issues.append(
            Issue(
                str(directory),
                "",
                "no catalogue files",
                "name a directory that holds *.toml files with [[failure]] entries",
            )
        )
    beside = directory.parent / "tables" if directory == BUILT_IN else directory / "tables"
    tables = [place for name in _TABLE_FILES if (place := beside / name).exists()]
    read: tuple[list[_File], list[_File]] = [], []
    for paths, files_ in zip((entries, tables), read, strict=True):
        for path in paths:
            try:
                files_.append(_File(path.name, path.read_bytes()))
            except OSError as error:
                reason = f"cannot be read: {error.strerror}"
                issues.append(Issue(path.name, "", reason, "check the file's rights"))
    return read


def _parts(found: Iterable[tuple[list[_File], list[_File]]]) -> Iterator[bytes]:
    """All that a catalogue is made of, told apart by its place."""
    for kinds in found:
        for files_ in kinds:
            yield len(files_).to_bytes(4, "big")
            for file in files_:
                yield file.name.encode(errors="surrogateescape")
                yield file.text


def _read_toml(file: _File, issues: list[Issue]) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(file.text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        issues.append(Issue(file.name, "", f"not valid TOML: {error}", "mend it at that place"))
    return {}


def _read_failures(file: _File, issues: list[Issue]) -> Iterator[Failure]:
    document = _read_toml(file, issues)
    for key in document.keys() - {"failure"}:
        issues.append(Issue(file.name, "", f"unknown table '{key}'", "entries are [[failure]]"))
    entries = document.get("failure", [])
    if not isinstance(entries, list) or not all(isinstance(x, dict) for x in entries):
        issues.append(Issue(file.name, "", "'failure' is not a list", "write [[failure]]"))
        return
    for number, entry in enumerate(entries, 1):
        name = entry.get("id") if isinstance(entry.get("id"), str) else f"entry {number}"
        before = len(issues)
        _check_keys(entry, _FAILURE_KEYS, file.name, str(name), issues)
        for key, keys in (("confirm", _CHECK_KEYS), ("variant", _VARIANT_KEYS)):
            for child in entry.get(key, []) if len(issues) == before else ():
                if isinstance(child, dict):
                    _check_keys(child, keys, file.name, f"{name}: {key}", issues)
        _check_words(entry, "phases", LIFECYCLE, file.name, str(name), issues)
        for child in entry.get("signature", []) if len(issues) == before else ():
            label = child.get("id") if isinstance(child.get("id"), str) else f"{name}: signature"
            _check_keys(child, _SIGNATURE_KEYS, file.name, str(label), issues)
            _check_words(child, "stream", STREAMS, file.name, str(label), issues)
            _check_tables(child, file.name, str(label), issues)
        if len(issues) == before:
            yield _failure(entry, file.name)


def _check_keys(
    entry: Mapping[str, Any],
    keys: Mapping[str, tuple[str, bool]],
    source: str,
    name: str,
    issues: list[Issue],
) -> None:
    for key in entry.keys() - keys.keys():
        near = _near(key, keys)
        issues.append(
            Issue(
                source,
                name,
                f"unknown key '{key}'",
                f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(keys)}",
            )
        )
    for key, (kind, required) in keys.items():
        if key not in entry:
            if required:
                issues.append(Issue(source, name, f"'{key}' is missing", f"add {key} = ..."))
            continue
        value = entry[key]
        valid, wanted = _TYPES[kind]
        if not valid(value):
            issues.append(Issue(source, name, f"'{key}' is {value!r}", f"give {wanted}"))
        elif kind == "id" and not _ID.fullmatch(value):
            issues.append(
                Issue(source, name, f"id {value!r} is not kebab-case", "use a-z, 0-9 and single -")
            )
        elif required and value == []:
            issues.append(Issue(source, name, f"'{key}' is empty", "give at least one"))
        if key in _CLOSED and isinstance(value, str) and value not in _CLOSED[key]:
            help_ = _one_of(value, _CLOSED[key])
            issues.append(Issue(source, name, f"{key} {value!r} is unknown", help_))


def _check_words(
    entry: Mapping[str, Any],
    key: str,
    closed: Sequence[str],
    source: str,
    name: str,
    issues: list[Issue],
) -> None:
    """The words of a list must be of a closed list; its type is checked elsewhere."""
    words = entry.get(key, ())
    for word in words if isinstance(words, list) else ():
        if isinstance(word, str) and word not in closed:
            issues.append(Issue(source, name, f"{key} {word!r} is unknown", _one_of(word, closed)))


def _check_tables(entry: Mapping[str, Any], source: str, name: str, issues: list[Issue]) -> None:
    for key, shape, example in (
        ("lag", Lag, 'lag = { capture = "ran_ms", unit = "ms" }'),
        ("pair", Pair, 'pair = { begin = "signature-id", key = "step" }'),
        ("threshold", Threshold, 'threshold = { count = 20, window_s = 600, scope = "rank" }'),
    ):
        if isinstance(entry.get(key), dict):
            try:
                made = shape(**entry[key])
            except TypeError:
                made = None
            plain = all(isinstance(value, str | int | float) for value in entry[key].values())
            if not made or not plain or (isinstance(made, Lag) and made.unit not in ("ms", "s")):
                issues.append(Issue(source, name, f"'{key}' is {entry[key]!r}", f"like {example}"))


def _failure(entry: Mapping[str, Any], source: str) -> Failure:
    signatures = tuple(
        Signature(
            failure=entry["id"],
            source=source,
            **{
                key: {"lag": Lag, "pair": Pair, "threshold": Threshold}[key](**value)
                if isinstance(value, dict)
                else _freeze(value)
                for key, value in child.items()
            },
        )
        for child in entry["signature"]
    )
    asked = [one if isinstance(one, dict) else {"check": one} for one in entry["confirm"]]
    taken = ("signature", "confirm", "variant")
    rest = {key: _freeze(value) for key, value in entry.items() if key not in taken}
    return Failure(
        signatures=signatures,
        source=source,
        confirm=tuple(one["check"] for one in asked),
        signs=tuple(
            Sign(number, tuple(one["seen"]), one.get("log", "stdout"))
            for number, one in enumerate(asked)
            if "seen" in one
        ),
        variants=tuple(
            Variant(**{key: _freeze(value) for key, value in one.items()})
            for one in entry.get("variant", ())
        ),
        **rest,
    )


def _freeze(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _rows(file: _File, key: str, issues: list[Issue]) -> Iterator[dict[str, Any]]:
    for row in _read_toml(file, issues).get(key, []):
        yield row if isinstance(row, dict) else {}


def _read_edges(file: _File, issues: list[Issue]) -> Iterator[Edge]:
    for row in _rows(file, "edge", issues):
        try:
            low, high = row["lag_s"]
            if not all(map(_TYPES["number"][0], (low, high))):
                raise TypeError
            edge = Edge(row["cause"], row["effect"], row["scope"], low, high, row["basis"])
        except (KeyError, TypeError, ValueError):
            issues.append(
                Issue(
                    file.name,
                    str(row.get("cause", "")),
                    "incomplete edge",
                    "give cause, effect, scope, lag_s = [low, high], basis",
                )
            )
            continue
        for value, closed in ((edge.scope, SCOPES), (edge.basis, BASES)):
            if value not in closed:
                help_ = _one_of(value, closed)
                issues.append(Issue(file.name, edge.cause, f"{value!r} is unknown", help_))
        yield edge


def _read_controls(file: _File, issues: list[Issue]) -> Iterator[Control]:
    for row in _rows(file, "control", issues):
        try:
            control = Control(row["category"], row["control"], row["test"])
        except KeyError as error:
            name = str(row.get("category", ""))
            help_ = "give category, control, test"
            issues.append(Issue(file.name, name, f"{error} is missing", help_))
            continue
        for value, closed in ((control.category, CATEGORIES), (control.control, CONTROLS)):
            if value not in closed:
                reason, help_ = f"{value!r} is unknown", f"one of {list(closed)}"
                issues.append(Issue(file.name, control.category, reason, help_))
        yield control


def _read_path_classes(file: _File, issues: list[Issue]) -> Iterator[PathClass]:
    for row in _rows(file, "path_class", issues):
        try:
            re.compile(row["pattern"].encode())
            yield PathClass(row["name"], row["pattern"])
        except (KeyError, AttributeError, re.error) as error:
            issues.append(
                Issue(
                    file.name,
                    str(row.get("name", "")),
                    f"bad path class: {error}",
                    "give name and a pattern that `re` compiles",
                )
            )


def _read_readings(file: _File, issues: list[Issue]) -> Iterator[Reading]:
    for row in _rows(file, "reading", issues):
        try:
            reading = Reading(
                row["event"],
                row["becomes"],
                row.get("phase"),
                row.get("needs"),
                row.get("quiet", False),
                row.get("apart", False),
                row.get("lags", False),
                row.get("attempts", 1),
                row.get("shows", "event"),
                row["why"],
            )
        except KeyError as missing:
            issues.append(
                Issue(
                    file.name,
                    str(row.get("event", "")),
                    f"incomplete reading: no {missing.args[0]}",
                    "give event, becomes and why; the other keys where they matter",
                )
            )
            continue
        for value, closed in ((reading.phase or PHASES[0], PHASES), (reading.shows, SHOWN)):
            if value not in closed:
                issues.append(
                    Issue(
                        file.name, reading.event, f"{value!r} is unknown", f"one of {list(closed)}"
                    )
                )
        yield reading


def _read_traits(file: _File, issues: list[Issue]) -> Iterator[Trait]:
    for row in _rows(file, "trait", issues):
        try:
            trait = Trait(row["of"], row["is"], row["why"])
        except KeyError as missing:
            issues.append(
                Issue(
                    file.name,
                    str(row.get("of", "")),
                    f"incomplete trait: no {missing.args[0]}",
                    "give of, is and why",
                )
            )
            continue
        if trait.trait not in TRAITS:
            issues.append(
                Issue(
                    file.name,
                    trait.subject,
                    f"{trait.trait!r} is unknown",
                    f"one of {list(TRAITS)}",
                )
            )
        yield trait


# File beside the entries -> the field of a catalogue that holds its rows, and what reads them.
_TABLE_FILES: dict[str, tuple[str, Callable[[_File, list[Issue]], Iterator[Any]]]] = {
    "precedence.toml": ("precedence", _read_edges),
    "path_class.toml": ("path_classes", _read_path_classes),
    "readings.toml": ("readings", _read_readings),
    "traits.toml": ("traits", _read_traits),
    "controls.toml": ("controls", _read_controls),
}


def _check_references(
    failures: Iterable[Failure], rows: Mapping[str, Sequence[Any]], issues: list[Issue]
) -> None:
    seen: dict[str, str] = {}
    signatures: dict[str, Signature] = {}
    failures = list(failures)
    named = [one.name for one in rows["path_classes"]]
    for failure in failures:
        if failure.id in seen:
            issues.append(
                Issue(
                    failure.source,
                    failure.id,
                    f"failure id also in {seen[failure.id]}",
                    "ids are unique over all catalogue files: rename one",
                )
            )
        seen[failure.id] = failure.source
        for signature in failure.signatures:
            if signature.id in signatures:
                issues.append(
                    Issue(
                        signature.source,
                        signature.id,
                        f"signature id also in {signatures[signature.id].source}",
                        "ids are unique over all catalogue files: rename one",
                    )
                )
            signatures[signature.id] = signature
    for failure in failures:
        for related in failure.related:
            if related not in seen:
                issues.append(_dangling(failure.source, failure.id, "related", related, seen))
        for id_ in (id_ for sign in failure.signs for id_ in sign.seen):
            if id_ not in seen and id_ not in signatures:
                issues.append(
                    _dangling(failure.source, failure.id, "confirm", id_, [*seen, *signatures])
                )
        for variant in failure.variants:
            if variant.path_class not in named:
                name = variant.path_class
                issues.append(_dangling(failure.source, failure.id, "variant", name, named))
        for signature in failure.signatures:
            pair = (signature.pair.begin,) if signature.pair else ()
            for key, ids in (
                ("also", signature.also),
                ("supersedes", signature.supersedes),
                ("pair", pair),
            ):
                for other in ids:
                    if other not in signatures:
                        issues.append(
                            _dangling(signature.source, signature.id, key, other, signatures)
                        )
    for edge in rows["precedence"]:
        for end in (edge.cause, edge.effect):
            if end not in seen:
                issues.append(_dangling("precedence.toml", edge.cause, "edge", end, seen))
    either = {**seen, **signatures}
    for reading in rows["readings"]:
        for key, name, known in (
            ("event", reading.event, either),
            ("becomes", reading.becomes, seen),
            ("needs", reading.needs or reading.becomes, either),
        ):
            if name not in known:
                issues.append(_dangling("readings.toml", reading.event, key, name, known))
    for trait in rows["traits"]:
        if trait.subject not in either:
            issues.append(_dangling("traits.toml", trait.subject, "of", trait.subject, either))


def _near(word: str, known: Iterable[str]) -> list[str]:
    import difflib

    return difflib.get_close_matches(word, list(known), 1)


def _one_of(word: object, closed: Sequence[str]) -> str:
    near = _near(str(word), closed)
    return f"did you mean '{near[0]}'?" if near else f"one of {', '.join(closed)}"


def _dangling(source: str, name: str, key: str, other: str, known: Iterable[str]) -> Issue:
    near = _near(other, known)
    help_ = f"did you mean '{near[0]}'?" if near else "name an existing id or drop it"
    if other in _built_in_ids():
        help_ = "it is built in: check both together, `firstfault failures check --catalogue DIR`"
    return Issue(source, name, f"{key} names '{other}', which does not exist", help_)


@cache
def _built_in_ids() -> frozenset[str]:
    """Ids of the built-in failures and signatures, to tell a catalogue left out from a slip."""
    failures = [one for file in _files(BUILT_IN, [])[0] for one in _read_failures(file, [])]
    return frozenset(
        id_ for one in failures for id_ in (one.id, *(each.id for each in one.signatures))
    )
