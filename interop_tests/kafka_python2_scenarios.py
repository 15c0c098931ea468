"""Scenarios of test_kafka_python2.py, for a process whose `kafka` is kafka-python 2.3: one function for each behaviour.

    python kafka_python2_scenarios.py SCENARIO HOST:PORT NAME [PARAMETER]

NAME is for topics and groups that nobody has used. The first sentence of each function is the behaviour; `AREAS` says
what it belongs to. This file imports nothing but the client.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import kafka
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import (
    GroupIdNotFoundError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    NonEmptyGroupError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata

TIMEOUT_S = 30.0
# Not so long ago that retention would take the records while they are looked at.
START_MS = int(time.time()) * 1000 - 3_600_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TopicPartition = kafka.TopicPartition


def eventually(condition: Callable[[], object], what: str) -> None:
    """Asks until the condition holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)


@contextmanager
def expect(error: type[Exception]) -> Iterator[None]:
    """The block must raise the error."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was expected")


def admin_of(bootstrap: str) -> Any:
    """An admin client to be closed."""
    return closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap))


def producer_of(bootstrap: str, **config: Any) -> Any:
    """A producer to be closed."""
    return closing(kafka.KafkaProducer(bootstrap_servers=bootstrap, **config))


def consumer_of(bootstrap: str, *topics: str, **config: Any) -> Any:
    """A consumer from the beginning, to be closed."""
    settings = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 200, "metadata_max_age_ms": 500, **config}
    return closing(kafka.KafkaConsumer(*topics, bootstrap_servers=bootstrap, **settings))


def create(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> str:
    """Makes a topic and waits until it is known."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    with admin_of(bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
        eventually(lambda: admin.describe_topics([name])[0]["error_code"] == 0, f"{name} to be known")
    return name


def read(consumer: Any, count: int) -> list[Any]:
    """The next records."""
    found: list[Any] = []

    def enough() -> bool:
        # It returns as soon as there is something; a join that takes longer than this is begun again.
        for records in consumer.poll(timeout_ms=2000).values():
            found.extend(records)
        return len(found) >= count

    eventually(enough, f"{count} records")
    return found


def require_end(consumer: Any, topic: str, end: int) -> None:
    """Fails when there is more in a topic of one partition than the records before this offset, which were read."""
    partition = TopicPartition(topic, 0)
    assert consumer.end_offsets([partition]) == {partition: end}, "nothing behind the records that were sent"


def produce(bootstrap: str, topic: str, count: int, **config: Any) -> None:
    """Numbers as values, a second apart in time."""
    with producer_of(bootstrap, **config) as producer:
        futures = [
            producer.send(topic, b"%d" % number, timestamp_ms=START_MS + 1000 * number) for number in range(count)
        ]
        for future in futures:
            future.get(TIMEOUT_S)


def record_whole(bootstrap: str, name: str) -> None:
    """Key, value, headers, nulls and timestamp arrive as they were sent; the acknowledgement says where they are."""
    create(bootstrap, name, 2)
    headers = [("a", b"1"), ("empty", b""), ("a", b"2")]
    with producer_of(bootstrap, acks="all") as producer:
        sent = producer.send(name, b"v", key=b"k", headers=headers, partition=1, timestamp_ms=START_MS).get(TIMEOUT_S)
        assert (sent.topic, sent.partition, sent.offset, sent.timestamp) == (name, 1, 0, START_MS), sent
        assert producer.send(name, None, key=b"tombstone", partition=1).get(TIMEOUT_S).offset == 1
    with consumer_of(bootstrap, name) as consumer:
        first, second = read(consumer, 2)
    assert (first.key, first.value, first.timestamp, first.headers) == (b"k", b"v", START_MS, headers), first
    assert (second.key, second.value, second.offset) == (b"tombstone", None, 1), second


def codec(bootstrap: str, name: str, codec: str) -> None:
    """Records that kafka-python 2.3 compresses are read by kafka-python 2.3."""
    create(bootstrap, name)
    produce(bootstrap, name, 50, compression_type=None if codec == "none" else codec, linger_ms=20)
    with consumer_of(bootstrap, name) as consumer:
        assert [record.value for record in read(consumer, 50)] == [b"%d" % number for number in range(50)]
        require_end(consumer, name, 50)


def acks(bootstrap: str, name: str, acks: str) -> None:
    """Acks 1 and all: every record is stored, in order."""
    create(bootstrap, name)
    # With acks=0 this client stores nothing, in Apache Kafka neither.
    produce(bootstrap, name, 20, acks=acks if acks == "all" else int(acks), enable_idempotence=False)
    with consumer_of(bootstrap, name) as consumer:
        assert [record.value for record in read(consumer, 20)] == [b"%d" % number for number in range(20)]
        require_end(consumer, name, 20)


