"""The connections over which a broker asks the active controller."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio

from pykbroker.controller.node_client import NodeAddress, NodeUnreachable
from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.metadata.controller_channel import FORWARD_TIMEOUT_MS, ControllerChannel
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.messages.envelope import EnvelopeResponse
from pykbroker.security.connection_info import ConnectionInfo

OLD, NEW = NodeAddress("old", 9093), NodeAddress("new", 9093)


class SlowClient:
    """A connection whose end takes a while."""

    def __init__(self, address: NodeAddress) -> None:
        self.address = address
        self.closed = 0

    async def close(self) -> None:
        await trio.sleep(1)
        self.closed += 1


async def test_connections_to_an_earlier_controller_are_closed_once() -> None:
    """Several requests may find at the same moment that another controller is the active one."""
    unused: Any = None
    channel = ControllerChannel(unused, unused, unused, unused, client_id="test", request_timeout_ms=1000)
    old = [SlowClient(OLD), SlowClient(OLD)]
    idle: Any = [*old, SlowClient(NEW)]
    channel._idle = idle[:]
    found: list[Any] = []

    async def ask() -> None:
        found.append(await channel._client(NEW))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert [client.closed for client in old] == [1, 1]
    assert [client.address for client in found] == [NEW, NEW, NEW]
    assert sum(client is idle[2] for client in found) == 1
    assert not channel._idle


class Node:
    """A broker's view of the quorum: node 2 leads."""

    is_leader = False

    def known_leader(self) -> tuple[int, int]:
        return 2, 5

    async def leadership_changed(self) -> None:
        await trio.sleep_forever()


async def nowhere(host: str, port: int) -> trio.abc.Stream:
    await trio.lowlevel.checkpoint()
    raise OSError("no route to host")


class Answering:
    """A connection on which each request gets the answer, or raises it."""

    address = NEW

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def request(self, message: Any, timeout_ms: int) -> Any:
        await trio.lowlevel.checkpoint()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


def channel_to(answer: Any, node: Any = None) -> ControllerChannel:
    unused: Any = None
    found = ControllerChannel(
        node or cast("Any", Node()), lambda node_id: NEW, nowhere, unused, client_id="test", request_timeout_ms=1000
    )
    idle: Any = [Answering(answer)]
    found._idle = idle
    return found


CLIENT = ConnectionInfo("PLAINTEXT", ("127.0.0.1", 50000), ("localhost", 9092), None)


async def test_the_reply_in_an_envelope_is_the_clients() -> None:
    assert await channel_to(EnvelopeResponse(response_data=b"reply")).forward(CLIENT, b"frame") == b"reply"


async def test_a_version_that_the_controller_does_not_have_ends_the_clients_connection() -> None:
    """As in Kafka's ForwardingManager: the client connects again, and asks for versions."""
    refused = EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    with pytest.raises(CloseConnection, match="does not have this version of the request"):
        await channel_to(refused).forward(CLIENT, b"frame")


@pytest.mark.parametrize("code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NONE])
async def test_an_envelope_that_was_refused_is_an_error_of_the_server(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    """The client has not sent one."""
    with pytest.raises(KafkaError) as raised:
        await channel_to(EnvelopeResponse(error_code=code)).forward(CLIENT, b"frame")
    assert (raised.value.error_code, raised.value.message) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
    assert f"the active controller refused a forwarded request: {code.name}" in caplog.text


async def test_an_active_controller_that_does_not_know_the_api() -> None:
    with pytest.raises(KafkaError, match="has none of the versions") as raised:
        await channel_to(ProtocolError("new:9093 has none of the versions")).forward(CLIENT, b"frame")
    assert raised.value.error_code is ErrorCode.UNSUPPORTED_VERSION


async def test_a_request_that_no_controller_answers_ends_with_the_time() -> None:
    with pytest.raises(KafkaError, match="did not answer in time") as raised:
        await channel_to(NodeUnreachable("away")).forward(CLIENT, b"frame")
    assert raised.value.error_code is ErrorCode.REQUEST_TIMED_OUT
    assert trio.current_time() == pytest.approx(FORWARD_TIMEOUT_MS / 1000)


async def test_a_request_is_not_forwarded_once_the_active_controller_is_here() -> None:
    node: Any = Node()
    channel = channel_to(NodeUnreachable("away"), node)
    async with trio.open_nursery() as nursery:

        async def become_leader() -> None:
            await trio.sleep(1)
            node.is_leader = True

        nursery.start_soon(become_leader)
        assert await channel.forward(CLIENT, b"frame") is None
