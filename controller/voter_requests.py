"""VoterRequests: requests to this node to change the voters, and the ApiVersions requests that these need (KIP-853)."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from pykbroker.controller.command_queue import TIMEOUT_MIN_MS
from pykbroker.controller.raft.local_messages import (
    AddVoter,
    ChangeAnswer,
    LocalMessage,
    RemoveVoter,
    UpdateVoter,
    UpgradeKRaftVersion,
    VersionsReceived,
)
from pykbroker.controller.raft.output import Output
from pykbroker.controller.raft.quorum import ReplicaKey, Voter
from pykbroker.controller.transport import KRaftVersions, NoResponse, Transport
from pykbroker.protocol.error_codes import ErrorCode

log = logging.getLogger(__name__)


class _Waiter:
    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: ChangeAnswer | None = None


class VoterRequests:
    """Requests to change the voters or kraft.version (KIP-853): each waits for the ChangeAnswer of the state machine.

    Without an answer within `timeout_ms` the result is REQUEST_TIMED_OUT; the change may still be made.

    Args:
        step: passes a message to the state machine and executes its output.
        transport: sends ApiVersions requests, and gets the voters.
    """

    def __init__(self, step: Callable[[LocalMessage], None], transport: Transport) -> None:
        self._step = step
        self._transport = transport
        self._wanted: list[Voter] = []
        self._count = 0
        self._waiting: dict[int, _Waiter] = {}

    async def add(self, voter: Voter, timeout_ms: int, *, acks_commit: bool) -> ChangeAnswer:
        """Adds a voter: an observer that has caught up."""
        return await self._change_voters(lambda number: AddVoter(number, voter, acks_commit), timeout_ms)

    async def remove(self, key: ReplicaKey, timeout_ms: int) -> ChangeAnswer:
        """Removes a voter, which becomes an observer."""
        return await self._change_voters(lambda number: RemoveVoter(number, key), timeout_ms)

    async def update(self, voter: Voter, timeout_ms: int) -> ChangeAnswer:
        """Replaces endpoints and supported kraft.versions of a voter."""
        return await self._change_voters(lambda number: UpdateVoter(number, voter), timeout_ms)

    async def upgrade(self, level: int, timeout_ms: int, *, validate_only: bool) -> ChangeAnswer:
        """Raises kraft.version. The answer comes before the record is committed."""
        return await self._change_voters(lambda number: UpgradeKRaftVersion(number, level, validate_only), timeout_ms)

    async def _change_voters(self, message: Callable[[int], LocalMessage], timeout_ms: int) -> ChangeAnswer:
        self._count = number = self._count + 1
        waiter = self._waiting[number] = _Waiter()
        try:
            self._step(message(number))
            with trio.move_on_after(max(timeout_ms, TIMEOUT_MIN_MS) / 1000):
                await waiter.done.wait()
        finally:
            del self._waiting[number]
        return waiter.answer or ChangeAnswer(number, ErrorCode.REQUEST_TIMED_OUT)

    def take(self, output: Output) -> bool:
        """Passes answers to the waiting requests. True if nodes must be asked for their versions."""
        if output.voters is not None:
            log.info("the voters of the metadata quorum are now %s", ", ".join(map(str, output.voters.ids)))
            self._transport.set_voters(output.voters)
        self._wanted += output.probes
        for answer in output.answers:
            waiter = self._waiting.get(answer.change_id) if isinstance(answer.change_id, int) else None
            if waiter is not None:
                waiter.answer = answer
                waiter.done.set()
        return bool(self._wanted)

    def start_probes(self, nursery: trio.Nursery) -> None:
        """Sends the ApiVersions requests that the state machine needs."""
        while self._wanted:
            nursery.start_soon(self._probe, self._wanted.pop())

    async def _probe(self, voter: Voter) -> None:
        versions: KRaftVersions | None = None
        error = ErrorCode.NONE
        try:
            versions = await self._transport.supported_versions(voter)
        except NoResponse:
            error = ErrorCode.BROKER_NOT_AVAILABLE
        self._step(VersionsReceived(voter.key.node_id, versions, error))
