"""The view over a batch: its fields, what is written in place, and walking over several batches."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.protocol.records.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    RecordBatch,
    batch_of_frames,
    build_batch,
    codec_name,
    frames_in_steps,
    frames_of,
    iter_batches,
)
from pykbroker.protocol.records.compression import GZIP, NONE
from pykbroker.protocol.records.errors import CorruptRecord, InvalidRecord, RecordError, UnsupportedRecordFormat
from pykbroker.protocol.records.layout import HEADER, HEADER_SIZE
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.steps import PIECE, finished
from tests.protocol.records.samples import LARGE, SMALL, TIME, fixture, with_fields, with_payload


def test_fields_of_a_transactional_batch_of_the_java_client() -> None:
    data = fixture("transactional")
    batch = RecordBatch(b"????" + data, 4)
    assert (batch.base_offset, batch.last_offset, batch.next_offset, batch.last_offset_delta) == (0, 2, 3, 2)
    assert batch.size_bytes == len(data)
    assert batch.magic == 2
    assert batch.partition_leader_epoch == -1
    assert (batch.base_timestamp, batch.max_timestamp) == (TIME, TIME + 5)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4711, 3, 17)
    assert batch.producer_id >= 0
    assert batch.is_transactional
    assert not (batch.is_control)
    assert not (batch.is_log_append_time)
    assert not (batch.has_delete_horizon)
    assert batch.attributes == 0x10
    assert batch.compression_codec == 0
    assert batch.record_count == 3
    assert batch.crc == batch.compute_crc()
    assert batch.verify_crc()
    assert batch.to_bytes() == data
    assert "offsets 0..2" in repr(batch)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_the_java_client(codec: str) -> None:
    batch = RecordBatch(fixture(f"small_{codec}"))
    assert codec_name(batch.compression_codec) == codec
    assert list(batch.records()) == SMALL
    if codec != "none":
        assert list(RecordBatch(fixture(f"large_{codec}")).records()) == LARGE


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_librdkafka(codec: str) -> None:
    """P-166: its snappy is one raw block, without the framing of snappy-java."""
    size, expected = ("small", SMALL) if codec == "none" else ("large", LARGE)
    batch = RecordBatch(fixture(f"librdkafka_{size}_{codec}"))
    assert batch.verify_crc()
    assert codec_name(batch.compression_codec) == codec
    assert list(batch.records()) == expected
    assert (batch.producer_id >= 0, batch.base_sequence) == ((True, 0) if codec == "none" else (False, -1))


def test_records_of_a_log_append_time_batch_have_its_timestamp() -> None:
    """P-40: the deltas stay as they were sent, the header's max timestamp counts."""
    batch = RecordBatch(fixture("log_append_time"))
    assert batch.is_log_append_time
    assert batch.partition_leader_epoch == 7
    assert [record.timestamp for record in batch.records()] == [TIME + 1000] * 3
    assert [record.offset for record in batch.records()] == [100, 101, 102]


def test_we_build_the_bytes_that_java_builds() -> None:
    assert build_batch(SMALL) == fixture("small_none")
    assert build_batch(SMALL, producer_id=4711, producer_epoch=3, base_sequence=17, is_transactional=True) == fixture(
        "transactional"
    )
    assert build_batch(
        SMALL, base_offset=100, leader_epoch=7, timestamp_type=LOG_APPEND_TIME, log_append_time=TIME + 1000
    ) == fixture("log_append_time")


def test_set_max_timestamp_recomputes_the_crc() -> None:
    """P-40: LogAppendTime sets attribute bit 3 and the max timestamp."""
    data = bytearray(with_fields(fixture("transactional"), attributes=0x7F10))
    batch = RecordBatch(data)
    batch.set_max_timestamp(LOG_APPEND_TIME, TIME + 99)
    assert batch.verify_crc()
    assert (batch.is_log_append_time, batch.max_timestamp, batch.attributes) == (True, TIME + 99, 0x18)
    before = bytes(data)
    batch.set_max_timestamp(LOG_APPEND_TIME, TIME + 99)
    assert bytes(data) == before
    batch.set_max_timestamp(CREATE_TIME, TIME + 5)
    assert bytes(data) == fixture("transactional")


def test_a_view_over_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(fixture("small_none") * 2)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        batches = list(iter_batches(mapping))
        assert len(batches) == 2
        assert batches[1].verify_crc()
        assert [record.offset for record in batches[1].records()] == [0, 1, 2]


def test_iter_batches_stops_at_a_partial_batch() -> None:
    """P-61: what a Fetch returns may end within a batch."""
    one, two = fixture("small_none"), fixture("large_lz4")
    whole = one + two + one
    assert [batch.position for batch in iter_batches(whole)] == [0, len(one), len(one) + len(two)]
    for cut in range(len(one) + len(two), len(whole)):
        assert len(list(iter_batches(whole[:cut]))) == 2
    assert list(iter_batches(b"")) == []
    assert [batch.position for batch in iter_batches(whole, len(one))] == [len(one), len(one) + len(two)]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_clearly(magic: int) -> None:
    data = bytearray(fixture("small_none"))
    data[16] = magic
    with pytest.raises(UnsupportedRecordFormat, match=f"message format {magic}.*upgrade the producer"):
        list(iter_batches(data))


