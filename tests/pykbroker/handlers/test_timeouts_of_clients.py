"""P-487: a request whose own timeout is over at once gets REQUEST_TIMED_OUT, and the controller does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.whole_broker import WholeBroker

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
DUPLICATE = "Duplicate topic name."


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeBroker]:
    folder: Path = tmp_path_factory.mktemp("data")
    with WholeBroker(folder) as started:
        assert started.create_topic("old") == 0
        yield started


def partition_count(broker: WholeBroker, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return len(broker.client.call(request, 8).topics[0].partitions)


def new(*names: str) -> list[CreatableTopic]:
    return [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]


def answer(broker: WholeBroker, request: Any, version: int) -> list[tuple[str | None, int, str | None]]:
    response = broker.client.call(request, version)
    results = getattr(response, "topics", None) or getattr(response, "responses", None) or response.results
    return [(result.name, result.error_code, result.error_message) for result in results]


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_topics(broker: WholeBroker, timeout_ms: int) -> None:
    """A request of which nothing is left for the controller gets the other errors; else all get this one."""
    create = CreateTopicsRequest(topics=new("a"), timeout_ms=timeout_ms)
    assert answer(broker, create, 7) == [("a", TIMED_OUT, None)]
    time_is_over = ("a", TIMED_OUT, None)
    create = CreateTopicsRequest(topics=new("a", "a", "b"), timeout_ms=timeout_ms)
    assert answer(broker, create, 7) == [time_is_over, time_is_over, ("b", TIMED_OUT, None)]
    create = CreateTopicsRequest(topics=new("a", "a"), timeout_ms=timeout_ms)
    assert answer(broker, create, 7) == [("a", ErrorCode.INVALID_REQUEST, DUPLICATE)]
    create = CreateTopicsRequest(topics=new("__cluster_metadata"), timeout_ms=timeout_ms)
    assert [code for _, code, _ in answer(broker, create, 7)] == [ErrorCode.INVALID_REQUEST]
    assert partition_count(broker, "a") == 0
    grown = CreatePartitionsTopic(name="old", count=2, assignments=None)
    grow = CreatePartitionsRequest(topics=[grown], timeout_ms=timeout_ms, validate_only=False)
    assert answer(broker, grow, 3) == [("old", TIMED_OUT, None)]
    grow = CreatePartitionsRequest(topics=[grown, grown], timeout_ms=timeout_ms, validate_only=False)
    assert answer(broker, grow, 3) == [("old", ErrorCode.INVALID_REQUEST, DUPLICATE)]
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="old")], timeout_ms=timeout_ms)
    assert answer(broker, delete, 6) == [("old", TIMED_OUT, None)]
    both = DeleteTopicState(name="old", topic_id=b"i" * 16)
    delete = DeleteTopicsRequest(topics=[both], timeout_ms=timeout_ms)
    assert [code for _, code, _ in answer(broker, delete, 6)] == [ErrorCode.INVALID_REQUEST]
    assert partition_count(broker, "old") == 1


def test_elections_and_reassignments(broker: WholeBroker) -> None:
    asked = [TopicPartitions(topic="old", partitions=[0])]
    elected = broker.client.call(ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=0), 2)
    assert elected.error_code == TIMED_OUT
    assert elected.replica_election_results[0].partition_result[0].error_code == TIMED_OUT
    elected = broker.client.call(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=0), 2)
    assert (elected.error_code, elected.replica_election_results) == (TIMED_OUT, [])
    elected = broker.client.call(ElectLeadersRequest(election_type=0, topic_partitions=[], timeout_ms=0), 2)
    assert elected.error_code == ErrorCode.NONE
    moved = [ReassignableTopic(name="old", partitions=[ReassignablePartition(partition_index=0, replicas=[1])])]
    moving = broker.client.call(AlterPartitionReassignmentsRequest(topics=moved, timeout_ms=0), 0)
    assert (moving.error_code, moving.error_message) == (TIMED_OUT, None)
    assert moving.responses[0].partitions[0].error_code == TIMED_OUT
    moving = broker.client.call(AlterPartitionReassignmentsRequest(topics=[], timeout_ms=0), 0)
    assert moving.error_code == ErrorCode.NONE
