"""DeleteTopics (key 20).

Versions 1-6. v3 TOPIC_DELETION_DISABLED instead of INVALID_REQUEST; v4 flexible; v5 messages and
THROTTLING_QUOTA_EXCEEDED (P-272); v6 topics by id (KIP-516). Name and id together are refused (P-148). Needs DELETE on
the cluster or on the topic; a client without DESCRIBE gets the same response whether or not a topic exists, and no
name for a topic id.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.commands import ApiError, CommandRefused
from pykbroker.controller.metadata.topics import DeleteTopics, TopicReference
from pykbroker.controller.turns import EachInTurns, in_turns
from pykbroker.protocol.acl_codes import DELETE, DESCRIBE, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from pykbroker.protocol.uuids import ZERO_UUID
from pykbroker.requests.controller_calls import charge_of, is_too_late, submit
from pykbroker.security.authorization import AUTHORIZATION_FAILED
from pykbroker.security.connection_info import ListenerKind

if TYPE_CHECKING:
    from pykbroker.controller.metadata.topics import DeleteTopicResult
    from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest
    from pykbroker.requests.context import NodeContext

DELETION_DISABLED_VERSION = 3


async def handle_delete_topics(context: NodeContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Deletes each topic independently of the others."""
    references = [TopicReference(name) for name in request.topic_names]
    references += [TopicReference(topic.name, topic.topic_id) for topic in request.topics]
    if not context.services.config.topics.delete_enable:
        return _refused(references, _deletion_disabled(context.api_version))
    if is_too_late(request.timeout_ms) and any(
        count == 1 and (name is None) != (topic_id == ZERO_UUID)
        for (name, topic_id), count in Counter(references).items()
    ):
        return _refused(references, ApiError(ErrorCode.REQUEST_TIMED_OUT))
    all_references = references
    unauthorized: list[DeletableTopicResult] = []
    if not context.authorize_cluster(DELETE):
        counts = Counter(references)
        answers = [
            (topic, _unauthorized(context, topic) if counts[topic] == 1 else None)
            async for topic in EachInTurns(references)
        ]
        references = [reference for reference, answer in answers if answer is None]
        unauthorized = [answer for _, answer in answers if answer is not None]
    results, error = await submit(context, DeleteTopics(references, charge_of(context)), request.timeout_ms)
    if error.code == ErrorCode.NOT_CONTROLLER:
        results = await _without_deletion(context, references)
    if results is None:
        # Kafka's response to a whole request that fails has no text.
        return _refused(all_references, ApiError(error.code))
    return DeleteTopicsResponse(
        responses=unauthorized
        + [
            DeletableTopicResult(
                name=result.name,
                topic_id=result.topic_id,
                error_code=result.error.code,
                error_message=result.error.message,
            )
            async for result in EachInTurns(results)
        ]
    )


async def _without_deletion(context: NodeContext, references: list[TopicReference]) -> list[DeleteTopicResult] | None:
    """Results at the port of a controller that is not active, if all are errors; None if there is a topic to delete.

    Kafka's controllers look topics up themselves, and need to be active only to delete (P-685). A request that a broker
    forwarded goes to the active controller all the same, as this controller's metadata may be old.
    """
    connection = context.connection
    if connection.listener_kind is ListenerKind.BROKER or connection.is_forwarded:
        return None
    try:
        plan = await in_turns(DeleteTopics(references).plan_in_steps(context.services.metadata.image))
    except CommandRefused:  # more topics than one request may delete
        return None
    return None if plan.records else plan.result


def _unauthorized(context: NodeContext, reference: TopicReference) -> DeletableTopicResult | None:
    """Error result if the client may not delete the topic; None if it may, or if the controller refuses it anyway."""
    metadata = context.services.metadata
    name = reference.name
    if name is None:
        topic = metadata.topic_by_id(reference.topic_id)
        if topic is None or context.authorize(DELETE, TOPIC, topic.name):
            return None
        name = topic.name if context.authorize(DESCRIBE, TOPIC, topic.name) else None
    elif reference.topic_id != ZERO_UUID or (
        context.authorize(DESCRIBE, TOPIC, name)
        and (metadata.topic(name) is None or context.authorize(DELETE, TOPIC, name))
    ):
        return None
    code, message = AUTHORIZATION_FAILED[TOPIC]
    return DeletableTopicResult(name=name, topic_id=reference.topic_id, error_code=code, error_message=message)


def _deletion_disabled(version: int) -> ApiError:
    if version < DELETION_DISABLED_VERSION:
        return ApiError(ErrorCode.INVALID_REQUEST)
    # Kafka's response to a whole request that fails has no text.
    return ApiError(ErrorCode.TOPIC_DELETION_DISABLED)


def _refused(references: list[TopicReference], error: ApiError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=reference.name, topic_id=reference.topic_id, error_code=error.code, error_message=error.message
            )
            for reference in references
        ]
    )
