"""User activity of a web shop: page counts for each minute, and sessions of each user.

    topic `activity` (JSON events, late and repeated ones among them; the README has the fields)
      -> query `counts`    update mode, Spark's Kafka sink -> topic `page-counts`, key "<minute> <page>"
      -> query `sessions`  session_window, append mode, transactional sink -> topic `sessions`, key user

A session ends when its user does nothing for five minutes; it is written once, when the watermark has passed its end.
Counts are upserts: the last value per key is right, and a trigger that runs again writes the same values again.
Events later than the watermark, ten minutes behind the newest, are left out by both queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise

from activity import BEGIN, Event, count_directly, make_events
from page_counts import EVENT_SCHEMA, count_events
from pipeline.model import Pipeline
from pipeline.outcome import Outcome
from pipeline.records import COMPACTED, Record, Results, Topic, last_per_key, rows_once
from pipeline.schemas import iso, ms
from pipeline.streams import Streams, as_json, time_text
from results import TYPES

MINUTES = 60
WATERMARK = timedelta(minutes=10)
GAP = timedelta(minutes=5)
# So late an event that the watermark passes the sessions of all others.
END = BEGIN + timedelta(minutes=MINUTES) + GAP + WATERMARK
CLOSING = Event("closing", "page_view", "nobody", "/", END, END)


class Activity(Pipeline):
    """The pipeline; see the module's text."""

    name = "activity"
    summary = "a web shop's user activity: counts per page and minute, and the sessions of each user"
    guarantee = (
        "counts by their keys (the sink is at-least-once, repeated values are the same), sessions by a transaction for "
        "each trigger"
    )
    topics = {"activity": Topic(), "page-counts": Topic(config=COMPACTED), "sessions": Topic()}

    def make_input(self, seed: int, size: int) -> dict[str, list[Record]]:
        events = [*make_events(seed, size, MINUTES), CLOSING]
        return {
            "stream": [
                Record("activity", event.user.encode(), event.to_json(), ms(event.ts), fact=event) for event in events
            ]
        }

    def expected(self, records: Sequence[Record]) -> Results:
        events = [record.fact for record in records]
        counts = {
            f"{minute} {page}": {name: row[event_type] for name, event_type in TYPES.items()}
            for (minute, page), row in count_directly(events).items()
        }
        return {"counts": counts, "sessions": dict(sessions_of(events))}

    def start(self, streams: Streams, stage: str) -> None:
        from pyspark.sql import functions as f

        events = (
            streams.read("activity")
            .select(f.from_json(f.col("value").cast("string"), EVENT_SCHEMA).alias("event"))
            .select("event.*")
            .where("event_id IS NOT NULL AND page IS NOT NULL AND ts IS NOT NULL")
            .withWatermark("ts", f"{WATERMARK.seconds} seconds")
            .dropDuplicatesWithinWatermark(["event_id"])
        )
        minute = f.date_format("minute", "yyyy-MM-dd'T'HH:mm'Z'")
        counts = count_events(events).select(
            f.concat_ws(" ", minute, "page").alias("key"),
            as_json("page_views", "searches", "clicks", "events").alias("value"),
        )
        streams.upsert(counts, "counts", "page-counts")
        sessions = (
            events.groupBy("user", f.session_window("ts", f"{GAP.seconds} seconds").alias("session"))
            .agg(f.count("*").alias("events"), f.count(f.when(f.col("type") == "page_view", True)).alias("page_views"))
            .select(
                f.col("user").alias("key"),
                as_json(
                    time_text("session.start").alias("start"),
                    time_text("session.end").alias("end"),
                    "events",
                    "page_views",
                ).alias("value"),
            )
        )
        streams.append_once(sessions, "sessions", "sessions")

    def results(self, outcome: Outcome) -> Results:
        counts = ((record.key, json.loads(record.value or b"null")) for record in outcome.read("page-counts"))
        sessions = ((record.key, json.loads(record.value or b"null")) for record in outcome.read("sessions"))
        return {
            "counts": last_per_key(counts),
            "sessions": rows_once((f"{user} {session['start']}", session) for user, session in sessions),
        }


def sessions_of(events: Sequence[Event]) -> Iterator[tuple[str, dict[str, object]]]:
    """The sessions that the watermark of all these events has passed, by user and start."""
    watermark = max(event.ts for event in events) - WATERMARK
    by_user: dict[str, list[Event]] = {}
    for event in {event.event_id: event for event in events}.values():
        by_user.setdefault(event.user, []).append(event)
    for user, own in by_user.items():
        own.sort(key=lambda event: event.ts)
        breaks = [0, *(n for n, (one, next_) in enumerate(pairwise(own), 1) if next_.ts > one.ts + GAP), len(own)]
        for first, behind in pairwise(breaks):
            session = own[first:behind]
            end = session[-1].ts + GAP
            if end <= watermark:
                yield (
                    f"{user} {iso(session[0].ts)}",
                    {
                        "start": iso(session[0].ts),
                        "end": iso(end),
                        "events": len(session),
                        "page_views": sum(event.type == "page_view" for event in session),
                    },
                )


PIPELINE = Activity()
