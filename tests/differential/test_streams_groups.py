"""The same requests of Streams groups to pykbroker and to Apache Kafka: the same answers, and the same records."""

from __future__ import annotations

import pytest

from pykbroker.groups.offset_log import encode_record
from pykbroker.groups.result import LogRecord
from pykbroker.groups.streams.group import STREAMS_GROUP_KEYS
from pykbroker.protocol.log_messages.streams_group_records import StreamsGroupMetadataKey
from pykbroker.protocol.records.record import Record
from tests.differential.group_worlds import Brokers, Worlds, played, records_of_both
from tests.differential.runner import Difference
from tests.differential.scenarios.groups import NEVER_MS
from tests.differential.scenarios.streams_groups import SCENARIOS

pytestmark = pytest.mark.java

SETTINGS = {
    # No member is fenced while the tests run, as it depends on the time that they take.
    "group.streams.max.session.timeout.ms": str(NEVER_MS),
    "group.streams.session.timeout.ms": str(NEVER_MS),
    "group.streams.max.assignment.interval.ms": str(NEVER_MS),
    "group.initial.rebalance.delay.ms": "300",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def differences(worlds: Worlds) -> list[Difference]:
    """Differences in the answers; the records of the scenarios are in the logs afterwards."""
    return played(worlds, SCENARIOS, 150)


def test_answers_are_kafkas(differences: list[Difference]) -> None:
    """P-210 to P-218 as far as requests show them; every step that differs is named."""
    assert not differences, "\n".join(map(str, differences))


def is_encoded_alike(record: Record, decoded: LogRecord, _: dict[bytes, str]) -> None:
    """Asserts that the records of Streams groups are encoded as by Kafka, byte for byte."""
    if isinstance(decoded.key, STREAMS_GROUP_KEYS):
        assert encode_record(decoded) == (record.key, record.value)


@pytest.mark.usefixtures("differences")
def test_records_are_kafkas(brokers: Brokers, worlds: Worlds) -> None:
    """P-219: the same keys and values, versions and partitions; within a batch Kafka's order is of hash tables."""
    kafka, ours = records_of_both(brokers, worlds, StreamsGroupMetadataKey, is_encoded_alike)
    assert kafka.keys() == ours.keys()
    assert len(kafka) > 5
    for group_id in kafka:
        assert sorted(ours[group_id]) == sorted(kafka[group_id]), group_id
