"""The loop that serves all connections of a listener: what waits holds up nobody else, and nothing is served twice."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.completion import Completion
from pykbroker.network import connection_loop
from pykbroker.network.connection import REQUESTS_PER_TURN, Connection, SocketConnection
from pykbroker.network.connection_loop import SPARE_TASKS_MAX, ConnectionLoop
from pykbroker.network.poller import SelectorPoller
from pykbroker.network.reply import SEND_TIMEOUT_S
from pykbroker.network.request_memory import RequestMemory
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import encode
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykbroker.quotas.switch import QuotaSwitch
from pykbroker.requests.invocation import handlers_of
from pykbroker.security.connection_info import ConnectionInfo, ListenerKind
from tests.support.connections import FRAME_SIZE_MAX, MEMORY_MAX, Client

REPLY_SIZE = 14
"""Bytes of the response to a heartbeat."""
AT_ONCE = 0
"""Generation of a heartbeat that is answered without a wait; other generations are seconds to wait."""


@pytest.fixture(params=["epoll", "selector"], autouse=True)
def poller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "selector":
        monkeypatch.setattr(connection_loop, "make_poller", SelectorPoller)


async def sleep_in_a_task(seconds: float) -> None:
    await trio.sleep(seconds)


async def sleep_suspended(seconds: float) -> None:
    await Completion().wait(trio.current_time() + seconds)


@pytest.fixture(params=[sleep_in_a_task, sleep_suspended], ids=["task", "suspended"])
def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Installs a handler that waits for as many seconds as the generation says; correlation ids in order of serving."""
    order: list[int] = []
    sleep = request.param

    async def handle(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        order.append(context.correlation_id)
        if request.generation_id != AT_ONCE:
            await sleep(request.generation_id)
        return HeartbeatResponse()

    monkeypatch.setitem(handlers_of[ListenerKind.BROKER], ApiKey.HEARTBEAT, (HeartbeatRequest, handle))
    return order


Connect = Callable[[], Awaitable[Client]]


@asynccontextmanager
async def running() -> AsyncIterator[Connect]:
    """A function that connects a client to a loop, which runs until the block ends."""
    loop, memory = ConnectionLoop(), RequestMemory(MEMORY_MAX)
    connections: list[SocketConnection] = []
    streams: list[trio.SocketStream] = []

    def forget(ended: Connection) -> None:
        assert isinstance(ended, SocketConnection)
        loop.remove(ended)

    async def connect() -> Client:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        info = ConnectionInfo("PLAINTEXT", ("127.0.0.1", 50000), ("127.0.0.1", 9092), None)
        services: Any = SimpleNamespace(quotas=QuotaSwitch())
        connections.append(SocketConnection(services, ours, info, FRAME_SIZE_MAX, memory, forget))
        loop.add(connections[-1])
        streams.append(trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))
        return Client(streams[-1], connections[-1])

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(loop.run)
            yield connect
            nursery.cancel_scope.cancel()
    finally:
        for connection in connections:
            connection.end()
        for stream in streams:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)


async def beat(client: Client, number: int, seconds: int = AT_ONCE) -> None:
    """Sends a heartbeat without reading its response."""
    body = encode(HeartbeatRequest(generation_id=seconds), 1)
    await client.request(ApiKey.HEARTBEAT, 1, body, correlation_id=number, flexible=False)


async def answered(client: Client) -> int:
    """Correlation id of the next response."""
    frame = await client.frame()
    assert frame is not None, "the broker closed the connection"
    return int.from_bytes(frame[:4], "big")


async def test_a_request_that_waits_holds_up_no_other_client(served: list[int]) -> None:
    async with running() as connect:
        slow = [await connect() for _ in range(3)]
        for number, client in enumerate(slow):
            await beat(client, number, 60)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        quick = await connect()
        for number in range(100, 110):
            await beat(quick, number)
            assert await answered(quick) == number
        assert trio.current_time() == began
        assert [await answered(client) for client in slow] == [0, 1, 2]
        assert trio.current_time() == began + 60


