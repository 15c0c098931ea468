"""aiokafka, unchanged: producer, consumer, groups and its admin client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    OffsetAndMetadata,
    TopicPartition,
)
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from interop_tests.clients import CODECS, create_topic
from interop_tests.wire import RECENT_MS, Connection, batch_codecs

pytestmark = [pytest.mark.area("records"), pytest.mark.client("aiokafka")]

TIMEOUT_S = 30.0
Unique = Callable[[str], str]


def run(test: Coroutine[Any, Any, None]) -> None:
    """Runs the asynchronous part of a test, for a limited time."""

    async def limited() -> None:
        await asyncio.wait_for(test, 2 * TIMEOUT_S)

    asyncio.run(limited())


@asynccontextmanager
async def producer_of(bootstrap: str, **config: Any) -> AsyncIterator[AIOKafkaProducer]:
    """A producer that is stopped at the end."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **config)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consumer_of(bootstrap: str, *topics: str, **config: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer from the beginning that is stopped at the end."""
    settings = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 200, "metadata_max_age_ms": 1000, **config}
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, **settings)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def admin_of(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """An admin client that is closed at the end."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def read(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord[bytes, bytes]]:
    """The next records, in the order in which they came."""
    found: list[ConsumerRecord[bytes, bytes]] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        for records in (await consumer.getmany(timeout_ms=200)).values():
            found += records
    return found


async def require_end(consumer: AIOKafkaConsumer, topic: str, end: int) -> None:
    """Fails when there is more in a topic of one partition than the records before this offset, which were read."""
    partition = TopicPartition(topic, 0)
    assert await consumer.end_offsets([partition]) == {partition: end}, "nothing behind the records that were sent"


async def until(condition: Callable[[], object], what: str) -> None:
    """Lets the clients work until the condition holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        await asyncio.sleep(0.02)


async def produce(bootstrap: str, topic: str, count: int, start: int = 0) -> None:
    """Numbers as values, a second apart in time."""
    async with producer_of(bootstrap) as producer:
        futures = [
            await producer.send(topic, b"%d" % number, timestamp_ms=RECENT_MS + 1000 * number)
            for number in range(start, start + count)
        ]
        await asyncio.gather(*futures)


def test_record_whole(bootstrap: str, name: str) -> None:
    """Key, value, headers, nulls and timestamp arrive as they were sent; the acknowledgement says where they are."""

    async def body() -> None:
        topic = create_topic(bootstrap, name, 2)
        headers = [("a", b"1"), ("empty", b""), ("a", b"2")]
        async with producer_of(bootstrap, acks="all") as producer:
            sent = await producer.send_and_wait(
                topic, b"v", key=b"k", partition=1, timestamp_ms=RECENT_MS, headers=headers
            )
            assert (sent.topic, sent.partition, sent.offset, sent.timestamp_type) == (topic, 1, 0, 0)
            assert (await producer.send_and_wait(topic, None, key=b"tombstone", partition=1)).offset == 1
        async with consumer_of(bootstrap, topic) as consumer:
            first, second = await read(consumer, 2)
        assert (first.key, first.value, first.timestamp, list(first.headers)) == (b"k", b"v", RECENT_MS, headers)
        assert (second.key, second.value, second.offset) == (b"tombstone", None, 1)

    run(body())


@pytest.mark.area("codecs")
@pytest.mark.parametrize("codec", CODECS)
def test_codecs(codec: str, bootstrap: str, name: str) -> None:
    """Batches that aiokafka compresses are stored with their codec and read by aiokafka."""

    async def body() -> None:
        topic = create_topic(bootstrap, name)
        values = [b"%d the same again and again and again" % number for number in range(50)]
        async with producer_of(
            bootstrap, compression_type=None if codec == "none" else codec, linger_ms=20
        ) as producer:
            await asyncio.gather(*[await producer.send(topic, value) for value in values])
        with Connection(bootstrap) as connection:
            assert batch_codecs(connection.fetch(topic, 0, 0)) == {CODECS.index(codec)}
        async with consumer_of(bootstrap, topic) as consumer:
            assert [record.value for record in await read(consumer, 50)] == values
            await require_end(consumer, topic, 50)

    run(body())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(acks: object, bootstrap: str, name: str) -> None:
    """acks 0, 1 and all: every record is stored, in order."""

    async def body() -> None:
        topic = create_topic(bootstrap, name)
        async with producer_of(bootstrap, acks=acks) as producer:
            for number in range(10):
                await producer.send_and_wait(topic, b"%d" % number)
        async with consumer_of(bootstrap, topic) as consumer:
            assert [record.value for record in await read(consumer, 10)] == [b"%d" % number for number in range(10)]
            await require_end(consumer, topic, 10)

    run(body())


def test_idempotent_producer(bootstrap: str, name: str) -> None:
    """An idempotent producer gets an id, and its records are stored once, in order."""

    async def body() -> None:
        topic = create_topic(bootstrap, name)
        async with producer_of(bootstrap, enable_idempotence=True) as producer:
            await asyncio.gather(*[await producer.send(topic, b"%d" % number) for number in range(500)])
        async with consumer_of(bootstrap, topic) as consumer:
            assert [int(record.value) for record in await read(consumer, 500)] == list(range(500))
            await require_end(consumer, topic, 500)

    run(body())


def test_log_append_time(bootstrap: str, name: str) -> None:
    """With message.timestamp.type=LogAppendTime the broker's clock counts, in the acknowledgement and the record."""

    async def body() -> None:
        topic = create_topic(bootstrap, name, message_timestamp_type="LogAppendTime")
        before_ms = time.time() * 1000 - 5000
        async with producer_of(bootstrap) as producer:
            sent = await producer.send_and_wait(topic, b"v", timestamp_ms=RECENT_MS)
        assert before_ms < sent.timestamp < time.time() * 1000 + 5000
        async with consumer_of(bootstrap, topic) as consumer:
            (record,) = await read(consumer, 1)
        assert (record.timestamp, record.timestamp_type) == (sent.timestamp, 1)

    run(body())


def test_topic_made_by_first_use(bootstrap: str, name: str) -> None:
    """auto.create.topics.enable: a producer's first Metadata makes the topic."""

    async def body() -> None:
        async with producer_of(bootstrap) as producer:
            assert (await producer.send_and_wait(name, b"first")).offset == 0

    run(body())


@pytest.mark.area("errors")
def test_record_too_large(bootstrap: str, name: str) -> None:
    """A batch over max.message.bytes is MESSAGE_TOO_LARGE, and the next one is taken."""

    async def body() -> None:
        topic = create_topic(bootstrap, name, max_message_bytes="1000")
        async with producer_of(bootstrap) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, b"x" * 2000)
            assert (await producer.send_and_wait(topic, b"x" * 500)).offset == 0

    run(body())


