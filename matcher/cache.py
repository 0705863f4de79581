"""Keep what is dear to make (compiled patterns, parsed catalogues) from one run to the next.

What is kept is named by a digest of all that it was made from and of the module that made it, so
nothing grows stale: what has changed has another name. It is trusted only in a regular file that
is ours, that nobody else may write, and whose content is whole and was stored under this name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path


def cache_directory() -> Path:
    """Where it is kept: $XDG_CACHE_HOME/firstfault, else ~/.cache/firstfault."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "firstfault"


def place_of(directory: Path, suffix: str, module: str, parts: Iterable[bytes]) -> Path:
    """Where stands what a module, told by its `__file__`, makes of these parts."""
    key = hashlib.sha256(Path(module).read_bytes())
    for part in parts:
        key.update(len(part).to_bytes(8, "big"))
        key.update(part)
    return directory / f"{key.hexdigest()[:32]}{suffix}"


def recall(place: Path) -> bytes | None:
    """What was kept there; None where there is nothing to be trusted."""
    with contextlib.suppress(OSError):
        # In a directory that is not ours a FIFO would keep us waiting.
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123
            about = os.fstat(descriptor)
            others = stat.S_IWGRP | stat.S_IWOTH
            if (
                about.st_uid != os.getuid()
                or not stat.S_ISREG(about.st_mode)
                or about.st_mode & others
            ):
                return None
            stored = file.read()
        content = memoryview(stored)[32:]
        if _digest(place, content) == stored[:32]:
            return bytes(content)
    return None


def keep(place: Path, content: bytes) -> None:
    """Keep it, in one step; where nothing can be kept it is made anew, no more."""
    import tempfile  # slow to load, and seldom needed

    with contextlib.suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
            file.write(_digest(place, content))
            file.write(content)
        Path(file.name).replace(place)


def _digest(place: Path, content: bytes | memoryview) -> bytes:
    return hashlib.sha256(place.name.encode() + hashlib.sha256(content).digest()).digest()
