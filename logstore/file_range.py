"""A range of a segment file that a reply sends without reading its bytes."""

from __future__ import annotations

from collections.abc import Iterator

from pykbroker.logstore.open_files import SegmentFile


class FileRange:
    """`size` bytes from `position` of the open file `fd`, with a lease on its segment.

    The holder sends them (`os.sendfile(socket, range.fd, range.position, len(range))`) or reads them, and calls
    `release` once. The descriptor stays valid until then even if the segment is deleted. A truncation by replication
    can shorten the file: sendfile then sends fewer bytes, and the connection must be closed.

    Attributes:
        left_off: bytes of an incomplete batch that follow the range and would have been within the reader's limit.
    """

    __slots__ = ("_file", "_released", "fd", "left_off", "position", "size")

    def __init__(self, file: SegmentFile, position: int, size: int, left_off: int = 0) -> None:
        self._file = file
        # True until the lease is taken, so that __del__ does not release one that was never taken.
        self._released = True
        self.fd = file.acquire()
        self._released = False
        self.position = position
        self.size = size
        self.left_off = left_off

    def __len__(self) -> int:
        return self.size

    def is_of(self, file: SegmentFile) -> bool:
        """True if the range belongs to this file."""
        return self._file is file

    def read(self) -> bytes:
        """A copy of the bytes."""
        return self._file.filesystem.read(self.fd, self.size, self.position)

    def peek(self, start: int, size: int) -> bytes:
        """A copy of `size` bytes that begin `start` bytes into the range; fewer at its end."""
        size = min(size, self.size - start)
        return self._file.filesystem.read(self.fd, size, self.position + start) if size > 0 else b""

    def narrow(self, start: int, size: int) -> None:
        """Keeps only `size` bytes that begin `start` bytes into the range."""
        self.position += start
        self.size = size

    def pieces(self, size_max: int) -> Iterator[bytes]:
        """Copies of the bytes in order, at most `size_max` at a time; each piece is read when it is requested.

        Raises:
            OSError: the file has become shorter than the range.
        """
        position, end = self.position, self.position + self.size
        while position < end:
            data = self._file.filesystem.read(self.fd, min(end - position, size_max), position)
            if not data:
                raise OSError(f"file ended {end - position} bytes before the range that was to be sent")
            yield data
            position += len(data)

    def release(self) -> None:
        """Releases the lease; a second call does nothing."""
        if not self._released:
            self._released = True
            self._file.release()

    def __del__(self) -> None:
        # A connection that ends between read and send does not call `release`.
        self.release()

    def __repr__(self) -> str:
        return f"FileRange({self._file.path}, position={self.position}, size={self.size})"
