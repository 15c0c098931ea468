"""Reading of results by stock clients: topics from beginning to end, and what lies in the folder."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Message

READ_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Read:
    """A record that was read. `headers` and `timestamp_ms` are as the producer gave them; `key` is "" for no key."""

    partition: int
    offset: int
    key: str
    raw_key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Places of the results of a run.

    Attributes:
        bootstrap_servers: of the Kafka with the pipeline's topics.
        second_bootstrap_servers: of the other Kafka; "" if there is none.
        folder: of the job, with its files.
        suffix: is added to the names of topics and groups.
        databases: connection strings by name.
    """

    bootstrap_servers: str
    second_bootstrap_servers: str
    folder: Path
    suffix: str
    databases: dict[str, str]

    def real_name(self, topic: str) -> str:
        """The real name of a topic of the pipeline."""
        return f"{topic}{self.suffix}"

    def read_second(self, topic: str) -> list[Read]:
        """The same of the other Kafka."""
        return read_topic(self.second_bootstrap_servers, self.real_name(topic))

    def read(self, topic: str) -> list[Read]:
        """All committed records of a topic, by partition and offset. Raises TimeoutError if reading stands still."""
        return read_topic(self.bootstrap_servers, self.real_name(topic))


def read_topic(bootstrap_servers: str, topic: str) -> list[Read]:
    """All committed records from beginning to end of a topic, by partition and offset.

    Raises KafkaException if no broker answers within a minute, TimeoutError if reading stands still for so long.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"outcome-{uuid.uuid4().hex[:8]}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,  # the end of a partition is known when a fetch has found nothing
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, READ_TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, id_, OFFSET_BEGINNING) for id_ in partitions])
        found = [_record(message) for message in _until_end(consumer, set(partitions))]
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def _until_end(consumer: Any, open_partitions: set[int]) -> Iterator[Message]:
    """Messages until each partition has said that it is at its end: counts would not see a record too many."""
    from confluent_kafka import KafkaError

    deadline = time.monotonic() + READ_TIMEOUT_S
    while open_partitions:
        for message in consumer.consume(5000, 0.2):
            error = message.error()
            if error is None:
                deadline = time.monotonic() + READ_TIMEOUT_S
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
        if time.monotonic() > deadline:
            raise TimeoutError(f"partitions {sorted(open_partitions)}: no end within {READ_TIMEOUT_S:.0f} s")


def _record(message: Any) -> Read:
    return Read(
        message.partition(),
        message.offset(),
        (message.key() or b"").decode(errors="replace"),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )
