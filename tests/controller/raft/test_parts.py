"""The small parts: majorities, voter sets, the view of the log."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft.core import RaftCore
from pykbroker.controller.raft.log_view import Diverging, LogView, OffsetAndEpoch
from pykbroker.controller.raft.output import QuorumState
from pykbroker.controller.raft.quorum import ReplicaKey, VoterSet, offset_of_majority
from pykbroker.controller.raft.roles import NEVER_MS, NotLeader, RaftSettings, Role


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7))
def test_a_majority_has_the_offset_and_none_has_a_greater_one(ends: list[int]) -> None:
    offset = offset_of_majority(ends)
    assert sum(end >= offset for end in ends) > len(ends) / 2
    assert sum(end > offset for end in ends) <= len(ends) / 2


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majorities(count: int, majority: int) -> None:
    assert VoterSet(ReplicaKey(number) for number in range(count)).majority == majority


def test_a_voter_is_known_by_its_directory_where_one_is_given() -> None:
    """KIP-853: a node that comes back with an empty disk is another voter."""
    old, new = ReplicaKey(1, bytes([1]) * 16), ReplicaKey(1, bytes([2]) * 16)
    voters = VoterSet([old])
    assert old in voters
    assert new not in voters
    assert ReplicaKey(1) not in voters
    assert new in VoterSet([ReplicaKey(1)])
    assert ReplicaKey(2) not in voters


def view() -> LogView:
    """Epoch 1: 0 to 4, epoch 3: 5 to 6, epoch 4: 7 to 9."""
    return LogView([(1, 0), (3, 5), (4, 7)], 10)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ((10, 4), None),
        ((8, 4), None),
        ((0, 0), None),
        ((5, 1), None),
        ((7, 3), None),
        ((6, 1), Diverging(1, 5)),
        ((8, 3), Diverging(3, 7)),
        ((6, 2), Diverging(1, 5)),
        ((12, 4), Diverging(4, 10)),
        ((12, 5), Diverging(4, 10)),
    ],
)
def test_where_another_log_diverges(end: tuple[int, int], expected: Diverging | None) -> None:
    assert view().divergence(*end) == expected


def test_where_to_cut() -> None:
    assert view().truncation_offset(Diverging(3, 6)) == 6
    assert view().truncation_offset(Diverging(3, 9)) == 7
    assert view().truncation_offset(Diverging(2, 20)) == 5
    assert view().truncation_offset(Diverging(9, 20)) == 10


@pytest.mark.parametrize(
    ("end", "expected"),
    [((7, 3), False), ((8, 4), False), ((6, 3), True), ((7, 4), True), ((9, 1), True), ((0, 0), True)],
)
def test_who_needs_the_snapshot_first(end: tuple[int, int], expected: bool) -> None:
    log = view()
    log.start_after(OffsetAndEpoch(7, 3))
    assert log.is_before_start(OffsetAndEpoch(*end)) is expected
    assert log.end == OffsetAndEpoch(10, 4)


def test_dropping_the_beginning_keeps_the_epoch_that_goes_on() -> None:
    log = view()
    log.start_after(OffsetAndEpoch(6, 3))
    assert log.end_of_epoch(3) == OffsetAndEpoch(7, 3)
    log.start_after(OffsetAndEpoch(10, 4))
    assert log.end == OffsetAndEpoch(10, 4)
    log.append(5, 2)
    assert log.end_of_epoch(4) == OffsetAndEpoch(10, 4)
    assert log.end == OffsetAndEpoch(12, 5)


def core(voter_ids: list[int], state: QuorumState, log: LogView | None = None, node_id: int = 1) -> RaftCore:
    voters = VoterSet(ReplicaKey(voter_id) for voter_id in voter_ids)
    return RaftCore(ReplicaKey(node_id), voters, log or LogView(), state, RaftSettings(), random.Random(0))


@pytest.mark.parametrize(
    ("state", "role"),
    [
        (QuorumState(), Role.UNATTACHED),
        (QuorumState(3, 1), Role.RESIGNED),
        (QuorumState(3, 2), Role.FOLLOWER),
        (QuorumState(3, -1, ReplicaKey(2)), Role.UNATTACHED),
    ],
)
def test_the_role_after_a_restart(state: QuorumState, role: Role) -> None:
    node = core([1, 2, 3], state)
    node.tick(0)
    assert node.role is role


def test_a_lost_quorum_state_does_not_lead_back_to_an_old_epoch() -> None:
    node = core([1], QuorumState(), view())
    output = node.tick(0)
    assert output.quorum_state == QuorumState(5, 1)


def test_a_single_voter_never_needs_a_tick() -> None:
    node = core([1], QuorumState())
    node.tick(0)
    node.step(local.Persisted(1), 0)
    assert node.next_deadline_ms == NEVER_MS


def test_only_a_leader_takes_proposals() -> None:
    node = core([1, 2, 3], QuorumState(3, 2))
    node.tick(0)
    with pytest.raises(NotLeader) as caught:
        node.step(local.Propose(["x"], 1), 0)
    assert (caught.value.leader_id, caught.value.epoch) == (2, 3)


def test_what_could_not_be_written_was_never_there() -> None:
    node = core([1], QuorumState())
    node.tick(0)
    node.step(local.Persisted(1), 0)
    node.step(local.Propose(["x"], 1), 0)
    node.step(local.PersistFailed(), 0)
    assert node.log.end_offset == 1
    (entries,) = node.step(local.Propose(["y"], 1), 0).entries
    assert entries.base_offset == 1


def test_voters_that_could_not_be_written_do_not_count() -> None:
    """The leader of kraft.version 1 appends a voter set; the write fails, and the earlier set counts again."""
    first, second = VoterSet([ReplicaKey(1)]), VoterSet([ReplicaKey(1), ReplicaKey(2)])
    assert hash(first) == hash(VoterSet([ReplicaKey(1)]))
    assert len({first, second, VoterSet([ReplicaKey(1)])}) == 2
