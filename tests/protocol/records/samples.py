"""Contents of the fixtures, and small builders for the tests of record batches."""

from __future__ import annotations

import struct
from pathlib import Path

from crc32c import crc32c

from pykbroker.protocol.records.layout import HEADER
from pykbroker.protocol.records.record import Record

TIME = 1_700_000_000_000

FIXTURES = Path(__file__).parent / "fixtures"

SMALL = [
    Record(0, TIME, b"key-0", b"value-0"),
    Record(1, TIME + 5, None, b"no key"),
    Record(2, TIME - 70, b"tombstone", None, (("name", b"v"), ("hé", None), ("", b""))),
]
"""The records of the fixtures `small_*`; also a good sample of what records can have."""

LARGE = [Record(i, TIME + i, b"key-%d" % i, b"record %d " % i * 100) for i in range(200)]
"""The records of the fixtures `large_*`."""


def fixture(name: str) -> bytes:
    """One batch made by the Java client."""
    return bytes.fromhex((FIXTURES / f"{name}.hex").read_text())


def with_payload(batch: bytes, payload: bytes, record_count: int | None = None) -> bytes:
    """The batch with other bytes behind its header; length, CRC and, if given, counts are set right."""
    fields = list(HEADER.unpack_from(batch))
    fields[1] = len(payload) + 49
    if record_count is not None:
        fields[6], fields[12] = record_count - 1, record_count
    return with_crc(HEADER.pack(*fields) + payload)


def with_fields(batch: bytes, **changes: int) -> bytes:
    """The batch with other header fields and a right CRC."""
    fields = dict(zip(FIELDS, HEADER.unpack_from(batch), strict=True))
    fields.update(changes)
    return with_crc(HEADER.pack(*fields.values()) + batch[61:])


def with_crc(batch: bytes) -> bytes:
    """The batch with the CRC that its bytes have."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


FIELDS = (
    "base_offset",
    "batch_length",
    "partition_leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)
