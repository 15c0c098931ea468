"""Records in flight of a share partition, case by case."""

from __future__ import annotations

import pytest

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.share_partitions import acknowledgement
from pykbroker.share_partitions.aborted_records import TransactionalBatch, archive_aborted
from pykbroker.share_partitions.acknowledgement import ACCEPT, GAP, REJECT, RELEASE, RENEW, Refused
from pykbroker.share_partitions.acquisition import Acquired, Acquisition, FetchedBatch
from pykbroker.share_partitions.share_partition import InvalidState
from pykbroker.share_state.state import ACKNOWLEDGED, ARCHIVED, AVAILABLE
from tests.pykbroker.share_partitions.machine import DEFAULT_SETTINGS, LOCK_MS, Machine

TENS = [(first, first + 9) for first in range(0, 100, 10)]


def refused(machine: Machine, member: str, first: int, last: int, *types: int) -> tuple[ErrorCode, str]:
    with pytest.raises(Refused) as caught:
        machine.begin(member, first, last, *types)
    return caught.value.code, caught.value.message


# Acquisition


def test_whole_batches_are_acquired_up_to_the_limit() -> None:
    """P-180."""
    machine = Machine(TENS)
    assert machine.fetch("a", 15) == [(0, 19, 1)]
    assert machine.fetch("b", 15) == [(20, 39, 1)]
    assert machine.offsets == (0, 39)


def test_record_limit_mode_never_gives_more() -> None:
    """P-180."""
    machine = Machine(TENS)
    assert machine.fetch("a", 4, limit=True) == [(0, 3, 1)]
    assert machine.fetch("b", 4, limit=True) == [(4, 7, 1)]
    assert machine.fetch("a", 4, limit=True) == [(8, 9, 1), (10, 11, 1)]
    assert machine.fetch("b", 4, limit=True) == [(12, 15, 1)]


def test_batch_size_splits_at_batches_of_the_log() -> None:
    assert Machine(TENS).fetch("a", 60, batch_size=20) == [(0, 19, 1), (20, 39, 1), (40, 59, 1)]


def test_no_more_locks_than_allowed() -> None:
    machine = Machine(TENS, settings=DEFAULT_SETTINGS._replace(record_locks_max=30))
    assert machine.fetch("a") == [(0, 29, 1)]
    assert not machine.shares.can_acquire
    assert machine.fetch("b") == []
    machine.acknowledge("a", 0, 9)
    assert machine.fetch("b") == [(30, 39, 1)]


def test_released_records_go_to_others_although_the_locks_are_used_up() -> None:
    machine = Machine(TENS, settings=DEFAULT_SETTINGS._replace(record_locks_max=30))
    machine.fetch("a")
    machine.acknowledge("a", 10, 14, RELEASE)
    assert machine.fetch("b") == [(10, 14, 2)]
    assert machine.fetch("b") == []


def test_a_hole_in_a_compacted_log_is_archived() -> None:
    machine = Machine(TENS)
    machine.fetch("a", 30)
    machine.release("a")
    machine.log = [(25, 29), *TENS[3:]]
    assert machine.fetch("a") == [(25, 29, 2), (30, 99, 1)]
    machine.acknowledge("a", 25, 99)
    assert machine.offsets == (100, 100)


def test_a_batch_that_is_split_forgets_a_transition_as_in_kafka() -> None:
    """A release that is not stored yet: the log start moves into the batch, and the rest of it can be acquired.

    `InFlightBatch.maybeInitializeOffsetStateUpdate` copies state, count and member, and not the state to roll back to.
    """
    machine = Machine(TENS)
    machine.fetch("a", 10)
    changes = machine.begin("a", 0, 9, RELEASE)
    assert machine.fetch("b", 10, batch_size=10) == [(10, 19, 1)]
    machine.shares.move_start(5)
    assert machine.fetch("b", 5) == [(5, 9, 2)]
    machine.end(changes, is_stored=False)
    machine.acknowledge("b", 5, 19)
    assert machine.offsets == (20, 20)


# Acknowledgement


def test_the_start_moves_over_what_is_delivered_for_good() -> None:
    machine = Machine(TENS)
    machine.fetch("a", 10)
    machine.fetch("b", 10)
    machine.acknowledge("b", 10, 19)
    assert machine.offsets == (0, 19)
    assert machine.shares.delivery_complete_count == 10
    assert machine.acknowledge("a", 0, 4)
    assert machine.offsets == (5, 19)
    assert machine.acknowledge("a", 5, 9, ACCEPT, REJECT, GAP, ACCEPT, ACCEPT)
    assert machine.offsets == (20, 20)
    assert machine.shares.delivery_complete_count == 0


