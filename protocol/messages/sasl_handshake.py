"""SaslHandshake (key 17): choose a SASL mechanism."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, string


class SaslHandshakeRequest(Message, versions="0-1", flexible="none", key=17):
    """SaslHandshake request (API key 17): choose a SASL mechanism."""

    mechanism: str = string("0+")


class SaslHandshakeResponse(Message, versions="0-1", flexible="none", key=17):
    """SaslHandshake response (API key 17)."""

    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")
