"""A partition leader's view of its followers: how far each is, who is in sync, what may be read.

Pure: time comes as an argument, in seconds of a clock that only goes forward. The rules are those of KIP-16 (who is in
sync), KIP-497 (an in-sync set that is proposed to the controller and not confirmed yet) and KIP-903 (epochs of brokers
in the proposal):

* A follower is caught up while its log ends where the leader's does, or did so within `replica.lag.time.max.ms`.
* While a set is proposed, both it and the confirmed one count: the high watermark waits for the members of either.
* The high watermark also waits for a follower that is caught up but not in the set yet, or it would never get into it.
  Not for one whose broker says that its log directory is lost (KIP-858), as on a full disk: it does not come now.
* Below `min.insync.replicas` the high watermark stays where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pykbroker.controller.metadata.image import BrokerImage, PartitionImage

NEVER = float("-inf")
NO_BROKER_EPOCH = -1


class BrokersInSight:
    """The brokers of the cluster, as far as leaders need them; one object for all partitions of a broker.

    Attributes:
        brokers: the registered ones, of the newest image; replaced as the metadata changes.
        replica_lag_time_max_s: how long a follower may lag and still be in sync.
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
        """The epoch of a broker that is alive, else -1."""
        broker = self.brokers.get(broker_id)
        return NO_BROKER_EPOCH if broker is None or broker.is_fenced else broker.epoch

    def may_join(self, follower: Follower) -> bool:
        """True if a follower's broker may come into an in-sync set: alive, not on its way out, not an earlier life."""
        broker = self.brokers.get(follower.broker_id)
        if broker is None or not broker.is_active or follower.broker_epoch is None:
            return False
        return follower.broker_epoch in (NO_BROKER_EPOCH, broker.epoch)


class Follower:
    """Progress of one follower, as its fetches tell it.

    Attributes:
        log_end_offset, log_start_offset: of its log; -1 before its first fetch from this leader.
        broker_epoch: what its last fetch said; -1 if the fetch was too old to say, None before the first one.
        is_lost: whether its broker cannot write it for now.
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
        """A new leader epoch begins: what an in-sync follower has missed counts from now on."""
        self.last_caught_up = now if is_in_sync else NEVER
        if is_new_leader:
            self.log_end_offset = self.log_start_offset = self._leader_end_at_last_fetch = -1
            self.broker_epoch = None
            self._last_fetch = NEVER
        else:
            self._leader_end_at_last_fetch = leader_end_offset
            self._last_fetch = now if is_in_sync else NEVER

    def on_fetch(self, offset: int, log_start_offset: int, leader_end_offset: int, now: float) -> None:
        """A fetch at `offset`: all that is below is in the follower's log."""
        if offset >= leader_end_offset:
            self.last_caught_up = max(self.last_caught_up, now)
        elif offset >= self._leader_end_at_last_fetch:
            # It has all that there was when it last asked, which under a steady load is all that can be had.
            self.last_caught_up = max(self.last_caught_up, self._last_fetch)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self._leader_end_at_last_fetch = max(self._leader_end_at_last_fetch, leader_end_offset)
        self._last_fetch = now

    def is_caught_up(self, leader_end_offset: int, now: float, lag_time_max_s: float) -> bool:
        return self.log_end_offset == leader_end_offset or now - self.last_caught_up <= lag_time_max_s


class Proposal(NamedTuple):
    """An in-sync set on its way to the controller. `isr` holds (broker id, broker epoch), -1 for an unknown epoch."""

    isr: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(broker_id for broker_id, _ in self.isr)


class Leadership:
    """The state of a leader. A new one is made when a broker becomes leader; `update` follows the metadata then.

    Attributes:
        followers: the other replicas by broker id, in order of preference.
        isr: the in-sync set that the controller confirmed, this broker among it.
        pending: the proposal that was made and not answered yet.
        leader_epoch, partition_epoch: of the confirmed state.
        epoch_start_offset: the log end when the leader epoch began.
    """

    __slots__ = (
        "_brokers",
        "_maximal_isr",
        "epoch_start_offset",
        "followers",
        "isr",
        "leader_epoch",
        "partition_epoch",
        "pending",
    )

    def __init__(self, brokers: BrokersInSight) -> None:
        self._brokers = brokers
        self.followers: dict[int, Follower] = {}
        self.isr: tuple[int, ...] = ()
        self._maximal_isr: frozenset[int] = frozenset()
        self.pending: Proposal | None = None
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = 0

    def update(self, image: PartitionImage, log_end_offset: int, now: float) -> bool:
        """Takes over the partition as the metadata has it; whether a leader epoch begins with it.

        What is as old as what the controller's answer to a proposal has told already changes the replicas only.
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
        """Take over an in-sync set that the controller has committed; no proposal is pending then."""
        self.isr = tuple(isr)
        self._maximal_isr = frozenset(self.isr)
        self.pending = None

    # Progress

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Everybody who is in the confirmed set or in the proposed one."""
        return self._maximal_isr

    def min_isr(self, configured: int) -> int:
        """`min.insync.replicas`, but never more than there are replicas."""
        return min(configured, len(self.followers) + 1)

    def replicated_end(self, log_end_offset: int, min_insync_replicas: int, now: float) -> int:
        """Up to where everybody who counts has the log; -1 when the high watermark must not move."""
        if len(self.isr) < self.min_isr(min_insync_replicas):
            return -1
        end = log_end_offset
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < end and (
                broker_id in self._maximal_isr
                or (
                    not follower.is_lost
                    and follower.is_caught_up(log_end_offset, now, self._brokers.replica_lag_time_max_s)
                    and self._brokers.may_join(follower)
                )
            ):
                end = follower.log_end_offset
        return end

    def low_watermark(self, log_start_offset: int) -> int:
        """The smallest log start of all live replicas (KIP-107); -1 while one has not told its own."""
        low = log_start_offset
        for broker_id, follower in self.followers.items():
            if follower.log_start_offset < low and self._brokers.is_alive(broker_id):
                low = follower.log_start_offset
        return low

    # The in-sync set

    def propose_expansion(self, follower: Follower, high_watermark: int) -> Proposal | None:
        """True if a follower that just fetched belongs into the in-sync set: it has reached the high watermark and
        the leader epoch's beginning. Else it may lack records that were acknowledged before this leader came."""
        if (
            self.pending is not None
            or follower.is_lost
            or follower.broker_id in self.isr
            or follower.log_end_offset < max(high_watermark, self.epoch_start_offset)
            or not self._brokers.may_join(follower)
        ):
            return None
        self._maximal_isr |= {follower.broker_id}
        return self._propose((*self.isr, follower.broker_id))

    def propose_shrink(self, log_end_offset: int, now: float) -> Proposal | None:
        """The in-sync set without those who have lagged too long.

        Until the controller has agreed they go on to hold the high watermark back.
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
        return self._propose(tuple(kept)) if len(kept) < len(self.isr) else None

    def _propose(self, isr: tuple[int, ...]) -> Proposal:
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
        """The controller's answer; False when it is out of date, as the metadata was faster."""
        if self.pending is not proposal or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.confirm(isr)
        self.partition_epoch = partition_epoch
        return True

    def reject(self, proposal: Proposal) -> None:
        """The controller has certainly not taken the proposal, and will not: the confirmed set counts again."""
        if self.pending is proposal:
            self.confirm(self.isr)
