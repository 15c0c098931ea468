"""The requests of the admin transcript: good and bad arguments, in every version where they make a difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    init_producer_id,
    list_config_resources,
    list_partition_reassignments,
    metadata,
    unregister_broker,
    update_features,
)
from pykbroker.protocol.messages import alter_configs as replacing
from pykbroker.protocol.messages import incremental_alter_configs as editing

PAUSE = None
"""Between a change and a question about it."""

KAFKA_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:29193",
    "listeners": "PLAINTEXT://127.0.0.1:29192,CONTROLLER://127.0.0.1:29193",
    "advertised.listeners": "PLAINTEXT://127.0.0.1:29192",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "log.dirs": "/var/lib/kafka",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "2",
    "log.segment.bytes": "2097152",
    "log.roll.ms": "7200000",
    "message.max.bytes": "01048588",
    "unknown.key": "foo",
    "listener.name.plaintext.ssl.keystore.password": "abc",
}
"""The broker's settings while it was recorded; those of the replay are the same."""

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Request = tuple[int, Message]
Step = Request | None
Edit = tuple[int, str, str | None]


def admin_requests() -> Iterator[Step]:
    """(version, request) pairs and pauses, in the order in which they are to be sent."""
    yield from _creations()
    yield from _metadata()
    yield from _cluster()
    yield from _pages()
    yield from _descriptions()
    yield from _topic_edits()
    yield from _broker_edits()
    yield from _replacements()
    yield from _groups_and_metrics()
    yield from _partitions()
    yield from _quorum_and_features()
    yield from _producer_ids()
    yield from _security()
    yield from _deletions()
    yield from _elections()
    yield from _reassignments()
    yield from _quotas()
    yield from _credentials()
    yield 0, unregister_broker.UnregisterBrokerRequest(broker_id=9)
    yield 0, unregister_broker.UnregisterBrokerRequest(broker_id=-1)


def _create(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    configs: Sequence[tuple[str, str | None]] = (),
    assignments: Sequence[tuple[int, list[int]]] = (),
    *,
    times: int = 1,
    validate_only: bool = False,
) -> Message:
    topic = create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in assignments
        ],
        configs=[create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )
    return create_topics.CreateTopicsRequest(topics=[topic] * times, timeout_ms=5000, validate_only=validate_only)


def _creations() -> Iterator[Step]:
    for version in range(2, 8):
        yield version, _create(f"made-in-{version}", 2)
        yield version, _create(f"made-in-{version}", 2)
    yield 7, _create("a", 3)
    yield 7, _create("b", 1, 1, [("retention.ms", "1000"), ("cleanup.policy", "compact,delete")])
    yield 7, _create("d.x")
    yield 7, _create("d_x")
    for name in ("", ".", "..", "n" * 250, "bad/name", "with space", "__cluster_metadata", "ü"):
        yield 7, _create(name)
    for partitions, factor in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (-1, -1), (20000, 1)):
        for version in (3, 7):
            yield version, _create("counts", partitions, factor, validate_only=True)
    manual: tuple[list[tuple[int, list[int]]], ...] = (
        [(0, [1])],
        [(0, [1]), (1, [1])],
        [(1, [1])],
        [(0, [1, 1])],
        [(0, [])],
        [(0, [7])],
        [(0, [1]), (0, [1])],
        [(0, [1]), (2, [1])],
    )
    for assignments in manual:
        yield 7, _create("assigned", -1, -1, assignments=assignments, validate_only=True)
    yield 7, _create("assigned", 1, -1, assignments=[(0, [1])], validate_only=True)
    yield 7, _create("assigned", -1, 1, assignments=[(0, [1])], validate_only=True)
    for key, value in _TOPIC_CONFIGS:
        yield 5, _create("configured", 1, 1, [(key, value)], validate_only=True)
    yield 7, _create("twice", times=2, validate_only=True)
    yield 7, create_topics.CreateTopicsRequest(topics=[], timeout_ms=5000)


