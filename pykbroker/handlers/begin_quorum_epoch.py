"""BeginQuorumEpoch (key 53): the leader of the quorum makes itself known (KIP-595).

Versions 0-1. v1 directory ids and the endpoints of the leader (KIP-853).
`controller.raft_wire` says what is refused before the state machine sees it, `controller.peers` waits for its answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.requests.controller_calls import answer_of_quorum

if TYPE_CHECKING:
    from pykbroker.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
    from pykbroker.requests.context import ControllerContext


async def handle_begin_quorum_epoch(
    context: ControllerContext, request: BeginQuorumEpochRequest
) -> BeginQuorumEpochResponse:
    """The epoch and leader that this node knows now."""
    context.require_cluster(CLUSTER_ACTION)
    response: BeginQuorumEpochResponse = await answer_of_quorum(context, request)
    return response
