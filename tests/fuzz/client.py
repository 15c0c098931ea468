"""Many connections at once, from one thread: frames out, answers in, and what happened remembered for a while."""

from __future__ import annotations

import random
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode_from
from pykbroker.protocol.errors import DecodeError
from pykbroker.protocol.headers import read_request_header
from pykbroker.requests.api_table import APIS, FLEXIBLE_FROM
from tests.fuzz.frames import GARBAGE, FrameMaker, MutatedRealFrames, is_known, request_type, response_type
from tests.fuzz.world import World

ANSWER_TIMEOUT_S = 0.5
"""Then a connection is given up: some frames ask the broker to wait, or for no answer."""

RESET = struct.pack("ii", 1, 0)


class Slot:
    """One connection and its history."""

    __slots__ = ("asked", "deadline", "history", "port", "received", "socket")

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.port = 0
        self.asked: deque[bytes] = deque()
        self.history: deque[bytes] = deque(maxlen=60)
        self.received = bytearray()
        self.deadline = 0.0


class FuzzClient:
    """Drives `connections` sockets; `report(kind, text, frames)` is called for each answer that cannot be right."""

    def __init__(
        self,
        address: tuple[str, int],
        maker: FrameMaker | MutatedRealFrames,
        world: World,
        generator: random.Random,
        connections: int,
        report: Callable[[str, str, list[bytes]], None],
    ) -> None:
        self._address = address
        self._maker = maker
        self._world = world
        self._generator = generator
        self._report = report
        self._selector = selectors.DefaultSelector()
        self._slots = [Slot() for _ in range(connections)]
        self._by_port: dict[int, list[bytes]] = {}
        self.frames_sent = 0
        self.answers = 0
        self.closed = 0
        self.recent: deque[bytes] = deque(maxlen=5000)

    def run(self, seconds: float, frames: int | None = None) -> None:
        """Sends for so long, or so many frames."""
        end = time.monotonic() + seconds
        target = None if frames is None else self.frames_sent + frames
        while True:
            now = time.monotonic()
            if now > end or (target is not None and self.frames_sent >= target):
                return
            for slot in self._slots:
                if slot.socket is None or not slot.asked:
                    self._next(slot)
                elif now > slot.deadline:
                    self._drop(slot)
            for key, _ in self._selector.select(0.02):
                self._receive(key.data)

    def history_of(self, port: int) -> list[bytes]:
        """The frames that were sent from a local port, the last ones."""
        for slot in self._slots:
            if slot.socket is not None and slot.port == port:
                return list(slot.history)
        return self._by_port.get(port, [])

    def close(self) -> None:
        """Closes all connections."""
        for slot in self._slots:
            self._drop(slot)

    def _next(self, slot: Slot) -> None:
        try:
            if slot.socket is None:
                self._connect(slot)
            self._send(slot)
        except OSError:
            self._drop(slot)

    def _connect(self, slot: Slot) -> None:
        connected = socket.create_connection(self._address, timeout=5)
        connected.setblocking(False)
        slot.socket = connected
        slot.port = connected.getsockname()[1]
        slot.asked.clear()
        slot.history.clear()
        slot.received.clear()
        self._selector.register(connected, selectors.EVENT_READ, slot)

    def _send(self, slot: Slot) -> None:
        generator, connected = self._generator, slot.socket
        assert connected is not None
        kind = generator.random()
        count = 1 if kind < 0.96 else generator.randint(2, 40)
        # Ids of their own, by which answers are told apart: a Produce with acks=0 has none.
        frames = [frame[:4] + generator.randbytes(len(frame[4:8])) + frame[8:] for frame in self._made(count)]
        data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
        if kind > 0.99:
            data = generator.choice(GARBAGE)
            frames = [data]
        elif 0.97 < kind < 0.98:
            data = data[: generator.randrange(len(data))]
        slot.asked.extend(frames)
        slot.history.extend(frames)
        self.recent.extend(frames)
        self.frames_sent += len(frames)
        slot.deadline = time.monotonic() + ANSWER_TIMEOUT_S
        try:
            sent = connected.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data) or 0.98 < kind < 0.985:
            # A bomb that does not fit at once, or a client that goes in the middle; some go with a reset.
            if generator.random() < 0.5:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._drop(slot)

    def _made(self, count: int) -> list[bytes]:
        return [self._maker.frame() for _ in range(count)]

    def _receive(self, slot: Slot) -> None:
        assert slot.socket is not None
        try:
            data = slot.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.closed += 1
            self._drop(slot)
            return
        received = slot.received
        received += data
        while len(received) >= 4 and slot.asked:
            size = int.from_bytes(received[:4], "big")
            if len(received) < 4 + size:
                return
            answer = bytes(received[4 : 4 + size])
            del received[: 4 + size]
            self._check(slot, slot.asked.popleft(), answer)

    def _check(self, slot: Slot, frame: bytes, answer: bytes) -> None:
        """The answer must be to this frame and be whole; what it says is learned."""
        self.answers += 1
        known = is_known(frame)
        while known is not None and answer[:4] != frame[4:8] and slot.asked:
            # Produce with acks=0 has no answer.
            if known[0] != ApiKey.PRODUCE:
                break
            frame = slot.asked.popleft()
            known = is_known(frame)
        if known is None:
            return
        key, version = known
        if answer[:4] != frame[4:8]:
            self._report("answer", f"correlation id {answer[:4].hex()} for {APIS[key].name} v{version}", [frame])
            self._drop(slot)
            return
        start = 5 if version >= APIS[key].flexible_from and key != ApiKey.API_VERSIONS else 4
        try:
            response, end = decode_from(response_type(key), version, answer, start)
        except DecodeError as error:
            self._report("answer", f"{APIS[key].name} v{version}: {error}", [frame])
            return
        if end != len(answer):
            self._report("answer", f"{APIS[key].name} v{version}: {len(answer) - end} bytes too many", [frame])
        self._learn(key, version, frame, response)

    def _learn(self, key: int, version: int, frame: bytes, response: Any) -> None:
        if key not in (ApiKey.METADATA, ApiKey.JOIN_GROUP, ApiKey.INIT_PRODUCER_ID, ApiKey.FETCH):
            return
        position = read_request_header(frame, FLEXIBLE_FROM).body_position
        request, _ = decode_from(request_type(key), version, frame, position)
        self._world.learn(key, request, response)

    def _drop(self, slot: Slot) -> None:
        if slot.socket is None:
            return
        self._selector.unregister(slot.socket)
        slot.socket.close()
        slot.socket = None
        self._by_port[slot.port] = list(slot.history)
        if len(self._by_port) > 3000:
            del self._by_port[next(iter(self._by_port))]
