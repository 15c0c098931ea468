"""WriteTxnMarkers (key 27): appends transaction markers to partitions of this broker (KIP-98).

Versions 1-2. v2 transaction_version, by which a marker's epoch is checked (KIP-1228, P-136). Sent by transaction
coordinators on other brokers, and by administrators who abort a hanging transaction (KIP-664, P-141).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pykbroker.controller.turns import EachInTurns
from pykbroker.coordination.transaction_marker import TransactionMarker, WrittenMarker
from pykbroker.protocol.acl_codes import ALTER, CLUSTER_ACTION
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from pykbroker.replication.transaction_markers import MarkerWriter

if TYPE_CHECKING:
    from pykbroker.protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
    from pykbroker.requests.context import BrokerContext

PartitionResults = dict[str, dict[int, WrittenMarker]]
Results = dict[int, PartitionResults]
"""Producer id -> topic -> partition -> result of the append."""


async def handle_write_txn_markers(context: BrokerContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Appends every marker to each of its partitions; a producer that is named twice is in the response once."""
    is_authorized = context.authorize_cluster(ALTER) or context.authorize_cluster(CLUSTER_ACTION)
    if not is_authorized and context.quota is not None:
        context.quota.is_refused = True
    services = context.services
    writer = MarkerWriter(services.partitions, services.groups, services.clock)
    results: Results = {}
    async for asked in EachInTurns(request.markers):
        await _write(writer if is_authorized else None, asked, results.setdefault(asked.producer_id, {}))
    await _wait_replicated(results, trio.current_time() + services.config.request_timeout_ms / 1000)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=written.error)
                            async for index, written in EachInTurns(partitions.items())
                        ],
                    )
                    async for topic, partitions in EachInTurns(topics.items())
                ],
            )
            async for producer_id, topics in EachInTurns(results.items())
            # A refusal names also producers without partitions, as in Kafka.
            if topics or not is_authorized
        ]
    )


async def _write(writer: MarkerWriter | None, asked: WritableTxnMarker, results: PartitionResults) -> None:
    """Appends a marker to its partitions; refuses all without a writer: the client needs ALTER or CLUSTER_ACTION."""
    marker = TransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        asked.transaction_version,
    )
    async for topic in EachInTurns(asked.topics):
        async for index in EachInTurns(topic.partition_indexes):
            if writer is None:
                written = WrittenMarker(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            else:
                written = writer.write(marker, topic.name, index)
            results.setdefault(topic.name, {})[index] = written


async def _wait_replicated(results: Results, deadline: float) -> None:
    """Waits until the appended markers are replicated, and replaces each with its error code."""
    for topics in results.values():
        for partitions in topics.values():
            for index, written in partitions.items():
                if written.replication is not None:
                    partitions[index] = WrittenMarker(await written.replication.wait_replicated(deadline))
