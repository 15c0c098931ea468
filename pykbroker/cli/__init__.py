"""The command line: `pykbroker start` and the client commands.

`start` has a path of its own that loads neither click, rich nor a client library: they would add about 20 ms (click)
to 300 ms (all) to the start of every broker, and their memory for as long as it lives. All other commands go
through click (commands.py).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns the exit code: 0 done, 1 failed, 2 wrong usage.

    `arguments` are the words after the program's name; by default those of this process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["start"]:
        # Imports leave nothing to collect; `start` has the reason, and enables it again.
        gc.disable()
        if arguments is None:
            from pykbroker.node.process_memory import restart_for_brokers

            restart_for_brokers()
            from pykbroker.node.bytecode_finder import import_from_bytecode

            import_from_bytecode()
        from pykbroker.cli.start.run import start

        return start(words[1:])
    from pykbroker.cli.commands import run

    return run(words)
