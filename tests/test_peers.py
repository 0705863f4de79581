"""The peers of the benchmarks find what plain `re` finds, and keep no time where they do not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import peers
from benchmarks.patterns import said
from benchmarks.peers import Limit, Peer, PeerError
from matcher.catalogue import load
from matcher.engine import Engine, PatternSet, within_line
from tests.support import catalogue, signature

PATTERNS = (
    r"CUDA error: (?P<code>\d{1,4})\b",
    r"rank (?P<rank>\d{1,6}).{0,80}?died",
    r"^\[[\d, ]{1,60}\] joined[\]^-]",
    r"(?:lost|gone) [^\]'\s]{1,20}[\[\]] \S\w$",
    r'\{"a-z": [-+\w./]{1,9}|\$HOME\\x\s',
    r"(?:Error|Exception): [^\s{]{3,9}",
)
EASY = (
    b"CUDA error: 700\r\nCUDA error: 7001x\nrank 3 of \xff\xfe\x80 died, CUDA error: 2\n"
    b"[1, 2] joined]\n [1] joined]\n[1] joined-\n[3] joined^\n[3] joined[\nlost a/b[ -x\n"
    b"gone b] =_\r\nlost a'b[ -x\n\n\r\n"
    b'{"a-z": +a.b-/\n{"a-z": ,\n$HOME\\x\t\n$HOME\\x\n'
    b"Error: \xe2\x96\x88\xe2\x96\x88\nException: {ab\nError: abc Exception: abc\nrank 12 di"
    b"ed\nold rank 5 progress \xe2\x96\x88 50%\rdied\n"
)
HARD = (
    b"a\0b CUDA error: 1\n\0\0[4] joined]\n" + b"x" * 300_000 + b"CUDA error: 3\nrank 4\0died\n"
    b"tail without a line feed: CUDA error: 44"
)
DIFFER = {  # and why
    ("chdb", EASY): "its patterns take ASCII only where they would be too large for it",
    ("vectorgrep", HARD): "it ends a line at NUL and cuts one at 262,140 bytes",
}
OTHERS = [peer for peer in peers.known() if peer.name != "firstfault"]


def found_by_re(text: bytes, patterns: Sequence[str] = PATTERNS) -> list[tuple[int, int]]:
    """(line, pattern) pairs, the slow and obvious way."""
    searches = [re.compile(within_line(pattern).encode()).search for pattern in patterns]
    lines = text.removesuffix(b"\n").split(b"\n")
    return [
        (n, p) for n, line in enumerate(lines) for p, search in enumerate(searches) if search(line)
    ]


def counted(peer: Peer, text: bytes, directory: Path) -> tuple[int, int]:
    """What a peer counts in two files of the text, and what it should."""
    if peer.version() is None:
        pytest.skip(f"{peer.name} is absent: {peer.install}")
    kept = peers.write_patterns(
        [within_line(pattern) for pattern in PATTERNS], peer.dialect, directory / "patterns"
    )
    logs = [directory / "a.log", directory / "b.log"]
    for log in logs:
        log.write_bytes(text)
    command = peer.command(logs, directory / "patterns", 1)
    assert command
    done = subprocess.run(
        command, capture_output=True, check=False, env=os.environ | {"LC_ALL": "C"}
    )
    assert done.stderr == b""
    pairs = [(line, pattern) for line, pattern in found_by_re(text) if pattern in kept]
    true = len(pairs if peer.which else {line for line, _ in pairs})
    return peer.count(done.stdout), 2 * true


# -- counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [EASY, HARD], ids=["easy", "nul-and-long"])
@pytest.mark.parametrize("peer", OTHERS, ids=lambda peer: peer.name)
def test_peer_counts_what_re_counts(peer: Peer, text: bytes, tmp_path: Path) -> None:
    mine, true = counted(peer, text, tmp_path)
    assert (mine == true) is ((peer.name, text) not in DIFFER), (mine, true)
    assert true > 3


@pytest.mark.parametrize("text", [EASY, HARD, EASY + HARD, b"", b"\n"])
def test_truth_is_what_re_finds(text: bytes, tmp_path: Path) -> None:
    whole = catalogue(*(signature(f"s{n}", p) for n, p in enumerate(PATTERNS)))
    for place, part in enumerate((text, EASY)):
        (tmp_path / f"{place}.log").write_bytes(part)
    known = peers.truth(
        [tmp_path / "0.log", tmp_path / "1.log"],
        [within_line(pattern) for pattern in PATTERNS],
        Engine(whole),
    )
    lines = text.count(b"\n") + bool(text.rpartition(b"\n")[2])
    pairs = [*found_by_re(text), *((lines + n, p) for n, p in found_by_re(EASY))]
    assert known.bytes == len(text) + len(EASY)
    assert list(zip(known.line.tolist(), known.pattern.tolist(), strict=True)) == pairs
    assert known.expected({0, 2}, which=True) == sum(p in (0, 2) for _, p in pairs)
    assert known.expected({0, 2}, which=False) == len({n for n, p in pairs if p in (0, 2)})


# -- dialects ------------------------------------------------------------------------------------


def test_every_dialect_says_the_whole_catalogue() -> None:
    left_out = {
        dialect: [s.id for s in load().signatures if said(within_line(s.pattern), dialect) is None]
        for dialect in ("perl", "posix", "unicode", "ascii")
    }
    assert [ids for ids in left_out.values() if ids] == []


@pytest.mark.parametrize("dialect", ["perl", "unicode", "ascii"])
def test_catalogue_finds_the_same_examples_in_a_dialect(dialect: str) -> None:
    differ = []
    for one in load().signatures:
        pattern = within_line(one.pattern)
        other = str(said(pattern, dialect)).replace("(?-u:\\b)", "\\b")
        mine, theirs = re.compile(pattern.encode()), re.compile(other.encode("latin-1"))
        for line in (*one.match, *one.no_match):
            if line.isascii() and bool(mine.search(line.encode())) != bool(
                theirs.search(line.encode())
            ):
                differ.append((one.id, line))
    assert differ == []


@pytest.mark.parametrize(
    ("pattern", "posix"),
    [
        (r"a(?P<n>\d{1,3}?)(?:b|c)*?", "a([0-9]{1,3})(b|c)*"),
        (r"[\]\[^a-c-]", "[]a-c[^-]"),
        (r"[\^-]", "[-^]"),
        (r"[\^\[-]", "[[^-]"),
        (r"[^^\]]", "[^]^]"),
        (r"[\S ]", "[^\t\x0b-\r]"),
        ("caf\u00e9", None),
        (r"[^\n'\"-]", "[^\"'-]"),
        (r"[\^]x\{", r"\^x\{"),
        (r"\x41\.\S", "A\\.[^\t\x0b-\r ]"),
        (r"[\x00a]", None),
        (r"(?i)a", None),
    ],
)
def test_posix_brackets_have_no_escapes(pattern: str, posix: str | None) -> None:
    assert said(pattern, "posix") == posix


@given(st.sets(st.sampled_from(range(1, 128)), min_size=1), st.booleans(), st.data())
def test_sets_of_bytes_survive_each_dialect(
    members: set[int], negated: bool, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(sorted(members)))
    pattern = "[" + "^" * negated + "".join(f"\\x{byte:02x}" for byte in order) + "]"
    line = bytes(byte for byte in range(128))
    true = re.findall(pattern.encode(), line)
    for dialect in ("perl", "ascii"):
        written = said(pattern, dialect)
        assert written is not None
        assert re.findall(written.encode(), line) == true


# -- comparing -----------------------------------------------------------------------------------


SMALL = catalogue(signature("pump", r"pump \d{1,9} broke"), signature("pipe", "pipe leaks"))
COUNT = "print(sum(line.startswith(b'pump') for p in sys.argv[1:] for line in open(p, 'rb')))"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """4,000 lines, of which 40 are hits."""
    lines = [f"pump {n} broke" if n % 100 == 50 else f"all is well {n}" for n in range(4_000)]
    path = tmp_path / "logs" / "a.log"
    path.parent.mkdir()
    path.write_text("\n".join(lines) + "\n")
    return path


def fake(name: str, code: str, **changes: object) -> Peer:
    """A peer that is this Python, running some code."""

    def command(paths: Sequence[Path], patterns: Path, cores: int) -> list[str]:
        return [sys.executable, "-c", f"import sys; {code}", *map(str, paths)]

    fields: dict[str, object] = {
        "shows": "lines",
        "codecs": ("",),
        "which": False,
        "version": lambda: "1",
        "count": lambda output: sum(map(int, output.decode().splitlines() or ["none"])),
        "install": "pip install x",
    }
    return Peer(name, command=command, **fields | changes)  # type: ignore[arg-type]


@pytest.fixture
def with_peers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put these peers beside one in the place of firstfault."""
    monkeypatch.setattr(peers, "PIECES", ())
    monkeypatch.setattr(peers, "cache_directory", lambda: None)

    def put(*others: Peer) -> None:
        monkeypatch.setattr(peers, "known", lambda: [fake("firstfault", COUNT), *others])

    return put


