"""FindCoordinator (key 10), versions 0 to 6.

v1 key type and error message. v4 several keys (KIP-699). v5 TRANSACTION_ABORTABLE allowed. v6 key type share (KIP-932).

There are no transaction and share coordinators yet. Kafka would answer COORDINATOR_NOT_AVAILABLE for one that it does
not have, and clients would ask again until their time is up. Clients that ask for several keys (Java, kafka-python)
give up at once on UNSUPPORTED_VERSION and show the message. Older forms come from librdkafka and its like, which give
up on nothing but TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from pykbroker.coordination.partitioning import OFFSETS_TOPIC, coordinator_partition
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from pykbroker.protocol.uuids import uuid_from_text
from pykbroker.request_context import RequestContext

SEVERAL_KEYS_SINCE = 4
SHARE_SINCE = 6

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Key types (protocol.md 1.11)."""

NOT_AVAILABLE = "The coordinator is not available."
NO_TRANSACTIONS = "this broker has no transaction coordinator yet: use a producer without transactional.id"
NO_SHARE_GROUPS = "this broker has no share coordinator yet"
INVALID = "unknown key type, malformed key, or a key type that this version of FindCoordinator does not have"


async def handle_find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Which broker coordinates a group; P-88, P-89."""
    if context.api_version >= SEVERAL_KEYS_SINCE:
        coordinators = [_find(context, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=coordinators)
    found = _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or "NONE",
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(context: RequestContext, key_type: int, key: str) -> Coordinator:
    if key_type == GROUP:
        return _find_group(context, key)
    if key_type == TRANSACTION:
        is_batched = context.api_version >= SEVERAL_KEYS_SINCE
        error = ErrorCode.UNSUPPORTED_VERSION if is_batched else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _none(key, error, NO_TRANSACTIONS)
    if key_type == SHARE and context.api_version >= SHARE_SINCE and _is_share_key(key):
        return _none(key, ErrorCode.UNSUPPORTED_VERSION, NO_SHARE_GROUPS)
    return _none(key, ErrorCode.INVALID_REQUEST, INVALID)


def _is_share_key(key: str) -> bool:
    """Whether it reads ``group id:topic id:partition``."""
    group_id, _, rest = key.partition(":")
    topic_id, _, partition = rest.partition(":")
    try:
        uuid_from_text(topic_id)
    except ValueError:
        return False
    return bool(group_id.strip()) and partition.isdecimal()


def _find_group(context: RequestContext, group_id: str) -> Coordinator:
    """The leader of the group's partition. A missing topic is created, and the client asks again (P-89)."""
    metadata = context.services.metadata
    image = metadata.image
    topic = image.topics_by_name.get(OFFSETS_TOPIC)
    if topic is None:
        live_count = sum(not broker.is_fenced for broker in image.brokers.values())
        context.services.groups.request_topic_creation(live_count)
        return _none(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_AVAILABLE)
    partition = topic.partitions.get(coordinator_partition(group_id, len(topic.partitions)))
    endpoint = None if partition is None else metadata.endpoint(partition.leader, context)
    if partition is None or endpoint is None:
        return _none(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_AVAILABLE)
    return Coordinator(key=group_id, node_id=partition.leader, host=endpoint.host, port=endpoint.port)


def _none(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
