"""Check a catalogue against its own examples, with the whole set compiled.

What `failures check` runs: every pattern is sound alone, every example line hits exactly what its
signature declares, no near miss does, Hyperscan and `re` agree on all of them, and what entries and
edges say of each other holds from both sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from matcher.catalogue import Catalogue, CatalogueError, Issue, Signature
from matcher.engine import Engine, Oracle, Scanner

_LITERAL_BYTES = 4
_OPEN_END = re.compile(r"(?<!\\)(?:[*+]|\{\d+,\})\??[)$]*$")
_NOT_LITERAL = re.compile(
    r"""
    \\[AbBdDsSwWZnrtfvx]\w*      # classes, anchors, control characters
    | \[\^?\]?(?:\\.|[^\]\\])*\]      # sets
    | \(\?P<\w+> | \(\?[:imsx]+\)? | [()|^$.]
    | (?:\\.|[^\\])(?:[*?]|\{0,?\d*\})      # what may be absent
    | [+*?] | \{\d*,?\d*\}
    """,
    re.VERBOSE,
)


def check(catalogue: Catalogue, cache: Path | None = None) -> list[Issue]:
    """Everything that is wrong with a catalogue that `load` took; empty for a sound one."""
    issues = [*_related(catalogue), *_precedence(catalogue)]
    unsound = [issue for signature in catalogue.signatures for issue in _pattern(signature)]
    if unsound:
        return issues + unsound
    try:
        engine = Engine(catalogue, cache)
    except CatalogueError as error:
        return [*issues, *error.issues]
    oracle = Oracle(catalogue)
    for signature in catalogue.signatures:
        issues += _examples(signature, catalogue, engine, oracle)
    return issues


def longest_literal(pattern: str) -> int:
    """Length in characters of the longest text that stands in the pattern as it is."""
    runs = _NOT_LITERAL.split(pattern)
    return max((len(re.sub(r"\\(.)", r"\1", run)) for run in runs if run), default=0)


def _related(catalogue: Catalogue) -> Iterator[Issue]:
    """Lists of related entries that the other side does not return."""
    known = catalogue.by_id
    for failure in catalogue.failures:
        for name in failure.related:
            if name == failure.id:
                yield Issue(failure.source, name, "related names the entry itself", "drop it")
            elif (other := known.get(name)) and failure.id not in other.related:
                yield Issue(
                    other.source,
                    other.id,
                    f"related lacks '{failure.id}', whose own list names '{other.id}'",
                    f"add '{failure.id}' here, or drop '{other.id}' in {failure.source}",
                )


def _precedence(catalogue: Catalogue) -> Iterator[Issue]:
    """Edges that say nothing, or the same pair's story twice."""
    seen: set[tuple[str, str]] = set()
    for edge in catalogue.precedence:

        def issue(message: str, help_: str, name: str = edge.cause) -> Issue:
            return Issue("precedence.toml", name, message, help_)

        if edge.cause == edge.effect:
            yield issue("an edge leads to its own cause", "drop it")
        if (edge.cause, edge.effect) in seen:
            yield issue(
                f"two edges lead to '{edge.effect}'",
                "keep one, with the wider scope and window: reports show a pair once",
            )
        if edge.lag_lo_s > edge.lag_hi_s:
            yield issue(
                f"the window to '{edge.effect}' ends before it begins",
                f"write lag_s = [{edge.lag_hi_s}, {edge.lag_lo_s}]",
            )
        seen.add((edge.cause, edge.effect))


def _pattern(signature: Signature) -> Iterator[Issue]:
    """Problems of the pattern by itself."""

    def issue(message: str, help_: str) -> Issue:
        return Issue(signature.source, signature.id, message, help_)

    try:
        compiled = re.compile(signature.pattern.encode())
    except (re.error, OverflowError) as error:
        yield issue(f"python's re refuses the pattern: {error}", "use what both engines know")
        return
    if compiled.search(b""):
        yield issue("the pattern matches an empty line", "demand at least one literal")
    if longest_literal(signature.pattern) < _LITERAL_BYTES:
        yield issue(
            f"no literal of {_LITERAL_BYTES} bytes or more",
            "anchor the pattern on words that only this message has",
        )
    if _OPEN_END.search(signature.pattern):
        yield issue(
            "the pattern ends in an open repeat",
            "drop it or bound it: every further byte would be one more match",
        )
    named = set(compiled.groupindex)
    wanted = {
        name: what
        for name, what in (
            (signature.lag.capture if signature.lag else None, "lag"),
            (signature.points_to, "points_to"),
            (signature.pair.key if signature.pair else None, "pair"),
        )
        if name
    }
    for name, what in wanted.items():
        if name not in named:
            yield issue(f"{what} names no group '{name}'", f"add (?P<{name}>...) to the pattern")


def _examples(
    signature: Signature, catalogue: Catalogue, engine: Scanner, oracle: Scanner
) -> Iterator[Issue]:
    """Problems of the signature's match and no_match lines."""

    def hits(scanner: Scanner, line: str) -> list[str]:
        return [ids[n].id for n in scanner.scan(line.encode()).signature.tolist()]

    def issue(message: str, line: str, help_: str) -> Issue:
        return Issue(signature.source, signature.id, f"{message}\n  line: {line}", help_)

    ids = catalogue.signatures
    wanted = sorted({signature.id, *signature.also})
    filled: set[str] = set()
    compiled = re.compile(signature.pattern.encode())
    for line in signature.match:
        got = sorted(hits(engine, line))
        if got != wanted:
            yield issue(
                f"a match line hits {got or 'nothing'} instead of {wanted}",
                line,
                "mend the pattern, or name the others in `also` or `supersedes`",
            )
        if match := compiled.search(line.encode()):
            filled |= {name for name, value in match.groupdict().items() if value is not None}
    for line in signature.no_match:
        if signature.id in hits(engine, line):
            yield issue("a no_match line is hit", line, "make the pattern narrower")
    for line in (*signature.match, *signature.no_match):
        if hits(engine, line) != hits(oracle, line):
            yield issue("hyperscan and re disagree", line, "write the pattern more plainly")
    for name in sorted(compiled.groupindex.keys() - filled):
        yield Issue(
            signature.source,
            signature.id,
            f"no match line fills the group '{name}'",
            "add a line that does, or drop the group",
        )
