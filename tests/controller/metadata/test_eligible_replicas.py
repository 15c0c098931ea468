"""Eligible leader replicas (KIP-966; P-200) and the `min.insync.replicas` of the cluster (P-201)."""

from __future__ import annotations

import pytest

from pykbroker.controller.broker_heartbeats import BrokerHeartbeats
from pykbroker.controller.broker_session_commands import AdmitBroker
from pykbroker.controller.metadata.alter_partition import AlterPartition, InSyncReplica, IsrChange
from pykbroker.controller.metadata.brokers import FenceBroker, RegisterBroker, UnfenceBroker, UnregisterBroker
from pykbroker.controller.metadata.configs import (
    DELETE,
    SET,
    AlterConfigs,
    ConfigEdit,
    ConfigResourceEdits,
    ConfigResourceReplacement,
    IncrementalAlterConfigs,
)
from pykbroker.controller.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    SAFE_DOWNGRADE,
    SUPPORTED_FEATURES,
    FeatureUpdate,
    UpdateFeatures,
)
from pykbroker.controller.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, Endpoint, PartitionImage
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ClearElrRecord, PartitionRecord
from tests.controller.world import World, directory_id


def world_with(*replicas: int, min_isr: int = 2) -> World:
    world = World([1, 2, 3], eligible_replicas=True)
    configs = [("min.insync.replicas", str(min_isr))]
    world.do(CreateTopics([NewTopic("t", assignments=[(0, replicas)], configs=configs)]))
    return world


def partition(world: World) -> PartitionImage:
    return world.image.topics_by_name["t"].partitions[0]


def replicas_of(world: World) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Leader, in-sync set, eligible replicas, last known leader."""
    now = partition(world)
    return now.leader, now.isr, now.eligible_leader_replicas, now.last_known_elr


def fence(world: World, broker_id: int) -> None:
    world.do(FenceBroker(broker_id, world.image.brokers[broker_id].epoch))


def unfence(world: World, broker_id: int) -> None:
    world.do(UnfenceBroker(broker_id, world.image.brokers[broker_id].epoch))


def restart(world: World, broker_id: int, *, is_clean: bool) -> None:
    """Another process of a broker registers, and serves."""
    epoch = world.image.brokers[broker_id].epoch
    registration = RegisterBroker(
        broker_id=broker_id,
        incarnation_id=bytes([world.image.offset % 250]) * 16,
        endpoints=[Endpoint("PLAINTEXT", f"host-{broker_id}", 9092, 0)],
        features=SUPPORTED_FEATURES,
        log_dirs=[directory_id(broker_id)],
        previous_epoch=epoch if is_clean else -1,
    )
    world.do(AdmitBroker(BrokerHeartbeats(9000), 0, registration))


def alter(world: World, *isr: int) -> None:
    now = partition(world)
    change = IsrChange(0, now.leader_epoch, now.partition_epoch, [InSyncReplica(one) for one in isr])
    topic_id = world.image.topics_by_name["t"].topic_id
    ((_, (result,)),) = world.do(
        AlterPartition(now.leader, world.image.brokers[now.leader].epoch, [(topic_id, [change])])
    )
    assert result.error == ErrorCode.NONE


def test_replicas_that_leave_a_set_below_the_minimum_are_eligible() -> None:
    world = world_with(1, 2, 3)
    fence(world, 1)
    assert replicas_of(world) == (2, (2, 3), (), ())
    fence(world, 2)
    assert replicas_of(world) == (3, (3,), (2,), ())
    fence(world, 3)
    assert replicas_of(world) == (-1, (), (2, 3), (3,))


def test_an_eligible_replica_leads_again_when_it_serves() -> None:
    world = world_with(1, 2, 3)
    for broker_id in (1, 2, 3):
        fence(world, broker_id)
    unfence(world, 1)
    assert replicas_of(world) == (-1, (), (2, 3), (3,))  # it left while the others were enough
    unfence(world, 2)
    assert replicas_of(world) == (2, (2,), (3,), ())
    assert partition(world).leader_recovery_state == 0


def test_a_set_of_the_minimum_again_has_no_eligible_replicas() -> None:
    world = world_with(1, 2, 3, min_isr=3)
    alter(world, 1, 2)
    assert replicas_of(world) == (1, (1, 2), (3,), ())
    alter(world, 1)
    assert replicas_of(world) == (1, (1,), (2, 3), ())
    alter(world, 1, 2, 3)
    assert replicas_of(world) == (1, (1, 2, 3), (), ())


def test_the_minimum_is_at_most_the_number_of_replicas() -> None:
    world = world_with(1, min_isr=3)
    fence(world, 1)
    assert replicas_of(world) == (-1, (), (1,), (1,))
    unfence(world, 1)
    assert replicas_of(world) == (1, (1,), (), ())


def test_a_clean_restart_keeps_a_replica_eligible() -> None:
    world = world_with(1, 2)
    fence(world, 2)
    assert replicas_of(world) == (1, (1,), (2,), ())
    restart(world, 2, is_clean=True)
    assert replicas_of(world) == (1, (1,), (2,), ())


def test_an_unclean_stop_ends_eligibility() -> None:
    world = world_with(1, 2)
    fence(world, 2)
    restart(world, 2, is_clean=False)
    assert replicas_of(world) == (1, (1,), (), ())


def test_a_leader_that_stopped_uncleanly_gives_way_to_an_eligible_replica() -> None:
    world = world_with(1, 2)
    fence(world, 2)
    fence(world, 1)
    assert replicas_of(world) == (-1, (), (1, 2), (1,))
    restart(world, 1, is_clean=False)
    unfence(world, 1)
    assert replicas_of(world) == (-1, (), (2,), (1,))
    unfence(world, 2)
    assert replicas_of(world) == (2, (2,), (), ())


def test_the_last_leader_leads_when_all_stopped_uncleanly() -> None:
    """It recovers then, as after any unclean election, though the topic allows none."""
    world = world_with(1, 2)
    for broker_id in (2, 1):
        fence(world, broker_id)
        restart(world, broker_id, is_clean=False)
    assert replicas_of(world) == (-1, (), (), (1,))
    unfence(world, 2)
    assert replicas_of(world) == (-1, (), (), (1,))
    unfence(world, 1)
    assert replicas_of(world) == (1, (1,), (), ())
    assert partition(world).leader_recovery_state == 1


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_broker_in_the_process_of_its_controller_leads_at_once(is_clean: bool) -> None:
    """Also where Apache Kafka, whose lone broker gives everything up as it stops, has run before."""
    world = world_with(1, min_isr=1)
    fence(world, 1)
    assert replicas_of(world) == (-1, (), (1,), (1,))
    world.register(1, incarnation=2, is_clean_restart=is_clean)
    assert replicas_of(world) == (1, (1,), (), ())
    epoch = partition(world).leader_epoch
    world.register(1, incarnation=3, is_clean_restart=is_clean)
    assert replicas_of(world) == (1, (1,), (), ())
    assert partition(world).leader_epoch == epoch + (not is_clean)


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_unregistered_broker_in_the_process_of_its_controller_leads_again(is_clean: bool) -> None:
    """Nothing but its new registration tells that it has the directories of its replicas."""
    world = world_with(1, min_isr=1)
    world.do(UnregisterBroker(1))
    assert partition(world).leader == -1
    world.do(
        RegisterBroker(
            broker_id=1,
            incarnation_id=b"i" * 16,
            endpoints=[Endpoint("PLAINTEXT", "host-1", 9092, 0)],
            features=SUPPORTED_FEATURES,
            log_dirs=[directory_id(1)],
            is_fenced=False,
            is_clean_restart=is_clean,
        )
    )
    assert replicas_of(world) == (1, (1,), (), ())


def set_min_isr(world: World, resource_type: int, name: str, value: str | None) -> ErrorCode:
    edit = ConfigEdit("min.insync.replicas", DELETE if value is None else SET, value)
    (result,) = world.do(IncrementalAlterConfigs([ConfigResourceEdits(resource_type, name, [edit])]))
    return result.error.code


def test_nobody_is_eligible_by_another_minimum() -> None:
    world = world_with(1, 2)
    fence(world, 2)
    before = partition(world)
    assert set_min_isr(world, TOPIC_RESOURCE, "t", "1") == ErrorCode.NONE
    assert replicas_of(world) == (1, (1,), (), ())
    assert partition(world).partition_epoch == before.partition_epoch + 1


def test_another_minimum_of_the_cluster_clears_all_topics() -> None:
    world = world_with(1, 2)
    fence(world, 2)
    assert set_min_isr(world, BROKER_RESOURCE, "", "2") == ErrorCode.NONE
    assert replicas_of(world) == (1, (1,), (), ())


def test_a_topic_created_with_a_minimum_clears_before_its_partitions() -> None:
    """The order of Kafka's records."""
    world = world_with(1, 2)
    kinds = [type(record) for record in world.records]
    assert kinds.index(ClearElrRecord) < kinds.index(PartitionRecord)


