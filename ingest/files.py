"""Find log files under paths and give each its labels by what its path says; hides the walking.

Stored paths are relative to the argument: a file is stored by its name, a file of a directory or
of a glob by its path below the directory or below the fixed part of the glob, a member of an
archive as `outer!inner`. Where the arguments lie in several directories, each stored path starts
with the shortest end of its directory's path that tells the directories apart.

Labels but the run come from the relative path alone: from the pattern of `--layout`, else by these
rules. A part that the path does not say is None.

| in the path                                              | says                              |
| -------------------------------------------------------- | --------------------------------- |
| `cluster=a/job=7/attempt=1/host=n1/rank=3.log`           | what its keys say                 |
| `clusters/a/`, `jobs/7/`, `hosts/n1/`, `ranks/3/`        | the next level by its name        |
| `attempt_1/`, `attempt_1.log`, `previous.log`            | attempt (previous 0, current 1)   |
| `attempt_0/3/stderr.log`                                 | attempt; 3 is a local rank only   |
| `rank_3.log`, `train-rank3.err`, `task_13.log`, `rank_3/`| rank                              |
| `node07.out`, `worker-1.log`, `node1/`                   | host                              |
| `tray12.syslog`, `n12.dmesg`, `dmesg-n12.log`            | host, and the kind                |
| `slurm-1832552.out`, `name-1832552.out`, `1832552.log`   | job                               |
| `slurm-123_4.out` (array); `123456_3.out` (`%j_%t`)      | job 123_4; job 123456 and rank 3  |
| `name-1832552-n07.out` (`%x-%j-%N`)                      | job and host                      |
| `<ns>_<pod>_<uid>/<container>/1.log`                     | host (the pod), attempt, job      |
| `<cluster>/<job>/<host>/rank_3.log`                      | by place, three levels or more    |
| `<cluster>/7/slurm-7.out`                                | the level above the job's         |
| `<cluster>/<job>/<host>/..`, cluster known by name       | by place                          |
| `<cluster>/job_7/rank_3.log`, `<cluster>/<job>/node1/..` | by place, below a known level     |
| `<job>/rank_3.log`, `<job>/any/thing.log`                | the first level is the job        |

An archive counts as a directory of its name where nothing in it names a job. `labels.run` groups
the files of one run: the job where known; else the directory of per-rank, per-attempt, per-host
or plainly named logs (`train.log`), by its path or, for the argument itself, by its own name; else
the file on its own. It is None for logs of a host or a scheduler and for documents.
"""

# Paths are str here: they come by the million, and a Path costs more than the lstat.
# ruff: noqa: PTH100, PTH112, PTH116, PTH118, PTH119, PTH120, PTH208
from __future__ import annotations

import errno
import functools
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from typing import NamedTuple, Self

STDIN = "-"
_NAME_MAX = 255


class DiscoverError(Exception):
    """A path that was asked for is not there."""


class LayoutError(ValueError):
    """A layout pattern that cannot be read; the message says what can."""


class Labels(NamedTuple):
    """What a path says of a log; None where it does not say."""

    cluster: str | None = None
    job: str | None = None
    attempt: int | None = None
    host: str | None = None
    rank: int | None = None
    run: str | None = None


