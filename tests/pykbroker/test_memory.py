"""Freed memory goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pykbroker.memory import anonymous_bytes

PROGRAM = """
from pykbroker.memory import LOOKS, FreedMemory, anonymous_bytes
freed = FreedMemory()
assert not freed.give_back()
before = anonymous_bytes()
blocks = [bytearray(20_000_000) for _ in range(3)]
del blocks
blocks = [bytearray(1_000_000) for _ in range(40)]
last = blocks.pop()
assert freed.give_back(), "grown by 40 MB in use"
del blocks
assert freed.give_back(), "free by now"
blocks = [bytearray(1_000_000) for _ in range(60)]
del blocks[:-1]
assert sum(freed.give_back() for _ in range(10)) == LOOKS
print(anonymous_bytes() - before)
"""


@pytest.mark.skipif(anonymous_bytes() is None, reason="the system has no /proc/self/statm")
def test_freed_blocks_go_back() -> None:
    """In a process of its own: what the allocator holds depends on all that was before."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert int(ran.stdout) < 6_000_000
