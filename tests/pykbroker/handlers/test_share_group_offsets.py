"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.features import SHARE_VERSION
from pykbroker.controller.metadata.image import Acl
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.handlers.alter_share_group_offsets import handle_alter_share_group_offsets
from pykbroker.handlers.delete_groups import handle_delete_groups
from pykbroker.handlers.delete_share_group_offsets import handle_delete_share_group_offsets
from pykbroker.handlers.describe_share_group_offsets import handle_describe_share_group_offsets
from pykbroker.protocol.acl_codes import ALLOW, GROUP, LITERAL, READ
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from pykbroker.protocol.uuids import ZERO_UUID, uuid_to_text
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.pykbroker.groups.rig import Rig
from tests.pykbroker.handlers.test_share_group_membership import beat, share_rig
from tests.support.data_path import NOW_MS, batch, topic_id, topic_image

UNKNOWN = "This server does not host this topic-partition."


async def alter(rig: Rig, group: str, *more: tuple[str, dict[int, int]], **topics: dict[int, int]) -> Any:
    m = alter_share_group_offsets
    asked = [
        m.AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                m.AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
                for number, offset in offsets.items()
            ],
        )
        for name, offsets in (*more, *topics.items())
    ]
    request = m.AlterShareGroupOffsetsRequest(group_id=group, topics=asked)
    return await rig.answer(handle_alter_share_group_offsets, request, 0)


async def delete(rig: Rig, group: str, *topics: str) -> Any:
    m = delete_share_group_offsets
    asked = [m.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    request = m.DeleteShareGroupOffsetsRequest(group_id=group, topics=asked)
    return await rig.answer(handle_delete_share_group_offsets, request, 0)


async def describe(rig: Rig, group: str, *topics: tuple[str, list[int]], version: int = 1) -> Any:
    """Offsets of these topics, of all if none is given: topic -> [(partition, start offset, lag, error)]."""
    m = describe_share_group_offsets
    asked = [m.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers) for name, numbers in topics]
    named = m.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=asked or None)
    request = m.DescribeShareGroupOffsetsRequest(groups=[named])
    [found] = (await rig.call(handle_describe_share_group_offsets, request, version)).groups
    assert found.error_code == ErrorCode.NONE
    return {
        topic.topic_name: [(p.partition_index, p.start_offset, p.lag, p.error_code) for p in topic.partitions]
        for topic in found.topics
    }


async def remove(rig: Rig, group: str) -> int:
    """DeleteGroups of one group; returns its error code."""
    request = delete_groups.DeleteGroupsRequest(groups_names=[group])
    [removed] = (await rig.call(handle_delete_groups, request, 2)).results
    code: int = removed.error_code
    return code


def errors(response: Any) -> list[tuple[str, bytes, list[tuple[int, int, str | None]]]]:
    return [
        (t.topic_name, t.topic_id, [(p.partition_index, p.error_code, p.error_message) for p in t.partitions])
        for t in response.responses
    ]


async def test_p191_offsets_of_a_new_group_are_set(tmp_path: Path) -> None:
    """P-190, P-191."""
    rig = share_rig(tmp_path)
    async with rig.running():
        answer = await alter(rig, "g", clicks={0: 3, 7: 1}, missing={0: 0})
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors(answer) == [
            ("missing", ZERO_UUID, [(0, unknown, UNKNOWN)]),
            ("clicks", topic_id("clicks"), [(0, 0, None), (7, unknown, UNKNOWN)]),
        ]
        assert rig.share_states.start_offsets == {("g", topic_id("clicks"), 0): (1, 3)}
        assert await describe(rig, "g") == {"clicks": [(0, 3, -1, 0)]}
        asked = await describe(rig, "g", ("clicks", [0, 1]), ("missing", [0]))
        assert asked == {"clicks": [(0, 3, -1, 0), (1, -1, -1, 0)], "missing": [(0, -1, -1, 0)]}
        assert await describe(rig, "nobody") == {}


