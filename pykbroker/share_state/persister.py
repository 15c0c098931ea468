"""Access to the share coordinator of a share partition, in this process or on another broker (KIP-932).

A call without a coordinator is tried again, with a growing pause and for up to `DEADLINE_S`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.coordination.runtime import STORED
from pykbroker.errors import CoordinatorError, answered_error
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from pykbroker.share_state.state import PartitionState, Refusal, SharePartitionKey, WriteState, batches_of

if TYPE_CHECKING:
    from pykbroker.coordination.broker_sender import Connect, NodeConnection
    from pykbroker.coordination.runtime import Write
    from pykbroker.share_state.coordinator import ShareCoordinator
    from pykbroker.share_state.state import WriteOutcome

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
DEADLINE_S = 30.0
"""Seconds after which a call gives up (P-365).

Kafka makes five attempts, with pauses of 2, 4, 8 and 16 s, each up to a fifth longer or shorter. The pauses here are
shorter, so that a call succeeds soon after its coordinator is there; it fails at the same time as Kafka's."""
REQUEST_TIMEOUT_MS = 5_000

RETRIABLE = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        # The share coordinator may have older metadata than its caller.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)

COORDINATOR_MISSING = Refusal(
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "Error in find coordinator. Exhausted max retries to find coordinator without success.",
)
"""Outcome of an attempt for which there was no share coordinator to be asked."""

Found: TypeAlias = "PartitionState | Refusal | None"
"""Response of a share coordinator: a state, an error, or None for success without a state."""


