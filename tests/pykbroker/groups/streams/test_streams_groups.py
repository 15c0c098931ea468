"""Streams groups: joins, epochs, reconciliation, timers, and groups of other types (P-210 to P-219)."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.groups import administration, member_requests
from pykbroker.groups.assignors.streams.spec import TaskAssignorError
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.offset_log import encode_record
from pykbroker.groups.result import LogRecord, Requester
from pykbroker.groups.streams.configured import StatusCode
from pykbroker.groups.streams.heartbeat import DELAYED_BY_INTERVAL, DELAYED_INITIALLY
from pykbroker.groups.streams.member import MemberState
from pykbroker.java_order import hash_order
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentTaskIds,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupTopologyKey,
)
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker.protocol.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)
from pykbroker.protocol.steps import finished
from tests.pykbroker.groups.consumer.rig import Waiter
from tests.pykbroker.groups.shard_rig import GROUP
from tests.pykbroker.groups.streams.rig import StreamsRig, Thread, settle, statuses
from tests.pykbroker.groups.streams.topologies import stateless, word_count


def join_request(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def with_a_revoking_member() -> tuple[StreamsRig, Thread]:
    """A member that is asked for one of its two tasks and keeps it; its rebalance timeout is 20 s."""
    rig = StreamsRig({"clicks": 2})
    first, second = Thread(rig, "a", stateless("clicks")), Thread(rig, "b", stateless("clicks"))
    first.join(rebalance_timeout_ms=20_000)
    second.join()
    first.holds = True
    first.beat()
    return rig, first


def test_a_member_gets_all_tasks() -> None:
    """P-210: it joins at epoch 0 and is told its tasks at the epoch of the assignment."""
    rig = StreamsRig({"clicks": 3})
    thread = Thread(rig, "a", stateless("clicks"))
    response = thread.join()
    assert (response.error_code, response.member_epoch, response.status) == (ErrorCode.NONE, 2, [])
    assert (response.heartbeat_interval_ms, response.endpoint_information_epoch) == (5_000, 0)
    assert response.active_tasks == [TaskIds(subtopology_id="0", partitions=[0, 1, 2])]
    assert response.standby_tasks == response.warmup_tasks == []
    again = thread.beat()
    assert (again.member_epoch, again.active_tasks) == (2, None)
    assert rig.group.state_name == "Stable"
    assert rig.reloaded().group.members == rig.group.members


def test_tasks_of_a_response_are_in_the_order_of_kafkas_hash_map() -> None:
    rig = StreamsRig({"clicks": 1})
    names = ["-1", ".", "0", "1", "10", "9", "aa", "b"]
    topology = Topology(subtopologies=[Subtopology(subtopology_id=name, source_topics=["clicks"]) for name in names])
    listed = Thread(rig, "a", topology).join().active_tasks
    assert listed is not None
    assert [tasks.subtopology_id for tasks in listed] == ["0", "aa", "1", "b", "-1", "9", ".", "10"]


def test_a_task_moves_after_its_owner_gave_it_up() -> None:
    """P-212: the owner is asked first; the other waits, and both are stable in the end."""
    rig = StreamsRig({"clicks": 2})
    first, second = Thread(rig, "a", stateless("clicks")), Thread(rig, "b", stateless("clicks"))
    first.join()
    second.join()
    assert (second.epoch, second.tasks()) == (3, [])
    assert rig.group.members["b"].state is MemberState.UNRELEASED_TASKS
    first.holds = True
    first.beat()
    assert rig.group.members["a"].state is MemberState.UNREVOKED_TASKS
    assert (first.epoch, len(first.given["active_tasks"]["0"])) == (2, 1)
    second.beat()
    assert second.tasks() == []
    first.holds = False
    first.beat()
    first.beat()
    second.beat()
    assert sorted(first.tasks() + second.tasks()) == [("0", 0), ("0", 1)]
    settle(first, second)
    assert rig.group.state_name == "Stable"
    assert {member.member_epoch for member in rig.group.members.values()} == {3}


def test_threads_of_a_process_never_share_a_task() -> None:
    """P-212: a standby copy is on another process than the active task."""
    rig = StreamsRig({"clicks": 2, "g-words-repartition": 2, "g-store-changelog": 2}, num_standby_replicas=1)
    topology = word_count("g", "clicks")
    threads = [Thread(rig, name, topology, process_id=process) for name, process in zip("abcd", "ppqq", strict=True)]
    for thread in threads:
        thread.join()
    settle(*threads)
    assert rig.group.state_name == "Stable"
    for process in "pq":
        of_process = [thread for thread in threads if thread.fields["process_id"] == process]
        held = [task for thread in of_process for role in thread.owned for task in thread.tasks(role)]
        assert len(held) == len(set(held))
    standby = sorted(task for thread in threads for task in thread.tasks("standby_tasks"))
    assert standby == [("1", 0), ("1", 1)], "only stateful tasks have copies"


def test_internal_topics_are_asked_for_and_awaited() -> None:
    """P-211: the group is not ready, and assigns nothing, until the broker has created them."""
    rig = StreamsRig({"clicks": 3})
    thread = Thread(rig, "a", word_count("g", "clicks"))
    response = thread.join()
    detail = "Internal topics are missing: g-words-repartition, g-store-changelog"
    assert [code for code, _ in statuses(response)] == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert sorted(statuses(response)[0][1]) == sorted(detail)
    assert {name: topic.partition_count for name, topic in rig.missing.items()} == {
        "g-words-repartition": 3,
        "g-store-changelog": 3,
    }
    assert rig.missing["g-store-changelog"].configs == {"cleanup.policy": "compact"}
    assert rig.group.state_name == "NotReady"
    assert [listed.group_id for listed in administration.listed(rig.shard, {"not_ready"}, {"streams"})] == [GROUP]
    assert administration.listed(rig.shard, {"notready"}, set()) == []
    rig.create_missing()
    response = thread.beat()
    assert (response.status, response.member_epoch) == ([], 3)
    assert thread.tasks() == [(key, number) for key in "01" for number in range(3)]
    assert rig.missing == {}


def test_described_members_are_in_the_order_of_kafkas_table() -> None:
    """P-330."""
    rig = StreamsRig({"clicks": 3})
    for number in (1, 2):
        Thread(rig, f"member-{number}", word_count("g", "clicks")).join()
    assert [m.member_id for m in rig.describe(GROUP).members] == ["member-2", "member-1"]


def test_a_description_is_of_one_moment() -> None:
    """A member joins between its steps."""
    rig = StreamsRig({"clicks": 3})
    for member_id in ("a", "b"):
        Thread(rig, member_id, word_count("g", "clicks")).join()
    before = str(rig.describe(GROUP))
    steps = rig.groups.describe(GROUP, rig.shard.committed_group(GROUP))
    next(steps)
    Thread(rig, "c", word_count("g", "clicks")).join()
    assert str(rig.describe(GROUP)) != before
    assert str(finished(steps)) == before


def test_the_description_has_partition_counts_once_the_topology_is_ready() -> None:
    """P-217."""
    rig = StreamsRig({"clicks": 3})
    thread = Thread(rig, "a", word_count("g", "clicks"))
    thread.join()
    before = rig.describe(GROUP)
    assert before.topology is not None
    assert before.topology.subtopologies is not None
    assert [t.partitions for t in before.topology.subtopologies[1].state_changelog_topics] == [0]
    rig.create_missing()
    thread.beat()
    after = rig.describe(GROUP)
    assert after.topology is not None
    assert after.topology.subtopologies is not None
    assert [t.partitions for t in after.topology.subtopologies[1].state_changelog_topics] == [3]
    assert (after.group_state, after.group_epoch, after.assignment_epoch) == ("Stable", 3, 3)
    assert after.members[0].process_id == "process of a"
    with pytest.raises(GroupError, match=r"Group none not found\.") as missing:
        rig.describe("none")
    assert missing.value.error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_the_description_has_a_matched_topology_after_the_next_write() -> None:
    """P-217: a heartbeat without records matches it; Kafka shows that with the next record of any group."""
    rig = StreamsRig({"clicks": 3})
    thread = Thread(rig, "a", stateless("clicks", "clicks"))

    def sources() -> Any:
        (subtopology,) = rig.describe(GROUP).topology.subtopologies
        return subtopology.source_topics

    thread.join()
    assert sources() == ["clicks", "clicks"]
    thread.beat()
    assert rig.group.configured is not None
    assert sources() == ["clicks", "clicks"]
    Thread(rig, "b", stateless("clicks")).join(group_id="other")
    assert sources() == ["clicks"]


def test_a_matched_topology_is_shown_when_the_next_write_is_replicated() -> None:
    """P-217: descriptions do not have it as long as the write is in flight."""
    rig = StreamsRig({"clicks": 3}, is_replicated=True)
    thread = Thread(rig, "a", stateless("clicks", "clicks"))
    thread.join()
    rig.replicate()
    thread.beat()
    matched = rig.group.configured
    assert matched is not None
    Thread(rig, "b", stateless("clicks")).join(group_id="other")
    assert rig.group.shown is None
    rig.replicate()
    assert rig.group.shown is matched


def test_a_failed_write_shows_no_matched_topology() -> None:
    """P-217: the next one does."""
    rig = StreamsRig({"clicks": 3})
    thread = Thread(rig, "a", stateless("clicks", "clicks"))
    thread.join()
    thread.beat()
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    Thread(rig, "b", stateless("clicks")).join(group_id="other")
    assert rig.group.shown is None
    rig.append_error = ErrorCode.NONE
    Thread(rig, "b", stateless("clicks")).join(group_id="other")
    assert rig.group.shown is rig.group.configured is not None


def test_the_first_assignment_waits_for_more_members() -> None:
    """P-213: members have an epoch and no tasks meanwhile; the delay's end assigns, a heartbeat tells."""
    rig = StreamsRig({"clicks": 2}, initial_rebalance_delay_ms=3_000)
    first, second = Thread(rig, "a", stateless("clicks")), Thread(rig, "b", stateless("clicks"))
    response = first.join()
    assert statuses(response) == [(StatusCode.ASSIGNMENT_DELAYED, DELAYED_INITIALLY)]
    assert (response.member_epoch, response.active_tasks) == (1, [])
    second.join()
    first.beat()
    assert rig.group.state_name == "Assigning"
    rig.advance(2_999)
    assert rig.group.assignment_epoch == 1
    rig.advance(1)
    assert (rig.group.assignment_epoch, rig.group.epoch) == (3, 3)
    settle(first, second, rounds=2)
    assert [len(first.tasks()), len(second.tasks())] == [1, 1]


