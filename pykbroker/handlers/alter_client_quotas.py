"""AlterClientQuotas (key 49): quotas of users, client ids and addresses (KIP-546).

Versions 0-1. v1 flexible. Changes take effect at once (P-265).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pykbroker.controller.metadata.client_quotas import IP, AlterClientQuotas, Entity, QuotaAlteration, entity_hash
from pykbroker.controller.metadata.commands import ApiError
from pykbroker.controller.turns import EachInTurns
from pykbroker.java_order import hash_order, table_order, table_size_for
from pykbroker.protocol.acl_codes import ALTER_CONFIGS
from pykbroker.protocol.messages.alter_client_quotas import (
    AlterClientQuotasResponse,
    EntityDataResponse,
    EntryDataResponse,
)
from pykbroker.requests.controller_calls import submit_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykbroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData
    from pykbroker.requests.context import NodeContext


async def handle_alter_client_quotas(
    context: NodeContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Changes the quotas of each entity independently of the others; the response has Kafka's order (P-695)."""
    context.require_cluster(ALTER_CONFIGS)
    alterations = [
        QuotaAlteration(_entity(entry), [(each.key, None if each.remove else each.value) for each in entry.ops])
        async for entry in EachInTurns(request.entries)
    ]
    command = AlterClientQuotas(alterations, request.validate_only, await _unknown_hosts(alterations))
    results = await submit_command(context, command)
    return AlterClientQuotasResponse(
        entries=[_answer(entity, results[entity]) async for entity in EachInTurns(table_order(results, entity_hash))]
    )


def _entity(entry: EntryData) -> Entity:
    """Entity with each type once (the last name of a type counts), in the order of Kafka's response."""
    names = {part.entity_type: part.entity_name for part in entry.entity}
    return tuple((kind, names[kind]) for kind in hash_order(names, table_size_for(len(entry.entity))))


async def _unknown_hosts(alterations: Iterable[QuotaAlteration]) -> frozenset[str]:
    """Names of `ip` entities that do not resolve to an address."""
    names = {name for entity, _ in alterations for kind, name in entity if kind == IP and name}
    return frozenset([name for name in sorted(names) if not await _is_known(name)])


async def _is_known(host: str) -> bool:
    try:
        await trio.socket.getaddrinfo(host, None)
    except (OSError, ValueError):  # ValueError: not a possible host name
        return False
    return True


def _answer(entity: Entity, result: ApiError) -> EntryDataResponse:
    return EntryDataResponse(
        error_code=result.code,
        error_message=result.message,
        entity=[EntityDataResponse(entity_type=kind, entity_name=name) for kind, name in entity],
    )
