"""BrokerHeartbeat (key 63): extends a broker's session; a broker asks to be unfenced, fenced or shut down (KIP-631).

Versions 0-2. v1 offline log directories (KIP-858); v2 cordoned log directories, which get no new replicas (KIP-1066).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pykbroker.controller.broker_heartbeats import BrokerState, Heartbeat
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from pykbroker.requests.controller_calls import active_controller_of

if TYPE_CHECKING:
    from pykbroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
    from pykbroker.requests.context import ControllerContext


async def handle_broker_heartbeat(
    context: ControllerContext, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    """State of the broker: caught up, fenced, allowed to shut down. Being fenced is no error."""
    context.require_cluster(CLUSTER_ACTION)
    heartbeat = Heartbeat(
        request.broker_id,
        request.broker_epoch,
        request.current_metadata_offset,
        request.want_fence,
        request.want_shut_down,
    )
    active = active_controller_of(context)
    lost = partial(active.connection_lost, request.broker_id, request.broker_epoch)
    context.connection.when_closed("broker heartbeat", lost)
    try:
        result = await active.heartbeat(heartbeat, request.offline_log_dirs, request.cordoned_log_dirs)
    except CommandRefused as refused:
        return BrokerHeartbeatResponse(error_code=refused.error.code)
    return BrokerHeartbeatResponse(
        is_caught_up=result.is_caught_up,
        is_fenced=result.after.is_fenced,
        should_shut_down=result.after is BrokerState.SHUTDOWN_NOW,
    )
