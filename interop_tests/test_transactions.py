"""Transactions with the producers of three client libraries: what is committed, dropped, fenced, and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec

from interop_tests.clients import Message, confluent_produce, create_topic, wait_until
from interop_tests.test_aiokafka import run
from interop_tests.transaction_clients import (
    CLIENTS,
    Fenced,
    TransactionalProducer,
    committed,
    read_decided,
    read_to_end,
    transactional_producer,
)

pytestmark = [pytest.mark.area("transactions")]

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
NAMES = {"confluent-kafka": "confluent-kafka", "kafka-python": "kafka-python 3", "aiokafka": "aiokafka"}
TIMEOUT_S = 30.0

MakeProducer = Callable[..., TransactionalProducer]

each_client = pytest.mark.parametrize(
    "client", [pytest.param(client, marks=pytest.mark.client(NAMES[client])) for client in CLIENTS]
)


@pytest.fixture
def make_producer(bootstrap: str) -> Iterator[MakeProducer]:
    """`make_producer(client, id)` gives a producer that has begun with `init`; all are closed at the end."""
    made: list[TransactionalProducer] = []

    def make(client: str, transactional_id: str, timeout_ms: int = 60_000) -> TransactionalProducer:
        producer = transactional_producer(client, bootstrap, transactional_id, timeout_ms)
        made.append(producer)
        producer.init()
        return producer

    yield make
    for producer in made:
        with suppress(Exception):
            producer.close()


def values_of(bootstrap: str, topic: str, isolation: str = COMMITTED) -> list[bytes]:
    return read_to_end(bootstrap, topic, isolation)[0]


@each_client
def test_committed_and_aborted(client: str, bootstrap: str, name: str, make_producer: MakeProducer) -> None:
    """Committed records are there for all, aborted ones for read_uncommitted only, and order is kept (P-67)."""
    topic = create_topic(bootstrap, name, 2)
    producer = make_producer(client, name)
    for number, commit in enumerate((True, False, True, False, True)):
        producer.begin()
        for partition in (0, 1):
            for record in range(3):
                producer.send(topic, b"%d-%d" % (number, record), partition)
        producer.flush()
        (producer.commit if commit else producer.abort)()
    kept = [b"%d-%d" % (number, record) for number in (0, 2, 4) for record in range(3)]
    everything = [b"%d-%d" % (number, record) for number in range(5) for record in range(3)]
    assert read_decided(bootstrap, topic, 2) == {0: kept, 1: kept}
    assert read_to_end(bootstrap, topic, UNCOMMITTED, 2) == {0: everything, 1: everything}


@each_client
def test_an_open_transaction_holds_readers_back(
    client: str, bootstrap: str, name: str, make_producer: MakeProducer
) -> None:
    """Committed readers see nothing behind the beginning of an open transaction, not even plain records (P-68)."""
    topic = create_topic(bootstrap, name)
    confluent_produce(bootstrap, topic, [Message(None, b"before")])
    producer = make_producer(client, name)
    producer.begin()
    producer.send(topic, b"within")
    producer.flush()
    confluent_produce(bootstrap, topic, [Message(None, b"beside")])
    assert values_of(bootstrap, topic) == [b"before"]
    assert values_of(bootstrap, topic, UNCOMMITTED) == [b"before", b"within", b"beside"]
    ends = latest_offsets(bootstrap, topic)
    assert (ends[COMMITTED], ends[UNCOMMITTED]) == (1, 3)
    producer.commit()
    wait_until(lambda: latest_offsets(bootstrap, topic)[COMMITTED] == 4, "the marker")
    assert values_of(bootstrap, topic) == [b"before", b"within", b"beside"]


def latest_offsets(bootstrap: str, topic: str) -> dict[str, int]:
    """The end of partition 0 for readers of each isolation level (P-80)."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = confluent_kafka.TopicPartition(topic, 0)
    levels = {
        COMMITTED: confluent_kafka.IsolationLevel.READ_COMMITTED,
        UNCOMMITTED: confluent_kafka.IsolationLevel.READ_UNCOMMITTED,
    }
    return {
        name: admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)[place].result(TIMEOUT_S).offset
        for name, level in levels.items()
    }


