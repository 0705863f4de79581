"""Find lines with one Python package, as `peers_run.py NAME CORES PATTERNS PATH...`.

Prints how many lines, or (line, pattern) pairs, were found. Each function is what a user of that
package would write. Nothing of this project is imported: a peer may need an interpreter of its
own, and what it needs is imported by name, for none of it is a dependency.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

Patterns = Sequence[str]
_BLOCK = 1 << 20
_LARGE = 64 << 20


def _blocks(paths: Sequence[str], size: int = _BLOCK) -> Iterator[bytes]:
    """Whole lines of the files, about so many bytes at once."""
    for path in paths:
        with Path(path).open("rb") as file:
            parts: list[bytes] = []
            while read := file.read(size):
                cut = read.rfind(b"\n") + 1
                if cut:
                    yield b"".join((*parts, read[:cut]))
                    parts = []
                parts.append(read[cut:])
            if rest := b"".join(parts):
                yield rest


def _lines(paths: Sequence[str]) -> Iterator[bytes]:
    for path in paths:
        with Path(path).open("rb", buffering=_BLOCK) as file:
            for line in file:
                yield line.removesuffix(b"\n")


def _pairs(block: bytes, ids: list[int], ends: list[int]) -> int:
    """How many (line, pattern) these matches are, given in order of their ends."""
    pairs = set()
    start = stop = -1
    for number, end in zip(ids, ends, strict=True):
        if end > stop:
            start = block.rfind(b"\n", 0, end) + 1
            stop = block.find(b"\n", end)
            stop = len(block) if stop < 0 else stop
        pairs.add((start, number))
    return len(pairs)


def pyhyperscan(patterns: Patterns, paths: Sequence[str], cores: int) -> int:
    """The binding that firstfault uses, with the least around it."""
    hyperscan = import_module("hyperscan")
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[pattern.encode() for pattern in patterns],
        ids=list(range(len(patterns))),
        elements=len(patterns),
        flags=hyperscan.HS_FLAG_MULTILINE,
    )
    database.scratch = hyperscan.Scratch(database)
    ids: list[int] = []
    ends: list[int] = []

    def found(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
        ids.append(number)
        ends.append(end)

    pairs = 0
    for block in _blocks(paths):
        database.scan(block, match_event_handler=found)
        pairs += _pairs(block, ids, ends)
        ids.clear()
        ends.clear()
    return pairs


def pyperscan(patterns: Patterns, paths: Sequence[str], cores: int) -> int:
    """Another binding of Hyperscan, from Rust."""
    package = import_module("pyperscan")
    ids: list[int] = []
    ends: list[int] = []
    more = package.Scan.Continue

    def found(_context: object, number: int, _start: int, end: int) -> object:
        ids.append(number)
        ends.append(end)
        return more

    database = package.BlockDatabase(
        *(
            package.Pattern(pattern.encode(), package.Flag.MULTILINE, tag=number)
            for number, pattern in enumerate(patterns)
        )
    )
    scanner = database.build(None, found)
    pairs = 0
    for block in _blocks(paths):
        scanner.scan(block)
        pairs += _pairs(block, ids, ends)
        ids.clear()
        ends.clear()
    return pairs


def vectorgrep(patterns: Patterns, paths: Sequence[str], cores: int) -> int:
    """Vectorscan line by line in C, with the number of the line and the pattern."""
    package = import_module("vectorgrep")
    flags = package.HS_FLAG_MULTILINE | package.HS_FLAG_SINGLEMATCH
    found: list[tuple[int, int]] = []

    def take(matches: Sequence[object], count: int) -> None:
        for place in range(count):
            match: object = matches[place]
            found.append((match.line_number, match.id))  # type: ignore[attr-defined]

    for path in paths:
        code = package.scan(
            path,
            list(patterns),
            take,
            flags=[flags] * len(patterns),
            ids=range(len(patterns)),
        )
        if code:
            raise SystemExit(f"{path}: vectorgrep returned {code}")
    return len(found)


def re2_set(patterns: Patterns, paths: Sequence[str], cores: int) -> int:
    """RE2's set: all patterns in one automaton, line by line."""
    package = import_module("re2")
    options = package.Options()
    options.encoding = package.Options.Encoding.LATIN1
    options.max_mem = 1 << 30
    patterns_set = package.Set.SearchSet(options)
    for pattern in patterns:
        patterns_set.Add(pattern)
    patterns_set.Compile()
    return sum(len(patterns_set.Match(line) or ()) for line in _lines(paths))


