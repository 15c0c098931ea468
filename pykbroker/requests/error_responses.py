"""Error responses of all APIs, with which Kafka responds if a handler fails.

Kafka has one written by hand for each API. Here they are built from the message declarations: the elements of the
response for topics, partitions, groups or resources are made from those of the request, and every error code field gets
the error. Imported at the first failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.fields import Field, Message, response_class

# Kafka repeats the error for each part of the request only if the response has no error code on top. These APIs have it
# on top and in the parts, up to the given version.
_ON_TOP_AND_IN_PARTS = {
    ApiKey.METADATA: 32767,
    ApiKey.FETCH: 12,
    ApiKey.ELECT_LEADERS: 32767,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 32767,
}

# Fields that identify a part, each with its synonyms; no other fields of a request are repeated. The top of a response
# repeats none, except the session of a Fetch.
_IDENTITIES = (
    ("name", "topic", "topic_name"),
    ("topic_id",),
    ("index", "partition", "partition_index", "partition_id"),
    ("group_id", "key"),
    ("resource_type",),
    ("resource_name",),
    ("producer_id",),
    ("transactional_id",),
)

# Kafka's values for an absent offset, epoch or node, if the declaration has another default.
_NOTHING = {
    "base_offset": -1,
    "committed_offset": -1,
    "end_offset": -1,
    "high_watermark": -1,
    "leader_epoch": -1,
    "low_watermark": -1,
    "node_id": -1,
    "port": -1,
    "records": b"",
    "timestamp": -1,
}


SESSION_ID = "session_id"

_TEXT_OF_CODE = (ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.CONTROLLER_REGISTRATION)
"""APIs whose error response has the text of the error code, whatever the reason was."""


def error_response(request: Message, version: int, error_code: int, message: str | None) -> Message | None:
    """The response to `request` with the error in all its parts; None if the client expects no response (acks=0)."""
    key = ApiKey(request.KEY)
    if key is ApiKey.PRODUCE and getattr(request, "acks", 1) == 0:
        return None
    if key in _TEXT_OF_CODE:
        message = TEXTS.get(ErrorCode(error_code), message)
    response_type = response_class(type(request))
    parts: Any = request
    if key is ApiKey.ALTER_REPLICA_LOG_DIRS:
        parts = [topic for directory in getattr(request, "dirs", ()) for topic in directory.topics]
    has_top = _has_error_code(response_type, version)
    goes_deeper = not has_top or version <= _ON_TOP_AND_IN_PARTS.get(key, -1)
    response = _Filler(version, error_code, message).fill(response_type, parts, goes_deeper)
    if key is ApiKey.FETCH:
        setattr(response, SESSION_ID, getattr(request, SESSION_ID))
    return response


class _Filler:
    """Builds the response struct for a part of the request."""

    def __init__(self, version: int, error_code: int, message: str | None) -> None:
        self._version = version
        self._error_code = error_code
        self._message = message

    def fill(self, response_type: type[Message], part: Any, goes_deeper: bool) -> Message:
        values: dict[str, Any] = {}
        for field in response_type.FIELDS:
            if self._version not in field.versions:
                continue
            if field.name == "error_code":
                values[field.name] = self._error_code
            elif field.name == "error_message":
                values[field.name] = self._message
            elif field.kind == "array":
                if (
                    goes_deeper
                    and field.element.kind == "struct"
                    and _leads_to_error(field.element.element, self._version)
                ):
                    values[field.name] = self._elements(field, part)
            elif field.name in _NOTHING:
                values[field.name] = _NOTHING[field.name]
        return response_type(**values)

    def _elements(self, field: Field, part: Any) -> list[Message]:
        element_type = field.element.element
        goes_deeper = not _has_error_code(element_type, self._version)
        return [self._element(element_type, item, goes_deeper) for item in _items(part, self._version)]

    def _element(self, element_type: type[Message], item: Any, goes_deeper: bool) -> Message:
        element = self.fill(element_type, item, goes_deeper)
        for field in element_type.FIELDS:
            if self._version in field.versions and (found := _named(field.name, item)) is not None:
                setattr(element, field.name, found)
        if not isinstance(item, Message):
            # A plain string or number, for the first field of its type.
            for field in element_type.FIELDS:
                holds = field.kind == "string" if isinstance(item, str) else field.kind == "int32"
                if self._version in field.versions and holds and field.name != "error_message":
                    setattr(element, field.name, item)
                    break
        return element


def _items(part: Any, version: int) -> Sequence[Any]:
    """The elements that the response repeats: the first array of the request that is not empty."""
    if isinstance(part, list):
        return part
    if not isinstance(part, Message):
        return ()
    for field in part.FIELDS:
        if field.kind == "array" and version in field.versions and getattr(part, field.name):
            items: Sequence[Any] = getattr(part, field.name)
            return items
    return ()


def _named(name: str, part: Any) -> Any:
    """Value of the request's field of that name or a synonym; None without such a field."""
    if not isinstance(part, Message):
        return None
    names = next((group for group in _IDENTITIES if name in group), ())
    declared = {field.name for field in part.FIELDS if field.kind != "array"}
    return next((getattr(part, known) for known in names if known in declared), None)


def _has_error_code(message_type: type[Message], version: int) -> bool:
    return any(field.name == "error_code" and version in field.versions for field in message_type.FIELDS)


def _leads_to_error(message_type: type[Message], version: int) -> bool:
    return _has_error_code(message_type, version) or any(
        field.kind == "array"
        and version in field.versions
        and field.element.kind == "struct"
        and _leads_to_error(field.element.element, version)
        for field in message_type.FIELDS
    )
