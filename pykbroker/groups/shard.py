"""The groups and committed offsets of one partition of `__consumer_offsets`.

A classic group is created by its first join or commit or replayed from the log, and deleted by an administrator, or by
expiry when it is Empty and has no offsets left. Requests for offsets are in `offset_requests`. Consumer groups are in
`consumer/groups.py`, share groups in `share/groups.py`, Streams groups in `streams/groups.py`; a group id belongs to
one group of one type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from typing import Any

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.coordination.shard import CoordinatorShard, LoggedRecords
from pykbroker.groups.classic import joins, leaves, syncs
from pykbroker.groups.classic.group import EMPTY, GROUP_METADATA_VALUE_VERSION, STABLE, Group
from pykbroker.groups.classic.members import Waiter
from pykbroker.groups.committed import CommittedGroups, groups_of
from pykbroker.groups.consumer import classic_members
from pykbroker.groups.consumer.context import HeartbeatContext
from pykbroker.groups.consumer.group import CONSUMER_GROUP_KEYS, ConsumerGroup
from pykbroker.groups.consumer.groups import ConsumerGroups
from pykbroker.groups.in_flight import InFlight
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.preparation import LARGE, PreparedWrite, prepare_write
from pykbroker.groups.offset_log import (
    committed_offset_from,
    decode_record,
    encode_record,
    group_from,
    group_tombstone,
    offset_tombstones,
    tombstones_in_steps,
)
from pykbroker.groups.offsets import (
    CommittedOffset,
    CommittedOffsets,
    OffsetKey,
    expired_offsets,
    expired_offsets_of_modern,
)
from pykbroker.groups.pending_offsets import PendingOffsets
from pykbroker.groups.result import (
    AssignmentStored,
    ClassicJoined,
    ClassicTimers,
    DeletedTopics,
    EmptyGroupStored,
    FirstAssignment,
    GroupResult,
    Initialization,
    LogRecord,
    PreparedOffsets,
    Requester,
    StaticMemberStored,
    Tombstones,
)
from pykbroker.groups.share.group import SHARE_GROUP_KEYS, ShareGroup
from pykbroker.groups.share.groups import ShareGroups
from pykbroker.groups.streams.group import STREAMS_GROUP_KEYS, StreamsGroup
from pykbroker.groups.streams.groups import StreamsGroups
from pykbroker.java_order import timeline_order
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.log_messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pykbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykbroker.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from pykbroker.protocol.messages.list_groups import ListedGroup
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykbroker.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykbroker.protocol.records.batch import NO_PRODUCER_ID, frames_with
from pykbroker.protocol.steps import PIECE, Steps, finished
from pykbroker.protocol.uuids import uuid_to_text

CLASSIC_GROUP_TYPE = "classic"

TOMBSTONES_PER_STEP = 200
"""Offsets that are looked at, and deleted, in one step when very many expire or a topic is deleted: 1 to 2 ms."""

GROUP_ID_NOT_FOUND_VERSION = 6
"""From this version on DescribeGroups has an error for a missing group, and not just the state Dead (KIP-1043)."""


class GroupShard(CoordinatorShard[GroupResult]):
    """The contents of one partition of `__consumer_offsets`, in memory.

    A result's records are first appended and take effect when they are replicated. `stored` handles both at once, for a
    log with one replica and for an append that failed; `appended`, `late` and `replicated` are the single steps.
    """

    def __init__(
        self, config: BrokerConfig, consumer: ConsumerGroups, share: ShareGroups, streams: StreamsGroups
    ) -> None:
        self.config = config
        self.consumer = consumer
        self.share = share
        self.streams = streams
        self.modern_groups = (consumer, share, streams)
        self._modern_of_key: dict[type, ConsumerGroups | ShareGroups | StreamsGroups] = {
            **dict.fromkeys(CONSUMER_GROUP_KEYS, consumer),
            **dict.fromkeys(SHARE_GROUP_KEYS, share),
            **dict.fromkeys(STREAMS_GROUP_KEYS, streams),
        }
        self.groups: dict[str, Group] = {}
        """Classic groups."""
        self.offsets = CommittedOffsets()
        self.pending = PendingOffsets()
        self.in_flight = InFlight()
        self.committed = CommittedGroups()
        self._joining: dict[Waiter, None] = {}
        """JoinGroup requests to consumer groups whose records are in flight."""
        self._unstored: set[str] = set()
        """Groups that requests have created and that have no stored record yet; they are hidden from readers."""
        self._sent: set[str] = set()
        """Those of them that have a record in flight; ids of stored groups may be left."""
        self._forgotten: list[ConsumerGroup | StreamsGroup] = []
        """Groups that were forgotten after the last append; readers see them until the next one is replicated."""

    def use_config(self, config: BrokerConfig) -> None:
        """Uses other settings of the broker, for all groups and at once."""
        self.config = config
        self.consumer.settings = config.consumer_groups
        self.share.settings = config.share_groups
        self.streams.settings = config.streams_groups

    # The log

    def encode(self, record: LogRecord) -> tuple[bytes, bytes | None]:
        """Key and value as bytes."""
        return encode_record(record)

    def load(self, logged: LoggedRecords, now_ms: int) -> Steps[None]:
        """Replays the records of the log (P-116).

        Offsets of open transactions come last, as pending offsets of their producers (P-142). Records of aborted
        transactions create their groups all the same, unless a later tombstone has deleted the group.
        """
        ends: dict[str, int] = {}
        for count, (record, offset) in enumerate(logged.decoded(logged.last, decode_record), 1):
            self.replay(record, now_ms, offset)
            if not count % PIECE:
                yield
            if record.value is None and isinstance(record.key, GroupMetadataKey):
                ends[record.key.group] = offset
        for producer_id, records in logged.pending.items():
            for count, (record, offset) in enumerate(logged.decoded(records, decode_record), 1):
                self.replay(record, now_ms, offset, producer_id)
                if not count % PIECE:
                    yield
        yield from self.create_missing_groups(now_ms)
        for count, (record, offset) in enumerate(logged.decoded(logged.aborted, decode_record), 1):
            if not count % PIECE:
                yield
            key: Any = record.key
            group_id: str = key.group  # every key has it
            if offset > ends.get(group_id, -1):
                self._get_stored(group_id, now_ms)

    def replay(
        self, record: LogRecord, now_ms: int, record_offset: int = -1, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Applies one record of the log: a later one replaces an earlier one, a tombstone deletes (P-116).

        A commit of a transactional producer becomes pending until its marker (P-139).
        """
        key, value = record.key, record.value
        modern = self._modern_of_key.get(type(key))
        if modern is not None:
            modern.replay(record, now_ms)
            group_id: str = key.group_id  # type: ignore[attr-defined]  # every key of modern groups has it
            if group_id in modern.by_id:
                # A classic group without records, made for offsets that were committed before.
                self.groups.pop(group_id, None)
                self._unstored.discard(group_id)
        elif isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            self._replay_offset(key, value, now_ms, record_offset, producer_id)
        else:
            assert isinstance(key, GroupMetadataKey)
            self._unstored.discard(key.group)
            if value is None:
                self._sent.discard(key.group)
                self.groups.pop(key.group, None)
            else:
                assert isinstance(value, GroupMetadataValue)
                for groups in self.modern_groups:
                    # Kafka's log has no tombstone of an empty group whose last JoinGroup had a stale id (P-381).
                    groups.remove(key.group)
                self.groups[key.group] = group_from(key.group, value, self.config.groups, now_ms)

    def _replay_offset(
        self,
        key: OffsetCommitKey | LegacyOffsetCommitKey,
        value: Message | None,
        now_ms: int,
        record_offset: int,
        producer_id: int,
    ) -> None:
        """Applies the record of a committed offset."""
        if value is None:
            self._remove_offset(key.group, key.topic, key.partition)
            return
        assert isinstance(value, OffsetCommitValue | LegacyOffsetCommitValue)
        self._keep_group(key.group, now_ms)
        self._put_offset(key, committed_offset_from(value, record_offset), producer_id)

    def _keep_group(self, group_id: str, now_ms: int) -> None:
        """Creates the group of a committed offset if it is missing."""
        is_stored = group_id in self.groups and group_id not in self._unstored
        if not (is_stored or self.in_flight.is_ending(group_id)):
            self._get_stored(group_id, now_ms)

    def _put_offset(
        self, key: OffsetCommitKey | LegacyOffsetCommitKey, committed: CommittedOffset, producer_id: int
    ) -> None:
        if producer_id == NO_PRODUCER_ID:
            self.offsets.put(key.group, key.topic, key.partition, committed)
        else:
            self.pending.put(producer_id, (key.group, key.topic, key.partition), committed)

    def _remove_offset(self, group_id: str, topic: str, partition: int) -> None:
        self.offsets.remove(group_id, topic, partition)
        if self.pending:
            self.pending.discard((group_id, topic, partition))

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """Applies a producer's marker: its pending offsets become committed offsets or are dropped (P-139).

        An offset that was committed later, outside of the transaction, stays.
        """
        self._hide(self._take_forgotten())
        for (group_id, topic, partition), committed in self.pending.end(producer_id).items():
            current = self.offsets.get(group_id, topic, partition)
            if is_commit and (current is None or committed.record_offset > current.record_offset):
                self.offsets.put(group_id, topic, partition, committed)

    def create_missing_groups(self, now_ms: int) -> Steps[None]:
        """Creates the missing groups of committed offsets after a replay, even if a group's tombstone came after them.

        A group may have been created again by something that left no record, such as an aborted commit. Offsets without
        a group would never expire and could not be deleted.
        """
        for count, group_id in enumerate(self.offsets.group_ids(), 1):
            self._get_stored(group_id, now_ms)
            if not count % PIECE:
                yield

    def loaded(self, now_ms: int) -> GroupResult:
        """Begins the sessions of all members, and a rebalance of groups with more members than the limit.

        The limit may have been lowered.
        """
        result = GroupResult()
        for groups in self.modern_groups:
            groups.schedule_loaded(now_ms)
        for group in self.groups.values():
            for member in group.members:
                group.schedule_session(member, now_ms)
            if len(group.members) > self.config.groups.max_size:
                group.prepare_rebalance(f"loaded with {len(group.members)} members", now_ms, result)
        return result

    def unload(self, now_ms: int) -> GroupResult:
        """Answers all parked requests with NOT_COORDINATOR, as this broker no longer leads the partition (P-90)."""
        error = JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
        result = GroupResult(replies=[(waiter, error) for waiter in self._joining])
        for group in self.groups.values():
            result.replies += group.unload(now_ms).replies
        return result

    def stored(self, result: GroupResult, error: ErrorCode, now_ms: int, first_offset: int) -> GroupResult | None:
        """Lets the records of a result, in the log from `first_offset` on, take effect; returns what follows.

        With an `error` their append has failed. Commits and tombstones take effect here. The record of a classic group
        describes a state that the group in memory has had already, so it is not replayed.
        """
        if error is not ErrorCode.NONE:
            if result.on_failed_append is not None:
                result.on_failed_append(now_ms)
            self._restore_forgotten()
            return self._report(result, error, now_ms)
        if self._forgotten:
            self._hide(self._take_forgotten())
        if not result.applies_at_append:
            return self._take_effect(result, now_ms, first_offset)
        self._apply(result, now_ms, first_offset)
        return self._report(result, ErrorCode.NONE, now_ms)

    def _take_effect(self, result: GroupResult, now_ms: int, first_offset: int) -> GroupResult | None:
        """Lets records take effect that do not do so at their append; returns what follows."""
        producer_id = result.producer.producer_id
        if result.offsets is not None:
            self._keep_group(result.offsets.group_id, now_ms)
            if isinstance(result.offsets, PreparedOffsets):
                self.offsets.put_all(*result.offsets, first_offset)
            else:
                self.pending.put_all(producer_id, *result.offsets, first_offset)
            return self._report(result, ErrorCode.NONE, now_ms)
        group_id = None  # of the last offset
        for record_offset, record in enumerate(result.records, first_offset):
            key: Any = record.key
            if type(key) is OffsetCommitKey:
                # A request may have thousands of them.
                if record.value is None:
                    self._remove_offset(key.group, key.topic, key.partition)
                else:
                    if key.group != group_id:
                        group_id = key.group
                        self._keep_group(group_id, now_ms)
                    self._put_offset(key, committed_offset_from(record.value, record_offset), producer_id)
                continue
            group_id = None
            if result.have_groups_ended and _ends_group(record):
                continue
            if isinstance(key, GroupMetadataKey) and record.value is not None:
                if self.in_flight.is_ending(key.group):
                    continue  # a later tombstone, which took effect when it was appended
                if key.group in self.groups:
                    self._unstored.discard(key.group)
                    continue
                if self.modern_group(key.group) is not None:
                    continue  # a later record, which took effect when it was appended, has made a modern group of it
            self.replay(record, now_ms, record_offset, producer_id)
        return self._report(result, ErrorCode.NONE, now_ms)

    def _apply(self, result: GroupResult, now_ms: int, first_offset: int) -> None:
        """Lets records of modern groups take effect; they may replace a classic group, or be replaced by one."""
        for record_offset, record in enumerate(result.records, first_offset):
            self.replay(record, now_ms, record_offset)
        downgrade = result.downgrade
        if downgrade is not None:
            from pykbroker.groups.consumer.migration import downgraded_group

            group = self.groups[downgrade.group_id] = downgraded_group(downgrade, self.config.groups, now_ms)
            if downgrade.rebalance_reason is not None:
                group.prepare_rebalance(downgrade.rebalance_reason, now_ms, GroupResult())

    def appended(self, result: GroupResult, now_ms: int, first_offset: int) -> None:
        """Notes that the records of a result are in flight, until `replicated`.

        Those of modern groups and the tombstones of all groups take effect.
        """
        result.changed_groups = groups_of(result, self._unstored)
        for group_id in result.changed_groups:
            self.committed.add(group_id, self._before(group_id, result))
            if group_id in self._unstored:
                self._sent.add(group_id)
        self.in_flight.add(result)
        result.forgotten = self._take_forgotten()
        if isinstance(result.stored, ClassicJoined):
            self._joining[result.stored.waiter] = None
        elif result.stored is not None:
            result.group = self.groups.get(result.stored.group_id)
        if result.applies_at_append:
            self._apply(result, now_ms, first_offset)
        elif not result.have_groups_ended:
            for record in filter(_ends_group, result.records):
                self.replay(record, now_ms)
                result.have_groups_ended = True

    def replicated(self, result: GroupResult, now_ms: int, first_offset: int) -> GroupResult | None:
        """Lets the records of `appended` take effect, as `stored` does."""
        self.in_flight.remove(result)
        self._hide(result.forgotten)
        for group_id in result.changed_groups:
            self.committed.remove(group_id)
        if result.applies_at_append:
            return self._report(result, ErrorCode.NONE, now_ms)
        return self._take_effect(result, now_ms, first_offset)

    def _forget(self, group: ConsumerGroup | StreamsGroup) -> None:
        """Forgets an empty group without tombstones; the log still has it, and its committed offsets stay (P-381)."""
        self.consumer.remove(group.group_id)
        self.streams.remove(group.group_id)
        self.committed.add(group.group_id, group)
        self._forgotten.append(group)

    def _take_forgotten(self) -> list[ConsumerGroup | StreamsGroup]:
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def _hide(self, forgotten: Iterable[ConsumerGroup | StreamsGroup]) -> None:
        """Hides forgotten groups from readers, too."""
        for group in forgotten:
            self.committed.remove(group.group_id)

    def _restore_forgotten(self) -> None:
        """Restores the groups that were removed since the last append: as in Kafka, a failed append undoes that."""
        for group in self._take_forgotten():
            self.committed.remove(group.group_id)
            if self.any_group(group.group_id) is None:
                self._restore(group)

    def _restore(self, group: object) -> None:
        if isinstance(group, StreamsGroup):
            self.streams.restore(group)
        else:
            assert isinstance(group, ConsumerGroup)
            self.consumer.restore(group)

    def _before(self, group_id: str, result: GroupResult) -> object | None:
        """A group as readers may see it before the records of a result are appended."""
        event, group = result.stored, self.modern_group(group_id)
        if isinstance(event, EmptyGroupStored) and event.replaced is not None:
            return event.replaced  # it was removed already
        if group is not None:
            return group.snapshot()
        # Readers see it once its first record, which was appended before, is replicated.
        return self.groups.get(group_id) if group_id in self._sent else self._stored_classic(group_id)

    def late(self, result: GroupResult, error: ErrorCode, now_ms: int) -> GroupResult | None:
        """Answers clients with an error, as the records of `appended` were not replicated in time."""
        event = result.stored
        answer: GroupResult | None
        if isinstance(event, EmptyGroupStored):
            # The group stays with its members and the ids that were given out (P-391).
            answer, group = GroupResult(), self.groups.get(event.group_id)
            if group is not None and group is result.group:
                group.refuse_parked(event.waiter, error, answer)
        else:
            answer = self._report(result, error, now_ms)
        result.stored = None
        return answer

    def _report(self, result: GroupResult, error: ErrorCode, now_ms: int) -> GroupResult | None:
        event = result.stored
        if event is None:
            return None
        if isinstance(event, ClassicJoined):
            self._joining.pop(event.waiter, None)
            if error is not ErrorCode.NONE:
                return joins.refused_join(event.waiter, error)
            if event.timers is not None:
                self.start_timers(event.timers, now_ms)
            return GroupResult(replies=[(event.waiter, event.response)])
        group = self.groups.get(event.group_id)
        if group is None or (result.group is not None and result.group is not group):
            return None
        if isinstance(event, AssignmentStored):
            return syncs.assignment_stored(group, event, error, now_ms)
        if isinstance(event, StaticMemberStored):
            return joins.static_member_stored(group, event, error, now_ms)
        assert isinstance(event, EmptyGroupStored)
        return self._empty_group_stored(group, event, error, now_ms)

    # Requests of members

    def get_or_create(self, group_id: str, now_ms: int) -> Group:
        """The group; created in state Empty if it does not exist."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self.config.groups, now_ms)
            self._unstored.add(group_id)
        return group

    def _get_stored(self, group_id: str, now_ms: int) -> None:
        """As `get_or_create`, for a group that has a stored record; nothing if it is a modern group."""
        if self.modern_group(group_id) is None:
            self.get_or_create(group_id, now_ms)
            self._unstored.discard(group_id)

    def modern_group(self, group_id: str) -> ConsumerGroup | ShareGroup | StreamsGroup | None:
        """The modern group with this id, if there is one."""
        return self.consumer.by_id.get(group_id) or self.share.by_id.get(group_id) or self.streams.by_id.get(group_id)

    def any_group(self, group_id: str) -> Group | ConsumerGroup | ShareGroup | StreamsGroup | None:
        """The group of any type with this id, if there is one."""
        return self.groups.get(group_id) or self.modern_group(group_id)

    def _stored_classic(self, group_id: str) -> Group | None:
        """The classic group, if it exists and is not hidden from readers."""
        return None if group_id in self._unstored else self.groups.get(group_id)

    def _is_hidden(self, group: Group) -> bool:
        """True for a group without a stored record; another one with its id may have been deleted just now."""
        return group.group_id in self._unstored and self.groups.get(group.group_id) is group

    def unstable_offsets(self, group_id: str) -> Collection[tuple[str, int]]:
        """Topics and partitions of a group whose committed offset an open transaction may change."""
        return {*self.pending.of_group(group_id), *self.in_flight.unstable_of_group(group_id)}

    def committed_group(self, group_id: str) -> object | None:
        """The group of any type with this id for readers, as replicated records say."""
        return self.committed.get(group_id, self._stored_classic(group_id) or self.modern_group(group_id))

    def join(self, now_ms: int, request: JoinGroupRequest, requester: Requester, waiter: Waiter) -> GroupResult:
        """Handles JoinGroup; one without a member id creates the group if it does not exist."""
        consumer_group = self.consumer.by_id.get(request.group_id)
        if consumer_group is not None and consumer_group.members:
            return self._join_consumer_group(consumer_group, request, requester, waiter, now_ms)
        streams_group = self.streams.by_id.get(request.group_id)
        if request.group_id in self.share.by_id or (streams_group is not None and streams_group.members):
            return joins.refused_join(waiter, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_new = request.group_id not in self.groups
        replaced = consumer_group or streams_group
        if is_new and request.member_id != "":
            if replaced is not None:
                self._forget(replaced)
            return joins.refused_join(waiter, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        tombstones = [] if replaced is None else self._tombstones(request.group_id)
        self.consumer.remove(request.group_id)
        self.streams.remove(request.group_id)
        group = self.get_or_create(request.group_id, now_ms)
        result = joins.join(group, request, requester, waiter, now_ms)
        if is_new and not result.records:
            # Stores the group for a later coordinator, even if all it has is a member id that was given out.
            value = GroupMetadataValue(current_state_timestamp=now_ms, protocol=None, leader=None)
            key = GroupMetadataKey(group=group.group_id)
            result.records += [*tombstones, LogRecord(key, value, GROUP_METADATA_VALUE_VERSION)]
            result.stored = EmptyGroupStored(group.group_id, waiter, replaced)
            result.have_groups_ended = replaced is not None
        return result

    def _join_consumer_group(
        self, group: ConsumerGroup, request: JoinGroupRequest, requester: Requester, waiter: Waiter, now_ms: int
    ) -> GroupResult:
        context = HeartbeatContext(
            self.consumer.settings_of(group.group_id),
            self.consumer.topics,
            now_ms,
            requester.client_id,
            requester.client_host,
            requester.may_describe,
        )
        try:
            new_member_id = uuid_to_text(requester.fresh_uuid)
            return classic_members.join(group, request, requester.api_version, new_member_id, waiter, context)
        except GroupError as error:
            return joins.refused_join(waiter, error.error_code)

    def sync(self, now_ms: int, request: SyncGroupRequest, waiter: Waiter) -> GroupResult:
        """Handles SyncGroup; UNKNOWN_MEMBER_ID if the group is missing or Empty."""
        group = self.groups.get(request.group_id)
        if group is None or group.state is EMPTY:
            return self._sync_consumer_group(request, waiter, now_ms)
        return syncs.sync(group, request, waiter)

    def _sync_consumer_group(self, request: SyncGroupRequest, waiter: Waiter, now_ms: int) -> GroupResult:
        consumer_group, code = self.consumer.by_id.get(request.group_id), ErrorCode.UNKNOWN_MEMBER_ID
        if consumer_group is not None and consumer_group.members:
            try:
                return classic_members.sync(consumer_group, request, waiter, self.consumer.topics, now_ms)
            except GroupError as error:
                code = error.error_code
        response = SyncGroupResponse(error_code=code)
        return GroupResult(response=response, replies=[(waiter, response)])

    def start_timers(self, timers: ClassicTimers, now_ms: int) -> None:
        """Starts the timers of a classic member of a consumer group, if there still is the group."""
        group = self.consumer.by_id.get(timers.group_id)
        if group is not None:
            classic_members.start_timers(group, timers, now_ms)

    def refuse_parked(self, group_id: str, waiter: Waiter, error: ErrorCode) -> GroupResult:
        """Answers a request that still waits in a classic group with the error; its member goes on waiting (P-391)."""
        result, group = GroupResult(), self.groups.get(group_id)
        if group is not None:
            group.refuse_parked(waiter, error, result)
        return result

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        """Handles Heartbeat, which changes only a timer."""
        consumer_group = self.consumer.by_id.get(request.group_id)
        if consumer_group is not None:
            try:
                return classic_members.heartbeat(consumer_group, request, now_ms)
            except GroupError as error:
                return error.error_code
        group = self.groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return group.heartbeat(request.member_id, request.group_instance_id, request.generation_id, now_ms)

    def leave(self, now_ms: int, request: LeaveGroupRequest) -> GroupResult:
        """Handles LeaveGroup in the form of version 3: identities in `members`."""
        consumer_group = self.consumer.by_id.get(request.group_id)
        if consumer_group is not None:
            settings = self.consumer.settings_of(request.group_id)
            return classic_members.leave(consumer_group, request, settings, self.consumer.topics, now_ms)
        group = self.groups.get(request.group_id)
        if group is not None:
            responses, result = leaves.leave(group, request.members, now_ms)
            result.response = LeaveGroupResponse(members=responses)
            return result
        error = ErrorCode.UNKNOWN_MEMBER_ID
        unknown = [
            MemberResponse(member_id=m.member_id, group_instance_id=m.group_instance_id, error_code=error)
            for m in request.members
        ]
        return GroupResult(response=LeaveGroupResponse(members=unknown))

    def consumer_heartbeat(
        self,
        now_ms: int,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        may_describe: Callable[[str], bool],
        prepared: PreparedWrite | None = None,
    ) -> GroupResult:
        """Handles ConsumerGroupHeartbeat, which was checked and has a member id.

        `prepared` is the result of `prepare_consumer_heartbeat` with the same arguments.
        """
        group_id = request.group_id
        if prepared is not None:
            if prepared.is_current(self.any_group(group_id), self.consumer):
                self.consumer.keep_soft_state(prepared.group)
                return prepared.result
            self.consumer.give_up(prepared)
        context = self.consumer.context(group_id, now_ms, client_id, client_host, may_describe)
        try:
            result = self.consumer.heartbeat(request, self.any_group(group_id), context)
        except GroupError as error:
            response = ConsumerGroupHeartbeatResponse(error_code=error.error_code, error_message=error.message)
            result = GroupResult(response=response, replies=list(error.replies))
        result.regex_refresh = context.regex_refresh
        return result

    def prepare_consumer_heartbeat(
        self, clock_ms: Callable[[], int], request: ConsumerGroupHeartbeatRequest, *client: Any
    ) -> Steps[PreparedWrite | None]:
        """Computes a heartbeat in steps, as far as it can be; see `prepare_write`.

        `client` are the arguments of `consumer_heartbeat` that describe the client.
        """
        consumer, is_joining = self.consumer, request.member_epoch == 0
        return prepare_write(
            consumer,
            request.group_id,
            self.any_group,
            clock_ms,
            consumer.beat,
            (request, *client),
            is_joining=is_joining,
        )

    def is_long_consumer_heartbeat(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> bool:
        """True for a heartbeat that should be prepared: it changes a member of a large group."""
        if request.member_epoch < 0:
            return False
        group = self.consumer.by_id.get(request.group_id)
        if not _is_large(group, request.subscribed_topic_names):
            return False
        return group is None or not self.consumer.is_steady(group, request, now_ms)

    def prepare_share_heartbeat(
        self, clock_ms: Callable[[], int], request: ShareGroupHeartbeatRequest, *client: Any
    ) -> Steps[PreparedWrite | None]:
        """As `prepare_consumer_heartbeat`, for ShareGroupHeartbeat."""
        share, is_joining = self.share, request.member_epoch == 0
        return prepare_write(
            share, request.group_id, self.any_group, clock_ms, share.beat, (request, *client), is_joining=is_joining
        )

    def prepare_share_initialized(
        self, clock_ms: Callable[[], int], done: Initialization
    ) -> Steps[PreparedWrite | None]:
        """Computes in steps that share partitions are initialized, as far as that can be; see `prepare_write`."""
        share = self.share
        return prepare_write(
            share, done.group_id, self.any_group, clock_ms, share.initialized_in, (done,), is_joining=False
        )

    def share_initialized(
        self, now_ms: int, done: Initialization, prepared: PreparedWrite | None = None
    ) -> GroupResult:
        """Notes share partitions as initialized; `prepared` is the result of `prepare_share_initialized`."""
        if prepared is not None and prepared.is_current(self.any_group(done.group_id), self.share):
            return prepared.result
        return self.share.initialized(done, now_ms)

    def prepare_forgetting_topics(
        self, clock_ms: Callable[[], int], deleted: DeletedTopics
    ) -> Steps[PreparedWrite | None]:
        """Computes in steps that a share group forgets deleted topics, as far as that can be; see `prepare_write`."""
        share = self.share
        return prepare_write(
            share, deleted.group_id, self.any_group, clock_ms, share.forget_topics_of, (deleted,), is_joining=False
        )

    def forget_topics(self, now_ms: int, deleted: DeletedTopics, prepared: PreparedWrite | None = None) -> GroupResult:
        """Removes deleted topics from a share group's states; `prepared` is that of `prepare_forgetting_topics`."""
        if prepared is not None and prepared.is_current(self.any_group(deleted.group_id), self.share):
            return prepared.result
        return self.share.forget_topics(deleted, now_ms)

    def is_long_share_heartbeat(self, request: ShareGroupHeartbeatRequest) -> bool:
        """True for a heartbeat that should be prepared, as the group is large."""
        group = self.share.by_id.get(request.group_id)
        return request.member_epoch >= 0 and _is_large(group, request.subscribed_topic_names)

    def share_heartbeat(
        self,
        now_ms: int,
        request: ShareGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        prepared: PreparedWrite | None = None,
    ) -> GroupResult:
        """Handles ShareGroupHeartbeat, which was checked.

        `prepared` is the result of `prepare_share_heartbeat` with the same arguments.
        """
        group_id = request.group_id
        if prepared is not None and prepared.is_current(self.any_group(group_id), self.share):
            self.share.keep_soft_state(prepared.group)
            return prepared.result
        context = self.share.context(group_id, now_ms, client_id, client_host)
        try:
            result = self.share.heartbeat(request, self.any_group(group_id), context)
        except GroupError as error:
            response = ShareGroupHeartbeatResponse(error_code=error.error_code, error_message=error.message)
            result = GroupResult(response=response)
        result.initialization = context.initialization
        return result

    def prepare_streams_heartbeat(
        self, clock_ms: Callable[[], int], request: StreamsGroupHeartbeatRequest, *client: Any
    ) -> Steps[PreparedWrite | None]:
        """As `prepare_consumer_heartbeat`, for StreamsGroupHeartbeat."""
        streams, is_joining = self.streams, request.member_epoch == 0
        return prepare_write(
            streams, request.group_id, self.any_group, clock_ms, streams.beat, (request, *client), is_joining=is_joining
        )

    def streams_heartbeat(
        self,
        now_ms: int,
        request: StreamsGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        prepared: PreparedWrite | None = None,
    ) -> GroupResult:
        """Handles StreamsGroupHeartbeat, which was checked.

        `prepared` is the result of `prepare_streams_heartbeat` with the same arguments.
        """
        group_id = request.group_id
        group = self.any_group(group_id)
        context = self.streams.context(group_id, now_ms, client_id, client_host)
        try:
            if prepared is not None and prepared.is_current(group, self.streams):
                result = self.streams.finish_beat(prepared, request, context)
            else:
                result = self.streams.heartbeat(request, group, context)
        except GroupError as error:
            response = StreamsGroupHeartbeatResponse(error_code=error.error_code, error_message=error.message)
            return GroupResult(response=response)
        result.missing_topics = context.missing_topics
        return result

    def prepare_first_assignment(
        self, clock_ms: Callable[[], int], wanted: FirstAssignment
    ) -> Steps[PreparedWrite | None]:
        """Computes the first assignment of a Streams group in steps, as far as that can be; see `prepare_write`."""
        streams = self.streams
        return prepare_write(
            streams, wanted.group_id, self.any_group, clock_ms, streams.assign_first, (wanted,), is_joining=False
        )

    def first_assignment(
        self, now_ms: int, wanted: FirstAssignment, prepared: PreparedWrite | None = None
    ) -> GroupResult:
        """The first assignment of a Streams group; `prepared` is the result of `prepare_first_assignment`."""
        if prepared is not None and prepared.is_current(self.any_group(wanted.group_id), self.streams):
            return prepared.result
        group = self.streams.by_id.get(wanted.group_id)
        return GroupResult() if group is None else finished(self.streams.assign_first(group, now_ms, wanted))

    # Administration

    def describe(self, group_id: str, api_version: int) -> DescribedGroup:
        """A group for DescribeGroups; subscriptions are shown only while it is Stable (P-106)."""
        group = self.committed_group(group_id)
        if not isinstance(group, Group):
            missing = DescribedGroup(group_id=group_id, group_state="Dead")
            if api_version >= GROUP_ID_NOT_FOUND_VERSION:
                missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                reason = "not found." if group is None else "is not a classic group."
                missing.error_message = f"Group {group_id} {reason}"
            return missing
        is_stable = group.state is STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if is_stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members
            ],
        )

    def listed(self, states: set[str], types: set[str]) -> list[ListedGroup]:
        """Groups whose state and type are among the lower-case names given; an empty set takes all (P-106).

        In the order of Kafka's table of groups of all types (P-615).
        """
        count = len(self.groups) + sum(len(groups.by_id) for groups in self.modern_groups)
        found = {group.group_id: group for group in self._listed(states, types)}
        return [found[group_id] for group_id in timeline_order(found, count)]

    def _listed(self, states: set[str], types: set[str]) -> list[ListedGroup]:
        modern = [listed for groups in self.modern_groups for listed in groups.listed(self.committed, states, types)]
        if types and CLASSIC_GROUP_TYPE not in types:
            return modern
        return modern + [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC_GROUP_TYPE,
            )
            for group in self.committed.of_type(self.groups, Group)
            if not self._is_hidden(group) and (not states or group.state.value.lower() in states)
        ]

    def prepare_deletion(self, group_id: str) -> Steps[Tombstones | None]:
        """The tombstones of a group's offsets, encoded in steps; None if these are few.

        The group may change between the steps: `delete` takes them if its offsets are the same then.
        """
        offsets = self._offsets_of(group_id)
        return None if len(offsets) <= PIECE else (yield from tombstones_in_steps(offsets))

    def _offsets_of(self, group_id: str) -> list[OffsetKey]:
        """The offsets of a group that are committed, pending or in flight, each once."""
        committed = self.offsets.of_group(group_id)
        found = {(topic, partition): None for topic, partitions in committed.items() for partition in partitions}
        # Pending ones too: the end of their transaction must not bring the group back.
        found.update(dict.fromkeys(self.pending.of_group(group_id)))
        found.update(dict.fromkeys(self.in_flight.of_group(group_id)))
        return [(group_id, topic, partition) for topic, partition in found]

    def delete(self, group_id: str, tombstones: Tombstones | None = None) -> GroupResult:
        """Deletes an Empty group with all its offsets (P-107); the response is an error code.

        `tombstones` is the result of `prepare_deletion`.
        """
        group, modern_group = self.groups.get(group_id), self.modern_group(group_id)
        if group is None and modern_group is None:
            return GroupResult(response=ErrorCode.GROUP_ID_NOT_FOUND)
        if (group is not None and group.state is not EMPTY) or (modern_group is not None and modern_group.members):
            return GroupResult(response=ErrorCode.NON_EMPTY_GROUP)
        offsets, ends = self._offsets_of(group_id), self._tombstones(group_id)
        if tombstones is not None and tombstones.offsets == offsets:
            frames = frames_with(tombstones.frames, map(encode_record, ends))
            return GroupResult(records=[*tombstones.records, *ends], response=ErrorCode.NONE, frames=frames)
        return GroupResult(records=[*offset_tombstones(offsets), *ends], response=ErrorCode.NONE)

    def _tombstones(self, group_id: str) -> list[LogRecord]:
        """Tombstones of a group, without those of its offsets."""
        for groups in self.modern_groups:
            if group_id in groups.by_id:
                return groups.tombstones(group_id)
        return [group_tombstone(group_id)]

    # Time

    def timer_keys(self) -> Iterable[str]:
        """Ids of all groups."""
        return [*self.groups, *(group_id for groups in self.modern_groups for group_id in groups.by_id)]

    def wake_ms(self, key: str) -> int | None:
        """Time of the group's next timer, in ms since the epoch; None for no timer or no such group."""
        group = self.groups.get(key)
        if group is not None:
            return group.wake_ms
        times_ms = (groups.wake_ms(key) for groups in self.modern_groups)
        return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)

    def expire_due(self, key: str, now_ms: int) -> GroupResult | None:
        """Expires the sessions and rebalance phases of a group that are due."""
        group = self.groups.get(key)
        if group is not None:
            return group.expire_due(now_ms)
        # Types that do not have the group may have timers of it, from a first heartbeat that was not stored.
        results = [groups.expire_due(key, now_ms) for groups in self.modern_groups]
        return next((result for result in results if result is not None), None)

    @property
    def has_offsets_to_expire(self) -> bool:
        """True if there is a group whose committed offsets can expire."""
        return bool(self.groups or self.consumer.by_id or self.streams.by_id)

    def expire_offsets(self, now_ms: int) -> Iterator[GroupResult]:
        """Tombstones of expired offsets, and of Empty groups that have none left (P-114).

        Neither is deleted while a commit for it is pending or in flight. There may be very many: each result is to be
        carried out before the next one is asked for, and between two of them others may change the groups.
        """
        result = GroupResult()
        looked_at = 0
        retention_ms = self.config.groups.offsets_retention_minutes * 60_000
        groups: list[Group | ConsumerGroup | StreamsGroup] = [
            *self.groups.values(),
            *self.consumer.by_id.values(),
            *self.streams.by_id.values(),
        ]
        for group in groups:
            if looked_at >= TOMBSTONES_PER_STEP:
                yield result
                result, looked_at = GroupResult(), 0
            group_id = group.group_id
            ended: set[tuple[str, int]] = set()  # offsets whose tombstones are in `result`
            looked_at += 1
            for topics in self.offsets.pieces_of_group(group_id, TOMBSTONES_PER_STEP):
                if looked_at >= TOMBSTONES_PER_STEP:
                    yield result
                    result, looked_at = GroupResult(), 0
                    ended.clear()
                if self.any_group(group_id) is not group:
                    break
                looked_at += sum(map(len, topics.values()))
                expired = self._expired(group, self.offsets.unchanged(group_id, topics), now_ms, retention_ms)
                result.records += offset_tombstones((group_id, *partition) for partition in expired)
                ended.update(expired)
            is_empty = group.state is EMPTY if isinstance(group, Group) else not group.members
            if is_empty and self.any_group(group_id) is group and self._may_end(group_id, ended):
                result.records += self._tombstones(group_id)
        yield result

    def _expired(
        self,
        group: Group | ConsumerGroup | StreamsGroup,
        topics: dict[str, dict[int, CommittedOffset]],
        now_ms: int,
        retention_ms: int,
    ) -> list[tuple[str, int]]:
        """Those of a group's offsets that have expired and for which nothing is pending or in flight."""
        group_id = group.group_id
        if isinstance(group, Group):
            found = expired_offsets(group, topics, now_ms, retention_ms)
        else:
            found = expired_offsets_of_modern(group, topics, now_ms, retention_ms)
        return [
            (topic, partition)
            for topic, partition in found
            if (group_id, topic, partition) not in self.pending and (group_id, topic, partition) not in self.in_flight
        ]

    def _may_end(self, group_id: str, ended: Container[tuple[str, int]]) -> bool:
        """True if a group has no offsets but those in `ended` and those whose tombstones are in flight."""
        in_flight = self.in_flight
        return (
            all(
                (topic, partition) in ended or in_flight.is_tombstone((group_id, topic, partition))
                for topic, partitions in self.offsets.of_group(group_id).items()
                for partition in partitions
            )
            and not self.pending.of_group(group_id)
            and all(in_flight.is_tombstone((group_id, *partition)) for partition in in_flight.of_group(group_id))
        )

    def delete_topics(self, topics: dict[str, bytes], *, in_turns: bool = False) -> Iterator[GroupResult]:
        """Tombstones of the offsets of deleted topics (name to id); offsets without a topic id are matched by name.

        As in Kafka, a partition has one for its committed offset and one for the pending offset of each producer. Each
        result must be carried out before the next one is asked for. Offsets that are committed after the call stay: a
        topic may have been created again. With `in_turns` the first result has the tombstones of offsets that are
        pending or in flight, and no others: it must be carried out at once, before any commit for a new topic.
        """
        pieces = self.offsets.pieces_of_topics(topics, TOMBSTONES_PER_STEP)
        others = [key for key, committed in self.pending.of_topics(topics) if committed.may_be_of(topics[key[1]])]
        known = set(others)
        for key in self.in_flight.of_topics(topics):
            committed = self.offsets.get(*key)
            is_known = committed is not None and committed.may_be_of(topics[key[1]])
            if not is_known and key not in known:
                others.append(key)
        return self._deleted(topics, pieces, others, in_turns)

    def _deleted(
        self,
        topics: dict[str, bytes],
        pieces: Iterable[tuple[str, str, list[tuple[int, CommittedOffset]]]],
        others: list[OffsetKey],
        in_turns: bool,
    ) -> Iterator[GroupResult]:
        result = GroupResult()
        if in_turns:
            yield GroupResult(records=offset_tombstones(others))
            others = []
        for group_id, topic, partitions in pieces:
            if len(result.records) + len(partitions) > TOMBSTONES_PER_STEP and result.records:
                result.records += offset_tombstones(others)
                others = []
                yield result
                result = GroupResult()
            current = self.offsets.of_group(group_id).get(topic, {})
            result.records += offset_tombstones(
                (group_id, topic, partition)
                for partition, committed in partitions
                if committed.may_be_of(topics[topic]) and current.get(partition) is committed
            )
        result.records += offset_tombstones(others)
        yield result

    def _empty_group_stored(
        self, group: Group, event: EmptyGroupStored, error: ErrorCode, now_ms: int
    ) -> GroupResult | None:
        if error is ErrorCode.NONE:
            return None
        del self.groups[group.group_id]
        self._unstored.discard(group.group_id)
        if event.replaced is not None:
            self._restore(event.replaced)
        answer = GroupResult()
        group.refuse_parked(event.waiter, error, answer)
        answer.replies += group.unload(now_ms, error).replies
        return answer


def _is_large(group: ConsumerGroup | ShareGroup | None, names: Collection[str] | None) -> bool:
    """True if a group, or the topics that a member subscribes to, are so many that a heartbeat may take long."""
    if names is not None and len(names) > LARGE:
        return True
    if group is None:
        return False
    subscriptions = group.subscriptions
    return len(group.members) + len(subscriptions.by_name) + len(subscriptions.by_regex) > LARGE


def _ends_group(record: LogRecord) -> bool:
    """True for the tombstones of a group, which are not those of its committed offsets."""
    return record.value is None and not isinstance(record.key, OffsetCommitKey | LegacyOffsetCommitKey)
