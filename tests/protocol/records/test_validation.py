"""Checks of a client's batch by a leader: error codes, and the fields that it changes (P-35 to P-42, P-53)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records import compression
from pykbroker.protocol.records.batch import LOG_APPEND_TIME, RecordBatch, build_batch
from pykbroker.protocol.records.errors import (
    CompressionFailed,
    CorruptRecord,
    InvalidProduceRecords,
    InvalidRecord,
    InvalidTimestamp,
    RecordBatchTooLarge,
    RecordError,
    RecordTooLarge,
    UnsupportedCompressionType,
)
from pykbroker.protocol.records.layout import CONTROL_FLAG, LOG_APPEND_TIME_FLAG, TRANSACTIONAL_FLAG
from pykbroker.protocol.records.record import Record, encode_record
from pykbroker.protocol.records.single_batch import ProducedRecords
from pykbroker.protocol.records.validation import (
    AppendPolicy,
    ValidatedBatch,
    validate_client_batches,
)
from tests.protocol.records.samples import LARGE, SMALL, TIME, fixture, with_crc, with_fields, with_payload

NOW = TIME + 1000
POLICY = AppendPolicy()
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
KEYED = [SMALL[0], SMALL[2]]


def validate(data: bytes | bytearray | memoryview, policy: AppendPolicy = POLICY) -> ValidatedBatch:
    return validate_client_batches(data, policy, NOW, "orders-3")


def refused(data: bytes | bytearray, policy: AppendPolicy = POLICY) -> RecordError:
    with pytest.raises(RecordError) as caught:
        validate(data, policy)
    return caught.value


@pytest.mark.parametrize(
    "name",
    [
        *(f"small_{codec}" for codec in CODECS),
        *(f"large_{codec}" for codec in CODECS[1:]),
        *(f"librdkafka_large_{codec}" for codec in CODECS[1:]),
    ],
)
def test_batches_of_stock_clients_are_stored_as_sent(name: str) -> None:
    """P-41: the bytes that came are the bytes to store, and they are not copied."""
    data = fixture(name)
    view = memoryview(data)
    batch = validate(view)
    assert batch.data is view
    assert validate(data).data == data
    assert batch.size_bytes == len(data)
    assert batch.record_count == (3 if name.startswith("small") else 200)
    assert batch.max_timestamp == (TIME + 5 if name.startswith("small") else TIME + 199)
    assert batch[4:] == (-1, -1, -1, False, -1)


def test_producer_fields() -> None:
    """P-53: a sequence that wraps within the batch is fine."""
    assert validate(fixture("idempotent"))[4:8] == (4711, 3, 2147483646, False)
    assert validate(fixture("transactional"))[4:8] == (4711, 3, 17, True)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        bytes(8) + b"\0\0\0\x60",
        fixture("small_none")[:-1],
        fixture("small_none")[:17],
        fixture("small_none") * 2,
        fixture("small_none") + fixture("small_gzip"),
    ],
)
def test_exactly_one_batch(data: bytes) -> None:
    """P-35: null or empty records, or more than one batch."""
    error = refused(data)
    assert type(error) is InvalidProduceRecords
    assert error.error_code is ErrorCode.INVALID_RECORD
    assert error.record_errors == ()
    assert not error.reports_log_start_offset


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(magic: int) -> None:
    """P-35: magic other than 2."""
    data = bytearray(fixture("small_none"))
    data[16] = magic
    for shortened in (data, data[:58]):
        if shortened is not data:
            shortened[8:12] = (46).to_bytes(4, "big")
        error = refused(shortened)
        assert error.error_code is ErrorCode.INVALID_RECORD
        assert f"message format {magic}" in str(error)


def test_a_partial_batch_behind_the_first_is_cut_off() -> None:
    data = fixture("small_none")
    for tail in (b"?", data[:11], data[:16], data[:-1]):
        batch = validate(data + tail)
        assert (batch.size_bytes, bytes(batch.data)) == (len(data), data)


def test_what_is_no_batch_is_corrupt() -> None:
    data = fixture("small_none")
    for broken in (
        data[:16] + b"\3" + data[17:],
        data[:16] + b"\xff" + data[17:],
        data[:8] + b"\0\0\0\x0d" + data[12:],
        data[:8] + b"\0\0\0\x20" + data[12:],
        data[:8] + b"\x80\0\0\0" + data[12:],
        data + data[:8] + b"\0\0\0\1",
    ):
        assert refused(broken).error_code is ErrorCode.CORRUPT_MESSAGE


def test_every_bit_that_the_crc_covers_counts() -> None:
    """P-38: a bad CRC is CORRUPT_MESSAGE, and it is looked at before anything else in the header."""
    data = fixture("idempotent")
    for position in range(17, len(data)):
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        error = refused(broken)
        assert type(error) is CorruptRecord
        assert error.error_code is ErrorCode.CORRUPT_MESSAGE
        assert "orders-3" in str(error)


def test_leader_epoch_of_the_client_does_not_matter() -> None:
    """P-42: it lies outside the CRC and is overwritten."""
    assert validate(with_fields(fixture("small_none"), partition_leader_epoch=99)).record_count == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"base_offset": 1},
        {"base_offset": -1},
        {"record_count": 0, "last_offset_delta": -1},
        {"record_count": 0},
        {"record_count": -1},
        {"record_count": 2},
        {"record_count": 4},
        {"last_offset_delta": 3},
        {"last_offset_delta": -1},
        {"last_offset_delta": -(2**31)},
        {"record_count": 2, "last_offset_delta": 1},
        {"record_count": 4, "last_offset_delta": 3},
        {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
        {"attributes": CONTROL_FLAG},
        {"attributes": CONTROL_FLAG | TRANSACTIONAL_FLAG},
        {"producer_id": 1},
        {"producer_id": 1, "producer_epoch": 0, "base_sequence": -7},
    ],
)
def test_header_fields_that_a_client_must_not_send(changes: dict[str, int]) -> None:
    """P-36: base offset, counts, control batches, a producer id without sequence."""
    for codec in CODECS:
        changes_of_codec = dict(changes)
        if "attributes" in changes:
            changes_of_codec["attributes"] |= CODECS.index(codec)
        error = refused(with_fields(fixture(f"small_{codec}"), **changes_of_codec))
        assert type(error) is InvalidRecord
        assert error.error_code is ErrorCode.INVALID_RECORD
        assert error.reports_log_start_offset


@pytest.mark.parametrize("codec", range(5))
def test_inner_structure(codec: int) -> None:
    """P-36: the records must be whole, exactly as many as announced, and nothing behind them."""
    head = with_fields(build_batch(SMALL), attributes=codec)
    good = [encode_record(i, 0, b"k", b"v") for i in range(2)]
    for payload in (
        good[0],
        good[0] + good[1] + b"\0",
        good[0] + good[1] + good[1],
        good[0] + good[1][:-1],
        b"",
        bytes(40),
        b"\x0c" + good[0][1:] + good[1],
    ):
        data = with_payload(head, compression.compress(codec, payload), 2)
        error = refused(data)
        assert error.error_code is ErrorCode.INVALID_RECORD
        assert "Record" in str(error)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_payload_that_is_not_of_its_codec(codec: int) -> None:
    """Kafka lets its codecs' exceptions through, and so the code is UNKNOWN_SERVER_ERROR; tried with 4.3.1."""
    data = with_fields(fixture("small_none"), attributes=codec)
    error = refused(data)
    assert type(error) is CompressionFailed
    assert error.error_code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    error = refused(with_fields(fixture("small_none"), attributes=codec))
    assert type(error) is CompressionFailed


