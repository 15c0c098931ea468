"""kafka-python 3.x, unchanged: producer, consumer, groups and admin client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import kafka
import pytest
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import InvalidTopicError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from interop_tests.clients import KafkaPythonMember, create_topic, kafka_python_consume, wait_until
from interop_tests.wire import RECENT_MS

pytestmark = [pytest.mark.area("records"), pytest.mark.client("kafka-python 3")]

Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[kafka.KafkaAdminClient]:
    client = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def producer(bootstrap: str) -> Iterator[kafka.KafkaProducer]:
    client = kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, acks="all")
    yield client
    client.close()


@pytest.fixture
def consume(bootstrap: str) -> Iterator[Callable[..., kafka.KafkaConsumer]]:
    """Makes consumers that are closed at the end of the test."""
    made: list[kafka.KafkaConsumer] = []

    def make(*topics: str, **config: object) -> kafka.KafkaConsumer:
        settings = {"auto_offset_reset": "earliest", "bootstrap_servers": bootstrap, **config}
        consumer = kafka.KafkaConsumer(*topics, **settings)
        made.append(consumer)
        for topic in topics:
            # A leader that assigns before its first metadata has no partitions to give, and does not notice later.
            wait_until(partial(consumer.partitions_for_topic, topic), f"metadata of {topic}")
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def poll_records(consumer: kafka.KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []

    def enough() -> bool:
        # It returns as soon as there is something; a join that takes longer than this is begun again.
        for records in consumer.poll(timeout_ms=10_000).values():
            found.extend(records)
        return len(found) >= count

    wait_until(enough, f"{count} records, {{}} so far".format, found)
    return found


def test_record_whole(
    producer: kafka.KafkaProducer, consume: Callable[..., kafka.KafkaConsumer], bootstrap: str, name: str
) -> None:
    """Key, value, headers with a null value, timestamp, and what the acknowledgement says."""
    topic = create_topic(bootstrap, name, 2)
    headers = [("first", b"1"), ("empty", b""), ("first", b"again")]
    sent = producer.send(topic, key=b"k", value=b"v", headers=headers, partition=1, timestamp_ms=RECENT_MS + 123)
    metadata = sent.get(30)
    assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == (topic, 1, 0, RECENT_MS + 123)
    assert producer.send(topic, value=None, key=b"tombstone", partition=1).get(30).offset == 1
    first, second = poll_records(consume(topic), 2)
    assert (first.key, first.value, first.timestamp, first.timestamp_type) == (b"k", b"v", RECENT_MS + 123, 0)
    assert list(first.headers) == headers
    assert (second.key, second.value, second.offset) == (b"tombstone", None, 1)


def test_log_append_time(
    producer: kafka.KafkaProducer, consume: Callable[..., kafka.KafkaConsumer], bootstrap: str, name: str
) -> None:
    """The broker's clock in place of the client's."""
    topic = create_topic(bootstrap, name, message_timestamp_type="LogAppendTime")
    before_ms = time.time() * 1000 - 5000
    metadata = producer.send(topic, b"v", timestamp_ms=1_600_000_000_000).get(30)
    assert before_ms < metadata.timestamp < time.time() * 1000 + 5000
    (record,) = poll_records(consume(topic), 1)
    assert (record.timestamp, record.timestamp_type) == (metadata.timestamp, 1)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(acks: object, bootstrap: str, name: str) -> None:
    """acks 0, 1 and all: every record is stored, in order; offsets are told where there is an answer."""
    topic = create_topic(bootstrap, name)
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks=acks, enable_idempotence=False)
    futures = [producer.send(topic, b"%d" % number) for number in range(10)]
    offsets = [future.get(30).offset for future in futures]
    # Without acknowledgement the client makes up the offsets that it reports.
    assert acks == 0 or offsets == list(range(10))
    producer.close()
    # Without acknowledgements some may still be on their way.
    stored = kafka_python_consume(bootstrap, [topic], 10)
    assert [record.value for record in stored] == [b"%d" % n for n in range(10)]


def test_topic_made_by_first_use(
    producer: kafka.KafkaProducer, consume: Callable[..., kafka.KafkaConsumer], name: str
) -> None:
    """auto.create.topics.enable is on by default."""
    assert producer.send(name, b"first").get(30).offset == 0
    assert poll_records(consume(name), 1)[0].value == b"first"


@pytest.mark.area("errors")
def test_record_too_large(bootstrap: str, name: str) -> None:
    """A batch over max.message.bytes is MESSAGE_TOO_LARGE, and the next one is taken."""
    topic = create_topic(bootstrap, name, max_message_bytes="1000")
    # With idempotence kafka-python takes any refused batch for the end of the producer.
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False)
    with pytest.raises(kafka.errors.MessageSizeTooLargeError):
        producer.send(topic, b"x" * 2000).get(30)
    assert producer.send(topic, b"x" * 500).get(30).offset == 0
    producer.close()


@pytest.mark.area("offsets")
def test_seeking(
    producer: kafka.KafkaProducer, consume: Callable[..., kafka.KafkaConsumer], bootstrap: str, name: str
) -> None:
    """Offsets by beginning, end and timestamp; seek to each; an offset out of range resets."""
    topic = create_topic(bootstrap, name)
    for number in range(10):
        producer.send(topic, b"%d" % number, timestamp_ms=RECENT_MS + 1000 * number)
    producer.flush()
    consumer = consume()
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 10}
    by_time = consumer.offsets_for_times({partition: RECENT_MS + 3500})[partition]
    assert (by_time.offset, by_time.timestamp) == (4, RECENT_MS + 4000)
    assert consumer.offsets_for_times({partition: RECENT_MS + 99000})[partition] is None
    consumer.seek(partition, 7)
    assert [record.value for record in poll_records(consumer, 3)] == [b"7", b"8", b"9"]
    assert consumer.position(partition) == 10
    consumer.seek(partition, 5000)
    assert poll_records(consumer, 10)[0].offset == 0, "out of range: from the earliest again"
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 10


@pytest.mark.area("groups")
def test_group_commits_and_goes_on(
    producer: kafka.KafkaProducer,
    consume: Callable[..., kafka.KafkaConsumer],
    bootstrap: str,
    name: str,
    unique: Unique,
) -> None:
    """A group's commit is where its next member goes on."""
    topic, group = create_topic(bootstrap, name, 2), unique("group")
    for number in range(20):
        producer.send(topic, b"%d" % number)
    producer.flush()
    first = consume(topic, group_id=group, enable_auto_commit=False)
    poll_records(first, 20)
    first.commit()
    partitions = [kafka.TopicPartition(topic, number) for number in range(2)]
    assert sum(first.committed(partition) for partition in partitions) == 20
    first.close()
    producer.send(topic, b"new").get(30)
    assert [record.value for record in poll_records(consume(topic, group_id=group), 1)] == [b"new"]


