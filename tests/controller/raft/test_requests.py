"""Answers of one replica to the requests of others, and its retries: the rules of KafkaRaftClient, one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft import messages as raft
from pykbroker.controller.raft.core import RaftCore
from pykbroker.controller.raft.log_view import LogView, OffsetAndEpoch
from pykbroker.controller.raft.output import Output, QuorumState
from pykbroker.controller.raft.quorum import ReplicaKey, VoterSet
from pykbroker.controller.raft.roles import RaftSettings, Role
from pykbroker.protocol.error_codes import ErrorCode

SETTINGS = RaftSettings(lost_leader_ms=0)
BEGINNING = OffsetAndEpoch(0, 0)


def key(node_id: int, directory: int | None = None) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id if directory is None else directory]) * 16)


class Replica:
    """Node 1 of three voters. Its writes are durable at once; `sent` has the messages since the last look at it."""

    def __init__(self, state: QuorumState | None = None, settings: RaftSettings = SETTINGS, voters: int = 3) -> None:
        self.sent: list[tuple[int, Any]] = []
        self.output = Output()
        self.now_ms = 0
        self.core = RaftCore(
            key(1),
            VoterSet(key(number) for number in range(1, voters + 1)),
            LogView(),
            state or QuorumState(),
            settings,
            random.Random(1),
        )
        self.take(self.core.tick(0))

    def take(self, output: Output) -> None:
        self.output = output
        self.sent += [(envelope.destination, envelope.message) for envelope in output.send]
        if output.entries:
            self.take(self.core.step(local.Persisted(self.core.log.end_offset), self.now_ms))

    def step(self, message: Any) -> list[Any]:
        """Take a message in; returns the messages that are sent because of it."""
        self.sent.clear()
        self.take(self.core.step(message, self.now_ms))
        return [sent for _, sent in self.sent]

    def step_local(self, message: local.LocalMessage) -> None:
        """A message of this node. What is sent is added to `sent`."""
        self.take(self.core.step(message, self.now_ms))

    def wait(self, duration_ms: int) -> list[tuple[int, Any]]:
        """Lets time pass; returns (destination, message) for each message that is sent meanwhile."""
        self.sent.clear()
        end_ms = self.now_ms + duration_ms
        while self.core.next_deadline_ms <= end_ms:
            self.now_ms = self.core.next_deadline_ms
            self.take(self.core.tick(self.now_ms))
            assert self.core.next_deadline_ms > self.now_ms
        self.now_ms = end_ms
        return list(self.sent)

    def fetch(self, node_id: int, **changes: Any) -> list[Any]:
        """A Fetch of another node at the end of this log."""
        replica = changes.pop("replica", None) or key(node_id)
        asked = raft.FetchRequest(node_id, self.core.epoch, replica, self.core.log.end, -1)
        return self.step(asked._replace(**changes))


def leader() -> Replica:
    """Node 1 leads epoch 1 by the vote of node 2, and both know the high watermark."""
    replica = Replica()
    replica.wait(2000)
    replica.step(raft.VoteResponse(2, 0, -1, True, True))
    replica.step(raft.VoteResponse(2, 1, -1, True, False))
    assert replica.core.role is Role.LEADER
    replica.fetch(2)
    assert replica.core.high_watermark == 1
    return replica


def follower(settings: RaftSettings = SETTINGS) -> Replica:
    """Node 1 follows node 2 in epoch 3."""
    return Replica(QuorumState(3, 2), settings)


def vote(voter: ReplicaKey, *, epoch: int = 1, is_pre_vote: bool = False) -> raft.VoteRequest:
    return raft.VoteRequest(2, epoch, key(2), voter, BEGINNING, is_pre_vote)


# Requests for other nodes, and late ones


@pytest.mark.parametrize("voter", [key(4), key(1, directory=9)], ids=["another node", "another directory"])
def test_a_request_for_another_voter_is_answered_so(voter: ReplicaKey) -> None:
    """INVALID_VOTER_KEY of KIP-853. The epoch and leader in the request are adopted nevertheless."""
    replica = Replica()
    for is_pre_vote in (True, False):
        assert replica.step(vote(voter, is_pre_vote=is_pre_vote)) == [
            raft.VoteResponse(1, 1, -1, False, is_pre_vote, ErrorCode.INVALID_VOTER_KEY)
        ]
    assert replica.core.epoch == 1
    assert replica.core.voted is None
    answers = replica.step(raft.BeginQuorumEpochRequest(3, 2, voter))
    assert raft.BeginQuorumEpochResponse(1, 2, 3, ErrorCode.INVALID_VOTER_KEY) in answers
    assert replica.core.leader_id == 3


def test_a_voter_that_is_named_without_its_directory_is_this_one() -> None:
    assert Replica().step(vote(ReplicaKey(1)))[0].is_granted


def test_an_epoch_that_is_over_is_fenced() -> None:
    replica = follower()
    fenced = ErrorCode.FENCED_LEADER_EPOCH
    assert replica.step(vote(key(4), epoch=2)) == [raft.VoteResponse(1, 3, 2, False, False, fenced)]
    assert replica.step(raft.BeginQuorumEpochRequest(3, 2, key(4))) == [raft.BeginQuorumEpochResponse(1, 3, 2, fenced)]
    assert replica.step(raft.EndQuorumEpochRequest(3, 2, ())) == [raft.EndQuorumEpochResponse(1, 3, 2, fenced)]
    assert replica.core.role is Role.FOLLOWER


def test_a_fetch_in_a_later_epoch_does_not_unseat_a_leader() -> None:
    replica = leader()
    assert replica.fetch(2, epoch=1 << 30) == [
        raft.FetchResponse(1, 1, 1, log_start=0, error=ErrorCode.UNKNOWN_LEADER_EPOCH)
    ]
    assert replica.core.role is Role.LEADER


def test_a_fetch_of_a_node_with_the_leaders_id_is_refused() -> None:
    (answer,) = leader().fetch(1)
    assert answer.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_who_does_not_lead_says_so() -> None:
    (answer,) = follower().fetch(3)
    assert answer == raft.FetchResponse(1, 3, 2, log_start=0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_reader_that_is_no_replica_is_no_observer() -> None:
    replica = leader()
    replica.fetch(-1, replica=ReplicaKey(-1))
    replica.fetch(7)
    assert [each.key.node_id for each in replica.core.describe(0).observers] == [7]


def test_a_fetch_waits_as_long_as_it_wants_to() -> None:
    replica = leader()
    (answer,) = replica.fetch(2, high_watermark=1, max_wait_ms=0, max_bytes=77)
    assert (answer.offset, answer.max_bytes, answer.high_watermark) == (1, 77, 1)
    assert replica.fetch(2, high_watermark=1, max_wait_ms=100) == []
    assert [destination for destination, _ in replica.wait(99)] == []
    assert [destination for destination, _ in replica.wait(1)] == [2]


def test_a_new_leader_knows_no_high_watermark_before_its_first_commit() -> None:
    """LeaderState: one from before may be below a follower's, whose raft thread would end in Kafka."""
    replica = follower()
    first = raft.Entries(0, 3, 1, "first")
    replica.step(raft.FetchResponse(2, 3, 2, 1, 0, entries=[first]))
    replica.step(raft.FetchResponse(2, 3, 2, 1, 1))
    assert (replica.core.log.end_offset, replica.core.high_watermark) == (1, 1)
    replica.step(raft.EndQuorumEpochRequest(2, 3, (key(1),)))
    replica.step(raft.VoteResponse(3, 3, -1, True, True))
    replica.step(raft.VoteResponse(3, 4, -1, True, False))
    assert (replica.core.role, replica.core.epoch) == (Role.LEADER, 4)
    behind = OffsetAndEpoch(1, 3)
    (answer,) = replica.fetch(3, log_end=behind, high_watermark=1)
    assert (answer.offset, answer.high_watermark) == (1, -1)
    # A follower at the log end waits. It proves no commit while it has only records of earlier epochs.
    assert replica.fetch(9, high_watermark=0) == []
    assert replica.core.describe(0).high_watermark == -1
    committed = replica.fetch(3, high_watermark=1)
    assert {sent.high_watermark for sent in committed} == {2}
    assert replica.core.describe(0).high_watermark == 2


