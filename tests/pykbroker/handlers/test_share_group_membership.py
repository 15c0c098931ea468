"""ShareGroupHeartbeat and ShareGroupDescribe, with the share coordinator behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.features import SHARE_VERSION
from pykbroker.groups import administration
from pykbroker.handlers.share_group_describe import handle_share_group_describe
from pykbroker.handlers.share_group_heartbeat import handle_share_group_heartbeat
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from pykbroker.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.pykbroker.groups.rig import Rig
from tests.support.data_path import topic_id


def share_rig(folder: Path, *, share_version: int = 1) -> Rig:
    rig = Rig(folder)
    rig.services.metadata.image.features = {SHARE_VERSION: share_version}
    return rig


async def beat(rig: Rig, member_id: str, epoch: int, *topics: str) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, subscribed_topic_names=list(topics) or None
    )
    return await rig.answer(handle_share_group_heartbeat, request, 1)


async def describe(rig: Rig, *group_ids: str, operations: bool = False) -> Any:
    request = ShareGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=operations)
    return (await rig.call(handle_share_group_describe, request, 1)).groups


async def test_a_member_gets_partitions_once_they_are_initialized(tmp_path: Path) -> None:
    rig = share_rig(tmp_path)
    async with rig.running():
        first = await beat(rig, "m", 0, "clicks")
        assert (first.error_code, first.member_epoch) == (ErrorCode.NONE, 2)
        assert first.assignment.topic_partitions == []
        await trio.sleep(2)
        second = await beat(rig, "m", 2)
        assert second.member_epoch == 3
        assigned = [(t.topic_id, t.partitions) for t in second.assignment.topic_partitions]
        assert assigned == [(topic_id("clicks"), [0, 1])]


async def test_a_described_group(tmp_path: Path) -> None:
    rig = share_rig(tmp_path)
    async with rig.running():
        await beat(rig, "m", 0, "clicks")
        await trio.sleep(2)
        await beat(rig, "m", 2)
        empty, found, missing = await describe(rig, "g", "h", "", operations=True)
        assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 3, 3)
        assert found.authorized_operations != -(2**31)
        member = found.members[0]
        assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
        assert [(t.topic_name, t.partitions) for t in member.assignment.topic_partitions] == [("clicks", [0, 1])]
        assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group h not found.")
        assert empty.error_code == ErrorCode.INVALID_GROUP_ID


async def test_an_error_of_the_coordinator_has_a_text(tmp_path: Path) -> None:
    """P-90: the general text of the error, which descriptions of consumer groups do not have."""
    rig = share_rig(tmp_path)
    (group,) = await describe(rig, "g")
    assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert group.error_message == "The coordinator is loading and hence can't process requests."
    other = await administration.describe_modern_group(
        rig.groups, "g", lambda shard: shard.consumer, ConsumerGroup, has_texts=False
    )
    assert (other.error_code, other.error_message) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None)


async def test_a_cluster_without_share_groups(tmp_path: Path) -> None:
    rig = share_rig(tmp_path, share_version=0)
    async with rig.running():
        assert (await beat(rig, "m", 0, "clicks")).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [group.error_code for group in await describe(rig, "g")] == [ErrorCode.UNSUPPORTED_VERSION]


@pytest.mark.parametrize("member_id", ["", "m" * 37])
async def test_member_ids_that_no_client_makes(tmp_path: Path, member_id: str) -> None:
    rig = share_rig(tmp_path)
    async with rig.running():
        refused = await beat(rig, member_id, 0, "clicks")
        assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, None)


async def test_a_malformed_request(tmp_path: Path) -> None:
    rig = share_rig(tmp_path)
    async with rig.running():
        refused = await beat(rig, "m", 0)
        assert refused.error_message == "SubscribedTopicNames must be set in first request."


async def test_a_group_is_deleted_with_its_state(tmp_path: Path) -> None:
    rig = share_rig(tmp_path)
    async with rig.running():
        await beat(rig, "m", 0, "clicks")
        await trio.sleep(2)
        assert rig.share_states.start_offsets == {("g", topic_id("clicks"), number): (2, -1) for number in (0, 1)}
        assert await administration.delete_groups(rig.groups, ["g"]) == {"g": ErrorCode.NON_EMPTY_GROUP}
        await beat(rig, "m", -1)
        rig.share_states.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await administration.delete_groups(rig.groups, ["g", "h"]) == {
            "g": ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "h": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        rig.share_states.error = ErrorCode.NONE
        assert await administration.delete_groups(rig.groups, ["g"]) == {"g": ErrorCode.NONE}
        assert rig.share_states.start_offsets == {}
        assert (await describe(rig, "g"))[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_p651_share_groups_that_cannot_be_deleted_come_first(tmp_path: Path) -> None:
    """P-651: with members, or with a state that stays, before groups that the order of names puts in front of them."""
    rig = share_rig(tmp_path)
    async with rig.running():
        await beat(rig, "m", 0, "clicks")
        await trio.sleep(2)
        rig.share_states.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for refused in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            codes = await administration.delete_groups(rig.groups, ["b", "q", "g"])
            missing = ErrorCode.GROUP_ID_NOT_FOUND
            assert list(codes.items()) == [("g", refused), ("q", missing), ("b", missing)]
            await beat(rig, "m", -1)


async def test_a_share_coordinator_that_fails_is_asked_again(tmp_path: Path) -> None:
    rig = share_rig(tmp_path)
    async with rig.running():
        rig.share_states.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        await beat(rig, "m", 0, "clicks")
        await trio.sleep(2)
        rig.share_states.error = ErrorCode.NONE
        assert (await beat(rig, "m", 2)).assignment is None
        await trio.sleep(2)
        assert len((await beat(rig, "m", 2)).assignment.topic_partitions) == 1


async def test_p431_a_member_joins_while_the_tombstone_of_the_group_is_in_flight(tmp_path: Path) -> None:
    """P-431: a new group, which the tombstone does not take along when it is replicated."""
    rig = share_rig(tmp_path)
    async with rig.running():
        await beat(rig, "m", 0, "clicks")
        await beat(rig, "m", -1)
        [shard] = [shard for shard in rig.groups.runtime.shards.values() if shard.modern_group("g") is not None]
        deletion = administration.delete(shard, 0, "g")
        shard.appended(deletion, 0, 0)
        assert (await beat(rig, "n", 0, "clicks")).error_code == ErrorCode.NONE
        shard.replicated(deletion, 0, 0)
        found = shard.modern_group("g")
        assert found is not None
        assert list(found.members) == ["n"]
