"""Share sessions and the connections on which they began."""

from __future__ import annotations

from pykbroker.replication.fetch_sessions import INITIAL_EPOCH
from pykbroker.share_partitions.sessions import SessionKey, ShareSessions, TopicIdPartition

NAMED = {TopicIdPartition(b"t" * 16, 0): "clicks"}
FIRST, SECOND = SessionKey("g", "first"), SessionKey("g", "second")


def begin(sessions: ShareSessions, key: SessionKey, connection: str) -> None:
    sessions.resolve(key, INITIAL_EPOCH, NAMED, (), connection, acknowledges=False)


def test_p362_a_connection_ends_the_last_session_that_began_on_it() -> None:
    """P-362."""
    sessions = ShareSessions(10)
    begin(sessions, FIRST, "connection")
    begin(sessions, SECOND, "connection")
    ended, empty_group = sessions.connection_closed("connection")
    assert (ended and ended.key, empty_group) == (SECOND, None)
    assert sessions.get(FIRST) is not None
    assert sessions.connection_closed("connection") == (None, None)


def test_p362_a_session_outlives_a_connection_on_which_another_has_ended() -> None:
    """P-362."""
    sessions = ShareSessions(10)
    begin(sessions, FIRST, "connection")
    begin(sessions, SECOND, "connection")
    sessions.remove(FIRST)
    assert sessions.connection_closed("connection") == (None, None)
    assert sessions.get(SECOND) is not None


def test_p362_a_session_that_begins_again_ends_with_its_connection() -> None:
    """P-362."""
    sessions = ShareSessions(10)
    begin(sessions, FIRST, "connection")
    begin(sessions, FIRST, "connection")
    ended, empty_group = sessions.connection_closed("connection")
    assert (ended and ended.key, empty_group) == (FIRST, "g")


def test_p362_a_session_that_has_moved_to_another_connection() -> None:
    """P-362."""
    sessions = ShareSessions(10)
    begin(sessions, FIRST, "old")
    begin(sessions, FIRST, "new")
    assert sessions.connection_closed("old") == (None, None)
    ended, empty_group = sessions.connection_closed("new")
    assert (ended and ended.key, empty_group) == (FIRST, "g")


def test_a_group_without_sessions_is_told_when_a_connection_closes() -> None:
    sessions = ShareSessions(10)
    begin(sessions, FIRST, "connection")
    sessions.remove(FIRST)
    assert sessions.connection_closed("connection") == (None, "g")


def test_a_session_is_changed_by_its_next_request() -> None:
    """P-185: a response then names what was added, and of what was forgotten only records and errors."""
    other = TopicIdPartition(b"u" * 16, 3)
    sessions = ShareSessions(10)
    begin(sessions, FIRST, "connection")
    (clicks,) = NAMED
    changed = sessions.resolve(FIRST, 1, {other: "views"}, [clicks], "connection", acknowledges=False).session
    assert changed is not None
    assert (list(changed.partitions), changed.topics) == ([other], {other: "views"})
    assert changed.must_respond(other, has_records=False, is_error=False)
    assert not changed.must_respond(clicks, has_records=False, is_error=False)
    assert changed.must_respond(clicks, has_records=True, is_error=False)
    assert changed.must_respond(clicks, has_records=False, is_error=True)


def test_sessions_end_with_the_feature() -> None:
    """The next request of each begins anew, and finds room."""
    sessions = ShareSessions(1)
    begin(sessions, FIRST, "connection")
    sessions.clear()
    assert sessions.get(FIRST) is None
    begin(sessions, SECOND, "connection")
    assert sessions.get(SECOND) is not None
