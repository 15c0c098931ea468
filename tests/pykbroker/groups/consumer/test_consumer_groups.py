"""Consumer groups (KIP-848) on a shard: members, epochs, assignments, timeouts, static members, regular expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.groups import administration
from pykbroker.groups.assignors.spec import GroupSpec
from pykbroker.groups.consumer.member import ConsumerMember, MemberState
from pykbroker.groups.consumer.regexes import matching_topics
from pykbroker.groups.consumer.target import ASSIGNORS
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.subscriptions import Subscriptions
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.offset_log import decode_record, encode_record
from pykbroker.groups.result import LogRecord
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
)
from pykbroker.protocol.log_messages.consumer_group_records import TopicPartitions as LoggedPartitions
from pykbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pykbroker.protocol.steps import PIECE, finished
from tests.pykbroker.groups.consumer.rig import Client, Rig, settle
from tests.pykbroker.groups.shard_rig import GROUP, image_of, topic_id


@pytest.fixture
def assignments(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Assignor of each target assignment that is computed, and True if it takes the members for homogeneous."""
    computed: list[tuple[str, bool]] = []

    def noting(name: str, assign: Callable[..., Any]) -> Callable[..., Any]:
        def noted(group: GroupSpec, partition_counts: Any) -> Any:
            computed.append((name, group.is_homogeneous))
            return assign(group, partition_counts)

        return noted

    for name, assign in list(ASSIGNORS.items()):
        monkeypatch.setitem(ASSIGNORS, name, noting(name, assign))
    return computed


def all_of(topic: str, count: int) -> set[tuple[str, int]]:
    return {(topic, number) for number in range(count)}


def test_a_member_alone_gets_everything_at_once() -> None:
    """P-172."""
    rig = Rig({"t": 3})
    client = Client(rig, "a", ["t"])
    response = client.beat()
    assert (response.error_code, response.member_id, response.member_epoch) == (ErrorCode.NONE, "a", 2)
    assert response.heartbeat_interval_ms == 5_000
    assert client.partitions == all_of("t", 3)
    assert rig.group.state_name == "Stable"
    assert client.beat().assignment is None


def test_a_second_member_gets_partitions_only_after_the_first_gave_them_up() -> None:
    """P-174."""
    rig = Rig({"t": 4})
    first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
    first.beat()
    first.holds = True
    assert second.beat().assignment is not None
    assert second.partitions == set()
    response = first.beat()
    assert response.assignment is not None
    assert response.member_epoch == 2
    assert rig.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert rig.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    assert rig.group.state_name == "Reconciling"
    second.beat()
    assert second.partitions == set()
    first.take()
    first.holds = False
    assert first.beat().member_epoch == 3
    second.beat()
    assert len(first.partitions) == len(second.partitions) == 2
    assert first.partitions | second.partitions == all_of("t", 4)
    assert rig.group.state_name == "Stable"


def test_a_member_that_leaves_frees_its_partitions() -> None:
    rig = Rig({"t": 4})
    first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
    settle(first, second)
    response = second.leave()
    assert (response.member_id, response.member_epoch, response.error_code) == ("b", -1, ErrorCode.NONE)
    first.beat()
    assert first.partitions == all_of("t", 4)
    assert list(rig.group.members) == ["a"]


def test_a_session_that_expires_fences_the_member() -> None:
    rig = Rig({"t": 4})
    first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
    settle(first, second)
    for _ in range(9):
        rig.advance(5_000)
        first.beat()
    assert list(rig.group.members) == ["a"]
    assert first.partitions == all_of("t", 4)
    assert second.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_p384_target_assignments_are_in_the_order_of_kafkas_table() -> None:
    """P-384."""
    rig = Rig({"t": 3})
    Client(rig, "16", ["t"]).beat()
    appended = len(rig.log)
    Client(rig, "2", ["t"]).beat()
    records: list[Any] = [decode_record(key, value) for key, value in rig.log[appended:]]
    targets = [r.key.member_id for r in records if isinstance(r.key, ConsumerGroupTargetAssignmentMemberKey)]
    assert targets == ["2", "16"]


