"""DeleteAcls (key 31).

Versions 1-3. v1 resource pattern type (KIP-290); v2 flexible; v3 user resources (KIP-373). Without an authorizer
every filter gets SECURITY_DISABLED (P-155).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.turns import EachInTurns
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import ALTER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from pykbroker.requests.acl_requests import NO_AUTHORIZER_TO_CHANGE, known_elements
from pykbroker.requests.controller_calls import submit_command

if TYPE_CHECKING:
    from pykbroker.controller.metadata.acls import AclDeletion
    from pykbroker.protocol.messages.delete_acls import DeleteAclsRequest
    from pykbroker.requests.context import NodeContext


async def handle_delete_acls(context: NodeContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Deletes and lists the entries that match each filter; a filter that Kafka cannot parse closes the connection."""
    elements = [
        known_elements(asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)
        async for asked in EachInTurns(request.filters)
    ]
    if context.services.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER_TO_CHANGE)
    context.require_cluster(ALTER)
    from pykbroker.controller.metadata.acls import AclFilter, DeleteAcls

    filters = [
        AclFilter(
            resource_type,
            asked.resource_name_filter,
            pattern_type,
            asked.principal_filter,
            asked.host_filter,
            operation,
            permission_type,
        )
        async for asked, (resource_type, pattern_type, operation, permission_type) in EachInTurns(
            zip(request.filters, elements, strict=True)
        )
    ]
    results = await submit_command(context, DeleteAcls(filters))
    return DeleteAclsResponse(filter_results=[await _result(deletion) async for deletion in EachInTurns(results)])


async def _result(deletion: AclDeletion) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=deletion.error.code,
        error_message=deletion.error.message,
        matching_acls=[
            DeleteAclsMatchingAcl(error_message=None, **acl._asdict()) async for acl in EachInTurns(deletion.acls)
        ],
    )
