"""Replication between whole brokers on simulated machines, with the controller's elections and in-sync sets."""

from __future__ import annotations

from typing import Any

import trio

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pykbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.protocol.records.batch import build_batch, iter_batches
from pykbroker.protocol.records.record import Record
from tests.pykbroker.test_three_nodes import Cluster

TOPIC = "t"


async def create(cluster: Cluster, replicas: list[int], **config: str) -> bytes:
    """The topic's id; its one partition has these replicas, and can be written to when this returns."""
    topic = CreatableTopic(
        name=TOPIC,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
        configs=[
            CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in {"retention_ms": "-1", **config}.items()
        ],
    )
    answer = await cluster.ask(replicas[0], CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message
    # A node that is not the active controller learns of it a moment after that has answered.
    with trio.fail_after(10):
        for node_id in replicas:
            while TOPIC not in await cluster.topics(node_id):
                await trio.sleep(0.01)
    topic_id: bytes = answer.topics[0].topic_id
    return topic_id


async def produce(cluster: Cluster, node: int, topic_id: bytes, *values: str, acks: int = -1) -> Any:
    batch = build_batch([Record(n, 1000, None, value.encode(), ()) for n, value in enumerate(values)])
    data = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data])
    return (await cluster.ask(node, request)).responses[0].partition_responses[0]


async def fetch(cluster: Cluster, node: int, topic_id: bytes, offset: int = 0) -> Any:
    partition = FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic_id=topic_id, partitions=[partition])]
    return (await cluster.ask(node, FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics))).responses[0].partitions[0]


async def values(cluster: Cluster, node: int, topic_id: bytes) -> list[str]:
    """Values of the records that a consumer reads from one broker, leader or follower."""
    answer = await fetch(cluster, node, topic_id)
    assert answer.error_code == 0
    return [(r.value or b"").decode() for batch in iter_batches(answer.records) for r in batch.records()]


async def partition(cluster: Cluster, node: int) -> Any:
    return (await cluster.topics(node))[TOPIC].partitions[0]


async def until_in_sync(cluster: Cluster, node: int, *isr: int) -> None:
    with trio.fail_after(60):
        while sorted((await partition(cluster, node)).isr_nodes) != sorted(isr):
            await trio.sleep(0.1)


def test_what_is_acknowledged_is_on_all_replicas_and_outlives_the_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await create(cluster, [1, 2, 3], min_insync_replicas="2")
        assert (await produce(cluster, 1, topic_id, "a", "b")).error_code == 0
        assert (await produce(cluster, 2, topic_id, "x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await values(cluster, 1, topic_id) == ["a", "b"]
        await trio.sleep(1)
        for node in (2, 3):
            # Followers learn of the high watermark with their next fetch.
            assert await values(cluster, node, topic_id) == ["a", "b"]
        cluster.world.machines["n1"].kill()
        with trio.fail_after(60):
            while (leader := (await partition(cluster, 2)).leader_id) not in (2, 3):
                await trio.sleep(0.1)
        assert (await produce(cluster, leader, topic_id, "c")).error_code == 0
        assert await values(cluster, leader, topic_id) == ["a", "b", "c"]
        cluster.world.machines["n1"].start()
        await until_in_sync(cluster, leader, 1, 2, 3)
        assert (await produce(cluster, leader, topic_id, "d")).error_code == 0
        await trio.sleep(1)
        for node in (1, 2, 3):
            assert await values(cluster, node, topic_id) == ["a", "b", "c", "d"]

    Cluster("three").run(scenario)


def test_a_lagging_follower_leaves_the_in_sync_set_and_comes_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await create(cluster, [1, 2, 3], min_insync_replicas="3")
        assert (await produce(cluster, 1, topic_id, "a")).error_code == 0
        cluster.world.machines["n3"].kill()
        await until_in_sync(cluster, 1, 1, 2)
        assert (await produce(cluster, 1, topic_id, "b")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await produce(cluster, 1, topic_id, "c", acks=1)).error_code == 0
        # Not visible below the minimum.
        assert await values(cluster, 1, topic_id) == ["a"]
        cluster.world.machines["n3"].start()
        await until_in_sync(cluster, 1, 1, 2, 3)
        await trio.sleep(1)
        assert await values(cluster, 1, topic_id) == ["a", "c"]

    Cluster("three").run(scenario)


def test_a_reassignment_moves_the_log() -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await create(cluster, [1, 2])
        for n in range(20):
            assert (await produce(cluster, 1, topic_id, f"v{n}")).error_code == 0
        moved = ReassignablePartition(partition_index=0, replicas=[3, 2])
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[moved])])
        assert (await cluster.ask(2, request)).error_code == 0
        with trio.fail_after(60):
            while True:
                found = await partition(cluster, 2)
                if sorted(found.replica_nodes) == [2, 3] and sorted(found.isr_nodes) == [2, 3]:
                    break
                await trio.sleep(0.1)
        await trio.sleep(1)
        found = await partition(cluster, 2)
        assert await values(cluster, found.leader_id, topic_id) == [f"v{n}" for n in range(20)]
        assert (await produce(cluster, found.leader_id, topic_id, "more")).error_code == 0
        assert (await fetch(cluster, 1, topic_id)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    Cluster("three").run(scenario)


def test_records_are_deleted_on_all_replicas() -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await create(cluster, [1, 2, 3])
        assert (await produce(cluster, 1, topic_id, "a", "b", "c")).error_code == 0
        asked = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
        answer = await cluster.ask(1, DeleteRecordsRequest(topics=[asked], timeout_ms=10_000))
        result = answer.topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (0, 2)
        for node in (1, 2, 3):
            assert (await fetch(cluster, node, topic_id, 2)).log_start_offset == 2

    Cluster("three").run(scenario)
