"""Idempotent producers of a partition: the last five batches, epochs, wrap of sequences, expiry, snapshots, replay."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.logstore.errors import (
    CorruptFile,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from pykbroker.logstore.partition_log import AppendOrigin, PartitionLog
from pykbroker.logstore.producer_snapshot import decode_snapshot, encode_snapshot
from pykbroker.logstore.producer_state import ProducerState, last_sequence_of
from pykbroker.protocol.records.control import ControlRecordType
from tests.logstore.support import NOW_MS, Place, append, batch, marker

MAX_SEQUENCE = 2147483647


def produce(log: PartitionLog, sequence: int, *, count: int = 1, epoch: int = 0, **more: Any) -> tuple[int, bool]:
    """(first offset, is duplicate) of an append by producer 7."""
    data = batch(count, producer_id=7, producer_epoch=epoch, base_sequence=sequence, **more)
    result = append(log, data)
    return result.first_offset, result.is_duplicate


def test_the_last_five_batches_are_known(place: Place) -> None:
    """P-51: an exact repeat is a success with the original offset; P-52: anything older or else is out of order."""
    log = place.open()
    for number in range(7):
        assert produce(log, number * 2, count=2) == (number * 2, False)
    for number in range(2, 7):
        assert produce(log, number * 2, count=2) == (number * 2, True)
    for sequence, count in ((2, 2), (10, 1), (11, 1), (12, 3), (15, 1), (0, 2)):
        with pytest.raises(OutOfOrderSequence):
            produce(log, sequence, count=count)
    assert log.log_end_offset == 14


def test_a_duplicate_answers_with_the_original_append(place: Place) -> None:
    """P-51: the original's offsets and timestamp, also from a LogAppendTime topic."""
    log = place.open(message_timestamp_type="LogAppendTime")
    data = batch(3, producer_id=7, producer_epoch=0, base_sequence=0)
    original = append(log, data, now_ms=NOW_MS)
    append(log, batch(1, producer_id=7, producer_epoch=0, base_sequence=3), now_ms=NOW_MS + 100)
    again = append(log, data, now_ms=NOW_MS + 200)
    assert again == original._replace(is_duplicate=True)
    assert again.log_append_time_ms == NOW_MS


def test_sequences_wrap(place: Place) -> None:
    """P-53: 2147483647 is followed by 0, also within a batch, and after a restart."""
    log = place.open()
    assert produce(log, MAX_SEQUENCE - 1, count=2) == (0, False)
    assert produce(log, 0, count=2) == (2, False)
    assert produce(log, MAX_SEQUENCE - 1, count=2) == (0, True)
    log.truncate_fully_and_start_at(0)
    assert produce(log, MAX_SEQUENCE, count=3) == (0, False)
    assert produce(log, MAX_SEQUENCE, count=3) == (0, True)
    log.close()
    log = place.open(is_clean=True)
    assert produce(log, MAX_SEQUENCE, count=3) == (0, True)
    assert produce(log, 2) == (3, False)


def test_first_contact_takes_any_sequence(place: Place) -> None:
    """P-54."""
    log = place.open()
    assert produce(log, 41) == (0, False)
    with pytest.raises(OutOfOrderSequence):
        produce(log, 43)


def test_epochs(place: Place) -> None:
    """P-55: a new epoch begins at 0 and forgets the old batches; a lower one is fenced."""
    log = place.open()
    produce(log, 0, epoch=1)
    with pytest.raises(OutOfOrderSequence):
        produce(log, 1, epoch=2)
    assert produce(log, 0, epoch=2) == (1, False)
    with pytest.raises(InvalidProducerEpoch):
        produce(log, 0, epoch=1)
    assert log.producers.producers[7].last_sequence == 0


def test_idle_producers_expire(place: Place) -> None:
    """P-56: after producer.id.expiration.ms any sequence is taken; an open transaction keeps its producer."""
    log = place.open(producer_id_expiration_ms=1000)
    produce(log, 0)
    append(log, batch(1, producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True))
    log.remove_expired_producers(NOW_MS + 999)
    assert set(log.producers.producers) == {7, 8}
    log.remove_expired_producers(NOW_MS + 1000)
    assert set(log.producers.producers) == {8}
    assert produce(log, 17) == (2, False)


