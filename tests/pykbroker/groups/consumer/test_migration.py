"""Groups that change between the classic protocol and the consumer protocol while they have members."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.groups import administration, member_requests, offset_commit, offset_fetch
from pykbroker.groups.classic.group import PREPARING, STABLE
from pykbroker.groups.consumer.migration import decode_assignment
from pykbroker.groups.modern.errors import GroupError
from pykbroker.java_order import hash_order
from pykbroker.protocol.codec import encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.consumer_group_records import ConsumerGroupRegularExpressionKey
from pykbroker.protocol.log_messages.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pykbroker.protocol.steps import finished
from pykbroker.protocol.uuids import uuid_from_text
from tests.pykbroker.groups.consumer.rig import Client, Rig, Waiter, settle
from tests.pykbroker.groups.shard_rig import GROUP, topic_id


def subscription(*topics: str, owned: dict[str, list[int]] | None = None) -> bytes:
    partitions = [TopicPartition(topic=topic, partitions=numbers) for topic, numbers in (owned or {}).items()]
    value = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=partitions)
    return b"\0\1" + encode(value, 1)


def assignment(**partitions: list[int]) -> bytes:
    topics = [AssignedTopicPartition(topic=topic, partitions=numbers) for topic, numbers in partitions.items()]
    return b"\0\1" + encode(ConsumerProtocolAssignment(assigned_partitions=topics), 1)


def join_request(member_id: str, metadata: bytes, instance_id: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        member_id=member_id,
        group_instance_id=instance_id,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def sync_request(member_id: str, generation: int, **assignments: bytes) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=GROUP,
        member_id=member_id,
        generation_id=generation,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequestAssignment(member_id=other, assignment=data) for other, data in assignments.items()
        ],
    )


def sync(rig: Rig, request: SyncGroupRequest) -> Any:
    waiter = Waiter()
    rig.carry_out(member_requests.classic_group_sync(rig.shard, rig.now_ms, request, waiter))
    return waiter.response


def assigned(response: Any) -> dict[str, list[int]]:
    return {topic.topic: topic.partitions for topic in decode_assignment(response.assignment).assigned_partitions}


def classic_group(rig: Rig, *, instance_id: str | None = None) -> str:
    """A Stable classic group of one member that owns t-0 and t-1; returns its member id."""
    waiter = rig.join_classic(join_request("", subscription("t"), instance_id))
    if instance_id is None:
        assert waiter.response is not None
        member_id: str = waiter.response.member_id  # type: ignore[attr-defined]
        waiter = rig.join_classic(join_request(member_id, subscription("t")))
    rig.advance(3_000)
    joined: Any = waiter.response
    assert joined.error_code == ErrorCode.NONE
    response = sync(
        rig, sync_request(joined.member_id, joined.generation_id, **{joined.member_id: assignment(t=[0, 1])})
    )
    assert response.error_code == ErrorCode.NONE
    name: str = joined.member_id
    return name


def heartbeat(rig: Rig, member_id: str, generation: int) -> ErrorCode:
    request = HeartbeatRequest(group_id=GROUP, member_id=member_id, generation_id=generation)
    return member_requests.classic_group_heartbeat(rig.shard, request, rig.now_ms)


def test_a_consumer_that_joins_upgrades_the_group() -> None:
    """P-178: the classic member keeps its partitions until it has joined again."""
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    new = Client(rig, "new", ["t"])
    assert new.beat().error_code == ErrorCode.NONE
    assert GROUP not in rig.shard.groups
    assert new.partitions == set()
    assert rig.group.members[classic].classic is not None
    assert heartbeat(rig, classic, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    waiter = rig.join_classic(join_request(classic, subscription("t", owned={"t": [0, 1]})))
    joined: Any = waiter.response
    assert joined.error_code == ErrorCode.NONE
    kept = assigned(sync(rig, sync_request(classic, joined.generation_id)))
    assert len(kept["t"]) == 1
    assert heartbeat(rig, classic, joined.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = rig.join_classic(join_request(classic, subscription("t", owned=kept))).response
    assert assigned(sync(rig, sync_request(classic, joined.generation_id))) == kept
    new.beat()
    assert len(new.partitions) == 1
    assert heartbeat(rig, classic, joined.generation_id) is ErrorCode.NONE
    assert rig.group.state_name == "Stable"
    described = rig.describe(GROUP).members
    assert {member.member_id: member.member_type for member in described} == {classic: 0, "new": 1}


def test_the_last_consumer_that_leaves_downgrades_the_group() -> None:
    """P-178."""
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    new = Client(rig, "new", ["t"])
    new.beat()
    rig.join_classic(join_request(classic, subscription("t", owned={"t": [0, 1]})))
    new.leave()
    assert rig.shard.consumer.by_id == {}
    group = rig.shard.groups[GROUP]
    assert group.state is PREPARING
    assert list(group.members.by_id) == [classic]
    reloaded = rig.loaded_shard()
    assert reloaded.consumer.by_id == {}
    assert list(reloaded.groups[GROUP].members.by_id) == [classic]


def test_p178_assignments_are_in_the_version_of_the_protocol_of_the_classic_group() -> None:
    """P-178: a client may have another version for each of its protocols."""
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    new = Client(rig, "new", ["t"])
    new.beat()
    older = b"\0\0" + encode(ConsumerProtocolSubscription(topics=["t"]), 0)
    request = join_request(classic, subscription("t", owned={"t": [0, 1]}))
    request.protocols.append(JoinGroupRequestProtocol(name="sticky", metadata=older))
    rig.join_classic(request)
    other: Any = rig.join_classic(join_request("", subscription("t"))).response
    request = join_request(other.member_id, older)
    request.protocols = [
        JoinGroupRequestProtocol(name="sticky", metadata=older),
        JoinGroupRequestProtocol(name="range", metadata=subscription("t")),
    ]
    rig.join_classic(request)
    new.leave()
    group = rig.shard.groups[GROUP]
    assert group.protocol_name == "sticky"
    assert {member.assignment[:2] for member in group.members} == {b"\0\0"}


def test_a_classic_member_that_replaces_the_last_static_consumer_downgrades_the_group() -> None:
    """P-178."""
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    new = Client(rig, "new", ["t"], instance_id="i")
    new.beat()
    joined: Any = rig.join_classic(join_request(classic, subscription("t", owned={"t": [0, 1]}))).response
    left = assigned(sync(rig, sync_request(classic, joined.generation_id)))
    rig.join_classic(join_request(classic, subscription("t", owned=left)))
    settle(new)
    assert len(new.partitions) == 1
    waiter = rig.join_classic(join_request("", subscription("t"), "i"))
    replaced: Any = waiter.response
    assert replaced.error_code == ErrorCode.NONE
    assert rig.shard.consumer.by_id == {}
    group = rig.shard.groups[GROUP]
    assert group.state is STABLE
    assert set(group.members.by_id) == {classic, replaced.member_id}
    assert replaced.member_id != "new"


@pytest.mark.parametrize(("policy", "is_upgraded"), [("disabled", False), ("downgrade", False), ("upgrade", True)])
def test_the_policy_decides_about_upgrades(policy: str, is_upgraded: bool) -> None:
    """P-178."""
    rig = Rig({"t": 2}, migration_policy=policy)
    classic_group(rig)
    response = Client(rig, "new", ["t"]).beat()
    if is_upgraded:
        assert response.error_code == ErrorCode.NONE
        return
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert response.error_message == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )
    assert GROUP in rig.shard.groups


def test_parked_joins_of_an_upgraded_group_rebalance() -> None:
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    parked = rig.join_classic(join_request("", subscription("t"), "another"))
    assert parked.response is None
    assert rig.shard.groups[GROUP].state is PREPARING
    assert Client(rig, "new", ["t"]).beat().error_code == ErrorCode.NONE
    response: Any = parked.response
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert classic in rig.group.members


def test_p178_a_group_that_has_not_chosen_a_protocol_is_not_upgraded() -> None:
    """P-178: in the first join phase. As in Kafka, whose members must join the classic group again."""
    rig = Rig({"t": 2})
    parked = rig.join_classic(join_request("", subscription("t"), "static"))
    assert rig.shard.groups[GROUP].state is PREPARING
    before = len(rig.log)
    response = Client(rig, "new", ["t"]).beat()
    assert (response.error_code, response.error_message) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
    refused: Any = parked.response
    assert refused.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(rig.log) == before
    again = rig.join_classic(join_request(refused.member_id, subscription("t"), "static"))
    rig.advance(6_000)
    joined: Any = again.response
    assert joined.error_code == ErrorCode.NONE
    assert Client(rig, "new", ["t"]).beat().error_code == ErrorCode.NONE


def test_p178_a_group_with_a_member_that_cannot_be_read_is_not_upgraded() -> None:
    """P-178: its parked joins are ended nevertheless."""
    rig = Rig({"t": 2})
    classic_group(rig)
    parked = rig.join_classic(join_request("", b"?", "another"))
    response = Client(rig, "new", ["t"]).beat()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    refused: Any = parked.response
    assert refused.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert GROUP in rig.shard.groups


def test_an_empty_classic_group_becomes_a_consumer_group_and_back() -> None:
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=classic)])
    rig.carry_out(member_requests.classic_group_leave(rig.shard, rig.now_ms, request))
    new = Client(rig, "new", ["t"])
    assert new.beat().error_code == ErrorCode.NONE
    assert GROUP not in rig.shard.groups
    new.leave()
    waiter = rig.join_classic(join_request("", subscription("t")))
    response: Any = waiter.response
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert rig.shard.consumer.by_id == {}
    assert rig.loaded_shard().consumer.by_id == {}
    assert GROUP in rig.loaded_shard().groups


def test_a_failed_append_leaves_the_empty_consumer_group() -> None:
    rig = Rig({"t": 2})
    new = Client(rig, "new", ["t"])
    new.beat()
    new.leave()
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.join_classic(join_request("", subscription("t")))
    assert GROUP in rig.shard.consumer.by_id
    assert GROUP not in rig.shard.groups


def test_p382_classic_members_outlive_the_last_consumer_that_expires_with_them() -> None:
    """P-382: the write for the last consumer makes a classic group of those that are left."""
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    Client(rig, "new", ["t"]).beat()
    heartbeat(rig, classic, 1)
    rig.advance(45_000)
    assert list(rig.shard.groups[GROUP].members.by_id) == [classic]
    rig.advance(45_000)
    assert list(rig.shard.groups[GROUP].members.by_id) == []


def test_an_empty_consumer_group_becomes_a_classic_one_while_that_is_in_flight() -> None:
    """P-381: the client joins with its member id before the group's record is replicated, and becomes a member."""
    rig = Rig({"t": 2})
    new = Client(rig, "new", ["t"])
    new.beat()
    new.leave()
    rig.is_replicated = True
    told: Any = rig.join_classic(join_request("", subscription("t"))).response
    assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
    waiter = rig.join_classic(join_request(told.member_id, subscription("t")))
    assert administration.delete(rig.shard, 0, GROUP).response is ErrorCode.NON_EMPTY_GROUP
    rig.replicate()
    rig.advance(3_000)
    joined: Any = waiter.response
    assert (joined.error_code, joined.leader) == (ErrorCode.NONE, told.member_id)
    assert GROUP not in rig.shard.consumer.by_id


