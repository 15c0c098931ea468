"""Requests out of order in a login, and requests that only the active controller serves."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pykbroker.completion import Completion
from pykbroker.controller import turns
from pykbroker.errors import KafkaError
from pykbroker.network.dispatch import JOINED_MAX, _framed, _handle_or_forward, dispatch
from pykbroker.network.request_memory import RESERVATION_TIMEOUT_S, RequestMemory
from pykbroker.network.suspended_turns import DEADLINES_MIN, SuspendedTurns
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.headers import RequestHeader
from pykbroker.protocol.messages.api_versions import ApiVersionsResponse
from pykbroker.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from pykbroker.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
    TopicResponse,
)
from pykbroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pykbroker.protocol.messages.sasl_handshake import SaslHandshakeResponse
from pykbroker.protocol.messages.vote import VoteRequest, VoteResponse
from pykbroker.requests.context import UnfinishedResponse
from pykbroker.requests.invocation import handlers_of
from pykbroker.security.connection_info import ConnectionInfo, ListenerKind
from tests.pykbroker.network.test_connection import handshake, sasl, services
from tests.support.connections import served

NEXT_LOGIN = "closing the connection"


async def test_api_versions_of_the_future_in_place_of_a_token_is_answered_in_version_0() -> None:
    """As in Kafka's SaslServerAuthenticator, which reads any request for its response."""
    async with served(services(), sasl=sasl()) as client:
        await client.call(handshake(), 1, SaslHandshakeResponse)
        await client.request(ApiKey.API_VERSIONS, 99, b"", flexible=True)
        frame = await client.frame()
        assert frame is not None
        assert decode(ApiVersionsResponse, 0, frame[4:]).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.frame() is None


async def test_a_request_for_controllers_in_place_of_a_token_is_answered_too() -> None:
    async with served(services(), sasl=sasl()) as client:
        await client.call(handshake(), 1, SaslHandshakeResponse)
        response = await client.call(VoteRequest(), 2, VoteResponse)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.frame() is None


@pytest.mark.parametrize(
    ("key", "version", "words"),
    [
        (ApiKey.HEARTBEAT, 99, "Heartbeat version 99 is not supported; this broker has"),
        (999, 0, "API key 999 was sent before authentication"),
        (ApiKey.UPDATE_METADATA, 0, "UPDATE_METADATA"),
    ],
)
async def test_what_has_no_response_in_place_of_a_token_ends_the_connection(
    key: int, version: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(services(), sasl=sasl()) as client:
        await client.call(handshake(), 1, SaslHandshakeResponse)
        await client.request(key, version, b"", flexible=key == ApiKey.HEARTBEAT)
        assert await client.frame() is None
    assert NEXT_LOGIN in caplog.text
    assert words in caplog.text


class Channel:
    """To the active controller, which is in this process from the second request on."""

    def __init__(self) -> None:
        self.is_local = False
        self.forwarded = 0

    async def forward(self, connection: Any, frame: bytes) -> bytes | None:
        await trio.lowlevel.checkpoint()
        self.forwarded += 1
        return None if self.forwarded < 3 else b"reply"


def context(channel: Any) -> Any:
    return SimpleNamespace(services=SimpleNamespace(channel=channel), connection=None, api_key=ApiKey.CREATE_TOPICS)


@pytest.mark.parametrize("is_raised", [True, False])
async def test_a_request_is_tried_again_when_the_controller_has_moved_meanwhile(is_raised: bool) -> None:
    """The client never learns NOT_CONTROLLER, which a broker does not answer in KRaft."""
    channel, handled = Channel(), 0
    moved = CreatableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER)

    async def handle(*_: Any) -> Any:
        nonlocal handled
        await trio.lowlevel.checkpoint()
        handled += 1
        if is_raised:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "moved")
        return CreateTopicsResponse(topics=[moved])

    assert await _handle_or_forward(context(channel), None, handle, b"frame") == b"reply"
    assert (handled, channel.forwarded) == (2, 3)


async def test_the_only_node_has_no_channel() -> None:
    async def handle(*_: Any) -> str:
        await trio.lowlevel.checkpoint()
        return "response"

    assert await _handle_or_forward(context(None), None, handle, b"frame") == "response"


async def test_memory_that_is_released_is_taken_by_the_next_one_at_once() -> None:
    """Nobody is closed for it."""
    memory = RequestMemory(1000)
    first: Any = Holder()
    second: Any = Holder()
    await memory.reserve(first, 1500)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(memory.reserve, second, 700)
        await trio.sleep(RESERVATION_TIMEOUT_S / 2)
        assert memory.reserved_bytes == 1500
        memory.release(first)
    assert memory.reserved_bytes == 700
    assert trio.current_time() == RESERVATION_TIMEOUT_S / 2


class Holder:
    """A connection that must not be closed."""

    def close(self, reason: str | None = None) -> None:
        raise AssertionError(reason)


async def test_deadlines_behind_one_that_still_waits_are_removed() -> None:
    """A request with a near deadline waits while thousands with later ones come and go."""
    turns = SuspendedTurns(lambda: None)

    async def turn() -> bool:
        return True

    def add(deadline: float) -> Any:
        connection: Any = SimpleNamespace(suspended=None)
        coroutine, completion = turn(), Completion()
        completion.deadline = deadline
        turns.add(connection, coroutine, completion)
        return connection.suspended

    first = add(10.0)
    for _ in range(3 * DEADLINES_MIN):
        add(1000.0).close()
        assert turns.next_deadline() == 10.0
    assert len(turns._deadlines) <= DEADLINES_MIN + 2
    first.close()
    assert turns.next_deadline() == float("inf")