class LogFile(NamedTuple):
    """One log, or one member of an archive (`path` is then `outer!inner`).

    `status` is ok, or failed, skipped or truncated with the reason in `problem`. `kind` is of
    schema.FILES, or `archive` for the archive itself. Times are UTC microseconds.
    """

    path: str
    source: str
    member: str | None
    size: int | None
    mtime_us: int | None
    kind: str
    labels: Labels
    status: str = "ok"
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """How labels are read below one argument: the flags, and the start of its stored paths."""

    cluster: str | None = None
    layout: str | None = None
    prefix: str = ""
    name: str = "."  # of the directory that stored paths are relative to
    clusters: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Source:
    """A file on disk (or `-`) that may be a log or an archive of logs; not opened yet."""

    path: str
    location: str
    size: int | None
    mtime_us: int | None
    rules: Rules = Rules()
    status: str = "ok"
    problem: str | None = None

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        """How to make it again, at a fifth of what it costs to pickle the fields of a dataclass."""
        return type(self), (
            self.path,
            self.location,
            self.size,
            self.mtime_us,
            self.rules,
            self.status,
            self.problem,
        )

    @property
    def cluster(self) -> str | None:
        """Cluster by flag or path."""
        rules = self.rules
        path = self.path.removeprefix(rules.prefix)
        return rules.cluster or _said(path.split("/"), rules).found.get("cluster")


def log_file(
    source: Source,
    member: str | None = None,
    *,
    size: int | None = None,
    mtime_us: int | None = None,
) -> LogFile:
    """The log that a source is, or that a member of it is (`b.tar!c.log` inside another one)."""
    rules = source.rules
    labels, kind = _read_path(source.path.removeprefix(rules.prefix), member, rules)
    if member is None:
        path, size, mtime_us = source.path, source.size, source.mtime_us
    else:
        path = f"{source.path}!{member}"
    return LogFile(
        path=path,
        source=source.location,
        member=member,
        size=size,
        mtime_us=mtime_us,
        kind=kind,
        labels=labels,
        status=source.status if member is None else "ok",
        problem=source.problem if member is None else None,
    )


# -- what a path says ----------------------------------------------------------------------------

_DIGITS = r"\d{1,9}"  # what fits an int32 column
_HOST = (
    r"(?:(?:node|host|nid|worker|tray|compute|dgx|hgx|cn|gn|ip)[-_]?\d+(?:-\d+)*|n\d+"
    r"|gpu-?(?:[a-z]\d+|\d{2,})|r\d+i\d+n\d+)(?:\.[a-z][a-z0-9.-]*)?"
)
_ANY_HOST = r"[a-z][a-z0-9-]*\d[a-z0-9-]*(?:\.[a-z0-9-]+)*"
_DATE = r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?!\d)"
# A number that is no date, no epoch second, and not that of something else.
_OTHERS = "".join(
    f"(?<!{word}[-_.=])" for word in "rank task attempt node host worker step".split()
)
_JOB = rf"(?!0|{_DATE}|1[4-9]\d{{8}}(?!\d)){_OTHERS}\d"
_END = r"(?=$|[-_.])"

# Levels that say something by themselves: an expression over the whole name of a directory.
_LEVELS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"cluster=(?P<cluster>.+)|job=(?P<job>.+)|(?:host|node)=(?P<host>.+)",
        rf"(?:attempt|restart|retry|cycle)[-_=]?(?P<attempt>{_DIGITS})",
        rf"(?:global[-_])?(?:rank|task)[-_=]?(?P<rank>{_DIGITS})",
        rf"(?P<host>{_HOST})",
        r"slurm[-_](?P<job>\d+(?:_\d+)?)",
        # <namespace>_<pod>_<uid>, as the kubelet lays out /var/log/pods
        r"[^_]+_(?P<host>(?:(?P<job>[^_]+?)-(?:master|worker|launcher|chief|ps)-\d+|[^_]+))"
        r"_(?P<pod>[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12})",
    )
)
# Levels that announce what the next one is.
_ANNOUNCE = {
    "clusters": "cluster",
    "jobs": "job",
    "attempts": "attempt",
    "host": "host",
    "hosts": "host",
    "nodes": "host",
    "ranks": "rank",
    "tasks": "rank",
}
# Levels that say nothing.
_SILENT = frozenset(
    "log logs output outputs stdout stderr probe probes pods containers kernel slurm system".split()
)
_EXPLICIT_JOB = re.compile(r"job.*|run[-_]?\d.*|\d{3,}(?:_\d+)?", re.IGNORECASE)

