"""Producer ids of this broker: handed out one by one from blocks of 1,000 that the controller gives (P-59)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.metadata.controller_channel import ControllerChannel
    from pykbroker.metadata.metadata_cache import MetadataCache

ALLOCATION_TIMEOUT_MS = 60_000


class ProducerIds:
    """The rest of the current block. What is left of it at the end is lost, ids are never given twice."""

    def __init__(self, channel: ControllerChannel, metadata: MetadataCache, node_id: int) -> None:
        self._channel = channel
        self._metadata = metadata
        self._node_id = node_id
        self._next_id = 0
        self._end_id = 0
        self._allocating = trio.Lock()

    async def next(self) -> int:
        """A producer id that no one has had.

        Raises:
            KafkaError: the controller gives no block. When none comes in time it is COORDINATOR_LOAD_IN_PROGRESS, upon
                which a producer asks again as of a coordinator that is not ready.
        """
        if self._next_id == self._end_id:
            async with self._allocating:
                # Another caller may have brought a block while this one waited.
                if self._next_id == self._end_id:
                    await self._take_block()
        producer_id = self._next_id
        self._next_id += 1
        return producer_id

    async def _take_block(self) -> None:
        # Imported with the first producer: a start is faster without.
        from pykbroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._metadata.broker_epoch())
        try:
            answer = await self._channel.request(request, ALLOCATION_TIMEOUT_MS)
            code = ErrorCode(answer.error_code)
        except KafkaError as error:
            code = error.error_code
        if code is not ErrorCode.NONE:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in _PASSING else code, "")
        self._next_id, self._end_id = answer.producer_id_start, answer.producer_id_start + answer.producer_id_len


_PASSING = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
    # This broker is about to register anew.
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
)
