"""All calls of the log store to the operating system.

The other modules of the log store take a `FileSystem`, so that tests can pass one in memory that fills up and that
loses or tears unsynced writes (`tests/support/fake_filesystem.py`; both implementations pass `tests/conformance`).

The active segment of a log is written by `append_mapped`: with gathering writes while there are few appends, and
through a mapping of space that was allocated ahead (see `append_mapping`) when there are many. Files that are written
once, such as those of a compaction, are written by `append`, a gathering write. Where space cannot be allocated ahead,
both are the same.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from pykbroker.logstore import append_mapping
from pykbroker.logstore.append_mapping import AppendMapping
from pykbroker.logstore.errors import DirectoryLocked, StorageError, StorageFull
from pykbroker.logstore.gathering_write import write_all
from pykbroker.named_tuple import NamedTuple

Buffer = bytes | bytearray | memoryview


class DirectoryEntry(NamedTuple):
    """One name in a directory."""

    name: str
    is_directory: bool


class FileSystem(Protocol):
    """The log store's calls to a file system. Methods raise `StorageError`, `StorageFull` when out of space."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Opens for reading and writing; with `create` makes it when missing. Returns a file descriptor."""

    def close(self, descriptor: int) -> None:
        """Closes a descriptor of `open`."""

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    def append(self, descriptor: int, parts: Sequence[Buffer], size: int, position: int, path: str) -> None:
        """Writes all parts, `size` bytes together, from `position`, the end of the file.

        On failure the file keeps its old length.
        """

    def append_mapped(self, descriptor: int, parts: Sequence[Buffer], size: int, position: int, path: str) -> None:
        """Like `append`, for a file that gets many appends, all from the thread that owns it.

        Until `trim`, `truncate` or `close` the file may be longer than its data, by zeros. The first 64 KiB between two
        calls of `trim_idle` are gathering writes; a file that gets more is mapped.
        """

    def trim(self, descriptor: int) -> None:
        """Truncates a file that was written by `append_mapped` to its data."""

    def trim_idle(self) -> int:
        """Trims the mapped files with less than 64 KiB of appends since the last call; returns how many stay mapped."""

    def truncate(self, descriptor: int, size: int) -> None:
        """Sets the length of a file."""

    def sync(self, descriptor: int) -> None:
        """Makes content and length of a file durable."""

    def sync_file(self, path: str) -> None:
        """Makes content and length of the file at a path durable; a missing file is no error."""

    def view(self, descriptor: int, size: int) -> memoryview:
        """A read-only view of the first `size` bytes; the caller releases it. The file must not shrink meanwhile."""

    def file_size(self, path: str) -> int:
        """Length of a file in bytes."""

    def modified_ms(self, path: str) -> int:
        """Time of the last write to the file, in ms since the epoch."""

    def exists(self, path: str) -> bool:
        """True if a file or directory has this path."""

    def list(self, path: str) -> list[DirectoryEntry]:
        """Names in a directory, in no particular order."""

    def read_file(self, path: str) -> bytes | None:
        """Whole content, None when there is no such file."""

    def write_file(self, path: str, content: Buffer, *, durable: bool = True) -> None:
        """Replaces the file in one step: a reader sees the old or the new content (temporary file and rename)."""

    def create_file(self, path: str, content: Buffer) -> None:
        """Creates a new file without syncing it. A crash may leave it with a part of the content.

        Cheaper than `write_file`, for files whose content is checked by their readers. On failure there is no file.
        """

    def rename(self, old_path: str, new_path: str) -> None:
        """Renames a file or directory; an existing file at the new path is replaced."""

    def remove(self, path: str) -> None:
        """Removes a file; a missing file is no error."""

    def make_directory(self, path: str) -> None:
        """Creates a directory and its missing parents; an existing one is no error."""

    def remove_tree(self, path: str) -> None:
        """Removes a directory with its files and directories; a missing directory is no error."""

    def sync_directory(self, path: str) -> None:
        """Makes created, renamed and removed names of a directory durable."""

    def sync_volume(self, handle: int) -> bool:
        """Makes all files and names durable on the volume of a `lock` file, in one call.

        False without doing anything if the system has no such call, or has one that does not report failures. It raises
        for any write to the volume that failed since the lock was taken; the error does not name the file.
        """

    def lock(self, path: str) -> int:
        """Takes an exclusive lock on a file, which is created when missing. Raises DirectoryLocked if it is taken."""

    def unlock(self, handle: int) -> None:
        """Releases a lock of `lock`."""

    def space(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds `path`."""


def storage_error(error: OSError, path: str) -> StorageError:
    """The typed error for an OSError on `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(path, "no space left on the volume")
    return StorageError(path, error.strerror or str(error))


# Errors of posix_fallocate where the C library or the file system cannot allocate space ahead.
_NO_ALLOCATION: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV)


# macOS: fsync alone leaves the bytes in the drive's cache.
_FULL_SYNC: Final[int] = getattr(fcntl, "F_FULLFSYNC", -1)


def _sync_to_the_medium(descriptor: int) -> None:
    fcntl.fcntl(descriptor, _FULL_SYNC)


def _choose_sync() -> Callable[[int], None]:
    if _FULL_SYNC >= 0:
        return _sync_to_the_medium
    # Syncs content and length without the time of the last write, which is not needed; some systems lack it.
    return getattr(os, "fdatasync", os.fsync)


_sync_data: Callable[[int], None] = _choose_sync()


def _write_whole(path: str, content: Buffer, *, durable: bool) -> None:
    """Creates or overwrites a file with this content. Raises OSError; the file may then have a part of it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class OsFileSystem:
    """The real file system."""

    def __init__(self) -> None:
        self._mappings: dict[int, AppendMapping] = {}
        # Bytes of gathering writes to each descriptor since the last `trim_idle`.
        self._appended: dict[int, int] = {}
        # False once an append has shown that the system or the file system cannot allocate space ahead.
        self._can_allocate = True
        # Path of each open file when it was opened, for error messages.
        self._paths: dict[int, str] = {}

    def _name_of(self, descriptor: int) -> str:
        return self._paths.get(descriptor, f"file descriptor {descriptor}")

    def open(self, path: str, *, create: bool = False) -> int:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
        except OSError as error:
            raise storage_error(error, path) from error
        self._paths[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        try:
            self.trim(descriptor)
        finally:
            # The system may give this number to another file next.
            self._mappings.pop(descriptor, None)
            self._appended.pop(descriptor, None)
            path = self._paths.pop(descriptor, "")
            try:
                os.close(descriptor)
            except OSError as error:
                raise storage_error(error, path) from error

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        try:
            return os.pread(descriptor, size, position)
        except OSError as error:
            raise storage_error(error, self._name_of(descriptor)) from error

    def append(self, descriptor: int, parts: Sequence[Buffer], size: int, position: int, path: str) -> None:
        try:
            write_all(descriptor, parts, size, position)
        except OSError as error:
            # A write that used up the last free blocks may have stored a part, which is cut off here.
            with suppress(OSError):
                os.ftruncate(descriptor, position)
            raise storage_error(error, path) from error

    def append_mapped(self, descriptor: int, parts: Sequence[Buffer], size: int, position: int, path: str) -> None:
        mapping = self._mappings.get(descriptor)
        if mapping is None:
            appended = self._appended.get(descriptor, 0) + size
            if appended <= append_mapping.BUSY_SIZE or not (append_mapping.IS_AVAILABLE and self._can_allocate):
                self.append(descriptor, parts, size, position, path)
                self._appended[descriptor] = appended
                return
            mapping = self._mappings[descriptor] = AppendMapping(descriptor, position)
        assert mapping.size == position, "an append belongs at the end of the file"
        try:
            mapping.append(parts, size)
        except OSError as error:
            with suppress(StorageError):
                self.trim(descriptor)
            if error.errno in _NO_ALLOCATION:
                self._can_allocate = False
                self.append(descriptor, parts, size, position, path)
                return
            raise storage_error(error, path) from error

    def trim(self, descriptor: int) -> None:
        mapping = self._mappings.get(descriptor)
        if mapping is not None:
            try:
                mapping.close()
            except OSError as error:
                raise storage_error(error, self._name_of(descriptor)) from error
            del self._mappings[descriptor]

    def trim_idle(self) -> int:
        self._appended.clear()
        for descriptor, mapping in list(self._mappings.items()):
            if mapping.is_idle():
                self.trim(descriptor)
        return len(self._mappings)

    def truncate(self, descriptor: int, size: int) -> None:
        self.trim(descriptor)
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            raise storage_error(error, self._name_of(descriptor)) from error

    def sync(self, descriptor: int) -> None:
        try:
            _sync_data(descriptor)
        except OSError as error:
            raise storage_error(error, self._name_of(descriptor)) from error

    def sync_file(self, path: str) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def view(self, descriptor: int, size: int) -> memoryview:
        if size == 0:
            return memoryview(b"")
        try:
            mapping = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        except OSError as error:
            raise storage_error(error, self._name_of(descriptor)) from error
        mapping.madvise(mmap.MADV_SEQUENTIAL)
        return memoryview(mapping)

    def file_size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except OSError as error:
            raise storage_error(error, path) from error

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise storage_error(error, path) from error

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> list[DirectoryEntry]:
        try:
            with os.scandir(path) as entries:
                return [DirectoryEntry(entry.name, entry.is_dir()) for entry in entries]
        except OSError as error:
            raise storage_error(error, path) from error

    def read_file(self, path: str) -> bytes | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            size = os.fstat(descriptor).st_size
            return os.read(descriptor, size) if size else b""
        except OSError as error:
            raise storage_error(error, path) from error
        finally:
            os.close(descriptor)

    def write_file(self, path: str, content: Buffer, *, durable: bool = True) -> None:
        temporary = path + ".tmp"
        try:
            _write_whole(temporary, content, durable=durable)
            os.replace(temporary, path)
        except OSError as error:
            # The incomplete temporary file would only take space on a full disk.
            with suppress(OSError):
                os.unlink(temporary)
            raise storage_error(error, path) from error
        if durable:
            self.sync_directory(os.path.dirname(path))

    def create_file(self, path: str, content: Buffer) -> None:
        try:
            _write_whole(path, content, durable=False)
        except OSError as error:
            with suppress(OSError):
                os.unlink(path)
            raise storage_error(error, path) from error

    def rename(self, old_path: str, new_path: str) -> None:
        try:
            os.replace(old_path, new_path)
        except OSError as error:
            raise storage_error(error, old_path) from error

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, path) from error

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise storage_error(error, path) from error

    def remove_tree(self, path: str) -> None:
        if not self.exists(path):
            return
        for name, is_directory in self.list(path):
            child = f"{path}/{name}"
            if is_directory and not os.path.islink(child):
                self.remove_tree(child)
            else:
                self.remove(child)
        try:
            os.rmdir(path)
        except OSError as error:
            raise storage_error(error, path) from error

    def sync_directory(self, path: str) -> None:
        try:
            descriptor = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error(error, path) from error

    def sync_volume(self, handle: int) -> bool:
        # Imported here, because only the stop of a broker with many logs needs it.
        from pykbroker.logstore.volume_sync import sync_volume

        try:
            return sync_volume(handle)
        except OSError as error:
            raise storage_error(error, self._name_of(handle)) from error

    def lock(self, path: str) -> int:
        descriptor = self.open(path, create=True)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise DirectoryLocked(path, "held by another process: is a broker already running here?") from error
            raise storage_error(error, path) from error
        return descriptor

    def unlock(self, handle: int) -> None:
        self.close(handle)

    def space(self, path: str) -> tuple[int, int]:
        try:
            volume = os.statvfs(path)
        except OSError as error:
            raise storage_error(error, path) from error
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