async def test_p191_a_topic_that_is_named_twice(tmp_path: Path) -> None:
    """P-191: its partitions are altered together, the last offset of a partition counts, and both are answered."""
    rig = share_rig(tmp_path)
    async with rig.running():
        answer = await alter(rig, "g", ("clicks", {0: 3}), ("missing", {0: 1}), ("clicks", {1: 4, 0: 5}))
        assert errors(answer) == [
            ("missing", ZERO_UUID, [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)]),
            ("clicks", topic_id("clicks"), [(0, 0, None)]),
            ("clicks", topic_id("clicks"), [(1, 0, None), (0, 0, None)]),
        ]
        states = rig.share_states.start_offsets
        assert states == {("g", topic_id("clicks"), 0): (1, 5), ("g", topic_id("clicks"), 1): (1, 4)}


@pytest.mark.parametrize(("group_id", "numbers"), [("g", [-1]), ("g", [0, -1]), ("g", []), ("", [0])])
async def test_p190_partitions_that_no_state_can_have(tmp_path: Path, group_id: str, numbers: list[int]) -> None:
    """P-190: the group gets the error, and none of its topics is there."""
    rig = share_rig(tmp_path)
    m = describe_share_group_offsets
    asked = [("clicks", numbers), ("missing", [0])]
    topics = [m.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=found) for name, found in asked]
    groups = [m.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)]
    async with rig.running():
        request = m.DescribeShareGroupOffsetsRequest(groups=groups)
        [found] = (await rig.call(handle_describe_share_group_offsets, request, 1)).groups
    text = "The server experienced an unexpected error when processing the request."
    assert (found.error_code, found.error_message, found.topics) == (ErrorCode.UNKNOWN_SERVER_ERROR, text, [])


async def test_p190_many_partitions_of_a_topic_that_is_named_twice(tmp_path: Path) -> None:
    """P-190: each is answered once; they are not compared with one another."""

    class Counted(int):
        comparisons = 0

        def __eq__(self, other: object) -> bool:
            Counted.comparisons += 1
            return int(self) == other

        __hash__ = int.__hash__

    rig = share_rig(tmp_path)
    numbers = range(300)
    m = describe_share_group_offsets
    topics = [
        m.DescribeShareGroupOffsetsRequestTopic(topic_name="clicks", partitions=list(map(Counted, numbers)))
        for _ in range(2)
    ]
    groups = [m.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics)]
    request = m.DescribeShareGroupOffsetsRequest(groups=groups)
    async with rig.running():
        context = rig.context(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1)
        [group] = (await handle_describe_share_group_offsets(context, request)).groups
    assert [partition.partition_index for topic in group.topics for partition in topic.partitions] == list(numbers)
    assert Counted.comparisons < 20 * len(numbers)


async def test_p190_the_lag_counts_what_is_not_delivered_for_good(tmp_path: Path) -> None:
    """P-190."""
    rig = share_rig(tmp_path)
    async with rig.running():
        partition = rig.partitions.get("clicks", 0)
        assert partition is not None
        partition.append_as_leader(batch(10), NOW_MS)
        await alter(rig, "g", clicks={0: 2})
        rig.share_states.complete_counts["g", topic_id("clicks"), 0] = 3
        assert await describe(rig, "g") == {"clicks": [(0, 2, 5, 0)]}
        rig.share_states.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await describe(rig, "g") == {"clicks": [(0, -1, -1, 0)]}


async def test_p190_an_end_offset_that_no_broker_gives(tmp_path: Path) -> None:
    """P-190: the error of the end offset is that of the partition, and nothing else is said about it."""
    rig = share_rig(tmp_path)
    async with rig.running():
        await alter(rig, "g", clicks={0: 2})
        rig.share_states.complete_counts["g", topic_id("clicks"), 0] = 0
        rig.change(topic_image("clicks", 2, leader=2), topic_image(OFFSETS_TOPIC, 5))
        rig.services.metadata.image.features = {SHARE_VERSION: 1}
        assert await describe(rig, "g", ("clicks", [0])) == {"clicks": [(0, 0, -1, ErrorCode.NETWORK_EXCEPTION)]}


async def test_p190_a_lag_is_a_long(tmp_path: Path) -> None:
    """P-190: a client may store any start offset, and Java's difference wraps around."""
    rig = share_rig(tmp_path)
    async with rig.running():
        partition = rig.partitions.get("clicks", 0)
        assert partition is not None
        partition.append_as_leader(batch(10), NOW_MS)
        await alter(rig, "g", clicks={0: -(1 << 63)})
        rig.share_states.complete_counts["g", topic_id("clicks"), 0] = 3
        assert await describe(rig, "g") == {"clicks": [(0, -(1 << 63), 7 - (1 << 63), 0)]}


