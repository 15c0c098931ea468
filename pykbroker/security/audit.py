"""The audit log, logger ``pykbroker.audit``: refused logins, refused requests, and changes of the cluster's metadata.

Each is one line with principal and address. Values are never in it, only names: no password, salt, token or setting.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from pykbroker.protocol.acl_codes import OPERATIONS, RESOURCE_TYPES
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_fields import error_codes, every_error_code
from pykbroker.protocol.steps import Steps, list_in_steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pykbroker.errors import KafkaError
    from pykbroker.protocol.fields import Message
    from pykbroker.security.connection_info import ConnectionInfo

log = logging.getLogger("pykbroker.audit")

NAMES_MAX = 10
"""Largest number of names in one line; the others are counted."""

CHANGES = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""APIs by which clients change the metadata."""

_NAMES = frozenset(
    {
        *("name", "topic", "resource_name", "resource_name_filter", "user", "entity_name", "principal"),
        *("principal_filter", "feature", "broker_id", "voter_id", "owner_principal_name", "principal_name"),
    }
)
_NAME_LISTS = frozenset({"topic_names"})

AUTHORIZATION_FAILED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)


def audit_refused_login(connection: ConnectionInfo, mechanism: str, error: KafkaError) -> None:
    """Logs a failed login, with the reason that the client does not get."""
    reason = error.message if error.__cause__ is None else f"{error.message} ({error.__cause__})"
    log.info(
        "login refused from %s on %s by %s: %s", connection.client_host, connection.listener_name, mechanism, reason
    )


def audit_refusals(
    connection: ConnectionInfo,
    api_key: ApiKey,
    refusals: Sequence[tuple[int, int, str]],
    request: Any,
    response: Any,
) -> None:
    """Logs a request with refused (operation, resource type, name), unless the response only leaves these out."""
    if not log.isEnabledFor(logging.INFO):
        return
    is_refused = not AUTHORIZATION_FAILED.isdisjoint(error_codes(response))
    if not is_refused and not (_has_encoded_parts(response) and getattr(request, "topics", ()) is not None):
        return
    refused = [f"{OPERATIONS[operation]} on {RESOURCE_TYPES[kind]} {name}" for operation, kind, name in refusals]
    log.info("%s from %s refused: %s: %s", connection.principal, connection.client_host, api_key.name, listed(refused))


def audit_change(connection: ConnectionInfo, api_key: ApiKey, request: Message, response: Any) -> Steps[None]:
    """Logs a request that changes metadata, with the names of the changed resources and the errors of its response."""
    if not log.isEnabledFor(logging.INFO):
        return
    found = dict.fromkeys((yield from list_in_steps(names(request))))
    codes = set((yield from list_in_steps(every_error_code(response))))
    errors = sorted(ErrorCode(code).name for code in codes - {ErrorCode.NONE})
    outcome = f" with {', '.join(errors)}" if errors else ""
    log.info(
        "%s from %s: %s %s%s",
        connection.principal,
        connection.client_host,
        api_key.name,
        listed(list(found)) or "-",
        outcome,
    )


def listed(texts: Sequence[str]) -> str:
    """The texts, at most `NAMES_MAX` of them."""
    rest = len(texts) - NAMES_MAX
    return ", ".join(texts[:NAMES_MAX]) + (f" and {rest} more" if rest > 0 else "")


def names(message: Message) -> Iterator[str]:
    """Names of resources, users and settings in a request, in its order."""
    for field in _fields_with_names(type(message)):
        value = getattr(message, field)
        if field in _NAME_LISTS:
            yield from value
        elif field not in _NAMES:
            for element in value or ():
                yield from names(element)
        elif value not in (None, ""):
            yield str(value)


@cache
def _fields_with_names(message_type: type[Message]) -> tuple[str, ...]:
    """Fields with a name, and arrays of structs that have such fields."""
    return tuple(
        field.name
        for field in message_type.FIELDS
        if field.name in _NAMES | _NAME_LISTS
        or (field.kind == "array" and field.element.kind == "struct" and _fields_with_names(field.element.element))
    )


def _has_encoded_parts(response: Message) -> bool:
    """True if elements of the response are bytes already, so that their error codes cannot be seen."""
    return any(
        isinstance(element, bytes)
        for field in response.FIELDS
        if field.takes_encoded
        for element in (getattr(response, field.name) or ())[:1]
    )
