"""The calls of LocalClient by confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic as ConfluentTopic

from pykbroker.testing.client_library import (
    COORDINATOR_NOT_READY,
    GROUP_ID_NOT_FOUND,
    GroupStates,
    LocalBrokerError,
    NewRecord,
    NewTopic,
    Position,
    Reading,
    Record,
)
from pykbroker.testing.client_settings import Access

_POLL_S = 0.1


class ConfluentKafka:
    """Implements ClientLibrary."""

    name = "confluent-kafka"

    def create_topic(self, access: Access, topic: NewTopic, timeout_s: float) -> None:
        """Creates a topic and waits for it."""
        name, partitions, replication_factor, config = topic
        admin = AdminClient(_settings(access))
        new_topic = ConfluentTopic(
            name, num_partitions=partitions, replication_factor=replication_factor, config=dict(config)
        )
        try:
            # With a timeout, as a node that has not replayed the topic's record yet would answer that there is none.
            admin.create_topics([new_topic], operation_timeout=timeout_s, request_timeout=timeout_s)[name].result()
        except KafkaException as error:
            raise LocalBrokerError(f"topic {name} was not created: {_words(error)}") from None

    def produce(self, access: Access, topic: str, records: Sequence[NewRecord], timeout_s: float) -> list[Position]:
        """Writes the records; returns their positions."""
        timeout_ms = max(int(timeout_s * 1000), 1)
        producer = Producer(
            {
                **_settings(access),
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": timeout_ms,
                "queue.buffering.max.messages": max(len(records), 1),
            }
        )
        outcomes: list[Position | str] = ["no answer came in time"] * len(records)

        def on_delivery(number: int) -> Callable[[Any, Any], None]:
            def note(error: Any, message: Any) -> None:
                outcomes[number] = error.str() if error else Position(message.partition(), message.offset())

            return note

        for number, record in enumerate(records):
            where: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
            try:
                producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    on_delivery=on_delivery(number),
                    **where,
                )
            except (KafkaException, BufferError) as error:
                raise LocalBrokerError(f"record {number} was not written to {topic}: {_words(error)}") from None
            producer.poll(0)
        producer.flush(timeout_s)
        positions = [outcome for outcome in outcomes if isinstance(outcome, Position)]
        if len(positions) < len(records):
            number = next(number for number, outcome in enumerate(outcomes) if isinstance(outcome, str))
            raise LocalBrokerError(f"record {number} was not written to {topic}: {outcomes[number]}")
        return positions

    def consume(self, access: Access, reading: Reading) -> list[Record]:
        """Reads up to `count` records, or to the ends of the partitions."""
        topic, count, timeout_s, from_beginning, isolation_level = reading
        deadline = time.monotonic() + timeout_s
        consumer = Consumer(
            {
                **_settings(access),
                # Needed by the library; nothing is committed.
                "group.id": "pykbroker-local-client",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation_level,
                "fetch.wait.max.ms": 50,
                "allow.auto.create.topics": False,
            }
        )
        with closing(consumer):
            numbers = _partitions(consumer, topic, deadline, is_awaited=count is not None)
            begin = OFFSET_BEGINNING if from_beginning else OFFSET_END
            consumer.assign([TopicPartition(topic, number, begin) for number in numbers])
            found: list[Record] = []
            at_end: set[int] = set()
            while len(found) < count if count is not None else at_end != numbers:
                if (left := deadline - time.monotonic()) <= 0:
                    if count is None:
                        raise LocalBrokerError(f"the end of {topic} was not reached within {timeout_s:g} s")
                    break
                for message in consumer.consume(500 if count is None else count - len(found), min(left, _POLL_S)):
                    error = message.error()
                    if error is None:
                        found.append(_record(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        at_end.add(message.partition() or 0)
                    elif not error.retriable() and error.fatal():
                        raise LocalBrokerError(f"{topic} could not be read: {error.str()}")
            return found

    @contextmanager
    def group_states(self, access: Access, group: str) -> Iterator[GroupStates]:
        """A function that asks for the state of a group."""
        admin = AdminClient(_settings(access))

        def ask(timeout_s: float) -> tuple[str, int]:
            try:
                found = admin.describe_consumer_groups([group], request_timeout=timeout_s)[group].result()
            except KafkaException as error:
                if error.args[0].code() in {GROUP_ID_NOT_FOUND, *COORDINATOR_NOT_READY}:
                    return "dead", 0
                raise LocalBrokerError(f"group {group} could not be described: {_words(error)}") from None
            return found.state.name.lower(), len(found.members)

        yield ask


def _settings(access: Access) -> dict[str, Any]:
    return {
        **access.confluent,
        # A topic or leader that is new is looked for at once and not after a second.
        "topic.metadata.refresh.fast.interval.ms": 20,
        "retry.backoff.ms": 20,
        # Errors come as results; the library's own lines would only confuse a test's output.
        "log_level": 0,
    }


def _partitions(consumer: Any, topic: str, deadline: float, *, is_awaited: bool) -> set[int]:
    while True:
        left = deadline - time.monotonic()
        try:
            known = consumer.list_topics(topic, timeout=max(left, 0.5)).topics[topic]
        except KafkaException as error:
            raise LocalBrokerError(f"the partitions of {topic} are not known: {_words(error)}") from None
        if known.partitions:
            return set(known.partitions)
        if not is_awaited or left <= 0:
            raise LocalBrokerError(
                f"there is no topic {topic}: {known.error.str() if known.error else 'no partitions'}"
            )
        time.sleep(min(_POLL_S, left))


def _record(message: Any) -> Record:
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


def _words(error: BaseException) -> str:
    reason = error.args[0] if error.args else error
    return str(reason.str() if isinstance(reason, KafkaError) else reason)
