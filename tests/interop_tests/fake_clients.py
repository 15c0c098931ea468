"""Consumers of three libraries over partitions in memory, in the place of those that the interop suite uses."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

MARKER = None
"""An offset that a control record has."""

POLLED_MAX = 7
"""Records that one poll gives at most."""

Partition = list[bytes | None]


class Topic:
    """Partitions in memory: at each offset a value or MARKER.

    Attributes:
        stable: last stable offset of a partition, where it is not its end.
    """

    def __init__(self, *partitions: Iterable[bytes | None]) -> None:
        self.partitions: list[Partition] = [list(values) for values in partitions]
        self.stable: dict[int, int] = {}

    def end(self, number: int, *, committed: bool) -> int:
        """End offset by isolation level."""
        end = len(self.partitions[number])
        return self.stable.get(number, end) if committed else end


class Cursor:
    """Positions in a topic; `take` gives what comes next, partition by partition."""

    def __init__(self, topic: Topic, isolation: str = "read_uncommitted") -> None:
        self.topic = topic
        self.committed = isolation == "read_committed"
        self.positions = dict.fromkeys(range(len(topic.partitions)), 0)

    def end(self, number: int) -> int:
        return self.topic.end(number, committed=self.committed)

    def take(self, count: int = POLLED_MAX) -> list[tuple[int, int, bytes]]:
        """(partition, offset, value) of the next records of the first partition that has any; passes markers."""
        for number, values in enumerate(self.topic.partitions):
            found: list[tuple[int, int, bytes]] = []
            while self.positions[number] < self.end(number) and len(found) < count:
                offset = self.positions[number]
                self.positions[number] += 1
                value = values[offset]
                if value is not MARKER:
                    found.append((number, offset, value))
            if found:
                return found
        return []


def use_kafka_python(monkeypatch: pytest.MonkeyPatch, topic: Topic) -> None:
    """kafka.KafkaConsumer reads this topic, whatever it is asked for."""
    import kafka

    class Consumer:
        def __init__(self, isolation_level: str = "read_uncommitted", **_: Any) -> None:
            self._cursor = Cursor(topic, isolation_level)
            self._assigned: list[Any] = []

        def partitions_for_topic(self, _name: str) -> set[int]:
            return set(range(len(topic.partitions)))

        def assign(self, places: list[Any]) -> None:
            self._assigned = places

        def assignment(self) -> set[Any]:
            return set(self._assigned)

        def end_offsets(self, places: list[Any]) -> dict[Any, int]:
            return {place: self._cursor.end(place.partition) for place in places}

        def position(self, place: Any) -> int:
            return self._cursor.positions[place.partition]

        def poll(self, timeout_ms: int) -> dict[Any, list[Any]]:
            taken = self._cursor.take()
            records = [SimpleNamespace(key=None, value=v, partition=n, offset=offset) for n, offset, v in taken]
            return {kafka.TopicPartition("t", taken[0][0]): records} if taken else {}

        def close(self) -> None: ...

    monkeypatch.setattr(kafka, "KafkaConsumer", Consumer)


def use_confluent(monkeypatch: pytest.MonkeyPatch, topic: Topic, begins_at: dict[int, int] | None = None) -> None:
    """confluent_kafka.Consumer reads this topic; a subscription begins where `begins_at` says."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    from interop_tests import clients

    class Message:
        def __init__(self, partition: int, offset: int, value: bytes | None, error: Any = None) -> None:
            self._fields = partition, offset, value, error

        def topic(self) -> str:
            return "t"

        def partition(self) -> int:
            return self._fields[0]

        def offset(self) -> int:
            return self._fields[1]

        def key(self) -> None:
            return None

        def value(self) -> bytes | None:
            return self._fields[2]

        def error(self) -> Any:
            return self._fields[3]

    class Consumer:
        def __init__(self, settings: dict[str, Any]) -> None:
            self._cursor = Cursor(topic, settings.get("isolation.level", "read_committed"))
            self._tells_ends = settings.get("enable.partition.eof", False)
            self._told: dict[int, int] = {}

        def list_topics(self, name: str, _timeout_s: float) -> Any:
            partitions = dict.fromkeys(range(len(topic.partitions)))
            return SimpleNamespace(topics={name: SimpleNamespace(partitions=partitions)})

        def assign(self, _places: list[Any]) -> None: ...

        def subscribe(self, _topics: list[str], **_: Any) -> None:
            self._cursor.positions.update(begins_at or {})

        def consume(self, count: int, _timeout_s: float) -> list[Message]:
            found = [Message(*taken) for taken in self._cursor.take(min(count, POLLED_MAX))]
            if found or not self._tells_ends:
                return found
            end = confluent_kafka.KafkaError(confluent_kafka.KafkaError._PARTITION_EOF)
            news = {n: at for n, at in self._cursor.positions.items() if self._told.get(n) != at}
            self._told |= news
            return [Message(number, at, None, end) for number, at in news.items()]

        def get_watermark_offsets(self, place: Any, _timeout_s: float) -> tuple[int, int]:
            return 0, topic.end(place.partition, committed=False)

        def close(self) -> None: ...

    class Admin:
        def __init__(self, _settings: dict[str, Any]) -> None: ...

        def list_offsets(self, asked: dict[Any, Any], isolation_level: Any, **_: Any) -> dict[Any, Any]:
            committed = isolation_level == confluent_kafka.IsolationLevel.READ_COMMITTED

            def answer(end: int) -> Any:
                return SimpleNamespace(result=lambda _timeout_s: SimpleNamespace(offset=end))

            return {place: answer(topic.end(place.partition, committed=committed)) for place in asked}

    monkeypatch.setattr(confluent_kafka, "Consumer", Consumer)
    monkeypatch.setattr(clients, "AdminClient", Admin)


def use_aiokafka(monkeypatch: pytest.MonkeyPatch, topic: Topic) -> None:
    """aiokafka.AIOKafkaConsumer reads this topic."""
    aiokafka = pytest.importorskip("aiokafka")

    class Consumer:
        def __init__(self, *_: str, isolation_level: str = "read_uncommitted", **_options: Any) -> None:
            self._cursor = Cursor(topic, isolation_level)

        async def start(self) -> None: ...

        async def stop(self) -> None: ...

        def assignment(self) -> set[Any]:
            return {aiokafka.TopicPartition("t", number) for number in range(len(topic.partitions))}

        async def end_offsets(self, places: list[Any]) -> dict[Any, int]:
            return {place: self._cursor.end(place.partition) for place in places}

        async def position(self, place: Any) -> int:
            return self._cursor.positions[place.partition]

        async def getmany(self, timeout_ms: int) -> dict[Any, list[Any]]:
            taken = self._cursor.take()
            records = [SimpleNamespace(key=None, value=v, partition=n, offset=offset) for n, offset, v in taken]
            return {aiokafka.TopicPartition("t", taken[0][0]): records} if taken else {}

    monkeypatch.setattr(aiokafka, "AIOKafkaConsumer", Consumer)
