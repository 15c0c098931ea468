"""Replication throttles (KIP-73): limits of the bytes per second sent to, or fetched by, replicas not in sync.

Pure: time comes as an argument. `kafka-reassign-partitions --throttle` sets `leader.replication.throttled.rate` and
`follower.replication.throttled.rate` on brokers, and on topics `leader.replication.throttled.replicas` and
`follower.replication.throttled.replicas`: pairs "partition:broker" with commas, or "*" for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

ALL_REPLICAS = "*"


class Measured(Protocol):
    """Bytes per second over the last windows; times are whole milliseconds."""

    def record(self, value: float, now_ms: int) -> None: ...

    def measure(self, now_ms: int) -> float: ...

    def falls_to(self, limit: float, now_ms: int) -> float: ...


def throttled_partitions(text: str, broker_id: int) -> frozenset[int] | None:
    """The partitions whose replica on a broker is throttled, None for all of them. Invalid pairs are skipped."""
    if text.strip() == ALL_REPLICAS:
        return None
    found = set()
    for pair in text.split(","):
        partition, _, broker = pair.strip().partition(":")
        if partition.isdecimal() and broker.isdecimal() and int(broker) == broker_id:
            found.add(int(partition))
    return frozenset(found)


class ReplicationThrottle:
    """Throttle of one broker in one direction, as leader or as follower.

    Args:
        rate: returns the current limit in bytes per second; None for no limit.
        replicas: returns a topic's setting for this direction, "" for none.
        broker_id: this broker.
        measured: the rate of the bytes that were recorded.
    """

    def __init__(
        self, rate: Callable[[], int | None], replicas: Callable[[str], str], broker_id: int, measured: Measured
    ) -> None:
        self._rate = rate
        self._replicas = replicas
        self._broker_id = broker_id
        self._measured = measured
        self._parsed: dict[str, frozenset[int] | None] = {}

    def applies_to(self, topic: str, partition: int) -> bool:
        """True if the topic's setting names this broker's replica of a partition."""
        text = self._replicas(topic)
        if not text:
            return False
        if text not in self._parsed:
            # Only a few texts are in use at a time; those of past reassignments are dropped.
            if len(self._parsed) > 100:
                self._parsed.clear()
            self._parsed[text] = throttled_partitions(text, self._broker_id)
        named = self._parsed[text]
        return named is None or partition in named

    def record(self, size_bytes: int, now: float) -> None:
        """Counts bytes of throttled replicas that were sent or fetched, without a limit too: one may be set next."""
        self._measured.record(size_bytes, round(now * 1000))

    def is_exceeded(self, now: float) -> bool:
        """True while throttled replicas must wait."""
        rate = self._rate()
        return rate is not None and self._measured.measure(round(now * 1000)) > rate

    def ends_at(self, now: float) -> float:
        """The time in seconds, after now, at which throttled replicas may go on if nothing is recorded until then.

        In Kafka a throttled fetch is looked at again when it has waited `replica.fetch.wait.max.ms`. Where the limit
        lets about one fetch pass in that time, the copy is slower than the limit by up to a tenth.
        """
        rate = self._rate()
        now_ms = round(now * 1000)
        return now if rate is None else max(self._measured.falls_to(rate, now_ms), now_ms + 1) / 1000
