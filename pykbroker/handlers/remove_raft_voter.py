"""RemoveRaftVoter (key 81): makes a voter an observer (KIP-853).

Version 0. A leader that is removed resigns once its removal is committed. `controller/raft/voter_changes.py` has the
checks in their order, `voter_change_errors.py` their error messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.protocol.acl_codes import ALTER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.remove_raft_voter import RemoveRaftVoterResponse
from pykbroker.requests.voter_change_errors import error_of_change, refusal_of_change

if TYPE_CHECKING:
    from pykbroker.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
    from pykbroker.requests.context import NodeContext


async def handle_remove_raft_voter(context: NodeContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    """Removes the voter; if that is refused, the response has the error and its message."""
    context.require_cluster(ALTER)
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    refused = refusal_of_change(context, request.cluster_id, key, "Remove")
    if refused is not None:
        return _response(*refused)
    answer = await context.services.controller.voter_requests.remove(key, context.services.config.request_timeout_ms)
    return _response(*error_of_change(answer, key, "removing"))


def _response(error: ErrorCode, message: str | None) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(error_code=error, error_message=message)