@pytest.mark.area("groups")
def test_members_come_and_go(bootstrap: str, name: str, unique: Unique) -> None:
    """Each rebalance spreads all partitions over whoever is there."""
    topic, group = create_topic(bootstrap, name, 6), unique("group")
    members: list[KafkaPythonMember] = []

    def spread_evenly() -> bool:
        owned = [number for member in members for number in member.assigned]
        return sorted(owned) == list(range(6)) and {len(member.assigned) for member in members} == {6 // len(members)}

    try:
        for size in (1, 2, 3):
            members.append(KafkaPythonMember(bootstrap, topic, group))
            wait_until(spread_evenly, f"{size} members to share")
        members.pop().close()
        wait_until(spread_evenly, "2 members to share what the third had")
    finally:
        for member in members:
            member.close()


@pytest.mark.area("groups")
def test_subscribe_by_pattern(
    producer: kafka.KafkaProducer,
    consume: Callable[..., kafka.KafkaConsumer],
    bootstrap: str,
    name: str,
    unique: Unique,
) -> None:
    """A topic made later is found by the next metadata."""
    producer.send(create_topic(bootstrap, f"{name}-a"), b"a").get(30)
    consumer = consume(group_id=unique("group"), metadata_max_age_ms=500)
    consumer.subscribe(pattern=f"^{name}-.*")
    assert poll_records(consumer, 1)[0].value == b"a"
    producer.send(create_topic(bootstrap, f"{name}-b"), b"b").get(30)
    assert poll_records(consumer, 1)[0].value == b"b"


@pytest.mark.area("admin")
def test_admin_topics(admin: kafka.KafkaAdminClient, name: str) -> None:
    """Create, list, describe, grow and delete topics; errors of what exists, is illegal or is gone."""
    admin.create_topics(
        [NewTopic(name, num_partitions=2, replication_factor=1, topic_configs={"retention.ms": "60000"})]
    )
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
    with pytest.raises(InvalidTopicError):
        admin.create_topics([NewTopic("no such name", num_partitions=1, replication_factor=1)])

    def partitions() -> int:
        (described,) = admin.describe_topics([name])
        return len(described["partitions"])

    # Apache Kafka's broker follows its controller a moment later.
    wait_until(lambda: name in admin.list_topics(), "the topic to be listed")
    wait_until(lambda: partitions() == 2, "two partitions")
    admin.create_partitions({name: NewPartitions(3)})
    wait_until(lambda: partitions() == 3, "three partitions")
    admin.delete_topics([name])
    wait_until(lambda: name not in admin.list_topics(), "the topic to be gone")
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


@pytest.mark.area("admin")
def test_admin_configs(admin: kafka.KafkaAdminClient, bootstrap: str, name: str) -> None:
    """A topic's setting is changed and described."""
    create_topic(bootstrap, name)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "123456"})])

    def described() -> str:
        return repr(admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)], config_filter="all"))

    wait_until(lambda: "123456" in described(), "the setting")
    assert "cleanup.policy" in described()


