"""Duties of the active controller: fencing of brokers without heartbeats, preferred and unclean elections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing

from pykbroker.controller.active_controller import ActiveController, ActiveControllerSettings
from pykbroker.controller.broker_heartbeats import BrokerState, Heartbeat
from pykbroker.controller.broker_session_commands import CurrentImage
from pykbroker.controller.metadata.brokers import FenceBroker, RegisterBroker
from pykbroker.controller.metadata.commands import CommandRefused, Plan, PlanContext
from pykbroker.controller.metadata.configs import SET, ConfigEdit, ConfigResourceEdits, IncrementalAlterConfigs
from pykbroker.controller.metadata.features import SUPPORTED_FEATURES
from pykbroker.controller.metadata.image import TOPIC_RESOURCE, BrokerImage, ClusterImage, Endpoint, PartitionImage
from pykbroker.controller.metadata.periodic_elections import ElectPreferredLeaders, ElectUncleanLeaders
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.controller.node import ControllerNode
from pykbroker.controller.raft.local_messages import Resign
from pykbroker.controller.running_clock import RunningClock
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord
from tests.controller.nodes import running
from tests.controller.world import directory_id
from tests.support.fake_filesystem import FakeFileSystem

TIMEOUT_S = 9.0
INTERVAL_S = 2.0
TICK_MS = 250


class ChangeLeader(NamedTuple):
    """A command that writes one record."""

    record: PartitionChangeRecord

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[None]:
        return Plan([self.record], None)


class Brokers:
    """Brokers that register, and send heartbeats unless they are in `silent`.

    The hosts in `refusing` refuse connections.
    """

    def __init__(
        self, node: ControllerNode, active: ActiveController, nursery: trio.Nursery, refusing: set[str]
    ) -> None:
        self.refusing = refusing
        self.node = node
        self.active = active
        self.nursery = nursery
        self.silent: set[int] = set()

    async def start(self, broker_id: int, incarnation: int = 1) -> int:
        epoch = await self.active.register(
            RegisterBroker(
                broker_id=broker_id,
                incarnation_id=bytes([incarnation]) * 16,
                endpoints=[Endpoint("PLAINTEXT", f"host-{broker_id}", 9092, 0)],
                features=SUPPORTED_FEATURES,
                log_dirs=[directory_id(broker_id)],
            )
        )
        await self.beat(broker_id, epoch)
        self.nursery.start_soon(self._keep_beating, broker_id, epoch)
        return epoch

    async def beat(self, broker_id: int, epoch: int) -> None:
        result = await self.active.heartbeat(Heartbeat(broker_id, epoch, self.node.image.offset))
        assert result.after is BrokerState.UNFENCED

    async def _keep_beating(self, broker_id: int, epoch: int) -> None:
        while self.node.image.brokers[broker_id].epoch == epoch:
            await trio.sleep(INTERVAL_S)
            if broker_id not in self.silent:
                await self.beat(broker_id, epoch)

    async def create(self, name: str, *replicas: int) -> None:
        (result,) = await self.node.submit(CreateTopics([NewTopic(name, assignments=[(0, replicas)])]), 1000)
        assert not result.error.is_failure, result

    async def kill(self, broker_id: int) -> None:
        """Ends a broker as kill -9 does: its machine refuses connections."""
        self.silent.add(broker_id)
        self.active.connection_lost(broker_id, self.node.image.brokers[broker_id].epoch)
        await trio.sleep(0.01)
        self.refusing.add(f"host-{broker_id}")

    def partition(self, name: str) -> PartitionImage:
        return self.node.image.topics_by_name[name].partitions[0]

    def is_fenced(self, broker_id: int) -> bool:
        return self.node.image.brokers[broker_id].is_fenced


@asynccontextmanager
async def cluster(
    *broker_ids: int, disk: FakeFileSystem | None = None, is_asking: bool = True, **settings: Any
) -> AsyncIterator[Brokers]:
    refusing: set[str] = set()

    async def refuses(endpoint: Endpoint) -> bool:
        await trio.sleep(0.001)
        return endpoint.host in refusing

    filesystem = disk or FakeFileSystem()
    async with running(filesystem, running_tick_ms=TICK_MS) as node, trio.open_nursery() as nursery:
        active = ActiveController(node, ActiveControllerSettings(**settings), refuses if is_asking else None)
        await nursery.start(active.run)
        brokers = Brokers(node, active, nursery, refusing)
        for broker_id in broker_ids:
            await brokers.start(broker_id)
        yield brokers
        nursery.cancel_scope.cancel()


async def test_who_is_silent_for_the_session_timeout_is_fenced() -> None:
    async with cluster(1, 2) as brokers:
        await brokers.create("t", 1, 2)
        await trio.sleep(60)
        assert not brokers.is_fenced(1)
        brokers.silent.add(1)
        await trio.sleep(TIMEOUT_S - INTERVAL_S - 0.1)
        assert not brokers.is_fenced(1)
        await trio.sleep(INTERVAL_S + 0.2)
        assert brokers.is_fenced(1)
        assert (brokers.partition("t").leader, brokers.partition("t").isr) == (2, (2,))
        brokers.silent.clear()
        await trio.sleep(INTERVAL_S)
        assert not brokers.is_fenced(1)
        assert brokers.partition("t").leader == 2


@pytest.mark.parametrize("stall_s", [7.1, 8.9, 30.0])
async def test_a_stall_of_the_controller_is_no_silence_of_brokers(
    stall_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """On a busy machine neither the controller nor the brokers have run, and the heartbeats arrive a moment later."""
    async with cluster(1, 2) as brokers:
        await trio.sleep(1.9)
        brokers.silent = {1, 2}
        stand_still(stall_s)
        await trio.sleep(0.1)
        brokers.silent.clear()
        await trio.sleep(3 * TIMEOUT_S)
        assert (brokers.is_fenced(1), brokers.is_fenced(2)) == (False, False)
        assert "this process did not run for" in caplog.text


@pytest.mark.parametrize("stall_s", [1.0, 8.9, 3600.0])
async def test_who_is_silent_after_a_stall_is_fenced_as_soon_as_ever(stall_s: float) -> None:
    async with cluster(1, 2) as brokers:
        await trio.sleep(0.5)
        brokers.silent.add(1)
        stand_still(stall_s)
        await trio.sleep(TIMEOUT_S - 0.5 - TICK_MS / 1000 - 0.1)
        assert not brokers.is_fenced(1)
        await trio.sleep(TICK_MS / 1000 + 0.2)
        assert brokers.is_fenced(1)
        assert not brokers.is_fenced(2)


def stand_still(seconds: float) -> None:
    """Runs no task for this time, and then all that are due."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    clock.jump(seconds)


