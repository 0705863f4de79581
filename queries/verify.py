"""Say in a sentence whether a failure is gone since a change; hides the report that counts it."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from queries import report

if TYPE_CHECKING:
    import duckdb

# The same comparison as in reports/regression.sql.
_PREDICATE = re.compile(r"\s*[A-Za-z][\w.-]*\s*(?:>=|<=|==|!=|=|>|<)\s*[vV]?[0-9][\w.+-]*\s*")
_UNITS = {
    "checkpoint-begin": "lines that begin a checkpoint",
    "save": "saves",
    "attempt": "attempts",
    "gpu-hour": "GPU-hours",
}
_TRIGGERS = ("auto", *_UNITS)


@dataclass(frozen=True, slots=True)
class Check:
    """The verdict on a change: a sentence, and the row of the report that it rests on."""

    name: str
    change: str
    verdict: str
    sentence: str
    numbers: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """As one plain object."""
        own = {"name": self.name, "change": self.change, "sentence": self.sentence}
        return {**own, **self.numbers}

    def text(self) -> str:
        """The verdict, the sentence, and the numbers."""
        n = self.numbers
        lines = [f"{self.name}: {self.verdict}"]
        lines += textwrap.wrap(self.sentence, 96, initial_indent="  ", subsequent_indent="  ")
        lines += [
            f"  {when:<7} {n[k]:,} in {n[e]:,.6g} {_unit(n['unit'])}"
            for when, k, e in (("before", "k0", "e0"), ("after", "k1", "e1"))
        ]
        if n["control_e"] is not None:
            before = f", {n['control_k0']:,} in {n['control_e0']:,.6g} before" * bool(
                n["control_e0"]
            )
            lines.append(f"  control {n['control_k']:,} in {n['control_e']:,.6g}{before}")
        measures = (
            ("p", n["p"]),
            ("ratio", n["ratio"]),
            ("at most", n["upper95_ratio"]),
            ("ratio of ratios", n["ratio_of_ratios"]),
            ("chance to have seen it", n["p_detect"]),
        )
        told = [f"{name} {value:.3g}" for name, value in measures if value is not None]
        if told:
            lines.append(f"  {', '.join(told)}")
        if n["unknown_k"] or n["unknown_e"]:
            lines.append(
                f"  left out, on neither side: {n['unknown_k']:,} in {n['unknown_e']:,.6g}"
            )
        return "\n".join(lines) + "\n"


def check(
    con: duckdb.DuckDBPyConnection,
    name: str,
    change: str,
    *,
    known: Mapping[str, str],
    trigger: str = "auto",
    control: str | None = None,
    cluster: str | None = None,
) -> Check:
    """Whether the failure or signature `name` is gone since `change`.

    `change` is a time (UTC where it names no zone) or a comparison such as `deepspeed >= 0.18.0`.
    `known` gives the failure of each signature and failure of the catalogue; what the database
    knows is added. Raises ArgumentError for a name, a change or a trigger that makes no sense.
    """
    known = {**known, **_stored(con)}
    for what, word, words in (
        ("failure or signature", name, known),
        ("trigger", trigger, {**dict.fromkeys(_TRIGGERS), **known}),
    ):
        if word not in words:
            close = difflib.get_close_matches(word, list(words), n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise report.ArgumentError(
                f"no {what} {word!r}{hint}: `firstfault failures list` names them"
            )
    change = parse_change(change)
    chosen = {"failure": known[name]} if known[name] == name else {"signature": name}
    given = {**chosen, "change": change, "trigger": trigger, "control": control, "cluster": cluster}
    definition = report.load("regression")
    rows = report.run(con, definition, given).table.to_pylist()
    empty = dict.fromkeys(definition.columns)
    counts = {"k0": 0, "e0": 0.0, "k1": 0, "e1": 0.0, "unknown_k": 0, "unknown_e": 0.0}
    nothing = {"failure": known[name], "change_id": change, "verdict": "not_enough_exposure",
               "unit": "attempt" if trigger == "auto" else trigger}  # fmt: skip
    row: dict[str, Any] = rows[0] if rows else {**empty, **counts, **nothing}
    return Check(name, change, row["verdict"], _sentence(row), row)


def parse_change(text: str) -> str:
    """A time as ISO 8601 in UTC without zone, or the comparison; else ArgumentError."""
    if _PREDICATE.fullmatch(text):
        return text.strip()
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise report.ArgumentError(
            f"--change is {text!r}: give a time as 2026-01-31T12:00, or NAME OPERATOR VERSION as "
            "in 'deepspeed >= 0.18.0'"
        ) from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(sep=" ")


def _stored(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    rows = con.execute(
        "SELECT failure, failure FROM failures UNION SELECT signature, failure FROM signatures "
        "UNION SELECT failure, failure FROM events UNION SELECT signature, failure FROM events"
    ).fetchall()
    # An id may be that of a failure and of one of its signatures: the failure is meant.
    return dict(sorted(rows, key=lambda row: row[0] == row[1]))


def _unit(unit: str) -> str:
    return _UNITS.get(unit, f"lines of {unit}")


def _sentence(row: Mapping[str, Any]) -> str:
    unit = _unit(row["unit"])
    k0, k1, e0, e1 = row["k0"], row["k1"], row["e0"], row["e1"]
    match row["verdict"]:
        case "gone":
            text = f"gone: unchanged, it would be as rare with probability {row['p']:.2g}"
            more = row["exposure_needed_conservative"] - e1
            if more > 0:
                return f"{text}; before looking again and again wait for {more:,.3g} more {unit}"
            return text
        case "reduced":
            return (
                f"reduced to {row['ratio']:.2g} of what it was, "
                f"at most {row['upper95_ratio']:.2g}, but not gone"
            )
        case "not_distinguishable":
            return (
                "gone, but from the control group without the change as well: "
                "the change is not what ended it"
            )
        case "still_present":
            return f"still present: {k1:,} since the change, which is no clear decrease"
        case _:
            pass
    if not e0 and not e1:
        if row["unknown_e"]:
            return "no attempt states that version: ingest logs that do, or give a time"
        return f"no {unit} in these logs: there is nothing to judge by"
    if not k0:
        return "it never occurred before the change, so that its absence proves nothing"
    if row["exposure_needed"] is None:
        return f"no {unit} before the change: the old rate is not known"
    least, safe = row["exposure_needed"] - e1, row["exposure_needed_conservative"] - e1
    if least <= 0:  # enough at the old rate, but that rests on too few
        least = safe
    return (
        f"not proved: {least:,.3g} more {unit} without it would do ({max(safe, least):,.3g} to be "
        f"safe); it would have shown in {e1:,.6g} with a chance of {100 * row['p_detect']:.0f} %"
    )
