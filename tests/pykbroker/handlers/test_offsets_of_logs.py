"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeLogDirs on real logs (P-80 to P-87, P-150, P-154)."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.controller.metadata.image import Acl
from pykbroker.handlers.delete_records import handle_delete_records
from pykbroker.handlers.describe_log_dirs import handle_describe_log_dirs
from pykbroker.handlers.describe_producers import handle_describe_producers
from pykbroker.handlers.list_offsets import handle_list_offsets
from pykbroker.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.acl_codes import ALLOW, DESCRIBE, LITERAL, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pykbroker.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from pykbroker.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.data_path import NOW_MS, DataPath, batch, cluster_image, topic_image
from tests.support.turns import with_turns


@pytest.fixture
def path(tmp_path: Path) -> Any:
    data_path = DataPath(
        tmp_path,
        cluster_image(
            topic_image("a", 2, leader_epoch=4),
            topic_image("compacted"),
            topic_image("__consumer_offsets"),
            topic_image("__transaction_state", leader=2),
            topic_image("far", leader=2),
            configs={"compacted": {"cleanup.policy": "compact"}},
        ),
    )
    yield data_path
    data_path.close()


def put(path: DataPath, count: int = 1, *, topic: str = "a", timestamp: int = NOW_MS) -> None:
    partition = path.partitions.get(topic, 0)
    assert partition is not None
    partition.append_as_leader(bytearray(batch(count, timestamp=timestamp, key=b"k")), NOW_MS)


async def offset_at(path: DataPath, timestamp: int, *, version: int = 11, partition: int = 0, **fields: Any) -> Any:
    topic = fields.pop("topic", "a")
    asked = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=fields.pop("current_leader_epoch", -1)
    )
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])], **fields)
    return (await path.call(handle_list_offsets, request, version)).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
async def test_both_ends(path: DataPath, version: int) -> None:
    """P-80: the latest is the high watermark, with its leader epoch; P-81: the earliest is the log start."""
    put(path, 3)
    latest = await offset_at(path, -1, version=version)
    assert (latest.offset, latest.timestamp, latest.leader_epoch) == (3, -1, 4 if version >= 4 else -1)
    earliest = await offset_at(path, -2, version=version)
    assert (earliest.offset, earliest.timestamp, earliest.leader_epoch) == (0, -1, 4 if version >= 4 else -1)


async def test_an_empty_log(path: DataPath) -> None:
    """P-80, P-83."""
    assert (await offset_at(path, -1)).offset == 0
    earliest = await offset_at(path, -2)
    assert (earliest.offset, earliest.leader_epoch) == (0, 4)
    nothing = await offset_at(path, NOW_MS)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (0, -1, -1)
    assert (await offset_at(path, -3)).offset == -1


async def test_read_committed_ends_at_the_last_stable_offset(path: DataPath) -> None:
    """P-80: equal to the high watermark while no transaction is open."""
    put(path, 2)
    assert (await offset_at(path, -1, isolation_level=1)).offset == 2


async def test_special_timestamps(path: DataPath) -> None:
    """P-81: the largest timestamp, earliest local, latest tiered, earliest pending upload."""
    put(path, 3, timestamp=NOW_MS + 50)
    put(path, 2)
    largest = await offset_at(path, -3)
    assert (largest.offset, largest.timestamp) == (2, NOW_MS + 52)
    assert (await offset_at(path, -4)).offset == 0
    assert (await offset_at(path, -5)).offset == -1
    assert (await offset_at(path, -6)).offset == -1


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (-100, 11)])
async def test_special_timestamps_at_too_low_a_version(path: DataPath, timestamp: int, version: int) -> None:
    """P-82."""
    assert (await offset_at(path, timestamp, version=version)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_by_timestamp(path: DataPath) -> None:
    """P-83: the first record at or after the time, inside a batch too. P-84: nothing later is not an error."""
    put(path, 5, timestamp=NOW_MS)
    put(path, 5, timestamp=NOW_MS + 100)
    assert (await offset_at(path, NOW_MS - 1)).offset == 0
    middle = await offset_at(path, NOW_MS + 3)
    assert (middle.offset, middle.timestamp, middle.leader_epoch) == (3, NOW_MS + 3, 4)
    assert (await offset_at(path, NOW_MS + 50)).offset == 5
    later = await offset_at(path, NOW_MS + 105)
    assert (later.error_code, later.offset) == (0, -1)


async def test_the_same_partition_twice(path: DataPath) -> None:
    """P-85."""
    twice = [ListOffsetsPartition(timestamp=-1), ListOffsetsPartition(timestamp=-2)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="a", partitions=twice)])
    response = await path.call(handle_list_offsets, request, 11)
    assert [p.error_code for p in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]
    again = ListOffsetsTopic(name="a", partitions=[ListOffsetsPartition(timestamp=-1)])
    response = await path.call(handle_list_offsets, ListOffsetsRequest(topics=[again, again]), 11)
    assert [[p.error_code for p in topic.partitions] for topic in response.topics] == [[ErrorCode.INVALID_REQUEST]]