def consumer_group_joined_late(rig: Rig) -> tuple[str, Waiter]:
    """A classic member joins a consumer group that has a member, and its records are in flight."""
    Client(rig, "new", ["t"]).beat()
    told: Any = rig.join_classic(join_request("", subscription("t"))).response
    rig.is_replicated = True
    return told.member_id, rig.join_classic(join_request(told.member_id, subscription("t")))


def test_p490_the_session_of_a_classic_member_begins_when_it_is_replicated() -> None:
    """P-490: it does not expire while the response waits, and from then on lasts as long as ever."""
    rig = Rig({"t": 2}, session_timeout_ms=45_000, max_session_timeout_ms=200_000)
    rig.configs[GROUP] = {"consumer.session.timeout.ms": "200000"}
    classic, waiter = consumer_group_joined_late(rig)
    rig.advance(100_000)
    assert classic in rig.group.members
    rig.replicate()
    joined: Any = waiter.response
    assert joined.error_code == ErrorCode.NONE
    assert sync(rig, sync_request(classic, joined.generation_id)).error_code == ErrorCode.NONE
    rig.advance(44_999)
    assert classic in rig.group.members
    rig.advance(1)
    assert classic not in rig.group.members


def test_p490_a_classic_member_whose_records_are_late_has_no_session() -> None:
    """P-490: it was told an error, and joins again."""
    rig = Rig({"t": 2}, max_session_timeout_ms=200_000)
    rig.configs[GROUP] = {"consumer.session.timeout.ms": "200000"}
    classic, waiter = consumer_group_joined_late(rig)
    rig.late(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    late: Any = waiter.response
    assert late.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.replicate()
    rig.advance(100_000)
    assert classic in rig.group.members
    rig.is_replicated = False
    again: Any = rig.join_classic(join_request(classic, subscription("t"))).response
    assert again.error_code == ErrorCode.NONE
    rig.advance(60_000)
    assert classic not in rig.group.members


def converting(rig: Rig) -> Client:
    """A client of the classic protocol has joined an empty consumer group, and the records of that are in flight."""
    new = Client(rig, "new", ["t"])
    new.beat()
    new.leave()
    rig.is_replicated = True
    rig.join_classic(join_request("", subscription("t")))
    return new


def kinds(rig: Rig) -> list[str]:
    """Types of the groups that readers see."""
    return [group.group_type for group in administration.listed(rig.shard, set(), set())]


def test_p431_a_member_joins_a_group_whose_conversion_is_in_flight() -> None:
    """P-431: the classic group is there, and gives way to a new consumer group; readers follow what is replicated."""
    rig = Rig({"t": 2})
    new = converting(rig)
    assert new.beat().member_epoch == 2, "a new group"
    assert new.beat().member_epoch == 2
    assert (kinds(rig), rig.describe(GROUP).group_epoch) == (["consumer"], 3)
    rig.replicate(1)
    assert kinds(rig) == ["classic"]
    rig.replicate()
    assert (kinds(rig), rig.describe(GROUP).group_epoch) == (["consumer"], 2)
    assert list(rig.group.members) == ["new"]
    assert rig.loaded_shard().consumer.by_id[GROUP].members == rig.group.members


def test_p431_a_conversion_that_is_late_is_not_taken_back() -> None:
    """P-431: the client that caused it is told the error, and its member stays in the classic group."""
    rig = Rig({"t": 2})
    new = Client(rig, "new", ["t"])
    new.beat()
    new.leave()
    rig.is_replicated = True
    first = rig.join_classic(join_request("", subscription("t"), "first"))
    second = rig.join_classic(join_request("", subscription("t"), "second"))
    assert (first.response, second.response) == (None, None)
    rig.late(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer: Any = first.response
    assert (answer.error_code, second.response) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    assert len(rig.shard.groups[GROUP].members) == 2
    rig.replicate()
    assert (kinds(rig), list(rig.shard.consumer.by_id)) == (["classic"], [])


def test_p431_a_group_is_deleted_while_its_conversion_is_in_flight() -> None:
    """P-431."""
    rig = Rig({"t": 2})
    converting(rig)
    result = administration.delete(rig.shard, 0, GROUP)
    assert result.response is ErrorCode.NONE
    rig.carry_out(result)
    assert rig.shard.any_group(GROUP) is None
    assert administration.delete(rig.shard, 0, GROUP).response is ErrorCode.GROUP_ID_NOT_FOUND
    assert kinds(rig) == ["consumer"]
    rig.replicate(1)
    assert kinds(rig) == ["classic"]
    rig.replicate()
    assert (kinds(rig), rig.shard.any_group(GROUP)) == ([], None)
    assert rig.loaded_shard().any_group(GROUP) is None


def test_p431_a_group_is_made_anew_while_its_deletion_is_in_flight() -> None:
    """P-431: by a member, whose records the tombstones before them do not remove."""
    rig = Rig({"t": 2})
    new = Client(rig, "new", ["t"])
    new.beat()
    new.leave()
    assert commit(rig) is ErrorCode.NONE
    rig.is_replicated = True
    rig.carry_out(administration.delete(rig.shard, 0, GROUP))
    assert new.beat().member_epoch == 2
    assert (rig.describe(GROUP).group_epoch, fetched(rig)) == (3, [5])
    rig.replicate(1)
    with pytest.raises(GroupError):
        rig.describe(GROUP)
    rig.replicate()
    assert (rig.describe(GROUP).group_epoch, fetched(rig)) == (2, [])


def test_p431_records_before_a_deletion_do_not_bring_the_group_back() -> None:
    """P-431: a commit and the record of a classic group, both in flight when the group is deleted."""
    rig = Rig({"t": 2})
    rig.is_replicated = True
    rig.join_classic(join_request("", subscription("t")))
    assert commit(rig) is ErrorCode.NONE
    rig.carry_out(administration.delete(rig.shard, 0, GROUP))
    rig.replicate()
    assert (rig.shard.any_group(GROUP), fetched(rig, require_stable=True)) == (None, [])
    assert rig.loaded_shard().any_group(GROUP) is None


def test_p431_a_commit_after_a_deletion_makes_a_new_group() -> None:
    """P-431: readers see the old one, then none, then the new one."""
    rig = Rig({"t": 2})
    assert commit(rig) is ErrorCode.NONE
    rig.is_replicated = True
    rig.carry_out(administration.delete(rig.shard, 0, GROUP))
    assert commit(rig) is ErrorCode.NONE
    assert kinds(rig) == ["classic"]
    rig.replicate(1)
    assert (kinds(rig), fetched(rig)) == ([], [])
    rig.replicate()
    assert (kinds(rig), fetched(rig)) == (["classic"], [5])


def commit(rig: Rig, group_id: str = GROUP, epoch: int = -1) -> ErrorCode:
    """Commits offset 5 of partition 0 of topic t, as an administrator does; returns the partition's error."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topics = [OffsetCommitRequestTopic(name="t", topic_id=topic_id("t"), partitions=[partition])]
    request = OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=epoch, topics=topics)
    result = offset_commit.commit(rig.shard, rig.now_ms, request, 9)
    rig.carry_out(result)
    return ErrorCode(result.response.topics[0].partitions[0].error_code)


def fetched(rig: Rig, *, require_stable: bool = False) -> list[int]:
    """All committed offsets of the group."""
    asked = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    topics = finished(offset_fetch.fetch(rig.shard, asked, require_stable)).topics
    return [partition.committed_offset for topic in topics for partition in topic.partitions]


def empty_group(rig: Rig) -> Client:
    """A consumer group with a committed offset that its member has left."""
    new = Client(rig, "new", ["t"])
    new.beat()
    new.leave()
    assert commit(rig) is ErrorCode.NONE
    return new


def join_stale(rig: Rig) -> None:
    """A client joins with a member id that the group does not have."""
    refused: Any = rig.join_classic(join_request("stale", subscription("t"))).response
    assert (refused.error_code, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stale")


@pytest.mark.parametrize("is_replicated", [False, True])
def test_p381_a_stale_member_id_makes_the_coordinator_forget_an_empty_group(is_replicated: bool) -> None:
    """P-381: writes do not find the group; readers do until a later write to the partition is replicated."""
    rig = Rig({"t": 2})
    empty_group(rig)
    rig.is_replicated = is_replicated
    join_stale(rig)
    assert administration.delete(rig.shard, 0, GROUP).response is ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(rig, epoch=3) is ErrorCode.GROUP_ID_NOT_FOUND
    assert (fetched(rig), fetched(rig, require_stable=True)) == ([5], [])
    assert rig.describe(GROUP).group_state == "Empty"
    assert [group.group_type for group in administration.listed(rig.shard, set(), set())] == ["consumer"]
    assert commit(rig, "another group") is ErrorCode.NONE
    if is_replicated:
        assert rig.describe(GROUP).group_state == "Empty"
        rig.replicate()
    with pytest.raises(GroupError):
        rig.describe(GROUP)
    assert fetched(rig) == []
    assert [group.group_id for group in administration.listed(rig.shard, set(), set())] == ["another group"]


def test_p381_another_coordinator_finds_the_forgotten_group() -> None:
    """P-381: the log has no tombstones of it."""
    rig = Rig({"t": 2})
    empty_group(rig)
    join_stale(rig)
    assert commit(rig, "another group") is ErrorCode.NONE
    rig.shard = rig.loaded_shard()
    assert rig.describe(GROUP).group_state == "Empty"
    assert fetched(rig) == [5]


def test_p381_a_forgotten_group_begins_anew() -> None:
    """P-381: at the first epoch, with the offsets of before."""
    rig = Rig({"t": 2})
    new = empty_group(rig)
    assert rig.group.epoch == 3
    join_stale(rig)
    assert new.beat().member_epoch == 2
    assert fetched(rig) == [5]


def test_p381_a_commit_makes_a_classic_group_of_a_forgotten_one() -> None:
    """P-381: until the log is loaded again."""
    rig = Rig({"t": 2})
    empty_group(rig)
    join_stale(rig)
    assert commit(rig) is ErrorCode.NONE
    assert [group.group_type for group in administration.listed(rig.shard, set(), set())] == ["classic"]
    assert [group.group_type for group in administration.listed(rig.loaded_shard(), set(), set())] == ["consumer"]


def test_p381_a_failed_append_brings_the_forgotten_group_back() -> None:
    """P-381: Kafka takes back everything since the last append."""
    rig = Rig({"t": 2})
    new = empty_group(rig)
    join_stale(rig)
    rig.append_error = ErrorCode.NOT_COORDINATOR
    commit(rig, "another group")
    rig.append_error = ErrorCode.NONE
    assert new.beat().member_epoch == 4
    assert fetched(rig) == [5]


def test_p381_the_end_of_a_transaction_is_a_later_write() -> None:
    """P-381."""
    rig = Rig({"t": 2})
    empty_group(rig)
    join_stale(rig)
    rig.shard.end_transaction(1, True)
    assert fetched(rig) == []


def test_classic_members_of_a_consumer_group_get_ids_as_kafka_writes_its_own() -> None:
    """22 characters of base64, without the client's id in front."""
    rig = Rig({"t": 2})
    Client(rig, "new", ["t"]).beat()
    told: Any = rig.join_classic(join_request("", subscription("t"))).response
    assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert uuid_from_text(told.member_id) == len(rig.log).to_bytes(16, "big")


def test_p381_a_classic_group_replaces_a_consumer_group_without_tombstones() -> None:
    """P-381: as in a log of Kafka, which has forgotten the consumer group when the client joined with a stale id."""
    rig = Rig({"t": 2})
    Client(rig, "new", ["t"]).beat()
    log = list(rig.log)
    other = Rig({"t": 2})
    classic_group(other)
    rig.log = log + other.log
    shard = rig.loaded_shard()
    assert (GROUP in shard.consumer.by_id, GROUP in shard.groups) == (False, True)


def test_a_classic_record_that_is_replicated_late_leaves_the_upgraded_group() -> None:
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    waiter = rig.join_classic(join_request(classic, subscription("t", owned={"t": [0]})))
    joined: Any = waiter.response
    rig.is_replicated = True
    request = sync_request(classic, joined.generation_id, **{classic: assignment(t=[0, 1])})
    rig.carry_out(member_requests.classic_group_sync(rig.shard, rig.now_ms, request, Waiter()))
    assert Client(rig, "new", ["t"]).beat().error_code == ErrorCode.NONE
    rig.replicate()
    assert (set(rig.group.members), GROUP in rig.shard.groups) == ({classic, "new"}, False)


def test_a_classic_member_leaves_a_consumer_group() -> None:
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    new = Client(rig, "new", ["t"])
    new.beat()
    members = [MemberIdentity(member_id=classic), MemberIdentity(member_id="nobody")]
    result = member_requests.classic_group_leave(
        rig.shard, rig.now_ms, LeaveGroupRequest(group_id=GROUP, members=members)
    )
    assert [m.error_code for m in result.response.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    rig.carry_out(result)
    settle(new)
    assert new.partitions == {("t", 0), ("t", 1)}


def test_regular_expressions_of_members_that_leave_go_in_the_order_of_a_hash_map() -> None:
    rig = Rig({"t": 2})
    Client(rig, "stays", ["t"]).beat()
    regexes = {f"member-{number}": f"t|{number * 7 % 40}" for number in range(40)}
    for member_id, regex in regexes.items():
        Client(rig, member_id, None, regex=regex).beat()
    members = [MemberIdentity(member_id=member_id) for member_id in regexes]
    result = member_requests.classic_group_leave(
        rig.shard, rig.now_ms, LeaveGroupRequest(group_id=GROUP, members=members)
    )
    keys = (record.key for record in result.records)
    found = [key.regular_expression for key in keys if isinstance(key, ConsumerGroupRegularExpressionKey)]
    assert found == hash_order(regexes.values())


def test_a_classic_member_that_does_not_join_again_is_fenced() -> None:
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    new = Client(rig, "new", ["t"])
    new.beat()
    for _ in range(13):
        heartbeat(rig, classic, 1)
        rig.advance(5_000)
        new.beat()
    assert list(rig.group.members) == ["new"]
    assert new.partitions == {("t", 0), ("t", 1)}


def test_parked_joins_rebalance_even_if_the_upgrade_is_not_stored() -> None:
    """As in Kafka, which completes them before the append: a client joins whichever group there is then."""
    rig = Rig({"t": 2})
    classic_group(rig)
    parked = rig.join_classic(join_request("", subscription("t"), "another"))
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert Client(rig, "new", ["t"]).beat().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    response: Any = parked.response
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.shard.groups[GROUP].state is PREPARING
    rig.append_error = ErrorCode.NONE
    member_id = rig.shard.groups[GROUP].members.static_ids["another"]
    again = rig.join_classic(join_request(member_id, subscription("t"), "another"))
    rig.advance(60_000)
    joined: Any = again.response
    assert joined.error_code == ErrorCode.NONE


def test_p178_a_classic_member_without_a_rebalance_timeout_keeps_its_own() -> None:
    """P-178: -1 is Kafka's sentinel for a value that stays."""
    rig = Rig({"t": 2})
    Client(rig, "new", ["t"]).beat()
    rig.join_classic(join_request("a", subscription("t")))
    request = join_request("a", subscription("t"))
    request.rebalance_timeout_ms = -1
    rig.join_classic(request)
    assert rig.group.members["a"].rebalance_timeout_ms == 60_000


@pytest.mark.parametrize("is_late", [False, True])
def test_no_join_waits_for_a_coordinator_that_has_resigned(is_late: bool) -> None:
    """P-90: of a classic member that joins a consumer group, and of the classic group that the consumer group was."""
    rig = Rig({"t": 2})
    classic_group(rig)
    joined = rig.join_classic(join_request("", subscription("t"), "another"))
    assert joined.response is None
    rig.is_replicated = True
    assert Client(rig, "new", ["t"]).beat().error_code == ErrorCode.NONE
    assert GROUP not in rig.shard.groups
    waiting = rig.join_classic(join_request("", subscription("t"), "third"))
    assert waiting.response is None
    if is_late:
        rig.late(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    rig.carry_out(rig.shard.unload(rig.now_ms))
    for waiter, error in (
        (joined, ErrorCode.REBALANCE_IN_PROGRESS),
        (waiting, ErrorCode.COORDINATOR_NOT_AVAILABLE if is_late else ErrorCode.NOT_COORDINATOR),
    ):
        response: Any = waiter.response
        assert response.error_code == error


def test_static_members_migrate_with_the_assignment_interval() -> None:
    """As Kafka's ConsumerProtocolMigrationTest has it, cooperative and static, within one assignment interval.

    The member's change of its subscription does not raise its epoch before the interval has passed, so that the group
    rebalances when a classic member takes the place of the static one.
    """
    rig = Rig({"t": 2}, assignment_interval_ms=1_000)
    classic = classic_group(rig, instance_id="instance-1")
    rig.advance(10_000)
    new = Client(rig, "new", ["t"], instance_id="instance-2")
    assert new.beat().member_epoch == 2
    assert heartbeat(rig, classic, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    joined: Any = rig.join_classic(join_request(classic, subscription("t", owned={"t": [0, 1]}), "instance-1")).response
    assert joined.generation_id == 1
    left = assigned(sync(rig, sync_request(classic, 1)))
    assert heartbeat(rig, classic, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = rig.join_classic(join_request(classic, subscription("t", owned=left), "instance-1")).response
    assert joined.generation_id == 2
    rig.advance(998)
    new.beat()
    assert new.subscribe(["t", "u"]).member_epoch == 2
    rig.join_classic(join_request("", subscription("t"), "instance-2"))
    assert rig.shard.groups[GROUP].state is PREPARING


def test_a_classic_member_whose_join_is_not_stored_need_not_sync() -> None:
    """Kafka starts the timeout of SyncGroup when the join is stored."""
    rig = Rig({"t": 2, "u": 2})
    classic = classic_group(rig)
    new = Client(rig, "new", ["t"])
    new.beat()
    joined: Any = rig.join_classic(join_request(classic, subscription("t", owned={"t": [0, 1]}))).response
    left = assigned(sync(rig, sync_request(classic, joined.generation_id)))
    joined = rig.join_classic(join_request(classic, subscription("t", owned=left))).response
    sync(rig, sync_request(classic, joined.generation_id))
    rig.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused: Any = rig.join_classic(join_request(classic, subscription("t", "u", owned=left))).response
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.append_error = ErrorCode.NONE
    for _ in range(13):
        new.beat()
        assert heartbeat(rig, classic, joined.generation_id) is ErrorCode.NONE
        rig.advance(5_000)
    assert set(rig.group.members) == {classic, "new"}


@pytest.fixture
def mixed() -> tuple[Rig, str, int]:
    """A consumer group with a member of each protocol; id and generation of the classic one."""
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    assert Client(rig, "new", ["t"]).beat().error_code == ErrorCode.NONE
    joined: Any = rig.join_classic(join_request(classic, subscription("t", owned={"t": [0, 1]}))).response
    return rig, classic, joined.generation_id


def test_requests_of_classic_members_that_are_refused(mixed: tuple[Rig, str, int]) -> None:
    """P-178: as in a classic group; a member of the consumer protocol has no heartbeat of the classic one."""
    rig, classic, generation = mixed
    assert heartbeat(rig, classic, generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert heartbeat(rig, "nobody", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(rig, "new", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(rig, sync_request(classic, generation + 1)).error_code == ErrorCode.ILLEGAL_GENERATION
    other_protocol = sync_request(classic, generation)
    other_protocol.protocol_name = "roundrobin"
    assert sync(rig, other_protocol).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("metadata", "protocol_type", "error"),
    [
        (b"\0", "consumer", ErrorCode.UNKNOWN_SERVER_ERROR),
        (subscription("t"), "connect", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_joins_of_classic_members_that_are_refused(
    mixed: tuple[Rig, str, int], metadata: bytes, protocol_type: str, error: ErrorCode
) -> None:
    """P-178: a subscription that cannot be read, and a protocol type that the group does not have."""
    rig, classic, _ = mixed
    request = join_request(classic, metadata)
    request.protocol_type = protocol_type
    joined: Any = rig.join_classic(request).response
    assert joined.error_code == error
    assert classic in rig.group.members


def test_p178_a_join_makes_the_broker_resolve_the_regular_expressions_of_others(mixed: tuple[Rig, str, int]) -> None:
    """P-178: as a heartbeat of a member of the consumer protocol does."""
    rig, _, _ = mixed
    Client(rig, "c", None, regex="u.*").beat()
    rig.resolve_regexes()
    rig.set_topics(u1=1)
    rig.advance(10_001)
    rig.join_classic(join_request("late", subscription("t")))
    rig.resolve_regexes()
    assert rig.group.resolved["u.*"].topics == {"u1"}


def test_p178_an_unknown_instance_id_comes_before_a_subscription_that_cannot_be_read(
    mixed: tuple[Rig, str, int],
) -> None:
    """P-178."""
    rig, _, _ = mixed
    refused: Any = rig.join_classic(join_request("somebody", b"\0", "i")).response
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_without_an_id_is_given_one(mixed: tuple[Rig, str, int]) -> None:
    """P-178: from version 4 of JoinGroup on it has to join with it."""
    rig, _, _ = mixed
    asked: Any = rig.join_classic(join_request("", subscription("t"))).response
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert asked.member_id not in rig.group.members
    joined: Any = rig.join_classic(join_request(asked.member_id, subscription("t"))).response
    assert (joined.error_code, joined.member_id) == (ErrorCode.NONE, asked.member_id)


def test_a_static_classic_member_is_replaced(mixed: tuple[Rig, str, int]) -> None:
    """P-178: a join with its instance id and without a member id takes its place; the old id is fenced."""
    rig, _, _ = mixed
    first: Any = rig.join_classic(join_request("", subscription("t"), "i")).response
    second: Any = rig.join_classic(join_request("", subscription("t"), "i")).response
    assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert first.member_id != second.member_id
    assert first.member_id not in rig.group.members
    fenced: Any = rig.join_classic(join_request(first.member_id, subscription("t"), "i")).response
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_p178_a_policy_without_migration_takes_no_classic_member() -> None:
    """P-178."""
    rig = Rig({"t": 2}, migration_policy="disabled")
    Client(rig, "new", ["t"]).beat()
    refused: Any = rig.join_classic(join_request("", subscription("t"))).response
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert set(rig.group.members) == {"new"}


def test_a_classic_member_that_joins_as_it_is_changes_nothing(mixed: tuple[Rig, str, int]) -> None:
    """P-178: it is answered at once, and has to sync within its rebalance timeout as after any join."""
    rig, classic, generation = mixed
    settle_mixed(rig, classic)
    generation = rig.group.members[classic].member_epoch
    written = len(rig.log)
    owned = sorted(rig.group.members[classic].assigned[topic_id("t")])
    joined: Any = rig.join_classic(join_request(classic, subscription("t", owned={"t": owned}))).response
    assert (joined.error_code, joined.generation_id, len(rig.log)) == (ErrorCode.NONE, generation, written)
    assert assigned(sync(rig, sync_request(classic, generation))) == {"t": owned}


def settle_mixed(rig: Rig, classic: str) -> None:
    """The classic member gives up what it has to, so that it is stable at the epoch of the group."""
    for _ in range(3):
        member = rig.group.members[classic]
        kept = {"t": sorted(member.assigned.get(topic_id("t"), ()))}
        rig.join_classic(join_request(classic, subscription("t", owned=kept)))


def test_a_sync_of_a_generation_that_is_over(mixed: tuple[Rig, str, int]) -> None:
    """P-178: a member joined after the classic member's join; as in a classic group it has to join again."""
    rig, classic, _ = mixed
    settle_mixed(rig, classic)
    generation = rig.group.members[classic].member_epoch
    assert Client(rig, "third", ["t"]).beat().error_code == ErrorCode.NONE
    assert sync(rig, sync_request(classic, generation)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_waits_for_partitions_of_a_consumer() -> None:
    """P-178: its heartbeats say that all is well until a partition is free for it, and then that it has to join."""
    rig = Rig({"t": 2})
    consumer = Client(rig, "new", ["t"])
    consumer.beat()
    asked: Any = rig.join_classic(join_request("", subscription("t"))).response
    classic = asked.member_id
    joined: Any = rig.join_classic(join_request(classic, subscription("t"))).response
    assert assigned(sync(rig, sync_request(classic, joined.generation_id))) == {}
    assert heartbeat(rig, classic, joined.generation_id) is ErrorCode.NONE
    settle(consumer)
    assert heartbeat(rig, classic, joined.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = rig.join_classic(join_request(classic, subscription("t"))).response
    assert len(assigned(sync(rig, sync_request(classic, joined.generation_id)))["t"]) == 1


def test_static_members_are_removed_by_their_instance_id(mixed: tuple[Rig, str, int]) -> None:
    """P-178: an administrator names no member id; another member's id with the instance id is fenced."""
    rig, classic, _ = mixed
    static = Client(rig, "static", ["t"], instance_id="i")
    static.beat()
    identities = [
        MemberIdentity(member_id="another", group_instance_id="i"),
        MemberIdentity(member_id="", group_instance_id="nobody"),
        MemberIdentity(member_id="", group_instance_id="i"),
    ]
    result = member_requests.classic_group_leave(
        rig.shard, rig.now_ms, LeaveGroupRequest(group_id=GROUP, members=identities)
    )
    rig.carry_out(result)
    assert [member.error_code for member in result.response.members] == [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert set(rig.group.members) == {"new", classic}


def test_p178_classic_groups_that_are_not_upgraded() -> None:
    """P-178: one that is larger than a consumer group may be, and one of another protocol; with Kafka's reasons."""
    refused = "Cannot upgrade classic group g to consumer group because "
    rig = Rig({"t": 2}, max_size=1)
    classic_group(rig)
    rig.join_classic(join_request("", subscription("t"), "another"))
    response = Client(rig, "new", ["t"]).beat()
    assert response.error_message == refused + "the group size exceeds the consumer group maximum size."
    rig = Rig({"t": 2})
    request = join_request("", b"", "worker")
    request.protocol_type = "connect"
    rig.join_classic(request)
    response = Client(rig, "new", ["t"]).beat()
    assert (response.error_code, response.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        refused + "the group does not use the consumer embedded protocol.",
    )


def test_p178_a_group_with_an_assignor_of_its_own_is_not_upgraded() -> None:
    """P-178: user data in an assignment are those of an assignor that the broker does not have."""
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    topics = [AssignedTopicPartition(topic="t", partitions=[0, 1])]
    value = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=b"own")
    rig.shard.groups[GROUP].members.by_id[classic].assignment = b"\0\1" + encode(value, 1)
    response = Client(rig, "new", ["t"]).beat()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert response.error_message is not None
    assert "because an unsupported custom assignor is in use." in response.error_message
    assert GROUP in rig.shard.groups
