"""Fill a database with a quarter of a fleet's events, for timing reports, without writing a log.

The rows are those that ingest would have made: launches of jobs of 8 to 4,096 GPUs in eight
clusters, nine in ten of them healthy, steps folded, failures with collateral on all ranks, logs
with and without times, kernels' logs of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb

from ingest import store
from matcher.catalogue import Catalogue
from queries import report

SQL = Path(__file__).with_name("archive.sql")
_PART = 4000  # launches made at a time: their rows are sorted in memory


def build(
    path: Path,
    catalogue: Catalogue,
    *,
    runs: int,
    events: int,
    seed: int = 1,
    told: Callable[[int, int], None] | None = None,
) -> None:
    """Make the database; `told` hears how many of the launches are done.

    `events` is met within one per cent unless what failures print alone is more. The same
    arguments give the same rows. Raises ValueError for sizes below 1, FileExistsError where `path`
    exists.
    """
    if runs < 1 or events < 1:
        raise ValueError(f"an archive of {runs} runs and {events} events: ask for at least one")
    if path.exists():
        raise FileExistsError(f"{path} exists: name a new file")
    whole, by_part = SQL.read_text(encoding="utf-8").split("-- by part\n")
    with store.Store(path, report.views()) as database:
        database.begin("benchmark", "none", catalogue, {})
        con = database.connection
        con.execute("SET memory_limit = '2GB'; SET threads = 2")
        for name, value in (("seed", seed), ("runs", runs), ("events", events)):
            con.execute(f"SET VARIABLE {name} = {value}")
        con.execute(whole)
        launches = (con.execute("SELECT count(*) FROM launches").fetchone() or (0,))[0]
        for low in range(0, launches, _PART):
            con.execute(f"SET VARIABLE low = {low}; SET VARIABLE high = {low + _PART}")
            con.execute(by_part)
            if told is not None:
                told(min(low + _PART, launches), launches)
        con.execute(
            "UPDATE files SET events = coalesce(found, 0) FROM (SELECT file_id, sum(repeats) AS "
            "found FROM events GROUP BY file_id) AS e WHERE e.file_id = files.file_id"
        )
        database.finish(1)


def size(path: Path) -> dict[str, object]:
    """What an archive holds: launches, files, rows of events, and its bytes on disk."""
    with duckdb.connect(str(path), read_only=True) as con:
        launches, files, events = con.execute(
            "SELECT (SELECT count(*) FROM (SELECT DISTINCT cluster, run, attempt FROM files "
            "WHERE run IS NOT NULL)), (SELECT count(*) FROM files), (SELECT count(*) FROM events)"
        ).fetchall()[0]
    megabytes = round(path.stat().st_size / 1e6)
    return {"launches": launches, "files": files, "events": events, "database_mb": megabytes}
