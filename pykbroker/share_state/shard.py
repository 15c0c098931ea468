"""The state of the share partitions of one partition of `__share_group_state`, and the decisions about requests.

Records take effect when they are appended, as the next request of a leader may come before they are replicated; the
runtime loads the shard again if it loses the partition, and with it whatever was not replicated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pykbroker.coordination.shard import CoordinatorResult, CoordinatorShard, LoggedRecords
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.share_state_records import ShareSnapshotValue, ShareUpdateValue
from pykbroker.protocol.steps import PIECE, Steps
from pykbroker.share_state.batches import combine_batches
from pykbroker.share_state.records import StateRecord, batch_messages, decode_record, encode_record
from pykbroker.share_state.state import (
    NO_DELIVERY_COMPLETE_COUNT,
    NO_EPOCH,
    UNINITIALIZED_START_OFFSET,
    WRITE_UNINITIALIZED,
    PartitionState,
    Refusal,
    SharePartitionKey,
    StateBatch,
    WriteState,
    batches_of,
)

RECORDS_PER_STEP = 100
"""Records that are made and appended in one step when there are very many: about 1 ms."""

NEGATIVE_PARTITION = "The partition id cannot be a negative number."
READ_UNINITIALIZED = "Read operation on uninitialized share partition not allowed."


class StoredState(NamedTuple):
    """State of a share partition as its records say.

    Attributes:
        snapshot_epoch: number of the last snapshot, from 0.
        created_ms: time of the last snapshot that a request has made.
        written_ms: time of the last snapshot.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int = 0
    written_ms: int = 0