async def test_topics_that_the_client_may_not_see_come_last(path: DataPath) -> None:
    """P-80: as in Kafka."""
    acls = {bytes(16): Acl(TOPIC, "a", LITERAL, "User:ANONYMOUS", "*", DESCRIBE, ALLOW)}
    path.services = path.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    names = ["hidden", "a", "secret"]
    topics = [ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)]) for name in names]
    response = await path.call(handle_list_offsets, ListOffsetsRequest(topics=topics), 11)
    assert [topic.name for topic in response.topics] == ["a", "hidden", "secret"]
    codes = [topic.partitions[0].error_code for topic in response.topics]
    assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


async def test_long_searches_let_others_have_their_turn(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """To find a timestamp a batch may have to be decompressed, which a client may have made very large."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    asked = [ListOffsetsPartition(partition_index=number, timestamp=NOW_MS) for number in range(5)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="a", partitions=asked)])
    response, turns = await with_turns(path.call(handle_list_offsets, request, 7))
    assert len(response.topics[0].partitions) == 5
    assert turns >= 4


async def test_unknown_isolation_levels(path: DataPath) -> None:
    assert (await offset_at(path, -1, isolation_level=2)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_list_offsets_errors(path: DataPath) -> None:
    assert (await offset_at(path, -1, topic="no")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await offset_at(path, -1, partition=7)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await offset_at(path, -1, topic="far")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await offset_at(path, -1, current_leader_epoch=3)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (await offset_at(path, -1, current_leader_epoch=5)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_end_offsets_of_epochs(path: DataPath, version: int) -> None:
    """P-87: current epoch, an epoch between, above all, below all."""
    partition = path.partitions.get("a", 0)
    assert partition is not None
    partition.leader_epoch = 2
    put(path, 3)
    partition.leader_epoch = 4
    put(path, 2)

    async def end_of(epoch: int) -> tuple[int, int]:
        asked = OffsetForLeaderTopic(topic="a", partitions=[OffsetForLeaderPartition(leader_epoch=epoch)])
        request = OffsetForLeaderEpochRequest(topics=[asked])
        answer = (await path.call(handle_offset_for_leader_epoch, request, version)).topics[0].partitions[0]
        assert answer.error_code == 0
        return answer.leader_epoch, answer.end_offset

    assert await end_of(4) == (4, 5)
    assert await end_of(2) == (2, 3)
    assert await end_of(3) == (2, 3)
    assert await end_of(9) == (-1, -1)
    assert await end_of(1) == (1, 0)


async def test_epochs_before_an_empty_log(path: DataPath) -> None:
    """P-87: all that came before the leader's epoch ended where the log begins; -1 stands for none."""
    asked = [OffsetForLeaderPartition(leader_epoch=epoch) for epoch in (0, 3, -7, -1, 4, 5)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="a", partitions=asked)])
    answers = (await path.call(handle_offset_for_leader_epoch, request, 4)).topics[0].partitions
    found = [(answer.leader_epoch, answer.end_offset) for answer in answers]
    assert found == [(0, 0), (3, 0), (-7, 0), (-1, -1), (4, 0), (-1, -1)]


async def test_end_offset_errors(path: DataPath) -> None:
    """P-69 for OffsetForLeaderEpoch."""

    async def error(topic: str, partition: int = 0, current: int = -1) -> int:
        asked = OffsetForLeaderPartition(partition=partition, leader_epoch=1, current_leader_epoch=current)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
        answer = (await path.call(handle_offset_for_leader_epoch, request, 4)).topics[0].partitions[0]
        code: int = answer.error_code
        return code

    assert await error("no") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await error("far") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await error("a", current=3) == ErrorCode.FENCED_LEADER_EPOCH
    assert await error("a", current=5) == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_partition_in_a_failed_directory(path: DataPath) -> None:
    """P-375: its leader may be this broker, so that clients should not look for another one."""
    path.partitions.take_offline([("a", 0)])
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    assert (await offset_at(path, -1)).error_code == failed
    epochs = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="a", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=4)])]
    )
    answer = await path.call(handle_offset_for_leader_epoch, epochs, 4)
    assert answer.topics[0].partitions[0].error_code == failed
    assert (await deleted(path, 0)).error_code == failed
    producers = DescribeProducersRequest(topics=[TopicRequest(name="a", partition_indexes=[0])])
    described = await path.call(handle_describe_producers, producers, 0)
    assert described.topics[0].partitions[0].error_code == failed


