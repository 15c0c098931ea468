"""The coordinator runtime: everything that is the same for each kind of coordinator.

It owns the shards of one internal topic. It loads a shard when this broker becomes leader of its partition and unloads
it when the broker resigns, finds the shard of a key, appends the records of an operation and lets them take effect when
they are replicated, and runs the timers of shards. The rules of groups and transactions are not here: subclasses of
`CoordinatorShard`, which are pure, have them.

Between two awaits every shard is consistent with its log: an operation is applied, its records are appended and its
replies delivered without an await.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from pykbroker.controller.turns import Turn
from pykbroker.coordination.deadlines import Deadlines
from pykbroker.coordination.internal_topic import InternalTopic, TopicCreation
from pykbroker.coordination.loaded_shards import LoadedShards, MetadataSource, PartitionRegistry
from pykbroker.coordination.replication_queue import ReplicationQueues, Waiting
from pykbroker.coordination.timer import CoordinatorTimer
from pykbroker.errors import CoordinatorError
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.batch import frames_of
from pykbroker.protocol.records.compression import NONE
from pykbroker.protocol.steps import Steps

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.coordination.partition_writer import InternalPartition
    from pykbroker.coordination.shard import CoordinatorShard
    from pykbroker.logstore.producer_state import Verification
    from pykbroker.wall_clock import WallClock

Shard = TypeVar("Shard", bound="CoordinatorShard[Any]")
Result = TypeVar("Result")


class Append(NamedTuple):
    """The append of an operation's records.

    Attributes:
        error: the client's error (P-115); NONE if it succeeded, even if it is not replicated.
        replication: its replication, if that is pending.
    """

    error: ErrorCode
    replication: Waiting | None = None


STORED = Append(ErrorCode.NONE)
"""Every append that has succeeded and is replicated."""


class Write(Generic[Result]):
    """A write operation that was applied; its append has succeeded or failed, its replication may be pending.

    Attributes:
        result: the shard's result of the operation.
        append: the append of its records.
    """

    __slots__ = ("append", "result")

    def __init__(self, result: Result, append: Append) -> None:
        self.result = result
        self.append = append

    async def wait(self) -> None:
        """Waits until the records are replicated; raises CoordinatorError if they are not (P-115)."""
        error, replication = self.append
        if replication is not None:
            error = await _replicated(replication)
        if error is not ErrorCode.NONE:
            raise CoordinatorError(error)


async def _replicated(replication: Waiting) -> ErrorCode:
    """Waits for replication; returns the error for the client."""
    from pykbroker.coordination.partition_writer import response_error

    return response_error(await replication.wait_answer())


class CoordinatorEnvironment(NamedTuple):
    """The parts of a broker that each of its coordinators needs.

    Attributes:
        node_id: id of this broker.
        clock: time of day, for the timestamps of records. Timers use trio's clock (`CoordinatorTimer`), so that a step
            of the wall clock neither expires a session nor aborts a transaction.
        partitions: the partitions of this broker, to append to and read from.
        metadata: the source of partition leaders and leader epochs.
        create_internal_topic: creates a topic through the controller; may fail, as the client tries again.
    """

    node_id: int
    clock: WallClock
    partitions: PartitionRegistry
    metadata: MetadataSource
    create_internal_topic: Callable[[InternalTopic], Awaitable[None]]


class CoordinatorRuntime(Generic[Shard]):
    """Runs the shards of one internal topic.

    Args:
        topic: name of the internal topic.
        environment: the parts of the broker.
        make_shard: returns a new shard for a leader epoch.
        deliver: carries out the side effects of a result, such as replies. Called with the partition's number, the
            shard and the result, before the records are appended.
        append_timeout_ms: time that an operation waits for its records to be replicated.
        codec: number of the compression codec for appended batches.
        shard_modules: modules that `make_shard` uses, if their import takes too long for one step.

    `run` must be running for timers to fire and for logs to be read. `on_metadata_change` must be called after
    `partitions` has applied the same change.
    """

    def __init__(
        self,
        topic: str,
        environment: CoordinatorEnvironment,
        *,
        make_shard: Callable[[int], Shard],
        deliver: Callable[[int, Shard, Any], None],
        append_timeout_ms: int,
        codec: int = 0,
        shard_modules: Sequence[str] = (),
    ) -> None:
        self._topic = topic
        self._clock = environment.clock
        self._timer = CoordinatorTimer(environment.clock)
        self._loaded = LoadedShards(
            topic,
            environment.node_id,
            environment.partitions,
            environment.metadata,
            make_shard=make_shard,
            shard_modules=shard_modules,
            now_ms=self._timer.now_ms,
            on_loaded=self._on_loaded,
            on_unloaded=self._on_unloaded,
        )
        self._topic_creation = TopicCreation(environment.create_internal_topic)
        self._deliver = deliver
        self._codec = codec
        self._deadlines = Deadlines()
        self._queues = ReplicationQueues(append_timeout_ms / 1000)
        self._tasks: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {}
        self.has_ended = False
        """True if the nursery takes no tasks any more, because `run` was cancelled."""
        self.nursery: trio.Nursery | None = None
        """For background tasks of coordinators; None before `run`."""

    # Start, stop and metadata changes

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Loads the shards of this broker, reports started, then runs timers until cancelled."""
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            await self._loaded.load_all(nursery)
            task_status.started()
            try:
                while True:
                    deadlines_ms = (self._deadlines.first_ms, *(at_ms for at_ms, _ in self._tasks.values()))
                    await self._timer.wait_until(deadlines_ms)
                    now_ms = self.expire_due()
                    for name in [name for name, (at_ms, _) in self._tasks.items() if at_ms <= now_ms]:
                        await self._tasks.pop(name)[1]()
            finally:
                # A connection that ends with the broker may still send requests; nothing follows replication by then.
                self.has_ended = True

    def stop(self) -> None:
        """Unloads every shard and refuses later requests; for a controlled shutdown."""
        self._loaded.stop()

    def load_missing(self) -> None:
        """Retries partitions that could not be read or opened; the disk may work again."""
        self._loaded.load_missing(self.nursery)

    async def import_shard(self) -> None:
        """Imports the modules of a shard, once in a process, in turns with other tasks."""
        await self._loaded.import_shard()

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Loads the shards of partitions that this broker leads now and unloads the others."""
        if self.has_ended:
            return  # the nursery takes no loads any more
        if old.topics_by_name.get(self._topic) is not new.topics_by_name.get(self._topic):
            is_recreated = any(deleted.name == self._topic for deleted in new.delta.deleted_topics)
            self._loaded.follow(self.nursery, is_recreated=is_recreated)

    def request_topic_creation(self, topic: InternalTopic) -> None:
        """Starts the creation of the internal topic, unless one is in flight (P-89)."""
        if self.nursery is not None:
            self._topic_creation.start(self.nursery, topic)

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
        """Time of day in ms since the epoch, by the coordinator's timer."""
        return self._timer.now_ms()

    @property
    def shards(self) -> Mapping[int, Shard]:
        """The loaded shards, by partition."""
        return self._loaded.shards

    @property
    def is_loading(self) -> bool:
        """True if a partition that this broker leads has not been read yet."""
        return self._loaded.is_loading

    def find(self, key: str) -> tuple[int, Shard]:
        """Partition number and shard of a key, after the timers that are due.

        On a busy loop the timers' task may run after a request: DeleteGroups would find a member whose session expired
        some milliseconds before. Kafka's timer has a thread of its own.

        Raises:
            CoordinatorError: the key is not served here, or not yet (P-90).
        """
        number, shard, _ = self.find_now(key)
        return number, shard

    def find_now(self, key: str) -> tuple[int, Shard, int]:
        """As `find`, with the time of the timers in ms."""
        if self.has_ended:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        now_ms = self.expire_due()
        number, shard = self._loaded.find(key)
        return number, shard, now_ms

    def by_partition(self, keys: Sequence[str]) -> Steps[list[list[str]]]:
        """Keys as `keys_by_partition` has them; all in one list if there is no topic yet."""
        return self._loaded.by_partition(keys)

    def leader(self, key: str) -> int | None:
        """Id of the broker that leads the partition of a key, -1 if none does; None if the topic does not exist."""
        return self._loaded.leader(key)

    def partition(self, number: int) -> InternalPartition | None:
        """The partition of a shard; None if this broker has no replica of it any more."""
        return self._loaded.partition(number)

    # Writing

    async def write(self, key: str, operation: Callable[..., Any], *arguments: Any) -> Any:
        """Runs a write operation and waits for replication; returns its response.

        Args:
            key: selects the shard.
            operation: returns a `CoordinatorResult`, given the shard, the time in ms and the `arguments`.

        Raises:
            CoordinatorError: the key is not served here, or the records are not stored.
        """
        write = self.begin_write(key, operation, *arguments)
        await write.wait()
        return write.result.response

    def begin_write(
        self, key: str, operation: Callable[..., Result], *arguments: Any, verification: Verification | None = None
    ) -> Write[Result]:
        """As `write`, but returns after the append, whose error it does not raise; `Write.wait` does.

        `verification` is the proof that the batch belongs to an open transaction (P-135).
        """
        number, shard, now_ms = self.find_now(key)
        result = operation(shard, now_ms, *arguments)
        return Write(result, self.carry_out(number, shard, result, key, verification))

    async def confirmed(self, key: str, write: Write[Any]) -> Any:
        """As `write`, for a write that was begun and whose response depends on earlier records, such as a heartbeat's.

        A response without an error waits until these are replicated, even if the operation has added no record: the
        next leader might not have them. The response must have an `error_code`.
        """
        is_refusal = not write.result.records and write.result.response.error_code != ErrorCode.NONE
        await (write.wait() if is_refusal else self.settled(key, write))
        return write.result.response

    async def settled(self, key: str, write: Write[Any]) -> None:
        """Waits until the records of a write are replicated, or the earlier ones if it has none."""
        if write.result.records:
            await write.wait()
        else:
            await self.wait_replicated(self.find(key)[0])

    def carry_out(
        self,
        number: int,
        shard: Shard,
        result: Any,
        key: str | None = None,
        verification: Verification | None = None,
    ) -> Append:
        """Delivers a result, appends its records and reports the outcome to the shard, whose next result follows.

        Returns the first append. `key` is the key whose timer may have changed.
        """
        first: Append | None = None
        while result is not None:
            self._deliver(number, shard, result)
            if not result.records:
                break
            error, first_offset, end_offset = self._append(number, shard, result, verification)
            if error is ErrorCode.NONE and self._queues.must_wait(number, self.partition(number), end_offset):
                replication = self._await_replicas(number, shard, result, key, first_offset, end_offset)
                first = Append(error, replication) if first is None else first
                break
            if first is None:
                first = STORED if error is ErrorCode.NONE else Append(error)
            result = shard.stored(result, error, self.now_ms(), first_offset)
        if key is not None:
            self.plan_timer(number, shard, key)
        return STORED if first is None else first

    def carry_out_in_batches(self, number: int, shard: Shard, result: Any) -> None:
        """As `carry_out`, for records that need not be in one batch: they may be too many for one."""
        from pykbroker.coordination.partition_writer import batch_starts

        partition, records = self.partition(number), result.records
        if partition is None or not records:
            return
        pairs = [shard.encode(record) for record in records]
        starts = batch_starts(pairs, partition.log.config.max_message_bytes)
        for start, end in pairwise((*starts, len(records))):
            self.carry_out(number, shard, type(result)(records=records[start:end]))

    async def carry_out_in_turns(self, work: Iterable[tuple[int, Shard, Iterable[Any]]]) -> None:
        """As `carry_out_in_batches`, for results of several shards, in turns with other tasks.

        Each result is carried out in the step in which it was made. Those of a shard that is unloaded are left out.
        """
        turn = Turn()
        for number, shard, results in work:
            for result in results:
                if self.shards.get(number) is not shard:
                    break
                self.carry_out_in_batches(number, shard, result)
                await turn.end_if_over()

    def when_replicated(self, number: int, end_offset: int, action: Callable[..., None], *arguments: Any) -> None:
        """Calls `action` when a partition is replicated up to an offset and all earlier appends have taken effect."""
        if self._queues.must_wait(number, self.partition(number), end_offset):
            self._queues.push(number, end_offset, partial(action, *arguments), lambda error: None, self.nursery)
        else:
            action(*arguments)

    def when_late(self, key: str, operation: Callable[..., Any], *arguments: Any) -> None:
        """Runs an operation if the records that are in the log of a key's partition now are not replicated in time.

        For requests that wait in a shard and whose own operation has added no record.

        Args:
            key: selects the shard.
            operation: returns a `CoordinatorResult`, given the shard, the key, the `arguments` and the client's error.
        """
        found = self._log_end(key)
        if found is None:
            return
        number, shard, end_offset = found
        if not self._queues.must_wait(number, self.partition(number), end_offset):
            return
        from pykbroker.coordination.partition_writer import response_error

        def run_late(error: ErrorCode) -> None:
            self.carry_out(number, shard, operation(shard, key, *arguments, response_error(error)), key)

        self._queues.push(number, end_offset, lambda: None, run_late, self.nursery)

    def when_settled(self, key: str, operation: Callable[..., None], *arguments: Any) -> None:
        """Runs an operation when the records that are in the log of a key's partition now are replicated.

        If they are late it never runs. For what follows from a response without records of its own.

        Args:
            key: selects the shard, and is the key whose timer may change.
            operation: is given the shard, the `arguments` and the time in ms.
        """
        found = self._log_end(key)
        if found is None:
            return
        number, shard, end_offset = found
        if not self._queues.must_wait(number, self.partition(number), end_offset):
            operation(shard, *arguments, self.now_ms())
            self.plan_timer(number, shard, key)
            return

        def run_if_in_time() -> None:
            if not waiting.is_answered:
                operation(shard, *arguments, self.now_ms())
                self.plan_timer(number, shard, key)

        waiting = self._queues.push(number, end_offset, run_if_in_time, lambda error: None, self.nursery)

    def _log_end(self, key: str) -> tuple[int, Shard, int] | None:
        """Partition, shard and end offset of the log of a key; None if this broker does not coordinate it any more."""
        try:
            number, shard = self.find(key)
        except CoordinatorError:
            return None
        partition = self.partition(number)
        return None if partition is None else (number, shard, partition.log.log_end_offset)

    async def wait_replicated(self, number: int) -> None:
        """Waits until everything that is in a partition's log now is replicated; raises CoordinatorError if not."""
        partition = self.partition(number)
        if partition is None:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        end_offset = partition.log.log_end_offset
        if not self._queues.must_wait(number, partition, end_offset):
            return
        replication = self._queues.push(number, end_offset, lambda: None, lambda error: None, self.nursery)
        error = await _replicated(replication)
        if error is not ErrorCode.NONE:
            raise CoordinatorError(error)

    def _append(
        self, number: int, shard: Shard, result: Any, verification: Verification | None
    ) -> tuple[ErrorCode, int, int]:
        """Appends one batch; returns the error for the client (P-115), the first record's offset and the end offset."""
        from pykbroker.coordination.partition_writer import append_records, response_error

        partition = self.partition(number)
        if partition is None:
            return ErrorCode.NOT_COORDINATOR, -1, -1
        first_offset = partition.log.log_end_offset
        if self._codec == NONE and result.size_min > partition.log.config.max_message_bytes:
            return response_error(ErrorCode.MESSAGE_TOO_LARGE), first_offset, first_offset
        records = result.frames or frames_of(map(shard.encode, result.records))
        error = append_records(partition, records, self._codec, self._clock.now_ms(), result.producer, verification)
        return response_error(error), first_offset, partition.log.log_end_offset

    def _await_replicas(
        self, number: int, shard: Shard, result: Any, key: str | None, first_offset: int, end_offset: int
    ) -> Waiting:
        from pykbroker.coordination.partition_writer import response_error

        def take_effect() -> None:
            self.carry_out(number, shard, shard.replicated(result, self.now_ms(), first_offset), key)

        def report_late(error: ErrorCode) -> None:
            self.carry_out(number, shard, shard.late(result, response_error(error), self.now_ms()), key)

        shard.appended(result, self.now_ms(), first_offset)
        return self._queues.push(number, end_offset, take_effect, report_late, self.nursery)

    # Timers

    def schedule(self, name: str, delay_ms: int, task: Callable[[], Awaitable[None]]) -> None:
        """Runs a task of the coordinator after a delay, unless one of this name is scheduled already."""
        if name not in self._tasks:
            self._tasks[name] = (self.now_ms() + delay_ms, task)
            self._timer.wake()

    def plan_timer(self, number: int, shard: Shard, key: str) -> None:
        """Plans the timer of a key by the shard's `wake_ms`; called directly after a change of the timer alone."""
        if self._deadlines.plan((number, key), shard.wake_ms(key)):
            self._timer.wake()

    def expire_due(self) -> int:
        """Runs the shards' timers that are due; returns the time in ms."""
        now_ms = self.now_ms()
        while (due := self._deadlines.pop_due(now_ms)) is not None:
            number, key = due
            shard = self.shards.get(number)
            if shard is not None:
                self.carry_out(number, shard, shard.expire_due(key, now_ms), key)
        return now_ms
