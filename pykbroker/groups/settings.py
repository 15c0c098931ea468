"""The broker settings of groups, as one immutable value with Kafka's defaults."""

from __future__ import annotations

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.groups.consumer.settings import ConsumerGroupSettings
from pykbroker.groups.share.settings import ShareGroupSettings
from pykbroker.groups.streams.settings import StreamsGroupSettings
from pykbroker.named_tuple import NamedTuple

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A member whose first join is parked is removed after this, whatever its timeouts are (P-95); not configurable."""


class GroupSettings(NamedTuple):
    """Names are Kafka's keys; times in milliseconds, sizes in bytes."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    consumer: ConsumerGroupSettings = ConsumerGroupSettings()
    share: ShareGroupSettings = ShareGroupSettings()
    streams: StreamsGroupSettings = StreamsGroupSettings()

    @classmethod
    def from_config(cls, config: BrokerConfig) -> GroupSettings:
        """Settings of groups from the broker's configuration, where the retention of offsets is in minutes."""
        return cls(
            group_min_session_timeout_ms=config.groups.min_session_timeout_ms,
            group_max_session_timeout_ms=config.groups.max_session_timeout_ms,
            group_max_size=config.groups.max_size,
            group_initial_rebalance_delay_ms=config.groups.initial_rebalance_delay_ms,
            offset_metadata_max_bytes=config.groups.offset_metadata_max_bytes,
            offsets_retention_ms=config.groups.offsets_retention_minutes * 60_000,
            consumer=ConsumerGroupSettings.from_config(config),
            share=ShareGroupSettings.from_config(config),
            streams=StreamsGroupSettings.from_config(config),
        )
