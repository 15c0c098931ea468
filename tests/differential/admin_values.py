"""Whole requests of administration for scripts made by chance: only together their fields reach a broker's checks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    find_coordinator,
    incremental_alter_configs,
    list_groups,
    list_partition_reassignments,
    list_transactions,
    unregister_broker,
)
from tests.differential.draws import Draws

TOPICS = ("~t0", "~t0", "~t1", "~none", "", "a b", "__consumer_offsets")
REPLICAS: tuple[list[int], ...] = ([1], [1], [2], [1, 1], [], [-1], [1, 2], [2, 1])
CONFIGS: dict[int, tuple[tuple[str, str | None], ...]] = {
    2: (
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "delete,"),
        ("cleanup.policy", "nonsense"),
        ("leader.replication.throttled.replicas", "0:1"),
        ("leader.replication.throttled.replicas", "*"),
        ("retention.ms", "1000000"),
        ("retention.ms", None),
        ("retention.ms", "x"),
        ("min.insync.replicas", "0"),
        ("segment.index.bytes", "4"),
        ("remote.storage.enable", "true"),
        ("local.retention.ms", "5"),
        ("remote.copy.disable", "true"),
        ("remote.log.delete.on.disable", "true"),
        ("internal.segment.bytes", "1000"),
        ("message.format.version", "3.0"),
        ("message.downconversion.enable", "false"),
        ("min.compaction.lag.ms", "9223372036854775807"),
        ("errors.deadletterqueue.group.enable", "true"),
        ("nonsense", "1"),
    ),
    4: (
        ("log.retention.ms", "1000000"),
        ("log.retention.hours", "5"),
        ("log.cleanup.policy", "compact"),
        ("num.io.threads", "9"),
        ("num.io.threads", "100"),
        ("num.network.threads", "0"),
        ("background.threads", "x"),
        ("log.cleaner.threads", "2"),
        ("log.cleaner.threads", "50"),
        ("log.segment.bytes", "1"),
        ("min.insync.replicas", "2"),
        ("max.connections", "-1"),
        ("max.connections.per.ip.overrides", "127.0.0.1:5"),
        ("max.connections.per.ip.overrides", "x"),
        ("unclean.leader.election.enable", "true"),
        ("leader.replication.throttled.rate", "1000"),
        ("leader.replication.throttled.rate", "-1"),
        ("group.initial.rebalance.delay.ms", "3"),
        ("share.coordinator.threads", "2"),
        ("compression.type", "nonsense"),
        ("remote.log.manager.copier.thread.pool.size", "3"),
        ("listener.name.x.ssl.keystore.password", "x"),
        ("listener.name.plaintext.max.connections", "5"),
        ("listener.name.plaintext.max.connection.creation.rate", "-5"),
        ("listeners", "x"),
        ("advertised.listeners", ""),
        ("principal.builder.class", "x"),
        ("metric.reporters", ""),
        ("node.id", "3"),
        ("sasl.jaas.config", "x"),
        ("cordoned.log.dirs", "*"),
        ("cordoned.log.dirs", "/nowhere"),
        ("producer.id.expiration.ms", "5"),
        ("transaction.partition.verification.enable", "false"),
        ("nonsense", "1"),
        ("", "1"),
    ),
    8: (("kafka.server", "INFO"), ("root", "DEBUG"), ("nonsense", "INFO"), ("root", "LOUD"), ("root", None)),
    16: (
        ("interval.ms", "100"),
        ("interval.ms", "99"),
        ("interval.ms", "3600001"),
        ("metrics", "a,b"),
        ("metrics", ""),
        ("metrics", "*"),
        ("match", "client_id=a"),
        ("match", "client_id=["),
        ("match", "client_source_port=1,client_id=b"),
        ("match", "x=y"),
        ("match", ""),
        ("nonsense", "1"),
    ),
    32: (
        ("consumer.session.timeout.ms", "45000"),
        ("consumer.session.timeout.ms", "44999"),
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.heartbeat.interval.ms", "5000"),
        ("consumer.heartbeat.interval.ms", "15001"),
        ("consumer.assignment.interval.ms", "5"),
        ("consumer.assignor.offload.enable", "true"),
        ("share.session.timeout.ms", "45000"),
        ("share.heartbeat.interval.ms", "5001"),
        ("share.record.lock.duration.ms", "15000"),
        ("share.record.lock.duration.ms", "14999"),
        ("share.delivery.count.limit", "2"),
        ("share.delivery.count.limit", "11"),
        ("share.partition.max.record.locks", "100"),
        ("share.partition.max.record.locks", "10001"),
        ("share.isolation.level", "read_committed"),
        ("share.isolation.level", "READ_COMMITTED"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "none"),
        ("share.renew.acknowledge.enable", "false"),
        ("streams.session.timeout.ms", "45000"),
        ("streams.heartbeat.interval.ms", "4999"),
        ("streams.num.standby.replicas", "2"),
        ("streams.num.standby.replicas", "3"),
        ("streams.num.warmup.replicas", "2"),
        ("streams.initial.rebalance.delay.ms", "0"),
        ("streams.task.offset.interval.ms", "60000"),
        ("errors.deadletterqueue.topic.name", "~dlq"),
        ("errors.deadletterqueue.topic.name", "__x"),
        ("errors.deadletterqueue.copy.record.enable", "true"),
        ("nonsense", "1"),
    ),
}
"""Settings by type of resource."""
RESOURCE_NAMES: dict[int, tuple[str, ...]] = {
    2: ("~t0", "~t0", "~t1", "~none", "", "a b", "__consumer_offsets"),
    4: ("1", "1", "", "2", "abc", "-1", "01"),
    8: ("1", "", "2", "x"),
    16: ("~c0", "~c0", "~c1", ""),
    32: ("~g0", "~g0", "~g1", ""),
}
QUOTA_KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
    "nonsense",
    "",
)
ENTITIES: tuple[tuple[str, ...], ...] = (
    ("user",),
    ("client-id",),
    ("user", "client-id"),
    ("client-id", "user"),
    ("ip",),
    ("ip", "user"),
    (),
    ("user", "user"),
    ("planet",),
    ("",),
)
"""Types of the parts of an entity with quotas."""
PATTERNS = (None, "", "~x0", "~x.*", ".*", "[", "~x(?<n>0)", "(?i)~X0", "x{2,1}", "~x\\d", "~x[[:alpha:]]", "a\\Q")
STATES = ("Stable", "stable", "Empty", "PreparingRebalance", "Dead", "Assigning", "NotReady", "nonsense", "", "Unknown")


class AdminValues(Draws):
    """Draws requests; all of them come from one random source."""

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self._by_api: dict[str, Callable[[int], Message]] = {
            "create_topics": self._create_topics,
            "create_partitions": self._create_partitions,
            "alter_partition_reassignments": self._reassign,
            "list_partition_reassignments": self._list_reassignments,
            "elect_leaders": self._elect,
            "alter_replica_log_dirs": self._move,
            "describe_log_dirs": self._log_dirs,
            "describe_configs": self._describe_configs,
            "incremental_alter_configs": self._alter_configs,
            "alter_client_quotas": self._alter_quotas,
            "describe_client_quotas": self._describe_quotas,
            "list_transactions": self._list_transactions,
            "list_groups": self._list_groups,
            "find_coordinator": self._find_coordinator,
            "describe_topic_partitions": self._describe_partitions,
            "describe_cluster": lambda v: describe_cluster.DescribeClusterRequest(
                include_cluster_authorized_operations=self._chance(),
                endpoint_type=self._pick((1, 1, 2, 0, 3, -1)) if v >= 1 else 1,
                include_fenced_brokers=v >= 2 and self._chance(),
            ),
            "describe_quorum": self._describe_quorum,
            "describe_acls": self._describe_acls,
            "unregister_broker": lambda v: unregister_broker.UnregisterBrokerRequest(
                broker_id=self._pick((2, -1, 9999, 2**31 - 1))
            ),
        }

    def request(self, api: str, version: int) -> Message | None:
        """A request of an API that is one of these, otherwise None."""
        draw = self._by_api.get(api)
        return draw(version) if draw is not None else None

    def _some(self, values: Any, counts: tuple[int, ...] = (1, 1, 1, 2, 3, 0)) -> list[Any]:
        return [self._pick(values) for _ in range(self._pick(counts))]

    def _indexes(self) -> list[int]:
        return self._some((0, 0, 1, 2, 9, -1))

    def _named(self, topic_class: Any, name: str, indexes: str) -> list[Any]:
        return [topic_class(**{name: topic, indexes: self._indexes()}) for topic in self._some(TOPICS)]

    def _create_topics(self, version: int) -> Message:
        m = create_topics
        topics = []
        for name in self._some(("~t2", "~t3", "~t4", "~t0", "~t_0", "~t.0", "", "..", "__consumer_offsets", "x" * 250)):
            is_manual = self._chance()
            rest = self._chance(0.8)
            topics.append(
                m.CreatableTopic(
                    name=name,
                    num_partitions=self._pick((-1,) if is_manual and rest else (1, 2, 0, -1, -2, 3)),
                    replication_factor=self._pick((-1,) if is_manual and rest else (1, 1, -1, 0, 2, -2)),
                    assignments=[
                        m.CreatableReplicaAssignment(
                            partition_index=number if self._chance(0.8) else self._pick((0, 1, 2, -1)),
                            broker_ids=list(self._pick(REPLICAS)),
                        )
                        for number in range(self._pick((1, 1, 2, 3)))
                    ]
                    if is_manual
                    else [],
                    configs=[
                        m.CreatableTopicConfig(name=key, value=value)
                        for key, value in self._some(CONFIGS[2], (0, 0, 1, 2, 2))
                    ],
                )
            )
        return m.CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=version >= 1 and self._chance(0.3))

    def _create_partitions(self, version: int) -> Message:
        m = create_partitions
        topics = [
            m.CreatePartitionsTopic(
                name=name,
                count=self._pick((3, 3, 4, 2, 1, 0, -1)),
                assignments=self._pick((None, True))
                and [
                    m.CreatePartitionsAssignment(broker_ids=list(self._pick(REPLICAS)))
                    for _ in range(self._pick((1, 1, 2, 0)))
                ],
            )
            for name in self._some(TOPICS)
        ]
        return m.CreatePartitionsRequest(topics=topics, timeout_ms=10_000, validate_only=self._chance(0.7))

    def _reassign(self, version: int) -> Message:
        m = alter_partition_reassignments
        topics = [
            m.ReassignableTopic(
                name=name,
                partitions=[
                    m.ReassignablePartition(
                        partition_index=index, replicas=self._pick((None, *(list(each) for each in REPLICAS)))
                    )
                    for index in self._indexes()
                ],
            )
            for name in self._some(TOPICS)
        ]
        request = m.AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=10_000)
        if version >= 1:
            request.allow_replication_factor_change = self._chance()
        return request

    def _list_reassignments(self, version: int) -> Message:
        m = list_partition_reassignments
        topics = None
        if self._chance(0.8):
            topics = self._named(m.ListPartitionReassignmentsTopics, "name", "partition_indexes")
        return m.ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=topics)

    def _elect(self, version: int) -> Message:
        m = elect_leaders
        request = m.ElectLeadersRequest(
            topic_partitions=self._named(m.TopicPartitions, "topic", "partitions"), timeout_ms=10_000
        )
        if version >= 1:
            request.election_type = self._pick((0, 0, 1, 2, -1))
        return request

    def _move(self, version: int) -> Message:
        m = alter_replica_log_dirs
        dirs = [
            m.AlterReplicaLogDir(path=path, topics=self._named(m.AlterReplicaLogDirTopic, "name", "partitions"))
            for path in self._some(("/nowhere", "", "relative", "/nowhere/", "any"))
        ]
        return m.AlterReplicaLogDirsRequest(dirs=dirs)

    def _log_dirs(self, version: int) -> Message:
        m = describe_log_dirs
        topics = self._named(m.DescribableLogDirTopic, "topic", "partitions") if self._chance(0.8) else None
        return m.DescribeLogDirsRequest(topics=topics)

    def _resource(self) -> tuple[int, str]:
        kind = self._pick((2, 2, 4, 4, 8, 16, 32, 32, 0, 1, 3, 64, -1))
        return kind, self._pick(RESOURCE_NAMES.get(kind, ("x", "")))

    def _describe_configs(self, version: int) -> Message:
        m = describe_configs
        resources = []
        for _ in range(self._pick((1, 1, 2, 3, 0))):
            kind, name = self._resource()
            keys = [self._pick(CONFIGS.get(kind, (("x", ""),)))[0] for _ in range(self._pick((1, 2, 3)))]
            if kind in (2, 16, 32) and self._chance():
                keys = self._pick((None, []))
            if kind == 8:
                keys = ["nonsense"]
            if kind == 4:
                keys = [key for key in keys if "listeners" not in key] or ["node.id"]
            resources.append(m.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys))
        request = m.DescribeConfigsRequest(resources=resources)
        if version >= 1:
            request.include_synonyms = self._chance()
        return request

    def _alter_configs(self, version: int) -> Message:
        m = incremental_alter_configs
        resources = []
        for _ in range(self._pick((1, 1, 1, 2))):
            kind, name = self._resource()
            configs = [
                m.AlterableConfig(
                    name=key,
                    config_operation=self._pick((0, 0, 0, 1, 2, 3, 2, 3)),
                    value=value if self._chance(0.95) else None,
                )
                for key, value in self._some(CONFIGS.get(kind, (("x", "y"),)), (1, 1, 1, 2, 0))
            ]
            resources.append(m.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs))
        return m.IncrementalAlterConfigsRequest(resources=resources, validate_only=self._chance(0.3))

    def _alter_quotas(self, version: int) -> Message:
        m = alter_client_quotas
        entries = []
        for _ in range(self._pick((1, 1, 1, 2))):
            entity = []
            for kind in self._pick(ENTITIES):
                names: tuple[str | None, ...] = ("~u", "~u", "", None, "a b", "*", "<default>")
                if kind == "ip":
                    names = ("10.9.8.7", "10.9.8.7", "::1", "nonsense", "300.1.1.1", "", None, "localhost", "10.9.8")
                entity.append(m.EntityData(entity_type=kind, entity_name=self._pick(names)))
            ops = [
                m.OpData(
                    key=self._pick(QUOTA_KEYS),
                    value=self._pick(
                        (1.0, 100.0, 0.5, 0.0, -1.0, 1e18, 1e19, float("inf"), float("nan"), 1024.00000001)
                    ),
                    remove=self._chance(0.25),
                )
                for _ in range(self._pick((1, 1, 2, 0)))
            ]
            entries.append(m.EntryData(entity=entity, ops=ops))
        return m.AlterClientQuotasRequest(entries=entries, validate_only=self._chance(0.2))

    def _describe_quotas(self, version: int) -> Message:
        m = describe_client_quotas
        components = [
            m.ComponentData(
                entity_type=kind,
                match_type=self._pick((0, 0, 1, 2, 3, -1)),
                match=self._pick(("~u", "~u", None, "", "10.9.8.7", "nonsense")),
            )
            for kind in self._pick(ENTITIES)
        ]
        return m.DescribeClientQuotasRequest(components=components, strict=self._chance())

    def _list_transactions(self, version: int) -> Message:
        states = ("Ongoing", "Empty", "PrepareCommit", "CompleteCommit", "Dead", "ongoing", "nonsense", "")
        request = list_transactions.ListTransactionsRequest(
            state_filters=self._some(states, (0, 0, 1, 2)), producer_id_filters=self._some((0, -1, 5), (0, 0, 0, 1, 2))
        )
        if version >= 1:
            request.duration_filter = self._pick((-1, -1, 0, 100_000_000, -2))
        if version >= 2:
            request.transactional_id_pattern = self._pick(PATTERNS)
        return request

    def _list_groups(self, version: int) -> Message:
        request = list_groups.ListGroupsRequest()
        if version >= 4:
            request.states_filter = self._some(STATES, (0, 0, 1, 2))
        if version >= 5:
            types = ("classic", "Consumer", "SHARE", "streams", "nonsense", "", "unknown")
            request.types_filter = self._some(types, (0, 0, 1, 2))
        return request

    def _find_coordinator(self, version: int) -> Message:
        kind = self._pick((0, 1, 2, 2, 3, -1)) if version >= 1 else 0
        names = (
            "~g0",
            "",
            "~g0:x:0",
            "~g0:AAAAAAAAAAAAAAAAAAAABg:0",
            "~g0:AAAAAAAAAAAAAAAAAAAABg:-1",
            "~g0:AAAAAAAAAAAAAAAAAAAABg:x",
            "~g0:AAAAAAAAAAAAAAAAAAAABg",
            ":AAAAAAAAAAAAAAAAAAAABg:0",
            "a:b:AAAAAAAAAAAAAAAAAAAABg:0",
            "~g0:AAAAAAAAAAAAAAAAAAAABg: 1",
            "~g0:AAAAAAAAAAAAAAAAAAAABg:00",
        )
        if version >= 4:
            return find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=self._some(names))
        return find_coordinator.FindCoordinatorRequest(key_type=kind, key=self._pick(names))

    def _describe_partitions(self, version: int) -> Message:
        m = describe_topic_partitions
        names = self._some(("~t0", "~t1", "~none", "a b", "~t0"), (1, 2, 3, 4))
        cursor = None
        if self._chance():
            cursor = m.Cursor(
                topic_name=self._pick(("~t0", "~t1", "~none", "~t00", "~a", "", "a b")),
                partition_index=self._pick((0, 1, 2, 9, -1)),
            )
        return m.DescribeTopicPartitionsRequest(
            topics=[m.TopicRequest(name=name) for name in names],
            response_partition_limit=self._pick((2000, 1, 2, 3, 0, -1)),
            cursor=cursor,
        )

    def _describe_quorum(self, version: int) -> Message:
        m = describe_quorum
        topics = [
            m.TopicData(topic_name=name, partitions=[m.PartitionData(partition_index=i) for i in self._indexes()])
            for name in self._some(("__cluster_metadata", "__cluster_metadata", "~t0", ""))
        ]
        return m.DescribeQuorumRequest(topics=topics)

    def _describe_acls(self, version: int) -> Message:
        return describe_acls.DescribeAclsRequest(
            resource_type_filter=self._pick((*range(9), -1)),
            resource_name_filter=self._pick((None, "~t0", "", "kafka-cluster")),
            pattern_type_filter=self._pick((0, 1, 2, 3, 4, 5, -1)) if version >= 1 else 3,
            principal_filter=self._pick((None, "User:~a", "", "~a", "User:", "User")),
            host_filter=self._pick((None, "*", "", "x")),
            operation=self._pick((*range(17), -1)),
            permission_type=self._pick((0, 1, 2, 3, 4, -1)),
        )
