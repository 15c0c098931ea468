"""A transaction coordinator on real logs under trio's virtual clock, handlers in front of it, its markers recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from pykbroker.controller.metadata.image import BrokerImage, ClusterImage, TopicImage
from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.coordination.partitioning import TRANSACTION_TOPIC, coordinator_partition
from pykbroker.coordination.transaction_marker import TransactionMarker, WrittenMarker
from pykbroker.errors import KafkaError
from pykbroker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from pykbroker.handlers.end_txn import handle_end_txn
from pykbroker.handlers.init_producer_id import handle_init_producer_id
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pykbroker.protocol.messages.end_txn import EndTxnRequest
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.topic_partition import TopicPartition
from pykbroker.transactions.administration import describe_transaction
from pykbroker.transactions.coordinator import TransactionCoordinator
from pykbroker.transactions.state_log import decode_record
from pykbroker.transactions.states import LoggedState
from pykbroker.transactions.transaction import Transaction
from tests.support.coordinator_rig import CoordinatorRig
from tests.support.data_path import cluster_image, topic_image

PARTITIONS = 5
FIRST_PRODUCER_ID = 1000

Known = tuple[int, int]
"""Producer id and epoch."""


class Rig(CoordinatorRig):
    """One broker with topic "t" (3 partitions) and, unless said otherwise, `__transaction_state`.

    Attributes:
        markers: what was written, in order.
        marker_errors: what a partition answers instead of taking its marker.
        id_error: raised instead of giving a producer id.
    """

    partition_count = PARTITIONS

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str] | None = None,
        *,
        is_fresh: bool = False,
        level: int = 2,
        markers: list[tuple[TransactionMarker, str, int]] | None = None,
    ) -> None:
        topics = [topic_image("t", 3)] + ([] if is_fresh else [topic_image(TRANSACTION_TOPIC, PARTITIONS)])
        image = cluster_image(*topics)
        image.features = {"transaction.version": level}
        super().__init__(folder, image, properties)
        self.brokers: dict[int, BrokerImage] = {}
        self.markers = [] if markers is None else markers
        self.marker_errors: dict[TopicPartition, ErrorCode] = {}
        self.id_error: KafkaError | None = None
        self.next_id = FIRST_PRODUCER_ID
        self.level = level
        self._changed_level: int | None = None
        self.transactions = TransactionCoordinator(
            self.services.config,
            self.environment(),
            next_producer_id=self.next_producer_id,
            write_marker=self.write_marker,
            connect=self.connect,
        )
        self.services = self.services.replaced(transactions=self.transactions)

    def under_test(self) -> Any:
        return self.transactions

    async def next_producer_id(self) -> int:
        await trio.lowlevel.checkpoint()
        if self.id_error is not None:
            raise self.id_error
        self.next_id += 1
        return self.next_id - 1

    def connect(self, broker_id: int) -> Any:
        raise NodeUnreachable(f"there is no broker {broker_id}")

    def write_marker(self, marker: TransactionMarker, topic: str, partition: int) -> WrittenMarker:
        error = self.marker_errors.get((topic, partition), ErrorCode.NONE)
        if error is ErrorCode.NONE:
            self.markers.append((marker, topic, partition))
        return WrittenMarker(error)

    def change(self, *topics: TopicImage, level: int | None = None) -> None:
        """The metadata changes to these topics, and to this transaction.version."""
        self._changed_level = level
        super().change(*topics)

    def complete(self, image: ClusterImage) -> None:
        image.brokers = self.brokers or image.brokers
        level = self.level if self._changed_level is None else self._changed_level
        image.features = {"transaction.version": level}

    def set_level(self, level: int) -> None:
        """Another transaction.version is finalized."""
        self.level = level
        self.change(*self.services.metadata.image.topics_by_name.values())

    # Requests

    async def init(
        self,
        transactional_id: str = "x",
        expected: Known = (-1, -1),
        *,
        timeout_ms: int = 60_000,
        version: int = 5,
        two_phase_commit: bool = False,
        keep_prepared: bool = False,
    ) -> tuple[int, Known]:
        """Error, and producer id with epoch."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
            enable2_pc=two_phase_commit,
            keep_prepared_txn=keep_prepared,
        )
        response = await self.call(handle_init_producer_id, request, version)
        return response.error_code, (response.producer_id, response.producer_epoch)

    async def begin(self, transactional_id: str = "x", **options: Any) -> Known:
        """An initialized producer."""
        error, known = await self.init(transactional_id, **options)
        assert error == ErrorCode.NONE
        return known

    async def add(self, known: Known, *partitions: int, transactional_id: str = "x", version: int = 3) -> int:
        """The error of the first partition; partitions are those of topic "t"."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=known[0],
            v3_and_below_producer_epoch=known[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(partitions or (0,)))],
        )
        response = await self.call(handle_add_partitions_to_txn, request, version)
        error: int = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        return error

    async def end(
        self, known: Known, *, is_commit: bool = True, transactional_id: str = "x", version: int = 5
    ) -> tuple[int, Known]:
        """Error, and producer id with epoch."""
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=known[0], producer_epoch=known[1], committed=is_commit
        )
        response = await self.answer(handle_end_txn, request, version)
        return response.error_code, (response.producer_id, response.producer_epoch)

    # What there is

    def transaction(self, transactional_id: str = "x") -> Transaction:
        return describe_transaction(self.transactions, transactional_id)

    def written(self, transactional_id: str = "x") -> list[LoggedState | None]:
        """The records of an id, oldest first."""
        partition = self.partitions.get(TRANSACTION_TOPIC, coordinator_partition(transactional_id, PARTITIONS))
        assert partition is not None
        decoded = [
            decode_record(bytes(record.key or b""), None if record.value is None else bytes(record.value))
            for batch in partition.log.iter_batches()
            for record in batch.records()
        ]
        return [entry[1] for entry in decoded if entry is not None and entry[0] == transactional_id]
