"""The topology of a Streams application as its clients declare it, and as a record stores it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pykbroker.groups.modern.errors import GroupError
from pykbroker.java_order import hash_order
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.streams_group_records import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from pykbroker.protocol.messages import streams_group_heartbeat as wire
from pykbroker.protocol.steps import Steps, list_in_steps


class StreamsTopology(NamedTuple):
    """A topology.

    Attributes:
        epoch: its epoch; clients of a newer one are refused, those of an older one get STALE_TOPOLOGY.
        subtopologies: id -> subtopology, in the order of Kafka's hash table.
        readers: source and repartition topic -> the subtopology that reads it.
    """

    epoch: int
    subtopologies: Mapping[str, Subtopology]
    readers: Mapping[str, Subtopology]

    def is_same_as(self, other: StreamsTopology) -> bool:
        """True if epoch and subtopologies are equal. `readers` follow from these and are not compared."""
        return (self.epoch, self.subtopologies) == (other.epoch, other.subtopologies)

    @property
    def required_topics(self) -> set[str]:
        """Names of all topics that tasks read or keep their state in."""
        return {name for subtopology in self.subtopologies.values() for name in _required(subtopology)}


def topology_from(value: StreamsGroupTopologyValue) -> StreamsTopology:
    """The topology of a record.

    Raises:
        GroupError: UNKNOWN_SERVER_ERROR, as Kafka has no other for a negative epoch or two subtopologies with one id.
    """
    found = {subtopology.subtopology_id: subtopology for subtopology in value.subtopologies}
    if value.epoch < 0 or len(found) < len(value.subtopologies):
        raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR)
    ordered = {subtopology_id: found[subtopology_id] for subtopology_id in hash_order(found)}
    readers = {}
    for subtopology in ordered.values():
        for name in source_topics(subtopology):
            readers[name] = subtopology
    return StreamsTopology(value.epoch, ordered, readers)


def source_topics(subtopology: Subtopology) -> Iterator[str]:
    """Topics that the tasks of a subtopology consume, those of repartitions last."""
    yield from subtopology.source_topics
    yield from (topic.name for topic in subtopology.repartition_source_topics)


def _required(subtopology: Subtopology) -> Iterator[str]:
    yield from source_topics(subtopology)
    yield from (topic.name for topic in subtopology.state_changelog_topics)


def topology_value(topology: wire.Topology) -> Steps[StreamsGroupTopologyValue]:
    """The record of a topology that a client declares."""
    subtopologies = yield from list_in_steps(map(_subtopology, topology.subtopologies))
    return StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=subtopologies)


def _subtopology(subtopology: wire.Subtopology) -> Subtopology:
    return Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=subtopology.source_topics,
        source_topic_regex=subtopology.source_topic_regex,
        state_changelog_topics=_topic_infos(subtopology.state_changelog_topics),
        repartition_sink_topics=subtopology.repartition_sink_topics,
        repartition_source_topics=_topic_infos(subtopology.repartition_source_topics),
        copartition_groups=[
            CopartitionGroup(
                source_topics=group.source_topics,
                source_topic_regex=group.source_topic_regex,
                repartition_source_topics=group.repartition_source_topics,
            )
            for group in subtopology.copartition_groups
        ],
    )


def _topic_infos(topics: Iterable[wire.TopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[TopicConfig(key=config.key, value=config.value) for config in topic.topic_configs],
        )
        for topic in topics
    ]
