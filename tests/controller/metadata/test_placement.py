"""Placement of replicas, checked against the aims of Kafka's striped placement."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.controller.metadata.image import BrokerImage
from pykbroker.controller.metadata.metadata_versions import DIRECTORY_ASSIGNMENT
from pykbroker.controller.metadata.placement import InvalidReplicationFactor, ReplicaPlacer, default_directory
from pykbroker.protocol.uuids import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from tests.controller.world import World


def broker(broker_id: int, rack: str | None = None, *, is_fenced: bool = False) -> BrokerImage:
    return BrokerImage(broker_id, 1, bytes(16), (), {}, rack, is_fenced, False, ())


def place(brokers: list[BrokerImage], replication_factor: int, count: int, seed: int = 0) -> list[tuple[int, ...]]:
    placer = ReplicaPlacer(brokers, replication_factor, random.Random(seed))
    return [placer.place() for _ in range(count)]


def test_partitions_are_striped_over_the_brokers_of_one_rack() -> None:
    placed = place([broker(n) for n in range(4)], 3, 4)
    first = placed[0][0]
    assert placed == [tuple((first + turn + replica) % 4 for replica in range(3)) for turn in range(4)]


def test_racks_are_taken_in_turn() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    for replicas in place([broker(n, rack) for n, rack in racks.items()], 3, 12):
        assert {racks[replica] for replica in replicas} == {"a", "b", "c"}


def test_a_fenced_broker_is_never_first_and_only_taken_when_needed() -> None:
    brokers = [broker(0), broker(1), broker(2, is_fenced=True)]
    assert all(2 not in replicas for replicas in place(brokers, 2, 8))
    assert all(replicas[0] != 2 and 2 in replicas for replicas in place(brokers, 3, 8))


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=8),
    data=st.data(),
    seed=st.integers(0, 1000),
)
def test_replicas_are_distinct_and_leaders_even(racks: list[str | None], data: st.DataObject, seed: int) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    placed = place([broker(n, rack) for n, rack in enumerate(racks)], factor, 5 * len(racks), seed)
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        wanted = min(factor, len(set(racks)))
        assert len({racks[replica] for replica in replicas}) == wanted
    if len(set(racks)) == 1:
        leaders = Counter(replicas[0] for replicas in placed)
        assert max(leaders.values()) - min(leaders[n] for n in range(len(racks))) <= 1


def test_what_cannot_be_placed() -> None:
    with pytest.raises(InvalidReplicationFactor, match="cannot be reached because only 1 broker"):
        place([broker(0)], 2, 1)
    with pytest.raises(InvalidReplicationFactor, match="All brokers are currently fenced"):
        place([broker(0, is_fenced=True)], 1, 1)
    with pytest.raises(InvalidReplicationFactor, match="must be positive"):
        place([broker(0)], 0, 1)


def test_the_directory_of_a_new_replica() -> None:
    """KIP-858: the only one of its broker; a reserved id where there is none, or where the broker has to choose."""
    world = World([1, 2])
    image = world.image
    broker = image.brokers[1]
    cases = [
        (broker._replace(log_dirs=(b"d" * 16,)), b"d" * 16),
        (broker._replace(log_dirs=(b"d" * 16, b"e" * 16)), UNASSIGNED_DIRECTORY),
        (broker._replace(log_dirs=()), MIGRATING_DIRECTORY),
    ]
    for changed, expected in cases:
        image.brokers = {1: changed}
        assert default_directory(1, image) == expected
    assert default_directory(9, image) == UNASSIGNED_DIRECTORY
    old = World([1], metadata_version=DIRECTORY_ASSIGNMENT - 1)
    assert default_directory(1, old.image) == MIGRATING_DIRECTORY
