"""Creates the topics of `pykbroker start --topic`, as a client of the broker that has just started.

It sends CreateTopics on purpose: a topic created at start is checked, placed and logged exactly as any other.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from pykbroker.cli.errors import CliError
from pykbroker.cli.start_options import TopicSpec
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
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


async def create_initial_topics(
    host: str, port: int, topics: Sequence[TopicSpec], open_stream: OpenStream | None = None
) -> None:
    """Create the topics that are missing; existing ones stay as they are.

    `open_stream` connects to the broker; None is for a listener without TLS.

    Raises:
        CliError: the broker refused one; the text has the broker's error message.
    """
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
    stream = await (open_stream or trio.open_tcp_stream)(host, port)
    async with stream:
        await stream.send_all(struct.pack(">i", len(frame)) + frame)
        (size_bytes,) = struct.unpack(">i", await _receive(stream, 4))
        answer = await _receive(stream, size_bytes)
    # A response header of version 0 is the correlation id alone.
    response = decode(CreateTopicsResponse, _VERSION, answer[4:])
    for result in response.topics:
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise CliError(f"--topic {result.name}: {result.error_message or ErrorCode(result.error_code).name}")


async def _receive(stream: trio.abc.Stream, size_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < size_bytes:
        piece = await stream.receive_some(size_bytes - len(data))
        if not piece:
            raise CliError("the broker closed the connection while creating the topics of --topic")
        data += piece
    return bytes(data)
