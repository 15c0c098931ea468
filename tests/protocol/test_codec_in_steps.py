"""Messages that are decoded and encoded in steps: the same values, bytes and errors as in one piece."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykbroker.protocol.codec import chunks_in_steps, decode, decode_in_steps, encode, encode_chunks, encode_element
from pykbroker.protocol.codec_source import STEP_ELEMENTS, is_long
from pykbroker.protocol.errors import DecodeError, EncodeError, UnsupportedVersion
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykbroker.protocol.steps import Steps, finished
from tests.protocol.test_schema_parity import MESSAGES
from tests.support.message_strategies import random_message

VERSIONS = [
    (message_type, version)
    for message_type in MESSAGES
    for version in (min(message_type.VERSIONS), max(message_type.VERSIONS))
    if is_long(message_type, version)
]
IDS = [f"{message_type.__name__}-v{version}" for message_type, version in VERSIONS]
COUNT = 10 * STEP_ELEMENTS


def steps_of(steps: Steps[Any]) -> int:
    """The number of yields."""
    return sum(1 for _ in steps)


def text_of_error(steps: Steps[Any]) -> str | None:
    try:
        finished(steps)
    except DecodeError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("message_type", "version"), VERSIONS, ids=IDS)
def test_they_are_the_same_in_steps(message_type: type[Message], version: int) -> None:
    generator = random.Random(f"{message_type.__name__} {version}")
    for _ in range(4):
        message = random_message(message_type, version, generator)
        data = encode(message, version)
        assert finished(chunks_in_steps(message, version)) == encode_chunks(message, version)
        assert finished(decode_in_steps(message_type, version, memoryview(b"xyz" + data), 3)) == message
    for _ in range(30):
        mutated = bytearray(data)
        if mutated:
            mutated[generator.randrange(len(mutated))] = generator.choice((0, 1, 127, 128, 255))
        del mutated[generator.randint(0, len(mutated)) :]
        try:
            expected: str | None = None
            decode(message_type, version, bytes(mutated))
        except DecodeError as error:
            expected = str(error)
        assert text_of_error(decode_in_steps(message_type, version, bytes(mutated), 0)) == expected


def test_a_message_without_arrays_of_structs_has_one_step() -> None:
    request = HeartbeatRequest(group_id="g", member_id="m")
    assert steps_of(chunks_in_steps(request, 4)) == 0
    assert steps_of(decode_in_steps(HeartbeatRequest, 4, encode(request, 4), 0)) == 0


@pytest.mark.parametrize("topics", [1, COUNT])
def test_others_have_turns_in_the_outer_array_and_in_the_inner_one(topics: int) -> None:
    partitions = [ListOffsetsPartition(partition_index=number) for number in range(COUNT // topics)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=str(n), partitions=partitions) for n in range(topics)])
    assert steps_of(chunks_in_steps(request, 7)) >= COUNT // STEP_ELEMENTS
    assert steps_of(decode_in_steps(ListOffsetsRequest, 7, encode(request, 7), 0)) == COUNT // STEP_ELEMENTS


def test_a_nullable_array_and_encoded_elements() -> None:
    assert finished(chunks_in_steps(DescribeLogDirsRequest(topics=None), 4)) == [b"\0\0"]
    response = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition()] * 3)])
    expected = encode_chunks(response, 12)
    response.topics[0].partitions[1] = encoded_partition()
    assert finished(chunks_in_steps(response, 12)) == expected


def encoded_partition() -> Any:
    return encode_element(MetadataResponse, MetadataResponsePartition(), 12)


def test_the_limit_of_elements_is_that_of_each_message() -> None:
    """Two messages are decoded in turns, and a small one between their steps."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * COUNT)
    data, small = encode(request, 9), encode(MetadataRequest(topics=[]), 9)
    first = decode_in_steps(MetadataRequest, 9, data, 0, COUNT)
    second = decode_in_steps(MetadataRequest, 9, data, 0, COUNT)
    results: list[Any] = []
    while len(results) < 2:
        for steps in (first, second):
            try:
                next(steps)
            except StopIteration as stop:
                results.append(stop.value)
            decode(MetadataRequest, 9, small)
    assert results == [request, request]
    nested = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()] * 70)] * 2)
    rest = decode_in_steps(FetchRequest, 11, encode(nested, 11), 0, 141)
    next(rest)
    decode(MetadataRequest, 9, small)
    with pytest.raises(DecodeError, match="too many elements"):
        finished(rest)


def test_errors_of_values_and_versions() -> None:
    request = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=1 << 40)])]
    )
    with pytest.raises(EncodeError, match=r"ListOffsetsRequest v7: field topics\.partitions\.partition_index"):
        finished(chunks_in_steps(request, 7))
    with pytest.raises(UnsupportedVersion):
        finished(chunks_in_steps(request, 99))
    with pytest.raises(UnsupportedVersion):
        finished(decode_in_steps(ListOffsetsRequest, 99, b"", 0))
