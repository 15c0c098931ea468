"""Messages that kafka-python lacks (those of modern groups), made for it from our own declarations in `protocol`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from pykbroker.protocol.fields import NO_VERSIONS, VERSION_MAX, Field, Message, VersionRange


@cache
def request_class(api: str) -> Any:
    """Returns the library's class for requests of an API, as `share_group_describe`.

    The class of the response is registered with the library, by its API key.
    """
    from kafka.protocol.api_message import ApiMessage

    module = import_module(f"pykbroker.protocol.messages.{api}")
    name = "".join(word.capitalize() for word in api.split("_"))
    request = _definition(getattr(module, f"{name}Request"), "request")
    response = _definition(getattr(module, f"{name}Response"), "response")

    # The library reads a message's definition from its file with the name of the class, and lets the class change it:
    # these classes have names of existing messages and replace their definitions.
    class DescribeGroupsRequest(ApiMessage):  # type: ignore[misc]
        @classmethod
        def json_patch(cls, json: Any) -> Any:
            return request

    class DescribeGroupsResponse(ApiMessage):  # type: ignore[misc]
        @classmethod
        def json_patch(cls, json: Any) -> Any:
            return response

    # The library's registry has weak references to classes: this one keeps the class of the response.
    DescribeGroupsRequest.response_class = DescribeGroupsResponse
    return DescribeGroupsRequest


def _definition(message: type[Message], kind: str) -> dict[str, Any]:
    """Kafka's JSON definition of a message."""
    return {
        "apiKey": message.KEY,
        "type": kind,
        "name": message.__name__,
        "validVersions": _versions(message.VERSIONS),
        "flexibleVersions": _versions(message.FLEXIBLE_VERSIONS),
        "fields": [_field(field) for field in message.FIELDS],
    }


def _field(field: Field) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": "".join(word.capitalize() for word in field.name.split("_")),
        "type": _type(field),
        "versions": _versions(field.versions),
    }
    if field.nullable is not NO_VERSIONS:
        found["nullableVersions"] = _versions(field.nullable)
    if field.tag is not None:
        found |= {"tag": field.tag, "taggedVersions": _versions(field.tagged)}
    if field.default is None:
        found["default"] = "null"
    elif isinstance(field.default, int) and field.default:
        found["default"] = str(field.default)
    struct = field if field.kind == "struct" else field.element
    if isinstance(struct, Field) and struct.kind == "struct":
        found["fields"] = [_field(inner) for inner in struct.element.FIELDS]
    return found


def _type(field: Field) -> str:
    if field.kind == "array":
        return f"[]{_type(field.element)}"
    return str(field.element.__name__) if field.kind == "struct" else field.kind


def _versions(versions: VersionRange) -> str:
    is_open = versions.highest == VERSION_MAX
    return f"{versions.lowest}+" if is_open else f"{versions.lowest}-{versions.highest}"
