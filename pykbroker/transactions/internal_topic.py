"""What `__transaction_state` looks like when it is created by itself."""

from __future__ import annotations

from pykbroker.coordination.internal_topic import InternalTopic
from pykbroker.coordination.partitioning import TRANSACTION_TOPIC
from pykbroker.transactions.settings import TransactionSettings


def transaction_topic(settings: TransactionSettings, live_broker_count: int) -> InternalTopic:
    """`__transaction_state`, with no more replicas, nor in-sync ones demanded, than there are brokers (P-89)."""
    replicas = max(1, min(settings.transaction_state_log_replication_factor, live_broker_count))
    return InternalTopic(
        TRANSACTION_TOPIC,
        settings.transaction_state_log_num_partitions,
        replicas,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(settings.transaction_state_log_min_isr, max(live_broker_count, 1))),
            "segment.bytes": str(settings.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )
