"""Which partitions of a coordinator's topic this broker leads, and what was read from each of them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pykbroker.coordination.partitioning import coordinator_partition
from pykbroker.logstore.errors import LogError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.errors import RecordError

if TYPE_CHECKING:
    import trio

    from pykbroker.controller.metadata.image import ClusterImage

log = logging.getLogger(__name__)

Shard = TypeVar("Shard")


class PartitionRegistry(Protocol):
    """The partitions of this broker."""

    def get(self, topic: str, partition: int) -> Any:
        """The `Partition`, or None if it is not here."""


class MetadataSource(Protocol):
    """The current metadata."""

    @property
    def image(self) -> ClusterImage: ...


class LedPartitions(Generic[Shard]):
    """The shards of one topic, by partition: taken up when this broker becomes the leader, let go when it ceases to be.

    Args:
        topic: name of the topic.
        node_id: this broker.
        partitions: where the logs are.
        metadata: who leads which partition.
        make: a new shard for a partition.
        replay: reads a partition's log into its shard; may raise LogError or RecordError.
        on_loaded: told of a shard that answers requests from now on.
        on_let_go: told of a shard that does not any more.

    Attributes:
        shards: what is loaded, by partition.
    """

    def __init__(
        self,
        topic: str,
        node_id: int,
        partitions: PartitionRegistry,
        metadata: MetadataSource,
        *,
        make: Callable[[Any], Shard],
        replay: Callable[[Any, Shard], Awaitable[None]],
        on_loaded: Callable[[int, Shard], None],
        on_let_go: Callable[[int, Shard], None],
    ) -> None:
        self.shards: dict[int, Shard] = {}
        self._topic = topic
        self._node_id = node_id
        self._partitions = partitions
        self._metadata = metadata
        self._make = make
        self._replay = replay
        self._on_loaded = on_loaded
        self._on_let_go = on_let_go
        self._loading: set[int] = set()
        self._unreadable: set[int] = set()
        self._is_stopped = False

    async def load_all(self) -> None:
        """Takes up what this broker leads when it starts."""
        for number in self._led():
            await self._load(number)

    def follow(self, nursery: trio.Nursery | None, *, is_recreated: bool) -> None:
        """Takes up and lets go what the metadata says. An empty log, as on a new topic, is taken up at once, any other
        one read in a task of `nursery`; without one `load_all` is still to come.
        """
        led = set(self._led())
        for number in [number for number in self.shards if is_recreated or number not in led]:
            self._on_let_go(number, self.shards.pop(number))
        self._unreadable &= led
        for number in sorted(led - self.shards.keys() - self._loading):
            partition = self.partition(number)
            if partition is not None and partition.log.log_end_offset == partition.log.log_start_offset:
                self.shards[number] = shard = self._make(partition)
                self._on_loaded(number, shard)
            elif nursery is not None:
                nursery.start_soon(self._load, number)

    def take_up_missing(self, nursery: trio.Nursery | None) -> None:
        """Tries again what this broker leads and could not read or open; for when the disk may work again."""
        if any(number not in self.shards.keys() | self._loading for number in self._led()):
            self.follow(nursery, is_recreated=False)

    def stop(self) -> None:
        """Lets go everything; whoever comes after finds no coordinator."""
        self._is_stopped = True
        while self.shards:
            self._on_let_go(*self.shards.popitem())

    def partition(self, number: int) -> Any:
        """The `Partition` to append to; None if it is gone."""
        return self._partitions.get(self._topic, number)

    def locate(self, key: str) -> tuple[int, Shard] | ErrorCode:
        """Partition and shard of a key; or why there is none: not ours, or still being read (P-90)."""
        if self._is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        topic = self._metadata.image.topics_by_name.get(self._topic)
        if topic is None:
            return ErrorCode.NOT_COORDINATOR
        number = coordinator_partition(key, len(topic.partitions))
        shard = self.shards.get(number)
        if shard is not None:
            return number, shard
        partition = topic.partitions.get(number)
        if partition is None or partition.leader != self._node_id or number in self._unreadable:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def is_loading(self) -> bool:
        """Whether a partition that this broker leads has not been read yet."""
        return any(number not in self.shards.keys() | self._unreadable for number in self._led())

    def _led(self) -> list[int]:
        topic = self._metadata.image.topics_by_name.get(self._topic)
        if topic is None:
            return []
        return [number for number, partition in topic.partitions.items() if partition.leader == self._node_id]

    async def _load(self, number: int) -> None:
        partition = self.partition(number)
        if partition is None or number in self.shards or number in self._loading:
            return
        self._loading.add(number)
        try:
            shard = self._make(partition)
            await self._replay(partition, shard)
        except (LogError, RecordError) as error:
            if number not in self._unreadable:
                log.error("%s-%d cannot be read, what it coordinates is not served: %s", self._topic, number, error)
            self._unreadable.add(number)
            return
        finally:
            self._loading.discard(number)
        self._unreadable.discard(number)
        if self.partition(number) is partition:
            self.shards[number] = shard
            self._on_loaded(number, shard)
