"""Topics of `pykbroker start --topic`, created on a broker that answers from a list, in virtual time."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from pykbroker.cli.errors import CliError
from pykbroker.cli.start.initial_topics import create_initial_topics
from pykbroker.cli.start.options import TopicSpec
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse

TOPICS = [TopicSpec("orders", 2, {}), TopicSpec("payments", 1, {})]
HEADER_BYTES = 4 + 2 + 2 + 4 + 2 + len(b"pykbroker-start")


class Broker:
    """Answers CreateTopics with the errors of `answers`, the last of them again and again."""

    def __init__(self, *answers: dict[str, ErrorCode]) -> None:
        self._answers = list(answers)
        self.asked: list[list[str]] = []

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        del host, port
        ours, theirs = trio.testing.memory_stream_pair()
        ours.send_stream.send_all_hook = lambda: self._answer(bytes(ours.send_stream.get_data_nowait()), theirs)
        return ours

    async def _answer(self, frame: bytes, stream: trio.abc.SendStream) -> None:
        request = decode(CreateTopicsRequest, 4, frame[HEADER_BYTES:])
        names = [topic.name for topic in request.topics]
        self.asked.append(names)
        errors = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        results = [CreatableTopicResult(name=name, error_code=errors.get(name, 0)) for name in names]
        body = struct.pack(">i", 1) + encode(CreateTopicsResponse(topics=results), 4)
        await stream.send_all(struct.pack(">i", len(body)) + body)


async def create(broker: Broker, topics: Sequence[TopicSpec] = TOPICS, brokers_within_s: float = 30) -> None:
    await create_initial_topics("localhost", 9092, topics, broker.open_stream, brokers_within_s=brokers_within_s)


async def test_topics_wait_until_enough_brokers_are_registered() -> None:
    too_few = {"orders": ErrorCode.INVALID_REPLICATION_FACTOR, "payments": ErrorCode.TOPIC_ALREADY_EXISTS}
    broker = Broker(too_few, too_few, {})
    await create(broker)
    assert broker.asked == [["orders", "payments"], ["orders"], ["orders"]]


async def test_too_few_brokers_are_an_error_after_the_time_limit() -> None:
    broker = Broker({"orders": ErrorCode.INVALID_REPLICATION_FACTOR})
    began = trio.current_time()
    with pytest.raises(CliError, match="--topic orders: INVALID_REPLICATION_FACTOR"):
        await create(broker)
    assert 30 <= trio.current_time() - began < 31


async def test_too_few_brokers_are_an_error_at_once_without_other_nodes() -> None:
    broker = Broker({"orders": ErrorCode.INVALID_REPLICATION_FACTOR})
    with pytest.raises(CliError, match="INVALID_REPLICATION_FACTOR"):
        await create(broker, brokers_within_s=0)
    assert broker.asked == [["orders", "payments"]]


async def test_another_error_is_not_tried_again() -> None:
    broker = Broker({"orders": ErrorCode.INVALID_REPLICATION_FACTOR, "payments": ErrorCode.INVALID_CONFIG})
    with pytest.raises(CliError, match="--topic orders: INVALID_REPLICATION_FACTOR"):
        await create(broker)
    assert len(broker.asked) == 1


async def test_a_broker_that_hangs_up() -> None:
    async def open_stream(host: str, port: int) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        await theirs.send_stream.aclose()
        return ours

    with pytest.raises(CliError, match="the broker closed the connection while creating the topics of --topic"):
        await create_initial_topics("localhost", 9092, TOPICS, open_stream, brokers_within_s=0)