@each_client
def test_offsets_of_a_transaction(client: str, bootstrap: str, name: str, make_producer: MakeProducer) -> None:
    """Offsets count with the commit, not before, and not after an abort (P-139)."""
    topic = create_topic(bootstrap, name)
    group = f"{name}-group"
    producer = make_producer(client, name)
    for number, (commit, expected) in enumerate(((True, 1), (False, 1), (True, 3)), 1):
        before = committed(bootstrap, group, topic)
        producer.begin()
        producer.send(topic, b"%d" % number)
        producer.send_offsets({(topic, 0): number}, group)
        assert committed(bootstrap, group, topic) == before
        (producer.commit if commit else producer.abort)()
        wait_until(lambda e=expected: committed(bootstrap, group, topic) == [e], f"offset {expected}")  # type: ignore[misc]
    assert values_of(bootstrap, topic) == [b"1", b"3"]


@each_client
def test_a_second_producer_fences_the_first(
    client: str, bootstrap: str, name: str, make_producer: MakeProducer
) -> None:
    """The first one's open transaction is aborted, and nothing of it can be ended or added any more (P-128, P-55)."""
    topic = create_topic(bootstrap, name)
    first = make_producer(client, name)
    first.begin()
    first.send(topic, b"lost")
    first.flush()
    second = make_producer(client, name)
    second.begin()
    second.send(topic, b"kept")
    second.commit()
    with pytest.raises(Fenced):
        send_and_commit(first, topic)
    assert values_of(bootstrap, topic) == [b"kept"]
    assert values_of(bootstrap, topic, UNCOMMITTED)[0] == b"lost"


def send_and_commit(producer: TransactionalProducer, topic: str) -> None:
    producer.send(topic, b"late")
    producer.flush()
    producer.commit()


@pytest.mark.client("confluent-kafka")
def test_fencing_across_libraries(bootstrap: str, name: str, make_producer: MakeProducer) -> None:
    """The id is the broker's matter and not the client's (P-137): each takes it from the one before."""
    topic = create_topic(bootstrap, name)
    producers = []
    for number, client in enumerate((*CLIENTS, *CLIENTS)):
        producer = make_producer(client, name)
        producer.begin()
        producer.send(topic, b"%d" % number)
        if number % 2:
            producer.commit()
        else:
            producer.flush()
        producers.append(producer)
    for number, producer in enumerate(producers[:-1]):
        if number % 2 == 0:
            with pytest.raises(Fenced):
                producer.commit()
    assert values_of(bootstrap, topic) == [b"1", b"3", b"5"]


@pytest.mark.client("confluent-kafka")
def test_a_transaction_that_takes_too_long(bootstrap: str, name: str, make_producer: MakeProducer) -> None:
    """The coordinator aborts it, readers go on, and its producer cannot commit it any more (P-140)."""
    topic = create_topic(bootstrap, name)
    timeout_ms = 6000
    producers = [make_producer(client, f"{name}-{client}", timeout_ms) for client in CLIENTS]
    began = time.monotonic()
    for producer in producers:
        producer.begin()
        producer.send(topic, b"slow")
        producer.flush()
    confluent_produce(bootstrap, topic, [Message(None, b"beside")])
    seen = values_of(bootstrap, topic)
    # The coordinator may abort at any moment after the time limit, on a slow machine before this first look.
    assert seen == [] or (seen == [b"beside"] and time.monotonic() - began > timeout_ms / 1000)
    # Looked for every ten seconds.
    wait_until(lambda: latest_offsets(bootstrap, topic)[COMMITTED] == 7, "the aborts", pause_s=0.2)
    assert values_of(bootstrap, topic) == [b"beside"]
    for producer in producers:
        with pytest.raises(Exception, match=r"."):  # each library has its own name for this
            producer.commit()
    assert values_of(bootstrap, topic) == [b"beside"]


