"""A connection that takes whatever happens for an answer: a response, a closed connection, silence, unfit bytes."""

from __future__ import annotations

import importlib
import select
import socket
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode_from, encode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.fields import Message
from pykbroker.requests.api_table import camel_case

CLOSED = "the connection was closed"
SILENCE = "no answer"
SOMETIMES_SILENT = (
    "add_partitions_to_txn",
    "alter_configs",
    "describe_user_scram_credentials",
    "incremental_alter_configs",
    "produce",
    "write_txn_markers",
)
"""APIs with requests on which Kafka's handler fails: the client never gets an answer."""
CLIENT_ID = b"app"
CONNECT_TIMEOUT_S = 120.0
FRAME_TIMEOUT_S = 120.0
"""For the rest of a response that has begun."""


class Waiting(NamedTuple):
    """A request whose answer has not come yet, and the step that it is the answer of."""

    api: str
    version: int
    step: int


class Connection:
    """One connection, opened when it is needed and again after it was closed. One request is under way at most.

    `host` is the client's address, if it is another one than the system's choice.
    """

    def __init__(self, address: tuple[str, int], host: str = "") -> None:
        self._address = address
        self._source = (host, 0) if host else None
        self._socket: socket.socket | None = None
        self.waiting: Waiting | None = None

    def send(self, api: str, version: int, request: Message, step: int, damage: str = "") -> None:
        """Sends a request; `receive` tells what came of it."""
        self.waiting = Waiting(api, version, step)
        if self._socket is None:
            self._socket = socket.create_connection(self._address, CONNECT_TIMEOUT_S, self._source)
        frame = _damaged_frame(request, version, damage)
        with suppress(ConnectionError):  # the answer is then that the connection was closed
            self._socket.sendall(len(frame).to_bytes(4, "big") + frame)

    def receive(self, timeout_s: float) -> Any:
        """A message, CLOSED, SILENCE (the request is still under way then), or a text that says what does not fit."""
        assert self.waiting is not None
        if self._socket is None:
            return CLOSED
        ready, _, _ = select.select([self._socket], [], [], timeout_s)
        if not ready:
            return SILENCE
        waiting, self.waiting = self.waiting, None
        try:
            frame = self._exactly(int.from_bytes(self._exactly(4), "big"))
        except (ConnectionError, TimeoutError):
            self.close()
            return CLOSED
        return _decoded(waiting, frame)

    def receive_nothing(self) -> None:
        """The request that was sent is one that gets no answer."""
        self.waiting = None

    def close(self) -> None:
        self.waiting = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        self._socket.settimeout(FRAME_TIMEOUT_S)
        received = bytearray()
        while len(received) < size:
            part = self._socket.recv(size - len(received))
            if not part:
                raise ConnectionResetError
            received += part
        return bytes(received)


@cache
def message_type(api: str, kind: str) -> type[Message]:
    """The class of an API's requests or responses: ``kind`` is "Request" or "Response"."""
    module = importlib.import_module(f"pykbroker.protocol.messages.{api}")
    found: type[Message] = getattr(module, camel_case(api) + kind)
    return found


def _decoded(waiting: Waiting, frame: bytes) -> Any:
    response_type = message_type(waiting.api, "Response")
    if waiting.version not in response_type.VERSIONS:
        return f"a response of {len(frame)} bytes"
    flexible = waiting.version in response_type.FLEXIBLE_VERSIONS and waiting.api != "api_versions"
    try:
        response, end = decode_from(response_type, waiting.version, frame, 5 if flexible else 4)
    except ProtocolError as error:
        return f"bytes that are no {response_type.__name__} v{waiting.version}: {error}"
    return response if end == len(frame) else f"{len(frame) - end} bytes behind {response_type.__name__}"


def _damaged_frame(request: Message, version: int, damage: str) -> bytes:
    flexible = version in request.FLEXIBLE_VERSIONS
    body = encode(request, version)
    key = int(request.KEY)
    if damage == "truncated":
        body = body[:-1]
    elif damage == "trailing":
        body += b"\1\2\3"
    elif damage == "empty":
        body = b""
    elif damage == "version_high":
        version = type(request).VERSIONS.highest + 1
    elif damage == "version_low":
        version = -1
    elif damage == "api_unknown":
        key = 999
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\0\0\0\7"
    header += len(CLIENT_ID).to_bytes(2, "big") + CLIENT_ID
    return header + (b"\0" if flexible else b"") + body


def api_of(request: Message) -> str:
    """The API's name as modules have it: ``list_offsets``."""
    return ApiKey(request.KEY).name.lower()
