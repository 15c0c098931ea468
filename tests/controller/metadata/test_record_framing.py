"""Metadata records as bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.controller.metadata.record_framing import decode_record, encode_record, record_version
from pykbroker.protocol.errors import DecodeError
from pykbroker.protocol.log_messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)


def test_a_frame_is_version_type_version_body() -> None:
    """The bytes of a TopicRecord that Apache Kafka 4.3.1 wrote begin the same way."""
    record = TopicRecord(name="t", topic_id=bytes(range(16)))
    assert encode_record(record, 30) == bytes((1, 2, 0)) + b"\x02t" + bytes(range(16)) + b"\x00"
    assert decode_record(encode_record(record, 30)) == record


@pytest.mark.parametrize(
    ("record", "metadata_version", "version"),
    [
        (RegisterBrokerRecord(), 30, 4),
        (RegisterBrokerRecord(), 29, 3),
        (RegisterBrokerRecord(), 7, 1),
        (PartitionRecord(), 30, 2),
        (PartitionRecord(), 22, 1),
        (PartitionChangeRecord(), 7, 0),
        (BrokerRegistrationChangeRecord(fenced=1), 30, 0),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), 30, 1),
        (BrokerRegistrationChangeRecord(log_dirs=[bytes(16)]), 30, 2),
        (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), 30, 3),
        (NoOpRecord(), 30, 0),
    ],
)
def test_record_versions_follow_metadata_version(record: object, metadata_version: int, version: int) -> None:
    assert record_version(record, metadata_version) == version


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "ends inside its frame"),
        (b"\x01\x80", "ends inside its frame"),
        (b"\x02\x02\x00", "only 1 is known"),
        (b"\x01\x63\x00", "99 is unknown"),
        (b"\x01\x02\x07", "TopicRecord has 0"),
        (b"\x01\x02\x00\x05t", "TopicRecord"),
    ],
)
def test_what_is_no_metadata_record_is_told(value: bytes | None, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_record(value)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_decode_error(value: bytes) -> None:
    with suppress(DecodeError):
        decode_record(value)
