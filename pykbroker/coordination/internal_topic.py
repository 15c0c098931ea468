"""The topics of the coordinators: their partitions, replicas and configs, and their creation.

A topic is created when a client first looks for its coordinator, once at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from pykbroker.coordination.partitioning import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from pykbroker.named_tuple import NamedTuple

if TYPE_CHECKING:
    import trio

    from pykbroker.config.values import GroupValues, ShareCoordinatorValues, TransactionValues

log = logging.getLogger(__name__)


class InternalTopic(NamedTuple):
    """A topic to be created through the controller.

    Attributes:
        configured_replicas: the replication factor in the broker's settings.
        replication_factor: the same, but at most the number of live brokers: a single node could otherwise never
            create the topic (P-89).
        configs: Kafka's keys and values, as text.
    """

    name: str
    partition_count: int
    configured_replicas: int
    replication_factor: int
    configs: Mapping[str, str]


def offsets_topic(groups: GroupValues, live_broker_count: int) -> InternalTopic:
    """`__consumer_offsets` as it is created (P-89, P-117)."""
    return _internal_topic(
        OFFSETS_TOPIC,
        groups.offsets_topic_num_partitions,
        groups.offsets_topic_replication_factor,
        live_broker_count,
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(groups.offsets_topic_segment_bytes),
        },
    )


def transaction_topic(transactions: TransactionValues, live_broker_count: int) -> InternalTopic:
    """`__transaction_state` as it is created (P-89); min.insync.replicas is at most the number of live brokers."""
    return _internal_topic(
        TRANSACTION_TOPIC,
        transactions.state_log_num_partitions,
        transactions.state_log_replication_factor,
        live_broker_count,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(transactions.state_log_min_isr, max(live_broker_count, 1))),
            "segment.bytes": str(transactions.state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )


def share_state_topic(share_coordinator: ShareCoordinatorValues, live_broker_count: int) -> InternalTopic:
    """`__share_group_state` as it is created (KIP-932): records are deleted by the coordinator alone.

    min.insync.replicas is at most the number of live brokers.
    """
    return _internal_topic(
        SHARE_STATE_TOPIC,
        share_coordinator.state_topic_num_partitions,
        share_coordinator.state_topic_replication_factor,
        live_broker_count,
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(min(share_coordinator.state_topic_min_isr, max(live_broker_count, 1))),
            "retention.ms": "-1",
            "segment.bytes": str(share_coordinator.state_topic_segment_bytes),
        },
    )


def _internal_topic(
    name: str, partition_count: int, replicas: int, live_broker_count: int, configs: Mapping[str, str]
) -> InternalTopic:
    return InternalTopic(name, partition_count, replicas, max(1, min(replicas, live_broker_count)), configs)


class TopicCreation:
    """Creates one internal topic, with at most one creation in flight.

    Args:
        create: creates a topic through the controller. It may fail, as the client sends FindCoordinator again.
    """

    def __init__(self, create: Callable[[InternalTopic], Awaitable[None]]) -> None:
        self._create = create
        self._is_under_way = False

    def start(self, nursery: trio.Nursery, topic: InternalTopic) -> None:
        """Starts the creation, unless one is in flight; logs if it gets fewer replicas than configured (P-117)."""
        if self._is_under_way:
            return
        self._is_under_way = True
        given, configured = topic.replication_factor, topic.configured_replicas
        if given < configured:
            log.info(
                "%s gets %d replica(s), as many as there are brokers, and not the configured %d",
                topic.name,
                given,
                configured,
            )
        nursery.start_soon(self._create_and_log, topic)

    async def _create_and_log(self, topic: InternalTopic) -> None:
        try:
            await self._create(topic)
        except Exception as error:
            log.warning("topic %s could not be created; the next FindCoordinator tries again: %s", topic.name, error)
        finally:
            self._is_under_way = False
