"""ListConfigResources (key 74): resources that have configs (KIP-1000, KIP-1142).

Versions 0-1. v0 lists client metrics subscriptions only; v1 any type, and an empty list means all types. Topics and
brokers are listed whether or not a config is set on them, groups and subscriptions only if one is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from pykbroker.controller.turns import EachInTurns
from pykbroker.java_order import concurrent_order
from pykbroker.protocol.acl_codes import DESCRIBE_CONFIGS
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.list_config_resources import ConfigResource, ListConfigResourcesResponse

if TYPE_CHECKING:
    from pykbroker.protocol.messages.list_config_resources import ListConfigResourcesRequest
    from pykbroker.requests.context import BrokerContext

ALL_TYPES = (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE, BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE)


async def handle_list_config_resources(
    context: BrokerContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Lists the names of all resources of the requested types."""
    if not context.authorize_cluster(DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    supported = (CLIENT_METRICS_RESOURCE,) if context.api_version == 0 else ALL_TYPES
    wanted = request.resource_types or supported
    if any(kind not in supported for kind in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in supported
            if kind in wanted
            async for name in EachInTurns(_names(context, kind))
        ]
    )


def _names(context: BrokerContext, kind: int) -> list[str]:
    metadata = context.services.metadata
    if kind == TOPIC_RESOURCE:
        return list(metadata.image.topics_by_name)
    if kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        return [str(broker.broker_id) for broker in metadata.brokers(context.connection)]
    return concurrent_order(
        name for (resource_type, name), configs in metadata.image.configs.items() if resource_type == kind and configs
    )
