"""Both brokers with the worlds in which scenarios of groups run, and the comparison of their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from interop_tests.brokers import ApacheKafkaProcess, BrokerProcess, PykbrokerProcess
from interop_tests.java_tools import JavaTools
from tests.differential.plain import differences
from tests.differential.runner import Difference
from tests.differential.scenarios.groups import GroupWorld
from tests.support.kafka_jars import kafka_libs

Brokers = dict[str, BrokerProcess]
Worlds = dict[str, GroupWorld]


@contextmanager
def both_brokers(folder: Path, settings: Mapping[str, str]) -> Iterator[Brokers]:
    """Apache Kafka as `kafka` and pykbroker as `pykbroker`, started with the same settings."""
    started: Brokers = {
        "kafka": ApacheKafkaProcess(folder / "kafka", folder / "kafka.log", settings, JavaTools(kafka_libs())),
        "pykbroker": PykbrokerProcess(folder / "pykbroker", folder / "pykbroker.log", settings),
    }
    try:
        for broker in started.values():
            broker.start()
        yield started
    finally:
        for broker in started.values():
            broker.stop()


@contextmanager
def both_worlds(brokers: Brokers) -> Iterator[Worlds]:
    """A prepared world on each broker."""
    made = {name: GroupWorld(broker.address) for name, broker in brokers.items()}
    for world in made.values():
        world.prepare()
    yield made
    for world in made.values():
        world.close()


def played(worlds: Worlds, scenarios: Sequence[Callable[[GroupWorld], None]], answers_min: int) -> list[Difference]:
    """Differences of the answers in all scenarios, of which there must be more than `answers_min`."""
    for scenario in scenarios:
        for world in worlds.values():
            world.note("scenario", scenario.__name__)
            scenario(world)
    assert len(worlds["kafka"].answers) == len(worlds["pykbroker"].answers) > answers_min
    return compared(worlds)


def compared(worlds: Worlds) -> list[Difference]:
    """Answers that differ, in their order. Both worlds begin anew; if one has more answers, that is an error too."""
    kafka, ours = worlds["kafka"].answers, worlds["pykbroker"].answers
    found = [
        Difference(number, label, *difference)
        for number, ((label, theirs), (_, mine)) in enumerate(zip(kafka, ours, strict=False))
        for difference in differences(theirs, mine)
    ]
    assert found or len(kafka) == len(ours)
    for world in worlds.values():
        world.answers.clear()
    return found
