"""Partitions of a topic whose followers a test holds back: the high watermark moves when the test says so."""

from __future__ import annotations

from typing import Any

import trio

from pykbroker.protocol.error_codes import ErrorCode


class HeldPartition:
    """A real partition but for its high watermark, with the contract of `Partition.wait_replicated`."""

    def __init__(self, partition: Any) -> None:
        self.real = partition
        self.is_held = False
        self.is_leader_gone = False
        self.has_enough_replicas = True
        self._high_watermark = 0
        self._moved = trio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    @property
    def high_watermark(self) -> int:
        end: int = self.real.log.log_end_offset
        return self._high_watermark if self.is_held else end

    def hold(self, high_watermark: int | None = None) -> None:
        """From now on nothing more is replicated."""
        self._high_watermark = self.high_watermark if high_watermark is None else high_watermark
        self.is_held = True

    def release(self, count: int | None = None) -> None:
        """So many records more are replicated, or all of them from now on."""
        self.is_held = count is not None
        self._high_watermark += count or 0
        self.wake()

    def lose_leader(self) -> None:
        self.is_leader_gone = True
        self.wake()

    def wake(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    def is_in_every_isr_log(self, end_offset: int) -> bool:
        return self.high_watermark >= end_offset

    async def wait_replicated(self, end_offset: int, deadline: float, leadership: Any) -> ErrorCode:
        while not self.is_leader_gone and self.high_watermark < end_offset:
            with trio.move_on_at(deadline) as scope:
                await self._moved.wait()
            if scope.cancelled_caught:
                return ErrorCode.REQUEST_TIMED_OUT
        if self.is_leader_gone:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if self.has_enough_replicas else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class HeldPartitions:
    """A registry that gives `HeldPartition`s of one topic, and the partitions of other topics as they are."""

    def __init__(self, partitions: Any, topic: str) -> None:
        self._partitions = partitions
        self._topic = topic
        self._held: dict[int, HeldPartition] = {}

    def get(self, topic: str, number: int) -> Any:
        partition = self._partitions.get(topic, number)
        if partition is None or topic != self._topic:
            return partition
        held = self._held.get(number)
        if held is None or held.real is not partition:
            held = self._held[number] = HeldPartition(partition)
        return held

    def all(self, count: int) -> list[HeldPartition]:
        """The first partitions of the topic."""
        return [self.get(self._topic, number) for number in range(count)]