class SharePersister:
    """Calls to share coordinators, for leaders of share partitions and the group coordinator.

    Args:
        coordinator: the share coordinator of this broker; it finds the coordinator of each share partition.
        node_id: id of this broker.
        connect: returns a connection to another broker.
        request_topic_creation: starts the creation of `__share_group_state`.
    """

    def __init__(
        self,
        coordinator: ShareCoordinator,
        node_id: int,
        connect: Connect,
        request_topic_creation: Callable[[], None],
    ) -> None:
        self._coordinator = coordinator
        self._node_id = node_id
        self._connect = connect
        self._request_topic_creation = request_topic_creation
        self._connections: dict[int, tuple[NodeConnection, trio.Lock]] = {}

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Refusal | None:
        """Creates the state of a share partition, or replaces it; returns the error, with a client's text."""
        m = initialize_share_group_state
        asked = m.PartitionData(partition=key.partition, state_epoch=state_epoch, start_offset=start_offset)
        topic = m.InitializeStateData(topic_id=key.topic_id, partitions=[asked])
        request = m.InitializeShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        found = await self._call_coordinator(key, request, self._coordinator.initialize, state_epoch, start_offset)
        return _refusal(found, "initialize")

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> PartitionState | Refusal:
        """The state of a share partition; requests with a smaller leader epoch are refused from now on."""
        m = read_share_group_state
        asked = m.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = m.ReadStateData(topic_id=key.topic_id, partitions=[asked])
        request = m.ReadShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        found = await self._call_coordinator(key, request, self._coordinator.read, leader_epoch)
        assert found is not None
        return found

    def begin_write(self, key: SharePartitionKey, write: WriteState) -> WriteOutcome:
        """As `write`; returns the outcome if it is known at once, else a call that waits for it.

        It is known at once if the share coordinator is this broker and its topic has one replica: no task is needed.
        """
        if self._coordinator.runtime.leader(key.coordinator_key) != self._node_id:
            return partial(self.write, key, write)
        try:
            begun = self._coordinator.begin_write(key, write)
        except CoordinatorError as error:
            found: Found = Refusal(error.error_code)
        else:
            if begun.append is not STORED or not begun.result.records:
                return partial(self._finish_write, key, write, begun)
            found = begun.result.response
        return partial(self.write, key, write) if _error(found) in RETRIABLE else _refusal(found, "write")

    async def _finish_write(self, key: SharePartitionKey, write: WriteState, begun: Write[Any]) -> Refusal | None:
        try:
            found: Found = await self._coordinator.finish(key, begun)
        except CoordinatorError as error:
            found = Refusal(error.error_code)
        return await self.write(key, write) if _error(found) in RETRIABLE else _refusal(found, "write")

    async def write(self, key: SharePartitionKey, write: WriteState) -> Refusal | None:
        """Stores what has changed of a share partition; returns the error, with a client's text."""
        m = write_share_group_state
        asked = m.PartitionData(
            partition=key.partition,
            state_epoch=write.state_epoch,
            leader_epoch=write.leader_epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.delivery_complete_count,
            state_batches=[read_share_group_state.StateBatch(**batch._asdict()) for batch in write.batches],
        )
        topic = m.WriteStateData(topic_id=key.topic_id, partitions=[asked])
        request = m.WriteShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        return _refusal(await self._call_coordinator(key, request, self._coordinator.write, write), "write")

    async def delete(self, key: SharePartitionKey) -> ErrorCode:
        """Deletes the state of a share partition, if there is one."""
        m = delete_share_group_state
        topic = m.DeleteStateData(topic_id=key.topic_id, partitions=[m.PartitionData(partition=key.partition)])
        request = m.DeleteShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        return _error(await self._call_coordinator(key, request, self._coordinator.delete))

    async def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> PartitionState | Refusal:
        """The state of a share partition without its batches; with start offset -1 if there is none."""
        m = read_share_group_state_summary
        asked = m.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = m.ReadStateSummaryData(topic_id=key.topic_id, partitions=[asked])
        request = m.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=[topic])
        found = await self._call_coordinator(key, request, self._coordinator.read_summary)
        assert found is not None
        return found

    async def _call_coordinator(
        self, key: SharePartitionKey, request: Any, local: Callable[..., Awaitable[Found]], *arguments: Any
    ) -> Found:
        """Calls the coordinator of a share partition; repeats retriable errors for up to `DEADLINE_S`.

        If this broker is the coordinator, calls `local` with the key and the `arguments`; else sends `request`.
        """
        deadline = trio.current_time() + DEADLINE_S
        pause_s = FIRST_PAUSE_S
        while True:
            found = await self._call_once(key, request, local, *arguments)
            if _error(found) not in RETRIABLE or trio.current_time() + pause_s > deadline:
                return found
            await trio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _call_once(
        self, key: SharePartitionKey, request: Any, local: Callable[..., Awaitable[Found]], *arguments: Any
    ) -> Found:
        leader_id = self._coordinator.runtime.leader(key.coordinator_key)
        if leader_id is None:
            self._request_topic_creation()
            return COORDINATOR_MISSING
        if leader_id < 0:
            return COORDINATOR_MISSING
        if leader_id == self._node_id:
            try:
                return await local(key, *arguments)
            except CoordinatorError as error:
                return Refusal(error.error_code)
        try:
            if leader_id not in self._connections:
                self._connections[leader_id] = self._connect(leader_id), trio.Lock()
            connection, lock = self._connections[leader_id]
            async with lock:
                response = await connection.request(request, REQUEST_TIMEOUT_MS)
        except (NodeUnreachable, ProtocolError) as error:
            log.info("the share coordinator on broker %d does not answer: %s", leader_id, error)
            # The broker may come back with another address.
            self._connections.pop(leader_id, None)
            return Refusal(ErrorCode.NETWORK_EXCEPTION)
        return _found(response)


def _found(response: Any) -> Found:
    """The outcome of a request about one share partition."""
    if not response.results or not response.results[0].partitions:
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    result = response.results[0].partitions[0]
    if result.error_code != ErrorCode.NONE:
        return Refusal(answered_error(result.error_code), result.error_message)
    if isinstance(result, read_share_group_state.PartitionResult):
        return PartitionState(result.state_epoch, result.start_offset, batches_of(result))
    if isinstance(result, read_share_group_state_summary.PartitionResult):
        count = result.delivery_complete_count
        return PartitionState(result.state_epoch, result.start_offset, (), count, result.leader_epoch)
    return None


def _error(found: Found) -> ErrorCode:
    return found.code if isinstance(found, Refusal) else ErrorCode.NONE


def _refusal(found: Found, operation: str) -> Refusal | None:
    """The error of an operation whose response has no state, with Kafka's text for clients; None for success."""
    if not isinstance(found, Refusal) or found is COORDINATOR_MISSING:
        return None if isinstance(found, PartitionState) else found
    code, text = found
    if code in RETRIABLE:
        text = f"Exhausted max retries to complete {operation} state RPC without success."
    return Refusal(code, f"Error in {operation} state RPC. {text or TEXTS.get(code, code.name)}")
