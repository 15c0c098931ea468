"""The records of `__share_group_state` in Kafka's formats, and back (KIP-932).

A snapshot has the whole state of a share partition, an update only what has changed since; a tombstone has the key of a
snapshot. `coordination/coordinator_records.py` has the frame of the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pykbroker.coordination import coordinator_records
from pykbroker.protocol.log_messages import share_state_records as messages
from pykbroker.protocol.log_messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from pykbroker.share_state.state import SharePartitionKey, StateBatch

VERSION = 0

SHARE_STATE_KINDS = coordinator_records.kinds_of(messages)
"""The types of records of `__share_group_state`."""


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
    return coordinator_records.encode_record(fields, record.value, VERSION)


def decode_record(key: bytes, value: bytes | None) -> StateRecord | None:
    """Decodes what `encode_record` encoded; None for an unknown key type, to be skipped.

    Raises:
        DecodeError, UnsupportedVersion: the record is of a known type and cannot be read.
    """
    record = coordinator_records.decode_record(SHARE_STATE_KINDS, key, value)
    if record is None:
        return None
    fields, value_read = record.key, record.value
    assert isinstance(fields, ShareSnapshotKey | ShareUpdateKey)
    partition_key = SharePartitionKey(fields.group_id, fields.topic_id, fields.partition)
    if value_read is None:
        # Kafka ignores the tombstone of an update.
        return StateRecord(partition_key, None) if isinstance(fields, ShareSnapshotKey) else None
    assert isinstance(value_read, ShareSnapshotValue | ShareUpdateValue)
    return StateRecord(partition_key, value_read)


def batch_messages(batches: Iterable[StateBatch]) -> list[messages.StateBatch]:
    """State batches in the form of a record."""
    return [messages.StateBatch(**batch._asdict()) for batch in batches]