def test_a_delay_that_ends_before_the_second_heartbeat_assigns_with_it() -> None:
    """P-213: the stored group has not looked at its topics yet."""
    rig = StreamsRig({"clicks": 2}, initial_rebalance_delay_ms=3_000)
    thread = Thread(rig, "a", stateless("clicks"))
    thread.join()
    rig.advance(5_000)
    assert rig.group.assignment_epoch == 1
    thread.beat()
    assert len(thread.tasks()) == 2


def test_a_delay_outlives_a_join_that_was_not_stored() -> None:
    rig = StreamsRig({"clicks": 2}, initial_rebalance_delay_ms=3_000)
    thread = Thread(rig, "a", stateless("clicks"))
    rig.append_error = ErrorCode.NOT_COORDINATOR
    assert thread.join().error_code == ErrorCode.NOT_COORDINATOR
    rig.append_error = ErrorCode.NONE
    rig.advance(3_000)
    assert rig.shard.wake_ms(GROUP) is not None, "its session"
    rig.advance(60_000)
    assert rig.shard.wake_ms(GROUP) is None
    assert statuses(thread.join())[0][0] is StatusCode.ASSIGNMENT_DELAYED


def test_later_assignments_keep_an_interval() -> None:
    """P-213."""
    rig = StreamsRig({"clicks": 2}, assignment_interval_ms=1_000)
    first, second = Thread(rig, "a", stateless("clicks")), Thread(rig, "b", stateless("clicks"))
    first.join()
    rig.advance(999)
    response = second.join()
    assert statuses(response) == [(StatusCode.ASSIGNMENT_DELAYED, DELAYED_BY_INTERVAL)]
    assert (response.member_epoch, response.active_tasks) == (2, [])
    rig.advance(1)
    settle(first, second)
    assert [len(first.tasks()), len(second.tasks())] == [1, 1]


