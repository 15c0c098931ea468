"""Settings of one modern group: those of its GROUP resource, kept within the broker's bounds."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.values import MemberTimeValues


def times_of_group(broker: MemberTimeValues, group_type: str, configs: Mapping[str, str]) -> MemberTimeValues:
    """Times of one group, from the configs of its GROUP resource, such as `consumer.session.timeout.ms`.

    Args:
        broker: the broker's times of this type of groups.
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
