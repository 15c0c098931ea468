"""`python -m pykbroker.cli.fork_server DESCRIPTOR`: the prepared process, whose forks run `pykbroker start`."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

from pykbroker.node.bytecode_finder import import_from_bytecode
from pykbroker.processes.fork_server import ForkServer

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:  # pragma: no cover: a process of its own (tests/pykbroker/processes)
    """Serves the connection whose descriptor is the one word of the command line."""
    import_from_bytecode()
    ForkServer(socket.socket(fileno=int(sys.argv[1])), _run_broker).run()
    sys.stdout.flush()
    sys.stderr.flush()
    # At once, without cleanup: the program that used the brokers waits for this process when it ends.
    os._exit(0)


def _run_broker(words: list[str], tell: Callable[[str], None]) -> int:
    # A prepared process imports it when the first broker has started.
    from pykbroker.cli.start.run import start

    return start(words, tell)


if __name__ == "__main__":  # pragma: no cover: a process of its own
    main()