def test_types_of_offsets() -> None:
    machine = Machine(TENS)
    machine.fetch("a", 10)
    changes = machine.begin("a", 0, 3, ACCEPT, RELEASE, REJECT, GAP)
    stored = [(c.stored.first_offset, c.stored.delivery_state, c.stored.delivery_count) for c in changes]
    assert stored == [(0, ACKNOWLEDGED, 1), (1, AVAILABLE, 1), (2, ARCHIVED, 1), (3, ARCHIVED, 1)]
    machine.end(changes)
    assert machine.fetch("b", 1) == [(1, 1, 2)]


def test_what_is_not_stored_is_taken_back() -> None:
    """P-181."""
    machine = Machine(TENS)
    machine.fetch("a", 10)
    changes = machine.begin("a", 0, 9)
    assert refused(machine, "a", 0, 9)[0] == ErrorCode.INVALID_RECORD_STATE
    assert not machine.end(changes, is_stored=False)
    assert machine.offsets == (0, 9)
    assert machine.shares.delivery_complete_count == 0
    machine.acknowledge("a", 0, 9)
    assert machine.offsets == (10, 10)


def test_a_lock_that_expires_during_a_write_that_fails() -> None:
    machine = Machine(TENS)
    machine.fetch("a", 10)
    changes = machine.begin("a", 0, 9)
    assert machine.pass_time() == []
    machine.end(changes, is_stored=False)
    assert machine.fetch("b", 10) == [(0, 9, 2)]


def test_a_request_is_accepted_or_refused_as_a_whole() -> None:
    """P-187."""
    machine = Machine(TENS)
    machine.fetch("a", 10)
    machine.fetch("b", 10)
    assert refused(machine, "a", 0, 19) == (
        ErrorCode.INVALID_RECORD_STATE,
        acknowledgement.NOT_OWNER_OF_BATCH,
    )
    assert machine.acknowledge("a", 0, 9)


@pytest.mark.parametrize(
    ("member", "first", "last", "code", "message"),
    [
        ("b", 0, 9, ErrorCode.INVALID_RECORD_STATE, acknowledgement.NOT_OWNER_OF_BATCH),
        ("b", 0, 4, ErrorCode.INVALID_RECORD_STATE, acknowledgement.NOT_OWNER_OF_BATCH),
        ("a", 10, 19, ErrorCode.INVALID_REQUEST, acknowledgement.FIRST_PAST_END),
        ("a", 0, 19, ErrorCode.INVALID_REQUEST, acknowledgement.LAST_PAST_END),
    ],
)
def test_refused_acknowledgements(member: str, first: int, last: int, code: ErrorCode, message: str) -> None:
    machine = Machine(TENS)
    machine.fetch("a", 10)
    assert refused(machine, member, first, last) == (code, message)


def test_acknowledgements_of_what_nobody_holds() -> None:
    machine = Machine(TENS, start_offset=0)
    assert refused(machine, "a", 0, 9)[1] == acknowledgement.NOT_FOUND
    machine.fetch("a", 10)
    machine.acknowledge("a", 3, 9, RELEASE)
    assert refused(machine, "a", 3, 9)[1] == acknowledgement.OFFSET_NOT_ACQUIRED
    machine.release("a")
    assert refused(machine, "a", 0, 2)[1] == acknowledgement.OFFSET_NOT_ACQUIRED


def test_p187_texts_about_a_batch_whose_offsets_were_acknowledged_one_by_one() -> None:
    """P-187: they are about offsets from then on, even if all had the same type."""
    machine = Machine(TENS)
    machine.fetch("a", 10)
    assert refused(machine, "b", 0, 9, *[RELEASE] * 10)[1] == acknowledgement.NOT_OWNER_OF_BATCH
    assert refused(machine, "b", 0, 9)[1] == acknowledgement.NOT_OWNER_OF_BATCH
    machine.acknowledge("a", 0, 9, *[RELEASE] * 10)
    assert refused(machine, "a", 0, 9)[1] == acknowledgement.OFFSET_NOT_ACQUIRED
    assert machine.fetch("b", 10) == [(0, 9, 2)]
    assert refused(machine, "a", 0, 9)[1] == acknowledgement.NOT_OWNER_OF_OFFSET
    machine.acknowledge("b", 0, 9)
    assert machine.offsets == (10, 10)


def test_below_the_start_offset_there_is_nothing_to_acknowledge() -> None:
    machine = Machine(TENS)
    machine.fetch("a", 20)
    machine.acknowledge("a", 0, 9)
    assert not machine.acknowledge("a", 0, 9)


# Locks and delivery counts


def test_records_return_when_their_lock_expires() -> None:
    machine = Machine(TENS)
    machine.fetch("a", 10)
    assert machine.pass_time(LOCK_MS - 1) == []
    assert machine.pass_time(1) == [(0, 9, AVAILABLE, 1)]
    assert refused(machine, "a", 0, 9)[1] == acknowledgement.BATCH_NOT_ACQUIRED
    assert machine.fetch("b", 10) == [(0, 9, 2)]


