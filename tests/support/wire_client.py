"""A blocking client that sends single requests to a running broker and decodes the answers."""

from __future__ import annotations

import socket
from typing import Any

from pykbroker.protocol.codec import decode_from, encode
from pykbroker.protocol.fields import Message, response_class

TIMEOUT_S = 30.0


class WireClient:
    """One connection. A request may be sent now and its answer received later."""

    def __init__(self, address: tuple[str, int], client_id: str = "app", timeout_s: float = TIMEOUT_S) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._client_id = client_id.encode()
        self._sent: list[tuple[type[Message], int]] = []

    def send(self, request: Message, version: int) -> None:
        """Sends a request."""
        self.send_bytes(self.frame(request, version))

    def frame(self, request: Message, version: int) -> bytes:
        """The bytes of a request with its size, all of which are to be sent next; `receive` expects its answer."""
        header = request.KEY.to_bytes(2, "big") + version.to_bytes(2, "big") + len(self._sent).to_bytes(4, "big")
        header += len(self._client_id).to_bytes(2, "big") + self._client_id
        if version in request.FLEXIBLE_VERSIONS:
            header += b"\0"
        frame = header + encode(request, version)
        self._sent.append((type(request), version))
        return len(frame).to_bytes(4, "big") + frame

    def send_bytes(self, data: bytes) -> None:
        """Sends a frame or a part of one."""
        self._socket.sendall(data)

    def fileno(self) -> int:
        """The descriptor of its socket, for `select`."""
        return self._socket.fileno()

    def receive(self) -> Any:
        """The answer to the oldest request that has none; every byte of it must belong to the message."""
        request_type, version = self._sent.pop(0)
        response_type = response_class(request_type)
        frame = self._exactly(int.from_bytes(self._exactly(4), "big"))
        position = 5 if version in request_type.FLEXIBLE_VERSIONS else 4
        response, end = decode_from(response_type, version, frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes behind {response_type.__name__} v{version}"
        return response

    def call(self, request: Message, version: int) -> Any:
        """Sends and receives."""
        self.send(request, version)
        return self.receive()

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self._socket.recv(size - len(received))
            if not part:
                raise EOFError("the broker closed the connection")
            received += part
        return bytes(received)
