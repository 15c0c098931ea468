"""DeleteAcls (key 31): remove access control entries."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int8, int16, int32, string


class DeleteAclsFilter(Message):
    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DeleteAclsRequest(Message, versions="1-3", flexible="2+", key=31):
    """DeleteAcls request (API key 31): remove access control entries."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, "0+")


class DeleteAclsMatchingAcl(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("1+", default=3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DeleteAclsFilterResult(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, "0+")


class DeleteAclsResponse(Message, versions="1-3", flexible="2+", key=31):
    """DeleteAcls response (API key 31)."""

    throttle_time_ms: int = int32("0+")
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult, "0+")
