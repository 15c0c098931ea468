"""Incremental fetch sessions (KIP-227): the partitions that each client fetches; a request names only changed ones.

Pure: time and random numbers are arguments. A session keeps for each partition the client's parameters and the offsets
last sent to it; a response then carries only partitions that have changed (P-72 to P-75).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import PIECE, Steps, list_in_steps

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
    from pykbroker.replication.caught_up import CaughtUpConsumer, CaughtUpFollower

INITIAL_EPOCH = 0
"""Begins a session."""

FINAL_EPOCH = -1
"""Ends the session."""

EVICTION_MS = 120_000
"""A session unused for so long may be evicted for any new one (P-75)."""


PARTITIONS_MAX = 200_000
"""Largest number of partitions in all sessions together. Kafka limits only the number of sessions, and a session may
name any partitions, also such that do not exist: a thousand sessions could take gigabytes."""


def next_session_epoch(epoch: int) -> int:
    """Epoch of the next request of a fetch session or share session; 2147483647 is followed by 1."""
    return 1 if epoch == 0x7FFFFFFF else epoch + 1


class PartitionKey(NamedTuple):
    """Names a partition in a session: by topic id from Fetch v13 on, by name before."""

    topic: str
    topic_id: bytes
    partition: int


class FetchedPartition:
    """Fetch parameters of a client for one partition; in a session also the offsets last sent to the client.

    Attributes:
        topic_name: the topic that had the id of `key` when a request looked it up; empty before that. A session keeps
            the name of a topic that is deleted (P-71).
    """

    __slots__ = (
        "caught_up",
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "sent_high_watermark",
        "sent_log_start_offset",
        "size_max",
        "topic_name",
    )

    def __init__(self, key: PartitionKey, asked: FetchPartition) -> None:
        self.key = key
        self.topic_name = key.topic
        self.fetch_offset = asked.fetch_offset
        self.size_max = asked.partition_max_bytes
        # Fetch treats any negative epoch as no epoch.
        epoch, last_epoch = asked.current_leader_epoch, asked.last_fetched_epoch
        self.current_leader_epoch = max(-1, epoch)
        self.last_fetched_epoch = max(-1, last_epoch)
        # Start of the follower's own log; -1 from a consumer.
        self.log_start_offset = asked.log_start_offset
        # State of an in-sync follower that had the whole log at its last fetch, or of a consumer of a session that had
        # all it may read; else None. Set by the handler of Fetch.
        self.caught_up: CaughtUpFollower | CaughtUpConsumer | None = None
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    def changes_response(self, data: PartitionData) -> bool:
        """True if an incremental response must carry `data` (P-74)."""
        return bool(
            (data.records is not None and len(data.records))
            or data.high_watermark != self.sent_high_watermark
            or data.log_start_offset != self.sent_log_start_offset
            or data.preferred_read_replica != -1
            or data.diverging_epoch.epoch != -1
            or data.error_code
        )

    def note_sent(self, data: PartitionData) -> None:
        """Stores the offsets of a response that is sent."""
        # An error is not stored: the first response without it sends the high watermark again.
        self.sent_high_watermark = -1 if data.error_code else data.high_watermark
        self.sent_log_start_offset = data.log_start_offset


class FetchSession:
    """One session: its partitions in the order in which they are served."""

    __slots__ = ("created_ms", "epoch", "id", "is_of_replica", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int, *, is_of_replica: bool) -> None:
        self.id = session_id
        self.is_of_replica = is_of_replica
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, FetchedPartition] = {}


class FetchContext(NamedTuple):
    """The plan for one Fetch request.

    Attributes:
        partitions: the partitions to read, in order; `note_answer` moves those with records to the end.
        session: the session of the request, None without one.
        is_incremental: True if the response may leave out unchanged partitions.
        error: an error for the whole request; then nothing is read.
    """

    partitions: dict[PartitionKey, FetchedPartition]
    session: FetchSession | None
    is_incremental: bool
    error: ErrorCode

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else 0

    def is_in_response(self, partition: FetchedPartition, data: PartitionData) -> bool:
        """True if the response carries the partition."""
        return not self.is_incremental or partition.changes_response(data)

    def is_overtaken(self, epoch: int) -> bool:
        """True if the session's next request came before this one, of `epoch`, was answered (P-73)."""
        return self.is_incremental and self.session is not None and self.session.epoch != next_session_epoch(epoch)

    def note_order(self, partitions: Iterable[FetchedPartition]) -> None:
        """Gives a new session the order of its first response, whose refused partitions are last (P-72)."""
        if self.session is not None and not self.is_incremental:
            self.session.partitions = {partition.key: partition for partition in partitions}

    def note_answer(self, partition: FetchedPartition, data: PartitionData) -> None:
        """Updates the session by a partition that is in the response. One that is not has nothing new to be noted."""
        if self.session is None:
            return
        partition.note_sent(data)
        has_records = data.records is not None and len(data.records) > 0
        # While this request waited, a request of another connection may have removed the partition.
        if self.is_incremental and has_records and self.partitions.pop(partition.key, None) is not None:
            # Partitions that returned data move to the end, so that a small response size starves none.
            self.partitions[partition.key] = partition