def test_a_change_of_standbys_asks_for_a_new_assignment() -> None:
    """P-216: the configs of an assignment are stored with the epoch, so that a new coordinator notices, too."""
    rig = StreamsRig({"clicks": 2, "g-words-repartition": 2, "g-store-changelog": 2})
    threads = [Thread(rig, name, word_count("g", "clicks")) for name in "ab"]
    for thread in threads:
        thread.join()
    settle(*threads)
    epoch = rig.group.epoch
    assert rig.reloaded().group.assignment_configs == {"num.standby.replicas": "0"}
    rig.configs[GROUP] = {"streams.num.standby.replicas": "9", "streams.heartbeat.interval.ms": "7000"}
    assert threads[0].beat().heartbeat_interval_ms == 7_000
    assert rig.group.epoch == epoch + 1
    assert rig.group.assignment_configs == {"num.standby.replicas": "2"}, "within the broker's bound"
    settle(*threads)
    assert sorted(task for thread in threads for task in thread.tasks("standby_tasks")) == [("1", 0), ("1", 1)]


def test_more_partitions_make_more_tasks() -> None:
    """P-211."""
    rig = StreamsRig({"clicks": 1})
    thread = Thread(rig, "a", stateless("clicks"))
    thread.join()
    rig.set_topics(clicks=4)
    thread.beat()
    assert len(thread.tasks()) == 4
    rig.set_topics(clicks=0)
    response = thread.beat(**dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks")))
    assert statuses(response) == [(StatusCode.MISSING_SOURCE_TOPICS, "Source topics clicks are missing.")]
    assert rig.group.state_name == "NotReady"


def test_epochs_fence() -> None:
    """P-214: the previous epoch is accepted of a member that has no more than it was given."""
    rig = StreamsRig({"clicks": 2})
    first, second = Thread(rig, "a", stateless("clicks")), Thread(rig, "b", stateless("clicks"))
    first.join()
    second.join()
    first.beat()
    first.beat()
    assert (first.epoch, rig.group.members["a"].previous_member_epoch) == (3, 2)
    own: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    assert rig.beat("a", 2, **own).error_code == ErrorCode.NONE
    both = {**own, "active_tasks": [TaskIds(subtopology_id="0", partitions=[0, 1])]}
    for epoch, fields, order in ((2, both, "smaller"), (2, {}, "smaller"), (1, own, "smaller"), (9, own, "greater")):
        response = rig.beat("a", epoch, **fields)
        assert response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert response.error_message == (
            f"The streams group member has a {order} member epoch ({epoch}) than the one known by the group "
            "coordinator (3). The member must abandon all its partitions and rejoin."
        )
    assert rig.beat("z", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    missing = rig.beat("a", 1, group_id="none")
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Streams group none not found.",
    )


def test_tasks_that_are_reported_in_two_parts() -> None:
    """Both parts count for the previous epoch; a member that has to move is refused, as Kafka makes a map of them."""
    rig = StreamsRig({"t": 2})
    thread = Thread(rig, "a", stateless("t"))
    thread.join()
    before = thread.epoch
    twice = [TaskIds(subtopology_id="0", partitions=[number]) for number in (0, 1)]
    assert thread.beat(active_tasks=twice).error_code == ErrorCode.NONE
    other = Thread(rig, "b", stateless("t"))
    other.join()
    assert thread.beat(active_tasks=twice).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert thread.beat().error_code == ErrorCode.NONE
    thread.beat()
    assert thread.epoch > before
    wrong = [TaskIds(subtopology_id="0", partitions=[1 - number]) for _, number in thread.tasks()] + [
        TaskIds(subtopology_id="0", partitions=[number]) for _, number in thread.tasks()
    ]
    assert rig.beat("a", before, active_tasks=wrong, standby_tasks=[], warmup_tasks=[]).error_code == (
        ErrorCode.FENCED_MEMBER_EPOCH
    )


def test_sessions_expire() -> None:
    """P-214."""
    rig = StreamsRig({"clicks": 2})
    first, second = Thread(rig, "a", stateless("clicks")), Thread(rig, "b", stateless("clicks"))
    first.join()
    second.join()
    rig.advance(44_000)
    second.beat()
    rig.advance(1_000)
    assert set(rig.group.members) == {"b"}
    settle(second)
    assert len(second.tasks()) == 2
    rig.advance(45_000)
    assert rig.group.state_name == "Empty"


@pytest.mark.parametrize("timeout_ms", [45_000, 60_000])
def test_a_member_whose_leave_is_not_stored_is_fenced_by_its_timer(timeout_ms: int) -> None:
    """P-214: it has ended and sends nothing more; without the timer its tasks would be nobody's for ever."""
    rig = StreamsRig({"clicks": 2}, session_timeout_ms=timeout_ms)
    thread = Thread(rig, "a", stateless("clicks"))
    thread.join()
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.beat("a", -1).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.append_error = ErrorCode.NONE
    rig.advance(timeout_ms - 1)
    assert set(rig.group.members) == {"a"}
    rig.advance(1)
    assert rig.group.state_name == "Empty"


def test_a_member_that_keeps_its_tasks_is_fenced() -> None:
    """P-214: after its own rebalance timeout, unless it has moved on."""
    rig, first = with_a_revoking_member()
    other = rig.reloaded()
    other.advance(19_999)
    assert set(other.group.members) == {"a", "b"}
    other.advance(1)
    assert set(other.group.members) == {"b"}, "a new coordinator starts the timeout again"
    rig.advance(10_000)
    first.holds = False
    first.beat()
    first.beat()
    rig.advance(15_000)
    assert set(rig.group.members) == {"a", "b"}


def test_fencing_is_tried_again() -> None:
    rig = StreamsRig({"clicks": 2})
    thread = Thread(rig, "a", stateless("clicks"))
    thread.join()
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.advance(45_000)
    assert set(rig.group.members) == {"a"}
    rig.append_error = ErrorCode.NONE
    rig.advance(500)
    assert not rig.group.members


def test_a_shutdown_is_told_to_all() -> None:
    """P-215: until the group is empty; the member that asked first is named."""
    rig = StreamsRig({"clicks": 2})
    first, second = Thread(rig, "a", stateless("clicks")), Thread(rig, "b", stateless("clicks"))
    first.join()
    second.join()
    first.beat(shutdown_application=True)
    second.beat(shutdown_application=True)
    text = "Streams group member a encountered a fatal error and requested a shutdown for the entire application."
    assert statuses(second.beat()) == [(StatusCode.SHUTDOWN_APPLICATION, text)]
    first.leave()
    assert statuses(second.beat()) == [(StatusCode.SHUTDOWN_APPLICATION, text)]
    second.leave()
    first.join()
    assert statuses(first.beat()) == []


def test_topologies_have_epochs() -> None:
    """P-211: an older one is stale, and nothing replaces a topology."""
    rig = StreamsRig({"clicks": 2, "views": 2})
    Thread(rig, "a", stateless("clicks", epoch=2)).join()
    stale = Thread(rig, "b", stateless("views", epoch=1)).join()
    text = "The member's topology epoch 1 is behind the group's topology epoch 2."
    assert statuses(stale) == [(StatusCode.STALE_TOPOLOGY, text)]
    for topology in (stateless("views", epoch=2), stateless("clicks", epoch=3)):
        refused = Thread(rig, "c", topology).join()
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "Topology updates are not supported yet.",
        )
    assert Thread(rig, "c", stateless("clicks", epoch=2)).join().error_code == ErrorCode.NONE


