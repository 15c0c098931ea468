"""Connections of this node to TLS listeners of other nodes."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import trio

from pykbroker.security.tls.key_stores import openssl_reason

if TYPE_CHECKING:
    from pykbroker.controller.node_client import OpenStream
    from pykbroker.security.tls.listener_tls import ListenerTls


class TlsRefused(OSError):
    """The handshake failed: the other node is not trusted, has another name, or refuses this node."""


def with_tls(open_stream: OpenStream, tls: ListenerTls) -> OpenStream:
    """Function that connects by `open_stream` and encrypts, with the certificates that are in use then.

    It raises TlsRefused, an OSError, if the handshake fails.
    """

    async def open_encrypted(host: str, port: int) -> trio.abc.Stream:
        stream = await open_stream(host, port)
        # Without the end of the encrypted stream: frames have sizes, so that a cut is noticed.
        encrypted = trio.SSLStream(stream, tls.client, server_hostname=host, https_compatible=True)
        try:
            await encrypted.do_handshake()
        except trio.BrokenResourceError as error:
            await trio.aclose_forcefully(stream)
            raise TlsRefused(f"the TLS handshake with {host}:{port} failed: {_reason(error)}") from error
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return encrypted

    return open_encrypted


def _reason(error: trio.BrokenResourceError) -> str:
    cause = error.__cause__
    return openssl_reason(cause) if isinstance(cause, ssl.SSLError) else str(cause or "the connection was closed")
