"""Imports of a broker's modules in a subinterpreter with a lock of its own; CPython 3.12 or newer.

python3.13 -m benchmarks.cores.interpreters
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

MODULES = (
    "ssl",
    "mmap",
    "_struct",
    "_ctypes",
    "trio",
    "crc32c",
    "lz4.frame",
    "cramjam",
    "zstandard",
    "pykbroker.protocol.records.record_scan",
    "pykbroker.network.connection_loop",
    "pykbroker.handlers.produce",
)
TIMEOUT_S = 60.0
# Not sys.version_info itself: mypy would take what is for newer versions for unreachable.
VERSION: tuple[int, ...] = tuple(sys.version_info[:2])


def import_in_subinterpreter(module: str) -> str:
    """Imports a module in a new subinterpreter; "ok" or the error."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import {module}"
    if VERSION >= (3, 13):
        new: Any = importlib.import_module("_interpreters")
        error = new.exec(new.create("isolated"), code)
        return "ok" if error is None else str(error.formatted)
    old: Any = importlib.import_module("_xxsubinterpreters")
    try:
        old.run_string(old.create(isolated=True), code)
    except old.RunFailedError as failed:
        return str(failed)
    return "ok"


def main() -> int:
    """Each module in a process of its own, because some end it."""
    if len(sys.argv) > 1:
        print(import_in_subinterpreter(sys.argv[1]), flush=True)
        return 0
    if VERSION < (3, 12):
        print("interpreters: needs CPython 3.12 or newer", file=sys.stderr)
        return 2
    print(sys.version)
    for module in MODULES:
        command = [sys.executable, "-m", "benchmarks.cores.interpreters", module]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        said = done.stdout.strip() or "no answer"
        end = f" (and the process ended with code {done.returncode})" if done.returncode else ""
        print(f"{module:40} {said}{end}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
