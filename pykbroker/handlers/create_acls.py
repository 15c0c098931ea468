"""CreateAcls (key 30).

Versions 1-3. v1 resource pattern type (KIP-290); v2 flexible; v3 user resources (KIP-373). There is no authorizer:
every creation is answered with SECURITY_DISABLED (P-155).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse
from pykbroker.security.acls import NO_AUTHORIZER_TO_CHANGE, check_elements

if TYPE_CHECKING:
    from pykbroker.protocol.messages.create_acls import CreateAclsRequest
    from pykbroker.request_context import RequestContext


async def handle_create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Refuses each; one that Kafka cannot read ends the connection."""
    for new in request.creations:
        check_elements(new.resource_type, new.resource_pattern_type, new.operation, new.permission_type)
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_TO_CHANGE)
            for _ in request.creations
        ]
    )
