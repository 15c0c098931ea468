"""Whole clusters whose coordinators move: a group and a transactional producer go on and lose nothing."""

from __future__ import annotations

import pytest
import trio

from pykbroker.coordination.partitioning import OFFSETS_TOPIC, TRANSACTION_TOPIC
from tests.simulation import scenario
from tests.simulation.client import Client, Unreachable
from tests.simulation.world import World

WAYS = ("kill", "stop", "isolate")
MOVES = 4


class CoordinatorsMove:
    """In the place of `Faults`: the leaders of the coordinators' partitions go, one after the other, and come back.

    Attributes:
        moves: how often the partition that was looked at had another leader afterwards.
    """

    way = ""
    moves = 0

    def __init__(self, world: World, *, may_lose_power: bool, has_directories: bool) -> None:
        self._world = world
        self._client = Client(world, "c90")
        CoordinatorsMove.moves = 0

    async def run(self) -> None:
        for number in range(MOVES):
            topic = (OFFSETS_TOPIC, TRANSACTION_TOPIC)[number % 2]
            partition = number // 2 % 2
            await trio.sleep(1.0)
            leader = await self._leader(topic, partition)
            await self._take_away(leader)
            CoordinatorsMove.moves += await self._leader(topic, partition) != leader
        await trio.sleep_forever()

    async def _take_away(self, leader: int) -> None:
        """Longer than the controller waits for its heartbeat (`broker.session.timeout.ms`)."""
        world = self._world
        machine = world.machines[world.broker_names[leader]]
        if self.way == "isolate":
            for other in [name for name in world.machines if name != machine.name]:
                world.network.cut(machine.name, other)
                world.network.cut(other, machine.name)
            await trio.sleep(4.0)  # where it was the active controller, too, its successor waits as long again
            world.network.mend_all()
            await trio.sleep(1.0)  # until it has heard of what happened meanwhile
            return
        if self.way == "kill":
            machine.kill()
        else:
            await machine.stop()
        await trio.sleep(1.8)
        if not machine.is_up:  # The world has started again what ended by itself.
            machine.start()

    async def _leader(self, topic: str, partition: int) -> int:
        while True:
            try:
                await self._client.refresh([topic])
            except Unreachable:
                await self._client.pause()
                continue
            info = self._client.partitions.get((topic, partition))
            if info is not None and info.leader >= 0:
                return info.leader
            await self._client.pause()

    def heal(self) -> None:
        self._world.network.mend_all()
        for machine in self._world.machines.values():
            if not machine.is_up:
                machine.start()


@pytest.mark.parametrize("way", WAYS)
def test_clients_survive_the_moves_of_their_coordinators(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoordinatorsMove, "way", way)
    monkeypatch.setattr(scenario, "Faults", CoordinatorsMove)
    monkeypatch.setattr(scenario, "WORK_S", 26.0)
    outcome = scenario.run_seed("three-1")
    assert CoordinatorsMove.moves >= MOVES - 1  # an administrator may bring a leader back meanwhile
    assert outcome.counts["transactions committed"] >= 10
    assert outcome.counts["offsets committed"] >= 10
    assert outcome.counts["generations joined"] >= 3
