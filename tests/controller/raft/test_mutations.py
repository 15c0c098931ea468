"""Rules of Raft that are broken on purpose: the random runs must detect each."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.raft import election, leader
from pykbroker.controller.raft.log_view import LogView
from pykbroker.controller.raft.messages import VoteResponse
from pykbroker.controller.raft.quorum import VoterSet
from pykbroker.controller.raft.replica import RoleState
from pykbroker.controller.raft.voter_changes import VoterChanges
from tests.controller.raft.cluster import Member
from tests.controller.raft.test_random_runs import test_random_changes_of_voters as random_change
from tests.controller.raft.test_random_runs import test_random_runs as random_run

SEEDS = range(150)
VOTER_SEEDS = range(290, 700)
"""One in two hundred shows what becomes of two changes at once; 297 is the first of them as of now."""


def count_every_answer(nominee: Any, response: VoteResponse) -> None:
    nominee.granted.add(response.source)
    nominee.count()


def vote_whatever_the_epoch_has_seen(replica: Any, request: Any) -> bool:
    return replica.node_id != replica.leader_id and election.is_not_behind(request.log_end, replica.log.end)


def forget_the_log_on_a_crash(member: Member) -> None:
    member.core = None
    member.disk.log = member.disk.log[:-1]


def change_voters_whenever_asked(changes: Any, request: Any) -> None:
    changes.pending = None


MUTATIONS: dict[str, tuple[Any, str, Any]] = {
    "the high watermark is what one replica has": (leader, "offset_of_majority", max),
    "a vote for a log that is behind": (election, "is_not_behind", lambda candidate, own: True),
    "two votes in one epoch": (election, "may_grant", vote_whatever_the_epoch_has_seen),
    "a refusal counts as a vote": (election.Nominee, "on_vote_response", count_every_answer),
    "no divergence is ever found": (LogView, "divergence", lambda log, offset, epoch: None),
    "cutting less than was asked for": (LogView, "truncation_offset", lambda log, diverging: log.end_offset),
    "answering before persisting": (Member, "crash", forget_the_log_on_a_crash),
    "the next change of voters before the last is committed": (VoterChanges, "refusal", change_voters_whenever_asked),
    "a new leader tells what it knows of an earlier epoch": (leader.Leader, "high_watermark", RoleState.high_watermark),
    "half of the voters are a majority": (VoterSet, "majority", property(lambda voters: max(len(voters) // 2, 1))),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, attribute, replacement = MUTATIONS[name]
    monkeypatch.setattr(target, attribute, replacement)
    is_of_voters = "change of voters" in name
    for seed in VOTER_SEEDS if is_of_voters else SEEDS:
        try:
            (random_change if is_of_voters else random_run)(seed)
        except (AssertionError, IndexError, KeyError):
            return
    pytest.fail(f"random runs did not find: {name}")
