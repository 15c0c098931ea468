"""The shell: parking, timers, appends, replay, leadership, on real logs in virtual time."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import trio
import trio.lowlevel
import trio.testing

from pykbroker.controller.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from pykbroker.coordination.deadlines import Deadlines
from pykbroker.coordination.partition_writer import response_error
from pykbroker.coordination.partitioning import OFFSETS_TOPIC, coordinator_partition
from pykbroker.errors import KafkaError
from pykbroker.groups import administration, coordinator, member_requests, offset_cleanup, offset_commit, offset_delete
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.offset_cleanup import TOMBSTONES_PER_STEP
from pykbroker.groups.offset_log import decode_record, group_tombstone
from pykbroker.groups.result import GroupResult, Tombstones
from pykbroker.groups.shard import GroupShard
from pykbroker.handlers.heartbeat import handle_heartbeat
from pykbroker.handlers.list_groups import handle_list_groups
from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.partition_log import AppendOrigin
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.consumer_offsets import OffsetCommitKey
from pykbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker.protocol.messages.list_groups import ListGroupsRequest
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
from pykbroker.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from pykbroker.protocol.messages.sync_group import SyncGroupResponse
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.steps import Steps as WorkInSteps
from pykbroker.protocol.steps import finished
from pykbroker.replication.partition import Partition
from tests.pykbroker.groups.driver import Driver
from tests.pykbroker.groups.rig import Rig
from tests.support.coordinator_errors import outcome, outcome_of
from tests.support.data_path import topic_id, topic_image
from tests.support.turns import with_turns

PARTITION_OF_G = coordinator_partition("g", 5)


def partition_of_g(rig: Rig) -> Partition:
    partition = rig.partitions.get(OFFSETS_TOPIC, PARTITION_OF_G)
    assert partition is not None
    return partition


async def heartbeat(rig: Rig, member_id: str, generation_id: int = 1) -> int:
    request = HeartbeatRequest(group_id="g", member_id=member_id, generation_id=generation_id)
    response = await rig.answer(handle_heartbeat, request, 4)
    error: int = response.error_code
    return error


async def test_a_join_is_parked_until_the_initial_delay_is_over_p_94(tmp_path: Path) -> None:
    """P-94."""
    rig = Rig(tmp_path)
    async with rig.running():
        first = await rig.join()
        assert first.member_id.startswith("app-")
        assert len(first.member_id) == len("app-") + 36
        began = trio.current_time()
        joined = await rig.join(first.member_id)
        assert trio.current_time() - began == pytest.approx(3.0, abs=0.01)
        assert joined.leader == first.member_id


async def test_without_initial_delay_a_join_is_answered_at_once_p_94(tmp_path: Path) -> None:
    """P-94."""
    rig = Rig(tmp_path, {"group.initial.rebalance.delay.ms": "0"})
    async with rig.running():
        began = trio.current_time()
        await rig.stable()
        assert trio.current_time() == began


async def test_what_members_say_of_themselves_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all groups: it stays until sessions end, whatever became of the clients. Small members always get in."""
    monkeypatch.setattr("pykbroker.groups.member_requests.METADATA_BYTES_MAX", 250_000)
    rig = Rig(tmp_path, {"group.initial.rebalance.delay.ms": "0"})
    large = [JoinGroupRequestProtocol(name="range", metadata=bytes(100_000))]
    async with rig.running():
        joined = [await rig.join(group_id=f"g{number}", version=3, protocols=large) for number in range(3)]
        assert [join.error_code for join in joined] == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]
        assert (await rig.join(group_id="g4", version=3)).error_code == 0
        await trio.sleep(20)
        assert (await rig.join(group_id="g2", version=3, protocols=large)).error_code == 0


