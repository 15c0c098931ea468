"""AllocateProducerIds (key 67): a block of producer ids for a broker to hand out (KIP-730, P-59).

Version 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.producer_id_blocks import AllocateProducerIds
from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from pykbroker.requests.controller_calls import submit_command

if TYPE_CHECKING:
    from pykbroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
    from pykbroker.requests.context import ControllerContext


async def handle_allocate_producer_ids(
    context: ControllerContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """Allocates the next 1,000 producer ids; no id is allocated twice."""
    context.require_cluster(CLUSTER_ACTION)
    block = await submit_command(context, AllocateProducerIds(request.broker_id, request.broker_epoch))
    return AllocateProducerIdsResponse(producer_id_start=block.first_id, producer_id_len=block.id_count)
