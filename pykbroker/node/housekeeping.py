"""Periodic tasks of a broker: retention, flushing, checkpoints, idle connections.

Each is one task with one interval of Kafka's settings; an idle broker wakes a few times a minute.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from pykbroker.logstore.errors import LogError
from pykbroker.node.process_memory import FreedMemory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from pykbroker.logstore.log_cleaner import LogCleaner
    from pykbroker.logstore.partition_log import PartitionLog
    from pykbroker.network.listener import Listener
    from pykbroker.replication.partition import Partition
    from pykbroker.replication.replica_manager import ReplicaManager
    from pykbroker.requests.context import BrokerServices, NodeServices

log = logging.getLogger(__name__)

IDLE_CHECKS_PER_TIMEOUT = 10
"""A connection may live this fraction of `connections.max.idle.ms` longer than it should."""

BUFFER_CHECK_MS = 60_000

TRIM_INTERVAL_S = 0.5
"""A log that gets less than 64 KiB in such an interval is trimmed at its end."""

MEMORY_INTERVAL_S = 3

NEVER_MS = 1 << 62
"""Kafka's default for what is not done by time is the largest int64."""

OFFLINE_INTERVAL_S = 2.0
"""Seconds between two attempts to open logs that could not be opened."""

LOGS_PER_TURN = 50
"""Logs looked at before other tasks get their turn."""

DIRECTORIES_INTERVAL_S = 0.5
DIRECTORIES_PER_TURN = 20


def start_housekeeping(
    nursery: trio.Nursery,
    services: BrokerServices,
    listeners: Sequence[Listener],
    replicas: ReplicaManager | None = None,
) -> None:
    """Starts the tasks in a nursery; they end when it is cancelled. `replicas` is None on a broker that is alone."""
    config = services.config
    delay_ms = config.log.initial_task_delay_ms
    for interval_ms, work in (
        (config.log.retention_check_interval_ms, _delete_old_segments),
        (config.log.flush_offset_checkpoint_interval_ms, _flush_and_checkpoint),
        (config.log.flush_start_offset_checkpoint_interval_ms, _checkpoint_log_starts),
    ):
        nursery.start_soon(_every, delay_ms, interval_ms, work, services)
    # Kafka's logs have this task each, which first waits for its own interval.
    interval_ms = config.transactions.producer_id_expiration_check_interval_ms
    nursery.start_soon(_every, interval_ms, interval_ms, _expire_producers, services)
    if config.log.flush_scheduler_interval_ms < NEVER_MS:
        nursery.start_soon(_flush_by_time, delay_ms, config.log.flush_scheduler_interval_ms, services)
    nursery.start_soon(_trim_idle_logs, services)
    nursery.start_soon(_finish_directories, services)
    nursery.start_soon(_open_offline_logs, services, replicas)
    if config.log.cleaner_enable:
        nursery.start_soon(_clean_logs, config.log.cleaner_backoff_ms, services)
    nursery.start_soon(_look_after_connections, config.connections.max_idle_ms, listeners)
    nursery.start_soon(_give_back_memory, services)


def start_controller_housekeeping(nursery: trio.Nursery, services: NodeServices, listeners: Sequence[Listener]) -> None:
    """Start the tasks of a controller's listeners; in a process without a broker also those of the whole process."""
    config = services.config
    nursery.start_soon(_look_after_connections, config.connections.max_idle_ms, listeners)
    if not config.is_broker:
        nursery.start_soon(_trim_idle_logs, services)
        nursery.start_soon(_give_back_memory, services)


async def _every(
    delay_ms: int, interval_ms: int, work: Callable[[BrokerServices], Awaitable[None]], services: BrokerServices
) -> None:
    """Runs `work` after a delay and then after every interval; a log that fails does not keep the others from it."""
    await trio.sleep(delay_ms / 1000)
    while True:
        await work(services)
        await trio.sleep(interval_ms / 1000)


async def _delete_old_segments(services: BrokerServices) -> None:
    """Retention by time and size (P-164), and the files whose deletion was put off."""
    now_ms = services.clock.now_ms()
    for number, partition in enumerate(list(services.partitions.all())):
        if number % LOGS_PER_TURN == LOGS_PER_TURN - 1:
            await trio.lowlevel.checkpoint()
        try:
            count = partition.log.delete_old_segments(now_ms, partition.high_watermark)
        except LogError as error:
            log.error("retention of %s failed: %s", partition, error)
            continue
        if count:
            log.info(
                "%s: %d segment(s) deleted by retention, log start is %d", partition, count, partition.log_start_offset
            )


async def _flush_and_checkpoint(services: BrokerServices) -> None:
    """Makes sealed segments durable and notes from where a recovery would have to start.

    The active segment is left to the operating system, as in Kafka: what a crash of the process leaves in the page
    cache is not lost, and a crash of the machine is what replicas are for.
    """
    directory = services.log_directory
    for number, partition in enumerate(list(services.partitions.all())):
        if number % LOGS_PER_TURN == LOGS_PER_TURN - 1:
            await trio.lowlevel.checkpoint()
        if partition.log.has_unflushed_segments:
            await _flush(services, partition, include_active=False)
    try:
        directory.forget_removed_logs()
        directory.checkpoint_recovery_points()
        directory.checkpoint_high_watermarks(high_watermarks(services))
        directory.delete_due_files(services.clock.now_ms(), 0)
        while directory.delete_due_logs(services.clock.now_ms(), LOGS_PER_TURN):
            await trio.lowlevel.checkpoint()
    except LogError as error:
        log.error("checkpoints could not be written: %s", error)


