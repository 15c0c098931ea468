"""Nodes of ours and an Apache Kafka node in one quorum: votes, epochs, records and successors understood both ways.

These talk to another process, so they run on the real clock.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from interop_tests.ports import free_port
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.controller.node import ControllerNode, ControllerSettings
from pykbroker.controller.node_client import NodeAddress
from pykbroker.controller.peer_links import PeerLinks
from pykbroker.controller.peers import Peers
from pykbroker.controller.raft.quorum import ReplicaKey, VoterSet
from pykbroker.controller.raft.roles import RaftSettings
from pykbroker.logstore.filesystem import OsFileSystem
from tests.controller.nodes import register_broker
from tests.controller.wire_world import CLUSTER, World
from tests.controller.world import FewConfigs
from tests.support.apache_kafka import java
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

KAFKA = 1


class KafkaController:
    """A Kafka node with id 1 whose quorum has the voters given; started and stopped as often as wanted."""

    def __init__(self, folder: Path, voters: dict[int, NodeAddress], roles: str) -> None:
        self.folder = folder
        port = free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        own = voters[KAFKA]
        listeners = [f"CONTROLLER://{own}"]
        if "broker" in roles:
            listeners.append(f"PLAINTEXT://{self.bootstrap}")
        properties = {
            "process.roles": roles,
            "node.id": KAFKA,
            "controller.quorum.voters": ",".join(f"{node_id}@{address}" for node_id, address in voters.items()),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": folder / "kafka",
        }
        self._settings = folder / "server.properties"
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        subprocess.run(
            java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(self._settings)),
            check=True,
            capture_output=True,
        )

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / "kafka.log").open("ab") as log:
            process = subprocess.Popen(java("kafka.Kafka", str(self._settings)), stdout=log, stderr=log)
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)

    def log_text(self) -> str:
        return (self.folder / "kafka.log").read_text()


class RealWorld(World):
    """Nodes of ours on TCP ports and real disks."""

    def __init__(self, nursery: trio.Nursery, folder: Path, addresses: dict[int, NodeAddress]) -> None:
        super().__init__(nursery, tuple(addresses))
        self.folder = folder
        self.addresses = addresses

    async def start(  # type: ignore[override]
        self,
        node_id: int,
        raft: RaftSettings = RaftSettings(),  # noqa: B008  immutable
    ) -> ControllerNode:
        links = PeerLinks(node_id, CLUSTER, self.addresses, trio.open_tcp_stream, software_version="1")
        data = self.folder / f"node-{node_id}"
        data.mkdir(exist_ok=True)
        node = ControllerNode(
            ControllerSettings(
                node_id,
                str(data),
                VoterSet(map(ReplicaKey, self.voters)),
                raft=raft,
            ),
            filesystem=OsFileSystem(),
            config_rules=FewConfigs(),
            random=random.Random(node_id),
            wall_clock_ms=lambda: int(time.time() * 1000),
            transport=links,
        )
        peers = Peers(node, links)
        node.open()
        self.nodes[node_id], self.peers[node_id] = node, peers
        if node_id in self.addresses:
            serve = partial(self.serve, node_id)
            await self.nursery.start(partial(trio.serve_tcp, serve, self.addresses[node_id].port, host="127.0.0.1"))
        self.scopes[node_id] = await self.nursery.start(self.run, node, peers)
        return node


async def until(condition: object, what: str, seconds: float = 30) -> None:
    assert callable(condition)
    with trio.move_on_after(seconds):
        while not condition():
            await trio.sleep(0.05)
        return
    pytest.fail(f"not within {seconds} s: {what}")


def addresses_of(*node_ids: int) -> dict[int, NodeAddress]:
    return {node_id: NodeAddress("127.0.0.1", free_port()) for node_id in node_ids}


def test_an_observer_of_ours_follows_a_kafka_controller(tmp_path: Path) -> None:
    """It finds the leader, has what Kafka commits, and is told of by kafka-metadata-quorum."""
    kafka_libs()
    trio.run(observe, tmp_path)


async def observe(tmp_path: Path) -> None:
    addresses = addresses_of(KAFKA)
    kafka = KafkaController(tmp_path, addresses, "broker,controller")
    with kafka.running():
        async with trio.open_nursery() as nursery:
            world = RealWorld(nursery, tmp_path, addresses)
            node = await world.start(9)
            await until(
                lambda: 1 in node.image.brokers and not node.image.brokers[1].is_fenced, "Kafka's broker serves"
            )
            command = java("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap, "--create")
            await trio.run_process([*command, "--topic", "theirs", "--partitions", "3"], capture_stdout=True)
            await until(lambda: "theirs" in node.image.topics_by_name, "the topic")
            command = java("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", kafka.bootstrap)
            shown = await trio.run_process([*command, "describe", "--replication"], capture_stdout=True)
            nursery.cancel_scope.cancel()
    assert [line.split()[0] for line in shown.stdout.decode().splitlines() if "Observer" in line] == ["9"]
    assert len(node.image.topics_by_name["theirs"].partitions) == 3


def test_kafka_and_two_of_ours_are_a_quorum(tmp_path: Path) -> None:
    """Kafka leads by our votes; it stops and names successors; one of ours leads by the other's vote and commits; Kafka
    comes back and follows it."""
    kafka_libs()
    trio.run(take_turns, tmp_path)


async def take_turns(tmp_path: Path) -> None:
    addresses = addresses_of(KAFKA, 2, 3)
    kafka = KafkaController(tmp_path, addresses, "controller")
    async with trio.open_nursery() as nursery:
        world = RealWorld(nursery, tmp_path, addresses)
        # So patient that ours do not elect one of themselves before Kafka is there.
        for node_id in (2, 3):
            await world.start(node_id, RaftSettings(election_timeout_ms=60_000, lost_leader_ms=0))
        nodes = list(world.nodes.values())
        with kafka.running():
            await until(lambda: all(node.known_leader()[0] == KAFKA for node in nodes), "Kafka leads", 60)
            await until(lambda: all("metadata.version" in node.image.features for node in nodes), "its first records")
            first_epoch = nodes[0].known_leader()[1]
            # The successor may ask for a vote before the other knows that the leader has gone: then it asks again.
            for node in nodes:
                node._core.settings = RaftSettings()
        await until(lambda: any(node.is_leader for node in nodes), "a successor leads")
        leader = next(node for node in nodes if node.is_leader)
        assert leader.known_leader()[1] > first_epoch
        # Kafka has finalized features that brokers of ours do not have yet; here it is about the log.
        await register_broker(leader, features=dict.fromkeys(leader.image.features, (0, 100)))
        (result,) = await leader.submit(CreateTopics([NewTopic("ours")]), 5000)
        assert not result.error.is_failure, result
        with kafka.running():

            def has_caught_up() -> bool:
                state = leader.quorum_state()
                return {voter.log_end_offset for voter in state.voters} == {state.high_watermark}

            await until(has_caught_up, "Kafka follows", 60)
            assert leader.is_leader
        nursery.cancel_scope.cancel()
    log = kafka.log_text()
    assert "Fatal" not in log
    assert "IllegalStateException" not in log
