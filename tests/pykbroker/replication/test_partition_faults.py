"""Replicas whose disk fails, and requests that come when the broker does not lead any more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Never, TypeVar

import pytest

from pykbroker.controller.metadata.image import TOPIC_RESOURCE, ClusterImage
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.errors import KafkaError
from pykbroker.logstore.errors import OffsetOutOfRange, StorageError
from pykbroker.logstore.loaded_log import LoadedLog
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.log_directories import NO_REPLICA
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.replication.partition import Partition
from pykbroker.replication.partitions import directory_of
from pykbroker.replication.replica import FetchBound
from pykbroker.replication.transaction_markers import AppendedMarker
from tests.pykbroker.replication.test_directory_moves import A, B, Failures, Rig
from tests.pykbroker.replication.test_partition import Replicated
from tests.pykbroker.replication.test_truncation import BROKERS, Cluster
from tests.support.data_path import topic_id
from tests.support.replicas import TOPIC, ReplicaBroker, image_of

Result = TypeVar("Result")

BROKEN = StorageError("/data/t-0", "Input/output error")


def reported(broker: ReplicaBroker) -> list[StorageError]:
    """Storage failures of this broker's replicas, from now on."""
    failures = Failures()
    broker.partitions.environment.storage_failures = failures
    return failures.reported


def unsynced() -> tuple[Cluster, ReplicaBroker]:
    """Broker 2 has the record b as a follower, and could not sync it."""
    cluster = Cluster({"log.flush.interval.messages": "1"})
    cluster.elect(1)
    cluster.produce(1, "a")
    for number in (2, 3):
        cluster.fetch(number, 2)
    cluster.produce(1, "b")
    broker = cluster.brokers[2]
    broker.filesystem.fail_next["sync"] = BROKEN
    cluster.fetch(2)
    assert (broker.partition.log.log_end_offset, broker.partition.replica.unsynced_from) == (2, 1)
    return cluster, broker


async def test_a_new_leader_syncs_what_it_could_not_sync_as_a_follower() -> None:
    """Before other replicas fetch it: they take it for replicated."""
    cluster, broker = unsynced()
    cluster.elect(2)
    broker.filesystem.crash()
    broker.open()
    cluster.tell(2)
    assert cluster.values(2) == ["a@0", "b@1"]


async def test_a_new_leader_that_still_cannot_sync_says_so(caplog: pytest.LogCaptureFixture) -> None:
    cluster, broker = unsynced()
    failures = reported(broker)
    broker.filesystem.fail_next["sync"] = BROKEN
    cluster.elect(2)
    assert "t-0: its end, from offset 1 on, could not be synced: /data/t-0: Input/output error" in caplog.text
    assert failures == [BROKEN]
    assert broker.partition.is_leader


