"""Topic keys of Apache Kafka 4.3 and the broker keys from which a topic inherits them."""

from __future__ import annotations

from pykbroker.config.definitions import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    STRING,
    ConfigDefinition,
    ListOf,
    OneOf,
    Range,
    ThrottledReplicas,
)

AT_LEAST_0 = Range(0)
AT_LEAST_1 = Range(1)

TOPIC_CONFIGS: dict[str, ConfigDefinition] = {
    "cleanup.policy": ConfigDefinition(LIST, "delete", ListOf("compact", "delete")),
    "compression.gzip.level": ConfigDefinition(INT, "-1", Range(1, 9, also=-1)),
    "compression.lz4.level": ConfigDefinition(INT, "9", Range(1, 17)),
    "compression.type": ConfigDefinition(
        STRING, "producer", OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    ),
    "compression.zstd.level": ConfigDefinition(INT, "3", Range(-131_072, 22)),
    "delete.retention.ms": ConfigDefinition(LONG, "86400000", AT_LEAST_0),
    "file.delete.delay.ms": ConfigDefinition(LONG, "60000", AT_LEAST_0),
    "flush.messages": ConfigDefinition(LONG, "9223372036854775807", AT_LEAST_1),
    "flush.ms": ConfigDefinition(LONG, "9223372036854775807", AT_LEAST_0),
    "follower.replication.throttled.replicas": ConfigDefinition(LIST, "", ThrottledReplicas()),
    "index.interval.bytes": ConfigDefinition(INT, "4096", AT_LEAST_0),
    "leader.replication.throttled.replicas": ConfigDefinition(LIST, "", ThrottledReplicas()),
    "local.retention.bytes": ConfigDefinition(LONG, "-2", Range(-2)),
    "local.retention.ms": ConfigDefinition(LONG, "-2", Range(-2)),
    "max.compaction.lag.ms": ConfigDefinition(LONG, "9223372036854775807", AT_LEAST_1),
    "max.message.bytes": ConfigDefinition(INT, "1048588", AT_LEAST_0),
    "message.timestamp.after.max.ms": ConfigDefinition(LONG, "3600000", AT_LEAST_0),
    "message.timestamp.before.max.ms": ConfigDefinition(LONG, "9223372036854775807", AT_LEAST_0),
    "message.timestamp.type": ConfigDefinition(STRING, "CreateTime", OneOf("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": ConfigDefinition(DOUBLE, "0.5", Range(0, 1)),
    "min.compaction.lag.ms": ConfigDefinition(LONG, "0", AT_LEAST_0),
    "min.insync.replicas": ConfigDefinition(INT, "1", AT_LEAST_1),
    "preallocate": ConfigDefinition(BOOLEAN, "false"),
    "remote.log.copy.disable": ConfigDefinition(BOOLEAN, "false"),
    "remote.log.delete.on.disable": ConfigDefinition(BOOLEAN, "false"),
    "remote.storage.enable": ConfigDefinition(BOOLEAN, "false"),
    "retention.bytes": ConfigDefinition(LONG, "-1"),
    "retention.ms": ConfigDefinition(LONG, "604800000", Range(-1)),
    "segment.bytes": ConfigDefinition(INT, "1073741824", Range(1048576)),
    "segment.index.bytes": ConfigDefinition(INT, "10485760", Range(4)),
    "segment.jitter.ms": ConfigDefinition(LONG, "0", AT_LEAST_0),
    "segment.ms": ConfigDefinition(LONG, "604800000", AT_LEAST_1),
    "unclean.leader.election.enable": ConfigDefinition(BOOLEAN, "false"),
}
"""Topic keys in the order in which CreateTopics v5 returns them."""

INTERNAL_TOPIC_CONFIGS: dict[str, ConfigDefinition] = {
    "internal.segment.bytes": ConfigDefinition(INT, None),
}
"""Keys that Kafka reads but never lists: a segment size below the 1 MiB that segment.bytes allows."""

HOUR_MS = 3_600_000
MINUTE_MS = 60_000

BROKER_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (
        ("log.roll.ms", 1),
        ("log.roll.hours", HOUR_MS),
    ),
    "segment.jitter.ms": (
        ("log.roll.jitter.ms", 1),
        ("log.roll.jitter.hours", HOUR_MS),
    ),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (
        ("log.flush.interval.ms", 1),
        ("log.flush.scheduler.interval.ms", 1),
    ),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", MINUTE_MS),
        ("log.retention.hours", HOUR_MS),
    ),
    "max.message.bytes": (("message.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "preallocate": (("log.preallocate", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
}
"""Topic key -> broker keys with the factor to the topic key's unit; the first one that is set is used."""
