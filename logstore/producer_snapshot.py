"""Producer state files: `<20 digits of the end offset>.snapshot` (docs/storage-format.md).

Big-endian: version i16 = 1, CRC-32C u32 over everything after it, entry count i32, entries of 46 bytes.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from pykbroker.logstore.errors import CorruptFile
from pykbroker.logstore.producer_state import NO_OFFSET, CachedBatch, ProducerEntry, last_sequence_of
from pykbroker.protocol.records.batch import NO_SEQUENCE
from pykbroker.protocol.records.checksum import crc32c

_VERSION: Final = 1
_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, current txn first offset
_ENTRY: Final = Struct(">qhiqiqiq")


def encode_snapshot(producers: dict[int, ProducerEntry]) -> bytes:
    """Content of a snapshot file. It has only the last batch of each producer, as in Kafka."""
    body = bytearray(_COUNT.pack(len(producers)))
    for producer_id, entry in producers.items():
        last = entry.batches[-1] if entry.batches else None
        body += _ENTRY.pack(
            producer_id,
            entry.epoch,
            last.last_sequence if last else NO_SEQUENCE,
            last.last_offset if last else NO_OFFSET,
            last.offset_delta if last else 0,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
    return _HEAD.pack(_VERSION, crc32c(body)) + bytes(body)


def decode_snapshot(content: bytes, path: str) -> list[tuple[int, ProducerEntry]]:
    """(producer id, state) of a snapshot file; raises CorruptFile."""
    try:
        version, crc = _HEAD.unpack_from(content)
        if version != _VERSION:
            raise CorruptFile(path, f"version {version} of a producer snapshot is unknown")
        if crc32c(content[_HEAD.size :]) != crc:
            raise CorruptFile(path, "the producer snapshot's CRC does not match its content")
        (count,) = _COUNT.unpack_from(content, _HEAD.size)
        start = _HEAD.size + _COUNT.size
        entries = list(_ENTRY.iter_unpack(content[start : start + count * _ENTRY.size]))
    except error as cause:
        raise CorruptFile(path, f"the producer snapshot is cut off: {cause}") from cause
    if len(entries) != count:
        raise CorruptFile(path, f"the producer snapshot holds {len(entries)} of {count} entries")
    producers: list[tuple[int, ProducerEntry]] = []
    for producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, txn_first in entries:
        entry = ProducerEntry(epoch, coordinator_epoch, timestamp_ms, txn_first if txn_first >= 0 else NO_OFFSET)
        if last_offset >= 0:
            # Wraps backwards from 0 to 2147483647, as last_sequence_of wraps forwards.
            first_sequence = NO_SEQUENCE if last_sequence < 0 else last_sequence_of(last_sequence, -delta)
            entry.batches.append(CachedBatch(first_sequence, last_sequence, last_offset, delta, timestamp_ms))
        producers.append((producer_id, entry))
    return producers
