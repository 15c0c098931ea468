"""What the ACL APIs have in common: their texts without an authorizer (P-155), and what Kafka cannot read."""

from __future__ import annotations

from pykbroker.errors import CloseConnection
from pykbroker.protocol.acl_codes import OPERATIONS, PATTERN_TYPES, PERMISSION_TYPES, RESOURCE_TYPES

NO_AUTHORIZER_TO_DESCRIBE = "No Authorizer is configured on the broker"
NO_AUTHORIZER_TO_CHANGE = "No Authorizer is configured."
"""Kafka's texts; consoles look for the error code and show them."""


def check_elements(resource_type: int, pattern_type: int, operation: int, permission_type: int) -> None:
    """Whether these numbers stand for something; Kafka cannot read a request in which one does not (P-4).

    Raises:
        CloseConnection: one of them is unknown.
    """
    for number, names in (
        (resource_type, RESOURCE_TYPES),
        (pattern_type, PATTERN_TYPES),
        (operation, OPERATIONS),
        (permission_type, PERMISSION_TYPES),
    ):
        if not 0 < number < len(names):
            raise CloseConnection("an ACL request contains unknown elements")
