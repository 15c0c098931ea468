"""Client metrics subscriptions: the metrics that a client is asked for, and how often (KIP-714)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pykbroker.config.definitions import parse_value
from pykbroker.config.definitions.group import CLIENT_METRICS_CONFIGS
from pykbroker.java_order import TABLE_SIZE_DEFAULT, hash_order, trim
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.records.checksum import crc32c

ALL_METRICS = "*"
INTERVAL_MS_DEFAULT = int(CLIENT_METRICS_CONFIGS["interval.ms"].default or 0)


class Subscription(NamedTuple):
    """One client-metrics resource.

    Attributes:
        metrics: prefixes of metric names.
        interval_ms: time between two pushes.
        match: selector, such as client_id -> pattern that the client's attribute must match as a whole.
    """

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, re.Pattern[str]]

    @classmethod
    def from_configs(cls, configs: Mapping[str, str]) -> Subscription:
        """The subscription that these configs of a resource set; they were validated when they were stored."""
        values = {
            name: parse_value(name, configs.get(name, definition.default or ""), definition.type)
            for name, definition in CLIENT_METRICS_CONFIGS.items()
        }
        match = {}
        for pattern in values["match"]:
            selector, _, expression = pattern.partition("=")
            match[trim(selector)] = re.compile(trim(expression.rstrip("=")))
        return cls(tuple(values["metrics"]), values["interval.ms"], match)

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """True if the subscription matches a client with these attributes (by selector)."""
        return all(
            selector in attributes and pattern.fullmatch(attributes[selector]) is not None
            for selector, pattern in self.match.items()
        )


class Requested(NamedTuple):
    """The sum of the subscriptions that match one client: metric name prefixes, and the shortest interval."""

    metrics: tuple[str, ...]
    push_interval_ms: int

    def subscription_id(self, client_instance_id: bytes) -> int:
        """An id that changes with the subscriptions; the same as Kafka's: CRC-32C of their text, XOR the instance's."""
        text = f"[{', '.join(self.metrics)}]{self.push_interval_ms}"
        high, low = client_instance_id[:8], client_instance_id[8:]
        mixed = int.from_bytes(high, "big") ^ int.from_bytes(low, "big")
        value = crc32c(text.encode()) ^ (mixed >> 32) ^ (mixed & 0xFFFFFFFF)
        return value - (1 << 32) if value >= 1 << 31 else value


def requested(subscriptions: Iterable[Subscription], attributes: Mapping[str, str]) -> Requested:
    """The metrics that a client with these attributes is asked for; the order is that of Kafka's set."""
    metrics: dict[str, None] = {}
    interval_ms = INTERVAL_MS_DEFAULT
    for subscription in subscriptions:
        if subscription.matches(attributes):
            metrics.update(dict.fromkeys(subscription.metrics))
            interval_ms = min(interval_ms, subscription.interval_ms)
    if ALL_METRICS in metrics:
        metrics = {ALL_METRICS: None}
    return Requested(tuple(hash_order(metrics)), interval_ms)


def in_map_order(names: Iterable[str]) -> list[str]:
    """Names of subscriptions in the order in which a Java ConcurrentHashMap iterates over them.

    Metrics whose hashes collide have this order, and the subscription id depends on it.
    """
    names = list(names)
    size = TABLE_SIZE_DEFAULT
    # Unlike a HashMap it doubles the table when three quarters are used.
    while len(names) >= size * 3 // 4:
        size *= 2
    return hash_order(names, size)
