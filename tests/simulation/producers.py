"""Producers: idempotent with acks=all, as the Java client retries; careless with acks=1, whose records may be lost."""

from __future__ import annotations

from typing import Any

import trio

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from tests.simulation.client import Client, Unreachable
from tests.simulation.history import History

RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


def batch_of(client: Client, values: list[bytes], **options: Any) -> bytes:
    """A batch as a client makes it."""
    now_ms = client.world.wall_clock_ms()
    return build_batch([Record(n, now_ms, None, value, ()) for n, value in enumerate(values)], **options)


class IdempotentProducer:
    """Writes records, each with a value of its own; a batch is sent until it is acknowledged.

    One batch at a time per partition is under way, so a gap in the sequence can only mean that acknowledged records
    are lost.
    """

    def __init__(self, client: Client, history: History, topic: str, partitions: int) -> None:
        self._client = client
        self._history = history
        self._topic = topic
        self._partitions = partitions
        self._sequences = dict.fromkeys(range(partitions), 0)
        self._producer = -1, -1
        self.must_stop = False

    async def run(self) -> None:
        """Until `must_stop`, and then until what was begun is acknowledged."""
        await self._begin()
        async with trio.open_nursery() as nursery:
            for partition in range(self._partitions):
                nursery.start_soon(self._write, partition)

    async def _begin(self) -> None:
        client = self._client
        while True:
            try:
                response = await client.call_any(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                )
            except Unreachable as error:
                client.say(f"no producer id: {error}")
            else:
                if response.error_code == ErrorCode.NONE:
                    self._producer = response.producer_id, response.producer_epoch
                    client.say(f"is producer {response.producer_id}")
                    return
                client.say(f"no producer id: {ErrorCode(response.error_code).name}")
            await client.pause()

    async def _write(self, partition: int) -> None:
        client, history = self._client, self._history
        number = 0
        while not self.must_stop:
            values = []
            for _ in range(client.random.choice((1, 1, 2, 3))):
                values.append(f"{client.name}/{partition}/{number}".encode())
                number += 1
            for value in values:
                history.sending(value, self._topic, partition)
            await self._deliver(partition, values)
            await trio.sleep(client.random.uniform(0.0, 0.3))

    async def _deliver(self, partition: int, values: list[bytes]) -> None:
        client, topic = self._client, self._topic
        sequence = self._sequences[partition]
        producer_id, epoch = self._producer
        data = batch_of(client, values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        while True:
            try:
                answer = await client.produce(topic, partition, data)
            except Unreachable as error:
                client.say(f"{topic}-{partition} #{sequence}: {error}")
                await client.pause()
                continue
            code = ErrorCode(answer.error_code)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                break
            client.say(f"{topic}-{partition} #{sequence}: {code.name}")
            if code not in RETRIABLE:
                client.world.broken(f"{client.name}: {topic}-{partition} sequence {sequence} is refused: {code.name}")
                return
            client.forget(topic, partition)
            await client.pause()
        offset = answer.base_offset if code == ErrorCode.NONE else -1
        client.say(f"{topic}-{partition} #{sequence} +{len(values)} is at {offset}")
        for number, value in enumerate(values):
            self._history.acknowledged(value, offset + number if offset >= 0 else -1)
        self._sequences[partition] = sequence + len(values)


class CarelessProducer:
    """Writes with acks=1, or 0, and does not look back: what it writes may be cut off again by the next leader."""

    def __init__(self, client: Client, history: History, topic: str, partitions: int) -> None:
        self._client = client
        self._history = history
        self._topic = topic
        self._partitions = partitions
        self.must_stop = False

    async def run(self) -> None:
        client = self._client
        number = 0
        while not self.must_stop:
            partition = client.random.randrange(self._partitions)
            value = f"{client.name}/{partition}/{number}".encode()
            number += 1
            try:
                answer = await client.produce(self._topic, partition, batch_of(client, [value]), acks=1)
            except Unreachable as error:
                client.say(f"{self._topic}-{partition}: {error}")
                await client.pause()
            else:
                if answer.error_code != ErrorCode.NONE:
                    client.forget(self._topic, partition)
            await trio.sleep(client.random.uniform(0.05, 0.5))
