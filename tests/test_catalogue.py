"""The shape of catalogue files, and the built-in catalogue against its own examples."""

from __future__ import annotations

import os
import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest

from matcher.catalogue import CATEGORIES, CatalogueError, Lag, Sign, load
from matcher.check import check
from matcher.engine import Engine, Oracle, cache_directory
from tests.support import shared

ENTRY = """
[[failure]]
id = "disk-gone"
title = "t"
component = "c"
category = "storage"
severity = "high"
mechanism = "m"
confirm = ["c"]
fix = ["f"]
  [[failure.signature]]
  id = "disk-gone-line"
  role = "cause"
  pattern = 'disk (?P<disk>\\w{1,9}) gone'
  match = ["disk sda gone"]
  no_match = ["disk sda here"]
"""


def problems(directory: Path, *texts: str) -> list[str]:
    for number, text in enumerate(texts):
        (directory / f"{number}.toml").write_text(text)
    try:
        found = check(load(directory))
    except CatalogueError as error:
        found = list(error.issues)
    return [f"{issue.source}: {issue.id}: {issue.message}" for issue in found]


def test_sound_catalogue_has_no_problems(tmp_path: Path) -> None:
    assert problems(tmp_path, ENTRY) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('title = "t"\n', "", "0.toml: disk-gone: 'title' is missing"),
        ('title = "t"', 'titel = "t"\ntitle = "t"', "0.toml: disk-gone: unknown key 'titel'"),
        ('"high"', '"fatal"', "0.toml: disk-gone: severity 'fatal' is unknown"),
        ('"cause"', '"root"', "0.toml: disk-gone-line: role 'root' is unknown"),
        (
            '"disk-gone"',
            '"Disk"',
            "0.toml: disk-gone: id 'Disk' is not kebab-case".replace("disk-gone", "Disk"),
        ),
        (
            '"cause"',
            '"cause"\n  lag = { capture = 1979-05-27, unit = "s" }',
            "0.toml: disk-gone-line: 'lag' is {",
        ),
        ('["f"]', "[]", "0.toml: disk-gone: 'fix' is empty"),
        ('["f"]', '"f"', "0.toml: disk-gone: 'fix' is 'f'"),
        (
            "no_match",
            'also = ["nobody"]\n  no_match',
            "0.toml: disk-gone-line: also names 'nobody', which does not exist",
        ),
        (
            "no_match",
            'lag = { capture = "x" }\n  no_match',
            "0.toml: disk-gone-line: 'lag' is {'capture': 'x'}",
        ),
        (
            "no_match",
            'stream = ["net"]\n  no_match',
            "0.toml: disk-gone-line: stream 'net' is unknown",
        ),
        (
            "fix =",
            'phases = ["step", "save"]\nfix =',
            "0.toml: disk-gone: phases 'save' is unknown",
        ),
        (
            "fix =",
            'related = ["nobody"]\nfix =',
            "0.toml: disk-gone: related names 'nobody', which does not exist",
        ),
        (
            'confirm = ["c"]',
            'confirm = ["c", { check = "d", seen = ["nobody"] }]',
            "0.toml: disk-gone: confirm names 'nobody', which does not exist",
        ),
        (
            'confirm = ["c"]',
            'confirm = [{ check = "d", seen = ["disk-gone"], log = "mail" }]',
            "0.toml: disk-gone: confirm: log 'mail' is unknown",
        ),
        (
            'confirm = ["c"]',
            'confirm = [{ check = "d" }]',
            "0.toml: disk-gone: confirm: 'seen' is missing",
        ),
        ('confirm = ["c"]', "confirm = [3]", "0.toml: disk-gone: 'confirm' is [3]"),
        (
            "  [[failure.signature]]",
            '  [[failure.variant]]\n  path_class = "tape"\n  [[failure.signature]]',
            "0.toml: disk-gone: variant names 'tape', which does not exist",
        ),
        ("[[failure]]", "[[failures]]", "0.toml: : unknown table 'failures'"),
        ("gone'", "gone.*'", "0.toml: disk-gone-line: the pattern ends in an open repeat"),
        (
            "'disk (?P<disk>\\w{1,9}) gone'",
            "'(?P<disk>a)?b?'",
            "0.toml: disk-gone-line: the pattern matches an empty line",
        ),
        (
            "'disk (?P<disk>\\w{1,9}) gone'",
            "'s[a-z] (?P<disk>da)'",
            "0.toml: disk-gone-line: no literal of 4 bytes or more",
        ),
        ("gone'", "(?=gone)gone'", "0.toml: disk-gone-line: hyperscan refuses the pattern"),
        (" gone'", " (gone'", "0.toml: disk-gone-line: python's re refuses the pattern"),
        (
            '["disk sda gone"]',
            '["disk sda went"]',
            "0.toml: disk-gone-line: a match line hits nothing instead of ['disk-gone-line']",
        ),
        (
            '["disk sda here"]',
            '["disk sdb gone too"]',
            "0.toml: disk-gone-line: a no_match line is hit",
        ),
        (
            "gone'",
            "gone( to (?P<where>\\w{1,9}))?'",
            "0.toml: disk-gone-line: no match line fills the group 'where'",
        ),
    ],
)
def test_problem_is_named(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in ENTRY
    found = problems(tmp_path, ENTRY.replace(old, new, 1))
    assert any(one.startswith(problem) or problem in one for one in found), found


def test_check_tells_what_shows_it(tmp_path: Path) -> None:
    more = 'confirm = ["c", { check = "d", seen = ["disk-gone-line"], log = "kernel" }]'
    (tmp_path / "0.toml").write_text(ENTRY.replace('confirm = ["c"]', more))
    [failure] = load(tmp_path).failures
    assert failure.confirm == ("c", "d")
    assert failure.signs == (Sign(1, ("disk-gone-line",), "kernel"),)


def test_problem_of_a_control_is_named(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    text = '[[control]]\ncategory = "tape"\ncontrol = "luck"\ntest = "t"\n[[control]]\n'
    (tmp_path / "tables" / "controls.toml").write_text(text)
    assert problems(tmp_path, ENTRY) == [
        "controls.toml: tape: 'tape' is unknown",
        "controls.toml: tape: 'luck' is unknown",
        "controls.toml: : 'category' is missing",
    ]


def test_every_category_of_trouble_has_a_control() -> None:
    assert {one.category for one in load().controls} == set(CATEGORIES) - {"progress"}


SECOND = ENTRY.replace("disk", "host").replace("fix =", 'related = ["disk-gone"]\nfix =')


def test_relation_must_be_returned(tmp_path: Path) -> None:
    assert problems(tmp_path, ENTRY, SECOND) == [
        "0.toml: disk-gone: related lacks 'host-gone', whose own list names 'disk-gone'"
    ]
    returned = ENTRY.replace("fix =", 'related = ["host-gone"]\nfix =')
    assert problems(tmp_path, returned, SECOND) == []


def test_entry_is_not_related_to_itself(tmp_path: Path) -> None:
    assert problems(tmp_path, ENTRY.replace("fix =", 'related = ["disk-gone"]\nfix =')) == [
        "0.toml: disk-gone: related names the entry itself"
    ]


def edges(*pairs: tuple[str, str], lag_s: str = "[0, 60]") -> str:
    return "".join(
        f'[[edge]]\ncause = "{cause}"\neffect = "{effect}"\nscope = "same-run"\n'
        f'lag_s = {lag_s}\nbasis = "log"\n'
        for cause, effect in pairs
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (edges(("disk-gone", "disk-gone")), "disk-gone: an edge leads to its own cause"),
        (edges(("disk-gone", "host-gone")), None),
        (edges(("disk-gone", "host-gone"), ("host-gone", "disk-gone")), None),
        (
            edges(*[("disk-gone", "host-gone")] * 2),
            "disk-gone: two edges lead to 'host-gone'",
        ),
        (
            edges(("disk-gone", "host-gone"), lag_s="[60, 0]"),
            "disk-gone: the window to 'host-gone' ends before it begins",
        ),
        (edges(("disk-gone", "host-gone"), lag_s='["0", "60"]'), "disk-gone: incomplete edge"),
        (
            edges(("disk-gone", "hoster-gone")),
            "disk-gone: edge names 'hoster-gone', which does not exist",
        ),
    ],
)
def test_edge_that_says_nothing_is_named(tmp_path: Path, text: str, problem: str | None) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "precedence.toml").write_text(text)
    other = ENTRY.replace("disk", "host")
    wanted = [f"precedence.toml: {problem}"] if problem else []
    assert problems(tmp_path, ENTRY, other) == wanted


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    twice = problems(tmp_path, ENTRY, ENTRY, "not toml [", ENTRY.replace('fix = ["f"]', ""))
    assert [one.split(":")[0] for one in twice] == ["2.toml", "3.toml", "1.toml", "1.toml"]


