"""Long requests and responses between nodes are encoded and decoded in turns with other tasks."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pykbroker.controller.node_client import NodeAddress, NodeClient
from pykbroker.protocol.codec import decode_from, encode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.fields import Message
from pykbroker.protocol.headers import read_request_header, response_header
from pykbroker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykbroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pykbroker.protocol.steps import PIECE
from tests.support.turns import with_turns

VERSION = 17
COUNT = 100 * PIECE


@pytest.fixture(autouse=True)
def turns_of_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)


class Leader:
    """A node that gives one response to Fetch; `cut` bytes are missing at its end."""

    def __init__(self, response: FetchResponse, cut: int = 0) -> None:
        self.response = response
        self.cut = cut
        self.asked: list[FetchRequest] = []
        self.nursery: trio.Nursery | None = None

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        assert self.nursery is not None
        ours, theirs = trio.testing.memory_stream_pair()
        self.nursery.start_soon(self._serve, theirs)
        return ours

    async def _serve(self, stream: trio.abc.Stream) -> None:
        received = bytearray()
        while True:
            received += await stream.receive_some()
            while len(received) >= 4 and len(received) >= 4 + (size := int.from_bytes(received[:4], "big")):
                frame = memoryview(bytes(received[4 : 4 + size]))
                del received[: 4 + size]
                await stream.send_all(self._answer(frame))

    def _answer(self, frame: memoryview) -> bytes:
        header = read_request_header(frame, {FetchRequest.KEY: 12, 18: 3})
        if header.api_key == FetchRequest.KEY:
            request, _ = decode_from(FetchRequest, header.api_version, frame, header.body_position)
            self.asked.append(request)
            body = encode(self.response, header.api_version)
            body = body[: len(body) - self.cut]
        else:
            api = ApiVersion(api_key=FetchRequest.KEY, min_version=VERSION, max_version=VERSION)
            body = encode(ApiVersionsResponse(api_keys=[api]), header.api_version)
        head = response_header(header.correlation_id, header.api_key == FetchRequest.KEY)
        return (len(head) + len(body)).to_bytes(4, "big") + head + body


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def request_of(count: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=1)
    topics = [FetchTopic(topic_id=topic_id(number), partitions=[partition]) for number in range(count)]
    return FetchRequest(max_wait_ms=1, min_bytes=1, topics=topics)


def response_of(count: int) -> FetchResponse:
    partition = PartitionData(partition_index=0, high_watermark=7, records=b"")
    topics = [FetchableTopicResponse(topic_id=topic_id(number), partitions=[partition]) for number in range(count)]
    return FetchResponse(session_id=3, responses=topics)


async def exchange(leader: Leader, request: Message, *, is_long: bool = False) -> tuple[FetchResponse, int]:
    """The response, and the number of turns that another task gets."""
    client = NodeClient(NodeAddress("there", 1), leader.connect, client_id="c", software_version="1", lends=True)
    async with trio.open_nursery() as nursery:
        leader.nursery = nursery
        try:
            response, turns = await with_turns(client.request(request, 1000, is_long=is_long))
        finally:
            nursery.cancel_scope.cancel()
            await client.close()
    return response, turns


async def test_a_long_response_is_decoded_in_turns() -> None:
    leader = Leader(response_of(COUNT))
    response, turns = await exchange(leader, request_of(1))
    assert [topic.topic_id for topic in response.responses] == [topic_id(number) for number in range(COUNT)]
    assert {topic.partitions[0].high_watermark for topic in response.responses} == {7}
    _, turns_of_short = await exchange(Leader(response_of(1)), request_of(1))
    assert turns - turns_of_short >= 50


async def test_a_long_request_is_encoded_in_turns() -> None:
    leader = Leader(response_of(1))
    _, turns = await exchange(leader, request_of(COUNT), is_long=True)
    _, turns_in_one_piece = await exchange(leader, request_of(COUNT))
    assert turns - turns_in_one_piece >= 50
    assert leader.asked[0] == leader.asked[1] == request_of(COUNT)


async def test_a_long_response_that_is_cut_is_refused() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        await exchange(Leader(response_of(COUNT), cut=1), request_of(1))
    assert caught.group_contains(ProtocolError)
