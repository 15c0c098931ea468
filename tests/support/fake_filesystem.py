"""A file system in memory that can fill up, fail and crash. Passes the suite in tests/conformance like the real one."""

from __future__ import annotations

from collections.abc import Container, Sequence

from pykbroker.logstore.errors import DirectoryLocked, StorageError, StorageFull
from pykbroker.logstore.filesystem import Buffer, DirectoryEntry

ALLOCATED_AHEAD = 100
"""Zeros behind the data of a file that is appended to by `append_mapped`."""


_NEVER_REFUSED = {"exists"}


class _File:
    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        self.modified_ms = 0


class FakeFileSystem:
    """Implements `pykbroker.logstore.filesystem.FileSystem`.

    `capacity_bytes` bounds the content of all files together: an append or a file that does not fit raises StorageFull
    and leaves things as they were. `fail_next[method] = error` makes the next call of a method raise. `calls` counts
    calls per method. `crash` forgets what was not synced, descriptors and locks.

    `faults` are the numbers of calls that raise StorageError, counted by `fault_clock` over all methods that the system
    can refuse, or over `fault_methods` alone.
    """

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.fail_next: dict[str, Exception] = {}
        self.calls: dict[str, int] = {}
        self.faults: Container[int] = ()
        self.fault_clock = 0
        self.fault_methods: Container[str] | None = None
        self.now_ms = 0
        self._files: dict[str, _File] = {}
        self._directories: set[str] = {"", "/"}
        self._descriptors: dict[int, _File] = {}
        self._locks: dict[int, str] = {}
        self._data_sizes: dict[int, int] = {}
        self._next = 1000

    @property
    def open_count(self) -> int:
        """Number of open file descriptors."""
        return len(self._descriptors)

    def used_bytes(self) -> int:
        """Bytes in all files that have a name."""
        return sum(len(file.content) for file in self._files.values())

    def crash(self) -> None:
        """Power loss: every file falls back to what was last synced; names stay."""
        for file in self._files.values():
            file.content = bytearray(file.durable)
        self._descriptors.clear()
        self._data_sizes.clear()
        self._locks.clear()

    def _called(self, method: str) -> None:
        self.calls[method] = self.calls.get(method, 0) + 1
        error = self.fail_next.pop(method, None)
        if error is not None:
            raise error
        if method in _NEVER_REFUSED or (self.fault_methods is not None and method not in self.fault_methods):
            return
        self.fault_clock += 1
        if self.fault_clock - 1 in self.faults:
            raise StorageError("file", f"Input/output error at call {self.fault_clock - 1}, {method}")

    def _file_of(self, descriptor: int) -> _File:
        file = self._descriptors.get(descriptor)
        if file is None:
            raise StorageError(f"file descriptor {descriptor}", "Bad file descriptor")
        return file

    def _need(self, size: int, path: str) -> None:
        if self.capacity_bytes is not None and self.used_bytes() + size > self.capacity_bytes:
            raise StorageFull(path, "no space left on the volume")

    @staticmethod
    def _parent(path: str) -> str:
        return path.rpartition("/")[0]

    def open(self, path: str, *, create: bool = False) -> int:
        self._called("open")
        file = self._files.get(path)
        if file is None:
            if not create:
                raise StorageError(path, "No such file or directory")
            if self._parent(path) not in self._directories:
                raise StorageError(path, "No such file or directory")
            file = self._files[path] = _File()
            file.modified_ms = self.now_ms
        self._next += 1
        self._descriptors[self._next] = file
        return self._next

    def close(self, descriptor: int) -> None:
        self._file_of(descriptor)
        try:
            self.trim(descriptor)
            self._called("close")
        finally:
            # A descriptor is gone whatever the system says about its last write.
            self._data_sizes.pop(descriptor, None)
            del self._descriptors[descriptor]

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        self._called("read")
        return bytes(self._file_of(descriptor).content[position : position + size])

    def append(self, descriptor: int, parts: Sequence[Buffer], size: int, position: int, path: str) -> None:
        self._called("append")
        file = self._file_of(descriptor)
        data = b"".join(bytes(part) for part in parts)
        assert len(data) == size, "the caller counted wrongly"
        assert position == len(file.content), "an append belongs at the end of the file"
        self._need(size, path)
        file.content += data
        file.modified_ms = self.now_ms

    def append_mapped(self, descriptor: int, parts: Sequence[Buffer], size: int, position: int, path: str) -> None:
        """Leaves zeros behind the data as the real one does, so that who reads too far or does not trim is seen."""
        self._called("append")
        file = self._file_of(descriptor)
        data = b"".join(bytes(part) for part in parts)
        assert len(data) == size, "the caller counted wrongly"
        assert position == self._data_sizes.get(descriptor, len(file.content)), (
            "an append belongs at the end of the data"
        )
        self._need(max(position + size - len(file.content), 0), path)
        file.content[position : position + size] = data
        if self.capacity_bytes is None:
            file.content += bytes(ALLOCATED_AHEAD - (len(file.content) - position - size))
        file.modified_ms = self.now_ms
        self._data_sizes[descriptor] = position + size

    def trim(self, descriptor: int) -> None:
        size = self._data_sizes.get(descriptor)
        if size is not None:
            self._called("trim")
            del self._file_of(descriptor).content[size:]
            del self._data_sizes[descriptor]

    def trim_idle(self) -> int:
        for descriptor in list(self._data_sizes):
            self.trim(descriptor)
        return 0

    def truncate(self, descriptor: int, size: int) -> None:
        self._called("truncate")
        self.trim(descriptor)
        file = self._file_of(descriptor)
        del file.content[size:]
        file.content += bytes(size - len(file.content))

    def sync(self, descriptor: int) -> None:
        self._called("sync")
        file = self._file_of(descriptor)
        file.durable = bytes(file.content)

    def sync_file(self, path: str) -> None:
        self._called("sync_file")
        if path in self._files:
            self._files[path].durable = bytes(self._files[path].content)

    def view(self, descriptor: int, size: int) -> memoryview:
        self._called("view")
        return memoryview(bytes(self._file_of(descriptor).content[:size]))

    def file_size(self, path: str) -> int:
        self._called("file_size")
        return len(self._named(path).content)

    def modified_ms(self, path: str) -> int:
        self._called("modified_ms")
        return self._named(path).modified_ms

    def _named(self, path: str) -> _File:
        if path not in self._files:
            raise StorageError(path, "No such file or directory")
        return self._files[path]

    def exists(self, path: str) -> bool:
        self._called("exists")
        return path in self._files or path in self._directories

    def list(self, path: str) -> list[DirectoryEntry]:
        self._called("list")
        if path not in self._directories:
            raise StorageError(path, "No such file or directory")
        prefix = path + "/"
        names = [DirectoryEntry(p[len(prefix) :], False) for p in self._files if self._parent(p) == path]
        names += [DirectoryEntry(p[len(prefix) :], True) for p in self._directories if p and self._parent(p) == path]
        return [entry for entry in names if entry.name]

    def read_file(self, path: str) -> bytes | None:
        self._called("read_file")
        file = self._files.get(path)
        return None if file is None else bytes(file.content)

    def write_file(self, path: str, content: Buffer, *, durable: bool = True) -> None:
        self._called("write_file")
        if self._parent(path) not in self._directories:
            raise StorageError(path, "No such file or directory")
        self._need(len(content), path)
        file = _File()
        file.content = bytearray(content)
        file.durable = bytes(content) if durable else b""
        file.modified_ms = self.now_ms
        self._files[path] = file

    def create_file(self, path: str, content: Buffer) -> None:
        self._called("create_file")
        if self._parent(path) not in self._directories:
            raise StorageError(path, "No such file or directory")
        self._need(len(content), path)
        file = self._files[path] = _File()
        file.content = bytearray(content)
        file.modified_ms = self.now_ms

    def rename(self, old_path: str, new_path: str) -> None:
        self._called("rename")
        if old_path in self._files:
            self._files[new_path] = self._files.pop(old_path)
            return
        if old_path not in self._directories:
            raise StorageError(old_path, "No such file or directory")
        prefix = old_path + "/"
        for path in [p for p in self._files if p.startswith(prefix)]:
            self._files[new_path + path[len(old_path) :]] = self._files.pop(path)
        for path in [p for p in self._directories if p == old_path or p.startswith(prefix)]:
            self._directories.remove(path)
            self._directories.add(new_path + path[len(old_path) :])

    def remove(self, path: str) -> None:
        self._called("remove")
        self._files.pop(path, None)

    def make_directory(self, path: str) -> None:
        self._called("make_directory")
        while path and path not in self._directories:
            self._directories.add(path)
            path = self._parent(path)

    def remove_tree(self, path: str) -> None:
        self._called("remove_tree")
        prefix = path + "/"
        self._files = {p: file for p, file in self._files.items() if not p.startswith(prefix)}
        self._directories = {p for p in self._directories if p != path and not p.startswith(prefix)}

    def sync_directory(self, path: str) -> None:
        self._called("sync_directory")

    def sync_volume(self, handle: int) -> bool:
        self._called("sync_volume")
        assert handle in self._locks, f"{handle} is no lock"
        for file in self._files.values():
            file.durable = bytes(file.content)
        return True

    def lock(self, path: str) -> int:
        self._called("lock")
        if path in self._locks.values():
            raise DirectoryLocked(path, "held by another process: is a broker already running here?")
        if path not in self._files:
            self._files[path] = _File()
        self._next += 1
        self._locks[self._next] = path
        return self._next

    def unlock(self, handle: int) -> None:
        self._called("unlock")
        self._locks.pop(handle, None)

    def space(self, path: str) -> tuple[int, int]:
        self._called("space")
        total = self.capacity_bytes if self.capacity_bytes is not None else 1 << 40
        return total, total - self.used_bytes()
