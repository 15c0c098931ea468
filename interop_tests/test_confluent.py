"""confluent-kafka (librdkafka), unchanged: producer, consumer, both kinds of rebalance, and the admin client."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from interop_tests.clients import (
    Message,
    confluent_consume,
    confluent_group_consume,
    confluent_produce,
    create_topic,
    poll_confluent,
    wait_until,
)
from interop_tests.wire import RECENT_MS

pytestmark = [pytest.mark.area("records"), pytest.mark.client("confluent-kafka")]

Unique = Callable[[str], str]
Subscribe = Callable[..., confluent_kafka.Consumer]


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def consumer_of(bootstrap: str) -> Iterator[Subscribe]:
    """Makes consumers of a group that are closed at the end of the test."""
    made: list[confluent_kafka.Consumer] = []

    def make(group: str, **config: Any) -> confluent_kafka.Consumer:
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        made.append(confluent_kafka.Consumer({**settings, "heartbeat.interval.ms": 200, **config}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def numbered(count: int) -> list[Message]:
    return [Message(b"k%d" % number, b"%d" % number) for number in range(count)]


def test_record_whole(bootstrap: str, name: str, unique: Unique, consumer_of: Subscribe) -> None:
    """Key, value, headers, timestamp; and the delivery report's offset."""
    topic = create_topic(bootstrap, name)
    reports: list[confluent_kafka.Message] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("none", None), ("a", b"2")]
    producer.produce(
        topic, b"v", b"k", headers=headers, timestamp=RECENT_MS + 123, on_delivery=lambda _, m: reports.append(m)
    )
    assert producer.flush(30) == 0
    assert reports[0].offset() == 0
    consumer = consumer_of(unique("group"))
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(30)
    assert message is not None
    assert message.error() is None
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v", headers)
    assert message.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, RECENT_MS + 123)
    assert message.leader_epoch() is not None


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("linger_ms", [0, 50])
def test_many_records(acks: str, linger_ms: int, bootstrap: str, name: str, unique: Unique) -> None:
    """Thousands of records over three partitions arrive once each, with every acks, batched or not."""
    topic = create_topic(bootstrap, name, 3)
    # It stays open until all is read: without acknowledgements closing may drop what is on its way.
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": linger_ms})
    for message in numbered(2000):
        producer.produce(topic, key=message.key, value=message.value)
    assert producer.flush(30) == 0
    found = confluent_group_consume(bootstrap, topic, unique("group"), 2000)
    assert sorted(int(m.value or b"") for m in found) == list(range(2000))


