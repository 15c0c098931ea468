"""AllocateProducerIds as a command: gives brokers producer ids in blocks, each id once (P-59)."""

from __future__ import annotations

from pykbroker.controller.metadata.brokers import registered_broker
from pykbroker.controller.metadata.commands import CommandRefused, Plan, PlanContext
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ProducerIdsRecord

BLOCK_SIZE = 1000

_INT64_MAX = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    """The ids from `first_id` to `first_id + id_count - 1`."""

    first_id: int
    id_count: int


class AllocateProducerIds(NamedTuple):
    """Allocates the next block to a broker; the result is a ProducerIdBlock of 1,000 ids.

    Raises:
        CommandRefused: STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR when all 2^63 ids are used up.
    """

    broker_id: int
    broker_epoch: int

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[ProducerIdBlock]:
        registered_broker(image, self.broker_id, self.broker_epoch)
        first_id = image.next_producer_id
        if first_id > _INT64_MAX - BLOCK_SIZE:
            raise CommandRefused(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
            )
        record = ProducerIdsRecord(
            broker_id=self.broker_id, broker_epoch=self.broker_epoch, next_producer_id=first_id + BLOCK_SIZE
        )
        return Plan([record], ProducerIdBlock(first_id, BLOCK_SIZE))
