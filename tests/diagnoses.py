"""Whole diagnoses of three real failures, as they should be.

`python -m tests.diagnoses --write` writes them anew into tests/data/diagnoses; look at the
difference before it is committed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from typer.testing import CliRunner

from ingest.cli import app
from tests.support import ROOT

CASES = ROOT / "tests" / "data" / "cases"
WANTED = ROOT / "tests" / "data" / "diagnoses"
CHOSEN = (
    "001-nvme-offload-checkpoint-race",  # one file of all ranks, all but one fail alike
    "027-nvlink-down-one-gpu-many-victims",  # ranks and the logs of their hosts
    "061-checkpoint-incomplete-auto-resume",  # an attempt dies of the one before
)


def diagnosis(case: str) -> dict[str, Any]:
    """What `diagnose --format json` says of the case."""
    done = CliRunner().invoke(app, ["diagnose", str(CASES / case), "--format", "json"])
    if done.exit_code:
        raise RuntimeError(f"{case}: exit {done.exit_code}: {done.output}") from done.exception
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(arguments: list[str]) -> int:
    """Write the expected diagnoses, or say how to."""
    if arguments != ["--write"]:
        print("python -m tests.diagnoses --write")
        return 2
    WANTED.mkdir(exist_ok=True)
    for case in CHOSEN:
        text = json.dumps(diagnosis(case), indent=1, ensure_ascii=False)
        (WANTED / f"{case}.json").write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
