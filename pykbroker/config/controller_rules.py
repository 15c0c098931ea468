"""Rules of configs for the controller's commands (`ConfigRules`), taken from the definitions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pykbroker.config.broker_config import BrokerConfig, ConfigError
from pykbroker.config.definitions import LIST, ConfigKey
from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.config.definitions.topic import INTERNAL_TOPIC_CONFIGS, TOPIC_CONFIGS, definition_of_topic_key
from pykbroker.config.validation.pairs import BOUNDED, KINDS
from pykbroker.controller.metadata.commands import NO_ERROR, ApiError
from pykbroker.controller.metadata.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from pykbroker.java_order import copied_table_size, hash_order, trim
from pykbroker.protocol.error_codes import ErrorCode

_TOPIC_KEY_PLACES = {name: place for place, name in enumerate((*TOPIC_CONFIGS, *INTERNAL_TOPIC_CONFIGS))}

CLIENT_METRICS_INTERVAL_MIN_MS = 100
CLIENT_METRICS_INTERVAL_MAX_MS = 3_600_000

CLIENT_SELECTORS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


class ServerConfigRules:
    """Validates configs with Kafka's rules and texts. Broker keys in `config` set defaults and bounds."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def is_list(self, resource_type: int, name: str) -> bool:
        # As in Kafka's controller, whose schema has only topics and brokers.
        if resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE):
            return False
        definition = _definition(resource_type, name)
        return definition is not None and definition.type == LIST

    def default(self, resource_type: int, name: str) -> str | None:
        """Default text of a key; None for a key without default and for an unknown key."""
        definition = _definition(resource_type, name)
        return None if definition is None else definition.default

    def validate(self, resource_type: int, resource_name: str, configs: Mapping[str, str]) -> ApiError:
        """Validates all configs that a resource would have; unknown names and bad values: INVALID_CONFIG (P-146).

        Of several errors the result has Kafka's: an unknown name comes first, and then the keys in the order of their
        definitions (P-696).
        """
        try:
            if resource_type == TOPIC_RESOURCE:
                self._check_topic(configs)
            elif resource_type == GROUP_RESOURCE:
                self._check_group(configs)
            elif resource_type == CLIENT_METRICS_RESOURCE:
                return _check_client_metrics(resource_name, configs)
        except ConfigError as error:
            return ApiError(ErrorCode.INVALID_CONFIG, error.kafkas_text)
        except _Refused as refused:
            return ApiError(ErrorCode.INVALID_CONFIG, str(refused))
        return NO_ERROR

    def _check_topic(self, configs: Mapping[str, str]) -> None:
        for name in hash_order(configs):
            if definition_of_topic_key(name) is None:
                raise _Refused(f"Unknown topic config name: {name}")
        ordered = sorted(configs, key=_TOPIC_KEY_PLACES.__getitem__)
        values = {name: _parse(TOPIC_RESOURCE, name, configs[name]) for name in ordered}
        least, most = (
            values.get(name, int(self._config.topics.defaults[name]))
            for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
        )
        if least > most:
            raise _Refused(
                f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
            )
        if values.get("remote.storage.enable"):
            raise _Refused(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with "
                "remote log storage."
            )

    def _check_group(self, configs: Mapping[str, str]) -> None:
        from pykbroker.config.definitions.group import GROUP_CONFIGS

        # Kafka's table has the broker's defaults of all keys, too.
        for name in hash_order(configs, copied_table_size(len(GROUP_CONFIGS))):
            if name not in GROUP_CONFIGS:
                raise _Refused(f"Unknown group config name: {name}")
        values = {name: _parse(GROUP_RESOURCE, name, configs[name]) for name in GROUP_CONFIGS if name in configs}
        for kind, rest in BOUNDED:
            name = f"{kind}.{rest}"
            if name in values:
                least, most = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
                if values[name] < self._number(least):
                    raise _Refused(f"{name} must be greater than or equal to {least}")
                if values[name] > self._number(most):
                    raise _Refused(f"{name} must be less than or equal to {most}")
        most = "group.streams.max.standby.replicas"
        if values.get("streams.num.standby.replicas", 0) > self._number(most):
            raise _Refused(f"streams.num.standby.replicas must be less than or equal to {most}")
        for kind in KINDS:
            session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
            if (session in values or heartbeat in values) and values.get(
                session, self._number(f"group.{session}")
            ) <= values.get(heartbeat, self._number(f"group.{heartbeat}")):
                raise _Refused(f"{session} must be greater than {heartbeat}")

    def _number(self, key: str) -> int:
        number: int = self._config.value(key)
        return number


class _Refused(Exception):
    """An invalid config, with Kafka's text. It never leaves this module."""


def _check_client_metrics(subscription: str, configs: Mapping[str, str]) -> ApiError:
    """Validates the configs of a client metrics subscription (KIP-714); Kafka's error code here is INVALID_REQUEST."""
    invalid = ErrorCode.INVALID_REQUEST
    if not subscription:
        return ApiError(invalid, "Subscription name can't be empty")
    for name in hash_order(configs):
        if _definition(CLIENT_METRICS_RESOURCE, name) is None:
            return ApiError(invalid, f"Unknown client metrics configuration: {name}")
    values = {
        name: _parse(CLIENT_METRICS_RESOURCE, name, configs[name])
        for name in ("metrics", "interval.ms", "match")
        if name in configs
    }
    interval_ms = values.get("interval.ms", CLIENT_METRICS_INTERVAL_MIN_MS)
    if not CLIENT_METRICS_INTERVAL_MIN_MS <= interval_ms <= CLIENT_METRICS_INTERVAL_MAX_MS:
        return ApiError(
            invalid,
            f"Invalid value {interval_ms} for interval.ms, interval must be between {CLIENT_METRICS_INTERVAL_MIN_MS} "
            f"and {CLIENT_METRICS_INTERVAL_MAX_MS} (1 hour)",
        )
    for pattern in values.get("match", ()):
        _check_client_pattern(pattern)
    return NO_ERROR


def _check_client_pattern(pattern: str) -> None:
    # Kafka splits at each equals sign and drops empty parts at the end; two parts must be left.
    selector, _, expression = pattern.partition("=")
    expression = expression.rstrip("=")
    is_legal = bool(expression) and "=" not in expression and trim(selector) in CLIENT_SELECTORS
    try:
        re.compile(trim(expression))
    except re.error:
        is_legal = False
    if not is_legal:
        raise _Refused(f"Illegal client matching pattern: {pattern}")


def _parse(resource_type: int, name: str, text: str) -> Any:
    definition = _definition(resource_type, name)
    assert definition is not None
    return definition.parse(name, text)


def _definition(resource_type: int, name: str) -> ConfigKey | None:
    if resource_type == TOPIC_RESOURCE:
        return definition_of_topic_key(name)
    if resource_type == BROKER_RESOURCE:
        return BROKER_CONFIGS.get(name)
    from pykbroker.config.definitions.group import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS

    if resource_type == GROUP_RESOURCE:
        return GROUP_CONFIGS.get(name)
    if resource_type == CLIENT_METRICS_RESOURCE:
        return CLIENT_METRICS_CONFIGS.get(name)
    return None