async def test_requests_behind_one_that_waits_are_served_after_it(served: list[int]) -> None:
    """P-8, also for those that arrive while it waits."""
    async with running() as connect:
        client = await connect()
        await beat(client, 1, 5)
        await trio.testing.wait_all_tasks_blocked()
        assert served == [1]
        await beat(client, 2)
        await beat(client, 3, 5)
        await beat(client, 4)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert served == [1]
        assert [await answered(client) for _ in range(4)] == [1, 2, 3, 4]
        assert served == [1, 2, 3, 4]


async def test_a_connection_is_served_again_after_a_wait(served: list[int]) -> None:
    async with running() as connect:
        client = await connect()
        for number in range(1, 20):
            await beat(client, number, number % 2)
            assert await answered(client) == number


async def test_a_client_with_many_requests_at_once_does_not_keep_others_waiting(served: list[int]) -> None:
    async with running() as connect:
        greedy, modest = await connect(), await connect()
        header = ApiKey.HEARTBEAT.to_bytes(2, "big") + b"\0\1"
        body = encode(HeartbeatRequest(generation_id=AT_ONCE), 1)
        frames = b"".join(
            (len(header) + 10 + len(body)).to_bytes(4, "big") + header + number.to_bytes(4, "big") + b"\0\4test" + body
            for number in range(10 * REQUESTS_PER_TURN)
        )
        # Both are in the buffers of the sockets before the loop looks.
        await greedy.stream.send_all(frames)
        await beat(modest, 1000)
        assert await answered(modest) == 1000
        assert [await answered(greedy) for _ in range(10 * REQUESTS_PER_TURN)] == list(range(10 * REQUESTS_PER_TURN))
        assert served.index(1000) <= 2 * REQUESTS_PER_TURN


async def test_closing_a_connection_ends_the_request_that_waits_and_no_other(served: list[int]) -> None:
    async with running() as connect:
        first, second = await connect(), await connect()
        await beat(first, 1, 60)
        await beat(second, 2, 60)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        first.connection.close()
        assert await first.frame() is None
        assert trio.current_time() == began
        assert await answered(second) == 2
        await beat(second, 3)
        assert await answered(second) == 3


async def test_closing_an_idle_connection_closes_it_at_once(served: list[int]) -> None:
    async with running() as connect:
        first, second = await connect(), await connect()
        first.connection.close()
        assert first.connection.has_ended
        assert await first.frame() is None
        await beat(second, 2)
        assert await answered(second) == 2


