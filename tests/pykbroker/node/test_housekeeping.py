"""Periodic tasks and port binding of the broker, in virtual time."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
import trio

from pykbroker.controller import turns as task_turns
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.logstore import filesystem
from pykbroker.logstore.checkpoint_file import read_offsets
from pykbroker.logstore.compaction import CompactionWork
from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.log_directory import UNDELAYED_DIRECTORIES_MAX
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.metadata.dynamic_broker_config import CLUSTER_WIDE_BROKER
from pykbroker.network.listener import BindError, Listener, bind
from pykbroker.node import housekeeping
from pykbroker.node.housekeeping import DIRECTORIES_INTERVAL_S, FlushSchedule, start_housekeeping
from pykbroker.replication.partition import Partition
from tests.support.data_path import NOW_MS, DataPath, batch, cluster_image, topic_image
from tests.support.turns import TaskSteps, with_turns

Result = TypeVar("Result")
Work = Callable[[Any], Awaitable[None]]

HOUR_MS = 3_600_000
LOCALHOST = [(socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")]


class InPlace:
    """Runs what is meant for a thread at once: the virtual clock would not wait for a thread."""

    def __init__(self) -> None:
        self.is_running = False

    async def run(self, work: Callable[[], Result]) -> Result:
        await trio.lowlevel.checkpoint()
        self.is_running = True
        try:
            return work()
        finally:
            self.is_running = False


@pytest.fixture
def path(tmp_path: Path) -> Any:
    settings = {"segment.bytes": "1048576", "retention.ms": str(HOUR_MS)}
    image = cluster_image(topic_image("old"), configs={"old": settings})
    data_path = DataPath(tmp_path, image, {"connections.max.idle.ms": "60000"})
    data_path.services.run_in_thread = InPlace().run
    yield data_path
    data_path.close()


async def test_old_segments_go(path: DataPath) -> None:
    """P-164: whole segments by the time of their newest record."""
    partition = path.partitions.get("old", 0)
    assert partition is not None
    for _ in range(2):
        partition.append_as_leader(bytearray(batch(1, size=600_000)), NOW_MS)
    assert len(partition.log.segment_base_offsets) == 2
    path.clock.time_ms += HOUR_MS + 1
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        await trio.sleep(path.services.config.log.retention_check_interval_ms / 1000 + 1)
        nursery.cancel_scope.cancel()
    assert partition.log_start_offset == 2


async def test_recovery_points_are_noted(path: DataPath) -> None:
    """P-171: a recovery starts behind what was made durable: the sealed segments."""
    partition = path.partitions.get("old", 0)
    assert partition is not None
    for _ in range(2):
        partition.append_as_leader(bytearray(batch(1, size=600_000)), NOW_MS)
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        while partition.log.recovery_point == 0:
            await trio.sleep(10)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    directory = path.directory
    points = read_offsets(directory.filesystem, f"{directory.path}/recovery-point-offset-checkpoint")
    assert points == {("old", 0): 1}
    marks = read_offsets(directory.filesystem, f"{directory.path}/replication-offset-checkpoint")
    assert marks == {("old", 0): 2}


async def test_high_watermarks_are_noted_in_their_own_interval(path: DataPath) -> None:
    """P-672: 5 s, where recovery points have 60."""
    partition = path.partitions.get("old", 0)
    assert partition is not None
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        await trio.sleep(31)
        for end_offset in (1, 2):
            partition.append_as_leader(bytearray(batch(1)), NOW_MS)
            await trio.sleep(6)
            assert path.directory.high_watermarks() == {("old", 0): end_offset}
        nursery.cancel_scope.cancel()


async def test_an_interval_of_zero_is_none(tmp_path: Path) -> None:
    """P-672."""
    image = cluster_image(topic_image("old"))
    data_path = DataPath(tmp_path, image, {"replica.high.watermark.checkpoint.interval.ms": "0"})
    data_path.services.run_in_thread = InPlace().run
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, data_path.services, [])
        await trio.sleep(20)
        assert data_path.directory.high_watermarks() == {}
        nursery.cancel_scope.cancel()
    data_path.close()


async def test_high_watermarks_that_cannot_be_written_are_logged_once(
    path: DataPath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk would fill the log, too."""

    def fail(*_: object) -> Any:
        raise StorageError(path.directory.path, "No space left on device")

    monkeypatch.setattr(path.directory, "write_high_watermarks", fail)
    assert await reported_paths(path, monkeypatch) == {path.directory.path}
    assert caplog.text.count("high watermarks could not be written") == 1


