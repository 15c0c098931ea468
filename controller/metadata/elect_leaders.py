"""ElectLeaders as a command: elections on request (KIP-183, KIP-460; P-156)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pykbroker.controller.metadata.commands import (
    NO_ERROR,
    ApiError,
    CommandRefused,
    Plan,
    PlanContext,
)
from pykbroker.controller.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from pykbroker.controller.metadata.partition_changes import Assignment, Election, change_partition
from pykbroker.controller.metadata.topics import refuse_too_many_records
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord
from pykbroker.protocol.steps import Steps

PREFERRED = 0
UNCLEAN = 1


class ElectionResult(NamedTuple):
    """The result for one partition."""

    partition: int
    error: ApiError


class ElectLeaders(NamedTuple):
    """Elects leaders; the result is a list of (topic, ElectionResults) in request order.

    Attributes:
        election_type: 0 elects the first replica of each partition, if it is in sync and active; 1 elects any active
            replica of a leaderless partition, which may lose records.
        topics: (topic, partitions) pairs; None for all partitions, of which the result then leaves out those with
            ELECTION_NOT_NEEDED.

    Raises:
        CommandRefused: INVALID_REQUEST for another election type; POLICY_VIOLATION when more than 10,000
            partitions would change.
    """

    election_type: int
    topics: Sequence[tuple[str, Sequence[int]]] | None = None

    def plan_in_steps(
        self, image: ClusterImage, context: PlanContext
    ) -> Steps[Plan[list[tuple[str, list[ElectionResult]]]]]:
        if self.election_type not in (PREFERRED, UNCLEAN):
            raise CommandRefused(ErrorCode.INVALID_REQUEST, f"Unknown election type {self.election_type}")
        topics: Iterable[tuple[str, Iterable[int]]] = (
            ((topic.name, topic.partitions) for topic in image.topics_by_name.values())
            if self.topics is None
            else self.topics
        )
        records: list[PartitionChangeRecord] = []
        results: list[tuple[str, list[ElectionResult]]] = []
        for name, partitions in topics:
            of_topic: list[ElectionResult] = []
            results.append((name, of_topic))
            for number in partitions:
                error, record = self._elect(image, context, name, number)
                if record is not None:
                    records.append(record)
                if self.topics is not None or error.code != ErrorCode.ELECTION_NOT_NEEDED:
                    of_topic.append(ElectionResult(number, error))
                yield
        refuse_too_many_records(records)
        return Plan(records, results)

    def _elect(
        self, image: ClusterImage, context: PlanContext, name: str, number: int
    ) -> tuple[ApiError, PartitionChangeRecord | None]:
        topic = image.topics_by_name.get(name)
        if topic is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"), None
        partition = topic.partitions.get(number)
        if partition is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}"), None
        if self._has_its_leader(partition):
            return ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."), None
        election = Election.PREFERRED if self.election_type == PREFERRED else Election.UNCLEAN
        record = change_partition(image, context, topic, partition, Assignment.of(partition), election)
        if record is not None:
            return NO_ERROR, record
        if self.election_type == PREFERRED:
            return ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."), None
        return (
            ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."),
            None,
        )

    def _has_its_leader(self, partition: PartitionImage) -> bool:
        if self.election_type == UNCLEAN:
            return partition.leader != NO_LEADER
        return partition.leader == partition.replicas[0]
