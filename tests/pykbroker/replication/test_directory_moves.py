"""Moves between log directories on a file system in memory: kills and failures at each step, histories by chance."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import trio

from pykbroker.controller.metadata.image import ClusterImage, PartitionImage, TopicImage
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.logstore.errors import LogError, StorageError
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_directories import LogDirectories
from pykbroker.logstore.log_directory import LogDirectory
from pykbroker.logstore.partition_log import AppendOrigin, PartitionLog
from pykbroker.quotas.rates import QuotaWindows, SimpleWindowedRate
from pykbroker.replication.directory_move import SLICE_BYTES_MIN, SLICE_S, DirectoryMove, Step
from pykbroker.replication.directory_moves import DirectoryMoves
from pykbroker.replication.leadership import RegisteredBrokers
from pykbroker.replication.partition import Partition
from pykbroker.replication.partitions import Partitions
from pykbroker.replication.replica_environment import ReplicaEnvironment
from pykbroker.replication.throttle import ReplicationThrottle
from tests.support.data_path import NOW_MS, ManualClock, batch, cluster_image, topic_id
from tests.support.fake_filesystem import FakeFileSystem
from tests.support.in_place import run_in_place

Result = TypeVar("Result")

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
NODE = 1
RECORDS = 10


class Failures:
    """Storage errors that replicas have reported."""

    is_disk_full = False

    def __init__(self) -> None:
        self.reported: list[StorageError] = []

    def report(self, error: StorageError) -> None:
        self.reported.append(error)

    def submit(self, *_: Any) -> None:
        """Nothing: the sets of in-sync replicas do not change."""


class Rig:
    """Broker 1 with directories /a, /b, /c and the partition t-0 in /a; `assign` is the controller."""

    def __init__(self, filesystem: FakeFileSystem | None = None, config: LogConfig | None = None) -> None:
        self.filesystem = filesystem or FakeFileSystem()
        self.config = config or LogConfig()
        self.clock = ManualClock()
        self.rate: int | None = None
        self.assigned = A
        self.asked = 0
        self.leader, self.leader_epoch = NODE, 0
        self.image = ClusterImage()
        self.start()

    def start(self) -> None:
        """Opens everything, as the start of a broker does."""
        self.failures = Failures()
        self.directories = LogDirectories(
            {known: LogDirectory.open(f"/{chr(known[0])}", filesystem=self.filesystem) for known in (A, B, C)}
        )
        self.directories.load_logs(lambda topic: self.config, NOW_MS)
        environment = ReplicaEnvironment(RegisteredBrokers(NODE), lambda: 0.0, self.failures, self.failures)
        self.partitions = Partitions(environment, self.directories, lambda image, topic: self.config, self.clock)
        self.moves = DirectoryMoves(
            self.directories,
            self.partitions,
            lambda: self.image,
            self.ask,
            ReplicationThrottle(lambda: self.rate, lambda topic: "*", NODE, SimpleWindowedRate(QuotaWindows(11, 1000))),
            run_in_place,
            self.clock,
            2,
        )
        self.partitions.mark_stray_logs(self.new_image())
        self.image = ClusterImage()
        self.publish(self.new_image())

    def new_image(self) -> ClusterImage:
        replicas = (NODE,) if self.leader == NODE else (NODE, self.leader)
        partition = PartitionImage(0, replicas, replicas, self.leader, self.leader_epoch, self.leader_epoch)
        partition = partition._replace(directories=(self.assigned, C)[: len(replicas)])
        return cluster_image(TopicImage("t", topic_id("t"), {0: partition}))

    def publish(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
        image.delta = delta_between(old, image)
        self.partitions.apply(old, image)
        self.moves.apply(old, image)

    def assign(self, directory_id: bytes) -> None:
        """The controller takes over a directory."""
        self.assigned = directory_id
        self.publish(self.new_image())

    def checkpoint_log_start_offsets(self) -> None:
        for directory in self.directories.online.values():
            directory.checkpoint_log_start_offsets()

    def kill(self) -> None:
        """kill -9, and a new start."""
        self.directories.abandon()
        self.start()

    def ask(self) -> None:
        self.asked += 1

    @property
    def partition(self) -> Partition:
        found = self.partitions.get("t", 0)
        assert found is not None
        return found

    def append(self, count: int = RECORDS, size: int = 100) -> None:
        self.partition.append_as_leader(bytearray(batch(count, size=size)), NOW_MS)

    async def go(self, seconds: float = 1.0) -> None:
        """Lets the moves run."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.moves.run)
            await trio.sleep(seconds)
            nursery.cancel_scope.cancel()

    def names(self, directory: str) -> list[str]:
        return sorted(entry.name for entry in self.filesystem.list(f"/{directory}") if entry.is_directory)


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for one in log.iter_batches() for record in one.records()]


