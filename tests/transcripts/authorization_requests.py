"""The requests of the authorization transcript: users with few rights ask every API about what they may see and not.

Everything is asked of a topic, group and transactional id that some users have rights on (`open`, `g`, `x`), of others
that none has, and of what does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from pykbroker.protocol.acl_codes import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    ANY,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WRITE,
)
from pykbroker.protocol.fields import Message
from pykbroker.protocol.uuids import uuid_to_text
from pykbroker.requests.api_table import camel_case
from tests.support.data_path import batch

UNKNOWN_ID = bytes(15) + b"\x09"
EVERYBODY = "User:*"
ADMIN = "admin"

PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.retention.ms": "-1",
    "delegation.token.secret.key": "secret",
}
"""Settings of the recording and of the replay. The anonymous super user is Kafka itself, between broker and controller;
the records are from 2023."""

RIGHTS: Mapping[str, list[tuple[int, str, int, int, int]]] = {
    "nobody": [],
    "describer": [
        (TOPIC, "open", LITERAL, DESCRIBE, ALLOW),
        (TOPIC, "open", LITERAL, DESCRIBE_CONFIGS, ALLOW),
        (GROUP, "g", LITERAL, DESCRIBE, ALLOW),
        (GROUP, "share", LITERAL, DESCRIBE, ALLOW),
        (GROUP, "streams", LITERAL, DESCRIBE, ALLOW),
        (GROUP, "g", LITERAL, DESCRIBE_CONFIGS, ALLOW),
        (TRANSACTIONAL_ID, "x", LITERAL, DESCRIBE, ALLOW),
    ],
    "reader": [
        (TOPIC, "open", LITERAL, READ, ALLOW),
        (GROUP, "g", LITERAL, READ, ALLOW),
        (GROUP, "share", LITERAL, READ, ALLOW),
        (GROUP, "streams", LITERAL, READ, ALLOW),
    ],
    "writer": [(TOPIC, "op", PREFIXED, WRITE, ALLOW), (TRANSACTIONAL_ID, "x", PREFIXED, WRITE, ALLOW)],
    "creator": [(TOPIC, "new", PREFIXED, CREATE, ALLOW), (TOPIC, "new", PREFIXED, DESCRIBE, ALLOW)],
    "alterer": [
        (TOPIC, "open", LITERAL, ALTER, ALLOW),
        (TOPIC, "open", LITERAL, ALTER_CONFIGS, ALLOW),
        (GROUP, "g", LITERAL, ALTER_CONFIGS, ALLOW),
    ],
    "guide": [
        (CLUSTER, CLUSTER_NAME, LITERAL, DESCRIBE, ALLOW),
        (CLUSTER, CLUSTER_NAME, LITERAL, DESCRIBE_CONFIGS, ALLOW),
    ],
    "operator": [
        (CLUSTER, CLUSTER_NAME, LITERAL, operation, ALLOW)
        for operation in (ALTER, ALTER_CONFIGS, CLUSTER_ACTION, CREATE, IDEMPOTENT_WRITE)
    ],
    "witness": [(TOPIC, "gone", PREFIXED, DESCRIBE, ALLOW)],
    "deleter": [
        (TOPIC, "gone", PREFIXED, DELETE, ALLOW),
        (GROUP, "g", LITERAL, DELETE, ALLOW),
        (GROUP, "share", LITERAL, DELETE, ALLOW),
    ],
    "censored": [
        (TOPIC, "*", LITERAL, ALL, ALLOW),
        (GROUP, "*", LITERAL, ALL, ALLOW),
        (TOPIC, "hid", PREFIXED, DESCRIBE, DENY),
        (TOPIC, "open", LITERAL, DELETE, DENY),
        (GROUP, "other", LITERAL, READ, DENY),
    ],
}
"""(resource type, name, pattern type, operation, permission type) by user."""


class Step(NamedTuple):
    """One request of a user."""

    user: str
    version: int
    request: Message


PAUSE = None
"""Between a change and what depends on it."""


def message(api: str, kind: str, /, **fields: Any) -> Any:
    """A message class's instance by the names of its module and itself."""
    return getattr(import_module(f"pykbroker.protocol.messages.{api}"), kind)(**fields)


