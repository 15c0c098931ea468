"""Writing the markers of a decided transaction, and what each way of failing means (P-133).

On one node a marker is a call. Markers for leaders elsewhere would be sent from here as well: what still has none is
in the transaction, per partition, and an attempt that fails is made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.transactions.states import TopicPartition, TransactionState
from pykbroker.transactions.transaction import Transaction

log = logging.getLogger(__name__)

MARKERS_AT_ONCE = 100
"""How many markers are written before other requests get their turn."""


class MarkerToWrite(NamedTuple):
    """One transaction's end, the same for all its partitions; `transaction_version` is the client's (P-136)."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


WriteMarker = Callable[[MarkerToWrite, str, int], ErrorCode]
PartitionExists = Callable[[str, int], bool]


class Progress(Enum):
    """What came of an attempt to write markers."""

    WRITTEN = "all of them"
    RETRY = "some partition cannot take its marker now"
    GIVEN_UP = "a partition has seen a newer producer or coordinator"


_FENCED = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))

_NO_MARKER_NEEDED = frozenset((ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT))


def write_markers(
    transaction: Transaction,
    partitions: Iterable[TopicPartition],
    coordinator_epoch: int,
    write_marker: WriteMarker,
    exists: PartitionExists,
    log_level: int = logging.INFO,
) -> Progress:
    """Writes the markers of these partitions, and takes out of the transaction what is written or was deleted.

    What cannot take its marker now is said in the log at `log_level`.
    """
    now = transaction.now
    is_commit = now.state is TransactionState.PREPARE_COMMIT
    marker = MarkerToWrite(now.producer_id, now.producer_epoch, coordinator_epoch, is_commit, now.client_version)
    progress = Progress.WRITTEN
    for partition in partitions:
        error = write_marker(marker, *partition) if exists(*partition) else ErrorCode.NONE
        if error in _NO_MARKER_NEEDED:
            transaction.marker_written(partition)
        elif error in _FENCED:
            log.error("%s-%d refuses %s: %s", *partition, marker, error.name)
            return Progress.GIVEN_UP
        else:
            log.log(log_level, "%s-%d cannot take %s now: %s", *partition, marker, error.name)
            progress = Progress.RETRY
    return progress
