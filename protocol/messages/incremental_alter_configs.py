"""IncrementalAlterConfigs (key 44): edit the configuration of a resource."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int8, int32, string
from pykbroker.protocol.messages.alter_configs import AlterConfigsResourceResponse


class AlterableConfig(Message):
    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


class AlterConfigsResource(Message):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


class IncrementalAlterConfigsRequest(Message, versions="0-1", flexible="1+", key=44):
    """IncrementalAlterConfigs request (API key 44): edit the configuration of a resource."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class IncrementalAlterConfigsResponse(Message, versions="0-1", flexible="1+", key=44):
    """IncrementalAlterConfigs response (API key 44)."""

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")
