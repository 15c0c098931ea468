"""DescribeQuorum (key 55): leader, voters and observers of the metadata log (KIP-595).

Versions 0-2. v1 times of the last fetch and of being caught up (KIP-836); v2 directory ids, messages and the voters'
addresses (KIP-853). Only `__cluster_metadata`-0 has a quorum; only its leader has the state of the replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.topic_names import CLUSTER_METADATA_TOPIC
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import CLUSTER, DESCRIBE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.messages.describe_quorum import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)
from pykbroker.security.authorization import AUTHORIZATION_FAILED

if TYPE_CHECKING:
    from pykbroker.controller.raft.roles import ReplicaDescription
    from pykbroker.protocol.messages.describe_quorum import DescribeQuorumRequest
    from pykbroker.requests.context import NodeContext

NOT_LEADER_TEXT = (
    "For requests intended only for the leader, this error indicates that the broker is not the current leader. For "
    "requests intended for any replica, this error indicates that the broker is not a replica of the topic partition."
)


async def handle_describe_quorum(context: NodeContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describes the current state of the quorum, if this node leads it."""
    if not context.authorize_cluster(DESCRIBE):
        raise KafkaError(*AUTHORIZATION_FAILED[CLUSTER])
    asked = [(topic.topic_name, [part.partition_index for part in topic.partitions]) for topic in request.topics]
    if asked != [(CLUSTER_METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(
            topics=[
                TopicDataResponse(
                    topic_name=topic.topic_name,
                    partitions=[
                        _failure(
                            partition.partition_index,
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                            TEXTS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )
    services = context.services
    if not services.controller.is_leader:
        partition = _failure(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADER_TEXT)
        return _response(partition, [])
    state = services.controller.quorum_state()
    partition = PartitionDataResponse(
        partition_index=0,
        leader_id=state.leader_id,
        leader_epoch=state.epoch,
        high_watermark=state.high_watermark,
        current_voters=[_replica(replica, context.api_version) for replica in state.voters],
        observers=[_replica(replica, context.api_version) for replica in state.observers],
    )
    return _response(partition, _nodes(context) if context.api_version >= 2 else [])


def _response(partition: PartitionDataResponse, nodes: list[Node]) -> DescribeQuorumResponse:
    topic = TopicDataResponse(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    return DescribeQuorumResponse(topics=[topic], nodes=nodes)


def _failure(index: int, code: ErrorCode, message: str) -> PartitionDataResponse:
    return PartitionDataResponse(partition_index=index, error_code=code, error_message=message)


def _replica(replica: ReplicaDescription, version: int) -> ReplicaState:
    state = ReplicaState(
        replica_id=replica.key.node_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )
    if version >= 2:
        state.replica_directory_id = replica.key.directory_id
    return state


def _nodes(context: NodeContext) -> list[Node]:
    """The voters' addresses in the metadata log, else in `controller.quorum.voters`; without a port there is none."""
    config = context.services.config
    voters = context.services.controller.voters.voters
    if any(voter.endpoints for voter in voters):
        return [
            Node(
                node_id=voter.key.node_id,
                listeners=[Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints],
            )
            for voter in voters
        ]
    name = context.services.config.network.controller_listener
    return [
        Node(
            node_id=node_id,
            listeners=[Listener(name=name, host=host, port=port)] if port else [],
        )
        for node_id, (host, port) in config.quorum.voters.items()
    ]
