"""Reports to the controller in which log directory each replica of this broker is (AssignReplicasToDirs, KIP-858).

The controller assigns the directory only where a broker has a single one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import answered_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.replication.full_disk import Channel

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 5000
REQUEST_SIZE_MAX = 2000
"""Replicas of one request, as in Kafka's AssignmentsManager."""
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
        target_of: returns the id of the directory to report for a replica that moves, instead of the one where it is;
            None for one that does not move, or not yet.
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
        """Looks for new replicas. A subscriber of metadata changes."""
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
            for start in range(0, len(replicas), REQUEST_SIZE_MAX):
                await self._report(replicas[start : start + REQUEST_SIZE_MAX])
            with trio.move_on_after(RETRY_S if replicas else float("inf")):
                await wake.wait()
            if wake.is_set() and self._wake is wake:
                self._wake = trio.Event()

    def _unreported(self) -> Iterator[Replica]:
        """Replicas whose directory is another one than the metadata says."""
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
        from pykbroker.protocol.messages.assign_replicas_to_dirs import (
            AssignReplicasToDirsRequest,
            DirectoryData,
            PartitionData,
            TopicData,
        )

        directories: dict[bytes, dict[bytes, list[Any]]] = {}
        for directory_id, topic_id, number in replicas:
            topics = directories.setdefault(directory_id, {})
            topics.setdefault(topic_id, []).append(PartitionData(partition_index=number))
        request = AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._image().brokers[self._node_id].epoch,
            directories=[
                DirectoryData(
                    id=directory_id,
                    topics=[
                        TopicData(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )
        try:
            response = await self._channel.request(request, REQUEST_TIMEOUT_MS)
        except KafkaError as error:
            log.warning("the controller was not told the log directories of %d replica(s): %s", len(replicas), error)
            return
        if response.error_code:
            code = answered_error(response.error_code).name
            log.warning("the controller did not take the log directories of %d replica(s): %s", len(replicas), code)
