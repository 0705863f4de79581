"""Work out once a connection what reports ask for again and again: views as temporary tables.

A view that others build on is expanded wherever it is named, in a report of ten steps ten times.
On a connection whose tables no longer change, `stage` turns those that a query reaches into
temporary tables of the same name, which DuckDB finds before the view: the same answers, sooner.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

# In the order of their definition: each builds on those before it.
_STAGES = (
    "attempt_spans",
    "kept_beside",
    "marks",
    "attempts",
    "exposures",
    "unit_events",
    "attempt_failures",
    "attempt_verdicts",
    "run_verdicts",
    "incident_members",
    "incidents",
    "incident_failures",
)

_DEFINITION = re.compile(r"^CREATE OR REPLACE (?:VIEW|MACRO) (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"--(?! staged: ).*")
_WORD = re.compile(r"\w+")
# A line that reads otherwise once the views are tables: `... -- staged: that reading`.
_STAGED = re.compile(r"^( *).*-- staged: (.*)$", re.MULTILINE)


def begin(con: duckdb.DuckDBPyConnection) -> None:
    """From now on no table of this connection changes: reports on it may be staged."""
    con.execute("CREATE TEMP TABLE IF NOT EXISTS staged (name VARCHAR)")


def stage(con: duckdb.DuckDBPyConnection, sql: str, views: str) -> None:
    """Make tables of the views that a query reaches, where `begin` allowed it.

    `views` is the SQL that defines the views and macros.
    """
    import duckdb

    try:
        done = {name for (name,) in con.execute("SELECT name FROM temp.staged").fetchall()}
    except duckdb.CatalogException:
        return
    bodies = _bodies(views)
    reached = _reached(sql, bodies)
    for name in _STAGES:
        if name not in reached or name in done:
            continue
        con.execute(f"CREATE TEMP TABLE staged_{name} AS FROM {name}")
        con.execute(f"DROP VIEW IF EXISTS temp.{name}")
        con.execute(f"ALTER TABLE temp.staged_{name} RENAME TO {name}")
        con.execute("INSERT INTO temp.staged VALUES (?)", [name])
        if name == "unit_events":
            for body in bodies.values():
                if _STAGED.search(body):
                    body = body.replace("CREATE OR REPLACE ", "CREATE OR REPLACE TEMP ", 1)
                    con.execute(_STAGED.sub(r"\1\2", body))


@functools.lru_cache(maxsize=4)
def _bodies(views: str) -> Mapping[str, str]:
    """The statement that defines each view and macro."""
    starts = list(_DEFINITION.finditer(views))
    ends = [found.start() for found in starts[1:]] + [len(views)]
    return {
        found.group(1): _COMMENT.sub("", views[found.start() : end])
        for found, end in zip(starts, ends, strict=True)
    }


def _reached(sql: str, bodies: Mapping[str, str]) -> set[str]:
    """Views and macros that a query names, and those that they name in turn."""
    reached: set[str] = set()
    waiting = [sql]
    while waiting:
        named = bodies.keys() & set(_WORD.findall(waiting.pop())) - reached
        reached |= named
        waiting.extend(bodies[name] for name in named)
    return reached
