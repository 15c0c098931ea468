"""One sync for a whole volume (Linux' syncfs), where it can be relied on.

syncfs writes what every program has written to the volume. That is the price; for thousands of files it is small beside
a sync of each: of 9,000 partitions 54,000 syncs, each of them one commit of the file system's journal.

It says that something could not be written since Linux 5.8. The volume then remembers it for every descriptor that was
open before, which is why the caller's has to be as old as what it has written. Layered and remote ones (overlay,
FUSE, NFS) do not hand on all errors of those below them, so only file systems are asked that are known to.
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
"""Types of file systems, as statfs(2) has them, whose syncfs says what it could not write."""

_STATFS_SIZE: Final = 512
"""More than struct statfs has anywhere; the type is its first field, a long."""


def sync_volume(descriptor: int) -> bool:
    """Write all that was written to the volume of an open file; False, with nothing done, where that is not safe.

    Raises OSError: something on the volume could not be written since the file was opened, by whomever.
    """
    library = _library()
    if library is None or _type_of(library, descriptor) not in RELIABLE_TYPES:
        return False
    if library.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return True


def _library() -> Any:
    """The C library where there is a syncfs that tells of errors, else None."""
    if sys.platform != "linux" or release(os.uname().release) < _FIRST_RELEASE:
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "syncfs") and hasattr(library, "fstatfs") else None


def release(text: str) -> tuple[int, int]:
    """The first two numbers of a kernel's release such as ``6.1.0-18-amd64``; zeros for what is none."""
    parts = text.split(".")[:2]
    if len(parts) < 2 or not parts[0].isdigit():
        return 0, 0
    digits = parts[1].split("-")[0].split("+")[0]
    return int(parts[0]), int(digits) if digits.isdigit() else 0


def _type_of(library: Any, descriptor: int) -> int:
    about = ctypes.create_string_buffer(_STATFS_SIZE)
    if library.fstatfs(descriptor, about) != 0:
        return 0
    kind = ctypes.c_ulong.from_buffer(about).value
    return int(kind)
