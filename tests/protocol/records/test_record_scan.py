"""The walk over the records: the same answers as the reader of single records, compiled and interpreted."""

from __future__ import annotations

import importlib.util
import random
import re
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pykbroker.protocol.records.record_scan as imported
from pykbroker.protocol.records.batch import RecordBatch
from pykbroker.protocol.records.errors import InvalidRecord
from pykbroker.protocol.records.record import decode_records, encode_record
from tests.protocol.records.samples import LARGE, SMALL, fixture

SOURCE = Path(imported.__file__).parent / "record_scan.py"


def _load_source() -> Any:
    loader = SourceFileLoader("record_scan_source", str(SOURCE))
    spec = importlib.util.spec_from_loader("record_scan_source", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


interpreted = _load_source()
both = pytest.mark.parametrize("scan", [imported.scan_records, interpreted.scan_records], ids=["imported", "source"])


def test_a_compiled_module_is_as_new_as_its_source() -> None:
    """The trap of compiled modules: an edited source that nobody runs."""
    assert imported.__name__ == "pykbroker.protocol.records.record_scan"
    revision = re.search(r"^SCAN_REVISION: Final = (\d+)$", SOURCE.read_text(), re.MULTILINE)
    assert revision is not None
    assert int(revision[1]) == imported.SCAN_REVISION, (
        f"{imported.__file__} was compiled from an older record_scan.py: run pip install -e . or delete it"
    )


def encode(records: list[Any]) -> bytes:
    return b"".join(
        encode_record(index, record.timestamp, record.key, record.value, record.headers)
        for index, record in enumerate(records)
    )


@both
def test_whole_batches(scan: Any) -> None:
    data = encode(SMALL)
    whole = (imported.WHOLE, 3, SMALL[2].timestamp, SMALL[1].timestamp, 1, True)
    assert scan(data, 0, 3) == whole
    assert scan(b"??" + data, 2, 3) == whole
    data = RecordBatch(fixture("small_none")).payload()
    assert scan(data, 0, 3) == (imported.WHOLE, 3, -70, 5, 1, True)
    assert scan(encode(LARGE), 0, 200) == (imported.WHOLE, 200, LARGE[0].timestamp, LARGE[-1].timestamp, 0, True)
    assert scan(b"", 0, 0) == (imported.WHOLE, 0, 0, 0, 0, True)


@both
@pytest.mark.parametrize("deltas", [[1], [0, 2], [0, 0], [0, -1], [-1], [0, 1, 70000]])
def test_gaps_in_the_offsets_are_seen(scan: Any, deltas: list[int]) -> None:
    data = b"".join(encode_record(delta, 0, b"k", b"v") for delta in deltas)
    assert scan(data, 0, len(deltas)) == (imported.WHOLE, len(deltas), 0, 0, 0, False)


@both
@pytest.mark.parametrize("delta", [0, 1, -1, 63, -64, 64, 8191, 8192, -8193, 2**31, -(2**31), 2**63 - 1, -(2**63)])
def test_timestamp_deltas_of_every_length(scan: Any, delta: int) -> None:
    assert scan(encode_record(0, delta, None, None), 0, 1) == (imported.WHOLE, 1, delta, delta, 1, True)
    data = encode_record(0, delta, None, None) + encode_record(1, 7, None, None)
    assert scan(data, 0, 2) == (imported.WHOLE, 2, min(delta, 7), max(delta, 7), 2, True)


@both
@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 2_000_000])
def test_fields_of_every_length(scan: Any, size: int) -> None:
    field = bytes(size)
    for record in ((field, None, ()), (None, field, ()), (b"", b"", (("name" * (size // 4), field),))):
        data = encode_record(0, 0, *record)
        assert scan(data, 0, 1)[0] == imported.WHOLE
        assert scan(data[:-1], 0, 1)[0] == imported.SIZE_DOES_NOT_FIT


FAULTS = [
    ("", imported.ENDS_EARLY),
    ("80", imported.ENDS_EARLY),
    ("0c", imported.SIZE_DOES_NOT_FIT),
    ("0b0000000101", imported.SIZE_DOES_NOT_FIT),
    ("ffffffffff0f 00", imported.VARINT_TOO_LONG),
    ("0c000000010100ff", imported.BYTES_LEFT),
    ("0e000000010100 00", imported.FIELDS_DO_NOT_FILL),
    ("0a000000010100", imported.FIELDS_DO_NOT_FILL),
    ("0c000000010102", imported.INVALID_HEADER_COUNT),
    ("0c000000010101", imported.INVALID_HEADER_COUNT),
    ("1400000001 01 ffffffff0f", imported.INVALID_HEADER_COUNT),
    ("1400000001 01 feffffff0f", imported.INVALID_HEADER_COUNT),
    ("10000000010102 01 00", imported.HEADER_WITHOUT_NAME),
    ("0e000000010102 00", imported.ENDS_EARLY),
    ("18 00 00 ffffffffff0f 01 01 00 00 00", imported.VARINT_TOO_LONG),
    ("1e 00 ffffffffffffffffffff01 00 01 01 00", imported.VARINT_TOO_LONG),
    ("18 00 00 00 ffffffffff0f 01 00 02", imported.VARINT_TOO_LONG),
    ("18 00 00 00 01 ffffffffff0f 00 00", imported.VARINT_TOO_LONG),
    ("18 00 00 00 01 01 02 ffffffffff0f", imported.VARINT_TOO_LONG),
    ("0c0000007e0000", imported.ENDS_EARLY),
    ("0c000000017e00", imported.ENDS_EARLY),
]


@both
@pytest.mark.parametrize(("data", "fault"), FAULTS)
def test_faults(scan: Any, data: str, fault: int) -> None:
    """P-36 asks for whole records; each fault is told apart so that a producer's author can find it."""
    assert scan(bytes.fromhex(data), 0, 1) == (fault, 0 if fault != imported.BYTES_LEFT else 1, 0, 0, 0, False)


def agrees_with_the_reader(data: bytes, record_count: int) -> bool:
    """Both walks say the same, and what they say is what the reader of single records says."""
    result = imported.scan_records(data, 0, record_count)
    assert interpreted.scan_records(data, 0, record_count) == result
    try:
        records = list(decode_records(data, record_count, 0, 0))
    except InvalidRecord:
        assert result[0] != imported.WHOLE
        return False
    deltas = [record.timestamp for record in records] or [0]
    assert result == (
        imported.WHOLE,
        record_count,
        min(deltas),
        max(deltas),
        sum(record.key is None for record in records),
        [record.offset for record in records] == list(range(record_count)),
    )
    return True


@given(st.binary(max_size=80), st.integers(0, 4))
def test_any_bytes(data: bytes, record_count: int) -> None:
    agrees_with_the_reader(data, record_count)


def test_mutated_records() -> None:
    rng = random.Random(166)
    data = encode(SMALL)
    whole = 0
    for _ in range(20_000):
        mutated = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            position = rng.randrange(len(mutated))
            match rng.randrange(4):
                case 0:
                    mutated[position] = rng.randrange(256)
                case 1:
                    mutated[position] ^= 1 << rng.randrange(8)
                case 2:
                    mutated.insert(position, rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF)))
                case _:
                    del mutated[position]
        whole += agrees_with_the_reader(bytes(mutated), 3)
    assert 100 < whole < 19_000


def noted(module: Any, data: bytes, record_count: int, first_offset: int) -> tuple[Any, dict[bytes, int]]:
    latest = {b"key-0": 3}
    return module.note_keys(data, 0, record_count, 1000, first_offset, latest), latest


def kept(module: Any, data: bytes, record_count: int, keeps_tombstones: bool) -> tuple[Any, list[bytes]]:
    pieces: list[bytes] = []
    latest = {b"key-0": 1001, b"tombstone": 1002, b"": 1000}
    return module.kept_records(data, 0, record_count, 1000, 1004, keeps_tombstones, latest, pieces), pieces


@pytest.mark.parametrize("module", [imported, interpreted], ids=["imported", "source"])
@pytest.mark.parametrize(("data", "fault"), [each for each in FAULTS if each[1] != imported.BYTES_LEFT])
def test_faults_of_the_passes_over_keys(module: Any, data: str, fault: int) -> None:
    """They do not look behind the last record: the caller compares the position with the size."""
    unread = bytes.fromhex(data)
    assert noted(module, unread, 1, 0) == ((fault, 0, 0), {b"key-0": 3})
    assert kept(module, unread, 1, True) == ((fault, 0, 0, 0, 0, 0, False), [])


def keys_agree_with_the_reader(data: bytes, record_count: int, first_offset: int = 1000) -> bool:
    """True if the reader of single records can read `data`; the two passes of a compaction then find the same."""
    found, latest = noted(imported, data, record_count, first_offset)
    assert noted(interpreted, data, record_count, first_offset) == (found, latest)
    for keeps_tombstones in (False, True):
        assert kept(interpreted, data, record_count, keeps_tombstones) == kept(
            imported, data, record_count, keeps_tombstones
        )
    end = found[1]
    try:
        records = list(decode_records(data[:end] if found[0] == imported.WHOLE else data, record_count, 1000, 0))
    except InvalidRecord:
        assert found[0] != imported.WHOLE
        assert kept(imported, data, record_count, False)[0][0] == found[0]
        return False
    keys = {record.key: record.offset for record in records if record.key is not None if record.offset >= first_offset}
    assert latest == {b"key-0": 3} | keys
    assert found == (imported.WHOLE, end, sum(len(key) for key in keys if key != b"key-0"))
    return True


@given(st.binary(max_size=80), st.integers(0, 4))
def test_keys_in_any_bytes(data: bytes, record_count: int) -> None:
    keys_agree_with_the_reader(data, record_count)


def test_keys_of_mutated_records() -> None:
    rng = random.Random(167)
    data = encode(SMALL)
    whole = 0
    for _ in range(5_000):
        mutated = bytearray(data)
        mutated[rng.randrange(len(mutated))] = rng.randrange(256)
        whole += keys_agree_with_the_reader(bytes(mutated), 3, rng.choice((0, 1001)))
    assert 100 < whole < 4_900


@pytest.mark.parametrize("module", [imported, interpreted], ids=["imported", "source"])
def test_which_records_are_kept(module: Any) -> None:
    """P-161: a later offset of the key removes a record, a missing key too; what lies above the end stays."""
    data = [
        encode_record(0, 7, b"key-0", b"an earlier one"),
        encode_record(1, 5, b"key-0", b"the latest"),
        encode_record(2, 90, b"tombstone", None),
        encode_record(3, 9, None, b"no key"),
        encode_record(4, -3, None, b"no key, above the end"),
        encode_record(5, 8, b"key-0", b"above the end"),
    ]
    size = len(b"".join(data))
    assert kept(module, b"".join(data), 6, True) == (
        (imported.WHOLE, size, 4, 5, 90, 1, True),
        [data[1] + data[2], data[4] + data[5]],
    )
    assert kept(module, b"".join(data), 6, False) == (
        (imported.WHOLE, size, 3, 5, 8, 0, True),
        [data[1], data[4] + data[5]],
    )
    assert kept(module, data[0], 1, True) == ((imported.WHOLE, len(data[0]), 0, 0, 0, 0, True), [])
    with_header = encode_record(4, 0, b"k", b"v", (("name", None),))
    with_attributes = with_header[:1] + b"\x01" + with_header[2:]
    for record in (with_header, with_attributes, encode_record(4, 0, b"k", b"v").replace(b"\x00", b"\x01", 1)):
        assert kept(module, record, 1, True) == ((imported.WHOLE, len(record), 1, 0, 0, 0, False), [record])
