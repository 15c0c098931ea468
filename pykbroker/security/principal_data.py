"""Binary form of a client's principal and address in an Envelope (KIP-590).

The principal is an int16 version and Kafka's DefaultPrincipalData, as Kafka's default principal builder writes it, so
that brokers and controllers of Apache Kafka and of pykbroker can be mixed.
"""

from __future__ import annotations

import ipaddress

from pykbroker.errors import KafkaError
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import DecodeError
from pykbroker.protocol.messages.envelope import DefaultPrincipalData

VERSION = 0


def principal_to_bytes(principal: str, *, is_token_authenticated: bool = False) -> bytes:
    """Encodes a principal such as ``User:alice``, and the fact that it has logged in by delegation token."""
    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=is_token_authenticated)
    return VERSION.to_bytes(2, "big") + encode(data, VERSION)


def principal_from_bytes(data: bytes | None) -> tuple[str, bool]:
    """Decodes a principal, such as ``User:alice``, and the fact that it has logged in by delegation token.

    Raises:
        KafkaError: PRINCIPAL_DESERIALIZATION_FAILURE for bytes that are not one of a known version.
    """
    try:
        if data is None or len(data) < 2 or int.from_bytes(data[:2], "big") != VERSION:
            raise ValueError("no principal of a known version")
        found = decode(DefaultPrincipalData, VERSION, bytes(data[2:]))
    except (DecodeError, ValueError):
        raise KafkaError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "Failed to deserialize client principal from envelope"
        ) from None
    return f"{found.type}:{found.name}", found.token_authenticated


def address_to_bytes(host: str) -> bytes:
    """4 or 16 bytes of a numeric address, without its scope (``%eth0``), which has no meaning on another machine."""
    return ipaddress.ip_address(host.partition("%")[0]).packed


def address_from_bytes(data: bytes) -> str:
    """Text of an address; an IPv4 address that is mapped into IPv6 becomes an IPv4 address.

    Raises:
        KafkaError: INVALID_REQUEST: neither 4 nor 16 bytes.
    """
    if len(data) not in (4, 16):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Failed to parse client address from envelope")
    address = ipaddress.ip_address(bytes(data))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
