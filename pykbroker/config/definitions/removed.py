"""Broker keys that Apache Kafka had once and 4.3 does not know any more.

Kafka ignores them as any unknown key, and so do we. Files written for Kafka 3 are full of them: an old setting is not
worth the look that a typing error is.
"""

from __future__ import annotations

_PREFIXES = ("password.encoder.", "zookeeper.")

_KEYS = frozenset(
    {
        "advertised.host.name",
        "advertised.port",
        "auto.include.jmx.reporter",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "delegation.token.master.key",
        "group.coordinator.new.enable",
        "host.name",
        "inter.broker.protocol.version",
        "leader.imbalance.per.broker.percentage",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "port",
        "quota.consumer.default",
        "quota.producer.default",
        "replica.lag.max.messages",
        "reserved.broker.max.id",
    }
)


def is_removed(key: str) -> bool:
    """True for a key of an earlier Apache Kafka that 4.3 does not have."""
    return key in _KEYS or key.startswith(_PREFIXES)
