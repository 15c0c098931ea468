"""TlsConnection: a `SocketConnection` whose bytes are encrypted. Imported by nodes with a TLS listener, and no others.

OpenSSL reads and writes buffers in memory, and this module moves them from and to the socket. So the loop serves a
connection as it serves a plain one: it reads until nothing is left in the socket and in OpenSSL, and waits for room in
the socket when a reply does not fit. File ranges are read piece by piece and encrypted. Compared with OpenSSL on the
socket itself this saves a system call for each record received and most of those of a large reply; a gigabyte costs the
same processor time within the noise, 0.7 to 1 s.

A client gets `HANDSHAKE_TIMEOUT_S` and `HANDSHAKE_BYTES_MAX` for its handshake. OpenSSL itself limits the size of a
certificate chain (100 KB) and of each record; renegotiation is switched off.
"""

from __future__ import annotations

import logging
import ssl
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.errors import CloseConnection
from pykbroker.logstore.file_range import FileRange
from pykbroker.network.connection import SENT_WITHOUT_COROUTINE_MAX, SocketConnection
from pykbroker.network.other_protocols import name_of_protocol
from pykbroker.network.reply import wait_writable
from pykbroker.protocol.framing import BUFFER_SIZE_KEPT
from pykbroker.security.principals import CERTIFICATE, AuthenticationContext, PrincipalBuilderFailed
from pykbroker.security.tls.der import DerError
from pykbroker.security.tls.key_stores import openssl_reason
from pykbroker.security.tls.principal_mapping import NoMatchingRule

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from pykbroker.network.connection import Connection
    from pykbroker.network.reply import Connected
    from pykbroker.network.request_memory import RequestMemory
    from pykbroker.requests.context import NodeServices
    from pykbroker.security.connection_info import ConnectionInfo
    from pykbroker.security.tls.listener_tls import ListenerTls

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 30.0
"""Time in seconds from the accepted connection to the end of its handshake, whatever arrives meanwhile."""

HANDSHAKE_BYTES_MAX = 1 << 18
"""Bytes that a client may send before its handshake is complete: above OpenSSL's limit of a chain of certificates."""

RECEIVE_SIZE = 1 << 15
"""Encrypted bytes that are received at a time: two full records."""

PIECE_SIZE = 1 << 16
"""Bytes of a reply that are encrypted at a time: four full records."""

TURN_SIZE = 1 << 19
"""Bytes of a reply that are encrypted before other connections have a turn."""

UNSENT_MAX = 1 << 16
"""Bytes of OpenSSL's own messages that may wait for the client, such as answers to updates of keys."""

_HANDSHAKE_RECORD = 0x16
"""First byte of a TLS connection: the type of a record with a handshake message."""

_ALERT_RECORD = 0x15
_INTERNAL_ERROR = b"\x15\3\3\0\2\2\x50"
"""Alert that Java sends to a client that does not speak TLS, and OpenSSL does not (P-614)."""

# One buffer for all connections of the process: it is emptied before another connection is served.
_received = memoryview(bytearray(RECEIVE_SIZE))