async def test_two_that_fall_silent_together_are_fenced_one_after_the_other() -> None:
    """The second election is on the result of the first one: the last replica in sync stays eligible."""
    async with cluster(1, 2, 3) as brokers:
        await brokers.create("t", 1, 2)
        brokers.silent |= {1, 2}
        await trio.sleep(TIMEOUT_S + 1)
        assert brokers.is_fenced(1)
        assert brokers.is_fenced(2)
        after = brokers.partition("t")
        assert (after.leader, after.isr, len(after.eligible_leader_replicas)) == (-1, (), 1)


async def test_a_new_process_under_a_live_id_is_refused_until_the_session_ends() -> None:
    async with cluster(1) as brokers:
        with pytest.raises(CommandRefused) as refused:
            await brokers.start(1, incarnation=2)
        assert refused.value.error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        brokers.silent.add(1)
        await trio.sleep(TIMEOUT_S + 1)
        await brokers.start(1, incarnation=2)
        assert not brokers.is_fenced(1)


async def test_a_new_controller_gives_everybody_a_whole_session() -> None:
    disk = FakeFileSystem()
    async with cluster(1, disk=disk) as brokers:
        assert not brokers.is_fenced(1)
    async with cluster(disk=disk) as brokers:
        await trio.sleep(TIMEOUT_S - 0.1)
        assert not brokers.is_fenced(1)
        await trio.sleep(0.2)
        assert brokers.is_fenced(1)


