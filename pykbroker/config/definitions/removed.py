"""Broker keys of earlier versions of Apache Kafka that 4.3 does not have any more.

Kafka ignores them like any unknown key, and so does this broker. Files written for Kafka 3 have many of them, and an
old setting needs less attention than a typing error.
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