_TOPIC_CONFIGS: tuple[tuple[str, str | None], ...] = (
    ("no.such.key", "1"),
    ("retention.ms", "soon"),
    ("retention.ms", "-2"),
    ("retention.ms", None),
    ("retention.ms", ""),
    ("retention.ms", " 7 "),
    ("retention.ms", "9223372036854775808"),
    ("cleanup.policy", "shred"),
    ("segment.bytes", "1"),
    ("segment.ms", "0"),
    ("compression.gzip.level", "0"),
    ("compression.zstd.level", "23"),
    ("preallocate", "1"),
    ("max.compaction.lag.ms", "0"),
    ("max.message.bytes", "-1"),
    ("remote.storage.enable", "true"),
    ("min.cleanable.dirty.ratio", "2"),
    ("min.cleanable.dirty.ratio", "x"),
    ("leader.replication.throttled.replicas", "x"),
    ("message.timestamp.type", "foo"),
    ("message.format.version", "3.0"),
    ("internal.segment.bytes", "100"),
)


def _ask(*names: str, **options: Any) -> Message:
    topics = [metadata.MetadataRequestTopic(name=name) for name in names]
    return metadata.MetadataRequest(topics=topics, **options)


def _metadata() -> Iterator[Step]:
    yield PAUSE
    for version in range(14):
        quiet = {"allow_auto_topic_creation": False} if version >= 4 else {}
        yield version, _ask("a", "b", **quiet)
        yield version, _ask("bad/name", **quiet)
        if version:
            yield version, metadata.MetadataRequest(topics=[])
            yield version, metadata.MetadataRequest(topics=None)
        if version >= 4:
            yield version, _ask("nope", **quiet)
        if 8 <= version <= 10:
            yield version, _ask("a", "zz", include_cluster_authorized_operations=True, **quiet)
        if version >= 8:
            yield version, _ask("a", "zz", include_topic_authorized_operations=True, **quiet)
    for version in (10, 12, 13):
        unknown = metadata.MetadataRequestTopic(name=None, topic_id=b"x" * 16)
        yield version, metadata.MetadataRequest(topics=[unknown])
        yield version, metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=None)])
    for version, name in ((12, "automatic"), (1, "automatic-too"), (9, "d_x"), (9, "__cluster_metadata")):
        yield version, _ask(name)
        yield PAUSE
        yield version, _ask(name)


def _cluster() -> Iterator[Step]:
    for version in range(3):
        yield version, describe_cluster.DescribeClusterRequest()
        yield version, describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)
    for kind in range(4):
        yield 1, describe_cluster.DescribeClusterRequest(endpoint_type=kind)
    yield 2, describe_cluster.DescribeClusterRequest(include_fenced_brokers=True)


def _pages() -> Iterator[Step]:
    cursor: tuple[str, int] | None

    def page(names: Sequence[str], limit: int, cursor: tuple[str, int] | None = None) -> Request:
        return 0, describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None
            if cursor is None
            else describe_topic_partitions.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )

    for names in (["b", "a"], ["a", "nope"], ["bad/x"], ["a", "a"]):
        for limit in (2000, 2, 0, -1, 3, 4):
            yield page(names, limit)
    for cursor in (("a", 1), ("a", 3), ("a", 9), ("a", -1), ("aa", 0), ("b", 0), ("zzz", 0)):
        yield page(["a", "b"], 2, cursor)


def _describe(kind: int, name: str, keys: list[str] | None = None, synonyms: bool = True) -> Message:
    resource = describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)


def _descriptions() -> Iterator[Step]:
    yield 7, _create("q", 3, 1, [("retention.bytes", "0100"), ("preallocate", "FALSE")])
    yield PAUSE
    yield 1, _describe(TOPIC, "q", synonyms=False)
    yield 4, _describe(TOPIC, "q")
    yield 4, _describe(BROKER, "1")
    yield 4, _describe(BROKER, "")
    for keys in (["retention.ms", "nope"], ["segment.ms"], ["retention.bytes", "flush.ms"]):
        yield 4, _describe(TOPIC, "q", keys)
    for kind, name in (
        (TOPIC, ""),
        (TOPIC, "nope"),
        (TOPIC, "bad/x"),
        (BROKER, "2"),
        (BROKER, "x"),
        (BROKER_LOGGER, ""),
        (BROKER_LOGGER, "2"),
        (BROKER_LOGGER, "x"),
        (CLIENT_METRICS, ""),
        (CLIENT_METRICS, "m"),
        (GROUP, ""),
        (GROUP, "g"),
        (0, "x"),
        (3, "x"),
        (64, "x"),
    ):
        yield 4, _describe(kind, name)


