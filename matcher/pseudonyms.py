"""Replace names of machines and users by pseudonyms; hides by which shapes they are known in text.

A pseudonym is a keyed hash of its name: the same name has the same one wherever the key is the
same, so that joins still work, and without the key no list of names can be tried against it.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import itertools
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping

KEY_BYTES = 32
PSEUDONYM = r"(?:host|user)-[0-9a-f]{10}"  # as an expression that RE2 knows, too
HOST_CAPTURES = frozenset(("host", "node", "peer_host", "peer_node"))

# Names that many machines share, or that are ordinary words: known where they stand for a name,
# but not looked for elsewhere.
_COMMON = frozenset(
    "localhost kernel host hosts node nodes worker master login none null unknown true false root "
    "user users data shared home work scratch public projects project models admin nobody ubuntu "
    "default system log logs run runs train job jobs rank ranks cluster gpu cuda nccl python torch "
    "test tmp opt var usr etc mnt nfs lustre slurm error info warning debug the and for was "
    "checkpoint checkpoints output outputs dmesg syslog conda miniconda anaconda spack software "
    "apps lib bin env envs venv dataset datasets group groups runner pytorch nvidia slurmd".split()
)
_NOBODY = frozenset("none null true false root localhost self unknown default".split())
_SHORTEST = 2

_EDGE = r"(?<![A-Za-z0-9])"
_END = r"(?![A-Za-z0-9])"
_NAME = r"[A-Za-z_][\w.+-]{0,62}(?:[A-Za-z0-9_])"
# What may stand in text as a host's name by its look; other names must be known.
_SHAPE = (
    r"(?:(?:node|host|nid|worker|tray|dgx|hgx|cn|gn)[-_]?\d+(?:-\d+)*"
    r"|compute-?\d+(?:-\d+)*|ip(?:-\d{1,3}){4}|gpu-?(?:[a-z]\d+|\d{2,})|r\d+i\d+n\d+)"
)
_RANGE = (
    r"(?:node|host|nid|worker|tray|compute|dgx|hgx|cn|gn|gpu)[a-z0-9-]{0,20}"
    r"\[\d[\d,-]{0,200}\]"
)
# The rest of a machine's full name; after it stands no end of a file's name.
_DOMAIN = (
    r"(?:(?:\.[A-Za-z0-9-]{1,63}){1,6}"
    r"\.(?!(?:log|out|err|txt|json|gz|zst|py|so)\b)[A-Za-z]{2,24}\b"
    r"|\.(?:local|internal|lan|cluster)\b)?"
)
_HOSTS = r"[A-Za-z0-9](?:[\w.-]{0,100}[A-Za-z0-9])?(?:\[[\d,-]{1,200}\])?"
_HOSTS += rf"(?:,{_HOSTS}){{0,64}}"
_QUOTE = r"""(?:\\{0,7}["'`])?"""

_PLACES = "|".join(
    (
        # Homes.
        r"(?:(?<=/)|\A)(?P<dir>(?i:home|homes|users)/)(?P<home>[\w.@+-]{1,64})",
        # What is said to be a user.
        rf"(?i:\b(?P<said>(?:user(?:_?name|id)?|logname|owner|login|account|submitter){_QUOTE}"
        rf"[ ]?[=:][ ]?{_QUOTE})(?P<user>{_NAME}))(?!\w)",
        rf"(?i:\b(?P<as>(?:for|by|invalid)[ ]user[ ]{_QUOTE}|accepted[ ]\w{{1,20}}[ ]for[ ]))"
        rf"(?P<actor>{_NAME})",
        rf"(?i:\b(?P<uid>(?:[ugs]id|euid|auid|groups|loginuid|user)[=:][ ]?\d{{1,10}}\())"
        rf"(?P<called>{_NAME})(?=\))",
        r"(?i:(?P<is>\b(?:uid|euid|auid|loginuid)[=:][ ]?))(?P<number>[1-9]\d{0,9})(?![\w-])",
        # user@machine, as prompts, ssh and mpirun print it.
        rf"(?P<at>(?<![\w.@-])[A-Za-z_][\w.-]{{0,31}})@(?={_SHAPE}{_END})",
        # Addresses.
        r"(?P<ip4>(?<![\dvV])(?<!\d\.)(?:(?:25[0-5]|2[0-4]\d|[01]?\d{1,2})\.){3}"
        r"(?:25[0-5]|2[0-4]\d|[01]?\d{1,2}))(?!\d|\.\d)",
        r"(?P<ip6>(?<![\w:.])(?=[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:]{2,39}(?:(?:\d{1,3}\.){3}\d{1,3})?)"
        r"(?![\w:])",
        # Machines.
        rf"(?i:\b(?P<key>(?:host(?:_?name)?|node_?(?:name|list)?|master_addr(?:ess)?){_QUOTE}"
        rf"(?:[ ]?=[ ]?|:[ ]?(?=[^\s,]{{0,80}}\d)){_QUOTE}))"
        rf"(?P<given>(?=[\w.-]*[A-Za-z])(?>{_HOSTS}))(?![(\[])",
        rf"(?P<range>{_EDGE}(?i:{_RANGE}))",
        rf"(?P<shape>{_EDGE}(?i:{_SHAPE})(?!\.\d+\.\d){_DOMAIN}){_END}",
    )
)
_SEPARATORS = re.compile(r"([-_.])")
_LISTED = re.compile(r"(,(?![^\[]*\])|:\d{1,5}(?=,|$)|@(?:tcp|o2ib|kfi)\d*(?=,|$))")
_MOST_PARTS = 6  # of a name, between separators


_WORD = re.compile(r"[A-Za-z0-9]+(?:[-_.][A-Za-z0-9]+)*")
_DONE = re.compile("(?:host|user|ip)-[0-9a-f]{10}")


@functools.cache
def _domain() -> re.Pattern[str]:
    return re.compile(_DOMAIN)


@functools.cache
def _places() -> re.Pattern[str]:
    """Compiled where it is needed: only `strict` does."""
    return re.compile(_PLACES)


def new_key() -> bytes:
    """A key at random."""
    return secrets.token_bytes(KEY_BYTES)


class Pseudonyms:
    """The pseudonyms of one key. Raises ValueError for a key that is too short to be one."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}: make one by new_key()")
        self._key = key
        self._of = functools.lru_cache(1 << 16)(self._hash)

    def _hash(self, kind: str, name: str) -> str:
        digest = hashlib.blake2b(name.encode(), key=self._key, digest_size=5, person=kind.encode())
        return f"{kind}-{digest.hexdigest()}"

    def digest(self, value: str) -> str:
        """A keyed digest of another one, of 64 hex digits: a plain one tells known content."""
        return hashlib.blake2b(value.encode(), key=self._key, digest_size=32).hexdigest()

    def user(self, name: str) -> str:
        """The pseudonym of a user."""
        return self._of("user", name.lower())

    def host(self, name: str) -> str:
        """The pseudonym of a machine, by its short name or its address.

        A list of machines as Slurm writes it has one a member; `localhost` is no name.
        """
        if address := _address(name):
            return self._ip(address)
        pieces = _LISTED.split(name)
        if len(pieces) > 1:
            return "".join(
                piece if number % 2 else self.host(piece) for number, piece in enumerate(pieces)
            )
        short = name.lower().partition(".")[0]
        return name if short in ("", "localhost") else self._of("host", short)

    def _ip(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
        quiet = address.is_loopback or address.is_unspecified
        return str(address) if quiet else self._of("ip", address.compressed)

    def renamer(self) -> Renamer:
        """For texts in which the same names are known."""
        return Renamer(self)

    def in_texts(self, words: Iterable[str], wanted: set[str]) -> dict[str, str]:
        """Of the names that words (in lower case) hold, those with a pseudonym that is wanted."""
        found: dict[str, str] = {}
        for word in words:
            for name in _within(word):
                if name not in found and _is_sought(name):
                    for kind in ("host", "user"):
                        if (pseudonym := self._hash(kind, name)) in wanted:
                            found.setdefault(name, pseudonym)
        return found


class Renamer:
    """Replaces names in texts: by shape, by what stands before them, and those it has learnt."""

    def __init__(self, names: Pseudonyms, known: Mapping[str, str] | None = None) -> None:
        self._names = names
        self._known = dict(known or {})

    def host(self, name: str) -> str:
        """The pseudonym of a machine."""
        return self._names.host(name)

    def learn_host(self, name: str) -> None:
        """Know a machine by this name: an address needs no knowing."""
        for piece in _LISTED.split(name)[::2]:
            short = piece.lower().partition(".")[0]
            if not _address(piece):
                self._learn(short, self._names.host(short))

    def learn(self, text: str) -> None:
        """Know the names that stand in a text where names do."""
        for match in _places().finditer(text):
            kind = match.lastgroup
            name = match[kind or 0]
            # After a colon may stand any word of a sentence, and `host=` is code as well.
            if kind in ("home", "actor", "called", "at") or "=" in (match["said"] or ""):
                self._learn(name.lower(), self._names.user(name))
            elif kind == "given" and re.search(r"[\d-]", name):
                self.learn_host(name)

    def _learn(self, name: str, pseudonym: str) -> None:
        if name not in self._known and _is_sought(name):
            self._known[name] = pseudonym

    def text(self, text: str) -> str:
        """The text with the names replaced."""
        return self.known(_places().sub(self._replaced, text))

    def known(self, text: str) -> str:
        """The text with the names replaced that were learnt, and only those."""
        return _WORD.sub(self._in_word, text) if self._known else text

    def _in_word(self, match: re.Match[str]) -> str:
        """A word with the known names in it replaced, the longest first, each with its domain."""
        word, at = match[0], 0
        pieces = _SEPARATORS.split(word)
        lower = [piece.lower() for piece in pieces]
        done: list[str] = []
        while at < len(pieces):
            stop = next(
                (
                    stop
                    for stop in range(min(at + 2 * _MOST_PARTS - 1, len(pieces)), at, -2)
                    if "".join(lower[at:stop]) in self._known
                ),
                None,
            )
            if at + 3 <= len(pieces) and _DONE.fullmatch("".join(pieces[at : at + 3])):
                done += pieces[at : at + 3]
                at += 3
            elif stop is None:
                done.append(pieces[at])
                at += 1
            else:
                done.append(self._known["".join(lower[at:stop])])
                rest = "".join(pieces[stop:])
                if domain := _domain().match(rest):
                    pieces = _SEPARATORS.split(rest[domain.end() :]) if domain[0] else pieces[stop:]
                    lower, at = [piece.lower() for piece in pieces], 0
        return "".join(done)

    def captures(self, captures: Mapping[str, str]) -> dict[str, str]:
        """The captures of a message with the names replaced."""
        return {
            name: self._names.host(value) if name in HOST_CAPTURES else self.text(value)
            for name, value in captures.items()
        }

    def _replaced(self, match: re.Match[str]) -> str:
        kind = match.lastgroup or ""
        name = match[kind]
        head = match[0][: match.start(kind) - match.start()]
        if name.lower() in _NOBODY:
            return match[0]
        if kind in ("home", "user", "actor", "called", "number", "at"):
            return f"{head}{self._names.user(name)}{match[0][match.end(kind) - match.start() :]}"
        if kind in ("ip4", "ip6"):
            return match[0] if _address(name) is None else self._names.host(name)
        return head + self._names.host(name)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if not re.fullmatch(r"[0-9A-Fa-f:.]{2,45}", text) or not re.search(r"\..*\.|:.*:", text):
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_sought(name: str) -> bool:
    """Whether a name, in lower case, says enough to be looked for in any text."""
    return len(name) >= _SHORTEST and not name.isdigit() and name not in _COMMON


def _within(word: str) -> Iterator[str]:
    """A word and its pieces between separators, as names may stand in it."""
    pieces = _SEPARATORS.split(word)
    for first, count in itertools.product(range(0, len(pieces), 2), range(_MOST_PARTS)):
        if first + 2 * count < len(pieces):
            yield "".join(pieces[first : first + 2 * count + 1])
