"""A diagnosis as SARIF 2.1.0, which editors and code hosts show beside the lines of the log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from queries import render
from queries.diagnosis import Collateral, Diagnosis, Hypothesis
from queries.render import shown

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_STDIN = "-"


def sarif(diagnosis: Diagnosis, version: str) -> str:
    """The log of one run of firstfault: the root cause is the first result, its rivals follow.

    Collateral are related locations of the root cause. Levels: error for a sure or likely root
    cause, warning for a guess, note for rivals.
    """
    results = [*_root(diagnosis), *map(_rival, diagnosis.hypotheses)]
    rules = _rules(diagnosis)
    places = {rule["id"]: place for place, rule in enumerate(rules)}
    for result in results:
        result["ruleIndex"] = places[result["ruleId"]]
    run = {
        "tool": {
            "driver": {
                "name": "firstfault",
                "semanticVersion": version,
                "rules": rules,
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": _message(note)}}
                    for note in diagnosis.beside.notes
                ],
            }
        ],
        "results": results,
        "properties": {"verdict": diagnosis.verdict, "outcome": diagnosis.outcome},
    }
    return render.as_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


UNKNOWN = "cause-unknown"  # rule of a failed run whose logs name no cause


def _rules(d: Diagnosis) -> list[dict[str, Any]]:
    """The failures that results are of."""
    rules: dict[str, dict[str, Any]] = {}
    cause = d.root_cause
    if cause is not None:
        id_ = cause.failure or UNKNOWN
        rules[id_] = _rule(id_, cause.title or "The run failed, and no line names a cause")
        if d.mechanism:
            rules[id_]["fullDescription"] = {"text": _message(d.mechanism)}
        if d.fix:
            rules[id_]["help"] = {"text": _message("; ".join(d.fix))}
        rules[id_]["properties"] = {"tags": [x for x in (cause.category, cause.severity) if x]}
    titles: Mapping[str, str] = d.beside.titles or {}
    for one in d.hypotheses:
        rules.setdefault(one.failure, _rule(one.failure, titles.get(one.failure, one.failure)))
    return list(rules.values())


def _rule(id_: str, title: str) -> dict[str, Any]:
    return {"id": id_, "shortDescription": {"text": _message(title)}}


def _root(d: Diagnosis) -> list[dict[str, Any]]:
    cause = d.root_cause
    if cause is None:
        return []
    who = [f"rank {d.initiating_rank}"] if d.initiating_rank is not None else []
    who += [f"host {d.initiating_host}"] if d.initiating_host is not None else []
    where = f" ({', '.join(who)})" if who else ""
    title = cause.title or "The run failed, and no line names a cause"
    result: dict[str, Any] = {
        "ruleId": cause.failure or UNKNOWN,
        "level": "warning" if cause.confidence == "low" else "error",
        "message": {
            "text": _message(f"{title}{where}. {cause.confidence} confidence: {cause.why}.")
        },
        "locations": _locations(cause.file, cause.line, cause.text),
        "relatedLocations": [_related(place, one) for place, one in enumerate(d.collateral, 1)],
        "properties": {
            "confidence": cause.confidence,
            "scope": d.scope,
            "rank": d.initiating_rank,
            "host": d.initiating_host,
        },
    }
    return [result]


def _rival(one: Hypothesis) -> dict[str, Any]:
    return {
        "ruleId": one.failure,
        "level": "note",
        "message": {"text": _message(f"Or else {one.failure}. Tell apart by {one.separate_by}")},
        "locations": _locations(one.file, one.line),
        "rank": round(100 * one.score, 1),
    }


def _related(place: int, one: Collateral) -> dict[str, Any]:
    return {
        "id": place,
        **_location(one.first.file, one.first.line),
        "message": {"text": _message(f"then {one.failure}, {one.count} lines")},
    }


def _locations(file: str | None, line: int | None, text: str | None = None) -> list[dict[str, Any]]:
    return [] if file is None else [_location(file, line, text)]


def _location(file: str, line: int | None, text: str | None = None) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(file)}}
    if line is not None:
        physical["region"] = {"startLine": line}
        if text is not None:
            physical["region"]["snippet"] = {"text": shown(text)}
    return {"physicalLocation": physical}


def _uri(file: str) -> str:
    """The path as a relative reference: no scheme, no query, no blank."""
    return quote("stdin" if file == _STDIN else file, safe="/", errors="replace")


def _message(words: str) -> str:
    """Words without the links that a message may have."""
    return re.sub(r"([\\\[\]])", r"\\\1", shown(words))
