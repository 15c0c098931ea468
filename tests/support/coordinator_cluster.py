"""The coordinators of three brokers over replicated partitions that the test moves along, step by step.

Real coordinators, marker writers and handlers; partitions, metadata and requests between brokers are played. A broker
knows of the metadata what was delivered to it, so that one which was replaced may believe for a while that it leads. A
partition keeps Kafka's rules: followers cut what the leader does not have, the high watermark is what every in-sync
replica that the leader knows of has, a new leader comes from the in-sync set.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import trio

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.coordination.partitioning import OFFSETS_TOPIC, TRANSACTION_TOPIC
from pykbroker.coordination.runtime import CoordinatorEnvironment
from pykbroker.errors import KafkaError
from pykbroker.groups.coordinator import GroupCoordinator
from pykbroker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from pykbroker.handlers.write_txn_markers import handle_write_txn_markers
from pykbroker.logstore.errors import InvalidProducerEpoch, TransactionCoordinatorFenced
from pykbroker.logstore.recovery import marker_of
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from pykbroker.protocol.records.batch import RecordBatch
from pykbroker.replication.transaction_markers import MarkerWriter
from pykbroker.transactions.coordinator import TransactionCoordinator
from tests.support.data_path import ManualClock, topic_id
from tests.support.share_state import MemoryShareStates

NODES = (1, 2, 3)
DATA_TOPIC = "t"
TOPICS = {OFFSETS_TOPIC: 1, TRANSACTION_TOPIC: 1, DATA_TOPIC: 2}

Place = tuple[str, int]
PLACES: list[Place] = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]

MIN_ISR = 2

CONFIG = BrokerConfig.from_properties({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"})


class ReplicaLog:
    """The part of `PartitionLog` that coordinators use, in memory."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.log_start_offset = 0
        self.config = SimpleNamespace(max_message_bytes=1 << 20)
        self.path = "log"

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def iter_batches(self) -> Iterator[RecordBatch]:
        return iter(list(self.batches))


class Replica:
    """One broker's replica of a partition, with the contract of `Partition`."""

    def __init__(self, node: Node, place: Place) -> None:
        self.node = node
        self.topic, self.partition = self.place = place
        self.log = ReplicaLog()
        self.high_watermark = 0
        self.leadership: Leadership | None = None

    @property
    def image(self) -> PartitionImage:
        return self.node.image.topics_by_name[self.topic].partitions[self.partition]

    @property
    def leader_epoch(self) -> int:
        return self.image.leader_epoch

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition} of broker {self.node.node_id}"

    def follow_image(self) -> None:
        """The broker has new metadata."""
        image, old = self.image, self.leadership
        if image.leader != self.node.node_id:
            self.leadership = None
        elif old is None or old.epoch != image.leader_epoch:
            self.leadership = Leadership(image.leader_epoch)
        if old is not None and old is not self.leadership:
            old.moved.set()
        self.advance()

    def check_enough_replicas(self) -> None:
        if self.leadership is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
        if len(self.image.isr) < MIN_ISR:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "")

    def append_as_leader(self, data: bytes, now_ms: int, *args: Any, **options: Any) -> None:
        if self.leadership is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
        written = bytearray(data)
        written[:8] = self.log.log_end_offset.to_bytes(8, "big")
        written[12:16] = self.leader_epoch.to_bytes(4, "big")
        batch = RecordBatch(written)
        if batch.is_control:
            self._check_marker(batch)
        elif batch.producer_id >= 0 and batch.producer_epoch < self.producer(batch.producer_id)[0]:
            raise InvalidProducerEpoch("old epoch")
        self.log.batches.append(batch)
        self.advance()

    @property
    def replica(self) -> Replica:
        """The part with the log and the high watermark, which is the whole here."""
        return self

    def forget_ended_transactions(self) -> None:
        """Forgets nothing: no ended transactions are kept beside the log."""

    def producer(self, producer_id: int) -> tuple[int, int]:
        """Epoch, and coordinator epoch of the last marker; -1 for none."""
        epoch = -1
        for batch in reversed(self.log.batches):
            if batch.producer_id == producer_id:
                epoch = max(epoch, batch.producer_epoch)
                marker = marker_of(batch) if batch.is_control else None
                if marker is not None:
                    return epoch, marker[1]
        return epoch, -1

    def _check_marker(self, batch: RecordBatch) -> None:
        marker = marker_of(batch)
        assert marker is not None
        epoch, coordinator_epoch = self.producer(batch.producer_id)
        if batch.producer_epoch < epoch:
            raise InvalidProducerEpoch("old epoch")
        if marker[1] < coordinator_epoch:
            raise TransactionCoordinatorFenced("old coordinator")

    def fetch_from(self, leader: Replica, count: int) -> None:
        """As a follower: cuts what the leader does not have, takes some batches, and tells how far it is."""
        theirs, ours = leader.log.batches, self.log.batches
        same = min(len(ours), len(theirs))
        while same and ours[same - 1].to_bytes() != theirs[same - 1].to_bytes():
            same -= 1  # a batch that is the same has the same before it
        del ours[same:]
        ours += theirs[same : same + count]
        assert leader.leadership is not None
        leader.leadership.ends[self.node.node_id] = self.log.log_end_offset
        leader.advance()
        self.high_watermark = min(leader.high_watermark, self.log.log_end_offset)

    def advance(self) -> None:
        leadership = self.leadership
        if leadership is None or len(self.image.isr) < MIN_ISR:
            return
        ends = {**leadership.ends, self.node.node_id: self.log.log_end_offset}
        end = min(ends.get(node_id, -1) for node_id in self.image.isr)
        if end > self.high_watermark:
            self.high_watermark = end
            leadership.wake()

    def is_in_every_isr_log(self, end_offset: int) -> bool:
        others = [node_id for node_id in self.image.isr if node_id != self.node.node_id]
        ends = {} if self.leadership is None else self.leadership.ends
        return self.leadership is not None and all(ends.get(node_id, -1) >= end_offset for node_id in others)

    async def wait_replicated(self, end_offset: int, deadline: float, leadership: Leadership | None) -> ErrorCode:
        with trio.move_on_at(deadline):
            while leadership is not None and self.leadership is leadership:
                if self.high_watermark >= end_offset:
                    is_enough = len(self.image.isr) >= MIN_ISR
                    return ErrorCode.NONE if is_enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
                await leadership.moved.wait()
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REQUEST_TIMED_OUT


