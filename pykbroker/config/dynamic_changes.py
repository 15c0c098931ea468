"""Checks that a broker makes of changes to dynamic settings before the controller stores them (KIP-226, P-153)."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pykbroker.config.broker_config import ConfigError
from pykbroker.config.definitions import LIST, PROVIDERS_KEY, READ_ONLY, ProviderError
from pykbroker.config.definitions.broker import BROKER_CONFIGS, DYNAMIC_ONLY_CONFIGS
from pykbroker.config.dynamic_bounds import (
    check_type,
    refusal_of_change,
    refusal_of_listener_values,
    refusal_of_removal,
)
from pykbroker.config.listener_addresses import base_of_listener_key
from pykbroker.config.update_modes import (
    ONLY_PER_LISTENER,
    definition_of_broker_key,
    is_dynamic,
    is_per_broker,
)
from pykbroker.controller.metadata.commands import NO_ERROR, ApiError, ItemRefused
from pykbroker.controller.metadata.configs import APPEND, DELETE, SET, SUBTRACT, ConfigEdit
from pykbroker.controller.metadata.image import BROKER_RESOURCE, ClusterImage
from pykbroker.java_order import concurrent_order, hash_order, java_int, split_at_commas, trim
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.config.broker_config import BrokerConfig


log = logging.getLogger(__name__)

_BOUNDED = "assignment.interval.ms"
_BOUNDED_KEYS = frozenset(f"group.{kind}.{_BOUNDED}" for kind in ("consumer", "share", "streams"))
_OPERATIONS = (SET, DELETE, APPEND, SUBTRACT)
_KEY_PLACES = {name: place for place, name in enumerate((*DYNAMIC_ONLY_CONFIGS, *BROKER_CONFIGS))}


def check_resource_name(name: str, node_id: int) -> ApiError:
    """Returns an error unless the resource is this broker or, with the empty name, all brokers."""
    if not name:
        return NO_ERROR
    asked = java_int(name)
    if asked is None:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if asked != node_id:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")
    return NO_ERROR


def check_form(names: Sequence[str], names_of_nulls: Sequence[str]) -> ApiError:
    """Refuses a key given twice or a null value, which is Kafka's first check."""
    if any(count > 1 for count in Counter(names).values()):
        return ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if names_of_nulls:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(names_of_nulls)}")
    return NO_ERROR


def edited(edits: Sequence[ConfigEdit], resource_name: str, image: ClusterImage) -> dict[str, str]:
    """All dynamic settings that a broker resource has after incremental edits.

    Raises:
        ItemRefused: an edit is not allowed.
    """
    stored = image.configs.get((BROKER_RESOURCE, resource_name), {})
    settings, _ = usable_settings(stored, is_one_broker=bool(resource_name))
    unknown = next((edit.operation for edit in edits if edit.operation not in _OPERATIONS), None)
    if unknown is not None:
        raise ItemRefused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {unknown}")
    for edit in edits:
        if edit.operation == DELETE:
            settings.pop(edit.name, None)
        elif edit.operation == SET:
            settings[edit.name] = edit.value or ""
        elif edit.name not in BROKER_CONFIGS:
            raise ItemRefused(ErrorCode.INVALID_CONFIG, f"Unknown config name: {edit.name}")
        elif BROKER_CONFIGS[edit.name].type != LIST:
            verb = "append" if edit.operation == APPEND else "subtract"
            text = f"Config value {verb} is not allowed for config key: {edit.name}"
            raise ItemRefused(ErrorCode.INVALID_CONFIG, text)
        else:
            settings[edit.name] = _edited_list(settings.get(edit.name), edit)
    return settings


def _edited_list(current: str | None, edit: ConfigEdit) -> str:
    """A list after APPEND or SUBTRACT, as Kafka's brokers compute it for their checks; the controller stores its own.

    A list that was never set begins with the default of the key.
    """
    start = BROKER_CONFIGS[edit.name].default or "" if current is None else current
    given = split_at_commas(edit.value or "")
    if edit.operation == APPEND:
        before = split_at_commas(start) if start else []
        return ",".join([*before, *(part for part in given if part not in before)])
    left = split_at_commas(start)
    for part in given:
        if part in left:
            left.remove(part)
    return ",".join(left)


def usable_settings(stored: Mapping[str, str], *, is_one_broker: bool) -> tuple[dict[str, str], list[str]]:
    """Stored dynamic settings that a broker uses, and the names of those that it ignores.

    A controller's port stores any settings of a broker (P-371). Each of these is ignored by itself: a setting that a
    running broker does not change, a key or certificate without a listener, a setting of single brokers that is set for
    all, and an impossible value.
    """
    usable, ignored = dict(stored), []
    for name, text in stored.items():
        error = _check_names({name: text}, is_one_broker=is_one_broker)
        if not error.is_failure and not _may_be_value(name, text):
            error = ApiError(ErrorCode.INVALID_CONFIG)
        if error.is_failure:
            del usable[name]
            ignored.append(name)
    return usable, ignored


