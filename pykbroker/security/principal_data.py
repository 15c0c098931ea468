"""A client's principal and address as they travel inside an Envelope (KIP-590).

The principal is Kafka's DefaultPrincipalData behind its int16 version, as its default principal builder writes it, so
that brokers and controllers of both kinds understand one another.
"""

from __future__ import annotations

import ipaddress

from pykbroker.errors import KafkaError
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import DecodeError
from pykbroker.protocol.messages.envelope import DefaultPrincipalData

VERSION = 0


def principal_to_bytes(principal: str) -> bytes:
    """``User:alice`` as bytes."""
    kind, _, name = principal.partition(":")
    return VERSION.to_bytes(2, "big") + encode(DefaultPrincipalData(type=kind, name=name), VERSION)


def principal_from_bytes(data: bytes | None) -> str:
    """The principal, such as ``User:alice``.

    Raises:
        KafkaError: PRINCIPAL_DESERIALIZATION_FAILURE.
    """
    try:
        if data is None or len(data) < 2 or int.from_bytes(data[:2], "big") != VERSION:
            raise ValueError("no principal of a known version")
        found = decode(DefaultPrincipalData, VERSION, bytes(data[2:]))
    except (DecodeError, ValueError):
        raise KafkaError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "Failed to deserialize client principal from envelope"
        ) from None
    return f"{found.type}:{found.name}"


def address_to_bytes(host: str) -> bytes:
    """4 or 16 bytes for a numeric address; a scope (``%eth0``) is of no use elsewhere and left out."""
    return ipaddress.ip_address(host.partition("%")[0]).packed


def address_from_bytes(data: bytes) -> str:
    """The address in text; an IPv4 address inside an IPv6 one is shown as what it is.

    Raises:
        KafkaError: INVALID_REQUEST: neither 4 nor 16 bytes.
    """
    if len(data) not in (4, 16):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Failed to parse client address from envelope")
    address = ipaddress.ip_address(bytes(data))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
