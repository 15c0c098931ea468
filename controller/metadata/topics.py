"""CreateTopics, DeleteTopics and CreatePartitions as commands, with Kafka's rules and texts (P-143 to P-149).

Handlers authorize requests and handle the differences between their versions. All checks against the image are here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pykbroker.controller.metadata.commands import (
    NO_ERROR,
    PARTITION_COUNT_MAX_PER_REQUEST,
    RECORD_COUNT_MAX,
    ApiError,
    CommandRefused,
    ItemRefused,
    Plan,
    PlanContext,
)
from pykbroker.controller.metadata.eligible_replicas import cleared_eligible_replicas
from pykbroker.controller.metadata.image import (
    TOPIC_RESOURCE,
    ClusterImage,
    TopicImage,
)
from pykbroker.controller.metadata.metadata_versions import DIRECTORY_ASSIGNMENT
from pykbroker.controller.metadata.placement import (
    InvalidReplicationFactor,
    ReplicaPlacer,
    assignment_error,
    default_directory,
    usable_brokers,
)
from pykbroker.controller.metadata.topic_names import CLUSTER_METADATA_TOPIC, collision_form, reason_invalid
from pykbroker.java_order import utf16_length
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.log_messages.metadata_records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from pykbroker.protocol.steps import PIECE, Steps, list_in_steps
from pykbroker.protocol.uuids import ZERO_UUID, random_uuid

BROKER_DEFAULT = -1

VALUE_LENGTH_MAX = 32767

Charge = Callable[[str, int], ApiError]
"""Counts partitions of a topic that are about to be created or deleted; returns NO_ERROR or, if the client's quota is
exceeded, THROTTLING_QUOTA_EXCEEDED (KIP-599). A command may be planned again: each topic counts once, and the first
result is returned again."""


def no_charge(topic: str, count: int) -> ApiError:
    """The `Charge` of a client without a quota."""
    return NO_ERROR


TOO_MANY_RECORDS = "Unable to perform excessively large batch operation."


class NewTopic(NamedTuple):
    """One topic to create. A count of -1 means the broker's default.

    Attributes:
        assignments: (partition, broker ids in order of preference) pairs; partition_count and replication_factor must
            then be -1. Empty if the controller places the replicas.
        configs: (key, value) pairs; the value None is refused, as in Kafka.
    """

    name: str
    partition_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class CreateTopicResult(NamedTuple):
    """The result for one topic. With a failure the id is zero and the counts are -1.

    With validate_only the id is a random one that is never used, as in Kafka.
    """

    name: str
    error: ApiError
    topic_id: bytes = ZERO_UUID
    partition_count: int = -1
    replication_factor: int = -1
    configs: Sequence[tuple[str, str]] = ()


class CreateTopics(NamedTuple):
    """Creates topics; the result is a list of CreateTopicResult, one for each name.

    They are in the order of the request; names that were given twice are at the end.

    Raises:
        CommandRefused: POLICY_VIOLATION when more than 10,000 partitions or records are asked for.
    """

    topics: Sequence[NewTopic]
    validate_only: bool = False
    charge: Charge = no_charge

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[list[CreateTopicResult]]]:
        counts = Counter(topic.name for topic in self.topics)
        once = [topic for topic in self.topics if counts[topic.name] == 1]
        _refuse_too_many_partitions(once, context.partition_count_default)
        records: list[Any] = []
        results: list[CreateTopicResult] = []
        for topic in once:
            try:
                new_records, result = yield from _plan_topic(topic, image, context, self.charge)
            except ItemRefused as refused:
                results.append(CreateTopicResult(topic.name, refused.error))
            else:
                records += new_records
                results.append(result)
            yield
        duplicate = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        results += [CreateTopicResult(name, duplicate) for name, count in counts.items() if count > 1]
        refuse_too_many_records(records)
        return Plan(() if self.validate_only else records, results)


class TopicReference(NamedTuple):
    """A topic by its name or its id; both or neither is an error of the request (P-148)."""

    name: str | None
    topic_id: bytes = ZERO_UUID


class DeleteTopicResult(NamedTuple):
    """The result for one topic; `name` is None if only an unknown id was given."""

    name: str | None
    topic_id: bytes
    error: ApiError


_NAMED_TWICE = ApiError(ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")


class DeleteTopics(NamedTuple):
    """Deletes topics; the result is a list of DeleteTopicResult in request order, one for each name or id.

    The handler has checked that deletion is enabled (`delete.topic.enable`, P-148).
    """

    topics: Sequence[TopicReference]
    charge: Charge = no_charge

    def plan_in_steps(
        self, image: ClusterImage, context: PlanContext | None = None
    ) -> Steps[Plan[list[DeleteTopicResult]]]:
        counts = Counter(self.topics)
        # An id and a name of the same topic are an error, whichever came first; a name that comes twice has its own.
        targets = Counter(
            topic.topic_id
            for reference, count in counts.items()
            if (count == 1 or reference.name is None) and (topic := _find(reference, image))
        )
        records: list[Any] = []
        results: list[DeleteTopicResult] = []
        for reference, count in counts.items():
            topic = _find(reference, image)
            error = _deletion_error(reference, count, topic)
            if (reference.name is None) == (reference.topic_id == ZERO_UUID):
                # Kafka answers each repetition of a reference with neither name nor id, or with both.
                results += [DeleteTopicResult(reference.name, reference.topic_id, error)] * (count - 1)
            if topic is None or error.is_failure:
                results.append(DeleteTopicResult(reference.name, reference.topic_id, error))
            elif targets[topic.topic_id] == 1:
                results.append(self._delete(topic, records))
            elif reference.name is not None:  # of the two results for one topic only that for the name is sent
                results.append(DeleteTopicResult(reference.name, topic.topic_id, _NAMED_TWICE))
            yield
        refuse_too_many_records(records)
        return Plan(records, results)

    def _delete(self, topic: TopicImage, records: list[Any]) -> DeleteTopicResult:
        """Adds the record that deletes a topic, if the client's quota allows its deletion now."""
        error = self.charge(topic.name, len(topic.partitions))
        if not error.is_failure:
            records.append(RemoveTopicRecord(topic_id=topic.topic_id))
            error = NO_ERROR
        return DeleteTopicResult(topic.name, topic.topic_id, error)


