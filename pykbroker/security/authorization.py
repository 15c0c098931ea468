"""Operations on each type of resource, and the bit field that tells clients of them (KIP-430).

The question itself is `RequestContext.authorize`; `standard_authorizer` answers it, where one is configured.
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

if TYPE_CHECKING:
    from collections.abc import Iterable

SUPPORTED_OPERATIONS: dict[int, tuple[int, ...]] = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
}
"""By resource type; the bit of an operation in a bit field is its number."""


def bit_field(operations: Iterable[int]) -> int:
    """Operations as the number that stands in a response."""
    return sum(1 << operation for operation in operations)


EVERY_OPERATION = {resource_type: bit_field(operations) for resource_type, operations in SUPPORTED_OPERATIONS.items()}
"""Authorized operations where there is no authorizer (P-30)."""


AUTHORIZATION_FAILED = {
    TOPIC: ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    GROUP: ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    CLUSTER: ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
}
"""The error by resource type, with Kafka's text."""


def refusal(api_name: str, operation: int) -> str:
    """The text that goes with CLUSTER_AUTHORIZATION_FAILED."""
    return f"Request {api_name} needs {OPERATIONS[operation]} permission."
