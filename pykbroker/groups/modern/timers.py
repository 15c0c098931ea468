"""Deadlines of one group's members."""

from __future__ import annotations

from enum import StrEnum

from pykbroker.named_tuple import NamedTuple


class TimerKind(StrEnum):
    """The timers that a member may have."""

    SESSION = "session"
    REBALANCE = "rebalance"
    CLASSIC_JOIN = "join"
    CLASSIC_SYNC = "sync"
    INITIAL_REBALANCE = "initial rebalance"
    """Delay of a Streams group's first assignment, under the empty member id."""

    # Enum's own `__hash__` is a Python function, which every access to `MemberTimers` would call.
    __hash__ = str.__hash__


class DueTimer(NamedTuple):
    """A timer that is due; `epoch` is the member epoch with which it was scheduled, if it was given one."""

    kind: TimerKind
    member_id: str
    epoch: int | None


class MemberTimers:
    """Deadlines in ms since the epoch.

    `wake_ms` is a lower bound of all deadlines, or None if there are none; it may be below the first one, as a session
    that is prolonged does not move it.
    """

    __slots__ = ("_deadlines", "_due", "wake_ms")

    def __init__(self) -> None:
        self._deadlines: dict[tuple[TimerKind, str], tuple[int, int | None]] = {}
        self._due: list[tuple[tuple[TimerKind, str], tuple[int, int | None]]] = []
        """Timers that were due when `pop_due` looked for some, the earliest one last; each may have moved since."""
        self.wake_ms: int | None = None

    def schedule(self, kind: TimerKind, member_id: str, deadline_ms: int, epoch: int | None = None) -> None:
        """Starts a timer, or moves its deadline."""
        self._deadlines.pop((kind, member_id), None)  # timers with equal deadlines run in the order of their starts
        self._deadlines[kind, member_id] = deadline_ms, epoch
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms

    def schedule_if_absent(self, kind: TimerKind, member_id: str, deadline_ms: int, epoch: int | None = None) -> None:
        """Starts a timer, unless it runs already."""
        if (kind, member_id) not in self._deadlines:
            self.schedule(kind, member_id, deadline_ms, epoch)

    def cancel(self, kind: TimerKind, member_id: str) -> None:
        """Stops a timer, if it runs."""
        self._deadlines.pop((kind, member_id), None)

    def pop_due(self, now_ms: int) -> DueTimer | None:
        """Removes and returns the timer that is due first; None if none is due, and `wake_ms` is the next deadline."""
        if self.wake_ms is None or self.wake_ms > now_ms:
            return None
        if not self._due:
            due = (found for found in self._deadlines.items() if found[1][0] <= now_ms)
            self._due = sorted(due, key=lambda found: found[1][0])
            self._due.reverse()
        while self._due:
            timer, deadline = self._due.pop()
            if self._deadlines.get(timer) == deadline:
                del self._deadlines[timer]
                return DueTimer(*timer, deadline[1])
        self.wake_ms = min((deadline_ms for deadline_ms, _ in self._deadlines.values()), default=None)
        return None

    def __contains__(self, timer: tuple[TimerKind, str]) -> bool:
        return timer in self._deadlines


class SoftState:
    """State of a group that is not stored; it outlives the group's object, which a change of protocol replaces.

    Attributes:
        timers: timers of the members.
        is_resolving: True while the group's regular expressions are being resolved.
    """

    __slots__ = ("is_resolving", "timers")

    def __init__(self) -> None:
        self.timers = MemberTimers()
        self.is_resolving = False
