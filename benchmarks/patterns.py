"""Say a catalogue's patterns in the regex dialects of other tools: the same lines, or left out.

A pattern comes narrowed to one line (`matcher.engine.within_line`) and has only what Hyperscan
knows. Groups are written without names: many tools refuse a name that comes twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

DIALECTS = ("perl", "posix", "ugrep", "unicode", "ascii")

_TOKEN = re.compile(
    r"(?P<escape>\\x[0-9a-fA-F]{2}|\\.)"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<flag>\(\?(?!:|P<))"
    r"|(?P<group>\((?:\?(?::|P<\w+>))?)"
    r"|(?P<repeat>(?:\{\d+(?:,\d*)?\}|[*+?])\??)"
    r"|(?P<char>.)",
    re.DOTALL,
)
_LONE_ANCHOR = re.compile(r"(?:\(\?:|(?<!\\)\|)\^(?:\||\))")
_ITEM = re.compile(r"\\x[0-9a-fA-F]{2}|\\.|.", re.DOTALL)
_CONTROL = {"\\n": 10, "\\t": 9, "\\r": 13, "\\f": 12, "\\v": 11}
_BYTES = frozenset(range(256))
_ASCII = frozenset(range(128))
_CLASSES = {
    "\\d": frozenset(b"0123456789"),
    "\\s": frozenset(b" \t\n\v\f\r"),
    "\\w": frozenset(b"0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
}
_CLASSES |= {name.upper(): _BYTES - members for name, members in _CLASSES.items()}
_SPECIAL = frozenset(b".[]*+?{}()|^$\\")


def said(pattern: str, dialect: str) -> str | None:
    """The pattern in a dialect, None where that has no words for it.

    perl     what PCRE, RE2, Rust's regex, Hyperscan and `re` read alike
    ugrep    the same, but it takes `^` alone in an alternation for an empty expression
    posix    an extended regular expression of grep, in the C locale
    unicode  for engines whose classes are Unicode's, over text of one character a byte
    ascii    `.` and negated sets take ASCII alone: what Hyperscan's UTF-8 mode refuses as too large
             it then compiles, and a line may be missed
    """
    words: list[str] = []
    for match in _TOKEN.finditer(pattern):
        text = match[0]
        match match.lastgroup:
            case "escape":
                word = _escape(text, dialect)
            case "set":
                word = _set(text, dialect)
            case "group":
                word = "(" if dialect == "posix" else "(?:"
            case "flag":
                word = None
            case "repeat":
                # A lazy repeat finds the same lines.
                word = text.removesuffix("?") if len(text) > 1 else text
            case _ if text == "." and dialect == "ascii":
                word = _written(frozenset(b"\n"), True, dialect)
            case _:
                # Beyond ASCII the dialects do not agree on what a character is.
                word = {"{": "\\{"}.get(text, text) if text.isascii() else None
        if word is None:
            return None
        words.append(word)
    written = "".join(words)
    return None if dialect == "ugrep" and _LONE_ANCHOR.search(written) else written


def _escape(text: str, dialect: str) -> str | None:
    if text == "\\b":
        return "(?-u:\\b)" if dialect == "unicode" else text
    if text in _CLASSES:
        if dialect in ("perl", "ugrep"):
            return text
        negated = text[1].isupper()
        return _written(_CLASSES[text.lower()], negated, dialect)
    byte = _byte(text)
    if byte is None or (dialect == "posix" and byte in b"\n\0"):
        return None
    return f"\\{chr(byte)}" if byte in _SPECIAL else _char(byte, dialect)


def _set(text: str, dialect: str) -> str | None:
    negated = text.startswith("[^")
    items = [match[0] for match in _ITEM.finditer(text[2 if negated else 1 : -1])]
    members: set[int] = set()
    place = 0
    while place < len(items):
        item = items[place]
        place += 1
        if item in _CLASSES:
            members |= _CLASSES[item]
            continue
        first = last = _byte(item)
        if items[place : place + 1] == ["-"] and place + 1 < len(items):
            last = _byte(items[place + 1])
            place += 2
        if first is None or last is None:
            return None
        members.update(range(first, last + 1))
    return _written(frozenset(members), negated, dialect)


def _byte(text: str) -> int | None:
    """The byte that a token stands for, None for an assertion or a character beyond ASCII."""
    if text in _CONTROL:
        return _CONTROL[text]
    if text.startswith("\\x"):
        return int(text[2:], 16)
    if text.startswith("\\") and text[1].isalnum():
        return None
    return ord(text[-1]) if text[-1].isascii() else None


def _written(members: frozenset[int], negated: bool, dialect: str) -> str | None:
    """A set of bytes as a bracket expression."""
    if dialect == "ascii":
        members, negated = (_BYTES - members if negated else members) & _ASCII, False
    elif not members <= _ASCII:
        members, negated = _BYTES - members, not negated
    if dialect != "posix":
        ranges = "".join(
            _member(first) if first == last else f"{_member(first)}-{_member(last)}"
            for first, last in _ranges(members)
        )
        return f"[{'^' * negated}{ranges}]"
    members -= {10}  # no line holds one
    if 0 in members:
        return None
    # Brackets of POSIX have no escapes: `]` must come first, `-` first or last, `^` not first, and
    # `[` before none of `.:=`.
    awkward = "".join(char for char in "[^-" if ord(char) in members)
    plain = "".join(
        chr(first) if first == last else f"{chr(first)}-{chr(last)}"
        for first, last in _ranges(members - set(b"[]^-"))
    )
    body = "]" * (ord("]") in members) + plain + awkward
    if body.startswith("^") and not negated:
        body = body[::-1]
    return "\\^" if body == "^" and not negated else f"[{'^' * negated}{body}]"


def _ranges(members: frozenset[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each run of members; no run reaches over the ends of letters and digits."""
    run: list[int] = []
    for byte in sorted(members):
        if run and (byte != run[-1] + 1 or chr(byte).isalnum() != chr(run[-1]).isalnum()):
            yield run[0], run[-1]
            run = []
        run.append(byte)
    if run:
        yield run[0], run[-1]


def _member(byte: int) -> str:
    char = chr(byte)
    return (
        char if byte < 127 and (char.isalnum() or char in " '\",:;/=<>_@#%!") else f"\\x{byte:02x}"
    )


def _char(byte: int, dialect: str) -> str:
    return chr(byte) if dialect == "posix" or 32 <= byte < 127 else f"\\x{byte:02x}"
