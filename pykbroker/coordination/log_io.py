"""Reading and writing one partition of a coordinator's topic: the last record of each key, one batch per event."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import trio

from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError
from pykbroker.logstore.partition_log import AppendOrigin, PartitionLog
from pykbroker.logstore.producer_state import Verification
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.errors import RecordError
from pykbroker.protocol.records.record import Record

log = logging.getLogger(__name__)

BATCHES_PER_STEP = 100
"""How much of a log is replayed before other tasks get their turn."""


async def last_records(partition_log: PartitionLog) -> dict[bytes, tuple[int, bytes | None]]:
    """Offset and value of the last record of each key, in the order of the log; control batches are left out.

    A coordinator writes the same few keys over and over, so that decoding these alone is several times faster than
    decoding all.

    Raises:
        LogError, RecordError: the log cannot be read.
    """
    last: dict[bytes, tuple[int, bytes | None]] = {}
    for count, batch in enumerate(partition_log.iter_batches(), start=1):
        if count % BATCHES_PER_STEP == 0:
            await trio.lowlevel.checkpoint()
        if not batch.is_control:
            for record in batch.records():
                key = record.key or b""
                last.pop(key, None)  # so that it moves to the end
                last[key] = (record.offset, record.value)
    return last


def append_pairs(partition: Any, pairs: Iterable[tuple[bytes, bytes | None]], codec: int, now_ms: int) -> ErrorCode:
    """Appends keys and values as one batch with this time of day; gives the log's own error, not a client's.

    `partition` is the registry's `Partition`, which this package does not import.
    """
    batch = build_batch(
        [Record(index, now_ms, key, value) for index, (key, value) in enumerate(pairs)],
        codec=codec,
        base_sequence=0,  # means nothing without a producer id, but it is what Kafka's coordinators write
    )
    return append_batch(partition, batch, now_ms)


def append_batch(partition: Any, batch: bytes, now_ms: int, verification: Verification | None = None) -> ErrorCode:
    """Appends one batch of a coordinator; gives the log's own error, not a client's.

    `verification` is for a batch that is part of a transaction (P-135).
    """
    if len(batch) > partition.log.config.max_message_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE
    try:
        partition.check_enough_replicas()
        partition.append_as_leader(batch, now_ms, AppendOrigin.COORDINATOR, verification=verification)
    except (KafkaError, LogError, RecordError) as error:
        log.warning("%s: append failed: %s", partition, error)
        return error_code_for(error)
    return ErrorCode.NONE


def response_error(error: ErrorCode) -> ErrorCode:
    """What a client is told when an append to a coordinator's log failed (P-115)."""
    return _RESPONSE_ERRORS.get(error, error)


_RESPONSE_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    # Of the transaction coordinator, when it is asked first.
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
