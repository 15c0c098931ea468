"""Levels of metadata.version: their names, and what each allows."""

from __future__ import annotations

import pytest

from pykbroker.controller.broker_heartbeats import BrokerHeartbeats, Heartbeat
from pykbroker.controller.broker_session_commands import ProcessHeartbeat
from pykbroker.controller.metadata.bootstrap import Bootstrap
from pykbroker.controller.metadata.brokers import RegisterController, StartControlledShutdown
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.configs import (
    DELETE,
    SET,
    AlterConfigs,
    ConfigEdit,
    ConfigResourceEdits,
    ConfigResourceReplacement,
    IncrementalAlterConfigs,
)
from pykbroker.controller.metadata.directory_assignments import AssignReplicasToDirs, DirectoryReplicas
from pykbroker.controller.metadata.features import (
    SAFE_DOWNGRADE,
    SUPPORTED_FEATURES,
    UNSAFE_DOWNGRADE,
    FeatureUpdate,
    UpdateFeatures,
    default_levels,
)
from pykbroker.controller.metadata.image import (
    BROKER_RESOURCE,
    EMPTY_IMAGE,
    BrokerImage,
    PartitionImage,
    UnsupportedMetadataVersion,
)
from pykbroker.controller.metadata.image_builder import apply_records
from pykbroker.controller.metadata.metadata_versions import (
    METADATA_VERSION,
    METADATA_VERSION_LATEST,
    METADATA_VERSION_MIN,
    NAMES,
    described,
    level_of_release,
)
from pykbroker.controller.metadata.reassignments import AlterPartitionReassignments, Reassignment
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import (
    BeginTransactionRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from pykbroker.protocol.uuids import MIGRATING_DIRECTORY
from tests.controller.world import World, directory_id


def update(world: World, level: int) -> None:
    error = world.do(UpdateFeatures([FeatureUpdate(METADATA_VERSION, level)]))
    assert not error.is_failure, error


def broker(world: World) -> BrokerImage:
    return world.image.brokers[1]


def create(world: World, *replicas: int) -> None:
    (result,) = world.do(CreateTopics([NewTopic("t", assignments=[(0, replicas)])]))
    assert not result.error.is_failure, result


def partition(world: World) -> PartitionImage:
    return world.image.topics_by_name["t"].partitions[0]


@pytest.mark.parametrize(
    ("text", "level"),
    [("3.3", 7), ("3.3.2", 7), ("3.7", 19), ("3.7-IV2", 17), ("3.7-IV0", 15), ("4.3", 30), ("4.3.1", 30)],
)
def test_releases_stand_for_their_last_level(text: str, level: int) -> None:
    assert level_of_release(text) == level


@pytest.mark.parametrize("text", ["4.4-IV0", "4.4", "3.2", "", "three", "3.7-IV9", "IV0"])
def test_an_unknown_release_is_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(ValueError, match=r"Supported metadata.version are: 3.3-IV3, .*, 4.3-IV0$") as refused:
        level_of_release(text)
    assert str(refused.value).startswith(f"Unknown metadata.version '{text}'. ")


def test_every_level_has_a_name() -> None:
    assert [level for level in NAMES if level <= METADATA_VERSION_LATEST] == list(
        range(METADATA_VERSION_MIN, METADATA_VERSION_LATEST + 1)
    )
    assert (described(31), described(99)) == ("31 (4.4-IV0)", "99")


@pytest.mark.parametrize(("level", "name"), [(32, "32"), (99, "99"), (6, "6")])
def test_a_log_of_an_unknown_level_is_not_read_on(level: int, name: str) -> None:
    record = FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
    with pytest.raises(UnsupportedMetadataVersion, match=f"metadata.version {name} is not supported, only 7 "):
        apply_records(EMPTY_IMAGE, [record], offset=0, epoch=1, timestamp_ms=0)


@pytest.mark.parametrize(("level", "has_transaction"), [(7, False), (12, False), (13, True), (30, True)])
def test_a_new_cluster_begins_with_a_transaction_where_there_are_some(level: int, has_transaction: bool) -> None:
    world = World([], metadata_version=level)
    assert isinstance(world.records[0], BeginTransactionRecord) is has_transaction
    assert world.image.metadata_version == level
    assert world.image.open_transaction is None


def test_transaction_version_comes_with_40() -> None:
    assert default_levels(23) == {METADATA_VERSION: 23, "group.version": 1}
    assert default_levels(21) == {METADATA_VERSION: 21}
    assert default_levels(27).get("share.version") is None
    assert default_levels(28)["share.version"] == 1
    assert default_levels(24) == {METADATA_VERSION: 24, "transaction.version": 2, "group.version": 1}
    assert "streams.version" not in default_levels(28)
    assert default_levels(29)["streams.version"] == 1
    assert apply_records(EMPTY_IMAGE, (), offset=0, epoch=0, timestamp_ms=0).is_bootstrapped is False
    assert Bootstrap().levels == default_levels(METADATA_VERSION_LATEST)


@pytest.mark.parametrize("level", range(METADATA_VERSION_MIN, METADATA_VERSION_LATEST + 1))
def test_brokers_register_at_every_level(level: int) -> None:
    """With their log directories from 3.7-IV2 on; without they are not even looked at."""
    world = World([1, 2], metadata_version=level)
    create(world, 1, 2)
    known = level >= 17
    assert broker(world).log_dirs == ((directory_id(1),) if known else ())
    assert partition(world).directories == (
        (directory_id(1), directory_id(2)) if known else (MIGRATING_DIRECTORY, MIGRATING_DIRECTORY)
    )
    (record,) = [one for one in world.records if isinstance(one, PartitionRecord)]
    assert bool(record.directories) is known
    if not known:
        world.register(1, log_dirs=[], incarnation=2)
        return
    with pytest.raises(CommandRefused, match="No directories specified"):
        world.register(1, log_dirs=[], incarnation=2)


def test_a_broker_says_its_directories_when_the_level_rises() -> None:
    world = World([1], metadata_version=16)
    create(world, 1)
    update(world, 17)
    assert broker(world).log_dirs == ()
    before = broker(world).epoch
    world.register(1)
    assert broker(world).log_dirs == (directory_id(1),)
    assert broker(world).epoch == before
    assert isinstance(world.records[-1], RegisterBrokerRecord)
    assert partition(world).leader == 1


def test_replicas_move_without_directories() -> None:
    world = World([1, 2, 3], metadata_version=16)
    create(world, 1)
    world.do(AlterPartitionReassignments([("t", [Reassignment(0, (2, 3))])]))
    assert partition(world).replicas == (2, 3, 1)
    assert partition(world).directories == (MIGRATING_DIRECTORY,) * 3
    update(world, 17)
    world.do(AlterPartitionReassignments([("t", [Reassignment(0, None)])]))
    assert partition(world).directories == (MIGRATING_DIRECTORY,)


@pytest.mark.parametrize(("level", "epochs"), [(11, 1), (12, 0)])
def test_a_shrinking_set_starts_a_leader_epoch_before_36(level: int, epochs: int) -> None:
    """KAFKA-15021."""
    world = World([1, 2], metadata_version=level)
    create(world, 1, 2)
    world.do(StartControlledShutdown(2, world.image.brokers[2].epoch))
    after = partition(world)
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1,), epochs)


