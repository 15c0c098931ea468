"""Requests that concern many topics are served in turns: others go on meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
import trio
import trio.testing

from pykbroker.controller.metadata.acls import CreateAcls
from pykbroker.controller.metadata.client_quotas import AlterClientQuotas, QuotaAlteration
from pykbroker.controller.metadata.image import Acl
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.controller.turns import TURN_S
from pykbroker.coordination.transaction_marker import WrittenMarker
from pykbroker.handlers import create_acls, incremental_alter_configs
from pykbroker.handlers.alter_client_quotas import handle_alter_client_quotas
from pykbroker.handlers.alter_partition_reassignments import handle_alter_partition_reassignments
from pykbroker.handlers.alter_replica_log_dirs import handle_alter_replica_log_dirs
from pykbroker.handlers.create_acls import handle_create_acls
from pykbroker.handlers.create_partitions import handle_create_partitions
from pykbroker.handlers.create_topics import handle_create_topics
from pykbroker.handlers.delete_acls import handle_delete_acls
from pykbroker.handlers.delete_groups import handle_delete_groups
from pykbroker.handlers.delete_records import handle_delete_records
from pykbroker.handlers.delete_topics import handle_delete_topics
from pykbroker.handlers.describe_acls import handle_describe_acls
from pykbroker.handlers.describe_client_quotas import handle_describe_client_quotas
from pykbroker.handlers.describe_configs import handle_describe_configs
from pykbroker.handlers.describe_log_dirs import handle_describe_log_dirs
from pykbroker.handlers.describe_producers import handle_describe_producers
from pykbroker.handlers.describe_topic_partitions import handle_describe_topic_partitions
from pykbroker.handlers.elect_leaders import handle_elect_leaders
from pykbroker.handlers.incremental_alter_configs import handle_incremental_alter_configs
from pykbroker.handlers.list_offsets import handle_list_offsets
from pykbroker.handlers.list_partition_reassignments import handle_list_partition_reassignments
from pykbroker.handlers.metadata import handle_metadata
from pykbroker.handlers.offset_delete import handle_offset_delete
from pykbroker.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from pykbroker.handlers.produce import FEW, handle_produce
from pykbroker.handlers.write_txn_markers import handle_write_txn_markers
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from pykbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pykbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pykbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pykbroker.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pykbroker.protocol.messages.describe_acls import DescribeAclsRequest
from pykbroker.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from pykbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pykbroker.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pykbroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from pykbroker.protocol.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from pykbroker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from pykbroker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pykbroker.replication.transaction_markers import MarkerWriter
from pykbroker.requests.context import RequestContext
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import make_context, make_services
from tests.support.data_path import DataPath, batch, cluster_image, topic_image
from tests.support.services import Services
from tests.support.ticking_clock import TickingClock
from tests.support.turns import with_turns

TOPICS = 400


def _turns_of(handler: Any, context: RequestContext[Services], request: Any) -> int:
    """Number of times that another task runs before the request is answered."""
    _, turns = trio.run(with_turns, handler(context, request), clock=TickingClock())
    return turns


class Looks(trio.abc.Instrument):
    """Work of a quarter of a turn each time that `look` is called; `turns` has the steps of tasks in which it was."""

    def __init__(self) -> None:
        self.turns: set[int] = set()
        self._clock = trio.testing.MockClock()
        self._step = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step += 1

    def look(self) -> None:
        self._clock.jump(TURN_S / 4)
        self.turns.add(self._step)

    def run(self, handler: Any, context: RequestContext[Services], request: Any) -> None:
        trio.run(handler, context, request, clock=self._clock, instruments=[self])


@pytest.mark.parametrize(
    ("handler", "version", "request_"),
    [
        (handle_metadata, 12, MetadataRequest(topics=None)),
        (handle_describe_topic_partitions, 0, DescribeTopicPartitionsRequest()),
        (
            handle_describe_configs,
            4,
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=2, resource_name=f"t{n}", configuration_keys=None)
                    for n in range(TOPICS)
                ]
            ),
        ),
    ],
)
def test_of_the_metadata(handler: Any, version: int, request_: Any) -> None:
    services = make_services()
    topics = [NewTopic(f"t{n}", 2) for n in range(TOPICS)]
    services.controller.submit_now(CreateTopics(topics))  # type: ignore[attr-defined]
    assert _turns_of(handler, make_context(version, services=services), request_) > 5


def test_of_topics_that_do_not_exist() -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=f"t{n}") for n in range(TOPICS)], allow_auto_topic_creation=False
    )
    assert _turns_of(handle_metadata, make_context(12, services=make_services()), request) > 5


def quotas(count: int) -> AlterClientQuotas:
    return AlterClientQuotas(
        [QuotaAlteration((("user", f"u{n}"),), [("producer_byte_rate", 1000.0)]) for n in range(count)]
    )


CHANGES = {
    "AlterClientQuotas": (
        handle_alter_client_quotas,
        1,
        AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type="user", entity_name=f"v{n}")],
                    ops=[OpData(key="producer_byte_rate", value=5.0)],
                )
                for n in range(TOPICS)
            ]
        ),
    ),
    "DescribeClientQuotas": (handle_describe_client_quotas, 1, DescribeClientQuotasRequest()),
    "DescribeAcls": (
        handle_describe_acls,
        3,
        DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
            pattern_type_filter=1,
            operation=1,
            permission_type=1,
        ),
    ),
    "IncrementalAlterConfigs": (
        handle_incremental_alter_configs,
        1,
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name=f"t{n}",
                    configs=[AlterableConfig(name="retention.ms", config_operation=0, value="5")],
                )
                for n in range(TOPICS)
            ]
        ),
    ),
    "CreateTopics": (
        handle_create_topics,
        7,
        CreateTopicsRequest(
            topics=[CreatableTopic(name=f"new{n}", num_partitions=1, replication_factor=1) for n in range(TOPICS)],
            timeout_ms=1000,
        ),
    ),
    "CreatePartitions": (
        handle_create_partitions,
        3,
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=f"t{n}", count=1) for n in range(TOPICS)], timeout_ms=1000
        ),
    ),
    "DeleteTopics": (
        handle_delete_topics,
        5,
        DeleteTopicsRequest(topic_names=[f"t{n}" for n in range(TOPICS)], timeout_ms=1000),
    ),
    "ElectLeaders": (
        handle_elect_leaders,
        2,
        ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=f"t{n}", partitions=[0]) for n in range(TOPICS)], timeout_ms=1000
        ),
    ),
    "AlterPartitionReassignments": (
        handle_alter_partition_reassignments,
        1,
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(name=f"t{n}", partitions=[ReassignablePartition(partition_index=0, replicas=None)])
                for n in range(TOPICS)
            ],
            timeout_ms=1000,
        ),
    ),
    "CreateAcls": (
        handle_create_acls,
        3,
        CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=2,
                    resource_name=f"t{n}",
                    resource_pattern_type=3,
                    principal="User:b",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
                for n in range(TOPICS)
            ]
        ),
    ),
    "DeleteAcls": (
        handle_delete_acls,
        3,
        DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter=None,
                    pattern_type_filter=3,
                    principal_filter=None,
                    host_filter=None,
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
    ),
    "ListPartitionReassignments": (
        handle_list_partition_reassignments,
        0,
        ListPartitionReassignmentsRequest(topics=None),
    ),
}


def test_of_the_checks_of_many_acls(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looks()
    reason_invalid = create_acls._reason_invalid

    def slow(*arguments: Any) -> Any:
        looked.look()
        return reason_invalid(*arguments)

    monkeypatch.setattr(create_acls, "_reason_invalid", slow)
    handler, version, request = CHANGES["CreateAcls"]
    services = make_services().replaced(authorizer=StandardAuthorizer(dict, frozenset(), True))
    looked.run(handler, make_context(version, services=services), request)
    assert len(looked.turns) >= TOPICS / 8


@pytest.mark.parametrize("name", CHANGES)
def test_of_changes_and_lists(name: str) -> None:
    handler, version, request = CHANGES[name]
    services = make_services().replaced(authorizer=StandardAuthorizer(dict, frozenset(), True))
    submit: Any = services.controller.submit_now  # type: ignore[attr-defined]
    submit(CreateTopics([NewTopic(f"t{n}", 2) for n in range(TOPICS)]))
    submit(quotas(TOPICS))
    submit(CreateAcls([Acl(2, f"t{n}", 3, "User:a", "*", 3, 3) for n in range(TOPICS)]))
    assert _turns_of(handler, make_context(version, services=services), request) > TOPICS // 2


@pytest.mark.parametrize(
    ("handler", "version", "request_"),
    [
        (handle_describe_log_dirs, 4, DescribeLogDirsRequest(topics=None)),
        (
            handle_list_offsets,
            7,
            ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name="t",
                        partitions=[ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(20)],
                    )
                ],
            ),
        ),
        (
            handle_describe_producers,
            0,
            DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=list(range(20)))]),
        ),
        (
            handle_write_txn_markers,
            1,
            WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=1,
                        producer_epoch=0,
                        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=list(range(20)))],
                    )
                ]
            ),
        ),
        (
            handle_offset_for_leader_epoch,
            4,
            OffsetForLeaderEpochRequest(
                topics=[
                    OffsetForLeaderTopic(
                        topic="t", partitions=[OffsetForLeaderPartition(partition=n, leader_epoch=0) for n in range(20)]
                    )
                ]
            ),
        ),
        (
            handle_alter_replica_log_dirs,
            2,
            AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path="/none", topics=[AlterReplicaLogDirTopic(name="t", partitions=list(range(20)))]
                    )
                ]
            ),
        ),
        (
            handle_delete_records,
            2,
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name="t", partitions=[DeleteRecordsPartition(partition_index=n, offset=0) for n in range(20)]
                    )
                ]
            ),
        ),
    ],
)
def test_of_logs(handler: Any, version: int, request_: Any, tmp_path: Path) -> None:
    path = DataPath(tmp_path, cluster_image(topic_image("t", 20)))
    try:
        assert _turns_of(handler, make_context(version, services=path.services), request_) > 5
    finally:
        path.close()


def test_of_produce(tmp_path: Path) -> None:
    """While the headers of very many batches are parsed, and while the batches are appended."""
    path = DataPath(tmp_path, cluster_image(topic_image("t", 1)))
    count = FEW + 6
    request = ProduceRequest(
        acks=1,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[PartitionProduceData(index=n, records=memoryview(batch())) for n in range(count)],
            )
        ],
    )
    try:
        assert _turns_of(handle_produce, make_context(9, services=path.services), request) > count
    finally:
        path.close()


def _marker(producer_id: int, *topics: str) -> WritableTxnMarker:
    named = [WritableTxnMarkerTopic(name=topic, partition_indexes=[0]) for topic in topics]
    return WritableTxnMarker(producer_id=producer_id, producer_epoch=0, topics=named)


@pytest.mark.parametrize(
    "markers",
    [[_marker(1, *(f"t{n}" for n in range(20)))], [_marker(n, "t") for n in range(20)]],
    ids=["one producer", "many producers"],
)
def test_of_markers_in_topics_of_one_partition(
    markers: list[WritableTxnMarker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn goes on from one topic to the next, and from one producer to the next."""
    path = DataPath(tmp_path, cluster_image(topic_image("t", 1)))
    looked = Looks()

    def written(self: MarkerWriter, *arguments: Any) -> WrittenMarker:
        looked.look()
        return WrittenMarker(ErrorCode.NONE)

    monkeypatch.setattr(MarkerWriter, "write", written)
    context = make_context(1, services=path.services)
    try:
        looked.run(handle_write_txn_markers, context, WriteTxnMarkersRequest(markers=markers))
    finally:
        path.close()
    assert len(looked.turns) >= 4


