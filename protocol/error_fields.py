"""The error codes in a response, which stand at its top, or in the structs of its arrays."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from pykbroker.protocol.fields import Message


def error_codes(message: Message) -> Iterator[int]:
    """Error codes of a response other than NONE, at any depth. Elements that are encoded already have none."""
    return filter(None, every_error_code(message))


def every_error_code(message: Message) -> Iterator[int]:
    """As `error_codes`, with those that are NONE: as many as there are structs, of which there may be thousands."""
    if _has_error_code(type(message)):
        yield message.error_code  # type: ignore[attr-defined]
    for name in _arrays_with_error_codes(type(message)):
        for element in getattr(message, name) or ():
            if isinstance(element, bytes):
                continue
            element_type: type[Message] = type(element)
            if _arrays_with_error_codes(element_type):
                yield from every_error_code(element)
            else:
                yield element.error_code


@cache
def _has_error_code(message_type: type[Message]) -> bool:
    return any(field.name == "error_code" for field in message_type.FIELDS)


@cache
def _arrays_with_error_codes(message_type: type[Message]) -> tuple[str, ...]:
    """Fields whose elements have error codes. A response may have thousands of other structs, such as configs."""
    return tuple(
        field.name
        for field in message_type.FIELDS
        if field.kind == "array"
        and field.element.kind == "struct"
        and (_has_error_code(field.element.element) or _arrays_with_error_codes(field.element.element))
    )
