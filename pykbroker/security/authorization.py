"""Operations of each resource type, and the bit field of authorized operations (KIP-430).

`RequestContext.authorize` is the check itself; `standard_authorizer` implements it, if it is configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.commands import ApiError
from pykbroker.protocol.acl_codes import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    OPERATIONS,
    READ,
    TOPIC,
    WRITE,
)
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterable

SUPPORTED_OPERATIONS: dict[int, tuple[int, ...]] = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
}
"""Operations by resource type. The number of an operation is its bit in a bit field."""


def bit_field(operations: Iterable[int]) -> int:
    """Bit field of operations, as in a response."""
    return sum(1 << operation for operation in operations)


EVERY_OPERATION = {resource_type: bit_field(operations) for resource_type, operations in SUPPORTED_OPERATIONS.items()}
"""Authorized operations by resource type without an authorizer (P-30)."""


AUTHORIZATION_FAILED = {
    TOPIC: ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TEXTS[ErrorCode.TOPIC_AUTHORIZATION_FAILED]),
    GROUP: ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, TEXTS[ErrorCode.GROUP_AUTHORIZATION_FAILED]),
    CLUSTER: ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, TEXTS[ErrorCode.CLUSTER_AUTHORIZATION_FAILED]),
}
"""Error code and Kafka's text of a refusal, by resource type."""


def refusal(api_name: str, operation: int) -> str:
    """Error text for CLUSTER_AUTHORIZATION_FAILED."""
    return f"Request {api_name} needs {OPERATIONS[operation]} permission."
