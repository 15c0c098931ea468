"""A partition leader's state of its followers: their log end offsets, the in-sync set, limits of the high watermark.

Pure: time comes as an argument, in seconds of a monotonic clock. The rules are those of KIP-16 (lag of in-sync
replicas), KIP-497 (an in-sync set that is proposed to the controller and not confirmed yet) and KIP-903 (epochs of
brokers in the proposal):

* A follower is caught up while its log ends where the leader's does, or did so within `replica.lag.time.max.ms`.
* While a set is proposed, both it and the confirmed one count: the high watermark waits for the members of either.
* The high watermark also waits for a follower that is caught up but not in the set yet, or that could never join it.
  It does not wait for one whose broker reported the log directory as lost (KIP-858), as on a full disk: it cannot join.
* Below `min.insync.replicas` the high watermark does not move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.java_order import scala_number_order
from pykbroker.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykbroker.controller.metadata.image import BrokerImage, PartitionImage

NEVER = float("-inf")
NO_BROKER_EPOCH = -1


class RegisteredBrokers:
    """Registered brokers of the cluster, for the rules of in-sync sets; one object for all partitions of a broker.

    Attributes:
        brokers: registered brokers by id, of the newest image; replaced as the metadata changes.
        replica_lag_time_max_s: time in seconds that a follower may lag and still be in sync.
    """

    __slots__ = ("brokers", "node_id", "replica_lag_time_max_s")

    def __init__(self, node_id: int, replica_lag_time_max_s: float = 30.0) -> None:
        self.node_id = node_id
        self.replica_lag_time_max_s = replica_lag_time_max_s
        self.brokers: Mapping[int, BrokerImage] = {}

    def is_alive(self, broker_id: int) -> bool:
        """True if the broker is registered and not fenced."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    def epoch(self, broker_id: int) -> int:
        """Epoch of a broker that is alive, else -1."""
        broker = self.brokers.get(broker_id)
        return NO_BROKER_EPOCH if broker is None or broker.is_fenced else broker.epoch

    def may_join(self, follower: Follower) -> bool:
        """True if a follower may join an in-sync set.

        Its broker is neither fenced nor in controlled shutdown, and its last fetch had the broker's current epoch.
        """
        broker = self.brokers.get(follower.broker_id)
        if broker is None or not broker.is_active or follower.broker_epoch is None:
            return False
        return follower.broker_epoch in (NO_BROKER_EPOCH, broker.epoch)