def test_partitions_of_an_endpoint_are_in_the_order_of_a_hash_map_of_subtopologies() -> None:
    """P-218: that of Kafka's standby tasks; the order of its active ones is random."""
    numbers = [number * 7 % 30 for number in range(30)]
    rig = StreamsRig({f"topic-{number}": 1 for number in numbers})
    topology = Topology(
        subtopologies=[
            Subtopology(subtopology_id=f"sub-{number}", source_topics=[f"topic-{number}"]) for number in numbers
        ]
    )
    thread = Thread(rig, "a", topology, user_endpoint=Endpoint(host="one", port=1))
    thread.join()
    settle(thread)
    listed = thread.beat(endpoint_information_epoch=-1).partitions_by_user_endpoint
    assert listed is not None
    ids = hash_order(sorted(f"sub-{number}" for number in numbers))
    assert [each.topic for each in listed[0].active_partitions] == [name.replace("sub", "topic") for name in ids]


def test_endpoints_and_their_partitions() -> None:
    """P-218: a member that has not seen the newest ones gets all."""
    rig = StreamsRig({"clicks": 3})
    first = Thread(rig, "a", stateless("clicks"), user_endpoint=Endpoint(host="one", port=1))
    second = Thread(rig, "b", stateless("clicks"), user_endpoint=Endpoint(host="two", port=2))
    plain = Thread(rig, "c", stateless("clicks"))
    for thread in (first, second, plain):
        thread.join()
    settle(first, second, plain)
    seen = rig.group.endpoint_epoch
    assert first.beat(endpoint_information_epoch=seen).partitions_by_user_endpoint is None
    listed = first.beat(endpoint_information_epoch=seen - 1).partitions_by_user_endpoint
    assert listed is not None
    found = {e.user_endpoint.host: [(t.topic, t.partitions) for t in e.active_partitions] for e in listed}
    assert found == {
        "one": [("clicks", [number for _, number in first.tasks()])],
        "two": [("clicks", [number for _, number in second.tasks()])],
    }
    later = Thread(rig, "d", stateless("later"), user_endpoint=Endpoint(host="x", port=3))
    failed = rig.beat(
        "d",
        0,
        "other",
        **later.fields,
        topology=later.topology,
        rebalance_timeout_ms=1,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        endpoint_information_epoch=-1,
    )
    assert failed.error_code == ErrorCode.UNKNOWN_SERVER_ERROR, "as Kafka: partitions of topics that do not exist"


