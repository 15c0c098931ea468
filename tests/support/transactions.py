"""Transactions without a coordinator: one that answers as a test says, and appends and markers made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykbroker.coordination.transaction_marker import TransactionMarker
from pykbroker.logstore.partition_log import AppendOrigin
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.replication.partition import Partition
from pykbroker.replication.transaction_markers import marker_batch
from pykbroker.transactions.states import ProducerIdentity
from tests.support.data_path import NOW_MS, batch

PRODUCER_ID = 7


class FakeTransactions:
    """Stands for `services.transactions`: answers `answer` for every partition; `answers` come first, call by call."""

    def __init__(self) -> None:
        self.answer = ErrorCode.NONE
        self.answers: list[ErrorCode] = []
        self.asked: list[tuple[Any, ...]] = []

    async def verify_anywhere(
        self,
        producer: ProducerIdentity,
        partitions: Sequence[tuple[str, int]],
        *,
        add: bool,
    ) -> dict[tuple[str, int], ErrorCode]:
        self.asked.append((*producer, list(partitions), add))
        answer = self.answers.pop(0) if self.answers else self.answer
        return dict.fromkeys(partitions, answer)


def transactional_batch(sequence: int = 0, count: int = 1, *, producer_id: int = PRODUCER_ID, epoch: int = 0) -> bytes:
    return batch(
        count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True, key=b"k"
    )


def write_in_transaction(
    partition: Partition, sequence: int = 0, count: int = 1, *, producer_id: int = PRODUCER_ID, epoch: int = 0
) -> int:
    """Appends as a verified producer of the first generation does; gives the first offset."""
    verification = partition.log.producers.start_verification(
        producer_id, epoch, sequence, supports_epoch_bump=False, now_ms=NOW_MS
    )
    data = transactional_batch(sequence, count, producer_id=producer_id, epoch=epoch)
    return partition.append_as_leader(bytearray(data), NOW_MS, verification=verification).first_offset


def end_transaction(partition: Partition, *, commit: bool, producer_id: int = PRODUCER_ID, epoch: int = 0) -> int:
    """Appends the marker; gives its offset."""
    data = marker_batch(TransactionMarker(producer_id, epoch, 0, commit, 1), NOW_MS)
    return partition.append_as_leader(data, NOW_MS, AppendOrigin.COORDINATOR).first_offset
