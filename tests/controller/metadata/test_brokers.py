"""Registration and fencing of brokers, and the leaders after them."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.broker_heartbeats import BrokerHeartbeats, Heartbeat
from pykbroker.controller.broker_session_commands import AdmitBroker, ProcessHeartbeat
from pykbroker.controller.metadata.alter_partition import AlterPartition, InSyncReplica, IsrChange
from pykbroker.controller.metadata.brokers import (
    FenceBroker,
    RegisterBroker,
    RegisterController,
    StartControlledShutdown,
    UnfenceBroker,
    UnregisterBroker,
    reason_not_supported,
)
from pykbroker.controller.metadata.commands import CommandRefused, LongCommand, Plan
from pykbroker.controller.metadata.configs import SET, ConfigEdit, ConfigResourceEdits, IncrementalAlterConfigs
from pykbroker.controller.metadata.directory_assignments import AssignReplicasToDirs, DirectoryReplicas
from pykbroker.controller.metadata.features import SUPPORTED_FEATURES
from pykbroker.controller.metadata.image import EMPTY_IMAGE, TOPIC_RESOURCE, Endpoint, PartitionImage
from pykbroker.controller.metadata.periodic_elections import ElectPreferredLeaders
from pykbroker.controller.metadata.producer_id_blocks import AllocateProducerIds, ProducerIdBlock
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord, ProducerIdsRecord
from pykbroker.protocol.steps import PIECE, Steps, finished
from pykbroker.protocol.uuids import uuid_to_text
from tests.controller.world import World, directory_id


def world_with_partition(*replicas: int) -> World:
    world = World([1, 2, 3])
    world.do(CreateTopics([NewTopic("t", assignments=[(0, replicas)])]))
    return world


def partition(world: World) -> PartitionImage:
    return world.image.topics_by_name["t"].partitions[0]


def epoch(world: World, broker_id: int) -> int:
    return world.image.brokers[broker_id].epoch


def test_a_brokers_epoch_is_the_offset_of_its_registration() -> None:
    world = World([])
    world.apply([])
    assert world.register(1) == world.image.offset == epoch(world, 1)
    assert not world.image.brokers[1].is_fenced
    again = world.register(1)
    assert again == epoch(world, 1)
    assert again < world.image.offset  # the same incarnation only amends its registration


def test_a_broker_that_leaves_gives_up_its_leadership() -> None:
    world = world_with_partition(1, 2)
    world.do(FenceBroker(1, epoch(world, 1)))
    after = partition(world)
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (2, (2,), 1, 1)
    # The last in-sync replica stays in the set: it alone has everything.
    world.do(FenceBroker(2, epoch(world, 2)))
    after = partition(world)
    assert (after.leader, after.isr, after.leader_epoch) == (-1, (2,), 2)
    world.do(UnfenceBroker(1, epoch(world, 1)))
    assert partition(world).leader == -1
    world.do(UnfenceBroker(2, epoch(world, 2)))
    after = partition(world)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2,), 3)


def test_an_unclean_election_happens_only_where_it_is_allowed() -> None:
    world = world_with_partition(1, 2)
    allow = ConfigEdit("unclean.leader.election.enable", SET, "true")
    world.do(FenceBroker(2, epoch(world, 2)))
    world.do(FenceBroker(1, epoch(world, 1)))
    world.do(IncrementalAlterConfigs([ConfigResourceEdits(TOPIC_RESOURCE, "t", [allow])]))
    world.do(UnfenceBroker(2, epoch(world, 2)))
    after = partition(world)
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)


def test_controlled_shutdown_moves_leaders_while_the_broker_serves() -> None:
    world = world_with_partition(1, 2)
    world.do(StartControlledShutdown(1, epoch(world, 1)))
    assert world.image.brokers[1].in_controlled_shutdown
    assert not world.image.brokers[1].is_active
    assert (partition(world).leader, partition(world).isr) == (2, (2,))


@pytest.mark.parametrize(("is_clean", "leader_epoch"), [(True, 0), (False, 1)])
def test_a_single_broker_comes_back(is_clean: bool, leader_epoch: int) -> None:
    """After an unclean stop its log may have lost its end, so that it leads in a new leader epoch."""
    world = world_with_partition(1)
    world.register(1, incarnation=2, is_clean_restart=is_clean)
    after = partition(world)
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1,), leader_epoch)


def test_a_broker_that_kafka_fenced_when_it_stopped_leads_again() -> None:
    world = world_with_partition(1)
    world.do(FenceBroker(1, epoch(world, 1)))
    assert partition(world).leader == -1
    world.register(1, incarnation=2, is_clean_restart=True)
    assert partition(world).leader == 1


def test_a_new_incarnation_leaves_to_others_what_they_have_too() -> None:
    world = world_with_partition(1, 2)
    world.register(1, incarnation=2)
    assert (partition(world).leader, partition(world).isr) == (2, (2,))
    world = world_with_partition(1)
    world.register(1, incarnation=2, is_fenced=True)
    assert partition(world).leader == -1
    assert world.image.brokers[1].is_fenced


def test_registrations_that_are_refused() -> None:
    world = World([1, 2])

    def refused(**changes: object) -> tuple[ErrorCode, str | None]:
        arguments: dict[str, Any] = {
            "broker_id": 3,
            "incarnation_id": bytes(16),
            "endpoints": [],
            "features": SUPPORTED_FEATURES,
            "log_dirs": [directory_id(3)],
        }
        with pytest.raises(CommandRefused) as caught:
            world.do(RegisterBroker(**(arguments | changes)))
        return caught.value.error

    assert refused(log_dirs=[]) == (ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    assert refused(log_dirs=[bytes(16)])[1] == "Reserved directory ID in request"
    assert refused(log_dirs=[directory_id(3)] * 2)[1] == "Duplicate directory ID in request"
    assert str(refused(log_dirs=[directory_id(2)])[1]).startswith("Broker 2 is already registered with directory ")
    world.register(4, log_dirs=[directory_id(number) for number in range(40, 80)])
    taken = [directory_id(number) for number in (77, 2, *range(40, 77))]
    message = refused(log_dirs=[directory_id(3), *taken])[1]
    assert message == f"Broker 4 is already registered with directory {uuid_to_text(directory_id(77))}"
    assert refused(features={})[1] == "Request features do not contain 'metadata.version'"
    assert refused(features={"metadata.version": (7, 20)}) == (
        ErrorCode.UNSUPPORTED_VERSION,
        (
            "Unable to register because the broker does not support finalized version 30 of metadata.version. The "
            "broker wants a version between 7 and 20, inclusive."
        ),
    )
    # Checked in this order: features in the request, a missing metadata.version, features that the request lacks.
    assert refused(features={"some.version": (1, 2)})[0] == ErrorCode.UNSUPPORTED_VERSION
    named = {"kraft.version": SUPPORTED_FEATURES["kraft.version"]}
    assert refused(features=named)[0] == ErrorCode.INVALID_REGISTRATION
    assert "some.version" not in world.image.features
    assert refused(features={**SUPPORTED_FEATURES, "some.version": (1, 2)}) == (
        ErrorCode.UNSUPPORTED_VERSION,
        (
            "Unable to register because the broker does not support finalized version 0 of some.version. The "
            "broker wants a version between 1 and 2, inclusive."
        ),
    )


def test_unregistering() -> None:
    world = world_with_partition(1, 2)
    world.do(UnregisterBroker(1))
    assert 1 not in world.image.brokers
    assert partition(world).leader == 2
    with pytest.raises(CommandRefused) as caught:
        world.do(UnregisterBroker(1))
    assert caught.value.error == (ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker ID 1 is not currently registered")


def test_registering_a_controller() -> None:
    world = World()
    world.do(RegisterController(1, bytes(16), [Endpoint("CONTROLLER", "h", 9093, 0)], SUPPORTED_FEATURES))
    assert world.image.controllers[1].endpoints == (("CONTROLLER", "h", 9093, 0),)


def test_p59_producer_ids_come_in_blocks_of_1000_and_never_twice() -> None:
    """P-59."""
    world = World([1, 2])
    blocks = [world.do(AllocateProducerIds(broker_id, epoch(world, broker_id))) for broker_id in (1, 2, 1)]
    assert blocks == [ProducerIdBlock(0, 1000), ProducerIdBlock(1000, 1000), ProducerIdBlock(2000, 1000)]
    with pytest.raises(CommandRefused) as caught:
        world.do(AllocateProducerIds(1, 0))
    assert caught.value.error.code == ErrorCode.STALE_BROKER_EPOCH


def test_producer_ids_end() -> None:
    """Kafka's ProducerIdControlManager, with its text."""
    world = World()
    world.apply([ProducerIdsRecord(broker_id=1, broker_epoch=epoch(world, 1), next_producer_id=(1 << 63) - 500)])
    with pytest.raises(CommandRefused, match="Exhausted all producerIds") as caught:
        world.do(AllocateProducerIds(1, epoch(world, 1)))
    assert caught.value.error.code == ErrorCode.UNKNOWN_SERVER_ERROR


