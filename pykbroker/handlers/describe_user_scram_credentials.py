"""DescribeUserScramCredentials (key 50): users that have SCRAM credentials (KIP-554).

Version 0. No secret is shown.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pykbroker.errors import KafkaError
from pykbroker.java_order import hash_order
from pykbroker.protocol.acl_codes import DESCRIBE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import UserScramCredentialRecord
from pykbroker.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from pykbroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
    from pykbroker.requests.context import NodeContext


async def handle_describe_user_scram_credentials(
    context: NodeContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Lists mechanisms and iterations of the users named; null or no users mean all."""
    if not context.authorize_cluster(DESCRIBE):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    stored: dict[str, list[CredentialInfo]] = {}
    for record in context.services.metadata.image.kept_records.values():
        if isinstance(record, UserScramCredentialRecord):
            info = CredentialInfo(mechanism=record.mechanism, iterations=record.iterations)
            stored.setdefault(record.name, []).append(info)
    counts = Counter(user.name for user in request.users or [])
    results = []
    for name in hash_order(counts or stored):
        result = DescribeUserScramCredentialsResult(user=name, error_message="")
        if counts[name] > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            )
        elif name in stored:
            result.credential_infos = stored[name]
        else:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
        results.append(result)
    return DescribeUserScramCredentialsResponse(results=results)