@pytest.mark.area("errors")
def test_offset_out_of_range(bootstrap: str, name: str) -> None:
    """An offset behind the end is OFFSET_OUT_OF_RANGE when the consumer has no policy to reset it."""

    async def body() -> None:
        topic = create_topic(bootstrap, name)
        await produce(bootstrap, topic, 3)
        async with consumer_of(bootstrap, auto_offset_reset="none") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 99)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getone()

    run(body())


@pytest.mark.area("offsets")
def test_offsets(bootstrap: str, name: str) -> None:
    """Beginning, end, offsets by time, and seeking to each of them."""

    async def body() -> None:
        topic = create_topic(bootstrap, name)
        await produce(bootstrap, topic, 10)
        partition = TopicPartition(topic, 0)
        async with consumer_of(bootstrap) as consumer:
            consumer.assign([partition])
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 10}
            by_time = (await consumer.offsets_for_times({partition: RECENT_MS + 3500}))[partition]
            assert (by_time.offset, by_time.timestamp) == (4, RECENT_MS + 4000)
            assert (await consumer.offsets_for_times({partition: RECENT_MS + 99_000}))[partition] is None
            consumer.seek(partition, 7)
            assert [record.offset for record in await read(consumer, 3)] == [7, 8, 9]
            await consumer.seek_to_beginning(partition)
            assert (await read(consumer, 10))[0].offset == 0
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 10

    run(body())


