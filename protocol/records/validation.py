"""A leader's checks of a client's record batch before it is stored, and its changes to it.

The rules are those of Kafka's ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords and LogValidator,
in the same order, so that bytes with several faults get the same error code. A batch that needs no change is returned
as the client's bytes: no record is decoded, nothing is copied (P-41). The log checks producer state (P-51 and on).

Compared with Apache Kafka 4.3.1 on 467 crafted batches; the remaining differences are intended:

* the fields of a record must fill its size also in a compressed batch (Kafka skips over keys and values there and
  stores what its own consumer cannot read);
* a batch must not decompress to more than `AppendPolicy.decompressed_bytes_max` (MESSAGE_TOO_LARGE, which makes
  Java's producer split the batch);
* a record size that is no varint is INVALID_RECORD like any other broken record (Kafka: UNKNOWN_SERVER_ERROR), and a
  negative timestamp survives recompression (Kafka: UNKNOWN_SERVER_ERROR);
* of the refused records of a batch the first `RECORD_ERRORS_MAX` are named.
"""

from __future__ import annotations

from typing import Final, NoReturn

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records import compression
from pykbroker.protocol.records.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    RecordBatch,
    build_batch,
    repack_batch,
)
from pykbroker.protocol.records.checksum import crc32c
from pykbroker.protocol.records.compression import Buffer
from pykbroker.protocol.records.errors import (
    CompressionFailed,
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    RecordBatchTooLarge,
    RecordTooLarge,
)
from pykbroker.protocol.records.layout import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from pykbroker.protocol.records.record import Record, decode_records
from pykbroker.protocol.records.record_scan import (
    BYTES_LEFT,
    ENDS_EARLY,
    FIELDS_DO_NOT_FILL,
    HEADER_WITHOUT_NAME,
    INVALID_HEADER_COUNT,
    SIZE_DOES_NOT_FIT,
    VARINT_TOO_LONG,
    scan_records,
)
from pykbroker.protocol.records.single_batch import header_of_single

RECORD_ERRORS_MAX: Final = 10_000
"""A compressed megabyte may hold a million records: a response that names each would be a hundred megabytes. Clients
treat the records that are not named as part of a refused batch, which they are."""

_INT64_MAX: Final = 2**63 - 1

_FAULTS: Final = {
    SIZE_DOES_NOT_FIT: "its size does not fit the batch",
    ENDS_EARLY: "the batch ends within it",
    VARINT_TOO_LONG: "a varint in it is too long",
    INVALID_HEADER_COUNT: "its number of headers is invalid",
    HEADER_WITHOUT_NAME: "it has a header without a name",
    FIELDS_DO_NOT_FILL: "its fields do not fill its size exactly",
    BYTES_LEFT: "bytes follow the last record",
}


class AppendPolicy(NamedTuple):
    """A topic's rules for client batches: made once per change of its configuration, passed with every append.

    The defaults are Kafka's.

    Attributes:
        max_message_bytes: `max.message.bytes`, for the whole batch (P-37).
        segment_bytes: `segment.bytes`; a batch larger than a segment is refused (P-37).
        is_log_append_time: `message.timestamp.type` is LogAppendTime (P-40).
        timestamp_before_max_ms: `message.timestamp.before.max.ms` (P-39).
        timestamp_after_max_ms: `message.timestamp.after.max.ms` (P-39).
        compression_codec: codec id of `compression.type`, None for "producer": see `compression.codec_of_topic` (P-41).
        compression_level: level of that codec, None for its default.
        is_compacted: `cleanup.policy` contains compact, which requires keys (P-36).
        decompressed_bytes_max: our own limit against decompression bombs.
    """

    max_message_bytes: int = 1048588
    segment_bytes: int = 1073741824
    is_log_append_time: bool = False
    timestamp_before_max_ms: int = _INT64_MAX
    timestamp_after_max_ms: int = 3600000
    compression_codec: int | None = None
    compression_level: int | None = None
    is_compacted: bool = False
    decompressed_bytes_max: int = compression.LIMIT_BYTES


class ValidatedBatch(NamedTuple):
    """A client batch that may be stored, with those header fields that an append needs.

    Attributes:
        data: the bytes to store: a view of the client's bytes, or new bytes if something had to change. Base offset and
            leader epoch are not assigned yet; assign them at the destination, as `data` may be read-only.
        size_bytes: len(data).
        record_count: number of records, which are numbered without gaps.
        max_timestamp: the greatest timestamp of its records; with LogAppendTime the time of the append.
        producer_id, producer_epoch, base_sequence: -1 each for a producer that is not idempotent.
        is_transactional: it belongs to a transaction.
        log_append_time_ms: the field of a Produce response: -1 for CreateTime (P-40).
    """

    data: Buffer
    size_bytes: int
    record_count: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    log_append_time_ms: int


