"""Hostile bytes at a listener with TLS: broken handshakes, damaged and cut records, and garbage inside of good ones."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from tests.fuzz.client import RESET
from tests.fuzz.frames import GARBAGE

TIMEOUT_S = 2.0
API_VERSIONS = bytes.fromhex("0000001200120000000000010008") + b"liveness"
"""A request with its size; the answer begins with its correlation id, 1."""

Report = Callable[[str, str, list[bytes]], None]


class Session:
    """A client's connection whose every encrypted byte can be changed before it is sent."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        self.socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def first_flight(self) -> bytes:
        """The first message of the handshake, not sent yet."""
        with suppress(ssl.SSLWantReadError):
            self._ssl.do_handshake()
        return self._outgoing.read()

    def shake_hands(self) -> None:
        """The whole handshake. Raises OSError when the broker refuses it."""
        while True:
            try:
                self._ssl.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.flush()
                self._receive()
        self.flush()

    def encrypted(self, data: bytes) -> bytes:
        """Records of the data, not sent yet."""
        self._ssl.write(data)
        return self._outgoing.read()

    def read(self) -> bytes:
        """Some decrypted bytes; b"" at the end."""
        while True:
            try:
                return self._ssl.read(1 << 16)
            except ssl.SSLWantReadError:
                if not self._receive():
                    return b""

    def flush(self) -> None:
        """Sends what OpenSSL has written."""
        self.socket.sendall(self._outgoing.read())

    def _receive(self) -> bytes:
        data = self.socket.recv(1 << 16)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return data


class TlsFuzz:
    """Sends hostile connections one after another.

    Args:
        address: of the listener with TLS.
        context: of a client that trusts it.
        generator: the source of chance.
        report: called with kind, text and what was sent for each finding.
    """

    def __init__(
        self, address: tuple[str, int], context: ssl.SSLContext, generator: random.Random, report: Report
    ) -> None:
        self._address = address
        self._context = context
        self._generator = generator
        self._report = report
        self._kinds = (
            self._noise,
            self._mutated_handshake,
            self._cut_handshake,
            self._damaged_record,
            self._cut_record,
            self._garbage_inside,
            self._pieces,
        )
        self.connections = 0

    def run(self, count: int) -> None:
        """So many connections, of kinds by chance."""
        for _ in range(count):
            self.connections += 1
            with suppress(OSError):
                session = Session(self._address, self._context)
                try:
                    self._generator.choice(self._kinds)(session)
                finally:
                    if self._generator.random() < 0.3:
                        session.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    session.socket.close()

    def _noise(self, session: Session) -> None:
        kind = self._generator.choice((20, 21, 22, 23, 24, self._generator.randrange(256)))
        size = self._generator.choice((0, 1, 5, 300, 16_384, 65_535))
        head = bytes([kind, 3, self._generator.randrange(5)]) + size.to_bytes(2, "big")
        session.socket.sendall(head + self._generator.randbytes(self._generator.randrange(2000)))
        self._drain(session)

    def _mutated_handshake(self, session: Session) -> None:
        hello = bytearray(session.first_flight())
        for _ in range(self._generator.randint(1, 6)):
            hello[self._generator.randrange(len(hello))] = self._generator.randrange(256)
        session.socket.sendall(bytes(hello))
        self._drain(session)

    def _cut_handshake(self, session: Session) -> None:
        hello = session.first_flight()
        session.socket.sendall(hello[: self._generator.randrange(len(hello))])

    def _damaged_record(self, session: Session) -> None:
        session.shake_hands()
        record = bytearray(session.encrypted(API_VERSIONS))
        record[self._generator.randrange(len(record))] ^= self._generator.randint(1, 255)
        session.socket.sendall(bytes(record))
        self._drain(session)

    def _cut_record(self, session: Session) -> None:
        session.shake_hands()
        record = session.encrypted(API_VERSIONS * 50)
        session.socket.sendall(record[: self._generator.randrange(len(record))])

    def _garbage_inside(self, session: Session) -> None:
        session.shake_hands()
        session.socket.sendall(session.encrypted(self._generator.choice(GARBAGE)))
        self._drain(session)

    def _pieces(self, session: Session) -> None:
        """A good request in pieces of any size must be answered."""
        session.shake_hands()
        record = session.encrypted(API_VERSIONS)
        while record:
            size = self._generator.randint(1, len(record))
            session.socket.sendall(record[:size])
            record = record[size:]
        answer = session.read()
        if answer[4:8] != API_VERSIONS[8:12]:
            self._report("answer", f"{answer[:12].hex()} to ApiVersions over TLS", [API_VERSIONS])

    def _drain(self, session: Session) -> None:
        """Reads what comes until the end, for a moment."""
        session.socket.settimeout(0.05)
        with suppress(OSError):
            while session.socket.recv(1 << 16):
                pass
