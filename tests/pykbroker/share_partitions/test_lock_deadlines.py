"""Times at which acquisition locks expire."""

from __future__ import annotations

from pykbroker.share_partitions.lock_deadlines import LockDeadlines


def test_the_earliest_ranges_are_dropped_when_their_records_are_done() -> None:
    locks = LockDeadlines()
    for expires_ms, first, last in ((10, 0, 4), (20, 5, 9), (30, 2, 3)):
        locks.add(expires_ms, first, last)
    locks.drop_before(5)
    assert locks.first_ms == 20
    locks.drop_before(5)
    assert list(locks.pop_due(30)) == [(5, 9), (2, 3)]
    assert locks.first_ms is None
