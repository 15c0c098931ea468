"""Memory that was freed goes back to the system.

glibc keeps up to 64 MB of freed memory at hand once large blocks were used, such as what a batch decompresses to: a
broker that was busy, or attacked, once would stay large. Every now and then, and only after growth, it is told to give
back what is free. Where there is no glibc nothing is done.

Small objects are Python's own business: it takes memory by the megabyte, and gives a megabyte back when nothing in it
is used any more. So garbage is collected first, and something may stay: after a burst of 50,000 elements up to 4 MB, in
which a few small objects were made that live on; the next burst uses the same.
"""

from __future__ import annotations

import gc
import os

GROWTH_BYTES = 4 * 1024 * 1024
"""Less growth than this is not worth looking for free pages."""


LOOKS = 5
"""So often it is tried after growth: what was still in use the first time may be free the next."""


class FreedMemory:
    """Remembers how small the process has been; `give_back` is to be called from time to time."""

    def __init__(self) -> None:
        self._least: int | None = None
        self._looks_left = 0

    def give_back(self) -> bool:
        """Returns freed memory to the system if the process has grown lately since it was at its least; says whether.

        A call finds a burst at its height as well as behind it.
        """
        used = anonymous_bytes()
        if used is None:
            return False
        if self._least is None or used < self._least:
            self._least = used
        if used - self._least >= GROWTH_BYTES:
            self._looks_left = LOOKS
        elif not self._looks_left:
            return False
        self._looks_left -= 1
        gc.collect()
        _trim()
        # What is still in use is no reason to look for longer.
        self._least = anonymous_bytes()
        return True


def anonymous_bytes() -> int | None:
    """Resident memory that is no file's; None where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            _, resident, shared, *_ = map(int, statm.read().split())
    except OSError:
        return None
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _trim() -> None:
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