def test_a_full_group_takes_nobody() -> None:
    """P-210."""
    rig = StreamsRig({"clicks": 2}, max_size=1)
    Thread(rig, "a", stateless("clicks")).join()
    refused = Thread(rig, "b", stateless("clicks")).join()
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The streams group has reached its maximum capacity of 1 members.",
    )


def test_a_rejoin_changes_nothing() -> None:
    """P-210: the same member at epoch 0 is told its tasks again."""
    rig = StreamsRig({"clicks": 2})
    thread = Thread(rig, "a", stateless("clicks"), client_tags=[KeyValue(key="k", value="v")])
    thread.join()
    written = len(rig.log)
    response = thread.join()
    assert (response.member_epoch, len(thread.tasks()), len(rig.log)) == (2, 2, written)
    assert thread.beat(client_tags=[]).member_epoch == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": " \0"}, "MemberId can't be empty."),
        ({"instance_id": "i"}, "Static membership is not yet supported."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"active_tasks": None}, "ActiveTasks must be empty when (re-)joining."),
        ({"warmup_tasks": [TaskIds()]}, "WarmupTasks are not supported yet."),
        ({"task_offsets": []}, "TaskOffsets are not supported yet."),
        ({"task_end_offsets": []}, "TaskEndOffsets are not supported yet."),
        ({"member_epoch": -3, "topology": None}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"member_epoch": -2, "topology": None}, "InstanceId can't be null."),
        ({"member_epoch": 1}, "Topology can only be provided when (re-)joining."),
        (
            {"member_epoch": 1, "topology": None, "standby_tasks": None},
            "If one task-type is non-null, all must be non-null.",
        ),
        (
            {"topology": Topology(subtopologies=[Subtopology(source_topic_regex=["a"])])},
            "Regular expressions for source topics are not supported yet.",
        ),
    ],
)
def test_malformed_requests(fields: dict[str, object], message: str) -> None:
    """P-210."""
    rig = StreamsRig({"clicks": 2})
    good: dict[str, Any] = {
        "member_id": "a",
        "member_epoch": 0,
        "topology": stateless("clicks"),
        "rebalance_timeout_ms": 1,
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }
    request = {**good, **fields}
    response = rig.beat(request.pop("member_id"), request.pop("member_epoch"), **request)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert StreamsGroupHeartbeatRequest(**good)