async def test_the_broker_beside_the_only_voter_registers_at_once_after_a_kill() -> None:
    """The process under its id has ended with the controller, so its session need not."""
    disk = FakeFileSystem()
    async with cluster(1, disk=disk):
        pass
    async with cluster(disk=disk, local_broker_id=1, is_asking=False) as brokers:
        await trio.sleep(0.1)
        await brokers.start(1, incarnation=2)
        assert not brokers.is_fenced(1)


@pytest.mark.parametrize("is_balancing", [True, False])
async def test_preferred_leaders_lead_again_after_a_while(is_balancing: bool) -> None:
    async with cluster(1, 2, balance_interval_ms=300_000 if is_balancing else 0) as brokers:
        await brokers.create("t", 1, 2)
        topic_id = brokers.node.image.topics_by_name["t"].topic_id
        await brokers.node.submit(
            ChangeLeader(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2)), 1000
        )
        await trio.sleep(299)
        assert brokers.partition("t").leader == 2
        await trio.sleep(2)
        assert brokers.partition("t").leader == (1 if is_balancing else 2)
        assert brokers.partition("t").isr == (1, 2)


async def test_unclean_elections_that_become_allowed_are_held_at_the_end_of_the_interval() -> None:
    """As in Kafka, whose documentation of `unclean.leader.election.enable` names the five minutes."""
    async with cluster(1, 2) as brokers:
        await brokers.create("t", 1, 2)
        brokers.silent.add(2)
        await trio.sleep(TIMEOUT_S + 1)
        brokers.silent = {1}
        await trio.sleep(TIMEOUT_S + 1)
        before = brokers.partition("t")
        assert (before.leader, before.isr, before.eligible_leader_replicas) == (-1, (), (1,))
        edit = ConfigEdit("unclean.leader.election.enable", SET, "true")
        await brokers.node.submit(IncrementalAlterConfigs([ConfigResourceEdits(TOPIC_RESOURCE, "t", [edit])]), 1000)
        await trio.sleep(250)
        assert brokers.partition("t").leader == -1
        await trio.sleep(50)
        after = brokers.partition("t")
        assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)


async def test_a_node_that_does_not_lead_refuses() -> None:
    async with cluster(1) as brokers:
        epoch = brokers.node.image.brokers[1].epoch
        brokers.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            brokers.node.step(Resign())
            with pytest.raises(CommandRefused) as refused:
                await brokers.active.heartbeat(Heartbeat(1, epoch, 5))
    assert refused.value.error.code == ErrorCode.NOT_CONTROLLER


async def test_a_full_disk_does_not_end_the_duties() -> None:
    disk = FakeFileSystem()
    async with cluster(1, 2, disk=disk) as brokers:
        brokers.silent.add(1)
        await trio.sleep(TIMEOUT_S - INTERVAL_S)
        disk.capacity_bytes = 0
        await trio.sleep(INTERVAL_S + 1)
        assert not brokers.is_fenced(1)
        disk.capacity_bytes = None
        await trio.sleep(INTERVAL_S)
        assert brokers.is_fenced(1)


async def test_who_is_gone_is_fenced_at_once_and_may_come_back_at_once() -> None:
    """The connections of a process that ends break a moment before its port is closed."""
    async with cluster(1, 2) as brokers:
        await brokers.create("t", 1, 2)
        await brokers.kill(1)
        await trio.sleep(0.2)
        assert brokers.is_fenced(1)
        assert brokers.partition("t").leader == 2
        brokers.silent.clear()
        brokers.refusing.clear()
        await brokers.start(1, incarnation=2)
        assert not brokers.is_fenced(1)


async def test_a_broken_connection_alone_is_nothing() -> None:
    async with cluster(1) as brokers:
        brokers.active.connection_lost(1, brokers.node.image.brokers[1].epoch)
        brokers.active.connection_lost(7, 0)
        await trio.sleep(1)
        assert not brokers.is_fenced(1)
        with pytest.raises(CommandRefused):
            await brokers.start(1, incarnation=2)


