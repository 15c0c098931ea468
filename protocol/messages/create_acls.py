"""CreateAcls (key 30): add access control entries."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int8, int16, int32, string


class AclCreation(Message):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class CreateAclsRequest(Message, versions="1-3", flexible="2+", key=30):
    """CreateAcls request (API key 30): add access control entries."""

    creations: list[AclCreation] = array(AclCreation, "0+")


class AclCreationResult(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class CreateAclsResponse(Message, versions="1-3", flexible="2+", key=30):
    """CreateAcls response (API key 30)."""

    throttle_time_ms: int = int32("0+")
    results: list[AclCreationResult] = array(AclCreationResult, "0+")
