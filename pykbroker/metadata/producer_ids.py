"""Producer ids of this broker, one after another from blocks of 1,000 that the controller allocates (P-59)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode, answered_error

if TYPE_CHECKING:
    from pykbroker.metadata.controller_channel import ControllerChannel
    from pykbroker.metadata.metadata_cache import MetadataCache

ALLOCATION_TIMEOUT_MS = 60_000


class ProducerIds:
    """The current block of producer ids. Ids that are left when the broker stops are lost; no id is used twice."""

    def __init__(self, channel: ControllerChannel, metadata: MetadataCache, node_id: int) -> None:
        self._channel = channel
        self._metadata = metadata
        self._node_id = node_id
        self._next_id = 0
        self._end_id = 0
        self._allocating = trio.Lock()

    async def next(self) -> int:
        """A new producer id.

        Raises:
            KafkaError: the controller allocates no block: COORDINATOR_LOAD_IN_PROGRESS, which producers retry, if that
                can pass, else the controller's error.
        """
        if self._next_id == self._end_id:
            async with self._allocating:
                # Another task may have fetched a block while this one waited for the lock.
                if self._next_id == self._end_id:
                    await self._take_block()
        producer_id = self._next_id
        self._next_id += 1
        return producer_id

    async def _take_block(self) -> None:
        # Imported with the first producer, which makes a start faster.
        from pykbroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._metadata.broker_epoch())
        try:
            answer = await self._channel.request(request, ALLOCATION_TIMEOUT_MS)
            code = answered_error(answer.error_code)
        except KafkaError as error:
            code = error.error_code
        if code is not ErrorCode.NONE:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in _PASSING else code, "")
        self._next_id, self._end_id = answer.producer_id_start, answer.producer_id_start + answer.producer_id_len


_PASSING = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
    # This broker is about to register again.
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
)
