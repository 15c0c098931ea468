"""Membership of share groups (KIP-932) on one shard: joins, assignments, initialization of partitions, expiry."""

from __future__ import annotations

import pytest

from pykbroker.coordination.shard import TransactionalProducer
from pykbroker.groups import administration
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.offset_commit import check_commit
from pykbroker.groups.offset_commit import commit as commit_offsets
from pykbroker.groups.offset_fetch import fetch
from pykbroker.groups.share.group import ShareGroup
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from pykbroker.protocol.steps import finished
from tests.pykbroker.groups.consumer.rig import Rig as ConsumerRig
from tests.pykbroker.groups.shard_rig import GROUP, topic_id
from tests.pykbroker.groups.share.rig import ShareRig, partitions_of


def joined(rig: ShareRig, *members: str, topics: tuple[str, ...] = ("t",)) -> None:
    """Members join one after the other, partitions are initialized, and all heartbeat until they have their target."""
    for member in members:
        assert rig.beat(member, 0, *topics).error_code == ErrorCode.NONE
    rig.initialize()
    for _ in range(3):
        for member in rig.group.members:
            rig.beat(member, rig.group.members[member].member_epoch)


def assigned(rig: ShareRig, member: str) -> dict[str, set[int]]:
    found = rig.group.members[member].assigned
    return {topic.decode().rstrip("."): set(partitions) for topic, partitions in found.items()}


def snapshot(group: ShareGroup) -> tuple[object, ...]:
    states = [{k: (v.name, v.partitions) for k, v in s.items()} for s in (group.initializing, group.initialized)]
    return (
        group.epoch,
        group.assignment_epoch,
        group.members,
        group.targets,
        group.metadata_hash,
        states,
        group.deleting,
    )


def test_partitions_are_assigned_when_they_are_initialized() -> None:
    rig = ShareRig({"t": 2})
    first = rig.beat("m", 0, "t")
    assert (first.member_id, first.member_epoch, partitions_of(first)) == ("m", 2, {})
    assert [(i.state_epoch, i.partitions) for i in rig.wanted] == [(2, {topic_id("t"): frozenset({0, 1})})]
    assert partitions_of(rig.beat("m", 2)) is None
    rig.initialize()
    second = rig.beat("m", 2)
    assert (second.member_epoch, partitions_of(second)) == (3, {"t": [0, 1]})
    assert rig.wanted == []


def test_members_share_partitions() -> None:
    rig = ShareRig({"t": 1})
    joined(rig, "a", "b", "c")
    assert [assigned(rig, member) for member in "abc"] == [{"t": {0}}] * 3


def test_members_spread_over_partitions() -> None:
    rig = ShareRig({"t": 4})
    joined(rig, "a", "b")
    assert sorted(assigned(rig, "a")["t"] | assigned(rig, "b")["t"]) == [0, 1, 2, 3]
    assert len(assigned(rig, "a")["t"]) == len(assigned(rig, "b")["t"]) == 2


def test_a_refused_initialization_is_tried_again_by_a_heartbeat() -> None:
    rig = ShareRig({"t": 1})
    rig.beat("m", 0, "t")
    rig.fail()
    assert rig.group.initializing == {}
    rig.beat("m", 2)
    assert len(rig.wanted) == 1


def test_an_initialization_without_an_answer_is_tried_again_after_the_interval() -> None:
    rig = ShareRig({"t": 1}, initialize_retry_interval_ms=10_000)
    rig.beat("m", 0, "t")
    rig.wanted.clear()
    rig.advance(9_999)
    rig.beat("m", 2)
    assert rig.wanted == []
    rig.advance(1)
    rig.beat("m", 2)
    assert len(rig.wanted) == 1


def test_new_partitions_and_topics_are_initialized_and_assigned() -> None:
    rig = ShareRig({"t": 1})
    joined(rig, "m")
    rig.set_topics(t=3)
    rig.beat("m", rig.group.members["m"].member_epoch)
    assert [i.partitions for i in rig.wanted] == [{topic_id("t"): frozenset({1, 2})}]
    joined(rig, "m")
    assert assigned(rig, "m") == {"t": {0, 1, 2}}


def test_a_deleted_topic_is_taken_from_its_members() -> None:
    rig = ShareRig({"t": 1, "u": 1})
    joined(rig, "m", topics=("t", "u"))
    rig.set_topics(u=0)
    response = rig.beat("m", rig.group.members["m"].member_epoch)
    assert partitions_of(response) == {"t": [0]}


