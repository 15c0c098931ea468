"""AddOffsetsToTxn (key 25): adds the offsets of a group to a transaction.

Versions 0-4. v2 PRODUCER_FENCED; v3 flexible; v4 TRANSACTION_ABORTABLE (KIP-890). It adds the partition of
`__consumer_offsets` that stores the group. Clients of transaction.version 2 do not send it. Needs WRITE on the
transactional id and READ on the group.
"""

from __future__ import annotations

from pykbroker.coordination.partitioning import OFFSETS_TOPIC, coordinator_partition
from pykbroker.protocol.acl_codes import GROUP, READ, TRANSACTIONAL_ID, WRITE
from pykbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.fenced_producer import error_for_producer
from pykbroker.transactions.states import ProducerIdentity


async def handle_add_offsets_to_txn(context: BrokerContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Adds the group's partition to the transaction."""
    context.require(WRITE, TRANSACTIONAL_ID, request.transactional_id)
    context.require(READ, GROUP, request.group_id)
    services = context.services
    topic = services.metadata.topic(OFFSETS_TOPIC)
    partition_count = services.config.groups.offsets_topic_num_partitions if topic is None else len(topic.partitions)
    producer = ProducerIdentity(request.transactional_id, request.producer_id, request.producer_epoch)
    offsets_partition = (OFFSETS_TOPIC, coordinator_partition(request.group_id, partition_count))
    error = await services.transactions.add_partitions(producer, [offsets_partition], client_version=0)
    return AddOffsetsToTxnResponse(error_code=error_for_producer(context, error))