@pytest.mark.parametrize("api_version", range(3, 14))
def test_zstd_needs_produce_v7(api_version: int) -> None:
    """P-38: zstd below Produce v7 is UNSUPPORTED_COMPRESSION_TYPE."""
    for codec in CODECS:
        data = fixture(f"small_{codec}")
        if codec == "zstd" and api_version < 7:
            with pytest.raises(UnsupportedCompressionType) as caught:
                ProducedRecords(data).check_single(api_version)
            assert caught.value.error_code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        else:
            ProducedRecords(data).check_single(api_version)


def test_max_message_bytes() -> None:
    """P-37: the whole batch is measured, as received."""
    data = fixture("small_gzip")
    assert validate(data, POLICY._replace(max_message_bytes=len(data))).record_count == 3
    error = refused(data, POLICY._replace(max_message_bytes=len(data) - 1))
    assert type(error) is RecordTooLarge
    assert error.error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert not error.reports_log_start_offset
    # before the CRC is computed
    assert type(refused(data[:-1] + b"?", POLICY._replace(max_message_bytes=10))) is RecordTooLarge


def test_max_message_bytes_after_recompression() -> None:
    """P-37: and again after any recompression."""
    data = fixture("large_gzip")
    policy = POLICY._replace(max_message_bytes=len(data), compression_codec=compression.NONE)
    error = refused(data, policy)
    assert error.error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert "Message batch size is" in str(error)


