"""Random histories of three brokers: coordinators that die, move and learn of it late, and logs that lose their tails.

What must hold whatever happens: committed offsets never go back for a reader, a commit that was answered is never lost,
a transaction is committed in all its partitions or in none, as it was answered, and its offsets with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pykbroker.coordination.loaded_shards import LoadedShards
from pykbroker.coordination.partitioning import OFFSETS_TOPIC, TRANSACTION_TOPIC
from pykbroker.coordination.replication_queue import ReplicationQueues
from pykbroker.coordination.shard import TransactionalProducer
from pykbroker.errors import CoordinatorError, KafkaError
from pykbroker.groups import offset_commit, offset_fetch
from pykbroker.logstore.errors import LogError
from pykbroker.logstore.recovery import marker_of
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.control import ControlRecordType
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.steps import finished
from pykbroker.replication.transaction_markers import AppendedMarker
from pykbroker.transactions import completion
from pykbroker.transactions.marker_queue import Progress
from pykbroker.transactions.states import ProducerIdentity
from tests.simulation.timeline import Timeline
from tests.support.coordinator_cluster import DATA_TOPIC, PLACES, Cluster, Node, Place
from tests.support.data_path import topic_id

WORK_S = 20.0
REST_S = 60.0
"""Longer than a transaction may take: one whose producer has given up is aborted by then."""

SEEDS_TO_FIND = 25

ID, GROUP, TRANSACTIONAL_GROUP = "x", "g", "h"
Known = tuple[int, int]


class NoAnswer(Exception):
    """The broker is not there, is not the one, or died meanwhile."""


async def ask(node: Node, seconds: float, question: Any, *args: Any, **options: Any) -> Any:
    """The answer of a broker's present process; raises NoAnswer without one."""
    services = node.services
    try:
        with trio.move_on_after(seconds):
            answer = await question(*args, **options)
            if node.is_alive and node.services is services:
                return answer
    except RuntimeError:
        if node.is_alive and node.services is services:
            raise
        # Its nursery is closed. In a real broker this request's task would be gone with it.
    raise NoAnswer


def commit_request(group_id: str, offset: int) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    topics = [OffsetCommitRequestTopic(name=DATA_TOPIC, topic_id=topic_id(DATA_TOPIC), partitions=partitions)]
    return OffsetCommitRequest(group_id=group_id, topics=topics)


