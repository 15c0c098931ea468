"""Share sessions: the partitions that each member of a share group fetches here; a request names only changes. Pure.

Members count up the epoch of their session with every ShareFetch and ShareAcknowledge. A session ends with the final
epoch, or with the connection on which it began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykbroker.errors import KafkaError
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.replication.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, next_session_epoch


class TopicIdPartition(NamedTuple):
    """A partition as share sessions name it."""

    topic_id: bytes
    partition: int


class SessionKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


class ShareSession:
    """One session.

    Attributes:
        epoch: the epoch that the next request must have.
        partitions: the partitions in order; True if the next response must name one even without records, because it
            was added, or its last response was an error.
        topics: the name that the topic of each partition had when it was added, None if no topic had its id.
        connection: the connection on which it began.
    """

    __slots__ = ("connection", "epoch", "key", "partitions", "topics")

    def __init__(self, key: SessionKey, named: Mapping[TopicIdPartition, str | None], connection: object) -> None:
        self.key = key
        self.epoch = INITIAL_EPOCH + 1
        self.partitions = dict.fromkeys(named, False)
        self.topics = dict(named)
        self.connection = connection

    def update(self, named: Mapping[TopicIdPartition, str | None], forgotten: Iterable[TopicIdPartition]) -> None:
        """Adds partitions and removes others."""
        for partition, topic in named.items():
            if partition not in self.partitions:
                self.partitions[partition] = True
                self.topics[partition] = topic
        for partition in forgotten:
            if self.partitions.pop(partition, None) is not None:
                del self.topics[partition]

    def count_up(self) -> None:
        """Advances to the epoch of the next request."""
        self.epoch = next_session_epoch(self.epoch)

    def must_respond(self, partition: TopicIdPartition, *, has_records: bool, is_error: bool) -> bool:
        """True if a response must name a partition; one with records goes to the end of the order."""
        must = self.partitions.get(partition)
        if must is None:
            return has_records or is_error
        if has_records:
            del self.partitions[partition]
        self.partitions[partition] = is_error
        return has_records or must or is_error


class _Connected:
    """The last session that began on a connection.

    Attributes:
        key: the member.
        is_stale: True once a session that began on the connection has ended; its close then ends no session.
    """

    __slots__ = ("is_stale", "key")

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self.is_stale = False


class ShareFetchContext(NamedTuple):
    """The partitions of a ShareFetch request, and its session.

    Attributes:
        topics: the partitions to fetch, none with the final epoch, with the names of their topics.
        session: of a request in a session; None for the first and the last one, whose responses name every partition.
        epoch: the epoch after this request, if there is a session.
    """

    topics: Mapping[TopicIdPartition, str | None]
    session: ShareSession | None = None
    epoch: int = INITIAL_EPOCH


class ShareSessions:
    """All share sessions of this broker.

    Args:
        size_max: `group.share.max.share.sessions`.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._group_sizes: dict[str, int] = {}
        self._by_connection: dict[object, _Connected] = {}

    def get(self, key: SessionKey) -> ShareSession | None:
        """The session of a member, if it has one."""
        return self._sessions.get(key)

    def has_group(self, group_id: str) -> bool:
        """True if a member of a group has a session."""
        return self._group_sizes.get(group_id, 0) > 0

    def resolve(
        self,
        key: SessionKey,
        epoch: int,
        named: Mapping[TopicIdPartition, str | None],
        forgotten: Iterable[TopicIdPartition],
        connection: object,
        *,
        acknowledges: bool,
    ) -> ShareFetchContext:
        """Finds or begins the session of a ShareFetch request.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED;
                INVALID_REQUEST: a first request that acknowledges records.
        """
        if epoch == FINAL_EPOCH:
            self._find_session(key)
            return ShareFetchContext({})
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the first request of a share session acknowledges records")
            self.remove(key)
            if len(self._sessions) >= self._size_max:
                raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"there are {self._size_max} share sessions")
            session = ShareSession(key, named, connection)
            self._sessions[key] = session
            self._by_connection[connection] = _Connected(key)
            self._group_sizes[key.group_id] = self._group_sizes.get(key.group_id, 0) + 1
            return ShareFetchContext(named)
        session = self._find_session(key)
        if session.epoch != epoch:
            raise _epoch_error(session, epoch)
        session.update(named, forgotten)
        session.count_up()
        topics = {partition: session.topics[partition] for partition in session.partitions}
        return ShareFetchContext(topics, session, session.epoch)

    def acknowledge(self, key: SessionKey, epoch: int) -> None:
        """Counts a ShareAcknowledge request.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "no share session begins with ShareAcknowledge")
        session = self._find_session(key)
        if epoch == FINAL_EPOCH:
            return
        if session.epoch != epoch:
            raise _epoch_error(session, epoch)
        session.count_up()

    def _find_session(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND, f"member {key.member_id} has no share session here")
        return session

    def remove(self, key: SessionKey) -> ShareSession | None:
        """Ends the session of a member, and returns it; None if there was none."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._group_sizes[key.group_id] -= 1
            connected = self._by_connection.get(session.connection)
            if connected is not None:
                # As in Kafka, even if this is not the last session that began on the connection: that one then outlives
                # the connection.
                connected.is_stale = True
        return session

    def connection_closed(self, connection: object) -> tuple[ShareSession | None, str | None]:
        """Ends the session that has to end with a connection (P-362).

        Returns:
            The session, if there is one, and the group of the last session that began on the connection if that group
            has no session left.
        """
        connected = self._by_connection.pop(connection, None)
        if connected is None:
            return None, None
        ended = None if connected.is_stale else self.remove(connected.key)
        group_id = connected.key.group_id
        if self._group_sizes.get(group_id, 0) == 0:
            self._group_sizes.pop(group_id, None)
            return ended, group_id
        return ended, None

    def clear(self) -> None:
        """Removes all sessions, as share groups were disabled."""
        self._sessions.clear()
        self._group_sizes.clear()


def _epoch_error(session: ShareSession, epoch: int) -> KafkaError:
    message = f"the epoch of the share session is {session.epoch}, not {epoch}"
    return KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, message)
