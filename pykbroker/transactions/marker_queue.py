"""Markers of a decided transaction: where each has to go, and what each way of failing means (P-133). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

from pykbroker.coordination.transaction_marker import TransactionMarker
from pykbroker.errors import answered_error
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykbroker.transactions.states import TopicPartition, TransactionState
from pykbroker.transactions.transaction import Transaction

MARKERS_AT_ONCE = 100
"""Markers that are written before other requests get their turn."""

MARKERS_PER_REQUEST = 1_000
"""Largest number of transactions in one WriteTxnMarkers request to another broker; the rest wait for its response."""

Key = tuple[int, str]
"""Partition of `__transaction_state` and transactional id."""


class AppendedMarker(Protocol):
    """A marker in a log of this broker that is not replicated yet."""

    async def wait_replicated(self, deadline: float) -> ErrorCode:
        """Waits until `deadline` on trio's clock at the latest; gives the partition's own error."""


WriteMarker = Callable[[TransactionMarker, str, int], "ErrorCode | AppendedMarker"]
"""Writes a marker into a partition that this broker leads; what is replicated at once gives its code."""


class Progress(Enum):
    """Outcome of writing a marker."""

    WRITTEN = "it is there, or is not needed"
    RETRY = "the partition cannot take it now"
    GIVEN_UP = "the partition has seen a newer producer or coordinator"


_FENCED = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))

_NO_MARKER_NEEDED = frozenset((ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION))


def progress_of(error: ErrorCode) -> Progress:
    """Outcome of a marker by the error code of the partition's leader."""
    if error in _NO_MARKER_NEEDED:
        return Progress.WRITTEN
    return Progress.GIVEN_UP if error in _FENCED else Progress.RETRY


class CompletingTransaction:
    """A decided transaction whose markers are being written.

    Attributes:
        key: whose it is.
        transaction: its state; `now.partitions` are those that still have no marker.
        marker: what is written.
        under_way: partitions whose marker was handed on and not answered for.
        is_over: nothing is to be done for it any more; answers that come late are not listened to.
        has_failed: whether a marker has failed before; said in the log once.
    """

    __slots__ = ("has_failed", "is_over", "key", "marker", "transaction", "under_way")

    def __init__(self, key: Key, transaction: Transaction, coordinator_epoch: int) -> None:
        now = transaction.now
        is_commit = now.state is TransactionState.PREPARE_COMMIT
        self.key = key
        self.transaction = transaction
        self.marker = TransactionMarker(
            now.producer_id, now.producer_epoch, coordinator_epoch, is_commit, now.client_version
        )
        self.under_way: set[TopicPartition] = set()
        self.is_over = False
        self.has_failed = False

    def to_do(self) -> list[TopicPartition]:
        """Partitions whose marker is to be written, in order."""
        return sorted(self.transaction.now.partitions - self.under_way)

    def answered(self, partition: TopicPartition, progress: Progress) -> None:
        """Notes what became of a marker."""
        self.under_way.discard(partition)
        if progress is Progress.WRITTEN:
            self.transaction.marker_written(partition)
        elif progress is Progress.GIVEN_UP:
            # As in Kafka an id whose marker was refused for good stays busy until its partition is loaded anew.
            self.is_over = True


Batch = list[tuple[CompletingTransaction, list[TopicPartition]]]


class MarkerQueue:
    """The markers that wait to be sent to one other broker, those of all transactions together."""

    def __init__(self) -> None:
        self._markers: dict[Key, tuple[CompletingTransaction, list[TopicPartition]]] = {}

    def put(self, completing: CompletingTransaction, partition: TopicPartition) -> None:
        """A marker is to be sent."""
        found = self._markers.get(completing.key)
        if found is None or found[0] is not completing:
            # A transaction of before a reload has nobody who waits for its answers.
            found = self._markers[completing.key] = (completing, [])
        found[1].append(partition)

    def take(self) -> Batch:
        """Markers for the next request; empty if there are none.

        The response tells transactions apart by their producer ids, so that one comes once.
        """
        batch: Batch = []
        count = 0
        for key, (completing, partitions) in list(self._markers.items()):
            if completing.is_over:
                del self._markers[key]
            elif count < MARKERS_PER_REQUEST and all(
                taken.marker.producer_id != completing.marker.producer_id for taken, _ in batch
            ):
                del self._markers[key]
                batch.append((completing, partitions))
                count += len(partitions)
        return batch


def markers_request(batch: Batch) -> WriteTxnMarkersRequest:
    """The markers of a batch as one request."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=completing.marker.producer_id,
                producer_epoch=completing.marker.producer_epoch,
                transaction_result=completing.marker.is_commit,
                topics=_by_topic(partitions),
                coordinator_epoch=completing.marker.coordinator_epoch,
                transaction_version=completing.marker.transaction_version,
            )
            for completing, partitions in batch
        ]
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    topics: dict[str, list[int]] = {}
    for name, number in partitions:
        topics.setdefault(name, []).append(number)
    return [WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()]


def errors_of(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    """The code of each marker, by producer id and partition."""
    return {
        (result.producer_id, (topic.name, partition.partition_index)): answered_error(partition.error_code)
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }
