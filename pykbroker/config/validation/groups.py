"""Checks of group settings beyond the bounds in `pairs`: assignors, protocols, codecs of the coordinators' topics."""

from __future__ import annotations

from pykbroker.config.definitions import ConfigError
from pykbroker.config.values import ConfigValues

_CODEC_ID_MAX = 4

_ASSIGNORS = {
    "group.consumer.assignors": {
        "uniform": "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
        "range": "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
    },
    "group.share.assignors": {"simple": "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"},
}


def check_assignors(config: ConfigValues) -> None:
    """Only Kafka's own assignors; Kafka also accepts other classes, which it loads."""
    for key, names in _ASSIGNORS.items():
        given = config.value(key)
        for name in given:
            if name not in names and name not in names.values():
                raise ConfigError(key, name, f"must be an assignor of Kafka's own: {', '.join(names)}")
        if key == "group.share.assignors" and len(given) != 1:
            raise ConfigError(key, config.static_properties[key], "must name exactly one assignor")


def check_codecs(config: ConfigValues) -> None:
    for key in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        if not 0 <= config.value(key) <= _CODEC_ID_MAX:
            raise ConfigError(
                key,
                config.static_properties[key],
                f"must be the number of a compression codec, from 0 to {_CODEC_ID_MAX}",
            )


def check_rebalance_protocols(config: ConfigValues) -> None:
    key = "group.coordinator.rebalance.protocols"
    if "classic" not in config.value(key):
        raise ConfigError(
            key, config.static_properties[key], "must have classic: Kafka does not support groups without it"
        )


CHECKS = (check_assignors, check_codecs, check_rebalance_protocols)
