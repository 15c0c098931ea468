"""Every API in every version that we advertise, about what exists and what does not: a broker process answers each.

What single handler tests cannot see: a response whose fields its version has no place for.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import pykbroker
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.fields import STRUCT_DEFAULT, Message, default_struct, response_class
from pykbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from pykbroker.protocol.messages.alter_client_quotas import EntityData as QuotaEntity
from pykbroker.protocol.messages.alter_client_quotas import EntryData as QuotaEntry
from pykbroker.protocol.messages.alter_client_quotas import OpData
from pykbroker.protocol.messages.alter_configs import AlterableConfig as ReplacedConfig
from pykbroker.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from pykbroker.protocol.messages.alter_partition_reassignments import ReassignablePartition, ReassignableTopic
from pykbroker.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirTopic
from pykbroker.protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion
from pykbroker.protocol.messages.create_acls import AclCreation
from pykbroker.protocol.messages.create_partitions import CreatePartitionsTopic
from pykbroker.protocol.messages.create_topics import CreatableTopic
from pykbroker.protocol.messages.delete_acls import DeleteAclsFilter
from pykbroker.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from pykbroker.protocol.messages.describe_configs import DescribeConfigsResource
from pykbroker.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from pykbroker.protocol.messages.describe_quorum import PartitionData as QuorumPartition
from pykbroker.protocol.messages.describe_quorum import TopicData as QuorumTopic
from pykbroker.protocol.messages.describe_topic_partitions import TopicRequest
from pykbroker.protocol.messages.elect_leaders import TopicPartitions
from pykbroker.protocol.messages.fetch import FetchPartition, FetchTopic
from pykbroker.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from pykbroker.protocol.messages.join_group import JoinGroupRequestProtocol
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pykbroker.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pykbroker.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from pykbroker.protocol.messages.produce import PartitionProduceData, TopicProduceData
from pykbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.update_features import FeatureUpdateKey
from pykbroker.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from pykbroker.requests.api_table import APIS, camel_case
from tests.support.data_path import batch

CASES = [(api, version) for api in APIS.values() for version in range(api.lowest, api.highest + 1)]
NO_NAME = "no-such-topic"


class Wire:
    """One connection to the broker."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)

    def call(self, request: Any, version: int) -> Any:
        """The response; fails if the broker closes instead."""
        flexible = version in request.FLEXIBLE_VERSIONS
        header = request.KEY.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\x05\0\4test"
        frame = header + (b"\0" if flexible else b"") + encode(request, version)
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = self._receive(int.from_bytes(self._receive(4), "big"))
        assert answer[:4] == b"\0\0\0\x05"
        start = 5 if flexible and request.KEY != ApiKey.API_VERSIONS else 4
        return decode(response_class(type(request)), version, answer[start:])

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            assert piece, "the broker closed the connection instead of answering"
            data += piece
        return data

    def close(self) -> None:
        self._socket.close()