# What file names say, tried in order on the name without its suffixes; the first to say a thing
# wins. `outs` rules hold only for `.out` and `.err`, which schedulers write.
_NAMES = tuple(
    (re.compile(pattern, re.IGNORECASE), outs)
    for pattern, outs in (
        (r"cluster=(?P<cluster>.+)|job=(?P<job>.+)|(?:host|node)=(?P<host>.+)", False),
        (
            rf"(?:.*[-_.])?(?:attempt|restart|retry|cycle)[-_=]?(?P<attempt>{_DIGITS})(?:[-_.].*)?",
            False,
        ),
        (
            rf"(?:(?P<host>{_HOST})[-_.]|.*(?<!local)(?<!node)(?<!tp)(?<!pp)(?<!dp)(?<!ep)(?<!cp)"
            rf"[-_.])?(?:rank|task)[-_=]?(?P<rank>{_DIGITS}){_END}.*",
            False,
        ),
        (rf"(?P<host>{_HOST})", False),
        (rf"slurm[-_](?P<job>\d+(?:_\d+)?)(?:[-_.](?P<host>{_ANY_HOST}))?(?:\.\w+)?", False),
        (rf"(?P<host>{_HOST})[-_.](?P<job>{_JOB}{{4,}})", True),
        (rf"(?P<job>{_JOB}{{3,}})(?:-\d+-|_)(?P<rank>{_DIGITS})", True),
        (rf"(?:.*[-_.])?(?P<job>{_JOB}{{4,}})[-_.](?P<host>{_ANY_HOST})", True),
        (rf"(?:.*[-_.])?(?P<job>{_JOB}{{4,}})", True),
        (rf"(?:.*[-_.])?(?P<job>{_JOB}{{6,}})", False),
    )
)
_HOST_DIRECTORY = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*\d", re.IGNORECASE)
_WEAK_HOST = re.compile(r"(?:worker|pod|task)-\d+", re.IGNORECASE)
_POD_FILE = re.compile(  # as in /var/log/containers
    r"(?P<host>(?:(?P<job>[^_]+?)-(?:master|worker|launcher|chief|ps)-\d+|[^_]+))"
    r"_[^_]+_[^_]+-[0-9a-f]{64}"
)
_SYSTEM = re.compile(
    rf"(?:(?P<before>{_ANY_HOST})[-_.])?"
    r"(?:(?P<dmesg>dmesg|kmsg|kern(?:el)?)|syslog|messages|journal(?:ctl)?)"
    rf"(?:[-_.](?P<after>{_ANY_HOST}))?(?:[-_.]\d[\d:_T-]*)?",
    re.IGNORECASE,
)
_KINDS = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"(?:.*[-_.])?(?:k8s|kube\w*)[-_.]events?(?:[-_.].*)?|events", "k8s_events"),
        (rf"(?:.*[-_.])?(?:dmesg|kmsg){_END}.*", "dmesg"),
    )
)
# Directories of hosts' own logs, a file a host.
_SYSTEM_DIRECTORIES = {
    **dict.fromkeys(("kernel", "kern", "dmesg", "kmsg"), "dmesg"),
    **dict.fromkeys(("syslog", "journal", "journald", "messages"), "syslog"),
}
_SLURM = re.compile(rf"slurm{_END}")
_NUMBERS = frozenset(("rank", "attempt", "local"))
_GROUPING = frozenset(("rank", "attempt", "host"))
_HOST_KINDS = frozenset({"dmesg", "syslog", "k8s_events"})
_CONTAINERS = {"previous": "0", "current": "1"}  # logs of a restarted container: its attempts
# Names that a run gives its own log: they say that it belongs to the directory they stand in.
_TRAIN = frozenset(
    "train training trainer driver console launcher stdout stderr output nohup slurm main "
    "mpirun srun torchrun deepspeed accelerate".split()
)
_PLAIN = _TRAIN | frozenset("log out err error debug job run".split())
_DOCUMENT = re.compile(
    r".*\.(?:readme|md|rst|csv|tsv|html?|ya?ml|toml|cfg|ini|py|sh|cff)"
    r"|(?:license|readme|citation|notice)(?:\..*)?",
    re.IGNORECASE,
)
_CODEC = re.compile(r"\.(?:gz|zst|zstd|bz2|xz|lz4)$", re.IGNORECASE)
_ARCHIVE = re.compile(r"\.(?:tar(?:\.\w+)?|tgz|tbz2?|txz|tzst|zip)$", re.IGNORECASE)
_SUFFIX = re.compile(
    r"\.(?:log|txt|out|err|stdout|stderr|jsonl?|decode|iso|old|\d{1,3})$", re.IGNORECASE
)
_OUTS = re.compile(r"\.(?:out|err)(?:\.\d{1,3})?$", re.IGNORECASE)
_BATCH = re.compile(r".*\.[oe](?P<job>\d+)")  # PBS, Grid Engine: name.o12345


