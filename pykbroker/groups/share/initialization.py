"""Initialization of the state of share partitions in the share coordinator, as a share group's records follow it.

A partition is first noted as initializing, then the share coordinator is asked, and then it is noted as initialized or,
after an error, is no longer noted, so that a later heartbeat tries again. Operations return records and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import LogRecord
from pykbroker.groups.share.group import ShareGroup, TopicState
from pykbroker.groups.share.records import state_record
from pykbroker.protocol.steps import PIECE, Steps, finished

UNKNOWN_NAME = "<UNKNOWN>"
"""Kafka's name of a topic that does not exist any more."""

TopicPartitionNumbers = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions."""


def missing_partitions(
    group: ShareGroup, names: Iterable[str], topics: GroupTopics, now_ms: int, retry_interval_ms: int
) -> Steps[dict[bytes, TopicState]]:
    """Partitions of these topics that must be initialized: new ones, and those tried `retry_interval_ms` ago."""
    pending = {
        topic_id: state
        for topic_id, state in group.initializing.items()
        if now_ms - state.timestamp_ms < retry_interval_ms
    }
    known = merged(group.initialized, pending)
    missing = {}
    for count, name in enumerate(names, 1):
        if not count % PIECE:
            yield
        topic_id = topics.id_of(name)
        if topic_id is None:
            continue
        partition_count = topics.partition_count(topic_id)
        had = known[topic_id].partitions if topic_id in known else frozenset()
        if not had or len(had) < partition_count:
            missing[topic_id] = TopicState(name, frozenset(range(partition_count)) - had, now_ms)
    return missing


def initializing_record(
    group: ShareGroup, missing: Mapping[bytes, TopicState], topics: GroupTopics, now_ms: int
) -> Steps[LogRecord]:
    """The record that notes partitions as initializing; a topic that was being deleted no longer is."""
    initializing = merged(group.initializing, missing)
    deleting = group.deleting - initializing.keys()
    yield
    names = with_names(deleting, topics)
    return (yield from state_record(group.group_id, initializing, group.initialized, names, now_ms))


def initialized_record(
    group: ShareGroup, partitions: TopicPartitionNumbers, topics: GroupTopics, now_ms: int
) -> Steps[LogRecord]:
    """The record that notes partitions as initialized."""
    done = {
        topic_id: TopicState(topics.name_of(topic_id) or UNKNOWN_NAME, numbers, now_ms)
        for topic_id, numbers in partitions.items()
    }
    yield
    initializing = without(group.initializing, partitions)
    yield
    initialized = merged(group.initialized, done)
    yield
    names = with_names(group.deleting, topics)
    return (yield from state_record(group.group_id, initializing, initialized, names, now_ms))


def uninitialized_record(group: ShareGroup, partitions: TopicPartitionNumbers, topics: GroupTopics) -> LogRecord | None:
    """The record that no longer notes partitions as initializing, after an error; None if there is nothing to note."""
    if not group.initializing or not partitions:
        return None
    initializing = without(group.initializing, partitions)
    names = with_names(group.deleting, topics)
    return finished(state_record(group.group_id, initializing, group.initialized, names))


def merged(first: Mapping[bytes, TopicState], second: Mapping[bytes, TopicState]) -> dict[bytes, TopicState]:
    """The partitions of both; names and times are those of the second where it has the topic."""
    result = dict(first)
    for topic_id, state in second.items():
        had = first.get(topic_id)
        result[topic_id] = state if had is None else state._replace(partitions=had.partitions | state.partitions)
    return result


def without(states: Mapping[bytes, TopicState], partitions: TopicPartitionNumbers) -> dict[bytes, TopicState]:
    """The states without these partitions. A topic goes with the last of its partitions.

    A topic that had none before stays, as in Kafka; AlterShareGroupOffsets without partitions adds such topics.
    """
    left = dict(states)
    for topic_id, numbers in partitions.items():
        state = left.pop(topic_id, None)
        if state is not None and state.partitions - numbers:
            left[topic_id] = state._replace(partitions=state.partitions - numbers)
    return left


def with_names(topic_ids: Iterable[bytes], topics: GroupTopics) -> dict[bytes, str]:
    """Topic id -> name, or `UNKNOWN_NAME`."""
    return {topic_id: topics.name_of(topic_id) or UNKNOWN_NAME for topic_id in topic_ids}
