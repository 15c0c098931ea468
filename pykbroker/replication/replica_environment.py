"""State that the replicas of one broker share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.logstore.errors import StorageError
    from pykbroker.replication.leadership import Leadership, Proposal, RegisteredBrokers


class ProposingPartition(Protocol):
    """The part of a leader's `Partition` that `AlterPartitionManager` uses."""

    topic: str
    topic_id: bytes
    partition: int
    leadership: Leadership | None

    def on_proposal_accepted(
        self, proposal: Proposal, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        """Applies the in-sync set that the controller has committed for a proposal."""

    def on_proposal_rejected(self, proposal: Proposal) -> None:
        """Drops a proposal that the controller has refused and not applied."""


class Proposals(Protocol):
    """Sender of changed in-sync sets to the controller."""

    def submit(self, partition: ProposingPartition, proposal: Proposal) -> None:
        """Sends a proposal to the controller, and passes the result to the partition."""


class StorageFailures(Protocol):
    """Failures of this broker's storage."""

    @property
    def is_disk_full(self) -> bool:
        """True while this broker gives up replicas that others hold too: it neither appends to them nor fetches."""

    def report(self, error: StorageError) -> None:
        """Reports that a file of a log, or of its directory, could not be written or read."""


class NoOtherBroker:
    """Proposals and storage failures of a single broker, which has no other broker to give leadership to."""

    is_disk_full = False

    def submit(self, partition: ProposingPartition, proposal: Proposal) -> None:
        """Drops the proposal."""

    def report(self, error: StorageError) -> None:
        """Does nothing: the request that failed is answered with the error."""


_ALONE = NoOtherBroker()


class ReplicaEnvironment:
    """State that all replicas of a broker share.

    Attributes:
        brokers: registered brokers, for the in-sync sets of leaders.
        now: returns the time for lags, in seconds of a monotonic clock.
        proposals: sends changed in-sync sets to the controller.
        storage_failures: receives failed writes and reads.
    """

    __slots__ = ("brokers", "now", "proposals", "storage_failures")

    def __init__(
        self,
        brokers: RegisteredBrokers,
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
