"""State that the replicas of one broker share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.logstore.errors import StorageError
    from pykbroker.replication.leadership import BrokersInSight, Leadership, Proposal


class ProposingPartition(Protocol):
    """A leader's partition, as far as a proposed in-sync set on its way to the controller needs it."""

    topic: str
    topic_id: bytes
    partition: int
    leadership: Leadership | None

    def on_proposal_accepted(
        self, proposal: Proposal, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        """The controller has taken a proposal; `isr` is what came of it."""

    def on_proposal_rejected(self, proposal: Proposal) -> None:
        """The controller has refused a proposal and not carried it out."""


class ReplicaEnvironment:
    """State that all replicas of a broker share.

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
        self.on_storage_error: Callable[[StorageError], None] = _ignore_storage_error
        self.propose: Callable[[ProposingPartition, Proposal], None] = _drop_proposal

    @property
    def node_id(self) -> int:
        return self.brokers.node_id


def _ignore_storage_error(error: StorageError) -> None:
    """A broker that is alone has no other broker to give leadership to."""


def _drop_proposal(partition: ProposingPartition, proposal: Proposal) -> None:
    """Without a ReplicaManager no proposal reaches the controller."""