def fitted(message: Any, version: int) -> Any:
    """The message without what this version has no field for."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if version not in field.versions:
            default = [] if field.kind == "array" and field.default is not None else field.default
            setattr(message, field.name, default_struct(field.element) if default is STRUCT_DEFAULT else default)
        elif isinstance(value, Message):
            fitted(value, version)
        elif isinstance(value, list) and value and isinstance(value[0], Message):
            for element in value:
                fitted(element, version)
    return message


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    config = {"group.initial.rebalance.delay.ms": 0}
    with pykbroker.LocalBroker(topics={"t": 2}, config=config) as local:
        yield local
    assert "Traceback" not in local.log, local.log[local.log.index("Traceback") - 200 :]


@pytest.fixture(scope="module")
def topic_id(broker: Any) -> bytes:
    wire = Wire(broker.port)
    response = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    wire.close()
    assert isinstance(response, MetadataResponse)
    found: bytes = response.topics[0].topic_id
    return found


def fields_of(api: ApiKey, topic: str, topic_id: bytes, group: str) -> dict[str, Any]:
    """Fields of a request of this API, about a topic that may or may not exist."""
    ids = [0, 7]
    table: dict[ApiKey, dict[str, Any]] = {
        ApiKey.PRODUCE: {
            "acks": -1,
            "topic_data": [
                TopicProduceData(
                    name=topic,
                    topic_id=topic_id,
                    partition_data=[PartitionProduceData(index=n, records=batch(2)) for n in ids],
                )
            ],
        },
        ApiKey.FETCH: {
            "topics": [
                FetchTopic(
                    topic=topic,
                    topic_id=topic_id,
                    partitions=[FetchPartition(partition=n, partition_max_bytes=1 << 20) for n in ids],
                )
            ]
        },
        ApiKey.LIST_OFFSETS: {
            "topics": [
                ListOffsetsTopic(
                    name=topic, partitions=[ListOffsetsPartition(partition_index=n, timestamp=-1 - n % 2) for n in ids]
                )
            ]
        },
        ApiKey.METADATA: {"topics": [MetadataRequestTopic(name=topic)], "include_topic_authorized_operations": True},
        ApiKey.OFFSET_COMMIT: {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "topics": [
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[OffsetCommitRequestPartition(partition_index=n, committed_offset=1) for n in ids],
                )
            ],
        },
        ApiKey.OFFSET_FETCH: {
            "group_id": group,
            "topics": [OffsetFetchRequestTopic(name=topic, partition_indexes=ids)],
            "groups": [
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=[OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=ids)],
                )
            ],
        },
        ApiKey.FIND_COORDINATOR: {"key": group, "coordinator_keys": [group]},
        ApiKey.JOIN_GROUP: {
            "group_id": group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
        },
        ApiKey.HEARTBEAT: {"group_id": group, "generation_id": 1, "member_id": "m"},
        ApiKey.LEAVE_GROUP: {"group_id": group, "member_id": "m"},
        ApiKey.SYNC_GROUP: {"group_id": group, "generation_id": 1, "member_id": "m"},
        ApiKey.DESCRIBE_GROUPS: {"groups": [group, "missing"], "include_authorized_operations": True},
        ApiKey.SASL_HANDSHAKE: {"mechanism": "PLAIN"},
        ApiKey.API_VERSIONS: {"client_software_name": "test", "client_software_version": "1"},
        ApiKey.CREATE_TOPICS: {
            "topics": [CreatableTopic(name=topic, num_partitions=1, replication_factor=1)],
            "timeout_ms": 1000,
            "validate_only": True,
        },
        ApiKey.DELETE_TOPICS: {"topic_names": [NO_NAME], "timeout_ms": 1000},
        ApiKey.DELETE_RECORDS: {
            "topics": [
                DeleteRecordsTopic(
                    name=topic, partitions=[DeleteRecordsPartition(partition_index=n, offset=0) for n in ids]
                )
            ]
        },
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {
            "topics": [
                OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(partition=n) for n in ids])
            ]
        },
        ApiKey.INIT_PRODUCER_ID: {"transactional_id": None if topic == "t" else "x", "transaction_timeout_ms": 1000},
        ApiKey.ADD_PARTITIONS_TO_TXN: {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_topics": [AddPartitionsToTxnTopic(name=topic, partitions=ids)],
            "transactions": [
                AddPartitionsToTxnTransaction(
                    transactional_id="x", topics=[AddPartitionsToTxnTopic(name=topic, partitions=ids)]
                )
            ],
        },
        ApiKey.ADD_OFFSETS_TO_TXN: {"transactional_id": "x", "group_id": group},
        ApiKey.END_TXN: {"transactional_id": "x", "committed": True},
        ApiKey.WRITE_TXN_MARKERS: {
            "markers": [
                WritableTxnMarker(producer_id=5000, topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=ids)])
            ]
        },
        ApiKey.TXN_OFFSET_COMMIT: {
            "transactional_id": "x",
            "group_id": group,
            "topics": [
                TxnOffsetCommitRequestTopic(
                    name=topic, partitions=[TxnOffsetCommitRequestPartition(partition_index=n) for n in ids]
                )
            ],
        },
        ApiKey.DESCRIBE_PRODUCERS: {"topics": [ProducersTopic(name=topic, partition_indexes=ids)]},
        ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": ["x", ""]},
        ApiKey.LIST_TRANSACTIONS: {"state_filters": ["Ongoing", "wrong"], "transactional_id_pattern": "x*"},
        ApiKey.DESCRIBE_ACLS: {
            "resource_type_filter": 1,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        },
        ApiKey.CREATE_ACLS: {
            "creations": [
                AclCreation(
                    resource_type=2,
                    resource_name="t",
                    resource_pattern_type=3,
                    principal="User:a",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        },
        ApiKey.DELETE_ACLS: {"filters": [DeleteAclsFilter(resource_type_filter=2, operation=2, permission_type=3)]},
        ApiKey.DESCRIBE_CONFIGS: {
            "resources": [DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)],
            "include_synonyms": True,
            "include_documentation": True,
        },
        ApiKey.ALTER_CONFIGS: {
            "resources": [
                ReplacedResource(
                    resource_type=2,
                    resource_name=topic,
                    configs=[ReplacedConfig(name="retention.ms", value="1000000")],
                )
            ],
            "validate_only": True,
        },
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {
            "resources": [
                AlterConfigsResource(
                    resource_type=2, resource_name=topic, configs=[AlterableConfig(name="no.such.key", value="1")]
                )
            ]
        },
        ApiKey.CREATE_PARTITIONS: {"topics": [CreatePartitionsTopic(name=topic, count=1)], "timeout_ms": 1000},
        ApiKey.DELETE_GROUPS: {"groups_names": ["missing"]},
        ApiKey.OFFSET_DELETE: {"group_id": "missing"},
        ApiKey.DESCRIBE_QUORUM: {
            "topics": [QuorumTopic(topic_name="__cluster_metadata", partitions=[QuorumPartition()])]
        },
        ApiKey.UPDATE_FEATURES: {
            "timeout_ms": 1000,
            "feature_updates": [FeatureUpdateKey(feature="no.such", max_version_level=1, upgrade_type=1)],
        },
        ApiKey.DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
        ApiKey.ALTER_REPLICA_LOG_DIRS: {
            "dirs": [AlterReplicaLogDir(path="/no", topics=[AlterReplicaLogDirTopic(name=topic, partitions=ids)])]
        },
        ApiKey.ELECT_LEADERS: {"topic_partitions": [TopicPartitions(topic=topic, partitions=ids)], "timeout_ms": 1000},
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
            "timeout_ms": 1000,
            "topics": [
                ReassignableTopic(
                    name=topic, partitions=[ReassignablePartition(partition_index=n, replicas=[9]) for n in ids]
                )
            ],
        },
        ApiKey.ALTER_CLIENT_QUOTAS: {
            "entries": [
                QuotaEntry(
                    entity=[QuotaEntity(entity_type="user", entity_name=topic)],
                    ops=[OpData(key="producer_byte_rate", value=1e9)],
                )
            ]
        },
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [ScramCredentialDeletion(name=topic, mechanism=1)]},
        ApiKey.UNREGISTER_BROKER: {"broker_id": 9},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [TopicRequest(name=topic)]},
    }
    return table.get(api, {})


@pytest.mark.parametrize("exists", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(("api", "version"), CASES, ids=lambda value: getattr(value, "name", str(value)))
def test_every_advertised_version_is_answered(
    broker: Any, topic_id: bytes, api: Any, version: int, exists: bool
) -> None:
    module = importlib.import_module(f"pykbroker.protocol.messages.{api.name}")
    request_type = getattr(module, camel_case(api.name) + "Request")
    topic, found_id = ("t", topic_id) if exists else (NO_NAME, bytes(15) + b"\x09")
    # A group for each: a member that went away without leaving would keep the next one waiting.
    fields = fields_of(api.key, topic, found_id, f"group-{version}-{exists}")
    wire = Wire(broker.port)
    wire.call(fitted(request_type(**fields), version), version)
    wire.close()