def re_each(patterns: Patterns, paths: Sequence[str], cores: int) -> int:
    """The standard library, a pass for each pattern."""
    searches = [re.compile(pattern.encode(), re.MULTILINE).search for pattern in patterns]
    pairs = 0
    for block in _blocks(paths):
        for search in searches:
            match = search(block)
            while match:
                pairs += 1
                after = block.find(b"\n", match.end()) + 1
                match = search(block, after) if after else None
    return pairs


def re_any(patterns: Patterns, paths: Sequence[str], cores: int) -> int:
    """The standard library, one alternation."""
    search = re.compile("|".join(patterns).encode()).search
    return sum(search(line) is not None for line in _lines(paths))


def pyarrow(patterns: Patterns, paths: Sequence[str], cores: int) -> int:
    """One alternation over a column of lines."""
    package, compute, numpy = map(import_module, ("pyarrow", "pyarrow.compute", "numpy"))
    pattern = "|".join(patterns)
    lines = 0
    for block in _blocks(paths, _LARGE):
        breaks = numpy.flatnonzero(numpy.frombuffer(block, numpy.uint8) == 10) + 1
        ends = [] if block.endswith(b"\n") else [len(block)]
        offsets = numpy.concatenate(([0], breaks, ends)).astype(numpy.int64)
        column = package.Array.from_buffers(
            package.large_binary(),
            len(offsets) - 1,
            [None, package.py_buffer(offsets), package.py_buffer(block)],
        )
        # Each line keeps its LF, before which `$` must match.
        found = compute.match_substring_regex(column, f"(?m:{pattern})")
        lines += compute.sum(found).as_py() or 0
    return lines


def polars(patterns: Patterns, paths: Sequence[str], cores: int) -> int:
    """As few alternations as it compiles over a column of lines, each byte a character."""
    package = import_module("polars")

    def refused(pattern: str) -> bool:
        try:
            package.Series([""]).str.contains(pattern)
        except package.exceptions.ComputeError:
            return True
        return False

    wanted = [package.col("line").str.contains(each) for each in _joined(patterns, refused)]
    lines = 0
    for block in _blocks(paths, _LARGE):
        column = package.DataFrame({"line": block.decode("latin-1").split("\n")})
        lines += column.select(package.any_horizontal(wanted).sum()).item()
    return lines


def duckdb(patterns: Patterns, paths: Sequence[str], cores: int) -> int:
    """As few alternations as it compiles over a column of lines, each byte a character."""
    package, arrow = import_module("duckdb"), import_module("pyarrow")
    lines = 0
    with package.connect(config={"threads": cores}) as connection:

        def refused(pattern: str) -> bool:
            try:
                connection.execute("SELECT regexp_matches('', $1)", [pattern]).fetchall()
            except package.InvalidInputException:
                return True
            return False

        joined = _joined(patterns, refused)
        any_of = " OR ".join(f"regexp_matches(line, ${n})" for n in range(1, len(joined) + 1))
        for block in _blocks(paths, _LARGE):
            table = arrow.table({"line": block.decode("latin-1").split("\n")})
            connection.register("lines", table)
            query = f"SELECT count(*) FROM lines WHERE {any_of}"  # noqa: S608
            ((found,),) = connection.execute(query, joined).fetchall()
            lines += found
    return lines


def _joined(patterns: Patterns, refused: Callable[[str], bool]) -> list[str]:
    """Alternations of all patterns, halved until none is refused as too large."""
    whole = "|".join(patterns)
    if len(patterns) == 1 or not refused(whole):
        return [whole]
    half = len(patterns) // 2
    return _joined(patterns[:half], refused) + _joined(patterns[half:], refused)


def chdb(patterns: Patterns, paths: Sequence[str], cores: int) -> int:
    """ClickHouse in the process, whose function runs Vectorscan on each line."""
    package = import_module("chdb")
    listed = ",".join(map(_quoted, patterns))
    texts = " UNION ALL ".join(
        f"SELECT line FROM file({_quoted(path)}, LineAsString, 'line String')"  # noqa: S608
        for path in paths
    )
    answer = package.query(
        f"SELECT sum(length(multiMatchAllIndices(line, [{listed}]))) FROM ({texts}) "  # noqa: S608
        f"SETTINGS max_threads = {cores}, reject_expensive_hyperscan_regexps = 0, "
        "max_query_size = 100000000"
    )
    return int(str(answer))


def _quoted(text: str) -> str:
    """A string of ClickHouse's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


RUNS: dict[str, Callable[[Patterns, Sequence[str], int], int]] = {
    run.__name__: run
    for run in (
        *(pyhyperscan, pyperscan, vectorgrep, re2_set, re_each, re_any),
        *(pyarrow, polars, duckdb, chdb),
    )
}


if __name__ == "__main__":
    name, cores, patterns, *paths = sys.argv[1:]
    print(RUNS[name](Path(patterns).read_text().splitlines(), paths, int(cores)))