class Waits:
    """A connection with a turn that waits."""

    suspended: Any = None


@pytest.mark.parametrize("is_continued", [True, False])
async def test_a_later_deadline_does_not_keep_a_connection_in_memory(is_continued: bool) -> None:
    """A client may wait for weeks (max.wait.ms), and get its answer or leave before."""
    turns = SuspendedTurns(lambda: None)

    async def turn() -> bool:
        return True

    def wait(deadline: float) -> Any:
        connection: Any = Waits()
        completion = Completion()
        completion.deadline = deadline
        turns.add(connection, turn(), completion)
        return connection

    first = wait(10.0)
    connection = wait(2_000_000.0)
    gone = weakref.ref(connection)
    if is_continued:
        connection.suspended.completion.complete()
        taken = turns.ready.popleft().take()
        assert taken is not None
        assert taken[0] is connection
        taken[2].close()
        del taken
    else:
        connection.suspended.close()
    del connection
    gc.collect()
    assert gone() is None
    first.suspended.close()


LARGE = DescribeProducersRequest(topics=[TopicRequest(name=f"t{n}", partition_indexes=[0]) for n in range(1000)])


@pytest.mark.parametrize("is_large", [True, False])
async def test_a_large_request_is_decoded_and_answered_in_turns(
    is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others run between the steps of its codec; a small request has one step."""
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    request = LARGE if is_large else DescribeProducersRequest(topics=LARGE.topics[:1])
    turns_before = turns_after = 0
    is_handled = is_over = False

    async def handle(context: Any, given: DescribeProducersRequest) -> DescribeProducersResponse:
        nonlocal is_handled
        is_handled = True
        assert given == request
        return DescribeProducersResponse(topics=[TopicResponse(name=topic.name) for topic in given.topics])

    async def other() -> None:
        nonlocal turns_before, turns_after
        while not is_over:
            turns_before, turns_after = turns_before + (not is_handled), turns_after + is_handled
            await trio.lowlevel.checkpoint()

    monkeypatch.setitem(handlers_of[ListenerKind.BROKER], ApiKey.DESCRIBE_PRODUCERS, (type(request), handle))
    async with trio.open_nursery() as nursery:
        head = ApiKey.DESCRIBE_PRODUCERS.to_bytes(2, "big") + bytes((0, 0, 0, 0, 0, 7)) + b"\0\4test\0"
        frame = head + encode(request, 0)
        info = ConnectionInfo("PLAINTEXT", ("127.0.0.1", 50000), ("127.0.0.1", 9092), None)
        nursery.start_soon(other)
        await trio.lowlevel.checkpoint()
        turns_before = 0
        chunks = await dispatch(services(), info, memoryview(frame))
        is_over = True
        assert isinstance(chunks, list)
        reply = b"".join(chunks)
        assert len(reply) == 4 + int.from_bytes(reply[:4], "big")
        response = decode(DescribeProducersResponse, 0, reply[9:])
        assert [topic.name for topic in response.topics] == [topic.name for topic in request.topics]
    assert (turns_before > 10) == (turns_after > 10) == is_large


@pytest.mark.parametrize("count", [20, 2000])
@pytest.mark.parametrize("is_unfinished", [True, False])
async def test_a_produce_request_of_very_many_batches_is_decoded_and_answered_in_turns(
    count: int, is_unfinished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its size; its handler says if the response is long."""
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    topics = [
        TopicProduceData(name=f"t{n}", partition_data=[PartitionProduceData(index=0, records=bytes(80))])
        for n in range(count)
    ]
    turns_before = turns_after = 0
    is_handled = is_over = False

    async def handle(context: Any, given: ProduceRequest) -> Any:
        nonlocal is_handled
        is_handled = True
        context.has_long_response = len(given.topic_data) > 20
        response = ProduceResponse(responses=[TopicProduceResponse(name=topic.name) for topic in given.topic_data])
        return UnfinishedResponse(response, trio.lowlevel.checkpoint) if is_unfinished else response

    async def other() -> None:
        nonlocal turns_before, turns_after
        while not is_over:
            turns_before, turns_after = turns_before + (not is_handled), turns_after + is_handled
            await trio.lowlevel.checkpoint()

    monkeypatch.setitem(handlers_of[ListenerKind.BROKER], ApiKey.PRODUCE, (ProduceRequest, handle))
    async with trio.open_nursery() as nursery:
        head = ApiKey.PRODUCE.to_bytes(2, "big") + bytes((0, 8, 0, 0, 0, 7)) + b"\0\4test"
        frame = head + encode(ProduceRequest(acks=1, topic_data=topics), 8)
        info = ConnectionInfo("PLAINTEXT", ("127.0.0.1", 50000), ("127.0.0.1", 9092), None)
        nursery.start_soon(other)
        await trio.lowlevel.checkpoint()
        turns_before = 0
        reply = await dispatch(services(), info, memoryview(frame), may_be_unfinished=is_unfinished)
        assert reply is not None
        chunks = reply if isinstance(reply, list) else await reply.finish()
        is_over = True
    assert len(decode(ProduceResponse, 8, b"".join(chunks)[8:]).responses) == count
    assert (turns_before > 10) == (turns_after > 10) == (count > 20)


@pytest.mark.parametrize("size", [JOINED_MAX, JOINED_MAX + 1])
def test_a_large_response_is_not_copied_behind_its_header(size: int) -> None:
    body = bytearray(size)
    chunks = _framed(RequestHeader(ApiKey.METADATA, 0, 7, None, 0), [body], False)
    assert b"".join(chunks) == (size + 4).to_bytes(4, "big") + b"\0\0\0\7" + body
    assert (chunks[-1] is body) == (size > JOINED_MAX)
