"""Feeding of the input: a stock producer that sends each record once, in a thread: some at once, then evenly."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pipeline.records import Record
from pipeline.threads import WatchedThread

DELIVERY_TIMEOUT_MS = 120_000
# Share of the records that may be on their way, and their least number. The events of an hour come within seconds:
# while a partition's leader is away, other partitions must not run ahead of it by more than a watermark allows.
IN_FLIGHT_SHARE = 0.01
IN_FLIGHT_MIN = 20
# Share of the records that is sent at once, so that the first trigger of the job, in which it compiles, has some work.
HEAD_SHARE = 0.2
# Share of the records by which the input may be ahead of a job that is killed: it finds a backlog when it runs again,
# and what is left still comes when it is killed the next time.
AHEAD_SHARE = 0.25


class Feeder(WatchedThread):
    """Sends records in their order.

    Attributes:
        go: the rest of the records is sent when it is set.
        reach: share of the records that may be sent now; it only grows.
        acknowledged: how many records of each topic (by its name in the pipeline) Kafka has.
    """

    def __init__(
        self, bootstrap_servers: str, records: Sequence[Record], seconds: float, real_name: Callable[[str], str]
    ) -> None:
        super().__init__()
        self._bootstrap_servers = bootstrap_servers
        self._records = records
        self._seconds = seconds
        self._real_name = real_name
        self.go = threading.Event()
        self.reach = 1.0
        self.acknowledged: Counter[str] = Counter()

    def follow(self, live_s: float) -> None:
        """Let the input be no more than AHEAD_SHARE ahead of a job that was live for so long since the feeder began."""
        share = live_s / self._seconds if self._seconds else 1.0
        self.reach = min(1.0, HEAD_SHARE + (1 - HEAD_SHARE) * share + AHEAD_SHARE)

    @property
    def count(self) -> int:
        """Number of records that Kafka has."""
        return self.acknowledged.total()

    def work(self) -> None:
        """Send all and wait for the last acknowledgement. Raises KafkaException for one that was not taken."""
        from confluent_kafka import KafkaException, Producer

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "enable.idempotence": True,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
            }
        )
        failures: list[Any] = []
        in_flight = max(IN_FLIGHT_MIN, int(len(self._records) * IN_FLIGHT_SHARE))
        head = int(len(self._records) * HEAD_SHARE)
        begin = time.monotonic()
        for number, record in enumerate(self._records):
            if number == head:
                while not self.go.is_set():
                    producer.poll(0.05)
                begin = time.monotonic()
            due = begin + self._seconds * max(number - head, 0) / (len(self._records) - head)
            producer.poll(max(due - time.monotonic(), 0))
            while (number - self.count >= in_flight or number > self.reach * len(self._records)) and not failures:
                producer.poll(0.05)
            if failures:
                raise KafkaException(failures[0])
            self._send(producer, record, failures)
        producer.flush()
        if failures:
            raise KafkaException(failures[0])

    def _send(self, producer: Any, record: Record, failures: list[Any]) -> None:
        def on_delivery(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(error)
            else:
                self.acknowledged[record.topic] += 1

        more: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        producer.produce(
            self._real_name(record.topic),
            record.value,
            record.key,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
            on_delivery=on_delivery,
            **more,
        )
