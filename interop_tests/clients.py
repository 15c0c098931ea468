"""One way to say "produce these" and "read those" with each stock client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from interop_tests.reading import TIMEOUT_S, Place, read_to_ends

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Message(NamedTuple):
    """A record as every client shows it."""

    key: bytes | None
    value: bytes | None
    partition: int = 0
    offset: int = -1


def create_topic(bootstrap: str, name: str, partitions: int = 1, *, replicas: int = 1, **config: str) -> str:
    """Creates a topic (`segment_bytes="1048576"` sets segment.bytes) and returns its name."""
    new_topic = NewTopic(
        name, partitions, replicas, config={key.replace("_", "."): value for key, value in config.items()}
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must outlive its futures
    for future in admin.create_topics([new_topic]).values():
        future.result(TIMEOUT_S)
    # Apache Kafka answers when its controller knows the topic; its broker may take a moment more to tell of it, and
    # another to lead its partitions: what is sent with acks=0 in between is lost.
    wait_until(lambda: admin.list_topics(name, TIMEOUT_S).topics[name].error is None, f"{name} to be known")
    latest: OffsetSpec = OffsetSpec.latest()
    ends = {confluent_kafka.TopicPartition(name, number): latest for number in range(partitions)}
    wait_until(
        lambda: all(future.exception(TIMEOUT_S) is None for future in admin.list_offsets(ends).values()),
        f"{name} to be led",
    )
    return name


def kafka_python_produce(bootstrap: str, topic: str, messages: Iterable[Message], codec: str = "none") -> None:
    """Sends in order and waits until all are acknowledged; raises on the first that is not."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5
    )
    try:
        futures = [producer.send(topic, key=message.key, value=message.value) for message in messages]
        for future in futures:
            future.get(timeout=TIMEOUT_S)
    finally:
        producer.close()


class KafkaPythonReader:
    """A kafka-python consumer as `read_to_ends` wants it."""

    def __init__(self, consumer: kafka.KafkaConsumer) -> None:
        self._consumer = consumer

    def ends(self) -> dict[Place, int]:
        """By the isolation level of the consumer."""
        ends = self._consumer.end_offsets(list(self._consumer.assignment()))
        return {(place.topic, place.partition): end for place, end in ends.items()}

    def poll(self) -> list[Message]:
        """The records that arrive within 200 ms."""
        return [
            Message(record.key, record.value, record.partition, record.offset)
            for records in self._consumer.poll(timeout_ms=200).values()
            for record in records
        ]

    def position(self, place: Place) -> int:
        """It passes control records and aborted ones."""
        position = self._consumer.position(kafka.TopicPartition(*place))
        return -1 if position is None else int(position)


def kafka_python_consume(
    bootstrap: str, topics: Sequence[str], count: int = 0, *, isolation: str = "read_uncommitted"
) -> list[Message]:
    """All records of the topics from beginning to end, without a group; waits until there are `count` at least."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
    )
    try:
        consumer.assign(
            [kafka.TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for_topic(topic)]
        )
        return read_to_ends(KafkaPythonReader(consumer), count)
    finally:
        consumer.close()


class KafkaPythonMember:
    """A kafka-python consumer in a group, polled by a thread of its own.

    Several of them polled in turn by one thread keep each other from joining: poll gives up a join that is not done
    within its timeout, and begins it again the next time.

    Attributes:
        assigned: numbers of the partitions that it has now.
        records: what it was given, in order.
    """

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.assigned: set[int] = set()
        self.records: list[Any] = []
        self.failure: Exception | None = None
        self._topic = topic
        self._settings = {"bootstrap_servers": bootstrap, "group_id": group, "heartbeat_interval_ms": 200}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leaves the group; raises what went wrong in the thread."""
        self._ending.set()
        self._thread.join(TIMEOUT_S)
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            consumer = kafka.KafkaConsumer(self._topic, auto_offset_reset="earliest", **self._settings)
            # A leader that assigns before its first metadata has no partitions to give, and does not notice later.
            wait_until(lambda: consumer.partitions_for_topic(self._topic), f"metadata of {self._topic}")
            while not self._ending.is_set():
                for records in consumer.poll(timeout_ms=200).values():
                    self.records += records
                self.assigned = {partition.partition for partition in consumer.assignment()}
            consumer.close()
        except Exception as error:
            self.failure = error


