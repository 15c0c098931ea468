"""Free ports for processes that tests start, none given to two of them."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

FIRST, END = 20_000, 32_000
"""Range of the ports: below those that Linux gives to connections. One of these could take the port of a node that is
down, even a connection to that very port, which then is connected to itself."""

_given: set[int] = set()
_claims: list[int] = []
_draw = random.SystemRandom()


def free_port() -> int:
    """One of `free_ports`."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, all different, and kept for this process until it ends.

    Two runs of tests side by side would otherwise find the same port free before either of them has a broker on it.

    Raises:
        RuntimeError: there are no more.
    """
    found: list[int] = []
    for _ in range(10 * (END - FIRST)):
        if len(found) == count:
            return found
        port = _draw.randrange(FIRST, END)
        if port not in _given and _claimed(port) and _is_free(port):
            found.append(port)
            _given.add(port)
    raise RuntimeError(f"no {count} ports are free of those from {FIRST} to {END - 1}; {len(_given)} were given before")


def _claimed(port: int) -> bool:
    """False if another process has the port. A claim is a lock of one byte of a file, which ends with its process."""
    if not _claims:
        path = Path(tempfile.gettempdir()) / f"pykbroker-ports-{os.getuid()}.lock"
        _claims.append(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    try:
        fcntl.lockf(_claims[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False