def _read_path(outer: str, member: str | None, rules: Rules) -> tuple[Labels, str]:
    """Labels and kind of a log by its path below the argument."""
    parts = outer.split("/")
    if member is not None:
        inside = member.replace("!", "/").split("/")
        # Where nothing in an archive names a job, the archive stands for its directory.
        known = "job" in _said(inside, rules).found
        parts[-1:] = inside if known else [_ARCHIVE.sub("", parts[-1]), *inside]
    said = _said(parts, rules)
    found = said.found
    host = found.get("host")
    job = found.get("job")
    attempt = int(found["attempt"]) if "attempt" in found else None
    host = _short(host) if host else None
    rank = int(found["rank"]) if "rank" in found else None
    if job is not None or said.kind in _HOST_KINDS or said.name.document:
        run = None if said.name.document else job
    else:
        place = (rules.prefix + "/".join(said.rest)).rstrip("/")
        grouped = (rank, attempt, host) != (None, None, None)
        run = _run(grouped, place, said.name, rules.name)
    return Labels(rules.cluster or found.get("cluster"), job, attempt, host, rank, run), said.kind


def _said(parts: Sequence[str], rules: Rules) -> _Said:
    """What a path says, by the layout that was asked for or by the rules."""
    *levels, whole = (part[:_NAME_MAX] for part in parts)  # longer ones stand in archives only
    name = _name(whole)
    if rules.layout is None:
        return _by_rules(tuple(levels), name, rules.clusters)
    match = _compile(rules.layout).fullmatch("/".join([*levels, whole]))
    found = {part: value for part, value in (match.groupdict() if match else {}).items() if value}
    return _Said(found, _kind(name, found), tuple(levels), name)


class _Name(NamedTuple):
    """A file's name and what does not depend on where it stands."""

    name: str  # without the suffix of a codec
    stem: str  # without those of rotation and logs
    lower: str
    document: bool
    outs: bool  # as a scheduler writes


class _Said(NamedTuple):
    found: dict[str, str]
    kind: str
    rest: tuple[str, ...]  # levels that said nothing by themselves
    name: _Name


def _run(grouped: bool, place: str, name: _Name, argument: str) -> str:
    """What groups a file without a job with others into one run; see the module's description."""
    if grouped or name.lower in _PLAIN:
        return place or argument
    return f"{place}/{name.stem}" if place else name.stem


# Files of a directory share its levels, and ranks of all jobs their names: each is matched once.
_remembered = functools.lru_cache(4096)


@_remembered
def _name(whole: str) -> _Name:
    """The name of a file, taken apart."""
    name = stem = _CODEC.sub("", whole)
    while (shorter := _SUFFIX.sub("", stem)) not in (stem, ""):
        stem = shorter
    document = _DOCUMENT.fullmatch(name) is not None
    return _Name(name, stem, stem.lower(), document, _OUTS.search(name) is not None)