def test_p367_a_topic_of_an_expression_that_nobody_uses_any_more() -> None:
    """P-367: members are alike if each names it, whether it is still among those of the expression or not."""
    subscriptions = Subscriptions()
    subscriptions.replace_resolved((), ["t"])
    assert not subscriptions.are_homogeneous(1)
    subscriptions.replace_member(None, ConsumerMember("a", subscribed_topic_names=frozenset("t")))
    assert subscriptions.are_homogeneous(1)
    assert not subscriptions.are_homogeneous(2)


def test_p382_members_that_expire_at_once_raise_the_epoch_once_each() -> None:
    """P-382."""
    rig = Rig({"t": 2})
    clients = [Client(rig, member_id, ["t"]) for member_id in "abc"]
    settle(*clients)
    epoch, appended = rig.group.epoch, len(rig.log)
    rig.advance(30_000)
    clients[0].beat()
    rig.advance(15_000)
    assert (list(rig.group.members), rig.group.epoch) == (["a"], epoch + 2)
    records: list[Any] = [decode_record(key, value) for key, value in rig.log[appended:]]
    epochs = [record.value.epoch for record in records if isinstance(record.key, ConsumerGroupMetadataKey)]
    assert epochs == [epoch + 1, epoch + 2]


def test_a_member_that_does_not_give_up_in_time_is_fenced() -> None:
    """P-174."""
    rig = Rig({"t": 2})
    first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
    first.beat()
    first.holds = True
    second.beat()
    for _ in range(14):
        rig.advance(5_000)
        if "a" in rig.group.members:
            first.beat()
        second.beat()
    assert list(rig.group.members) == ["b"]
    assert second.partitions == all_of("t", 2)


def test_epochs_fence() -> None:
    """P-172."""
    rig = Rig({"t": 2})
    client = Client(rig, "a", ["t"])
    client.beat()

    def beat(epoch: int, partitions: list[int] | None) -> tuple[int, str | None]:
        owned = None if partitions is None else [TopicPartitions(topic_id=topic_id("t"), partitions=partitions)]
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id="a", member_epoch=epoch, topic_partitions=owned
        )
        response = rig.beat(request)
        return response.error_code, response.error_message

    assert beat(2, [0, 1])[0] == ErrorCode.NONE
    assert beat(3, [0, 1]) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        (
            "The consumer group member has a greater member epoch (3) than the one known by the group coordinator (2). "
            "The member must abandon all its partitions and rejoin."
        ),
    )
    assert beat(1, [0, 1])[0] == ErrorCode.FENCED_MEMBER_EPOCH
    rig.set_topics(t=3)
    assert client.beat().member_epoch == 3
    assert beat(2, [0])[0] == ErrorCode.NONE, "the response with the new epoch may have been lost"
    assert beat(2, [0, 7])[0] == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(2, None)[0] == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        ({"group_id": " \0\t"}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        (
            {"rebalance_timeout_ms": -1},
            ErrorCode.INVALID_REQUEST,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            {"topic_partitions": None},
            ErrorCode.INVALID_REQUEST,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribed_topic_names": None},
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
        (
            {"server_assignor": "mine"},
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            "ServerAssignor mine is not supported. Supported assignors: uniform, range.",
        ),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found."),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
    ],
)
def test_requests_that_are_refused(fields: dict[str, object], code: ErrorCode, message: str) -> None:
    rig = Rig({"t": 1})
    good = {
        "group_id": GROUP,
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    response = rig.beat(ConsumerGroupHeartbeatRequest(**{**good, **fields}))  # type: ignore[arg-type]
    assert (response.error_code, response.error_message) == (code, message)
    assert rig.log == []


def test_a_full_group_refuses_a_member() -> None:
    rig = Rig({"t": 1}, max_size=1)
    Client(rig, "a", ["t"]).beat()
    response = Client(rig, "b", ["t"]).beat()
    assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert response.error_message == "The consumer group has reached its maximum capacity of 1 members."


def test_a_static_member_comes_back_to_its_partitions() -> None:
    """P-175."""
    rig = Rig({"t": 4})
    first = Client(rig, "a", ["t"], instance_id="i")
    second = Client(rig, "b", ["t"])
    settle(first, second)
    had, epoch = first.partitions, rig.group.epoch
    assert Client(rig, "c", ["t"], instance_id="i").beat().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert first.leave(-2).member_epoch == -2
    again = Client(rig, "c", ["t"], instance_id="i")
    again.beat()
    assert again.partitions == had
    assert rig.group.epoch == epoch, "nothing to compute"
    fenced = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=3, instance_id="i")
    assert rig.beat(fenced).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_is_fenced() -> None:
    """P-175."""
    rig = Rig({"t": 2})
    first = Client(rig, "a", ["t"], instance_id="i")
    first.beat()
    first.leave(-2)
    rig.advance(45_000)
    assert rig.group.members == {}


