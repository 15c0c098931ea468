"""Followers whose logs part from the leader's: the cases of KIP-101 and KIP-279, and the ends of the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pykbroker.controller.metadata.image import PartitionImage
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.steps import finished
from tests.support.replicas import TOPIC, ReplicaBroker, broker_image, image_of

BROKERS = {number: broker_image(number, number * 10) for number in (1, 2, 3)}


class Cluster:
    """Three brokers that learn of the metadata at once."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.brokers = {number: ReplicaBroker(number, settings) for number in (1, 2, 3)}
        self.leader_epoch = -1
        self.partition_epoch = -1

    def elect(self, leader: int, *among: int, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        """A broker leads; only `among` (default: all) hear of it."""
        self.leader_epoch += 1
        self.partition_epoch += 1
        self.image = PartitionImage(0, (1, 2, 3), isr, leader, self.leader_epoch, self.partition_epoch)
        for number in among or (1, 2, 3):
            self.tell(number)

    def tell(self, number: int) -> None:
        self.brokers[number].apply(image_of(self.image, BROKERS))

    def produce(self, leader: int, *values: str) -> None:
        """Each value is a batch of its own."""
        for value in values:
            batch = build_batch([Record(0, 1000, None, value.encode(), ())])
            self.brokers[leader].partition.append_as_leader(batch, 1000)

    def fetch(self, follower: int, times: int = 1) -> None:
        broker = self.brokers[follower]
        for _ in range(times):
            request = finished(broker.session.next_request(broker.now, broker.clock.now_ms(), broker.broker_epoch()))
            assert request is not None
            leader = self.brokers[broker.leader_id]
            response = leader.serve(request)
            for followed in finished(broker.session.on_response(response, broker.now, broker.clock.now_ms())):
                start, end = (self._offset(leader, followed.leader_epoch, t) for t in (-2, -1))
                followed.on_offsets(start, end, broker.clock.now_ms())

    def _offset(self, leader: ReplicaBroker, epoch: int, timestamp: int) -> int:
        asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=9, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])
        answer = leader.serve(request).topics[0].partitions[0]
        assert answer.error_code == 0
        offset: int = answer.offset
        return offset

    def values(self, number: int) -> list[str]:
        found = []
        for batch in self.brokers[number].partition.log.iter_batches():
            found += [f"{record.value.decode()}@{record.offset}" for record in batch.records() if record.value]
        return found

    def epochs(self, number: int) -> tuple[tuple[int, int], ...]:
        return self.brokers[number].partition.log.leader_epochs.entries

    def high_watermark(self, number: int) -> int:
        return self.brokers[number].partition.high_watermark


@pytest.fixture
def cluster() -> Any:
    made = Cluster()
    made.elect(1)
    return made


async def test_a_follower_gets_offsets_epochs_and_the_high_watermark(cluster: Cluster) -> None:
    cluster.produce(1, "a", "b")
    cluster.fetch(2, 2)
    cluster.fetch(3, 2)
    assert cluster.values(2) == cluster.values(1) == ["a@0", "b@1"]
    assert cluster.epochs(2) == cluster.epochs(1) == ((0, 0),)
    assert [cluster.high_watermark(n) for n in (1, 2, 3)] == [2, 0, 2]
    cluster.fetch(2)
    assert cluster.high_watermark(2) == 2


async def test_no_message_is_lost_by_truncating_to_the_high_watermark(cluster: Cluster) -> None:
    """KIP-101, first scenario: the follower has the record but not the high watermark, restarts, and then leads."""
    cluster.produce(1, "m1")
    cluster.fetch(2, 2)
    cluster.fetch(3, 2)
    cluster.produce(1, "m2")
    cluster.fetch(2, 2)
    cluster.fetch(3, 2)
    assert cluster.high_watermark(1) == 2
    two = cluster.brokers[2]
    two.stop()
    two.open()
    cluster.tell(2)
    cluster.elect(2)
    assert cluster.values(2) == ["m1@0", "m2@1"]
    cluster.fetch(1)
    assert cluster.values(1) == ["m1@0", "m2@1"]