async def test_checkpoints_are_synced_outside_of_the_loop(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = InPlace()
    path.services.run_in_thread = threads.run
    seen: list[bool] = []

    def note(descriptor: int) -> None:
        seen.append(threads.is_running)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(filesystem, "_sync_data", note)
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert path.directory.high_watermarks()
    # Two each for recovery points, high watermarks and log starts.
    assert len(seen) >= 6
    assert all(seen)


async def test_a_file_that_cannot_be_deleted_keeps_no_checkpoint_back(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: PartitionLog, now_ms: int) -> int:
        raise StorageError(self.path, "Input/output error")

    monkeypatch.setattr(PartitionLog, "delete_due_files", fail)
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    directory = path.directory
    assert read_offsets(directory.filesystem, f"{directory.path}/recovery-point-offset-checkpoint")
    assert directory.high_watermarks()


async def test_a_deleted_log_goes_after_the_delay_of_the_broker(tmp_path: Path) -> None:
    """P-481: within twice the delay, and not by the delay of the topic or the interval of the checkpoints."""
    settings = {"log.segment.delete.delay.ms": "2000", "log.initial.task.delay.ms": "0"}
    image = cluster_image(topic_image("t"), configs={"t": {"file.delete.delay.ms": "1"}})
    path = DataPath(tmp_path, image, settings)

    def deleted() -> list[str]:
        return [name for name, _ in path.directory.filesystem.list(path.directory.path) if name.endswith("-delete")]

    path.directory.delete_log("t", 0, NOW_MS)
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        path.clock.time_ms += 1999
        await trio.sleep(1.9)
        assert deleted()
        path.clock.time_ms += 1
        await trio.sleep(2.2)
        assert not deleted()
        nursery.cancel_scope.cancel()
    path.close()


async def test_a_file_that_cannot_be_deleted_keeps_no_others_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = DataPath(tmp_path, cluster_image(topic_image("bad"), topic_image("good"), topic_image("gone")))
    asked: list[str] = []

    def delete(self: PartitionLog, now_ms: int) -> int:
        asked.append(self.topic)
        if self.topic == "bad":
            raise StorageError(self.path, "Input/output error")
        return 0

    monkeypatch.setattr(PartitionLog, "delete_due_files", delete)
    path.directory.delete_log("gone", 0, NOW_MS - HOUR_MS)
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        await trio.sleep(31)
        nursery.cancel_scope.cancel()
    assert asked == ["bad", "good"]
    assert not [name for name, _ in path.directory.filesystem.list(path.directory.path) if name.endswith("-delete")]
    assert f"a removed file could not be deleted: {path.directory.path}/bad-0: Input/output error" in caplog.text
    path.close()


async def reported_paths(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Paths of the failures of which the tasks tell the log directory in their first half minute."""
    reported: list[StorageError] = []
    failures = SimpleNamespace(report=reported.append, is_disk_full=False)
    monkeypatch.setattr(path.partitions.environment, "storage_failures", failures)
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        await trio.sleep(31)
        nursery.cancel_scope.cancel()
    return {error.path for error in reported}


@pytest.mark.parametrize(
    "failing",
    ["write_checkpoints", "write_high_watermarks", "write_log_starts", "delete_due_logs", "finish_directories"],
)
async def test_a_failure_of_the_directory_is_reported(
    path: DataPath, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """P-276: also where no client uses the directory, so that it goes offline."""

    def fail(*_: object) -> Any:
        raise StorageError(path.directory.path, "Input/output error")

    monkeypatch.setattr(path.directory, failing, fail)
    assert await reported_paths(path, monkeypatch) == {path.directory.path}


@pytest.mark.parametrize("failing", ["delete_due_files", "delete_old_segments", "begin_flush"])
async def test_a_failure_of_a_log_is_reported(path: DataPath, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """P-276."""

    def fail(log: PartitionLog, *_: object, **__: object) -> Any:
        raise StorageError(log.path, "Input/output error")

    partition = path.partitions.get("old", 0)
    assert partition is not None
    for _ in range(2):
        partition.append_as_leader(bytearray(batch(1, size=600_000)), NOW_MS)
    monkeypatch.setattr(PartitionLog, failing, fail)
    assert await reported_paths(path, monkeypatch) == {partition.log.path}


async def test_other_tasks_run_between_the_directories_of_many_new_logs(path: DataPath) -> None:
    """One directory takes up to a millisecond: requests are served between two of them."""
    config = path.partitions.get("old", 0).log.config  # type: ignore[union-attr]
    for number in range(UNDELAYED_DIRECTORIES_MAX + 50):
        path.directory.create_log("new", number, None, config, NOW_MS)
    pending = sum(log.is_directory_due for log in path.directory)
    assert pending >= 50
    seen = [pending]
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        await trio.sleep(DIRECTORIES_INTERVAL_S)
        while seen[-1]:
            await trio.lowlevel.checkpoint()
            seen.append(sum(log.is_directory_due for log in path.directory))
        nursery.cancel_scope.cancel()
    # trio runs tasks of one round in random order, so up to two directories may come between two looks.
    assert max(before - after for before, after in pairwise(seen)) <= 2


async def test_producers_are_forgotten_after_the_interval_of_that_check(tmp_path: Path) -> None:
    """P-56: the first look waits for producer.id.expiration.check.interval.ms, not for log.initial.task.delay.ms."""
    config = {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "5000"}
    path = DataPath(tmp_path, cluster_image(topic_image("t")), config)
    partition = path.partitions.get("t", 0)
    assert partition is not None
    partition.append_as_leader(bytearray(batch(1, producer_id=7, producer_epoch=0, base_sequence=0)), NOW_MS)
    path.clock.time_ms += 60_000
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        await trio.sleep(4.9)
        assert list(partition.log.producers.producers) == [7]
        await trio.sleep(0.2)
        assert not partition.log.producers.producers
        nursery.cancel_scope.cancel()
    path.close()


def test_a_new_partition_does_not_inherit_the_time_of_a_deleted_one() -> None:
    """The times were kept by id(), which the next partition may get when one is deleted, and were never removed."""

    class Flushed:
        log = SimpleNamespace(config=SimpleNamespace(flush_ms=1000))

    first, second = cast("Partition", Flushed()), cast("Partition", Flushed())
    schedule = FlushSchedule()
    assert schedule.due([first], 5.0) == [first]
    assert schedule.due([first, second], 5.5) == [second]
    assert schedule.due([second], 6.2) == []
    assert schedule.due([first, second], 6.3) == [first], "first was forgotten when it was not among the partitions"
    assert schedule.due([first, second], 6.5) == [second]


async def test_the_first_flush_by_time_waits_as_other_housekeeping(tmp_path: Path) -> None:
    """Kafka's flusher waits for log.initial.task.delay.ms, then looks every log.flush.scheduler.interval.ms."""
    config = {"log.flush.scheduler.interval.ms": "1000", "log.flush.interval.ms": "1000"}
    path = DataPath(tmp_path, cluster_image(topic_image("t")), config)
    partition = path.partitions.get("t", 0)
    assert partition is not None
    partition.append_as_leader(bytearray(batch(1)), NOW_MS)
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        await trio.sleep(29)
        assert partition.log.recovery_point == 0
        while partition.log.recovery_point == 0:
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    path.close()


async def test_compacted_topics_are_compacted(tmp_path: Path) -> None:
    """P-161: the last record per key stays, in the sealed segments."""
    settings = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    path = DataPath(tmp_path, cluster_image(topic_image("keyed"), configs={"keyed": settings}))
    partition = path.partitions.get("keyed", 0)
    assert partition is not None
    for _ in range(4):
        partition.append_as_leader(bytearray(batch(1, size=600_000, key=b"k")), NOW_MS)
    assert partition.log.size_bytes > 2_400_000
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        while partition.log.size_bytes > 1_300_000:
            await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert partition.high_watermark == 4
    assert [record.offset for b in partition.log.iter_batches(0) for record in b.records()][-1] == 3
    path.close()


async def test_idle_connections_are_closed(path: DataPath) -> None:
    """P-11."""
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), path.services)
    listener.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, nursery)
        start_housekeeping(nursery, path.services, [listener])
        client = await trio.open_tcp_stream("127.0.0.1", listener.port)
        started = trio.current_time()
        assert await client.receive_some() == b""
        assert 60 <= trio.current_time() - started <= 70
        assert not listener.connections
        await client.aclose()
        nursery.cancel_scope.cancel()


