"""Blocks of producer ids from the controller, and its refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.errors import KafkaError
from pykbroker.metadata.producer_ids import ProducerIds
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse


class Controller:
    """A channel with prepared responses."""

    def __init__(self, *responses: AllocateProducerIdsResponse) -> None:
        self.responses = list(responses)

    async def request(self, message: Any, timeout_ms: int) -> AllocateProducerIdsResponse:
        return self.responses.pop(0)


def producer_ids(*responses: AllocateProducerIdsResponse) -> ProducerIds:
    channel: Any = Controller(*responses)
    metadata: Any = SimpleNamespace(broker_epoch=lambda: 7)
    return ProducerIds(channel, metadata, 1)


async def test_ids_of_two_blocks() -> None:
    """P-59."""
    ids = producer_ids(
        AllocateProducerIdsResponse(producer_id_start=5000, producer_id_len=2),
        AllocateProducerIdsResponse(producer_id_start=9000, producer_id_len=1000),
    )
    assert [await ids.next() for _ in range(3)] == [5000, 5001, 9000]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (30_000, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_refusal(code: int, expected: ErrorCode) -> None:
    """A code of newer software is an unknown error. The next request asks again."""
    ids = producer_ids(
        AllocateProducerIdsResponse(error_code=code),
        AllocateProducerIdsResponse(producer_id_start=1, producer_id_len=1),
    )
    with pytest.raises(KafkaError) as raised:
        await ids.next()
    assert raised.value.error_code is expected
    assert await ids.next() == 1


async def test_no_answer_of_the_controller() -> None:
    """Producers retry COORDINATOR_LOAD_IN_PROGRESS, as in Kafka's RPCProducerIdManager."""
    ids = producer_ids(AllocateProducerIdsResponse(producer_id_start=1, producer_id_len=1))
    channel: Any = ids._channel
    request = channel.request

    async def late(message: Any, timeout_ms: int) -> Any:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The active controller did not answer in time.")

    channel.request = late
    with pytest.raises(KafkaError) as raised:
        await ids.next()
    assert raised.value.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    channel.request = request
    assert await ids.next() == 1
