"""Rules of a full disk: checks for space, and the replicas that this broker gives up or takes up again.

Pure: time and file system are arguments.

A broker whose disk is full still serves its records. Where other replicas are in sync it gives up its own until there
is space: it assigns them to `LOST_DIRECTORY` (AssignReplicasToDirs, KIP-858), and the controller elects other leaders
and removes the broker from the in-sync sets, where it would delay acks=all for `replica.lag.time.max.ms`. Where it is
the last in-sync replica it keeps the partition: consumers read from it, and it appends again as soon as records fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.image import NO_LEADER
from pykbroker.logstore.errors import StorageError
from pykbroker.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from pykbroker.controller.metadata.image import ClusterImage, PartitionImage
    from pykbroker.logstore.filesystem import FileSystem

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 60.0
"""Bounds of the pause in seconds before the first check for space. It doubles each time that the disk is full again
within CALM_S after it had space."""
CALM_S = 300.0
"""Time in seconds with space after which the pause is PAUSE_MIN_S again."""
CHECK_INTERVAL_S = 1.0

ROOM_SHARE = 100
ROOM_MIN_BYTES = 4 << 20
ROOM_MAX_BYTES = 1 << 30
"""Part of the volume that must be free, within these bounds, before replicas are taken up again. They have records to
catch up with; if that filled the disk again at once, leaders would only move back and forth."""

PROBE_FILE = "room-probe"
_PROBE = bytes(64 << 10)


class DiskFullness:
    """State of the disk, full or not, and the time of the next check. Times are seconds on one clock.

    Attributes:
        check_at: time of the next check for space, while full.
    """

    __slots__ = ("_emptied_at", "_pause_s", "check_at", "is_full")

    def __init__(self) -> None:
        self.is_full = False
        self.check_at = 0.0
        self._pause_s = PAUSE_MIN_S
        self._emptied_at = float("-inf")

    def fill(self, now: float) -> None:
        """Marks the disk as full: a write did not fit."""
        if self.is_full:
            return
        was_calm = now >= self._emptied_at + CALM_S
        self._pause_s = PAUSE_MIN_S if was_calm else min(2 * self._pause_s, PAUSE_MAX_S)
        self.is_full = True
        self.check_at = now + self._pause_s

    def checked(self, now: float, *, has_room: bool) -> None:
        """Records the result of a check for space."""
        if has_room:
            self.is_full = False
            self._emptied_at = now
        else:
            self.check_at = now + CHECK_INTERVAL_S


def required_space(total_bytes: int) -> int:
    """Bytes that must be free on a volume of this size before replicas are taken up again."""
    return min(max(total_bytes // ROOM_SHARE, ROOM_MIN_BYTES), ROOM_MAX_BYTES)


def has_room(filesystem: FileSystem, directory: str) -> bool:
    """True if replicas may be taken up again: the directory has space that can be used (quotas, inodes, read-only)."""
    try:
        total, usable = filesystem.space(directory)
    except StorageError:
        return False
    return usable >= required_space(total) and can_write(filesystem, directory)


def can_write(filesystem: FileSystem, directory: str) -> bool:
    """True if a small file can be written there."""
    path = f"{directory}/{PROBE_FILE}"
    try:
        filesystem.write_file(path, _PROBE, durable=False)
        filesystem.remove(path)
    except StorageError:
        return False
    return True


class ReplicaMoves(NamedTuple):
    """(topic id, partition) of the replicas to give up, and of those to take up again."""

    give_up: list[tuple[bytes, int]]
    take_up: list[tuple[bytes, int]]


def replica_moves(
    image: ClusterImage, node_id: int, taken_up: Collection[tuple[bytes, int]], *, is_full: bool
) -> ReplicaMoves:
    """Replicas of this broker that must be given up or taken up again.

    `taken_up`: replicas that this process has taken up again and that may still wait for a leader. Kafka's controller
    elects no leader when a replica leaves the lost directory, but does so when the request is repeated.
    """
    moves = ReplicaMoves([], [])
    for topic in image.topics_by_id.values():
        for number, partition in topic.partitions.items():
            if node_id not in partition.replicas:
                continue
            key = (topic.topic_id, number)
            is_last = is_last_replica(partition, node_id)
            if is_full and node_id in partition.isr and not is_last:
                moves.give_up.append(key)
            elif partition.is_lost_on(node_id):
                if is_last or not is_full:
                    moves.take_up.append(key)
            elif key in taken_up and is_offline_last_replica(partition, node_id):
                moves.take_up.append(key)
    return moves


def is_last_replica(partition: PartitionImage, node_id: int) -> bool:
    """True if this broker is the only in-sync replica, or none is in sync and it is eligible to lead (KIP-966)."""
    return partition.isr == (node_id,) or (not partition.isr and node_id in partition.eligible_leader_replicas)


def is_offline_last_replica(partition: PartitionImage, node_id: int) -> bool:
    """True if this broker is the last replica that could lead, and the partition has no leader."""
    return partition.leader == NO_LEADER and is_last_replica(partition, node_id)