async def test_replicas_do_not_part_after_the_same_offset_was_written_twice(cluster: Cluster) -> None:
    """KIP-101, second scenario: both were down, the follower came up first and took another record."""
    cluster.produce(1, "m1")
    cluster.fetch(2, 2)
    cluster.fetch(3, 2)
    cluster.produce(1, "m2")
    cluster.elect(2)
    cluster.produce(2, "m3")
    assert cluster.values(1) == ["m1@0", "m2@1"]
    cluster.fetch(1, 2)
    assert cluster.values(1) == cluster.values(2) == ["m1@0", "m3@1"]
    assert cluster.epochs(1) == ((0, 0), (1, 1))


async def test_an_epoch_that_the_leader_never_had_is_followed_back(cluster: Cluster) -> None:
    """KIP-279: leaders in quick succession, each of which wrote what nobody else saw."""
    cluster.produce(1, "a")
    cluster.fetch(2, 2)
    cluster.fetch(3, 2)
    cluster.elect(2, 2)
    cluster.produce(2, "two", "two")
    cluster.elect(1, 1)
    cluster.produce(1, "one")
    cluster.elect(2, 2)
    cluster.produce(2, "later")
    cluster.elect(3, 3)
    cluster.produce(3, "three", "three", "three")
    cluster.tell(1)
    cluster.tell(2)
    for number in (1, 2):
        cluster.fetch(number, 5)
        assert cluster.values(number) == cluster.values(3)
        assert cluster.epochs(number) == cluster.epochs(3)


async def test_a_longer_log_of_an_unclean_election_is_cut(cluster: Cluster) -> None:
    cluster.produce(1, "a", "b", "c")
    cluster.elect(2, isr=(2,))
    cluster.fetch(1, 2)
    assert cluster.values(1) == []
    assert cluster.brokers[1].partition.log.log_end_offset == 0


async def test_the_leaders_log_begins_beyond_the_followers_end(cluster: Cluster) -> None:
    cluster.produce(1, "a", "b", "c", "d")
    one = cluster.brokers[1].partition
    one.log.roll(0)
    one.replica.high_watermark = 4
    one.advance_log_start(3)
    cluster.fetch(2, 4)
    assert cluster.values(2) == ["d@3"]
    assert cluster.brokers[2].partition.log.log_start_offset == 3


async def test_the_leaders_log_begins_within_a_batch(cluster: Cluster) -> None:
    batch = build_batch([Record(n, 1000, None, b"v", ()) for n in range(4)])
    one = cluster.brokers[1].partition
    one.append_as_leader(batch, 1000)
    one.replica.high_watermark = 4
    one.advance_log_start(2)
    cluster.fetch(2, 4)
    two = cluster.brokers[2].partition
    assert (two.log.log_start_offset, two.log.log_end_offset) in ((0, 4), (2, 4))
    cluster.fetch(3, 2)
    cluster.fetch(2)
    assert two.log.log_start_offset == 2


async def test_the_log_start_follows_the_leaders(cluster: Cluster) -> None:
    cluster.produce(1, "a", "b")
    for _ in range(3):
        cluster.fetch(2)
        cluster.fetch(3)
    cluster.brokers[1].partition.advance_log_start(1)
    assert (await cluster.brokers[1].partition.wait_deleted(1, 0.0)) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    for _ in range(2):
        cluster.fetch(2)
        cluster.fetch(3)
    assert cluster.brokers[2].partition.log.log_start_offset == 1
    assert (await cluster.brokers[1].partition.wait_deleted(1, 0.0)) == (ErrorCode.NONE, 1)


async def test_batches_larger_together_than_a_segment() -> None:
    cluster = Cluster({"log.segment.bytes": "1048576", "log.roll.ms": "1000"})
    cluster.elect(1)
    one, two = cluster.brokers[1].partition, cluster.brokers[2].partition
    two.log.config = two.log.config._replace(segment_bytes=500)
    cluster.produce(1, *(f"{n:0100d}" for n in range(12)))
    cluster.fetch(2, 2)
    assert cluster.values(2) == cluster.values(1)
    assert len(two.log.segment_base_offsets) == 6
    assert len(one.log.segment_base_offsets) == 1


