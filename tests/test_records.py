"""Hits to rows: context, folding, sampling and evidence depend on the file, never on blocks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest import blocks, records
from ingest.files import Labels, LogFile, discover
from matcher.catalogue import load
from matcher.engine import Engine, cache_directory
from matcher.mask import Masker
from tests.planted import Maker, tokens
from tests.support import catalogue, signature

CATALOGUE = load()
ENGINE = Engine(CATALOGUE, cache_directory())
MASKER = Masker()
RULES = {
    every: records.Rules(CATALOGUE, records.Options(every_match=every)) for every in (False, True)
}
RACE = "FileExistsError: [Errno 17] File exists: '/ckpt/run7/global_step500/offloaded_tensors'"
STEP = (
    " iteration {:8d}/    1000 | consumed samples:           40 | elapsed time per iteration (ms): "
    "5837.9 | learning rate: 0.000E+00 | global batch size:     4 | loss scale: 8388608.0 | number "
    "of skipped iterations:  10 | number of nan iterations:   0 |"
)


def scan(
    path: Path, text: bytes, *, block_bytes: int = 1 << 20, every: bool = False, tz: str = "UTC"
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], records.Recorder]:
    """Events and evidence of a log with this text, and the recorder that made them."""
    path.write_bytes(text)
    (source,) = discover([str(path)])
    for file, reader in blocks.open_source(source, block_bytes=block_bytes):
        assert reader is not None
        recorder = records.Recorder(file, 7, RULES[every], MASKER, ZoneInfo(tz))
        for block in reader:
            recorder.add(block, ENGINE.scan(block.data, block.start, block.end))
        recorder.finish()
    rows, lines = recorder.take()
    return (
        records.events(rows).to_pylist(),
        records.evidence(lines).to_pylist(),
        recorder,
    )


def lines(*parts: str | Iterable[str]) -> bytes:
    flat = [line for part in parts for line in ([part] if isinstance(part, str) else part)]
    return "".join(f"{line}\n" for line in flat).encode()


def of(events: list[dict[str, Any]], failure: str) -> list[dict[str, Any]]:
    return [event for event in events if event["failure"] == failure]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "run.log"


def test_line_without_a_time_lies_between_its_neighbours(log: Path) -> None:
    events, _, recorder = scan(
        log,
        lines(
            "[2026-03-01 10:00:01,500] [INFO] a",
            f"[rank2]: {RACE}",
            "b",
            "[2026-03-01 10:00:09,000] c",
        ),
    )
    (event,) = of(events, "nvme-offload-checkpoint-race")
    assert event["ts"] is None
    assert (str(event["ts_lo"]), str(event["ts_hi"])) == (
        "2026-03-01 10:00:01.500000",
        "2026-03-01 10:00:09",
    )
    assert (event["ts_source"], event["t_eff"]) == ("inherited", event["ts_lo"])
    assert (event["rank"], event["line_no"], event["byte_offset"]) == (2, 2, 35)
    assert recorder.first_ts is not None
    assert recorder.last_ts is not None
    assert recorder.last_ts - recorder.first_ts == 7_500_000


def test_times_are_read_in_the_zone_of_the_cluster(log: Path) -> None:
    text = lines("[2026-03-01 10:00:01,500] [INFO] a", RACE)
    (event,) = scan(log, text, tz="Asia/Tokyo")[0]
    assert str(event["ts_lo"]) == "2026-03-01 01:00:01.500000"


def test_a_line_that_says_how_long_it_hung_happened_earlier(log: Path) -> None:
    watchdog = (
        "[rank3]:[E321 02:17:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=811, OpType=ALLREDUCE, NumelIn=1, "
        "NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds before timing out."
    )
    events, _, _ = scan(log, lines("2026-03-21T02:00:00Z start", watchdog))
    (event,) = of(events, "nccl-timeout")
    assert str(event["ts"]) == "2026-03-21 02:17:08.408271"
    assert str(event["t_eff"]) == "2026-03-21 02:07:08.395271"


def test_identical_repeats_fold_and_none_is_lost(log: Path) -> None:
    text = lines(f"Killing subprocess {pid}" for pid in range(300))
    (event,) = scan(log, text)[0]
    assert (event["repeats"], event["line_no"], event["last_line_no"]) == (300, 1, 300)
    events = scan(log, text, every=True)[0]
    assert [(event["repeats"], event["line_no"]) for event in events] == [
        (1, number) for number in range(1, 301)
    ]


def test_ranks_and_pauses_are_kept_apart(log: Path) -> None:
    stamp = "[2026-03-01 10:00:{:02d},000] [rank{}]: " + RACE
    events, _, _ = scan(
        log, lines(stamp.format(second, rank) for second, rank in [(1, 0), (1, 0), (1, 1), (9, 0)])
    )
    assert sorted((e["rank"], e["ts"].second, e["repeats"]) for e in events) == [
        (0, 1, 2),
        (0, 9, 1),
        (1, 1, 1),
    ]


def test_lines_of_every_step_are_one_row_a_mebibyte(log: Path) -> None:
    text = lines(STEP.format(step) for step in range(10_000))
    events = [e for e in scan(log, text)[0] if e["signature"] == "megatron-iteration"]
    assert len(events) == -(-len(text) // (1 << 20))
    assert sum(event["repeats"] for event in events) == 10_000
    assert events[0]["step"] == 0
    assert dict(events[-1]["captures"])["step_last"] == "9999"
    assert events[-1]["last_line_no"] == 10_000


def test_commands_that_the_shell_echoes_are_no_events(log: Path) -> None:
    events, _, _ = scan(log, lines(f"+ echo '{RACE}'", f"++ grep '{RACE}' log", f" {RACE}"))
    assert [event["line_no"] for event in events] == [3]


def test_a_fallback_stands_where_a_line_is_not_in_its_place(log: Path) -> None:
    """A signature with `follows` that was not admitted took the fallback's event with it."""
    signatures = (
        signature("general", r"Error: \w", fallback=True),
        signature("placed", r"Error: disk", follows=("saving",)),
    )
    small = catalogue(*signatures)
    engine, rules = Engine(small), records.Rules(small, records.Options())

    def found(text: bytes) -> list[str]:
        file = LogFile("a", "a", None, 1, None, "other", Labels())
        recorder = records.Recorder(file, 7, rules, MASKER, ZoneInfo("UTC"))
        data = bytearray(text)
        lines_ = text.count(b"\n")
        recorder.add(blocks.Block(data, 0, len(data), 0, 1, lines_, 0, 0), engine.scan(data))
        recorder.finish()
        return [row["signature"] for row in records.events(recorder.take()[0]).to_pylist()]

    assert found(b"loading\nError: disk\n") == ["general"]
    assert found(b"saving\nError: disk\n") == ["placed"]


