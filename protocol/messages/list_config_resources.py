"""ListConfigResources (key 74): resources that have configuration of their own."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int8, int16, int32, string


class ListConfigResourcesRequest(Message, versions="0-1", flexible="0+", key=74):
    """ListConfigResources request (API key 74): resources that have configuration of their own."""

    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Message):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, versions="0-1", flexible="0+", key=74):
    """ListConfigResources response (API key 74)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")
