"""`python -m tests.simulation`: one seed in full, many seeds in parallel, or the mutations. See README.md."""

from __future__ import annotations

import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":
    # Sets of text would have another order in each process.
    os.execve(
        sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
    )

from tests.simulation.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
