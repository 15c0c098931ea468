"""Heartbeats of large groups, which are computed in turns with other requests and then carried out in one step.

A heartbeat is computed on the group as it is. As soon as the group or a topic has changed, the attempt is given up, and
another one begins; the last one is left to the step that carries the heartbeat out. So the result is always that of a
heartbeat that was computed in that step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.group import EpochGroup
from pykbroker.groups.offset_log import encode_record_in_steps
from pykbroker.groups.result import GroupResult, LogRecord
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.batch import RecordFrames, frames_of
from pykbroker.protocol.steps import Steps

if TYPE_CHECKING:
    from pykbroker.groups.modern.topics import GroupTopics

R = TypeVar("R")

ATTEMPTS = 3
"""Attempts to compute a heartbeat in steps; after them it is computed in one piece."""

LARGE = 128
"""Members and topics of a group, together, from which heartbeats are computed in steps; each costs microseconds."""

FindGroup = Callable[[str], object | None]
"""Returns the group of any type with an id, if there is one."""


class HeartbeatRequest(Protocol):
    """The part of a heartbeat's request that is common to all types of groups."""

    group_id: str
    member_epoch: int


class GroupsOfType(Protocol):
    """The part of the groups of one type that is used here."""

    topics: GroupTopics
    group_class: ClassVar[type[Any]]

    def settings_of(self, group_id: str) -> Any:
        """The settings of a group."""

    def get_or_make(self, group_id: str, other: object | None, *, is_joining: bool) -> Any:
        """The group; raises GroupError if it does not exist and the request is no join."""

    def context(self, *arguments: Any, **options: Any) -> Any:
        """The context of a heartbeat, given the group id, the time in ms and the client."""

    def beat(self, group: Any, request: Any, context: Any) -> Steps[GroupResult]:
        """A heartbeat that does not leave, with its records encoded."""
        ...


class SeenState(NamedTuple):
    """The state that a heartbeat depends on, when its computation began.

    Attributes:
        group: the group; None if there was none.
        changes: `EpochGroup.changes` of the group.
        topic_changes: `GroupTopics.changes`.
        settings: the settings of the group.
    """

    group: object | None
    changes: int
    topic_changes: int
    settings: object

    def is_that_of(self, group: object | None, groups: GroupsOfType) -> bool:
        """True if the group that there is now, and the topics, are the same and have not changed."""
        changes = group.changes if isinstance(group, EpochGroup) else 0
        return group is self.group and (changes, groups.topics.changes) == (self.changes, self.topic_changes)


class PreparedHeartbeat(NamedTuple):
    """A heartbeat that was computed, with its records encoded.

    Attributes:
        result: its result.
        group: the group, which may be new.
        seen: the state before it.
    """

    result: GroupResult
    group: Any
    seen: SeenState

    def is_current(self, group: object | None, groups: GroupsOfType) -> bool:
        """True if it may be carried out on the group that there is now."""
        return self.seen.is_that_of(group, groups) and self.seen.settings == groups.settings_of(self.group.group_id)


def prepare_heartbeat(
    groups: GroupsOfType,
    request: HeartbeatRequest,
    client: Sequence[Any],
    find: FindGroup,
    clock_ms: Callable[[], int],
) -> Steps[PreparedHeartbeat | None]:
    """A heartbeat of a group of one type, computed in steps between which the group may change.

    None if it is to be computed when it is carried out: it changes the type of a group, is refused, or the group was
    changed in each attempt.

    Args:
        groups: the groups of the type.
        request: the request, which was checked and does not leave the group.
        client: the arguments of `groups.context` that describe the client.
        find: returns the group of any type.
        clock_ms: returns the time in ms since the epoch.
    """
    group_id = request.group_id
    for _ in range(ATTEMPTS):
        found = find(group_id)
        if found is not None and not isinstance(found, groups.group_class):
            return None
        changes = 0 if found is None else found.changes
        seen = SeenState(found, changes, groups.topics.changes, groups.settings_of(group_id))
        try:
            group = groups.get_or_make(group_id, found, is_joining=request.member_epoch == 0)
            steps = groups.beat(group, request, groups.context(group_id, clock_ms(), *client))
            result = yield from _while_unchanged(steps, seen, groups, group_id, find)
        except GroupError:
            return None
        if result is not None:
            return PreparedHeartbeat(result, group, seen)
    return None


def _while_unchanged(
    steps: Steps[R], seen: SeenState, groups: GroupsOfType, group_id: str, find: FindGroup
) -> Steps[R | None]:
    """Result of the work; None as soon as the state has changed between two steps."""
    try:
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: R = stop.value
                return result
            yield
            if not seen.is_that_of(find(group_id), groups):
                return None
    finally:
        steps.close()


def encode_in_steps(records: Iterable[LogRecord]) -> Steps[RecordFrames]:
    """The records of a heartbeat, encoded for their batch."""
    pairs = []
    for record in records:
        pairs.append((yield from encode_record_in_steps(record)))
        yield
    return frames_of(pairs)
