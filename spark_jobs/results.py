"""Reading the demo's result topic with confluent-kafka, and comparing counts with what they must be."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Key = tuple[str, str]  # minute, page
TYPES = {"page_views": "page_view", "searches": "search", "clicks": "click", "events": "events"}
READ_TIMEOUT_S = 30.0


class CountsReader:
    """Follows the topic of counts as a member of a consumer group, keeping the last value of each key.

    Attributes:
        counts: the last counts of each key.
        records: how many records were read.
        positions: for each partition the offset behind the last record, or the end that was met.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        from confluent_kafka import Consumer

        self.counts: dict[Key, dict[str, int]] = {}
        self.records = 0
        self.positions: dict[int, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"demo-{uuid.uuid4().hex[:8]}",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "log_level": 0,  # a broker that is away for a moment is part of the demo
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self, timeout_s: float) -> None:
        """Take in what has arrived, waiting at most this long for the first of it."""
        from confluent_kafka import KafkaError

        messages = self._consumer.consume(5000, timeout_s)
        for message in messages:
            error, value = message.error(), message.value()
            partition, offset = message.partition(), message.offset()
            if partition is None or offset is None:
                continue  # an error that is about no partition
            if error is None:
                self.positions[partition] = offset + 1
                if value is not None:
                    self._take(value)
            elif error.code() == KafkaError._PARTITION_EOF:
                # Control records before it have offsets and are not delivered.
                self.positions[partition] = offset

    def _take(self, value: bytes) -> None:
        row = json.loads(value)
        self.records += 1
        self.counts[row["minute"], row["page"]] = {name: row[name] for name in TYPES}

    def events_counted(self) -> int:
        """Sum over all keys: how many events are in the counts until now."""
        return sum(row["events"] for row in self.counts.values())

    def close(self) -> None:
        """Commit and leave the group."""
        self._consumer.close()


def end_offsets(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """The end offset of each partition of a topic."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "demo-offsets", "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, READ_TIMEOUT_S).topics[topic].partitions
        return {
            id_: consumer.get_watermark_offsets(TopicPartition(topic, id_), READ_TIMEOUT_S)[1] for id_ in partitions
        }
    finally:
        consumer.close()


def end_offset(bootstrap_servers: str, topic: str) -> int:
    """The sum of the end offsets of a topic's partitions."""
    return sum(end_offsets(bootstrap_servers, topic).values())


def read_all(bootstrap_servers: str, topic: str) -> CountsReader:
    """The counts from beginning to end of the topic, read with a new group. Raises TimeoutError if it stands still."""
    ends = end_offsets(bootstrap_servers, topic)
    reader = CountsReader(bootstrap_servers, topic)
    try:
        deadline = time.monotonic() + READ_TIMEOUT_S
        while any(reader.positions.get(partition, -1) < end for partition, end in ends.items()):
            before = dict(reader.positions)
            reader.poll(0.2)
            if reader.positions != before:
                deadline = time.monotonic() + READ_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise TimeoutError(f"topic {topic}: at {before} of {ends}, then nothing for {READ_TIMEOUT_S:.0f} s")
        return reader
    finally:
        reader.close()


def differences(got: Mapping[Key, Mapping[str, int]], expected: Mapping[Key, Counter[str]]) -> list[str]:
    """One line for each (minute, page) whose counts are not what they must be."""
    found = []
    for key in sorted(got.keys() | expected.keys()):
        should = {name: expected.get(key, Counter())[event_type] for name, event_type in TYPES.items()}
        is_now = dict(got.get(key, dict.fromkeys(TYPES, 0)))
        if should != is_now:
            found.append(f"{' '.join(key)}: expected {should}, got {is_now}")
    return found


def digest(counts: Mapping[Key, Mapping[str, int]]) -> str:
    """A short fingerprint of all counts, the same for two runs with the same counts."""
    text = json.dumps([[*key, [row[name] for name in TYPES]] for key, row in sorted(counts.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
