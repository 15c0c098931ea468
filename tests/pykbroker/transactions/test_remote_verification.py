"""Questions to transaction coordinators on other brokers (KIP-890)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio

from pykbroker.controller.metadata.image import PartitionImage, TopicImage
from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.coordination.partitioning import TRANSACTION_TOPIC, coordinator_partition
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from pykbroker.transactions.states import ProducerIdentity
from tests.pykbroker.transactions.rig import PARTITIONS, Rig
from tests.support.data_path import NODE_ID, topic_id, topic_image

HERE, THERE = "x", "y"
"""Ids that are coordinated by this broker, and by broker 2."""

PLACES = [("t", 0), ("t", 2)]


class Coordinator:
    """Broker 2: answers with `codes` by partition, or with an error for the request as a whole."""

    def __init__(self) -> None:
        self.requests: list[list[tuple[str, int, int, bool]]] = []
        self.codes: dict[tuple[str, int], ErrorCode] = {}
        self.error = ErrorCode.NONE
        self.delay = 0.05

    async def request(self, message: AddPartitionsToTxnRequest, timeout_ms: int) -> AddPartitionsToTxnResponse:
        asked = decode(AddPartitionsToTxnRequest, 5, memoryview(encode(message, 5)))
        self.requests.append(
            [(t.transactional_id, t.producer_id, t.producer_epoch, t.verify_only) for t in asked.transactions]
        )
        with trio.move_on_after(timeout_ms / 1000):
            await trio.sleep(self.delay)
            return self._answer(asked)
        raise NodeUnreachable("no answer")

    def _answer(self, asked: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        if self.error is not ErrorCode.NONE:
            return AddPartitionsToTxnResponse(error_code=self.error)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=number,
                                    partition_error_code=self.codes.get((topic.name, number), ErrorCode.NONE),
                                )
                                for number in topic.partitions
                            ],
                        )
                        for topic in transaction.topics
                    ],
                )
                for transaction in asked.transactions
            ]
        )

    async def close(self) -> None:
        pass


class RemoteRig(Rig):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.other = Coordinator()
        self.is_gone = False
        self.lead(2)

    def connect(self, broker_id: int) -> Coordinator:
        assert broker_id == 2
        if self.is_gone:
            raise NodeUnreachable("gone")
        return self.other

    def lead(self, leader: int) -> None:
        """Set the coordinator of the id THERE."""
        place = coordinator_partition(THERE, PARTITIONS)
        assert place != coordinator_partition(HERE, PARTITIONS)
        images = {
            n: PartitionImage(n, (1, 2), (1, 2), leader if n == place else NODE_ID, 0, 0) for n in range(PARTITIONS)
        }
        self.change(topic_image("t", 3), TopicImage(TRANSACTION_TOPIC, topic_id(TRANSACTION_TOPIC), images))

    async def ask(self, transactional_id: str = THERE, *, add: bool = False) -> list[ErrorCode]:
        codes = await self.transactions.verify_anywhere(ProducerIdentity(transactional_id, 7, 3), PLACES, add=add)
        return [codes[place] for place in PLACES]


@pytest.mark.parametrize("add", [False, True])
async def test_the_coordinator_elsewhere_is_asked(tmp_path: Path, add: bool) -> None:
    rig = RemoteRig(tmp_path)
    async with rig.running():
        rig.other.codes["t", 2] = ErrorCode.TRANSACTION_ABORTABLE
        assert await rig.ask(add=add) == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
        assert rig.other.requests == [[(THERE, 7, 3, not add)]]
        assert await rig.ask(HERE) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert len(rig.other.requests) == 1


async def test_the_coordinator_itself_passes_no_question_on(tmp_path: Path) -> None:
    """Else two brokers with different metadata would ask each other for ever."""
    rig = RemoteRig(tmp_path)
    async with rig.running():
        codes = await rig.transactions.verify(ProducerIdentity(THERE, 7, 3), PLACES, add=False)
        assert set(codes.values()) == {ErrorCode.NOT_COORDINATOR}
        assert rig.other.requests == []


async def test_questions_gather_while_one_is_asked_and_an_id_comes_once(tmp_path: Path) -> None:
    rig = RemoteRig(tmp_path)
    async with rig.running() as nursery:
        for _ in range(4):
            nursery.start_soon(rig.ask)
            await trio.sleep(0.01)
        await trio.sleep(1)
        assert [len(request) for request in rig.other.requests] == [1, 1, 1, 1]


async def test_without_a_coordinator(tmp_path: Path) -> None:
    rig = RemoteRig(tmp_path)
    async with rig.running():
        rig.lead(-1)
        assert await rig.ask() == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2


async def test_a_coordinator_that_does_not_answer(tmp_path: Path) -> None:
    rig = RemoteRig(tmp_path)
    async with rig.running() as nursery:
        rig.is_gone = True
        assert await rig.ask() == [ErrorCode.NETWORK_EXCEPTION] * 2
        rig.is_gone = False
        rig.other.delay = 100
        begun = trio.current_time()
        assert await rig.ask() == [ErrorCode.NETWORK_EXCEPTION] * 2
        assert trio.current_time() - begun == pytest.approx(30)

        async def fence() -> None:
            await trio.sleep(2)
            rig.lead(1)  # the image of the rig has no broker 2

        nursery.start_soon(fence)
        assert await rig.ask() == [ErrorCode.NETWORK_EXCEPTION] * 2
        assert trio.current_time() - begun == pytest.approx(32)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_a_coordinator_that_refuses(tmp_path: Path, error: ErrorCode, told: ErrorCode) -> None:
    rig = RemoteRig(tmp_path)
    async with rig.running():
        rig.other.error = error
        assert await rig.ask() == [told] * 2


async def test_a_transaction_that_is_still_ending_is_no_event(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The leader asks again every few milliseconds (P-135), each time without a line in the log."""
    rig = RemoteRig(tmp_path)
    async with rig.running():
        rig.other.codes = dict.fromkeys(PLACES, ErrorCode.CONCURRENT_TRANSACTIONS)
        caplog.clear()
        with caplog.at_level(logging.DEBUG):
            for _ in range(3):
                assert await rig.ask(add=True) == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
        assert len(rig.other.requests) == 3
        assert not [record for record in caplog.records if record.name.startswith("pykbroker")]
