"""AssignReplicasToDirs as a command: a broker reports the log directories of its replicas (KIP-858).

The controller assigns the directory only if a broker has a single one; a broker with several chooses and reports it.

A broker of pykbroker with a single one reports LOST_DIRECTORY for replicas that it cannot write while its disk is full:
those leave the in-sync set, and others lead. Kafka's brokers never report it; Kafka's controller handles it this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykbroker.controller.metadata.broker_elections import (
    can_use,
    changes_when_broker_serves,
    changes_when_replicas_leave,
    is_irreplaceable,
)
from pykbroker.controller.metadata.brokers import registered_broker
from pykbroker.controller.metadata.commands import CommandRefused, Plan, PlanContext
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.controller.metadata.image_builder import apply_in_steps
from pykbroker.controller.metadata.metadata_versions import DIRECTORY_ASSIGNMENT
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord
from pykbroker.protocol.steps import PIECE, Steps
from pykbroker.protocol.uuids import LOST_DIRECTORY


class DirectoryReplicas(NamedTuple):
    """A log directory and the partitions that have a replica in it: (topic id, partition) each."""

    directory: bytes
    partitions: Sequence[tuple[bytes, int]]


class AssignReplicasToDirs(NamedTuple):
    """Sets the directories of a broker's replicas; the result has an error code for each partition, in the same order.

    A replica whose directory has failed leaves the in-sync set, even if the failure was known already and the replica
    has joined the set again since. If no other replica is in sync and may lead, LOST_DIRECTORY is refused
    (ELIGIBLE_LEADERS_NOT_AVAILABLE): the broker can still serve reads, whereas in Kafka the partition would go offline.

    Raises:
        CommandRefused: STALE_BROKER_EPOCH; UNSUPPORTED_VERSION at a metadata.version without directories.
    """

    broker_id: int
    broker_epoch: int
    directories: Sequence[DirectoryReplicas]

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[list[list[ErrorCode]]]]:
        if image.metadata_version < DIRECTORY_ASSIGNMENT:
            raise CommandRefused(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
        broker = registered_broker(image, self.broker_id, self.broker_epoch)
        records: list[Any] = []
        results: list[list[ErrorCode]] = []
        lost: set[tuple[bytes, int]] = set()
        for directory, partitions in self.directories:
            errors: list[ErrorCode] = []
            results.append(errors)
            is_usable = can_use(directory, broker.log_dirs)
            for count, (topic_id, number) in enumerate(partitions):
                if not count % PIECE:
                    yield
                error, record = self._assign(image, context, directory, topic_id, number)
                errors.append(error)
                if record is not None:
                    records.append(record)
                if error is ErrorCode.NONE and not is_usable:
                    lost.add((topic_id, number))
        after = image
        if records:
            after = yield from apply_in_steps(
                image, records, offset=image.offset, epoch=image.epoch, timestamp_ms=image.timestamp_ms
            )
        if lost:
            records += yield from changes_when_replicas_leave(after, context, self.broker_id, lost)
        elif records and broker.is_active:
            # The broker may now lead partitions whose directory counted as lost before.
            records += yield from changes_when_broker_serves(after, context, self.broker_id)
        return Plan(records, results)

    def _assign(
        self, image: ClusterImage, context: PlanContext, directory: bytes, topic_id: bytes, number: int
    ) -> tuple[ErrorCode, PartitionChangeRecord | None]:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID, None
        partition = topic.partitions.get(number)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if self.broker_id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        if directory == LOST_DIRECTORY and is_irreplaceable(image, context, topic, partition, self.broker_id):
            return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, None
        directories = list(partition.directories)
        directories[partition.replicas.index(self.broker_id)] = directory
        if tuple(directories) == partition.directories:
            return ErrorCode.NONE, None
        record = PartitionChangeRecord(partition_id=number, topic_id=topic_id, directories=directories)
        return ErrorCode.NONE, record