async def test_two_members_share_a_rebalance(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    joins: dict[str, JoinGroupResponse] = {}
    syncs: dict[str, SyncGroupResponse] = {}

    async def take_part(name: str) -> None:
        joined = await rig.join(version=3)
        joins[name] = joined
        assignments = {m.member_id: m.member_id.encode() for m in joined.members}
        syncs[name] = await rig.sync(joined.member_id, joined.generation_id, assignments)

    async with rig.running():
        async with trio.open_nursery() as members:
            members.start_soon(take_part, "a")
            members.start_soon(take_part, "b")
        assert {j.generation_id for j in joins.values()} == {1}
        assert sorted(len(j.members) for j in joins.values()) == [0, 2]
        assert all(syncs[name].assignment == joins[name].member_id.encode() for name in joins)


async def test_a_member_that_falls_silent_is_removed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        member_id = await rig.stable()
        for _ in range(3):
            await trio.sleep(9.9)
            assert await heartbeat(rig, member_id) == ErrorCode.NONE
        await trio.sleep(10.1)
        assert await heartbeat(rig, member_id) == ErrorCode.UNKNOWN_MEMBER_ID


def jump_to_a_busy_loop(seconds: float) -> None:
    """Time goes on while no other task gets its turn, as when this one has kept the loop."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    clock.jump(seconds)


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_a_deletion_of_many_groups_lets_others_have_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig, steps, deletions = Rig(tmp_path), Steps(), list[int]()
    delete_group = administration.delete

    def delete(shard: GroupShard, now_ms: int, group_id: str, tombstones: Tombstones | None) -> GroupResult:
        deletions.append(steps.count)
        return delete_group(shard, now_ms, group_id, tombstones)

    monkeypatch.setattr(administration, "delete", delete)
    async with rig.running():
        trio.lowlevel.add_instrument(steps)
        ids = [f"g{number}" for number in range(60)]
        assert set((await administration.delete_groups(rig.groups, ids)).values()) == {ErrorCode.GROUP_ID_NOT_FOUND}
        trio.lowlevel.remove_instrument(steps)
    assert len(set(deletions)) == 60


@pytest.mark.parametrize("is_changed", [False, True])
async def test_the_tombstones_of_a_large_group_are_encoded_in_turns_p_107(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_changed: bool
) -> None:
    """P-107: in one batch with the group's; of the offsets that it has when it is deleted."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.commit(7)
        shard = rig.groups.runtime.shards[PARTITION_OF_G]
        committed = shard.offsets.get("g", "clicks", 0)
        assert committed is not None
        for number in range(500):
            shard.offsets.put("g", "many", number, committed)

        change = partial(rig.commit, 8, partition=1) if is_changed else None
        deleted, turns = await with_turns(administration.delete_groups(rig.groups, ["g"]), change, at=10)
        assert deleted == {"g": ErrorCode.NONE}
        assert turns > 20
        assert (shard.offsets.of_group("g"), "g" in shard.groups) == ({}, False)
        *_, batch = partition_of_g(rig).log.iter_batches()
        records = [decode_record(record.key or b"", record.value) for record in batch.records()]
        places = [r.key.partition for r in records if r is not None and isinstance(r.key, OffsetCommitKey)]
        assert Counter(places) == Counter([0, *range(500), *([1] if is_changed else [])])
        assert [record.offset - batch.base_offset for record in batch.records()] == list(range(len(records)))
        assert records[-1] == group_tombstone("g")


@pytest.mark.parametrize("what", ["delete", "describe", "list", "heartbeat", "leave", "commit", "sync", "join"])
async def test_no_request_overtakes_the_end_of_a_session(tmp_path: Path, what: str) -> None:
    """A static member's session was over before the request came, though the timer had no turn since."""
    rig = Rig(tmp_path, {"group.initial.rebalance.delay.ms": "0"})
    async with rig.running():
        joined = await rig.join(group_instance_id="one")
        member_id = joined.member_id
        await rig.sync(member_id, joined.generation_id, {member_id: b"all"})
        groups = rig.groups
        jump_to_a_busy_loop(9.999)
        assert administration.describe_group(groups, "g", 5).group_state == "Stable"
        jump_to_a_busy_loop(0.001)
        if what == "delete":
            assert await administration.delete_groups(groups, ["g"]) == {"g": ErrorCode.NONE}
        elif what == "describe":
            assert administration.describe_group(groups, "g", 5).group_state == "Empty"
        elif what == "list":
            [listed] = (await administration.list_groups(groups, set(), set())).groups
            assert listed.group_state == "Empty"
        elif what == "heartbeat":
            assert await heartbeat(rig, member_id) == ErrorCode.UNKNOWN_MEMBER_ID
        elif what == "leave":
            leaving = MemberIdentity(member_id=member_id)
            response = await member_requests.leave_group(groups, LeaveGroupRequest(group_id="g", members=[leaving]))
            assert [member.error_code for member in response.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
        elif what == "commit":
            error = await rig.commit(1, member_id=member_id, generation_id_or_member_epoch=1)
            assert error == ErrorCode.UNKNOWN_MEMBER_ID
        elif what == "sync":
            assert (await rig.sync(member_id, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        else:
            assert (await rig.join(member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_offsets_can_be_deleted_once_the_last_session_is_over(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"group.initial.rebalance.delay.ms": "0"})
    async with rig.running():
        await rig.stable()
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name="clicks", partitions=partitions)]
        request = OffsetDeleteRequest(group_id="g", topics=topics)
        response = await offset_delete.delete_offsets(rig.groups, request)
        assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        jump_to_a_busy_loop(10)
        response = await offset_delete.delete_offsets(rig.groups, request)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("meanwhile", ["", "a commit", "a new leader"])
async def test_offsets_of_very_many_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str) -> None:
    """Records are encoded while other requests run. Their commit may add to what a deletion has found."""
    rig, count = Rig(tmp_path), 2 * offset_commit.FEW

    async def in_turns_with_others(steps: WorkInSteps[Any]) -> Any:
        made = finished(steps)
        if meanwhile == "a commit":
            assert await rig.commit(1_000) == ErrorCode.NONE
        elif meanwhile == "a new leader":
            rig.change(topic_image(OFFSETS_TOPIC, 5, leader=2), topic_image("clicks", 2))
        return made

    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=number, committed_offset=number)
                    for number in range(count)
                ],
            )
            for name in ("clicks", "other")
        ],
    )
    deletion = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in range(count)],
            )
            for name in ("clicks", "other")
        ],
    )
    async with rig.running():
        committed = await offset_commit.commit_offsets(rig.groups, request, 8)
        assert await rig.fetch(topic="other", partition=count - 1) == count - 1
        assert {p.error_code for topic in committed.topics for p in topic.partitions} == {ErrorCode.NONE}
        [batch] = partition_of_g(rig).log.iter_batches()
        assert batch.record_count == 2 * count
        first = OffsetDeleteRequestTopic(name="clicks", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        await offset_delete.delete_offsets(rig.groups, OffsetDeleteRequest(group_id="g", topics=[first]))
        monkeypatch.setattr(offset_delete, "in_turns", in_turns_with_others)
        deleted = await outcome_of(offset_delete.delete_offsets, rig.groups, deletion)
        monkeypatch.undo()
        if meanwhile == "a new leader":
            assert deleted is ErrorCode.NOT_COORDINATOR
            return
        assert deleted.error_code == ErrorCode.NONE
        assert [len(topic.partitions) for topic in deleted.topics] == [count, count]
        last = list(partition_of_g(rig).log.iter_batches())[-1]
        assert last.record_count == 2 * count - (meanwhile == "")
        assert await rig.fetch() == await rig.fetch(topic="other", partition=count - 1) == -1
        assert rig.groups.runtime.shards[PARTITION_OF_G].offsets.of_group("g") == {}
    again = Rig(tmp_path)
    async with again.running():
        assert await again.fetch() == await again.fetch(topic="other") == -1


async def test_a_step_of_the_wall_clock_expires_nobody(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        member_id = await rig.stable()
        rig.clock.time_ms += 3_600_000
        await trio.sleep(9)
        assert await heartbeat(rig, member_id) == ErrorCode.NONE


async def test_an_idle_coordinator_never_wakes_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == float("inf")


async def test_groups_are_replayed_at_start_p_116(tmp_path: Path) -> None:
    """P-116: before anything is served; members go on, their sessions begin anew."""
    rig = Rig(tmp_path)
    async with rig.running():
        member_id = await rig.stable()
        assert await rig.commit(7, member_id=member_id, generation_id_or_member_epoch=1) == ErrorCode.NONE
        for offset in range(300):
            assert await rig.commit(offset, group_id="simple") == ErrorCode.NONE
    again = Rig(tmp_path)
    async with again.running():
        assert await again.fetch() == 7
        assert await again.fetch(group_id="simple") == 299
        assert await heartbeat(again, member_id) == ErrorCode.NONE
        await trio.sleep(11)
        assert await heartbeat(again, member_id) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_while_a_partition_is_replayed_p_90(tmp_path: Path) -> None:
    """P-90: COORDINATOR_LOAD_IN_PROGRESS, but a heartbeat is accepted."""
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.commit(7)
    again = Rig(tmp_path)
    assert await again.fetch() == -1000 * ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await again.commit(8) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await again.join()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await again.sync("m", 1)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await heartbeat(again, "m") == ErrorCode.NONE
    listed = await again.call(handle_list_groups, ListGroupsRequest(), 5)
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    async with again.running():
        assert await again.fetch() == 7


async def test_a_group_of_another_broker_p_90(tmp_path: Path) -> None:
    """P-90: whoever is parked is sent away when the leadership goes; when it comes back the log is replayed."""
    rig = Rig(tmp_path)
    async with rig.running() as nursery:
        member_id = await rig.stable()
        answers: list[JoinGroupResponse] = []

        async def join() -> None:
            answers.append(await rig.join(version=3))

        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        rig.change(topic_image("clicks", 2), topic_image(OFFSETS_TOPIC, 5, leader=2, followers=(1,)))
        await trio.testing.wait_all_tasks_blocked()
        assert [answer.error_code for answer in answers] == [ErrorCode.NOT_COORDINATOR]
        assert await rig.commit(8) == ErrorCode.NOT_COORDINATOR
        assert await rig.fetch() == -1000 * ErrorCode.NOT_COORDINATOR
        assert await heartbeat(rig, member_id) == ErrorCode.NOT_COORDINATOR
        rig.change(topic_image("clicks", 2), topic_image(OFFSETS_TOPIC, 5))
        await trio.testing.wait_all_tasks_blocked()
        assert await heartbeat(rig, member_id) == ErrorCode.NONE


async def test_stopping_sends_away_whoever_is_parked_p_90(tmp_path: Path) -> None:
    """P-90: an orderly shutdown does not wait for rebalances."""
    rig = Rig(tmp_path)
    answers: list[JoinGroupResponse] = []
    async with rig.running() as nursery:

        async def join() -> None:
            answers.append(await rig.join(version=3))

        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        rig.groups.runtime.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert [answer.error_code for answer in answers] == [ErrorCode.NOT_COORDINATOR]
        assert await rig.commit(1) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_failed_append_p_115(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-115: the disk refuses; nothing has changed."""
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.commit(7)

        def refuse(*_: object, **__: object) -> None:
            raise StorageError("full", str(tmp_path))

        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append_as_leader", refuse)
            assert await rig.commit(8) == ErrorCode.NOT_COORDINATOR
        assert await rig.fetch() == 7


@pytest.mark.parametrize(
    ("size", "codec", "error"),
    [
        (2_000_000, "0", ErrorCode.UNKNOWN_SERVER_ERROR),
        (1_048_500, "0", ErrorCode.UNKNOWN_SERVER_ERROR),
        (1_040_000, "0", ErrorCode.NONE),
        (2_000_000, "1", ErrorCode.NONE),
    ],
)
async def test_a_record_that_is_too_large_p_115(tmp_path: Path, size: int, codec: str, error: ErrorCode) -> None:
    """P-115; one that cannot fit is not encoded, but it may fit by compression."""
    rig = Rig(tmp_path, {"group.initial.rebalance.delay.ms": "0", "offsets.topic.compression.codec": codec})
    async with rig.running():
        protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(size))]
        first = await rig.join(protocols=protocols)
        joined = await rig.join(first.member_id, protocols=protocols)
        shard = rig.groups.runtime.shards[PARTITION_OF_G]
        encoded = Mock(wraps=shard.encode)
        shard.encode = encoded  # type: ignore[method-assign]
        assert (await rig.sync(joined.member_id, 1)).error_code == error
        assert encoded.called == (size != 2_000_000 or codec != "0")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    ],
)
def test_errors_of_appends_p_115(error: ErrorCode, told: ErrorCode) -> None:
    """P-115."""
    assert response_error(error) is told


async def test_offsets_expire_while_the_broker_runs_p_114(tmp_path: Path) -> None:
    """P-114: looked at every offsets.retention.check.interval.ms."""
    rig = Rig(tmp_path, {"offsets.retention.minutes": "60"})
    async with rig.running():
        await rig.commit(7)
        await trio.sleep(3_599)
        assert await rig.fetch() == 7
        await trio.sleep(602)
        assert await rig.fetch() == -1
        assert (await rig.call(handle_list_groups, ListGroupsRequest(), 5)).groups == []
        await trio.sleep(1_200)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == float("inf")


async def test_very_many_offsets_expire_in_several_batches_p_114(tmp_path: Path) -> None:
    """P-114."""
    rig = Rig(tmp_path, {"offsets.retention.minutes": "60"})
    async with rig.running():
        await rig.commit(7)
        shard = rig.groups.runtime.shards[PARTITION_OF_G]
        committed = shard.offsets.get("g", "clicks", 0)
        assert committed is not None
        for number in range(2_500):
            shard.offsets.put("g", "many", number, committed)
        partition = partition_of_g(rig)
        partition.log.config = partition.log.config._replace(max_message_bytes=5_000)
        await trio.sleep(4_300)
        assert not shard.groups
        first, *batches = partition.log.iter_batches()
        assert (first.record_count, sum(batch.record_count for batch in batches)) == (1, 2_502)
        assert max(batch.size_bytes for batch in batches) in range(2_500, 5_001)


async def test_others_have_turns_while_very_many_offsets_expire_p_114(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-114: an offset that is committed meanwhile stays, and so does its group."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig = Rig(tmp_path, {"offsets.retention.minutes": "60"})
    async with rig.running():
        await rig.commit(7, partition=1)
        shard = rig.groups.runtime.shards[PARTITION_OF_G]
        committed = shard.offsets.get("g", "clicks", 1)
        assert committed is not None
        committed = committed._replace(commit_timestamp_ms=committed.commit_timestamp_ms - 4_000_000)
        shard.offsets.remove("g", "clicks", 1)
        for number in range(10 * TOMBSTONES_PER_STEP):
            shard.offsets.put("g", "many", number, committed)
        for number in range(2):
            shard.offsets.put("g", "clicks", number, committed)
        await rig.groups._expire_offsets()
        left = []
        for _ in range(10):
            left.append(sum(map(len, shard.offsets.of_group("g").values())))
            if len(left) == 5:
                assert await rig.commit(8) == ErrorCode.NONE
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert len(set(left)) > 3
        assert shard.offsets.of_group("g").keys() == {"clicks"}
        assert (await rig.fetch(), await rig.fetch(partition=1)) == (8, -1)
        assert "g" in shard.groups


def test_a_group_of_many_offsets_expires_at_once_though_they_are_not_replicated_yet_p_114() -> None:
    """P-114: in Kafka the tombstone of the group is in the same write."""
    driver = Driver()
    driver.commit(7)
    committed = driver.shard.offsets.get("g", "t", 0)
    assert committed is not None
    for number in range(3 * TOMBSTONES_PER_STEP):
        driver.shard.offsets.put("g", "many", number, committed)
    driver.advance(8 * 24 * 3_600_000)
    results = []
    for result in offset_cleanup.expire_offsets(driver.shard, driver.now_ms):
        driver.shard.appended(result, driver.now_ms, 10)
        results.append(result)
    assert len(results) == 3
    assert "g" not in driver.shard.groups
    for result in results:
        driver.shard.replicated(result, driver.now_ms, 10)
    assert (driver.shard.offsets.of_group("g"), "g" in driver.shard.groups) == ({}, False)


def test_offsets_of_a_group_that_becomes_a_consumer_group_between_steps_do_not_expire() -> None:
    """The members that it has by then may subscribe to the topic."""
    driver = Driver()
    driver.commit(7)
    committed = driver.shard.offsets.get("g", "t", 0)
    assert committed is not None
    for number in range(3 * TOMBSTONES_PER_STEP):
        driver.shard.offsets.put("g", "many", number, committed)
    driver.advance(8 * 24 * 3_600_000)
    steps = offset_cleanup.expire_offsets(driver.shard, driver.now_ms)
    driver.carry_out(next(steps))
    left = sum(map(len, driver.shard.offsets.of_group("g").values()))
    assert TOMBSTONES_PER_STEP < left <= 2 * TOMBSTONES_PER_STEP + 1
    del driver.shard.groups["g"]
    upgraded = ConsumerGroup("g", driver.shard.consumer.soft_state_of("g"))
    driver.shard.consumer.by_id["g"] = upgraded
    for result in steps:
        driver.carry_out(result)
    assert sum(map(len, driver.shard.offsets.of_group("g").values())) == left
    assert driver.shard.any_group("g") is upgraded


def test_very_many_groups_without_offsets_expire_in_steps_p_114() -> None:
    """P-114: such as those that are left when the topics that they consumed are deleted."""
    driver = Driver()
    names = [f"g{number}" for number in range(3 * TOMBSTONES_PER_STEP)]
    for name in names:
        driver.commit(7, group_id=name)
        driver.shard.offsets.remove(name, "t", 0)
    results = []
    for result in offset_cleanup.expire_offsets(driver.shard, driver.now_ms):
        driver.shard.appended(result, driver.now_ms, 10)
        results.append(result)
    assert [len(result.records) for result in results] == [TOMBSTONES_PER_STEP] * 3
    assert driver.shard.groups == {}


async def test_the_many_offsets_of_a_deleted_topic_go_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An offset committed meanwhile for a new topic of the same name stays."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.commit(7)
        shard = rig.groups.runtime.shards[PARTITION_OF_G]
        committed = shard.offsets.get("g", "clicks", 0)
        assert committed is not None
        for number in range(1, 5 * TOMBSTONES_PER_STEP):
            shard.offsets.put("g", "clicks", number, committed._replace(topic_id=bytes(16)))
        pending = ("g", "clicks", 10_000)
        shard.pending.put(7, pending, committed)
        rig.change(topic_image(OFFSETS_TOPIC, 5))
        # The end of its transaction, or a commit for the new topic, may come before the next step.
        assert pending not in shard.pending
        assert len(shard.offsets.of_group("g")["clicks"]) == 5 * TOMBSTONES_PER_STEP
        last = 5 * TOMBSTONES_PER_STEP - 1
        shard.offsets.put("g", "clicks", last, committed._replace(topic_id=bytes(16)))
        left = []
        while len(shard.offsets.of_group("g")["clicks"]) > 1:
            left.append(len(shard.offsets.of_group("g")["clicks"]))
            await trio.lowlevel.checkpoint()
        assert len(set(left)) >= 3
        await trio.testing.wait_all_tasks_blocked()
        assert shard.offsets.of_group("g")["clicks"].keys() == {last}


async def test_a_deleted_topic_takes_its_offsets_along(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.commit(7)
        rig.change(topic_image(OFFSETS_TOPIC, 5))
        rig.change(topic_image(OFFSETS_TOPIC, 5), topic_image("clicks", 2))
        assert await rig.fetch() == -1
    again = Rig(tmp_path)
    async with again.running():
        assert await again.fetch() == -1


async def test_a_topic_that_is_deleted_after_the_end_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tasks of a node are cancelled together; that of the metadata may get its turn after the coordinator's."""
    monkeypatch.setattr(coordinator, "DELETED_AT_ONCE", 0)
    rig = Rig(tmp_path)
    async with rig.running() as nursery:
        await rig.commit(7)
        await rig.end_tasks(nursery)
        rig.change(topic_image(OFFSETS_TOPIC, 5))
        assert rig.groups.runtime.shards[PARTITION_OF_G].offsets.get("g", "clicks", 0) is not None


async def test_a_damaged_record_is_skipped_p_116(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P-116: it takes nothing else away."""
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.commit(7)
        partition = partition_of_g(rig)
        records = [Record(0, 5, b"\0\1\0\1g", b"\0\1"), Record(1, 5, b"\0\x63", b""), Record(2, 5, None, b"x")]
        partition.append_as_leader(build_batch(records), 5, AppendOrigin.COORDINATOR)
        await rig.commit(8, partition=1)
    again = Rig(tmp_path)
    async with again.running():
        assert (await again.fetch(), await again.fetch(partition=1)) == (7, 8)
    assert "is skipped" in caplog.text


async def test_a_log_that_cannot_be_read_p_116(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-116: what it coordinates is not served, others are."""
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.commit(7)
        other = next(name for name in "hijk" if coordinator_partition(name, 5) != PARTITION_OF_G)
        await rig.commit(8, group_id=other)
    again = Rig(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("input/output error", str(tmp_path))

    monkeypatch.setattr(partition_of_g(again), "log", Mock(iter_batches=refuse))
    async with again.running():
        assert "requests for its groups or ids get errors" in caplog.text
        assert await again.fetch() == -1000 * ErrorCode.NOT_COORDINATOR
        assert await again.fetch(group_id=other) == 8
        assert (await again.call(handle_list_groups, ListGroupsRequest(), 5)).error_code == ErrorCode.NONE


def test_deadlines_wake_a_group_once_for_its_earliest() -> None:
    deadlines = Deadlines()
    assert deadlines.plan((0, "a"), 50)
    assert not deadlines.plan((0, "b"), 70)
    assert not deadlines.plan((0, "a"), 60)
    assert deadlines.plan((0, "b"), 40)
    assert deadlines.first_ms == 40
    assert deadlines.pop_due(39) is None
    assert [deadlines.pop_due(100) for _ in range(3)] == [(0, "b"), (0, "a"), None]
    deadlines.plan((1, "c"), 5)
    deadlines.forget(1)
    assert deadlines.first_ms is None


async def test_requests_about_a_group_of_another_broker_p_90(tmp_path: Path) -> None:
    """P-90: also those of modern groups."""
    rig = Rig(tmp_path)
    rig.services.metadata.image.features = {GROUP_VERSION: 1, SHARE_VERSION: 1, STREAMS_VERSION: 1}
    async with rig.running():
        rig.change(topic_image("clicks", 2), topic_image(OFFSETS_TOPIC, 5, leader=2, followers=(1,)))
        groups = rig.groups
        leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
        assert await outcome_of(member_requests.leave_group, groups, leave) is ErrorCode.NOT_COORDINATOR
        beat = ConsumerGroupHeartbeatRequest(
            group_id="g", subscribed_topic_names=["clicks"], rebalance_timeout_ms=1, topic_partitions=[]
        )
        refused = await outcome_of(groups.consumer.heartbeat, beat, 0, "client", "/host", lambda topic: True)
        assert refused is ErrorCode.NOT_COORDINATOR
        share_beat = ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["clicks"])
        assert await outcome_of(groups.share.heartbeat, share_beat, "client", "/host") is ErrorCode.NOT_COORDINATOR
        assert outcome(groups.share.initialized_partitions, "g") is ErrorCode.NOT_COORDINATOR
        assert await outcome_of(groups.share.delete_states, "g") is ErrorCode.NOT_COORDINATOR
        topology = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=["clicks"])])
        streams_beat = StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            topology=topology,
            rebalance_timeout_ms=1,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
        assert await outcome_of(groups.streams.heartbeat, streams_beat, "client", "/host") is ErrorCode.NOT_COORDINATOR


async def test_streams_heartbeats_that_are_refused(tmp_path: Path) -> None:
    """P-210: malformed, or of a member that the group does not have."""
    rig = Rig(tmp_path)
    async with rig.running():
        malformed = StreamsGroupHeartbeatRequest(group_id="g", member_id="", member_epoch=1)
        with pytest.raises(KafkaError, match=r"MemberId can't be empty\.") as refused:
            await rig.groups.streams.heartbeat(malformed, "client", "/host")
        assert refused.value.error_code is ErrorCode.INVALID_REQUEST
        unknown = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
        response, missing = await rig.groups.streams.heartbeat(unknown, "client", "/host")
        assert (response.error_code, missing) == (ErrorCode.GROUP_ID_NOT_FOUND, {})


async def test_a_malformed_consumer_heartbeat(tmp_path: Path) -> None:
    """P-172: it is refused before the group is looked for."""
    rig = Rig(tmp_path)
    async with rig.running():
        request = ConsumerGroupHeartbeatRequest(group_id="", member_id="m", member_epoch=1)
        with pytest.raises(KafkaError, match=r"GroupId can't be empty\.") as refused:
            await rig.groups.consumer.heartbeat(request, 1, "client", "/host", lambda topic: True)
        assert refused.value.error_code is ErrorCode.INVALID_REQUEST


async def test_regular_expressions_are_resolved_with_the_topics_that_a_member_may_see(tmp_path: Path) -> None:
    """P-176: by a task of the broker, that a heartbeat starts."""
    rig = Rig(tmp_path)
    rig.change(topic_image("clicks", 2), topic_image("clocks", 1), topic_image(OFFSETS_TOPIC, 5))
    async with rig.running():

        async def beat(epoch: int, **fields: Any) -> Any:
            request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch, **fields)
            return await rig.groups.consumer.heartbeat(request, 1, "client", "/host", lambda topic: topic != "clocks")

        first = await beat(0, subscribed_topic_regex="cl.*", rebalance_timeout_ms=1000, topic_partitions=[])
        assert first.error_code == ErrorCode.NONE
        await trio.testing.wait_all_tasks_blocked()
        second = await beat(first.member_epoch)
        assert [topic.topic_id for topic in second.assignment.topic_partitions] == [topic_id("clicks")]