def test_subscriptions_change() -> None:
    rig = Rig({"t": 2, "u": 2})
    first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t", "u"])
    settle(first, second)
    assert first.partitions == all_of("t", 2)
    assert second.partitions == all_of("u", 2)
    first.subscribe(["u"])
    settle(first, second)
    assert {topic for topic, _ in first.partitions} == {"u"}
    assert first.partitions | second.partitions == all_of("t", 2) | all_of("u", 2)


def test_new_partitions_are_found_at_the_next_heartbeat() -> None:
    """P-173."""
    rig = Rig({"t": 1})
    client = Client(rig, "a", ["t", "later"])
    client.beat()
    rig.set_topics(t=3)
    client.beat()
    assert client.partitions == all_of("t", 3)
    rig.set_topics(later=2)
    client.beat()
    assert client.partitions == all_of("t", 3) | all_of("later", 2)
    rig.set_topics(later=0)
    client.beat()
    assert client.partitions == all_of("t", 3)


def test_the_assignment_interval_gathers_joins() -> None:
    """P-173."""
    rig = Rig({"t": 4}, assignment_interval_ms=1_000)
    clients = [Client(rig, name, ["t"]) for name in "abcd"]
    for client in clients:
        client.beat()
    assert rig.group.epoch == 5
    assert rig.group.assignment_epoch == 2
    assert rig.group.state_name == "Assigning"
    rig.advance(1_000)
    settle(*clients)
    assert rig.group.assignment_epoch == 5
    assert [len(client.partitions) for client in clients] == [1, 1, 1, 1]


def test_settings_of_a_group_override_those_of_the_broker() -> None:
    rig = Rig({"t": 1})
    rig.configs[GROUP] = {"consumer.heartbeat.interval.ms": "7000", "consumer.session.timeout.ms": "99999999"}
    client = Client(rig, "a", ["t"])
    assert client.beat().heartbeat_interval_ms == 7_000
    rig.advance(59_999)
    assert "a" in rig.group.members
    rig.advance(1)
    assert rig.group.members == {}


def test_resolved_regular_expressions_are_recorded_in_the_order_of_a_hash_map() -> None:
    """P-176."""
    rig = Rig({"t": 1})
    regexes = [f"t|{number * 7 % 40}" for number in range(40)]
    for number, regex in enumerate(regexes):
        Client(rig, f"member-{number}", None, regex=regex).beat()
    rig.refreshes.clear()
    rig.group.soft_state.is_resolving = False
    Client(rig, "last", None, regex="t|40").beat()
    (refresh,) = rig.refreshes
    rig.resolve_regexes()
    assert list(rig.group.resolved) == list(refresh.regexes)
    # The order in Java.
    numbers = (int(regex.removeprefix("t|")) for regex in refresh.regexes)
    assert [number for number in numbers if number != 40] == [
        *(19, 31, 32, 10, 30, 39, 17, 18, 37, 15, 16, 38, 35, 13, 14, 36, 11, 33, 34, 12),
        *(1, 0, 3, 2, 5, 4, 7, 6, 9, 20, 21, 8, 28, 29, 26, 27, 24, 25, 22, 23),
    ]


def test_a_regular_expression_is_resolved_beside_the_heartbeat() -> None:
    """P-176."""
    rig = Rig({"foo-1": 1, "foo-2": 1, "bar": 1, "xfoo-3": 1})
    client = Client(rig, "a", None, regex="foo-.*")
    client.beat()
    assert client.partitions == set()
    rig.resolve_regexes()
    client.beat()
    assert client.partitions == {("foo-1", 0), ("foo-2", 0)}
    rig.set_topics(**{"foo-9": 1})
    client.beat()
    assert rig.refreshes == [], "not within ten seconds"
    rig.advance(10_001)
    settle(client)
    assert ("foo-9", 0) in client.partitions


