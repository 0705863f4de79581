"""Workers that are killed while they read a part; a module of its own, for they must start fast."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from ingest import pipeline
from ingest.parts import Found, Part

_start_worker = pipeline._start_worker


def start(mark: str | None, *arguments: Any) -> None:
    """Initializer of workers that die of the third part: once, if there is a place to mark it."""
    _start_worker(*arguments)
    read = pipeline._read_part

    def kill(part: Part) -> Found:
        if part.number == 2 and not (mark and Path(mark).exists()):
            if mark:
                Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return read(part)

    vars(pipeline)["_read_part"] = kill
