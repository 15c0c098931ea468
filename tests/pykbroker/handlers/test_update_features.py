"""UpdateFeatures: P-158."""

from __future__ import annotations

import pytest

from pykbroker.handlers.update_features import handle_update_features
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.admin import call, make_context


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
    response = call(handle_update_features, make_context(version), request)
    assert response.error_code == code
    if code:
        assert response.error_message.startswith("The update failed for all features since the following feature had")


def test_the_version_of_the_quorum_is_changed_by_an_upgrade_only() -> None:
    """P-158: a downgrade to the present level is a success that asks nobody."""
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=0, upgrade_type=2)
    response = call(handle_update_features, make_context(2), UpdateFeaturesRequest(feature_updates=[update]))
    assert response.error_code == ErrorCode.NONE


def test_results_per_feature_end_with_version_2() -> None:
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="metadata.version", max_version_level=30)]
    )
    assert [result.feature for result in call(handle_update_features, make_context(1), request).results] == [
        "metadata.version"
    ]
    assert call(handle_update_features, make_context(2), request).results == []


def test_validate_only_changes_nothing() -> None:
    """P-158: the downgrade from 30 to 29 would lose nothing but version 30's own records, so Kafka refuses it, too."""
    context = make_context(1)
    before = context.services.metadata.image
    update = FeatureUpdateKey(feature="metadata.version", max_version_level=30)
    call(handle_update_features, context, UpdateFeaturesRequest(feature_updates=[update], validate_only=True))
    assert context.services.metadata.image is before
