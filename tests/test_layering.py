"""Who may import whom, and what must stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support import ROOT

PACKAGES = ("ingest", "matcher", "queries", "benchmarks")
HEAVY = {"duckdb", "hyperscan", "numpy", "pyarrow", "scipy", "rich"}


def imports() -> Iterator[tuple[str, str]]:
    """(module, imported top-level name or own module) of every import in the tree."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    for alias in node.names:
                        yield module, alias.name
                elif isinstance(node, ast.ImportFrom):
                    assert node.level == 0, f"{module}: relative import"
                    for alias in node.names:
                        yield module, f"{node.module}.{alias.name}"


def of(package: str) -> set[tuple[str, str]]:
    return {(m, name) for m, name in imports() if m.split(".")[0] == package}


def test_matcher_and_queries_know_no_other_package() -> None:
    ours = set(PACKAGES) | {"tests"}
    assert {
        (module, name)
        for package in ("matcher", "queries")
        for module, name in of(package)
        if name.split(".")[0] in ours - {package}
    } == set()


def test_only_the_command_line_sees_queries() -> None:
    assert {m for m, name in of("ingest") if name.startswith("queries")} == {"ingest.cli"}


def test_nothing_shipped_imports_benchmarks_or_tests() -> None:
    assert [
        (module, name)
        for module, name in imports()
        if not module.startswith("benchmarks") and name.split(".")[0] in ("benchmarks", "tests")
    ] == []


def test_hyperscan_is_behind_the_engine() -> None:
    assert {m for m, name in imports() if name.split(".")[0] == "hyperscan"} == {"matcher.engine"}


def test_typer_is_in_the_command_line_alone() -> None:
    assert {m for m, name in imports() if name.split(".")[0] == "typer"} == {"ingest.cli"}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["failures", "list"], ["report"], ["version"]], ids=" ".join
)
def test_light_commands_load_nothing_heavy(arguments: list[str]) -> None:
    """Completion runs the same start-up at each TAB: duckdb or numpy there would be felt."""
    code = (
        "import sys\nfrom ingest.cli import app\n"
        f"try: app({arguments!r}, prog_name='firstfault')\nexcept SystemExit: pass\n"
        f"print(sorted({HEAVY - {'rich'}!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
