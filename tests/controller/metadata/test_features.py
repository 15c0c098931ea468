"""UpdateFeatures (P-158) and what a new cluster finalizes."""

from __future__ import annotations

import pytest

from pykbroker.controller.metadata.bootstrap import Bootstrap
from pykbroker.controller.metadata.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    UpdateFeatures,
)
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import FeatureLevelRecord
from tests.controller.world import World


def test_a_new_cluster_finalizes_only_what_exists() -> None:
    assert World().image.features == {
        "metadata.version": 30,
        "transaction.version": 2,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
    }


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (
            FeatureUpdate("metadata.version", 29),
            (
                "Invalid update version 29 for feature metadata.version. Can't downgrade the version of this feature "
                "without setting the upgrade type to either safe or unsafe downgrade."
            ),
        ),
        (
            FeatureUpdate("metadata.version", 29, SAFE_DOWNGRADE),
            (
                "Unsupported metadata.version downgrade from 30 to 29. Refusing to perform the requested downgrade "
                "because it might delete metadata information."
            ),
        ),
        (
            FeatureUpdate("metadata.version", 29, UNSAFE_DOWNGRADE),
            (
                "Unsupported metadata.version downgrade from 30 to 29. Unsafe metadata downgrade is not supported in "
                "this version."
            ),
        ),
        (
            FeatureUpdate("metadata.version", 31),
            "Invalid update version 31 for feature metadata.version. Local controller 1 only supports versions 7-30",
        ),
        (
            FeatureUpdate("metadata.version", 30, 0),
            (
                "Invalid update version 30 for feature metadata.version. The controller does not support the given "
                "upgrade type."
            ),
        ),
        (
            FeatureUpdate("share.version", 2),
            "Invalid update version 2 for feature share.version. Local controller 1 only supports versions 0-1",
        ),
        (
            FeatureUpdate("share.version", -1),
            "Invalid update version -1 for feature share.version. A feature version cannot be less than 0.",
        ),
        (
            FeatureUpdate("no.such.feature", 1),
            "Invalid update version 1 for feature no.such.feature. Local controller 1 does not support this feature.",
        ),
        (
            FeatureUpdate("no.such.feature", 0),
            "Invalid update version 0 for feature no.such.feature. Feature no.such.feature not found.",
        ),
    ],
)
def test_p158_updates_that_are_refused(update: FeatureUpdate, message: str) -> None:
    """P-158."""
    world = World()
    assert world.do(UpdateFeatures([update])) == (ErrorCode.INVALID_UPDATE_VERSION, message)
    assert world.image.features == {
        "metadata.version": 30,
        "transaction.version": 2,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
    }


def test_p158_level_0_deletes_and_needs_a_downgrade() -> None:
    """P-158."""
    world = World()
    assert world.image.features["share.version"] == 1
    assert world.do(UpdateFeatures([FeatureUpdate("share.version", 0, UPGRADE)])).is_failure
    assert not world.do(UpdateFeatures([FeatureUpdate("share.version", 0, SAFE_DOWNGRADE)], True)).is_failure
    assert world.image.features["share.version"] == 1
    assert not world.do(UpdateFeatures([FeatureUpdate("share.version", 0, SAFE_DOWNGRADE)])).is_failure
    assert world.image.features == {
        "metadata.version": 30,
        "transaction.version": 2,
        "group.version": 1,
        "streams.version": 1,
    }


def test_p158_one_wrong_feature_stops_all() -> None:
    """P-158."""
    world = World()
    updates = [FeatureUpdate("share.version", 0, SAFE_DOWNGRADE), FeatureUpdate("no.such.feature", 1)]
    assert world.do(UpdateFeatures(updates)).is_failure
    assert world.image.features["share.version"] == 1


def test_p158_the_last_update_of_a_feature_counts() -> None:
    """P-158."""
    world = World()
    updates = [FeatureUpdate("group.version", 99), FeatureUpdate("group.version", 0, SAFE_DOWNGRADE)]
    assert not world.do(UpdateFeatures(updates)).is_failure
    assert "group.version" not in world.image.features


def test_p158_the_first_error_is_that_of_kafkas_map() -> None:
    """P-158: share.version comes before streams.version in a HashMap, whatever the order of the request."""
    updates = [FeatureUpdate("streams.version", 99), FeatureUpdate("share.version", 99)]
    message = World().do(UpdateFeatures(updates)).message or ""
    assert "Invalid update version 99 for feature share.version." in message


@pytest.mark.parametrize(
    ("level", "kind", "reason"),
    [
        (0, UPGRADE, "Can't downgrade the version of this feature without setting the upgrade type"),
        (0, SAFE_DOWNGRADE, "Can't downgrade the version of this feature."),
        (1, SAFE_DOWNGRADE, None),
        (1, UPGRADE, None),
    ],
)
def test_p158_the_version_of_the_quorum_does_not_go_down(level: int, kind: int, reason: str | None) -> None:
    """P-158."""
    error = World().do(UpdateFeatures([FeatureUpdate("kraft.version", level, kind)], kraft_version=1))
    assert error.is_failure == (reason is not None)
    if reason is not None:
        assert f"Invalid update version {level} for feature kraft.version. {reason}" in (error.message or "")


def test_transaction_version_goes_up_and_down() -> None:
    """P-136, P-158: as kafka-features does it; a cluster from before the feature is at level 0 and may be upgraded."""
    world = World()
    assert not world.do(UpdateFeatures([FeatureUpdate("transaction.version", 0, SAFE_DOWNGRADE)])).is_failure
    assert world.image.features == {
        "metadata.version": 30,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
    }
    assert world.do(UpdateFeatures([FeatureUpdate("transaction.version", 3)])).message == (
        "Invalid update version 3 for feature transaction.version. Local controller 1 only supports versions 0-2"
    )
    for level in (1, 2):
        assert not world.do(UpdateFeatures([FeatureUpdate("transaction.version", level)])).is_failure
        assert world.image.features["transaction.version"] == level


def test_an_old_cluster_stays_at_level_0() -> None:
    """Bootstrap adds no features to a cluster that has a metadata.version."""
    world = World()
    world.apply([FeatureLevelRecord(name="transaction.version", feature_level=0)])
    world.do(Bootstrap())
    assert world.image.features == {
        "metadata.version": 30,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
    }


def test_a_downgrade_to_a_newer_version_is_refused() -> None:
    """Kafka's FeatureControlManager, with its text."""
    world = World()
    world.apply([FeatureLevelRecord(name="transaction.version", feature_level=1)])
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        error = world.do(UpdateFeatures([FeatureUpdate("transaction.version", 2, kind)]))
        assert error.code == ErrorCode.INVALID_UPDATE_VERSION
        assert (error.message or "").endswith("Can't downgrade to a newer version.")
    assert world.image.features["transaction.version"] == 1


def test_a_feature_that_depends_on_a_higher_level_is_refused() -> None:
    """P-158: Kafka's Feature.validateVersion, with its text."""
    world = World()
    world.apply([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)])
    world.apply([FeatureLevelRecord(name="metadata.version", feature_level=22)])
    update = UpdateFeatures([FeatureUpdate("eligible.leader.replicas.version", 1)])
    error = world.do(update)
    assert error.code == ErrorCode.INVALID_UPDATE_VERSION
    assert (error.message or "").endswith(
        "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23"
    )
    assert world.image.features.get("eligible.leader.replicas.version", 0) == 0
    world.apply([FeatureLevelRecord(name="metadata.version", feature_level=23)])
    assert not world.do(update).is_failure