def _edit(kind: int, name: str, *edits: Edit, times: int = 1, validate_only: bool = False) -> Message:
    resource = editing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            editing.AlterableConfig(name=key, config_operation=operation, value=value)
            for operation, key, value in edits
        ],
    )
    return editing.IncrementalAlterConfigsRequest(resources=[resource] * times, validate_only=validate_only)


def _topic_edits() -> Iterator[Step]:
    edits: tuple[tuple[Edit, ...], ...] = (
        ((SET, "retention.ms", "5"),),
        ((SET, "retention.ms", "5"),),
        ((APPEND, "cleanup.policy", "compact"),),
        ((APPEND, "cleanup.policy", "compact"),),
        ((SUBTRACT, "cleanup.policy", "delete"),),
        ((SUBTRACT, "cleanup.policy", "compact"),),
        ((DELETE, "cleanup.policy", None),),
        ((DELETE, "segment.ms", "x"),),
        ((SUBTRACT, "cleanup.policy", "compact"),),
        ((APPEND, "retention.ms", "1"),),
        ((SUBTRACT, "retention.ms", "1"),),
        ((APPEND, "nope", "1"),),
        ((SET, "nope", "1"),),
        ((DELETE, "nope", None),),
        ((SET, "retention.ms", None),),
        ((SET, "retention.ms", "x"),),
        ((SET, "retention.ms", "1"), (SET, "retention.ms", "2")),
        ((SET, "segment.ms", "7"), (SET, "nope", "2")),
        ((APPEND, "leader.replication.throttled.replicas", "0:1,1:1"),),
        ((SET, "cleanup.policy", " compact , delete "),),
        ((APPEND, "cleanup.policy", "x"),),
    )
    for each in edits:
        yield 1, _edit(TOPIC, "q", *each)
        yield PAUSE
        yield 4, _describe(TOPIC, "q", sorted({key for _, key, _ in each}))
    for name in ("", "nope", "bad/x"):
        yield 1, _edit(TOPIC, name, (SET, "retention.ms", "5"))
    yield 1, _edit(TOPIC, "q")
    for kind in (0, 7):
        yield 1, _edit(kind, "q", (SET, "a", "b"))
    yield 1, _edit(TOPIC, "q", (SET, "retention.ms", "9"), times=2)
    yield 1, _edit(TOPIC, "q", (SET, "retention.ms", "77"), validate_only=True)
    yield PAUSE
    yield 4, _describe(TOPIC, "q", ["retention.ms"])


def _broker_edits() -> Iterator[Step]:
    edits: tuple[Edit, ...] = (
        (SET, "message.max.bytes", "5000"),
        (SET, "log.retention.ms", "99999"),
        (SET, "num.partitions", "5"),
        (SET, "ssl.keystore.location", "/x"),
        (SET, "message.max.bytes", "x"),
        (SET, "message.max.bytes", "-5"),
        (APPEND, "log.cleanup.policy", "compact"),
        (SUBTRACT, "log.cleanup.policy", "delete"),
        (DELETE, "log.cleanup.policy", None),
        (APPEND, "message.max.bytes", "1"),
        (SET, "my.key", "v"),
        (APPEND, "my.key", "w"),
        (DELETE, "my.key", None),
        (SET, "log.cleaner.threads", "1"),
        (9, "log.cleaner.threads", "2"),
        (SET, "leader.replication.throttled.rate", "1000"),
        (DELETE, "leader.replication.throttled.rate", None),
        (SET, "log.roll.ms", "3"),
        (SET, "log.segment.bytes", "1048577"),
        (SET, "listener.name.external.ssl.keystore.type", "PKCS12"),
    )
    keys = ["message.max.bytes", "log.retention.ms", "log.retention.hours", "log.roll.ms", "my.key"]
    for name in ("1", "", "2", "x", "-1"):
        for edit in edits:
            yield 1, _edit(BROKER, name, edit)
        yield PAUSE
        yield 4, _describe(BROKER, name)
        yield 4, _describe(BROKER, "1", keys)
        yield 4, _describe(TOPIC, "q", ["retention.ms", "segment.ms", "max.message.bytes", "cleanup.policy"])
    yield 7, _create("m", 1, 1)


