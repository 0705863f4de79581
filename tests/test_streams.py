"""Any codec or encoding as plain bytes, however it is broken or read."""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest import streams
from ingest.streams import zstd
from tests.reading import CODECS, TEXT, content, reader

each_codec = pytest.mark.parametrize("codec", CODECS)


@each_codec
def test_codec_is_told_by_content_and_members_follow_each_other(codec: str) -> None:
    compress = CODECS[codec]
    packed = compress(TEXT) + compress(b"") + compress(b"second\n")
    found = reader(packed, lengths=[70_001])
    assert content(found) == TEXT + b"second\n"
    assert (found.stats.codec, found.stats.truncated) == (codec, None)


@each_codec
def test_zeros_behind_a_stream_are_padding_and_other_bytes_a_loss(codec: str) -> None:
    packed = CODECS[codec](b"text\n")
    padded = reader(packed + bytes(100_000))
    assert (content(padded), padded.stats.truncated) == (b"text\n", None)
    followed = reader(packed + b"\0\0garbage")
    assert content(followed) == b"text\n"
    assert followed.stats.truncated == (
        f"x.log: other bytes follow the {codec} stream after byte 5 of its content: "
        "what comes before was read, get a whole copy for the rest"
    )


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_skippable_frames_are_skipped(codec: str) -> None:
    frame = skippable(b"skip\n")
    packed = CODECS[codec](b"text\n")
    found = reader(frame + frame + packed + frame + packed + frame)
    assert (content(found), found.stats.codec) == (b"text\n" * 2, codec)
    assert found.stats.truncated is None


@each_codec
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_cut_stream_gives_the_same_readable_part_however_it_is_read(
    codec: str, data: st.DataObject
) -> None:
    packed = CODECS[codec](TEXT)
    size = data.draw(st.integers(12, len(packed) - 1))
    first = reader(packed[:size])
    second = reader(
        packed[:size],
        data.draw(st.integers(1000, 100_000)),
        data.draw(st.lists(st.integers(1, 5000), min_size=1, max_size=3)),
        seekable=data.draw(st.booleans()),
    )
    text = content(first)
    assert text == content(second)
    assert TEXT.startswith(text)
    assert first.stats == second.stats
    assert first.stats.truncated == (
        f"x.log: the {codec} stream ends early after byte {len(text)} of its content: "
        "what comes before was read, get a whole copy for the rest"
    )


@each_codec
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_corrupt_stream_gives_the_same_readable_part_however_it_is_read(
    codec: str, data: st.DataObject
) -> None:
    packed = bytearray(CODECS[codec](TEXT[:30_000]))
    packed[data.draw(st.integers(12, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    first = reader(bytes(packed))
    second = reader(
        bytes(packed),
        data.draw(st.integers(1000, 100_000)),
        data.draw(st.lists(st.integers(1, 5000), min_size=1, max_size=3)),
    )
    assert content(first) == content(second)
    assert first.stats == second.stats


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_wrong_checksum_at_the_end_loses_no_byte(codec: str) -> None:
    packed = bytearray(CODECS[codec](TEXT))
    packed[-5 if codec == "gzip" else -1] ^= 1
    found = reader(bytes(packed))
    assert content(found) == TEXT
    assert found.stats.truncated is not None
    assert found.stats.truncated.startswith(f"x.log: the {codec} stream is corrupt (")
    assert f") after byte {len(TEXT)} of its content: " in found.stats.truncated


def test_gzip_is_read_the_same_without_isal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "igzip_lib", None)
    monkeypatch.delitem(streams._READERS, "gzip")
    packed = gzip.compress(TEXT) + gzip.compress(b"second\n")
    whole = reader(packed, lengths=[4097])
    assert (content(whole), whole.stats.truncated) == (TEXT + b"second\n", None)
    cut = reader(packed[:5000])
    text = content(cut)
    assert text == zlib.decompressobj(31).decompress(packed[:5000])
    assert cut.stats.truncated is not None


def test_name_without_end_in_a_gzip_header_is_not_kept_in_memory() -> None:
    name = b"n" * (8 << 20)
    plain = gzip.compress(TEXT, mtime=0)
    packed = plain[:3] + b"\x08" + plain[4:10] + name + b"\0" + plain[10:]
    file = streams.FileStream(io.BytesIO(packed))
    tracemalloc.start()
    try:
        stream = streams.decoded(file)
        assert (stream.read(), stream.fault) == (TEXT, None)
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()


def skippable(content: bytes) -> bytes:
    return b"\x5a\x2a\x4d\x18" + struct.pack("<I", len(content)) + content


MEMBERS = {
    "gzip": [gzip.compress(TEXT, level) for level in (0, 1, 6)]
    + [gzip.compress(text) for text in (b"", b"x", bytes(400_000))],
    "zstd": [
        zstandard.ZstdCompressor(
            level, write_checksum=level > 1, write_content_size=sized
        ).compress(text)
        for level in (-5, 1, 3)
        for sized in (True, False)
        for text in (TEXT, b"", b"x", bytes(400_000))
    ],
}


@pytest.mark.parametrize("codec", MEMBERS)
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_reader_of_a_library_gives_what_its_decompressor_gives(
    codec: str, data: st.DataObject
) -> None:
    between = st.sampled_from([bytes(70)] + [skippable(b"y" * 300_000)] * (codec == "zstd"))
    members = st.lists(st.sampled_from(MEMBERS[codec]) | between, max_size=4)
    packed = bytearray(MEMBERS[codec][0] + b"".join(data.draw(members)))
    damage = data.draw(st.sampled_from(["none", "cut", "flip", "garbage"]))
    place = data.draw(st.integers(12, len(packed) - 1))
    if damage == "cut":
        del packed[place:]
    elif damage == "flip":
        packed[place] ^= 1 << data.draw(st.integers(0, 7))
    elif damage == "garbage":
        packed += data.draw(st.binary(min_size=1, max_size=20))
    block_bytes = data.draw(st.integers(1000, 100_000))
    fast = reader(bytes(packed), block_bytes, [data.draw(st.integers(1, 200_000))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "_READERS", {})
        plain = reader(bytes(packed))
    assert type(fast._source) is not type(plain._source)
    assert content(fast) == content(plain)
    assert fast.stats == plain.stats


@pytest.mark.parametrize("codec", MEMBERS)
def test_whole_stream_is_read_once(codec: str) -> None:
    packed = b"".join(MEMBERS[codec] * 3)
    packed += skippable(b"table of frames" * 99) if codec == "zstd" else bytes(999)
    file = io.BytesIO(packed)
    stream = streams.decoded(streams.FileStream(file))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream._raw, "seek", None)  # type: ignore[attr-defined]
        text = stream.read()
    assert (len(text), stream.fault, file.tell()) == (stream.tell(), None, len(packed))


def test_bomb_is_read_in_bounded_pieces() -> None:
    packed = zstd.compress(bytes(300 << 20))
    assert len(packed) < 1 << 16
    found = reader(packed)
    assert sum(1 for _ in found) > 290
    assert (found.stats.raw_bytes, found.stats.lines, found.stats.cut_lines) == (300 << 20, 1, 1)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_with_a_byte_order_mark_becomes_utf8(encoding: str) -> None:
    text = "\ufeffErrör one\r\nzwei 🦊\n" * 5000
    found = reader(text.encode(encoding), 1000)
    assert content(found).decode() == text.removeprefix("\ufeff")
    assert found.stats.lines == 10_000
