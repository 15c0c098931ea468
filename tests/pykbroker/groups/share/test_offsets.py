"""Administration of share groups on the shard: start offsets are altered and deleted, groups and topics deleted."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.groups import administration
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern_writes import TOPICS_FORGOTTEN
from pykbroker.groups.result import DeletedTopics
from pykbroker.groups.share.group import TopicState
from pykbroker.groups.share.offsets import Alteration, Deletion, begin_deletion, begin_group_deletion
from pykbroker.groups.share.records import state_record
from pykbroker.java_order import table_order, uuid_hash
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import finished
from tests.pykbroker.groups.shard_rig import GROUP, topic_id
from tests.pykbroker.groups.share.rig import ShareRig
from tests.pykbroker.groups.share.test_share_groups import joined, snapshot

T, U = topic_id("t"), topic_id("u")


def abandoned(rig: ShareRig, *topics: str) -> None:
    """A group whose only member had all partitions and has left."""
    joined(rig, "m", topics=topics)
    rig.beat("m", -1)


def partitions(states: object) -> dict[bytes, frozenset[int]]:
    assert isinstance(states, dict)
    return {topic: state.partitions for topic, state in states.items()}


def test_offsets_of_a_group_that_does_not_exist_yet() -> None:
    rig = ShareRig({"t": 2})
    result = rig.shard.share.alter_offsets(GROUP, None, [("t", {0: 10, 5: 1}), ("missing", {0: 1})], rig.now_ms)
    assert result.response == Alteration(1, {T: {0: 10}})
    rig.carry_out(result)
    assert rig.group.state_name == "Empty"
    assert partitions(rig.group.initializing) == {T: frozenset({0})}
    assert snapshot(rig.reloaded().group) == snapshot(rig.group)


def test_altered_partitions_are_initialized_again() -> None:
    rig = ShareRig({"t": 2})
    abandoned(rig, "t")
    result = rig.shard.share.alter_offsets(GROUP, None, [("t", {1: 7})], rig.now_ms)
    assert result.response.state_epoch == rig.group.epoch
    rig.carry_out(result)
    assert partitions(rig.group.initializing) == {T: frozenset({1})}
    assert partitions(rig.group.initialized) == {T: frozenset({0, 1})}


def test_of_a_topic_that_comes_twice_the_partitions_named_last_are_marked() -> None:
    rig = ShareRig({"t": 2})
    result = rig.shard.share.alter_offsets(GROUP, None, [("t", {-1: 2, 1: 3}), ("t", {0: 4})], rig.now_ms)
    assert result.response.offsets == {T: {-1: 2, 1: 3, 0: 4}}
    rig.carry_out(result)
    assert partitions(rig.group.initializing) == {T: frozenset({0})}


def test_a_group_with_members_refuses() -> None:
    rig = ShareRig({"t": 1})
    joined(rig, "m")
    share = rig.shard.share
    with pytest.raises(GroupError, match=r"The group is not empty\.") as refused:
        share.alter_offsets(GROUP, None, [("t", {0: 0})], rig.now_ms)
    assert refused.value.error_code is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(GroupError, match=r"The group is not empty\.") as refused:
        share.delete_offsets(GROUP, None, ["t"])
    assert refused.value.error_code is ErrorCode.NON_EMPTY_GROUP


def test_a_group_that_is_missing_or_of_another_type() -> None:
    rig = ShareRig({"t": 1})
    with pytest.raises(GroupError, match=r"Group g not found\."):
        rig.shard.share.delete_offsets(GROUP, None, ["t"])
    with pytest.raises(GroupError, match=r"Group g is not a share group\."):
        rig.shard.share.alter_offsets(GROUP, object(), [("t", {0: 0})], rig.now_ms)


def test_offsets_are_deleted_in_two_steps() -> None:
    rig = ShareRig({"t": 2, "u": 1, "v": 1})
    abandoned(rig, "t", "u")
    result = rig.shard.share.delete_offsets(GROUP, None, ["t", "v", "missing"])
    assert result.response == Deletion(
        {T: frozenset({0, 1})},
        [
            ("v", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        ],
    )
    rig.carry_out(result)
    assert (partitions(rig.group.initialized), rig.group.deleting) == ({U: frozenset({0})}, {T})
    again = rig.shard.share.delete_offsets(GROUP, None, ["t"])
    assert again.response.partitions == {T: frozenset({0, 1})}, "the first attempt did not come to its end"
    rig.carry_out(rig.shard.share.offsets_deleted(GROUP, [T]))
    assert rig.group.deleting == frozenset()
    assert snapshot(rig.reloaded().group) == snapshot(rig.group)


def test_a_member_that_comes_back_takes_a_topic_out_of_deletion() -> None:
    rig = ShareRig({"t": 1})
    abandoned(rig, "t")
    rig.carry_out(rig.shard.share.delete_offsets(GROUP, None, ["t"]))
    rig.beat("m", 0, "t")
    assert (partitions(rig.group.initializing), rig.group.deleting) == ({T: frozenset({0})}, frozenset())


def test_the_state_of_a_group_goes_before_the_group() -> None:
    rig = ShareRig({"t": 2, "u": 1})
    abandoned(rig, "t", "u")
    rig.carry_out(rig.shard.share.delete_offsets(GROUP, None, ["u"]))
    result = rig.shard.share.begin_deletion(GROUP)
    assert result.response == {T: frozenset({0, 1}), U: frozenset({0})}
    rig.carry_out(result)
    assert (rig.group.initialized, rig.group.initializing, rig.group.deleting) == ({}, {}, {T, U})
    rig.carry_out(administration.delete(rig.shard, 0, GROUP))
    assert rig.reloaded().shard.share.by_id == {}


def test_groups_whose_state_does_not_go_first() -> None:
    rig = ShareRig({"t": 1})
    assert rig.shard.share.begin_deletion("missing").response == {}
    joined(rig, "m")
    assert rig.shard.share.begin_deletion(GROUP).response is ErrorCode.NON_EMPTY_GROUP


def test_deleted_topics_are_forgotten() -> None:
    rig = ShareRig({"t": 1, "u": 1})
    abandoned(rig, "t", "u")
    rig.set_topics(t=0)
    assert rig.shard.share.with_topics(frozenset([T])) == [rig.group]
    rig.forget("t")
    assert partitions(rig.group.initialized) == {U: frozenset({0})}
    assert rig.shard.share.with_topics(frozenset([T])) == []
    for deleted in (DeletedTopics(GROUP, frozenset([T])), DeletedTopics("missing", frozenset([U]))):
        assert TOPICS_FORGOTTEN.carry_out(rig.shard, 0, deleted).records == []


def test_topics_are_recorded_in_the_order_of_a_hash_map() -> None:
    """As Kafka writes them, so that the records of `__consumer_offsets` have the same bytes."""
    ids = [topic_id(f"t{number}") for number in range(40)]
    states = {each: TopicState("t", frozenset({0, 1}), 0) for each in ids}
    value: Any = finished(state_record(GROUP, states, dict(reversed(states.items())), {})).value
    assert [topic.topic_id for topic in value.initializing_topics] == table_order(ids, uuid_hash)
    assert [topic.topic_id for topic in value.initialized_topics] == table_order(reversed(ids), uuid_hash)
    assert {tuple(topic.partitions) for topic in value.initialized_topics} == {(0, 1)}


def test_topics_whose_state_is_being_deleted_are_recorded_in_the_order_of_a_hash_map() -> None:
    names = [f"t{number}" for number in range(40)]
    rig = ShareRig(dict.fromkeys(names, 1))
    abandoned(rig, *names)
    group = rig.shard.share.by_id[GROUP]
    ordered = table_order(sorted(map(topic_id, names)), uuid_hash)
    for result in (
        begin_deletion(group, names, rig.shard.share.topics),
        begin_group_deletion(group, rig.shard.share.topics),
    ):
        (record,) = result.records
        value: Any = record.value
        assert [topic.topic_id for topic in value.deleting_topics] == ordered
    rig.carry_out(begin_deletion(group, names, rig.shard.share.topics))
    assert group.deleting == frozenset(ordered)
    assert list(begin_group_deletion(group, rig.shard.share.topics).response) == ordered