def _by_rules(levels: tuple[str, ...], name: _Name, clusters: frozenset[str]) -> _Said:
    cluster = {"cluster": levels[0]} if levels and levels[0] in clusters else {}
    said, rest, below, announced = _from_levels(levels[1:] if cluster else levels)
    found = {**cluster, **said}
    if name.document:
        return _Said(found, "other", rest, name)
    stem = name.lower
    if levels and (kind := _SYSTEM_DIRECTORIES.get(levels[-1].lower())):
        host = {"host": name.stem} if re.fullmatch(_ANY_HOST, name.stem, re.IGNORECASE) else {}
        return _Said({**host, **_from_name(name, announced), **found}, kind, rest, name)
    found = {**_from_name(name, announced), **found}
    if stem in _CONTAINERS:
        found.setdefault("attempt", _CONTAINERS[stem])
        if rest and not _EXPLICIT_JOB.fullmatch(rest[-1]):
            rest = rest[:-1]  # the container's own directory
    elif "pod" in found and re.fullmatch(_DIGITS, stem):
        found.setdefault("attempt", stem)
    own = name.outs and stem not in _PLAIN  # a scheduler's file: a job, but which?
    if own and found.get("job") in rest[1:]:
        found = {"cluster": rest[0]} | found  # <cluster>/7/slurm-7.out
    if rest and "job" not in found and not (own and found.keys().isdisjoint(_GROUPING)):
        trusted = "rank" in found or _HOST_DIRECTORY.fullmatch(rest[-1]) is not None
        if trusted and _WEAK_HOST.fullmatch(stem) and len(rest) > 2 - ("cluster" in found):
            found.pop("host", None)  # a pod or pdsh number: the directory names the machine
        found = _by_place(rest, found, below, trusted) | found
    return _Said(found, _kind(name, found), rest, name)


@_remembered
def _from_levels(
    levels: tuple[str, ...],
) -> tuple[Mapping[str, str], tuple[str, ...], bool, str]:
    """(what directories say, the rest of them, whether a host or attempt stands below the rest,
    what the last one announces)."""
    found: dict[str, str] = {}
    rest: list[str] = []
    below = False
    announced = ""
    for level in levels:
        expected, announced = announced, _ANNOUNCE.get(level.lower(), "")
        match = next((m for pattern in _LEVELS if (m := pattern.fullmatch(level))), None)
        if match is not None:
            said = _groups(match)
            found |= said
            below = below or (bool(rest) and not said.keys().isdisjoint(_GROUPING))
            announced = "container" if "pod" in said else "local" if "attempt" in said else ""
        elif expected and (expected not in _NUMBERS or re.fullmatch(_DIGITS, level)):
            found[expected] = level
        elif not announced and level.lower() not in _SILENT and [level] != rest[-1:]:
            rest.append(level)
    return found, tuple(rest), below, announced


@_remembered
def _from_name(name: _Name, announced: str) -> Mapping[str, str]:
    """What the name of a file says."""
    stem = name.stem
    if match := _POD_FILE.fullmatch(stem):
        return _groups(match) | {"pod": stem}
    if match := _SYSTEM.fullmatch(stem):
        host = match["before"] or match["after"]
        return {"host": host} if host else {}
    if match := _BATCH.fullmatch(name.name):
        return _groups(match)
    found: dict[str, str] = {}
    for pattern, only_outs in _NAMES:
        if (name.outs or not only_outs) and (match := pattern.fullmatch(stem)):
            found = _groups(match) | found
    if announced == "host" and re.fullmatch(_ANY_HOST, stem, re.IGNORECASE):
        found.setdefault("host", stem)
    elif announced in ("rank", "attempt") and re.fullmatch(_DIGITS, stem):
        found[announced] = stem
    return found


