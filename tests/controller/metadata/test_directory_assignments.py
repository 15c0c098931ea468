"""AssignReplicasToDirs, and leaders by the state of directories (KIP-858)."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.metadata.broker_elections import UNCLEAN_KEY
from pykbroker.controller.metadata.brokers import FenceBroker, UnfenceBroker
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.directory_assignments import AssignReplicasToDirs, DirectoryReplicas
from pykbroker.controller.metadata.elect_leaders import PREFERRED, ElectLeaders
from pykbroker.controller.metadata.image import PartitionImage
from pykbroker.controller.metadata.periodic_elections import ElectPreferredLeaders
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
)
from pykbroker.protocol.uuids import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from tests.controller.world import World, directory_id

ONE, TWO = directory_id(1), directory_id(101)


def world_with_partition() -> World:
    """t-0 on brokers 1 and 2; broker 1 has two directories."""
    world = World([2, 3])
    world.register(1, log_dirs=[ONE, TWO])
    world.do(CreateTopics([NewTopic("t", assignments=[(0, (1, 2))])]))
    return world


def partition(world: World) -> PartitionImage:
    return world.image.topics_by_name["t"].partitions[0]


def assign(world: World, directory: bytes, number: int = 0, topic_id: bytes | None = None, broker_id: int = 1) -> int:
    replicas = [(topic_id or world.image.topics_by_name["t"].topic_id, number)]
    epoch = world.image.brokers[broker_id].epoch
    ((error,),) = world.do(AssignReplicasToDirs(broker_id, epoch, [DirectoryReplicas(directory, replicas)]))
    return error


def test_a_broker_says_which_of_its_directories_it_chose() -> None:
    world = world_with_partition()
    assert partition(world).directories == (UNASSIGNED_DIRECTORY, directory_id(2))
    assert assign(world, TWO) == ErrorCode.NONE
    after = partition(world)
    assert (after.directories, after.isr, after.leader, after.partition_epoch) == ((TWO, directory_id(2)), (1, 2), 1, 1)
    assert assign(world, TWO) == ErrorCode.NONE
    assert partition(world) == after


@pytest.mark.parametrize("directory", [LOST_DIRECTORY, directory_id(77)])
def test_a_replica_in_a_directory_out_of_use_is_not_in_sync(directory: bytes) -> None:
    world = world_with_partition()
    assert assign(world, directory) == ErrorCode.NONE
    after = partition(world)
    assert (after.directories[0], after.isr, after.leader) == (directory, (2,), 2)


def test_what_does_not_exist() -> None:
    world = world_with_partition()
    assert assign(world, TWO, number=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert assign(world, TWO, topic_id=bytes(16)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert assign(world, directory_id(3), broker_id=3) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(CommandRefused) as refused:
        world.do(AssignReplicasToDirs(1, 99_999, []))
    assert refused.value.error.code == ErrorCode.STALE_BROKER_EPOCH


def test_who_has_lost_the_directory_does_not_lead() -> None:
    """The broker is active, but its replica is in a failed directory: the partition stays without a leader."""
    world = world_with_partition()
    assign(world, TWO)
    for broker_id in (2, 1):
        world.do(FenceBroker(broker_id, world.image.brokers[broker_id].epoch))
    assert (partition(world).leader, partition(world).isr) == (-1, (1,))
    epoch = world.image.brokers[1].epoch
    world.apply([BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, log_dirs=[ONE])])
    world.do(UnfenceBroker(1, epoch))
    assert partition(world).leader == -1


def test_a_replica_that_was_taken_for_lost_leads_again() -> None:
    """Unlike in Kafka, where the partition waits for another event."""
    world = world_with_partition()
    world.do(FenceBroker(2, world.image.brokers[2].epoch))
    assign(world, directory_id(77))
    assert (partition(world).leader, partition(world).isr) == (-1, (1,))
    assign(world, TWO)
    assert partition(world).leader == 1


def test_the_last_in_sync_replica_keeps_the_lead_of_what_it_cannot_write() -> None:
    """A leader with a full disk stays leader while no other replica is in sync: its records can still be read."""
    world = world_with_partition()
    assign(world, TWO)
    world.do(FenceBroker(2, world.image.brokers[2].epoch))
    before = partition(world)
    assert (before.leader, before.isr) == (1, (1,))
    assert assign(world, LOST_DIRECTORY) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert partition(world) == before
    # With another one in sync it is taken down.
    world.do(UnfenceBroker(2, world.image.brokers[2].epoch))
    world.apply([PartitionChangeRecord(partition_id=0, topic_id=world.image.topics_by_name["t"].topic_id, isr=[1, 2])])
    assert assign(world, LOST_DIRECTORY) == ErrorCode.NONE
    after = partition(world)
    assert (after.directories[0], after.isr, after.leader) == (LOST_DIRECTORY, (2,), 2)


def test_where_an_unclean_leader_is_allowed_somebody_else_could_lead() -> None:
    world = world_with_partition()
    world.do(FenceBroker(2, world.image.brokers[2].epoch))
    world.do(UnfenceBroker(2, world.image.brokers[2].epoch))
    assert partition(world).isr == (1,)
    world.apply([ConfigRecord(resource_type=2, resource_name="t", name=UNCLEAN_KEY, value="true")])
    assert assign(world, LOST_DIRECTORY) == ErrorCode.NONE
    assert (partition(world).leader, partition(world).isr) == (2, (2,))


def test_a_replica_that_came_back_into_the_set_is_taken_out_again() -> None:
    """The leader may have added it again, because a fetch was under way when it reported its directory as lost."""
    world = world_with_partition()
    assign(world, LOST_DIRECTORY)
    world.apply([PartitionChangeRecord(partition_id=0, topic_id=world.image.topics_by_name["t"].topic_id, isr=[2, 1])])
    assert assign(world, LOST_DIRECTORY) == ErrorCode.NONE
    assert (partition(world).leader, partition(world).isr) == (2, (2,))


def test_other_partitions_of_the_directory_stay() -> None:
    world = world_with_partition()
    assign(world, LOST_DIRECTORY)
    topic_id = world.image.topics_by_name["t"].topic_id
    world.do(CreateTopics([NewTopic("u", assignments=[(0, (1, 2))])]))
    world.apply([PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[2, 1])])
    assign(world, LOST_DIRECTORY, topic_id=world.image.topics_by_name["u"].topic_id)
    assert partition(world).isr == (2, 1)
    assert world.image.topics_by_name["u"].partitions[0].isr == (2,)


@pytest.mark.parametrize("directories", [[], [ONE, TWO]])
def test_nobody_leads_from_a_lost_directory(directories: list[bytes]) -> None:
    """Not as the preferred leader either, nor where the broker's directories are not known."""
    world = world_with_partition()
    assign(world, LOST_DIRECTORY)
    record = world.image.brokers[1]
    world.apply([PartitionChangeRecord(partition_id=0, topic_id=world.image.topics_by_name["t"].topic_id, isr=[2, 1])])
    brokers: Any = world.image.brokers
    brokers[1] = record._replace(log_dirs=tuple(directories))
    ((_, (result,)),) = world.do(ElectLeaders(PREFERRED, [("t", [0])]))
    assert result.error.code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert world.do(ElectPreferredLeaders()) is False
    assert partition(world).leader == 2
    world.do(FenceBroker(2, world.image.brokers[2].epoch))
    assert partition(world).leader == -1
