"""Requests about many groups, and about many offsets of one, are answered in turns with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from pykbroker.controller.turns import in_turns
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.errors import CoordinatorError
from pykbroker.groups import administration, modern_writes
from pykbroker.groups.offsets import CommittedOffset
from pykbroker.groups.result import ResolvedRegexes
from pykbroker.groups.shard import GroupShard
from pykbroker.handlers.consumer_group_describe import handle_consumer_group_describe
from pykbroker.handlers.consumer_group_heartbeat import handle_consumer_group_heartbeat
from pykbroker.handlers.describe_groups import handle_describe_groups
from pykbroker.handlers.find_coordinator import handle_find_coordinator
from pykbroker.handlers.list_groups import handle_list_groups
from pykbroker.handlers.offset_commit import handle_offset_commit
from pykbroker.handlers.offset_delete import handle_offset_delete
from pykbroker.handlers.offset_fetch import handle_offset_fetch
from pykbroker.handlers.share_group_describe import handle_share_group_describe
from pykbroker.handlers.share_group_heartbeat import handle_share_group_heartbeat
from pykbroker.handlers.streams_group_heartbeat import handle_streams_group_heartbeat
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
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
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pykbroker.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykbroker.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from pykbroker.protocol.steps import PIECE, Steps, finished
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.pykbroker.groups.rig import Rig
from tests.support.data_path import topic_image
from tests.support.turns import with_turns

COUNT = 10 * PIECE
KINDS = ("consumer", "share", "streams")
GROUPS = [f"g{number}" for number in range(20)]


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Every turn is over at once."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig = Rig(tmp_path)
    rig.services.metadata.image.features = {GROUP_VERSION: 1, SHARE_VERSION: 1}
    return rig


async def shard_with_offsets(rig: Rig) -> GroupShard:
    """That of group "g", which has committed 7 for `COUNT` partitions of topic "many", and of "clicks"."""
    await rig.commit(7)
    [shard] = [shard for shard in rig.groups.runtime.shards.values() if shard.groups]
    for number in range(COUNT):
        shard.offsets.put("g", "many", number, CommittedOffset(7, -1, "", 0))
    return shard


def offset_fetch(version: int, *, names: bool, require_stable: bool) -> OffsetFetchRequest:
    numbers = list(range(COUNT + 1))
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name="many", partition_indexes=numbers)] if names else None
        groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
        return OffsetFetchRequest(groups=groups, require_stable=require_stable)
    single = [OffsetFetchRequestTopic(name="many", partition_indexes=numbers)] if names else None
    return OffsetFetchRequest(group_id="g", topics=single, require_stable=require_stable)


@pytest.mark.parametrize("require_stable", [False, True])
@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("version", [7, 9])
async def test_the_offsets_of_a_response_are_of_one_moment(
    rig: Rig, version: int, names: bool, require_stable: bool
) -> None:
    """In Kafka all are read at the last committed offset of the partition (`OffsetMetadataManager.fetchOffsets`)."""
    async with rig.running():
        shard = await shard_with_offsets(rig)

        def change() -> None:
            for number in range(COUNT):
                shard.offsets.put("g", "many", number, CommittedOffset(8, -1, "", 0))
                shard.pending.put(9, ("g", "many", number), CommittedOffset(9, -1, "", 0))

        request = offset_fetch(version, names=names, require_stable=require_stable)
        response, turns = await with_turns(rig.call(handle_offset_fetch, request, version), change)
        topics = {topic.name: topic for topic in (response.groups[0].topics if version >= 8 else response.topics)}
        found = [(p.partition_index, p.committed_offset, p.error_code) for p in topics["many"].partitions]
        if not names:
            found.sort()  # without them the order is that of Kafka's hash tables
        assert found == [(n, 7, 0) for n in range(COUNT)] + ([(COUNT, -1, 0)] if names else [])
        assert turns >= COUNT / PIECE - 1


async def test_unstable_offsets_among_many(rig: Rig) -> None:
    """P-113."""
    async with rig.running():
        shard = await shard_with_offsets(rig)
        shard.pending.put(9, ("g", "many", 5), CommittedOffset(9, -1, "", 0))
        response = await rig.call(handle_offset_fetch, offset_fetch(9, names=True, require_stable=True), 9)
        codes = [partition.error_code for partition in response.groups[0].topics[0].partitions]
        expected = [ErrorCode.NONE] * (COUNT + 1)
        expected[5] = ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert codes == expected


REQUESTS: dict[str, tuple[Any, int, Any]] = {
    "DescribeGroups": (handle_describe_groups, 5, DescribeGroupsRequest(groups=GROUPS)),
    "ConsumerGroupDescribe": (handle_consumer_group_describe, 1, ConsumerGroupDescribeRequest(group_ids=GROUPS)),
    "FindCoordinator": (handle_find_coordinator, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS)),
    "OffsetFetch": (
        handle_offset_fetch,
        9,
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in GROUPS]),
    ),
}


@pytest.mark.parametrize("with_authorizer", [False, True])
@pytest.mark.parametrize("name", list(REQUESTS))
async def test_others_have_turns_between_groups(rig: Rig, name: str, with_authorizer: bool) -> None:
    handler, version, request = REQUESTS[name]
    if with_authorizer:
        authorizer = StandardAuthorizer(dict, frozenset(), True)
        rig.services = rig.services.replaced(authorizer=authorizer)
    async with rig.running():
        response, turns = await with_turns(rig.call(handler, request, version))
        found = response.coordinators if name == "FindCoordinator" else response.groups
        answered = [group.key if name == "FindCoordinator" else group.group_id for group in found]
        is_sorted = "Describe" in name
        assert answered == (await administration.in_described_order(rig.groups, GROUPS) if is_sorted else GROUPS)
        assert turns >= len(GROUPS) - 1


async def test_others_have_turns_between_the_shards_of_a_list(rig: Rig) -> None:
    async with rig.running():
        for name in GROUPS:
            await rig.commit(7, group_id=name)
        response, turns = await with_turns(rig.call(handle_list_groups, ListGroupsRequest(), 5))
        assert sorted(group.group_id for group in response.groups) == sorted(GROUPS)
        assert turns >= 4


async def test_others_have_turns_while_the_topics_of_a_commit_are_looked_up(rig: Rig) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=3)]
    names = ["clicks", *(f"missing{number}" for number in range(PIECE))]
    topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in names]
    async with rig.running():
        request = OffsetCommitRequest(group_id="g", topics=topics)
        response, turns = await with_turns(rig.call(handle_offset_commit, request, 9))
        codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
        assert codes == {name: 0 if name == "clicks" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for name in names}
        assert turns >= PIECE - 1
        assert await rig.fetch() == 3


@pytest.mark.parametrize("deletes", [False, True])
async def test_many_offsets_change_at_once_and_others_have_a_turn_before_the_response(rig: Rig, deletes: bool) -> None:
    """The change is one step; what was needed to make it is freed in another one."""
    rig.change(*rig.services.metadata.image.topics_by_name.values(), topic_image("many", COUNT))
    numbers = range(COUNT)
    commits = [OffsetCommitRequestPartition(partition_index=number, committed_offset=3) for number in numbers]
    deletions = [OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
    commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="many", partitions=commits)])
    deletion = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="many", partitions=deletions)])
    async with rig.running():
        await rig.commit(7)
        [shard] = [shard for shard in rig.groups.runtime.shards.values() if shard.groups]
        if deletes:
            await rig.call(handle_offset_commit, commit, 9)
        this_task = trio.lowlevel.current_task()
        seen: list[int] = []

        class Looks(trio.abc.Instrument):
            """Counts the offsets before each step of this task."""

            def before_task_step(self, task: trio.lowlevel.Task) -> None:
                if task is this_task:
                    seen.append(len(shard.offsets.of_group("g").get("many", ())))

        looks = Looks()
        trio.lowlevel.add_instrument(looks)
        handle, request = (handle_offset_delete, deletion) if deletes else (handle_offset_commit, commit)
        response = await rig.call(handle, request, 0 if deletes else 9)
        trio.lowlevel.remove_instrument(looks)
        before, after = (COUNT, 0) if deletes else (0, COUNT)
        assert seen[-1] == after
        assert len(seen) > COUNT / PIECE
        assert set(seen[:-1]) == {before}
        assert [partition.error_code for partition in response.topics[0].partitions] == [0] * COUNT
        assert await rig.fetch() == 7


@pytest.mark.parametrize("with_authorizer", [False, True])
@pytest.mark.parametrize("kind", ["consumer", "share"])
async def test_others_have_turns_between_the_members_of_a_described_group(
    rig: Rig, kind: str, with_authorizer: bool
) -> None:
    if with_authorizer:
        rig.services = rig.services.replaced(authorizer=StandardAuthorizer(dict, frozenset(), True))
    names = [f"m{number}" for number in range(20)]
    async with rig.running():
        for name in names:
            common: Any = {"group_id": "g", "member_id": name, "member_epoch": 0, "subscribed_topic_names": ["clicks"]}
            if kind == "consumer":
                beat = ConsumerGroupHeartbeatRequest(**common, rebalance_timeout_ms=60_000, topic_partitions=[])
                await rig.answer(handle_consumer_group_heartbeat, beat, 1)
            else:
                await rig.answer(handle_share_group_heartbeat, ShareGroupHeartbeatRequest(**common), 1)
        if kind == "consumer":
            request = ConsumerGroupDescribeRequest(group_ids=["g"])
            response, turns = await with_turns(rig.call(handle_consumer_group_describe, request, 1))
        else:
            response, turns = await with_turns(
                rig.call(handle_share_group_describe, ShareGroupDescribeRequest(group_ids=["g"]), 1)
            )
        assert sorted(member.member_id for member in response.groups[0].members) == sorted(names)
        # The topics of each member are looked at once more, to be authorized.
        assert turns >= (2 if with_authorizer else 1) * len(names)


@pytest.mark.parametrize("kind", ["consumer", "share"])
async def test_others_have_turns_while_the_topics_of_a_large_subscription_are_looked_at(rig: Rig, kind: str) -> None:
    names = [f"t{number}" for number in range(COUNT)]
    common: Any = {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": names}
    async with rig.running():
        if kind == "consumer":
            beat = ConsumerGroupHeartbeatRequest(**common, rebalance_timeout_ms=60_000, topic_partitions=[])
            response, turns = await with_turns(rig.answer(handle_consumer_group_heartbeat, beat, 1))
        else:
            request = ShareGroupHeartbeatRequest(**common)
            response, turns = await with_turns(rig.answer(handle_share_group_heartbeat, request, 1))
        assert response.error_code == ErrorCode.NONE
        assert turns >= COUNT / PIECE - 1


async def test_groups_that_another_broker_coordinates_meanwhile_are_not_deleted(rig: Rig) -> None:
    """The tombstones of many offsets are made in turns."""
    async with rig.running():
        shard = await shard_with_offsets(rig)
        topics = [topic_image("clicks", 2)]
        deleted, turns = await with_turns(
            administration.delete_groups(rig.groups, ["g"]), lambda: rig.change(*topics), at=8
        )
        assert turns > 8
        assert deleted == {"g": ErrorCode.NOT_COORDINATOR}
        assert "g" in shard.groups


@pytest.mark.parametrize("kind", ["consumer", "share"])
async def test_others_have_turns_between_the_topics_of_a_described_member(rig: Rig, kind: str) -> None:
    names = [f"t{number:03}" for number in range(5 * PIECE)]
    common: Any = {"group_id": "g", "member_id": "m", "subscribed_topic_names": names}
    async with rig.running():
        features = rig.services.metadata.image.features
        rig.change(*(topic_image(name, 1) for name in names), topic_image(OFFSETS_TOPIC, 5))
        rig.services.metadata.image.features = features
        epoch = 0
        for _ in range(3):
            if kind == "consumer":
                beat = ConsumerGroupHeartbeatRequest(
                    **common, member_epoch=epoch, rebalance_timeout_ms=60_000, topic_partitions=[]
                )
                response = await rig.answer(handle_consumer_group_heartbeat, beat, 1)
            else:
                request = ShareGroupHeartbeatRequest(**common, member_epoch=epoch)
                response = await rig.answer(handle_share_group_heartbeat, request, 1)
            assert response.error_code == ErrorCode.NONE
            epoch = response.member_epoch
            await trio.sleep(2)
        if kind == "consumer":
            work = rig.call(handle_consumer_group_describe, ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
        else:
            work = rig.call(handle_share_group_describe, ShareGroupDescribeRequest(group_ids=["g"]), 1)
        response, turns = await with_turns(work)
        [member] = response.groups[0].members
        assert sorted(topic.topic_name for topic in member.assignment.topic_partitions) == names
        assert turns >= 5


def join_of(kind: str, member_id: str, count: int = COUNT) -> tuple[Any, int, Any]:
    """Handler, version and request of a member that joins group "g" and subscribes to many topics."""
    names = [f"t{number}" for number in range(count)]
    common: Any = {"group_id": "g", "member_id": member_id, "member_epoch": 0, "subscribed_topic_names": names}
    if kind == "streams":
        subtopologies = [Subtopology(subtopology_id=name, source_topics=[name]) for name in names]
        request = StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            process_id=member_id,
            rebalance_timeout_ms=60_000,
            topology=Topology(subtopologies=subtopologies),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
        return handle_streams_group_heartbeat, 0, request
    if kind == "consumer":
        beat = ConsumerGroupHeartbeatRequest(**common, rebalance_timeout_ms=60_000, topic_partitions=[])
        return handle_consumer_group_heartbeat, 1, beat
    return handle_share_group_heartbeat, 1, ShareGroupHeartbeatRequest(**common)


@pytest.fixture
def large_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """With `COUNT` topics of one partition; each change of a group makes a new target assignment."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    keys = [f"group.{kind}.{bound}assignment.interval.ms" for kind in KINDS for bound in ("min.", "")]
    keys.append("group.streams.initial.rebalance.delay.ms")
    rig = Rig(tmp_path, dict.fromkeys(keys, "0"))
    rig.change(*rig.services.metadata.image.topics_by_name.values(), *(topic_image(f"t{n}", 1) for n in range(COUNT)))
    rig.services.metadata.image.features = {GROUP_VERSION: 1, SHARE_VERSION: 1, STREAMS_VERSION: 1}
    return rig