@pytest.mark.area("errors")
def test_unknown_topic_and_partition(bootstrap: str, name: str, consumer_of: Subscribe, unique: Unique) -> None:
    """A consumer does not make a topic; a partition that is not there is an error of the delivery."""
    consumer = consumer_of(unique("group"))
    consumer.subscribe([name])
    seen: list[int] = []

    def told() -> bool:
        message = consumer.poll(0.1)
        error = None if message is None else message.error()
        if error is not None:
            seen.append(error.code())
        return bool(seen)

    wait_until(told, "an error")
    assert seen == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    topic = create_topic(bootstrap, name + "-there")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    errors: list[KafkaError | None] = []
    producer.list_topics(topic, 30)
    try:
        producer.produce(topic, b"v", partition=9, on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
    except KafkaException as error:  # when the client knows the topic already
        errors.append(error.args[0])
    assert [None if error is None else error.code() for error in errors] == [KafkaError._UNKNOWN_PARTITION]


@pytest.mark.area("groups")
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_rebalance(strategy: str, bootstrap: str, name: str, unique: Unique, consumer_of: Subscribe) -> None:
    """Members join and leave; each record is delivered to the group once, as long as nobody dies."""
    topic, group = create_topic(bootstrap, name, 4), unique("group")
    config = {"partition.assignment.strategy": strategy, "enable.auto.commit": True}
    members = [consumer_of(group, **config)]
    got: list[int] = []

    def poll_all() -> list[int]:
        for member in members:
            got.extend(int(m.value() or b"") for m in member.consume(100, 0.02) if m.error() is None)
        return got

    def even() -> bool:
        poll_all()
        shares = [len(member.assignment()) for member in members]
        return sum(shares) == 4 and max(shares) - min(shares) <= 1

    members[0].subscribe([topic])
    wait_until(even, "the first member to have all")
    confluent_produce(bootstrap, topic, numbered(100))
    members.append(consumer_of(group, **config))
    members[1].subscribe([topic])
    wait_until(even, "two members to share")
    confluent_produce(bootstrap, topic, numbered(100))
    wait_until(lambda: len(poll_all()) >= 200, "all records")
    members.pop(0).close()
    wait_until(even, "the one that stays to have all")
    confluent_produce(bootstrap, topic, numbered(50))
    # The last of each partition: what the group gets twice of it comes before.
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for partition in range(4):
        producer.produce(topic, b"-1", partition=partition)
    assert producer.flush(30) == 0
    wait_until(lambda: poll_all().count(-1) >= 4, "all records")
    assert sorted(got) == sorted([*[-1] * 4, *range(100), *range(100), *range(50)])


@pytest.mark.area("groups")
def test_static_member_keeps_its_partitions(bootstrap: str, name: str, unique: Unique, consumer_of: Subscribe) -> None:
    """KIP-345: who comes back under its group.instance.id gets the same partitions, without a rebalance."""
    topic, group = create_topic(bootstrap, name, 4), unique("group")
    rebalances: list[str] = []

    def member(instance: str) -> confluent_kafka.Consumer:
        consumer = consumer_of(group, **{"group.instance.id": instance, "session.timeout.ms": 30_000})
        consumer.subscribe([topic], on_assign=lambda _c, _p: rebalances.append(instance))
        return consumer

    first, second = member("one"), member("two")

    def shared() -> bool:
        first.poll(0.02)
        second.poll(0.02)
        return len(first.assignment()) == 2 and len(second.assignment()) == 2

    wait_until(shared, "both to have two")
    before = {tp.partition for tp in second.assignment()}
    count = len(rebalances)
    second.close()  # a static member does not leave the group
    second = member("two")
    wait_until(shared, "the second to be back")
    assert {tp.partition for tp in second.assignment()} == before
    assert rebalances[count:] == ["two"], "the first member noticed nothing"


@pytest.mark.area("offsets")
def test_offsets(bootstrap: str, name: str, unique: Unique, consumer_of: Subscribe, admin: AdminClient) -> None:
    """Watermarks, offsets by time, commit of named offsets with metadata, and what the admin client says of them."""
    topic, group = create_topic(bootstrap, name), unique("group")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, b"%d" % number, timestamp=RECENT_MS + 1000 * number)
    assert producer.flush(30) == 0
    consumer = consumer_of(group)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 30) == (0, 10)
    (by_time,) = consumer.offsets_for_times([TopicPartition(topic, 0, RECENT_MS + 4500)], 30)
    assert by_time.offset == 5
    consumer.commit(offsets=[TopicPartition(topic, 0, 4, metadata="note")], asynchronous=False)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], 30)
    assert (committed.offset, committed.metadata) == (4, "note")
    request = confluent_kafka.ConsumerGroupTopicPartitions(group)
    listed = admin.list_consumer_group_offsets([request])[group].result(30)
    assert [(tp.topic, tp.partition, tp.offset) for tp in listed.topic_partitions] == [(topic, 0, 4)]
    altered = confluent_kafka.ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
    admin.alter_consumer_group_offsets([altered])[group].result(30)
    assert consumer.committed([TopicPartition(topic, 0)], 30)[0].offset == 7
    for spec, offset in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 10),
        (OffsetSpec.for_timestamp(RECENT_MS + 2001), 3),
    ):
        (future,) = admin.list_offsets({TopicPartition(topic, 0): spec}).values()
        assert future.result(30).offset == offset


