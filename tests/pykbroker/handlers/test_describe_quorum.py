"""DescribeQuorum: the leader's view of the metadata log."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pykbroker.controller.raft.roles import QuorumDescription, ReplicaDescription
from pykbroker.handlers.describe_quorum import handle_describe_quorum
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from tests.support.admin import call, make_context, make_services


def _ask(
    version: int, topic: str = "__cluster_metadata", partition: int = 0, *, leads: bool = True, **rest: Any
) -> Any:
    services = make_services(rest.get("properties"))
    controller: Any = services.controller
    controller.is_leader = leads
    controller.voters = rest.get("voters") or VoterSet(map(ReplicaKey, services.config.quorum.voters))
    controller.quorum_state = lambda: QuorumDescription(
        1, 3, 42, (ReplicaDescription(ReplicaKey(1, b"d" * 16), 42, 1000, 1001),), ()
    )
    topics = rest.get("topics") or [TopicData(topic_name=topic, partitions=[PartitionData(partition_index=partition)])]
    request = DescribeQuorumRequest(topics=topics)
    return call(handle_describe_quorum, make_context(version, services=services), request)


def test_the_leader_tells_what_it_knows() -> None:
    partition = _ask(2).topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id, partition.leader_epoch, partition.high_watermark) == (
        0,
        1,
        3,
        42,
    )
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.replica_directory_id, voter.log_end_offset) == (1, b"d" * 16, 42)
    assert (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == (1000, 1001)
    assert partition.observers == []


def test_addresses_of_the_voters_from_version_2() -> None:
    properties = {"controller.quorum.voters": "1@localhost:9093"}
    assert _ask(1, properties=properties).nodes == []
    (node,) = _ask(2, properties=properties).nodes
    assert (node.node_id, [(at.name, at.host, at.port) for at in node.listeners]) == (
        1,
        [("CONTROLLER", "localhost", 9093)],
    )
    assert _ask(2).nodes[0].listeners == []


@pytest.mark.parametrize(("topic", "partition"), [("t", 0), ("__cluster_metadata", 1)])
def test_other_partitions_have_no_quorum(topic: str, partition: int) -> None:
    answer = _ask(2, topic, partition).topics[0]
    assert (answer.topic_name, answer.partitions[0].partition_index) == (topic, partition)
    assert answer.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("is_first", [True, False])
def test_a_second_topic_without_partitions_is_refused_too(is_first: bool) -> None:
    """As in Kafka, where a request has one topic with one partition."""
    topics = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    topics.insert(0 if is_first else 1, TopicData(topic_name="__cluster_metadata"))
    answered = _ask(2, topics=topics).topics
    codes = [[partition.error_code for partition in topic.partitions] for topic in answered]
    refused = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes == ([[], refused] if is_first else [refused, []])


def test_only_the_leader_answers() -> None:
    assert _ask(2, leads=False).topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_addresses_of_voters_in_the_metadata_log() -> None:
    """With kraft.version 1 every voter has its listeners in the log, and the setting is not looked at."""
    endpoints = (VoterEndpoint("CONTROLLER", "h", 9094), VoterEndpoint("INNER", "::1", 9095))
    (node,) = _ask(2, voters=VoterSet([Voter(ReplicaKey(7), endpoints)])).nodes
    assert (node.node_id, [(at.name, at.host, at.port) for at in node.listeners]) == (
        7,
        [("CONTROLLER", "h", 9094), ("INNER", "::1", 9095)],
    )
