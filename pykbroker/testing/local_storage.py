"""Temporary directories of LocalBroker and LocalCluster: in memory where there is a file system for that, with room.

With data in memory a broker does not wait for a disk, as it does several times at its start. A full file system in
memory is a full disk: producers get KAFKA_STORAGE_ERROR until something is deleted. So memory is chosen only if
ROOM_BYTES are free: containers have 64 MB by default.
"""

from __future__ import annotations

import os
import tempfile

__all__ = ["ROOM_BYTES", "StorageChoiceError", "temporary_directory"]

MEMORY_DIRECTORY = "/dev/shm"  # noqa: S108  world-writable as /tmp is; mkdtemp makes a directory for this user alone
ROOM_BYTES = 256 * 1024 * 1024
MOUNTS = "/proc/mounts"
_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")


class StorageChoiceError(ValueError):
    """`storage` is not available; the text says what to use instead."""


def temporary_directory(prefix: str, storage: str | os.PathLike[str], *, keep: bool) -> str:
    """Makes a new directory and returns its path.

    Args:
        prefix: begins the directory's name.
        storage: "auto": in memory if there is room and the directory is not kept, else as "disk"; "memory": in memory;
            "disk": where `tempfile` makes directories; anything else is the path of a directory to make it in.
        keep: True if the directory outlives its broker.

    Raises:
        StorageChoiceError: there is no file system in memory, or no such directory.
    """
    if storage == "auto":
        return tempfile.mkdtemp(prefix=prefix, dir=None if keep or _reason_against_memory() else MEMORY_DIRECTORY)
    if storage == "memory":
        reason = _reason_against_memory()
        if reason:
            raise StorageChoiceError(f'storage="memory": {reason}; use "auto" or "disk"')
        return tempfile.mkdtemp(prefix=prefix, dir=MEMORY_DIRECTORY)
    if storage == "disk":
        return tempfile.mkdtemp(prefix=prefix)
    if not os.path.isdir(storage):
        raise StorageChoiceError(
            f'storage={os.fspath(storage)!r}: there is no such directory; give "auto", "memory", "disk" or a directory'
        )
    return tempfile.mkdtemp(prefix=prefix, dir=os.path.abspath(storage))


def _reason_against_memory() -> str:
    """The reason against a directory in memory, empty when there is none."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            mounted = [line.split()[1:3] for line in file]
    except OSError:
        mounted = []
    if not any([MEMORY_DIRECTORY, kind] in mounted for kind in _MEMORY_FILE_SYSTEMS):
        return f"{MEMORY_DIRECTORY} is no file system in memory"
    if not os.access(MEMORY_DIRECTORY, os.W_OK | os.X_OK):
        return f"{MEMORY_DIRECTORY} is not writable"
    status = os.statvfs(MEMORY_DIRECTORY)
    free = status.f_bavail * status.f_frsize
    if free < ROOM_BYTES:
        return f"{MEMORY_DIRECTORY} has {free >> 20} MiB free, less than {ROOM_BYTES >> 20}"
    return ""
