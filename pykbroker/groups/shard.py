"""The groups and committed offsets of one partition of `__consumer_offsets`.

A classic group is created by its first join or commit or replayed from the log, and deleted by an administrator, or by
expiry when it is Empty and has no offsets left. Consumer groups are in `consumer/groups.py`, share groups in
`share/groups.py`, Streams groups in `streams/groups.py`; a group id belongs to one group of one type.

This module has the state, how records change it, and the timers. Requests are functions with a shard as their first
argument: `member_requests`, `modern_writes`, `offset_commit`, `offset_fetch`, `offset_delete`, `offset_cleanup`,
`administration`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.coordination.shard import CoordinatorShard, LoggedRecords
from pykbroker.groups.classic import joins, syncs
from pykbroker.groups.classic.group import Group
from pykbroker.groups.classic.members import Waiter
from pykbroker.groups.committed import CommittedGroups, groups_of
from pykbroker.groups.consumer import classic_members
from pykbroker.groups.consumer.group import CONSUMER_GROUP_KEYS, ConsumerGroup
from pykbroker.groups.consumer.groups import ConsumerGroups
from pykbroker.groups.in_flight import InFlight
from pykbroker.groups.offset_log import committed_offset_from, decode_record, encode_record, group_from, group_tombstone
from pykbroker.groups.offsets import CommittedOffset, CommittedOffsets
from pykbroker.groups.pending_offsets import PendingOffsets
from pykbroker.groups.result import (
    AssignmentStored,
    ClassicJoined,
    ClassicTimers,
    EmptyGroupStored,
    GroupResult,
    LogRecord,
    PreparedOffsets,
    PreparedRemovals,
    StaticMemberStored,
)
from pykbroker.groups.share.group import SHARE_GROUP_KEYS, ShareGroup
from pykbroker.groups.share.groups import ShareGroups
from pykbroker.groups.streams.group import STREAMS_GROUP_KEYS, Matched, StreamsGroup
from pykbroker.groups.streams.groups import StreamsGroups
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
from pykbroker.protocol.messages.join_group import JoinGroupResponse
from pykbroker.protocol.records.batch import NO_PRODUCER_ID
from pykbroker.protocol.steps import PIECE, Steps


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
        """Ids of unstored groups that have a record in flight; it may still have ids of groups stored since."""
        self._forgotten: list[ConsumerGroup | StreamsGroup | Matched] = []
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
        self._create_group_if_missing(key.group, now_ms)
        self._put_offset(key, committed_offset_from(value, record_offset), producer_id)

    def _create_group_if_missing(self, group_id: str, now_ms: int) -> None:
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

    def _remove_all(self, removed: PreparedRemovals) -> None:
        self.offsets.remove_all(*removed)
        if self.pending:
            for topic, partitions in removed.topics.items():
                for partition in partitions:
                    self.pending.discard((removed.group_id, topic, partition))

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """Applies a producer's marker: its pending offsets become committed offsets or are dropped (P-139).

        An offset that was committed later, outside of the transaction, stays.
        """
        self._hide_groups(self._take_forgotten())
        for group_id, topics in self.pending.end(producer_id).items():
            if is_commit:
                self.offsets.put_newer(group_id, topics)

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
            self._hide_groups(self._take_forgotten())
        if not result.applies_at_append:
            return self._apply_replicated(result, now_ms, first_offset)
        self._apply(result, now_ms, first_offset)
        return self._report(result, ErrorCode.NONE, now_ms)

    def _apply_replicated(self, result: GroupResult, now_ms: int, first_offset: int) -> GroupResult | None:
        """Lets records take effect that do not do so at their append; returns what follows."""
        producer_id = result.producer.producer_id
        if isinstance(result.offsets, PreparedRemovals):
            self._remove_all(result.offsets)
            return self._report(result, ErrorCode.NONE, now_ms)
        if result.offsets is not None:
            self._create_group_if_missing(result.offsets.group_id, now_ms)
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
                        self._create_group_if_missing(group_id, now_ms)
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
                    continue  # a later record has made it a modern group; it took effect when it was appended
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
            self.committed.add(group_id, self._visible_before(group_id, result))
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
        elif not result.have_groups_ended and result.offsets is None:
            for record in filter(_ends_group, result.records):
                self.replay(record, now_ms)
                result.have_groups_ended = True

    def replicated(self, result: GroupResult, now_ms: int, first_offset: int) -> GroupResult | None:
        """Lets the records of `appended` take effect, as `stored` does."""
        self.in_flight.remove(result)
        self._hide_groups(result.forgotten)
        for group_id in result.changed_groups:
            self.committed.remove(group_id)
        if result.applies_at_append:
            return self._report(result, ErrorCode.NONE, now_ms)
        return self._apply_replicated(result, now_ms, first_offset)

    def forget(self, group: ConsumerGroup | StreamsGroup) -> None:
        """Forgets an empty group without tombstones; the log still has it, and its committed offsets stay (P-381)."""
        self.consumer.remove(group.group_id)
        self.streams.remove(group.group_id)
        self.committed.add(group.group_id, group)
        self._forgotten.append(group)

    def show_later(self, matched: Matched) -> None:
        """Shows the topology that a heartbeat has matched when the next records are replicated, as in Kafka (P-217)."""
        self._forgotten.append(matched)

    def _take_forgotten(self) -> list[ConsumerGroup | StreamsGroup | Matched]:
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def _hide_groups(self, forgotten: Iterable[ConsumerGroup | StreamsGroup | Matched]) -> None:
        """Hides forgotten groups from readers, too, and shows matched topologies."""
        for group in forgotten:
            if isinstance(group, Matched):
                group.show()
            else:
                self.committed.remove(group.group_id)

    def _restore_forgotten(self) -> None:
        """Restores the groups that were removed since the last append: as in Kafka, a failed append undoes that."""
        for group in self._take_forgotten():
            if isinstance(group, Matched):
                self._forgotten.append(group)
                continue
            self.committed.remove(group.group_id)
            if self.any_group(group.group_id) is None:
                self._restore(group)

    def _restore(self, group: object) -> None:
        if isinstance(group, StreamsGroup):
            self.streams.restore(group)
        else:
            assert isinstance(group, ConsumerGroup)
            self.consumer.restore(group)

    def _visible_before(self, group_id: str, result: GroupResult) -> object | None:
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

    # Groups

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

    def is_hidden(self, group: Group) -> bool:
        """True for a group without a stored record; another one with its id may have been deleted just now."""
        return group.group_id in self._unstored and self.groups.get(group.group_id) is group

    def unstable_offsets(self, group_id: str) -> Collection[tuple[str, int]]:
        """Topics and partitions of a group whose committed offset an open transaction may change."""
        return {*self.pending.of_group(group_id), *self.in_flight.unstable_of_group(group_id)}

    def committed_group(self, group_id: str) -> object | None:
        """The group of any type with this id for readers, as replicated records say."""
        return self.committed.get(group_id, self._stored_classic(group_id) or self.modern_group(group_id))

    def start_timers(self, timers: ClassicTimers, now_ms: int) -> None:
        """Starts the timers of a classic member of a consumer group, if there still is the group."""
        group = self.consumer.by_id.get(timers.group_id)
        if group is not None:
            classic_members.start_timers(group, timers, now_ms)

    def tombstones(self, group_id: str) -> list[LogRecord]:
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


def _ends_group(record: LogRecord) -> bool:
    """True for the tombstones of a group, which are not those of its committed offsets."""
    return record.value is None and not isinstance(record.key, OffsetCommitKey | LegacyOffsetCommitKey)
