"""Keys of groups (KIP-848, KIP-932, KIP-1071) and of client metrics subscriptions (KIP-714) of Apache Kafka 4.3."""

from __future__ import annotations

from pykbroker.config.definitions import (
    BOOLEAN,
    INT,
    LIST,
    STRING,
    ConfigDefinition,
    OneOf,
    Range,
    ShareOffsetReset,
)

AT_LEAST_0 = Range(0)
AT_LEAST_1 = Range(1)

GROUP_CONFIGS: dict[str, ConfigDefinition] = {
    "consumer.assignment.interval.ms": ConfigDefinition(INT, "1000", AT_LEAST_0),
    "consumer.heartbeat.interval.ms": ConfigDefinition(INT, "5000", AT_LEAST_1),
    "consumer.session.timeout.ms": ConfigDefinition(INT, "45000", AT_LEAST_1),
    "share.assignment.interval.ms": ConfigDefinition(INT, "1000", AT_LEAST_0),
    "share.auto.offset.reset": ConfigDefinition(STRING, "latest", ShareOffsetReset()),
    "share.delivery.count.limit": ConfigDefinition(INT, "5", Range(2)),
    "share.heartbeat.interval.ms": ConfigDefinition(INT, "5000", AT_LEAST_1),
    "share.isolation.level": ConfigDefinition(STRING, "read_uncommitted", OneOf("read_committed", "read_uncommitted")),
    "share.partition.max.record.locks": ConfigDefinition(INT, "2000", Range(100)),
    "share.record.lock.duration.ms": ConfigDefinition(INT, "30000", Range(1000)),
    "share.renew.acknowledge.enable": ConfigDefinition(BOOLEAN, "true"),
    "share.session.timeout.ms": ConfigDefinition(INT, "45000", AT_LEAST_1),
    "streams.assignment.interval.ms": ConfigDefinition(INT, "1000", AT_LEAST_0),
    "streams.heartbeat.interval.ms": ConfigDefinition(INT, "5000", AT_LEAST_1),
    "streams.initial.rebalance.delay.ms": ConfigDefinition(INT, "3000", AT_LEAST_0),
    "streams.num.standby.replicas": ConfigDefinition(INT, "0", AT_LEAST_0),
    "streams.session.timeout.ms": ConfigDefinition(INT, "45000", AT_LEAST_1),
}

GROUP_BROKER_SYNONYMS: dict[str, str] = {
    "consumer.assignment.interval.ms": "group.consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
    "share.assignment.interval.ms": "group.share.assignment.interval.ms",
    "share.delivery.count.limit": "group.share.delivery.count.limit",
    "share.heartbeat.interval.ms": "group.share.heartbeat.interval.ms",
    "share.partition.max.record.locks": "group.share.partition.max.record.locks",
    "share.record.lock.duration.ms": "group.share.record.lock.duration.ms",
    "share.session.timeout.ms": "group.share.session.timeout.ms",
    "streams.assignment.interval.ms": "group.streams.assignment.interval.ms",
    "streams.heartbeat.interval.ms": "group.streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms": "group.streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas": "group.streams.num.standby.replicas",
    "streams.session.timeout.ms": "group.streams.session.timeout.ms",
}
"""Group key -> broker key of its default."""

CLIENT_METRICS_CONFIGS: dict[str, ConfigDefinition] = {
    "interval.ms": ConfigDefinition(INT, "300000"),
    "match": ConfigDefinition(LIST, ""),
    "metrics": ConfigDefinition(LIST, ""),
}
