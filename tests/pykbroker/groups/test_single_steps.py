"""Single steps of groups of the modern protocols, in states to which histories lead rarely."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.controller.metadata.image_builder import apply_records
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.errors import CoordinatorError
from pykbroker.groups.committed import CommittedGroups
from pykbroker.groups.consumer import reconciliation as consumer
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.member import MemberState
from pykbroker.groups.consumer.target import compute_target as consumer_target
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.preparation import prepare_write
from pykbroker.groups.modern.timers import DueTimer, MemberTimers, TimerKind
from pykbroker.groups.modern.topics import RESULTS_MAX, GroupTopics
from pykbroker.groups.offset_log import encode_record, encode_record_in_steps, group_tombstone
from pykbroker.groups.result import FirstAssignment
from pykbroker.groups.share.initialization import uninitialized_record
from pykbroker.groups.share.offsets import begin_group_deletion
from pykbroker.groups.share.requests import ShareGroupRequests
from pykbroker.groups.share.target import compute_target as share_target
from pykbroker.groups.streams import reconciliation as streams
from pykbroker.groups.streams.endpoints import endpoints_of
from pykbroker.groups.streams.heartbeat import end_initial_delay
from pykbroker.groups.streams.member import MemberState as StreamsState
from pykbroker.groups.streams.requests import StreamsGroupRequests
from pykbroker.groups.table_order import table_order_in_steps
from pykbroker.java_order import table_order
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import TopicRecord
from pykbroker.protocol.steps import PIECE, finished
from tests.pykbroker.groups.consumer.rig import Client, Rig
from tests.pykbroker.groups.shard_rig import image_of, topic_id
from tests.pykbroker.groups.share.rig import ShareRig

UNUSED: Any = None


def test_a_timer_is_due_at_its_deadline() -> None:
    timers = MemberTimers()
    assert timers.pop_due(5) is None
    timers.schedule(TimerKind.SESSION, "m", 10, 3)
    assert timers.pop_due(9) is None
    assert timers.pop_due(10) == DueTimer(TimerKind.SESSION, "m", 3)
    assert timers.pop_due(10) is None


def test_an_empty_group_takes_every_client_of_the_classic_protocol() -> None:
    group = ConsumerGroup("g", UNUSED)
    assert group.supports_classic("consumer", ["range"])
    assert not group.supports_classic("consumer", [])
    assert not group.supports_classic("connect", ["range"])


def test_members_at_their_targets_stay_as_they_are() -> None:
    member: Any = SimpleNamespace(state=MemberState.STABLE, member_epoch=5)
    target: Any = SimpleNamespace(epoch=5)
    same = finished(
        consumer.reconcile(member, target, frozenset(), UNUSED, None, has_subscription_changed=False, subscribes=True)
    )
    assert same is member
    task: Any = SimpleNamespace(state=StreamsState.STABLE, member_epoch=5)
    assert finished(streams.reconcile(UNUSED, task, 5, UNUSED, None)) is task


def test_a_share_member_leaves_a_topic_before_there_is_a_new_target() -> None:
    rig = ShareRig({"clicks": 1, "views": 1}, assignment_interval_ms=1_000)
    epoch = rig.beat("m", 0, "clicks", "views").member_epoch
    for _ in range(2):
        rig.initialize()
        rig.now_ms += 2_000
        epoch = rig.beat("m", epoch).member_epoch
    # The member that joins has a target computed now, and the next one is due in a second.
    rig.beat("other", 0, "clicks", "views")
    epoch = rig.beat("m", epoch).member_epoch
    before = rig.group.members["m"]
    assert len(before.assigned) == 2
    response = rig.beat("m", epoch, "clicks")
    after = rig.group.members["m"]
    assert (response.member_epoch, after.member_epoch) == (epoch, before.member_epoch)
    assert len(after.assigned) == 1


def test_share_groups_with_nothing_to_note_write_nothing() -> None:
    group: Any = SimpleNamespace(initializing={}, has_state_record=False)
    assert uninitialized_record(group, {}, UNUSED) is None
    deleted = begin_group_deletion(group, UNUSED)
    assert (deleted.response, deleted.records) == ({}, [])


class Topics:
    """No topic exists but "here", of two partitions."""

    def id_of(self, name: str) -> bytes | None:
        return b"here" if name == "here" else None

    def partition_count(self, topic_id: bytes) -> int:
        return 2


@pytest.mark.parametrize(("subtopology", "topic"), [("other", "here"), ("0", "gone"), ("0", "here")])
def test_endpoints_whose_partitions_are_unknown(subtopology: str, topic: str) -> None:
    """The tasks are of a topology that was replaced, or their topic is gone."""
    assigned = SimpleNamespace(active={"0": {0, 1}}, standby={})
    endpoint = SimpleNamespace(host="localhost", port=9092)
    member: Any = SimpleNamespace(member_id="m", user_endpoint=endpoint, assigned=assigned)
    configured = SimpleNamespace(subtopologies={subtopology: SimpleNamespace(consumed_topics=[topic])})
    group: Any = SimpleNamespace(members={}, endpoints={}, configured=configured)
    topics: Any = Topics()
    if (subtopology, topic) == ("0", "here"):
        (found,) = endpoints_of(group, member, topics)
        assert [(each.topic, each.partitions) for each in found.active_partitions] == [("here", [0, 1])]
        return
    with pytest.raises(GroupError) as raised:
        endpoints_of(group, member, topics)
    assert raised.value.error_code is ErrorCode.UNKNOWN_SERVER_ERROR


def not_here(*_: Any) -> Any:
    raise CoordinatorError(ErrorCode.NOT_COORDINATOR)


def test_a_streams_group_of_another_broker_has_no_interval() -> None:
    requests: Any = SimpleNamespace(_runtime=SimpleNamespace(find=not_here))
    assert StreamsGroupRequests.heartbeat_interval_ms(requests, "g") == 0


def test_the_end_of_the_initial_delay_within_the_interval_of_assignments() -> None:
    """The next heartbeat computes the assignment."""
    group: Any = SimpleNamespace(
        members={"m": UNUSED}, configured=object(), epoch=2, assignment_epoch=1, may_assign=lambda *_: False
    )
    context: Any = SimpleNamespace(now_ms=0, settings=SimpleNamespace(assignment_interval_ms=1_000))
    assert finished(end_initial_delay(group, context)).records == []


async def test_offsets_whose_deletion_cannot_be_noted() -> None:
    """The state of the share partitions is gone; the client may try again."""
    deletion = SimpleNamespace(partitions={b"t": [0]}, errors=())

    async def administer(*_: Any, **__: Any) -> Any:
        return deletion

    async def delete(*_: Any) -> Any:
        return {}

    async def write(*_: Any) -> Any:
        not_here()

    requests: Any = SimpleNamespace(
        _administer=administer, _delete_partitions=delete, _runtime=SimpleNamespace(write=write)
    )
    with pytest.raises(GroupError) as raised:
        await ShareGroupRequests.delete_offsets(requests, "g", ["t"])
    assert raised.value.error_code is ErrorCode.NOT_COORDINATOR


def test_groups_for_readers_are_those_without_changes_and_the_earlier_states() -> None:
    groups = CommittedGroups()
    kept, before, now, other = ConsumerGroup("a", UNUSED), ConsumerGroup("b", UNUSED), object(), object()
    current: Any = {"a": kept, "b": now, "c": other}
    groups.add("b", before)
    assert list(groups.of_type(current, ConsumerGroup)) == [kept, other, before]


def test_a_topic_of_which_others_own_all_is_given_up_without_a_change() -> None:
    group = ConsumerGroup("g", UNUSED)
    member: Any = SimpleNamespace(member_epoch=5, assigned={b"t": {0: 5}}, pending_revocation={})
    group._end_ownership(member)
    assert not group._owner_epochs


def test_an_operation_on_a_group_of_another_type_is_not_prepared() -> None:
    groups: Any = SimpleNamespace(group_class=ConsumerGroup)
    steps = prepare_write(groups, lambda _: "classic", UNUSED, UNUSED, (FirstAssignment("g"),), True)
    assert finished(steps) is None


def test_results_for_few_large_sets_of_topics_are_kept() -> None:
    topics = GroupTopics(ClusterImage())
    for number in range(RESULTS_MAX + 1):
        assert topics.ids_of([f"t{number}-{other}" for other in range(PIECE + 1)]) == frozenset()
    assert len(topics._results.ids) == 1


def test_results_for_other_topics_stay_when_a_topic_changes() -> None:
    before = image_of({f"t{number}": 1 for number in range(PIECE + 1)})
    topics = GroupTopics(before)
    old, new = (frozenset([name, *before.topics_by_name]) for name in ("t0", "new"))
    hashes = topics.hash_of(old), topics.hash_of(new)
    assert finished(topics.partition_counts(old)) == finished(topics.partition_counts(new))
    changes = topics.changes
    after = apply_records(
        before, [TopicRecord(name="new", topic_id=topic_id("new"))], offset=before.offset + 1, epoch=1, timestamp_ms=0
    )
    after.delta = delta_between(before, after)
    topics.update(after)
    assert list(topics._results.hashes) == list(topics._results.partition_counts) == [old]
    assert topics.changes == changes + 1
    assert topics.hash_of(old) == hashes[0]
    assert topics.hash_of(new) != hashes[1]


def test_partition_counts_are_those_of_one_moment() -> None:
    """They are not kept when the topics have changed before the last step."""
    before = image_of({f"t{number}": 1 for number in range(PIECE + 1)})
    names = list(before.topics_by_name)
    topics = GroupTopics(before)
    steps = topics.partition_counts(names)
    next(steps)
    after = image_of({"t0": 3})
    after.delta = delta_between(before, after)
    topics.update(after)
    assert finished(steps) == {topic_id(name): 1 for name in names}
    assert finished(topics.partition_counts(names)) == {topic_id("t0"): 3}


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_members_with_the_same_topics_share_one_set_of_names(kind: str) -> None:
    rig: Any = Rig({"t": 2, "u": 1}) if kind == "consumer" else ShareRig({"t": 2, "u": 1})

    def beat(member_id: str, *topics: str) -> None:
        if kind == "share":
            rig.beat(member_id, rig.group.members[member_id].member_epoch if member_id in joined else 0, *topics)
        elif member_id in joined:
            joined[member_id].subscribe(list(topics))
        else:
            joined[member_id] = Client(rig, member_id, list(topics))
            joined[member_id].beat()
        joined.setdefault(member_id, None)

    joined: dict[str, Any] = {}
    for member_id in "abc":
        beat(member_id, "t", "u")
    members = rig.group.members
    assert members["a"].subscribed_topic_names is members["b"].subscribed_topic_names
    assert members["a"].subscribed_topic_names is members["c"].subscribed_topic_names
    beat("b", "u")
    assert (members["b"].subscribed_topic_names, members["a"].subscribed_topic_names) == ({"u"}, {"t", "u"})
    assert len(rig.group._names) == 2
    for member_id in "abc":
        if kind == "share":
            rig.beat(member_id, -1)
        else:
            joined[member_id].leave()
    assert len(rig.group._names) == 0


def test_a_share_group_looks_at_its_partitions_again_only_after_a_change() -> None:
    names = [f"t{number}" for number in range(2 * PIECE)]
    rig = ShareRig(dict.fromkeys(names, 1))
    rig.beat("m", 0, *names)
    rig.initialize()
    for _ in range(3):
        assert rig.beat("m", rig.group.members["m"].member_epoch).error_code == ErrorCode.NONE
    group = rig.group
    assert len(group.members["m"].assigned) == len(names)
    assert group.has_all_states(rig.groups.topics)
    # The generators of a group that is looked at have a step for each piece of its topics.
    assert list(group.has_unassigned_partitions()) == []
    rig.set_topics(t0=2)
    assert not group.has_all_states(rig.groups.topics)
    assert list(group.has_unassigned_partitions())
    rig.beat("m", group.members["m"].member_epoch)
    (wanted,) = rig.wanted
    assert wanted.partitions == {topic_id("t0"): {1}}


def test_table_order_in_steps() -> None:
    numbers = [number * 2_654_435_761 % 100_003 for number in range(5 * PIECE)]
    steps = table_order_in_steps(numbers, int)
    assert finished(steps) == table_order(numbers, int)
    assert len(list(table_order_in_steps(numbers, int))) == 5


def test_a_tombstone_is_encoded_in_one_step() -> None:
    record = group_tombstone("g")
    assert finished(encode_record_in_steps(record)) == encode_record(record)


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_target_of_many_members_is_computed_in_steps(kind: str) -> None:
    members = [f"m{number:02}" for number in range(PIECE + 1)]
    rig: Any
    if kind == "consumer":
        rig = Rig({"t": 2})
        for member_id in members:
            Client(rig, member_id, ["t"]).beat()
    else:
        rig = ShareRig({"t": 2})
        for member_id in members:
            rig.beat(member_id, 0, "t")
    group = rig.group
    assert len(group.members) == len(members)
    joining, topics = group.members[members[0]], rig.groups.topics
    if kind == "consumer":
        steps = consumer_target(group, group.epoch, joining, "uniform", topics, 0, is_homogeneous=True)
    else:
        assert joining.rebalance_timeout_ms == 0
        steps = share_target(group, group.epoch, joining, topics, 0, is_homogeneous=True)
    _, target = finished(steps)
    assert target == group.target_of(members[0])