class Follower:
    """Progress of one follower, taken from its fetches.

    Attributes:
        log_end_offset, log_start_offset: of its log; -1 before its first fetch from this leader.
        broker_epoch: broker epoch of its last fetch; -1 if the fetch's version has none, None before the first one.
        is_lost: True while its replica is in the lost directory, so that its broker cannot write it.
    """

    __slots__ = (
        "_last_fetch",
        "_leader_end_at_last_fetch",
        "broker_epoch",
        "broker_id",
        "is_lost",
        "last_caught_up",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_end_offset = -1
        self.log_start_offset = -1
        self.broker_epoch: int | None = None
        self.is_lost = False
        self.last_caught_up = NEVER
        self._last_fetch = NEVER
        self._leader_end_at_last_fetch = -1

    def reset(self, now: float, leader_end_offset: int, *, is_new_leader: bool, is_in_sync: bool) -> None:
        """Begins a new leader epoch: the lag time of an in-sync follower counts from `now`."""
        self.last_caught_up = now if is_in_sync else NEVER
        if is_new_leader:
            self.log_end_offset = self.log_start_offset = self._leader_end_at_last_fetch = -1
            self.broker_epoch = None
            self._last_fetch = NEVER
        else:
            self._leader_end_at_last_fetch = leader_end_offset
            self._last_fetch = now if is_in_sync else NEVER

    def on_fetch(self, offset: int, log_start_offset: int, leader_end_offset: int, now: float) -> None:
        """Records a fetch at `offset`: the follower's log has all records below it."""
        if offset >= leader_end_offset:
            self.last_caught_up = max(self.last_caught_up, now)
        elif offset >= self._leader_end_at_last_fetch:
            # It has all that the leader had at its previous fetch, which is the best possible under a steady load.
            self.last_caught_up = max(self.last_caught_up, self._last_fetch)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self._leader_end_at_last_fetch = max(self._leader_end_at_last_fetch, leader_end_offset)
        self._last_fetch = now

    def is_caught_up(self, leader_end_offset: int, now: float, lag_time_max_s: float) -> bool:
        return self.log_end_offset == leader_end_offset or now - self.last_caught_up <= lag_time_max_s


class Proposal(NamedTuple):
    """A proposed in-sync set. `isr` has pairs (broker id, broker epoch), with -1 for an unknown epoch."""

    isr: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(broker_id for broker_id, _ in self.isr)


class Leadership:
    """State of a partition's leader, created when a broker becomes leader; `update` applies later metadata.

    Attributes:
        followers: the other replicas by broker id, in order of preference.
        isr: the in-sync set that the controller confirmed, including this broker.
        maximal_isr: replicas that are in the confirmed in-sync set or in the proposed one.
        pending: the proposal that is neither confirmed nor rejected yet; None without one.
        leader_epoch, partition_epoch: of the confirmed state.
        epoch_start_offset: the log end when the leader epoch began.
    """

    __slots__ = (
        "_brokers",
        "epoch_start_offset",
        "followers",
        "isr",
        "leader_epoch",
        "maximal_isr",
        "partition_epoch",
        "pending",
    )

    def __init__(self, brokers: RegisteredBrokers) -> None:
        self._brokers = brokers
        self.followers: dict[int, Follower] = {}
        self.isr: tuple[int, ...] = ()
        self.maximal_isr: frozenset[int] = frozenset()
        self.pending: Proposal | None = None
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = 0

    def update(self, image: PartitionImage, log_end_offset: int, now: float) -> bool:
        """Applies the partition's metadata; True if a leader epoch begins with it.

        An image that is only as new as the controller's last response to a proposal changes just the replicas.
        """
        if image.partition_epoch < self.partition_epoch:
            return False
        self._set_replicas(image.replicas)
        for broker_id, follower in self.followers.items():
            follower.is_lost = image.is_lost_on(broker_id)
        if image.partition_epoch == self.partition_epoch and image.leader_epoch == self.leader_epoch:
            return False
        self.confirm(image.isr)
        is_new_leader = self.leader_epoch < 0
        is_new_epoch = image.leader_epoch > self.leader_epoch
        if is_new_epoch:
            self.epoch_start_offset = log_end_offset
            for follower in self.followers.values():
                follower.reset(
                    now, log_end_offset, is_new_leader=is_new_leader, is_in_sync=follower.broker_id in image.isr
                )
            self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        return is_new_epoch

    def _set_replicas(self, replicas: Iterable[int]) -> None:
        known = self.followers
        self.followers = {
            broker_id: known.get(broker_id) or Follower(broker_id)
            for broker_id in replicas
            if broker_id != self._brokers.node_id
        }

    def confirm(self, isr: Iterable[int]) -> None:
        """Adopts an in-sync set that the controller has committed; no proposal is pending afterwards."""
        self.isr = tuple(isr)
        self.maximal_isr = frozenset(self.isr)
        self.pending = None

    # Progress

    def min_isr(self, configured: int) -> int:
        """`min.insync.replicas`, but at most the number of replicas."""
        return min(configured, len(self.followers) + 1)

    def replicated_end(self, log_end_offset: int, min_insync_replicas: int, now: float) -> int:
        """Smallest log end of the replicas that the high watermark waits for; -1 if it must not move."""
        if len(self.isr) < self.min_isr(min_insync_replicas):
            return -1
        end = log_end_offset
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < end and (
                broker_id in self.maximal_isr
                or (
                    not follower.is_lost
                    and follower.is_caught_up(log_end_offset, now, self._brokers.replica_lag_time_max_s)
                    and self._brokers.may_join(follower)
                )
            ):
                end = follower.log_end_offset
        return end

    def low_watermark(self, log_start_offset: int) -> int:
        """Smallest log start of all live replicas (KIP-107); -1 while that of one is unknown."""
        low = log_start_offset
        for broker_id, follower in self.followers.items():
            if follower.log_start_offset < low and self._brokers.is_alive(broker_id):
                low = follower.log_start_offset
        return low

    # The in-sync set

    def propose_expansion(self, follower: Follower, high_watermark: int) -> Proposal | None:
        """Proposes to add a follower that just fetched to the in-sync set; None if it may not join or one is pending.

        It must have reached the high watermark and the start of the leader epoch. Before that it may lack records that
        were acknowledged under an earlier leader.
        """
        if (
            self.pending is not None
            or follower.is_lost
            or follower.broker_id in self.isr
            or follower.log_end_offset < max(high_watermark, self.epoch_start_offset)
            or not self._brokers.may_join(follower)
        ):
            return None
        self.maximal_isr |= {follower.broker_id}
        return self._propose(scala_number_order((*self.isr, follower.broker_id), is_copy=True))

    def propose_shrink(self, log_end_offset: int, now: float) -> Proposal | None:
        """Proposes the in-sync set without followers that have lagged too long; None without any, or if one is pending.

        The high watermark waits for them until the controller has confirmed the proposal.
        """
        if self.pending is not None or not self.followers:
            return None
        lag_time_max_s = self._brokers.replica_lag_time_max_s
        kept = []
        for broker_id in self.isr:
            follower = self.followers.get(broker_id)
            if broker_id == self._brokers.node_id or (
                follower is not None and follower.is_caught_up(log_end_offset, now, lag_time_max_s)
            ):
                kept.append(broker_id)
        return self._propose(scala_number_order(kept)) if len(kept) < len(self.isr) else None

    def _propose(self, isr: Iterable[int]) -> Proposal:
        node_id = self._brokers.node_id
        with_epochs = []
        for broker_id in isr:
            follower = self.followers.get(broker_id)
            if broker_id == node_id:
                epoch = self._brokers.epoch(node_id)
            elif follower is None or follower.broker_epoch is None:
                epoch = NO_BROKER_EPOCH
            else:
                epoch = follower.broker_epoch
            with_epochs.append((broker_id, epoch))
        self.pending = Proposal(tuple(with_epochs), self.leader_epoch, self.partition_epoch)
        return self.pending

    def accept(self, proposal: Proposal, isr: Iterable[int], leader_epoch: int, partition_epoch: int) -> bool:
        """Applies the controller's response to a proposal; False if newer metadata has made it obsolete."""
        if self.pending is not proposal or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.confirm(isr)
        self.partition_epoch = partition_epoch
        return True

    def reject(self, proposal: Proposal) -> None:
        """Drops a proposal that the controller has not applied and will not apply: the confirmed set counts again."""
        if self.pending is proposal:
            self.confirm(self.isr)
