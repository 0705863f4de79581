"""What is kept between runs: whole, ours and of this name, or made anew."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from matcher.cache import keep, place_of, recall


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = place_of(tmp_path, ".x", __file__, [b"a", b"b"])
    keep(place, b"content")
    return place


def test_what_was_kept_comes_back(place: Path) -> None:
    assert recall(place) == b"content"
    assert [one.name for one in place.parent.iterdir()] == [place.name]
    assert place.stat().st_mode & 0o777 == 0o600


def test_each_part_and_the_module_make_the_name(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("changed")
    names = {
        place_of(tmp_path, ".x", module, parts)
        for module in (__file__, str(other))
        for parts in ([b"ab"], [b"a", b"b"], [b"", b"ab"], [b"b", b"a"])
    }
    assert len(names) == 8
    assert place_of(tmp_path, ".x", str(other), [b"ab"]) in names


@pytest.mark.parametrize("size", [0, 31, 32, 38])
def test_what_was_cut_is_not_trusted(place: Path, size: int) -> None:
    place.write_bytes(place.read_bytes()[:size])
    assert recall(place) is None


def test_what_was_changed_is_not_trusted(place: Path) -> None:
    place.write_bytes(place.read_bytes().replace(b"content", b"contend"))
    assert recall(place) is None


def test_what_was_kept_under_another_name_is_not_trusted(place: Path) -> None:
    renamed = place.with_name("other.x")
    shutil.copy(place, renamed)
    assert recall(renamed) is None


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_may_write_is_not_trusted(place: Path, mode: int) -> None:
    place.chmod(mode)
    assert recall(place) is None


def test_what_is_another_users_is_not_trusted(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: place.stat().st_uid + 1)
    assert recall(place) is None


def test_a_fifo_or_directory_does_not_keep_us_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert recall(tmp_path / "fifo") is None
    assert recall(tmp_path) is None
    assert recall(tmp_path / "none") is None
