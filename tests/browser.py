"""A real Chromium for tests of pages: over a pipe, typed at as a person would."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


class Browser:
    """One tab; `addresses` holds everything that it asked for."""

    def __init__(self, write: int, read: int) -> None:
        self.write, self.read = write, os.fdopen(read, "rb")
        self.number = 0
        self.session = ""
        self.seen: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def receive(self) -> dict[str, Any]:
        data = b""
        while not data.endswith(b"\0"):
            one = self.read.read(1)
            assert one, "the browser has ended"
            data += one
        message: dict[str, Any] = json.loads(data[:-1])
        self.seen.append(message)
        return message

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while (answer := self.receive()).get("id") != self.number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, path: Path, query: str = "") -> None:
        self.seen.clear()
        self.send("Page.navigate", url=path.as_uri() + query)
        while not any(m.get("method") == "Page.loadEventFired" for m in self.seen):
            self.receive()

    def run(self, script: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def press(self, key: str) -> None:
        text = key if len(key) == 1 else {"Enter": "\r"}.get(key, "")
        code = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38}.get(key, 0)
        event = {"key": key, "windowsVirtualKeyCode": code, "text": text}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **event)
        self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def size(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def scheme(self, value: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": value}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def picture(self, place: Path) -> None:
        data = self.send("Page.captureScreenshot", format="png")["data"]
        place.write_bytes(base64.b64decode(data))

    @property
    def addresses(self) -> list[str]:
        asked = [m for m in self.seen if m.get("method") == "Network.requestWillBeSent"]
        return [m["params"]["request"]["url"] for m in asked]

    @property
    def complaints(self) -> list[Mapping[str, Any]]:
        """What the browser wrote to its console: errors, and what a policy forbade."""
        kinds = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [m["params"] for m in self.seen if m.get("method") in kinds]


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A Chromium that ends with the block; skips where there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("needs chromium or google-chrome on PATH")
    ends = [*os.pipe(), *os.pipe()]
    # Beyond 9: the browser wants 3 and 4, which may be among these.
    theirs_in, ours_out, ours_in, theirs_out = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in ends)
    for fd in ends:
        os.close(fd)
    for fd in (theirs_in, ours_out, ours_in, theirs_out):
        os.set_inheritable(fd, False)

    def give() -> None:
        os.dup2(theirs_in, 3)
        os.dup2(theirs_out, 4)

    process = subprocess.Popen(
        [
            program,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
            *("--disable-sync", "--disable-quic", "--remote-debugging-pipe"),
            f"--user-data-dir={folder / 'profile'}",
        ],
        env={**os.environ, "HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=give,
        close_fds=False,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    tab = None
    try:
        tab = Browser(ours_out, ours_in)
        yield tab
    finally:
        os.close(ours_out)
        if tab:
            tab.read.close()
        process.terminate()
        process.wait(30)
