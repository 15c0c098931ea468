"""Transactions of a cluster, at their coordinators and in the partitions (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykbroker.cli.client.calls import TRANSACTION, ClusterCalls
from pykbroker.cli.client.errors import error_text
from pykbroker.cli.errors import CliError
from pykbroker.protocol.topic_partition import TopicPartition

_TRANSACTIONAL_ID_NOT_FOUND = 105
_FENCING_TIMEOUT_MS = 1
"""Transaction timeout of a producer session that only fences and begins no transaction."""


class ClusterTransactions(ClusterCalls):
    """The operations behind `pykbroker transaction`."""

    def transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[dict[str, Any]]:
        """Returns the transactional ids of all coordinators that pass the filters, sorted.

        Each has transactional_id, coordinator_id, producer_id, state.

        Raises:
            CliError: refused, or a coordinator is too old for a filter (duration: Apache Kafka 3.8, pattern: 4.1).
        """
        from kafka.protocol.admin import ListTransactionsRequest

        fields: dict[str, Any] = {"state_filters": list(states), "producer_id_filters": list(producer_ids)}
        version = 0
        if longer_than_ms is not None:
            fields["duration_filter"], version = longer_than_ms, 1
        if pattern is not None:
            fields["transactional_id_pattern"], version = pattern, 2
        rows = []
        for broker in self._ask(lambda: self._admin.describe_cluster())["brokers"]:
            if broker.get("is_fenced"):
                continue
            request = ListTransactionsRequest(**fields, min_version=version)
            response = self._send(request, broker["broker_id"])
            if response.error_code:
                raise CliError(f"the broker refused: {error_text(response.error_code)}")
            rows += [
                {
                    "transactional_id": item.transactional_id,
                    "coordinator_id": broker["broker_id"],
                    "producer_id": item.producer_id,
                    "state": item.transaction_state,
                }
                for item in response.transaction_states
            ]
        return sorted(rows, key=lambda row: str(row["transactional_id"]))

    def describe_transaction(self, transactional_id: str) -> dict[str, Any] | None:
        """Returns the state of a transactional id at its coordinator, None if the id does not exist.

        transactional_id, coordinator_id, state, producer_id, producer_epoch, timeout_ms, start_ms (None: it has
        had no transaction yet), partitions.
        """
        from kafka.protocol.admin import DescribeTransactionsRequest

        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        coordinator_id, response = self._ask_coordinator(
            TRANSACTION, transactional_id, request, lambda answer: answer.transaction_states[0].error_code
        )
        [found] = response.transaction_states
        if found.error_code == _TRANSACTIONAL_ID_NOT_FOUND:
            return None
        if found.error_code:
            raise CliError(f"transactional id {transactional_id}: {error_text(found.error_code)}")
        start_ms = found.transaction_start_time_ms
        return {
            "transactional_id": transactional_id,
            "coordinator_id": coordinator_id,
            "state": found.transaction_state,
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "timeout_ms": found.transaction_timeout_ms,
            "start_ms": start_ms if start_ms >= 0 else None,
            "partitions": [
                {"topic": topic, "partition": partition}
                for topic, partition in sorted(
                    (topic.topic, partition) for topic in found.topics for partition in topic.partitions
                )
            ],
        }

    def producers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[dict[str, Any]]]:
        """Returns the producers of each partition as its leader describes them, sorted by id.

        Each has producer_id, producer_epoch, coordinator_epoch (None: no transaction was ended yet), last_sequence,
        last_timestamp_ms, start_offset of its open transaction (None: none is open).
        """
        import kafka

        wanted = [kafka.TopicPartition(*topic_partition) for topic_partition in partitions]
        found = self._ask(lambda: self._admin.describe_producers(wanted))
        return {
            (topic_partition.topic, topic_partition.partition): sorted(
                (_producer(item) for item in state.active_producers), key=lambda item: int(item["producer_id"])
            )
            for topic_partition, state in found.items()
        }

    def abort_in_partition(
        self, topic_partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int | None
    ) -> None:
        """Has the partition's leader append an abort marker for a producer, whatever the coordinator's state.

        A coordinator epoch of None is sent as 0, as in Kafka's tool: no larger than any that a leader has seen.
        """
        import kafka
        from kafka.admin import AbortTransactionSpec

        spec = AbortTransactionSpec(
            kafka.TopicPartition(*topic_partition), producer_id, producer_epoch, coordinator_epoch or 0
        )
        self._ask(lambda: self._admin.abort_transaction(spec))

    def fence_producer(self, transactional_id: str) -> None:
        """Begins a new session of a transactional id: aborts the open transaction and fences the producer."""
        from kafka.protocol.producer import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=_FENCING_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        # Until the transaction is completed the response is CONCURRENT_TRANSACTIONS, and the request is repeated.
        _, response = self._ask_coordinator(TRANSACTION, transactional_id, request, lambda answer: answer.error_code)
        if response.error_code:
            raise CliError(f"transactional id {transactional_id}: {error_text(response.error_code)}")


def _producer(item: Any) -> dict[str, Any]:
    start_offset, coordinator_epoch = item.current_transaction_start_offset, item.coordinator_epoch
    return {
        "producer_id": item.producer_id,
        "producer_epoch": item.producer_epoch,
        "coordinator_epoch": coordinator_epoch if coordinator_epoch >= 0 else None,
        "last_sequence": item.last_sequence,
        "last_timestamp_ms": item.last_timestamp,
        "start_offset": start_offset if start_offset >= 0 else None,
    }