@each_client
def test_empty_transactions(client: str, bootstrap: str, name: str, make_producer: MakeProducer) -> None:
    """Nothing was sent: neither end leaves anything, and the next one works."""
    topic = create_topic(bootstrap, name)
    producer = make_producer(client, name)
    for commit in (True, False, True):
        producer.begin()
        (producer.commit if commit else producer.abort)()
    assert latest_offsets(bootstrap, topic)[UNCOMMITTED] == 0
    producer.begin()
    producer.send(topic, b"one")
    producer.commit()
    assert read_decided(bootstrap, topic)[0] == [b"one"]


@each_client
def test_many_transactions_in_a_row(client: str, bootstrap: str, name: str, make_producer: MakeProducer) -> None:
    """Each begins while the markers of the one before may still be on their way (P-132)."""
    topic = create_topic(bootstrap, name, 8)
    producer = make_producer(client, name)
    for number in range(60):
        producer.begin()
        for partition in range(8):
            producer.send(topic, b"%d" % number, partition)
        if number % 7 == 3:
            producer.abort()
        else:
            producer.commit()
    expected = [b"%d" % number for number in range(60) if number % 7 != 3]
    assert read_decided(bootstrap, topic, 8) == dict.fromkeys(range(8), expected)


@pytest.mark.client("kafka-python 3")
def test_kafka_python_reads_committed(bootstrap: str, name: str, make_producer: MakeProducer) -> None:
    """Its consumer leaves out what was aborted (P-67)."""
    topic = aborted_and_committed(bootstrap, name, make_producer)
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=COMMITTED, group_id=None
    )
    values: list[bytes] = []

    def is_read() -> bool:
        values.extend(record.value for records in consumer.poll(200).values() for record in records)
        return values[-1:] == [b"last"]

    wait_until(
        is_read,
        "the last record",
    )
    consumer.close()
    assert values == [b"1", b"3", b"last"]


@pytest.mark.client("aiokafka")
def test_aiokafka_reads_committed(bootstrap: str, name: str, make_producer: MakeProducer) -> None:
    """Its consumer leaves out what was aborted (P-67)."""
    topic = aborted_and_committed(bootstrap, name, make_producer)

    async def read() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=COMMITTED
        )
        await consumer.start()
        try:
            assert [(await consumer.getone()).value for _ in range(3)] == [b"1", b"3", b"last"]
        finally:
            await consumer.stop()

    run(read())


def aborted_and_committed(bootstrap: str, name: str, make_producer: MakeProducer) -> str:
    """A topic with records of two aborted and two committed transactions, and a last one outside of any."""
    topic = create_topic(bootstrap, name)
    producer = make_producer("confluent-kafka", name)
    for number in range(4):
        producer.begin()
        producer.send(topic, b"%d" % number)
        producer.flush()
        (producer.commit if number % 2 else producer.abort)()
    confluent_produce(bootstrap, topic, [Message(None, b"last")])
    return topic


@pytest.mark.client("confluent-kafka")
def test_a_waiting_reader_is_woken_by_the_marker(bootstrap: str, name: str, make_producer: MakeProducer) -> None:
    """A long poll of a committed reader ends with the commit, not with its own time limit (P-63)."""
    topic = create_topic(bootstrap, name)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": COMMITTED,
            # Far longer than this test waits for the record.
            "fetch.wait.max.ms": 250_000,
            "socket.timeout.ms": 300_000,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    producer = make_producer("confluent-kafka", name)
    producer.begin()
    producer.send(topic, b"v")
    producer.flush()
    assert consumer.poll(1) is None
    producer.commit()
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"v"
    consumer.close()


@pytest.mark.client("confluent-kafka")
@pytest.mark.area("groups")
def test_a_consumer_waits_for_stable_offsets(bootstrap: str, name: str, make_producer: MakeProducer) -> None:
    """A consumer of committed records starts at the offset that an open transaction commits, once that has ended
    (P-113)."""
    topic = create_topic(bootstrap, name)
    group = f"{name}-group"
    confluent_produce(bootstrap, topic, [Message(None, b"%d" % number) for number in range(5)])
    producer = make_producer("confluent-kafka", name)
    producer.begin()
    producer.send_offsets({(topic, 0): 3}, group)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": COMMITTED,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    assert consumer.poll(3) is None, "it has no position yet"
    producer.commit()
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert (message.error(), message.value()) == (None, b"3")
    consumer.close()
