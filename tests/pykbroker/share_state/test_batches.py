"""Combination of state batches: rules of overlap, and random batches against a table of offsets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.share_state.batches import combine_batches
from pykbroker.share_state.state import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch

A, K, R = AVAILABLE, ACKNOWLEDGED, ARCHIVED


def combined(*batches: tuple[int, int, int, int], start: int = -1) -> list[StateBatch]:
    return combine_batches((), [StateBatch(*batch) for batch in batches], start)


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([], []),
        ([(0, 9, A, 1)], [(0, 9, A, 1)]),
        ([(10, 19, A, 1), (0, 9, A, 1)], [(0, 19, A, 1)]),
        ([(0, 9, A, 1), (10, 19, A, 2)], [(0, 9, A, 1), (10, 19, A, 2)]),
        ([(0, 9, A, 1), (11, 19, A, 1)], [(0, 9, A, 1), (11, 19, A, 1)]),
        ([(0, 9, A, 1), (5, 14, A, 1)], [(0, 14, A, 1)]),
        ([(0, 9, A, 1), (0, 9, K, 1)], [(0, 9, K, 1)]),
        ([(0, 9, K, 1), (0, 9, A, 2)], [(0, 9, A, 2)]),
        ([(0, 9, A, 1), (3, 6, K, 1)], [(0, 2, A, 1), (3, 6, K, 1), (7, 9, A, 1)]),
        ([(0, 9, K, 1), (3, 6, A, 1)], [(0, 9, K, 1)]),
        ([(0, 9, K, 2), (5, 14, A, 1)], [(0, 9, K, 2), (10, 14, A, 1)]),
        ([(0, 9, A, 1), (5, 14, R, 1)], [(0, 4, A, 1), (5, 14, R, 1)]),
        ([(0, 9, A, 1), (5, 9, R, 1)], [(0, 4, A, 1), (5, 9, R, 1)]),
        ([(0, 4, A, 1), (0, 9, R, 1)], [(0, 9, R, 1)]),
        ([(0, 4, R, 1), (0, 9, A, 1)], [(0, 4, R, 1), (5, 9, A, 1)]),
    ],
)
def test_overlaps(batches: list[tuple[int, int, int, int]], expected: list[tuple[int, int, int, int]]) -> None:
    assert combined(*batches) == expected


def test_batches_before_the_start_offset_are_dropped() -> None:
    assert combined((0, 4, A, 1), (5, 9, K, 1), (20, 24, A, 1), start=7) == [(7, 9, K, 1), (20, 24, A, 1)]
    assert combined((0, 4, A, 1), start=5) == []


def test_neighbours_that_became_equal_later_stay_apart() -> None:
    """Kafka looks at each pair once; its snapshots have these batches."""
    assert combined((0, 9, K, 1), (10, 19, A, 1), (10, 29, K, 1)) == [(0, 9, K, 1), (10, 29, K, 1)]


batch_lists = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, 30),
        st.integers(0, 12),
        st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
        st.integers(1, 4),
    ),
    max_size=8,
)


@given(batch_lists, batch_lists, st.integers(-1, 40))
def test_each_offset_has_the_furthest_progress(old: list[StateBatch], new: list[StateBatch], start: int) -> None:
    expected: dict[int, tuple[int, int]] = {}
    for batch in old + new:
        for offset in range(max(batch.first_offset, start), batch.last_offset + 1):
            info = (batch.delivery_count, batch.delivery_state)
            expected[offset] = max(info, expected.get(offset, info))
    result = combine_batches(old, new, start)
    found = {
        offset: (batch.delivery_count, batch.delivery_state)
        for batch in result
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }
    assert found == expected
    assert all(a.last_offset < b.first_offset for a, b in pairwise(result))
