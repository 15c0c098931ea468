"""Fetch (key 1) on a controller's port: voters and observers follow the metadata log (KIP-595).

Versions 4-18 as on a broker's port, but there is one partition, `__cluster_metadata`-0, no session and no reader that
is not a node of the cluster. v12 the epoch of the last record that the follower has, by which diverging logs are found;
v13 topic ids, without which a Fetch is none of the quorum and gets INVALID_REQUEST; v17 directory ids; v18 the
follower's high watermark.
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

LOWEST_THAT_NAMES_A_LEADER = 12


async def handle_controller_fetch(context: ControllerContext, request: FetchRequest) -> FetchResponse:
    """Records of the metadata log, a point of divergence, or a checkpoint to begin with; waits for something new.

    Raises:
        KafkaError: UNSUPPORTED_VERSION: a version in which neither a leader nor a divergence can be said. Kafka
            advertises these too, and says so when it cannot write its answer.
    """
    context.require_cluster(CLUSTER_ACTION)
    if context.api_version < LOWEST_THAT_NAMES_A_LEADER:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "versions below 12 cannot say who leads, nor where logs part")
    response: FetchResponse = await answer_of_quorum(context, request)
    return response
