"""Memory that was freed goes back to the system.

glibc keeps up to 64 MB of freed memory at hand once large blocks were used, such as what a batch decompresses to: a
broker that was busy, or attacked, once would stay large. Every now and then, and only after growth, it is told to give
back what is free. Where there is no glibc nothing is done.

Small objects are Python's own business: as a rule it takes memory by the megabyte, and gives a megabyte back when
nothing in it is used any more. One object in it that lives on holds it whole: ten thousand partitions made and deleted
left 7 to 16 MB behind, an hour of hostile clients 12 MB, while nothing was in use that had not been before. glibc gives
back single pages. So where there is glibc a broker lets Python take all its memory from there
(`environment_for_brokers`): for 2 % of processor time everything comes back, and an idle broker is no larger.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping

GROWTH_BYTES = 2 * 1024 * 1024
GROWTH_SHARE = 1 / 16
"""Less growth than either is not worth looking for free pages. The look stops everybody for as long as the garbage
collector takes, 80 ms with 10,000 partitions: there the answer to one large request is no reason for it."""


LOOKS = 5
"""So often it is tried after growth: what was still in use the first time may be free the next."""


_ALLOCATOR = "PYTHONMALLOC"


def environment_for_brokers(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a new process takes its memory in a way that lets it be given back.

    Unchanged where there is no glibc, where somebody has chosen an allocator, and in a Python without the global
    interpreter lock, which has an allocator of its own.
    """
    changed = dict(environment)
    if _has_glibc() and "t" not in getattr(sys, "abiflags", ""):
        changed.setdefault(_ALLOCATOR, "malloc")
    return changed


def restart_for_brokers() -> None:
    """Begins this process anew, same number, same words, in `environment_for_brokers`; nothing when it is in it.

    Only an environment can tell Python so, and only before Python runs: hence a start from the command line takes the
    10 to 20 ms of a bare interpreter more. Who cannot spare them sets PYTHONMALLOC (to `malloc`, or to `pymalloc` for
    what Python does as a rule).
    """
    environment = environment_for_brokers(os.environ)
    if environment == dict(os.environ) or sys.flags.ignore_environment or not sys.executable:
        return
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 (the same words again)


def _has_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, OSError, ValueError):
        return False


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
        if used - self._least >= max(GROWTH_BYTES, self._least * GROWTH_SHARE):
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
