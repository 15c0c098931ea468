"""One share group (KIP-932): the state in its records."""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.coordination.coordinator_records import key_types
from pykbroker.groups.modern.group import ModernGroup
from pykbroker.groups.modern.records import RecordTypes
from pykbroker.groups.modern.timers import SoftState
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import LogRecord
from pykbroker.groups.share.member import ShareMember
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.log_messages import share_group_records
from pykbroker.protocol.log_messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartitionsInfo,
)
from pykbroker.protocol.steps import PIECE, Steps

SHARE_GROUP_TYPE = "share"

RECORD_TYPES = RecordTypes(
    group=ShareGroupMetadataKey,
    member=ShareGroupMemberMetadataKey,
    current=ShareGroupCurrentMemberAssignmentKey,
    target=ShareGroupTargetAssignmentMemberKey,
    target_epoch=ShareGroupTargetAssignmentMetadataKey,
    target_epoch_value=ShareGroupTargetAssignmentMetadataValue,
)

SHARE_GROUP_KEYS = key_types(share_group_records)
"""Keys of the records of share groups."""


class TopicState(NamedTuple):
    """Partitions of a topic whose state in the share coordinator has the same progress, and since when."""

    name: str
    partitions: frozenset[int]
    timestamp_ms: int


class ShareGroup(ModernGroup[ShareMember]):
    """A share group; `replay` is the only way to change what its records say.

    Attributes:
        initializing: topic id -> partitions that the share coordinator was asked to initialize.
        initialized: topic id -> partitions that it has initialized; only these are assigned.
        deleting: ids of topics that it was asked to forget.
    """

    record_types = RECORD_TYPES
    member_type = ShareMember

    def __init__(self, group_id: str, soft_state: SoftState) -> None:
        super().__init__(group_id, soft_state)
        self.initializing: dict[bytes, TopicState] = {}
        self.initialized: dict[bytes, TopicState] = {}
        self.deleting: frozenset[bytes] = frozenset()
        self.has_state_record = False
        # `changes` at the last `_find_unassigned`, and its result.
        self._unassigned = (-1, False)
        # Numbers of changes, of the group and of the topics, after which no state was missing.
        self._complete = (-1, -1)

    @property
    def state_name(self) -> str:
        """Kafka's name of the state: a share group with members is always Stable."""
        return "Stable" if self.members else "Empty"

    def replay_other(self, record: LogRecord, now_ms: int) -> None:
        """Applies the record of the topics' states."""
        value = record.value
        assert isinstance(record.key, ShareGroupStatePartitionMetadataKey)
        self.has_state_record = value is not None
        if value is None:
            self.initializing, self.initialized, self.deleting = {}, {}, frozenset()
            return
        assert isinstance(value, ShareGroupStatePartitionMetadataValue)
        if record.state is None:
            self.initializing = _states(value.initializing_topics, now_ms)
            self.initialized = _states(value.initialized_topics, now_ms)
        else:
            self.initializing, self.initialized = record.state
        self.deleting = frozenset(topic.topic_id for topic in value.deleting_topics)

    def has_state_of(self, topic_ids: frozenset[bytes]) -> bool:
        """True if the group's states have one of these topics."""
        return not (
            topic_ids.isdisjoint(self.initialized)
            and topic_ids.isdisjoint(self.initializing)
            and topic_ids.isdisjoint(self.deleting)
        )

    def has_all_states(self, topics: GroupTopics) -> bool:
        """True if nothing has changed since `note_all_states`."""
        return self._complete == (self.changes, topics.changes)

    def note_all_states(self, topics: GroupTopics) -> None:
        """Notes that the partitions of all subscribed topics are initialized."""
        self._complete = self.changes, topics.changes

    def has_unassigned_partitions(self) -> Steps[bool]:
        """True if initialized partitions of a subscribed topic are not those of the target assignment."""
        if not self.members or not self.initialized:
            return False
        # Each heartbeat asks, most often with nothing changed since the last one.
        changes, answer = self._unassigned
        if changes != self.changes:
            answer = yield from self._find_unassigned()
            self._unassigned = self.changes, answer
        return answer

    def _find_unassigned(self) -> Steps[bool]:
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for count, (topic_id, partitions) in enumerate(target.items(), 1):
                assigned.setdefault(topic_id, set()).update(partitions)
                if not count % PIECE:
                    yield
        for count, (topic_id, state) in enumerate(self.initialized.items(), 1):
            if state.name in self.subscriptions and assigned.get(topic_id, set()) != state.partitions:
                return True
            if not count % PIECE:
                yield
        return False


def _states(topics: Iterable[TopicPartitionsInfo], now_ms: int) -> dict[bytes, TopicState]:
    return {topic.topic_id: TopicState(topic.topic_name, frozenset(topic.partitions), now_ms) for topic in topics}
