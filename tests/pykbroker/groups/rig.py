"""A group coordinator on real logs under trio's virtual clock, with the handlers in front."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.groups.coordinator import GroupCoordinator
from pykbroker.handlers.join_group import handle_join_group
from pykbroker.handlers.offset_commit import handle_offset_commit
from pykbroker.handlers.offset_fetch import handle_offset_fetch
from pykbroker.handlers.sync_group import handle_sync_group
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.pykbroker.groups.driver import subscription
from tests.support.coordinator_rig import CoordinatorRig
from tests.support.data_path import cluster_image, topic_id, topic_image
from tests.support.share_state import MemoryShareStates


class Rig(CoordinatorRig):
    """One broker with topic "clicks" (2 partitions) and, unless said otherwise, `__consumer_offsets`."""

    partition_count = 5

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None, *, is_fresh: bool = False) -> None:
        topics = [topic_image("clicks", 2)] + ([] if is_fresh else [topic_image(OFFSETS_TOPIC, 5)])
        super().__init__(folder, cluster_image(*topics), properties)
        self.share_states = MemoryShareStates()
        self.groups = GroupCoordinator(
            self.services.config,
            self.environment(),
            random.Random(3),
            self.share_states,
        )
        self.services = self.services.replaced(groups=self.groups)

    def under_test(self) -> Any:
        return self.groups

    async def join(
        self, member_id: str = "", *, group_id: str = "g", version: int = 9, **fields: Any
    ) -> JoinGroupResponse:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription("clicks"))]
        options = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer"}
        request = JoinGroupRequest(
            **{"group_id": group_id, "member_id": member_id, "protocols": protocols, **options, **fields}
        )
        response: JoinGroupResponse = await self.answer(handle_join_group, request, version, client_id="app")
        return response

    async def sync(
        self, member_id: str, generation_id: int, assignments: Mapping[str, bytes] | None = None, group_id: str = "g"
    ) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()],
        )
        response: SyncGroupResponse = await self.answer(handle_sync_group, request, 5)
        return response

    async def stable(self, group_id: str = "g") -> str:
        """One member in a stable group; gives its id."""
        first = await self.join(group_id=group_id)
        joined = await self.join(first.member_id, group_id=group_id)
        assert joined.error_code == ErrorCode.NONE
        await self.sync(joined.member_id, joined.generation_id, {joined.member_id: b"all"}, group_id)
        return joined.member_id

    async def commit(
        self, offset: int, *, group_id: str = "g", topic: str = "clicks", partition: int = 0, **fields: Any
    ) -> int:
        partitions = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
        topics = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id(topic), partitions=partitions)]
        request = OffsetCommitRequest(group_id=group_id, topics=topics, **fields)
        response = await self.call(handle_offset_commit, request, 9)
        error: int = response.topics[0].partitions[0].error_code
        return error

    async def fetch(
        self, *, group_id: str = "g", topic: str = "clicks", partition: int = 0, require_stable: bool = False
    ) -> int:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics)]
        response = await self.call(
            handle_offset_fetch, OffsetFetchRequest(groups=groups, require_stable=require_stable), 9
        )
        group = response.groups[0]
        if group.error_code != ErrorCode.NONE:
            return -int(group.error_code) * 1000
        offset: int = group.topics[0].partitions[0].committed_offset
        return offset
