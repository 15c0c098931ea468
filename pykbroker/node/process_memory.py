"""Memory that was freed goes back to the system.

glibc keeps up to 64 MB of freed memory at hand once large blocks were used, such as what a batch decompresses to: a
broker that was busy, or attacked, once would stay large. Every now and then, and only after growth, it is told to give
back what is free. Where there is no glibc nothing is done.

Small objects are Python's own business: as a rule it takes memory by the megabyte, and gives a megabyte back when
nothing in it is used any more. One object in it that lives on holds it whole: ten thousand partitions made and deleted
left 7 to 16 MB behind, an hour of hostile clients 12 MB, while nothing was in use that had not been before. glibc gives
back single pages. So where there is glibc a broker lets Python take all its memory from there
(`environment_for_brokers`): for 2 % of processor time everything comes back, and an idle broker is no larger.

The garbage collector stops everybody while it looks at objects: 90 ms for the 170,000 of 10,000 partitions, if it looks
at all. `SettledObjects` takes those that stay out of its sight.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping

GROWTH_BYTES = 2 * 1024 * 1024
GROWTH_SHARE = 1 / 16
"""Less growth than either is not worth looking for free pages: the answer to one large request is no reason for it."""


LOOKS = 5
"""So often it is tried after growth: what was still in use the first time may be free the next."""


THRESHOLDS = (700, 5, 2)
"""Of the garbage collector, as gc.set_threshold has them. 700 new objects begin a collection of the youngest; every
sixth of those one of the middle generation; every third of those a full one: it finds 13,000 new objects at most."""

SETTLED_OBJECTS = 4_000
"""So many objects that have survived a full collection are settled. Fewer are what requests under way and connections
consist of: full collections go on to look at them."""

THOROUGH_OBJECTS = 50_000
THOROUGH_SHARE = 1 / 4
"""So many objects, and such a share of the ones that a thorough look found in use, settle before the next such look."""

IDLE_SHARE = 0.02
"""Of a processor: a process that uses less is idle."""

THOROUGH_DELAY_S = 3600.0
"""A thorough look that is due waits so long for an idle moment."""

_FULL = 2
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


class SettledObjects:
    """Keeps the pauses of the garbage collector short, however many objects there are.

    Partitions, images and logs stay for long. A full collection would look at all of them again and again, half a
    microsecond each. So what has survived one is put where collections do not look (gc.freeze), and a full
    collection looks at what came since. It stays there until nothing refers to it: a deleted topic and a closed
    connection leave memory without the collector's help, as they leave no cycles of references.

    What does become a cycle there is found by a thorough look, at everything. It takes as long as full collections took
    before, so it is rare: it is due when the settled objects have grown by a quarter, and waits for an idle moment.

    A Python that never begins a full collection by itself (3.14 looks at old objects piece by piece) is left alone.
    """

    def __init__(self) -> None:
        self._thresholds_before = gc.get_threshold()
        self._settled_since_look = 0
        self._found_in_use = 0
        self._due_since_s: float | None = None
        self._looked_at: tuple[float, float] | None = None

    def begin(self) -> None:
        """Take all that there is now for settled, and from now on what survives."""
        gc.freeze()
        if not self._thresholds_before[2]:
            return
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._on_collection)
        self._forget_size()

    def end(self) -> None:
        """Stop that. The settled objects stay where they are: the end of the process need not look at them either."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._thresholds_before)

    def look_if_due(self, now_s: float, processor_s: float) -> bool:
        """Look at everything if that is due and the process was idle since the last call; says if it did.

        Args:
            now_s: a clock that goes on while the process waits.
            processor_s: processor time that the process has used.
        """
        before, self._looked_at = self._looked_at, (now_s, processor_s)
        if self._settled_since_look < max(THOROUGH_OBJECTS, self._found_in_use * THOROUGH_SHARE):
            return False
        if self._due_since_s is None:
            self._due_since_s = now_s
        is_idle = before is not None and processor_s - before[1] < IDLE_SHARE * (now_s - before[0])
        if not is_idle and now_s - self._due_since_s < THOROUGH_DELAY_S:
            return False
        self._due_since_s = None
        gc.unfreeze()
        # The end of this collection calls _on_collection, which sees all that is in use.
        self._settled_since_look = 0
        gc.collect()
        self._found_in_use, self._settled_since_look = self._settled_since_look, 0
        self._forget_size()
        return True

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == _FULL:
            survivors = len(gc.get_objects(generation=_FULL))
            if survivors >= SETTLED_OBJECTS:
                gc.freeze()
                self._settled_since_look += survivors

    def _forget_size(self) -> None:
        """After a collection that has seen many objects the next full one waits until a quarter as many are new."""
        gc.collect()


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
