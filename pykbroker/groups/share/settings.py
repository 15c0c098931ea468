"""Settings of share groups' membership: those of the broker, and those of a group that override them."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.groups.modern.settings import times_of_group
from pykbroker.named_tuple import NamedTuple


class ShareGroupSettings(NamedTuple):
    """Times in milliseconds; Kafka's defaults. The names are those of Kafka's keys after `group.share.`."""

    session_timeout_ms: int = 45_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    assignment_interval_ms: int = 1_000
    min_assignment_interval_ms: int = 0
    max_assignment_interval_ms: int = 15_000
    max_size: int = 200
    initialize_retry_interval_ms: int = 30_000

    @classmethod
    def from_config(cls, config: BrokerConfig) -> ShareGroupSettings:
        """Settings of share groups from the broker's configuration."""
        share_groups = config.share_groups
        return cls(
            share_groups.session_timeout_ms,
            share_groups.min_session_timeout_ms,
            share_groups.max_session_timeout_ms,
            share_groups.heartbeat_interval_ms,
            share_groups.min_heartbeat_interval_ms,
            share_groups.max_heartbeat_interval_ms,
            share_groups.assignment_interval_ms,
            share_groups.min_assignment_interval_ms,
            share_groups.max_assignment_interval_ms,
            share_groups.max_size,
            share_groups.initialize_retry_interval_ms,
        )

    def of_group(self, configs: Mapping[str, str]) -> ShareGroupSettings:
        """The settings of one group, from the configs of its GROUP resource, kept within the broker's bounds."""
        times = times_of_group(self, configs, "share")
        return self._replace(**times._asdict())