def contents(log: PartitionLog) -> list[tuple[int, int]]:
    """(offset, leader epoch) of each record."""
    return [(record.offset, one.partition_leader_epoch) for one in log.iter_batches() for record in one.records()]


async def test_the_copy_replaces_the_log_when_the_controller_has_the_directory() -> None:
    """P-300, P-302."""
    rig = Rig()
    for _ in range(30):
        rig.append(size=1000)
    rig.moves.begin(rig.partition, B)
    assert rig.moves.target_of("t", 0) is None, "nothing is copied yet"
    future = rig.partition.future
    assert future is not None
    assert rig.names("b") == [f"t-0.{topic_id('t').hex()}-future"]
    await rig.go()
    assert rig.moves.target_of("t", 0) == B
    assert rig.asked == 1
    assert rig.partition.log.path == "/a/t-0"
    assert future.recovery_point == 300, "durable before the controller is asked"
    rig.append()
    await rig.go()
    assert rig.partition.log.path == "/a/t-0"
    assert future.log_end_offset == 310
    rig.append()
    rig.assign(B)
    await rig.go()
    assert rig.partition.log is future
    assert rig.partition.log.path == "/b/t-0"
    assert rig.partition.future is None
    assert rig.names("a") == [f"t-0.{topic_id('t').hex()}-delete"]
    assert offsets(future) == list(range(320))
    rig.append()
    assert rig.partition.high_watermark == 330
    rig.directories.delete_due_logs(NOW_MS + 10**9, 0)
    assert rig.names("a") == []
    rig.kill()
    assert offsets(rig.partition.log) == list(range(330))


async def test_a_move_is_cancelled_by_the_directory_where_the_replica_is() -> None:
    """P-301: also one of which the controller knows; it is told again."""
    rig = Rig()
    rig.append()
    rig.moves.begin(rig.partition, B)
    await rig.go()
    assert rig.moves.target_of("t", 0) == B
    rig.moves.begin(rig.partition, A)
    assert rig.moves.target_of("t", 0) is None
    assert rig.asked == 2
    assert rig.partition.future is None
    assert rig.names("b") == [f"t-0.{topic_id('t').hex()}-delete"]
    rig.assign(B)
    await rig.go()
    assert rig.partition.log.path == "/a/t-0"


async def test_a_move_to_another_directory_takes_the_place_of_the_first() -> None:
    """P-301."""
    rig = Rig()
    rig.append()
    rig.moves.begin(rig.partition, B)
    first = rig.partition.future
    rig.moves.begin(rig.partition, B)
    assert rig.partition.future is first, "it is on its way there"
    rig.moves.begin(rig.partition, C)
    await rig.go()
    rig.assign(C)
    await rig.go()
    assert rig.partition.log.path == "/c/t-0"
    assert rig.names("b") == [f"t-0.{topic_id('t').hex()}-delete"]
    assert offsets(rig.partition.log) == list(range(10))


def test_no_move_begins_while_a_directory_is_offline() -> None:
    """P-301."""
    rig = Rig()
    rig.partitions.take_offline(rig.directories.take_offline(C))
    with pytest.raises(StorageError, match="no replica can be moved"):
        rig.moves.begin(rig.partition, B)
    rig.moves.begin(rig.partition, A)
    assert rig.partition.future is None


async def test_the_throttle() -> None:
    """P-300: replica.alter.log.dirs.io.max.bytes.per.second."""
    rig = Rig()
    for _ in range(100):
        rig.append(1, size=10_000)
    rig.rate = 100_000
    rig.moves.begin(rig.partition, B)
    future = rig.partition.future
    assert future is not None
    await rig.go(3)
    assert 300_000 < future.size_bytes < 500_000
    rig.rate = None
    await rig.go(0.5)
    assert future.log_end_offset == 100


