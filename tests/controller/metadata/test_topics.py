"""CreateTopics, DeleteTopics, CreatePartitions: Kafka's rules and texts."""

from __future__ import annotations

import pytest

from pykbroker.controller.metadata.brokers import FenceBroker, StartControlledShutdown
from pykbroker.controller.metadata.commands import ApiError, CommandRefused
from pykbroker.controller.metadata.topics import (
    CreatePartitions,
    CreateTopicResult,
    CreateTopics,
    DeleteTopicResult,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    TopicReference,
)
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from pykbroker.protocol.uuids import ZERO_UUID
from tests.controller.world import World, directory_id


def create(world: World, *topics: NewTopic, validate_only: bool = False) -> list[CreateTopicResult]:
    return world.do(CreateTopics(topics, validate_only))


def error_of(world: World, topic: NewTopic) -> tuple[ErrorCode, str | None]:
    (result,) = create(world, topic)
    return result.error


def test_a_topic_is_a_topic_record_then_its_configs_then_its_partitions() -> None:
    world = World()
    before = len(world.records)
    (result,) = create(world, NewTopic("orders", 2, 1, configs=[("retention.ms", "1000")]))
    assert result == CreateTopicResult(
        "orders", ApiError(ErrorCode.NONE, None), result.topic_id, 2, 1, (("retention.ms", "1000"),)
    )
    records = world.records[before:]
    assert [type(record) for record in records] == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]
    partition = world.image.topics_by_name["orders"].partitions[1]
    assert partition.replicas == partition.isr == (1,)
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 0, 0)
    assert partition.directories == (directory_id(1),)
    assert world.image.topic_config("orders") == {"retention.ms": "1000"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("größe", "'größe' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "'a\n' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)
def test_p143_names_that_are_not_allowed(name: str, reason: str) -> None:
    """P-143."""
    assert error_of(World(), NewTopic(name)) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"Topic name is invalid: {reason}",
    )


def test_p143_names_that_differ_only_in_dot_and_underscore_collide() -> None:
    """P-143."""
    world = World()
    create(world, NewTopic("a.b_c"))
    assert error_of(world, NewTopic("a_b.c")) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b.c' collides with existing topic: a.b_c",
    )
    assert error_of(world, NewTopic("a-b-c"))[0] == ErrorCode.NONE
    world.do(DeleteTopics([TopicReference("a.b_c")]))
    assert error_of(world, NewTopic("a_b.c"))[0] == ErrorCode.NONE
    assert error_of(world, NewTopic("x" * 249))[0] == ErrorCode.NONE