NAMES = [f"t{n}" for n in range(20)]
NAMED: dict[str, tuple[Any, int, Any]] = {
    "DeleteGroups": (handle_delete_groups, 2, DeleteGroupsRequest(groups_names=NAMES)),
    "DeleteRecords": (
        handle_delete_records,
        2,
        DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[]) for name in NAMES]),
    ),
    "DescribeTopicPartitions": (
        handle_describe_topic_partitions,
        0,
        DescribeTopicPartitionsRequest(topics=[DescribedTopic(name=name) for name in NAMES]),
    ),
    "ListOffsets": (
        handle_list_offsets,
        7,
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
                for name in NAMES
            ],
        ),
    ),
    "Metadata": (
        handle_metadata,
        12,
        MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False),
    ),
    "OffsetDelete": (
        handle_offset_delete,
        0,
        OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name=name) for name in NAMES]),
    ),
}


def test_of_the_changes_of_many_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looks()
    edits = incremental_alter_configs._edits

    def slow(*arguments: Any) -> Any:
        looked.look()
        return edits(*arguments)

    monkeypatch.setattr(incremental_alter_configs, "_edits", slow)
    handler, version, request = CHANGES["IncrementalAlterConfigs"]
    looked.run(handler, make_context(version, services=make_services()), request)
    assert len(looked.turns) >= TOPICS / 8


@pytest.mark.parametrize("name", NAMED)
def test_of_the_authorization_of_many_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An authorizer in Python, or a standard one with many ACLs, takes its time for each name."""
    handler, version, request = NAMED[name]
    looked = Looks()

    class Slow(StandardAuthorizer):
        def allows(self, *arguments: Any) -> bool:
            looked.look()
            return True

    path = DataPath(tmp_path, cluster_image(topic_image("t", 1)))
    deleted = AsyncMock(return_value=dict.fromkeys(NAMES, ErrorCode.NONE))
    monkeypatch.setattr("pykbroker.handlers.delete_groups.delete_groups", deleted)
    monkeypatch.setattr(
        "pykbroker.handlers.offset_delete.delete_offsets", AsyncMock(return_value=OffsetDeleteResponse())
    )
    services = path.services.replaced(authorizer=Slow(dict, frozenset(), True), groups=Mock())
    try:
        looked.run(handler, make_context(version, services=services), request)
    finally:
        path.close()
    assert len(looked.turns) >= 4
