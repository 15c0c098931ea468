"""A mirror: topics copied to another Kafka as they are, and the offsets of groups translated.

    topics `payments-log` and `audit-log` of one Kafka
      -> stage mirror, query `mirror`: the same topics of the other Kafka, with keys, values (tombstones too), headers,
         timestamps and partitions, in the same order; each record once, by transactions on the other side
         and topic `offset-syncs` there: runs of records, with the offset of the first on both sides
      -> stage groups: the committed offsets of each group, translated by the runs and committed on the other side

Spark's Kafka sink cannot set a record's timestamp, and is at-least-once: the mirror has a writer of its own. Its
transactions put a marker behind each batch, so that offsets differ on both sides; a run says by how much.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline.model import Pipeline
from pipeline.outcome import Outcome, Read, read_topic
from pipeline.records import Record, Results, Stage, Topic, rows_once
from pipeline.schemas import at, ms
from pipeline.streams import Streams
from pipeline.transactional import TransactionalSink, rows_of

if TYPE_CHECKING:
    from pipeline.systems import Systems
    from pyspark.sql import DataFrame

TOPICS = {"payments-log": 3, "audit-log": 2}
SYNCS = "offset-syncs"
GROUPS = {"readers-early": 0.2, "readers-late": 0.9, "readers-done": 1.0}
"""Groups of the source, and the share of each partition that they have read."""
TIMEOUT_S = 30.0
RETRY_PAUSE_S = 0.5
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OffsetRun:
    """`count` records of a partition that follow each other on both sides, from these offsets on."""

    topic: str
    partition: int
    source: int
    target: int
    count: int


class Mirror(Pipeline):
    """The pipeline; see the module's text."""

    name = "mirror"
    summary = "topics copied to another Kafka with keys, headers, timestamps and partitions; groups' offsets translated"
    guarantee = "each record once, by transactions on the other side, which commit the offset runs, too"
    topics = {name: Topic(partitions) for name, partitions in TOPICS.items()}
    second_topics = topics | {SYNCS: Topic(1)}
    needs_second_cluster = True
    stages = {
        "mirror": Stage("records are copied as they come"),
        "groups": Stage("offsets of groups are translated", is_batch=True),
    }

    def make_input(self, seed: int, size: int) -> dict[str, list[Record]]:
        rng = random.Random(seed)  # noqa: S311
        return {"mirror": [_record(rng, number, 3600 * number / size) for number in range(size)]}

    def expected(self, records: Sequence[Record]) -> Results:
        places: dict[tuple[str, int], int] = {}
        copies = {}
        for record in records:
            assert record.partition is not None
            place = places.setdefault((record.topic, record.partition), 0)
            places[record.topic, record.partition] += 1
            copies[f"{record.topic} {record.partition} {place}"] = _row(record, record.key)
        groups = {
            f"{group} {topic} {partition}": int(count * share)
            for group, share in GROUPS.items()
            for (topic, partition), count in places.items()
        }
        return {"copies": copies, "groups": groups}

    def accompany(self, systems: Systems, stage: str) -> None:
        if stage == "mirror":
            counts = Counter((systems.real_name(record.topic), record.partition or 0) for record in systems.records)
            for group, share in GROUPS.items():
                offsets = {place: int(count * share) for place, count in counts.items()}
                _commit(systems.cluster.bootstrap_servers, f"{group}{systems.suffix}", offsets)

    def start(self, streams: Streams, stage: str) -> None:
        if stage == "mirror":
            start_mirror(streams)
        else:
            translate_groups(streams)

    def results(self, outcome: Outcome) -> Results:
        copies: dict[str, Any] = {}
        groups: dict[str, int] = {}
        for topic, partitions in TOPICS.items():
            found = outcome.read_second(topic)
            for partition in range(partitions):
                own = [record for record in found if record.partition == partition]
                copies |= rows_once(
                    (f"{topic} {partition} {n}", _row(record, record.raw_key)) for n, record in enumerate(own)
                )
                for group in GROUPS:
                    offset = _committed(outcome, group, topic, partition)
                    groups[f"{group} {topic} {partition}"] = sum(record.offset < offset for record in own)
        return {"copies": copies, "groups": groups}


def start_mirror(streams: Streams) -> None:
    """The query that copies."""
    from pyspark.sql import functions as f

    source = streams.read(*TOPICS, includeHeaders="true")
    rows = source.withColumn("timestamp_ms", f.unix_millis("timestamp")).drop("timestamp", "timestampType")
    syncs = streams.topic(SYNCS)
    sink = TransactionalSink(streams.second_bootstrap_servers, f"mirror-{syncs}", syncs)

    def write(batch: DataFrame, batch_id: int) -> None:
        given = rows_of(batch.orderBy("topic", "partition", "offset"))
        offsets: list[tuple[str, int, int, int]] = []

        def begin() -> Iterable[Mapping[str, Any]]:
            offsets.clear()  # of an attempt that was aborted
            return given()

        def delivered(row: Mapping[str, Any], partition: int, offset: int) -> None:
            offsets.append((row["topic"], partition, row["offset"], offset))

        def closing() -> Iterable[Mapping[str, Any]]:
            for run in runs_of(offsets):
                yield {"topic": syncs, "key": f"{run.topic}-{run.partition}", "value": json.dumps(asdict(run))}

        sink.write(begin, batch_id, delivered, closing)

    streams.each_batch(rows, "mirror", write)


