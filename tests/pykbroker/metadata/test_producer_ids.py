"""Blocks of producer ids from the controller, and its refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.errors import KafkaError
from pykbroker.metadata.producer_ids import ProducerIds
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse


class Controller:
    """A channel with prepared responses: an error code, a range of ids, or the seconds until the next of them."""

    def __init__(self, *responses: range | float) -> None:
        self.responses = list(responses)
        self.asked_at: list[float] = []

    async def request(self, message: Any, timeout_ms: int) -> AllocateProducerIdsResponse:
        self.asked_at.append(trio.current_time())
        response = self.responses.pop(0)
        if isinstance(response, float):
            await trio.sleep(response)
            response = self.responses.pop(0)
        if isinstance(response, range):
            return AllocateProducerIdsResponse(producer_id_start=response.start, producer_id_len=len(response))
        if response == ErrorCode.REQUEST_TIMED_OUT:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The active controller did not answer in time.")
        return AllocateProducerIdsResponse(error_code=int(response))


@asynccontextmanager
async def producer_ids(*responses: range | float) -> AsyncIterator[tuple[ProducerIds, Controller]]:
    """Producer ids in use, and the controller."""
    channel: Any = Controller(*responses)
    metadata: Any = SimpleNamespace(broker_epoch=lambda: 7)
    ids = ProducerIds(channel, metadata, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ids.run)
        yield ids, channel
        nursery.cancel_scope.cancel()


async def refused(ids: ProducerIds) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await ids.next()
    return raised.value.error_code


async def test_ids_of_two_blocks() -> None:
    """P-59."""
    async with producer_ids(range(5000, 5002), range(9000, 10_000)) as (ids, _):
        assert [await ids.next() for _ in range(3)] == [5000, 5001, 9000]


async def test_the_next_block_is_requested_before_this_one_is_used_up() -> None:
    """P-59: the controller takes its time for the second block, and nobody waits for it."""
    async with producer_ids(range(10), 5.0, range(10, 20)) as (ids, controller):
        taken = [await ids.next() for _ in range(9)]
        await trio.testing.wait_all_tasks_blocked()
        assert len(controller.asked_at) == 2
        await trio.sleep(5.5)
        before = trio.current_time()
        taken += [await ids.next() for _ in range(2)]
        assert taken == list(range(11))
        assert trio.current_time() == before


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.REQUEST_TIMED_OUT,
        # Of newer software.
        30_000,
    ],
)
async def test_a_refusal(code: int) -> None:
    """P-59: producers retry COORDINATOR_LOAD_IN_PROGRESS. The broker asks again after 50 ms, when one does."""
    async with producer_ids(code, range(1, 2)) as (ids, controller):
        assert await refused(ids) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await ids.next() == 1
        first, second = controller.asked_at
        assert second - first == pytest.approx(0.05)


async def test_a_controller_that_does_not_answer_holds_no_request_for_long() -> None:
    """P-59: COORDINATOR_LOAD_IN_PROGRESS after a second; the allocation goes on, and is the next request's."""
    async with producer_ids(7.0, range(3)) as (ids, controller):
        before = trio.current_time()
        assert await refused(ids) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert trio.current_time() - before == pytest.approx(1.0)
        assert await refused(ids) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await trio.sleep(6.0)
        assert await ids.next() == 0
        assert len(controller.asked_at) == 1
        assert not ids._waiting