@pytest.mark.parametrize("moment", ["copying", "complete", "assigned", "between the renames", "after"])
async def test_a_kill(moment: str) -> None:
    """P-303: the move goes on after the start, and no record is lost."""
    rig = Rig()
    for _ in range(100):
        rig.append(1, size=10_000)
    rig.moves.begin(rig.partition, B)
    if moment == "copying":
        rig.rate = 100_000
    await rig.go(0.05)
    if moment == "assigned":
        rig.assign(B)
    elif moment == "between the renames":
        rig.assigned = B
        assert rig.directories.online[A].detach("t", 0) is not None
    elif moment == "after":
        rig.assign(B)
        await rig.go()
    rig.rate = None
    rig.kill()
    expected = "/b/t-0" if moment in ("between the renames", "after") else "/a/t-0"
    assert rig.partition.log.path == expected
    rig.append()
    await rig.go()
    rig.assign(B)
    await rig.go()
    assert rig.partition.log.path == "/b/t-0"
    assert rig.partition.future is None
    assert offsets(rig.partition.log) == list(range(110))
    assert not [name for name in rig.names("a") + rig.names("b") if name.endswith("-future")]


async def test_a_stop_during_a_sync_keeps_the_copy() -> None:
    """A cancelled sync has not failed: the next start need not copy the records again."""
    rig = Rig()
    rig.append()
    rig.moves.begin(rig.partition, B)
    future = rig.partition.future
    assert future is not None
    begins = trio.Event()

    async def run_for_ever(work: Callable[[], Result]) -> Result:
        if work.__name__ != "read":
            begins.set()
            await trio.sleep_forever()
        return await run_in_place(work)

    rig.moves._run_in_thread = run_for_ever
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.moves.run)
        await begins.wait()
        nursery.cancel_scope.cancel()
    assert rig.partition.future is future
    assert future.log_end_offset == RECORDS


async def test_a_clean_stop_in_between() -> None:
    """P-303."""
    rig = Rig()
    for _ in range(100):
        rig.append(1, size=10_000)
    rig.rate = 100_000
    rig.moves.begin(rig.partition, B)
    await rig.go(0.05)
    future = rig.partition.future
    assert future is not None
    end_offset = future.log_end_offset
    assert 0 < end_offset < 100
    rig.directories.close(5, {("t", 0): 100})
    rig.start()
    future = rig.partition.future
    assert future is not None
    assert future.log_end_offset == end_offset
    rig.rate = None
    rig.assign(B)
    await rig.go()
    assert offsets(rig.partition.log) == list(range(100))


async def test_the_log_loses_its_end_with_the_power() -> None:
    """P-303: the copy, whose end was written, is truncated before the log has other records at these offsets."""
    rig = Rig()
    rig.append()
    rig.partition.log.flush()
    rig.append(3)
    rig.moves.begin(rig.partition, B)
    await rig.go()
    rig.filesystem.crash()
    rig.start()
    assert rig.partition.log.log_end_offset == 10
    rig.append(3, size=7)
    rig.assign(B)
    await rig.go()
    assert rig.partition.log.path == "/b/t-0"
    sizes = [len(record.value or b"") for one in rig.partition.log.iter_batches() for record in one.records()]
    assert sizes == [100] * 10 + [7] * 3


async def test_what_the_log_has_made_durable_stays_so() -> None:
    """P-300: also records that came after the copy was synced first."""
    rig = Rig()
    rig.append()
    rig.moves.begin(rig.partition, B)
    await rig.go()
    rig.append()
    rig.partition.log.flush()
    rig.assign(B)
    await rig.go()
    assert rig.partition.log.path == "/b/t-0"
    rig.filesystem.crash()
    rig.start()
    assert offsets(rig.partition.log) == list(range(20))


async def test_a_directory_fails() -> None:
    """P-304: the target, and the move ends; the source, and the copy stays for the next start."""
    rig = Rig()
    rig.append()
    rig.moves.begin(rig.partition, B)
    await rig.go()
    rig.partitions.take_offline(rig.directories.take_offline(B))
    await rig.go()
    assert rig.partition.future is None
    assert rig.moves.target_of("t", 0) is None
    assert rig.asked == 2
    rig.append()
    rig.kill()
    assert rig.partition.future is not None, "the directory is back"
    rig.partitions.take_offline(rig.directories.take_offline(A))
    assert rig.partitions.is_offline("t", 0)
    await rig.go()
    assert rig.directories.futures == {}
    rig.kill()
    rig.assign(B)
    await rig.go()
    assert offsets(rig.partition.log) == list(range(20))


