"""Voters in the log (KIP-853) on nodes that exchange KRaft's requests: formatted, added, moved, removed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.controller.formatting import write_first_voters
from pykbroker.controller.metadata.metadata_versions import METADATA_VERSION
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.controller.node import ControllerNode, ControllerSettings
from pykbroker.controller.node_client import NodeAddress
from pykbroker.controller.peer_links import PeerLinks
from pykbroker.controller.peers import Peers
from pykbroker.controller.quorum_state_file import FILE_NAME
from pykbroker.controller.raft.local_messages import ChangeAnswer, Reason
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pykbroker.protocol.error_codes import ErrorCode
from tests.controller.nodes import DATA, WALL_CLOCK_MS, register_broker
from tests.controller.wire_world import CLUSTER, World
from tests.controller.world import FewConfigs
from tests.support.fake_filesystem import FakeFileSystem


def directory_id(node_id: int, life: int = 1) -> bytes:
    return bytes([node_id, life]) * 8


def voter(node_id: int, *, life: int = 1, port: int | None = None) -> Voter:
    endpoint = VoterEndpoint("CONTROLLER", "memory", port or node_id)
    return Voter(ReplicaKey(node_id, directory_id(node_id, life)), (endpoint,), (0, 1))


class DynamicWorld(World):
    """No node has voters in its settings: those that are formatted as voters know them, others ask node 1."""

    def format(self, *node_ids: int) -> None:
        for node_id in node_ids:
            disk = self.disks.setdefault(node_id, FakeFileSystem())
            disk.make_directory(DATA)
            write_first_voters(disk, DATA, VoterSet(map(voter, node_ids)), WALL_CLOCK_MS)

    async def start(self, node_id: int, *, life: int = 1, port: int | None = None, **settings: Any) -> ControllerNode:
        disk = self.disks.setdefault(node_id, FakeFileSystem())
        disk.make_directory(DATA)
        endpoints = voter(node_id, port=port).endpoints
        links = PeerLinks(
            node_id,
            CLUSTER,
            {},
            self.opener(node_id),
            software_version="1",
            bootstrap=[NodeAddress("memory", 1), NodeAddress("memory", 2)],
            endpoints=endpoints,
        )
        node = ControllerNode(
            ControllerSettings(
                node_id,
                DATA,
                VoterSet(()),
                directory_id=directory_id(node_id, life),
                endpoints=endpoints,
                bootstrap_count=2,
                **{**self.settings, **settings},
            ),
            filesystem=disk,
            config_rules=FewConfigs(),
            random=random.Random(node_id),
            wall_clock_ms=lambda: WALL_CLOCK_MS + int(trio.current_time() * 1000),
            transport=links,
        )
        peers = Peers(node, links)
        node.open()
        self.moved[port or node_id] = node_id
        self.nodes[node_id], self.peers[node_id] = node, peers
        self.scopes[node_id] = await self.nursery.start(self.run, node, peers)
        return node

    async def until_voters(self, *node_ids: int) -> None:
        with trio.fail_after(30):
            while any(node.voters.ids != list(node_ids) for node in self.nodes.values()):
                await trio.sleep(0.05)


@asynccontextmanager
async def dynamic_world(*node_ids: int, **settings: Any) -> AsyncIterator[DynamicWorld]:
    """Nodes formatted as voters, which run."""
    async with trio.open_nursery() as nursery:
        world = DynamicWorld(nursery, (), **settings)
        world.format(*node_ids)
        for node_id in node_ids:
            await world.start(node_id)
        yield world
        nursery.cancel_scope.cancel()


async def create(node: ControllerNode, name: str) -> None:
    (result,) = await node.submit(CreateTopics([NewTopic(name)]), 1000)
    assert not result.error.is_failure, result


async def caught_up(leader: ControllerNode, node: ControllerNode) -> None:
    with trio.fail_after(30):
        while node.image.offset != leader.image.offset or leader.image.offset < 0:
            await trio.sleep(0.05)
    await trio.sleep(1)


async def test_a_quorum_grows_from_one_to_three_and_loses_its_first_leader() -> None:
    async with dynamic_world(1) as world:
        first = await world.wait_for_leader()
        assert first.kraft_version == 1
        await register_broker(first)
        await create(first, "one")
        for node_id in (2, 3):
            node = await world.start(node_id)
            await caught_up(first, node)
            answer = await first.voter_requests.add(voter(node_id), 5000, acks_commit=True)
            assert answer.error is ErrorCode.NONE, answer
        await world.until_voters(1, 2, 3)
        description = first.quorum_state()
        assert [replica.key for replica in description.voters] == [voter(node_id).key for node_id in (1, 2, 3)]
        assert not description.observers
        assert b'"data_version":1' in (world.disks[1].read_file(f"{DATA}/__cluster_metadata-0/{FILE_NAME}") or b"")
        answer = await first.voter_requests.remove(voter(1).key, 5000)
        assert answer.error is ErrorCode.NONE, answer
        await world.until_voters(2, 3)
        second = await world.wait_for_leader()
        assert second is not first
        await create(second, "two")
        await caught_up(second, first)
        assert set(first.image.topics_by_name) == {"one", "two"}


async def test_a_leader_closes_before_it_has_sent_anything_to_a_new_voter() -> None:
    """It resigns when its links have ended; the message to the new voter is dropped, as the others are."""
    async with dynamic_world(1) as world:
        leader = await world.wait_for_leader()
        await caught_up(leader, await world.start(2))
        await leader.voter_requests.add(voter(2), 5000, acks_commit=True)
        world.scopes[1].cancel()
        await trio.testing.wait_all_tasks_blocked()
        leader.close()
        assert not leader.is_leader


async def test_three_formatted_voters_elect_and_live_on_after_restarts_and_checkpoints() -> None:
    async with dynamic_world(1, 2, 3, snapshot_bytes=2000) as world:
        leader = await world.wait_for_leader()
        await register_broker(leader)
        number = 0
        while leader._core.log.start.offset <= 20:
            # Checkpoints are written in a thread, which no virtual clock waits for.
            assert number < 2000, "the log is cut behind checkpoints"
            await create(leader, f"t{number}")
            await trio.sleep(0.1)
            number += 1
        late = await world.start(9)
        await caught_up(leader, late)
        assert late.voters.ids == [1, 2, 3], "the leader's checkpoint says who votes"
        assert late.kraft_version == 1
        for node_id in (1, 2, 3):
            world.kill(node_id)
        for node_id in (1, 2, 3):
            await world.start(node_id)
        leader = await world.wait_for_leader()
        assert leader.voters == VoterSet(map(voter, (1, 2, 3)))
        await create(leader, "after")


async def test_a_node_that_lost_its_disk_is_another_voter() -> None:
    async with dynamic_world(1, 2, 3) as world:
        leader = await world.wait_for_leader()
        lost = next(node_id for node_id in (3, 2) if node_id != leader.settings.node_id)
        world.kill(lost)
        world.disks[lost] = FakeFileSystem()
        node = await world.start(lost, life=2)
        await caught_up(leader, node)
        assert [replica.key for replica in leader.quorum_state().observers] == [voter(lost, life=2).key]
        answer = await leader.voter_requests.add(voter(lost, life=2), 5000, acks_commit=True)
        assert answer.error is ErrorCode.DUPLICATE_VOTER
        assert (await leader.voter_requests.remove(voter(lost).key, 5000)).error is ErrorCode.NONE
        assert (await leader.voter_requests.add(voter(lost, life=2), 5000, acks_commit=True)).error is ErrorCode.NONE
        assert voter(lost, life=2).key in leader.voters
        assert voter(lost).key not in leader.voters


async def test_a_node_joins_by_itself_where_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """controller.quorum.auto.join.enable (KIP-1186): also with the id of a voter whose directory is lost."""
    async with dynamic_world(1, 2) as world:
        leader = await world.wait_for_leader()
        settings = leader.settings.raft._replace(auto_join=True)
        await world.start(3, raft=settings)
        await world.until_voters(1, 2, 3)
        leader = await world.wait_for_leader()
        world.kill(3)
        world.disks[3] = FakeFileSystem()
        await world.start(3, life=2, raft=settings)
        with trio.fail_after(60):
            while voter(3, life=2).key not in leader.voters:
                await trio.sleep(0.1)


async def test_a_voter_that_moved_tells_the_leader_where_it_listens() -> None:
    async with dynamic_world(1, 2, 3) as world:
        leader = await world.wait_for_leader()
        moving = next(node_id for node_id in (3, 2) if node_id != leader.settings.node_id)
        world.kill(moving)
        await world.start(moving, port=77)
        with trio.fail_after(60):
            while leader.voters.voter(moving) != voter(moving, port=77):
                await trio.sleep(0.1)
        await world.cut(leader.settings.node_id)
        await world.wait_for_leader()


async def test_what_stands_against_a_change() -> None:
    async with dynamic_world(1) as world:
        leader = await world.wait_for_leader()
        requests = leader.voter_requests
        unknown = await requests.add(voter(5), 5000, acks_commit=True)
        assert unknown.error is ErrorCode.REQUEST_TIMED_OUT
        assert reason(unknown) is Reason.NO_VERSIONS
        only = await requests.remove(voter(1).key, 5000)
        assert only.error is ErrorCode.VOTER_NOT_FOUND
        assert (await requests.remove(voter(1, life=2).key, 5000)).error is ErrorCode.VOTER_NOT_FOUND
        node = await world.start(2)
        lagging = await requests.add(voter(2, life=3), 5000, acks_commit=True)
        assert lagging.error is ErrorCode.REQUEST_TIMED_OUT
        assert reason(lagging) is Reason.LAGGING
        await caught_up(leader, node)
        follower = await node.voter_requests.add(voter(2), 5000, acks_commit=True)
        assert follower.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        # A client's timeout may be any number.
        hasty = await requests.add(voter(9), -(2**31), acks_commit=True)
        assert hasty.error is ErrorCode.REQUEST_TIMED_OUT
        assert (await requests.add(voter(2), 5000, acks_commit=True)).error is ErrorCode.NONE
        await world.cut(2)
        # It takes both to commit: the change stays under way until its time is over.
        pending = await requests.remove(voter(2).key, 5000)
        assert pending.error is ErrorCode.NONE, "a set of one commits by itself"


async def test_a_static_quorum_is_upgraded() -> None:
    """kraft.version 0 to 1: the configured voters are written to the log, as their UpdateRaftVoter requests said."""
    async with trio.open_nursery() as nursery:
        world = StaticWorld(nursery, (1, 2, 3))
        for node_id in world.voters:
            await world.start(node_id)
        leader = await world.wait_for_leader()
        assert leader.kraft_version == 0
        assert [replica.key for replica in leader.quorum_state().voters] == list(map(ReplicaKey, (1, 2, 3)))
        assert (await leader.voter_requests.remove(voter(1).key, 5000)).error is ErrorCode.UNSUPPORTED_VERSION
        assert reason(await upgrade(leader, 1)) is Reason.VOTERS_TOO_OLD
        await trio.sleep(10)
        done = await upgrade(leader, 1)
        assert done.error is ErrorCode.NONE, done
        assert await leader.applied(done.end_offset, 5000)
        assert not await leader.applied(done.end_offset + 1000, -1)
        with trio.fail_after(30):
            while any(node.kraft_version != 1 for node in world.nodes.values()):
                await trio.sleep(0.05)
        assert leader.voters == VoterSet(map(voter, (1, 2, 3)))
        assert reason(await upgrade(leader, 0)) is Reason.DOWNGRADE
        gone = next(node_id for node_id in (3, 2) if node_id != leader.settings.node_id)
        assert (await leader.voter_requests.remove(voter(gone).key, 5000)).error is ErrorCode.NONE
        nursery.cancel_scope.cancel()


def reason(answer: ChangeAnswer) -> Reason | None:
    return None if answer.failure is None else answer.failure.reason


async def upgrade(node: ControllerNode, level: int) -> ChangeAnswer:
    return await node.voter_requests.upgrade(level, 5000, validate_only=False)


class StaticWorld(World):
    """Voters by their settings, with directories and endpoints all the same."""

    async def start(self, node_id: int, **settings: Any) -> ControllerNode:
        return await super().start(
            node_id, directory_id=directory_id(node_id), endpoints=voter(node_id).endpoints, **settings
        )


async def test_a_new_cluster_begins_with_the_levels_of_the_format_step() -> None:
    async with dynamic_world(1) as world:
        leader = await world.wait_for_leader()
        await trio.sleep(1)
        assert leader.image.features[METADATA_VERSION] == 30
