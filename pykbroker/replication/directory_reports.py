"""DirectoryReports: reports the log directory of each replica to the controller (AssignReplicasToDirs, KIP-858).

The controller assigns the directory only where a broker has a single one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from pykbroker.replication.directory_assignments import REPLICAS_PER_REQUEST, assign_replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.replication.directory_assignments import Channel

log = logging.getLogger(__name__)

RETRY_S = 0.5

Replica = tuple[bytes, bytes, int]
"""Directory id, topic id, partition."""


class DirectoryReports:
    """Task of a broker with several directories. Call `apply` with each image, after `Partitions.apply`.

    Args:
        node_id: this broker.
        directories: its log directories.
        image: returns the newest image.
        channel: connection to the active controller.

    Attributes:
        target_of: returns the id of the directory to report for a replica that moves, instead of its present one; None
            for a replica that does not move, or whose copy is not complete.
    """

    def __init__(
        self, node_id: int, directories: LogDirectories, image: Callable[[], ClusterImage], channel: Channel
    ) -> None:
        self.target_of: Callable[[str, int], bytes | None] = lambda topic, partition: None
        self._node_id = node_id
        self._directories = directories
        self._image = image
        self._channel = channel
        self._wake = trio.Event()

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Reports new replicas. A subscriber of metadata changes."""
        if new.delta.created_topics or new.delta.changed_topics:
            self._wake.set()

    def report_now(self) -> None:
        """Checks all replicas now, after a move of a replica has begun or ended."""
        self._wake.set()

    async def run(self) -> None:
        """Reports replicas until it is cancelled."""
        while True:
            wake = self._wake
            replicas = list(self._unreported())
            for start in range(0, len(replicas), REPLICAS_PER_REQUEST):
                await self._report(replicas[start : start + REPLICAS_PER_REQUEST])
            with trio.move_on_after(RETRY_S if replicas else float("inf")):
                await wake.wait()
            if wake.is_set() and self._wake is wake:
                self._wake = trio.Event()

    def _unreported(self) -> Iterator[Replica]:
        """Replicas whose directory differs from that in the metadata."""
        image = self._image()
        if self._node_id not in image.brokers:
            return
        for directory_id, directory in self._directories.online.items():
            for name, number in directory.logs:
                topic = image.topics_by_name.get(name)
                partition = None if topic is None else topic.partitions.get(number)
                if topic is None or partition is None:
                    continue
                wanted = self.target_of(name, number) or directory_id
                if partition.directory_on(self._node_id) not in (None, wanted):
                    yield wanted, topic.topic_id, number

    async def _report(self, replicas: list[Replica]) -> None:
        broker = self._image().brokers.get(self._node_id)
        if broker is None:  # it was unregistered (UnregisterBroker) during an earlier request
            return
        failure = await assign_replicas(self._channel, self._node_id, broker.epoch, replicas)
        if failure is not None:
            log.warning("the log directories of %d replica(s) could not be reported: %s", len(replicas), failure)