def test_a_regular_expression_that_is_not_one_is_refused() -> None:
    """P-176."""
    response = Client(Rig({}), "a", None, regex="(foo").beat()
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert response.error_message is not None
    assert response.error_message.startswith("SubscribedTopicRegex `(foo` is not a valid regular expression: ")


def test_a_regular_expression_that_nobody_uses_is_forgotten() -> None:
    rig = Rig({"foo": 1, "bar": 1})
    first, second = Client(rig, "a", None, regex="f.*"), Client(rig, "b", ["bar"])
    settle(first, second)
    assert set(rig.group.resolved) == {"f.*"}
    first.leave()
    assert rig.group.resolved == {}
    assert rig.group.subscriptions.topics == {"bar"}


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    """P-173."""
    rig = Rig({"t": 4, "u": 4})
    first = Client(rig, "a", ["t", "u"], assignor="range")
    second = Client(rig, "b", ["t", "u"], assignor="range")
    settle(first, second)
    assert first.partitions == {("t", 0), ("t", 1), ("u", 0), ("u", 1)}
    assert rig.describe(GROUP).assignor_name == "range"


@pytest.mark.parametrize(("first", "second"), [("range", "uniform"), ("uniform", "range")])
def test_p366_of_two_assignors_that_of_the_new_member_is_used(
    first: str, second: str, assignments: list[tuple[str, bool]]
) -> None:
    """P-366."""
    rig = Rig({"t": 4})
    Client(rig, "a", ["t"], assignor=first).beat()
    Client(rig, "b", ["t"], assignor=second).beat()
    assert [name for name, _ in assignments] == [first, second]
    assert rig.describe(GROUP).assignor_name == "uniform"


def test_p366_of_two_assignors_of_other_members_uniform_is_used(assignments: list[tuple[str, bool]]) -> None:
    """P-366."""
    rig = Rig({"t": 4})
    Client(rig, "a", ["t"], assignor="range").beat()
    Client(rig, "b", ["t"], assignor="uniform").beat()
    Client(rig, "c", ["t"]).beat()
    assert assignments[-1] == ("uniform", True)


def test_p367_the_last_regular_expression_leaves_the_others_unlike(assignments: list[tuple[str, bool]]) -> None:
    """P-367: until a member changes."""
    rig = Rig({"foo": 1, "bar": 1})
    first, second = Client(rig, "a", None, regex="f.*"), Client(rig, "b", ["bar"])
    settle(first, second)
    first.leave()
    assignments.clear()
    second.beat()
    assert assignments == [("uniform", False)]
    rig.set_topics(bar=2)
    second.beat()
    assert assignments[1:] == [("uniform", True)]


def test_p367_the_record_of_an_assignment_looks_at_the_expressions_again() -> None:
    """P-367: the tombstone of an expression is behind the record of its last user, and the assignment behind both."""
    rig = Rig({"foo": 1, "bar": 1})
    client = Client(rig, "a", None, regex="f.*")
    settle(client)
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="a",
        member_epoch=client.epoch,
        subscribed_topic_names=["bar"],
        subscribed_topic_regex="",
    )
    assert rig.beat(request).error_code == ErrorCode.NONE
    assert not rig.group.subscriptions.by_regex
    assert rig.group.is_homogeneous


def test_p368_a_member_without_topics_forgets_its_previous_epoch() -> None:
    """P-368: it has nothing to give up, and its epoch stays."""
    rig = Rig({"foo": 1}, assignment_interval_ms=1_000)
    client = Client(rig, "a", ["missing"])
    client.beat()
    member = rig.group.members["a"]
    assert (member.member_epoch, member.previous_member_epoch) == (client.epoch, 0)
    client.subscribe([])
    member = rig.group.members["a"]
    assert (member.member_epoch, member.previous_member_epoch) == (client.epoch, client.epoch)
    client.subscribe(["missing"])
    assert rig.group.members["a"] == member._replace(subscribed_topic_names=frozenset({"missing"}))


