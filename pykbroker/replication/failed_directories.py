"""Log directories that fail while a broker with several runs: they go offline, with their replicas, until a restart.

As in Kafka (KIP-112, KIP-858): the controller learns of it by the next heartbeat and gives leadership to others. A
broker with a single directory keeps it online (`full_disk`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from pykbroker.logstore.errors import StorageError, StorageFull
from pykbroker.replication.full_disk_rules import can_write

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.replication.partitions import Partitions

log = logging.getLogger(__name__)


class FailedDirectories:
    """Receives the storage errors of the replicas, and takes directories offline in which nothing can be written.

    Args:
        directories: log directories of the broker.
        metadata_path: directory of the metadata log, without which the broker cannot go on.
        on_failure: called when a directory has gone offline.
    """

    is_disk_full = False
    """False: a full directory is a failed one here."""

    def __init__(self, directories: LogDirectories, metadata_path: str, on_failure: Callable[[], None]) -> None:
        self._directories = directories
        self._metadata_path = metadata_path
        self._on_failure = on_failure
        self._reported: list[StorageError] = []
        self._wake = trio.Event()

    def report(self, error: StorageError) -> None:
        """Reports that a record could not be written, or a log not created. The task looks at the directory then."""
        self._reported.append(error)
        self._wake.set()

    async def run(self, partitions: Partitions) -> None:
        """Takes failed directories offline until it is cancelled.

        Raises:
            StorageError: all directories have failed, or the one with the metadata: the broker has to stop.
        """
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            reported, self._reported = self._reported, []
            for error in reported:
                directory_id = self._directories.with_path(error.path)
                if directory_id is not None:
                    self._look(directory_id, error, partitions)

    def _look(self, directory_id: bytes, error: StorageError, partitions: Partitions) -> None:
        directory = self._directories.online[directory_id]
        if not isinstance(error, StorageFull) and can_write(directory.filesystem, directory.path):
            # One file is at fault; housekeeping tries it again.
            return
        lost = self._directories.take_offline(directory_id)
        partitions.take_offline(lost)
        log.error(
            "%s has failed and is offline until the next start, with %d replica(s): %s",
            directory.path,
            len(lost),
            error,
        )
        self._on_failure()
        if directory.path == self._metadata_path:
            raise StorageError(directory.path, "has the metadata log, without which this broker cannot go on")
        if not self._directories.online:
            raise StorageError(directory.path, "was the last log directory of this broker")
