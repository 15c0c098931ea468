"""Error texts of changes of the voters: those of Kafka's AddVoterHandler, RemoveVoterHandler and of kraft.version."""

from __future__ import annotations

import pytest

from pykbroker.controller.raft.local_messages import ChangeAnswer, ChangeFailure, Reason
from pykbroker.controller.raft.quorum import ReplicaKey, VoterSet
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.requests.voter_change_errors import error_of_change, text_of_upgrade

ONE = ReplicaKey(1, bytes(15) + b"\1")
SHOWN = "ReplicaKey(id=1, directoryId=AAAAAAAAAAAAAAAAAAAAAQ)"
VOTERS = VoterSet([ONE, ReplicaKey(2)])
SHOWN_VOTERS = f"[{SHOWN}, ReplicaKey(id=2, directoryId=<undefined>)]"
ABORTED = f"Aborted add voter operation for {SHOWN} since"

TEXTS = {
    Reason.CHANGE_PENDING: "Request timed out waiting for leader to handle previous voter change request",
    Reason.NOTHING_COMMITTED: "Request timed out waiting for leader to establish HWM and fence previous voter changes",
    Reason.VOTERS_UNCOMMITTED: "Request timed out waiting for voters to commit the latest voter change at 7 with HWM 5",
    Reason.STATIC_QUORUM: "Cluster doesn't support adding voter because the kraft.version feature is 0",
    Reason.DUPLICATE_VOTER: f"The voter id for {SHOWN} is already part of the set of voters {SHOWN_VOTERS}.",
    Reason.NOT_A_VOTER: f"Cannot remove voter {SHOWN} from the set of voters {SHOWN_VOTERS}",
    Reason.NO_VERSIONS: f"{ABORTED} API_VERSIONS returned an error BROKER_NOT_AVAILABLE",
    Reason.VERSION_UNSUPPORTED: (
        f"{ABORTED} the kraft.version range (min: 0, max: 0) doesn't support the finalized version 1"
    ),
    Reason.LAGGING: f"{ABORTED} it is lagging behind",
}
UPGRADES = {
    Reason.DOWNGRADE: ("Invalid upgrade of kraft.version from version 1 to 0 because the new version is a downgrade"),
    Reason.VOTERS_TOO_OLD: ("Invalid upgrade of kraft.version to 0 because not all of the voters support it"),
    Reason.DIRECTORY_UNKNOWN: f"Directory id must be known for all of the voters: {SHOWN_VOTERS}",
}


def failure(reason: Reason) -> ChangeFailure:
    return ChangeFailure(reason, VOTERS, 7, 5, 1, (0, 0), ErrorCode.BROKER_NOT_AVAILABLE)


@pytest.mark.parametrize("reason", TEXTS)
def test_texts_of_changes(reason: Reason) -> None:
    answer = ChangeAnswer(1, ErrorCode.REQUEST_TIMED_OUT, failure(reason))
    assert error_of_change(answer, ONE, "adding") == (ErrorCode.REQUEST_TIMED_OUT, TEXTS[reason])


@pytest.mark.parametrize("reason", UPGRADES)
def test_texts_of_upgrades(reason: Reason) -> None:
    assert text_of_upgrade(failure(reason), 0) == UPGRADES[reason]


def test_every_reason_has_a_text() -> None:
    assert TEXTS.keys() | UPGRADES.keys() == set(Reason)


def test_errors_without_details() -> None:
    for error, text in (
        (ErrorCode.NONE, None),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, None),
        (ErrorCode.REQUEST_TIMED_OUT, "The request timed out."),
    ):
        assert error_of_change(ChangeAnswer(1, error), ONE, "removing") == (error, text)
