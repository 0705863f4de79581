"""What is installed: the three packages with their data, and a command that runs anywhere."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", target, ROOT],
        check=True,
        capture_output=True,
    )
    (built,) = target.glob("*.whl")
    return built


def test_wheel_holds_the_packages_and_their_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if ".dist-info" not in top} == {"ingest", "matcher", "queries"}
    data = [
        path.relative_to(ROOT).as_posix()
        for package in ("ingest", "matcher", "queries")
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".toml", ".sql", ".py")
    ]
    assert sorted(set(data) - names) == []


def test_command_runs_from_an_unpacked_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import ingest.cli, matcher.catalogue as c\n"
        f"assert ingest.cli.__file__.startswith({str(tmp_path)!r})\n"
        "print(len(c.load().failures))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True
    )
    assert int(done.stdout) >= 80
