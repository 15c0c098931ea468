"""The broker settings of groups, as one immutable value."""

from __future__ import annotations

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.values import GroupValues
from pykbroker.groups.consumer.settings import ConsumerGroupSettings
from pykbroker.groups.share.settings import ShareGroupSettings
from pykbroker.groups.streams.settings import StreamsGroupSettings
from pykbroker.named_tuple import NamedTuple

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A member whose first join is parked is removed after this, whatever its timeouts are (P-95); not configurable."""


class GroupSettings(NamedTuple):
    """Times in ms, sizes in bytes. Kafka's defaults stand in config/definitions/broker.py alone."""

    classic: GroupValues
    consumer: ConsumerGroupSettings
    share: ShareGroupSettings
    streams: StreamsGroupSettings
    offset_metadata_max_bytes: int
    offsets_retention_ms: int

    @classmethod
    def from_config(cls, config: BrokerConfig) -> GroupSettings:
        """Settings of groups from the broker's configuration, where the retention of offsets is in minutes."""
        return cls(
            config.groups,
            ConsumerGroupSettings.from_config(config),
            ShareGroupSettings.from_config(config),
            StreamsGroupSettings.from_config(config),
            config.groups.offset_metadata_max_bytes,
            config.groups.offsets_retention_minutes * 60_000,
        )
