"""A run: a cluster starts, clients work while things go wrong, then everything is mended, comes to rest, is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import trio

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.simulation.admin import TopicAdministrator
from tests.simulation.client import Client, Unreachable
from tests.simulation.cluster import CONTROLLER_PORT, shape_of
from tests.simulation.consumer_groups import ConsumerProtocolMember, Roster
from tests.simulation.copier import Copier
from tests.simulation.directories import DirectoryAdministrator
from tests.simulation.faults import Faults
from tests.simulation.groups import GroupMember, fetch_committed
from tests.simulation.history import History
from tests.simulation.logs import FinalCheck
from tests.simulation.producers import CarelessProducer, IdempotentProducer
from tests.simulation.readers import READ_COMMITTED, READ_UNCOMMITTED, Reader
from tests.simulation.share_groups import Ledger, ShareMember
from tests.simulation.streams_groups import MemberEpochs, StreamsMember, topology_of
from tests.simulation.timeline import NODE
from tests.simulation.voters import VoterAdministrator, format_disk, voter_of
from tests.simulation.world import World

START_S = 30.0
WORK_S = 10.0
REST_S = 90.0
"""Time limit, in seconds, for each step after the cluster is healed: clients end, replicas are in sync, offsets are
read."""

TOPICS = {"orders": 2, "copies": 2, "loose": 1}
COPIER, COPIER_GROUP, GROUP, CONSUMER_GROUP = "copier", "copier-group", "readers", "consumers"
SHARE_GROUP, STREAMS_GROUP = "sharers", "streamers"
STREAMS_TOPICS = ("orders", "copies")


class Worker(Protocol):
    """A client that works until it is told to stop, and then ends when it has finished what it began."""

    must_stop: bool

    async def run(self) -> None: ...


class Outcome(NamedTuple):
    """A run without a broken rule."""

    seed: str
    digest: str
    events: int
    calls: int
    virtual_s: float
    counts: dict[str, int]


def run_seed(seed: str, show: Callable[[str], None] | None = None) -> Outcome:
    """Runs one seed.

    Raises:
        RuleBroken: a rule was broken.
    """
    run = _Run(seed, show)
    with run.observed.watching():
        run.world.run(run.scenario)
    run.check()
    world = run.world
    return Outcome(
        seed,
        world.trace.digest(),
        world.trace.count,
        world.timeline.calls_made,
        world.timeline.now,
        dict(sorted(run.history.counts.items())),
    )


class _Run:
    def __init__(self, seed: str, show: Callable[[str], None] | None) -> None:
        self.world = world = World(seed, show)
        self.shape = shape_of(seed)
        for name, settings in self.shape.settings.items():
            world.add_machine(name, settings)
        self.voters = [voter_of(node_id, CONTROLLER_PORT) for node_id in self.shape.controllers]
        first = [voter for voter in self.voters if voter.key.node_id in self.shape.first_voters]
        if first:
            for voter in self.voters:
                format_disk(world.machines[f"n{voter.key.node_id}"], world.cluster_id, voter, first)
        world.broker_names = self.shape.brokers
        self.observed = world.observed
        self.history = History(world)
        self._control = Client(world, "c0", is_new=True)
        self._clients = 0
        self._workers: list[Worker] = []
        self._done: dict[str, bool] = {}

    def _client(self) -> Client:
        self._clients += 1
        return Client(self.world, f"c{self._clients}", is_new=self.world.random.random() < 0.5)

    async def scenario(self) -> None:
        world = self.world
        for machine in world.machines.values():
            machine.start()
        await self._within(START_S, "topics are created", self._create_topics)
        self._employ()
        faults = Faults(world, may_lose_power=self.shape.may_lose_power, has_directories=self.shape.has_directories)
        with trio.move_on_after(WORK_S):
            await faults.run()
        faults.heal()
        for worker in self._workers:
            worker.must_stop = True
        await self._within(REST_S, "every client ends", self._clients_end)
        await self._within(REST_S, "every replica is in sync", self._in_sync)
        await self._within(REST_S, "offsets are there", self._final_offsets)
        self._compare_images()
        world.let_end()
        for machine in world.machines.values():
            await machine.stop()

    async def _within(self, seconds: float, what: str, work: Callable[[], Any]) -> None:
        with trio.move_on_after(seconds) as scope:
            await work()
        if scope.cancelled_caught:
            waiting = [name for name, done in self._done.items() if not done]
            self.world.broken(f"it takes more than {seconds:.0f} s until {what} {waiting}")
            await trio.sleep_forever()

    async def _create_topics(self) -> None:
        client = self._control
        missing = dict(TOPICS)
        while missing:
            new = [
                CreatableTopic(name=name, num_partitions=count, replication_factor=min(3, len(self.shape.brokers)))
                for name, count in missing.items()
            ]
            try:
                response = await client.call_any(CreateTopicsRequest(topics=new, timeout_ms=2000), 3000)
            except Unreachable as error:
                client.say(f"no topics yet: {error}")
            else:
                for topic in response.topics:
                    if topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        missing.pop(topic.name, None)
                    else:
                        client.say(f"no topic {topic.name}: {ErrorCode(topic.error_code).name} {topic.error_message}")
            await trio.sleep(0.1)

    def _employ(self) -> None:
        history, chance = self.history, self.world.random
        partitions = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
        orders = partitions[: TOPICS["orders"]]
        workers: list[Worker] = [
            IdempotentProducer(self._client(), history, "orders", TOPICS["orders"]),
            Copier(
                self._client(),
                history,
                COPIER,
                ("orders", TOPICS["orders"]),
                ("copies", TOPICS["copies"]),
                COPIER_GROUP,
            ),
            CarelessProducer(self._client(), history, "loose", TOPICS["loose"]),
            Reader(self._client(), history, partitions, isolation=READ_UNCOMMITTED, from_followers=True),
            Reader(self._client(), history, partitions, isolation=READ_COMMITTED, from_followers=chance.random() < 0.5),
            GroupMember(self._client(), history, GROUP, orders),
            GroupMember(self._client(), history, GROUP, orders),
            TopicAdministrator(self._client(), history, list(self.shape.brokers), partitions),
        ]
        roster = Roster(self._control, history, orders)
        workers += [
            ConsumerProtocolMember(self._client(), history, CONSUMER_GROUP, orders, roster),
            ConsumerProtocolMember(self._client(), history, CONSUMER_GROUP, orders, roster),
        ]
        ledger = Ledger(self._control, history, orders)
        workers += [ShareMember(self._client(), SHARE_GROUP, ledger) for _ in range(2)]
        if self.shape.has_streams:
            workers += self._streams_members(2)
        if self.shape.has_directories:
            workers.append(DirectoryAdministrator(self._client(), history, list(self.shape.brokers), partitions))
        if self.shape.first_voters:
            they_rejoin = self.world.machines["n1"].config.quorum.auto_join_enable
            workers.append(VoterAdministrator(self._client(), history, self.voters, they_rejoin=they_rejoin))
        for number, worker in enumerate(workers, 1):
            self._workers.append(worker)
            self.world.nursery.start_soon(self._work, f"c{number}", worker)

    def _streams_members(self, count: int) -> list[Worker]:
        topology = topology_of(STREAMS_GROUP, STREAMS_TOPICS)
        tasks = [(str(index), number) for index, name in enumerate(STREAMS_TOPICS) for number in range(TOPICS[name])]
        roster, epochs = Roster(self._control, self.history, tasks), MemberEpochs(self._control)
        return [StreamsMember(self._client(), STREAMS_GROUP, topology, roster, epochs) for _ in range(count)]

    async def _work(self, name: str, worker: Worker) -> None:
        NODE.set(name)
        name = f"{name} {type(worker).__name__}"
        self._done[name] = False
        await worker.run()
        self._done[name] = True

    async def _clients_end(self) -> None:
        while not all(self._done.values()):
            await trio.sleep(0.2)

    async def _in_sync(self) -> None:
        client = self._control
        while True:
            try:
                await client.refresh(list(TOPICS))
            except Unreachable as error:
                client.say(f"no metadata: {error}")
                await trio.sleep(0.5)
                continue
            late = {
                key: info
                for key, info in client.partitions.items()
                if info.leader < 0 or set(info.isr) != set(info.replicas)
            }
            if not late and all(machine.is_ready for machine in self.world.machines.values()):
                break
            client.say(f"not in sync: {late} {[m.name for m in self.world.machines.values() if not m.is_ready]}")
            await trio.sleep(0.5)
        for key, info in client.partitions.items():
            self.world.replicas[key] = [self.shape.brokers[node] for node in info.replicas]
        # What is under way to followers arrives.
        await trio.sleep(2.0)

    async def _final_offsets(self) -> None:
        wanted = [("orders", number) for number in range(TOPICS["orders"])]
        for group in (COPIER_GROUP, GROUP, CONSUMER_GROUP):
            while True:
                try:
                    offsets = await fetch_committed(self._control, self.history, group, wanted)
                    break
                except Unreachable as error:
                    self._control.say(str(error))
                    await self._control.pause()
            for (topic, partition), offset in offsets.items():
                self.history.final_offsets[group, topic, partition] = offset

    def _compare_images(self) -> None:
        """Nodes at the same offset of the metadata log have equal images of the cluster."""
        from pykbroker.controller.metadata.metadata_versions import METADATA_VERSION_LATEST
        from pykbroker.controller.metadata.record_framing import encode_records
        from pykbroker.controller.metadata.snapshot import image_to_records

        found: dict[int, tuple[str, Any]] = {}
        for name, node in self.observed.controllers.items():
            image = node.image
            encoded = encode_records(image_to_records(image), METADATA_VERSION_LATEST)
            before = found.setdefault(image.offset, (name, encoded))
            if before[1] != encoded:
                self.world.broken(f"the images of {name} and {before[0]} differ at offset {image.offset}")

    def check(self) -> None:
        """Compare the logs on the disks with the answers that clients got. Raises RuleBroken."""
        FinalCheck(self.world, self.history, TOPICS, {COPIER: ("orders", "copies", COPIER_GROUP)}).run()
        self.world.raise_broken()
