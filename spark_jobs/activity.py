"""Invented user activity of a web shop, the same for the same seed, and a stock kafka-python producer that sends it.

    python spark_jobs/activity.py --bootstrap-servers localhost:9092 --topic activity --events 40000 --seconds 25

Users open pages, search and click. Some are on the train: their events arrive minutes late. Some clients are not sure
that an event has arrived and send it again. The events happened over --minutes minutes of some past day, and are
sent in the order of arrival within --seconds seconds, so that an hour passes while one watches.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Any past minute does; a fixed one makes the counts of two runs with one seed the same.
BEGIN = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
USERS = 400
PRODUCTS = 60
WORDS = ("lamp", "chair", "desk", "rug", "sofa", "shelf", "clock", "mirror", "plant", "curtain")
LATE_SHARE = 0.05
LATE_MAX_S = 8 * 60.0
DUPLICATE_SHARE = 0.03
DUPLICATE_MAX_S = 3 * 60.0
REPORT_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class Event:
    """One thing a user did. `ts` is when it happened, `arrival` when it reaches us (the same, or later)."""

    event_id: str
    type: str
    user: str
    page: str
    ts: datetime
    arrival: datetime
    query: str | None = None
    target: str | None = None

    def minute(self) -> str:
        """The minute it counts in, as text."""
        return self.ts.strftime("%Y-%m-%dT%H:%MZ")

    def to_json(self) -> bytes:
        """The record's value."""
        fields = {"event_id": self.event_id, "type": self.type, "user": self.user, "page": self.page}
        fields["ts"] = self.ts.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self.query is not None:
            fields["query"] = self.query
        if self.target is not None:
            fields["target"] = self.target
        return json.dumps(fields).encode()


def _page_of(rng: random.Random) -> str:
    # Few pages get most of the visits, as everywhere.
    rank = min(int(rng.paretovariate(0.9)), PRODUCTS)
    return "/" if rng.random() < 0.15 else f"/product/{rank}"


def _one_event(rng: random.Random, number: int, ts: datetime) -> Event:
    user = f"user-{rng.randrange(USERS):03}"
    late = (
        timedelta(milliseconds=round(rng.uniform(0, LATE_MAX_S) * 1000)) if rng.random() < LATE_SHARE else timedelta()
    )
    kind = rng.choices(("page_view", "search", "click"), (70, 10, 20))[0]
    query = rng.choice(WORDS) if kind == "search" else None
    page = "/search" if kind == "search" else _page_of(rng)
    target = rng.choice(("add-to-cart", "image", "review", "next")) if kind == "click" else None
    return Event(f"{number:08x}-{rng.getrandbits(32):08x}", kind, user, page, ts, ts + late, query, target)


def make_events(seed: int, count: int, minutes: int) -> list[Event]:
    """`count` events and the repetitions among them, in order of arrival.

    None is later than LATE_MAX_S; a repetition has the id, the content and the time of what it repeats.
    """
    rng = random.Random(seed)  # noqa: S311
    events: list[Event] = []
    for number in range(count):
        ts = BEGIN + timedelta(milliseconds=int(minutes * 60_000 * number / count))
        event = _one_event(rng, number, ts)
        events.append(event)
        if rng.random() < DUPLICATE_SHARE:
            again = event.arrival + timedelta(milliseconds=round(rng.uniform(0, DUPLICATE_MAX_S) * 1000))
            # Later than LATE_MAX_S behind the newest event it would be refused as late; that gives the same counts.
            events.append(replace(event, arrival=again))
    events.sort(key=lambda event: event.arrival)
    return events


def make_hopeless_events(seed: int, count: int) -> list[Event]:
    """`count` new events of the first five minutes, to be sent when the watermark is long past them: none may count."""
    rng = random.Random(f"hopeless {seed}")  # noqa: S311
    stamps = (BEGIN + timedelta(milliseconds=rng.randrange(5 * 60_000)) for _ in range(count))
    return [_one_event(rng, 0xF0000000 + number, ts) for number, ts in enumerate(stamps)]


def count_directly(events: Iterable[Event]) -> dict[tuple[str, str], Counter[str]]:
    """The result to expect: for each (minute, page) the number of events in all and of each type, each event once."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for event in {event.event_id: event for event in events}.values():
        counts.setdefault((event.minute(), event.page), Counter()).update(("events", event.type))
    return counts


def send(bootstrap_servers: str, topic: str, events: list[Event], seconds: float) -> None:
    """Send the events in order of arrival, evenly over so many seconds, keyed by user; say how far it is on stdout.

    Returns when all are acknowledged. Raises KafkaError when one is not within two minutes: a broker that is
    killed and started again in between is waited for.
    """
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers,
        acks="all",
        enable_idempotence=True,
        linger_ms=20,
        delivery_timeout_ms=120_000,
        request_timeout_ms=10_000,
        max_block_ms=120_000,
    )
    begin = time.monotonic()
    said = begin
    pending = []
    for number, event in enumerate(events):
        due = begin + seconds * number / len(events)
        if (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        pending.append(producer.send(topic, key=event.user.encode(), value=event.to_json()))
        if time.monotonic() - said > REPORT_INTERVAL_S:
            said = time.monotonic()
            print(f"sent {number + 1}", flush=True)
    producer.flush(timeout=120)
    for future in pending:
        future.get(timeout=120)
    producer.close()
    print(f"sent {len(events)}", flush=True)


def add_event_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say which events are made."""
    parser.add_argument("--seed", type=int, default=7, help="the same seed gives the same events (default %(default)s)")
    parser.add_argument(
        "--events", type=int, default=40_000, help="how many, without the repetitions (default %(default)s)"
    )
    parser.add_argument(
        "--minutes", type=int, default=60, help="over how many minutes they happened (default %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=25.0, help="over how many seconds to send them (default %(default)s)"
    )


def main() -> int:
    """Send the events, or with --hopeless those that are far too late."""
    parser = argparse.ArgumentParser(description="Send invented user activity to a Kafka topic")
    parser.add_argument("--bootstrap-servers", required=True, help="Kafka to talk to, host:port[,host:port]")
    parser.add_argument("--topic", default="activity", help="topic to write (default %(default)s)")
    parser.add_argument("--hopeless", type=int, default=0, metavar="N", help="send only N events that are far too late")
    add_event_arguments(parser)
    arguments = parser.parse_args()
    if arguments.hopeless:
        events, seconds = make_hopeless_events(arguments.seed, arguments.hopeless), 0.0
    else:
        events, seconds = make_events(arguments.seed, arguments.events, arguments.minutes), arguments.seconds
    send(arguments.bootstrap_servers, arguments.topic, events, seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
