"""What programs of the generated fleet print: wordings and time stamps; hides their templates."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any


def _wordings() -> dict[str, tuple[str, ...]]:
    file = tomllib.loads(Path(__file__).with_name("wordings.toml").read_text(encoding="utf-8"))

    def whole(text: str) -> str:
        # Later fragments may use earlier ones.
        for name, fragment in reversed(file["fragment"].items()):
            text = text.replace(f"<<{name}>>", fragment.removesuffix("\n"))
        return text.removesuffix("\n")

    return {key: tuple(map(whole, texts)) for key, texts in file["text"].items()}


TEXT: Mapping[str, tuple[str, ...]] = _wordings()
"""The wordings of each message, as %-templates: the usual one, then those of other versions."""

STAMPS: Mapping[str, Callable[[datetime], str]] = {
    "comma": lambda d: f"{d:%Y-%m-%d %H:%M:%S},{d.microsecond // 1000:03d}",
    "micros": lambda d: f"{d:%Y-%m-%d %H:%M:%S}.{d.microsecond:06d}",
    "seconds": lambda d: f"{d:%Y-%m-%d %H:%M:%S}",
    "c10": lambda d: f"{d.month}{d:%d %H:%M:%S}.{d.microsecond:06d}417",
    "glog": lambda d: f"{d:%m%d %H:%M:%S}.{d.microsecond // 1000:03d}000",
    "slurm": lambda d: f"{d:%Y-%m-%dT%H:%M:%S}",
    "elastic": lambda d: f"{d:%Y-%m-%d_%H:%M:%S}",
    "epoch": lambda d: f"{int(d.timestamp())}",
}


class Fields(dict[str, Any]):
    """Fields of a template; a time style is made from `when` only where a template asks for it."""

    def __init__(self, when: datetime, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.when = when

    def __missing__(self, key: str) -> str:
        return STAMPS[key](self.when)
