"""The same group requests to pykbroker and to Apache Kafka: the same answers, and the same records in the log."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.groups.offset_log import decode_record
from pykbroker.protocol.log_messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey
from pykbroker.protocol.records.batch import iter_batches
from tests.differential.group_worlds import Brokers, Worlds, played
from tests.differential.plain import MEMBER
from tests.differential.scenarios.groups import SCENARIOS

pytestmark = pytest.mark.java

SETTINGS = {"group.initial.rebalance.delay.ms": "300"}


def test_answers_are_kafkas(worlds: Worlds) -> None:
    """P-88 to P-112 as far as requests show them; every step that differs is named."""
    found = played(worlds, SCENARIOS, 500)
    assert not found, "\n".join(map(str, found))


def records_of(folder: Path) -> dict[str, list[str]]:
    """Group id -> its records in `__consumer_offsets`, without times and random parts."""
    found = defaultdict(list)
    for path in sorted(folder.glob(f"{OFFSETS_TOPIC}-*/*.log")):
        for batch in iter_batches(path.read_bytes()):
            for record in batch.records():
                decoded = decode_record(record.key or b"", record.value)
                assert decoded is not None
                assert isinstance(decoded.key, GroupMetadataKey | OffsetCommitKey)
                if isinstance(decoded.value, GroupMetadataValue):
                    decoded.value.members.sort(key=lambda member: member.client_id + str(member.group_instance_id))
                text = f"{path.parent.name} {decoded}"
                text = re.sub(r"timestamp=\d+", "timestamp", MEMBER.sub("random", text))
                found[decoded.key.group].append(re.sub(r"topic_id=b(['\"]).*?\1(?=[,)])", "id", text))
    return found


def test_records_are_kafkas_p_117(brokers: Brokers, worlds: Worlds) -> None:
    """P-117: the same keys and values in the same versions, order and partitions, after the same requests."""
    folders = {name: broker.data_dir for name, broker in brokers.items()}
    assert folders["kafka"] is not None
    assert folders["pykbroker"] is not None
    kafka, ours = records_of(folders["kafka"]), records_of(folders["pykbroker"])
    assert kafka.keys() == ours.keys()
    assert len(kafka) > 20
    for group_id, records in kafka.items():
        assert ours[group_id] == records
