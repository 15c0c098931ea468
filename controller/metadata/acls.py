"""CreateAcls and DeleteAcls as commands, with Kafka's rules and texts (AclControlManager)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykbroker.controller.metadata.commands import (
    NO_ERROR,
    RECORD_COUNT_MAX,
    ApiError,
    CommandRefused,
    Plan,
    PlanContext,
)
from pykbroker.controller.metadata.image import Acl, ClusterImage
from pykbroker.controller.metadata.snapshot import access_control_entry_record
from pykbroker.controller.metadata.topics import refuse_too_many_records
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.acl_codes import (
    ALLOW,
    ANY,
    DENY,
    LITERAL,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    PREFIXED,
    RESOURCE_TYPES,
    UNKNOWN,
    WILDCARD,
)
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import RemoveAccessControlEntryRecord
from pykbroker.protocol.steps import PIECE, Steps
from pykbroker.protocol.uuids import random_uuid


class AclFilter(NamedTuple):
    """A filter of DescribeAcls and DeleteAcls; None and `ANY` match everything.

    With the pattern type MATCH the name is that of a resource, and the filter matches every pattern that applies to it
    (KIP-290); else the name is that of a pattern.
    """

    resource_type: int = ANY
    resource_name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission_type: int = ANY

    @property
    def is_of_one_name(self) -> bool:
        """True if all entries that the filter matches have `resource_name`."""
        return self.resource_name is not None and self.pattern_type != MATCH

    def matches(self, acl: Acl) -> bool:
        """True if the filter matches this entry."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.operation in (ANY, acl.operation)
            and self.permission_type in (ANY, acl.permission_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        name = self.resource_name
        if self.pattern_type != MATCH:
            return self.pattern_type in (ANY, acl.pattern_type) and name in (None, acl.resource_name)
        if name is None:
            return True
        if acl.pattern_type == PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)


class AclDeletion(NamedTuple):
    """The result of one filter: an error, or the deleted entries."""

    error: ApiError
    acls: Sequence[Acl]


class CreateAcls(NamedTuple):
    """Adds entries; the result is one ApiError per given entry, in order. An entry that exists already is a success.

    Raises:
        CommandRefused: more than 10,000 new entries at once.
    """

    acls: Sequence[Acl]

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[list[ApiError]]]:
        existing = set(image.acls.values())
        results: list[ApiError] = []
        records: list[Any] = []
        for acl in self.acls:
            error = _reason_invalid(acl)
            if not error.is_failure and acl not in existing:
                existing.add(acl)
                records.append(access_control_entry_record(random_uuid(context.random), acl))
            results.append(error)
            yield
        refuse_too_many_records(records)
        return Plan(records, results)


class DeleteAcls(NamedTuple):
    """Removes the entries that match the filters; the result is one AclDeletion per filter, in order.

    An entry that matches several filters is in the result of each.

    Raises:
        CommandRefused: more than 10,000 entries match; then none is removed.
    """

    filters: Sequence[AclFilter]

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[list[AclDeletion]]]:
        results: list[AclDeletion] = []
        removed: dict[bytes, None] = {}
        by_name: dict[str, list[tuple[bytes, Acl]]] = {}
        if any(wanted.is_of_one_name for wanted in self.filters):
            # A filter for each of 10,000 topics would look at each of as many entries.
            for count, (acl_id, acl) in enumerate(image.acls.items(), 1):
                by_name.setdefault(acl.resource_name, []).append((acl_id, acl))
                if not count % PIECE:
                    yield
        for wanted in self.filters:
            error = _reason_unknown(wanted)
            matching: dict[bytes, Acl] = {}
            if not error.is_failure:
                named = wanted.resource_name if wanted.is_of_one_name else None
                entries = image.acls.items() if named is None else by_name.get(named, ())
                for count, (acl_id, acl) in enumerate(entries, 1):
                    if wanted.matches(acl):
                        matching[acl_id] = acl
                    if not count % PIECE:
                        yield
                removed |= dict.fromkeys(matching)
            results.append(AclDeletion(error, () if error.is_failure else list(matching.values())))
            yield
        if len(removed) > RECORD_COUNT_MAX:
            raise CommandRefused(
                ErrorCode.INVALID_REQUEST,
                f"Cannot remove more than {RECORD_COUNT_MAX} acls in a single delete operation.",
            )
        return Plan([RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed], results)


def _reason_invalid(acl: Acl) -> ApiError:
    if acl.resource_type <= ANY:
        return _invalid(f"Invalid resourceType {RESOURCE_TYPES[acl.resource_type]}")
    if acl.pattern_type not in (LITERAL, PREFIXED):
        return _invalid(f"Invalid patternType {PATTERN_TYPES[acl.pattern_type]}")
    if acl.operation <= ANY:
        return _invalid(f"Invalid operation {OPERATIONS[acl.operation]}")
    if acl.permission_type not in (ALLOW, DENY):
        return _invalid(f"Invalid permissionType {PERMISSION_TYPES[acl.permission_type]}")
    if not acl.resource_name:
        return _invalid("Resource name should not be empty")
    if ":" not in acl.principal:
        return _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    return NO_ERROR


def _reason_unknown(wanted: AclFilter) -> ApiError:
    if UNKNOWN in (wanted.resource_type, wanted.pattern_type):
        return _invalid("Unknown patternFilter.")
    if UNKNOWN in (wanted.operation, wanted.permission_type):
        return _invalid("Unknown entryFilter.")
    return NO_ERROR


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)
