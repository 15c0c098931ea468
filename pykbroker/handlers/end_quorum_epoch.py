"""EndQuorumEpoch (key 54): the leader of the quorum resigns and names successors (KIP-595).

Versions 0-1. v1 successors with directory ids (KIP-853).
`controller.raft_wire` has the checks before the state machine gets the request, `controller.peers` waits for its
response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.requests.controller_calls import answer_of_quorum

if TYPE_CHECKING:
    from pykbroker.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
    from pykbroker.requests.context import ControllerContext


async def handle_end_quorum_epoch(context: ControllerContext, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
    """Passes the request to the state machine; the response has this node's epoch and leader."""
    context.require_cluster(CLUSTER_ACTION)
    response: EndQuorumEpochResponse = await answer_of_quorum(context, request)
    return response
