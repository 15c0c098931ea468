"""Changes of voters that fail for reasons that seldom arise in a whole cluster."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykbroker.controller.raft import leader as raft_leader
from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft.core import RaftCore
from pykbroker.controller.raft.local_messages import ChangeAnswer, Reason
from pykbroker.controller.raft.log_view import LogView
from pykbroker.controller.raft.output import Output, QuorumState
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pykbroker.controller.raft.roles import RaftSettings
from pykbroker.protocol.error_codes import ErrorCode


def voter(node_id: int, versions: tuple[int, int] = (0, 1), *, directory: int | None = None) -> Voter:
    key = ReplicaKey(node_id, bytes([node_id if directory is None else directory]) * 16)
    return Voter(key, (VoterEndpoint("CONTROLLER", "h", 9093),), versions)


class Leader:
    """Node 1, the only voter, which leads; its writes are durable at once unless a test says otherwise."""

    def __init__(self, level: int = 1, *, of_settings: VoterSet | None = None) -> None:
        self.answers: list[ChangeAnswer] = []
        self.core = RaftCore(
            voter(1).key,
            of_settings or VoterSet([voter(1)]),
            LogView(),
            QuorumState(),
            RaftSettings(),
            random.Random(1),
            itself=voter(1),
        )
        self.take(self.core.tick(0))
        if level:
            self.step(local.UpgradeKRaftVersion("level", level))
            assert self.answers.pop().error is ErrorCode.NONE
        assert self.core.kraft_version == level

    def take(self, output: Output) -> None:
        self.answers += output.answers
        if output.entries:
            self.step(local.Persisted(self.core.log.end_offset))

    def step(self, message: Any) -> None:
        self.take(self.core.step(message, 0))

    def answer(self) -> ChangeAnswer:
        (answer,) = self.answers
        self.answers.clear()
        return answer


def test_a_node_that_does_not_know_the_level_does_not_become_a_voter() -> None:
    """KIP-853: it could not read the voters' records."""
    leader = Leader()
    leader.step(local.AddVoter("add", voter(2)))
    leader.step(local.VersionsReceived(3, (0, 1)))
    assert leader.answers == [], "that was another node"
    leader.step(local.VersionsReceived(2, (0, 0)))
    answer = leader.answer()
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert answer.failure is not None
    assert (answer.failure.reason, answer.failure.versions) == (Reason.VERSION_UNSUPPORTED, (0, 0))


@pytest.mark.parametrize(
    ("described", "received", "error"),
    [
        # It does not answer.
        (voter(1), local.VersionsReceived(1, None, ErrorCode.NETWORK_EXCEPTION), ErrorCode.REQUEST_TIMED_OUT),
        # It supports other versions than its request says, or not the finalized level.
        (voter(1), local.VersionsReceived(1, (0, 5)), ErrorCode.INVALID_REQUEST),
        (voter(1, (0, 0)), local.VersionsReceived(1, (0, 0)), ErrorCode.INVALID_REQUEST),
        # Its directory is not that of the voter.
        (voter(1, directory=9), local.VersionsReceived(1, (0, 1)), ErrorCode.VOTER_NOT_FOUND),
        (voter(1), local.VersionsReceived(1, (0, 1)), ErrorCode.NONE),
    ],
)
def test_an_update_of_a_voter(described: Voter, received: local.VersionsReceived, error: ErrorCode) -> None:
    leader = Leader()
    leader.step(local.UpdateVoter("update", described))
    leader.step(received)
    answer = leader.answer()
    assert (answer.error, answer.failure) == (error, None), "as in Kafka without a text"


def test_a_voter_set_without_a_directory_id_is_not_written() -> None:
    """kraft.version 1 knows voters by their directories; one of the settings has not said which it has."""
    of_settings = VoterSet([voter(1)._replace(key=ReplicaKey(1))])
    leader = Leader(0, of_settings=of_settings)
    assert isinstance(leader.core.state, raft_leader.Leader)
    leader.core.state.changes.described = VoterSet([voter(1)._replace(key=ReplicaKey(1))])
    leader.step(local.UpgradeKRaftVersion("level", 1))
    answer = leader.answer()
    assert answer.error is ErrorCode.INVALID_UPDATE_VERSION
    assert answer.failure is not None
    assert answer.failure.reason is Reason.DIRECTORY_UNKNOWN
    assert leader.core.kraft_version == 0


def test_a_change_whose_record_could_not_be_written_has_failed() -> None:
    """The earlier set of voters is in force again."""
    leader = Leader()
    take, leader.take = leader.take, lambda output: leader.answers.extend(output.answers)  # type: ignore[method-assign]
    leader.step(local.UpdateVoter("update", voter(1)._replace(endpoints=(VoterEndpoint("CONTROLLER", "other", 1),))))
    leader.step(local.VersionsReceived(1, (0, 1)))
    assert leader.answer().error is ErrorCode.NONE, "answered before the commit"
    leader.step(local.PersistFailed())
    assert leader.core.voters == VoterSet([voter(1)])
    leader.take = take  # type: ignore[method-assign]
    leader.step(local.UpdateVoter("again", voter(1)))
    leader.step(local.VersionsReceived(1, (0, 1)))
    assert leader.answer().error is ErrorCode.NONE