def test_segment_bytes() -> None:
    """P-37: a batch above `segment.bytes` is RECORD_LIST_TOO_LARGE."""
    data = fixture("small_none")
    assert validate(data, POLICY._replace(segment_bytes=len(data))).record_count == 3
    error = refused(data, POLICY._replace(segment_bytes=len(data) - 1))
    assert type(error) is RecordBatchTooLarge
    assert error.error_code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_decompression_bomb_asks_the_producer_to_split(codec: int) -> None:
    """MESSAGE_TOO_LARGE makes Java's producer split the batch, so that an honest one gets through."""
    bomb = build_batch([Record(0, TIME, None, bytes(20_000_000))], codec=codec)
    error = refused(bomb, POLICY._replace(decompressed_bytes_max=1_000_000))
    assert error.error_code is ErrorCode.MESSAGE_TOO_LARGE
    assert validate(bomb).record_count == 1


@pytest.mark.parametrize("codec", range(5))
def test_compacted_topics_want_keys(codec: int) -> None:
    """P-36: null keys are refused one by one, with per-record errors (KIP-467)."""
    compacted = POLICY._replace(is_compacted=True)
    error = refused(build_batch([*SMALL, Record(0, TIME)], codec=codec), compacted)
    assert type(error) is InvalidRecord
    message = "Compacted topic cannot accept message without key in topic partition orders-3"
    assert error.record_errors == ((1, message), (3, message))
    assert str(error) == (
        "One or more records have been rejected due to 2 record errors in total, and only showing the first three "
        f"errors at most: [RecordError(batchIndex=1, message='{message}'), RecordError(batchIndex=3, "
        f"message='{message}')]"
    )
    assert validate(build_batch(KEYED, codec=codec), compacted).record_count == 2
    assert validate(build_batch([Record(0, TIME, b"", None)], codec=codec), compacted).record_count == 1


@pytest.mark.parametrize("codec", range(5))
def test_timestamps_too_far_ahead(codec: int) -> None:
    """P-39: beyond `message.timestamp.after.max.ms`; nothing of the batch is stored."""
    hour = 3600000
    at_the_limit = [Record(0, NOW + hour, b"k"), Record(0, NOW, b"k")]
    assert validate(build_batch(at_the_limit, codec=codec)).max_timestamp == NOW + hour
    beyond = [*at_the_limit, Record(0, NOW + hour + 1, b"k")]
    error = refused(build_batch(beyond, codec=codec))
    assert type(error) is InvalidTimestamp
    assert error.error_code is ErrorCode.INVALID_TIMESTAMP
    assert str(error) == "One or more records have been rejected due to invalid timestamp"
    bounds = f"[{NOW - 2**63 + 1}, {NOW + hour}]"
    message = (
        f"Timestamp {NOW + hour + 1} of message with offset 2 is out of range. The timestamp should be within {bounds}"
    )
    assert error.record_errors == ((2, message),)


