"""Logs in archives and beside them, hostile ones included."""

from __future__ import annotations

import gzip
import io
import lzma
import sys
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest import blocks
from ingest.files import discover
from ingest.streams import zstd
from tests.reading import CODECS, TEXT, Chopped, source, summary

# -- what is no log --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("x.log", b"\0" * 8 + b"DUCK\x40", "a DuckDB database"),
        ("x.duckdb.wal", b"\x01", "a part of a DuckDB database"),
        ("x", b"PAR1\x15\x04", "a Parquet file"),
        ("x", b"ARROW1\0\0", "an Arrow file"),
        ("x", b"\x89PNG\r\n\x1a\n", "an image"),
        ("x", b"\xff\xd8\xff\xe0", "an image"),
        ("x.pt", b"\x80\x02}q\0", "a pickle"),
        ("x", b'\x10\x01\0\0\0\0\0\0{"a', "tensors"),
        ("x", b"\x7fELF\x02", "a program or core dump"),
        ("x.json", b'{\n "a": 1\n}\n', "a JSON document"),
        ("x.json", b'{"a": 1}\n', "a JSON document"),
    ],
)
def test_what_is_no_log_is_skipped(tmp_path: Path, name: str, data: bytes, what: str) -> None:
    for packed in (data, gzip.compress(data)):
        (tmp_path / name).write_bytes(packed)
        assert summary(tmp_path / name) == [
            (name, "other", "skipped", None, f"{name}: {what}, not a log")
        ]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.json", b'{"log":"a\\n"}\n{"log":"b\\n"}\n'),
        ("x.log", b"{\n"),
        ("x", b"PAR1 of 2 begins\n"),
        ("x", b"GGUF is a format\n"),
        ("x", b"\xff\xfe\x80 no text\n"),
        ("x", b"12345678" * 80),
    ],
)
def test_what_may_be_a_log_is_read(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert [row[2:4] for row in summary(tmp_path / name)] == [("ok", data)]


def test_stream_compressed_twice_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(gzip.compress(b"a\n")))
    assert summary(tmp_path / "x.gz")[0][4] == "x.gz: compressed twice: decompress it once"


# -- archives --------------------------------------------------------------------------------------


def tar(*members: tuple[str, bytes | tarfile.TarInfo]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in members:
            if isinstance(data, tarfile.TarInfo):
                archive.addfile(data)
                continue
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1_700_000_000
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def special(name: str, type_: bytes, target: str = "") -> tuple[str, tarfile.TarInfo]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = type_, target
    return name, info


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that stand twice
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6)), data, method)
    return buffer.getvalue()


MEMBERS = (("job7/rank_0.log", b"zero\n" * 5000), ("job7/rank_1.log", b"one"), ("e.log", b""))


@pytest.mark.parametrize("codec", ["plain", *CODECS])
def test_tar_gives_its_members_and_then_itself(tmp_path: Path, codec: str) -> None:
    compress = CODECS.get(codec, bytes)
    (tmp_path / "t.bin").write_bytes(compress(tar(special("job7", tarfile.DIRTYPE), *MEMBERS)))
    assert summary(tmp_path / "t.bin") == [
        ("t.bin!job7/rank_0.log", "rank_stdout", "ok", MEMBERS[0][1], None),
        ("t.bin!job7/rank_1.log", "rank_stdout", "ok", b"one", None),
        ("t.bin!e.log", "other", "ok", b"", None),
        ("t.bin", "archive", "ok", None, None),
    ]
    (first, found), *_ = blocks.open_source(source(tmp_path / "t.bin"))
    assert found is not None
    assert (first.member, first.size, first.mtime_us) == (
        "job7/rank_0.log",
        25_000,
        1_700_000_000_000_000,
    )
    assert (first.labels.job, first.labels.rank, found.stats.codec) == ("job7", 0, codec)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_zip_gives_its_members_and_then_itself(tmp_path: Path, method: int) -> None:
    (tmp_path / "z.log").write_bytes(zipped(*MEMBERS, method=method))
    assert summary(tmp_path / "z.log") == [
        ("z.log!job7/rank_0.log", "rank_stdout", "ok", MEMBERS[0][1], None),
        ("z.log!job7/rank_1.log", "rank_stdout", "ok", b"one", None),
        ("z.log!e.log", "other", "ok", b"", None),
        ("z.log", "archive", "ok", None, None),
    ]
    (first, _), *_ = blocks.open_source(source(tmp_path / "z.log"))
    assert (first.size, first.mtime_us) == (25_000, 1_767_323_046_000_000)


def test_member_that_is_not_read_is_passed_over(tmp_path: Path) -> None:
    for name, data in (("a.tar", tar(*MEMBERS)), ("a.tgz", gzip.compress(tar(*MEMBERS)))):
        (tmp_path / name).write_bytes(data)
        files = [file.path for file, _ in blocks.open_source(source(tmp_path / name))]
        assert files == [f"{name}!{member}" for member, _ in MEMBERS] + [name]


