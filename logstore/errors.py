"""Errors of the log store.

Three families by cause: the request is wrong (`OffsetOutOfRange`, the producer errors), the disk failed
(`StorageError`, `StorageFull`), or files are damaged (`CorruptSegment`, `CorruptFile`). Each class has the Kafka error
code for the client.
"""

from __future__ import annotations

from pykbroker.protocol.error_codes import ErrorCode


class LogError(Exception):
    """Base of all errors of the log store. `error_code` is the Kafka error code for the client."""

    error_code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR


class OffsetOutOfRange(LogError):
    """The offset lies below the log start or above the log end (P-65)."""

    error_code = ErrorCode.OFFSET_OUT_OF_RANGE


class BatchTooLarge(LogError):
    """The batches of one append are together larger than `segment.bytes` (P-37)."""

    error_code = ErrorCode.RECORD_LIST_TOO_LARGE


class OutOfOrderSequence(LogError):
    """A producer's sequence number neither follows the last one nor repeats a cached batch (P-52, P-55)."""

    error_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(LogError):
    """A producer's epoch is lower than its last epoch in the log (P-55)."""

    error_code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionState(LogError):
    """A non-transactional write from a producer with an open transaction (P-138)."""

    error_code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFenced(LogError):
    """The coordinator epoch of a transaction marker is lower than that of an earlier marker (P-133)."""

    error_code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class UnexpectedAppendOffset(LogError):
    """Batches from a leader start below the log end, or are out of order."""


class StorageError(LogError):
    """The file system refused an operation. `path` names the file or directory, `reason` what is wrong with it."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class StorageFull(StorageError):
    """No space or quota left. The failed write left nothing in the log, which can be used again once there is space."""


class CorruptSegment(StorageError):
    """Bytes of a segment that were valid before are damaged (P-380). `position` is the byte position in the file.

    Clients and followers get CORRUPT_MESSAGE: the directory works, and a read at the same offset fails again.
    """

    error_code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(path, f"corrupt at byte {position}: {reason}")
        self.position = position


class CorruptFile(StorageError):
    """A checkpoint, snapshot or identity file does not have its format."""


class DirectoryLocked(StorageError):
    """Another process uses this data directory."""


class InconsistentDirectory(StorageError):
    """The data directory belongs to another cluster or node, or was written by an unknown version."""
