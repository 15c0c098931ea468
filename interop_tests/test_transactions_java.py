"""Transactions with Kafka's own tools: kafka-transactions, the performance producer, consumers, kafka-dump-log."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import Message, confluent_produce, create_topic, end_of, wait_until
from interop_tests.conftest import StartBroker
from interop_tests.java_tools import CONSOLE_CONSUMER, DUMP_LOG, FEATURES, JavaTools
from interop_tests.transaction_clients import (
    Fenced,
    TransactionalProducer,
    read_decided,
    read_to_end,
    transactional_producer,
)
from interop_tests.wire import PRODUCE, Connection, crc32c, record_batch, request_header, string

pytestmark = [pytest.mark.java, pytest.mark.area("transactions"), pytest.mark.client("Java tools")]

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
COMMITTED = "read_committed"
HOUR_MS = 3_600_000
PARTITIONS = 3
"""Of a topic for ProducerPerformance, whose transactions have at most one marker in each partition."""

HANGING_PRODUCER = 987_654
ATTRIBUTES_POSITION = 21
PRODUCER_POSITION = 43
TRANSACTIONAL = 0x10


@pytest.fixture
def producer(bootstrap: str, name: str) -> Iterator[TransactionalProducer]:
    """A transactional producer of another client, with the test's name for its id."""
    made = transactional_producer("confluent-kafka", bootstrap, name)
    made.init()
    yield made
    with suppress(KafkaException):  # one that was fenced has nothing to purge
        made.close()


def rows_of(tools: JavaTools, *arguments: str) -> list[dict[str, str]]:
    """The table that kafka-transactions prints, without the lines around it."""
    lines = tools.check(TRANSACTIONS, *arguments).lines
    cells = [[cell.strip() for cell in re.split(r"\t+|\s{2,}|(?<=\S)\s(?=\S)", line.strip())] for line in lines]
    head = next((number for number, row in enumerate(cells) if "ProducerId" in row), None)
    if head is None:
        return []
    return [dict(zip(cells[head], row, strict=False)) for row in cells[head + 1 :]]


def test_list_and_describe(tools: JavaTools, bootstrap: str, name: str, producer: TransactionalProducer) -> None:
    """kafka-transactions list, describe and describe-producers, of a transaction that is open, then over (KIP-664)."""
    topic = create_topic(bootstrap, f"{name}-topic", 2)
    producer.begin()
    producer.send(topic, b"v", 1)
    producer.flush()
    [listed] = [row for row in rows_of(tools, "list") if row["TransactionalId"] == name]
    assert listed["TransactionState"] == "Ongoing"
    [described] = rows_of(tools, "describe", "--transactional-id", name)
    assert (described["TransactionState"], described["TransactionTimeoutMs"]) == ("Ongoing", "60000")
    assert described["TopicPartitions"] == f"{topic}-1"
    assert described["ProducerId"] == listed["ProducerId"]
    producers = ("describe-producers", "--topic", topic, "--partition")
    [open_one] = rows_of(tools, *producers, "1")
    assert (open_one["ProducerId"], open_one["LastSequence"]) == (listed["ProducerId"], "0")
    assert open_one["CurrentTransactionStartOffset"] == "0"
    assert rows_of(tools, *producers, "0") == []

    producer.commit()
    wait_until(lambda: read_to_end(bootstrap, topic, COMMITTED, 2)[1] == [b"v"], "the marker")
    [listed] = [row for row in rows_of(tools, "list") if row["TransactionalId"] == name]
    assert listed["TransactionState"] == "CompleteCommit"
    [ended] = rows_of(tools, *producers, "1")
    assert ended["CurrentTransactionStartOffset"] == "None"
    assert rows_of(tools, "list", "--transactional-id-pattern", f"{name}x") == []
    assert len(rows_of(tools, "list", "--transactional-id-pattern", f"{name}.*")) == 1


