"""`pykbroker start --tls`: each file of settings that it writes, given to the stock client that it is for."""

from __future__ import annotations

import json
from pathlib import Path

import confluent_kafka
import kafka
import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import wait_until
from interop_tests.conftest import StartBroker
from interop_tests.java_tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, JavaTools
from interop_tests.kcat_package import find_kcat
from interop_tests.made_once import or_skip

pytestmark = [pytest.mark.area("security"), pytest.mark.own_broker]

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def started(target: str, start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory) -> BrokerProcess:
    """A broker with the TLS of its own making; clients must show a certificate."""
    if target != "pykbroker":
        pytest.skip("the command line of pykbroker")
    # A name that a file of settings might cut.
    folder = tmp_path_factory.mktemp("start-tls") / "data = #1"
    broker = start_broker("start-tls", {"ssl.client.auth": "required"}, options=("--tls",), data_dir=folder)
    # They are written when the broker's port is known.
    wait_until(lambda: "settings for Python" in broker.log_text(), "the settings of clients")
    return broker


def file_of(broker: BrokerProcess, kind: str) -> Path:
    """The settings of one kind of client."""
    assert broker.data_dir is not None
    return broker.data_dir / f"tls-client-{kind}"


@pytest.mark.java
@pytest.mark.client("Java tools")
def test_java(started: BrokerProcess, java_libs: Path, name: str) -> None:
    """The console producer and consumer with the file of Java."""
    config = str(file_of(started, "java.properties"))
    tools = JavaTools(java_libs, started.bootstrap)
    tools.check(CONSOLE_PRODUCER, "--topic", name, "--command-config", config, stdin="one\ntwo\n")
    read = ("--topic", name, "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
    assert tools.check(CONSOLE_CONSUMER, *read, "--command-config", config).lines == ["one", "two"]


@pytest.mark.client("kcat")
def test_kcat(started: BrokerProcess, name: str) -> None:
    """kcat reads the file of librdkafka itself, with the address of the broker in it."""
    kcat = or_skip(find_kcat)
    config = str(file_of(started, "librdkafka.properties"))
    done = kcat.run("-F", config, "-P", "-t", name, stdin=b"one\ntwo\n")
    assert done.returncode == 0, done.stderr
    done = kcat.run("-F", config, "-C", "-t", name, "-e", "-q")
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n"), done.stderr


@pytest.mark.client("confluent-kafka")
def test_librdkafka(started: BrokerProcess, name: str) -> None:
    """The lines of the file of librdkafka are settings of confluent-kafka."""
    lines = file_of(started, "librdkafka.properties").read_text(encoding="utf-8").splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    producer = confluent_kafka.Producer(settings)
    producer.produce(name, b"one")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    found = [message.value() for message in consumer.consume(1, TIMEOUT_S)]
    consumer.close()
    assert found == [b"one"]


@pytest.mark.client("kafka-python")
def test_kafka_python(started: BrokerProcess, name: str) -> None:
    """The file of Python has the arguments of kafka-python."""
    settings = json.loads(file_of(started, "python.json").read_text())
    producer = kafka.KafkaProducer(**settings)
    producer.send(name, b"one").get(timeout=TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(name, **settings, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    assert next(consumer).value == b"one"
    consumer.close()


@pytest.mark.client("confluent-kafka")
def test_a_client_without_its_certificate(started: BrokerProcess) -> None:
    """The broker of these tests takes the certificate from the files: without it nothing is answered."""
    lines = file_of(started, "librdkafka.properties").read_text(encoding="utf-8").splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    for key in ("ssl.certificate.location", "ssl.key.location"):
        del settings[key]
    with pytest.raises(confluent_kafka.KafkaException):
        confluent_kafka.Producer({**settings, "log_level": 0}).list_topics(timeout=3)