# Votes


def test_who_has_not_answered_is_asked_again() -> None:
    replica = Replica()
    replica.wait(replica.core.deadline_ms)
    assert replica.core.role is Role.PROSPECTIVE
    replica.step(raft.VoteResponse(2, 0, -1, False, True))
    replica.core.step(local.Unreachable(3, False), replica.now_ms)
    assert [destination for destination, _ in replica.wait(SETTINGS.retry_backoff_ms)] == [3]
    assert replica.wait(SETTINGS.retry_backoff_ms) == []


def test_an_error_is_no_refusal_to_vote() -> None:
    replica = Replica()
    replica.wait(replica.core.deadline_ms)
    for node_id in (2, 3):
        replica.step(raft.VoteResponse(node_id, 0, -1, False, True, ErrorCode.INVALID_VOTER_KEY))
    assert replica.core.role is Role.PROSPECTIVE
    for node_id in (2, 3):
        replica.step(raft.VoteResponse(node_id, 0, -1, False, True))
    assert replica.core.role is Role.UNATTACHED


def test_voters_that_do_not_know_pre_votes_are_asked_for_real_ones() -> None:
    """As in KafkaRaftClient: the other nodes run Kafka 3."""
    replica = Replica()
    replica.wait(replica.core.deadline_ms)
    sent = replica.step(raft.VoteResponse(2, -1, -1, False, True, ErrorCode.UNSUPPORTED_VERSION))
    assert replica.core.role is Role.CANDIDATE
    assert [(message.epoch, message.is_pre_vote) for message in sent] == [(1, False), (1, False)]


