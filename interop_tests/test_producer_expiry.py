"""Producer ids that are not used any more are forgotten, at the pace that the broker's settings say."""

from __future__ import annotations

import confluent_kafka
import pytest

from interop_tests.clients import create_topic, wait_until
from interop_tests.conftest import StartBroker
from interop_tests.wire import Connection

pytestmark = [pytest.mark.own_broker, pytest.mark.area("transactions"), pytest.mark.client("raw frames")]

SETTINGS = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "1000"}
# The first run of retention and other housekeeping comes 30 s after the start.
BEFORE_OTHER_HOUSEKEEPING_S = 20


def test_an_idle_producer_is_forgotten_soon_after_the_start(start_broker: StartBroker, name: str) -> None:
    """The first look at idle producers waits for producer.id.expiration.check.interval.ms, not for other tasks."""
    broker = start_broker("producer-expiry", SETTINGS)
    topic = create_topic(broker.bootstrap, name)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    with Connection(broker.bootstrap) as connection:
        wait_until(
            lambda: connection.describe_producers(topic, 0) == (0, []),
            "the producer to be forgotten",
            timeout_s=BEFORE_OTHER_HOUSEKEEPING_S,
        )
