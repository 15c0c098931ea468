"""A partition that follows a leader: appends the records of Fetch responses to its log, or truncates it.

Pure but for the log: time comes as an argument. If the logs diverge the leader's response says so (KIP-595; the reasons
are those of KIP-101 and KIP-279), and records that the leader does not have are truncated.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING

from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError, StorageError, UnexpectedAppendOffset
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.protocol.records.batch import iter_batches
from pykbroker.protocol.records.errors import RecordError

if TYPE_CHECKING:
    from pykbroker.protocol.messages.fetch import PartitionData
    from pykbroker.replication.partition import Partition

log = logging.getLogger(__name__)

UNDEFINED = -1
_EXPECTED_ERRORS = {
    # Either this broker or the leader has not applied the newest metadata yet.
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}


class Outcome(Enum):
    """Next step for a partition after a response: fetch now, after the backoff, or after ListOffsets to the leader."""

    GO_ON = 0
    LATER = 1
    ASK_OFFSETS = 2


class FollowedPartition:
    """One partition, followed under one leader epoch.

    Attributes:
        partition: the replica here.
        leader_epoch: the epoch under which it follows.
        not_before: earliest time of its next fetch, in seconds of the fetcher's clock.
        is_prepared: True after `prepare` has succeeded.
        is_caught_up: True if the log reached the leader's high watermark with the last response.
    """

    __slots__ = ("is_caught_up", "is_prepared", "leader_epoch", "not_before", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.not_before = 0.0
        self.is_prepared = False
        self.is_caught_up = False

    def prepare(self, now_ms: int) -> bool:
        """Truncates records that could not be synced, before the first fetch and after a failed write.

        If the epoch of the log end is unknown, as in logs from before Kafka 0.11, only the records below the high
        watermark are trusted: the others are truncated too. Returns True if the log can be used now.
        """
        partition = self.partition
        try:
            partition.replica.drop_unsynced(now_ms)
            if (
                partition.log.leader_epochs.latest_epoch == UNDEFINED
                and partition.high_watermark < partition.log.log_end_offset
            ):
                partition.replica.truncate_to(partition.high_watermark, now_ms)
        except LogError as error:
            log.error("%s: cannot be followed for now: %s", partition, error)
            return False
        self.is_prepared = True
        return True

    @property
    def is_current(self) -> bool:
        """True while the replica follows under this leader epoch; a response may arrive after that.

        A replica whose directory has failed is closed before the metadata says that it does not follow any more. One
        that is given up must not rejoin the in-sync set by a fetch at the leader's log end.
        """
        partition = self.partition
        return (
            partition.leader_epoch == self.leader_epoch
            and partition.leadership is None
            and not partition.is_closed
            and not partition.is_lost
        )

    def on_data(self, data: PartitionData, fetch_offset: int, now_ms: int) -> Outcome:
        """Processes the leader's response to a fetch at `fetch_offset`.

        Errors of the log, of the records and of the leader become an outcome; only programming errors are raised.
        """
        partition = self.partition
        if not self.is_current or fetch_offset != partition.log.log_end_offset:
            return Outcome.GO_ON
        try:
            if data.error_code:
                return self._on_error(answered_error(data.error_code))
            if data.diverging_epoch.epoch != UNDEFINED or data.diverging_epoch.end_offset != UNDEFINED:
                self._truncate(data.diverging_epoch.epoch, data.diverging_epoch.end_offset, now_ms)
                return Outcome.GO_ON
            self._append(data, now_ms)
        except (LogError, RecordError, KafkaError) as error:
            # A full disk or a damaged response is temporary; the other partitions are still fetched.
            log.error("%s: cannot be followed for now: %s", partition, error)
            if isinstance(error, StorageError):
                self.is_prepared = False
                partition.on_storage_error(error)
            return Outcome.LATER
        self.is_caught_up = partition.log.log_end_offset >= data.high_watermark
        return Outcome.GO_ON

    def _on_error(self, code: ErrorCode) -> Outcome:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return Outcome.ASK_OFFSETS
        level = logging.DEBUG if code in _EXPECTED_ERRORS else logging.WARNING
        log.log(level, "%s: leader %d answers %s", self.partition, self.partition.leader_id, code.name)
        return Outcome.LATER

    def _append(self, data: PartitionData, now_ms: int) -> None:
        partition = self.partition
        records = b"" if data.records is None else data.records
        try:
            partition.append_as_follower(records, now_ms, data.high_watermark, data.log_start_offset, self.leader_epoch)
        except UnexpectedAppendOffset:
            base_offset = self._base_of_first(records)
            if base_offset < 0:
                raise
            # The leader's log begins within a batch (DeleteRecords), and this log is empty.
            partition.replica.truncate_fully_and_start_at(base_offset, now_ms)
            partition.append_as_follower(records, now_ms, data.high_watermark, data.log_start_offset, self.leader_epoch)

    def _base_of_first(self, records: bytes | memoryview) -> int:
        """Base offset of the first batch if the log is empty and starts within that batch; -1 otherwise."""
        partition_log = self.partition.log
        end = partition_log.log_end_offset
        if end != partition_log.log_start_offset:
            return -1
        # The records are whole batches: the append has checked the headers before it refused the offsets.
        first = next(iter_batches(records), None)
        return first.base_offset if first is not None and first.base_offset < end < first.next_offset else -1

    def _truncate(self, epoch: int, end_offset: int, now_ms: int) -> None:
        """Truncates the log to where it diverges from the leader's.

        `epoch` is the largest epoch in the leader's log that is not above the last one here; it ends there at
        `end_offset`.
        """
        partition_log = self.partition.log
        before = partition_log.log_end_offset
        if end_offset == UNDEFINED:
            offset = self.partition.high_watermark
        elif epoch == UNDEFINED:
            offset = min(end_offset, before)
        else:
            local_epoch, local_end = partition_log.end_offset_for_epoch(epoch)
            if local_epoch == UNDEFINED:
                offset = min(end_offset, before)
            elif local_epoch != epoch:
                # This log does not have that epoch. It ends with an older one then, which the leader checks again with
                # the next fetch.
                offset = min(local_end, before)
            else:
                offset = min(local_end, end_offset, before)
        # Also if no record is dropped: the log may have an epoch at its end that has no record and is not the leader's.
        self.partition.replica.truncate_to(offset, now_ms)
        log.log(
            logging.INFO if offset < before else logging.DEBUG,
            "%s: truncated from %d to %d: epoch %d of leader %d ends at %d",
            self.partition, before, offset, epoch, self.partition.leader_id, end_offset,
        )  # fmt: skip

    def on_offsets(self, leader_start: int, leader_end: int, now_ms: int) -> Outcome:
        """Truncates the log into the range of the leader's, which was requested after OFFSET_OUT_OF_RANGE."""
        partition = self.partition
        end = partition.log.log_end_offset
        if not self.is_current:
            return Outcome.GO_ON
        try:
            if leader_end < end:
                log.warning("%s: truncated from %d to %d, the end of the leader's log", partition, end, leader_end)
                partition.replica.truncate_to(leader_end, now_ms)
            elif leader_start > end:
                log.warning("%s: emptied: it ended at %d, the leader's log begins at %d", partition, end, leader_start)
                partition.replica.truncate_fully_and_start_at(leader_start, now_ms)
        except LogError as error:
            log.error("%s: cannot be truncated for now: %s", partition, error_code_for(error).name)
            return Outcome.LATER
        return Outcome.GO_ON