async def test_connections_are_limited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = DataPath(tmp_path, cluster_image(), {"max.connections.per.ip": "1"})
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), path.services)
    listener.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, nursery)
        first = await trio.open_tcp_stream("127.0.0.1", listener.port)
        second = await trio.open_tcp_stream("127.0.0.1", listener.port)
        assert await second.receive_some() == b""
        await first.aclose()
        while listener.connections:
            await trio.sleep(0.01)
        third = await trio.open_tcp_stream("127.0.0.1", listener.port)
        with trio.move_on_after(1) as waited:
            await third.receive_some()
        assert waited.cancelled_caught
        for client in (second, third):
            await client.aclose()
        nursery.cancel_scope.cancel()
    path.close()
    assert "the configured maximum of 1 connections (max.connections.per.ip)" in caplog.text


def test_a_taken_port_is_named() -> None:
    sockets = bind("127.0.0.1", 0)
    sockets[0].listen()
    port = sockets[0].getsockname()[1]
    with pytest.raises(BindError, match=rf"cannot listen on 127.0.0.1:{port}: the port is in use; stop what uses it"):
        bind("127.0.0.1", port)
    sockets[0].close()


def test_a_port_that_was_taken_after_it_was_bound(tmp_path: Path) -> None:
    """Both processes may bind it, as long as neither listens."""
    [mine] = bind("127.0.0.1", 0)
    port = mine.getsockname()[1]
    [others] = bind("127.0.0.1", port)
    others.listen()
    path = DataPath(tmp_path, cluster_image())
    listener = Listener("PLAINTEXT", [mine], path.services)
    with pytest.raises(BindError, match=rf"cannot listen on 127.0.0.1:{port}: the port is in use; stop what uses it"):
        listener.open()
    path.close()
    mine.close()
    others.close()