def idempotent_producer(bootstrap: str, name: str) -> None:
    """An idempotent producer gets an id, and its records are stored once, in order."""
    create(bootstrap, name)
    produce(bootstrap, name, 500, enable_idempotence=True)
    with consumer_of(bootstrap, name) as consumer:
        assert [int(record.value) for record in read(consumer, 500)] == list(range(500))
        require_end(consumer, name, 500)


def log_append_time(bootstrap: str, name: str) -> None:
    """With message.timestamp.type=LogAppendTime the broker's clock counts."""
    create(bootstrap, name, message_timestamp_type="LogAppendTime")
    with producer_of(bootstrap) as producer:
        sent = producer.send(name, b"v", timestamp_ms=START_MS).get(TIMEOUT_S)
    assert abs(sent.timestamp - time.time() * 1000) < 60_000, sent
    with consumer_of(bootstrap, name) as consumer:
        (record,) = read(consumer, 1)
    assert (record.timestamp, record.timestamp_type) == (sent.timestamp, 1), record


def topic_made_by_first_use(bootstrap: str, name: str) -> None:
    """auto.create.topics.enable: a producer's first Metadata makes the topic."""
    with producer_of(bootstrap) as producer:
        assert producer.send(name, b"first").get(TIMEOUT_S).offset == 0


def errors(bootstrap: str, name: str) -> None:
    """A record that is too large and an offset out of range are told as such."""
    create(bootstrap, name, max_message_bytes="1000")
    with producer_of(bootstrap, enable_idempotence=False) as producer:
        with expect(MessageSizeTooLargeError):
            producer.send(name, b"x" * 2000).get(TIMEOUT_S)
        assert producer.send(name, b"x" * 500).get(TIMEOUT_S).offset == 0
    with consumer_of(bootstrap, auto_offset_reset="none") as consumer:
        partition = TopicPartition(name, 0)
        consumer.assign([partition])
        with expect(NoOffsetForPartitionError):
            read(consumer, 1)
        consumer.seek(partition, 99)
        with expect(OffsetOutOfRangeError):
            read(consumer, 1)


def offsets(bootstrap: str, name: str) -> None:
    """Beginning, end, offsets by time, and seeking to each of them."""
    create(bootstrap, name)
    produce(bootstrap, name, 10)
    partition = TopicPartition(name, 0)
    with consumer_of(bootstrap) as consumer:
        consumer.assign([partition])
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 10}
        found = consumer.offsets_for_times({partition: START_MS + 3500})[partition]
        assert (found.offset, found.timestamp) == (4, START_MS + 4000), found
        assert consumer.offsets_for_times({partition: START_MS + 99_000})[partition] is None
        consumer.seek(partition, 7)
        assert [record.offset for record in read(consumer, 3)] == [7, 8, 9]
        consumer.seek_to_end(partition)
        assert consumer.position(partition) == 10


def group_commits_and_goes_on(bootstrap: str, name: str) -> None:
    """A group's commit, with its metadata, is where its next member goes on."""
    create(bootstrap, name)
    produce(bootstrap, name, 10)
    partition = TopicPartition(name, 0)
    with consumer_of(bootstrap, name, group_id=name, enable_auto_commit=False) as consumer:
        read(consumer, 10)
        consumer.commit({partition: OffsetAndMetadata(6, "note", -1)})
        assert consumer.committed(partition, metadata=True)[:2] == (6, "note")
    with consumer_of(bootstrap, name, group_id=name) as consumer:
        assert [record.offset for record in read(consumer, 4)] == [6, 7, 8, 9]


