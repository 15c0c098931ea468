"""What `__consumer_offsets` looks like when it is created by itself."""

from __future__ import annotations

from pykbroker.coordination.internal_topic import InternalTopic
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.groups.settings import GroupSettings


def offsets_topic(settings: GroupSettings, live_broker_count: int) -> InternalTopic:
    """`__consumer_offsets`, with no more replicas than there are brokers (P-89, P-117)."""
    return InternalTopic(
        OFFSETS_TOPIC,
        settings.offsets_topic_num_partitions,
        max(1, min(settings.offsets_topic_replication_factor, live_broker_count)),
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.offsets_topic_segment_bytes),
        },
    )
