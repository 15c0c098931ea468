"""ElectLeaders on clusters of several brokers (P-156)."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.metadata import periodic_elections
from pykbroker.controller.metadata.brokers import FenceBroker, UnfenceBroker
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.elect_leaders import PREFERRED, UNCLEAN, ElectLeaders
from pykbroker.controller.metadata.image import PartitionImage
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord
from tests.controller.world import World


def world_with(*assignments: tuple[int, ...]) -> World:
    world = World([1, 2, 3])
    world.do(CreateTopics([NewTopic("t", assignments=list(enumerate(assignments)))]))
    return world


def partition(world: World, number: int = 0) -> PartitionImage:
    return world.image.topics_by_name["t"].partitions[number]


def change(world: World, **fields: Any) -> None:
    topic_id = world.image.topics_by_name["t"].topic_id
    world.apply([PartitionChangeRecord(partition_id=0, topic_id=topic_id, **fields)])


def fence(world: World, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        world.do(FenceBroker(broker_id, world.image.brokers[broker_id].epoch))


def unfence(world: World, broker_id: int) -> None:
    world.do(UnfenceBroker(broker_id, world.image.brokers[broker_id].epoch))


def elect(world: World, election_type: int = PREFERRED) -> ErrorCode:
    ((_, (result,)),) = world.do(ElectLeaders(election_type, [("t", [0])]))
    return result.error.code


def test_the_preferred_leader_takes_over_when_it_is_back_in_sync() -> None:
    """P-156."""
    world = world_with((1, 2))
    assert elect(world) == ErrorCode.ELECTION_NOT_NEEDED
    fence(world, 1)
    assert (partition(world).leader, partition(world).isr) == (2, (2,))
    assert elect(world) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    unfence(world, 1)
    assert elect(world) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE  # it serves, but is not in sync yet
    change(world, isr=[2, 1])
    before = partition(world)
    assert elect(world) == ErrorCode.NONE
    after = partition(world)
    assert (after.leader, after.isr, after.leader_epoch) == (1, (2, 1), before.leader_epoch + 1)
    assert elect(world) == ErrorCode.ELECTION_NOT_NEEDED


def test_a_preferred_election_gives_a_leaderless_partition_whoever_is_in_sync() -> None:
    world = world_with((1, 2))
    change(world, leader=-1)
    fence(world, 1)
    change(world, isr=[2], leader=-1)
    assert elect(world) == ErrorCode.NONE
    assert partition(world).leader == 2


def test_an_unclean_election_takes_any_replica_that_serves() -> None:
    """P-156."""
    world = world_with((1, 2))
    assert elect(world, UNCLEAN) == ErrorCode.ELECTION_NOT_NEEDED
    fence(world, 2, 1)
    assert partition(world).leader == -1
    assert elect(world, UNCLEAN) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    unfence(world, 2)
    assert partition(world).leader == -1  # 1 was the last in sync
    assert elect(world, PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(world, UNCLEAN) == ErrorCode.NONE
    after = partition(world)
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)


def test_all_partitions_are_asked_but_only_those_with_something_to_do_are_told() -> None:
    world = world_with((1, 2), (2, 1), (3, 1))
    fence(world, 1)
    unfence(world, 1)
    change(world, isr=[2, 1])
    ((topic, results),) = world.do(ElectLeaders(PREFERRED))
    assert topic == "t"
    assert [(result.partition, result.error.code) for result in results] == [(0, ErrorCode.NONE)]
    assert [partition(world, number).leader for number in range(3)] == [1, 2, 3]
    assert world.do(ElectLeaders(PREFERRED)) == [("t", [])]


def test_what_does_not_exist_is_said_by_name() -> None:
    world = world_with((1,))
    answer = world.do(ElectLeaders(PREFERRED, [("t", [4]), ("nope", [0])]))
    assert [(topic, [tuple(result.error) for result in results]) for topic, results in answer] == [
        ("t", [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-4")]),
        ("nope", [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as nope")]),
    ]


def test_an_unknown_kind_of_election_is_refused_as_a_whole() -> None:
    with pytest.raises(CommandRefused, match="Unknown election type 2") as refused:
        world_with((1,)).do(ElectLeaders(2))
    assert refused.value.error.code == ErrorCode.INVALID_REQUEST


def test_an_election_that_changes_too_much_is_refused_as_a_whole() -> None:
    world = World([1, 2])
    for number in range(2):
        world.do(CreateTopics([NewTopic(f"t{number}", assignments=[(n, (1, 2)) for n in range(6_000)])]))
    fence(world, 1)
    unfence(world, 1)
    world.apply(
        PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id, isr=[1, 2])
        for topic in world.image.topics_by_name.values()
        for number in topic.partitions
    )
    with pytest.raises(CommandRefused) as refused:
        world.do(ElectLeaders(PREFERRED))
    assert refused.value.error.code == ErrorCode.POLICY_VIOLATION


def test_a_round_of_elections_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests get their turn; the result says that partitions may be left."""
    monkeypatch.setattr(periodic_elections, "ELECTION_COUNT_MAX", 2)
    world = World([1, 2])
    world.do(CreateTopics([NewTopic("t", assignments=[(number, (1, 2)) for number in range(3)])]))
    topic = world.image.topics_by_name["t"]
    world.apply(
        [PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id, leader=2) for number in topic.partitions]
    )
    assert world.do(periodic_elections.ElectPreferredLeaders()) is True
    assert [partition.leader for partition in world.image.topics_by_name["t"].partitions.values()] == [1, 1, 2]
    assert world.do(periodic_elections.ElectPreferredLeaders()) is False
    assert [partition.leader for partition in world.image.topics_by_name["t"].partitions.values()] == [1, 1, 1]