def _replace(kind: int, name: str, *configs: tuple[str, str | None]) -> Message:
    resource = replacing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[replacing.AlterableConfig(name=key, value=value) for key, value in configs],
    )
    return replacing.AlterConfigsRequest(resources=[resource])


def _replacements() -> Iterator[Step]:
    for name in ("1", ""):
        yield 2, _replace(BROKER, name, ("max.connections", "1000"))
        yield PAUSE
        yield 4, _describe(BROKER, name, ["max.connections", "message.max.bytes"])
        yield 2, _replace(BROKER, name, ("num.partitions", "1"))
        yield 2, _replace(BROKER, name)
    replacements: tuple[tuple[tuple[str, str | None], ...], ...] = (
        (),
        (("retention.ms", "5"),),
        (("retention.ms", None),),
        (("nope", "1"),),
        (("retention.ms", "5"), ("retention.ms", "6")),
        (("segment.ms", "x"),),
    )
    for configs in replacements:
        yield 2, _replace(TOPIC, "q", *configs)
        yield PAUSE
        yield 4, _describe(TOPIC, "q", ["retention.ms", "cleanup.policy"])
    for kind, name in ((TOPIC, ""), (TOPIC, "nope"), (8, "1"), (7, "x"), (16, "m"), (16, ""), (32, "g"), (32, "")):
        yield 2, _replace(kind, name, ("retention.ms", "1"))


def _groups_and_metrics() -> Iterator[Step]:
    for name in ("g", ""):
        for key, value in (
            ("consumer.session.timeout.ms", "50000"),
            ("consumer.session.timeout.ms", "1"),
            ("consumer.heartbeat.interval.ms", "50000"),
            ("consumer.heartbeat.interval.ms", "6000"),
            ("nope", "1"),
            ("share.auto.offset.reset", "earliest"),
            ("share.auto.offset.reset", "x"),
            ("share.isolation.level", "x"),
            ("streams.num.standby.replicas", "3"),
            ("share.record.lock.duration.ms", "1000"),
        ):
            yield 1, _edit(GROUP, name, (SET, key, value))
        yield PAUSE
        yield 4, _describe(GROUP, name)
    for name in ("m", ""):
        for key, value in (
            ("interval.ms", "1000"),
            ("interval.ms", "1"),
            ("nope", "1"),
            ("match", "client_id=a.*"),
            ("match", "x"),
            ("match", "client_id=["),
            ("metrics", "a.b,c"),
        ):
            yield 1, _edit(CLIENT_METRICS, name, (SET, key, value))
        yield 1, _edit(CLIENT_METRICS, name, (APPEND, "metrics", "d"))
        yield PAUSE
        yield 4, _describe(CLIENT_METRICS, name)
    yield 0, list_config_resources.ListConfigResourcesRequest()
    for types in ([], [16], [2], [4, 8], [32], [1], [2, 4, 8, 16, 32]):
        yield 1, list_config_resources.ListConfigResourcesRequest(resource_types=types)
    for name, edit in (
        ("1", (SET, "nope", "INFO")),
        ("1", (SET, "root", "LOUD")),
        ("1", (DELETE, "root", None)),
        ("1", (APPEND, "root", "INFO")),
        ("2", (SET, "root", "INFO")),
        ("", (SET, "root", "INFO")),
    ):
        yield 1, _edit(BROKER_LOGGER, name, edit)


def _grow(name: str, count: int, assignments: list[list[int]] | None = None, *, validate_only: bool = True) -> Message:
    topic = create_partitions.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [create_partitions.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
    )
    return create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=5000, validate_only=validate_only)


