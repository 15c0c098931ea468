"""What the replicas of one broker share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.logstore.errors import StorageError
    from pykbroker.replication.leadership import BrokersInSight, Proposal
    from pykbroker.replication.partition import Partition


class ReplicaEnvironment:
    """What all replicas of a broker share.

    Attributes:
        brokers: what leaders know of other brokers.
        now: the clock of lag times, in seconds; it only goes forward.
        is_disk_full: whether what others have too is given up: nothing is taken for it, and nothing fetched.
        on_storage_error: is told of a write that failed.
        propose: takes a changed in-sync set to the controller, and calls `on_proposal_accepted` or
            `on_proposal_rejected` with what comes of it.
    """

    __slots__ = ("brokers", "is_disk_full", "now", "on_storage_error", "propose")

    def __init__(self, brokers: BrokersInSight, now: Callable[[], float]) -> None:
        self.brokers = brokers
        self.now = now
        self.is_disk_full = False
        self.on_storage_error: Callable[[StorageError], None] = _nobody_cares
        self.propose: Callable[[Partition, Proposal], None] = _keep_for_later

    @property
    def node_id(self) -> int:
        return self.brokers.node_id


def _nobody_cares(error: StorageError) -> None:
    """A broker that is alone has nobody to hand anything to."""


def _keep_for_later(partition: Partition, proposal: Proposal) -> None:
    """Nobody takes proposals to the controller."""