def test_a_renewed_lock_lasts_longer() -> None:
    """P-184."""
    machine = Machine(TENS)
    machine.fetch("a", 10)
    machine.pass_time(LOCK_MS // 2)
    assert machine.begin("a", 0, 4, RENEW) == []
    assert machine.pass_time(LOCK_MS // 2) == [(5, 9, AVAILABLE, 1)]
    assert machine.pass_time(LOCK_MS // 2) == [(0, 4, AVAILABLE, 1)]


def test_renewal_may_be_disabled() -> None:
    machine = Machine(TENS, settings=DEFAULT_SETTINGS._replace(may_renew=False))
    machine.fetch("a", 10)
    assert refused(machine, "a", 0, 9, RENEW) == (ErrorCode.INVALID_RECORD_STATE, acknowledgement.CANNOT_RENEW)


def test_records_are_archived_after_their_last_delivery() -> None:
    """P-183."""
    machine = Machine(TENS, settings=DEFAULT_SETTINGS._replace(delivery_count_limit=2))
    for count in (1, 2):
        assert machine.fetch("a", 10) == [(0, 9, count)]
        machine.pass_time()
    assert machine.offsets == (10, 10)
    assert machine.fetch("a", 10) == [(10, 19, 1)]


def test_records_that_often_fail_are_delivered_a_few_at_a_time() -> None:
    """P-183."""
    machine = Machine(TENS)
    seen = []
    while machine.offsets[0] < 10:
        acquired = machine.fetch("a", 10)
        seen.append(acquired[0])
        for first, last, _ in acquired:
            machine.acknowledge("a", first, last, RELEASE)
    # Half the deliveries with all records, then with halves and quarters of them, the last one alone.
    assert seen[:5] == [(0, 9, 1), (0, 9, 2), (0, 9, 3), (0, 4, 4), (0, 0, 5)]
    alone = [run for run in seen if run[2] == 5]
    assert sorted(alone) == [(offset, offset, 5) for offset in range(10)]


def test_a_member_that_leaves_gives_back_its_records() -> None:
    machine = Machine(TENS)
    machine.fetch("a", 20)
    machine.fetch("b", 10)
    machine.acknowledge("a", 0, 4)
    machine.release("a")
    assert machine.fetch("c", 100)[0] == (5, 19, 2)


# The start of the log


def test_the_log_start_moves_over_records_in_flight() -> None:
    machine = Machine(TENS)
    machine.fetch("a", 20)
    machine.acknowledge("a", 10, 19, RELEASE)
    machine.shares.move_start(15)
    assert machine.offsets == (15, 19)
    machine.log = [(15, 19), *TENS[2:]]
    assert machine.fetch("b", 5) == [(15, 19, 2)]
    assert not machine.acknowledge("a", 0, 9)
    machine.pass_time()
    assert machine.shares.start_offset >= 15


def test_the_log_start_moves_over_everything() -> None:
    machine = Machine(TENS)
    machine.fetch("a", 20)
    machine.shares.move_start(50)
    assert machine.offsets == (50, 50)
    assert machine.shares.next_fetch_offset() == 50
    machine.log = TENS[5:]
    assert machine.fetch("b", 10) == [(50, 59, 1)]
    machine.pass_time()
    assert machine.offsets == (50, 59)
    assert machine.fetch("b", 10) == [(50, 59, 2)]


# Stored state


def test_state_is_loaded() -> None:
    machine = Machine(TENS, stored=[(0, 4, ACKNOWLEDGED, 1), (5, 9, AVAILABLE, 2), (10, 14, ARCHIVED, 5)])
    assert machine.offsets == (5, 14)
    assert machine.shares.delivery_complete_count == 5
    assert machine.shares.next_fetch_offset() == 5
    assert machine.fetch("a", 10) == [(5, 9, 3), (15, 19, 1)]


def test_gaps_between_stored_batches_are_fetched() -> None:
    machine = Machine(TENS, start_offset=5, stored=[(10, 14, ACKNOWLEDGED, 1), (20, 24, ACKNOWLEDGED, 1)])
    assert machine.offsets == (5, 24)
    assert machine.shares.next_fetch_offset() == 5
    assert machine.fetch("a", 100) == [(5, 9, 1), (15, 19, 1), (25, 99, 1)]
    machine.acknowledge("a", 5, 9)
    machine.acknowledge("a", 15, 19)
    machine.acknowledge("a", 25, 99)
    assert machine.offsets == (100, 100)


def test_a_gap_that_was_fetched_is_not_one_again() -> None:
    """Records before it that are acquired once more do not make the next fetch begin there."""
    log = [(0, 4), (5, 9), (10, 14), (15, 19)]
    machine = Machine(log, stored=[(0, 4, AVAILABLE, 1), (10, 14, AVAILABLE, 1)])
    assert machine.fetch("a", 5, batches_max=2) == [(0, 4, 2)]
    assert machine.fetch("b", 5, batches_max=1) == [(5, 9, 1)]
    machine.acknowledge("a", 0, 4, RELEASE)
    assert machine.fetch("a", 5, batches_max=1) == [(0, 4, 3)]
    machine.acknowledge("a", 0, 4)
    machine.acknowledge("b", 5, 9)
    assert machine.shares.next_fetch_offset() == 10
    assert machine.fetch("a", batches_max=1) == [(10, 14, 2)]


@pytest.mark.parametrize("stored", [[(0, 4, 0, 1)], [(9, 8, 0, 1)]])
def test_state_that_cannot_be(stored: list[tuple[int, int, int, int]]) -> None:
    with pytest.raises(InvalidState):
        Machine(start_offset=5, stored=stored)


def test_the_log_start_moves_into_a_batch_that_a_member_holds() -> None:
    """Records below it are archived when the member leaves, or lets the lock expire; the rest goes to others."""
    for leaves in (True, False):
        machine = Machine([(0, 9), (10, 19)])
        machine.fetch("a", 10)
        machine.shares.move_start(4)
        if leaves:
            machine.release("a")
        else:
            machine.pass_time()
        assert machine.offsets == (4, 9)
        machine.log = [(4, 9), (10, 19)]
        assert machine.fetch("b", 6) == [(4, 9, 2)]
        machine.acknowledge("b", 4, 9)
        assert machine.shares.start_offset == 10


def test_the_log_start_moves_over_what_is_done() -> None:
    """Acknowledged records below it no longer count; without a move of the log start nothing changes."""
    machine = Machine(TENS)
    machine.fetch("a", 10)
    machine.fetch("b", 10)
    machine.fetch("c", 10)
    machine.acknowledge("b", 10, 19)
    machine.acknowledge("c", 20, 24)
    assert machine.shares.delivery_complete_count == 15
    machine.shares.move_start(15)
    assert (machine.offsets, machine.shares.delivery_complete_count) == ((15, 29), 10)
    machine.shares.move_start(15)
    assert (machine.offsets, machine.shares.delivery_complete_count) == ((15, 29), 10)


def test_the_log_start_moves_while_nothing_is_in_flight() -> None:
    machine = Machine(TENS)
    machine.shares.move_start(30)
    assert machine.offsets == (30, 30)
    machine.log = TENS[3:]
    assert machine.fetch("a", 10) == [(30, 39, 1)]


def test_an_acknowledgement_that_begins_below_the_log_start() -> None:
    """As in Kafka only records that still exist change."""
    machine = Machine(TENS)
    machine.fetch("a", 10)
    machine.fetch("a", 10)
    machine.shares.move_start(15)
    changes = machine.begin("a", 0, 19)
    assert [change.stored[:2] for change in changes] == [(offset, offset) for offset in range(15, 20)]
    assert not machine.end(changes), "the records below it are the member's until its lock expires"
    assert machine.shares.delivery_complete_count == 5
    machine.pass_time()
    assert machine.offsets == (20, 20)


def test_records_that_were_read_and_are_gone_meanwhile() -> None:
    machine = Machine(TENS)
    machine.fetch("a", 10)
    machine.shares.move_start(30)
    acquisition = Acquisition(machine.shares, "b", machine.now_ms, records_max=5, batch_size=5)
    assert acquisition.acquire(10, [FetchedBatch(10, 19)]) == []


def test_no_lock_is_left_for_records_that_were_read() -> None:
    """Two requests have read records, and the first one takes the last lock."""
    machine = Machine(TENS, settings=DEFAULT_SETTINGS._replace(record_locks_max=10))
    machine.fetch("a", 10)
    acquisition = Acquisition(machine.shares, "b", machine.now_ms, records_max=5, batch_size=5)
    assert acquisition.acquire(10, [FetchedBatch(10, 19)]) == []
    assert machine.offsets == (0, 9)


def test_aborted_records_within_what_was_acquired() -> None:
    """P-188: they are archived, and the member gets what is around them."""
    machine = Machine([(0, 29)])
    assert machine.fetch("a", 30) == [(0, 29, 1)]
    aborted = [TransactionalBatch(5, 9, 7, True, False), TransactionalBatch(40, 49, 7, True, False)]
    assert archive_aborted(machine.shares, [Acquired(0, 3, 1), Acquired(4, 29, 1)], aborted) == [
        Acquired(0, 3, 1),
        Acquired(4, 4, 1),
        Acquired(10, 29, 1),
    ]
    assert machine.shares.delivery_complete_count == 5
    assert archive_aborted(machine.shares, [Acquired(20, 29, 1)], aborted[:1]) == [Acquired(20, 29, 1)]
