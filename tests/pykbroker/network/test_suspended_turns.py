"""Requests that wait for a `Completion`: they have no task, and continue when it is complete or at their deadline."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.completion import Completion
from pykbroker.network import connection_loop, suspended_turns
from pykbroker.network.connection_loop import ConnectionLoop
from pykbroker.network.suspended_turns import SuspendedTurns
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import encode
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykbroker.requests.invocation import handlers_of
from pykbroker.security.connection_info import ListenerKind
from tests.pykbroker.network.test_connection_loop import answered, beat, poller, running
from tests.support.connections import Client

__all__ = ["poller"]

WAIT = 1
COMPLETE = 2
WAIT_AND_SLEEP = 3
WAIT_TWICE = 4
SEND = 5


class Requests:
    """A handler of heartbeats, and a note of its actions. The generation of a heartbeat selects the action."""

    def __init__(self) -> None:
        self.deadline = math.inf
        self.waiting: list[Completion] = []
        self.ended: list[int] = []
        self.to_send: list[tuple[Client, bytes]] = []

    async def handle(self, context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        if request.generation_id == COMPLETE:
            self.complete()
        elif request.generation_id == SEND:
            for client, data in self.to_send:
                os.write(client.stream.socket.fileno(), data)
        elif request.generation_id:
            for _ in range(2 if request.generation_id == WAIT_TWICE else 1):
                self.waiting.append(Completion())
                try:
                    await self.waiting[-1].wait(self.deadline)
                finally:
                    self.ended.append(context.correlation_id)
            if request.generation_id == WAIT_AND_SLEEP:
                await trio.sleep(1)
        return HeartbeatResponse()

    def complete(self) -> None:
        for completion in self.waiting:
            completion.complete()
            completion.complete()
        self.waiting.clear()


def heartbeat(number: int, action: int = 0) -> bytes:
    """The frame that `beat` sends."""
    body = encode(HeartbeatRequest(generation_id=action), 1)
    frame = ApiKey.HEARTBEAT.to_bytes(2, "big") + b"\0\1" + number.to_bytes(4, "big") + b"\0\4test" + body
    return len(frame).to_bytes(4, "big") + frame


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    made = Requests()
    monkeypatch.setitem(handlers_of[ListenerKind.BROKER], ApiKey.HEARTBEAT, (HeartbeatRequest, made.handle))
    return made


async def test_a_request_that_waits_for_another_has_no_task(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine a turn of a millisecond ends before all of the fifty requests have continued.
    monkeypatch.setattr(connection_loop, "TURN_S", 60.0)
    async with running() as connect:
        await trio.testing.wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        clients = [await connect() for _ in range(50)]
        for number, client in enumerate(clients):
            await beat(client, number, WAIT)
        await trio.testing.wait_all_tasks_blocked()
        assert len(requests.waiting) == len(clients)
        assert trio.lowlevel.current_statistics().tasks_living == before
        other = await connect()
        await beat(other, 100, COMPLETE)
        assert await answered(other) == 100
        # In the order in which they were completed, in the turn of the request that completed them.
        assert requests.ended == list(range(50))
        assert [await answered(client) for client in clients] == list(range(50))


async def test_another_task_may_complete_a_wait(requests: Requests) -> None:
    async with running() as connect:
        client = await connect()
        for number in range(3):
            await beat(client, number, WAIT)
            await trio.testing.wait_all_tasks_blocked()
            requests.complete()
            assert await answered(client) == number


async def test_a_wait_ends_at_its_deadline(requests: Requests) -> None:
    async with running() as connect:
        began = trio.current_time()
        late, early, endless = await connect(), await connect(), await connect()
        for number, (client, deadline) in enumerate([(late, 20), (early, 10), (endless, math.inf)]):
            requests.deadline = began + deadline
            await beat(client, number, WAIT)
            await trio.testing.wait_all_tasks_blocked()
        assert await answered(early) == 1
        assert trio.current_time() == began + 10
        assert await answered(late) == 0
        assert trio.current_time() == began + 20
        assert requests.ended == [1, 0]
        # A completion after the deadline has no effect.
        requests.complete()
        assert await answered(endless) == 2
        assert requests.ended == [1, 0, 2]


async def test_requests_behind_one_that_is_suspended_are_served_after_it(requests: Requests) -> None:
    async with running() as connect:
        client = await connect()
        await beat(client, 1, WAIT)
        await trio.testing.wait_all_tasks_blocked()
        await beat(client, 2, WAIT_TWICE)
        await beat(client, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert requests.ended == []
        for ended in ([1], [1, 2], [1, 2, 2]):
            requests.complete()
            await trio.testing.wait_all_tasks_blocked()
            assert requests.ended == ended
        assert [await answered(client) for _ in range(3)] == [1, 2, 3]
        await beat(client, 4)
        assert await answered(client) == 4


async def test_a_request_may_wait_in_a_task_after_it_was_suspended(requests: Requests) -> None:
    """Meanwhile other clients are served, and requests behind it are not."""
    async with running() as connect:
        client, other = await connect(), await connect()
        await beat(client, 1, WAIT_AND_SLEEP)
        await trio.testing.wait_all_tasks_blocked()
        await beat(client, 2, WAIT_AND_SLEEP)
        await beat(other, 3, COMPLETE)
        began = trio.current_time()
        assert await answered(other) == 3
        assert trio.current_time() == began
        assert await answered(client) == 1
        assert trio.current_time() == began + 1
        await trio.testing.wait_all_tasks_blocked()
        requests.complete()
        assert await answered(client) == 2
        await beat(client, 4)
        assert await answered(client) == 4


async def test_a_connection_that_a_task_serves_is_not_served_by_the_loop_too(requests: Requests) -> None:
    """One poll finds the request that completes a wait, and behind it the next request of the client that waits."""
    async with running() as connect:
        client, other, third = await connect(), await connect(), await connect()
        await beat(client, 1, WAIT_AND_SLEEP)
        await trio.testing.wait_all_tasks_blocked()
        requests.to_send = [(other, heartbeat(2, COMPLETE)), (client, heartbeat(3))]
        await beat(third, 4, SEND)
        began = trio.current_time()
        assert [await answered(third), await answered(other)] == [4, 2]
        assert [await answered(client), await answered(client)] == [1, 3]
        assert trio.current_time() == began + 1


async def test_closing_a_connection_ends_its_suspended_request(requests: Requests) -> None:
    async with running() as connect:
        client, other = await connect(), await connect()
        await beat(client, 1, WAIT)
        await trio.testing.wait_all_tasks_blocked()
        client.connection.close()
        assert requests.ended == [1]
        assert await client.frame() is None
        requests.complete()
        await beat(other, 2)
        assert await answered(other) == 2


async def test_a_connection_may_close_between_completion_and_answer(requests: Requests) -> None:
    async with running() as connect:
        client, other = await connect(), await connect()
        await beat(client, 1, WAIT)
        await trio.testing.wait_all_tasks_blocked()
        requests.complete()
        client.connection.close()
        assert requests.ended == [1]
        assert await client.frame() is None
        await beat(other, 2)
        assert await answered(other) == 2


async def test_a_client_that_leaves_while_its_request_is_suspended_is_noticed_afterwards(requests: Requests) -> None:
    async with running() as connect:
        client = await connect()
        await beat(client, 1, WAIT)
        await trio.testing.wait_all_tasks_blocked()
        await client.stream.aclose()
        # The loop must not spin meanwhile: the end of the stream stays readable.
        await trio.testing.wait_all_tasks_blocked()
        assert not client.connection.has_ended
        requests.complete()
        await trio.testing.wait_all_tasks_blocked()
        assert client.connection.has_ended


async def test_the_end_of_the_loop_ends_suspended_requests(requests: Requests) -> None:
    async with running() as connect:
        client = await connect()
        await beat(client, 1, WAIT)
        await trio.testing.wait_all_tasks_blocked()
    assert requests.ended == [1]


async def test_deadlines_of_turns_that_wait_no_longer_are_removed(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspended_turns, "DEADLINES_MIN", 10)
    made: list[SuspendedTurns] = []
    monkeypatch.setattr(ConnectionLoop, "_end_sleep", lambda loop: made.append(loop._suspended))
    requests.deadline = trio.current_time() + 1000
    async with running() as connect:
        client, other = await connect(), await connect()
        for number in range(100):
            await beat(client, number, WAIT)
            await trio.testing.wait_all_tasks_blocked()
            await beat(other, number, COMPLETE)
            assert await answered(client) == await answered(other) == number
        assert made[0].count == 0
        assert len(made[0]._deadlines) <= 12
