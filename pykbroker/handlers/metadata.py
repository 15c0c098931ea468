"""Metadata (key 3): brokers, topics, partitions and their leaders.

Versions 0-13. v1 rack, controller, is_internal, and null instead of empty for all topics; v2 cluster id; v4
allow_auto_topic_creation; v5 offline replicas; v7 leader epochs (KIP-320); v8-10 authorized operations (KIP-430), of
the cluster only until v10; v9 flexible; v10 topic ids; v12 look-up by id (KIP-516); v13 top-level error (KIP-1102).
Topics that the client may not DESCRIBE are not in the list of all; asked for by name, nothing is said of whether they
exist. Creating one needs CREATE on the cluster or on the topic.
One difference from Kafka: without `advertised.listeners` a client is told the address that it dialled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.topic_names import reason_invalid
from pykbroker.metadata_cache import INTERNAL_TOPICS
from pykbroker.protocol.acl_codes import CLUSTER, CLUSTER_NAME, CREATE, DESCRIBE, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykbroker.protocol.uuids import ZERO_UUID
from pykbroker.topic_creation import create_missing_topics

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import PartitionImage, TopicImage
    from pykbroker.protocol.messages.metadata import MetadataRequest
    from pykbroker.request_context import RequestContext

NO_CONTROLLER = -1
NO_LEADER = -1
NULL_MEANS_ALL_VERSION = 1
LISTENER_NOT_FOUND_VERSION = 6
AUTHORIZED_OPERATIONS_VERSION = 8
TOPIC_ID_LOOKUP_VERSION = 12


async def handle_metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Answers for the topics named, for all (P-22), or for the brokers alone."""
    version = context.api_version
    is_all = request.topics is None or (version < NULL_MEANS_ALL_VERSION and not request.topics)
    error = None if is_all else _request_error(context, request)
    if error is not None:
        return error
    services = context.services
    brokers = services.metadata.brokers(context)
    alive = [broker for broker in brokers if not broker.is_fenced]
    alive_ids = [broker_id for broker_id, broker in services.metadata.image.brokers.items() if not broker.is_fenced]
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.broker_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in alive
        ],
        cluster_id=services.cluster_id,
        # P-25: any live broker, as each forwards to the leader of the quorum.
        controller_id=services.random.choice(alive_ids) if alive_ids else NO_CONTROLLER,
    )
    response.topics = _all_topics(context) if is_all else await _named_topics(context, request)
    if version >= AUTHORIZED_OPERATIONS_VERSION:
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = (
                context.authorized_operations(CLUSTER, CLUSTER_NAME) if context.authorize_cluster(DESCRIBE) else 0
            )
        if request.include_topic_authorized_operations:
            for topic in response.topics:
                # Kafka asks its authorizer for the topics that it looked up by name, found or not.
                if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    topic.topic_authorized_operations = context.authorized_operations(TOPIC, topic.name)
    return response


def _request_error(context: RequestContext, request: MetadataRequest) -> MetadataResponse | None:
    """Null names and topic ids need v12 (P-29); before, the whole request is INVALID_REQUEST.

    A topic with neither is something that Kafka does not foresee: it answers UNKNOWN_SERVER_ERROR, unless another topic
    makes the request a look-up by id.
    """
    topics = request.topics or []
    if context.api_version < TOPIC_ID_LOOKUP_VERSION:
        code = ErrorCode.INVALID_REQUEST
        is_fine = all(topic.name is not None and topic.topic_id == ZERO_UUID for topic in topics)
    else:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        is_fine = any(topic.topic_id != ZERO_UUID for topic in topics) or all(
            topic.name is not None for topic in topics
        )
    if is_fine:
        return None
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id) for topic in topics
        ],
        error_code=code,
    )


def _all_topics(context: RequestContext) -> list[MetadataResponseTopic]:
    """P-24: internal topics too, and nothing is created."""
    topics = context.services.metadata.image.topics_by_name
    hidden = context.refused(DESCRIBE, TOPIC, topics)
    return [_topic(context, topic) for topic in topics.values() if topic.name not in hidden]


async def _named_topics(context: RequestContext, request: MetadataRequest) -> list[MetadataResponseTopic]:
    metadata = context.services.metadata
    assert request.topics is not None
    ids = dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID)
    if ids:
        # P-29: one id makes it a look-up by id; names are not looked at then.
        return [_topic_by_id(context, topic_id) for topic_id in ids]
    names = list(dict.fromkeys(topic.name for topic in request.topics if topic.name is not None))
    hidden = context.refused(DESCRIBE, TOPIC, names)
    found = {name: topic for name in names if name not in hidden and (topic := metadata.topic(name)) is not None}
    missing = [name for name in names if name not in found and name not in hidden]
    codes: dict[str, ErrorCode] = dict.fromkeys(hidden, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if missing:
        if request.allow_auto_topic_creation and context.services.config.auto_create_topics_enable:
            kept = () if context.authorize_cluster(CREATE) else context.refused(CREATE, TOPIC, missing)
            codes |= dict.fromkeys(kept, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            codes |= await create_missing_topics(context, [name for name in missing if name not in kept])
        else:
            for name in missing:
                is_valid = reason_invalid(name) is None
                codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    return [
        _topic(context, found[name])
        if name in found
        else MetadataResponseTopic(
            error_code=codes[name], name=name, is_internal=name in INTERNAL_TOPICS and name not in hidden
        )
        for name in names
    ]


def _topic_by_id(context: RequestContext, topic_id: bytes) -> MetadataResponseTopic:
    topic = context.services.metadata.topic_by_id(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    if not context.authorize(DESCRIBE, TOPIC, topic.name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
    return _topic(context, topic)


def _topic(context: RequestContext, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(context, partition) for partition in topic.partitions.values()],
    )


def _partition(context: RequestContext, partition: PartitionImage) -> MetadataResponsePartition:
    """P-26: without a reachable leader the replica lists are still filled; v0 leaves out the dead ones."""
    metadata = context.services.metadata
    leader = metadata.endpoint(partition.leader, context)
    response = MetadataResponsePartition(
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=metadata.offline_replicas(partition),
    )
    if context.api_version == 0:
        response.replica_nodes = [replica for replica in partition.replicas if metadata.is_alive(replica)]
        response.isr_nodes = [replica for replica in partition.isr if metadata.is_alive(replica)]
        if len(response.replica_nodes) < len(partition.replicas) or len(response.isr_nodes) < len(partition.isr):
            response.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
    if leader is None or leader.is_fenced:
        response.leader_id = NO_LEADER
        is_registered = partition.leader in metadata.image.brokers
        response.error_code = (
            ErrorCode.LISTENER_NOT_FOUND
            if is_registered and context.api_version >= LISTENER_NOT_FOUND_VERSION
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
    return response