def test_members_compressed_or_archives_themselves_are_read(tmp_path: Path) -> None:
    inner = tar(("n/rank_2.log", b"two\n"))
    members = [
        ("a.gz", gzip.compress(b"a\n")),
        ("b.tar.xz", lzma.compress(inner)),
        ("c.zip", zipped(("rank_3.log", b"three\n"))),
    ]
    expected = [
        ("a.gz", "other", b"a\n", None),
        ("b.tar.xz!n/rank_2.log", "rank_stdout", b"two\n", None),
        ("b.tar.xz", "archive", None, None),
        ("c.zip!rank_3.log", "rank_stdout", b"three\n", None),
        ("c.zip", "archive", None, None),
    ]
    for name, data in (
        ("t.tar", tar(*members)),
        ("t.tgz", gzip.compress(tar(*members))),
        ("t.zip", zipped(*members)),
    ):
        (tmp_path / name).write_bytes(data)
        assert summary(tmp_path / name) == [
            (f"{name}!{path}", kind, "ok", text, lost) for path, kind, text, lost in expected
        ] + [(name, "archive", "ok", None, None)]


def test_archive_three_deep_is_skipped(tmp_path: Path) -> None:
    deep = tar(("c.tar", tar(("d.log", b"d\n"))))
    (tmp_path / "a.tar").write_bytes(tar(("b.tar", deep)))
    assert summary(tmp_path / "a.tar")[0] == (
        "a.tar!b.tar!c.tar",
        "other",
        "skipped",
        None,
        "a.tar!b.tar!c.tar: an archive three deep: unpack the outer one",
    )


def test_hostile_names_stay_inside_and_apart(tmp_path: Path) -> None:
    names = ["/etc/passwd", "../../x.log", "./a//b.log", "a/b.log", "a/b.log", "..", "caf\udce9"]
    for file, data in (
        ("t.tar", tar(*((name, b"%d\n" % n) for n, name in enumerate(names)))),
        ("t.zip", zipped(*((name, b"%d\n" % n) for n, name in enumerate(names[:-1])))),
    ):
        (tmp_path / file).write_bytes(data)
        found = [path for path, *_ in summary(tmp_path / file)]
        expected = ["etc/passwd", "x.log", "a/b.log", "a/b.log#2", "a/b.log#3", "unnamed"]
        expected += [r"caf\xe9"] if file == "t.tar" else []
        assert found == [f"{file}!{name}" for name in expected] + [file]


def test_what_is_no_file_in_a_tar_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "t.tar").write_bytes(
        tar(
            special("soft.log", tarfile.SYMTYPE, "/etc/passwd"),
            special("hard.log", tarfile.LNKTYPE, "a.log"),
            special("null", tarfile.CHRTYPE),
            ("a.log", b"a\n"),
        )
    )
    assert [
        (path, status, problem) for path, _, status, _, problem in summary(tmp_path / "t.tar")
    ] == [
        ("t.tar!soft.log", "skipped", "t.tar!soft.log: a link to /etc/passwd: not followed"),
        ("t.tar!hard.log", "skipped", "t.tar!hard.log: a link to a.log: not followed"),
        ("t.tar!null", "skipped", "t.tar!null: a device or FIFO, not a log"),
        ("t.tar!a.log", "ok", None),
        ("t.tar", "ok", None),
    ]


def test_cut_tar_gives_its_readable_members(tmp_path: Path) -> None:
    data = tar(("a.log", b"a\n"), ("b.log", TEXT), ("c.log", b"c\n"))
    (tmp_path / "t.tar").write_bytes(data[:5000])
    copy = "what comes before was read, get a whole copy for the rest"
    readable = data[2560 - 512 - 512 : 5000]
    rows = summary(tmp_path / "t.tar")
    assert rows[0][3:] == (b"a\n", None)
    assert rows[1][3] == readable == TEXT[: len(readable)]
    assert rows[1][4] == (
        f"t.tar!b.log: the archive ends after byte {len(readable)} of its content: {copy}"
    )
    assert rows[2:] == [
        (
            "t.tar",
            "archive",
            "truncated",
            None,
            "t.tar: unexpected end of data: get a whole copy for the rest",
        )
    ]
    (tmp_path / "t.tgz").write_bytes(gzip.compress(data)[:20_000])
    rows = summary(tmp_path / "t.tgz")
    text = rows[1][3]
    assert text is not None
    assert TEXT.startswith(text)
    assert len(text) > 10_000
    assert rows[1][4] == (
        f"t.tgz!b.log: the gzip stream ends early after byte {len(text)} of its content: {copy}"
    )
    assert rows[2][2:] == (
        "truncated",
        None,
        "t.tgz: the gzip stream ends early: get a whole copy for the rest",
    )


