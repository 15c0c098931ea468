"""Writes of several buffers at a position of a file, with as few system calls as possible."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

_PARTS_MAX: Final = 1000
"""Maximum number of buffers in one call; the system's own limit is 1024."""


def _write_joined(descriptor: int, parts: Sequence[bytes | bytearray | memoryview], position: int) -> int:
    """Replacement of pwritev for systems that lack it."""
    return os.pwrite(descriptor, b"".join(parts), position)


_write_parts: Callable[[int, Sequence[bytes | bytearray | memoryview], int], int] = getattr(
    os, "pwritev", _write_joined
)


def write_all(descriptor: int, parts: Sequence[bytes | bytearray | memoryview], size: int, position: int) -> None:
    """Writes all parts, `size` bytes together. Raises OSError; then the file may have a part of them."""
    if len(parts) > _PARTS_MAX:
        parts = (b"".join(parts),)
    written = _write_parts(descriptor, parts, position)
    if written != size:
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            rest = rest[os.pwrite(descriptor, rest, position + size - len(rest)) :]