class History:
    """The clients of a cluster, and what they were told."""

    def __init__(self, cluster: Cluster, generator: random.Random) -> None:
        self.cluster = cluster
        self.random = generator
        self.must_stop = False
        self.commits_answered = 0
        self.last_acknowledged = -1
        self.last_told = -1
        self.number = 0
        self.written: dict[int, set[int]] = {}
        self.outcomes: dict[int, bool | None] = {}
        self.offset_of_transaction: set[int] = set()

    def pick(self) -> Node:
        alive = self.cluster.alive()
        if not alive:
            raise NoAnswer
        return self.random.choice(alive)

    def coordinator(self, topic: str) -> Node:
        """A broker that takes itself for the leader, mostly the one that is."""
        leader = self.cluster.partition((topic, 0)).leader
        if leader >= 0 and self.cluster.nodes[leader].is_alive and self.random.random() < 0.8:
            return self.cluster.nodes[leader]
        return self.pick()

    async def pause(self) -> None:
        await trio.sleep(self.random.uniform(0.005, 0.1))

    # A group

    async def commit(self) -> None:
        """Commits ever larger offsets, one after the other."""
        offset = 0
        while not self.must_stop:
            await self.pause()
            offset += 1
            try:
                node = self.coordinator(OFFSETS_TOPIC)
                response = await ask(
                    node, 6, offset_commit.commit_offsets, node.groups, commit_request(GROUP, offset), 9
                )
            except NoAnswer:
                continue
            if response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                self.commits_answered += 1
                self.last_acknowledged = offset

    async def read(self) -> None:
        while not self.must_stop:
            await trio.sleep(self.random.uniform(0.005, 0.05))
            self.read_once()

    def read_once(self) -> None:
        """A broker that was replaced and has not heard of it tells what it has, as in Kafka; it is not asked."""
        leader = self.cluster.partition((OFFSETS_TOPIC, 0)).leader
        node = self.cluster.nodes.get(leader)
        if node is None or not node.is_alive:
            return
        told = self.offset(node, GROUP)
        if told is not None:
            assert told >= self.last_told, "an offset went back"
            assert told >= self.last_acknowledged, "a commit that was answered is lost"
            self.last_told = told
        told = self.offset(node, TRANSACTIONAL_GROUP)
        if told is not None and told >= 0:
            assert self.outcomes.get(told, True) is not False, "an offset of an aborted transaction"

    def offset(self, node: Node, group_id: str) -> int | None:
        request = OffsetFetchRequestGroup(
            group_id=group_id, topics=[OffsetFetchRequestTopics(name=DATA_TOPIC, partition_indexes=[0])]
        )
        try:
            _, shard = node.groups.runtime.find(group_id)
        except CoordinatorError:
            return None
        answer = finished(offset_fetch.fetch(shard, request, require_stable=True))
        if answer.error_code != ErrorCode.NONE or answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
            return None
        offset: int = answer.topics[0].partitions[0].committed_offset
        return offset

    # A transactional producer

    async def produce(self) -> None:
        known: Known | None = None
        while not self.must_stop:
            await self.pause()
            try:
                known = await self._begin() if known is None else await self._transaction(known)
            except NoAnswer:
                known = None

    async def _begin(self) -> Known | None:
        node = self.coordinator(TRANSACTION_TOPIC)
        answer = await ask(node, 35, node.transactions.init_producer_id, ID, 20_000, None)
        return (answer.producer_id, answer.producer_epoch) if answer.error is ErrorCode.NONE else None

    async def _transaction(self, known: Known) -> Known | None:
        """One transaction; gives what the next one goes on with, None if the producer has to begin anew."""
        self.number += 1
        number = self.number
        partitions = self.random.sample((0, 1), self.random.choice((1, 2)))
        self.written[number] = set()
        self.outcomes[number] = None
        is_commit = self.random.random() < 0.7
        for partition in partitions:
            is_commit = await self._write(known, partition, number) and is_commit
        if self.random.random() < 0.7:
            is_commit = await self._commit_offset(known, number) and is_commit
        return await self._end(known, number, is_commit)

    async def _add(self, node: Node, known: Known, place: Place) -> bool:
        """As the leader of a partition does before it takes what is part of a transaction."""
        for _ in range(20):
            codes = await ask(
                node, 35, node.transactions.verify_anywhere, ProducerIdentity(ID, *known), [place], add=True
            )
            if codes[place] is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return bool(codes[place] is ErrorCode.NONE)
            await self.pause()
        return False

    async def _write(self, known: Known, partition: int, number: int) -> bool:
        place = (DATA_TOPIC, partition)
        try:
            node = self.coordinator_of(place)
            if not await self._add(node, known, place):
                return False
            replica = node.replicas[place]
            batch = build_batch(
                [Record(0, 0, None, b"%d" % number)],
                producer_id=known[0],
                producer_epoch=known[1],
                base_sequence=0,
                is_transactional=True,
            )
            leadership = replica.leadership
            replica.check_enough_replicas()
            replica.append_as_leader(batch, 0)
            end = replica.log.log_end_offset
            error = await ask(node, 6, replica.wait_replicated, end, trio.current_time() + 5, leadership)
        except (NoAnswer, KafkaError, LogError):
            return False
        if error is ErrorCode.NONE:
            self.written[number].add(partition)
        return bool(error is ErrorCode.NONE)

    def coordinator_of(self, place: Place) -> Node:
        leader = self.cluster.partition(place).leader
        if leader < 0 or not self.cluster.nodes[leader].is_alive:
            raise NoAnswer
        return self.cluster.nodes[leader]

    async def _commit_offset(self, known: Known, number: int) -> bool:
        try:
            node = self.coordinator(OFFSETS_TOPIC)
            if not await self._add(node, known, (OFFSETS_TOPIC, 0)):
                return False
            request = commit_request(TRANSACTIONAL_GROUP, number)
            producer = TransactionalProducer(*known)
            response = await ask(node, 6, offset_commit.commit_offsets, node.groups, request, 5, producer, None)
        except NoAnswer:
            return False
        is_committed = response.topics[0].partitions[0].error_code == ErrorCode.NONE
        if is_committed:
            self.offset_of_transaction.add(number)
        return bool(is_committed)

    async def _end(self, known: Known, number: int, is_commit: bool) -> Known | None:
        while True:
            try:
                node = self.coordinator(TRANSACTION_TOPIC)
                end = node.transactions.end
                answer = await ask(node, 35, end, ID, *known, is_commit=is_commit, client_version=2)
            except NoAnswer:
                await self.pause()
                continue
            if answer.error is ErrorCode.NONE:
                self.outcomes[number] = is_commit
                return answer.producer_id, answer.producer_epoch
            if answer.error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE):
                return None  # it took too long and was aborted
            await self.pause()

    # The end

    def check_transactions(self) -> None:
        committed: dict[int, set[int]] = {0: set(), 1: set()}
        aborted: dict[int, set[int]] = {0: set(), 1: set()}
        for partition in (0, 1):
            place = (DATA_TOPIC, partition)
            log = self.cluster.nodes[self.cluster.partition(place).leader].replicas[place].log
            is_open: dict[int, list[int]] = {}
            for batch in log.iter_batches():
                if not batch.is_control:
                    numbers = [int(bytes(record.value or b"")) for record in batch.records()]
                    is_open.setdefault(batch.producer_id, []).extend(numbers)
                    continue
                marker = marker_of(batch)
                assert marker is not None
                ended = committed if marker[0] == ControlRecordType.COMMIT else aborted
                ended[partition].update(is_open.pop(batch.producer_id, []))
            assert not any(is_open.values()), "a transaction hangs"
        for number, partitions in self.written.items():
            fates = {number in committed[partition] for partition in partitions}
            assert len(fates) <= 1, f"transaction {number} is half committed"
            lost = [partition for partition in partitions if number not in committed[partition] | aborted[partition]]
            assert not lost, f"transaction {number} lost records that were acknowledged"
            outcome = self.outcomes[number]
            assert outcome is None or not fates or fates == {outcome}, f"transaction {number} was answered {outcome}"


