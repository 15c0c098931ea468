"""One sync of a whole volume (syncfs of Linux), on file systems where it reports errors.

syncfs also writes the data of other programs to the volume. For thousands of files this takes little time compared with
a sync of each file: 9,000 partitions need 54,000 syncs, each of which commits the file system's journal.

syncfs reports failed writes since Linux 5.8. The volume keeps such an error for every descriptor that was open when it
occurred, so the caller's descriptor must be as old as its first write. Layered and remote file systems (overlay, FUSE,
NFS) do not pass on all errors of the layers below, so syncfs is used only on types that are known to report them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Final

_FIRST_RELEASE: Final = (5, 8)
_EXT: Final = 0xEF53
_XFS: Final = 0x58465342
_BTRFS: Final = 0x9123683E
RELIABLE_TYPES: Final = frozenset({_EXT, _XFS, _BTRFS})
"""File system types of statfs(2) whose syncfs reports failed writes."""

_STATFS_SIZE: Final = 512
"""Bytes for struct statfs, more than it has on any system; the type is its first field, a long."""


def sync_volume(descriptor: int) -> bool:
    """Makes all data on the volume of an open file durable; False, without doing anything, where that is not safe.

    Raises OSError: a write to the volume, of any program, has failed since the file was opened.
    """
    library = _library()
    if library is None or _type_of(library, descriptor) not in RELIABLE_TYPES:
        return False
    if library.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return True


def _library() -> Any:
    """The C library if its syncfs reports errors, else None."""
    if sys.platform != "linux" or release(os.uname().release) < _FIRST_RELEASE:
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "syncfs") and hasattr(library, "fstatfs") else None


def release(text: str) -> tuple[int, int]:
    """The first two numbers of a kernel release such as ``6.1.0-18-amd64``; zeros for any other text."""
    parts = text.split(".")[:2]
    if len(parts) < 2 or not parts[0].isdecimal():
        return 0, 0
    digits = parts[1].split("-")[0].split("+")[0]
    return int(parts[0]), int(digits) if digits.isdecimal() else 0


def _type_of(library: Any, descriptor: int) -> int:
    about = ctypes.create_string_buffer(_STATFS_SIZE)
    if library.fstatfs(descriptor, about) != 0:
        return 0
    kind = ctypes.c_ulong.from_buffer(about).value
    return int(kind)
