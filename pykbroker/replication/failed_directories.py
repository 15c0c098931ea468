"""Log directories that fail while a broker with several runs: they go offline, with their replicas, until a restart.

As in Kafka (KIP-112, KIP-858): the next heartbeat reports the failure, and the controller elects other leaders. A
broker with a single directory keeps it online (`full_disk`).
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import trio

from pykbroker.logstore.errors import CorruptSegment, StorageError, StorageFull
from pykbroker.replication.full_disk_rules import can_write

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.replication.partitions import Partitions

log = logging.getLogger(__name__)


class FailedDirectories:
    """Receives the storage errors of the replicas, and takes directories offline in which nothing can be written.

    Args:
        directories: log directories of the broker.
        metadata_path: directory of the metadata log, without which the broker cannot go on.
        on_failure: called when a directory has gone offline.
        registered_ids: returns the ids that the cluster's metadata has as this broker's directories; () for a broker
            that reports to no controller.
        report_timeout_s: time within which the metadata must have the failure (`log.dir.failure.timeout.ms`).
    """

    is_disk_full = False
    """False: a full directory is a failed one here."""

    def __init__(
        self,
        directories: LogDirectories,
        metadata_path: str,
        on_failure: Callable[[], None],
        registered_ids: Callable[[], Collection[bytes]],
        report_timeout_s: float,
    ) -> None:
        self._directories = directories
        self._metadata_path = metadata_path
        self._on_failure = on_failure
        self._registered_ids = registered_ids
        self._report_timeout_s = report_timeout_s
        # Time at which the metadata must have each failure.
        self._deadlines: dict[bytes, float] = {}
        self._reported: list[StorageError] = []
        self._wake = trio.Event()

    def report(self, error: StorageError) -> None:
        """Reports that a file could not be written or read. The task then checks the directory."""
        if not isinstance(error, CorruptSegment):  # each read of a damaged batch would write to the directory
            self._reported.append(error)
            self._wake.set()

    async def run(self, partitions: Partitions) -> None:
        """Takes failed directories offline until it is cancelled.

        Raises:
            StorageError: all directories have failed, or the one with the metadata, or the controller was not
                informed of a failure in time and may leave leadership to replicas that are offline: the broker has to
                stop.
        """
        for failed_id, path in self._directories.offline.items():
            # A directory that is offline here has failed while its logs were loaded.
            self._expect_report(failed_id, path)
        while True:
            with trio.move_on_at(min(self._deadlines.values(), default=math.inf)):
                await self._wake.wait()
            self._check_deadlines()
            self._wake = trio.Event()
            reported, self._reported = self._reported, []
            for error in reported:
                directory_id = self._directories.id_of_path(error.path)
                if directory_id is not None:
                    self._check(directory_id, error, partitions)

    def _check_deadlines(self) -> None:
        now = trio.current_time()
        for directory_id in [known for known, deadline in self._deadlines.items() if now >= deadline]:
            del self._deadlines[directory_id]
            if directory_id in self._registered_ids():
                raise StorageError(
                    self._directories.offline[directory_id],
                    f"has failed, and the controller did not learn it within {self._report_timeout_s:.0f} s "
                    "(log.dir.failure.timeout.ms)",
                )

    def _check(self, directory_id: bytes, error: StorageError, partitions: Partitions) -> None:
        directory = self._directories.online[directory_id]
        if not isinstance(error, StorageFull) and can_write(directory.filesystem, directory.path):
            # Only one file has failed; housekeeping tries it again.
            return
        lost = self._directories.take_offline(directory_id)
        partitions.take_offline(lost)
        log.error(
            "%s has failed and is offline until the next start, with %d replica(s): %s",
            directory.path,
            len(lost),
            error,
        )
        self._expect_report(directory_id, directory.path)
        if not self._directories.online:
            raise StorageError(directory.path, "was the last log directory of this broker")

    def _expect_report(self, directory_id: bytes, path: str) -> None:
        """Has the failure of a directory reported, within a time.

        Raises:
            StorageError: the directory has the metadata log.
        """
        self._deadlines[directory_id] = trio.current_time() + self._report_timeout_s
        self._on_failure()
        if path == self._metadata_path:
            raise StorageError(path, "has the metadata log, without which this broker cannot go on")
