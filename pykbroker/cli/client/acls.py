"""Access control entries of a cluster, as plain values with Kafka's names.

An entry and a filter have the same keys: resource_type, resource_name, pattern_type, principal, host, operation,
permission. In a filter None and "any" match everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykbroker.cli.client.calls import ClusterCalls
from pykbroker.cli.client.errors import refusal_text
from pykbroker.cli.errors import CliError
from pykbroker.protocol import acl_codes


def _numbers(kafkas_words: tuple[str, ...]) -> dict[str, int]:
    """Word on the command line -> number, of each word but the first, which is UNKNOWN."""
    return {word.lower().replace("_", "-"): number for number, word in enumerate(kafkas_words) if number}


RESOURCE_TYPES = _numbers(acl_codes.RESOURCE_TYPES)
PATTERN_TYPES = _numbers(acl_codes.PATTERN_TYPES)
OPERATIONS = _numbers(acl_codes.OPERATIONS)
PERMISSIONS = _numbers(acl_codes.PERMISSION_TYPES)
Entry = dict[str, str | None]
_NEWEST_TYPE_MIN_VERSION = 3
"""First version of the ACL APIs that has the resource type user."""


class ClusterAcls(ClusterCalls):
    """The operations behind `pykbroker acl`."""

    def acls(self, filters: Iterable[Entry]) -> list[Entry]:
        """Returns the entries that match any of the filters, each once, sorted; raises CliError."""
        from kafka.protocol.admin import DescribeAclsRequest

        found = []
        for item in filters:
            request = DescribeAclsRequest(**_filter_fields(item), min_version=_version(item))
            response = self._send(request)
            _check(response)
            found += [_entry(resource, acl) for resource in response.resources for acl in resource.acls]
        return _sorted(found)

    def create_acls(self, entries: list[Entry]) -> None:
        """Adds entries; existing ones stay. Raises CliError naming the first that was refused."""
        from kafka.protocol.admin import CreateAclsRequest

        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=RESOURCE_TYPES[str(item["resource_type"])],
                resource_name=item["resource_name"],
                resource_pattern_type=PATTERN_TYPES[str(item["pattern_type"])],
                principal=item["principal"],
                host=item["host"],
                operation=OPERATIONS[str(item["operation"])],
                permission_type=PERMISSIONS[str(item["permission"])],
            )
            for item in entries
        ]
        version = max(map(_version, entries), default=0)
        response = self._send(CreateAclsRequest(creations=creations, min_version=version))
        for item, result in zip(entries, response.results, strict=True):
            if result.error_code:
                raise CliError(f"ACL entry not added: {entry_text(item)}: {refusal_text(result)}")

    def delete_acls(self, filters: list[Entry]) -> list[Entry]:
        """Removes the entries that match any of the filters and returns them, each once, sorted; raises CliError."""
        from kafka.protocol.admin import DeleteAclsRequest

        wanted = [DeleteAclsRequest.DeleteAclsFilter(**_filter_fields(item)) for item in filters]
        version = max(map(_version, filters), default=0)
        response = self._send(DeleteAclsRequest(filters=wanted, min_version=version))
        gone = []
        for result in response.filter_results:
            _check(result)
            for acl in result.matching_acls:
                _check(acl)
                gone.append(_entry(acl, acl))
        return _sorted(gone)


def entry_text(item: Entry) -> str:
    """Returns an entry in one line."""
    return (
        f"{item['permission']} {item['principal']} from {item['host']} to {item['operation']} "
        f"{item['resource_type']} {item['resource_name']} ({item['pattern_type']})"
    )


def _filter_fields(item: Entry) -> dict[str, Any]:
    return {
        "resource_type_filter": RESOURCE_TYPES[item["resource_type"] or "any"],
        "resource_name_filter": item["resource_name"],
        "pattern_type_filter": PATTERN_TYPES[item["pattern_type"] or "any"],
        "principal_filter": item["principal"],
        "host_filter": item["host"],
        "operation": OPERATIONS[item["operation"] or "any"],
        "permission_type": PERMISSIONS[item["permission"] or "any"],
    }


def _version(item: Entry) -> int:
    # Version 1 has the first name patterns.
    return _NEWEST_TYPE_MIN_VERSION if item["resource_type"] == "user" else 1


def _check(result: Any) -> None:
    if result.error_code:
        raise CliError(f"the broker refused: {refusal_text(result)}")


def _entry(resource: Any, acl: Any) -> Entry:
    return {
        "resource_type": _name(RESOURCE_TYPES, resource.resource_type),
        "resource_name": resource.resource_name,
        "pattern_type": _name(PATTERN_TYPES, resource.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _name(OPERATIONS, acl.operation),
        "permission": _name(PERMISSIONS, acl.permission_type),
    }


def _name(names: dict[str, int], code: int) -> str:
    return next((name for name, known in names.items() if known == code), f"unknown-{code}")


def _sorted(entries: list[Entry]) -> list[Entry]:
    unique = {tuple(item.values()): item for item in entries}
    return [unique[key] for key in sorted(unique, key=lambda key: tuple(map(str, key)))]