async def test_a_join_of_a_classic_member_has_the_regular_expressions_of_others_resolved(tmp_path: Path) -> None:
    """P-178: a topic that exists since the last resolution, which was long enough ago, is found."""
    rig = Rig(tmp_path, {"group.consumer.regex.refresh.interval.ms": "10000"})
    async with rig.running():
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            subscribed_topic_regex="cl.*",
            rebalance_timeout_ms=60_000,
            topic_partitions=[],
        )
        await rig.groups.consumer.heartbeat(request, 1, "client", "/host", lambda topic: True)
        await trio.testing.wait_all_tasks_blocked()
        [group] = [group for shard in rig.groups.runtime.shards.values() for group in shard.consumer.by_id.values()]
        assert group.resolved["cl.*"].topics == {"clicks"}
        rig.change(topic_image("clicks", 2), topic_image("clocks", 1), topic_image(OFFSETS_TOPIC, 5))
        await trio.sleep(11)
        joined = await rig.join(version=3)
        assert joined.error_code == ErrorCode.NONE
        await trio.testing.wait_all_tasks_blocked()
        assert group.resolved["cl.*"].topics == {"clicks", "clocks"}


async def test_an_offset_deletion_without_a_group_p_91(tmp_path: Path) -> None:
    """P-91."""
    rig = Rig(tmp_path)
    async with rig.running():
        refused = await outcome_of(offset_delete.delete_offsets, rig.groups, OffsetDeleteRequest(group_id=""))
        assert refused is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_share_group_forgets_topics_that_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """The record is written by the coordinator, as no member may be there to ask for it; of many topics in turns."""
    if not at_once:
        monkeypatch.setattr(coordinator, "TOPICS_AT_ONCE", 0)
    rig = Rig(tmp_path)
    rig.services.metadata.image.features = {SHARE_VERSION: 1}
    async with rig.running():
        request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["clicks"])
        await rig.groups.share.heartbeat(request, "client", "/host")
        await trio.sleep(1)
        assert rig.groups.share.initialized_partitions("g") == {topic_id("clicks"): frozenset({0, 1})}
        rig.change(topic_image(OFFSETS_TOPIC, 5))
        assert bool(rig.groups.share.initialized_partitions("g")) is not at_once
        await trio.lowlevel.checkpoint()
        with trio.fail_after(1):
            while rig.groups.share.initialized_partitions("g"):
                await trio.lowlevel.checkpoint()
