"""Feature levels (KIP-584, KIP-1022): supported levels, those that a new cluster finalizes, UpdateFeatures (P-158)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pykbroker.controller.metadata.commands import NO_ERROR, ApiError, Plan, PlanContext
from pykbroker.controller.metadata.image import BROKER_RESOURCE, ClusterImage
from pykbroker.controller.metadata.metadata_versions import (
    CHANGED_AT,
    CONTROLLER_REGISTRATION,
    ELIGIBLE_LEADER_REPLICAS,
    ELIGIBLE_LEADER_REPLICAS_BY_DEFAULT,
    GROUP_VERSION_1,
    METADATA_VERSION,
    METADATA_VERSION_LATEST,
    METADATA_VERSION_MIN,
    METADATA_VERSION_UNSTABLE,
    SHARE_VERSION_1,
    STREAMS_VERSION_1,
    TRANSACTION_VERSION_2,
)
from pykbroker.java_order import hash_order
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ConfigRecord, FeatureLevelRecord

KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
TV_0, TV_2 = 0, 2
"""Levels of transaction.version. From TV_2 on each end of a transaction raises the producer's epoch, and the brokers to
which the client writes add the partitions (KIP-890, P-136). Clients speak one of these two."""
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"

MIN_ISR_KEY = "min.insync.replicas"

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_LATEST),
    TRANSACTION_VERSION: (TV_0, TV_2),
    KRAFT_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    SHARE_VERSION: (0, 1),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
    STREAMS_VERSION: (0, 1),
}
"""Lowest and highest level of each feature that this software supports; other features are at level 0. A level is added
when its behaviour exists: a promised level without the behaviour would be worse for clients than a missing one."""

UNSTABLE_FEATURES: Mapping[str, tuple[int, int]] = {
    **SUPPORTED_FEATURES,
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_UNSTABLE),
}
"""Lowest and highest level of each feature on a node with `unstable.feature.versions.enable`."""


def supported_features(*, unstable: bool) -> Mapping[str, tuple[int, int]]:
    """The features that a node supports; `unstable` is its `unstable.feature.versions.enable`."""
    return UNSTABLE_FEATURES if unstable else SUPPORTED_FEATURES


def default_levels(metadata_version: int) -> dict[str, int]:
    """Levels that a new cluster of this metadata.version finalizes. Other features are at 0 until UpdateFeatures."""
    levels = {
        TRANSACTION_VERSION: (TV_2, TRANSACTION_VERSION_2),
        GROUP_VERSION: (1, GROUP_VERSION_1),
        SHARE_VERSION: (1, SHARE_VERSION_1),
        ELIGIBLE_LEADER_REPLICAS_VERSION: (1, ELIGIBLE_LEADER_REPLICAS_BY_DEFAULT),
        STREAMS_VERSION: (1, STREAMS_VERSION_1),
    }
    found = {name: level for name, (level, since) in levels.items() if metadata_version >= since}
    return {METADATA_VERSION: metadata_version, **found}


def consumer_groups_enabled(image: ClusterImage) -> bool:
    """True if the cluster's group.version serves the consumer group protocol (KIP-848)."""
    return image.features.get(GROUP_VERSION, 0) >= 1


def share_groups_enabled(image: ClusterImage) -> bool:
    """True if the cluster's share.version serves share groups (KIP-932)."""
    return image.features.get(SHARE_VERSION, 0) >= 1


def streams_groups_enabled(image: ClusterImage) -> bool:
    """True if the cluster's streams.version serves Streams groups (KIP-1071)."""
    return image.features.get(STREAMS_VERSION, 0) >= 1


def are_eligible_replicas_enabled(image: ClusterImage) -> bool:
    """True if the cluster's eligible.leader.replicas.version keeps eligible leader replicas (KIP-966)."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1


def level_records(levels: Mapping[str, int]) -> list[FeatureLevelRecord]:
    """Records that finalize these levels, metadata.version first; a feature at level 0 has no record."""
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in names if levels[name]]


def cluster_min_isr(context: PlanContext) -> ConfigRecord:
    """The record that makes this controller's `min.insync.replicas` that of the cluster."""
    return ConfigRecord(
        resource_type=BROKER_RESOURCE,
        resource_name="",
        name=MIN_ISR_KEY,
        value=str(context.min_insync_replicas_default),
    )


def unmet_dependency(name: str, level: int, levels: Mapping[str, int]) -> tuple[str, int] | None:
    """(feature, level) that this level of a feature requires and `levels` do not have; None if nothing is missing."""
    dependency = _DEPENDENCIES.get((name, level))
    return None if dependency is None or levels.get(dependency[0], 0) >= dependency[1] else dependency


def _min_isr_of_cluster_alone(image: ClusterImage, context: PlanContext) -> list[ConfigRecord]:
    """Records that set `min.insync.replicas` for the cluster, if it is not set, and remove that of each broker."""
    records = []
    if MIN_ISR_KEY not in image.configs.get((BROKER_RESOURCE, ""), {}):
        records.append(cluster_min_isr(context))
    records += [
        ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=MIN_ISR_KEY, value=None)
        for (resource_type, name), configs in image.configs.items()
        if resource_type == BROKER_RESOURCE and name and MIN_ISR_KEY in configs
    ]
    return records


