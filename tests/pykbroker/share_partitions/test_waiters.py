"""The requests that wait for records of a share partition, and the batches in flight by their first offset."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.share_partitions.acknowledgement import AcknowledgedBatch, Refused, _Acknowledgement
from pykbroker.share_partitions.in_flight import InFlightBatch, InFlightBatches
from pykbroker.share_partitions.leader import ShareLeader
from pykbroker.share_partitions.waiters import ShareWaiters
from pykbroker.share_state.state import StateBatch


def test_a_request_that_does_not_wait_is_discarded_without_effect() -> None:
    used: list[bool] = []
    waiters = ShareWaiters(lambda: True, used.append)
    waiter: Any = object()
    waiters.discard(waiter)
    assert used == []
    waiters.add(waiter)
    waiters.discard(waiter)
    waiters.discard(waiter)
    assert used == [True, False]


def test_a_batch_takes_the_place_of_the_one_with_its_first_offset() -> None:
    batches = InFlightBatches()
    state: Any = object()
    old, other, new = InFlightBatch(0, 9, state), InFlightBatch(10, 19, state), InFlightBatch(0, 4, state)
    for batch in (old, other, new):
        batches.put(batch)
    assert list(batches) == [new, other]


def test_an_acknowledgement_from_below_the_start_is_of_the_batch_at_the_start() -> None:
    batches = InFlightBatches()
    state: Any = object()
    for first in (10, 20):
        batches.put(InFlightBatch(first, first + 9, state))
    acknowledgement: Any = SimpleNamespace(_shares=SimpleNamespace(batches=batches, start_offset=10))
    found = _Acknowledgement._find(acknowledgement, AcknowledgedBatch(5, 12, ()))
    assert [batch.first_offset for batch in found] == [10]
    for first, last in ((5, 9), (0, 3)):
        with pytest.raises(Refused):
            _Acknowledgement._find(acknowledgement, AcknowledgedBatch(first, last, ()))


def test_neighbours_with_the_same_state_are_stored_as_one_batch() -> None:
    written: list[Any] = []
    outcome: Any = object()
    stored = [StateBatch(0, 4, 2, 1), StateBatch(5, 9, 2, 1), StateBatch(10, 19, 2, 2), StateBatch(30, 39, 2, 2)]
    changes: Any = [SimpleNamespace(stored=batch) for batch in stored]
    leader: Any = SimpleNamespace(_queue=written)
    ShareLeader._enqueue_changes(leader, changes, outcome)
    (write,) = written
    assert write.stored == [StateBatch(0, 9, 2, 1), *stored[2:]]
