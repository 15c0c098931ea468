"""Envelope (key 58): a request forwarded to the controller for a client."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, boolean, byte_string, int16, string


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """The client, as `request_principal` holds it behind an int16 version (Kafka's DefaultKafkaPrincipalBuilder)."""

    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")


class EnvelopeRequest(Message, versions="0", flexible="0+", key=58):
    """Envelope request (API key 58): a request forwarded to the controller for a client."""

    request_data: bytes = byte_string("0+")
    request_principal: bytes | None = byte_string("0+", nullable="0+")
    client_host_address: bytes = byte_string("0+")


class EnvelopeResponse(Message, versions="0", flexible="0+", key=58):
    """Envelope response (API key 58)."""

    response_data: bytes | None = byte_string("0+", default=None, nullable="0+")
    error_code: int = int16("0+")
