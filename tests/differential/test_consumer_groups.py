"""The same requests of consumer groups to pykbroker and to Apache Kafka: the same answers, and the same records."""

from __future__ import annotations

import pytest

from pykbroker.groups.result import LogRecord
from pykbroker.protocol.log_messages.consumer_group_records import ConsumerGroupMetadataKey
from pykbroker.protocol.records.record import Record
from tests.differential.group_worlds import Brokers, Worlds, played, records_of_both
from tests.differential.runner import Difference
from tests.differential.scenarios.consumer_groups import SCENARIOS
from tests.differential.scenarios.groups import NEVER_MS

pytestmark = pytest.mark.java

SETTINGS = {
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
    # No member is fenced while the tests run, as it depends on the time that they take.
    "group.consumer.max.session.timeout.ms": str(NEVER_MS),
    "group.consumer.session.timeout.ms": str(NEVER_MS),
}


@pytest.fixture(scope="module")
def differences(worlds: Worlds) -> list[Difference]:
    """Differences in the answers; the records of the scenarios are in the logs afterwards."""
    return played(worlds, SCENARIOS, 150)


def test_answers_are_kafkas(differences: list[Difference]) -> None:
    """P-172 to P-178 as far as requests show them; every step that differs is named."""
    assert not differences, "\n".join(map(str, differences))


def in_order(_: Record, decoded: LogRecord, topics: dict[bytes, str]) -> None:
    """Sorts the topics of an assignment by name."""
    for attribute in ("topic_partitions", "assigned_partitions", "partitions_pending_revocation"):
        listed = getattr(decoded.value, attribute, None)
        if listed is not None:
            listed.sort(key=lambda entry: topics.get(entry.topic_id, ""))


@pytest.mark.usefixtures("differences")
def test_records_are_kafkas(brokers: Brokers, worlds: Worlds) -> None:
    """P-179: the same keys and values, versions and partitions; within a batch Kafka's order is of hash tables."""
    kafka, ours = records_of_both(brokers, worlds, ConsumerGroupMetadataKey, in_order)
    assert kafka.keys() == ours.keys()
    assert len(kafka) > 5
    for group_id in kafka.keys() - {"c-regex"}:
        assert sorted(ours[group_id]) == sorted(kafka[group_id]), group_id
