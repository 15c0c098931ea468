"""Errors of record batches, each with the Kafka error code of the Produce response.

The classes follow Kafka's: a leader answers a Produce request with `error_code`, and with `record_errors` plus the
message where single records were at fault (Produce v8, KIP-467).
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError


class RecordError(ProtocolError):
    """A record batch that cannot be read or that a leader must not store; base of this module.

    Attributes:
        error_code: error code of the partition in a Produce response.
        record_errors: (index of the record in the batch, message) for each refused record; empty when the batch as
            a whole is at fault. Kafka sends a message with the partition only when this is filled.
    """

    error_code: ErrorCode = ErrorCode.INVALID_RECORD
    reports_log_start_offset = True
    """True if Kafka's Produce response carries the log start offset with this error (else -1)."""

    def __init__(self, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.record_errors: tuple[tuple[int, str], ...] = tuple(record_errors)


class CorruptRecord(RecordError):
    """Length or checksum are wrong: the bytes were damaged on their way or on disk (P-38)."""

    error_code = ErrorCode.CORRUPT_MESSAGE
    reports_log_start_offset = False


class InvalidRecord(RecordError):
    """Undamaged bytes that break the format or a rule for client batches (P-35, P-36)."""

    error_code = ErrorCode.INVALID_RECORD


class UnsupportedRecordFormat(InvalidRecord):
    """A message set of format 0 or 1, which Kafka 4 no longer accepts (KIP-724)."""


class InvalidProduceRecords(InvalidRecord):
    """No batch, several batches or another format than 2: refused before the log validates the batch (P-35)."""

    reports_log_start_offset = False


class InvalidTimestamp(RecordError):
    """A timestamp out of the topic's bounds, or a client batch marked as LogAppendTime (P-39)."""

    error_code = ErrorCode.INVALID_TIMESTAMP


class RecordTooLarge(RecordError):
    """A batch above `max.message.bytes`, or one that decompresses to more than we hold in memory (P-37)."""

    error_code = ErrorCode.MESSAGE_TOO_LARGE
    reports_log_start_offset = False


class RecordBatchTooLarge(RecordError):
    """The final batch does not fit one segment (`segment.bytes`, P-37)."""

    error_code = ErrorCode.RECORD_LIST_TOO_LARGE
    reports_log_start_offset = False


class UnsupportedCompressionType(RecordError):
    """zstd below Produce v7 (P-38)."""

    error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    reports_log_start_offset = False


class CompressionFailed(RecordError):
    """The compressed bytes of a batch cannot be read, or its codec id is unknown.

    Kafka has no code for this: it answers exceptions of its codecs with UNKNOWN_SERVER_ERROR, which clients do not
    retry. This broker does the same.
    """

    error_code = ErrorCode.UNKNOWN_SERVER_ERROR


class UnknownCodec(CompressionFailed):
    """An unknown codec id below Produce v7, where the codec is looked at before the log (P-38)."""

    reports_log_start_offset = False