async def test_a_handler_that_closes_its_own_connection_does_not_end_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[Client] = []

    async def closing(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        if request.generation_id:
            clients[0].connection.close()
        return HeartbeatResponse()

    monkeypatch.setitem(handlers_of[ListenerKind.BROKER], ApiKey.HEARTBEAT, (HeartbeatRequest, closing))
    async with running() as connect:
        clients += [await connect(), await connect()]
        await beat(clients[0], 1, 1)
        assert await clients[0].frame() is None
        await beat(clients[1], 2)
        assert await answered(clients[1]) == 2


class TestFollowUp:
    """Work of a request that its reply does not wait for."""

    Events = list[tuple[str, int, bool]]

    @pytest.fixture
    def events(self, monkeypatch: pytest.MonkeyPatch) -> Events:
        """Requests and their follow-ups, each with its correlation id and if the first client had a reply by then."""
        events: list[tuple[str, int, bool]] = []

        async def handle(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
            number = context.correlation_id
            events.append(("request", number, self.has_reply()))
            context.connection.after_reply(lambda: events.append(("follow-up", number, self.has_reply())))
            return HeartbeatResponse()

        monkeypatch.setitem(handlers_of[ListenerKind.BROKER], ApiKey.HEARTBEAT, (HeartbeatRequest, handle))
        return events

    client: Client

    def has_reply(self) -> bool:
        try:
            return bool(self.client.stream.socket._sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    async def test_it_is_done_between_the_reply_and_the_next_request(self, events: Events) -> None:
        async with running() as connect:
            self.client, other = await connect(), await connect()
            await beat(self.client, 1)
            await beat(self.client, 2)
            await beat(other, 3)
            assert [await answered(self.client), await answered(self.client)] == [1, 2]
            assert await answered(other) == 3
        assert [event for event in events if event[1] != 3] == [
            ("request", 1, False),
            ("follow-up", 1, True),
            ("request", 2, True),
            ("follow-up", 2, True),
        ]
        assert [name for name, _, _ in events] == ["request", "follow-up"] * 3

    async def test_it_does_not_wait_for_a_client_that_reads_nothing(self, events: Events) -> None:
        async with running() as connect:
            self.client = await connect()
            connection = self.client.connection
            with suppress(BlockingIOError):
                while True:
                    connection._socket.send(bytes(1 << 16))
            await beat(self.client, 1)
            await trio.testing.wait_all_tasks_blocked()
            assert connection.is_sending
            assert [name for name, _, _ in events] == ["request", "follow-up"]

    async def test_it_is_done_if_the_client_is_gone(self, events: Events) -> None:
        async with running() as connect:
            self.client = await connect()
            await beat(self.client, 1)
            await self.client.stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert self.client.connection.has_ended
        assert events == [("request", 1, False), ("follow-up", 1, False)]


@pytest.mark.parametrize("served", [sleep_in_a_task], indirect=True)
async def test_idle_connections_have_no_tasks(served: list[int]) -> None:
    """Tasks of requests that have waited are kept for the next ones, up to a limit."""
    async with running() as connect:
        await trio.testing.wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        clients = [await connect() for _ in range(3 * SPARE_TASKS_MAX)]
        for number, client in enumerate(clients):
            await beat(client, number)
            await answered(client)
        assert trio.lowlevel.current_statistics().tasks_living == before
        for number, client in enumerate(clients):
            await beat(client, number, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living >= before + len(clients)
        for client in clients:
            await answered(client)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living <= before + SPARE_TASKS_MAX


async def test_a_client_that_leaves_while_its_request_waits_is_noticed_afterwards(served: list[int]) -> None:
    async with running() as connect:
        client = await connect()
        await beat(client, 1, 5)
        await trio.testing.wait_all_tasks_blocked()
        await client.stream.aclose()
        await trio.sleep(6)
        await trio.testing.wait_all_tasks_blocked()
        assert client.connection.has_ended


async def test_other_tasks_run_while_polling_always_finds_a_request(
    served: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    polls_max = 150  # their responses fit into the socket's buffer
    heartbeat = b"\0\x0c\0\1\0\0\0\7\0\4test" + encode(HeartbeatRequest(), 1)
    clients: list[Client] = []

    class AlwaysFound:
        def poll(self, find: Callable[[], bool]) -> bool:
            if not clients or len(served) >= polls_max:
                return False
            os.write(clients[0].stream.socket.fileno(), len(heartbeat).to_bytes(4, "big") + heartbeat)
            return find()

        def slept(self, seconds: float) -> None: ...

    monkeypatch.setattr(connection_loop, "ShortWaits", AlwaysFound)
    monkeypatch.setattr(connection_loop, "TURN_S", 0)
    async with running() as connect:
        client = await connect()
        await beat(client, 1)
        clients.append(client)
        for _ in range(10):
            await answered(client)
        assert 10 <= len(served) < polls_max, "this task was not kept waiting until the client stopped"


async def test_the_end_of_the_loop_ends_what_waits(served: list[int]) -> None:
    async with running() as connect:
        waiting, idle = await connect(), await connect()
        await beat(waiting, 1, 60)
        await trio.testing.wait_all_tasks_blocked()
    assert waiting.connection.has_ended
    assert idle.connection.has_ended


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Requests ("+1") and replies ("-1") by correlation id, as they are served and sent in one turn without an end."""
    found: list[str] = []
    send_now = SocketConnection.send_now

    async def handle(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        found.append(f"+{context.correlation_id}")
        if request.generation_id != AT_ONCE:
            await sleep_suspended(request.generation_id)
        return HeartbeatResponse()

    def noted(connection: SocketConnection, data: bytes | bytearray) -> int:
        found.append(f"-{int.from_bytes(data[4:8], 'big')}")
        return send_now(connection, data)

    monkeypatch.setitem(handlers_of[ListenerKind.BROKER], ApiKey.HEARTBEAT, (HeartbeatRequest, handle))
    monkeypatch.setattr(SocketConnection, "send_now", noted)
    monkeypatch.setattr(connection_loop, "TURN_S", 60)
    monkeypatch.setattr(connection_loop, "READY_MIN", 2)
    return found


def beat_now(client: Client, *numbers: int, seconds: int = AT_ONCE) -> None:
    """Sends heartbeats in one piece, before the loop gets its next turn."""
    body = encode(HeartbeatRequest(generation_id=seconds), 1)
    frames = b""
    for number in numbers:
        frame = b"\0\x0c\0\1" + number.to_bytes(4, "big") + b"\0\4test" + body
        frames += len(frame).to_bytes(4, "big") + frame
    os.write(client.stream.socket.fileno(), frames)


async def test_replies_are_sent_together_while_many_connections_are_ready(steps: list[str]) -> None:
    async with running() as connect:
        clients = [await connect() for _ in range(5)]
        for number, client in enumerate(clients):
            beat_now(client, number)
        assert [await answered(client) for client in clients] == list(range(5))
        served = [step for step in steps if step[0] == "+"]
        first, second, third, fourth, fifth = (step[1:] for step in served)
        held = [f"-{first}", f"-{second}", f"-{third}"]
        # Beside the fourth one a single connection is ready: its own reply is not held, nor what was.
        assert steps == [*served[:4], f"-{fourth}", *held, f"+{fifth}", f"-{fifth}"]


async def test_replies_are_sent_at_the_end_of_a_turn(steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_loop, "TURN_S", 0)
    async with running() as connect:
        clients = [await connect() for _ in range(5)]
        for number, client in enumerate(clients):
            beat_now(client, number)
        assert [await answered(client) for client in clients] == list(range(5))
        assert [step[1:] for step in steps[::2]] == [step[1:] for step in steps[1::2]]


async def test_replies_in_front_of_more_requests_are_not_held(steps: list[str]) -> None:
    """P-8: the next request of the client may wait, or have a reply that is not held."""
    async with running() as connect:
        clients = [await connect() for _ in range(5)]
        for number, client in enumerate(clients):
            beat_now(client, 10 * number, 10 * number + 1)
        for number, client in enumerate(clients):
            assert [await answered(client), await answered(client)] == [10 * number, 10 * number + 1]
        for number in range(5):
            assert steps.index(f"-{10 * number}") == steps.index(f"+{10 * number}") + 1


async def test_replies_with_work_behind_them_are_not_held(steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        number = context.correlation_id
        context.connection.after_reply(lambda: steps.append(f"work {number}"))
        return HeartbeatResponse()

    monkeypatch.setitem(handlers_of[ListenerKind.BROKER], ApiKey.HEARTBEAT, (HeartbeatRequest, handle))
    async with running() as connect:
        clients = [await connect() for _ in range(5)]
        for number, client in enumerate(clients):
            beat_now(client, number)
        assert [await answered(client) for client in clients] == list(range(5))
        assert [step[1:] for step in steps[::2]] == [step[5:].lstrip() for step in steps[1::2]]


async def test_held_replies_are_sent_before_a_request_waits(steps: list[str]) -> None:
    async with running() as connect:
        clients = [await connect() for _ in range(6)]
        for number, client in enumerate(clients):
            beat_now(client, number, seconds=60 if number == 5 else AT_ONCE)
        assert [await answered(client) for client in clients[:5]] == list(range(5))
        assert "-5" not in steps
        assert await answered(clients[5]) == 5


def fill(client: Client) -> int:
    """Fills the socket to a client; returns the number of bytes."""
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += client.connection._socket.send(bytes(256))
    return filled


@pytest.mark.parametrize("is_closed_here", [False, True])
async def test_a_client_that_is_gone_before_it_has_its_whole_reply(steps: list[str], is_closed_here: bool) -> None:
    async with running() as connect:
        clients = [await connect() for _ in range(5)]
        fill(clients[0])
        for number, client in enumerate(clients):
            beat_now(client, number)
        assert [await answered(client) for client in clients[1:]] == [1, 2, 3, 4]
        await trio.testing.wait_all_tasks_blocked()
        assert clients[0].connection.is_sending
        if is_closed_here:
            clients[0].connection.close("as the broker stops")
        else:
            await clients[0].stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert clients[0].connection.has_ended


async def test_a_client_that_does_not_read_gets_a_held_reply_later(steps: list[str]) -> None:
    """The others are served meanwhile, and its own next request is behind the reply."""
    async with running() as connect:
        clients = [await connect() for _ in range(5)]
        slow = clients[0]
        filled = fill(slow)
        for number, client in enumerate(clients):
            beat_now(client, number)
        assert [await answered(client) for client in clients[1:]] == [1, 2, 3, 4]
        beat_now(slow, 7)
        for number, client in enumerate(clients[1:], 11):
            beat_now(client, number)
        assert [await answered(client) for client in clients[1:]] == [11, 12, 13, 14]
        assert "+7" not in steps
        received = b""
        while len(received) < filled + 2 * REPLY_SIZE:
            received += await slow.stream.receive_some()
        first, second = received[filled:-REPLY_SIZE], received[-REPLY_SIZE:]
        assert (first[4:8], second[4:8]) == (b"\0\0\0\0", b"\0\0\0\7")
        assert not slow.connection.has_ended


async def test_a_client_that_is_gone_ends_its_connection_when_replies_are_sent(steps: list[str]) -> None:
    async with running() as connect:
        clients = [await connect() for _ in range(6)]
        for number, client in enumerate(clients):
            beat_now(client, number)
        await clients[0].stream.aclose()
        assert [await answered(client) for client in clients[1:]] == [1, 2, 3, 4, 5]
        await trio.testing.wait_all_tasks_blocked()
        assert clients[0].connection.has_ended


async def test_the_end_of_a_connection_sends_what_is_held(steps: list[str]) -> None:
    """Its own last reply among it."""
    async with running() as connect:
        clients = [await connect() for _ in range(6)]
        for number, client in enumerate(clients[:5]):
            beat_now(client, number)
        os.write(clients[5].stream.socket.fileno(), b"\xff" * 4)
        assert [await answered(client) for client in clients[:5]] == list(range(5))
        assert await clients[5].frame() is None


class TestFullSocket:
    """A reply waits for its client to read, suspended: without a task, and with a limit of time."""

    async def test_others_are_served_meanwhile_and_the_next_request_afterwards(self, served: list[int]) -> None:
        async with running() as connect:
            slow, other = await connect(), await connect()
            await trio.testing.wait_all_tasks_blocked()
            before = trio.lowlevel.current_statistics().tasks_living
            for first in (10, 20):
                filled = fill(slow)
                await beat(slow, first)
                await trio.testing.wait_all_tasks_blocked()
                assert slow.connection.is_sending
                assert trio.lowlevel.current_statistics().tasks_living == before
                await beat(slow, first + 1)
                await beat(other, first + 2)
                assert await answered(other) == first + 2
                assert served[-2:] == [first, first + 2]
                received = b""
                while len(received) < filled + 2 * REPLY_SIZE:
                    received += await slow.stream.receive_some()
                replies = received[filled:]
                assert replies[4:8] == first.to_bytes(4, "big")
                assert replies[REPLY_SIZE + 4 : REPLY_SIZE + 8] == (first + 1).to_bytes(4, "big")
                await trio.testing.wait_all_tasks_blocked()
                assert not slow.connection.is_sending

    async def test_a_client_that_reads_nothing_is_disconnected_in_time(self, served: list[int]) -> None:
        async with running() as connect:
            slow, other = await connect(), await connect()
            fill(slow)
            await beat(slow, 1)
            await trio.sleep(SEND_TIMEOUT_S - 1)
            assert not slow.connection.has_ended
            await trio.sleep(2)
            assert slow.connection.has_ended
            await beat(other, 2)
            assert await answered(other) == 2

    @pytest.mark.parametrize("is_closed_here", [False, True])
    async def test_a_connection_may_end_meanwhile(self, served: list[int], is_closed_here: bool) -> None:
        async with running() as connect:
            slow, other = await connect(), await connect()
            fill(slow)
            await beat(slow, 1)
            await trio.testing.wait_all_tasks_blocked()
            if is_closed_here:
                slow.connection.close("as the broker stops")
            else:
                await slow.stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert slow.connection.has_ended
            await beat(other, 2)
            assert await answered(other) == 2

    async def test_a_request_that_has_waited_may_have_a_reply_that_waits(self, served: list[int]) -> None:
        async with running() as connect:
            slow = await connect()
            filled = fill(slow)
            await beat(slow, 1, 5)
            await beat(slow, 2)
            await trio.sleep(6)
            assert served == [1]
            received = b""
            while len(received) < filled + 2 * REPLY_SIZE:
                received += await slow.stream.receive_some()
            assert served == [1, 2]
            await beat(slow, 3)
            assert await answered(slow) == 3
