"""Reports the memory in use of a broker under test: Python imports this module at its start.

The process writes the number of bytes into the file `PYKBROKER_MEMORY_FILE` each time that it gets SIGUSR1. With
PYTHONMALLOC=malloc, which a broker gives itself, that is the memory of all its objects. The resident memory is larger
by free blocks on pages that also contain used ones, 5 to 25 MB after large topics, more or less by chance.
"""

from __future__ import annotations

import ctypes
import os
import signal

FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Mallinfo2(ctypes.Structure):
    """struct mallinfo2 of malloc.h: uordblks and hblkhd are the bytes in use, in heaps and mapped by themselves."""

    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


def report_at_signals(path: str) -> None:
    """Installs the handler of SIGUSR1. Does nothing where the C library is not glibc 2.33 or later."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return
    mallinfo2.restype = Mallinfo2

    def report(*_: object) -> None:
        info = mallinfo2()
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(str(info.uordblks + info.hblkhd))
        os.replace(f"{path}.new", path)

    signal.signal(signal.SIGUSR1, report)


if path := os.environ.get("PYKBROKER_MEMORY_FILE"):
    report_at_signals(path)
