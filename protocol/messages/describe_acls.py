"""DescribeAcls (key 29): list access control entries."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int8, int16, int32, string


class DescribeAclsRequest(Message, versions="1-3", flexible="2+", key=29):
    """DescribeAcls request (API key 29): list access control entries."""

    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class AclDescription(Message):
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DescribeAclsResource(Message):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array(AclDescription, "0+")


class DescribeAclsResponse(Message, versions="1-3", flexible="2+", key=29):
    """DescribeAcls response (API key 29)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, "0+")
