"""What the replicas of one broker share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.replication.leadership import BrokersInSight, Proposal
    from pykbroker.replication.partition import Partition


class ReplicaEnvironment:
    """What all replicas of a broker share.

    Attributes:
        brokers: what leaders know of other brokers.
        now: the clock of lag times, in seconds; it only goes forward.
        propose: takes a changed in-sync set to the controller, and calls `on_proposal_accepted` or
            `on_proposal_rejected` with what comes of it.
    """

    __slots__ = ("brokers", "now", "propose")

    def __init__(self, brokers: BrokersInSight, now: Callable[[], float]) -> None:
        self.brokers = brokers
        self.now = now
        self.propose: Callable[[Partition, Proposal], None] = _keep_for_later

    @property
    def node_id(self) -> int:
        return self.brokers.node_id


def _keep_for_later(partition: Partition, proposal: Proposal) -> None:
    """Nobody takes proposals to the controller."""