def _by_place(
    rest: Sequence[str], found: dict[str, str], below: bool, trusted: bool
) -> dict[str, str]:
    """What the order of the remaining directories says of a file whose job is not named.

    `trusted`: the last of them may be a host, by its look or since a rank's file stands in it.
    """
    top = 0 if "cluster" in found else 1  # where the job may stand, below the cluster
    jobs = range(top, len(rest))
    job = next((i for i in jobs if _EXPLICIT_JOB.fullmatch(rest[i])), None)
    nameless = trusted and "host" not in found
    if job is None and nameless and len(rest) >= top + 2:
        job = len(rest) - 2
    elif job is None and below and jobs:
        job = len(rest) - 1
    if job is None:
        return {"job": rest[0]}
    host = {"host": rest[-1]} if nameless and job == len(rest) - 2 else {}
    return {"cluster": rest[0], "job": rest[job]} | host


@_remembered
def _own_kind(stem: str) -> str | None:
    """The kind of a log that its name tells wherever it stands."""
    if match := _SYSTEM.fullmatch(stem):
        return "dmesg" if match["dmesg"] else "syslog"
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(stem)), None)


def _kind(name: _Name, found: dict[str, str]) -> str:
    """The kind of a log by its name and by what its path said."""
    stem, outs = name.lower, name.outs
    if kind := _own_kind(stem):
        return kind
    if "pod" in found or stem in _CONTAINERS:
        return "k8s_pod"
    if "rank" in found or "local" in found:
        return "rank_stdout"
    if _SLURM.match(stem) or (outs and found.get("job", "/") in stem):
        return "slurm_out"
    grouped = not found.keys().isdisjoint(_GROUPING)
    if outs or stem in _TRAIN or (grouped and name.name.endswith(".log")):
        return "train_stdout"
    return "other"


def _groups(match: re.Match[str]) -> dict[str, str]:
    return {key: value for key, value in match.groupdict().items() if value}


def _short(host: str) -> str:
    """A host's short name in lower case; an address stays whole."""
    host = host.lower()
    return host if re.fullmatch(r"[\d.]+", host) else host.partition(".")[0] or host


# -- layouts -------------------------------------------------------------------------------------

_PARTS = {
    "cluster": "[^/]+?",
    "job": "[^/]+?",
    "host": "[^/]+?",
    "attempt": _DIGITS,
    "rank": _DIGITS,
}


@functools.cache
def _compile(layout: str) -> re.Pattern[str]:
    """The expression of a layout; a codec's suffix may follow. Raises LayoutError."""
    use = f"use {', '.join(f'{{{part}}}' for part in _PARTS)}, {{_}}, * or **"
    expression = ""
    seen = set()
    for piece in re.findall(r"\*\*/?|\*|\{[^{}]*\}|[^*{}]+|.", layout.strip("/"), re.DOTALL):
        part = piece[1:-1] if piece.startswith("{") else ""
        if part in seen:
            raise LayoutError(f"layout '{layout}': {piece} stands twice: name it once")
        if piece == "**/":
            expression += "(?:[^/]+/)*"
        elif piece == "**":
            expression += ".*"
        elif piece == "*" or part == "_":
            expression += "[^/]*?"
        elif part in _PARTS:
            seen.add(part)
            expression += f"(?P<{part}>{_PARTS[part]})"
        elif piece[0] in "{}":
            raise LayoutError(f"layout '{layout}': {piece} is no part of a path: {use}")
        else:
            expression += re.escape(piece)
    if not seen:
        raise LayoutError(f"layout '{layout}' names no part: {use}")
    return re.compile(f"{expression}(?:{_CODEC.pattern[:-1]})?")


# -- finding -------------------------------------------------------------------------------------

# What would only give each log once more, and files of our own that are no logs.
_LEFT_OUT = frozenset((".git", ".snapshot", ".zfs", "firstfault.toml", "truth.json"))
_NOT_FILES = ("/proc/", "/sys/", "/dev/")  # reading there has effects, or never ends
_MAGIC = re.compile(r"[*?[]")


