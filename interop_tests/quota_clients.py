"""Hand-made requests of a client with an id of its own, which show throttle times; quotas are set and described."""

from __future__ import annotations

import struct

from interop_tests.wire import FETCH, PRODUCE, Connection, record_batch, string

DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS, HEARTBEAT = 48, 49, 12
EXACT_NAME, DEFAULT_NAME = 0, 1


class QuotaClient(Connection):
    """A connection with a client id."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        super().__init__(bootstrap)
        self.client_id = client_id

    def header(self, api_key: int, api_version: int) -> bytes:
        """A request's header of version 1."""
        return struct.pack(">hhi", api_key, api_version, 7) + string(self.client_id)

    def produce_frame(self, topic: str, size: int, acks: int = 1) -> bytes:
        """Produce version 7 of one record."""
        batch = record_batch([b"x" * size])
        body = string(None) + struct.pack(">hii", acks, 10_000, 1) + string(topic)
        return self.header(PRODUCE, 7) + body + struct.pack(">iii", 1, 0, len(batch)) + batch

    def produce_throttle_ms(self, frame: bytes) -> int:
        """The throttle time that a Produce request gets; it is the last field of the response."""
        (throttle_ms,) = struct.unpack(">i", self.exchange(frame)[-4:])
        return int(throttle_ms)

    def fetch_throttle_ms(self, topic: str, offset: int = 0, size_max: int = 50 << 20) -> tuple[int, int]:
        """Throttle time and number of topics of a Fetch (version 7, without a session)."""
        body = struct.pack(">iiiibii", -1, 100, 1, 50 << 20, 0, 0, -1)
        body += struct.pack(">i", 1) + string(topic) + struct.pack(">iiqqi", 1, 0, offset, -1, size_max) + bytes(4)
        throttle_ms, _, _, topics = struct.unpack_from(">ihii", self.exchange(self.header(FETCH, 7) + body), 4)
        return throttle_ms, topics

    def wait_reply(self) -> None:
        """Waits for the response to a Heartbeat of an unknown group."""
        self.exchange(self.header(HEARTBEAT, 1) + string("no-such-group") + struct.pack(">i", 1) + string("member"))


def alter_quota(bootstrap: str, entity: dict[str, str | None], key: str, value: float | None) -> None:
    """Sets a quota, or removes it (None)."""
    parts = b"".join(string(kind) + string(name) for kind, name in entity.items())
    body = struct.pack(">ii", 1, len(entity)) + parts
    body += struct.pack(">i", 1) + string(key) + struct.pack(">dbb", value or 0.0, value is None, 0)
    with QuotaClient(bootstrap, "quotas") as client:
        reply = client.exchange(client.header(ALTER_CLIENT_QUOTAS, 0) + body)
    # correlation id, throttle time, one entry: its error
    (error,) = struct.unpack_from(">h", reply, 12)
    assert error == 0, f"quota {key} of {entity}: error {error}"


def has_quota(bootstrap: str, entity: dict[str, str | None], key: str) -> bool:
    """True if the broker has a quota of exactly this entity: its metadata may be older than those of the controller."""
    body = struct.pack(">i", len(entity))
    for kind, name in entity.items():
        body += string(kind) + struct.pack(">b", DEFAULT_NAME if name is None else EXACT_NAME) + string(name)
    with QuotaClient(bootstrap, "quotas") as client:
        reply = client.exchange(client.header(DESCRIBE_CLIENT_QUOTAS, 0) + body + b"\1")
    return string(key) in reply
