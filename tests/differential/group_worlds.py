"""Both brokers with the worlds in which scenarios of groups run, and the comparison of their answers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from interop_tests.brokers import ApacheKafkaProcess, BrokerProcess, PykbrokerProcess
from interop_tests.java_tools import JavaTools
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.groups.offset_log import decode_record
from pykbroker.groups.result import LogRecord
from pykbroker.protocol.records.batch import iter_batches
from pykbroker.protocol.records.record import Record
from tests.differential.plain import MEMBER, differences
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


def records_of_both(
    brokers: Brokers,
    worlds: Worlds,
    metadata_key: type,
    prepare: Callable[[Record, LogRecord, dict[bytes, str]], None],
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Records in `__consumer_offsets` of Apache Kafka and of pykbroker, by group id, without times and random parts.

    Args:
        brokers, worlds: those of the scenarios.
        metadata_key: key of the record of a group, whose tombstone ends it.
        prepare: called with each record, as it is and decoded, and the names of topics by id.
    """
    found = []
    for name in ("kafka", "pykbroker"):
        folder = brokers[name].data_dir
        assert folder is not None
        topics = {topic_id: topic for topic, topic_id in worlds[name].topic_ids.items()}
        found.append(_records_of(folder, topics, metadata_key, prepare))
    return found[0], found[1]


def _records_of(
    folder: Path,
    topics: dict[bytes, str],
    metadata_key: type,
    prepare: Callable[[Record, LogRecord, dict[bytes, str]], None],
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.glob(f"{OFFSETS_TOPIC}-*/*.log")):
        for batch in iter_batches(path.read_bytes()):
            for record in batch.records():
                decoded = decode_record(record.key or b"", record.value)
                assert decoded is not None
                prepare(record, decoded, topics)
                text = f"{path.parent.name} {decoded}"
                for topic_id, name in topics.items():
                    text = text.replace(repr(topic_id), name)
                text = re.sub(r"timestamp=\d+", "timestamp", MEMBER.sub("random", text))
                text = re.sub(r"metadata_hash=-?\d\d+", "metadata_hash", text)
                if isinstance(decoded.key, metadata_key) and decoded.value is None:
                    text += " the end"
                key: object = decoded.key
                group_id: str = getattr(key, "group", "") or getattr(key, "group_id", "")
                found[group_id].append(text)
    return found
