"""DescribeGroups, ListGroups and DeleteGroups at every version: P-106, P-107."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.groups import administration
from pykbroker.handlers.consumer_group_describe import handle_consumer_group_describe
from pykbroker.handlers.delete_groups import handle_delete_groups
from pykbroker.handlers.describe_groups import handle_describe_groups
from pykbroker.handlers.list_groups import handle_list_groups
from pykbroker.protocol.acl_codes import DELETE, DESCRIBE, GROUP
from pykbroker.protocol.codec import encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pykbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pykbroker.protocol.messages.list_groups import ListGroupsRequest
from tests.pykbroker.groups.rig import Rig
from tests.pykbroker.handlers.test_consumer_group_membership import allow, group_rig
from tests.support.data_path import topic_image
from tests.support.turns import with_turns

NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}
NOT_ASKED = -(2**31)


async def answer(rig: Rig, handler: Any, request: Any, version: int) -> Any:
    response = await rig.call(handler, request, version)
    encode(response, version)
    return response


@pytest.mark.parametrize("version", range(7))
async def test_every_version_of_describe_p_106(tmp_path: Path, version: int) -> None:
    """P-106."""
    rig = Rig(tmp_path, NO_DELAY)
    async with rig.running():
        member_id = await rig.stable()
        request = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=version >= 3)
        group, missing = (await answer(rig, handle_describe_groups, request, version)).groups
        assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
        assert [(m.member_id, m.client_id, m.client_host) for m in group.members] == [(member_id, "app", "/127.0.0.1")]
        assert group.authorized_operations == (3400 if version >= 3 else NOT_ASKED)
        assert missing.group_state == "Dead"
        assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
        assert missing.authorized_operations == (3400 if 3 <= version < 6 else NOT_ASKED)


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_list_p_106(tmp_path: Path, version: int) -> None:
    """P-106: exact names of states, in any case."""
    rig = Rig(tmp_path, NO_DELAY)
    async with rig.running():
        await rig.stable()
        await rig.commit(7, group_id="simple")
        listed = (await answer(rig, handle_list_groups, ListGroupsRequest(), version)).groups
        assert sorted((g.group_id, g.protocol_type) for g in listed) == [("g", "consumer"), ("simple", "")]
        if version >= 4:
            request = ListGroupsRequest(states_filter=[" sTABLE", "Dead"])
            assert [g.group_id for g in (await answer(rig, handle_list_groups, request, version)).groups] == ["g"]
        if version >= 5:
            # The names of types are taken as they are but for their case, unlike those of states.
            for types, count in (["Classic"], 2), (["consumer", "classic"], 2), (["share"], 0), ([" classic"], 0):
                request = ListGroupsRequest(types_filter=types)
                assert len((await answer(rig, handle_list_groups, request, version)).groups) == count


async def test_groups_are_listed_in_kafkas_order(tmp_path: Path) -> None:
    """P-615: as Apache Kafka 4.3.1 listed fourteen groups of three partitions."""
    rig = Rig(tmp_path, NO_DELAY, is_fresh=True)
    rig.change(topic_image("clicks", 2), topic_image(OFFSETS_TOPIC, 3))
    expected = [f"grp-{number}" for number in (7, 11, 4, 1, 2, 13, 10, 8, 5, 12, 9, 6, 3, 0)]
    async with rig.running():
        for number in range(14):
            await rig.commit(7, group_id=f"grp-{number}")
        listed = (await answer(rig, handle_list_groups, ListGroupsRequest(), 5)).groups
        assert [group.group_id for group in listed] == expected


@pytest.mark.parametrize("version", range(3))
async def test_every_version_of_delete_p_107(tmp_path: Path, version: int) -> None:
    """P-107, P-651: a group that is named twice is answered once; the order is that of a Java HashSet."""
    rig = Rig(tmp_path, NO_DELAY)
    async with rig.running():
        await rig.stable()
        await rig.commit(7, group_id="simple")
        request = DeleteGroupsRequest(groups_names=["simple", "g", "none", "simple"])
        results = (await answer(rig, handle_delete_groups, request, version)).results
        assert [(r.group_id, r.error_code) for r in results] == [
            ("g", ErrorCode.NON_EMPTY_GROUP),
            ("simple", ErrorCode.NONE),
            ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        assert await rig.fetch(group_id="simple") == -1


async def test_groups_are_described_by_partition(tmp_path: Path) -> None:
    """P-651: those of one partition keep their order; without an id they come first in ConsumerGroupDescribe."""
    rig = group_rig(tmp_path)
    async with rig.running():
        asked = ["group-0", "group-15", "", "group-9", "group-2", "group-1", "group-7"]
        others = ["group-2", "group-7", "group-0", "group-1", "group-9"]
        described = (await answer(rig, handle_describe_groups, DescribeGroupsRequest(groups=asked), 6)).groups
        assert [group.group_id for group in described] == ["group-15", "", *others]
        request = ConsumerGroupDescribeRequest(group_ids=asked)
        modern = (await answer(rig, handle_consumer_group_describe, request, 1)).groups
        assert [group.group_id for group in modern] == ["", "group-15", *others]


async def test_thousands_of_groups_are_sorted_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By partition, for which the id of each is hashed."""
    rig = group_rig(tmp_path)
    async with rig.running():
        monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
        names = [f"group-{number}" for number in range(200)]
        found, turns = await with_turns(administration.in_described_order(rig.services.groups, names))
        assert len(found) == 200
        assert turns > 101


async def test_without_the_offsets_topic_there_are_no_groups_p_90(tmp_path: Path) -> None:
    """P-90."""
    rig = Rig(tmp_path, is_fresh=True)
    async with rig.running():
        assert (await answer(rig, handle_list_groups, ListGroupsRequest(), 5)).groups == []
        [group] = (await answer(rig, handle_describe_groups, DescribeGroupsRequest(groups=["g"]), 6)).groups
        assert group.error_code == ErrorCode.NOT_COORDINATOR
        [result] = (await answer(rig, handle_delete_groups, DeleteGroupsRequest(groups_names=["g"]), 2)).results
        assert result.error_code == ErrorCode.NOT_COORDINATOR
        rig.change(topic_image(OFFSETS_TOPIC, 5, leader=2))
        assert (await answer(rig, handle_list_groups, ListGroupsRequest(), 5)).groups == []


async def test_the_place_of_groups_that_the_client_may_not_see_p_106_p_107(tmp_path: Path) -> None:
    """P-106, P-107: first in DescribeGroups, last in DeleteGroups."""
    rig = Rig(tmp_path, NO_DELAY)
    async with rig.running():
        allow(rig, (GROUP, "b", DESCRIBE), (GROUP, "b", DELETE))
        described = (await answer(rig, handle_describe_groups, DescribeGroupsRequest(groups=["b", "a"]), 6)).groups
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert [(group.group_id, group.error_code) for group in described] == [
            ("a", refused),
            ("b", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        deleted = (await answer(rig, handle_delete_groups, DeleteGroupsRequest(groups_names=["a", "b"]), 2)).results
        assert [(result.group_id, result.error_code) for result in deleted] == [
            ("b", ErrorCode.GROUP_ID_NOT_FOUND),
            ("a", refused),
        ]
