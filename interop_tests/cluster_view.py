"""Requests to one particular node about the cluster; a stock client would ask another node when this one is silent."""

from __future__ import annotations

import struct
from typing import NamedTuple

from interop_tests.wire import METADATA, Connection, ConnectionClosed, compact_string, request_header, string

FIND_COORDINATOR = 10
DESCRIBE_QUORUM = 55
DESCRIBE_CLUSTER = 60
ASK_TIMEOUT_S = 2.0


class NoAnswer(Exception):
    """The node is away, or cannot say it now."""


class PartitionView(NamedTuple):
    """A partition as Metadata shows it; leader -1 for none."""

    leader: int
    epoch: int
    replicas: list[int]
    isr: list[int]


class ClusterView(NamedTuple):
    """Brokers that live, as host:port by id, and partitions by topic and number."""

    brokers: dict[int, str]
    partitions: dict[tuple[str, int], PartitionView]


class _Fields:
    """Reads fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(">" + code, self._data, self._at)
        self._at += struct.calcsize(code)
        return int(value)

    def string(self) -> str:
        size = self.number("h")
        if size < 0:
            return ""
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def compact_string(self) -> str:
        """A nullable one of at most 126 bytes."""
        size = max(self.number("B") - 1, 0)
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def numbers(self) -> list[int]:
        return [self.number("i") for _ in range(self.number("i"))]


def view_of(bootstrap: str) -> ClusterView:
    """Metadata version 7 of all topics. Raises NoAnswer."""
    request = request_header(METADATA, 7) + struct.pack(">ib", -1, 0)
    fields = _Fields(_ask(bootstrap, request))
    fields.number("i"), fields.number("i")  # correlation id, throttle time
    brokers = {}
    for _ in range(fields.number("i")):
        node_id, host, port, _rack = fields.number("i"), fields.string(), fields.number("i"), fields.string()
        brokers[node_id] = f"{host}:{port}"
    fields.string(), fields.number("i")  # cluster id, controller id: any broker in KRaft
    partitions = {}
    for _ in range(fields.number("i")):
        _error, topic, _internal = fields.number("h"), fields.string(), fields.number("b")
        for _ in range(fields.number("i")):
            _error, number, leader, epoch = (fields.number(code) for code in "hiii")
            replicas, isr, _offline = fields.numbers(), fields.numbers(), fields.numbers()
            partitions[topic, number] = PartitionView(leader, epoch, replicas, isr)
    return ClusterView(brokers, partitions)


def quorum_leader(bootstrap: str) -> int:
    """Node id of the quorum's leader, by DescribeQuorum version 0 of the metadata log. Raises NoAnswer."""
    topic = compact_string("__cluster_metadata") + b"\x02" + struct.pack(">i", 0) + b"\0\0"
    reply = _ask(bootstrap, request_header(DESCRIBE_QUORUM, 0, flexible=True) + b"\x02" + topic + b"\0")
    name = compact_string("__cluster_metadata")
    fields = _Fields(reply[5:])  # correlation id, no tagged fields
    if fields.number("h") != 0 or name not in reply:
        raise NoAnswer(f"{bootstrap}: DescribeQuorum was refused")
    fields = _Fields(reply[reply.index(name) + len(name) + 1 :])
    _index, error, leader = fields.number("i"), fields.number("h"), fields.number("i")
    if error != 0 or leader < 0:
        raise NoAnswer(f"{bootstrap}: no leader of the quorum is known (error {error})")
    return leader


def coordinator_of(bootstrap: str, group_id: str) -> tuple[int, str]:
    """Id and host:port of a group's coordinator, by FindCoordinator version 2. Raises NoAnswer."""
    fields = _Fields(_ask(bootstrap, request_header(FIND_COORDINATOR, 2) + string(group_id) + b"\0"))
    fields.number("i"), fields.number("i")  # correlation id, throttle time
    error, _, node_id, host, port = (
        fields.number("h"),
        fields.string(),
        fields.number("i"),
        fields.string(),
        fields.number("i"),
    )
    if error != 0:
        raise NoAnswer(f"{bootstrap}: no coordinator of {group_id} is known (error {error})")
    return node_id, f"{host}:{port}"


def described_brokers(bootstrap: str) -> dict[int, str]:
    """Brokers as host:port by id, by DescribeCluster version 0. Raises NoAnswer."""
    fields = _Fields(_ask(bootstrap, request_header(DESCRIBE_CLUSTER, 0, flexible=True) + b"\0\0"))
    fields.number("i"), fields.number("b"), fields.number("i")  # correlation id, tags, throttle time
    error = fields.number("h")
    if error != 0:
        raise NoAnswer(f"{bootstrap}: DescribeCluster was refused (error {error})")
    fields.compact_string(), fields.compact_string(), fields.number("i")  # message, cluster id, controller
    brokers = {}
    for _ in range(fields.number("B") - 1):
        node_id, host, port = fields.number("i"), fields.compact_string(), fields.number("i")
        fields.compact_string(), fields.number("b")  # rack, tags
        brokers[node_id] = f"{host}:{port}"
    return brokers


def _ask(bootstrap: str, request: bytes) -> bytes:
    try:
        with Connection(bootstrap, ASK_TIMEOUT_S) as connection:
            return connection.exchange(request)
    except (OSError, ConnectionClosed) as error:
        raise NoAnswer(f"{bootstrap}: {error}") from error
