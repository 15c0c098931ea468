"""A large commit in flight is kept as a whole; what is asked about it is the same as of commits that are counted."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pykbroker.coordination.shard import NO_PRODUCER, TransactionalProducer
from pykbroker.groups.in_flight import InFlight
from pykbroker.groups.offset_commit import prepare_commit
from pykbroker.groups.offset_log import offset_tombstones
from pykbroker.groups.result import GroupResult, PreparedRemovals
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.steps import finished
from pykbroker.protocol.uuids import ZERO_UUID

GROUPS = ("g", "h")
TOPICS = ("a", "b", "c")
PARTITIONS = range(3)
IDS = (ZERO_UUID, b"1" * 16, b"2" * 16)
PRODUCER = TransactionalProducer(5, 0)


def commit(
    group_id: str, topics: dict[str, list[int]], topic_id: bytes, producer: TransactionalProducer
) -> GroupResult:
    """A commit with the offsets as the shard keeps them."""
    named = [
        OffsetCommitRequestTopic(
            name=topic,
            topic_id=topic_id,
            partitions=[
                OffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata="")
                for number in partitions
            ],
        )
        for topic, partitions in topics.items()
    ]
    request = OffsetCommitRequest(group_id=group_id, topics=named)
    result = finished(prepare_commit(request, 0, producer, 100))
    assert result.offsets is not None
    return result


def answers(in_flight: InFlight) -> object:
    """All that can be asked."""
    keys = [(group, topic, number) for group in GROUPS for topic in TOPICS for number in PARTITIONS]
    return (
        [key in in_flight for key in keys],
        [in_flight.is_tombstone(key) for key in keys],
        [sorted(in_flight.of_group(group)) for group in GROUPS],
        [sorted(in_flight.unstable_of_group(group)) for group in GROUPS],
        [sorted(in_flight.of_topics(dict.fromkeys(TOPICS[:2], topic_id))) for topic_id in IDS],
    )


def drawn(chance: random.Random) -> GroupResult:
    """A large or small commit, or tombstones, of one of the groups."""
    group_id = chance.choice(GROUPS)
    topics = {
        topic: chance.sample(PARTITIONS, chance.randint(1, 3)) for topic in chance.sample(TOPICS, chance.randint(1, 3))
    }
    if chance.random() < 0.3:
        records = offset_tombstones((group_id, topic, number) for topic in topics for number in topics[topic])
        removals = PreparedRemovals(group_id, {topic: set(numbers) for topic, numbers in topics.items()})
        return GroupResult(records=records, offsets=removals if chance.random() < 0.6 else None)
    result = commit(group_id, topics, chance.choice(IDS), chance.choice((NO_PRODUCER, PRODUCER)))
    return result if chance.random() < 0.6 else replace(result, offsets=None)


@pytest.mark.parametrize("seed", range(30))
def test_large_commits_are_as_those_that_are_counted(seed: int) -> None:
    chance = random.Random(seed)
    kept, counted = InFlight(), InFlight()
    waiting: list[tuple[GroupResult, GroupResult]] = []
    nothing = answers(kept)
    for _ in range(60):
        if waiting and chance.random() < 0.55:
            whole, single = waiting.pop(0)
            kept.remove(whole)
            counted.remove(single)
        else:
            whole = drawn(chance)
            single = replace(whole, offsets=None)
            waiting.append((whole, single))
            kept.add(whole)
            counted.add(single)
        assert answers(kept) == answers(counted)
    for whole, _ in waiting:
        kept.remove(whole)
    assert answers(kept) == nothing


@pytest.mark.parametrize("producer", [NO_PRODUCER, PRODUCER])
def test_no_record_of_a_large_commit_is_looked_at(producer: TransactionalProducer) -> None:
    """It may have thousands of them, which the broker would look at in one step."""
    result = commit("g", {"a": [0, 1]}, IDS[1], producer)
    result.records = None  # type: ignore[assignment]
    in_flight = InFlight()
    in_flight.add(result)
    assert in_flight.of_group("g") == [("a", 0), ("a", 1)]
    in_flight.remove(result)
    assert in_flight.of_group("g") == []
