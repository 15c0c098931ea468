"""Nodes of a quorum that exchange KRaft's requests: elections, replication, observers, cut links."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.controller.node import ControllerNode
from pykbroker.controller.node_client import NodeAddress, NodeClient, NodeUnreachable
from pykbroker.controller.raft.roles import RaftSettings
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.messages.fetch_snapshot import FetchSnapshotRequest, PartitionSnapshot, TopicSnapshot
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.vote import VoteRequest
from tests.controller.nodes import DATA, register_broker
from tests.controller.wire_world import CLUSTER, SERVED, SNAPSHOT_PIECE_BYTES, World, wire_world


async def create(node: ControllerNode, name: str) -> None:
    (result,) = await node.submit(CreateTopics([NewTopic(name)]), 1000)
    assert not result.error.is_failure, result


async def until_alike(world: World) -> None:
    with trio.fail_after(30):
        while len({node.image.offset for node in world.nodes.values()}) > 1:
            await trio.sleep(0.05)
    images = [node.image for node in world.nodes.values()]
    assert all(image == images[0] for image in images)


async def test_three_voters_elect_and_replicate() -> None:
    async with wire_world(1, 2, 3) as world:
        leader = await world.wait_for_leader()
        await register_broker(leader)
        for number in range(20):
            await create(leader, f"t{number}")
        await until_alike(world)
        voters = leader.quorum_state().voters
        assert [voter.key.node_id for voter in voters] == [1, 2, 3]


async def test_an_observer_finds_the_leader_and_follows() -> None:
    """A broker that is no voter: it asks one voter after another until one names the leader."""
    async with wire_world(1, 2, 3) as world:
        leader = await world.wait_for_leader()
        await register_broker(leader)
        await create(leader, "before")
        observer = await world.start(7)
        await until_alike(world)
        await create(leader, "after")
        await until_alike(world)
        assert set(observer.image.topics_by_name) == {"before", "after"}
        assert [replica.key.node_id for replica in leader.quorum_state().observers] == [7]


async def test_a_node_behind_the_leaders_log_gets_its_checkpoint_first() -> None:
    """The log before a snapshot is deleted: a new observer, and a voter that was down, download it (KIP-630)."""
    async with wire_world(1, 2, 3, snapshot_bytes=2000) as world:
        leader = await world.wait_for_leader()
        await register_broker(leader)
        away = next(node_id for node_id in world.nodes if node_id != leader.settings.node_id)
        await create(leader, "early")
        await until_alike(world)
        world.kill(away)
        for number in range(60):
            await create(leader, f"t{number}")
            await trio.sleep(0.1)
        assert leader._core.log.start.offset > 20
        voter, observer = await world.start(away), await world.start(7)
        with trio.fail_after(30):
            while {voter.image.offset, observer.image.offset} != {leader.image.offset}:
                await trio.sleep(0.05)
        assert voter.image == observer.image == leader.image
        assert voter._core.log.start.offset > 20
        await create(leader, "late")
        await until_alike(world)
        for node_id in (away, 7):
            world.kill(node_id)
            await world.start(node_id)
        await until_alike(world)


async def test_a_checkpoint_that_takes_long_costs_nobody_the_leader() -> None:
    """Each piece takes two seconds, and no other voter is up: one download is enough, in one epoch."""
    async with wire_world(1, 2, 3, snapshot_bytes=2000) as world:
        leader = await world.wait_for_leader()
        await register_broker(leader)
        away, dead = (node_id for node_id in world.nodes if node_id != leader.settings.node_id)
        world.kill(away)
        for number in range(60):
            await create(leader, f"t{number}")
            await trio.sleep(0.1)
        epoch = leader.known_leader()[1]
        size = world.disks[leader.settings.node_id].file_size(first_checkpoint(world, leader))
        world.snapshot_piece_s = 1.8
        begin = trio.current_time()
        voter = await world.start(away)
        world.kill(dead)
        with trio.fail_after(60):
            while voter.image.offset != leader.image.offset:
                await trio.sleep(0.05)
        assert trio.current_time() - begin > 3 * voter.settings.raft.fetch_timeout_ms / 1000
        assert voter.known_leader() == leader.known_leader() == (leader.settings.node_id, epoch)
        assert world.snapshot_pieces == [SNAPSHOT_PIECE_BYTES] * -(-size // SNAPSHOT_PIECE_BYTES)


def first_checkpoint(world: World, node: ControllerNode) -> str:
    folder = f"{DATA}/__cluster_metadata-0"
    names = [entry.name for entry in world.disks[node.settings.node_id].list(folder)]
    return f"{folder}/{min(name for name in names if name.endswith('.checkpoint'))}"


async def test_a_piece_of_a_checkpoint_that_cannot_be_had() -> None:
    async with wire_world(1) as world:
        leader = await world.wait_for_leader()
        epoch = leader.known_leader()[1]

        async def code(cluster_id: str = CLUSTER, topic: str = "__cluster_metadata", **fields: Any) -> int:
            partition = PartitionSnapshot(**{"current_leader_epoch": epoch, **fields})
            request = FetchSnapshotRequest(
                cluster_id=cluster_id, topics=[TopicSnapshot(name=topic, partitions=[partition])]
            )
            response = await world.peers[1].answer_snapshot(request)
            return response.error_code or response.topics[0].partitions[0].error_code

        assert await code(cluster_id="other") == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert await code(topic="t") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(current_leader_epoch=epoch - 1) == ErrorCode.FENCED_LEADER_EPOCH
        assert await code(current_leader_epoch=epoch + 1) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert await code() == ErrorCode.SNAPSHOT_NOT_FOUND
        response = await world.peers[1].answer_snapshot(FetchSnapshotRequest(cluster_id=CLUSTER))
        assert response.error_code == ErrorCode.INVALID_REQUEST


async def test_the_leaders_death_loses_nothing_that_was_answered() -> None:
    async with wire_world(1, 2, 3) as world:
        names = set()
        for number in range(5):
            leader = await world.wait_for_leader()
            if number == 0:
                await register_broker(leader)
            await create(leader, f"t{number}")
            names.add(f"t{number}")
            node_id = leader.settings.node_id
            world.kill(node_id)
            successor = await world.wait_for_leader()
            assert set(successor.image.topics_by_name) == names
            await world.start(node_id)
        await trio.sleep(2)
        await until_alike(world)


async def test_a_leader_whose_process_ended_is_replaced_at_once() -> None:
    """Its connections break and its machine refuses new ones, so no voter waits for the fetch timeout."""
    async with wire_world(1, 2, 3) as world:
        for _ in range(10):
            leader = await world.wait_for_leader()
            node_id = leader.settings.node_id
            begin = trio.current_time()
            world.kill(node_id)
            await world.hang_up(node_id)
            await world.wait_for_leader()
            assert trio.current_time() - begin < 0.5, "the default timeouts are 1 s and 2 s"
            await world.start(node_id)
            await trio.sleep(1)


async def test_a_leader_that_stops_in_order_hands_over() -> None:
    async with wire_world(1, 2, 3, raft=RaftSettings(lost_leader_ms=0)) as world:
        old = await world.wait_for_leader()
        await trio.sleep(1)
        begin = trio.current_time()
        await old.hand_over(5000)
        assert trio.current_time() - begin < 0.5
        assert not old.is_leader
        assert old.known_leader()[0] not in (-1, old.settings.node_id)


async def test_nodes_that_start_together_elect_at_once() -> None:
    async with wire_world(1, 2, 3) as world:
        await world.wait_for_leader()
        assert trio.current_time() < 0.5, "the election timeout is 1 s"


async def test_voters_without_pre_votes_elect_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka 3 has Vote up to version 1, in which a pre-vote would look like a vote in an epoch that has a leader."""
    monkeypatch.setitem(SERVED, ApiKey.VOTE, (0, 1, 0))
    async with wire_world(1, 2, 3) as world:
        for number in range(3):
            leader = await world.wait_for_leader()
            assert leader.known_leader()[1] > number
            world.kill(leader.settings.node_id)
            await world.wait_for_leader()
            await world.start(leader.settings.node_id)