class _Argument(NamedTuple):
    location: str  # absolute
    below: str  # path below `base`, "" for a directory that was named
    base: str  # what stored paths are relative to, "" for stdin
    walked: bool  # whether the base, not the file itself, was named


def discover(
    paths: Sequence[str],
    *,
    cluster: str | None = None,
    layout: str | None = None,
    clusters: frozenset[str] = frozenset(),
) -> Iterator[Source]:
    """Sources under files, directories, globs and `-`, each once, in a fixed order.

    A first directory level that is one of `clusters` names the cluster.

    Directories are entered with all they hold, sorted by name. A link is followed where it leaves
    the directories that are read anyway. What cannot be read or is no regular file is a source
    with its problem. Raises DiscoverError for a path or glob that is not there, LayoutError.
    """
    if layout is not None:
        _compile(layout)
    arguments: dict[str, _Argument] = {}
    for path in paths:
        for argument in _resolve(path):
            arguments.setdefault(os.path.realpath(argument.location), argument)
    roots = tuple(real for real in arguments if os.path.isdir(real))
    wanted = [
        argument
        for real, argument in arguments.items()
        if argument.location == STDIN or not _within(os.path.dirname(real), roots)
    ]
    return _sources(wanted, roots, Rules(cluster, layout, clusters=clusters))


def _resolve(path: str) -> list[_Argument]:
    """What an argument names."""
    if path == STDIN:
        return [_Argument(STDIN, STDIN, "", walked=False)]
    whole = os.path.abspath(path)
    if os.path.isdir(whole):
        return [_Argument(whole, "", whole, walked=True)]
    if os.path.lexists(whole):
        base, name = os.path.split(whole)
        return [_Argument(whole, name, base, walked=False)]
    parts = whole.split("/")
    fixed = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), None)
    if fixed is None:
        raise DiscoverError(f"{path}: no such file or directory: check the path")
    base = "/".join(parts[:fixed]) or "/"
    matches = sorted(set(_glob(base, parts[fixed:])))
    if not matches:
        raise DiscoverError(f"{path}: matches no file: check the pattern")
    return [_Argument(match, os.path.relpath(match, base), base, walked=True) for match in matches]


def _glob(directory: str, wanted: Sequence[str]) -> Iterator[str]:
    """Paths below a directory that match; `**` enters no links."""
    part, *rest = wanted
    try:
        with os.scandir(directory) as found:
            entries = list(found)
    except OSError:
        return
    if part == "**":
        yield from _glob(directory, rest or ["*"])
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _glob(entry.path, wanted)
        return
    matches = re.compile(translate(part)).match
    for entry in entries:
        if matches(entry.name):
            if not rest:
                yield entry.path
            elif entry.is_dir():
                yield from _glob(entry.path, rest)


def _within(real: str, roots: Iterable[str]) -> bool:
    """Whether a real path is one of the directories that are walked, or lies in one."""
    return any(f"{real}/".startswith(f"{root.rstrip('/')}/") for root in roots)


def _prefixes(arguments: Sequence[_Argument]) -> dict[str, str]:
    """How stored paths start, by base: told apart where there are several.

    Files named one by one out of a single directory need nothing before their names.
    """
    walked = {argument.base for argument in arguments if argument.walked}
    named = {argument.base for argument in arguments if not argument.walked and argument.base}
    bases = walked if len(named) < 2 else walked | named
    if len(walked | named) < 2:
        return {}
    ends = {base: base.strip("/").split("/") for base in bases}
    for count in range(1, max(map(len, ends.values()), default=0) + 1):
        names = {base: "/".join([*parts[-count:], ""]) for base, parts in ends.items()}
        if len(set(names.values())) == len(names):
            return names
    return {}


