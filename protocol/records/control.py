"""Control records: records that the broker itself writes between those of clients.

A control batch has attribute bit 5 and holds records whose key names a type: the end of a transaction, or the Raft
layer's own entries. Clients skip them all; unknown types must be skipped too.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from pykbroker.protocol.records.errors import InvalidRecord


class ControlRecordType(IntEnum):
    """The type in a control record's key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


_KEY: Final = struct.Struct(">hh")
_END_TRANSACTION: Final = struct.Struct(">hi")


def control_record_key(record_type: ControlRecordType) -> bytes:
    """The key of a control record: version 0 and the type, four bytes."""
    return _KEY.pack(0, record_type)


def control_record_type(key: bytes | None) -> ControlRecordType:
    """The type in a control record's key; UNKNOWN for types of later Kafka versions.

    Raises InvalidRecord for a key that is too short or has a negative version.
    """
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord(f"The key of a control record needs 4 bytes, not {0 if key is None else len(key)}")
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"The key of a control record has version {version}")
    return ControlRecordType(type_id) if 0 <= type_id <= 6 else ControlRecordType.UNKNOWN


def end_transaction_value(coordinator_epoch: int) -> bytes:
    """The value of an ABORT or COMMIT marker: version 0 and the epoch of the transaction coordinator."""
    return _END_TRANSACTION.pack(0, coordinator_epoch)


def end_transaction_coordinator_epoch(value: bytes | None) -> int:
    """The coordinator epoch in the value of an ABORT or COMMIT marker. Raises InvalidRecord if it is malformed."""
    if value is None or len(value) < _END_TRANSACTION.size:
        raise InvalidRecord("The value of a transaction marker is too short")
    version, coordinator_epoch = _END_TRANSACTION.unpack_from(value)
    if version < 0:
        raise InvalidRecord(f"The value of a transaction marker has version {version}")
    return int(coordinator_epoch)
