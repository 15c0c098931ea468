"""Single records and their varints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.protocol.records.errors import InvalidRecord
from pykbroker.protocol.records.record import Record, decode_records, encode_record, encode_varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804"), (-(2**31), "ffffffff0f")],
)
def test_varints_are_zig_zag(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**31 - 1))
def test_every_timestamp_and_offset_delta_is_read_back(timestamp_delta: int, offset_delta: int) -> None:
    (record,) = decode_records(encode_record(offset_delta, timestamp_delta, b"k", None), 1, 10, 0)
    assert record == Record(10 + offset_delta, timestamp_delta, b"k", None)


def test_timestamps_overflow_as_in_java() -> None:
    (record,) = decode_records(encode_record(0, 1, None, None), 1, 0, 2**63 - 1)
    assert record.timestamp == -(2**63)


def test_header_names_that_are_not_utf8_are_replaced() -> None:
    body = bytes.fromhex("00 00 00 01 01 02 02 ff 01")
    (record,) = decode_records(bytes((len(body) * 2,)) + body, 1, 0, 0)
    assert record.headers == (("�", None),)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "ends early"),
        ("0c", "does not fit"),
        ("0b0000000101", "does not fit"),
        ("0c000000010100ff", "follow the last record"),
        ("0e000000010100 00", "from its end"),
        ("0c00000002", "does not fit"),
        ("0c000000010102", "number of headers"),
        ("10000000010102 01 00", "without a name"),
        ("18 00 00 ffffffffff0f 01 01 00 00 00", "too long"),
        ("1e 00 ffffffffffffffffffff01 00 01 01 00", "too long"),
        ("0c0000007e0000", "ends early"),
    ],
)
def test_broken_records(data: str, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        list(decode_records(bytes.fromhex(data), 1, 0, 0))
