"""Every client produces and consumes every codec: producer x codec x consumer, none left out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop_tests.aiokafka_client import aiokafka_consume, aiokafka_produce
from interop_tests.clients import (
    CODECS,
    Message,
    confluent_consume,
    confluent_produce,
    create_topic,
    kafka_python_consume,
    kafka_python_produce,
)
from interop_tests.java_tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, JavaTools
from interop_tests.wire import Connection, batch_codecs

pytestmark = pytest.mark.area("codecs")

CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
PRODUCERS = ("kafka-python", "confluent-kafka", "aiokafka", pytest.param("java", marks=pytest.mark.java))
COUNT = 50
Sent = Callable[[str, str], str]


def messages_for(topic: str) -> list[Message]:
    """Text that compresses, the topic in each key, so that one reader of many topics can tell them apart."""
    return [Message(f"{topic}/{n}".encode(), f"{n}: {'the same again and again ' * 20}".encode()) for n in range(COUNT)]


@pytest.fixture(scope="module")
def sent(bootstrap: str, unique: Callable[[str], str], request: pytest.FixtureRequest) -> Sent:
    """sent(producer, codec) is the topic with COUNT records in one partition, made on first use."""
    topics: dict[tuple[str, str], str] = {}

    def topic_of(producer: str, codec: str) -> str:
        if (producer, codec) not in topics:
            topic = create_topic(bootstrap, unique(f"codec-{producer}-{codec}"))
            messages = messages_for(topic)
            if producer == "kafka-python":
                kafka_python_produce(bootstrap, topic, messages, codec)
            elif producer == "confluent-kafka":
                confluent_produce(bootstrap, topic, messages, codec)
            elif producer == "aiokafka":
                aiokafka_produce(bootstrap, topic, messages, codec)
            else:
                java_produce(request.getfixturevalue("tools"), topic, messages, codec)
            topics[producer, codec] = topic
        return topics[producer, codec]

    return topic_of


def java_produce(tools: JavaTools, topic: str, messages: list[Message], codec: str) -> None:
    lines = "".join(f"{m.key.decode()}\t{m.value.decode()}\n" for m in messages if m.key and m.value)
    properties = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=\t"]
    tools.check(CONSOLE_PRODUCER, "--topic", topic, "--compression-codec", codec, *properties, stdin=lines)


@pytest.fixture(scope="module")
def read_by_java(sent: Sent, tools: JavaTools) -> dict[str, list[tuple[str, str]]]:
    """All topics of this module read by one console consumer, as a JVM for each would take minutes."""
    topics = [
        sent(producer, codec)
        for producer in ("kafka-python", "confluent-kafka", "aiokafka", "java")
        for codec in CODECS
    ]
    output = tools.check(
        CONSOLE_CONSUMER,
        *("--include", "|".join(topics), "--from-beginning", "--max-messages", str(COUNT * len(topics))),
        *("--timeout-ms", "60000", "--formatter-property", "print.key=true"),
    )
    found: dict[str, list[tuple[str, str]]] = {topic: [] for topic in topics}
    for line in output.lines:
        key, _, value = line.partition("\t")
        found[key.partition("/")[0]].append((key, value))
    return found


@pytest.mark.client("kafka-python 3")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_read_by_kafka_python(producer: str, codec: str, sent: Sent, bootstrap: str) -> None:
    """kafka-python reads the records of each client in each codec, key by key and in order."""
    topic = sent(producer, codec)
    assert [m[:2] for m in kafka_python_consume(bootstrap, [topic], COUNT)] == [m[:2] for m in messages_for(topic)]


@pytest.mark.client("confluent-kafka")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_read_by_confluent_kafka(producer: str, codec: str, sent: Sent, bootstrap: str) -> None:
    """librdkafka reads the records of each client in each codec, key by key and in order."""
    topic = sent(producer, codec)
    assert [m[:2] for m in confluent_consume(bootstrap, [topic], COUNT)] == [m[:2] for m in messages_for(topic)]


@pytest.mark.client("aiokafka")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_read_by_aiokafka(producer: str, codec: str, sent: Sent, bootstrap: str) -> None:
    """aiokafka reads the records of each client in each codec, key by key and in order."""
    topic = sent(producer, codec)
    assert [m[:2] for m in aiokafka_consume(bootstrap, topic, COUNT)] == [m[:2] for m in messages_for(topic)]


@pytest.mark.java
@pytest.mark.client("Java tools")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_read_by_java(producer: str, codec: str, sent: Sent, read_by_java: dict[str, list[tuple[str, str]]]) -> None:
    """The Java consumer reads the records of each client in each codec, key by key and in order."""
    topic = sent(producer, codec)
    expected = [(m.key.decode(), m.value.decode()) for m in messages_for(topic) if m.key and m.value]
    assert read_by_java[topic] == expected


@pytest.mark.client("raw frames")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_stored_as_it_was_sent(producer: str, codec: str, sent: Sent, bootstrap: str) -> None:
    """With compression.type=producer the broker keeps the producer's codec: the raw Fetch reply shows it."""
    topic = sent(producer, codec)
    with Connection(bootstrap) as connection:
        assert batch_codecs(connection.fetch(topic, 0, 0)) == {CODEC_IDS[codec]}


@pytest.mark.client("raw frames")
@pytest.mark.parametrize("codec", CODECS)
def test_broker_recompresses(codec: str, bootstrap: str, name: str) -> None:
    """With a codec of its own as compression.type the broker stores every batch in that codec."""
    topic = create_topic(bootstrap, name, compression_type="uncompressed" if codec == "none" else codec)
    for sent_as in ("none", "gzip", "zstd"):
        confluent_produce(bootstrap, topic, messages_for(sent_as), sent_as)
    with Connection(bootstrap) as connection:
        assert batch_codecs(connection.fetch(topic, 0, 0)) == {CODEC_IDS[codec]}
    expected = [m[:2] for sent_as in ("none", "gzip", "zstd") for m in messages_for(sent_as)]
    assert [m[:2] for m in kafka_python_consume(bootstrap, [topic], 3 * COUNT)] == expected
