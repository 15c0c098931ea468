"""What the ACL APIs say while there is no authorizer (P-155)."""

from __future__ import annotations

from pykbroker.errors import CloseConnection

NO_AUTHORIZER_TO_DESCRIBE = "No Authorizer is configured on the broker"
NO_AUTHORIZER_TO_CHANGE = "No Authorizer is configured."
"""Kafka's texts; consoles look for the error code and show them."""

# The numbers of ACL elements go from 0, which is "unknown", to these.
RESOURCE_TYPE_MAX = 7
PATTERN_TYPE_MAX = 4
OPERATION_MAX = 15
PERMISSION_TYPE_MAX = 3


def check_elements(resource_type: int, pattern_type: int, operation: int, permission_type: int) -> None:
    """Whether these numbers stand for something; Kafka cannot read a request in which one does not (P-4).

    Raises:
        CloseConnection: one of them is unknown.
    """
    for number, most in (
        (resource_type, RESOURCE_TYPE_MAX),
        (pattern_type, PATTERN_TYPE_MAX),
        (operation, OPERATION_MAX),
        (permission_type, PERMISSION_TYPE_MAX),
    ):
        if not 0 < number <= most:
            raise CloseConnection("an ACL request contains unknown elements")
