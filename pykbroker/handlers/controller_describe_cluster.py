"""DescribeCluster (key 60) on a controller's port: the controllers, for admin clients that connect to them (KIP-919).

Versions 0-2. v1 endpoint type. Unlike on a broker's port it needs ALTER on the cluster, as in Kafka, and a
metadata.version at which controllers register.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.metadata_versions import CONTROLLER_REGISTRATION
from pykbroker.protocol.acl_codes import ALTER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_cluster import (
    BROKER_ENDPOINT,
    CONTROLLER_ENDPOINT,
    DescribeClusterBroker,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from pykbroker.protocol.messages.describe_cluster import DescribeClusterRequest
    from pykbroker.requests.context import ControllerContext


async def handle_controller_describe_cluster(
    context: ControllerContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Lists the registered controllers that have a listener with the name of this connection's listener."""
    if context.services.controller.image.metadata_version < CONTROLLER_REGISTRATION:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message="Direct-to-controller communication is not supported with the current MetadataVersion.",
            # Kafka sends no cluster id here. Brokers of pykbroker that start with an empty directory need it.
            cluster_id=context.services.cluster_id,
        )
    context.require_cluster(ALTER)
    if request.endpoint_type != CONTROLLER_ENDPOINT:
        return _refused(context, request.endpoint_type)
    services = context.services
    name = context.connection.listener_name
    controllers = [
        DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)
        for node_id, controller in services.controller.image.controllers.items()
        for endpoint in controller.endpoints
        if endpoint.name == name
    ]
    leader_id, _ = services.controller.known_leader()
    response = DescribeClusterResponse(
        endpoint_type=CONTROLLER_ENDPOINT,
        cluster_id=services.cluster_id,
        controller_id=leader_id if any(node.broker_id == leader_id for node in controllers) else -1,
        brokers=controllers,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.cluster_operations()
    return response


def _refused(context: ControllerContext, endpoint_type: int) -> DescribeClusterResponse:
    # Version 0 has no endpoint type: it always means brokers.
    if endpoint_type == BROKER_ENDPOINT:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(
        error_code=ErrorCode.INVALID_REQUEST if context.api_version == 0 else code, error_message=message
    )
