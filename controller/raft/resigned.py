"""Resigned: a leader that has given up its epoch. EndOfEpoch: its EndQuorumEpoch requests to the voters (KIP-595).

A resigned node does not lead, grants no votes in its epoch, and waits for another leader. After its own election
timeout it becomes prospective; voters that have not received EndQuorumEpoch by then notice by their own timeouts.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.controller.raft.messages import NO_LEADER, EndQuorumEpochRequest, EndQuorumEpochResponse
from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.controller.raft.replica import Replica, RoleState
from pykbroker.controller.raft.roles import NEVER_MS, Role
from pykbroker.protocol.error_codes import ErrorCode


class Resigned(RoleState):
    """This node led the present epoch, before a restart or until it resigned."""

    role = Role.RESIGNED
    may_grant_votes = False

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self.deadline_ms = replica.now_ms + replica.random_timeout()


class EndOfEpoch:
    """EndQuorumEpoch requests to the voters, repeated to those that do not respond.

    It outlives the role: a node that resigned because it is no voter any more is UNATTACHED at once.
    """

    __slots__ = ("_epoch", "_replica", "_retry_at_ms", "_successors", "_unaware", "_until_ms")

    def __init__(self, replica: Replica, successors: Sequence[ReplicaKey], until_ms: int) -> None:
        """Sends the first requests.

        Args:
            successors: voters in the order in which they should be candidates; none after a restart, which lost them.
            until_ms: when to stop, at the end of this node's election timeout.
        """
        self._replica = replica
        self._epoch = replica.epoch
        self._successors = tuple(successors)
        self._unaware = [node_id for node_id in replica.voters.ids if node_id != replica.node_id]
        self._until_ms = until_ms
        self._send()

    def _send(self) -> None:
        replica = self._replica
        self._retry_at_ms = replica.now_ms + replica.settings.retry_ms
        for node_id in self._unaware:
            replica.send(node_id, EndQuorumEpochRequest(replica.node_id, self._epoch, self._successors))

    @property
    def is_over(self) -> bool:
        """True when every voter has responded, time is up, or this node has a leader, a later epoch or a candidacy."""
        replica = self._replica
        is_waiting = replica.role in (Role.RESIGNED, Role.UNATTACHED) and replica.leader_id == NO_LEADER
        is_current = is_waiting and replica.epoch == self._epoch
        return not (is_current and self._unaware and replica.now_ms < self._until_ms)

    @property
    def next_deadline_ms(self) -> int:
        return NEVER_MS if self.is_over else min(self._retry_at_ms, self._until_ms)

    def tick(self) -> None:
        if self._replica.now_ms >= self._retry_at_ms:
            self._send()

    def on_response(self, response: EndQuorumEpochResponse) -> None:
        is_known = response.error is ErrorCode.NONE and response.epoch == self._epoch
        if is_known and response.source in self._unaware:
            self._unaware.remove(response.source)

    def on_unreachable(self, node_id: int, *, retry_at_ms: int) -> None:
        """Repeats the requests sooner, as the one that got no response may have been EndQuorumEpoch."""
        if node_id in self._unaware:
            self._retry_at_ms = min(self._retry_at_ms, retry_at_ms)
