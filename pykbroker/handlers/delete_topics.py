"""DeleteTopics (key 20).

Versions 1-6. v3 TOPIC_DELETION_DISABLED where it was INVALID_REQUEST; v4 flexible; v5 messages and quota errors, of
which there are none here; v6 topics by id (KIP-516). Name and id together are refused (P-148).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.commands import ApiError
from pykbroker.controller.metadata.topics import DeleteTopics, TopicReference
from pykbroker.controller_requests import submit
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse

if TYPE_CHECKING:
    from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest
    from pykbroker.request_context import RequestContext

DELETION_DISABLED_VERSION = 3


async def handle_delete_topics(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Deletes each topic by itself."""
    references = [TopicReference(name) for name in request.topic_names]
    references += [TopicReference(topic.name, topic.topic_id) for topic in request.topics]
    if not context.services.config.delete_topic_enable:
        return _refused(references, _deletion_disabled(context.api_version))
    results, error = await submit(context, DeleteTopics(references), request.timeout_ms)
    if results is None:
        return _refused(references, error)
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=result.name,
                topic_id=result.topic_id,
                error_code=result.error.code,
                error_message=result.error.message,
            )
            for result in results
        ]
    )


def _deletion_disabled(version: int) -> ApiError:
    if version < DELETION_DISABLED_VERSION:
        return ApiError(ErrorCode.INVALID_REQUEST, "This version does not support topic deletion.")
    return ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")


def _refused(references: list[TopicReference], error: ApiError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=reference.name, topic_id=reference.topic_id, error_code=error.code, error_message=error.message
            )
            for reference in references
        ]
    )
