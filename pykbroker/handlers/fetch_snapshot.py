"""FetchSnapshot (key 59): a part of a snapshot of the metadata log (KIP-630).

Versions 0-1. v1 directory ids, and the leader's endpoints (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.requests.controller_calls import quorum_of

if TYPE_CHECKING:
    from pykbroker.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
    from pykbroker.requests.context import ControllerContext


async def handle_fetch_snapshot(context: ControllerContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    """Returns bytes of the leader's snapshot file, unchanged."""
    context.require_cluster(CLUSTER_ACTION)
    return await quorum_of(context).answer_snapshot(request, context.api_version)
