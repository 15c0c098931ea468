"""Common parts of CreateAcls, DeleteAcls and DescribeAcls: check of codes, texts without an authorizer (P-155)."""

from __future__ import annotations

from pykbroker.errors import CloseConnection
from pykbroker.protocol.acl_codes import OPERATIONS, PATTERN_TYPES, PERMISSION_TYPES, RESOURCE_TYPES, UNKNOWN

NO_AUTHORIZER_TO_DESCRIBE = "No Authorizer is configured on the broker"
NO_AUTHORIZER_TO_CHANGE = "No Authorizer is configured."
"""Kafka's error texts, which tools show beside the error code."""


def known_elements(
    resource_type: int, pattern_type: int, operation: int, permission_type: int
) -> tuple[int, int, int, int]:
    """The same codes, with UNKNOWN in place of codes that do not exist.

    Raises:
        CloseConnection: the client has sent the code of UNKNOWN itself; Kafka cannot read such a request (P-4).
    """
    if UNKNOWN in (resource_type, pattern_type, operation, permission_type):
        raise CloseConnection("an ACL request contains unknown elements")
    return (
        _known(resource_type, RESOURCE_TYPES),
        _known(pattern_type, PATTERN_TYPES),
        _known(operation, OPERATIONS),
        _known(permission_type, PERMISSION_TYPES),
    )


def _known(number: int, names: tuple[str, ...]) -> int:
    return number if 0 < number < len(names) else UNKNOWN
