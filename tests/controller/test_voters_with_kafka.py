"""A quorum of Apache Kafka 4.3.1 and ours whose voters stand in the log (KIP-853): each adds the other, and leaves.

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
from typing import Any

import pytest
import trio

from interop_tests.ports import free_port
from pykbroker.controller.formatting import write_first_voters
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.controller.node import ControllerNode, ControllerSettings
from pykbroker.controller.node_client import NodeAddress, NodeClient
from pykbroker.controller.peer_links import PeerLinks
from pykbroker.controller.peers import Peers
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages import describe_quorum
from pykbroker.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from pykbroker.protocol.messages.describe_quorum import DescribeQuorumRequest
from pykbroker.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from pykbroker.protocol.uuids import uuid_from_text
from tests.controller.nodes import register_broker
from tests.controller.test_with_kafka import until
from tests.controller.wire_world import CLUSTER, World
from tests.controller.world import FewConfigs
from tests.support.apache_kafka import java
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

KAFKA, OURS = 1, 2


class KafkaController:
    """A Kafka controller with id 1, formatted for voters that can change."""

    def __init__(self, folder: Path, address: NodeAddress, servers: list[NodeAddress], *format_words: str) -> None:
        self.folder = folder
        self.address = address
        properties = {
            "process.roles": "controller",
            "node.id": KAFKA,
            "controller.quorum.bootstrap.servers": ",".join(map(str, servers)),
            "listeners": f"CONTROLLER://{address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": folder / "kafka",
        }
        self._settings = folder / "server.properties"
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        subprocess.run(
            java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(self._settings), *format_words),
            check=True,
            capture_output=True,
        )
        lines = (folder / "kafka" / "meta.properties").read_text().splitlines()
        text = next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))
        self.key = ReplicaKey(KAFKA, uuid_from_text(text))

    @property
    def voter(self) -> Voter:
        return Voter(self.key, (VoterEndpoint("CONTROLLER", *self.address),), (0, 1))

    @contextmanager
    def running(self) -> Iterator[None]:
        with (self.folder / "kafka.log").open("ab") as log:
            process = subprocess.Popen(java("kafka.Kafka", str(self._settings)), stdout=log, stderr=log)
            try:
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)

    def has_failed(self) -> bool:
        text = (self.folder / "kafka.log").read_text()
        return "Fatal" in text or "IllegalStateException" in text


class RealWorld(World):
    """Controllers of ours on TCP ports and real disks, who ask `servers` for the leader."""

    def __init__(self, nursery: trio.Nursery, folder: Path, servers: list[NodeAddress]) -> None:
        super().__init__(nursery, ())
        self.folder = folder
        self.servers = servers

    def voter(self, node_id: int, address: NodeAddress) -> Voter:
        key = ReplicaKey(node_id, bytes([node_id]) * 16)
        return Voter(key, (VoterEndpoint("CONTROLLER", *address),), (0, 1))

    async def join(self, itself: Voter, *, is_first: bool = False) -> ControllerNode:
        node_id = itself.key.node_id
        links = PeerLinks(
            node_id,
            CLUSTER,
            {},
            trio.open_tcp_stream,
            software_version="1",
            bootstrap=self.servers,
            endpoints=itself.endpoints,
        )
        data = self.folder / f"node-{node_id}"
        data.mkdir()
        if is_first:
            write_first_voters(OsFileSystem(), str(data), VoterSet([itself]), int(time.time() * 1000))
        node = ControllerNode(
            ControllerSettings(
                node_id,
                str(data),
                VoterSet(()),
                directory_id=itself.key.directory_id,
                endpoints=itself.endpoints,
                bootstrap_count=len(self.servers),
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
        serve = partial(self.serve, node_id)
        await self.nursery.start(partial(trio.serve_tcp, serve, itself.endpoints[0].port, host="127.0.0.1"))
        self.scopes[node_id] = await self.nursery.start(self.run, node, peers)
        return node


async def ask(address: NodeAddress, request: Any) -> Any:
    client = NodeClient(address, trio.open_tcp_stream, client_id="test", software_version="1")
    try:
        return await client.request(request, 10_000)
    finally:
        await client.close()


def add_request(voter: Voter) -> AddRaftVoterRequest:
    return AddRaftVoterRequest(
        cluster_id=CLUSTER,
        timeout_ms=5000,
        voter_id=voter.key.node_id,
        voter_directory_id=voter.key.directory_id,
        listeners=[Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints],
    )


def remove_request(key: ReplicaKey) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=key.node_id, voter_directory_id=key.directory_id)


def describe_request() -> DescribeQuorumRequest:
    partitions = [describe_quorum.PartitionData(partition_index=0)]
    return DescribeQuorumRequest(
        topics=[describe_quorum.TopicData(topic_name="__cluster_metadata", partitions=partitions)]
    )


def address() -> NodeAddress:
    return NodeAddress("127.0.0.1", free_port())


def test_kafka_makes_one_of_ours_a_voter_and_leaves(tmp_path: Path) -> None:
    """Kafka, formatted as the only voter, adds our node, removes itself and resigns; our node leads and commits."""
    kafka_libs()
    trio.run(kafka_leaves, tmp_path)


async def kafka_leaves(tmp_path: Path) -> None:
    theirs = address()
    kafka = KafkaController(tmp_path, theirs, [theirs], "--standalone")
    with kafka.running():
        async with trio.open_nursery() as nursery:
            world = RealWorld(nursery, tmp_path, [theirs])
            itself = world.voter(OURS, address())
            node = await world.join(itself)
            await until(lambda: node.kraft_version == 1 and node.voters.ids == [KAFKA], "Kafka's voters", 60)
            await until(lambda: "metadata.version" in node.image.features, "its first records")
            added = await ask(theirs, add_request(itself))
            assert added.error_code == ErrorCode.NONE, added.error_message
            await until(lambda: node.voters.ids == [KAFKA, OURS], "ours votes")
            removed = await ask(theirs, remove_request(kafka.key))
            assert removed.error_code == ErrorCode.NONE, removed.error_message
            await until(lambda: node.is_leader and node.voters.ids == [OURS], "ours leads")
            await register_broker(node, features=dict.fromkeys(node.image.features, (0, 100)))
            (result,) = await node.submit(CreateTopics([NewTopic("ours")]), 5000)
            assert not result.error.is_failure, result
            await until(lambda: [r.key for r in node.quorum_state().observers] == [kafka.key], "Kafka observes")
            nursery.cancel_scope.cancel()
    assert not kafka.has_failed()


def test_one_of_ours_makes_kafka_a_voter_and_leaves(tmp_path: Path) -> None:
    """Ours, the only formatted voter, adds Kafka and removes itself; Kafka leads. kafka-dump-log reads our log."""
    kafka_libs()
    trio.run(ours_leaves, tmp_path)


async def ours_leaves(tmp_path: Path) -> None:
    theirs, own = address(), address()
    kafka = KafkaController(tmp_path, theirs, [own, theirs], "--no-initial-controllers")
    async with trio.open_nursery() as nursery:
        world = RealWorld(nursery, tmp_path, [own, theirs])
        itself = world.voter(OURS, own)
        node = await world.join(itself, is_first=True)
        await until(lambda: "metadata.version" in node.image.features, "our first records")
        with kafka.running():
            await until(lambda: [r.key for r in node.quorum_state().observers] == [kafka.key], "Kafka observes", 60)
            await trio.sleep(2)
            answer = await node.voter_requests.add(kafka.voter, 10_000, acks_commit=True)
            assert answer.error is ErrorCode.NONE, answer
            assert node.voters.ids == [KAFKA, OURS]
            answer = await node.voter_requests.remove(itself.key, 10_000)
            assert answer.error is ErrorCode.NONE, answer
            await until(lambda: node.known_leader()[0] == KAFKA and node.voters.ids == [KAFKA], "Kafka leads", 60)
            described = await ask(theirs, describe_request())
        nursery.cancel_scope.cancel()
    partition = described.topics[0].partitions[0]
    keys = [(each.replica_id, each.replica_directory_id) for each in (*partition.current_voters, *partition.observers)]
    assert keys == [kafka.key, itself.key]
    assert not kafka.has_failed()
    folder = tmp_path / f"node-{OURS}" / "__cluster_metadata-0"
    files = [str(path) for path in sorted(folder.iterdir()) if path.suffix in (".log", ".checkpoint")]
    command = java("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", ",".join(files))
    dumped = await trio.run_process(command, capture_stdout=True, capture_stderr=True)
    assert b"Exception" not in dumped.stderr
    assert dumped.stdout.count(b"KRaftVoters") >= 4
    assert b"KRaftVersion" in dumped.stdout