@pytest.mark.area("admin")
def test_admin_topics(admin: AdminClient, name: str) -> None:
    """Create with configs, validate only, describe by name, more partitions, delete; errors by their codes."""
    admin.create_topics([NewTopic(name, 2, 1)], validate_only=True)[name].result(30)
    assert name not in admin.list_topics(timeout=30).topics
    admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "60000"})])[name].result(30)
    assert error_of(admin.create_topics([NewTopic(name, 2, 1)])[name]) == KafkaError.TOPIC_ALREADY_EXISTS
    bad = {"x y": KafkaError.TOPIC_EXCEPTION, f"{name}-rf": KafkaError.INVALID_REPLICATION_FACTOR}
    futures = admin.create_topics([NewTopic("x y", 1, 1), NewTopic(f"{name}-rf", 1, 5)])
    assert {topic: error_of(future) for topic, future in futures.items()} == bad
    nonsense = admin.create_topics([NewTopic(f"{name}-c", 1, 1, config={"no.such.config": "1"})])
    assert error_of(nonsense[f"{name}-c"]) == KafkaError.INVALID_CONFIG
    described = admin.describe_topics(TopicCollection([name]))[name].result(30)
    assert [partition.id for partition in described.partitions] == [0, 1]
    admin.create_partitions([NewPartitions(name, 5)])[name].result(30)
    assert len(admin.list_topics(name, 30).topics[name].partitions) == 5
    assert error_of(admin.create_partitions([NewPartitions(name, 4)])[name]) == KafkaError.INVALID_PARTITIONS
    admin.delete_topics([name])[name].result(30)
    wait_until(lambda: name not in admin.list_topics(timeout=30).topics, "the topic to be gone")
    assert error_of(admin.delete_topics([name])[name]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def error_of(future: Any) -> int:
    """The error code that a future ends with."""
    with pytest.raises(KafkaException) as raised:
        future.result(30)
    return int(raised.value.args[0].code())


@pytest.mark.area("admin")
def test_admin_configs(admin: AdminClient, bootstrap: str, name: str) -> None:
    """IncrementalAlterConfigs: set, append, subtract, delete; DescribeConfigs tells source and default."""
    create_topic(bootstrap, name)

    def alter(key: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    def current(key: str) -> ConfigEntry:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        entry: ConfigEntry = admin.describe_configs([resource])[resource].result(30)[key]
        return entry

    assert (current("retention.ms").value, current("retention.ms").is_default) == ("604800000", True)
    alter("retention.ms", "1234567", AlterConfigOpType.SET)
    assert (current("retention.ms").value, current("retention.ms").is_default) == ("1234567", False)
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    assert set(str(current("cleanup.policy").value).split(",")) == {"compact", "delete"}
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    assert current("cleanup.policy").value == "compact"
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    assert current("retention.ms").value == "604800000"
    with pytest.raises(KafkaException):
        alter("retention.ms", "a long time", AlterConfigOpType.SET)


@pytest.mark.area("admin")
def test_admin_groups_and_cluster(
    admin: AdminClient, bootstrap: str, name: str, unique: Unique, consumer_of: Subscribe
) -> None:
    """List, describe and delete groups, a busy one refused; the cluster's id and address."""
    topic, group = create_topic(bootstrap, name, 2), unique("group")
    consumer = consumer_of(group, **{"client.id": "worker"})
    consumer.subscribe([topic])
    wait_until(lambda: (consumer.poll(0.05), len(consumer.assignment()))[1] == 2, "an assignment")
    assert group in {listing.group_id for listing in admin.list_consumer_groups().result(30).valid}
    described = admin.describe_consumer_groups([group])[group].result(30)
    assert described.state == confluent_kafka.ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (member,) = described.members
    assert member.client_id == "worker"
    assert {(tp.topic, tp.partition) for tp in member.assignment.topic_partitions} == {(topic, 0), (topic, 1)}
    assert error_of(admin.delete_consumer_groups([group])[group]) == KafkaError.NON_EMPTY_GROUP
    consumer.close()
    admin.delete_consumer_groups([group])[group].result(30)
    assert error_of(admin.delete_consumer_groups([group])[group]) == KafkaError.GROUP_ID_NOT_FOUND
    cluster = admin.describe_cluster().result(30)
    assert cluster.cluster_id
    assert cluster.nodes
    for node in cluster.nodes:
        socket.create_connection((node.host, node.port), timeout=10).close()


@pytest.mark.area("admin")
def test_delete_records(admin: AdminClient, bootstrap: str, name: str, unique: Unique, consumer_of: Subscribe) -> None:
    """DeleteRecords moves the beginning of the log; an offset behind its end is out of range."""
    topic = create_topic(bootstrap, name)
    confluent_produce(bootstrap, topic, numbered(10))
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    assert deleted.result(30).low_watermark == 6
    (refused,) = admin.delete_records([TopicPartition(topic, 0, 600)]).values()
    assert error_of(refused) == KafkaError.OFFSET_OUT_OF_RANGE
    consumer = consumer_of(unique("group"))
    consumer.subscribe([topic])
    assert [message.offset for message in poll_confluent(consumer, 4)] == [6, 7, 8, 9]


@pytest.mark.area("errors")
def test_record_too_large(bootstrap: str, name: str) -> None:
    """A record over max.message.bytes is MSG_SIZE_TOO_LARGE in its delivery report, and the next one is taken."""
    topic = create_topic(bootstrap, name, max_message_bytes="1000")
    errors: list[KafkaError | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for size in (2000, 500):
        producer.produce(topic, b"x" * size, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None


@pytest.mark.area("errors")
def test_offset_out_of_range(bootstrap: str, name: str, unique: Unique, consumer_of: Subscribe) -> None:
    """An offset behind the end is an error of the consumer with auto.offset.reset=error, and else where that says."""
    topic = create_topic(bootstrap, name)
    confluent_produce(bootstrap, topic, numbered(3))
    strict = consumer_of(unique("group"), **{"auto.offset.reset": "error"})
    strict.assign([TopicPartition(topic, 0, 99)])
    message = strict.poll(30)
    error = None if message is None else message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    lenient = consumer_of(unique("group"))
    lenient.assign([TopicPartition(topic, 0, 99)])
    assert [found.offset for found in poll_confluent(lenient, 3)] == [0, 1, 2]


def test_nulls_and_log_append_time(bootstrap: str, name: str, unique: Unique, consumer_of: Subscribe) -> None:
    """Null keys and values stay null; with LogAppendTime the record has the broker's time."""
    topic = create_topic(bootstrap, name, message_timestamp_type="LogAppendTime")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, None, b"tombstone", timestamp=1_600_000_000_000)
    producer.produce(topic, b"", None)
    assert producer.flush(30) == 0
    consumer = consumer_of(unique("group"))
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []

    def have_come() -> bool:
        found.extend(consumer.consume(2, 0.2))
        return len(found) >= 2

    wait_until(have_come, "two records")
    assert [(m.key(), m.value()) for m in found] == [(b"tombstone", None), (None, b"")]
    kind, stamp = found[0].timestamp()
    assert kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
    assert abs(stamp / 1000 - time.time()) < 60


def test_idempotent_producer(bootstrap: str, name: str) -> None:
    """An idempotent producer's records are stored once, in order, in each of the partitions."""
    topic = create_topic(bootstrap, name, 2)
    settings: dict[str, Any] = {"enable.idempotence": True, "linger.ms": 1}
    confluent_produce(bootstrap, topic, numbered(2000), **settings)
    found = confluent_consume(bootstrap, [topic])
    for number in range(2):
        values = [int(m.value or b"") for m in found if m.partition == number]
        assert values == sorted(values)
    assert sorted(int(m.value or b"") for m in found) == list(range(2000))


@pytest.mark.area("groups")
def test_subscribe_by_pattern(bootstrap: str, name: str, unique: Unique, consumer_of: Subscribe) -> None:
    """A topic made after the subscription is found by the next metadata."""
    consumer = consumer_of(unique("group"), **{"topic.metadata.refresh.interval.ms": 300})
    consumer.subscribe([f"^{name}-.*"])
    for letter in "ab":
        topic = create_topic(bootstrap, f"{name}-{letter}")
        confluent_produce(bootstrap, topic, numbered(1))
        poll_confluent(consumer, 1)
        assert topic in {partition.topic for partition in consumer.assignment()}


@pytest.mark.area("offsets")
def test_pause_seek_and_stored_offsets(bootstrap: str, name: str, unique: Unique, consumer_of: Subscribe) -> None:
    """A paused partition gives nothing, seeking goes back, and only what was stored is committed at the end."""
    topic, group = create_topic(bootstrap, name), unique("group")
    confluent_produce(bootstrap, topic, numbered(10))
    partition = TopicPartition(topic, 0)
    consumer = consumer_of(group, **{"enable.auto.offset.store": False})
    consumer.subscribe([topic])
    assert len(poll_confluent(consumer, 10)) == 10
    consumer.pause([partition])
    confluent_produce(bootstrap, topic, numbered(1))
    assert consumer.poll(0.5) is None
    consumer.resume([partition])
    consumer.seek(TopicPartition(topic, 0, 4))
    assert poll_confluent(consumer, 7)[0].offset == 4
    consumer.store_offsets(offsets=[TopicPartition(topic, 0, 5)])
    consumer.close()
    again = consumer_of(group)
    assert again.committed([partition], 30)[0].offset == 5
