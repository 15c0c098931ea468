"""Transactions as readers see them: Fetch, ListOffsets, DescribeProducers on real logs (P-61, P-63, P-67, P-68)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.handlers.describe_producers import handle_describe_producers
from pykbroker.handlers.fetch import handle_fetch
from pykbroker.handlers.list_offsets import handle_list_offsets
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.list_offsets import (
    LATEST,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pykbroker.protocol.records.batch import iter_batches
from pykbroker.replication.partition import Partition
from tests.support.data_path import NOW_MS, DataPath, batch, cluster_image, topic_id, topic_image
from tests.support.transactions import PRODUCER_ID, end_transaction, write_in_transaction

READ_COMMITTED, READ_UNCOMMITTED = 1, 0


@pytest.fixture
def path(tmp_path: Path) -> Any:
    small = {"small": {"internal.segment.bytes": "600"}}
    topics = [topic_image("a", 2), topic_image("small"), topic_image("far", leader=2)]
    data_path = DataPath(tmp_path, cluster_image(*topics, configs=small))
    yield data_path
    data_path.close()


def partition_of(path: DataPath, topic: str = "a") -> Partition:
    found = path.partitions.get(topic, 0)
    assert found is not None
    return found


def put(partition: Partition, count: int = 1, *, size: int = 10) -> int:
    return partition.append_as_leader(bytearray(batch(count, size=size)), NOW_MS).first_offset


async def fetch(
    path: DataPath,
    offset: int = 0,
    *,
    topic: str = "a",
    version: int = 17,
    isolation: int = READ_COMMITTED,
    size_max: int = 1 << 20,
    **fields: Any,
) -> Any:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size_max)
    topics = [FetchTopic(topic=topic, topic_id=topic_id(topic), partitions=[asked])]
    request = FetchRequest(
        **{"min_bytes": 1, "max_wait_ms": 0, "topics": topics, "isolation_level": isolation, **fields}
    )
    response = await path.call(handle_fetch, request, version)
    data = response.responses[0].partitions[0]
    if len(data.records):
        file_range = data.records
        data.records = file_range.read()
        file_range.release()
    return data


def base_offsets(data: Any) -> list[int]:
    return [found.base_offset for found in iter_batches(data.records)]


def aborted(data: Any) -> list[tuple[int, int]]:
    return [(entry.producer_id, entry.first_offset) for entry in data.aborted_transactions]


@pytest.mark.parametrize("version", range(4, 18))
async def test_committed_readers_stop_at_the_last_stable_offset(path: DataPath, version: int) -> None:
    """P-67, P-68: and others do not."""
    partition = partition_of(path)
    put(partition)
    write_in_transaction(partition)
    put(partition)
    data = await fetch(path, version=version)
    assert (data.high_watermark, data.last_stable_offset, base_offsets(data), aborted(data)) == (3, 1, [0], [])
    data = await fetch(path, version=version, isolation=READ_UNCOMMITTED)
    assert (data.last_stable_offset, base_offsets(data), data.aborted_transactions) == (1, [0, 1, 2], None)
    data = await fetch(path, 2, version=version)
    assert (data.error_code, data.records, aborted(data)) == (ErrorCode.NONE, b"", [])
    end_transaction(partition, commit=True)
    data = await fetch(path, version=version)
    assert (data.last_stable_offset, base_offsets(data), aborted(data)) == (4, [0, 1, 2, 3], [])


async def test_aborted_records_are_returned_and_named(path: DataPath) -> None:
    """P-67: every aborted transaction that overlaps what is returned; the data and the markers are in it."""
    partition = partition_of(path)
    write_in_transaction(partition)
    write_in_transaction(partition, producer_id=8)
    end_transaction(partition, commit=True, producer_id=8)
    end_transaction(partition, commit=False)
    put(partition)
    data = await fetch(path)
    assert (base_offsets(data), aborted(data)) == ([0, 1, 2, 3, 4], [(PRODUCER_ID, 0)])
    assert aborted(await fetch(path, 3)) == [(PRODUCER_ID, 0)], "the marker itself ends it"
    assert aborted(await fetch(path, 4)) == []
    data = await fetch(path, isolation=READ_UNCOMMITTED)
    assert (base_offsets(data), data.aborted_transactions) == ([0, 1, 2, 3, 4], None)


async def test_aborted_transactions_in_other_segments_are_named_where_they_overlap(path: DataPath) -> None:
    """P-67: the marker lies two segments behind its data; a reader of the first and of the last must know."""
    partition = partition_of(path, "small")
    write_in_transaction(partition)
    for _ in range(6):
        put(partition, size=150)
    marker_offset = end_transaction(partition, commit=False)
    for _ in range(6):
        put(partition, size=150)
    write_in_transaction(partition, 1)
    end_transaction(partition, commit=False)
    assert len(partition.log.segment_base_offsets) > 3
    assert aborted(await fetch(path, topic="small")) == [(PRODUCER_ID, 0)]
    assert aborted(await fetch(path, 4, topic="small", size_max=300)) == [(PRODUCER_ID, 0)]
    assert aborted(await fetch(path, marker_offset + 1, topic="small", size_max=300)) == []
    last = await fetch(path, marker_offset + 7, topic="small")
    assert aborted(last) == [(PRODUCER_ID, marker_offset + 7)]


async def read_later(path: DataPath, answers: list[Any], offset: int = 0, **fields: Any) -> None:
    data = await fetch(path, offset, max_wait_ms=10_000, **fields)
    answers.append((trio.current_time(), data))


@pytest.mark.parametrize("commit", [True, False])
async def test_a_marker_wakes_a_committed_reader(path: DataPath, commit: bool) -> None:
    """P-63, P-68: not the records of the transaction, which it may not read yet."""
    partition = partition_of(path)
    answers: list[Any] = []
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_later, path, answers)
        for sequence in range(3):
            await trio.sleep(1)
            write_in_transaction(partition, sequence)
        await trio.sleep(1)
        assert not answers
        end_transaction(partition, commit=commit)
    [(time, data)] = answers
    assert time - start == 4
    assert base_offsets(data) == [0, 1, 2, 3]
    assert len(partition.replica.stable_waiters) == len(partition.replica.waiters) == 0


async def test_an_uncommitted_reader_is_woken_by_the_records(path: DataPath) -> None:
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: read_later(path, answers, isolation=READ_UNCOMMITTED))
        await trio.sleep(1)
        write_in_transaction(partition_of(path))
    assert base_offsets(answers[0][1]) == [0]


async def test_plain_records_wake_a_committed_reader(path: DataPath) -> None:
    """P-63: as long as no transaction is open before them."""
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_later, path, answers)
        await trio.sleep(1)
        put(partition_of(path))
    assert base_offsets(answers[0][1]) == [0]


async def test_a_committed_reader_waits_for_min_bytes(path: DataPath) -> None:
    """P-63: counted when they become stable."""
    partition = partition_of(path)
    answers: list[Any] = []
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: read_later(path, answers, min_bytes=2 * len(batch(5))))
        await trio.sleep(1)
        write_in_transaction(partition, count=5)
        end_transaction(partition, commit=True)
        await trio.sleep(1)
        assert not answers
        put(partition, 5)
    assert answers[0][0] - start == 2
    assert base_offsets(answers[0][1]) == [0, 5, 6]


async def test_a_reader_waits_on_when_another_transaction_holds_it_back(path: DataPath) -> None:
    """P-63, P-68: the first of two transactions ends, which makes nothing readable behind the second's beginning."""
    partition = partition_of(path)
    write_in_transaction(partition)
    write_in_transaction(partition, producer_id=8)
    answers: list[Any] = []
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_later, path, answers, 2)
        await trio.sleep(1)
        end_transaction(partition, commit=True)
        await trio.sleep(1)
        assert not answers
        end_transaction(partition, commit=True, producer_id=8)
    assert answers[0][0] - start == 2
    assert base_offsets(answers[0][1]) == [2, 3]


