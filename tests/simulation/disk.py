"""A disk in memory: what a process wrote, what is synced, and what is left of it after each kind of end.

* kill -9 leaves all that was written, since the system's page cache outlives the process; a write that was under way
  may have been made in part.
* Loss of power leaves what was synced. Of what was not, each sector may have been written or not; a file may be as
  long as its newest length with zeros in it; names that were not synced go back in reverse order, as a journal does it.

`Disk` is what lasts. `MountedDisk` is the file system that one life of a process sees; when that life has ended, it
can do nothing any more, whatever its `finally` blocks try.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from pykbroker.logstore.errors import DirectoryLocked, StorageError, StorageFull
from pykbroker.logstore.filesystem import Buffer, DirectoryEntry

SECTOR = 512
AHEAD_MAX = 300
"""Largest number of bytes by which a file written through a mapping is longer than its data."""

TOTAL_BYTES = 1 << 30
RESERVE_BYTES, RELEASE_BYTES, FILL_INTERVAL_MS = 8 << 10, 512, 1000
"""Reserve for metadata of each node (bytes), bytes of it released at a time, and interval of refilling (ms). As small
as everything here."""


class ProcessEnded(BaseException):
    """The process was killed in the midst of a call, or is dead already. Nothing catches it."""


class _File:
    __slots__ = ("content", "dirty_from", "durable", "modified_ms")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.dirty_from: int | None = None
        self.modified_ms = 0

    def touch(self, position: int) -> None:
        """Mark the bytes from this position on as not synced."""
        if self.dirty_from is None or position < self.dirty_from:
            self.dirty_from = position

    def sync(self) -> None:
        if self.dirty_from is not None:
            self.durable[self.dirty_from :] = self.content[self.dirty_from :]
            self.dirty_from = None

    def lose_power(self, chance: random.Random) -> int:
        """Falls back to what was synced and some of the rest; returns how many bytes differ from what was written."""
        if self.dirty_from is None:
            return 0
        written = self.content
        start = self.dirty_from
        somewhere = chance.randint(start, len(written))
        somewhere -= somewhere % SECTOR
        length = chance.choice((len(self.durable), len(written), len(written), max(somewhere, start)))
        kept = bytearray(self.durable[:length])
        kept += bytes(length - len(kept))
        share = chance.choice((0.0, 0.5, 0.9, 1.0))
        for sector in range(start - start % SECTOR, length, SECTOR):
            if chance.random() < share:
                begin, end = max(sector, start), min(sector + SECTOR, length)
                kept[begin:end] = written[begin:end] + bytes(end - begin - len(written[begin:end]))
        lost = sum(a != b for a, b in zip(kept, written, strict=False)) + abs(len(kept) - len(written))
        self.content = kept
        self.durable = bytearray(kept)
        self.dirty_from = None
        return lost


class Disk:
    """State of a machine's disk that survives the process."""

    def __init__(self, seed: str, now_ms: Callable[[], int]) -> None:
        self._random = random.Random(f"{seed} disk")
        self.now_ms = now_ms
        self.files: dict[str, _File] = {}
        self.directories: dict[str, None] = {"": None, "/": None}
        # How to take back changes of names that no sync made durable, oldest first.
        self.journal: list[Callable[[], None]] = []
        self.syncs = 0
        self.capacity_bytes: int | None = None
        self.failing: frozenset[str] = frozenset()
        # A path whose files and directories fail in every call; "" for none.
        self.failing_path = ""
        self.sync_delay_s = 0.0

    def used_bytes(self) -> int:
        return sum(len(file.content) for file in self.files.values())

    def fails(self, path: str) -> bool:
        """True if a path is in the part of the disk that has failed."""
        failing = self.failing_path
        return bool(failing) and (path == failing or path.startswith(f"{failing}/"))

    def mount(self, on_sync: Callable[[float], None], on_death: Callable[[], None]) -> MountedDisk:
        """The file system of a new process. `on_sync(seconds)` is told how long a slow sync holds the process up."""
        return MountedDisk(self, on_sync, on_death)

    def lose_power(self) -> int:
        """Returns how many bytes were lost."""
        chance = self._random
        if self.journal:
            count = chance.choice((0, len(self.journal), chance.randint(0, len(self.journal))))
            for _ in range(count):
                self.journal.pop()()
            self.journal.clear()
        return sum(file.lose_power(chance) for file in self.files.values())


