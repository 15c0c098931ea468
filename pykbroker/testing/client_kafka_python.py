"""The calls of LocalClient by kafka-python, 2 or 3. Both are the package `kafka`; comments name the differences."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import kafka.errors
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.admin import NewTopic as KafkaTopic
from kafka.errors import KafkaError

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
# Raised by kafka-python 3 before it sends a request, if its newest metadata lacks the broker that it takes for the
# controller. This happens on a busy machine, where a node may be fenced for a moment.
_NOT_SENT: tuple[type[Exception], ...] = tuple(
    found for found in [getattr(kafka.errors, "UnknownBrokerIdError", None)] if found is not None
)
_CLOSING_SCHEME = "pykbroker-closing"


def _register_closing_sockets() -> bool:
    """Gives kafka-python 3 a socket that is closed when it cannot connect, as the "proxy" of a scheme of its own.

    kafka-python leaves such a socket to the garbage collector, in a cycle with the error's traceback. A test suite that
    turns warnings into errors would then fail in whichever test is running.
    """
    try:
        from kafka.net import KafkaNetSocket
    except ImportError:  # pragma: no cover: kafka-python 2, which is not installed beside 3
        # kafka-python 2 has another network layer, which closes its sockets.
        return False

    class ClosingSocket(KafkaNetSocket):  # type: ignore[misc]
        SCHEMES = (_CLOSING_SCHEME,)

        def socket(self, *args: Any, **kwargs: Any) -> Any:
            self._latest = super().socket(*args, **kwargs)
            return self._latest

        async def connect(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return await super().connect(*args, **kwargs)
            except BaseException:
                self._latest.close()
                raise

    return True


_HAS_CLOSING_SOCKETS = _register_closing_sockets()


class KafkaPython:
    """Implements ClientLibrary."""

    name = "kafka-python"

    def create_topic(self, access: Access, topic: NewTopic, timeout_s: float) -> None:
        """Creates a topic and waits for it."""
        name, partitions, replication_factor, config = topic
        with _errors(f"topic {name} was not created"), closing(_admin(access, timeout_s)) as admin:
            try:
                new_topic = KafkaTopic(name, partitions, replication_factor, topic_configs=dict(config))
            except KafkaError:  # pragma: no cover: kafka-python 2, which is not installed beside 3
                # kafka-python 2.0 cannot leave the factor to the broker.
                new_topic = KafkaTopic(name, partitions, _default_factor(admin), topic_configs=dict(config))
            deadline = time.monotonic() + timeout_s
            while True:
                try:
                    admin.create_topics([new_topic], timeout_ms=int(timeout_s * 1000))
                    return
                except _NOT_SENT:
                    if time.monotonic() >= deadline:
                        raise
                time.sleep(_POLL_S)

    def produce(self, access: Access, topic: str, records: Sequence[NewRecord], timeout_s: float) -> list[Position]:
        """Writes the records; returns their positions."""
        deadline = time.monotonic() + timeout_s
        positions: list[Position] = []
        with (
            _errors(f"a record was not written to {topic}"),
            closing(
                KafkaProducer(
                    **_settings(access),
                    acks="all",
                    max_block_ms=int(timeout_s * 1000),
                    retries=1_000_000,
                )
            ) as producer,
        ):
            futures = [
                producer.send(topic, record.value, record.key, list(record.headers), record.partition)
                for record in records
            ]
            for number, future in enumerate(futures):
                with _errors(f"record {number} was not written to {topic}"):
                    done = future.get(timeout=max(deadline - time.monotonic(), 0.001))
                positions.append(Position(done.partition, done.offset))
        return positions

    def consume(self, access: Access, reading: Reading) -> list[Record]:
        """Reads up to `count` records, or to the ends of the partitions."""
        topic, count, timeout_s, from_beginning, isolation_level = reading
        deadline = time.monotonic() + timeout_s
        settings = {
            "enable_auto_commit": False,
            "isolation_level": isolation_level,
            "fetch_max_wait_ms": 50,
            "allow_auto_create_topics": False,
        }
        # kafka-python 2.0 does not have all of them.
        known = {key: value for key, value in settings.items() if key in KafkaConsumer.DEFAULT_CONFIG}
        with _errors(f"{topic} could not be read"):
            while True:
                with closing(KafkaConsumer(**_settings(access), **known)) as consumer:
                    try:
                        return _read(consumer, topic, count, deadline, from_beginning)
                    except KafkaError as error:
                        # A node of a cluster has just died, and its partitions have no other leader yet.
                        if not error.retriable or time.monotonic() >= deadline:
                            raise
                time.sleep(_POLL_S)

    @contextmanager
    def group_states(self, access: Access, group: str) -> Iterator[GroupStates]:
        """A function that asks for the state of a group."""
        with _errors(f"group {group} could not be described"), closing(_admin(access, 30.0)) as admin:

            def ask(timeout_s: float) -> tuple[str, int]:
                try:
                    return _describe(admin, group)
                except KafkaError as error:
                    if isinstance(error, _NOT_SENT) or error.errno in {GROUP_ID_NOT_FOUND, *COORDINATOR_NOT_READY}:
                        return "dead", 0
                    raise

            yield ask


def _read(consumer: Any, topic: str, count: int | None, deadline: float, from_beginning: bool) -> list[Record]:
    numbers = _partitions(consumer, topic, deadline, is_awaited=count is not None)
    partitions = [TopicPartition(topic, number) for number in numbers]
    consumer.assign(partitions)
    (consumer.seek_to_beginning if from_beginning else consumer.seek_to_end)(*partitions)
    # If the leader has died, kafka-python waits for it in this call until the timeout; a poll looks for another leader.
    ends = consumer.end_offsets(partitions) if count is None else {}
    found: list[Record] = []
    while len(found) < count if count is not None else any(consumer.position(at) < ends[at] for at in partitions):
        if (left := deadline - time.monotonic()) <= 0:
            if count is None:
                raise LocalBrokerError(f"the end of {topic} was not reached in time")
            break
        most = {} if count is None else {"max_records": count - len(found)}
        for records in consumer.poll(timeout_ms=int(min(left, _POLL_S) * 1000) + 1, **most).values():
            found += map(_record, records)
    return found


def _default_factor(admin: Any) -> int:  # pragma: no cover: kafka-python 2, which is not installed beside 3
    node_id = admin.describe_cluster()["brokers"][0]["node_id"]
    key = "default.replication.factor"
    (answer,) = admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, node_id, {key: None})])
    (resource,) = answer.resources
    return int(next(entry[1] for entry in resource[4] if entry[0] == key))


def _describe(admin: Any, group: str) -> tuple[str, int]:
    if hasattr(admin, "describe_consumer_groups"):  # pragma: no cover: kafka-python 2, which is not installed beside 3
        # kafka-python 2
        (found,) = admin.describe_consumer_groups([group])
        return found.state.lower(), len(found.members)
    described = admin.describe_groups([group])[group]
    return described["group_state"].lower(), len(described["members"])


def _settings(access: Access) -> dict[str, Any]:
    # Short delays, so that new topics and leaders are found soon, and another node after one that does not listen:
    # kafka-python doubles the delay between connections twice for each failure, and may choose the dead one of two
    # bootstrap servers five times in succession.
    settings: dict[str, Any] = {
        **access.kafka_python,
        "retry_backoff_ms": 20,
        "metadata_max_age_ms": 1000,
        "reconnect_backoff_max_ms": 200,
    }
    return settings | ({"proxy_url": f"{_CLOSING_SCHEME}://"} if _HAS_CLOSING_SOCKETS else {})


def _admin(access: Access, timeout_s: float) -> Any:
    timeout_ms = int(max(timeout_s, 1.0) * 1000)
    # kafka-python 2.0 does not have `bootstrap_timeout_ms`.
    known = {"request_timeout_ms", "bootstrap_timeout_ms"} & KafkaAdminClient.DEFAULT_CONFIG.keys()
    return KafkaAdminClient(**_settings(access), **dict.fromkeys(known, timeout_ms))


def _partitions(consumer: Any, topic: str, deadline: float, *, is_awaited: bool) -> set[int]:
    while not (known := consumer.partitions_for_topic(topic)):
        left = deadline - time.monotonic()
        if not is_awaited or left <= 0:
            raise LocalBrokerError(f"there is no topic {topic}")
        time.sleep(min(_POLL_S, left))
    return set(known)


def _record(record: Any) -> Record:
    headers = tuple((name, value) for name, value in record.headers or ())
    return Record(record.topic, record.partition, record.offset, record.timestamp, record.key, record.value, headers)


@contextmanager
def _errors(what: str) -> Iterator[None]:
    try:
        yield
    except (KafkaError, AssertionError, TypeError, ValueError) as error:
        # For invalid arguments, such as a header without value, it raises Python's errors, 2.0 AssertionError.
        raise LocalBrokerError(f"{what}: {str(error) or repr(error)}") from None
