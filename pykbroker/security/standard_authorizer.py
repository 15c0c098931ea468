"""Authorization by the access control entries of the cluster, with the rules of Kafka's StandardAuthorizer.

A decision depends on the entries, the super users and one default alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pykbroker.named_tuple import NamedTuple
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
"""Largest number of cached decisions, and longest resource name of one, in characters: clients may invent names."""

# An entry that allows an operation of the value also allows the key; a deny entry implies nothing.
_ALLOWED_BY: Mapping[int, frozenset[int]] = {
    DESCRIBE: frozenset((ALL, DESCRIBE, READ, WRITE, DELETE, ALTER)),
    DESCRIBE_CONFIGS: frozenset((ALL, DESCRIBE_CONFIGS, ALTER_CONFIGS)),
}


_NONE: Mapping[bytes, Acl] = {}


class _Entries(NamedTuple):
    """Entries of one resource type by the name of their pattern and their id; number of prefixes of each length."""

    literal: dict[str, dict[bytes, Acl]]
    prefixed: dict[str, dict[bytes, Acl]]
    prefix_lengths: dict[int, int]

    def add(self, acl_id: bytes, acl: Acl) -> None:
        """Adds an entry."""
        table = self.prefixed if acl.pattern_type == PREFIXED else self.literal
        of_name = table.get(acl.resource_name)
        if of_name is not None:
            of_name[acl_id] = acl
            return
        table[acl.resource_name] = {acl_id: acl}
        if table is self.prefixed:
            length = len(acl.resource_name)
            self.prefix_lengths[length] = self.prefix_lengths.get(length, 0) + 1

    def remove(self, acl_id: bytes, acl: Acl) -> None:
        """Removes an entry."""
        table = self.prefixed if acl.pattern_type == PREFIXED else self.literal
        of_name = table[acl.resource_name]
        del of_name[acl_id]
        if of_name:
            return
        del table[acl.resource_name]
        if table is self.prefixed:
            length = len(acl.resource_name)
            self.prefix_lengths[length] -= 1
            if not self.prefix_lengths[length]:
                del self.prefix_lengths[length]


class StandardAuthorizer:
    """Decides by the entries that exist at the moment of the call.

    Args:
        acls: returns the newest table of entries; a changed table is another object.
        super_users: principals (``User:name``) that may do everything.
        allow_everyone_if_no_acl_found: decision for a resource without any entry.

    Attributes:
        may_be_asked_again: True, because a second question about a request has no effect.
    """

    may_be_asked_again: Final = True

    def __init__(
        self,
        acls: Callable[[], Mapping[bytes, Acl]],
        super_users: frozenset[str],
        allow_everyone_if_no_acl_found: bool,
    ) -> None:
        self._acls = acls
        self._super_users = super_users
        self._default = allow_everyone_if_no_acl_found
        self._indexed: Mapping[bytes, Acl] = {}
        self._entries: dict[int, _Entries] = {}
        self._answers: dict[tuple[str, str, int, int, str], bool] = {}

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """True if the principal may do the operation from this address; codes as in `protocol.acl_codes`.

        A deny entry wins over all allow entries. A resource with entries, none of which matches, is refused whatever
        the default is. A refusal is logged when it is decided, and not when it is found in the cache.
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
        """True if the principal may do the operation on some resource of this type (KIP-679).

        As in Kafka, no operation implies another one here, and the default for resources without entries is examined
        with a name that is unlikely to exist.
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
            for acl in acls.values()
            if acl.principal in (principal, ANY_PRINCIPAL)
            and acl.host in (host, WILDCARD)
            and acl.operation in (operation, ALL)
        ]
        denied = {(acl.pattern_type, acl.resource_name) for acl in matching if acl.permission_type == DENY}
        if (LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_covered(acl, denied) for acl in matching if acl.permission_type == ALLOW)

    def _index(self) -> None:
        """Follows a change of the table: only the entries that were added and removed are looked at.

        There may be thousands of entries, and no other request is served meanwhile.
        """
        acls, known = self._acls(), self._indexed
        added = {acl_id: acl for acl_id, acl in acls.items() if known.get(acl_id) is not acl} if known else acls
        for acl_id in known.keys() - acls.keys() | known.keys() & added.keys():
            acl = known[acl_id]
            self._entries[acl.resource_type].remove(acl_id, acl)
        for acl_id, acl in added.items():
            of_type = self._entries.get(acl.resource_type)
            if of_type is None:
                of_type = self._entries[acl.resource_type] = _Entries({}, {}, {})
            of_type.add(acl_id, acl)
        self._answers.clear()
        self._indexed = acls

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        host = java_host_address(host)
        allowed_by = _ALLOWED_BY.get(operation) or (operation, ALL)
        has_entry = is_allowed = False
        for acl in self._matching_entries(resource_type, name):
            has_entry = True
            if acl.principal not in (principal, ANY_PRINCIPAL) or acl.host not in (host, WILDCARD):
                continue
            if acl.permission_type == ALLOW:
                is_allowed = is_allowed or acl.operation in allowed_by
            elif acl.operation in (operation, ALL):
                return False
        if name.startswith(WILDCARD) and self._is_denied_everywhere(principal, host, operation, resource_type):
            return False
        return is_allowed if has_entry else self._default

    def _is_denied_everywhere(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """True if an entry for all resources of a type denies the operation."""
        entries = self._entries.get(resource_type)
        return entries is not None and any(
            acl.permission_type == DENY
            and acl.principal in (principal, ANY_PRINCIPAL)
            and acl.host in (host, WILDCARD)
            and acl.operation in (operation, ALL)
            for acl in entries.literal.get(WILDCARD, _NONE).values()
        )

    def _matching_entries(self, resource_type: int, name: str) -> Iterable[Acl]:
        """Entries whose pattern matches the resource, as Kafka finds them.

        Kafka takes the entry for all resources for a literal prefix of a name that begins with the wildcard, and passes
        over it (P-444).
        """
        entries = self._entries.get(resource_type)
        if entries is None:
            return
        yield from entries.literal.get(name, _NONE).values()
        if not name.startswith(WILDCARD):
            yield from entries.literal.get(WILDCARD, _NONE).values()
        for length in entries.prefix_lengths:
            if length <= len(name):
                yield from entries.prefixed.get(name[:length], _NONE).values()


def _is_covered(allowing: Acl, denied: set[tuple[int, str]]) -> bool:
    """True if deny entries cover everything that this entry allows."""
    name = allowing.resource_name
    if allowing.pattern_type == LITERAL and name == WILDCARD:
        return False
    if allowing.pattern_type == LITERAL and (LITERAL, name) in denied:
        return True
    return any((PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