async def test_p191_a_group_with_members_keeps_its_offsets(tmp_path: Path) -> None:
    """P-191."""
    rig = share_rig(tmp_path)
    async with rig.running():
        await beat(rig, "m", 0, "clicks")
        await trio.sleep(2)
        for answer in (await alter(rig, "g", clicks={0: 3}), await delete(rig, "g", "clicks")):
            assert (answer.error_code, answer.error_message) == (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


async def test_p191_offsets_are_deleted(tmp_path: Path) -> None:
    """P-191."""
    rig = share_rig(tmp_path)
    async with rig.running():
        await alter(rig, "g", clicks={0: 3})
        await trio.sleep(1)
        answer = await delete(rig, "g", "clicks", "missing")
        found = [(t.topic_name, t.topic_id, t.error_code, t.error_message) for t in answer.responses]
        assert found == [
            ("clicks", topic_id("clicks"), 0, None),
            ("missing", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN),
        ]
        assert rig.share_states.start_offsets == {}
        again = await delete(rig, "g", "clicks")
        assert again.responses[0].error_message == "There is no offset information to delete."


async def test_groups_that_have_no_offsets(tmp_path: Path) -> None:
    rig = share_rig(tmp_path)
    async with rig.running():
        await rig.stable("classic")
        assert (await delete(rig, "none", "clicks")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await alter(rig, "", clicks={0: 0})).error_code == ErrorCode.INVALID_GROUP_ID
        assert await describe(rig, "") == {}
        refused = await alter(rig, "negative", clicks={0: 0, -1: 0})
        text = "Initialize share group parameters has invalid partitionId - negative"
        assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert refused.error_message == f"{text} {uuid_to_text(topic_id('clicks'))} -1"
        assert await describe(rig, "negative") == {}
        assert await remove(rig, "negative") == ErrorCode.UNKNOWN_SERVER_ERROR
        assert errors(await alter(rig, "negative", missing={})) == []
        twice = await delete(rig, "negative", "missing", "missing")
        assert [topic.topic_name for topic in twice.responses] == ["missing", "missing"]
        asked = await describe(rig, "negative", ("clicks", [0, 0]), ("clicks", [1, 0]))
        assert asked == {"clicks": [(0, -1, -1, 0), (1, -1, -1, 0)]}
        refused = await alter(rig, "classic", clicks={0: 0})
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Group classic is not a share group.",
        )


async def test_a_share_coordinator_that_fails(tmp_path: Path) -> None:
    rig = share_rig(tmp_path)
    async with rig.running():
        rig.share_states.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        answer = await alter(rig, "g", clicks={0: 3})
        failed = (0, ErrorCode.COORDINATOR_NOT_AVAILABLE, "Error in initialize state RPC. COORDINATOR_NOT_AVAILABLE")
        assert errors(answer) == [("clicks", topic_id("clicks"), [failed])]
        rig.share_states.error = ErrorCode.NONE
        await alter(rig, "g", clicks={0: 3})
        rig.share_states.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        [topic] = (await delete(rig, "g", "clicks")).responses
        assert (topic.topic_name, topic.error_code) == ("clicks", ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def test_a_cluster_without_share_groups(tmp_path: Path) -> None:
    rig = share_rig(tmp_path, share_version=0)
    async with rig.running():
        assert (await alter(rig, "g", clicks={0: 0})).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await delete(rig, "g", "clicks")).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_p364_a_topic_without_partitions_does_not_hold_its_group(tmp_path: Path) -> None:
    """P-364: no partition of the group can fail."""
    rig = share_rig(tmp_path)
    async with rig.running():
        await alter(rig, "beyond", clicks={99: 0})
        assert await remove(rig, "beyond") == ErrorCode.NONE
        assert await remove(rig, "beyond") == ErrorCode.GROUP_ID_NOT_FOUND