def test_directories_are_not_assigned_before_there_are_any() -> None:
    world = World([1], metadata_version=16)
    create(world, 1)
    topic = world.image.topics_by_name["t"]
    assign = AssignReplicasToDirs(1, broker(world).epoch, [DirectoryReplicas(directory_id(1), [(topic.topic_id, 0)])])
    with pytest.raises(CommandRefused, match=r"Directory assignment is not supported yet.") as refused:
        world.do(assign)
    assert refused.value.error.code is ErrorCode.UNSUPPORTED_VERSION
    update(world, 17)
    world.register(1)
    assert world.do(assign) == [[ErrorCode.NONE]]


@pytest.mark.parametrize("level", [16, 29, 30])
def test_heartbeats_speak_of_directories_where_there_are_records_for_it(level: int) -> None:
    world = World([1], metadata_version=level)
    heartbeats = BrokerHeartbeats(9000)
    heartbeat = Heartbeat(1, broker(world).epoch, world.image.offset)
    world.do(ProcessHeartbeat(heartbeats, heartbeat, [directory_id(1)], [directory_id(1)]))
    assert broker(world).cordoned_log_dirs == ((directory_id(1),) if level >= 30 else None)


def test_controllers_register_from_37_on() -> None:
    world = World(metadata_version=14)
    command = RegisterController(1, bytes(16), (), SUPPORTED_FEATURES)
    with pytest.raises(CommandRefused, match="too old to support controller registrations") as refused:
        world.do(command)
    assert refused.value.error.code is ErrorCode.UNSUPPORTED_VERSION
    update(world, 15)
    world.do(command)
    assert 1 in world.image.controllers


def test_voters_that_cannot_register_do_not_stand_against_an_update() -> None:
    """Below 3.7-IV0 nothing is known of the other controllers."""
    world = World(metadata_version=14)
    context = world.context()._replace(voter_ids=frozenset({1, 2}))
    plan = UpdateFeatures([FeatureUpdate(METADATA_VERSION, 15)]).plan(world.image, context)
    assert not plan.result.is_failure, plan.result
    world.apply(plan.records)
    plan = UpdateFeatures([FeatureUpdate(METADATA_VERSION, 16)]).plan(world.image, context)
    assert "controller 2 has not registered, and may not support this feature" in str(plan.result.message)


def test_cordoned_directories_are_a_setting_from_43_on() -> None:
    def edit(operation: int, value: str | None) -> IncrementalAlterConfigs:
        edits = [ConfigEdit("cordoned.log.dirs", operation, value)]
        return IncrementalAlterConfigs([ConfigResourceEdits(BROKER_RESOURCE, "1", edits)])

    world = World(metadata_version=29)
    replacement = ConfigResourceReplacement(BROKER_RESOURCE, "1", [("cordoned.log.dirs", "/data")])
    for command in (edit(SET, "/data"), edit(DELETE, None), AlterConfigs([replacement])):
        (result,) = world.do(command)
        assert result.error == (
            ErrorCode.INVALID_CONFIG,
            "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0",
        )
    update(world, 30)
    (result,) = world.do(edit(SET, "/data"))
    assert "requires metadata.version" not in str(result.error.message)


@pytest.mark.parametrize("level", range(METADATA_VERSION_MIN + 1, METADATA_VERSION_LATEST + 1))
def test_a_level_goes_down_only_where_nothing_has_changed(level: int) -> None:
    world = World(metadata_version=level)
    may = level not in (8, 11, 13, 14, 15, 17, 23, 30)
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        error = world.do(UpdateFeatures([FeatureUpdate(METADATA_VERSION, level - 1, kind)], validate_only=True))
        assert error.is_failure is not may, error
