"""Settings of one modern group: those of its GROUP resource, kept within the broker's bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pykbroker.config.values import MemberTimeValues

Settings = TypeVar("Settings", bound=MemberTimeValues)


def settings_of_group(broker: Settings, group_type: str, configs: Mapping[str, str]) -> Settings:
    """The broker's settings with the times of one group, which its GROUP resource has (`consumer.session.timeout.ms`).

    Args:
        broker: the broker's settings of this type of groups.
        group_type: consumer, share or streams.
        configs: dynamic configs of the group.
    """
    return broker.replaced(
        session_timeout_ms=bounded(
            configs,
            f"{group_type}.session.timeout.ms",
            broker.session_timeout_ms,
            broker.min_session_timeout_ms,
            broker.max_session_timeout_ms,
        ),
        heartbeat_interval_ms=bounded(
            configs,
            f"{group_type}.heartbeat.interval.ms",
            broker.heartbeat_interval_ms,
            broker.min_heartbeat_interval_ms,
            broker.max_heartbeat_interval_ms,
        ),
        assignment_interval_ms=bounded(
            configs,
            f"{group_type}.assignment.interval.ms",
            broker.assignment_interval_ms,
            broker.min_assignment_interval_ms,
            broker.max_assignment_interval_ms,
        ),
    )


def bounded(configs: Mapping[str, str], key: str, default: int, lowest: int, highest: int) -> int:
    """Value of a group's config, moved to the nearest value within the broker's bounds; `default` if it is not set."""
    return min(max(int(configs[key]), lowest), highest) if key in configs else default
