"""Markers of decided transactions: the queue for each broker, and the outcome of each error (P-133). Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from pykbroker.coordination.transaction_marker import TransactionMarker, WrittenMarker
from pykbroker.errors import answered_error
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykbroker.protocol.topic_partition import TopicPartition, numbers_by_topic
from pykbroker.transactions.states import TransactionState
from pykbroker.transactions.transaction import Transaction

MARKERS_AT_ONCE = 20
"""Markers of a transaction up to which they are written in one step. The first record in a log, whose file has to be
opened, takes half a millisecond, a later one a tenth of that."""

MARKERS_PER_REQUEST = 1_000
"""Largest number of markers in one WriteTxnMarkers request to another broker: its response is handled in one step."""

Key = tuple[int, str]
"""Partition of `__transaction_state` and transactional id."""


WriteMarker = Callable[[TransactionMarker, str, int], WrittenMarker]
"""Appends a marker to a partition that this broker leads."""


class Progress(Enum):
    """Outcome of writing a marker."""

    WRITTEN = "it is there, or is not needed"
    RETRY = "the partition cannot take it now"
    GIVEN_UP = "the partition has seen a newer producer or coordinator"


_FENCED = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))

_NO_MARKER_NEEDED = frozenset((ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION))


def progress_of(error: ErrorCode) -> Progress:
    """Outcome of a marker by the error code from the partition's leader."""
    if error in _NO_MARKER_NEEDED:
        return Progress.WRITTEN
    return Progress.GIVEN_UP if error in _FENCED else Progress.RETRY


class CompletingTransaction:
    """A decided transaction whose markers are being written.

    Attributes:
        key: partition of `__transaction_state` and transactional id.
        transaction: its state; its `partitions` are those that still have no marker.
        marker: the marker, the same for all partitions.
        in_flight: partitions whose marker is queued, sent or being replicated.
        is_over: True if it is completed, given up or unloaded; later responses are ignored.
        has_failed: True once it had to be retried; failures of its markers are then logged at DEBUG.
    """

    __slots__ = ("has_failed", "in_flight", "is_over", "key", "marker", "transaction")

    def __init__(self, key: Key, transaction: Transaction, coordinator_epoch: int) -> None:
        current = transaction.current
        is_commit = current.state is TransactionState.PREPARE_COMMIT
        self.key = key
        self.transaction = transaction
        self.marker = TransactionMarker(
            current.producer_id, current.producer_epoch, coordinator_epoch, is_commit, current.client_version
        )
        self.in_flight: set[TopicPartition] = set()
        self.is_over = False
        self.has_failed = False

    def to_do(self) -> list[TopicPartition]:
        """Partitions whose marker is to be written, in order."""
        return sorted(self.transaction.partitions - self.in_flight)

    @property
    def has_to_do(self) -> bool:
        """True if some partition has no marker yet and none in flight."""
        return len(self.transaction.partitions) > len(self.in_flight)

    def answered(self, partition: TopicPartition, progress: Progress) -> None:
        """Applies the outcome of a marker."""
        self.in_flight.discard(partition)
        if progress is Progress.WRITTEN:
            self.transaction.marker_written(partition)
        elif progress is Progress.GIVEN_UP:
            # As in Kafka an id whose marker failed with a final error stays busy until its partition is loaded again.
            self.is_over = True


Batch = list[tuple[CompletingTransaction, list[TopicPartition]]]


class MarkerQueue:
    """The markers that wait to be sent to one other broker, those of all transactions together."""

    def __init__(self) -> None:
        self._markers: dict[Key, tuple[CompletingTransaction, list[TopicPartition]]] = {}

    def put(self, completing: CompletingTransaction, partition: TopicPartition) -> None:
        """Adds a marker."""
        found = self._markers.get(completing.key)
        if found is None or found[0] is not completing:
            # An entry from before the partition was loaded again is dropped: its responses would be ignored.
            found = self._markers[completing.key] = (completing, [])
        found[1].append(partition)

    def take(self) -> Batch:
        """Removes and returns markers for the next request; empty if there are none.

        The response identifies transactions by producer id, so that a request has each producer id once.
        """
        batch: Batch = []
        count = 0
        for key, (completing, partitions) in list(self._markers.items()):
            if completing.is_over:
                del self._markers[key]
            elif count < MARKERS_PER_REQUEST and all(
                taken.marker.producer_id != completing.marker.producer_id for taken, _ in batch
            ):
                room = MARKERS_PER_REQUEST - count
                batch.append((completing, partitions[:room]))
                count += len(partitions[:room])
                if len(partitions) > room:
                    self._markers[key] = completing, partitions[room:]
                else:
                    del self._markers[key]
        return batch


def markers_request(batch: Batch) -> WriteTxnMarkersRequest:
    """WriteTxnMarkers request with the markers of a batch."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=completing.marker.producer_id,
                producer_epoch=completing.marker.producer_epoch,
                transaction_result=completing.marker.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
                    for name, numbers in numbers_by_topic(partitions).items()
                ],
                coordinator_epoch=completing.marker.coordinator_epoch,
                transaction_version=completing.marker.transaction_version,
            )
            for completing, partitions in batch
        ]
    )


def errors_of(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    """Error code of each marker, by producer id and partition."""
    return {
        (result.producer_id, (topic.name, partition.partition_index)): answered_error(partition.error_code)
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }
