"""An exactly-once sink for Kafka: each micro-batch is one transaction, which also commits the number of the batch.

Spark's own Kafka sink is at-least-once: a trigger that is killed and runs again writes its records again. Here the
number of the batch is committed as an offset of a consumer group in the transaction of the records (the group has no
members). A batch that runs again finds its number committed and writes nothing; a transaction that a kill left open is
aborted by the next `init_transactions` with the same transactional id, which also fences what may still run of the
killed job. Readers need `isolation.level=read_committed`.

The records of a batch go through the driver. That suits results, which are few; for more, limit a trigger's input.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from session import say

from pipeline.threads import WatchedThread

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer
    from pyspark.sql import DataFrame

TIMEOUT_S = 60.0
OFFSETS_TIMEOUT_S = 20.0
"""Longer than a cluster needs to notice that a coordinator is gone (9 s) and to have another one."""
OVERDUE_S = 5.0
RETRY_PAUSE_S = 0.5
TRANSACTION_TIMEOUT_MS = 60_000
# A broker that is killed and started again is away for a second or two.
ATTEMPTS = 20
T = TypeVar("T")
Delivered = Callable[[Mapping[str, Any], int, int], None]
"""Called with a row, the partition and the offset of its record, before the transaction is committed."""
Closing = Callable[[], Iterable[Mapping[str, Any]]]
"""Gives further rows of the same transaction, when the records of the batch have their offsets."""


class _Call(WatchedThread):
    """A blocking call that can be left behind."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self._call = call

    def work(self) -> None:
        """Call; raises what the call raises."""
        self._call()


