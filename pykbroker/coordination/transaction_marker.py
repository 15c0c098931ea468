"""The end of a transaction, as its coordinator decides it and sends it to partitions, and the result of writing it."""

from __future__ import annotations

from typing import Protocol

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction, the same for all its partitions.

    `transaction_version` is that of the transaction (KIP-890). From version 2 on the producer epoch of the marker is
    greater than that of the transaction's records; before, both are equal (P-136).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


class AwaitedMarker(Protocol):
    """A marker that this broker has appended and that is not replicated yet."""

    async def wait_replicated(self, deadline: float) -> ErrorCode:
        """Waits for replication until `deadline`, in seconds on trio's clock; returns the partition's error."""


class WrittenMarker(NamedTuple):
    """Result of writing a marker to a partition.

    Attributes:
        error: NONE if the partition's leader has appended it.
        replication: its replication, if that is pending.
    """

    error: ErrorCode
    replication: AwaitedMarker | None = None
