"""Return of freed memory to the system, and short pauses of the garbage collector.

glibc keeps up to 64 MB of freed memory after large blocks were used, for example for a decompressed batch: a broker
would stay large after one busy time or one attack. `FreedMemory` calls malloc_trim after growth, and when the process
is idle after work. Without glibc nothing is done.

Python's own allocator serves small objects. It takes memory in blocks of a megabyte, and returns a block when no object
in it is used any more; a single used object keeps its whole block. Ten thousand partitions, created and deleted,
left 7 to 16 MB behind, and an hour of hostile clients 12 MB. glibc returns single pages. So with glibc a broker makes
Python use malloc for everything (`environment_for_brokers`): this takes 2 % more processor time, all memory is
returned, and an idle broker is no larger.

Large blocks come from the heap, too (`_THRESHOLDS_OF_MALLOC`). By default glibc trims the heap when they are freed, so
that the next request's frame and decompressed batches lie in pages that the system has to provide and to clear anew:
two thirds of the processor time of Produce with lz4. What stays in the heap goes back with `FreedMemory`.

A full garbage collection stops every task: 90 ms for the 170,000 objects of 10,000 partitions. `SettledObjects`
excludes long-lived objects from it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping

GROWTH_BYTES = 2 * 1024 * 1024
GROWTH_SHARE = 1 / 16
"""Smallest growth, in bytes and as a share of the smallest size, after which free pages are returned. One large request
does not make the process grow by so much."""

ATTEMPTS = 5
"""Attempts to return memory after growth: memory that the first attempt found in use may be free at a later one."""

WORK_S = 0.05
"""Processor time in seconds since memory was last returned, after which an idle process returns it again. A broker
without clients takes half a minute for it."""

THRESHOLDS = (700, 5, 2)
"""Thresholds of the garbage collector, for gc.set_threshold. A collection of the youngest generation follows 700 new
objects, every sixth of these includes the middle generation, and every third of those is a full collection, which finds
13,000 new objects at most."""

SETTLED_OBJECTS = 4_000
"""Survivors of a full collection from which on they are settled. A smaller number are the objects of requests and
connections, which full collections continue to examine."""

THOROUGH_OBJECTS = 50_000
THOROUGH_SHARE = 1 / 4
"""A thorough collection is due after so many objects have settled, and so large a share of the objects that the
previous one found in use."""

IDLE_SHARE = 0.02
"""Share of a processor below which the process is idle."""

THOROUGH_DELAY_S = 3600.0
"""Longest time in seconds that a due thorough collection waits for an idle moment."""

_FULL = 2
_ALLOCATOR = "PYTHONMALLOC"
_THRESHOLDS_OF_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
"""Thresholds of glibc in bytes. A block of the first size or more is mapped by itself; 32 MiB is the largest value that
glibc accepts. Free memory at the end of the heap goes back to the system from the second size on. glibc begins with
smaller values and raises them to these bounds as mapped blocks are freed."""


def environment_for_brokers(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment of a new process that uses malloc for all memory (PYTHONMALLOC), so that it can return freed memory.

    Large blocks stay in the heap until then.

    Unchanged without glibc, if PYTHONMALLOC is set already, and for a Python without the global interpreter lock, which
    has its own allocator.
    """
    changed = dict(environment)
    if _ALLOCATOR not in changed and has_glibc() and "t" not in getattr(sys, "abiflags", ""):
        changed = {**_THRESHOLDS_OF_MALLOC, **changed, _ALLOCATOR: "malloc"}
    return changed


def restart_for_brokers() -> None:  # pragma: no cover: it replaces the process
    """Executes this process again with `environment_for_brokers`, the same process id and the same arguments.

    Returns at once if the process has this environment already. Python reads PYTHONMALLOC only before it starts, so a
    start from the command line takes 10 to 20 ms longer. Set PYTHONMALLOC (to `malloc`, or to `pymalloc` for Python's
    default) to avoid this.
    """
    environment = environment_for_brokers(os.environ)
    if environment == dict(os.environ) or sys.flags.ignore_environment or not sys.executable:
        return
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 (the same arguments again)


