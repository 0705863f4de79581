"""Tell what holds for all lines that differ in digits alone: their shape.

Log lines are endless, their shapes few. What a pattern finds in one line it finds in all of its
shape, provided that it takes any digit wherever it takes one; and what the wider pattern that takes
any digit does not find in the shape, the pattern finds in none of them.
"""

from __future__ import annotations

import re

_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_PIECE = re.compile(
    r"\\x[0-9a-fA-F]{2}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d+,?\d*\}|\d|\(\?(?:P=|\()", re.DOTALL
)
_DIGITS = b"0123456789"


def shape(text: bytes) -> bytes:
    """The text with 0 for each digit: the same for all that differ in digits alone."""
    return text.translate(_ZEROS)


def takes_any_digit(pattern: str) -> bool:
    """Whether the pattern makes no difference between digits, so that a shape tells its matches."""
    return all(_kind(piece) != "some" for piece in _PIECE.findall(pattern))


def widened(pattern: str) -> str:
    """A pattern that matches the shape of whatever the pattern matches.

    Raises ValueError for one that tells digits apart in a way that is not known here.
    """

    def zero(match: re.Match[str]) -> str:
        piece = match[0]
        if _kind(piece) != "some":
            return piece
        if not piece.isdigit():
            raise ValueError(f"{piece} in {pattern}: no shape stands for it: take all digits there")
        return "0"

    return _PIECE.sub(zero, pattern)


def _kind(piece: str) -> str:
    """Whether a piece of a pattern takes `some` digits, `all` or none, which is as good as all."""
    if piece[0] in "{(" or (piece[0] == "\\" and piece[1].isdigit()):
        return "all" if piece[0] == "{" else "some"
    pattern = re.compile(piece.encode()) if piece[-1] not in "bBAZ" or piece[0] != "\\" else None
    if pattern is None:
        return "all"
    return "some" if len({bool(pattern.match(b"%c" % digit)) for digit in _DIGITS}) == 2 else "all"