def test_the_piece_between_redraws_is_the_message(log: Path) -> None:
    text = f" 10%|#  | 1/10\r 20%|## | 2/10\r[rank5]: {RACE}\r\n".encode()
    (event,) = scan(log, text)[0]
    assert (event["message"], event["rank"], event["byte_offset"]) == (RACE, 5, 0)


def test_a_message_in_a_huge_line_is_found_once_and_cut(log: Path) -> None:
    text = b"x" * 3_000_000 + f" {RACE} ".encode() + b"y" * 3_000_000 + b"\n" + RACE.encode()
    events, _, _ = scan(log, text)
    assert [(e["line_no"], e["byte_offset"]) for e in events] == [
        (1, 0),
        (2, len(text) - len(RACE)),
    ]
    assert RACE in events[0]["message"]
    assert len(events[0]["message"]) <= records.MESSAGE_BYTES


@pytest.mark.parametrize("place", ["front", "tail", "piece", "evidence", "redrawn"])
def test_no_half_of_a_secret_survives_where_a_long_line_is_cut(log: Path, place: str) -> None:
    token = tokens(Maker(3))["github-classic"]
    half, words = len(token) // 2, "word " * 5000
    around = {
        "front": f"{words}{token} {words[: 12288 - half - len(RACE) - 1]}{RACE}",
        "tail": f"{words}{RACE} {words[: 4096 - half - 2]} {token} {words}",
        "piece": f"{words * 42}"[: (1 << 20) - 4096 - half] + f"{token} {RACE} {words}",
        "evidence": f"{words[: 4096 - half - 1]} {token} {words}\n{RACE}",
        "redrawn": f"a\r{words}{token} {words[: 4096 - half - 1]}\n{RACE}",
    }[place]
    events, evidence, _ = scan(log, around.encode())
    stored = "".join([*(e["message"] for e in events), *(e["text"] for e in evidence)])
    assert RACE in stored
    assert token[: half - 4] not in stored
    assert token[4 - half :] not in stored