def test_a_failed_append_changes_nothing() -> None:
    rig = Rig({"t": 2})
    client = Client(rig, "a", ["t"])
    client.beat()
    before = (rig.group.epoch, dict(rig.group.members), dict(rig.group.targets))
    rig.append_error = ErrorCode.NOT_COORDINATOR
    assert Client(rig, "b", ["t"]).beat().error_code == ErrorCode.NOT_COORDINATOR
    assert (rig.group.epoch, dict(rig.group.members), dict(rig.group.targets)) == before
    rig.append_error = ErrorCode.NONE
    settle(client)
    assert client.partitions == all_of("t", 2)


def test_records_take_effect_before_they_are_replicated() -> None:
    rig = Rig({"t": 2}, is_replicated=True)
    client = Client(rig, "a", ["t"])
    client.beat()
    assert client.beat().error_code == ErrorCode.NONE
    assert list(rig.group.members) == ["a"]
    rig.replicate()
    assert client.partitions == all_of("t", 2)


def test_described_members_are_in_the_order_of_kafkas_table() -> None:
    """P-330."""
    rig = Rig({"t": 2})
    for number in (1, 2):
        Client(rig, f"member-{number}", ["t"]).beat()
    assert [m.member_id for m in rig.describe(GROUP).members] == ["member-2", "member-1"]


def test_a_description_is_of_one_moment() -> None:
    """Between its steps members join and leave, and a topic is deleted."""
    rig = Rig({"t": 4, "u": 2})
    for member_id in "abc":
        Client(rig, member_id, ["t", "u"]).beat()
    before = str(rig.describe(GROUP))
    steps = rig.groups.describe(GROUP, rig.shard.committed_group(GROUP))
    next(steps)
    Client(rig, "d", ["t"]).beat()
    rig.beat(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=-1))
    rig.set_topics(u=0)
    assert str(rig.describe(GROUP)) != before
    assert str(finished(steps)) == before


def test_described_and_listed() -> None:
    rig = Rig({"t": 2})
    Client(rig, "a", ["t"], instance_id="i").beat()
    described = rig.describe(GROUP)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)
    member = described.members[0]
    assert (member.member_id, member.instance_id, member.member_epoch, member.member_type) == ("a", "i", 2, 1)
    assert member.assignment.topic_partitions[0].partitions == [0, 1]
    assert member.target_assignment.topic_partitions[0].topic_name == "t"
    assert [g.group_type for g in administration.listed(rig.shard, set(), set())] == ["consumer"]
    assert administration.listed(rig.shard, set(), {"classic"}) == []
    assert administration.listed(rig.shard, {"empty"}, set()) == []
    with pytest.raises(GroupError, match=r"Group none not found\.") as missing:
        rig.describe("none")
    assert missing.value.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    old = administration.describe(rig.shard, GROUP, 6)
    assert (old.error_code, old.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")


def test_an_empty_group_is_deleted_with_all_its_records() -> None:
    rig = Rig({"t": 2})
    client = Client(rig, "a", None, regex="t")
    settle(client)
    assert administration.delete(rig.shard, 0, GROUP).response is ErrorCode.NON_EMPTY_GROUP
    client.leave()
    result = administration.delete(rig.shard, 0, GROUP)
    rig.carry_out(result)
    assert rig.shard.consumer.by_id == {}
    last = dict(rig.log)
    assert set(last.values()) == {None}, "only tombstones are left after compaction"
    assert rig.loaded_shard().consumer.by_id == {}


def test_a_member_that_could_not_be_fenced_is_fenced_later() -> None:
    """The append of its removal fails, for want of in-sync replicas for example."""
    rig = Rig({"t": 2})
    Client(rig, "a", ["t"]).beat()
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.advance(45_000)
    assert "a" in rig.group.members
    rig.advance(400)
    rig.append_error = ErrorCode.NONE
    assert "a" in rig.group.members
    rig.advance(100)
    assert rig.group.members == {}


def test_a_member_whose_leave_could_not_be_stored_keeps_its_session() -> None:
    rig = Rig({"t": 2})
    client = Client(rig, "a", ["t"])
    client.beat()
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.leave().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.append_error = ErrorCode.NONE
    rig.advance(44_999)
    assert "a" in rig.group.members
    rig.advance(1)
    assert rig.group.members == {}


def test_a_revocation_that_is_not_stored_fences_nobody() -> None:
    """Kafka's timer stays: a member that goes back to its subscription would be fenced, though nothing was asked."""
    rig = Rig({"t": 1, "u": 1})
    client = Client(rig, "a", ["t", "u"])
    client.beat()
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.subscribe(["t"]).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.append_error = ErrorCode.NONE
    client.subscribe(["t", "u"])
    for _ in range(13):
        rig.advance(5_000)
        assert client.beat().error_code == ErrorCode.NONE
    assert client.partitions == {("t", 0), ("u", 0)}


def test_a_confirmation_that_is_not_stored_leaves_the_rebalance_timeout() -> None:
    """P-174: without the timer the partitions would never come to the other member."""
    rig = Rig({"t": 2})
    first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
    first.beat()
    first.holds = True
    second.beat()
    first.beat()
    owned = first.owned
    first.take()
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert first.beat().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.append_error = ErrorCode.NONE
    first.owned = owned
    for _ in range(12):
        assert first.beat().error_code == ErrorCode.NONE
        second.beat()
        rig.advance(5_000)
    assert set(rig.group.members) == {"b"}
    second.beat()
    assert second.partitions == all_of("t", 2)


def test_joins_that_are_refused_or_not_stored_leave_nothing() -> None:
    rig = Rig({"t": 2})
    groups = rig.shard.consumer
    assert Client(rig, "a", regex="(").beat().error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert groups._soft_states == {}
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert Client(rig, "a", ["t"]).beat().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.advance(45_000)
    assert (groups._soft_states, rig.shard.wake_ms(GROUP)) == ({}, None)


def change_regex(client: Client, regex: str, topics: list[str] | None = None) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat that changes the member's expression; "" takes it away."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=client.member_id,
        member_epoch=client.epoch,
        subscribed_topic_regex=regex,
        subscribed_topic_names=topics,
    )
    return client.rig.beat(request)


