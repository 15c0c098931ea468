"""Fetch: what is read, when it waits, sessions (P-60 to P-78)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.image import Acl, TopicImage
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.errors import KafkaError
from pykbroker.handlers.fetch import handle_fetch
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.acl_codes import ALLOW, LITERAL, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from pykbroker.protocol.records.batch import iter_batches
from pykbroker.replication.partition import Partition
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.data_path import NOW_MS, DataPath, batch, cluster_image, topic_id, topic_image
from tests.support.transactions import write_in_transaction

NEWEST = 17  # v18 adds a field for replicas only


@pytest.fixture
def path(tmp_path: Path) -> Any:
    topics = [topic_image("a", 3), topic_image("b"), topic_image("led", leader_epoch=5), topic_image("far", leader=2)]
    data_path = DataPath(tmp_path, cluster_image(*topics))
    yield data_path
    data_path.close()


def put(path: DataPath, topic: str = "a", partition: int = 0, *, count: int = 1, size: int = 10) -> None:
    found = path.partitions.get(topic, partition)
    assert found is not None
    found.append_as_leader(bytearray(batch(count, size=size)), NOW_MS)


def asked(*partitions: FetchPartition, topic: str = "a", **fields: Any) -> FetchRequest:
    topics = [FetchTopic(topic=topic, topic_id=topic_id(topic), partitions=list(partitions))] if partitions else []
    return FetchRequest(**{"min_bytes": 1, "max_wait_ms": 0, "topics": topics, **fields})


def at(offset: int = 0, partition: int = 0, size_max: int = 1 << 20, **fields: Any) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size_max, **fields)


async def fetch(path: DataPath, request: FetchRequest, version: int = NEWEST) -> Any:
    """The response with its records read into bytes."""
    response = await path.call(handle_fetch, request, version)
    for topic in response.responses:
        for data in topic.partitions:
            if len(data.records):
                file_range = data.records
                data.records = file_range.read()
                file_range.release()
    return response


async def fetch_one(path: DataPath, request: FetchRequest, version: int = NEWEST) -> Any:
    return (await fetch(path, request, version)).responses[0].partitions[0]


def offsets(data: bytes) -> list[int]:
    return [b.base_offset for b in iter_batches(data)]


@pytest.mark.parametrize("version", range(4, 19))
async def test_records_come_back(path: DataPath, version: int) -> None:
    put(path, count=2)
    put(path)
    data = await fetch_one(path, asked(at()), version)
    assert offsets(data.records) == [0, 2]
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (3, 3, 0)
    assert data.aborted_transactions is None


async def test_partitions_come_in_order_and_the_first_may_exceed_the_limit(path: DataPath) -> None:
    """P-60: one whole batch from the first non-empty partition, whatever the limits, and only from that."""
    for partition in (1, 2):
        put(path, partition=partition, size=500)
    response = await fetch(path, asked(at(), at(partition=1, size_max=10), at(partition=2), max_bytes=1))
    first, second, third = response.responses[0].partitions
    assert (first.records, third.records) == (b"", b"")
    assert offsets(second.records) == [0]


async def test_later_data_may_end_in_a_partial_batch(path: DataPath) -> None:
    """P-61: a slice of the file; but an incomplete first batch is left out."""
    put(path, size=100)
    put(path, size=100)
    data = await fetch_one(path, asked(at(size_max=200)))
    assert len(data.records) == 200
    assert offsets(data.records) == [0]
    put(path, partition=1, size=500)
    response = await fetch(path, asked(at(), at(partition=1, size_max=100)))
    assert response.responses[0].partitions[1].records == b""


async def test_a_batch_is_returned_whole_from_its_middle(path: DataPath) -> None:
    """P-62."""
    put(path, count=10)
    assert offsets((await fetch_one(path, asked(at(7)))).records) == [0]


async def test_it_waits_for_data(path: DataPath) -> None:
    """P-63: parked until the bytes are there, then answered at once."""
    answered = trio.current_time()

    async def append_later() -> None:
        await trio.sleep(2)
        put(path, count=3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(append_later)
        data = await fetch_one(path, asked(at(), max_wait_ms=10_000))
    assert offsets(data.records) == [0]
    assert trio.current_time() - answered == pytest.approx(2, abs=0.01)


async def test_it_waits_for_min_bytes(path: DataPath) -> None:
    """P-63: one batch is less than asked for; the second is enough."""
    started = trio.current_time()

    async def append_slowly() -> None:
        for _ in range(3):
            await trio.sleep(1)
            put(path, size=100)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(append_slowly)
        data = await fetch_one(path, asked(at(), max_wait_ms=10_000, min_bytes=200))
    assert len(offsets(data.records)) == 2
    assert trio.current_time() - started >= 2


async def test_min_bytes_are_there_if_the_next_batch_only_does_not_fit(path: DataPath) -> None:
    """P-61, P-63: what is left off counts, as the answer will not grow by waiting."""
    for _ in range(3):
        put(path, size=100_000)
    started = trio.current_time()
    data = await fetch_one(path, asked(at(size_max=280_000), max_wait_ms=10_000, min_bytes=280_000))
    assert offsets(data.records) == [0, 1]
    assert len(data.records) < 201_000
    assert trio.current_time() == started


async def test_it_waits_no_longer_than_asked(path: DataPath) -> None:
    """P-63."""
    started = trio.current_time()
    assert (await fetch_one(path, asked(at(), max_wait_ms=700))).records == b""
    assert trio.current_time() - started == pytest.approx(0.7, abs=0.01)
    partition = path.partitions.get("a", 0)
    assert partition is not None
    assert len(partition.replica.waiters) == 0


async def test_errors_are_answered_at_once(path: DataPath) -> None:
    """P-63, P-65, P-66: an error in one partition ends the wait; offsets are -1 and records empty, not null."""
    started = trio.current_time()
    response = await fetch(path, asked(at(), at(5, partition=1), max_wait_ms=10_000))
    assert trio.current_time() == started
    data = response.responses[0].partitions[1]
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (-1, -1, -1)
    assert data.records == b""


@pytest.mark.parametrize("authorizes", [False, True])
async def test_refused_partitions_do_not_end_the_wait_for_others(path: DataPath, authorizes: bool) -> None:
    """P-63, P-66: neither unknown topics nor those that the client may not read; records of the others do. Refused
    partitions come last.
    """
    request = asked(at(), at(partition=9), max_wait_ms=2_000)
    request.topics += asked(at(), topic="no").topics
    if authorizes:
        acls = {bytes(16): Acl(TOPIC, "a", LITERAL, "User:ANONYMOUS", "*", READ, ALLOW)}
        path.services = path.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
        request.topics += asked(at(), topic="led").topics

    async def append_later() -> None:
        await trio.sleep(1)
        put(path)

    codes = [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    codes += [ErrorCode.TOPIC_AUTHORIZATION_FAILED] if authorizes else []
    for wait_s, found in ((2, []), (1, [0])):
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            if found:
                nursery.start_soon(append_later)
            response = await fetch(path, request)
        assert trio.current_time() - started == pytest.approx(wait_s, abs=0.01)
        answers = [data for topic in response.responses for data in topic.partitions]
        assert [data.error_code for data in answers] == codes
        assert offsets(answers[0].records) == found


@pytest.mark.parametrize("topic", ["a", "no"])
async def test_a_request_whose_partitions_are_all_refused_is_answered_at_once(path: DataPath, topic: str) -> None:
    """P-63."""
    started = trio.current_time()
    await fetch(path, asked(at(partition=9), at(partition=8), topic=topic, max_wait_ms=10_000))
    assert trio.current_time() == started


async def test_a_replica_is_told_at_once_of_a_partition_that_is_not_known_yet(path: DataPath) -> None:
    started = trio.current_time()
    request = asked(at(), at(partition=9), max_wait_ms=10_000, replica_id=2)
    assert len((await fetch(path, request, 14)).responses[0].partitions) == 2
    assert trio.current_time() == started


async def test_offsets_below_the_log_start(path: DataPath) -> None:
    """P-65."""
    put(path, count=5)
    partition = path.partitions.get("a", 0)
    assert partition is not None
    partition.advance_log_start(3)
    assert (await fetch_one(path, asked(at(2)))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await fetch_one(path, asked(at(3)))).error_code == ErrorCode.NONE
    assert (await fetch_one(path, asked(at(5)))).error_code == ErrorCode.NONE


async def test_the_broker_caps_the_response(tmp_path: Path) -> None:
    """P-64."""
    path = DataPath(tmp_path, cluster_image(topic_image("a")), {"fetch.max.bytes": "1024"})
    for _ in range(20):
        put(path, size=100)
    assert len((await fetch_one(path, asked(at()))).records) == 1024
    path.close()


async def test_aborted_transactions_are_listed_for_read_committed_only(path: DataPath) -> None:
    """P-67, P-68: with no open transaction the last stable offset is the high watermark."""
    put(path)
    data = await fetch_one(path, asked(at(), isolation_level=1))
    assert data.aborted_transactions == []
    assert data.last_stable_offset == data.high_watermark == 1


async def test_leader_epochs_fence(path: DataPath) -> None:
    """P-69, P-78: the hint names leader and epoch from v16."""
    put(path, "led")
    older = await fetch_one(path, asked(at(current_leader_epoch=4), topic="led"))
    assert older.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (older.current_leader.leader_id, older.current_leader.leader_epoch) == (1, 5)
    newer = await fetch_one(path, asked(at(current_leader_epoch=6), topic="led"))
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await fetch_one(path, asked(at(current_leader_epoch=5), topic="led"))).error_code == 0
    before = await fetch_one(path, asked(at(current_leader_epoch=4), topic="led"), 15)
    assert before.current_leader.leader_id == -1


async def test_diverging_epochs(path: DataPath) -> None:
    """P-70: no records, but where the logs part; an undefined epoch is out of range."""
    put(path, "led", count=4)
    same = await fetch_one(path, asked(at(4, last_fetched_epoch=5), topic="led"))
    assert (same.error_code, same.diverging_epoch.epoch) == (0, -1)
    beyond = await fetch_one(path, asked(at(6, last_fetched_epoch=5), topic="led"))
    assert (beyond.error_code, beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (0, 5, 4)
    unknown = await fetch_one(path, asked(at(2, last_fetched_epoch=9), topic="led"))
    assert unknown.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_unknown_isolation_levels(path: DataPath) -> None:
    """Before topic ids every partition has the error, too."""
    put(path)
    newest = await fetch(path, asked(at(), isolation_level=2))
    assert (newest.error_code, newest.responses) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    old = await fetch(path, asked(at(), isolation_level=2), 12)
    assert old.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    nowhere = await fetch_one(path, asked(at(partition=9), isolation_level=2))
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    far = await fetch(path, asked(at(), topic="far", isolation_level=2))
    assert (far.error_code, far.responses) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])


@pytest.mark.parametrize("version", [12, NEWEST])
async def test_an_unknown_isolation_level_is_not_looked_at_where_nothing_may_be_read(
    path: DataPath, version: int
) -> None:
    """P-374: each topic has the error that the client would have without it."""
    acls = {bytes(16): Acl(TOPIC, "led", LITERAL, "User:ANONYMOUS", "*", READ, ALLOW)}
    path.services = path.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    hidden = await fetch_one(path, asked(at(), isolation_level=2), version)
    assert hidden.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    both = asked(at(), isolation_level=2)
    both.topics += asked(at(), topic="led").topics
    assert (await fetch(path, both, version)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("replica_id", "last", "error"),
    [
        (-1, 0, ErrorCode.NONE),
        (-2, 0, ErrorCode.NONE),
        (-3, 1, ErrorCode.NONE),
        (-4, 0, ErrorCode.NONE),
        (2, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
async def test_negative_replica_ids_are_of_consumers(
    path: DataPath, replica_id: int, last: int, error: ErrorCode
) -> None:
    """READ is enough for them; only -3, with which Kafka moves a replica, reads beyond the last stable offset."""
    acls = {bytes(16): Acl(TOPIC, "a", LITERAL, "User:ANONYMOUS", "*", READ, ALLOW)}
    path.services = path.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    put(path)
    partition = path.partitions.get("a", 0)
    assert partition is not None
    write_in_transaction(partition)
    data = await fetch_one(path, asked(at(), replica_id=replica_id, isolation_level=1), 12)
    assert data.error_code == error
    assert (offsets(data.records) or [-1])[-1] == last


async def test_an_unknown_isolation_level_leaves_no_session(path: DataPath) -> None:
    """P-374: the response has no session id, so that the client could not use one."""
    request = asked(at(), isolation_level=2, session_epoch=0)
    assert (await fetch(path, request)).session_id == 0
    assert len(path.services.fetch_sessions) == 0


@pytest.mark.parametrize(("limit", "listed"), [(400, None), (1, [])])
async def test_no_list_of_aborted_transactions_where_a_first_batch_does_not_fit(
    path: DataPath, limit: int, listed: list[Any] | None
) -> None:
    """There is one, though empty, where there was no room left at all: then Kafka does not look at the batch."""
    put(path, size=10)
    put(path, partition=1, size=500)
    request = asked(at(), at(partition=1), isolation_level=1, max_bytes=limit)
    first, second = (await fetch(path, request)).responses[0].partitions
    assert (first.aborted_transactions, second.aborted_transactions) == ([], listed)
    assert second.records in (b"", None)


async def test_no_list_of_aborted_transactions_where_a_log_was_asked_in_vain(path: DataPath) -> None:
    """P-67: it is empty where there was no log to ask."""
    put(path, "led", count=4)
    diverging = asked(at(6, last_fetched_epoch=5), topic="led", isolation_level=1)
    assert (await fetch_one(path, diverging)).aborted_transactions is None
    assert (await fetch_one(path, asked(at(99)))).aborted_transactions is None
    assert (await fetch_one(path, asked(at(partition=9)))).aborted_transactions == []


async def test_unknown_topics(path: DataPath) -> None:
    """P-71."""
    assert (await fetch_one(path, asked(at(), topic="no"), 12)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await fetch_one(path, asked(at(), topic="no"), 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await fetch_one(path, asked(at(partition=9)), 13)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await fetch_one(path, asked(at(), topic="far"), 13)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_session_carries_only_news(path: DataPath) -> None:
    """P-72, P-74."""
    put(path)
    full = await fetch(path, asked(at(), at(partition=1), session_epoch=0))
    session = full.session_id
    assert session > 0
    assert len(full.responses[0].partitions) == 2
    again = await fetch(path, asked(at(1), session_id=session, session_epoch=1))
    assert again.responses == []
    put(path, partition=1)
    news = await fetch(path, asked(session_id=session, session_epoch=2))
    assert [data.partition_index for data in news.responses[0].partitions] == [1]
    assert offsets(news.responses[0].partitions[0].records) == [0]


async def test_partitions_that_returned_data_go_to_the_end(path: DataPath) -> None:
    """P-74."""
    session = (await fetch(path, asked(at(), at(partition=1), session_epoch=0))).session_id
    put(path)
    put(path, partition=1)
    first = await fetch(path, asked(session_id=session, session_epoch=1, max_bytes=1))
    with_data = [data.partition_index for data in first.responses[0].partitions if data.records]
    assert with_data == [0]
    second = await fetch(path, asked(session_id=session, session_epoch=2, max_bytes=1))
    with_data = [data.partition_index for data in second.responses[0].partitions if data.records]
    assert with_data == [1]


async def test_a_session_has_the_order_of_its_first_response(path: DataPath) -> None:
    """P-72: in the first response a refused partition is last; in the second one both are refused."""
    full = await fetch(path, asked(at(partition=9), at(), session_epoch=0))
    change_topics(path)
    again = await fetch(path, asked(session_id=full.session_id, session_epoch=1))
    for response in (full, again):
        assert [data.partition_index for data in response.responses[0].partitions] == [0, 9]


async def test_a_request_that_waits_is_overtaken_by_the_next_one_of_its_session(path: DataPath) -> None:
    """P-73."""
    session = (await fetch(path, asked(at(), session_epoch=0))).session_id
    answers = []

    async def wait() -> None:
        answers.append(await fetch(path, asked(session_id=session, session_epoch=1, max_wait_ms=60_000)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        await fetch(path, asked(session_id=session, session_epoch=2))
        put(path)
    (overtaken,) = answers
    assert overtaken.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (overtaken.session_id, overtaken.responses) == (session, [])
    news = await fetch_one(path, asked(session_id=session, session_epoch=3))
    assert offsets(news.records) == [0]


async def test_session_errors(path: DataPath) -> None:
    """P-73, and P-71: a session made with topic ids is not continued without."""
    session = (await fetch(path, asked(at(), session_epoch=0))).session_id
    unknown = await fetch(path, asked(session_id=session + 1, session_epoch=1))
    assert (unknown.error_code, unknown.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    wrong = await fetch(path, asked(session_id=session, session_epoch=2))
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    mixed = await fetch(path, asked(session_id=session, session_epoch=1), 12)
    assert mixed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_a_session_goes_on_in_a_version_that_cannot_be_told_of_divergence(path: DataPath) -> None:
    """P-660: begun in version 12 with a last fetched epoch; version 11 has no place for where the logs part."""
    put(path, "led", count=4)
    begun = await fetch(path, asked(at(6, last_fetched_epoch=5), topic="led", session_epoch=0), 12)
    assert begun.responses[0].partitions[0].diverging_epoch.end_offset == 4
    with pytest.raises(KafkaError) as refused:
        await fetch(path, asked(session_id=begun.session_id, session_epoch=1), 11)
    assert refused.value.error_code == ErrorCode.UNSUPPORTED_VERSION
    # The session lives on.
    later = await fetch(path, asked(session_id=begun.session_id, session_epoch=2), 12)
    assert later.responses[0].partitions[0].diverging_epoch.end_offset == 4


async def test_sessions_end(path: DataPath) -> None:
    """P-72: epoch -1 closes; P-75: a session without partitions is closed."""
    session = (await fetch(path, asked(at(), session_epoch=0))).session_id
    closed = await fetch(path, asked(at(), session_id=session, session_epoch=-1))
    assert closed.session_id == 0
    gone = await fetch(path, asked(session_id=session, session_epoch=1))
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session = (await fetch(path, asked(at(), session_epoch=0))).session_id
    forgotten = [ForgottenTopic(topic="a", topic_id=topic_id("a"), partitions=[0])]
    emptied = await fetch(path, asked(session_id=session, session_epoch=1, forgotten_topics_data=forgotten))
    assert (emptied.session_id, emptied.responses) == (0, [])
    assert len(path.services.fetch_sessions) == 0


async def test_an_error_that_is_over_is_followed_by_the_high_watermark(path: DataPath) -> None:
    """P-74."""
    session = (await fetch(path, asked(at(7), session_epoch=0))).session_id
    repeated = await fetch(path, asked(session_id=session, session_epoch=1))
    assert repeated.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    mended = await fetch(path, asked(at(0), session_id=session, session_epoch=2))
    assert (mended.responses[0].partitions[0].error_code, mended.responses[0].partitions[0].high_watermark) == (0, 0)


async def test_a_deleted_topic_ends_the_wait(path: DataPath) -> None:
    started = trio.current_time()

    async def delete_later() -> None:
        await trio.sleep(1)
        old = path.services.metadata.image
        new = cluster_image()
        new.delta = new.delta._replace(deleted_topics=(old.topics_by_name["a"],))
        path.services.metadata.apply(old, new)
        path.partitions.apply(old, new)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(delete_later)
        data = await fetch_one(path, asked(at(), max_wait_ms=60_000))
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert data.aborted_transactions is None, "as in Kafka the log was to be read"
    assert trio.current_time() - started == pytest.approx(1, abs=0.01)


def change_topics(path: DataPath, *topics: TopicImage) -> None:
    old, new = path.services.metadata.image, cluster_image(*topics)
    new.delta = delta_between(old, new)
    path.services.metadata.apply(old, new)
    path.partitions.apply(old, new)


NEW_TOPIC = topic_image("a", 2)._replace(topic_id=topic_id("a, made again"))
ELSEWHERE = topic_image("a", 2, leader=2, leader_epoch=7)._replace(topic_id=topic_id("a, made again"))


@pytest.mark.parametrize(
    ("topics", "partition", "error", "aborted", "leader"),
    [
        ([], 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [], (-1, -1)),
        ([NEW_TOPIC], 0, ErrorCode.INCONSISTENT_TOPIC_ID, None, (-1, -1)),
        ([NEW_TOPIC], 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [], (-1, -1)),
        ([ELSEWHERE], 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, None, (2, 7)),
    ],
)
async def test_a_session_keeps_the_name_of_a_deleted_topic(
    path: DataPath,
    topics: list[TopicImage],
    partition: int,
    error: ErrorCode,
    aborted: list[object] | None,
    leader: tuple[int, int],
) -> None:
    """P-71."""
    session = (await fetch(path, asked(at(partition=partition), session_epoch=0))).session_id
    change_topics(path, *topics)
    data = (await fetch(path, asked(session_id=session, session_epoch=1))).responses[0].partitions[0]
    assert (data.error_code, data.aborted_transactions) == (error, aborted)
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == leader
    # A new session does not know the name.
    assert (await fetch_one(path, asked(at(partition=partition)))).error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_session_learns_the_name_of_a_topic_of_another_broker(path: DataPath) -> None:
    """P-71."""
    session = (await fetch(path, asked(at(), topic="far", session_epoch=0))).session_id
    change_topics(path)
    data = (await fetch(path, asked(session_id=session, session_epoch=1))).responses[0].partitions[0]
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_deleted_topic_of_a_session_is_authorized_by_its_name(path: DataPath) -> None:
    """P-71."""
    session = (await fetch(path, asked(at(), session_epoch=0))).session_id
    change_topics(path)
    path.services = path.services.replaced(authorizer=StandardAuthorizer(dict, frozenset(), False))
    data = (await fetch(path, asked(session_id=session, session_epoch=1))).responses[0].partitions[0]
    assert data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await fetch_one(path, asked(at()))).error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_no_preferred_replica_without_a_selector(path: DataPath) -> None:
    """P-76."""
    put(path)
    data = await fetch_one(path, asked(at(), rack_id="rack-1"))
    assert (data.preferred_read_replica, offsets(data.records)) == (-1, [0])


@pytest.mark.parametrize(("version", "code"), [(5, 6), (6, 56)])
async def test_storage_errors_of_old_versions(
    path: DataPath, monkeypatch: pytest.MonkeyPatch, version: int, code: int
) -> None:
    """P-77: up to version 5 a storage error reads as another leader, so that the client looks for one."""
    partition = path.partitions.get("a", 0)
    assert partition is not None

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise StorageError("file", "gone")

    monkeypatch.setattr(Partition, "read", fail)
    assert (await fetch_one(path, asked(at()), version)).error_code == code


def damage_first_batch(folder: Path, log: str) -> None:
    """Sets the length of a log's first batch to 0."""
    (segment,) = folder.rglob(f"{log}/*.log")
    with segment.open("r+b") as file:
        file.seek(8)
        file.write(bytes(4))


async def test_a_damaged_segment_is_named_to_the_client(path: DataPath, tmp_path: Path) -> None:
    """P-380: a client that got a storage error would ask again for ever; of this one it tells its user."""
    put(path, count=2)
    damage_first_batch(tmp_path, "a-0")
    assert (await fetch_one(path, asked(at()))).error_code == ErrorCode.CORRUPT_MESSAGE
    # The directory has not failed: what else is in it can be read.
    put(path, partition=1)
    assert (await fetch_one(path, asked(at(partition=1)))).error_code == ErrorCode.NONE
