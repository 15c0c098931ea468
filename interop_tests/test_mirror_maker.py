"""MirrorMaker 2 between two brokers, both ways: records, topic settings, offsets of groups; it dies and goes on.

At the end the mirror of spark_jobs copies topics that MirrorMaker copies, too, and both copies are compared.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import create_topic, position_of, topic_config, wait_until
from interop_tests.conftest import StartBroker
from interop_tests.connect_worker import QUICK, TIMEOUT_S, ConnectProcess
from interop_tests.kafka_jars import framework_jars
from interop_tests.made_once import or_skip
from interop_tests.ports import free_port
from interop_tests.wire import RECENT_MS

pytestmark = [
    pytest.mark.java,
    pytest.mark.own_broker,
    pytest.mark.area("frameworks"),
    pytest.mark.client("MirrorMaker 2"),
]

# Workers of MirrorMaker that were killed are missed soon.
QUICK_GROUPS = {"group.min.session.timeout.ms": "1000"}
SESSION_TIMEOUT_MS = 3000
PARTITIONS = 3
# Topics of the mirror of spark_jobs with their partitions; groups with the number of records that each leaves.
MIRRORED = {"payments-log": 3, "audit-log": 2}
LEFT = {"readers-behind": 7, "readers-done": 0}
SPARK_JOBS = Path(__file__).resolve().parent.parent / "spark_jobs"
JOB_TIMEOUT_S = 180.0
UNREAD = 5
"""Records of each partition that a group has not read when its offsets are looked for on the other side."""


class Mirrored(NamedTuple):
    """A record as it must be on both sides."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Side:
    """One of the two clusters, with the topic that is made there.

    Attributes:
        sent: the number of records of the topic, of each partition as many.
    """

    def __init__(self, alias: str, bootstrap: str) -> None:
        self.alias = alias
        self.bootstrap = bootstrap
        self.topic = f"orders-of-{alias}"
        self.sent = 0

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def send(self, count: int) -> None:
        """Records with keys, timestamps and headers, each partition in turn."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(self.sent, self.sent + count):
            producer.produce(
                self.topic,
                f"{self.alias}-{number}".encode(),
                None if number % 5 == 0 else f"key-{number % 7}".encode(),
                partition=number % PARTITIONS,
                timestamp=RECENT_MS + number,
                headers=[("number", str(number).encode())],
            )
        self.sent += count
        assert producer.flush(30) == 0

    def read(self, topic: str, count: int, partitions: int = PARTITIONS) -> list[Mirrored]:
        """Committed records of a topic, partition by partition; waits for `count` and then for a moment more."""
        consumer = self._consumer("unused")
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
            return [_mirrored(message) for message in _read(consumer, count)]
        finally:
            consumer.close()

    def unread(self, group: str, topic: str, count: int, partitions: int) -> list[Mirrored]:
        """Those of a topic's `count` records that a group has not read: a position may be behind the last of them."""
        consumer = self._consumer(group)
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
            offsets = self.committed(group, topic, partitions)
            messages = [(position_of(message), message) for message in _read(consumer, count)]
            return [_mirrored(one) for ((_, partition), offset), one in messages if offset >= offsets[partition]]
        finally:
            consumer.close()

    def read_as(self, group: str, topic: str, count: int) -> list[Mirrored]:
        """Records from where a group stands."""
        consumer = self._consumer(group)
        try:
            places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            consumer.assign(consumer.committed(places, 30))
            return [_mirrored(message) for message in _read(consumer, count)]
        finally:
            consumer.close()

    def commit(self, group: str) -> None:
        """Commits all but the last records of each partition."""
        consumer = self._consumer(group)
        try:
            offset = self.sent // PARTITIONS - UNREAD
            places = [TopicPartition(self.topic, number, offset) for number in range(PARTITIONS)]
            consumer.commit(offsets=places, asynchronous=False)
        finally:
            consumer.close()

    def committed(self, group: str, topic: str, partitions: int = PARTITIONS) -> list[int]:
        """Offsets of a group; below 0 where it has none."""
        consumer = self._consumer(group)
        try:
            found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], 30)
            return [place.offset for place in found]
        finally:
            consumer.close()

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )


