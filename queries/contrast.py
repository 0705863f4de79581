"""Hold a failed run against a healthy one: what only it says, and which milestones it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import duckdb

MOST = 200  # templates that are told


class Seen(Protocol):
    """How often a template was seen, and where first."""

    count: int
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Line:
    """A template with how often it was seen, and its first place where it is of the failed run."""

    template: str
    count: int
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Contrast:
    """Templates that only the failed run has, and milestones that only the healthy one reached."""

    only_here: list[Line]
    missing: list[Line]

    def as_dict(self) -> dict[str, Any]:
        """As plain lists and values."""
        return asdict(self)


def contrast(
    failed: duckdb.DuckDBPyConnection,
    healthy: duckdb.DuckDBPyConnection,
    failed_lines: Mapping[str, Seen],
    healthy_lines: Mapping[str, Seen],
    first: str | None,
) -> Contrast:
    """What tells the two apart, at most MOST of each kind.

    A failed run is shorter, so lines that only the healthy one has mean little: of them milestones
    are told, which the catalogue knows as progress. Templates come in the order of their lines,
    those of the file `first` before all others.
    """
    new = [
        Line(template, seen.count, seen.file, seen.line)
        for template, seen in failed_lines.items()
        if template not in healthy_lines
    ]
    new.sort(key=lambda one: (one.file != first, one.file, one.line))
    reached, here = _milestones(healthy), _milestones(failed)
    missing = [
        Line(f"{failure}: {title}", count, None, None)
        for failure, (title, count) in reached.items()
        if failure not in here
    ]
    return Contrast(new[:MOST], missing[:MOST])


def _milestones(con: duckdb.DuckDBPyConnection) -> dict[str, tuple[str, int]]:
    """Kinds of progress that the logs tell of: title and count of each."""
    rows = con.execute(
        "SELECT e.failure, any_value(f.title), sum(e.repeats)::BIGINT FROM events AS e "
        "JOIN failures AS f ON f.failure = e.failure WHERE e.role = 'progress' "
        "GROUP BY e.failure ORDER BY e.failure"
    ).fetchall()
    return {failure: (title, count) for failure, title, count in rows}
