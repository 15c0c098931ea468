"""Requests over a connection whose client has quotas: throttle times, and a connection that is not read meanwhile."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.errors import KafkaError
from pykbroker.network.connection_limits import ConnectionLimits
from pykbroker.network.dispatch import dispatch
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pykbroker.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from pykbroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from pykbroker.quotas.switch import QuotaSwitch
from pykbroker.quotas.throttling import quota_of_request
from pykbroker.requests.invocation import handlers_of
from pykbroker.security.connection_info import ConnectionInfo, ListenerKind
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.pykbroker.quotas.test_node_quotas import quotas_of, record_of
from tests.support.connections import Client, served
from tests.support.data_path import NOW_MS, DataPath, batch, cluster_image, topic_id, topic_image

VERSION = 11
"""Of Produce and of Fetch: topics by name."""

BYTES_PER_S = 1000.0

Connect = Callable[..., Any]


def produce_request(size: int, acks: int = 1, topic: str = "a") -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=bytes(batch(1, size=size)))]
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )


def fetch_request(topic: str = "a", **fields: Any) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, topic_id=topic_id(topic), partitions=[asked])]
    return FetchRequest(**{"min_bytes": 1, "max_wait_ms": 0, "topics": topics, **fields})


def frame_size(request: Any, version: int) -> int:
    """Size of a request of `Client`: header, client id ``test``, and body."""
    return 14 + (1 if version in request.FLEXIBLE_VERSIONS else 0) + len(encode(request, version))


@pytest.fixture
def path(tmp_path: Path) -> Any:
    data_path = DataPath(tmp_path, cluster_image(topic_image("a"), topic_image("b")))
    yield data_path
    data_path.close()


@asynccontextmanager
async def limited(path: DataPath, **limits: float) -> AsyncIterator[Client]:
    """A client that has these quotas by its user."""
    quotas = path.services.quotas.active = quotas_of(
        *(record_of(key, value, user="ANONYMOUS") for key, value in limits.items())
    )
    assert quotas is not None
    async with served(path.services) as client:
        yield client


async def reply_after(client: Client, request: Any, version: int, response_type: type[Any]) -> float:
    """Seconds until the client has the response."""
    began = trio.current_time()
    assert await client.call(request, version, response_type) is not None
    return trio.current_time() - began


def put(path: DataPath, size: int, topic: str = "a") -> None:
    partition = path.partitions.get(topic, 0)
    assert partition is not None
    partition.append_as_leader(bytearray(batch(1, size=size)), NOW_MS)


async def test_a_producer_is_answered_at_once_and_muted_then(path: DataPath) -> None:
    """P-268, P-269: the size of the whole request counts; the next request waits for the throttle time."""
    request = produce_request(15_000)
    expected_ms = round((frame_size(request, VERSION) / 10 - BYTES_PER_S) / BYTES_PER_S * 10_000)
    async with limited(path, producer_byte_rate=BYTES_PER_S) as client:
        began = trio.current_time()
        response = await client.call(request, VERSION, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == 0
        assert response.throttle_time_ms == expected_ms
        assert trio.current_time() - began < 0.1
        assert await reply_after(client, HeartbeatRequest(), 1, HeartbeatResponse) == pytest.approx(
            expected_ms / 1000, abs=0.1
        )


async def test_without_a_response_the_producer_is_muted_all_the_same(path: DataPath) -> None:
    """P-269: acks=0."""
    request = produce_request(15_000, acks=0)
    async with limited(path, producer_byte_rate=BYTES_PER_S) as client:
        await client.request(ApiKey.PRODUCE, VERSION, encode(request, VERSION), flexible=True)
        assert 4 < await reply_after(client, HeartbeatRequest(), 1, HeartbeatResponse) < 6.5


async def test_a_producer_within_its_limit_is_not_throttled(path: DataPath) -> None:
    async with limited(path, producer_byte_rate=BYTES_PER_S) as client:
        for _ in range(9):
            response = await client.call(produce_request(900), VERSION, ProduceResponse)
            assert response.throttle_time_ms == 0


async def test_the_next_acks_all_request_does_not_begin_before_the_throttle(tmp_path: Path) -> None:
    """P-269: pipelined requests of a client with a quota are served one after the other, as in Kafka."""
    path = DataPath(tmp_path, cluster_image(topic_image("a", followers=(2,), isr=(1, 2))))
    async with limited(path, producer_byte_rate=BYTES_PER_S) as client:
        request = produce_request(100, acks=-1)
        for _ in range(3):
            await client.request(ApiKey.PRODUCE, VERSION, encode(request, VERSION), flexible=True)
        await trio.testing.wait_all_tasks_blocked()
        partition = path.partitions.get("a", 0)
        assert partition is not None
        assert partition.log.log_end_offset == 1
    path.close()


async def test_a_consumer_gets_an_empty_response(path: DataPath) -> None:
    """P-271: and gets the records after the throttle time; what it did not get does not count."""
    put(path, 8000)
    put(path, 8000, "b")
    async with limited(path, consumer_byte_rate=BYTES_PER_S) as client:
        first = await client.call(fetch_request(), VERSION, FetchResponse)
        assert first.throttle_time_ms == 0
        assert len(first.responses[0].partitions[0].records) > 8000
        second = await client.call(fetch_request("b"), VERSION, FetchResponse)
        assert second.responses == []
        assert second.error_code == second.session_id == 0
        assert 6000 < second.throttle_time_ms < 6500
        began = trio.current_time()
        third = await client.call(fetch_request("b"), VERSION, FetchResponse)
        assert trio.current_time() - began == pytest.approx(second.throttle_time_ms / 1000, abs=0.1)
        # Ten seconds' bytes in 16.2 seconds would be within the limit; the window has ten and a half.
        assert third.responses or third.throttle_time_ms


async def test_a_response_is_capped_by_what_the_windows_allow(path: DataPath) -> None:
    """P-271: a larger one would be throttled each time, and the consumer would get nothing."""
    for _ in range(5):
        put(path, 4000)
    async with limited(path, consumer_byte_rate=BYTES_PER_S) as client:
        # What is around the records exceeds the limit by a little, as in Kafka.
        assert 0 < (await client.call(fetch_request(), VERSION, FetchResponse)).throttle_time_ms < 100
        response = await client.call(fetch_request(), VERSION, FetchResponse)
        # The last batch is cut.
        assert 4000 < len(response.responses[0].partitions[0].records) <= 10_000


async def test_a_throttled_response_begins_no_session_and_keeps_one(path: DataPath) -> None:
    """P-271."""
    put(path, 8000)
    async with limited(path, consumer_byte_rate=BYTES_PER_S) as client:
        first = await client.call(fetch_request(session_epoch=0), VERSION, FetchResponse)
        assert first.session_id
        throttled = await client.call(
            fetch_request(session_id=first.session_id, session_epoch=1), VERSION, FetchResponse
        )
        assert throttled.throttle_time_ms
        assert (throttled.session_id, throttled.responses) == (first.session_id, [])
        sessions = len(path.services.fetch_sessions)
        fresh = await client.call(fetch_request(session_epoch=0), VERSION, FetchResponse)
        if fresh.throttle_time_ms:
            assert fresh.session_id == 0
            assert len(path.services.fetch_sessions) == sessions


async def test_replicas_and_requests_of_nodes_are_left_out(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-270, P-271: they have the replication throttle."""

    async def handle(context: Any, request: Any) -> WriteTxnMarkersResponse:
        busy_for(0.002)
        return WriteTxnMarkersResponse()

    monkeypatch.setitem(handlers_of[ListenerKind.BROKER], ApiKey.WRITE_TXN_MARKERS, (WriteTxnMarkersRequest, handle))
    put(path, 30_000)
    async with limited(path, consumer_byte_rate=10.0, request_percentage=0.001) as client:
        for _ in range(3):
            as_replica = fetch_request(replica_id=2)
            response = await client.call(as_replica, VERSION, FetchResponse)
            assert response.throttle_time_ms == 0
            assert await reply_after(client, WriteTxnMarkersRequest(), 1, WriteTxnMarkersResponse) < 0.1
        newer = fetch_request(replica_state=ReplicaState(replica_id=2, replica_epoch=5))
        assert (await client.call(newer, 15, FetchResponse)).throttle_time_ms == 0


