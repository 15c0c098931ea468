"""Transactions where `__transaction_state` has several replicas, and their partitions have leaders on other brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pykbroker.controller.metadata.image import BrokerImage, PartitionImage, TopicImage
from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.coordination.partitioning import TRANSACTION_TOPIC, coordinator_partition
from pykbroker.coordination.transaction_marker import TransactionMarker, WrittenMarker
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykbroker.protocol.topic_partition import TopicPartition
from pykbroker.transactions.administration import describe_transaction, list_transactions
from pykbroker.transactions.coordinator import TransactionCoordinator
from pykbroker.transactions.shard import TransactionFilter
from pykbroker.transactions.states import TransactionState
from tests.pykbroker.groups.test_replicated import Asked
from tests.pykbroker.transactions.rig import PARTITIONS, Known, Rig
from tests.support.coordinator_errors import outcome
from tests.support.data_path import NODE_ID, replicated_topic_image, topic_id
from tests.support.held_partitions import HeldPartition, HeldPartitions

BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


class OtherBroker:
    """Takes WriteTxnMarkers; `errors` are its answers by partition, `is_silent` lets requests hang."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.requests: list[list[tuple[int, int, TopicPartition]]] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.is_silent = False
        self.is_gone = False
        self.connections = 0
        self.arrived = trio.Event()

    async def request(
        self, message: WriteTxnMarkersRequest, timeout_ms: int, *, is_long: bool = False
    ) -> WriteTxnMarkersResponse:
        asked = decode(WriteTxnMarkersRequest, 2, memoryview(encode(message, 2)))
        self.requests.append(
            [
                (marker.producer_id, marker.coordinator_epoch, (topic.name, index))
                for marker in asked.markers
                for topic in marker.topics
                for index in topic.partition_indexes
            ]
        )
        with trio.move_on_after(timeout_ms / 1000):
            await trio.sleep(timeout_ms if self.is_silent else 0.05)
            return self._answer(asked)
        raise NodeUnreachable("no answer")

    def _answer(self, asked: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=self.errors.get((topic.name, index), ErrorCode.NONE),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in asked.markers
            ]
        )

    async def close(self) -> None:
        pass


class ReplicatedRig(Rig):
    """Id "x" is in `partition`; partitions 0, 1 and 2 of topic "t" are led by brokers 1, 2 and 3."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.fenced: set[int] = set()
        self.others = {2: OtherBroker(2), 3: OtherBroker(3)}
        self.held = HeldPartitions(self.partitions, TRANSACTION_TOPIC)
        self.slow_markers: list[SlowMarker] | None = None
        self.transactions = TransactionCoordinator(
            self.services.config,
            self.environment(self.held),
            next_producer_id=self.next_producer_id,
            write_marker=self.write_or_begin,
            connect=self.connect,
        )
        self.services = self.services.replaced(transactions=self.transactions)

    @property
    def partition(self) -> HeldPartition:
        found: HeldPartition = self.held.get(TRANSACTION_TOPIC, coordinator_partition("x", PARTITIONS))
        return found

    def connect(self, broker_id: int) -> OtherBroker:
        other = self.others[broker_id]
        if other.is_gone:
            raise NodeUnreachable("gone")
        other.connections += 1
        return other

    def write_or_begin(self, marker: TransactionMarker, topic: str, partition: int) -> WrittenMarker:
        written = self.write_marker(marker, topic, partition)
        if self.slow_markers is None or written.error is not ErrorCode.NONE:
            return written
        self.slow_markers.append(SlowMarker())
        return WrittenMarker(ErrorCode.NONE, self.slow_markers[-1])

    def lead(self, *leaders: int, state_leader: int = NODE_ID, state_epoch: int = 0) -> None:
        """The leaders of the partitions of "t" and of `__transaction_state`."""
        images = {n: PartitionImage(n, (1, 2, 3), (1, 2, 3), leader, 1, 0) for n, leader in enumerate(leaders)}
        state = replicated_topic_image(TRANSACTION_TOPIC, PARTITIONS, leader=state_leader, leader_epoch=state_epoch)
        self.change(TopicImage("t", topic_id("t"), images), state)

    def fence(self, broker_id: int) -> None:
        """The controller has fenced a broker."""
        self.fenced.add(broker_id)
        self.change(*self.services.metadata.image.topics_by_name.values())

    def change(self, *topics: TopicImage, level: int | None = None) -> None:
        self.brokers = {
            number: BrokerImage(number, 5, bytes(16), (), {}, None, number in self.fenced, False, (bytes(16),))
            for number in (1, 2, 3)
        }
        super().change(*topics, level=level)


class SlowMarker:
    """A marker of this broker that has to wait for its replicas."""

    def __init__(self) -> None:
        self.outcome = ErrorCode.NONE
        self.is_replicated = trio.Event()

    async def wait_replicated(self, deadline: float) -> ErrorCode:
        with trio.move_on_at(deadline):
            await self.is_replicated.wait()
            return self.outcome
        return ErrorCode.REQUEST_TIMED_OUT


async def ready(rig: ReplicatedRig, *partitions: int, transactional_id: str = "x") -> Known:
    """A producer of the older generation with these partitions in its transaction."""
    known = await rig.begin(transactional_id)
    assert await rig.add(known, *partitions, transactional_id=transactional_id) == ErrorCode.NONE
    return known


async def test_a_decision_counts_when_it_is_replicated(tmp_path: Path) -> None:
    """Before that nobody is told, no marker goes out, and the id is busy."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        known = await ready(rig, 0)
        rig.partition.hold()
        ended = Asked(nursery, rig.end, known, version=4)
        await wait_all_tasks_blocked()
        assert (ended.answer, rig.markers) == (None, [])
        assert rig.transaction().current.state is TransactionState.ONGOING
        assert await rig.add(known, 1) == BUSY
        assert (await rig.end(known, version=4, is_commit=False))[0] == BUSY
        rig.partition.release(1)
        await wait_all_tasks_blocked()
        assert ended.answer[0] == ErrorCode.NONE
        assert len(rig.markers) == 1
        assert rig.transaction().current.state is TransactionState.PREPARE_COMMIT
        assert await rig.add(known, 1) == BUSY  # the record that completes it may still be lost
        rig.partition.release(1)
        await wait_all_tasks_blocked()
        assert rig.transaction().current.state is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("version", [4, 5])
