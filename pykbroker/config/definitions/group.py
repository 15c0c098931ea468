"""Keys of groups (KIP-848, KIP-932, KIP-1071) and of client metrics subscriptions (KIP-714) of Apache Kafka 4.3."""

from __future__ import annotations

from pykbroker.config.definitions import (
    AT_LEAST_0,
    AT_LEAST_1,
    BOOLEAN,
    INT,
    LIST,
    STRING,
    ConfigKey,
    ListOf,
    OneOf,
    Range,
    ShareOffsetReset,
)
from pykbroker.config.definitions.broker import BROKER_CONFIGS

GROUP_CONFIGS: dict[str, ConfigKey] = {
    "consumer.session.timeout.ms": ConfigKey(INT, "45000", AT_LEAST_1),
    "consumer.heartbeat.interval.ms": ConfigKey(INT, "5000", AT_LEAST_1),
    "consumer.assignment.interval.ms": ConfigKey(INT, "1000", AT_LEAST_0),
    "share.session.timeout.ms": ConfigKey(INT, "45000", AT_LEAST_1),
    "share.heartbeat.interval.ms": ConfigKey(INT, "5000", AT_LEAST_1),
    "share.record.lock.duration.ms": ConfigKey(INT, "30000", Range(1000)),
    "share.delivery.count.limit": ConfigKey(INT, "5", Range(2)),
    "share.partition.max.record.locks": ConfigKey(INT, "2000", Range(100)),
    "share.auto.offset.reset": ConfigKey(STRING, "latest", ShareOffsetReset()),
    "share.isolation.level": ConfigKey(STRING, "read_uncommitted", OneOf("read_committed", "read_uncommitted")),
    "share.renew.acknowledge.enable": ConfigKey(BOOLEAN, "true"),
    "share.assignment.interval.ms": ConfigKey(INT, "1000", AT_LEAST_0),
    "streams.session.timeout.ms": ConfigKey(INT, "45000", AT_LEAST_1),
    "streams.heartbeat.interval.ms": ConfigKey(INT, "5000", AT_LEAST_1),
    "streams.num.standby.replicas": ConfigKey(INT, "0", AT_LEAST_0),
    "streams.initial.rebalance.delay.ms": ConfigKey(INT, "3000", AT_LEAST_0),
    "streams.assignment.interval.ms": ConfigKey(INT, "1000", AT_LEAST_0),
}
"""Keys of groups in the order of Kafka's definitions, in which it looks for a bad value (P-696)."""

GROUP_BROKER_SYNONYMS = {key: f"group.{key}" for key in GROUP_CONFIGS if f"group.{key}" in BROKER_CONFIGS}
"""Group key -> broker key of its default."""

CLIENT_METRICS_CONFIGS: dict[str, ConfigKey] = {
    "interval.ms": ConfigKey(INT, "300000"),
    "match": ConfigKey(LIST, "", ListOf()),
    "metrics": ConfigKey(LIST, "", ListOf()),
}
