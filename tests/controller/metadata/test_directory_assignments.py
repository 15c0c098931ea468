"""AssignReplicasToDirs, and what the state of a directory means for who leads (KIP-858)."""

from __future__ import annotations

import pytest

from pykbroker.controller.metadata.brokers import FenceBroker, UnfenceBroker
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.directory_assignments import AssignReplicasToDirs, DirectoryReplicas
from pykbroker.controller.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, PartitionImage
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import BrokerRegistrationChangeRecord
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
    """The broker serves, but not this partition: a leaderless partition stays so."""
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
    assign(world, LOST_DIRECTORY)
    assert (partition(world).leader, partition(world).isr) == (-1, (1,))
    assign(world, TWO)
    assert partition(world).leader == 1
