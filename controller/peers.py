"""Peers: responses to the requests of other nodes of the quorum, and the links to these nodes."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from pykbroker.controller.fetch_snapshot import snapshot_response
from pykbroker.controller.node import ControllerNode
from pykbroker.controller.node_client import NodeAddress
from pykbroker.controller.peer_links import PeerLinks
from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft import messages as raft
from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.controller.raft_wire import (
    ENDPOINTS_VERSION,
    KnownLeader,
    Refusal,
    add_leader_endpoint,
    leader_of_response,
    message_from_request,
    response_for_wire,
)
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from pykbroker.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

log = logging.getLogger(__name__)

NEWEST_VERSION = 1 << 15
FETCH_SLACK_MS = 1000
"""Time, beyond the longest wait of a Fetch, after which a Fetch without a response is dropped."""


class Peers:
    """The other nodes of the quorum.

    Args:
        node: the quorum's node of this process; `links` are its transport.
        fetch_wait_max_ms: longest time in ms that the state machine keeps a Fetch waiting for records.
    """

    def __init__(self, node: ControllerNode, links: PeerLinks, *, fetch_wait_max_ms: int = 500) -> None:
        self._node = node
        self._links = links
        self._fetch_wait_max_ms = fetch_wait_max_ms

    async def run(self) -> None:
        """Runs the links until it is cancelled."""
        await self._links.run(self._node.step)

    def address_of(self, node_id: int) -> NodeAddress | None:
        """Address of a node's listener for other nodes; None if it is unknown."""
        return self._links.address_of(node_id)

    def is_majority_silent(self, voters: Collection[int]) -> bool:
        """True if so many voters did not respond to their last request that the others are no majority."""
        return self._links.is_majority_silent(voters)

    async def answer(self, request: Any, api_version: int = NEWEST_VERSION) -> Any:
        """Response to a KRaft request of another node; None if there is none and the connection should be closed.

        `api_version` is the version in which the response will be encoded.
        """
        node, links = self._node, self._links
        try:
            known = KnownLeader(*node.known_leader(), node.log_start)
            asked = message_from_request(request, links.node_id, links.cluster_id, known)
        except Refusal as refusal:
            log.warning("refusing %s of another node: %s", type(request).__name__, refusal)
            return self._with_address(request, refusal.response, leader_of_response(refusal.response), api_version)
        if isinstance(request, BeginQuorumEpochRequest):
            for endpoint in request.leader_endpoints:
                if endpoint.name == links.listener_name:
                    links.learn(asked.source, NodeAddress(endpoint.host, endpoint.port))
        is_fetch = isinstance(asked, raft.FetchRequest)
        timeout_ms = self._fetch_wait_max_ms + FETCH_SLACK_MS if is_fetch else links.request_timeout_ms
        answer = await links.answer_of(asked, node.step, timeout_ms)
        if answer is None:
            return None
        return self._with_address(request, response_for_wire(request, answer), answer.leader_id, api_version)

    def _with_address(self, request: Any, response: Any, leader_id: int, api_version: int) -> Any:
        """The response with the leader's address, if that is known and the version has the field."""
        address = self._links.address_of(leader_id) if leader_id >= 0 else None
        if address is not None and api_version >= ENDPOINTS_VERSION[type(request).__name__]:
            add_leader_endpoint(response, leader_id, *address)
        return response

    async def answer_snapshot(
        self, request: FetchSnapshotRequest, api_version: int = NEWEST_VERSION
    ) -> FetchSnapshotResponse:
        """Response to a FetchSnapshot of another node."""
        node = self._node
        known = node.known_leader()
        response = snapshot_response(request, self._links.cluster_id, known, node.is_leader, node.snapshot_slice)
        if response.topics:
            asked, piece = request.topics[0].partitions[0], response.topics[0].partitions[0]
            if piece.error_code == ErrorCode.NONE:
                replica = ReplicaKey(request.replica_id, asked.replica_directory_id)
                node.step_or_resign(local.SnapshotServed(replica))
            self._with_address(request, response, known[0], api_version)
        return response