async def test_a_process_that_was_started_again_need_not_wait_for_the_session_of_the_one_before() -> None:
    """No broken connection was reported: it is refused at first, and the port of its predecessor is then checked."""
    async with cluster(1) as brokers:
        brokers.silent.add(1)
        brokers.refusing.add("host-1")
        with pytest.raises(CommandRefused):
            await brokers.start(1, incarnation=2)
        await trio.sleep(0.01)
        assert brokers.is_fenced(1)
        await brokers.start(1, incarnation=2)
        assert not brokers.is_fenced(1)


async def test_it_can_be_switched_off() -> None:
    async with cluster(1, 2, is_asking=False) as brokers:
        await brokers.kill(1)
        await trio.sleep(TIMEOUT_S - INTERVAL_S - 1)
        assert not brokers.is_fenced(1)
        await trio.sleep(INTERVAL_S + 1)
        assert brokers.is_fenced(1)


async def test_a_new_controller_does_not_wait_for_who_died_with_the_old_one() -> None:
    disk = FakeFileSystem()
    async with cluster(1, 2, disk=disk) as brokers:
        await brokers.create("t", 1, 2)
    async with running(disk) as node, trio.open_nursery() as nursery:

        async def refuses(endpoint: Endpoint) -> bool:
            await trio.lowlevel.checkpoint()
            return endpoint.host == "host-1"

        await nursery.start(ActiveController(node, ActiveControllerSettings(), refuses).run)
        await trio.sleep(0.2)
        assert [broker.is_fenced for broker in node.image.brokers.values()] == [True, False]
        assert node.image.topics_by_name["t"].partitions[0].leader == 2
        nursery.cancel_scope.cancel()


async def test_brokers_that_are_all_gone_are_not_fenced_until_one_is_back() -> None:
    """Fencing them in turn would leave the last one as leader, even if its machine has lost records."""
    disk = FakeFileSystem()
    async with cluster(1, 2, disk=disk) as brokers:
        await brokers.create("t", 1, 2)
    async with running(disk) as node, trio.open_nursery() as nursery:
        refusing = {"host-1", "host-2"}

        async def refuses(endpoint: Endpoint) -> bool:
            await trio.lowlevel.checkpoint()
            return endpoint.host in refusing

        await nursery.start(ActiveController(node, ActiveControllerSettings(), refuses).run)
        await trio.sleep(TIMEOUT_S - 1)
        assert not any(broker.is_fenced for broker in node.image.brokers.values())
        assert node.image.topics_by_name["t"].partitions[0].isr == (1, 2)
        refusing.remove("host-2")
        await trio.sleep(0.5)
        assert [broker.is_fenced for broker in node.image.brokers.values()] == [True, False]
        assert node.image.topics_by_name["t"].partitions[0].leader == 2
        nursery.cancel_scope.cancel()


async def test_brokers_that_stay_away_together_are_fenced_at_the_end_of_their_sessions() -> None:
    disk = FakeFileSystem()
    async with cluster(1, 2, disk=disk):
        pass
    async with running(disk) as node, trio.open_nursery() as nursery:

        async def refuses(endpoint: Endpoint) -> bool:
            await trio.lowlevel.checkpoint()
            return True

        await nursery.start(ActiveController(node, ActiveControllerSettings(), refuses).run)
        await trio.sleep(TIMEOUT_S + 1)
        assert all(broker.is_fenced for broker in node.image.brokers.values())
        nursery.cancel_scope.cancel()


async def test_brokers_that_are_cut_off_are_checked_at_the_same_time() -> None:
    """A refusal counts only if another broker is reachable; the check of a machine that is cut off takes a second."""
    others = range(2, 12)
    disk = FakeFileSystem()
    async with cluster(1, *others, disk=disk):
        pass
    async with running(disk) as node, trio.open_nursery() as nursery:

        async def refuses(endpoint: Endpoint) -> bool:
            if endpoint.host != "host-1":
                await trio.sleep(1)
            return True

        active = ActiveController(node, ActiveControllerSettings(), refuses)
        began_s = trio.current_time()
        assert not await active._is_another_reachable(refuses, 1)
        assert trio.current_time() - began_s < 2

        async def reachable_late(endpoint: Endpoint) -> bool:
            await trio.sleep(int(endpoint.host.removeprefix("host-")))
            return endpoint.host != "host-3"

        began_s = trio.current_time()
        assert await active._is_another_reachable(reachable_late, 1)
        assert 3 <= trio.current_time() - began_s < 4, "the first broker that is reachable decides"
        nursery.cancel_scope.cancel()


