"""A follower's fetcher against a leader that refuses, is not there, or whose log has another range."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pykbroker.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.steps import finished
from pykbroker.quotas.rates import QuotaWindows, SimpleWindowedRate
from pykbroker.replication.fetcher import Fetcher
from pykbroker.replication.followed_partition import FollowedPartition, Outcome
from pykbroker.replication.follower_fetch_session import FetchSessionHandler
from pykbroker.replication.throttle import ReplicationThrottle
from tests.pykbroker.replication.test_truncation import Cluster
from tests.support.data_path import topic_id
from tests.support.replicas import BACKOFF_S, FETCH_LIMITS, TOPIC
from tests.support.transactions import end_transaction, write_in_transaction

REQUEST_S = 0.1


class LeaderClient:
    """Requests of broker 2 to broker 1, each of which takes a tenth of a second."""

    def __init__(self, cluster: Cluster) -> None:
        self.leader = cluster.brokers[1]
        self.is_away = False
        self.offsets_error = ErrorCode.NONE
        self.asked: list[tuple[float, str]] = []
        self.closed_count = 0

    async def request(self, message: Message, timeout_ms: int, *, is_long: bool = False) -> Any:
        self.asked.append((trio.current_time(), type(message).__name__))
        await trio.sleep(REQUEST_S)
        if self.is_away:
            raise NodeUnreachable("connection refused")
        if isinstance(message, ListOffsetsRequest) and self.offsets_error:
            refused = ListOffsetsPartitionResponse(partition_index=0, error_code=self.offsets_error)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[refused])])
        return self.leader.serve(message)

    async def close(self) -> None:
        self.closed_count += 1

    def times_of(self, kind: type[Message]) -> list[float]:
        return [when for when, name in self.asked if name == kind.__name__]


async def while_fetching(cluster: Cluster, client: LeaderClient, scenario: Callable[[], Awaitable[None]]) -> None:
    """Runs broker 2's fetcher meanwhile."""
    follower = cluster.brokers[2]
    fetcher = Fetcher(
        1,
        follower.session,
        lambda: client,
        follower.broker_epoch,
        follower.clock,
        node_id=2,
        backoff_s=BACKOFF_S,
        timeout_ms=1000,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run)
        await scenario()
        nursery.cancel_scope.cancel()


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.elect(1)
    return made


def begin_at(cluster: Cluster, start: int) -> None:
    """The leader's log begins there, as after DeleteRecords."""
    leader = cluster.brokers[1].partition
    leader.log.roll(0)
    leader.replica.high_watermark = leader.log.log_end_offset
    leader.advance_log_start(start)


