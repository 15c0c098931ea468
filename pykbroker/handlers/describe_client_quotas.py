"""DescribeClientQuotas (key 48): quotas of users, client ids and addresses (KIP-546).

Versions 0-1. v1 flexible. A null name in an entity is the default entity, which is different from
every named one (P-160).
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.client_quotas import CLIENT_ID, IP, USER, Entity, entity_hash
from pykbroker.controller.turns import Turn
from pykbroker.errors import KafkaError
from pykbroker.java_order import grown_table_size, hash_order, slot_of_hash
from pykbroker.protocol.acl_codes import DESCRIBE_CONFIGS
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ClientQuotaRecord
from pykbroker.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from pykbroker.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
    from pykbroker.requests.context import BrokerContext

MATCH_EXACT = 0
MATCH_DEFAULT = 1
MATCH_SPECIFIED = 2


async def handle_describe_client_quotas(
    context: BrokerContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Lists the entries that match all components of the filter; with `strict`, those without further entity types.

    Entries and values have the order of Kafka's hash tables (P-695), which begin with one slot and grow.
    """
    if not context.authorize_cluster(DESCRIBE_CONFIGS):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    exact, specified = _filters(request)
    found: dict[Entity, dict[str, float]] = {}
    entities: set[Entity] = set()
    turn = Turn()
    for record in context.services.metadata.image.kept_records.values():
        if isinstance(record, ClientQuotaRecord):
            entity = tuple((part.entity_type, part.entity_name) for part in record.entity)
            entities.add(entity)
            if _matches(dict(entity), exact, specified, request.strict):
                found.setdefault(entity, {})[record.key] = record.value
            if turn.is_over:
                await turn.end_if_over()
    table_size = grown_table_size(len(entities), 1)
    described: list[tuple[int, EntryData]] = []
    for entity, quotas in found.items():
        names = [EntityData(entity_type=kind, entity_name=entity_name) for kind, entity_name in entity]
        values = [ValueData(key=key, value=quotas[key]) for key in hash_order(quotas, 1)]
        described.append((slot_of_hash(entity_hash(entity), table_size), EntryData(entity=names, values=values)))
        if turn.is_over:
            await turn.end_if_over()
    described.sort(key=itemgetter(0))
    return DescribeClientQuotasResponse(entries=[entry for _, entry in described])


def _filters(request: DescribeClientQuotasRequest) -> tuple[dict[str, str | None], set[str]]:
    """Entity types with the name that each must have (None: the default entity), and types that may have any name.

    Raises:
        KafkaError: a component is invalid, or components contradict each other.
    """
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for component in request.components:
        kind, match_type, match = component.entity_type, component.match_type, component.match
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in exact or kind in specified:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type == MATCH_EXACT and match is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        if match_type in (MATCH_DEFAULT, MATCH_SPECIFIED) and match is not None:
            name = "MATCH_TYPE_DEFAULT" if match_type == MATCH_DEFAULT else "MATCH_TYPE_SPECIFIED"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Request specified {name}, but also specified a match string.")
        if match_type in (MATCH_EXACT, MATCH_DEFAULT):
            exact[kind] = match
        elif match_type == MATCH_SPECIFIED:
            specified.add(kind)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}")
    asked = {*exact, *specified}
    if IP in asked and len(asked) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        )
    return exact, specified


def _matches(entity: dict[str, str | None], exact: dict[str, str | None], specified: set[str], strict: bool) -> bool:
    for kind, name in exact.items():
        if kind not in entity or entity[kind] != name:
            return False
    if any(kind not in entity for kind in specified):
        return False
    return not strict or len(entity) == len(exact) + len(specified)
