"""Broker keys (server.properties) of Apache Kafka 4.3, and where BrokerConfig has them."""

from __future__ import annotations

from pykbroker.config.definitions import (
    AT_LEAST_0,
    AT_LEAST_1,
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    ConfigKey,
    ListOf,
    NonEmpty,
    OneOf,
    Range,
)

NON_EMPTY = NonEmpty()
MEMBERS = ListOf()
SOME_MEMBERS = ListOf(may_be_empty=False)

# Kafka has no default for node.id, process.roles and controller.listener.names; `SINGLE_NODE_DEFAULTS` has ours.
# The order is that of Kafka's definitions, on which the order of DescribeConfigs depends (P-613).
BROKER_CONFIGS: dict[str, ConfigKey] = {
    "remote.log.storage.system.enable": ConfigKey(BOOLEAN, "false"),
    "remote.log.storage.manager.impl.prefix": ConfigKey(STRING, "rsm.config.", NON_EMPTY),
    "remote.log.metadata.manager.impl.prefix": ConfigKey(STRING, "rlmm.config.", NON_EMPTY),
    "remote.log.storage.manager.class.name": ConfigKey(STRING, None, NON_EMPTY),
    "remote.log.storage.manager.class.path": ConfigKey(STRING, None),
    "remote.log.metadata.manager.class.name": ConfigKey(
        STRING, "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", NON_EMPTY
    ),
    "remote.log.metadata.manager.class.path": ConfigKey(STRING, None),
    "remote.log.metadata.manager.listener.name": ConfigKey(STRING, None, NON_EMPTY),
    "remote.log.metadata.custom.metadata.max.bytes": ConfigKey(INT, "128", AT_LEAST_0),
    "remote.log.index.file.cache.total.size.bytes": ConfigKey(LONG, "1073741824", AT_LEAST_1, CLUSTER_WIDE),
    "remote.log.manager.thread.pool.size": ConfigKey(INT, "2", AT_LEAST_1),
    "remote.log.manager.copier.thread.pool.size": ConfigKey(INT, "10", AT_LEAST_1, CLUSTER_WIDE),
    "remote.log.manager.expiration.thread.pool.size": ConfigKey(INT, "10", AT_LEAST_1, CLUSTER_WIDE),
    "remote.log.manager.follower.thread.pool.size": ConfigKey(INT, "2", AT_LEAST_1, CLUSTER_WIDE),
    "remote.log.manager.task.interval.ms": ConfigKey(LONG, "30000", AT_LEAST_1),
    "remote.log.reader.threads": ConfigKey(INT, "10", AT_LEAST_1, CLUSTER_WIDE),
    "remote.log.reader.max.pending.tasks": ConfigKey(INT, "100", AT_LEAST_1),
    "log.local.retention.ms": ConfigKey(LONG, "-2", Range(-2), CLUSTER_WIDE),
    "log.local.retention.bytes": ConfigKey(LONG, "-2", Range(-2), CLUSTER_WIDE),
    "remote.log.manager.copy.max.bytes.per.second": ConfigKey(LONG, LONG_MAX, AT_LEAST_1, CLUSTER_WIDE),
    "remote.log.manager.copy.quota.window.num": ConfigKey(INT, "11", AT_LEAST_1),
    "remote.log.manager.copy.quota.window.size.seconds": ConfigKey(INT, "1", AT_LEAST_1),
    "remote.log.manager.fetch.max.bytes.per.second": ConfigKey(LONG, LONG_MAX, AT_LEAST_1, CLUSTER_WIDE),
    "remote.log.manager.fetch.quota.window.num": ConfigKey(INT, "11", AT_LEAST_1),
    "remote.log.manager.fetch.quota.window.size.seconds": ConfigKey(INT, "1", AT_LEAST_1),
    "remote.fetch.max.wait.ms": ConfigKey(INT, "500", AT_LEAST_1, CLUSTER_WIDE),
    "remote.list.offsets.request.timeout.ms": ConfigKey(LONG, "30000", AT_LEAST_1, CLUSTER_WIDE),
    "broker.id": ConfigKey(INT, "-1", part_of="node_id"),
    "message.max.bytes": ConfigKey(INT, "1048588", AT_LEAST_0, CLUSTER_WIDE, part_of="topics.defaults"),
    "num.io.threads": ConfigKey(INT, "8", AT_LEAST_1, CLUSTER_WIDE),
    "num.replica.alter.log.dirs.threads": ConfigKey(INT, None, attribute="replication.alter_log_dirs_threads"),
    "background.threads": ConfigKey(INT, "10", AT_LEAST_1, CLUSTER_WIDE),
    "request.timeout.ms": ConfigKey(INT, "30000", attribute="request_timeout_ms"),
    "socket.connection.setup.timeout.ms": ConfigKey(LONG, "10000"),
    "socket.connection.setup.timeout.max.ms": ConfigKey(LONG, "30000"),
    "config.providers": ConfigKey(LIST, "", MEMBERS, CLUSTER_WIDE),
    "authorizer.class.name": ConfigKey(STRING, "", attribute="security.authorizer_class_name"),
    "early.start.listeners": ConfigKey(LIST, None, MEMBERS),
    "broker.rack": ConfigKey(STRING, None, attribute="broker.rack"),
    "controlled.shutdown.enable": ConfigKey(BOOLEAN, "true", attribute="broker.controlled_shutdown_enable"),
    "delete.topic.enable": ConfigKey(BOOLEAN, "true", attribute="topics.delete_enable"),
    "compression.type": ConfigKey(
        STRING,
        "producer",
        OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        CLUSTER_WIDE,
        part_of="topics.defaults",
    ),
    "compression.gzip.level": ConfigKey(INT, "-1", Range(1, 9, also=-1), CLUSTER_WIDE, part_of="topics.defaults"),
    "compression.lz4.level": ConfigKey(INT, "9", Range(1, 17), CLUSTER_WIDE, part_of="topics.defaults"),
    "compression.zstd.level": ConfigKey(INT, "3", Range(-131_072, 22), CLUSTER_WIDE, part_of="topics.defaults"),
    "max.incremental.fetch.session.cache.slots": ConfigKey(
        INT, "1000", AT_LEAST_0, attribute="fetch.max_incremental_session_cache_slots"
    ),
    "fetch.max.bytes": ConfigKey(INT, "57671680", Range(1024), attribute="fetch.max_bytes"),
    "max.request.partition.size.limit": ConfigKey(
        INT, "2000", AT_LEAST_1, attribute="topics.max_request_partition_size_limit"
    ),
    "process.roles": ConfigKey(
        LIST, None, ListOf("broker", "controller", may_be_empty=False), attribute="process_roles"
    ),
    "node.id": ConfigKey(INT, None, AT_LEAST_0, attribute="node_id"),
    "initial.broker.registration.timeout.ms": ConfigKey(
        INT, "60000", attribute="broker.initial_registration_timeout_ms"
    ),
    "broker.heartbeat.interval.ms": ConfigKey(INT, "2000", attribute="broker.heartbeat_interval_ms"),
    "broker.session.timeout.ms": ConfigKey(INT, "9000", attribute="broker.session_timeout_ms"),
    "controller.listener.names": ConfigKey(LIST, None, SOME_MEMBERS, attribute="network.controller_listener_names"),
    "sasl.mechanism.controller.protocol": ConfigKey(STRING, "GSSAPI", part_of="security.node_logins"),
    "metadata.log.max.record.bytes.between.snapshots": ConfigKey(
        LONG, "20971520", AT_LEAST_1, attribute="metadata_log.max_record_bytes_between_snapshots"
    ),
    "metadata.log.max.snapshot.interval.ms": ConfigKey(
        LONG, "3600000", AT_LEAST_0, attribute="metadata_log.max_snapshot_interval_ms"
    ),
    "metadata.log.dir": ConfigKey(STRING, None, attribute="log.metadata_dir"),
    "metadata.log.segment.bytes": ConfigKey(INT, "1073741824", Range(8388608), attribute="metadata_log.segment_bytes"),
    "metadata.log.segment.ms": ConfigKey(LONG, "604800000", attribute="metadata_log.segment_ms"),
    "metadata.max.retention.bytes": ConfigKey(LONG, "104857600"),
    "metadata.max.retention.ms": ConfigKey(LONG, "604800000"),
    "metadata.max.idle.interval.ms": ConfigKey(INT, "500", AT_LEAST_0, attribute="metadata_log.max_idle_interval_ms"),
    "listeners": ConfigKey(LIST, "PLAINTEXT://:9092", SOME_MEMBERS, PER_BROKER, part_of="network.listeners"),
    "advertised.listeners": ConfigKey(LIST, None, SOME_MEMBERS, part_of="network.advertised_listeners"),
    "listener.security.protocol.map": ConfigKey(
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None,
        PER_BROKER,
        part_of="network.listeners",
    ),
    "socket.send.buffer.bytes": ConfigKey(INT, "102400", attribute="sockets.send_buffer_bytes"),
    "socket.receive.buffer.bytes": ConfigKey(INT, "102400", attribute="sockets.receive_buffer_bytes"),
    "socket.request.max.bytes": ConfigKey(INT, "104857600", AT_LEAST_1, attribute="sockets.request_max_bytes"),
    "socket.listen.backlog.size": ConfigKey(INT, "50", AT_LEAST_1, attribute="sockets.listen_backlog_size"),
    "max.connections.per.ip": ConfigKey(INT, INT_MAX, AT_LEAST_0, CLUSTER_WIDE, attribute="connections.max_per_ip"),
    "max.connections.per.ip.overrides": ConfigKey(
        STRING, "", None, CLUSTER_WIDE, attribute="connections.max_per_ip_overrides"
    ),
    "max.connections": ConfigKey(
        INT, INT_MAX, AT_LEAST_0, CLUSTER_WIDE, attribute="connections.max_total", per_listener=True
    ),
    "max.connection.creation.rate": ConfigKey(
        INT, INT_MAX, AT_LEAST_0, CLUSTER_WIDE, attribute="connections.max_creation_rate", per_listener=True
    ),
    "connections.max.idle.ms": ConfigKey(LONG, "600000", attribute="connections.max_idle_ms"),
    "connection.failed.authentication.delay.ms": ConfigKey(
        INT, "100", AT_LEAST_0, attribute="connections.failed_authentication_delay_ms"
    ),
    "queued.max.requests": ConfigKey(INT, "500", AT_LEAST_1),
    "queued.max.request.bytes": ConfigKey(LONG, "-1", attribute="sockets.queued_max_request_bytes"),
    "num.network.threads": ConfigKey(INT, "3", AT_LEAST_1, CLUSTER_WIDE),
    "controller.socket.timeout.ms": ConfigKey(INT, "30000", attribute="controller.socket_timeout_ms"),
    "default.replication.factor": ConfigKey(INT, "1", attribute="topics.default_replication_factor"),
    "replica.lag.time.max.ms": ConfigKey(LONG, "30000", attribute="replication.lag_time_max_ms"),
    "replica.socket.timeout.ms": ConfigKey(INT, "30000", attribute="replication.socket_timeout_ms"),
    "replica.socket.receive.buffer.bytes": ConfigKey(INT, "65536"),
    "replica.fetch.max.bytes": ConfigKey(INT, "1048576", AT_LEAST_0, attribute="replication.fetch_max_bytes"),
    "replica.fetch.wait.max.ms": ConfigKey(INT, "500", attribute="replication.fetch_wait_max_ms"),
    "replica.fetch.backoff.ms": ConfigKey(INT, "1000", AT_LEAST_0, attribute="replication.fetch_backoff_ms"),
    "replica.fetch.min.bytes": ConfigKey(INT, "1", attribute="replication.fetch_min_bytes"),
    "replica.fetch.response.max.bytes": ConfigKey(
        INT, "10485760", AT_LEAST_0, attribute="replication.fetch_response_max_bytes"
    ),
    "num.replica.fetchers": ConfigKey(INT, "1", AT_LEAST_1, CLUSTER_WIDE),
    "replica.high.watermark.checkpoint.interval.ms": ConfigKey(
        LONG, "5000", attribute="replication.high_watermark_checkpoint_interval_ms"
    ),
    "fetch.purgatory.purge.interval.requests": ConfigKey(INT, "1000"),
    "producer.purgatory.purge.interval.requests": ConfigKey(INT, "1000"),
    "delete.records.purgatory.purge.interval.requests": ConfigKey(INT, "1"),
    "auto.leader.rebalance.enable": ConfigKey(BOOLEAN, "true", attribute="replication.auto_leader_rebalance_enable"),
    "leader.imbalance.check.interval.seconds": ConfigKey(
        LONG, "300", AT_LEAST_1, attribute="replication.leader_imbalance_check_interval_seconds"
    ),
    "unclean.leader.election.enable": ConfigKey(BOOLEAN, "false", None, CLUSTER_WIDE, part_of="topics.defaults"),
    "security.inter.broker.protocol": ConfigKey(
        STRING,
        "PLAINTEXT",
        OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        part_of="network.inter_broker_listener",
    ),
    "inter.broker.listener.name": ConfigKey(STRING, None, part_of="network.inter_broker_listener"),
    "replica.selector.class": ConfigKey(STRING, None, attribute="replication.selector_class"),
    "follower.fetch.last.tiered.offset.enable": ConfigKey(BOOLEAN, "false", None, CLUSTER_WIDE),
    "group.coordinator.rebalance.protocols": ConfigKey(
        LIST,
        "classic,consumer,streams",
        ListOf("consumer", "classic", "share", "streams", may_be_empty=False),
        attribute="groups.rebalance_protocols",
    ),
    "group.coordinator.threads": ConfigKey(INT, "4", AT_LEAST_1),
    "group.coordinator.background.threads": ConfigKey(INT, "2", AT_LEAST_1),
    "group.coordinator.append.linger.ms": ConfigKey(INT, "-1", Range(-1)),
    "offsets.commit.timeout.ms": ConfigKey(INT, "5000", AT_LEAST_1, attribute="groups.offsets_commit_timeout_ms"),
    "offsets.load.buffer.size": ConfigKey(INT, "5242880", AT_LEAST_1),
    "offsets.topic.replication.factor": ConfigKey(
        SHORT, "3", AT_LEAST_1, attribute="groups.offsets_topic_replication_factor"
    ),
    "offsets.topic.num.partitions": ConfigKey(INT, "50", AT_LEAST_1, attribute="groups.offsets_topic_num_partitions"),
    "offsets.topic.segment.bytes": ConfigKey(
        INT, "104857600", AT_LEAST_1, attribute="groups.offsets_topic_segment_bytes"
    ),
    "offsets.topic.compression.codec": ConfigKey(INT, "0", attribute="groups.offsets_topic_compression_codec"),
    "group.coordinator.cached.buffer.max.bytes": ConfigKey(INT, "1048588", Range(524288), CLUSTER_WIDE),
    "offset.metadata.max.bytes": ConfigKey(INT, "4096", attribute="groups.offset_metadata_max_bytes"),
    "offsets.retention.minutes": ConfigKey(INT, "10080", AT_LEAST_1, attribute="groups.offsets_retention_minutes"),
    "offsets.retention.check.interval.ms": ConfigKey(
        LONG, "600000", AT_LEAST_1, attribute="groups.offsets_retention_check_interval_ms"
    ),
    "group.min.session.timeout.ms": ConfigKey(INT, "6000", attribute="groups.min_session_timeout_ms"),
    "group.max.session.timeout.ms": ConfigKey(INT, "1800000", attribute="groups.max_session_timeout_ms"),
    "group.initial.rebalance.delay.ms": ConfigKey(INT, "3000", attribute="groups.initial_rebalance_delay_ms"),
    "group.max.size": ConfigKey(INT, INT_MAX, AT_LEAST_1, attribute="groups.max_size"),
    "group.consumer.session.timeout.ms": ConfigKey(
        INT, "45000", AT_LEAST_1, attribute="consumer_groups.session_timeout_ms"
    ),
    "group.consumer.min.session.timeout.ms": ConfigKey(
        INT, "45000", AT_LEAST_1, attribute="consumer_groups.min_session_timeout_ms"
    ),
    "group.consumer.max.session.timeout.ms": ConfigKey(
        INT, "60000", AT_LEAST_1, attribute="consumer_groups.max_session_timeout_ms"
    ),
    "group.consumer.heartbeat.interval.ms": ConfigKey(
        INT, "5000", AT_LEAST_1, attribute="consumer_groups.heartbeat_interval_ms"
    ),
    "group.consumer.min.heartbeat.interval.ms": ConfigKey(
        INT, "5000", AT_LEAST_1, attribute="consumer_groups.min_heartbeat_interval_ms"
    ),
    "group.consumer.max.heartbeat.interval.ms": ConfigKey(
        INT, "15000", AT_LEAST_1, attribute="consumer_groups.max_heartbeat_interval_ms"
    ),
    "group.consumer.max.size": ConfigKey(INT, INT_MAX, AT_LEAST_1, attribute="consumer_groups.max_size"),
    "group.consumer.assignors": ConfigKey(LIST, "uniform,range", SOME_MEMBERS, attribute="consumer_groups.assignors"),
    "group.consumer.migration.policy": ConfigKey(
        STRING,
        "bidirectional",
        OneOf("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL", fold_case=True),
        attribute="consumer_groups.migration_policy",
    ),
    "group.consumer.assignment.interval.ms": ConfigKey(
        INT, "1000", AT_LEAST_0, CLUSTER_WIDE, attribute="consumer_groups.assignment_interval_ms"
    ),
    "group.consumer.min.assignment.interval.ms": ConfigKey(
        INT, "0", AT_LEAST_0, attribute="consumer_groups.min_assignment_interval_ms"
    ),
    "group.consumer.max.assignment.interval.ms": ConfigKey(
        INT, "15000", AT_LEAST_0, attribute="consumer_groups.max_assignment_interval_ms"
    ),
    "group.share.session.timeout.ms": ConfigKey(INT, "45000", AT_LEAST_1, attribute="share_groups.session_timeout_ms"),
    "group.share.min.session.timeout.ms": ConfigKey(
        INT, "45000", AT_LEAST_1, attribute="share_groups.min_session_timeout_ms"
    ),
    "group.share.max.session.timeout.ms": ConfigKey(
        INT, "60000", AT_LEAST_1, attribute="share_groups.max_session_timeout_ms"
    ),
    "group.share.heartbeat.interval.ms": ConfigKey(
        INT, "5000", AT_LEAST_1, attribute="share_groups.heartbeat_interval_ms"
    ),
    "group.share.min.heartbeat.interval.ms": ConfigKey(
        INT, "5000", AT_LEAST_1, attribute="share_groups.min_heartbeat_interval_ms"
    ),
    "group.share.max.heartbeat.interval.ms": ConfigKey(
        INT, "15000", AT_LEAST_1, attribute="share_groups.max_heartbeat_interval_ms"
    ),
    "group.share.max.size": ConfigKey(INT, "200", Range(1, 1_000), attribute="share_groups.max_size"),
    "group.share.assignors": ConfigKey(LIST, "simple", SOME_MEMBERS),
    "group.share.assignment.interval.ms": ConfigKey(
        INT, "1000", AT_LEAST_0, CLUSTER_WIDE, attribute="share_groups.assignment_interval_ms"
    ),
    "group.share.min.assignment.interval.ms": ConfigKey(
        INT, "0", AT_LEAST_0, attribute="share_groups.min_assignment_interval_ms"
    ),
    "group.share.max.assignment.interval.ms": ConfigKey(
        INT, "15000", AT_LEAST_0, attribute="share_groups.max_assignment_interval_ms"
    ),
    "group.streams.session.timeout.ms": ConfigKey(
        INT, "45000", AT_LEAST_1, attribute="streams_groups.session_timeout_ms"
    ),
    "group.streams.min.session.timeout.ms": ConfigKey(
        INT, "45000", AT_LEAST_1, attribute="streams_groups.min_session_timeout_ms"
    ),
    "group.streams.max.session.timeout.ms": ConfigKey(
        INT, "60000", AT_LEAST_1, attribute="streams_groups.max_session_timeout_ms"
    ),
    "group.streams.heartbeat.interval.ms": ConfigKey(
        INT, "5000", AT_LEAST_1, attribute="streams_groups.heartbeat_interval_ms"
    ),
    "group.streams.min.heartbeat.interval.ms": ConfigKey(
        INT, "5000", AT_LEAST_1, attribute="streams_groups.min_heartbeat_interval_ms"
    ),
    "group.streams.max.heartbeat.interval.ms": ConfigKey(
        INT, "15000", AT_LEAST_1, attribute="streams_groups.max_heartbeat_interval_ms"
    ),
    "group.streams.max.size": ConfigKey(INT, INT_MAX, AT_LEAST_1, attribute="streams_groups.max_size"),
    "group.streams.num.standby.replicas": ConfigKey(
        INT, "0", AT_LEAST_0, attribute="streams_groups.num_standby_replicas"
    ),
    "group.streams.max.standby.replicas": ConfigKey(
        INT, "2", AT_LEAST_0, attribute="streams_groups.max_standby_replicas"
    ),
    "group.streams.initial.rebalance.delay.ms": ConfigKey(
        INT, "3000", AT_LEAST_0, attribute="streams_groups.initial_rebalance_delay_ms"
    ),
    "group.streams.assignment.interval.ms": ConfigKey(
        INT, "1000", AT_LEAST_0, CLUSTER_WIDE, attribute="streams_groups.assignment_interval_ms"
    ),
    "group.streams.min.assignment.interval.ms": ConfigKey(
        INT, "0", AT_LEAST_0, attribute="streams_groups.min_assignment_interval_ms"
    ),
    "group.streams.max.assignment.interval.ms": ConfigKey(
        INT, "15000", AT_LEAST_0, attribute="streams_groups.max_assignment_interval_ms"
    ),
    "log.cleaner.threads": ConfigKey(INT, "1", AT_LEAST_0, CLUSTER_WIDE),
    "log.cleaner.io.max.bytes.per.second": ConfigKey(DOUBLE, "1.7976931348623157E308", None, CLUSTER_WIDE),
    "log.cleaner.dedupe.buffer.size": ConfigKey(LONG, "134217728", None, CLUSTER_WIDE),
    "log.cleaner.io.buffer.size": ConfigKey(INT, "524288", AT_LEAST_0, CLUSTER_WIDE),
    "log.cleaner.io.buffer.load.factor": ConfigKey(DOUBLE, "0.9", None, CLUSTER_WIDE),
    "log.cleaner.backoff.ms": ConfigKey(LONG, "15000", AT_LEAST_0, CLUSTER_WIDE, attribute="log.cleaner_backoff_ms"),
    "log.cleaner.min.cleanable.ratio": ConfigKey(DOUBLE, "0.5", Range(0, 1), CLUSTER_WIDE, part_of="topics.defaults"),
    "log.cleaner.enable": ConfigKey(BOOLEAN, "true", attribute="log.cleaner_enable"),
    "log.cleaner.delete.retention.ms": ConfigKey(LONG, "86400000", AT_LEAST_0, CLUSTER_WIDE, part_of="topics.defaults"),
    "log.cleaner.min.compaction.lag.ms": ConfigKey(LONG, "0", AT_LEAST_0, CLUSTER_WIDE, part_of="topics.defaults"),
    "log.cleaner.max.compaction.lag.ms": ConfigKey(LONG, LONG_MAX, AT_LEAST_1, CLUSTER_WIDE, part_of="topics.defaults"),
    "num.partitions": ConfigKey(INT, "1", AT_LEAST_1, attribute="topics.num_partitions"),
    "log.dir": ConfigKey(LIST, "/tmp/kafka-logs", SOME_MEMBERS, part_of="log.dirs"),  # noqa: S108  Kafka's default; ours is a directory that the command line names
    "log.dirs": ConfigKey(LIST, None, SOME_MEMBERS, attribute="log.dirs"),
    "cordoned.log.dirs": ConfigKey(LIST, "", MEMBERS, PER_BROKER, attribute="log.cordoned_dirs"),
    "log.segment.bytes": ConfigKey(INT, "1073741824", Range(1048576), CLUSTER_WIDE, part_of="topics.defaults"),
    "log.roll.ms": ConfigKey(LONG, None, None, CLUSTER_WIDE, part_of="topics.defaults"),
    "log.roll.hours": ConfigKey(INT, "168", AT_LEAST_1, part_of="topics.defaults"),
    "log.roll.jitter.ms": ConfigKey(LONG, None, None, CLUSTER_WIDE, part_of="topics.defaults"),
    "log.roll.jitter.hours": ConfigKey(INT, "0", AT_LEAST_0, part_of="topics.defaults"),
    "log.retention.ms": ConfigKey(LONG, None, None, CLUSTER_WIDE, part_of="topics.defaults"),
    "log.retention.minutes": ConfigKey(INT, None, part_of="topics.defaults"),
    "log.retention.hours": ConfigKey(INT, "168", part_of="topics.defaults"),
    "log.retention.bytes": ConfigKey(LONG, "-1", None, CLUSTER_WIDE, part_of="topics.defaults"),
    "log.retention.check.interval.ms": ConfigKey(
        LONG, "300000", AT_LEAST_1, attribute="log.retention_check_interval_ms"
    ),
    "log.cleanup.policy": ConfigKey(
        LIST, "delete", ListOf("compact", "delete"), CLUSTER_WIDE, part_of="topics.defaults"
    ),
    "log.index.size.max.bytes": ConfigKey(INT, "10485760", Range(4), CLUSTER_WIDE, part_of="topics.defaults"),
    "log.index.interval.bytes": ConfigKey(INT, "4096", AT_LEAST_0, CLUSTER_WIDE, part_of="topics.defaults"),
    "log.flush.interval.messages": ConfigKey(LONG, LONG_MAX, AT_LEAST_1, CLUSTER_WIDE, part_of="topics.defaults"),
    "log.segment.delete.delay.ms": ConfigKey(LONG, "60000", AT_LEAST_0, CLUSTER_WIDE, part_of="topics.defaults"),
    "log.flush.scheduler.interval.ms": ConfigKey(LONG, LONG_MAX, attribute="log.flush_scheduler_interval_ms"),
    "log.flush.interval.ms": ConfigKey(LONG, None, None, CLUSTER_WIDE, part_of="topics.defaults"),
    "log.flush.offset.checkpoint.interval.ms": ConfigKey(
        INT, "60000", AT_LEAST_0, attribute="log.flush_offset_checkpoint_interval_ms"
    ),
    "log.flush.start.offset.checkpoint.interval.ms": ConfigKey(
        INT, "60000", AT_LEAST_0, attribute="log.flush_start_offset_checkpoint_interval_ms"
    ),
    "log.preallocate": ConfigKey(BOOLEAN, "false", None, CLUSTER_WIDE, part_of="topics.defaults"),
    "num.recovery.threads.per.data.dir": ConfigKey(INT, "2", AT_LEAST_1, CLUSTER_WIDE),
    "auto.create.topics.enable": ConfigKey(BOOLEAN, "true", attribute="topics.auto_create_enable"),
    "min.insync.replicas": ConfigKey(INT, "1", AT_LEAST_1, CLUSTER_WIDE, part_of="topics.defaults"),
    "log.message.timestamp.type": ConfigKey(
        STRING, "CreateTime", OneOf("CreateTime", "LogAppendTime"), CLUSTER_WIDE, part_of="topics.defaults"
    ),
    "log.message.timestamp.before.max.ms": ConfigKey(
        LONG, LONG_MAX, AT_LEAST_0, CLUSTER_WIDE, part_of="topics.defaults"
    ),
    "log.message.timestamp.after.max.ms": ConfigKey(
        LONG, "3600000", AT_LEAST_0, CLUSTER_WIDE, part_of="topics.defaults"
    ),
    "create.topic.policy.class.name": ConfigKey(CLASS, None),
    "alter.config.policy.class.name": ConfigKey(CLASS, None),
    "log.dir.failure.timeout.ms": ConfigKey(LONG, "30000", AT_LEAST_1, attribute="log.dir_failure_timeout_ms"),
    "group.share.delivery.count.limit": ConfigKey(
        INT, "5", Range(2, 10), attribute="share_groups.delivery_count_limit"
    ),
    "group.share.max.delivery.count.limit": ConfigKey(
        INT, "10", Range(5, 25), attribute="share_groups.max_delivery_count_limit"
    ),
    "group.share.min.delivery.count.limit": ConfigKey(
        INT, "2", Range(2, 5), attribute="share_groups.min_delivery_count_limit"
    ),
    "group.share.record.lock.duration.ms": ConfigKey(
        INT, "30000", Range(1_000, 3_600_000), attribute="share_groups.record_lock_duration_ms"
    ),
    "group.share.min.record.lock.duration.ms": ConfigKey(
        INT, "15000", Range(1_000, 30_000), attribute="share_groups.min_record_lock_duration_ms"
    ),
    "group.share.max.record.lock.duration.ms": ConfigKey(
        INT, "60000", Range(30_000, 3_600_000), attribute="share_groups.max_record_lock_duration_ms"
    ),
    "group.share.partition.max.record.locks": ConfigKey(
        INT, "2000", Range(100, 10_000), attribute="share_groups.partition_max_record_locks"
    ),
    "group.share.max.partition.max.record.locks": ConfigKey(
        INT, "4000", Range(2_000, 10_000), attribute="share_groups.max_partition_max_record_locks"
    ),
    "group.share.min.partition.max.record.locks": ConfigKey(
        INT, "100", Range(100, 2_000), attribute="share_groups.min_partition_max_record_locks"
    ),
    "share.fetch.purgatory.purge.interval.requests": ConfigKey(INT, "1000"),
    "group.share.max.share.sessions": ConfigKey(INT, "2000", AT_LEAST_1, attribute="share_groups.max_share_sessions"),
    "share.coordinator.state.topic.num.partitions": ConfigKey(
        INT, "50", AT_LEAST_1, attribute="share_coordinator.state_topic_num_partitions"
    ),
    "share.coordinator.state.topic.replication.factor": ConfigKey(
        SHORT, "3", AT_LEAST_1, attribute="share_coordinator.state_topic_replication_factor"
    ),
    "share.coordinator.state.topic.min.isr": ConfigKey(
        SHORT, "2", AT_LEAST_1, attribute="share_coordinator.state_topic_min_isr"
    ),
    "share.coordinator.state.topic.segment.bytes": ConfigKey(
        INT, "104857600", AT_LEAST_1, attribute="share_coordinator.state_topic_segment_bytes"
    ),
    "share.coordinator.threads": ConfigKey(INT, "1", AT_LEAST_1),
    "share.coordinator.snapshot.update.records.per.snapshot": ConfigKey(
        INT, "500", Range(0, 500), attribute="share_coordinator.snapshot_update_records_per_snapshot"
    ),
    "share.coordinator.load.buffer.size": ConfigKey(INT, "5242880", AT_LEAST_1),
    "share.coordinator.state.topic.compression.codec": ConfigKey(
        INT, "0", attribute="share_coordinator.state_topic_compression_codec"
    ),
    "share.coordinator.append.linger.ms": ConfigKey(INT, "-1", Range(-1)),
    "share.coordinator.write.timeout.ms": ConfigKey(
        INT, "5000", AT_LEAST_1, attribute="share_coordinator.write_timeout_ms"
    ),
    "share.coordinator.cached.buffer.max.bytes": ConfigKey(INT, "1048588", Range(524288), CLUSTER_WIDE),
    "transaction.state.log.min.isr": ConfigKey(INT, "2", AT_LEAST_1, attribute="transactions.state_log_min_isr"),
    "transaction.state.log.load.buffer.size": ConfigKey(INT, "5242880", AT_LEAST_1),
    "transaction.state.log.replication.factor": ConfigKey(
        SHORT, "3", AT_LEAST_1, attribute="transactions.state_log_replication_factor"
    ),
    "transaction.state.log.num.partitions": ConfigKey(
        INT, "50", AT_LEAST_1, attribute="transactions.state_log_num_partitions"
    ),
    "transaction.state.log.segment.bytes": ConfigKey(
        INT, "104857600", AT_LEAST_1, attribute="transactions.state_log_segment_bytes"
    ),
    "transaction.partition.verification.enable": ConfigKey(
        BOOLEAN, "true", None, CLUSTER_WIDE, attribute="transactions.partition_verification_enable"
    ),
    "producer.id.expiration.ms": ConfigKey(
        INT, "86400000", AT_LEAST_1, CLUSTER_WIDE, attribute="transactions.producer_id_expiration_ms"
    ),
    "transactional.id.expiration.ms": ConfigKey(
        INT, "604800000", AT_LEAST_1, attribute="transactions.transactional_id_expiration_ms"
    ),
    "transaction.max.timeout.ms": ConfigKey(INT, "900000", AT_LEAST_1, attribute="transactions.max_timeout_ms"),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ConfigKey(
        INT, "10000", AT_LEAST_1, attribute="transactions.abort_timed_out_transaction_cleanup_interval_ms"
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": ConfigKey(
        INT, "3600000", AT_LEAST_1, attribute="transactions.remove_expired_transaction_cleanup_interval_ms"
    ),
    "transaction.two.phase.commit.enable": ConfigKey(
        BOOLEAN, "false", attribute="transactions.two_phase_commit_enable"
    ),
    "controller.quorum.voters": ConfigKey(LIST, "", part_of="quorum.voters"),
    "controller.quorum.bootstrap.servers": ConfigKey(LIST, "", part_of="quorum.bootstrap_servers"),
    "controller.quorum.election.timeout.ms": ConfigKey(INT, "1000", AT_LEAST_0, attribute="quorum.election_timeout_ms"),
    "controller.quorum.fetch.timeout.ms": ConfigKey(INT, "2000", AT_LEAST_0, attribute="quorum.fetch_timeout_ms"),
    "controller.quorum.election.backoff.max.ms": ConfigKey(
        INT, "1000", AT_LEAST_0, attribute="quorum.election_backoff_max_ms"
    ),
    "controller.quorum.append.linger.ms": ConfigKey(INT, "25", AT_LEAST_0, attribute="quorum.append_linger_ms"),
    "controller.quorum.request.timeout.ms": ConfigKey(INT, "2000", AT_LEAST_0, attribute="quorum.request_timeout_ms"),
    "controller.quorum.retry.backoff.ms": ConfigKey(INT, "20", AT_LEAST_0, attribute="quorum.retry_backoff_ms"),
    "controller.quorum.auto.join.enable": ConfigKey(BOOLEAN, "false", attribute="quorum.auto_join_enable"),
    "controller.quorum.fetch.snapshot.max.bytes": ConfigKey(
        INT, "1048576", AT_LEAST_1, attribute="quorum.fetch_snapshot_max_bytes"
    ),
    "controller.quorum.fetch.max.bytes": ConfigKey(INT, "1048576", AT_LEAST_1, attribute="quorum.fetch_max_bytes"),
    "metrics.num.samples": ConfigKey(INT, "2", AT_LEAST_1),
    "metrics.sample.window.ms": ConfigKey(LONG, "30000", AT_LEAST_1),
    "metric.reporters": ConfigKey(
        LIST,
        "org.apache.kafka.common.metrics.JmxReporter",
        MEMBERS,
        CLUSTER_WIDE,
        attribute="broker.metric_reporters",
    ),
    "metrics.recording.level": ConfigKey(STRING, "INFO"),
    "kafka.metrics.reporters": ConfigKey(LIST, "", MEMBERS),
    "kafka.metrics.polling.interval.secs": ConfigKey(INT, "10", AT_LEAST_1),
    "telemetry.max.bytes": ConfigKey(INT, "1048576", AT_LEAST_1, attribute="broker.telemetry_max_bytes"),
    "quota.window.num": ConfigKey(INT, "11", AT_LEAST_1, attribute="quotas.window_num"),
    "replication.quota.window.num": ConfigKey(INT, "11", AT_LEAST_1, attribute="quotas.replication_window_num"),
    "alter.log.dirs.replication.quota.window.num": ConfigKey(
        INT, "11", AT_LEAST_1, attribute="quotas.alter_log_dirs_window_num"
    ),
    "controller.quota.window.num": ConfigKey(INT, "11", AT_LEAST_1, attribute="quotas.controller_window_num"),
    "quota.window.size.seconds": ConfigKey(INT, "1", AT_LEAST_1, attribute="quotas.window_size_seconds"),
    "replication.quota.window.size.seconds": ConfigKey(
        INT, "1", AT_LEAST_1, attribute="quotas.replication_window_size_seconds"
    ),
    "alter.log.dirs.replication.quota.window.size.seconds": ConfigKey(
        INT, "1", AT_LEAST_1, attribute="quotas.alter_log_dirs_window_size_seconds"
    ),
    "controller.quota.window.size.seconds": ConfigKey(
        INT, "1", AT_LEAST_1, attribute="quotas.controller_window_size_seconds"
    ),
    "client.quota.callback.class": ConfigKey(CLASS, None),
    "connections.max.reauth.ms": ConfigKey(LONG, "0", per_listener=True),
    "sasl.server.max.receive.size": ConfigKey(INT, "524288", per_listener=True),
    "security.providers": ConfigKey(STRING, None),
    "principal.builder.class": ConfigKey(
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        None,
        PER_BROKER,
        attribute="security.principal_builder_class",
        per_listener=True,
    ),
    "ssl.client.auth": ConfigKey(STRING, "none", OneOf("required", "requested", "none"), PER_BROKER, per_listener=True),
    "ssl.principal.mapping.rules": ConfigKey(STRING, "DEFAULT", per_listener=True),
    "ssl.allow.dn.changes": ConfigKey(BOOLEAN, "false", per_listener=True),
    "ssl.allow.san.changes": ConfigKey(BOOLEAN, "false", per_listener=True),
    "ssl.protocol": ConfigKey(STRING, "TLSv1.3", None, PER_BROKER),
    "ssl.provider": ConfigKey(STRING, None, None, PER_BROKER),
    "ssl.enabled.protocols": ConfigKey(LIST, "TLSv1.2,TLSv1.3", MEMBERS, PER_BROKER, per_listener=True),
    "ssl.keystore.type": ConfigKey(STRING, "JKS", None, PER_BROKER, per_listener=True),
    "ssl.keystore.location": ConfigKey(STRING, None, None, PER_BROKER, per_listener=True),
    "ssl.keystore.password": ConfigKey(PASSWORD, None, None, PER_BROKER, per_listener=True),
    "ssl.key.password": ConfigKey(PASSWORD, None, None, PER_BROKER, per_listener=True),
    "ssl.keystore.key": ConfigKey(PASSWORD, None, None, PER_BROKER, per_listener=True),
    "ssl.keystore.certificate.chain": ConfigKey(PASSWORD, None, None, PER_BROKER, per_listener=True),
    "ssl.truststore.type": ConfigKey(STRING, "JKS", None, PER_BROKER, per_listener=True),
    "ssl.truststore.location": ConfigKey(STRING, None, None, PER_BROKER, per_listener=True),
    "ssl.truststore.password": ConfigKey(PASSWORD, None, None, PER_BROKER, per_listener=True),
    "ssl.truststore.certificates": ConfigKey(PASSWORD, None, None, PER_BROKER, per_listener=True),
    "ssl.keymanager.algorithm": ConfigKey(STRING, "SunX509", None, PER_BROKER),
    "ssl.trustmanager.algorithm": ConfigKey(STRING, "PKIX", None, PER_BROKER),
    "ssl.endpoint.identification.algorithm": ConfigKey(STRING, "https", None, PER_BROKER, per_listener=True),
    "ssl.secure.random.implementation": ConfigKey(STRING, None, None, PER_BROKER),
    "ssl.cipher.suites": ConfigKey(LIST, "", MEMBERS, PER_BROKER, per_listener=True),
    "ssl.engine.factory.class": ConfigKey(CLASS, None, None, PER_BROKER),
    "sasl.mechanism.inter.broker.protocol": ConfigKey(
        STRING, "GSSAPI", None, PER_BROKER, part_of="security.node_logins"
    ),
    "sasl.enabled.mechanisms": ConfigKey(LIST, "GSSAPI", MEMBERS, PER_BROKER, per_listener=True),
    "sasl.server.callback.handler.class": ConfigKey(CLASS, None, per_listener=True),
    "sasl.kerberos.principal.to.local.rules": ConfigKey(LIST, "DEFAULT", MEMBERS, PER_BROKER, per_listener=True),
    "sasl.jaas.config": ConfigKey(PASSWORD, None, None, PER_BROKER, per_listener=True),
    "sasl.client.callback.handler.class": ConfigKey(CLASS, None),
    "sasl.login.class": ConfigKey(CLASS, None),
    "sasl.login.callback.handler.class": ConfigKey(CLASS, None),
    "sasl.kerberos.service.name": ConfigKey(STRING, None, None, PER_BROKER, per_listener=True),
    "sasl.kerberos.kinit.cmd": ConfigKey(STRING, "/usr/bin/kinit", None, PER_BROKER),
    "sasl.kerberos.ticket.renew.window.factor": ConfigKey(DOUBLE, "0.8", None, PER_BROKER),
    "sasl.kerberos.ticket.renew.jitter": ConfigKey(DOUBLE, "0.05", None, PER_BROKER),
    "sasl.kerberos.min.time.before.relogin": ConfigKey(LONG, "60000", None, PER_BROKER),
    "sasl.login.refresh.window.factor": ConfigKey(DOUBLE, "0.8", None, PER_BROKER),
    "sasl.login.refresh.window.jitter": ConfigKey(DOUBLE, "0.05", None, PER_BROKER),
    "sasl.login.refresh.min.period.seconds": ConfigKey(SHORT, "60", None, PER_BROKER),
    "sasl.login.refresh.buffer.seconds": ConfigKey(SHORT, "300", None, PER_BROKER),
    "sasl.login.connect.timeout.ms": ConfigKey(INT, None),
    "sasl.login.read.timeout.ms": ConfigKey(INT, None),
    "sasl.login.retry.backoff.max.ms": ConfigKey(LONG, "10000"),
    "sasl.login.retry.backoff.ms": ConfigKey(LONG, "100"),
    "sasl.oauthbearer.jwt.retriever.class": ConfigKey(
        CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"
    ),
    "sasl.oauthbearer.jwt.validator.class": ConfigKey(
        CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
    ),
    "sasl.oauthbearer.scope": ConfigKey(STRING, None, per_listener=True),
    "sasl.oauthbearer.client.credentials.client.id": ConfigKey(STRING, None, per_listener=True),
    "sasl.oauthbearer.client.credentials.client.secret": ConfigKey(PASSWORD, None, per_listener=True),
    "sasl.oauthbearer.assertion.algorithm": ConfigKey(STRING, "RS256", OneOf("ES256", "RS256", fold_case=True)),
    "sasl.oauthbearer.assertion.claim.aud": ConfigKey(STRING, None),
    "sasl.oauthbearer.assertion.claim.exp.seconds": ConfigKey(INT, "300", Range(0, 86_400)),
    "sasl.oauthbearer.assertion.claim.iss": ConfigKey(STRING, None),
    "sasl.oauthbearer.assertion.claim.jti.include": ConfigKey(BOOLEAN, "false"),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": ConfigKey(INT, "60", Range(0, 3_600)),
    "sasl.oauthbearer.assertion.claim.sub": ConfigKey(STRING, None),
    "sasl.oauthbearer.assertion.file": ConfigKey(STRING, None),
    "sasl.oauthbearer.assertion.private.key.file": ConfigKey(STRING, None),
    "sasl.oauthbearer.assertion.private.key.passphrase": ConfigKey(PASSWORD, None),
    "sasl.oauthbearer.assertion.template.file": ConfigKey(STRING, None),
    "sasl.oauthbearer.scope.claim.name": ConfigKey(STRING, "scope", per_listener=True),
    "sasl.oauthbearer.sub.claim.name": ConfigKey(STRING, "sub", per_listener=True),
    "sasl.oauthbearer.token.endpoint.url": ConfigKey(STRING, None, per_listener=True),
    "sasl.oauthbearer.jwks.endpoint.url": ConfigKey(STRING, None, per_listener=True),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": ConfigKey(LONG, "3600000", per_listener=True),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": ConfigKey(LONG, "100", per_listener=True),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": ConfigKey(LONG, "10000", per_listener=True),
    "sasl.oauthbearer.clock.skew.seconds": ConfigKey(INT, "30", per_listener=True),
    "sasl.oauthbearer.expected.audience": ConfigKey(LIST, "", MEMBERS, per_listener=True),
    "sasl.oauthbearer.expected.issuer": ConfigKey(STRING, None, per_listener=True),
    "delegation.token.secret.key": ConfigKey(PASSWORD, None, attribute="delegation_tokens.secret_key"),
    "delegation.token.max.lifetime.ms": ConfigKey(
        LONG, "604800000", AT_LEAST_1, attribute="delegation_tokens.max_lifetime_ms"
    ),
    "delegation.token.expiry.time.ms": ConfigKey(
        LONG, "86400000", AT_LEAST_1, attribute="delegation_tokens.expiry_time_ms"
    ),
    "delegation.token.expiry.check.interval.ms": ConfigKey(
        LONG, "3600000", AT_LEAST_1, attribute="delegation_tokens.expiry_check_interval_ms"
    ),
    "add.partitions.to.txn.retry.backoff.max.ms": ConfigKey(
        INT, "100", AT_LEAST_0, attribute="transactions.add_partitions_retry_backoff_max_ms"
    ),
    "add.partitions.to.txn.retry.backoff.ms": ConfigKey(
        INT, "20", AT_LEAST_1, attribute="transactions.add_partitions_retry_backoff_ms"
    ),
}
"""Every key that `kafka-configs --describe --all` lists for a broker."""