@pytest.mark.area("admin")
def test_admin_groups(
    admin: kafka.KafkaAdminClient,
    consume: Callable[..., kafka.KafkaConsumer],
    bootstrap: str,
    name: str,
    unique: Unique,
) -> None:
    """List, describe, offsets, and deletion that waits for the last member to leave."""
    topic, group = create_topic(bootstrap, name), unique("group")
    consumer = consume(topic, group_id=group, client_id="worker")
    wait_until(lambda: (consumer.poll(timeout_ms=50), consumer.assignment())[1], "an assignment")
    consumer.commit({kafka.TopicPartition(topic, 0): kafka.structs.OffsetAndMetadata(0, "note", -1)})
    assert group in repr(admin.list_groups())
    described = repr(admin.describe_groups([group]))
    assert "Stable" in described
    assert "worker" in described
    assert "note" in repr(admin.list_group_offsets(group))
    assert admin.delete_groups([group]) == {group: "NonEmptyGroupError"}
    consumer.close()
    assert admin.delete_groups([group]) == {group: "OK"}
    assert admin.delete_groups([group]) == {group: "GroupIdNotFoundError"}


@pytest.mark.area("admin")
def test_admin_cluster(admin: kafka.KafkaAdminClient) -> None:
    """The cluster's id and brokers."""
    described = admin.describe_cluster()
    assert described["cluster_id"]
    assert len(described["brokers"]) >= 1


@pytest.mark.area("admin")
def test_delete_records(
    admin: kafka.KafkaAdminClient,
    producer: kafka.KafkaProducer,
    consume: Callable[..., kafka.KafkaConsumer],
    bootstrap: str,
    name: str,
) -> None:
    """DeleteRecords: the log begins at that offset, with the same offsets behind it."""
    topic = create_topic(bootstrap, name)
    for number in range(10):
        producer.send(topic, b"%d" % number)
    producer.flush()
    admin.delete_records({kafka.TopicPartition(topic, 0): 6})
    assert [record.offset for record in poll_records(consume(topic), 4)] == [6, 7, 8, 9]