def _partitions() -> Iterator[Step]:
    for name, count in (("q", 2), ("q", 3), ("q", 0), ("q", -1), ("nope", 5), ("bad/x", 5)):
        yield 0, _grow(name, count)
    placed: tuple[tuple[int, list[list[int]]], ...] = ((5, [[1]]), (4, [[2]]), (4, [[1, 1]]), (4, [[]]))
    for count, assignments in placed:
        yield 3, _grow("q", count, assignments)
    yield 3, _grow("q", 4, validate_only=False)
    yield PAUSE
    yield 12, _ask("q")
    everything = list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)
    yield 0, everything
    for name in ("q", "nope"):
        topic = list_partition_reassignments.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0])
        yield 0, list_partition_reassignments.ListPartitionReassignmentsRequest(topics=[topic])


def _quorum_and_features() -> Iterator[Step]:
    for version in range(3):
        for name, partition in (("__cluster_metadata", 1), ("q", 0)):
            topic = describe_quorum.TopicData(
                topic_name=name, partitions=[describe_quorum.PartitionData(partition_index=partition)]
            )
            yield version, describe_quorum.DescribeQuorumRequest(topics=[topic])
        yield version, describe_quorum.DescribeQuorumRequest(topics=[])
    for version in (1, 2):
        for name, level, kind in (
            ("metadata.version", 30, 1),
            ("metadata.version", 29, 1),
            ("metadata.version", 29, 2),
            ("metadata.version", 7, 3),
            ("metadata.version", 99, 1),
            ("metadata.version", 0, 2),
            ("nope", 1, 1),
            ("nope", 0, 2),
            ("metadata.version", 30, 0),
            ("metadata.version", 30, 9),
            ("metadata.version", -1, 1),
        ):
            update = update_features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            yield version, update_features.UpdateFeaturesRequest(feature_updates=[update], validate_only=True)
    yield 0, update_features.UpdateFeaturesRequest(feature_updates=[])


def _producer_ids() -> Iterator[Step]:
    for version in range(6):
        for transactional_id, timeout_ms in ((None, 0), (None, 60000), ("", 60000), ("t", 0), ("t", -1), ("t", 900001)):
            yield (
                version,
                init_producer_id.InitProducerIdRequest(
                    transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
                ),
            )
        if version >= 3:
            for producer_id, epoch in ((5, -1), (-1, 5), (5, 5)):
                yield (
                    version,
                    init_producer_id.InitProducerIdRequest(
                        transactional_id=None, producer_id=producer_id, producer_epoch=epoch
                    ),
                )


def _security() -> Iterator[Step]:
    for version in (1, 2, 3):
        for number in (1, 0):
            acl_filter: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
            acl_filter |= {"operation": number, "permission_type": number, "resource_type_filter": number}
            acl_filter |= {"pattern_type_filter": 3 if version == 1 else number}
            yield version, describe_acls.DescribeAclsRequest(**acl_filter)
            yield version, delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**acl_filter)])
        acl = create_acls.AclCreation(
            resource_type=2, resource_name="x", principal="User:a", host="*", operation=3, permission_type=3
        )
        yield version, create_acls.CreateAclsRequest(creations=[acl, acl])
    for components in (
        [],
        [("user", 0, "x")],
        [("user", 1, None)],
        [("user", 2, None)],
        [("", 0, "x")],
        [("planet", 0, "x")],
        [("user", 0, None)],
        [("user", 1, "x")],
        [("user", 2, "x")],
        [("user", 9, "x")],
        [("ip", 2, None), ("user", 2, None)],
        [("user", 0, "x"), ("user", 0, "y")],
    ):
        for strict in (False, True):
            yield (
                1,
                describe_client_quotas.DescribeClientQuotasRequest(
                    components=[
                        describe_client_quotas.ComponentData(entity_type=kind, match_type=how, match=name)
                        for kind, how, name in components
                    ],
                    strict=strict,
                ),
            )
    for names in (None, [], ["a"], ["a", "a"], [""]):
        users = None if names is None else [describe_user_scram_credentials.UserName(name=name) for name in names]
        yield 0, describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=users)


