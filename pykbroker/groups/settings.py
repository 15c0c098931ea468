"""The broker settings that groups obey, as one frozen value with Kafka's defaults."""

from __future__ import annotations

from typing import Any, NamedTuple

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A member that waits in its first join is dropped after this, whatever its timeouts say (P-95); not configurable."""


class GroupSettings(NamedTuple):
    """Names are Kafka's keys; times in milliseconds, sizes in bytes."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_commit_timeout_ms: int = 5_000
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600
    offsets_topic_compression_codec: int = 0

    @classmethod
    def from_config(cls, config: Any) -> GroupSettings:
        """Reads a `BrokerConfig`, whose attributes are Kafka's keys (the retention is in minutes there)."""
        return cls(
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_max_size=config.group_max_size,
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_commit_timeout_ms=config.offsets_commit_timeout_ms,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            offsets_topic_num_partitions=config.offsets_topic_num_partitions,
            offsets_topic_replication_factor=config.offsets_topic_replication_factor,
            offsets_topic_segment_bytes=config.offsets_topic_segment_bytes,
            offsets_topic_compression_codec=config.offsets_topic_compression_codec,
        )
