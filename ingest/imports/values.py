"""Read what schedulers and inventories print: times, durations, sizes, host ranges, names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import product
from zoneinfo import ZoneInfo

from matcher.mask import Masker
from matcher.pseudonyms import Pseudonyms

NOTHING = frozenset({"", "unknown", "none", "n/a", "(null)", "none assigned", "null", "nan"})
_SECOND = 1_000_000
_MOST_HOSTS = 1 << 17  # of one list: more than any cluster has
_EPOCH = re.compile(r"-?\d{9,19}(?:\.\d+)?")
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.(\d+))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)i?B?[cn]?", re.IGNORECASE)
_RANGE = re.compile(r"\[([^\]]*)\]")


def known(text: str) -> str | None:
    """The text, or None for a word that says there is none."""
    text = text.strip()
    return None if text.lower() in NOTHING else text


@lru_cache(1 << 16)
def time_us(text: str, zone: ZoneInfo) -> int | None:
    """UTC microseconds of an ISO time or an epoch (s, ms, us, ns); naive ones are in `zone`.

    Raises ValueError.
    """
    value = known(text)
    if value is None or value == "0":
        return None
    if _EPOCH.fullmatch(value):
        number = float(value)
        while abs(number) >= 1e11:  # the year 5138 in seconds
            number /= 1000
        return round(number * _SECOND)
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return _micros(moment)


@lru_cache(1 << 16)
def time_as(text: str, form: str, zone: ZoneInfo) -> int | None:
    """The same of a time in a form of strptime. Raises ValueError."""
    value = known(text)
    if value is None:
        return None
    moment = datetime.strptime(value, form)
    return _micros(moment if moment.tzinfo else moment.replace(tzinfo=zone))


def _micros(moment: datetime) -> int:
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * _SECOND + since.microseconds


def duration_s(text: str) -> float | None:
    """Seconds of `[D-]HH:MM:SS[.us]` or `MM:SS`. Raises ValueError."""
    value = known(text)
    if value is None or value.upper() in ("UNLIMITED", "PARTITION_LIMIT", "INVALID"):
        return None
    found = _DURATION.fullmatch(value)
    if found is None:
        raise ValueError(f"{value!r} is no duration")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    return days * 86400 + hours * 3600 + minutes * 60 + seconds + float(f"0.{found[5] or 0}")


def size_bytes(text: str, unit: str = "") -> int | None:
    """Bytes of `64G`, `64Gn`, `500000M`; a bare number is in `unit`. Raises ValueError."""
    value = known(text)
    if value is None:
        return None
    found = _SIZE.fullmatch(value)
    if found is None:
        raise ValueError(f"{value!r} is no size")
    power = " KMGTPE".index((found[2] or unit or " ").upper())
    return round(float(found[1]) * float(1024**power))


def tres(text: str) -> dict[str, str]:
    """The parts of `cpu=80,gres/gpu=8,gres/gpu:h100=8,mem=1T,node=1`."""
    return dict(_tres(text))


@lru_cache(1 << 14)
def _tres(text: str) -> tuple[tuple[str, str], ...]:
    parts = (part.partition("=") for part in text.split(","))
    return tuple((name.strip().lower(), value) for name, equals, value in parts if equals)


def gpus(parts: dict[str, str]) -> tuple[int, str | None]:
    """GPUs among the parts and their model; typed counts stand beside a total, if there is one.

    Raises ValueError.
    """
    typed = {
        name.partition(":")[2]: int(value)
        for name, value in parts.items()
        if name.startswith("gres/gpu:")
    }
    total = int(parts["gres/gpu"]) if "gres/gpu" in parts else sum(typed.values())
    return total, "+".join(sorted(typed)) or None


@lru_cache(1 << 12)
def hosts(text: str) -> tuple[str, ...]:
    """Hosts of a list such as `n[001-003,7],m2`, in its order. Raises ValueError."""
    value = known(text)
    if value is None:
        return ()
    found = [host for part in _parts(value) for host in _expanded(part.strip())]
    if len(found) > _MOST_HOSTS:
        raise ValueError(f"a list of more than {_MOST_HOSTS} hosts")
    return tuple(found)


def _parts(text: str) -> Iterator[str]:
    """What commas outside of brackets separate."""
    depth = start = 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            yield text[start:at]
            start = at + 1
    if depth:
        raise ValueError(f"{text[:80]!r}: brackets do not match")
    yield text[start:]


def _expanded(part: str) -> list[str]:
    pieces = _RANGE.split(part)
    choices = [_numbers(piece) if at % 2 else [piece] for at, piece in enumerate(pieces)]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > _MOST_HOSTS:
        raise ValueError(f"a list of more than {_MOST_HOSTS} hosts")
    return ["".join(one) for one in product(*choices)]


def _numbers(text: str) -> list[str]:
    found: list[str] = []
    for one in text.split(","):
        first, dash, last = one.partition("-")
        if not dash:
            found.append(one)
            continue
        low, high = int(first), int(last)
        if not 0 <= high - low < _MOST_HOSTS:
            raise ValueError(f"a range of hosts from {first[:20]} to {last[:20]}")
        found += [f"{number:0{len(first)}d}" for number in range(low, high + 1)]
    return found


class Names:
    """How names and free text are stored: short, masked, and as pseudonyms where there is a key."""

    def __init__(self, masker: Masker, pseudonyms: Pseudonyms | None) -> None:
        self._masker = masker
        self._pseudonyms = pseudonyms
        self._renamer = pseudonyms and pseudonyms.renamer()
        self.user = lru_cache(1 << 14)(self._user)
        self.host = lru_cache(1 << 16)(self._host)
        self.text = lru_cache(1 << 12)(self._text)

    def _user(self, name: str) -> str | None:
        value = known(name)
        if value is None:
            return None
        if self._pseudonyms:
            return self._pseudonyms.user(value)
        digest = hashlib.blake2b(value.lower().encode(), digest_size=5, person=b"user")
        return f"user-{digest.hexdigest()}"

    def _host(self, name: str) -> str | None:
        value = known(name)
        if value is None:
            return None
        if self._pseudonyms:
            return self._pseudonyms.host(value)
        lower = value.lower()
        return lower if re.fullmatch(r"[\d.:a-f]*[.:][\d.:a-f]*", lower) else lower.split(".")[0]

    def _text(self, text: str) -> str | None:
        value = known(text)
        if value is None:
            return None
        raw = value.encode("utf-8", "replace")
        masked = self._masker.mask(raw)[0].decode("utf-8", "replace")
        return self._renamer.text(masked) if self._renamer else masked


class Problems:
    """Rows that could not be taken: how many, and the first of them with place and reason."""

    shown = 10

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0
        self.messages: list[str] = []

    def add(self, line: int, reason: str, remedy: str = "correct the row and import again") -> None:
        """Count a row that begins on this line."""
        self.count += 1
        if len(self.messages) < self.shown:
            self.messages.append(f"{self.path}:{line}: {reason}: {remedy}")
