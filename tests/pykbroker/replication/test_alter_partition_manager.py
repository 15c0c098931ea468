"""AlterPartition requests that are refused, get no answer, or are answered for some partitions only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    PartitionDataResponse,
    TopicDataResponse,
)
from pykbroker.protocol.steps import PIECE
from pykbroker.replication.alter_partition_manager import RETRY_S, AlterPartitionManager
from pykbroker.replication.leadership import Proposal

TOPIC_ID = b"t" * 16


class Partition:
    """One that has proposed in-sync set (1, 2)."""

    topic = "t"
    topic_id = TOPIC_ID

    def __init__(self, partition: int = 0) -> None:
        self.partition = partition
        self.proposal = Proposal(((1, 10), (2, 20)), 3, 4)
        self.leadership: Any = SimpleNamespace(pending=self.proposal)
        self.accepted: list[tuple[tuple[int, ...], int, int]] = []
        self.rejected: list[Proposal] = []

    def on_proposal_accepted(
        self, proposal: Proposal, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        self.accepted.append((isr, leader_epoch, partition_epoch))
        self.leadership.pending = None

    def on_proposal_rejected(self, proposal: Proposal) -> None:
        self.rejected.append(proposal)
        self.leadership.pending = None


class Controller:
    """Gives its answers in order; the last one again and again."""

    def __init__(self, *answers: AlterPartitionResponse | KafkaError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[float, list[int]]] = []

    async def request(self, message: Any, timeout_ms: int) -> Any:
        numbers = [partition.partition_index for topic in message.topics for partition in topic.partitions]
        self.asked.append((trio.current_time(), numbers))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        await trio.lowlevel.checkpoint()
        if isinstance(answer, KafkaError):
            raise answer
        return answer


def answer(code: ErrorCode = ErrorCode.NONE, *numbers: int) -> AlterPartitionResponse:
    partitions = [
        PartitionDataResponse(
            partition_index=number, error_code=code, leader_id=1, leader_epoch=3, isr=[1, 2], partition_epoch=5
        )
        for number in numbers or (0,)
    ]
    return AlterPartitionResponse(topics=[TopicDataResponse(topic_id=TOPIC_ID, partitions=partitions)])


async def run(controller: Controller, *partitions: Partition) -> None:
    """Submits the proposals and lets a second pass."""
    manager = AlterPartitionManager(1, lambda: 10, controller)
    for partition in partitions:
        manager.submit(partition, partition.proposal)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller"), "AlterPartition got no answer: no controller"),
        (AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), "AlterPartition was refused: STALE_BROKER"),
    ],
)
async def test_a_request_that_failed_is_repeated_after_a_pause(
    failure: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    controller = Controller(failure, failure, answer())
    partition = Partition()
    await run(controller, partition)
    assert [when for when, _ in controller.asked] == pytest.approx([0, RETRY_S, 2 * RETRY_S])
    assert partition.accepted == [((1, 2), 3, 5)]
    assert caplog.text.count(text) == 2


@pytest.mark.parametrize("code", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
async def test_a_proposal_that_the_controller_has_not_carried_out_is_dropped(code: ErrorCode) -> None:
    """As DefaultAlterPartitionManager and Partition.handleAlterPartitionError: the committed set counts again."""
    controller, partition = Controller(answer(code)), Partition()
    await run(controller, partition)
    assert len(controller.asked) == 1
    assert partition.rejected == [partition.proposal]


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION])
async def test_after_newer_metadata_a_proposal_waits_for_it(code: ErrorCode) -> None:
    controller, partition = Controller(answer(code)), Partition()
    await run(controller, partition)
    assert len(controller.asked) == 1
    assert (partition.rejected, partition.accepted) == ([], [])


async def test_partitions_without_an_answer_and_with_a_passing_error_are_sent_again() -> None:
    controller = Controller(
        answer(ErrorCode.NONE, 0), answer(ErrorCode.UNKNOWN_SERVER_ERROR, 1), answer(ErrorCode.NONE, 1)
    )
    partitions = Partition(0), Partition(1)
    await run(controller, *partitions)
    assert [numbers for _, numbers in controller.asked] == [[0, 1], [1], [1]]
    assert [len(partition.accepted) for partition in partitions] == [1, 1]


async def test_a_proposal_that_newer_metadata_has_replaced_meanwhile_is_not_sent() -> None:
    controller = Controller(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller"))
    manager = AlterPartitionManager(1, lambda: 10, controller)
    partition = Partition()
    manager.submit(partition, partition.proposal)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        await trio.sleep(RETRY_S / 2)
        partition.leadership.pending = None
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert len(controller.asked) == 1


async def test_a_newer_proposal_is_not_replaced_by_the_one_that_failed() -> None:
    controller = Controller(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller"), answer())
    manager = AlterPartitionManager(1, lambda: 10, controller)
    partition = Partition()
    first, second = partition.proposal, Proposal(((1, 10),), 3, 4)
    manager.submit(partition, first)
    sent: list[list[int]] = []
    request = controller.request

    async def noting(message: Any, timeout_ms: int) -> Any:
        sent.append([broker.broker_id for broker in message.topics[0].partitions[0].new_isr_with_epochs])
        if len(sent) == 1:
            partition.leadership.pending = second
            manager.submit(partition, second)
        return await request(message, timeout_ms)

    controller.request = noting  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert sent == [[1, 2], [1]]
    assert partition.accepted == [((1, 2), 3, 5)]


async def test_a_request_with_very_many_proposals_is_made_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that newer metadata has replaced meanwhile may be sent: the controller refuses it by its epochs."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    partitions = [Partition(number) for number in range(10 * PIECE)]
    controller = Controller(answer(ErrorCode.NONE, *range(10 * PIECE)))
    manager = AlterPartitionManager(1, lambda: 10, controller)
    for partition in partitions:
        manager.submit(partition, partition.proposal)
    turns = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run)
        while not controller.asked:
            turns += 1
            await trio.lowlevel.checkpoint()
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert turns >= 10
    assert [numbers for _, numbers in controller.asked] == [list(range(10 * PIECE))]
    assert all(partition.accepted for partition in partitions)