async def test_what_a_follower_could_not_sync_does_not_count() -> None:
    """With `log.flush.interval.messages=1` what is acknowledged is on all disks in sync. A follower whose disk does not
    sync has the records in its log and must not say so: they are taken out, fetched and written again."""
    cluster = Cluster({"log.flush.interval.messages": "1"})
    cluster.elect(1)
    follower = cluster.brokers[2]
    cluster.produce(1, "a")
    for number in (2, 3):
        cluster.fetch(number, 2)
    assert cluster.brokers[1].partition.high_watermark == 1
    cluster.produce(1, "b")
    cluster.fetch(3, 2)
    disk = follower.filesystem
    disk.fault_clock, disk.faults, disk.fault_methods = 0, range(1000), frozenset({"sync"})
    cluster.fetch(2)
    assert follower.partition.log.log_end_offset == 2
    follower.clock.time_ms += 2000
    cluster.fetch(2)
    assert cluster.brokers[1].partition.high_watermark == 1
    disk.faults = range(0)
    follower.clock.time_ms += 2000
    cluster.fetch(2, 2)
    assert cluster.brokers[1].partition.high_watermark == 2
    disk.crash()
    follower.open()
    follower.apply(image_of(cluster.image, BROKERS))
    assert follower.partition.log.log_end_offset == 2


def test_a_leader_acknowledges_a_batch_that_is_sent_again_when_it_is_synced() -> None:
    cluster = Cluster({"log.flush.interval.messages": "1"})
    cluster.elect(1)
    leader = cluster.brokers[1]
    batch = build_batch([Record(0, 1000, None, b"a", ())], producer_id=7, producer_epoch=0, base_sequence=0)
    disk = leader.filesystem
    disk.fault_clock, disk.faults, disk.fault_methods = 0, range(1000), frozenset({"sync"})
    for _ in range(2):
        with pytest.raises(StorageError):
            leader.partition.append_as_leader(batch, 1000)
    disk.faults = range(0)
    assert leader.partition.append_as_leader(batch, 1000).is_duplicate
    disk.crash()
    leader.open()
    leader.apply(image_of(cluster.image, BROKERS))
    assert leader.partition.log.log_end_offset == 1


async def test_an_epoch_without_records_is_dropped_without_a_word(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A leader notes its epoch at once. As a follower it is told that the logs part there, and has no record to cut."""
    caplog.set_level(logging.INFO)
    cluster.produce(1, "m1")
    cluster.fetch(2, 2)
    cluster.elect(2)
    cluster.elect(1)
    assert cluster.epochs(2) == ((0, 0), (1, 1))
    cluster.fetch(2, 2)
    assert cluster.epochs(2) == cluster.epochs(1)[:1] == ((0, 0),)
    assert "truncated" not in caplog.text
    cluster.elect(2)
    cluster.produce(2, "cut")
    cluster.elect(1)
    cluster.fetch(2, 2)
    assert "t-0: truncated from 2 to 1: epoch 0 of leader 1 ends at 1" in caplog.text


async def test_a_replica_whose_directory_has_failed_is_not_followed() -> None:
    """P-276: the metadata may tell it much later, and the directory may work again until then."""
    cluster = Cluster()
    cluster.elect(1)
    cluster.produce(1, "a")
    cluster.fetch(2, 2)
    broker = cluster.brokers[2]
    replica_log = broker.partition.log
    cluster.produce(1, "b")
    request = finished(broker.session.next_request(broker.now, broker.clock.now_ms(), broker.broker_epoch()))
    assert request is not None
    response = cluster.brokers[1].serve(request)
    broker.partition.close()
    assert finished(broker.session.on_response(response, broker.now, broker.clock.now_ms())) == []
    assert replica_log.log_end_offset == 1
    request = finished(broker.session.next_request(broker.now, broker.clock.now_ms(), broker.broker_epoch()))
    assert request is None or not request.topics