def test_localhost_has_one_port_for_all_its_addresses() -> None:
    sockets = bind("localhost", 0)
    assert len({bound.getsockname()[1] for bound in sockets}) == 1
    for bound in sockets:
        bound.close()


def test_localhost_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without IPv6 may still have ::1 among the addresses of localhost: a socket for it cannot be made."""
    both = [(family, socket.SOCK_STREAM, 6, "", (host, 0)) for family, host in LOCALHOST]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    real = socket.socket

    def without_ipv6(family: int, *others: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *others)

    monkeypatch.setattr("pykbroker.network.listener.socket.socket", without_ipv6)
    (bound,) = bind("localhost", 0)
    assert bound.getsockname()[0] == "127.0.0.1"
    bound.close()


def test_localhost_listens_on_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that tries ::1 first finds the broker there: none has to try a second address."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    both = [(family, socket.SOCK_STREAM, 6, "", (host, 0)) for family, host in LOCALHOST]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    sockets = bind("localhost", 0)
    assert [bound.getsockname()[0] for bound in sockets] == ["127.0.0.1", "::1"]
    assert len({bound.getsockname()[1] for bound in sockets}) == 1
    for bound in sockets:
        bound.close()


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(BindError, match=r"cannot listen on no\.such\.host\.invalid:9092"):
        bind("no.such.host.invalid", 9092)


class Broken:
    """A part of the log store whose method raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, times: int = 1 << 30) -> None:
        self.left = times
        method = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if self.left:
                self.left -= 1
                raise StorageError("/data/t-0", "Input/output error")
            return method(*arguments, **options)

        monkeypatch.setattr(owner, name, call)


async def keep(path: DataPath, seconds: float) -> None:
    """Housekeeping runs meanwhile."""
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()


