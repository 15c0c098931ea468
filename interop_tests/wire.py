"""Kafka's wire by hand, for what no stock client shows or sends: frames built from struct.pack, read field by field."""

from __future__ import annotations

import gzip
import socket
import struct
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

PRODUCE, FETCH, METADATA, API_VERSIONS, DESCRIBE_PRODUCERS = 0, 1, 3, 18, 61
TIMEOUT_S = 20.0
RECENT_MS = int(time.time()) * 1000 - 3_600_000
"""An hour ago, to the second. A record with a time of its own must be younger than retention is long: the broker looks
for old segments every five minutes, and takes an older record from under whatever test is looking at it just then."""


def string(text: str | None) -> bytes:
    """A nullable string with its int16 length."""
    return b"\xff\xff" if text is None else struct.pack(">h", len(text.encode())) + text.encode()


def compact_string(text: str) -> bytes:
    """A compact string; short ones only (the length fits one byte)."""
    return bytes([len(text.encode()) + 1]) + text.encode()


def request_header(api_key: int, api_version: int, correlation_id: int = 7, *, flexible: bool = False) -> bytes:
    """Request header version 1, or 2 with its empty tagged fields."""
    header = struct.pack(">hhi", api_key, api_version, correlation_id) + string("interop")
    return header + (b"\0" if flexible else b"")


class ConnectionClosed(Exception):
    """The broker closed the connection in place of an answer."""


class Connection:
    """One TCP connection that sends frames and reads frames."""

    def __init__(self, bootstrap: str, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, payload: bytes) -> None:
        """Sends one frame: the size and the payload."""
        self.send_raw(struct.pack(">i", len(payload)) + payload)

    def send_raw(self, data: bytes) -> None:
        """Sends bytes as they are."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionClosed from error

    def receive(self) -> bytes:
        """One frame without its size. Raises ConnectionClosed when the broker hangs up first."""
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def exchange(self, payload: bytes) -> bytes:
        """Sends one frame and reads one."""
        self.send(payload)
        return self.receive()

    def is_closed_by_broker(self) -> bool:
        """Waits until the broker closes; False when it answers or does nothing until the timeout."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def fetch(self, topic: str, partition: int, offset: int, max_wait_ms: int = 500) -> bytes:
        """Fetch version 4 (no session, no topic ids) of one partition: the record batches as they came."""
        body = struct.pack(">iiiib", -1, max_wait_ms, 1, 50 << 20, 0)
        body += struct.pack(">i", 1) + string(topic) + struct.pack(">iiqi", 1, partition, offset, 50 << 20)
        reply = self.exchange(request_header(FETCH, 4) + body)
        # correlation id, throttle time, one topic, one partition: id, error, high watermark, stable offset
        position = 4 + 4 + 4 + len(string(topic)) + 4
        _, error, _, _, aborted = struct.unpack_from(">ihqqi", reply, position)
        assert error == 0, f"Fetch of {topic}-{partition} at {offset}: error {error}"
        position += 26 + max(aborted, 0) * 16
        (size,) = struct.unpack_from(">i", reply, position)
        return reply[position + 4 : position + 4 + size]

    def produce(self, topic: str, partition: int, batch: bytes, version: int = 7, acks: int = -1) -> tuple[int, int]:
        """Produce (versions 3 to 7) of one batch: error code and base offset."""
        body = string(None) + struct.pack(">hii", acks, 10_000, 1) + string(topic)
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        reply = self.exchange(request_header(PRODUCE, version) + body)
        _, error, base_offset = struct.unpack_from(">ihq", reply, 4 + 4 + len(string(topic)) + 4)
        return error, base_offset

    def describe_producers(self, topic: str, partition: int) -> tuple[int, list[int]]:
        """DescribeProducers version 0 of one partition: error code and producer ids."""
        body = b"\2" + compact_string(topic) + b"\2" + struct.pack(">i", partition) + b"\0\0"
        reply = self.exchange(request_header(DESCRIBE_PRODUCERS, 0, flexible=True) + body)
        # correlation id, tags, throttle time, one topic with its name, one partition: number, error, null message
        position = 4 + 1 + 4 + 1 + len(compact_string(topic)) + 1
        _, error, message, count = struct.unpack_from(">ihBB", reply, position)
        assert message == 0, f"DescribeProducers of {topic}-{partition}: error {error}"
        # Each has: id, epoch, last sequence, last timestamp, coordinator epoch, offset of the transaction, tags
        entry = struct.Struct(">qiiqiqB")
        return error, [entry.unpack_from(reply, position + 8 + entry.size * index)[0] for index in range(count - 1)]

    def _receive_exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.socket.recv(size - len(parts))
            except ConnectionResetError:
                part = b""
            if not part:
                raise ConnectionClosed(f"after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)


def offered_apis(bootstrap: str) -> set[int]:
    """Keys of the APIs that a broker tells of in ApiVersions."""
    with Connection(bootstrap) as connection:
        reply = connection.exchange(request_header(API_VERSIONS, 0))
    _, error, count = struct.unpack_from(">ihi", reply)
    assert error == 0, f"ApiVersions: error {error}"
    return {struct.unpack_from(">h", reply, 10 + 6 * index)[0] for index in range(count)}


def batch_headers(records: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Base offset, leader epoch, attributes and record count of each whole batch."""
    position = 0
    while position + 61 <= len(records):
        base_offset, length, epoch = struct.unpack_from(">qii", records, position)
        (attributes,) = struct.unpack_from(">h", records, position + 21)
        (count,) = struct.unpack_from(">i", records, position + 57)
        if position + 12 + length > len(records):
            return
        yield base_offset, epoch, attributes, count
        position += 12 + length


def batch_codecs(records: bytes) -> set[int]:
    """The codec ids of all batches."""
    return {attributes & 7 for _, _, attributes, _ in batch_headers(records)}


def record_batch(values: list[bytes], *, timestamp_ms: int = RECENT_MS, compressed: bool = False) -> bytes:
    """A batch of version 2 with values only."""
    records = b"".join(_record(number, value) for number, value in enumerate(values))
    body = struct.pack(
        ">hiqqqhii", int(compressed), len(values) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(values)
    ) + (gzip.compress(records) if compressed else records)
    return struct.pack(">qiibI", 0, 4 + 1 + 4 + len(body), -1, 2, crc32c(body)) + body


def _record(offset_delta: int, value: bytes) -> bytes:
    body = b"\0" + _varint(0) + _varint(offset_delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    unsigned = (value << 1) ^ (value >> 63)
    unsigned &= (1 << 64) - 1
    out = bytearray()
    while unsigned >= 0x80:
        out.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit: slow, and independent of the library that the broker uses."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