def test_p176_an_expression_that_a_member_replaces_is_forgotten() -> None:
    """P-176: with its topics, unless another member uses it."""
    rig = Rig({"foo": 1, "bar": 1})
    first, second = Client(rig, "a", None, regex="f.*"), Client(rig, "b", None, regex="f.*")
    settle(first, second)
    assert change_regex(first, "b.*").error_code == ErrorCode.NONE
    assert rig.group.subscriptions.topics == {"foo"}, "the new one is resolved beside the heartbeat"
    rig.advance(10_001)
    settle(first, second)
    assert set(rig.group.resolved) == {"f.*", "b.*"}
    assert change_regex(second, "b.*").error_code == ErrorCode.NONE
    assert set(rig.group.resolved) == {"b.*"}
    assert rig.group.subscriptions.topics == {"bar"}
    assert rig.reloaded().group.resolved.keys() == {"b.*"}


def test_p176_an_expression_that_a_member_gives_up() -> None:
    """P-176: the topics that it names itself are left."""
    rig = Rig({"foo": 1, "bar": 1})
    client = Client(rig, "a", None, regex="f.*")
    settle(client)
    assert client.partitions == {("foo", 0)}
    response = change_regex(client, "", ["bar"])
    assert response.error_code == ErrorCode.NONE
    assert response.assignment is not None
    assert response.assignment.topic_partitions == [], "foo is to be given up first"
    assert rig.group.resolved == {}
    assert rig.group.subscriptions.topics == {"bar"}
    client.owned = {}
    settle(client)
    assert client.partitions == {("bar", 0)}


def test_p176_an_expression_that_replaces_another_within_a_refresh() -> None:
    """P-176: the one that no member uses any more is not resolved again."""
    rig = Rig({"foo": 1, "bar": 1})
    client = Client(rig, "a", None, regex="f.*")
    settle(client)
    rig.advance(10_001)
    client.beat()
    assert change_regex(client, "b.*").error_code == ErrorCode.NONE
    assert [sorted(refresh.regexes) for refresh in rig.refreshes] == [["b.*"]]


def test_an_expression_of_another_brokers_log_that_cannot_be_compiled() -> None:
    """It has no topics; the others are resolved, without the topics that the client may not describe."""
    topics = GroupTopics(image_of({"aa": 1, "b": 1, "aaa": 1}))
    found = finished(matching_topics(["(", "a+"], topics, "aaa".__ne__))
    assert found == {"(": frozenset(), "a+": frozenset({"aa"})}