def _deletions() -> Iterator[Step]:
    for version in range(1, 6):
        yield version, delete_topics.DeleteTopicsRequest(topic_names=["nope", "nope-too"], timeout_ms=5000)
        yield version, delete_topics.DeleteTopicsRequest(topic_names=["a", "a"], timeout_ms=5000)
    state = delete_topics.DeleteTopicState
    for states in (
        [state(name="nope"), state(topic_id=b"x" * 16), state(name="a", topic_id=b"y" * 16), state()],
        [state(topic_id=b"x" * 16), state(topic_id=b"x" * 16)],
        [state(name="a"), state(name="b")],
    ):
        yield 6, delete_topics.DeleteTopicsRequest(topics=states, timeout_ms=5000)
    yield PAUSE
    yield 12, _ask("a", "b", allow_auto_topic_creation=False)


def _elections() -> Iterator[Step]:
    """P-156."""
    yield 7, _create("elected", 2)
    yield PAUSE
    asked = [_partitions_of("elected", 0, 1, 2), _partitions_of("missing", 0)]
    for version in (0, 1, 2):
        for topics in (asked, [], None):
            yield version, elect_leaders.ElectLeadersRequest(topic_partitions=topics, timeout_ms=5000)
    for election_type in (1, 2, -1):
        for topics in (asked, [], None):
            yield (
                2,
                elect_leaders.ElectLeadersRequest(
                    election_type=election_type, topic_partitions=topics, timeout_ms=5000
                ),
            )
    twice = [_partitions_of("elected", 0), _partitions_of("elected", 0, 0), _partitions_of("elected")]
    yield 2, elect_leaders.ElectLeadersRequest(topic_partitions=twice, timeout_ms=5000)


def _partitions_of(topic: str, *partitions: int) -> elect_leaders.TopicPartitions:
    return elect_leaders.TopicPartitions(topic=topic, partitions=list(partitions))


def _reassignments() -> Iterator[Step]:
    """P-157."""
    everything: tuple[list[tuple[str, list[tuple[int, list[int] | None]]]], ...] = (
        [],
        [("elected", [(0, [1]), (1, None), (2, [1]), (3, None)])],
        [("missing", [(0, [1]), (1, None)])],
        [("elected", [(0, []), (1, [1, 1])])],
        [("elected", [(0, [2]), (1, [1, 2]), (1, [-1])])],
        [("elected", []), ("elected", [(0, [1]), (0, [1])]), ("", [(0, [1])])],
    )
    for version, may_change in ((0, True), (1, True), (1, False)):
        for topics in everything:
            yield (
                version,
                alter_partition_reassignments.AlterPartitionReassignmentsRequest(
                    timeout_ms=5000,
                    allow_replication_factor_change=may_change,
                    topics=[_reassigned(name, partitions) for name, partitions in topics],
                ),
            )
    yield 0, list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None, timeout_ms=5000)


def _reassigned(
    name: str, partitions: list[tuple[int, list[int] | None]]
) -> alter_partition_reassignments.ReassignableTopic:
    return alter_partition_reassignments.ReassignableTopic(
        name=name,
        partitions=[
            alter_partition_reassignments.ReassignablePartition(partition_index=number, replicas=replicas)
            for number, replicas in partitions
        ],
    )


Quotas = tuple[list[tuple[str, str | None]], list[tuple[str, float | None]]]
"""An entity as (type, name) pairs, and what becomes of its quotas: None deletes one."""


def _one_quota(entity_type: str, name: str, key: str, value: float) -> Quotas:
    return [(entity_type, name)], [(key, value)]


