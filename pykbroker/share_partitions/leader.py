"""The leader of one share partition: its state machine, the writes to the share coordinator, and the waiting requests.

Acknowledgements and releases are in effect when the share coordinator has stored them. Writes are made one at a time,
in order; changes that come meanwhile go into the next write.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import trio

from pykbroker.completion import Completion
from pykbroker.config.durations import duration_ms
from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.replication.offset_waiters import OffsetWaiter
from pykbroker.replication.partition import FetchBound
from pykbroker.share_partitions import acknowledgement
from pykbroker.share_partitions.settings import BY_DURATION, EARLIEST, LATEST, SharePartitionSettings
from pykbroker.share_partitions.share_partition import Change, InvalidState, SharePartition
from pykbroker.share_partitions.waiters import ShareWaiters
from pykbroker.share_state.state import (
    UNINITIALIZED_START_OFFSET,
    PartitionState,
    Refusal,
    SharePartitionKey,
    StateBatch,
    WriteState,
)

if TYPE_CHECKING:
    from pykbroker.replication.partition import Partition
    from pykbroker.share_partitions.acknowledgement import AcknowledgedBatch
    from pykbroker.share_state.persister import SharePersister

log = logging.getLogger(__name__)

ERROR_OF_PERSISTER = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""Error for a member, by the error of the share coordinator; UNKNOWN_SERVER_ERROR for others."""

ENDING = frozenset(
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
)
"""Errors after which a share partition must be loaded again."""


class LeaderState(Enum):
    """State of a `ShareLeader`."""

    LOADING = "loading"
    ACTIVE = "active"
    ENDED = "ended"


class Outcome(Completion):
    """Result of an acknowledgement or a release, for the request that waits for it.

    Attributes:
        error: NONE, or the error as a member gets it, with its text.
    """

    __slots__ = ("error", "message")

    def __init__(self) -> None:
        super().__init__()
        self.error = ErrorCode.NONE
        self.message: str | None = None

    def end(self, error: ErrorCode, message: str | None = None) -> None:
        """Completes it."""
        self.error, self.message = error, message
        self.complete()


class QueuedWrite(NamedTuple):
    """State batches to be stored by the share coordinator, with the transitions that the write completes."""

    changes: Sequence[Change]
    stored: Sequence[StateBatch]
    outcome: Outcome | None


class ShareEnvironment(NamedTuple):
    """The parts of the broker that leaders of share partitions use.

    Attributes:
        persister: calls to the share coordinators.
        start_soon: runs a task in the background.
        now_ms: a clock that does not go back, for locks.
        wall_ms: the time of day.
        plan_expiry: notes the time at which a leader's locks expire.
        forget: called with a leader that has ended by itself.
    """

    persister: SharePersister
    start_soon: Callable[[Callable[[], Awaitable[None]]], None]
    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    plan_expiry: Callable[[ShareLeader], None]
    forget: Callable[[ShareLeader], None]


class _LogWaiter(OffsetWaiter):
    """A waiter for new records of a topic partition. It stays registered and calls `notify` each time they come."""

    __slots__ = ("_notify",)

    def __init__(self, notify: Callable[[], None]) -> None:
        super().__init__(0)
        self._notify = notify

    def add(self, size_bytes: int) -> None:
        self._notify()