@pytest.mark.area("groups")
def test_group_commits_and_goes_on(bootstrap: str, name: str, unique: Unique) -> None:
    """A group's commit, with its metadata, is where its next member goes on."""

    async def body() -> None:
        topic, group = create_topic(bootstrap, name), unique("group")
        partition = TopicPartition(topic, 0)
        await produce(bootstrap, topic, 10)
        async with consumer_of(bootstrap, topic, group_id=group, enable_auto_commit=False) as consumer:
            await read(consumer, 10)
            await consumer.commit({partition: OffsetAndMetadata(6, "note")})
            assert await consumer.committed(partition) == 6
        async with consumer_of(bootstrap, topic, group_id=group) as consumer:
            assert [record.offset for record in await read(consumer, 4)] == [6, 7, 8, 9]
        async with admin_of(bootstrap) as admin:
            # Leaving the group committed what was read.
            assert (await admin.list_consumer_group_offsets(group))[partition].offset == 10

    run(body())


@pytest.mark.area("groups")
def test_members_come_and_go(bootstrap: str, name: str, unique: Unique) -> None:
    """Each rebalance spreads all partitions over whoever is there, and each record is read once."""

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def __init__(self) -> None:
            self.calls: list[str] = []

        def on_partitions_revoked(self, revoked: object) -> None:
            self.calls.append("revoked")

        def on_partitions_assigned(self, assigned: object) -> None:
            self.calls.append("assigned")

    async def body() -> None:
        topic, group = create_topic(bootstrap, name, 6), unique("group")
        got: list[int] = []
        listener = Listener()

        async def keep_reading(consumer: AIOKafkaConsumer) -> None:
            async for record in consumer:
                got.append(int(record.value))  # noqa: PERF401 (each is needed as it comes)

        async with AsyncExitStack() as stack:
            members: list[AIOKafkaConsumer] = []
            for size in (1, 2, 3):
                member = await stack.enter_async_context(consumer_of(bootstrap, group_id=group))
                member.subscribe([topic], listener=listener if size == 1 else None)
                members.append(member)
                reader = asyncio.create_task(keep_reading(member))
                stack.callback(reader.cancel)
                await until(lambda: spread(members), f"{len(members)} members to share")
            await produce(bootstrap, topic, 60)
            await until(lambda: len(got) >= 60, "all records")
            await members.pop().stop()
            await until(lambda: spread(members), "two members to share what the third had")
            await produce(bootstrap, topic, 60, start=60)
            await until(lambda: len(got) >= 120, "all records")
        assert sorted(got) == list(range(120))
        assert listener.calls[:2] == ["revoked", "assigned"]
        assert listener.calls.count("assigned") >= 4

    def spread(members: list[AIOKafkaConsumer]) -> bool:
        owned = sorted(tp.partition for member in members for tp in member.assignment())
        return owned == list(range(6)) and {len(member.assignment()) for member in members} == {6 // len(members)}

    run(body())


@pytest.mark.area("groups")
def test_subscribe_by_pattern(bootstrap: str, name: str, unique: Unique) -> None:
    """A topic made after the subscription is found by the next metadata."""

    async def body() -> None:
        async with consumer_of(bootstrap, group_id=unique("group")) as consumer:
            consumer.subscribe(pattern=f"^{name}-.*")
            for letter in "ab":
                topic = create_topic(bootstrap, f"{name}-{letter}")
                await produce(bootstrap, topic, 1)
                assert [record.topic for record in await read(consumer, 1)] == [topic]

    run(body())


@pytest.mark.area("admin")
def test_admin_topics(bootstrap: str, name: str) -> None:
    """Create, list, describe, grow and delete topics; errors of what exists and of what is gone."""

    async def body() -> None:
        async with admin_of(bootstrap) as admin:
            new = NewTopic(name, num_partitions=2, replication_factor=1, topic_configs={"retention.ms": "60000"})
            assert errors_of(await admin.create_topics([new])) == [0]
            assert errors_of(await admin.create_topics([new])) == [TopicAlreadyExistsError.errno]
            await until_async(lambda: admin.list_topics(), lambda topics: name in topics)
            (described,) = await admin.describe_topics([name])
            assert [partition["partition"] for partition in described["partitions"]] == [0, 1]
            await admin.create_partitions({name: NewPartitions(3)})

            async def partitions() -> int:
                (found,) = await admin.describe_topics([name])
                return len(found["partitions"])

            await until_async(partitions, lambda count: count == 3)
            await admin.delete_topics([name])
            await until_async(lambda: admin.list_topics(), lambda topics: name not in topics)
            deleted = await admin.delete_topics([name])
            assert [code for _, code in deleted.topic_error_codes] == [UnknownTopicOrPartitionError.errno]

    run(body())


def errors_of(response: Any) -> list[int]:
    """The error codes of a CreateTopics reply."""
    return [error[1] for error in response.topic_errors]


async def until_async(ask: Callable[[], Any], holds: Callable[[Any], bool]) -> None:
    """Asks until the answer is the one that is waited for."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds(answer := await ask()):
        assert time.monotonic() < deadline, answer
        await asyncio.sleep(0.05)


@pytest.mark.area("admin")
def test_admin_configs(bootstrap: str, name: str) -> None:
    """A topic's setting is changed by AlterConfigs and described."""

    async def body() -> None:
        create_topic(bootstrap, name)
        async with admin_of(bootstrap) as admin:
            await admin.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "123456"})]
            )

            async def retention() -> str:
                asked = ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": None})
                (response,) = await admin.describe_configs([asked])
                ((_, _, _, _, entries),) = response.resources
                return str(entries[0][1])

            await until_async(retention, lambda value: value == "123456")

    run(body())