def confluent_produce(
    bootstrap: str, topic: str, messages: Iterable[Message], codec: str = "none", **config: Any
) -> None:
    """Sends in order and waits until all are acknowledged; raises on the first that is not."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, **config}
    )
    failures: list[object] = []

    def delivered(error: confluent_kafka.KafkaError | None, _message: confluent_kafka.Message) -> None:
        if error is not None:
            failures.append(error)

    for message in messages:
        producer.produce(topic, key=message.key, value=message.value, on_delivery=delivered)
        producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    assert not failures, failures[:3]
    assert left == 0, f"{left} records were not acknowledged within {TIMEOUT_S:.0f} s"


class ConfluentReader:
    """A confluent-kafka consumer with `enable.partition.eof` as `read_to_ends` wants it, assigned or subscribed."""

    def __init__(
        self, bootstrap: str, consumer: confluent_kafka.Consumer, topics: Sequence[str], isolation: str
    ) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._consumer = consumer
        partitions = {topic: consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions for topic in topics}
        self.places = [
            confluent_kafka.TopicPartition(topic, number, confluent_kafka.OFFSET_BEGINNING)
            for topic in topics
            for number in partitions[topic]
        ]
        self._level = confluent_kafka.IsolationLevel[isolation.upper()]
        self._positions: dict[Place, int] = {}

    def ends(self) -> dict[Place, int]:
        """By ListOffsets; asked again while a partition has no leader."""
        ends: dict[Place, int] = {}
        latest: OffsetSpec = OffsetSpec.latest()

        def are_known() -> bool:
            asked = self._admin.list_offsets(
                dict.fromkeys(self.places, latest), isolation_level=self._level, request_timeout=TIMEOUT_S
            )
            try:
                ends.update(((one.topic, one.partition), asked[one].result(TIMEOUT_S).offset) for one in self.places)
            except confluent_kafka.KafkaException as error:
                if not _is_passing(error.args[0]):
                    raise
                return False
            return True

        wait_until(are_known, "the ends of partitions", pause_s=0.1)
        return ends

    def poll(self) -> list[Message]:
        """The records that arrive within 200 ms."""
        found = []
        for message in self._consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                place, offset = position_of(message)
                found.append(Message(message.key(), message.value(), place[1], offset))
                self._positions[place] = offset + 1
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                # Control records and aborted ones before it were passed over.
                place, offset = position_of(message)
                self._positions[place] = offset
            else:
                # A broker that has just elected itself, or a topic just made, is a matter of a retry.
                assert _is_passing(error), error
        return found

    def position(self, place: Place) -> int:
        """As the last record or the last end of the partition said."""
        return self._positions.get(place, -1)


def _is_passing(error: Any) -> bool:
    """True for an error of a partition that another attempt may not meet.

    A broker that has restarted may answer by the leader epoch of before, for which librdkafka has no retry.
    """
    return bool(error.retriable() or error.code() == confluent_kafka.KafkaError.UNKNOWN_LEADER_EPOCH)


def confluent_consume(
    bootstrap: str, topics: Sequence[str], count: int = 0, *, isolation: str = "read_uncommitted"
) -> list[Message]:
    """All records of the topics from beginning to end, without a group; waits until there are `count` at least."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        reader = ConfluentReader(bootstrap, consumer, topics, isolation)
        consumer.assign(reader.places)
        return read_to_ends(reader, count)
    finally:
        consumer.close()


def confluent_group_consume(bootstrap: str, topic: str, group: str, count: int = 0) -> list[Message]:
    """Records from where the group stands to the end of the topic, as a new member gets and commits them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        reader = ConfluentReader(bootstrap, consumer, [topic], "read_committed")
        consumer.subscribe([topic])
        return read_to_ends(reader, count)
    finally:
        consumer.close()


def topic_config(bootstrap: str, topic: str) -> dict[str, str]:
    """The settings of a topic, defaults too."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must outlive its futures
    [described] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {name: str(entry.value) for name, entry in described.result(TIMEOUT_S).items()}


def end_of(bootstrap: str, topic: str) -> int:
    """The sum of the high watermarks of a topic's partitions: markers and undecided records count too."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_uncommitted"}
    )
    try:
        places = [
            confluent_kafka.TopicPartition(topic, number)
            for number in consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        ]
        return sum(high_watermark(consumer, place) for place in places)
    finally:
        consumer.close()


def high_watermark(consumer: confluent_kafka.Consumer, place: confluent_kafka.TopicPartition) -> int:
    """The high watermark of a partition. A new leader that has none yet (OFFSET_NOT_AVAILABLE) is asked again."""
    ends: list[int] = []

    def is_known() -> bool:
        try:
            ends.append(consumer.get_watermark_offsets(place, TIMEOUT_S)[1])
        except confluent_kafka.KafkaException as failure:
            error = failure.args[0]
            if not error.retriable() and error.code() != confluent_kafka.KafkaError.OFFSET_NOT_AVAILABLE:
                raise
        return bool(ends)

    wait_until(is_known, f"the high watermark of {place}")
    return ends[0]


def keep_failure(failures: list[object], error: confluent_kafka.KafkaError | None) -> None:
    """For delivery reports: what was refused is kept."""
    if error is not None:
        failures.append(error)


def position_of(message: confluent_kafka.Message) -> tuple[Place, int]:
    """Topic and partition, and offset; an event that is about no partition has none of them."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, message.error()
    assert partition is not None, message.error()
    assert offset is not None, message.error()
    return (topic, partition), offset


def poll_confluent(consumer: confluent_kafka.Consumer, count: int, timeout_s: float = TIMEOUT_S) -> list[Message]:
    """The next `count` records of an assigned or subscribed consumer. What is behind them is left unread."""
    found: list[Message] = []

    def enough() -> bool:
        for message in consumer.consume(max(count - len(found), 1), 0.2):
            error = message.error()
            if error is not None:
                # A broker that has just elected itself, or a topic just made, is a matter of a retry.
                assert error.retriable(), error
                continue
            (_, partition), offset = position_of(message)
            found.append(Message(message.key(), message.value(), partition, offset))
        return len(found) >= count

    wait_until(enough, f"{count} records, {{}} so far".format, found, timeout_s=timeout_s)
    return found


def wait_until(
    condition: Callable[[], object],
    describe: str | Callable[[object], str] = "the condition",
    state: Sequence[object] = (),
    *,
    timeout_s: float = TIMEOUT_S,
    pause_s: float = 0.01,
) -> None:
    """Asks until the condition holds; AssertionError with the description otherwise."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            text = describe if isinstance(describe, str) else describe(len(state))
            raise AssertionError(f"waited {timeout_s:.0f} s for {text}")
        time.sleep(pause_s)
