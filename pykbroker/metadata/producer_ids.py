"""Producer ids of this broker, one after another from blocks of 1,000 that the controller allocates (P-59)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from pykbroker.completion import Completion
from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode, answered_error

if TYPE_CHECKING:
    from pykbroker.metadata.controller_channel import ControllerChannel
    from pykbroker.metadata.metadata_cache import MetadataCache

log = logging.getLogger(__name__)

ALLOCATION_TIMEOUT_MS = 60_000
RETRY_BACKOFF_S = 0.05
"""Pause after a refused allocation, as in Kafka's RPCProducerIdManager."""
WAIT_S = 1.0
"""Longest wait of a request for a block. Some clients give up for good when InitProducerId itself times out."""
PREFETCH_THRESHOLD = 0.9
"""Part of a block after which the next one is requested."""


class ProducerIds:
    """The current block of producer ids, and the next one once it is allocated.

    `run` must be running. Ids that are left when the broker stops are lost; no id is used twice.
    """

    def __init__(self, channel: ControllerChannel, metadata: MetadataCache, node_id: int) -> None:
        self._channel = channel
        self._metadata = metadata
        self._node_id = node_id
        self._current = range(0)
        self._used = 0
        self._next: range | None = None
        self._wanted = trio.Event()
        self._waiting: list[Completion] = []

    async def next(self) -> int:
        """A new producer id.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, which producers retry, if the controller has allocated no block
                within `WAIT_S`. The allocation goes on.
        """
        if self._is_used_up():
            self._wanted.set()
            allocated = Completion()
            self._waiting.append(allocated)
            await allocated.wait(trio.current_time() + WAIT_S)
            if not allocated.is_complete:
                self._waiting.remove(allocated)
            if self._is_used_up():
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Waiting for the next block of producer ids.")
        producer_id = self._current[self._used]
        self._used += 1
        if self._used == int(PREFETCH_THRESHOLD * len(self._current)):
            self._wanted.set()
        return producer_id

    async def run(self) -> None:
        """Allocates a block whenever one is wanted; runs until it is cancelled."""
        while True:
            await self._wanted.wait()
            if self._next is None:
                self._next = await self._allocate()
            self._wanted = trio.Event()
            waiting, self._waiting = self._waiting, []
            for allocated in waiting:
                allocated.complete()
            if self._next is None:
                await trio.sleep(RETRY_BACKOFF_S)

    def _is_used_up(self) -> bool:
        """True if there is no id. Goes on to the next block if there is one."""
        if self._used == len(self._current) and self._next is not None:
            self._current, self._used, self._next = self._next, 0, None
        return self._used == len(self._current)

    async def _allocate(self) -> range | None:
        # Imported with the first producer, which makes a start faster.
        from pykbroker.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._metadata.broker_epoch())
        try:
            answer = await self._channel.request(request, ALLOCATION_TIMEOUT_MS)
            code = answered_error(answer.error_code)
        except KafkaError as error:
            code = error.error_code
        if code is not ErrorCode.NONE:
            log.warning("the active controller allocated no block of producer ids: %s", code.name)
            return None
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)