def test_evidence_survives_tiny_blocks(log: Path) -> None:
    literal = "DeepSpeed ZeRO-Offload NVMe aio_write failed: No space left on device"
    text = lines((f"step {n} of the night" for n in range(500)), literal, "after", "more")
    events, evidence, _ = scan(log, text, block_bytes=64)
    (event,) = of(events, "disk-full")
    assert dict(event["captures"])["path_class"] == "nvme_swap"
    assert [line["line_no"] for line in sorted(evidence, key=lambda line: line["line_no"])] == list(
        range(501 - records.EVIDENCE_BEFORE, 504)
    )
    assert {line["text"] for line in evidence} >= {"step 400 of the night", literal, "more"}


def entries(*texts: str, size: int) -> bytes:
    """Lines as a container runtime stores them, in entries of `size` characters of text."""
    return lines(
        f"2026-03-01T10:00:00.0Z stderr {'F' if begin + size >= len(text) else 'P'} "
        f"{text[begin : begin + size]}"
        for text in texts
        for begin in range(0, len(text) or 1, size)
    )


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_evidence_of_joined_lines_has_the_numbers_of_their_first_entries(
    log: Path, block_bytes: int
) -> None:
    texts = ["a whole line", "b" * 90, "short", "c" * 130, RACE, "d" * 50, "end"]
    events, evidence, _ = scan(log, entries(*texts, size=40), block_bytes=block_bytes)
    (event,) = of(events, "nvme-offload-checkpoint-race")
    numbers = [1, 2, 5, 6, 10, 13, 15]
    assert (event["line_no"], event["message"]) == (10, RACE)
    assert event["byte_offset"] == len(entries(*texts[:4], size=40))
    assert [(line["line_no"], line["text"].split(" ", 3)[3]) for line in evidence] == list(
        zip(numbers, texts, strict=True)
    )


@pytest.mark.parametrize("block_bytes", [1000, 1 << 20])
def test_evidence_around_a_huge_line_leaves_no_line_out(log: Path, block_bytes: int) -> None:
    huge = f"{'x' * 1_500_000} {RACE} {'y' * 1_500_000}"
    _, evidence, _ = scan(log, lines("before", huge, "after", "end"), block_bytes=block_bytes)
    assert [line["line_no"] for line in evidence] == [1, 2, 3, 4]
    assert [line["text"] for line in evidence if line["line_no"] != 2] == ["before", "after", "end"]
    assert evidence == scan(log, log.read_bytes())[1]


def test_what_deepspeed_prints_of_a_full_swap_is_disk_full(log: Path) -> None:
    path = "/local_nvme/zero_stage_3/optimizer/rank3/7.tensor.swp"
    printed = f"deepspeed_aio:   open for write  failed on {path} error = 28"
    (event,) = scan(log, lines(printed))[0]
    captures = dict(event["captures"])
    assert (event["failure"], event["role"]) == ("disk-full", "cause")
    assert (captures["path_class"], captures["errno"]) == ("nvme_swap", "28")


def test_bytes_that_are_no_text_are_replaced_and_counted(log: Path) -> None:
    (event,), _, recorder = scan(log, b"\xff\xfe " + RACE.encode() + b" \xc3(\n")
    assert event["message"].count("\ufffd") == 3
    assert recorder.losses.replaced_bytes >= 3


def test_ranks_beyond_the_column_are_unknown(log: Path) -> None:
    (event,) = scan(log, lines(f"[rank99999999999999999999]: {RACE}"))[0]
    assert event["rank"] is None


