"""Sequences of requests of share groups (KIP-932), by hand and by chance, whose answers should be the same."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from pykbroker.coordination.partitioning import SHARE_STATE_TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
)
from pykbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pykbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pykbroker.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker.protocol.messages.end_txn import EndTxnRequest
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.protocol.uuids import uuid_to_text
from tests.differential.scenarios.groups import UNKNOWN_ID, GroupWorld
from tests.support.data_path import batch

GROUP_RESOURCE = 32
LONG_MS = 10_000
SHORT_MS = 50
RELEASE_S = 0.6
LOCK_MS = 4_000
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

RANDOM_SEEDS = range(12)
RANDOM_STEPS = 60


class Member:
    """A member of a share group with its share session; it sends no heartbeats, which leaders do not ask for."""

    def __init__(self, world: GroupWorld, group_id: str, member_id: str) -> None:
        self.world = world
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = 0
        # A connection of its own, with which its session ends.
        self.client = world.client(member_id)

    def fetch(
        self,
        *acknowledgements: tuple[int, int, list[int]],
        partitions: Sequence[int] = (0,),
        version: int = 2,
        topic_id: bytes | None = None,
        **fields: Any,
    ) -> Any:
        """A ShareFetch of "clicks"; the first request names all partitions, later ones those with acknowledgements."""
        epoch = fields.pop("epoch", self.epoch)
        batches = [_batch(share_fetch, *each) for each in acknowledgements]
        named = partitions if epoch == 0 or acknowledgements or topic_id else ()
        asked = [share_fetch.FetchPartition(partition_index=p, acknowledgement_batches=batches) for p in named]
        topic = share_fetch.FetchTopic(topic_id=topic_id or self.world.topic_ids["clicks"], partitions=asked)
        request = share_fetch.ShareFetchRequest(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "share_session_epoch": epoch,
                "max_wait_ms": SHORT_MS,
                "min_bytes": 1,
                "max_records": 500,
                "batch_size": 500,
                "topics": [topic] if named else [],
                **fields,
            }
        )
        answer = self.world.call(f"share fetch {self.member_id} {epoch}", request, version, self.client)
        self._count(answer, epoch)
        return answer

    def acknowledge(self, *batches: tuple[int, int, list[int]], version: int = 2, **fields: Any) -> Any:
        """A ShareAcknowledge about partition 0 of "clicks"."""
        epoch = fields.pop("epoch", self.epoch)
        asked = share_acknowledge.AcknowledgePartition(
            partition_index=fields.pop("partition", 0),
            acknowledgement_batches=[_batch(share_acknowledge, *each) for each in batches],
        )
        topic_id = fields.pop("topic_id", self.world.topic_ids["clicks"])
        request = share_acknowledge.ShareAcknowledgeRequest(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "share_session_epoch": epoch,
                "topics": [share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=[asked])],
                **fields,
            }
        )
        label = f"share acknowledge {self.member_id} {epoch} {batches}"
        answer = self.world.call(label, request, version, self.client)
        self._count(answer, epoch)
        return answer

    def _count(self, answer: Any, epoch: int) -> None:
        if answer.error_code == 0:
            self.epoch = 0 if epoch == -1 else epoch + 1
        if epoch == -1:
            # Kafka answers before the records of the member are released.
            time.sleep(RELEASE_S)


def _batch(module: Any, first: int, last: int, types: list[int]) -> Any:
    return module.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)


def prepare(world: GroupWorld) -> None:
    """Waits until there is a share coordinator."""
    key = f"any:{uuid_to_text(world.topic_ids['clicks'])}:0"
    asked = [MetadataRequestTopic(name=SHARE_STATE_TOPIC)]
    while True:
        found = world.admin.call(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6).coordinators[0]
        topic = world.admin.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12).topics[0]
        if found.error_code == topic.error_code == 0 and all(p.leader_id >= 0 for p in topic.partitions):
            break
        time.sleep(0.1)
    # Groups enough that each partition of the share coordinator's topic has one of them.
    while not all(is_loaded(world, f"any-{number}") for number in range(20)):
        time.sleep(0.1)


def is_loaded(world: GroupWorld, group_id: str) -> bool:
    """True if the share coordinator has loaded the partition of a group; reading no state changes nothing."""
    m = read_share_group_state_summary
    partition = m.PartitionData(partition=0, leader_epoch=0)
    topic = m.ReadStateSummaryData(topic_id=world.topic_ids["clicks"], partitions=[partition])
    request = m.ReadShareGroupStateSummaryRequest(group_id=group_id, topics=[topic])
    error = world.admin.call(request, 0).results[0].partitions[0].error_code
    return error not in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )


def produce(world: GroupWorld, *sizes: int, partition: int = 0) -> int:
    """Appends batches of so many records to "clicks"; gives the offset of the first."""
    first = -1
    for size in sizes:
        data = [PartitionProduceData(index=partition, records=batch(size))]
        request = ProduceRequest(
            acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name="clicks", partition_data=data)]
        )
        offset = world.admin.call(request, 9).responses[0].partition_responses[0].base_offset
        first = offset if first < 0 else first
    return int(first)


class Transactions:
    """A transactional producer to "clicks"."""

    def __init__(self, world: GroupWorld, transactional_id: str) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.sequence = 0
        self.key: dict[str, int] = {}
        key = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        while not self.key:
            found = world.admin.call(key, 4).coordinators[0].error_code
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
            answer = world.admin.call(request, 4) if found == 0 else None
            if answer is not None and answer.error_code == 0:
                self.key = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
            time.sleep(0.05)

    def produce(self, size: int, partition: int = 0) -> None:
        """Appends a batch of the open transaction, or of a new one."""
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="clicks", partitions=[partition])],
            v3_and_below_producer_id=self.key["producer_id"],
            v3_and_below_producer_epoch=self.key["producer_epoch"],
        )
        while (
            self.world.admin.call(asked, 3)
            .results_by_topic_v3_and_below[0]
            .results_by_partition[0]
            .partition_error_code
        ):
            time.sleep(0.02)  # the transaction of before is being completed
        data = batch(size, is_transactional=True, base_sequence=self.sequence, **self.key)
        topic = TopicProduceData(name="clicks", partition_data=[PartitionProduceData(index=partition, records=data)])
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=10_000, topic_data=[topic])
        self.world.call("produce in a transaction", request, 9)
        self.sequence += size

    def end(self, *, committed: bool) -> None:
        """Ends the transaction; its markers are there afterwards."""
        request = EndTxnRequest(transactional_id=self.transactional_id, committed=committed, **self.key)
        self.world.call("end transaction", request, 3)
        look = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        while self.world.admin.call(look, 0).transaction_states[0].transaction_state.startswith("Prepare"):
            time.sleep(0.01)


def alter(world: GroupWorld, group_id: str, **topics: dict[int, int]) -> Any:
    m = alter_share_group_offsets
    asked = [
        m.AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                m.AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
                for number, offset in offsets.items()
            ],
        )
        for name, offsets in topics.items()
    ]
    request = m.AlterShareGroupOffsetsRequest(group_id=group_id, topics=asked)
    return world.call("alter share offsets", request, 0)


def describe(world: GroupWorld, group_id: str, *partitions: int, version: int = 1) -> Any:
    m = describe_share_group_offsets
    topics = [m.DescribeShareGroupOffsetsRequestTopic(topic_name="clicks", partitions=list(partitions))]
    groups = [m.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics if partitions else None)]
    return world.call("describe share offsets", m.DescribeShareGroupOffsetsRequest(groups=groups), version)


def delete_offsets(world: GroupWorld, group_id: str, *topics: str) -> Any:
    m = delete_share_group_offsets
    asked = [m.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    request = m.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=asked)
    return world.call("delete share offsets", request, 0)


def configure(world: GroupWorld, group_id: str, **configs: str) -> None:
    edits = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=edits)
    world.call("configure", IncrementalAlterConfigsRequest(resources=[resource]), 1)
    world.settle()


def members(world: GroupWorld, group_id: str, *names: str, start_offset: int) -> list[Member]:
    """Members whose share partition 0 begins at an offset; the first one has had it loaded."""
    alter(world, group_id, clicks={0: start_offset})
    return [Member(world, group_id, name) for name in names]


# By hand


def deliveries(world: GroupWorld) -> None:
    """Two members, each type of acknowledgement, and what comes again."""
    start = produce(world, 5, 5, 10)
    a, b = members(world, "s-deliveries", "a", "b", start_offset=start)
    a.fetch(max_records=3, max_wait_ms=LONG_MS)
    b.fetch(max_wait_ms=LONG_MS, batch_size=4)
    a.acknowledge((start, start + 4, [ACCEPT, RELEASE, REJECT, GAP, ACCEPT]))
    describe(world, "s-deliveries", 0)
    b.fetch((start + 5, start + 9, [ACCEPT]), max_wait_ms=LONG_MS)
    b.acknowledge((start + 1, start + 1, [ACCEPT]), (start + 10, start + 19, [RELEASE]))
    a.fetch(max_wait_ms=LONG_MS, max_records=1, share_acquire_mode=1)
    a.acknowledge((start + 10, start + 10, [REJECT]))
    a.fetch(max_wait_ms=LONG_MS, max_records=4, share_acquire_mode=1)
    a.fetch(epoch=-1)
    b.fetch(max_wait_ms=LONG_MS)
    b.acknowledge((start + 11, start + 19, [ACCEPT]))
    describe(world, "s-deliveries", 0, 1)
    describe(world, "s-deliveries", version=0)


def refused_acknowledgements(world: GroupWorld) -> None:
    start = produce(world, 10, 10)
    a, b = members(world, "s-refused", "a", "b", start_offset=start)
    a.fetch(max_records=10, max_wait_ms=LONG_MS)
    b.fetch(max_records=10, max_wait_ms=LONG_MS)
    bad: list[list[tuple[int, int, list[int]]]] = [
        [(start + 10, start + 19, [ACCEPT])],
        [(start + 5, start + 12, [ACCEPT])],
        [(start + 20, start + 29, [ACCEPT])],
        [(start + 15, start + 29, [ACCEPT])],
        [(start, start + 9, [ACCEPT]), (start + 10, start + 10, [ACCEPT])],
        [(start + 9, start, [ACCEPT])],
        [(start, start + 3, [ACCEPT, ACCEPT])],
        [(start, start + 3, [])],
        [(start, start + 3, [5])],
        [(start, start + 3, [-1])],
        [(start, start + 3, [RENEW])],
        [(start + 4, start + 5, [ACCEPT]), (start, start + 1, [ACCEPT])],
        [],
    ]
    for batches in bad:
        for version in (1, 2):
            a.acknowledge(*batches, version=version)
    a.acknowledge((start, start + 3, [ACCEPT]), partition=7)
    a.acknowledge((start, start + 3, [ACCEPT]), partition=1)
    a.acknowledge((start, start + 3, [ACCEPT]), topic_id=UNKNOWN_ID)
    a.acknowledge((start, start + 9, [ACCEPT]))
    a.acknowledge((start, start + 9, [ACCEPT]))
    a.acknowledge((start + 5, start + 12, [ACCEPT]))
    b.acknowledge((start, start + 19, [ACCEPT]))
    describe(world, "s-refused", 0)


def sessions(world: GroupWorld) -> None:
    start = produce(world, 3)
    a, b = members(world, "s-sessions", "a", "b", start_offset=start)
    for epoch in (1, -1, 5):
        a.fetch(epoch=epoch)
        a.acknowledge(epoch=epoch)
    a.acknowledge(epoch=0)
    a.fetch((start, start, [ACCEPT]), epoch=0)
    a.fetch(group_id=None)
    a.fetch(member_id="")
    a.fetch(member_id="m" * 37)
    a.fetch(max_wait_ms=LONG_MS)
    a.fetch(epoch=0, max_wait_ms=SHORT_MS)
    a.fetch(epoch=7)
    a.acknowledge(epoch=9)
    a.fetch(forgotten_topics_data=[share_fetch.ForgottenTopic(topic_id=UNKNOWN_ID, partitions=[0])])
    a.fetch(partitions=(9,), topic_id=world.topic_ids["clicks"])
    a.fetch()
    a.acknowledge((start, start + 2, [RELEASE]), epoch=-1)
    a.acknowledge(epoch=-1)
    b.fetch(max_wait_ms=LONG_MS, max_bytes=0)
    b.fetch(max_wait_ms=LONG_MS, max_records=0)
    b.fetch(max_wait_ms=LONG_MS, max_bytes=1)
    b.fetch((start, start, [RENEW]), is_renew_ack=True)
    nothing: dict[str, Any] = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    b.fetch((start, start, [RENEW]), is_renew_ack=True, **nothing)
    b.acknowledge((start, start, [RENEW]), is_renew_ack=True)
    b.acknowledge((start, start + 2, [ACCEPT]), epoch=-1)


def delivery_limits(world: GroupWorld) -> None:
    """A record that is released each time comes in smaller and smaller company, and then no more."""
    for limit in (2, 5):
        group_id = f"s-limit-{limit}"
        configure(world, group_id, share_delivery_count_limit=str(limit))
        start = produce(world, 8)
        (a,) = members(world, group_id, "a", start_offset=start)
        for _ in range(40):
            answer = a.fetch(max_wait_ms=300)
            found = [r for topic in answer.responses for p in topic.partitions for r in p.acquired_records]
            if not found:
                break
            a.acknowledge(*((r.first_offset, r.last_offset, [RELEASE]) for r in found))
        describe(world, group_id, 0)


def fewer_locks(world: GroupWorld) -> None:
    group_id = "s-locks"
    configure(world, group_id, share_partition_max_record_locks="100", share_renew_acknowledge_enable="false")
    start = produce(world, *[30] * 8)
    a, b = members(world, group_id, "a", "b", start_offset=start)
    a.fetch(max_records=70, max_wait_ms=LONG_MS)
    b.fetch(max_wait_ms=LONG_MS)
    b.fetch()
    a.acknowledge((start, start + 3, [RENEW]), is_renew_ack=True)
    a.acknowledge((start + 40, start + 49, [RELEASE]))
    b.fetch(max_wait_ms=LONG_MS)
    a.acknowledge((start, start + 39, [ACCEPT]))
    b.fetch(max_wait_ms=LONG_MS)
    describe(world, group_id, 0)


def deleted_records(world: GroupWorld) -> None:
    start = produce(world, 10, 10, 10)
    a, b = members(world, "s-deleted", "a", "b", start_offset=start)
    a.fetch(max_records=15, max_wait_ms=LONG_MS)
    a.acknowledge((start + 3, start + 5, [ACCEPT]), (start + 12, start + 14, [RELEASE]))
    partition = DeleteRecordsPartition(partition_index=0, offset=start + 13)
    topic = DeleteRecordsTopic(name="clicks", partitions=[partition])
    world.call("delete records", DeleteRecordsRequest(topics=[topic], timeout_ms=5_000), 2)
    b.fetch(max_wait_ms=LONG_MS)
    b.fetch(max_wait_ms=LONG_MS)
    a.acknowledge((start, start + 2, [ACCEPT]))
    a.acknowledge((start + 6, start + 19, [ACCEPT]))
    b.fetch()
    describe(world, "s-deleted", 0)


def administration(world: GroupWorld) -> None:
    alter(world, "s-admin", clicks={0: 3, 1: 0, 9: 1}, missing={0: 0})
    alter(world, "", clicks={0: 3})
    describe(world, "s-admin", 0, 1)
    describe(world, "s-admin")
    describe(world, "s-none", 0)
    describe(world, "s-none")
    delete_offsets(world, "s-admin", "clicks", "missing", "views")
    delete_offsets(world, "s-admin", "clicks")
    delete_offsets(world, "s-none", "clicks")
    delete_offsets(world, "", "clicks")
    describe(world, "s-admin", 0)
    alter(world, "s-admin", views={0: 1})
    world.call("delete groups", DeleteGroupsRequest(groups_names=["s-admin", "s-none"]), 2)
    describe(world, "s-admin", 0)


def lock_expiry(world: GroupWorld) -> None:
    """Locks expire and are renewed; after the last delivery the record is archived."""
    group_id = "s-expiry"
    configure(world, group_id, share_record_lock_duration_ms=str(LOCK_MS), share_delivery_count_limit="2")
    start = produce(world, 4, 4)
    a, b = members(world, group_id, "a", "b", start_offset=start)
    a.fetch(max_wait_ms=LONG_MS)
    a.acknowledge((start, start + 1, [ACCEPT]))
    time.sleep(1.25 * LOCK_MS / 1000)
    describe(world, group_id, 0)
    a.acknowledge((start + 2, start + 2, [ACCEPT]))
    b.fetch(max_wait_ms=LONG_MS)
    time.sleep(0.5 * LOCK_MS / 1000)
    b.acknowledge((start + 2, start + 3, [RENEW]), is_renew_ack=True)
    time.sleep(0.75 * LOCK_MS / 1000)
    b.acknowledge((start + 4, start + 5, [ACCEPT]))
    b.acknowledge((start + 2, start + 2, [ACCEPT]))
    time.sleep(0.75 * LOCK_MS / 1000)
    b.acknowledge((start + 3, start + 3, [ACCEPT]))
    a.fetch(max_wait_ms=300)
    describe(world, group_id, 0)


def isolation(world: GroupWorld) -> None:
    """Committed, aborted and open transactions, for groups of both isolation levels."""
    groups = ("s-committed", "s-uncommitted")
    configure(world, groups[0], share_isolation_level="read_committed")
    one, other = Transactions(world, "s-one"), Transactions(world, "s-other")
    start = produce(world, 3)
    one.produce(4)
    other.produce(2)
    produce(world, 2)
    other.end(committed=False)
    one.end(committed=True)
    other.produce(3)
    produce(world, 4)
    one.produce(2)
    one.end(committed=False)
    for group_id in groups:
        (a,) = members(world, group_id, "a", start_offset=start)
        first = a.fetch(max_wait_ms=LONG_MS, max_records=5)
        for _ in range(12):
            found = [r for topic in first.responses for p in topic.partitions for r in p.acquired_records]
            if not found:
                break
            first = a.fetch(*((r.first_offset, r.last_offset, [ACCEPT]) for r in found), max_wait_ms=300)
        describe(world, group_id, 0)
        a.fetch(epoch=-1)
    other.end(committed=False)
    for group_id in groups:
        a = Member(world, group_id, "b")
        answer = a.fetch(max_wait_ms=1_000)
        found = [r for topic in answer.responses for p in topic.partitions for r in p.acquired_records]
        if found:
            a.acknowledge(*((r.first_offset, r.last_offset, [ACCEPT]) for r in found))
        a.fetch()
        describe(world, group_id, 0)


def several_partitions(world: GroupWorld) -> None:
    """One session with two partitions: acquired, acknowledged and forgotten one by one and together."""
    group_id = "s-several"
    starts = [produce(world, 3, 6, partition=number) for number in (0, 1)]
    alter(world, group_id, clicks=dict(enumerate(starts)))
    a, b, first = (Member(world, group_id, name) for name in ("a", "b", "first"))
    both = (0, 1)
    for number in both:
        # Has it loaded: a fetch returns without partitions that are not.
        first.fetch(partitions=(number,), max_wait_ms=LONG_MS, max_records=1)
        first.fetch(epoch=-1)
    a.fetch(partitions=both, max_wait_ms=LONG_MS, batch_size=3)
    b.fetch(partitions=both)
    a.acknowledge((starts[0], starts[0] + 2, [ACCEPT]))
    a.acknowledge((starts[1], starts[1] + 4, [RELEASE]), partition=1)
    b.fetch(max_wait_ms=LONG_MS)
    b.acknowledge((starts[1], starts[1] + 4, [ACCEPT]), partition=1)
    describe(world, group_id, 0, 1)
    topic_id = world.topic_ids["clicks"]
    a.fetch(forgotten_topics_data=[share_fetch.ForgottenTopic(topic_id=topic_id, partitions=[1])])
    produce(world, 2, partition=1)
    a.fetch(max_wait_ms=300)
    b.fetch(max_wait_ms=LONG_MS)
    a.acknowledge((starts[0] + 3, starts[0] + 8, [REJECT]))
    produce(world, 5)
    a.fetch(max_wait_ms=LONG_MS)
    a.acknowledge((starts[0] + 9, starts[0] + 13, [ACCEPT]), epoch=-1)
    b.fetch(epoch=-1)
    describe(world, group_id)


SCENARIOS: tuple[Callable[[GroupWorld], None], ...] = (
    deliveries,
    refused_acknowledgements,
    sessions,
    delivery_limits,
    fewer_locks,
    lock_expiry,
    isolation,
    several_partitions,
    administration,
    deleted_records,
)


# By chance


def random_history(world: GroupWorld, seed: int) -> None:
    """Members fetch and acknowledge by chance; what they do depends on the seed and on what they were given."""
    chance = random.Random(seed)
    group_id = f"s-random-{seed}"
    configure(
        world,
        group_id,
        share_delivery_count_limit=str(chance.choice((2, 3, 5, 10))),
        share_partition_max_record_locks=str(chance.choice((100, 2_000))),
    )
    start = produce(world, *(chance.choice((1, 2, 5, 20)) for _ in range(10)))
    everybody = members(world, group_id, "a", "b", "c", start_offset=start)
    held: dict[str, list[tuple[int, int]]] = {member.member_id: [] for member in everybody}
    everybody[0].fetch(max_wait_ms=LONG_MS, max_records=1)
    everybody[0].fetch(epoch=-1)
    for _ in range(RANDOM_STEPS):
        member = chance.choice(everybody)
        step = chance.random()
        if step < 0.45:
            answer = member.fetch(
                max_records=chance.choice((1, 3, 10, 500)),
                batch_size=chance.choice((1, 5, 500)),
                share_acquire_mode=chance.choice((0, 0, 1)),
            )
            held[member.member_id] += [
                (r.first_offset, r.last_offset)
                for topic in answer.responses
                for p in topic.partitions
                for r in p.acquired_records
            ]
        elif step < 0.85:
            _acknowledge_some(chance, member, held, start)
        elif step < 0.93:
            produce(world, *(chance.choice((1, 5, 20)) for _ in range(chance.randint(1, 3))))
        else:
            if member.epoch:
                member.fetch(epoch=-1)
            held[member.member_id] = []
    describe(world, group_id, 0)
    for member in everybody:
        if member.epoch:
            member.fetch(epoch=-1)


def _acknowledge_some(
    chance: random.Random, member: Member, held: dict[str, list[tuple[int, int]]], start: int
) -> None:
    if not member.epoch:
        return
    own = held[member.member_id]
    kinds = (ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, GAP)
    first, last = start, start
    if own:
        index = chance.randrange(len(own))
        first, last = own[index]
        if chance.random() < 0.4:
            # A part of it; the rest is kept.
            first = chance.randint(first, last)
            last = chance.randint(first, last)
        else:
            own.pop(index)
        if chance.random() < 0.1:
            last += chance.choice((1, 3))
    types = [chance.choice(kinds)]
    if chance.random() < 0.3 and last > first:
        types = [chance.choice(kinds) for _ in range(last - first + 1)]
    member.acknowledge((first, last, types))