def runs_of(offsets: Iterable[tuple[str, int, int, int]]) -> list[OffsetRun]:
    """Runs of (topic, partition, offset at the source, offset at the target)."""
    runs: list[OffsetRun] = []
    for topic, partition, source, target in sorted(offsets):
        last = runs[-1] if runs else None
        if (
            last is not None
            and (last.topic, last.partition) == (topic, partition)
            and (last.source + last.count, last.target + last.count) == (source, target)
        ):
            runs[-1] = OffsetRun(topic, partition, last.source, last.target, last.count + 1)
        else:
            runs.append(OffsetRun(topic, partition, source, target, 1))
    return runs


def translate(offset: int, runs: Sequence[OffsetRun]) -> int:
    """The offset at the target of the first record at or behind an offset of the source.

    `runs` are those of one partition in their order. Behind all records it is the offset behind the last; without
    runs it is 0.
    """
    for run in runs:
        if offset < run.source + run.count:
            return run.target + max(0, offset - run.source)
    return runs[-1].target + runs[-1].count if runs else 0


def translate_groups(streams: Streams) -> None:
    """Commit the offsets of all groups of the source on the other side; done again, it does the same."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    runs: dict[tuple[str, int], list[OffsetRun]] = {}
    for record in read_topic(streams.second_bootstrap_servers, streams.topic(SYNCS)):
        run = OffsetRun(**json.loads(record.value or b"{}"))
        runs.setdefault((run.topic, run.partition), []).append(run)
    admin: Any = AdminClient({"bootstrap.servers": streams.bootstrap_servers, "log_level": 0})
    names = {streams.topic(name) for name in TOPICS}
    for group in again_while_away(lambda: all_groups(admin)):
        request = [ConsumerGroupTopicPartitions(group)]
        (future,) = admin.list_consumer_group_offsets(request, request_timeout=TIMEOUT_S).values()
        translated = {
            (one.topic, one.partition): translate(
                one.offset, sorted(runs.get((one.topic, one.partition), ()), key=lambda run: run.source)
            )
            for one in future.result().topic_partitions
            if one.topic in names and one.offset >= 0
        }
        if translated:
            _commit(streams.second_bootstrap_servers, group, translated)


def all_groups(admin: Any) -> list[str]:
    """The ids of all groups. Raises KafkaException if a node did not answer, as its groups are not in the list then."""
    listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result()
    for error in listed.errors:
        raise error
    return [group.group_id for group in listed.valid]


def again_while_away(action: Callable[[], T]) -> T:
    """The result of an action that is tried again while a broker is away. Raises KafkaException after half a minute."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return action()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_PAUSE_S)


def _commit(bootstrap_servers: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets of a group without members."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]

    def commit() -> None:
        consumer = Consumer(settings)
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
        finally:
            consumer.close()

    again_while_away(commit)


def _committed(outcome: Outcome, group: str, topic: str, partition: int) -> int:
    from confluent_kafka import Consumer, TopicPartition

    name = f"{group}{outcome.suffix}"
    consumer = Consumer({"bootstrap.servers": outcome.second_bootstrap_servers, "group.id": name, "log_level": 0})
    try:
        (committed,) = consumer.committed([TopicPartition(outcome.real_name(topic), partition)], TIMEOUT_S)
    finally:
        consumer.close()
    return int(committed.offset)


def _row(record: Record | Read, key: bytes | None) -> dict[str, Any]:
    return {
        "key": None if key is None else key.hex(),
        "value": None if record.value is None else record.value.hex(),
        "timestamp_ms": record.timestamp_ms,
        "headers": [[name, value.hex()] for name, value in record.headers],
    }


def _record(rng: random.Random, number: int, seconds: float) -> Record:
    topic = rng.choice(list(TOPICS))
    key = None if rng.random() < 0.2 else f"key-{rng.randrange(50)}".encode()
    value = None if rng.random() < 0.1 else rng.randbytes(rng.randrange(60))
    names = rng.choices(("trace", "source", "trace"), k=rng.randrange(4))
    headers = tuple((name, rng.randbytes(rng.randrange(8))) for name in names)
    partition = rng.randrange(TOPICS[topic])
    return Record(topic, key, value, ms(at(seconds)) + number % 7, headers, partition)


PIPELINE = Mirror()
