"""Topic keys of Apache Kafka 4.3 and the broker keys from which a topic inherits them."""

from __future__ import annotations

from pykbroker.config.definitions import (
    AT_LEAST_0,
    AT_LEAST_1,
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    ConfigKey,
    ListOf,
    OneOf,
    Range,
    ThrottledReplicas,
)

TOPIC_CONFIGS: dict[str, ConfigKey] = {
    "segment.bytes": ConfigKey(INT, "1073741824", Range(1048576)),
    "segment.ms": ConfigKey(LONG, "604800000", AT_LEAST_1),
    "segment.jitter.ms": ConfigKey(LONG, "0", AT_LEAST_0),
    "segment.index.bytes": ConfigKey(INT, "10485760", Range(4)),
    "flush.messages": ConfigKey(LONG, LONG_MAX, AT_LEAST_1),
    "flush.ms": ConfigKey(LONG, LONG_MAX, AT_LEAST_0),
    "retention.bytes": ConfigKey(LONG, "-1"),
    "retention.ms": ConfigKey(LONG, "604800000", Range(-1)),
    "max.message.bytes": ConfigKey(INT, "1048588", AT_LEAST_0),
    "index.interval.bytes": ConfigKey(INT, "4096", AT_LEAST_0),
    "delete.retention.ms": ConfigKey(LONG, "86400000", AT_LEAST_0),
    "min.compaction.lag.ms": ConfigKey(LONG, "0", AT_LEAST_0),
    "max.compaction.lag.ms": ConfigKey(LONG, LONG_MAX, AT_LEAST_1),
    "file.delete.delay.ms": ConfigKey(LONG, "60000", AT_LEAST_0),
    "min.cleanable.dirty.ratio": ConfigKey(DOUBLE, "0.5", Range(0, 1)),
    "cleanup.policy": ConfigKey(LIST, "delete", ListOf("compact", "delete")),
    "unclean.leader.election.enable": ConfigKey(BOOLEAN, "false"),
    "min.insync.replicas": ConfigKey(INT, "1", AT_LEAST_1),
    "compression.type": ConfigKey(
        STRING, "producer", OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    ),
    "compression.gzip.level": ConfigKey(INT, "-1", Range(1, 9, also=-1)),
    "compression.lz4.level": ConfigKey(INT, "9", Range(1, 17)),
    "compression.zstd.level": ConfigKey(INT, "3", Range(-131_072, 22)),
    "preallocate": ConfigKey(BOOLEAN, "false"),
    "message.timestamp.type": ConfigKey(STRING, "CreateTime", OneOf("CreateTime", "LogAppendTime")),
    "message.timestamp.before.max.ms": ConfigKey(LONG, LONG_MAX, AT_LEAST_0),
    "message.timestamp.after.max.ms": ConfigKey(LONG, "3600000", AT_LEAST_0),
    "leader.replication.throttled.replicas": ConfigKey(LIST, "", ThrottledReplicas()),
    "follower.replication.throttled.replicas": ConfigKey(LIST, "", ThrottledReplicas()),
    "remote.storage.enable": ConfigKey(BOOLEAN, "false"),
    "local.retention.ms": ConfigKey(LONG, "-2", Range(-2)),
    "local.retention.bytes": ConfigKey(LONG, "-2", Range(-2)),
    "remote.log.copy.disable": ConfigKey(BOOLEAN, "false"),
    "remote.log.delete.on.disable": ConfigKey(BOOLEAN, "false"),
}
"""Topic keys in the order of Kafka's definitions, on which the order of DescribeConfigs depends (P-613)."""

INTERNAL_TOPIC_CONFIGS = {"internal.segment.bytes": ConfigKey(INT, None)}
"""Keys that Kafka reads but never lists: a segment size below the 1 MiB that segment.bytes allows."""


def definition_of_topic_key(name: str) -> ConfigKey | None:
    """The definition of a key that a topic may have; None for an unknown one."""
    return TOPIC_CONFIGS.get(name) or INTERNAL_TOPIC_CONFIGS.get(name)


BROKER_SYNONYMS: dict[str, tuple[str, ...]] = {
    "segment.bytes": ("log.segment.bytes",),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "max.message.bytes": ("message.max.bytes",),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "cleanup.policy": ("log.cleanup.policy",),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
    "min.insync.replicas": ("min.insync.replicas",),
    "compression.type": ("compression.type",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.zstd.level": ("compression.zstd.level",),
    "preallocate": ("log.preallocate",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "local.retention.ms": ("log.local.retention.ms",),
    "local.retention.bytes": ("log.local.retention.bytes",),
}
"""Topic key -> broker keys; the first one that is set is used."""


def factor_to_topic_unit(broker_key: str) -> int:
    """The factor by which the number of one of `BROKER_SYNONYMS` becomes one in the topic key's unit."""
    return {"hours": 3_600_000, "minutes": 60_000}.get(broker_key.rpartition(".")[2], 1)