async def test_a_topic_is_deleted_on_the_way() -> None:
    """P-303."""
    rig = Rig()
    rig.append()
    rig.moves.begin(rig.partition, B)
    await rig.go()
    rig.publish(cluster_image())
    await rig.go()
    assert rig.names("a") == rig.names("b") == [f"t-0.{topic_id('t').hex()}-delete"]
    rig.directories.abandon()
    rig.image = ClusterImage()
    rig.start()
    assert rig.partition.log.log_end_offset == 0
    assert rig.partition.future is None


def test_a_copy_that_is_not_in_the_metadata_is_stray() -> None:
    """P-303."""
    rig = Rig()
    rig.moves.begin(rig.partition, B)
    rig.partitions.mark_stray_logs(cluster_image())
    assert rig.names("a") == [f"t-0.{topic_id('t').hex()}-stray"]
    assert rig.names("b") == [f"t-0.{topic_id('t').hex()}-stray"]


async def test_a_compaction_is_waited_for() -> None:
    """P-300."""
    rig = Rig()
    rig.append()
    rig.moves.begin(rig.partition, B)
    rig.assign(B)
    rig.partitions.cleaned = "t", 0
    await rig.go()
    assert rig.partition.log.path == "/a/t-0"
    rig.partitions.cleaned = None
    await rig.go()
    assert rig.partition.log.path == "/b/t-0"


