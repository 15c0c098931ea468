"""A leader that has given up its epoch tells every voter so, until each has said that it knows (KIP-595).

It does not lead any more, votes for nobody in that epoch, and waits for another to be elected. When its own election
timeout has run out it stands itself, and who has not heard of the end by then will find it out alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pykbroker.controller.raft.messages import NO_LEADER, EndQuorumEpochRequest, EndQuorumEpochResponse
from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.controller.raft.roles import NEVER_MS, Role
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.controller.raft.core import RaftCore


class Resignation:
    """The end of an epoch, and who has yet to hear of it.

    Attributes:
        epoch: the epoch that this node led.
        successors: the voters in the order in which they should stand; none after a restart, which forgot it.
        until_ms: when this node stops saying it.
    """

    __slots__ = ("epoch", "retry_at_ms", "successors", "unaware", "until_ms")

    def __init__(self, epoch: int, successors: Sequence[ReplicaKey], unaware: Sequence[int], until_ms: int) -> None:
        self.epoch = epoch
        self.successors = tuple(successors)
        self.unaware = list(unaware)
        self.until_ms = until_ms
        self.retry_at_ms = NEVER_MS


def begin(core: RaftCore, successors: Sequence[ReplicaKey], until_ms: int) -> None:
    """Tells the voters that the epoch of this node is over. `until_ms`: when its election timeout runs out."""
    unaware = [node_id for node_id in core.voters.ids if node_id != core.key.node_id]
    core.resignation = Resignation(core.epoch, successors, unaware, until_ms)
    _tell(core, core.resignation)


def tick(core: RaftCore) -> None:
    resignation = _current(core)
    if resignation is None:
        core.resignation = None
    elif core.now_ms >= resignation.retry_at_ms:
        _tell(core, resignation)


def next_deadline_ms(core: RaftCore) -> int:
    resignation = _current(core)
    return NEVER_MS if resignation is None else min(resignation.retry_at_ms, resignation.until_ms)


def on_end_quorum_epoch_response(core: RaftCore, response: EndQuorumEpochResponse) -> None:
    resignation = core.resignation
    if not core.follow_if_later(response.epoch, response.leader_id) or resignation is None:
        return
    is_known = response.error is ErrorCode.NONE and response.epoch == resignation.epoch
    if is_known and response.source in resignation.unaware:
        resignation.unaware.remove(response.source)


def on_unreachable(core: RaftCore, node_id: int, *, again_ms: int) -> None:
    """A request to a node had no answer: if it was this one, it goes out again at a time, not only after the usual."""
    resignation = core.resignation
    if resignation is not None and node_id in resignation.unaware:
        resignation.retry_at_ms = min(resignation.retry_at_ms, again_ms)


def _current(core: RaftCore) -> Resignation | None:
    """The resignation, while it matters: nobody leads a later epoch, or is being elected, as far as is known here."""
    resignation = core.resignation
    if resignation is None or not resignation.unaware or core.now_ms >= resignation.until_ms:
        return None
    is_waiting = core.role in (Role.RESIGNED, Role.UNATTACHED) and core.leader_id == NO_LEADER
    return resignation if is_waiting and core.epoch == resignation.epoch else None


def _tell(core: RaftCore, resignation: Resignation) -> None:
    resignation.retry_at_ms = core.now_ms + core.settings.retry_ms
    for node_id in resignation.unaware:
        core.send(node_id, EndQuorumEpochRequest(core.key.node_id, resignation.epoch, resignation.successors))
