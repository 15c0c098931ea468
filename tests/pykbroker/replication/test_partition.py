"""A partition with followers: the leader's side, by fetches and produce requests as they arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.image import Acl, BrokerImage, ClusterImage, Endpoint
from pykbroker.handlers.delete_records import handle_delete_records
from pykbroker.handlers.fetch import handle_fetch
from pykbroker.handlers.list_offsets import handle_list_offsets
from pykbroker.handlers.produce import handle_produce
from pykbroker.protocol.acl_codes import ALLOW, CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, LITERAL
from pykbroker.protocol.codec import encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.quotas.rates import QuotaWindows, SimpleWindowedRate
from pykbroker.replication.partition import Partition
from pykbroker.replication.throttle import ReplicationThrottle
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.pykbroker.network.test_tls_connection import context
from tests.pykbroker.security.tls.certificates import listener_tls, server, texts
from tests.support.connections import Client, served
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


async def test_a_follower_comes_back_to_a_leader_that_has_lost_its_end(path: Replicated) -> None:
    """P-86: the log was loaded, and found to be shorter, after the epoch had begun at the end that was lost."""
    path.change(isr=(1, 2), partition_epoch=1)
    assert path.partition.leadership is not None
    path.partition.leadership.epoch_start_offset = 5
    await path.fetch(3, 0)
    (proposal,) = path.proposals
    assert proposal.broker_ids == (1, 2, 3)


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


async def list_latest(path: Replicated, version: int = 10, timestamp: int = -1) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    return (await path.call(handle_list_offsets, request, version)).topics[0].partitions[0]


async def test_a_new_leader_does_not_tell_an_end_that_goes_back(path: Replicated) -> None:
    """KIP-207: until its high watermark is at the beginning of its epoch."""
    await path.produce(acks=1)
    assert (await list_latest(path)).error_code == ErrorCode.NONE
    path.change(leader_epoch=1, partition_epoch=1)
    assert (await list_latest(path)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert (await list_latest(path, version=4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (await list_latest(path, timestamp=1 << 50)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert (await list_latest(path, timestamp=-2)).offset == 0
    await path.fetch(2, 1, epoch=1)
    await path.fetch(3, 1, epoch=1)
    assert (await list_latest(path)).offset == 1


async def test_only_the_leader_tells_offsets(path: Replicated) -> None:
    path.change(leader=2, followers=(1, 3), leader_epoch=1, partition_epoch=1)
    assert (await list_latest(path)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def delete_records(path: Replicated, offset: int, timeout_ms: int = 10_000) -> Any:
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
    return (await path.call(handle_delete_records, request, 2)).topics[0].partitions[0]


async def test_records_are_deleted_when_all_live_replicas_have_deleted_them(path: Replicated) -> None:
    """KIP-107."""
    await path.produce(acks=1)
    for replica in (2, 3):
        await path.fetch(replica, 1)
    answers: list[Any] = []

    async def delete() -> None:
        answers.append(await delete_records(path, 1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete)
        await wait_all_tasks_blocked()
        await path.fetch(2, 1, log_start_offset=1)
        await wait_all_tasks_blocked()
        assert answers == []
        await path.fetch(3, 1, log_start_offset=1)
    assert (answers[0].error_code, answers[0].low_watermark) == (ErrorCode.NONE, 1)


async def test_a_follower_does_not_move_its_log_start_in_time(path: Replicated) -> None:
    await path.produce(acks=1)
    for replica in (2, 3):
        await path.fetch(replica, 1)
    answer = await delete_records(path, 1, timeout_ms=200)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)


class InRacks(Replicated):
    """Brokers 1 and 2 in the rack a, 3 in b."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        selector = {
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "broker.rack": "a",
            "log.dirs": str(folder),
        }
        self.services = self.services.replaced(config=BrokerConfig.from_properties(selector))
        endpoint = (Endpoint("PLAINTEXT", "host", 9092, 0),)
        racks = {1: "a", 2: "a", 3: "b"}
        self.image.brokers = {n: broker(n)._replace(rack=rack, endpoints=endpoint) for n, rack in racks.items()}


@pytest.mark.parametrize(("rack", "preferred"), [("a", -1), ("b", 3), ("c", -1), ("", -1)])
async def test_a_consumer_is_sent_to_a_follower_in_its_rack(tmp_path: Path, rack: str, preferred: int) -> None:
    """KIP-392."""
    path = InRacks(tmp_path)
    await path.produce(acks=1)
    for replica in (2, 3):
        await path.fetch(replica, 1)
    answer = await fetch_from_rack(path, rack)
    assert answer.preferred_read_replica == preferred
    assert bool(len(answer.records)) == (preferred < 0)
    assert answer.high_watermark == 1
    path.close()


