"""One share group (KIP-932): what its records say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pykbroker.groups.modern.group import NO_ASSIGNMENT_EPOCH, ModernGroup
from pykbroker.groups.modern.timers import SoftState
from pykbroker.groups.result import LogRecord
from pykbroker.groups.share.member import ShareMember, with_current_assignment, with_metadata
from pykbroker.protocol.log_messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartitionsInfo,
)

SHARE_GROUP_TYPE = "share"

ShareGroupKey = (
    ShareGroupMemberMetadataKey
    | ShareGroupMetadataKey
    | ShareGroupTargetAssignmentMetadataKey
    | ShareGroupTargetAssignmentMemberKey
    | ShareGroupCurrentMemberAssignmentKey
    | ShareGroupStatePartitionMetadataKey
)


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

    def __init__(self, group_id: str, soft_state: SoftState) -> None:
        super().__init__(group_id, soft_state)
        self.initializing: dict[bytes, TopicState] = {}
        self.initialized: dict[bytes, TopicState] = {}
        self.deleting: frozenset[bytes] = frozenset()
        self.has_state_record = False

    @property
    def state_name(self) -> str:
        """Kafka's name of the state: a share group with members is always Stable."""
        return "Stable" if self.members else "Empty"

    def replay(self, record: LogRecord, now_ms: int) -> None:
        """Applies one record of this group; a tombstone of the group itself is handled by the shard."""
        key, value = record.key, record.value
        if isinstance(key, ShareGroupMemberMetadataKey):
            self._replay_member(key, value)
        elif isinstance(key, ShareGroupCurrentMemberAssignmentKey):
            self._replay_current(key, value)
        elif isinstance(key, ShareGroupTargetAssignmentMemberKey):
            if value is None:
                self.targets.pop(key.member_id, None)
            else:
                assert isinstance(value, ShareGroupTargetAssignmentMemberValue)
                self.targets[key.member_id] = {t.topic_id: frozenset(t.partitions) for t in value.topic_partitions}
        elif isinstance(key, ShareGroupTargetAssignmentMetadataKey):
            if value is None:
                self.assignment_epoch, self.assignment_timestamp_ms = NO_ASSIGNMENT_EPOCH, 0
            else:
                assert isinstance(value, ShareGroupTargetAssignmentMetadataValue)
                self.assignment_epoch = value.assignment_epoch
                self.assignment_timestamp_ms = value.assignment_timestamp
        elif isinstance(key, ShareGroupStatePartitionMetadataKey):
            self._replay_states(value, now_ms)
        elif isinstance(value, ShareGroupMetadataValue):
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _replay_member(self, key: ShareGroupMemberMetadataKey, value: object) -> None:
        if value is None:
            self.remove_member(key.member_id)
            return
        assert isinstance(value, ShareGroupMemberMetadataValue)
        self.replace_member(with_metadata(self.members.get(key.member_id) or ShareMember(key.member_id), value))

    def _replay_current(self, key: ShareGroupCurrentMemberAssignmentKey, value: object) -> None:
        old = self.members.get(key.member_id)
        if value is None:
            if old is not None:
                self.replace_member(with_current_assignment(old, None))
            return
        assert isinstance(value, ShareGroupCurrentMemberAssignmentValue)
        self.replace_member(with_current_assignment(old or ShareMember(key.member_id), value))

    def _replay_states(self, value: object, now_ms: int) -> None:
        self.has_state_record = value is not None
        if value is None:
            self.initializing, self.initialized, self.deleting = {}, {}, frozenset()
            return
        assert isinstance(value, ShareGroupStatePartitionMetadataValue)
        self.initializing = _states(value.initializing_topics, now_ms)
        self.initialized = _states(value.initialized_topics, now_ms)
        self.deleting = frozenset(topic.topic_id for topic in value.deleting_topics)

    def has_unassigned_partitions(self) -> bool:
        """True if initialized partitions of a subscribed topic are not those of the target assignment."""
        if not self.members or not self.initialized or not self.subscriptions.topics:
            return False
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            state.name in self.subscriptions and assigned.get(topic_id, set()) != state.partitions
            for topic_id, state in self.initialized.items()
        )


def _states(topics: Iterable[TopicPartitionsInfo], now_ms: int) -> dict[bytes, TopicState]:
    return {topic.topic_id: TopicState(topic.topic_name, frozenset(topic.partitions), now_ms) for topic in topics}
