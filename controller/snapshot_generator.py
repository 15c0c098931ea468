"""SnapshotGenerator: writes snapshots of the image when they are due, like Kafka's class of this name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage
from pykbroker.controller.metadata.image_builder import apply_records
from pykbroker.controller.metadata.record_framing import decode_record, encode_records
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.voter_history import ControlRecord
from pykbroker.controller.raft_storage import RaftStorage
from pykbroker.controller.settings import ControllerSettings
from pykbroker.controller.snapshot_file import Snapshot, snapshot_content
from pykbroker.logstore.errors import StorageError

if TYPE_CHECKING:
    from pykbroker.run_in_thread import RunInThread


class SnapshotGenerator:
    """Writes one snapshot at a time, after a growth of the log or after a time.

    `is_writing` must be set before the task is started that calls `write`.
    """

    def __init__(
        self,
        storage: RaftStorage,
        settings: ControllerSettings,
        wall_clock_ms: Callable[[], int],
        run_in_thread: RunInThread,
        *,
        has_one: bool,
    ) -> None:
        """`has_one`: the node has loaded a snapshot; the growth of the log is then counted from the present size."""
        self._storage = storage
        self._settings = settings
        self._wall_clock_ms = wall_clock_ms
        self._run_in_thread = run_in_thread
        self.is_writing = False
        self._size_at_snapshot = storage.size_bytes if has_one else 0
        self._snapshot_at_ms = wall_clock_ms()

    def is_due(self, image: ClusterImage, applied: OffsetAndEpoch) -> bool:
        """True if `write` should be called now."""
        settings, storage = self._settings, self._storage
        if self.is_writing or image.open_transaction is not None or image is EMPTY_IMAGE:
            return False
        if storage.snapshots and storage.snapshots[-1].offset >= applied.offset:
            return False
        if storage.size_bytes - self._size_at_snapshot > settings.snapshot_bytes:
            return True
        age_ms = self._wall_clock_ms() - self._snapshot_at_ms
        return 0 < settings.snapshot_interval_ms <= age_ms

    async def write(
        self, image: ClusterImage, snapshot: OffsetAndEpoch, control: Sequence[ControlRecord]
    ) -> OffsetAndEpoch | None:
        """Writes a snapshot in a thread and deletes the log that it replaces. `control`: its control records.

        Returns the snapshot at whose end the log starts now, None if the snapshot could not be written.
        """
        from pykbroker.controller.metadata.snapshot import image_to_records

        assert self.is_writing
        now_ms = self._wall_clock_ms()

        def write() -> None:
            values = encode_records(image_to_records(image), image.metadata_version)
            content = snapshot_content(
                snapshot.epoch, values, control, log_timestamp_ms=image.timestamp_ms, now_ms=now_ms
            )
            self._storage.write_snapshot(snapshot, content)

        size_bytes = self._storage.size_bytes
        start: OffsetAndEpoch | None = None
        try:
            if self._storage.end_offset == snapshot.offset:
                self._storage.roll(now_ms)
            await self._run_in_thread(write)
            start = self._storage.truncate_behind(snapshot, now_ms)
            size_bytes = min(size_bytes, self._storage.size_bytes)
        except StorageError:
            # Most likely the disk is full. The log is still complete; the next attempt follows after the same growth.
            pass
        self._size_at_snapshot, self._snapshot_at_ms = size_bytes, now_ms
        self.is_writing = False
        return start


def image_of_snapshot(snapshot: OffsetAndEpoch, content: Snapshot) -> ClusterImage:
    """Image from the records of a snapshot."""
    return apply_records(
        EMPTY_IMAGE,
        [decode_record(value) for value in content.values],
        offset=snapshot.offset - 1,
        epoch=snapshot.epoch,
        timestamp_ms=content.timestamp_ms,
    )
