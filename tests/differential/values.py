"""The values that scripts made by chance use: what makes sense in a field, and what spoils it."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from pykbroker.protocol.acl_codes import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    WRITE,
)
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.fields import Field, Message
from pykbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pykbroker.requests.api_table import APIS
from tests.differential.draws import Draws
from tests.differential.script import DAMAGES, GUEST_HOST, HOST, Batch, Records, Ref
from tests.pykbroker.groups.driver import subscription

TOPICS = ("~t0", "~t1")
OTHER_TOPICS = ("~t2", "~t3", "~none")
GROUPS = ("~g0", "~g1")
TRANSACTIONS = ("~x0", "~x1")
BAD_NAMES = (
    "",
    ".",
    "..",
    "a b",
    "a/b",
    "~" + "n" * 243,
    "~" + "n" * 242,
    "x" * 250,
    "ü",
    "~t.0",
    "~t_0",
    "__consumer_offsets",
)

NUMBERS = {
    "int8": (0, 1, -1, 2, 3, 4, 8, 16, 32, 127, -128),
    "int16": (0, 1, -1, 2, 5, 32767, -32768),
    "uint16": (0, 1, 65535),
    "int32": (0, 1, -1, 2, 5, 100, 2**31 - 1, -(2**31)),
    "uint32": (0, 1, 2**32 - 1),
    "int64": (0, 1, -1, -2, -3, -4, -5, -6, 3, 100, 2**31, 1_790_000_000_001, 2**63 - 1, -(2**63)),
}

TOPIC_CONFIGS: tuple[tuple[str, str | None], ...] = (
    ("retention.ms", "86400000"),
    ("retention.ms", "-1"),
    ("retention.ms", "-2"),
    ("retention.bytes", "-1"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", "delete"),
    ("cleanup.policy", "none"),
    ("cleanup.policy", ""),
    ("max.message.bytes", "200"),
    ("max.message.bytes", "0"),
    ("max.message.bytes", "-1"),
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.type", "CreateTime"),
    ("message.timestamp.type", "logappendtime"),
    ("message.timestamp.before.max.ms", "1000"),
    ("message.timestamp.after.max.ms", "1000"),
    ("min.insync.replicas", "2"),
    ("min.insync.replicas", "1"),
    ("compression.type", "producer"),
    ("compression.type", "uncompressed"),
    ("compression.type", "brotli"),
    ("segment.bytes", "1048576"),
    ("segment.bytes", "100"),
    ("segment.ms", "0"),
    ("flush.messages", "1"),
    ("flush.messages", "0"),
    ("delete.retention.ms", "0x10"),
    ("unclean.leader.election.enable", "true"),
    ("unclean.leader.election.enable", "yes"),
    ("preallocate", " true "),
    ("min.cleanable.dirty.ratio", "0.3"),
    ("min.cleanable.dirty.ratio", "1.1"),
    ("file.delete.delay.ms", "+5"),
    ("max.compaction.lag.ms", "1"),
    ("min.compaction.lag.ms", "5"),
    ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "0:1,1:1"),
    ("leader.replication.throttled.replicas", "0-1"),
    ("compression.zstd.level", "0"),
    ("compression.lz4.level", "18"),
    ("compression.gzip.level", "-1"),
    ("local.retention.ms", "-2"),
    ("remote.storage.enable", "false"),
    ("errors.deadletterqueue.copy.record.enable", "true"),
    ("nonsense.key", "1"),
    ("", ""),
)
OTHER_CONFIGS: tuple[tuple[str, str | None], ...] = (
    ("consumer.session.timeout.ms", "50000"),
    ("consumer.heartbeat.interval.ms", "6000"),
    ("share.auto.offset.reset", "earliest"),
    ("share.record.lock.duration.ms", "30000"),
    ("interval.ms", "3600000"),
    ("interval.ms", "10"),
    ("metrics", "a.b.c"),
    ("match", "client_id=x"),
    ("match", "nonsense"),
)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "GSSAPI", "", "nonsense")
GUEST_OPERATIONS = {
    TOPIC: (ALL, READ, READ, WRITE, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (ALL, READ, READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
    TRANSACTIONAL_ID: (ALL, WRITE, WRITE, DESCRIBE, TWO_PHASE_COMMIT),
}
GUEST_RESOURCES = {
    TOPIC: (("~t0", 3), ("~t0", 3), ("~t1", 3), ("~t", 4), ("~", 4), ("~n", 4), ("*", 3)),
    GROUP: (("~g0", 3), ("~g1", 3), ("~g", 4), ("*", 3)),
    CLUSTER: (("kafka-cluster", 3),),
    TRANSACTIONAL_ID: (("~x0", 3), ("~x1", 3), ("~", 4), ("*", 3)),
}
"""Names and pattern types (3 literal, 4 prefixed) of entries for guests, by resource type."""
NULL_TOPICS = b"\xff" * 40
HAS_TRANSACTIONS = ApiKey.END_TXN in APIS

KEPT = {
    ("UpdateFeaturesRequest", "validate_only"),
    ("CreateTopicsRequest", "timeout_ms"),
    ("DeleteTopicsRequest", "timeout_ms"),
    ("CreatePartitionsRequest", "timeout_ms"),
    ("AlterPartitionReassignmentsRequest", "timeout_ms"),
    ("ListPartitionReassignmentsRequest", "timeout_ms"),
    ("ElectLeadersRequest", "timeout_ms"),
    ("UpdateFeaturesRequest", "timeout_ms"),
    ("DeleteRecordsRequest", "timeout_ms"),
    ("ListOffsetsRequest", "timeout_ms"),
    ("ProduceRequest", "timeout_ms"),
    ("FetchRequest", "max_wait_ms"),
    ("ShareFetchRequest", "max_wait_ms"),
    ("ShareFetchRequest", "min_bytes"),
    ("StreamsGroupHeartbeatRequest", "rebalance_timeout_ms"),
    ("JoinGroupRequest", "rebalance_timeout_ms"),
    ("FetchRequest", "min_bytes"),
    ("FetchRequest", "replica_id"),
    ("ReplicaState", "replica_id"),
    ("ReplicaState", "replica_epoch"),
    ("WritableTxnMarker", "transaction_version"),
}
"""Fields whose unusual values make the answer a matter of speed, or change the whole broker."""


class Values(Draws):
    """Draws values; all of them come from one random source."""

    USUAL_SHARE = 0.7

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self._by_field: dict[tuple[str, str], Callable[[int], Any]] = self._table_of_structs()
        self._by_name: dict[str, Callable[[int], Any]] = self._table_of_names()

    # What generators of scripts ask for

    def knows(self, message: type[Message], field: Field) -> bool:
        return field.kind != "struct" and (
            (message.__name__, field.name) in self._by_field or (field.kind != "array" and field.name in self._by_name)
        )

    def sensible(self, message: type[Message], field: Field, version: int) -> Any:
        draw = self._by_field.get((message.__name__, field.name)) or self._by_name.get(field.name)
        value = None if draw is None else draw(version)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if (value is None and version not in field.nullable) or (is_number and field.kind == "string"):
            return self._by_kind(field.kind)
        return self._by_kind(field.kind) if isinstance(value, str) and field.kind in NUMBERS else value

    def spoiled(self, holder: Message, field: Field, version: int, old: Any) -> Any:
        """Another value for a field."""
        chance = self.random.random()
        if version in field.nullable and chance < 0.3 and field.kind != "records":
            return None
        if field.kind in NUMBERS:
            return self._pick(NUMBERS[field.kind])
        if field.kind == "bool":
            return not old
        if field.kind == "string":
            if "transactional_id" in field.name:
                return self._pick(("", "~x2", *TRANSACTIONS))
            if "group" in field.name:
                return self._pick(("", "~g2", "~" + "g" * 243))
            if chance < 0.6:
                return self._pick((*BAD_NAMES, *OTHER_TOPICS, *TOPICS, *GROUPS, *TRANSACTIONS))
            draw = self._pick(list(self._by_name.values()))(version)
            # Only a script's own names, so that nothing is left over for the next.
            return f"~{draw.removeprefix('~')}" if isinstance(draw, str) else "~nonsense"
        if field.kind == "uuid":
            return self._pick((bytes(16), b"\x55" * 16, bytes(15) + b"\1", Ref("topic_id", self._pick(TOPICS))))
        if field.kind == "bytes":
            return self._pick((b"", b"\0", NULL_TOPICS))
        if field.kind == "records":
            return self._bad_records()
        if field.kind == "float64":
            return self._pick((0.0, -1.0, 0.5, 1e300, float("inf")))
        return old

    def spoiled_array(self, field: Field, version: int, old: Any) -> Any:
        """Another list: empty, null, or with something twice."""
        if version in field.nullable and self.random.random() < 0.4:
            return None
        if old and self.random.random() < 0.4:
            return [*old, copy.deepcopy(self._pick(old))]
        return []

    def finish(self, api: str, version: int, request: Any, *, has_guests: bool = False) -> None:
        """Keeps a request from what would make its answer a matter of speed, or disturb other scripts."""
        if api == "delete_acls" and has_guests:
            # Not the entries by which the script itself may do everything.
            for item in request.filters:
                item.host_filter = GUEST_HOST
        if api in ("add_raft_voter", "update_raft_voter"):
            # Kafka's controller ends ("fatal fault" of the raft thread) on a listener without a name.
            for listener in request.listeners:
                listener.name = listener.name or "NAMED"
        if api == "update_features":
            request.feature_updates = list({update.feature: update for update in request.feature_updates}.values())
        if api == "update_features" and version >= 1:
            request.validate_only = True
        elif api == "update_features":
            request.feature_updates = [u for u in request.feature_updates if u.max_version_level > 50]
        if api in ("alter_configs", "incremental_alter_configs"):
            for resource in request.resources:
                if resource.resource_type in (4, 8):
                    request.validate_only = True
                if resource.resource_type == 16 and not resource.resource_name.startswith("~"):
                    # Deleted with the script, as it is about every client.
                    resource.resource_name = "~c0"
        if api == "create_partitions":
            # Of too many both brokers create 10,000, which takes long.
            for topic in request.topics:
                topic.count = min(topic.count, 100)
        if api == "alter_client_quotas" and not all(
            (part.entity_name or "").startswith(("~", "10.9.8.7")) for entry in request.entries for part in entry.entity
        ):
            # Not a quota of every client.
            request.validate_only = True
        if api == "unregister_broker" and request.broker_id == 1:
            # The broker itself, which would not come back.
            request.broker_id = 2
        if api == "create_topics":
            for topic in request.topics:
                topic.num_partitions = min(topic.num_partitions, 100)
        if api == "add_partitions_to_txn":
            # Each transaction once: Kafka answers for the partitions of one of them twice.
            named = {transaction.transactional_id: transaction for transaction in request.transactions}
            request.transactions = list(named.values())
        if api == "write_txn_markers":
            # Kafka never answers when a producer or a partition comes twice.
            request.markers = request.markers[:1]
            for marker in request.markers:
                if not isinstance(marker.producer_epoch, int) or marker.producer_epoch < 0:
                    # A marker with a negative epoch is a bug of a broker, and fails as one.
                    marker.producer_epoch = Ref("producer_epoch", "~x0")
                marker.topics = list({topic.name: topic for topic in marker.topics}.values())
                for topic in marker.topics:
                    topic.partition_indexes = list(dict.fromkeys(topic.partition_indexes))
        if api == "join_group":
            # Kafka counts a protocol that a member names twice twice: then nobody can join, or nobody is answered.
            request.protocols = list({protocol.name: protocol for protocol in request.protocols}.values())
            for protocol in request.protocols:
                # Kafka fails with an exception on a subscription whose list of topics is null, and the group is stuck.
                protocol.metadata = b"\0" if protocol.metadata == NULL_TOPICS else protocol.metadata
        if api == "produce":
            for topic in request.topic_data:
                # On a codec that nobody knows Kafka fails as a whole, and the other partitions' records are not stored.
                alone = [data for data in topic.partition_data if "codec_unknown" in repr(data)]
                if alone:
                    topic.partition_data, request.topic_data = alone[:1], [topic]
                    break
        if api == "alter_user_scram_credentials":
            for change in (*request.deletions, *request.upsertions):
                if change.name and not change.name.startswith("~"):
                    change.name = "~user"
        if api in ("create_acls", "delete_acls"):
            # Neither the cluster's access nor that of other scripts.
            for item in [*getattr(request, "creations", ()), *getattr(request, "filters", ())]:
                if getattr(item, "resource_type", 0) == 4 or not getattr(item, "resource_name", "~").startswith("~"):
                    item.resource_type, item.resource_name = 2, "~t0"
        if api == "metadata" and version == 0:
            request.topics = request.topics or [type(t)(name="~t0") for t in request.topics[:1]]

    def first_topics(self) -> CreateTopicsRequest:
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in TOPICS]
        return CreateTopicsRequest(topics=topics, timeout_ms=10_000)

    def grants(self) -> CreateAclsRequest:
        """Everything for the host of the scripts, and some operations on some resources for guests."""
        creations = [
            _entry(kind, 3, "kafka-cluster" if kind == CLUSTER else "*", HOST, ALL) for kind in GUEST_OPERATIONS
        ]
        for _ in range(self._pick((2, 4, 6, 10, 16))):
            kind = self._pick((*GUEST_OPERATIONS, TOPIC, TOPIC))
            name, pattern = self._pick(GUEST_RESOURCES[kind])
            entry = _entry(kind, pattern, name, GUEST_HOST, self._pick(GUEST_OPERATIONS[kind]))
            if self.random.random() < 0.15:
                entry.permission_type = DENY
            creations.append(entry)
        return CreateAclsRequest(creations=creations)

    def group(self) -> Any:
        return self._pick(GROUPS)

    def join(self, group: str, version: int, member: int | None = None) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000 if version >= 1 else -1,
            member_id="" if member is None else Ref("member", group, member),  # type: ignore[arg-type]
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(*TOPICS[:1]))],
        )

    def sync(self, group: str, version: int) -> SyncGroupRequest:
        member: Any = Ref("member", group, 0)
        named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        return SyncGroupRequest(
            group_id=group,
            generation_id=Ref("generation", group),  # type: ignore[arg-type]
            member_id=member,
            assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"mine")],
            **named,
        )

    # Drawing

    def _by_kind(self, kind: str) -> Any:
        if kind == "bool":
            return self.random.random() < 0.5
        if kind == "string":
            return self._pick(("", "x", "~y"))
        if kind == "uuid":
            return bytes(16)
        if kind in ("bytes", "records"):
            return b""
        return 0.0 if kind == "float64" else self._pick(NUMBERS[kind][:3])

    def _topic(self, version: int = 0) -> Any:
        return self._pick(TOPICS) if self.random.random() < 0.9 else self._pick(OTHER_TOPICS)

    def _topic_id(self, version: int = 0) -> Ref:
        return Ref("topic_id", self._topic())

    def _partition(self, version: int = 0) -> Any:
        return self._mostly(self._pick((0, 0, 1)), 2, 9, -1)

    def _member(self, version: int = 0) -> Any:
        return Ref("member", self.group(), self._pick((0, 0, 0, 1, 2)))

    def _producer(self, kind: str, version: int = 0) -> Ref:
        shift = self._mostly(0, 1, -1)
        return Ref(kind, self._pick(TRANSACTIONS), 0, shift if kind == "producer_epoch" else 0)

    def _offset(self, version: int = 0) -> Any:
        return self._pick((0, 0, 1, 2, 3, 5, 10))

    def _config_value(self, version: int = 0) -> Any:
        return self._pick(TOPIC_CONFIGS)[1]

    def _config_key(self, version: int = 0) -> str:
        key: str = self._pick(TOPIC_CONFIGS if self.random.random() < 0.9 else OTHER_CONFIGS)[0]
        return key

    def _records(self, version: int = 0) -> Records:
        pick = self._pick
        idempotent = self.random.random() < 0.35
        transactional = HAS_TRANSACTIONS and self.random.random() < 0.3
        batch = Batch(
            record_count=pick((1, 1, 2, 3, 10)),
            value=pick(("value", "", None, "v" * 300)),
            key=pick((None, "key", "")),
            headers=pick(((), (), (("h", "1"),), (("", None), ("h", "")))),
            timestamp=pick((1_790_000_000_000, 1_790_000_000_000, 1_790_000_005_000, 0, -1)),
            codec=pick((0, 0, 0, 1, 2, 3, 4)),
            producer=pick(TRANSACTIONS) if transactional else None,
            producer_index=pick((0, 0, 1)) if idempotent and not transactional else -1,
            sequence=self._mostly(None, 0, 1, 5, 2**31 - 1, -1),
            epoch_shift=self._mostly(0, 1, -1),
            is_transactional=transactional and self.random.random() < 0.9,
            base_offset=pick((0, 0, 0, 7)),
        )
        return Records((batch,))

    def _bad_records(self) -> Any:
        good = self._records().batches[0]
        # Whether damaged records belong to a transaction is not the question here.
        plain = good._replace(is_transactional=False, producer=None)
        return self._pick(
            (
                b"",
                b"\0" * 11,
                b"\0" * 61,
                Records((good, good)),
                Records((good._replace(record_count=0),)),
                Records((good._replace(is_control=True),)),
                Records((good,), b"\0\0\0"),
                *(Records((plain._replace(damage=damage),)) for damage in DAMAGES),
                *(Records((plain._replace(damage=damage, codec=1),)) for damage in DAMAGES),
            )
        )

    def _table_of_names(self) -> dict[str, Callable[[int], Any]]:
        """Fields by their name, in every message."""
        return {
            "name": self._topic,
            "topic": self._topic,
            "topic_name": self._topic,
            "topic_names": self._topic,
            "topic_id": self._topic_id,
            "partition": self._partition,
            "partition_index": self._partition,
            "partition_indexes": self._partition,
            "partitions": self._partition,
            "index": self._partition,
            "current_leader_epoch": lambda v: self._mostly(-1, 0, 1),
            "leader_epoch": lambda v: self._mostly(0, 1, -1),
            "last_fetched_epoch": lambda v: self._mostly(-1, 0, 1),
            "committed_leader_epoch": lambda v: self._mostly(-1, 0, 3),
            "fetch_offset": self._offset,
            "offset": self._offset,
            "committed_offset": self._offset,
            "log_start_offset": lambda v: -1,
            "replica_epoch": lambda v: -1,
            "transaction_version": lambda v: self._pick((0, 1, 2)),
            "replica_id": lambda v: self._mostly(-1, -1, -2, 1, 9) if v < 0 else -1,
            "group_id": lambda v: self.group(),
            "groups": lambda v: self.group(),
            "groups_names": lambda v: self.group(),
            "member_id": self._member,
            "generation_id": lambda v: Ref("generation", self.group(), 0, self._mostly(0, 1, -1)),
            "group_instance_id": lambda v: self._mostly(None, None, "i0", "i1"),
            "protocol_type": lambda v: self._mostly("consumer", "connect", ""),
            "protocol_name": lambda v: self._mostly("range", "roundrobin", ""),
            "producer_id": lambda v: self._producer("producer_id"),
            "producer_epoch": lambda v: self._producer("producer_epoch"),
            "transactional_id": lambda v: self._pick(TRANSACTIONS),
            "v3_and_below_transactional_id": lambda v: self._pick(TRANSACTIONS),
            "v3_and_below_producer_id": lambda v: self._producer("producer_id"),
            "v3_and_below_producer_epoch": lambda v: self._producer("producer_epoch"),
            "timeout_ms": lambda v: 10_000,
            "max_bytes": lambda v: self._mostly(1 << 20, 0, 1, 100),
            "partition_max_bytes": lambda v: self._mostly(1 << 20, 0, 1, 100),
            "session_timeout_ms": lambda v: self._mostly(10_000, 6_000, 5_999),
            "resource_type": lambda v: self._mostly(2, 2, 4, 16, 32, 8),
            "resource_types": lambda v: self._pick((2, 4, 8, 16, 32)),
            "resource_name": self._topic,
            "configuration_keys": self._config_key,
            "isolation_level": lambda v: self._pick((0, 0, 1)),
            "records": self._records,
            "broker_ids": lambda v: self._mostly(1, 2),
            "replicas": lambda v: self._mostly(1, 2),
            "mechanism": lambda v: self._pick(MECHANISMS),
            "cluster_id": lambda v: None,
            "rack_id": lambda v: "",
            "session_id": lambda v: self._mostly(0, Ref("session_id"), Ref("session_id", "", 1)),
        }

    def _table_of_structs(self) -> dict[tuple[str, str], Callable[[int], Any]]:
        """Fields of one message, where the name does not say enough."""
        return {
            ("ProduceRequest", "acks"): lambda v: self._mostly(-1, 1, 0),
            ("ProduceRequest", "transactional_id"): lambda v: self._mostly(
                None, *(TRANSACTIONS if HAS_TRANSACTIONS else (None,))
            ),
            ("FetchRequest", "max_wait_ms"): lambda v: self._pick((0, 0, 30)),
            ("FetchRequest", "min_bytes"): lambda v: self._pick((0, 1)),
            ("FetchRequest", "session_epoch"): lambda v: self._pick((-1, -1, 0, 0, 1, 1, 2)),
            ("FetchRequest", "forgotten_topics_data"): lambda v: [],
            ("FetchPartition", "high_watermark"): lambda v: 2**63 - 1,
            ("FetchPartition", "replica_directory_id"): lambda v: bytes(16),
            ("ListOffsetsPartition", "timestamp"): lambda v: self._pick(
                (-1, -2, -3, -4, -5, -6, 0, 1_790_000_000_000, 1_790_000_000_001, 1_790_000_009_999)
            ),
            ("CreatableTopic", "name"): lambda v: self._pick((*OTHER_TOPICS, *OTHER_TOPICS, *TOPICS)),
            ("CreatableTopic", "num_partitions"): lambda v: self._mostly(2, 1, -1),
            ("CreatableTopic", "replication_factor"): lambda v: self._mostly(1, -1),
            ("CreatableTopic", "assignments"): lambda v: [],
            ("CreatableTopicConfig", "name"): self._config_key,
            ("CreatableTopicConfig", "value"): self._config_value,
            ("AlterableConfig", "name"): self._config_key,
            ("AlterableConfig", "value"): self._config_value,
            ("AlterableConfig", "config_operation"): lambda v: self._mostly(0, 1, 2, 3),
            ("CreatePartitionsTopic", "count"): lambda v: self._pick((3, 4, 2, 1, 3)),
            ("CreatePartitionsTopic", "assignments"): lambda v: None,
            ("MetadataRequestTopic", "topic_id"): lambda v: self._mostly(bytes(16), self._topic_id()),
            ("DeleteTopicState", "name"): lambda v: self._mostly(self._topic(), None),
            ("DeleteTopicState", "topic_id"): lambda v: self._mostly(bytes(16), self._topic_id()),
            ("OffsetForLeaderEpochRequest", "replica_id"): lambda v: self._mostly(-1, -2, 1),
            ("ListOffsetsRequest", "replica_id"): lambda v: self._mostly(-1, -2, 1),
            ("FetchRequest", "replica_id"): lambda v: self._mostly(-1, -1, -2),
            ("ReplicaState", "replica_id"): lambda v: self._mostly(-1, -2),
            ("FindCoordinatorRequest", "key_type"): lambda v: self._mostly(0, HAS_TRANSACTIONS * 1, 2),
            ("FindCoordinatorRequest", "key"): lambda v: self.group(),
            ("FindCoordinatorRequest", "coordinator_keys"): lambda v: [self.group()],
            ("JoinGroupRequest", "member_id"): lambda v: self._mostly("", self._member()),
            ("JoinGroupRequest", "rebalance_timeout_ms"): lambda v: 20_000,
            ("JoinGroupRequestProtocol", "name"): lambda v: self._mostly("range", "roundrobin"),
            ("JoinGroupRequestProtocol", "metadata"): lambda v: self._mostly(subscription(*TOPICS[:1]), b"", b"\0\1"),
            ("OffsetCommitRequest", "generation_id_or_member_epoch"): lambda v: self._pick(
                (-1, -1, Ref("generation", self.group()))
            ),
            ("OffsetCommitRequest", "member_id"): lambda v: self._mostly("", self._member()),
            ("OffsetCommitRequest", "retention_time_ms"): lambda v: -1,
            ("OffsetFetchRequestGroup", "member_id"): lambda v: self._mostly(None, "", self._member()),
            ("OffsetFetchRequestGroup", "member_epoch"): lambda v: self._mostly(-1, 0, 1),
            ("TxnOffsetCommitRequest", "generation_id"): lambda v: self._mostly(-1, 1),
            ("TxnOffsetCommitRequest", "member_id"): lambda v: self._mostly("", self._member()),
            ("ListGroupsRequest", "states_filter"): lambda v: self._pick(([], [], ["Stable"], ["empty", "Dead"])),
            ("ListGroupsRequest", "types_filter"): lambda v: self._pick(([], [], ["classic"], ["Consumer"])),
            ("InitProducerIdRequest", "transactional_id"): lambda v: self._pick(
                (None, None, *(TRANSACTIONS if HAS_TRANSACTIONS else ()))
            ),
            ("InitProducerIdRequest", "transaction_timeout_ms"): lambda v: self._mostly(60_000, 0, -1, 900_001),
            ("InitProducerIdRequest", "producer_id"): lambda v: self._mostly(-1, self._producer("producer_id")),
            ("InitProducerIdRequest", "producer_epoch"): lambda v: self._mostly(-1, self._producer("producer_epoch")),
            ("InitProducerIdRequest", "enable2_pc"): lambda v: False,
            ("InitProducerIdRequest", "keep_prepared_txn"): lambda v: False,
            ("DescribeConfigsRequest", "include_documentation"): lambda v: False,
            ("DescribeTopicPartitionsRequest", "response_partition_limit"): lambda v: self._mostly(2000, 1, 2, 3),
            ("FeatureUpdateKey", "feature"): lambda v: self._pick(("metadata.version", "transaction.version", "foo")),
            ("FeatureUpdateKey", "max_version_level"): lambda v: self._pick((0, 1, 2, 29, 30, 31, 99)),
            ("FeatureUpdateKey", "upgrade_type"): lambda v: self._pick((1, 1, 2, 3)),
            ("ApiVersionsRequest", "client_software_name"): lambda v: self._mostly("app", "", "-x", "a b", "x.y"),
            ("ApiVersionsRequest", "client_software_version"): lambda v: self._mostly("1.0", "", ".1"),
            ("ApiVersionsRequest", "node_id"): lambda v: -1,
            ("UserName", "name"): lambda v: "~user",
            ("ScramCredentialDeletion", "name"): lambda v: self._mostly("~user", "~nobody", ""),
            ("ScramCredentialUpsertion", "name"): lambda v: self._mostly("~user", "~other", ""),
            ("ScramCredentialUpsertion", "iterations"): lambda v: self._mostly(4096, 4095, 16384, 16385),
            ("ScramCredentialUpsertion", "salt"): lambda v: b"salt",
            ("ScramCredentialUpsertion", "salted_password"): lambda v: self._mostly(b"p" * 32, b"p" * 64),
            ("EntityData", "entity_type"): lambda v: self._mostly("client-id", "user", "ip", "planet"),
            ("EntityData", "entity_name"): lambda v: "~client",
            ("OpData", "key"): lambda v: self._pick(("producer_byte_rate", "consumer_byte_rate", "nonsense")),
            ("OpData", "value"): lambda v: self._mostly(1e6, 1.5, 0.0),
            ("ComponentData", "entity_type"): lambda v: self._mostly("client-id", "user", "ip", "planet"),
            ("ComponentData", "match_type"): lambda v: self._pick((0, 0, 1, 2)),
            ("ComponentData", "match"): lambda v: self._mostly("~client", None),
            ("TopicData", "topic_name"): lambda v: self._mostly("__cluster_metadata", "~t0"),
            ("AclCreation", "resource_type"): lambda v: self._pick((2, 2, 3, 5)),
            ("AclCreation", "resource_pattern_type"): lambda v: self._mostly(3, 4),
            ("AclCreation", "principal"): lambda v: self._pick(("User:~a", "User:~b", "User:*", "User:~a")),
            ("AclCreation", "host"): lambda v: self._mostly("*", "10.0.0.1"),
            ("AclCreation", "operation"): lambda v: self._pick((3, 4, 8, 2)),
            ("AclCreation", "permission_type"): lambda v: self._mostly(3, 2),
        } | self._table_of_filters()

    def _table_of_filters(self) -> dict[tuple[str, str], Callable[[int], Any]]:
        fields: dict[str, Callable[[int], Any]] = {
            "resource_type_filter": lambda v: self._pick((1, 2, 2, 3)),
            "resource_name_filter": lambda v: self._mostly(self._topic(), None),
            "pattern_type_filter": lambda v: self._pick((1, 2, 3, 4)) if v >= 1 else 3,
            "principal_filter": lambda v: self._mostly(None, "User:~a"),
            "host_filter": lambda v: self._mostly(None, "*"),
            "operation": lambda v: self._mostly(1, 3, 4),
            "permission_type": lambda v: self._mostly(1, 2, 3),
        }
        structs = ("DescribeAclsRequest", "DeleteAclsFilter")
        return {(struct, name): draw for struct in structs for name, draw in fields.items()}


def _entry(kind: int, pattern: int, name: str, host: str, operation: int) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_pattern_type=pattern,
        resource_name=name,
        principal="User:*",
        host=host,
        operation=operation,
        permission_type=ALLOW,
    )
