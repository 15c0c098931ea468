"""SaslHandshake (key 17): choose a SASL mechanism."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, string


class SaslHandshakeRequest(Message, versions="0-1", flexible="none", key=17):
    """What a client sends to SaslHandshake."""

    mechanism: str = string("0+")


class SaslHandshakeResponse(Message, versions="0-1", flexible="none", key=17):
    """What the broker answers to SaslHandshake."""

    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")
