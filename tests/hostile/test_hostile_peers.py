"""Whoever reaches a controller's port can say anything there: the node answers or closes, lives, and leads on."""

from __future__ import annotations

import importlib
import random
import socket
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

import pykbroker
from interop_tests.ports import free_port
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import encode
from pykbroker.protocol.errors import EncodeError
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.describe_cluster import DescribeClusterRequest
from pykbroker.requests.api_table import CONTROLLER_APIS, camel_case
from tests.fuzz.mutation import mutated
from tests.fuzz.target import BAD_SIGNS
from tests.hostile.conftest import LONG_S
from tests.support.message_strategies import random_message
from tests.support.only_voter import only_voter
from tests.support.wire_client import WireClient

FRAMES = 4000
# What a broker obeys to its own end, or what makes it register anew: until then it is fenced.
LEFT_OUT = {ApiKey.UNREGISTER_BROKER, ApiKey.BROKER_REGISTRATION}
VERSIONS = [
    (api, version)
    for api in CONTROLLER_APIS.values()
    if api.key not in LEFT_OUT
    for version in range(api.lowest, api.highest + 1)
]


@pytest.fixture
def node() -> Iterator[tuple[pykbroker.LocalBroker, int]]:
    """A broker that is the only voter, and its controller's port."""
    port = free_port()
    with pykbroker.LocalBroker(config=only_voter(port)) as broker:
        yield broker, port


class PeerFrames:
    """Requests made from the declarations, about this cluster's log, nodes and epochs, some of them mutated."""

    def __init__(self, cluster_id: str, generator: random.Random) -> None:
        self._cluster_id = cluster_id
        self._generator = generator

    def frame(self) -> bytes:
        """The next frame with its size before it."""
        generator = self._generator
        while True:
            api, version = generator.choice(VERSIONS)
            module = importlib.import_module(f"pykbroker.protocol.messages.{api.name}")
            # A copy: a struct that is its default is shared by all messages of its class.
            request = deepcopy(random_message(getattr(module, f"{camel_case(api.name)}Request"), version, generator))
            self._enrich(request, version)
            try:
                body = encode(request, version)
            except EncodeError:
                continue
            if generator.random() < 0.15 and len(body) > 2:
                body = mutated(body, generator, 0)
            tags = b"\0" if version >= api.flexible_from else b""
            frame = api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\4peer" + tags + body
            return len(frame).to_bytes(4, "big") + frame

    def _enrich(self, message: Any, version: int) -> None:
        for field in message.FIELDS:
            value = getattr(message, field.name)
            if version not in field.versions or value is None:
                continue
            if isinstance(value, Message):
                self._enrich(value, version)
            elif field.kind == "array":
                for element in value:
                    if isinstance(element, Message):
                        self._enrich(element, version)
            elif self._generator.random() < 0.8:
                setattr(message, field.name, self._sensible(field.name, field.kind, value))

    def _sensible(self, name: str, kind: str, value: Any) -> Any:
        choose = self._generator.choice
        if kind == "string":
            if name == "cluster_id":
                return self._cluster_id
            return choose(("__cluster_metadata", "t")) if name in ("name", "topic", "topic_name") else value
        if not kind.startswith("int"):
            return value
        if name.endswith("_id") and kind == "int32":
            return choose((1, 1, 2, -1))
        if "epoch" in name:
            return choose((0, 1, 1, 2, 3, -1)) if self._generator.random() < 0.99 or kind != "int32" else 2**31 - 1
        if "offset" in name and kind == "int64":
            return choose((0, 1, 5, 20, 100, -1))
        if name in ("timeout_ms", "max_wait_ms"):
            return choose((0, 10))
        return {"partition": 0, "partition_index": 0, "num_partitions": 1, "replication_factor": 1}.get(name, value)


def test_what_peers_should_not_say(node: tuple[pykbroker.LocalBroker, int]) -> None:
    """Thousands of requests to every API of the port: none is our error, and commands are carried out behind them."""
    broker, port = node
    wire = WireClient(("127.0.0.1", port))
    cluster_id = wire.call(DescribeClusterRequest(endpoint_type=2), 1).cluster_id
    wire.close()
    frames = PeerFrames(cluster_id, random.Random(20261122))
    answered = 0
    connection: socket.socket | None = None
    for _ in range(FRAMES):
        if connection is None:
            connection = socket.create_connection(("127.0.0.1", port), timeout=LONG_S)
        try:
            connection.sendall(frames.frame())
            size = int.from_bytes(exactly(connection, 4), "big")
            exactly(connection, size)
            answered += 1
        except ConnectionError:
            connection.close()
            connection = None
    if connection is not None:
        connection.close()
    assert answered > FRAMES / 2
    assert broker.is_running
    assert not [sign for sign in BAD_SIGNS if sign in broker.log], broker.log[-5000:]
    host, _, broker_port = broker.bootstrap_servers.rpartition(":")
    wire = WireClient((host, int(broker_port)))
    new = CreateTopicsRequest(topics=[CreatableTopic(name="t-after", num_partitions=1, replication_factor=1)])
    assert wire.call(new, 7).topics[0].error_code == 0
    wire.close()


def exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError
        received += part
    return received