def test_only_a_right_count_keeps_times(log: Path, with_peers: Callable[..., None]) -> None:
    with_peers(
        fake("right", COUNT),
        fake("wrong", "print(39)"),
        fake("silent", ""),
        fake("broken", "raise SystemExit('it broke\\nfor good')"),
        fake("absent", COUNT, version=lambda: None),
        fake("other", COUNT, codecs=(".gz",)),
    )
    ours, right, *others = peers.compare([log.parent], SMALL, rounds=2)
    assert [(o.counted, o.expected, o.problem) for o in (ours, right)] == [(40, 40, None)] * 2
    assert (ours.ratio, right.bytes, right.whole) == (1, log.stat().st_size, True)
    assert right.result
    assert (len(right.result.seconds), right.result.counted) == (2, 40)
    assert right.cpu_s
    assert right.start_cpu_s
    assert [(o.peer.name, o.problem, o.result, o.ratio) for o in others] == [
        ("wrong", "counted 39 instead of 40", None, None),
        ("silent", "printed no count but b''", None, None),
        ("broken", "exit code 1: for good", None, None),
        ("absent", "absent: pip install x", None, None),
        ("other", "does not read plain files", None, None),
    ]
    shown = peers.table([ours, right, *others]).splitlines()
    names = ("firstfault", "right", "wrong", "silent", "broken", "absent", "other")
    assert [row.split(" | ")[0] for row in shown[2:]] == [f"| {name}" for name in names]
    assert "counted 39 instead of 40" in shown[4]