class Leadership:
    """Log end offsets of the followers of one leader, in one leader epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.ends: dict[int, int] = {}
        self.moved = trio.Event()

    def wake(self) -> None:
        moved, self.moved = self.moved, trio.Event()
        moved.set()


class Node:
    """One broker; its logs outlive its processes."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.image = cluster.image
        self.replicas = {place: Replica(self, place) for place in PLACES}
        self.scope: trio.CancelScope | None = None

    @property
    def is_alive(self) -> bool:
        return self.scope is not None

    def get(self, topic: str, number: int) -> Replica | None:
        return self.replicas.get((topic, number))

    async def start(self) -> None:
        """A process that knows the newest metadata."""
        cluster = self.cluster
        self.image = cluster.image
        for replica in self.replicas.values():
            replica.leadership = None
            replica.follow_image()
        clock = ManualClock()
        config: Any = SimpleNamespace(**cluster.settings)
        partitions: Any = self  # with logs in memory
        environment = CoordinatorEnvironment(self.node_id, clock, partitions, self, unused)
        self.groups = GroupCoordinator(
            CONFIG,
            environment,
            random.Random(cluster.random.random()),
            MemoryShareStates(),
        )
        self.transactions = TransactionCoordinator(
            CONFIG,
            environment,
            next_producer_id=cluster.next_producer_id,
            write_marker=self._write_marker,
            connect=partial(Connection, self),
        )
        self.services = SimpleNamespace(
            partitions=self,
            groups=self.groups,
            transactions=self.transactions,
            clock=clock,
            config=config,
            metadata=self,
        )
        await cluster.nursery.start(self._run)

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as self.scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.groups.runtime.run)
                await nursery.start(self.transactions.runtime.run)
                task_status.started()
                await trio.sleep_forever()

    def kill(self) -> None:
        """Its process is gone, whatever it was doing; its logs are there."""
        assert self.scope is not None
        self.scope.cancel()
        self.scope = None
        for replica in self.replicas.values():
            if replica.leadership is not None:
                replica.leadership.wake()

    def deliver(self) -> None:
        """The broker gets the newest metadata."""
        old, self.image = self.image, self.cluster.image
        self.image.delta = delta_between(old, self.image)
        for replica in self.replicas.values():
            replica.follow_image()
        self.groups.on_metadata_change(old, self.image)
        self.transactions.on_metadata_change(old, self.image)

    def _write_marker(self, marker: Any, topic: str, partition: int) -> Any:
        writer = MarkerWriter(self, self.groups, self.services.clock)  # type: ignore[arg-type]
        return writer.write(marker, topic, partition)


async def unused(*args: Any) -> None:
    raise AssertionError("the topics are there")


