"""The same requests of share groups to pykbroker and to Apache Kafka: the same answers, and the same stored state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop_tests.brokers import ApacheKafkaProcess, BrokerProcess, PykbrokerProcess
from interop_tests.java_tools import JavaTools
from tests.differential.plain import differences
from tests.differential.runner import Difference
from tests.differential.scenarios import share_groups
from tests.differential.scenarios.groups import GroupWorld
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

SETTINGS = {
    # The records are from 2023.
    "log.retention.ms": "-1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

Worlds = dict[str, GroupWorld]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BrokerProcess]]:
    folder: Path = tmp_path_factory.mktemp("brokers")
    started: dict[str, BrokerProcess] = {
        "kafka": ApacheKafkaProcess(folder / "kafka", folder / "kafka.log", SETTINGS, JavaTools(kafka_libs())),
        "pykbroker": PykbrokerProcess(folder / "pykbroker", folder / "pykbroker.log", SETTINGS),
    }
    try:
        for broker in started.values():
            broker.start()
        yield started
    finally:
        for broker in started.values():
            broker.stop()


@pytest.fixture(scope="module")
def worlds(brokers: dict[str, BrokerProcess]) -> Iterator[Worlds]:
    made = {name: GroupWorld(broker.address) for name, broker in brokers.items()}
    for world in made.values():
        world.prepare()
        share_groups.prepare(world)
    yield made
    for world in made.values():
        world.close()


def compared(worlds: Worlds) -> list[Difference]:
    """The answers that differ; both lists begin anew."""
    kafka, ours = worlds["kafka"].answers, worlds["pykbroker"].answers
    pairs = list(zip(kafka, ours, strict=False))
    found = [
        Difference(number, label, *difference)
        for number, ((label, theirs), (_, mine)) in enumerate(pairs)
        for difference in differences(theirs, mine)
    ]
    assert found or len(kafka) == len(ours)
    for world in worlds.values():
        world.answers.clear()
    return found


@pytest.mark.parametrize("scenario", share_groups.SCENARIOS, ids=lambda scenario: str(scenario.__name__))
def test_answers_are_kafkas(worlds: Worlds, scenario: object) -> None:
    """P-180 to P-191 as far as requests show them."""
    assert callable(scenario)
    for world in worlds.values():
        scenario(world)
    found = compared(worlds)
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("seed", share_groups.RANDOM_SEEDS)
def test_random_histories(worlds: Worlds, seed: int) -> None:
    """P-180 to P-187."""
    for world in worlds.values():
        share_groups.random_history(world, seed)
    found = compared(worlds)
    assert not found, "\n".join(map(str, found[:3]))
