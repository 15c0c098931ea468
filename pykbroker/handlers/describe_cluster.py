"""DescribeCluster (key 60): the brokers, for admin clients (KIP-700).

Versions 0-2. v1 endpoint type (KIP-919); v2 fenced brokers on demand (KIP-1073). Only a controller's listener lists the
controllers (P-31).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.metadata.metadata_cache import NO_CONTROLLER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_cluster import (
    BROKER_ENDPOINT,
    CONTROLLER_ENDPOINT,
    DescribeClusterBroker,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from pykbroker.protocol.messages.describe_cluster import DescribeClusterRequest
    from pykbroker.requests.context import BrokerContext


async def handle_describe_cluster(context: BrokerContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Lists the brokers that the client's listener reaches."""
    if request.endpoint_type not in (BROKER_ENDPOINT, CONTROLLER_ENDPOINT):
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
            endpoint_type=BROKER_ENDPOINT,
        )
    if request.endpoint_type == CONTROLLER_ENDPOINT:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message=(
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            ),
            endpoint_type=BROKER_ENDPOINT,
        )
    services = context.services
    brokers = services.metadata.brokers(context.connection)
    controller_id = services.metadata.any_alive(services.random)
    if all(broker.broker_id != controller_id for broker in brokers):
        # The client could not reach it: it has no listener of this name.
        controller_id = NO_CONTROLLER
    response = DescribeClusterResponse(
        endpoint_type=BROKER_ENDPOINT,
        cluster_id=services.cluster_id,
        controller_id=controller_id,
        brokers=[
            DescribeClusterBroker(**broker._asdict())
            for broker in brokers
            if request.include_fenced_brokers or not broker.is_fenced
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.cluster_operations()
    return response