async def _checkpoint_log_starts(services: BrokerServices) -> None:
    """Notes where DeleteRecords moved log starts to."""
    try:
        services.log_directory.checkpoint_log_start_offsets()
    except LogError as error:
        log.error("the checkpoint of log starts could not be written: %s", error)


async def _flush_by_time(delay_ms: int, interval_ms: int, services: BrokerServices) -> None:
    """flush.ms: makes a log durable that was not for so long; looked at every `log.flush.scheduler.interval.ms`."""
    schedule = FlushSchedule()
    await trio.sleep(delay_ms / 1000)
    while True:
        for partition in schedule.due(services.partitions.all(), trio.current_time()):
            await _flush(services, partition, include_active=True)
        await trio.sleep(interval_ms / 1000)


class FlushSchedule:
    """Times of the last flush of each partition that exists. Pure."""

    def __init__(self) -> None:
        self._flushed_at: dict[Partition, float] = {}

    def due(self, partitions: Iterable[Partition], now_s: float) -> list[Partition]:
        """The partitions whose last flush was `flush.ms` ago or longer, which count as flushed now.

        A partition that is not among those given is forgotten: it was deleted.
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


async def _flush(services: BrokerServices, partition: Partition, *, include_active: bool) -> None:
    try:
        work = partition.log.begin_flush(include_active=include_active)
        if work is not None:
            try:
                await services.run_in_thread(work.run)
            finally:
                work.finish()
    except LogError as error:
        log.error("flushing %s failed: %s", partition, error)


def high_watermarks(services: BrokerServices) -> dict[tuple[str, int], int]:
    """The high watermark of every partition, for the checkpoint."""
    return {(p.topic, p.partition): p.high_watermark for p in services.partitions.all()}


async def _expire_producers(services: BrokerServices) -> None:
    """Forgets producers that were idle too long (P-56)."""
    now_ms = services.clock.now_ms()
    for number, partition in enumerate(list(services.partitions.all())):
        if number % LOGS_PER_TURN == LOGS_PER_TURN - 1:
            await trio.lowlevel.checkpoint()
        partition.log.remove_expired_producers(now_ms)


async def _clean_logs(backoff_ms: int, services: BrokerServices) -> None:
    """Compaction (P-161 to P-163): the dirtiest log that is due, one after another; the work runs in a thread."""

    def bounds(topic: str, number: int) -> tuple[int, int] | None:
        partition = services.partitions.get(topic, number)
        return None if partition is None else (partition.last_stable_offset, partition.high_watermark)

    cleaner: LogCleaner | None = None
    while True:
        await trio.sleep(backoff_ms / 1000)
        if not any(_may_be_compacted(partition.log) for partition in services.partitions.all()):
            continue
        if cleaner is None:
            # Most brokers never come here, and those that do have time.
            from pykbroker.logstore.log_cleaner import LogCleaner

            cleaner = LogCleaner(services.log_directory)
        try:
            while (work := cleaner.begin(services.clock.now_ms(), bounds)) is not None:
                try:
                    await services.run_in_thread(work.run)
                finally:
                    cleaner.finish(work, services.clock.now_ms())
        except LogError as error:
            log.error("compaction failed and will be tried again: %s", error)


def _may_be_compacted(partition_log: PartitionLog) -> bool:
    return partition_log.config.is_compacted and partition_log.is_loaded and len(partition_log.segment_base_offsets) > 1


async def _trim_idle_logs(services: NodeServices) -> None:
    """Gives back the space that logs hold ahead of their data, soon after the last append.

    So tools that read the files of a running broker, such as kafka-dump-log, find them exactly as long as their data.
    """
    filesystem = services.log_directory.filesystem
    while True:
        await trio.sleep(TRIM_INTERVAL_S)
        try:
            filesystem.trim_idle()
        except LogError as error:
            log.error("a log file could not be trimmed: %s", error)


async def _finish_directories(services: BrokerServices) -> None:
    """Makes the folders of new logs, and renames those of deleted ones, where there were too many for one turn."""
    directory = services.log_directory
    is_failing = False
    while True:
        await trio.sleep(DIRECTORIES_INTERVAL_S)
        try:
            while directory.finish_directories(services.clock.now_ms(), DIRECTORIES_PER_TURN):
                await trio.lowlevel.checkpoint()
            is_failing = False
        except LogError as error:
            if not is_failing:
                log.error("folders of logs could not be made or renamed, which will be tried again: %s", error)
            is_failing = True


async def _look_after_connections(idle_ms: int, listeners: Sequence[Listener]) -> None:
    """Closes connections that were idle too long (P-11), and takes the buffers of quiet ones."""
    interval_ms = idle_ms / IDLE_CHECKS_PER_TIMEOUT if idle_ms > 0 else BUFFER_CHECK_MS
    while True:
        await trio.sleep(min(interval_ms, BUFFER_CHECK_MS) / 1000)
        for listener in listeners:
            if idle_ms > 0:
                listener.close_idle(trio.current_time() - idle_ms / 1000)
            listener.shrink_idle()


async def _give_back_memory(services: NodeServices) -> None:
    """Freed memory goes back to the system soon after a burst; what was kept for clients is freed when unused."""
    freed = FreedMemory()
    while True:
        services.metadata.encoded_topics.release_unused(trio.current_time())
        freed.give_back()
        await trio.sleep(MEMORY_INTERVAL_S)


async def _open_offline_logs(services: BrokerServices, replicas: ReplicaManager | None) -> None:
    """Serves again what could not be opened, made or read, on a full disk for instance."""
    while True:
        await trio.sleep(OFFLINE_INTERVAL_S)
        if services.partitions.has_offline:
            services.partitions.open_offline(services.metadata.image)
            if replicas is not None:
                replicas.follow_all()
        services.groups.load_missing()
        services.transactions.load_missing()