def test_the_year_of_a_later_time_does_not_depend_on_blocks(log: Path) -> None:
    """A bound took the year of whatever line with a year had been read by then."""
    text = lines(
        f"[rank1]: {RACE}",
        "bar\r[2019-05-09 10:00:00,000] Killing subprocess 5",
        "W0909 12:00:05.641000 4100 torch/distributed/elastic/x.py:900] Sending process 4113 "
        "closing signal SIGTERM",
    )
    whole, tiny = (scan(log, text, block_bytes=size)[0] for size in (1 << 20, 1))
    assert [event["ts_hi"] for event in tiny] == [event["ts_hi"] for event in whole]


def test_a_later_time_without_a_year_is_put_near_each_row_that_asks(log: Path) -> None:
    """The answer to the first row was kept for those behind it, read as a part or not."""
    text = lines(
        f"[rank1]: {RACE}",
        f"bar\r[2019-05-09 10:00:00,000] {RACE}",
        f"[rank2]: {RACE}",
        "W0209 12:00:05.641000 4100 torch/distributed/elastic/x.py:900] step",
    )
    rows = scan(log, text)[0]
    # With no time before it, the latest one before the file was written: 2026-03-01 or later.
    assert [row["ts_hi"].year for row in rows][1:] == [2019, 2019]
    assert [row["ts_lo"] and row["ts_lo"].year for row in rows] == [None, 2019, 2019]
    assert rows[0]["ts_hi"].year != 2019


def test_labels_of_the_path_fill_what_the_line_does_not_say() -> None:
    file = LogFile(
        "a", "a", None, 1, None, "rank_stdout", Labels(job="7", rank=4, host="n1", run="7")
    )
    recorder = records.Recorder(file, 7, RULES[False], MASKER, ZoneInfo("UTC"))
    data = bytearray(RACE.encode())
    block = blocks.Block(data, 0, len(data), 0, 1, 1, 0, 0)
    recorder.add(block, ENGINE.scan(data))
    recorder.finish()
    (event,) = records.events(recorder.take()[0]).to_pylist()
    assert (event["job"], event["rank"], event["host"], event["run"]) == ("7", 4, "n1", "7")


PIECES = st.sampled_from(
    [
        f"[rank1]: {RACE}",
        f"2026-03-01T10:00:05.250Z node3 train[7]: {RACE}",
        "[2026-03-01 10:00:01,118] [INFO] [logging.py:107:log_dist] [Rank 0] step=10, skipped=0",
        " iteration       10/    1000 | consumed samples:           40 | elapsed time per "
        "iteration (ms): 5837.9 | learning rate: 0.000E+00 | global batch size: 4 | loss scale: "
        "8388608.0 | number of skipped iterations:  10 | number of nan iterations:   0 |",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "Killing subprocess 38595",
        "bar\r[2019-05-09 10:00:00,000] [INFO] of another year",
        " 10%|#         | 1/10 [00:01<00:09]\r 20%|##        | 2/10",
        "W0909 12:00:05.641000 4100 site-packages/torch/distributed/elastic/x.py:900] Sending "
        "process 4113 closing signal SIGTERM",
        "x" * 300,
        "",
        "\0\ufffd",
        "Mar  1 10:00:09 node3 kernel: [  205.1] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has "
        "fallen off the bus.",
    ]
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    pieces=st.lists(PIECES, max_size=60),
    end=st.sampled_from(["\n", "\r\n", "\n\r"]),
    closed=st.booleans(),
    stored=st.sampled_from([None, 30, 1000]),
    block_bytes=st.sampled_from([1, 2, 64, 1000]),
    every=st.booleans(),
)
def test_rows_do_not_depend_on_block_size(
    log: Path,
    pieces: list[str],
    end: str,
    closed: bool,
    stored: int | None,
    block_bytes: int,
    every: bool,
) -> None:
    text = (end.join(pieces) + (end if closed else "")).encode()
    if stored is not None:
        text = entries(*pieces, size=stored)

    def result(size: int) -> list[Any]:
        events, evidence, recorder = scan(log, text, block_bytes=size, every=every)
        told = (recorder.first_ts, recorder.last_ts, recorder.matches, recorder.losses)
        return [sorted(map(repr, events)), sorted(map(repr, evidence)), told]

    assert result(block_bytes) == result(1 << 20)
