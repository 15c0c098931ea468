"""What a broker does by itself from time to time: retention, flushing, checkpoints, idle connections.

Each is one task with one interval of Kafka's settings; an idle broker wakes a few times a minute.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from pykbroker.logstore.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykbroker.listener import Listener
    from pykbroker.logstore.flush import FlushWork
    from pykbroker.request_context import Services

log = logging.getLogger(__name__)

IDLE_CHECKS_PER_TIMEOUT = 10
"""A connection may live this fraction of `connections.max.idle.ms` longer than it should."""

LOGS_PER_TURN = 50
"""Logs looked at before other tasks get their turn."""


def start_housekeeping(nursery: trio.Nursery, services: Services, listeners: Sequence[Listener]) -> None:
    """Starts the tasks in a nursery; they end when it is cancelled."""
    config = services.config
    nursery.start_soon(_every, config.log_retention_check_interval_ms, _delete_old_segments, services)
    nursery.start_soon(_every, config.log_flush_offset_checkpoint_interval_ms, _flush_and_checkpoint, services)
    nursery.start_soon(_every, config.producer_id_expiration_check_interval_ms, _expire_producers, services)
    if config.connections_max_idle_ms > 0:
        nursery.start_soon(_close_idle_connections, config.connections_max_idle_ms, listeners)


async def _every(interval_ms: int, work: Callable[[Services], object], services: Services) -> None:
    """Runs `work` after every interval. A log that fails is reported and does not keep the others from it."""
    while True:
        await trio.sleep(interval_ms / 1000)
        await work(services)  # type: ignore[misc]


async def _delete_old_segments(services: Services) -> None:
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


async def _flush_and_checkpoint(services: Services) -> None:
    """Makes sealed segments durable and notes from where a recovery would have to start.

    The active segment is left to the operating system, as in Kafka: what a crash of the process leaves in the page
    cache is not lost, and a crash of the machine is what replicas are for.
    """
    directory = services.log_directory
    for number, partition in enumerate(list(services.partitions.all())):
        if number % LOGS_PER_TURN == LOGS_PER_TURN - 1:
            await trio.lowlevel.checkpoint()
        if partition.log.has_unflushed_segments:
            work = partition.log.begin_flush(include_active=False)
            if work is not None:
                await _run_flush(work, str(partition))
    try:
        directory.checkpoint_recovery_points()
        directory.checkpoint_log_start_offsets()
        directory.checkpoint_high_watermarks(high_watermarks(services))
        directory.delete_due_files(services.clock.now_ms())
    except LogError as error:
        log.error("checkpoints could not be written: %s", error)


async def _run_flush(work: FlushWork, name: str) -> None:
    try:
        await trio.to_thread.run_sync(work.run)
    except LogError as error:
        log.error("flushing %s failed: %s", name, error)
    finally:
        work.finish()


def high_watermarks(services: Services) -> dict[tuple[str, int], int]:
    """The high watermark of every partition, for the checkpoint."""
    return {(p.topic, p.partition): p.high_watermark for p in services.partitions.all()}


async def _expire_producers(services: Services) -> None:
    """Forgets producers that were idle too long (P-56)."""
    now_ms = services.clock.now_ms()
    for number, partition in enumerate(list(services.partitions.all())):
        if number % LOGS_PER_TURN == LOGS_PER_TURN - 1:
            await trio.lowlevel.checkpoint()
        partition.log.remove_expired_producers(now_ms)


async def _close_idle_connections(timeout_ms: int, listeners: Sequence[Listener]) -> None:
    """P-11."""
    while True:
        await trio.sleep(timeout_ms / 1000 / IDLE_CHECKS_PER_TIMEOUT)
        for listener in listeners:
            listener.close_idle(trio.current_time() - timeout_ms / 1000)
