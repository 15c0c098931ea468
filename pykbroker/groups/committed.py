"""Groups as their replicated records say, for readers, while later records are in flight.

Records of modern groups and tombstones of all groups take effect when they are appended. Until they are
replicated, ConsumerGroupDescribe and its siblings, ListGroups and OffsetFetch show the group as it was before, as
Kafka's timeline data structures do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any, TypeVar

from pykbroker.groups.result import GroupResult
from pykbroker.protocol.log_messages.consumer_offsets import GroupMetadataKey

Group = TypeVar("Group")


class CommittedGroups:
    """Earlier states of the groups that have records in flight: for each append, the state before it."""

    def __init__(self) -> None:
        self._before: dict[str, deque[object | None]] = {}

    def add(self, group_id: str, group: object | None) -> None:
        """Keeps a group as it is before a result is appended; None if readers see no group.

        The group must not change any more, unless it is a classic group.
        """
        self._before.setdefault(group_id, deque()).append(group)

    def remove(self, group_id: str) -> None:
        """Forgets the oldest state of a group: the records that were appended upon it are replicated."""
        states = self._before[group_id]
        states.popleft()
        if not states:
            del self._before[group_id]

    def get(self, group_id: str, current: Group | None) -> Group | object | None:
        """The group for readers; `current` is the group now, if there is one."""
        states = self._before.get(group_id)
        return current if states is None else states[0]

    def of_type(self, current: Mapping[str, Group], group_class: type[Group]) -> Collection[Group]:
        """The groups of one class for readers; `current` are those of now, by id."""
        return list(self._groups_of_type(current, group_class)) if self._before else current.values()

    def _groups_of_type(self, current: Mapping[str, Group], group_class: type[Group]) -> Iterator[Group]:
        for group_id, group in current.items():
            if group_id not in self._before:
                yield group
        for states in self._before.values():
            if isinstance(states[0], group_class):
                yield states[0]


def groups_of(result: GroupResult, new_groups: Container[str]) -> dict[str, None]:
    """Ids, in order, of the groups that change for readers when the records of a result are replicated.

    `new_groups` are ids of classic groups without a stored record.
    """
    found: dict[str, None] = {}
    if result.offsets is not None:
        # A large commit has offsets of one group, and nothing else.
        return {result.offsets.group_id: None} if result.offsets.group_id in new_groups else found
    for record in result.records:
        key: Any = record.key
        group_id: str | None = getattr(key, "group_id", None)
        if group_id is not None:
            found[group_id] = None
        elif (record.value is None and isinstance(key, GroupMetadataKey)) or key.group in new_groups:
            found[key.group] = None
    return found
