"""Periodic tasks of a broker: retention, flushing, checkpoints, idle connections.

Each is a task with its own interval, from Kafka's settings; an idle broker wakes a few times a minute.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.turns import EachInTurns, in_turns
from pykbroker.logstore.errors import LogError, StorageError
from pykbroker.node.process_memory import FreedMemory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

    from pykbroker.logstore.blocking_step import BlockingStep
    from pykbroker.logstore.log_cleaner import LogCleaner
    from pykbroker.logstore.partition_log import PartitionLog
    from pykbroker.network.listener import Listener
    from pykbroker.replication.partition import Partition
    from pykbroker.replication.replication_tasks import ReplicationTasks
    from pykbroker.requests.context import BrokerServices, NodeServices

log = logging.getLogger(__name__)

IDLE_CHECKS_PER_TIMEOUT = 10
"""Checks for idle connections in each `connections.max.idle.ms`: a connection may live a tenth longer than that."""

BUFFER_CHECK_MS = 60_000

TRIM_INTERVAL_S = 0.5
"""Seconds after which a log with less than 64 KiB of new data is trimmed to its data."""

MEMORY_INTERVAL_S = 3

BACKOFF_CHECK_S = 15.0
"""Seconds between two checks of the cleaner whether its backoff was shortened."""

NEVER_MS = 1 << 62
"""Intervals from here on mean never; Kafka's default for them is the largest int64."""

OFFLINE_INTERVAL_S = 2.0
"""Seconds between two attempts to open logs that could not be opened."""

DIRECTORIES_INTERVAL_S = 0.5

DELETION_INTERVAL_MIN_S = 1.0
DELETION_INTERVAL_MAX_S = 60.0
"""Bounds of the time between two deletions of removed files; a topic may have a shorter delay than the broker."""

DIRECTORIES_PER_TURN = 1
"""Directories of logs that a task creates, renames or removes before it yields to other tasks: with thousands of others
in the data directory one takes 1 ms."""


def start_housekeeping(
    nursery: trio.Nursery,
    services: BrokerServices,
    listeners: Sequence[Listener],
    replicas: ReplicationTasks | None = None,
) -> None:
    """Starts the tasks in a nursery; they end when it is cancelled. `replicas` is None on a single broker."""
    config = services.config
    delay_ms = config.log.initial_task_delay_ms
    for interval_ms, work in (
        (config.log.retention_check_interval_ms, _delete_old_segments),
        (config.log.flush_offset_checkpoint_interval_ms, _flush_and_checkpoint),
        (config.log.flush_start_offset_checkpoint_interval_ms, _checkpoint_log_starts),
    ):
        nursery.start_soon(_run_periodically, delay_ms, interval_ms, work, services)
    if config.replication.high_watermark_checkpoint_interval_ms > 0:
        nursery.start_soon(
            _checkpoint_high_watermarks, config.replication.high_watermark_checkpoint_interval_ms, services
        )
    nursery.start_soon(_delete_removed, delay_ms, services)
    # In Kafka each log has such a task, which waits for one interval first.
    interval_ms = config.transactions.producer_id_expiration_check_interval_ms
    nursery.start_soon(_run_periodically, interval_ms, interval_ms, _expire_producers, services)
    if config.log.flush_scheduler_interval_ms < NEVER_MS:
        nursery.start_soon(_flush_by_time, delay_ms, config.log.flush_scheduler_interval_ms, services)
    nursery.start_soon(_trim_idle_logs, services)
    nursery.start_soon(_finish_directories, services)
    nursery.start_soon(_open_offline_logs, services, replicas)
    if config.log.cleaner_enable:
        nursery.start_soon(_clean_logs, services)
    nursery.start_soon(_close_idle_connections, config.connections.max_idle_ms, listeners)
    nursery.start_soon(_give_back_memory, services)


def start_controller_housekeeping(nursery: trio.Nursery, services: NodeServices, listeners: Sequence[Listener]) -> None:
    """Starts the tasks of a controller's listeners, and those of the process if it has no broker."""
    config = services.config
    nursery.start_soon(_close_idle_connections, config.connections.max_idle_ms, listeners)
    start_removal_of_tokens(nursery, services)
    if not config.is_broker:
        nursery.start_soon(_trim_idle_logs, services)
        nursery.start_soon(_give_back_memory, services)