def request(api: str, /, **fields: Any) -> Any:
    return message(api, camel_case(api) + "Request", **fields)


def authorization_steps(ids: Mapping[str, bytes]) -> Iterator[Step | None]:
    """The steps in order; `ids` is to have the ids of topics from the answers so far."""
    yield from _setup(ids)
    for user in RIGHTS:
        for version, asked in _questions(ids, user):
            yield Step(user, version, asked)
        yield PAUSE
    for user in RIGHTS:
        for version, asked in _deletions(ids):
            yield Step(user, version, asked)
    yield PAUSE
    yield from _acls()


def _setup(ids: Mapping[str, bytes]) -> Iterator[Step | None]:
    names = ("open", "hidden", "gone-a", "gone-b")
    topics = [message("create_topics", "CreatableTopic", name=n, num_partitions=1, replication_factor=1) for n in names]
    yield Step(ADMIN, 7, request("create_topics", topics=topics, timeout_ms=10_000))
    yield PAUSE
    for kind, key in ((0, "g"), (1, "x")):
        yield Step(ADMIN, 4, request("find_coordinator", key_type=kind, coordinator_keys=[key]))
        yield PAUSE
    for _ in range(2):
        yield Step(ADMIN, 5, request("init_producer_id", transactional_id=None, transaction_timeout_ms=0))
        yield PAUSE
    yield Step(ADMIN, 12, _produce(["open", "hidden"], {}))
    for group in ("g", "other"):
        yield Step(ADMIN, 8, _offset_commit(group, {}))
    # A broker that is asked for a share partition's coordinator creates the topic of its state.
    yield Step(ADMIN, 6, request("find_coordinator", key_type=2, coordinator_keys=[_share_key(ids)]))
    yield PAUSE
    yield Step(ADMIN, 0, _alter_share_offsets("share", ["open"]))
    yield PAUSE
    creations = [
        creation(user, resource_type, name, pattern_type, operation, permission)
        for user, rights in RIGHTS.items()
        for resource_type, name, pattern_type, operation, permission in rights
    ]
    yield Step(ADMIN, 3, request("create_acls", creations=creations))
    yield PAUSE


def creation(user: str, resource_type: int, name: str, pattern_type: int, operation: int, permission: int) -> Any:
    return message(
        "create_acls",
        "AclCreation",
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern_type,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=permission,
    )


def _questions(ids: Mapping[str, bytes], user: str) -> Iterator[tuple[int, Any]]:
    yield from _data(ids, user)
    yield from _metadata(ids)
    yield from _groups(ids, user)
    yield from _topics()
    yield from _configs()
    yield from _cluster(user)
    yield from _tokens()
    yield from _transactions()
    # Last, with a pause behind: Kafka creates topics while it answers.
    topics = [message("metadata", "MetadataRequestTopic", name=name) for name in (f"new-{user}", f"auto-{user}")]
    yield 4, request("metadata", topics=topics, allow_auto_topic_creation=True)


TOPICS = ("open", "hidden", "missing")


