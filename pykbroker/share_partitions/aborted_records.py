"""Records of aborted transactions and control records, which members of a read_committed share group do not get.

A consumer that reads the log filters them out itself; in a share group they would count as delivered. So the leader
archives records of aborted transactions that a member has just acquired, and leaves them out of the response.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.batch import RecordBatch
from pykbroker.protocol.records.control import ControlRecordType, control_record_type
from pykbroker.share_partitions.acquisition import Acquired
from pykbroker.share_partitions.share_partition import SharePartition
from pykbroker.share_state.state import ACQUIRED

if TYPE_CHECKING:
    from pykbroker.logstore.file_range import FileRange
    from pykbroker.protocol.records.layout import BatchHeader


class TransactionalBatch(NamedTuple):
    """The fields of a batch of the log that matter for transactions.

    Attributes:
        producer_id: -1 for a producer without one.
        is_transactional: True for records and markers of transactions.
        ends_abort: True for the marker of an aborted transaction.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    is_transactional: bool
    ends_abort: bool


def batch_of(records: FileRange, start: int, header: BatchHeader) -> TransactionalBatch:
    """The batch that begins `start` bytes into a range; reads the record of a control batch."""
    ends_abort = False
    if header.is_control:
        marker = next(iter(RecordBatch(records.peek(start, header.size_bytes)).records()), None)
        ends_abort = marker is not None and control_record_type(marker.key) is ControlRecordType.ABORT
    return TransactionalBatch(
        header.base_offset, header.last_offset, header.producer_id, header.is_transactional, ends_abort
    )


def aborted_batches(
    batches: Iterable[TransactionalBatch], aborted: Iterable[tuple[int, int]]
) -> list[TransactionalBatch]:
    """The batches with records of aborted transactions, which are (first offset, producer id), in order of offsets."""
    waiting = list(aborted)
    heapq.heapify(waiting)
    producers: set[int] = set()
    found = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        while waiting and waiting[0][0] <= batch.last_offset:
            producers.add(heapq.heappop(waiting)[1])
        if batch.ends_abort:
            producers.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in producers:
            found.append(batch)
    return found


def archive_aborted(
    shares: SharePartition, acquired: Sequence[Acquired], aborted: Sequence[TransactionalBatch]
) -> list[Acquired]:
    """Archives acquired records of aborted batches, and returns the acquired records without them."""
    for batch in aborted:
        floor = shares.batches.floor(batch.base_offset)
        begin = batch.base_offset if floor is None else floor.first_offset
        in_flight = shares.batches.between(begin, batch.last_offset)
        shares.archive(in_flight, batch.base_offset, batch.last_offset + 1, ACQUIRED, counts=True)
    left: list[Acquired] = []
    for found in acquired:
        first = found.first_offset
        for batch in aborted:
            if batch.last_offset < first:
                continue
            if batch.base_offset > found.last_offset:
                break
            if first < batch.base_offset:
                left.append(Acquired(first, batch.base_offset - 1, found.delivery_count))
            first = batch.last_offset + 1
        if first <= found.last_offset:
            left.append(Acquired(first, found.last_offset, found.delivery_count))
    return left