def test_very_many_topics_are_matched_in_steps() -> None:
    topics = GroupTopics(image_of({f"t{number}": 1 for number in range(5 * PIECE)}))
    found = finished(matching_topics(["t.*1", "t.*"], topics, lambda name: True))
    assert found["t.*"] == set(topics.names)
    assert found["t.*1"] == {name for name in topics.names if name.endswith("1")}
    assert len(list(matching_topics(["t.*1", "t.*"], topics, lambda name: True))) == 10


def test_partition_counts_follow_the_metadata() -> None:
    old = image_of({"a": 2, "b": 1})
    topics = GroupTopics(old)
    assert finished(topics.partition_counts(["a", "b"])) == {topic_id("a"): 2, topic_id("b"): 1}
    new = image_of({"a": 3})
    new.delta = delta_between(old, new)
    topics.update(new)
    assert finished(topics.partition_counts(["a", "b"])) == {topic_id("a"): 3}


def test_topics_that_are_found_after_the_group_has_gone() -> None:
    rig = Rig({"foo": 1})
    client = Client(rig, "a", None, regex="f.*")
    client.beat()
    client.leave()
    rig.carry_out(administration.delete(rig.shard, 0, GROUP))
    written = len(rig.log)
    rig.resolve_regexes()
    assert len(rig.log) == written
    assert rig.groups.by_id == {}


def test_a_static_member_that_comes_back_with_other_topics() -> None:
    """P-175: the target is computed with it in the place of the one that left."""
    rig = Rig({"t": 2, "u": 2})
    first, second = Client(rig, "a", ["t"], instance_id="i"), Client(rig, "b", ["t"])
    settle(first, second)
    first.leave(-2)
    again = Client(rig, "c", ["u"], instance_id="i")
    settle(again, second)
    assert again.partitions == all_of("u", 2)
    assert second.partitions == all_of("t", 2)
    assert set(rig.group.members) == {"b", "c"}


# Logs of other releases


def current_assignment(
    rig: Rig, member_id: str, epoch: int, state: MemberState, partitions: list[int], epochs: list[int] | None
) -> None:
    """The log gets a member's current assignment to partitions of "t", as another broker would write it."""
    assigned = [LoggedPartitions(topic_id=topic_id("t"), partitions=partitions, assignment_epochs=epochs)]
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch, previous_member_epoch=epoch - 1, state=state, assigned_partitions=assigned
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=member_id)
    rig.log.append(encode_record(LogRecord(key, value)))


def test_assignments_without_epochs() -> None:
    """Kafka before 4.3 wrote none: a partition has the member's epoch."""
    rig = Rig({"t": 2})
    client = Client(rig, "a", ["t"])
    client.beat()
    current_assignment(rig, "a", client.epoch, MemberState.STABLE, [0, 1], None)
    assert rig.reloaded().group.members["a"].assigned == {topic_id("t"): {0: client.epoch, 1: client.epoch}}


def test_a_state_that_a_later_release_has_stored() -> None:
    """As in Kafka the member must give everything up and join again; one that owns nothing goes on."""
    rig = Rig({"t": 2})
    client = Client(rig, "a", ["t"])
    client.beat()
    current_assignment(rig, "a", client.epoch, MemberState.UNKNOWN, [0, 1], None)
    later = rig.reloaded()
    client.rig = later
    fenced = client.beat()
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert fenced.error_message is not None
    assert fenced.error_message.startswith("The consumer group member is in a unknown state.")
    assert client.beat().error_code == ErrorCode.NONE
    assert later.group.members["a"].state is MemberState.STABLE
    assert client.partitions == all_of("t", 2)


def test_the_topics_partitions_of_an_older_log_are_removed() -> None:
    """Kafka before 4.1 wrote them into a record of the group; the next epoch takes it away, as in Kafka."""
    rig = Rig({"t": 2})
    Client(rig, "a", ["t"]).beat()
    record = LogRecord(ConsumerGroupPartitionMetadataKey(group_id=GROUP), ConsumerGroupPartitionMetadataValue())
    rig.log.append(encode_record(record))
    later = rig.reloaded()
    assert later.group.has_partition_metadata
    Client(later, "b", ["t"]).beat()
    assert not later.group.has_partition_metadata
    assert not later.reloaded().group.has_partition_metadata
