"""Authorization by the access control entries of the cluster, as Kafka's StandardAuthorizer decides.

Pure but for the image that it reads: every answer follows from the entries, the super users and one default.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pykbroker.protocol.acl_codes import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    LITERAL,
    OPERATIONS,
    PREFIXED,
    READ,
    RESOURCE_TYPES,
    WILDCARD,
    WRITE,
)
from pykbroker.security.client_address import java_host_address

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import Acl

log = logging.getLogger(__name__)

ANY_PRINCIPAL = "User:*"

REMEMBERED_ANSWERS_MAX = 10_000
REMEMBERED_NAME_MAX = 249
"""Answers are kept until the entries change, or this many are there: clients may make up names, also very long ones."""

# An entry that allows one of these allows the other as well; denying does not spread.
_ALLOWED_BY: Mapping[int, frozenset[int]] = {
    DESCRIBE: frozenset((ALL, DESCRIBE, READ, WRITE, DELETE, ALTER)),
    DESCRIBE_CONFIGS: frozenset((ALL, DESCRIBE_CONFIGS, ALTER_CONFIGS)),
}


class _Entries(NamedTuple):
    """The entries of one resource type, by the name of their pattern."""

    literal: dict[str, list[Acl]]
    prefixed: dict[str, list[Acl]]
    prefix_lengths: tuple[int, ...]


class StandardAuthorizer:
    """Answers for the entries that there are at the moment of the question.

    Args:
        acls: gives the newest table of entries; a changed table is another object.
        super_users: principals (``User:name``) who may do everything.
        allow_everyone_if_no_acl_found: what holds for a resource that no entry speaks of.
    """

    def __init__(
        self,
        acls: Callable[[], Mapping[bytes, Acl]],
        super_users: frozenset[str],
        allow_everyone_if_no_acl_found: bool,
    ) -> None:
        self._acls = acls
        self._super_users = super_users
        self._default = allow_everyone_if_no_acl_found
        self._indexed: Mapping[bytes, Acl] | None = None
        self._entries: dict[int, _Entries] = {}
        self._answers: dict[tuple[str, str, int, int, str], bool] = {}

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """True if this principal may do this from this address; numbers as in `protocol.acl_codes`.

        An entry that denies wins over all that allow. Where entries speak of the resource but none of this question,
        the answer is no, whatever the default. A refusal is logged when it is decided, not each time it is remembered.
        """
        if self._acls() is not self._indexed:
            self._index()
        key = (principal, host, operation, resource_type, name)
        answer = self._answers.get(key)
        if answer is None:
            answer = principal in self._super_users or self._decide(principal, host, operation, resource_type, name)
            if len(name) <= REMEMBERED_NAME_MAX:
                if len(self._answers) >= REMEMBERED_ANSWERS_MAX:
                    self._answers.clear()
                self._answers[key] = answer
            if not answer and log.isEnabledFor(logging.DEBUG):
                kind = RESOURCE_TYPES[resource_type]
                log.debug("%s from %s was refused %s on %s %r", principal, host, OPERATIONS[operation], kind, name)
        return answer

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """True if there is some resource of this type on which the principal may do this (KIP-679).

        As Kafka asks it: operations do not imply others here, and a resource without entries counts only by the name
        of one that hardly exists.
        """
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True
        entries = self._entries.get(resource_type)
        if entries is None:
            return False
        host = java_host_address(host)
        matching = [
            acl
            for acls in (*entries.literal.values(), *entries.prefixed.values())
            for acl in acls
            if acl.principal in (principal, ANY_PRINCIPAL)
            and acl.host in (host, WILDCARD)
            and acl.operation in (operation, ALL)
        ]
        denied = {(acl.pattern_type, acl.resource_name) for acl in matching if acl.permission_type == DENY}
        if (LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_covered(acl, denied) for acl in matching if acl.permission_type == ALLOW)

    def _index(self) -> None:
        acls = self._acls()
        entries: dict[int, _Entries] = {}
        for acl in acls.values():
            of_type = entries.setdefault(acl.resource_type, _Entries({}, {}, ()))
            table = of_type.prefixed if acl.pattern_type == PREFIXED else of_type.literal
            table.setdefault(acl.resource_name, []).append(acl)
        self._entries = {
            resource_type: of_type._replace(prefix_lengths=tuple({len(prefix) for prefix in of_type.prefixed}))
            for resource_type, of_type in entries.items()
        }
        self._answers.clear()
        self._indexed = acls

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        host = java_host_address(host)
        allowed_by = _ALLOWED_BY.get(operation) or (operation, ALL)
        is_spoken_of = is_allowed = False
        for acl in self._about(resource_type, name):
            is_spoken_of = True
            if acl.principal not in (principal, ANY_PRINCIPAL) or acl.host not in (host, WILDCARD):
                continue
            if acl.permission_type == ALLOW:
                is_allowed = is_allowed or acl.operation in allowed_by
            elif acl.operation in (operation, ALL):
                return False
        return is_allowed if is_spoken_of else self._default

    def _about(self, resource_type: int, name: str) -> Iterable[Acl]:
        """All entries whose pattern the resource falls under."""
        entries = self._entries.get(resource_type)
        if entries is None:
            return
        yield from entries.literal.get(name, ())
        if name != WILDCARD:
            yield from entries.literal.get(WILDCARD, ())
        for length in entries.prefix_lengths:
            if length <= len(name):
                yield from entries.prefixed.get(name[:length], ())


def _is_covered(allowing: Acl, denied: set[tuple[int, str]]) -> bool:
    """True if entries that deny leave nothing of what this one allows."""
    name = allowing.resource_name
    if allowing.pattern_type == LITERAL and name == WILDCARD:
        return False
    if allowing.pattern_type == LITERAL and (LITERAL, name) in denied:
        return True
    return any((PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