async def test_a_follower_that_lags_is_not_preferred(tmp_path: Path) -> None:
    path = InRacks(tmp_path)
    await path.produce(acks=1)
    await path.fetch(3, 0)
    assert (await fetch_from_rack(path, "b", offset=1)).preferred_read_replica == -1
    assert (await fetch_from_rack(path, "b", offset=0)).preferred_read_replica == 3
    path.change(isr=(1, 2), partition_epoch=1)
    assert (await fetch_from_rack(path, "b", offset=0)).preferred_read_replica == -1
    path.close()


async def fetch_from_rack(path: Replicated, rack: str, offset: int = 0) -> Any:
    partition = FetchPartition(partition_max_bytes=1 << 20, fetch_offset=offset)
    topics = [FetchTopic(topic="t", topic_id=topic_id("t"), partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, rack_id=rack, topics=topics)
    return (await path.call(handle_fetch, request, 17)).responses[0].partitions[0]


async def test_replicas_that_are_not_in_sync_are_throttled(path: Replicated) -> None:
    """P-340 (KIP-73)."""
    rates: dict[str, int | None] = {"rate": 10}
    measured = SimpleWindowedRate(QuotaWindows(5, 2000))
    throttle = ReplicationThrottle(lambda: rates["rate"], lambda topic: "0:1,0:3", 1, measured)
    path.services = path.services.replaced(leader_throttle=throttle)
    path.change(isr=(1, 2), partition_epoch=1)
    await path.produce(acks=1)
    assert len((await path.fetch(3, 0)).records)
    assert len((await path.fetch(3, 0)).records) == 0
    assert len((await path.fetch(2, 0)).records)
    await trio.sleep(9.9)
    assert len((await path.fetch(3, 0)).records) == 0
    # The windows are over; the rate would have been too high for longer.
    await trio.sleep(0.1)
    assert len((await path.fetch(3, 0)).records)
    assert len((await path.fetch(3, 0)).records) == 0
    rates["rate"] = None
    assert len((await path.fetch(3, 0)).records)


def produce_frame(acks: int, correlation_id: int, timeout_ms: int = 10_000) -> bytes:
    """As it arrives, with its size in front."""
    data = [PartitionProduceData(index=0, records=batch())]
    topics = [TopicProduceData(name="t", topic_id=topic_id("t"), partition_data=data)]
    body = encode(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics), 13)
    header = b"\0\0\0\x0d" + correlation_id.to_bytes(4, "big") + b"\0\4test\0"
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