async def test_what_a_node_should_not_answer_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async with wire_world(1, 2) as world:
        await world.wait_for_leader()
        world.peers[2]._links.cluster_id = "other"
        await trio.sleep(20)
    said = [record.getMessage() for record in caplog.records if "another cluster" in record.getMessage()]
    assert len(said) == 2, "each of the other"


async def test_a_leader_that_is_cut_off_is_replaced_and_comes_back_as_a_follower() -> None:
    async with wire_world(1, 2, 3) as world:
        old = await world.wait_for_leader()
        await register_broker(old)
        await create(old, "before")
        await world.cut(old.settings.node_id)
        with pytest.raises(CommandRefused) as caught:
            await create(old, "lost")
        assert caught.value.error.code == ErrorCode.REQUEST_TIMED_OUT
        new = await world.wait_for_leader()
        await create(new, "after")
        world.cut_off.clear()
        await trio.sleep(5)
        await until_alike(world)
        assert not old.is_leader
        assert set(old.image.topics_by_name) == {"before", "after"}


async def test_a_request_of_another_cluster_changes_nothing() -> None:
    async with wire_world(1, 2, 3) as world:
        leader = await world.wait_for_leader()
        before = leader.known_leader()
        response = await world.peers[leader.settings.node_id].answer(VoteRequest(cluster_id="other"))
        assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        response = await world.peers[leader.settings.node_id].answer(VoteRequest(cluster_id=CLUSTER))
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert leader.known_leader() == before


async def test_a_client_says_who_does_not_answer_and_what_is_not_served() -> None:
    async with wire_world(1) as world:

        async def nobody(host: str, port: int) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            raise ConnectionRefusedError("connection refused")

        async def silent(host: str, port: int) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            return trio.testing.memory_stream_pair()[0]

        async def served(host: str, port: int) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            ours, theirs = trio.testing.memory_stream_pair()
            world.nursery.start_soon(world.serve, 1, theirs)
            return ours

        address = NodeAddress("there", 9093)
        request = HeartbeatRequest(group_id="g")
        for open_stream, why in ((nobody, "connection refused"), (silent, "no answer within 500 ms")):
            client = NodeClient(address, open_stream, client_id="test", software_version="1")
            with pytest.raises(NodeUnreachable, match=f"there:9093: {why}"):
                await client.request(request, 500)
        client = NodeClient(address, served, client_id="test", software_version="1")
        with pytest.raises(ProtocolError, match="none of the versions of HeartbeatRequest"):
            await client.request(request, 500)
