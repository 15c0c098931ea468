"""One partition on this broker: its replica, which leads or follows as the metadata says.

Everything here but the waits is synchronous: a partition is consistent between two awaits of a handler, and there are
no locks. The progress of the followers and the rules of the in-sync set are in `leadership`; they move
`high_watermark`, and the layers above read only that. `on_follower_fetch` processes the fetches of followers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from pykbroker.errors import KafkaError
from pykbroker.logstore.errors import OffsetOutOfRange, StorageError, StorageFull
from pykbroker.logstore.partition_log import AppendOrigin
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.replication.leadership import NO_BROKER_EPOCH, Leadership
from pykbroker.replication.offset_waiters import ALL, OffsetWaiter
from pykbroker.replication.replica import FetchBound, PartitionRead, Replica

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import PartitionImage
    from pykbroker.logstore.partition_log import AppendResult, PartitionLog
    from pykbroker.logstore.producer_state import Verification
    from pykbroker.protocol.records.compression import Buffer
    from pykbroker.protocol.records.layout import BatchHeader
    from pykbroker.replication.leadership import Follower, Proposal
    from pykbroker.replication.replica_environment import ReplicaEnvironment

__all__ = ["NO_EPOCH", "FetchBound", "Partition", "PartitionRead"]

logger = logging.getLogger(__name__)

NO_EPOCH = -1


class Partition:
    """A partition of which this broker holds a replica.

    Args:
        topic, topic_id: of the partition.
        log: this replica's log.
        image: the partition in the metadata.
        environment: state that the replicas of this broker share.
        high_watermark: the checkpointed high watermark, 0 without one.

    Attributes:
        topic, partition, topic_id: its identity.
        replica: the log with its high watermark and the waiters on both.
        log: the replica's log.
        leader_id: the broker that leads it, -1 for none.
        leader_epoch: the epoch under which it leads; stamped on every batch.
        leadership: state of a leader; None on a follower. A different object means that leadership was lost and
            regained.
        replicas: ids of the brokers that the metadata assigns it to.
        is_adding: True while this broker is being added to its replicas by a reassignment.
        is_closed: True once this broker does not have the replica any more.
        is_lost: True while this broker has given the replica up, as its disk is full.
        future: copy of the log in the directory to which it moves (KIP-113); None if it does not move.
    """

    __slots__ = (
        "_environment",
        "_followed_epoch",
        "future",
        "is_closed",
        "is_lost",
        "leader_epoch",
        "leader_id",
        "leadership",
        "log",
        "partition",
        "replica",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        log: PartitionLog,
        image: PartitionImage,
        environment: ReplicaEnvironment,
        high_watermark: int = 0,
    ) -> None:
        if image.replicas == (environment.node_id,):
            # The only replica: all its records are committed.
            high_watermark = log.log_end_offset
        else:
            high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.topic = topic
        self.topic_id = topic_id
        self.partition = image.partition
        self.log = log
        self.replica = Replica(f"{topic}-{image.partition}", log, high_watermark)
        self.leader_id = self.leader_epoch = -1
        # Partition epoch of the metadata under which this broker follows; a leader's is in its Leadership.
        self._followed_epoch = -1
        self.leadership: Leadership | None = None
        self.is_closed = False
        self.is_lost = False
        self.future: PartitionLog | None = None
        self._environment = environment
        self.update(image)

    def __repr__(self) -> str:
        return self.replica.name

    # State

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    @property
    def high_watermark(self) -> int:
        """End of what consumers may read."""
        return self.replica.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """End of what read_committed consumers may read (P-68)."""
        return self.replica.last_stable_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync set that the controller confirmed; empty on a follower, which does not need it."""
        return () if self.leadership is None else self.leadership.isr

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fences a client whose metadata is older or newer than ours (P-69); -1 skips the check.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        if current_leader_epoch == NO_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self}: the leader epoch is {self.leader_epoch}, the request has the older {current_leader_epoch}",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self}: the leader epoch is {self.leader_epoch}, the request has the newer {current_leader_epoch}",
        )

    def check_leader(self) -> None:
        """Refuses an operation that only a leader may do.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER.
        """
        if self.leadership is None:
            raise self._not_leader()

    def _not_leader(self) -> KafkaError:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: broker {self.leader_id} leads it")

    # Leader or follower

    def update(self, image: PartitionImage) -> None:
        """Applies leader, epoch, replicas and in-sync set of the metadata, unless they are older."""
        known = self._followed_epoch if self.leadership is None else self.leadership.partition_epoch
        if image.partition_epoch < known:
            return
        self.leader_id = image.leader
        self.is_lost = image.is_lost_on(self._environment.node_id)
        if image.leader == self._environment.node_id:
            self._become_leader(image)
        else:
            self.leader_epoch = image.leader_epoch
            self._followed_epoch = image.partition_epoch
            if self.leadership is not None:
                self.leadership = None
                self.replica.wake_all()

    def _become_leader(self, image: PartitionImage) -> None:
        leadership = self.leadership
        if leadership is None:
            leadership = self.leadership = Leadership(self._environment.brokers)
            # Waiting fetches of consumers and followers are served again, under the new leader and its epoch.
            self.replica.wake_all()
            if self.replica.unsynced_from >= 0:
                self._sync_unsynced()
        # Without followers nothing depends on the time.
        now = self._environment.now() if len(image.replicas) > 1 else 0.0
        leadership.update(image, self.log.log_end_offset, now)
        self.leader_epoch = leadership.leader_epoch  # the same, for followers and for each append
        if leadership.followers and self.log.leader_epochs.latest_epoch < self.leader_epoch:
            # Without followers nothing requests ends of epochs, and the log, one of thousands, need not be loaded now.
            self._note_epoch()
        self._advance()
        self.replica.wake_acks()

    def _sync_unsynced(self) -> None:
        """Syncs again the records that it could not sync as a follower, before other replicas fetch them."""
        try:
            self.log.flush()
            self.replica.unsynced_from = -1
        except StorageError as error:
            logger.error(
                "%s: its end, from offset %d on, could not be synced: %s", self, self.replica.unsynced_from, error
            )
            self._environment.storage_failures.report(error)

    def _note_epoch(self) -> None:
        """Records the start of the leader epoch, for followers that request the end of their last epoch (KIP-279)."""
        try:
            self.log.loaded.begin_leader_epoch(self.leader_epoch)
        except StorageError as error:
            # `end_offset_for_epoch` returns the same without the entry, and the first batch of the epoch adds it.
            logger.error("%s: the beginning of leader epoch %d was not noted: %s", self, self.leader_epoch, error)
            self._environment.storage_failures.report(error)

    def on_storage_error(self, error: StorageError) -> None:
        """Reports a failed write to this follower's log, or to the copy of a log that moves."""
        self._environment.storage_failures.report(error)

    def replace_log_by_future(self, log: PartitionLog) -> None:
        """Uses the copy of the log in another directory from now on; it must have all records (KIP-113)."""
        old = self.log
        log.producers.adopt_verifications(old.producers)
        log.config = old.config
        self.log = log
        self.future = None
        self.replica.replace_log(log)
        if log.leader_epochs.latest_epoch < old.leader_epochs.latest_epoch:
            # No record has it yet.
            try:
                log.loaded.begin_leader_epoch(old.leader_epochs.latest_epoch)
            except StorageError as error:
                self._environment.storage_failures.report(error)

    def append_as_leader(
        self,
        data: Buffer,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        *,
        header: BatchHeader | None = None,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Appends batches under the current leader epoch and wakes the requests that wait for them.

        `header`, `verification` and `transaction_version`: see `PartitionLog.append_as_leader`.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, nothing was appended.
            LogError, RecordError: nothing was appended.
            StorageError: likewise, or the appended records could not be synced (`flush.messages`).
        """
        leadership = self.leadership
        if leadership is None:
            raise self._not_leader()
        log = self.log
        if self._environment.storage_failures.is_disk_full and len(leadership.isr) > 1:
            # Even if these records would fit: the log must not grow while leadership is handed over.
            raise StorageFull(str(self), "the disk was full, and another replica is to lead")
        stable_before = self.replica.stable_before()
        try:
            result = log.append_as_leader(
                data,
                self.leader_epoch,
                now_ms,
                origin,
                header=header,
                verification=verification,
                transaction_version=transaction_version,
            )
        except StorageError as error:
            if leadership.followers and log.log_end_offset > self.high_watermark:
                # The records are in the log nevertheless, where a retry of the producer finds them. Without followers
                # they are not readable before they are synced: a loss of power would take them back.
                self._appended(len(data), stable_before)
            self._environment.storage_failures.report(error)
            raise
        # A duplicate has appended nothing. But if the sync of its original had failed, and succeeds now, the records
        # become readable now.
        if not result.is_duplicate or (not leadership.followers and log.log_end_offset > self.high_watermark):
            self._appended(len(data), stable_before)
        return result

    def _appended(self, size: int, stable_before: int) -> None:
        """Makes `size` new bytes readable, to followers if there are any, else to consumers."""
        leadership = self.leadership
        if leadership is not None and leadership.followers:
            self.replica.end_waiters.notify(size)
            self._advance()
            return
        self.replica.all_is_readable(size, stable_before)

    def _advance(self) -> None:
        """Raises a leader's high watermark to the smallest log end of the replicas that it waits for."""
        leadership = self.leadership
        assert leadership is not None
        log = self.log
        now = self._environment.now() if leadership.followers else 0.0
        end = leadership.replicated_end(log.log_end_offset, log.config.min_insync_replicas, now)
        if end > self.high_watermark:
            self.replica.move_high_watermark(end)

    def check_enough_replicas(self) -> None:
        """Refuses acks=all if the in-sync set is smaller than `min.insync.replicas` (P-46).

        Raises:
            KafkaError: NOT_ENOUGH_REPLICAS.
        """
        leadership = self.leadership
        if leadership is None:
            raise self._not_leader()
        wanted = self.log.config.min_insync_replicas
        if len(leadership.isr) >= wanted:
            return
        # The bound by the number of replicas is applied last: it costs a call, and few topics have so few replicas.
        wanted = leadership.min_isr(wanted)
        if len(leadership.isr) < wanted:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self}: {len(leadership.isr)} in-sync replica(s), min.insync.replicas is {wanted}",
            )

    async def wait_replicated(self, end_offset: int, deadline: float, leadership: Leadership | None) -> ErrorCode:
        """Waits until all in-sync replicas have the records below an offset, which this broker appended as leader.

        Args:
            end_offset: the offset after the last record.
            deadline: on trio's clock.
            leadership: that under which they were appended; None if this broker has lost it.

        Returns:
            NONE; NOT_ENOUGH_REPLICAS_AFTER_APPEND: they are replicated to fewer than `min.insync.replicas`;
            NOT_LEADER_OR_FOLLOWER: they may or may not be lost; REQUEST_TIMED_OUT: they stay in the log (P-46).
        """
        result = self._replication_of(end_offset, leadership)
        if result is not None:
            return result
        await self.replica.wait_for_high_watermark(end_offset, deadline)
        result = self._replication_of(end_offset, leadership)
        return ErrorCode.REQUEST_TIMED_OUT if result is None else result

    def _replication_of(self, end_offset: int, leadership: Leadership | None) -> ErrorCode | None:
        """Current result of `wait_replicated`, None to wait."""
        if leadership is None or self.leadership is not leadership:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < end_offset:
            return None
        if len(leadership.maximal_isr) < leadership.min_isr(self.log.config.min_insync_replicas):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def is_in_every_isr_log(self, end_offset: int) -> bool:
        """True if every in-sync replica has the records below an offset, also with too few of them for acks=all.

        Below `min.insync.replicas` the high watermark does not move, but without unclean elections only these replicas
        can become leader.
        """
        leadership = self.leadership
        if leadership is None:
            return False
        followers = (f for broker_id, f in leadership.followers.items() if broker_id in leadership.maximal_isr)
        return all(follower.log_end_offset >= end_offset for follower in followers)

    # A follower's own log

    def append_as_follower(
        self,
        data: bytes | bytearray | memoryview,
        now_ms: int,
        high_watermark: int,
        log_start_offset: int,
        leader_epoch: int,
    ) -> None:
        """Appends records that the leader of an epoch has sent, and adopts its high watermark and log start.

        Raises:
            KafkaError: this broker has become leader.
            LogError, RecordError: nothing was appended.
            StorageError: likewise, or the records could not be synced: see `Replica.drop_unsynced`.
        """
        if self.leadership is not None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: the leader does not follow")
        self.replica.append_as_follower(data, now_ms, high_watermark, log_start_offset, leader_epoch)

    # Reading

    def read(
        self,
        offset: int,
        size_max: int,
        bound: int,
        *,
        at_least_one: bool,
        last_fetched_epoch: int = NO_EPOCH,
    ) -> PartitionRead:
        """Finds the records at an offset; reads no bytes.

        Raises:
            OffsetOutOfRange: the offset is below the log start or above the log end (P-65).
            StorageError: the log cannot be read.
        """
        if last_fetched_epoch != NO_EPOCH:
            diverging = self.divergence(offset, last_fetched_epoch)
            if diverging is not None:
                replica = self.replica
                return PartitionRead(
                    replica.high_watermark, replica.last_stable_offset, self.log_start_offset, None, diverging
                )
        try:
            return self.replica.read(offset, size_max, bound, at_least_one=at_least_one)
        except StorageError as error:
            self._environment.storage_failures.report(error)
            raise

    def divergence(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) where the log of a reader diverges from this one, None if it does not (P-70).

        `offset` is the end of the reader's log, and `last_fetched_epoch` the epoch of the last record in it.

        Raises:
            OffsetOutOfRange: the epoch is unknown here, or the offset is below the log start.
        """
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch == NO_EPOCH or end_offset == -1:
            raise OffsetOutOfRange(f"{self}: the last fetched epoch {last_fetched_epoch} is unknown here")
        if offset < self.log.log_start_offset:
            raise OffsetOutOfRange(f"{self}: offset {offset} is below the log start {self.log.log_start_offset}")
        if epoch < last_fetched_epoch or end_offset < offset:
            return epoch, end_offset
        return None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above the given one, and its end offset (P-87); (-1, -1) if undefined."""
        if epoch == self.leader_epoch and self.leadership is not None:
            # The current epoch may have no batch yet; it ends at the log end all the same.
            return epoch, self.log.log_end_offset
        latest = self.log.leader_epochs.latest_epoch
        is_unnoted = latest == NO_EPOCH or latest <= epoch
        if self.leadership is not None and NO_EPOCH != epoch < self.leader_epoch and is_unnoted:
            # Kafka's leader records its epoch when it becomes leader. This one, without followers, records it with the
            # first batch, which would start at the log end.
            return epoch if latest == NO_EPOCH else latest, self.log.log_end_offset
        return self.log.end_offset_for_epoch(epoch)

    # Followers of a leader

    def follower(self, broker_id: int, current_leader_epoch: int) -> Follower:
        """The follower that a fetch comes from.

        Raises:
            KafkaError: this broker does not lead, or its metadata does not have the replica (yet).
        """
        leadership = self.leadership
        if leadership is None:
            raise self._not_leader()
        follower = leadership.followers.get(broker_id)
        if follower is None:
            # Even if the request has the epoch of this leader: the follower has newer metadata, and fetches again.
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
            if current_leader_epoch == NO_EPOCH:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(code, f"{self}: broker {broker_id} is not a replica")
        return follower

    def on_follower_fetch(
        self, follower: Follower, offset: int, log_start_offset: int, broker_epoch: int = NO_BROKER_EPOCH
    ) -> None:
        """Processes a follower's fetch at `offset`, which shows that it has all records below.

        The high watermark may move, and the in-sync set may grow.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER for a fetch with an earlier epoch of the broker.
        """
        leadership = self.leadership
        assert leadership is not None
        brokers = self._environment.brokers
        if NO_BROKER_EPOCH != broker_epoch < brokers.epoch(follower.broker_id):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self}: broker {follower.broker_id} has a newer epoch than its fetch",
            )
        end_before, start_before = follower.log_end_offset, follower.log_start_offset
        follower.broker_epoch = broker_epoch
        follower.on_fetch(offset, log_start_offset, self.log.log_end_offset, self.now())
        if follower.broker_id not in leadership.isr:
            leadership.epoch_start_offset = min(leadership.epoch_start_offset, self.log.log_end_offset)
            proposal = leadership.propose_expansion(follower, self.high_watermark)
            if proposal is not None:
                self._environment.proposals.submit(self, proposal)
        if offset != end_before:
            self._advance()
        if log_start_offset != start_before:
            self.replica.low_waiters.notify(ALL)

    def now(self) -> float:
        """Time in seconds on the clock by which the lag of followers is measured."""
        return self._environment.now()

    def registered_epoch(self, follower: Follower) -> int:
        """The epoch of the follower's broker if that is alive, else -1."""
        return self._environment.brokers.epoch(follower.broker_id)

    def shrink_isr(self) -> None:
        """Proposes the in-sync set without the followers that have lagged for too long, if there are any."""
        leadership = self.leadership
        if leadership is not None and leadership.followers:
            proposal = leadership.propose_shrink(self.log.log_end_offset, self._environment.now())
            if proposal is not None:
                logger.info(
                    "%s: in-sync set %s shrinks to %s; high watermark %d, log end %d",
                    self, leadership.isr, proposal.broker_ids, self.high_watermark, self.log.log_end_offset,
                )  # fmt: skip
                self._environment.proposals.submit(self, proposal)

    def on_proposal_accepted(
        self, proposal: Proposal, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        """Applies the in-sync set that the controller has committed for a proposal."""
        leadership = self.leadership
        if leadership is not None and leadership.accept(proposal, isr, leader_epoch, partition_epoch):
            logger.info("%s: in-sync set is %s", self, isr)
            self._advance()
            self.replica.wake_acks()

    def on_proposal_rejected(self, proposal: Proposal) -> None:
        """Drops a proposal that the controller has refused and not applied."""
        if self.leadership is not None:
            self.leadership.reject(proposal)
            self._advance()

    @property
    def is_behind_its_epoch(self) -> bool:
        """True if a new leader's high watermark is below the beginning of its epoch."""
        leadership = self.leadership
        # A log that was shorter than its checkpoint said when it was loaded ends below the beginning of the epoch.
        return leadership is not None and self.high_watermark < min(
            leadership.epoch_start_offset, self.log.log_end_offset
        )

    async def wait_deleted(self, offset: int, deadline: float) -> tuple[ErrorCode, int]:
        """Waits until no live replica has records below an offset.

        Returns NONE, REQUEST_TIMED_OUT or NOT_LEADER_OR_FOLLOWER, and the low watermark, -1 if it is not known.
        """
        while True:
            leadership = self.leadership
            if leadership is None:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
            low = leadership.low_watermark(self.log.log_start_offset)
            if low >= offset:
                return ErrorCode.NONE, low
            if trio.current_time() >= deadline:
                return ErrorCode.REQUEST_TIMED_OUT, low
            with OffsetWaiter(ALL) as waiter:
                waiter.register(self.replica.low_waiters)
                await waiter.wait(deadline)

    def advance_log_start(self, offset: int) -> None:
        """Deletes the records below an offset (DeleteRecords)."""
        if self.log.advance_log_start(offset):
            self.replica.low_waiters.notify(ALL)

    def close(self) -> None:
        """Ends the leadership and wakes all waiters, which then find the partition gone."""
        self.is_closed = True
        self.leadership = None
        self.future = None
        self.replica.wake_all()
