"""UpdateRaftVoter (key 82): a voter sends the leader its listeners and supported kraft.versions (KIP-853).

Version 0. While kraft.version is 0 the leader keeps them in memory; they go into the log when the version is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.raft.quorum import NO_DIRECTORY_ID, ReplicaKey, Voter, VoterEndpoint
from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.update_raft_voter import CurrentLeader, UpdateRaftVoterResponse
from pykbroker.requests.controller_calls import quorum_of

if TYPE_CHECKING:
    from pykbroker.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
    from pykbroker.requests.context import ControllerContext


async def handle_update_raft_voter(
    context: ControllerContext, request: UpdateRaftVoterRequest
) -> UpdateRaftVoterResponse:
    """Updates the voter; the response names the leader, with an error too."""
    context.require_cluster(CLUSTER_ACTION)
    error = _refusal(context, request)
    if error is ErrorCode.NONE:
        feature = request.kraft_version_feature
        voter = Voter(
            ReplicaKey(request.voter_id, request.voter_directory_id),
            tuple(VoterEndpoint(each.name.upper(), each.host, each.port) for each in request.listeners),
            (feature.min_supported_version, feature.max_supported_version),
        )
        if voter.endpoint(context.services.config.network.controller_listener) is None:
            error = ErrorCode.INVALID_REQUEST
        else:
            limit_ms = context.services.config.request_timeout_ms
            error = (await context.services.controller.voter_requests.update(voter, limit_ms)).error
    leader_id, epoch = context.services.controller.known_leader()
    address = quorum_of(context).address_of(leader_id)
    leader = CurrentLeader(leader_id=leader_id, leader_epoch=epoch)
    if address is not None:
        leader.host, leader.port = address
    return UpdateRaftVoterResponse(error_code=error, current_leader=leader)


def _refusal(context: ControllerContext, request: UpdateRaftVoterRequest) -> ErrorCode:
    _, epoch = context.services.controller.known_leader()
    feature = request.kraft_version_feature
    if request.cluster_id is not None and request.cluster_id != context.services.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.current_leader_epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.current_leader_epoch > epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not context.services.controller.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if request.voter_id < 0 or request.voter_directory_id == NO_DIRECTORY_ID:
        return ErrorCode.INVALID_REQUEST
    if not 0 <= feature.min_supported_version <= feature.max_supported_version:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE
