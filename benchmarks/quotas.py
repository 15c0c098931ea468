"""Throttled clients of ours beside those of Apache Kafka, in one run.

    python -m benchmarks.quotas            # both brokers in turn;  --broker pykbroker for one of them

Each client has one connection that always has the next request ready: Produce requests of 20 kB under a
producer_byte_rate of 400 kB/s, and Fetch requests of one batch of 20 kB, 200 kB or 1 MB under a consumer_byte_rate of
as much. They run together; each has a client id, so a rate, of its own.

Kafka measures a rate over eleven windows of one second, of which ten are always counted as whole. So a client gets ten
seconds' bytes at once, a tenth more in the same second, and the next burst when the window of the first has ended:
after 12 s, with the bytes of 11. In the first minute the rate from burst to burst is therefore some 92 % of the limit;
only later, when the bursts have spread, it comes near to it. A consumer never does with large responses: one that does
not fit is not sent at all, and what is left of the window is lost. `expected` computes both, and the table has the
bytes of the run beside those that the windows allow at the same speed of requests: what is missing there is the
broker's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

from benchmarks.brokers import KINDS, BrokerFailedError
from benchmarks.reports import save, show
from interop_tests.clients import create_topic
from interop_tests.quota_clients import QuotaClient, alter_quota
from pykbroker.quotas.rates import QuotaWindows, WindowedRate

COLUMNS = (
    "broker",
    "client",
    "MB",
    "of the windows",
    "of the limit",
    "bursts",
    "median throttle ms",
    "longest",
    "request ms",
)
LIMIT = 400_000.0
RECORD_SIZE = 19_900
RESPONSE_SIZES = (RECORD_SIZE, 200_000, 1_000_000)
OVERHEAD = 150
"""Bytes of a request or response besides those of the record, about."""
WINDOWS = QuotaWindows(11, 1000)
BURST_SHARE = 0.5
"""Part of the bytes of ten seconds by which the bytes of one or two seconds are known as a burst."""
SECONDS = 45.0
"""The bursts begin after 0, 12, 24 and 36 s, the next one after the end."""


class Seen(NamedTuple):
    """One request: time of its response in seconds from the first one, bytes that it carried, throttle time in ms."""

    at_s: float
    size: int
    throttle_ms: int


class Client(NamedTuple):
    """A client of the table: its bytes in one request, and whether it reads."""

    name: str
    size: int
    reads: bool

    @property
    def client_id(self) -> str:
        """The client id, by which it has a rate of its own."""
        return self.name.replace(" ", "-")


CLIENTS = (
    Client("producer, 20 kB", RECORD_SIZE, False),
    *(Client(f"consumer, {size / 1000:.0f} kB", size, True) for size in RESPONSE_SIZES),
)


def produce(bootstrap: str, client: Client, seconds: float) -> list[Seen]:
    """Produce requests one after the other."""
    with QuotaClient(bootstrap, client.client_id) as connection:
        frame = connection.produce_frame("written", client.size)

        def once() -> tuple[int, int]:
            return client.size, connection.produce_throttle_ms(frame)

        return repeat(once, seconds)


def fetch(bootstrap: str, client: Client, seconds: float) -> list[Seen]:
    """Fetch requests one after the other, each of one batch; a throttled one is repeated."""
    offset = 0
    with QuotaClient(bootstrap, client.client_id) as connection:

        def once() -> tuple[int, int]:
            nonlocal offset
            throttle_ms, topics = connection.fetch_throttle_ms(topic_of(client), offset, client.size)
            offset += topics
            return topics * client.size, throttle_ms

        return repeat(once, seconds)


def topic_of(client: Client) -> str:
    """The topic that a consumer reads."""
    return f"read-{client.size}"


def repeat(once: Callable[[], tuple[int, int]], seconds: float) -> list[Seen]:
    """Requests of so many seconds, one after the other."""
    began, found = time.monotonic(), list[Seen]()
    while time.monotonic() - began < seconds:
        size, throttle_ms = once()
        found.append(Seen(time.monotonic() - began, size, throttle_ms))
    return found


def expected(client: Client, request_ms: int, seconds: float, windows: QuotaWindows = WINDOWS) -> list[Seen]:
    """The requests that Kafka's windows allow a client, if one takes so long without a throttle; in virtual time."""
    rate, at_ms, found = WindowedRate(windows), 0, list[Seen]()
    while at_ms < seconds * 1000:
        rate.record(client.size + OVERHEAD, at_ms)
        throttle_ms = rate.throttle_ms(LIMIT, at_ms)
        size = client.size
        if throttle_ms and client.reads:
            # The response is sent without records, and does not count.
            rate.record(-size - OVERHEAD, at_ms)
            size = 0
        found.append(Seen(at_ms / 1000, size, throttle_ms))
        at_ms += request_ms + throttle_ms
    return found


