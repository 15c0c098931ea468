"""Transactions of a partition: verification, markers of both transaction versions, last stable offset."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.logstore.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    StorageError,
)
from pykbroker.logstore.partition_log import AppendOrigin, PartitionLog
from pykbroker.logstore.producer_state import Verification
from pykbroker.protocol.records.batch import RecordBatch, build_batch
from pykbroker.protocol.records.control import ControlRecordType, control_record_key, end_transaction_value
from pykbroker.protocol.records.record import Record
from tests.logstore.support import NOW_MS, Place, append, batch, marker
from tests.support.fake_filesystem import FakeFileSystem

ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT
LARGEST_EPOCH = 0x7FFF
DAY_MS = 86_400_000


class Transactions:
    """A log that asks for verification, used by producer 7."""

    def __init__(self, place: Place, **config: Any) -> None:
        self.log: PartitionLog = place.open(transaction_partition_verification_enable=True, **config)

    def start(
        self, sequence: int = 0, *, epoch: int = 0, version: int = 1, now_ms: int = NOW_MS
    ) -> Verification | None:
        return self.log.producers.start_verification(
            7, epoch, sequence, supports_epoch_bump=version >= 2, now_ms=now_ms
        )

    def append(
        self, sequence: int = 0, *, epoch: int = 0, verification: Verification | None = None, count: int = 1
    ) -> int:
        data = batch(count, producer_id=7, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)
        return self.log.append_as_leader(data, 0, NOW_MS, verification=verification).first_offset

    def end(self, kind: ControlRecordType = COMMIT, *, epoch: int = 0, version: int = 1) -> int:
        data = marker(kind, 7, epoch)
        origin = AppendOrigin.COORDINATOR
        return self.log.append_as_leader(data, 0, NOW_MS, origin, transaction_version=version).first_offset


@pytest.fixture
def on(place: Place) -> Transactions:
    return Transactions(place)


def test_markers_get_the_time_that_the_topic_asks_for(place: Place) -> None:
    """P-40: like every batch of such a topic; nothing else of them changes."""
    log = place.open(message_timestamp_type="LogAppendTime")
    data = marker(COMMIT, 7, 0)
    log.append_as_leader(data, 0, NOW_MS + 5, AppendOrigin.COORDINATOR, transaction_version=1)
    (stored,) = log.iter_batches()
    assert stored.is_control
    assert stored.is_log_append_time
    assert stored.max_timestamp == NOW_MS + 5
    assert stored.verify_crc()
    assert bytes(stored.payload()) == bytes(RecordBatch(data).payload())
    newest = log.max_timestamp_offset()
    assert newest is not None
    assert newest.timestamp == NOW_MS + 5


def test_a_first_append_needs_verification(on: Transactions) -> None:
    """P-135: and then no further one until the transaction has ended; nor does a duplicate."""
    with pytest.raises(InvalidTransactionState):
        on.append()
    verification = on.start()
    assert verification is not None
    assert on.append(verification=verification) == 0
    assert on.start(1) is None
    assert on.append(1) == 1
    on.end()
    assert on.append(1) == 1, "a duplicate is found before anything is asked"
    with pytest.raises(InvalidTransactionState):
        on.append(2)
    assert on.append(2, verification=on.start(2)) == 3
    assert on.log.log_end_offset == 4


def test_an_answer_that_comes_after_the_end_verifies_nothing(on: Transactions) -> None:
    """P-135: the marker that ended the transaction meanwhile takes the verification away (KIP-890)."""
    late = on.start()
    on.end(ABORT)
    with pytest.raises(InvalidTransactionState):
        on.append(verification=late)
    again = on.start()
    assert again is not late
    with pytest.raises(InvalidTransactionState):
        on.append(verification=late)
    assert on.append(verification=again) == 1


def test_with_epoch_bumps_a_marker_leaves_the_next_transactions_verification(on: Transactions) -> None:
    """P-136: the marker carries the epoch that the next transaction has, which may be verified before it is written."""
    on.append(verification=on.start(version=2))
    next_one = on.start(epoch=1, version=2)
    assert next_one is not None
    on.end(epoch=1, version=2)
    assert on.append(epoch=1, verification=next_one) == 2


def test_without_epoch_bumps_a_marker_takes_it_away(on: Transactions) -> None:
    on.append(verification=on.start())
    on.end()
    waiting = on.start(1)
    on.end(ABORT)
    with pytest.raises(InvalidTransactionState):
        on.append(1, verification=waiting)


def test_a_new_epoch_is_verified_although_a_transaction_of_the_old_one_is_open(on: Transactions) -> None:
    """P-135: it may have ended elsewhere."""
    on.append(verification=on.start())
    assert on.start(epoch=1) is not None
    with pytest.raises(InvalidTransactionState):
        on.append(epoch=1)


def test_an_old_epoch_is_fenced_before_anyone_is_asked(on: Transactions) -> None:
    """P-55: with the error that lets the client abort, not the fatal one."""
    on.append(epoch=4, verification=on.start(epoch=4))
    with pytest.raises(InvalidProducerEpoch):
        on.start(1, epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        on.append(1, epoch=3)


def test_with_epoch_bumps_the_first_sequence_is_zero(on: Transactions) -> None:
    """P-54: an unknown producer of the second generation starts at 0; one of the first anywhere."""
    with pytest.raises(OutOfOrderSequence):
        on.append(5, verification=on.start(5, version=2))
    assert on.append(verification=on.start(version=2)) == 0
    on.end(epoch=1, version=2)
    with pytest.raises(OutOfOrderSequence):
        on.append(5, epoch=1, verification=on.start(5, epoch=1, version=2))


def test_without_epoch_bumps_an_unknown_producer_starts_anywhere(on: Transactions) -> None:
    """P-54."""
    assert on.append(5, verification=on.start(5)) == 0


def test_a_later_batch_does_not_overtake_one_that_waits(on: Transactions) -> None:
    """P-135: sequence 5 is verified and 3 was not: 3 must come first, or it would be lost."""
    on.start(3)
    later = on.start(5)
    with pytest.raises(OutOfOrderSequence):
        on.append(5, verification=later)
    assert on.append(3, count=2, verification=on.start(3)) == 0
    assert on.append(5) == 2


def test_a_higher_epoch_begins_its_sequences_anew(on: Transactions) -> None:
    on.start(0)
    verification = on.start(4, epoch=1)
    assert verification is not None
    assert (verification.epoch, verification.lowest_sequence) == (1, 4)
    on.start(6, epoch=0)
    assert (verification.epoch, verification.lowest_sequence) == (1, 4)
    assert on.append(4, epoch=1, verification=verification) == 0


def test_verifications_expire(on: Transactions) -> None:
    """P-56: one that was never used goes with the producers."""
    old = on.start()
    on.log.remove_expired_producers(NOW_MS + DAY_MS - 1)
    assert on.start() is old
    on.log.remove_expired_producers(NOW_MS + DAY_MS)
    assert on.start() is not old


def test_a_coordinators_batches_are_verified_too(on: Transactions) -> None:
    """P-135, P-139: offsets within a transaction; they have no sequence."""
    data = batch(1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    with pytest.raises(InvalidTransactionState):
        on.log.append_as_leader(data, 0, NOW_MS, AppendOrigin.COORDINATOR)
    verification = on.start(-1, version=2)
    on.log.append_as_leader(data, 0, NOW_MS, AppendOrigin.COORDINATOR, verification=verification)
    on.log.append_as_leader(data, 0, NOW_MS, AppendOrigin.COORDINATOR)
    assert on.log.log_end_offset == 2


def test_plain_batches_need_none(on: Transactions) -> None:
    append(on.log, batch(1))
    append(on.log, batch(1, producer_id=8, producer_epoch=0, base_sequence=3))
    assert on.log.log_end_offset == 2


def test_markers_of_the_first_generation(on: Transactions) -> None:
    """P-136: of this epoch or a higher one, as often as they come."""
    on.append(epoch=3, verification=on.start(epoch=3))
    with pytest.raises(InvalidProducerEpoch):
        on.end(epoch=2)
    assert on.end(epoch=3) == 1
    assert on.end(epoch=3) == 2
    assert on.end(epoch=5) == 3


def test_markers_of_the_second_generation(on: Transactions) -> None:
    """P-136: of a higher epoch; of the same only when nothing is open, as a retry (KAFKA-19999)."""
    on.append(epoch=3, verification=on.start(epoch=3, version=2))
    for epoch in (2, 3):
        with pytest.raises(InvalidProducerEpoch):
            on.end(epoch=epoch, version=2)
    assert on.end(epoch=4, version=2) == 1
    assert on.end(epoch=4, version=2) == 2
    with pytest.raises(InvalidProducerEpoch):
        on.end(epoch=3, version=2)


def test_a_transaction_of_the_largest_epoch_can_be_ended(on: Transactions) -> None:
    """P-136: there is no higher epoch for its marker."""
    on.append(epoch=LARGEST_EPOCH, verification=on.start(epoch=LARGEST_EPOCH, version=2))
    assert on.end(ABORT, epoch=LARGEST_EPOCH, version=2) == 1
    assert on.log.last_stable_offset(2) == 2


def test_the_batch_of_the_log_start_is_not_stable(on: Transactions) -> None:
    """P-68: DeleteRecords went beyond the beginning of an open transaction."""
    on.append(verification=on.start(), count=3)
    append(on.log, batch(3))
    on.log.advance_log_start(2)
    assert on.log.last_stable_offset(6) == 0
    on.log.advance_log_start(4)
    assert on.log.last_stable_offset(6) == 3
    on.log.advance_log_start(6)
    assert on.log.last_stable_offset(6) == 6
    on.append(3, count=3)
    assert on.log.last_stable_offset(9) == 6
    on.end()
    assert on.log.last_stable_offset(10) == 10


def test_the_batch_of_the_log_start_is_found_again(place: Place) -> None:
    """P-68: after a restart the last stable offset is what it was."""
    on = Transactions(place)
    on.append(verification=on.start(), count=3)
    append(on.log, batch(3))
    on.log.advance_log_start(4)
    on.log.close()
    on = Transactions(place, is_clean=True, log_start_offset=4)
    assert on.log.last_stable_offset(6) == 3


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_transaction_goes_on_after_a_restart(place: Place, is_clean: bool) -> None:
    """P-57, P-68, P-142: an open transaction is still open, needs no verification, and can be ended."""
    on = Transactions(place, segment_bytes=500)
    on.append(verification=on.start(), count=5)
    for _ in range(10):
        append(on.log, batch(2, value_size=50))
    before = on.log.log_end_offset
    assert len(on.log.segment_base_offsets) > 2
    if is_clean:
        on.log.close()
    on = Transactions(place, segment_bytes=500, is_clean=is_clean)
    assert on.log.last_stable_offset(before) == 0
    assert on.start(5) is None
    assert on.append(5) == before
    on.end(ABORT)
    assert on.log.last_stable_offset(before + 2) == before + 2
    [aborted] = on.log.aborted_transactions(0, before)
    assert aborted[:3] == (7, 0, before + 1)


def test_how_many_bytes_became_stable(place: Place) -> None:
    """`size_between` counts the bytes that a waiting reader of stable records gets (P-63); None across several
    segments."""
    log = place.open(segment_bytes=500)
    sizes = [len(data) for data in (batch(1), batch(2), batch(3))]
    for count in (1, 2, 3):
        append(log, batch(count))
    assert log.loaded.segments.size_between(0, 6) == sum(sizes)
    assert log.loaded.segments.size_between(1, 3) == sizes[1]
    assert log.loaded.segments.size_between(3, 6) == sizes[2]
    assert log.loaded.segments.size_between(6, 6) == 0
    for _ in range(5):
        append(log, batch(3))
    assert len(log.segment_base_offsets) > 1
    assert log.loaded.segments.size_between(0, log.log_end_offset) is None


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_marker_that_could_not_be_synced_counts(is_leader: bool) -> None:
    """With `flush.messages` each append is synced. Where that fails the marker is in the log: so its transaction is
    over, and readers of committed records must be told that it was aborted."""
    filesystem = FakeFileSystem()
    log = Place(filesystem, "/logs").open(flush_messages=1)
    data = batch(3, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(data, 0, NOW_MS)
    record = Record(3, NOW_MS, control_record_key(ABORT), end_transaction_value(0))
    ending = build_batch(
        [record], base_offset=3, leader_epoch=0, producer_id=7, producer_epoch=0, is_control=True, is_transactional=True
    )
    filesystem.fault_clock, filesystem.faults, filesystem.fault_methods = 0, range(10), frozenset({"sync"})
    with pytest.raises(StorageError):  # noqa: PT012  one call, of either kind
        if is_leader:
            log.append_as_leader(ending, 0, NOW_MS, AppendOrigin.COORDINATOR, transaction_version=1)
        else:
            log.append_as_follower(ending, NOW_MS)
    assert log.log_end_offset == 4
    assert log.last_stable_offset(4) == 4
    assert [(one.first_offset, one.last_offset) for one in log.aborted_transactions(0, 4)] == [(0, 3)]


def test_a_truncation_drops_the_aborted_transactions_whose_markers_go(place: Place) -> None:
    """A follower whose leader does not have the marker: the transaction is open again, and may be committed."""
    on = Transactions(place)
    on.append(0, verification=on.start(0))
    on.end(ABORT)
    on.append(1, verification=on.start(1))
    on.end(ABORT)
    log = on.log
    found = log.read(0, 10_000, 4, at_least_one=True).range
    assert found is not None
    assert [one.last_offset for one in log.aborted_transactions_in(0, found)] == [1, 3]
    found.release()
    log.truncate_to(3)
    assert log.last_stable_offset(3) == 2
    found = log.read(0, 10_000, 3, at_least_one=True).range
    assert found is not None
    assert [one.last_offset for one in log.aborted_transactions_in(0, found)] == [1]
    found.release()
    log.close()
    again = place.open(is_clean=True)
    found = again.read(0, 10_000, 3, at_least_one=True).range
    assert found is not None
    assert [one.last_offset for one in again.aborted_transactions_in(0, found)] == [1]
    found.release()


def test_the_end_of_a_range_is_found_by_the_index_or_the_next_segment(place: Place) -> None:
    """P-67: the response has the aborted transactions of the records in it, and not those of the whole log."""
    on = Transactions(place, index_interval_bytes=1)
    for number in range(6):
        on.append(number, verification=on.start(number))
        on.end(ABORT)
        if number == 2:
            on.log.roll(NOW_MS)
    log = on.log
    end = log.log_end_offset
    size = len(log.segments[0].read_batch(0, 200).to_bytes())

    def markers(offset: int, size_max: int) -> list[int]:
        found = log.read(offset, size_max, end, at_least_one=True).range
        assert found is not None
        try:
            return [one.last_offset for one in log.aborted_transactions_in(offset, found)]
        finally:
            found.release()

    assert markers(0, size) == [1], "one batch"
    assert markers(0, 10_000) == [1, 3, 5], "up to the end of its segment"
    assert markers(6, 10_000) == [7, 9, 11]
    found = log.read(0, size, end, at_least_one=True).range
    assert found is not None
    log.truncate_fully_and_start_at(0)
    for number in range(2):
        on.append(number, verification=on.start(number, epoch=1), epoch=1)
        on.end(ABORT, epoch=1)
    assert [one.last_offset for one in log.aborted_transactions_in(0, found)] == [1, 3], "all: its segment is gone"
    found.release()


def test_a_transaction_of_another_producer_that_is_verified_hinders_nobody(on: Transactions) -> None:
    """P-54, P-135: the sequences that wait for a verification are those of its producer."""
    assert on.start(5) is not None
    data = batch(1, producer_id=8, producer_epoch=0, base_sequence=9)
    assert append(on.log, data).first_offset == 0


def test_a_control_record_of_another_kind_is_no_marker(place: Place) -> None:
    """A leader change, as the metadata log has them: the transaction stays open, here and after a kill."""
    on = Transactions(place)
    on.append(0, verification=on.start(0))
    record = Record(0, NOW_MS, control_record_key(ControlRecordType.LEADER_CHANGE), b"")
    other = build_batch([record], producer_id=7, producer_epoch=0, is_control=True, base_offset=1)
    log = on.log
    log.append_as_follower(other, NOW_MS, 0)
    assert log.last_stable_offset(2) == 0
    again = place.open()
    assert (again.log_end_offset, again.last_stable_offset(2)) == (2, 0)