class MountedDisk:
    """The `FileSystem` of one process on a `Disk`: unusable from the end of the process on."""

    def __init__(self, disk: Disk, on_sync: Callable[[float], None], on_death: Callable[[], None]) -> None:
        self._disk = disk
        self._on_sync = on_sync
        self._on_death = on_death
        self._descriptors: dict[int, _File] = {}
        self._paths: dict[int, str] = {}
        self._data_sizes: dict[int, int] = {}
        self._locks: dict[int, str] = {}
        self._next = 10
        self.is_alive = True
        self.writes_left: int | None = None
        """So many writes more, then the process dies in one."""

    def die(self) -> None:
        """The process has ended."""
        self.is_alive = False

    # Faults

    def _change(self, name: str, path: str) -> bool:
        """Before each change. Says whether the process dies in this one."""
        if not self.is_alive:
            raise ProcessEnded
        if name in self._disk.failing or self._disk.fails(path):
            raise StorageError(path, "Input/output error")
        if self.writes_left is not None:
            self.writes_left -= 1
            return self.writes_left <= 0
        return False

    def _end_here(self) -> None:
        self.die()
        self._on_death()
        raise ProcessEnded

    def _check(self, name: str, path: str) -> None:
        """Before each call that changes nothing."""
        if not self.is_alive:
            raise ProcessEnded
        if name in self._disk.failing or self._disk.fails(path):
            raise StorageError(path, "Input/output error")

    def _need(self, size: int, path: str) -> None:
        capacity = self._disk.capacity_bytes
        if capacity is not None and size > 0 and self._disk.used_bytes() + size > capacity:
            raise StorageFull(path, "no space left on the volume")

    # Files

    def _file_of(self, descriptor: int) -> _File:
        file = self._descriptors.get(descriptor)
        if file is None:
            raise StorageError(f"file descriptor {descriptor}", "Bad file descriptor")
        return file

    def open(self, path: str, *, create: bool = False) -> int:
        self._check("open", path)
        disk = self._disk
        file = disk.files.get(path)
        if file is None:
            if not create or _parent(path) not in disk.directories:
                raise StorageError(path, "No such file or directory")
            file = self._create(path)
        self._next += 1
        self._descriptors[self._next] = file
        self._paths[self._next] = path
        return self._next

    def _create(self, path: str) -> _File:
        files = self._disk.files
        file = files[path] = _File()
        file.modified_ms = self._disk.now_ms()

        def undo() -> None:
            files.pop(path, None)

        self._disk.journal.append(undo)
        return file

    def close(self, descriptor: int) -> None:
        if not self.is_alive:
            return
        self._file_of(descriptor)
        try:
            self.trim(descriptor)
        finally:
            self._data_sizes.pop(descriptor, None)
            self._descriptors.pop(descriptor, None)
            self._paths.pop(descriptor, None)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        self._check("read", self._paths.get(descriptor, ""))
        return bytes(self._file_of(descriptor).content[position : position + size])

    def append(self, descriptor: int, parts: Sequence[Buffer], size: int, position: int, path: str) -> None:
        dies = self._change("append", path)
        file = self._file_of(descriptor)
        data = b"".join(parts)
        assert len(data) == size, "the caller counted wrongly"
        assert position == len(file.content), "an append belongs at the end of the file"
        self._need(size, path)
        file.touch(position)
        if dies:
            file.content += data[: self._disk._random.randint(0, size)]
            self._end_here()
        file.content += data
        file.modified_ms = self._disk.now_ms()

    def append_mapped(self, descriptor: int, parts: Sequence[Buffer], size: int, position: int, path: str) -> None:
        dies = self._change("append_mapped", path)
        file = self._file_of(descriptor)
        data = b"".join(parts)
        assert len(data) == size, "the caller counted wrongly"
        assert position == self._data_sizes.get(descriptor, len(file.content)), "an append belongs at the end"
        chance = self._disk._random
        missing = position + size - len(file.content)
        if missing > 0:
            self._need(missing, path)
            file.touch(len(file.content))
            ahead = chance.randint(0, AHEAD_MAX) if self._disk.capacity_bytes is None else 0
            file.content += bytes(missing + ahead)
        file.touch(position)
        if dies:
            data = data[: chance.randint(0, size)]
        file.content[position : position + len(data)] = data
        if dies:
            self._end_here()
        file.modified_ms = self._disk.now_ms()
        self._data_sizes[descriptor] = position + size

    def trim(self, descriptor: int) -> None:
        size = self._data_sizes.get(descriptor)
        if size is not None:
            if self._change("trim", self._paths.get(descriptor, "")):
                self._end_here()
            file = self._file_of(descriptor)
            if len(file.content) > size:
                file.touch(size)
                del file.content[size:]
            del self._data_sizes[descriptor]

    def trim_idle(self) -> int:
        for descriptor in list(self._data_sizes):
            self.trim(descriptor)
        return 0

    def truncate(self, descriptor: int, size: int) -> None:
        self.trim(descriptor)
        if self._change("truncate", self._paths.get(descriptor, "")):
            self._end_here()
        file = self._file_of(descriptor)
        file.touch(min(size, len(file.content)))
        del file.content[size:]
        file.content += bytes(size - len(file.content))

    def sync(self, descriptor: int) -> None:
        self._sync(self._file_of(descriptor) if self.is_alive else None, self._paths.get(descriptor, ""))

    def sync_file(self, path: str) -> None:
        file = self._disk.files.get(path)
        if file is not None:
            self._sync(file, path)

    def _sync(self, file: _File | None, path: str) -> None:
        dies = self._change("sync", path)
        assert file is not None
        if dies:
            if self._disk._random.random() < 0.5:
                file.sync()
            self._end_here()
        file.sync()
        self._disk.journal.clear()
        self._disk.syncs += 1
        if self._disk.sync_delay_s:
            self._on_sync(self._disk.sync_delay_s)

    def view(self, descriptor: int, size: int) -> memoryview:
        self._check("view", self._paths.get(descriptor, ""))
        return memoryview(bytes(self._file_of(descriptor).content[:size]))

    def file_size(self, path: str) -> int:
        self._check("file_size", path)
        return len(self._named(path).content)

    def modified_ms(self, path: str) -> int:
        self._check("modified_ms", path)
        return self._named(path).modified_ms

    def _named(self, path: str) -> _File:
        file = self._disk.files.get(path)
        if file is None:
            raise StorageError(path, "No such file or directory")
        return file

    def exists(self, path: str) -> bool:
        return path in self._disk.files or path in self._disk.directories

    def list(self, path: str) -> list[DirectoryEntry]:
        self._check("list", path)
        disk = self._disk
        if path not in disk.directories:
            raise StorageError(path, "No such file or directory")
        prefix = path + "/"
        start = len(prefix)
        return [
            DirectoryEntry(name[start:], is_directory)
            for names, is_directory in ((disk.files, False), (disk.directories, True))
            for name in names
            if len(name) > start and name.startswith(prefix) and "/" not in name[start:]
        ]

    def read_file(self, path: str) -> bytes | None:
        self._check("read_file", path)
        file = self._disk.files.get(path)
        return None if file is None else bytes(file.content)

    def write_file(self, path: str, content: Buffer, *, durable: bool = True) -> None:
        dies = self._change("write_file", path)
        disk = self._disk
        if _parent(path) not in disk.directories:
            raise StorageError(path, "No such file or directory")
        self._need(len(content), path)
        if dies and disk._random.random() < 0.5:
            # Before the new content got its name.
            self._end_here()
        file = _File()
        file.content = bytearray(content)
        file.touch(0)
        file.modified_ms = disk.now_ms()
        if durable:
            file.sync()
        self._put(path, file)
        if durable:
            disk.journal.clear()
            disk.syncs += 1
            if disk.sync_delay_s:
                self._on_sync(disk.sync_delay_s)
        if dies:
            self._end_here()

    def create_file(self, path: str, content: Buffer) -> None:
        dies = self._change("create_file", path)
        if _parent(path) not in self._disk.directories:
            raise StorageError(path, "No such file or directory")
        self._need(len(content), path)
        file = self._create(path)
        file.touch(0)
        file.content += content[: self._disk._random.randint(0, len(content))] if dies else content
        if dies:
            self._end_here()

    def _put(self, path: str, file: _File) -> None:
        files = self._disk.files
        replaced = files.pop(path, None)
        files[path] = file

        def undo() -> None:
            files.pop(path, None)
            if replaced is not None:
                files[path] = replaced

        self._disk.journal.append(undo)

    # Names

    def rename(self, old_path: str, new_path: str) -> None:
        dies = self._change("rename", old_path)
        disk = self._disk
        if old_path in disk.files:
            file = disk.files.pop(old_path)
            disk.journal.append(lambda: disk.files.__setitem__(old_path, file))
            self._put(new_path, file)
        elif old_path in disk.directories:
            self._move_tree(old_path, new_path)
            disk.journal.append(lambda: self._move_tree(new_path, old_path))
        else:
            raise StorageError(old_path, "No such file or directory")
        if dies:
            self._end_here()

    def _move_tree(self, old_path: str, new_path: str) -> None:
        disk = self._disk
        prefix, length = old_path + "/", len(old_path)
        for path in [p for p in disk.files if p.startswith(prefix)]:
            disk.files[new_path + path[length:]] = disk.files.pop(path)
        for path in [p for p in disk.directories if p == old_path or p.startswith(prefix)]:
            del disk.directories[path]
            disk.directories[new_path + path[length:]] = None

    def remove(self, path: str) -> None:
        dies = self._change("remove", path)
        files = self._disk.files
        file = files.pop(path, None)
        if file is not None:
            self._disk.journal.append(lambda: files.__setitem__(path, file))
        if dies:
            self._end_here()

    def make_directory(self, path: str) -> None:
        self._change("make_directory", path)
        disk = self._disk
        while path and path not in disk.directories:
            disk.directories[path] = None
            path = _parent(path)

    def remove_tree(self, path: str) -> None:
        dies = self._change("remove_tree", path)
        disk = self._disk
        prefix = path + "/"
        names = [p for p in disk.files if p.startswith(prefix)]
        if dies:
            names = names[: disk._random.randint(0, len(names))]
        for name in names:
            del disk.files[name]
        if dies:
            self._end_here()
        for name in [p for p in disk.directories if p == path or p.startswith(prefix)]:
            del disk.directories[name]
        # What is deleted for good is not brought back: the logs that are deleted have names of their own.
        disk.journal.clear()

    def sync_directory(self, path: str) -> None:
        if self._change("sync_directory", path):
            self._end_here()
        self._disk.journal.clear()

    def sync_volume(self, handle: int) -> bool:
        disk = self._disk
        dies = self._change("sync", self._locks[handle])
        for file in disk.files.values():
            if not dies or disk._random.random() < 0.5:
                file.sync()
        if dies:
            self._end_here()
        disk.journal.clear()
        disk.syncs += 1
        if disk.sync_delay_s:
            self._on_sync(disk.sync_delay_s)
        return True

    def lock(self, path: str) -> int:
        self._check("lock", path)
        if path in self._locks.values():
            raise DirectoryLocked(path, "held by another process: is a broker already running here?")
        if path not in self._disk.files:
            self._create(path)
        self._next += 1
        self._locks[self._next] = path
        return self._next

    def unlock(self, handle: int) -> None:
        self._locks.pop(handle, None)

    def space(self, path: str) -> tuple[int, int]:
        self._check("space", path)
        total = self._disk.capacity_bytes or TOTAL_BYTES
        return total, max(total - self._disk.used_bytes(), 0)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
