"""The invented activity, without Kafka and Spark."""

from __future__ import annotations

import json
from datetime import timedelta

from activity import BEGIN, LATE_MAX_S, count_directly, make_events, make_hopeless_events


def test_same_seed_same_events() -> None:
    assert make_events(3, 500, 20) == make_events(3, 500, 20)
    assert make_events(3, 500, 20) != make_events(4, 500, 20)


def test_events_arrive_in_order_with_late_ones_and_repetitions() -> None:
    events = make_events(7, 5000, 60)
    assert [event.arrival for event in events] == sorted(event.arrival for event in events)
    ids = [event.event_id for event in events]
    assert len(set(ids)) == 5000
    assert 50 < len(ids) - 5000 < 500
    assert sum(event.arrival > event.ts for event in events) > 100


def test_no_first_arrival_is_later_than_the_watermark_allows() -> None:
    """Behind the newest event seen, not behind the clock: that is how Spark's watermark counts."""
    newest = BEGIN
    seen = set()
    for event in make_events(7, 5000, 60):
        newest = max(newest, event.ts)
        if event.event_id not in seen:
            assert newest - event.ts <= timedelta(seconds=LATE_MAX_S)
        seen.add(event.event_id)


def test_a_repetition_is_the_same_record() -> None:
    by_id: dict[str, bytes] = {}
    for event in make_events(7, 2000, 20):
        assert by_id.setdefault(event.event_id, event.to_json()) == event.to_json()


def test_counts_take_each_event_once() -> None:
    events = make_events(7, 2000, 20)
    counts = count_directly(events)
    assert sum(row["events"] for row in counts.values()) == 2000
    for row in counts.values():
        assert row["events"] == row["page_view"] + row["search"] + row["click"]


def test_hopeless_events_would_change_counts_of_early_minutes() -> None:
    hopeless = make_hopeless_events(7, 50)
    assert {event.event_id for event in hopeless}.isdisjoint(event.event_id for event in make_events(7, 2000, 20))
    assert all(event.ts - BEGIN < timedelta(minutes=5) for event in hopeless)


def test_record_is_json_with_millisecond_time() -> None:
    event = make_events(7, 10, 20)[0]
    fields = json.loads(event.to_json())
    assert fields["ts"].endswith("Z")
    assert len(fields["ts"]) == len("2026-01-05T12:00:00.000Z")
    assert fields["event_id"] == event.event_id
