"""Make seeded corpora of a planned hit density: same arguments, same bytes, a known count.

Filler hits no signature; planted lines are examples of the catalogue that hit exactly one. How the
lines are drawn is hidden here.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import lz4.frame

from ingest.streams import zstd
from matcher.catalogue import Catalogue, Signature

KINDS = 24  # a log shows few kinds of trouble; the first line of each costs more than the rest

CODECS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "none": ("", bytes),
    "gzip": (".gz", lambda text: gzip.compress(text, 6, mtime=0)),
    "zstd": (".zst", zstd.compress),
    "lz4": (".lz4", lz4.frame.compress),
    "bz2": (".bz2", bz2.compress),
    "xz": (".xz", lambda text: lzma.compress(text, preset=1)),
}


@dataclass(frozen=True, slots=True)
class Corpus:
    """So many lines, of which hits_per_million of a million are planted, in so many files."""

    seed: int
    lines: int
    hits_per_million: int = 0
    codec: str = "none"
    files: int = 1

    def scaled(self, scale: float) -> Corpus:
        """The same with so many times as many lines and files, one at least."""
        return replace(
            self,
            lines=max(1, round(self.lines * scale)),
            files=max(1, round(self.files * scale)),
        )

    def planted(self, lines: int) -> int:
        """How many of the first so many lines are planted."""
        return lines * self.hits_per_million // 1_000_000


def plain(catalogue: Catalogue) -> list[Signature]:
    """Signatures whose example line is one hit wherever it stands, and stored each time.

    Left out: those that need a stream or other lines, or share their line; `frequent` ones, which
    real logs have on every step and which cost less a hit.
    """
    return [
        s
        for s in catalogue.signatures
        if not (s.also or s.stream or s.follows or s.pair or s.threshold or s.frequent)
    ]


def texts(corpus: Corpus, catalogue: Catalogue) -> Iterator[bytes]:
    """The text of each file. Planted lines are spread evenly, of KINDS signatures drawn a file."""
    rng = random.Random(corpus.seed)
    filler = _filler(rng)
    examples = [s.match[0].encode() for s in plain(catalogue)]
    for number in range(corpus.files):
        begin = number * corpus.lines // corpus.files
        end = (number + 1) * corpus.lines // corpus.files
        lines = rng.choices(filler, k=end - begin)
        first, last = corpus.planted(begin), corpus.planted(end)
        kinds = rng.sample(examples, KINDS)
        for hit, example in enumerate(rng.choices(kinds, k=last - first), first + 1):
            # The first line of which planted() says that it makes this hit complete.
            lines[-(-hit * 1_000_000 // corpus.hits_per_million) - 1 - begin] = example
        yield b"\n".join(lines) + b"\n" if lines else b""


def write(directory: Path, codec: str, parts: Sequence[bytes]) -> None:
    """Write the files of a corpus in a codec, each as the log of a run of its own."""
    suffix, compress = CODECS[codec]
    for number, part in enumerate(parts):
        path = directory / f"bench/job-{number:06}/rank_0.log{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(compress(part))


_POOL = 20_000  # filler lines, drawn from with replacement: 2 MB, beyond the window of gzip

_FILLER = (
    "[2026-03-01 10:{m:02}:{s:02},{ms:03}] [INFO] [engine.py:{n}:step] moved shard {n} of {m}",
    "2026-03-01 10:{m:02}:{s:02} INFO trainer.data: prefetch queue holds {m} batches of {n} tokens",
    "2026-03-01T10:{m:02}:{s:02}.{ms:03}Z node-{r:03} launcher: heartbeat {n} answered in {ms} us",
    "I0301 10:{m:02}:{s:02}.{n:06} {n} pjrt_client.cc:{ms}] compiled module jit_forward_{n}",
    "Mar  1 10:{m:02}:{s:02} node-{r:03} systemd[1]: session-{n}.scope: consumed {m}.{ms:03}s cpu",
    '[rank{r}]:   File "/opt/train/model.py", line {n}, in forward',
    "[rank{r}]:     hidden = self.layers[{m}](hidden, mask, position={n})",
    "gpu-a{r:03}:{n}:{n} [{s}] NCCL INFO Channel {m:02}/32 : {r}[{s}] -> {m}[{s}] via P2P/CUMEM",
    "validation shard {n} read in {s}.{ms:03} s, {m} samples kept",
    "{r}: [{n}] tokenizer cache: {ms} warm, {m} cold, 0 errors, no retries needed",
    '{{"ts": 17723{n:05}.{ms}, "rank": {r}, "queue": {m}, "state": "steady", "fill": 0.{ms:03}}}',
    "eval  {m:3d}%|█████▎    | {n}/200000 [00:{m:02}<01:{s:02}, {s}.{m:02}it/s]",
    "DEBUG bucket {n}: {ms} tensors, {s} MiB, flushed after {m} ms, overlap 0.{ms:03}",
    "    with torch.autocast(device_type='cuda', dtype=torch.bfloat16):  # layer {m}",
)


def _filler(rng: random.Random) -> list[bytes]:
    return [
        rng.choice(_FILLER)
        .format(
            m=rng.randrange(60),
            s=rng.randrange(60),
            ms=rng.randrange(1000),
            n=rng.randrange(100_000),
            r=rng.randrange(512),
        )
        .encode()
        for _ in range(_POOL)
    ]
