"""UpdateFeatures: P-158."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.raft.local_messages import ChangeAnswer, ChangeFailure, Reason
from pykbroker.controller.raft.quorum import VoterSet
from pykbroker.handlers.update_features import handle_update_features
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.admin import answer, make_context


@pytest.mark.parametrize(
    ("version", "update", "code"),
    [
        (1, {"feature": "metadata.version", "max_version_level": 30, "upgrade_type": 1}, ErrorCode.NONE),
        (1, {"feature": "no.such.feature", "max_version_level": 1}, ErrorCode.INVALID_UPDATE_VERSION),
        (1, {"feature": "metadata.version", "max_version_level": 99}, ErrorCode.INVALID_UPDATE_VERSION),
        (
            1,
            {"feature": "metadata.version", "max_version_level": 20, "upgrade_type": 1},
            ErrorCode.INVALID_UPDATE_VERSION,
        ),
        (0, {"feature": "metadata.version", "max_version_level": 20}, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_levels(version: int, update: dict[str, int], code: ErrorCode) -> None:
    """P-158."""
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(**update)])  # type: ignore[arg-type]
    response = answer(handle_update_features, make_context(version), request)
    assert response.error_code == code
    if code:
        assert response.error_message.startswith("The update failed for all features since the following feature had")


def test_the_version_of_the_quorum_is_changed_by_an_upgrade_only() -> None:
    """P-158: a downgrade to the present level is a success that asks nobody."""
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=0, upgrade_type=2)
    response = answer(handle_update_features, make_context(2), UpdateFeaturesRequest(feature_updates=[update]))
    assert response.error_code == ErrorCode.NONE


def test_results_per_feature_end_with_version_2() -> None:
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="metadata.version", max_version_level=30)]
    )
    assert [result.feature for result in answer(handle_update_features, make_context(1), request).results] == [
        "metadata.version"
    ]
    assert answer(handle_update_features, make_context(2), request).results == []


def test_validate_only_changes_nothing() -> None:
    """P-158: the downgrade from 30 to 29 would lose nothing but version 30's own records, so Kafka refuses it, too."""
    context = make_context(1)
    before = context.services.metadata.image
    update = FeatureUpdateKey(feature="metadata.version", max_version_level=30)
    answer(handle_update_features, context, UpdateFeaturesRequest(feature_updates=[update], validate_only=True))
    assert context.services.metadata.image is before


class VoterRequests:
    """Answers a change of kraft.version as the quorum would, and notes what was asked."""

    def __init__(self, answer: ChangeAnswer) -> None:
        self.answer = answer
        self.asked: list[tuple[int, int, bool]] = []

    async def upgrade(self, level: int, timeout_ms: int, *, validate_only: bool) -> ChangeAnswer:
        await trio.lowlevel.checkpoint()
        self.asked.append((level, timeout_ms, validate_only))
        return self.answer


def raised(change: ChangeAnswer, *, is_applied: bool = True) -> tuple[int, str | None]:
    """Error code and message for an upgrade of kraft.version to 1 that the quorum answers so."""
    context = make_context(2)
    controller: Any = context.services.controller
    controller.voter_requests = requests = VoterRequests(change)

    async def applied(end_offset: int, timeout_ms: int) -> bool:
        await trio.lowlevel.checkpoint()
        assert (end_offset, timeout_ms) == (change.end_offset, 700)
        return is_applied

    controller.applied = applied
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
    request = UpdateFeaturesRequest(timeout_ms=700, feature_updates=[update])
    response = answer(handle_update_features, context, request)
    assert requests.asked == [(1, 700, False)]
    return response.error_code, response.error_message


def test_the_version_of_the_quorum_is_raised_by_the_quorum() -> None:
    """P-158: the response comes when the record has taken effect here, or says that it did not in time."""
    assert raised(ChangeAnswer(1, ErrorCode.NONE, end_offset=9)) == (ErrorCode.NONE, None)
    late = raised(ChangeAnswer(1, ErrorCode.NONE, end_offset=9), is_applied=False)
    assert late == (ErrorCode.REQUEST_TIMED_OUT, None)


def test_a_quorum_that_does_not_raise_its_version() -> None:
    """P-158: a reason is named as that of any feature; a leader that was deposed sends the client to the next one."""
    too_old = ChangeFailure(Reason.VOTERS_TOO_OLD, VoterSet([]), 7, 5, 0, (0, 0), ErrorCode.NONE)
    text = (
        "The update failed for all features since the following feature had an error: "
        "Invalid upgrade of kraft.version to 1 because not all of the voters support it"
    )
    refused = raised(ChangeAnswer(1, ErrorCode.INVALID_UPDATE_VERSION, too_old))
    assert refused == (ErrorCode.INVALID_UPDATE_VERSION, text)
    assert raised(ChangeAnswer(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)) == (ErrorCode.NOT_CONTROLLER, None)
    assert raised(ChangeAnswer(1, ErrorCode.REQUEST_TIMED_OUT)) == (ErrorCode.REQUEST_TIMED_OUT, None)


def test_levels_that_could_not_be_stored() -> None:
    """The error of the whole request, without the words for one feature."""
    context = make_context(2)
    context.services.controller.failure = CommandRefused(ErrorCode.REQUEST_TIMED_OUT, "too late")  # type: ignore[attr-defined]
    update = FeatureUpdateKey(feature="metadata.version", max_version_level=30)
    response = answer(handle_update_features, context, UpdateFeaturesRequest(feature_updates=[update]))
    assert (response.error_code, response.error_message) == (ErrorCode.REQUEST_TIMED_OUT, "too late")
