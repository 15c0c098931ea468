"""kill -9 and orderly restarts: what was acknowledged is there, in order, once; groups and topics stay as they were."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from typing import Protocol

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from interop_tests.clients import (
    Message,
    confluent_consume,
    confluent_produce,
    create_topic,
    kafka_python_consume,
    poll_confluent,
    wait_until,
)
from interop_tests.conftest import StartBroker

pytestmark = [pytest.mark.own_broker, pytest.mark.area("faults"), pytest.mark.client("confluent-kafka")]

KILLS = 10
PARTITIONS = 2


class _Tables(Protocol):
    texts: list[str]


def test_kill_while_an_idempotent_producer_sends(
    start_broker: StartBroker, summary_tables: _Tables, target: str
) -> None:
    """Ten times kill -9 at a random moment under load. The producer retries by itself; nothing is lost or doubled."""
    broker = start_broker("kill")
    topic = create_topic(broker.bootstrap, "kill", PARTITIONS, segment_bytes="1048576")
    acknowledged: dict[int, list[int]] = defaultdict(list)
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.timeout.ms": 300_000,
            "reconnect.backoff.max.ms": 500,
        }
    )

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            acknowledged[message.partition()].append(int(message.value()[:10]))

    moments = random.Random(20261121)
    sent = 0
    back_s: list[float] = []

    def send_for(seconds: float) -> None:
        nonlocal sent
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for _ in range(50):
                value = b"%010d" % sent + b"." * moments.randrange(200)
                producer.produce(topic, value, partition=sent % PARTITIONS, on_delivery=delivered)
                sent += 1
            producer.poll(0)
            time.sleep(0.005)

    def acknowledged_count() -> int:
        return sum(map(len, acknowledged.values()))

    for _ in range(KILLS):
        before = acknowledged_count()

        def is_back(before: int = before) -> bool:
            send_for(0.02)
            return acknowledged_count() > before

        wait_until(is_back, "an acknowledgement after the restart", timeout_s=60)
        send_for(moments.uniform(0.1, 0.6))
        broker.kill()
        started = time.monotonic()
        broker.start()
        back_s.append(time.monotonic() - started)
    assert producer.flush(120) == 0, "records without an acknowledgement"
    assert not failures, failures[:3]

    found: dict[int, list[int]] = defaultdict(list)
    for message in confluent_consume(broker.bootstrap, [topic], sent):
        assert message.value is not None
        found[message.partition].append(int(message.value[:10]))
    for partition in range(PARTITIONS):
        expected = list(range(partition, sent, PARTITIONS))
        assert acknowledged[partition] == expected, "acknowledged in the order sent"
        assert found[partition] == expected, f"partition {partition}: what is stored"
    # Nothing behind the last record either: a record too many would lie there.
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap)
    ends = consumer.end_offsets([kafka.TopicPartition(topic, number) for number in range(PARTITIONS)])
    consumer.close()
    assert sum(ends.values()) == sent
    summary_tables.texts.append(
        f"kill -9 under load against {target}: {KILLS} times, {sent} records acknowledged, all there, in order, once; "
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
        assert sorted(m[:2] for m in kafka_python_consume(broker.bootstrap, [topic], 100)) == sorted(
            m[:2] for m in messages
        )
        reader = confluent_kafka.Consumer(settings)
        partitions = [confluent_kafka.TopicPartition(topic, number) for number in range(3)]
        assert {tp.partition: tp.offset for tp in reader.committed(partitions, timeout=30)} == committed
        reader.close()

    confluent_produce(broker.bootstrap, topic, [Message(b"k", b"new")])
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    assert [message.value for message in poll_confluent(consumer, 1)] == [b"new"], "only what was not committed"
    consumer.close()


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
            producer.produce(
                topic, b"%d" % (20 * round_number + number), on_delivery=lambda e, _: e and failures.append(e)
            )
        assert producer.flush(30) == 0
        broker.stop()
        broker.start()
    assert not failures
    assert [int(m.value or b"") for m in kafka_python_consume(broker.bootstrap, [topic], 60)] == list(range(60))
