"""Creates the topics of `pykbroker start --topic`, as a client of the broker that has just started.

It sends CreateTopics on purpose: a topic created at start is checked, placed and logged exactly as any other.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from pykbroker.cli.errors import CliError
from pykbroker.cli.start.options import TopicSpec
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from pykbroker.controller.node_client import OpenStream

# The first version that leaves partition count and replication to the broker (KIP-464), and not yet flexible.
_VERSION = 4
_TIMEOUT_MS = 30_000
_CORRELATION_ID = 1
_CLIENT_ID = b"pykbroker-start"
_DONE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
_RETRY_PAUSE_S = 0.05
BROKERS_WITHIN_S = 30.0
"""Seconds in which the other nodes of a cluster register, when topics are to be created at its start."""


async def create_initial_topics(
    host: str,
    port: int,
    topics: Sequence[TopicSpec],
    open_stream: OpenStream | None,
    *,
    brokers_within_s: float,
) -> None:
    """Creates the topics that are missing; existing ones stay as they are.

    Args:
        host: of the broker.
        port: of the broker.
        topics: as given with `--topic`.
        open_stream: connects to the broker; None is for a listener without TLS.
        brokers_within_s: seconds for which a topic is tried again as long as fewer brokers are registered than it gets
            replicas. The nodes of a cluster start in any order.

    Raises:
        CliError: the broker refused one; the text has the broker's error message.
    """
    deadline = trio.current_time() + brokers_within_s
    stream = await (open_stream or trio.open_tcp_stream)(host, port)
    async with stream:
        while topics:
            refused = [result for result in await _create(stream, topics) if result.error_code not in _DONE]
            lacking_brokers = [r for r in refused if r.error_code == ErrorCode.INVALID_REPLICATION_FACTOR]
            if refused and (refused != lacking_brokers or trio.current_time() >= deadline):
                result = refused[0]
                reason = result.error_message or answered_error(result.error_code).name
                raise CliError(f"--topic {result.name}: {reason}")
            names = {result.name for result in lacking_brokers}
            topics = [topic for topic in topics if topic.name in names]
            if topics:
                await trio.sleep(_RETRY_PAUSE_S)


async def _create(stream: trio.abc.Stream, topics: Sequence[TopicSpec]) -> list[CreatableTopicResult]:
    """Sends one CreateTopics request; returns the result of each topic."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=-1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
            )
            for topic in topics
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    header = struct.pack(">hhih", ApiKey.CREATE_TOPICS, _VERSION, _CORRELATION_ID, len(_CLIENT_ID)) + _CLIENT_ID
    frame = header + encode(request, _VERSION)
    await stream.send_all(struct.pack(">i", len(frame)) + frame)
    (size_bytes,) = struct.unpack(">i", await _receive(stream, 4))
    answer = await _receive(stream, size_bytes)
    # A response header of version 0 is the correlation id alone.
    return decode(CreateTopicsResponse, _VERSION, answer[4:]).topics


async def _receive(stream: trio.abc.Stream, size_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < size_bytes:
        piece = await stream.receive_some(size_bytes - len(data))
        if not piece:
            raise CliError("the broker closed the connection while creating the topics of --topic")
        data += piece
    return bytes(data)
