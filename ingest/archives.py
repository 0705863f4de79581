"""Find the logs in a file: the file itself, or the members of an archive and of those inside it.

Hides tar and zip, what hostile or broken ones hold, and how content that is no log is told.
"""

from __future__ import annotations

import io
import re
import stat
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from ingest.files import storable, unmarked
from ingest.streams import (
    BROKEN,
    PEEK_BYTES,
    SNIFF_BYTES,
    FileStream,
    Stream,
    codec_of,
    crc32,
    decoded,
)

_IN_MEMORY = 64 << 20  # a compressed member up to this size is read again where it is broken
_NESTED = 2  # an archive in an archive is read, one in that is not


class Entry(NamedTuple):
    """A file or a member of an archive in it: a log to read, or what is the matter with it.

    `status` is of ingest.files.LogFile; for an archive, which comes behind its members, it says
    whether some are missing.
    """

    member: str | None  # None: the file itself
    size: int | None
    mtime_us: int | None
    stream: Stream | None = None  # to be read before the next entry is asked for
    archive: bool = False
    status: str = "ok"
    problem: str | None = None

    def skipped(self, problem: str) -> Entry:
        """The entry as one that is not read."""
        return self._replace(stream=None, status="skipped", problem=problem)


class _IncompleteError(Exception):
    """Members are missing: (the archive's status, why and the remedy)."""


def logs(stream: Stream, entry: Entry, path: str, depth: int = 0) -> Iterator[Entry]:
    """The log that a stream is, or the members of the archive that it is and the archive.

    `path` names the file where the entry is no member.
    """
    head = stream.peek(SNIFF_BYTES)
    zipped = head.startswith((b"PK\x03\x04", b"PK\x05\x06"))
    codec = None if zipped else codec_of(head)
    small = entry.size is not None and entry.size <= _IN_MEMORY
    if small and (zipped or codec) and not stream.seekable():
        stream = FileStream(io.BytesIO(stream.read()))
    content = stream
    if codec:
        content = decoded(stream, codec)
        head = content.peek(SNIFF_BYTES)
    archive = zipped or _is_tar(head)
    if archive and depth < _NESTED:
        members = _zip_entries(content) if zipped else _tar_entries(content)
        yield from _members(members, entry, path, depth)
    elif archive:
        yield entry.skipped("an archive three deep: unpack the outer one")
    elif codec and codec_of(head):
        yield entry.skipped("compressed twice: decompress it once")
    elif what := _not_a_log(content, head, entry.member or path):
        yield entry.skipped(f"{what}, not a log")
    else:
        yield entry._replace(stream=content)
        content.close()


def _members(members: Iterator[Entry], archive: Entry, path: str, depth: int) -> Iterator[Entry]:
    seen: dict[str, int] = {}  # how often a name stood here
    end = archive._replace(archive=True)
    try:
        for entry in members:
            name = unique = _safe(entry.member or "")
            while unique in seen:
                seen[name] += 1
                unique = f"{name}#{seen[name]}"
            seen[unique] = 1
            entry = entry._replace(member=f"{archive.member}!{unique}" if depth else unique)
            if entry.stream is None:
                yield entry
            else:
                yield from logs(entry.stream, entry._replace(stream=None), path, depth + 1)
    except _IncompleteError as error:
        status, problem = error.args
        end = end._replace(status=status, problem=problem)
    yield end


def _safe(name: str) -> str:
    """A member's name as a relative path below the archive."""
    parts = [part for part in name.replace("\0", "").split("/") if part not in ("", ".", "..")]
    return unmarked("/".join(parts)) or "unnamed"


def _mtime(seconds: float) -> int | None:
    """Microseconds; None for what archivers write that know no time."""
    return int(seconds * 1_000_000) if 0 < seconds < 1 << 34 else None


