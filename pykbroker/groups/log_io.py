"""Reading and writing one partition of `__consumer_offsets`: replay at the start, one batch per output after that."""

from __future__ import annotations

import logging
from typing import Any

from pykbroker.coordination.log_io import append_pairs, last_records, response_error
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
