"""Reads one partition of an internal topic: the last record of each key, and the records of transactions."""

from __future__ import annotations

from pykbroker.controller.turns import Turn
from pykbroker.coordination.shard import LastRecords, LoggedRecords
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.logstore.recovery import marker_of
from pykbroker.protocol.records.batch import NO_PRODUCER_ID
from pykbroker.protocol.records.control import ControlRecordType
from pykbroker.protocol.steps import PIECE


async def read_records(partition_log: PartitionLog, *, keeps_every: bool) -> LoggedRecords:
    """Reads a log from its start to its end, without decoding keys and values.

    A coordinator writes the same few keys over and over, so that decoding only the last record of each is several times
    faster than decoding all. With `keeps_every` all are kept nevertheless, for a shard that replays every record.

    Raises:
        LogError, RecordError: the log cannot be read.
    """
    last: LastRecords = {}
    pending: dict[int, LastRecords] = {}
    aborted: LastRecords = {}
    every: list[tuple[bytes, bytes | None, int]] = []
    turn = Turn()
    for batch in partition_log.iter_batches():
        await turn.end_if_over()
        if batch.is_control:
            marker = marker_of(batch)
            records = pending.pop(batch.producer_id, {}) if marker is not None else {}
            if marker is not None and marker[0] == ControlRecordType.COMMIT:
                _commit(last, records)
            else:
                aborted.update(records)
        elif batch.producer_id != NO_PRODUCER_ID:
            records = pending.setdefault(batch.producer_id, {})
            for count, record in enumerate(batch.records(), 1):
                records[record.key or b""] = (record.offset, record.value)
                if not count % PIECE:
                    await turn.end_if_over()
        elif keeps_every:
            for count, record in enumerate(batch.records(), 1):
                every.append((record.key or b"", record.value, record.offset))
                if not count % PIECE:
                    await turn.end_if_over()
        else:
            for count, record in enumerate(batch.records(), 1):
                if not count % PIECE:
                    await turn.end_if_over()
                key = record.key or b""
                last.pop(key, None)  # so that the key moves to the end: `last` is in the order of the log
                last[key] = (record.offset, record.value)
                if record.value is None:
                    for records in pending.values():
                        records.pop(key, None)
    return LoggedRecords(last, pending, aborted, partition_log.path, every)


def _commit(last: LastRecords, records: LastRecords) -> None:
    """Adds the records of a committed transaction to `last`, unless a later record outside of it has the same key."""
    for key, (offset, value) in records.items():
        current = last.get(key)
        if current is None or current[0] < offset:
            last.pop(key, None)
            last[key] = (offset, value)