class _Section(Stream):
    """A member's bytes where they lie in the archive."""

    def __init__(self, raw: Stream, size: int) -> None:
        super().__init__()
        self.codec = raw.codec
        self._raw, self._begin, self._size = raw, raw.tell(), size

    def _pull(self, out: memoryview) -> int:
        position = self._pulled
        wanted = min(len(out), self._size - position)
        if wanted <= 0:
            return 0
        if self._raw.tell() != self._begin + position:
            self._raw.seek(self._begin + position)
        count = self._raw.readinto(out[:wanted])
        if not count:
            self.fault = self._raw.fault or "the archive ends"
        return count

    def seekable(self) -> bool:
        return self._raw.seekable()

    def _move(self, offset: int, whence: int) -> int:
        return offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]


# What a hostile header makes tarfile and zipfile raise.
_HOSTILE: tuple[type[Exception], ...] = (
    *BROKEN,
    tarfile.TarError,
    zipfile.BadZipFile,
    LookupError,
    ArithmeticError,
    struct.error,
)


# -- what is no log ------------------------------------------------------------------------------

_NOT_LOGS = (
    (rb".{8}DUCK", "a DuckDB database"),
    (rb"SQLite format 3\0", "an SQLite database"),
    (rb"PAR[1E][^ -~\s]", "a Parquet file"),
    (rb"ARROW1\0|FEA1[^ -~\s]", "an Arrow file"),
    (rb"Obj\x01", "an Avro file"),
    (rb"\x89HDF\r\n", "an HDF5 file"),
    (rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|RIFF.{4}WEBP|II\*\0|MM\0\*", "an image"),
    (rb"%PDF-\d", "a PDF"),
    (rb"\x7fELF", "a program or core dump"),
    (rb"\x80[\x02-\x05][\x95\x8a}\](Kc\x8c]", "a pickle"),
    (rb".{5}\0\0\0\{\"|\x93NUMPY|GGUF[^ -~\s]", "tensors"),
    (rb".{9,40}brain\.Event:|:W&B", "a file of metrics"),
    (rb"LPKSHHRH", "a binary journal (read it with `journalctl --file`)"),
    (rb"7z\xbc\xaf\x27\x1c|Rar!\x1a|\x1f\x9d|\x02!L\x18", "packed in a way not known here"),
)
_MAGIC = re.compile(b"|".join(b"(%b)" % magic for magic, _ in _NOT_LOGS), re.DOTALL)
# Members that tell what a zip is, if not an archive of logs.
_NOT_ARCHIVES = re.compile(
    r"(?:.*/)?data\.pkl|[^/]+\.dist-info/.*|.*\.npy|META-INF/.*|\[Content_Types\]\.xml"
)
_JSON_NAME = re.compile(r"\.json(?:\.\w+)?\Z", re.IGNORECASE)
_JSON = re.compile(rb"\s*[\[{](?:\s*\n|[^\n]*$)")  # not one whole object a line


def _not_a_log(content: Stream, head: bytes, name: str) -> str | None:
    """What the content is instead of a log, by its first bytes, of which `head` are the first."""
    if (match := _MAGIC.match(head)) and match.lastindex:
        return _NOT_LOGS[match.lastindex - 1][1]
    if _JSON_NAME.search(name) and _JSON.match(content.peek(PEEK_BYTES)):
        return "a JSON document"
    if name.endswith(".duckdb.wal"):
        return "a part of a DuckDB database"
    return None


# -- tar -------------------------------------------------------------------------------------------

_TAR_METADATA = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_METADATA_BYTES = 1 << 17
_TAR_SUM = re.compile(rb"[0-7 \0]{8}")


class _TarInfo(tarfile.TarInfo):
    """A header that is refused where tarfile would end in silence or read it into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _TarInfo:
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf.strip(b"\0"):
                raise tarfile.ReadError(str(error)) from None
            raise
        if info.type in _TAR_METADATA and info.size > _METADATA_BYTES:
            raise tarfile.ReadError("metadata without end")
        return info


def _is_tar(head: bytes) -> bool:
    if not _TAR_SUM.match(head, 148):
        return False
    try:
        _TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


def _tar_entries(content: Stream) -> Iterator[Entry]:
    """Members in their order. Raises _IncompleteError."""

    def broken(why: object) -> _IncompleteError:
        return _IncompleteError(
            "truncated", f"{content.fault or why}: get a whole copy for the rest"
        )

    last = -1
    try:
        tar = tarfile.TarFile(fileobj=content, tarinfo=_TarInfo, errors="surrogateescape")
    except _HOSTILE as error:
        raise broken(error) from error
    with tar:
        while True:
            try:
                info = tar.next()
            except _HOSTILE as error:
                raise broken(error) from error
            if info is None:
                break
            if info.offset <= last or info.size < 0:
                raise broken("its headers lead in a circle")
            last = info.offset
            tar.members.clear()  # type: ignore[attr-defined] # kept for random access: a large archive would fill the memory
            entry = Entry(info.name, info.size, _mtime(info.mtime))
            if info.issym() or info.islnk():
                yield entry.skipped(f"a link to {storable(info.linkname)}: not followed")
            elif info.issparse():
                yield entry.skipped("a sparse file: unpack it first")
            elif info.isreg():
                content.seek(info.offset_data)
                yield entry._replace(stream=_Section(content, info.size))
            elif not info.isdir():
                yield entry.skipped("a device or FIFO, not a log")
    if content.fault:
        raise broken(content.fault)


# -- zip -------------------------------------------------------------------------------------------

_ZIP_METHODS = {0: None, 8: "zip", 12: "bz2", 93: "zstd", 95: "xz"}
_ZIP_HEADER = struct.Struct("<26xHH")  # local header: lengths of name and extra field
_DOS_0 = datetime(1980, 1, 2, tzinfo=UTC).timestamp()  # what archivers write for no time


class _Checked(Stream):
    """A member of a zip, held against its size and CRC."""

    def __init__(self, raw: Stream, size: int, crc: int) -> None:
        super().__init__()
        self.codec = raw.codec
        self._raw, self._right, self._crc = raw, (size, crc), 0

    def _pull(self, out: memoryview) -> int:
        count = self._raw.readinto(out)
        self._crc = crc32(out[:count], self._crc)
        if not count:
            right = (self._pulled, self._crc) == self._right
            self.fault = self._raw.fault or (None if right else "its checksum is wrong")
        return count


def _zip_entries(content: Stream) -> Iterator[Entry]:
    """Members in the order of their data. Raises _IncompleteError."""
    if not content.seekable():
        raise _IncompleteError("skipped", "a zip is read from its end: save it to disk first")
    size = content.seek(0, io.SEEK_END)
    try:
        with zipfile.ZipFile(content) as directory:
            infos = directory.infolist()
    except _HOSTILE as error:
        raise _IncompleteError("failed", f"{error}: get a whole copy".lower()) from error
    if any(_NOT_ARCHIVES.fullmatch(info.filename) for info in infos):
        raise _IncompleteError("skipped", "model weights or a package, not an archive of logs")
    if sum(info.compress_size for info in infos) > size:
        raise _IncompleteError("skipped", "its members overlap: it is made to unpack without end")
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.filename.endswith("/"):
            continue
        try:
            written = datetime(*info.date_time, tzinfo=UTC).timestamp()
        except ValueError:
            written = 0
        entry = Entry(info.filename, info.file_size, _mtime(written if written > _DOS_0 else 0))
        kind = stat.S_IFMT(info.external_attr >> 16)
        begin = content.seek(min(max(info.header_offset, 0), size))
        header = content.read(_ZIP_HEADER.size)
        if kind not in (0, stat.S_IFREG):
            yield entry.skipped("a link or device: not followed")
        elif info.flag_bits & 1:
            yield entry.skipped("encrypted: decrypt it first")
        elif info.compress_type not in _ZIP_METHODS:
            yield entry.skipped("packed in a way not known here: unpack it first")
        elif not header.startswith(b"PK\x03\x04") or len(header) < _ZIP_HEADER.size:
            yield entry.skipped("its header is broken: get a whole copy")
        else:
            content.seek(begin + len(header) + sum(_ZIP_HEADER.unpack(header)))
            packed: Stream = _Section(content, info.compress_size)
            codec = _ZIP_METHODS[info.compress_type]
            data = decoded(packed, codec) if codec else packed
            yield entry._replace(stream=_Checked(data, info.file_size, info.CRC))