def within_bounds(settings: Mapping[str, str], config: BrokerConfig) -> dict[str, str]:
    """Stored dynamic settings of a broker with assignment intervals within the bounds of its static settings.

    The bounds may have been changed since the intervals were stored; Kafka takes the nearest one, and logs it.
    """
    found = dict(settings)
    for key in sorted(_BOUNDED_KEYS.intersection(settings)):
        kind = key.removesuffix(_BOUNDED)
        value = java_int(trim(settings[key]))
        least, most = (config.value(f"{kind}{which}.{_BOUNDED}") for which in ("min", "max"))
        if value is not None and not least <= value <= most:
            found[key] = str(min(max(value, least), most))
            log.warning("%s is %s, which is not between %d and %d; %s is used", key, value, least, most, found[key])
    return found


def _may_be_value(name: str, text: str) -> bool:
    """False for a text that the key cannot have; the value of a variable of a config provider is not known here."""
    definition = definition_of_broker_key(name)
    if definition is None or "${" in text:
        return True
    try:
        definition.parse(name, text)
    except ConfigError:
        return False
    return True


def with_own_variables(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Dynamic settings of a resource with the values of config providers that they define themselves (P-324).

    Raises:
        ItemRefused: a config provider fails.
    """
    if not any(name.startswith(PROVIDERS_KEY) for name in settings):
        return settings
    from pykbroker.config.config_providers import replace_own_variables

    try:
        return replace_own_variables(settings, os.environ)
    except ProviderError as error:
        raise ItemRefused(ErrorCode.INVALID_REQUEST, error.text) from None


def usable_levels(image: ClusterImage, node_id: int) -> tuple[dict[str, str], dict[str, str]]:
    """Stored dynamic settings that a broker uses: those of all brokers, and its own, which win over them."""
    cluster_wide, _ = usable_settings(image.configs.get((BROKER_RESOURCE, ""), {}), is_one_broker=False)
    own, _ = usable_settings(image.configs.get((BROKER_RESOURCE, str(node_id)), {}), is_one_broker=True)
    return cluster_wide, own


def check_settings(
    settings: Mapping[str, str], resource_name: str, config: BrokerConfig, image: ClusterImage
) -> ApiError:
    """Checks the dynamic settings of this broker or, with the empty name, of all brokers.

    Args:
        settings: all settings that the resource would have, from `with_own_variables`.
        resource_name: id of this broker, or the empty name.
        config: static settings of this broker.
        image: has the current dynamic settings, of this broker and of all.
    """
    error = _check_form_of_names(settings)
    if error.is_failure:
        return error
    cluster_wide, own = usable_levels(image, config.node_id)
    try:
        _check_types(settings)
        error = _check_level_of_names(settings, is_one_broker=bool(resource_name))
        if error.is_failure:
            return error
        reason = refusal_of_listener_values(config, settings)
        if reason is not None:
            return ApiError(ErrorCode.INVALID_REQUEST, reason)
        new = config.with_dynamic(cluster_wide, settings) if resource_name else config.with_dynamic(settings, own)
    except ConfigError as problem:
        return ApiError(ErrorCode.INVALID_REQUEST, problem.kafkas_text)
    reason = refusal_of_removal(config, new) or refusal_of_change(config, _current(config, cluster_wide, own), new)
    return NO_ERROR if reason is None else ApiError(ErrorCode.INVALID_REQUEST, reason)


def _check_types(settings: Mapping[str, str]) -> None:
    """Checks the values of Kafka's dynamic keys; a key of a listener counts as the one that it overrides.

    Raises:
        ConfigError: of the key without the listener's prefix; of several the first of Kafka's definitions (P-696).
    """
    # If several settings count as one key, Kafka checks the one that comes last in its hash table.
    texts = {base_of_listener_key(name) or name: settings[name] for name in concurrent_order(settings)}
    for key in sorted(filter(is_dynamic, texts), key=_KEY_PLACES.__getitem__):
        definition = definition_of_broker_key(key)
        if definition is not None:
            check_type(key, texts[key], definition)


def _current(config: BrokerConfig, cluster_wide: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
    try:
        return config.with_dynamic(cluster_wide, own)
    except ConfigError:
        # As in MetadataCache: settings stored by a Kafka that accepts other values are not used.
        return config


def _check_names(settings: Mapping[str, str], *, is_one_broker: bool) -> ApiError:
    error = _check_form_of_names(settings)
    return error if error.is_failure else _check_level_of_names(settings, is_one_broker=is_one_broker)


def _check_form_of_names(settings: Mapping[str, str]) -> ApiError:
    """Refuses keys that a running broker does not change, and those that need a listener's prefix."""
    fixed = [name for name in settings if name in BROKER_CONFIGS and BROKER_CONFIGS[name].update_mode == READ_ONLY]
    if fixed:
        return ApiError(
            ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(hash_order(fixed))}]"
        )
    bare = [name for name in settings if name in ONLY_PER_LISTENER]
    if bare:
        return ApiError(
            ErrorCode.INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(hash_order(bare))}]",
        )
    return NO_ERROR


def _check_level_of_names(settings: Mapping[str, str], *, is_one_broker: bool) -> ApiError:
    """Refuses settings of one broker for all brokers."""
    per_broker = [] if is_one_broker else [name for name in settings if is_per_broker(name)]
    if not per_broker:
        return NO_ERROR
    return ApiError(
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs at default cluster level, broker id must be specified: "
        f"[{', '.join(hash_order(per_broker))}]",
    )
