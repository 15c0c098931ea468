"""AlterConfigs and IncrementalAlterConfigs as commands (P-153), with Kafka's rules and texts.

All changes of a resource are made, or none; an error of one resource does not affect the others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pykbroker.controller.metadata.commands import NO_ERROR, ApiError, ItemRefused, Plan, PlanContext
from pykbroker.controller.metadata.eligible_replicas import cleared_eligible_replicas
from pykbroker.controller.metadata.features import MIN_ISR_KEY, are_eligible_replicas_enabled
from pykbroker.controller.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
)
from pykbroker.controller.metadata.metadata_versions import CORDONED_LOG_DIRS, NAMES
from pykbroker.controller.metadata.topic_names import reason_invalid
from pykbroker.controller.metadata.topics import check_value_lengths, refuse_too_many_records
from pykbroker.java_order import hash_order, java_int, split_at_commas
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ConfigRecord
from pykbroker.protocol.steps import Steps

# Operations of IncrementalAlterConfigs, as on the wire.
SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3

CORDONED_KEY = "cordoned.log.dirs"


class ConfigEdit(NamedTuple):
    """One change: operation SET, DELETE, APPEND or SUBTRACT; `value` is None for DELETE."""

    name: str
    operation: int
    value: str | None


class ConfigResourceEdits(NamedTuple):
    """Changes of one resource; types as on the wire: 2 topic, 4 broker, 16 client metrics, 32 group."""

    resource_type: int
    resource_name: str
    edits: Sequence[ConfigEdit]


class ConfigResourceReplacement(NamedTuple):
    """New (key, value) configs of one resource; all its other configs are deleted."""

    resource_type: int
    resource_name: str
    configs: Sequence[tuple[str, str | None]]


class AlterConfigResult(NamedTuple):
    resource_type: int
    resource_name: str
    error: ApiError


class IncrementalAlterConfigs(NamedTuple):
    """Edits configs; the result is a list of AlterConfigResult, one per given resource in the same order.

    Left to the handler, as Kafka's brokers check them before they ask the controller: broker loggers (type 8), which
    are not stored in the metadata log; that a broker resource names the broker that got the request; and that a broker
    key can be changed without a restart. `is_checked` is False for a request that came to a controller's port directly,
    and which no broker has checked.
    """

    resources: Sequence[ConfigResourceEdits]
    validate_only: bool = False
    is_checked: bool = True

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[list[AlterConfigResult]]]:
        return _plan_all(self, image, context)


class AlterConfigs(NamedTuple):
    """Replaces configs (the old API); the result and the handler's own checks are those of IncrementalAlterConfigs."""

    resources: Sequence[ConfigResourceReplacement]
    validate_only: bool = False
    is_checked: bool = True

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[list[AlterConfigResult]]]:
        return _plan_all(self, image, context)


Resource = ConfigResourceEdits | ConfigResourceReplacement


def _plan_all(
    command: IncrementalAlterConfigs | AlterConfigs, image: ClusterImage, context: PlanContext
) -> Steps[Plan[list[AlterConfigResult]]]:
    resources: Sequence[Resource] = command.resources
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    duplicate = ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    results: list[AlterConfigResult] = []
    records: list[Any] = []
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        error = NO_ERROR
        if counts[key] > 1:
            error = duplicate
        else:
            try:
                records += _plan_resource(resource, image, context, is_checked=command.is_checked)
            except ItemRefused as refused:
                error = refused.error
        results.append(AlterConfigResult(*key, error))
        yield
    records += cleared_eligible_replicas(records, image)
    refuse_too_many_records(records)
    return Plan(() if command.validate_only else records, results)


def _plan_resource(
    resource: Resource, image: ClusterImage, context: PlanContext, *, is_checked: bool
) -> list[ConfigRecord]:
    resource_type, resource_name = resource.resource_type, resource.resource_name
    _check_form(resource)
    existing = image.configs.get((resource_type, resource_name), {})
    changes: dict[str, str | None]
    if isinstance(resource, ConfigResourceEdits):
        edits = {edit.name: edit for edit in resource.edits}
        # In the order of Kafka's table, which decides which of several errors the result has (P-696).
        changes = {
            name: _edited_value(edits[name], existing.get(name), resource_type, context) for name in hash_order(edits)
        }
    else:
        changes = dict(resource.configs)
        changes |= dict.fromkeys(name for name in existing if name not in changes)
    if resource_type != BROKER_RESOURCE:
        # A broker reads its files again when a record names them, so there an unchanged value is written too.
        changes = {name: value for name, value in changes.items() if existing.get(name) != value}
    else:
        _check_broker_keys(resource_name, changes, image)
        if not is_checked:
            _check_uncordoning(changes.get(CORDONED_KEY), existing.get(CORDONED_KEY))
    check_value_lengths(changes.values())
    _check_name(resource_type, resource_name)
    after = {**existing, **changes}
    configs = {name: value for name, value in after.items() if value is not None}
    error = context.config_rules.validate(resource_type, resource_name, configs)
    if error.is_failure:
        raise ItemRefused(error.code, error.message)
    _check_existence(resource_type, resource_name, image)
    return [
        ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
        for name, value in changes.items()
    ]


