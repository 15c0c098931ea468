"""Three controller nodes in one process: the driver with several voters."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from pykbroker.controller.metadata.commands import ApiError, CommandRefused
from pykbroker.controller.metadata.features import BOOTSTRAP_LEVELS
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.controller.node import ControllerNode, ControllerSettings
from pykbroker.controller.raft.messages import Message
from pykbroker.controller.raft.output import Envelope
from pykbroker.controller.raft.quorum import ReplicaKey, VoterSet
from pykbroker.controller.raft_storage import StorageSettings
from pykbroker.controller.transport import Transport
from pykbroker.protocol.error_codes import ErrorCode
from tests.controller.nodes import DATA, WALL_CLOCK_MS, register_broker
from tests.controller.world import FewConfigs
from tests.support.fake_filesystem import FakeFileSystem

DELAY_SECONDS = 0.002
TICK_MS = 125
DEFAULT_STORAGE = StorageSettings()


class Carrier(Transport):
    """Messages of one node as tasks."""

    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self.quorum = quorum
        self.node_id = node_id

    def send(self, envelope: Envelope) -> None:
        self.quorum.sent.append(envelope.message)
        self.quorum.nursery.start_soon(self.quorum.carry, self.node_id, envelope)


class Quorum:
    """Nodes 1 to 3 by id, each on a disk of its own; messages take 2 ms, those to or from `cut_off` are lost.

    `sent` has all messages that were sent.
    """

    def __init__(self, nursery: trio.Nursery, storage: StorageSettings) -> None:
        self.nursery = nursery
        self.storage = storage
        self.voters = VoterSet(ReplicaKey(node_id) for node_id in (1, 2, 3))
        self.disks = {node_id: FakeFileSystem() for node_id in (1, 2, 3)}
        self.nodes: dict[int, ControllerNode] = {}
        self.scopes: dict[int, trio.CancelScope] = {}
        self.cut_off: set[int] = set()
        self.sent: list[Message] = []

    async def start(self, node_id: int) -> None:
        disk = self.disks[node_id]
        disk.make_directory(DATA)

        node = ControllerNode(
            ControllerSettings(node_id, DATA, self.voters, storage=self.storage, running_tick_ms=TICK_MS),
            filesystem=disk,
            config_rules=FewConfigs(),
            random=random.Random(node_id),
            wall_clock_ms=lambda: WALL_CLOCK_MS + int(trio.current_time() * 1000),
            transport=Carrier(self, node_id),
        )
        node.open()
        self.nodes[node_id] = node
        self.scopes[node_id] = await self.nursery.start(self.run, node)

    async def run(self, node: ControllerNode, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        with trio.CancelScope() as scope:
            task_status.started(scope)
            await node.run()

    async def carry(self, source: int, envelope: Envelope) -> None:
        await trio.sleep(DELAY_SECONDS)
        node = self.nodes.get(envelope.destination)
        if node is not None and not {source, envelope.destination} & self.cut_off:
            node.step(envelope.message)

    def kill(self, node_id: int) -> None:
        """As kill -9 and a loss of power."""
        del self.nodes[node_id]
        self.scopes.pop(node_id).cancel()
        self.disks[node_id].crash()

    async def wait_for_leader(self) -> ControllerNode:
        with trio.fail_after(30):
            while True:
                for node_id, node in self.nodes.items():
                    state = node.quorum_state()
                    if node.is_leader and node_id not in self.cut_off and state.high_watermark > 0:
                        return node
                await trio.sleep(0.05)


@asynccontextmanager
async def quorum(storage: StorageSettings = DEFAULT_STORAGE) -> AsyncIterator[Quorum]:
    async with trio.open_nursery() as nursery:
        three = Quorum(nursery, storage)
        for node_id in (1, 2, 3):
            await three.start(node_id)
        yield three
        nursery.cancel_scope.cancel()


async def create(node: ControllerNode, name: str) -> None:
    (result,) = await node.submit(CreateTopics([NewTopic(name)]), 1000)
    assert not result.error.is_failure, result


async def test_what_the_leader_commits_reaches_all() -> None:
    async with quorum() as three:
        leader = await three.wait_for_leader()
        await register_broker(leader)
        for number in range(20):
            await create(leader, f"t{number}")
        await trio.sleep(1)
        for node in three.nodes.values():
            assert node.image == leader.image
            assert node.image.features == BOOTSTRAP_LEVELS
        state = leader.quorum_state()
        assert [voter.key.node_id for voter in state.voters] == [1, 2, 3]
        assert {voter.log_end_offset for voter in state.voters} == {state.high_watermark}


async def test_a_machine_that_stood_still_needs_no_election() -> None:
    """All nodes were suspended or had no CPU: the leader's responses are under way, and no voter starts an election."""
    async with quorum() as three:
        leader = await three.wait_for_leader()
        epoch = leader.known_leader()
        for _ in range(10):
            clock = trio.lowlevel.current_clock()
            assert isinstance(clock, trio.testing.MockClock)
            clock.jump(5.0)
            await trio.sleep(0.4)
        assert [node.known_leader() for node in three.nodes.values()] == [epoch] * 3


async def test_a_follower_does_not_answer_for_the_leader() -> None:
    """P-685."""
    async with quorum() as three:
        leader = await three.wait_for_leader()
        follower = next(node for node in three.nodes.values() if node is not leader)
        with pytest.raises(CommandRefused) as caught:
            await create(follower, "t")
        text = f"The active controller appears to be node {leader.settings.node_id}."
        assert caught.value.error == ApiError(ErrorCode.NOT_CONTROLLER, text)


async def test_the_leaders_end_loses_nothing_that_was_answered() -> None:
    async with quorum() as three:
        names = set()
        for number in range(6):
            leader = await three.wait_for_leader()
            if number == 0:
                await register_broker(leader)
            await create(leader, f"t{number}")
            names.add(f"t{number}")
            node_id = leader.settings.node_id
            three.kill(node_id)
            successor = await three.wait_for_leader()
            assert set(successor.image.topics_by_name) == names
            await three.start(node_id)
        await trio.sleep(2)
        images = [node.image for node in three.nodes.values()]
        assert images[0] == images[1] == images[2]


async def test_a_leader_that_is_cut_off_cannot_commit() -> None:
    """It refuses commands when it notices; the records that it alone has appended are removed when it is back."""
    async with quorum() as three:
        old = await three.wait_for_leader()
        await register_broker(old)
        await create(old, "before")
        three.cut_off.add(old.settings.node_id)
        with pytest.raises(CommandRefused) as caught:
            await create(old, "lost")
        assert caught.value.error.code == ErrorCode.REQUEST_TIMED_OUT
        new = await three.wait_for_leader()
        await create(new, "after")
        three.cut_off.clear()
        await trio.sleep(3)
        assert not old.is_leader
        assert set(old.image.topics_by_name) == {"before", "after"}
        assert old.image == new.image