class Troubles:
    """Faults that are injected into a cluster."""

    def __init__(self, cluster: Cluster, generator: random.Random) -> None:
        self.cluster = cluster
        self.random = generator
        self.is_busy = True

    async def replicate(self) -> None:
        while True:
            await trio.sleep(0.005 if self.is_busy else 0.1)
            for place in PLACES:
                if self.cluster.alive():
                    self.cluster.replicate(place)

    async def deliver(self) -> None:
        while True:
            await trio.sleep(self.random.choice((0.01, 0.05, 0.3)))
            if self.cluster.alive():
                self.random.choice(self.cluster.alive()).deliver()

    async def trouble(self) -> None:
        cluster = self.cluster
        with trio.move_on_after(WORK_S):
            while True:
                await trio.sleep(self.random.uniform(0.05, 1.5))
                what = self.random.choice(("move", "move", "move", "lag", "lag", "kill", "start", "start", "fence"))
                cluster.laggard = None
                dead = [node for node in cluster.nodes.values() if not node.is_alive]
                if what == "move":
                    cluster.move_leader(self.random.choice(PLACES))
                elif what == "lag":
                    cluster.laggard = self.random.choice(list(cluster.nodes.values()))
                    await trio.sleep(0.1)
                    cluster.move_leader(self.random.choice(PLACES[:2]))
                    await trio.sleep(0.2)
                    cluster.move_leader(self.random.choice(PLACES[:2]))
                elif what == "kill" and len(dead) < 2:
                    self.random.choice(cluster.alive()).kill()
                elif what == "start" and dead:
                    cluster.fence_dead()
                    await self.random.choice(dead).start()
                elif what == "fence":
                    cluster.fence_dead()
        self.is_busy, cluster.laggard = False, None
        cluster.fence_dead()
        for node in cluster.nodes.values():
            if not node.is_alive:
                await node.start()
        cluster.fence_dead()


async def live(seed: int) -> History:
    generator = random.Random(seed)
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, generator)
        for node in cluster.nodes.values():
            await node.start()
        history, troubles = History(cluster, generator), Troubles(cluster, generator)
        nursery.start_soon(troubles.replicate)
        nursery.start_soon(troubles.deliver)
        for client in (history.commit, history.read, history.produce):
            nursery.start_soon(client)
        await troubles.trouble()
        history.must_stop = True
        await trio.sleep(REST_S)
        history.read_once()
        history.check_transactions()
        nursery.cancel_scope.cancel()
    return history


def run(seed: int) -> History:
    histories: list[History] = []

    async def main() -> None:
        histories.append(await live(seed))

    Timeline(str(seed)).run(main)
    return histories[0]


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_was_told_is_taken_back(seed: int) -> None:
    history = run(seed)
    assert history.commits_answered > 20
    assert history.number > 2


# The histories find what they are for


def answers_before_replicas_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicationQueues, "must_wait", lambda *args: False)


def reads_not_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is known to be replicated: less than the partition's log, which will be."""
    read = LoadedShards._read

    async def read_less(self: Any, number: int, load: Any, partition: Any) -> Any:
        below = [batch for batch in partition.log.batches if batch.next_offset <= partition.high_watermark]
        seen = SimpleNamespace(log=SimpleNamespace(iter_batches=lambda: iter(below), path=""), leader_epoch=load.epoch)
        return await read(self, number, load, seen)

    monkeypatch.setattr(LoadedShards, "_read", read_less)


def serves_what_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(self: Any, partition: Any) -> bool:
        return True

    monkeypatch.setattr(LoadedShards, "_is_replicated", at_once)


def forgets_markers_when_a_leader_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def optimist(error: ErrorCode) -> Progress:
        return Progress.GIVEN_UP if error is ErrorCode.INVALID_PRODUCER_EPOCH else Progress.WRITTEN

    monkeypatch.setattr(completion, "progress_of", optimist)


def does_not_wait_for_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(self: Any, deadline: float) -> ErrorCode:
        return ErrorCode.NONE

    monkeypatch.setattr(AppendedMarker, "wait_replicated", at_once)


MISTAKES = (
    (answers_before_replicas_have_it, 1),
    (reads_not_to_the_end, 7),
    (serves_what_may_be_lost, 10),
    (forgets_markers_when_a_leader_changes, 0),
    (does_not_wait_for_markers, 5),
)
"""With a seed that once showed it. Changes of the code change histories: then the seeds after it are tried."""


@pytest.mark.parametrize(("mistake", "first"), MISTAKES)
def test_a_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    for seed in range(first, first + SEEDS_TO_FIND):
        try:
            run(seed)
        except BaseExceptionGroup as broken:
            if broken.subgroup(AssertionError) is not None:
                return
            raise
        except AssertionError:
            return
    pytest.fail("no history shows it")
