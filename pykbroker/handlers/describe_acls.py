"""DescribeAcls (key 29).

Versions 1-3. v1 resource pattern type (KIP-290); v2 flexible; v3 user resources (KIP-373). There is no authorizer:
every answer is SECURITY_DISABLED, which admin clients and consoles show as "no ACLs here" (P-155).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_acls import DescribeAclsResponse
from pykbroker.security.acls import NO_AUTHORIZER_TO_DESCRIBE, check_elements

if TYPE_CHECKING:
    from pykbroker.protocol.messages.describe_acls import DescribeAclsRequest
    from pykbroker.request_context import RequestContext


async def handle_describe_acls(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Refuses; a filter that Kafka cannot read ends the connection."""
    check_elements(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_TO_DESCRIBE)
