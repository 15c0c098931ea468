"""Changes of the voters as requests to this node: who asks waits here for raft/voter_changes.py's answer (KIP-853)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from pykbroker.controller.proposals import TIMEOUT_MIN_MS
from pykbroker.controller.raft.core import RaftCore
from pykbroker.controller.raft.output import Output
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterSet
from pykbroker.controller.raft.roles import Role
from pykbroker.controller.raft.voter_changes import ChangeAnswer
from pykbroker.protocol.error_codes import ErrorCode

log = logging.getLogger(__name__)

KRaftVersions = tuple[int, int]

Probe = Callable[[Voter], Awaitable["KRaftVersions | None"]]
"""Asks the node at a voter's address for the kraft.versions it can run, None if it names none.

Raises ProbeFailed when it does not answer.
"""


class ProbeFailed(Exception):
    """The node at a voter's address does not answer, or with an error."""


class KRaftVersionAnswer(NamedTuple):
    """`why_not` is None when the level holds; `end_offset` is where the log must be committed to before it is final."""

    why_not: str | None
    end_offset: int


class _Waiter:
    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: ChangeAnswer | None = None


class VoterRequests:
    """See the module's text.

    Args:
        act: calls a function with the state machine and the time, and does what its output asks for.
        probe: see above; None where there is nobody to ask.
        on_voters: is told who votes, first and whenever that changes.
    """

    def __init__(
        self,
        act: Callable[[Callable[[RaftCore, int], Output]], None],
        probe: Probe | None,
        on_voters: Callable[[VoterSet], None] | None,
    ) -> None:
        self._act = act
        self._probe = probe
        self._on_voters = on_voters
        self._wanted: list[Voter] = []
        self._count = 0
        self._waiting: dict[int, _Waiter] = {}

    async def add(self, voter: Voter, timeout_ms: int, *, acks_commit: bool) -> ChangeAnswer:
        """Makes an observer that has caught up a voter."""
        return await self._ask(
            lambda number, core, now_ms: core.add_voter(number, voter, now_ms, acks_commit=acks_commit), timeout_ms
        )

    async def remove(self, key: ReplicaKey, timeout_ms: int) -> ChangeAnswer:
        """Removes a voter; it goes on as an observer."""
        return await self._ask(lambda number, core, now_ms: core.remove_voter(number, key, now_ms), timeout_ms)

    async def update(self, voter: Voter, timeout_ms: int) -> ChangeAnswer:
        """Takes note of a voter's endpoints and versions, as it says itself."""
        return await self._ask(lambda number, core, now_ms: core.update_voter(number, voter, now_ms), timeout_ms)

    async def _ask(self, begin: Callable[[int, RaftCore, int], Output], timeout_ms: int) -> ChangeAnswer:
        self._count = number = self._count + 1
        waiter = self._waiting[number] = _Waiter()
        try:
            self._act(lambda core, now_ms: begin(number, core, now_ms))
            with trio.move_on_after(max(timeout_ms, TIMEOUT_MIN_MS) / 1000):
                await waiter.done.wait()
        finally:
            del self._waiting[number]
        return waiter.answer or ChangeAnswer(number, ErrorCode.REQUEST_TIMED_OUT, "The request timed out.")

    def upgrade(self, level: int, *, validate_only: bool) -> KRaftVersionAnswer | None:
        """Raises kraft.version; None when this node does not lead."""
        found: list[KRaftVersionAnswer] = []

        def act(core: RaftCore, now_ms: int) -> Output:
            if core.role is not Role.LEADER:
                return Output()
            why_not, output = core.upgrade_kraft_version(level, now_ms, validate_only=validate_only)
            found.append(KRaftVersionAnswer(why_not, core.log.end_offset))
            return output

        self._act(act)
        return found[0] if found else None

    def take(self, output: Output) -> bool:
        """Hands on what an output says of voters: answers to who waits for them. Whether there is somebody to probe."""
        if output.voters is not None:
            log.info("the voters are %s now", ", ".join(map(str, output.voters.ids)))
            self.tell_voters(output.voters)
        self._wanted += output.probes
        for answer in output.answers:
            waiter = self._waiting.get(answer.change_id) if isinstance(answer.change_id, int) else None
            if waiter is not None:
                waiter.answer = answer
                waiter.done.set()
        return bool(self._wanted)

    def tell_voters(self, voters: VoterSet) -> None:
        if self._on_voters is not None:
            self._on_voters(voters)

    def start_probes(self, nursery: trio.Nursery) -> None:
        """Begins to ask the nodes that the state machine wants to know about."""
        while self._wanted:
            voter = self._wanted.pop()
            if self._probe is not None:
                nursery.start_soon(self._ask_node, self._probe, voter)

    async def _ask_node(self, ask: Probe, voter: Voter) -> None:
        versions: KRaftVersions | None = None
        error = ErrorCode.NONE
        try:
            versions = await ask(voter)
        except ProbeFailed:
            error = ErrorCode.BROKER_NOT_AVAILABLE
        self._act(lambda core, now_ms: core.probed(voter.key.node_id, versions, now_ms, error))
