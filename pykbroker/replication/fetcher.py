"""Fetcher: fetches from one leader, over its own connection, all partitions of this broker that this leader leads.

The records of a response are copied once: from the receive buffer of the socket into the mappings of the logs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.controller.turns import in_turns
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pykbroker.protocol.steps import PIECE
from pykbroker.replication.followed_partition import FollowedPartition, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.coordination.broker_sender import NodeConnection
    from pykbroker.protocol.fields import Message
    from pykbroker.replication.follower_fetch_session import FetchSessionHandler
    from pykbroker.wall_clock import WallClock

log = logging.getLogger(__name__)


class Fetcher:
    """Task that fetches from one leader.

    Args:
        leader_id: id of the leader.
        session: the fetch session with its partitions; call `wake_up` after changing it.
        connect: returns a client of the leader whose response bytes are valid until its next request; raises
            NodeUnreachable.
        broker_epoch: returns the current epoch of this broker.
        clock: time of day, for log files.
        node_id: id of this broker.
        backoff_s: pause in seconds after a failure (`replica.fetch.backoff.ms`).
        timeout_ms: timeout of one request (`replica.socket.timeout.ms`).
    """

    def __init__(
        self,
        leader_id: int,
        session: FetchSessionHandler,
        connect: Callable[[], NodeConnection],
        broker_epoch: Callable[[], int],
        clock: WallClock,
        *,
        node_id: int,
        backoff_s: float,
        timeout_ms: int,
    ) -> None:
        self.session = session
        self._leader_id = leader_id
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._node_id = node_id
        self._backoff_s = backoff_s
        self._timeout_ms = timeout_ms
        self._changed = trio.Event()
        self._client: NodeConnection | None = None
        self._is_failing = False

    def wake_up(self) -> None:
        """Wakes the task after a change of the session's partitions."""
        self._changed.set()

    async def run(self) -> None:
        """Fetches until it is cancelled."""
        try:
            while True:
                await self._fetch()
        finally:
            await self._close()

    async def _fetch(self) -> None:
        await in_turns(self.session.prepare(trio.current_time(), self._clock.now_ms()))
        now = trio.current_time()
        self._changed = trio.Event()
        request = await in_turns(self.session.next_request(now, self._clock.now_ms(), self._broker_epoch()))
        if request is None:
            ready_at = self.session.ready_at()
            # A partition that is ready and yet not in the request is held back by the throttle.
            wake_at = float("inf") if ready_at is None else max(ready_at, now + self._backoff_s / 10)
            wake_at = min(wake_at, self.session.throttled_until)
            with trio.move_on_at(wake_at):
                await self._changed.wait()
            return
        count = sum([len(topic.partitions) for topic in request.topics])
        count += sum([len(topic.partitions) for topic in request.forgotten_topics_data])
        response = await self._send_request(request, is_long=count > PIECE)
        now = trio.current_time()
        if response is None:
            self.session.on_failure(now)
            return
        for followed in await in_turns(self.session.on_response(response, now, self._clock.now_ms())):
            if not await self._list_leader_offsets(followed):
                self.session.delay(followed, trio.current_time())

    async def _send_request(self, request: Message, *, is_long: bool = False) -> Any:
        """The leader's response, None if the request failed; of consecutive failures only the first is logged."""
        try:
            if self._client is None:
                self._client = self._connect()
            response = await self._client.request(request, self._timeout_ms, is_long=is_long)
        except (NodeUnreachable, ProtocolError) as error:
            if not self._is_failing:
                log.warning("leader %d cannot be followed: %s", self._leader_id, error)
            self._is_failing = True
            await self._close()
            return None
        if self._is_failing:
            log.info("leader %d answers again", self._leader_id)
            self._is_failing = False
        return response

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with trio.CancelScope(shield=True):
                await client.close()

    async def _list_leader_offsets(self, followed: FollowedPartition) -> bool:
        """Requests start and end of the leader's log for a partition out of its range; True if it can fetch again."""
        start = await self._list_offset(followed, EARLIEST)
        end = None if start is None else await self._list_offset(followed, LATEST)
        if start is None or end is None:
            return False
        return followed.on_offsets(start, end, self._clock.now_ms()) is Outcome.GO_ON

    async def _list_offset(self, followed: FollowedPartition, timestamp: int) -> int | None:
        partition = followed.partition
        asked = ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=followed.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._node_id, topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])]
        )
        response = await self._send_request(request)
        if response is None:
            return None
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code == ErrorCode.NONE:
                    offset: int = answer.offset
                    return offset
                code = answered_error(answer.error_code)
                log.info("%s: leader %d refuses ListOffsets: %s", partition, self._leader_id, code.name)
        return None