def test_empty_directory_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="no catalogue files"):
        load(tmp_path)


def test_user_catalogue_adds_to_the_built_in_one(tmp_path: Path) -> None:
    from matcher.catalogue import BUILT_IN

    (tmp_path / "mine.toml").write_text(ENTRY)
    both = load(BUILT_IN, tmp_path)
    assert {"disk-gone", "disk-full"} <= both.by_id.keys()
    assert both.digest != load().digest


def test_digest_is_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "x.toml").write_text(ENTRY)
    (tmp_path / "b" / "y.toml").write_text("# a comment\n" + ENTRY)
    assert load(tmp_path / "a").digest == load(tmp_path / "b").digest


def test_kept_catalogue_is_the_one_that_was_read(tmp_path: Path) -> None:
    read, first, second = load(), load(cache=tmp_path), load(cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    for one in (first, second):
        assert (one, one.digest) == (read, read.digest)
        assert repr(one) == repr(read)


def test_kept_catalogue_is_of_the_bytes_of_its_files(tmp_path: Path) -> None:
    source, cache = tmp_path / "a" / "x.toml", tmp_path / "cache"
    (tmp_path / "a" / "tables").mkdir(parents=True)
    (tmp_path / "a" / "tables" / "path_class.toml").write_text(
        "[[path_class]]\nname = 'shm'\npattern = '/dev/shm'\n"
    )
    source.write_text(ENTRY)
    before = load(tmp_path / "a", cache=cache)
    times = source.stat().st_atime_ns, source.stat().st_mtime_ns
    source.write_text(ENTRY.replace("gone", "lost"))
    os.utime(source, ns=times)
    after = load(tmp_path / "a", cache=cache)
    assert (after, after.digest) == (load(tmp_path / "a"), load(tmp_path / "a").digest)
    assert after != before
    source.rename(source.with_name("y.toml"))
    assert load(tmp_path / "a", cache=cache).failures[0].source == "y.toml"


def test_broken_catalogue_is_told_each_time_and_never_kept(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(ENTRY + "oops = 1\n")
    for _ in range(2):
        with pytest.raises(CatalogueError, match="unknown key 'oops'"):
            load(tmp_path, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("harm", ["cut", "other"])
def test_harmed_cache_gives_the_right_catalogue(tmp_path: Path, harm: str) -> None:
    (tmp_path / "x.toml").write_text(ENTRY)
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "x.toml").write_text(ENTRY.replace("gone", "lost"))
    cache = tmp_path / "cache"
    wanted = load(tmp_path, cache=cache)
    (kept,) = cache.iterdir()
    if harm == "cut":
        kept.write_bytes(kept.read_bytes()[:-1])
    else:
        load(tmp_path / "y", cache=cache)
        (other,) = set(cache.iterdir()) - {kept}
        other.replace(kept)
    assert load(tmp_path, cache=cache) == wanted


def test_workers_get_what_finding_takes_under_the_same_digest() -> None:
    whole = load()
    sent = whole.for_workers()
    assert sent.digest == whole.digest
    assert len(pickle.dumps(sent)) < len(pickle.dumps(whole)) / 3
    for one, other in zip(sent.signatures, whole.signatures, strict=True):
        assert one == replace(other, match=(), no_match=(), why="")
    for entry, failure in zip(sent.failures, whole.failures, strict=True):
        assert [getattr(entry, name) for name in ("id", "component", "category", "severity")] == [
            getattr(failure, name) for name in ("id", "component", "category", "severity")
        ]


KINDS = (Path(__file__).parent / "data" / "failure_kinds.txt").read_text().split()


def test_built_in_catalogue_is_sound() -> None:
    assert [str(issue) for issue in check(load())] == []


def test_built_in_catalogue_has_every_kind() -> None:
    assert sorted(set(KINDS) - load().by_id.keys()) == []


def test_kinds_are_those_that_diagnosis_must_name() -> None:
    text = shared("spec", "failure-kinds.md").read_text()
    rows = re.findall(r"^\| (\S.*?) \|", text, re.MULTILINE)
    named = [kind for row in rows if row not in ("id", "---") for kind in row.split(" / ")]
    (beside,) = re.findall(r"^Collateral kinds seen .*?: (.*)\.$", text, re.MULTILINE)
    assert sorted(KINDS) == sorted([*named, *beside.split(", ")])


def test_built_in_catalogue_is_no_smaller_than_promised() -> None:
    catalogue = load()
    assert len(catalogue.signatures) >= 300
    assert len(catalogue.failures) >= 150


@pytest.mark.parametrize(
    "part",
    [
        *("mechanism", "affected", "confirm", "fix", "verify", "prevention"),
        *("related", "references", "tags"),
    ],
)
def test_every_entry_is_a_whole_page(part: str) -> None:
    assert [entry.id for entry in load().failures if not getattr(entry, part)] == []


@pytest.mark.parametrize("part", ["match", "no_match"])
def test_every_signature_has_two_examples_of_each_kind(part: str) -> None:
    assert [one.id for one in load().signatures if len(set(getattr(one, part))) < 2] == []


def test_every_signature_says_why() -> None:
    assert [one.id for one in load().signatures if not one.why] == []


def test_near_miss_that_another_failure_takes_is_told_about() -> None:
    """What is mistaken for a failure is related to it; last resorts are for everything."""
    catalogue = load()
    engine = Engine(catalogue, cache_directory())
    signatures, entries = catalogue.signatures, catalogue.by_id
    untold = {
        (one.failure, other.failure, line)
        for one in signatures
        for line in one.no_match
        for other in (signatures[n] for n in engine.scan(line.encode()).signature.tolist())
        if other.role == "cause"
        and not other.fallback
        and other.failure not in (one.failure, *entries[one.failure].related)
    }
    assert untold == set()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "2026-09-30T10:00:00.123456789Z stderr F [rank3]:[E321 02:17:08.408271257 x.cpp:607] ",
            "",
        ),
        (" 10%|####      | 1/10 [00:01<00:09, 2.88s/it]" * 12, " and 20%|####  | 2/10"),
        ("\x1b[36m(Actor pid=18400, ip=10.0.0.3)\x1b[0m ", "\r"),
    ],
    ids=["collector", "glued", "ray"],
)
def test_matcher_agrees_with_re_on_examples_in_other_dress(before: str, after: str) -> None:
    """Hyperscan missed a pattern with an optional blank after alternatives behind long text."""
    catalogue = load()
    text = "".join(
        f"{before}{line}{after}\n" for s in catalogue.signatures for line in (*s.match, *s.no_match)
    ).encode()
    fast, slow = Engine(catalogue, cache_directory()).scan(text), Oracle(catalogue).scan(text)
    names = [signature.id for signature in catalogue.signatures]
    found = {(names[n], start) for n, start in zip(fast.signature, fast.start, strict=True)}
    wanted = {(names[n], start) for n, start in zip(slow.signature, slow.start, strict=True)}
    assert {text[start:].split(b"\n")[0] for _, start in found ^ wanted} == set()


@pytest.mark.parametrize(
    ("value", "expected"), [("1.5", 1_500_000), ("-3", 0), ("9" * 15, 0), ("1e999", 0), ("x", 0)]
)
def test_lag_is_what_somebody_may_have_waited(value: str, expected: int) -> None:
    assert Lag("waited_s", "s").microseconds(value) == expected
