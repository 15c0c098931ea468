"""The broker settings of the share coordinator, as one immutable value with Kafka's defaults."""

from __future__ import annotations

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.coordination.internal_topic import InternalTopic
from pykbroker.coordination.partitioning import SHARE_STATE_TOPIC
from pykbroker.named_tuple import NamedTuple


class ShareStateSettings(NamedTuple):
    """Names are those of Kafka's keys after `share.coordinator.`; times in milliseconds, sizes in bytes."""

    write_timeout_ms: int = 5_000
    snapshot_update_records_per_snapshot: int = 500
    cold_partition_snapshot_interval_ms: int = 300_000
    state_topic_compression_codec: int = 0
    state_topic_min_isr: int = 2
    state_topic_num_partitions: int = 50
    state_topic_prune_interval_ms: int = 300_000
    state_topic_replication_factor: int = 3
    state_topic_segment_bytes: int = 104_857_600

    @classmethod
    def from_config(cls, config: BrokerConfig) -> ShareStateSettings:
        """Settings from the broker's configuration."""
        share_coordinator = config.share_coordinator
        return cls(
            write_timeout_ms=share_coordinator.write_timeout_ms,
            snapshot_update_records_per_snapshot=share_coordinator.snapshot_update_records_per_snapshot,
            cold_partition_snapshot_interval_ms=share_coordinator.cold_partition_snapshot_interval_ms,
            state_topic_compression_codec=share_coordinator.state_topic_compression_codec,
            state_topic_min_isr=share_coordinator.state_topic_min_isr,
            state_topic_num_partitions=share_coordinator.state_topic_num_partitions,
            state_topic_prune_interval_ms=share_coordinator.state_topic_prune_interval_ms,
            state_topic_replication_factor=share_coordinator.state_topic_replication_factor,
            state_topic_segment_bytes=share_coordinator.state_topic_segment_bytes,
        )

    def state_topic(self, live_broker_count: int) -> InternalTopic:
        """`__share_group_state` as it is created (KIP-932): records are deleted by the coordinator alone.

        Its replication factor and min.insync.replicas are at most the number of live brokers.
        """
        return InternalTopic(
            SHARE_STATE_TOPIC,
            self.state_topic_num_partitions,
            max(1, min(self.state_topic_replication_factor, live_broker_count)),
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(min(self.state_topic_min_isr, max(live_broker_count, 1))),
                "retention.ms": "-1",
                "segment.bytes": str(self.state_topic_segment_bytes),
            },
        )
