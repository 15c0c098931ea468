"""The shards of one internal topic: loaded when this broker becomes leader of a partition, unloaded when it resigns."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import trio

from pykbroker.controller.turns import EachInTurns, in_turns
from pykbroker.coordination.partitioning import coordinator_partition, keys_by_partition
from pykbroker.errors import CoordinatorError
from pykbroker.logstore.errors import LogError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.errors import RecordError
from pykbroker.protocol.steps import Steps

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.coordination.partition_writer import InternalPartition
    from pykbroker.coordination.shard import CoordinatorShard

log = logging.getLogger(__name__)

Shard = TypeVar("Shard", bound="CoordinatorShard[Any]")

ISR_CHECK_INTERVAL_S = 0.5
"""Seconds between two checks of the in-sync set while the high watermark stands still."""


class PartitionRegistry(Protocol):
    """The partitions of this broker."""

    def get(self, topic: str, partition: int) -> InternalPartition | None:
        """The partition, or None if this broker has no replica of it."""


class MetadataSource(Protocol):
    """The current metadata."""

    @property
    def image(self) -> ClusterImage: ...


class Load:
    """The load of one partition under a leader epoch. A load that another one has replaced installs nothing."""

    __slots__ = ("epoch",)

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


class LoadedShards(Generic[Shard]):
    """The shards of one topic, by partition, and the loads in progress.

    A shard belongs to one leader epoch. When the epoch changes, it is unloaded and read again, even if this broker is
    still the leader: another leader may have written in between.

    A shard serves requests only when everything that was read is replicated. A new leader may have records in its log
    that no other replica has yet; if it answered from them and failed, the next leader would not have those records.

    A broker that has lost the leadership and does not know it yet stores nothing, because nothing that it appends is
    replicated any more. It answers reads from its state until the metadata reaches it, as Kafka does.

    Args:
        topic: name of the topic.
        node_id: id of this broker.
        partitions: the partitions of this broker, with their logs.
        metadata: the source of partition leaders and leader epochs.
        make_shard: returns a new shard for a leader epoch.
        shard_modules: modules that `make_shard` uses and `import_shard` imports.
        now_ms: returns the time.
        on_loaded: called with the partition's number and a shard that serves requests from now on.
        on_unloaded: called with the partition's number and a shard that no longer does.

    Attributes:
        shards: the loaded shards, by partition.
    """

    def __init__(
        self,
        topic: str,
        node_id: int,
        partitions: PartitionRegistry,
        metadata: MetadataSource,
        *,
        make_shard: Callable[[int], Shard],
        shard_modules: Sequence[str],
        now_ms: Callable[[], int],
        on_loaded: Callable[[int, Shard], None],
        on_unloaded: Callable[[int, Shard], None],
    ) -> None:
        self.shards: dict[int, Shard] = {}
        self._topic = topic
        self._node_id = node_id
        self._partitions = partitions
        self._metadata = metadata
        self._make_shard = make_shard
        self._shard_modules = shard_modules
        self._import_lock = trio.Lock()
        self._now_ms = now_ms
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded
        self._epochs: dict[int, int] = {}
        self._loads: dict[int, Load] = {}
        self._unreadable: dict[int, int] = {}
        self._is_stopped = False

    async def load_all(self, nursery: trio.Nursery) -> None:
        """Loads the partitions that this broker leads when it starts; waits for reading, not for replication."""
        for number, epoch in self._led().items():
            # Meanwhile `follow` may have loaded it, or this broker may have resigned.
            if number not in self.shards and number not in self._loads and self._leads(number, epoch):
                await nursery.start(self._load, number, self._begin_load(number, epoch))

    def follow(self, nursery: trio.Nursery | None, *, is_recreated: bool) -> None:
        """Loads the partitions that this broker leads by the current metadata and unloads the others.

        An empty log, as on a new topic, is loaded at once if the modules of a shard are imported, any other one in a
        task of `nursery`. Without a nursery it is left to `load_all`, which has not run yet. With `is_recreated` every
        shard is unloaded first.
        """
        led, is_imported = self._led(), self._is_imported
        for number in [n for n, epoch in self._epochs.items() if is_recreated or led.get(n) != epoch]:
            del self._epochs[number]
            self._on_unloaded(number, self.shards.pop(number))
        for number in [n for n, load in self._loads.items() if is_recreated or led.get(n) != load.epoch]:
            del self._loads[number]
        self._unreadable = {n: epoch for n, epoch in self._unreadable.items() if led.get(n) == epoch}
        for number, epoch in sorted(led.items()):
            if number in self.shards or number in self._loads:
                continue
            partition = self.partition(number)
            is_empty = partition is not None and partition.log.log_end_offset == partition.log.log_start_offset
            if is_empty and is_imported:
                self._install(number, epoch, self._make_shard(epoch))
            elif nursery is not None:
                nursery.start_soon(self._load, number, self._begin_load(number, epoch))

    def load_missing(self, nursery: trio.Nursery | None) -> None:
        """Retries the partitions that this broker leads and could not read or open; the disk may work again."""
        if not self._led().keys() <= self.shards.keys() | self._loads.keys():
            self.follow(nursery, is_recreated=False)

    def stop(self) -> None:
        """Unloads every shard; later requests get COORDINATOR_NOT_AVAILABLE."""
        self._is_stopped = True
        self._loads.clear()
        self._epochs.clear()
        while self.shards:
            self._on_unloaded(*self.shards.popitem())

    async def import_shard(self) -> None:
        """Imports the modules of a shard, once in a process, in turns with other tasks.

        Callers take turns at it, too: if each of many loads imported one module in its turn, nobody else would be
        served until all of them are imported.
        """
        if not self._is_imported:
            async with self._import_lock:
                async for name in EachInTurns(self._shard_modules):
                    import_module(name)

    @property
    def _is_imported(self) -> bool:
        return all(name in sys.modules for name in self._shard_modules)

    def partition(self, number: int) -> InternalPartition | None:
        """The partition to append to; None if this broker has no replica of it any more."""
        return self._partitions.get(self._topic, number)

    def find(self, key: str) -> tuple[int, Shard]:
        """Partition number and shard of a key.

        Raises:
            CoordinatorError: the key is not served here, or not yet (P-90).
        """
        if self._is_stopped:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        topic = self._metadata.image.topics_by_name.get(self._topic)
        if topic is None:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        number = coordinator_partition(key, len(topic.partitions))
        shard = self.shards.get(number)
        if shard is not None:
            return number, shard
        partition = topic.partitions.get(number)
        if partition is None or partition.leader != self._node_id or number in self._unreadable:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def leader(self, key: str) -> int | None:
        """Id of the broker that leads the partition of a key, -1 if none does; None if the topic does not exist."""
        topic = self._metadata.image.topics_by_name.get(self._topic)
        if topic is None:
            return None
        partition = topic.partitions.get(coordinator_partition(key, len(topic.partitions)))
        return -1 if partition is None else partition.leader

    def by_partition(self, keys: Sequence[str]) -> Steps[list[list[str]]]:
        """Keys as `keys_by_partition` has them; all in one list if there is no topic yet."""
        topic = self._metadata.image.topics_by_name.get(self._topic)
        if len(keys) < 2 or topic is None:
            return [[*keys]]
        return (yield from keys_by_partition(keys, self._topic, len(topic.partitions)))

    @property
    def is_loading(self) -> bool:
        """True if a partition that this broker leads has not been read yet."""
        return not self._led().keys() <= self.shards.keys() | self._unreadable.keys()

    def _led(self) -> dict[int, int]:
        """Leader epochs of the partitions that this broker leads."""
        topic = self._metadata.image.topics_by_name.get(self._topic)
        if topic is None or self._is_stopped:
            return {}
        return {
            number: partition.leader_epoch
            for number, partition in topic.partitions.items()
            if partition.leader == self._node_id
        }

    def _leads(self, number: int, epoch: int) -> bool:
        """True if this broker leads the partition under this leader epoch; costs the same with thousands of others."""
        topic = self._metadata.image.topics_by_name.get(self._topic)
        partition = None if topic is None or self._is_stopped else topic.partitions.get(number)
        return partition is not None and (partition.leader, partition.leader_epoch) == (self._node_id, epoch)

    def _begin_load(self, number: int, epoch: int) -> Load:
        load = self._loads[number] = Load(epoch)
        return load

    def _install(self, number: int, epoch: int, shard: Shard) -> None:
        self.shards[number] = shard
        self._epochs[number] = epoch
        self._on_loaded(number, shard)

    async def _load(
        self, number: int, load: Load, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Reads a partition, reports started, waits until the records are replicated, and installs the shard."""
        try:
            partition = self.partition(number)
            shard = None if partition is None else await self._read(number, load, partition)
            task_status.started()
            if partition is None or shard is None or not await self._is_replicated(partition):
                return
            if self._loads.get(number) is load and self.partition(number) is partition:
                del self._loads[number]
                self._unreadable.pop(number, None)
                self._install(number, load.epoch, shard)
        finally:
            if self._loads.get(number) is load:
                del self._loads[number]

    async def _read(self, number: int, load: Load, partition: InternalPartition) -> Shard | None:
        from pykbroker.coordination.loader import read_records

        await self.import_shard()
        if self._loads.get(number) is not load:
            return None
        shard = self._make_shard(load.epoch)
        try:
            logged = await read_records(partition.log, keeps_every=shard.replays_every_record)
        except (LogError, RecordError) as error:
            if self._loads.get(number) is not load:
                return None  # this broker has become a follower, whose log is truncated while it is read
            if number not in self._unreadable:
                log.error(
                    "%s-%d cannot be read; requests for its groups or ids get errors: %s", self._topic, number, error
                )
            self._unreadable[number] = load.epoch
            return None
        await in_turns(shard.load(logged, self._now_ms()))
        return shard

    async def _is_replicated(self, partition: InternalPartition) -> bool:
        """Waits until what was read cannot be lost; False if this broker does not lead the partition any more.

        That is when the high watermark has reached the log end offset, or when every in-sync replica has the log: with
        fewer than `min.insync.replicas` the high watermark stands still. Nothing is written meanwhile, as requests and
        markers are refused until the shard is loaded.
        """
        end_offset, leadership = partition.log.log_end_offset, partition.leadership
        while partition.high_watermark < end_offset and not partition.is_in_every_isr_log(end_offset):
            deadline = trio.current_time() + ISR_CHECK_INTERVAL_S
            error = await partition.wait_replicated(end_offset, deadline, leadership)
            if error is not ErrorCode.REQUEST_TIMED_OUT:
                return error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True
