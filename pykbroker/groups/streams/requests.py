"""Requests about Streams groups to the group coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from pykbroker.errors import CoordinatorError
from pykbroker.groups import modern_writes
from pykbroker.groups.large_writes import LargeWrites
from pykbroker.groups.result import FirstAssignment
from pykbroker.groups.shard import GroupShard
from pykbroker.groups.streams.checks import check_request
from pykbroker.groups.streams.configured import InternalTopic
from pykbroker.groups.streams.internal_topic_creation import InternalTopicCreation
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    import trio

    from pykbroker.coordination.runtime import CoordinatorRuntime


class StreamsGroupRequests:
    """Streams groups whose partition of `__consumer_offsets` this broker leads.

    Args:
        runtime: the group coordinator's runtime.

    Attributes:
        creation: the internal topics that this broker has asked for.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupShard]) -> None:
        self._runtime = runtime
        self._large = LargeWrites(runtime)
        self.creation = InternalTopicCreation()

    @property
    def nursery(self) -> trio.Nursery | None:
        """Nursery of tasks that create topics while heartbeats go on; None before the coordinator runs."""
        return self._runtime.nursery

    async def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> tuple[StreamsGroupHeartbeatResponse, Mapping[str, InternalTopic]]:
        """Handles StreamsGroupHeartbeat; waits until the state in the response is stored.

        Returns the response, and the internal topics that have to be created, by name.
        """
        check_request(request)
        group_id = request.group_id
        _, shard = self._runtime.find(group_id)
        if shard.streams.is_long_heartbeat(request, self._runtime.now_ms()):
            write = await self._large.begin_write(modern_writes.STREAMS_HEARTBEAT, request, client_id, client_host)
        else:
            write = self._runtime.begin_write(
                group_id, modern_writes.streams_heartbeat, request, client_id, client_host
            )
        response: StreamsGroupHeartbeatResponse = await self._runtime.confirmed(group_id, write)
        return response, write.result.missing_topics if response.error_code == ErrorCode.NONE else {}

    async def assign_first(self, request: FirstAssignment) -> None:
        """Computes the first assignment of a large group, in turns with requests; else its next heartbeat does."""
        with suppress(CoordinatorError):
            await self._large.begin_write(modern_writes.FIRST_ASSIGNMENT, request)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """The heartbeat interval of a group on this broker; 0 if this broker does not coordinate it."""
        try:
            _, shard = self._runtime.find(group_id)
        except CoordinatorError:
            return 0
        return shard.streams.settings_of(group_id).heartbeat_interval_ms
