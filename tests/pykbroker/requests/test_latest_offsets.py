"""End offsets of partitions: those of this broker from its replicas, the others from their leaders."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pykbroker.requests.latest_offsets import latest_offsets

OWN = 1
LEADERS = {"t": [OWN, OWN, OWN, 2, -1], "u": [2, 3]}
PARTITIONS = {
    ("t", 0): SimpleNamespace(is_leader=True, is_behind_its_epoch=False, high_watermark=17),
    ("t", 1): SimpleNamespace(is_leader=True, is_behind_its_epoch=True, high_watermark=5),
    ("t", 2): SimpleNamespace(is_leader=False),
}


class Broker:
    """Another broker: fails at its first requests, then answers with 100 for each partition, or with a code."""

    def __init__(self, failure_count: int = 0, code: int = 0) -> None:
        self.failure_count = failure_count
        self.code = code
        self.asked: list[list[tuple[str, list[int]]]] = []
        self.closed = 0

    async def request(self, request: ListOffsetsRequest, timeout_ms: int, lowest_version: int) -> Any:
        self.asked.append([(topic.name, [p.partition_index for p in topic.partitions]) for topic in request.topics])
        if len(self.asked) <= self.failure_count:
            raise NodeUnreachable("it is away")
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=p.partition_index, offset=-1 if self.code else 100, error_code=self.code
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def close(self) -> None:
        self.closed += 1


def services(brokers: dict[int, Broker] | None) -> Any:
    topics = {
        name: SimpleNamespace(partitions={number: SimpleNamespace(leader=leader) for number, leader in enumerate(of)})
        for name, of in LEADERS.items()
    }
    clients = None if brokers is None else SimpleNamespace(connect=lambda broker_id, purpose: brokers[broker_id])
    return SimpleNamespace(
        node_id=OWN,
        metadata=SimpleNamespace(topic=topics.get),
        partitions=SimpleNamespace(get=lambda topic, number: PARTITIONS.get((topic, number))),
        broker_clients=clients,
    )


def found(brokers: dict[int, Broker] | None, *partitions: tuple[str, int]) -> dict[tuple[str, int], object]:
    """An offset, or (error,) for each partition."""

    async def run() -> dict[tuple[str, int], object]:
        offsets = await latest_offsets(services(brokers), partitions)
        return {named: at.offset if at.error is ErrorCode.NONE else (at.error,) for named, at in offsets.items()}

    return trio.run(run, clock=MockClock(autojump_threshold=0))


def test_partitions_of_this_broker() -> None:
    assert found({}, ("t", 0), ("t", 1), ("t", 2)) == {
        ("t", 0): 17,
        ("t", 1): (ErrorCode.OFFSET_NOT_AVAILABLE,),
        ("t", 2): (ErrorCode.NOT_LEADER_OR_FOLLOWER,),
    }


def test_partitions_without_a_leader_or_without_a_topic() -> None:
    missing = [("t", 4), ("t", 9), ("gone", 0)]
    assert found({}, *missing) == dict.fromkeys(missing, (ErrorCode.LEADER_NOT_AVAILABLE,))


def test_each_leader_is_asked_once_for_all_its_partitions() -> None:
    second, third = Broker(), Broker(code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert found({2: second, 3: third}, ("t", 3), ("u", 0), ("u", 1)) == {
        ("t", 3): 100,
        ("u", 0): 100,
        ("u", 1): (ErrorCode.NOT_LEADER_OR_FOLLOWER,),
    }
    assert second.asked == [[("t", [3]), ("u", [0])]]
    assert (second.closed, third.closed) == (1, 1)


def test_a_code_of_newer_software() -> None:
    assert found({2: Broker(code=9_999)}, ("u", 0)) == {("u", 0): (ErrorCode.UNKNOWN_SERVER_ERROR,)}


@pytest.mark.parametrize(("failure_count", "result"), [(2, 100), (3, (ErrorCode.NETWORK_EXCEPTION,))])
def test_a_leader_that_does_not_answer_is_asked_three_times(failure_count: int, result: object) -> None:
    broker = Broker(failure_count)
    assert found({2: broker}, ("u", 0)) == {("u", 0): result}
    assert (len(broker.asked), broker.closed) == (3, 3)


def test_a_broker_that_is_alone_has_nobody_to_ask() -> None:
    assert found(None, ("u", 0)) == {("u", 0): (ErrorCode.NETWORK_EXCEPTION,)}
