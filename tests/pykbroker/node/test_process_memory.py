"""Freed memory goes back to the system."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pykbroker.node.process_memory import anonymous_bytes, environment_for_brokers
from pykbroker.testing.local_broker import LocalBroker

PROGRAM = """
from pykbroker.node.process_memory import LOOKS, FreedMemory, anonymous_bytes
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


def has_glibc() -> bool:
    return "CS_GNU_LIBC_VERSION" in getattr(os, "confstr_names", {})


def test_what_somebody_chose_is_kept() -> None:
    for chosen in ("pymalloc", "malloc_debug", "default"):
        given = {"PYTHONMALLOC": chosen, "HOME": "/"}
        assert environment_for_brokers(given) == given


@pytest.mark.skipif(not has_glibc() or not Path("/proc/self/environ").exists(), reason="not Linux with glibc")
def test_brokers_take_their_memory_from_where_it_goes_back_to(tmp_path: Path) -> None:
    """By LocalBroker and by the command line, which begins itself anew under the same process number."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONMALLOC"}
    with LocalBroker() as broker:
        assert b"PYTHONMALLOC=malloc" in Path(f"/proc/{broker.pid}/environ").read_bytes().split(b"\0")
    for chosen, expected in ((None, b"malloc"), ("pymalloc", b"pymalloc")):
        port_file = tmp_path / f"port-{chosen}"
        command = [sys.executable, "-m", "pykbroker", "start", "--port", "0", "--port-file", str(port_file)]
        environment = given if chosen is None else given | {"PYTHONMALLOC": chosen}
        process = subprocess.Popen(
            [*command, "--data-dir", str(tmp_path / f"data-{chosen}")], env=environment, stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 30
            while not port_file.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            assert port_file.exists()
            settings = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            assert b"PYTHONMALLOC=" + expected in settings
        finally:
            process.terminate()
            assert process.wait(30) == 0