class TlsConnection(SocketConnection):
    """A connection of a listener with TLS.

    Attributes:
        handshake_ends: time on trio's clock by which the handshake must be complete; None once it is.
    """

    __slots__ = (
        "_handshake_bytes",
        "_has_leftover",
        "_incoming",
        "_outgoing",
        "_ssl",
        "_tls",
        "_unsent",
        "handshake_ends",
    )

    def __init__(
        self,
        services: NodeServices,
        connected: socket.socket,
        info: ConnectionInfo,
        frame_size_max: int,
        memory: RequestMemory,
        on_end: Callable[[Connection], None],
        tls: ListenerTls,
    ) -> None:
        super().__init__(services, connected, info, frame_size_max, memory, on_end)
        assert tls.server is not None
        self._tls = tls
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = tls.server.wrap_bio(self._incoming, self._outgoing, server_side=True)
        # True while bytes may be left in OpenSSL that were received and not read.
        self._has_leftover = False
        self._unsent = b""
        self._handshake_bytes = 0
        self.handshake_ends: float | None = trio.current_time() + HANDSHAKE_TIMEOUT_S

    @property
    def is_authenticated(self) -> bool:
        return self.handshake_ends is None and super().is_authenticated

    def lateness(self, now: float) -> str | None:
        if self.handshake_ends is None or now < self.handshake_ends:
            return None
        return f"its TLS handshake took longer than {HANDSHAKE_TIMEOUT_S:.0f} s"

    def end(self, error: Exception | None = None) -> None:
        if not self.has_ended:
            if self.handshake_ends is None and not self.is_sending:
                self._send_close_notify()
            if isinstance(error, ssl.SSLError):
                error = CloseConnection(f"TLS: {openssl_reason(error)}")
            super().end(error)

    def _send_close_notify(self) -> None:
        """Sends the end of the encrypted stream, as far as the socket takes it at once."""
        # The client's own end is not waited for.
        with suppress(ssl.SSLError, ValueError):
            self._ssl.unwrap()
        self._send_last()

    async def _serve_turn(self) -> bool:
        if self.handshake_ends is not None and not await self._handshake():
            return False
        return await super()._serve_turn()

    async def _handshake(self) -> bool:
        """Continues the handshake; True if it is complete.

        Raises:
            CloseConnection: the handshake failed, and OpenSSL's alert was sent; the text says why.
        """
        while True:
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush(None, 0)
                if not self._receive_for_handshake():
                    return False
            except ssl.SSLError as error:
                self._send_last()
                raise CloseConnection(self._failure(error)) from None
            else:
                break
        await self._flush(None, 0)
        self._established()
        return True

    def _receive_for_handshake(self) -> bool:
        try:
            count = self._socket.recv_into(_received)
        except BlockingIOError:
            return False
        if count == 0:
            # A connection without a byte is a check of the port.
            if self._handshake_bytes:
                log.info("client %s closed the connection during the TLS handshake", self.info.client_host)
            self.end()
            return False
        if not self._handshake_bytes and _received[0] != _HANDSHAKE_RECORD:
            if _received[0] != _ALERT_RECORD:
                self._unsent = _INTERNAL_ERROR
                self._send_last()
            raise CloseConnection(self._not_tls(bytes(_received[: min(count, 16)])))
        self._handshake_bytes += count
        if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            raise CloseConnection(f"it sent more than {HANDSHAKE_BYTES_MAX} bytes in its TLS handshake")
        self._incoming.write(_received[:count])
        return True

    def _established(self) -> None:
        self.handshake_ends = None
        self._has_leftover = True
        self.last_used = trio.current_time()
        cipher = self._ssl.cipher()
        allowed = self._tls.allowed_suites
        if allowed and cipher is not None and cipher[1] == "TLSv1.3" and cipher[0] not in allowed:
            raise CloseConnection(f"the cipher suite {cipher[0]} is not in ssl.cipher.suites")
        if self.info.sasl is None:
            try:
                self.info.principal = self._principal(self._ssl.getpeercert(binary_form=True))
            except (NoMatchingRule, DerError, PrincipalBuilderFailed) as error:
                raise CloseConnection(f"its certificate gives no principal: {error}") from None

    def _principal(self, certificate: bytes | None) -> str:
        principal = self._tls.principal(certificate)
        builder = self._services.principal_builder
        if builder is None:
            return principal
        return builder.build(
            AuthenticationContext(self.info.listener_name, self.info.client_host, CERTIFICATE, principal, {})
        )

    def _failure(self, error: ssl.SSLError) -> str:
        reason = openssl_reason(error)
        known = next((text for word, text in _REASONS if word in reason), None)
        return f"the TLS handshake failed: {f'{known} ({reason})' if known else reason}"

    def _not_tls(self, first: bytes) -> str:
        protocol = "SASL_SSL" if self.info.sasl is not None else "SSL"
        name = name_of_protocol(first)
        if name is None and first[0] == 0:
            name = "Kafka's protocol without encryption"
        looks = f"they look like {name}" if name else f"they begin with {first[:4].hex()}"
        return (
            f"its first bytes are not TLS: {looks}; clients of listener {self.info.listener_name} need "
            f"security.protocol={protocol}"
        )

    def _receive(self, now: float) -> bool:
        count = self._read()
        if count == 0:
            return False
        self._reader.received(count)
        self.last_used = now
        return True

    def _receive_small(self) -> bool:
        if self._reader.announced > BUFFER_SIZE_KEPT:
            return False
        count = self._read(may_end=False)
        if count == 0:
            return False
        self._reader.received(count)
        return True

    def _read(self, *, may_end: bool = True) -> int:
        """Decrypts into the reader's room until that is full or nothing is left; returns the number of bytes.

        Ends the connection at the end of the stream, if nothing was read before and `may_end`.
        """
        room = self._reader.buffer()
        size, count, is_last = len(room), 0, False
        read, incoming = self._ssl.read, self._incoming
        while count < size:
            if not self._has_leftover:
                if is_last:
                    break
                try:
                    received = self._socket.recv_into(_received)
                except BlockingIOError:
                    break
                if received == 0:
                    if not count and may_end:
                        self.end()
                    break
                is_last = received < RECEIVE_SIZE
                incoming.write(_received[:received])
                self._has_leftover = True
            try:
                got = int(read(size - count, room[count:]))
            except ssl.SSLWantReadError:
                self._has_leftover = False
                continue
            if got == 0:
                # The client has sent close_notify. OpenSSL reports it again at the next read.
                if not count and may_end:
                    self.end()
                break
            count += got
            if not incoming.pending and not self._ssl.pending():
                self._has_leftover = False
        if self._outgoing.pending and not self.has_ended:
            self._outgoing_to_unsent()
            self._send_what_fits()
            if len(self._unsent) > UNSENT_MAX:
                raise CloseConnection("it does not read the answers to its TLS messages")
        return count

    def _sends_at_once(self, chunks: list[Any]) -> bool:
        data = chunks[0]
        if len(data) > SENT_WITHOUT_COROUTINE_MAX:
            return False
        self._ssl.write(data)
        self._outgoing_to_unsent()
        self._send_what_fits()
        # Encrypted bytes that are left need `_flush` alone.
        chunks.clear()
        return not self._unsent

    async def _send_chunks(self, connected: Connected, chunks: list[Any], memory: RequestMemory) -> None:
        """Encrypts and sends a reply, as `reply.send_chunks` sends one in plain."""
        try:
            in_memory = sum(len(chunk) for chunk in chunks if not isinstance(chunk, FileRange))
            gathered: list[Any] = []
            size = in_turn = 0
            for chunk in chunks:
                for piece in _pieces(chunk):
                    if size and size + len(piece) > PIECE_SIZE:
                        await self._encrypt(gathered, memory, in_memory)
                        in_turn += size
                        size = 0
                        if in_turn >= TURN_SIZE:
                            in_turn = 0
                            await trio.lowlevel.checkpoint()
                    gathered.append(piece)
                    size += len(piece)
                if isinstance(chunk, FileRange):
                    chunk.release()
            if size:
                await self._encrypt(gathered, memory, in_memory)
            elif self._unsent:
                await self._flush(memory, in_memory)
        finally:
            for chunk in chunks:
                if isinstance(chunk, FileRange):
                    chunk.release()

    async def _encrypt(self, pieces: list[Any], memory: RequestMemory, in_memory: int) -> None:
        self._ssl.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        pieces.clear()
        await self._flush(memory, in_memory)

    async def _flush(self, memory: RequestMemory | None, in_memory: int) -> None:
        """Sends what OpenSSL has written; waits while the socket is full."""
        self._outgoing_to_unsent()
        self._send_what_fits()
        if self._unsent:
            with memory.reply_waiting(max(in_memory, len(self._unsent))) if memory is not None else nullcontext():
                while self._unsent:
                    await wait_writable(self._socket)
                    self._send_what_fits()

    def _send_last(self) -> None:
        """Sends an alert or the end of the stream; the client may have disconnected."""
        self._outgoing_to_unsent()
        with suppress(OSError):
            self._send_what_fits()

    def _outgoing_to_unsent(self) -> None:
        if self._outgoing.pending:
            self._unsent = self._unsent + self._outgoing.read() if self._unsent else self._outgoing.read()

    def _send_what_fits(self) -> None:
        if not self._unsent:
            self._outgoing_to_unsent()
        if self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return
            self._unsent = self._unsent[sent:]


