"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup at every version: P-91, P-92, P-93, P-100, P-101, P-104."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykbroker.handlers.heartbeat import handle_heartbeat
from pykbroker.handlers.leave_group import handle_leave_group
from pykbroker.handlers.sync_group import handle_sync_group
from pykbroker.protocol.codec import encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker.protocol.messages.sync_group import SyncGroupRequest
from tests.pykbroker.groups.rig import Rig

NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}


async def leave(rig: Rig, version: int, *member_ids: str, group_id: str = "g") -> Any:
    if version >= 3:
        members = [MemberIdentity(member_id=member_id) for member_id in member_ids]
        request = LeaveGroupRequest(group_id=group_id, members=members)
    else:
        request = LeaveGroupRequest(group_id=group_id, member_id=member_ids[0])
    response = await rig.answer(handle_leave_group, request, version)
    encode(response, version)
    return response


@pytest.mark.parametrize("version", range(10))
async def test_every_version_of_join(tmp_path: Path, version: int) -> None:
    """P-93; the protocol name of an error is empty below version 7 and null from then on."""
    rig = Rig(tmp_path, NO_DELAY)
    async with rig.running():
        first = await rig.join(version=version)
        encode(first, version)
        if version >= 4:
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert first.protocol_name == (None if version >= 7 else "")
            first = await rig.join(first.member_id, version=version)
        assert (first.error_code, first.generation_id, first.protocol_name) == (0, 1, "range")
        encode(first, version)


async def test_version_0_has_its_session_timeout_for_a_rebalance_timeout_p_92(tmp_path: Path) -> None:
    """P-92."""
    rig = Rig(tmp_path, NO_DELAY)
    async with rig.running():
        await rig.join(version=0, session_timeout_ms=11_000)
        [shard] = [shard for shard in rig.groups.runtime.shards.values() if shard.groups]
        [member] = shard.groups["g"].members
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (11_000, 11_000)
        assert member.client_host == "/127.0.0.1"


async def test_an_empty_group_id_p_91(tmp_path: Path) -> None:
    """P-91: refused in joins, syncs, heartbeats and leaves."""
    rig = Rig(tmp_path)
    async with rig.running():
        joined = await rig.join("m", group_id="")
        assert (joined.error_code, joined.member_id) == (ErrorCode.INVALID_GROUP_ID, "m")
        assert (await rig.sync("m", 1, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
        response = await rig.answer(handle_heartbeat, HeartbeatRequest(group_id=""), 4)
        assert response.error_code == ErrorCode.INVALID_GROUP_ID
        assert (await leave(rig, 3, "m", group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
        assert await rig.commit(7, group_id="") == ErrorCode.NONE
        assert await rig.fetch(group_id="") == 7


@pytest.mark.parametrize(
    ("session_ms", "error"),
    [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
async def test_the_session_timeout_is_limited_p_92(tmp_path: Path, session_ms: int, error: ErrorCode) -> None:
    """P-92."""
    rig = Rig(tmp_path)
    async with rig.running():
        assert (await rig.join(session_timeout_ms=session_ms)).error_code == error


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_sync_and_heartbeat_p_100(tmp_path: Path, version: int) -> None:
    """P-100: from version 5 on the protocol must be named."""
    rig = Rig(tmp_path, NO_DELAY)
    async with rig.running():
        joined = await rig.join(version=3)
        request = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        response = await rig.answer(handle_sync_group, request, version)
        encode(response, version)
        wanted = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if version >= 5 else ErrorCode.NONE
        assert response.error_code == wanted
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        beaten = await rig.answer(handle_heartbeat, beat, min(version, 4))
        encode(beaten, min(version, 4))
        assert beaten.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_leave_p_104(tmp_path: Path, version: int) -> None:
    """P-104: below version 3 the member's error is the answer's."""
    rig = Rig(tmp_path, NO_DELAY)
    async with rig.running():
        member_id = await rig.stable()
        unknown = await leave(rig, version, "ghost")
        left = await leave(rig, version, member_id)
        missing = await leave(rig, version, "ghost", group_id="none")
        if version >= 3:
            assert unknown.error_code == missing.error_code == ErrorCode.NONE
            unknown, left, missing = unknown.members[0], left.members[0], missing.members[0]
        assert [r.error_code for r in (unknown, left, missing)] == [
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]