async def test_a_follower_below_the_leaders_start_asks_for_the_range(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.produce(1, "a", "b", "c", "d")
    begin_at(cluster, 3)
    client = LeaderClient(cluster)
    await while_fetching(cluster, client, partial(trio.sleep, 5 * REQUEST_S))
    assert cluster.values(2) == ["d@3"]
    assert [name for _, name in client.asked[:4]] == [
        "FetchRequest",
        "ListOffsetsRequest",
        "ListOffsetsRequest",
        "FetchRequest",
    ]
    assert client.closed_count == 1
    assert "t-0: emptied: it ended at 0, the leader's log begins at 3" in caplog.text


async def test_a_range_that_the_leader_does_not_tell_is_asked_for_after_the_backoff(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster.produce(1, "a", "b", "c", "d")
    begin_at(cluster, 3)
    client = LeaderClient(cluster)
    client.offsets_error = ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def scenario() -> None:
        await trio.sleep(BACKOFF_S)
        assert client.asked[1:] == [(REQUEST_S, "ListOffsetsRequest")]
        assert "t-0: leader 1 refuses ListOffsets: NOT_LEADER_OR_FOLLOWER" in caplog.text
        client.offsets_error = ErrorCode.NONE
        await trio.sleep(BACKOFF_S)

    await while_fetching(cluster, client, scenario)
    assert client.times_of(FetchRequest)[1] == pytest.approx(2 * REQUEST_S + BACKOFF_S)
    assert cluster.values(2) == ["d@3"]


async def test_a_leader_that_goes_away_between_two_requests_is_asked_again(cluster: Cluster) -> None:
    """It answers the fetch, and not ListOffsets."""
    cluster.produce(1, "a", "b", "c", "d")
    begin_at(cluster, 3)
    client = LeaderClient(cluster)

    async def scenario() -> None:
        await trio.sleep(1.5 * REQUEST_S)
        client.is_away = True
        await trio.sleep(2 * REQUEST_S)
        client.is_away = False
        await trio.sleep(2 * BACKOFF_S)

    await while_fetching(cluster, client, scenario)
    assert cluster.values(2) == ["d@3"]


async def test_of_a_leader_that_is_away_the_log_says_once_that_it_went_and_once_that_it_is_back(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster.produce(1, "a")
    client = LeaderClient(cluster)
    client.is_away = True

    async def scenario() -> None:
        await trio.sleep(4 * (BACKOFF_S + REQUEST_S))
        client.is_away = False
        await trio.sleep(2 * BACKOFF_S)

    await while_fetching(cluster, client, scenario)
    assert len(client.times_of(FetchRequest)) > 5
    said = [record.getMessage() for record in caplog.records if record.name.endswith(".fetcher")]
    assert said == ["leader 1 cannot be followed: connection refused", "leader 1 answers again"]
    assert cluster.values(2) == ["a@0"]


def followed(cluster: Cluster, number: int = 2) -> FollowedPartition:
    return FollowedPartition(cluster.brokers[number].partition)


def fetch_all(cluster: Cluster, *values: str) -> None:
    cluster.produce(1, *values)
    for number in (2, 3):
        cluster.fetch(number, 3)


async def test_a_follower_above_the_leaders_end_is_truncated_to_it(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    fetch_all(cluster, "a", "b", "c")
    assert followed(cluster).on_offsets(0, 1, 0) is Outcome.GO_ON
    assert cluster.values(2) == ["a@0"]
    assert "t-0: truncated from 3 to 1, the end of the leader's log" in caplog.text


async def test_a_follower_forgets_ended_transactions(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers of committed records, for whom they are kept, read from the leader."""
    monkeypatch.setattr("pykbroker.logstore.producer_state.ENDED_KEPT", 10)
    leader, follower = (cluster.brokers[number].partition for number in (1, 2))
    for sequence in range(40):
        write_in_transaction(leader, sequence)
        end_transaction(leader, commit=True)
        for number in (2, 3, 2):
            cluster.fetch(number)
        assert not follower.log.producers.has_many_ended
    assert follower.log.log_end_offset == 80


async def test_a_range_of_an_earlier_leader_changes_nothing(cluster: Cluster) -> None:
    fetch_all(cluster, "a", "b")
    earlier = followed(cluster)
    cluster.elect(3)
    assert earlier.on_offsets(5, 9, 0) is Outcome.GO_ON
    assert cluster.values(2) == ["a@0", "b@1"]


async def test_a_truncation_that_fails_is_tried_again_later(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    fetch_all(cluster, "a", "b", "c")
    broken = StorageError("/data/t-0", "Input/output error")
    cluster.brokers[2].filesystem.fail_next["truncate"] = broken
    two = followed(cluster)
    assert two.on_offsets(0, 1, 0) is Outcome.LATER
    assert "t-0: cannot be truncated for now: KAFKA_STORAGE_ERROR" in caplog.text
    assert two.on_offsets(0, 1, 0) is Outcome.GO_ON
    assert cluster.values(2) == ["a@0"]


@pytest.mark.parametrize(
    ("epoch", "end_offset", "kept"),
    [
        # The leader knows no end, or no epoch: it is a Kafka from before 0.11, or its log has no epochs.
        (0, -1, 2),
        (-1, 1, 1),
        (-1, 9, 3),
        # An epoch that this log has not come to.
        (5, 2, 2),
    ],
)
async def test_where_a_log_diverges_if_an_epoch_is_unknown(
    cluster: Cluster, epoch: int, end_offset: int, kept: int
) -> None:
    fetch_all(cluster, "a", "b", "c")
    two = followed(cluster)
    two.partition.replica.high_watermark = 2
    data = PartitionData(
        partition_index=0, diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset), high_watermark=3
    )
    assert two.on_data(data, 3, 0) is Outcome.GO_ON
    assert two.partition.log.log_end_offset == kept


def batch_without_epoch(offset: int) -> bytes:
    batch = build_batch([Record(0, 1000, None, b"v", ())], base_offset=offset)
    return batch[:12] + (-1).to_bytes(4, "big", signed=True) + batch[16:]


async def test_of_a_log_without_epochs_only_what_is_below_the_high_watermark_is_kept(cluster: Cluster) -> None:
    """KIP-101: nothing says whether the leader has the records above it."""
    partition = cluster.brokers[2].partition
    for offset in range(3):
        partition.append_as_follower(batch_without_epoch(offset), 0, 2, 0, 0)
    assert (partition.log.leader_epochs.latest_epoch, partition.high_watermark, partition.log.log_end_offset) == (
        -1,
        2,
        3,
    )
    two = followed(cluster)
    assert two.prepare(0) is True
    assert partition.log.log_end_offset == 2


async def test_a_log_that_cannot_be_prepared_is_not_fetched_before_the_backoff(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    broker = cluster.brokers[2]
    for offset in range(3):
        broker.partition.append_as_follower(batch_without_epoch(offset), 0, 2, 0, 0)
    broker.filesystem.fail_next["truncate"] = StorageError("/data/t-0", "Input/output error")
    session = broker.session
    assert finished(session.next_request(10.0, 0, 5)) is None
    assert "t-0: cannot be followed for now: /data/t-0: Input/output error" in caplog.text
    assert session.ready_at() == 10.0 + BACKOFF_S
    assert finished(session.next_request(10.0 + BACKOFF_S, 0, 5)) is not None


async def test_new_partitions_are_prepared_one_after_the_other_before_they_are_fetched(cluster: Cluster) -> None:
    """A broker may follow thousands of new ones, of which each has to be loaded: others have turns meanwhile."""
    broker = cluster.brokers[2]
    for offset in range(3):
        broker.partition.append_as_follower(batch_without_epoch(offset), 0, 2, 0, 0)
    session = broker.session
    assert sum(1 for _ in session.prepare(10.0, 0)) == 1
    assert broker.partition.log.log_end_offset == 2
    assert sum(1 for _ in session.prepare(10.0, 0)) == 0
    request = finished(session.next_request(10.0, 0, 5))
    assert request is not None
    assert request.topics[0].partitions[0].fetch_offset == 2


async def test_records_that_cannot_be_are_refused_and_fetched_later(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The log is not empty, or the bytes are no batch: then nothing says that the log should begin elsewhere."""
    fetch_all(cluster, "a", "b")
    two, three = followed(cluster), followed(cluster, 3)
    early = build_batch([Record(0, 1000, None, b"v", ())], base_offset=0)
    assert two.on_data(PartitionData(partition_index=0, records=early, high_watermark=2), 2, 0) is Outcome.LATER
    assert "t-0: cannot be followed for now" in caplog.text
    three.partition.replica.truncate_fully_and_start_at(5, 0)
    damaged = bytearray(early)
    damaged[16] = 7
    assert three.on_data(PartitionData(partition_index=0, records=damaged, high_watermark=2), 5, 0) is Outcome.LATER
    assert [broker.partition.log.log_end_offset for broker in (cluster.brokers[2], cluster.brokers[3])] == [2, 5]


# The session


def response(*, session_id: int = 7, error: ErrorCode = ErrorCode.NONE, **data: Any) -> FetchResponse:
    partitions = [PartitionData(partition_index=0, **data)] if data else []
    topics = [FetchableTopicResponse(topic_id=topic_id(TOPIC), partitions=partitions)]
    return FetchResponse(session_id=session_id, error_code=error, responses=topics)


async def test_a_leader_without_room_for_a_session_is_sent_full_requests(cluster: Cluster) -> None:
    """KIP-227: session id 0."""
    session = cluster.brokers[2].session
    for _ in range(2):
        request = finished(session.next_request(0.0, 0, 5))
        assert request is not None
        assert (request.session_id, request.session_epoch, len(request.topics)) == (0, 0, 1)
        finished(session.on_response(response(session_id=0), 0.0, 0))
    finished(session.on_response(response(session_id=7), 0.0, 0))
    request = finished(session.next_request(0.0, 0, 5))
    assert request is not None
    assert (request.session_id, request.session_epoch) == (7, 1)


@pytest.mark.parametrize(
    ("error", "is_delayed"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, False),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, False),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
    ],
)
async def test_a_session_that_the_leader_refuses_begins_anew(
    cluster: Cluster, error: ErrorCode, is_delayed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    session = cluster.brokers[2].session
    finished(session.next_request(0.0, 0, 5))
    finished(session.on_response(response(session_id=7), 0.0, 0))
    finished(session.next_request(0.0, 0, 5))
    assert finished(session.on_response(response(session_id=7, error=error), 1.0, 0)) == []
    assert f"fetch session 7 ends: {error.name}" in caplog.text
    request = finished(session.next_request(1.0, 0, 5))
    assert (request is None) is is_delayed
    request = request or finished(session.next_request(1.0 + BACKOFF_S, 0, 5))
    assert request is not None
    assert (request.session_id, request.session_epoch, len(request.topics)) == (0, 0, 1)


async def test_an_answer_for_a_partition_that_follows_another_leader_by_now_is_dropped(cluster: Cluster) -> None:
    fetch_all(cluster, "a")
    broker = cluster.brokers[2]
    session = broker.session
    assert finished(session.next_request(0.0, 0, 5)) is not None
    later = build_batch([Record(0, 1000, None, b"v", ())], base_offset=1)
    cluster.elect(3)
    session.follow(broker.partition)
    assert finished(session.on_response(response(records=later, high_watermark=2), 0.0, 0)) == []
    assert broker.partition.log.log_end_offset == 1


async def test_a_throttled_follower_waits_while_its_rate_is_exceeded(cluster: Cluster) -> None:
    """KIP-73: replicas that are caught up do not wait."""
    measured = SimpleWindowedRate(QuotaWindows(5, 2000))
    throttle = ReplicationThrottle(lambda: 10, lambda topic: "*", 2, measured)
    partition = cluster.brokers[2].partition
    session = FetchSessionHandler(2, FETCH_LIMITS, BACKOFF_S, throttle)
    session.follow(partition)
    batch = build_batch([Record(0, 1000, None, b"v" * 500, ())])
    assert finished(session.next_request(0.0, 0, 5)) is not None
    finished(session.on_response(response(records=batch, high_watermark=5), 0.0, 0))
    assert partition.log.log_end_offset == 1
    assert finished(session.next_request(0.1, 0, 5)) is None
    assert 0.1 < session.throttled_until < 100
    assert finished(session.next_request(100.0, 0, 5)) is not None
    caught_up = build_batch([Record(0, 1000, None, b"v" * 500, ())], base_offset=1)
    finished(session.on_response(response(records=caught_up, high_watermark=2), 100.0, 0))
    assert finished(session.next_request(100.1, 0, 5)) is not None


def test_the_texts_of_past_reassignments_are_forgotten() -> None:
    texts = [f"{number}:2" for number in range(300)]
    current = {"text": ""}
    throttle = ReplicationThrottle(
        lambda: 1, lambda topic: current["text"], 2, SimpleWindowedRate(QuotaWindows(5, 2000))
    )
    for number, text in enumerate(texts):
        current["text"] = text
        assert throttle.applies_to("t", number)
        assert not throttle.applies_to("t", number + 1)
    assert len(throttle._parsed) <= 101
