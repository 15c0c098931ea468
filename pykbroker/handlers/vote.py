"""Vote (key 52): a candidate of the quorum asks for a vote (KIP-595).

Versions 0-2. v1 directory ids (KIP-853); v2 pre-vote (KIP-996).
`controller.raft_wire` has the checks before the state machine gets the request, `controller.peers` waits for its
response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.requests.controller_calls import answer_of_quorum

if TYPE_CHECKING:
    from pykbroker.protocol.messages.vote import VoteRequest, VoteResponse
    from pykbroker.requests.context import ControllerContext


async def handle_vote(context: ControllerContext, request: VoteRequest) -> VoteResponse:
    """Passes the request to the state machine; the response grants the vote or not."""
    context.require_cluster(CLUSTER_ACTION)
    response: VoteResponse = await answer_of_quorum(context, request)
    return response