async def test_a_verification_on_its_way() -> None:
    """P-135: the coordinator's consent for a transaction's first batch holds for the log after the move."""
    rig = Rig(config=LogConfig(transaction_partition_verification_enable=True))
    rig.append()
    verification = rig.partition.log.producers.start_verification(7, 0, 0, supports_epoch_bump=True, now_ms=NOW_MS)
    assert verification is not None
    rig.moves.begin(rig.partition, B)
    rig.assign(B)
    await rig.go()
    assert rig.partition.log.path == "/b/t-0"
    data = bytearray(batch(1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    rig.partition.append_as_leader(data, NOW_MS, verification=verification)
    assert rig.partition.log.producers.first_unstable_offset == 10


async def test_the_log_start_goes_with_it() -> None:
    """P-300: DeleteRecords before and during the move."""
    rig = Rig(config=LogConfig(segment_bytes=5000))
    for _ in range(20):
        rig.append()
    rig.partition.advance_log_start(55)
    rig.partition.log.delete_old_segments(NOW_MS, 200)
    rig.moves.begin(rig.partition, B)
    await rig.go()
    future = rig.partition.future
    assert future is not None
    assert future.log_start_offset == 55
    rig.partition.advance_log_start(123)
    rig.assign(B)
    await rig.go()
    rig.kill()
    assert rig.partition.log.path == "/b/t-0"
    assert rig.partition.log.log_start_offset == 123
    assert [offset for offset in offsets(rig.partition.log) if offset >= 123] == list(range(123, 200))


def test_the_end_was_compacted_away() -> None:
    """P-300: the copy ends where the log does, though its last records are gone."""
    rig = Rig()
    rig.append()
    rig.partition.log.loaded.skip_to(15, NOW_MS)
    rig.moves.begin(rig.partition, B)
    future = rig.partition.future
    assert future is not None
    move = DirectoryMove(rig.partition, future, B, A)
    for _ in range(2):
        assert move.next_step(A, is_throttled=False, is_cleaning=False) is Step.COPY
        records = move.read()
        if records is None:
            move.skip(NOW_MS)
        else:
            move.take(records.read(), NOW_MS)
            records.release()
    assert move.next_step(A, is_throttled=False, is_cleaning=False) is Step.SYNC
    assert future.log_end_offset == 15
    future.append_as_leader(bytearray(batch(5)), 0, NOW_MS, AppendOrigin.COORDINATOR)
    assert offsets(future) == [*range(10), *range(15, 20)]


@pytest.mark.parametrize("seed", range(80))
async def test_histories_by_chance(seed: int) -> None:
    """P-300, P-303: appends, truncations under newer epochs, deletions, kills and losses of power in any order; when
    the move is over the log is what a log that did not move is."""
    chance = random.Random(seed)
    rig = Rig(config=LogConfig(segment_bytes=3000, index_interval_bytes=100))
    epoch = 0
    model: list[tuple[int, int]] = []  # (offset, leader epoch) of each record

    def append() -> None:
        size = chance.randrange(1, 5)
        end_offset = rig.partition.log.log_end_offset
        data = bytearray(batch(size, size=chance.randrange(200)))
        rig.partition.log.append_as_leader(data, epoch, NOW_MS, AppendOrigin.COORDINATOR)
        model.extend((end_offset + number, epoch) for number in range(size))

    def truncate() -> None:
        nonlocal epoch, model
        log = rig.partition.log
        rig.partition.replica.truncate_to(chance.randint(log.log_start_offset, log.log_end_offset), NOW_MS)
        model = [entry for entry in model if entry[0] < log.log_end_offset]
        epoch += 1

    def delete() -> None:
        log = rig.partition.log
        log.advance_log_start(chance.randint(log.log_start_offset, log.log_end_offset))
        log.delete_old_segments(NOW_MS, log.log_end_offset)

    def kill() -> None:
        nonlocal epoch, model
        rig.checkpoint_log_start_offsets()
        rig.kill()
        epoch += 1

    def lose_power() -> None:
        nonlocal epoch, model
        rig.checkpoint_log_start_offsets()
        # The end of the log is lost, and not a segment in the middle, which the copy would still have.
        work = rig.partition.log.begin_flush(include_active=False)
        if work is not None:
            work.run()
            work.finish()
        rig.filesystem.crash()
        rig.start()
        # The log is what was synced of it, which may be records that were truncated later.
        epoch += 1
        model = contents(rig.partition.log)

    for _ in range(10):
        append()
    targets = [B, A, C]
    for target in targets:
        rig.moves.begin(rig.partition, target)
        for _ in range(chance.randrange(12)):
            chance.choice([append, append, append, truncate, delete, kill, lose_power])()
            await rig.go(chance.choice([0.001, 0.2]))
        rig.moves.begin(rig.partition, target)
        rig.assign(target)
        await rig.go()
        log = rig.partition.log
        assert log.path == f"/{chr(target[0])}/t-0"
        start = log.log_start_offset
        found = [entry for entry in contents(log) if entry[0] >= start]
        assert found == [entry for entry in model if entry[0] >= start]


@pytest.mark.parametrize("number", range(120))
async def test_each_call_fails_once(number: int) -> None:
    """P-304: whatever call of the file system fails, the partition is served from one of its logs, with all records, or
    is offline; a start makes it whole."""
    rig = Rig()
    for _ in range(20):
        rig.append()
    rig.partition.log.flush()
    rig.filesystem.fault_clock, rig.filesystem.faults = 0, {number}
    try:
        rig.moves.begin(rig.partition, B)
    except LogError:
        assert rig.partition.future is None
    await rig.go(3)
    rig.assign(B)
    await rig.go(5)
    rig.filesystem.faults = ()
    found = rig.partitions.get("t", 0)
    if found is not None:
        assert offsets(found.log) == list(range(200))
    rig.kill()
    assert offsets(rig.partition.log) == list(range(200))


def test_a_copy_of_another_history_is_cut_to_what_both_have() -> None:
    """KIP-101: the log was truncated and written by other leaders since its beginning was copied."""
    rig = Rig()
    rig.append()
    for base_offset, epoch in ((10, 1), (15, 3)):
        rig.partition.log.append_as_follower(batch(5, base_offset=base_offset, leader_epoch=epoch), NOW_MS)
    rig.moves.begin(rig.partition, B)
    future = rig.partition.future
    assert future is not None
    future.append_as_follower(batch(10, leader_epoch=0), NOW_MS)
    future.append_as_follower(batch(8, base_offset=10, leader_epoch=2), NOW_MS)
    DirectoryMove(rig.partition, future, B, A).align(NOW_MS)
    assert offsets(future) == list(range(10))


def test_slices_become_as_large_as_fits_into_their_time() -> None:
    rig = Rig()
    rig.moves.begin(rig.partition, B)
    assert rig.partition.future is not None
    move = DirectoryMove(rig.partition, rig.partition.future, B, A)
    sizes = []
    for elapsed_s in (0.0, 0.0, 2 * SLICE_S, 1000 * SLICE_S):
        move.on_slice(elapsed_s)
        sizes.append(move.slice_bytes // SLICE_BYTES_MIN)
    assert sizes == [2, 4, 2, 1]