class TransactionalSink:
    """Writes batches of rows to Kafka, each batch once.

    A row has `topic`, `key` and `value` (str, bytes or None), and if it likes `partition`, `headers` (pairs of name and
    bytes) and `timestamp_ms`.
    """

    def __init__(self, bootstrap_servers: str, name: str, marker_topic: str) -> None:
        """`name` is transactional id and group; the number is its offset in partition 0 of `marker_topic`."""
        self._bootstrap_servers = bootstrap_servers
        self._name = name
        self._marker_topic = marker_topic
        self._producer: Producer | None = None
        self._group: Consumer | None = None
        self._written = -1

    def write(
        self,
        rows: Callable[[], Iterable[Mapping[str, Any]]],
        batch_id: int,
        delivered: Delivered | None = None,
        closing: Closing | None = None,
    ) -> bool:
        """Write a batch, unless it was written before; returns True if it was written now.

        `rows` is called for each attempt: a transaction that had to be aborted is tried again. Raises KafkaException
        or TimeoutError when that does not help.
        """
        return self._repeated(lambda: self._attempt(rows, batch_id, delivered, closing))

    def _repeated(self, action: Callable[[], T]) -> T:
        from confluent_kafka import KafkaException

        for attempt in range(ATTEMPTS):
            try:
                return action()
            except (KafkaException, TimeoutError) as exception:
                if attempt == ATTEMPTS - 1:
                    raise
                self._give_up_transaction(exception)
                time.sleep(RETRY_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    def _attempt(
        self,
        rows: Callable[[], Iterable[Mapping[str, Any]]],
        batch_id: int,
        delivered: Delivered | None,
        closing: Closing | None,
    ) -> bool:
        from confluent_kafka import TopicPartition

        producer, group = self._open()
        if self._written >= batch_id:
            return False
        producer.begin_transaction()
        self._produce(producer, rows(), delivered)
        if closing is not None:
            self._produce(producer, closing(), None)
        number = TopicPartition(self._marker_topic, 0, batch_id + 1)
        self._send_offset(producer, number, group)
        producer.commit_transaction(TIMEOUT_S)
        self._written = batch_id
        return True

    def _send_offset(self, producer: Producer, number: Any, group: Consumer) -> None:
        """Put the number into the transaction. Raises TimeoutError if librdkafka does not come back from that.

        A request to a group's coordinator waits in librdkafka (2.16.1) until a broker's connection comes or goes; its
        time limit is stored (`creq_ts_timeout`) and never looked at. If the coordinator was asked for while it moved
        from a node that was killed, and no connection changes any more, the call waits for ever.
        """
        metadata = group.consumer_group_metadata()
        call = _Call(lambda: producer.send_offsets_to_transaction([number], metadata, OFFSETS_TIMEOUT_S))
        call.start()
        call.join(OFFSETS_TIMEOUT_S + OVERDUE_S)
        if call.is_alive():
            # The thread keeps the producer. What it may still send is fenced by the next one of this transactional id.
            raise TimeoutError(f"send_offsets_to_transaction did not return, {OVERDUE_S:.0f} s after its time limit")
        call.require_no_failure()

    def written(self) -> int:
        """The number of the last batch that was written whole, -1 if there is none. Older writers are fenced by it."""

        def ask() -> int:
            self._open()
            return self._written

        return self._repeated(ask)

    def _open(self) -> tuple[Producer, Consumer]:
        from confluent_kafka import Consumer, Producer

        if self._group is None:
            self._group = Consumer(
                {
                    "bootstrap.servers": self._bootstrap_servers,
                    "group.id": self._name,
                    "isolation.level": "read_committed",
                    "reconnect.backoff.max.ms": 500,
                    "log_level": 0,
                }
            )
        if self._producer is None:
            producer = Producer(
                {
                    "bootstrap.servers": self._bootstrap_servers,
                    "transactional.id": self._name,
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "linger.ms": 5,
                    "reconnect.backoff.max.ms": 500,
                    # librdkafka 2.16.0 can wait for its transaction coordinator without an end, whatever the time
                    # limit of the call, when it goes back to the bootstrap servers because no broker is up.
                    "metadata.recovery.strategy": "none",
                    "log_level": 0,
                }
            )
            producer.init_transactions(TIMEOUT_S)
            # Now no transaction of this id is in doubt, so that the number is final.
            self._written = self._committed_batch(self._group)
            self._producer = producer
        return self._producer, self._group

    def _committed_batch(self, group: Consumer) -> int:
        """The number of the last batch that was written whole; -1 if there is none."""
        from confluent_kafka import TopicPartition

        (committed,) = group.committed([TopicPartition(self._marker_topic, 0)], TIMEOUT_S)
        return int(committed.offset) - 1 if committed.offset >= 0 else -1

    def _produce(self, producer: Producer, rows: Iterable[Mapping[str, Any]], delivered: Delivered | None) -> None:
        from confluent_kafka import KafkaException

        failures = []

        def report(row: Mapping[str, Any]) -> Callable[[Any, Message], None]:
            def on_delivery(error: Any, message: Message) -> None:
                partition, offset = message.partition(), message.offset()
                if error is not None:
                    failures.append(error)
                elif delivered is not None and partition is not None and offset is not None:
                    delivered(row, partition, offset)

            return on_delivery

        for row in rows:
            more: dict[str, Any] = {"partition": row["partition"]} if row.get("partition") is not None else {}
            if row.get("timestamp_ms") is not None:
                more["timestamp"] = row["timestamp_ms"]
            if row.get("headers"):
                more["headers"] = list(row["headers"])
            while True:
                try:
                    producer.produce(row["topic"], row["value"], row["key"], on_delivery=report(row), **more)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        if producer.flush(TIMEOUT_S) or failures:
            from confluent_kafka import KafkaError

            raise KafkaException(failures[0] if failures else KafkaError(KafkaError._TIMED_OUT))

    def _give_up_transaction(self, exception: Any) -> None:
        """Forget the producer: the next one aborts what this one has left open, whatever its state is."""
        say(f"{self._name}: the transaction is tried again: {exception}")
        self._producer = None


def rows_of(batch: DataFrame) -> Callable[[], Iterable[Mapping[str, Any]]]:
    """The rows of a micro-batch for `TransactionalSink.write`: columns as Spark's own Kafka sink names them."""
    taken = batch.collect()

    def rows() -> Iterable[Mapping[str, Any]]:
        for row in taken:
            fields = row.asDict()
            if fields.get("headers"):
                fields["headers"] = [(header["key"], _bytes(header["value"])) for header in fields["headers"]]
            yield fields | {name: _bytes(fields.get(name)) for name in ("key", "value")}

    return rows


def _bytes(value: Any) -> bytes | str | None:
    return bytes(value) if isinstance(value, bytearray) else value