class ShareLeader:
    """One share partition, from the load of its state until this broker no longer leads the topic partition.

    Args:
        number: its number among the leaders of this broker.
        key: the share partition.
        partition: the topic partition, which this broker leads.
        settings: returns the current settings of the group.
        environment: the parts of the broker that it uses.
        previous: an earlier leader of the same share partition on this broker, whose writes must end first.

    Attributes:
        state: LOADING, ACTIVE or ENDED.
        shares: the state machine; only if ACTIVE.
        load_error: the error of a load that failed.
        waiters: ShareFetch requests that wait for it.
        is_writing: True while a write has not ended.
        looked_up_offset: the offset at which a request has last read the log without getting enough records. A
            partition whose next records are still at it is served before others, as in Kafka.
    """

    def __init__(
        self,
        number: int,
        key: SharePartitionKey,
        partition: Partition,
        settings: Callable[[], SharePartitionSettings],
        environment: ShareEnvironment,
        previous: ShareLeader | None = None,
    ) -> None:
        self.number = number
        self.key = key
        self.partition = partition
        self.settings = settings
        self.state = LeaderState.LOADING
        self.shares: SharePartition
        self.load_error: KafkaError | None = None
        self.waiters = ShareWaiters(self._has_records, self._watch_log)
        self._leadership = partition.leadership
        self._leader_epoch = partition.leader_epoch
        self._environment = environment
        self._previous = previous
        self._queue: list[QueuedWrite] = []
        self.is_writing = False
        self.looked_up_offset = -1
        # Both the registry and a successor wait for it, which a `Completion` does not allow.
        self._idle = trio.Event()
        self._log_waiter = _LogWaiter(self.waiters.notify)
        self._waits_for_stable = False

    def __repr__(self) -> str:
        return f"share partition {self.key.group_id}:{self.partition}"

    @property
    def is_current(self) -> bool:
        """True while this broker leads the topic partition as it did at the beginning."""
        return self.partition.leadership is not None and self.partition.leadership is self._leadership

    # Load and end

    async def load(self) -> None:
        """Reads the stored state; ends with an error if it cannot be read."""
        if self._previous is not None:
            await self._previous.drained()
            self._previous = None
        found = await self._environment.persister.read(self.key, self._leader_epoch)
        if self.state is not LeaderState.LOADING:
            return
        try:
            self.shares = self._share_partition_from(found)
        except KafkaError as error:
            log.warning("%s cannot be loaded: %s", self, error.message or error.error_code.name)
            self.load_error = error
            self.end()
            self._environment.forget(self)
            return
        self.state = LeaderState.ACTIVE
        self.waiters.notify()

    def _share_partition_from(self, found: PartitionState | Refusal) -> SharePartition:
        if isinstance(found, Refusal):
            code = ERROR_OF_PERSISTER.get(found.code, ErrorCode.UNKNOWN_SERVER_ERROR)
            raise KafkaError(code, TEXTS.get(found.code, found.code.name))
        start_offset = found.start_offset
        if start_offset == UNINITIALIZED_START_OFFSET:
            try:
                start_offset = self._first_start_offset()
            except LogError as error:
                raise KafkaError(error_code_for(error), str(error)) from None
        try:
            return SharePartition(self.settings, found.state_epoch, start_offset, found.batches)
        except InvalidState as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None

    def _first_start_offset(self) -> int:
        """The start offset of a share partition without one, by `share.auto.offset.reset`."""
        partition, strategy = self.partition, self.settings().auto_offset_reset
        if strategy == EARLIEST:
            return partition.log_start_offset
        if strategy != LATEST:
            timestamp = self._environment.wall_ms() - duration_ms(strategy.removeprefix(BY_DURATION))
            found = partition.log.offset_for_timestamp(timestamp)
            if found is not None and found.offset < partition.high_watermark:
                return found.offset
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE, f"Offset for timestamp {timestamp} not found for topic partition"
            )
        if partition.is_behind_its_epoch:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "the high watermark is behind the leader epoch")
        return partition.high_watermark

    def end(self) -> None:
        """Ends this leader; requests then look for its successor, or get an error."""
        self.state = LeaderState.ENDED
        self.waiters.wake_all()

    async def drained(self) -> None:
        """Waits until all writes have ended."""
        self.store()
        if self.is_writing:
            await self._idle.wait()

    # Waiting requests

    @property
    def bound(self) -> int:
        """Bound of reads: the last stable offset for a read_committed group, else the high watermark."""
        return FetchBound.LAST_STABLE_OFFSET if self.settings().is_read_committed else FetchBound.HIGH_WATERMARK

    @property
    def readable_end(self) -> int:
        """End of what members may read."""
        partition = self.partition
        return partition.last_stable_offset if self.settings().is_read_committed else partition.high_watermark

    def _has_records(self) -> bool:
        if self.state is not LeaderState.ACTIVE or not self.is_current:
            # A waiting request is woken to look for the next leader, or to return the error.
            return True
        shares = self.shares
        return shares.can_acquire and shares.next_fetch_offset() != self.readable_end

    def _watch_log(self, is_in_use: bool) -> None:
        """Registers for the growth of the log while requests wait, and unregisters."""
        if is_in_use:
            self._waits_for_stable = self.settings().is_read_committed
        partition = self.partition
        waiters = partition.replica.stable_waiters if self._waits_for_stable else partition.replica.waiters
        if is_in_use:
            waiters.add(self._log_waiter)
        else:
            waiters.discard(self._log_waiter)

    def now_ms(self) -> int:
        """The time, for locks."""
        return self._environment.now_ms()

    def acquired(self) -> None:
        """Notes that records were acquired, whose locks will expire."""
        self._environment.plan_expiry(self)

    # Changes

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgedBatch]) -> Outcome:
        """Begins to acknowledge records. No member can acquire them until the outcome is known.

        The outcome is known when they are stored; `store` begins that.
        """
        outcome = Outcome()
        now_ms = self.now_ms()
        try:
            changes = acknowledgement.acknowledge(self.shares, member_id, batches, now_ms)
        except acknowledgement.Refused as refused:
            self.shares.complete(refused.changes, is_stored=False, now_ms=now_ms)
            outcome.end(refused.code, refused.message)
            # Records that are rolled back after their locks have ended are available again.
            self.waiters.notify()
            return outcome
        self.acquired()
        self._enqueue_changes(changes, outcome)
        return outcome

    def store(self) -> None:
        """Begins to store the queued changes, unless a write is in flight; its end begins the next one."""
        if not self.is_writing:
            self._write_queued()

    def release(self, member_id: str) -> Outcome:
        """Begins to release all records that a member holds."""
        outcome = Outcome()
        self._enqueue_changes(acknowledgement.release(self.shares, member_id), outcome)
        self.store()
        return outcome

    def expire_locks(self) -> None:
        """Ends acquisitions whose locks have expired."""
        if self.state is not LeaderState.ACTIVE:
            return
        stored = self.shares.expire_locks(self.now_ms())
        self._environment.plan_expiry(self)
        if stored:
            log.debug("%s: the locks of %d batches have expired", self, len(stored))
            self._queue.append(QueuedWrite((), stored, None))
            self.store()
            self.waiters.notify()

    # Writes

    def _enqueue_changes(self, changes: Sequence[Change], outcome: Outcome) -> None:
        if not changes:
            outcome.complete()
            return
        stored: list[StateBatch] = []
        for change in changes:
            # Neighbours with the same state are one batch.
            batch, last = change.stored, stored[-1] if stored else None
            if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
                stored[-1] = last._replace(last_offset=batch.last_offset)
            else:
                stored.append(batch)
        self._queue.append(QueuedWrite(changes, stored, outcome))

    def _write_queued(self) -> None:
        while self._queue:
            queued, self._queue = self._queue, []
            shares = self.shares
            write = WriteState(
                shares.state_epoch,
                self._leader_epoch,
                shares.start_offset,
                shares.delivery_complete_count,
                [batch for each in queued for batch in each.stored],
            )
            begun = self._environment.persister.begin_write(self.key, write)
            if begun is not None and not isinstance(begun, Refusal):
                self.is_writing = True
                if self._idle.is_set():
                    self._idle = trio.Event()
                self._environment.start_soon(partial(self._finish_write, queued, begun))
                return
            self._end_write(queued, begun)

    async def _finish_write(
        self, queued: Sequence[QueuedWrite], begun: Callable[[], Awaitable[Refusal | None]]
    ) -> None:
        refusal = await begun()
        self.is_writing = False
        self._end_write(queued, refusal)
        self._write_queued()
        if not self.is_writing:
            self._idle.set()

    def _end_write(self, queued: Sequence[QueuedWrite], refusal: Refusal | None) -> None:
        error, message = ErrorCode.NONE, None
        if refusal is not None:
            error, message = ERROR_OF_PERSISTER.get(refusal.code, ErrorCode.UNKNOWN_SERVER_ERROR), refusal.message
            log.warning("%s: its state cannot be stored: %s", self, refusal.code.name)
        now_ms = self.now_ms()
        for write in queued:
            if write.changes:
                self.shares.complete(write.changes, is_stored=error is ErrorCode.NONE, now_ms=now_ms)
            else:
                self.shares.advance_start()
            if write.outcome is not None:
                write.outcome.end(error, message)
        if error in ENDING and self.state is not LeaderState.ENDED:
            self.end()
            self._environment.forget(self)
        else:
            self.waiters.notify()
