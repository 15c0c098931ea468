"""BeginQuorumEpoch (key 53): the leader of the quorum announces its epoch to a voter (KIP-595).

Versions 0-1. v1 directory ids and the endpoints of the leader (KIP-853).
`controller.raft_wire` has the checks before the state machine gets the request, `controller.peers` waits for its
response.
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
    """Passes the request to the state machine; the response has this node's epoch and leader."""
    context.require_cluster(CLUSTER_ACTION)
    response: BeginQuorumEpochResponse = await answer_of_quorum(context, request)
    return response
