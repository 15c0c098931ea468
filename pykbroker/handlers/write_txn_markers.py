"""WriteTxnMarkers (key 27): write the end of transactions into partitions of this broker (KIP-98).

Versions 1-2. v2 transaction_version, by which a marker's epoch is judged (KIP-1228, P-136). Sent by transaction
coordinators on other brokers, and by administrators who abort a hanging transaction (KIP-664, P-141).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from pykbroker.transaction_markers import MarkerWriter, TransactionMarker

if TYPE_CHECKING:
    from pykbroker.protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
    from pykbroker.request_context import RequestContext


async def handle_write_txn_markers(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Writes every marker into each of its partitions; a producer that is named twice is answered once."""
    services = context.services
    writer = MarkerWriter(services.partitions, services.groups, services.clock)
    results: dict[int, dict[str, dict[int, int]]] = {}
    for asked in request.markers:
        _write(writer, asked, results.setdefault(asked.producer_id, {}))
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error_code)
                            for index, error_code in partitions.items()
                        ],
                    )
                    for topic, partitions in topics.items()
                ],
            )
            for producer_id, topics in results.items()
        ]
    )


def _write(writer: MarkerWriter, asked: WritableTxnMarker, results: dict[str, dict[int, int]]) -> None:
    marker = TransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        asked.transaction_version,
    )
    for topic in asked.topics:
        for index in topic.partition_indexes:
            results.setdefault(topic.name, {})[index] = writer.write(marker, topic.name, index)