def test_a_subscription_that_changes() -> None:
    rig = ShareRig({"t": 1, "u": 1})
    joined(rig, "m", "n", topics=("t", "u"))
    response = rig.beat("m", rig.group.members["m"].member_epoch, "u")
    assert partitions_of(response) == {"u": [0]}
    joined(rig, "n", topics=("t", "u"))
    assert assigned(rig, "n") == {"t": {0}, "u": {0}}


def test_p434_a_topic_of_which_a_member_has_no_partition_left() -> None:
    """P-434: it stays in the assignment until the member does not subscribe to it, and both changes have a record."""
    rig = ShareRig({"t": 1, "u": 1})
    joined(rig, "m", topics=("t", "u"))
    assert assigned(rig, "m") == {"t": {0}, "u": {0}}
    rig.beat("n", 0, "t", "u")
    response = partitions_of(rig.beat("m", rig.group.members["m"].member_epoch))
    assert response is not None
    assert sorted(response.values()) == [[], [0]]
    [lost] = [name for name, partitions in response.items() if not partitions]
    described = {t.topic_name: t.partitions for t in rig.describe(GROUP).members[0].assignment.topic_partitions}
    assert described == response
    assert rig.group.targets["m"][topic_id(lost)] == frozenset()
    rig.beat("n", -1)
    rig.beat("m", rig.group.members["m"].member_epoch, "t" if lost == "u" else "u")
    assert lost not in assigned(rig, "m")
    assert topic_id(lost) not in rig.group.targets["m"]


def test_a_member_that_leaves() -> None:
    rig = ShareRig({"t": 2})
    joined(rig, "a", "b")
    response = rig.beat("a", -1)
    assert (response.member_id, response.member_epoch, response.error_code) == ("a", -1, ErrorCode.NONE)
    rig.beat("b", rig.group.members["b"].member_epoch)
    assert assigned(rig, "b") == {"t": {0, 1}}
    rig.beat("b", -1)
    assert (rig.group.state_name, rig.group.members, rig.group.targets) == ("Empty", {}, {})


def test_a_session_that_expires() -> None:
    rig = ShareRig({"t": 2})
    joined(rig, "a", "b")
    rig.advance(30_000)
    rig.beat("b", rig.group.members["b"].member_epoch)
    rig.advance(15_000)
    assert list(rig.group.members) == ["b"]
    rig.advance(30_000)
    assert rig.group.state_name == "Empty"


def test_an_expiry_whose_append_failed_is_tried_again() -> None:
    rig = ShareRig({"t": 1})
    joined(rig, "a")
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.advance(45_000)
    assert list(rig.group.members) == ["a"]
    rig.append_error = ErrorCode.NONE
    rig.advance(500)
    assert rig.group.members == {}


def test_the_previous_epoch_is_let_in() -> None:
    """The response with the new epoch may have been lost."""
    rig = ShareRig({"t": 1})
    joined(rig, "m")
    member = rig.group.members["m"]
    assert rig.beat("m", member.previous_member_epoch).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("epoch", "word"), [(99, "greater"), (1, "smaller")])
def test_a_member_with_another_epoch_is_fenced(epoch: int, word: str) -> None:
    rig = ShareRig({"t": 1})
    joined(rig, "m")
    response = rig.beat("m", epoch)
    assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert f"has a {word} member epoch ({epoch})" in (response.error_message or "")


def test_unknown_members_and_groups() -> None:
    rig = ShareRig({"t": 1})
    assert rig.beat("m", 5).error_message == "Share group g not found."
    assert rig.beat("m", -1).error_message == "Group g not found."
    joined(rig, "m")
    unknown = rig.beat("n", 5)
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Member n is not a member of group g.",
    )


@pytest.mark.parametrize(
    ("member", "epoch", "topics", "rack", "reason"),
    [
        ("", 0, ("t",), None, "MemberId can't be empty."),
        ("m", 0, (), None, "SubscribedTopicNames must be set in first request."),
        ("m", 0, ("t",), "\0", "RackId can't be empty."),
        ("m", -2, ("t",), None, "MemberEpoch is invalid."),
    ],
)
def test_malformed_requests(member: str, epoch: int, topics: tuple[str, ...], rack: str | None, reason: str) -> None:
    response = ShareRig({"t": 1}).beat(member, epoch, *topics, rack_id=rack)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, reason)


def test_a_full_group() -> None:
    rig = ShareRig({"t": 1}, max_size=1)
    joined(rig, "m")
    refused = rig.beat("n", 0, "t")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.error_message == "The share group has reached its maximum capacity of 1 members."
    assert rig.beat("m", 0, "t").error_code == ErrorCode.NONE


