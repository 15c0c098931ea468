"""WriteTxnMarkers: the end of transactions in partitions (P-133, P-136, P-141)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.errors import KafkaError
from pykbroker.handlers.write_txn_markers import handle_write_txn_markers
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pykbroker.protocol.records.control import (
    ControlRecordType,
    control_record_type,
    end_transaction_coordinator_epoch,
)
from pykbroker.replication.partition import Partition
from tests.support.data_path import NODE_ID, NOW_MS, DataPath, cluster_image, topic_image
from tests.support.transactions import PRODUCER_ID, write_in_transaction


@pytest.fixture
def path(tmp_path: Path) -> Any:
    guarded = {"guarded": {"min.insync.replicas": "2"}}
    topics = [topic_image("a", 2), topic_image("guarded", followers=(2,)), topic_image("far", leader=2)]
    data_path = DataPath(tmp_path, cluster_image(*topics, configs=guarded))
    yield data_path
    data_path.close()


def partition_of(path: DataPath, topic: str = "a", number: int = 0) -> Partition:
    found = path.partitions.get(topic, number)
    assert found is not None
    return found


def marker(*places: tuple[str, int], commit: bool = True, epoch: int = 0, **fields: Any) -> WritableTxnMarker:
    topics = [WritableTxnMarkerTopic(name=topic, partition_indexes=[index]) for topic, index in places]
    options = {"producer_id": PRODUCER_ID, "coordinator_epoch": 3, **fields}
    return WritableTxnMarker(producer_epoch=epoch, transaction_result=commit, topics=topics, **options)


async def write(path: DataPath, *markers: WritableTxnMarker, version: int = 2) -> dict[tuple[int, str, int], int]:
    response = await path.call(handle_write_txn_markers, WriteTxnMarkersRequest(markers=list(markers)), version)
    return {
        (result.producer_id, topic.name, partition.partition_index): partition.error_code
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_marker_is_a_control_batch_of_one_record(path: DataPath, version: int, commit: bool) -> None:
    """P-133: with the producer's id and epoch, the coordinator's epoch in its value; it takes one offset."""
    partition = partition_of(path)
    write_in_transaction(partition, count=2, epoch=5)
    written = await write(path, marker(("a", 0), commit=commit, epoch=5), version=version)
    assert written == {(PRODUCER_ID, "a", 0): 0}
    *_, batch = partition.log.iter_batches()
    assert (batch.base_offset, batch.record_count, batch.base_sequence) == (2, 1, -1)
    assert (batch.producer_id, batch.producer_epoch) == (PRODUCER_ID, 5)
    assert (batch.is_control, batch.is_transactional, batch.max_timestamp) == (True, True, NOW_MS)
    [record] = batch.records()
    expected = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    assert control_record_type(record.key) == expected
    assert end_transaction_coordinator_epoch(record.value) == 3
    assert partition.high_watermark == partition.last_stable_offset == 3
    assert len(partition.log.aborted_transactions(0, 3)) == (0 if commit else 1)


async def test_every_marker_and_partition_gets_its_answer(path: DataPath) -> None:
    """Partitions that are not here, too few replicas; a producer that is named twice is answered once."""
    missing, few = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS
    written = await write(
        path,
        marker(("a", 0), ("far", 0), ("none", 0), ("a", 7), ("guarded", 0)),
        marker(("a", 1)),
        marker(("a", 0), producer_id=9),
    )
    assert written == {
        (PRODUCER_ID, "a", 0): 0,
        (PRODUCER_ID, "far", 0): missing,
        (PRODUCER_ID, "none", 0): missing,
        (PRODUCER_ID, "a", 7): missing,
        (PRODUCER_ID, "guarded", 0): few,
        (PRODUCER_ID, "a", 1): 0,
        (9, "a", 0): 0,
    }
    assert await write(path) == {}


@pytest.mark.parametrize("fields", [{"producer_id": -1}, {"epoch": -1}])
async def test_a_marker_without_a_producer_fails_the_request(path: DataPath, fields: dict[str, Any]) -> None:
    """P-133: the markers before it are written; on partitions that are not here alone it is refused like any other."""
    with pytest.raises(KafkaError) as refused:
        await write(path, marker(("a", 1)), marker(("none", 0), ("a", 0), **fields), marker(("a", 0)))
    assert refused.value.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert partition_of(path, number=0).log.log_end_offset == 0
    assert partition_of(path, number=1).log.log_end_offset == 1
    written = await write(path, marker(("none", 0), **fields))
    assert list(written.values()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_coordinator_of_an_earlier_epoch_is_fenced(path: DataPath) -> None:
    """P-133."""
    await write(path, marker(("a", 0), coordinator_epoch=4))
    fenced = await write(path, marker(("a", 0), coordinator_epoch=3))
    assert list(fenced.values()) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert partition_of(path).log.log_end_offset == 1


@pytest.mark.parametrize(
    ("version", "transaction_version", "epoch", "error"),
    [
        (1, 0, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 0, 5, ErrorCode.NONE),
        (2, 1, 5, ErrorCode.NONE),
        (2, 2, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 2, 6, ErrorCode.NONE),
    ],
)
async def test_the_transaction_version_decides_about_the_epoch(
    path: DataPath, version: int, transaction_version: int, epoch: int, error: ErrorCode
) -> None:
    """P-136: version 1 of the request, from older coordinators, knows only the old rule."""
    write_in_transaction(partition_of(path), epoch=5)
    asked = marker(("a", 0), epoch=epoch, transaction_version=transaction_version)
    assert list((await write(path, asked, version=version)).values()) == [error]


async def test_a_hanging_transaction_can_be_aborted(path: DataPath) -> None:
    """P-141: as kafka-transactions does, with the producer's own epoch and the rule of version 0."""
    partition = partition_of(path)
    write_in_transaction(partition, epoch=5)
    assert partition.last_stable_offset == 0
    await write(path, marker(("a", 0), commit=False, epoch=5, coordinator_epoch=0))
    assert partition.last_stable_offset == 2


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"isr": (NODE_ID,)}, ErrorCode.NONE),
        ({"leader": 2, "leader_epoch": 1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({}, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_a_marker_is_answered_for_when_it_is_replicated(
    tmp_path: Path, change: dict[str, Any], error: ErrorCode
) -> None:
    """The coordinator takes the partition out of the transaction then: a marker that may be lost is not one."""
    replicated = topic_image("b", followers=(2,), isr=(NODE_ID, 2))
    path = DataPath(tmp_path, cluster_image(replicated, topic_image("a")))
    partition = partition_of(path, "b")
    answers: list[dict[tuple[int, str, int], int]] = []
    begun = trio.current_time()

    async def ask() -> None:
        answers.append(await write(path, marker(("b", 0), ("a", 0))))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(1)
        assert (answers, partition.log.log_end_offset, partition.high_watermark) == ([], 1, 0)
        if change:
            image = replicated.partitions[0]
            partition.update(image._replace(partition_epoch=image.partition_epoch + 1, **change))
    assert answers == [{(PRODUCER_ID, "b", 0): error, (PRODUCER_ID, "a", 0): ErrorCode.NONE}]
    assert trio.current_time() - begun == pytest.approx(1 if change else 30)
    path.close()


async def test_ended_transactions_are_forgotten_without_a_reader(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition may have no consumer of committed records for months, as those of `__consumer_offsets`."""
    monkeypatch.setattr("pykbroker.logstore.producer_state.ENDED_KEPT", 10)
    partition = partition_of(path)
    for sequence in range(40):
        write_in_transaction(partition, sequence)
        assert await write(path, marker(("a", 0), coordinator_epoch=0)) == {(PRODUCER_ID, "a", 0): 0}
        assert not partition.log.producers.has_many_ended
    assert partition.last_stable_offset == partition.high_watermark == 80


async def test_ended_transactions_without_replicated_markers_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykbroker.logstore.producer_state.ENDED_KEPT", 10)
    path = DataPath(tmp_path, cluster_image(topic_image("b", followers=(2,), isr=(NODE_ID, 2))))
    partition = partition_of(path, "b")
    async with trio.open_nursery() as nursery:
        for sequence in range(20):
            write_in_transaction(partition, sequence)
            nursery.start_soon(write, path, marker(("b", 0), coordinator_epoch=0))
            await trio.testing.wait_all_tasks_blocked()
        assert partition.log.producers.has_many_ended
        assert partition.log.producers.first_unstable_offset == partition.high_watermark == 0
    path.close()