def test_the_minimum_is_the_clusters_alone() -> None:
    world = world_with(1, 2)
    assert world.image.configs[(BROKER_RESOURCE, "")] == {"min.insync.replicas": "1"}
    assert set_min_isr(world, BROKER_RESOURCE, "1", "2") == ErrorCode.INVALID_CONFIG
    assert set_min_isr(world, BROKER_RESOURCE, "", None) == ErrorCode.INVALID_CONFIG
    (result,) = world.do(AlterConfigs([ConfigResourceReplacement(BROKER_RESOURCE, "", [])]))
    assert result.error == (
        ErrorCode.INVALID_CONFIG,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )


@pytest.mark.parametrize("world", [World([1, 2]), world_with(1, 2)], ids=["before", "enabled"])
def test_the_minimum_is_no_variable(world: World) -> None:
    """P-324: this controller computes with the text."""
    assert set_min_isr(world, BROKER_RESOURCE, "", "${file:/secrets:minimum}") == ErrorCode.INVALID_CONFIG


def test_an_upgrade_gives_the_cluster_its_minimum() -> None:
    world = World([1, 2])
    assert set_min_isr(world, BROKER_RESOURCE, "1", "2") == ErrorCode.NONE
    assert (BROKER_RESOURCE, "") not in world.image.configs
    assert not world.do(UpdateFeatures([FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 1)])).is_failure
    assert world.image.configs[(BROKER_RESOURCE, "")] == {"min.insync.replicas": "1"}
    assert (BROKER_RESOURCE, "1") not in world.image.configs


def test_a_downgrade_empties_the_lists_as_partitions_change() -> None:
    world = world_with(1, 2)
    fence(world, 2)
    update = FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, SAFE_DOWNGRADE)
    assert not world.do(UpdateFeatures([update])).is_failure
    assert replicas_of(world) == (1, (1,), (2,), ())
    unfence(world, 2)
    alter(world, 1, 2)
    assert replicas_of(world) == (1, (1, 2), (), ())
