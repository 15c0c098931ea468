"""The last node of three: no quorum, and two of three partitions without a leader that lives.

It answers every client, from what it knows, or with an error that says whether to try again. Only what the active
controller must decide waits for one.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from interop_tests.cluster import NODES, Cluster
from interop_tests.conftest import StartCluster
from interop_tests.frames.layouts import Message, apis
from interop_tests.wire import Connection, record_batch

pytestmark = [
    pytest.mark.own_broker,
    pytest.mark.area("several nodes"),
    pytest.mark.client("raw frames"),
    pytest.mark.fault("kill -9 of two nodes"),
]

TOPIC, GROUP, TRANSACTION = "minority", "minority-group", "minority-transaction"
NO_ERROR, UNKNOWN_TOPIC, NOT_LEADER, TIMED_OUT, LOADING, NOT_COORDINATOR = 0, 3, 6, 7, 14, 16
PATIENCE_S = 8.0
"""Time for which clients wait for an answer; Produce has a timeout of 2 s of its own, which ends first."""
PARTITIONS = range(NODES)
MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"


def ask(node: str, api: str, version: int, request: Message) -> Message:
    with Connection(node, PATIENCE_S) as connection:
        frame = connection.exchange(apis()[api].encode_request(version, 1, request))
        return apis()[api].decode_reply(version, frame)


@pytest.fixture(scope="module")
def last(start_cluster: StartCluster) -> Iterator[str]:
    """Address of node 1, which leads partition 0 of the topic, after nodes 2 and 3 were killed."""
    cluster: Cluster = start_cluster("minority")
    node = cluster.nodes[1].bootstrap
    replicas = [
        {"PartitionIndex": first, "BrokerIds": [(first + step) % NODES + 1 for step in PARTITIONS]}
        for first in PARTITIONS
    ]
    topic = {"Name": TOPIC, "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": replicas, "Configs": []}
    made = ask(node, "CreateTopics", 5, {"Topics": [topic], "TimeoutMs": 5000, "ValidateOnly": False})
    assert made["Topics"][0]["ErrorCode"] == NO_ERROR
    cluster.wait_until_whole()
    for other in (3, 2):
        cluster.nodes[other].kill()
    yield node
    cluster.close()


def of_partitions(key: str, fields: Message) -> list[Message]:
    return [{key: number} | fields for number in PARTITIONS]


def codes(partitions: list[Message]) -> dict[int, int]:
    """Error code by partition: Apache Kafka answers in an order of its own."""
    return {one["PartitionIndex" if "PartitionIndex" in one else "Index"]: one["ErrorCode"] for one in partitions}


@pytest.mark.sample
def test_metadata(last: str) -> None:
    """Metadata still names all brokers and leaders as the controller last said."""
    found = ask(last, "Metadata", 9, {"Topics": [{"Name": TOPIC}], "AllowAutoTopicCreation": False})
    assert [broker["NodeId"] for broker in found["Brokers"]] == [1, 2, 3]
    leaders = {one["PartitionIndex"]: one["LeaderId"] for one in found["Topics"][0]["Partitions"]}
    assert leaders == {0: 1, 1: 2, 2: 3}


def test_a_topic_made_by_its_first_use(last: str) -> None:
    """A topic that cannot be made now is unknown, and its client is not kept waiting for a controller."""
    for _ in range(2):
        found = ask(last, "Metadata", 9, {"Topics": [{"Name": "new"}], "AllowAutoTopicCreation": True})
        assert [topic["ErrorCode"] for topic in found["Topics"]] == [UNKNOWN_TOPIC]


@pytest.mark.parametrize(("acks", "code"), [(1, NO_ERROR), (-1, TIMED_OUT)])
def test_produce(last: str, acks: int, code: int) -> None:
    """The leader that is left stores records; with acks=all they are not acknowledged."""
    batch = record_batch([b"alone"]).hex()
    topic = {"Name": TOPIC, "PartitionData": of_partitions("Index", {"Records": batch})}
    reply = ask(last, "Produce", 8, {"TransactionalId": None, "Acks": acks, "TimeoutMs": 2000, "TopicData": [topic]})
    assert codes(reply["Responses"][0]["PartitionResponses"]) == {0: code, 1: NOT_LEADER, 2: NOT_LEADER}


def test_offsets(last: str) -> None:
    """Only the leader answers with offsets, and they end before what is not replicated."""
    asked = of_partitions("PartitionIndex", {"CurrentLeaderEpoch": -1, "Timestamp": -1})
    reply = ask(last, "ListOffsets", 5, {"ReplicaId": -1, "Topics": [{"Name": TOPIC, "Partitions": asked}]})
    partitions = reply["Topics"][0]["Partitions"]
    assert codes(partitions) == {0: NO_ERROR, 1: NOT_LEADER, 2: NOT_LEADER}
    assert [one["Offset"] for one in partitions if one["PartitionIndex"] == 0] == [0]


def test_producer_ids(last: str) -> None:
    """A producer is told to try again: the controller allocates the ids."""
    reply = ask(last, "InitProducerId", 4, {"TransactionalId": None, "ProducerId": -1, "ProducerEpoch": -1})
    assert reply["ErrorCode"] == LOADING


def test_coordinators(last: str) -> None:
    """Requests to the coordinator of a group or transaction that another node has are NOT_COORDINATOR."""
    found = ask(last, "FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [GROUP]})
    coordinator = found["Coordinators"][0]
    # The topic of groups was made by nobody.
    assert (coordinator["ErrorCode"], coordinator["NodeId"]) == (15, -1)
    beat = ask(last, "Heartbeat", 3, {"GroupId": GROUP, "GenerationId": 1, "MemberId": "member"})
    assert beat["ErrorCode"] == NOT_COORDINATOR
    joining = {"GroupId": GROUP, "MemberId": MEMBER, "RebalanceTimeoutMs": 3000, "SubscribedTopicNames": [TOPIC]}
    beat = ask(last, "ConsumerGroupHeartbeat", 1, {**joining, "MemberEpoch": 0, "TopicPartitions": []})
    assert beat["ErrorCode"] == NOT_COORDINATOR
    transaction = {"TransactionalId": TRANSACTION, "TransactionTimeoutMs": 9000, "ProducerId": -1, "ProducerEpoch": -1}
    assert ask(last, "InitProducerId", 4, transaction)["ErrorCode"] == NOT_COORDINATOR


@pytest.mark.parametrize(
    ("api", "version", "request_"),
    [
        ("DescribeCluster", 1, {}),
        ("DescribeConfigs", 3, {"Resources": [{"ResourceType": 2, "ResourceName": TOPIC, "ConfigurationKeys": None}]}),
        ("DescribeLogDirs", 3, {"Topics": None}),
        ("ListGroups", 4, {"StatesFilter": []}),
        ("ListTransactions", 1, {"StateFilters": [], "ProducerIdFilters": [], "DurationFilter": -1}),
        ("DescribeClientQuotas", 1, {"Components": [], "Strict": False}),
        ("DescribeUserScramCredentials", 0, {"Users": None}),
    ],
)
def test_what_a_broker_knows_itself(last: str, api: str, version: int, request_: dict[str, Any]) -> None:
    """Descriptions that need no controller are given as ever."""
    reply = ask(last, api, version, request_)
    assert reply.get("ErrorCode", NO_ERROR) == NO_ERROR


def test_what_the_controller_decides(last: str) -> None:
    """A topic is not created while there is no quorum: its client waits and is not told that it was."""
    topic = {"Name": "later", "NumPartitions": 1, "ReplicationFactor": 1, "Assignments": [], "Configs": []}
    with pytest.raises(socket.timeout):
        ask(last, "CreateTopics", 5, {"Topics": [topic], "TimeoutMs": 3000, "ValidateOnly": False})