class FetchSessions:
    """A bounded cache of sessions.

    Args:
        slots: largest number of sessions (`max.incremental.fetch.session.cache.slots`).
        random: for session ids.
    """

    def __init__(self, slots: int, random: random.Random) -> None:
        self._slots = slots
        self._random = random
        # In order of last use: the first is the one to evict.
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions that the sessions name, all together."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def resolve(
        self,
        request: FetchRequest,
        partitions: dict[PartitionKey, FetchedPartition],
        uses_topic_ids: bool,
        now_ms: int,
        *,
        forgotten: Iterable[PartitionKey] = (),
        is_of_replica: bool = False,
    ) -> FetchContext:
        """Finds or makes the session of a request of a consumer or a replica, and merges the request into it.

        `partitions` has those that the request names (`requested_partitions`), `forgotten` those that it removes
        (`forgotten_partitions`).
        """
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id:
                self._sessions.pop(session_id, None)
            session = None
            if epoch == INITIAL_EPOCH:
                session = self._create(len(partitions), uses_topic_ids, now_ms, is_of_replica=is_of_replica)
                if session is not None:
                    session.partitions = partitions
            return FetchContext(partitions, session, False, ErrorCode.NONE)
        session = self._sessions.get(session_id)
        if session is None:
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return _refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return _refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if _merge(session, partitions, forgotten) and self.partition_count > PARTITIONS_MAX:
            # The client then requests a new session, and gets one only if others can be evicted.
            del self._sessions[session_id]
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            del self._sessions[session_id]
            return FetchContext({}, None, False, ErrorCode.NONE)
        session.epoch = next_session_epoch(epoch)
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return FetchContext(session.partitions, session, True, ErrorCode.NONE)

    def forget(self, session_id: int) -> None:
        """Ends a session whose first response was not sent."""
        self._sessions.pop(session_id, None)

    def _create(self, size: int, uses_topic_ids: bool, now_ms: int, *, is_of_replica: bool) -> FetchSession | None:
        """A new session, or None if the cache is full of sessions none of which may be evicted for it (P-75)."""
        while len(self._sessions) >= self._slots or self.partition_count + size > PARTITIONS_MAX:
            evicted = self._evictable(size, now_ms, is_of_replica=is_of_replica)
            if evicted is None:
                return None
            del self._sessions[evicted.id]
        session_id = 0
        while not session_id or session_id in self._sessions:
            session_id = self._random.randrange(1, 1 << 31)
        session = FetchSession(session_id, uses_topic_ids, now_ms, is_of_replica=is_of_replica)
        self._sessions[session_id] = session
        return session

    def _evictable(self, size: int, now_ms: int, *, is_of_replica: bool) -> FetchSession | None:
        """The session that gives way to a new one with `size` partitions; None if none does.

        It is one that is not used, else the smallest of those that are old enough. A replica also takes the place of
        any consumer, however new and large its session is.
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms > EVICTION_MS:
            return oldest
        candidates = [
            session
            for session in self._sessions.values()
            # The age of a session is looked at when it is used.
            if session.last_used_ms - session.created_ms > EVICTION_MS or (is_of_replica and not session.is_of_replica)
        ]
        least = min(candidates, key=_value, default=None)
        return None if least is None or _value(least) >= (is_of_replica, size) else least


def _value(session: FetchSession) -> tuple[bool, int]:
    """Order in which sessions give way: those of consumers first, and the smaller ones first."""
    return session.is_of_replica, len(session.partitions)


def _refused(error: ErrorCode) -> FetchContext:
    return FetchContext({}, None, False, error)


def _merge(
    session: FetchSession, partitions: dict[PartitionKey, FetchedPartition], forgotten: Iterable[PartitionKey]
) -> bool:
    """Adds, changes and removes partitions of a session as the request says; True if the session has grown."""
    before = len(session.partitions)
    for key, asked in partitions.items():
        known = session.partitions.get(key)
        if known is None:
            session.partitions[key] = asked
        else:
            known.fetch_offset = asked.fetch_offset
            known.size_max = asked.size_max
            known.current_leader_epoch = asked.current_leader_epoch
            known.last_fetched_epoch = asked.last_fetched_epoch
            known.log_start_offset = asked.log_start_offset
            known.caught_up = None
    for key in forgotten:
        session.partitions.pop(key, None)
    return len(session.partitions) > before


FEW = 64
"""Partitions up to which a request is resolved, and a response made, in one step."""


def is_large(request: FetchRequest) -> bool:
    """True if the partitions of a request should be found in steps."""
    if len(request.topics) > FEW:
        return True
    for topic in request.topics:  # noqa: SIM110  a generator would cost more for each small request
        if len(topic.partitions) > FEW:
            return True
    return False


def requested_partitions(request: FetchRequest) -> Steps[dict[PartitionKey, FetchedPartition]]:
    """The partitions in a request, in its order."""
    partitions: dict[PartitionKey, FetchedPartition] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            key = PartitionKey(topic.topic, topic.topic_id, asked.partition)
            partitions[key] = FetchedPartition(key, asked)
            if not len(partitions) % PIECE:
                yield
    return partitions


def forgotten_partitions(request: FetchRequest) -> Steps[list[PartitionKey]]:
    """The partitions that a request removes from its session."""
    return list_in_steps(
        PartitionKey(topic.topic, topic.topic_id, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    )