def test_a_node_that_is_behind_knows_of_no_leader_either() -> None:
    """Otherwise a voter that has voted for a dead candidate would wait for its whole election timeout."""
    replica = Replica(QuorumState(5, -1, key(2)), SETTINGS._replace(lost_leader_ms=100))
    assert replica.core.deadline_ms > 1000
    replica.step(raft.FetchResponse(3, 4, 3, error=ErrorCode.UNKNOWN_LEADER_EPOCH))
    assert replica.core.epoch == 5
    assert replica.core.deadline_ms <= 100


# The end of an epoch


def ends(sent: list[tuple[int, Any]]) -> list[int]:
    return [destination for destination, message in sent if isinstance(message, raft.EndQuorumEpochRequest)]


def test_a_leader_that_resigned_says_so_until_it_is_heard() -> None:
    replica = leader()
    replica.core.settings = SETTINGS._replace(retry_ms=100, election_timeout_ms=1000)
    replica.sent.clear()
    replica.step_local(local.Resign())
    assert ends(replica.sent) == [2, 3]
    replica.step(raft.EndQuorumEpochResponse(2, 1, -1, ErrorCode.BROKER_NOT_AVAILABLE))
    assert ends(replica.wait(100)) == [2, 3]
    replica.step(raft.EndQuorumEpochResponse(2, 1, 1))
    assert ends(replica.wait(100)) == [3]
    replica.core.step(local.Unreachable(3, False), replica.now_ms)
    assert ends(replica.wait(SETTINGS.retry_backoff_ms)) == [3]
    assert len(ends(replica.wait(replica.core.deadline_ms - replica.now_ms - 1))) > 7
    replica.wait(1)
    assert replica.core.role is Role.PROSPECTIVE
    assert ends(replica.wait(3000)) == []


def test_a_leader_that_resigned_is_silent_once_another_leads() -> None:
    replica = leader()
    replica.step_local(local.Resign())
    replica.step(raft.BeginQuorumEpochRequest(3, 2, key(1)))
    assert ends(replica.wait(1500)) == []


def test_a_leader_that_restarts_tells_that_its_epoch_is_over() -> None:
    replica = Replica(QuorumState(3, 1))
    assert replica.sent == [(2, raft.EndQuorumEpochRequest(1, 3, ())), (3, raft.EndQuorumEpochRequest(1, 3, ()))]