def test_only_so_many_records_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small batch may hold a million records; the answer must not be larger than what can be sent."""
    monkeypatch.setattr("pykbroker.protocol.records.validation.RECORD_ERRORS_MAX", 3)
    batch = build_batch([Record(0, TIME, None, b"v", []) for _ in range(10)])
    error = refused(batch, POLICY._replace(is_compacted=True))
    assert [index for index, _ in error.record_errors] == [0, 1, 2]


def test_timestamps_too_old() -> None:
    """P-39: `message.timestamp.before.max.ms` has no limit by default."""
    old = build_batch([Record(0, 0, b"k"), Record(0, TIME, b"k"), Record(0, -1, b"k")])
    assert validate(old).max_timestamp == TIME
    error = refused(old, POLICY._replace(timestamp_before_max_ms=5000))
    assert error.error_code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0]
    just = POLICY._replace(timestamp_before_max_ms=NOW)
    assert validate(old, just).record_count == 3


def test_records_without_timestamp_are_never_out_of_range() -> None:
    data = build_batch([Record(0, -1, b"k"), Record(0, -1, b"l")])
    assert validate(data, POLICY._replace(timestamp_before_max_ms=0)).max_timestamp == -1


def test_one_bad_timestamp_makes_it_an_invalid_timestamp() -> None:
    """As in Kafka: the code of the batch is INVALID_TIMESTAMP as soon as one record has that."""
    error = refused(build_batch([Record(0, TIME), Record(0, 2**60, b"k")]), POLICY._replace(is_compacted=True))
    assert error.error_code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1]


def test_timestamps_that_overflow_are_refused() -> None:
    data = with_fields(fixture("small_none"), base_timestamp=2**63 - 1)
    error = refused(data)
    assert error.error_code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1, 2]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("writable", [False, True])
def test_log_append_time(codec: int, writable: bool) -> None:
    """P-40: attribute bit, max timestamp, new CRC; records keep their deltas; bounds do not apply."""
    records = [Record(0, 5, b"k", b"v"), Record(0, 2**50, None, None)]
    sent = build_batch(records, codec=codec)
    data = bytearray(sent) if writable else sent
    batch = validate(data, POLICY._replace(is_log_append_time=True, timestamp_before_max_ms=0))
    stored = RecordBatch(bytes(batch.data))
    assert (batch.log_append_time_ms, batch.max_timestamp) == (NOW, NOW)
    assert (stored.is_log_append_time, stored.max_timestamp, stored.base_timestamp) == (True, NOW, 5)
    assert stored.verify_crc()
    assert stored.payload() == sent[61:]
    assert [record.timestamp for record in stored.records()] == [NOW, NOW]
    assert data == (batch.data if writable else sent)


def test_a_batch_marked_as_log_append_time_by_the_client() -> None:
    """P-39: refused as INVALID_TIMESTAMP on a LogAppendTime topic, or without a timestamp.

    On a CreateTime topic Kafka takes the header's max timestamp for every record and clears the mark.
    """
    marked = build_batch(SMALL, timestamp_type=LOG_APPEND_TIME, log_append_time=TIME + 3)
    error = refused(marked, POLICY._replace(is_log_append_time=True))
    assert error.error_code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1, 2]
    assert error.record_errors[1][1] == (
        f"Invalid timestamp type in message DefaultRecord(offset=1, timestamp={TIME + 3}, key=0 bytes, value=6 bytes). "
        "Producer should not set timestamp type to LogAppendTime."
    )
    packed = build_batch(SMALL, codec=1, timestamp_type=LOG_APPEND_TIME, log_append_time=-1)
    partial = "PartialDefaultRecord(offset=1, timestamp=-1, key=-1 bytes, value=6 bytes)"
    assert partial in refused(packed).record_errors[1][1]
    without_time = build_batch(SMALL, timestamp_type=LOG_APPEND_TIME, log_append_time=-1)
    assert refused(without_time).error_code is ErrorCode.INVALID_TIMESTAMP
    ahead = build_batch(SMALL, timestamp_type=LOG_APPEND_TIME, log_append_time=2**50)
    assert refused(ahead).error_code is ErrorCode.INVALID_TIMESTAMP

    batch = validate(marked)
    stored = RecordBatch(batch.data)
    assert stored.verify_crc()
    assert (stored.is_log_append_time, stored.max_timestamp, batch.max_timestamp) == (False, TIME + 3, TIME + 3)
    recompressed = RecordBatch(validate(marked, POLICY._replace(compression_codec=4)).data)
    assert recompressed.attributes == 4
    assert [record.timestamp for record in recompressed.records()] == [TIME + 3] * 3


def test_a_wrong_max_timestamp_is_put_right() -> None:
    """P-41: the max timestamp is that of the records, whatever the client says."""
    for codec in CODECS:
        data = with_fields(fixture(f"small_{codec}"), max_timestamp=TIME + 777)
        batch = validate(data)
        assert batch.max_timestamp == TIME + 5
        assert batch.data == fixture(f"small_{codec}")


@pytest.mark.parametrize("sent", range(5))
@pytest.mark.parametrize("wanted", range(5))
@pytest.mark.parametrize("log_append_time", [False, True])
def test_recompression(sent: int, wanted: int, log_append_time: bool) -> None:
    """P-41: the broker recompresses when codecs differ and stores as sent when they do not."""
    policy = POLICY._replace(compression_codec=wanted, is_log_append_time=log_append_time)
    data = build_batch(
        LARGE, codec=sent, producer_id=7, producer_epoch=1, base_sequence=2147483600, is_transactional=True
    )
    batch = validate(data, policy)
    stored = RecordBatch(batch.data)
    assert stored.verify_crc()
    assert stored.compression_codec == wanted
    assert stored.size_bytes == batch.size_bytes == len(batch.data)
    assert stored.is_log_append_time is log_append_time
    assert stored.max_timestamp == batch.max_timestamp == (NOW if log_append_time else TIME + 199)
    assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (7, 1, 2147483600)
    assert stored.is_transactional
    assert batch.is_transactional
    expected = [record._replace(timestamp=NOW) for record in LARGE] if log_append_time else LARGE
    assert list(stored.records()) == expected
    if sent == wanted and not log_append_time:
        assert batch.data == data


def test_recompression_levels() -> None:
    """KIP-390: the topic's level is used."""
    sizes = [
        validate(build_batch(LARGE), POLICY._replace(compression_codec=compression.GZIP, compression_level=level))
        for level in (1, 9)
    ]
    assert sizes[0].size_bytes > sizes[1].size_bytes


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_offset_deltas_of_compressed_batches(codec: int) -> None:
    """As in Kafka 4.3.1: put right while recompressing, else UNKNOWN_SERVER_ERROR."""
    records = [record._replace(offset=offset) for record, offset in zip(SMALL, (0, 5, 2), strict=True)]
    data = build_batch(records, keep_offsets=True, last_offset_delta=2, codec=codec)
    assert type(refused(data)) is CompressionFailed
    assert type(refused(data, POLICY._replace(compression_codec=codec))) is CompressionFailed
    stored = RecordBatch(validate(data, POLICY._replace(compression_codec=codec % 4 + 1)).data)
    assert stored.verify_crc()
    assert stored.compression_codec == codec % 4 + 1
    assert list(stored.records()) == SMALL


