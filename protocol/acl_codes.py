"""The numbers of ACL elements: in requests, in metadata records, and as bits of authorized operations (KIP-430).

Plain integers and not an enumeration: they are keys of look-ups in each authorization.
"""

from __future__ import annotations

UNKNOWN = 0
"""Code of an element of an ACL whose number is unknown."""

ANY = 1
"""In a filter: every resource type, pattern type, operation or permission type."""

# Resource types
TOPIC = 2
GROUP = 3
CLUSTER = 4
TRANSACTIONAL_ID = 5
DELEGATION_TOKEN = 6
USER = 7

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""

# Pattern types. MATCH occurs in filters only, for every pattern that applies to a name.
MATCH = 2
LITERAL = 3
PREFIXED = 4

# Operations
ALL = 2
READ = 3
WRITE = 4
CREATE = 5
DELETE = 6
ALTER = 7
DESCRIBE = 8
CLUSTER_ACTION = 9
DESCRIBE_CONFIGS = 10
ALTER_CONFIGS = 11
IDEMPOTENT_WRITE = 12
CREATE_TOKENS = 13
DESCRIBE_TOKENS = 14
TWO_PHASE_COMMIT = 15

# Permission types
DENY = 2
ALLOW = 3

WILDCARD = "*"
"""As the name of a LITERAL pattern: every resource. As a host, or as the name of a principal: every one."""

# Kafka's words by number.
RESOURCE_TYPES = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
PATTERN_TYPES = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
OPERATIONS = (
    *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
)
PERMISSION_TYPES = ("UNKNOWN", "ANY", "DENY", "ALLOW")
