"""AlterClientQuotas as a command: limits for users, client ids and addresses, as metadata (KIP-546, P-160).

The handler resolves host names before, because a command must not use the network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pykbroker.controller.metadata.commands import NO_ERROR, ApiError, Plan, PlanContext
from pykbroker.controller.metadata.image import ClusterImage, quota_key
from pykbroker.controller.metadata.topics import refuse_too_many_records
from pykbroker.java_order import hash_order, string_hash, table_size_for
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ClientQuotaRecord, EntityData
from pykbroker.protocol.steps import Steps

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs in Kafka's order, each type once; the name None is the default entity, not a wildcard."""

# Values that each quota may have: None for any number above zero, else (greatest whole number, name of its type).
_LONG = (2**63 - 1, "a LONG")
_INT = (2**31 - 1, "an INT")
_USER_AND_CLIENT_QUOTAS: Mapping[str, tuple[int, str] | None] = {
    "producer_byte_rate": _LONG,
    "consumer_byte_rate": _LONG,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_QUOTAS: Mapping[str, tuple[int, str] | None] = {"connection_creation_rate": _INT}

# A value counts as a whole number if it differs from one by no more than this.
_FRACTION_MAX = 1e-6


def entity_hash(entity: Entity) -> int:
    """The hash code of Kafka's ClientQuotaEntity, of any size; it decides where responses have the entity (P-695)."""
    return 31 + sum(string_hash(kind) ^ string_hash(name or "") for kind, name in entity)


class QuotaAlteration(NamedTuple):
    """Quotas of one entity to set, or to delete where the value is None: (key, value) pairs."""

    entity: Entity
    operations: Sequence[tuple[str, float | None]]


class AlterClientQuotas(NamedTuple):
    """Changes quotas; the result has an ApiError for each entity, once.

    An error of one entity does not affect the others.

    Attributes:
        unknown_hosts: names of `ip` entities that are neither addresses nor resolvable host names.

    Raises:
        CommandRefused: POLICY_VIOLATION when more than 10,000 records would be written.
    """

    alterations: Sequence[QuotaAlteration]
    validate_only: bool = False
    unknown_hosts: frozenset[str] = frozenset()

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[dict[Entity, ApiError]]]:
        records: list[Any] = []
        results: dict[Entity, ApiError] = {}
        for entity, operations in self.alterations:
            keys = {key for key, _ in operations}
            # A repeated entity gets an error, but its first alteration takes effect, as in Kafka.
            if entity in results or len(keys) < len(operations):
                results[entity] = ApiError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_text(entity)}")
                continue
            error, changes = self._alter(image, entity, operations)
            results[entity] = error
            records += changes
            yield
        refuse_too_many_records(records)
        return Plan(() if self.validate_only else records, results)

    def _alter(
        self, image: ClusterImage, entity: Entity, operations: Sequence[tuple[str, float | None]]
    ) -> tuple[ApiError, list[ClientQuotaRecord]]:
        reason = self._reason_invalid(entity)
        if reason is not None:
            return ApiError(ErrorCode.INVALID_REQUEST, reason), []
        known = _IP_QUOTAS if entity[0][0] == IP else _USER_AND_CLIENT_QUOTAS
        records: list[ClientQuotaRecord] = []
        values = dict(operations)
        # If several quotas are impossible, the error names the one that comes first in Java's hash table, as in Kafka.
        for key in hash_order(values, table_size_for(len(values))):
            value = values[key]
            current = image.kept_records.get(quota_key(entity, key))
            if value is None:
                if current is not None:
                    records.append(ClientQuotaRecord(entity=_data(entity), key=key, remove=True))
                continue
            reason = _reason_invalid_value(known, key, value)
            if reason is not None:
                return ApiError(ErrorCode.INVALID_REQUEST, reason), []
            if current is None or current.value != value:
                records.append(ClientQuotaRecord(entity=_data(entity), key=key, value=value))
        # The order in which brokers of Kafka take new quotas, and DescribeClientQuotas has those of one slot (P-695).
        place = {key: index for index, key in enumerate(hash_order(values))}
        records.sort(key=lambda record: place[record.key])
        return NO_ERROR, records

    def _reason_invalid(self, entity: Entity) -> str | None:
        if not entity:
            return "Invalid empty client quota entity"
        names = dict(entity)
        for kind in hash_order(names, table_size_for(len(names))):
            if kind not in (USER, CLIENT_ID, IP):
                return f"Unhandled client quota entity type: {kind}"
            if names[kind] == "":
                return f"Empty {kind} not supported"
        if IP in names:
            if len(names) > 1:
                # The missing blank is Kafka's.
                return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
            if names[IP] in self.unknown_hosts:
                return f"{names[IP]} is not a valid IP or resolvable host."
        return None


def _reason_invalid_value(known: Mapping[str, tuple[int, str] | None], key: str, value: float) -> str | None:
    if key not in known:
        return f"Invalid configuration key {key}"
    if value <= 0:
        return f"Quota {key} must be greater than 0"
    whole = known[key]
    if whole is None:
        return None
    greatest, kind = whole
    if value > float(greatest):  # as Java compares: 2**63 is the double nearest to the greatest LONG, and so allowed
        return f"Proposed value for {key} is too large for {kind}."
    if math.fmod(value, 1.0) > _FRACTION_MAX:
        return f"{key} cannot be a fractional value."
    return None


def _data(entity: Entity) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]


def _text(entity: Entity) -> str:
    """The entity as Java writes it."""
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"
