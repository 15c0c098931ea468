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


class Proposals(Protocol):
    """The way of changed in-sync sets to the controller."""

    def submit(self, partition: ProposingPartition, proposal: Proposal) -> None:
        """Takes a proposal to the controller, and tells the partition what comes of it."""


class StorageFailures(Protocol):
    """Failures of this broker's storage."""

    @property
    def is_disk_full(self) -> bool:
        """True while replicas that others have too are given up: no record is taken for them, and none fetched."""

    def report(self, error: StorageError) -> None:
        """A record could not be written, or a log not made."""


class NoOtherBroker:
    """Proposals and storage failures of a broker that is alone: it has no broker to give leadership to."""

    is_disk_full = False

    def submit(self, partition: ProposingPartition, proposal: Proposal) -> None:
        """Drops the proposal."""

    def report(self, error: StorageError) -> None:
        """Does nothing: the request that failed is answered with the error."""


_ALONE = NoOtherBroker()


class ReplicaEnvironment:
    """State that all replicas of a broker share.

    Attributes:
        brokers: what leaders know of other brokers.
        now: the clock of lag times, in seconds; it only goes forward.
        proposals: takes changed in-sync sets to the controller.
        storage_failures: is told of writes that failed.
    """

    __slots__ = ("brokers", "now", "proposals", "storage_failures")

    def __init__(
        self,
        brokers: BrokersInSight,
        now: Callable[[], float],
        proposals: Proposals = _ALONE,
        storage_failures: StorageFailures = _ALONE,
    ) -> None:
        self.brokers = brokers
        self.now = now
        self.proposals = proposals
        self.storage_failures = storage_failures

    @property
    def node_id(self) -> int:
        return self.brokers.node_id
