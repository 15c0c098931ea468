"""A topology matched with the existing topics: its tasks, and the internal topics that it needs (KIP-1071)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum

from pykbroker.controller.metadata.topic_names import reason_invalid
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.streams.partition_counts import (
    IncorrectlyPartitioned,
    copartition_groups,
    decide_counts,
)
from pykbroker.groups.streams.topology import StreamsTopology, source_topics
from pykbroker.java_order import grown_table_size, hash_order
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.streams_group_records import Subtopology, TopicInfo
from pykbroker.protocol.steps import PIECE, Steps

TOPICS_NAMED = 3
"""Number of topics that a status names before it counts the rest."""


class StatusCode(IntEnum):
    """Codes of the statuses in heartbeat responses."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicProblem(NamedTuple):
    """The reason that no tasks can be assigned, for the members' responses."""

    status: StatusCode
    detail: str


class InternalTopic(NamedTuple):
    """A repartition or changelog topic; a replication factor of 0 is the broker's default."""

    name: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


class ConfiguredSubtopology(NamedTuple):
    """A subtopology with its number of tasks and the partition counts of its internal topics."""

    task_count: int
    source_topics: frozenset[str]
    repartition_source_topics: Mapping[str, InternalTopic]
    repartition_sink_topics: frozenset[str]
    changelog_topics: Mapping[str, InternalTopic]

    @property
    def consumed_topics(self) -> list[str]:
        """Topics that the tasks consume, in the order of Kafka's hash table."""
        return hash_order(dict.fromkeys([*hash_order(self.source_topics), *self.repartition_source_topics]))


class ConfiguredTopology(NamedTuple):
    """A topology matched with the existing topics.

    Attributes:
        epoch: epoch of the topology.
        subtopologies: subtopologies sorted by id; None if partition counts cannot be decided.
        missing: internal topics that do not exist, by name, in the order of Kafka's hash table.
        problem: the reason that no tasks can be assigned; None if the topology is ready.
    """

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    missing: Mapping[str, InternalTopic]
    problem: TopicProblem | None

    @property
    def is_ready(self) -> bool:
        """True if tasks can be assigned."""
        return self.problem is None


def configure(topology: StreamsTopology, topics: GroupTopics) -> Steps[ConfiguredTopology]:
    """Matches a topology with the topics of the cluster, which must not change between the steps.

    Raises:
        GroupError: STREAMS_INVALID_TOPOLOGY; INVALID_TOPIC_EXCEPTION: an internal topic has an invalid name;
            UNKNOWN_SERVER_ERROR, as in Kafka: an internal topic comes twice, has a config twice or has no valid
            partition count, or a copartition group refers to a topic that the topology does not have.
    """
    for count, subtopology in enumerate(topology.subtopologies.values(), 1):
        copartition_groups(subtopology)
        if not count % PIECE:
            yield

    existing = topics.partition_count_of
    try:
        absent = {
            name
            for subtopology in topology.subtopologies.values()
            for name in subtopology.source_topics
            if existing(name) is None
        }
        if absent:
            detail = f"Source topics {summary(sorted(absent))} are missing."
            return _failed(topology, TopicProblem(StatusCode.MISSING_SOURCE_TOPICS, detail))
        yield
        decided = yield from decide_counts(topology, existing)

        def count_of(name: str) -> int:
            found = existing(name)
            return decided[name] if found is None else found

        configured = {}
        for count, (subtopology_id, subtopology) in enumerate(topology.subtopologies.items(), 1):
            task_count = max(map(count_of, source_topics(subtopology)))
            configured[subtopology_id] = _configured(subtopology, task_count, decided)
            if not count % PIECE:
                yield
        subtopologies = {subtopology_id: configured[subtopology_id] for subtopology_id in sorted(configured)}
        yield
        missing = _missing(subtopologies, topology, topics)
    except IncorrectlyPartitioned as error:
        return _failed(topology, TopicProblem(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, str(error)))
    problem = None
    if missing:
        detail = f"Internal topics are missing: {summary(list(missing))}"
        problem = TopicProblem(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def _failed(topology: StreamsTopology, problem: TopicProblem) -> ConfiguredTopology:
    return ConfiguredTopology(topology.epoch, None, {}, problem)


def _configured(subtopology: Subtopology, task_count: int, decided: Mapping[str, int]) -> ConfiguredSubtopology:
    repartition_source_topics = _internal_topics(subtopology.repartition_source_topics, decided)
    changelog_topics = _internal_topics(subtopology.state_changelog_topics, decided)
    assert task_count > 0, "source topics have partitions, and a repartition topic without any is refused above"
    return ConfiguredSubtopology(
        task_count,
        frozenset(subtopology.source_topics),
        repartition_source_topics,
        frozenset(subtopology.repartition_sink_topics),
        changelog_topics,
    )


def _internal_topics(topics: Collection[TopicInfo], decided: Mapping[str, int]) -> dict[str, InternalTopic]:
    found: dict[str, InternalTopic] = {}
    for topic in topics:
        count = topic.partitions or decided.get(topic.name)
        configs = {config.key: config.value for config in topic.topic_configs}
        if count is None or len(configs) < len(topic.topic_configs):
            raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR)
        reason = reason_invalid(topic.name)
        if reason is not None:
            raise GroupError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if count < 1 or topic.name in found:
            raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR)
        found[topic.name] = InternalTopic(topic.name, count, topic.replication_factor, configs)
    return {name: found[name] for name in hash_order(found)}


def _missing(
    subtopologies: Mapping[str, ConfiguredSubtopology], topology: StreamsTopology, topics: GroupTopics
) -> dict[str, InternalTopic]:
    """Internal topics that do not exist.

    Raises:
        IncorrectlyPartitioned: one that exists has another partition count.
    """
    wanted: dict[str, InternalTopic] = {}
    for subtopology in subtopologies.values():
        wanted |= subtopology.repartition_source_topics
        wanted |= subtopology.changelog_topics
    if not wanted:
        return {}
    table_size = grown_table_size(len(wanted))
    for name in hash_order(topology.required_topics):
        topic_id = topics.id_of(name)
        expected = None if topic_id is None else wanted.pop(name, None)
        if topic_id is not None and expected is not None:
            found = topics.partition_count(topic_id)
            if found != expected.partition_count:
                raise IncorrectlyPartitioned(
                    f"Existing topic {name} has different number of partitions: expected {expected.partition_count}, "
                    f"found {found}"
                )
    return {name: wanted[name] for name in hash_order(wanted, table_size)}


def summary(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    named = ", ".join(names[:TOPICS_NAMED])
    more = len(names) - TOPICS_NAMED
    return f"{named} and {more} additional topics" if more > 0 else named