def has_glibc() -> bool:
    """True if the C library of this process is glibc."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, OSError, ValueError):  # pragma: no cover: another C library
        return False


class Idleness:
    """Compares the processor time of the process at two calls, to tell if it was idle between them."""

    def __init__(self) -> None:
        self._looked_at: tuple[float, float] | None = None

    def was_idle(self, now_s: float, processor_s: float) -> bool:
        """True if the process used less than `IDLE_SHARE` of a processor since the last call; False at the first one.

        Args:
            now_s: time in seconds of a clock that also runs while the process waits.
            processor_s: processor time of the process so far, in seconds.
        """
        before, self._looked_at = self._looked_at, (now_s, processor_s)
        return before is not None and processor_s - before[1] < IDLE_SHARE * (now_s - before[0])


class FreedMemory:  # pragma: no cover: tested in a process of its own
    """Returns freed memory to the system. Call `give_back` every few seconds.

    A busy process returns it after growth. Memory that is in use for long and then freed is no growth: 2,000 partitions
    that are made within a minute and then deleted would leave 3 MB. So an idle process that has worked returns it, too.
    There the pause delays no request: malloc_trim looks at every free block, at 0.7 microseconds for each.

    Args:
        processor_time: function that returns the processor time of the process so far, in seconds. That of the return
            itself is no work: else a process with many objects would return memory again and again.
    """

    def __init__(self, processor_time: Callable[[], float]) -> None:
        self._processor_time = processor_time
        self._least: int | None = None
        self._attempts_left = 0
        self._idleness = Idleness()
        self._processor_s_at_return = 0.0

    def give_back(self, now_s: float) -> bool:
        """Returns freed memory to the system if there may be much; True if it did.

        That is so if the process has grown since its smallest size: at the next `ATTEMPTS` calls, because a call may
        come while the memory is still in use. And if it is idle and has used `WORK_S` since memory was returned.

        Args:
            now_s: time in seconds of a clock that also runs while the process waits.
        """
        used = anonymous_bytes()
        if used is None:
            return False
        if self._least is None or used < self._least:
            self._least = used
        if used - self._least >= max(GROWTH_BYTES, self._least * GROWTH_SHARE):
            self._attempts_left = ATTEMPTS
        processor_s = self._processor_time()
        has_worked = processor_s - self._processor_s_at_return >= WORK_S
        if not ((self._idleness.was_idle(now_s, processor_s) and has_worked) or self._attempts_left):
            return False
        self._attempts_left = max(self._attempts_left - 1, 0)
        gc.collect()
        _trim()
        self._processor_s_at_return = self._processor_time()
        # Memory that is still in use does not count as growth.
        self._least = anonymous_bytes()
        return True


class SettledObjects:
    """Keeps the pauses of the garbage collector short for any number of objects.

    Partitions, images and logs live for long. Each full collection would examine all of them, half a microsecond per
    object. So the survivors of a full collection are settled (gc.freeze): later collections examine only newer objects.
    Reference counting still frees a settled object: a deleted topic and a closed connection contain no reference
    cycles.

    A thorough collection examines settled objects too, and finds cycles among them. It takes as long as a full
    collection did before, so it is rare: it is due when the settled objects have grown by a quarter, and waits for an
    idle moment.

    Nothing is done in a Python that never starts a full collection by itself (3.14 examines old objects in small
    steps).
    """

    def __init__(self) -> None:
        self._thresholds_before = gc.get_threshold()
        self._settled_since_collection = 0
        self._found_in_use = 0
        self._due_since_s: float | None = None
        self._idleness = Idleness()
        self._is_thorough = False

    def begin(self) -> None:
        """Settles all present objects, and from now on the survivors of each full collection."""
        gc.freeze()
        if not self._thresholds_before[2]:  # pragma: no cover: Python without a third generation
            return
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._on_collection)
        self._forget_size()

    def end(self) -> None:
        """Settles no further objects. The settled ones stay so, which also makes the end of the process faster."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._thresholds_before)

    def collect_if_due(  # pragma: no cover: tested in a process of its own
        self, now_s: float, processor_s: float
    ) -> bool:
        """Makes a thorough collection if it is due and the process was idle since the last call; True if it did.

        Args:
            now_s: time in seconds of a clock that also runs while the process waits.
            processor_s: processor time of the process so far, in seconds.
        """
        is_idle = self._idleness.was_idle(now_s, processor_s)
        if self._settled_since_collection < max(THOROUGH_OBJECTS, self._found_in_use * THOROUGH_SHARE):
            return False
        if self._due_since_s is None:
            self._due_since_s = now_s
        if not is_idle and now_s - self._due_since_s < THOROUGH_DELAY_S:
            return False
        self._due_since_s = None
        gc.unfreeze()
        self._is_thorough = True
        try:
            gc.collect()
        finally:
            self._is_thorough = False
        gc.freeze()
        self._found_in_use, self._settled_since_collection = gc.get_freeze_count(), 0
        self._forget_size()
        return True

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == _FULL and not self._is_thorough:
            # The list is short: older survivors have settled.
            survivors = len(gc.get_objects(generation=_FULL))
            if survivors >= SETTLED_OBJECTS:  # pragma: no cover: tested in a process of its own
                gc.freeze()
                self._settled_since_collection += survivors

    def _forget_size(self) -> None:
        """Collects once more, so that Python does not delay its next full collection.

        After a collection of many objects it waits until a quarter as many are new; this one has few.
        """
        gc.collect()


def anonymous_bytes() -> int | None:
    """Resident memory in bytes without mapped files; None if the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            _, resident, shared, *_ = map(int, statm.read().split())
    except OSError:  # pragma: no cover: a system without /proc
        return None
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _trim() -> None:  # pragma: no cover: tested in a process of its own
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
