"""Fetch: unchanged partitions of a consumer's session are not read, and no change is missed (P-74)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.image import Acl, TopicImage
from pykbroker.handlers.fetch import handle_fetch
from pykbroker.protocol.acl_codes import ALLOW, LITERAL, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from pykbroker.replication.partition import Partition
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.data_path import NOW_MS, DataPath, batch, cluster_image, topic_id, topic_image, with_delta
from tests.support.transactions import write_in_transaction

VERSION = 17
PARTITIONS = 3
END = 2
"""Offset at which the session fetches from each partition: the log end."""


class Consumer:
    """A consumer's session with all partitions of a topic, at their ends."""

    def __init__(self, path: DataPath, **fields: Any) -> None:
        self.path = path
        self._fields = fields
        self._session = self._epoch = 0

    async def fetch(self, *partitions: FetchPartition, **fields: Any) -> dict[int, tuple[int, int, bytes]]:
        """Error, high watermark and records of each partition in the response; `partitions` are new positions."""
        topics = [FetchTopic(topic="a", topic_id=topic_id("a"), partitions=list(partitions))] if partitions else []
        request = FetchRequest(
            **{"min_bytes": 1, "max_wait_ms": 0, **self._fields, **fields},
            session_id=self._session,
            session_epoch=self._epoch,
            topics=topics,
        )
        response: Any = await self.path.call(handle_fetch, request, VERSION)
        self._session, self._epoch = response.session_id, self._epoch + 1
        found = {}
        for topic in response.responses:
            for data in topic.partitions:
                content = b""
                if data.records:
                    content = data.records.read()
                    data.records.release()
                found[data.partition_index] = (data.error_code, data.high_watermark, content)
        return found


def at_end(partition: int, **fields: Any) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=END, partition_max_bytes=1 << 20, **fields)


def led(path: DataPath, number: int) -> Partition:
    found = path.partitions.get("a", number)
    assert found is not None
    return found


def put(path: DataPath, number: int) -> None:
    led(path, number).append_as_leader(bytearray(batch(END)), NOW_MS)


async def caught_up(path: DataPath, **fields: Any) -> Consumer:
    """A consumer that has been told everything: what it fetches next has nothing new."""
    for number in range(PARTITIONS):
        put(path, number)
    consumer = Consumer(path, **fields)
    await consumer.fetch(*(at_end(number, current_leader_epoch=5) for number in range(PARTITIONS)))
    assert await consumer.fetch() == {}
    return consumer


