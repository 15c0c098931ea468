"""kill -9 and orderly restarts: what was acknowledged is there, in order, once; groups and topics stay as they were."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Protocol

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from interop_tests.clients import (
    Message,
    confluent_consume,
    confluent_group_consume,
    confluent_produce,
    create_topic,
    kafka_python_consume,
    keep_failure,
    poll_confluent,
)
from interop_tests.conftest import StartBroker
from interop_tests.kill_load import (
    Administering,
    ConfluentProducing,
    Consuming,
    KafkaPythonProducing,
    Part,
    Producing,
    wait_for_progress,
)

pytestmark = [pytest.mark.own_broker, pytest.mark.area("faults"), pytest.mark.client("confluent-kafka")]

PARTITIONS = 3


class _Tables(Protocol):
    texts: list[str]


@pytest.mark.client("kafka-python 3")
def test_kills_under_load(
    start_broker: StartBroker, summary_tables: _Tables, target: str, unique: Callable[[str], str], kills: int
) -> None:
    """kill -9 at random moments: what was acknowledged is there, in order, once; offsets of groups never go back.

    Two idempotent producers of different clients, a group that reads and commits, and changes of metadata go on all the
    time. `--kills` says how often.
    """
    broker = start_broker("kill")
    first = create_topic(broker.bootstrap, unique("kill-confluent"), PARTITIONS, segment_bytes="1048576")
    second = create_topic(broker.bootstrap, unique("kill-kafka-python"), PARTITIONS, segment_bytes="1048576")
    producers: list[Producing] = [
        ConfluentProducing(broker.bootstrap, first, PARTITIONS),
        KafkaPythonProducing(broker.bootstrap, second, PARTITIONS),
    ]
    readers = [
        Consuming(broker.bootstrap, first, PARTITIONS, unique("kill-group")),
        Consuming(broker.bootstrap, second, PARTITIONS, unique("kill-group")),
    ]
    administering = Administering(broker.bootstrap, unique("kill-topic"))
    parts: list[Part] = [*producers, *readers, administering]
    for part in parts:
        part.start()
    moments = random.Random(20261121)
    back_s: list[float] = []
    for _ in range(kills):
        wait_for_progress(parts)
        time.sleep(moments.uniform(0.0, 0.5))
        broker.kill()
        began = time.monotonic()
        broker.start()
        back_s.append(time.monotonic() - began)
        for part in parts:
            part.check()
    wait_for_progress(parts)
    for part in parts:
        part.finish()
        part.check()
    for producing in producers:
        producing.check_stored(confluent_consume(broker.bootstrap, [producing.topic]))
    summary_tables.texts.append(
        f"kill -9 under load against {target}: {kills} times; {sum(one.sent for one in producers)} records "
        f"acknowledged, all there, in order, once; {sum(one.progress for one in readers)} commits, none went back; "
        f"{administering.progress} changes of metadata, all there; "
        f"answering again after {min(back_s):.2f} to {max(back_s):.2f} s"
    )


@pytest.mark.parametrize("how", ["in order", "kill -9"])
def test_restart_keeps_everything(how: str, start_broker: StartBroker) -> None:
    """Topics with their ids and configs, records, a group's offsets and its next generation survive."""
    broker = start_broker("restart-" + how.replace(" ", "-"))
    topic = create_topic(broker.bootstrap, "kept", 3, retention_ms="7200000")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic_id = str(admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result(30).topic_id)
    messages = [Message(b"k%d" % number, b"v%d" % number) for number in range(100)]
    confluent_produce(broker.bootstrap, topic, messages)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "kept-group", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    poll_confluent(consumer, 100)
    consumer.commit(asynchronous=False)
    committed = {
        tp.partition: tp.offset
        for tp in consumer.committed([confluent_kafka.TopicPartition(topic, n) for n in range(3)])
    }
    consumer.close()
    assert sum(committed.values()) == 100

    for _ in range(2):
        if how == "in order":
            # Java exits with 128 + SIGTERM after an orderly end.
            assert broker.stop() in (0, 143)
        else:
            broker.kill()
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        described = admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result(30)
        assert str(described.topic_id) == topic_id
        assert len(described.partitions) == 3
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        assert admin.describe_configs([resource])[resource].result(30)["retention.ms"].value == "7200000"
        assert sorted(m[:2] for m in kafka_python_consume(broker.bootstrap, [topic])) == sorted(m[:2] for m in messages)
        reader = confluent_kafka.Consumer(settings)
        partitions = [confluent_kafka.TopicPartition(topic, number) for number in range(3)]
        assert {tp.partition: tp.offset for tp in reader.committed(partitions, timeout=30)} == committed
        reader.close()

    confluent_produce(broker.bootstrap, topic, [Message(b"k", b"new")])
    again = confluent_group_consume(broker.bootstrap, topic, "kept-group")
    assert [message.value for message in again] == [b"new"], "only what was not committed"


def test_idempotent_producer_over_an_orderly_restart(start_broker: StartBroker) -> None:
    """The producer's sequence goes on where it was: its state was in the snapshot file."""
    broker = start_broker("producer-state")
    topic = create_topic(broker.bootstrap, "sequence")
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0}
    )
    for round_number in range(3):
        for number in range(20):
            value = b"%d" % (20 * round_number + number)
            producer.produce(topic, value, on_delivery=lambda error, _: keep_failure(failures, error))
        assert producer.flush(30) == 0
        broker.stop()
        broker.start()
    assert not failures
    assert [int(m.value or b"") for m in kafka_python_consume(broker.bootstrap, [topic])] == list(range(60))