def _read(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []

    def is_read() -> bool:
        messages = consumer.consume(500, 0.3)
        for message in messages:
            assert message.error() is None, message.error()
            found.append(message)
        return len(found) >= count and not messages

    wait_until(is_read, f"{count} records, {{}} so far".format, found, timeout_s=TIMEOUT_S)
    return sorted(found, key=lambda message: position_of(message)[0])


def _mirrored(message: Message) -> Mirrored:
    place, _ = position_of(message)
    _, timestamp_ms = message.timestamp()
    headers = cast("Iterable[tuple[str, bytes]]", message.headers() or ())
    return Mirrored(place[1], timestamp_ms, message.key(), message.value(), tuple(headers))


@pytest.fixture(scope="module")
def sides(start_broker: StartBroker) -> Iterator[tuple[Side, Side]]:
    """Two brokers."""
    brokers: list[BrokerProcess] = [start_broker(f"mirror-{alias}", QUICK_GROUPS) for alias in ("east", "west")]
    east, west = brokers
    yield Side("east", east.bootstrap), Side("west", west.bootstrap)
    for broker in brokers:
        broker.kill()


class Mirror:
    """MirrorMaker 2 between two sides, exactly once (KIP-618, KIP-710), which keeps nothing on a disk."""

    def __init__(self, libs: Path, sides: tuple[Side, Side], folder: Path) -> None:
        port = free_port()
        self._libs = libs
        self._folder = folder
        self._properties = {
            "clusters": "east,west",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{port}",
            "topics": "orders-.*,.*-log",
            "groups": "readers-.*",
            "replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "emit.checkpoints.interval.seconds": "1",
            "refresh.topics.interval.seconds": "2",
            "refresh.groups.interval.seconds": "2",
            "offset.lag.max": "0",
            "tasks.max": "1",
            **QUICK,
            "session.timeout.ms": str(SESSION_TIMEOUT_MS),
        }
        for side, other in (sides, sides[::-1]):
            self._properties |= {
                f"{side.alias}.bootstrap.servers": side.bootstrap,
                f"{side.alias}.exactly.once.source.support": "enabled",
                f"{side.alias}->{other.alias}.enabled": "true",
            }
        self.process = self.start()

    def start(self) -> ConnectProcess:
        """Starts it, for the first time or again."""
        main_class = "org.apache.kafka.connect.mirror.MirrorMaker"
        self.process = ConnectProcess(self._libs, main_class, self._properties, self._folder)
        return self.process


@pytest.fixture(scope="module")
def mirror(sides: tuple[Side, Side], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    libs = or_skip(framework_jars)
    for side in sides:
        create_topic(side.bootstrap, side.topic, PARTITIONS, retention_ms="987654321")
        side.send(600)
    made = Mirror(libs, sides, tmp_path_factory.mktemp("mirror"))
    yield made
    made.process.kill()


def wait_for_copy(from_side: Side, to_side: Side) -> str:
    """Waits for a topic's records on the other side, the same in each partition, each once; returns its name there."""
    name = f"{from_side.alias}.{from_side.topic}"
    wait_until(lambda: name in to_side.admin.list_topics().topics, f"{name} to be made", timeout_s=TIMEOUT_S)
    assert to_side.read(name, from_side.sent) == from_side.read(from_side.topic, from_side.sent)
    return name


def test_topics_and_offsets_both_ways(sides: tuple[Side, Side], mirror: Mirror) -> None:
    """Records keep partition, key, headers and timestamp, topics their settings; groups can go on at the other side.

    A group goes on no later than where it stood, so that nothing is skipped, and need not begin anew (KIP-545).
    """
    for side, other in (sides, sides[::-1]):
        name = wait_for_copy(side, other)
        assert topic_config(other.bootstrap, name)["retention.ms"] == "987654321"
    for side, other in (sides, sides[::-1]):
        group, name = f"readers-of-{side.alias}", f"{side.alias}.{side.topic}"

        def are_translated(side: Side = side, other: Side = other, group: str = group, name: str = name) -> bool:
            # MirrorMaker translates offsets of what it has copied since the task for them runs, so something must come.
            side.send(10 * PARTITIONS)
            side.commit(group)
            return min(other.committed(group, name)) > 0

        wait_until(are_translated, f"the offsets of {group}", timeout_s=TIMEOUT_S, pause_s=0.5)
        wait_for_copy(side, other)
        rest = other.read_as(group, name, PARTITIONS * UNREAD)
        for number in range(PARTITIONS):
            all_of_it = [record for record in side.read(side.topic, side.sent) if record.partition == number]
            unread = [record for record in rest if record.partition == number]
            assert UNREAD <= len(unread) < len(all_of_it)
            assert unread == all_of_it[-len(unread) :]
        # A mirrored topic is not mirrored back.
        assert f"{other.alias}.{name}" not in side.admin.list_topics().topics


def test_it_goes_on_after_its_death(sides: tuple[Side, Side], mirror: Mirror) -> None:
    """MirrorMaker that is killed with kill -9 while it copies has copied every record once, when it is back."""
    east, west = sides
    for side, other in (sides, sides[::-1]):
        wait_for_copy(side, other)
    before = east.sent
    for side in sides:
        side.send(3000)
    west.read(f"{east.alias}.{east.topic}", before + 1)
    mirror.process.kill()
    for side in sides:
        side.send(300)
    mirror.start()
    for side, other in (sides, sides[::-1]):
        wait_for_copy(side, other)


def send_to_mirrored(bootstrap: str, begin: int, count: int) -> None:
    """So many more records to each partition: without key, tombstones, headers of one name, times that go back."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic, partitions in MIRRORED.items():
        for number in range(begin, begin + count):
            headers = [("trace", str(number)), ("trace", ""), ("of", topic)]
            for partition in range(partitions):
                producer.produce(
                    topic,
                    None if number % 11 == 0 else f"{topic} {partition} {number}".encode(),
                    None if number % 5 == 0 else bytes((number % 256, partition)),
                    partition=partition,
                    timestamp=RECENT_MS + number - 500 * (number % 3),
                    headers=[(key, value.encode()) for key, value in headers[: number % 4]],
                )
    assert producer.flush(30) == 0


def commit_mirrored(bootstrap: str, ends: int) -> None:
    """Commits each group's offsets in partitions that end at an offset."""
    for group, left in LEFT.items():
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        places = [
            TopicPartition(topic, partition, ends - left)
            for topic, partitions in MIRRORED.items()
            for partition in range(partitions)
        ]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


@pytest.mark.spark
def test_the_mirror_of_spark_jobs_copies_the_same(
    sides: tuple[Side, Side], mirror: Mirror, start_broker: StartBroker, tmp_path: Path
) -> None:
    """Both copies of two topics are the originals; groups stand where they stood, by MirrorMaker's offsets or before.

    MirrorMaker knows a few places of a log and takes the last one that is not behind the group, so that a group reads
    some records again; at a log's end both mirrors are exact.
    """
    east, west = sides
    third_broker = start_broker("mirror-third")
    third = Side("third", third_broker.bootstrap)
    for topic, partitions in MIRRORED.items():
        create_topic(east.bootstrap, topic, partitions)
        create_topic(third.bootstrap, topic, partitions)
    create_topic(third.bootstrap, "offset-syncs")
    sent = 0

    def are_translated() -> bool:
        # As above: MirrorMaker translates offsets of what it has copied since the task for them runs.
        nonlocal sent
        send_to_mirrored(east.bootstrap, sent, 20)
        sent += 20
        commit_mirrored(east.bootstrap, sent)
        return all(
            min(west.committed(group, f"east.{topic}", partitions)) > 0
            for group in LEFT
            for topic, partitions in MIRRORED.items()
        )

    wait_until(are_translated, "the offsets of all groups", timeout_s=TIMEOUT_S, pause_s=0.5)
    run_mirror_job(east.bootstrap, third.bootstrap, tmp_path)
    for topic, partitions in MIRRORED.items():
        name = f"east.{topic}"
        originals = east.read(topic, sent * partitions, partitions)
        assert len(originals) == sent * partitions
        assert third.read(topic, len(originals), partitions) == originals
        assert west.read(name, len(originals), partitions) == originals
        for group in LEFT:
            compare_positions(group, topic, sides, third, len(originals))
    third_broker.kill()


def compare_positions(group: str, topic: str, sides: tuple[Side, Side], third: Side, count: int) -> None:
    """Compares what a group of the first side has not read of a topic's records with what it has not read of copies."""
    (east, west), partitions, left = sides, MIRRORED[topic], LEFT[group]
    unread = east.unread(group, topic, count, partitions)
    assert len(unread) == left * partitions
    assert third.unread(group, topic, count, partitions) == unread
    by_maker: list[Mirrored] = []

    def has_caught_up() -> bool:
        by_maker[:] = west.unread(group, f"east.{topic}", count, partitions)
        return len(by_maker) < count and (left > 0 or not by_maker)

    wait_until(has_caught_up, f"{group} in {topic}, {{}} unread".format, by_maker, timeout_s=TIMEOUT_S, pause_s=0.5)
    for partition in range(partitions):
        exact, again = ([one for one in found if one.partition == partition] for found in (unread, by_maker))
        assert again[len(again) - len(exact) :] == exact


def run_mirror_job(bootstrap: str, second_bootstrap: str, folder: Path) -> None:
    """The pipeline `mirror`, as a user starts it; it ends when it has copied what is there and translated offsets."""
    (folder / "drain-mirror").touch()  # no more input is to come
    argv = [sys.executable, str(SPARK_JOBS), "job", "mirror", f"--bootstrap-servers={bootstrap}"]
    argv += [f"--second-bootstrap-servers={second_bootstrap}", f"--folder={folder}"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "done groups" in done.stdout