async def test_an_epoch_whose_beginning_cannot_be_noted_is_led_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-279: followers get the same end of their last epoch without the entry."""
    cluster = Cluster()
    cluster.elect(1)
    cluster.produce(1, "a")
    for number in (2, 3):
        cluster.fetch(number, 2)
    failures = reported(cluster.brokers[2])

    def refuse(log: LoadedLog, epoch: int) -> None:
        raise BROKEN

    with monkeypatch.context() as patch:
        patch.setattr(LoadedLog, "begin_leader_epoch", refuse)
        cluster.elect(2)
    assert "t-0: the beginning of leader epoch 1 was not noted: /data/t-0: Input/output error" in caplog.text
    assert failures == [BROKEN]
    assert cluster.epochs(2) == ((0, 0),)
    assert cluster.brokers[2].partition.end_offset_for_epoch(0) == (0, 1)
    cluster.produce(2, "b")
    assert cluster.epochs(2) == ((0, 0), (1, 1))
    cluster.fetch(1, 3)
    assert cluster.values(1) == ["a@0", "b@1"]


async def test_what_only_a_leader_does_is_refused_by_a_follower() -> None:
    cluster = Cluster()
    cluster.elect(1)
    follower, leader = cluster.brokers[2].partition, cluster.brokers[1].partition
    batch = build_batch([Record(0, 1000, None, b"v", ())])
    calls: list[Callable[[], object]] = [
        lambda: follower.append_as_leader(batch, 1000),
        follower.check_enough_replicas,
        lambda: follower.follower(3, 0),
        lambda: leader.append_as_follower(batch, 1000, 0, 0, 0),
    ]
    for call in calls:
        with pytest.raises(KafkaError) as raised:
            call()
        assert raised.value.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert follower.is_in_every_isr_log(0) is False
    assert await follower.wait_deleted(1, 0.0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert await AppendedMarker(follower, 1, None).wait_replicated(0.0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (leader.log.log_end_offset, follower.log.log_end_offset) == (0, 0)


def test_a_reader_below_the_log_start_is_out_of_range() -> None:
    """P-70: there is nothing to compare its last epoch with."""
    cluster = Cluster()
    cluster.elect(1)
    cluster.produce(1, "a", "b", "c")
    leader = cluster.brokers[1].partition
    leader.replica.high_watermark = 3
    leader.advance_log_start(2)
    with pytest.raises(OffsetOutOfRange, match="offset 1 is below the log start 2"):
        leader.divergence(1, 0)
    assert leader.divergence(2, 0) is None


@pytest.fixture
def path(tmp_path: Path) -> Any:
    data_path = Replicated(tmp_path)
    yield data_path
    data_path.close()


async def test_a_proposal_that_the_controller_rejects_no_longer_holds_the_high_watermark(path: Replicated) -> None:
    """Kafka's Partition.handleAlterPartitionError: the committed set counts again, and a new proposal may be made."""
    partition = path.partition
    path.change(isr=(1, 3), partition_epoch=1)
    await path.fetch(3, 0)
    await path.fetch(2, 0)
    assert partition.leadership is not None
    (proposal,) = path.proposals
    assert sorted(partition.leadership.maximal_isr) == [1, 2, 3]
    await path.produce(acks=1)
    await path.fetch(3, 1)
    assert partition.high_watermark == 0
    path.clock.time_ms += 60_000
    await path.fetch(3, 1)
    assert partition.high_watermark == 0, "it waits for broker 2, which is about to join"
    partition.on_proposal_rejected(proposal)
    assert partition.leadership.pending is None
    assert sorted(partition.leadership.maximal_isr) == [1, 3]
    assert partition.high_watermark == 1


