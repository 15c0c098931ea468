"""Fetch (key 1) on a controller's port: voters and observers replicate the metadata log (KIP-595).

Versions 4-18 as on a broker's port, but there is one partition, `__cluster_metadata`-0, no session, and only nodes of
the cluster read. v12 the epoch of the follower's last record, by which diverging logs are found; v13 topic ids, without
which the request is not a Fetch of the quorum and gets INVALID_REQUEST; v17 directory ids; v18 the follower's high
watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.requests.controller_calls import answer_of_quorum

if TYPE_CHECKING:
    from pykbroker.protocol.messages.fetch import FetchRequest, FetchResponse
    from pykbroker.requests.context import ControllerContext

DIVERGING_VERSION = 12


async def handle_controller_fetch(context: ControllerContext, request: FetchRequest) -> FetchResponse:
    """Returns records of the metadata log, a diverging epoch or the id of a snapshot to fetch; waits for new records.

    Raises:
        KafkaError: UNSUPPORTED_VERSION: a version without fields for the leader and the diverging epoch. Kafka
            advertises these versions too, and returns the error when it cannot encode its response.
    """
    context.require_cluster(CLUSTER_ACTION)
    if context.api_version < DIVERGING_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "versions below 12 have no fields for the leader and the diverging epoch"
        )
    response: FetchResponse = await answer_of_quorum(context, request)
    return response