async def test_requests_of_nodes_that_a_client_has_no_right_to(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-291: Kafka throttles every request that is refused for the rights to the cluster."""

    async def refuse(context: Any, request: Any) -> WriteTxnMarkersResponse:
        busy_for(0.002)
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "")

    monkeypatch.setitem(handlers_of[ListenerKind.BROKER], ApiKey.WRITE_TXN_MARKERS, (WriteTxnMarkersRequest, refuse))
    async with limited(path, request_percentage=0.001) as client:
        first = await reply_after(client, WriteTxnMarkersRequest(), 1, WriteTxnMarkersResponse)
        assert first < 0.1
        assert await reply_after(client, WriteTxnMarkersRequest(), 1, WriteTxnMarkersResponse) > 0.9


async def test_refused_markers_count(path: DataPath) -> None:
    """P-291: their response has no error on top."""
    path.services.authorizer = StandardAuthorizer(dict, frozenset(), False)
    async with limited(path, request_percentage=0.0001) as client:
        await reply_after(client, WriteTxnMarkersRequest(), 1, WriteTxnMarkersResponse)
        assert await reply_after(client, WriteTxnMarkersRequest(), 1, WriteTxnMarkersResponse) > 0.9


def busy_for(seconds: float) -> None:
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        pass


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Installs a handler of Heartbeat that does something."""

    def install(work: Callable[[], Awaitable[None]]) -> None:
        async def handle(context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
            await work()
            return HeartbeatResponse()

        monkeypatch.setitem(handlers_of[ListenerKind.BROKER], ApiKey.HEARTBEAT, (HeartbeatRequest, handle))

    return install


async def test_time_counts_in_percent_of_the_thread(path: DataPath, busy: Any) -> None:
    """P-270: 20 ms in ten seconds are 0.2 percent; the throttle time is at most a window."""

    async def work() -> None:
        busy_for(0.02)

    busy(work)
    async with limited(path, request_percentage=0.15) as client:
        response = await client.call(HeartbeatRequest(), 1, HeartbeatResponse)
        assert response.throttle_time_ms == 1000
        assert await reply_after(client, HeartbeatRequest(), 1, HeartbeatResponse) == pytest.approx(1, abs=0.1)


async def test_waiting_is_no_use_of_time(path: DataPath, busy: Any) -> None:
    """P-270: a join that waits for a minute has used a moment of the thread."""

    async def work() -> None:
        await trio.sleep(60)

    busy(work)
    async with limited(path, request_percentage=2.0) as client:
        response = await client.call(HeartbeatRequest(), 1, HeartbeatResponse)
        assert response.throttle_time_ms == 0


async def test_errors_count_too(path: DataPath, busy: Any) -> None:
    """P-270."""

    async def work() -> None:
        busy_for(0.02)
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not now")

    busy(work)
    async with limited(path, request_percentage=0.15) as client:
        response = await client.call(HeartbeatRequest(), 1, HeartbeatResponse)
        assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert response.throttle_time_ms == 1000


def forwarding(path: DataPath, work: Callable[[], Awaitable[None]]) -> ConnectionInfo:
    """A client's connection to a broker whose controller is another node; forwarding a request does this work."""

    class RemoteController:
        """A channel to another node."""

        is_local = False

        async def forward(self, connection: Any, frame: bytes) -> bytes:
            await work()
            return CORRELATION_ID.to_bytes(4, "big") + b"\0" + encode(UnregisterBrokerResponse(), 0)

    channel: Any = RemoteController()
    path.services = path.services.replaced(channel=channel)
    return ConnectionInfo("PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 2), None)


CORRELATION_ID = 7


async def forwarded(path: DataPath, connection: ConnectionInfo) -> UnregisterBrokerResponse:
    header = bytes([0, ApiKey.UNREGISTER_BROKER, 0, 0]) + CORRELATION_ID.to_bytes(4, "big") + b"\0\4test" + b"\0"
    request = UnregisterBrokerRequest(broker_id=5)
    chunks = await dispatch(path.services, connection, memoryview(header + encode(request, 0)))
    assert isinstance(chunks, list)
    return decode(UnregisterBrokerResponse, 0, b"".join(bytes(chunk) for chunk in chunks)[9:])


async def test_the_time_to_forward_a_request_counts(path: DataPath) -> None:
    """P-312: 20 ms in ten seconds are 0.2 percent."""

    async def work() -> None:
        busy_for(0.02)

    path.services.quotas.active = quotas_of(record_of("request_percentage", 0.15, user="ANONYMOUS"))
    connection = forwarding(path, work)
    assert (await forwarded(path, connection)).throttle_time_ms == 1000
    assert connection.muted_until == pytest.approx(trio.current_time() + 1, abs=0.1)


async def test_the_wait_for_the_controller_is_no_use_of_time(path: DataPath) -> None:
    """P-312."""

    async def work() -> None:
        await trio.sleep(60)

    path.services.quotas.active = quotas_of(record_of("request_percentage", 2.0, user="ANONYMOUS"))
    connection = forwarding(path, work)
    assert (await forwarded(path, connection)).throttle_time_ms == 0


async def test_a_muted_connection_can_be_closed(path: DataPath) -> None:
    async with limited(path, producer_byte_rate=1.0) as client:
        response = await client.call(produce_request(15_000), VERSION, ProduceResponse)
        assert response.throttle_time_ms > 1_000_000
        await trio.testing.wait_all_tasks_blocked()
        client.connection.close("enough")
        assert client.connection.has_ended
        assert await client.frame() is None


async def test_a_client_without_a_limit_is_as_if_there_were_none(path: DataPath) -> None:
    path.services.quotas.active = quotas_of(record_of("producer_byte_rate", 1.0, user="alice"))
    connection = ConnectionInfo("PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 2), None)
    assert path.services.quotas.active is not None
    assert quota_of_request(path.services.quotas.active, connection, "app", ApiKey.PRODUCE, 11, 100) is None
    async with served(path.services) as client:
        response = await client.call(produce_request(15_000), VERSION, ProduceResponse)
        assert response.throttle_time_ms == 0


class FakeListener:
    """A listener without connections."""

    name = "PLAINTEXT"
    connections: tuple[Any, ...] = ()


async def test_connections_of_an_address_per_second() -> None:
    """P-274: ten seconds' worth are accepted; one that is refused does not count."""
    switch = QuotaSwitch()
    switch.active = quotas_of(record_of("connection_creation_rate", 2.0, ip="10.0.0.1"))
    config = BrokerConfig.from_properties({"max.connection.creation.rate": "100"})
    limits = ConnectionLimits(lambda: config, switch)
    listener: Any = FakeListener()
    limits.add_listener(listener)
    times_ms = []
    for _ in range(22):
        await limits.throttle_creation(listener)
        times_ms.append(limits.address_throttle_ms(listener, "10.0.0.1"))
    assert times_ms[:20] == [0] * 20
    assert times_ms[20:] == [500, 500]
    assert limits.address_throttle_ms(listener, "10.0.0.2") == 0
    await trio.sleep(0.6)
    assert limits.address_throttle_ms(listener, "10.0.0.1") == 0


@pytest.mark.parametrize(
    ("kind", "key", "counts"),
    [
        *((ListenerKind.CONTROLLER, key, True) for key in (63, 62, 67, 70, 73)),
        *((ListenerKind.CONTROLLER, key, False) for key in (56, 52, 53, 54, 59, 55, 80, 81, 82)),
        *((ListenerKind.BROKER, key, True) for key in (55, 80, 81)),
        (ListenerKind.BROKER, ApiKey.WRITE_TXN_MARKERS, False),
    ],
)
async def test_requests_of_nodes_that_count(kind: ListenerKind, key: int, counts: bool) -> None:
    """P-291: heartbeats and registrations count for the node's user, AlterPartition and the quorum's requests not."""
    quotas = quotas_of(record_of("request_percentage", 1.0, user="node"))
    assert quotas is not None
    info = ConnectionInfo("CONTROLLER", ("127.0.0.1", 1), ("127.0.0.1", 2), None, kind)
    info.principal = "User:node"
    quota = quota_of_request(quotas, info, "", key, 0, 100)
    assert quota is not None
    quota.answer(None, HeartbeatResponse())
    assert quota.is_timed is counts
    quota = quota_of_request(quotas, info, "", key, 0, 100)
    assert quota is not None
    quota.is_refused = True
    quota.answer(None, HeartbeatResponse())
    assert quota.is_timed, "of a client that has no right to it every request counts"
