"""Logs that are handed over together are one run, unless they say that they are several."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from ingest import schema
from ingest.store import Store
from tests.database import insert


def gathered(*files: dict[str, Any], events: tuple[dict[str, Any], ...] = ()) -> list[Any]:
    """(path, run, attempt, host, first_ts) of each file afterwards, and (ts, run) of each event."""
    with Store(None, "") as store:
        con = store.connection
        con.execute(schema.ddl())
        insert(con, "files", [{"file_id": n, **one} for n, one in enumerate(files)])
        insert(con, "events", [{"event_id": n, **one} for n, one in enumerate(events)])
        store.gather("mine")
        files_ = "SELECT path, run, attempt, host, first_ts FROM files ORDER BY path"
        events_ = "SELECT ts, run FROM events ORDER BY event_id"
        return [con.execute(query).fetchall() for query in (files_, events_)]


@pytest.mark.parametrize(
    ("files", "runs"),
    [
        ([{"run": "a"}, {"run": "b"}], {"mine"}),
        ([{"run": "77", "job": "77"}, {"run": "agent"}], {"mine"}),
        ([{"run": "n-e01", "job": "n-e01"}, {"run": "n-e02", "job": "n-e02"}], {"mine"}),
        ([{"run": "7701", "job": "7701"}, {"run": "7702", "job": "7702"}], {"7701", "7702"}),
        ([{"run": "77", "job": "77", "attempt": 0}, {"run": "78", "job": "78", "attempt": 1}],
         {"mine"}),
        ([{"run": "a", "rank": 0}, {"run": "b", "rank": 0}], {"a", "b"}),
        ([{"run": "a", "rank": 0}, {"run": "b", "rank": 1}], {"mine"}),
    ],
)  # fmt: skip
def test_what_names_several_jobs_stays_apart(files: list[dict[str, Any]], runs: set[str]) -> None:
    found, _ = gathered(*({"path": f"{n}.log", **one} for n, one in enumerate(files)))
    assert {run for _, run, *_ in found} == runs


def test_a_log_without_an_attempt_is_of_the_only_one() -> None:
    files = {"path": "a", "run": "a", "attempt": 2}, {"path": "b", "run": "b"}
    assert [row[2] for row in gathered(*files)[0]] == [2, 2]


def test_a_folder_named_like_a_known_host_is_of_it() -> None:
    kernel = {"path": "kernel/n7.log", "host": "n7", "kind": "dmesg"}
    found, _ = gathered(kernel, {"path": "n7/out.log", "run": "a"}, {"path": "x.log", "run": "b"})
    assert [row[3] for row in found] == ["n7", "n7", None]


def test_a_host_log_without_years_is_of_the_year_of_the_run() -> None:
    """A copied file tells no year: its lines fell into the latest one."""
    at = datetime(2025, 3, 11, 19, 52)
    run = {"path": "out.log", "run": "a", "first_ts": at, "last_ts": at}
    late = at.replace(year=2026)
    kernel = {"path": "kern.log", "host": "n1", "first_ts": late, "last_ts": late}
    event = {"file_id": 1, "ts": late, "tz_assumed": True}
    found, told = gathered(run, kernel, events=(event,))
    assert ([row[4] for row in found], told) == ([at, at], [(at, None)])
    found, told = gathered(run, kernel, events=({**event, "tz_assumed": False},))
    assert told == [(late, None)]
