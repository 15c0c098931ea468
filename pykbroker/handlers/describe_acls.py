"""DescribeAcls (key 29).

Versions 1-3. v1 resource pattern type (KIP-290); v2 flexible; v3 user resources (KIP-373). Without an authorizer the
answer is SECURITY_DISABLED, which admin clients and consoles show as "no ACLs here" (P-155).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.turns import Turn
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import DESCRIBE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_acls import AclDescription, DescribeAclsResource, DescribeAclsResponse
from pykbroker.requests.acl_requests import NO_AUTHORIZER_TO_DESCRIBE, known_elements

if TYPE_CHECKING:
    from pykbroker.protocol.messages.describe_acls import DescribeAclsRequest
    from pykbroker.requests.context import NodeContext


async def handle_describe_acls(context: NodeContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Lists the entries that match, by resource pattern; a filter that Kafka cannot parse closes the connection."""
    resource_type, pattern_type, operation, permission_type = known_elements(
        request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    )
    services = context.services
    if services.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER_TO_DESCRIBE)
    context.require_cluster(DESCRIBE)
    from pykbroker.controller.metadata.acls import AclFilter

    wanted = AclFilter(
        resource_type,
        request.resource_name_filter,
        pattern_type,
        request.principal_filter,
        request.host_filter,
        operation,
        permission_type,
    )
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    turn = Turn()
    for acl in services.metadata.image.acls.values():
        if turn.is_over:
            await turn.end_if_over()
        if wanted.matches(acl):
            pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
            if pattern not in resources:
                resources[pattern] = DescribeAclsResource(
                    resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
                )
            resources[pattern].acls.append(
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
            )
    return DescribeAclsResponse(resources=list(resources.values()))