MANY = 10 * PIECE


def commands_about_many_partitions(world: World) -> list[LongCommand[Any]]:
    """Each looks at hundreds of partitions that broker 1 leads."""
    leader, topic = epoch(world, 1), world.image.topics_by_name["t"]
    shrinks = [IsrChange(number, 0, 0, [InSyncReplica(1)]) for number in topic.partitions]
    replicas = [(topic.topic_id, number) for number in topic.partitions]
    registration = RegisterBroker(
        1, b"another process.", [Endpoint("PLAINTEXT", "h", 9092, 0)], SUPPORTED_FEATURES, [directory_id(1)]
    )
    heartbeats = BrokerHeartbeats(9_000)
    return [
        FenceBroker(1, leader),
        StartControlledShutdown(1, leader),
        UnregisterBroker(1),
        registration,
        registration._replace(is_fenced=False),
        AdmitBroker(heartbeats, 0, registration),
        ProcessHeartbeat(heartbeats, Heartbeat(1, leader, 0, want_fence=True)),
        ProcessHeartbeat(heartbeats, Heartbeat(1, leader, 0), [directory_id(1)]),
        AlterPartition(1, leader, [(topic.topic_id, shrinks)]),
        AssignReplicasToDirs(1, leader, [DirectoryReplicas(b"another director", replicas)]),
    ]


