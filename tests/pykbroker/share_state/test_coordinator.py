"""The share coordinator on real logs under trio's virtual clock."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.coordination.partitioning import SHARE_STATE_TOPIC, coordinator_partition
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.batch import iter_batches
from pykbroker.protocol.uuids import uuid_to_text
from pykbroker.replication.partition import FetchBound, Partition
from pykbroker.share_state.coordinator import ShareCoordinator
from pykbroker.share_state.state import ACKNOWLEDGED, PartitionState, Refusal, SharePartitionKey, StateBatch, WriteState
from tests.support.coordinator_errors import outcome_of
from tests.support.coordinator_rig import CoordinatorRig
from tests.support.data_path import cluster_image, topic_id, topic_image

KEY = SharePartitionKey("g", topic_id("clicks"), 1)
PROPERTIES = {
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
    "share.coordinator.state.topic.prune.interval.ms": "100000",
}


class Rig(CoordinatorRig):
    """One broker with topic "clicks" (2 partitions) and, unless said otherwise, `__share_group_state`."""

    partition_count = 3

    def __init__(self, folder: Path, *, is_fresh: bool = False) -> None:
        topics = [topic_image("clicks", 2)] + ([] if is_fresh else [topic_image(SHARE_STATE_TOPIC, 3)])
        super().__init__(folder, cluster_image(*topics), PROPERTIES)
        self.coordinator = self.make()

    def make(self) -> ShareCoordinator:
        return ShareCoordinator(self.services.config, self.environment())

    def under_test(self) -> Any:
        return self.coordinator

    async def write_at(self, offset: int, state_epoch: int = 1) -> object:
        """Notes one record as acknowledged."""
        batch = StateBatch(offset, offset, ACKNOWLEDGED, 1)
        return await outcome_of(self.coordinator.write, KEY, WriteState(state_epoch, 0, 0, -1, [batch]))

    @property
    def log_start_offset(self) -> int:
        partition = self.partitions.get(SHARE_STATE_TOPIC, coordinator_partition(KEY.coordinator_key, 3))
        assert partition is not None
        return partition.log_start_offset


def test_the_key_is_that_of_find_coordinator() -> None:
    assert KEY.coordinator_key == f"g:{uuid_to_text(topic_id('clicks'))}:1"


async def test_a_state_outlives_the_coordinator(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running() as nursery:
        assert await rig.coordinator.initialize(KEY, 1, 0) is None
        for offset in range(7):
            assert await rig.write_at(offset) is None
        state = PartitionState(1, 0, (StateBatch(0, 6, ACKNOWLEDGED, 1),), -1, 0)
        assert await rig.coordinator.read(KEY, 0) == state
        rig.coordinator.runtime.stop()
        assert await outcome_of(rig.coordinator.read, KEY, 0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        rig.coordinator = rig.make()
        await nursery.start(rig.coordinator.runtime.run)
        assert await rig.coordinator.read(KEY, 0) == state
        assert await rig.coordinator.read_summary(KEY) == state._replace(batches=())


async def test_the_topic_is_created_as_kafka_does(tmp_path: Path) -> None:
    rig = Rig(tmp_path, is_fresh=True)
    async with rig.running():
        assert await outcome_of(rig.coordinator.initialize, KEY, 1, 0) is ErrorCode.NOT_COORDINATOR
        rig.coordinator.request_topic_creation(1)
        await trio.sleep(1)
        assert [(topic.name, topic.partition_count, topic.replication_factor) for topic in rig.created] == [
            (SHARE_STATE_TOPIC, 50, 1)
        ]
        assert rig.created[0].configs["cleanup.policy"] == "delete"
        assert await rig.coordinator.initialize(KEY, 1, 0) is None


async def test_a_deleted_topic_takes_its_state_along(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.coordinator.initialize(KEY, 1, 0)
        rig.change(topic_image(SHARE_STATE_TOPIC, 3))
        unknown = await rig.coordinator.read(KEY, 0)
        assert isinstance(unknown, Refusal)
        rig.change(topic_image(SHARE_STATE_TOPIC, 3), topic_image("clicks", 2))
        assert await rig.coordinator.read_summary(KEY) == PartitionState(0, -1, ())


def limit_batches(rig: Rig, size_bytes: int) -> None:
    """The largest batch of the topic from now on."""
    for number in range(3):
        partition = rig.partitions.get(SHARE_STATE_TOPIC, number)
        assert partition is not None
        partition.log.config = partition.log.config._replace(max_message_bytes=size_bytes)


def largest_batch(rig: Rig) -> int:
    """Size in bytes of the largest batch in the topic's logs."""
    sizes = []
    for number in range(3):
        partition = rig.partitions.get(SHARE_STATE_TOPIC, number)
        assert partition is not None
        records = partition.read(partition.log_start_offset, 1 << 20, FetchBound.LOG_END, at_least_one=True).records
        sizes += [batch.size_bytes for batch in iter_batches(b"" if records is None else records.read())]
    return max(sizes)