@pytest.mark.parametrize("is_clean", [True, False])
def test_idle_producers_have_expired_after_a_start(place: Place, is_clean: bool) -> None:
    """P-56: also after a kill, when the producers are those of the log and not of a snapshot."""
    log = place.open(producer_id_expiration_ms=1000)
    produce(log, 0)
    append(log, batch(1, producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True))
    if is_clean:
        log.close()
    log = place.open(producer_id_expiration_ms=1000, is_clean=is_clean, now_ms=NOW_MS + 999)
    assert set(log.producers.producers) == {7, 8}
    if is_clean:
        log.close()
    log = place.open(producer_id_expiration_ms=1000, is_clean=is_clean, now_ms=NOW_MS + 1000)
    assert set(log.producers.producers) == {8}


@pytest.mark.parametrize("is_clean", [True, False])
def test_state_survives_a_restart(place: Place, is_clean: bool) -> None:
    """P-57: by the snapshot of the clean stop, else by the snapshot of the last roll and the log."""
    log = place.open(segment_bytes=400)
    for number in range(20):
        produce(log, number)
    if is_clean:
        log.close()
        assert f"{20:020d}.snapshot" in place.names()
    log = place.open(segment_bytes=400, is_clean=is_clean)
    with pytest.raises(OutOfOrderSequence):
        produce(log, 3)
    assert produce(log, 19) == (19, True)
    assert produce(log, 20) == (20, False)


def test_snapshots_are_taken_at_every_roll_and_go_with_their_segment(place: Place) -> None:
    """P-57."""
    log = place.open(segment_bytes=400, retention_bytes=400)
    for number in range(20):
        produce(log, number)
    snapshots = [name for name in place.names() if name.endswith(".snapshot")]
    assert snapshots == [f"{base:020d}.snapshot" for base in log.segment_base_offsets[1:]]
    assert log.delete_old_segments(NOW_MS, 20) == 2
    log.delete_due_files(NOW_MS + 60_000)
    snapshots = [name for name in place.names() if name.endswith(".snapshot")]
    assert snapshots[-1] == f"{log.segment_base_offsets[-1]:020d}.snapshot"
    assert len(snapshots) <= len(log.segment_base_offsets)


def test_snapshots_of_earlier_stops_are_deleted(place: Place) -> None:
    """P-57: as in Kafka the last stop's snapshot stays, and one for each segment; else each restart would leave one."""
    for number in range(20):
        log = place.open(segment_bytes=400, is_clean=True)
        assert produce(log, number) == (number, False)
        log.close()
    log = place.open(segment_bytes=400, is_clean=True)
    assert produce(log, 19) == (19, True)
    assert len(log.segment_base_offsets) > 2
    snapshots = [name for name in place.names() if name.endswith(".snapshot")]
    assert snapshots == [f"{offset:020d}.snapshot" for offset in (*log.segment_base_offsets[1:], 20)]


def test_a_damaged_snapshot_is_made_up_for_by_the_log(place: Place) -> None:
    log = place.open(segment_bytes=400)
    for number in range(20):
        produce(log, number)
    log.close()
    for name in place.names():
        if name.endswith(".snapshot"):
            place.overwrite(name, place.content(name)[:-1] + b"\xff")
    log = place.open(segment_bytes=400, is_clean=True)
    assert produce(log, 19) == (19, True)


