"""Protocols that clients speak by mistake, recognized by their first bytes. Pure."""

from __future__ import annotations

from pykbroker.protocol.framing import FrameReader

_OTHER_PROTOCOLS = (
    (b"\x16\x03", "TLS; this listener has no encryption: clients need security.protocol=PLAINTEXT or SASL_PLAINTEXT"),
    (b"SSH-", "SSH"),
    (b"PRI * HTTP/2", "HTTP/2; this port speaks Kafka's protocol alone"),
    *(
        (method + b" ", "HTTP; this port speaks Kafka's protocol alone")
        for method in (b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"CONNECT", b"TRACE", b"PATCH")
    ),
)


def recognized_protocol(reader: FrameReader) -> str:
    """Text for the log that names the protocol whose first bytes were read as a frame size; "" for an unknown one."""
    name = name_of_protocol(reader.first_bytes)
    return f" (looks like {name})" if name else ""


def name_of_protocol(first: bytes) -> str | None:
    """Name of the protocol, other than Kafka's, whose connections begin with these bytes; None for an unknown one."""
    return next((name for start, name in _OTHER_PROTOCOLS if first.startswith(start)), None)
