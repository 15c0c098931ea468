"""One way to say "produce these" and "read those" with aiokafka, which not every environment of these tests has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import aiokafka

from interop_tests.clients import TIMEOUT_S, Message


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


def aiokafka_consume(bootstrap: str, topic: str, count: int) -> list[Message]:
    """Reads all partitions of a topic from their beginning, without a group, until `count` records are there."""

    async def run() -> list[Message]:
        consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        found: list[Message] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} records"
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [Message(record.key, record.value, record.partition, record.offset) for record in records]
        finally:
            await consumer.stop()
        return found

    return asyncio.run(run())
