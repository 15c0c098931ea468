"""One way to say "produce these" and "read those" with aiokafka, which not every environment of these tests has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import aiokafka

from interop_tests.clients import Message
from interop_tests.reading import TIMEOUT_S, Place, read_to_ends


def aiokafka_produce(bootstrap: str, topic: str, messages: Iterable[Message], codec: str = "none") -> None:
    """Sends in order and waits until all are acknowledged; raises on the first that is not."""

    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5
        )
        await producer.start()
        try:
            sent = [await producer.send(topic, key=message.key, value=message.value) for message in messages]
            await asyncio.wait_for(asyncio.gather(*sent), TIMEOUT_S)
        finally:
            await producer.stop()

    asyncio.run(run())


class AioKafkaReader:
    """An aiokafka consumer as `read_to_ends` wants it; each call runs the loop that the consumer belongs to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, consumer: aiokafka.AIOKafkaConsumer) -> None:
        self._loop = loop
        self._consumer = consumer

    def ends(self) -> dict[Place, int]:
        """By the isolation level of the consumer."""
        ends = self._loop.run_until_complete(self._consumer.end_offsets(list(self._consumer.assignment())))
        return {(place.topic, place.partition): end for place, end in ends.items()}

    def poll(self) -> list[Message]:
        """The records that arrive within 200 ms."""
        polled = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=200))
        return [
            Message(record.key, record.value, record.partition, record.offset)
            for records in polled.values()
            for record in records
        ]

    def position(self, place: Place) -> int:
        """It passes control records and aborted ones."""
        return int(self._loop.run_until_complete(self._consumer.position(aiokafka.TopicPartition(*place))))


def aiokafka_consume(
    bootstrap: str, topic: str, count: int = 0, *, isolation: str = "read_uncommitted"
) -> list[Message]:
    """All records of a topic from beginning to end, without a group; waits until there are `count` at least."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()

        async def make() -> aiokafka.AIOKafkaConsumer:
            return aiokafka.AIOKafkaConsumer(
                topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=isolation
            )

        consumer = runner.run(make())
        runner.run(consumer.start())
        try:
            return read_to_ends(AioKafkaReader(loop, consumer), count)
        finally:
            runner.run(consumer.stop())
