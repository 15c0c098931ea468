"""Progress: log end offset and fetch times of another replica, as the leader knows them from Fetch requests."""

from __future__ import annotations

from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.controller.raft.roles import ReplicaDescription


class Progress:
    """Progress of one replica. Offsets and times (ms) are -1 before the first Fetch.

    Attributes:
        end_offset: records below it are durable on the replica.
        last_fetch_ms: time of the last Fetch.
        last_heard_ms: time of the last Fetch or FetchSnapshot: the replica follows this leader.
        last_caught_up_ms: the latest time at which it had all records that the leader had then.
        end_at_last_fetch: the leader's end offset at the last Fetch.
    """

    __slots__ = ("end_at_last_fetch", "end_offset", "key", "last_caught_up_ms", "last_fetch_ms", "last_heard_ms")

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = -1
        self.last_fetch_ms = -1
        self.last_heard_ms = -1
        self.last_caught_up_ms = -1
        self.end_at_last_fetch = -1

    def note_fetch(self, fetch_offset: int, leader_end: int, now_ms: int) -> None:
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif 0 <= self.end_at_last_fetch <= fetch_offset:
            self.last_caught_up_ms = self.last_fetch_ms
        self.end_offset = fetch_offset
        self.last_fetch_ms = self.last_heard_ms = now_ms
        self.end_at_last_fetch = leader_end

    def describe(self) -> ReplicaDescription:
        return ReplicaDescription(self.key, self.end_offset, self.last_fetch_ms, self.last_caught_up_ms)