async def test_a_committed_reader_waits_no_longer_than_asked(path: DataPath) -> None:
    write_in_transaction(partition_of(path))
    start = trio.current_time()
    answers: list[Any] = []
    await read_later(path, answers)
    assert answers[0][0] - start == 10
    assert answers[0][1].records == b""


async def list_offset(path: DataPath, timestamp: int, isolation: int) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    topics = [ListOffsetsTopic(name="a", partitions=[asked])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
    return (await path.call(handle_list_offsets, request, 11)).topics[0].partitions[0].offset


async def test_list_offsets_of_committed_readers(path: DataPath) -> None:
    """P-80: the end is the last stable offset; P-84: what lies behind it is not found."""
    partition = partition_of(path)
    put(partition, 3)
    write_in_transaction(partition, count=5)
    assert await list_offset(path, LATEST, READ_COMMITTED) == 3
    assert await list_offset(path, LATEST, READ_UNCOMMITTED) == 8
    assert await list_offset(path, NOW_MS + 2, READ_COMMITTED) == 2
    assert await list_offset(path, NOW_MS + 3, READ_COMMITTED) == -1
    assert await list_offset(path, NOW_MS + 3, READ_UNCOMMITTED) == 6
    assert await list_offset(path, MAX_TIMESTAMP, READ_COMMITTED) == -1
    end_transaction(partition, commit=True)
    assert await list_offset(path, LATEST, READ_COMMITTED) == 9
    assert await list_offset(path, NOW_MS + 3, READ_COMMITTED) == 6


async def test_describe_producers(path: DataPath) -> None:
    """KIP-664: the producers of a partition and their open transactions; errors by partition."""
    partition = partition_of(path)
    write_in_transaction(partition, count=3)
    data = batch(2, producer_id=9, producer_epoch=4, base_sequence=10)
    partition.append_as_leader(bytearray(data), NOW_MS)
    topics = [("a", [0, 1, 5]), ("far", [0]), ("none", [0])]
    request = DescribeProducersRequest(topics=[TopicRequest(name=n, partition_indexes=p) for n, p in topics])
    response = await path.call(handle_describe_producers, request, 0)
    first, second, missing = response.topics[0].partitions
    described = {
        p.producer_id: (p.producer_epoch, p.last_sequence, p.current_txn_start_offset) for p in first.active_producers
    }
    assert described == {PRODUCER_ID: (0, 2, 0), 9: (4, 11, -1)}
    assert [p.last_timestamp for p in first.active_producers] == [NOW_MS + 2, NOW_MS + 1]
    assert [p.coordinator_epoch for p in first.active_producers] == [-1, -1]
    assert (second.error_code, second.active_producers) == (ErrorCode.NONE, [])
    codes = [missing.error_code, *(topic.partitions[0].error_code for topic in response.topics[1:])]
    assert codes == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    end_transaction(partition, commit=True)
    response = await path.call(handle_describe_producers, request, 0)
    ended = {p.producer_id: p for p in response.topics[0].partitions[0].active_producers}[PRODUCER_ID]
    assert (ended.current_txn_start_offset, ended.coordinator_epoch, ended.last_sequence) == (-1, 0, 2)
