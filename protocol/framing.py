"""Cutting a byte stream into frames: an int32 size, then that many bytes.

The reader owns the buffer that the socket fills, so bytes go from the kernel into their final place and a frame is a
view of it. A frame is valid until the next call of `buffer`: one request at a time is in progress on a
connection (P-8), and a caller that keeps bytes copies them.

An announced size may be false, so the buffer does not grow to it at once, but fourfold each time it is full. For a
client that has sent a large frame before, the room for the next one is made at once, up to `SIZE_TRUSTED_MAX`.
"""

from __future__ import annotations

from struct import Struct

from pykbroker.protocol.errors import FrameTooLarge

_SIZE = Struct(">i")

BUFFER_SIZE_MIN = 4096
"""Bytes of buffer that an idle connection holds; a thousand connections hold 4 MB."""

BUFFER_SIZE_KEPT = 1 << 18
"""A buffer above this size is given back as soon as it is empty."""

SIZE_TRUSTED_MAX = 1 << 20
"""Largest number of bytes allocated at once for an announced size, for a client that has sent such a frame before."""

GROWTH = 4


class FrameReader:
    """Bytes in, whole frames out.

    Usage: fill some of `buffer()`, report it with `received(n)`, then take frames by `next_frame()` until it gives
    None.

    A buffer above `size_kept` is given back as soon as it is empty.

    `announced` is the size of the frame that `next_frame` found to be incomplete.

    Raises:
        FrameTooLarge: from `next_frame`, for a size below 0 or above `frame_size_max` (P-7).
    """

    __slots__ = (
        "_buffer",
        "_end",
        "_size_kept",
        "_size_trusted",
        "_start",
        "_view",
        "announced",
        "frame_size_max",
    )

    def __init__(self, frame_size_max: int, size_kept: int = BUFFER_SIZE_KEPT) -> None:
        self.frame_size_max = frame_size_max
        self._size_kept = size_kept
        self.announced = 0
        self._size_trusted = 0
        self._start = 0
        self._end = 0
        self._buffer = bytearray(BUFFER_SIZE_MIN)
        self._view = memoryview(self._buffer)

    def buffer(self) -> memoryview:
        """Room for more bytes, never empty; frames given out before are invalid from now on."""
        start, end, size = self._start, self._end, len(self._buffer)
        if start == end:
            self._start = self._end = 0
            if size > self._size_kept:
                self._replace(BUFFER_SIZE_MIN)
            return self._view
        if end - start >= 4:
            wanted: int = 4 + _SIZE.unpack_from(self._buffer, start)[0]
            if wanted > size and (end == size or wanted <= self._size_trusted):
                room = size if end - start < size else size * GROWTH
                self._replace(min(wanted, max(room, self._size_trusted)))
            elif start + wanted > size and (wanted <= size or end == size):
                self._move_to_start()
        elif size - end < 4:
            self._move_to_start()
        return self._view[self._end :]

    def _move_to_start(self) -> None:
        """Moves the unread bytes to the start of the buffer."""
        count = self._end - self._start
        self._view[:count] = self._view[self._start : self._end]
        self._start, self._end = 0, count

    def _replace(self, size: int) -> None:
        """Moves the unread bytes to the start of a new buffer; the old one may still be seen by a frame."""
        unread = self._view[self._start : self._end]
        # Growth in powers of two, so that a producer whose batches vary does not get a new buffer each time.
        buffer = bytearray(size if size > BUFFER_SIZE_KEPT else 1 << (size - 1).bit_length())
        buffer[: len(unread)] = unread
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._end = len(unread)
        self._start = 0

    def received(self, count: int) -> None:
        """Adds the first `count` bytes of the last `buffer()`, which have been filled, to the bytes that are held."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None if more bytes are needed."""
        start = self._start
        begin = start + 4
        if self._end < begin:
            return None
        size: int = _SIZE.unpack_from(self._buffer, start)[0]
        if size < 0 or size > self.frame_size_max:
            raise FrameTooLarge(f"a frame of {size} bytes is announced; the limit is {self.frame_size_max} bytes")
        end = begin + size
        if end > self._end:
            self.announced = size
            return None
        self._start = end
        if size > self._size_trusted:
            self._size_trusted = min(size + 4, SIZE_TRUSTED_MAX)
        return self._view[begin:end]

    @property
    def is_empty(self) -> bool:
        """True if no bytes are held."""
        return self._start == self._end

    @property
    def is_drained(self) -> bool:
        """True if no bytes are held, and the last receive left room, so that it has taken all that had arrived."""
        return self._start == self._end != len(self._buffer)

    @property
    def is_full(self) -> bool:
        """True if the last receive filled all of the room that `buffer` gave, so that more bytes may have arrived."""
        return self._end == len(self._buffer)

    @property
    def size_bytes(self) -> int:
        """Size of the buffer."""
        return len(self._buffer)

    @property
    def size_to_grow_to(self) -> int:
        """The size of the announced frame if `buffer` may now make more room than `BUFFER_SIZE_KEPT` for it, else 0."""
        size = self.announced
        if size <= BUFFER_SIZE_KEPT or len(self._buffer) > BUFFER_SIZE_KEPT:
            return 0
        is_begun = self._end - self._start >= BUFFER_SIZE_KEPT // GROWTH
        return size if is_begun or size + 4 <= self._size_trusted else 0

    def shrink(self) -> None:
        """Gives back the buffer of a client that sends nothing; `buffer` has to be asked for again."""
        if self._start == self._end and len(self._buffer) > BUFFER_SIZE_MIN:
            self._start = self._end = 0
            self._size_trusted = 0
            self._replace(BUFFER_SIZE_MIN)

    @property
    def first_bytes(self) -> bytes:
        """First bytes of an unfinished frame, its size included, by which another protocol is recognized."""
        return bytes(self._view[self._start : min(self._end, self._start + 16)])
