"""AddRaftVoter (key 80): makes a controller that is an observer a voter (KIP-853).

Versions 0-1. v1 ack_when_committed: if false, the response is sent before the change is committed. Voters can change
at kraft.version 1 only. `controller/raft/voter_changes.py` has the checks in their order, `voter_change_errors.py`
their error messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint
from pykbroker.java_order import hash_order, table_size_for
from pykbroker.protocol.acl_codes import ALTER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.add_raft_voter import AddRaftVoterResponse
from pykbroker.requests.voter_change_errors import error_of_change, refusal_of_change

if TYPE_CHECKING:
    from pykbroker.protocol.messages.add_raft_voter import AddRaftVoterRequest
    from pykbroker.requests.context import NodeContext


async def handle_add_raft_voter(context: NodeContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """Adds the voter; if it is refused, the response has the error and its message."""
    context.require_cluster(ALTER)
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    refused = refusal_of_change(context, request.cluster_id, key, "Add")
    if refused is not None:
        return _response(*refused)
    # In Kafka too the last endpoint of a listener counts, and they come in the order of a hash table.
    by_name = {each.name.upper(): VoterEndpoint(each.name.upper(), each.host, each.port) for each in request.listeners}
    endpoints = tuple(by_name[each] for each in hash_order(by_name, table_size_for(len(request.listeners))))
    voter = Voter(key, endpoints)
    name = context.services.config.network.controller_listener
    if voter.endpoint(name) is None:
        given = ", ".join(f"ListenerName({each.name})={each.host}/<unresolved>:{each.port}" for each in endpoints)
        return _response(
            ErrorCode.INVALID_REQUEST,
            f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{given}}})) for the default "
            f"listener ListenerName({name})",
        )
    answer = await context.services.controller.voter_requests.add(
        voter, context.services.config.request_timeout_ms, acks_commit=request.ack_when_committed
    )
    return _response(*error_of_change(answer, key, "adding"))


def _response(error: ErrorCode, message: str | None) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(error_code=error, error_message=message)
