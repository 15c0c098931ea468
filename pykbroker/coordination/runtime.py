"""The coordinator runtime: everything that is the same for each kind of coordinator.

It owns the shards of one internal topic. It loads a shard when this broker becomes leader of its partition and unloads
it on resignation, finds the shard of a key, appends the records of an operation and lets them take effect when they are
replicated, and wakes shards when their timers are due. What a group or a transaction is, it does not know: that is in
`CoordinatorShard`, which is pure.

Between two awaits every shard is consistent with its log: an operation is applied, its records are appended and its
replies handed over in one go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from pykbroker.coordination.deadlines import Deadlines
from pykbroker.coordination.internal_topic import InternalTopic, TopicCreation
from pykbroker.coordination.loaded_shards import LoadedShards, MetadataSource, PartitionRegistry
from pykbroker.coordination.replication_queue import ReplicationQueues, Waiting
from pykbroker.coordination.timer import CoordinatorTimer
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.coordination.shard import CoordinatorShard
    from pykbroker.logstore.producer_state import Verification
    from pykbroker.wall_clock import WallClock

Shard = TypeVar("Shard", bound="CoordinatorShard[Any]")
Result = TypeVar("Result")


class Write(Generic[Result]):
    """A write operation whose records are appended, or could not be.

    Attributes:
        result: what the shard gave.
    """

    __slots__ = ("_append", "result")

    def __init__(self, result: Result, append: ErrorCode | Waiting) -> None:
        self.result = result
        self._append = append

    @property
    def append_error(self) -> ErrorCode:
        """The client's error of the append itself, whatever becomes of its replication."""
        return self._append if isinstance(self._append, ErrorCode) else ErrorCode.NONE

    async def wait(self) -> ErrorCode:
        """Waits until the records are replicated; gives what a client is told of it (P-115)."""
        if isinstance(self._append, ErrorCode):
            return self._append
        from pykbroker.coordination.partition_writer import response_error

        return response_error(await self._append.wait_answer())


class CoordinatorRuntime(Generic[Shard]):
    """Runs the shards of one internal topic.

    Args:
        topic: name of the internal topic.
        node_id: this broker.
        clock: time of day, for the timestamps of records. What is measured goes on by trio's clock from there, so that
            a step of the wall clock neither expires a session nor aborts a transaction.
        partitions: where to append to and read from.
        metadata: who leads which partition.
        create_internal_topic: creates the topic through the controller; free to fail, as the client asks again.
        make_shard: a new shard for a partition led under this leader epoch.
        deliver: carries out what a result asks for besides its records, such as replies. Called with the partition's
            number, the shard and the result, before the records are appended.
        append_timeout_ms: how long an operation waits for its records to be replicated.
        codec: the number of the compression codec of what is appended.

    `run` must be running for timers to fire and for logs to be read. `on_metadata_change` is to be called after
    `partitions` has followed the same change.
    """

    def __init__(
        self,
        topic: str,
        node_id: int,
        clock: WallClock,
        partitions: PartitionRegistry,
        metadata: MetadataSource,
        create_internal_topic: Callable[[InternalTopic], Awaitable[None]],
        *,
        make_shard: Callable[[int], Shard],
        deliver: Callable[[int, Shard, Any], None],
        append_timeout_ms: int,
        codec: int = 0,
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._timer = CoordinatorTimer(clock)
        self._loaded = LoadedShards(
            topic,
            node_id,
            partitions,
            metadata,
            make_shard=make_shard,
            now_ms=self._timer.now_ms,
            on_loaded=self._on_loaded,
            on_unloaded=self._on_unloaded,
        )
        self._topic_creation = TopicCreation(create_internal_topic)
        self._deliver = deliver
        self._codec = codec
        self._deadlines = Deadlines()
        self._queues = ReplicationQueues(append_timeout_ms / 1000)
        self._tasks: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {}
        self.nursery: trio.Nursery | None = None
        """For what coordinators do in the background; None before `run`."""

    # Life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Loads the shards of this broker, reports started, then runs timers until cancelled."""
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            await self._loaded.load_all(nursery)
            task_status.started()
            while True:
                await self._timer.wait_until((self._deadlines.first_ms, *(at_ms for at_ms, _ in self._tasks.values())))
                await self._run_tasks(self.expire_due())

    def stop(self) -> None:
        """Unloads every shard and refuses whoever comes after; for an orderly shutdown."""
        self._loaded.stop()

    def load_missing(self) -> None:
        """Tries again to load what could not be read or opened before; the disk may work again."""
        self._loaded.load_missing(self.nursery)

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Loads the shards of partitions that this broker leads now, unloads those that it does not lead any more."""
        if old.topics_by_name.get(self._topic) is not new.topics_by_name.get(self._topic):
            is_recreated = any(deleted.name == self._topic for deleted in new.delta.deleted_topics)
            self._loaded.follow(self.nursery, is_recreated=is_recreated)

    def request_topic_creation(self, topic: InternalTopic, wanted_replicas: int) -> None:
        """Begins to create the internal topic, unless that is under way (P-89)."""
        if self.nursery is not None:
            self._topic_creation.start(self.nursery, topic, wanted_replicas)

    def _on_loaded(self, number: int, shard: Shard) -> None:
        self.carry_out(number, shard, shard.loaded(self.now_ms()))
        for key in shard.timer_keys():
            self.plan_timer(number, shard, key)

    def _on_unloaded(self, number: int, shard: Shard) -> None:
        self._queues.close(number)
        result = shard.unload(self.now_ms())
        if result is not None:
            self._deliver(number, shard, result)
        self._deadlines.forget(number)

    # Looking up

    def now_ms(self) -> int:
        """The time of day as this coordinator measures it."""
        return self._timer.now_ms()

    @property
    def shards(self) -> Mapping[int, Shard]:
        """The loaded shards, by partition."""
        return self._loaded.shards

    @property
    def is_loading(self) -> bool:
        """True if a partition that this broker leads has not been read yet."""
        return self._loaded.is_loading

    def find(self, key: str) -> tuple[int, Shard] | ErrorCode:
        """Partition and shard of a key, which is as it should be now; or why there is none (P-90).

        Timers that are due run first, as on a busy loop their task may come after a request: DeleteGroups would find
        a member whose session ended some milliseconds before. Kafka's timer has a thread of its own.
        """
        self.expire_due()
        return self._loaded.find(key)

    def leader(self, key: str) -> int | None:
        """The broker that leads a key's partition, -1 if none does; None without the topic."""
        return self._loaded.leader(key)

    def partition(self, number: int) -> Any:
        """The `Partition` of a shard; None if it is gone."""
        return self._loaded.partition(number)

    # Writing

    async def write(
        self, key: str, operation: Callable[[Shard, int], Any], verification: Verification | None = None
    ) -> Any:
        """Runs a write operation to its end; gives its response, or the ErrorCode for the client.

        Args:
            key: which shard.
            operation: gives a `CoordinatorResult` for the shard and the time.
            verification: what a batch of a transaction has to bring (P-135).
        """
        write = self.begin_write(key, operation, verification)
        error = write if isinstance(write, ErrorCode) else await write.wait()
        return error if isinstance(write, ErrorCode) or error is not ErrorCode.NONE else write.result.response

    def begin_write(
        self, key: str, operation: Callable[[Shard, int], Result], verification: Verification | None = None
    ) -> Write[Result] | ErrorCode:
        """As `write`, as far as that is possible without waiting for replicas."""
        place = self.find(key)
        if isinstance(place, ErrorCode):
            return place
        result = operation(place[1], self.now_ms())
        return Write(result, self.carry_out(*place, result, key, verification))

    def carry_out(
        self,
        number: int,
        shard: Shard,
        result: Any,
        key: str | None = None,
        verification: Verification | None = None,
    ) -> ErrorCode | Waiting:
        """Delivers a result, appends its records, and tells the shard how that went; goes on with what follows.

        Gives the client's error of the first append, or that append as it waits for its replicas. `key` is whose timer
        may have changed.
        """
        first: ErrorCode | Waiting | None = None
        while result is not None:
            self._deliver(number, shard, result)
            if not result.records:
                break
            error, first_offset, end_offset = self._append(number, shard, result, verification)
            if error is ErrorCode.NONE and self._queues.must_wait(number, self.partition(number), end_offset):
                waiting = self._await_replicas(number, shard, result, key, first_offset, end_offset)
                first = waiting if first is None else first
                break
            first = error if first is None else first
            result = shard.stored(result, error, self.now_ms(), first_offset)
        if key is not None:
            self.plan_timer(number, shard, key)
        return ErrorCode.NONE if first is None else first

    def when_replicated(self, number: int, end_offset: int, action: Callable[[], None]) -> None:
        """Does something when a partition is replicated up to an offset, behind all that was appended before."""
        if self._queues.must_wait(number, self.partition(number), end_offset):
            self._queues.push(number, end_offset, action, lambda error: None, self.nursery)
        else:
            action()

    def _append(
        self, number: int, shard: Shard, result: Any, verification: Verification | None
    ) -> tuple[ErrorCode, int, int]:
        """Appends one batch: the error for the client (P-115), the first record's offset and the end."""
        from pykbroker.coordination.partition_writer import append_pairs, response_error

        partition = self.partition(number)
        if partition is None:
            return ErrorCode.NOT_COORDINATOR, -1, -1
        first_offset = partition.log.log_end_offset
        pairs = [shard.encode(record) for record in result.records]
        error = append_pairs(partition, pairs, self._codec, self._clock.now_ms(), result.producer, verification)
        return response_error(error), first_offset, partition.log.log_end_offset

    def _await_replicas(
        self, number: int, shard: Shard, result: Any, key: str | None, first_offset: int, end_offset: int
    ) -> Waiting:
        from pykbroker.coordination.partition_writer import response_error

        def take_effect() -> None:
            self.carry_out(number, shard, shard.replicated(result, self.now_ms(), first_offset), key)

        def send_away(error: ErrorCode) -> None:
            self.carry_out(number, shard, shard.late(result, response_error(error), self.now_ms()), key)

        shard.appended(result)
        return self._queues.push(number, end_offset, take_effect, send_away, self.nursery)

    # Timers

    def schedule(self, name: str, delay_ms: int, task: Callable[[], Awaitable[None]]) -> None:
        """Runs a task of the coordinator after a delay, unless one of this name is scheduled already."""
        if name not in self._tasks:
            self._tasks[name] = (self.now_ms() + delay_ms, task)
            self._timer.wake()

    async def _run_tasks(self, now_ms: int) -> None:
        for name in [name for name, (at_ms, _) in self._tasks.items() if at_ms <= now_ms]:
            await self._tasks.pop(name)[1]()

    def plan_timer(self, number: int, shard: Shard, key: str) -> None:
        """Asks a shard when it wants to be woken for a key; for what changes a timer and nothing else."""
        if self._deadlines.plan((number, key), shard.wake_ms(key)):
            self._timer.wake()

    def expire_due(self) -> int:
        """Runs the timers of shards that are due; gives the time."""
        now_ms = self.now_ms()
        while (due := self._deadlines.pop_due(now_ms)) is not None:
            number, key = due
            shard = self.shards.get(number)
            if shard is not None:
                self.carry_out(number, shard, shard.expire_due(key, now_ms), key)
        return now_ms
