"""One way to say "begin, send, commit" with the transactional producer of each client library."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, cast

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import ProducerFenced
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.errors import InvalidProducerEpochError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from interop_tests.clients import confluent_consume, wait_until

TIMEOUT_S = 30.0
# A copier that was killed leaves its transaction open until it is timed out, after a minute.
DECIDED_S = 90.0
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")

Place = tuple[str, int]
"""Topic and partition."""


class Fenced(Exception):
    """Another producer has the transactional id now."""


class TransactionalProducer(Protocol):
    """Operations that the producers of all clients have. Each call waits until it is done; `send` only queues the
    record."""

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes, partition: int = 0) -> None: ...

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None: ...

    def flush(self) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


def transactional_producer(
    client: str, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000
) -> TransactionalProducer:
    """A producer of one of CLIENTS, not initialised yet."""
    classes = {"confluent-kafka": Confluent, "kafka-python": KafkaPython, "aiokafka": AioKafka}
    return cast("TransactionalProducer", classes[client](bootstrap, transactional_id, timeout_ms))


class Confluent:
    """librdkafka."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )

    def init(self) -> None:
        self._call(self._producer.init_transactions, TIMEOUT_S)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._call(self._producer.produce, topic, value, partition=partition)

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        positions = [confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()]
        self._call(self._producer.send_offsets_to_transaction, positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        consumer.close()

    def flush(self) -> None:
        self._call(self._producer.flush, TIMEOUT_S)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, TIMEOUT_S)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, TIMEOUT_S)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)

    @staticmethod
    def _call(function: Any, *args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
        except confluent_kafka.KafkaException as error:
            code = error.args[0].code()
            fenced = (confluent_kafka.KafkaError._FENCED, confluent_kafka.KafkaError.PRODUCER_FENCED)
            if code in fenced or code == confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH:
                raise Fenced(str(error)) from error
            raise


class KafkaPython:
    """kafka-python 3."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            delivery_timeout_ms=60_000,
        )
        self._sent: list[Any] = []

    def init(self) -> None:
        self._call(self._producer.init_transactions)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._sent.append(self._producer.send(topic, value, partition=partition))

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        positions = {
            kafka.TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()
        }
        self._call(self._producer.send_offsets_to_transaction, positions, group)

    def flush(self) -> None:
        sent, self._sent = self._sent, []
        for future in sent:
            self._call(future.get, TIMEOUT_S)

    def commit(self) -> None:
        self._sent.clear()
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._sent.clear()
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=1)

    @staticmethod
    def _call(function: Any, *args: Any) -> None:
        try:
            function(*args)
        except (InvalidProducerEpochError, ProducerFencedError) as error:
            raise Fenced(str(error)) from error


class AioKafka:
    """aiokafka, in an event loop of its own thread."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._settings = {
            "bootstrap_servers": bootstrap,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": timeout_ms,
        }
        self._producer: aiokafka.AIOKafkaProducer | None = None
        self._sent: list[Any] = []

    def init(self) -> None:
        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(**self._settings)
            await producer.start()
            return producer

        self._producer = self._wait(start())

    @property
    def _started(self) -> aiokafka.AIOKafkaProducer:
        assert self._producer is not None, "init comes first"
        return self._producer

    def begin(self) -> None:
        self._wait(self._started.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._sent.append(self._wait(self._started.send(topic, value, partition=partition)))

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        positions = {aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
        self._wait(self._started.send_offsets_to_transaction(positions, group))

    def flush(self) -> None:
        sent, self._sent = self._sent, []

        async def delivered() -> None:
            await asyncio.gather(*sent)

        self._wait(delivered())

    def commit(self) -> None:
        self._sent.clear()
        self._wait(self._started.commit_transaction())

    def abort(self) -> None:
        self._sent.clear()
        self._wait(self._started.abort_transaction())

    def close(self) -> None:
        if self._producer is not None:
            self._wait(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)
        except ProducerFenced as error:
            raise Fenced(str(error)) from error


def read_to_end(bootstrap: str, topic: str, isolation: str, partitions: int = 1) -> dict[int, list[bytes]]:
    """All that a consumer of this isolation level sees now, by partition."""
    values: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    for message in confluent_consume(bootstrap, [topic], isolation=isolation):
        values[message.partition].append(message.value or b"")
    return values


def read_decided(bootstrap: str, topic: str, partitions: int = 1) -> dict[int, list[bytes]]:
    """Records that committed readers see when the markers of all transactions are written; none may stay open."""
    wait_until_decided(bootstrap, topic, partitions)
    return read_to_end(bootstrap, topic, "read_committed", partitions)


def wait_until_decided(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Until no transaction holds up the committed readers of a topic.

    Offsets may count as committed before: a coordinator answers and writes the markers afterwards, to each partition
    when it can.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    places = [confluent_kafka.TopicPartition(topic, number) for number in range(partitions)]

    levels = confluent_kafka.IsolationLevel.READ_COMMITTED, confluent_kafka.IsolationLevel.READ_UNCOMMITTED

    def are_decided() -> bool:
        asked = [admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()), isolation_level=one) for one in levels]
        try:
            ends = [[futures[place].result(TIMEOUT_S).offset for place in places] for futures in asked]
        except confluent_kafka.KafkaException:
            return False
        return ends[0] == ends[1]

    wait_until(are_decided, f"the transactions on {topic} to be decided", timeout_s=DECIDED_S, pause_s=0.05)


def committed(bootstrap: str, group: str, topic: str, partitions: int = 1) -> list[int]:
    """The group's committed offsets; a negative number where there is none. Those of open transactions do not count."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_uncommitted", "log_level": 0}
    )
    try:
        places = [confluent_kafka.TopicPartition(topic, number) for number in range(partitions)]
        return [found.offset for found in consumer.committed(places, timeout=TIMEOUT_S)]
    finally:
        consumer.close()
