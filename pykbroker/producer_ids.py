"""Producer ids of this broker: handed out one by one from blocks of 1,000 that the controller gives (P-59)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pykbroker.controller.metadata.producer_id_blocks import AllocateProducerIds, ProducerIdBlock

if TYPE_CHECKING:
    from pykbroker.controller.node import ControllerNode
    from pykbroker.metadata_cache import MetadataCache

ALLOCATION_TIMEOUT_MS = 60_000


class ProducerIds:
    """The rest of the current block. What is left of it at the end is lost, ids are never given twice."""

    def __init__(self, controller: ControllerNode, metadata: MetadataCache, node_id: int) -> None:
        self._controller = controller
        self._metadata = metadata
        self._node_id = node_id
        self._block = ProducerIdBlock(0, 0)
        self._used_count = 0
        self._allocating = trio.Lock()

    async def next(self) -> int:
        """A producer id that no one has had.

        Raises:
            CommandRefused: the controller gives no block.
        """
        if self._used_count == self._block.id_count:
            async with self._allocating:
                # Another caller may have brought a block while this one waited.
                if self._used_count == self._block.id_count:
                    command = AllocateProducerIds(self._node_id, self._metadata.broker_epoch())
                    self._block = await self._controller.submit(command, ALLOCATION_TIMEOUT_MS)
                    self._used_count = 0
        producer_id = self._block.first_id + self._used_count
        self._used_count += 1
        return producer_id