_QUOTAS: tuple[list[Quotas], ...] = (
    [],
    [
        ([("user", "u")], [("producer_byte_rate", 10.0), ("request_percentage", 0.5)]),
        ([("user", "u"), ("client-id", None)], [("consumer_byte_rate", 3.0)]),
    ],
    [([("client-id", "c"), ("user", None)], [("controller_mutation_rate", 1.5)])],
    [([("ip", "127.0.0.1")], [("connection_creation_rate", 5.0)])],
    [([("ip", None)], [("connection_creation_rate", 6.0)]), ([("ip", "::1")], [("connection_creation_rate", 1.0)])],
    [([("user", "u")], [("producer_byte_rate", None), ("nope", None)])],
    [([], [("producer_byte_rate", 1.0)])],
    [([("planet", "x")], [("producer_byte_rate", 1.0)]), ([("user", "")], [("producer_byte_rate", 1.0)])],
    [([("ip", "")], [("connection_creation_rate", 1.0)])],
    [([("ip", "1.2.3.4"), ("user", "u")], [("connection_creation_rate", 1.0)])],
    [([("ip", "1.2.3.4"), ("user", "u"), ("client-id", "c")], [("connection_creation_rate", 1.0)])],
    *(
        [_one_quota("user", "v", key, value)]
        for key, value in (
            ("producer_byte_rate", 0.0),
            ("producer_byte_rate", -1.0),
            ("producer_byte_rate", 1.5),
            ("producer_byte_rate", 1e19),
            ("producer_byte_rate", 2.0**63),
            ("consumer_byte_rate", 1.0000001),
            ("request_percentage", 1e300),
            ("connection_creation_rate", 1.0),
            ("nope", 1.0),
        )
    ),
    *(
        [_one_quota("ip", "10.0.0.1", key, value)]
        for key, value in (
            ("connection_creation_rate", 2.0**31 - 1),
            ("connection_creation_rate", 2.0**31),
            ("connection_creation_rate", 1.5),
            ("producer_byte_rate", 1.0),
        )
    ),
    [([("user", "w")], [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)])],
    [([("user", "u"), ("client-id", None)], [("producer_byte_rate", value)]) for value in (1.0, 2.0)],
    [([("user", "x"), ("user", "y")], [("producer_byte_rate", 1.0)])],
    [([("user", "z")], [("producer_byte_rate", 1.0), ("nope", 1.0)]), ([("user", "zz")], [])],
)


def _quotas() -> Iterator[Step]:
    """P-160."""
    everything = describe_client_quotas.DescribeClientQuotasRequest()
    for number, entries in enumerate(_QUOTAS):
        # In the older version, and only to look, every now and then.
        for validate_only in (True, False) if number % 4 == 1 else (False,):
            yield (
                number % 2,
                alter_client_quotas.AlterClientQuotasRequest(
                    entries=[_quota(entity, quotas) for entity, quotas in entries], validate_only=validate_only
                ),
            )
            if number % 4 == 1:
                yield PAUSE
                yield 1, everything
    yield PAUSE
    yield 1, everything


def _quota(
    entity: list[tuple[str, str | None]], quotas: list[tuple[str, float | None]]
) -> alter_client_quotas.EntryData:
    return alter_client_quotas.EntryData(
        entity=[alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas],
    )


def _credentials() -> Iterator[Step]:
    """KIP-554."""
    changes: tuple[tuple[list[tuple[str, int]], list[tuple[str, int, int, bytes]]], ...] = (
        ([], []),
        ([], [("a", 1, 4096, b"p" * 32), ("b", 2, 16384, b"p" * 64)]),
        ([], [("a", 2, 4096, b"p"), ("a", 1, 4096, b"p")]),
        ([("a", 1), ("a", 1)], []),
        ([("a", 1)], [("a", 1, 4096, b"p"), ("a", 1, 4096, b"p")]),
        ([("a", 2), ("zz", 1), ("", 1), ("a9", 0), ("a8", 3)], []),
        ([], [("c", 1, 4095, b"p"), ("d", 1, 16385, b"p"), ("e", 0, 4096, b"p"), ("", 1, 4096, b"p")]),
        ([], [("f", 1, 4096, b"p"), ("g", 1, 4096, b""), ("h", -1, 4096, b"p")]),
        ([("a", 1)], [("b", 1, 4096, b"p")]),
    )
    for deletions, upsertions in changes:
        yield (
            0,
            alter_user_scram_credentials.AlterUserScramCredentialsRequest(
                deletions=[
                    alter_user_scram_credentials.ScramCredentialDeletion(name=name, mechanism=mechanism)
                    for name, mechanism in deletions
                ],
                upsertions=[
                    alter_user_scram_credentials.ScramCredentialUpsertion(
                        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=password
                    )
                    for name, mechanism, iterations, password in upsertions
                ],
            ),
        )
        yield PAUSE
        yield 0, describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None)
    users = [describe_user_scram_credentials.UserName(name=name) for name in ("b", "f", "nope")]
    yield 0, describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=users)