async def test_a_decision_without_replicas_is_late_and_counts_later(tmp_path: Path, version: int) -> None:
    """After request.timeout.ms the client may try again, and finds the id busy until the record is replicated."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        known = await ready(rig, 0)
        rig.partition.hold()
        ended = Asked(nursery, rig.end, known, version=version)
        await trio.sleep(31)
        assert ended.answer[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await rig.end(known, version=version))[0] == BUSY
        assert rig.markers == []
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert (await rig.end(known, version=version))[0] == ErrorCode.NONE
        assert [marker.is_commit for marker, _, _ in rig.markers] == [True]


async def test_a_decision_that_is_lost_was_told_to_nobody(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        known = await ready(rig, 0)
        rig.partition.hold()
        ended = Asked(nursery, rig.end, known, version=4)
        await wait_all_tasks_blocked()
        rig.partition.lose_leader()
        rig.lead(1, 2, 3, state_leader=2, state_epoch=1)
        await wait_all_tasks_blocked()
        assert ended.answer[0] == ErrorCode.NOT_COORDINATOR
        assert rig.markers == []


async def test_p435_a_new_id_is_described_before_its_record_is_replicated(tmp_path: Path) -> None:
    """P-435: with epoch -1; the epoch of the record counts when that is replicated."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        rig.partition.hold(0)
        begun = Asked(nursery, rig.init)
        await wait_all_tasks_blocked()
        found = describe_transaction(rig.transactions, "x")
        assert (found.current.state, found.current.producer_epoch) == (TransactionState.EMPTY, -1)
        assert await list_transactions(rig.transactions, TransactionFilter()) == [found]
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert begun.answer[0] == ErrorCode.NONE
        assert rig.transaction().current.producer_epoch == 0


