"""Requests about share groups to the group coordinator, and the initialization of their state in the background."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.result import GroupResult
from pykbroker.groups.share.heartbeat import Initialization, ShareHeartbeatContext, check_request
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.share_group_describe import DescribedGroup
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from pykbroker.coordination.runtime import CoordinatorRuntime
    from pykbroker.groups.modern.topics import GroupTopics
    from pykbroker.groups.shard import GroupShard

log = logging.getLogger(__name__)

DEFAULT_START_OFFSET = -1
"""Start offset of a share partition that has none yet: `share.auto.offset.reset` decides at the first fetch."""

InitializePartition = Callable[[str, bytes, int, int, int], Awaitable[ErrorCode]]
"""Asks the share coordinator to initialize the state of a share partition, given its group id, topic id and partition,
and the state epoch and start offset; the error is that of the share coordinator."""


class ShareGroupRequests:
    """Share groups whose partition of `__consumer_offsets` this broker leads.

    Args:
        runtime: the group coordinator's runtime.
        topics: returns the topics of the cluster.
        initialize_partition: as `InitializePartition`.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        topics: Callable[[], GroupTopics],
        initialize_partition: InitializePartition,
    ) -> None:
        self._runtime = runtime
        self._topics = topics
        self._initialize_partition = initialize_partition

    async def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> ShareGroupHeartbeatResponse:
        """Handles ShareGroupHeartbeat; waits until what the member was told is stored.

        Partitions that are new to the group are initialized in the background; a later heartbeat assigns them.
        """
        malformed = check_request(request)
        if malformed is not None:
            return ShareGroupHeartbeatResponse(error_code=malformed.code, error_message=malformed.message)
        contexts: list[ShareHeartbeatContext] = []

        def beat(shard: GroupShard, now_ms: int) -> GroupResult:
            settings = shard.share.settings_of(request.group_id)
            context = ShareHeartbeatContext(settings, self._topics(), now_ms, client_id, client_host)
            contexts.append(context)
            try:
                return shard.share.heartbeat(request, shard.any_group(request.group_id), context)
            except GroupError as error:
                refusal = ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
                return GroupResult(response=refusal)

        response: ShareGroupHeartbeatResponse | ErrorCode = await self._runtime.write(request.group_id, beat)
        if isinstance(response, ErrorCode):
            return ShareGroupHeartbeatResponse(error_code=response)
        if contexts[0].initialization is not None and self._runtime.nursery is not None:
            self._runtime.nursery.start_soon(self.initialize, contexts[0].initialization)
        return response

    async def initialize(self, wanted: Initialization) -> None:
        """Initializes share partitions and notes in the group that they are, or that they must be tried again."""
        errors: set[ErrorCode] = set()

        async def initialize_one(topic_id: bytes, partition: int) -> None:
            errors.add(
                await self._initialize_partition(
                    wanted.group_id, topic_id, partition, wanted.state_epoch, DEFAULT_START_OFFSET
                )
            )

        async with trio.open_nursery() as nursery:
            for topic_id, partitions in wanted.partitions.items():
                for partition in sorted(partitions):
                    nursery.start_soon(initialize_one, topic_id, partition)
        failed = errors - {ErrorCode.NONE}
        if failed:
            names = ", ".join(sorted(error.name for error in failed))
            log.warning("share group %s: the state of its partitions cannot be initialized: %s", wanted.group_id, names)
            self._runtime.begin_write(wanted.group_id, lambda shard, now_ms: shard.share.not_initialized(wanted))
        else:
            self._runtime.begin_write(wanted.group_id, lambda shard, now_ms: shard.share.initialized(wanted, now_ms))

    def describe(self, group_id: str) -> DescribedGroup:
        """Describes one group, for ShareGroupDescribe."""
        place = self._runtime.find(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if isinstance(place, ErrorCode):
            return DescribedGroup(group_id=group_id, error_code=place)
        return place[1].share.describe(group_id, place[1].any_group(group_id))