def _produce(topics: Any, ids: Mapping[str, bytes], acks: int = 1, **fields: Any) -> Any:
    options = {"is_transactional": True, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    records = batch(1, **(options if fields else {}))
    data = [
        message(
            "produce",
            "TopicProduceData",
            name="" if ids else name,
            topic_id=ids.get(name, UNKNOWN_ID) if ids else bytes(16),
            partition_data=[message("produce", "PartitionProduceData", index=0, records=records)],
        )
        for name in topics
    ]
    return request("produce", acks=acks, timeout_ms=10_000, topic_data=data, **fields)


def _fetch(ids: Mapping[str, bytes], **fields: Any) -> Any:
    topics = [
        message(
            "fetch",
            "FetchTopic",
            topic="" if ids else name,
            topic_id=ids.get(name, UNKNOWN_ID) if ids else bytes(16),
            partitions=[message("fetch", "FetchPartition", partition=0, fetch_offset=0, partition_max_bytes=1)],
        )
        for name in TOPICS
    ]
    return request("fetch", topics=topics, max_bytes=1, session_epoch=-1, **fields)


def _data(ids: Mapping[str, bytes], user: str) -> Iterator[tuple[int, Any]]:
    yield 9, _produce(TOPICS, {})
    yield 13, _produce(TOPICS, ids)
    yield 9, _produce(TOPICS, {}, transactional_id="y")
    yield 9, _produce(TOPICS, {}, transactional_id=None)
    yield 4, _fetch({})
    yield 17, _fetch(ids)
    if user == "nobody":
        yield 4, _fetch({}, replica_id=1)
        yield 9, _produce(["hidden"], {}, acks=0)
    partition = message("list_offsets", "ListOffsetsPartition", partition_index=0, timestamp=-2)
    topics = [message("list_offsets", "ListOffsetsTopic", name=name, partitions=[partition]) for name in TOPICS]
    for version in (1, 10):
        yield version, request("list_offsets", topics=topics)
    api = "offset_for_leader_epoch"
    asked = message(api, "OffsetForLeaderPartition", partition=0, leader_epoch=0)
    epochs = [message(api, "OffsetForLeaderTopic", topic=name, partitions=[asked]) for name in TOPICS]
    yield 4, request(api, topics=epochs, replica_id=-1)
    api = "delete_records"
    gone = message(api, "DeleteRecordsPartition", partition_index=0, offset=0)
    topics = [message(api, "DeleteRecordsTopic", name=name, partitions=[gone]) for name in TOPICS]
    yield 2, request(api, topics=topics, timeout_ms=10_000)


def _metadata(ids: Mapping[str, bytes]) -> Iterator[tuple[int, Any]]:
    def ask(names: Any = (), topic_ids: Any = (), **fields: Any) -> Any:
        topics = [message("metadata", "MetadataRequestTopic", name=name) for name in names]
        topics += [message("metadata", "MetadataRequestTopic", name=None, topic_id=topic_id) for topic_id in topic_ids]
        return request("metadata", topics=topics, **fields)

    yield 0, ask()
    yield 13, request("metadata", topics=None, include_topic_authorized_operations=True)
    yield 4, ask((*TOPICS, "__consumer_offsets", "bad name"), allow_auto_topic_creation=False)
    yield 10, ask(TOPICS, allow_auto_topic_creation=False, include_cluster_authorized_operations=True)
    yield 13, ask(TOPICS, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    by_id = (ids["open"], ids["hidden"], UNKNOWN_ID)
    yield 13, ask((), by_id, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    for version in (0, 2):
        yield version, request("describe_cluster", include_cluster_authorized_operations=True)
    api = "describe_topic_partitions"
    yield 0, request(api, response_partition_limit=100)
    yield 0, request(api, topics=[message(api, "TopicRequest", name=name) for name in (*TOPICS, "bad name")])


def _offset_commit(group: str, ids: Mapping[str, bytes]) -> Any:
    api = "offset_commit"
    partition = message(api, "OffsetCommitRequestPartition", partition_index=0, committed_offset=1)
    topics = [
        message(
            api,
            "OffsetCommitRequestTopic",
            name="" if ids else name,
            topic_id=ids.get(name, UNKNOWN_ID) if ids else bytes(16),
            partitions=[partition],
        )
        for name in TOPICS
    ]
    return request(api, group_id=group, generation_id_or_member_epoch=-1, topics=topics)


def _offset_fetch(ids: Mapping[str, bytes]) -> Iterator[tuple[int, Any]]:
    api = "offset_fetch"
    for group in ("g", "other"):
        topics = [message(api, "OffsetFetchRequestTopic", name=name, partition_indexes=[0]) for name in TOPICS]
        yield 1, request(api, group_id=group, topics=topics)
        yield 7, request(api, group_id=group, topics=None)

    def topics_of(use_ids: bool) -> list[Any]:
        return [
            message(
                api,
                "OffsetFetchRequestTopics",
                name="" if use_ids else name,
                topic_id=ids.get(name, UNKNOWN_ID) if use_ids else bytes(16),
                partition_indexes=[0],
            )
            for name in TOPICS
        ]

    groups = ("g", "other")
    for version in (8, 10):
        asked = topics_of(version == 10)
        named = [message(api, "OffsetFetchRequestGroup", group_id=group, topics=asked) for group in groups]
        whole = [message(api, "OffsetFetchRequestGroup", group_id=group, topics=None) for group in groups]
        yield version, request(api, groups=named)
        yield version, request(api, groups=whole)


def _groups(ids: Mapping[str, bytes], user: str) -> Iterator[tuple[int, Any]]:
    for group in ("g", "other"):
        yield 2, _offset_commit(group, {})
        yield 10, _offset_commit(group, ids)
        for version in (0, 9):
            yield (
                version,
                request(
                    "join_group",
                    group_id=group,
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=10_000,
                    member_id="m",
                    protocol_type="consumer",
                    protocols=[message("join_group", "JoinGroupRequestProtocol", name="p", metadata=b"")],
                ),
            )
        for version in (0, 5):
            fields = {"protocol_type": "consumer", "protocol_name": "p"} if version == 5 else {}
            yield version, request("sync_group", group_id=group, generation_id=1, member_id="m", **fields)
        yield 4, request("heartbeat", group_id=group, generation_id=1, member_id="m")
        yield 0, request("leave_group", group_id=group, member_id="m")
        member = message("leave_group", "MemberIdentity", member_id="m")
        yield 5, request("leave_group", group_id=group, members=[member])
    for group in ("g", "other"):
        for topic in ("open", "closed"):
            for version in (0, 1):
                yield (
                    version,
                    request(
                        "consumer_group_heartbeat",
                        group_id=group,
                        member_id="m",
                        member_epoch=5,
                        subscribed_topic_names=[topic],
                    ),
                )
    for version in (0, 1):
        names = ["g", "other"]
        yield version, request("consumer_group_describe", group_ids=names, include_authorized_operations=version == 1)
    yield from _share_groups(ids, user)
    yield from _streams_groups()
    yield from _offset_fetch(ids)
    for version in (0, 6):
        yield version, request("describe_groups", groups=["g", "other"], include_authorized_operations=version == 6)
    for version in (0, 5):
        yield version, request("list_groups")
    for kind, keys in ((0, ("g", "other")), (1, ("x", "y"))):
        for key in keys:
            yield 1, request("find_coordinator", key_type=kind, key=key)
        yield 5, request("find_coordinator", key_type=kind, coordinator_keys=list(keys))


def _share_key(ids: Mapping[str, bytes]) -> str:
    return f"share:{uuid_to_text(ids['open'])}:0"


def _alter_share_offsets(group: str, topics: Iterable[str]) -> Any:
    api = "alter_share_group_offsets"
    partition = message(api, "AlterShareGroupOffsetsRequestPartition", partition_index=0, start_offset=1)
    asked = [message(api, "AlterShareGroupOffsetsRequestTopic", topic_name=n, partitions=[partition]) for n in topics]
    return request(api, group_id=group, topics=asked)


def _share_groups(ids: Mapping[str, bytes], user: str) -> Iterator[tuple[int, Any]]:
    for group in ("share", "other"):
        for topic in ("open", "closed"):
            fields = {"group_id": group, "member_id": "m", "member_epoch": 5, "subscribed_topic_names": [topic]}
            yield 1, request("share_group_heartbeat", **fields)
    yield 1, request("share_group_describe", group_ids=["share", "other"], include_authorized_operations=True)
    for group in ("share", "other"):
        yield from _share_session(ids, group, user)
    yield from _share_state()
    api = "describe_share_group_offsets"
    topics = [message(api, "DescribeShareGroupOffsetsRequestTopic", topic_name=name, partitions=[0]) for name in TOPICS]
    for version in (0, 1):
        for asked in (topics, None):
            groups = [
                message(api, "DescribeShareGroupOffsetsRequestGroup", group_id=group, topics=asked)
                for group in ("share", "other")
            ]
            yield version, request(api, groups=groups)
    for group in ("share", "other"):
        yield 0, _alter_share_offsets(group, TOPICS)
    yield 6, request("find_coordinator", key_type=2, coordinator_keys=[_share_key(ids), "bad"])


def _share_session(ids: Mapping[str, bytes], group: str, user: str) -> Iterator[tuple[int, Any]]:
    """A session that wants no records, so that nothing has to be loaded, and acknowledges what nobody has.

    Without an unknown topic id, as Kafka's authorizer fails with a topic that has no name.
    """
    places = [ids["open"], ids["hidden"]]
    for version, epoch in ((1, -1), (2, 0), (1, 0), (2, 1)):
        api = "share_fetch"
        batches = [message(api, "AcknowledgementBatch", first_offset=0, last_offset=0, acknowledge_types=[1])]
        partition = message(
            api, "FetchPartition", partition_index=0, acknowledgement_batches=batches if epoch > 0 else []
        )
        topics = [message(api, "FetchTopic", topic_id=topic_id, partitions=[partition]) for topic_id in places]
        fields = {"group_id": group, "member_id": user, "share_session_epoch": epoch, "max_bytes": 100}
        yield version, request(api, topics=topics, **fields)
    api = "share_acknowledge"
    batches = [message(api, "AcknowledgementBatch", first_offset=0, last_offset=0, acknowledge_types=[1])]
    partition = message(api, "AcknowledgePartition", partition_index=0, acknowledgement_batches=batches)
    topics = [message(api, "AcknowledgeTopic", topic_id=topic_id, partitions=[partition]) for topic_id in places]
    for version, epoch in ((1, 2), (2, 2), (2, -1), (2, -1)):
        yield version, request(api, group_id=group, member_id=user, share_session_epoch=epoch, topics=topics)


def _streams_groups() -> Iterator[tuple[int, Any]]:
    """Members that the group does not have, and new ones whose requests lack what a first request needs."""
    api = "streams_group_heartbeat"
    topologies = (
        None,
        *(_topology([name]) for name in ("open", "closed", "__consumer_offsets", "bad name")),
        _topology(["open"], "hidden"),
    )
    for group in ("g", "streams", "other"):
        for topology in topologies:
            epoch = 5 if topology is None else 0
            yield 0, request(api, group_id=group, member_id="m", member_epoch=epoch, topology=topology)
    names = ["g", "streams", "other"]
    yield 0, request("streams_group_describe", group_ids=names, include_authorized_operations=True)


def _topology(source_topics: list[str], changelog: str | None = None) -> Any:
    api = "streams_group_heartbeat"
    changelogs = [] if changelog is None else [message(api, "TopicInfo", name=changelog)]
    subtopology = message(
        api, "Subtopology", subtopology_id="s", source_topics=source_topics, state_changelog_topics=changelogs
    )
    return message(api, "Topology", epoch=1, subtopologies=[subtopology])


def _share_state() -> Iterator[tuple[int, Any]]:
    """Requests of brokers, about a topic that does not exist."""
    for name, part, kind in (
        ("initialize", "InitializeStateData", "PartitionData"),
        ("read", "ReadStateData", "PartitionData"),
        ("write", "WriteStateData", "PartitionData"),
        ("delete", "DeleteStateData", "PartitionData"),
    ):
        api = f"{name}_share_group_state"
        topic = message(api, part, topic_id=UNKNOWN_ID, partitions=[message(api, kind, partition=0)])
        yield 0, request(api, group_id="share", topics=[topic])
    api = "read_share_group_state_summary"
    topic = message(api, "ReadStateSummaryData", topic_id=UNKNOWN_ID, partitions=[message(api, "PartitionData")])
    for version in (0, 1):
        yield version, request(api, group_id="share", topics=[topic])


def _topics() -> Iterator[tuple[int, Any]]:
    for version in (4, 7):
        names = ("open", "hidden", "new-topic", "else", "__cluster_metadata", "twice", "twice", "bad name")
        topics = [
            message("create_topics", "CreatableTopic", name=name, num_partitions=1, replication_factor=1)
            for name in names
        ]
        yield version, request("create_topics", topics=topics, timeout_ms=10_000, validate_only=True)
    api = "create_partitions"
    topics = [message(api, "CreatePartitionsTopic", name=name, count=1, assignments=None) for name in TOPICS]
    yield 3, request(api, topics=topics, timeout_ms=10_000)


RESOURCES = (
    *((2, name) for name in (*TOPICS, "bad name")),
    *((4, name) for name in ("1", "", "9", "z")),
    *((8, name) for name in ("1", "9")),
    (16, "m"),
    *((32, name) for name in ("g", "other")),
)


def _configs() -> Iterator[tuple[int, Any]]:
    api = "describe_configs"
    asked = [
        message(api, "DescribeConfigsResource", resource_type=kind, resource_name=name, configuration_keys=["none"])
        for kind, name in RESOURCES
    ]
    yield 4, request(api, resources=asked)
    keys = {2: "retention.ms", 4: "log.retention.ms", 8: "no.such.logger", 16: "interval.ms", 32: "none"}
    for api, version in (("alter_configs", 2), ("incremental_alter_configs", 1)):
        edits = [
            message(
                api,
                "AlterConfigsResource",
                resource_type=kind,
                resource_name=name,
                configs=[message(api, "AlterableConfig", name=keys[kind], value="7000")],
            )
            for kind, name in RESOURCES
        ]
        yield version, request(api, resources=edits, validate_only=True)
    for version in (0, 1):
        yield version, request("list_config_resources", resource_types=[2, 32] if version else [])


def _cluster(user: str) -> Iterator[tuple[int, Any]]:
    yield 4, request("describe_log_dirs", topics=None)
    api = "alter_replica_log_dirs"
    topics = [message(api, "AlterReplicaLogDirTopic", name=name, partitions=[0, 1]) for name in TOPICS]
    yield 2, request(api, dirs=[message(api, "AlterReplicaLogDir", path="/no/such/folder", topics=topics)])
    api = "elect_leaders"
    partitions = [message(api, "TopicPartitions", topic=name, partitions=[0]) for name in TOPICS]
    yield 0, request(api, topic_partitions=partitions)
    yield 2, request(api, topic_partitions=partitions)
    yield 2, request(api, topic_partitions=[message(api, "TopicPartitions", topic="missing", partitions=[0])])
    api = "alter_partition_reassignments"
    moved = [message(api, "ReassignablePartition", partition_index=0, replicas=[1])]
    yield 1, request(api, topics=[message(api, "ReassignableTopic", name="missing", partitions=moved)])
    api = "list_partition_reassignments"
    topics = [message(api, "ListPartitionReassignmentsTopics", name=name, partition_indexes=[0]) for name in TOPICS]
    yield 0, request(api, topics=topics)
    yield 0, request(api, topics=None)
    yield 1, request("describe_client_quotas")
    api = "alter_client_quotas"
    entity = message(api, "EntityData", entity_type="user", entity_name="u")
    change = message(api, "OpData", key="producer_byte_rate", value=1.0)
    yield 1, request(api, entries=[message(api, "EntryData", entity=[entity], ops=[change])], validate_only=True)
    api = "alter_user_scram_credentials"
    deletion = message(api, "ScramCredentialDeletion", name="u", mechanism=1)
    added = message(api, "ScramCredentialUpsertion", name="v", mechanism=1, iterations=1, salt=b"", salted_password=b"")
    yield 0, request(api, deletions=[deletion], upsertions=[added])
    api = "describe_user_scram_credentials"
    if user == "guide":  # Kafka never answers others, as its error response does not foresee null.
        yield 0, request(api, users=None)
    yield 0, request(api, users=[message(api, "UserName", name="u")])
    api = "describe_quorum"
    partition = message(api, "PartitionData")
    for version in (0, 2):
        yield version, request(api, topics=[message(api, "TopicData", topic_name="none", partitions=[partition])])
    api = "update_features"
    update = message(api, "FeatureUpdateKey", feature="no.such", max_version_level=1, upgrade_type=1)
    yield 0, request(api, feature_updates=[message(api, "FeatureUpdateKey", feature="no.such", max_version_level=1)])
    yield 2, request(api, feature_updates=[update])
    yield 0, request("unregister_broker", broker_id=99)


def _tokens() -> Iterator[tuple[int, Any]]:
    """Delegation tokens for others, and tokens that do not exist."""
    other = {"owner_principal_type": "User", "owner_principal_name": "other"}
    renewer = message("create_delegation_token", "CreatableRenewers", principal_type="Group", principal_name="x")
    yield 3, request("create_delegation_token", max_lifetime_ms=-1, renewers=[renewer])
    yield 3, request("create_delegation_token", max_lifetime_ms=-1, **other)
    yield 2, request("renew_delegation_token", hmac=b"unknown", renew_period_ms=-1)
    yield 2, request("expire_delegation_token", hmac=b"unknown", expiry_time_period_ms=-1)
    yield 3, request("describe_delegation_token", owners=None)
    owner = message(
        "describe_delegation_token", "DescribeDelegationTokenOwner", principal_type="User", principal_name="x"
    )
    yield 3, request("describe_delegation_token", owners=[owner])


def _transactions() -> Iterator[tuple[int, Any]]:
    yield 5, request("init_producer_id", transactional_id=None, transaction_timeout_ms=0)
    yield 5, request("init_producer_id", transactional_id="y", transaction_timeout_ms=1000)
    # With a timeout that nobody may have, so that the answer to whoever may use the id is always the same.
    yield 5, request("init_producer_id", transactional_id="x", transaction_timeout_ms=2**31 - 1)
    api = "add_partitions_to_txn"
    topics = [message(api, "AddPartitionsToTxnTopic", name=name, partitions=[0]) for name in TOPICS]
    for name in ("x", "y"):
        for members in (topics, topics[:1]):
            yield (
                3,
                request(
                    api,
                    v3_and_below_transactional_id=name,
                    v3_and_below_producer_id=4_000_000,
                    v3_and_below_topics=members,
                ),
            )
    member = message(
        api, "AddPartitionsToTxnTransaction", transactional_id="x", producer_id=4_000_000, topics=topics[:1]
    )
    yield 5, request(api, transactions=[member])
    for name in ("x", "y"):
        yield 4, request("add_offsets_to_txn", transactional_id=name, producer_id=4_000_000, group_id="g")
        yield 5, request("end_txn", transactional_id=name, producer_id=4_000_000)
        api = "txn_offset_commit"
        partition = message(api, "TxnOffsetCommitRequestPartition", partition_index=0, committed_metadata="")
        committed = [message(api, "TxnOffsetCommitRequestTopic", name=n, partitions=[partition]) for n in TOPICS[1:]]
        for group in ("g", "other"):
            yield (
                3,
                request(api, transactional_id=name, group_id=group, producer_id=4_000_000, topics=committed),
            )
    api = "write_txn_markers"
    topic = message(api, "WritableTxnMarkerTopic", name="missing", partition_indexes=[0])
    marker = message(api, "WritableTxnMarker", producer_id=4_000_000, topics=[topic])
    yield 1, request(api, markers=[marker])
    api = "describe_producers"
    asked = [message(api, "TopicRequest", name=name, partition_indexes=[0]) for name in (*TOPICS, "bad name")]
    yield 0, request(api, topics=asked)
    yield 0, request("describe_transactions", transactional_ids=["x", "y"])
    yield 1, request("list_transactions")


def _deletions(ids: Mapping[str, bytes]) -> Iterator[tuple[int, Any]]:
    """Requests that delete; last, because they leave less for the requests of the next user."""
    yield 5, request("delete_topics", topic_names=["gone-a", "open", "hidden", "missing"], timeout_ms=10_000)
    by_id = [ids["gone-b"], ids["open"], ids["hidden"], UNKNOWN_ID]
    topics = [message("delete_topics", "DeleteTopicState", name=None, topic_id=topic_id) for topic_id in by_id]
    topics += [message("delete_topics", "DeleteTopicState", name=name) for name in ("twice", "twice")]
    topics.append(message("delete_topics", "DeleteTopicState", name="open", topic_id=ids["open"]))
    yield 6, request("delete_topics", topics=topics, timeout_ms=10_000)
    api = "offset_delete"
    partition = message(api, "OffsetDeleteRequestPartition", partition_index=0)
    topics = [message(api, "OffsetDeleteRequestTopic", name=name, partitions=[partition]) for name in TOPICS]
    for group in ("g", "other", "none"):
        yield 0, request(api, group_id=group, topics=topics)
    api = "delete_share_group_offsets"
    topics = [message(api, "DeleteShareGroupOffsetsRequestTopic", topic_name=name) for name in TOPICS]
    for group in ("share", "other", "none"):
        yield 0, request(api, group_id=group, topics=topics)
    yield 2, request("delete_groups", groups_names=["g", "other", "none", "none", "share"])


def _acls() -> Iterator[Step | None]:
    """The ACL APIs themselves, for those who may use them and those who may not."""
    entries = [
        creation("z", TOPIC, "t", LITERAL, READ, ALLOW),
        creation("z", TOPIC, "t", LITERAL, READ, ALLOW),
        creation("z", TOPIC, "pre", PREFIXED, WRITE, DENY),
        creation("z", TOPIC, "*", LITERAL, DESCRIBE, ALLOW),
        creation("z", CLUSTER, "some-cluster", LITERAL, ALTER, ALLOW),
        creation("z", GROUP, "", LITERAL, READ, ALLOW),
        creation("z", USER, "User:a", LITERAL, 13, ALLOW),
        creation("z", TRANSACTIONAL_ID, "t", LITERAL, 15, ALLOW),
        creation("z", GROUP, "t", LITERAL, IDEMPOTENT_WRITE, ALLOW),
    ]
    for bad in ({"principal": "z"}, {"principal": ""}, {"host": ""}, {"host": "some host"}, {"host": "10.0.0.0/8"}):
        entry = creation("z", TOPIC, "odd", LITERAL, READ, ALLOW)
        for name, value in bad.items():
            setattr(entry, name, value)
        entries.append(entry)
    users = ("nobody", "guide", "operator", ADMIN)
    for user in users:
        for version in (1, 3):
            yield Step(user, version, request("create_acls", creations=entries))
    yield PAUSE
    for filtering in (
        (ANY, "f", LITERAL, READ, ALLOW),
        (TOPIC, "f", ANY, READ, ALLOW),
        (TOPIC, "f", MATCH, READ, ALLOW),
        (TOPIC, "f", LITERAL, ANY, ALLOW),
        (TOPIC, "f", LITERAL, READ, ANY),
    ):
        mixed = [creation("z", TOPIC, "f", LITERAL, READ, ALLOW), creation("z", *filtering)]
        yield Step(ADMIN, 3, request("create_acls", creations=mixed))
    yield Step(ADMIN, 3, request("create_acls", creations=[creation("z", 0, "t", LITERAL, READ, ALLOW)]))
    yield Step(ADMIN, 3, request("create_acls", creations=[creation("z", TOPIC, "t", 9, READ, ALLOW)]))
    everything: dict[str, Any] = dict.fromkeys(("resource_type_filter", "pattern_type_filter"), ANY)
    everything |= dict.fromkeys(("operation", "permission_type"), ANY)
    everything |= dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"), None)
    filters: list[dict[str, Any]] = [
        {},
        {"principal_filter": "User:z"},
        {"principal_filter": EVERYBODY},
        {"resource_type_filter": TOPIC, "resource_name_filter": "prefixed", "pattern_type_filter": MATCH},
        {"resource_type_filter": TOPIC, "resource_name_filter": "t", "pattern_type_filter": MATCH},
        {"resource_name_filter": "t"},
        {"resource_name_filter": "t", "pattern_type_filter": PREFIXED},
        {"pattern_type_filter": PREFIXED},
        {"operation": WRITE},
        {"permission_type": DENY},
        {"host_filter": "10.0.0.0/8"},
    ]
    for user in users:
        for wanted in filters if user == ADMIN else filters[:2]:
            yield Step(user, 3, request("describe_acls", **{**everything, **wanted}))
    yield Step(ADMIN, 1, request("describe_acls", **everything))
    yield Step(ADMIN, 3, request("describe_acls", **{**everything, "operation": 0}))
    deleted = [
        message("delete_acls", "DeleteAclsFilter", **{**everything, **wanted})
        for wanted in (
            {"principal_filter": "User:z", "operation": READ},
            {"principal_filter": "User:z", "resource_type_filter": TOPIC},
            {"principal_filter": "User:none"},
        )
    ]
    for user in users:
        yield Step(user, 3, request("delete_acls", filters=deleted))
    yield PAUSE
    yield Step(ADMIN, 3, request("describe_acls", **everything))
