"""AlterClientQuotas (key 49): quotas of users, client ids and addresses (KIP-546).

Versions 0-1. v1 flexible. Changes take effect at once (P-265).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pykbroker.controller.metadata.client_quotas import CLIENT_ID, IP, USER, AlterClientQuotas, Entity, QuotaAlteration
from pykbroker.controller.metadata.commands import ApiError
from pykbroker.controller.turns import EachInTurns
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
    """Changes the quotas of each entity independently of the others."""
    context.require_cluster(ALTER_CONFIGS)
    alterations = [
        QuotaAlteration(_entity(entry), [(each.key, None if each.remove else each.value) for each in entry.ops])
        async for entry in EachInTurns(request.entries)
    ]
    command = AlterClientQuotas(alterations, request.validate_only, await _unknown_hosts(alterations))
    results = await submit_command(context, command)
    return AlterClientQuotasResponse(
        entries=[_answer(entity, result) async for entity, result in EachInTurns(results.items())]
    )


def _entity(entry: EntryData) -> Entity:
    """Entity with each type once (the last name of a type counts), in the order of Kafka's response."""
    names = {part.entity_type: part.entity_name for part in entry.entity}
    return tuple(sorted(names.items(), key=lambda part: _ORDER.get(part[0], len(_ORDER))))


_ORDER = {CLIENT_ID: 0, USER: 1, IP: 2}


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
