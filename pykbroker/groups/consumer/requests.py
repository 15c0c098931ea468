"""Requests about consumer groups to the group coordinator, and the topics that match their regular expressions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.turns import in_turns
from pykbroker.errors import CoordinatorError
from pykbroker.groups import modern_writes
from pykbroker.groups.consumer.heartbeat import check_request
from pykbroker.groups.consumer.regexes import matching_topics
from pykbroker.groups.large_writes import LargeWrites
from pykbroker.groups.result import RegexRefresh, ResolvedRegexes
from pykbroker.groups.shard import GroupShard
from pykbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykbroker.protocol.steps import PIECE
from pykbroker.protocol.uuids import random_uuid_text

if TYPE_CHECKING:
    import random

    from pykbroker.config.values import ConsumerGroupValues
    from pykbroker.coordination.runtime import CoordinatorRuntime
    from pykbroker.groups.modern.topics import GroupTopics


class ConsumerGroupRequests:
    """Consumer groups whose partition of `__consumer_offsets` this broker leads.

    Args:
        runtime: the group coordinator's runtime.
        topics: the topics that subscriptions may name.
        random: for member ids.

    Attributes:
        settings: those of the broker, which change while it runs.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        settings: ConsumerGroupValues,
        topics: GroupTopics,
        random: random.Random,
    ) -> None:
        self._runtime = runtime
        self.settings = settings
        self._topics = topics
        self._random = random
        self._large = LargeWrites(runtime)

    async def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        api_version: int,
        client_id: str,
        client_host: str,
        may_describe: Callable[[str], bool],
    ) -> ConsumerGroupHeartbeatResponse:
        """Handles ConsumerGroupHeartbeat; waits until the state in the response is stored.

        `may_describe` returns True if the client may DESCRIBE a topic that its regular expression matches.
        """
        group_id = request.group_id
        check_request(request, api_version, self.settings)
        request.member_id = request.member_id or random_uuid_text(self._random)
        names = request.subscribed_topic_names or ()
        if len(names) > PIECE:
            await in_turns(self._topics.prepare(names))
        _, shard, now_ms = self._runtime.find_now(group_id)
        client = client_id, client_host, may_describe
        if modern_writes.is_long_consumer_heartbeat(shard, request, now_ms):
            write = await self._large.begin_write(modern_writes.CONSUMER_HEARTBEAT, request, *client)
        else:
            write = self._runtime.begin_write(group_id, modern_writes.consumer_heartbeat, request, *client)
        if write.result.regex_refresh is not None:
            self.refresh_regexes(write.result.regex_refresh)
        response: ConsumerGroupHeartbeatResponse = await self._runtime.confirmed(group_id, write)
        return response

    def refresh_regexes(self, refresh: RegexRefresh) -> None:
        """Finds the topics that match the regular expressions of a group, and stores them in the group, in a task."""
        if self._runtime.nursery is not None:
            self._runtime.nursery.start_soon(self._resolve_regexes, refresh)

    async def _resolve_regexes(self, refresh: RegexRefresh) -> None:
        await trio.lowlevel.checkpoint()
        started_ms, version = self._runtime.now_ms(), self._topics.version
        visible = await in_turns(matching_topics(refresh.regexes, self._topics, refresh.may_describe))
        # Another broker that has become the coordinator resolves them itself.
        with suppress(CoordinatorError):
            found = ResolvedRegexes(refresh.group_id, visible, version, started_ms)
            await self._large.begin_write(modern_writes.REGEXES_RESOLVED, found)