def groups_of(rig: Rig, kind: str) -> Any:
    """The groups of the shard that has group "g"."""
    _, shard = rig.groups.runtime.find("g")
    return getattr(shard, kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_others_have_turns_while_a_large_group_gets_a_new_target(large_rig: Rig, kind: str) -> None:
    rig = large_rig
    async with rig.running():
        handler, version, request = join_of(kind, "a")
        await rig.call(handler, request, version)
        handler, version, request = join_of(kind, "b")
        response, turns = await with_turns(rig.call(handler, request, version))
        assert response.error_code == ErrorCode.NONE
        assert turns >= 4 * COUNT / PIECE
        assert list(groups_of(rig, kind).by_id["g"].members) == ["a", "b"]


def count_steps(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """A list that gets an element for each step of operations on large groups."""
    done: list[None] = []

    def counted(steps: Steps[Any]) -> Steps[Any]:
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value
            done.append(None)
            yield

    monkeypatch.setattr("pykbroker.groups.large_writes.in_turns", lambda steps: in_turns(counted(steps)))
    return done


async def test_others_have_turns_while_a_large_streams_group_gets_its_first_assignment(
    large_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = large_rig
    config = rig.services.config
    values = config.streams_groups.replaced(initial_rebalance_delay_ms=3_000)
    rig.groups.follow_config(config.replaced(streams_groups=values))
    steps = count_steps(monkeypatch)
    async with rig.running():
        for name in "ab":
            handler, version, request = join_of("streams", name)
            await rig.call(handler, request, version)
        group = groups_of(rig, "streams").by_id["g"]
        assert group.assignment_epoch == 1
        steps.clear()
        await trio.sleep(4)
        assert len(steps) >= COUNT / PIECE
        assert [sum(map(len, target.active.values())) for target in group.targets.values()] == [COUNT // 2] * 2
        with trio.fail_after(1):
            while rig.groups.streams._large._turns:
                await trio.sleep(0.1)


async def test_the_topics_of_a_regular_expression_are_stored_in_steps(
    large_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = large_rig
    steps = count_steps(monkeypatch)
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex="t[0-9]*",
        topic_partitions=[],
    )
    async with rig.running():
        await rig.call(handle_consumer_group_heartbeat, request, 1)
        steps.clear()
        await trio.testing.wait_all_tasks_blocked()
        group = groups_of(rig, "consumer").by_id["g"]
        assert len(group.resolved["t[0-9]*"].topics) == COUNT
        assert len(steps) >= COUNT / PIECE
        assert not group.soft_state.is_resolving


async def test_topics_that_change_while_those_of_a_regular_expression_are_stored(large_rig: Rig) -> None:
    """The result of the steps is given up."""
    rig = large_rig
    async with rig.running():
        handler, version, request = join_of("consumer", "a", 1)
        request.subscribed_topic_names, request.subscribed_topic_regex = None, "t[0-9]*"
        await rig.call(handler, request, version)
        await trio.testing.wait_all_tasks_blocked()
        groups = groups_of(rig, "consumer")
        group = groups.by_id["g"]
        found = ResolvedRegexes("g", {"t[0-9]*": frozenset({"t0"})}, 0, 0)
        shard = rig.groups.runtime.find("g")[1]
        steps = modern_writes.REGEXES_RESOLVED.prepare(shard, lambda: 0, found)
        prepared = finished(steps)
        assert prepared is not None
        assert prepared.is_current(group, groups)
        rig.change(*rig.services.metadata.image.topics_by_name.values(), topic_image("new", 1))
        assert not prepared.is_current(group, groups)
        result = modern_writes.REGEXES_RESOLVED.carry_out(shard, 0, found, prepared)
        assert result is not prepared.result
        assert len(result.records) == len(prepared.result.records) == 2


@pytest.mark.parametrize("kind", ["consumer", "share"])
@pytest.mark.parametrize("count", [1, COUNT])
async def test_a_response_with_many_topics_is_encoded_in_turns(large_rig: Rig, kind: str, count: int) -> None:
    rig = large_rig
    seen: list[tuple[int, bool]] = []

    async def call(context: Any, request: Any) -> Any:
        response = await handler(context, request)
        given = response.assignment.topic_partitions if response.assignment is not None else ()
        seen.append((len(given), context.has_long_response))
        return response

    async with rig.running():
        handler, version, request = join_of(kind, "a", count)
        epoch = (await rig.call(call, request, version)).member_epoch
        for _ in range(4):
            # Share partitions are initialized meanwhile.
            await trio.testing.wait_all_tasks_blocked()
            request.member_epoch = epoch
            if kind == "consumer":
                request.topic_partitions = None
            epoch = (await rig.call(call, request, version)).member_epoch
        assert (count, count > PIECE) in seen
        assert all(is_long == (given > PIECE) for given, is_long in seen)


@pytest.mark.parametrize("kind", KINDS)
async def test_members_that_join_a_large_group_at_once_do_so_one_after_the_other(
    large_rig: Rig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each heartbeat is computed once: the next one begins when the group has changed."""
    rig, names = large_rig, [f"m{number}" for number in range(5)]
    async with rig.running():
        groups = groups_of(rig, kind)
        computed: list[str] = []
        original = type(groups).compute_heartbeat

        def compute(self: Any, group: Any, now_ms: int, request: Any, *client: Any) -> Any:
            computed.append(request.member_id)
            return original(self, group, now_ms, request, *client)

        monkeypatch.setattr(type(groups), "compute_heartbeat", compute)
        codes: list[int] = []

        async def join(member_id: str) -> None:
            handler, version, request = join_of(kind, member_id)
            codes.append((await rig.call(handler, request, version)).error_code)

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(join, name)
        assert codes == [ErrorCode.NONE] * len(names)
        assert sorted(groups.by_id["g"].members) == names
        if kind != "share":
            assert sorted(computed) == names
            assert groups.by_id["g"].epoch == len(names) + 1
        else:
            # The share coordinator initializes partitions meanwhile, which changes the group, too.
            assert set(computed) == set(names)
        with trio.fail_after(5):
            while getattr(rig.groups, kind)._large._turns:
                await trio.lowlevel.checkpoint()


async def test_a_client_that_goes_while_its_heartbeat_is_prepared_leaves_the_turn_to_the_next(large_rig: Rig) -> None:
    rig = large_rig
    async with rig.running():
        handler, version, request = join_of("consumer", "a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.call, handler, request, version)
            with trio.fail_after(1):
                while not rig.groups.consumer._large._turns:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert not rig.groups.consumer._large._turns
        assert "g" not in groups_of(rig, "consumer").by_id
        handler, version, request = join_of("consumer", "b")
        response = await rig.call(handler, request, version)
        assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 2)


async def test_a_coordinator_that_stops_while_a_heartbeat_is_prepared(large_rig: Rig) -> None:
    rig = large_rig
    async with rig.running():
        handler, version, request = join_of("consumer", "a")

        async def refusal() -> ErrorCode:
            try:
                await rig.call(handler, request, version)
            except CoordinatorError as error:
                return error.error_code
            return ErrorCode.NONE

        error_code, _ = await with_turns(refusal(), rig.groups.runtime.stop, at=COUNT // PIECE + 8)
        assert error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not rig.groups.consumer._large._turns


async def test_a_member_that_is_fenced_while_the_heartbeat_of_another_is_prepared(large_rig: Rig) -> None:
    """The new member gets what the other one had, at the epoch after it."""
    rig = large_rig
    async with rig.running():
        handler, version, request = join_of("consumer", "a")
        first = await rig.call(handler, request, version)
        groups, number = groups_of(rig, "consumer"), rig.groups.runtime.find("g")[0]

        def fence() -> None:
            group, shard = groups.by_id["g"], rig.groups.runtime.shards[number]
            result = groups.remove_member(group, group.members["a"], rig.clock.now_ms())
            rig.groups.runtime.carry_out(number, shard, result)

        handler, version, request = join_of("consumer", "b")
        work = rig.call(handler, request, version)
        response, _ = await with_turns(work, fence, at=COUNT // PIECE + 8)
        assert response.member_epoch == first.member_epoch + 2
        assert len(response.assignment.topic_partitions) == COUNT
        assert list(groups.by_id["g"].members) == ["b"]
