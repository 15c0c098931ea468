"""The same requests of share groups to pykbroker and to Apache Kafka: the same answers, and the same stored state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import zip_longest

import pytest

from interop_tests.brokers import BrokerProcess
from pykbroker.coordination.partitioning import SHARE_STATE_TOPIC, coordinator_partition
from pykbroker.protocol.log_messages.share_state_records import ShareSnapshotValue, ShareUpdateValue
from pykbroker.protocol.records.batch import iter_batches
from pykbroker.protocol.uuids import uuid_to_text
from pykbroker.share_state.records import decode_record, encode_record
from tests.differential.group_worlds import Brokers, Worlds, both_worlds, compared
from tests.differential.runner import Difference
from tests.differential.scenarios import share_groups
from tests.differential.scenarios.groups import GroupWorld

pytestmark = pytest.mark.java

Scenario = Callable[[GroupWorld], None]

STATE_PARTITIONS = 2
COMPARED_AT_THE_END = ("s-expiry", "s-several", "s-deleted", "s-locks", "s-committed")
"""Groups whose updates say the same in other pieces: locks that expire, and in the last one aborted records, which
Kafka may archive by a fetch while the acknowledgements of the same request are being stored."""
SETTINGS = {
    # The records are from 2023.
    "log.retention.ms": "-1",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Not while the tests run, as it depends on the time that they take.
    "share.coordinator.cold.partition.snapshot.interval.ms": "3600000",
}


class Histories:
    """The scenarios and random histories, each played once on both brokers, when a test first asks for it."""

    def __init__(self, worlds: Worlds) -> None:
        self.worlds = worlds
        self._found: dict[object, list[Difference]] = {}

    def scenario(self, scenario: Scenario) -> list[Difference]:
        """Differences in the answers of a scenario."""
        return self._differences(scenario.__name__, scenario)

    def random(self, seed: int) -> list[Difference]:
        """Differences in the answers of a random history."""
        return self._differences(seed, lambda world: share_groups.random_history(world, seed))

    def _differences(self, name: object, play: Callable[[GroupWorld], None]) -> list[Difference]:
        if name not in self._found:
            for world in self.worlds.values():
                play(world)
            self._found[name] = compared(self.worlds)
        return self._found[name]


@pytest.fixture(scope="module")
def histories(brokers: Brokers) -> Iterator[Histories]:
    with both_worlds(brokers) as made:
        for world in made.values():
            share_groups.prepare(world)
        yield Histories(made)


@pytest.mark.parametrize("scenario", share_groups.SCENARIOS, ids=lambda scenario: str(scenario.__name__))
def test_answers_are_kafkas(histories: Histories, scenario: Scenario) -> None:
    """P-180 to P-191 as far as requests show them."""
    found = histories.scenario(scenario)
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("seed", share_groups.RANDOM_SEEDS)
def test_random_histories(histories: Histories, seed: int) -> None:
    """P-180 to P-187."""
    found = histories.random(seed)
    assert not found, "\n".join(map(str, found[:3]))


Value = ShareSnapshotValue | ShareUpdateValue | None


def state_records(broker: BrokerProcess, world: GroupWorld) -> dict[str, list[Value]]:
    """Group and partition -> the records of its state, in order and without times."""
    assert broker.data_dir is not None
    names = {topic_id: name for name, topic_id in world.topic_ids.items()}
    found: dict[str, list[Value]] = defaultdict(list)
    for path in sorted(broker.data_dir.glob(f"{SHARE_STATE_TOPIC}-*/*.log")):
        for batch in iter_batches(path.read_bytes()):
            for record in batch.records():
                decoded = decode_record(record.key or b"", record.value)
                assert decoded is not None
                assert encode_record(decoded) == (record.key, record.value), "byte for byte"
                if isinstance(decoded.value, ShareSnapshotValue):
                    decoded.value.create_timestamp = decoded.value.write_timestamp = 0
                group_id, topic_id, partition = decoded.key
                place = coordinator_partition(f"{group_id}:{uuid_to_text(topic_id)}:{partition}", STATE_PARTITIONS)
                assert path.parent.name == f"{SHARE_STATE_TOPIC}-{place}"
                found[f"{group_id} {names[topic_id]}-{partition}"].append(decoded.value)
    return found


def end_of(values: list[Value]) -> tuple[int, int, dict[int, tuple[int, int]]]:
    """Start offset, number of records that are done with, and state and deliveries of each record, after updates."""
    states: dict[int, tuple[int, int]] = {}
    for value in values:
        assert value is not None
        for batch in value.state_batches:
            offsets = range(batch.first_offset, batch.last_offset + 1)
            states |= dict.fromkeys(offsets, (batch.delivery_state, batch.delivery_count))
    last = values[-1]
    assert last is not None
    kept = {offset: state for offset, state in states.items() if offset >= last.start_offset}
    return last.start_offset, last.delivery_complete_count, kept


def test_stored_states_are_kafkas(brokers: Brokers, histories: Histories) -> None:
    """P-280: snapshots and updates of every share partition of the histories above, field by field.

    Apache Kafka has a timer for each record of a batch that was acknowledged in part, and an update for each of them;
    ours has one update for all locks that expire together. Of such groups what the updates come to is compared.
    """
    for scenario in share_groups.SCENARIOS:
        histories.scenario(scenario)
    for seed in share_groups.RANDOM_SEEDS:
        histories.random(seed)
    found = {name: state_records(broker, histories.worlds[name]) for name, broker in brokers.items()}
    kafka, ours = found["kafka"], found["pykbroker"]
    assert kafka.keys() == ours.keys()
    assert len(kafka) > 10
    different = []
    for key in kafka:
        if key.partition(" ")[0] in COMPARED_AT_THE_END:
            if end_of(kafka[key]) != end_of(ours[key]):
                different.append(f"{key}:\n  Kafka {end_of(kafka[key])}\n  ours  {end_of(ours[key])}")
            continue
        different += [
            f"{key}, record {number}:\n  Kafka {theirs}\n  ours  {mine}"
            for number, (theirs, mine) in enumerate(zip_longest(kafka[key], ours[key]))
            if theirs != mine
        ]
    assert not different, "\n".join(different[:10])