def members_come_and_go(bootstrap: str, name: str) -> None:
    """Each rebalance spreads all partitions over whoever is there, and each record is read once."""
    create(bootstrap, name, 4)
    got: list[int] = []

    class Member:
        def __init__(self) -> None:
            self.assigned: set[int] = set()
            self.ending = threading.Event()
            self.thread = threading.Thread(target=self.run, daemon=True)
            self.thread.start()

        def run(self) -> None:
            with consumer_of(bootstrap, name, group_id=name) as consumer:
                while not self.ending.is_set():
                    for records in consumer.poll(timeout_ms=100).values():
                        got.extend(int(record.value) for record in records)
                    self.assigned = {partition.partition for partition in consumer.assignment()}

        def close(self) -> None:
            self.ending.set()
            self.thread.join(TIMEOUT_S)

    def spread(count: int) -> bool:
        owned = sorted(number for member in members for number in member.assigned)
        return owned == list(range(4)) and {len(member.assigned) for member in members} == {4 // count}

    members: list[Member] = []
    for size in (1, 2):
        members.append(Member())
        eventually(partial(spread, size), f"{size} members to share")
    produce(bootstrap, name, 60)
    eventually(lambda: len(got) >= 60, "all records")
    members.pop().close()
    eventually(lambda: spread(1), "the first to have what the second had")
    members.pop().close()
    assert sorted(got) == list(range(60)), sorted(got)


def subscribe_by_pattern(bootstrap: str, name: str) -> None:
    """A topic made after the subscription is found by the next metadata."""
    produce(bootstrap, create(bootstrap, f"{name}-a"), 1)
    with consumer_of(bootstrap, group_id=name) as consumer:
        consumer.subscribe(pattern=f"^{name}-.*")
        assert [record.topic for record in read(consumer, 1)] == [f"{name}-a"]
        produce(bootstrap, create(bootstrap, f"{name}-b"), 1)
        assert [record.topic for record in read(consumer, 1)] == [f"{name}-b"]


def admin_topics(bootstrap: str, name: str) -> None:
    """Create, list, describe, grow and delete topics; errors of what exists, is illegal or is gone."""
    with admin_of(bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "60000"})])
        with expect(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(name, 2, 1)])
        with expect(InvalidTopicError):
            admin.create_topics([NewTopic("no such name", 1, 1)])
        eventually(lambda: name in admin.list_topics(), "the topic to be listed")
        admin.create_partitions({name: NewPartitions(3)})
        eventually(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 3, "three partitions")
        admin.delete_topics([name])
        eventually(lambda: name not in admin.list_topics(), "the topic to be gone")
        with expect(UnknownTopicOrPartitionError):
            admin.delete_topics([name])


def admin_configs(bootstrap: str, name: str) -> None:
    """A topic's setting is changed by AlterConfigs and described."""
    create(bootstrap, name)
    with admin_of(bootstrap) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "123456"})
        admin.alter_configs([resource])
        asked = ConfigResource(ConfigResourceType.TOPIC, name)
        eventually(lambda: "123456" in repr(admin.describe_configs([asked])), "the setting")


def admin_groups(bootstrap: str, name: str) -> None:
    """List, describe, offsets, and deletion that waits for the last member to leave; the cluster."""
    create(bootstrap, name)
    with admin_of(bootstrap) as admin:
        with consumer_of(bootstrap, name, group_id=name, client_id="worker") as consumer:
            eventually(lambda: (consumer.poll(timeout_ms=50), consumer.assignment())[1], "an assignment")
            consumer.commit({TopicPartition(name, 0): OffsetAndMetadata(0, "note", -1)})
            assert (name, "consumer") in admin.list_consumer_groups()
            (described,) = admin.describe_consumer_groups([name])
            assert described.state == "Stable", described
            assert described.members[0].client_id == "worker", described
            assert admin.list_consumer_group_offsets(name)[TopicPartition(name, 0)].metadata == "note"
            assert admin.delete_consumer_groups([name]) == [(name, NonEmptyGroupError)]
        assert [error.errno for _, error in admin.delete_consumer_groups([name])] == [0]
        assert admin.delete_consumer_groups([name]) == [(name, GroupIdNotFoundError)]
        assert admin.describe_cluster()["brokers"]


def delete_records(bootstrap: str, name: str) -> None:
    """DeleteRecords: the log begins at that offset; one behind the end is refused."""
    create(bootstrap, name)
    produce(bootstrap, name, 10)
    partition = TopicPartition(name, 0)
    with admin_of(bootstrap) as admin:
        assert admin.delete_records({partition: 6})[partition]["low_watermark"] == 6
        with expect(KafkaError):
            admin.delete_records({partition: 600})
    with consumer_of(bootstrap, name) as consumer:
        assert [record.offset for record in read(consumer, 4)] == [6, 7, 8, 9]


# Every scenario with its area and, where it has any, the parameters it is run with.
SCENARIOS: dict[Callable[..., None], tuple[str, tuple[str, ...]]] = {
    record_whole: ("records", ()),
    codec: ("codecs", CODECS),
    acks: ("records", ("1", "all")),
    idempotent_producer: ("records", ()),
    log_append_time: ("records", ()),
    topic_made_by_first_use: ("records", ()),
    errors: ("errors", ()),
    offsets: ("offsets", ()),
    group_commits_and_goes_on: ("groups", ()),
    members_come_and_go: ("groups", ()),
    subscribe_by_pattern: ("groups", ()),
    admin_topics: ("admin", ()),
    admin_configs: ("admin", ()),
    admin_groups: ("admin", ()),
    delete_records: ("admin", ()),
}


def main() -> None:
    """Runs the scenario of the command line; its failure is a traceback and an exit code that is not 0."""
    assert kafka.__version__.startswith("2."), kafka.__version__
    scenario, *arguments = sys.argv[1:]
    {function.__name__: function for function in SCENARIOS}[scenario](*arguments)


if __name__ == "__main__":
    main()