async def test_retention_of_one_log_that_fails_does_not_keep_others_from_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"segment.bytes": "1048576", "retention.ms": str(HOUR_MS)}
    image = cluster_image(topic_image("a"), topic_image("b"), configs={"a": settings, "b": settings})
    path = DataPath(tmp_path, image)
    path.services.run_in_thread = InPlace().run
    for partition in path.partitions.all():
        for _ in range(2):
            partition.append_as_leader(bytearray(batch(1, size=600_000)), NOW_MS)
    path.clock.time_ms += HOUR_MS + 1
    Broken(monkeypatch, PartitionLog, "delete_old_segments", 1)
    await keep(path, path.services.config.log.retention_check_interval_ms / 1000 + 1)
    assert [partition.log_start_offset for partition in path.partitions.all()] == [0, 2]
    assert "retention of a-0 failed: /data/t-0: Input/output error" in caplog.text
    path.close()


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("delete_old_segments", housekeeping._delete_old_segments),
        ("begin_flush", housekeeping._flush_and_checkpoint),
    ],
)
async def test_a_partition_that_is_deleted_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, work: Work
) -> None:
    """Its directory may be gone already, which would be logged as an error."""
    config = {"segment.bytes": "1048576", "retention.ms": str(HOUR_MS)}
    before = cluster_image(topic_image("a"), topic_image("b"), configs={"a": config, "b": config})
    after = cluster_image(before.topics_by_name["a"], configs={"a": config})
    after.delta = delta_between(before, after)
    path = DataPath(tmp_path, before)
    path.services.run_in_thread = InPlace().run
    for partition in path.partitions.all():
        for _ in range(2):
            partition.append_as_leader(bytearray(batch(1, size=600_000)), NOW_MS)
    original = getattr(PartitionLog, name)
    worked_on: list[str] = []

    def work_and_delete_the_other_topic(log: PartitionLog, *arguments: object, **options: object) -> object:
        worked_on.append(log.topic)
        path.partitions.apply(before, after)
        path.directory.delete_due_logs(NOW_MS + HOUR_MS, 0, 9)
        return original(log, *arguments, **options)

    monkeypatch.setattr(PartitionLog, name, work_and_delete_the_other_topic)
    await work(path.services)
    assert worked_on == ["a"]
    assert "failed" not in caplog.text
    path.close()


async def test_other_tasks_run_between_the_logs_of_a_broker_with_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention, flushes, checkpoints, expiry of producers: each gives way after each log when a turn is over."""
    monkeypatch.setattr(task_turns, "TURN_S", -1.0)
    path = DataPath(tmp_path, cluster_image(topic_image("t", 9)))
    path.services.run_in_thread = InPlace().run
    for work in (
        housekeeping._delete_old_segments,
        housekeeping._flush_and_checkpoint,
        housekeeping._expire_producers,
    ):
        _, turns = await with_turns(work(path.services))
        assert turns >= 3
    path.close()


async def test_other_tasks_run_while_the_cleaner_looks_for_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is deleted meanwhile does not keep the cleaner from a log behind it."""
    monkeypatch.setattr(task_turns, "TURN_S", -1.0)
    settings = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    configs = {"keyed": settings}
    before = cluster_image(topic_image("a", 9), topic_image("keyed"), configs=configs)
    after = cluster_image(topic_image("keyed"), configs=configs)
    after.delta = delta_between(before, after)
    path = DataPath(tmp_path, before)
    path.services.run_in_thread = InPlace().run
    keyed = path.partitions.get("keyed", 0)
    assert keyed is not None
    for _ in range(4):
        keyed.append_as_leader(bytearray(batch(1, size=600_000, key=b"k")), NOW_MS)
    steps = TaskSteps()
    looked_at: list[int] = []
    may_be_compacted = housekeeping._may_be_compacted

    def look(log: PartitionLog) -> bool:
        looked_at.append(steps.count)
        if len(looked_at) == 3:
            path.partitions.apply(before, after)
        return may_be_compacted(log)

    monkeypatch.setattr(housekeeping, "_may_be_compacted", look)
    trio.lowlevel.add_instrument(steps)
    await keep(path, 1.5 * path.services.config.log.cleaner_backoff_ms / 1000)
    assert len(looked_at) == len(set(looked_at)) == 10
    assert keyed.log.size_bytes < 1_300_000
    path.close()


