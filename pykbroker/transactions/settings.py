"""The broker settings of transactions, as one immutable value with Kafka's defaults."""

from __future__ import annotations

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.coordination.internal_topic import InternalTopic
from pykbroker.coordination.partitioning import TRANSACTION_TOPIC
from pykbroker.named_tuple import NamedTuple


class TransactionSettings(NamedTuple):
    """Names are Kafka's keys; times in milliseconds, sizes in bytes."""

    request_timeout_ms: int = 30_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_max_timeout_ms: int = 900_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_state_log_min_isr: int = 2
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_segment_bytes: int = 104_857_600
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000

    @classmethod
    def from_config(cls, config: BrokerConfig) -> TransactionSettings:
        """Settings of transactions from the broker's configuration."""
        transactions = config.transactions
        return cls(
            request_timeout_ms=config.request_timeout_ms,
            transaction_abort_timed_out_transaction_cleanup_interval_ms=(
                transactions.abort_timed_out_transaction_cleanup_interval_ms
            ),
            transaction_max_timeout_ms=transactions.max_timeout_ms,
            transaction_remove_expired_transaction_cleanup_interval_ms=(
                transactions.remove_expired_transaction_cleanup_interval_ms
            ),
            transaction_state_log_min_isr=transactions.state_log_min_isr,
            transaction_state_log_num_partitions=transactions.state_log_num_partitions,
            transaction_state_log_replication_factor=transactions.state_log_replication_factor,
            transaction_state_log_segment_bytes=transactions.state_log_segment_bytes,
            transactional_id_expiration_ms=transactions.transactional_id_expiration_ms,
        )

    def transaction_topic(self, live_broker_count: int) -> InternalTopic:
        """`__transaction_state` as it is created (P-89).

        Its replication factor and min.insync.replicas are at most the number of live brokers.
        """
        return InternalTopic(
            TRANSACTION_TOPIC,
            self.transaction_state_log_num_partitions,
            max(1, min(self.transaction_state_log_replication_factor, live_broker_count)),
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(self.transaction_state_log_min_isr, max(live_broker_count, 1))),
                "segment.bytes": str(self.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
