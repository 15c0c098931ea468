"""Responses for the partitions of a Produce request whose records were not appended (P-36, P-43, KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykbroker.errors import error_code_for
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
)
from pykbroker.protocol.records.errors import RecordError
from pykbroker.requests.leader_hints import add_endpoint

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import PartitionImage
    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerContext
    from pykbroker.requests.transaction_verification import ClientGeneration

LEADER_HINT_VERSION = 10
TOPIC_ID_VERSION: Final = 13

WITH_LOG_START = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.POLICY_VIOLATION,
}
"""Errors of the log with which the log start offset is sent; a producer's reaction can depend on it."""


class LeaderHints:
    """Leaders named in the errors of one response; in v10 and later (KIP-951).

    Attributes:
        endpoints: addresses of the leaders named so far.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.endpoints: list[NodeEndpoint] = []

    def name_leader_of(self, partition: Partition, response: PartitionProduceResponse) -> None:
        """Puts the present leader of a partition, which this broker led before, into its error."""
        image = self._context.services.metadata.topic(partition.topic)
        found = None if image is None else image.partitions.get(partition.partition)
        if found is not None:
            self.name_leader(response, found)

    def name_leader(self, response: PartitionProduceResponse, image: PartitionImage) -> None:
        """Puts the leader of a partition into its error."""
        if self._context.api_version < LEADER_HINT_VERSION:
            return
        response.current_leader = LeaderIdAndEpoch(leader_id=image.leader, leader_epoch=image.leader_epoch)
        add_endpoint(self._context, self.endpoints, image.leader, NodeEndpoint)


def failure(index: int, error_code: ErrorCode) -> PartitionProduceResponse:
    """A partition's error; both offsets are -1."""
    return PartitionProduceResponse(index=index, error_code=error_code, base_offset=-1, log_start_offset=-1)


def append_failure(index: int, error: Exception, partition: Partition) -> PartitionProduceResponse:
    """The error of an append, in v8 and later with the invalid records and the reasons (P-36)."""
    response = failure(index, error_code_for(error))
    if isinstance(error, RecordError):
        has_log_start = error.reports_log_start_offset
        if error.record_errors:
            response.error_message = str(error)
            response.record_errors = [
                BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message)
                for number, message in error.record_errors
            ]
    else:
        has_log_start = response.error_code in WITH_LOG_START
    if has_log_start:
        response.log_start_offset = partition.log.log_start_offset
    return response


def verification_failure(index: int, code: ErrorCode, client: ClientGeneration) -> PartitionProduceResponse:
    """The error of a partition that could not be verified as part of a transaction (P-135)."""
    from pykbroker.requests.transaction_verification import produce_error

    error = produce_error(code, client)
    response = failure(index, error.error_code)
    response.error_message = error.message or None
    return response
