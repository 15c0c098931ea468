"""Reading and writing one partition of `__consumer_offsets`: replay at the start, one batch per output after that."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import trio

from pykbroker.errors import KafkaError, error_code_for
from pykbroker.groups.offset_log import decode_record, encode_record
from pykbroker.groups.output import LogRecord
from pykbroker.groups.shard import Shard
from pykbroker.logstore.errors import LogError
from pykbroker.logstore.partition_log import AppendOrigin, PartitionLog
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.errors import RecordError
from pykbroker.protocol.records.record import Record

log = logging.getLogger(__name__)

BATCHES_PER_STEP = 100
"""How much of a log is replayed before other tasks get their turn."""


async def replay(partition_log: PartitionLog, shard: Shard, now_ms: int) -> None:
    """Gives a shard what the log says (P-116).

    Only the last record of each key is decoded, in the order of the log. A group commits the same few keys over and
    over, so that is several times faster than decoding all.
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
    for key, (offset, value) in last.items():
        try:
            decoded = decode_record(key, value)
        except ProtocolError as error:
            # One bad record must not take all groups of the partition away; Kafka skips it too.
            log.error("%s: the record at offset %d is skipped: %s", partition_log.path, offset, error)
            continue
        if decoded is not None:
            shard.replay(decoded, now_ms)


def append_records(partition: Any, records: list[LogRecord], codec: int, now_ms: int) -> ErrorCode:
    """Appends one batch with this time of day; an error is already the one for the client (P-115).

    `partition` is the registry's `Partition`, which this package does not import.
    """
    encoded = (encode_record(record) for record in records)
    batch = build_batch(
        [Record(index, now_ms, key, value) for index, (key, value) in enumerate(encoded)],
        codec=codec,
        base_sequence=0,  # means nothing without a producer id, but it is what Kafka's coordinators write
    )
    if len(batch) > partition.log.config.max_message_bytes:
        return response_error(ErrorCode.MESSAGE_TOO_LARGE)
    try:
        partition.check_enough_replicas()
        partition.append_as_leader(batch, now_ms, AppendOrigin.COORDINATOR)
    except (KafkaError, LogError, RecordError) as error:
        log.warning("%s: append failed: %s", partition, error)
        return response_error(error_code_for(error))
    return ErrorCode.NONE


def response_error(error: ErrorCode) -> ErrorCode:
    """What a client is told when an append to `__consumer_offsets` failed (P-115)."""
    return _RESPONSE_ERRORS.get(error, error)


_RESPONSE_ERRORS: Mapping[ErrorCode, ErrorCode] = {
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
