"""The cache of fetch sessions (KIP-227, P-72 to P-75)."""

from __future__ import annotations

import random

import pytest

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from pykbroker.protocol.steps import PIECE, finished
from pykbroker.replication.fetch_sessions import (
    EVICTION_MS,
    FEW,
    FetchContext,
    FetchSessions,
    forgotten_partitions,
    is_large,
    requested_partitions,
)


def resolve(
    sessions: FetchSessions, request: FetchRequest, now_ms: int, *, is_of_replica: bool = False
) -> FetchContext:
    partitions = finished(requested_partitions(request))
    forgotten = finished(forgotten_partitions(request))
    return sessions.resolve(request, partitions, False, now_ms, forgotten=forgotten, is_of_replica=is_of_replica)


def opened(
    sessions: FetchSessions, now_ms: int, partition_count: int = 1, *, is_of_replica: bool = False
) -> FetchContext:
    partitions = [FetchPartition(partition=number) for number in range(partition_count)]
    request = FetchRequest(session_epoch=0, topics=[FetchTopic(topic="t", partitions=partitions)])
    return resolve(sessions, request, now_ms, is_of_replica=is_of_replica)


def continued(sessions: FetchSessions, context: FetchContext, epoch: int, now_ms: int) -> FetchContext:
    return resolve(sessions, FetchRequest(session_id=context.session_id, session_epoch=epoch), now_ms)


def test_a_full_cache_makes_no_session() -> None:
    """P-75: the answer has session id 0, and the client goes on without."""
    sessions = FetchSessions(2, random.Random(1))
    assert opened(sessions, 0).session_id
    assert opened(sessions, 0).session_id
    assert opened(sessions, 1000).session_id == 0
    assert len(sessions) == 2


def test_an_idle_session_gives_way() -> None:
    """P-75: after two minutes without use."""
    sessions = FetchSessions(2, random.Random(1))
    idle, used = opened(sessions, 0), opened(sessions, 0)
    continued(sessions, used, 1, EVICTION_MS)
    assert opened(sessions, EVICTION_MS + 1).session_id
    assert continued(sessions, idle, 1, EVICTION_MS + 1).error
    assert not continued(sessions, used, 2, EVICTION_MS + 1).error


def test_a_bigger_session_replaces_a_smaller_old_one() -> None:
    """P-75."""
    sessions = FetchSessions(1, random.Random(1))
    small = opened(sessions, 0)
    assert not continued(sessions, small, 1, EVICTION_MS).error
    assert opened(sessions, EVICTION_MS + 1, partition_count=2).session_id == 0, "it was young when it was used"
    assert not continued(sessions, small, 2, EVICTION_MS + 1).error
    assert opened(sessions, EVICTION_MS + 1, partition_count=1).session_id == 0
    assert opened(sessions, EVICTION_MS + 1, partition_count=2).session_id


def test_a_replica_takes_the_place_of_a_consumer() -> None:
    """P-75: of the smallest one, however new it is; sessions of replicas stay."""
    sessions = FetchSessions(3, random.Random(1))
    large = opened(sessions, 0, partition_count=9)
    small = opened(sessions, 0, partition_count=5)
    replica = opened(sessions, 0, is_of_replica=True)
    assert opened(sessions, 1, is_of_replica=True).session_id
    assert continued(sessions, small, 1, 1).error
    assert not continued(sessions, large, 1, 1).error
    assert opened(sessions, 1, is_of_replica=True).session_id
    assert continued(sessions, large, 2, 1).error
    assert opened(sessions, 1, partition_count=9, is_of_replica=True).session_id == 0
    assert not continued(sessions, replica, 1, 1).error


def test_a_large_consumer_does_not_take_the_place_of_a_small_replica() -> None:
    """P-75: unless nobody uses it any more."""
    sessions = FetchSessions(1, random.Random(1))
    replica = opened(sessions, 0, is_of_replica=True)
    assert not continued(sessions, replica, 1, EVICTION_MS + 1).error
    assert opened(sessions, EVICTION_MS + 1, partition_count=9).session_id == 0
    assert opened(sessions, EVICTION_MS + 1, partition_count=9, is_of_replica=True).session_id


def test_a_session_may_begin_with_nothing() -> None:
    """P-72: but it ends when a request leaves it with nothing."""
    sessions = FetchSessions(1, random.Random(1))
    context = resolve(sessions, FetchRequest(session_epoch=0), 0)
    assert context.session_id
    assert resolve(sessions, FetchRequest(session_id=context.session_id, session_epoch=1), 0).session_id == 0
    assert len(sessions) == 0


def test_any_negative_epoch_is_none() -> None:
    asked = FetchPartition(current_leader_epoch=-(2**31), last_fetched_epoch=-5)
    (partition,) = finished(
        requested_partitions(FetchRequest(topics=[FetchTopic(topic="a", partitions=[asked])]))
    ).values()
    assert (partition.current_leader_epoch, partition.last_fetched_epoch) == (-1, -1)


def test_no_slots_no_sessions() -> None:
    assert opened(FetchSessions(0, random.Random(1)), 0).session_id == 0


def test_epochs_wrap_to_1() -> None:
    """P-72."""
    sessions = FetchSessions(1, random.Random(1))
    context = opened(sessions, 0)
    assert context.session is not None
    context.session.epoch = 0x7FFFFFFF
    assert not continued(sessions, context, 0x7FFFFFFF, 0).error
    assert not continued(sessions, context, 1, 0).error


def test_all_sessions_together_name_only_so_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes later is served without a session, and one that grows beyond that loses its own."""
    monkeypatch.setattr("pykbroker.replication.fetch_sessions.PARTITIONS_MAX", 10)
    sessions = FetchSessions(1000, random.Random(1))
    first, second = opened(sessions, 0, partition_count=6), opened(sessions, 0, partition_count=3)
    assert first.session_id
    assert second.session_id
    assert opened(sessions, 0, partition_count=2).session_id == 0
    more = [FetchTopic(topic="u", partitions=[FetchPartition(partition=number) for number in range(2)])]
    growing = FetchRequest(session_id=second.session_id, session_epoch=1, topics=more)
    assert resolve(sessions, growing, 0).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partition_count) == (1, 6)
    assert not continued(sessions, first, 1, 0).error
    assert opened(sessions, EVICTION_MS + 1, partition_count=10).session_id
    assert sessions.partition_count == 10


def test_the_partitions_of_a_large_request_are_found_in_steps() -> None:
    few, many = (
        FetchRequest(
            topics=[
                FetchTopic(topic=name, partitions=[FetchPartition(partition=n) for n in range(FEW)]) for name in names
            ]
        )
        for names in ("ab", "".join(map(chr, range(200, 200 + FEW + 1))))
    )
    assert not is_large(few)
    assert is_large(many)
    many.topics[0].partitions.append(FetchPartition(partition=FEW))
    assert is_large(FetchRequest(topics=many.topics[:1]))
    assert sum(1 for _ in requested_partitions(few)) == 2 * FEW // PIECE


def test_thousands_of_forgotten_partitions_are_found_in_steps() -> None:
    sessions = FetchSessions(10, random.Random(1))
    context = opened(sessions, 0, 4 * PIECE)
    forgotten = ForgottenTopic(topic="t", partitions=list(range(3 * PIECE)))
    request = FetchRequest(session_id=context.session_id, session_epoch=1, forgotten_topics_data=[forgotten])
    assert sum(1 for _ in forgotten_partitions(request)) == 3
    assert [key.partition for key in resolve(sessions, request, 0).partitions] == list(range(3 * PIECE, 4 * PIECE))
