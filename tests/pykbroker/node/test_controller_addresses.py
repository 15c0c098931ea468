"""Addresses of controllers, from the settings, the voters and the registrations; states of share partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.image import ClusterImage, ControllerImage, Endpoint
from pykbroker.controller.node_client import NodeAddress
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pykbroker.node.quorum_node import controller_address
from pykbroker.node.share_states import GroupShareStates
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.share_state.state import Refusal


def test_an_address_of_a_controller() -> None:
    """That of the settings, else of the VotersRecord, else of its registration, each for the controllers' listener."""
    broker = {
        "process.roles": "broker",
        "node.id": "9",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://localhost:9092",
    }
    image = ClusterImage()
    image.controllers = {
        number: ControllerImage(number, bytes(16), (Endpoint(name, "registered", 9093, 0),), {})
        for number, name in ((3, "CONTROLLER"), (4, "OTHER"))
    }
    voters = VoterSet(
        [
            Voter(ReplicaKey(2, bytes(16)), (VoterEndpoint("CONTROLLER", "recorded", 9093),), (0, 1)),
            Voter(ReplicaKey(3, bytes(16)), (), (0, 1)),
        ]
    )
    node: Any = SimpleNamespace(voters=voters, image=image)
    static = BrokerConfig.from_properties({**broker, "controller.quorum.voters": "1@configured:9093"})
    dynamic = BrokerConfig.from_properties({**broker, "controller.quorum.bootstrap.servers": "somewhere:9093"})
    assert controller_address(static, node, 1) == NodeAddress("configured", 9093)
    assert controller_address(dynamic, node, 2) == NodeAddress("recorded", 9093)
    assert controller_address(dynamic, node, 3) == NodeAddress("registered", 9093)
    assert controller_address(dynamic, node, 4) is None
    assert controller_address(dynamic, node, 5) is None


class Persister:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.summary: Any = SimpleNamespace(start_offset=5, leader_epoch=2, delivery_complete_count=1)

    async def initialize(self, key: Any, state_epoch: int, start_offset: int) -> Refusal | None:
        self.asked.append((tuple(key), state_epoch, start_offset))
        return Refusal(ErrorCode.FENCED_STATE_EPOCH, "fenced") if start_offset == 51 else None

    async def delete(self, key: Any) -> ErrorCode:
        self.asked.append(tuple(key))
        return ErrorCode.NOT_COORDINATOR

    async def read_summary(self, key: Any, leader_epoch: int) -> Any:
        self.asked.append((tuple(key), leader_epoch))
        return self.summary


async def test_states_of_share_partitions_come_from_one_persister() -> None:
    """It is made with the first request: most brokers have no share groups."""
    made: list[Persister] = []

    def make() -> Any:
        made.append(Persister())
        return made[-1]

    states = GroupShareStates(make)
    assert made == []
    key = ("group", b"t" * 16, 3)
    assert await states.initialize(*key, 7, 50) is None
    refused = await states.initialize(*key, 7, 51)
    assert refused is not None
    assert (refused.error_code, refused.message) == (ErrorCode.FENCED_STATE_EPOCH, "fenced")
    assert await states.delete(*key) is ErrorCode.NOT_COORDINATOR
    assert await states.read_summary(*key) == (5, 2, 1)
    (persister,) = made
    persister.summary = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert await states.read_summary(*key) is None
    assert persister.asked == [(key, 7, 50), (key, 7, 51), key, (key, -1), (key, -1)]
