"""Hostile bytes at a listener with TLS: broken handshakes, damaged and cut records, and garbage inside of good ones.

What a connection sends is a list of steps, texts that a finding has and `play` sends again:

    raw HEX                 bytes as they are, without TLS
    handshake               the whole handshake
    record HEX [CHANGE]     the bytes encrypted; CHANGE is xor=POSITION:VALUE, cut=SIZE or pieces=SIZE,SIZE,...
"""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress

from tests.fuzz.client import RESET
from tests.fuzz.frames import GARBAGE

TIMEOUT_S = 2.0
HANDSHAKE = "handshake"
RECORD_OVERHEAD = 22
"""Bytes of a record besides the data, with the suites of TLS 1.3."""
API_VERSIONS = bytes.fromhex("0000001200120000000000010008") + b"liveness"
"""A request with its size; the answer begins with its correlation id, 1."""

Report = Callable[[str, str, list[str]], None]
HISTORY = 2_000
"""Connections whose steps are kept for findings in the broker's log."""


def play(session: Session, steps: Sequence[str]) -> None:
    """Does the steps on a new connection. Raises OSError when the broker refuses the handshake or has closed it."""
    for step in steps:
        word, _, rest = step.partition(" ")
        if word == "handshake":
            session.shake_hands()
        elif word == "raw":
            session.socket.sendall(bytes.fromhex(rest))
        else:
            data, _, change = rest.partition(" ")
            for piece in _changed(session.encrypted(bytes.fromhex(data)), change):
                session.socket.sendall(piece)


def _changed(record: bytes, change: str) -> list[bytes]:
    """The record in the pieces in which it is sent, with the change of its step."""
    kind, _, value = change.partition("=")
    if kind == "xor":
        position, number = map(int, value.split(":"))
        return [record[:position] + bytes([record[position] ^ number]) + record[position + 1 :]]
    if kind == "cut":
        return [record[: int(value)]]
    pieces = []
    for size in value.split(",") if kind == "pieces" else ():
        pieces.append(record[: int(size)])
        record = record[int(size) :]
    return [*pieces, record]


class Session:
    """A client's connection whose every encrypted byte can be changed before it is sent."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext, timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection(address, timeout=timeout_s)
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


def _raw(data: bytes | bytearray) -> str:
    return f"raw {data.hex()}"


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
        # Steps of the connection of the moment.
        self._sent: list[str] = []
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
        self.history: dict[int, list[str]] = {}

    def run(self, count: int) -> None:
        """So many connections, of kinds by chance."""
        for _ in range(count):
            self.connections += 1
            with suppress(OSError):
                session = Session(self._address, self._context)
                port = session.socket.getsockname()[1]
                self.history.pop(port, None)
                self._sent = self.history[port] = []
                if len(self.history) > HISTORY:
                    del self.history[next(iter(self.history))]
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
        self._do(session, _raw(head + self._generator.randbytes(self._generator.randrange(2000))))
        self._drain(session)

    def _mutated_handshake(self, session: Session) -> None:
        hello = bytearray(session.first_flight())
        for _ in range(self._generator.randint(1, 6)):
            hello[self._generator.randrange(len(hello))] = self._generator.randrange(256)
        self._do(session, _raw(hello))
        self._drain(session)

    def _cut_handshake(self, session: Session) -> None:
        hello = session.first_flight()
        self._do(session, _raw(hello[: self._generator.randrange(len(hello))]))

    def _damaged_record(self, session: Session) -> None:
        position = self._generator.randrange(RECORD_OVERHEAD + len(API_VERSIONS))
        change = f"xor={position}:{self._generator.randint(1, 255)}"
        self._do(session, HANDSHAKE, f"record {API_VERSIONS.hex()} {change}")
        self._drain(session)

    def _cut_record(self, session: Session) -> None:
        data = API_VERSIONS * 50
        size = self._generator.randrange(RECORD_OVERHEAD + len(data))
        self._do(session, HANDSHAKE, f"record {data.hex()} cut={size}")

    def _garbage_inside(self, session: Session) -> None:
        self._do(session, HANDSHAKE, f"record {self._generator.choice(GARBAGE).hex()}")
        self._drain(session)

    def _pieces(self, session: Session) -> None:
        """A good request in pieces of any size must be answered."""
        left = RECORD_OVERHEAD + len(API_VERSIONS)
        sizes = []
        while left:
            sizes.append(self._generator.randint(1, left))
            left -= sizes[-1]
        self._do(session, HANDSHAKE, f"record {API_VERSIONS.hex()} pieces={','.join(map(str, sizes))}")
        answer = session.read()
        if answer[4:8] != API_VERSIONS[8:12]:
            self._report("answer", f"{answer[:12].hex()} to ApiVersions over TLS", self._sent)

    def _do(self, session: Session, *steps: str) -> None:
        # Noted first, as the broker may close the connection at any of them.
        self._sent += steps
        play(session, steps)

    def _drain(self, session: Session) -> None:
        """Reads what comes until the end, for a moment."""
        session.socket.settimeout(0.05)
        with suppress(OSError):
            while session.socket.recv(1 << 16):
                pass
