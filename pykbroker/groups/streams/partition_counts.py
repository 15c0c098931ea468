"""Partition counts of a topology's internal topics, which follow from those of its source topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.streams.topology import StreamsTopology, source_topics
from pykbroker.java_order import hash_order
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.streams_group_records import Subtopology
from pykbroker.protocol.steps import PIECE, Steps

ExistingCount = Callable[[str], int | None]
"""Returns the partition count of a topic that exists, else None."""

LOOP = (
    "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that cannot "
    "be resolved."
)
NO_SINK = (
    "Failed to compute number of partitions for all repartition topics, because a repartition source topic is never "
    "used as a sink topic."
)


class IncorrectlyPartitioned(Exception):
    """Topics that must have the same partition count have others; the text is that of the status."""


def decide_counts(topology: StreamsTopology, existing: ExistingCount) -> Steps[dict[str, int]]:
    """Topic -> partition count of repartition and changelog topics.

    Args:
        topology: a topology whose source topics exist.
        existing: the partition counts of topics that exist, which are not changed.

    Raises:
        GroupError: STREAMS_INVALID_TOPOLOGY: no counts follow. UNKNOWN_SERVER_ERROR: a copartition group refers to a
            topic that the topology does not have.
        IncorrectlyPartitioned: topics that are joined have different counts.
    """
    subtopologies = topology.subtopologies.values()
    decided = _repartition_counts(subtopologies, existing)
    yield

    def count_of(topic: str) -> int:
        # Source topics exist, and repartition topics are decided.
        found = existing(topic)
        return decided[topic] if found is None else found

    repartitions = [topic for subtopology in subtopologies for topic in subtopology.repartition_source_topics]
    fixed = hash_order({topic.name: None for topic in repartitions if topic.partitions != 0})
    flexible = {topic.name for topic in repartitions if topic.partitions == 0}
    for subtopology in subtopologies:
        for group in copartition_groups(subtopology):
            decided.update(_copartitioned(group, fixed, flexible, count_of))
    yield
    changelogs: dict[str, int] = {}
    for number, subtopology in enumerate(subtopologies, 1):
        counts = [count_of(name) for name in source_topics(subtopology)]
        if not counts:
            message = f"No source topics found for subtopology {subtopology.subtopology_id}"
            raise GroupError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
        for topic in subtopology.state_changelog_topics:
            changelogs[topic.name] = max(counts)
        if not number % PIECE:
            yield
    return decided | changelogs


def copartition_groups(subtopology: Subtopology) -> list[list[str]]:
    """The topics of each copartition group, which refers to them by their positions.

    Raises:
        GroupError: UNKNOWN_SERVER_ERROR: there is no such position.
    """
    try:
        return [
            hash_order(
                dict.fromkeys(
                    [
                        *(subtopology.source_topics[_position(number)] for number in group.source_topics),
                        *(
                            subtopology.repartition_source_topics[_position(number)].name
                            for number in group.repartition_source_topics
                        ),
                    ]
                )
            )
            for group in subtopology.copartition_groups
        ]
    except IndexError:
        raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR) from None


def _position(number: int) -> int:
    if number < 0:
        raise IndexError(number)
    return number


def _repartition_counts(subtopologies: Collection[Subtopology], existing: ExistingCount) -> dict[str, int]:
    """Counts of repartition topics: the declared one, or the most partitions that a task writing to it reads."""
    counts = {
        topic.name: topic.partitions
        for subtopology in subtopologies
        for topic in subtopology.repartition_source_topics
        if topic.partitions != 0
    }
    while True:
        is_incomplete = has_progress = False
        for subtopology in subtopologies:
            for sink in subtopology.repartition_sink_topics:
                if sink in counts:
                    continue
                count = _most_read(subtopology, counts, existing)
                if count is None:
                    is_incomplete = True
                else:
                    counts[sink] = count
                    has_progress = True
        if not is_incomplete:
            break
        if not has_progress:
            raise GroupError(ErrorCode.STREAMS_INVALID_TOPOLOGY, LOOP)
    if any(t.name not in counts for subtopology in subtopologies for t in subtopology.repartition_source_topics):
        raise GroupError(ErrorCode.STREAMS_INVALID_TOPOLOGY, NO_SINK)
    return counts


def _most_read(subtopology: Subtopology, counts: Mapping[str, int], existing: ExistingCount) -> int | None:
    repartitions = (counts.get(topic.name) for topic in subtopology.repartition_source_topics)
    sources = (existing(name) for name in subtopology.source_topics)
    return max((count for count in (*repartitions, *sources) if count is not None), default=None)


def _copartitioned(
    group: Collection[str], fixed: Collection[str], flexible: Collection[str], count_of: Callable[[str], int]
) -> dict[str, int]:
    """Counts of the repartition topics of one copartition group: that of its other topics, or the most of them."""
    if not group:
        return {}
    repartitions = {name: count_of(name) for name in group if name in fixed or name in flexible}
    others = {name: count_of(name) for name in group if name not in repartitions}
    if others:
        count = _common_count(others.values(), others)
    elif fixed:
        count = _common_count(map(count_of, fixed), repartitions)
    else:
        count = max(repartitions.values())
    for name, own in repartitions.items():
        if name in fixed and own != count:
            raise IncorrectlyPartitioned(
                f"Number of partitions [{own}] of repartition topic [{name}] doesn't match number of partitions "
                f"[{count}] of the source topic."
            )
    return dict.fromkeys(repartitions, count)


def _common_count(counts: Iterable[int], named: Mapping[str, int]) -> int:
    found = list(counts)
    if any(count != found[0] for count in found):
        listed = ", ".join(f"{name}={named[name]}" for name in sorted(named))
        raise IncorrectlyPartitioned(f"Following topics do not have the same number of partitions: [{{{listed}}}]")
    return found[0]
