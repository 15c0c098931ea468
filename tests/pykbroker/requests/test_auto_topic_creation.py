"""Topics as a broker asks its controller for them when a client named one that does not exist."""

from __future__ import annotations

import pytest

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.requests.auto_topic_creation import new_topic


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        ({}, (-1, -1)),
        ({"num.partitions": "7"}, (7, -1)),
        ({"default.replication.factor": "3"}, (-1, 3)),
        ({"num.partitions": "1", "default.replication.factor": "1"}, (1, 1)),
    ],
)
def test_only_given_counts_are_sent(settings: dict[str, str], counts: tuple[int, int]) -> None:
    """-1 has the active controller take its own; Kafka's default written out in the file is a given value too."""
    topic = new_topic("t", BrokerConfig.from_properties(settings), 3)
    assert (topic.partition_count, topic.replication_factor) == counts


def test_internal_topics_have_counts_of_their_own() -> None:
    settings = {"num.partitions": "7", "offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "6"}
    config = BrokerConfig.from_properties(settings)
    assert new_topic("__consumer_offsets", config, 3).partition_count == 5
    assert new_topic("__transaction_state", config, 3).partition_count == 6
