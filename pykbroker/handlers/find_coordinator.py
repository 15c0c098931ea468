"""FindCoordinator (key 10), versions 0 to 6.

v1 key type and error message. v4 several keys (KIP-699). v5 TRANSACTION_ABORTABLE allowed. v6 key type share (KIP-932).
Needs DESCRIBE on the group or the transactional id, CLUSTER_ACTION for a share partition.
"""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.controller.turns import EachInTurns
from pykbroker.coordination.partitioning import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
    coordinator_partition,
)
from pykbroker.java_order import is_blank, java_int
from pykbroker.protocol import acl_codes
from pykbroker.protocol.acl_codes import CLUSTER_ACTION, DESCRIBE, TRANSACTIONAL_ID
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from pykbroker.protocol.uuids import uuid_from_text
from pykbroker.requests.context import BrokerContext

SEVERAL_KEYS_VERSION = 4
SHARE_VERSION = 6

KEY_TYPES = GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Key types."""
TOPICS = OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC
"""Topic of the coordinator of each key type."""

NOT_AVAILABLE = "The coordinator is not available."
# Kafka's words for any INVALID_REQUEST; clients show them.
INVALID = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


async def handle_find_coordinator(context: BrokerContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Returns the broker that coordinates each group, transactional id or share partition (P-88, P-89)."""
    is_share = request.key_type == SHARE and context.api_version >= SHARE_VERSION
    if is_share and not context.authorize_cluster(CLUSTER_ACTION):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return FindCoordinatorResponse(
            coordinators=[_no_coordinator(key, error, TEXTS[error]) for key in request.coordinator_keys]
        )
    services = context.services
    if request.key_type in KEY_TYPES and TOPICS[request.key_type] not in services.metadata.image.topics_by_name:
        # The topic will be created, and its shards are made as soon as it exists.
        coordinator = (services.groups, services.transactions, services.share_state)[request.key_type]
        await coordinator.runtime.import_shard()
    if context.api_version >= SEVERAL_KEYS_VERSION:
        coordinators = []
        async for key in EachInTurns(request.coordinator_keys):
            found = _find(context, request.key_type, key)
            if request.key_type in KEY_TYPES:
                found.error_message = ""  # empty as in Kafka, even with an error code
            coordinators.append(found)
        return FindCoordinatorResponse(coordinators=coordinators)
    found = _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or "NONE",
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(context: BrokerContext, key_type: int, key: str) -> Coordinator:
    services = context.services
    if key_type == GROUP:
        if not context.authorize(DESCRIBE, acl_codes.GROUP, key):
            return _no_coordinator(
                key, ErrorCode.GROUP_AUTHORIZATION_FAILED, TEXTS[ErrorCode.GROUP_AUTHORIZATION_FAILED]
            )
        return _find_leader(context, key, OFFSETS_TOPIC, services.groups.request_topic_creation)
    if key_type == TRANSACTION:
        if not context.authorize(DESCRIBE, TRANSACTIONAL_ID, key):
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return _no_coordinator(key, error, "Transactional Id authorization failed.")
        return _find_leader(context, key, TRANSACTION_TOPIC, services.transactions.request_topic_creation)
    if key_type == SHARE and context.api_version >= SHARE_VERSION:
        share_key = _share_key(key)
        if share_key is not None:
            found = _find_leader(context, share_key, SHARE_STATE_TOPIC, services.share_state.request_topic_creation)
            found.key = key
            return found
    return _no_coordinator(key, ErrorCode.INVALID_REQUEST, INVALID)


def _share_key(key: str) -> str | None:
    """The key of a share partition as its coordinator has it; None unless it is ``group id:topic id:partition``."""
    # Java's split drops empty parts at the end.
    rest, _, partition = key.rstrip(":").rpartition(":")
    group_id, _, topic_id = rest.rpartition(":")
    number = java_int(partition)
    try:
        uuid_from_text(topic_id)
    except ValueError:
        return None
    return f"{group_id}:{topic_id}:{number}" if number is not None and not is_blank(group_id) else None


def _find_leader(
    context: BrokerContext, key: str, topic_name: str, request_creation: Callable[[int], None]
) -> Coordinator:
    """The leader of the key's partition. A missing topic is created, and the client asks again (P-89)."""
    metadata = context.services.metadata
    image = metadata.image
    topic = image.topics_by_name.get(topic_name)
    if topic is None:
        request_creation(metadata.expected_broker_count)
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_AVAILABLE)
    partition = topic.partitions.get(coordinator_partition(key, len(topic.partitions)))
    endpoint = None if partition is None else metadata.endpoint(partition.leader, context.connection)
    if partition is None or endpoint is None or endpoint.is_fenced:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_AVAILABLE)
    return Coordinator(key=key, node_id=partition.leader, host=endpoint.host, port=endpoint.port)


def _no_coordinator(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
