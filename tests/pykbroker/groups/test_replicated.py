"""Groups whose `__consumer_offsets` has several replicas: only replicated records take effect; waiters are answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pykbroker.controller.metadata.features import GROUP_VERSION
from pykbroker.coordination.partitioning import OFFSETS_TOPIC, coordinator_partition
from pykbroker.groups import administration, offset_delete
from pykbroker.groups.coordinator import GroupCoordinator
from pykbroker.groups.modern.errors import GroupError
from pykbroker.handlers.consumer_group_heartbeat import handle_consumer_group_heartbeat
from pykbroker.handlers.heartbeat import handle_heartbeat
from pykbroker.handlers.leave_group import handle_leave_group
from pykbroker.handlers.offset_commit import handle_offset_commit
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
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
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.pykbroker.groups.rig import Rig
from tests.support.coordinator_errors import outcome_of
from tests.support.data_path import NODE_ID, replicated_topic_image, topic_image
from tests.support.held_partitions import HeldPartition, HeldPartitions

LOADING = -1000 * ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class ReplicatedRig(Rig):
    """The rig on partitions that the test holds back; group "g" is in `partition`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.held = HeldPartitions(self.partitions, OFFSETS_TOPIC)
        self.groups = GroupCoordinator(
            self.services.config,
            self.environment(self.held),
            self.services.random,
            self.share_states,
        )
        self.services = self.services.replaced(groups=self.groups)

    @property
    def partition(self) -> HeldPartition:
        found: HeldPartition = self.held.get(OFFSETS_TOPIC, coordinator_partition("g", 5))
        return found

    def lead(self, leader_epoch: int, leader: int = NODE_ID) -> None:
        offsets = replicated_topic_image(OFFSETS_TOPIC, 5, leader=leader, leader_epoch=leader_epoch)
        self.change(topic_image("clicks", 2), offsets)


class Asked:
    """A request in a task of its own; `answer` is None as long as it waits."""

    def __init__(self, nursery: trio.Nursery, request: Any, *args: Any, **fields: Any) -> None:
        self.answer: Any = None
        self._ask = (request, args, fields)
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        request, args, fields = self._ask
        self.answer = await request(*args, **fields)

    @property
    def is_waiting(self) -> bool:
        return self.answer is None


async def test_a_commit_is_told_to_nobody_before_it_is_replicated(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        assert await rig.commit(5) == ErrorCode.NONE
        rig.partition.hold()
        six, seven = Asked(nursery, rig.commit, 6), Asked(nursery, rig.commit, 7)
        await wait_all_tasks_blocked()
        assert (six.answer, seven.answer, await rig.fetch()) == (None, None, 5)
        rig.partition.release(1)
        await wait_all_tasks_blocked()
        answers = sorted([six.answer, seven.answer], key=lambda answer: answer is None)
        assert answers == [ErrorCode.NONE, None]
        assert await rig.fetch() in (6, 7)
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert six.answer == seven.answer == ErrorCode.NONE


async def test_p369_a_stable_fetch_waits_for_commits_before_it(tmp_path: Path) -> None:
    """P-369."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        await rig.commit(5)
        assert await rig.fetch(require_stable=True) == 5
        rig.partition.hold()
        Asked(nursery, rig.commit, 6)
        await wait_all_tasks_blocked()
        fetch = Asked(nursery, rig.fetch, require_stable=True)
        await wait_all_tasks_blocked()
        assert (fetch.answer, await rig.fetch()) == (None, 5)
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert fetch.answer == 6


async def test_p369_a_stable_fetch_is_sent_away_when_it_is_late(tmp_path: Path) -> None:
    """P-369: after offsets.commit.timeout.ms."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        await rig.commit(5)
        rig.partition.hold()
        Asked(nursery, rig.commit, 6)
        await wait_all_tasks_blocked()
        assert await rig.fetch(require_stable=True) == -1000 * ErrorCode.NOT_COORDINATOR


async def test_a_commit_without_replicas_is_late_and_may_count_later(tmp_path: Path) -> None:
    """As in Kafka the client is told COORDINATOR_NOT_AVAILABLE after offsets.commit.timeout.ms and tries again."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        await rig.commit(5)
        rig.partition.hold()
        first = Asked(nursery, rig.commit, 6)
        await trio.sleep(4)
        second = Asked(nursery, rig.commit, 7)
        await trio.sleep(1.5)
        assert (first.answer, second.answer) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
        await trio.sleep(4)
        assert second.answer == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await rig.fetch() == 5
        await trio.sleep(20)
        third = Asked(nursery, rig.commit, 8)
        await wait_all_tasks_blocked()
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert (third.answer, await rig.fetch()) == (ErrorCode.NONE, 8)
        assert await rig.commit(9) == ErrorCode.NONE


async def test_too_few_replicas_after_the_append(tmp_path: Path) -> None:
    """The record counts, as all that are left have it; the client is told, as in Kafka, and tries again."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        rig.partition.hold()
        asked = Asked(nursery, rig.commit, 6)
        await wait_all_tasks_blocked()
        rig.partition.has_enough_replicas = False
        rig.partition.release(1)
        await wait_all_tasks_blocked()
        assert (asked.answer, await rig.fetch()) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, 6)


