"""Cutting a byte stream into frames: an int32 size, then that many bytes (protocol.md 1.2).

The reader owns the buffer that the socket fills, so bytes go from the kernel into their final place and a frame is a
view of it. A frame is valid until the next call of `buffer`: one request at a time is in progress on a
connection (P-8), and whoever wants to keep bytes copies them.
"""

from __future__ import annotations

from pykbroker.protocol.errors import FrameTooLarge

BUFFER_SIZE_MIN = 4096
"""What an idle connection holds; a thousand of them hold 4 MB."""

BUFFER_SIZE_KEPT = 1 << 18
"""A buffer above this size is given back as soon as it is empty."""


class FrameReader:
    """Bytes in, whole frames out.

    Usage: fill some of `buffer()`, report it with `received(n)`, then take frames by `next_frame()` until it gives
    None.

    Raises:
        FrameTooLarge: from `next_frame`, for a size below 0 or above `frame_size_max` (P-7).
    """

    __slots__ = ("_buffer", "_end", "_start", "_view", "frame_size_max", "received_nothing")

    def __init__(self, frame_size_max: int) -> None:
        self.frame_size_max = frame_size_max
        self.received_nothing = False
        self._start = 0
        self._end = 0
        self._buffer = bytearray(BUFFER_SIZE_MIN)
        self._view = memoryview(self._buffer)

    def buffer(self) -> memoryview:
        """Room for more bytes, never empty; frames given out before are invalid from now on."""
        start, end, size = self._start, self._end, len(self._buffer)
        if start == end:
            self._start = self._end = start = end = 0
            if size > BUFFER_SIZE_KEPT:
                self._replace(BUFFER_SIZE_MIN)
        elif end - start >= 4:
            wanted = 4 + int.from_bytes(self._view[start : start + 4], "big", signed=True)
            if wanted > size:
                # The frame gets a buffer of its own size: the rest of it is received in as few calls as possible.
                self._replace(wanted)
            elif start + wanted > size:
                self._replace(size)
        elif size - end < 4:
            self._replace(size)
        return self._view[self._end :]

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
        """Says that the first `count` bytes of the last `buffer()` were filled; 0 means the end of the stream.

        `received_nothing` then stays true.
        """
        self.received_nothing = count == 0
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None if more bytes are needed."""
        start = self._start
        if self._end - start < 4:
            return None
        size = int.from_bytes(self._view[start : start + 4], "big", signed=True)
        if size < 0 or size > self.frame_size_max:
            raise FrameTooLarge(f"a frame of {size} bytes is announced; the limit is {self.frame_size_max} bytes")
        end = start + 4 + size
        if end > self._end:
            return None
        self._start = end
        return self._view[start + 4 : end]

    @property
    def has_unread_bytes(self) -> bool:
        """Whether bytes of an unfinished or untaken frame are held."""
        return self._end > self._start
