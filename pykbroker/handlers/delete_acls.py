"""DeleteAcls (key 31).

Versions 1-3. v1 resource pattern type (KIP-290); v2 flexible; v3 user resources (KIP-373). There is no authorizer:
every filter is answered with SECURITY_DISABLED (P-155).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from pykbroker.security.acls import NO_AUTHORIZER_TO_CHANGE, check_elements

if TYPE_CHECKING:
    from pykbroker.protocol.messages.delete_acls import DeleteAclsRequest
    from pykbroker.request_context import RequestContext


async def handle_delete_acls(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuses each; a filter that Kafka cannot read ends the connection."""
    for asked in request.filters:
        check_elements(asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_TO_CHANGE)
            for _ in request.filters
        ]
    )