def test_who_waits_at_a_leader_that_resigns_is_told() -> None:
    replica = leader()
    replica.fetch(2, high_watermark=1)
    replica.fetch(9, high_watermark=1)
    replica.sent.clear()
    replica.step_local(local.Resign())
    refused = {node_id: message for node_id, message in replica.sent if isinstance(message, raft.FetchResponse)}
    assert set(refused) == {2, 9}
    assert refused[9] == raft.FetchResponse(1, 1, -1, log_start=0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_the_first_successor_stands_at_once_and_only_once() -> None:
    replica = follower()
    end = raft.EndQuorumEpochRequest(2, 3, (key(1), key(3)))
    sent = replica.step(end)
    assert raft.EndQuorumEpochResponse(1, 3, -1) in sent
    assert sum(isinstance(message, raft.VoteRequest) for message in sent) == 2
    deadline_ms = replica.core.deadline_ms
    replica.now_ms = 1
    assert replica.step(end) == [raft.EndQuorumEpochResponse(1, 3, -1)]
    assert replica.core.deadline_ms == deadline_ms


@pytest.mark.parametrize(
    ("successors", "pause_ms"),
    [
        ([2, 1], 400),
        ([2, 1, 3], 200),
        ([2, 3, 1], 400),
        ([4, 3, 2, 1], 400),
        ([2, 4, 1, 3], 200),
        ([2, 3], 800),
    ],
)
def test_later_successors_wait_as_in_kafka(successors: list[int], pause_ms: int) -> None:
    """Half of `controller.quorum.election.backoff.max.ms` for the last, half as long for each before it, none for the
    first; the whole of it for whom the leader did not name."""
    replica = follower(SETTINGS._replace(election_backoff_max_ms=800))
    replica.step(raft.EndQuorumEpochRequest(2, 3, tuple(map(key, successors))))
    assert replica.core.role is Role.UNATTACHED
    assert replica.core.deadline_ms == pause_ms


def test_a_leader_does_not_believe_that_it_resigned() -> None:
    replica = leader()
    assert replica.step(raft.EndQuorumEpochRequest(1, 1, ())) == [raft.EndQuorumEpochResponse(1, 1, 1)]
    assert replica.core.role is Role.LEADER


# Long snapshots


def test_a_voter_that_takes_a_snapshot_over_counts_for_the_majority() -> None:
    replica = leader()
    for _ in range(10):
        replica.wait(2000)
        replica.step_local(local.SnapshotServed(key(3)))
        assert replica.core.role is Role.LEADER
    for stranger in (key(7), key(3, directory=8)):
        replica.take(replica.core.step(local.SnapshotServed(stranger), replica.now_ms + 2000))
    replica.wait(3000)
    assert replica.core.role is Role.RESIGNED


def snapshot_wanted(replica: Replica) -> None:
    replica.step(raft.FetchResponse(2, 3, 2, 9, 0, snapshot=OffsetAndEpoch(9, 3)))
    assert replica.output.fetch_snapshot == (2, OffsetAndEpoch(9, 3))


def test_a_follower_stays_while_pieces_of_a_snapshot_come() -> None:
    replica = follower()
    snapshot_wanted(replica)
    for _ in range(10):
        assert replica.wait(1900) == []
        replica.step_local(local.SnapshotBytesFetched(2))
    assert replica.core.role is Role.FOLLOWER
    replica.wait(2000)
    assert replica.core.role is Role.PROSPECTIVE


@pytest.mark.parametrize(("is_local", "pause_ms"), [(False, SETTINGS.retry_backoff_ms), (True, SETTINGS.retry_ms)])
def test_a_follower_that_does_not_get_the_snapshot_fetches(is_local: bool, pause_ms: int) -> None:
    replica = follower()
    snapshot_wanted(replica)
    replica.step_local(local.SnapshotFailed(2, is_local))
    assert replica.wait(pause_ms - 1) == []
    ((destination, message),) = replica.wait(1)
    assert destination == 2
    assert isinstance(message, raft.FetchRequest)