def burst_ends(seen: Sequence[Seen]) -> list[int]:
    """Index of the last request of each burst."""
    per_second: dict[int, list[int]] = {}
    for number, request in enumerate(seen):
        if request.size:
            per_second.setdefault(int(request.at_s), []).append(number)

    def bytes_from(second: int) -> int:
        # A burst may end in the second after the one in which it began.
        return sum(seen[number].size for each in (second, second + 1) for number in per_second.get(each, ()))

    needed = BURST_SHARE * LIMIT * (WINDOWS.number - 1) * WINDOWS.size_ms / 1000
    full = [second for second in per_second if bytes_from(second) >= needed]
    return [per_second.get(second + 1, per_second[second])[-1] for second in full if second + 1 not in full]


def rate_between_bursts(seen: Sequence[Seen]) -> float | None:
    """Bytes per second from the end of the first burst to the end of the last; None without two bursts."""
    ends = burst_ends(seen)
    if len(ends) < 2:
        return None
    first, last = ends[0], ends[-1]
    return sum(request.size for request in seen[first + 1 : last + 1]) / (seen[last].at_s - seen[first].at_s)


def request_ms_of(seen: Sequence[Seen]) -> int:
    """Median time of a request that was not delayed by a throttle, in whole ms, at least 1."""
    times = [later.at_s - before.at_s for before, later in pairwise(seen) if not before.throttle_ms]
    return max(1, round(statistics.median(times) * 1000)) if times else 1


def row_of(broker: str, client: Client, seen: Sequence[Seen], seconds: float) -> list[str]:
    """A line of the table."""
    throttles = [request.throttle_ms for request in seen if request.throttle_ms]
    if not throttles:
        raise BrokerFailedError(f"{broker}: {client.name} was never throttled; the run is too short")
    request_ms = request_ms_of(seen)
    size = sum(request.size for request in seen)
    allowed = sum(request.size for request in expected(client, request_ms, seconds))
    rate = rate_between_bursts(seen)
    return [
        broker,
        client.name,
        f"{size / 1e6:.1f}",
        f"{100 * size / allowed:.1f} %",
        "-" if rate is None else f"{100 * rate / LIMIT:.1f} %",
        str(len(burst_ends(seen))),
        f"{statistics.median(throttles):.0f}",
        str(max(throttles)),
        str(request_ms),
    ]


def measure(kind: str, seconds: float) -> list[list[str]]:
    """All clients at one broker, together."""
    with KINDS[kind]() as broker:
        bootstrap = broker.bootstrap_servers
        create_topic(bootstrap, "written")
        for client in CLIENTS:
            if client.reads:
                create_topic(bootstrap, topic_of(client))
                with QuotaClient(bootstrap, "not-limited") as connection:
                    frame = connection.produce_frame(topic_of(client), client.size)
                    for _ in range(int(2 * seconds * LIMIT / client.size)):
                        connection.exchange(frame)
            for key in ("producer_byte_rate", "consumer_byte_rate"):
                alter_quota(bootstrap, {"client-id": client.client_id}, key, LIMIT)
        time.sleep(1)
        with ThreadPoolExecutor(len(CLIENTS)) as pool:
            runs = [pool.submit(fetch if client.reads else produce, bootstrap, client, seconds) for client in CLIENTS]
        return [row_of(kind, client, run.result(), seconds) for client, run in zip(CLIENTS, runs, strict=True)]


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quotas", description="Clients with byte rates")
    parser.add_argument("--broker", choices=KINDS, help="one of the two; by default both")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time of the clients")
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