@pytest.mark.area("admin")
def test_admin_groups_and_cluster(bootstrap: str, name: str, unique: Unique) -> None:
    """List and describe groups, their coordinator, and the cluster."""

    async def body() -> None:
        topic, group = create_topic(bootstrap, name), unique("group")
        async with consumer_of(bootstrap, topic, group_id=group) as consumer, admin_of(bootstrap) as admin:
            await until(consumer.assignment, "an assignment")
            assert (group, "consumer") in await admin.list_consumer_groups()
            (response,) = await admin.describe_consumer_groups([group])
            ((error, named, state, kind, *_),) = response.groups
            assert (error, named, state, kind) == (0, group, "Stable", "consumer")
            cluster = await admin.describe_cluster()
            assert cluster["cluster_id"]
            nodes = {broker["node_id"] for broker in cluster["brokers"]}
            assert await admin.find_coordinator(group) in nodes

    run(body())


@pytest.mark.area("admin")
def test_delete_records(bootstrap: str, name: str) -> None:
    """DeleteRecords: the log begins at that offset."""

    async def body() -> None:
        topic = create_topic(bootstrap, name)
        partition = TopicPartition(topic, 0)
        await produce(bootstrap, topic, 10)
        async with admin_of(bootstrap) as admin:
            assert await admin.delete_records({partition: RecordsToDelete(before_offset=6)}) == {partition: 6}
            with pytest.raises(KafkaError):
                await admin.delete_records({partition: RecordsToDelete(before_offset=600)})
        async with consumer_of(bootstrap, topic) as consumer:
            assert [record.offset for record in await read(consumer, 4)] == [6, 7, 8, 9]

    run(body())
