"""Member epochs in offset requests of consumer groups."""

from __future__ import annotations

import pytest

from pykbroker.coordination.shard import NO_PRODUCER, TransactionalProducer
from pykbroker.groups import offset_cleanup, offset_commit, offset_fetch
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from pykbroker.protocol.steps import finished
from tests.pykbroker.groups.consumer.rig import Client, Rig, settle
from tests.pykbroker.groups.shard_rig import GROUP, topic_id

PRODUCER = TransactionalProducer(7, 0)
DAY_MS = 24 * 60 * 60 * 1000


def commit(
    rig: Rig,
    member_id: str,
    epoch: int,
    partitions: list[int],
    api_version: int = 10,
    producer: TransactionalProducer = NO_PRODUCER,
    metadata: str = "",
    retention_ms: int = -1,
) -> ErrorCode:
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id=member_id,
        retention_time_ms=retention_ms,
        generation_id_or_member_epoch=epoch,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                topic_id=topic_id("t"),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=5, committed_metadata=metadata
                    )
                    for number in partitions
                ],
            )
        ],
    )
    result = offset_commit.commit(rig.shard, rig.now_ms, request, api_version, producer)
    rig.carry_out(result)
    return ErrorCode(result.response.topics[0].partitions[0].error_code)


def test_p177_epochs_of_commits() -> None:
    """P-177: an older epoch commits what was assigned at it or before."""
    rig = Rig({"t": 4})
    first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
    first.beat()
    assert commit(rig, "a", 2, [0, 1, 2, 3]) is ErrorCode.NONE
    assert commit(rig, "a", 2, [0], api_version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(rig, "a", 3, [0]) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(rig, "nobody", 2, [0]) is ErrorCode.UNKNOWN_MEMBER_ID
    settle(first, second)
    assert (first.epoch, second.epoch) == (3, 3)
    mine = [number for _, number in first.partitions]
    others = [number for _, number in second.partitions]
    assert commit(rig, "a", 2, mine) is ErrorCode.NONE
    assert commit(rig, "a", 2, others) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(rig, "b", 2, others) is ErrorCode.STALE_MEMBER_EPOCH, "they were assigned at epoch 3"


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("a", 3, ErrorCode.NONE),
        ("a", 4, ErrorCode.ILLEGAL_GENERATION),
        ("b", 2, ErrorCode.ILLEGAL_GENERATION),
        ("nobody", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        # A producer that names no member needs none.
        ("", -1, ErrorCode.NONE),
        ("nobody", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_epochs_of_transactional_commits(member_id: str, epoch: int, error: ErrorCode) -> None:
    """P-177, for TxnOffsetCommit, which knows no error of its own for epochs."""
    rig = Rig({"t": 2})
    first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
    settle(first, second)
    assert (first.epoch, second.epoch) == (3, 3)
    [(_, number)] = second.partitions
    assert commit(rig, member_id, epoch, [number] if member_id == "b" else [1 - number], producer=PRODUCER) is error


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("a", 2, ErrorCode.NONE),
        (None, -1, ErrorCode.NONE),
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 2, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_p177_epochs_of_fetches(member_id: str | None, epoch: int, error: ErrorCode) -> None:
    """P-177."""
    rig = Rig({"t": 1})
    Client(rig, "a", ["t"]).beat()
    request = OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None)
    assert finished(offset_fetch.fetch(rig.shard, request)).error_code == error


def test_p177_metadata_that_is_too_large_comes_before_the_epoch_of_a_partition() -> None:
    """P-177: an older epoch is not compared for such a partition."""
    rig = Rig({"t": 2})
    settle(Client(rig, "a", ["t"]), Client(rig, "b", ["t"]))
    for producer in (NO_PRODUCER, PRODUCER):
        refused = commit(rig, "a", 2, [0, 1], producer=producer, metadata="m" * 4097)
        assert refused is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_p114_an_offset_with_its_own_retention_in_an_empty_group() -> None:
    """P-114: OffsetCommit 2 to 4 of an administrator."""
    rig = Rig({"t": 2})
    client = Client(rig, "a", ["t"])
    client.beat()
    client.leave()
    assert commit(rig, "", -1, [0], api_version=4, retention_ms=DAY_MS) is ErrorCode.NONE
    assert commit(rig, "", -1, [1], api_version=4, retention_ms=30 * DAY_MS) is ErrorCode.NONE
    assert next(offset_cleanup.expire_offsets(rig.shard, rig.now_ms + DAY_MS - 1)).records == []
    assert len(next(offset_cleanup.expire_offsets(rig.shard, rig.now_ms + DAY_MS)).records) == 1
    assert len(next(offset_cleanup.expire_offsets(rig.shard, rig.now_ms + 29 * DAY_MS)).records) == 1


def test_offsets_expire_only_for_topics_that_the_group_has_left() -> None:
    rig = Rig({"t": 1, "u": 1})
    client = Client(rig, "a", ["t"])
    client.beat()
    assert commit(rig, "a", 2, [0]) is ErrorCode.NONE
    assert next(offset_cleanup.expire_offsets(rig.shard, rig.now_ms + 8 * DAY_MS)).records == []
    client.subscribe(["u"])
    assert len(next(offset_cleanup.expire_offsets(rig.shard, rig.now_ms + 8 * DAY_MS)).records) == 1
    client.leave()
    rig.carry_out(next(offset_cleanup.expire_offsets(rig.shard, rig.now_ms + 8 * DAY_MS)))
    assert rig.shard.consumer.by_id == {}, "an empty group without offsets goes with them"
