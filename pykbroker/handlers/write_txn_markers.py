"""WriteTxnMarkers (key 27): write the end of transactions into partitions of this broker (KIP-98).

Versions 1-2. v2 transaction_version, by which a marker's epoch is judged (KIP-1228, P-136). Sent by transaction
coordinators on other brokers, and by administrators who abort a hanging transaction (KIP-664, P-141).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.acl_codes import ALTER, CLUSTER_ACTION
from pykbroker.protocol.error_codes import ErrorCode
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
    is_authorized = context.authorize_cluster(ALTER) or context.authorize_cluster(CLUSTER_ACTION)
    services = context.services
    writer = MarkerWriter(services.partitions, services.groups, services.clock)
    results: dict[int, dict[str, dict[int, int]]] = {}
    for asked in request.markers:
        _write(writer if is_authorized else None, asked, results.setdefault(asked.producer_id, {}))
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
            if topics
        ]
    )


def _write(writer: MarkerWriter | None, asked: WritableTxnMarker, results: dict[str, dict[int, int]]) -> None:
    """Without a writer all is refused: the client must be allowed to ALTER the cluster, or be one of its brokers."""
    marker = TransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        asked.transaction_version,
    )
    for topic in asked.topics:
        for index in topic.partition_indexes:
            error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if writer is not None:
                error = writer.write(marker, topic.name, index)
            results.setdefault(topic.name, {})[index] = error
