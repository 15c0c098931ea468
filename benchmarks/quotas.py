"""Throttled clients of ours beside those of Apache Kafka, in one run.

    python -m benchmarks.quotas            # both brokers in turn;  --broker pykbroker for one of them

One connection always has the next request ready: Produce requests of 20 kB under a producer_byte_rate of 400 kB/s, and
Fetch requests of such batches under a consumer_byte_rate of as much. With Kafka's default windows that gives a burst of
ten seconds' bytes about every eleven seconds; the rate is that from the end of the first burst to the end of the last.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.brokers import KINDS, BrokerFailedError
from benchmarks.reports import save, show
from interop_tests.clients import create_topic
from interop_tests.quota_clients import QuotaClient, alter_quota

COLUMNS = ("broker", "client", "kB/s", "of the limit", "bursts", "s between bursts", "median throttle ms", "longest")
LIMIT = 400_000.0
RECORD_SIZE = 19_900
REQUESTS_OF_A_BURST = 50
"""Requests in one second by which a burst is known; the limit is 20."""


class Seen(NamedTuple):
    """One request: time of its response in seconds from the first one, bytes that it carried, throttle time in ms."""

    at_s: float
    size: int
    throttle_ms: int


def produce(bootstrap: str, topic: str, seconds: float) -> list[Seen]:
    """Produce requests one after the other."""
    with QuotaClient(bootstrap, "limited") as client:
        frame = client.produce_frame(topic, RECORD_SIZE)

        def once(number: int) -> tuple[int, int]:
            return len(frame), client.produce_throttle_ms(frame)

        return repeat(once, seconds)


def fetch(bootstrap: str, topic: str, seconds: float) -> list[Seen]:
    """Fetch requests one after the other, each of one batch; a throttled one is repeated."""
    offset = 0
    with QuotaClient(bootstrap, "limited") as client:

        def once(number: int) -> tuple[int, int]:
            nonlocal offset
            throttle_ms, topics = client.fetch_throttle_ms(topic, offset, RECORD_SIZE)
            offset += topics
            return topics * RECORD_SIZE, throttle_ms

        return repeat(once, seconds)


def repeat(once: Callable[[int], tuple[int, int]], seconds: float) -> list[Seen]:
    """Requests of so many seconds, one after the other."""
    began, found = time.monotonic(), list[Seen]()
    while time.monotonic() - began < seconds:
        size, throttle_ms = once(len(found))
        found.append(Seen(time.monotonic() - began, size, throttle_ms))
    return found


def burst_ends(seen: Sequence[Seen]) -> list[int]:
    """Index of the last request of each burst."""
    per_second: dict[int, list[int]] = {}
    for number, request in enumerate(seen):
        if request.size:
            per_second.setdefault(int(request.at_s), []).append(number)
    full = {second: numbers for second, numbers in per_second.items() if len(numbers) >= REQUESTS_OF_A_BURST}
    # A burst may end in the second after the one in which most of it was.
    return [numbers[-1] for second, numbers in full.items() if second + 1 not in full]


def row_of(broker: str, client: str, seen: Sequence[Seen]) -> list[str]:
    """A line of the table."""
    ends = burst_ends(seen)
    throttles = [request.throttle_ms for request in seen if request.throttle_ms]
    if len(ends) < 2:
        raise BrokerFailedError(f"{broker}: {len(ends)} bursts; the run is too short")
    first, last = ends[0], ends[-1]
    seconds = seen[last].at_s - seen[first].at_s
    rate = sum(request.size for request in seen[first + 1 : last + 1]) / seconds
    return [
        broker,
        client,
        f"{rate / 1000:.0f}",
        f"{100 * rate / LIMIT:.1f} %",
        str(len(ends)),
        f"{seconds / (len(ends) - 1):.1f}",
        f"{statistics.median(throttles):.0f}",
        str(max(throttles)),
    ]


def measure(kind: str, seconds: float) -> list[list[str]]:
    """Both clients at one broker."""
    with KINDS[kind]() as broker:
        bootstrap = broker.bootstrap_servers
        for topic in ("written", "read"):
            create_topic(bootstrap, topic)
        with QuotaClient(bootstrap, "not limited") as client:
            frame = client.produce_frame("read", RECORD_SIZE)
            for _ in range(int(2 * seconds * LIMIT / RECORD_SIZE)):
                client.exchange(frame)
        for key in ("producer_byte_rate", "consumer_byte_rate"):
            alter_quota(bootstrap, {"client-id": "limited"}, key, LIMIT)
        time.sleep(1)
        return [
            row_of(kind, "producer", produce(bootstrap, "written", seconds)),
            row_of(kind, "consumer", fetch(bootstrap, "read", seconds)),
        ]


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quotas", description="Clients with byte rates")
    parser.add_argument("--broker", choices=KINDS, help="one of the two; by default both")
    parser.add_argument("--seconds", type=float, default=50.0, help="time for each client")
    arguments = parser.parse_args()
    rows: list[list[str]] = []
    try:
        for kind in [arguments.broker] if arguments.broker else KINDS:
            rows += measure(kind, arguments.seconds)
    except BrokerFailedError as error:
        print(f"quotas: {error}", file=sys.stderr)
        return 2
    title = f"Clients with a limit of {LIMIT / 1000:.0f} kB/s"
    show(title, COLUMNS, rows)
    print(f"written to {save('quotas', title, COLUMNS, rows, rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
