"""Times that all newer group kinds have: of the broker, and of one group within the broker's bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pykbroker.named_tuple import NamedTuple


class MemberTimes(Protocol):
    """Settings of one group kind, in milliseconds; names are those of Kafka's keys after `group.<kind>.`."""

    @property
    def session_timeout_ms(self) -> int: ...
    @property
    def min_session_timeout_ms(self) -> int: ...
    @property
    def max_session_timeout_ms(self) -> int: ...
    @property
    def heartbeat_interval_ms(self) -> int: ...
    @property
    def min_heartbeat_interval_ms(self) -> int: ...
    @property
    def max_heartbeat_interval_ms(self) -> int: ...
    @property
    def assignment_interval_ms(self) -> int: ...
    @property
    def min_assignment_interval_ms(self) -> int: ...
    @property
    def max_assignment_interval_ms(self) -> int: ...


class GroupTimes(NamedTuple):
    """Times of one group, in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def bounded(configs: Mapping[str, str], key: str, default: int, lowest: int, highest: int) -> int:
    """Value of a group's config, moved to the nearest value within the broker's bounds; `default` if it is not set."""
    return min(max(int(configs[key]), lowest), highest) if key in configs else default


def times_of_group(broker: MemberTimes, configs: Mapping[str, str], kind: str) -> GroupTimes:
    """Times of a group from the configs of its GROUP resource, such as `consumer.session.timeout.ms`.

    `kind` is consumer, share or streams.
    """
    return GroupTimes(
        bounded(
            configs,
            f"{kind}.session.timeout.ms",
            broker.session_timeout_ms,
            broker.min_session_timeout_ms,
            broker.max_session_timeout_ms,
        ),
        bounded(
            configs,
            f"{kind}.heartbeat.interval.ms",
            broker.heartbeat_interval_ms,
            broker.min_heartbeat_interval_ms,
            broker.max_heartbeat_interval_ms,
        ),
        bounded(
            configs,
            f"{kind}.assignment.interval.ms",
            broker.assignment_interval_ms,
            broker.min_assignment_interval_ms,
            broker.max_assignment_interval_ms,
        ),
    )
