"""Producers of two libraries with acks=all and acks=1 that write while a disk fills, and note when they got through.

Also probes: single batches that ask whether a broker takes records now. What is not refused is stored among the records
of others.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

import confluent_kafka
import kafka

from interop_tests.clients import kafka_python_consume
from interop_tests.kill_load import Producing
from interop_tests.wire import Connection, record_batch

PAUSE_S = 0.02
SIZE = 2000
LIMIT_S = 120.0
PROBE = b"x" * 1000


class Writer(threading.Thread):
    """Sends numbered records to all partitions of a topic by turns, and never gives one up.

    Attributes:
        name: of the library and acks.
        acks: "all" or "1".
        acknowledged: for each partition when which number was, on the monotonic clock.
        failed: what was refused for good.
    """

    def __init__(
        self, library: str, acks: str, topic: str, partitions: int, send: Callable[[Writer, bytes, int, int], None]
    ) -> None:
        super().__init__(name=f"{library} acks={acks}", daemon=True)
        self.acks = acks
        self.topic = topic
        self.partitions = partitions
        self.sent = 0
        self.acknowledged: dict[int, list[tuple[float, int]]] = defaultdict(list)
        self.failed: list[object] = []
        self._send = send
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            for partition in range(self.partitions):
                number, self.sent = self.sent, self.sent + 1
                self._send(self, b"%010d" % number + b"." * SIZE, partition, number)

    def note(self, partition: int, number: int) -> None:
        self.acknowledged[partition].append((time.monotonic(), number))

    def finish(self) -> None:
        """Sends nothing more, and returns when all is acknowledged."""
        self._stopping.set()
        self.join(LIMIT_S)
        deadline = time.monotonic() + LIMIT_S
        while sum(map(len, self.acknowledged.values())) + len(self.failed) < self.sent and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not self.failed, self.failed[:3]
        assert sum(map(len, self.acknowledged.values())) == self.sent, f"{self.name}: records without an answer"

    def standstill_s(self, since: float, until: float) -> float:
        """The longest time in which nothing was acknowledged of some partition."""

        def gaps() -> Iterator[float]:
            for partition in range(self.partitions):
                times = [since, *(at for at, _ in self.acknowledged[partition] if since < at < until), until]
                yield max(later - earlier for earlier, later in pairwise(times))

        return max(gaps())

    def missing(self, found: dict[int, list[int]]) -> list[float]:
        """Acknowledgement times, in seconds, of the records that are missing from `found`, numbers by partition."""
        there = {(partition, number) for partition, numbers in found.items() for number in numbers}
        return [
            at
            for partition in range(self.partitions)
            for at, number in self.acknowledged[partition]
            if (partition, number) not in there
        ]

    def repeated(self, found: dict[int, list[int]]) -> int:
        """Number of records that occur more than once in a partition."""
        return sum(count > 1 for numbers in found.values() for count in Counter(numbers).values())


def confluent_writer(bootstrap: str, topic: str, partitions: int, acks: str) -> Writer:
    """librdkafka's producer; idempotent where acks=all allows it."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "enable.idempotence": acks == "all",
            "message.timeout.ms": 300_000,
            "log_level": 0,
        }
    )

    def send(writer: Writer, value: bytes, partition: int, number: int) -> None:
        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            if error is None:
                writer.note(partition, number)
            else:
                writer.failed.append(error)

        producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)

    writer = Writer("confluent-kafka", acks, topic, partitions, send)

    def serve() -> None:
        while writer.is_alive() or len(producer):
            producer.poll(0.05)

    writer.start()
    threading.Thread(target=serve, daemon=True).start()
    return writer


def kafka_python_writer(bootstrap: str, topic: str, partitions: int, acks: str) -> Writer:
    """kafka-python's producer."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=acks == "all",
        delivery_timeout_ms=300_000,
        request_timeout_ms=5000,
    )

    def send(writer: Writer, value: bytes, partition: int, number: int) -> None:
        future = producer.send(topic, value, partition=partition)
        future.add_callback(lambda _: writer.note(partition, number))
        future.add_errback(writer.failed.append)

    writer = Writer("kafka-python", acks, topic, partitions, send)
    writer.start()
    return writer


def refusal(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Error code of producing a probe now."""
    with Connection(bootstrap) as connection:
        return connection.produce(topic, partition, record_batch([PROBE]))[0]


def is_probe(value: bytes) -> bool:
    """True for the value of a probe."""
    return value == PROBE


def check_load(bootstrap: str, producing: Producing) -> None:
    """Check that all that was sent over the full disk is there in order and once; the producer tried refusals again."""
    producing.check_stored(kafka_python_consume(bootstrap, [producing.topic]), is_probe)
