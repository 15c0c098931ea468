"""Metadata records as bytes: frame version, record type and record version as uvarints, then the flexible encoding.

A record of `__cluster_metadata` has one of them as its value; its key is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykbroker.protocol.codec import decode_from, encode_behind
from pykbroker.protocol.errors import DecodeError
from pykbroker.protocol.fields import Message
from pykbroker.protocol.log_messages import metadata_records
from pykbroker.protocol.log_messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from pykbroker.protocol.steps import Steps, finished, list_in_steps

FRAME_VERSION = 1

# (metadata.version, record version): from that level on Kafka writes that version. Other records have version 0 only.
_VERSION_STEPS: Mapping[type, tuple[tuple[int, int], ...]] = {
    RegisterBrokerRecord: ((7, 1), (8, 2), (17, 3), (30, 4)),
    PartitionRecord: ((7, 0), (17, 1), (23, 2)),
    PartitionChangeRecord: ((7, 0), (17, 1), (23, 2)),
}

_TYPES: Mapping[int, type[Message]] = {
    value.KEY: value
    for value in vars(metadata_records).values()
    if isinstance(value, type) and issubclass(value, Message) and value.KEY >= 0
}


def record_version(record: Any, metadata_version: int) -> int:
    """The version in which Kafka writes this record at a finalized `metadata.version`."""
    kind = type(record)
    if kind is BrokerRegistrationChangeRecord:
        # Kafka takes the lowest version that has the changed fields.
        if record.cordoned_log_dirs is not None:
            return 3
        if record.log_dirs:
            return 2
        return 1 if record.in_controlled_shutdown else 0
    version = 0
    for level, value in _VERSION_STEPS.get(kind, ()):
        if metadata_version >= level:
            version = value
    return version


def encode_record(record: Any, metadata_version: int) -> bytes:
    """The value of one log record. Type and version numbers are below 128, so each uvarint is one byte."""
    version = record_version(record, metadata_version)
    return encode_behind(bytes((FRAME_VERSION, record.KEY, version)), record, version)


def encode_records(records: Iterable[Any], metadata_version: int) -> list[bytes]:
    """The values of several log records."""
    return finished(encode_in_steps(records, metadata_version))


def encode_in_steps(records: Iterable[Any], metadata_version: int) -> Steps[list[bytes]]:
    """As `encode_records`, in steps."""
    return list_in_steps(encode_record(record, metadata_version) for record in records)


def decode_record(value: bytes | memoryview | None) -> Any:
    """The metadata record in the value of a log record.

    Raises:
        DecodeError: not a metadata record, or of a type or version that this software does not know. Such a record
            cannot be skipped, as the image would be wrong without it.
    """
    if value is None:
        raise _error(-1, "value", 0, "the record has no value")
    if len(value) > 3 and value[0] == FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        # A fast path, which fits all existing records: a start reads thousands of them.
        _, key, version = value[:3]
        position = 3
    else:
        frame_version, position = _uvarint(value, 0)
        if frame_version != FRAME_VERSION:
            raise _error(-1, "frame version", 0, f"it is {frame_version}, only {FRAME_VERSION} is known")
        key, position = _uvarint(value, position)
        version, position = _uvarint(value, position)
    kind = _TYPES.get(key)
    if kind is None:
        raise _error(version, "type", 1, f"{key} is unknown; was the log written by newer software?")
    if version not in kind.VERSIONS:
        raise _error(
            version,
            "version",
            position - 1,
            f"{kind.__name__} has {kind.VERSIONS}; was the log written by newer software?",
        )
    return decode_from(kind, version, value, position)[0]


def _error(version: int, field: str, position: int, reason: str) -> DecodeError:
    return DecodeError("metadata record", version, field, position, reason)


def _uvarint(value: bytes | memoryview, position: int) -> tuple[int, int]:
    result = 0
    for index, shift in enumerate(range(0, 35, 7)):
        if position + index >= len(value):
            break
        byte = value[position + index]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position + index + 1
    raise _error(-1, "frame", position, "the record ends inside its frame")
