"""Placement of the replicas of new partitions: striped over brokers and racks, as by Kafka's StripedReplicaPlacer.

The aims, in this order: leaders spread evenly over the brokers, replicas of one partition on different racks, no fenced
broker as the first replica. Each rack has a ring of its brokers; partition n begins one rack and one broker further
than partition n-1. The rings start at random brokers: otherwise topics with one partition would all get the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.commands import NO_ERROR, ApiError
from pykbroker.controller.metadata.image import BrokerImage, ClusterImage
from pykbroker.controller.metadata.metadata_versions import DIRECTORY_ASSIGNMENT
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.uuids import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY

if TYPE_CHECKING:
    from pykbroker.controller.random_source import RandomSource


class InvalidReplicationFactor(Exception):
    """The replicas cannot be placed; the text is Kafka's."""


class _Wheel:
    """Brokers in a ring. `next` returns each once per turn; the next turn starts one broker further."""

    __slots__ = ("brokers", "index", "offset", "turn")

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self.index = 0
        self.offset = 0
        self.turn = 0

    def start(self, random: RandomSource) -> None:
        if self.brokers:
            self.brokers.sort()
            self.offset = random.randrange(len(self.brokers))

    def next(self, turn: int) -> int | None:
        if not self.brokers:
            return None
        if self.turn != turn:
            self.turn = turn
            self.index = 0
            self.offset = (self.offset + 1) % len(self.brokers)
        if self.index >= len(self.brokers):
            return None
        broker = self.brokers[(self.index + self.offset) % len(self.brokers)]
        self.index += 1
        return broker


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self) -> None:
        self.unfenced = _Wheel()
        self.fenced = _Wheel()

    def next(self, turn: int) -> int | None:
        broker = self.unfenced.next(turn)
        return self.fenced.next(turn) if broker is None else broker


class ReplicaPlacer:
    """Places the partitions of one topic, one after another.

    Raises:
        InvalidReplicationFactor: from the constructor, when `replication_factor` replicas cannot be placed.
    """

    def __init__(self, brokers: Iterable[BrokerImage], replication_factor: int, random: RandomSource) -> None:
        self._random = random
        self._racks: dict[str | None, _Rack] = {}
        self._replication_factor = replication_factor
        broker_count = 0
        self._unfenced_count = 0
        for broker in brokers:
            rack = self._racks.setdefault(broker.rack, _Rack())
            broker_count += 1
            if broker.is_fenced:
                rack.fenced.brokers.append(broker.broker_id)
            else:
                rack.unfenced.brokers.append(broker.broker_id)
                self._unfenced_count += 1
        if replication_factor <= 0:
            raise InvalidReplicationFactor(
                f"Invalid replication factor {replication_factor}: the replication factor must be positive."
            )
        if self._unfenced_count == 0:
            raise InvalidReplicationFactor(
                "All brokers are currently fenced, or have all their log directories cordoned."
            )
        if replication_factor > broker_count:
            raise InvalidReplicationFactor(
                f"The target replication factor of {replication_factor} cannot be reached because only {broker_count} "
                "broker(s) are registered or some brokers have all their log directories cordoned."
            )
        for rack in self._racks.values():
            rack.fenced.start(random)
            rack.unfenced.start(random)
        self._rack_names = sorted(self._racks, key=lambda name: (name is not None, name or ""))
        self._turn = 0
        self._offset = random.randrange(len(self._rack_names))

    def place(self) -> tuple[int, ...]:
        """The replicas of the next partition, the preferred leader first."""
        if self._turn == self._unfenced_count and self._unfenced_count > 1:
            # Every broker has led once; without a shuffle the same assignments would repeat.
            self._shuffle()
            self._turn = 0
        self._offset %= len(self._rack_names)
        first_rack, leader = self._leader()
        replicas = [leader]
        # The leader's rack is passed over once, so that the second replica lies on another rack if there is one.
        skip: int | None = first_rack
        rack_index = self._offset
        while len(replicas) < self._replication_factor:
            broker: int | None = None
            if rack_index == skip:
                skip = None
            else:
                broker = self._racks[self._rack_names[rack_index]].next(self._turn)
            rack_index = (rack_index + 1) % len(self._rack_names)
            if broker is not None:
                replicas.append(broker)
        self._turn += 1
        self._offset += 1
        return tuple(replicas)

    def _leader(self) -> tuple[int, int]:
        """The rack index and id of the next unfenced broker."""
        index = self._offset
        while True:
            broker = self._racks[self._rack_names[index]].unfenced.next(self._turn)
            if broker is not None:
                return index, broker
            index = (index + 1) % len(self._rack_names)

    def _shuffle(self) -> None:
        self._random.shuffle(self._rack_names)
        for rack in self._racks.values():
            self._random.shuffle(rack.fenced.brokers)
            self._random.shuffle(rack.unfenced.brokers)


def usable_brokers(brokers: Iterable[BrokerImage]) -> list[BrokerImage]:
    """The brokers that may get new replicas: not those that are stopping, nor those with every directory cordoned.

    A fenced broker counts, also one that was fenced at the end of its controlled shutdown (as in Kafka's
    BrokerHeartbeatManager, where fencing ends the shutdown): topics can be created with the same replication factor
    while a node is down.
    """
    return [broker for broker in brokers if not _is_stopping(broker) and not has_only_cordoned_directories(broker)]


def _is_stopping(broker: BrokerImage) -> bool:
    # in_controlled_shutdown stays set until the broker registers again, as in Kafka's records.
    return broker.in_controlled_shutdown and not broker.is_fenced


def has_only_cordoned_directories(broker: BrokerImage) -> bool:
    """True if every log directory of the broker is cordoned, so that it gets no new replicas (KIP-1066)."""
    cordoned: Sequence[bytes] = broker.cordoned_log_dirs or ()
    return bool(broker.log_dirs) and all(directory in cordoned for directory in broker.log_dirs)


def default_directory(broker_id: int, image: ClusterImage) -> bytes:
    """Id of the log directory of a new replica: the broker's only one, or a reserved id if it has none or several.

    MIGRATING_DIRECTORY at a metadata.version without directories.
    """
    if image.metadata_version < DIRECTORY_ASSIGNMENT:
        return MIGRATING_DIRECTORY
    broker = image.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED_DIRECTORY
    if not broker.log_dirs:
        return MIGRATING_DIRECTORY
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY


def assignment_error(replicas: Sequence[int], replication_factor: int | None, image: ClusterImage) -> ApiError:
    """INVALID_REPLICA_ASSIGNMENT with the reason if these brokers cannot hold a partition, else `NO_ERROR`.

    Args:
        replicas: broker ids as a client gave them.
        replication_factor: required number of replicas; None for any number.
    """
    reason = _reason_invalid(replicas, replication_factor, image)
    if reason is None:
        return NO_ERROR
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {reason}")


def _reason_invalid(replicas: Sequence[int], replication_factor: int | None, image: ClusterImage) -> str | None:
    if not replicas:
        return "an empty replica list."
    previous: int | None = None
    for broker_id in sorted(replicas):
        broker = image.brokers.get(broker_id)
        if broker is None:
            return f"broker {broker_id}, but no such broker is registered."
        if broker_id == previous:
            return f"the broker {broker_id} more than once."
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        return (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, which "
            f"have {replication_factor} replica(s)."
        )
    return None
