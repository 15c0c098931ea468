"""The requests that wait for records of a share partition, and the batches in flight by their first offset."""

from __future__ import annotations

from typing import Any

from pykbroker.share_partitions.in_flight import InFlightBatch, InFlightBatches
from pykbroker.share_partitions.waiters import ShareWaiters


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
