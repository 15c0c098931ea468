"""Reading and writing one partition of `__consumer_offsets`: replay at the start, one batch per output after that."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pykbroker.coordination.log_io import append_pairs, last_records
from pykbroker.groups.offset_log import decode_record, encode_record
from pykbroker.groups.output import LogRecord
from pykbroker.groups.shard import Shard
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError

log = logging.getLogger(__name__)


async def replay(partition_log: PartitionLog, shard: Shard, now_ms: int) -> None:
    """Gives a shard what the log says (P-116): the last record of each key, in the order of the log."""
    for key, (offset, value) in (await last_records(partition_log)).items():
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
    error = append_pairs(partition, (encode_record(record) for record in records), codec, now_ms)
    return response_error(error)


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
