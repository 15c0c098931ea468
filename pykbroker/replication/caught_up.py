"""Partitions of which a fetch session has everything, so that its next fetch need not read them.

Most partitions of a session are in this state most of the time, and a session has hundreds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.replication.replica import FetchBound

if TYPE_CHECKING:
    from pykbroker.replication.leadership import Follower, Leadership
    from pykbroker.replication.partition import Partition


def caught_up_follower(partition: Partition, follower: Follower, offset: int) -> CaughtUpFollower | None:
    """After a fetch at `offset`: a CaughtUpFollower if the follower is in sync and has the whole log, else None."""
    leadership = partition.leadership
    if leadership is None or follower.broker_id not in leadership.isr or offset != partition.log.log_end_offset:
        return None
    return CaughtUpFollower(partition, follower, offset)


def caught_up_consumer(partition: Partition) -> CaughtUpConsumer | None:
    """A CaughtUpConsumer if this broker leads; None on a follower, whose high watermark says less."""
    return None if partition.leadership is None else CaughtUpConsumer(partition, partition.leadership)


class CaughtUpFollower:
    """An in-sync follower that has the leader's whole log, so that its fetches need no read until something changes."""

    __slots__ = ("_end_offset", "_follower", "_leader_epoch", "_leadership", "partition")

    def __init__(self, partition: Partition, follower: Follower, end_offset: int) -> None:
        self.partition = partition
        self._follower = follower
        self._end_offset = end_offset
        self._leadership = partition.leadership
        self._leader_epoch = partition.leader_epoch

    def is_unchanged(
        self, offset: int, high_watermark: int, log_start_offset: int, bound: int, broker_epoch: int
    ) -> bool:
        """True if nothing has changed, also not the high watermark and log start last sent to the follower.

        `offset` and `bound` are those of the fetch, and `broker_epoch` the follower's.

        Each condition under which `FetchedPartition.changes_response` or an error would put the partition into the
        response must make this False: a partition that is unchanged is not read.
        """
        partition, leadership, follower = self.partition, self._leadership, self._follower
        return (
            bound == FetchBound.LOG_END
            and partition.leadership is leadership
            and leadership is not None
            and partition.log.log_end_offset == self._end_offset == offset
            and partition.high_watermark == high_watermark
            and partition.log.log_start_offset == log_start_offset
            and partition.leader_epoch == self._leader_epoch
            and follower.broker_epoch == broker_epoch == partition.registered_epoch(follower)
            and follower.log_end_offset == self._end_offset
            and leadership.followers.get(follower.broker_id) is follower
            and follower.broker_id in leadership.isr
        )

    def on_fetch(self, now: float | None) -> float:
        """Records another fetch of the follower. Returns `now`, or the time in seconds if that is None.

        A fetch of thousands of partitions looks at the clock once.
        """
        follower = self._follower
        if now is None:
            now = self.partition.now()
        follower.on_fetch(self._end_offset, follower.log_start_offset, self._end_offset, now)
        return now


class CaughtUpConsumer:
    """A consumer that has all it may read from a leader, so that its fetches need no read until something changes."""

    __slots__ = ("_leader_epoch", "_leadership", "partition")

    def __init__(self, partition: Partition, leadership: Leadership) -> None:
        self.partition = partition
        self._leadership = leadership
        self._leader_epoch = partition.leader_epoch

    def is_unchanged(
        self, offset: int, high_watermark: int, log_start_offset: int, bound: int, broker_epoch: int
    ) -> bool:
        """As `CaughtUpFollower.is_unchanged`; a consumer has no broker epoch.

        An offset above the high watermark may be out of range: such a partition is read.
        """
        partition = self.partition
        if (
            partition.leadership is not self._leadership
            or partition.leader_epoch != self._leader_epoch
            or partition.replica.high_watermark != high_watermark
            or partition.log.log_start_offset != log_start_offset
            or offset > high_watermark
        ):
            return False
        if bound == FetchBound.HIGH_WATERMARK:
            return offset == high_watermark
        return bound == FetchBound.LAST_STABLE_OFFSET and offset >= partition.last_stable_offset

    def on_fetch(self, now: float | None) -> float | None:
        """Nothing is recorded of a consumer; returns `now`."""
        return now