def test_p144_existing_topics_and_impossible_counts() -> None:
    """P-144."""
    world = World()
    create(world, NewTopic("here_now"))
    assert error_of(world, NewTopic("here_now")) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 'here_now' already exists.",
    )
    for factor in (0, -2):
        assert error_of(world, NewTopic("t", 1, factor)) == (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    for count in (0, -2):
        assert error_of(world, NewTopic("t", count, 1)) == (
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    assert error_of(world, NewTopic("t", 1, 2)) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        (
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
            "only 1 broker(s) are registered or some brokers have all their log directories cordoned."
        ),
    )


def test_no_broker_serves() -> None:
    world = World()
    world.do(FenceBroker(1, world.image.brokers[1].epoch))
    assert error_of(world, NewTopic("t")) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        (
            "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or have all their log "
            "directories cordoned."
        ),
    )


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (
            NewTopic("t", -1, 1, [(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("t", 1, -1, [(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (2, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (0, [2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("t", assignments=[(0, [1, 1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewTopic("t", assignments=[(0, [9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            NewTopic("t", assignments=[(0, [])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewTopic("t", assignments=[(0, [1, 2]), (1, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            (
                "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent "
                "with previous partitions, which have 2 replica(s)."
            ),
        ),
    ],
)
def test_p145_manual_assignments_that_cannot_be(topic: NewTopic, code: ErrorCode, message: str) -> None:
    """P-145."""
    assert error_of(World([1, 2]), topic) == (code, message)


def test_p145_a_manual_assignment_and_the_brokers_defaults() -> None:
    """P-145: -1 stands for num.partitions and default.replication.factor."""
    world = World([1, 2, 3])
    (result,) = create(world, NewTopic("manual", assignments=[(1, [3, 1]), (0, [2, 3])]))
    assert (result.partition_count, result.replication_factor) == (2, 2)
    partitions = world.image.topics_by_name["manual"].partitions
    assert (partitions[0].replicas, partitions[1].replicas) == ((2, 3), (3, 1))
    (result,) = create(world, NewTopic("default"))
    assert (result.partition_count, result.replication_factor) == (3, 1)


def test_p145_fenced_replicas_are_not_in_sync() -> None:
    """P-145."""
    world = World([1, 2])
    world.do(FenceBroker(1, world.image.brokers[1].epoch))
    create(world, NewTopic("t", assignments=[(0, [1, 2])]))
    partition = world.image.topics_by_name["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (2,), 2)
    assert error_of(world, NewTopic("u", assignments=[(0, [1])])) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        (
            "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled "
            "shutdown."
        ),
    )


def test_p146_one_request() -> None:
    """P-146: a name twice, unknown and null configs, the metadata topic; the others are made all the same."""
    world = World()
    results = create(
        world,
        NewTopic("twice"),
        NewTopic("good"),
        NewTopic("twice"),
        NewTopic("unknown", configs=[("no.such.key", "1")]),
        NewTopic("null", configs=[("retention.ms", None)]),
        NewTopic("__cluster_metadata"),
    )
    assert {result.name: result.error for result in results} == {
        "good": (ErrorCode.NONE, None),
        "unknown": (ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such.key"),
        "null": (ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: retention.ms"),
        "__cluster_metadata": (
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        "twice": (ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
    }
    assert set(world.image.topics_by_name) == {"good"}


def test_p146_validate_only_checks_everything_and_writes_nothing() -> None:
    """P-146."""
    world = World()
    before = world.image
    results = create(world, NewTopic("good"), NewTopic("bad", 0), validate_only=True)
    assert [result.error.code for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]
    assert world.image.topics_by_name is before.topics_by_name


def test_p147_the_answer_has_id_counts_and_configs() -> None:
    """P-147: what v5 and v7 of the response need."""
    world = World()
    (result,) = create(world, NewTopic("t", configs=[("retention.ms", "5")]))
    assert world.image.topics_by_id[result.topic_id].name == "t"
    assert result.configs == (("retention.ms", "5"),)


def test_partitions_of_topics_that_are_refused_anyway_do_not_count() -> None:
    """A topic that comes twice is left out before Kafka counts, and a negative count is none."""
    twice = NewTopic("twice", 6000, 1)
    results = create(World(), twice, twice, NewTopic("t", 1, 1), NewTopic("less", -5, 1))
    assert [(result.name, result.error.code) for result in results] == [
        ("t", ErrorCode.NONE),
        ("less", ErrorCode.INVALID_PARTITIONS),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    with pytest.raises(CommandRefused, match="Excessively large"):
        create(World(), NewTopic("less", -5, 1), NewTopic("most", 10_001, 1))


def test_a_setting_of_a_new_topic_has_a_largest_length() -> None:
    """As in AlterConfigs: before its name and value are looked at."""
    topic = NewTopic("t", 1, 1, configs=[("no.such.key", "x" * 32768)])
    assert error_of(World(), topic) == (
        ErrorCode.INVALID_CONFIG,
        "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
    )


def test_too_many_partitions_refuse_the_whole_request() -> None:
    with pytest.raises(CommandRefused, match="Excessively large number of partitions") as caught:
        create(World(), NewTopic("t", 10_001))
    assert caught.value.error.code == ErrorCode.POLICY_VIOLATION


def delete(world: World, *references: TopicReference) -> list[DeleteTopicResult]:
    return world.do(DeleteTopics(references))


def test_deleting_a_topic_takes_its_configs_along() -> None:
    world = World()
    (created,) = create(world, NewTopic("t", configs=[("retention.ms", "5")]))
    assert delete(world, TopicReference("t")) == [
        DeleteTopicResult("t", created.topic_id, ApiError(ErrorCode.NONE, None))
    ]
    assert not world.image.topics_by_name
    assert not world.image.topics_by_id
    assert not world.image.configs


def test_p148_references_that_are_unclear() -> None:
    """P-148: name and id both set, or none; a topic named twice, by name and by id."""
    world = World()
    a, b = create(world, NewTopic("a"), NewTopic("b"))
    unknown = bytes([7]) * 16
    results = delete(
        world,
        TopicReference("a", a.topic_id),
        TopicReference(None),
        TopicReference("a"),
        TopicReference("a"),
        TopicReference(None, b.topic_id),
        TopicReference("b"),
        TopicReference("c"),
        TopicReference(None, unknown),
    )
    assert results == [
        DeleteTopicResult(
            "a", a.topic_id, ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        ),
        DeleteTopicResult(
            None, ZERO_UUID, ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        ),
        DeleteTopicResult("a", ZERO_UUID, ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")),
        DeleteTopicResult(
            "b",
            b.topic_id,
            ApiError(ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."),
        ),
        DeleteTopicResult(
            "c",
            ZERO_UUID,
            ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        ),
        DeleteTopicResult(
            None, unknown, ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        ),
    ]
    assert set(world.image.topics_by_name) == {"a", "b"}


def test_p149_partitions_only_grow() -> None:
    """P-149."""
    world = World([1, 2, 3])
    create(world, NewTopic("t", 2, 2))

    def grow(*topics: NewPartitions, validate_only: bool = False) -> list[tuple[ErrorCode, str | None]]:
        return [result.error for result in world.do(CreatePartitions(topics, validate_only))]

    assert grow(NewPartitions("t", 2)) == [(ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s).")]
    assert grow(NewPartitions("t", 1)) == [
        (
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        )
    ]
    assert grow(NewPartitions("u", 3)) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)]
    assert grow(NewPartitions("t", 4, [[1, 2]])) == [
        (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        )
    ]
    assert grow(NewPartitions("t", 3), validate_only=True) == [(ErrorCode.NONE, None)]
    assert len(world.image.topics_by_name["t"].partitions) == 2
    assert grow(NewPartitions("t", 4, [[3, 1], [2, 1]])) == [(ErrorCode.NONE, None)]
    assert grow(NewPartitions("t", 6)) == [(ErrorCode.NONE, None)]
    partitions = world.image.topics_by_name["t"].partitions
    assert list(partitions) == [0, 1, 2, 3, 4, 5]
    assert partitions[2].replicas == (3, 1)
    assert all(len(set(partition.replicas)) == 2 for partition in partitions.values())


def test_p661_a_topic_gets_as_many_partitions_as_there_is_room_for() -> None:
    """P-661, with the code that Kafka gives, and no text; what follows gets none."""
    world = World()
    create(world, NewTopic("a", 1), NewTopic("b", 1), NewTopic("c", 1))
    growth = [NewPartitions("a", 5), NewPartitions("b", 100_000), NewPartitions("c", 3)]
    errors = [(ErrorCode.NONE, None), (ErrorCode.UNKNOWN_SERVER_ERROR, None), (ErrorCode.UNKNOWN_SERVER_ERROR, None)]
    assert [result.error for result in world.do(CreatePartitions(growth, validate_only=True))] == errors
    assert [len(world.image.topics_by_name[name].partitions) for name in "abc"] == [1, 1, 1]
    assert [result.error for result in world.do(CreatePartitions(growth))] == errors
    assert [len(world.image.topics_by_name[name].partitions) for name in "abc"] == [5, 9_997, 1]


def test_p661_the_first_of_too_many_manual_assignments_stay() -> None:
    """P-661"""
    world = World([1, 2])
    create(world, NewTopic("a", 1))
    (result,) = world.do(CreatePartitions([NewPartitions("a", 10_002, [[2]] * 10_001)]))
    assert result.error == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
    partitions = world.image.topics_by_name["a"].partitions
    assert (len(partitions), partitions[10_000].replicas) == (10_001, (2,))


def test_p661_other_errors_come_before_that_of_too_many_partitions() -> None:
    """P-661: of the assignments, of the client's quota, and of the brokers."""
    world = World([1, 2])
    create(world, NewTopic("a", 1, 2))
    (result,) = world.do(CreatePartitions([NewPartitions("a", 100_000, [[1, 2]])]))
    assert result.error.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    exceeded = ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "exceeded")
    (result,) = world.do(CreatePartitions([NewPartitions("a", 100_000)], charge=lambda topic, count: exceeded))
    assert result.error == exceeded
    for broker_id in (1, 2):
        world.do(FenceBroker(broker_id, world.image.brokers[broker_id].epoch))
    (result,) = world.do(CreatePartitions([NewPartitions("a", 100_000)]))
    assert result.error.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_p661_too_many_topics_in_one_create_partitions_refuse_all() -> None:
    """P-661: whatever else there is to say of each."""
    world = World()
    create(world, NewTopic("a", 1))
    unknown = [NewPartitions(f"unknown-{number}", 2) for number in range(10_000)]
    with pytest.raises(CommandRefused) as refused:
        world.do(CreatePartitions([NewPartitions("a", 2), *unknown]))
    assert refused.value.error.code == ErrorCode.POLICY_VIOLATION
    assert len(world.image.topics_by_name["a"].partitions) == 1


def test_p149_partitions_that_no_broker_can_take() -> None:
    """P-149: the text is that of the placer alone, as in Kafka's createPartitions."""
    text = "All brokers are currently fenced, or have all their log directories cordoned."
    for leave in (FenceBroker, StartControlledShutdown):
        world = World([1, 2])
        create(world, NewTopic("t", 1, 2))
        for broker_id in (1, 2):
            world.do(leave(broker_id, world.image.brokers[broker_id].epoch))
        (result,) = world.do(CreatePartitions([NewPartitions("t", 2)], False))
        assert result.error == (ErrorCode.INVALID_REPLICATION_FACTOR, text)
        assert len(world.image.topics_by_name["t"].partitions) == 1
