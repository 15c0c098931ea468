"""Operations on large groups, which are computed in turns with other requests and then carried out in one step.

An operation is computed on the group as it is. As soon as the group or a topic has changed, the attempt is given up,
and another one begins; the last one is left to the step that carries the operation out. So the result is always that of
an operation that was computed in that step.
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
"""Attempts to compute an operation in steps; after them it is computed in one piece."""

LARGE = 128
"""Members and topics of a group, together, from which heartbeats are computed in steps; each costs microseconds."""

FindGroup = Callable[[str], object | None]
"""Returns the group of any type with an id, if there is one."""


class GroupsOfType(Protocol):
    """The part of the groups of one type that is used here."""

    topics: GroupTopics
    group_class: ClassVar[type[Any]]

    def settings_of(self, group_id: str) -> Any: ...

    def get_or_make(self, group_id: str, other: object | None, *, is_joining: bool) -> Any:
        """The group; raises GroupError if it does not exist and the request is no join."""


class SeenState(NamedTuple):
    """The state that an operation depends on, when its computation began.

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


class PreparedWrite(NamedTuple):
    """An operation that was computed.

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


def prepare_write(
    groups: GroupsOfType,
    find: FindGroup,
    clock_ms: Callable[[], int],
    compute: Callable[..., Steps[GroupResult]],
    arguments: Sequence[Any],
    is_joining: bool,
) -> Steps[PreparedWrite | None]:
    """An operation on a group of one type, computed in steps between which the group may change.

    None if it is to be computed when it is carried out: it changes the type of a group, is refused, or the group was
    changed in each attempt.

    Args:
        groups: the groups of the type.
        find: returns the group of any type.
        clock_ms: returns the time in ms since the epoch.
        compute: computes the operation, given the groups, the group, the time in ms and the `arguments`; the group and
            the topics do not change between its steps. It encodes the records.
        arguments: of `compute`; the first one has the id of the group.
        is_joining: True if a member joins, for which the group is made if there is none.
    """
    group_id = arguments[0].group_id
    for _ in range(ATTEMPTS):
        found = find(group_id)
        if found is not None and not isinstance(found, groups.group_class):
            return None
        changes = 0 if found is None else found.changes
        seen = SeenState(found, changes, groups.topics.changes, groups.settings_of(group_id))
        try:
            group = groups.get_or_make(group_id, found, is_joining=is_joining)
            steps = compute(groups, group, clock_ms(), *arguments)
            result = yield from _run_while_unchanged(steps, seen, groups, group_id, find)
        except GroupError:
            return None
        if result is not None:
            return PreparedWrite(result, group, seen)
    return None


def _run_while_unchanged(
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
    """The records of an operation, encoded for their batch."""
    pairs = []
    for record in records:
        pairs.append((yield from encode_record_in_steps(record)))
        yield
    return frames_of(pairs)