def test_what_cannot_be_a_batch_is_corrupt() -> None:
    data = bytearray(fixture("small_none"))
    data[16] = 77
    with pytest.raises(CorruptRecord, match="invalid magic: 77"):
        list(iter_batches(data))
    with pytest.raises(CorruptRecord, match="impossible length"):
        list(iter_batches(data[:8] + b"\0\0\0\x30" + data[12:16] + b"\2" + data[17:]))
    with pytest.raises(CorruptRecord, match="less than the header"):
        RecordBatch(b"\0" * 60)
    assert not RecordBatch(bytes(HEADER_SIZE)).verify_crc()
    assert not RecordBatch(fixture("small_none")[:-1]).verify_crc()


def test_counts_that_do_not_fit_are_invalid() -> None:
    batch = fixture("small_none")
    for record_count in (-1, 2, 4, 2**31 - 1):
        with pytest.raises(InvalidRecord):
            list(RecordBatch(with_fields(batch, record_count=record_count)).records())


def test_compaction_keeps_offsets_and_may_leave_an_empty_batch() -> None:
    """P-57: an emptied batch still says the producer's last sequence."""
    kept = build_batch([SMALL[2]._replace(offset=42)], base_offset=40, keep_offsets=True, last_offset_delta=9, codec=4)
    batch = RecordBatch(kept)
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (40, 49, 1)
    assert list(batch.records()) == [SMALL[2]._replace(offset=42)]
    empty = RecordBatch(
        build_batch([], base_offset=40, last_offset_delta=9, producer_id=1, producer_epoch=0, base_sequence=5, codec=4)
    )
    assert (empty.record_count, empty.size_bytes) == (0, HEADER_SIZE)
    assert list(empty.records()) == []
    horizon = RecordBatch(build_batch(SMALL, delete_horizon_ms=TIME + 10))
    assert horizon.has_delete_horizon
    assert horizon.base_timestamp == TIME + 10
    assert list(horizon.records()) == SMALL


records = st.builds(
    Record,
    st.just(0),
    st.integers(-1, 2**62),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=4).map(tuple),
)


@given(
    st.lists(records, max_size=20),
    st.integers(0, 4),
    st.integers(0, 2**40),
    st.integers(-1, 2**31 - 1),
    st.booleans(),
    st.booleans(),
)
def test_what_is_built_is_read(
    records: list[Record], codec: int, base_offset: int, leader_epoch: int, is_control: bool, is_transactional: bool
) -> None:
    data = build_batch(
        records,
        codec=codec,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        is_control=is_control,
        is_transactional=is_transactional,
    )
    (batch,) = iter_batches(data)
    assert batch.verify_crc()
    assert list(batch.records()) == [
        record._replace(offset=base_offset + index) for index, record in enumerate(records)
    ]
    assert batch.max_timestamp == max((record.timestamp for record in records), default=-1)
    assert (batch.is_control, batch.is_transactional) == (is_control, is_transactional)
    assert batch.partition_leader_epoch == leader_epoch


@given(st.binary(max_size=300))
def test_any_bytes_give_batches_or_a_record_error(data: bytes) -> None:
    try:
        for batch in iter_batches(data):
            list(batch.records())
    except RecordError:
        pass


@given(st.binary(max_size=120), st.integers(0, 20), st.integers(0, 7))
def test_any_payload_gives_records_or_a_record_error(payload: bytes, record_count: int, attributes: int) -> None:
    data = with_payload(with_fields(fixture("small_none"), attributes=attributes), payload, record_count)
    try:
        found = list(RecordBatch(data).records(limit_bytes=10_000))
    except RecordError:
        return
    assert len(found) == record_count


def test_the_header_format_has_61_bytes() -> None:
    assert HEADER.size == HEADER_SIZE == 61


FIELDS = st.one_of(st.none(), st.binary(max_size=300))


@given(st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=3 * PIECE), st.integers(min_value=0, max_value=1 << 50))
def test_records_that_are_encoded_before_their_batch(
    pairs: list[tuple[bytes | None, bytes | None]], timestamp: int
) -> None:
    """Those of the metadata log and of coordinators: the same bytes as in one piece."""
    frames = finished(frames_in_steps(pairs))
    assert frames.record_count == len(pairs)
    assert frames == frames_of(pairs)
    records = [Record(0, timestamp, *pair) for pair in pairs]
    assert batch_of_frames(frames, timestamp) == build_batch(records)


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_the_header_of_a_batch_of_encoded_records(codec: int, is_transactional: bool) -> None:
    header: Any = {
        "codec": codec,
        "producer_id": 7,
        "producer_epoch": 3,
        "base_sequence": 0,
        "is_transactional": is_transactional,
    }
    expected = build_batch([Record(0, 5, b"key", b"value" * 100)], **header)
    assert batch_of_frames(frames_of([(b"key", b"value" * 100)]), 5, **header) == expected


def test_others_have_turns_while_records_are_encoded() -> None:
    assert sum(1 for _ in frames_in_steps([(None, b"value")] * (10 * PIECE))) == 10
