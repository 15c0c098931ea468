"""The records of `__share_group_state` in Kafka's formats, and back (KIP-932).

A snapshot has the whole state of a share partition, an update only what has changed since; a tombstone has the key of a
snapshot. A key is an int16 type with its fields; a value begins with its own int16 version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from pykbroker.protocol.codec import decode, decode_versioned, encode, encode_versioned
from pykbroker.protocol.log_messages import share_state_records as messages
from pykbroker.protocol.log_messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from pykbroker.share_state.state import SharePartitionKey, StateBatch

VERSION = 0


@dataclass(slots=True)
class StateRecord:
    """One record; a value of None is a tombstone."""

    key: SharePartitionKey
    value: ShareSnapshotValue | ShareUpdateValue | None


def encode_record(record: StateRecord) -> tuple[bytes, bytes | None]:
    """Key and value as bytes."""
    group_id, topic_id, partition = record.key
    key_class = ShareUpdateKey if isinstance(record.value, ShareUpdateValue) else ShareSnapshotKey
    fields = key_class(group_id=group_id, topic_id=topic_id, partition=partition)
    key = struct.pack(">h", key_class.KEY) + encode(fields, VERSION)
    return key, None if record.value is None else encode_versioned(record.value, VERSION)


def decode_record(key: bytes, value: bytes | None) -> StateRecord | None:
    """Decodes what `encode_record` encoded; None for an unknown key type, to be skipped.

    Raises:
        DecodeError, UnsupportedVersion: the record is of a known type and cannot be read.
    """
    key_type = int.from_bytes(key[:2], "big", signed=True)
    classes = _CLASSES.get(key_type)
    if classes is None:
        return None
    fields = decode(classes[0], VERSION, key[2:])
    partition_key = SharePartitionKey(fields.group_id, fields.topic_id, fields.partition)
    if value is None:
        # Kafka ignores the tombstone of an update.
        return StateRecord(partition_key, None) if classes[0] is ShareSnapshotKey else None
    decoded = decode_versioned(classes[1], value)
    assert isinstance(decoded, ShareSnapshotValue | ShareUpdateValue)
    return StateRecord(partition_key, decoded)


def batches_of(value: ShareSnapshotValue | ShareUpdateValue) -> list[StateBatch]:
    """The state batches of a record."""
    return [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in value.state_batches
    ]


def batch_messages(batches: Iterable[StateBatch]) -> list[messages.StateBatch]:
    """State batches in the form of a record."""
    return [
        messages.StateBatch(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_state=batch.delivery_state,
            delivery_count=batch.delivery_count,
        )
        for batch in batches
    ]


_CLASSES: dict[int, tuple[type[ShareSnapshotKey | ShareUpdateKey], type[ShareSnapshotValue | ShareUpdateValue]]] = {
    ShareSnapshotKey.KEY: (ShareSnapshotKey, ShareSnapshotValue),
    ShareUpdateKey.KEY: (ShareUpdateKey, ShareUpdateValue),
}
