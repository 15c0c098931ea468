"""Recorded conversations: messages as JSON and back, and a client that sends one request at a time.

A transcript is a text file with one JSON object per line: the API, the version, the request, and what Apache Kafka
answered. Fields with their default are left out; bytes are written as hexadecimal text.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pykbroker.protocol.codec import decode_from, encode
from pykbroker.protocol.fields import STRUCT_DEFAULT, Message
from pykbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pykbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykbroker.requests.api_table import camel_case

TIMEOUT_S = 30
CLOSED = "the connection was closed"


class Exchange(NamedTuple):
    """One request with its answer; `response` is None where the connection was closed instead."""

    api: str
    version: int
    request: Message
    response: Message | None


class Client:
    """A blocking connection that reconnects after it was closed; with a user, by SASL/PLAIN, password as the name."""

    def __init__(self, host: str, port: int, user: str | None = None) -> None:
        self._address = (host, port)
        self._user = user
        self._socket: socket.socket | None = None

    def call(self, request: Message, version: int) -> Message | None:
        """The answer, or None if the broker closes the connection."""
        is_flexible = version in request.FLEXIBLE_VERSIONS
        header = struct.pack(">hhih", request.KEY, version, 1, 4) + b"test" + (b"\0" if is_flexible else b"")
        frame = header + encode(request, version)
        if self._socket is None:
            self._socket = socket.create_connection(self._address, TIMEOUT_S)
            if self._user is not None:
                self._log_in(self._user)
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", self._receive(4))
            body = self._receive(size)
        except ConnectionError:
            self._socket.close()
            self._socket = None
            return None
        response: Message
        response, end = decode_from(class_of(api_of(request), "Response"), version, body, 5 if is_flexible else 4)
        assert end == len(body), f"{len(body) - end} bytes behind the response"
        return response

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _log_in(self, user: str) -> None:
        offer = self.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert isinstance(offer, SaslHandshakeResponse)
        assert offer.error_code == 0, offer.mechanisms
        answer = self.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}".encode()), 2)
        assert isinstance(answer, SaslAuthenticateResponse)
        assert answer.error_code == 0, answer.error_message

    def _receive(self, size: int) -> bytes:
        assert self._socket is not None
        received = b""
        while len(received) < size:
            part = self._socket.recv(size - len(received))
            if not part:
                raise ConnectionResetError(CLOSED)
            received += part
        return received


def api_of(request: Message) -> str:
    """The name of the API that a message belongs to, as in `handlers`."""
    return type(request).__module__.rpartition(".")[2]


def read_transcript(path: Path) -> Iterator[Exchange]:
    """The exchanges of a transcript, in order."""
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        api, response = entry["api"], entry["response"]
        yield Exchange(
            api,
            entry["version"],
            from_json(class_of(api, "Request"), entry["request"]),
            None if response is None else from_json(class_of(api, "Response"), response),
        )


def to_line(exchange: Exchange) -> str:
    """One line of a transcript."""
    response = None if exchange.response is None else to_json(exchange.response)
    entry = {
        "api": exchange.api,
        "version": exchange.version,
        "request": to_json(exchange.request),
        "response": response,
    }
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))


def to_json(value: Any) -> Any:
    """A message as plain data without the fields that have their default."""
    if isinstance(value, Message):
        fields = ((field, getattr(value, field.name)) for field in value.FIELDS)
        return {
            field.name: to_json(content)
            for field, content in fields
            if content
            != (list(field.default) if field.kind == "array" and field.default is not None else field.default)
        }
    if isinstance(value, list):
        return [to_json(member) for member in value]
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else value


def from_json(message_type: type[Message], data: dict[str, Any]) -> Message:
    """The message that `to_json` made this of."""
    values: dict[str, Any] = {}
    for field in message_type.FIELDS:
        if field.name in data:
            values[field.name] = _value(field, data[field.name])
    return message_type(**values)


def _value(field: Any, data: Any) -> Any:
    if data is None or data is STRUCT_DEFAULT:
        return None
    if field.kind == "array":
        return [_value(field.element, member) for member in data]
    if field.kind == "struct":
        return from_json(field.element, data)
    return bytes.fromhex(data) if field.kind in ("uuid", "bytes", "records") else data


def class_of(api: str, kind: str) -> type[Any]:
    module = import_module(f"pykbroker.protocol.messages.{api}")
    message_type: type[Any] = getattr(module, camel_case(api) + kind)
    return message_type