async def test_producers_of_a_log_that_cannot_be_loaded(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the partition's: the others of the request are described."""
    put(path)

    def fail(*_: object) -> None:
        raise StorageError("a-1", "Input/output error")

    # The log of partition 0 is loaded already.
    monkeypatch.setattr("pykbroker.logstore.unloaded_log.load_log", fail)
    request = DescribeProducersRequest(topics=[TopicRequest(name="a", partition_indexes=[1, 0])])
    response = await path.call(handle_describe_producers, request, 0)
    codes = [(p.partition_index, p.error_code) for p in response.topics[0].partitions]
    assert codes == [(1, ErrorCode.KAFKA_STORAGE_ERROR), (0, ErrorCode.NONE)]


async def test_records_of_internal_topics_cannot_be_deleted_wherever_they_are(path: DataPath) -> None:
    """P-376: the topic's name is looked at before the leader."""
    assert (await deleted(path, 0, "__transaction_state")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def deleted(path: DataPath, offset: int, topic: str = "a", version: int = 2) -> Any:
    asked = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    response = await path.call(handle_delete_records, DeleteRecordsRequest(topics=[asked], timeout_ms=1000), version)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_delete_records(path: DataPath, version: int) -> None:
    """P-150."""
    put(path, 5)
    assert (await deleted(path, 2, version=version)).low_watermark == 2
    assert (await offset_at(path, -2)).offset == 2
    assert (await deleted(path, 1, version=version)).low_watermark == 2
    assert (await deleted(path, -1, version=version)).low_watermark == 5
    assert (await offset_at(path, -2)).offset == 5


async def test_delete_records_of_a_partition_twice(path: DataPath) -> None:
    """P-150: the last offset counts, and is answered once; a topic without partitions is not answered."""
    put(path, 5)
    twice = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (4, 2)]
    topics = [DeleteRecordsTopic(name="a", partitions=[asked]) for asked in twice]
    topics.append(DeleteRecordsTopic(name="compacted"))
    response = await path.call(handle_delete_records, DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    assert [[p.low_watermark for p in topic.partitions] for topic in response.topics] == [[2]]


async def test_delete_records_reads_a_request_in_turns(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is named very often is one partition, but each name takes time."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    put(path, 5)
    asked = [DeleteRecordsPartition(partition_index=0, offset=2)] * 100
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="a", partitions=asked)], timeout_ms=1000)
    response, turns = await with_turns(path.call(handle_delete_records, request, 2))
    assert [[p.low_watermark for p in topic.partitions] for topic in response.topics] == [[2]]
    assert turns > 51


@pytest.mark.parametrize("offset", [6, -2])
async def test_delete_records_out_of_range(path: DataPath, offset: int) -> None:
    """P-150."""
    put(path, 5)
    result = await deleted(path, offset)
    assert (result.error_code, result.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_delete_records_where_it_is_not_allowed(path: DataPath) -> None:
    """P-150."""
    put(path, 1, topic="compacted")
    assert (await deleted(path, -1, "compacted")).error_code == ErrorCode.POLICY_VIOLATION
    assert (await deleted(path, -1, "__consumer_offsets")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await deleted(path, -1, "no")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(1, 6))
async def test_describe_log_dirs(path: DataPath, version: int) -> None:
    """P-154."""
    put(path, 5)
    response = await path.call(handle_describe_log_dirs, DescribeLogDirsRequest(topics=None), version)
    (directory,) = response.results
    assert os.path.isabs(directory.log_dir)
    assert {topic.name: len(topic.partitions) for topic in directory.topics} == {
        "a": 2,
        "compacted": 1,
        "__consumer_offsets": 1,
    }
    sizes = {p.partition_index: p.partition_size for t in directory.topics if t.name == "a" for p in t.partitions}
    assert sizes == {0: len(batch(5, key=b"k")), 1: 0}
    assert directory.total_bytes >= directory.usable_bytes > 0
    only = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="a", partitions=[1])])
    (directory,) = (await path.call(handle_describe_log_dirs, only, version)).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in directory.topics] == [("a", [1])]


async def test_describe_log_dirs_that_cannot_be_read(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-154: the error is the directory's, not the response's."""

    def fail(folder: str) -> tuple[int, int]:
        raise StorageError(folder, "Input/output error")

    monkeypatch.setattr(path.directory.filesystem, "space", fail)
    response = await path.call(handle_describe_log_dirs, DescribeLogDirsRequest(topics=None), 4)
    (directory,) = response.results
    assert (response.error_code, directory.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert os.path.isabs(directory.log_dir)


async def test_describe_log_dirs_while_a_partition_is_made_anew(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deleted one is not described, though it was there when the request came."""
    put(path, 5)
    found, deleted = list(path.partitions.all()), SimpleNamespace(topic="a", partition=0)
    monkeypatch.setattr(path.partitions, "all", lambda: [deleted, *found])
    (directory,) = (await path.call(handle_describe_log_dirs, DescribeLogDirsRequest(topics=None), 4)).results
    sizes = [p.partition_size for t in directory.topics if t.name == "a" for p in t.partitions]
    assert sorted(sizes) == [0, len(batch(5, key=b"k"))]