def test_tasks_that_do_not_exist() -> None:
    """P-210."""
    rig = StreamsRig({"clicks": 2})
    Thread(rig, "a", stateless("clicks")).join()
    none: dict[str, Any] = {"standby_tasks": [], "warmup_tasks": []}
    for ids, message in (
        (TaskIds(subtopology_id="9"), "Subtopology 9 does not exist in the topology."),
        (
            TaskIds(subtopology_id="0", partitions=[2]),
            "Task 2 for subtopology 0 is invalid. Number of tasks for this subtopology: 2",
        ),
    ):
        response = rig.beat("a", 2, active_tasks=[ids], **none)
        assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_an_empty_classic_group_becomes_a_streams_group_and_back() -> None:
    """P-219: in one batch with its tombstone; a group with members refuses."""
    rig = StreamsRig({"clicks": 2})
    waiter = Waiter()
    rig.carry_out(
        member_requests.classic_group_join(
            rig.shard, rig.now_ms, join_request(), Requester("c", "/h", 4, bytes(16)), waiter
        )
    )
    thread = Thread(rig, "a", stateless("clicks"))
    assert GROUP in rig.shard.groups
    response = thread.join()
    assert (response.error_code, response.endpoint_information_epoch) == (ErrorCode.NONE, 0)
    assert GROUP not in rig.shard.groups
    assert GROUP not in rig.reloaded().shard.groups
    result = member_requests.classic_group_join(
        rig.shard, rig.now_ms, join_request(), Requester("c", "/h", 9, bytes(16)), waiter
    )
    refusal = result.replies[0][1]
    assert (refusal.error_code, refusal.member_id) == (  # type: ignore[attr-defined]
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        "",
    )
    thread.leave()
    rig.carry_out(
        member_requests.classic_group_join(
            rig.shard, rig.now_ms, join_request(), Requester("c", "/h", 9, bytes(16)), waiter
        )
    )
    assert GROUP in rig.shard.groups
    assert GROUP not in rig.shard.streams.by_id
    other = rig.reloaded()
    assert GROUP in other.shard.groups
    assert GROUP not in other.shard.streams.by_id