class Connection:
    """Requests between brokers; those to a dead one fail, and so do those whose receiver dies."""

    def __init__(self, sender: Node, broker_id: int) -> None:
        self._cluster = sender.cluster
        self._receiver = sender.cluster.nodes[broker_id]

    async def request(self, message: Any, timeout_ms: int, *, is_long: bool = False) -> Any:
        await trio.sleep(self._cluster.random.uniform(0.001, 0.02))
        receiver = self._receiver
        if not receiver.is_alive:
            raise NodeUnreachable("dead")
        services = receiver.services
        is_question = isinstance(message, AddPartitionsToTxnRequest)
        context: Any = SimpleNamespace(
            services=services,
            authorize_cluster=lambda operation: True,
            api_key=ApiKey.ADD_PARTITIONS_TO_TXN if is_question else ApiKey.WRITE_TXN_MARKERS,
            api_version=5,
        )
        handle: Any = handle_add_partitions_to_txn if is_question else handle_write_txn_markers
        with trio.move_on_after(timeout_ms / 1000):
            answer = await handle(context, message)
            if receiver.services is services and receiver.is_alive:
                return answer
        raise NodeUnreachable("no answer")

    async def close(self) -> None:
        pass


class Cluster:
    """The controller's part, and what moves the partitions along. All brokers run at first."""

    settings = {"request_timeout_ms": 30_000}  # noqa: RUF012

    def __init__(self, nursery: trio.Nursery, generator: random.Random) -> None:
        self.nursery = nursery
        self.random = generator
        self._next_id = 1000
        self.laggard: Node | None = None  # a broker that does not fetch for a while, and is not given up yet
        self.image = _image(
            {place: PartitionImage(place[1], NODES, NODES, 1 + i % 3, 0, 0) for i, place in enumerate(PLACES)}, NODES
        )
        self.nodes = {node_id: Node(self, node_id) for node_id in NODES}

    async def next_producer_id(self) -> int:
        await trio.sleep(0.01)
        self._next_id += 1
        return self._next_id

    def alive(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_alive]

    def partition(self, place: Place) -> PartitionImage:
        return self.image.topics_by_name[place[0]].partitions[place[1]]

    def _change(self, changed: dict[Place, PartitionImage]) -> None:
        partitions = {place: self.partition(place) for place in PLACES} | changed
        self.image = _image(partitions, [node.node_id for node in self.alive()])

    def fence_dead(self) -> None:
        """Remove dead nodes from the in-sync sets, and elect leaders from these sets where the leader is dead."""
        alive = {node.node_id for node in self.alive()}
        changed = {}
        for place in PLACES:
            old = self.partition(place)
            isr = tuple(n for n in old.isr if n in alive) or old.isr
            leader, epoch = old.leader, old.leader_epoch
            if leader not in alive:
                candidates = [n for n in isr if n in alive]
                leader = self.random.choice(candidates) if candidates else -1
                epoch += leader != old.leader
            if (isr, leader) != (old.isr, old.leader):
                changed[place] = old._replace(isr=isr, leader=leader, leader_epoch=epoch)
        self._change(changed)

    def move_leader(self, place: Place) -> None:
        """Another member of the in-sync set leads."""
        old = self.partition(place)
        others = [n for n in old.isr if n != old.leader and self.nodes[n].is_alive]
        if others:
            leader = self.random.choice(others)
            self._change({place: old._replace(leader=leader, leader_epoch=old.leader_epoch + 1)})

    def replicate(self, place: Place) -> None:
        """One follower fetches; one that has everything comes into the in-sync set."""
        follower = self.random.choice(self.alive()).replicas[place]
        if follower.node is self.laggard:
            return
        image = follower.image
        if image.leader in (follower.node.node_id, -1):
            return
        leader_node = self.nodes[image.leader]
        leader = leader_node.replicas[place]
        if not leader_node.is_alive or leader.leadership is None or leader.leader_epoch != image.leader_epoch:
            return
        follower.fetch_from(leader, self.random.choice((0, 1, 3)))
        current = self.partition(place)
        is_new = follower.node.node_id not in current.isr
        if (
            is_new
            and current.leader_epoch == image.leader_epoch
            and follower.log.log_end_offset >= leader.log.log_end_offset
        ):
            self._change({place: current._replace(isr=tuple(sorted((*current.isr, follower.node.node_id))))})
            leader_node.deliver()  # before anybody else: it must wait for this one from now on


def _image(partitions: dict[Place, PartitionImage], alive: Sequence[int]) -> ClusterImage:
    image = ClusterImage()
    image.topics_by_name = {
        topic: TopicImage(topic, topic_id(topic), {n: partitions[topic, n] for n in range(count)})
        for topic, count in TOPICS.items()
    }
    image.topics_by_id = {topic.topic_id: topic for topic in image.topics_by_name.values()}
    image.features = {"transaction.version": 2, "group.version": 1}
    image.brokers = {
        node_id: BrokerImage(node_id, 5, bytes(16), (), {}, None, node_id not in alive, False, (bytes(16),))
        for node_id in NODES
    }
    return image
