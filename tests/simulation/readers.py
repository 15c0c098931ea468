"""Readers from any replica, and those who ask for the end of a partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import trio

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.batch import RecordBatch, iter_batches
from pykbroker.protocol.records.control import ControlRecordType, control_record_type
from tests.simulation.client import Client, Unreachable
from tests.simulation.history import History

READ_UNCOMMITTED, READ_COMMITTED = 0, 1


def committed_batches(found: Any) -> Iterator[RecordBatch]:
    """The data batches of a fetched partition that its list of aborted transactions leaves, as a Java consumer does."""
    waiting = sorted((entry.first_offset, entry.producer_id) for entry in found.aborted_transactions or ())
    aborted: set[int] = set()
    for batch in iter_batches(bytes(found.records or b"")):
        while waiting and waiting[0][0] <= batch.last_offset:
            aborted.add(waiting.pop(0)[1])
        if batch.is_control:
            if any(control_record_type(record.key) is ControlRecordType.ABORT for record in batch.records()):
                aborted.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborted):
            yield batch


class Reader:
    """Follows all partitions of topics from their beginning, each time from the leader or from another replica."""

    def __init__(
        self,
        client: Client,
        history: History,
        partitions: list[tuple[str, int]],
        *,
        isolation: int,
        from_followers: bool,
    ) -> None:
        self._client = client
        self._history = history
        # Each with the greatest leader epoch that was read.
        self._positions = dict.fromkeys(partitions, (0, 0))
        self._isolation = isolation
        self._from_followers = from_followers
        self.must_stop = False

    async def run(self) -> None:
        while not self.must_stop:
            topic, partition = self._client.random.choice(list(self._positions))
            try:
                if self._client.random.random() < 0.15:
                    await self._ask_end(topic, partition)
                else:
                    await self._read(topic, partition)
            except Unreachable as error:
                self._client.say(f"cannot read {topic}-{partition}: {error}")
                self._client.forget(topic, partition)
                await self._client.pause()
            await trio.sleep(self._client.random.uniform(0.01, 0.2))

    async def _ask_end(self, topic: str, partition: int) -> None:
        before = self._history.end_before(topic, partition, self._isolation)
        end = await self._client.end_offset(topic, partition, self._isolation)
        self._history.told_end(self._client.name, topic, partition, self._isolation, end, before)

    async def _read(self, topic: str, partition: int) -> None:
        client, history = self._client, self._history
        info = await client.leader_of(topic, partition)
        node = info.leader
        if self._from_followers and info.replicas:
            node = client.random.choice(info.replicas)
        position, epoch_read = self._positions[topic, partition]
        life = client.world.life_of(node)
        before = history.high_watermark_before(topic, partition, node, life)
        epoch = client.random.choice((-1, info.leader_epoch))
        found = await client.fetch(
            node,
            topic,
            partition,
            position,
            isolation=self._isolation,
            epoch=epoch,
            max_wait_ms=client.random.choice((0, 100, 300)),
        )
        code = ErrorCode(found.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and node == info.leader and epoch >= epoch_read:
            # A new leader may not know yet how far its log is committed, but it has all that was read.
            client.world.broken(f"{client.name}: {topic}-{partition} offset {position} is out of range on its leader")
        if code != ErrorCode.NONE:
            client.say(f"{topic}-{partition} on {node}: {code.name}")
            client.forget(topic, partition)
            await client.pause()
            return
        if life == client.world.life_of(node):
            history.told_high_watermark(client.name, topic, partition, node, life, found.high_watermark, before)
        bound = found.high_watermark if self._isolation == READ_UNCOMMITTED else found.last_stable_offset
        end = history.read(client.name, topic, partition, bytes(found.records or b""), bound)
        if end > position:
            client.say(f"reads {topic}-{partition} from {position} to {end} on {node}")
            history.count("batches read")
            for batch in iter_batches(bytes(found.records)):
                epoch_read = max(epoch_read, batch.partition_leader_epoch)
            self._positions[topic, partition] = end, epoch_read
        if self._isolation == READ_COMMITTED:
            for batch in committed_batches(found):
                if batch.is_transactional:
                    history.taken_for_committed.setdefault((topic, partition, batch.base_offset), client.name)