class NewPartitions(NamedTuple):
    """A topic to grow to `partition_count`; `assignments`: broker ids per new partition, or None to place them."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None


class CreatePartitionsResult(NamedTuple):
    name: str
    error: ApiError


class CreatePartitions(NamedTuple):
    """Adds partitions; the result is a list of CreatePartitionsResult, one for each topic (P-149).

    `topics` has no name twice.
    """

    topics: Sequence[NewPartitions]
    validate_only: bool = False
    charge: Charge = no_charge

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[list[CreatePartitionsResult]]]:
        results: list[CreatePartitionsResult] = []
        records: list[Any] = []
        for topic in self.topics:
            try:
                yield from _plan_partitions(topic, image, context, records, self.charge)
            except ItemRefused as refused:
                results.append(CreatePartitionsResult(topic.name, refused.error))
            else:
                results.append(CreatePartitionsResult(topic.name, NO_ERROR))
            yield
        refuse_too_many_records(results)  # Kafka's list of results has the bound of its list of records
        return Plan(() if self.validate_only else records, results)


def refuse_too_many_records(records: Sequence[Any]) -> None:
    """Raises CommandRefused with POLICY_VIOLATION if there are more than RECORD_COUNT_MAX records."""
    if len(records) > RECORD_COUNT_MAX:
        raise CommandRefused(ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS)


def check_value_lengths(values: Iterable[str | None]) -> None:
    """Raises ItemRefused if a value of a setting has more than VALUE_LENGTH_MAX UTF-16 units."""
    for value in values:
        if value is not None and utf16_length(value) > VALUE_LENGTH_MAX:
            raise ItemRefused(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{VALUE_LENGTH_MAX} bytes.",
            )


def _refuse_too_many_partitions(topics: Iterable[NewTopic], partition_count_default: int) -> None:
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            count = topic.partition_count
            total += partition_count_default if count == BROKER_DEFAULT else max(count, 0)
        if total > PARTITION_COUNT_MAX_PER_REQUEST:
            raise CommandRefused(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _plan_topic(
    topic: NewTopic, image: ClusterImage, context: PlanContext, charge: Charge
) -> Steps[tuple[list[Any], CreateTopicResult]]:
    _check_name(topic.name, image)
    configs = _creation_configs(topic, context)
    assign = _manual_assignments if topic.assignments else _placed_assignments
    assignments = yield from assign(topic, image, context)
    _charge(charge, topic.name, len(assignments))
    topic_id = random_uuid(context.random)
    records: list[Any] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=key, value=value)
        for key, value in configs.items()
    ]
    records += cleared_eligible_replicas(records, image)
    records += yield from _partition_records(topic_id, 0, assignments, image)
    result = CreateTopicResult(
        topic.name, NO_ERROR, topic_id, len(assignments), len(assignments[0][0]), tuple(configs.items())
    )
    return records, result


def _charge(charge: Charge, topic: str, count: int) -> None:
    error = charge(topic, count)
    if error.is_failure:
        raise ItemRefused(error.code, error.message)


def _check_name(name: str, image: ClusterImage) -> None:
    if name == CLUSTER_METADATA_TOPIC:
        raise ItemRefused(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
        )
    # Kafka checks for a topic of this name last, and that error replaces the others.
    if name in image.topics_by_name:
        raise ItemRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    # The error of a collision replaces that of an invalid name.
    if "." in name or "_" in name:
        colliding = image.colliding_names.get(collision_form(name))
        if colliding is not None:
            raise ItemRefused(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {colliding[0]}"
            )
    reason = reason_invalid(name)
    if reason is not None:
        raise ItemRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def _creation_configs(topic: NewTopic, context: PlanContext) -> dict[str, str]:
    nulls = [key for key, value in topic.configs if value is None]
    if nulls:
        raise ItemRefused(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    configs = {key: value for key, value in topic.configs if value is not None}
    if configs:
        check_value_lengths(configs.values())
        error = context.config_rules.validate(TOPIC_RESOURCE, topic.name, configs)
        if error.is_failure:
            raise ItemRefused(error.code, error.message)
    return configs


Assignment = tuple[tuple[int, ...], tuple[int, ...]]
"""Replicas and in-sync replicas of one new partition."""


def _manual_assignments(topic: NewTopic, image: ClusterImage, context: PlanContext) -> Steps[list[Assignment]]:
    if topic.replication_factor != BROKER_DEFAULT:
        raise ItemRefused(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.partition_count != BROKER_DEFAULT:
        raise ItemRefused(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    found: dict[int, Assignment] = {}
    replication_factor: int | None = None
    for partition, replicas in topic.assignments:
        if partition in found:
            raise ItemRefused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {partition}",
            )
        found[partition] = _manual_assignment(partition, replicas, replication_factor, image)
        replication_factor = len(replicas)
        if not len(found) % PIECE:
            yield
    if sorted(found) != list(range(len(found))):
        raise ItemRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [found[partition] for partition in range(len(found))]


def _manual_assignment(
    partition: int, replicas: Sequence[int], replication_factor: int | None, image: ClusterImage
) -> Assignment:
    """One manual assignment, checked against the brokers and against the replication factor of those before."""
    error = assignment_error(replicas, replication_factor, image)
    if error.is_failure:
        raise ItemRefused(error.code, error.message)
    isr = _active(replicas, image)
    if not isr:
        raise ItemRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
            "controlled shutdown.",
        )
    return tuple(replicas), isr


def _placed_assignments(topic: NewTopic, image: ClusterImage, context: PlanContext) -> Steps[list[Assignment]]:
    if topic.replication_factor < BROKER_DEFAULT or topic.replication_factor == 0:
        raise ItemRefused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.partition_count < BROKER_DEFAULT or topic.partition_count == 0:
        raise ItemRefused(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    count = context.partition_count_default if topic.partition_count == BROKER_DEFAULT else topic.partition_count
    factor = (
        context.replication_factor_default if topic.replication_factor == BROKER_DEFAULT else topic.replication_factor
    )
    try:
        return (yield from _place_replicas(count, factor, image, context))
    except InvalidReplicationFactor as error:
        raise ItemRefused(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"Unable to replicate the partition {factor} time(s): {error}"
        ) from None


def _place_replicas(
    count: int, replication_factor: int, image: ClusterImage, context: PlanContext
) -> Steps[list[Assignment]]:
    placer = ReplicaPlacer(usable_brokers(image.brokers.values()), replication_factor, context.random)
    assignments: list[Assignment] = []
    for _ in range(count):
        replicas = placer.place()
        isr = _active(replicas, image)
        if not isr:  # pragma: no cover: Kafka's check; the placer has put the first replica on a broker that serves
            raise InvalidReplicationFactor("All brokers are currently fenced or in controlled shutdown.")
        assignments.append((replicas, isr))
        if not len(assignments) % PIECE:
            yield
    return assignments


def _active(replicas: Iterable[int], image: ClusterImage) -> tuple[int, ...]:
    return tuple(broker_id for broker_id in replicas if image.brokers[broker_id].is_active)


def _partition_records(
    topic_id: bytes, first_partition: int, assignments: Iterable[Assignment], image: ClusterImage
) -> Steps[list[PartitionRecord]]:
    return list_in_steps(
        _partition_record(topic_id, partition, replicas, isr, image)
        for partition, (replicas, isr) in enumerate(assignments, first_partition)
    )


def _partition_record(
    topic_id: bytes, partition: int, replicas: Sequence[int], isr: Sequence[int], image: ClusterImage
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=partition,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(isr),
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=(
            [default_directory(broker_id, image) for broker_id in replicas]
            if image.metadata_version >= DIRECTORY_ASSIGNMENT
            else []
        ),
    )


def _find(reference: TopicReference, image: ClusterImage) -> TopicImage | None:
    if reference.name is not None:
        return image.topics_by_name.get(reference.name) if reference.topic_id == ZERO_UUID else None
    return image.topics_by_id.get(reference.topic_id)


def _deletion_error(reference: TopicReference, count: int, topic: TopicImage | None) -> ApiError:
    if reference.name is None and reference.topic_id == ZERO_UUID:
        return ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if reference.name is not None and reference.topic_id != ZERO_UUID:
        return ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if count > 1:
        what = "name" if reference.name is not None else "id"
        return ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
    if topic is None:
        if reference.name is not None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TEXTS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return NO_ERROR


def _plan_partitions(
    new: NewPartitions, image: ClusterImage, context: PlanContext, records: list[Any], charge: Charge
) -> Steps[None]:
    topic = image.topics_by_name.get(new.name)
    if topic is None:
        raise ItemRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = len(topic.partitions)
    if new.partition_count == current:
        raise ItemRefused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if new.partition_count < current:
        raise ItemRefused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {new.name} currently has {current} partition(s); {new.partition_count} would not be an "
            "increase.",
        )
    additional = new.partition_count - current
    factor = len(topic.partitions[0].replicas)
    if new.assignments is not None and len(new.assignments) != additional:
        raise ItemRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only {len(new.assignments)} "
            "assignment(s) were specified.",
        )
    _charge(charge, new.name, additional)
    room = RECORD_COUNT_MAX - len(records)
    if new.assignments is not None:
        assignments = [
            _manual_assignment(current + number, replicas, factor, image)
            for number, replicas in enumerate(new.assignments)
        ]
    else:
        try:
            # One partition more than there is room for suffices for the caller to see that there are too many.
            assignments = yield from _place_replicas(min(additional, room + 1), factor, image, context)
        except InvalidReplicationFactor as error:
            raise ItemRefused(ErrorCode.INVALID_REPLICATION_FACTOR, str(error)) from None
    records += yield from _partition_records(topic.topic_id, current, assignments[:room], image)
    if len(assignments) > room:
        # The records for which there was room stay, and Kafka has no better code for it (P-661).
        raise ItemRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
