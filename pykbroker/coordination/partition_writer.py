"""Appends to one partition of an internal topic: one batch for each result of a shard."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pykbroker.coordination.shard import NO_PRODUCER, TransactionalProducer
from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.logstore.partition_log import AppendOrigin, AppendResult, PartitionLog
from pykbroker.logstore.producer_state import Verification
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.batch import RecordFrames, batch_of_frames
from pykbroker.protocol.records.errors import RecordError

log = logging.getLogger(__name__)

BATCH_OVERHEAD_BYTES = 512
"""Upper bound of the size of a batch's header, and of what a codec adds to the records."""
RECORD_OVERHEAD_BYTES = 24
"""Upper bound of the size of a record beside its key and value: two lengths, length, attributes, deltas, headers."""


class InternalPartition(Protocol):
    """A replica of a partition of an internal topic, as coordinators use it: `Partition`, which they do not import."""

    log: PartitionLog

    @property
    def high_watermark(self) -> int:
        """End of the replicated records."""

    @property
    def leadership(self) -> Any:
        """This broker's leadership, for `wait_replicated`; None if another broker leads."""

    def check_enough_replicas(self) -> None:
        """Raises KafkaError: NOT_ENOUGH_REPLICAS."""

    def append_as_leader(
        self, data: bytes, now_ms: int, origin: AppendOrigin, *, verification: Verification | None
    ) -> AppendResult:
        """Appends batches; raises KafkaError, LogError, RecordError."""

    def is_in_every_isr_log(self, end_offset: int) -> bool:
        """True if every in-sync replica has the records below an offset."""

    async def wait_replicated(self, end_offset: int, deadline: float, leadership: Any) -> ErrorCode:
        """Waits until the records below an offset are replicated; returns the error."""

    def advance_log_start(self, offset: int) -> object:
        """Deletes the records below an offset; raises LogError."""


def append_records(
    partition: InternalPartition,
    records: RecordFrames,
    codec: int,
    now_ms: int,
    producer: TransactionalProducer = NO_PRODUCER,
    verification: Verification | None = None,
) -> ErrorCode:
    """Appends records as one batch with timestamp `now_ms`; returns the error of the append.

    `response_error` maps that error to the one for a client. With a `producer` the batch is part of its transaction,
    and the append may need a `verification` (P-135).
    """
    batch = batch_of_frames(
        records,
        now_ms,
        codec=codec,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,  # not checked in batches of coordinators; Kafka's coordinators write 0
        is_transactional=producer is not NO_PRODUCER,
    )
    if len(batch) > partition.log.config.max_message_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE
    try:
        partition.check_enough_replicas()
        partition.append_as_leader(batch, now_ms, AppendOrigin.COORDINATOR, verification=verification)
    except (KafkaError, LogError, RecordError) as error:
        log.warning("%s: append failed: %s", partition, error)
        return error_code_for(error)
    return ErrorCode.NONE


def batch_starts(pairs: Sequence[tuple[bytes, bytes | None]], size_max: int) -> list[int]:
    """Indexes at which batches begin, so that each one is at most `size_max` bytes; a larger pair is one by itself."""
    # Data that a codec cannot compress may become a little larger.
    limit = size_max - size_max // 64 - BATCH_OVERHEAD_BYTES
    starts, size = [], limit
    for index, (key, value) in enumerate(pairs):
        size_of_pair = len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
        size += size_of_pair
        if size > limit:
            starts.append(index)
            size = size_of_pair
    return starts


def response_error(error: ErrorCode) -> ErrorCode:
    """Error code for a client when an append to a coordinator's log failed (P-115)."""
    return _RESPONSE_ERRORS.get(error, error)


_RESPONSE_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    # From the verification of a transaction, which asks the transaction coordinator before the append.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