async def test_what_is_read_leads_to_markers_when_it_is_replicated(tmp_path: Path) -> None:
    """A decision that only the new leader has may be lost with it; then the transaction is not to be half ended."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        rig.marker_errors["t", 0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        known = await ready(rig, 0)
        await rig.end(known, version=4)
        rig.marker_errors.clear()
        rig.lead(1, 2, 3, state_leader=2, state_epoch=1)
        rig.partition.hold(2)
        rig.lead(1, 2, 3, state_epoch=2)
        await trio.sleep(10)
        assert rig.markers == []
        assert (await rig.end(known, version=4))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert [marker.coordinator_epoch for marker, _, _ in rig.markers] == [2]


async def test_an_expired_id_is_busy_until_its_tombstone_is_replicated(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        rig.partition.hold()
        await trio.sleep(8 * 24 * 3600)
        assert rig.transaction().current.producer_id == known[0]
        assert (await rig.init())[0] == BUSY
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert outcome(describe_transaction, rig.transactions, "x") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


# Markers for partitions that are led elsewhere


async def test_markers_go_to_the_leaders_of_the_partitions(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        rig.lead(1, 2, 3)
        known = await ready(rig, 0, 1, 2)
        assert (await rig.end(known, version=4))[0] == ErrorCode.NONE
        assert rig.transaction().current.state is TransactionState.PREPARE_COMMIT
        await trio.sleep(0.1)
        assert rig.transaction().current.state is TransactionState.COMPLETE_COMMIT
        assert [partition for _, _, partition in rig.markers] == [0]
        assert rig.others[2].requests == [[(known[0], 0, ("t", 1))]]
        assert rig.others[3].requests == [[(known[0], 0, ("t", 2))]]


async def test_one_request_at_a_time_carries_all_that_waits(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        rig.lead(1, 2, 2)
        producers = {name: await ready(rig, 1, 2, transactional_id=name) for name in ("x", "y", "z")}
        for name, known in producers.items():
            await rig.end(known, version=4, transactional_id=name)
            await trio.sleep(0.01)
        await trio.sleep(0.2)
        other = rig.others[2]
        assert [len(request) for request in other.requests] == [2, 4]
        assert other.connections == 1
        assert {rig.transaction(name).current.state for name in producers} == {TransactionState.COMPLETE_COMMIT}


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
async def test_a_marker_that_is_refused_for_now_goes_to_the_new_leader(tmp_path: Path, error: ErrorCode) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        rig.lead(1, 2, 3)
        rig.others[2].errors["t", 1] = error
        known = await ready(rig, 1)
        await rig.end(known, version=4)
        await trio.sleep(0.6)
        assert 2 <= len(rig.others[2].requests) <= 3
        rig.lead(1, 3, 3)
        await trio.sleep(0.4)
        assert rig.others[3].requests == [[(known[0], 0, ("t", 1))]]
        assert rig.transaction().current.state is TransactionState.COMPLETE_COMMIT


async def test_a_broker_that_cannot_be_reached_is_tried_again(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        rig.lead(1, 2, 3)
        rig.others[2].is_gone = True
        known = await ready(rig, 1)
        await rig.end(known, version=4)
        await trio.sleep(5)
        assert rig.transaction().current.state is TransactionState.PREPARE_COMMIT
        rig.others[2].is_gone = False
        await trio.sleep(0.4)
        assert rig.transaction().current.state is TransactionState.COMPLETE_COMMIT


async def test_a_silent_broker_is_left_when_it_is_fenced(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        rig.lead(1, 2, 3)
        rig.others[2].is_silent = True
        known = await ready(rig, 1)
        await rig.end(known, version=4)
        await trio.sleep(1)
        rig.fence(2)
        rig.lead(1, 3, 3)
        await trio.sleep(0.4)
        assert rig.transaction().current.state is TransactionState.COMPLETE_COMMIT


async def test_a_partition_without_a_leader_is_waited_for_and_a_deleted_one_is_not(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        rig.lead(1, 2, 3)
        known = await ready(rig, 1, 2)
        rig.lead(1, -1)
        await rig.end(known, version=4)
        await trio.sleep(5)
        assert rig.transaction().partitions == {("t", 1)}
        rig.lead(1, 1)
        await trio.sleep(0.4)
        assert rig.transaction().current.state is TransactionState.COMPLETE_COMMIT
        assert [partition for _, _, partition in rig.markers] == [1]


async def test_a_fenced_coordinator_gives_up_and_its_successor_does_not(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        rig.lead(1, 2, 3)
        rig.others[2].errors["t", 1] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        known = await ready(rig, 1)
        await rig.end(known, version=4)
        await trio.sleep(5)
        assert len(rig.others[2].requests) == 1
        assert await rig.add(known, 1) == BUSY
        rig.others[2].errors.clear()
        rig.lead(1, 2, 3, state_leader=3, state_epoch=1)
        rig.lead(1, 2, 3, state_epoch=2)
        await trio.sleep(0.4)
        assert rig.others[2].requests[-1] == [(known[0], 2, ("t", 1))]
        assert rig.transaction().current.state is TransactionState.COMPLETE_COMMIT


async def test_an_answer_to_a_coordinator_that_is_no_more_is_not_listened_to(tmp_path: Path) -> None:
    """The request of epoch 0 is answered when epoch 2 has sent its own, which fails: the id stays busy."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        rig.lead(1, 2, 3)
        known = await ready(rig, 1)
        await rig.end(known, version=4)
        await trio.sleep(0.01)
        assert len(rig.others[2].requests) == 1
        rig.lead(1, 2, 3, state_leader=3, state_epoch=1)
        rig.lead(1, 2, 3, state_epoch=2)
        await trio.sleep(0.045)
        rig.others[2].errors["t", 1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await trio.sleep(2)
        assert rig.transaction().current.state is TransactionState.PREPARE_COMMIT
        rig.others[2].errors.clear()
        await trio.sleep(0.4)
        assert rig.transaction().current.state is TransactionState.COMPLETE_COMMIT


async def test_a_marker_of_this_broker_counts_when_it_is_replicated(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        rig.slow_markers = []
        known = await ready(rig, 0, 1)
        await rig.end(known, version=4)
        await trio.sleep(1)
        assert len(rig.slow_markers) == 2
        assert rig.transaction().current.state is TransactionState.PREPARE_COMMIT
        rig.slow_markers[0].is_replicated.set()
        rig.slow_markers[1].outcome = ErrorCode.NOT_LEADER_OR_FOLLOWER
        rig.slow_markers[1].is_replicated.set()
        await trio.sleep(1)
        assert len(rig.slow_markers) == 3
        assert rig.transaction().partitions == {("t", 1)}
        rig.slow_markers[2].is_replicated.set()
        await wait_all_tasks_blocked()
        assert rig.transaction().current.state is TransactionState.COMPLETE_COMMIT