class ShareStateShard(CoordinatorShard[CoordinatorResult]):
    """Share partitions by key.

    Responses are None for success, a `Refusal`, or the state that was read.

    Args:
        updates_per_snapshot: number of updates after which the next record is a snapshot.
        partition_count: returns the number of partitions of the topic with an id; 0 if it does not exist.
    """

    replays_every_record = True

    def __init__(self, updates_per_snapshot: int, partition_count: Callable[[bytes], int]) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self._partition_count = partition_count
        self.states: dict[SharePartitionKey, StoredState] = {}
        self._leader_epochs: dict[SharePartitionKey, int] = {}
        self._state_epochs: dict[SharePartitionKey, int] = {}
        self._update_counts: dict[SharePartitionKey, int] = {}
        self._snapshot_offsets: dict[SharePartitionKey, int] = {}
        self._tombstone_offset = 0

    # The log

    def encode(self, record: StateRecord) -> tuple[bytes, bytes | None]:
        """Key and value as bytes."""
        return encode_record(record)

    def load(self, logged: LoggedRecords, now_ms: int) -> Steps[None]:
        """Replays the records of the log, each in its order."""
        for count, (record, offset) in enumerate(logged.decoded_all(decode_record), 1):
            self.replay(record, offset)
            if not count % PIECE:
                yield

    @property
    def redundant_offset(self) -> int:
        """Offset before which no record is needed any more; 0 if there may be none."""
        return min(self._snapshot_offsets.values(), default=self._tombstone_offset)

    def replay(self, record: StateRecord, offset: int) -> None:
        """Applies one record of the log."""
        key, value = record.key, record.value
        if value is None:
            self._snapshot_offsets.pop(key, None)
            self._tombstone_offset = offset
            for states in (self.states, self._leader_epochs, self._state_epochs, self._update_counts):
                states.pop(key, None)
        elif isinstance(value, ShareSnapshotValue):
            self._snapshot_offsets[key] = offset
            self._leader_epochs[key] = max(self._leader_epochs.get(key, value.leader_epoch), value.leader_epoch)
            self._state_epochs[key] = max(self._state_epochs.get(key, value.state_epoch), value.state_epoch)
            self.states[key] = StoredState(
                value.snapshot_epoch,
                value.state_epoch,
                value.leader_epoch,
                value.start_offset,
                value.delivery_complete_count,
                tuple(batches_of(value)),
                value.create_timestamp,
                value.write_timestamp,
            )
            if self._update_counts.get(key, 0) >= self._updates_per_snapshot:
                self._update_counts[key] = 0
        else:
            self._leader_epochs[key] = max(self._leader_epochs.get(key, value.leader_epoch), value.leader_epoch)
            self.states[key] = _updated(self.states.get(key), value)
            self._update_counts[key] = self._update_counts.get(key, 0) + 1

    def stored(
        self, result: CoordinatorResult, error: ErrorCode, now_ms: int, first_offset: int
    ) -> CoordinatorResult | None:
        """Lets the records of a result take effect, unless their append has failed."""
        if error is ErrorCode.NONE:
            self.appended(result, now_ms, first_offset)
        return None

    def appended(self, result: CoordinatorResult, now_ms: int, first_offset: int) -> None:
        """Lets the records of a result take effect."""
        for offset, record in enumerate(result.records, first_offset):
            self.replay(record, offset)

    def replicated(self, result: CoordinatorResult, now_ms: int, first_offset: int) -> CoordinatorResult | None:
        """Does nothing, as the records have taken effect already."""
        return None

    # Requests

    def initialize(self, now_ms: int, key: SharePartitionKey, state_epoch: int, start_offset: int) -> CoordinatorResult:
        """Creates the state of a share partition or replaces it (InitializeShareGroupState)."""
        refusal = self._check_partition_number(key)
        if refusal is None and self._is_old_state_epoch(key, state_epoch):
            refusal = Refusal(ErrorCode.FENCED_STATE_EPOCH)
        refusal = refusal or self._check_topic(key)
        if refusal is not None:
            return CoordinatorResult(response=refusal)
        has_offset = start_offset != UNINITIALIZED_START_OFFSET
        old = self.states.get(key)
        new = StoredState(
            0 if old is None else old.snapshot_epoch + 1,
            state_epoch,
            0,
            start_offset,
            0 if has_offset else NO_DELIVERY_COMPLETE_COUNT,
            (),
            now_ms,
            now_ms,
        )
        return CoordinatorResult(records=[StateRecord(key, _snapshot(new))])

    def write(self, now_ms: int, key: SharePartitionKey, write: WriteState) -> CoordinatorResult:
        """Stores what has changed of a share partition (WriteShareGroupState)."""
        refusal = self._check_partition_number(key)
        if refusal is None and key not in self.states:
            refusal = Refusal(ErrorCode.INVALID_REQUEST, WRITE_UNINITIALIZED)
        if refusal is None and self._is_old_leader_epoch(key, write.leader_epoch):
            refusal = Refusal(ErrorCode.FENCED_LEADER_EPOCH)
        if refusal is None and self._is_old_state_epoch(key, write.state_epoch):
            refusal = Refusal(ErrorCode.FENCED_STATE_EPOCH)
        refusal = refusal or self._check_topic(key)
        if refusal is not None:
            return CoordinatorResult(response=refusal)
        return CoordinatorResult(records=[self._record(key, write, self.states[key].leader_epoch, now_ms)])

    def read(self, now_ms: int, key: SharePartitionKey, leader_epoch: int) -> CoordinatorResult:
        """The state of a share partition; stores the leader epoch if it is new (ReadShareGroupState)."""
        refusal = self._check_partition_number(key)
        if refusal is None and key not in self.states:
            refusal = Refusal(ErrorCode.INVALID_REQUEST, READ_UNINITIALIZED)
        if refusal is None and self._is_old_leader_epoch(key, leader_epoch):
            refusal = Refusal(ErrorCode.FENCED_LEADER_EPOCH)
        refusal = refusal or self._check_topic(key)
        if refusal is not None:
            return CoordinatorResult(response=refusal)
        state = self.states[key]
        result = CoordinatorResult(response=_answer(state))
        if leader_epoch not in (NO_EPOCH, self._leader_epochs.get(key)):
            count = state.delivery_complete_count
            write = WriteState(state.state_epoch, leader_epoch, state.start_offset, count, ())
            result.records.append(self._record(key, write, leader_epoch, now_ms))
        return result

    def read_summary(self, key: SharePartitionKey) -> PartitionState | Refusal:
        """The state of a share partition without its batches (ReadShareGroupStateSummary)."""
        refusal = self._check_partition_number(key) or self._check_topic(key)
        if refusal is not None:
            return refusal
        state = self.states.get(key)
        if state is None:
            return PartitionState(0, UNINITIALIZED_START_OFFSET, ())
        return _answer(state)._replace(batches=())

    def delete(self, now_ms: int, key: SharePartitionKey) -> CoordinatorResult:
        """Deletes the state of a share partition, if there is one (DeleteShareGroupState)."""
        refusal = self._check_partition_number(key) or self._check_topic(key)
        if refusal is not None or key not in self.states:
            return CoordinatorResult(response=refusal)
        return CoordinatorResult(records=[StateRecord(key, None)])

    # Housekeeping

    def delete_topics(self, topic_ids: Iterable[bytes]) -> list[CoordinatorResult]:
        """Tombstones of the share partitions of deleted topics, in results of `RECORDS_PER_STEP` records."""
        ended = frozenset(topic_ids)
        keys = [key for key in self.states if key.topic_id in ended]
        return [
            CoordinatorResult(records=[StateRecord(key, None) for key in keys[start : start + RECORDS_PER_STEP]])
            for start in range(0, len(keys), RECORDS_PER_STEP)
        ]

    def snapshot_cold(self, interval_ms: int, now_ms: int) -> Iterator[CoordinatorResult]:
        """Snapshots of share partitions without one for `interval_ms`, so that older records can be deleted.

        None are made if this method made the last snapshot of every share partition: nothing was consumed since. Each
        result has up to `RECORDS_PER_STEP` records; other operations may change the states between two results.
        """
        if all(state.created_ms != state.written_ms for state in self.states.values()):
            return
        keys = list(self.states)
        for start in range(0, len(keys), RECORDS_PER_STEP):
            result = CoordinatorResult()
            for key in keys[start : start + RECORDS_PER_STEP]:
                state = self.states.get(key)
                if state is not None and now_ms - state.written_ms >= interval_ms:
                    value = _snapshot(state)
                    value.snapshot_epoch += 1
                    value.write_timestamp = now_ms
                    result.records.append(StateRecord(key, value))
            yield result

    def _record(self, key: SharePartitionKey, write: WriteState, leader_epoch: int, now_ms: int) -> StateRecord:
        """The update for a write or, after enough updates, a snapshot with it."""
        state = self.states[key]
        if self._update_counts.get(key, 0) < self._updates_per_snapshot:
            update = ShareUpdateValue(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=write.start_offset,
                delivery_complete_count=write.delivery_complete_count,
                state_batches=batch_messages(combine_batches((), write.batches, write.start_offset)),
            )
            return StateRecord(key, update)
        start_offset = state.start_offset if write.start_offset == UNINITIALIZED_START_OFFSET else write.start_offset
        new = StoredState(
            state.snapshot_epoch + 1,
            state.state_epoch,
            leader_epoch,
            start_offset,
            write.delivery_complete_count,
            tuple(combine_batches(state.batches, write.batches, start_offset)),
            now_ms,
            now_ms,
        )
        return StateRecord(key, _snapshot(new))

    # Checks

    def _check_partition_number(self, key: SharePartitionKey) -> Refusal | None:
        return Refusal(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION) if key.partition < 0 else None

    def _check_topic(self, key: SharePartitionKey) -> Refusal | None:
        is_there = key.partition < self._partition_count(key.topic_id)
        return None if is_there else Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _is_old_leader_epoch(self, key: SharePartitionKey, epoch: int) -> bool:
        return epoch != NO_EPOCH and self._leader_epochs.get(key, epoch) > epoch

    def _is_old_state_epoch(self, key: SharePartitionKey, epoch: int) -> bool:
        return epoch != NO_EPOCH and self._state_epochs.get(key, epoch) > epoch


def _updated(old: StoredState | None, value: ShareUpdateValue) -> StoredState:
    """The state after an update. Without a snapshot in the log, the update alone makes the state."""
    if old is None:
        batches = tuple(batches_of(value))
        count = value.delivery_complete_count
        return StoredState(value.snapshot_epoch, 0, value.leader_epoch, value.start_offset, count, batches)
    start_offset = old.start_offset if value.start_offset == UNINITIALIZED_START_OFFSET else value.start_offset
    return StoredState(
        old.snapshot_epoch,
        old.state_epoch,
        old.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch,
        start_offset,
        value.delivery_complete_count,
        tuple(combine_batches(old.batches, batches_of(value), start_offset)),
        old.created_ms,
        old.written_ms,
    )


def _snapshot(state: StoredState) -> ShareSnapshotValue:
    return ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=batch_messages(state.batches),
    )


def _answer(state: StoredState) -> PartitionState:
    return PartitionState(
        state.state_epoch, state.start_offset, state.batches, state.delivery_complete_count, state.leader_epoch
    )
