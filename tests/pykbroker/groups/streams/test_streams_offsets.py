"""Committed offsets of Streams groups: member epochs, expiry, deletion (P-216)."""

from __future__ import annotations

import pytest

from pykbroker.coordination.shard import TransactionalProducer
from pykbroker.groups import offset_cleanup, offset_commit, offset_delete, offset_fetch
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from pykbroker.protocol.steps import finished
from tests.pykbroker.groups.shard_rig import GROUP, topic_id
from tests.pykbroker.groups.streams.rig import StreamsRig, Thread
from tests.pykbroker.groups.streams.topologies import stateless


def grown() -> StreamsRig:
    """Member a has task 0 since epoch 2 and is at epoch 3; b has task 1 since epoch 3."""
    rig = StreamsRig({"clicks": 2, "views": 2})
    first, second = Thread(rig, "a", stateless("clicks")), Thread(rig, "b", stateless("clicks"))
    first.join()
    second.join()
    for _ in range(3):
        first.beat()
        second.beat()
    assert rig.group.members["a"].assigned.active == {"0": {0: 2}}
    assert rig.group.members["b"].assigned.active == {"0": {1: 3}}
    return rig


def commit(
    rig: StreamsRig, member_id: str, epoch: int, *partitions: int, topic: str = "clicks", version: int = 9
) -> ErrorCode:
    request = _request(member_id, epoch, topic, partitions)
    result = offset_commit.commit(rig.shard, rig.now_ms, request, version)
    rig.carry_out(result)
    codes = {ErrorCode(p.error_code) for t in result.response.topics for p in t.partitions}
    assert len(codes) == 1
    return codes.pop()


def test_p216_metadata_that_is_too_large_comes_before_the_epoch_of_a_task() -> None:
    """P-216: an older epoch is not compared for such a partition."""
    rig = grown()
    for topic in ("clicks", "views"):
        request = _request("a", 2, topic, (0, 1))
        for partition in request.topics[0].partitions:
            partition.committed_metadata = "m" * 4097
        result = offset_commit.commit(rig.shard, rig.now_ms, request, 9)
        codes = [partition.error_code for partition in result.response.topics[0].partitions]
        assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE] * 2


def _request(member_id: str, epoch: int, topic: str, partitions: tuple[int, ...]) -> OffsetCommitRequest:
    listed = [OffsetCommitRequestPartition(partition_index=number, committed_offset=5) for number in partitions]
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id(topic), partitions=listed)],
    )


@pytest.mark.parametrize(
    ("member_id", "epoch", "partitions", "topic", "version", "error"),
    [
        ("a", 3, (0, 1), "clicks", 9, ErrorCode.NONE),
        ("a", 2, (0,), "clicks", 9, ErrorCode.NONE),
        ("a", 2, (0, 1), "clicks", 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 1, (0,), "clicks", 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, (0,), "views", 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 4, (0,), "clicks", 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 3, (0,), "clicks", 8, ErrorCode.UNSUPPORTED_VERSION),
        ("z", 3, (0,), "clicks", 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, (0,), "clicks", 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_with_epochs(
    member_id: str, epoch: int, partitions: tuple[int, ...], topic: str, version: int, error: ErrorCode
) -> None:
    """P-216."""
    assert commit(grown(), member_id, epoch, *partitions, topic=topic, version=version) is error


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("a", 3, ErrorCode.NONE),
        ("a", 2, ErrorCode.NONE),
        ("a", 1, ErrorCode.ILLEGAL_GENERATION),
        ("a", 9, ErrorCode.ILLEGAL_GENERATION),
        ("z", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.NONE),
    ],
)
def test_transactional_commits(member_id: str, epoch: int, error: ErrorCode) -> None:
    """P-216."""
    rig = grown()
    request = _request(member_id, epoch, "clicks", (0,))
    result = offset_commit.commit(rig.shard, rig.now_ms, request, 3, TransactionalProducer(7, 0))
    assert result.response.topics[0].partitions[0].error_code == error


def test_fetches_with_epochs() -> None:
    """P-216."""
    rig = grown()
    for member_id, epoch, error in (
        ("a", 3, ErrorCode.NONE),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("z", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, -1, ErrorCode.NONE),
        (None, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        group = OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=[])
        assert finished(offset_fetch.fetch(rig.shard, group)).error_code == error


def test_offsets_of_consumed_topics_stay() -> None:
    """P-216: they are neither deleted nor expired while there are members."""
    rig = grown()
    commit(rig, "a", 3, 0)
    commit(rig, "a", 3, 0, topic="views")
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in ("clicks", "views")
        ],
    )
    result = offset_delete.delete(rig.shard, rig.now_ms, request)
    codes = [topic.partitions[0].error_code for topic in result.response.topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    rig.now_ms += rig.config.groups.offsets_retention_minutes * 60_000
    expired = next(offset_cleanup.expire_offsets(rig.shard, rig.now_ms))
    assert [record.key.topic for record in expired.records] == ["views"]
    rig.carry_out(expired)
    for member_id in "ab":
        rig.beat(member_id, -1)
    rig.carry_out(next(offset_cleanup.expire_offsets(rig.shard, rig.now_ms)))
    assert rig.shard.any_group(GROUP) is None, "an empty group without offsets goes"


def test_an_empty_group_takes_offsets_of_administrators() -> None:
    """P-216."""
    rig = grown()
    for member_id in "ab":
        rig.beat(member_id, -1)
    assert commit(rig, "", -1, 0) is ErrorCode.NONE
