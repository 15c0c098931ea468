"""A partition with followers: the leader's side, by fetches and produce requests as they arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pykbroker.controller.metadata.image import BrokerImage, ClusterImage
from pykbroker.handlers.fetch import handle_fetch
from pykbroker.handlers.produce import handle_produce
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.replication.partition import Partition
from tests.support.data_path import DataPath, batch, cluster_image, topic_id, topic_image, with_delta

NO_DIRECTORY = bytes(16)


def broker(broker_id: int, *, is_fenced: bool = False) -> BrokerImage:
    epoch = broker_id * 10
    return BrokerImage(broker_id, epoch, NO_DIRECTORY, (), {}, None, is_fenced, False, (NO_DIRECTORY,))


def three(image: ClusterImage) -> ClusterImage:
    image.brokers = {number: broker(number) for number in (1, 2, 3)}
    return image


class Replicated(DataPath):
    """Broker 1 with the partition t-0, whose other replicas are on 2 and 3."""

    def __init__(self, folder: Path, *, min_insync_replicas: int = 2, **image: Any) -> None:
        topic = topic_image("t", **{"followers": (2, 3), "isr": (1, 2, 3), **image})
        configs = {"t": {"min.insync.replicas": str(min_insync_replicas)}}
        super().__init__(folder, three(cluster_image(topic, configs=configs)))
        self.image = self.services.metadata.image
        self.proposals: list[Any] = []
        self.partitions.environment.propose = lambda partition, proposal: self.proposals.append(proposal)

    @property
    def partition(self) -> Partition:
        found = self.partitions.get("t", 0)
        assert found is not None
        return found

    def change(self, **image: Any) -> None:
        """The metadata changes."""
        topic = topic_image("t", **{"followers": (2, 3), "isr": (1, 2, 3), **image})
        new = with_delta(three(cluster_image(topic)))
        before = self.image.topics_by_name["t"]
        new.delta = new.delta._replace(created_topics=(), changed_topics=((before, topic),))
        self.partitions.apply(self.image, new)
        self.services.metadata.apply(self.image, new)
        self.image = new

    async def fetch(
        self, replica_id: int, offset: int, *, max_wait_ms: int = 0, version: int = 17, epoch: int = 0, **asked: Any
    ) -> Any:
        partition = FetchPartition(
            partition_max_bytes=1 << 20,
            **{"fetch_offset": offset, "current_leader_epoch": epoch, "log_start_offset": 0, **asked},
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            topics=[FetchTopic(topic="t", topic_id=topic_id("t"), partitions=[partition])],
        )
        if version >= 15 and replica_id >= 0:
            request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=replica_id * 10)
        else:
            request.replica_id = replica_id
        response = await self.call(handle_fetch, request, version)
        self.response = response
        return response.responses[0].partitions[0]

    async def produce(self, *, acks: int = -1, timeout_ms: int = 10_000, version: int = 13) -> Any:
        data = [PartitionProduceData(index=0, records=batch())]
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name="t", topic_id=topic_id("t"), partition_data=data)],
        )
        return (await self.call(handle_produce, request, version)).responses[0].partition_responses[0]


@pytest.fixture
def path(tmp_path: Path) -> Any:
    data_path = Replicated(tmp_path)
    yield data_path
    data_path.close()


async def test_acks_all_waits_for_the_in_sync_replicas(path: Replicated) -> None:
    """P-46, P-47: and consumers see nothing before."""
    results: list[Any] = []

    async def produce() -> None:
        results.append(await path.produce())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        await wait_all_tasks_blocked()
        assert (path.partition.log.log_end_offset, path.partition.high_watermark) == (1, 0)
        assert len((await path.fetch(-1, 0)).records) == 0
        assert len((await path.fetch(2, 0)).records)
        await path.fetch(2, 1)
        await wait_all_tasks_blocked()
        assert results == []
        # Its own fetch moves the high watermark, which it is told at once.
        assert (await path.fetch(3, 1)).high_watermark == 1
    assert (results[0].error_code, results[0].base_offset) == (0, 0)
    assert len((await path.fetch(-1, 0)).records)


async def test_acks_1_waits_for_nobody(path: Replicated) -> None:
    assert (await path.produce(acks=1)).error_code == ErrorCode.NONE
    assert path.partition.high_watermark == 0


async def test_a_wait_ends_with_the_time(path: Replicated) -> None:
    result = await path.produce(timeout_ms=300)
    assert (result.error_code, result.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert path.partition.log.log_end_offset == 1


async def test_leadership_ends_while_a_producer_waits(path: Replicated) -> None:
    """KIP-951: and it learns who leads now."""
    results: list[Any] = []

    async def produce() -> None:
        results.append(await path.produce())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        await wait_all_tasks_blocked()
        path.change(leader=2, followers=(1, 3), leader_epoch=1, partition_epoch=1)
        # Leading again later does not help: what was appended may be gone.
        path.change(leader_epoch=2, partition_epoch=2)
    (result,) = results
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert result.current_leader.leader_epoch == 2


async def test_the_set_shrinks_below_the_minimum_after_the_append(path: Replicated) -> None:
    """P-46."""
    results: list[Any] = []

    async def produce() -> None:
        results.append(await path.produce())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        await wait_all_tasks_blocked()
        await path.fetch(2, 0)
        await path.fetch(3, 0)
        path.change(isr=(1,), partition_epoch=1)
        await wait_all_tasks_blocked()
        # The high watermark does not move below the minimum.
        assert results == []
        assert path.partition.high_watermark == 0
        assert (await path.produce()).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        # Nor while those who were just taken out may come back at once.
        path.clock.time_ms += 31_000
        path.partition.log.config = path.partition.log.config._replace(min_insync_replicas=1)
        path.change(isr=(1,), partition_epoch=2)
    assert results[0].error_code == ErrorCode.NONE


async def test_a_fetch_of_a_follower_waits_for_the_log_end(path: Replicated) -> None:
    answers: list[Any] = []

    async def follow() -> None:
        answers.append(await path.fetch(2, 0, max_wait_ms=10_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        await path.produce(acks=1)
    assert len(answers[0].records)


async def test_fences(path: Replicated) -> None:
    path.change(leader_epoch=3, partition_epoch=1)
    assert (await path.fetch(2, 0, epoch=2)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (await path.fetch(2, 0, epoch=4)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await path.fetch(9, 0, epoch=3)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await path.fetch(9, 0, epoch=-1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await path.fetch(2, 1, epoch=3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert path.partition.leadership is not None
    assert path.partition.leadership.followers[2].log_end_offset == -1


async def test_a_follower_is_no_leader(path: Replicated) -> None:
    await path.produce(acks=1)
    path.change(leader=2, followers=(1, 3), leader_epoch=1, partition_epoch=1)
    answer = await path.fetch(3, 0, epoch=1)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)
    answer = await path.produce()
    assert (answer.error_code, answer.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    # KIP-392: consumers may read of it, since they can say in which rack they are.
    assert (await path.fetch(-1, 0, epoch=1, version=11)).error_code == ErrorCode.NONE
    assert (await path.fetch(-1, 0, epoch=1, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_comes_back_into_the_set(path: Replicated) -> None:
    path.change(isr=(1, 2), partition_epoch=1)
    await path.fetch(3, 0)
    (proposal,) = path.proposals
    assert proposal.isr == ((1, 10), (2, -1), (3, 30))
    path.partition.on_proposal_accepted(proposal, (1, 2, 3), 0, 2)
    assert path.partition.isr == (1, 2, 3)


async def test_the_new_leader_knows_where_its_epoch_began(path: Replicated) -> None:
    """KIP-279: also when nothing was appended in it."""
    await path.produce(acks=1)
    path.change(leader_epoch=5, partition_epoch=1)
    assert path.partition.log.leader_epochs.entries == ((0, 0), (5, 1))
    diverging = (await path.fetch(2, 3, epoch=5, last_fetched_epoch=4)).diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (0, 1)


async def test_another_set_of_replicas_without_this_broker(path: Replicated) -> None:
    """The end of a reassignment: the log goes."""
    path.change(leader=2, followers=(3,), isr=(2, 3), leader_epoch=1, partition_epoch=1)
    assert path.partitions.get("t", 0) is None
    assert (await path.produce()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
