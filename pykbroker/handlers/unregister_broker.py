"""UnregisterBroker (key 64): removes a broker that will not come back (KIP-746).

Version 0. A broker that still runs stays away until its next start (P-460).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.brokers import UnregisterBroker
from pykbroker.protocol.acl_codes import ALTER
from pykbroker.protocol.messages.unregister_broker import UnregisterBrokerResponse
from pykbroker.requests.controller_calls import submit

if TYPE_CHECKING:
    from pykbroker.protocol.messages.unregister_broker import UnregisterBrokerRequest
    from pykbroker.requests.context import NodeContext


async def handle_unregister_broker(context: NodeContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Removes the broker from the metadata, from all in-sync sets and from all leaderships."""
    context.require_cluster(ALTER)
    command = UnregisterBroker(request.broker_id)
    _, error = await submit(context, command, context.services.config.request_timeout_ms)
    # Kafka leaves the message at the field's default, which is empty.
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message or "")
