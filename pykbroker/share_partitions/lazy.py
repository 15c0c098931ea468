"""The share partitions of a broker, made with the first request that needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.share_partitions.registry import SharePartitions


class LazySharePartitions:
    """Access to `SharePartitions`, whose code is imported when it is needed.

    Args:
        make: returns the share partitions, given a nursery for their tasks.
    """

    __slots__ = ("_made", "_make", "_nursery")

    def __init__(self, make: Callable[[trio.Nursery], SharePartitions]) -> None:
        self._make = make
        self._made: SharePartitions | None = None
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps a nursery for the tasks of share partitions, until it is cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def get(self) -> SharePartitions:
        """The share partitions; `run` is running."""
        if self._made is None:
            assert self._nursery is not None
            self._made = self._make(self._nursery)
            self._nursery.start_soon(self._made.run)
        return self._made

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Passes on a change of the metadata, if there are share partitions."""
        if self._made is not None:
            self._made.on_metadata_change(old, new)
