"""Times that all types of modern groups have: of the broker, and of one group within the broker's bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pykbroker.named_tuple import NamedTuple

if TYPE_CHECKING:
    from pykbroker.config.values import MemberTimeValues


class MemberTimes(NamedTuple):
    """Times of the members of one group type, in ms, with Kafka's names after `group.<type>.`."""

    session_timeout_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    heartbeat_interval_ms: int
    min_heartbeat_interval_ms: int
    max_heartbeat_interval_ms: int
    assignment_interval_ms: int
    min_assignment_interval_ms: int
    max_assignment_interval_ms: int

    @classmethod
    def from_values(cls, values: MemberTimeValues) -> MemberTimes:
        """Times from the broker's configuration of one group type."""
        return cls(
            values.session_timeout_ms,
            values.min_session_timeout_ms,
            values.max_session_timeout_ms,
            values.heartbeat_interval_ms,
            values.min_heartbeat_interval_ms,
            values.max_heartbeat_interval_ms,
            values.assignment_interval_ms,
            values.min_assignment_interval_ms,
            values.max_assignment_interval_ms,
        )

    def of_group(self, group_type: str, configs: Mapping[str, str]) -> MemberTimes:
        """Times of one group, from the configs of its GROUP resource, such as `consumer.session.timeout.ms`.

        Args:
            group_type: consumer, share or streams.
        """
        return self._replace(
            session_timeout_ms=bounded(
                configs,
                f"{group_type}.session.timeout.ms",
                self.session_timeout_ms,
                self.min_session_timeout_ms,
                self.max_session_timeout_ms,
            ),
            heartbeat_interval_ms=bounded(
                configs,
                f"{group_type}.heartbeat.interval.ms",
                self.heartbeat_interval_ms,
                self.min_heartbeat_interval_ms,
                self.max_heartbeat_interval_ms,
            ),
            assignment_interval_ms=bounded(
                configs,
                f"{group_type}.assignment.interval.ms",
                self.assignment_interval_ms,
                self.min_assignment_interval_ms,
                self.max_assignment_interval_ms,
            ),
        )


def bounded(configs: Mapping[str, str], key: str, default: int, lowest: int, highest: int) -> int:
    """Value of a group's config, moved to the nearest value within the broker's bounds; `default` if it is not set."""
    return min(max(int(configs[key]), lowest), highest) if key in configs else default