@pytest.mark.parametrize("number", range(10))
def test_changes_of_many_partitions_are_planned_in_steps(number: int) -> None:
    world = World([1, 2, 3])
    world.do(CreateTopics([NewTopic("t", assignments=[(number, (1, 2)) for number in range(MANY)])]))
    command = commands_about_many_partitions(world)[number]
    pauses = 0

    def counted(steps: Steps[Plan[Any]]) -> Steps[Plan[Any]]:
        nonlocal pauses
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                plan: Plan[Any] = stop.value
                return plan
            pauses += 1
            yield

    plan = finished(counted(command.plan_in_steps(world.image, world.context())))
    assert pauses >= MANY // PIECE
    assert len(plan.records) >= MANY


def test_periodic_elections_are_planned_in_steps() -> None:
    world = World([1, 2])
    world.do(CreateTopics([NewTopic("t", assignments=[(number, (1, 2)) for number in range(MANY)])]))
    world.do(FenceBroker(1, epoch(world, 1)))
    world.do(UnfenceBroker(1, epoch(world, 1)))
    topic = world.image.topics_by_name["t"]
    world.apply(
        PartitionChangeRecord(topic_id=topic.topic_id, partition_id=number, isr=[2, 1]) for number in topic.partitions
    )
    steps = ElectPreferredLeaders().plan_in_steps(world.image, world.context())
    for _ in range(MANY // PIECE):
        next(steps)
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert len(stop.value.value.records) == MANY


def test_the_level_of_a_cluster_that_has_no_records_yet_is_no_reason() -> None:
    """That of metadata.version is never 0, as that of a feature which is not enabled."""
    assert SUPPORTED_FEATURES["metadata.version"][0] > 0
    assert reason_not_supported(EMPTY_IMAGE, SUPPORTED_FEATURES) is None
