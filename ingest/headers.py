"""Strip the headers of one line and say when, where and by whom it was printed.

Hides the layouts that collectors, launchers, kernels and logging libraries put in front of a
message. Layers are peeled from the outside in. A layout is a row of the table below: a regular
expression in which `(?&name)` stands for a field, and the states in which the row applies. The
first byte of what is left (behind a bracket also the second) and the state pick one alternation
of rows, compiled at import.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, NamedTuple

from matcher.shapes import shape

TIME_HINT = re.compile(rb":[0-5]\d:[0-5]\d")
"""Where a line may carry a clock time; whether it does, `stamped` decides.

It starts with a literal, which `re` looks for at the speed of memchr, ten times that of a class.
Left out are the forms without colons (BlueGene, HDFS, an epoch): there each line has its time.
"""

RANK_TAG = (
    r"\[(?:[Rr]ank[ :=]?\d+\]|default\d+\]|(?:\d+,)?\d+\]<std|-?\d+\] (?:\S+ )?NCCL "
    r"|\d+\]\[\w+\]: |[\w.]+:\d+, rank=\d+\])"
)
"""What lines with a rank or NCCL tag have, as a pattern for the matcher.

Left out are the bare labels of `srun -l`, which any number at the start of a line looks like.
"""


class Header(NamedTuple):
    """What the headers of a line tell; what they do not tell is None."""

    body: int  # the message is line[body:end], unless `text` is set
    end: int
    text: bytes | None  # the message where it had to be unescaped or freed of ANSI codes
    ts: int | None  # µs since 1970, UTC
    ts_source: str  # own | dmesg (seconds since boot only) | none
    tz_assumed: bool  # the line names no zone: `ts` was read in the clock's
    level: str | None  # debug | info | warn | error | fatal
    rank: int | None  # global
    local_rank: int | None
    host: str | None  # short, lower case
    pid: int | None
    stream: str | None  # kernel | scheduler | k8s-event | launcher
    partial: bool  # the message goes on in a later line
    repeats: int  # how many messages the line stands for


@dataclass(slots=True)
class Guess:
    """A time (µs) in the place of the last one before a part of a file, and what was made of it."""

    us: int
    asked: bool = False  # whether a time without a year was put near it
    times: tuple[int, int] | None = None  # the earliest and latest time seen while it stood

    def ask(self) -> int:
        """The time, for one without a year."""
        self.asked = True
        return self.us

    def saw(self, ts: int) -> None:
        """Note a time that was seen."""
        earliest, latest = self.times or (ts, ts)
        self.times = min(earliest, ts), max(latest, ts)


@dataclass(slots=True)
class Clock:
    """What completes the times of one file; its reader keeps `near_us` up to date.

    Times without a zone are read in `tz` (fold=0). A time without a year goes into the year that
    puts it nearest to `near_us`, the last absolute time seen in the file, or to the `guess` that
    stands for it, else into the latest one before `mtime_us` plus a day. All are µs since 1970,
    UTC.
    """

    tz: tzinfo
    mtime_us: int | None = None
    near_us: int | None = None
    guess: Guess | None = None
    completed: bool = False  # whether it was asked to complete a time

    def saw(self, ts: int) -> None:
        """Tell the guess, while it stands, that a line has this time."""
        if self.near_us is None and self.guess is not None:
            self.guess.saw(ts)


def parse(line: bytes, clock: Clock, at: int | None = None) -> Header:
    """Peel the headers of one segment (no LF, no CR). Never raises, whatever the bytes.

    Where writers mixed their bytes in one line, this tells about the record that starts last
    before offset `at` (where a match ended; default: the end of the line).
    """
    found = _peel(line, clock.tz, at)
    ts, assumed = _time(found.ts, found.assumed, found.loose, clock)
    rest, body, end = found.line, found.body, len(found.line)
    if found.ray and (again := _REPEATED.search(rest, max(body, rest.rfind(b"[repeated ") - 1))):
        found.repeats = int(again[1]) or 1
        end = again.start()
    text = None
    if rest is not line:
        text, body, end = rest[body:end], 0, len(line)
    return Header(
        body,
        end,
        text,
        ts,
        "own" if ts is not None else "dmesg" if found.boot else "none",
        assumed,
        found.level,
        found.rank,
        found.local_rank,
        found.host,
        found.pid,
        found.stream,
        found.partial,
        found.repeats,
    )


def stamped(
    data: bytes | bytearray, clock: Clock, start: int = 0, stop: int | None = None
) -> int | None:
    """The `ts` that `parse` would give of the segment data[start:stop], for less."""
    stop = len(data) if stop is None else stop
    if (m := _DATED.match(data, start, stop)) and not TIME_HINT.search(data, m.end(), stop):
        _, text, second, fraction, zone = m.groups()
        minute, us = _iso_minute(clock.tz if zone is None else UTC, text), _micros(second, fraction)
        if minute is not None and us < 61 * _SECOND:
            return minute + us
    found = _peel(bytes(data[start:stop]), clock.tz, None)
    return _time(found.ts, found.assumed, found.loose, clock)[0]


class _Found:
    """What the layers told so far."""

    __slots__ = (
        "assumed",
        "body",
        "boot",
        "host",
        "level",
        "line",
        "local_rank",
        "loose",
        "partial",
        "pid",
        "rank",
        "ray",
        "read",
        "repeats",
        "state",
        "stream",
        "trust",
        "ts",
        "tz",
    )

    def __init__(self, line: bytes, tz: tzinfo) -> None:
        self.line = line
        self.tz = tz
        self.body = 0
        self.state = 0  # bits: what was seen
        self.ts: int | None = None
        self.assumed = False
        self.loose: tuple[bytes, int] | None = None  # text of an incomplete minute, µs in it
        self.boot = False
        self.level: str | None = None
        self.rank: int | None = None
        self.trust = 0  # in the rank: 1 a label, 2 perhaps of a group only, 3 the global rank
        self.local_rank: int | None = None
        self.host: str | None = None
        self.pid: int | None = None
        self.stream: str | None = None
        self.partial = False
        self.ray = False
        self.repeats = 1
        self.read: list[tuple[_Field, re.Match[bytes], int]] | None = None  # if it is asked for

    def tell(self, field: _Field, m: re.Match[bytes], k: int) -> None:
        """Note what was read, if that is asked for."""
        if self.read is not None:
            self.read.append((field, m, k))


# -- times -------------------------------------------------------------------------------------

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS = range(1971, 2101)
_DAYS = range(366 * 131)  # since 1970, as far as `datetime` may be asked
_EPOCHS = range(31_536_000, 4_133_980_800)  # the same in seconds
_SECONDS = {b"%02d" % second: second * _SECOND for second in range(61)}
_SCALE = [10 ** (6 - digits) for digits in range(7)]
_MONTHS = {
    name: number
    for number, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)
}


def _micros(second: bytes, fraction: bytes | None) -> int:
    """µs into the minute; a day or more where there is no such second."""
    us = _SECONDS.get(second, _DAY)
    if fraction:
        digits = len(fraction)
        us += int(fraction) * _SCALE[digits] if digits < 7 else int(fraction[:6])
    return us


@lru_cache(8192)
def _minute(tz: tzinfo, year: int, month: int, day: int, clock: bytes) -> int | None:
    """µs of the minute `03:04` of a day; None where there is no such time or day."""
    if year not in _YEARS:
        return None
    try:
        local = datetime(year, month, day, int(clock[:2]), int(clock[3:]), tzinfo=tz)
    except ValueError:
        return None
    offset = local.utcoffset() or timedelta()
    return (local.replace(tzinfo=UTC) - _ORIGIN - offset) // timedelta(microseconds=1)


@lru_cache(8192)
def _iso_minute(tz: tzinfo, text: bytes) -> int | None:
    """µs of the minute `2024-01-02T03:04`, whatever the separators."""
    return _minute(tz, int(text[:4]), int(text[5:7]), int(text[8:10]), text[11:])


@lru_cache(256)
def _offset(zone: bytes) -> int:
    """µs that `Z`, `UTC`, `+01:00` or `-0700` is ahead."""
    if zone[:1] not in b"+-":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (minutes if zone[:1] == b"+" else -minutes) * 60 * _SECOND


def _month_days(text: bytes) -> list[tuple[int, int]]:
    """The (month, day) of `Jun 21`, `05-09`, `03/02`, `0909` or `302`, the likeliest first."""
    if name := _MONTHS.get(text[:3]):
        return [(name, int(text[3:]))]
    digits = text.replace(b"-", b"").replace(b"/", b"")
    days = [(int(digits[:-2]), int(digits[-2:]))]
    if len(digits) == 3:
        days.append((int(digits[:2]), int(digits[2:])))  # c10 writes 111 for 11 January
    return days


@lru_cache(8192)
def _in_year(tz: tzinfo, text: bytes, day: int, latest: int | None) -> int | None:
    """The minute `Jun 21 14:03` of the year that puts it nearest to `day` (days since 1970).

    With `latest` (µs) it is the last one up to then, of the first reading that has one.
    """
    year = (_ORIGIN + timedelta(days=day)).year
    readings = [
        [
            minute
            for candidate in (year - 1, year, year + 1)
            if (minute := _minute(tz, candidate, month, day_of_month, text[-5:])) is not None
            and (latest is None or minute <= latest)
        ]
        for month, day_of_month in _month_days(text[:-6])
    ]
    if latest is not None:
        return next((max(minutes) for minutes in readings if minutes), None)
    middle = day * _DAY + _DAY // 2
    return min(
        (minute for minutes in readings for minute in minutes),
        key=lambda minute: abs(minute - middle),
        default=None,
    )


def _on_day(tz: tzinfo, text: bytes, us: int, near: int) -> int | None:
    """The minute `14:03` of the day that puts it, and `us` more, nearest to `near` (µs)."""
    today = (_ORIGIN + timedelta(microseconds=near)).astimezone(tz)
    days = (today + timedelta(days=shift) for shift in (-1, 0, 1))
    minutes = [_minute(tz, day.year, day.month, day.day, text) for day in days]
    return min(
        (minute for minute in minutes if minute is not None),
        key=lambda minute: abs(minute + us - near),
        default=None,
    )


def _time(
    ts: int | None, assumed: bool, loose: tuple[bytes, int] | None, clock: Clock
) -> tuple[int | None, bool]:
    """The innermost time, completed by an outer one or by the clock; whether its zone is assumed.

    A time of day alone is completed by an outer time only: the last one of the file may be days
    old.
    """
    if loose is None:
        return ts, assumed
    text, us = loose
    near = clock.near_us if ts is None else ts
    minute = None
    clock.completed = True
    if len(text) == 5:
        if ts is not None:
            minute = _on_day(clock.tz, text, us, ts)
    elif near is not None or clock.guess is not None:
        if near is None and clock.guess is not None:
            near = clock.guess.ask()
        day = (near or 0) // _DAY
        if day in _DAYS:
            minute = _in_year(clock.tz, text, day, None)
    elif clock.mtime_us is not None and clock.mtime_us // _DAY in _DAYS:
        latest = clock.mtime_us + _DAY
        minute = _in_year(clock.tz, text, latest // _DAY, latest)
    if minute is None:
        return ts, assumed
    return minute + us, True


# -- fields ------------------------------------------------------------------------------------

_TIMED, _LEVELLED = 1, 2
_ZONED = 1 | 4  # a time with a zone: perhaps a collector's, perhaps before a host and a program
_BOOT = 1 | 8  # a time since boot: perhaps before a host and a program
_SYSLOG = 1 | 16  # a time before a host and any program
_INT32 = 2**31 - 1
_LEVELS = {
    word: level
    for level, words in {
        "debug": b"TRACE DEBUG VERBOSE D V",
        "info": b"INFO NOTICE NORMAL I",
        "warn": b"WARN WARNING W",
        "error": b"ERR ERROR SEVERE FAILURE E",
        "fatal": b"CRIT CRITICAL ALERT EMERG FATAL PANIC F C",
    }.items()
    for word in words.split()
}
_PRIORITIES = ("fatal", "fatal", "fatal", "error", "warn", "info", "info", "debug")
_LAUNCHERS = re.compile(rb"torch[./]distributed[./](?:elastic|run|launch)|\b(?:launch|runner)\.py")
_HOST = re.compile(r"(?=.*[a-z])[a-z0-9][a-z0-9_:-]{0,62}")
_FABRIC = re.compile(r"-(?:ib|hsn|opa|eth|bond)\d+$")

_Field = Callable[[_Found, "re.Match[bytes]", int], None]
"""Takes its groups, which start at `k`."""


def _complete(found: _Found, minute: int | None, us: int, assumed: bool = True) -> None:
    found.state |= _TIMED
    if minute is not None and us < 61 * _SECOND:
        found.ts, found.assumed, found.loose = minute + us, assumed, None


def _incomplete(found: _Found, m: re.Match[bytes], k: int) -> None:
    text, second, fraction = m.group(k, k + 1, k + 2)
    found.state |= _TIMED
    us = _micros(second, fraction)
    if us < 61 * _SECOND:
        found.loose = (text, us)


def _syslog(found: _Found, m: re.Match[bytes], k: int) -> None:
    _incomplete(found, m, k)
    found.state |= _SYSLOG


def _iso(found: _Found, m: re.Match[bytes], k: int) -> None:
    text, second, fraction, zone = m.group(k, k + 1, k + 2, k + 3)
    us = _micros(second, fraction)
    if zone is None:
        _complete(found, _iso_minute(found.tz, text), us)
        return
    minute = _iso_minute(UTC, text)
    _complete(found, None if minute is None else minute - _offset(zone), us, assumed=False)
    found.state |= _ZONED
    if fraction and len(fraction) > 6:
        found.state = 0  # only collectors write nanoseconds with a zone; the line itself follows


def _stdio(found: _Found, m: re.Match[bytes], k: int) -> None:
    found.partial = m[k] == b"P"
    found.state = 0


def _epoch(found: _Found, m: re.Match[bytes], k: int) -> None:
    seconds, fraction = int(m[k]), m[k + 1]
    minute = seconds * _SECOND if seconds in _EPOCHS else None
    _complete(found, minute, _micros(b"00", fraction), assumed=False)
    found.state |= _ZONED


def _fraction(found: _Found, m: re.Match[bytes], k: int) -> None:
    if found.ts is not None:
        found.ts += int(m[k])


def _calendar(found: _Found, m: re.Match[bytes], k: int) -> None:
    month, day, early, clock, second, fraction, zone, late = m.group(*range(k, k + 8))
    tz = UTC if zone else found.tz
    minute = _minute(tz, int(early or late or 0), _MONTHS[month], int(day), clock)
    _complete(found, minute, _micros(second, fraction), assumed=zone is None)


def _slashed(found: _Found, m: re.Match[bytes], k: int) -> None:
    a, b, c, clock, second, fraction, spark = m.group(*range(k, k + 7))
    one, two, three = int(a), int(b), int(c)
    orders = [(three, one, two), (three, two, one)]
    if len(c) == 2:
        orders = [(2000 + year, month, day) for year, month, day in orders]
        orders.insert(0 if spark else 2, (2000 + one, two, three))
    minutes = (_minute(found.tz, *order, clock) for order in orders)
    minute = next((minute for minute in minutes if minute is not None), None)
    _complete(found, minute, _micros(second, fraction))


def _digits(found: _Found, m: re.Match[bytes], k: int) -> None:
    year, month, day, hour, minute, second = m.group(*range(k, k + 6))
    start = _minute(found.tz, 2000 + int(year), int(month), int(day), b"%s:%s" % (hour, minute))
    _complete(found, start, _micros(second, None))


def _dotted(found: _Found, m: re.Match[bytes], k: int) -> None:
    day, hour, minute, second, fraction = m.group(*range(k, k + 5))
    start = _iso_minute(found.tz, b"%s %s:%s" % (day, hour, minute))
    _complete(found, start, _micros(second, fraction))


def _since_boot(found: _Found, m: re.Match[bytes], k: int) -> None:
    found.boot = True
    found.stream = "kernel"
    found.state |= _BOOT


def _level(found: _Found, m: re.Match[bytes], k: int) -> None:
    word = m[k]
    level = _LEVELS.get(word) or _LEVELS.get(word.upper().rstrip(b"0123456789"))
    if level is not None:
        found.level = level
        found.state |= _LEVELLED


def _priority(found: _Found, m: re.Match[bytes], k: int) -> None:
    found.level = _PRIORITIES[int(m[k]) & 7]


def _rank(found: _Found, digits: bytes, trust: int) -> None:
    rank = int(digits)
    if trust >= found.trust and rank <= _INT32:
        found.rank, found.trust = rank, trust


def _label(found: _Found, m: re.Match[bytes], k: int) -> None:
    _rank(found, m[k], 1)


def _some_rank(found: _Found, m: re.Match[bytes], k: int) -> None:
    _rank(found, m[k], 2)


def _global_rank(found: _Found, m: re.Match[bytes], k: int) -> None:
    _rank(found, m[k], 3)


def _group_rank(found: _Found, m: re.Match[bytes], k: int) -> None:
    number, guid, default, rank = m.group(k, k + 1, k + 2, k + 3)
    if number is None or default or (guid or number) in (b"0", b"default_pg"):
        _rank(found, rank, 2)


def _local_rank(found: _Found, m: re.Match[bytes], k: int) -> None:
    found.local_rank = int(m[k])


def _pid(found: _Found, m: re.Match[bytes], k: int) -> None:
    pid = int(m[k])
    found.pid = pid if pid <= _INT32 else None


@lru_cache(4096)
def _short(name: bytes) -> str | None:
    """`Node07-ib0.cluster.local` -> `node07`; an address stays, `localhost` says nothing."""
    text = name.decode("ascii", "replace").lower().rpartition("@")[2].partition("/")[0]
    try:
        return str(ip_address(text))
    except ValueError:
        pass
    text = _FABRIC.sub("", text.partition(".")[0])
    return text if text != "localhost" and _HOST.fullmatch(text) else None


def _host(found: _Found, m: re.Match[bytes], k: int) -> None:
    found.host = _short(m[k]) or found.host


def _program(found: _Found, m: re.Match[bytes], k: int) -> None:
    program, pid = m[k], m[k + 1]
    if pid is not None:
        _pid(found, m, k + 1)
    if program == b"kernel":
        found.stream = "kernel"
    elif program.startswith(b"slurm"):
        found.stream = "scheduler"
    found.state = _TIMED  # what follows is the program's own, perhaps with a better time


def _source(found: _Found, m: re.Match[bytes], k: int) -> None:
    if _launches(m[k]):
        found.stream = "launcher"


@lru_cache(4096)
def _launches(source: bytes) -> bool:
    return _LAUNCHERS.search(source) is not None


def _actor(found: _Found, m: re.Match[bytes], k: int) -> None:
    found.ray = True
    name, pid = m[k].rstrip(), m[k + 1]
    if pid.isdigit():
        _pid(found, m, k + 1)
    if name.startswith(b"Worker_TP") and name[9:].isdigit() and len(name) < 19:
        _rank(found, name[9:], 1)


def _daemon(found: _Found, m: re.Match[bytes], k: int) -> None:
    found.ray = True


def _count(found: _Found, m: re.Match[bytes], k: int) -> None:
    found.repeats = int(m[k]) or 1


def _record(found: _Found, m: re.Match[bytes], k: int) -> None:
    """Go on in the message of a JSON record; one that is cut or has none is a message itself."""
    raw = m.string[m.start(k) :].rstrip()
    if not raw.endswith(b"}"):
        return
    try:
        record: dict[str, Any] = json.loads(raw.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return

    def first(*names: str) -> tuple[str, Any]:
        return next(((name, record[name]) for name in names if name in record), ("", None))

    name, text = first("log", "message", "msg")
    if not isinstance(text, str):
        return
    _, time = first("time", "timestamp", "@timestamp", "ts")
    if isinstance(time, str) and (own := _ISO_ALONE.match(time.encode("ascii", "replace"))):
        _iso(found, own, 1)
    elif isinstance(time, int | float) and _EPOCHS.start <= time < _EPOCHS.stop:
        _complete(found, int(time * _SECOND), 0, assumed=False)
    _, level = first("level", "severity")
    if isinstance(level, str):
        found.level = _LEVELS.get(level.upper().encode("ascii", "replace"))
    found.state = 0
    found.partial = name == "log" and not text.endswith("\n")
    try:
        message = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        message = text.encode("utf-8", "replace")
    found.line = _ANSI.sub(b"", message).rstrip(b"\r\n")


_PARTS: dict[bytes, bytes] = {
    b"hm": rb"[012]\d:[0-5]\d",
    b"month": rb"Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec",
    b"weekday": rb"Mon|Tue|Wed|Thu|Fri|Sat|Sun",
    b"words": rb"TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|FATAL|SEVERE|FAILURE"
    rb"|ALERT|EMERG|PANIC",
    b"low-words": rb"trace|debug\d?|verbose|info|notice|warn(?:ing)?|err(?:or)?|crit(?:ical)?|fatal"
    rb"|severe|failure|alert|emerg|panic",
    b"daemons": rb"kernel|systemd|slurm\w+|nvidia-\w+|kubelet|containerd|sshd|sudo|cron",
    b"age": rb"(?:\d+[smhdy](?:\d+[smh])?|<unknown>)(?: \(x(?&count) over [\w<>]+\))?",
}
_REFERENCE = re.compile(rb"\(\?&([\w-]+)\)")


def _spell(pattern: bytes) -> bytes:
    """Put in the parts of a pattern; the references to fields stay."""
    return _REFERENCE.sub(lambda m: b"(?:%s)" % _PARTS[m[1]] if m[1] in _PARTS else m[0], pattern)


_SECONDS_OF = rb":(\d\d)(?:[.,](\d{1,12}))?"
_ISO = _spell(rb"(\d{4}[-/.]\d\d[-/.]\d\d[ T_](?&hm))" + _SECONDS_OF) + (
    rb"(?: ?(Z|UTC|GMT|[+-][01]\d:?[0-5]\d)(?![\w.:]))?"
)
_ISO_ALONE = re.compile(_ISO)
# A line that begins with a date, as most do that have one, and goes on with what is no other time.
_DATED = re.compile(
    _spell(rb"(\[)?(\d{4}-\d\d-\d\d[ T](?&hm)):(\d\d)(?:[.,](\d{1,6}))?(Z)?(?(1)\]):? ")
    + rb"(?! *(?:[\[<(]?[-+\d{]|(?:Z|UTC|GMT)(?![\w.:])))"
)
_GROUP = rb"(?:PG (?:ID )?(\d+)(?: ?PG GUID (\w+?))?( ?\(default_pg\))? )?Rank (\d{1,18})"

_FIELDS: dict[bytes, tuple[bytes, _Field]] = {
    b"iso": (_ISO, _iso),
    b"epoch": (rb"(\d{9,10})(?:\.(\d{1,9}))?", _epoch),
    b"fraction": (rb"(\d{6})", _fraction),
    b"month-day": (rb"(\d\d[-/]\d\d (?&hm))" + _SECONDS_OF, _incomplete),
    b"bare-date": (rb"(\d{3,4} (?&hm))" + _SECONDS_OF, _incomplete),
    b"clock": (rb"((?&hm))" + _SECONDS_OF, _incomplete),
    b"syslog": (
        rb"((?&month) +\d{1,2} (?&hm))" + _SECONDS_OF + rb"(?! (?:[A-Z]{3,4} )?\d{4}\b)",
        _syslog,
    ),
    # the year stands before the time or behind it, there perhaps after the name of a zone
    b"calendar": (
        rb"((?&month)) +(\d{1,2}) (?:(\d{4}) )?((?&hm))"
        + _SECONDS_OF
        + rb"(?:(?: (?:(UTC|GMT)|[A-Z]{3,4}))? (\d{4})(?![\w:]))?",
        _calendar,
    ),
    # 03/20/23 of rich, 01/20/2025 of transformers, 17/06/09 of Spark (there a class follows)
    b"slashed": (
        rb"(\d\d)/(\d\d)/(\d{4}|\d\d)[ -]((?&hm))" + _SECONDS_OF + rb"(?=( (?&words) \w+\.)?)",
        _slashed,
    ),
    b"digits": (rb"(\d\d)(\d\d)(\d\d) ([012]\d)([0-5]\d)([0-5]\d)", _digits),
    b"dotted": (rb"(\d{4}-\d\d-\d\d)-(\d\d)\.(\d\d)\.(\d\d)\.(\d{6})", _dotted),
    b"boot": (rb"(\[ *\d{1,8}\.\d{6}\])", _since_boot),
    b"level": (rb"((?&words))", _level),
    b"low-level": (rb"((?&low-words))", _level),
    b"any-level": (rb"((?&words)|(?&low-words))", _level),
    b"letter": (rb"([IWEFDC])", _level),
    b"kind": (rb"(Normal|Warning)", _level),
    b"priority": (rb"(\d{1,9})", _priority),
    b"label": (rb"(\d{1,18})", _label),
    b"some-rank": (rb"(\d{1,18})", _some_rank),
    b"rank": (rb"(\d{1,18})", _global_rank),
    b"group-rank": (_GROUP, _group_rank),
    b"local-rank": (rb"(\d{1,9})", _local_rank),
    b"host": (rb"([\w.-]++)", _host),
    b"place": (rb"([\w.@/:-]++)", _host),
    b"pid": (rb"(\d{1,18})", _pid),
    b"program": (rb"([^\s:\[\]]++)(?:\[(\d{1,10})\])?: ?", _program),
    b"source": (rb"([\w./<>-]++:\d++)", _source),
    b"logger": (rb"([\w./<>-]++)", _source),
    b"actor": (rb"((?:\w[\w.:-]*(?:\([^)]*\))? )?)pid=(\w{1,18})", _actor),
    b"daemon": (rb"(raylet|autoscaler|gcs_server|dashboard)", _daemon),
    b"stdio": (rb"(?:stdout|stderr) ([FP])(?::\w+)?(?: |$)", _stdio),
    b"count": (rb"(\d{1,9})", _count),
    b"record": (rb'(\{) ?"', _record),
}


# -- layers ------------------------------------------------------------------------------------


class _Layer(NamedTuple):
    first: re.Pattern[bytes]  # of its first two bytes, to pick it by
    pattern: bytes
    states: tuple[int, ...]
    tells: tuple[tuple[str, object], ...]  # attributes of _Found, set after the fields


_ALWAYS = tuple(range(32))
_START = (0, _ZONED)
_TIME = tuple(s for s in _ALWAYS if s & 3 != 3)  # a time after time and level is the message's
_FIRST_TIME = (0, _LEVELLED, _ZONED)
_AFTER = tuple(s for s in _ALWAYS if s & 3)


def _layer(
    first: bytes, pattern: bytes, states: tuple[int, ...] = _ALWAYS, **tells: object
) -> _Layer:
    return _Layer(re.compile(first), _spell(pattern), states, tuple(tells.items()))


_LEVEL_START = rb"TR|DE|IN|NO|WA|ER|CR|FA|SE|AL|EM|PA"
_DAY_START = rb"Ja|Fe|Ma|Ap|Ju|Au|Se|Oc|No|De|Mo|Tu|We|Th|Fr|Sa|Su"
_LAYERS = [
    _layer(
        rb"\[[ TDINWECFSAPtdinwecfsapv]",
        rb"\[ ?(?&any-level) *(?:[|:][^\]\s]{1,100})?\](?: -|:)? ?",
    ),
    # between the fields of one logging format
    _layer(rb"[-|:] |>>|--", rb"(?:[-|:]|>>|--) ", _AFTER),
    _layer(
        _LEVEL_START, rb"(?&level)(?: *[:|\]]| -(?= )|(?=[ \t]|$))[ \t]*", _AFTER
    ),  # INFO, WARNING:, ERROR |
    _layer(  # Slurm's daemons
        rb"[defiwv].",
        rb"(?<=T\d\d:\d\d:\d\d\.\d\d\d\] )(?&low-level): ",
        _AFTER,
        stream="scheduler",
    ),
    _layer(rb"[tdinwecfsapv].", rb"(?&low-level): ", _AFTER),
    _layer(rb"\[[\w/<]", rb"\[(?&source)(?::[\w<>]+)?(?:, rank=(?&rank))?\] ?", _AFTER),
    _layer(rb"\[[tp]", rb"\[(?:tid[ :=]?\d+|pid[ :=]?(?&pid))\] ?", _AFTER),
    _layer(  # slurmd, of a step
        rb"\[\d",
        rb"\[\d+\.(?:\d{1,4}|batch|extern|interactive)\] ",
        _AFTER,
        stream="scheduler",
    ),
    _layer(rb"\[[a-zT_]", rb"\[(?!rank|default)[\w.-]{1,60}\] ?(?=\[)", _AFTER),
    _layer(rb"\[[\w/]", rb"\[[^ ]{1,200}\] - ", _AFTER),  # a thread of ZooKeeper
    _layer(rb"\[\w", rb"\[[\w ./:@#-]{1,100}\] (?=[\w$]++(?:\.[\w$]++)+: )", _AFTER),  # of Hadoop
    _layer(  # a logger or a source: `name - INFO`, `name: [INFO]`, `name:[2024-`, `file:1] `
        rb"[A-Za-z_]\S",
        rb"(?&logger)(?: - (?=(?:[\w.]+ - )?(?&words)[ :])|: (?=\[(?&words)\])"
        rb"|:(?=\[\d{4}-\d\d)|:\d+\] |:[\w.<>]++:\d+ - )",
        _AFTER,
    ),
    _layer(rb"\d.", rb"(?&pid) (?=(?&words) )", _AFTER),
    _layer(rb"[\dA-Za-z]\S", rb"(?&place) (?&program)", (_SYSLOG,)),
    _layer(
        rb"[\dA-Za-z]\S",
        rb"(?&place) (?=[^\s:\[]+\[\d+\]: |(?&daemons): )(?&program)",
        (_ZONED, _BOOT),
    ),
    # times with a date
    _layer(rb"\[\d", rb"\[(?&iso)\]:? ?", _TIME),
    _layer(rb"\d.", rb"(?&iso)(?: (?&stdio)|: (?&letter) (?:\S+:\d+\] ?)?|[:,;]? ?)", _TIME),
    _layer(rb"\[\d", rb"\[(?&iso): (?&letter) (?:[\w./-]+:\d+\] ?)?", _TIME),  # TensorFlow
    _layer(rb"\[\d", rb"\[(?&iso) (?&letter) (?&pid) \d+\] (?:\([\w-]+\) )?", _TIME),  # Ray's own
    _layer(rb"\[\d", rb"\[(?&iso)(?: DP\d+)?(?: TP(?&label))?(?: EP\d+)?\] ?", _TIME),  # SGLang
    _layer(rb"\[\d", rb"\[(?&iso)(?: -)? (?&level)\] ?", _TIME),
    _layer(rb"\[N", rb"\[NeMo (?&letter) (?:(?&iso) ?)?[^\]]{0,100}\] ?", _TIME),
    _layer(rb"\d.", rb"(?&dotted) (?&place) (?:RAS|NULL) [A-Z]+ (?&level) ?", _TIME),
    _layer(  # an alert label and an epoch before a line of BlueGene or a syslog line without zone
        rb"- |[A-Z]{2}",
        rb"(?:-|[A-Z]{2,20}) (?&epoch) \d{4}\.\d\d\.\d\d (?:(?&place)|\S+) "
        rb"(?:[\d.-]{20}(?&fraction) \S+ (?:RAS|NULL) [A-Z]+ (?&level) ?"
        rb"|[A-Z][a-z]{2} +\d+ [\d:]{8} \S+ (?&program)?)",
        _START,
    ),
    _layer(
        rb"\d.",
        rb"\d{1,12} (?:(?=\S*[a-zA-Z]\S*\d)(?&host)|\S+) [\w.-]+ [\w.-]+ (?&epoch) -?\d+ ",
        _START,
    ),  # HPC of LANL
    _layer(rb"\d.", rb"(?&digits) (?&pid) (?&level) ", _START),  # Hadoop's file system
    _layer(rb"\d.", rb"(?&slashed) ?", _TIME),
    _layer(rb"\[\d", rb"\[(?&slashed)\] ?", _TIME),
    _layer(rb"\[[MTWFS]", rb"\[(?&weekday) (?&calendar)\] ?", stream="kernel"),
    _layer(rb"\[[JFMASOND]", rb"\[(?&calendar)\] ?", _TIME),
    _layer(_DAY_START, rb"(?:(?&weekday) )?(?&syslog):? ?", _TIME),
    _layer(_DAY_START, rb"(?:(?&weekday) )?(?&calendar):? ?", _TIME),
    _layer(_DAY_START, rb"(?&weekday) (?=\d{4}-\d\d-\d\d )", _START),  # journalctl -o short-full
    _layer(
        rb"\[\d",
        rb"\[(?&epoch)\](?: +\[(?&host):(?&pid)[^\]]*\])? *(?=(?:\S+ +)?UCX +(?&level)|)",
        _TIME,
    ),
    _layer(rb"\d.", rb"(?=\d{10}\.)(?&epoch):? ", _START),
    _layer(rb"ti", rb'time="?(?&iso)"? (?:level=(?&any-level) )?', _START),
    # times without a year, a date or an absolute meaning
    _layer(rb"\d.", rb"(?&month-day) ?", _TIME),
    _layer(rb"\[\d", rb"\[(?&month-day)\] ?", _TIME),
    _layer(rb"\d.", rb"(?&clock)(?:[:,]? |$)", _FIRST_TIME),
    _layer(rb"\[\d", rb"\[(?&clock)\] ?", _FIRST_TIME),
    _layer(
        rb"[IWEF]\d", rb"(?&letter)0000 00:00:(?&epoch) +(?&pid) (?&source)\] ?"
    ),  # absl before its initialisation
    _layer(rb"[IWEF]\d", rb"(?&letter)(?&bare-date) +(?&pid) (?&source)\] ?"),
    _layer(rb"\[[IWEFCD]", rb"\[(?&letter)(?&bare-date) [\w./-]+:\d+\] ?"),
    _layer(rb"\[[IWEFCD]", rb"\[(?&letter)(?: [\w./-]+:\d+)?\] ?"),
    _layer(rb"\[[ \d]", rb"(?&boot)(?:\[ *[TC]\d+\])? ?"),
    _layer(
        rb"\d.", rb"(?&priority),\d+,\d+,[^;\s]*;", _START, boot=True, stream="kernel", state=_TIMED
    ),
    _layer(
        rb"ke|us|ma|da|au|sy|lp|ne|cr|lo",
        rb"(?:kern|user|mail|daemon|auth|syslog|lpr|news|cron|local\d) *:"
        rb"(?&any-level) *: ?",
        _START,
        stream="kernel",
    ),
    _layer(
        rb"<.",
        rb"<(?&priority)>1 (?&iso) (?:-|(?&host)) (?:-|\S+) (?:-|(?&pid)|\S+) \S+ "
        rb"(?:-|(?:\[[^\]]*\])+) ?",
        state=0,
    ),
    _layer(rb"<.", rb"<(?&priority)>(?=\[|[A-Z][a-z]{2} )"),
    # who printed it
    _layer(rb"\[[rR]", rb"\[rank(?&rank)\]:? ?"),
    _layer(rb"\[[rR]", rb"\[[Rr](?:ank|ANK)[ :=]{1,2}(?&some-rank)(?:/\d+)?\]:? ?"),
    _layer(rb"\[P", rb"\[(?&group-rank)\] ?"),
    _layer(rb"\[[dtw]", rb"\[(?:default|trainer|worker)(?&local-rank)\]:"),
    _layer(
        rb"\[[\dp]",
        rb"\[(?:prterun-[\w.-]+@)?(?:\d+,)?(?:mpirank:)?(?&rank)(?:,(?&host))?\]"
        rb"<std(?:out|err|diag)>: ?",
    ),
    _layer(rb"\d.", rb"(?&label):(?: |$)", _START),  # srun -l
    _layer(rb"\(.", rb"\((?:\w+ rank=(?&rank) )?(?&actor)(?:, ip=(?&place))?\) ?"),
    _layer(rb"\(.", rb"\((?&daemon)[^)]{0,80}\) "),
    _layer(rb"ra", rb"rank(?&rank)\[(?&pid)\]\[[^\]]*\]: ?", state=1),  # composer
    _layer(rb"[rR]a", rb"[rR]ank ?(?&some-rank): "),
    _layer(
        rb"[\dA-Za-z][\w.:-]",
        rb"(?&host):(?&pid):\d+ \[(?:(?&local-rank)|-\d+)\] ?(?=(?:\S+ )?NCCL (?:(?&level)|))",
    ),
    _layer(
        rb"\[[A-Za-z]", rb"\[(?&host):(?&pid)(?::\d+:\d+)?\] (?=\*\*\*|Caught|\[ ?\d)"
    ),  # Open MPI's and UCX's crash handlers
    _layer(
        # pdsh: a name that nodes bear, or one with a digit before a header beyond doubt
        rb"[a-z][\w.-]",
        rb"(?=[\w.-]++: )"
        rb"(?=(?:worker|node|host|slot|nid|compute|trainer|master|login|dgx|hgx|tray|cn|ip-)"
        rb"[\w.-]*\d|[\w-]*\d[\w.-]*: (?:\[(?:\d{4}-|rank\d|default\d|[A-Z]{4,8}\])|\d{4}-\d\d-"
        rb"|[IWEF]\d{4} |[A-Z]{4,8} \d\d|Traceback ))(?&host): ",
        _START,
    ),
    _layer(rb"\[p", rb"\[pod/[^/\]\s]+/[^\]\s]*\] ?", _START),
    _layer(rb"[a-z][\w.-]", rb"[\w-]++\.log\S*+ (?=\d{4}-\d\d-\d\d )", _START),  # of a collector
    _layer(rb"\{.", rb"(?=(?&record))", _START),
    _layer(rb"[\d<a-z].", rb"(?:[a-z][\w.-]*+ ++)?(?&age) {2,}(?&kind) {2,}", stream="k8s-event"),
    _layer(rb"No|Wa", rb"(?&kind) {2,}(?=\w+ {2,}(?&age) )", _START, stream="k8s-event"),
    # programs that say who they are in the message, or what it is worth
    _layer(
        _LEVEL_START,
        rb"(?&level)(?:: ?(?=(?&logger):|)| +(?=\d\d[-/]|\d{4}[-/]|\d\d:|\[))",
        _START,
    ),
    _layer(rb"\[\d", rb"\[\d+(?:;\d+)*m ?"),  # a colour whose escape byte was lost on the way
    _layer(
        rb"sl|\*\*",
        rb"(?=(?:slurm(?:stepd|ctld|dbd|d): |\*\*\* (?:STEP|JOB) )(?:(?&any-level): )?"
        rb"(?:.{0,80}? ON (?&host) [A-Z ]{3,40} AT (?&iso))?)",
        stream="scheduler",
    ),
    _layer(
        rb"sr|sa|sb|to|de|mp|pr",
        rb"(?=(?:srun|salloc|sbatch|torchrun|deepspeed|mpirun|mpiexec|prterun): "
        rb"(?:(?&any-level): )?)",
        stream="launcher",
    ),
    _layer(rb"wa", rb"(?=wandb: (?&level) )"),
    _layer(rb"ti", rb"(?=time +: (?&iso))", _START),  # torchelastic's table of failures
    _layer(rb"\[[ab]", rb"(?=\[(?:after|before) [\w ,]+\] datetime: (?&iso))", _START),  # Megatron
]


# -- the machine -------------------------------------------------------------------------------

_Tells = tuple[tuple[str, object], ...]
_Lexer = tuple[
    Callable[[bytes, int], "re.Match[bytes] | None"],
    dict[int | None, tuple[tuple[tuple[_Field, int, bool], ...], _Tells]],
]

_MOST_LAYERS = 16
_MOST_LEXERS = 1 << 14
_BLANK, _TAB, _ESCAPE = 32, 9, 27
_NO_GROUP = re.compile(rb"\\.|\[(?:\\.|[^\]\\])*\]")
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_BLANKS = re.compile(rb"[ \t]*").match
_REPEATED = re.compile(rb"\s?\[repeated (\d{1,9})x across cluster\]")
_MID_LINE = re.compile(
    rb"\[(?:rank(\d{1,9})\]:|default(\d{1,9})\]:|\d+,(\d{1,9})\]<std(?:out|err)>:"
    rb"|(?=PG |Rank )" + _GROUP + rb"\]"
    # a record right behind a progress bar
    rb"|[\d:?]+[<,][^\[\]]{0,80}?(?:it/s|s/it)[^\[\]]{0,200}\](?=[^|\s]))"
)


class _Lexers(dict[int, "_Lexer | None"]):
    """Alternations of layers by state and the next two bytes, compiled when first needed."""

    def __missing__(self, key: int) -> _Lexer | None:
        if len(self) > _MOST_LEXERS:
            self.clear()
        state, first = key >> 16, bytes([key >> 8 & 255, key & 255])
        numbers = [
            number
            for number, layer in enumerate(_LAYERS)
            if state in layer.states and layer.first.fullmatch(first)
        ]
        self[key] = _lexer(tuple(numbers)) if numbers else None
        return self[key]


@lru_cache(None)
def _lexer(numbers: tuple[int, ...]) -> _Lexer:
    """One alternation of these layers; what to do, by the group that closes each."""
    programs: dict[int | None, tuple[tuple[tuple[_Field, int, bool], ...], _Tells]] = {}
    alternatives = []
    groups = 0
    for number in numbers:
        fields, pattern = [], b""
        for index, piece in enumerate(_REFERENCE.split(_LAYERS[number].pattern)):
            if index % 2:
                text, field = _FIELDS[piece]
                piece = b"(?:%s)" % _spell(text)
                plain = _NO_GROUP.sub(b"", pattern)
                optional = plain.count(b"(") > plain.count(b")")
                fields.append((field, groups + 1, optional))
                groups += re.compile(piece).groups
            pattern += piece
        groups += 1
        # an empty group at the end tells which it was and leaves the first byte to be seen
        alternatives.append(pattern + b"()")
        programs[groups] = tuple(fields), _LAYERS[number].tells
    return re.compile(b"|".join(alternatives)).match, programs


_LEXERS = _Lexers()


def _peel(line: bytes, tz: tzinfo, at: int | None) -> _Found:
    """Peel the record that starts last before `at`."""
    found = _Found(line, tz)
    if _ESCAPE in line:
        found.line = _ANSI.sub(b"", line)
        at = at and len(_ANSI.sub(b"", line[:at]))
    _layers(found, 0)
    if _MID_LINE.search(found.line, found.body):
        _mid_line(found, len(found.line) if at is None else at)
    return found


def _tag(found: _Found, m: re.Match[bytes], k: int) -> None:
    """A tag that names the same rank as the one before it, or another."""


def _begin(found: _Found, m: re.Match[bytes], k: int) -> None:
    """Another record begins: what the first one said of itself does not hold for it."""
    found.rank = found.local_rank = found.level = None
    found.trust = found.state = 0


def _mid_line(found: _Found, at: int) -> None:
    """Look at tags in the message; go on with records that start in it, but before `at`."""
    for place in _MID_LINE.finditer(found.line, found.body, at):
        if place.start() < found.body:
            continue
        rank, local, mpi = place.group(1, 2, 3)
        body, state = found.body, found.state
        if place[7]:
            if found.rank is None:
                _group_rank(found, place, 4)
                found.tell(_group_rank, place, 4)
            continue
        if place.lastindex is None:
            found.state = 0
            _layers(found, place.end())
            if found.body == place.end():
                found.body, found.state = body, state
            continue
        known = found.local_rank if local else found.rank
        if known is not None:
            found.tell(_tag, place, 0)
        if known != int(rank or local or mpi):
            _begin(found, place, 0)
            found.tell(_begin, place, 0)
            _layers(found, place.start())


def _layers(found: _Found, position: int) -> None:
    """Peel layers from `position` on; `found.body` is where the message starts."""
    line = found.line
    size = len(line)
    for _ in range(_MOST_LAYERS):
        start = position
        if start >= size:
            break
        byte = line[start]
        if byte in (_BLANK, _TAB):
            blanks = _BLANKS(line, start)
            start = blanks.end() if blanks else start
            if start >= size:
                break
            byte = line[start]
        if start + 1 == size:
            break
        lexer = _LEXERS[found.state << 16 | byte << 8 | line[start + 1]]
        if lexer is None:
            break
        m = lexer[0](line, start)
        if m is None:
            break
        fields, tells = lexer[1][m.lastindex]
        for field, group, optional in fields:
            if not optional or m.start(group) >= 0:
                field(found, m, group)
                found.tell(field, m, group)
        for name, value in tells:
            setattr(found, name, value)
        if m.end() > start:
            position = m.end()
        elif found.line is not line:
            line = found.line
            size, position = len(line), 0
        else:
            break
    found.body = position


# -- lines that differ in digits alone ---------------------------------------------------------
# What a pattern above makes of a line hangs on which digits stand there in few places: the tens of
# a clock and of a zone. Where these agree, a second line of the same shape has the same fields in
# the same places, and only what they say is read anew.

_TENS = re.compile(rb"(?=(0)0:(0)0:00)|(?=[+-](0)0:?(0)0)")
# In these single digits count too.
_PARTICULAR = re.compile(rb"<0+>0 |0000 00:00:|0{6} 0{6}")
_MOST_LAYOUTS, _LAYOUT_BYTES = 1 << 13, 1 << 10
_MOST_DIGITS = 9  # of a number that fits its column whatever they are


class _Moment(NamedTuple):
    """Where a time stands; an epoch is one without `second`."""

    bounds: tuple[int, int]
    text: slice  # these
    second: slice | None
    fraction: slice | None
    scale: int  # µs of the last digit of the fraction
    zone: slice | None

    def has(self, place: int) -> bool:
        """Whether the byte at this place belongs to the date and the minute."""
        start, stop = self.bounds
        return start <= place < stop

    def us(self, line: bytes) -> int | None:
        """µs into the minute; None where there is no such second."""
        us = 0 if self.second is None else _SECONDS.get(line[self.second])
        if us is not None and self.fraction is not None:
            us += int(line[self.fraction]) * self.scale
        return us


class Layout(NamedTuple):
    """Where all lines of one shape have their fields, and what they have in common."""

    least: int  # offset behind the last tag that may begin another record
    tens: tuple[tuple[int, int, bool], ...]  # place, and whether its digit is at most this one
    common: _Found  # what does not hang on digits
    whole: _Moment | None
    loose: _Moment | None
    rank: slice | None
    local_rank: slice | None
    pid: slice | None
    hosts: tuple[slice, ...]
    notes: dict[int, Any]  # what others know of lines of this shape

    def time(self, line: bytes, clock: Clock) -> tuple[int | None, bool] | None:
        """`ts` and `tz_assumed` of a line of this shape; None where `parse` must tell."""
        for place, most, within in self.tens:
            if (line[place] <= most) is not within:
                return None
        ts, assumed = None, False
        if (whole := self.whole) is not None:
            text, zone = line[whole.text], whole.zone
            if whole.second is None:
                seconds = int(text)
                minute = seconds * _SECOND if seconds in _EPOCHS else None
            else:
                assumed = zone is None
                minute = _iso_minute(clock.tz if zone is None else UTC, text)
            us = whole.us(line)
            if minute is None or us is None:
                return None
            ts = minute + us
            if zone is not None:
                ts -= _offset(line[zone])
        if (loose := self.loose) is not None:
            us = loose.us(line)
            return None if us is None else _time(ts, assumed, (line[loose.text], us), clock)
        return ts, assumed

    def parse(self, line: bytes, clock: Clock, at: int) -> Header | None:
        """What the function of this name tells of a line of this shape; None where it must."""
        time = self.time(line, clock) if at >= self.least else None
        if time is None:
            return None
        ts, assumed = time
        common = self.common
        host = None
        for place in self.hosts:
            host = _short(line[place]) or host
        return Header(
            common.body,
            len(line),
            None,
            ts,
            "own" if ts is not None else "dmesg" if common.boot else "none",
            assumed,
            common.level,
            None if self.rank is None else int(line[self.rank]),
            None if self.local_rank is None else int(line[self.local_rank]),
            host,
            None if self.pid is None else int(line[self.pid]),
            common.stream,
            common.partial,
            1,
        )


class Layouts:
    """The layouts of lines that were seen before; one instance serves one thread."""

    def __init__(self) -> None:
        self._known: dict[bytes, Layout | bool] = {}  # False: seen once, True: has none

    def of(self, line: bytes) -> Layout | None:
        """The layout of a line; None where its shape is new or tells too little."""
        if len(line) > _LAYOUT_BYTES:
            return None
        key = shape(line)
        known = self._known.get(key)
        if known.__class__ is Layout:
            return known
        if known is None:
            if len(self._known) >= _MOST_LAYOUTS:
                self._known.clear()
            self._known[key] = False
        elif known is False:
            layout = _layout(line, key)
            self._known[key] = layout or True
            return layout
        return None

    def stamped(self, data: bytearray, clock: Clock, start: int, stop: int) -> int | None:
        """The same as the function of this name."""
        line = bytes(data[start:stop])
        if (layout := self.of(line)) and (time := layout.time(line, clock)):
            return time[0]
        return stamped(line, clock)


def _layout(line: bytes, key: bytes) -> Layout | None:
    """The layout of this line, of shape `key`; None where not all is known of its like."""
    found = _Found(line, UTC)
    found.read = []
    _layers(found, 0)
    tags = [tag.end() for tag in _MID_LINE.finditer(line, found.body)]
    if tags and found.line is line:
        _mid_line(found, len(line))
    if (
        _ESCAPE in line
        or found.line is not line
        or found.repeats != 1
        or (found.ray and b"[repeated " in line)
        or _PARTICULAR.search(key)
    ):
        return None
    whole = loose = None
    numbers: dict[str, slice] = {}
    hosts: list[slice] = []
    trust = 0
    for field, m, k in found.read:
        if field is _iso:
            whole, loose = _moment(m, k, k + 1, k + 2, k + 3), None
        elif field is _epoch:
            whole, loose = _moment(m, k, None, k + 1, None), None
        elif field in (_incomplete, _syslog):
            loose = _moment(m, k, k + 1, k + 2, None)
        elif field in _RANKS and not (field is _group_rank and m[k]):
            mine, place = _RANKS[field]
            if mine >= trust:
                trust, numbers["rank"] = mine, slice(*m.span(k + place))
        elif field is _local_rank:
            numbers["local_rank"] = slice(*m.span(k))
        elif field in _PIDS and not m[k].startswith(b"Worker_TP"):
            pid = k + _PIDS[field]
            if (m[pid] or b"").isdigit():
                numbers["pid"] = slice(*m.span(pid))
        elif field is _host:
            hosts.append(slice(*m.span(k)))
        elif field is _begin:
            numbers.pop("rank", None)
            numbers.pop("local_rank", None)
            trust = 0
        elif field not in _WORDS:
            return None
    if any(place.stop - place.start > _MOST_DIGITS for place in numbers.values()):
        return None
    found.read = None
    tens = [
        (m.start(group), most, line[m.start(group)] <= most)
        for m in _TENS.finditer(key)
        for group, most in enumerate(b"2515", 1)
        # The time that is read is no time where these are out of bounds.
        if m.start(group) >= 0 and not (whole and whole.has(m.start(group)))
    ]
    return Layout(
        max(tags, default=0),
        tuple(tens),
        found,
        whole,
        loose,
        numbers.get("rank"),
        numbers.get("local_rank"),
        numbers.get("pid"),
        tuple(hosts),
        {},
    )


# Of each field that tells a number: the trust in a rank, and the group with the number.
_RANKS = {_label: (1, 0), _some_rank: (2, 0), _global_rank: (3, 0), _group_rank: (2, 3)}
_PIDS = {_pid: 0, _program: 1, _actor: 1}
# Fields in which digits say nothing.
_WORDS = (_level, _source, _stdio, _daemon, _since_boot)


def _moment(
    m: re.Match[bytes], text: int, second: int | None, fraction: int, zone: int | None
) -> _Moment:
    """A time in these groups of a match."""
    start, stop = m.span(fraction)
    digits = min(6, stop - start)
    return _Moment(
        m.span(text),
        slice(*m.span(text)),
        None if second is None else slice(*m.span(second)),
        slice(start, start + digits) if digits else None,
        _SCALE[digits],
        None if zone is None or m[zone] is None else slice(*m.span(zone)),
    )