@pytest.mark.parametrize("is_metadata_first", [True, False])
async def test_who_waits_when_the_leader_changes_is_sent_away(tmp_path: Path, is_metadata_first: bool) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        rig.partition.hold()
        asked = Asked(nursery, rig.commit, 6)
        await wait_all_tasks_blocked()
        if not is_metadata_first:
            rig.partition.lose_leader()
            await wait_all_tasks_blocked()
        rig.lead(3, leader=2)
        await wait_all_tasks_blocked()
        assert asked.answer == ErrorCode.NOT_COORDINATOR


async def test_an_assignment_is_given_when_it_is_replicated(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        first = await rig.join()
        joined = await rig.join(first.member_id)
        rig.partition.hold()
        member_id = joined.member_id
        synced = Asked(nursery, rig.sync, member_id, joined.generation_id, {member_id: b"all"})
        await wait_all_tasks_blocked()
        assert synced.is_waiting
        assert administration.describe_group(rig.groups, "g", 6).group_state == "CompletingRebalance"
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert (synced.answer.error_code, synced.answer.assignment) == (ErrorCode.NONE, b"all")
        assert administration.describe_group(rig.groups, "g", 6).group_state == "Stable"


async def test_an_assignment_without_replicas_makes_the_group_rebalance(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        first = await rig.join()
        joined = await rig.join(first.member_id)
        rig.partition.hold()
        member_id = joined.member_id
        synced = Asked(nursery, rig.sync, member_id, joined.generation_id, {member_id: b"all"})
        await trio.sleep(6)
        assert synced.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert administration.describe_group(rig.groups, "g", 6).group_state == "PreparingRebalance"
        again = await rig.join(member_id)
        assert (again.error_code, again.generation_id) == (ErrorCode.NONE, joined.generation_id + 1)


async def test_a_new_group_is_told_of_when_it_is_replicated(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        rig.partition.hold()
        Asked(nursery, rig.commit, 6)
        await wait_all_tasks_blocked()
        assert administration.describe_group(rig.groups, "g", 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await administration.list_groups(rig.groups, set(), set())).groups == []
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert administration.describe_group(rig.groups, "g", 6).group_state == "Empty"
        assert [group.group_id for group in (await administration.list_groups(rig.groups, set(), set())).groups] == [
            "g"
        ]


async def test_p431_a_group_whose_end_is_on_the_way(tmp_path: Path) -> None:
    """P-431: readers see it as long as the end may be lost; for writes it is gone."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        await rig.commit(5)
        rig.partition.hold()
        ended = Asked(nursery, administration.delete_groups, rig.groups, ["g"])
        await wait_all_tasks_blocked()
        assert administration.describe_group(rig.groups, "g", 6).group_state == "Empty"
        assert await rig.fetch() == 5
        again = Asked(nursery, administration.delete_groups, rig.groups, ["g"])
        await wait_all_tasks_blocked()
        committed = Asked(nursery, rig.commit, 6)
        await wait_all_tasks_blocked()
        assert (ended.answer, again.answer, committed.answer, await rig.fetch()) == (None, None, None, 5)
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert (ended.answer, committed.answer) == ({"g": ErrorCode.NONE}, ErrorCode.NONE)
        # The second one begins when the first is replicated (P-392), and finds the group of the commit.
        assert again.answer == {"g": ErrorCode.NONE}
        assert administration.describe_group(rig.groups, "g", 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await administration.delete_groups(rig.groups, ["g"]) == {"g": ErrorCode.GROUP_ID_NOT_FOUND}


async def test_p431_a_commit_to_a_group_whose_end_is_on_the_way(tmp_path: Path) -> None:
    """P-431: it makes a new group."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        await rig.commit(5)
        rig.partition.hold()
        for request, *arguments in ((administration.delete_groups, rig.groups, ["g"]), (rig.commit, 6)):
            asked = Asked(nursery, request, *arguments)
            await wait_all_tasks_blocked()
            assert asked.is_waiting
        assert await rig.fetch() == 5
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert administration.describe_group(rig.groups, "g", 6).group_state == "Empty"
        assert await rig.fetch() == 6


async def test_deleting_includes_commits_on_the_way(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        await rig.commit(1, group_id="other")
        rig.partition.hold()
        Asked(nursery, rig.commit, 5)
        await wait_all_tasks_blocked()
        topics = [OffsetDeleteRequestTopic(name="clicks", partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
        Asked(nursery, offset_delete.delete_offsets, rig.groups, OffsetDeleteRequest(group_id="g", topics=topics))
        await wait_all_tasks_blocked()
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert await rig.fetch() == -1


async def test_what_was_read_is_served_when_it_is_replicated(tmp_path: Path) -> None:
    """A new leader may have records that no other replica has: if it fails, nobody will know of them."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        await rig.commit(5)
        await rig.commit(6)
        rig.lead(1, leader=2)
        rig.partition.hold(1)
        rig.lead(2)
        await trio.sleep(60)
        assert await rig.fetch() == LOADING
        rig.partition.release(1)
        await wait_all_tasks_blocked()
        assert await rig.fetch() == 6


async def test_a_load_that_was_overtaken_is_thrown_away(tmp_path: Path) -> None:
    """Leader, follower and leader again while the first load is under way."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        await rig.commit(5)
        rig.lead(1, leader=2)
        rig.lead(2)
        rig.lead(3, leader=2)
        assert await rig.fetch() == -1000 * ErrorCode.NOT_COORDINATOR
        await wait_all_tasks_blocked()
        assert await rig.fetch() == -1000 * ErrorCode.NOT_COORDINATOR
        rig.partition.hold(0)
        rig.lead(4)
        await wait_all_tasks_blocked()
        rig.lead(5)  # the load of epoch 4 waits for the high watermark
        assert await rig.fetch() == LOADING
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert await rig.fetch() == 5
        assert await rig.commit(6) == ErrorCode.NONE


async def test_what_every_in_sync_replica_has_is_served(tmp_path: Path) -> None:
    """Below `min.insync.replicas` the high watermark stands still, but nobody without the records can lead."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        await rig.commit(5)
        await rig.commit(6)
        rig.lead(1, leader=2)
        rig.partition.hold(1)
        rig.lead(2)
        await trio.sleep(60)
        assert await rig.fetch() == LOADING
        rig.partition.is_in_every_isr_log = lambda end_offset: end_offset <= 2  # type: ignore[method-assign]
        await trio.sleep(1)
        assert await rig.fetch() == 6


async def test_tombstones_of_several_batches_count_when_they_are_replicated(tmp_path: Path) -> None:
    rig = ReplicatedRig(tmp_path)
    async with rig.running():
        await rig.commit(5)
        [shard] = [shard for shard in rig.groups.runtime.shards.values() if shard.groups]
        committed = shard.offsets.get("g", "clicks", 0)
        assert committed is not None
        for number in range(2_500):
            shard.offsets.put("g", "clicks", number, committed)
        rig.partition.hold()
        rig.change(rig.services.metadata.image.topics_by_name[OFFSETS_TOPIC])
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert shard.offsets.of_group("g") == {}
        assert shard.in_flight.of_group("g") == []


async def test_a_heartbeat_without_records_tells_nothing_that_is_not_replicated(tmp_path: Path) -> None:
    """The member joined by records that a successor may not have; it must not hear of its epoch before."""
    rig = MixedRig(tmp_path)
    async with rig.running() as nursery:
        rig.partition.hold()
        first, again = Asked(nursery, rig.beat, 0), Asked(nursery, rig.beat, 0)
        await wait_all_tasks_blocked()
        assert first.is_waiting
        assert again.is_waiting
        refused = Asked(nursery, rig.beat, 9)
        await wait_all_tasks_blocked()
        assert refused.answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert first.answer.error_code == again.answer.error_code == ErrorCode.NONE
        assert first.answer.member_epoch == again.answer.member_epoch


async def test_p176_regular_expressions_are_resolved_before_their_member_is_replicated(tmp_path: Path) -> None:
    """P-176: the resolution begins with the heartbeat, as in Kafka, and its records come behind those of the member."""
    rig = ReplicatedRig(tmp_path)
    rig.services.metadata.image.features = {GROUP_VERSION: 1}

    async def beat(member_epoch: int, regex: str | None) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=member_epoch,
            subscribed_topic_regex=regex,
            rebalance_timeout_ms=60_000,
            topic_partitions=[],
        )
        return await rig.answer(handle_consumer_group_heartbeat, request, 1)

    async with rig.running() as nursery:
        rig.partition.hold()
        joined = Asked(nursery, beat, 0, "cl.*")
        await wait_all_tasks_blocked()
        following = Asked(nursery, beat, 1, None)
        await wait_all_tasks_blocked()
        assert joined.is_waiting
        assert following.is_waiting
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert (joined.answer.member_epoch, joined.answer.assignment.topic_partitions) == (1, [])
        assert following.answer.member_epoch == 2
        assert [topic.partitions for topic in following.answer.assignment.topic_partitions] == [[0, 1]]


class MixedRig(ReplicatedRig):
    """Group "g" is a consumer group with a member "m"; classic members join it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.services.metadata.image.features = {GROUP_VERSION: 1}

    async def beat(self, member_epoch: int) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=member_epoch,
            subscribed_topic_names=["clicks"],
            rebalance_timeout_ms=60_000,
            topic_partitions=[],
        )
        return await self.answer(handle_consumer_group_heartbeat, request, 1)


async def test_p392_a_classic_member_of_a_consumer_group_is_told_only_what_is_replicated(tmp_path: Path) -> None:
    """P-392: the partitions that it gets may be given to others by a coordinator that has not these records."""
    rig = MixedRig(tmp_path)
    async with rig.running() as nursery:
        await rig.beat(0)
        rig.partition.hold()
        first = Asked(nursery, rig.join, "a")
        await trio.sleep(6)
        assert first.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        again = Asked(nursery, rig.join, "a")
        await wait_all_tasks_blocked()
        assert again.is_waiting
        [shard] = [shard for shard in rig.groups.runtime.shards.values() if shard.consumer.by_id]
        generation_id = shard.consumer.by_id["g"].members["a"].member_epoch
        synced = Asked(nursery, rig.sync, "a", generation_id)
        refused = Asked(nursery, rig.sync, "a", generation_id + 1)
        await wait_all_tasks_blocked()
        assert synced.is_waiting
        assert refused.answer.error_code == ErrorCode.ILLEGAL_GENERATION
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert (again.answer.error_code, again.answer.generation_id) == (ErrorCode.NONE, generation_id)
        assert synced.answer.error_code == ErrorCode.NONE


async def test_p392_answers_without_records_are_late_too(tmp_path: Path) -> None:
    """P-392: after offsets.commit.timeout.ms the earlier records are not replicated."""
    rig = MixedRig(tmp_path)
    async with rig.running() as nursery:
        await rig.beat(0)
        joined = await rig.join("a")
        assert joined.error_code == ErrorCode.NONE
        rig.partition.hold()
        Asked(nursery, rig.commit, 6, group_id="b")  # in the same partition
        await wait_all_tasks_blocked()
        synced = Asked(nursery, rig.sync, "a", joined.generation_id)
        left = Asked(nursery, leave, rig, "nobody")
        await trio.sleep(6)
        for asked in (synced, left):
            assert asked.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def asked_behind_late_records(rig: MixedRig, nursery: trio.Nursery, request: str) -> Asked:
    """Member "a" has joined 7 s ago, and asks again behind a commit of another group that is not replicated."""
    await rig.beat(0)
    joined = await rig.join("a")
    if request == "join":
        await rig.sync("a", joined.generation_id)
    await trio.sleep(7)
    rig.partition.hold()
    Asked(nursery, rig.commit, 6, group_id="b")  # in the same partition
    await wait_all_tasks_blocked()
    asked = Asked(nursery, rig.join, "a") if request == "join" else Asked(nursery, rig.sync, "a", joined.generation_id)
    await wait_all_tasks_blocked()
    assert asked.is_waiting
    return asked


def has_member(rig: Rig) -> bool:
    return any(
        "a" in shard.consumer.by_id["g"].members for shard in rig.groups.runtime.shards.values() if shard.consumer.by_id
    )


@pytest.mark.parametrize("request_name", ["join", "sync"])
async def test_p392_a_session_begins_anew_when_earlier_records_are_replicated(
    tmp_path: Path, request_name: str
) -> None:
    """P-392: not when the request comes; the session of 10 s ends meanwhile."""
    rig = MixedRig(tmp_path)
    async with rig.running() as nursery:
        asked = await asked_behind_late_records(rig, nursery, request_name)
        await trio.sleep(2.5)
        assert has_member(rig)
        await trio.sleep(1)
        assert asked.is_waiting
        assert not has_member(rig)


@pytest.mark.parametrize("request_name", ["join", "sync"])
async def test_p392_a_session_that_lasts_until_earlier_records_are_replicated(
    tmp_path: Path, request_name: str
) -> None:
    """P-392: it begins anew with the answer, 2 s after the request."""
    rig = MixedRig(tmp_path)
    async with rig.running() as nursery:
        asked = await asked_behind_late_records(rig, nursery, request_name)
        await trio.sleep(2)
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert asked.answer.error_code == ErrorCode.NONE
        await trio.sleep(9.5)
        assert has_member(rig)
        await trio.sleep(1)
        assert not has_member(rig)


async def test_p392_a_late_answer_starts_no_timer(tmp_path: Path) -> None:
    """P-392: not even when the records are replicated after all; the time for SyncGroup was not stopped."""
    rig = MixedRig(tmp_path)
    async with rig.running() as nursery:
        await rig.beat(0)
        joined = await rig.join("a", session_timeout_ms=300_000)
        rig.partition.hold()
        Asked(nursery, rig.commit, 6, group_id="b")
        await wait_all_tasks_blocked()
        synced = Asked(nursery, rig.sync, "a", joined.generation_id)
        await trio.sleep(6)
        assert synced.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        rig.partition.release()
        await trio.sleep(20)
        await rig.beat(joined.generation_id)
        await trio.sleep(20)
        await rig.beat(joined.generation_id)
        assert has_member(rig)
        await trio.sleep(15)
        assert not has_member(rig)


async def test_p392_a_deletion_is_not_confirmed_while_an_earlier_one_may_be_lost(tmp_path: Path) -> None:
    """P-392: a client that was told that it is late repeats it, and finds nothing to delete."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        await rig.commit(5)
        rig.partition.hold()
        topics = [OffsetDeleteRequestTopic(name="clicks", partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
        of_offsets = OffsetDeleteRequest(group_id="g", topics=topics)
        late = [await outcome_of(offset_delete.delete_offsets, rig.groups, of_offsets) for _ in range(2)]
        assert late == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        repeated = Asked(nursery, outcome_of, offset_delete.delete_offsets, rig.groups, of_offsets)
        await wait_all_tasks_blocked()
        refused = await offset_delete.delete_offsets(rig.groups, OffsetDeleteRequest(group_id="h", topics=topics))
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await trio.sleep(6)
        assert repeated.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_p392_groups_are_deleted_when_earlier_records_are_replicated(tmp_path: Path) -> None:
    """P-392: Kafka deletes the states of share partitions first, and asks for that whatever the group is."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        await rig.commit(5)
        rig.partition.hold()
        assert await administration.delete_groups(rig.groups, ["g"]) == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        rig.partition.release()
        assert await administration.delete_groups(rig.groups, ["g"]) == {"g": ErrorCode.GROUP_ID_NOT_FOUND}
        await rig.commit(5)
        rig.partition.hold()
        late = Asked(nursery, rig.commit, 6)
        await wait_all_tasks_blocked()
        assert await administration.delete_groups(rig.groups, ["g"]) == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert (late.answer, await rig.fetch()) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, 6)
        assert await administration.delete_groups(rig.groups, ["g"]) == {"g": ErrorCode.NONE}


async def test_p392_a_share_group_is_not_deleted_while_an_earlier_record_may_be_lost(tmp_path: Path) -> None:
    """P-392: the states of its share partitions are asked for first, and are not deleted either."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        for epoch, topics in ((0, ["clicks"]), (-1, None)):
            beat = ShareGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=topics
            )
            assert (await rig.groups.share.heartbeat(beat, "client", "/host")).error_code == ErrorCode.NONE
            await trio.sleep(2)
        states = dict(rig.share_states.start_offsets)
        assert states
        rig.partition.hold()
        Asked(nursery, rig.commit, 6, group_id="b")  # in the same partition
        await wait_all_tasks_blocked()
        assert await administration.delete_groups(rig.groups, ["g"]) == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert rig.share_states.start_offsets == states


async def test_p392_a_share_group_without_offsets_to_delete(tmp_path: Path) -> None:
    """P-392: DeleteShareGroupOffsets writes nothing for a group that never had any."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        for epoch, topics in ((0, ["missing"]), (-1, None)):
            beat = ShareGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=topics
            )
            response = await rig.groups.share.heartbeat(beat, "client", "/host")
            assert response.error_code == ErrorCode.NONE
        assert await rig.groups.share.delete_offsets("g", ["clicks"]) == ([], {}, [])
        rig.partition.hold()
        Asked(nursery, rig.commit, 6, group_id="b")  # in the same partition
        await wait_all_tasks_blocked()
        with pytest.raises(GroupError) as late:
            await rig.groups.share.delete_offsets("g", ["clicks"])
        assert late.value.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        Asked(nursery, rig.commit, 7, group_id="b")
        await wait_all_tasks_blocked()
        with pytest.raises(GroupError) as refused:
            await rig.groups.share.alter_offsets("b", [("clicks", {0: 1})])
        assert refused.value.error_code == ErrorCode.GROUP_ID_NOT_FOUND

        async def delete() -> GroupError:
            with pytest.raises(GroupError) as refused:
                await rig.groups.share.delete_offsets("b", ["clicks"])
            return refused.value

        refused_later = Asked(nursery, delete)
        await wait_all_tasks_blocked()
        assert refused_later.is_waiting
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert refused_later.answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def leave(rig: Rig, member_id: str, version: int = 5) -> Any:
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])
    if version < 3:
        request = LeaveGroupRequest(group_id="g", member_id=member_id)
    return await rig.answer(handle_leave_group, request, version)


@pytest.mark.parametrize("version", [2, 5])
async def test_p392_a_leave_whose_record_is_late_is_an_error_and_the_member_is_gone(
    tmp_path: Path, version: int
) -> None:
    """P-392: the last member leaves a classic group, which stores that it is empty."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        member_id = await rig.stable()
        rig.partition.hold()
        left = Asked(nursery, leave, rig, member_id, version)
        await wait_all_tasks_blocked()
        assert left.is_waiting
        await trio.sleep(6)
        assert left.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert left.answer.members == []
        rig.partition.release()
        again = await leave(rig, member_id)
        assert [member.error_code for member in again.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


async def classic_heartbeat(rig: Rig, member_id: str, generation_id: int) -> int:
    request = HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation_id)
    response = await rig.answer(handle_heartbeat, request, 4)
    error: int = response.error_code
    return error


async def test_p392_a_heartbeat_of_the_classic_protocol_waits_for_earlier_records(tmp_path: Path) -> None:
    """P-392: those of another group in the same partition, too; a refusal does not wait."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        member_id = await rig.stable()
        rig.partition.hold()
        Asked(nursery, rig.commit, 6, group_id="b")  # in the same partition
        await wait_all_tasks_blocked()
        beat = Asked(nursery, classic_heartbeat, rig, member_id, 1)
        await wait_all_tasks_blocked()
        assert beat.is_waiting
        assert await classic_heartbeat(rig, member_id, 2) == ErrorCode.ILLEGAL_GENERATION
        assert await classic_heartbeat(rig, "nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert beat.answer == ErrorCode.NONE
        rig.partition.hold()
        Asked(nursery, rig.commit, 7, group_id="b")
        await wait_all_tasks_blocked()
        assert await classic_heartbeat(rig, member_id, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_p392_a_heartbeat_in_a_rebalance_waits_too(tmp_path: Path) -> None:
    """P-392: REBALANCE_IN_PROGRESS is an answer, and no refusal."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        member_id = await rig.stable()
        second = await rig.join()
        Asked(nursery, rig.join, second.member_id)
        await wait_all_tasks_blocked()
        rig.partition.hold()
        Asked(nursery, rig.commit, 6, group_id="b")  # in the same partition
        await wait_all_tasks_blocked()
        beat = Asked(nursery, classic_heartbeat, rig, member_id, 1)
        await wait_all_tasks_blocked()
        assert beat.is_waiting
        rig.partition.release()
        await wait_all_tasks_blocked()
        assert beat.answer == ErrorCode.REBALANCE_IN_PROGRESS


async def test_p392_a_join_that_waits_behind_late_records_is_refused_and_its_member_counts(tmp_path: Path) -> None:
    """P-392: the records are of another group; the phase ends when the last member joins, without a second join."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        first_id = await rig.stable()
        second = await rig.join()
        rig.partition.hold()
        Asked(nursery, rig.commit, 6, group_id="b")  # in the same partition
        await wait_all_tasks_blocked()
        await trio.sleep(2)
        joining = Asked(nursery, rig.join, second.member_id)
        await trio.sleep(4)
        assert joining.is_waiting, "its time began when it came"
        await trio.sleep(2)
        assert (joining.answer.error_code, joining.answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        again = await rig.join(first_id)
        assert (again.error_code, again.generation_id, len(again.members)) == (ErrorCode.NONE, 2, 2)


async def test_p392_a_sync_that_waits_behind_late_records_is_refused(tmp_path: Path) -> None:
    """P-392: the group goes on, and the member gets its assignment with its next SyncGroup."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        first_id = await rig.stable()
        second = await rig.join()
        joining = Asked(nursery, rig.join, second.member_id)
        await wait_all_tasks_blocked()
        await rig.join(first_id)
        await wait_all_tasks_blocked()
        assert joining.answer.generation_id == 2
        rig.partition.hold()
        Asked(nursery, rig.commit, 6, group_id="b")  # in the same partition
        await wait_all_tasks_blocked()
        syncing = Asked(nursery, rig.sync, second.member_id, 2)
        await trio.sleep(6)
        assert syncing.answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        rig.partition.release()
        await rig.sync(first_id, 2, {first_id: b"one", second.member_id: b"two"})
        assert (await rig.sync(second.member_id, 2)).assignment == b"two"


async def test_p392_a_join_that_waits_for_members_alone_is_not_refused(tmp_path: Path) -> None:
    """P-392: the earlier records are replicated in time."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        first_id = await rig.stable()
        second = await rig.join()
        rig.partition.hold()
        Asked(nursery, rig.commit, 6, group_id="b")  # in the same partition
        await wait_all_tasks_blocked()
        joining = Asked(nursery, rig.join, second.member_id)
        await trio.sleep(4)
        rig.partition.release()
        await trio.sleep(4)
        assert joining.is_waiting
        await rig.join(first_id)
        await wait_all_tasks_blocked()
        assert joining.answer.error_code == ErrorCode.NONE


async def test_p392_a_commit_without_anything_to_store_waits_for_earlier_records(tmp_path: Path) -> None:
    """P-392: its metadata is too large; a refusal does not wait."""
    rig = ReplicatedRig(tmp_path)
    async with rig.running() as nursery:
        await rig.stable()
        rig.partition.hold()
        Asked(nursery, rig.commit, 6, group_id="b")  # in the same partition
        await wait_all_tasks_blocked()
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_metadata="x" * 5_000)]
        topics = [OffsetCommitRequestTopic(name="clicks", partitions=partitions)]
        commit = OffsetCommitRequest(group_id="b", topics=topics)
        waiting = Asked(nursery, rig.call, handle_offset_commit, commit, 9)
        await wait_all_tasks_blocked()
        assert waiting.is_waiting
        assert await rig.commit(7, member_id="nobody", generation_id_or_member_epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
        rig.partition.release()
        await wait_all_tasks_blocked()
        [answer] = waiting.answer.topics[0].partitions
        assert answer.error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        rig.partition.hold()
        Asked(nursery, rig.commit, 7, group_id="b")
        await wait_all_tasks_blocked()
        [late] = (await rig.call(handle_offset_commit, commit, 9)).topics[0].partitions
        assert late.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
