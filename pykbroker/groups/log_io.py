"""Reading and writing one partition of `__consumer_offsets`: replay at the start, one batch per output after that."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import trio

from pykbroker.coordination.log_io import BATCHES_PER_STEP, append_batch
from pykbroker.groups.offset_log import decode_record, encode_record
from pykbroker.groups.output import NO_PRODUCER, Output
from pykbroker.groups.shard import NO_PRODUCER_ID, Shard
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.logstore.producer_state import Verification
from pykbroker.logstore.recovery import marker_of
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.log_messages.consumer_offsets import GroupMetadataKey
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.control import ControlRecordType
from pykbroker.protocol.records.record import Record

log = logging.getLogger(__name__)


LastRecords = dict[bytes, tuple[int, bytes | None]]
"""Offset and value of the last record of each key."""


async def replay(partition_log: PartitionLog, shard: Shard, now_ms: int) -> None:
    """Gives a shard what the log says (P-116): the last record of each key, in the order of the log.

    Offsets of transactions that are still open come last, as pending ones of their producers (P-142). What was aborted
    has made its groups all the same.
    """
    last, pending, aborted = await read_records(partition_log)
    for decoded, offset in _decoded(last, partition_log):
        shard.replay(decoded, now_ms, offset)
    for producer_id, records in pending.items():
        for decoded, offset in _decoded(records, partition_log):
            shard.replay(decoded, now_ms, offset, producer_id)
    shard.adopt_offsets(now_ms)
    if aborted:
        _adopt_aborted(last, aborted, partition_log, shard, now_ms)


def _adopt_aborted(
    last: LastRecords, aborted: LastRecords, partition_log: PartitionLog, shard: Shard, now_ms: int
) -> None:
    """Groups of aborted commits exist, as they did before, unless they were deleted after that."""
    ends = {
        record.key.group: offset
        for record, offset in _decoded(last, partition_log)
        if record.value is None and isinstance(record.key, GroupMetadataKey)
    }
    for record, offset in _decoded(aborted, partition_log):
        if offset > ends.get(record.key.group, -1):
            shard.mention(record.key.group, now_ms)


def _decoded(records: LastRecords, partition_log: PartitionLog) -> Iterator[tuple[Any, int]]:
    """The records that can be read and mean something here, each with its offset."""
    for key, (offset, value) in records.items():
        try:
            decoded = decode_record(key, value)
        except ProtocolError as error:
            # One bad record must not take all groups of the partition away; Kafka skips it too.
            log.error("%s: the record at offset %d is skipped: %s", partition_log.path, offset, error)
            continue
        if decoded is not None:
            yield decoded, offset


async def read_records(partition_log: PartitionLog) -> tuple[LastRecords, dict[int, LastRecords], LastRecords]:
    """The last record of each key, by producer those that an open transaction holds back, and those that were aborted.

    They are not decoded.

    A group commits the same few keys over and over, so that decoding these alone is several times faster than all.

    Raises:
        LogError, RecordError: the log cannot be read.
    """
    last: LastRecords = {}
    pending: dict[int, LastRecords] = {}
    aborted: LastRecords = {}
    for count, batch in enumerate(partition_log.iter_batches(), start=1):
        if count % BATCHES_PER_STEP == 0:
            await trio.lowlevel.checkpoint()
        if batch.is_control:
            marker = marker_of(batch)
            records = pending.pop(batch.producer_id, {}) if marker is not None else {}
            if marker is not None and marker[0] == ControlRecordType.COMMIT:
                _commit(last, records)
            else:
                aborted.update(records)
        elif batch.producer_id != NO_PRODUCER_ID:
            records = pending.setdefault(batch.producer_id, {})
            for record in batch.records():
                records[record.key or b""] = (record.offset, record.value)
        else:
            for record in batch.records():
                key = record.key or b""
                last.pop(key, None)  # so that it moves to the end
                last[key] = (record.offset, record.value)
                if record.value is None:
                    for records in pending.values():
                        records.pop(key, None)
    return last, pending, aborted


def _commit(last: LastRecords, records: LastRecords) -> None:
    """A transaction's records count, but for those with a newer one beside the transaction."""
    for key, (offset, value) in records.items():
        current = last.get(key)
        if current is None or current[0] < offset:
            last.pop(key, None)
            last[key] = (offset, value)


def append_records(
    partition: Any, output: Output, codec: int, now_ms: int, verification: Verification | None = None
) -> ErrorCode:
    """Appends one batch with this time of day; gives the log's own error, not a client's.

    `partition` is the registry's `Partition`, which this package does not import. `verification` is what a batch of a
    transaction has to bring (P-135).
    """
    producer = output.producer
    batch = build_batch(
        [Record(index, now_ms, *encode_record(record)) for index, record in enumerate(output.records)],
        codec=codec,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,  # coordinators' batches are not checked by it, but it is what Kafka's write
        is_transactional=producer is not NO_PRODUCER,
    )
    return append_batch(partition, batch, now_ms, verification)