def test_offset_deltas_of_uncompressed_batches_are_left() -> None:
    data = build_batch(
        [record._replace(offset=offset) for record, offset in zip(SMALL, (0, 5, 2), strict=True)],
        keep_offsets=True,
        last_offset_delta=2,
    )
    assert validate(data).data == data


def outcome(data: bytes | bytearray, policy: AppendPolicy) -> bool:
    """True if the batch was accepted; then all of its records can be read."""
    try:
        batch = validate(data, policy)
    except RecordError:
        return False
    stored = RecordBatch(batch.data)
    assert stored.verify_crc()
    assert stored.size_bytes == batch.size_bytes == len(batch.data)
    found = list(stored.records())
    assert len(found) == batch.record_count
    if not policy.is_log_append_time:
        assert max(record.timestamp for record in found) == batch.max_timestamp or batch.max_timestamp == -1
    return True


policies = st.builds(
    AppendPolicy,
    max_message_bytes=st.sampled_from([100, 1048588]),
    is_log_append_time=st.booleans(),
    compression_codec=st.none() | st.integers(0, 4),
    is_compacted=st.booleans(),
    decompressed_bytes_max=st.just(1_000_000),
)


@given(st.binary(max_size=200), policies)
def test_any_bytes_give_a_batch_or_a_record_error(data: bytes, policy: AppendPolicy) -> None:
    outcome(data, policy)


@given(st.binary(max_size=100), st.integers(-1, 4), st.integers(0, 255), policies)
def test_any_payload_gives_a_batch_or_a_record_error(
    payload: bytes, record_count: int, attributes: int, policy: AppendPolicy
) -> None:
    outcome(with_payload(with_fields(fixture("small_none"), attributes=attributes), payload, record_count), policy)


def test_mutated_batches_of_the_java_client() -> None:
    """Fuzz with a right CRC, so that the mutations reach the checks behind it."""
    rng = random.Random(35)
    sources = [fixture(f"small_{codec}") for codec in CODECS] + [fixture("idempotent"), fixture("large_zstd")]
    names = ("is_log_append_time", "is_compacted")
    taken = 0
    for _ in range(6000):
        data = bytearray(rng.choice(sources))
        for _ in range(rng.randint(1, 3)):
            position = rng.randrange(21, min(len(data), 150))
            data[position] = rng.randrange(256)
        policy = POLICY._replace(
            compression_codec=rng.choice([None, None, 0, 1, 2, 3, 4]),
            decompressed_bytes_max=1_000_000,
            **{name: rng.random() < 0.2 for name in names},
        )
        taken += outcome(with_crc(bytes(data)), policy)
    assert taken > 100


def test_a_marked_batch_keeps_its_other_flags() -> None:
    data = with_fields(fixture("transactional"), attributes=TRANSACTIONAL_FLAG | LOG_APPEND_TIME_FLAG)
    assert RecordBatch(validate(data).data).attributes == TRANSACTIONAL_FLAG