def test_force_terminate(tools: JavaTools, bootstrap: str, name: str, producer: TransactionalProducer) -> None:
    """An administrator ends an open transaction; its producer is fenced (P-128)."""
    topic = create_topic(bootstrap, f"{name}-topic")
    producer.begin()
    producer.send(topic, b"lost")
    producer.flush()
    confluent_produce(bootstrap, topic, [Message(None, b"kept")])
    tools.check(TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", name)
    wait_until(lambda: read_to_end(bootstrap, topic, COMMITTED)[0] == [b"kept"], "the abort")
    with pytest.raises(Fenced):
        producer.commit()


def test_performance_producer(tools: JavaTools, bootstrap: str, name: str) -> None:
    """Java's producer, one transaction after the other without a pause (P-136: each with a new epoch)."""
    topic = create_topic(bootstrap, f"{name}-topic", PARTITIONS)
    tools.check(
        PRODUCER_PERFORMANCE,
        *("--topic", topic, "--num-records", "3000", "--record-size", "100", "--throughput", "1500"),
        *("--transactional-id", name, "--transaction-duration-ms", "20"),
    )
    found = read_decided(bootstrap, topic, 3)
    assert sum(map(len, found.values())) == 3000
    [listed] = [row for row in rows_of(tools, "list") if row["TransactionalId"] == name]
    assert listed["TransactionState"] == "CompleteCommit"
    [described] = rows_of(tools, "describe", "--transactional-id", name)
    # A machine that takes long for a commit has few of them: the records that are due go into the next transaction.
    least = max((end_of(bootstrap, topic) - 3000) // PARTITIONS, 2)
    assert int(described["ProducerEpoch"]) >= least, "transaction.version 2: an epoch for each"


def test_java_consumer_reads_committed(
    tools: JavaTools, bootstrap: str, name: str, producer: TransactionalProducer
) -> None:
    """Java's consumer leaves out what was aborted (P-67)."""
    topic = create_topic(bootstrap, f"{name}-topic")
    for number in range(4):
        producer.begin()
        producer.send(topic, b"value-%d" % number)
        producer.flush()
        (producer.commit if number % 2 else producer.abort)()
    confluent_produce(bootstrap, topic, [Message(None, b"value-last")])
    reading = ("--topic", topic, "--from-beginning", "--timeout-ms", "60000", "--max-messages")
    output = tools.check(CONSOLE_CONSUMER, *reading, "3", "--isolation-level", COMMITTED)
    assert output.lines == ["value-1", "value-3", "value-last"]
    output = tools.check(CONSOLE_CONSUMER, *reading, "5")
    assert output.lines == ["value-0", "value-1", "value-2", "value-3", "value-last"]


def transactional_frame(topic: str, values: list[bytes], timestamp_ms: int) -> bytes:
    """Produce version 7 of a batch in a transaction that no coordinator knows of."""
    batch = bytearray(record_batch(values, timestamp_ms=timestamp_ms))
    struct.pack_into(">h", batch, ATTRIBUTES_POSITION, TRANSACTIONAL)
    struct.pack_into(">qhi", batch, PRODUCER_POSITION, HANGING_PRODUCER, 3, 0)
    struct.pack_into(">I", batch, ATTRIBUTES_POSITION - 4, crc32c(bytes(batch[ATTRIBUTES_POSITION:])))
    body = string("hanging") + struct.pack(">hii", -1, 10_000, 1) + string(topic)
    return request_header(PRODUCE, 7) + body + struct.pack(">iii", 1, 0, len(batch)) + bytes(batch)


@pytest.mark.own_broker
def test_hanging_transactions(start_broker: StartBroker, java_libs: Path, name: str) -> None:
    """kafka-transactions finds one, says whose it is, and aborts it (P-141); without verification it can be made."""
    broker = start_broker("hanging", {"transaction.partition.verification.enable": "false"})
    tools = JavaTools(java_libs, broker.bootstrap)
    topic = create_topic(broker.bootstrap, name)
    confluent_produce(broker.bootstrap, topic, [Message(None, b"before")])
    with Connection(broker.bootstrap) as connection:
        reply = connection.exchange(transactional_frame(topic, [b"hanging"], int(time.time() * 1000) - HOUR_MS))
    error, base_offset = struct.unpack_from(">hq", reply, 4 + 4 + len(string(topic)) + 4 + 4)
    assert (error, base_offset) == (0, 1)
    confluent_produce(broker.bootstrap, topic, [Message(None, b"behind")])
    assert read_to_end(broker.bootstrap, topic, COMMITTED)[0] == [b"before"]
    [found] = rows_of(tools, "find-hanging", "--broker-id", "1")
    assert (found["Topic"], found["Partition"], found["StartOffset"]) == (topic, "0", "1")
    assert (found["ProducerId"], found["ProducerEpoch"]) == (str(HANGING_PRODUCER), "3")
    tools.check(TRANSACTIONS, "abort", "--topic", topic, "--partition", "0", "--start-offset", "1")
    assert read_to_end(broker.bootstrap, topic, COMMITTED)[0] == [b"before", b"behind"]
    assert rows_of(tools, "find-hanging", "--broker-id", "1") == []


@pytest.mark.own_broker
@pytest.mark.area("storage")
def test_files_of_transactions(start_broker: StartBroker, java_libs: Path, name: str) -> None:
    """kafka-dump-log reads markers, .txnindex, snapshots, offsets and the transaction log (P-67, P-133)."""
    broker = start_broker("transaction-files")
    offline = JavaTools(java_libs)
    topic = create_topic(broker.bootstrap, name)
    producer = transactional_producer("confluent-kafka", broker.bootstrap, name)
    producer.init()
    for number in range(4):
        producer.begin()
        for value in (b"one", b"two"):
            producer.send(topic, value)
        producer.flush()
        producer.send_offsets({(topic, 0): number}, f"{name}-group")
        (producer.commit if number % 2 else producer.abort)()
    wait_until(lambda: read_to_end(broker.bootstrap, topic, COMMITTED)[0] == [b"one", b"two"] * 2, "the markers")
    producer.close()

    assert broker.data_dir is not None
    folder = broker.data_dir / f"{topic}-0"
    log = dump(offline, folder / f"{0:020d}.log", "--print-data-log")
    assert re.findall(r"endTxnMarker: (\w+)", log) == ["ABORT", "COMMIT", "ABORT", "COMMIT"]
    assert log.count("isTransactional: true isControl: true") == 4
    index = dump(offline, folder / f"{0:020d}.txnindex")
    entries = [tuple(map(int, found)) for found in re.findall(r"firstOffset: (\d+) lastOffset: (\d+) .*: (\d+)", index)]
    # Two records, the marker, and the last stable offset behind it.
    assert entries == [(0, 2, 3), (6, 8, 9)]
    state = dump(offline, log_with(broker, "__transaction_state", name), "--transaction-log-decoder")
    assert f'"transactionalId":"{name}"' in state
    # Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort.
    assert {int(status) for status in re.findall(r'"transactionStatus":(\d+)', state)} >= {1, 2, 3, 4, 5}
    offsets = dump(offline, log_with(broker, "__consumer_offsets", f"{name}-group"), "--offsets-decoder")
    assert re.findall(r'"offset":(\d+),', offsets) == ["0", "1", "2", "3"]
    assert re.findall(r"endTxnMarker: (\w+)", offsets) == ["ABORT", "COMMIT", "ABORT", "COMMIT"]
    assert broker.stop() in (0, 143)
    snapshots = sorted(folder.glob("*.snapshot"))
    assert snapshots
    ended = r"producerId: \d+ producerEpoch: \d+ coordinatorEpoch: 0 currentTxnFirstOffset: OptionalLong.empty"
    assert re.search(ended, dump(offline, snapshots[-1]))


def log_with(broker: BrokerProcess, topic: str, text: str) -> Path:
    """The log of the partition of an internal topic in which a text stands."""
    assert broker.data_dir is not None
    for path in sorted(broker.data_dir.glob(f"{topic}-*/*.log")):
        if text.encode() in path.read_bytes():
            return path
    raise AssertionError(f"{text} is in no log of {topic}")


def dump(tools: JavaTools, path: Path, *options: str) -> str:
    """Output of kafka-dump-log for one file. Raises AssertionError if it contains an exception."""
    output = tools.check(DUMP_LOG, *options, "--files", str(path), connected=False)
    assert "Exception" not in output.stdout + output.stderr
    return output.stdout


@pytest.mark.own_broker
@pytest.mark.parametrize("level", [1, 0])
def test_the_first_generation(start_broker: StartBroker, java_libs: Path, name: str, level: int) -> None:
    """On a cluster of transaction.version 0 or 1 Java's producers add their partitions and keep their epoch (P-137)."""
    broker = start_broker(f"transaction-version-{level}")
    tools = JavaTools(java_libs, broker.bootstrap)
    tools.check(FEATURES, "downgrade", "--feature", f"transaction.version={level}")
    topic = create_topic(broker.bootstrap, name, PARTITIONS)
    tools.check(
        PRODUCER_PERFORMANCE,
        *("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "1500"),
        *("--transactional-id", name, "--transaction-duration-ms", "20"),
    )
    found = read_decided(broker.bootstrap, topic, 3)
    assert sum(map(len, found.values())) == 2000
    [described] = rows_of(tools, "describe", "--transactional-id", name)
    assert (described["TransactionState"], described["ProducerEpoch"]) == ("CompleteCommit", "0")
    # And an upgrade under a producer that is known: the next one goes on from its epoch.
    end = end_of(broker.bootstrap, topic)
    tools.check(FEATURES, "upgrade", "--feature", "transaction.version=2")
    tools.check(
        PRODUCER_PERFORMANCE,
        *("--topic", topic, "--num-records", "500", "--record-size", "100", "--throughput", "1500"),
        *("--transactional-id", name, "--transaction-duration-ms", "20"),
    )
    assert sum(map(len, read_decided(broker.bootstrap, topic, 3).values())) == 2500
    [described] = rows_of(tools, "describe", "--transactional-id", name)
    assert int(described["ProducerEpoch"]) >= max((end_of(broker.bootstrap, topic) - end - 500) // PARTITIONS, 2)
