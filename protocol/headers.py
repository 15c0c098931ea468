"""Request and response headers and their versions.

Written by hand and not declared: the header is read for every request before its message is known, and it has the
one irregularity of the protocol, a client id that stays an int16 string in the flexible version (P-5).
"""

from __future__ import annotations

import struct

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.codec_source import JAVA_REPLACE, Malformed, read_uvarint
from pykbroker.protocol.errors import DecodeError

INT_MAX = 0x7FFFFFFF

TAGGED_FIELDS_MAX = 1000
"""Largest number of tagged fields of a header, which are skipped one by one; Kafka defines none."""

_FIXED = struct.Struct(">hhih")


class RequestHeader(NamedTuple):
    """Header of a request, and where its body begins in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: bytes | memoryview, flexible_from: dict[int, int]) -> RequestHeader:
    """The header at the start of a frame (without the frame's size).

    `flexible_from` gives for each known API key the first version whose header carries tagged fields (v2). For an
    unknown key only the fixed part is read: the connection is closed anyway (P-4).

    Raises:
        DecodeError: the frame is too short.
    """
    size = len(frame)
    if size < 10:
        raise DecodeError("RequestHeader", -1, "api_key", 0, f"a frame of {size} bytes has no room for a header")
    api_key, api_version, correlation_id, length = _FIXED.unpack_from(frame)
    if api_key not in flexible_from:
        return RequestHeader(api_key, api_version, correlation_id, None, size)
    position = 10
    client_id = None
    if length >= 0:
        end = position + length
        if end > size:
            raise DecodeError("RequestHeader", 1, "client_id", 8, f"the bytes end too early: {size} bytes in all")
        client_id = str(frame[position:end], "utf-8", JAVA_REPLACE)
        position = end
    if api_version >= flexible_from[api_key]:
        try:
            # No client sends tagged fields here: 0 of them is one byte.
            position = position + 1 if frame[position] == 0 else _skip_tags(frame, position)
        except (IndexError, Malformed) as error:
            raise DecodeError("RequestHeader", 2, "tagged fields", position, str(error) or "too short") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def _skip_tags(frame: bytes | memoryview, position: int) -> int:
    """Position behind the tagged fields; all of them are unknown and skipped by their size (P-6)."""

    def uvarint(at: int) -> tuple[int, int]:
        first = frame[at]
        return (first, at + 1) if first < 0x80 else read_uvarint(frame, at + 1, first)

    count, position = uvarint(position)
    if count > INT_MAX:
        return position  # a negative number for Kafka, which then skips none
    if count > TAGGED_FIELDS_MAX:
        raise Malformed(f"{count} tagged fields")
    for _ in range(count):
        _, position = uvarint(position)
        size, position = uvarint(position)
        position += size
        if position > len(frame):
            raise IndexError
    return position


def response_header(correlation_id: int, is_flexible: bool) -> bytes:
    """A response header v1 (with no tagged fields) if `is_flexible`, else v0.

    ApiVersions answers with v0 at every version (P-1): a client reads it before it knows the versions of the broker.
    """
    return correlation_id.to_bytes(4, "big", signed=True) + (b"\x00" if is_flexible else b"")


def request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, is_flexible: bool
) -> bytes:
    """A request header v2 (with no tagged fields) if `is_flexible`, else v1: for requests between nodes."""
    text = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(text)
    return _FIXED.pack(api_key, api_version, correlation_id, length) + text + (b"\x00" if is_flexible else b"")


def read_response_header(frame: bytes | memoryview, is_flexible: bool) -> tuple[int, int]:
    """The correlation id of a response frame, and where its body begins.

    Raises:
        DecodeError: the frame is too short.
    """
    if len(frame) < 4:
        raise DecodeError("ResponseHeader", 0, "correlation_id", 0, f"a frame of {len(frame)} bytes has no header")
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    if not is_flexible:
        return correlation_id, 4
    try:
        return correlation_id, _skip_tags(frame, 4)
    except (IndexError, Malformed) as error:
        raise DecodeError("ResponseHeader", 1, "tagged fields", 4, str(error) or "too short") from None