INTERNAL_BROKER_CONFIGS: dict[str, ConfigKey] = {
    # Ours: a controller fences a broker whose machine refuses connections at once, see controller.active_controller.
    "broker.session.end.on.refusal": ConfigKey(BOOLEAN, "true", attribute="broker.session_end_on_refusal"),
    # Ours: voters do not wait for timeouts if the leader's machine refuses connections, see controller.raft.follower.
    "controller.quorum.election.on.refusal": ConfigKey(BOOLEAN, "true", attribute="quorum.election_on_refusal"),
    "controller.performance.always.log.threshold.ms": ConfigKey(LONG, "2000", AT_LEAST_0),
    "controller.performance.sample.period.ms": ConfigKey(LONG, "60000", Range(100)),
    "group.consumer.regex.refresh.interval.ms": ConfigKey(
        INT, "600000", Range(10000), attribute="consumer_groups.regex_refresh_interval_ms"
    ),
    "group.share.initialize.retry.interval.ms": ConfigKey(
        INT, "30000", AT_LEAST_1, attribute="share_groups.initialize_retry_interval_ms"
    ),
    "group.share.persister.class.name": ConfigKey(
        STRING, "org.apache.kafka.server.share.persister.DefaultStatePersister"
    ),
    "internal.metadata.delete.delay.millis": ConfigKey(LONG, "60000"),
    "internal.metadata.log.segment.bytes": ConfigKey(INT, None),
    "internal.metadata.max.batch.size.in.bytes": ConfigKey(INT, "8388608"),
    "log.initial.task.delay.ms": ConfigKey(LONG, "30000", AT_LEAST_0, attribute="log.initial_task_delay_ms"),
    "producer.id.expiration.check.interval.ms": ConfigKey(
        INT, "600000", AT_LEAST_1, attribute="transactions.producer_id_expiration_check_interval_ms"
    ),
    "remote.log.index.file.cache.ttl.ms": ConfigKey(LONG, "900000", Range(-1)),
    "remote.log.manager.task.retry.backoff.max.ms": ConfigKey(LONG, "30000", AT_LEAST_1),
    "remote.log.manager.task.retry.backoff.ms": ConfigKey(LONG, "500", AT_LEAST_1),
    "remote.log.manager.task.retry.jitter": ConfigKey(DOUBLE, "0.2", Range(0, 0.5)),
    "server.max.startup.time.ms": ConfigKey(LONG, LONG_MAX, AT_LEAST_0),
    "share.coordinator.cold.partition.snapshot.interval.ms": ConfigKey(
        INT, "300000", AT_LEAST_1, attribute="share_coordinator.cold_partition_snapshot_interval_ms"
    ),
    "share.coordinator.state.topic.prune.interval.ms": ConfigKey(
        INT, "300000", AT_LEAST_1, attribute="share_coordinator.state_topic_prune_interval_ms"
    ),
    "unclean.leader.election.interval.ms": ConfigKey(
        LONG, "300000", AT_LEAST_1, attribute="replication.unclean_leader_election_interval_ms"
    ),
    "unstable.api.versions.enable": ConfigKey(BOOLEAN, "false", attribute="broker.unstable_api_versions_enable"),
    "unstable.feature.versions.enable": ConfigKey(
        BOOLEAN, "false", attribute="broker.unstable_feature_versions_enable"
    ),
}
"""Keys that Kafka reads but never lists."""

DYNAMIC_ONLY_CONFIGS = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Keys that exist only as dynamic settings, in Kafka's order (P-696): replication throttles, in bytes per second."""
