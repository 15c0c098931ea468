"""ConsumerGroupDescribe (key 69) for kafka-python, which has no message for groups of the protocol of KIP-848."""

from __future__ import annotations

from functools import cache
from typing import Any


def _field(
    name: str, kind: str, *, nullable: bool = False, fields: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "type": kind, "versions": "0+"}
    if nullable:
        found |= {"nullableVersions": "0+", "default": "null"}
    if fields is not None:
        found["fields"] = fields
    return found


def _assignment() -> list[dict[str, Any]]:
    topic = [_field("TopicId", "uuid"), _field("TopicName", "string"), _field("Partitions", "[]int32")]
    return [_field("TopicPartitions", "[]TopicPartitions", fields=topic)]


def _message(kind: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiKey": 69,
        "type": kind,
        "name": f"ConsumerGroupDescribe{kind.capitalize()}",
        "validVersions": "0",
        "flexibleVersions": "0+",
        "fields": fields,
    }


_REQUEST = _message("request", [_field("GroupIds", "[]string"), _field("IncludeAuthorizedOperations", "bool")])
_MEMBER = [
    _field("MemberId", "string"),
    _field("InstanceId", "string", nullable=True),
    _field("RackId", "string", nullable=True),
    _field("MemberEpoch", "int32"),
    _field("ClientId", "string"),
    _field("ClientHost", "string"),
    _field("SubscribedTopicNames", "[]string"),
    _field("SubscribedTopicRegex", "string", nullable=True),
    _field("Assignment", "Assignment", fields=_assignment()),
    _field("TargetAssignment", "TargetAssignment", fields=_assignment()),
]
_GROUP = [
    _field("ErrorCode", "int16"),
    _field("ErrorMessage", "string", nullable=True),
    _field("GroupId", "string"),
    _field("GroupState", "string"),
    _field("GroupEpoch", "int32"),
    _field("AssignmentEpoch", "int32"),
    _field("AssignorName", "string"),
    _field("Members", "[]Member", fields=_MEMBER),
    _field("AuthorizedOperations", "int32"),
]
_RESPONSE = _message(
    "response", [_field("ThrottleTimeMs", "int32"), _field("Groups", "[]DescribedGroup", fields=_GROUP)]
)


@cache
def request_class() -> Any:
    """Return the class of the request; the class of the response is registered with the library, by its API key."""
    from kafka.protocol.api_message import ApiMessage

    # The library reads a message's definition from its file with the name of the class, and lets the class change it:
    # these classes have names of existing messages and replace their definitions.
    class DescribeGroupsRequest(ApiMessage):  # type: ignore[misc]
        @classmethod
        def json_patch(cls, json: Any) -> Any:
            return _REQUEST

    class DescribeGroupsResponse(ApiMessage):  # type: ignore[misc]
        @classmethod
        def json_patch(cls, json: Any) -> Any:
            return _RESPONSE

    # The library's registry has weak references to classes: this one keeps the class of the response.
    DescribeGroupsRequest.response_class = DescribeGroupsResponse
    return DescribeGroupsRequest
