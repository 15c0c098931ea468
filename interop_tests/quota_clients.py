"""Hand-made requests of a client with an id of its own, which show throttle times; and AlterClientQuotas."""

from __future__ import annotations

import struct
import time

from interop_tests.wire import FETCH, PRODUCE, Connection, record_batch, string

ALTER_CLIENT_QUOTAS, HEARTBEAT = 49, 12


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

    def seconds_to_next_reply(self) -> float:
        """Seconds until a Heartbeat of an unknown group is answered."""
        began = time.monotonic()
        self.exchange(self.header(HEARTBEAT, 1) + string("no-such-group") + struct.pack(">i", 1) + string("member"))
        return time.monotonic() - began


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