def start_removal_of_tokens(nursery: trio.Nursery, services: NodeServices) -> None:
    """Starts the removal of expired delegation tokens in a process that may be the active controller."""
    delegation_tokens = services.config.delegation_tokens
    if delegation_tokens.secret_key:
        nursery.start_soon(_remove_expired_tokens, delegation_tokens.expiry_check_interval_ms, services)


async def _remove_expired_tokens(interval_ms: int, services: NodeServices) -> None:
    """Removes expired delegation tokens after every interval, on the active controller."""
    from pykbroker.controller.metadata.commands import CommandRefused
    from pykbroker.controller.metadata.delegation_tokens import RemoveExpiredTokens

    while True:
        await trio.sleep(interval_ms / 1000)
        try:
            while services.controller.is_leader:
                command = RemoveExpiredTokens(services.clock.now_ms())
                if not await services.controller.submit(command, services.config.request_timeout_ms):
                    break
        except CommandRefused as refused:
            log.warning("expired delegation tokens are not removed yet: %s", refused)


async def _run_periodically(
    delay_ms: int, interval_ms: int, work: Callable[[BrokerServices], Awaitable[None]], services: BrokerServices
) -> None:
    """Runs `work` after a delay and then after every interval, both in ms."""
    await trio.sleep(delay_ms / 1000)
    while True:
        await work(services)
        await trio.sleep(interval_ms / 1000)


@contextmanager
def _failures_logged(services: BrokerServices, what: str) -> Iterator[None]:
    """Logs an error of a log, and has the log directory checked: no client may have used it since it failed."""
    try:
        yield
    except LogError as error:
        _report(services, error)
        log.error("%s: %s", what, error)


def _report(services: BrokerServices, error: LogError) -> None:
    if isinstance(error, StorageError):
        services.partitions.environment.storage_failures.report(error)


async def _delete_old_segments(services: BrokerServices) -> None:
    """Retention by time and size (P-164) of every log; an error of one log is logged and does not stop the others."""
    now_ms = services.clock.now_ms()
    async for partition in EachInTurns(list(services.partitions.all())):
        if partition.is_closed:  # deleted since the list was made, perhaps with its files
            continue
        with _failures_logged(services, f"retention of {partition} failed"):
            count = partition.log.delete_old_segments(now_ms, partition.high_watermark)
            if count:
                log.info(
                    "%s: %d segment(s) deleted by retention, log start offset is %d",
                    partition,
                    count,
                    partition.log_start_offset,
                )
            if partition.future is not None:
                _delete_old_segments_of(partition.future, now_ms, partition)


def _delete_old_segments_of(future: PartitionLog, now_ms: int, partition: Partition) -> None:
    """Retention of the copy of a log that moves; else its log start would only move with the next copied slice."""
    try:
        end_offset = min(partition.log_start_offset, future.log_end_offset)
        future.advance_log_start(end_offset)
        future.delete_old_segments(now_ms, end_offset)
    except LogError as error:
        log.error("retention of the copy of %s failed: %s", partition, error)
        if isinstance(error, StorageError):
            partition.on_storage_error(error)


async def _flush_and_checkpoint(services: BrokerServices) -> None:
    """Flushes sealed segments and writes checkpoints.

    Active segments are not flushed, as in Kafka: their bytes in the page cache survive a crash of the process, and
    replicas protect against a crash of the machine.
    """
    async for partition in EachInTurns(list(services.partitions.all())):
        if partition.is_closed:
            continue
        if partition.log.has_unflushed_segments:
            await _flush(services, partition.log, include_active=False)
        if partition.future is not None and partition.future.has_unflushed_segments:
            await _flush(services, partition.future, include_active=False)
    with _failures_logged(services, "checkpoints could not be written"):
        await _run_steps(services, services.log_directory.write_checkpoints(high_watermarks(services)))


async def _delete_removed(initial_delay_ms: int, services: BrokerServices) -> None:
    """Deletes files and logs that were removed some time ago.

    The broker's delay, which may change, is also the interval of the checks, so what waits for it is deleted before a
    second one is over.
    """
    await trio.sleep(initial_delay_ms / 1000)
    while True:
        delay_ms = services.metadata.settings.default_log_config(services.metadata.image).file_delete_delay_ms
        await _delete_due(services, delay_ms)
        await trio.sleep(min(max(delay_ms / 1000, DELETION_INTERVAL_MIN_S), DELETION_INTERVAL_MAX_S))