def test_a_conversion_that_is_not_stored_is_taken_back() -> None:
    rig = StreamsRig({"clicks": 2})
    thread = Thread(rig, "a", stateless("clicks"))
    thread.join()
    thread.leave()
    rig.append_error = ErrorCode.NOT_COORDINATOR
    rig.carry_out(
        member_requests.classic_group_join(
            rig.shard, rig.now_ms, join_request(), Requester("c", "/h", 9, bytes(16)), Waiter()
        )
    )
    assert GROUP in rig.shard.streams.by_id
    assert GROUP not in rig.shard.groups


def test_p431_a_group_whose_tombstone_is_not_replicated_is_gone_for_writes() -> None:
    """P-431."""
    rig = StreamsRig({"clicks": 2})
    thread = Thread(rig, "a", stateless("clicks"))
    thread.join()
    thread.leave()
    result = administration.delete(rig.shard, 0, GROUP)
    rig.shard.appended(result, rig.now_ms, len(rig.log))
    assert rig.shard.in_flight.is_ending(GROUP)
    assert administration.delete(rig.shard, 0, GROUP).response == ErrorCode.GROUP_ID_NOT_FOUND
    assert rig.describe(GROUP).group_state == "Empty"
    rig.shard.replicated(result, rig.now_ms, len(rig.log))
    assert not rig.shard.in_flight.is_ending(GROUP)
    assert rig.shard.any_group(GROUP) is None


def test_a_group_is_deleted_when_it_is_empty() -> None:
    """P-219: with tombstones of all that is stored."""
    rig = StreamsRig({"clicks": 2})
    thread = Thread(rig, "a", stateless("clicks"))
    thread.join()
    assert administration.delete(rig.shard, 0, GROUP).response == ErrorCode.NON_EMPTY_GROUP
    thread.leave()
    assert [listed.group_state for listed in administration.listed(rig.shard, set(), {"streams"})] == ["Empty"]
    result = administration.delete(rig.shard, 0, GROUP)
    rig.carry_out(result)
    assert result.response == ErrorCode.NONE
    assert rig.shard.any_group(GROUP) is None
    assert rig.reloaded().shard.any_group(GROUP) is None
    live = dict(rig.log)
    assert all(value is None for value in live.values())


def test_a_confirmation_that_is_not_stored_leaves_the_rebalance_timeout() -> None:
    """P-214: without the timer the tasks would never come to the other member."""
    rig, first = with_a_revoking_member()
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    first.holds = False
    first.beat()
    assert first.beat().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.append_error = ErrorCode.NONE
    rig.advance(20_000)
    assert set(rig.group.members) == {"b"}


def test_a_changelog_topic_with_a_count() -> None:
    """P-211: its count is that of the tasks. Kafka's text."""
    topology = word_count("g", "clicks")
    topology.subtopologies[1].state_changelog_topics[0].partitions = 4
    refused = Thread(StreamsRig({"clicks": 2}), "a", topology).join()
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        "Changelog topic g-store-changelog must have an undefined partition count, but it is set to 4.",
    )


