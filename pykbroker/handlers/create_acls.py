"""CreateAcls (key 30).

Versions 1-3. v1 resource pattern type (KIP-290); v2 flexible; v3 user resources (KIP-373). Without an authorizer
every creation gets SECURITY_DISABLED (P-155). The controller has the other checks and their error messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.turns import EachInTurns
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import ALTER, ANY, CLUSTER, CLUSTER_NAME, MATCH
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse
from pykbroker.requests.acl_requests import NO_AUTHORIZER_TO_CHANGE, known_elements
from pykbroker.requests.controller_calls import submit

if TYPE_CHECKING:
    from pykbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
    from pykbroker.requests.context import NodeContext


async def handle_create_acls(context: NodeContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Adds each entry independently; an entry that Kafka cannot parse closes the connection."""
    elements = [
        known_elements(new.resource_type, new.resource_pattern_type, new.operation, new.permission_type)
        async for new in EachInTurns(request.creations)
    ]
    if context.services.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER_TO_CHANGE)
    context.require_cluster(ALTER)
    reasons: list[str | None] = []
    async for new in EachInTurns(request.creations):
        if _is_for_filters_only(new):
            # As in Kafka, whose classes raise an exception for these values that is not handled.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        reasons.append(_reason_invalid(new))
    from pykbroker.controller.metadata.acls import CreateAcls
    from pykbroker.controller.metadata.image import Acl

    acls = [
        Acl(resource_type, new.resource_name, pattern_type, new.principal, new.host, operation, permission_type)
        async for new, (resource_type, pattern_type, operation, permission_type), reason in EachInTurns(
            zip(request.creations, elements, reasons, strict=True)
        )
        if reason is None
    ]
    results, failure = await submit(context, CreateAcls(acls), context.services.config.request_timeout_ms)
    remaining = iter([failure] * len(acls) if results is None else results)
    response = CreateAclsResponse()
    async for reason in EachInTurns(reasons):
        if reason is None:
            code, message = next(remaining)
        else:
            code, message = ErrorCode.INVALID_REQUEST, reason
        # On success the message in Kafka's response is empty, not null.
        response.results.append(AclCreationResult(error_code=code, error_message=message if code else ""))
    return response


def _is_for_filters_only(new: AclCreation) -> bool:
    return ANY in (new.resource_type, new.operation, new.permission_type) or new.resource_pattern_type in (ANY, MATCH)


def _reason_invalid(new: AclCreation) -> str | None:
    """Error message of a binding that Kafka refuses before it calls its authorizer, else None."""
    if new.resource_type == CLUSTER and new.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    return None if new.resource_name else "Invalid empty resource name"