async def test_directories_that_cannot_be_made_are_made_later(
    path: DataPath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says so, however often it is tried."""
    broken = Broken(monkeypatch, path.directory, "finish_directories", 3)
    await keep(path, 5.5 * DIRECTORIES_INTERVAL_S)
    assert broken.left == 0
    assert caplog.text.count("directories of logs could not be made or renamed, which will be tried again") == 1


async def test_directories_of_new_logs_wait_until_all_are_prepared(path: DataPath, tmp_path: Path) -> None:
    """The answer to CreateTopics of thousands of partitions would otherwise wait for their directories."""
    old = path.services.metadata.image
    new = cluster_image(*old.topics_by_name.values(), topic_image("many", 2 * UNDELAYED_DIRECTORIES_MAX))
    new.delta = delta_between(old, new)
    last = tmp_path / f"many-{2 * UNDELAYED_DIRECTORIES_MAX - 1}"
    for _ in path.partitions.prepare(old, new):
        pass
    await keep(path, 3 * DIRECTORIES_INTERVAL_S)
    assert not last.exists()
    path.partitions.apply(old, new)
    await keep(path, 3 * DIRECTORIES_INTERVAL_S)
    assert last.exists()


async def test_the_backoff_of_the_cleaner_changes_while_it_waits(tmp_path: Path) -> None:
    """P-161: `log.cleaner.backoff.ms` is a dynamic setting of all brokers, made longer and shorter again."""
    settings = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    image = cluster_image(topic_image("keyed"), configs={"keyed": settings})
    slow = cluster_image(topic_image("keyed"), configs={"keyed": settings})
    slow.configs = {**image.configs, CLUSTER_WIDE_BROKER: {"log.cleaner.backoff.ms": str(HOUR_MS)}}
    path = DataPath(tmp_path, slow)
    path.services.run_in_thread = InPlace().run
    partition = path.partitions.get("keyed", 0)
    assert partition is not None
    for _ in range(4):
        partition.append_as_leader(bytearray(batch(1, size=600_000, key=b"k")), NOW_MS)
    async with trio.open_nursery() as nursery:
        start_housekeeping(nursery, path.services, [])
        await trio.sleep(10 * path.services.config.log.cleaner_backoff_ms / 1000)
        assert partition.log.size_bytes > 2_400_000
        path.services.metadata.apply(slow, image)
        await trio.sleep(1.5 * path.services.config.log.cleaner_backoff_ms / 1000)
        assert partition.log.size_bytes < 1_300_000
        nursery.cancel_scope.cancel()
    path.close()


async def test_a_compaction_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    path = DataPath(tmp_path, cluster_image(topic_image("keyed"), configs={"keyed": settings}))
    path.services.run_in_thread = InPlace().run
    partition = path.partitions.get("keyed", 0)
    assert partition is not None
    for _ in range(4):
        partition.append_as_leader(bytearray(batch(1, size=600_000, key=b"k")), NOW_MS)
    broken = Broken(monkeypatch, CompactionWork, "run", 1)
    await keep(path, 1.5 * path.services.config.log.cleaner_backoff_ms / 1000)
    assert broken.left == 0
    assert "compaction failed and will be tried again: /data/t-0: Input/output error" in caplog.text
    assert path.partitions.cleaned is None
    assert partition.log.size_bytes > 2_400_000
    await keep(path, 1.5 * path.services.config.log.cleaner_backoff_ms / 1000)
    assert partition.log.size_bytes < 1_300_000
    path.close()


class Flushed:
    """A partition with this `flush.ms`."""

    def __init__(self, flush_ms: int) -> None:
        self.log = SimpleNamespace(config=SimpleNamespace(flush_ms=flush_ms))


def test_a_log_that_is_never_flushed_by_time_has_no_place_in_the_schedule() -> None:
    never, soon = (cast("Any", Flushed(flush_ms)) for flush_ms in (housekeeping.NEVER_MS, 1000))
    schedule = FlushSchedule()
    assert schedule.due([never, soon], 5.0) == [soon]
    assert list(schedule._flushed_at) == [soon]


class Copy:
    """The copy of a log that moves to another directory."""

    def __init__(self, error: StorageError | None = None) -> None:
        self.log_end_offset = 7
        self.error = error
        self.calls: list[Any] = []

    def advance_log_start(self, offset: int) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append(offset)

    def delete_old_segments(self, now_ms: int, offset: int) -> int:
        self.calls.append((now_ms, offset))
        return 1


@pytest.mark.parametrize(("log_start", "expected"), [(3, 3), (9, 7)])
def test_retention_of_a_copy_follows_its_log(log_start: int, expected: int) -> None:
    """At most to the end of the copy, which may not be there yet."""
    copy: Any = Copy()
    partition: Any = SimpleNamespace(log_start_offset=log_start)
    housekeeping._delete_old_segments_of(copy, 5, partition)
    assert copy.calls == [expected, (5, expected)]


def test_retention_of_a_copy_that_fails_is_logged_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[StorageError] = []
    copy: Any = Copy(StorageError("/b/t-0", "Input/output error"))
    partition: Any = SimpleNamespace(log_start_offset=3, on_storage_error=reported.append)
    housekeeping._delete_old_segments_of(copy, 5, partition)
    assert "retention of the copy of" in caplog.text
    assert reported == [copy.error]