async def test_p364_a_topic_without_partitions_fails_those_of_other_topics(tmp_path: Path) -> None:
    """P-364: until the group is deleted for the second time, when its topics are known to be in deletion."""
    rig = share_rig(tmp_path)
    async with rig.running():
        await alter(rig, "g", clicks={0: 3}, __consumer_offsets={99: 0})
        await trio.sleep(1)
        assert await describe(rig, "g") == {"clicks": [(0, 3, -1, 0)]}
        assert await remove(rig, "g") == ErrorCode.UNKNOWN_SERVER_ERROR
        assert rig.share_states.start_offsets != {}
        assert await remove(rig, "g") == ErrorCode.NONE
        assert rig.share_states.start_offsets == {}


async def test_p364_partitions_that_cannot_be_altered_stay_initializing(tmp_path: Path) -> None:
    """P-364."""
    rig = share_rig(tmp_path)
    async with rig.running():
        rig.share_states.error = ErrorCode.FENCED_STATE_EPOCH
        answer = await alter(rig, "g", clicks={0: 3})
        assert [partition.error_code for topic in answer.responses for partition in topic.partitions] == [
            ErrorCode.FENCED_STATE_EPOCH
        ]
        await trio.sleep(1)
        rig.share_states.error = ErrorCode.NONE
        await beat(rig, "m", 0, "clicks")
        await trio.sleep(1)
        assert rig.share_states.start_offsets == {("g", topic_id("clicks"), 1): (2, -1)}


async def test_p365_several_groups_are_asked_about_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-365."""
    rig = share_rig(tmp_path)

    async def slow(*_: object) -> ErrorCode:
        await trio.sleep(30)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def unread(*_: object) -> None:
        await trio.sleep(30)

    async with rig.running():
        names = ["a", "b", "c"]
        for name in names:
            await alter(rig, name, clicks={0: 0})
        await trio.sleep(1)
        monkeypatch.setattr(rig.share_states, "read_summary", unread)
        monkeypatch.setattr(rig.share_states, "delete", slow)
        m = describe_share_group_offsets
        groups = [m.DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in names]
        before = trio.current_time()
        request = m.DescribeShareGroupOffsetsRequest(groups=groups)
        described = (await rig.call(handle_describe_share_group_offsets, request, 1)).groups
        assert [group.group_id for group in described] == names
        deleted = await rig.call(handle_delete_groups, delete_groups.DeleteGroupsRequest(groups_names=names), 2)
        failed = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert {result.group_id: result.error_code for result in deleted.results} == dict.fromkeys(names, failed)
        assert trio.current_time() - before == pytest.approx(60)


async def test_p190_groups_that_are_not_described(tmp_path: Path) -> None:
    """P-190: without the feature, and of another coordinator."""
    m = describe_share_group_offsets

    async def described(rig: Rig) -> Any:
        named = m.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
        request = m.DescribeShareGroupOffsetsRequest(groups=[named])
        return (await rig.call(handle_describe_share_group_offsets, request, 1)).groups[0]

    without = share_rig(tmp_path / "without", share_version=0)
    async with without.running():
        assert (await described(without)).error_code == ErrorCode.UNSUPPORTED_VERSION
    rig = share_rig(tmp_path / "with")
    async with rig.running():
        await alter(rig, "g", clicks={0: 3})
        rig.change(topic_image("clicks", 2), topic_image(OFFSETS_TOPIC, 5, leader=2, followers=(1,)))
        rig.services.metadata.image.features = {SHARE_VERSION: 1}
        elsewhere = await described(rig)
        assert (elsewhere.error_code, elsewhere.error_message) == (
            ErrorCode.NOT_COORDINATOR,
            "This is not the correct coordinator.",
        )


async def test_a_client_that_may_not_use_the_group(tmp_path: Path) -> None:
    rig = share_rig(tmp_path)
    rig.services = rig.services.replaced(authorizer=StandardAuthorizer(dict, frozenset(), False))
    async with rig.running():
        for response in (await alter(rig, "g", clicks={0: 1}), await delete(rig, "g", "clicks")):
            assert response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            assert response.error_message == "Group authorization failed."
            assert response.responses == []


async def test_a_topic_that_a_client_may_not_read(tmp_path: Path) -> None:
    rig = share_rig(tmp_path)
    acls = {bytes(16): Acl(GROUP, "g", LITERAL, "User:ANONYMOUS", "*", READ, ALLOW)}
    rig.services = rig.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    async with rig.running():
        altered = await alter(rig, "g", clicks={0: 1})
        [[partition]] = [topic.partitions for topic in altered.responses]
        assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
