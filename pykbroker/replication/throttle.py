"""Replication throttles (KIP-73): limits of the bytes per second sent to, or fetched by, replicas not in sync.

Pure: time comes as an argument. `kafka-reassign-partitions --throttle` sets `leader.replication.throttled.rate` and
`follower.replication.throttled.rate` on brokers, and on topics `leader.replication.throttled.replicas` and
`follower.replication.throttled.replicas`: pairs "partition:broker" with commas, or "*" for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ALL_REPLICAS = "*"
WINDOW_S = 1.0
"""Burst in seconds: the bytes of one second may pass at once. Further ones wait until the average is below the rate."""


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
    """

    def __init__(self, rate: Callable[[], int | None], replicas: Callable[[str], str], broker_id: int) -> None:
        self._rate = rate
        self._replicas = replicas
        self._broker_id = broker_id
        self._debt_bytes = 0.0
        self._at = 0.0
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
        """Counts bytes of throttled replicas that were sent or fetched."""
        if self._rate() is not None:
            self._pay(now)
            self._debt_bytes += size_bytes

    def is_exceeded(self, now: float) -> bool:
        """True while throttled replicas must wait."""
        rate = self._rate()
        if rate is None:
            self._debt_bytes = 0.0
            return False
        self._pay(now)
        return self._debt_bytes > rate * WINDOW_S

    def _pay(self, now: float) -> None:
        self._debt_bytes = max(0.0, self._debt_bytes - (self._rate() or 0) * max(now - self._at, 0.0))
        self._at = now