def test_settings_of_one_group() -> None:
    rig = ShareRig({"t": 1})
    rig.configs[GROUP] = {"share.heartbeat.interval.ms": "7000", "share.session.timeout.ms": "1000000"}
    assert rig.beat("m", 0, "t").heartbeat_interval_ms == 7000
    rig.advance(59_999)
    assert list(rig.group.members) == ["m"]
    rig.advance(1)
    assert rig.group.members == {}


def test_the_log_says_everything() -> None:
    rig = ShareRig({"t": 3, "u": 1})
    joined(rig, "a", "b", topics=("t", "u"))
    rig.beat("c", 0, "u", rack_id="r")
    rig.beat("a", -1)
    assert snapshot(rig.reloaded().group) == snapshot(rig.group)


def test_the_tombstones_of_a_group_take_everything() -> None:
    rig = ShareRig({"t": 1})
    joined(rig, "a")
    rig.beat("a", -1)
    result = administration.delete(rig.shard, 0, GROUP)
    assert result.response is ErrorCode.NONE
    rig.carry_out(result)
    assert rig.shard.share.by_id == {}
    assert rig.reloaded().shard.share.by_id == {}


def test_a_share_group_is_none_of_another_type() -> None:
    rig = ShareRig({"t": 1})
    joined(rig, "a")
    assert [
        (g.group_id, g.protocol_type, g.group_state, g.group_type)
        for g in administration.listed(rig.shard, set(), set())
    ] == [("g", "share", "Stable", "share")]
    assert administration.listed(rig.shard, set(), {"classic", "consumer"}) == []
    assert administration.delete(rig.shard, 0, GROUP).response is ErrorCode.NON_EMPTY_GROUP
    assert administration.describe(rig.shard, GROUP, 6).error_message == "Group g is not a classic group."
    with pytest.raises(GroupError, match=r"Group g is not a consumer group\."):
        finished(rig.shard.consumer.describe(GROUP, rig.group))


def test_described_members_are_in_the_order_of_kafkas_table() -> None:
    """P-330."""
    rig = ShareRig({"t": 2})
    for number in (1, 2):
        joined(rig, f"member-{number}")
    assert [m.member_id for m in rig.describe(GROUP).members] == ["member-2", "member-1"]


def test_a_description_is_of_one_moment() -> None:
    """Between its steps a member joins, and a topic is deleted."""
    rig = ShareRig({"t": 2, "u": 2})
    for member_id in "ab":
        joined(rig, member_id, topics=("t", "u"))
    before = str(rig.describe(GROUP))
    steps = rig.groups.describe(GROUP, rig.shard.committed_group(GROUP))
    next(steps)
    joined(rig, "c")
    rig.set_topics(u=0)
    assert str(rig.describe(GROUP)) != before
    assert str(finished(steps)) == before


def test_a_described_group() -> None:
    rig = ShareRig({"t": 2})
    joined(rig, "a")
    found = rig.describe(GROUP)
    assert (found.group_state, found.assignor_name) == ("Stable", "simple")
    assert found.group_epoch == found.assignment_epoch == found.members[0].member_epoch
    assignment = found.members[0].assignment.topic_partitions
    assert [(t.topic_name, t.partitions) for t in assignment] == [("t", [0, 1])]
    assert found.members[0].subscribed_topic_names == ["t"]


def test_no_other_type_takes_the_id() -> None:
    """As in Kafka, groups do not change between share groups and the others."""
    rig = ShareRig({"t": 1})
    joined(rig, "a")
    driver = ConsumerRig({"t": 1})
    driver.shard = rig.shard
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    refused = driver.beat(request)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a consumer group.",
    )
    commit = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, member_id="")
    assert check_commit(rig.shard, commit, 9, rig.now_ms) is ErrorCode.GROUP_ID_NOT_FOUND
    commit.topics = [OffsetCommitRequestTopic(name="foo", partitions=[OffsetCommitRequestPartition(partition_index=0)])]
    transactional = commit_offsets(rig.shard, rig.now_ms, commit, 5, TransactionalProducer(7, 0))
    assert transactional.response.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert not transactional.records
    fetched = finished(fetch(rig.shard, OffsetFetchRequestGroup(group_id=GROUP, topics=None)))
    assert (fetched.error_code, fetched.topics) == (ErrorCode.NONE, [])
    rig.shard.get_or_create("classic", rig.now_ms)
    assert rig.beat("m", 0, "t", group_id="classic").error_message == "Group classic is not a share group."