def test_client_tags_with_the_same_key() -> None:
    """P-210: as Kafka, whose collector raises an exception for them."""
    tags = [KeyValue(key="k", value="v"), KeyValue(key="k", value="w")]
    refused = Thread(StreamsRig({"clicks": 2}), "a", stateless("clicks"), client_tags=tags).join()
    assert (refused.error_code, refused.error_message) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)


def test_a_member_that_leaves_may_ask_for_the_shutdown_of_all() -> None:
    """P-215."""
    rig = StreamsRig({"clicks": 2})
    first, second = Thread(rig, "a", stateless("clicks")), Thread(rig, "b", stateless("clicks"))
    first.join()
    second.join()
    assert rig.beat("a", -1, shutdown_application=True).error_code == ErrorCode.NONE
    text = "Streams group member a encountered a fatal error and requested a shutdown for the entire application."
    assert statuses(second.beat()) == [(StatusCode.SHUTDOWN_APPLICATION, text)]


def failing(*_: Any) -> Any:
    raise TaskAssignorError("no room")


def test_an_assignor_that_fails() -> None:
    """P-212: the heartbeat is refused, and the group stays as it is."""
    rig = StreamsRig({"clicks": 2})
    first = Thread(rig, "a", stateless("clicks"))
    first.join()
    written = len(rig.log)
    rig.groups._assign = failing
    refused = Thread(rig, "b", stateless("clicks")).join()
    assert (refused.error_code, len(rig.log)) == (ErrorCode.UNKNOWN_SERVER_ERROR, written)
    assert set(rig.group.members) == {"a"}


def test_an_assignor_that_fails_after_the_first_delay() -> None:
    """P-213: there is no request to refuse; the next heartbeat computes the assignment."""
    rig = StreamsRig({"clicks": 2}, initial_rebalance_delay_ms=3_000)
    thread = Thread(rig, "a", stateless("clicks"))
    thread.join()
    thread.beat()
    assign = rig.groups._assign
    rig.groups._assign = failing
    rig.advance(3_000)
    assert rig.group.assignment_epoch < rig.group.epoch
    rig.groups._assign = assign
    thread.beat()
    assert len(thread.tasks()) == 2


# Logs of other releases


def current_tasks(rig: StreamsRig, member_id: str, epoch: int, state: MemberState) -> None:
    """The log gets a member's current tasks without epochs, in a state."""
    tasks = StreamsGroupCurrentMemberAssignmentTaskIds(subtopology_id="0", partitions=[0, 1])
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=epoch, previous_member_epoch=epoch - 1, state=state, active_tasks=[tasks]
    )
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id=member_id)
    rig.log.append(encode_record(LogRecord(key, value)))


def test_tasks_without_epochs() -> None:
    """A task has the member's epoch then."""
    rig = StreamsRig({"clicks": 2})
    thread = Thread(rig, "a", stateless("clicks"))
    thread.join()
    current_tasks(rig, "a", thread.epoch, MemberState.STABLE)
    assert rig.reloaded().group.members["a"].assigned.active == {"0": {0: thread.epoch, 1: thread.epoch}}


def test_a_state_that_a_later_release_has_stored() -> None:
    """P-212: the member must give everything up and join again, as in Kafka."""
    rig = StreamsRig({"clicks": 2})
    thread = Thread(rig, "a", stateless("clicks"))
    thread.join()
    current_tasks(rig, "a", thread.epoch, MemberState.UNKNOWN)
    thread.rig = later = rig.reloaded()
    assert thread.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
    thread.join()
    settle(thread)
    assert later.group.members["a"].state is MemberState.STABLE
    assert thread.tasks() == [("0", 0), ("0", 1)]


def test_a_group_whose_log_has_no_topology() -> None:
    """A member that does not send it with its heartbeat cannot be told tasks: as Kafka, an unknown error."""
    rig = StreamsRig({"clicks": 2})
    thread = Thread(rig, "a", stateless("clicks"))
    thread.join()
    rig.log.append(encode_record(LogRecord(StreamsGroupTopologyKey(group_id=GROUP), None)))
    thread.rig = rig.reloaded()
    assert thread.beat().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
