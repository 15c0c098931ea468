"""Ends of transactions in partitions: the marker, and in `__consumer_offsets` the pending offsets (P-133, P-139).

Used by the WriteTxnMarkers handler for markers of other coordinators and of administrators, and by the transaction
coordinator of this broker for the partitions that it leads itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.coordination.transaction_marker import TransactionMarker, WrittenMarker
from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.logstore.partition_log import AppendOrigin
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, build_batch
from pykbroker.protocol.records.control import ControlRecordType, control_record_key, end_transaction_value
from pykbroker.protocol.records.record import Record

if TYPE_CHECKING:
    from pykbroker.replication.leadership import Leadership
    from pykbroker.replication.partition import Partition
    from pykbroker.replication.partitions import Partitions
    from pykbroker.wall_clock import WallClock

log = logging.getLogger(__name__)


class AppendedMarker(NamedTuple):
    """An appended marker that is not replicated yet; `end_offset` is the offset after it.

    The wait ends with the `leadership` under which it was appended: later another record may have the same offset.
    """

    partition: Partition
    end_offset: int
    leadership: Leadership | None

    async def wait_replicated(self, deadline: float) -> ErrorCode:
        """Waits for replication, until `deadline` on trio's clock at the latest; NONE, or the partition's error."""
        if self.leadership is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return await self.partition.wait_replicated(self.end_offset, deadline, self.leadership)


class OffsetTransactions(Protocol):
    """Pending offsets of transactions."""

    def is_loaded(self, number: int) -> bool:
        """True if the groups of this partition of `__consumer_offsets` are served here."""

    def end_transaction(self, number: int, end_offset: int, producer_id: int, is_commit: bool) -> None:
        """Completes the producer's pending offsets; its marker is in this partition, before `end_offset`."""


class MarkerWriter:
    """Writes markers into partitions that this broker leads.

    Args:
        partitions: partitions to append to.
        groups: groups whose pending offsets are completed by a marker in `__consumer_offsets`.
        clock: for the marker's timestamp.
    """

    def __init__(self, partitions: Partitions, groups: OffsetTransactions, clock: WallClock) -> None:
        self._partitions = partitions
        self._groups = groups
        self._clock = clock

    def write(self, marker: TransactionMarker, topic: str, partition: int) -> WrittenMarker:
        """Writes one marker.

        All errors but INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED may be retried.

        Raises:
            KafkaError: the marker has no producer. In Kafka no batch can be made of it, which fails the whole request;
                in `__consumer_offsets` the coordinator makes the batch, and it fails for that partition alone.
        """
        found = self._partitions.get(topic, partition)
        if found is None:
            return WrittenMarker(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        holds_offsets = topic == OFFSETS_TOPIC
        if holds_offsets and not self._groups.is_loaded(partition):
            # Offsets that are still being loaded would miss their marker. Coordinators retry after this error.
            return WrittenMarker(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_PRODUCER_EPOCH:
            if holds_offsets:
                return WrittenMarker(ErrorCode.UNKNOWN_SERVER_ERROR)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker without a producer cannot be written")
        now_ms = self._clock.now_ms()
        try:
            found.check_enough_replicas()
            found.append_as_leader(
                marker_batch(marker, now_ms),
                now_ms,
                AppendOrigin.COORDINATOR,
                transaction_version=marker.transaction_version,
            )
        except (KafkaError, LogError) as error:
            log.info("%s: the marker of producer %d was not written: %s", found, marker.producer_id, error)
            return WrittenMarker(error_code_for(error))
        found.replica.forget_ended_transactions()
        end_offset = found.log.log_end_offset
        if holds_offsets:
            self._groups.end_transaction(partition, end_offset, marker.producer_id, marker.is_commit)
        if found.high_watermark >= end_offset:
            return WrittenMarker(ErrorCode.NONE)
        return WrittenMarker(ErrorCode.NONE, AppendedMarker(found, end_offset, found.leadership))


def marker_batch(marker: TransactionMarker, now_ms: int) -> bytes:
    """A marker as a control batch of one record (P-133)."""
    kind = ControlRecordType.COMMIT if marker.is_commit else ControlRecordType.ABORT
    return build_batch(
        [Record(0, now_ms, control_record_key(kind), end_transaction_value(marker.coordinator_epoch))],
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_control=True,
        is_transactional=True,
    )