BOOTSTRAP_LEVELS: Mapping[str, int] = default_levels(METADATA_VERSION_LATEST)
"""Features that a new cluster finalizes by default."""

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The level of a feature to finalize, 0 to delete it.

    Attributes:
        upgrade_type: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade.
    """

    name: str
    level: int
    upgrade_type: int = UPGRADE


class UpdateFeatures(NamedTuple):
    """Changes feature levels, all or none; the result is one ApiError for the whole request.

    Its message is Kafka's for the first invalid update, in the order of Kafka's map; of two updates of a feature the
    last one counts. The handler puts Kafka's introduction in front of the message.

    Attributes:
        kraft_version: the quorum's level of kraft.version, which is not in the image.
    """

    updates: Sequence[FeatureUpdate]
    validate_only: bool = False
    kraft_version: int = 0

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[ApiError]:
        proposed = dict(image.features)
        proposed.update((update.name, update.level) for update in self.updates)
        records: list[Any] = []
        updates = {update.name: update for update in self.updates}
        for name in hash_order(updates):
            update = updates[name]
            current = self.kraft_version if name == KRAFT_VERSION else image.features.get(name, 0)
            error = _update_error(update, current, image, proposed, context)
            if error.is_failure:
                return Plan((), error)
            if update.name != KRAFT_VERSION:
                records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
        if self.validate_only:
            return Plan((), NO_ERROR)
        if ELIGIBLE_LEADER_REPLICAS_VERSION in updates and updates[ELIGIBLE_LEADER_REPLICAS_VERSION].level > 0:
            records = [*_min_isr_of_cluster_alone(image, context), *records]
        return Plan(records, NO_ERROR)


def _invalid(update: FeatureUpdate, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.name}. {reason}",
    )


def _update_error(
    update: FeatureUpdate, current: int, image: ClusterImage, proposed: Mapping[str, int], context: PlanContext
) -> ApiError:
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return _invalid(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        return _invalid(update, "A feature version cannot be less than 0.")
    reason = _reason_not_supported(update, image, context)
    if reason is not None:
        return _invalid(update, reason)
    if update.level < current and update.upgrade_type == UPGRADE:
        return _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if update.level > current and update.upgrade_type != UPGRADE:
        return _invalid(update, "Can't downgrade to a newer version.")
    if update.name == METADATA_VERSION:
        return _metadata_version_error(update, current)
    if update.name == KRAFT_VERSION and update.level < current:
        return _invalid(update, "Can't downgrade the version of this feature.")
    if update.name not in SUPPORTED_FEATURES:
        return _invalid(update, f"Feature {update.name} not found.")
    dependency = unmet_dependency(update.name, update.level, proposed)
    if dependency is not None:
        return _invalid(
            update,
            f"{update.name} could not be set to {update.level} because it depends on {dependency[0]} level "
            f"{dependency[1]}",
        )
    return NO_ERROR


_DEPENDENCIES: Mapping[tuple[str, int], tuple[str, int]] = {
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): (METADATA_VERSION, ELIGIBLE_LEADER_REPLICAS),
}


def _metadata_version_error(update: FeatureUpdate, current: int) -> ApiError:
    if update.level >= current or not any(update.level < changed <= current for changed in CHANGED_AT):
        return NO_ERROR
    reason = (
        "Unsafe metadata downgrade is not supported in this version."
        if update.upgrade_type == UNSAFE_DOWNGRADE
        else "Refusing to perform the requested downgrade because it might delete metadata information."
    )
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Unsupported metadata.version downgrade from {current} to {update.level}. {reason}",
    )


def _reason_not_supported(update: FeatureUpdate, image: ClusterImage, context: PlanContext) -> str | None:
    """Reason that a node of the cluster does not support this level; None if all do.

    A node that does not list the feature supports level 0.
    """
    local = f"Local controller {context.node_id}"
    nodes = [(local, context.supported_features)]
    nodes += [(f"Broker {broker_id}", broker.features) for broker_id, broker in image.brokers.items()]
    # Below this level controllers do not register, so their features are not known.
    has_controllers = image.metadata_version >= CONTROLLER_REGISTRATION
    if has_controllers:
        nodes += [
            (f"Controller {controller_id}", controller.features)
            for controller_id, controller in image.controllers.items()
            if controller_id != context.node_id
        ]
    for who, features in nodes:
        lowest, highest = features.get(update.name, (0, 0))
        if not lowest <= update.level <= highest:
            if highest == 0:
                return f"{who} does not support this feature."
            supported = f"{lowest}-{highest}" if lowest != highest else f"{lowest}"
            return f"{who} only supports versions {supported}"
    for voter_id in sorted(context.voter_ids) if has_controllers else ():
        if voter_id != context.node_id and voter_id not in image.controllers:
            return f"controller {voter_id} has not registered, and may not support this feature"
    return None