async def test_requests_that_wait_for_followers_do_not_keep_the_next_ones_waiting(path: Replicated) -> None:
    """Their records are replicated together; the answers come in order, also before that to another request."""
    order: list[int] = []
    async with served(path.services) as client:

        async def read() -> None:
            for _ in range(5):
                frame = await client.frame()
                assert frame is not None
                order.append(int.from_bytes(frame[:4], "big"))

        # The last one waits for nobody; it begins when all before it are answered.
        await client.stream.send_all(b"".join(produce_frame(-1 if n < 4 else 1, n) for n in range(5)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            while path.partition.log.log_end_offset < 4:
                await wait_all_tasks_blocked()
            assert order == []
            for replica in (2, 3):
                await path.fetch(replica, 4)
    assert order == [0, 1, 2, 3, 4]
    assert path.partition.log.log_end_offset == 5


async def test_a_client_that_goes_away_while_its_records_are_replicated(path: Replicated) -> None:
    async with served(path.services) as client:
        await client.stream.send_all(b"".join(produce_frame(-1, n, timeout_ms=500) for n in range(40)))
        while path.partition.log.log_end_offset < 16:
            await wait_all_tasks_blocked()
        # No more than so many wait at a time.
        assert path.partition.log.log_end_offset == 16
        await client.stream.aclose()


async def test_a_follower_that_has_everything_costs_nothing_and_stays_in_sync(path: Replicated) -> None:
    """Its session names the partition once; what changes then is told all the same."""

    async def ask(session_id: int, epoch: int, **partition: Any) -> Any:
        asked = FetchPartition(partition_max_bytes=1 << 20, current_leader_epoch=0, log_start_offset=0, **partition)
        topics = [FetchTopic(topic_id=topic_id("t"), partitions=[asked])] if partition else []
        state = ReplicaState(replica_id=2, replica_epoch=20)
        request = FetchRequest(
            min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics, replica_state=state
        )
        return await path.call(handle_fetch, request, 17)

    await path.produce(acks=1)
    session = (await ask(0, 0, fetch_offset=1)).session_id
    leadership = path.partition.leadership
    assert leadership is not None
    for epoch in range(1, 5):
        path.clock.time_ms += 20_000
        await path.fetch(3, 1)
        assert len((await ask(session, epoch)).responses) == (epoch == 1)  # the high watermark moved once
        path.partition.shrink_isr()
    await path.produce(acks=1)
    path.clock.time_ms += 29_000
    assert path.proposals == []
    path.partition.shrink_isr()
    assert path.proposals == []
    found = (await ask(session, 5)).responses[0].partitions[0]
    assert len(found.records)
    # A broker that was registered again since is not the one that asked.
    brokers = path.partitions.environment.brokers
    brokers.brokers = {**brokers.brokers, 2: brokers.brokers[2]._replace(epoch=21)}
    found = (await ask(session, 6)).responses[0].partitions[0]
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_caught_up_follower_without_the_right_to_replicate_is_refused(path: Replicated) -> None:
    """Kafka authorizes each Fetch of a follower, also one in whose session nothing has changed."""

    async def ask(session_id: int, epoch: int, *partitions: FetchPartition) -> Any:
        request = FetchRequest(
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic_id=topic_id("t"), partitions=list(partitions))] if partitions else [],
            replica_state=ReplicaState(replica_id=2, replica_epoch=20),
        )
        return await path.call(handle_fetch, request, 17)

    session = (await ask(0, 0, FetchPartition(partition_max_bytes=1 << 20, current_leader_epoch=0))).session_id
    assert (await ask(session, 1)).responses == []
    rights = {bytes(16): Acl(CLUSTER, CLUSTER_NAME, LITERAL, "User:ANONYMOUS", "*", CLUSTER_ACTION, ALLOW)}
    path.services = path.services.replaced(authorizer=StandardAuthorizer(lambda: rights, frozenset(), False))
    assert (await ask(session, 2)).responses == []
    path.services = path.services.replaced(authorizer=StandardAuthorizer(dict, frozenset(), False))
    (refused,) = (await ask(session, 3)).responses[0].partitions
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def encrypted(plain: Client) -> Client:
    """The same connection with TLS, whose handshake is made with the first bytes that are sent."""
    stream = trio.SSLStream(plain.stream, context(), server_hostname="localhost", https_compatible=True)
    return Client(stream, plain.connection)


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_requests_that_come_while_others_wait_for_followers_are_served_next(
    path: Replicated, is_encrypted: bool
) -> None:
    """After the oldest reply, those that have arrived meanwhile begin before the next reply is waited for."""
    async with served(path.services, tls=listener_tls(texts(server())) if is_encrypted else None) as plain:
        client = encrypted(plain) if is_encrypted else plain
        await client.stream.send_all(produce_frame(-1, 0) + produce_frame(-1, 1))
        while path.partition.log.log_end_offset < 2:
            await wait_all_tasks_blocked()
        await client.stream.send_all(produce_frame(-1, 2))
        for replica in (2, 3):
            await path.fetch(replica, 1)
        frame = await client.frame()
        assert frame is not None
        assert frame[:4] == bytes(4)
        while path.partition.log.log_end_offset < 3:
            await wait_all_tasks_blocked()
        for replica in (2, 3):
            await path.fetch(replica, 3)
        for number in (1, 2):
            frame = await client.frame()
            assert frame is not None
            assert int.from_bytes(frame[:4], "big") == number


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_client_that_ends_its_stream_while_requests_wait_gets_their_answers(
    path: Replicated, is_encrypted: bool
) -> None:
    async with served(path.services, tls=listener_tls(texts(server())) if is_encrypted else None) as plain:
        client = encrypted(plain) if is_encrypted else plain
        await client.stream.send_all(produce_frame(-1, 0) + produce_frame(-1, 1))
        while path.partition.log.log_end_offset < 2:
            await wait_all_tasks_blocked()
        # The end of the socket's stream, and with TLS without a close_notify.
        await plain.stream.send_eof()
        for replica in (2, 3):
            await path.fetch(replica, 1)
        for number in (0, 1):
            frame = await client.frame()
            assert frame is not None
            assert int.from_bytes(frame[:4], "big") == number
            for replica in (2, 3):
                await path.fetch(replica, 2)
        await wait_all_tasks_blocked()
        assert plain.connection.has_ended
