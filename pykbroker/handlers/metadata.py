"""Metadata (key 3): brokers, topics, partitions and their leaders.

Versions 0-13. v1 rack, controller, is_internal, and null instead of empty for all topics; v2 cluster id; v4
allow_auto_topic_creation; v5 offline replicas; v7 leader epochs (KIP-320); v8-10 authorized operations (KIP-430), of
the cluster up to v10 only; v9 flexible; v10 topic ids; v12 look-up by id (KIP-516); v13 top-level error (KIP-1102).
Topics that the client may not DESCRIBE are left out of the list of all topics; requested by name they get the same
error whether they exist or not. Creating one needs CREATE on the cluster or on the topic.
The topics of one response come from one image; they are encoded in turns and kept encoded (`topic_encoder`).
One difference from Kafka: a single broker that listens on every address and has no host in `advertised.listeners`
returns the host that the client connected to (`pykbroker/metadata/advertised_listeners.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykbroker.controller.metadata.topic_names import reason_invalid
from pykbroker.controller.turns import EachInTurns
from pykbroker.coordination.partitioning import INTERNAL_TOPICS
from pykbroker.protocol.acl_codes import CREATE, DESCRIBE, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from pykbroker.protocol.uuids import ZERO_UUID
from pykbroker.requests.auto_topic_creation import create_missing_topics
from pykbroker.requests.topic_encoder import TOPIC_OPERATIONS_VERSION, TopicEncoder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pykbroker.controller.metadata.image import TopicImage
    from pykbroker.protocol.messages.metadata import MetadataRequest
    from pykbroker.requests.context import BrokerContext

NULL_MEANS_ALL_VERSION = 1
AUTHORIZED_OPERATIONS_VERSION = 8
TOPIC_ID_LOOKUP_VERSION = 12


async def handle_metadata(context: BrokerContext, request: MetadataRequest) -> MetadataResponse:
    """Describes the named topics, all topics (P-22), or only the brokers."""
    version = context.api_version
    is_all = request.topics is None or (version < NULL_MEANS_ALL_VERSION and not request.topics)
    error = None if is_all else _request_error(context, request)
    if error is not None:
        return error
    services = context.services
    brokers = services.metadata.brokers(context.connection)
    alive = [broker for broker in brokers if not broker.is_fenced]
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.broker_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in alive
        ],
        cluster_id=services.cluster_id,
        controller_id=services.metadata.any_alive(services.random),
    )
    if version >= AUTHORIZED_OPERATIONS_VERSION and request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.cluster_operations()
    encoder = TopicEncoder(context, with_operations=request.include_topic_authorized_operations)
    response.topics = await (_all_topics(context, encoder) if is_all else _named_topics(context, request, encoder))
    return response


def _request_error(context: BrokerContext, request: MetadataRequest) -> MetadataResponse | None:
    """Error response to a request with null names or topic ids below v12 (P-29): INVALID_REQUEST. Else None.

    Kafka has no check for a topic with neither a name nor an id: it returns UNKNOWN_SERVER_ERROR, unless another topic
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


async def _all_topics(context: BrokerContext, encoder: TopicEncoder) -> list[Any]:
    """All topics, internal ones too; creates none (P-24)."""
    topics: Iterable[TopicImage] = encoder.image.topics_by_name.values()
    if context.services.authorizer is not None:
        topics = (topic for topic in topics if context.authorize(DESCRIBE, TOPIC, topic.name))
    return await encoder.encoded(topics)


async def _named_topics(context: BrokerContext, request: MetadataRequest, encoder: TopicEncoder) -> list[Any]:
    assert request.topics is not None
    ids = dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID)
    if ids:
        # P-29: one id makes the request a look-up by id; names are then ignored.
        known = encoder.image.topics_by_id
        # As in Kafka unknown ids come first, and hidden topics last.
        unknown = [_failed(ErrorCode.UNKNOWN_TOPIC_ID, topic_id) for topic_id in ids if topic_id not in known]
        found = [known[topic_id] for topic_id in ids if topic_id in known]
        hidden = await context.refused_in_turns(DESCRIBE, TOPIC, (topic.name for topic in found))
        described = await encoder.encoded(topic for topic in found if topic.name not in hidden)
        failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return unknown + described + [_failed(failed, topic.topic_id) for topic in found if topic.name in hidden]
    names = list({topic.name: None async for topic in EachInTurns(request.topics) if topic.name is not None})
    hidden = await context.refused_in_turns(DESCRIBE, TOPIC, names)
    topics = encoder.image.topics_by_name
    missing = [name async for name in EachInTurns(names) if name not in topics and name not in hidden]
    codes: dict[str, ErrorCode] = dict.fromkeys(hidden, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if missing:
        if request.allow_auto_topic_creation and context.services.config.topics.auto_create_enable:
            kept: Collection[str] = ()
            if not context.authorize_cluster(CREATE):
                kept = await context.refused_in_turns(CREATE, TOPIC, missing)
            codes |= dict.fromkeys(kept, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            codes |= await create_missing_topics(context, [name for name in missing if name not in kept])
        else:
            async for name in EachInTurns(missing):
                is_valid = reason_invalid(name) is None
                codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    has_operations = request.include_topic_authorized_operations and context.api_version >= TOPIC_OPERATIONS_VERSION
    described = await encoder.encoded(topics[name] for name in names if name not in codes)
    # As in Kafka: first those that exist, then those that do not, those that may not be created, those that are hidden.
    others = [name for name in missing if codes[name] != ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    others += [name for name in missing if codes[name] == ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    others += [name for name in names if name in hidden]
    async for name in EachInTurns(others):
        code = codes[name]
        topic = MetadataResponseTopic(
            error_code=code, name=name, is_internal=name in INTERNAL_TOPICS and name not in hidden
        )
        # Kafka returns the operations of every topic that it looked up by name, whether it exists or not.
        if has_operations and code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            topic.topic_authorized_operations = context.authorized_operations(TOPIC, name)
        described.append(topic)
    return described


def _failed(error: ErrorCode, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id)
