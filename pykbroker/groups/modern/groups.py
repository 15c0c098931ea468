"""The modern groups of one type in one partition of `__consumer_offsets`: the part that all types share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from pykbroker.groups.committed import CommittedGroups
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.expiry import fence_due
from pykbroker.groups.modern.group import EpochGroup
from pykbroker.groups.modern.settings import Settings, settings_of_group
from pykbroker.groups.modern.timers import DueTimer, SoftState, TimerKind
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import GroupResult, LogRecord
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.list_groups import ListedGroup
from pykbroker.protocol.steps import Steps

AnyGroup = TypeVar("AnyGroup", bound=EpochGroup[Any, Any])


class ModernGroups(ABC, Generic[AnyGroup, Settings]):
    """Groups of one type by id.

    Args:
        settings: the broker's settings of these groups.
        topics: the topics of the cluster.
        configs_of: dynamic configs of a group's GROUP resource.

    Attributes:
        settings: the broker's settings of these groups.
        group_type: name of the type, as ListGroups shows it.
        protocol_type: protocol type of these groups in ListGroups.
        group_class: class of the groups.
    """

    group_type: ClassVar[str]
    protocol_type: ClassVar[str]
    group_class: ClassVar[type[Any]]

    def __init__(self, settings: Settings, topics: GroupTopics, configs_of: Callable[[str], Mapping[str, str]]) -> None:
        self.topics = topics
        self.settings = settings
        self._configs_of = configs_of
        self.by_id: dict[str, AnyGroup] = {}
        self._soft_states: dict[str, SoftState] = {}

    def make(self, group_id: str, soft_state: SoftState) -> AnyGroup:
        """A new group without members."""
        group: AnyGroup = self.group_class(group_id, soft_state)
        return group

    def settings_of(self, group_id: str) -> Settings:
        """The settings of a group: those of the broker, and within its bounds those of the group's GROUP resource."""
        configs = self._configs_of(group_id)
        return self.of_group(configs) if configs else self.settings

    def of_group(self, configs: Mapping[str, str]) -> Settings:
        """The settings of a group that has configs of its own."""
        return settings_of_group(self.settings, self.group_type, configs)

    @abstractmethod
    def tombstones(self, group_id: str) -> list[LogRecord]:
        """Tombstones of everything that is stored for a group."""

    def find(self, group_id: str, other: object | None) -> AnyGroup:
        """A group of this type; `other` is the group of another type with this id, if there is one.

        Raises:
            GroupError: GROUP_ID_NOT_FOUND.
        """
        group = self.by_id.get(group_id)
        if group is None:
            raise self._not_found(group_id, other)
        return group

    def _not_found(self, group_id: str, other: object | None) -> GroupError:
        reason = "not found." if other is None else f"is not a {self.group_type} group."
        return GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}")

    def get_or_make(self, group_id: str, other: object | None, *, is_joining: bool) -> AnyGroup:
        """A group of this type, which a member that joins creates; it is stored when its records are replayed.

        Raises:
            GroupError: GROUP_ID_NOT_FOUND: it does not exist and the request is no join, or it is of another type.
        """
        group = self.by_id.get(group_id)
        if group is not None:
            return group
        if other is not None:
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {self.group_type} group.")
        if not is_joining:
            message = f"{self.group_type.capitalize()} group {group_id} not found."
            raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, message)
        return self.make(group_id, self.soft_state_of(group_id))

    def soft_state_of(self, group_id: str) -> SoftState:
        """The state of a group that is not stored; for a new group `keep_soft_state` must follow."""
        return self._soft_states.get(group_id) or SoftState()

    def keep_soft_state(self, group: AnyGroup) -> None:
        """Keeps the timers of a group until its records are replayed; not after an error, which would leave them."""
        self._soft_states[group.group_id] = group.soft_state

    def describe(self, group_id: str, found: object | None) -> Steps[Any]:
        """A group, as it is now, in the response of the API that describes this type.

        Args:
            group_id: id of the group.
            found: the group of any type with this id, for readers, if there is one.

        Raises:
            GroupError: GROUP_ID_NOT_FOUND.
        """
        if not isinstance(found, self.group_class):
            raise self._not_found(group_id, found)
        group: AnyGroup = found.snapshot()
        return (yield from self.described(group))

    @abstractmethod
    def described(self, group: AnyGroup) -> Steps[Any]:
        """A group, which does not change between the steps, in the response of the API that describes this type."""

    def listed(self, committed: CommittedGroups, states: set[str], types: set[str]) -> list[ListedGroup]:
        """Groups whose state and type are among the lower-case names given; an empty set takes all.

        `committed` has the groups with records in flight as readers may see them.
        """
        if types and self.group_type not in types:
            return []
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=self.protocol_type,
                group_state=state,
                group_type=self.group_type,
            )
            for group in committed.of_type(self.by_id, self.group_class)
            if (state := group.state_name) and (not states or self.filter_name(state) in states)
        ]

    def filter_name(self, state: str) -> str:
        """Name of a state in the filters of ListGroups."""
        return state.lower()

    def topics_changed(self, names: Iterable[str]) -> None:
        """Makes the next heartbeat of each group that subscribes to these topics look them up again."""
        for group in self.by_id.values():
            if any(map(group.follows_topic, names)):
                group.request_metadata_refresh()

    # The log

    def replay(self, record: LogRecord, now_ms: int) -> None:
        """Applies one record; one with a value creates its group, the tombstone of a group removes it."""
        group_id: str = record.key.group_id  # type: ignore[attr-defined]  # every key has it
        group = self.by_id.get(group_id)
        if record.value is None and isinstance(record.key, self.group_class.record_types.group):
            self.remove(group_id)
            return
        if group is None:
            if record.value is None:
                return
            group = self.by_id[group_id] = self.make(group_id, self.soft_state_of(group_id))
            self.keep_soft_state(group)
        group.replay(record, now_ms)

    def remove(self, group_id: str) -> None:
        """Forgets a group, if there is one."""
        self.by_id.pop(group_id, None)
        self._soft_states.pop(group_id, None)

    def restore(self, group: AnyGroup) -> None:
        """Puts back a group that was removed before its tombstones failed to be appended."""
        self.by_id[group.group_id] = group
        self.keep_soft_state(group)

    # Time

    def schedule_loaded(self, now_ms: int) -> None:
        """Starts the timers of all groups, which were loaded: sessions, and rebalance timeouts of revoking members."""
        for group_id, group in self.by_id.items():
            session_timeout_ms = self.settings_of(group_id).session_timeout_ms
            for member_id, member in group.members.items():
                group.timers.schedule(TimerKind.SESSION, member_id, now_ms + session_timeout_ms)
                group.await_revocation(member, now_ms)

    def wake_ms(self, group_id: str) -> int | None:
        """Time of a group's next timer, in ms since the epoch; None for no timer.

        A group whose first records could not be appended has timers, too.
        """
        soft_state = self._soft_states.get(group_id)
        return None if soft_state is None else soft_state.timers.wake_ms

    def expire_due(self, group_id: str, now_ms: int) -> GroupResult | None:
        """Runs the timer of a group that is due first, which has an effect; None if there is none.

        Each timer is a write of its own, as in Kafka, and raises the group epoch: `wake_ms` is still due for the next.
        """
        soft_state, group = self._soft_states.get(group_id), self.by_id.get(group_id)
        if soft_state is None:
            return None
        while (due := soft_state.timers.pop_due(now_ms)) is not None:
            result = None if group is None else self.run_timer(group, due, now_ms)
            if result is not None:
                return result
        if group is None and soft_state.timers.wake_ms is None:
            del self._soft_states[group_id]
        return None

    def run_timer(self, group: AnyGroup, due: DueTimer, now_ms: int) -> GroupResult | None:
        """Fences the member whose timer is due; None if there is nothing to do."""
        return fence_due(group, due, lambda member: self.remove_member(group, member, now_ms))

    @abstractmethod
    def remove_member(self, group: AnyGroup, member: Any, now_ms: int) -> GroupResult:
        """Records that remove a member from a group."""