async def test_records_below_the_high_watermark_with_too_few_in_sync_replicas_left(path: Replicated) -> None:
    """P-47: the producer with acks=all that asks only now gets NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
    await path.produce(acks=1)
    for number in (2, 3):
        await path.fetch(number, 1)
    assert path.partition.high_watermark == 1
    path.change(isr=(1,), partition_epoch=1)
    leadership = path.partition.leadership
    assert leadership is not None
    assert await path.partition.wait_replicated(1, 0.0, leadership) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


# All partitions of a broker


def test_a_replica_whose_log_cannot_be_read_is_offline_until_it_can(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    cluster.elect(1)
    cluster.produce(1, "a")
    broker = cluster.brokers[1]

    def refuse(partition: Partition, image: object) -> None:
        raise BROKEN

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "update", refuse)
        cluster.elect(2, 1)
    assert "t-0 cannot be served for now: /data/t-0: Input/output error" in caplog.text
    assert broker.partitions.get(TOPIC, 0) is None
    assert broker.partitions.is_offline(TOPIC, 0)
    broker.partitions.open_offline(broker.image)
    assert broker.partition.leader_id == 2
    assert not broker.partitions.has_offline
    assert cluster.values(1) == ["a@0"]


def test_a_log_whose_directory_cannot_be_renamed_is_deleted_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """The renaming is tried again later."""
    cluster = Cluster()
    cluster.elect(1)
    broker = cluster.brokers[1]
    broker.filesystem.fail_next["rename"] = BROKEN
    broker.apply(ClusterImage())
    assert "the log of t-0 could not be deleted: /data/t-0: Input/output error" in caplog.text
    assert broker.partitions.get(TOPIC, 0) is None
    assert not broker.directory.finish_directories(0)
    assert [name for name, is_directory in broker.filesystem.list("/data") if is_directory] == [
        f"t-0.{topic_id(TOPIC).hex()}-delete"
    ]


def test_the_place_that_the_metadata_has_for_a_log() -> None:
    cluster = Cluster()
    cluster.elect(1)
    log = cluster.brokers[1].partition.log
    placed = cluster.image._replace(directories=(A, B, A))
    assert directory_of(image_of(placed, BROKERS), 2, log) == B
    assert directory_of(image_of(placed, BROKERS), 9, log) == NO_REPLICA
    assert directory_of(ClusterImage(), 2, log) == NO_REPLICA


# Moves between log directories


def test_changed_settings_of_a_topic_hold_for_the_copy_too() -> None:
    rig = Rig()
    rig.moves.begin(rig.partition, B)
    rig.config = LogConfig(retention_ms=77)
    image = rig.new_image()
    image.delta = delta_between(rig.image, image)._replace(configs=frozenset({(TOPIC_RESOURCE, "t")}))
    rig.partitions.apply(rig.image, image)
    assert rig.partition.future is not None
    assert (rig.partition.log.config, rig.partition.future.config) == (rig.config, rig.config)


async def test_a_copy_that_cannot_be_deleted_is_reported_and_the_move_ends(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.append()
    rig.moves.begin(rig.partition, B)
    await rig.go()
    rig.filesystem.fail_next["rename"] = BROKEN
    rig.moves.begin(rig.partition, A)
    assert "the copy of t-0 could not be deleted: /data/t-0: Input/output error" in caplog.text
    assert rig.failures.reported == [BROKEN]
    assert (rig.partition.future, rig.directories.futures) == (None, {})
    rig.kill()
    assert rig.partition.future is not None, "the next start finds it, and goes on"


async def test_the_end_of_a_log_without_records_is_moved_too() -> None:
    """Its last records were compacted away; the copy ends where the log does."""
    rig = Rig()
    rig.append()
    rig.partition.log.loaded.skip_to(15, 0)
    rig.moves.begin(rig.partition, B)
    await rig.go()
    rig.assign(B)
    await rig.go()
    assert (rig.partition.log.path, rig.partition.log.log_end_offset) == ("/b/t-0", 15)


async def test_a_slice_that_was_read_when_the_move_ended_is_dropped() -> None:
    rig = Rig()
    for _ in range(30):
        rig.append(size=10_000)
    rig.moves.begin(rig.partition, B)
    future = rig.partition.future
    assert future is not None
    run_in_thread = rig.moves._run_in_thread

    async def end_meanwhile(work: Callable[[], Result]) -> Result:
        found = await run_in_thread(work)
        rig.moves.begin(rig.partition, A)
        return found

    rig.moves._run_in_thread = end_meanwhile
    await rig.go()
    assert rig.partition.future is None
    assert future.log_end_offset == 0
    assert rig.partition.log.log_end_offset == 300


async def test_a_copy_that_takes_over_and_cannot_note_the_epoch_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record has the epoch yet; the first one notes it."""
    rig = Rig()
    rig.append()
    rig.moves.begin(rig.partition, B)
    await rig.go()
    old, future = rig.partition.log, rig.partition.future
    assert future is not None
    old.loaded.begin_leader_epoch(5)

    def refuse(log: LoadedLog, epoch: int) -> None:
        raise BROKEN

    with monkeypatch.context() as patch:
        patch.setattr(LoadedLog, "begin_leader_epoch", refuse)
        rig.partition.replace_log_by_future(future)
    assert rig.failures.reported == [BROKEN]
    assert rig.partition.log is future


async def test_a_log_that_cannot_be_read_or_deleted_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-276: its directory may have failed, and no record may be written to it that would show it."""
    rig = Rig()
    rig.append()

    def refuse(*_: object, **__: object) -> Never:
        raise BROKEN

    monkeypatch.setattr(PartitionLog, "read", refuse)
    with pytest.raises(StorageError):
        rig.partition.read(0, 1000, FetchBound.HIGH_WATERMARK, at_least_one=True)
    assert rig.failures.reported == [BROKEN]
    monkeypatch.setattr(rig.directories, "delete_log", refuse)
    image = rig.new_image()
    image.delta = delta_between(rig.image, image)._replace(deleted_topics=tuple(image.topics_by_name.values()))
    rig.partitions.apply(rig.image, image)
    assert rig.failures.reported == [BROKEN, BROKEN]
