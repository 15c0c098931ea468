"""Errors of AddRaftVoter, RemoveRaftVoter and UpdateFeatures of kraft.version, with Kafka's codes and texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.raft.local_messages import ChangeAnswer, ChangeFailure, Reason
from pykbroker.controller.raft.quorum import NO_DIRECTORY_ID, ReplicaKey, VoterSet
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.uuids import uuid_to_text
from pykbroker.requests.controller_calls import inconsistent_cluster

if TYPE_CHECKING:
    from pykbroker.requests.context import NodeContext


def refusal_of_change(
    context: NodeContext, cluster_id: str | None, voter: ReplicaKey, request_name: str
) -> tuple[ErrorCode, str] | None:
    """Error of AddRaftVoter or RemoveRaftVoter, from the checks before the state machine; None if they pass.

    Args:
        context: of the request.
        cluster_id: cluster that the request names; None for this one.
        voter: the voter that it names.
        request_name: its name in Kafka's error text.
    """
    wrong_cluster = inconsistent_cluster(context, cluster_id)
    if wrong_cluster is not None:
        return ErrorCode.INCONSISTENT_CLUSTER_ID, wrong_cluster
    if not context.services.controller.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, ""
    if voter.node_id < 0 or voter.directory_id == NO_DIRECTORY_ID:
        return ErrorCode.INVALID_REQUEST, f"{request_name} voter request didn't include a valid voter"
    return None


def error_of_change(answer: ChangeAnswer, key: ReplicaKey, what: str) -> tuple[ErrorCode, str | None]:
    """Error code and text for the response to a change of the voters.

    Args:
        key: the voter that was to be added or removed.
        what: "adding" or "removing".
    """
    if answer.failure is not None:
        return answer.error, _text_of_change(answer.failure, _show(key), what)
    return answer.error, TEXTS[answer.error] if answer.error is ErrorCode.REQUEST_TIMED_OUT else None


def _text_of_change(failure: ChangeFailure, voter: str, what: str) -> str:
    waiting = "Request timed out waiting for"
    low, high = failure.versions
    texts = {
        Reason.CHANGE_PENDING: f"{waiting} leader to handle previous voter change request",
        Reason.NOTHING_COMMITTED: f"{waiting} leader to establish HWM and fence previous voter changes",
        Reason.VOTERS_UNCOMMITTED: (
            f"{waiting} voters to commit the latest voter change at {failure.voters_offset} "
            f"with HWM {failure.high_watermark}"
        ),
        Reason.STATIC_QUORUM: f"Cluster doesn't support {what} voter because the kraft.version feature is 0",
        Reason.DUPLICATE_VOTER: (
            f"The voter id for {voter} is already part of the set of voters {_show_all(failure.voters)}."
        ),
        Reason.NOT_A_VOTER: f"Cannot remove voter {voter} from the set of voters {_show_all(failure.voters)}",
        Reason.NO_VERSIONS: (
            f"Aborted add voter operation for {voter} since API_VERSIONS returned an error {failure.error.name}"
        ),
        Reason.VERSION_UNSUPPORTED: (
            f"Aborted add voter operation for {voter} since the kraft.version range (min: {low}, max: {high}) doesn't "
            f"support the finalized version {failure.kraft_version}"
        ),
        Reason.LAGGING: f"Aborted add voter operation for {voter} since it is lagging behind",
    }
    return texts[failure.reason]


def text_of_upgrade(failure: ChangeFailure, level: int) -> str:
    """Text for a kraft.version that cannot be raised to `level`."""
    if failure.reason is Reason.DOWNGRADE:
        change = f"from version {failure.kraft_version} to {level}"
        return f"Invalid upgrade of kraft.version {change} because the new version is a downgrade"
    if failure.reason is Reason.VOTERS_TOO_OLD:
        return f"Invalid upgrade of kraft.version to {level} because not all of the voters support it"
    return f"Directory id must be known for all of the voters: {_show_all(failure.voters)}"


def _show(key: ReplicaKey) -> str:
    directory = "<undefined>" if key.directory_id == NO_DIRECTORY_ID else uuid_to_text(key.directory_id)
    return f"ReplicaKey(id={key.node_id}, directoryId={directory})"


def _show_all(voters: VoterSet) -> str:
    return f"[{', '.join(map(_show, voters.keys))}]"
