"""Settings that all newer group kinds have: from the broker's configuration, and of one group within its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TIMES = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
"""Settings that a group of each newer kind may override."""


def named_values(source: object, names: tuple[str, ...]) -> dict[str, Any]:
    """Values of attributes, by name: those of a group of `BrokerConfig` for the fields of the same names."""
    return {name: getattr(source, name) for name in names}


def bounded(broker: object, configs: Mapping[str, str], kind: str, name: str) -> int:
    """One setting of a group, moved to the nearest value within the broker's bounds.

    Args:
        broker: the broker's settings, with the attributes `<name>`, which is the default, `min_<name>`, `max_<name>`.
        configs: configs of the group's GROUP resource.
        kind: consumer, share or streams.
        name: such as session_timeout_ms, for the config `<kind>.session.timeout.ms`.
    """
    key, default = f"{kind}.{name.replace('_', '.')}", getattr(broker, name)
    if key not in configs:
        return int(default)
    return int(min(max(int(configs[key]), getattr(broker, f"min_{name}")), getattr(broker, f"max_{name}")))


def times_of_group(broker: object, configs: Mapping[str, str], kind: str) -> dict[str, Any]:
    """The `TIMES` of a group, by name, in milliseconds."""
    return {name: bounded(broker, configs, kind, name) for name in TIMES}
