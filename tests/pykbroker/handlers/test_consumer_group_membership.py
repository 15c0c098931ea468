"""ConsumerGroupHeartbeat and ConsumerGroupDescribe on a coordinator with its log: P-172, P-173."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pykbroker.controller.metadata.features import GROUP_VERSION
from pykbroker.controller.metadata.image import Acl
from pykbroker.groups import administration
from pykbroker.handlers.consumer_group_describe import handle_consumer_group_describe
from pykbroker.handlers.consumer_group_heartbeat import handle_consumer_group_heartbeat
from pykbroker.protocol.acl_codes import ALLOW, DESCRIBE, GROUP, LITERAL, READ, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker.requests.group_describe import HIDDEN_TOPICS
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.pykbroker.groups.rig import Rig
from tests.support.data_path import topic_id

NOT_ASKED = -(2**31)
READ_GROUP = (GROUP, "g", READ)
DESCRIBE_GROUP = (GROUP, "g", DESCRIBE)
DESCRIBE_CLICKS = (TOPIC, "clicks", DESCRIBE)


def group_rig(folder: Path, *, group_version: int = 1) -> Rig:
    rig = Rig(folder)
    rig.services.metadata.image.features = {GROUP_VERSION: group_version}
    return rig


def allow(rig: Rig, *allowed: tuple[int, str, int]) -> None:
    """Lets clients do these operations, (resource type, name, operation), and no others."""
    acls = {
        number.to_bytes(16, "big"): Acl(kind, name, LITERAL, "User:ANONYMOUS", "*", operation, ALLOW)
        for number, (kind, name, operation) in enumerate(allowed)
    }
    rig.services = rig.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))


async def beat(rig: Rig, member_id: str, epoch: int, topics: Sequence[str] | None = None, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_names=None if topics is None else list(topics),
        rebalance_timeout_ms=60_000 if epoch == 0 else -1,
        topic_partitions=[] if epoch == 0 else None,
        **fields,
    )
    return await rig.answer(handle_consumer_group_heartbeat, request, 1)


async def describe(rig: Rig, *group_ids: str, operations: bool = False) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=operations)
    return (await rig.call(handle_consumer_group_describe, request, 1)).groups


async def test_a_member_gets_all_partitions_and_is_described(tmp_path: Path) -> None:
    rig = group_rig(tmp_path)
    async with rig.running():
        joined = await beat(rig, "m", 0, ["clicks"])
        assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 2)
        assert [(t.topic_id, t.partitions) for t in joined.assignment.topic_partitions] == [
            (topic_id("clicks"), [0, 1])
        ]
        found, missing = await describe(rig, "g", "h", operations=True)
        assert (found.error_code, found.group_state, found.group_epoch) == (ErrorCode.NONE, "Stable", 2)
        assert found.authorized_operations != NOT_ASKED
        [member] = found.members
        assert (member.member_id, member.client_id, member.client_host) == ("m", "test", "/127.0.0.1")
        assert [(t.topic_name, t.partitions) for t in member.assignment.topic_partitions] == [("clicks", [0, 1])]
        assert (missing.error_code, missing.authorized_operations) == (ErrorCode.GROUP_ID_NOT_FOUND, NOT_ASKED)
        assert (await describe(rig, "g"))[0].authorized_operations == NOT_ASKED


async def test_a_cluster_without_consumer_groups(tmp_path: Path) -> None:
    rig = group_rig(tmp_path, group_version=0)
    async with rig.running():
        assert (await beat(rig, "m", 0, ["clicks"])).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [group.error_code for group in await describe(rig, "g")] == [ErrorCode.UNSUPPORTED_VERSION]


async def test_a_client_without_read_on_the_group(tmp_path: Path) -> None:
    rig = group_rig(tmp_path)
    allow(rig, DESCRIBE_GROUP, DESCRIBE_CLICKS)
    async with rig.running():
        assert (await beat(rig, "m", 0, ["clicks"])).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_a_client_that_names_a_topic_which_it_may_not_describe(tmp_path: Path) -> None:
    rig = group_rig(tmp_path)
    allow(rig, READ_GROUP, DESCRIBE_CLICKS)
    async with rig.running():
        assert (await beat(rig, "m", 0, ["clicks", "x"])).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await beat(rig, "m", 0, ["clicks"])).error_code == ErrorCode.NONE


async def test_a_regular_expression_leaves_out_topics_that_the_client_may_not_describe(tmp_path: Path) -> None:
    rig = group_rig(tmp_path)
    allow(rig, READ_GROUP)
    async with rig.running():
        joined = await beat(rig, "m", 0, subscribed_topic_regex="cli.*")
        assert joined.error_code == ErrorCode.NONE
        assert joined.assignment.topic_partitions == []


async def test_a_described_group_whose_topics_the_client_may_not_see(tmp_path: Path) -> None:
    rig = group_rig(tmp_path)
    async with rig.running():
        await beat(rig, "m", 0, ["clicks"])
        allow(rig, DESCRIBE_GROUP)
        refused, hidden = await describe(rig, "g", "other")
        assert (refused.group_id, refused.error_code) == ("other", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        assert (hidden.error_code, hidden.error_message) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
        assert hidden.members == []
        allow(rig, DESCRIBE_GROUP, DESCRIBE_CLICKS)
        [seen] = await describe(rig, "g")
        assert [member.member_id for member in seen.members] == ["m"]


async def test_p431_a_member_joins_while_the_tombstone_of_the_group_is_in_flight(tmp_path: Path) -> None:
    """P-431: a new group, which the tombstone does not take along when it is replicated."""
    rig = group_rig(tmp_path)
    async with rig.running():
        await beat(rig, "m", 0, ["clicks"])
        await beat(rig, "m", -1)
        [shard] = [shard for shard in rig.groups.runtime.shards.values() if shard.modern_group("g") is not None]
        deletion = administration.delete(shard, 0, "g")
        shard.appended(deletion, 0, 0)
        assert (await beat(rig, "n", 0, ["clicks"])).error_code == ErrorCode.NONE
        shard.replicated(deletion, 0, 0)
        found = shard.modern_group("g")
        assert found is not None
        assert list(found.members) == ["n"]
