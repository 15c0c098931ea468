"""Which values of a broker's settings go together, and what follows from several of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykbroker.config.bounds import check_bounds
from pykbroker.config.definitions import ConfigError, format_value
from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.config.definitions.topic import BROKER_SYNONYMS, TOPIC_CONFIGS

AVAILABLE_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AVAILABLE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def check_replica_selector(values: Mapping[str, Any]) -> None:
    name = values["replica_selector_class"]
    if name and name != AVAILABLE_SELECTOR:
        raise ConfigError("replica.selector.class", name, f"only {AVAILABLE_SELECTOR} is available")


def fill_authorizer(values: dict[str, Any], texts: Mapping[str, str]) -> None:
    values["super_users"] = frozenset()
    values["allow_everyone_if_no_acl_found"] = False
    name = values["authorizer_class_name"]
    if not name:
        return
    if name != AVAILABLE_AUTHORIZER:
        raise ConfigError("authorizer.class.name", name, f"only {AVAILABLE_AUTHORIZER} is available")
    users = frozenset(filter(None, map(str.strip, texts.get("super.users", "").split(";"))))
    for user in users:
        if ":" not in user:
            raise ConfigError("super.users", user, "must be principals such as User:alice, separated by semicolons")
    values["super_users"] = users
    values["allow_everyone_if_no_acl_found"] = texts.get("allow.everyone.if.no.acl.found", "").lower() == "true"


def topic_defaults(texts: Mapping[str, str]) -> dict[str, str]:
    """What a topic has that sets nothing itself: every topic key, from its broker synonyms, in the topic key's unit."""
    defaults: dict[str, str] = {}
    for name, definition in TOPIC_CONFIGS.items():
        defaults[name] = definition.default or ""
        for synonym, factor in BROKER_SYNONYMS.get(name, ()):
            text = texts.get(synonym)
            if text is None:
                text = BROKER_CONFIGS[synonym].default
            if text is not None:
                value = BROKER_CONFIGS[synonym].parse(synonym, text)
                if factor != 1 or name == "retention.ms":
                    # Each negative retention is unlimited to Kafka's broker.
                    value = -1 if value < 0 else value * factor
                defaults[name] = format_value(value)
                break
    return defaults


def check_together(values: Mapping[str, Any], texts: Mapping[str, str], *, is_start: bool) -> None:
    """Combinations that Kafka refuses (KafkaConfig.validateValues, LogManager), but for those in `config_bounds`."""
    defaults = values["topic_defaults"]
    if int(defaults["retention.ms"]) == 0:
        raise ConfigError("log.retention.ms", defaults["retention.ms"], "must be -1 (unlimited) or at least 1")
    if int(defaults["segment.ms"]) < 1:
        raise ConfigError("log.roll.ms", defaults["segment.ms"], "must be at least 1")
    if int(defaults["segment.jitter.ms"]) < 0:
        raise ConfigError("log.roll.jitter.ms", defaults["segment.jitter.ms"], "must be at least 0")
    if is_start and int(defaults["min.compaction.lag.ms"]) > int(defaults["max.compaction.lag.ms"]):
        raise ConfigError(
            "log.cleaner.min.compaction.lag.ms",
            defaults["min.compaction.lag.ms"],
            f"must not exceed log.cleaner.max.compaction.lag.ms, which is {defaults['max.compaction.lag.ms']}",
        )
    if len(values["log_dirs"]) != 1:
        raise ConfigError(
            "log.dirs", ",".join(values["log_dirs"]), "must be one directory: several are not available yet"
        )
    queued, largest = values["queued_max_request_bytes"], values["socket_request_max_bytes"]
    if 0 < queued < largest:
        raise ConfigError(
            "queued.max.request.bytes", queued, f"must not be below socket.request.max.bytes, which is {largest}"
        )
    idle_ms = values["connections_max_idle_ms"]
    if 0 <= idle_ms <= values["connection_failed_authentication_delay_ms"]:
        raise ConfigError(
            "connections.max.idle.ms",
            idle_ms,
            f"must exceed connection.failed.authentication.delay.ms, which is "
            f"{values['connection_failed_authentication_delay_ms']}",
        )
    check_bounds(texts, is_start=is_start)