_REASONS = (
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "the client has no certificate, and ssl.client.auth=required asks for one"),
    ("NO_SHARED_CIPHER", "the client has none of the cipher suites of this listener (ssl.cipher.suites)"),
    ("UNSUPPORTED_PROTOCOL", "the client has no TLS version of this listener (ssl.enabled.protocols)"),
    ("NO_PROTOCOLS_AVAILABLE", "the client has no TLS version of this listener (ssl.enabled.protocols)"),
    ("ALERT_UNKNOWN_CA", "the client does not trust this broker's certificate"),
    ("ALERT_CERTIFICATE_UNKNOWN", "the client does not trust this broker's certificate"),
    ("ALERT_BAD_CERTIFICATE", "the client refuses this broker's certificate"),
    ("ALERT_PROTOCOL_VERSION", "the client refuses the TLS version"),
    ("unable to get local issuer certificate", "the client's certificate is not trusted (ssl.truststore)"),
    ("self-signed certificate", "the client's certificate is not trusted (ssl.truststore)"),
    ("certificate has expired", "the client's certificate has expired"),
    ("EXCESSIVE_MESSAGE_SIZE", "the client's certificates are too large"),
)


def _pieces(chunk: Any) -> Any:
    if isinstance(chunk, FileRange):
        return chunk.pieces(PIECE_SIZE)
    if len(chunk) <= PIECE_SIZE:
        return (chunk,)
    view = memoryview(chunk)
    return (view[start : start + PIECE_SIZE] for start in range(0, len(view), PIECE_SIZE))