async def _delete_due(services: BrokerServices, delay_ms: int) -> None:
    """Deletes removed files and deleted logs that are due. An error of one log is logged and the rest go on."""
    directory = services.log_directory
    async for partition_log in EachInTurns(list(directory)):
        with _failures_logged(services, "a removed file could not be deleted"):
            partition_log.delete_due_files(services.clock.now_ms())
    with _failures_logged(services, "a deleted log could not be removed"):
        while directory.delete_due_logs(services.clock.now_ms(), delay_ms, DIRECTORIES_PER_TURN):
            await trio.lowlevel.checkpoint()


async def _checkpoint_high_watermarks(interval_ms: int, services: BrokerServices) -> None:
    """Writes the high watermarks after every interval (P-672).

    A directory that is gone is noticed by this: appends to files that are open still succeed. The first failure of
    several is logged, as the interval is short.
    """
    is_failing = False
    while True:
        await trio.sleep(interval_ms / 1000)
        try:
            await _run_steps(services, services.log_directory.write_high_watermarks(high_watermarks(services)))
            is_failing = False
        except LogError as error:
            _report(services, error)
            if not is_failing:
                log.error("high watermarks could not be written: %s", error)
            is_failing = True


async def _checkpoint_log_starts(services: BrokerServices) -> None:
    """Writes the checkpoint of the log start offsets that DeleteRecords has moved."""
    with _failures_logged(services, "the checkpoint of log start offsets could not be written"):
        await _run_steps(services, services.log_directory.write_log_starts())


async def _run_steps(services: BrokerServices, steps: Iterator[BlockingStep | None]) -> None:
    """Does work in steps, between which other tasks run; steps that wait for the disk run in a thread."""
    try:
        for step in steps:
            if step is None:
                await trio.lowlevel.checkpoint()
            else:
                await services.run_in_thread(step.run)
    finally:
        if isinstance(steps, Generator):
            # A stop leaves the work unfinished: it tidies up now, and not when it is collected as garbage.
            steps.close()


async def _flush_by_time(delay_ms: int, interval_ms: int, services: BrokerServices) -> None:
    """Flushes logs whose last flush is `flush.ms` ago; checks every `log.flush.scheduler.interval.ms`."""
    schedule = FlushSchedule()
    await trio.sleep(delay_ms / 1000)
    while True:
        for partition in schedule.due(services.partitions.all(), trio.current_time()):
            await _flush(services, partition.log, include_active=True)
        await trio.sleep(interval_ms / 1000)


class FlushSchedule:
    """Time of the last flush of each partition that exists, in seconds. Pure."""

    def __init__(self) -> None:
        self._flushed_at: dict[Partition, float] = {}

    def due(self, partitions: Iterable[Partition], now_s: float) -> list[Partition]:
        """Partitions whose last flush was at least `flush.ms` ago; they count as flushed from now on.

        Times of partitions that are not among `partitions` are removed: these partitions were deleted.
        """
        due: list[Partition] = []
        times: dict[Partition, float] = {}
        for partition in partitions:
            flush_ms = partition.log.config.flush_ms
            if flush_ms >= NEVER_MS:
                continue
            times[partition] = self._flushed_at.get(partition, 0.0)
            if now_s >= times[partition] + flush_ms / 1000:
                times[partition] = now_s
                due.append(partition)
        self._flushed_at = times
        return due


async def _flush(services: BrokerServices, partition_log: PartitionLog, *, include_active: bool) -> None:
    with _failures_logged(services, f"flushing {partition_log} failed"):
        work = partition_log.begin_flush(include_active=include_active)
        if work is not None:
            try:
                await services.run_in_thread(work.run)
            finally:
                work.finish()


def high_watermarks(services: BrokerServices) -> Iterator[tuple[tuple[str, int], int]]:
    """Partitions with their high watermarks at the time when they are read, for the checkpoint."""
    return (((p.topic, p.partition), p.high_watermark) for p in list(services.partitions.all()))


async def _expire_producers(services: BrokerServices) -> None:
    """Removes the state of producers that have been idle for `producer.id.expiration.ms` (P-56)."""
    now_ms = services.clock.now_ms()
    async for partition in EachInTurns(list(services.partitions.all())):
        partition.log.remove_expired_producers(now_ms)


async def _cleaner_backoff(services: BrokerServices) -> None:
    """Waits for `log.cleaner.backoff.ms`, which may change meanwhile: it is a dynamic setting."""
    began_s = trio.current_time()
    while True:
        end_s = began_s + services.metadata.config.log.cleaner_backoff_ms / 1000
        await trio.sleep_until(min(end_s, trio.current_time() + BACKOFF_CHECK_S))
        if trio.current_time() >= end_s:
            return