def validate_client_batches(
    data: Buffer, policy: AppendPolicy, now_ms: int, topic_partition: str, header: BatchHeader | None = None
) -> ValidatedBatch:
    """Checks the records of one partition of a Produce request, and changes them as the topic's configuration requires.

    Args:
        now_ms: the time of the append.
        topic_partition: "topic-0"; it only goes into messages.
        header: that of `ProducedRecords` after its `check_single`; without it the same checks are made here.

    Raises:
        RecordError: with Kafka's error code, and with record errors where single records are refused (P-35 to P-41).
    """
    if header is None or header.length < HEADER_SIZE - LENGTH_OVERHEAD:
        header = header_of_single(data)
    (
        base_offset,
        length,
        _,
        _,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = header
    (
        max_message_bytes,
        segment_bytes,
        is_log_append_time,
        timestamp_before_max_ms,
        timestamp_after_max_ms,
        compression_codec,
        _,
        is_compacted,
        decompressed_bytes_max,
    ) = policy
    size_bytes = length + LENGTH_OVERHEAD
    view = data if isinstance(data, memoryview) else memoryview(data)
    if size_bytes != len(view):
        view = view[:size_bytes]
    if (
        base_offset
        or size_bytes > max_message_bytes
        or crc32c(view[ATTRIBUTES_POSITION:]) != crc
        or record_count <= 0
        or last_offset_delta + 1 != record_count
        or attributes & CONTROL_FLAG
        or (base_sequence < 0 and producer_id != NO_PRODUCER_ID)
    ):
        _refuse_header(view, max_message_bytes, topic_partition)

    codec = attributes & CODEC_MASK
    payload = (
        bytes(view[HEADER_SIZE:])
        if codec == compression.NONE
        else compression.decompress(codec, view[HEADER_SIZE:], decompressed_bytes_max)
    )
    fault, index, delta_min, delta_max, null_key_count, is_consecutive = scan_records(payload, 0, record_count)
    if fault:
        raise InvalidRecord(
            f"Record {index} of the batch in the append to {topic_partition} is invalid: {_FAULTS[fault]}"
        )
    marked = attributes & LOG_APPEND_TIME_FLAG
    greatest = base_timestamp + delta_max
    if (
        marked
        or greatest > _INT64_MAX
        or (null_key_count and is_compacted)
        or (
            not is_log_append_time
            and (
                greatest > now_ms + timestamp_after_max_ms
                or base_timestamp + delta_min < now_ms - timestamp_before_max_ms
            )
        )
    ):
        greatest = _check_each_record(RecordBatch(view), payload, policy, now_ms, topic_partition)
    if greatest < NO_TIMESTAMP:
        greatest = NO_TIMESTAMP

    target = codec if compression_codec is None else compression_codec
    if not is_consecutive and target == codec != compression.NONE:
        raise CompressionFailed(
            f"The records of the compressed batch in the append to {topic_partition} are not numbered 0, 1, 2 and so on"
        )
    if is_log_append_time:
        greatest = now_ms
    stored: Buffer = view
    if target != codec or is_log_append_time or marked or greatest != max_timestamp:
        stored = _changed(view, payload, target, is_consecutive, policy, greatest, topic_partition)
        size_bytes = len(stored)
    if size_bytes > segment_bytes:
        raise RecordBatchTooLarge(
            f"Message batch size is {size_bytes} bytes in append to partition {topic_partition}, which exceeds the "
            f"maximum configured segment size of {segment_bytes}."
        )
    # As ValidatedBatch(...), without the call of its Python function.
    return tuple.__new__(
        ValidatedBatch,
        (
            stored,
            size_bytes,
            record_count,
            greatest,
            producer_id,
            producer_epoch,
            base_sequence,
            attributes & TRANSACTIONAL_FLAG != 0,
            now_ms if is_log_append_time else NO_TIMESTAMP,
        ),
    )


def _refuse_header(view: memoryview, max_message_bytes: int, topic_partition: str) -> NoReturn:
    """Raises for the first fault of a batch that its header shows, in Kafka's order (P-35, P-36)."""
    batch = RecordBatch(view)
    if batch.base_offset:
        raise InvalidRecord(
            f"The baseOffset of the record batch in the append to {topic_partition} should be 0, "
            f"but it is {batch.base_offset}"
        )
    if len(view) > max_message_bytes:
        raise RecordTooLarge(
            f"The record batch size in the append to {topic_partition} is {len(view)} bytes which exceeds the maximum "
            f"configured value of {max_message_bytes}."
        )
    if crc32c(view[ATTRIBUTES_POSITION:]) != batch.crc:
        raise CorruptRecord(f"Record is corrupt (stored crc = {batch.crc}) in topic partition {topic_partition}.")
    count, last_offset = batch.record_count, batch.last_offset
    where = f"in topic partition {topic_partition}"
    if last_offset < 0:
        raise InvalidRecord(f"Batch has an invalid offset range: [0, {last_offset}] {where}")
    if count <= 0:
        raise InvalidRecord(f"Invalid reported count for record batch: {count} {where}")
    if last_offset + 1 != count:
        raise InvalidRecord(f"Inconsistent batch offset range [0, {last_offset}] and count of records {count} {where}")
    if batch.is_control:
        raise InvalidRecord(f"Clients are not allowed to write control records {where}")
    raise InvalidRecord(
        f"Invalid sequence number {batch.base_sequence} in record batch with producerId {batch.producer_id} {where}"
    )


def _check_each_record(
    batch: RecordBatch, payload: bytes, policy: AppendPolicy, now_ms: int, topic_partition: str
) -> int:
    """Checks the records one by one, for batches in which some record may have to be refused.

    Returns the greatest timestamp, -1 for none.
    Raises InvalidTimestamp or InvalidRecord that names each refused record, the first `RECORD_ERRORS_MAX` of them.
    """
    errors: list[tuple[int, str]] = []
    timestamp_refused = False
    greatest = NO_TIMESTAMP
    earliest = now_ms - policy.timestamp_before_max_ms
    latest = now_ms + policy.timestamp_after_max_ms
    # A client batch marked as LogAppendTime gives all its records the header's max timestamp.
    marked_time = batch.max_timestamp if batch.is_log_append_time else None
    for index, record in enumerate(decode_records(payload, batch.record_count, 0, batch.base_timestamp, marked_time)):
        timestamp = record.timestamp
        greatest = max(greatest, timestamp)
        if record.key is None and policy.is_compacted:
            message = f"Compacted topic cannot accept message without key in topic partition {topic_partition}"
        elif not policy.is_log_append_time and timestamp != NO_TIMESTAMP:
            if earliest <= timestamp <= latest:
                continue
            timestamp_refused = True
            message = (
                f"Timestamp {timestamp} of message with offset {record.offset} is out of range. The timestamp "
                f"should be within [{earliest}, {latest}]"
            )
        elif marked_time is not None:
            timestamp_refused = True
            message = (
                f"Invalid timestamp type in message {_described(record, batch, policy)}. "
                "Producer should not set timestamp type to LogAppendTime."
            )
        else:
            continue
        errors.append((index, message))
        if len(errors) >= RECORD_ERRORS_MAX:
            break
    if timestamp_refused:
        raise InvalidTimestamp("One or more records have been rejected due to invalid timestamp", errors)
    if errors:
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{message}')" for index, message in errors[:3])
        raise InvalidRecord(
            f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the "
            f"first three errors at most: [{shown}]",
            errors,
        )
    return greatest


def _described(record: Record, batch: RecordBatch, policy: AppendPolicy) -> str:
    """Kafka's text for the record, which differs if Kafka has decoded only a part of it."""
    codec = batch.compression_codec
    whole = codec == compression.NONE or policy.compression_codec not in (None, codec)
    name, null_size = ("DefaultRecord", 0) if whole else ("PartialDefaultRecord", -1)
    key_size = null_size if record.key is None else len(record.key)
    value_size = null_size if record.value is None else len(record.value)
    return (
        f"{name}(offset={record.offset}, timestamp={record.timestamp}, key={key_size} bytes, value={value_size} bytes)"
    )


def _changed(
    view: memoryview,
    payload: bytes,
    codec: int,
    is_consecutive: bool,
    policy: AppendPolicy,
    max_timestamp: int,
    topic_partition: str,
) -> Buffer:
    """The batch with this codec, the topic's timestamp type and `max_timestamp`."""
    batch = RecordBatch(view)
    if codec == batch.compression_codec:
        return _with_max_timestamp(view, policy, max_timestamp)
    stored = _rebuild(batch, payload, codec, is_consecutive, policy, max_timestamp)
    if len(stored) > policy.max_message_bytes:
        raise RecordTooLarge(
            f"Message batch size is {len(stored)} bytes in append to partition {topic_partition} which exceeds the "
            f"maximum configured size of {policy.max_message_bytes}."
        )
    return stored


def _with_max_timestamp(view: memoryview, policy: AppendPolicy, max_timestamp: int) -> Buffer:
    """The batch with the topic's timestamp type and with `max_timestamp`: in place if it is writable, else a copy."""
    data: Buffer = bytearray(view) if view.readonly else view
    RecordBatch(data).set_max_timestamp(LOG_APPEND_TIME if policy.is_log_append_time else CREATE_TIME, max_timestamp)
    return data


def _rebuild(
    batch: RecordBatch,
    payload: bytes,
    codec: int,
    is_consecutive: bool,
    policy: AppendPolicy,
    max_timestamp: int,
) -> bytes:
    """The same records with another codec (P-41), numbered again if their offset deltas are not 0, 1, 2 and so on."""
    marked_time = batch.max_timestamp if batch.is_log_append_time else None
    level = policy.compression_level if policy.compression_codec is not None else None
    timestamp_type = LOG_APPEND_TIME if policy.is_log_append_time else CREATE_TIME
    if is_consecutive and marked_time is None:
        return repack_batch(batch, payload, codec, level, timestamp_type, max_timestamp)
    return build_batch(
        decode_records(payload, batch.record_count, 0, batch.base_timestamp, marked_time),
        codec=codec,
        compression_level=level,
        timestamp_type=timestamp_type,
        log_append_time=max_timestamp,
        max_timestamp=max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
    )
