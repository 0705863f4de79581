"""Write the files of the generated fleet and count them; hides codecs and folders."""

from __future__ import annotations

import bz2
import lzma
import os
from pathlib import Path

import lz4.frame
from isal import igzip

from ingest.streams import zstd

CODECS = ("none", "gzip", "zstd", "bz2", "xz", "lz4")


class Tree:
    """The directory being filled, and what it holds so far."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = self.bytes = self.lines = 0
        self._folders: set[Path] = set()

    def write(self, path: str, data: bytes, codec: str, mtime: float) -> str:
        """Write a log and return its path, which ends in the codec's suffix."""
        if codec in ("bz2", "xz") and len(data) > 1 << 16:
            codec = "zstd"  # those two pack so slowly that large files would set the pace
        path += {"gzip": ".gz", "zstd": ".zst"}.get(codec, "" if codec == "none" else f".{codec}")
        target = self.root / path
        if target.parent not in self._folders:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(target.parent)
        target.write_bytes(self._pack(data, codec))
        os.utime(target, (int(mtime), int(mtime)))
        self.files += 1
        self.bytes += len(data)
        self.lines += data.count(b"\n") + (not data.endswith(b"\n"))
        return path

    def _pack(self, data: bytes, codec: str) -> bytes:
        """Large logs come in two members or frames, as rotated and appended ones do."""
        half = len(data) // 2 if len(data) > 1 << 16 else len(data)
        parts = [part for part in (data[:half], data[half:]) if part]
        match codec:
            case "gzip":
                return b"".join(igzip.compress(part, 1, mtime=0) for part in parts)
            case "zstd":
                return b"".join(zstd.compress(part, 3) for part in parts)
            case "lz4":
                return b"".join(map(lz4.frame.compress, parts))
            case "bz2":
                return b"".join(map(bz2.compress, parts))
            case "xz":
                return b"".join(lzma.compress(part, preset=0) for part in parts)
        return data
