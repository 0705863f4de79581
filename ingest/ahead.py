"""Read a stream ahead in a thread, while what was read is worked on.

Hides the thread, its buffers and how they change hands. It pays where a core is idle: reading and
decompressing leave the interpreter to the others, and the thread makes few, long calls of them.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import NamedTuple

from ingest.streams import Stream

BUFFER_BYTES = 1 << 20
_BUFFERS = 4  # one is emptied, one is filled, two make up for uneven work
_spare: list[memoryview] = []  # fresh ones cost more than to decompress a tenth of what they hold


class _Part(NamedTuple):
    buffer: memoryview
    size: int  # bytes read into it: less than it holds at the end alone
    error: BaseException | None  # raised by the read that would have been next


class Ahead(Stream):
    """The same bytes, codec, fault and errors as of a stream, which is read in a thread.

    Nobody else may touch that stream until this one is closed: this ends the thread, waiting for
    the read that it is in, and leaves the stream open. The first BUFFER_BYTES are read without a
    thread: small files are not worth one.
    """

    _thread: threading.Thread | None = None

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.codec = stream.codec
        self._stream = stream
        self._empty: SimpleQueue[memoryview | None] = SimpleQueue()
        self._filled: SimpleQueue[_Part] = SimpleQueue()
        self._part: _Part | None = None
        self._given = 0  # bytes of the part
        self._buffers: list[memoryview] = []

    def _pull(self, out: memoryview) -> int:
        if self.closed:
            raise ValueError("the stream is closed: read it before")
        if self._thread is None:
            if self._pulled < BUFFER_BYTES:
                count = self._stream.readinto(out)
                self.fault = self._stream.fault
                return count
            self._begin()
        part = self._part
        if part is None or (self._given == part.size == len(part.buffer)):
            if part is not None:
                self._empty.put(part.buffer)
            part = self._part = self._filled.get()
            self._given = 0
        count = min(len(out), part.size - self._given)
        out[:count] = part.buffer[self._given : self._given + count]
        self._given += count
        if not count:
            if part.error is not None:
                raise part.error
            self.fault = self._stream.fault
        return count

    def _begin(self) -> None:
        for _ in range(_BUFFERS):
            buffer = _spare.pop() if _spare else memoryview(bytearray(BUFFER_BYTES))
            self._buffers.append(buffer)
            self._empty.put(buffer)
        # Not a method of this object: the thread would keep it from being closed when dropped.
        thread = threading.Thread(
            target=_fill,
            args=(self._stream, self._empty, self._filled),
            name="read ahead",
            daemon=True,
        )
        thread.start()
        self._thread = thread

    def close(self) -> None:
        """End the thread."""
        thread = self._thread
        if thread is not None and not self.closed:
            try:
                while True:
                    self._empty.get_nowait()
            except Empty:
                self._empty.put(None)
            # The garbage collector closes what was dropped in any thread, maybe in this one.
            if thread is not threading.current_thread():
                thread.join()
                _spare.extend(self._buffers)
        super().close()


def _fill(
    stream: Stream, empty: SimpleQueue[memoryview | None], filled: SimpleQueue[_Part]
) -> None:
    """Fill empty buffers until the stream ends or there is None in place of one."""
    while (buffer := empty.get()) is not None:
        count, error = 0, None
        try:
            while count < len(buffer) and (more := stream.readinto(buffer[count:])):
                count += more
        except BaseException as problem:  # raised again by whoever reads
            error = problem
        filled.put(_Part(buffer, count, error))
        if count < len(buffer):
            break
