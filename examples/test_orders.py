"""The pytest plugin: a broker for the whole test run, a new topic for each test. Run it with `pytest examples`."""

import pytest


def ship(records):
    """The code under test; in real life a pipeline of yours that is given `bootstrap_servers` and a topic."""
    return [record.value.decode().upper() for record in records]


def test_orders_are_shipped_in_order(kafka_broker, kafka_topic):
    kafka_broker.produce(kafka_topic, ["book", "lamp"], key="customer-7")
    assert ship(kafka_broker.consume(kafka_topic, 2)) == ["BOOK", "LAMP"]


@pytest.mark.pykbroker(partitions=3, topic_config={"cleanup.policy": "compact"})
def test_a_topic_as_in_production(kafka_broker, kafka_topic):
    positions = kafka_broker.produce(kafka_topic, ["a", "b", "c"], key="k", partition=2)
    assert [position.offset for position in positions] == [0, 1, 2]


@pytest.mark.pykbroker(config={"message.max.bytes": 1000})
def test_a_broker_with_a_setting_of_its_own(kafka_broker, kafka_topic):
    with pytest.raises(RuntimeError, match=r"[Tt]oo.?[Ll]arge"):
        kafka_broker.produce(kafka_topic, "x" * 5000)