async def _clean_logs(services: BrokerServices) -> None:
    """Compaction (P-161 to P-163) of the logs that are due, the dirtiest first; the work runs in a thread."""

    def stable_offset(topic: str, number: int) -> int | None:
        partition = services.partitions.get(topic, number)
        if partition is None or partition.future is not None:
            # As in Kafka, a log that moves is not compacted until it has moved.
            return None
        return partition.last_stable_offset

    cleaner: LogCleaner | None = None
    while True:
        await _cleaner_backoff(services)
        async for partition in EachInTurns(list(services.partitions.all())):
            if _may_be_compacted(partition.log):
                break
        else:
            continue
        if cleaner is None:
            # Most brokers never compact, so they do not import the cleaner.
            from pykbroker.logstore.log_cleaner import LogCleaner

            cleaner = LogCleaner(services.log_directory)
        with _failures_logged(services, "compaction failed and will be tried again"):
            while (work := await in_turns(cleaner.begin(services.clock.now_ms(), stable_offset))) is not None:
                services.partitions.cleaned = work.topic_partition
                try:
                    await services.run_in_thread(work.run)
                finally:
                    services.partitions.cleaned = None
                    cleaner.finish(work, services.clock.now_ms())
                await _run_steps(services, cleaner.write_checkpoint())


def _may_be_compacted(partition_log: PartitionLog) -> bool:
    return partition_log.config.is_compacted and partition_log.is_loaded and len(partition_log.segment_base_offsets) > 1


async def _trim_idle_logs(services: NodeServices) -> None:
    """Cuts off the space that was allocated ahead of a log's data, soon after the last append.

    Tools that read the files of a running broker, such as kafka-dump-log, then find no zeros at the end.
    """
    filesystem = services.log_directory.filesystem
    while True:
        await trio.sleep(TRIM_INTERVAL_S)
        try:
            filesystem.trim_idle()
        except LogError as error:
            log.error("a log file could not be trimmed: %s", error)


async def _finish_directories(services: BrokerServices) -> None:
    """Creates directories of new logs and renames those of deleted logs, one at a time, when there are many."""
    directory, partitions = services.log_directory, services.partitions
    is_failing = False
    while True:
        await trio.sleep(DIRECTORIES_INTERVAL_S)
        try:
            # The answer to a request for thousands of partitions does not wait for their directories.
            while not partitions.is_preparing:
                if not directory.finish_directories(services.clock.now_ms(), DIRECTORIES_PER_TURN):
                    break
                await trio.lowlevel.checkpoint()
            is_failing = False
        except LogError as error:
            _report(services, error)
            if not is_failing:
                log.error("directories of logs could not be made or renamed, which will be tried again: %s", error)
            is_failing = True


async def _close_idle_connections(idle_ms: int, listeners: Sequence[Listener]) -> None:
    """Closes connections that have been idle for too long (P-11), and shrinks the buffers of quiet ones."""
    interval_ms = idle_ms / IDLE_CHECKS_PER_TIMEOUT if idle_ms > 0 else BUFFER_CHECK_MS
    while True:
        await trio.sleep(min(interval_ms, BUFFER_CHECK_MS) / 1000)
        for listener in listeners:
            if idle_ms > 0:
                listener.close_idle(trio.current_time() - idle_ms / 1000)
            listener.shrink_idle()


async def _give_back_memory(services: NodeServices) -> None:
    """Returns freed memory to the system soon after a burst, and frees encoded metadata that no client uses."""
    freed = FreedMemory(time.process_time)
    while True:
        services.metadata.encoded_topics.release_unused(trio.current_time())
        freed.give_back(trio.current_time())
        await trio.sleep(MEMORY_INTERVAL_S)


async def _open_offline_logs(services: BrokerServices, replicas: ReplicationTasks | None) -> None:
    """Tries again to open logs that could not be opened, created or read, for example on a full disk."""
    while True:
        await trio.sleep(OFFLINE_INTERVAL_S)
        if services.partitions.has_offline:
            services.partitions.open_offline(services.metadata.image)
            if replicas is not None:
                replicas.follow_all()
        for coordinator in (services.groups, services.transactions, services.share_state):
            coordinator.runtime.load_missing()