def _sources(
    arguments: Sequence[_Argument], roots: Sequence[str], rules: Rules
) -> Iterator[Source]:
    prefixes = _prefixes(arguments)
    entered: set[tuple[int, int]] = set()
    for argument in arguments:
        here = replace(
            rules,
            prefix=unmarked(prefixes.get(argument.base, "")),
            name=storable(os.path.basename(argument.base)) or rules.name,
        )
        if argument.location == STDIN:
            yield Source(STDIN, STDIN, None, None, here)
            continue
        stack = [(argument.location, argument.below)]
        named = True  # a link that was named is followed
        while stack:
            location, below = stack.pop()
            try:
                info = _look(location, () if named else roots)
                named = False
                if not stat.S_ISDIR(info.st_mode):
                    path = here.prefix + unmarked(below)
                    yield Source(path, location, info.st_size, info.st_mtime_ns // 1000, here)
                    continue
                if (identity := (info.st_dev, info.st_ino)) in entered:
                    raise _NotReadError("a directory that is read under another name")
                entered.add(identity)
                start, relative = os.path.join(location, ""), os.path.join(below, "")
                stack += [
                    (start + name, relative + name)
                    for name in sorted(os.listdir(location), reverse=True)
                    if name not in _LEFT_OUT
                ]
            except _NotReadError as reason:
                path = here.prefix + unmarked(below)
                yield Source(path, location, None, None, here, "skipped", f"{path}: {reason}")
            except OSError as error:
                path = here.prefix + unmarked(below)
                lost = unreadable(path, error)
                yield Source(path, location, None, None, here, "failed", lost)


class _NotReadError(Exception):
    """What a path is instead of a file or directory to read."""


def _look(location: str, roots: Sequence[str]) -> os.stat_result:
    """What a file or directory is. Raises OSError, _NotReadError."""
    info = os.lstat(location)
    real = location
    if stat.S_ISLNK(info.st_mode):
        try:
            real = os.path.realpath(location, strict=True)
        except FileNotFoundError:
            raise _NotReadError(
                "a link to what is not there: restore it or leave the link out"
            ) from None
        if _within(real, roots):
            raise _NotReadError(f"a link to {storable(real)}, which is read where it lies")
        if any(_within(root, (real,)) for root in roots):
            raise _NotReadError(f"a link up to {storable(real)}: name what to read there")
        info = os.stat(location)
    if stat.S_ISDIR(info.st_mode):
        return info
    if real.startswith(_NOT_FILES):
        raise _NotReadError("not a file on disk: copy what it holds to one")
    if not stat.S_ISREG(info.st_mode):
        raise _NotReadError(f"{_what(info.st_mode)}, not a file: pipe what it gives to `-`")
    return info


def _what(mode: int) -> str:
    names = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return names.get(stat.S_IFMT(mode), "a device")


def unreadable(path: str, error: OSError) -> str:
    """Why a file cannot be read, and what to do, for its row."""
    remedies = {
        errno.EACCES: "run as a user who may read it",
        errno.ENOENT: "it went away meanwhile, run again",
        errno.ELOOP: "links lead in a circle, remove them",
    }
    reason = (error.strerror or str(error)).lower()
    return f"{path}: {reason}: {remedies.get(error.errno or 0, 'check the disk and run again')}"


_ESCAPE_LIKE = re.compile(r"\\(?=x(?:[89a-f][0-9a-f]|5c|21))")


def storable(path: str) -> str:
    """A path that can be stored: bytes that are no UTF-8 become backslash escapes.

    No two paths become one: a backslash that looks like the start of such an escape is one, too.
    """
    if path.isascii() and "\\" not in path:
        return path  # the rule, at a tenth of the cost
    path = _ESCAPE_LIKE.sub(r"\\x5c", path)
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def unmarked(path: str) -> str:
    """A storable path without `!`, which stands between an archive and its member only."""
    return storable(path).replace("!", r"\x21")