async def test_more_share_partitions_than_fit_into_a_batch(tmp_path: Path) -> None:
    """Their cold snapshots, and their tombstones when the topic is deleted, are in several batches."""
    rig = Rig(tmp_path)
    keys = [KEY._replace(group_id=f"g{number}") for number in range(60)]
    async with rig.running():
        for key in keys:
            assert await rig.coordinator.initialize(key, 1, 0) is None
        limit_batches(rig, 1500)
        await trio.sleep(650)
        assert rig.log_start_offset > 0
        assert 500 < largest_batch(rig) <= 1500
        rig.change(topic_image(SHARE_STATE_TOPIC, 3))
        rig.change(topic_image(SHARE_STATE_TOPIC, 3), topic_image("clicks", 2))
        for key in keys:
            assert await rig.coordinator.read_summary(key) == PartitionState(0, -1, ())


async def test_the_states_of_a_deleted_topic_go_in_turns_if_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykbroker.share_state.coordinator.STATES_AT_ONCE", 59)
    monkeypatch.setattr("pykbroker.share_state.shard.RECORDS_PER_STEP", 5)
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig = Rig(tmp_path)
    async with rig.running():
        for number in range(60):
            assert await rig.coordinator.initialize(KEY._replace(group_id=f"g{number}"), 1, 0) is None
        shards = rig.coordinator.runtime.shards.values()
        rig.change(topic_image(SHARE_STATE_TOPIC, 3))
        left = []
        while sum(len(shard.states) for shard in shards):
            left.append(sum(len(shard.states) for shard in shards))
            await trio.lowlevel.checkpoint()
        # Many shards with few states each count, too.
        assert left[0] == 60
        # trio runs ready tasks in any order, so that two steps may fall between two looks.
        assert max(before - after for before, after in itertools.pairwise([*left, 0])) <= 2 * 5


async def test_a_topic_that_is_deleted_after_the_end_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tasks of a node are cancelled together; that of the metadata may get its turn after the coordinator's."""
    monkeypatch.setattr("pykbroker.share_state.coordinator.STATES_AT_ONCE", 0)
    rig = Rig(tmp_path)
    async with rig.running() as nursery:
        await rig.coordinator.initialize(KEY, 1, 0)
        await rig.end_tasks(nursery)
        rig.change(topic_image(SHARE_STATE_TOPIC, 3))
        assert sum(len(shard.states) for shard in rig.coordinator.runtime.shards.values()) == 1


async def test_records_that_snapshots_make_redundant_are_deleted(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.coordinator.initialize(KEY, 1, 0)
        for offset in range(6):
            await rig.write_at(offset)
        assert rig.log_start_offset == 0
        await trio.sleep(101)
        assert rig.log_start_offset == 6


async def test_cold_share_partitions_get_a_snapshot_and_are_pruned(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.coordinator.initialize(KEY, 1, 0)
        await rig.write_at(0)
        await trio.sleep(650)
        assert rig.log_start_offset == 2
        assert await rig.coordinator.read(KEY, 0) == PartitionState(1, 0, (StateBatch(0, 0, ACKNOWLEDGED, 1),), -1, 0)


async def test_a_coordinator_that_is_not_here(tmp_path: Path) -> None:
    """Nothing is read from the log of a partition that another broker leads."""
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.coordinator.initialize(KEY, 1, 0)
        rig.change(topic_image("clicks", 2), topic_image(SHARE_STATE_TOPIC, 3, leader=2, followers=(1,)))
        assert await outcome_of(rig.coordinator.read_summary, KEY) is ErrorCode.NOT_COORDINATOR
        assert await rig.write_at(0) is ErrorCode.NOT_COORDINATOR


async def test_records_that_cannot_be_deleted_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning with the reason; the next prune tries again."""
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.coordinator.initialize(KEY, 1, 0)
        for offset in range(12):
            await rig.write_at(offset)

        def fail(*_: object) -> None:
            raise StorageError(SHARE_STATE_TOPIC, "the disk has gone")

        with monkeypatch.context() as patch:
            patch.setattr(Partition, "advance_log_start", fail)
            await trio.sleep(101)
        assert rig.log_start_offset == 0
        assert "__share_group_state: records before offset" in caplog.text
        assert "the disk has gone" in caplog.text
        await trio.sleep(101)
        assert rig.log_start_offset > 0