def test_replay_and_followers_check_nothing(place: Place) -> None:
    """P-58: batches that a leader has accepted are accepted as they are."""
    log = place.open()
    for offset, sequence in ((0, 5), (1, 3), (2, 99)):
        data = batch(1, base_offset=offset, leader_epoch=0, producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append_as_follower(data, NOW_MS)
    assert log.producers.producers[7].last_sequence == 99
    assert place.open().producers.producers[7].last_sequence == 99


def test_snapshot_bytes_are_kafkas() -> None:
    """Bytes written by Apache Kafka 4.3.1 decode, and encode to the same bytes."""
    content = bytes.fromhex(
        "00012b1ec449"
        "00000001"
        "0000000000000000"
        "0000"
        "000007d0"
        "00000000000007d0"
        "000000c7"
        "000001a1fb899afc"
        "ffffffff"
        "ffffffffffffffff"
    )
    entries = decode_snapshot(content, "x")
    [(producer_id, entry)] = entries
    assert producer_id == 0
    assert entry.batches[0] == (1801, 2000, 2000, 199, 0x1A1FB899AFC)
    assert encode_snapshot(dict(entries)) == content


@pytest.mark.parametrize("size", range(0, 60, 3))
def test_a_cut_snapshot_is_refused(size: int) -> None:
    state = ProducerState()
    state.record_batch(7, 0, 0, 0, 9, NOW_MS, False)
    content = encode_snapshot(state.producers)
    with pytest.raises(CorruptFile):
        decode_snapshot(content[: min(size, len(content) - 1)], "x")


def transact(log: PartitionLog, sequence: int, *, producer: int = 7, epoch: int = 0) -> int:
    """First offset of a transactional append."""
    data = batch(2, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)
    return append(log, data).first_offset


def end(log: PartitionLog, kind: ControlRecordType, *, producer: int = 7, epoch: int = 0, coordinator: int = 0) -> int:
    """Offset of a marker."""
    data = marker(kind, producer, epoch, coordinator)
    return log.append_as_leader(data, 0, NOW_MS, AppendOrigin.COORDINATOR).first_offset


def test_open_transactions_hold_back_stable_readers(place: Place) -> None:
    """P-68: the first unstable offset is the oldest transaction's, until its marker is below the high watermark."""
    log = place.open()
    append(log, batch(1))
    assert log.producers.first_unstable_offset == -1
    assert transact(log, 0) == 1
    assert transact(log, 0, producer=8) == 3
    assert log.producers.first_unstable_offset == 1
    assert end(log, ControlRecordType.COMMIT) == 5
    assert log.last_stable_offset(5) == 1, "the marker itself is not below the high watermark"
    assert log.last_stable_offset(6) == 3
    end(log, ControlRecordType.ABORT, producer=8)
    assert log.last_stable_offset(7) == 7
    assert log.producers.first_unstable_offset == -1
    assert place.open().last_stable_offset(7) == 7


def test_aborted_transactions_are_indexed(place: Place) -> None:
    """P-67: found by overlap with what is read, in later segments too, and after a recovery."""
    log = place.open(segment_bytes=500)
    transact(log, 0)
    for _ in range(6):
        append(log, batch(2, value_size=30))
    marker_offset = end(log, ControlRecordType.ABORT)
    append(log, batch(1))
    for _ in range(2):
        [aborted] = log.aborted_transactions(0, 4)
        assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 0, marker_offset)
        assert aborted.last_stable_offset == marker_offset + 1
        assert log.aborted_transactions(marker_offset + 1, marker_offset + 2) == []
        names = [name for name in place.names() if name.endswith(".txnindex")]
        assert len(names) == 1
        log = place.open(segment_bytes=500)


def test_open_transactions_survive_a_restart(place: Place) -> None:
    """P-142."""
    log = place.open()
    transact(log, 0)
    log.close()
    for is_clean in (True, False):
        log = place.open(is_clean=is_clean)
        assert log.producers.first_unstable_offset == 0
        assert log.producers.producers[7].current_txn_first_offset == 0


def test_markers_are_fenced(place: Place) -> None:
    """P-133: by producer epoch and coordinator epoch. P-138: no plain writes within a transaction."""
    log = place.open()
    transact(log, 0, epoch=3)
    with pytest.raises(InvalidTransactionState):
        produce(log, 2, epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        end(log, ControlRecordType.ABORT, epoch=2)
    end(log, ControlRecordType.ABORT, epoch=3, coordinator=5)
    with pytest.raises(TransactionCoordinatorFenced):
        end(log, ControlRecordType.ABORT, epoch=3, coordinator=4)
    assert log.producers.producers[7].coordinator_epoch == 5


def test_markers_of_an_unknown_producer_are_fenced_below_minus_1(place: Place) -> None:
    """P-133: its epochs are -1 in Kafka."""
    log = place.open()
    with pytest.raises(InvalidProducerEpoch):
        end(log, ControlRecordType.COMMIT, epoch=-2)
    with pytest.raises(TransactionCoordinatorFenced):
        end(log, ControlRecordType.COMMIT, epoch=0, coordinator=-2)
    end(log, ControlRecordType.COMMIT, epoch=0, coordinator=-1)


def test_coordinators_data_is_checked_by_epoch_only(place: Place) -> None:
    log = place.open()
    data = batch(1, producer_id=9, producer_epoch=4, is_transactional=True)
    for _ in range(3):
        log.append_as_leader(data, 0, NOW_MS, AppendOrigin.COORDINATOR)
    old = batch(1, producer_id=9, producer_epoch=3, is_transactional=True)
    with pytest.raises(InvalidProducerEpoch):
        log.append_as_leader(old, 0, NOW_MS, AppendOrigin.COORDINATOR)
    assert log.log_end_offset == 3


def test_the_last_sequence_of_a_batch() -> None:
    """P-53: after 2147483647 comes 0; a batch without a sequence has none."""
    assert last_sequence_of(2**31 - 2, 3) == 1
    assert last_sequence_of(-1, 3) == -1