def _check_form(resource: Resource) -> None:
    """Raises ItemRefused for an error of the resource that can be found without the image."""
    if isinstance(resource, ConfigResourceEdits):
        names = [edit.name for edit in resource.edits]
        nulls = [edit.name for edit in resource.edits if edit.value is None and edit.operation != DELETE]
    else:
        names = [name for name, _ in resource.configs]
        nulls = [name for name, value in resource.configs if value is None]
    if len(set(names)) != len(names):
        raise ItemRefused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        raise ItemRefused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    if resource.resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE):
        raise ItemRefused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _check_broker_keys(broker: str, changes: Mapping[str, str | None], image: ClusterImage) -> None:
    """Raises ItemRefused for a broker's keys that the cluster's features, or the controller, do not allow."""
    min_isr = changes.get(MIN_ISR_KEY)
    if MIN_ISR_KEY in changes and are_eligible_replicas_enabled(image):
        _check_min_isr(broker, min_isr)
    if "${" in (min_isr or ""):
        # The controller elects leaders by it, and has no config providers.
        raise ItemRefused(ErrorCode.INVALID_CONFIG, f"{MIN_ISR_KEY} cannot be a variable of a config provider.")
    if CORDONED_KEY in changes and image.metadata_version < CORDONED_LOG_DIRS:
        raise ItemRefused(
            ErrorCode.INVALID_CONFIG,
            f"The {CORDONED_KEY} configuration value cannot be set because it requires metadata.version >= "
            f"{NAMES[CORDONED_LOG_DIRS]}",
        )


def _check_min_isr(broker: str, value: str | None) -> None:
    """Raises ItemRefused for a broker's own `min.insync.replicas`, and for a cluster without one (KIP-966; P-201)."""
    if broker:
        raise ItemRefused(
            ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR_KEY} cannot be altered while ELR is enabled."
        )
    if value is None:
        raise ItemRefused(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_ISR_KEY} cannot be removed while ELR is enabled."
        )


def _check_uncordoning(value: str | None, current: str | None) -> None:
    """Raises ItemRefused for a directory that was not cordoned: a controller does not know a broker's paths (P-370)."""
    if value is None or not value.strip():
        return
    if not set(re.split(r"\s*,\s*", value.strip())) <= set(re.split(r"\s*,\s*", (current or "").strip())):
        raise ItemRefused(
            ErrorCode.INVALID_CONFIG,
            f"When updating {CORDONED_KEY} via controllers,  the new value must be a subset of the current "
            "configuration value.",
        )


def _edited_value(edit: ConfigEdit, current: str | None, resource_type: int, context: PlanContext) -> str | None:
    if edit.operation == SET:
        return edit.value
    if edit.operation == DELETE:
        return None
    if edit.operation not in (APPEND, SUBTRACT):
        raise ItemRefused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {edit.operation}")
    rules = context.config_rules
    if not rules.is_list(resource_type, edit.name):
        verb = "APPEND" if edit.operation == APPEND else "SUBTRACT"
        raise ItemRefused(ErrorCode.INVALID_CONFIG, f"Can't {verb} to key {edit.name} because its type is not LIST.")
    # A list that was never set is edited from its default (KIP-339).
    start = rules.default(resource_type, edit.name) if current is None else current
    parts = [part for part in (start or "").split(",") if part]
    for part in split_at_commas(edit.value or ""):
        if edit.operation == APPEND and part not in parts:
            parts.append(part)
        elif edit.operation == SUBTRACT and part in parts:
            parts.remove(part)
    return ",".join(parts)


def _check_name(resource_type: int, name: str) -> None:
    if resource_type == TOPIC_RESOURCE:
        if not name:
            raise ItemRefused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        reason = reason_invalid(name)
        if reason is not None:
            raise ItemRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    elif resource_type == BROKER_RESOURCE and name:
        node_id = java_int(name)
        if node_id is None:
            raise ItemRefused(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
        if node_id < 0:
            raise ItemRefused(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
    elif resource_type == GROUP_RESOURCE and not name:
        raise ItemRefused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")


def _check_existence(resource_type: int, name: str, image: ClusterImage) -> None:
    if resource_type == TOPIC_RESOURCE and name not in image.topics_by_name:
        raise ItemRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if resource_type == BROKER_RESOURCE and name:
        node_id = int(name)
        if node_id not in image.brokers and node_id not in image.controllers:
            raise ItemRefused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")