@pytest.fixture
def path(tmp_path: Path) -> Any:
    data_path = DataPath(tmp_path, cluster_image(topic_image("a", PARTITIONS, leader_epoch=5)))
    yield data_path
    data_path.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the partitions that were read."""
    numbers: list[int] = []
    read = Partition.read

    def noted(self: Partition, *arguments: Any, **options: Any) -> Any:
        numbers.append(self.partition)
        return read(self, *arguments, **options)

    monkeypatch.setattr(Partition, "read", noted)
    return numbers


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_only_changed_partitions_are_read(path: DataPath, reads: list[int], isolation_level: int) -> None:
    consumer = await caught_up(path, isolation_level=isolation_level)
    reads.clear()
    assert await consumer.fetch() == {}
    assert reads == []
    put(path, 1)
    assert {number: found[:2] for number, found in (await consumer.fetch()).items()} == {1: (0, 2 * END)}
    assert reads == [1]


async def test_a_consumer_that_waits_is_woken_by_a_partition_that_was_not_read(path: DataPath) -> None:
    consumer = await caught_up(path)
    began = trio.current_time()

    async def put_later() -> None:
        await trio.sleep(1)
        put(path, 2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(put_later)
        assert list(await consumer.fetch(max_wait_ms=60_000)) == [2]
    assert trio.current_time() - began == pytest.approx(1, abs=0.01)


def apply(path: DataPath, *topics: TopicImage) -> None:
    old = path.services.metadata.image
    new = with_delta(cluster_image(*topics))
    if not topics:
        new.delta = new.delta._replace(deleted_topics=(old.topics_by_name["a"],))
    path.services.metadata.apply(old, new)
    path.partitions.apply(old, new)


def delete_all_that_was_read(path: DataPath) -> None:
    put(path, 1)
    led(path, 1).advance_log_start(END + 1)


def revoke(path: DataPath) -> None:
    acls = {bytes(16): Acl(TOPIC, "b", LITERAL, "User:ANONYMOUS", "*", READ, ALLOW)}
    path.services = path.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))


CHANGES: dict[str, tuple[Callable[[DataPath], None], dict[int, ErrorCode]]] = {
    "the log start moves": (lambda path: led(path, 1).advance_log_start(1), {1: ErrorCode.NONE}),
    "the log start passes the consumer": (delete_all_that_was_read, {1: ErrorCode.OFFSET_OUT_OF_RANGE}),
    "another leader epoch": (
        lambda path: apply(path, topic_image("a", PARTITIONS, leader_epoch=6, partition_epoch=1)),
        dict.fromkeys(range(PARTITIONS), ErrorCode.FENCED_LEADER_EPOCH),
    ),
    "the topic is deleted": (apply, dict.fromkeys(range(PARTITIONS), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
    "the right to read is revoked": (
        revoke,
        dict.fromkeys(range(PARTITIONS), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_each_change_is_answered(path: DataPath, change: str) -> None:
    consumer = await caught_up(path)
    effect, expected = CHANGES[change]
    effect(path)
    assert {number: found[0] for number, found in (await consumer.fetch()).items()} == expected


async def test_a_session_does_not_keep_deleted_partitions(path: DataPath) -> None:
    consumer = await caught_up(path)
    (session,) = path.services.fetch_sessions._sessions.values()
    assert all(asked.caught_up is not None for asked in session.partitions.values())
    apply(path)
    await consumer.fetch()
    assert all(asked.caught_up is None for asked in session.partitions.values())


async def test_a_refusal_is_in_the_audit_log_once(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = await caught_up(path)
    revoke(path)
    contexts: list[Any] = []
    make = path.context

    def noted(*arguments: Any) -> Any:
        contexts.append(make(*arguments))
        return contexts[-1]

    monkeypatch.setattr(path, "context", noted)
    await consumer.fetch()
    assert contexts[0].refusals == [(READ, TOPIC, "a")] * PARTITIONS


async def test_a_transaction_that_ends_is_seen_by_read_committed(path: DataPath) -> None:
    """The last stable offset stays at the consumer's position until the transaction ends."""
    consumer = await caught_up(path, isolation_level=1)
    write_in_transaction(led(path, 0))
    assert (await consumer.fetch())[0] == (0, END + 1, b"")  # the high watermark is new
    assert await consumer.fetch() == {}
    assert (await consumer.fetch(isolation_level=0))[0][2] != b""


async def test_a_reader_to_the_log_end_has_more_in_the_same_session(path: DataPath) -> None:
    """A client with the id of Kafka's moving replicas is not bound by the last stable offset."""
    consumer = await caught_up(path, isolation_level=1)
    write_in_transaction(led(path, 0))
    await consumer.fetch()
    assert await consumer.fetch() == {}
    assert (await consumer.fetch(replica_state=ReplicaState(replica_id=-3)))[0][2] != b""


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_a_partition_for_which_there_was_no_room_is_read(path: DataPath, isolation_level: int) -> None:
    consumer = await caught_up(path, isolation_level=isolation_level)
    for number in range(PARTITIONS):
        put(path, number)
    served = []
    for _ in range(PARTITIONS):
        found = await consumer.fetch(max_bytes=1)
        (number,) = (number for number, (_, _, content) in found.items() if content)
        await consumer.fetch(FetchPartition(partition=number, fetch_offset=2 * END, partition_max_bytes=1 << 20))
        served.append(number)
    assert sorted(served) == list(range(PARTITIONS))


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_an_offset_above_the_high_watermark_is_read_each_time(
    tmp_path: Path, reads: list[int], isolation_level: int
) -> None:
    """It may be out of range by now."""
    path = DataPath(tmp_path, cluster_image(topic_image("a", leader_epoch=5, followers=(2,), isr=(1, 2))))
    put(path, 0)
    consumer = Consumer(path, isolation_level=isolation_level)
    assert await consumer.fetch(at_end(0)) == {0: (0, 0, b"")}
    reads.clear()
    assert await consumer.fetch() == {}
    assert reads == [0]
    path.close()


async def test_a_new_position_is_read(path: DataPath) -> None:
    consumer = await caught_up(path)
    moved = await consumer.fetch(FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=1 << 20))
    assert list(moved) == [1]
    assert moved[1][2]


async def test_the_last_fetched_epoch_is_compared_each_time(path: DataPath, reads: list[int]) -> None:
    consumer = await caught_up(path)
    await consumer.fetch(at_end(1, last_fetched_epoch=5))
    reads.clear()
    await consumer.fetch()
    assert reads == [1]
