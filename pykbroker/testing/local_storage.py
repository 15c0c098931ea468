"""Temporary folders of LocalBroker and LocalCluster: in memory where there is a file system for that, with room.

With data in memory there are no waits for a disk, of which a broker's start has several. To the broker, a full file
system in memory is a full disk: producers get KAFKA_STORAGE_ERROR until something is deleted. So it is chosen only when
ROOM_BYTES are free: containers have 64 MB by default.
"""

from __future__ import annotations

import os
import tempfile

__all__ = ["ROOM_BYTES", "StorageChoiceError", "temporary_folder"]

MEMORY_FOLDER = "/dev/shm"  # noqa: S108  world-writable as /tmp is; mkdtemp makes a folder for this user alone
ROOM_BYTES = 256 * 1024 * 1024
MOUNTS = "/proc/mounts"
_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")


class StorageChoiceError(ValueError):
    """`storage` is not available; the text says what to use instead."""


def temporary_folder(prefix: str, storage: str | os.PathLike[str], *, keep: bool = False) -> str:
    """Make a new folder and return its path.

    Args:
        prefix: begins the folder's name.
        storage: "auto": in memory if there is room and the folder is not kept, else as "disk"; "memory": in memory;
            "disk": where `tempfile` makes folders; anything else is the path of a folder to make it in.
        keep: True if the folder outlives its broker.

    Raises:
        StorageChoiceError: there is no file system in memory, or no such folder.
    """
    if storage == "auto":
        return tempfile.mkdtemp(prefix=prefix, dir=None if keep or _why_not_in_memory() else MEMORY_FOLDER)
    if storage == "memory":
        reason = _why_not_in_memory()
        if reason:
            raise StorageChoiceError(f'storage="memory": {reason}; use "auto" or "disk"')
        return tempfile.mkdtemp(prefix=prefix, dir=MEMORY_FOLDER)
    if storage == "disk":
        return tempfile.mkdtemp(prefix=prefix)
    if not os.path.isdir(storage):
        raise StorageChoiceError(
            f'storage={os.fspath(storage)!r}: there is no such folder; give "auto", "memory", "disk" or a folder'
        )
    return tempfile.mkdtemp(prefix=prefix, dir=os.path.abspath(storage))


def _why_not_in_memory() -> str:
    """The reason against a folder in memory, empty when there is none."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            mounted = [line.split()[1:3] for line in file]
    except OSError:
        mounted = []
    if not any([MEMORY_FOLDER, kind] in mounted for kind in _MEMORY_FILE_SYSTEMS):
        return f"{MEMORY_FOLDER} is no file system in memory"
    if not os.access(MEMORY_FOLDER, os.W_OK | os.X_OK):
        return f"{MEMORY_FOLDER} is not writable"
    status = os.statvfs(MEMORY_FOLDER)
    free = status.f_bavail * status.f_frsize
    if free < ROOM_BYTES:
        return f"{MEMORY_FOLDER} has {free >> 20} MiB free, less than {ROOM_BYTES >> 20}"
    return ""