def test_slow_peer_is_measured_on_a_piece(
    log: Path, with_peers: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_peers(fake("slow", COUNT))
    monkeypatch.setattr(peers, "PIECES", (10_000,))
    monkeypatch.setattr(peers, "SLOW", 0)
    monkeypatch.setattr(peers, "_LEAST_S", 0)
    _, slow = peers.compare([log], SMALL, rounds=1)
    assert (slow.whole, slow.ratio, slow.problem) == (False, None, None)
    assert 9_900 < slow.bytes <= 10_000
    assert slow.counted == slow.expected == log.read_bytes()[: slow.bytes].count(b"pump")
    assert "(piece)" in peers.table([slow])


def test_files_are_shared_out_to_single_threaded_peers(
    log: Path, with_peers: Callable[..., None]
) -> None:
    (log.parent / "b.log").write_bytes(log.read_bytes())
    with_peers(fake("one a core", f"{COUNT}; assert len(sys.argv) == 2"))
    _, shared = peers.compare([log.parent], SMALL, rounds=0, cores=2)
    assert (shared.counted, shared.problem) == (80, None)


def test_firstfault_and_re_agree_on_a_whole_comparison(log: Path) -> None:
    failure = next(s for s in load().signatures if s.id == "cuda-out-of-memory")
    log.write_text(f"all is well\n{failure.match[0]}\n" * 40)
    outcomes = peers.compare([log], load(), rounds=0, names=["re_any"])
    assert [(o.peer.name, o.counted, o.expected) for o in outcomes] == [
        ("firstfault", 40, 40),
        ("re_any", 40, 40),
    ]


def test_peer_that_takes_too_long_is_ended(
    log: Path, with_peers: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_peers(fake("endless", "sys.stdin.close()\nwhile True: pass"))
    monkeypatch.setattr(peers, "SLOW", 0)
    monkeypatch.setattr(peers, "_PATIENCE_S", 0.05)
    _, endless = peers.compare([log], SMALL, rounds=1)
    assert (endless.counted, endless.problem) == (None, "took more than 0 s")


def test_without_firstfault_there_is_no_comparison(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "known", lambda: [fake("firstfault", "sys.exit('no disk')")])
    with pytest.raises(PeerError, match="firstfault: exit code 1: no disk: without it"):
        peers.compare([log], SMALL, rounds=1)


def test_unknown_peer_is_named(log: Path) -> None:
    with pytest.raises(PeerError, match="gerp: no such peer: there are firstfault, ripgrep, "):
        peers.compare([log], SMALL, rounds=1, names=["gerp"])


def test_nothing_to_compare_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="no file to scan"):
        peers.compare([tmp_path], SMALL, rounds=1)
    for suffix in ("", ".gz"):
        (tmp_path / f"a.log{suffix}").touch()
    with pytest.raises(PeerError, match="several codecs"):
        peers.compare([tmp_path], SMALL, rounds=1)


def test_command_line_prints_a_table(
    log: Path,
    with_peers: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(peers, "load", lambda: SMALL)
    with_peers(fake("right", COUNT), fake("wrong", "print(39)"))
    assert peers.main([str(log), "--rounds", "1", "--names", "right"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[0] for row in out[2:]] == ["| firstfault", "| right"]
    assert peers.main([str(log), "--rounds", "1"]) == 1


# -- the limit -----------------------------------------------------------------------------------


def test_c_counts_the_matches_of_the_engine(tmp_path: Path) -> None:
    try:
        limit = Limit(PATTERNS, tmp_path)
    except PeerError as error:
        pytest.skip(str(error))
    path = tmp_path / "a.log"
    path.write_bytes(EASY + HARD)
    ids, _ = PatternSet(PATTERNS).ends(EASY + HARD)
    for block in (0, 1, 100, 1 << 20):
        raw = limit.scan(path, block=block, rounds=2)
        assert (raw.matches, len(raw.seconds)) == (len(ids), 2)
    with pytest.raises(PeerError, match=r"absent\.log: No such file"):
        limit.scan(tmp_path / "absent.log")
