"""What an internal topic looks like when it is created by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pykbroker.groups.partitioning import OFFSETS_TOPIC
from pykbroker.groups.settings import GroupSettings


class InternalTopic(NamedTuple):
    """A topic to be created through the controller; `configs` in Kafka's names and texts."""

    name: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


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