def test_tar_with_a_broken_header_says_that_members_are_missing(tmp_path: Path) -> None:
    data = bytearray(tar(("a.log", b"a\n"), ("b.log", b"b\n")))
    data[1024 + 3] ^= 1
    (tmp_path / "t.tar").write_bytes(data)
    assert summary(tmp_path / "t.tar") == [
        ("t.tar!a.log", "other", "ok", b"a\n", None),
        (
            "t.tar",
            "archive",
            "truncated",
            None,
            "t.tar: bad checksum: get a whole copy for the rest",
        ),
    ]


@pytest.mark.parametrize("size", ["-1024", "-99999999", "9999999999999"])
def test_tar_with_a_hostile_size_ends(tmp_path: Path, size: str) -> None:
    info = tarfile.TarInfo("a.log")
    info.pax_headers = {"size": size}
    (tmp_path / "t.tar").write_bytes(tar(("first.log", b"1\n"), ("a.log", info), ("b.log", b"2\n")))
    rows = summary(tmp_path / "t.tar")
    assert rows[0][3] == b"1\n"
    assert rows[-1][:3] == ("t.tar", "archive", "truncated")


def test_tar_metadata_of_any_size_is_not_read_into_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 32
    (tmp_path / "t.tar").write_bytes(tar(("a.log", b"a\n"))[:1024] + info.tobuf() + bytes(4096))
    assert summary(tmp_path / "t.tar")[-1][4] == (
        "t.tar: metadata without end: get a whole copy for the rest"
    )


def test_zip_members_that_cannot_be_read_are_skipped(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("lzma.log", b"x\n", zipfile.ZIP_LZMA)
        archive.writestr("secret.log", b"y\n")
        archive.writestr("d/", b"")
    data = buffer.getvalue()
    directory = data.rindex(b"PK\x01\x02", 0, data.rindex(b"secret.log"))
    data = data[: directory + 8] + b"\x01" + data[directory + 9 :]
    (tmp_path / "z.zip").write_bytes(data)
    assert [
        (path, status, problem) for path, _, status, _, problem in summary(tmp_path / "z.zip")
    ] == [
        ("z.zip!link", "skipped", "z.zip!link: a link or device: not followed"),
        (
            "z.zip!lzma.log",
            "skipped",
            "z.zip!lzma.log: packed in a way not known here: unpack it first",
        ),
        ("z.zip!secret.log", "skipped", "z.zip!secret.log: encrypted: decrypt it first"),
        ("z.zip", "ok", None),
    ]


def test_zip_member_that_is_not_what_it_was_is_read_and_said_to_be_broken(tmp_path: Path) -> None:
    data = zipped(("a.log", b"hello\n"), ("b.log", b"whole\n"), method=zipfile.ZIP_STORED)
    (tmp_path / "z.zip").write_bytes(data.replace(b"hello\n", b"jello\n", 1))
    rows = summary(tmp_path / "z.zip")
    assert rows[0][3:] == (
        b"jello\n",
        "z.zip!a.log: its checksum is wrong after byte 6 of its content: "
        "what comes before was read, get a whole copy for the rest",
    )
    assert rows[1][3:] == (b"whole\n", None)


def test_zip_without_its_directory_is_a_failed_archive(tmp_path: Path) -> None:
    (tmp_path / "z.zip").write_bytes(zipped(*MEMBERS)[:-30])
    assert summary(tmp_path / "z.zip") == [
        ("z.zip", "archive", "failed", None, "z.zip: file is not a zip file: get a whole copy")
    ]


@pytest.mark.parametrize("name", ["archive/data.pkl", "x-1.0.dist-info/METADATA", "arr_0.npy"])
def test_zip_that_is_a_package_is_skipped(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.pt").write_bytes(zipped((name, b"x"), ("other.txt", b"y")))
    assert summary(tmp_path / "model.pt") == [
        (
            "model.pt",
            "archive",
            "skipped",
            None,
            "model.pt: model weights or a package, not an archive of logs",
        )
    ]


def test_zip_from_a_pipe_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = Chopped(zipped(*MEMBERS), seekable=False)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(packed)))
    (found,) = discover(["-"])
    ((file, _),) = blocks.open_source(found)
    assert (file.status, file.problem) == (
        "skipped",
        "-: a zip is read from its end: save it to disk first",
    )


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_damaged_archive_never_raises(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = data.draw(
        st.sampled_from(
            [
                tar(*MEMBERS, ("long/" * 40 + "x.log", b"x\n")),
                gzip.compress(tar(*MEMBERS)),
                zipped(*MEMBERS),
                zstd.compress(tar(("b.zip", zipped(*MEMBERS)))),
            ]
        )
    )
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("d") / "x"
    path.write_bytes(damaged[: data.draw(st.integers(1, len(whole)))])
    rows = summary(path)
    assert rows
    assert all(status in ("ok", "skipped", "truncated", "failed") for _, _, status, _, _ in rows)
