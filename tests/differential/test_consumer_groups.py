"""The same requests of consumer groups to pykbroker and to Apache Kafka: the same answers, and the same records."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.groups.offset_log import decode_record
from pykbroker.protocol.log_messages.consumer_group_records import ConsumerGroupMetadataKey
from pykbroker.protocol.records.batch import iter_batches
from tests.differential.group_worlds import Brokers, Worlds, both_brokers, both_worlds, played
from tests.differential.plain import MEMBER
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
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with both_brokers(tmp_path_factory.mktemp("brokers"), SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def worlds(brokers: Brokers) -> Iterator[Worlds]:
    with both_worlds(brokers) as made:
        yield made


@pytest.fixture(scope="module")
def differences(worlds: Worlds) -> list[Difference]:
    """Differences in the answers; the records of the scenarios are in the logs afterwards."""
    return played(worlds, SCENARIOS, 150)


def test_answers_are_kafkas(differences: list[Difference]) -> None:
    """P-172 to P-178 as far as requests show them; every step that differs is named."""
    assert not differences, "\n".join(map(str, differences))


def records_of(folder: Path, topics: dict[bytes, str]) -> dict[str, list[str]]:
    """Group id -> its records in `__consumer_offsets`, without times and random parts."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.glob(f"{OFFSETS_TOPIC}-*/*.log")):
        for batch in iter_batches(path.read_bytes()):
            for record in batch.records():
                decoded = decode_record(record.key or b"", record.value)
                assert decoded is not None
                for attribute in ("topic_partitions", "assigned_partitions", "partitions_pending_revocation"):
                    listed = getattr(decoded.value, attribute, None)
                    if listed is not None:
                        listed.sort(key=lambda entry: topics.get(entry.topic_id, ""))
                text = f"{path.parent.name} {decoded}"
                for topic_id, name in topics.items():
                    text = text.replace(repr(topic_id), name)
                text = re.sub(r"timestamp=\d+", "timestamp", MEMBER.sub("random", text))
                text = re.sub(r"metadata_hash=-?\d\d+", "metadata_hash", text)
                if isinstance(decoded.key, ConsumerGroupMetadataKey) and decoded.value is None:
                    text += " the end"
                key: object = decoded.key
                group_id: str = getattr(key, "group", "") or getattr(key, "group_id", "")
                found[group_id].append(text)
    return found


@pytest.mark.usefixtures("differences")
def test_records_are_kafkas(brokers: Brokers, worlds: Worlds) -> None:
    """P-179: the same keys and values, versions and partitions; within a batch Kafka's order is of hash tables."""
    found = {}
    for name, broker in brokers.items():
        assert broker.data_dir is not None
        topics = {topic_id: topic for topic, topic_id in worlds[name].topic_ids.items()}
        found[name] = records_of(broker.data_dir, topics)
    kafka, ours = found["kafka"], found["pykbroker"]
    assert kafka.keys() == ours.keys()
    assert len(kafka) > 5
    for group_id in kafka.keys() - {"c-regex"}:
        assert sorted(ours[group_id]) == sorted(kafka[group_id]), group_id
