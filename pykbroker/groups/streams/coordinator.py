"""Requests about Streams groups to the group coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.result import GroupResult
from pykbroker.groups.streams.checks import check_request
from pykbroker.groups.streams.configured import InternalTopic
from pykbroker.groups.streams.topic_creation import InternalTopicCreation
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    import trio

    from pykbroker.coordination.runtime import CoordinatorRuntime
    from pykbroker.groups.shard import GroupShard
    from pykbroker.groups.streams.heartbeat import StreamsHeartbeatContext


class StreamsGroupRequests:
    """Streams groups whose partition of `__consumer_offsets` this broker leads.

    Args:
        runtime: the group coordinator's runtime.

    Attributes:
        creation: the internal topics that this broker has asked for.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupShard]) -> None:
        self._runtime = runtime
        self.creation = InternalTopicCreation()

    @property
    def nursery(self) -> trio.Nursery | None:
        """For the creation of topics beside the heartbeats; None before the coordinator runs."""
        return self._runtime.nursery

    async def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> tuple[StreamsGroupHeartbeatResponse, Mapping[str, InternalTopic]]:
        """Handles StreamsGroupHeartbeat; waits until the state in the response is stored.

        Returns the response, and the internal topics that have to be created, by name.
        """
        malformed = check_request(request)
        if malformed is not None:
            return _refusal(malformed), {}
        contexts: list[StreamsHeartbeatContext] = []

        def beat(shard: GroupShard, now_ms: int) -> GroupResult:
            context = shard.streams.context(request.group_id, now_ms, client_id, client_host)
            contexts.append(context)
            try:
                shard.in_flight.check_not_ending(request.group_id)
                return shard.streams.heartbeat(request, shard.any_group(request.group_id), context)
            except GroupError as error:
                return GroupResult(response=_refusal(error))

        response: StreamsGroupHeartbeatResponse | ErrorCode = await self._runtime.write_confirmed(
            request.group_id, beat
        )
        if isinstance(response, ErrorCode):
            return StreamsGroupHeartbeatResponse(error_code=response), {}
        return response, contexts[0].missing_topics if response.error_code == ErrorCode.NONE else {}

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """The heartbeat interval of a group on this broker; 0 if this broker does not coordinate it."""
        place = self._runtime.find(group_id)
        return 0 if isinstance(place, ErrorCode) else place[1].streams.settings_of(group_id).times.heartbeat_interval_ms


def _refusal(error: GroupError) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