async def test_a_process_that_has_ended_is_fenced_after_a_full_disk() -> None:
    """Its session is over already, so no other duty would fence it later."""
    disk = FakeFileSystem()
    async with cluster(1, 2, disk=disk) as brokers:
        disk.capacity_bytes = 0
        await brokers.kill(1)
        await trio.sleep(TIMEOUT_S + INTERVAL_S)
        assert not brokers.is_fenced(1)
        disk.capacity_bytes = None
        await trio.sleep(INTERVAL_S)
        assert brokers.is_fenced(1)


async def test_who_led_for_a_moment_only_takes_up_no_duties() -> None:
    """The term is over before the task for its duties has begun."""

    class Node:
        image = ClusterImage()
        clock = RunningClock(0)
        is_leader = True
        leads_no_more = trio.Event()

        def known_leader(self) -> tuple[int, int]:
            return (1, 7) if self.is_leader else (2, 8)

        async def leadership_changed(self) -> None:
            if self.is_leader:
                self.is_leader = False
                return
            await self.leads_no_more.wait()

        async def submit(self, command: Any, timeout_ms: int) -> Any:
            raise CommandRefused(ErrorCode.NOT_CONTROLLER, "not the controller")

    active = ActiveController(Node(), ActiveControllerSettings())
    with trio.move_on_after(1):
        await active.run()


class LeadingNode:
    """A node that leads for ever; `answer` gets each command, whose times in seconds are noted by type."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.image = ClusterImage()
        self.clock = RunningClock(0)
        self.is_leader = True
        self.answer = answer
        self.times: defaultdict[type, list[float]] = defaultdict(list)

    def known_leader(self) -> tuple[int, int]:
        return 1, 7

    async def leadership_changed(self) -> None:
        await trio.sleep_forever()

    async def submit(self, command: Any, timeout_ms: int) -> Any:
        self.times[type(command)].append(trio.current_time())
        return self.answer(command)


async def test_a_new_controller_that_gets_no_image_tries_again() -> None:
    """Its disk is full, for example. The sessions of the brokers begin when it has one."""
    broker = BrokerImage(1, 5, bytes(16), (Endpoint("PLAINTEXT", "h", 9092, 0),), {}, None, False, False, (bytes(16),))
    fenced_at: list[float] = []

    def answer(command: Any) -> Any:
        if isinstance(command, FenceBroker):
            fenced_at.append(trio.current_time() - began)
            node.image.brokers = {}
        elif isinstance(command, CurrentImage) and len(node.times[CurrentImage]) < 3:
            raise CommandRefused(ErrorCode.UNKNOWN_SERVER_ERROR, "no space left on the device")
        return node.image

    node = LeadingNode(answer)
    node.image.brokers = {1: broker}
    active = ActiveController(node, ActiveControllerSettings(balance_interval_ms=0))
    began = trio.current_time()
    with trio.move_on_after(20):
        await active.run()
    assert [time - began for time in node.times[CurrentImage]] == pytest.approx([0, 1, 2])
    assert fenced_at == pytest.approx([2 + TIMEOUT_S], abs=0.01)


@pytest.mark.parametrize("command", [ElectPreferredLeaders, ElectUncleanLeaders])
async def test_a_round_of_elections_that_was_full_is_followed_by_the_next_one_at_once(command: type) -> None:
    """Two of three rounds leave partitions to the next one."""
    rounds = [True, True, False]

    def answer(asked: Any) -> Any:
        if isinstance(asked, CurrentImage):
            return node.image
        return rounds.pop(0) if isinstance(asked, command) and rounds else False

    node = LeadingNode(answer)
    active = ActiveController(node, ActiveControllerSettings(balance_interval_ms=5000, unclean_interval_ms=5000))
    began = trio.current_time()
    with trio.move_on_after(12):
        await active.run()
    assert [time - began for time in node.times[command]] == pytest.approx([5, 5, 5, 10], abs=0.01)
